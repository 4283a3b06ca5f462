/* Oracle: logits and hidden states of the transformers library, in float32, on every fixture. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "support/check.h"
#include "support/models.h"

struct compare {
    const struct golden *golden;
    size_t row;
    double worst_logit;
    double worst_hidden; /* relative to the row's largest */
    int hidden_rows;     /* rows compared */
};

static size_t argmax(const float *v, size_t n)
{
    size_t best = 0;
    for (size_t i = 1; i < n; i++)
        if (v[i] > v[best])
            best = i;
    return best;
}

/* Distance of the best value to the second best. */
static float margin(const float *v, size_t n)
{
    size_t best = argmax(v, n);
    float second = -INFINITY;
    for (size_t i = 0; i < n; i++)
        if (i != best && v[i] > second)
            second = v[i];
    return v[best] - second;
}

static void compare_hidden(struct compare *c, const struct ob_row *row)
{
    size_t n;
    for (int k = 0; k < 64; k++) {
        const float *all = golden_hidden(c->golden, k, &n);
        if (!all)
            continue;
        const float *g = all + c->row * n;
        double worst = 0, largest = 0;
        for (size_t i = 0; i < n; i++) {
            worst = fmax(worst, fabs((double)row->hidden[k][i] - (double)g[i]));
            largest = fmax(largest, fabs((double)g[i]));
        }
        c->worst_hidden = fmax(c->worst_hidden, worst / largest);
        c->hidden_rows++;
    }
}

static int compare_row(void *context, const struct ob_row *row)
{
    struct compare *c = context;
    size_t n = c->golden->n_vocab;
    const float *g = c->golden->logits + c->row * n;
    for (size_t i = 0; i < n; i++)
        c->worst_logit = fmax(c->worst_logit, fabs((double)row->logits[i] - (double)g[i]));
    if (margin(g, n) > 5e-3f)
        assert_int_equal(argmax(row->logits, n), argmax(g, n));
    if (row->hidden)
        compare_hidden(c, row);
    c->row++;
    return 0;
}

/* The two fixtures that carry every hidden state; the others carry logits alone. */
static bool has_hidden(const char *name)
{
    return strcmp(name, "qwen3-q1-tied") == 0 || strcmp(name, "qwen35-q1") == 0;
}

static void check_model(const char *model_path, const char *golden_path, bool hidden)
{
    struct ob_error err = {0};
    struct golden golden = golden_open(golden_path);
    struct ob_model_options options = test_exact(0, 2);
    options.keep_hidden = hidden;
    struct ob_model *model = test_open(model_path, &options);
    struct ob_session *session = test_session(model);
    struct ob_model_info info = ob_model_get_info(model);
    assert_int_equal(info.n_vocab, golden.n_vocab);
    struct compare c = {.golden = &golden};
    for (size_t i = 0; i < golden.n_sequences; i++) {
        CHECK_OK(ob_session_rollback(session, 0, &err), err);
        CHECK_OK(ob_session_score(session, golden.ids + i * golden.n_ids, golden.n_ids, compare_row,
                                  &c, &err),
                 err);
    }
    assert_int_equal(c.row, golden.n_sequences * golden.n_ids);
    print_message("%s: max |logit - golden| %.2e, hidden %.2e over %d rows\n", model_path,
                  c.worst_logit, c.worst_hidden, c.hidden_rows);
    CHECK(c.worst_logit <= 1e-3, "%g", c.worst_logit);
    CHECK(c.worst_hidden <= 1e-3, "%g", c.worst_hidden);
    if (hidden)
        assert_int_equal(c.hidden_rows, (size_t)(info.n_layers + 1) * golden.n_ids);
    ob_session_close(session);
    ob_model_close(model);
    golden_close(&golden);
}

static void test_fixtures(void **state)
{
    (void)state;
    for (int i = 0; fixture_names[i]; i++) {
        char model[256], golden[256];
        snprintf(model, sizeof model, TEST_DATA "/%s/model.gguf", fixture_names[i]);
        snprintf(golden, sizeof golden, TEST_DATA "/%s/golden.safetensors", fixture_names[i]);
        check_model(model, golden, has_hidden(fixture_names[i]));
    }
}

static void test_demo(void **state)
{
    (void)state;
    check_model(TEST_DATA "/../../models/onebit-demo.gguf", TEST_DATA "/demo/golden.safetensors",
                false);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fixtures),
        cmocka_unit_test(test_demo),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
