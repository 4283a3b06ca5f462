/* Attention over paged keys and values: a partial result for each page (softmax weights relative to
 * the page's largest score), then one pass that merges the pages (Milakov and Gimelshein, 2018). The page
 * grid is fixed, so a row's result does not depend on the batch. */
#pragma once

#include "rows.cuh"

/* Floats of a partial result: the weighted sum of the values, the largest score, the sum of weights. */
DEVICE float *partial_at(const cuda_step &s, int row, int head, int page)
{
    size_t index = ((size_t)(row - s.row_first) * s.out.n_heads + head) * s.most_pages + page;
    return reinterpret_cast<float *>(s.scratch) + index * (s.kv.head_dim + 2);
}

/* Eight neighbouring numbers of a row of the cache. */
DEVICE void load_eight(float out[8], bool is_f32, const uint8_t *row, int d)
{
    if (is_f32) {
        for (int i = 0; i < 8; i++)
            out[i] = reinterpret_cast<const float *>(row)[d + i];
        return;
    }
    uint4 v = *reinterpret_cast<const uint4 *>(row + 2 * d);
    const uint32_t words[4] = {v.x, v.y, v.z, v.w};
    for (int i = 0; i < 4; i++) {
        float2 f = __half22float2(*reinterpret_cast<const __half2 *>(&words[i]));
        out[2 * i] = f.x;
        out[2 * i + 1] = f.y;
    }
}

DEVICE float load_one(bool is_f32, const uint8_t *row, int d)
{
    return is_f32 ? reinterpret_cast<const float *>(row)[d]
                     : __half2float(reinterpret_cast<const __half *>(row)[d]);
}

/* The queries of one KV head to one page, by a team of 128 threads that `sync` makes meet. q [group, n]
 * and weights [group, 128] are the team's shared memory, q filled; the results go to `partial` of query
 * 0, and `stride` floats further for each next one. */
template <int MOST, bool MAY_BE_F32, class Sync>
DEVICE void attend_page(const cuda_kv &kv, const uint8_t *keys, const uint8_t *values, int n_keys,
                        const float *q, float *weights, int group, float scale, float *partial,
                        size_t stride, int tid, Sync sync)
{
    int n = kv.head_dim, lane = tid & 31;
    bool is_f32 = MAY_BE_F32 && kv.is_f32;
    size_t row_bytes = (size_t)n * (is_f32 ? 4 : 2);
    float score[MOST] = {0};
    if (tid < n_keys)
#pragma unroll(MOST == 1 ? 4 : 1)
        for (int d = 0; d < n; d += 8) {
            float k[8];
            load_eight(k, is_f32, keys + tid * row_bytes, d);
#pragma unroll
            for (int i = 0; i < MOST; i++)
                if (i < group) {
                    const float4 *at = reinterpret_cast<const float4 *>(q + i * n + d);
                    float4 low = at[0], high = at[1];
                    const float x[8] = {low.x,  low.y,  low.z,  low.w,
                                        high.x, high.y, high.z, high.w};
#pragma unroll
                    for (int j = 0; j < 8; j++)
                        score[i] = fmaf(k[j], x[j], score[i]);
                }
        }
#pragma unroll
    for (int i = 0; i < MOST; i++)
        if (i < group)
            weights[i * CUDA_PAGE_TOKENS + tid] = tid < n_keys ? scale * score[i] : -INFINITY;
    sync();
    for (int i = tid / 32; i < group; i += 4) {
        float *w = weights + i * CUDA_PAGE_TOKENS, most = -INFINITY, sum = 0;
        for (int j = lane; j < CUDA_PAGE_TOKENS; j += 32)
            most = fmaxf(most, w[j]);
        most = warp_max(most);
        for (int j = lane; j < CUDA_PAGE_TOKENS; j += 32) {
            w[j] = j < n_keys ? expf(w[j] - most) : 0.0f;
            sum += w[j];
        }
        sum = warp_sum(sum);
        if (lane == 0) {
            partial[i * stride + n] = most;
            partial[i * stride + n + 1] = sum;
        }
    }
    sync();
    for (int d = tid; d < n; d += 128) {
        float sum[MOST] = {0};
#pragma unroll 8
        for (int j = 0; j < n_keys; j++) {
            float v = load_one(is_f32, values + j * row_bytes, d);
#pragma unroll
            for (int i = 0; i < MOST; i++)
                if (i < group)
                    sum[i] = fmaf(weights[i * CUDA_PAGE_TOKENS + j], v, sum[i]);
        }
#pragma unroll
        for (int i = 0; i < MOST; i++)
            if (i < group)
                partial[i * stride + d] = sum[i];
    }
}

struct page_space {
    float q[CUDA_MOST_QUERIES * CUDA_MOST_HEAD], weights[CUDA_MOST_QUERIES * CUDA_PAGE_TOKENS];
};

extern "C" __global__ void __launch_bounds__(128)
    attention_page(const cuda_step s, const cuda_run *run)
{
    __shared__ __align__(16) page_space space;
    int page = blockIdx.x, kv_head = blockIdx.y, row = s.row_first + blockIdx.z;
    if (row >= run->n_rows)
        return;
    const cuda_segment &segment = segment_of(run, row);
    int n_tokens = segment.position + row - segment.first_row + 1, start = page_start(page);
    if (start >= n_tokens)
        return;
    int group = s.out.n_heads / s.kv.n_heads, n = s.kv.head_dim;
    for (int i = threadIdx.x; i < group * n; i += 128)
        space.q[i] = head_at(s.in[0], row, kv_head * group + i / n)[i % n];
    __syncthreads();
    attend_page<CUDA_MOST_QUERIES, true>(s.kv, page_data(s.kv, segment, 0, page, kv_head),
                page_data(s.kv, segment, 1, page, kv_head), min(n_tokens - start, page_tokens(page)),
                space.q, space.weights, group, s.scale, partial_at(s, row, kv_head * group, page),
                (size_t)s.most_pages * (n + 2), threadIdx.x, [] { __syncthreads(); });
}

DEVICE float sum_of_four(const float x[4])
{
    return (x[0] + x[1]) + (x[2] + x[3]);
}

/* A block for one head of one row; shared memory: a weight for each page. */
extern "C" __global__ void __launch_bounds__(128)
    attention_merge(const cuda_step s, const cuda_run *run)
{
    extern __shared__ float weights[];
    __shared__ float warps[4];
    int head = blockIdx.x, row = s.row_first + blockIdx.y, n = s.kv.head_dim, tid = threadIdx.x;
    if (row >= run->n_rows)
        return;
    const cuda_segment &segment = segment_of(run, row);
    int n_pages = page_of(segment.position + row - segment.first_row) + 1;
    const float *partial = partial_at(s, row, head, 0);
    float most = -INFINITY;
    for (int p = tid; p < n_pages; p += 128) {
        weights[p] = partial[(size_t)p * (n + 2) + n];
        most = fmaxf(most, weights[p]);
    }
    most = warp_max(most);
    if ((tid & 31) == 0)
        warps[tid / 32] = most;
    __syncthreads();
    most = fmaxf(fmaxf(warps[0], warps[1]), fmaxf(warps[2], warps[3]));
    for (int p = tid; p < n_pages; p += 128)
        weights[p] = expf(weights[p] - most);
    __syncthreads();
    /* Pages go to four sums by turns, in this kernel and in the decoding one. */
    float total[4] = {0, 0, 0, 0};
    for (int p = 0; p < n_pages; p++)
        total[p % 4] = fmaf(weights[p], partial[(size_t)p * (n + 2) + n + 1], total[p % 4]);
    for (int d = tid; d < n; d += 128) {
        float sum[4] = {0, 0, 0, 0};
#pragma unroll 8
        for (int p = 0; p < n_pages; p++)
            sum[p % 4] = fmaf(weights[p], partial[(size_t)p * (n + 2) + d], sum[p % 4]);
        head_at(s.out, row, head)[d] = sum_of_four(sum) / sum_of_four(total);
    }
}
