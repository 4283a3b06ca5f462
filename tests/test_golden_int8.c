/* How far int8 activations are from the transformers library in float32: within a quarter more than a
 * peer that rounds activations too. */
#include <math.h>
#include <stdio.h>

#include "support/check.h"
#include "support/models.h"

struct distance {
    const struct golden *golden;
    size_t row, same_top;
    double squares, kl;
};

static double log_sum(const float *v, size_t n, size_t *top)
{
    double sum = 0;
    *top = 0;
    for (size_t i = 1; i < n; i++)
        *top = v[i] > v[*top] ? i : *top;
    for (size_t i = 0; i < n; i++)
        sum += exp((double)v[i] - (double)v[*top]);
    return log(sum) + (double)v[*top];
}

static int add_row(void *context, const struct ob_row *row)
{
    struct distance *d = context;
    size_t n = d->golden->n_vocab, top, golden_top;
    const float *g = d->golden->logits + d->row * n;
    double sum = log_sum(row->logits, n, &top), golden_sum = log_sum(g, n, &golden_top);
    for (size_t i = 0; i < n; i++) {
        double p = (double)g[i] - golden_sum, q = (double)row->logits[i] - sum;
        double off = (double)row->logits[i] - (double)g[i];
        d->squares += off * off;
        d->kl += exp(p) * (p - q);
    }
    d->same_top += top == golden_top;
    d->row++;
    return 0;
}

static struct distance measure(const char *model_path, const char *golden_path, double *rms)
{
    struct ob_error err = {0};
    struct golden golden = golden_open(golden_path);
    struct ob_model_options options = {.n_threads = 2, .activation = OB_ACT_INT8};
    struct ob_model *model = test_open(model_path, &options);
    struct ob_session *session = test_session(model);
    struct distance d = {.golden = &golden};
    for (size_t i = 0; i < golden.n_sequences; i++) {
        CHECK_OK(ob_session_rollback(session, 0, &err), err);
        CHECK_OK(ob_session_score(session, golden.ids + i * golden.n_ids, golden.n_ids, add_row, &d,
                                  &err),
                 err);
    }
    *rms = sqrt(d.squares / (double)d.row / (double)golden.n_vocab);
    print_message("%s: rms %.4f, mean KL %.2e, same top token %zu of %zu\n", model_path, *rms,
                  d.kl / (double)d.row, d.same_top, d.row);
    ob_session_close(session);
    ob_model_close(model);
    golden_close(&golden);
    return d;
}

static void test_fixtures(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        double peer; /* its root-mean-square error */
    } cases[] = {{"qwen3-q1", 0.0133},
                 {"qwen35-q1", 0.066},
                 {"qwen35-q1-long", 0.0375},
                 {"qwen35-head256", 0.040}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char model[256], golden[256];
        double rms;
        snprintf(model, sizeof model, TEST_DATA "/%s/model.gguf", cases[i].name);
        snprintf(golden, sizeof golden, TEST_DATA "/%s/golden.safetensors", cases[i].name);
        measure(model, golden, &rms);
        CHECK(rms <= 1.25 * cases[i].peer, "%s: %g", cases[i].name, rms);
    }
}

/* The figures of SPEED.md, with room for other texts. */
static void test_demo(void **state)
{
    (void)state;
    double rms;
    struct distance d = measure(TEST_DATA "/../../models/onebit-demo.gguf",
                                TEST_DATA "/demo/golden.safetensors", &rms);
    CHECK(d.kl <= 4e-4 * (double)d.row, "mean KL %g", d.kl / (double)d.row);
    CHECK((double)d.same_top >= 0.98 * (double)d.row, "%zu of %zu", d.same_top, d.row);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_fixtures),
                                       cmocka_unit_test(test_demo)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
