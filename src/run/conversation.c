#include "run/conversation.h"

#include <stdlib.h>

#include "base/os.h"
#include "run/answer.h"
#include "run/conversation_parts.h"

void ob_exchange_free(struct ob_exchange *e)
{
    ob_text_free(&e->question);
    ob_text_free(&e->reasoning);
    ob_text_free(&e->content);
}

void ob_conversation_close(struct ob_conversation *c)
{
    if (!c)
        return;
    for (size_t i = 0; i < c->n_exchanges; i++)
        ob_exchange_free(&c->exchanges[i]);
    free(c->exchanges);
    ob_text_free(&c->system);
    ob_text_free(&c->history);
    free(c->ids.data);
    ob_template_destroy(c->template);
    ob_session_close(c->session);
    free(c);
}

ob_status ob_conversation_open(struct ob_model *model,
                               const struct ob_conversation_options *options,
                               struct ob_conversation **out, struct ob_error *err)
{
    struct ob_str text =
        options->template_text.ptr ? options->template_text : model->vocab.chat_template;
    if (!text.ptr)
        return ob_fail(
            err, OB_UNSUPPORTED,
            "%s: the model has no chat template (tokenizer.chat_template), so one must be "
            "given",
            ob_gguf_name(model->gguf));
    struct ob_conversation *c = ob_calloc(1, sizeof *c);
    if (!c)
        return ob_fail_memory(err, sizeof *c, "a conversation");
    c->model = model;
    c->clock = options->clock;
    ob_conversation_set_thinking(c, options->thinking, options->thinking_budget);
    ob_status status = ob_template_compile(text.ptr, text.len, &c->template, err);
    if (status == OB_OK)
        status = ob_session_open(model, NULL, &c->session, err);
    if (status != OB_OK) {
        ob_conversation_close(c);
        return status;
    }
    *out = c;
    return OB_OK;
}

/* *to = text; false when there is no memory, *to is then as before. */
static bool replace_text(struct ob_text *to, struct ob_str text)
{
    struct ob_text fresh = {0};
    ob_text_append(&fresh, text.len ? text.ptr : "", text.len);
    if (fresh.failed) {
        ob_text_free(&fresh);
        return false;
    }
    ob_text_free(to);
    *to = fresh;
    return true;
}

ob_status ob_conversation_set_system(struct ob_conversation *c, struct ob_str text,
                                     struct ob_error *err)
{
    return replace_text(&c->system, text) ? OB_OK
                                          : ob_fail_memory(err, text.len, "the system message");
}

void ob_conversation_set_thinking(struct ob_conversation *c, bool thinking, size_t budget)
{
    c->thinking = thinking;
    c->thinking_budget = budget;
}

void ob_conversation_on_progress(struct ob_conversation *c, ob_progress_fn fn, void *context)
{
    ob_session_on_progress(c->session, fn, context);
}

size_t ob_conversation_n_turns(const struct ob_conversation *c)
{
    return c->n_exchanges;
}

size_t ob_conversation_length(const struct ob_conversation *c)
{
    return ob_session_length(c->session);
}

const int32_t *ob_conversation_ids(const struct ob_conversation *c)
{
    return ob_session_ids(c->session);
}

bool ob_conversation_undo(struct ob_conversation *c)
{
    if (c->n_exchanges == 0)
        return false;
    ob_exchange_free(&c->exchanges[--c->n_exchanges]);
    const struct ob_exchange *last = c->n_exchanges ? &c->exchanges[c->n_exchanges - 1] : NULL;
    c->ids.len = last ? last->n_ids : 0;
    c->history.len = last ? last->n_bytes : 0;
    return true;
}

static struct ob_str str_of(const struct ob_text *text)
{
    return (struct ob_str){text->data ? text->data : "", text->len};
}

struct ob_str ob_conversation_last_question(const struct ob_conversation *c)
{
    return c->n_exchanges ? str_of(&c->exchanges[c->n_exchanges - 1].question)
                          : (struct ob_str){NULL, 0};
}

struct ob_said ob_conversation_turn(const struct ob_conversation *c, size_t i)
{
    const struct ob_exchange *e = &c->exchanges[i];
    return (struct ob_said){.question = str_of(&e->question),
                            .reasoning = e->thought ? str_of(&e->reasoning) : (struct ob_str){0},
                            .content = str_of(&e->content)};
}

struct ob_str ob_conversation_system(const struct ob_conversation *c)
{
    return str_of(&c->system);
}

/* ------------------------------------------------------------------------------------- prompt */

/* All messages up to and with the question of the last exchange. */
static bool add_messages(const struct ob_conversation *c, struct ob_heap *heap,
                         struct ob_value *messages)
{
    const struct ob_str none = {NULL, 0};
    bool ok = c->system.len == 0 ||
              ob_chat_add(heap, messages, ob_str_from("system"), str_of(&c->system), none);
    for (size_t i = 0; i < c->n_exchanges && ok; i++) {
        const struct ob_exchange *e = &c->exchanges[i];
        ok = ob_chat_add(heap, messages, ob_str_from("user"), str_of(&e->question), none);
        if (ok && i + 1 < c->n_exchanges)
            ok = ob_chat_add(heap, messages, ob_str_from("assistant"), str_of(&e->content),
                             e->thought ? str_of(&e->reasoning) : none);
    }
    return ok;
}

/* All messages as the template writes them, with the beginning of an answer when `ask`. */
static ob_status render(const struct ob_conversation *c, bool ask, struct ob_rendered *out,
                        struct ob_error *err)
{
    struct ob_heap heap = {0};
    struct ob_value messages = {0};
    struct ob_chat_options options = {
        .enable_thinking = c->thinking ? OB_CHAT_ON : OB_CHAT_OFF,
        .no_generation_prompt = !ask,
        .template_options = {.clock = c->clock},
    };
    ob_status status = add_messages(c, &heap, &messages)
                           ? ob_chat_render(c->template, &messages, NULL, &options, out, err)
                           : ob_fail(err, OB_NO_MEMORY, "not enough memory for the messages");
    ob_heap_free(&heap);
    return status;
}

/* The spans of the text from byte `from` on; `tail` owns nothing but its spans. */
static bool cut(const struct ob_rendered *all, size_t from, struct ob_rendered *tail)
{
    *tail = (struct ob_rendered){.text = all->text + from, .n_bytes = all->n_bytes - from};
    tail->spans = ob_calloc(all->n_spans + 1, sizeof *tail->spans);
    if (!tail->spans)
        return false;
    for (size_t i = 0, at = 0; i < all->n_spans; at += all->spans[i++].n_bytes) {
        size_t end = at + all->spans[i].n_bytes, start = at > from ? at : from;
        if (end > start)
            tail->spans[tail->n_spans++] =
                (struct ob_span){.n_bytes = end - start, .is_data = all->spans[i].is_data};
    }
    return true;
}

/* The ids of what the prompt says from the end of the last answer on. In its rendering that is the
 * first token after the history that ends a generation: no text of a message can make one. *found is
 * false where there is none. */
static ob_status encode_after_answer(const struct ob_conversation *c,
                                     const struct ob_rendered *prompt, struct ob_ids *ids,
                                     bool *found, struct ob_error *err)
{
    struct ob_rendered tail;
    struct ob_ids rest = {0};
    if (!cut(prompt, c->history.len, &tail))
        return ob_fail(err, OB_NO_MEMORY, "not enough memory for the prompt");
    ob_status status = ob_chat_encode(c->model->tokenizer, &tail, &rest, err);
    free(tail.spans);
    size_t at = 0;
    while (at < rest.len && !ob_model_ends_generation(c->model, rest.data[at]))
        at++;
    *found = at < rest.len;
    if (status == OB_OK && *found && !ob_ids_append(ids, rest.data + at, rest.len - at))
        status = ob_fail(err, OB_NO_MEMORY, "not enough memory for the prompt");
    free(rest.data);
    return status;
}

/* Whether the template leaves out what the model thought before its last answer: then the prompt is the
 * same without it. An empty thought is no loss. */
static ob_status find_dropped_thought(struct ob_conversation *c, const struct ob_rendered *prompt,
                                      bool *dropped, struct ob_error *err)
{
    struct ob_rendered without = {0};
    struct ob_exchange *last = c->n_exchanges > 1 ? &c->exchanges[c->n_exchanges - 2] : NULL;
    *dropped = false;
    if (!last || !last->thought || last->reasoning.len == 0)
        return OB_OK;
    last->thought = false;
    ob_status status = render(c, true, &without, err);
    last->thought = true;
    if (status == OB_OK)
        *dropped = without.n_bytes == prompt->n_bytes &&
                   memcmp(without.text, prompt->text, prompt->n_bytes) == 0;
    ob_rendered_free(&without);
    return status;
}

/* The prompt's ids into `ids`: those of all that was said, then what comes after it. */
static ob_status encode(struct ob_conversation *c, const struct ob_rendered *prompt,
                        struct ob_ids *ids, struct ob_turn *turn, struct ob_error *err)
{
    size_t n = c->history.len;
    bool *kept = &turn->kept_ids;
    OB_TRY(find_dropped_thought(c, prompt, &turn->dropped_thought, err));
    *kept = !turn->dropped_thought && n > 0 && n <= prompt->n_bytes &&
            memcmp(prompt->text, c->history.data, n) == 0;
    if (*kept) {
        if (!ob_ids_append(ids, c->ids.data, c->ids.len))
            return ob_fail(err, OB_NO_MEMORY, "not enough memory for the prompt");
        OB_TRY(encode_after_answer(c, prompt, ids, kept, err));
    }
    if (*kept)
        return OB_OK;
    ids->len = 0;
    return ob_chat_encode(c->model->tokenizer, prompt, ids, err);
}

/* ------------------------------------------------------------------------------------- answer */

/* Take over what the next turn begins with. */
static void remember(struct ob_conversation *c, struct ob_ids *ids, struct ob_text *history,
                     const struct ob_turn *turn)
{
    for (size_t i = 0; !turn->kept_ids && i + 1 < c->n_exchanges; i++)
        c->exchanges[i].n_ids = c->exchanges[i].n_bytes = 0;
    free(c->ids.data);
    ob_text_free(&c->history);
    c->ids = *ids;
    c->history = *history;
    *ids = (struct ob_ids){0};
    *history = (struct ob_text){0};
    c->ids.len -= turn->result.finish == OB_FINISH_STOP; /* the template writes its own end */
    struct ob_exchange *e = &c->exchanges[c->n_exchanges - 1];
    e->n_ids = c->ids.len;
    e->n_bytes = c->history.len;
}

/* The rendering of all messages without the beginning of an answer; empty when there is none or the
 * prompt does not begin with it, which leaves the next turn nothing to go on from. */
static ob_status render_history(const struct ob_conversation *c, const struct ob_rendered *prompt,
                                struct ob_text *history, struct ob_error *err)
{
    struct ob_rendered all = {0};
    ob_status status = render(c, false, &all, err);
    if (status != OB_OK)
        return status == OB_NO_MEMORY ? status : OB_OK;
    bool begins = all.n_bytes <= prompt->n_bytes && all.n_bytes > 0 &&
                  memcmp(all.text, prompt->text, all.n_bytes) == 0;
    bool ok = !begins || replace_text(history, (struct ob_str){all.text, all.n_bytes});
    ob_rendered_free(&all);
    return ok ? OB_OK : ob_fail(err, OB_NO_MEMORY, "not enough memory for the conversation");
}

/* Where an answer's events go. */
struct hearer {
    struct ob_exchange *exchange;
    ob_answer_fn fn;
    void *context;
    bool failed;
};

static int hear(void *context, const struct ob_output_event *event)
{
    struct hearer *h = context;
    bool reasoning = event->kind == OB_OUTPUT_REASONING;
    struct ob_text *to = reasoning ? &h->exchange->reasoning : &h->exchange->content;
    ob_text_append(to, event->text.ptr, event->text.len);
    h->failed = h->failed || to->failed;
    return h->failed || h->fn(h->context, event->text.ptr, event->text.len, reasoning) != 0;
}

/* Step by step until the answer is over, each token read alone. */
static ob_status write_answer(struct ob_session *session, const struct ob_answer_options *options,
                              struct ob_generated *result, struct ob_error *err)
{
    struct ob_answer *answer;
    const int32_t *ids;
    size_t n;
    OB_TRY(ob_answer_create(session, options, &answer, err));
    ob_status status = ob_answer_step(answer, &ids, &n, err);
    while (status == OB_OK && n > 0) {
        status = ob_session_append(session, ids, n, err);
        if (status == OB_OK)
            status = ob_answer_step(answer, &ids, &n, err);
    }
    *result = ob_answer_result(answer);
    ob_answer_destroy(answer);
    return status;
}

static ob_status read_and_answer(struct ob_conversation *c, const struct ob_rendered *prompt,
                                 struct ob_ids *ids, const struct ob_generate_options *options,
                                 ob_answer_fn fn, void *context, struct ob_turn *turn,
                                 struct ob_error *err)
{
    struct ob_exchange *e = &c->exchanges[c->n_exchanges - 1];
    struct hearer hearer = {e, fn, context, false};
    struct ob_answer_options answer = {
        .output = {.in_thought = ob_output_prompt_in_thought(prompt)},
        .thinking_budget = c->thinking_budget,
        .ids = ids,
        .event = hear,
        .context = &hearer,
    };
    if (options)
        answer.generate = *options;
    turn->n_prompt = ids->len;
    double start = ob_os_seconds();
    OB_TRY(ob_session_sync(c->session, ids->data, ids->len, &turn->sync, err));
    turn->read_seconds = ob_os_seconds() - start;
    start = ob_os_seconds();
    ob_progress_fn progress = c->session->progress; /* single tokens are no progress to report */
    ob_session_on_progress(c->session, NULL, c->session->progress_context);
    ob_status status = write_answer(c->session, &answer, &turn->result, err);
    ob_session_on_progress(c->session, progress, c->session->progress_context);
    if (status == OB_OK && hearer.failed)
        status = ob_fail(err, OB_NO_MEMORY, "not enough memory for the answer");
    turn->write_seconds = ob_os_seconds() - start;
    e->thought = answer.output.in_thought || e->reasoning.len > 0;
    return status;
}

/* A new exchange with its question at the end of the list. */
static bool begin_exchange(struct ob_conversation *c, struct ob_str question)
{
    void *items = c->exchanges;
    struct ob_exchange fresh = {0};
    if (!ob_grow(&items, &c->capacity, c->n_exchanges + 1, sizeof fresh))
        return false;
    c->exchanges = items;
    if (!replace_text(&fresh.question, question))
        return false;
    c->exchanges[c->n_exchanges++] = fresh;
    return true;
}

ob_status ob_conversation_ask(struct ob_conversation *c, struct ob_str text,
                              const struct ob_generate_options *options, ob_answer_fn fn,
                              void *context, struct ob_turn *turn, struct ob_error *err)
{
    struct ob_rendered prompt = {0};
    struct ob_ids ids = {0};
    struct ob_text history = {0};
    *turn = (struct ob_turn){0};
    if (!begin_exchange(c, text))
        return ob_fail_memory(err, text.len, "the question");
    ob_status status = render(c, true, &prompt, err);
    if (status == OB_OK)
        status = render_history(c, &prompt, &history, err);
    if (status == OB_OK)
        status = encode(c, &prompt, &ids, turn, err);
    if (status == OB_OK)
        status = read_and_answer(c, &prompt, &ids, options, fn, context, turn, err);
    if (status == OB_OK)
        remember(c, &ids, &history, turn);
    else
        ob_exchange_free(&c->exchanges[--c->n_exchanges]);
    ob_rendered_free(&prompt);
    ob_text_free(&history);
    free(ids.data);
    return status;
}
