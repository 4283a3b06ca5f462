/* What all kernels use: reading the batch and the values, sums over a warp or a block, formats. */
#pragma once

#include <cstdint>
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "backend/cuda/device.h"

#define DEVICE __device__ __forceinline__
/* A function of its own where speed is a matter of the instruction cache: code that a block runs once
 * or twice between two meetings is fetched, not looped over. */
#define OUTLINE static __device__ __noinline__

/* enum ob_format_id; the host checks that the numbers agree. */
enum format { F32, F16, BF16, Q8_0, Q4_0, Q1_0, Q2_0_G64, Q2_0_G128 };

enum { WIDE_THREADS = 512 }; /* of a block that shares the norm of one row */

DEVICE const int32_t *int_array(uint64_t at)
{
    return reinterpret_cast<const int32_t *>(at);
}

DEVICE int rows_of(const cuda_value &v, const cuda_run *run)
{
    return v.is_wanted ? run->n_wanted : run->n_rows;
}

/* Element e of a row, over all its heads. */
DEVICE float *element(const cuda_value &v, int row, int e)
{
    return reinterpret_cast<float *>(v.at) + (size_t)row * v.row_stride +
           e / v.head_dim * v.head_stride + e % v.head_dim;
}

DEVICE float *head_at(const cuda_value &v, int row, int head)
{
    return reinterpret_cast<float *>(v.at) + (size_t)row * v.row_stride + head * v.head_stride;
}

OUTLINE float logistic(float x)
{
    return 1.0f / (1.0f + expf(-x));
}

DEVICE float warp_sum(float x)
{
    for (int half = 16; half > 0; half /= 2)
        x += __shfl_xor_sync(~0u, x, half);
    return x;
}

DEVICE float warp_max(float x)
{
    for (int half = 16; half > 0; half /= 2)
        x = fmaxf(x, __shfl_xor_sync(~0u, x, half));
    return x;
}

/* Sum over WIDE_THREADS threads, in one order for every kernel; `warps` [16] in shared memory. */
DEVICE float wide_sum_of_warps(const float *warps)
{
    float x = warps[threadIdx.x & 15];
    for (int half = 8; half > 0; half /= 2)
        x += __shfl_xor_sync(~0u, x, half);
    return x;
}

/* Weight `col` of a row in a file's format. */
DEVICE float decode(int format, const uint8_t *row, int col)
{
    switch (format) {
    case F32:
        return reinterpret_cast<const float *>(row)[col];
    case F16:
        return __half2float(reinterpret_cast<const __half *>(row)[col]);
    case BF16:
        return __bfloat162float(reinterpret_cast<const __nv_bfloat16 *>(row)[col]);
    case Q8_0: {
        const uint8_t *block = row + col / 32 * 34;
        return __half2float(*reinterpret_cast<const __half *>(block)) *
               (float)(int8_t)block[2 + col % 32];
    }
    case Q4_0: {
        const uint8_t *block = row + col / 32 * 18;
        int byte = block[2 + col % 16], code = col % 32 < 16 ? byte & 15 : byte >> 4;
        return __half2float(*reinterpret_cast<const __half *>(block)) * (float)(code - 8);
    }
    case Q1_0: {
        const uint8_t *block = row + col / 128 * 18;
        float scale = __half2float(*reinterpret_cast<const __half *>(block));
        return block[2 + col % 128 / 8] >> col % 8 & 1 ? scale : -scale;
    }
    default: {
        int group = format == Q2_0_G64 ? 64 : 128;
        const uint8_t *block = row + col / group * (2 + group / 4);
        int code = block[2 + col % group / 4] >> 2 * (col % 4) & 3;
        return __half2float(*reinterpret_cast<const __half *>(block)) * (float)(code - 1);
    }
    }
}

/* ------------------------------------------------------------------------------ int8 activations */

/* Where column c of a group of 64 lies among its codes (device.h). */
DEVICE int code_place(int c)
{
    return (c >> 3 & 3) * 16 + (c >> 5) * 8 + (c & 7);
}

/* a / b as division rounds it, given 1 / b rounded: one correction of the quotient is enough (Markstein,
 * 1990) where nothing under- or overflows on the way. */
DEVICE float quotient(float a, float b, float reciprocal)
{
    float q = __fmul_rn(a, reciprocal);
    return fmaf(fmaf(-q, b, a), reciprocal, q);
}

OUTLINE float rare_quotient(float a, float b)
{
    return __fdiv_rn(a, b);
}

/* Quantise a group of 64 by half a warp: lane j of 16 holds v[i], column j + 16 i. The arithmetic of
 * the CPU's kernels bit by bit (quantise_body.h): the lanes are its lanes, the exchange its tree. All 32 lanes
 * must come here; only those with `store` write: codes [64] of the group, its scale, the sum of its
 * codes. */
DEVICE void quantise_group(const float v[4], int8_t *codes, float *scale_out, float *sum_out,
                           bool store)
{
    enum { LEAST_BITS = 27 << 23, INFINITE_BITS = 255 << 23 };
    const float shift = 12582912.0f;
    int j = threadIdx.x & 15, most = 0;
#pragma unroll
    for (int i = 0; i < 4; i++)
        most = max(most, __float_as_int(v[i]) & 0x7fffffff);
#pragma unroll
    for (int half = 8; half > 0; half /= 2)
        most = max(most, __shfl_xor_sync(~0u, most, half));
    bool sensible = most >= LEAST_BITS && most < INFINITE_BITS;
    float largest = sensible ? __int_as_float(most) : 1.0f;
    bool ordinary = largest > 1e-30f && largest < 1e30f;
    float reciprocal = __frcp_rn(largest), inverse[4], error[4];
#pragma unroll
    for (int c = 0; c < 4; c++) {
        inverse[c] = quotient(127.0f - (float)c, largest, reciprocal);
        if (!ordinary)
            inverse[c] = rare_quotient(127.0f - (float)c, largest);
        error[c] = 0.0f;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            float steps = __fmul_rn(v[i], inverse[c]);
            float e = __fsub_rn(__fsub_rn(__fadd_rn(steps, shift), shift), steps);
            error[c] = __fadd_rn(error[c], __fmul_rn(e, e));
        }
    }
#pragma unroll
    for (int half = 8; half > 0; half /= 2)
#pragma unroll
        for (int c = 0; c < 4; c++)
            error[c] = __fadd_rn(error[c], __shfl_xor_sync(~0u, error[c], half));
    float least = error[0], best = inverse[0], top = 127.0f, one_step = 1.0f / 127.0f;
#pragma unroll
    for (int c = 1; c < 4; c++) {
        const float step = 127.0f / (127.0f - (float)c);
        float e = __fmul_rn(error[c], step * step);
        if (e < least) {
            least = e;
            best = inverse[c];
            top = 127.0f - (float)c;
            one_step = 1.0f / (127.0f - (float)c);
        }
    }
    float scale = ordinary ? quotient(largest, top, one_step) : rare_quotient(largest, top);
    int sum = 0;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        int8_t code = (int8_t)__float_as_int(__fadd_rn(__fmul_rn(v[i], best), shift));
        code = sensible ? code : 0;
        sum += code;
        if (store)
            codes[code_place(j + 16 * i)] = code;
    }
#pragma unroll
    for (int half = 8; half > 0; half /= 2)
        sum += __shfl_xor_sync(~0u, sum, half);
    if (store && j == 0) {
        *scale_out = sensible ? scale : most < LEAST_BITS ? 0.0f : __int_as_float(0x7fc00000);
        *sum_out = (float)sum;
    }
}

DEVICE void quantise_into(const cuda_value &out, int row, int group, const float v[4], bool store)
{
    size_t at = (size_t)group * out.row_cap + row;
    quantise_group(v,
                   reinterpret_cast<int8_t *>(out.at) + (size_t)row * out.columns + group * 64,
                   reinterpret_cast<float *>(out.scales) + at,
                   reinterpret_cast<float *>(out.sums) + at, store);
}

/* A row of an odd number of groups ends in half a unit: the other half is a group of zeros. */
DEVICE void pad_codes(const cuda_value &out, int row, int thread)
{
    int width = out.n_heads * out.head_dim, group = width / 64;
    if (width % 128 == 0 || thread >= 16)
        return;
    int8_t *codes = reinterpret_cast<int8_t *>(out.at) + (size_t)row * out.columns + group * 64;
    reinterpret_cast<int32_t *>(codes)[thread] = 0;
    size_t at = (size_t)group * out.row_cap + row;
    if (thread == 0)
        reinterpret_cast<float *>(out.scales)[at] = reinterpret_cast<float *>(out.sums)[at] = 0.0f;
}

/* ------------------------------------------------------------------------------------- the cache */

DEVICE int page_of(int position)
{
    return position < CUDA_SINK_TOKENS ? 0 : 1 + (position - CUDA_SINK_TOKENS) / CUDA_PAGE_TOKENS;
}

DEVICE int page_start(int page)
{
    return page == 0 ? 0 : CUDA_SINK_TOKENS + (page - 1) * CUDA_PAGE_TOKENS;
}

DEVICE int page_tokens(int page)
{
    return page == 0 ? CUDA_SINK_TOKENS : CUDA_PAGE_TOKENS;
}

/* Keys (kind 0) or values of one page and KV head: [tokens, head_dim]. */
DEVICE uint8_t *page_data(const cuda_kv &kv, const cuda_segment &segment, int kind, int page,
                          int head)
{
    size_t plane = (size_t)kv.layer * 2 + kind;
    if (page == 0)
        return reinterpret_cast<uint8_t *>(segment.sink) + plane * kv.sink_bytes +
               head * (kv.sink_bytes / kv.n_heads);
    uint32_t id = reinterpret_cast<const uint32_t *>(segment.pages)[page - 1];
    return reinterpret_cast<uint8_t *>(kv.pool) + (plane * kv.n_pages + id) * kv.page_bytes +
           head * (kv.page_bytes / kv.n_heads);
}

DEVICE void kv_store(const cuda_kv &kv, uint8_t *row, int d, float x)
{
    if (kv.is_f32)
        reinterpret_cast<float *>(row)[d] = x;
    else
        reinterpret_cast<__half *>(row)[d] = __float2half_rn(x);
}

DEVICE const cuda_segment &segment_of(const cuda_run *run, int row)
{
    return reinterpret_cast<const cuda_segment *>(
        run->segments)[int_array(run->row_segment)[row]];
}
