/* Going back in a recurrent model: what is kept, what is read again, and that every way gives the
 * bytes of a session that never held anything else, however few checkpoints there is room for. */
#include <stdlib.h>
#include <string.h>

#include "run/session.h"
#include "support/check.h"
#include "support/models.h"
#include "support/rng.h"

#define RECURRENT TEST_DATA "/qwen35-q1/model.gguf"

#if defined(__SANITIZE_ADDRESS__)
enum { N_CTX = 160, N_STEPS = 12 };
#else
enum { N_CTX = 300, N_STEPS = 24 };
#endif

static void fill_ids(struct rng *rng, int32_t *ids, size_t n)
{
    for (size_t i = 0; i < n; i++)
        ids[i] = (int32_t)rng_below(rng, 1000);
}

static struct ob_model *open_model(void)
{
    struct ob_model_options options = test_exact(64, 2);
    options.n_ctx = N_CTX;
    options.n_sessions = 2;
    return test_open(RECURRENT, &options);
}

static struct ob_session *open_session(struct ob_model *model, size_t budget, size_t every)
{
    struct ob_session *session;
    struct ob_error err;
    struct ob_session_options options = {.checkpoint_bytes = budget, .checkpoint_every = every};
    CHECK_OK(ob_session_open(model, &options, &session, &err), err);
    return session;
}

/* The session holds ids [n] and the logits of a cold run of them. */
static void check_cold(struct ob_model *model, struct ob_session *session, const int32_t *ids,
                       size_t n)
{
    struct ob_error err;
    size_t bytes = (size_t)ob_model_get_info(model).n_vocab * sizeof(float);
    struct ob_session *fresh = open_session(model, 1, 0);
    assert_int_equal(ob_session_length(session), n);
    assert_memory_equal(ob_session_ids(session), ids, n * sizeof *ids);
    CHECK_OK(ob_session_append(fresh, ids, n, &err), err);
    CHECK(memcmp(ob_session_logits(session), ob_session_logits(fresh), bytes) == 0,
          "the logits of %zu tokens differ from a cold run", n);
    ob_session_close(fresh);
}

/* Random walks of syncs that keep a random part of what there is, roll-backs and appends. */
static void walk(struct ob_model *model, size_t budget, size_t every, uint64_t seed)
{
    struct rng rng = {seed};
    struct ob_error err;
    struct ob_session *session = open_session(model, budget, every);
    int32_t ids[N_CTX];
    size_t n = 0;
    for (int step = 0; step < N_STEPS; step++) {
        size_t keep = n == 0 ? 0 : rng_below(&rng, n + 1), more = 1 + rng_below(&rng, 60);
        if (keep + more > N_CTX)
            keep = N_CTX - more;
        if (rng_below(&rng, 3) == 0 && keep > 0) {
            CHECK_OK(ob_session_rollback(session, keep, &err), err);
            n = keep;
        } else if (rng_below(&rng, 2) == 0 && n + more <= N_CTX) {
            fill_ids(&rng, ids + n, more);
            CHECK_OK(ob_session_append(session, ids + n, more, &err), err);
            n += more;
        } else {
            struct ob_sync_report report;
            fill_ids(&rng, ids + keep, more);
            n = keep + more;
            CHECK_OK(ob_session_sync(session, ids, n, &report, &err), err);
            assert_int_equal(report.n_reused + report.n_read, n);
        }
        check_cold(model, session, ids, n);
    }
    ob_session_close(session);
}

/* The budget that n checkpoints need. */
static size_t room_for(struct ob_model *model, size_t n)
{
    struct ob_session *session = open_session(model, 0, 0);
    size_t floats = session->checkpoints.fixed_floats + session->checkpoints.n_logits;
    ob_session_close(session);
    return n * floats * sizeof(float);
}

static void test_walks(void **state)
{
    (void)state;
    struct ob_model *model = open_model();
    walk(model, 0, 16, 1);
    walk(model, 0, 0, 2);
    walk(model, room_for(model, 3), 16, 3); /* so that most are evicted */
    walk(model, 1, 16, 4);                  /* none */
    ob_model_close(model);
}

static void test_what_is_read_again(void **state)
{
    (void)state;
    struct rng rng = {5};
    struct ob_error err;
    struct ob_sync_report report;
    int32_t ids[N_CTX];
    fill_ids(&rng, ids, N_CTX);
    struct ob_model *model = open_model();
    struct ob_session *session = open_session(model, 0, 32);
    CHECK_OK(ob_session_sync(session, ids, 50, &report, &err), err);
    CHECK_OK(ob_session_append(session, ids + 50, 7, &err), err); /* an answer */
    /* The same prompt again reads nothing: its end left the logits too. */
    CHECK_OK(ob_session_sync(session, ids, 50, &report, &err), err);
    assert_int_equal(report.n_reused, 50);
    assert_int_equal(report.n_read, 0);
    check_cold(model, session, ids, 50);
    /* The next message leaves one where the last one ended. */
    CHECK_OK(ob_session_append(session, ids + 50, 7, &err), err);
    CHECK_OK(ob_session_sync(session, ids, 90, &report, &err), err);
    assert_int_equal(report.n_reused, 57);
    ids[60]++;
    CHECK_OK(ob_session_sync(session, ids, 70, &report, &err), err);
    assert_int_equal(report.n_common, 60);
    assert_int_equal(report.n_reused, 57);
    CHECK(strstr(report.reason, "nearest checkpoint") != NULL, "reason: %s", report.reason);
    /* The interval's. */
    ids[40]++;
    CHECK_OK(ob_session_sync(session, ids, 70, &report, &err), err);
    assert_int_equal(report.n_reused, 32);
    check_cold(model, session, ids, 70);
    /* A prefix of one that no checkpoint ends reads from the one before. */
    CHECK_OK(ob_session_sync(session, ids, 33, &report, &err), err);
    assert_int_equal(report.n_reused, 32);
    assert_int_equal(report.n_read, 1);
    ob_session_close(session);
    /* Without room for any. */
    session = open_session(model, 1, 32);
    CHECK_OK(ob_session_sync(session, ids, 50, &report, &err), err);
    CHECK_OK(ob_session_sync(session, ids, 49, &report, &err), err);
    assert_int_equal(report.n_reused, 0);
    CHECK(strstr(report.reason, "all is read again") != NULL, "reason: %s", report.reason);
    ob_session_close(session);
    ob_model_close(model);
}

/* With no room left the one goes whose loss makes the fewest tokens be read again. */
static void test_eviction(void **state)
{
    (void)state;
    static const size_t lengths[] = {30, 50, 55, 90, 100}, left[] = {30, 90, 100};
    struct rng rng = {7};
    struct ob_error err;
    struct ob_sync_report report;
    int32_t ids[N_CTX];
    fill_ids(&rng, ids, N_CTX);
    struct ob_model *model = open_model();
    struct ob_session *session = open_session(model, room_for(model, 3), 0);
    for (size_t i = 0; i < 5; i++)
        CHECK_OK(ob_session_sync(session, ids, lengths[i], NULL, &err), err);
    assert_int_equal(session->checkpoints.n, 3);
    for (size_t i = 0; i < 3; i++)
        assert_int_equal(session->checkpoints.items[i].n_tokens, left[i]);
    ids[95]++;
    CHECK_OK(ob_session_sync(session, ids, 100, &report, &err), err);
    assert_int_equal(report.n_reused, 90);
    check_cold(model, session, ids, 100);
    ids[20]++;
    CHECK_OK(ob_session_sync(session, ids, 100, &report, &err), err);
    assert_int_equal(report.n_reused, 0);
    ob_session_close(session);
    ob_model_close(model);
}

static int stop_at(void *context, size_t done, size_t total)
{
    (void)total;
    return done >= *(size_t *)context;
}

/* A read that is stopped leaves only checkpoints of what the session still holds. */
static void test_stopped(void **state)
{
    (void)state;
    struct rng rng = {6};
    struct ob_error err;
    int32_t ids[N_CTX], other[N_CTX];
    fill_ids(&rng, ids, N_CTX);
    memcpy(other, ids, sizeof other);
    fill_ids(&rng, other + 70, N_CTX - 70);
    struct ob_model *model = open_model();
    struct ob_session *session = open_session(model, 0, 16);
    CHECK_OK(ob_session_sync(session, ids, 150, NULL, &err), err);
    for (size_t limit = 0; limit < 64; limit += 16) {
        ob_session_on_progress(session, stop_at, &limit);
        assert_int_equal(ob_session_sync(session, other, 150, NULL, &err), OB_CANCELLED);
        ob_session_on_progress(session, NULL, NULL);
        size_t held = ob_session_length(session);
        CHECK(held >= 64 && held < 150, "%zu tokens are left", held);
        CHECK_OK(ob_session_sync(session, ids, 140, NULL, &err), err);
        check_cold(model, session, ids, 140);
    }
    ob_session_close(session);
    ob_model_close(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_walks),
        cmocka_unit_test(test_what_is_read_again),
        cmocka_unit_test(test_eviction),
        cmocka_unit_test(test_stopped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
