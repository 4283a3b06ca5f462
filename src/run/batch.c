#include "run/batch.h"

#include "run/session.h"

enum { MOST = 64 };

size_t ob_run_batch_most(const struct ob_model *model)
{
    size_t most = model->plan->max_wanted < model->plan->max_rows ? model->plan->max_wanted
                                                                  : model->plan->max_rows;
    return most < MOST ? most : MOST;
}

static ob_status check(struct ob_session *const *sessions, const int32_t *ids, size_t n,
                       struct ob_error *err)
{
    if (n == 0 || n > ob_run_batch_most(sessions[0]->model))
        return ob_fail(err, OB_INVALID_ARGUMENT, "a batch of %zu sessions: must be 1 to %zu", n,
                       n ? ob_run_batch_most(sessions[0]->model) : (size_t)MOST);
    int n_vocab = sessions[0]->model->plan->n_vocab;
    for (size_t i = 0; i < n; i++) {
        if (sessions[i]->model != sessions[0]->model)
            return ob_fail(err, OB_INVALID_ARGUMENT, "session %zu is of another model", i);
        for (size_t j = 0; j < i; j++)
            if (sessions[j] == sessions[i])
                return ob_fail(err, OB_INVALID_ARGUMENT, "session %zu is there twice", i);
        if (ids[i] < 0 || ids[i] >= n_vocab)
            return ob_fail(err, OB_INVALID_ARGUMENT, "session %zu: id %d is not in the vocabulary",
                           i, (int)ids[i]);
        if (sessions[i]->length == sessions[i]->n_ctx)
            return ob_fail(err, OB_CONTEXT_FULL, "session %zu is full with %zu tokens", i,
                           sessions[i]->length);
    }
    return OB_OK;
}

/* Pages for one more token each; on failure those already taken go back. */
static ob_status reserve_all(struct ob_session *const *sessions, size_t n, struct ob_error *err)
{
    for (size_t i = 0; i < n; i++) {
        size_t length = sessions[i]->length;
        ob_status status = ob_session_reserve(sessions[i], length, length + 1, err);
        while (status != OB_OK && i-- > 0)
            ob_session_reserve(sessions[i], sessions[i]->length, sessions[i]->length, NULL);
        if (status != OB_OK)
            return status;
    }
    return OB_OK;
}

/* Give every session its logits, and only then its token: a failure leaves no ledger ahead. */
static ob_status collect(struct ob_session *const *sessions, const int32_t *ids, size_t n,
                         struct ob_error *err)
{
    struct ob_model *m = sessions[0]->model;
    for (size_t i = 0; i < n; i++)
        OB_TRY(
            m->engine->backend->read(m->engine, m->plan->logits, i, 1, sessions[i]->logits, err));
    for (size_t i = 0; i < n; i++) {
        struct ob_session *s = sessions[i];
        s->ids[s->length++] = ids[i];
        s->logits_at = s->length;
    }
    return OB_OK;
}

/* After a failed run, as after a failed append: the ledgers follow what the states still hold. */
static void fall_back(struct ob_session *const *sessions, size_t n)
{
    struct ob_engine *engine = sessions[0]->model->engine;
    for (size_t i = 0; i < n; i++) {
        ob_session_follow_state(sessions[i]);
        engine->backend->state_reserve(engine, sessions[i]->state, sessions[i]->length,
                                       sessions[i]->length, NULL);
    }
}

static ob_status run_locked(struct ob_session *const *sessions, const int32_t *ids, size_t n,
                            struct ob_error *err)
{
    struct ob_model *m = sessions[0]->model;
    struct ob_segment segments[MOST];
    int32_t rope_at[MOST][3], wanted[MOST];
    for (size_t i = 0; i < n; i++) {
        size_t at = sessions[i]->length;
        segments[i] = (struct ob_segment){sessions[i]->state, i, 1, at};
        rope_at[i][0] = rope_at[i][1] = rope_at[i][2] = (int32_t)at;
        wanted[i] = (int32_t)i;
    }
    struct ob_batch batch = {
        .n_rows = n,
        .ids = ids,
        .rope_at = (const int32_t(*)[3])rope_at,
        .segments = segments,
        .n_segments = n,
        .wanted = wanted,
        .n_wanted = n,
    };
    ob_status status = m->engine->backend->run(m->engine, &batch, err);
    if (status == OB_OK)
        status = collect(sessions, ids, n, err);
    if (status != OB_OK)
        fall_back(sessions, n);
    return status;
}

ob_status ob_run_batch(struct ob_session *const *sessions, const int32_t *ids, size_t n,
                       struct ob_error *err)
{
    if (n == 0)
        return ob_fail(err, OB_INVALID_ARGUMENT, "a batch needs at least one session");
    OB_TRY(check(sessions, ids, n, err));
    OB_TRY(reserve_all(sessions, n, err));
    pthread_mutex_lock(&sessions[0]->model->lock);
    ob_status status = run_locked(sessions, ids, n, err);
    pthread_mutex_unlock(&sessions[0]->model->lock);
    return status;
}
