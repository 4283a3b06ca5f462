/* The thread team: everybody runs, barriers hold, ranges cover. */
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#include "base/pool.h"
#include "support/check.h"

enum { PHASES = 200 };

struct job {
    atomic_int inside[PHASES]; /* members that reached each phase */
    atomic_int late;           /* a member saw a phase before everybody had left the one before */
};

static void walk(const struct ob_worker *worker, void *context)
{
    struct job *job = context;
    for (int p = 0; p < PHASES; p++) {
        atomic_fetch_add(&job->inside[p], 1);
        ob_pool_barrier(worker);
        if (atomic_load(&job->inside[p]) != worker->n_workers)
            atomic_fetch_add(&job->late, 1);
    }
}

static void test_barriers(void **state)
{
    (void)state;
    static const int sizes[] = {1, 2, 3, 8};
    for (size_t i = 0; i < 4; i++) {
        struct ob_error err = {0};
        struct ob_pool *pool;
        CHECK_OK(ob_pool_create(sizes[i], &pool, &err), err);
        assert_int_equal(ob_pool_size(pool), sizes[i]);
        for (int run = 0; run < 20; run++) {
            struct job job;
            memset(&job, 0, sizeof job);
            ob_pool_run(pool, walk, &job);
            for (int p = 0; p < PHASES; p++)
                assert_int_equal(atomic_load(&job.inside[p]), sizes[i]);
            assert_int_equal(atomic_load(&job.late), 0);
        }
        ob_pool_destroy(pool);
    }
}

static void test_ranges(void **state)
{
    (void)state;
    for (int n_workers = 1; n_workers <= 9; n_workers++)
        for (size_t n = 0; n < 100; n++)
            for (size_t grain = 1; grain <= 16; grain += 5) {
                size_t expected = 0;
                for (int i = 0; i < n_workers; i++) {
                    struct ob_worker worker = {NULL, i, n_workers};
                    size_t first, last;
                    ob_worker_range(&worker, n, grain, &first, &last);
                    assert_int_equal(first, expected);
                    assert_true(last >= first && (first % grain == 0 || first == n));
                    expected = last;
                }
                assert_int_equal(expected, n);
            }
}

static void test_bad_sizes(void **state)
{
    (void)state;
    struct ob_error err = {0};
    struct ob_pool *pool;
    assert_int_equal(ob_pool_create(0, &pool, &err), OB_INVALID_ARGUMENT);
    assert_int_equal(ob_pool_create(100000, &pool, &err), OB_INVALID_ARGUMENT);
    ob_pool_destroy(NULL);
}

static void nothing(int signal_number)
{
    (void)signal_number;
}

static void nobody_walks(const struct ob_worker *worker, void *context)
{
    (void)worker;
    (void)context;
}

/* A signal to the process that the program's threads all block stays pending: no thread of the team
 * takes it. Faults and the mask of the caller are left alone. */
static void test_signals(void **state)
{
    (void)state;
    struct ob_error err = {0};
    struct ob_pool *pool;
    sigset_t usr, before, after, pending;
    CHECK_OK(ob_pool_create(4, &pool, &err), err);
    pthread_sigmask(SIG_BLOCK, NULL, &before);
    assert_false(sigismember(&before, SIGUSR1));
    signal(SIGUSR1, nothing);
    sigemptyset(&usr);
    sigaddset(&usr, SIGUSR1);
    pthread_sigmask(SIG_BLOCK, &usr, NULL);
    kill(getpid(), SIGUSR1);
    ob_pool_run(pool, nobody_walks, NULL);
    sigpending(&pending);
    assert_true(sigismember(&pending, SIGUSR1));
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_sigmask(SIG_BLOCK, NULL, &after);
    assert_false(sigismember(&after, SIGUSR1));
    signal(SIGUSR1, SIG_DFL);
    ob_pool_destroy(pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_barriers),
        cmocka_unit_test(test_ranges),
        cmocka_unit_test(test_bad_sizes),
        cmocka_unit_test(test_signals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
