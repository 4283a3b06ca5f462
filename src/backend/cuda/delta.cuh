/* The steps with a recurrent state: the convolution over time, the gated delta rule. */
#pragma once

#include "common.cuh"

enum { CONV_THREADS = 128, CONV_ROWS = 32, CONV_MOST_TAPS = 8 };

/* A thread for one channel of CONV_ROWS rows of a segment. The thread of the first rows also keeps
 * the tail: it alone reads it, so it may write it. */
extern "C" __global__ void __launch_bounds__(CONV_THREADS)
    conv(const cuda_step s, const cuda_run *run)
{
    int channel = blockIdx.x * CONV_THREADS + threadIdx.x, n = s.out.head_dim;
    if ((int)blockIdx.z >= run->n_segments || channel >= n)
        return;
    const cuda_segment &segment = reinterpret_cast<const cuda_segment *>(run->segments)[blockIdx.z];
    int first = blockIdx.y * CONV_ROWS, last = min(first + CONV_ROWS, segment.n_rows);
    if (first >= segment.n_rows)
        return;
    float *tail = reinterpret_cast<float *>(segment.fixed) + s.state_at + channel;
    const float *x = head_at(s.in[0], segment.first_row, 0) + channel;
    const float *w = reinterpret_cast<const float *>(s.w[0]) + channel * s.taps;
    float *y = head_at(s.out, segment.first_row, 0) + channel;
    float window[CONV_MOST_TAPS], weight[CONV_MOST_TAPS]; /* the taps end at the youngest input */
    int before = s.taps - 1;
#pragma unroll
    for (int j = 0; j < CONV_MOST_TAPS; j++) {
        int tap = j - (CONV_MOST_TAPS - s.taps), t = first - before + tap;
        weight[j] = tap < 0 ? 0.0f : w[tap];
        window[j] = tap < 0 || tap >= before ? 0.0f
                    : t < 0                  ? tail[(size_t)(t + before) * n]
                                             : x[(size_t)t * s.in[0].row_stride];
    }
    for (int t = first; t < last; t++) {
        window[CONV_MOST_TAPS - 1] = x[(size_t)t * s.in[0].row_stride];
        float sum = 0;
#pragma unroll
        for (int j = 0; j < CONV_MOST_TAPS; j++)
            sum = fmaf(weight[j], window[j], sum);
        y[(size_t)t * s.out.row_stride] = sum * logistic(sum);
#pragma unroll
        for (int j = 0; j + 1 < CONV_MOST_TAPS; j++)
            window[j] = window[j + 1];
    }
    if (first > 0)
        return;
    /* The last inputs: of this segment's rows, or older ones that move up. Ascending, so that an old
     * one is read before its place is written. */
    for (int j = 0; j < before; j++) {
        int t = segment.n_rows - before + j;
        tail[(size_t)j * n] =
            t < 0 ? tail[(size_t)(t + before) * n] : x[(size_t)t * s.in[0].row_stride];
    }
}

/* The delta rule. A block carries DELTA_COLUMNS value columns of one head through all rows of a
 * segment; four lanes share a column, each with the key dims 16 i + 4 slice + r in registers. With
 * a = S^T k and b = S^T q of the old state, d = beta (v - decay a), o = decay b + (k q) d: both sums
 * are over the old state, so that one exchange between the lanes does for both. */
enum { DELTA_THREADS = 128, DELTA_COLUMNS = 32, DELTA_CHUNK = 16, DELTA_FOURS = CUDA_MOST_KEY / 16 };

struct delta_chunk {
    float q[DELTA_CHUNK][CUDA_MOST_KEY], k[DELTA_CHUNK][CUDA_MOST_KEY];
    float v[DELTA_CHUNK][DELTA_COLUMNS], decay[DELTA_CHUNK], beta[DELTA_CHUNK];
};

DEVICE void delta_load(delta_chunk &chunk, const cuda_step &s, int head, int first_column, int row,
                       int n_rows)
{
    int dk = s.in[1].head_dim, dv = s.in[2].head_dim, key_head = head % s.in[1].n_heads;
    for (int i = threadIdx.x; i < n_rows * CUDA_MOST_KEY; i += DELTA_THREADS) {
        int t = i / CUDA_MOST_KEY, d = i % CUDA_MOST_KEY;
        chunk.q[t][d] = d < dk ? head_at(s.in[0], row + t, key_head)[d] : 0.0f;
        chunk.k[t][d] = d < dk ? head_at(s.in[1], row + t, key_head)[d] : 0.0f;
    }
    for (int i = threadIdx.x; i < n_rows * DELTA_COLUMNS; i += DELTA_THREADS) {
        int t = i / DELTA_COLUMNS, c = first_column + i % DELTA_COLUMNS;
        chunk.v[t][i % DELTA_COLUMNS] = c < dv ? head_at(s.in[2], row + t, head)[c] : 0.0f;
    }
    if ((int)threadIdx.x < n_rows) {
        chunk.decay[threadIdx.x] = head_at(s.in[3], row + threadIdx.x, 0)[head];
        chunk.beta[threadIdx.x] = head_at(s.in[4], row + threadIdx.x, 0)[head];
    }
}

/* A lane's part of one token's key and query. */
struct delta_inputs {
    float4 k[DELTA_FOURS], q[DELTA_FOURS];

    DEVICE void read(const float *query, const float *key, int slice)
    {
#pragma unroll
        for (int i = 0; i < DELTA_FOURS; i++) {
            k[i] = *reinterpret_cast<const float4 *>(key + 16 * i + 4 * slice);
            q[i] = *reinterpret_cast<const float4 *>(query + 16 * i + 4 * slice);
        }
    }
};

/* One token for one column; gives o in all four lanes. */
DEVICE float delta_token(float4 state[DELTA_FOURS], const delta_inputs &in, float v, float decay,
                         float beta)
{
    float4 a = {0, 0, 0, 0}, b = {0, 0, 0, 0}, kq = {0, 0, 0, 0};
#pragma unroll
    for (int i = 0; i < DELTA_FOURS; i++) {
#define DELTA_EACH(m)                                                                              \
    a.m = fmaf(state[i].m, in.k[i].m, a.m);                                                        \
    b.m = fmaf(state[i].m, in.q[i].m, b.m);                                                        \
    kq.m = fmaf(in.k[i].m, in.q[i].m, kq.m);
        DELTA_EACH(x)
        DELTA_EACH(y)
        DELTA_EACH(z)
        DELTA_EACH(w)
#undef DELTA_EACH
    }
    float sums[3] = {(a.x + a.y) + (a.z + a.w), (b.x + b.y) + (b.z + b.w),
                     (kq.x + kq.y) + (kq.z + kq.w)};
#pragma unroll
    for (int half = 1; half < 4; half *= 2)
#pragma unroll
        for (int i = 0; i < 3; i++)
            sums[i] += __shfl_xor_sync(~0u, sums[i], half);
    float d = beta * (v - decay * sums[0]);
#pragma unroll
    for (int i = 0; i < DELTA_FOURS; i++) {
        state[i].x = fmaf(in.k[i].x, d, state[i].x * decay);
        state[i].y = fmaf(in.k[i].y, d, state[i].y * decay);
        state[i].z = fmaf(in.k[i].z, d, state[i].z * decay);
        state[i].w = fmaf(in.k[i].w, d, state[i].w * decay);
    }
    return fmaf(sums[2], d, decay * sums[1]);
}

extern "C" __global__ void __launch_bounds__(DELTA_THREADS)
    delta(const cuda_step s, const cuda_run *run)
{
    __shared__ __align__(16) delta_chunk chunk;
    int head = blockIdx.x, first_column = blockIdx.y * DELTA_COLUMNS;
    if ((int)blockIdx.z >= run->n_segments)
        return;
    const cuda_segment &segment = reinterpret_cast<const cuda_segment *>(run->segments)[blockIdx.z];
    int dk = s.in[1].head_dim, dv = s.in[2].head_dim;
    int slice = threadIdx.x % 4, own = threadIdx.x / 4, column = first_column + own;
    bool real = column < dv;
    float *memory = reinterpret_cast<float *>(segment.fixed) + s.state_at + (size_t)head * dk * dv +
                    (real ? column : 0);
    float4 state[DELTA_FOURS];
    float *flat = reinterpret_cast<float *>(state);
#pragma unroll
    for (int i = 0; i < 4 * DELTA_FOURS; i++) {
        int row = i / 4 * 16 + 4 * slice + i % 4;
        flat[i] = real && row < dk ? memory[(size_t)row * dv] : 0.0f;
    }
    for (int first = 0; first < segment.n_rows; first += DELTA_CHUNK) {
        int n_rows = min(DELTA_CHUNK, segment.n_rows - first), row = segment.first_row + first;
        __syncthreads();
        delta_load(chunk, s, head, first_column, row, n_rows);
        __syncthreads();
        delta_inputs now, next; /* the next token's are on their way while this one is done */
        next.read(chunk.q[0], chunk.k[0], slice);
#pragma unroll 2
        for (int t = 0; t < n_rows; t++) {
            now = next;
            int ahead = min(t + 1, n_rows - 1);
            next.read(chunk.q[ahead], chunk.k[ahead], slice);
            float o = delta_token(state, now, chunk.v[t][own], chunk.decay[t], chunk.beta[t]);
            if (slice == 0 && real)
                head_at(s.out, row + t, head)[column] = o;
        }
    }
#pragma unroll
    for (int i = 0; i < 4 * DELTA_FOURS; i++) {
        int row = i / 4 * 16 + 4 * slice + i % 4;
        if (real && row < dk)
            memory[(size_t)row * dv] = flat[i];
    }
}
