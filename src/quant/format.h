/* Block formats: how a row of weights is stored, one table row per format.
 *
 * A tensor row of n_cols weights is n_cols / group blocks of group_bytes bytes, in order. Nothing
 * here knows names, files or kernels. */
#ifndef OB_QUANT_FORMAT_H
#define OB_QUANT_FORMAT_H

#include "base/error.h"
#include "base/str.h"

/* Our own numbering: unlike the file's type ids it tells the two layouts of id 42 apart. */
enum ob_format_id {
    OB_FORMAT_F32,
    OB_FORMAT_F16,
    OB_FORMAT_BF16,
    OB_FORMAT_Q8_0,
    OB_FORMAT_Q4_0,
    OB_FORMAT_Q1_0,
    OB_FORMAT_Q2_0_G64,
    OB_FORMAT_Q2_0_G128,
    OB_N_FORMATS
};

struct ob_format {
    enum ob_format_id id;
    const char *name;   /* "q1_0"; the two layouts of Q2_0 are "q2_0" (64) and "q2_0_g128" */
    uint32_t gguf_type; /* tensor type id in a GGUF file */
    int group;          /* weights in a block */
    int group_bytes;    /* bytes of a block */

    /* weights [n] = decoded blocks; n is a multiple of group. blocks need no alignment. */
    void (*decode)(float *weights, const void *blocks, size_t n);

    /* blocks = encoded weights [n], n a multiple of group. Chooses codes that decode to exactly the
     * given weights whenever the format has such codes; otherwise rounds to nearest. */
    void (*encode)(void *blocks, const float *weights, size_t n);

    /* Integer formats: codes [n] and scales [n / group] with weight = code * scale, exactly; NULL for
     * float formats. Codes are within -128 .. 127. */
    void (*integers)(int8_t *codes, float *scales, const void *blocks, size_t n);
};

/* The row of a format; `id` must be in range. */
const struct ob_format *ob_format_get(enum ob_format_id id);

/* NULL when there is no format of that name. */
const struct ob_format *ob_format_by_name(struct ob_str name);

/* Bytes of n_cols weights; n_cols must be a multiple of group and the product must not overflow. */
static inline size_t ob_format_row_bytes(const struct ob_format *format, size_t n_cols)
{
    return n_cols / (size_t)format->group * (size_t)format->group_bytes;
}

/* A matrix or vector in memory it does not own: n_rows x n_cols, row-major, rows packed without
 * gaps. A vector has n_rows == 1. `out x in`: a product y = W x takes x [n_cols], gives y [n_rows]. */
struct ob_tensor {
    struct ob_str name;
    const struct ob_format *format;
    size_t n_rows, n_cols;
    const void *data;
    size_t bytes; /* n_rows * row bytes */
};

static inline const void *ob_tensor_row(const struct ob_tensor *t, size_t row)
{
    return (const char *)t->data + row * ob_format_row_bytes(t->format, t->n_cols);
}

#endif
