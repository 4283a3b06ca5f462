/* Sessions that begin as another one is, or take another one's place. */
#include <stdlib.h>

#include "base/memory.h"
#include "plan/kv.h"
#include "run/park.h"
#include "run/session.h"

/* Pages that n_tokens tokens lie in, the sink among them. */
static size_t n_pages(size_t n_tokens)
{
    return n_tokens == 0 ? 0 : ob_page_of(n_tokens - 1) + 1;
}

/* Copy the state piece by piece, where a backend cannot share. Locked. */
static ob_status copy_state(struct ob_engine *engine, const struct ob_session *from,
                            struct ob_state *to, struct ob_error *err)
{
    const struct ob_backend *backend = engine->backend;
    size_t most = backend->page_bytes(engine, 1, OB_SINK_TOKENS + 1);
    for (int i = 0; i < engine->plan->n_states; i++)
        if (engine->plan->states[i].kind != OB_STATE_KV &&
            ob_state_floats(&engine->plan->states[i]) * sizeof(float) > most)
            most = ob_state_floats(&engine->plan->states[i]) * sizeof(float);
    void *piece = ob_alloc_aligned(most, 1);
    if (!piece)
        return ob_fail_memory(err, most, "copying a session");
    ob_status status = backend->state_reserve(engine, to, 0, from->length, err);
    if (status == OB_OK)
        backend->state_set_length(to, from->length);
    for (int i = 0; i < engine->plan->n_states && status == OB_OK; i++) {
        bool kv = engine->plan->states[i].kind == OB_STATE_KV;
        for (size_t p = 0; p < (kv ? 2 * n_pages(from->length) : 1) && status == OB_OK; p++) {
            struct ob_state_place place = {.state = i, .values = p % 2, .page = p / 2};
            status = backend->state_read(engine, from->state, place, piece, err);
            if (status == OB_OK)
                status = backend->state_write(engine, to, place, piece, err);
        }
    }
    free(piece);
    return status;
}

static ob_status fork_state(const struct ob_session *from, struct ob_session *to,
                            struct ob_error *err)
{
    struct ob_engine *engine = from->model->engine;
    pthread_mutex_lock(&from->model->lock);
    ob_status status = engine->backend->state_fork
                           ? engine->backend->state_fork(engine, from->state, to->state, err)
                           : copy_state(engine, from, to->state, err);
    pthread_mutex_unlock(&from->model->lock);
    return status;
}

ob_status ob_session_fork(const struct ob_session *from, struct ob_session **out,
                          struct ob_error *err)
{
    const struct ob_session_options options = {
        .n_ctx = from->n_ctx,
        .checkpoint_bytes = from->checkpoint_bytes,
        .checkpoint_every = from->checkpoint_every,
    };
    struct ob_session *to;
    ob_status status;
    if (!from->model->engine->backend->state_fork && !from->model->engine->backend->state_read)
        return ob_fail(err, OB_UNSUPPORTED, "sessions of the %s backend cannot be copied",
                       from->model->engine->backend->name);
    OB_TRY(ob_session_open(from->model, &options, &to, err));
    do {
        status = fork_state(from, to, err);
    } while (status == OB_CONTEXT_FULL && from->park && ob_park_give_up_oldest(from->park));
    if (status != OB_OK) {
        ob_session_close(to);
        return status;
    }
    memcpy(to->ids, from->ids, from->length * sizeof *to->ids);
    memcpy(to->logits, from->logits, (size_t)from->model->plan->n_vocab * sizeof *to->logits);
    to->length = from->length;
    to->logits_at = from->logits_at;
    to->shifted_from = from->shifted_from;
    to->park = from->park;
    *out = to;
    return OB_OK;
}

#define SWAP(type, a, b)                                                                           \
    do {                                                                                           \
        type swapped = (a);                                                                        \
        (a) = (b);                                                                                 \
        (b) = swapped;                                                                             \
    } while (0)

void ob_session_swap(struct ob_session *a, struct ob_session *b)
{
    SWAP(struct ob_state *, a->state, b->state);
    SWAP(int32_t *, a->ids, b->ids);
    SWAP(size_t, a->length, b->length);
    SWAP(float *, a->logits, b->logits);
    SWAP(size_t, a->logits_at, b->logits_at);
    SWAP(size_t, a->shifted_from, b->shifted_from);
    SWAP(struct ob_checkpoints, a->checkpoints, b->checkpoints);
    SWAP(size_t, a->checkpoint_bytes, b->checkpoint_bytes);
}

size_t ob_session_bytes(const struct ob_session *s)
{
    const struct ob_engine *engine = s->model->engine;
    struct ob_memory_use use = engine->backend->memory(engine);
    size_t pages = ob_kv_pages(ob_kv_format_of(s->model->kv_type), s->length);
    return use.state_bytes + s->length * sizeof *s->ids +
           pages * OB_PAGE_TOKENS * use.kv_bytes_per_token +
           s->checkpoints.n * ob_checkpoints_bytes(&s->checkpoints) +
           (size_t)s->model->plan->n_vocab * sizeof *s->logits;
}
