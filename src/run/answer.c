#include "run/answer.h"

#include "run/session.h"
#include "text/output.h"

struct writer {
    const struct ob_answer *answer;
    struct ob_output *output;
    size_t n_thought; /* tokens that ended inside the thought */
    bool over_budget, failed;
};

static int take_event(void *context, const struct ob_output_event *event)
{
    struct writer *w = context;
    bool reasoning = event->kind == OB_OUTPUT_REASONING;
    struct ob_text *to = reasoning ? w->answer->reasoning : w->answer->content;
    ob_text_append(to, event->text.ptr, event->text.len);
    w->failed = w->failed || to->failed;
    return w->failed ||
           w->answer->fn(w->answer->context, event->text.ptr, event->text.len, reasoning) != 0;
}

/* A thought is closed behind whole characters only, so that the text is what the ids say. */
static int take_delta(void *context, const struct ob_delta *delta)
{
    struct writer *w = context;
    size_t budget = w->answer->thinking_budget;
    w->failed = !ob_ids_append(w->answer->ids, &delta->id, 1);
    if (w->failed)
        return 1;
    ob_status status = ob_output_feed(w->output, delta->text, delta->n_bytes, take_event, w);
    w->failed = w->failed || status == OB_NO_MEMORY;
    bool thinks = ob_output_in_thought(w->output);
    w->n_thought += thinks;
    w->over_budget =
        status == OB_OK && thinks && budget && w->n_thought >= budget && delta->n_bytes > 0;
    return status != OB_OK || w->over_budget;
}

/* Write the end of the thought for the model, and read it. */
static ob_status close_thought(struct writer *w, size_t *n_tokens, struct ob_error *err)
{
    static const char close[] = "\n</think>\n\n";
    struct ob_session *s = w->answer->session;
    struct ob_ids *ids = w->answer->ids;
    struct ob_sync_report report;
    size_t before = ids->len;
    OB_TRY(ob_tokenizer_encode(s->model->tokenizer, close, sizeof close - 1, true, ids, err));
    *n_tokens += ids->len - before;
    w->over_budget = false;
    ob_output_feed(w->output, close, sizeof close - 1, take_event, w);
    return ob_session_sync(s, ids->data, ids->len, &report, err);
}

static ob_status write_all(struct writer *w, const struct ob_generate_options *given,
                           struct ob_generated *result, struct ob_error *err)
{
    struct ob_generate_options options = given ? *given : (struct ob_generate_options){0};
    size_t n_prompt = w->answer->ids->len;
    OB_TRY(ob_generate(w->answer->session, &options, take_delta, w, result, err));
    if (!w->over_budget || w->failed)
        return OB_OK;
    size_t n = result->n_tokens;
    result->finish = OB_FINISH_LENGTH;
    ob_status status = close_thought(w, &n, err);
    result->n_tokens = n;
    if (status == OB_CONTEXT_FULL || (options.max_tokens > 0 && n >= options.max_tokens))
        return OB_OK; /* no room for an answer */
    if (status != OB_OK)
        return status;
    options.max_tokens -= options.max_tokens > 0 ? n : 0;
    options.n_prompt = options.n_prompt > 0 ? options.n_prompt : n_prompt;
    OB_TRY(ob_generate(w->answer->session, &options, take_delta, w, result, err));
    result->n_tokens += n;
    return OB_OK;
}

ob_status ob_answer_write(const struct ob_answer *answer, const struct ob_generate_options *options,
                          struct ob_generated *result, struct ob_error *err)
{
    const struct ob_output_options apart = {.in_thought = answer->in_thought};
    struct writer w = {.answer = answer};
    OB_TRY(ob_output_create(&apart, &w.output, err));
    ob_status status = write_all(&w, options, result, err);
    if (status == OB_OK)
        ob_output_finish(w.output, take_event, &w); /* a stop of the caller's is told already */
    if (status == OB_OK && w.failed)
        status = ob_fail(err, OB_NO_MEMORY, "not enough memory for the answer");
    ob_output_destroy(w.output);
    return status;
}
