/* Safetensors: a reader over mapped or borrowed memory, and a writer whose rows come one by one.
 *
 * The file is an 8-byte little-endian header length, a JSON object that names every tensor with its
 * type, shape and byte range, and the bytes. The reader is strict: the ranges must cover the data
 * without gap or overlap, as the format's own reference library demands. Source: the format
 * description of the safetensors project. */
#ifndef OB_FILE_SAFETENSORS_H
#define OB_FILE_SAFETENSORS_H

#include "base/error.h"
#include "base/str.h"

enum ob_dtype {
    OB_DTYPE_BOOL,
    OB_DTYPE_U8,
    OB_DTYPE_I8,
    OB_DTYPE_F8_E5M2,
    OB_DTYPE_F8_E4M3,
    OB_DTYPE_I16,
    OB_DTYPE_U16,
    OB_DTYPE_F16,
    OB_DTYPE_BF16,
    OB_DTYPE_I32,
    OB_DTYPE_U32,
    OB_DTYPE_F32,
    OB_DTYPE_I64,
    OB_DTYPE_U64,
    OB_DTYPE_F64,
    OB_N_DTYPES
};

/* "F32" and the bytes of one element; `dtype` must be in range. */
const char *ob_dtype_name(enum ob_dtype dtype);
size_t ob_dtype_bytes(enum ob_dtype dtype);

enum { OB_SAFETENSORS_MAX_RANK = 8 };

struct ob_safetensor {
    struct ob_str name;
    enum ob_dtype dtype;
    int rank;                                /* 0 for a scalar */
    uint64_t shape[OB_SAFETENSORS_MAX_RANK]; /* slowest first */
    const void *data; /* little-endian; aligned only as the file happens to be */
    size_t bytes;
};

/* ------------------------------------------------------------------------------------ reader */

/* Immutable after open; any thread. */
struct ob_safetensors;

/* OB_IO_ERROR, OB_NO_MEMORY, OB_BAD_FILE (damaged, cut, duplicate names, a range that does not match
 * the shape, gaps or overlaps) or OB_UNSUPPORTED (an unknown dtype, rank above 8), naming file,
 * tensor and value. */
ob_status ob_safetensors_open(const char *path, struct ob_safetensors **out, struct ob_error *err);
/* `bytes` is borrowed until close; `name` is used in messages. */
ob_status ob_safetensors_open_memory(const char *name, const void *bytes, size_t n_bytes,
                                     struct ob_safetensors **out, struct ob_error *err);
void ob_safetensors_close(struct ob_safetensors *file); /* NULL is allowed */

/* Tensors in the order of their bytes in the file. */
size_t ob_safetensors_count(const struct ob_safetensors *file);
const struct ob_safetensor *ob_safetensors_at(const struct ob_safetensors *file, size_t i);
const struct ob_safetensor *ob_safetensors_find(const struct ob_safetensors *file,
                                                const char *name); /* or NULL; O(count) */
/* A value of "__metadata__", or NULL. */
const char *ob_safetensors_metadata(const struct ob_safetensors *file, const char *key);

/* ------------------------------------------------------------------------------------ writer */

/* What a tensor of the new file will be. */
struct ob_safetensor_plan {
    const char *name;
    enum ob_dtype dtype;
    int rank; /* 1 .. OB_SAFETENSORS_MAX_RANK */
    uint64_t shape[OB_SAFETENSORS_MAX_RANK];
};

struct ob_safetensors_writer;

/* Start a file with these tensors, in this order. Nothing is visible at `path` before finish.
 * OB_INVALID_ARGUMENT (equal or empty names, a size that overflows), OB_IO_ERROR, OB_NO_MEMORY. */
ob_status ob_safetensors_create(const char *path, const struct ob_safetensor_plan *tensors,
                                size_t n, struct ob_safetensors_writer **out, struct ob_error *err);

/* Write rows [first_row, first_row + n_rows) of tensor `index`: `rows` [n_rows][last dimension], a row
 * index counting over all leading dimensions. Any order; each row once. */
ob_status ob_safetensors_write_rows(struct ob_safetensors_writer *writer, size_t index,
                                    uint64_t first_row, uint64_t n_rows, const void *rows,
                                    struct ob_error *err);

/* Sync, rename, free. OB_INVALID_ARGUMENT when rows are missing. On failure nothing is left. */
ob_status ob_safetensors_finish(struct ob_safetensors_writer *writer, struct ob_error *err);
void ob_safetensors_abort(struct ob_safetensors_writer *writer); /* NULL is allowed */

/* The temporary file's name (see out_file.h). */
const char *ob_safetensors_temporary(const struct ob_safetensors_writer *writer);

#endif
