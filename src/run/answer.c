#include "run/answer.h"

#include <stdlib.h>

#include "base/memory.h"
#include "run/generation.h"

struct ob_answer {
    struct ob_session *session;
    struct ob_answer_options options;
    struct ob_generation *generation;
    struct ob_output *output; /* NULL: plain */
    struct ob_ids next;       /* what the caller shall read */
    size_t n_thought;         /* tokens that ended inside the thought */
    bool over_budget, cut, failed;
};

static const char close_tag[] = "\n</think>\n\n";

static ob_status feed(struct ob_answer *a, const char *text, size_t n)
{
    if (a->output)
        return ob_output_feed(a->output, text, n, a->options.event, a->options.context);
    struct ob_output_event event = {.kind = OB_OUTPUT_CONTENT, .text = {text, n}};
    return n == 0 || a->options.event(a->options.context, &event) == 0 ? OB_OK : OB_CANCELLED;
}

static bool record(struct ob_answer *a, const int32_t *ids, size_t n)
{
    a->failed = a->failed || (a->options.ids && !ob_ids_append(a->options.ids, ids, n));
    return !a->failed;
}

/* A thought is closed behind whole characters only, so that the text is what the ids say. */
static int take_delta(void *context, const struct ob_delta *delta)
{
    struct ob_answer *a = context;
    size_t budget = a->options.thinking_budget;
    if (!record(a, &delta->id, 1))
        return 1;
    if (a->options.token && a->options.token(a->options.context, delta) != 0)
        return 1;
    ob_status status = feed(a, delta->text, delta->n_bytes);
    a->failed = status == OB_NO_MEMORY;
    bool thinks = ob_answer_in_thought(a);
    a->n_thought += thinks;
    a->over_budget =
        status == OB_OK && thinks && budget && a->n_thought >= budget && delta->n_bytes > 0;
    return status != OB_OK;
}

/* Write the end of the thought for the model. Where that leaves no room the answer is cut, but the tag
 * is whole. */
static ob_status close_thought(struct ob_answer *a, struct ob_error *err)
{
    size_t most = a->options.generate.max_tokens, before = a->next.len;
    OB_TRY(ob_tokenizer_encode(a->session->model->tokenizer, close_tag, sizeof close_tag - 1, true,
                               &a->next, err));
    record(a, a->next.data + before, a->next.len - before);
    ob_generation_add(a->generation, a->next.len - before);
    a->failed = a->failed || feed(a, close_tag, sizeof close_tag - 1) == OB_NO_MEMORY;
    a->over_budget = false;
    a->cut = a->next.len > a->session->n_ctx - a->session->length ||
             (most > 0 && ob_generation_result(a->generation).n_tokens >= most);
    return OB_OK;
}

static ob_status finish(struct ob_answer *a)
{
    a->next.len = 0;
    if (!a->output || ob_answer_result(a).finish == OB_FINISH_CANCELLED)
        return OB_OK; /* a stop of the caller's is told already */
    ob_status status = ob_output_finish(a->output, a->options.event, a->options.context);
    return status == OB_CANCELLED ? OB_OK : status;
}

ob_status ob_answer_step(struct ob_answer *a, const int32_t **ids, size_t *n, struct ob_error *err)
{
    int32_t id;
    bool over;
    a->next.len = 0;
    OB_TRY(ob_generation_step(a->generation, &id, &over, err));
    ob_status status = OB_OK;
    a->failed = a->failed || !ob_ids_append(&a->next, &id, 1);
    bool stopped = over && ob_answer_result(a).finish != OB_FINISH_LENGTH;
    if (!a->failed && !stopped && a->over_budget)
        status = close_thought(a, err);
    if (status == OB_OK && (over || a->cut))
        status = finish(a);
    if (status == OB_NO_MEMORY || (status == OB_OK && a->failed))
        status = ob_fail(err, OB_NO_MEMORY, "not enough memory for the answer");
    *ids = a->next.data;
    *n = a->next.len;
    return status;
}

bool ob_answer_in_thought(const struct ob_answer *a)
{
    return a->output && ob_output_in_thought(a->output);
}

struct ob_generated ob_answer_result(const struct ob_answer *a)
{
    struct ob_generated result = ob_generation_result(a->generation);
    if (a->cut)
        result.finish = OB_FINISH_LENGTH;
    return result;
}

ob_status ob_answer_create(struct ob_session *session, const struct ob_answer_options *options,
                           struct ob_answer **out, struct ob_error *err)
{
    struct ob_answer *a = ob_calloc(1, sizeof *a);
    if (!a)
        return ob_fail_memory(err, sizeof *a, "an answer");
    a->session = session;
    a->options = *options;
    ob_status status = OB_OK;
    if (!options->plain)
        status = ob_output_create(&options->output, &a->output, err);
    if (status == OB_OK)
        status =
            ob_generation_create(session, &options->generate, take_delta, a, &a->generation, err);
    if (status != OB_OK) {
        ob_answer_destroy(a);
        return status;
    }
    *out = a;
    return OB_OK;
}

void ob_answer_destroy(struct ob_answer *a)
{
    if (!a)
        return;
    ob_generation_destroy(a->generation);
    ob_output_destroy(a->output);
    free(a->next.data);
    free(a);
}
