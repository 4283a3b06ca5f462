/* Several sessions in one run give each the bytes it would get alone, and a batch that fails leaves
 * every session usable. */
#include <stdlib.h>
#include <string.h>

#include "run/batch.h"
#include "run/session.h"
#include "support/check.h"
#include "support/models.h"

static const char *const models[] = {TEST_DATA "/qwen3-q1/model.gguf",
                                     TEST_DATA "/qwen35-q1/model.gguf",
                                     TEST_DATA "/qwen35-head256/model.gguf", NULL};

/* ThreadSanitizer makes every wait for another thread long, most of all on a machine that is shared. */
#if defined(__SANITIZE_THREAD__)
enum { MOST = 3, STEPS = 2, MOST_IDS = 160 };
#else
enum { MOST = 8, STEPS = 4, MOST_IDS = 160 };
#endif

/* The reference products are too slow to be sanitised here; test_kernels does that. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { FIRST_LEVEL = 1 };
#else
enum { FIRST_LEVEL = 0 };
#endif

/* Before the batches start: empty, inside the sink, and around the ends of its page and the next. */
static const size_t lengths[] = {5, 8, 136, 0, 20, 7, 30, 33};

/* Session `which`'s tokens. */
static void make_ids(int32_t *ids, size_t n, size_t which)
{
    uint32_t seed = 77 + (uint32_t)which;
    for (size_t i = 0; i < n; i++) {
        seed = seed * 1664525u + 1013904223u;
        ids[i] = (int32_t)(seed >> 8) % 1000;
    }
}

static struct ob_session *session_of(struct ob_model *model, const int32_t *ids, size_t n)
{
    struct ob_error err = {0};
    struct ob_session *session = test_session(model);
    CHECK_OK(ob_session_append(session, ids, n, &err), err);
    return session;
}

/* Every session alone, token by token: logits [MOST, STEPS, n_vocab] of the decoded tokens. */
static float *decode_alone(struct ob_model *model, int32_t ids[][MOST_IDS], size_t n_vocab)
{
    struct ob_error err = {0};
    float *out = malloc(MOST * STEPS * n_vocab * sizeof *out), *at = out;
    assert_non_null(out);
    for (size_t i = 0; i < MOST; i++) {
        struct ob_session *alone = session_of(model, ids[i], lengths[i]);
        for (size_t t = 0; t < STEPS; t++, at += n_vocab) {
            CHECK_OK(ob_session_append(alone, ids[i] + lengths[i] + t, 1, &err), err);
            memcpy(at, ob_session_logits(alone), n_vocab * sizeof *at);
        }
        ob_session_close(alone);
    }
    return out;
}

/* Decode the first n sessions together, the last step of each alone again: a batch leaves sessions
 * that go on as any other. */
static void compare(struct ob_model *model, int32_t ids[][MOST_IDS], const float *alone,
                    size_t n_vocab, size_t n, const char *what)
{
    struct ob_session *together[MOST];
    struct ob_error err = {0};
    for (size_t i = 0; i < n; i++)
        together[i] = session_of(model, ids[i], lengths[i]);
    for (size_t t = 0; t < STEPS; t++) {
        int32_t next[MOST];
        for (size_t i = 0; i < n; i++)
            next[i] = ids[i][lengths[i] + t];
        if (t + 1 < STEPS)
            CHECK_OK(ob_run_batch(together, next, n, &err), err);
        for (size_t i = 0; i < n; i++) {
            size_t length = lengths[i] + t + 1;
            if (t + 1 == STEPS)
                CHECK_OK(ob_session_append(together[i], &next[i], 1, &err), err);
            assert_int_equal(ob_session_length(together[i]), length);
            assert_memory_equal(ob_session_ids(together[i]), ids[i], length * sizeof(int32_t));
            CHECK(memcmp(ob_session_logits(together[i]), alone + (i * STEPS + t) * n_vocab,
                         n_vocab * sizeof(float)) == 0,
                  "%s: session %zu in a batch of %zu differs after %zu tokens", what, i, n, length);
        }
    }
    for (size_t i = 0; i < n; i++)
        ob_session_close(together[i]);
}

static void compare_sizes(struct ob_model *model, const char *what)
{
    static const size_t sizes[] = {1, 3, MOST};
    int32_t ids[MOST][MOST_IDS];
    size_t n_vocab = (size_t)ob_model_get_info(model).n_vocab;
    for (size_t i = 0; i < MOST; i++)
        make_ids(ids[i], MOST_IDS, i);
    float *alone = decode_alone(model, ids, n_vocab);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        compare(model, ids, alone, n_vocab, sizes[i], what);
    free(alone);
}

static void test_equal_bytes(void **state)
{
    (void)state;
    static const char *const levels[] = {"ref", "auto"};
    for (int m = 0; models[m]; m++)
        for (int act = OB_ACT_F32; act <= OB_ACT_INT8; act++)
            for (int l = FIRST_LEVEL; l < 2; l++) {
                struct ob_model_options options = {.cpu_level = levels[l],
                                                   .activation = (enum ob_activation)act,
                                                   .n_threads = 2,
                                                   .n_ctx = 512,
                                                   .n_sessions = MOST + 1};
                struct ob_model *model = test_open(models[m], &options);
                compare_sizes(model, models[m]);
                ob_model_close(model);
            }
}

static struct ob_model *open_small(int m, size_t n_sessions)
{
    struct ob_model_options options = {.n_threads = 1, .n_ctx = 64, .n_sessions = n_sessions};
    return test_open(models[m], &options);
}

/* The sessions hold what they held: their tokens and the logits after them. */
static void check_untouched(struct ob_session *const *sessions, size_t n, const size_t *held,
                            float *const *logits, size_t n_vocab)
{
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(ob_session_length(sessions[i]), held[i]);
        assert_memory_equal(ob_session_logits(sessions[i]), logits[i], n_vocab * sizeof(float));
    }
}

static void test_refusals(void **state)
{
    (void)state;
    struct ob_error err = {0};
    struct ob_model *model = open_small(0, 3), *other = open_small(0, 1);
    int32_t ids[64];
    make_ids(ids, 64, 0);
    struct ob_session *full = session_of(model, ids, 64), *half = session_of(model, ids, 32);
    struct ob_session *foreign = session_of(other, ids, 3);
    size_t n_vocab = (size_t)ob_model_get_info(model).n_vocab;
    size_t held[2] = {32, 64};
    float *logits[2];
    struct ob_session *sessions[2] = {half, full};
    for (int i = 0; i < 2; i++) {
        logits[i] = malloc(n_vocab * sizeof(float));
        assert_non_null(logits[i]);
        memcpy(logits[i], ob_session_logits(sessions[i]), n_vocab * sizeof(float));
    }
    int32_t good[2] = {1, 2}, bad[2] = {1, (int32_t)n_vocab}, negative[1] = {-1};
    struct ob_session *twice[2] = {half, half}, *mixed[2] = {half, foreign};
    assert_int_equal(ob_run_batch(sessions, good, 0, &err), OB_INVALID_ARGUMENT);
    assert_int_equal(ob_run_batch(sessions, good, ob_run_batch_most(model) + 1, &err),
                     OB_INVALID_ARGUMENT);
    assert_int_equal(ob_run_batch(twice, good, 2, &err), OB_INVALID_ARGUMENT);
    assert_int_equal(ob_run_batch(mixed, good, 2, &err), OB_INVALID_ARGUMENT);
    assert_int_equal(ob_run_batch(sessions, bad, 2, &err), OB_INVALID_ARGUMENT);
    assert_int_equal(ob_run_batch(sessions, negative, 1, &err), OB_INVALID_ARGUMENT);
    assert_int_equal(ob_run_batch(sessions, good, 2, &err), OB_CONTEXT_FULL);
    check_untouched(sessions, 2, held, logits, n_vocab);
    for (int i = 0; i < 2; i++) {
        free(logits[i]);
        ob_session_close(sessions[i]);
    }
    ob_session_close(foreign);
    ob_model_close(other);
    ob_model_close(model);
}

/* The shared pool has pages for some of the sessions only: nobody gets one, and a smaller batch still
 * finds them. */
static void test_pool_runs_out(void **state)
{
    (void)state;
    struct ob_error err = {0};
    struct ob_model *model = open_small(0, 1);
    struct ob_session *sessions[MOST];
    int32_t ids[16], next[MOST] = {0};
    make_ids(ids, 16, 0);
    for (int i = 0; i < MOST; i++) /* just the sink, which is the session's own */
        sessions[i] = session_of(model, ids, 8);
    for (int i = 0; i < 3; i++)
        assert_int_equal(ob_run_batch(sessions, next, MOST, &err), OB_CONTEXT_FULL);
    for (int i = 0; i < MOST; i++) {
        assert_int_equal(ob_session_length(sessions[i]), 8);
        assert_non_null(ob_session_logits(sessions[i]));
    }
    CHECK_OK(ob_run_batch(sessions + MOST - 1, next, 1, &err), err);
    for (int i = 0; i < MOST; i++)
        ob_session_close(sessions[i]);
    ob_model_close(model);
}

/* A backend whose runs or reads fail when asked to. */
static const struct ob_backend *real;
static int fail_run, fail_read; /* the n-th call from now, 0: none */

static ob_status run_or_fail(struct ob_engine *engine, const struct ob_batch *batch,
                             struct ob_error *err)
{
    if (fail_run && --fail_run == 0)
        return ob_fail(err, OB_IO_ERROR, "the device is lost");
    return real->run(engine, batch, err);
}

static ob_status read_or_fail(struct ob_engine *engine, int value, size_t first_row, size_t n_rows,
                              float *out, struct ob_error *err)
{
    if (fail_read && --fail_read == 0)
        return ob_fail(err, OB_IO_ERROR, "the device is lost");
    return real->read(engine, value, first_row, n_rows, out, err);
}

/* Whatever the ledgers hold afterwards, syncing to the wanted tokens gives what a session alone has. */
static void check_recovery(struct ob_model *model, struct ob_session *const *sessions,
                           int32_t ids[][MOST_IDS], const size_t *held, size_t n)
{
    struct ob_error err = {0};
    size_t n_vocab = (size_t)ob_model_get_info(model).n_vocab;
    for (size_t i = 0; i < n; i++) {
        CHECK(ob_session_length(sessions[i]) <= held[i], "session %zu is ahead", i);
        CHECK_OK(ob_session_sync(sessions[i], ids[i], held[i] + 1, NULL, &err), err);
        struct ob_session *alone = session_of(model, ids[i], held[i] + 1);
        assert_memory_equal(ob_session_logits(sessions[i]), ob_session_logits(alone),
                            n_vocab * sizeof(float));
        ob_session_close(alone);
    }
}

static void test_failing_backend(void **state)
{
    (void)state;
    static const struct {
        int run, read;
    } faults[] = {{1, 0}, {0, 1}, {0, 2}, {0, 3}};
    static const size_t held[3] = {4, 8, 20};
    for (int m = 0; models[m]; m++)
        for (size_t f = 0; f < sizeof faults / sizeof *faults; f++) {
            struct ob_error err = {0};
            struct ob_model *model = open_small(m, 4);
            struct ob_session *sessions[3];
            int32_t ids[3][MOST_IDS], next[3];
            for (size_t i = 0; i < 3; i++) {
                make_ids(ids[i], MOST_IDS, i);
                sessions[i] = session_of(model, ids[i], held[i]);
                next[i] = ids[i][held[i]];
            }
            real = model->engine->backend;
            struct ob_backend faulty = *real;
            faulty.run = run_or_fail;
            faulty.read = read_or_fail;
            model->engine->backend = &faulty;
            fail_run = faults[f].run;
            fail_read = faults[f].read;
            assert_int_equal(ob_run_batch(sessions, next, 3, &err), OB_IO_ERROR);
            assert_int_equal(fail_run + fail_read, 0);
            check_recovery(model, sessions, ids, held, 3);
            model->engine->backend = real;
            for (size_t i = 0; i < 3; i++)
                ob_session_close(sessions[i]);
            ob_model_close(model);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_equal_bytes),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_pool_runs_out),
        cmocka_unit_test(test_failing_backend),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
