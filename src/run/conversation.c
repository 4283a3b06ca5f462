#include "run/conversation.h"

#include <stdlib.h>

#include "base/os.h"
#include "text/chat.h"

/* A question and its answer, as messages. */
struct exchange {
    struct ob_text question, reasoning, content;
    bool thought; /* it has a reasoning, be it empty */

    /* How much of the conversation's `ids` and `history` there was after it; 0 when its ids are not
     * known, since what came later was rendered anew. */
    size_t n_ids, n_bytes;
};

struct ob_conversation {
    struct ob_model *model;
    struct ob_session *session;
    struct ob_template *template;
    struct ob_template_clock clock;
    bool thinking;
    struct ob_text system;
    struct exchange *exchanges;
    size_t n_exchanges, capacity;

    /* All that was said: the ids of the last prompt and its answer, without a token that ended it,
     * and the rendering of all messages up to the last question. */
    struct ob_ids ids;
    struct ob_text history;
};

static void free_exchange(struct exchange *e)
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
        free_exchange(&c->exchanges[i]);
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
    c->thinking = options->thinking;
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

void ob_conversation_set_thinking(struct ob_conversation *c, bool thinking)
{
    c->thinking = thinking;
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
    free_exchange(&c->exchanges[--c->n_exchanges]);
    const struct exchange *last = c->n_exchanges ? &c->exchanges[c->n_exchanges - 1] : NULL;
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

/* ------------------------------------------------------------------------------------- prompt */

/* All messages up to and with the question of the last exchange. */
static bool add_messages(const struct ob_conversation *c, struct ob_heap *heap,
                         struct ob_value *messages)
{
    const struct ob_str none = {NULL, 0};
    bool ok = c->system.len == 0 ||
              ob_chat_add(heap, messages, ob_str_from("system"), str_of(&c->system), none);
    for (size_t i = 0; i < c->n_exchanges && ok; i++) {
        const struct exchange *e = &c->exchanges[i];
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

static bool append_ids(struct ob_ids *to, const int32_t *ids, size_t n)
{
    void *data = to->data;
    if (!ob_grow(&data, &to->capacity, to->len + n, sizeof *ids))
        return false;
    to->data = data;
    memcpy(to->data + to->len, ids, n * sizeof *ids);
    to->len += n;
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
    if (status == OB_OK && *found && !append_ids(ids, rest.data + at, rest.len - at))
        status = ob_fail(err, OB_NO_MEMORY, "not enough memory for the prompt");
    free(rest.data);
    return status;
}

/* The prompt's ids into `ids`: those of all that was said, then what comes after it. */
static ob_status encode(const struct ob_conversation *c, const struct ob_rendered *prompt,
                        struct ob_ids *ids, bool *kept, struct ob_error *err)
{
    size_t n = c->history.len;
    *kept = n > 0 && n <= prompt->n_bytes && memcmp(prompt->text, c->history.data, n) == 0;
    if (*kept) {
        if (!append_ids(ids, c->ids.data, c->ids.len))
            return ob_fail(err, OB_NO_MEMORY, "not enough memory for the prompt");
        OB_TRY(encode_after_answer(c, prompt, ids, kept, err));
    }
    if (*kept)
        return OB_OK;
    ids->len = 0;
    return ob_chat_encode(c->model->tokenizer, prompt, ids, err);
}

/* ------------------------------------------------------------------------------------- answer */

static const char close_tag[] = "</think>";

/* The answer as it comes: the thought, its closing tag, the content. */
struct answer {
    struct ob_conversation *c;
    struct exchange *exchange;
    struct ob_text raw; /* all of it, tags and end token too */
    size_t shown;       /* bytes of raw handed on or dropped */
    bool in_thought;
    struct ob_ids *ids;
    ob_answer_fn fn;
    void *context;
    bool failed;
};

/* Hand on raw text up to `end`. False: the caller wants to stop. */
static bool show(struct answer *a, size_t end)
{
    struct ob_text *to = a->in_thought ? &a->exchange->reasoning : &a->exchange->content;
    size_t n = end - a->shown;
    const char *text = a->raw.data + a->shown;
    a->shown = end;
    if (n == 0)
        return true;
    ob_text_append(to, text, n);
    a->failed = a->failed || to->failed;
    return a->fn(a->context, text, n, a->in_thought) == 0;
}

/* Bytes at the end of raw that may be the beginning of "\n</think>". */
static size_t held_back(const struct answer *a)
{
    size_t most = a->raw.len - a->shown;
    most = most < sizeof close_tag ? most : sizeof close_tag;
    for (size_t n = most; n > 0; n--) {
        const char *end = a->raw.data + a->raw.len - n;
        if (memcmp(end, close_tag, n < sizeof close_tag ? n : sizeof close_tag - 1) == 0 &&
            n < sizeof close_tag)
            return n;
        if (*end == '\n' && memcmp(end + 1, close_tag, n - 1) == 0)
            return n;
    }
    return 0;
}

/* The thought is over: drop the tag, one line end before it and those after it. */
static bool leave_thought(struct answer *a, size_t tag)
{
    size_t end = tag > a->shown && a->raw.data[tag - 1] == '\n' ? tag - 1 : tag;
    if (!show(a, end))
        return false;
    a->shown = tag + sizeof close_tag - 1;
    a->in_thought = false;
    return true;
}

static bool take_text(struct answer *a, const char *text, size_t n)
{
    ob_text_append(&a->raw, text, n);
    a->failed = a->failed || a->raw.failed;
    if (a->failed)
        return false;
    if (a->in_thought) {
        for (size_t i = a->shown; i + sizeof close_tag - 1 <= a->raw.len; i++)
            if (memcmp(a->raw.data + i, close_tag, sizeof close_tag - 1) == 0) {
                if (!leave_thought(a, i))
                    return false;
                break;
            }
        if (a->in_thought)
            return show(a, a->raw.len - held_back(a));
    }
    /* Line ends between thought and answer belong to neither. */
    while (a->exchange->thought && a->exchange->content.len == 0 && a->shown < a->raw.len &&
           a->raw.data[a->shown] == '\n')
        a->shown++;
    return show(a, a->raw.len);
}

static int take_delta(void *context, const struct ob_delta *delta)
{
    struct answer *a = context;
    a->failed = a->failed || !append_ids(a->ids, &delta->id, 1);
    return a->failed || !take_text(a, delta->text, delta->n_bytes);
}

/* The prompt ends inside an open thought: its last tag opens one. */
static bool opens_thought(const struct ob_rendered *prompt)
{
    static const char open_tag[] = "<think>";
    size_t n = prompt->n_bytes;
    while (n > 0 && (prompt->text[n - 1] == '\n' || prompt->text[n - 1] == ' '))
        n--;
    size_t m = sizeof open_tag - 1;
    return n >= m && memcmp(prompt->text + n - m, open_tag, m) == 0;
}

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
    struct exchange *e = &c->exchanges[c->n_exchanges - 1];
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

static ob_status read_and_answer(struct ob_conversation *c, const struct ob_rendered *prompt,
                                 struct ob_ids *ids, const struct ob_generate_options *options,
                                 ob_answer_fn fn, void *context, struct ob_turn *turn,
                                 struct ob_error *err)
{
    struct exchange *e = &c->exchanges[c->n_exchanges - 1];
    struct answer a = {.c = c,
                       .exchange = e,
                       .ids = ids,
                       .fn = fn,
                       .context = context,
                       .in_thought = opens_thought(prompt)};
    e->thought = a.in_thought;
    turn->n_prompt = ids->len;
    double start = ob_os_seconds();
    OB_TRY(ob_session_sync(c->session, ids->data, ids->len, &turn->sync, err));
    turn->read_seconds = ob_os_seconds() - start;
    start = ob_os_seconds();
    ob_status status = ob_generate(c->session, options, take_delta, &a, &turn->result, err);
    turn->write_seconds = ob_os_seconds() - start;
    if (status == OB_OK && a.in_thought && a.shown < a.raw.len)
        show(&a, a.raw.len); /* cut inside a thought: what was held back was no tag */
    if (status == OB_OK && a.failed)
        status = ob_fail(err, OB_NO_MEMORY, "not enough memory for the answer");
    ob_text_free(&a.raw);
    return status;
}

/* A new exchange with its question at the end of the list. */
static bool begin_exchange(struct ob_conversation *c, struct ob_str question)
{
    void *items = c->exchanges;
    struct exchange fresh = {0};
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
        status = encode(c, &prompt, &ids, &turn->kept_ids, err);
    if (status == OB_OK)
        status = read_and_answer(c, &prompt, &ids, options, fn, context, turn, err);
    if (status == OB_OK)
        remember(c, &ids, &history, turn);
    else
        free_exchange(&c->exchanges[--c->n_exchanges]);
    ob_rendered_free(&prompt);
    ob_text_free(&history);
    free(ids.data);
    return status;
}
