/* Context shift: forget tokens in the middle of a session and move those behind them down.
 *
 * A key was turned by its position when it was written (RoPE). Turning it back by the n positions that it
 * moves down gives the key that its layer's input would have at the new place, but for rounding: so
 * keys are moved and turned, values are moved. What is wrong with the result is not the rotation but
 * the input: above the first layer it was computed with the forgotten tokens in view. That cannot be mended
 * without reading again, so the session remembers where it begins (shifted_from). */
#include <math.h>
#include <stdlib.h>

#include "base/half.h"
#include "base/memory.h"
#include "plan/kv.h"
#include "run/session.h"

struct shift {
    struct ob_session *session;
    size_t keep, n, length; /* length: of the session afterwards */
    enum ob_kv_format format;
    size_t n_heads, head_dim, half; /* dims i < half and i + half are turned together */
    double *cosine, *sine;          /* [half] of the angle of n positions */
    unsigned char *from, *to;       /* a page each */
};

static const struct ob_rope *rope_of(const struct ob_plan *plan)
{
    for (int i = 0; i < plan->n_steps; i++)
        if (plan->steps[i].op == OB_OP_ROPE)
            return plan->steps[i].rope;
    return NULL;
}

ob_status ob_model_can_shift(const struct ob_model *m, struct ob_error *err)
{
    const char *why = NULL;
    for (int i = 0; i < m->plan->n_states; i++)
        if (m->plan->states[i].kind != OB_STATE_KV)
            why = "it has recurrent states, which cannot forget a token";
    if (!why && m->kv_type != OB_KV_F16 && m->kv_type != OB_KV_F32)
        return ob_fail(
            err, OB_UNSUPPORTED,
            "the context cannot be shifted: keys of type %s would be packed twice, f16 and "
            "f32 ones can be turned",
            ob_kv_type_name(m->kv_type));
    if (!why && m->config.rope.scaling == OB_ROPE_SCALING_YARN && m->rope == OB_ROPE_FILE)
        why = "its positions are scaled by YaRN";
    if (!why && !rope_of(m->plan))
        why = "its keys have no rotary positions";
    if (why)
        return ob_fail(err, OB_UNSUPPORTED, "the context of this model cannot be shifted: %s", why);
    if (!m->engine->backend->state_write)
        return ob_fail(err, OB_UNSUPPORTED, "sessions of the %s backend cannot be shifted",
                       m->engine->backend->name);
    return OB_OK;
}

/* -------------------------------------------------------------------------------------- tokens */

static size_t number_bytes(const struct shift *s)
{
    return ob_kv_format_bytes(s->format, 1);
}

static double get(const struct shift *s, const unsigned char *row, size_t i)
{
    if (s->format == OB_KV_STORE_F32)
        return (double)((const float *)(const void *)row)[i];
    return (double)ob_f16_to_f32(((const uint16_t *)(const void *)row)[i]);
}

static void put(const struct shift *s, unsigned char *row, size_t i, double x)
{
    if (s->format == OB_KV_STORE_F32)
        ((float *)(void *)row)[i] = (float)x;
    else
        ((uint16_t *)(void *)row)[i] = ob_f32_to_f16((float)x);
}

/* One head's key, in double precision, so that it is rounded once. */
static void turn_back(const struct shift *s, unsigned char *key)
{
    for (size_t i = 0; i < s->half; i++) {
        double a = get(s, key, i), b = get(s, key, i + s->half);
        put(s, key, i, a * s->cosine[i] + b * s->sine[i]);
        put(s, key, i + s->half, b * s->cosine[i] - a * s->sine[i]);
    }
}

/* Copy `n` tokens, every head's, from token `at` of one page to token `to` of another. */
static void copy_tokens(const struct shift *s, size_t from_page, size_t at, size_t to_page,
                        size_t to, size_t n, bool turn)
{
    size_t row = s->head_dim * number_bytes(s);
    for (size_t h = 0; h < s->n_heads; h++) {
        unsigned char *out = s->to + (h * ob_page_tokens(to_page) + to) * row;
        memcpy(out, s->from + (h * ob_page_tokens(from_page) + at) * row, n * row);
        for (size_t t = 0; turn && t < n; t++)
            turn_back(s, out + t * row);
    }
}

/* --------------------------------------------------------------------------------------- pages */

/* Fill page `place` of one layer's keys or values from where its tokens are now: in this page or
 * in later ones, so pages are done from the first on. */
static ob_status fill_page(const struct shift *s, struct ob_state_place place, struct ob_error *err)
{
    struct ob_engine *engine = s->session->model->engine;
    size_t start = ob_page_start(place.page), end = start + ob_page_tokens(place.page);
    memset(s->to, 0, engine->backend->page_bytes(engine, place.page, s->length));
    for (size_t at = start; at < end && at < s->length;) {
        bool moves = at >= s->keep;
        struct ob_state_place source = place;
        size_t from = moves ? at + s->n : at, n = (moves || end < s->keep ? end : s->keep) - at;
        source.page = ob_page_of(from);
        size_t source_start = ob_page_start(source.page),
               left = source_start + ob_page_tokens(source.page) - from;
        n = n < left ? n : left;
        n = n < s->length - at ? n : s->length - at;
        OB_TRY(engine->backend->state_read(engine, s->session->state, source, s->from, err));
        copy_tokens(s, source.page, from - source_start, place.page, at - start, n,
                    moves && !place.values);
        at += n;
    }
    return engine->backend->state_write(engine, s->session->state, place, s->to, err);
}

/* Locked. */
static ob_status move_all(const struct shift *s, struct ob_error *err)
{
    const struct ob_plan *plan = s->session->model->plan;
    for (int i = 0; i < plan->n_states; i++)
        for (int kind = 0; kind < 2; kind++)
            for (size_t p = ob_page_of(s->keep); p <= ob_page_of(s->length - 1); p++)
                OB_TRY(fill_page(
                    s, (struct ob_state_place){.state = i, .values = kind == 1, .page = p}, err));
    return OB_OK;
}

static ob_status prepare(struct shift *s, struct ob_error *err)
{
    const struct ob_model *m = s->session->model;
    const struct ob_rope *rope = rope_of(m->plan);
    size_t page = m->engine->backend->page_bytes(m->engine, 1, m->n_ctx);
    s->format = ob_kv_format_of(m->kv_type);
    s->n_heads = (size_t)m->plan->states[0].n_heads; /* of every layer: they are all alike */
    s->head_dim = (size_t)m->plan->states[0].cols;
    s->half = (size_t)rope->n_rot / 2;
    s->cosine = ob_calloc(2 * s->half, sizeof *s->cosine);
    s->from = ob_alloc_aligned(page, 2);
    if (!s->cosine || !s->from)
        return ob_fail_memory(err, 2 * page, "shifting a session");
    s->sine = s->cosine + s->half;
    s->to = s->from + page;
    for (size_t i = 0; i < s->half; i++) {
        s->cosine[i] = cos((double)s->n * rope->freq[i]);
        s->sine[i] = sin((double)s->n * rope->freq[i]);
    }
    return OB_OK;
}

/* The pages from `keep` on are the session's own. */
static ob_status shift(struct shift *s, struct ob_error *err)
{
    struct ob_session *session = s->session;
    struct ob_model *m = session->model;
    bool has_logits = ob_session_logits(session) != NULL;
    pthread_mutex_lock(&m->lock);
    ob_status status = move_all(s, err);
    if (status == OB_OK) {
        memmove(session->ids + s->keep, session->ids + s->keep + s->n,
                (s->length - s->keep) * sizeof *session->ids);
        session->length = s->length;
        if (s->keep < session->shifted_from)
            session->shifted_from = s->keep;
    } else { /* a device failed half-way: nothing is left */
        session->length = 0;
    }
    ob_session_follow_state(session);
    pthread_mutex_unlock(&m->lock);
    if (status == OB_OK && has_logits) /* what the last token said stands */
        session->logits_at = session->length;
    return status;
}

ob_status ob_session_shift(struct ob_session *session, size_t keep, size_t n, struct ob_error *err)
{
    size_t length = session->length;
    OB_TRY(ob_model_can_shift(session->model, err));
    if (n == 0)
        return OB_OK;
    if (keep >= length || n >= length - keep)
        return ob_fail(
            err, OB_INVALID_ARGUMENT,
            "cannot drop %zu tokens behind the first %zu and keep some: the session holds "
            "%zu",
            n, keep, length);
    OB_TRY(ob_session_reserve(session, keep, length, err));
    struct shift s = {.session = session, .keep = keep, .n = n, .length = length - n};
    ob_status status = prepare(&s, err);
    if (status == OB_OK)
        status = shift(&s, err);
    free(s.cosine);
    free(s.from);
    ob_session_give_back_pages(session);
    return status;
}

size_t ob_session_shifted_from(const struct ob_session *session)
{
    return session->shifted_from < session->length ? session->shifted_from : session->length;
}
