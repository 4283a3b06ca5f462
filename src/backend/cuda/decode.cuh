/* One token by one kernel. Its blocks, one for each multiprocessor, walk the phases (device.h) and meet
 * after each, as the CPU's threads walk a plan. The weights do not wait for the meetings: one warp
 * of each block does nothing but copy the block's share of all matrices, in the order they are used, into
 * a ring of stages in shared memory, as far ahead as the ring is long. So the memory streams on while the
 * others meet, normalise and attend. The arithmetic is that of the other kernels, bit by bit. */
#pragma once

#include "attention.cuh"
#include "delta.cuh"
#include "products.cuh"

enum { DECODE_WARPS = 16, DECODE_THREADS = 32 * DECODE_WARPS, STAGE_ITEMS = DECODE_WARPS,
       DECODE_TAPS = 4 };

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900

/* ------------------------------------------------------------------------------------- meetings */

/* All threads but the copying warp. */
DEVICE void block_meet()
{
    static_assert(DECODE_THREADS == 512, "as the instruction says");
    asm volatile("bar.sync 1, 512;" ::: "memory");
}

DEVICE void team_meet(int team)
{
    asm volatile("bar.sync %0, 128;" ::"r"(2 + team) : "memory");
}

DEVICE void grid_meet(uint32_t *arrived, uint32_t target)
{
    block_meet();
    if (threadIdx.x == 0) {
        asm volatile("fence.acq_rel.gpu;" ::: "memory");
        asm volatile("red.relaxed.gpu.global.add.u32 [%0], 1;" ::"l"(arrived) : "memory");
        uint32_t now;
        do
            asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(now) : "l"(arrived) : "memory");
        while (now < target);
        asm volatile("fence.acq_rel.gpu;" ::: "memory");
    }
    block_meet();
}

/* -------------------------------------------------------------------------------------- the ring */

DEVICE uint32_t shared_address(const void *p)
{
    return (uint32_t)__cvta_generic_to_shared(p);
}

DEVICE void barrier_init(uint64_t *barrier, int count)
{
    asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(count));
}

DEVICE void barrier_expect(uint64_t *barrier, int n_bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(shared_address(barrier)),
                 "r"(n_bytes)
                 : "memory");
}

DEVICE void barrier_arrive(uint64_t *barrier)
{
    asm volatile("mbarrier.arrive.shared.b64 _, [%0];" ::"r"(shared_address(barrier)) : "memory");
}

DEVICE void barrier_wait(uint64_t *barrier, uint32_t parity)
{
    uint32_t done;
    do
        asm volatile("{ .reg .pred p;\n"
                     "mbarrier.try_wait.parity.shared.b64 p, [%1], %2;\n"
                     "selp.u32 %0, 1, 0, p; }"
                     : "=r"(done)
                     : "r"(shared_address(barrier)), "r"(parity)
                     : "memory");
    while (!done);
}

DEVICE void bulk_copy(void *to, const uint8_t *from, int n_bytes, uint64_t *barrier)
{
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[%0], [%1], %2, [%3];" ::"r"(shared_address(to)),
                 "l"(from), "r"(n_bytes), "r"(shared_address(barrier))
                 : "memory");
}

/* The stages go round; a stage's barriers are waited for with a parity that turns with each round. */
struct ring {
    uint8_t *stages;
    uint64_t *full, *empty;
    int n_stages, slot;
    uint32_t parity;

    DEVICE void next()
    {
        if (++slot == n_stages) {
            slot = 0;
            parity ^= 1;
        }
    }
};

/* x / gridDim.x for x = block * n with n up to CUDA_MOST_SHARED, where the half keeps the rounded product
 * on the right side. */
DEVICE int by_blocks(uint32_t x)
{
    return (int)(((float)x + 0.5f) * __frcp_rn((float)gridDim.x));
}

/* This block's tiles of a phase, and how many of them have room for their terms at once. */
struct share {
    int first, last, at_once;
};

template <int PACK, class Phase> DEVICE share share_of(const Phase &p, int terms_bytes)
{
    uint32_t turned = blockIdx.x + p.turn, shift = p.pairs ? 1 : 0;
    uint32_t block = turned - (turned >= gridDim.x ? gridDim.x : 0);
    uint32_t n = (uint32_t)p.n_tiles >> shift;
    int tile_bytes = p.n_items * 4 * pack_traits<PACK>::TERMS * 64;
    share s;
    s.first = by_blocks(block * n) << shift;
    s.last = by_blocks((block + 1) * n) << shift;
    s.at_once = terms_bytes / tile_bytes >> shift << shift;
    return s;
}

/* The matrix that tile t belongs to, and its number there. */
DEVICE const cuda_matrix &matrix_of(const cuda_phase &p, int t, int *tile)
{
    if (p.pairs) {
        *tile = t / 2;
        return p.matrices[t % 2];
    }
    int m = 0;
    while (m + 1 < p.n_matrices && t >= p.matrices[m + 1].first_tile)
        m++;
    *tile = t - p.matrices[m].first_tile;
    return p.matrices[m];
}

/* What the copying thread needs of a phase, in registers: it must never wait for memory. */
struct route {
    int n_items, n_tiles, pairs, turn, first_tile[CUDA_MOST_MATRICES];
    uint64_t items[CUDA_MOST_MATRICES];

    DEVICE void read(const cuda_phase &p)
    {
        n_items = p.n_items;
        n_tiles = p.n_tiles;
        pairs = p.pairs;
        turn = p.turn;
#pragma unroll
        for (int m = 0; m < CUDA_MOST_MATRICES; m++) {
            first_tile[m] = m < p.n_matrices ? p.matrices[m].first_tile : 0x7fffffff;
            items[m] = p.matrices[m].items;
        }
    }

    DEVICE const uint8_t *tile(int t, int tile_bytes) const
    {
        uint64_t from = items[0] + (uint64_t)(pairs ? t / 2 : t) * tile_bytes;
        if (pairs)
            return reinterpret_cast<const uint8_t *>(t % 2 ? from - items[0] + items[1] : from);
#pragma unroll
        for (int m = 1; m < CUDA_MOST_MATRICES; m++)
            if (t >= first_tile[m])
                from = items[m] + (uint64_t)(t - first_tile[m]) * tile_bytes;
        return reinterpret_cast<const uint8_t *>(from);
    }
};

/* The copying thread: every phase's items, stage by stage. */
template <int PACK>
DEVICE void copy_weights(ring r, const cuda_phase *phases, int n_phases, int terms_bytes)
{
    constexpr int ITEM = pack_traits<PACK>::ITEM;
    route now, next;
    next.read(phases[0]);
    for (int i = 0; i < n_phases; i++) {
        now = next;
        next.read(phases[min(i + 1, n_phases - 1)]);
        if (now.n_tiles == 0)
            continue;
        share s = share_of<PACK>(now, terms_bytes);
        int tile = s.first, k = 0; /* the item to be copied next */
        for (int first = s.first; first < s.last; first += s.at_once) {
            int left = min(s.at_once, s.last - first) * now.n_items;
            for (; left > 0; r.next()) {
                int n = min(STAGE_ITEMS, left);
                uint8_t *to = r.stages + r.slot * STAGE_ITEMS * ITEM;
                left -= n;
                barrier_wait(&r.empty[r.slot], r.parity ^ 1);
                barrier_expect(&r.full[r.slot], n * ITEM);
                while (n > 0) {
                    int run = min(now.n_items - k, n);
                    bulk_copy(to, now.tile(tile, now.n_items * ITEM) + k * ITEM, run * ITEM,
                              &r.full[r.slot]);
                    to += run * ITEM;
                    n -= run;
                    k += run;
                    if (k == now.n_items) {
                        k = 0;
                        tile++;
                    }
                }
            }
        }
    }
}

/* --------------------------------------------------------------------------------------- products */

/* The shared memory of a block. */
struct space {
    int8_t *codes; /* [columns], then scales and sums [columns / 64] each */
    float *scales, *sums, *terms;
    int terms_bytes;
    float *small; /* [SMALL] */
};

enum { SMALL = 320 };

DEVICE float load(uint64_t at, int i)
{
    return __ldcg(reinterpret_cast<const float *>(at) + i);
}

DEVICE float4 load_four(uint64_t at, int i)
{
    return __ldcg(reinterpret_cast<const float4 *>(reinterpret_cast<const float *>(at) + i));
}

/* This block's equal share of n. */
DEVICE void block_range(int n, int *first, int *last)
{
    *first = by_blocks(blockIdx.x * (uint32_t)n);
    *last = by_blocks((blockIdx.x + 1) * (uint32_t)n);
}

DEVICE int columns_of(int width)
{
    return (width + CUDA_ITEM_COLUMNS - 1) / CUDA_ITEM_COLUMNS * CUDA_ITEM_COLUMNS;
}

/* quantise_group, once for all phases. */
OUTLINE void quantise_once(float v0, float v1, float v2, float v3, int8_t *codes, float *scale,
                           float *sum, bool store)
{
    const float v[4] = {v0, v1, v2, v3};
    quantise_group(v, codes, scale, sum, store);
}

/* A group of codes into device memory, for all blocks; by half a warp. */
DEVICE void publish_group(const cuda_phase &p, int group, const float v[4], bool store)
{
    int8_t *codes = reinterpret_cast<int8_t *>(p.codes);
    int columns = columns_of(p.width);
    float *scales = reinterpret_cast<float *>(codes + columns);
    quantise_once(v[0], v[1], v[2], v[3], codes + group * 64, scales + group,
                  scales + columns / 64 + group, store);
}

/* Codes, scales and sums from device memory. */
DEVICE void fetch_codes(const cuda_phase &p, const space &m)
{
    int columns = columns_of(p.width), n = (columns + columns / 8) / 16;
    const uint4 *from = reinterpret_cast<const uint4 *>(p.codes);
    uint4 *to = reinterpret_cast<uint4 *>(m.codes);
#pragma unroll 4
    for (int i = threadIdx.x; i < n; i += DECODE_THREADS)
        to[i] = __ldcg(from + i);
}

/* x = a (+ b), kept by the blocks in parts, normalised as `rmsnorm` and `rmsnorm_wide` do. */
DEVICE void make_norm(const cuda_phase &p, const space &m)
{
    int n = p.width, tid = threadIdx.x, lane = tid & 31, first, last;
    float *x = m.terms, sum = 0;
    block_range(n / 4, &first, &last);
#pragma unroll 2
    for (int i = tid; i < n / 4; i += DECODE_THREADS) {
        float4 v = load_four(p.a, 4 * i);
        if (p.b) {
            float4 y = load_four(p.b, 4 * i);
            v = make_float4(v.x + y.x, v.y + y.y, v.z + y.z, v.w + y.w);
            if (i >= first && i < last)
                reinterpret_cast<float4 *>(p.kept)[i] = v;
        }
        reinterpret_cast<float4 *>(x)[i] = v;
        sum = fmaf(v.x, v.x, sum);
        sum = fmaf(v.y, v.y, sum);
        sum = fmaf(v.z, v.z, sum);
        sum = fmaf(v.w, v.w, sum);
    }
    if (n > 1024) {
        sum = warp_sum(sum);
        if (lane == 0)
            m.small[tid / 32] = sum;
        block_meet();
        sum = wide_sum_of_warps(m.small);
    } else {
        block_meet();
        sum = 0;
        for (int i = lane; i < n; i += 32)
            sum = fmaf(x[i], x[i], sum);
        sum = warp_sum(sum);
    }
    float factor = norm_factor<RMS>(sum, n, p.eps, 0);
    const float *w = reinterpret_cast<const float *>(p.w);
#pragma unroll 1
    for (int base = 0; base < n / 64; base += 32) {
        int group = base + tid / 16;
        float v[4] = {0, 0, 0, 0};
        if (base + tid / 32 * 2 >= n / 64)
            break; /* the whole warp */
        if (group < n / 64)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                int e = group * 64 + (tid & 15) + 16 * i;
                v[i] = x[e] * factor * w[e];
            }
        quantise_once(v[0], v[1], v[2], v[3], m.codes + group * 64, m.scales + group,
                      m.sums + group, group < n / 64);
    }
}

/* Codes of a, a group by half a warp, spread over the blocks first. */
OUTLINE void quantise_phase(const cuda_phase &p)
{
    int groups = p.width / 64, stride = gridDim.x * 32;
    for (int base = 0; base < groups; base += stride) {
        int group = base + blockIdx.x + gridDim.x * (threadIdx.x / 16);
        if (base + blockIdx.x + gridDim.x * (threadIdx.x / 32 * 2) >= groups)
            return; /* the whole warp */
        float v[4] = {0, 0, 0, 0};
        if (group < groups)
#pragma unroll
            for (int i = 0; i < 4; i++)
                v[i] = load(p.a, group * 64 + (threadIdx.x & 15) + 16 * i);
        publish_group(p, group, v, group < groups);
    }
}

/* The convolution's tail takes in this token's input, now that every block has read it. */
DEVICE void move_tail(const cuda_phase &p, const cuda_segment &segment)
{
    float *tail = reinterpret_cast<float *>(segment.fixed) + p.conv_at;
    int first, last;
    const int before = DECODE_TAPS - 1;
    block_range(p.n_channels, &first, &last);
    for (int c = first + threadIdx.x; c < last; c += DECODE_THREADS) {
        for (int j = 0; j + 1 < before; j++)
            tail[(size_t)j * p.n_channels + c] = tail[(size_t)(j + 1) * p.n_channels + c];
        tail[(size_t)(before - 1) * p.n_channels + c] = load(p.conv_x, c);
    }
}

/* Have the states that the delta phase after this one reads brought to the second-level cache. */
DEVICE void prefetch_states(const cuda_phase &p, const cuda_segment &segment)
{
    int lines = p.key_dim * p.value_dim / 32; /* of a head, 128 bytes each */
    const float *states = reinterpret_cast<const float *>(segment.fixed) + p.delta_at;
    int first, last;
    block_range(p.n_value_heads * lines, &first, &last);
    for (int i = first + threadIdx.x; i < last; i += DECODE_THREADS)
        asm volatile("prefetch.global.L2 [%0];" ::"l"(states + (size_t)i * 32));
}

DEVICE void store_output(const cuda_phase &p, int t, int row, float y)
{
    int tile;
    const cuda_matrix &m = matrix_of(p, t, &tile);
    if (tile * CUDA_TILE_ROWS + row < m.n_rows)
        reinterpret_cast<float *>(m.out)[tile * CUDA_TILE_ROWS + row] = y;
}

/* Add up the terms of n tiles from `first` on. */
template <int PACK> DEVICE void finish_tiles(const cuda_phase &p, const space &m, int first, int n)
{
    constexpr int TERMS = pack_traits<PACK>::TERMS;
    int n_terms = n_terms_of<PACK>(p.n_cols), tile_floats = p.n_items * 4 * TERMS * CUDA_TILE_ROWS;
    int step = p.pairs ? 2 : 1;
    for (int i = threadIdx.x; i < (n >> (step - 1)) * 128; i += DECODE_THREADS) {
        int tile = i / 128 * step, row = i / 8 % 16;
        const float *terms = m.terms + tile * tile_floats + row;
        float y = sum_terms(terms, n_terms, TERMS, i % 8);
        if (p.pairs) {
            float up = sum_terms(terms + tile_floats, n_terms, TERMS, i % 8);
            y = y * logistic(y) * up;
        }
        if (i % 8 == 0)
            store_output(p, first + tile, row, y);
    }
}

template <int PACK>
DEVICE void product(const cuda_phase &p, const space &all, ring &r, const cuda_segment &segment)
{
    constexpr int ITEM = pack_traits<PACK>::ITEM, TERMS = pack_traits<PACK>::TERMS;
    int warp = threadIdx.x / 32, width = p.width, columns = columns_of(width);
    space m = all;
    m.scales = reinterpret_cast<float *>(m.codes + columns);
    m.sums = m.scales + columns / 64;
    if (p.kind == CUDA_PHASE_NORM)
        make_norm(p, m);
    else
        fetch_codes(p, m);
    if (p.kind == CUDA_PHASE_PRODUCT)
        block_meet();
    if (width % 128 != 0 && threadIdx.x < 16) { /* half a unit of zeros */
        reinterpret_cast<int32_t *>(m.codes + width)[threadIdx.x] = 0;
        m.scales[width / 64] = m.sums[width / 64] = 0.0f;
    }
    if (p.n_channels > 0)
        move_tail(p, segment);
    if (p.n_value_heads > 0)
        prefetch_states(p, segment);
    block_meet();
    share s = share_of<PACK>(p, m.terms_bytes);
    for (int first = s.first; first < s.last; first += s.at_once) {
        int tiles = min(s.at_once, s.last - first), n = tiles * p.n_items;
        if (first > s.first)
            block_meet(); /* the terms before these are added up */
        int n_items = p.n_items, k = warp % n_items, step = STAGE_ITEMS % n_items;
        for (int i = warp; i < n + warp; i += STAGE_ITEMS, r.next()) {
            barrier_wait(&r.full[r.slot], r.parity);
            if (i < n)
                item_terms<PACK>(m.terms + (size_t)i * 4 * TERMS * CUDA_TILE_ROWS,
                                 r.stages + (r.slot * STAGE_ITEMS + warp) * ITEM,
                                 m.codes + k * CUDA_ITEM_COLUMNS, m.scales + k * 8, m.sums + k * 8,
                                 1);
            k = k + step < n_items ? k + step : k + step - n_items;
            __syncwarp();
            if ((threadIdx.x & 31) == 0)
                barrier_arrive(&r.empty[r.slot]);
        }
        block_meet();
        finish_tiles<PACK>(p, m, first, tiles);
    }
}

/* ---------------------------------------------------------------------------------- the delta rule */

/* Channel c of the convolution for this token, of DECODE_TAPS taps. */
DEVICE float convolved(const cuda_phase &p, const float *tail, int c)
{
    float4 w = reinterpret_cast<const float4 *>(p.conv_w)[c];
    float sum = fmaf(w.x, tail[c], 0.0f);
    sum = fmaf(w.y, tail[p.n_channels + c], sum);
    sum = fmaf(w.z, tail[2 * p.n_channels + c], sum);
    sum = fmaf(w.w, load(p.conv_x, c), sum);
    return sum * logistic(sum);
}

/* q (kind 0) or k of one head: convolved and normalised, by a warp. */
OUTLINE void make_key(const cuda_phase &p, const float *tail, int kind, int head, float *out)
{
    int lane = threadIdx.x & 31, n = p.key_dim;
    float v[CUDA_MOST_KEY / 32], sum = 0;
#pragma unroll
    for (int i = 0; i < CUDA_MOST_KEY / 32; i++) {
        int d = lane + 32 * i;
        v[i] = d < n ? convolved(p, tail, (kind * p.n_key_heads + head) * n + d) : 0.0f;
        sum = fmaf(v[i], v[i], sum);
    }
    float factor = norm_factor<L2>(warp_sum(sum), n, p.eps, kind == 0 ? p.q_scale : 1.0f);
#pragma unroll
    for (int i = 0; i < CUDA_MOST_KEY / 32; i++)
        out[lane + 32 * i] = v[i] * factor;
}

/* A block for each head, a warp for 8 of its value columns; then codes of rmsnorm(o) * silu(z). */
OUTLINE void delta_phase(const cuda_phase &p, space m, cuda_segment segment)
{
    int lane = threadIdx.x & 31, warp = threadIdx.x / 32, dk = p.key_dim, dv = p.value_dim;
    int slice = lane % 4, column = warp * 8 + lane / 4;
    bool mine = column < dv;
    const float *tail = reinterpret_cast<const float *>(segment.fixed) + p.conv_at;
    float *q = m.small, *k = q + CUDA_MOST_KEY, *out = m.terms;
    for (int head = blockIdx.x; head < p.n_value_heads; head += gridDim.x) {
        float *memory = reinterpret_cast<float *>(segment.fixed) + p.delta_at +
                        (size_t)head * dk * dv + (mine ? column : 0);
        float4 state[DELTA_FOURS];
        float *flat = reinterpret_cast<float *>(state);
#pragma unroll
        for (int i = 0; i < 4 * DELTA_FOURS; i++) {
            int row = i / 4 * 16 + 4 * slice + i % 4;
            flat[i] = mine && row < dk ? __ldcg(memory + (size_t)row * dv) : 0.0f;
        }
        if (warp < 2)
            make_key(p, tail, warp, head % p.n_key_heads, warp ? k : q);
        float alpha = load(p.alpha, head) + reinterpret_cast<const float *>(p.decay_bias)[head];
        float softplus = alpha > 0.0f ? alpha + log1pf(expf(-alpha)) : log1pf(expf(alpha));
        float decay = expf(reinterpret_cast<const float *>(p.decay_w)[head] * softplus);
        float beta = logistic(load(p.beta, head));
        float v = mine ? convolved(p, tail, 2 * p.n_key_heads * dk + head * dv + column) : 0.0f;
        float z[CUDA_MOST_KEY / 32], w[CUDA_MOST_KEY / 32]; /* of the gate; on their way early */
#pragma unroll
        for (int i = 0; i < CUDA_MOST_KEY / 32; i++) {
            /* The place in the codes' order: element j + 16 i of group lane / 16, two groups. */
            int e = lane / 16 * 64 + (lane & 15) + 16 * i;
            z[i] = warp == 0 && e < dv ? load(p.b, head * p.b_stride + e) : 0.0f;
            w[i] = warp == 0 && e < dv ? reinterpret_cast<const float *>(p.w)[e] : 0.0f;
        }
        block_meet();
        delta_inputs now;
        now.read(q, k, slice);
        float o = delta_token(state, now, v, decay, beta);
        if (slice == 0 && mine)
            out[column] = o;
        block_meet();
        if (warp == 0) {
            float sum = 0;
            for (int i = lane; i < dv; i += 32)
                sum = fmaf(out[i], out[i], sum);
            float factor = norm_factor<GATED>(warp_sum(sum), dv, p.norm_eps, 0);
            int group = lane / 16;
            float y[4];
#pragma unroll
            for (int i = 0; i < 4; i++) {
                int e = group * 64 + (lane & 15) + 16 * i;
                y[i] = e < dv ? z[i] * logistic(z[i]) * (out[e] * factor * w[i]) : 0.0f;
            }
            publish_group(p, head * (dv / 64) + group, y, group < dv / 64);
        }
#pragma unroll
        for (int i = 0; i < 4 * DELTA_FOURS; i++) {
            int row = i / 4 * 16 + 4 * slice + i % 4;
            if (mine && row < dk)
                memory[(size_t)row * dv] = flat[i];
        }
        block_meet();
    }
}

/* -------------------------------------------------------------------------------------- attention */

/* One head of q or k: normalised and turned, by a warp, into shared memory. */
OUTLINE void make_head(const cuda_phase &p, uint64_t from, uint64_t norm, float *scratch,
                      float *table, float *out)
{
    int n = p.kv.head_dim, lane = threadIdx.x & 31;
    const float *w = reinterpret_cast<const float *>(norm);
    float x[CUDA_MOST_HEAD / 32], weight[CUDA_MOST_HEAD / 32], turn[CUDA_MOST_HEAD / 32], sum = 0;
#pragma unroll
    for (int i = 0; i < CUDA_MOST_HEAD / 32; i++) {
        bool real = lane + 32 * i < n;
        x[i] = real ? load(from, lane + 32 * i) : 0.0f;
        weight[i] = real ? w[lane + 32 * i] : 0.0f;
        turn[i] = lane + 32 * i < p.n_rot ? load(p.rope, lane + 32 * i) : 0.0f;
    }
#pragma unroll
    for (int i = 0; i < CUDA_MOST_HEAD / 32; i++)
        sum = fmaf(x[i], x[i], sum);
    float factor = norm_factor<RMS>(warp_sum(sum), n, p.eps, 0);
#pragma unroll
    for (int i = 0; i < CUDA_MOST_HEAD / 32; i++) {
        scratch[lane + 32 * i] = x[i] * factor * weight[i];
        table[lane + 32 * i] = turn[i];
    }
    __syncwarp();
    for (int i = lane; i < n; i += 32)
        out[i] = rotated(scratch, table, i, p.n_rot);
    __syncwarp();
}

enum { DECODE_TEAMS = DECODE_THREADS / 128, DECODE_QUERIES = 8 };

/* Where a block's shared memory goes in attention, for one KV head. */
struct attention_space {
    float *q, *key, *weights, *partial, *scratch;
    DEVICE attention_space(const cuda_phase &p, const space &m, int group)
    {
        int n = p.kv.head_dim;
        q = reinterpret_cast<float *>(m.codes);
        key = q + group * n;
        weights = key + n;
        partial = weights + DECODE_TEAMS * group * CUDA_PAGE_TOKENS;
        scratch = weights; /* before there are any: 2 x 256 for each of 16 warps */
    }
};

/* Codes of one head's result, by groups of half-warps from `half` on of `halves`. */
DEVICE void publish_head(const cuda_phase &p, const float *out, int head, int half, int halves)
{
    int n = p.kv.head_dim, groups = n / 64;
    for (int base = 0; base < groups; base += halves) {
        int group = base + half;
        float v[4] = {0, 0, 0, 0};
        if (base + half / 2 * 2 >= groups)
            break; /* the whole warp */
        if (group < groups)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                int e = group * 64 + (threadIdx.x & 15) + 16 * i;
                v[i] = out[e];
                if (p.b)
                    v[i] *= logistic(load(p.b, head * p.b_stride + e));
            }
        publish_group(p, head * groups + group, v, group < groups);
    }
}

/* A block for four pages, a team for each: of one query head if those are all pages, and the results meet
 * in shared memory; else of all query heads of a KV head, so that the cache is read once, and the results
 * go to `partial` in device memory, for `merge_phase`. Blocks of one KV head store the same new key. */
template <bool NEAR>
OUTLINE void attention_phase(const cuda_phase &p, space m, cuda_segment segment,
                            int n_pages, int most_pages)
{
    int shared_by = p.n_query_heads / p.kv.n_heads, group = NEAR ? 1 : shared_by;
    attention_space at(p, m, group);
    int team = threadIdx.x / 128, tid = threadIdx.x % 128, warp = threadIdx.x / 32;
    int n = p.kv.head_dim, position = segment.position, n_heads = p.n_query_heads / group;
    int quads = (n_pages + DECODE_TEAMS - 1) / DECODE_TEAMS;
    size_t stride = (size_t)most_pages * (n + 2);
    for (int i = blockIdx.x; i < n_heads * quads; i += gridDim.x) {
        int first_head = i % n_heads * group, kv_head = first_head / shared_by;
        int page = i / n_heads * DECODE_TEAMS + team;
        bool real = page < n_pages, last = page == n_pages - 1;
        int start = page_start(page), n_keys = min(position + 1 - start, page_tokens(page));
        uint8_t *keys = real ? page_data(p.kv, segment, 0, page, kv_head) : nullptr;
        uint8_t *values = real ? page_data(p.kv, segment, 1, page, kv_head) : nullptr;
        float *scratch = at.scratch + warp * 2 * CUDA_MOST_HEAD;
        for (int h = warp; h <= group; h += DECODE_WARPS) /* the last is the key */
            make_head(p,
                      h < group ? p.q + (size_t)(first_head + h) * p.q_stride * sizeof(float)
                                : p.k + (size_t)kv_head * n * sizeof(float),
                      h < group ? p.q_w : p.k_w, scratch, scratch + CUDA_MOST_HEAD, at.q + h * n);
        block_meet();
        if (last) {
            size_t row = (size_t)(position - start) * n * sizeof(__half);
            for (int d = tid; d < n; d += 128) {
                reinterpret_cast<__half *>(keys + row)[d] = __float2half_rn(at.key[d]);
                reinterpret_cast<__half *>(values + row)[d] =
                    __float2half_rn(load(p.v, kv_head * n + d));
            }
            team_meet(team);
        }
        float *near = at.partial + team * group * (n + 2);
        float *far = reinterpret_cast<float *>(p.partial) + first_head * stride +
                     (size_t)page * (n + 2);
        if (real)
            attend_page<NEAR ? 1 : DECODE_QUERIES, false>(
                p.kv, keys, values, n_keys, at.q, at.weights + team * group * CUDA_PAGE_TOKENS,
                group, p.scale, NEAR ? near : far, NEAR ? n + 2 : stride, tid,
                [=] { team_meet(team); });
        block_meet();
        if (quads > 1) /* not near */
            continue;
        for (int e = threadIdx.x; e < group * n; e += DECODE_THREADS) {
            const float *part = at.partial + e / n * (n + 2);
            size_t step = group * (n + 2);
            float most = -INFINITY, sum[4] = {0, 0, 0, 0}, total[4] = {0, 0, 0, 0};
            for (int j = 0; j < n_pages; j++)
                most = fmaxf(most, part[j * step + n]);
#pragma unroll
            for (int j = 0; j < DECODE_TEAMS; j++)
                if (j < n_pages) {
                    float weight = expf(part[j * step + n] - most);
                    total[j] = fmaf(weight, part[j * step + n + 1], 0.0f);
                    sum[j] = fmaf(weight, part[j * step + e % n], 0.0f);
                }
            at.q[e] = sum_of_four(sum) / sum_of_four(total);
        }
        block_meet();
        for (int h = threadIdx.x / 128; h < group; h += DECODE_TEAMS)
            publish_head(p, at.q + h * n, first_head + h, tid / 16, 8);
        block_meet();
    }
}

/* A block for each head: pages go to four sums by turns, as in `attention_merge`. */
OUTLINE void merge_phase(const cuda_phase &p, space m, int n_pages, int most_pages)
{
    int n = p.kv.head_dim, tid = threadIdx.x, slice = tid % 4;
    float *weights = reinterpret_cast<float *>(m.codes), *out = weights + most_pages;
    size_t step = n + 2;
    for (int head = blockIdx.x; head < p.n_query_heads; head += gridDim.x) {
        const float *partial = reinterpret_cast<const float *>(p.partial) +
                               (size_t)head * most_pages * step;
        float most = -INFINITY;
        for (int i = tid; i < n_pages; i += DECODE_THREADS) {
            weights[i] = __ldcg(partial + i * step + n);
            most = fmaxf(most, weights[i]);
        }
        most = warp_max(most);
        if (tid % 32 == 0)
            m.small[tid / 32] = most;
        block_meet();
        for (int i = 0; i < DECODE_WARPS; i++)
            most = fmaxf(most, m.small[i]);
        for (int i = tid; i < n_pages; i += DECODE_THREADS)
            weights[i] = expf(weights[i] - most);
        block_meet();
        for (int d = tid / 4; d < n; d += DECODE_THREADS / 4) {
            float sum = 0, total = 0;
#pragma unroll 8
            for (int i = slice; i < n_pages; i += 4) {
                sum = fmaf(weights[i], __ldcg(partial + i * step + d), sum);
                total = fmaf(weights[i], __ldcg(partial + i * step + n + 1), total);
            }
            for (int half = 1; half < 4; half *= 2) {
                sum += __shfl_xor_sync(~0u, sum, half);
                total += __shfl_xor_sync(~0u, total, half);
            }
            if (slice == 0)
                out[d] = sum / total;
        }
        block_meet();
        if (tid < 128)
            publish_head(p, out, head, tid / 16, 8);
        block_meet();
    }
}

/* -------------------------------------------------------------------------------------- the walk */

OUTLINE void begin_phase(const cuda_phase &p, const cuda_run *run)
{
    int first, last, half = p.n_rot / 2;
    const uint8_t *row = reinterpret_cast<const uint8_t *>(p.embedding) +
                         (size_t)int_array(run->ids)[0] * p.row_bytes;
    block_range(p.width, &first, &last);
    for (int c = first + threadIdx.x; c < last; c += DECODE_THREADS)
        reinterpret_cast<float *>(p.kept)[c] = decode(p.format, row, c);
    if (blockIdx.x != 0)
        return;
    for (int i = threadIdx.x; i < half; i += DECODE_THREADS) {
        int axis = reinterpret_cast<const uint8_t *>(p.axis)[i];
        double angle = (double)int_array(run->rope_at)[axis] *
                       reinterpret_cast<const double *>(p.freq)[i];
        double sine, cosine;
        sincos(angle, &sine, &cosine);
        reinterpret_cast<float *>(p.rope)[i] = (float)cosine * p.magnitude;
        reinterpret_cast<float *>(p.rope)[half + i] = (float)sine * p.magnitude;
    }
}

DEVICE void note_time(const cuda_decode &d, int phase)
{
    if (d.times && blockIdx.x == 0 && threadIdx.x == 0)
        reinterpret_cast<long long *>(d.times)[phase] = clock64();
}

template <int PACK>
DEVICE void decode_token(const cuda_decode &d, cuda_run *run, int most_pages)
{
    extern __shared__ __align__(128) uint8_t memory[];
    __shared__ __align__(16) cuda_phase list[2];
    __shared__ float small[SMALL];
    const cuda_phase *phases = reinterpret_cast<const cuda_phase *>(d.phases);
    uint64_t *barriers = reinterpret_cast<uint64_t *>(memory + d.barriers_at);
    ring r = {memory, barriers, barriers + d.n_stages, d.n_stages, 0, 0};
    if (threadIdx.x == 0) {
        for (int i = 0; i < d.n_stages; i++) {
            barrier_init(&r.full[i], 1);
            barrier_init(&r.empty[i], DECODE_WARPS);
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
        asm volatile("fence.proxy.async;" ::: "memory");
    }
    const int words = sizeof(cuda_phase) / 4;
    auto fetch = [&](int i) { /* a phase's description into its place */
        for (int w = threadIdx.x; w < words && i < d.n_phases; w += DECODE_THREADS)
            reinterpret_cast<uint32_t *>(&list[i % 2])[w] =
                reinterpret_cast<const uint32_t *>(phases + i)[w];
    };
    if (threadIdx.x < DECODE_THREADS)
        fetch(0);
    __syncthreads();
    if (threadIdx.x >= DECODE_THREADS) {
        if (threadIdx.x == DECODE_THREADS)
            copy_weights<PACK>(r, phases, d.n_phases, d.terms_bytes);
        return;
    }
    space m = {reinterpret_cast<int8_t *>(memory + d.codes_at), nullptr, nullptr,
               reinterpret_cast<float *>(memory + d.terms_at), d.terms_bytes, small};
    const cuda_segment segment = *reinterpret_cast<const cuda_segment *>(run->segments);
    int n_pages = page_of(segment.position) + 1;
    uint32_t meetings = 0;
    for (int i = 0; i < d.n_phases; i++) {
        const cuda_phase &p = list[i % 2];
        fetch(i + 1);
        note_time(d, i);
        switch (p.kind) {
        case CUDA_PHASE_BEGIN:
            begin_phase(p, run);
            break;
        case CUDA_PHASE_NORM:
        case CUDA_PHASE_PRODUCT:
            product<PACK>(p, m, r, segment);
            break;
        case CUDA_PHASE_QUANTISE:
            quantise_phase(p);
            break;
        case CUDA_PHASE_DELTA:
            delta_phase(p, m, segment);
            break;
        default:
            if (n_pages <= DECODE_TEAMS) {
                attention_phase<true>(p, m, segment, n_pages, most_pages);
            } else {
                attention_phase<false>(p, m, segment, n_pages, most_pages);
                grid_meet(&run->arrived, ++meetings * gridDim.x);
                merge_phase(p, m, n_pages, most_pages);
            }
            break;
        }
        if (i + 1 < d.n_phases)
            grid_meet(&run->arrived, ++meetings * gridDim.x);
    }
    note_time(d, d.n_phases);
}

#else

template <int PACK> DEVICE void decode_token(const cuda_decode &, cuda_run *, int) {}

#endif

#define DECODE_KERNEL(name, PACK)                                                                  \
    extern "C" __global__ void __launch_bounds__(DECODE_THREADS + 32, 1)                           \
        decode_##name(const cuda_decode d, cuda_run *run, int most_pages)                          \
    {                                                                                              \
        decode_token<PACK>(d, run, most_pages);                                                    \
    }
DECODE_KERNEL(q1, CUDA_PACK_Q1)
DECODE_KERNEL(q2_g128, CUDA_PACK_Q2_G128)
DECODE_KERNEL(q2_g64, CUDA_PACK_Q2_G64)
