/* The reference of every kernel, in plain C. It defines the results; nothing here is clever. */
#include "kernel/kernel.h"

#include <math.h>
#include <string.h>

#include "base/half.h"

enum { LANES = 16 };

/* lane[j] += a[j] * b[j]; the lanes keep the order fixed and let any vector width do the work. */
static void dot_lanes(float lane[LANES], const float *a, const float *b, size_t n)
{
    size_t whole = n / LANES * LANES;
    for (size_t i = 0; i < whole; i += LANES)
        for (size_t j = 0; j < LANES; j++)
            lane[j] += a[i + j] * b[i + j];
    for (size_t i = whole; i < n; i++)
        lane[i - whole] += a[i] * b[i];
}

static float sum_lanes(float lane[LANES])
{
    for (size_t half = LANES / 2; half > 0; half /= 2)
        for (size_t j = 0; j < half; j++)
            lane[j] += lane[j + half];
    return lane[0];
}

static float dot_f32(const float *a, const float *b, size_t n)
{
    float lane[LANES] = {0};
    dot_lanes(lane, a, b, n);
    return sum_lanes(lane);
}

static void matmul_f32(float *y, size_t y_stride, const float *x, size_t x_stride, size_t n_rows,
                       const struct ob_tensor *w, size_t first, size_t last, float *scratch)
{
    for (size_t o = first; o < last; o++) {
        w->format->decode(scratch, ob_tensor_row(w, o), w->n_cols);
        for (size_t r = 0; r < n_rows; r++)
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

/* exp(-x) may overflow to infinity; 1 / infinity is the right limit, 0. */
static float logistic(float x)
{
    return 1.0f / (1.0f + expf(-x));
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
        float softplus = s > 0.0f ? s + log1pf(expf(-s)) : log1pf(expf(s));
        y[i] = a[i] * softplus;
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

static void kv_store(void *dst, enum ob_kv_format format, const float *src, size_t n)
{
    if (format == OB_KV_STORE_F32) {
        memcpy(dst, src, n * sizeof *src);
        return;
    }
    uint16_t *half = dst;
    for (size_t i = 0; i < n; i++)
        half[i] = ob_f32_to_f16(src[i]);
}

/* Row `row` of a page as f32: in place where it is f32 already, else through scratch [n]. */
static const float *kv_row(const void *page, enum ob_kv_format format, size_t row, size_t n,
                           float *scratch)
{
    if (format == OB_KV_STORE_F32)
        return (const float *)page + row * n;
    const uint16_t *half = (const uint16_t *)page + row * n;
    for (size_t i = 0; i < n; i++)
        scratch[i] = ob_f16_to_f32(half[i]);
    return scratch;
}

static void attention_part(struct ob_attention_part *part, const float *q, const void *keys,
                           const void *values, enum ob_kv_format format, size_t n_keys, size_t n,
                           float scale, float *scores, float *scratch)
{
    float max = -INFINITY;
    for (size_t j = 0; j < n_keys; j++) {
        scores[j] = scale * dot_f32(q, kv_row(keys, format, j, n, scratch), n);
        max = scores[j] > max ? scores[j] : max;
    }
    float sum = 0.0f;
    memset(part->value, 0, n * sizeof *part->value);
    for (size_t j = 0; j < n_keys; j++) {
        float weight = expf(scores[j] - max);
        const float *v = kv_row(values, format, j, n, scratch);
        sum += weight;
        for (size_t i = 0; i < n; i++)
            part->value[i] += weight * v[i];
    }
    part->max = max;
    part->sum = sum;
}

static void attention_merge(struct ob_attention_part *into, const struct ob_attention_part *part,
                            size_t n)
{
    float max = part->max > into->max ? part->max : into->max;
    float old = expf(into->max - max), add_ = expf(part->max - max);
    into->sum = into->sum * old + part->sum * add_;
    for (size_t i = 0; i < n; i++)
        into->value[i] = into->value[i] * old + part->value[i] * add_;
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
            y[t * y_stride + c] = sum * logistic(sum);
        }
    }
}

static void delta_step(float *o, float *state, const float *q, const float *k, const float *v,
                       float decay_, float beta, size_t dk, size_t dv, size_t first, size_t last)
{
    enum { COLUMNS = 64 };
    float delta[COLUMNS] = {0}, read[COLUMNS] = {0};
    size_t n = last - first;
    for (size_t i = 0; i < dk; i++) {
        float *row = state + i * dv + first;
        for (size_t j = 0; j < n; j++) {
            row[j] *= decay_;
            delta[j] += row[j] * k[i];
        }
    }
    for (size_t j = 0; j < n; j++)
        delta[j] = beta * (v[first + j] - delta[j]);
    for (size_t i = 0; i < dk; i++) {
        float *row = state + i * dv + first;
        for (size_t j = 0; j < n; j++) {
            row[j] += k[i] * delta[j];
            read[j] += row[j] * q[i];
        }
    }
    memcpy(o + first, read, n * sizeof *read);
}

void ob_kernels_install_ref(struct ob_kernels *table)
{
    *table = (struct ob_kernels){
        .name = "ref",
        .dot_f32 = dot_f32,
        .matmul_f32 = matmul_f32,
        .rmsnorm = rmsnorm,
        .l2norm = l2norm,
        .add = add,
        .silu_mul = silu_mul,
        .sigmoid_mul = sigmoid_mul,
        .sigmoid = sigmoid,
        .decay = decay,
        .rope = rope,
        .kv_store = kv_store,
        .attention_part = attention_part,
        .attention_merge = attention_merge,
        .conv_silu = conv_silu,
        .delta_step = delta_step,
    };
}
