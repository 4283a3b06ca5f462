/* Int8 products for AVX-512 with VNNI.
 *
 * 16 weight rows lie in the 32-bit lanes of a vector: a step of 4 columns is one vpdpbusd of their 64
 * codes with the 4 activation codes of a row, broadcast. Nothing is ever added across lanes. Codes are
 * unsigned, u = weight code + z, so sums start from -z times the sum of the activation codes.
 *
 * A tile is all the rows that share bytes: 8 bands of 16 rows for 1 bit, 4 for 2, 2 for 4, 1 for 8.
 * Byte 4 r + j of a step's 64 bytes holds, in bits [i b, i b + b), the code of band i, row r, column j.
 * A band is cut out by one AND and left where it is in the byte: its sums are 2^(i b) times too large,
 * which is exact in int32 and, as |sum| < 2^24, in f32, and is taken back by its weight scales. So a
 * tile costs one AND and one dot product per 64 weights and row, and one load for all of its bands.
 *
 * Packed tile: for each block of columns (128 for Q1_0 and Q2_0 of 128, 64 for Q2_0, 32 for Q8_0 and
 * Q4_0) its steps, then the bands' 16 f16 scales each. As many bytes as in the file. */
#include <immintrin.h>
#include <string.h>

#include "kernel/kernel.h"

#define INLINE static inline __attribute__((always_inline))
#if defined(__clang__)
#define UNROLL _Pragma("unroll")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif

enum { LANES = 16, STEP = 4, STEP_BYTES = 64, SCALE_BYTES = 2 * LANES, MOST_BANDS = 8 };

/* What differs between the formats, as constants that vanish in the unrolled code. */
struct packing {
    enum ob_format_id id;
    int block;    /* columns of a packed block = columns of a weight scale */
    int bits;     /* of a packed code */
    int log_zero; /* z = 2^log_zero */
};

/* Q1_0's weights are -1 and +1, so u is 0 or 2 and one bit holds u / 2. */
static const struct packing Q1 = {OB_FORMAT_Q1_0, 128, 1, 0};
static const struct packing Q2_64 = {OB_FORMAT_Q2_0_G64, 64, 2, 0};
static const struct packing Q2_128 = {OB_FORMAT_Q2_0_G128, 128, 2, 0};
static const struct packing Q4 = {OB_FORMAT_Q4_0, 32, 4, 3};
static const struct packing Q8 = {OB_FORMAT_Q8_0, 32, 8, 7};

INLINE int bands_of(const struct packing f)
{
    return 8 / f.bits;
}

INLINE size_t code_bytes(const struct packing f)
{
    return (size_t)(f.block / STEP * STEP_BYTES);
}

INLINE size_t block_bytes(const struct packing f)
{
    return code_bytes(f) + (size_t)(bands_of(f) * SCALE_BYTES);
}

/* Band i's codes are u << left_at(i) as they lie in their bytes; band 0 of one bit is doubled. */
INLINE int left_at(const struct packing f, int band)
{
    return f.bits == 1 ? (band ? band - 1 : 0) : f.bits * band;
}

/* In assembly, since compilers hold the masks of all bands in registers that the sums need, copy sums
 * around their dot products, and give a row that is used once a register: each costs a third of the
 * speed or more. */
INLINE __m512i and_bytes(__m512i a, const uint32_t *mask)
{
    __m512i result;
    __asm__("vpandd %2%{1to16%}, %1, %0" : "=v"(result) : "v"(a), "m"(*mask));
    return result;
}

/* sum + the dot products of each lane's 4 codes with its 4 activation codes. */
INLINE __m512i add_dots(__m512i sum, __m512i codes, __m512i row)
{
    __asm__("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(codes), "v"(row));
    return sum;
}

/* The same with the activation codes at x for all lanes. */
INLINE __m512i add_dots_once(__m512i sum, __m512i codes, const uint8_t *x)
{
    typedef struct {
        uint8_t bytes[4];
    } four;
    __asm__("vpdpbusd %2%{1to16%}, %1, %0" : "+v"(sum) : "v"(codes), "m"(*(const four *)x));
    return sum;
}

/* [band] of the formats with 1, 2 and 4 bits. */
static const uint32_t band_mask[3][MOST_BANDS] = {
    {0x02020202, 0x02020202, 0x04040404, 0x08080808, 0x10101010, 0x20202020, 0x40404040,
     0x80808080},
    {0x03030303, 0x0c0c0c0c, 0x30303030, 0xc0c0c0c0},
    {0x0f0f0f0f, 0xf0f0f0f0},
};

INLINE __m512i codes_of_band(const struct packing f, __m512i bytes, int band)
{
    if (f.bits == 8)
        return bytes;
    if (f.bits == 1 && band == 0)
        bytes = _mm512_add_epi8(bytes, bytes);
    return and_bytes(bytes, &band_mask[f.bits / 2][band]);
}

/* The weight scales of a band, without the factor that its sums have too much. */
INLINE __m512 load_scales(const struct packing f, const uint8_t *block, int band)
{
    const uint8_t *at = block + code_bytes(f) + band * SCALE_BYTES;
    __m512 scales = _mm512_cvtph_ps(_mm256_loadu_si256((const void *)at));
    return _mm512_mul_ps(scales, _mm512_set1_ps(1.0f / (float)(1 << left_at(f, band))));
}

INLINE __m512i load_row(const uint8_t *x)
{
    int32_t four;
    memcpy(&four, x, sizeof four);
    return _mm512_set1_epi32(four);
}

/* R rows of a panel of height H, as the inner loops walk them. */
struct walk {
    const uint8_t *codes; /* 4 bytes per row and step */
    const float *scales;
    const int32_t *sums;
};

/* sum[i][r] += one step of all bands. Compilers load a row once and keep it for all bands. */
INLINE void add_step(const struct packing f, const int R, __m512i bytes, const uint8_t *x,
                     __m512i sum[MOST_BANDS][OB_PANEL_ROWS])
{
    UNROLL for (int i = 0; i < bands_of(f); i++)
    {
        __m512i codes = codes_of_band(f, bytes, i);
        UNROLL for (int r = 0; r < R; r++) sum[i][r] =
            bands_of(f) == 1 ? add_dots_once(sum[i][r], codes, x + r * STEP)
                             : add_dots(sum[i][r], codes, load_row(x + r * STEP));
    }
}

/* t (+)= (float)isum * activation scale for one group of shared scales: `columns` columns from
 * column `from` of the block on. */
INLINE void add_group(const struct packing f, const int H, const int R, int from, int columns,
                      const uint8_t *block, const struct walk *w, bool first,
                      __m512 t[MOST_BANDS][OB_PANEL_ROWS])
{
    const int T = bands_of(f);
    __m512i sum[MOST_BANDS][OB_PANEL_ROWS];
    UNROLL for (int r = 0; r < R; r++)
    {
        __m512i total = _mm512_set1_epi32(w->sums[r]);
        if (columns == OB_ACT_GROUP)
            total = _mm512_add_epi32(total, _mm512_set1_epi32(w->sums[H + r]));
        total = _mm512_sub_epi32(_mm512_setzero_si512(), total);
        UNROLL for (int i = 0; i < T; i++) sum[i][r] =
            _mm512_slli_epi32(total, (unsigned)(f.log_zero + left_at(f, i)));
    }
    for (int s = 0; s < columns / STEP; s++)
        add_step(f, R, _mm512_loadu_si512(block + (from / STEP + s) * STEP_BYTES),
                 w->codes + s * H * STEP, sum);
    UNROLL for (int r = 0; r < R; r++)
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
INLINE void add_block(const struct packing f, const int H, const int R, const uint8_t *block,
                      struct walk *w, bool odd, __m512 part[MOST_BANDS][OB_PANEL_ROWS])
{
    __m512 t[MOST_BANDS][OB_PANEL_ROWS];
    const int T = bands_of(f), shared = f.block < OB_ACT_GROUP ? f.block : OB_ACT_GROUP;
    UNROLL for (int from = 0; from < f.block; from += shared)
    {
        add_group(f, H, R, from, shared, block, w, from == 0, t);
        w->codes += shared * H;
        w->sums += shared / OB_SUM_GROUP * H;
        if (shared == OB_ACT_GROUP || odd)
            w->scales += H;
    }
    UNROLL for (int i = 0; i < T; i++)
    {
        __m512 scales = load_scales(f, block, i);
        UNROLL for (int r = 0; r < R; r++) part[i][r] =
            _mm512_add_ps(part[i][r], _mm512_mul_ps(t[i][r], scales));
    }
}

/* Bytes between what is read and what is asked for, when weights come from memory. The hardware's
 * own prefetching stops at every page. */
enum { FETCH_AHEAD = 4608 };

/* y [R, rows of a tile] (+)= columns [from, to) of a tile, a part of the sum, times R rows of a panel of
 * height H. w: at these rows' first column. */
INLINE void multiply_part(const struct packing f, const int H, const int R, float *y,
                          const uint8_t *tile, struct walk w, size_t from, size_t to)
{
    const uint8_t *block = tile + from / (size_t)f.block * block_bytes(f);
    w.codes += from * (size_t)H;
    w.scales += from / OB_ACT_GROUP * (size_t)H;
    w.sums += from / OB_SUM_GROUP * (size_t)H;
    bool odd = false;
    __m512 part[MOST_BANDS][OB_PANEL_ROWS];
    UNROLL for (int i = 0; i < bands_of(f); i++) UNROLL for (int r = 0; r < R; r++) part[i][r] =
        _mm512_setzero_ps();
    for (size_t k = from; k < to; k += (size_t)f.block, odd = !odd) {
        if (H == R) /* else the next pass over the tile finds it in a cache */
            for (size_t b = 0; b < block_bytes(f); b += 64)
                __builtin_prefetch(block + FETCH_AHEAD + b);
        add_block(f, H, R, block, &w, odd, part);
        block += block_bytes(f);
    }
    UNROLL for (int r = 0; r < R; r++) UNROLL for (int i = 0; i < bands_of(f); i++)
    {
        float *out = y + (r * bands_of(f) + i) * LANES;
        __m512 sum = part[i][r];
        _mm512_store_ps(out, from > 0 ? _mm512_add_ps(_mm512_load_ps(out), sum) : sum);
    }
}

/* All tiles [first, last) times one panel of height H, of which n_rows rows are real: part by part, so
 * that weights and activations of a part stay in the first-level cache while all rows pass. The sums
 * of a tile have a place of their own, since rows of y tend to lie a multiple of a page apart, where
 * they would push each other out of that cache. */
INLINE void multiply_panel(const struct packing f, const int H, const int R, float *y,
                           size_t y_stride, size_t n_rows, const struct ob_tensor *weights,
                           const uint8_t *packed, struct walk w, size_t first, size_t last)
{
    size_t n_cols = weights->n_cols, n_units = (n_cols + OB_UNIT_COLUMNS - 1) / OB_UNIT_COLUMNS;
    size_t tile_bytes = n_cols / (size_t)f.block * block_bytes(f);
    size_t tile_rows = (size_t)(bands_of(f) * LANES);
    _Alignas(64) float sums[OB_PANEL_ROWS * MOST_BANDS * LANES];
    for (size_t tile = first; tile < last; tile++) {
        size_t from = 0, n_out = weights->n_rows - tile * tile_rows;
        for (size_t p = 0; p < OB_K_PARTS; p++) {
            size_t end = ob_part_end(p, n_units) * OB_UNIT_COLUMNS,
                   to = end < n_cols ? end : n_cols;
            if (from >= to)
                continue;
            for (size_t r = 0; r < n_rows; r += (size_t)R) {
                struct walk rows = {w.codes + r * STEP, w.scales + r, w.sums + r};
                multiply_part(f, H, R, sums + r * tile_rows, packed + tile * tile_bytes, rows, from,
                              to);
            }
            from = to;
        }
        n_out = n_out < tile_rows ? n_out : tile_rows;
        for (size_t r = 0; r < n_rows; r++)
            memcpy(y + r * y_stride + tile * tile_rows, sums + r * tile_rows, n_out * sizeof *y);
    }
}

/* How many rows of H pass over a tile together, by its bands: 16 sums are fastest; beside 24 there is
 * hardly a register for the rows. */
#define ROWS_AT_ONCE(f, H, OF_8, OF_4, OF_2)                                                       \
    (bands_of(f) == 8 ? (OF_8) : bands_of(f) == 4 ? (OF_4) : bands_of(f) == 2 ? (OF_2) : (H))

/* Weights that stay in the second-level cache while all panels pass over them. */
enum { CACHED_BYTES = 640 << 10 };

INLINE void multiply_format(const struct packing f, float *y, size_t y_stride,
                            const struct ob_codes *x, const struct ob_tensor *weights,
                            const void *packed, size_t first, size_t last)
{
    size_t n_cols = x->n_cols, tile_bytes = n_cols / (size_t)f.block * block_bytes(f);
    size_t at_once = CACHED_BYTES / tile_bytes > 0 ? CACHED_BYTES / tile_bytes : 1;
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
#define CASE(H, ...)                                                                               \
    case H:                                                                                        \
        multiply_panel(f, H, ROWS_AT_ONCE(f, H, __VA_ARGS__), out, y_stride, n_rows, weights,      \
                       packed, w, tile, stop);                                                     \
        break;
                CASE(1, 1, 1, 1)
                CASE(2, 2, 2, 2)
                CASE(3, 3, 3, 3)
                CASE(4, 2, 4, 4)
                CASE(6, 2, 3, 6)
                CASE(8, 2, 4, 8)
                CASE(12, 2, 4, 6)
#undef CASE
            }
        }
    }
}

/* ------------------------------------------------------------------------------------ packing */

/* One block of 16 rows r of every band: rows[band * LANES + r] are its file blocks. */
INLINE void pack_block(const struct packing f, uint8_t *block, const uint8_t *const rows[])
{
    memset(block, 0, code_bytes(f));
    for (int row = 0; row < bands_of(f) * LANES; row++) {
        int8_t codes[OB_UNIT_COLUMNS];
        float scale;
        ob_format_get(f.id)->integers(codes, &scale, rows[row], (size_t)f.block);
        for (int k = 0; k < f.block; k++)
            codes[k] = (int8_t)(codes[k] + (1 << f.log_zero));
        uint8_t *at = block + row % LANES * STEP;
        for (int k = 0; k < f.block; k += STEP, at += STEP_BYTES) {
            uint32_t four, there;
            memcpy(&four, codes + k, sizeof four);
            memcpy(&there, at, sizeof there);
            there |= four << f.bits * (row / LANES); /* codes have `bits` bits: none crosses over */
            memcpy(at, &there, sizeof there);
        }
        memcpy(block + code_bytes(f) + 2 * row, rows[row], 2); /* all formats: scale comes first */
    }
}

/* Q1_0's own way: 64 columns of a row are a mask that spreads its bits over 64 bytes. */
static void pack_q1_block(uint8_t *block, const uint8_t *const rows[])
{
    for (int half = 0; half < 2; half++, block += code_bytes(Q1) / 2) {
        uint32_t four[LANES][LANES]; /* [row][step] */
        for (int r = 0; r < LANES; r++) {
            __m512i bytes = _mm512_setzero_si512();
            UNROLL for (int i = 0; i < MOST_BANDS; i++)
            {
                uint64_t bits;
                memcpy(&bits, rows[i * LANES + r] + 2 + 8 * half, sizeof bits);
                bytes = _mm512_or_si512(
                    bytes, _mm512_maskz_mov_epi8(bits, _mm512_set1_epi8((char)(1 << i))));
            }
            _mm512_storeu_si512(four[r], bytes);
        }
        for (int s = 0; s < LANES; s++)
            for (int r = 0; r < LANES; r++)
                memcpy(block + s * STEP_BYTES + r * STEP, &four[r][s], STEP);
    }
    for (int row = 0; row < MOST_BANDS * LANES; row++)
        memcpy(block + 2 * row, rows[row], 2);
}

INLINE void pack_format(const struct packing f, uint8_t *packed, const struct ob_tensor *w,
                        size_t first, size_t last)
{
    static const uint8_t zeros[34] = {0}; /* rows past the matrix: scale 0 */
    size_t file_bytes = (size_t)w->format->group_bytes, tile_rows = (size_t)(bands_of(f) * LANES);
    size_t n_blocks = w->n_cols / (size_t)f.block, bytes = block_bytes(f);
    for (size_t tile = first; tile < last; tile++)
        for (size_t b = 0; b < n_blocks; b++) {
            uint8_t *block = packed + (tile * n_blocks + b) * bytes;
            const uint8_t *rows[MOST_BANDS * LANES];
            for (size_t r = 0; r < tile_rows; r++) {
                size_t row = tile * tile_rows + r;
                rows[r] = row < w->n_rows ? (const uint8_t *)ob_tensor_row(w, row) + b * file_bytes
                                          : zeros;
            }
            if (f.bits == 1)
                pack_q1_block(block, rows);
            else
                pack_block(f, block, rows);
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
#define INSTALL(name, packing_of)                                                                  \
    table->products[packing_of.id] = (struct ob_product){                                          \
        (size_t)(bands_of(packing_of) * LANES), tile_bytes_##name, pack_##name, multiply_##name}
    INSTALL(q1, Q1);
    INSTALL(q2_64, Q2_64);
    INSTALL(q2_128, Q2_128);
    INSTALL(q4, Q4);
    INSTALL(q8, Q8);
#undef INSTALL
}
