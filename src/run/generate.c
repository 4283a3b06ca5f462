/* Generation: sample, show, read, again.
 *
 * The token that ends an answer is reported and not read: a session then holds a prefix of whatever
 * is said next, so a later sync loses nothing, and the last token costs no step. */
#include <stdlib.h>

#include "base/memory.h"
#include "run/generation.h"
#include "sample/sampler.h"
#include "sample/stop.h"
#include "text/utf8.h"

struct ob_generation {
    struct ob_session *session;
    size_t max_tokens, n_prompt;
    bool ignore_eos, shifts; /* shifts: goes on past a full session */
    size_t n_keep;
    size_t n_dropped; /* tokens so far */
    struct ob_sampler *sampler;
    struct ob_stop *stop;
    struct ob_utf8_stream utf8;
    char *characters; /* what one token adds in whole characters */
    char *safe;       /* what of it can be shown: no part of a stop string */
    ob_delta_fn fn;
    void *context;
    struct ob_generated result;
};

static size_t longest_token(const struct ob_model *m)
{
    size_t longest = 0;
    for (size_t i = 0; i < ob_tokenizer_n_tokens(m->tokenizer); i++) {
        size_t n = ob_tokenizer_bytes(m->tokenizer, (int32_t)i).len;
        longest = n > longest ? n : longest;
    }
    return longest;
}

/* Rows of the vocabulary that stand for no text and end nothing: they must never be chosen. */
static ob_status find_padding(const struct ob_model *m, int32_t **ids, size_t *n,
                              struct ob_error *err)
{
    *n = 0;
    *ids = ob_calloc((size_t)m->config.n_vocab, sizeof **ids);
    if (!*ids)
        return ob_fail_memory(err, (size_t)m->config.n_vocab * sizeof **ids, "the padding ids");
    for (int32_t id = 0; id < m->config.n_vocab; id++)
        if (ob_tokenizer_bytes(m->tokenizer, id).len == 0 && !ob_model_ends_generation(m, id))
            (*ids)[(*n)++] = id;
    return OB_OK;
}

static ob_status make_sampler(struct ob_generation *g, const struct ob_sampling *sampling,
                              struct ob_error *err)
{
    struct ob_model *m = g->session->model;
    int32_t *padding;
    size_t n_padding;
    OB_TRY(find_padding(m, &padding, &n_padding, err));
    ob_status status = ob_sampler_create(sampling, (size_t)m->config.n_vocab, padding, n_padding,
                                         &g->sampler, err);
    free(padding);
    return status;
}

static ob_status make_stop(struct ob_generation *g, const struct ob_string *stop, size_t n,
                           struct ob_error *err)
{
    struct ob_str *strings = ob_calloc(n, sizeof *strings);
    if (!strings)
        return ob_fail_memory(err, n * sizeof *strings, "the stop strings");
    for (size_t i = 0; i < n; i++)
        strings[i] = (struct ob_str){stop[i].ptr, stop[i].n_bytes};
    ob_status status = ob_stop_create(strings, n, &g->stop, err);
    free(strings);
    return status;
}

static ob_status prepare(struct ob_generation *g, const struct ob_generate_options *options,
                         struct ob_error *err)
{
    OB_TRY(make_sampler(g, &options->sampling, err));
    OB_TRY(make_stop(g, options->stop, options->n_stop, err));
    size_t bytes = 3 * (longest_token(g->session->model) + 3);
    g->characters = ob_calloc(bytes, 1);
    g->safe = ob_calloc(bytes + ob_stop_max_held(g->stop), 1);
    return g->characters && g->safe ? OB_OK : ob_fail_memory(err, 2 * bytes, "a token's text");
}

/* Hand one token to the caller with the text that is safe to show. False: the caller wants to stop. */
static bool deliver(struct ob_generation *g, const struct ob_sampled *sampled, size_t n_bytes)
{
    struct ob_delta delta = {
        .id = sampled->id,
        .text = g->safe,
        .n_bytes = n_bytes,
        .logprob = sampled->logprob,
        .top = sampled->top,
        .n_top = sampled->n_top,
    };
    return g->fn(g->context, &delta) == 0;
}

/* Text still held back, at the end of an answer that no stop string cut: into g->safe. */
static size_t flush(struct ob_generation *g)
{
    size_t n = ob_utf8_stream_finish(&g->utf8, g->characters, 3);
    struct ob_stop_result r = ob_stop_feed(g->stop, g->characters, n, g->safe);
    return r.n_out + ob_stop_finish(g->stop, g->safe + r.n_out);
}

/* Take one sampled token. True when the answer is over. */
static bool take(struct ob_generation *g, const struct ob_sampled *sampled)
{
    const struct ob_model *m = g->session->model;
    g->result.n_tokens++;
    if (ob_model_ends_generation(m, sampled->id) && !g->ignore_eos) {
        g->result.finish = OB_FINISH_STOP;
        deliver(g, sampled, flush(g));
        return true;
    }
    struct ob_str bytes = ob_tokenizer_bytes(m->tokenizer, sampled->id);
    size_t n =
        ob_utf8_stream_bytes(&g->utf8, bytes.ptr, bytes.len, g->characters, 3 * (bytes.len + 3));
    struct ob_stop_result r = ob_stop_feed(g->stop, g->characters, n, g->safe);
    const struct ob_session *s = g->session;
    /* No room to read it: the answer ends here, truthfully. */
    bool full = s->length == s->n_ctx && !g->shifts;
    bool last = r.matched || full || (g->max_tokens > 0 && g->result.n_tokens >= g->max_tokens);
    g->result.finish = r.matched ? OB_FINISH_STOP_STRING : OB_FINISH_LENGTH;
    n = r.n_out;
    if (last && !r.matched) { /* what flush would show comes with the last token */
        size_t tail = ob_utf8_stream_finish(&g->utf8, g->characters, 3);
        n += ob_stop_feed(g->stop, g->characters, tail, g->safe + n).n_out;
        n += ob_stop_finish(g->stop, g->safe + n);
    }
    if (!deliver(g, sampled, n)) {
        g->result.finish = OB_FINISH_CANCELLED;
        return true;
    }
    return last;
}

/* Room for what is read next. */
static ob_status shift(struct ob_generation *g, struct ob_error *err)
{
    struct ob_session *s = g->session;
    size_t n = (s->n_ctx - g->n_keep) / 2;
    OB_TRY(ob_session_shift(s, g->n_keep, n, err));
    g->n_dropped += n;
    if (g->n_prompt > g->n_keep)
        g->n_prompt -= n < g->n_prompt - g->n_keep ? n : g->n_prompt - g->n_keep;
    return OB_OK;
}

ob_status ob_generation_step(struct ob_generation *g, int32_t *id, bool *over, struct ob_error *err)
{
    const struct ob_session *s = g->session;
    struct ob_sample_input input = {
        .logits = ob_session_logits(s),
        .position = s->length + g->n_dropped, /* no draw of random numbers comes twice */
        .history = {.ids = s->ids, .n = s->length, .n_prompt = g->n_prompt},
    };
    struct ob_sampled sampled;
    if (!input.logits)
        return ob_fail(err, OB_INVALID_ARGUMENT,
                       "nothing to go on from: the session holds no token, or a read was stopped");
    OB_TRY(ob_sampler_sample(g->sampler, &input, &sampled, err));
    *id = sampled.id;
    *over = take(g, &sampled);
    return !*over && s->length == s->n_ctx ? shift(g, err) : OB_OK;
}

void ob_generation_add(struct ob_generation *g, size_t n)
{
    g->result.n_tokens += n;
}

struct ob_generated ob_generation_result(const struct ob_generation *g)
{
    return g->result;
}

void ob_generation_destroy(struct ob_generation *g)
{
    if (!g)
        return;
    ob_sampler_destroy(g->sampler);
    ob_stop_destroy(g->stop);
    free(g->characters);
    free(g->safe);
    free(g);
}

static ob_status check_shift(const struct ob_session *s, const struct ob_generate_options *options,
                             struct ob_error *err)
{
    if (!options->context_shift)
        return OB_OK;
    OB_TRY(ob_model_can_shift(s->model, err));
    if (s->n_ctx < 2 || options->n_keep > s->n_ctx - 2)
        return ob_fail(err, OB_INVALID_ARGUMENT,
                       "a shift that keeps the first %zu tokens makes no room in a session of %zu",
                       options->n_keep, s->n_ctx);
    return OB_OK;
}

ob_status ob_generation_create(struct ob_session *session,
                               const struct ob_generate_options *options, ob_delta_fn fn,
                               void *context, struct ob_generation **out, struct ob_error *err)
{
    static const struct ob_generate_options defaults = {0};
    if (!fn)
        return ob_fail(err, OB_INVALID_ARGUMENT, "ob_generate needs a function for the tokens");
    if (!ob_session_logits(session))
        return ob_fail(err, OB_INVALID_ARGUMENT,
                       "nothing to go on from: the session holds no token, or a read was stopped");
    options = options ? options : &defaults;
    OB_TRY(check_shift(session, options, err));
    struct ob_generation *g = ob_calloc(1, sizeof *g);
    if (!g)
        return ob_fail_memory(err, sizeof *g, "a generation");
    g->session = session;
    g->max_tokens = options->max_tokens;
    g->ignore_eos = options->ignore_eos;
    g->shifts = options->context_shift;
    g->n_keep = options->n_keep;
    g->fn = fn;
    g->context = context;
    g->n_prompt = session->length;
    if (options->n_prompt > 0 && options->n_prompt < g->n_prompt)
        g->n_prompt = options->n_prompt;
    ob_status status = prepare(g, options, err);
    if (status != OB_OK) {
        ob_generation_destroy(g);
        return status;
    }
    *out = g;
    return OB_OK;
}

static ob_status loop(struct ob_generation *g, struct ob_error *err)
{
    for (;;) {
        int32_t id;
        bool over;
        OB_TRY(ob_generation_step(g, &id, &over, err));
        if (over)
            return OB_OK;
        OB_TRY(ob_session_append(g->session, &id, 1, err));
    }
}

ob_status ob_generate(struct ob_session *session, const struct ob_generate_options *options,
                      ob_delta_fn fn, void *context, struct ob_generated *result,
                      struct ob_error *err)
{
    struct ob_generation *g;
    OB_TRY(ob_generation_create(session, options, fn, context, &g, err));
    ob_progress_fn progress = session->progress; /* single tokens are no progress to report */
    session->progress = NULL;
    ob_status status = ob_session_checkpoint(session, err); /* the prompt ends here */
    if (status == OB_OK)
        status = loop(g, err);
    session->progress = progress;
    if (status == OB_OK)
        *result = g->result;
    ob_generation_destroy(g);
    return status;
}
