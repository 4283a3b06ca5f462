/* The reference's int8 kernels against what they stand for. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernel/kernel.h"
#include "support/check.h"
#include "support/rng.h"

static struct ob_kernels kernels;
static struct rng rng = {1};

/* One group: a scale that divides max |v| by 127 to 124, codes nearest to v / scale, no other of the
 * four scales better by more than rounding, and the sums of the codes. */
static void check_group(const float *v, const struct ob_codes *x, size_t row)
{
    struct ob_panel p = ob_panel_of(x, row);
    float max = 0.0f, scale = x->scales[p.first * (x->n_cols / OB_ACT_GROUP) + p.at];
    double error[4] = {0}, got = 0.0;
    int32_t sum = 0;
    for (size_t i = 0; i < OB_ACT_GROUP; i++)
        max = fabsf(v[i]) > max ? fabsf(v[i]) : max;
    for (size_t i = 0; i < OB_ACT_GROUP; i++) {
        int8_t code = x->codes[p.first * x->n_cols + i / 4 * p.height * 4 + p.at * 4 + i % 4];
        double off = (double)code * (double)scale - (double)v[i];
        CHECK(fabs(off) <= 0.5001 * (double)scale, "value %g has code %d of scale %g", (double)v[i],
              code, (double)scale);
        got += off * off;
        sum += code;
        for (int c = 0; c < 4; c++) {
            double step = (double)max / (127 - c);
            double e = nearbyint((double)v[i] / step) * step - (double)v[i];
            error[c] += e * e;
        }
        if (i % OB_SUM_GROUP == OB_SUM_GROUP - 1) {
            size_t at = p.first * (x->n_cols / OB_SUM_GROUP) + i / OB_SUM_GROUP * p.height + p.at;
            assert_int_equal(x->sums[at], sum);
            sum = 0;
        }
    }
    for (int c = 0; c < 4; c++)
        CHECK(got <= error[c] * (1 + 1e-4), "scale %g has error %g, %g has %g", (double)scale, got,
              (double)max / (127 - c), error[c]);
}

static void test_quantise(void **state)
{
    (void)state;
    enum { ROWS = 5, N = OB_ACT_GROUP };
    static char memory[OB_PANEL_ROWS * (N + 4 + 8)] __attribute__((aligned(64)));
    float v[ROWS][N];
    struct ob_codes x = ob_codes_at(memory, ROWS, N);
    for (int round = 0; round < 200; round++) {
        float size = ldexpf(1.0f, round % 180 - 90);
        for (size_t r = 0; r < ROWS; r++) {
            rng_fill(&rng, v[r], N);
            for (size_t i = 0; i < N; i++)
                v[r][i] *= size * (i == (size_t)round % N ? 9.0f : 1.0f);
            kernels.quantise(&x, r, 0, v[r], N);
        }
        for (size_t r = 0; r < ROWS; r++)
            check_group(v[r], &x, r);
    }
    /* What has no scale: zeros, numbers whose inverse would overflow, and what is no number. */
    static const float special[] = {0.0f, -0.0f, 1e-45f, -7e-31f, INFINITY, -INFINITY, NAN};
    for (size_t s = 0; s < sizeof special / sizeof *special; s++) {
        memset(v[0], 0, sizeof v[0]);
        v[0][s] = special[s];
        kernels.quantise(&x, 0, 0, v[0], N);
        CHECK(isfinite(special[s]) ? x.scales[0] == 0.0f : isnan(x.scales[0]), "%g has scale %g",
              (double)special[s], (double)x.scales[0]);
        for (size_t i = 0; i < N; i += 4)
            assert_int_equal(x.codes[i * 6 + i % 4], 0);
    }
}

/* A product of codes is the product of what they stand for. */
static void test_int8_product(void **state)
{
    (void)state;
    enum { ROWS = 3, N = 384, OUT = 5 };
    static char memory[OB_PANEL_ROWS * (N + N / 16 + N / 8)] __attribute__((aligned(64)));
    float v[N], y[ROWS][OUT];
    struct ob_codes x = ob_codes_at(memory, ROWS, N);
    for (size_t r = 0; r < ROWS; r++) {
        rng_fill(&rng, v, N);
        kernels.quantise(&x, r, 0, v, N);
    }
    for (int id = 0; id < OB_N_FORMATS; id++) {
        const struct ob_product *product = &kernels.products[id];
        if (!product->multiply)
            continue;
        const struct ob_format *format = ob_format_get((enum ob_format_id)id);
        float weights[OUT * N], decoded[N];
        rng_fill(&rng, weights, OUT * N);
        size_t row_bytes = ob_format_row_bytes(format, N);
        unsigned char *data = malloc(OUT * row_bytes);
        for (size_t o = 0; o < OUT; o++)
            format->encode(data + o * row_bytes, weights + o * N, N);
        struct ob_tensor w = {.format = format, .data = data, .n_rows = OUT, .n_cols = N};
        product->multiply(y[0], OUT, &x, &w, NULL, 0,
                          (OUT + product->tile_rows - 1) / product->tile_rows);
        for (size_t r = 0; r < ROWS; r++)
            for (size_t o = 0; o < OUT; o++) {
                format->decode(decoded, data + o * row_bytes, N);
                double sum = 0.0, size = 0.0;
                for (size_t i = 0; i < N; i++) {
                    double a = (double)x.codes[i / 4 * ROWS * 4 + r * 4 + i % 4] *
                               (double)x.scales[i / OB_ACT_GROUP * ROWS + r];
                    sum += a * (double)decoded[i];
                    size += fabs(a * (double)decoded[i]);
                }
                CHECK(fabs((double)y[r][o] - sum) <= 1e-6 * size, "%s: %g, expected %g",
                      format->name, (double)y[r][o], sum);
            }
        free(data);
    }
}

int main(void)
{
    struct ob_error err;
    if (ob_kernels_get("ref", 0, &kernels, &err) != OB_OK)
        return 1;
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_quantise),
                                       cmocka_unit_test(test_int8_product)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
