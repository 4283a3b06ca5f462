/* The CUDA backend on whole models: trusted answers, the CPU's answers, and itself in other batches.
 * Without a GPU the program is a reported skip. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cuda/cuda.h"
#include "run/batch.h"
#include "run/session.h"
#include "support/check.h"
#include "support/models.h"

#define DEMO TEST_DATA "/../../models/onebit-demo.gguf"

static const char *path_of(const char *name, const char *file)
{
    static char path[256];
    snprintf(path, sizeof path, TEST_DATA "/%s/%s", name, file);
    return path;
}

struct compare {
    const struct golden *golden;
    size_t row;
    double worst;
};

static int compare_row(void *context, const struct ob_row *row)
{
    struct compare *c = context;
    size_t n = c->golden->n_vocab;
    const float *g = c->golden->logits + c->row++ * n;
    for (size_t i = 0; i < n; i++) {
        double d = fabs((double)row->logits[i] - (double)g[i]);
        if (!(d <= c->worst))
            c->worst = d == d ? d : 1e30;
    }
    return 0;
}

static void check_golden(const char *model_path, const char *golden_path)
{
    struct ob_error err = {0};
    struct golden golden = golden_open(golden_path);
    struct ob_model_options options = test_exact(0, 2);
    options.backend = "cuda";
    struct ob_model *model = test_open(model_path, &options);
    struct ob_session *session = test_session(model);
    struct compare c = {.golden = &golden};
    for (size_t i = 0; i < golden.n_sequences; i++) {
        CHECK_OK(ob_session_rollback(session, 0, &err), err);
        CHECK_OK(ob_session_score(session, golden.ids + i * golden.n_ids, golden.n_ids, compare_row,
                                  &c, &err),
                 err);
    }
    print_message("%s: max |logit - golden| %.2e\n", model_path, c.worst);
    CHECK(c.worst <= 2e-3, "%g", c.worst);
    ob_session_close(session);
    ob_model_close(model);
    golden_close(&golden);
}

static void test_golden(void **state)
{
    (void)state;
    char model[256];
    for (int i = 0; fixture_names[i]; i++) {
        strcpy(model, path_of(fixture_names[i], "model.gguf"));
        check_golden(model, path_of(fixture_names[i], "golden.safetensors"));
    }
    check_golden(DEMO, TEST_DATA "/demo/golden.safetensors");
}

/* Mean Kullback-Leibler divergence of b from a over the rows. */
static double mean_kl(const float *a, const float *b, size_t n_rows, size_t n)
{
    double total = 0;
    for (size_t r = 0; r < n_rows; r++, a += n, b += n) {
        double top[2] = {-1e30, -1e30}, sum[2] = {0, 0};
        for (size_t i = 0; i < n; i++) {
            top[0] = fmax(top[0], (double)a[i]);
            top[1] = fmax(top[1], (double)b[i]);
        }
        for (size_t i = 0; i < n; i++) {
            sum[0] += exp((double)a[i] - top[0]);
            sum[1] += exp((double)b[i] - top[1]);
        }
        for (size_t i = 0; i < n; i++) {
            double log_p = (double)a[i] - top[0] - log(sum[0]);
            double log_q = (double)b[i] - top[1] - log(sum[1]);
            total += exp(log_p) * (log_p - log_q);
        }
    }
    return total / (double)n_rows;
}

static float *logits_of(const char *path, const char *backend, size_t chunk,
                        const struct golden *golden)
{
    struct ob_model_options options = {.backend = backend, .chunk = chunk, .n_threads = 2};
    struct ob_model *model = test_open(path, &options);
    struct ob_session *session = test_session(model);
    float *logits = test_logits(session, golden->ids, golden->n_ids, golden->n_vocab);
    ob_session_close(session);
    ob_model_close(model);
    return logits;
}

/* Int8 activations: near the CPU, and equal bytes whatever the chunks. */
static void check_int8(const char *model, const char *golden_path)
{
    static const size_t chunks[] = {1, 2, 7, 20, 64, 100};
    struct golden golden = golden_open(golden_path);
    size_t n = golden.n_ids * golden.n_vocab;
    float *cpu = logits_of(model, "cpu", 0, &golden),
          *whole = logits_of(model, "cuda", 128, &golden);
    double kl = mean_kl(cpu, whole, golden.n_ids, golden.n_vocab);
    print_message("%s: int8, mean KL from the CPU's int8 %.2e\n", model, kl);
    /* The products are the CPU's bit by bit, but a last bit of a norm may round a code differently, which
     * these small models magnify; int8 itself is a hundred times farther from f32. */
    CHECK(kl <= 1e-3, "%g", kl);
    for (size_t i = 0; i < sizeof chunks / sizeof *chunks; i++) {
        float *cut = logits_of(model, "cuda", chunks[i], &golden);
        for (size_t j = 0; j < n; j++)
            CHECK(cut[j] == whole[j], "chunks of %zu: row %zu, id %zu: %.9g is not %.9g", chunks[i],
                  j / golden.n_vocab, j % golden.n_vocab, (double)cut[j], (double)whole[j]);
        free(cut);
    }
    free(cpu);
    free(whole);
    golden_close(&golden);
}

static void test_int8(void **state)
{
    (void)state;
    char model[256];
    for (int i = 0; fixture_names[i]; i++) {
        strcpy(model, path_of(fixture_names[i], "model.gguf"));
        check_int8(model, path_of(fixture_names[i], "golden.safetensors"));
    }
    check_int8(DEMO, TEST_DATA "/demo/golden.safetensors");
}

enum { SESSIONS = 9, TOKENS = 150 };

static int32_t argmax(const float *v, int n)
{
    int best = 0;
    for (int i = 1; i < n; i++)
        if (v[i] > v[best])
            best = i;
    return best;
}

/* Greedy tokens of SESSIONS prompts, together or one by one, and the last logits. */
static void greedy(struct ob_model *model, bool together, int32_t ids[SESSIONS][TOKENS],
                   float *logits)
{
    struct ob_error err = {0};
    struct ob_session *sessions[SESSIONS];
    int n_vocab = ob_model_get_info(model).n_vocab;
    for (int s = 0; s < SESSIONS; s++) {
        sessions[s] = test_session(model);
        const int32_t prompt[3] = {s + 1, 2 * s, 7};
        CHECK_OK(ob_session_append(sessions[s], prompt, 3, &err), err);
    }
    for (int t = 0; t < TOKENS; t++) {
        int32_t next[SESSIONS];
        for (int s = 0; s < SESSIONS; s++)
            next[s] = ids[s][t] = argmax(ob_session_logits(sessions[s]), n_vocab);
        if (together)
            CHECK_OK(ob_run_batch(sessions, next, SESSIONS, &err), err);
        else
            for (int s = 0; s < SESSIONS; s++)
                CHECK_OK(ob_session_append(sessions[s], &next[s], 1, &err), err);
    }
    for (int s = 0; s < SESSIONS; s++) {
        memcpy(logits + (size_t)s * (size_t)n_vocab, ob_session_logits(sessions[s]),
               (size_t)n_vocab * sizeof *logits);
        ob_session_close(sessions[s]);
    }
}

static void check_batch(const char *path)
{
    static int32_t ids[3][SESSIONS][TOKENS];
    struct ob_model_options options = {.backend = "cuda", .n_sessions = SESSIONS, .n_ctx = 256};
    struct ob_model *model = test_open(path, &options);
    size_t n = SESSIONS * (size_t)ob_model_get_info(model).n_vocab;
    float *logits[3];
    for (int i = 0; i < 3; i++) { /* alone, together, together without graphs */
        logits[i] = malloc(n * sizeof *logits[i]);
        assert_non_null(logits[i]);
        ((struct cuda_engine *)model->engine)->use_graphs = i < 2;
        greedy(model, i > 0, ids[i], logits[i]);
    }
    for (int i = 1; i < 3; i++) {
        assert_memory_equal(ids[0], ids[i], sizeof ids[0]);
        assert_memory_equal(logits[0], logits[i], n * sizeof *logits[0]);
    }
    for (int i = 0; i < 3; i++)
        free(logits[i]);
    ob_model_close(model);
}

static void test_batch(void **state)
{
    (void)state;
    check_batch(path_of("qwen3-q1", "model.gguf"));
    check_batch(path_of("qwen35-q1", "model.gguf"));
    check_batch(DEMO);
}

static bool has_gpu(void)
{
    struct ob_model_options options = {.backend = "cuda", .n_ctx = 64};
    struct ob_error err;
    struct ob_model *model;
    ob_status status = ob_model_open(DEMO, &options, &model, &err);
    if (status == OB_UNSUPPORTED)
        print_message("skipped: %s\n", err.message);
    if (status == OB_OK)
        ob_model_close(model);
    return status != OB_UNSUPPORTED;
}

int main(void)
{
    if (!has_gpu())
        return 77;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_golden),
        cmocka_unit_test(test_int8),
        cmocka_unit_test(test_batch),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
