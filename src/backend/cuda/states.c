/* What a session keeps on the device: recurrent states, sink pages, and pages of the pool. */
#include <stdlib.h>

#include "backend/cuda/cuda.h"
#include "plan/kv.h"

static struct cuda_engine *cuda(struct ob_engine *engine)
{
    return (struct cuda_engine *)engine;
}

static ob_status find_shape(struct cuda_engine *e, bool is_f32, struct ob_error *err)
{
    const struct ob_plan *plan = e->common.plan;
    struct cuda_kv *kv = &e->pool.kv;
    for (int i = 0; i < plan->n_states; i++) {
        const struct ob_state_shape *s = &plan->states[i];
        if (s->kind != OB_STATE_KV)
            continue;
        if (e->pool.n_layers++ > 0 && (kv->n_heads != s->n_heads || kv->head_dim != s->cols))
            return ob_fail(err, OB_UNSUPPORTED,
                           "attention layer %d has another KV shape than the first one, which the "
                           "page pool does not support",
                           s->layer);
        size_t token_bytes = (size_t)s->n_heads * (size_t)s->cols * (is_f32 ? 4 : 2);
        *kv = (struct cuda_kv){
            .page_bytes = token_bytes * OB_PAGE_TOKENS,
            .sink_bytes = token_bytes * OB_SINK_TOKENS,
            .n_heads = s->n_heads,
            .head_dim = s->cols,
            .is_f32 = is_f32,
        };
    }
    return OB_OK;
}

ob_status cuda_pool_create(struct cuda_engine *e, const struct ob_engine_options *options,
                           struct ob_error *err)
{
    struct cuda_pool *pool = &e->pool;
    if (options->kv_type != OB_KV_F16 && options->kv_type != OB_KV_F32)
        return ob_fail(err, OB_UNSUPPORTED,
                       "backend 'cuda' has no KV cache of type %s: choose f16 or f32",
                       ob_kv_type_name(options->kv_type));
    OB_TRY(find_shape(e, options->kv_type == OB_KV_F32, err));
    if (pool->n_layers == 0)
        return OB_OK;
    size_t n = ob_kv_pages(OB_KV_STORE_F16, options->pool_tokens), bytes;
    pool->kv.n_pages = n;
    if (n > UINT32_MAX || !ob_mul_size(n, pool->kv.page_bytes * 2 * (size_t)pool->n_layers, &bytes))
        return ob_fail(err, OB_NO_MEMORY, "a KV pool for %zu tokens does not fit the address space",
                       options->pool_tokens);
    if (n == 0)
        return OB_OK;
    pool->free_ids = ob_calloc(n, sizeof *pool->free_ids);
    if (!pool->free_ids)
        return ob_fail_memory(err, n * sizeof *pool->free_ids, "the KV page pool");
    for (size_t i = 0; i < n; i++)
        pool->free_ids[i] = (uint32_t)(n - 1 - i);
    pool->n_free = n;
    return cuda_alloc(e, bytes, "the KV page pool (a smaller context needs less)", &pool->kv.pool,
                      err);
}

void cuda_pool_destroy(struct cuda_engine *e)
{
    if (e->pool.kv.pool)
        e->driver.free(e->pool.kv.pool);
    free(e->pool.free_ids);
}

static size_t sink_bytes(const struct cuda_engine *e)
{
    return (size_t)e->pool.n_layers * 2 * e->pool.kv.sink_bytes;
}

void cuda_state_destroy(struct ob_engine *engine, struct ob_state *state)
{
    struct cuda_engine *e = cuda(engine);
    if (!state)
        return;
    while (state->n_ids > 0)
        e->pool.free_ids[e->pool.n_free++] = state->ids[--state->n_ids];
    if (state->memory) {
        e->driver.context_set(e->context); /* if it fails, so does the next call; nothing to tell */
        e->driver.free(state->memory);
    }
    free(state->ids);
    free(state);
}

/* Partial results of one row must fit the scratch memory, however many pages it has. */
static ob_status check_pages(const struct cuda_engine *e, size_t n_pages, struct ob_error *err)
{
    for (size_t i = 0; i < e->n_launches; i++) {
        const struct cuda_step *s = &e->launches[i].step;
        size_t row = (size_t)s->out.n_heads * ((size_t)s->out.head_dim + 2) * sizeof(float);
        if (s->op == OB_OP_ATTENTION && row * n_pages > e->scratch_bytes)
            return ob_fail(err, OB_NO_MEMORY, "a session of %zu pages of KV is too long", n_pages);
    }
    return OB_OK;
}

static ob_status allocate(struct cuda_engine *e, struct ob_state *state, size_t max_tokens,
                          struct ob_error *err)
{
    size_t fixed = e->fixed_floats * sizeof(float), sink = sink_bytes(e);
    state->capacity = e->pool.n_layers > 0 ? ob_kv_pages(OB_KV_STORE_F16, max_tokens) : 0;
    OB_TRY(check_pages(e, state->capacity + 1, err));
    state->ids = ob_calloc(state->capacity, sizeof *state->ids);
    if (!state->ids)
        return ob_fail_memory(err, state->capacity * sizeof *state->ids, "a session's page table");
    size_t bytes = fixed + sink + state->capacity * sizeof *state->ids;
    OB_TRY(cuda_alloc(e, bytes, "a session's states", &state->memory, err));
    state->sink = state->memory + fixed;
    state->pages = state->sink + sink;
    return cuda_check(e->driver.clear_async(state->memory, 0, bytes, e->stream),
                      "clearing a session's states", err);
}

ob_status cuda_state_create(struct ob_engine *engine, size_t max_tokens, struct ob_state **out,
                            struct ob_error *err)
{
    struct cuda_engine *e = cuda(engine);
    OB_TRY(cuda_enter(e, err));
    struct ob_state *state = ob_calloc(1, sizeof *state);
    if (!state)
        return ob_fail_memory(err, sizeof *state, "a session");
    ob_status status = allocate(e, state, max_tokens, err);
    if (status != OB_OK) {
        cuda_state_destroy(engine, state);
        return status;
    }
    if (state->capacity + 1 > e->most_pages) { /* the graphs' grids were for fewer */
        cuda_forget_graphs(e);
        e->most_pages = state->capacity + 1;
    }
    *out = state;
    return OB_OK;
}

ob_status cuda_state_reserve(struct ob_engine *engine, struct ob_state *state, size_t kept,
                             size_t n_tokens, struct ob_error *err)
{
    (void)kept; /* no page is shared here */
    struct cuda_engine *e = cuda(engine);
    struct cuda_pool *pool = &e->pool;
    if (pool->n_layers == 0)
        return OB_OK;
    size_t need = ob_kv_pages(OB_KV_STORE_F16, n_tokens), had = state->n_ids;
    if (need > state->capacity || (need > had && need - had > pool->n_free))
        return ob_fail(err, OB_CONTEXT_FULL,
                       "no room for %zu tokens: the KV pool has %zu of %zu pages free", n_tokens,
                       pool->n_free, (size_t)pool->kv.n_pages);
    if (need > had) {
        OB_TRY(cuda_enter(e, err));
        for (size_t i = had; i < need; i++)
            state->ids[i] = pool->free_ids[pool->n_free - 1 - (i - had)];
        OB_TRY(cuda_check(e->driver.upload(state->pages + had * sizeof *state->ids,
                                           state->ids + had, (need - had) * sizeof *state->ids),
                          "updating a page table", err));
        pool->n_free -= need - had;
        state->n_ids = need;
    }
    while (state->n_ids > need)
        pool->free_ids[pool->n_free++] = state->ids[--state->n_ids];
    return OB_OK;
}

size_t cuda_state_truncate(struct ob_engine *engine, struct ob_state *state, size_t n_tokens)
{
    struct cuda_engine *e = cuda(engine);
    if (n_tokens >= state->length)
        return state->length;
    if (e->fixed_floats > 0) {            /* a recurrent state cannot go back part of the way */
        if (cuda_enter(e, NULL) == OB_OK) /* a device that fails here fails the next run too */
            e->driver.clear_async(state->memory, 0, e->fixed_floats * sizeof(float), e->stream);
        n_tokens = 0;
    }
    state->length = n_tokens;
    return n_tokens;
}

/* ------------------------------------------------------------------- states as plain bytes */

size_t cuda_page_bytes(const struct ob_engine *engine, size_t page, size_t n_tokens)
{
    (void)n_tokens;
    const struct cuda_kv *kv = &((const struct cuda_engine *)engine)->pool.kv;
    return page == 0 ? kv->sink_bytes : kv->page_bytes;
}

/* Where a place lies on the device, and its bytes. */
static cuda_address address_of(const struct cuda_engine *e, const struct ob_state *state,
                               struct ob_state_place place, size_t *n_bytes)
{
    const struct ob_state_shape *shape = &e->common.plan->states[place.state];
    const struct cuda_kv *kv = &e->pool.kv;
    size_t at = e->state_at[place.state];
    if (shape->kind != OB_STATE_KV) {
        *n_bytes = ob_state_floats(shape) * sizeof(float);
        return state->memory + at * sizeof(float);
    }
    size_t plane = at * 2 + (place.values ? 1 : 0);
    *n_bytes = cuda_page_bytes(&e->common, place.page, state->length);
    return place.page == 0
               ? state->sink + plane * kv->sink_bytes
               : kv->pool + (plane * kv->n_pages + state->ids[place.page - 1]) * kv->page_bytes;
}

/* The tokens of a page past the state's length read as zero. */
static void clear_unused(const struct cuda_engine *e, const struct ob_state *state, size_t page,
                         unsigned char *bytes)
{
    size_t start = ob_page_start(page), capacity = ob_page_tokens(page);
    size_t held = state->length <= start ? 0 : state->length - start;
    size_t head_bytes =
        cuda_page_bytes(&e->common, page, state->length) / (size_t)e->pool.kv.n_heads;
    size_t valid = (held < capacity ? held : capacity) * (head_bytes / capacity);
    for (int h = 0; h < e->pool.kv.n_heads; h++, bytes += head_bytes)
        memset(bytes + valid, 0, head_bytes - valid);
}

ob_status cuda_state_read(struct ob_engine *engine, const struct ob_state *state,
                          struct ob_state_place place, void *out, struct ob_error *err)
{
    struct cuda_engine *e = cuda(engine);
    size_t n_bytes;
    cuda_address from = address_of(e, state, place, &n_bytes);
    OB_TRY(cuda_enter(e, err));
    OB_TRY(cuda_check(e->driver.download_async(out, from, n_bytes, e->stream),
                      "copying a session's state", err));
    OB_TRY(cuda_check(e->driver.stream_wait(e->stream), "copying a session's state", err));
    if (engine->plan->states[place.state].kind == OB_STATE_KV)
        clear_unused(e, state, place.page, out);
    return OB_OK;
}

ob_status cuda_state_write(struct ob_engine *engine, struct ob_state *state,
                           struct ob_state_place place, const void *bytes, struct ob_error *err)
{
    struct cuda_engine *e = cuda(engine);
    size_t n_bytes;
    cuda_address to = address_of(e, state, place, &n_bytes);
    OB_TRY(cuda_enter(e, err));
    OB_TRY(cuda_check(e->driver.upload_async(to, bytes, n_bytes, e->stream),
                      "restoring a session's state", err));
    /* The caller's memory is its own again afterwards. */
    return cuda_check(e->driver.stream_wait(e->stream), "restoring a session's state", err);
}

void cuda_state_set_length(struct ob_state *state, size_t n_tokens)
{
    state->length = n_tokens;
}
