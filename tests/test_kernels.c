/* The reference kernels against their formulas in double precision, and the order of sums that
 * kernel.h promises against an independent spelling of it. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/half.h"
#include "kernel/kernel.h"
#include "plan/batch.h"
#include "support/check.h"
#include "support/rng.h"

static struct ob_kernels kernels;
static struct rng rng = {1};

static void near(double got, double expected, double scale, const char *what)
{
    CHECK(fabs(got - expected) <= 2e-6 * (scale + 1), "%s: %.9g, expected %.9g", what, got,
          expected);
}

/* The documented order: lane j takes elements j, j + 16, ...; then a halving tree. */
static float ordered_dot(const float *a, const float *b, size_t n)
{
    float lane[16] = {0};
    for (size_t j = 0; j < 16; j++)
        for (size_t i = j; i < n; i += 16) {
            volatile float product = a[i] * b[i];
            volatile float sum = lane[j] + product;
            lane[j] = sum;
        }
    for (size_t half = 8; half; half /= 2)
        for (size_t j = 0; j < half; j++)
            lane[j] = lane[j] + lane[j + half];
    return lane[0];
}

static void test_dot(void **state)
{
    (void)state;
    float a[600] = {0}, b[600] = {0};
    for (size_t n = 0; n <= 600; n = n < 70 ? n + 1 : n + 53) {
        rng_fill(&rng, a, n);
        rng_fill(&rng, b, n);
        float got = kernels.dot_f32(a, b, n), expected = ordered_dot(a, b, n);
        assert_memory_equal(&got, &expected, sizeof got);
    }
}

static void test_matmul(void **state)
{
    (void)state;
    enum { ROWS = 5, COLS = 256, OUT = 19 };
    float weights[OUT * COLS], x[ROWS * (COLS + 3)], y[ROWS * OUT], scratch[COLS];
    rng_fill(&rng, weights, OUT * COLS);
    rng_fill(&rng, x, ROWS * (COLS + 3));
    for (int f = 0; f < OB_N_FORMATS; f++) {
        const struct ob_format *format = ob_format_get((enum ob_format_id)f);
        size_t row_bytes = ob_format_row_bytes(format, COLS);
        void *blocks = malloc(OUT * row_bytes);
        assert_non_null(blocks);
        for (size_t o = 0; o < OUT; o++)
            format->encode((char *)blocks + o * row_bytes, weights + o * COLS, COLS);
        struct ob_tensor w = {{"w", 1}, format, OUT, COLS, blocks, OUT * row_bytes};
        for (size_t i = 0; i < ROWS * OUT; i++)
            y[i] = -77.0f;
        kernels.matmul_f32(y, OUT, x, COLS + 3, ROWS, &w, 3, OUT - 2, scratch);
        for (size_t r = 0; r < ROWS; r++)
            for (size_t o = 0; o < OUT; o++) {
                float expected = -77.0f; /* outside [first, last) nothing is written */
                if (o >= 3 && o < OUT - 2) {
                    format->decode(scratch, ob_tensor_row(&w, o), COLS);
                    expected = ordered_dot(scratch, x + r * (COLS + 3), COLS);
                }
                assert_memory_equal(&y[r * OUT + o], &expected, sizeof expected);
            }
        free(blocks);
    }
}

static void test_norms(void **state)
{
    (void)state;
    float x[130], w[130], y[130];
    for (size_t n = 1; n <= 130; n += 43) {
        rng_fill(&rng, x, n);
        rng_fill(&rng, w, n);
        double squares = 0;
        for (size_t i = 0; i < n; i++)
            squares += (double)x[i] * (double)x[i];
        kernels.rmsnorm(y, x, w, n, 1e-6f);
        for (size_t i = 0; i < n; i++)
            near((double)y[i], (double)x[i] * (double)w[i] / sqrt(squares / (double)n + 1e-6), 1,
                 "rmsnorm");
        kernels.l2norm(y, x, n, 1e-6f, 0.5f);
        for (size_t i = 0; i < n; i++)
            near((double)y[i], 0.5 * (double)x[i] / sqrt(squares + 1e-6), 1, "l2norm");
    }
}

static void test_gates(void **state)
{
    (void)state;
    static const float hard[] = {0,      -0.0f,   1,        -1,    30,     -30,
                                 88,     -88,     1e4f,     -1e4f, 1e-30f, 1e38f,
                                 -1e38f, 3.4e38f, -3.4e38f, 20.5f, -20.5f};
    enum { N = sizeof hard / sizeof *hard };
    float ones[N], y[N], a[N];
    for (size_t i = 0; i < N; i++) {
        ones[i] = 1;
        a[i] = -0.25f;
    }
    kernels.sigmoid(y, hard, N);
    for (size_t i = 0; i < N; i++)
        near((double)y[i], 1 / (1 + exp(-(double)hard[i])), 1, "sigmoid");
    kernels.silu_mul(y, hard, ones, N);
    for (size_t i = 0; i < N; i++)
        near((double)y[i], (double)hard[i] / (1 + exp(-(double)hard[i])), fabs((double)hard[i]),
             "silu");
    kernels.sigmoid_mul(y, ones, hard, N);
    for (size_t i = 0; i < N; i++)
        near((double)y[i], 1 / (1 + exp(-(double)hard[i])), 1, "sigmoid_mul");
    float bias[N] = {0};
    kernels.decay(y, hard, a, bias, N);
    for (size_t i = 0; i < N; i++) {
        double x = (double)hard[i], softplus = x > 40 ? x : log1p(exp(x));
        near((double)y[i], exp(-0.25 * softplus), 1, "decay");
    }
}

static void test_rope(void **state)
{
    (void)state;
    float x[64], y[64], c[16], s[16];
    rng_fill(&rng, x, 64);
    for (size_t i = 0; i < 16; i++) {
        c[i] = cosf(0.3f * (float)i);
        s[i] = sinf(0.3f * (float)i);
    }
    kernels.rope(y, x, c, s, 32, 64);
    for (size_t i = 0; i < 16; i++) {
        near((double)y[i], (double)x[i] * (double)c[i] - (double)x[i + 16] * (double)s[i], 1,
             "rope");
        near((double)y[i + 16], (double)x[i + 16] * (double)c[i] + (double)x[i] * (double)s[i], 1,
             "rope");
    }
    assert_memory_equal(y + 32, x + 32, 32 * sizeof *x);
}

/* Pages of 8, 128 and 70 keys merged in order are the softmax over all that a query sees. */
static void check_attention(size_t dim)
{
    enum { KEYS = 206, QUERIES = 6, MOST_DIM = 144 };
    static float keys[KEYS * MOST_DIM], values[KEYS * MOST_DIM], q[QUERIES][MOST_DIM];
    static float out[2 * QUERIES][MOST_DIM], scratch[33 * MOST_DIM];
    struct ob_attention_query total[QUERIES], part[QUERIES];
    rng_fill(&rng, keys, KEYS * dim);
    rng_fill(&rng, values, KEYS * dim);
    for (size_t i = 0; i < QUERIES; i++) {
        rng_fill(&rng, q[i], dim);
        total[i] = (struct ob_attention_query){.q = q[i], .value = out[i]};
        part[i] = (struct ob_attention_query){.q = q[i], .value = out[QUERIES + i]};
    }
    for (size_t page = 0; ob_page_start(page) < KEYS; page++) {
        struct ob_attention_query *now = page ? part : total;
        size_t start = ob_page_start(page);
        for (size_t i = 0; i < QUERIES; i++) {
            size_t n = KEYS - i - start;
            now[i].n_keys = n < ob_page_tokens(page) ? n : ob_page_tokens(page);
        }
        kernels.attention_page(now, QUERIES, keys + start * dim, values + start * dim,
                               OB_KV_STORE_F32, dim, 0.2f, scratch);
        for (size_t i = 0; page && i < QUERIES; i++)
            kernels.attention_merge(&total[i], &part[i], dim);
    }
    for (size_t i = 0; i < QUERIES; i++) {
        double sum = 0, expected[MOST_DIM] = {0};
        for (size_t k = 0; k < KEYS - i; k++) {
            double score = 0;
            for (size_t d = 0; d < dim; d++)
                score += (double)q[i][d] * (double)keys[k * dim + d];
            double weight = exp((double)0.2f * score);
            sum += weight;
            for (size_t d = 0; d < dim; d++)
                expected[d] += weight * (double)values[k * dim + d];
        }
        for (size_t d = 0; d < dim; d++)
            near((double)(out[i][d] / total[i].sum), expected[d] / sum, 1, "attention");
    }
}

static void test_attention(void **state)
{
    (void)state;
    check_attention(48);  /* whole vectors, fewer than a block */
    check_attention(128); /* whole blocks */
    check_attention(140); /* and a rest */
}

static void test_kv_store(void **state)
{
    (void)state;
    float x[100], q[100];
    uint16_t half[100];
    rng_fill(&rng, x, 100);
    kernels.kv_store(half, OB_KV_STORE_F16, x, 100);
    kernels.kv_store(q, OB_KV_STORE_F32, x, 100);
    assert_memory_equal(q, x, sizeof x);
    for (size_t i = 0; i < 100; i++)
        assert_int_equal(half[i], ob_f32_to_f16(x[i]));
}

/* Any cut of the rows, and any cut of the channels, gives the bytes of one call. */
static void test_conv(void **state)
{
    (void)state;
    enum { TAPS = 4, CH = 37, ROWS = 20 };
    float x[ROWS * CH], w[CH * TAPS], whole[ROWS * CH], cut[ROWS * CH];
    float tail[(TAPS - 1) * CH] = {0}, tail2[(TAPS - 1) * CH] = {0};
    rng_fill(&rng, x, ROWS * CH);
    rng_fill(&rng, w, CH * TAPS);
    kernels.conv_silu(whole, CH, x, CH, ROWS, w, TAPS, tail, CH, 0, CH);
    for (size_t t = 0; t < ROWS; t += 3) {
        size_t n = ROWS - t < 3 ? ROWS - t : 3;
        kernels.conv_silu(cut + t * CH, CH, x + t * CH, CH, n, w, TAPS, tail2, CH, 0, 11);
        kernels.conv_silu(cut + t * CH, CH, x + t * CH, CH, n, w, TAPS, tail2, CH, 11, CH);
    }
    assert_memory_equal(whole, cut, sizeof whole);
    assert_memory_equal(tail, tail2, sizeof tail);
    for (size_t t = 0; t < ROWS; t++)
        for (size_t c = 0; c < CH; c++) {
            double sum = 0;
            for (size_t j = 0; j < TAPS; j++)
                if (t + j + 1 >= TAPS)
                    sum += (double)w[c * TAPS + j] * (double)x[(t + j + 1 - TAPS) * CH + c];
            near((double)whole[t * CH + c], sum / (1 + exp(-sum)), fabs(sum), "conv");
        }
}

static void test_delta(void **state)
{
    (void)state;
    enum { DK = 24, DV = 80, STEPS = 30 };
    float s[DK * DV] = {0}, cut[DK * DV] = {0}, q[DK], k[DK], v[DV], o[DV], o2[DV];
    double exact[DK * DV] = {0};
    for (int step = 0; step < STEPS; step++) {
        rng_fill(&rng, q, DK);
        rng_fill(&rng, k, DK);
        rng_fill(&rng, v, DV);
        kernels.l2norm(k, k, DK, 1e-6f, 1);
        float decay = 0.5f + 0.016f * (float)step, beta = 0.7f;
        kernels.delta_step(o, s, q, k, v, decay, beta, DK, DV, 0, 64);
        kernels.delta_step(o, s, q, k, v, decay, beta, DK, DV, 64, DV);
        kernels.delta_step(o2, cut, q, k, v, decay, beta, DK, DV, 40, DV);
        kernels.delta_step(o2, cut, q, k, v, decay, beta, DK, DV, 0, 7);
        kernels.delta_step(o2, cut, q, k, v, decay, beta, DK, DV, 7, 40);
        assert_memory_equal(o, o2, sizeof o);
        for (size_t j = 0; j < DV; j++) {
            double read = 0, out = 0;
            for (size_t i = 0; i < DK; i++) {
                exact[i * DV + j] *= (double)decay;
                read += exact[i * DV + j] * (double)k[i];
            }
            double d = (double)beta * ((double)v[j] - read);
            for (size_t i = 0; i < DK; i++) {
                exact[i * DV + j] += (double)k[i] * d;
                out += exact[i * DV + j] * (double)q[i];
            }
            near((double)o[j], out, 10, "delta");
        }
    }
    assert_memory_equal(s, cut, sizeof s);
}

static void test_levels(void **state)
{
    (void)state;
    struct ob_error err = {0};
    struct ob_kernels other;
    assert_int_equal(ob_kernels_get("nonesuch", ob_cpu_detect(), &other, &err),
                     OB_INVALID_ARGUMENT);
    assert_non_null(strstr(err.message, "nonesuch"));
    assert_int_equal(ob_kernels_get("ref", 0, &other, &err), OB_OK);
    assert_string_equal(other.name, "ref");
}

int main(void)
{
    struct ob_error err;
    if (ob_kernels_get("ref", 0, &kernels, &err) != OB_OK)
        return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_dot),      cmocka_unit_test(test_matmul),
        cmocka_unit_test(test_norms),    cmocka_unit_test(test_gates),
        cmocka_unit_test(test_rope),     cmocka_unit_test(test_attention),
        cmocka_unit_test(test_kv_store), cmocka_unit_test(test_conv),
        cmocka_unit_test(test_delta),    cmocka_unit_test(test_levels),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
