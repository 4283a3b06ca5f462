/* Sessions: a ledger of tokens and the state that reading them left behind.
 *
 * The invariant: the backend's state holds exactly the tokens of the ledger, and `logits` belongs to
 * the first `logits_at` of them, all unless a read was stopped. A recurrent state cannot be cut, so
 * going back means keeping what the state or a checkpoint can keep and reading the rest again;
 * nothing is ever approximated. Only a context shift (shift.c) makes a state that reading would not have
 * made, and where it begins is remembered. */
#include "run/session.h"

#include <stdlib.h>

#include "base/memory.h"
#include "run/park.h"

enum {
    CHECKPOINT_BYTES = 1 << 30, /* seven of the 27B shape, six with a 4-bit cache */
    CHECKPOINT_EVERY = 1024,
};

static const struct ob_backend *backend_of(const struct ob_session *s)
{
    return s->model->engine->backend;
}

void ob_session_close(struct ob_session *s)
{
    if (!s)
        return;
    if (s->state) {
        pthread_mutex_lock(&s->model->lock);
        backend_of(s)->state_destroy(s->model->engine, s->state);
        pthread_mutex_unlock(&s->model->lock);
    }
    ob_checkpoints_destroy(&s->checkpoints);
    free(s->ids);
    free(s->logits);
    free(s->rope_at);
    free(s->wanted);
    free(s->scored);
    free(s->hidden);
    free(s->hidden_row);
    free(s);
}

static ob_status allocate(struct ob_session *s, struct ob_error *err)
{
    size_t rows = s->model->plan->max_rows;
    s->ids = ob_calloc(s->n_ctx, sizeof *s->ids);
    s->logits = ob_calloc((size_t)s->model->plan->n_vocab, sizeof *s->logits);
    s->rope_at = ob_calloc(rows, sizeof *s->rope_at);
    s->wanted = ob_calloc(rows, sizeof *s->wanted);
    if (!s->ids || !s->logits || !s->rope_at || !s->wanted)
        return ob_fail_memory(err, s->n_ctx * sizeof *s->ids, "a session");
    OB_TRY(ob_checkpoints_create(s->model->engine, s->checkpoint_bytes, &s->checkpoints, err));
    pthread_mutex_lock(&s->model->lock);
    ob_status status = backend_of(s)->state_create(s->model->engine, s->n_ctx, &s->state, err);
    pthread_mutex_unlock(&s->model->lock);
    return status;
}

ob_status ob_session_open(struct ob_model *model, const struct ob_session_options *options,
                          struct ob_session **out, struct ob_error *err)
{
    const struct ob_session_options none = {0};
    const struct ob_session_options *o = options ? options : &none;
    size_t n_ctx = o->n_ctx ? o->n_ctx : model->n_ctx;
    if (n_ctx > model->n_ctx)
        return ob_fail(err, OB_INVALID_ARGUMENT,
                       "a session of %zu tokens was asked for, the model was opened for %zu", n_ctx,
                       model->n_ctx);
    struct ob_session *s = ob_calloc(1, sizeof *s);
    if (!s)
        return ob_fail_memory(err, sizeof *s, "a session");
    s->model = model;
    s->n_ctx = n_ctx;
    s->shifted_from = OB_UNSHIFTED;
    s->checkpoint_every = o->checkpoint_every ? o->checkpoint_every : CHECKPOINT_EVERY;
    s->checkpoint_bytes = o->checkpoint_bytes ? o->checkpoint_bytes : CHECKPOINT_BYTES;
    ob_status status = allocate(s, err);
    if (status != OB_OK) {
        ob_session_close(s);
        return status;
    }
    *out = s;
    return OB_OK;
}

size_t ob_session_length(const struct ob_session *s)
{
    return s->length;
}

const int32_t *ob_session_ids(const struct ob_session *s)
{
    return s->ids;
}

const float *ob_session_logits(const struct ob_session *s)
{
    return s->length > 0 && s->logits_at == s->length ? s->logits : NULL;
}

void ob_session_on_progress(struct ob_session *s, ob_progress_fn fn, void *context)
{
    s->progress = fn;
    s->progress_context = context;
}

static ob_status check_ids(const struct ob_session *s, const int32_t *ids, size_t n_ids,
                           struct ob_error *err)
{
    int n_vocab = s->model->plan->n_vocab;
    for (size_t i = 0; i < n_ids; i++)
        if (ids[i] < 0 || ids[i] >= n_vocab)
            return ob_fail(err, OB_INVALID_ARGUMENT,
                           "token %zu has id %d, the vocabulary has ids 0 to %d", i, (int)ids[i],
                           n_vocab - 1);
    return OB_OK;
}

ob_status ob_session_reserve(struct ob_session *s, size_t kept, size_t n_tokens,
                             struct ob_error *err)
{
    ob_status status;
    if (n_tokens > s->n_ctx)
        return ob_fail(err, OB_CONTEXT_FULL, "%zu tokens do not fit: the session holds at most %zu",
                       n_tokens, s->n_ctx);
    do {
        pthread_mutex_lock(&s->model->lock);
        status = backend_of(s)->state_reserve(s->model->engine, s->state, kept, n_tokens, err);
        pthread_mutex_unlock(&s->model->lock);
    } while (status == OB_CONTEXT_FULL && s->park && ob_park_give_up_oldest(s->park));
    return status;
}

void ob_session_give_back_pages(struct ob_session *s)
{
    ob_status status = ob_session_reserve(s, s->length, s->length, NULL);
    (void)status;
}

/* What was moved may be gone now. */
static void follow_shift(struct ob_session *s)
{
    if (s->length <= s->shifted_from)
        s->shifted_from = OB_UNSHIFTED;
}

void ob_session_follow_state(struct ob_session *s)
{
    s->length = backend_of(s)->state_truncate(s->model->engine, s->state, s->length);
    s->logits_at = 0;
    follow_shift(s);
    ob_checkpoints_forget_after(&s->checkpoints, s->length);
}

ob_status ob_session_checkpoint(struct ob_session *s, struct ob_error *err)
{
    if (!ob_session_logits(s))
        return OB_OK;
    pthread_mutex_lock(&s->model->lock);
    ob_status status =
        ob_checkpoints_take(&s->checkpoints, s->model->engine, s->state, s->length, s->logits, err);
    pthread_mutex_unlock(&s->model->lock);
    return status;
}

/* Where a run's rows go. NULL fn: only the last row's logits, into the session. */
struct sink {
    ob_row_fn fn;
    void *context;
};

/* Copy what the run left: the last row's logits, and all rows' when they are scored. Locked. */
static ob_status collect(struct ob_session *s, size_t n_rows, bool scored, struct ob_error *err)
{
    struct ob_model *m = s->model;
    const struct ob_plan *plan = m->plan;
    size_t n_vocab = (size_t)plan->n_vocab;
    if (!scored)
        return backend_of(s)->read(m->engine, plan->logits, 0, 1, s->logits, err);
    OB_TRY(backend_of(s)->read(m->engine, plan->logits, 0, n_rows, s->scored, err));
    memcpy(s->logits, s->scored + (n_rows - 1) * n_vocab, n_vocab * sizeof *s->logits);
    size_t plane = plan->max_wanted * (size_t)m->config.n_embd;
    for (int i = 0; i < plan->n_taps; i++)
        OB_TRY(backend_of(s)->read(m->engine, plan->taps[i], 0, n_rows,
                                   s->hidden + (size_t)i * plane, err));
    return OB_OK;
}

/* Run ids [n_rows] as one batch of one segment and append them to the ledger. */
static ob_status run_rows(struct ob_session *s, const int32_t *ids, size_t n_rows, bool scored,
                          struct ob_error *err)
{
    struct ob_model *m = s->model;
    for (size_t i = 0; i < n_rows; i++) {
        /* Text: all three rotary coordinates are the token's index. */
        for (int axis = 0; axis < 3; axis++)
            s->rope_at[i][axis] = (int32_t)(s->length + i);
        s->wanted[i] = (int32_t)(scored ? i : n_rows - 1);
    }
    struct ob_segment segment = {
        .state = s->state, .first_row = 0, .n_rows = n_rows, .position = s->length};
    struct ob_batch batch = {
        .n_rows = n_rows,
        .ids = ids,
        .rope_at = (const int32_t(*)[3])s->rope_at,
        .segments = &segment,
        .n_segments = 1,
        .wanted = s->wanted,
        .n_wanted = scored ? n_rows : 1,
    };
    pthread_mutex_lock(&m->lock);
    ob_status status = backend_of(s)->run(m->engine, &batch, err);
    if (status == OB_OK)
        status = collect(s, n_rows, scored, err);
    if (status == OB_OK) {
        memmove(s->ids + s->length, ids, n_rows * sizeof *ids);
        s->length += n_rows;
        s->logits_at = s->length;
    } else {
        ob_session_follow_state(s);
    }
    pthread_mutex_unlock(&m->lock);
    return status;
}

/* Hand the rows of the last run to the caller. */
static ob_status deliver(struct ob_session *s, size_t n_rows, const struct sink *sink,
                         struct ob_error *err)
{
    const struct ob_plan *plan = s->model->plan;
    size_t n_embd = (size_t)s->model->config.n_embd, plane = plan->max_wanted * n_embd;
    for (size_t r = 0; r < n_rows; r++) {
        for (int i = 0; i < plan->n_taps; i++)
            s->hidden_row[i] = s->hidden + (size_t)i * plane + r * n_embd;
        size_t position = s->length - n_rows + r;
        struct ob_row row = {
            .position = position,
            .id = s->ids[position],
            .logits = s->scored + r * (size_t)plan->n_vocab,
            .hidden = plan->n_taps > 0 ? s->hidden_row : NULL,
        };
        if (sink->fn(sink->context, &row) != 0)
            return ob_fail(err, OB_CANCELLED, "stopped by the caller after token %zu", position);
    }
    return OB_OK;
}

/* Rows of the next chunk of a read that has n_left tokens to go: a chunk ends where a checkpoint is
 * due. How a read is cut changes nothing of what it computes. */
static size_t next_rows(const struct ob_session *s, size_t n_left, size_t chunk)
{
    size_t due = s->checkpoint_every - s->length % s->checkpoint_every;
    size_t n_rows = n_left < chunk ? n_left : chunk;
    return s->checkpoints.n_slots > 0 && due < n_rows ? due : n_rows;
}

/* Read ids after the ledger, chunk by chunk. Pages are reserved and ids checked. `ids` may lie in
 * the ledger itself, at its end: that is how tokens are read again. */
static ob_status read_ids(struct ob_session *s, const int32_t *ids, size_t n_ids,
                          const struct sink *sink, struct ob_error *err)
{
    const struct ob_plan *plan = s->model->plan;
    size_t chunk = sink->fn ? plan->max_wanted : plan->max_rows;
    for (size_t done = 0; done < n_ids;) {
        if (s->progress && s->progress(s->progress_context, done, n_ids) != 0)
            return ob_fail(err, OB_CANCELLED, "stopped by the caller after %zu of %zu tokens", done,
                           n_ids);
        size_t n_rows = next_rows(s, n_ids - done, chunk);
        OB_TRY(run_rows(s, ids + done, n_rows, sink->fn != NULL, err));
        done += n_rows;
        if (s->length % s->checkpoint_every == 0)
            OB_TRY(ob_session_checkpoint(s, err));
        if (sink->fn)
            OB_TRY(deliver(s, n_rows, sink, err));
    }
    if (s->progress && n_ids > 0)
        s->progress(s->progress_context, n_ids, n_ids);
    return OB_OK;
}

static ob_status append(struct ob_session *s, const int32_t *ids, size_t n_ids,
                        const struct sink *sink, struct ob_error *err)
{
    OB_TRY(check_ids(s, ids, n_ids, err));
    if (n_ids > s->n_ctx - s->length)
        return ob_fail(err, OB_CONTEXT_FULL,
                       "%zu tokens do not fit after %zu: the session holds at most %zu", n_ids,
                       s->length, s->n_ctx);
    OB_TRY(ob_session_reserve(s, s->length, s->length + n_ids, err));
    ob_status status = read_ids(s, ids, n_ids, sink, err);
    if (status != OB_OK)
        ob_session_give_back_pages(s);
    return status;
}

ob_status ob_session_append(struct ob_session *s, const int32_t *ids, size_t n_ids,
                            struct ob_error *err)
{
    struct sink none = {0};
    return append(s, ids, n_ids, &none, err);
}

static ob_status make_score_buffers(struct ob_session *s, struct ob_error *err)
{
    const struct ob_plan *plan = s->model->plan;
    size_t rows = plan->max_wanted, n_embd = (size_t)s->model->config.n_embd;
    if (!s->scored)
        s->scored = ob_calloc(rows * (size_t)plan->n_vocab, sizeof *s->scored);
    if (!s->hidden && plan->n_taps > 0)
        s->hidden = ob_calloc((size_t)plan->n_taps * rows * n_embd, sizeof *s->hidden);
    if (!s->hidden_row && plan->n_taps > 0)
        s->hidden_row = ob_calloc((size_t)plan->n_taps, sizeof *s->hidden_row);
    if (!s->scored || (plan->n_taps > 0 && (!s->hidden || !s->hidden_row)))
        return ob_fail_memory(err, rows * (size_t)plan->n_vocab * sizeof *s->scored,
                              "the scored rows");
    return OB_OK;
}

ob_status ob_session_score(struct ob_session *s, const int32_t *ids, size_t n_ids, ob_row_fn fn,
                           void *context, struct ob_error *err)
{
    if (!fn)
        return ob_fail(err, OB_INVALID_ARGUMENT, "ob_session_score needs a function for the rows");
    OB_TRY(make_score_buffers(s, err));
    struct sink sink = {fn, context};
    return append(s, ids, n_ids, &sink, err);
}

size_t ob_session_usable(const struct ob_session *s, const int32_t *ids, size_t n_ids,
                         size_t *n_common)
{
    size_t common = 0;
    while (common < s->length && common < n_ids && s->ids[common] == ids[common])
        common++;
    *n_common = common;
    if (common > s->shifted_from) /* only models that can be cut anywhere are shifted */
        return s->shifted_from;
    if (common == s->length && (common < n_ids || s->logits_at == common))
        return common;
    if (s->checkpoints.fixed_floats > 0) /* 0: all is read again */
        return ob_checkpoints_find(&s->checkpoints, common);
    /* Where nothing would be left to read, the logits come from reading the last token again. */
    size_t most = common == n_ids && common > 0 ? common - 1 : common;
    const struct ob_engine *engine = s->model->engine;
    return engine->backend->state_keeps ? engine->backend->state_keeps(engine, s->state, most)
                                        : most;
}

/* Cut the session to `kept` tokens, which ob_session_usable said it can keep. */
static ob_status keep_prefix(struct ob_session *s, size_t kept, struct ob_error *err)
{
    ob_status status = OB_OK;
    size_t at = ob_checkpoints_find(&s->checkpoints, kept);
    ob_checkpoints_forget_after(&s->checkpoints, kept);
    pthread_mutex_lock(&s->model->lock);
    if (at > 0) {
        status =
            ob_checkpoints_restore(&s->checkpoints, s->model->engine, s->state, at, s->logits, err);
        s->length = s->logits_at = at;
        if (status != OB_OK) {
            s->length = 0;
            ob_session_follow_state(s);
        }
    } else {
        s->length = backend_of(s)->state_truncate(s->model->engine, s->state, kept);
    }
    follow_shift(s);
    pthread_mutex_unlock(&s->model->lock);
    return status;
}

/* Why no more than `reused` of the session's tokens were kept, of which `most` could have been. */
static const char *why_reused(const struct ob_session *s, size_t held, size_t wanted, size_t common,
                              size_t most, size_t reused, bool shifted)
{
    if (shifted)
        return "a context shift moved what came after that, so it is read again";
    if (reused == most && common < held)
        return wanted == common ? "what is wanted is the beginning of what was held"
                                : "the tokens differ from there on";
    if (reused == most)
        return "a read that was stopped left no logits, so the last token is read again";
    if (s->checkpoints.fixed_floats == 0)
        return "4-bit keys and values cannot be cut, so what their page begins with is read again";
    return reused > 0
               ? "a recurrent state goes back to its nearest checkpoint, and what came after "
                 "it is read again"
               : "a recurrent state cannot go back, so all is read again";
}

/* Hold ids [n_ids], keeping what can be kept. Whole or not at all until pages for it are there. */
static ob_status hold(struct ob_session *s, const int32_t *ids, size_t n_ids,
                      struct ob_sync_report *report, struct ob_error *err)
{
    struct sink none = {0};
    size_t held = s->length, common, kept = ob_session_usable(s, ids, n_ids, &common);
    bool shifted = common > s->shifted_from;
    OB_TRY(ob_session_reserve(s, kept, n_ids, err));
    ob_status status = OB_OK;
    if (kept < held) {
        status = keep_prefix(s, kept, err);
        kept = s->length;
        report->reason =
            why_reused(s, held, n_ids, common,
                       kept + 1 == common && common == n_ids ? kept : common, kept, shifted);
    }
    if (status == OB_OK)
        status = read_ids(s, ids + kept, n_ids - kept, &none, err);
    if (kept == 0)
        report->source = "nothing";
    else if (!report->source)
        report->source = kept < held && s->checkpoints.fixed_floats > 0 ? "checkpoint" : "ledger";
    report->n_reused = kept;
    report->n_read = s->length - kept;
    ob_session_give_back_pages(s);
    return status;
}

ob_status ob_session_rollback(struct ob_session *s, size_t length, struct ob_error *err)
{
    if (length > s->length)
        return ob_fail(err, OB_INVALID_ARGUMENT,
                       "cannot go back to %zu tokens: the session holds %zu", length, s->length);
    if (length == s->length && (length == 0 || s->logits_at == length) && length <= s->shifted_from)
        return OB_OK;
    struct ob_sync_report report = {0};
    return hold(s, s->ids, length, &report, err);
}

static void report_difference(const struct ob_session *s, const int32_t *ids, size_t n_ids,
                              const char *source, struct ob_sync_report *report)
{
    size_t common = 0;
    while (common < s->length && common < n_ids && s->ids[common] == ids[common])
        common++;
    *report = (struct ob_sync_report){
        .n_wanted = n_ids, .n_held = s->length, .n_common = common, .source = source};
    for (size_t i = 0; i < 6; i++) {
        report->held[i] = common + i < s->length ? s->ids[common + i] : -1;
        report->wanted[i] = common + i < n_ids ? ids[common + i] : -1;
    }
    if (common == s->length)
        report->reason = common == n_ids ? "the session holds just these tokens"
                                         : "all that was held is a prefix of what is wanted";
}

ob_status ob_session_sync(struct ob_session *s, const int32_t *ids, size_t n_ids,
                          struct ob_sync_report *report, struct ob_error *err)
{
    struct ob_sync_report own = {0};
    report = report ? report : &own;
    if (n_ids == 0)
        return ob_fail(err, OB_INVALID_ARGUMENT, "a sync needs at least one token");
    OB_TRY(check_ids(s, ids, n_ids, err));
    if (n_ids > s->n_ctx)
        return ob_fail(err, OB_CONTEXT_FULL, "%zu tokens do not fit: the session holds at most %zu",
                       n_ids, s->n_ctx);
    const char *source = s->park ? ob_park_choose(s->park, s, ids, n_ids) : NULL;
    report_difference(s, ids, n_ids, source, report);
    /* Where the ledger ends now, a message does; and so it will be where the prompt ends. */
    if (report->n_common == s->length && n_ids > s->length)
        OB_TRY(ob_session_checkpoint(s, err));
    OB_TRY(hold(s, ids, n_ids, report, err));
    return ob_session_checkpoint(s, err);
}
