/* Kernels: arithmetic on plain arrays. No plan, no session, no thread, no allocation.
 *
 * A table of kernels is filled with the reference first; installers for an instruction set then
 * replace entries, so every entry always works. A test holds two tables and compares them.
 *
 * Contracts: EXACT means bit-equal to the reference on every level and machine. ULP(n) and REL(e)
 * bound the distance to it. On one level every result is deterministic, and no result depends on
 * how many rows, tokens or threads a call covers (row invariance).
 *
 * Sums are EXACT by a fixed order: 16 lanes, lane j adds the products of elements j, j + 16, ... in
 * ascending order, multiply and add rounded apart; then lanes are added pairwise, j with j + 8, then
 * j + 4, j + 2, j + 1. Elements past the end count as absent, not as zero. So vectors of 4, 8 or 16
 * floats all give the same bits.
 *
 * exp(x) is one polynomial of fixed steps (float_body.h), within 1 ULP of the true value (0.991 at
 * worst, over all floats); so all that is built on it is EXACT too.
 *
 * Notation: [a, b] is row-major, b contiguous. No argument may alias another unless said. */
#ifndef OB_KERNEL_KERNEL_H
#define OB_KERNEL_KERNEL_H

#include <stddef.h>
#include <stdint.h>

#include "quant/format.h"
#include "quant/kv_format.h"

/* Most keys of one attention call: a page. */
enum { OB_KEYS_AT_ONCE = 128 };

/* Floats of scratch for attention_page: unpacked rows, and values of queries that are not there. */
static inline size_t ob_attention_scratch(size_t n)
{
    return (OB_KV_GROUP + 1) * n;
}

/* One query of an attention call and the result over part of the keys: softmax weights relative to
 * `max`, of which `value` is the weighted sum. */
struct ob_attention_query {
    const float *q; /* [head_dim] */
    float *value;   /* [head_dim] sum of exp(score - max) v */
    float max;      /* of the scaled scores */
    float sum;      /* of exp(score - max) */
    size_t n_keys;  /* keys of the page that this query sees, >= 1 */
};

/* ---------------------------------------------------------------------------- int8 products
 *
 * Activations are rounded to 8 bits in groups of 64 columns: code = round(x / scale), scale chosen
 * per group. A product is then
 *
 *   for each group c of columns that shares an activation scale and a weight scale, ascending:
 *     isum = sum over c of weight code * activation code                  exact in int32
 *     t   += (float)isum * activation scale                               over one weight group
 *   at the end of each weight group:
 *     part += t * weight scale
 *   y = part 0 + part 1 + ... + part 7, left to right, empty parts left out
 *
 * where part p covers the 128-column units [p n / 8, (p + 1) n / 8) of the n units of a row, t starts
 * from its first product, part from 0, and every multiplication and addition is rounded on its own.
 * All levels give these bits: EXACT. */

enum {
    OB_ACT_GROUP = 64,  /* columns that share an activation scale */
    OB_SUM_GROUP = 32,  /* columns whose codes are added up for the kernels that need it */
    OB_PANEL_ROWS = 12, /* rows of activations that a product takes together */
    OB_UNIT_COLUMNS = 128,
    OB_K_PARTS = 8,
};

/* Rows of int8 activations, in panels of OB_PANEL_ROWS rows of which the last may be lower. Within a
 * panel of height h everything is interleaved by row, so that a product reads it straight through:
 * codes [n_cols / 4][h][4], scales [n_cols / 64][h], sums [n_cols / 32][h]. The height of a panel is
 * rounded up to one that products have code for (ob_panel_height); the rows past n_rows are zeros,
 * which `quantise` stores along with the last row. */
struct ob_codes {
    int8_t *codes;
    float *scales;
    int32_t *sums;
    size_t n_rows, n_cols;
};

/* 1, 2, 3, 4, 6, 8 or 12: the height a panel of `rows` rows (1 to 12) is stored with. */
static inline size_t ob_panel_height(size_t rows)
{
    return rows <= 4 ? rows : rows <= 6 ? 6 : rows <= 8 ? 8 : OB_PANEL_ROWS;
}

/* Where row r lies: its panel's first row, the panel's height, its place in the panel. */
struct ob_panel {
    size_t first, height, at;
};

static inline struct ob_panel ob_panel_of(const struct ob_codes *x, size_t r)
{
    size_t first = r / OB_PANEL_ROWS * OB_PANEL_ROWS, left = x->n_rows - first;
    struct ob_panel p = {first, ob_panel_height(left < OB_PANEL_ROWS ? left : OB_PANEL_ROWS),
                         r - first};
    return p;
}

/* Bytes of the three planes for up to n_rows rows; n_cols a multiple of OB_ACT_GROUP. */
static inline size_t ob_codes_bytes(size_t n_rows, size_t n_cols)
{
    size_t rows = (n_rows + OB_PANEL_ROWS - 1) / OB_PANEL_ROWS * OB_PANEL_ROWS;
    return rows * (n_cols + n_cols / OB_ACT_GROUP * 4 + n_cols / OB_SUM_GROUP * 4);
}

/* The planes in `memory` (64-byte aligned, ob_codes_bytes(n_rows or more, n_cols)). */
static inline struct ob_codes ob_codes_at(void *memory, size_t n_rows, size_t n_cols)
{
    size_t rows = (n_rows + OB_PANEL_ROWS - 1) / OB_PANEL_ROWS * OB_PANEL_ROWS;
    struct ob_codes x = {memory, NULL, NULL, n_rows, n_cols};
    x.scales = (float *)(void *)(x.codes + rows * n_cols);
    x.sums = (int32_t *)(void *)(x.scales + rows * (n_cols / OB_ACT_GROUP));
    return x;
}

/* How a level multiplies by weights of one format: packing, tile and product are one thing. */
struct ob_product {
    size_t tile_rows; /* weight rows of a tile; the last tile of a matrix may be cut */

    /* Bytes of a packed tile; NULL: the product reads the file's own blocks. */
    size_t (*tile_bytes)(size_t n_cols);
    /* Pack tiles [first, last) of w into packed + first * tile_bytes. */
    void (*pack)(void *packed, const struct ob_tensor *w, size_t first, size_t last);

    /* y[r, o] for all rows r of x and the outputs o of tiles [first, last). packed: all of the
     * matrix (ignored without tile_bytes). y rows y_stride floats apart. EXACT. */
    void (*multiply)(float *y, size_t y_stride, const struct ob_codes *x, const struct ob_tensor *w,
                     const void *packed, size_t first, size_t last);
};

struct ob_kernels {
    const char *name; /* "ref" */

    /* Int8 multiply-adds on registers, as fast as the level can: does n_rounds of them and returns
     * how many that were. What a product's speed is measured against. */
    uint64_t (*probe_macs)(size_t n_rounds);

    /* sum of a[i] * b[i], i < n, in the order above. EXACT. */
    float (*dot_f32)(const float *a, const float *b, size_t n);

    /* y[r, o] = dot_f32(decoded row o of w, x row r), first <= o < last, r < n_rows.
     * x [n_rows, w->n_cols] with rows x_stride floats apart, y likewise with y_stride. scratch
     * [w->n_cols] is the caller's. EXACT. */
    void (*matmul_f32)(float *y, size_t y_stride, const float *x, size_t x_stride, size_t n_rows,
                       const struct ob_tensor *w, size_t first, size_t last, float *scratch);

    /* y = x / sqrt(dot(x, x) / n + eps) * w, all [n]; y may be x. EXACT (one division, one square
     * root, both correctly rounded). */
    void (*rmsnorm)(float *y, const float *x, const float *w, size_t n, float eps);

    /* y = scale * x / sqrt(dot(x, x) + eps), [n]; y may be x. EXACT. */
    void (*l2norm)(float *y, const float *x, size_t n, float eps, float scale);

    /* y = a + b, [n]; y may be a or b. EXACT. */
    void (*add)(float *y, const float *a, const float *b, size_t n);

    /* y = a / (1 + exp(-a)) * b, [n]; y may be a or b. EXACT. */
    void (*silu_mul)(float *y, const float *a, const float *b, size_t n);

    /* y = a / (1 + exp(-b)), [n]. EXACT. */
    void (*sigmoid_mul)(float *y, const float *a, const float *b, size_t n);

    /* y = 1 / (1 + exp(-x)), [n]. EXACT. */
    void (*sigmoid)(float *y, const float *x, size_t n);

    /* y = exp(a * log(1 + exp(x + bias))), all [n]: DeltaNet's decay, in [0, 1] for a < 0. Uses the C
     * library's log1p, so it is equal over levels on one machine only. Within 3 (1 + |ln y|) ULP of
     * the true value for the rounded x + bias: exp turns the rounding of its argument into as many
     * ULP as the argument is large. */
    void (*decay)(float *y, const float *x, const float *a, const float *bias, size_t n);

    /* One head: y [n] = x with its first n_rot dims rotated in pairs (i, i + n_rot/2) by the plane's
     * cos and sin [n_rot/2]; the rest copied. EXACT. */
    void (*rope)(float *y, const float *x, const float *cosine, const float *sine, size_t n_rot,
                 size_t n);

    /* dst [n] = src [n] in the page's number format (not Q4), round to nearest even. EXACT. */
    void (*kv_store)(void *dst, enum ob_kv_format format, const float *src, size_t n);

    /* dst = a page of src [OB_KEYS_AT_ONCE, n] as Q4. EXACT. */
    void (*kv_pack_keys)(void *dst, const float *src, size_t n);
    void (*kv_pack_values)(void *dst, const float *src, size_t n);

    /* Attention of n_queries queries to keys and values [most n_keys, n] of one page and KV head:
     * fills value, max and sum of each. Queries next to each other should see equally many keys.
     * n_keys <= OB_KEYS_AT_ONCE, equal to it for Q4; scratch [ob_attention_scratch(n)] is the
     * caller's. Pages of integers are first turned into f32; then scores are scale * dot_f32(q, k),
     * and sum and value add the keys ascending, value from 0. EXACT. */
    void (*attention_page)(struct ob_attention_query *queries, size_t n_queries, const void *keys,
                           const void *values, enum ob_kv_format format, size_t n, float scale,
                           float *scratch);

    /* into = into merged with `part` (Milakov and Gimelshein, 2018: online softmax). Order matters:
     * pages are merged ascending. EXACT. */
    void (*attention_merge)(struct ob_attention_query *into, const struct ob_attention_query *part,
                            size_t n);

    /* Causal depthwise convolution and SiLU of channels [first, last) over n_rows tokens:
     * y[t, c] = silu(sum over j ascending of w[c, j] * input(t - (taps - 1) + j, c)), where inputs
     * before the first row come from tail [taps - 1, n_channels], oldest first. The tail is updated
     * to the last taps - 1 inputs (before SiLU). taps >= 2. x, y rows are x_stride, y_stride apart. EXACT. */
    void (*conv_silu)(float *y, size_t y_stride, const float *x, size_t x_stride, size_t n_rows,
                      const float *w, size_t taps, float *tail, size_t n_channels, size_t first,
                      size_t last);

    /* Round columns [first, first + n) of row `row`: fills codes, scales and sums of x from values
     * [n]; first and n are multiples of OB_ACT_GROUP. Of 4 scales, max|x| / 127, / 126, / 125 and
     * / 124, the one with the least squared error is taken. A group that stays below 2^-100 becomes
     * zeros: its inverse would overflow. A NaN or infinity makes the scale NaN. EXACT. */
    void (*quantise)(struct ob_codes *x, size_t row, size_t first, const float *values, size_t n);

    /* By format; multiply is NULL where the format has no integer codes. */
    struct ob_product products[OB_N_FORMATS];

    /* One token of the gated delta rule for value columns [first, last) of one head (Yang et al.,
     * 2024: Gated Delta Networks). state [dk, dv] row-major; k, q [dk]; v, o [dv] of this head:
     *   S <- exp(g) S;  d = beta (v - S^T k);  S <- S + k d^T;  o = S^T q
     * Each column's sums run over dk ascending, multiply and add rounded apart; exp(g) is given as
     * `decay`. EXACT. */
    void (*delta_step)(float *o, float *state, const float *q, const float *k, const float *v,
                       float decay, float beta, size_t dk, size_t dv, size_t first, size_t last);
};

/* A bit per instruction set extension this CPU and operating system offer. */
enum ob_cpu_bits {
    OB_CPU_AVX2 = 1,    /* AVX2, F16C, BMI2 */
    OB_CPU_AVX512 = 2,  /* AVX-512 F, BW, VL, DQ, VNNI, VBMI */
    OB_CPU_NEON = 4,    /* Advanced SIMD of 64-bit Arm */
    OB_CPU_DOTPROD = 8, /* and its dot products of bytes */
};
uint32_t ob_cpu_detect(void);

/* Fill `table` for level `name` ("ref", or "auto"/NULL: the best for `cpu`). OB_INVALID_ARGUMENT
 * when the level is unknown, OB_UNSUPPORTED when `cpu` lacks what it needs. */
ob_status ob_kernels_get(const char *name, uint32_t cpu, struct ob_kernels *table,
                         struct ob_error *err);

/* Name of level i in ascending order, NULL past the last this build has. */
const char *ob_kernels_level(size_t i);

uint64_t ob_probe_macs_avx2(size_t n_rounds);
uint64_t ob_probe_macs_avx512(size_t n_rounds);

/* Part p of the 128-column units of a row: ends before unit (p + 1) * n / 8. */
static inline size_t ob_part_end(size_t part, size_t n_units)
{
    return (part + 1) * n_units / OB_K_PARTS;
}

/* Installers: the reference fills every entry, the others replace what they do faster. */
void ob_kernels_install_ref(struct ob_kernels *table);
void ob_kernels_install_avx2(struct ob_kernels *table);
void ob_kernels_install_avx2_int8(struct ob_kernels *table);
void ob_kernels_install_avx512(struct ob_kernels *table);
void ob_kernels_install_avx512_int8(struct ob_kernels *table);
void ob_kernels_install_neon_int8(struct ob_kernels *table);
void ob_kernels_install_dotprod_int8(struct ob_kernels *table);

#endif
