/* Cases of check_kernels: products of packed weights with int8 activations, for every format. */
#include <math.h>
#include <string.h>

#include "base/half.h"
#include "check_kernels.h"

/* What weights and activations are made of. */
enum fill {
    RANDOM,
    ALL_PLUS,   /* the largest code of every weight: +1 in Q1_0, 2 in Q2_0, 7, -1 */
    ALL_MINUS,  /* the smallest code: -1, -1, -8, 0 */
    LOWEST,     /* -128 in Q8_0 */
    ONE_HOT,    /* one bit in a block */
    SATURATED,  /* every activation 127 or -127 with the sign that adds up */
    ZERO,       /* activations 0 with scale 0 */
    DENORMAL,   /* scales of both sides too small for normal floats */
    NOT_FINITE, /* some scales of both sides infinite or NaN */
    N_FILLS
};
static const char *const fill_names[N_FILLS] = {
    "random", "plus", "minus", "lowest", "one-hot", "saturated", "zero", "denormal", "not-finite"};

static uint16_t weight_scale(struct rng *rng, enum fill fill)
{
    uint16_t random = (uint16_t)rng_next(rng);
    if (fill == DENORMAL)
        return random & 0x83ff;
    if (fill == NOT_FINITE && rng_below(rng, 3) == 0)
        return random | 0x7c00;
    return (uint16_t)((random & 0x8fff) | 0x2000); /* about 1/64, of both signs */
}

/* Blocks as in a file. All formats here start with their scale. */
static void fill_blocks(struct ck *c, unsigned char *blocks, const struct ob_format *f, size_t n)
{
    static const int bytes_of[N_FILLS] = {[ALL_PLUS] = 0xff, [LOWEST] = 0x80, [SATURATED] = 0xff};
    enum fill fill = (enum fill)ck_params(c)->variant;
    size_t code_bytes = (size_t)f->group_bytes - 2;
    for (size_t i = 0; i < n; i++, blocks += f->group_bytes) {
        uint16_t scale = weight_scale(ck_rng(c), fill);
        ob_store_u16(blocks, scale);
        memset(blocks + 2, bytes_of[fill], code_bytes);
        if (fill == ONE_HOT)
            blocks[2 + rng_below(ck_rng(c), code_bytes)] =
                (unsigned char)(1u << rng_below(ck_rng(c), 8));
        else if (bytes_of[fill] == 0 && fill != ALL_MINUS)
            for (size_t j = 0; j < code_bytes; j++)
                blocks[2 + j] = (unsigned char)rng_next(ck_rng(c));
    }
}

static float activation_scale(struct rng *rng, enum fill fill)
{
    if (fill == ZERO)
        return 0.0f;
    if (fill == DENORMAL)
        return 1e-41f * (float)(1 + rng_below(rng, 9));
    if (fill == NOT_FINITE && rng_below(rng, 4) == 0)
        return rng_below(rng, 2) ? INFINITY : NAN;
    return 0.01f + 0.001f * fabsf(rng_float(rng));
}

static int8_t activation_code(struct rng *rng, enum fill fill, size_t row)
{
    if (fill == ZERO)
        return 0;
    if (fill == SATURATED || fill == LOWEST)
        return row % 3 == 0 ? 127 : row % 3 == 1 ? -127 : rng_below(rng, 2) ? 127 : -127;
    return (int8_t)((int)rng_below(rng, 255) - 127);
}

/* Activations in planes of their own, so that each ends at an inaccessible page. Rows that only
 * round a panel up get codes too, and NaN for a scale: nothing may come of them. */
static struct ob_codes fill_codes(struct ck *c)
{
    const struct ck_params *p = ck_params(c);
    enum fill fill = (enum fill)p->variant;
    struct ob_codes x = {.n_rows = p->n_rows, .n_cols = p->n};
    struct ob_panel last = ob_panel_of(&x, p->n_rows - 1);
    size_t stored = last.first + last.height;
    x.codes = ck_take(c, stored * p->n);
    x.scales = ck_take(c, stored * (p->n / OB_ACT_GROUP) * sizeof *x.scales);
    x.sums = ck_take(c, stored * (p->n / OB_SUM_GROUP) * sizeof *x.sums);
    memset(x.sums, 0, stored * (p->n / OB_SUM_GROUP) * sizeof *x.sums);
    for (size_t first = 0; first < stored; first += OB_PANEL_ROWS) {
        struct ob_panel panel = ob_panel_of(&x, first);
        int8_t *codes = x.codes + first * p->n;
        float *scales = x.scales + first * (p->n / OB_ACT_GROUP);
        int32_t *sums = x.sums + first * (p->n / OB_SUM_GROUP);
        for (size_t k = 0; k < p->n; k++)
            for (size_t r = 0; r < panel.height; r++) {
                int8_t code = activation_code(ck_rng(c), fill, r);
                codes[k / 4 * 4 * panel.height + r * 4 + k % 4] = code;
                sums[k / OB_SUM_GROUP * panel.height + r] += code;
            }
        for (size_t i = 0; i < p->n / OB_ACT_GROUP; i++)
            for (size_t r = 0; r < panel.height; r++)
                scales[i * panel.height + r] =
                    first + r < p->n_rows ? activation_scale(ck_rng(c), fill) : NAN;
    }
    return x;
}

/* Weights of a case, packed for the level that runs. */
struct weights {
    struct ob_tensor w;
    const struct ob_product *product;
    void *packed;
    size_t n_tiles;
};

static struct weights make_weights(struct ck *c)
{
    const struct ck_params *p = ck_params(c);
    size_t bytes = p->n_out * ob_format_row_bytes(p->format, p->n);
    void *blocks = ck_take(c, bytes);
    fill_blocks(c, blocks, p->format, p->n_out * p->n / (size_t)p->format->group);
    struct weights m = {{{"w", 1}, p->format, p->n_out, p->n, blocks, bytes},
                        &ck_kernels(c)->products[p->format->id],
                        NULL,
                        0};
    m.n_tiles = (p->n_out + m.product->tile_rows - 1) / m.product->tile_rows;
    if (m.product->tile_bytes) {
        m.packed = ck_take_private(c, m.n_tiles * m.product->tile_bytes(p->n));
        size_t half = m.n_tiles / 2;
        m.product->pack(m.packed, &m.w, 0, half);
        m.product->pack(m.packed, &m.w, half, m.n_tiles);
    }
    return m;
}

static void multiply(struct ck *c)
{
    const struct ck_params *p = ck_params(c);
    size_t stride = p->n_out + p->gap;
    float *y = ck_take(c, ((p->n_rows - 1) * stride + p->n_out) * sizeof *y);
    struct ob_codes x = fill_codes(c);
    struct weights m = make_weights(c);
    CK_RUN(c, m.product->multiply(y, stride, &x, &m.w, m.packed, 0, m.n_tiles));
}

/* The tiles in several calls: each writes its own outputs and no others. */
static void multiply_ranges(struct ck *c)
{
    const struct ck_params *p = ck_params(c);
    size_t stride = p->n_out + p->gap, tile = 0, width;
    float *y = ck_take(c, ((p->n_rows - 1) * stride + p->n_out) * sizeof *y);
    struct ob_codes x = fill_codes(c);
    struct weights m = make_weights(c);
    uint32_t untouched;
    memset(&untouched, CK_FILL, sizeof untouched);
    for (width = 1; tile < m.n_tiles; width++) {
        size_t stop = tile + width < m.n_tiles ? tile + width : m.n_tiles;
        m.product->multiply(y, stride, &x, &m.w, m.packed, tile, stop);
        tile = stop;
        for (size_t r = 0; r < p->n_rows; r++)
            for (size_t o = tile * m.product->tile_rows; o < p->n_out; o++)
                if (ob_float_bits(y[r * stride + o]) != untouched)
                    ck_fail(c, "row %zu, output %zu is not of tiles before %zu", r, o, tile);
    }
}

/* ---------------------------------------------------------------------------------- the cases */

static void product_case(struct ck *c, ck_function *function, const char *group,
                         const struct ob_format *format, struct ck_params p)
{
    size_t step = (size_t)format->group > OB_ACT_GROUP ? (size_t)format->group : OB_ACT_GROUP;
    p.n = (p.n + step - 1) / step * step;
    p.format = format;
    p.weight_bytes = p.n_out * ob_format_row_bytes(format, p.n);
    p.n_products = p.n_out * p.n * p.n_rows;
    ck_case(c, function, p, "int8/%s/%s/k%zu-out%zu-rows%zu-%s", format->name, group, p.n, p.n_out,
            p.n_rows, fill_names[p.variant]);
}

/* Every remainder of tiles of up to 32 rows, and of 4 such tiles at once. */
static void tile_cases(struct ck *c, const struct ob_format *f)
{
    for (size_t out = 1; out <= 132; out += out < 68 ? 1 : 31)
        for (size_t rows = 1; rows <= 3; rows++)
            product_case(c, multiply, "tiles", f,
                         (struct ck_params){.n = 64 * rows, .n_out = out, .n_rows = rows});
}

static void shape_cases(struct ck *c, const struct ob_format *f)
{
    static const size_t widths[] = {64, 128, 192, 256, 640, 1088, 2560, 5120, 17408, 66560};
    for (size_t rows = 1; rows <= 25; rows++)
        product_case(c, multiply, "heights", f,
                     (struct ck_params){.n = 384, .n_out = 37, .n_rows = rows, .gap = rows % 3});
    for (size_t i = 0; i < sizeof widths / sizeof *widths; i++)
        for (size_t rows = 1; rows <= 12; rows += rows == 3 ? 9 : 1)
            product_case(c, multiply, "widths", f,
                         (struct ck_params){.n = widths[i], .n_out = 67, .n_rows = rows});
    for (size_t out = 31; out <= 600; out = out * 2 + 3)
        product_case(c, multiply_ranges, "ranges", f,
                     (struct ck_params){.n = 320, .n_out = out, .n_rows = out % 17, .gap = 5});
    /* More rows than a panel and more weights than a cache holds. */
    product_case(c, multiply, "blocked", f,
                 (struct ck_params){.n = 17408, .n_out = ck_is_quick(c) ? 40 : 150, .n_rows = 25});
    product_case(c, multiply, "blocked", f,
                 (struct ck_params){.n = 2560, .n_out = ck_is_quick(c) ? 60 : 1000, .n_rows = 14});
    product_case(
        c, multiply, "vocabulary", f,
        (struct ck_params){.n = 64, .n_out = ck_is_quick(c) ? 15169 : 151669, .n_rows = 1});
}

static void fill_cases(struct ck *c, const struct ob_format *f)
{
    for (int fill = 0; fill < N_FILLS; fill++)
        for (size_t rows = 1; rows <= 12; rows = rows * 2 + 1)
            for (size_t n = 128; n <= 5120; n = n * 6)
                product_case(
                    c, multiply, "fills", f,
                    (struct ck_params){.n = n, .n_out = 67, .n_rows = rows, .variant = fill});
}

/* What a model asks for: decode from memory, decode from the cache, prompts. */
static void bench_cases(struct ck *c, const struct ob_format *f)
{
    static const size_t heights[] = {1, 2, 3, 4, 6, 8, 12, 96};
    size_t from_memory = ((size_t)96 << 20) / ob_format_row_bytes(f, 2560);
    product_case(c, multiply, "memory", f,
                 (struct ck_params){.n = 2560, .n_out = from_memory, .n_rows = 1});
    product_case(c, multiply, "memory", f,
                 (struct ck_params){.n = 17408, .n_out = from_memory / 8, .n_rows = 1});
    for (size_t i = 0; i < sizeof heights / sizeof *heights; i++)
        product_case(c, multiply, "cache", f,
                     (struct ck_params){.n = 2560, .n_out = 1280, .n_rows = heights[i]});
    product_case(c, multiply, "cache", f,
                 (struct ck_params){.n = 17408, .n_out = 1280, .n_rows = 96});
}

void ck_int8_cases(struct ck *c)
{
    for (int i = 0; i < OB_N_FORMATS; i++) {
        const struct ob_format *f = ob_format_get((enum ob_format_id)i);
        if (!f->integers)
            continue;
        if (ck_is_bench(c)) {
            bench_cases(c, f);
            continue;
        }
        tile_cases(c, f);
        shape_cases(c, f);
        fill_cases(c, f);
    }
}
