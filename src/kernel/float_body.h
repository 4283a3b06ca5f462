/* The float kernels, written once for every instruction set.
 *
 * The including file is compiled with the flags of its level, and the compiler's vectoriser does
 * the rest: the order of every operation is fixed in the source and contraction is off, so all levels
 * give the same bits. Private to src/kernel; everything is static. */
#include <math.h>
#include <string.h>

#include "base/half.h"
#include "kernel/kernel.h"
#include "kernel/vectors.h"

#if defined(__F16C__)
#include <immintrin.h>
#endif

/* exp(x): 2^n times a polynomial on |r| <= ln(2)/2, coefficients of Moshier's Cephes library. The
 * power of two is applied in halves, so that overflow and underflow come out as they should. */
static inline float exp_f32(float x)
{
    const float shift = 12582912.0f; /* 1.5 * 2^23: adding it rounds to an integer */
    float c = x > -104.0f ? x : -104.0f;
    c = c < 89.0f ? c : 89.0f;
    float n = (c * 1.44269504f + shift) - shift;
    float r = (c - n * 0.693359375f) + n * 2.12194440e-4f;
    float p = 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * (r * r) + r + 1.0f;
    int32_t whole = (int32_t)n, half = whole >> 1;
    float first = ob_float_from_bits((uint32_t)(half + 127) << 23);
    float second = ob_float_from_bits((uint32_t)(whole - half + 127) << 23);
    p = p * first * second;
    return x != x ? x : p;
}

static inline float logistic(float x)
{
    return 1.0f / (1.0f + exp_f32(-x));
}

/* lane[j] += a[j] * b[j]; the lanes keep the order fixed and let any vector width do the work. */
static inline void dot_lanes(float lane[LANES], const float *a, const float *b, size_t n)
{
    size_t whole = n / LANES * LANES;
    for (size_t i = 0; i < whole; i += LANES)
        for (size_t j = 0; j < LANES; j++)
            lane[j] += a[i + j] * b[i + j];
    for (size_t i = whole; i < n; i++)
        lane[i - whole] += a[i] * b[i];
}

static float dot_f32(const float *a, const float *b, size_t n)
{
    float lane[LANES] = {0};
    dot_lanes(lane, a, b, n);
    return sum_lanes(lane);
}

/* Four dots with one vector: their chains of additions run side by side. */
static inline void dot_four(float out[4], const float *w, const float *x, size_t stride, size_t n)
{
    float lane[4][LANES] = {{0}};
    size_t whole = n / LANES * LANES;
    for (size_t i = 0; i < whole; i += LANES)
        for (size_t r = 0; r < 4; r++)
            for (size_t j = 0; j < LANES; j++)
                lane[r][j] += w[i + j] * x[r * stride + i + j];
    for (size_t r = 0; r < 4; r++) {
        for (size_t i = whole; i < n; i++)
            lane[r][i - whole] += w[i] * x[r * stride + i];
        out[r] = sum_lanes(lane[r]);
    }
}

static void matmul_f32(float *y, size_t y_stride, const float *x, size_t x_stride, size_t n_rows,
                       const struct ob_tensor *w, size_t first, size_t last, float *scratch)
{
    for (size_t o = first; o < last; o++) {
        w->format->decode(scratch, ob_tensor_row(w, o), w->n_cols);
        size_t r = 0;
        for (; r + 4 <= n_rows; r += 4) {
            float out[4];
            dot_four(out, scratch, x + r * x_stride, x_stride, w->n_cols);
            for (size_t i = 0; i < 4; i++)
                y[(r + i) * y_stride + o] = out[i];
        }
        for (; r < n_rows; r++)
            y[r * y_stride + o] = dot_f32(scratch, x + r * x_stride, w->n_cols);
    }
}

static void rmsnorm(float *y, const float *x, const float *w, size_t n, float eps)
{
    float inverse = 1.0f / sqrtf(dot_f32(x, x, n) / (float)n + eps);
    for (size_t i = 0; i < n; i++)
        y[i] = x[i] * inverse * w[i];
}

static void l2norm(float *y, const float *x, size_t n, float eps, float scale)
{
    float factor = scale * (1.0f / sqrtf(dot_f32(x, x, n) + eps));
    for (size_t i = 0; i < n; i++)
        y[i] = x[i] * factor;
}

static void add(float *y, const float *a, const float *b, size_t n)
{
    for (size_t i = 0; i < n; i++)
        y[i] = a[i] + b[i];
}

static void silu_mul(float *y, const float *a, const float *b, size_t n)
{
    for (size_t i = 0; i < n; i++)
        y[i] = a[i] * logistic(a[i]) * b[i];
}

static void sigmoid_mul(float *y, const float *a, const float *b, size_t n)
{
    for (size_t i = 0; i < n; i++)
        y[i] = a[i] * logistic(b[i]);
}

static void sigmoid(float *y, const float *x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        y[i] = logistic(x[i]);
}

static void decay(float *y, const float *x, const float *a, const float *bias, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        float s = x[i] + bias[i];
        /* softplus without overflow: log(1 + e^s) = s + log(1 + e^-s) */
        float softplus = s > 0.0f ? s + log1pf(exp_f32(-s)) : log1pf(exp_f32(s));
        y[i] = exp_f32(a[i] * softplus);
    }
}

static void rope(float *y, const float *x, const float *cosine, const float *sine, size_t n_rot,
                 size_t n)
{
    size_t half = n_rot / 2;
    for (size_t i = 0; i < half; i++) {
        float a = x[i], b = x[i + half];
        y[i] = a * cosine[i] - b * sine[i];
        y[i + half] = b * cosine[i] + a * sine[i];
    }
    memcpy(y + n_rot, x + n_rot, (n - n_rot) * sizeof *y);
}

#include "kernel/kv_body.h"

#include "kernel/attention_body.h"

static void attention_merge(struct ob_attention_query *into, const struct ob_attention_query *part,
                            size_t n)
{
    float max = part->max > into->max ? part->max : into->max;
    float old = exp_f32(into->max - max), new = exp_f32(part->max - max);
    into->sum = into->sum * old + part->sum * new;
    for (size_t i = 0; i < n; i++)
        into->value[i] = into->value[i] * old + part->value[i] * new;
    into->max = max;
}

static void conv_silu(float *y, size_t y_stride, const float *x, size_t x_stride, size_t n_rows,
                      const float *w, size_t taps, float *tail, size_t n_channels, size_t first,
                      size_t last)
{
    for (size_t t = 0; t < n_rows; t++) {
        const float *now = x + t * x_stride;
        for (size_t c = first; c < last; c++) {
            float sum = 0.0f;
            for (size_t j = 0; j + 1 < taps; j++)
                sum += w[c * taps + j] * tail[j * n_channels + c];
            sum += w[c * taps + taps - 1] * now[c];
            for (size_t j = 0; j + 2 < taps; j++)
                tail[j * n_channels + c] = tail[(j + 1) * n_channels + c];
            tail[(taps - 2) * n_channels + c] = now[c];
            y[t * y_stride + c] = sum;
        }
        float *out = y + t * y_stride;
        for (size_t c = first; c < last; c++)
            out[c] = out[c] * logistic(out[c]);
    }
}

#include "kernel/delta_body.h"

#include "kernel/quantise_body.h"

/* Replace all float kernels of a table. */
static void install_float(struct ob_kernels *table)
{
    table->dot_f32 = dot_f32;
    table->matmul_f32 = matmul_f32;
    table->rmsnorm = rmsnorm;
    table->l2norm = l2norm;
    table->add = add;
    table->silu_mul = silu_mul;
    table->sigmoid_mul = sigmoid_mul;
    table->sigmoid = sigmoid;
    table->decay = decay;
    table->rope = rope;
    table->kv_store = kv_store;
    table->kv_pack_keys = kv_pack_keys;
    table->kv_pack_values = kv_pack_values;
    table->attention_page = attention_page;
    table->attention_merge = attention_merge;
    table->conv_silu = conv_silu;
    table->delta_step = delta_step;
    table->quantise = quantise;
}
