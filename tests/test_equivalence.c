/* The same tokens give the same bytes, whatever the chunk size, the number of threads, the way they
 * were read (scored, appended, generated) or what was read and taken back in between. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cpu.h"
#include "run/session.h"
#include "support/check.h"
#include "support/models.h"

static const char *const models[] = {TEST_DATA "/qwen3-q1/model.gguf",
                                     TEST_DATA "/qwen35-q1/model.gguf",
                                     TEST_DATA "/qwen35-head256/model.gguf", NULL};

/* Pages end at 8, 136 and 264 tokens. Sanitizers see the first only: they are fifty times slower, and
 * the release build does all three. */
#if defined(__SANITIZE_THREAD__)
enum { N_IDS = 12 };
#elif defined(__SANITIZE_ADDRESS__)
enum { N_IDS = 40 };
#else
enum { N_IDS = 300 };
#endif

static void make_ids(int32_t *ids, size_t n, uint32_t seed)
{
    for (size_t i = 0; i < n; i++) {
        seed = seed * 1664525u + 1013904223u;
        ids[i] = (int32_t)(seed >> 8) % 1000;
    }
}

/* One way to read the same tokens. */
struct way {
    size_t chunk;
    int threads;
    const char *level;
};

static float *all_logits(const char *path, const struct way *way, enum ob_kv_type kv,
                         enum ob_activation activation, const int32_t *ids, size_t n_ids,
                         size_t *n_vocab)
{
    struct ob_model_options options = test_exact(way->chunk, way->threads);
    options.kv_type = kv;
    options.activation = activation;
    options.cpu_level = way->level;
    struct ob_model *model = test_open(path, &options);
    struct ob_session *session = test_session(model);
    *n_vocab = (size_t)ob_model_get_info(model).n_vocab;
    float *out = test_logits(session, ids, n_ids, *n_vocab);
    ob_session_close(session);
    ob_model_close(model);
    return out;
}

/* All ways give the bytes of the first. */
static void check_ways(const char *path, enum ob_kv_type kv, enum ob_activation activation,
                       const int32_t *ids, size_t n_ids)
{
    static const struct way ways[] = {{64, 1, "ref"}, {1, 2, NULL},   {7, 2, NULL},
                                      {512, 1, NULL}, {512, 3, NULL}, {7, 2, "ref"}};
    size_t n_vocab, n;
    float *expected = all_logits(path, &ways[0], kv, activation, ids, n_ids, &n_vocab);
    for (size_t w = 1; w < sizeof ways / sizeof *ways; w++) {
        float *got = all_logits(path, &ways[w], kv, activation, ids, n_ids, &n);
        CHECK(memcmp(got, expected, n_ids * n_vocab * sizeof *got) == 0,
              "%s, kv %d, activation %d: chunk %zu, %d threads, level %s differ", path, (int)kv,
              (int)activation, ways[w].chunk, ways[w].threads,
              ways[w].level ? ways[w].level : "auto");
        free(got);
    }
    free(expected);
}

static void test_chunks_threads_levels(void **state)
{
    (void)state;
    int32_t ids[N_IDS];
    make_ids(ids, N_IDS, 1);
    for (int m = 0; models[m]; m++) {
        check_ways(models[m], OB_KV_F16, OB_ACT_INT8, ids, N_IDS);
        check_ways(models[m], OB_KV_F32, OB_ACT_F32, ids, N_IDS);
        check_ways(models[m], OB_KV_Q8, OB_ACT_INT8, ids, N_IDS);
        check_ways(models[m], OB_KV_Q4, OB_ACT_INT8, ids, N_IDS);
    }
    /* The other formats' products. */
    check_ways(TEST_DATA "/qwen35-q2g64/model.gguf", OB_KV_F16, OB_ACT_INT8, ids,
               N_IDS < 40 ? N_IDS : 40);
    check_ways(TEST_DATA "/qwen3-q2g128/model.gguf", OB_KV_F32, OB_ACT_INT8, ids,
               N_IDS < 40 ? N_IDS : 40);
    check_ways(TEST_DATA "/qwen35-q4-tied/model.gguf", OB_KV_F16, OB_ACT_INT8, ids,
               N_IDS < 40 ? N_IDS : 40);
}

/* Logits after ids [n] in a session that never held anything else. */
static void cold(struct ob_model *model, const int32_t *ids, size_t n, float *out, size_t n_vocab)
{
    struct ob_error err = {0};
    struct ob_session *session = test_session(model);
    CHECK_OK(ob_session_append(session, ids, n, &err), err);
    memcpy(out, ob_session_logits(session), n_vocab * sizeof *out);
    ob_session_close(session);
}

static void check_session(struct ob_model *model, struct ob_session *session, const int32_t *ids,
                          size_t n, const char *what)
{
    size_t n_vocab = (size_t)ob_model_get_info(model).n_vocab;
    float *expected = malloc(n_vocab * sizeof *expected);
    assert_non_null(expected);
    cold(model, ids, n, expected, n_vocab);
    assert_int_equal(ob_session_length(session), n);
    assert_memory_equal(ob_session_ids(session), ids, n * sizeof *ids);
    CHECK(memcmp(ob_session_logits(session), expected, n_vocab * sizeof *expected) == 0,
          "%s: logits differ from a cold run of %zu tokens", what, n);
    free(expected);
}

/* Nothing is packed for the first 136 positions; what is packed then shows. */
static void test_q4_starts_exact(void **state)
{
    (void)state;
    const struct way way = {64, 2, NULL};
    size_t n_vocab, exact = N_IDS < 136 ? N_IDS : 136;
    int32_t ids[N_IDS];
    make_ids(ids, N_IDS, 8);
    for (int m = 0; models[m]; m++) {
        float *f32 = all_logits(models[m], &way, OB_KV_F32, OB_ACT_INT8, ids, N_IDS, &n_vocab);
        float *q4 = all_logits(models[m], &way, OB_KV_Q4, OB_ACT_INT8, ids, N_IDS, &n_vocab);
        assert_memory_equal(q4, f32, exact * n_vocab * sizeof *q4);
        for (size_t p = exact; p < N_IDS; p++)
            assert_memory_not_equal(q4 + p * n_vocab, f32 + p * n_vocab, n_vocab * sizeof *q4);
        free(f32);
        free(q4);
    }
}

/* Sink, packed and exact tokens add up to the length, and only whole pages that are there are packed. */
static void check_regions(const struct ob_session *session)
{
    size_t length = ob_session_length(session), sink = length < 8 ? length : 8;
    const struct ob_page_table *pages = &session->state->pages;
    size_t quantised = pages->exact_from - 8, residual = length - sink - quantised;
    assert_int_equal(session->state->length, length);
    assert_int_equal(sink + quantised + residual, length);
    assert_int_equal(quantised % 128, 0);
    assert_true(quantised / 128 <= pages->n_ids);
    assert_true(residual <= 128);
}

/* Reads and ways back of random lengths end in what a cold run has, for every type of cache. */
static void test_walks(void **state)
{
    (void)state;
    int32_t ids[400];
    make_ids(ids, 400, 9);
    for (int m = 0; models[m]; m++)
        for (int kv = OB_KV_F16; kv <= OB_KV_Q4; kv++) {
            struct ob_error err = {0};
            uint32_t seed = 10;
            struct ob_model_options options = {.kv_type = (enum ob_kv_type)kv,
                                               .n_threads = 2,
                                               .chunk = 150,
                                               .n_ctx = 400,
                                               .n_sessions = 2};
            struct ob_model *model = test_open(models[m], &options);
            struct ob_session *session = test_session(model);
            for (int i = 0; i < 12; i++) {
                seed = seed * 1664525u + 1013904223u;
                size_t held = ob_session_length(session), to = 1 + (seed >> 8) % 400;
                if (i == 6)
                    to = 136; /* where a page ends */
                CHECK_OK(to < held ? ob_session_rollback(session, to, &err)
                                   : ob_session_append(session, ids + held, to - held, &err),
                         err);
                if (kv == OB_KV_Q4)
                    check_regions(session);
                if (i % 3 == 0)
                    check_session(model, session, ids, to, "a walk");
            }
            ob_session_close(session);
            ob_model_close(model);
        }
}

/* What a park counts: the session's own memory, and the pool's pages that it holds. */
static void check_bytes(const struct ob_session *session)
{
    const struct ob_model *m = session->model;
    const struct cpu_engine *e = (const struct cpu_engine *)m->engine;
    size_t own = m->engine->backend->memory(m->engine).state_bytes +
                 session->length * sizeof *session->ids +
                 (size_t)m->plan->n_vocab * sizeof *session->logits +
                 session->checkpoints.n * ob_checkpoints_bytes(&session->checkpoints);
    size_t page = 2 * (size_t)e->pages.n_kv_layers * e->pages.page_bytes;
    assert_int_equal(ob_session_bytes(session), own + session->state->pages.n_ids * page);
}

/* What a session says it could keep is what a sync then keeps, and the reason given is the model's. */
static void test_usable_is_kept(void **state)
{
    (void)state;
    int32_t ids[400];
    make_ids(ids, 400, 9);
    for (int m = 0; models[m]; m++)
        for (int kv = OB_KV_F16; kv <= OB_KV_Q4; kv++) {
            struct ob_error err = {0};
            struct ob_model_options options = {
                .kv_type = (enum ob_kv_type)kv, .n_threads = 2, .n_ctx = 400};
            struct ob_model *model = test_open(models[m], &options);
            struct ob_session *session = test_session(model);
            static const size_t lengths[] = {300, 290, 264, 200, 137, 136, 9, 300, 8, 5, 5};
            for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
                struct ob_sync_report report;
                size_t common, usable = ob_session_usable(session, ids, lengths[i], &common);
                CHECK_OK(ob_session_sync(session, ids, lengths[i], &report, &err), err);
                CHECK(report.n_reused == usable, "%s, cache %d: %zu of %zu reused, said %zu",
                      models[m], kv, report.n_reused, lengths[i], usable);
                bool prefix = lengths[i] == report.n_common && report.n_common < report.n_held;
                CHECK(!prefix || !strstr(report.reason, "differ"), "%s", report.reason);
                check_bytes(session);
                bool recurrent = session->checkpoints.fixed_floats > 0;
                CHECK(recurrent || !strstr(report.reason, "recurrent"), "%s: %s", models[m],
                      report.reason);
            }
            ob_session_close(session);
            ob_model_close(model);
        }
}

static void test_rollback(void **state)
{
    (void)state;
    static const size_t backs[] = {1, 2, 7, 64};
    int32_t ids[300];
    make_ids(ids, 300, 2);
    for (int m = 0; models[m]; m++) {
        struct ob_error err = {0};
        struct ob_model_options options = test_exact(64, 2);
        options.n_sessions = 2;
        struct ob_model *model = test_open(models[m], &options);
        struct ob_session *session = test_session(model);
        CHECK_OK(ob_session_append(session, ids, 300, &err), err);
        size_t length = 300;
        for (size_t i = 0; i < 4; i++) {
            length -= backs[i];
            CHECK_OK(ob_session_rollback(session, length, &err), err);
            check_session(model, session, ids, length, "roll-back");
        }
        /* Go on from there along another way, token by token. */
        int32_t other[300];
        memcpy(other, ids, sizeof other);
        make_ids(other + length, 300 - length, 3);
        for (size_t i = length; i < 300; i++)
            CHECK_OK(ob_session_append(session, other + i, 1, &err), err);
        check_session(model, session, other, 300, "after roll-back");
        CHECK_OK(ob_session_rollback(session, 0, &err), err);
        assert_int_equal(ob_session_length(session), 0);
        assert_null(ob_session_logits(session));
        ob_session_close(session);
        ob_model_close(model);
    }
}

static void test_sync(void **state)
{
    (void)state;
    int32_t ids[200], other[200];
    make_ids(ids, 200, 4);
    memcpy(other, ids, sizeof other);
    other[150] = (ids[150] + 1) % 1000;
    for (int m = 0; models[m]; m++) {
        struct ob_error err = {0};
        struct ob_sync_report report;
        struct ob_model_options options = test_exact(64, 2);
        options.n_sessions = 2;
        struct ob_model *model = test_open(models[m], &options);
        struct ob_session *session = test_session(model);
        CHECK_OK(ob_session_sync(session, ids, 100, &report, &err), err);
        assert_int_equal(report.n_read, 100);
        CHECK_OK(ob_session_sync(session, ids, 200, &report, &err), err);
        assert_int_equal(report.n_reused, 100);
        assert_int_equal(report.n_read, 100);
        CHECK_OK(ob_session_sync(session, ids, 200, &report, &err), err);
        assert_int_equal(report.n_read, 0);
        check_session(model, session, ids, 200, "sync");
        CHECK_OK(ob_session_sync(session, other, 180, &report, &err), err);
        assert_int_equal(report.n_common, 150);
        assert_int_equal(report.held[0], ids[150]);
        assert_int_equal(report.wanted[0], other[150]);
        /* models[m] is recurrent from 1 on: the end of the first prompt left a checkpoint */
        assert_int_equal(report.n_reused, m == 0 ? 150 : 100);
        check_session(model, session, other, 180, "sync to another way");
        ob_session_close(session);
        ob_model_close(model);
    }
}

static int cancel_later(void *context, size_t done, size_t total)
{
    (void)total;
    return done >= *(size_t *)context;
}

static int cancel_at_once(void *context, size_t done, size_t total)
{
    (void)context;
    (void)done;
    (void)total;
    return 1;
}

/* A roll-back or sync that is stopped before it has read again must not show logits of tokens that
 * are gone. */
static void test_cancelled_way_back(void **state)
{
    (void)state;
    int32_t ids[40], other[40];
    make_ids(ids, 40, 6);
    memcpy(other, ids, sizeof other);
    other[20] = (ids[20] + 1) % 1000;
    for (int m = 0; models[m]; m++)
        for (int sync = 0; sync < 2; sync++) {
            struct ob_error err = {0};
            struct ob_model_options options = test_exact(64, 2);
            options.n_sessions = 2;
            struct ob_model *model = test_open(models[m], &options);
            struct ob_session *session = test_session(model);
            CHECK_OK(ob_session_append(session, ids, 40, &err), err);
            ob_session_on_progress(session, cancel_at_once, NULL);
            ob_status status = sync ? ob_session_sync(session, other, 40, NULL, &err)
                                    : ob_session_rollback(session, 25, &err);
            assert_int_equal(status, OB_CANCELLED);
            assert_null(ob_session_logits(session));
            struct ob_generated result;
            assert_int_equal(ob_generate(session, NULL, NULL, NULL, &result, &err),
                             OB_INVALID_ARGUMENT);
            ob_session_on_progress(session, NULL, NULL);
            CHECK_OK(ob_session_sync(session, other, 40, NULL, &err), err);
            check_session(model, session, other, 40, "after a cancelled way back");
            ob_session_close(session);
            ob_model_close(model);
        }
}

/* Whatever way back was stopped, wanting just what is left, by a sync or a roll-back, gives logits. */
static void test_logits_come_back(void **state)
{
    (void)state;
    int32_t ids[40];
    make_ids(ids, 40, 7);
    for (int m = 0; models[m]; m++)
        for (int sync = 0; sync < 2; sync++) {
            struct ob_error err = {0};
            struct ob_sync_report report;
            struct ob_model_options options = test_exact(8, 2);
            options.n_sessions = 2;
            struct ob_model *model = test_open(models[m], &options);
            struct ob_session *session = test_session(model);
            CHECK_OK(ob_session_append(session, ids, 40, &err), err);
            ob_session_on_progress(session, cancel_at_once, NULL);
            assert_int_equal(ob_session_rollback(session, 20, &err), OB_CANCELLED);
            size_t left = ob_session_length(session);
            assert_int_equal(ob_session_sync(session, ids, 30, &report, &err), OB_CANCELLED);
            assert_int_equal(report.n_read, 0); /* not what it was about to read */
            ob_session_on_progress(session, NULL, NULL);
            assert_int_equal(left, m == 0 ? 19 : 0); /* 0: models[m] is recurrent */
            if (left == 0) {
                CHECK_OK(ob_session_sync(session, ids, left = 20, &report, &err), err);
            } else if (sync) {
                CHECK_OK(ob_session_sync(session, ids, left, &report, &err), err);
                assert_int_equal(report.n_reused, left - 1);
                assert_int_equal(report.n_read, 1);
            } else {
                CHECK_OK(ob_session_rollback(session, left, &err), err);
            }
            check_session(model, session, ids, left, "what a stopped way back left");
            ob_session_close(session);
            ob_model_close(model);
        }
}

static void test_cancel_and_limits(void **state)
{
    (void)state;
    struct ob_error err = {0};
    int32_t ids[300];
    make_ids(ids, 300, 5);
    struct ob_model_options options = test_exact(64, 2);
    options.n_ctx = 256;
    options.n_sessions = 2;
    struct ob_model *model = test_open(models[1], &options);
    struct ob_session *session = test_session(model);
    size_t limit = 100;
    ob_session_on_progress(session, cancel_later, &limit);
    assert_int_equal(ob_session_append(session, ids, 200, &err), OB_CANCELLED);
    ob_session_on_progress(session, NULL, NULL);
    check_session(model, session, ids, 128, "a cancelled read");
    assert_int_equal(ob_session_append(session, ids, 129, &err), OB_CONTEXT_FULL);
    check_session(model, session, ids, 128, "a refused read");
    CHECK_OK(ob_session_append(session, ids + 128, 128, &err), err);
    check_session(model, session, ids, 256, "a full session");
    assert_int_equal(ob_session_append(session, ids, 1, &err), OB_CONTEXT_FULL);
    int32_t bad = ob_model_get_info(model).n_vocab;
    CHECK_OK(ob_session_rollback(session, 10, &err), err);
    assert_int_equal(ob_session_append(session, &bad, 1, &err), OB_INVALID_ARGUMENT);
    bad = -1;
    assert_int_equal(ob_session_append(session, &bad, 1, &err), OB_INVALID_ARGUMENT);
    check_session(model, session, ids, 10, "after bad ids");
    ob_session_close(session);
    ob_model_close(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_chunks_threads_levels),
        cmocka_unit_test(test_q4_starts_exact),
        cmocka_unit_test(test_walks),
        cmocka_unit_test(test_usable_is_kept),
        cmocka_unit_test(test_rollback),
        cmocka_unit_test(test_sync),
        cmocka_unit_test(test_cancelled_way_back),
        cmocka_unit_test(test_logits_come_back),
        cmocka_unit_test(test_cancel_and_limits),
    };
#if defined(__SANITIZE_THREAD__) /* threads do the same in the others, for many minutes */
    cmocka_set_test_filter("test_chunks_threads_levels");
#endif
    return cmocka_run_group_tests(tests, NULL, NULL);
}
