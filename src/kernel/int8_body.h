/* Int8 products for instruction sets with vectors of 16 or 32 bytes, written once: packing, order of
 * the sums and the walk over tiles, rows and caches. The including file brings the vectors. Private to
 * src/kernel; everything is static.
 *
 * It defines, before it includes this file:
 *
 *   f32x16                     16 floats
 *   f_zero() f_load(p) f_store(p, v) f_add(a, b) f_mul(a, b) f_scale(v, float) f_halves(p)
 *                              what they say, each number rounded on its own; f_halves: 16 f16
 *   codes16                    the codes of a step: 16 rows of 4 columns, as packed (see below)
 *   c_load(p) c_part(v, bits, i)
 *                              64 bytes; part i of `bits` bits of each of them, unsigned
 *   sum16, s_zero()            16 sums that one or two groups of columns cannot overflow
 *   s_add(s, zero, codes, x)   s + dot products of each row's 4 codes with the 4 at x. Codes are
 *                              signed bytes where zero is 0, else 0 to 2 zero
 *   s_floats(s, zero, add)     (float)(sum + add)
 *   make_tables, add_sums      see "Q1_0" below
 *
 * Tiles of the formats but Q1_0 are 16 weight rows. For each block of columns (128 for Q2_0 of 128,
 * 64 for Q2_0, 32 for Q8_0 and Q4_0) come the codes, then 16 f16 scales. A step is 4 columns; byte
 * 4 r + j of its 64 is row r, column j:
 *   Q2_0   4 steps share 64 bytes, step s in bits 2 s of each: weight code + 1
 *   Q4_0   2 steps share 64 bytes, the even one in the low halves: weight code + 8
 *   Q8_0   a step is 64 bytes of signed codes */
#include <string.h>

#include "base/half.h"
#include "kernel/kernel.h"

enum { TILE = 16, STEP = 4, SCALE_BYTES = 2 * TILE };

/* Rows of activations that pass over a tile together, and weights that stay in the second-level
 * cache while all rows do. */
enum { ROWS = 4, CACHED_BYTES = 192 << 10, FETCH_AHEAD = 5760 };

struct packing {
    enum ob_format_id id;
    int block; /* columns of a packed block = columns of a weight scale */
    int bits;  /* of a code */
    int zero;  /* packed code - weight code */
};

static const struct packing Q2_64 = {OB_FORMAT_Q2_0_G64, 64, 2, 1};
static const struct packing Q2_128 = {OB_FORMAT_Q2_0_G128, 128, 2, 1};
static const struct packing Q4 = {OB_FORMAT_Q4_0, 32, 4, 8};
static const struct packing Q8 = {OB_FORMAT_Q8_0, 32, 8, 0};

INLINE size_t block_bytes(const struct packing f)
{
    return (size_t)(f.block * TILE * f.bits / 8 + SCALE_BYTES);
}

/* Some rows of one panel of activations, as the inner loops walk them. */
struct walk {
    const int8_t *codes; /* 4 of a row, then the next row's, `height` rows apart */
    const float *scales;
    const int32_t *sums;
    size_t height, n_rows;
};

/* Rows from r on, `most` of them unless panel or matrix end before. */
static struct walk walk_at(const struct ob_codes *x, size_t r, size_t most)
{
    struct ob_panel p = ob_panel_of(x, r);
    size_t end = p.first + OB_PANEL_ROWS, n_rows;
    n_rows = (end < x->n_rows ? end : x->n_rows) - r;
    return (struct walk){x->codes + p.first * x->n_cols + p.at * 4,
                         x->scales + p.first * (x->n_cols / OB_ACT_GROUP) + p.at,
                         x->sums + p.first * (x->n_cols / OB_SUM_GROUP) + p.at, p.height,
                         n_rows < most ? n_rows : most};
}

/* Ask for what lies FETCH_AHEAD bytes behind the block that is about to be read, which is mostly the
 * next block but a few, sometimes the next tile. Without it decoding runs at half of the memory's
 * speed: the hardware's own prefetching stops at every page. */
INLINE void fetch(const uint8_t *block, size_t bytes)
{
    for (size_t i = 0; i < bytes; i += 64)
        __builtin_prefetch(block + FETCH_AHEAD + i);
}

/* y (+)= 16 floats, of which the first n_out are there. */
INLINE void put(float *y, f32x16 v, size_t n_out, bool started)
{
    if (n_out >= TILE) {
        f_store(y, started ? f_add(f_load(y), v) : v);
        return;
    }
    float out[TILE];
    f_store(out, v);
    for (size_t i = 0; i < n_out; i++)
        y[i] = started ? y[i] + out[i] : out[i];
}

/* ---------------------------------------------------------------------- Q2_0, Q4_0 and Q8_0 */

/* t (+)= (float)isum * activation scale for `columns` columns from column `from` of the block on. */
INLINE void add_group(const struct packing f, const int H, int from, int columns,
                      const uint8_t *block, const struct walk *w, bool first, f32x16 t[ROWS])
{
    const int in_one = 8 / f.bits; /* steps that share 64 bytes */
    sum16 sum[ROWS];
    UNROLL for (int r = 0; r < H; r++) sum[r] = s_zero();
    for (int s = 0; s < columns / STEP; s += in_one) {
        codes16 codes = c_load(block + (from / STEP + s) / in_one * 64);
        UNROLL for (int i = 0; i < in_one; i++)
        {
            const int8_t *x = w->codes + (size_t)(s + i) * w->height * STEP;
            codes16 part = f.bits < 8 ? c_part(codes, f.bits, i) : codes;
            UNROLL for (int r = 0; r < H; r++) sum[r] = s_add(sum[r], f.zero, part, x + r * STEP);
        }
    }
    UNROLL for (int r = 0; r < H; r++)
    {
        int32_t total = 0;
        if (f.zero)
            total = w->sums[r] + (columns == OB_ACT_GROUP ? w->sums[w->height + (size_t)r] : 0);
        f32x16 term = f_scale(s_floats(sum[r], f.zero, -f.zero * total), w->scales[r]);
        t[r] = first ? term : f_add(t[r], term);
    }
}

/* part += one packed block's terms. Moves the walk on by the block's columns; `odd` says that a
 * 32-column block is the second of its activation group. */
INLINE void add_block(const struct packing f, const int H, const uint8_t *block, struct walk *w,
                      bool odd, f32x16 part[ROWS])
{
    f32x16 t[ROWS];
    const int shared = f.block < OB_ACT_GROUP ? f.block : OB_ACT_GROUP;
    UNROLL for (int from = 0; from < f.block; from += shared)
    {
        add_group(f, H, from, shared, block, w, from == 0, t);
        w->codes += (size_t)shared * w->height;
        w->sums += (size_t)shared / OB_SUM_GROUP * w->height;
        if (shared == OB_ACT_GROUP || odd)
            w->scales += w->height;
    }
    f32x16 scales = f_halves(block + block_bytes(f) - SCALE_BYTES);
    UNROLL for (int r = 0; r < H; r++) part[r] = f_add(part[r], f_mul(t[r], scales));
}

/* One tile times H rows: y of its first n_out outputs. */
INLINE void multiply_tile(const struct packing f, const int H, float *y, size_t y_stride,
                          size_t n_out, const uint8_t *block, struct walk w, size_t n_cols)
{
    size_t n_units = (n_cols + OB_UNIT_COLUMNS - 1) / OB_UNIT_COLUMNS, k = 0;
    bool started = false, odd = false;
    for (size_t p = 0; p < OB_K_PARTS; p++) {
        size_t end = ob_part_end(p, n_units) * OB_UNIT_COLUMNS;
        end = end < n_cols ? end : n_cols;
        if (k >= end)
            continue;
        f32x16 part[ROWS];
        UNROLL for (int r = 0; r < H; r++) part[r] = f_zero();
        for (; k < end; k += (size_t)f.block, odd = !odd) {
            if (H == 1)
                fetch(block, block_bytes(f));
            add_block(f, H, block, &w, odd, part);
            block += block_bytes(f);
        }
        UNROLL for (int r = 0; r < H; r++) put(y + (size_t)r * y_stride, part[r], n_out, started);
        started = true;
    }
}

INLINE void multiply_format(const struct packing f, float *y, size_t y_stride,
                            const struct ob_codes *x, const struct ob_tensor *weights,
                            const uint8_t *packed, size_t first, size_t last)
{
    size_t n_cols = x->n_cols, tile_bytes = n_cols / (size_t)f.block * block_bytes(f);
    size_t at_once = x->n_rows <= ROWS ? last - first : CACHED_BYTES / tile_bytes;
    at_once = at_once ? at_once : 1;
    for (size_t from = first; from < last; from += at_once) {
        size_t stop = from + at_once < last ? from + at_once : last;
        struct walk w;
        for (size_t r = 0; r < x->n_rows; r += w.n_rows) {
            w = walk_at(x, r, ROWS);
            for (size_t tile = from; tile < stop; tile++) {
                float *out = y + r * y_stride + tile * TILE;
                size_t n_out = weights->n_rows - tile * TILE;
                const uint8_t *at = packed + tile * tile_bytes;
                switch (w.n_rows) {
#define CASE(H)                                                                                    \
    case H:                                                                                        \
        multiply_tile(f, H, out, y_stride, n_out, at, w, n_cols);                                  \
        break;
                    CASE(1)
                    CASE(2)
                    CASE(3)
                    CASE(4)
#undef CASE
                }
            }
        }
    }
}

INLINE void pack_format(const struct packing f, uint8_t *packed, const struct ob_tensor *w,
                        size_t first, size_t last)
{
    const int in_one = 8 / f.bits;
    size_t file_bytes = (size_t)w->format->group_bytes, bytes = block_bytes(f);
    size_t n_blocks = w->n_cols / (size_t)f.block;
    for (size_t i = first * n_blocks; i < last * n_blocks; i++) {
        uint8_t *block = packed + i * bytes;
        memset(block, 0, bytes); /* rows past the matrix: codes and scale 0 */
        for (size_t r = 0; r < TILE && i / n_blocks * TILE + r < w->n_rows; r++) {
            const uint8_t *file = ob_tensor_row(w, i / n_blocks * TILE + r);
            file += i % n_blocks * file_bytes;
            int8_t codes[OB_UNIT_COLUMNS];
            float scale;
            w->format->integers(codes, &scale, file, (size_t)f.block);
            for (int k = 0; k < f.block; k++) {
                int s = k / STEP, shift = s % in_one * f.bits;
                unsigned code = (uint8_t)(codes[k] + f.zero);
                block[s / in_one * 64 + 4 * (int)r + k % STEP] |= (uint8_t)(code << shift);
            }
            /* All formats here start with their f16 scale. */
            memcpy(block + bytes - SCALE_BYTES + 2 * r, file, 2);
        }
    }
}

/* ------------------------------------------------------------------------------------- Q1_0
 *
 * Weights are +1 and -1, so 4 columns of a row can only give one of 16 sums, and all weight rows
 * choose from the same 16: the 4 bits of a row are an index into a table that is made once per row
 * of activations (Arlazarov, Dinic, Kronrod and Faradzhev, 1970: the method of four Russians). One
 * byte shuffle looks up 16 or 32 weight rows. A sum s of 4 codes of -127 .. 127 is kept as two bytes,
 * s & 31 and s >> 5 in -16 .. 15, since 8 of either fit a byte: 8 steps are added up byte by byte
 * before anything is widened.
 *
 * A tile is 64 weight rows in two halves. For each block of 128 columns come the 32 steps of 4 columns
 * of the first half, those of the second, then 64 f16 scales. A step is 16 bytes; byte r has the bits
 * of the half's row r in its low four, of row 16 + r in its high four, bit j for column j, set for +1.
 * As many bytes as in the file.
 *
 * A table is made for steps 2 i and 2 i + 1 together and takes TABLE_BYTES. make_tables makes
 * `n_pairs` of them from codes whose steps are 4 `height` bytes apart. add_sums gives the sums of 64
 * columns, of which `steps` and `tables` are the first: sums[2 t] is rows 0 .. 15 of half t, sums[2 t
 * + 1] its rows 16 .. 31; the two halves' steps are HALF_BYTES apart. */

enum {
    PIECES = 4, /* 16 rows each, of a tile */
    Q1_TILE = PIECES * TILE,
    HALF_BYTES = 32 * TILE, /* of a block's steps */
    Q1_BLOCK = 2 * HALF_BYTES + PIECES * SCALE_BYTES,
    TABLE_BYTES = 64,
    UNIT_TABLES = OB_UNIT_COLUMNS / 8 * TABLE_BYTES,
    TABLES = 48 << 10, /* bytes of a call's tables: on its stack, in the first-level cache */
};

static void make_tables(uint8_t *tables, const int8_t *codes, size_t height, size_t n_pairs);
INLINE void add_sums(f32x16 sums[PIECES], const uint8_t *steps, const uint8_t *tables);

/* part += the terms of n_units units of a tile with one row of activations. */
static void add_units(float part[Q1_TILE], const uint8_t *block, const uint8_t *tables,
                      const float *scales, size_t height, size_t n_units)
{
    f32x16 total[PIECES], t[PIECES], sums[PIECES];
    UNROLL for (int i = 0; i < PIECES; i++) total[i] = f_load(part + i * TILE);
    for (size_t u = 0; u < n_units; u++) {
        fetch(block, Q1_BLOCK);
        add_sums(t, block, tables);
        UNROLL for (int i = 0; i < PIECES; i++) t[i] = f_scale(t[i], scales[0]);
        add_sums(sums, block + HALF_BYTES / 2, tables + UNIT_TABLES / 2);
        UNROLL for (int i = 0; i < PIECES; i++)
        {
            t[i] = f_add(t[i], f_scale(sums[i], scales[height]));
            f32x16 scale = f_halves(block + 2 * HALF_BYTES + i * SCALE_BYTES);
            total[i] = f_add(total[i], f_mul(t[i], scale));
        }
        block += Q1_BLOCK;
        tables += UNIT_TABLES;
        scales += 2 * height;
    }
    UNROLL for (int i = 0; i < PIECES; i++) f_store(part + i * TILE, total[i]);
}

/* y (+)= the parts of the tile's outputs, n_out of them. */
static void put_part(float *y, const float part[Q1_TILE], size_t n_out, bool started)
{
    for (size_t i = 0; i < Q1_TILE && i < n_out; i += TILE)
        put(y + i, f_load(part + i), n_out - i, started);
}

/* One tile, at `block` and with outputs from y on, times one row. Parts `from` to `to` of K; the
 * tables of the first one's first unit stand at `tables`. */
static void add_parts(float *y, size_t n_out, const uint8_t *block, const uint8_t *tables,
                      const struct walk *w, size_t n_units, size_t from, size_t to)
{
    size_t begin = from ? ob_part_end(from - 1, n_units) : 0, unit = begin;
    for (size_t i = from; i < to; i++) {
        size_t end = ob_part_end(i, n_units);
        if (unit == end)
            continue;
        float part[Q1_TILE] = {0};
        add_units(part, block + unit * Q1_BLOCK, tables + (unit - begin) * UNIT_TABLES,
                  w->scales + 2 * unit * w->height, w->height, end - unit);
        put_part(y, part, n_out, unit > 0);
        unit = end;
    }
}

/* One tile times one row that is so long that not even a part's tables fit: they are made again for
 * every tile. The order of the sums is the same. */
static void add_long_parts(float *y, size_t n_out, const uint8_t *block, uint8_t *tables,
                           const struct walk *w, size_t n_units)
{
    for (size_t i = 0, unit = 0; i < OB_K_PARTS; i++) {
        size_t start = unit, end = ob_part_end(i, n_units), n;
        float part[Q1_TILE] = {0};
        for (; unit < end; unit += n) {
            n = end - unit < TABLES / UNIT_TABLES ? end - unit : TABLES / UNIT_TABLES;
            make_tables(tables, w->codes + unit * OB_UNIT_COLUMNS * w->height, w->height,
                        n * (UNIT_TABLES / TABLE_BYTES));
            add_units(part, block + unit * Q1_BLOCK, tables, w->scales + 2 * unit * w->height,
                      w->height, n);
        }
        put_part(y, part, n_out, start > 0);
    }
}

/* The end of the parts from `part` on whose tables fit together; at least one. */
static size_t parts_that_fit(size_t part, size_t n_units)
{
    size_t begin = part ? ob_part_end(part - 1, n_units) : 0, last = part + 1;
    while (last < OB_K_PARTS && (ob_part_end(last, n_units) - begin) * UNIT_TABLES <= TABLES)
        last++;
    return last;
}

/* Slices of K outermost, so that a row's tables serve many tiles; within a slice, weights that fit
 * the second-level cache, and all rows over them. */
static void multiply_q1(float *y, size_t y_stride, const struct ob_codes *x,
                        const struct ob_tensor *weights, const void *packed, size_t first,
                        size_t last)
{
    _Alignas(64) uint8_t tables[TABLES];
    size_t n_units = x->n_cols / OB_UNIT_COLUMNS, tile_bytes = n_units * Q1_BLOCK, to;
    bool is_long = (n_units + OB_K_PARTS - 1) / OB_K_PARTS * UNIT_TABLES > TABLES;
    for (size_t part = 0; part < OB_K_PARTS; part = to) {
        to = is_long ? OB_K_PARTS : parts_that_fit(part, n_units);
        size_t unit = part ? ob_part_end(part - 1, n_units) : 0;
        size_t units = ob_part_end(to - 1, n_units) - unit;
        size_t at_once = x->n_rows == 1 ? last - first : CACHED_BYTES / (units * Q1_BLOCK + 1) + 1;
        for (size_t from = first; from < last && units > 0; from += at_once) {
            size_t stop = from + at_once < last ? from + at_once : last;
            for (size_t r = 0; r < x->n_rows; r++) {
                struct walk w = walk_at(x, r, 1);
                if (!is_long)
                    make_tables(tables, w.codes + unit * OB_UNIT_COLUMNS * w.height, w.height,
                                units * (UNIT_TABLES / TABLE_BYTES));
                for (size_t tile = from; tile < stop; tile++) {
                    float *out = y + r * y_stride + tile * Q1_TILE;
                    size_t n_out = weights->n_rows - tile * Q1_TILE;
                    const uint8_t *block = (const uint8_t *)packed + tile * tile_bytes;
                    if (is_long)
                        add_long_parts(out, n_out, block, tables, &w, n_units);
                    else
                        add_parts(out, n_out, block, tables, &w, n_units, part, to);
                }
            }
        }
    }
}

static size_t tile_bytes_q1(size_t n_cols)
{
    return n_cols / OB_UNIT_COLUMNS * Q1_BLOCK;
}

static void pack_q1(void *packed, const struct ob_tensor *w, size_t first, size_t last)
{
    size_t n_blocks = w->n_cols / OB_UNIT_COLUMNS, file_bytes = (size_t)w->format->group_bytes;
    for (size_t i = first * n_blocks; i < last * n_blocks; i++) {
        uint8_t *block = (uint8_t *)packed + i * Q1_BLOCK;
        memset(block, 0, Q1_BLOCK); /* rows past the matrix: scale 0 */
        for (size_t r = 0; r < Q1_TILE && i / n_blocks * Q1_TILE + r < w->n_rows; r++) {
            const uint8_t *file = ob_tensor_row(w, i / n_blocks * Q1_TILE + r);
            file += i % n_blocks * file_bytes;
            uint8_t *at = block + r / (2 * TILE) * HALF_BYTES + r % TILE;
            int shift = r / TILE % 2 * 4;
            for (size_t s = 0; s < OB_UNIT_COLUMNS / STEP; s++)
                at[s * TILE] |= (uint8_t)((file[2 + s / 2] >> 4 * (s % 2) & 15) << shift);
            memcpy(block + 2 * HALF_BYTES + 2 * r, file, 2);
        }
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

FORMAT(q2_64, Q2_64)
FORMAT(q2_128, Q2_128)
FORMAT(q4, Q4)
FORMAT(q8, Q8)
#undef FORMAT

static void install_int8(struct ob_kernels *table)
{
    table->products[OB_FORMAT_Q1_0] =
        (struct ob_product){Q1_TILE, tile_bytes_q1, pack_q1, multiply_q1};
    table->products[OB_FORMAT_Q2_0_G64] =
        (struct ob_product){TILE, tile_bytes_q2_64, pack_q2_64, multiply_q2_64};
    table->products[OB_FORMAT_Q2_0_G128] =
        (struct ob_product){TILE, tile_bytes_q2_128, pack_q2_128, multiply_q2_128};
    table->products[OB_FORMAT_Q4_0] =
        (struct ob_product){TILE, tile_bytes_q4, pack_q4, multiply_q4};
    table->products[OB_FORMAT_Q8_0] =
        (struct ob_product){TILE, tile_bytes_q8, pack_q8, multiply_q8};
}
