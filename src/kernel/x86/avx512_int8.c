/* Int8 products for AVX-512 with VNNI.
 *
 * A tile is 16 weight rows, one per 32-bit lane. Weights are unsigned codes u = weight code + z, so
 * that a step of 4 columns is one vpdpbusd of the tile's 64 codes with the 4 activation codes of a
 * row, broadcast; the sum then starts from -z times the sum of the activation codes. Nothing is ever
 * added across lanes.
 *
 * Packed tile: for each block of columns (128 for Q1_0 and Q2_0 of 128, 64 for Q2_0, 32 for Q8_0 and
 * Q4_0) the codes, then 16 f16 scales. Within a step byte 4 r + j is row r, column j:
 *   Q1_0   a step is 64 bits, bit 4 r + j; set is weight +1. u is 2 or 0, z = 1
 *   Q2_0   4 steps share 64 bytes, step s in bits 2 s of each. z = 1
 *   Q4_0   2 steps share 64 bytes, the even one in the low halves. z = 8
 *   Q8_0   a step is 64 bytes. z = 128
 * as many bytes as in the file, but for Q8_0's and Q4_0's. */
#include <immintrin.h>
#include <string.h>

#include "kernel/kernel.h"

#define INLINE static inline __attribute__((always_inline))
#if defined(__clang__)
#define UNROLL _Pragma("unroll")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif

enum { TILE = 16, STEP = 4, SCALE_BYTES = 2 * TILE, MOST_TILES = 4 };

/* What differs between the formats, as constants that vanish in the unrolled code. */
struct packing {
    enum ob_format_id id;
    int block;     /* columns of a packed block = columns of a weight scale */
    int step_bits; /* bytes of one step, times 8 */
    int zero;      /* z */
};

static const struct packing Q1 = {OB_FORMAT_Q1_0, 128, 64, 1};
static const struct packing Q2_64 = {OB_FORMAT_Q2_0_G64, 64, 128, 1};
static const struct packing Q2_128 = {OB_FORMAT_Q2_0_G128, 128, 128, 1};
static const struct packing Q4 = {OB_FORMAT_Q4_0, 32, 256, 8};
static const struct packing Q8 = {OB_FORMAT_Q8_0, 32, 512, 128};

INLINE size_t code_bytes(const struct packing f)
{
    return (size_t)f.block / STEP * (size_t)f.step_bits / 8;
}

INLINE size_t block_bytes(const struct packing f)
{
    return code_bytes(f) + SCALE_BYTES;
}

/* The 64 unsigned codes of step s of a block. */
INLINE __m512i load_step(const struct packing f, const uint8_t *block, int s)
{
    if (f.step_bits == 64) {
        uint64_t bits;
        memcpy(&bits, block + s * 8, sizeof bits);
        return _mm512_maskz_mov_epi8(bits, _mm512_set1_epi8(2));
    }
    if (f.step_bits == 128) {
        __m512i four = _mm512_loadu_si512(block + s / 4 * 64);
        return _mm512_and_si512(_mm512_srli_epi16(four, (unsigned)(2 * (s % 4))),
                                _mm512_set1_epi8(3));
    }
    if (f.step_bits == 256) {
        __m512i two = _mm512_loadu_si512(block + s / 2 * 64);
        return _mm512_and_si512(_mm512_srli_epi16(two, (unsigned)(4 * (s % 2))),
                                _mm512_set1_epi8(15));
    }
    return _mm512_loadu_si512(block + s * 64);
}

INLINE __m512 load_scales(const struct packing f, const uint8_t *block)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256((const void *)(block + code_bytes(f))));
}

/* sum + the dot products of each lane's 4 codes with the 4 activation codes at x. In assembly because
 * compilers put the broadcast into a register of its own, which costs a third of the speed here. */
INLINE __m512i add_dots(__m512i sum, __m512i codes, const uint8_t *x)
{
    typedef struct {
        uint8_t bytes[4];
    } four;
    __asm__("vpdpbusd %2%{1to16%}, %1, %0" : "+v"(sum) : "v"(codes), "m"(*(const four *)x));
    return sum;
}

/* One panel of x, as the inner loops walk it. */
struct walk {
    const uint8_t *codes; /* 4 bytes per row and step */
    const float *scales;
    const int32_t *sums;
};

/* t (+)= (float)isum * activation scale for one group of shared scales: `columns` columns from
 * column `from` of the blocks on. */
INLINE void add_group(const struct packing f, const int H, const int T, int from, int columns,
                      const uint8_t *const block[], const struct walk *w, bool first,
                      __m512 t[MOST_TILES][OB_PANEL_ROWS])
{
    __m512i sum[MOST_TILES][OB_PANEL_ROWS];
    UNROLL for (int r = 0; r < H; r++)
    {
        int32_t total = w->sums[r];
        if (columns == 64)
            total += w->sums[H + r];
        UNROLL for (int i = 0; i < T; i++) sum[i][r] = _mm512_set1_epi32(-f.zero * total);
    }
    for (int s = 0; s < columns / STEP; s++) {
        __m512i codes[MOST_TILES];
        UNROLL for (int i = 0; i < T; i++) codes[i] = load_step(f, block[i], from / STEP + s);
        UNROLL for (int r = 0; r < H; r++)
        {
            const uint8_t *x = w->codes + (s * H + r) * 4;
            UNROLL for (int i = 0; i < T; i++) sum[i][r] = add_dots(sum[i][r], codes[i], x);
        }
    }
    UNROLL for (int r = 0; r < H; r++)
    {
        __m512 scale = _mm512_set1_ps(w->scales[r]);
        UNROLL for (int i = 0; i < T; i++)
        {
            __m512 term = _mm512_mul_ps(_mm512_cvtepi32_ps(sum[i][r]), scale);
            t[i][r] = first ? term : _mm512_add_ps(t[i][r], term);
        }
    }
}

/* part += one packed block's terms. Moves the walk on by the block's columns; `odd` says that a
 * 32-column block is the second of its activation group. */
INLINE void add_block(const struct packing f, const int H, const int T,
                      const uint8_t *const block[], struct walk *w, bool odd,
                      __m512 part[MOST_TILES][OB_PANEL_ROWS])
{
    __m512 t[MOST_TILES][OB_PANEL_ROWS];
    int shared = f.block < OB_ACT_GROUP ? f.block : OB_ACT_GROUP;
    UNROLL for (int from = 0; from < f.block; from += shared)
    {
        add_group(f, H, T, from, shared, block, w, from == 0, t);
        w->codes += shared * H;
        w->sums += shared / OB_SUM_GROUP * H;
        if (shared == OB_ACT_GROUP || odd)
            w->scales += H;
    }
    UNROLL for (int i = 0; i < T; i++)
    {
        __m512 scales = load_scales(f, block[i]);
        UNROLL for (int r = 0; r < H; r++) part[i][r] =
            _mm512_add_ps(part[i][r], _mm512_mul_ps(t[i][r], scales));
    }
}

/* T tiles times a panel of height H: y of its first n_rows rows, first n_out outputs. */
INLINE void multiply_tiles(const struct packing f, const int H, const int T, float *y,
                           size_t y_stride, size_t n_rows, size_t n_out, const uint8_t *packed,
                           size_t tile_bytes, struct walk w, size_t n_cols)
{
    const uint8_t *block[MOST_TILES];
    UNROLL for (int i = 0; i < T; i++) block[i] = packed + (size_t)i * tile_bytes;
    size_t n_units = (n_cols + OB_UNIT_COLUMNS - 1) / OB_UNIT_COLUMNS, k = 0;
    bool started = false, odd = false;
    for (size_t p = 0; p < OB_K_PARTS; p++) {
        size_t end = ob_part_end(p, n_units) * OB_UNIT_COLUMNS;
        end = end < n_cols ? end : n_cols;
        if (k >= end)
            continue;
        __m512 part[MOST_TILES][OB_PANEL_ROWS];
        UNROLL for (int i = 0; i < T; i++) UNROLL for (int r = 0; r < H; r++) part[i][r] =
            _mm512_setzero_ps();
        for (; k < end; k += (size_t)f.block, odd = !odd) {
            add_block(f, H, T, block, &w, odd, part);
            UNROLL for (int i = 0; i < T; i++) block[i] += block_bytes(f);
        }
        UNROLL for (int i = 0; i < T; i++)
        {
            size_t left = n_out - (size_t)i * TILE;
            __mmask16 keep = left >= TILE ? 0xffff : (__mmask16)((1u << left) - 1);
            UNROLL for (int r = 0; r < H; r++)
            {
                if ((size_t)r >= n_rows)
                    break;
                float *out = y + (size_t)r * y_stride + (size_t)i * TILE;
                __m512 sum = part[i][r];
                if (started)
                    sum = _mm512_add_ps(_mm512_maskz_loadu_ps(keep, out), sum);
                _mm512_mask_storeu_ps(out, keep, sum);
            }
        }
        started = true;
    }
}

/* All tiles [first, last) times one panel of height H. */
INLINE void multiply_panel(const struct packing f, const int H, const int T, float *y,
                           size_t y_stride, size_t n_rows, const struct ob_tensor *weights,
                           const uint8_t *packed, struct walk w, size_t first, size_t last)
{
    size_t tile_bytes = weights->n_cols / (size_t)f.block * block_bytes(f);
    size_t tile = first;
    for (; tile + (size_t)T <= last; tile += (size_t)T)
        multiply_tiles(f, H, T, y + tile * TILE, y_stride, n_rows, weights->n_rows - tile * TILE,
                       packed + tile * tile_bytes, tile_bytes, w, weights->n_cols);
    for (; tile < last; tile++)
        multiply_tiles(f, H, 1, y + tile * TILE, y_stride, n_rows, weights->n_rows - tile * TILE,
                       packed + tile * tile_bytes, tile_bytes, w, weights->n_cols);
}

/* Weights that stay in the second-level cache while all panels pass over them. */
enum { CACHED_BYTES = 384 << 10 };

INLINE void multiply_format(const struct packing f, float *y, size_t y_stride,
                            const struct ob_codes *x, const struct ob_tensor *weights,
                            const void *packed, size_t first, size_t last)
{
    size_t n_cols = x->n_cols, tile_bytes = n_cols / (size_t)f.block * block_bytes(f);
    size_t at_once = CACHED_BYTES / tile_bytes / MOST_TILES * MOST_TILES;
    if (at_once == 0 || x->n_rows <= OB_PANEL_ROWS)
        at_once = x->n_rows <= OB_PANEL_ROWS ? last - first : MOST_TILES;
    for (size_t tile = first; tile < last; tile += at_once) {
        size_t stop = tile + at_once < last ? tile + at_once : last;
        for (size_t r = 0; r < x->n_rows; r += OB_PANEL_ROWS) {
            struct ob_panel p = ob_panel_of(x, r);
            size_t n_rows = x->n_rows - r < OB_PANEL_ROWS ? x->n_rows - r : OB_PANEL_ROWS;
            struct walk w = {(const uint8_t *)x->codes + r * n_cols,
                             x->scales + r * (n_cols / OB_ACT_GROUP),
                             x->sums + r * (n_cols / OB_SUM_GROUP)};
            float *out = y + r * y_stride;
            switch (p.height) {
#define CASE(H, T)                                                                                 \
    case H:                                                                                        \
        multiply_panel(f, H, T, out, y_stride, n_rows, weights, packed, w, tile, stop);            \
        break;
                CASE(1, 4)
                CASE(2, 4)
                CASE(3, 4)
                CASE(4, 2)
                CASE(6, 2)
                CASE(8, 1)
                CASE(12, 1)
#undef CASE
            }
        }
    }
}

/* ------------------------------------------------------------------------------------ packing */

/* Put code u of row r, column j of step s into a zeroed block. */
INLINE void put_code(const struct packing f, uint8_t *block, int s, int r, int j, unsigned u)
{
    int at = 4 * r + j;
    if (f.step_bits == 64)
        block[s * 8 + at / 8] |= (uint8_t)(u >> 1 << at % 8);
    else if (f.step_bits == 128)
        block[s / 4 * 64 + at] |= (uint8_t)(u << 2 * (s % 4));
    else if (f.step_bits == 256)
        block[s / 2 * 64 + at] |= (uint8_t)(u << 4 * (s % 2));
    else
        block[s * 64 + at] = (uint8_t)u;
}

/* The f16 scale of a file block: last two bytes in no format here, first in all. */
INLINE void pack_row_block(const struct packing f, uint8_t *block, int r, const uint8_t *file)
{
    int8_t codes[OB_UNIT_COLUMNS];
    float scale;
    ob_format_get(f.id)->integers(codes, &scale, file, (size_t)f.block);
    for (int k = 0; k < f.block; k++)
        put_code(f, block, k / STEP, r, k % STEP, (unsigned)(codes[k] + f.zero));
    memcpy(block + code_bytes(f) + 2 * r, file, 2);
}

/* Q1_0's own way: of 16 rows, 32 columns at a time, which are 8 steps of 64 bits. A step is 4 bits
 * of each row: cut out per row, narrowed to bytes, and put together in pairs. */
static void pack_q1_block(uint8_t *block, const uint8_t *const rows[TILE])
{
    const __m128i pair = _mm_set1_epi16(0x1001); /* even byte + 16 * odd byte */
    for (int word = 0; word < 4; word++) {
        uint32_t bits[TILE];
        for (int r = 0; r < TILE; r++)
            memcpy(&bits[r], rows[r] + 2 + 4 * word, sizeof bits[r]);
        __m512i all = _mm512_loadu_si512(bits);
        for (int s = 0; s < 8; s++) {
            __m128i nibbles = _mm512_cvtepi32_epi8(_mm512_and_si512(all, _mm512_set1_epi32(15)));
            __m128i bytes = _mm_maddubs_epi16(nibbles, pair);
            _mm_storel_epi64((void *)(block + word * 64 + s * 8), _mm_packus_epi16(bytes, bytes));
            all = _mm512_srli_epi32(all, 4);
        }
    }
    for (int r = 0; r < TILE; r++)
        memcpy(block + 256 + 2 * r, rows[r], 2);
}

INLINE void pack_format(const struct packing f, uint8_t *packed, const struct ob_tensor *w,
                        size_t first, size_t last)
{
    static const uint8_t zeros[34] = {0}; /* rows past the matrix: scale 0 */
    size_t file_bytes = (size_t)w->format->group_bytes;
    size_t n_blocks = w->n_cols / (size_t)f.block, bytes = block_bytes(f);
    for (size_t tile = first; tile < last; tile++)
        for (size_t b = 0; b < n_blocks; b++) {
            uint8_t *block = packed + (tile * n_blocks + b) * bytes;
            const uint8_t *rows[TILE];
            for (size_t r = 0; r < TILE; r++) {
                size_t row = tile * TILE + r;
                rows[r] = row < w->n_rows ? (const uint8_t *)ob_tensor_row(w, row) + b * file_bytes
                                          : zeros;
            }
            if (f.id == OB_FORMAT_Q1_0) {
                pack_q1_block(block, rows);
                continue;
            }
            memset(block, 0, bytes);
            for (int r = 0; r < TILE; r++)
                pack_row_block(f, block, r, rows[r]);
        }
}

/* ---------------------------------------------------------------------- one row per format */

#define FORMAT(name, packing_of)                                                                   \
    static size_t tile_bytes_##name(size_t n_cols)                                                 \
    {                                                                                              \
        return n_cols / (size_t)packing_of.block * block_bytes(packing_of);                        \
    }                                                                                              \
    static void pack_##name(void *packed, const struct ob_tensor *w, size_t first, size_t last)    \
    {                                                                                              \
        pack_format(packing_of, packed, w, first, last);                                           \
    }                                                                                              \
    static void multiply_##name(float *y, size_t y_stride, const struct ob_codes *x,               \
                                const struct ob_tensor *w, const void *packed, size_t first,       \
                                size_t last)                                                       \
    {                                                                                              \
        multiply_format(packing_of, y, y_stride, x, w, packed, first, last);                       \
    }

FORMAT(q1, Q1)
FORMAT(q2_64, Q2_64)
FORMAT(q2_128, Q2_128)
FORMAT(q4, Q4)
FORMAT(q8, Q8)

void ob_kernels_install_avx512_int8(struct ob_kernels *table)
{
    table->products[OB_FORMAT_Q1_0] =
        (struct ob_product){TILE, tile_bytes_q1, pack_q1, multiply_q1};
    table->products[OB_FORMAT_Q2_0_G64] =
        (struct ob_product){TILE, tile_bytes_q2_64, pack_q2_64, multiply_q2_64};
    table->products[OB_FORMAT_Q2_0_G128] =
        (struct ob_product){TILE, tile_bytes_q2_128, pack_q2_128, multiply_q2_128};
    table->products[OB_FORMAT_Q4_0] =
        (struct ob_product){TILE, tile_bytes_q4, pack_q4, multiply_q4};
    table->products[OB_FORMAT_Q8_0] =
        (struct ob_product){TILE, tile_bytes_q8, pack_q8, multiply_q8};
}
