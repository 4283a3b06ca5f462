/* Products of int8 codes by packed weights on the tensor cores, bit-equal to kernel.h.
 *
 * Codes of weights become bytes by masks alone: a binary plane is 0 or 2 (or 0 or 32, where its bits
 * lie four places higher), so that sum((2 b - 1) a) = sum(2 b a) - sum(a). A sum of a group comes out of
 * the tensor core as the bits of the float 12582912 + sum, since the accumulator starts there: no
 * conversion. All that follows is in f32, in the order of kernel.h, rounded step by step. */
#pragma once

#include "common.cuh"

#define MAGIC 12582912.0f /* 1.5 * 2^23 */
enum { MAGIC_BITS = 0x4b400000 };

template <int PACK> struct pack_traits {
    static constexpr int BITS = CUDA_PACK_BITS(PACK), TERMS = CUDA_PACK_TERMS(PACK),
                         ITEM = CUDA_ITEM_BYTES(PACK);
};

DEVICE void mma(int d[4], const uint32_t a[4], uint32_t b0, uint32_t b1, const int c[4])
{
    asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 "
        "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%10,%11,%12,%13};"
        : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "r"(c[0]), "r"(c[1]),
          "r"(c[2]), "r"(c[3]));
}

/* The words of one unit of one lane row: [BITS]. group: 0 or 1 of the unit. Four planes of bytes. */
template <int BITS> DEVICE void expand(uint32_t plane[4], const uint32_t *w, int group)
{
    if (BITS == 1) {
        uint32_t mask = group ? 0x20202020u : 0x02020202u;
        plane[0] = w[0] << 1 & mask;
        plane[1] = w[0] & mask;
        plane[2] = w[0] >> 1 & mask;
        plane[3] = w[0] >> 2 & mask;
    } else if (BITS == 2) {
        for (int p = 0; p < 4; p++)
            plane[p] = w[group] >> 2 * p & 0x03030303u;
    } else if (BITS == 4) {
        for (int i = 0; i < 2; i++) {
            plane[2 * i] = w[2 * group + i] << 4 & 0xf0f0f0f0u;
            plane[2 * i + 1] = w[2 * group + i] & 0xf0f0f0f0u;
        }
    } else {
        for (int p = 0; p < 4; p++)
            plane[p] = w[4 * group + p];
    }
}

/* The tensor core's result as the sum of code products. `base` holds what is the same for a column. */
template <int PACK> DEVICE float sum_base(int group, float codes_sum)
{
    if (PACK == CUDA_PACK_Q1 && group)
        return __fsub_rn(-MAGIC / 16, codes_sum);
    if (PACK <= CUDA_PACK_Q2_G64)
        return __fsub_rn(-MAGIC, codes_sum);
    return PACK == CUDA_PACK_Q4 ? -MAGIC / 16 : -MAGIC;
}

template <int PACK> DEVICE float sum_of(int group, int d, float base)
{
    /* All values are whole numbers far below 2^24: nothing is rounded. */
    if ((PACK == CUDA_PACK_Q1 && group) || PACK == CUDA_PACK_Q4)
        return fmaf(__int_as_float(d), 1.0f / 16, base);
    return __fadd_rn(__int_as_float(d), base);
}

/* Part p of n units ends before this one (ob_part_end). */
DEVICE int part_end(int part, int n_units)
{
    return (part + 1) * n_units / CUDA_PARTS;
}

/* ------------------------------------------------------------------------- one row of activations
 *
 * With one row, seven of the eight columns of the tensor core would be idle. Instead column n holds
 * the codes of group n of the item, always the same registers: of the product of group G's weights by
 * all eight columns, column G is wanted. What one warp makes of an item are the terms that kernel.h
 * adds up: for each row and weight scale, t times that scale. */

/* terms [4 units][TERMS][16 rows] of one item by one warp. codes [512], scales and sums `stride` apart
 * are those of the item's columns. */
template <int PACK>
DEVICE void item_terms(float *terms, const uint8_t *item, const int8_t *codes, const float *scales,
                       const float *sums, size_t stride)
{
    using P = pack_traits<PACK>;
    constexpr int BITS = P::BITS, TERMS = P::TERMS;
    const int magic[4] = {MAGIC_BITS, MAGIC_BITS, MAGIC_BITS, MAGIC_BITS};
    int lane = threadIdx.x & 31, g = lane / 4, q = lane % 4;
    const uint4 *vectors = reinterpret_cast<const uint4 *>(item);
    uint4 b = *reinterpret_cast<const uint4 *>(codes + 64 * g + 16 * q);
    int low[2][2], high[2][2]; /* [group of this lane's unit][32 columns]: rows g and g + 8 */
    /* A vector holds 8 / BITS groups; what it is expanded from is a unit or, with 8 bits, half of one. */
#pragma unroll
    for (int unit = 0; unit < 4; unit++) {
        uint32_t w[2][BITS];
#pragma unroll
        for (int half = 0; half < 2; half++) {
#pragma unroll
            for (int i = 0; i < BITS; i++) {
                int word = unit * BITS + i; /* of the lane's row */
                const uint4 v = vectors[(half * BITS + word / 4) * 32 + lane];
                w[half][i] = word % 4 == 0   ? v.x
                             : word % 4 == 1 ? v.y
                             : word % 4 == 2 ? v.z
                                             : v.w;
            }
        }
#pragma unroll
        for (int group = 0; group < 2; group++) {
            uint32_t p[2][4];
            expand<BITS>(p[0], w[0], group);
            expand<BITS>(p[1], w[1], group);
            int d[2][4];
            uint32_t a0[4] = {p[0][0], p[1][0], p[0][1], p[1][1]};
            uint32_t a1[4] = {p[0][2], p[1][2], p[0][3], p[1][3]};
            mma(d[0], a0, b.x, b.y, magic);
            mma(d[1], a1, b.z, b.w, TERMS == 4 ? magic : d[0]);
            if (q == unit) {
                for (int i = TERMS == 4 ? 0 : 1; i < 2; i++) {
                    low[group][i] = d[i][group];
                    high[group][i] = d[i][2 + group];
                }
            }
        }
    }
    float s[2], base[2];
    for (int group = 0; group < 2; group++) {
        s[group] = scales[(2 * q + group) * stride];
        base[group] = sum_base<PACK>(group, sums[(2 * q + group) * stride]);
    }
    const __half2 *ws = reinterpret_cast<const __half2 *>(item + 1024 * BITS) + q * TERMS * 8 + g;
    float *out = terms + q * TERMS * CUDA_TILE_ROWS + g;
#pragma unroll
    for (int term = 0; term < TERMS; term++) {
        float2 scale = __half22float2(ws[term * 8]);
        float t[2];
        for (int half = 0; half < 2; half++) {
            int(*d)[2] = half ? high : low;
            if (TERMS == 1)
                t[half] = __fadd_rn(__fmul_rn(sum_of<PACK>(0, d[0][1], base[0]), s[0]),
                                    __fmul_rn(sum_of<PACK>(1, d[1][1], base[1]), s[1]));
            else if (TERMS == 2)
                t[half] = __fmul_rn(sum_of<PACK>(term, d[term][1], base[term]), s[term]);
            else
                t[half] = __fmul_rn(
                    sum_of<PACK>(term / 2, d[term / 2][term % 2], base[term / 2]), s[term / 2]);
        }
        out[term * CUDA_TILE_ROWS] = __fmul_rn(t[0], scale.x);
        out[term * CUDA_TILE_ROWS + 8] = __fmul_rn(t[1], scale.y);
    }
}

/* The sum over a row's terms, by 8 neighbouring lanes of which this one has part `part`; the result is
 * that of the first. All 32 lanes of the warp must come here. */
DEVICE float sum_terms(const float *terms, int n_terms, int terms_of_unit, int part)
{
    int n_units = (n_terms + terms_of_unit - 1) / terms_of_unit;
    int begin = part_end(part - 1, n_units) * terms_of_unit;
    int end = min(part_end(part, n_units) * terms_of_unit, n_terms);
    float sum = 0.0f;
#pragma unroll 4
    for (int i = begin; i < end; i++)
        sum = __fadd_rn(sum, terms[i * CUDA_TILE_ROWS]);
    uint32_t filled = __ballot_sync(~0u, begin < end) >> (threadIdx.x & 24);
    float y = 0.0f;
    bool started = false;
#pragma unroll
    for (int p = 0; p < CUDA_PARTS; p++) {
        float next = __shfl_sync(~0u, sum, p, 8);
        if (filled >> p & 1) { /* empty parts are left out */
            y = started ? __fadd_rn(y, next) : next;
            started = true;
        }
    }
    return y;
}

template <int PACK> DEVICE int n_terms_of(int n_cols)
{
    return n_cols / (128 / pack_traits<PACK>::TERMS);
}

/* A block for one tile of one row. Shared memory: the tile's terms. */
template <int PACK> DEVICE void gemv(const cuda_step &s, const cuda_run *run)
{
    using P = pack_traits<PACK>;
    extern __shared__ float terms[];
    int tile = blockIdx.x, row = blockIdx.y;
    if (row >= rows_of(s.out, run))
        return;
    const cuda_value &x = s.in[0];
    int n_items = x.columns / CUDA_ITEM_COLUMNS, warp = threadIdx.x / 32;
    const uint8_t *items = reinterpret_cast<const uint8_t *>(s.w[0]) +
                           (size_t)tile * n_items * P::ITEM;
    const int8_t *codes = reinterpret_cast<const int8_t *>(x.at) + (size_t)row * x.columns;
    const float *scales = reinterpret_cast<const float *>(x.scales) + row;
    const float *sums = reinterpret_cast<const float *>(x.sums) + row;
    for (int i = warp; i < n_items; i += blockDim.x / 32)
        item_terms<PACK>(terms + i * 4 * P::TERMS * CUDA_TILE_ROWS, items + (size_t)i * P::ITEM,
                         codes + i * CUDA_ITEM_COLUMNS, scales + (size_t)i * 8 * x.row_cap,
                         sums + (size_t)i * 8 * x.row_cap, x.row_cap);
    __syncthreads();
    if (threadIdx.x < CUDA_TILE_ROWS * 8) {
        int r = threadIdx.x / 8, o = tile * CUDA_TILE_ROWS + r;
        float y = sum_terms(terms + r, n_terms_of<PACK>(s.w_cols), P::TERMS, threadIdx.x % 8);
        if (threadIdx.x % 8 == 0 && o < s.w_rows)
            head_at(s.out, row, 0)[o] = y;
    }
}

/* ------------------------------------------------------------------------ many rows of activations
 *
 * A block of 8 warps, WM x WN of them, takes 16 WM MT outputs by 8 WN NT rows; weights go from device
 * memory to registers, codes through a pipeline in shared memory, a unit of 128 columns at a time. */

enum { GEMM_THREADS = 256, GEMM_STAGES = 4 };

/* Bytes of a stage for `rows` rows: codes, then scales and sums of two groups. */
__host__ __device__ constexpr int stage_bytes(int rows)
{
    return rows * (128 + 16);
}

DEVICE void copy_async(void *shared, const void *global)
{
    uint32_t to = (uint32_t)__cvta_generic_to_shared(shared);
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(global));
}

/* A thread's share of loading stages: where its pieces come from and go to, found once. */
template <int ROWS> struct stage_loader {
    static constexpr int COPIES = (ROWS * 8 + GEMM_THREADS - 1) / GEMM_THREADS;
    const int8_t *codes[COPIES];
    const float *plane;
    size_t plane_step;
    int to[COPIES], plane_to;

    DEVICE stage_loader(const cuda_value &x, int first, int n_rows, int unit)
    {
#pragma unroll
        for (int c = 0; c < COPIES; c++) {
            int i = threadIdx.x + c * GEMM_THREADS, row = i / 8, chunk = i % 8;
            codes[c] = reinterpret_cast<const int8_t *>(x.at) +
                       (size_t)min(first + row, n_rows - 1) * x.columns + unit * 128 + chunk * 16;
            /* odd rows have their halves swapped: no bank conflicts */
            to[c] = i < ROWS * 8 ? row * 128 + (chunk ^ (row & 1) << 2) * 16 : -1;
        }
        int i = threadIdx.x, n = i / (ROWS / 4), chunk = i % (ROWS / 4) * 4;
        plane = reinterpret_cast<const float *>(n < 2 ? x.scales : x.sums) +
                (size_t)(2 * unit + n % 2) * x.row_cap + (first + chunk < x.row_cap ? first + chunk : 0);
        plane_step = 2 * (size_t)x.row_cap;
        plane_to = i < ROWS ? ROWS * 128 + (n * ROWS + chunk) * 4 : -1;
    }

    /* The next unit. */
    DEVICE void load(uint8_t *stage)
    {
#pragma unroll
        for (int c = 0; c < COPIES; c++) {
            if (to[c] >= 0)
                copy_async(stage + to[c], codes[c]);
            codes[c] += 128;
        }
        if (plane_to >= 0)
            copy_async(stage + plane_to, plane);
        plane += plane_step;
    }
};

/* The words of one unit for rows g and g + 8 of one tile. */
template <int BITS>
DEVICE void load_words(uint32_t w[2][BITS], const uint8_t *item, int unit)
{
    int lane = threadIdx.x & 31;
    for (int half = 0; half < 2; half++) {
        /* words unit * BITS ... of this lane's row; 4 words a vector */
        const uint8_t *at = item + (half * BITS + unit * BITS / 4) * 512 + lane * 16;
        if (BITS == 1) {
            w[half][0] = *reinterpret_cast<const uint32_t *>(at + unit * 4);
        } else if (BITS == 2) {
            uint2 v = *reinterpret_cast<const uint2 *>(at + unit % 2 * 8);
            w[half][0] = v.x;
            w[half][BITS > 1 ? 1 : 0] = v.y;
        } else {
            for (int i = 0; i < BITS / 4; i++)
                *reinterpret_cast<uint4 *>(&w[half][4 * i]) =
                    *reinterpret_cast<const uint4 *>(at + i * 512);
        }
    }
}

/* One unit's terms of 16 outputs (scales ws) by 8 rows, added to part: a [group][mma][4] are the
 * expanded weights, b the codes of both groups, s and base per group and column. */
template <int PACK>
DEVICE void add_unit(float part[4], const uint32_t a[2][2][4], const uint4 b[2], const float2 s[2],
                     const float2 base[2], const float2 ws[pack_traits<PACK>::TERMS])
{
    using P = pack_traits<PACK>;
    constexpr int TERMS = P::TERMS;
    const int magic[4] = {MAGIC_BITS, MAGIC_BITS, MAGIC_BITS, MAGIC_BITS};
    int d[2][2][4];
#pragma unroll
    for (int group = 0; group < 2; group++) {
        mma(d[group][0], a[group][0], b[group].x, b[group].y, magic);
        mma(d[group][1], a[group][1], b[group].z, b[group].w,
                         TERMS == 4 ? magic : d[group][0]);
    }
#pragma unroll
    for (int e = 0; e < 4; e++) {
        float u[2][2];
#pragma unroll
        for (int group = 0; group < 2; group++)
#pragma unroll
            for (int i = TERMS == 4 ? 0 : 1; i < 2; i++)
                u[group][i] = __fmul_rn(
                    sum_of<PACK>(group, d[group][i][e], e & 1 ? base[group].y : base[group].x),
                    e & 1 ? s[group].y : s[group].x);
#pragma unroll
        for (int term = 0; term < TERMS; term++) {
            float t = TERMS == 1   ? __fadd_rn(u[0][1], u[1][1])
                      : TERMS == 2 ? u[term][1]
                                   : u[term / 2][term % 2];
            part[e] = __fadd_rn(part[e], __fmul_rn(t, e & 2 ? ws[term].y : ws[term].x));
        }
    }
}

/* The sum of the parts so far waits in shared memory, behind the stages: it is touched eight times only.
 *
 * SPLIT: this block makes part blockIdx.z alone, for `gemm_sum` to add up. */
template <int PACK, int WM, int WN, int MT, int NT, bool SPLIT>
DEVICE void gemm(const cuda_step &s, const cuda_run *run)
{
    using P = pack_traits<PACK>;
    constexpr int BITS = P::BITS, TERMS = P::TERMS, ROWS = 8 * WN * NT;
    extern __shared__ __align__(16) uint8_t stages[];
    const cuda_value &x = s.in[0];
    int n_rows = rows_of(s.out, run), first = blockIdx.y * ROWS;
    int n_units = (s.w_cols + 127) / 128, part = SPLIT ? blockIdx.z : 0;
    int begin = SPLIT ? part_end(part - 1, n_units) : 0;
    int end = SPLIT ? part_end(part, n_units) : n_units;
    if (first >= n_rows || begin == end)
        return;
    int lane = threadIdx.x & 31, g = lane / 4, q = lane % 4, warp = threadIdx.x / 32;
    int warp_row = warp / WM * 8 * NT, n_tiles = (s.w_rows + 15) / 16;
    int first_tile = (blockIdx.x * WM + warp % WM) * MT, n_items = x.columns / CUDA_ITEM_COLUMNS;
    const uint8_t *items[MT];
    for (int m = 0; m < MT; m++)
        items[m] = reinterpret_cast<const uint8_t *>(s.w[0]) +
                   (size_t)min(first_tile + m, n_tiles - 1) * n_items * P::ITEM;

    float sum[MT][NT][4];
    float *y = reinterpret_cast<float *>(stages + GEMM_STAGES * stage_bytes(ROWS)) + threadIdx.x;
#pragma unroll
    for (int m = 0; m < MT; m++)
#pragma unroll
        for (int n = 0; n < NT; n++)
#pragma unroll
            for (int e = 0; e < 4; e++)
                sum[m][n][e] = 0.0f;

    stage_loader<ROWS> loader(x, first, n_rows, begin);
    for (int i = 0; i < GEMM_STAGES - 1; i++) {
        if (begin + i < end)
            loader.load(stages + i * stage_bytes(ROWS));
        asm volatile("cp.async.commit_group;");
    }
    bool started = false;
    int part_ends_at = part_end(part, n_units);
    int now = 0, ahead = GEMM_STAGES - 1; /* stages */
    for (int unit = begin; unit < end; unit++) {
        uint32_t a[MT][2][2][4];
        float2 ws[MT][TERMS];
#pragma unroll
        for (int m = 0; m < MT; m++) {
            const uint8_t *item = items[m] + (size_t)(unit / 4) * P::ITEM;
            uint32_t w[2][BITS];
            load_words<BITS>(w, item, unit % 4);
            const __half2 *scales = reinterpret_cast<const __half2 *>(item + 1024 * BITS) +
                                    unit % 4 * TERMS * 8 + g;
#pragma unroll
            for (int term = 0; term < TERMS; term++)
                ws[m][term] = __half22float2(scales[term * 8]);
#pragma unroll
            for (int group = 0; group < 2; group++) {
                uint32_t p[2][4];
                expand<BITS>(p[0], w[0], group);
                expand<BITS>(p[1], w[1], group);
#pragma unroll
                for (int i = 0; i < 2; i++) {
                    a[m][group][i][0] = p[0][2 * i];
                    a[m][group][i][1] = p[1][2 * i];
                    a[m][group][i][2] = p[0][2 * i + 1];
                    a[m][group][i][3] = p[1][2 * i + 1];
                }
            }
        }
        asm volatile("cp.async.wait_group %0;" ::"n"(GEMM_STAGES - 2));
        __syncthreads();
        if (unit + GEMM_STAGES - 1 < end)
            loader.load(stages + ahead * stage_bytes(ROWS));
        asm volatile("cp.async.commit_group;");
        const uint8_t *stage = stages + now * stage_bytes(ROWS);
        now = now + 1 == GEMM_STAGES ? 0 : now + 1;
        ahead = ahead + 1 == GEMM_STAGES ? 0 : ahead + 1;
        const float *planes = reinterpret_cast<const float *>(stage + ROWS * 128);
#pragma unroll
        for (int n = 0; n < NT; n++) {
            int row = warp_row + 8 * n + g, column = warp_row + 8 * n + 2 * q;
            uint4 b[2];
            float2 scale[2], base[2];
#pragma unroll
            for (int group = 0; group < 2; group++) {
                b[group] = *reinterpret_cast<const uint4 *>(
                    stage + row * 128 + ((group * 4 + q) ^ (row & 1) << 2) * 16);
                scale[group] =
                    *reinterpret_cast<const float2 *>(planes + group * ROWS + column);
                float2 sums =
                    *reinterpret_cast<const float2 *>(planes + (2 + group) * ROWS + column);
                base[group] = make_float2(sum_base<PACK>(group, sums.x),
                                          sum_base<PACK>(group, sums.y));
            }
#pragma unroll
            for (int m = 0; m < MT; m++)
                add_unit<PACK>(sum[m][n], a[m], b, scale, base, ws[m]);
        }
        /* Where a part of the columns ends, it joins the parts before it. */
        bool ends = !SPLIT && part_ends_at <= unit + 1;
        while (!SPLIT && part_ends_at <= unit + 1 && part < CUDA_PARTS - 1)
            part_ends_at = part_end(++part, n_units); /* with fewer units than parts, some are empty */
        if (ends) {
#pragma unroll
            for (int m = 0; m < MT; m++)
#pragma unroll
                for (int n = 0; n < NT; n++)
#pragma unroll
                    for (int e = 0; e < 4; e++) {
                        float *to = y + ((m * NT + n) * 4 + e) * GEMM_THREADS;
                        *to = started ? __fadd_rn(*to, sum[m][n][e]) : sum[m][n][e];
                        sum[m][n][e] = 0.0f;
                    }
            started = true;
        }
    }
#pragma unroll
    for (int m = 0; m < MT; m++)
#pragma unroll
        for (int n = 0; n < NT; n++)
#pragma unroll
            for (int e = 0; e < 4; e++) {
                int o = (first_tile + m) * 16 + g + (e & 2) * 4;
                int row = first + warp_row + 8 * n + 2 * q + (e & 1);
                if (o >= s.w_rows || row >= n_rows)
                    continue;
                if (SPLIT)
                    reinterpret_cast<float *>(
                        s.scratch)[((size_t)part * n_rows + row) * s.w_rows + o] = sum[m][n][e];
                else
                    head_at(s.out, row, 0)[o] = y[((m * NT + n) * 4 + e) * GEMM_THREADS];
            }
}

/* Parts made by different blocks, left to right. */
extern "C" __global__ void gemm_sum(const cuda_step s, const cuda_run *run)
{
    int o = blockIdx.x * blockDim.x + threadIdx.x, row = blockIdx.y;
    int n_rows = rows_of(s.out, run), n_units = (s.w_cols + 127) / 128;
    if (o >= s.w_rows || row >= n_rows)
        return;
    float y = 0.0f;
    bool started = false;
    for (int p = 0; p < CUDA_PARTS; p++) {
        if (part_end(p - 1, n_units) == part_end(p, n_units))
            continue;
        float part = reinterpret_cast<const float *>(
            s.scratch)[((size_t)p * n_rows + row) * s.w_rows + o];
        y = started ? __fadd_rn(y, part) : part;
        started = true;
    }
    head_at(s.out, row, 0)[o] = y;
}

/* Large: 128 outputs by 64 rows. Middle: 64 by 64. Small, in parts: 128 outputs by 8 or 64 rows. */
#define PRODUCT_KERNELS(name, PACK)                                                                \
    extern "C" __global__ void __launch_bounds__(256)                                              \
        gemv_##name(const cuda_step s, const cuda_run *run)                                        \
    {                                                                                              \
        gemv<PACK>(s, run);                                                                        \
    }                                                                                              \
    extern "C" __global__ void __launch_bounds__(GEMM_THREADS, 2)                                  \
        gemm_large_##name(const cuda_step s, const cuda_run *run)                                  \
    {                                                                                              \
        gemm<PACK, 4, 2, 2, 4, false>(s, run);                                                     \
    }                                                                                              \
    extern "C" __global__ void __launch_bounds__(GEMM_THREADS, 2)                                  \
        gemm_middle_##name(const cuda_step s, const cuda_run *run)                                 \
    {                                                                                              \
        gemm<PACK, 4, 2, 1, 4, false>(s, run);                                                     \
    }                                                                                              \
    extern "C" __global__ void __launch_bounds__(GEMM_THREADS, 2)                                  \
        gemm_middle_parts_##name(const cuda_step s, const cuda_run *run)                           \
    {                                                                                              \
        gemm<PACK, 4, 2, 1, 4, true>(s, run);                                                      \
    }                                                                                              \
    extern "C" __global__ void __launch_bounds__(GEMM_THREADS, 2)                                  \
        gemm_small_##name(const cuda_step s, const cuda_run *run)                                  \
    {                                                                                              \
        gemm<PACK, 8, 1, 1, 1, true>(s, run);                                                      \
    }
PRODUCT_KERNELS(q1, CUDA_PACK_Q1)
PRODUCT_KERNELS(q2_g128, CUDA_PACK_Q2_G128)
PRODUCT_KERNELS(q2_g64, CUDA_PACK_Q2_G64)
PRODUCT_KERNELS(q4, CUDA_PACK_Q4)
PRODUCT_KERNELS(q8, CUDA_PACK_Q8)
