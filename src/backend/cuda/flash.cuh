/* Attention of many rows on the tensor cores (Dao, 2023: FlashAttention-2): a block takes 64 rows of one
 * query head through its keys, 64 at a time, with the softmax kept up to date on the way. Queries and
 * weights are rounded to f16 as the cache is, sums are in f32. For an f16 cache and long prompts; its rounding
 * differs from that of the other kernels, so f32 activations never come here. */
#pragma once

#include "attention.cuh"

enum { FLASH_ROWS = 64, FLASH_KEYS = 64, FLASH_THREADS = 128 };

DEVICE void load_matrices(uint32_t r[4], const __half *p)
{
    uint32_t at = (uint32_t)__cvta_generic_to_shared(p);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(at));
}

DEVICE void load_matrices_turned(uint32_t r[4], const __half *p)
{
    uint32_t at = (uint32_t)__cvta_generic_to_shared(p);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(at));
}

DEVICE void mma_f16(float d[4], const uint32_t a[4], uint32_t b0, uint32_t b1)
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
                 "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

DEVICE uint32_t pack_halves(float x, float y)
{
    __half2 h = __floats2half2_rn(x, y);
    return *reinterpret_cast<uint32_t *>(&h);
}

/* Tile j of the keys: the sink, then two tiles for each page. */
struct key_tile {
    int page, from, start; /* tokens before the tile, in its page and in all */
    DEVICE key_tile(int j)
    {
        page = j == 0 ? 0 : 1 + (j - 1) / 2;
        from = j == 0 ? 0 : (j - 1) % 2 * FLASH_KEYS;
        start = page_start(page) + from;
    }
    DEVICE int end() const { return page == 0 ? CUDA_SINK_TOKENS : start + FLASH_KEYS; }
};

/* Copy a tile's keys or values; those at or past n_tokens are zeros, so that nothing that was never
 * written is multiplied. */
template <int N>
DEVICE void load_keys(__half *to, const cuda_kv &kv, const cuda_segment &segment, int kind, int j,
                      int kv_head, int n_tokens)
{
    key_tile tile(j);
    int real = min(tile.end(), n_tokens) - tile.start;
    const uint8_t *from = page_data(kv, segment, kind, tile.page, kv_head) +
                          (size_t)tile.from * N * sizeof(__half);
    for (int i = threadIdx.x; i < FLASH_KEYS * N / 8; i += FLASH_THREADS) {
        int key = i / (N / 8), d = i % (N / 8) * 8, bytes = key < real ? 16 : 0;
        uint32_t at = (uint32_t)__cvta_generic_to_shared(to + key * (N + 8) + d);
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(at),
                     "l"(from + ((size_t)min(key, max(real - 1, 0)) * N + d) * sizeof(__half)),
                     "r"(bytes));
    }
    asm volatile("cp.async.commit_group;");
}

template <int N> DEVICE void flash(const cuda_step &s, const cuda_run *run)
{
    extern __shared__ __align__(16) __half halves[];
    constexpr int STRIDE = N + 8; /* eight halves more: no bank conflicts */
    __half *queries = halves, *keys = queries + FLASH_ROWS * STRIDE,
           *values = keys + FLASH_KEYS * STRIDE;
    if ((int)blockIdx.z >= run->n_segments)
        return;
    const cuda_segment segment = reinterpret_cast<const cuda_segment *>(run->segments)[blockIdx.z];
    int first = (gridDim.x - 1 - blockIdx.x) * FLASH_ROWS; /* long ones first */
    int n_rows = min(FLASH_ROWS, segment.n_rows - first), head = blockIdx.y;
    if (n_rows <= 0)
        return;
    int kv_head = head / (s.out.n_heads / s.kv.n_heads), lane = threadIdx.x & 31;
    int g = lane / 4, q = lane % 4, warp_row = threadIdx.x / 32 * 16;
    int n_tokens = segment.position + first + n_rows; /* that the last row sees */
    int n_tiles = n_tokens <= CUDA_SINK_TOKENS
                      ? 1
                      : 1 + (n_tokens - CUDA_SINK_TOKENS + FLASH_KEYS - 1) / FLASH_KEYS;
    load_keys<N>(keys, s.kv, segment, 0, 0, kv_head, n_tokens);
    for (int i = threadIdx.x; i < FLASH_ROWS * N / 2; i += FLASH_THREADS) {
        int row = i / (N / 2), d = i % (N / 2) * 2;
        const float *x = head_at(s.in[0], segment.first_row + first + min(row, n_rows - 1), head);
        *reinterpret_cast<__half2 *>(queries + row * STRIDE + d) =
            __floats2half2_rn(x[d], x[d + 1]);
    }

    const float to_log2 = s.scale * 1.44269504f;
    float out[N / 8][4], most[2] = {-INFINITY, -INFINITY}, sum[2] = {0, 0};
#pragma unroll
    for (int n = 0; n < N / 8; n++)
        for (int e = 0; e < 4; e++)
            out[n][e] = 0;
    for (int j = 0; j < n_tiles; j++) {
        load_keys<N>(values, s.kv, segment, 1, j, kv_head, n_tokens);
        asm volatile("cp.async.wait_group 1;");
        __syncthreads();
        float score[FLASH_KEYS / 8][4];
#pragma unroll
        for (int n = 0; n < FLASH_KEYS / 8; n++)
            for (int e = 0; e < 4; e++)
                score[n][e] = 0;
#pragma unroll 4
        for (int k = 0; k < N; k += 16) {
            uint32_t a[4];
            load_matrices(a, queries + (warp_row + lane % 16) * STRIDE + k + lane / 16 * 8);
#pragma unroll
            for (int n = 0; n < FLASH_KEYS; n += 16) {
                uint32_t b[4];
                load_matrices(b, keys + (n + lane / 16 * 8 + lane % 8) * STRIDE + k +
                                     lane / 8 % 2 * 8);
                mma_f16(score[n / 8], a, b[0], b[1]);
                mma_f16(score[n / 8 + 1], a, b[2], b[3]);
            }
        }
        __syncthreads(); /* the keys are used up */
        if (j + 1 < n_tiles)
            load_keys<N>(keys, s.kv, segment, 0, j + 1, kv_head, n_tokens);
        else
            asm volatile("cp.async.commit_group;");

        /* Rows g and g + 8 of this warp: hide what they do not see, then the running softmax. */
        key_tile tile(j);
        float top[2] = {most[0], most[1]};
#pragma unroll
        for (int n = 0; n < FLASH_KEYS / 8; n++)
#pragma unroll
            for (int e = 0; e < 4; e++) {
                int key = tile.start + 8 * n + 2 * q + (e & 1);
                int row = segment.position + first + warp_row + g + (e & 2) * 4;
                if (key > row || key >= tile.end())
                    score[n][e] = -INFINITY;
                top[e / 2] = fmaxf(top[e / 2], score[n][e]);
            }
        float old[2];
#pragma unroll
        for (int r = 0; r < 2; r++) {
            for (int half = 1; half < 4; half *= 2)
                top[r] = fmaxf(top[r], __shfl_xor_sync(~0u, top[r], half));
            old[r] = exp2f((most[r] - top[r]) * to_log2);
            most[r] = top[r];
            sum[r] *= old[r];
        }
#pragma unroll
        for (int n = 0; n < FLASH_KEYS / 8; n++)
#pragma unroll
            for (int e = 0; e < 4; e++) {
                score[n][e] = exp2f((score[n][e] - most[e / 2]) * to_log2);
                sum[e / 2] += score[n][e];
            }
#pragma unroll
        for (int n = 0; n < N / 8; n++)
#pragma unroll
            for (int e = 0; e < 4; e++)
                out[n][e] *= old[e / 2];

        asm volatile("cp.async.wait_group 1;");
        __syncthreads();
#pragma unroll
        for (int k = 0; k < FLASH_KEYS; k += 16) {
            const uint32_t a[4] = {pack_halves(score[k / 8][0], score[k / 8][1]),
                                   pack_halves(score[k / 8][2], score[k / 8][3]),
                                   pack_halves(score[k / 8 + 1][0], score[k / 8 + 1][1]),
                                   pack_halves(score[k / 8 + 1][2], score[k / 8 + 1][3])};
#pragma unroll
            for (int n = 0; n < N; n += 16) {
                uint32_t b[4];
                load_matrices_turned(b, values + (k + lane / 8 % 2 * 8 + lane % 8) * STRIDE + n +
                                            lane / 16 * 8);
                mma_f16(out[n / 8], a, b[0], b[1]);
                mma_f16(out[n / 8 + 1], a, b[2], b[3]);
            }
        }
        __syncthreads(); /* the values are used up */
    }
#pragma unroll
    for (int r = 0; r < 2; r++) {
        for (int half = 1; half < 4; half *= 2)
            sum[r] += __shfl_xor_sync(~0u, sum[r], half);
        int row = warp_row + g + 8 * r;
        if (row >= n_rows)
            continue;
        float *y = head_at(s.out, segment.first_row + first + row, head);
#pragma unroll
        for (int n = 0; n < N / 8; n++)
            *reinterpret_cast<float2 *>(y + 8 * n + 2 * q) =
                make_float2(out[n][2 * r] / sum[r], out[n][2 * r + 1] / sum[r]);
    }
}

#define FLASH_KERNEL(N)                                                                            \
    extern "C" __global__ void __launch_bounds__(FLASH_THREADS, 2)                                 \
        flash_##N(const cuda_step s, const cuda_run *run)                                          \
    {                                                                                              \
        flash<N>(s, run);                                                                          \
    }
FLASH_KERNEL(64)
FLASH_KERNEL(128)
FLASH_KERNEL(256)
