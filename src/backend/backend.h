/* Backends: where buffers live and steps run.
 *
 * A backend compiles a plan once into an engine and runs it for batches. The table is small on
 * purpose: buffers, states, runs, limits. A step a backend cannot do is refused by name when the
 * plan is compiled, never while it runs.
 *
 * Threads: calls on one engine are serialised by the caller (the model's lock). */
#ifndef OB_BACKEND_BACKEND_H
#define OB_BACKEND_BACKEND_H

#include "kernel/kernel.h"
#include "plan/batch.h"
#include "plan/plan.h"

struct ob_engine_options {
    int n_threads;            /* >= 1 */
    const char *kernel_level; /* NULL: the best */
    enum ob_kv_type kv_type;
    bool mapped;        /* the weights lie in a mapped file, whose pages may be let go of */
    size_t pool_tokens; /* KV tokens the page pool must hold, over all states */
};

struct ob_backend;

/* First member of every backend's engine. */
struct ob_engine {
    const struct ob_backend *backend;
    const struct ob_plan *plan;
};

/* Bytes by place; what is left out is 0. */
struct ob_memory_use {
    size_t packed_bytes;       /* weights in the form the kernels read */
    size_t activation_bytes;   /* values of a run, and scratch */
    size_t kv_bytes_per_token; /* of one session, all layers */
    size_t state_bytes;        /* fixed part of one session: states, tails, sink, residual */
    size_t pool_bytes;         /* address space of the page pool */
};

struct ob_machine_speed {
    double bytes_per_second, macs_per_second; /* 0 where there is nothing to measure */
};

/* One piece of a state that is copied as plain bytes: a state of fixed size whole, or one page of the
 * keys or values of a KV state. */
struct ob_state_place {
    int state;   /* of the plan */
    bool values; /* KV only: values, not keys */
    size_t page; /* KV only, on the grid of batch.h */
};

struct ob_backend {
    const char *name;

    /* Compile; `plan` and its weights must outlive the engine. OB_NO_MEMORY, OB_UNSUPPORTED naming
     * the step, OB_INVALID_ARGUMENT for the options. */
    ob_status (*open)(const struct ob_plan *plan, const struct ob_engine_options *options,
                      struct ob_engine **out, struct ob_error *err);
    void (*close)(struct ob_engine *engine);

    /* An empty state for up to max_tokens tokens. OB_NO_MEMORY. */
    ob_status (*state_create)(struct ob_engine *engine, size_t max_tokens, struct ob_state **out,
                              struct ob_error *err);
    void (*state_destroy)(struct ob_engine *engine, struct ob_state *state);

    /* Make the state have pages for exactly n_tokens tokens, taking or giving back. The first `kept`
     * tokens, not more than its length, are unchanged; those from there on may then be written. With
     * n_tokens <= its length and kept == n_tokens it cannot fail. OB_CONTEXT_FULL: nothing changed. */
    ob_status (*state_reserve)(struct ob_engine *engine, struct ob_state *state, size_t kept,
                               size_t n_tokens, struct ob_error *err);

    /* Forget all but the first n_tokens tokens, as far as the kinds of state allow: KV can be cut
     * anywhere, 4-bit KV between packed pages and behind the last, a recurrent state only be kept whole or
     * emptied. Returns the length it now holds, <= n_tokens; the caller reads the rest again. */
    size_t (*state_truncate)(struct ob_engine *engine, struct ob_state *state, size_t n_tokens);
    /* What state_truncate would leave of the KV; the state is only looked at. NULL: KV can be cut
     * anywhere. */
    size_t (*state_keeps)(const struct ob_engine *engine, const struct ob_state *state,
                          size_t n_tokens);

    /* Make `to`, an empty state, hold what `from` holds; their pages may be shared, which nothing that
     * is done to either lets the other notice. NULL where a backend leaves it to state_read and
     * state_write. OB_CONTEXT_FULL: nothing changed. */
    ob_status (*state_fork)(struct ob_engine *engine, const struct ob_state *from,
                            struct ob_state *to, struct ob_error *err);

    /* States as plain bytes, for checkpoints and snapshots; NULL where a backend has none. A fixed
     * state is ob_state_floats() floats, a page of a state of n_tokens tokens page_bytes() bytes whose
     * tokens past the state's length read as zero. Places must exist: pages reserved. Before a state is
     * written, state_set_length says how many tokens it will hold; what it held of them stays. */
    size_t (*page_bytes)(const struct ob_engine *engine, size_t page, size_t n_tokens);
    ob_status (*state_read)(struct ob_engine *engine, const struct ob_state *state,
                            struct ob_state_place place, void *out, struct ob_error *err);
    ob_status (*state_write)(struct ob_engine *engine, struct ob_state *state,
                             struct ob_state_place place, const void *bytes, struct ob_error *err);
    void (*state_set_length)(struct ob_state *state, size_t n_tokens);

    /* Run the plan. The batch must fit the plan's limits, positions equal the states' lengths and
     * pages be reserved; then it cannot fail on the CPU. Allocates nothing. On failure the states
     * of the batch must be truncated by the caller. */
    ob_status (*run)(struct ob_engine *engine, const struct ob_batch *batch, struct ob_error *err);

    /* Copy rows of a kept value after a run: out [n_rows, width]. */
    ob_status (*read)(struct ob_engine *engine, int value, size_t first_row, size_t n_rows,
                      float *out, struct ob_error *err);

    struct ob_memory_use (*memory)(const struct ob_engine *engine);

    /* Measure what the machine could do: bytes per second of reading `memory` [n_bytes] once with the
     * whole team, and int8 multiply-adds per second. About a tenth of a second. */
    struct ob_machine_speed (*probe)(struct ob_engine *engine, const void *memory, size_t n_bytes);
};

/* Bytes of the plan's weights in the form that these kernels read; 0 where they read the file's. */
size_t ob_cpu_packed_bytes(const struct ob_plan *plan, const struct ob_kernels *kernels);

/* "cpu", "cuda", "null", or NULL/"auto": the best one here. OB_INVALID_ARGUMENT for a name that is none,
 * OB_UNSUPPORTED for one this build or machine lacks. */
ob_status ob_backend_find(const char *name, const struct ob_backend **out, struct ob_error *err);

extern const struct ob_backend ob_backend_cpu;
extern const struct ob_backend ob_backend_cuda;
/* Plans and accepts everything, computes nothing: every value it reads is 0. Its memory is what the
 * CPU backend's weights would take; it holds none itself. */
extern const struct ob_backend ob_backend_null;

#endif
