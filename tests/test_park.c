/* Copies of sessions and parked ones: whoever shares pages with whom, every session answers with the
 * bytes of one that read its tokens alone, and what was read once is not read again. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "run/batch.h"
#include "run/park.h"
#include "run/session.h"
#include "support/check.h"
#include "support/models.h"
#include "support/rng.h"

#define DENSE     TEST_DATA "/qwen3-q1/model.gguf"
#define RECURRENT TEST_DATA "/qwen35-q1/model.gguf"

#if defined(__SANITIZE_ADDRESS__) /* some twenty times slower */
static const char *const models[] = {RECURRENT};
static const enum ob_kv_type kv_types[] = {OB_KV_F16};
static const size_t lengths[] = {9, 137}, batches[] = {3};
enum { TALKS = 2, TURNS = 2 };
#else
static const char *const models[] = {DENSE, RECURRENT};
static const enum ob_kv_type kv_types[] = {OB_KV_F16, OB_KV_F32, OB_KV_Q8, OB_KV_Q4};
static const size_t lengths[] = {9, 136, 300}, batches[] = {1, 2, 3, 8};
enum { TALKS = 3, TURNS = 3 };
#endif

#define N_MODELS (sizeof models / sizeof *models)
#define N_KV     (sizeof kv_types / sizeof *kv_types)

enum { N_CTX = 420, N_SESSIONS = 6 };

static void fill_ids(struct rng *rng, int32_t *ids, size_t n)
{
    for (size_t i = 0; i < n; i++)
        ids[i] = (int32_t)rng_below(rng, 1000);
}

static struct ob_model *open_model(const char *path, enum ob_kv_type kv, size_t n_sessions)
{
    struct ob_model_options options = test_exact(64, 1);
    options.n_ctx = N_CTX;
    options.n_sessions = n_sessions;
    options.kv_type = kv;
    return test_open(path, &options);
}

static struct ob_session *fork_of(const struct ob_session *from)
{
    struct ob_error err;
    struct ob_session *session;
    CHECK_OK(ob_session_fork(from, &session, &err), err);
    return session;
}

/* The session holds ids [n], with the logits of a cold run. */
static void check_cold(struct ob_model *model, struct ob_session *session, const int32_t *ids,
                       size_t n)
{
    struct ob_error err;
    size_t bytes = (size_t)ob_model_get_info(model).n_vocab * sizeof(float);
    struct ob_session *fresh = test_session(model);
    assert_int_equal(ob_session_length(session), n);
    assert_memory_equal(ob_session_ids(session), ids, n * sizeof *ids);
    CHECK_OK(ob_session_append(fresh, ids, n, &err), err);
    CHECK(memcmp(ob_session_logits(session), ob_session_logits(fresh), bytes) == 0,
          "the logits of %zu tokens differ from a cold run", n);
    ob_session_close(fresh);
}

/* Cut both at many places and read on: neither sees what the other writes. */
static void check_forks(const char *path, enum ob_kv_type kv)
{
    struct rng rng = {kv + 1};
    struct ob_error err;
    int32_t ids[N_CTX], other[N_CTX];
    struct ob_model *model = open_model(path, kv, 4);
    fill_ids(&rng, ids, N_CTX);
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        size_t n = lengths[i], cut = rng_below(&rng, n + 1), more = 1 + rng_below(&rng, 60);
        struct ob_session *one = test_session(model);
        CHECK_OK(ob_session_append(one, ids, n, &err), err);
        struct ob_session *two = fork_of(one);
        check_cold(model, two, ids, n);
        memcpy(other, ids, sizeof other);
        fill_ids(&rng, other + cut, N_CTX - cut);
        CHECK_OK(ob_session_sync(two, other, cut + more, NULL, &err), err);
        CHECK_OK(ob_session_append(one, ids + n, more, &err), err);
        check_cold(model, two, other, cut + more);
        check_cold(model, one, ids, n + more);
        /* A copy outlives what it was made from. */
        struct ob_session *three = fork_of(two);
        ob_session_close(two);
        CHECK_OK(ob_session_append(three, other + cut + more, 20, &err), err);
        check_cold(model, three, other, cut + more + 20);
        ob_session_close(three);
        ob_session_close(one);
    }
    ob_model_close(model);
}

static void test_forks(void **state)
{
    (void)state;
    for (size_t m = 0; m < N_MODELS; m++)
        for (size_t k = 0; k < N_KV; k++)
            check_forks(models[m], kv_types[k]);
}

static void check_cold_elsewhere(const int32_t *ids, size_t n, struct ob_session *session)
{
    struct ob_model *model = open_model(DENSE, OB_KV_F16, 1);
    check_cold(model, session, ids, n);
    ob_model_close(model);
}

/* Copies share: a pool for two sessions holds six that have a long prefix in common, and a copy that no
 * longer finds pages is refused with nothing taken. */
static void test_shared_pages(void **state)
{
    (void)state;
    struct rng rng = {3};
    struct ob_error err;
    int32_t ids[N_CTX];
    fill_ids(&rng, ids, N_CTX);
    struct ob_model *model = open_model(DENSE, OB_KV_F16, 2);
    struct ob_session *all[N_SESSIONS] = {test_session(model)};
    CHECK_OK(ob_session_append(all[0], ids, 300, &err), err); /* 3 of the pool's 9 pages */
    for (size_t i = 1; i < N_SESSIONS; i++)
        all[i] = fork_of(all[0]); /* one page each, for the part that is not full */
    for (size_t i = 0; i < N_SESSIONS; i++) {
        int32_t id = (int32_t)i;
        CHECK_OK(ob_session_append(all[i], &id, 1, &err), err);
    }
    for (size_t i = 0; i < N_SESSIONS; i++) {
        ids[300] = (int32_t)i;
        check_cold_elsewhere(ids, 301, all[i]);
    }
    struct ob_session *last = fork_of(all[0]), *none;
    assert_int_equal(ob_session_fork(all[1], &none, &err), OB_CONTEXT_FULL);
    /* To go back into a shared page and on takes a page, and there is none. */
    assert_int_equal(ob_session_rollback(all[0], 200, &err), OB_CONTEXT_FULL);
    assert_int_equal(ob_session_length(all[0]), 301);
    ob_session_close(last);
    CHECK_OK(ob_session_rollback(all[0], 200, &err), err);
    check_cold_elsewhere(ids, 200, all[0]);
    ids[300] = 1;
    CHECK_OK(ob_session_append(all[1], ids, 1, &err), err);
    for (size_t i = 0; i < N_SESSIONS; i++)
        ob_session_close(all[i]);
    /* All pages are free again: two full sessions fit. */
    for (size_t i = 0; i < 2; i++) {
        all[i] = test_session(model);
        CHECK_OK(ob_session_append(all[i], ids, N_CTX, &err), err);
    }
    ob_session_close(all[0]);
    ob_session_close(all[1]);
    ob_model_close(model);
}

/* The same session many times over in one batch, then apart. */
static void check_batch(struct ob_model *model, const int32_t *ids, size_t n, size_t n_sessions)
{
    struct ob_error err;
    struct ob_session *all[8] = {test_session(model)};
    int32_t next[8];
    CHECK_OK(ob_session_append(all[0], ids, n, &err), err);
    for (size_t i = 1; i < n_sessions; i++)
        all[i] = fork_of(all[0]);
    for (size_t step = 0; step < 10; step++) {
        for (size_t i = 0; i < n_sessions; i++)
            next[i] = ids[n + step] + (step > 5 ? (int32_t)i : 0);
        CHECK_OK(ob_run_batch(all, next, n_sessions, &err), err);
    }
    for (size_t i = 0; i < n_sessions; i++) {
        int32_t own[N_CTX];
        memcpy(own, ids, sizeof own);
        for (size_t step = 6; step < 10; step++)
            own[n + step] += (int32_t)i;
        check_cold(model, all[i], own, n + 10);
        ob_session_close(all[i]);
    }
}

static void test_batch(void **state)
{
    (void)state;
    struct rng rng = {4};
    int32_t ids[N_CTX];
    fill_ids(&rng, ids, N_CTX);
    for (size_t m = 0; m < N_MODELS; m++) {
        struct ob_model *model = open_model(models[m], OB_KV_F16, 9);
        for (size_t i = 0; i < sizeof batches / sizeof *batches; i++)
            check_batch(model, ids, 130, batches[i]);
        ob_model_close(model);
    }
}

/* ------------------------------------------------------------------------------------- parking */

/* Conversations in turn on one session: each goes on where it was left. */
static void check_turns(const char *path, enum ob_kv_type kv)
{
    enum { LAST = 90 + 70 * (TURNS - 1) + 6 };
    struct rng rng = {kv + 11};
    struct ob_error err;
    struct ob_sync_report report;
    struct ob_park *park;
    int32_t ids[TALKS][N_CTX];
    struct ob_model *model = open_model(path, kv, TALKS + 3);
    struct ob_session *session = test_session(model);
    CHECK_OK(ob_park_create(model, (size_t)1 << 30, &park, &err), err);
    ob_session_use_park(session, park);
    fill_ids(&rng, ids[0], N_CTX); /* they begin alike */
    for (size_t i = 1; i < TALKS; i++) {
        memcpy(ids[i], ids[0], sizeof ids[0]);
        fill_ids(&rng, ids[i] + 50, N_CTX - 50);
    }
    for (size_t turn = 0; turn < TURNS; turn++) {
        for (size_t i = 0; i < TALKS; i++) {
            size_t n = 90 + 70 * turn;
            CHECK_OK(ob_session_sync(session, ids[i], n, &report, &err), err);
            check_cold(model, session, ids[i], n);
            if (turn > 0) {
                assert_int_equal(report.n_reused, n - 70 + 6);
                assert_string_equal(report.source, "parked");
            }
            CHECK_OK(ob_session_append(session, ids[i] + n, 6, &err), err); /* an answer */
        }
    }
    /* The first prompt of all, which only a part of a parked session is. */
    CHECK_OK(ob_session_sync(session, ids[1], 120, &report, &err), err);
    check_cold(model, session, ids[1], 120);
    /* And what was cut for it is still there, in whole. */
    CHECK_OK(ob_session_sync(session, ids[1], LAST + 4, &report, &err), err);
    assert_int_equal(report.n_reused, LAST);
    check_cold(model, session, ids[1], LAST + 4);
    ob_session_close(session);
    ob_park_destroy(park);
    ob_model_close(model);
}

static void test_turns(void **state)
{
    (void)state;
    for (size_t m = 0; m < N_MODELS; m++)
        for (size_t k = 0; k < N_KV; k++)
            check_turns(models[m], kv_types[k]);
}

/* The budget and the pool are kept; the oldest goes first; what is asked for by hand is parked. */
static void test_limits(void **state)
{
    (void)state;
    struct rng rng = {21};
    struct ob_error err;
    struct ob_park *park;
    int32_t ids[5][N_CTX];
    struct ob_model *model = open_model(RECURRENT, OB_KV_F16, 2);
    struct ob_session *session = test_session(model);
    for (size_t i = 0; i < 5; i++)
        fill_ids(&rng, ids[i], N_CTX);
    CHECK_OK(ob_session_append(session, ids[0], 200, &err), err);
    assert_int_equal(ob_session_park(session, &err), OB_INVALID_ARGUMENT);
    CHECK_OK(ob_park_create(model, 2 * ob_session_bytes(session), &park, &err), err);
    ob_session_use_park(session, park);
    for (size_t i = 0; i < 4; i++) {
        CHECK_OK(ob_session_sync(session, ids[i], 200, NULL, &err), err);
        CHECK_OK(ob_session_rollback(session, 200, &err), err);
        session->checkpoints.n = 0; /* so that each has one size */
        CHECK_OK(ob_session_park(session, &err), err);
        assert_int_equal(ob_session_length(session), 0);
        assert_null(ob_session_logits(session));
        struct ob_park_stats stats = ob_park_get_stats(park);
        assert_int_equal(stats.n_sessions, i < 2 ? i + 1 : 2);
        assert_int_equal(stats.n_tokens, 200 * stats.n_sessions);
        assert_int_equal(stats.n_given_up, i < 2 ? 0 : i - 1);
    }
    assert_int_equal(ob_park_find(park, ids[3], 300), 200);
    assert_int_equal(ob_park_find(park, ids[2], 300), 200);
    assert_int_equal(ob_park_find(park, ids[1], 300), 0);
    /* A session that needs all pages gets them. */
    struct ob_session *other = test_session(model);
    ob_session_use_park(other, park);
    CHECK_OK(ob_session_append(session, ids[4], N_CTX, &err), err);
    CHECK_OK(ob_session_append(other, ids[4], N_CTX, &err), err);
    assert_int_equal(ob_park_get_stats(park).n_sessions, 0);
    assert_int_equal(ob_park_get_stats(park).n_bytes, 0);
    /* What is short is dropped. */
    CHECK_OK(ob_session_rollback(other, OB_PARK_LEAST - 1, &err), err);
    CHECK_OK(ob_session_park(other, &err), err);
    assert_int_equal(ob_session_length(other), 0);
    assert_int_equal(ob_park_get_stats(park).n_sessions, 0);
    ob_session_close(other);
    ob_session_close(session);
    ob_park_destroy(park);
    ob_model_close(model);
}

/* Owner threads with a session each and one park for all: what one leaves there another goes on with. */
struct owner {
    pthread_t thread;
    struct ob_session *session;
    const int32_t (*ids)[N_CTX];
    size_t which, length;
    uint64_t seed;
    ob_status status;
};

enum { OWNERS = 2, CONVERSATIONS = 3 };

static void *take_turns(void *context)
{
    struct owner *o = context;
    struct rng rng = {o->seed};
    for (size_t turn = 0; turn < 5 && o->status == OB_OK; turn++) {
        o->which = rng_below(&rng, CONVERSATIONS);
        o->length = 40 + rng_below(&rng, 50);
        o->status = ob_session_sync(o->session, o->ids[o->which], o->length, NULL, NULL);
    }
    return NULL;
}

static void test_threads(void **state)
{
    (void)state;
    static int32_t ids[CONVERSATIONS][N_CTX];
    struct rng rng = {51};
    struct ob_error err;
    struct ob_park *park;
    struct owner owners[OWNERS] = {{.seed = 1}, {.seed = 2}};
    for (size_t i = 0; i < CONVERSATIONS; i++)
        fill_ids(&rng, ids[i], N_CTX);
    struct ob_model *model = open_model(RECURRENT, OB_KV_F16, OWNERS + 1);
    CHECK_OK(ob_park_create(model, 4 << 20, &park, &err), err);
    for (size_t i = 0; i < OWNERS; i++) {
        owners[i].session = test_session(model);
        owners[i].ids = (const int32_t(*)[N_CTX])ids;
        ob_session_use_park(owners[i].session, park);
        assert_int_equal(pthread_create(&owners[i].thread, NULL, take_turns, &owners[i]), 0);
    }
    for (size_t i = 0; i < OWNERS; i++)
        pthread_join(owners[i].thread, NULL);
    assert_true(ob_park_get_stats(park).n_parked > 0);
    for (size_t i = 0; i < OWNERS; i++) {
        assert_int_equal(owners[i].status, OB_OK);
        check_cold(model, owners[i].session, ids[owners[i].which], owners[i].length);
        ob_session_close(owners[i].session);
    }
    ob_park_destroy(park);
    ob_model_close(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_threads),      cmocka_unit_test(test_forks),
        cmocka_unit_test(test_shared_pages), cmocka_unit_test(test_batch),
        cmocka_unit_test(test_turns),        cmocka_unit_test(test_limits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
