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
 * Notation: [a, b] is row-major, b contiguous. No argument may alias another unless said. */
#ifndef OB_KERNEL_KERNEL_H
#define OB_KERNEL_KERNEL_H

#include <stddef.h>
#include <stdint.h>

#include "quant/format.h"

/* How a KV page stores its numbers. */
enum ob_kv_format { OB_KV_STORE_F16, OB_KV_STORE_F32 };

static inline size_t ob_kv_format_bytes(enum ob_kv_format format)
{
    return format == OB_KV_STORE_F16 ? 2 : 4;
}

/* The result of attention over part of the keys: softmax weights relative to `max`. */
struct ob_attention_part {
    float max;    /* of the scaled scores; -infinity when it covers no key */
    float sum;    /* of exp(score - max) */
    float *value; /* [head_dim] sum of exp(score - max) v */
};

struct ob_kernels {
    const char *name; /* "ref" */

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

    /* y = a / (1 + exp(-a)) * b, [n]; y may be a or b. ULP(8). */
    void (*silu_mul)(float *y, const float *a, const float *b, size_t n);

    /* y = a / (1 + exp(-b)), [n]. ULP(8). */
    void (*sigmoid_mul)(float *y, const float *a, const float *b, size_t n);

    /* y = 1 / (1 + exp(-x)), [n]. ULP(8). */
    void (*sigmoid)(float *y, const float *x, size_t n);

    /* y = a * log(1 + exp(x + bias)), all [n]: the log of DeltaNet's decay. REL(1e-6). */
    void (*decay)(float *y, const float *x, const float *a, const float *bias, size_t n);

    /* One head: y [n] = x with its first n_rot dims rotated in pairs (i, i + n_rot/2) by the plane's
     * cos and sin [n_rot/2]; the rest copied. EXACT. */
    void (*rope)(float *y, const float *x, const float *cosine, const float *sine, size_t n_rot,
                 size_t n);

    /* dst [n] = src [n] in the page's number format, round to nearest even. EXACT. */
    void (*kv_store)(void *dst, enum ob_kv_format format, const float *src, size_t n);

    /* Attention of one query q [n] over keys and values [n_keys, n] of one page and KV head, n_keys
     * >= 1: fills `part`. scores [n_keys] and scratch [n] are the caller's. Scores are scale *
     * dot_f32(q, k); exp is REL(1e-6), the rest in key order: part->sum and part->value add the keys
     * ascending. */
    void (*attention_part)(struct ob_attention_part *part, const float *q, const void *keys,
                           const void *values, enum ob_kv_format format, size_t n_keys, size_t n,
                           float scale, float *scores, float *scratch);

    /* into = into merged with `part` (Milakov and Gimelshein, 2018: online softmax). Order matters:
     * pages are merged ascending. */
    void (*attention_merge)(struct ob_attention_part *into, const struct ob_attention_part *part,
                            size_t n);

    /* Causal depthwise convolution and SiLU of channels [first, last) over n_rows tokens:
     * y[t, c] = silu(sum over j ascending of w[c, j] * input(t - (taps - 1) + j, c)), where inputs
     * before the first row come from tail [taps - 1, n_channels], oldest first. The tail is updated
     * to the last taps - 1 inputs (before SiLU). x, y rows are x_stride, y_stride apart. ULP(8). */
    void (*conv_silu)(float *y, size_t y_stride, const float *x, size_t x_stride, size_t n_rows,
                      const float *w, size_t taps, float *tail, size_t n_channels, size_t first,
                      size_t last);

    /* One token of the gated delta rule for value columns [first, last) of one head (Yang et al.,
     * 2024: Gated Delta Networks). state [dk, dv] row-major; k, q [dk]; v, o [dv] of this head:
     *   S <- exp(g) S;  d = beta (v - S^T k);  S <- S + k d^T;  o = S^T q
     * Each column's sums run over dk ascending, multiply and add rounded apart; exp(g) is given as
     * `decay`. last - first <= 64. EXACT. */
    void (*delta_step)(float *o, float *state, const float *q, const float *k, const float *v,
                       float decay, float beta, size_t dk, size_t dv, size_t first, size_t last);
};

/* A bit per instruction set extension this CPU and operating system offer. */
enum ob_cpu_bits { OB_CPU_BASELINE = 0 };
uint32_t ob_cpu_detect(void);

/* Fill `table` for level `name` ("ref", or "auto"/NULL: the best for `cpu`). OB_INVALID_ARGUMENT
 * when the level is unknown, OB_UNSUPPORTED when `cpu` lacks what it needs. */
ob_status ob_kernels_get(const char *name, uint32_t cpu, struct ob_kernels *table,
                         struct ob_error *err);

/* The reference installer: fills every entry. */
void ob_kernels_install_ref(struct ob_kernels *table);

#endif
