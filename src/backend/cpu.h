/* Private to the CPU backend: the engine, and how its steps find their operands. */
#ifndef OB_BACKEND_CPU_H
#define OB_BACKEND_CPU_H

#include "backend/backend.h"
#include "backend/pages.h"
#include "base/pool.h"
#include "kernel/kernel.h"

struct ob_state {
    size_t length; /* tokens read */
    float *fixed;  /* recurrent states and convolution tails, at engine->state_at */
    struct ob_page_table pages;
};

struct cpu_engine {
    struct ob_engine common;
    struct ob_kernels kernels;
    struct ob_pool *pool;
    struct ob_page_pool pages;
    float *activations;
    float **value_at;    /* [n_values] first row of each value, views resolved */
    size_t *state_at;    /* [n_states] float offset in ob_state.fixed; KV: index of the KV layer */
    size_t fixed_floats; /* of one session */
    float *scratch;      /* [workers, scratch_floats] */
    size_t scratch_floats;
    void **packed;       /* [n_steps] packed weights of int8 products, or NULL: the file's blocks */
    void *packed_memory; /* all of them, [packed_bytes] */
    size_t packed_bytes;
    struct ob_attention_query *queries; /* [workers, n_queries] */
    size_t n_queries;
};

/* One step of one run, as a worker sees it. */
struct cpu_call {
    struct cpu_engine *engine;
    const struct ob_batch *batch;
    const struct ob_step *step;
    const struct ob_worker *worker;
    float *scratch;                     /* [scratch_floats] of this worker */
    struct ob_attention_query *queries; /* [n_queries] of this worker */
    size_t n_rows;                      /* rows of the step's domain */
};

/* Where a row, and a head of it, of a value lies. */
static inline float *cpu_row(const struct cpu_call *c, int value, size_t row)
{
    const struct ob_plan_value *v = &c->engine->common.plan->values[value];
    return c->engine->value_at[value] + row * (size_t)v->row_stride;
}

static inline const struct ob_plan_value *cpu_value(const struct cpu_call *c, int value)
{
    return &c->engine->common.plan->values[value];
}

static inline float *cpu_head(const struct cpu_call *c, int value, size_t row, size_t head)
{
    return cpu_row(c, value, row) + head * (size_t)cpu_value(c, value)->head_stride;
}

struct ob_machine_speed cpu_probe(struct ob_engine *engine, const void *memory, size_t n_bytes);

/* Give every int8 product its packed weights. Each matrix is packed once, by the whole team, and the
 * mapped file's pages are let go of as they have been read. OB_NO_MEMORY. */
ob_status cpu_pack_weights(struct cpu_engine *engine, bool mapped, struct ob_error *err);

/* Floats of scratch and attention queries the steps of `plan` need per worker. */
size_t cpu_scratch_floats(const struct ob_plan *plan);

size_t cpu_queries(const struct ob_plan *plan);
size_t cpu_attention_scratch(const struct ob_plan *plan, const struct ob_step *step);

/* Do this worker's part of a step; of the two that work on the KV cache. */
void cpu_run_step(const struct cpu_call *call);
void cpu_kv_append(const struct cpu_call *call);
void cpu_attention(const struct cpu_call *call);

#endif
