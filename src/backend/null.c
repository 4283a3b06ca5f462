/* The null backend: everything but the arithmetic. For plans of models that are only looked at, and
 * for tests of what lies above a backend. */
#include <stdlib.h>

#include "backend/backend.h"

struct ob_state {
    size_t length;
};

struct null_engine {
    struct ob_engine common;
    size_t packed_bytes;
};

static ob_status open_engine(const struct ob_plan *plan, const struct ob_engine_options *options,
                             struct ob_engine **out, struct ob_error *err)
{
    struct ob_kernels kernels;
    OB_TRY(ob_kernels_get(options->kernel_level, ob_cpu_detect(), &kernels, err));
    struct null_engine *e = ob_calloc(1, sizeof *e);
    if (!e)
        return ob_fail_memory(err, sizeof *e, "the engine");
    e->common = (struct ob_engine){&ob_backend_null, plan};
    e->packed_bytes = ob_cpu_packed_bytes(plan, &kernels);
    *out = &e->common;
    return OB_OK;
}

static void close_engine(struct ob_engine *engine)
{
    free(engine);
}

static ob_status state_create(struct ob_engine *engine, size_t max_tokens, struct ob_state **out,
                              struct ob_error *err)
{
    (void)engine;
    (void)max_tokens;
    *out = ob_calloc(1, sizeof **out);
    return *out ? OB_OK : ob_fail_memory(err, sizeof **out, "a session");
}

static void state_destroy(struct ob_engine *engine, struct ob_state *state)
{
    (void)engine;
    free(state);
}

static ob_status state_reserve(struct ob_engine *engine, struct ob_state *state, size_t kept,
                               size_t n_tokens, struct ob_error *err)
{
    (void)engine;
    (void)state;
    (void)kept;
    (void)n_tokens;
    (void)err;
    return OB_OK;
}

static size_t state_truncate(struct ob_engine *engine, struct ob_state *state, size_t n_tokens)
{
    (void)engine;
    if (n_tokens < state->length)
        state->length = n_tokens;
    return state->length;
}

static ob_status run(struct ob_engine *engine, const struct ob_batch *batch, struct ob_error *err)
{
    (void)engine;
    (void)err;
    for (size_t i = 0; i < batch->n_segments; i++)
        batch->segments[i].state->length += batch->segments[i].n_rows;
    return OB_OK;
}

static ob_status read_value(struct ob_engine *engine, int value, size_t first_row, size_t n_rows,
                            float *out, struct ob_error *err)
{
    (void)first_row;
    (void)err;
    size_t width = (size_t)engine->plan->values[value].row_stride;
    memset(out, 0, n_rows * width * sizeof *out);
    return OB_OK;
}

static struct ob_memory_use memory(const struct ob_engine *engine)
{
    const struct null_engine *e = (const struct null_engine *)engine;
    return (struct ob_memory_use){.packed_bytes = e->packed_bytes};
}

static struct ob_machine_speed probe(struct ob_engine *engine, const void *bytes, size_t n_bytes)
{
    (void)engine;
    (void)bytes;
    (void)n_bytes;
    return (struct ob_machine_speed){0, 0};
}

const struct ob_backend ob_backend_null = {
    .name = "null",
    .open = open_engine,
    .close = close_engine,
    .state_create = state_create,
    .state_destroy = state_destroy,
    .state_reserve = state_reserve,
    .state_truncate = state_truncate,
    .run = run,
    .read = read_value,
    .memory = memory,
    .probe = probe,
};
