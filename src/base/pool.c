#include "base/pool.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/memory.h"
#include "base/os.h"

/* Polls before a waiter sleeps: some tens of microseconds, longer than a step of a small model and
 * far shorter than anything a person or a battery would notice. A team larger than the machine does
 * not spin at all: the one it waits for may need this very processor. */
enum { SPINS = 2000 };

/* A counter that threads wait on: spin first, then sleep on the condition variable. */
struct gate {
    atomic_uint value;
    atomic_uint sleepers;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
};

struct ob_pool {
    int n_workers;
    int n_started;
    int n_spins;
    pthread_t *threads;        /* [n_workers - 1] */
    struct ob_worker *workers; /* [n_workers] */
    struct gate start;         /* counts the runs; every thread waits for the next */
    struct gate phase;         /* counts the barriers passed */
    atomic_uint arrived;       /* members waiting at the current barrier */
    atomic_bool stop;
    void (*fn)(const struct ob_worker *, void *);
    void *context;
};

static void relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static int gate_init(struct gate *gate)
{
    atomic_init(&gate->value, 0);
    atomic_init(&gate->sleepers, 0);
    if (pthread_mutex_init(&gate->mutex, NULL) != 0)
        return -1;
    if (pthread_cond_init(&gate->changed, NULL) != 0) {
        pthread_mutex_destroy(&gate->mutex);
        return -1;
    }
    return 0;
}

static void gate_destroy(struct gate *gate)
{
    pthread_cond_destroy(&gate->changed);
    pthread_mutex_destroy(&gate->mutex);
}

/* Wait until the gate's value is no longer `seen`, polling n_spins times before sleeping. */
static void gate_wait(struct gate *gate, unsigned seen, int n_spins)
{
    for (int i = 0; i < n_spins; i++) {
        if (atomic_load_explicit(&gate->value, memory_order_acquire) != seen)
            return;
        relax();
    }
    pthread_mutex_lock(&gate->mutex);
    atomic_fetch_add(&gate->sleepers, 1);
    while (atomic_load(&gate->value) == seen)
        pthread_cond_wait(&gate->changed, &gate->mutex);
    atomic_fetch_sub(&gate->sleepers, 1);
    pthread_mutex_unlock(&gate->mutex);
}

/* Raise the value and wake whoever sleeps. A waiter either sees the new value before it sleeps or
 * is counted in `sleepers` before we read it: both are sequentially consistent. */
static void gate_open(struct gate *gate)
{
    atomic_fetch_add(&gate->value, 1);
    if (atomic_load(&gate->sleepers) == 0)
        return;
    pthread_mutex_lock(&gate->mutex);
    pthread_cond_broadcast(&gate->changed);
    pthread_mutex_unlock(&gate->mutex);
}

void ob_pool_barrier(const struct ob_worker *worker)
{
    struct ob_pool *pool = worker->pool;
    if (pool->n_workers == 1)
        return;
    unsigned phase = atomic_load_explicit(&pool->phase.value, memory_order_acquire);
    unsigned arrived = atomic_fetch_add_explicit(&pool->arrived, 1, memory_order_acq_rel) + 1;
    if (arrived == (unsigned)pool->n_workers) {
        atomic_store_explicit(&pool->arrived, 0, memory_order_relaxed);
        gate_open(&pool->phase);
    } else {
        gate_wait(&pool->phase, phase, pool->n_spins);
    }
}

static void *thread_main(void *argument)
{
    const struct ob_worker *worker = argument;
    struct ob_pool *pool = worker->pool;
    for (unsigned runs = 0;; runs++) {
        gate_wait(&pool->start, runs, pool->n_spins);
        if (atomic_load(&pool->stop))
            return NULL;
        pool->fn(worker, pool->context);
        ob_pool_barrier(worker); /* the run ends when everybody is here */
    }
}

void ob_pool_run(struct ob_pool *pool, void (*fn)(const struct ob_worker *, void *), void *context)
{
    if (pool->n_workers == 1) {
        fn(&pool->workers[0], context);
        return;
    }
    pool->fn = fn;
    pool->context = context;
    gate_open(&pool->start);
    fn(&pool->workers[0], context);
    ob_pool_barrier(&pool->workers[0]);
}

/* Signals are the program's business: its handlers run in its own threads, which may wait for just
 * that. Faults stay where they happen, so that a handler can say so. Gives the caller's mask. */
static sigset_t block_signals(void)
{
    static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL};
    sigset_t all, old;
    sigfillset(&all);
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++)
        sigdelset(&all, faults[i]);
    pthread_sigmask(SIG_BLOCK, &all, &old);
    return old;
}

static ob_status start_threads(struct ob_pool *pool, struct ob_error *err)
{
    sigset_t old = block_signals(); /* a thread starts with its maker's mask */
    int failed = 0;
    for (int i = 1; i < pool->n_workers && !failed; i++) {
        failed = pthread_create(&pool->threads[i - 1], NULL, thread_main, &pool->workers[i]);
        pool->n_started += !failed;
    }
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (failed)
        return ob_fail(err, OB_NO_MEMORY, "cannot start thread %d of %d", pool->n_started + 2,
                       pool->n_workers);
    return OB_OK;
}

static ob_status init_gates(struct ob_pool *pool, struct ob_error *err)
{
    if (gate_init(&pool->start) == 0) {
        if (gate_init(&pool->phase) == 0)
            return OB_OK;
        gate_destroy(&pool->start);
    }
    return ob_fail(err, OB_NO_MEMORY, "cannot make the thread team's locks");
}

ob_status ob_pool_create(int n_threads, struct ob_pool **out, struct ob_error *err)
{
    if (n_threads < 1 || n_threads > 1024)
        return ob_fail(err, OB_INVALID_ARGUMENT, "%d threads: must be 1 to 1024", n_threads);
    struct ob_pool *pool = ob_calloc(1, sizeof *pool);
    if (!pool)
        return ob_fail_memory(err, sizeof *pool, "the thread team");
    pool->n_workers = n_threads;
    pool->n_spins = n_threads <= ob_os_n_cores() ? SPINS : 0;
    pool->threads = ob_calloc((size_t)n_threads, sizeof *pool->threads);
    pool->workers = ob_calloc((size_t)n_threads, sizeof *pool->workers);
    ob_status status = pool->threads && pool->workers
                           ? init_gates(pool, err)
                           : ob_fail_memory(err, (size_t)n_threads * 64, "the thread team");
    if (status != OB_OK) {
        free(pool->threads);
        free(pool->workers);
        free(pool);
        return status;
    }
    for (int i = 0; i < n_threads; i++)
        pool->workers[i] = (struct ob_worker){pool, i, n_threads};
    status = start_threads(pool, err);
    if (status != OB_OK) {
        ob_pool_destroy(pool);
        return status;
    }
    *out = pool;
    return OB_OK;
}

void ob_pool_destroy(struct ob_pool *pool)
{
    if (!pool)
        return;
    atomic_store(&pool->stop, true);
    gate_open(&pool->start);
    for (int i = 0; i < pool->n_started; i++)
        pthread_join(pool->threads[i], NULL);
    gate_destroy(&pool->start);
    gate_destroy(&pool->phase);
    free(pool->threads);
    free(pool->workers);
    free(pool);
}

int ob_pool_size(const struct ob_pool *pool)
{
    return pool->n_workers;
}

void ob_worker_range(const struct ob_worker *worker, size_t n, size_t grain, size_t *first,
                     size_t *last)
{
    size_t grains = (n + grain - 1) / grain;
    size_t each = grains / (size_t)worker->n_workers;
    size_t extra = grains % (size_t)worker->n_workers;
    size_t i = (size_t)worker->index;
    size_t from = i * each + (i < extra ? i : extra);
    size_t to = from + each + (i < extra ? 1 : 0);
    *first = from * grain < n ? from * grain : n;
    *last = to * grain < n ? to * grain : n;
}
