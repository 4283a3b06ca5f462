/* A team of threads that walk the same program side by side.
 *
 * Made for a list of short steps: the team enters a function together, meets at barriers between
 * the steps, and leaves together. Waiting spins for some tens of microseconds and then sleeps.
 * The team's threads take no signals but their own faults. They do not survive a fork: the child
 * must neither run nor destroy a team of its parent's. */
#ifndef OB_BASE_POOL_H
#define OB_BASE_POOL_H

#include "base/error.h"

struct ob_pool;

/* A member of the team inside ob_pool_run. */
struct ob_worker {
    struct ob_pool *pool;
    int index;     /* 0 is the caller of ob_pool_run */
    int n_workers; /* size of the team */
};

/* n_threads >= 1, counting the caller; 1 makes no thread. OB_NO_MEMORY when threads are refused. */
ob_status ob_pool_create(int n_threads, struct ob_pool **out, struct ob_error *err);
void ob_pool_destroy(struct ob_pool *pool); /* NULL is allowed */

int ob_pool_size(const struct ob_pool *pool);

/* Run fn(worker, context) on every member and return when all are done. One caller at a time;
 * allocates nothing. What the caller wrote before is visible to fn, and the other way round. */
void ob_pool_run(struct ob_pool *pool, void (*fn)(const struct ob_worker *, void *), void *context);

/* Wait until the whole team is here. Every member must call it equally often. */
void ob_pool_barrier(const struct ob_worker *worker);

/* This member's part of [0, n): *first up to, not including, *last. Parts are multiples of `grain`
 * (the last may be shorter), in order, and differ by at most one grain. */
void ob_worker_range(const struct ob_worker *worker, size_t n, size_t grain, size_t *first,
                     size_t *last);

#endif
