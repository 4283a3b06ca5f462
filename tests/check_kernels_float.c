/* Cases of check_kernels: the float kernels. All are EXACT, so nothing but lengths, odd values and
 * aliasing can make a difference. */
#include <math.h>

#include "check_kernels.h"

#define K(c) ck_kernels(c)
#define P(c) ck_params(c)

static bool hard(const struct ck *c)
{
    return P(c)->variant & 1;
}

static void dot(struct ck *c)
{
    size_t n = P(c)->n;
    float *a = ck_floats(c, n, hard(c)), *b = ck_floats(c, n, false);
    float *y = ck_take(c, sizeof *y);
    CK_RUN(c, *y = K(c)->dot_f32(a, b, n));
}

/* Random blocks, but the scale of every one is a plain number. */
static void fill_weights(struct ck *c, void *blocks, const struct ob_format *f, size_t n)
{
    unsigned char *at = blocks;
    size_t n_blocks = n / (size_t)f->group, scale_bytes = f->integers ? 2 : (size_t)f->group_bytes;
    for (size_t i = 0; i < n_blocks; i++, at += f->group_bytes) {
        for (int j = 0; j < f->group_bytes; j++)
            at[j] = (unsigned char)rng_next(ck_rng(c));
        at[scale_bytes - 1] = (unsigned char)((at[scale_bytes - 1] & 0x83) | 0x38);
    }
}

static void matmul(struct ck *c)
{
    const struct ck_params *p = P(c);
    size_t row_bytes = ob_format_row_bytes(p->format, p->n);
    void *blocks = ck_take(c, p->n_out * row_bytes);
    fill_weights(c, blocks, p->format, p->n_out * p->n);
    struct ob_tensor w = {{"w", 1}, p->format, p->n_out, p->n, blocks, p->n_out * row_bytes};
    size_t x_stride = p->n + p->gap, y_stride = p->n_out + p->gap;
    float *x = ck_floats(c, (p->n_rows - 1) * x_stride + p->n, false);
    float *y = ck_take(c, ((p->n_rows - 1) * y_stride + p->n_out) * sizeof *y);
    float *scratch = ck_take_private(c, p->n * sizeof *scratch);
    size_t first = p->gap < p->n_out ? p->gap : 0; /* what lies before must stay */
    CK_RUN(c, K(c)->matmul_f32(y, y_stride, x, x_stride, p->n_rows, &w, first, p->n_out, scratch));
}

static void rmsnorm(struct ck *c)
{
    size_t n = P(c)->n;
    float *x = ck_floats(c, n, hard(c)), *w = ck_floats(c, n, false);
    float *y = P(c)->variant & 2 ? x : ck_take(c, n * sizeof *y);
    CK_RUN(c, K(c)->rmsnorm(y, x, w, n, 1e-6f));
}

static void l2norm(struct ck *c)
{
    size_t n = P(c)->n;
    float *x = ck_floats(c, n, hard(c));
    float *y = P(c)->variant & 2 ? x : ck_take(c, n * sizeof *y);
    CK_RUN(c, K(c)->l2norm(y, x, n, 1e-6f, 0.25f));
}

/* The three that take two vectors; variant / 4 says which of them is also the output. */
static float *out_of_two(struct ck *c, float *a, float *b)
{
    int alias = P(c)->variant / 4;
    return alias == 1 ? a : alias == 2 ? b : ck_take(c, P(c)->n * sizeof(float));
}

static void add(struct ck *c)
{
    size_t n = P(c)->n;
    float *a = ck_floats(c, n, hard(c)), *b = ck_floats(c, n, hard(c)), *y = out_of_two(c, a, b);
    CK_RUN(c, K(c)->add(y, a, b, n));
}

static void silu_mul(struct ck *c)
{
    size_t n = P(c)->n;
    float *a = ck_floats(c, n, hard(c)), *b = ck_floats(c, n, hard(c)), *y = out_of_two(c, a, b);
    for (size_t i = 0; i < n; i++)
        a[i] *= 20.0f; /* through all of exp's range */
    CK_RUN(c, K(c)->silu_mul(y, a, b, n));
}

static void sigmoid_mul(struct ck *c)
{
    size_t n = P(c)->n;
    float *a = ck_floats(c, n, hard(c)), *b = ck_floats(c, n, hard(c));
    float *y = ck_take(c, n * sizeof *y);
    for (size_t i = 0; i < n; i++)
        b[i] *= 40.0f;
    CK_RUN(c, K(c)->sigmoid_mul(y, a, b, n));
}

static void sigmoid(struct ck *c)
{
    size_t n = P(c)->n;
    float *x = ck_floats(c, n, hard(c)), *y = ck_take(c, n * sizeof *y);
    for (size_t i = 0; i < n; i++)
        x[i] *= 40.0f;
    CK_RUN(c, K(c)->sigmoid(y, x, n));
}

static void decay(struct ck *c)
{
    size_t n = P(c)->n;
    float *x = ck_floats(c, n, hard(c)), *a = ck_floats(c, n, false);
    float *bias = ck_floats(c, n, false), *y = ck_take(c, n * sizeof *y);
    for (size_t i = 0; i < n; i++)
        a[i] = a[i] < 0.0f ? a[i] : -a[i];
    CK_RUN(c, K(c)->decay(y, x, a, bias, n));
}

static void rope(struct ck *c)
{
    size_t n = P(c)->n, n_rot = P(c)->n_rows;
    float *x = ck_floats(c, n, hard(c)), *cosine = ck_floats(c, n_rot / 2, false);
    float *sine = ck_floats(c, n_rot / 2, false), *y = ck_take(c, n * sizeof *y);
    CK_RUN(c, K(c)->rope(y, x, cosine, sine, n_rot, n));
}

/* The format of a case: variant / 2. */
static enum ob_kv_format kv_format(const struct ck *c)
{
    static const enum ob_kv_format formats[] = {OB_KV_STORE_F16, OB_KV_STORE_F32, OB_KV_STORE_Q8,
                                                OB_KV_STORE_Q4};
    return formats[P(c)->variant / 2];
}

static void kv_store(struct ck *c)
{
    size_t n = P(c)->n;
    enum ob_kv_format format = kv_format(c);
    float *x = ck_floats(c, n, hard(c));
    for (size_t i = 0; i < n; i += 3)
        x[i] *= 1e-6f; /* denormal in f16 */
    void *page = ck_take(c, ob_kv_format_bytes(format, n));
    CK_RUN(c, K(c)->kv_store(page, format, x, n));
}

/* Groups of all kinds: about normal, tiny, equal numbers, beyond f16, and (hard) not finite. */
static void kv_pack(struct ck *c)
{
    size_t n = P(c)->n, numbers = OB_KEYS_AT_ONCE * n;
    float *x = ck_floats(c, numbers, hard(c));
    for (size_t i = 0; i < numbers; i++) {
        static const float factors[] = {1.0f, 1e-7f, 0.0f, 1e6f};
        size_t group = i / OB_KV_GROUP % 9;
        x[i] = group < 4 ? x[i] * factors[group] : x[i] + 3.0f;
    }
    void *page = ck_take(c, ob_kv_format_bytes(OB_KV_STORE_Q4, numbers));
    if (P(c)->variant & 2)
        CK_RUN(c, K(c)->kv_pack_values(page, x, n));
    else
        CK_RUN(c, K(c)->kv_pack_keys(page, x, n));
}

/* Random numbers as a page of rows. */
static void *kv_page(struct ck *c, bool keys)
{
    const struct ck_params *p = P(c);
    size_t numbers = p->n_rows * p->n;
    float *source = ck_floats(c, numbers, false);
    void *page = ck_take(c, ob_kv_format_bytes(kv_format(c), numbers));
    if (kv_format(c) != OB_KV_STORE_Q4)
        K(c)->kv_store(page, kv_format(c), source, numbers);
    else if (keys)
        K(c)->kv_pack_keys(page, source, p->n);
    else
        K(c)->kv_pack_values(page, source, p->n);
    return page;
}

static void attention_page(struct ck *c)
{
    enum { MOST = 40 };
    const struct ck_params *p = P(c);
    struct ob_attention_query queries[MOST];
    void *keys = kv_page(c, true), *values = kv_page(c, false);
    float *q = ck_floats(c, p->n_out * p->n, hard(c));
    float *out = ck_take(c, p->n_out * p->n * sizeof *out);
    float *sums = ck_take(c, 2 * p->n_out * sizeof *sums);
    float *scratch = ck_take_private(c, ob_attention_scratch(p->n) * sizeof *scratch);
    for (size_t i = 0; i < p->n_out; i++) {
        size_t fewer = p->gap * i < p->n_rows ? p->gap * i : p->n_rows - 1;
        queries[i] = (struct ob_attention_query){
            .q = q + i * p->n, .value = out + i * p->n, .n_keys = p->n_rows - fewer};
    }
    CK_RUN(c, K(c)->attention_page(queries, p->n_out, keys, values, kv_format(c), p->n, 0.125f,
                                   scratch));
    for (size_t i = 0; i < p->n_out; i++) {
        sums[2 * i] = queries[i].max;
        sums[2 * i + 1] = queries[i].sum;
    }
}

static void attention_merge(struct ck *c)
{
    size_t n = P(c)->n;
    float *sums = ck_floats(c, 4, false);
    struct ob_attention_query into = {
        .value = ck_floats(c, n, hard(c)), .max = sums[0], .sum = sums[1]};
    struct ob_attention_query part = {
        .value = ck_floats(c, n, false), .max = sums[2], .sum = sums[3]};
    CK_RUN(c, K(c)->attention_merge(&into, &part, n));
    sums[0] = into.max;
    sums[1] = into.sum;
}

static void conv_silu(struct ck *c)
{
    const struct ck_params *p = P(c);
    size_t taps = (size_t)p->variant, stride = p->n + p->gap;
    float *x = ck_floats(c, (p->n_rows - 1) * stride + p->n, false);
    float *w = ck_floats(c, p->n * taps, false), *tail = ck_floats(c, (taps - 1) * p->n, false);
    float *y = ck_take(c, ((p->n_rows - 1) * stride + p->n) * sizeof *y);
    size_t first = p->gap < p->n ? p->gap : 0, last = p->n - (p->n > 40 ? 3 : 0);
    CK_RUN(c, K(c)->conv_silu(y, stride, x, stride, p->n_rows, w, taps, tail, p->n, first, last));
}

static void delta_step(struct ck *c)
{
    const struct ck_params *p = P(c);
    size_t dk = p->n, dv = p->n_out, first = p->gap;
    float *state = ck_floats(c, dk * dv, false), *q = ck_floats(c, dk, false);
    float *k = ck_floats(c, dk, false), *v = ck_floats(c, dv, false);
    float *o = ck_take(c, dv * sizeof *o);
    size_t last = dv < first + 64 ? dv : first + 64;
    for (size_t i = 0; i < dk; i++)
        k[i] *= 0.05f; /* the recurrence must not grow while it is timed */
    CK_RUN(c, K(c)->delta_step(o, state, q, k, v, 0.9f, 0.5f, dk, dv, first, last));
}

/* Rows of every place in panels of every height; the planes are guarded one by one. */
static void quantise(struct ck *c)
{
    const struct ck_params *p = P(c);
    struct ob_codes x = {.n_rows = p->n_rows, .n_cols = p->n};
    struct ob_panel last = ob_panel_of(&x, p->n_rows - 1);
    size_t stored = last.first + last.height;
    x.codes = ck_take(c, stored * p->n);
    x.scales = ck_take(c, stored * (p->n / OB_ACT_GROUP) * sizeof *x.scales);
    x.sums = ck_take(c, stored * (p->n / OB_SUM_GROUP) * sizeof *x.sums);
    float *values = ck_floats(c, p->n_rows * p->n, false);
    for (size_t i = 0; hard(c) && i < p->n_rows * p->n; i++) {
        size_t kind = i / OB_ACT_GROUP % 5;
        static const float factors[] = {0.0f, 1e-42f, 1e38f, 1.0f, 1e-30f};
        values[i] *= factors[kind];
        if (kind == 3 && i % OB_ACT_GROUP == 17)
            values[i] = i % 3 ? INFINITY : NAN;
    }
    size_t whole = p->n / OB_ACT_GROUP / 2 * OB_ACT_GROUP; /* in two calls */
    for (size_t r = 0; r < p->n_rows; r++) {
        if (whole)
            K(c)->quantise(&x, r, 0, values + r * p->n, whole);
        K(c)->quantise(&x, r, whole, values + r * p->n + whole, p->n - whole);
    }
    CK_RUN(c, K(c)->quantise(&x, 0, 0, values, p->n));
}

static const size_t lengths[] = {1,   2,   3,   4,   5,   7,   8,    9,    12,  15,  16,
                                 17,  23,  31,  32,  33,  47,  63,   64,   65,  100, 127,
                                 128, 129, 255, 256, 257, 500, 1000, 2560, 4099};

static void vector_cases(struct ck *c)
{
    static const struct {
        const char *name;
        ck_function *function;
        int n_aliases, alias_step;
    } rows[] = {
        {"dot_f32", dot, 1, 0},       {"rmsnorm", rmsnorm, 2, 2},
        {"l2norm", l2norm, 2, 2},     {"add", add, 3, 4},
        {"silu_mul", silu_mul, 3, 4}, {"sigmoid_mul", sigmoid_mul, 1, 0},
        {"sigmoid", sigmoid, 1, 0},   {"decay", decay, 1, 0},
        {"kv_store", kv_store, 2, 2}, {"attention_merge", attention_merge, 1, 0},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (size_t j = 0; j < sizeof lengths / sizeof *lengths; j++)
            for (int v = 0; v < 2 * rows[i].n_aliases; v++) {
                struct ck_params p = {.n = lengths[j]};
                p.variant = v % 2 + v / 2 * rows[i].alias_step;
                if (ck_is_bench(c) && (lengths[j] != 2560 || v != 0))
                    continue;
                ck_case(c, rows[i].function, p, "float/%s/n%zu%s%s", rows[i].name, lengths[j],
                        v % 2 ? "-hard" : "",
                        v < 2   ? ""
                        : v < 4 ? "-second"
                                : "-third");
            }
}

static void matmul_cases(struct ck *c)
{
    for (int f = 0; f < OB_N_FORMATS; f++) {
        const struct ob_format *format = ob_format_get((enum ob_format_id)f);
        for (size_t rows = 1; rows <= 9; rows++) {
            struct ck_params p = {.n = 256, .n_out = 19, .n_rows = rows, .gap = rows % 4};
            p.format = format;
            if (rows > 4)
                p.n = (size_t)format->group * rows;
            p.n_products = p.n * (p.n_out - p.gap) * rows;
            ck_case(c, matmul, p, "float/matmul_f32/%s/k%zu-rows%zu", format->name, p.n, rows);
        }
    }
}

static void attention_cases(struct ck *c)
{
    static const size_t dims[] = {32, 48, 64, 80, 128, 256}, keys[] = {1, 2, 8, 70, 128};
    static const char *const formats[] = {"f16", "f32", "q8", "q4"};
    for (size_t d = 0; d < sizeof dims / sizeof *dims; d++)
        for (size_t k = 0; k < sizeof keys / sizeof *keys; k++)
            for (int v = 0; v < 8; v++)
                for (size_t queries = 1; queries <= 40; queries = queries * 3 + 1) {
                    bool integers = v >= 4, whole = v >= 6;
                    struct ck_params p = {.n = dims[d], .n_rows = keys[k], .n_out = queries};
                    p.gap = queries > 4 && !whole;
                    p.variant = v;
                    if ((integers && dims[d] % OB_KV_GROUP != 0) ||
                        (whole && keys[k] != OB_KEYS_AT_ONCE) ||
                        (ck_is_bench(c) && (keys[k] != 128 || v % 2)))
                        continue;
                    ck_case(c, attention_page, p,
                            "float/attention_page/%s/dim%zu-keys%zu-queries%zu%s", formats[v / 2],
                            dims[d], keys[k], queries, v & 1 ? "-hard" : "");
                }
}

static void kv_cases(struct ck *c)
{
    for (size_t n = 32; n <= 256; n = n < 96 ? n + 32 : n + 64)
        for (int v = 0; v < 2; v++) {
            struct ck_params p = {.n = n, .variant = 4 + v};
            const char *hard_or_not = v ? "-hard" : "";
            ck_case(c, kv_store, p, "float/kv_store/q8/n%zu%s", n, hard_or_not);
            p.variant = v;
            ck_case(c, kv_pack, p, "float/kv_pack_keys/n%zu%s", n, hard_or_not);
            p.variant = 2 + v;
            ck_case(c, kv_pack, p, "float/kv_pack_values/n%zu%s", n, hard_or_not);
        }
}

static void state_cases(struct ck *c)
{
    for (size_t n = 1; n <= 300; n = n < 40 ? n + 13 : n * 2 + 1)
        for (int taps = 2; taps <= 5; taps++)
            for (size_t rows = 1; rows <= 9; rows += 4) {
                struct ck_params p = {.n = n, .n_rows = rows, .gap = rows - 1, .variant = taps};
                ck_case(c, conv_silu, p, "float/conv_silu/n%zu-taps%d-rows%zu", n, taps, rows);
            }
    for (size_t dk = 16; dk <= 128; dk *= 2)
        for (size_t dv = 8; dv <= 128; dv += 24)
            for (size_t first = 0; first < dv; first += 21) {
                struct ck_params p = {.n = dk, .n_out = dv, .gap = first};
                ck_case(c, delta_step, p, "float/delta_step/dk%zu-dv%zu-from%zu", dk, dv, first);
            }
    for (size_t rows = 1; rows <= 25; rows++)
        for (size_t n = 64; n <= 640; n += 64 * rows)
            for (int v = 0; v < 2; v++) {
                struct ck_params p = {.n = n, .n_rows = rows, .variant = v};
                ck_case(c, quantise, p, "float/quantise/k%zu-rows%zu%s", n, rows, v ? "-hard" : "");
            }
    for (size_t n = 64; n <= 256; n += 64)
        for (size_t n_rot = 2; n_rot <= n; n_rot = n_rot * 2 + (n_rot == 16 ? 10 : 0)) {
            struct ck_params p = {.n = n, .n_rows = n_rot};
            ck_case(c, rope, p, "float/rope/n%zu-rotated%zu", n, n_rot);
        }
}

void ck_float_cases(struct ck *c)
{
    vector_cases(c);
    matmul_cases(c);
    attention_cases(c);
    kv_cases(c);
    state_cases(c);
}
