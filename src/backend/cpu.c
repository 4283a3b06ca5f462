/* The CPU backend: a team of threads walks the plan side by side, meeting where a step waits. */
#include "backend/cpu.h"

#include <stdlib.h>

#include "base/memory.h"
#include "base/os.h"

static struct cpu_engine *cpu(struct ob_engine *engine)
{
    return (struct cpu_engine *)engine;
}

static void close_engine(struct ob_engine *engine)
{
    struct cpu_engine *e = cpu(engine);
    ob_pool_destroy(e->pool);
    ob_pages_destroy(&e->pages);
    ob_os_release(e->activations, e->common.plan->activation_bytes);
    free(e->value_at);
    free(e->state_at);
    free(e->scratch);
    free(e->queries);
    free(e->packed);
    ob_os_release(e->packed_memory, e->packed_bytes);
    free(e);
}

/* Where each value's first row and each state lies. */
static void place_operands(struct cpu_engine *e)
{
    const struct ob_plan *plan = e->common.plan;
    for (int v = 0; v < plan->n_values; v++) {
        const struct ob_plan_value *value = &plan->values[v];
        /* A view comes after its parent, whose address is known by then. */
        e->value_at[v] = value->parent == OB_NO_VALUE
                             ? e->activations + value->place / sizeof(float)
                             : e->value_at[value->parent] + value->offset;
    }
    size_t n_kv = 0;
    for (int s = 0; s < plan->n_states; s++) {
        if (plan->states[s].kind == OB_STATE_KV) {
            e->state_at[s] = n_kv++;
        } else {
            e->state_at[s] = e->fixed_floats;
            e->fixed_floats += (ob_state_floats(&plan->states[s]) + 15) / 16 * 16;
        }
    }
}

static ob_status allocate(struct cpu_engine *e, const struct ob_engine_options *options,
                          struct ob_error *err)
{
    const struct ob_plan *plan = e->common.plan;
    size_t n_workers = (size_t)options->n_threads;
    e->scratch_floats = cpu_scratch_floats(plan);
    e->n_queries = cpu_queries(plan);
    e->activations = ob_os_reserve(plan->activation_bytes);
    e->value_at = ob_calloc((size_t)plan->n_values, sizeof *e->value_at);
    e->state_at = ob_calloc((size_t)plan->n_states, sizeof *e->state_at);
    e->scratch = ob_alloc_aligned(n_workers * e->scratch_floats, sizeof *e->scratch);
    e->queries = ob_calloc(n_workers * e->n_queries, sizeof *e->queries);
    if (!e->queries || !e->activations || !e->value_at || !e->state_at || !e->scratch)
        return ob_fail_memory(err, plan->activation_bytes,
                              "activations (a smaller chunk needs less)");
    /* Rows of a large chunk lie a page apart or more: a product would miss a page with each. */
    ob_os_prefer_huge_pages(e->activations, plan->activation_bytes);
    place_operands(e);
    OB_TRY(ob_pages_create(&e->pages, plan, options->kv_type, options->pool_tokens, err));
    OB_TRY(ob_pool_create(options->n_threads, &e->pool, err));
    return cpu_pack_weights(e, options->mapped, err);
}

static ob_status open_engine(const struct ob_plan *plan, const struct ob_engine_options *options,
                             struct ob_engine **out, struct ob_error *err)
{
    struct cpu_engine *e = ob_calloc(1, sizeof *e);
    if (!e)
        return ob_fail_memory(err, sizeof *e, "the engine");
    e->common = (struct ob_engine){&ob_backend_cpu, plan};
    ob_status status = ob_kernels_get(options->kernel_level, ob_cpu_detect(), &e->kernels, err);
    if (status == OB_OK)
        status = allocate(e, options, err);
    if (status != OB_OK) {
        close_engine(&e->common);
        return status;
    }
    *out = &e->common;
    return OB_OK;
}

static void state_destroy(struct ob_engine *engine, struct ob_state *state)
{
    if (!state)
        return;
    ob_page_table_destroy(&cpu(engine)->pages, &state->pages);
    free(state->fixed);
    free(state);
}

static ob_status state_create(struct ob_engine *engine, size_t max_tokens, struct ob_state **out,
                              struct ob_error *err)
{
    struct cpu_engine *e = cpu(engine);
    struct ob_state *state = ob_calloc(1, sizeof *state);
    if (!state)
        return ob_fail_memory(err, sizeof *state, "a session");
    ob_status status = OB_OK;
    size_t bytes = e->fixed_floats * sizeof *state->fixed;
    state->fixed = ob_alloc_aligned(bytes, 1);
    if (state->fixed)
        memset(state->fixed, 0, bytes);
    else
        status = ob_fail_memory(err, bytes, "a session's recurrent state");
    if (status == OB_OK)
        status = ob_page_table_create(&e->pages, max_tokens, &state->pages, err);
    if (status != OB_OK) {
        state_destroy(engine, state);
        return status;
    }
    *out = state;
    return OB_OK;
}

static ob_status state_reserve(struct ob_engine *engine, struct ob_state *state, size_t kept,
                               size_t n_tokens, struct ob_error *err)
{
    return ob_page_table_reserve(&cpu(engine)->pages, &state->pages, kept, n_tokens, err);
}

static ob_status state_fork(struct ob_engine *engine, const struct ob_state *from,
                            struct ob_state *to, struct ob_error *err)
{
    struct cpu_engine *e = cpu(engine);
    OB_TRY(ob_page_table_fork(&e->pages, &from->pages, from->length, &to->pages, err));
    memcpy(to->fixed, from->fixed, e->fixed_floats * sizeof *to->fixed);
    to->length = from->length;
    return OB_OK;
}

static size_t state_truncate(struct ob_engine *engine, struct ob_state *state, size_t n_tokens)
{
    struct cpu_engine *e = cpu(engine);
    if (n_tokens >= state->length)
        return state->length;
    if (e->fixed_floats > 0) { /* a recurrent state cannot go back part of the way */
        memset(state->fixed, 0, e->fixed_floats * sizeof *state->fixed);
        n_tokens = 0;
    }
    state->length = ob_page_table_cut(&e->pages, &state->pages, state->length, n_tokens);
    return state->length;
}

static size_t state_keeps(const struct ob_engine *engine, const struct ob_state *state,
                          size_t n_tokens)
{
    const struct cpu_engine *e = (const struct cpu_engine *)engine;
    return ob_page_table_keeps(&e->pages, &state->pages, state->length, n_tokens);
}

static size_t page_bytes(const struct ob_engine *engine, size_t page, size_t n_tokens)
{
    return ob_page_bytes(&((const struct cpu_engine *)engine)->pages, page, n_tokens);
}

static ob_status state_read(struct ob_engine *engine, const struct ob_state *state,
                            struct ob_state_place place, void *out, struct ob_error *err)
{
    const struct cpu_engine *e = cpu(engine);
    const struct ob_state_shape *shape = &engine->plan->states[place.state];
    size_t at = e->state_at[place.state];
    (void)err;
    if (shape->kind == OB_STATE_KV)
        ob_page_read(&e->pages, &state->pages, (int)at, place.values ? OB_VALUES : OB_KEYS,
                     place.page, state->length, out);
    else
        memcpy(out, state->fixed + at, ob_state_floats(shape) * sizeof *state->fixed);
    return OB_OK;
}

static ob_status state_write(struct ob_engine *engine, struct ob_state *state,
                             struct ob_state_place place, const void *bytes, struct ob_error *err)
{
    const struct cpu_engine *e = cpu(engine);
    const struct ob_state_shape *shape = &engine->plan->states[place.state];
    size_t at = e->state_at[place.state];
    (void)err;
    if (shape->kind == OB_STATE_KV)
        ob_page_write(&e->pages, &state->pages, (int)at, place.values ? OB_VALUES : OB_KEYS,
                      place.page, state->length, bytes);
    else
        memcpy(state->fixed + at, bytes, ob_state_floats(shape) * sizeof *state->fixed);
    return OB_OK;
}

static void state_set_length(struct ob_state *state, size_t n_tokens)
{
    state->length = n_tokens;
    ob_page_table_set(&state->pages, n_tokens);
}

/* The batch fits the plan and its segments cover its rows in order. */
static bool batch_fits(const struct ob_plan *plan, const struct ob_batch *batch)
{
    if (batch->n_rows == 0 || batch->n_rows > plan->max_rows || batch->n_wanted > plan->max_wanted)
        return false;
    size_t row = 0;
    for (size_t i = 0; i < batch->n_segments; i++) {
        const struct ob_segment *s = &batch->segments[i];
        if (s->first_row != row || s->n_rows == 0 || s->position != s->state->length)
            return false;
        row += s->n_rows;
    }
    return row == batch->n_rows;
}

struct cpu_run {
    struct cpu_engine *engine;
    const struct ob_batch *batch;
};

static void run_worker(const struct ob_worker *worker, void *context)
{
    const struct cpu_run *run = context;
    struct cpu_engine *e = run->engine;
    const struct ob_plan *plan = e->common.plan;
    struct cpu_call call = {
        .engine = e,
        .batch = run->batch,
        .worker = worker,
        .scratch = e->scratch + (size_t)worker->index * e->scratch_floats,
        .queries = e->queries + (size_t)worker->index * e->n_queries,
    };
    for (int i = 0; i < plan->n_steps; i++) {
        const struct ob_step *step = &plan->steps[i];
        bool wanted = step->out != OB_NO_VALUE && plan->values[step->out].domain == OB_ROWS_WANTED;
        call.step = step;
        call.n_rows = wanted ? run->batch->n_wanted : run->batch->n_rows;
        if (step->waits)
            ob_pool_barrier(worker);
        if (call.n_rows > 0) /* 0: no logits are asked for, so nobody does the head */
            cpu_run_step(&call);
    }
}

static ob_status run_batch(struct ob_engine *engine, const struct ob_batch *batch,
                           struct ob_error *err)
{
    struct cpu_engine *e = cpu(engine);
    if (!batch_fits(engine->plan, batch))
        return ob_fail(err, OB_INVALID_ARGUMENT,
                       "a batch of %zu rows in %zu segments does not fit its plan or its states",
                       batch->n_rows, batch->n_segments);
    struct cpu_run run = {e, batch};
    ob_pool_run(e->pool, run_worker, &run);
    for (size_t i = 0; i < batch->n_segments; i++) {
        struct ob_state *state = batch->segments[i].state;
        state->length += batch->segments[i].n_rows;
        ob_page_table_grown(&state->pages, state->length);
    }
    return OB_OK;
}

static ob_status read_value(struct ob_engine *engine, int value, size_t first_row, size_t n_rows,
                            float *out, struct ob_error *err)
{
    struct cpu_engine *e = cpu(engine);
    const struct ob_plan_value *v = &engine->plan->values[value];
    (void)err;
    size_t width = (size_t)v->row_stride;
    memcpy(out, e->value_at[value] + first_row * width, n_rows * width * sizeof *out);
    return OB_OK;
}

static struct ob_memory_use memory(const struct ob_engine *engine)
{
    const struct cpu_engine *e = (const struct cpu_engine *)engine;
    size_t workers = (size_t)ob_pool_size(e->pool);
    return (struct ob_memory_use){
        .packed_bytes = e->packed_bytes,
        .activation_bytes =
            engine->plan->activation_bytes + workers * e->scratch_floats * sizeof(float),
        .kv_bytes_per_token =
            2 * (size_t)e->pages.n_kv_layers * e->pages.page_bytes / OB_PAGE_TOKENS,
        .state_bytes = e->fixed_floats * sizeof(float) + ob_pages_own_bytes(&e->pages),
        .pool_bytes = ob_pages_pool_bytes(&e->pages),
    };
}

const struct ob_backend ob_backend_cpu = {
    .name = "cpu",
    .open = open_engine,
    .close = close_engine,
    .state_create = state_create,
    .state_destroy = state_destroy,
    .state_reserve = state_reserve,
    .state_truncate = state_truncate,
    .state_keeps = state_keeps,
    .state_fork = state_fork,
    .page_bytes = page_bytes,
    .state_read = state_read,
    .state_write = state_write,
    .state_set_length = state_set_length,
    .run = run_batch,
    .read = read_value,
    .memory = memory,
    .probe = cpu_probe,
};
