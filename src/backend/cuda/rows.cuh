/* Steps that work on each row alone. */
#pragma once

#include "common.cuh"

extern "C" __global__ void embed(const cuda_step s, const cuda_run *run)
{
    int row = blockIdx.x;
    if (row >= run->n_rows)
        return;
    const uint8_t *w = reinterpret_cast<const uint8_t *>(s.w[0]) +
                       (size_t)int_array(run->ids)[row] * s.w_row_bytes;
    for (int c = threadIdx.x; c < s.w_cols; c += blockDim.x)
        *element(s.out, row, c) = decode(s.w_format, w, c);
}

/* In double, as on the CPU: at position 100,000 an f32 angle would be off by thousandths of a turn. */
extern "C" __global__ void rope_table(const cuda_step s, const cuda_run *run)
{
    int row = blockIdx.x, half = s.n_rot / 2;
    if (row >= run->n_rows)
        return;
    for (int i = threadIdx.x; i < half; i += blockDim.x) {
        int axis = reinterpret_cast<const uint8_t *>(s.axis)[i];
        double angle = (double)int_array(run->rope_at)[row * 3 + axis] *
                       reinterpret_cast<const double *>(s.freq)[i];
        double sine, cosine;
        sincos(angle, &sine, &cosine);
        *element(s.out, row, i) = (float)cosine * s.magnitude;
        *element(s.out, row, half + i) = (float)sine * s.magnitude;
    }
}

/* ------------------------------------------------------------------------------------------ norms */

enum norm { RMS, L2, GATED };

/* What every element is multiplied with, from the sum of squares. */
template <int KIND> DEVICE float norm_factor(float sum, int n, float eps, float scale)
{
    return KIND == L2 ? scale / sqrtf(sum + eps) : 1.0f / sqrtf(sum / (float)n + eps);
}

template <int KIND>
DEVICE float norm_element(const float *x, const float *w, const float *z, int i, float factor)
{
    if (KIND == L2)
        return x[i] * factor;
    float y = x[i] * factor * w[i];
    return KIND == GATED ? z[i] * logistic(z[i]) * y : y;
}

/* Write one head, in f32 or as codes; by `threads` threads, a multiple of 32, of which this is
 * number `thread`. */
template <int KIND>
DEVICE void norm_write(const cuda_step &s, int row, int head, float factor, int thread, int threads)
{
    int n = s.out.head_dim;
    const float *x = head_at(s.in[0], row, head), *w = reinterpret_cast<const float *>(s.w[0]);
    const float *z = KIND == GATED ? head_at(s.in[1], row, head) : nullptr;
    if (!s.out.is_codes) {
        float *y = head_at(s.out, row, head);
        for (int i = thread; i < n; i += threads)
            y[i] = norm_element<KIND>(x, w, z, i, factor);
        return;
    }
    int groups = n / 64;
    for (int base = 0; base < groups; base += threads / 16) {
        int group = base + thread / 16;
        float v[4] = {0, 0, 0, 0};
        if (group < groups)
            for (int i = 0; i < 4; i++)
                v[i] = norm_element<KIND>(x, w, z, group * 64 + (thread & 15) + 16 * i, factor);
        quantise_into(s.out, row, head * groups + group, v, group < groups);
    }
    if (head == s.out.n_heads - 1)
        pad_codes(s.out, row, thread);
}

/* A warp for each head of each row. */
template <int KIND> DEVICE void norm_narrow(const cuda_step &s, const cuda_run *run)
{
    int item = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32, lane = threadIdx.x & 31;
    int row = item / s.out.n_heads, head = item % s.out.n_heads, n = s.out.head_dim;
    if (row >= rows_of(s.out, run))
        return;
    const float *x = head_at(s.in[0], row, head);
    float sum = 0;
    for (int i = lane; i < n; i += 32)
        sum = fmaf(x[i], x[i], sum);
    norm_write<KIND>(s, row, head, norm_factor<KIND>(warp_sum(sum), n, s.eps, s.scale), lane, 32);
}

/* A block of WIDE_THREADS for each head of each row. */
template <int KIND> DEVICE void norm_wide(const cuda_step &s, const cuda_run *run)
{
    __shared__ float warps[16];
    int row = blockIdx.x / s.out.n_heads, head = blockIdx.x % s.out.n_heads, n = s.out.head_dim;
    if (row >= rows_of(s.out, run))
        return;
    const float *x = head_at(s.in[0], row, head);
    float sum = 0;
    for (int i = 4 * threadIdx.x; i < n; i += 4 * WIDE_THREADS) /* fours, as the decoding kernel */
        for (int j = i; j < min(i + 4, n); j++)
            sum = fmaf(x[j], x[j], sum);
    sum = warp_sum(sum);
    if ((threadIdx.x & 31) == 0)
        warps[threadIdx.x / 32] = sum;
    __syncthreads();
    norm_write<KIND>(s, row, head, norm_factor<KIND>(wide_sum_of_warps(warps), n, s.eps, s.scale),
                     threadIdx.x, WIDE_THREADS);
}

#define NORM_KERNELS(name, kind)                                                                   \
    extern "C" __global__ void name(const cuda_step s, const cuda_run *run)                        \
    {                                                                                              \
        norm_narrow<kind>(s, run);                                                                 \
    }                                                                                              \
    extern "C" __global__ void __launch_bounds__(WIDE_THREADS)                                     \
        name##_wide(const cuda_step s, const cuda_run *run)                                        \
    {                                                                                              \
        norm_wide<kind>(s, run);                                                                   \
    }
NORM_KERNELS(rmsnorm, RMS)
NORM_KERNELS(l2norm, L2)
NORM_KERNELS(norm_gate, GATED)

/* ----------------------------------------------------------------------------------- element-wise */

enum each { ADD, SILU_MUL, SIGMOID_MUL, SIGMOID, DECAY, QUANTISE };

template <int OP> DEVICE float each_element(const cuda_step &s, int row, int e)
{
    float a = *element(s.in[0], row, e);
    if (OP == QUANTISE)
        return a;
    if (OP == SIGMOID)
        return logistic(a);
    if (OP == DECAY) {
        float x = a + reinterpret_cast<const float *>(s.w[1])[e];
        /* softplus without overflow: log(1 + e^x) = x + log(1 + e^-x) */
        float softplus = x > 0.0f ? x + log1pf(expf(-x)) : log1pf(expf(x));
        return expf(reinterpret_cast<const float *>(s.w[0])[e] * softplus);
    }
    float b = *element(s.in[1], row, e);
    return OP == ADD ? a + b : OP == SILU_MUL ? a * logistic(a) * b : a * logistic(b);
}

/* Half a warp for 64 columns; y is the row. */
template <int OP> DEVICE void each_run(const cuda_step &s, const cuda_run *run)
{
    int row = blockIdx.y, width = s.out.n_heads * s.out.head_dim;
    int group = (blockIdx.x * blockDim.x + threadIdx.x) / 16, j = threadIdx.x & 15;
    if (row >= rows_of(s.out, run))
        return;
    float v[4] = {0, 0, 0, 0};
    for (int i = 0; i < 4; i++)
        if (group * 64 + j + 16 * i < width)
            v[i] = each_element<OP>(s, row, group * 64 + j + 16 * i);
    if (s.out.is_codes) {
        quantise_into(s.out, row, group, v, group * 64 < width);
        if (blockIdx.x == 0)
            pad_codes(s.out, row, threadIdx.x);
        return;
    }
    for (int i = 0; i < 4; i++)
        if (group * 64 + j + 16 * i < width)
            *element(s.out, row, group * 64 + j + 16 * i) = v[i];
}

#define EACH_KERNEL(name, op)                                                                      \
    extern "C" __global__ void name(const cuda_step s, const cuda_run *run)                        \
    {                                                                                              \
        each_run<op>(s, run);                                                                      \
    }
EACH_KERNEL(add, ADD)
EACH_KERNEL(silu_mul, SILU_MUL)
EACH_KERNEL(sigmoid_mul, SIGMOID_MUL)
EACH_KERNEL(sigmoid, SIGMOID)
EACH_KERNEL(decay, DECAY)
EACH_KERNEL(quantise, QUANTISE)

/* -------------------------------------------------------------------------------------- the rest */

/* Element i of a head turned by the row's table of cosines and sines. The roundings are spelt out,
 * so that every kernel has the same. */
DEVICE float rotated(const float *x, const float *table, int i, int n_rot)
{
    int half = n_rot / 2;
    if (i >= n_rot)
        return x[i];
    return i < half ? fmaf(x[i], table[i], -__fmul_rn(x[i + half], table[half + i]))
                    : fmaf(x[i], table[i - half], __fmul_rn(x[i - half], table[i]));
}

extern "C" __global__ void rope(const cuda_step s, const cuda_run *run)
{
    int row = blockIdx.x, n = s.out.head_dim;
    if (row >= run->n_rows)
        return;
    const float *table = head_at(s.in[1], row, 0);
    for (int e = threadIdx.x; e < s.out.n_heads * n; e += blockDim.x)
        head_at(s.out, row, e / n)[e % n] =
            rotated(head_at(s.in[0], row, e / n), table, e % n, s.n_rot);
}

extern "C" __global__ void kv_append(const cuda_step s, const cuda_run *run)
{
    int row = blockIdx.x, n = s.kv.head_dim;
    if (row >= run->n_rows)
        return;
    const cuda_segment &segment = segment_of(run, row);
    int position = segment.position + row - segment.first_row, page = page_of(position);
    size_t at = (size_t)(position - page_start(page)) * n * (s.kv.is_f32 ? 4 : 2);
    for (int e = threadIdx.x; e < 2 * s.kv.n_heads * n; e += blockDim.x) {
        int kind = e / (s.kv.n_heads * n), head = e / n % s.kv.n_heads;
        kv_store(s.kv, page_data(s.kv, segment, kind, page, head) + at, e % n,
                 head_at(s.in[kind], row, head)[e % n]);
    }
}

extern "C" __global__ void select_rows(const cuda_step s, const cuda_run *run)
{
    int row = blockIdx.x;
    if (row >= run->n_wanted)
        return;
    int from = int_array(run->wanted)[row];
    for (int e = threadIdx.x; e < s.out.row_stride; e += blockDim.x)
        *element(s.out, row, e) = *element(s.in[0], from, e);
}

/* A product in f32 by weights of any format: a warp for one output of 8 rows. The reference of the
 * device, and the path of float formats. */
extern "C" __global__ void matmul(const cuda_step s, const cuda_run *run)
{
    enum { ROWS = 8 };
    int o = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32, lane = threadIdx.x & 31;
    int first = blockIdx.y * ROWS, n_rows = rows_of(s.out, run);
    if (o >= s.w_rows || first >= n_rows)
        return;
    const uint8_t *w = reinterpret_cast<const uint8_t *>(s.w[0]) + (size_t)o * s.w_row_bytes;
    const float *x[ROWS];
    float sum[ROWS];
    for (int r = 0; r < ROWS; r++) {
        x[r] = head_at(s.in[0], min(first + r, n_rows - 1), 0);
        sum[r] = 0;
    }
    for (int c = lane; c < s.w_cols; c += 32) {
        float weight = decode(s.w_format, w, c);
        for (int r = 0; r < ROWS; r++)
            sum[r] = fmaf(weight, x[r][c], sum[r]);
    }
    for (int r = 0; r < ROWS; r++) {
        float y = warp_sum(sum[r]);
        if (lane == 0 && first + r < n_rows)
            head_at(s.out, first + r, 0)[o] = y;
    }
}
