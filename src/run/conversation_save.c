/* Conversations in snapshots: what was said is the snapshot's note, as JSON. */
#include <jansson.h>
#include <stdlib.h>

#include "base/memory.h"
#include "run/conversation_parts.h"
#include "run/snapshot.h"

enum { NOTE_VERSION = 1 };

/* ------------------------------------------------------------------------------------- writing */

static json_t *json_of(const struct ob_text *text)
{
    return json_stringn(text->data ? text->data : "", text->len);
}

static json_t *json_of_exchange(const struct ob_exchange *e)
{
    return json_pack("{s:o, s:o, s:o, s:b, s:I, s:I}", "question", json_of(&e->question),
                     "reasoning", json_of(&e->reasoning), "content", json_of(&e->content),
                     "thought", e->thought, "n_ids", (json_int_t)e->n_ids, "n_bytes",
                     (json_int_t)e->n_bytes);
}

static json_t *json_of_ids(const struct ob_ids *ids)
{
    json_t *list = json_array();
    for (size_t i = 0; list && i < ids->len; i++) {
        if (json_array_append_new(list, json_integer(ids->data[i])) != 0) {
            json_decref(list);
            return NULL;
        }
    }
    return list;
}

/* NULL without memory, or when a text is not UTF-8. */
static char *make_note(const struct ob_conversation *c)
{
    json_t *exchanges = json_array();
    bool ok = exchanges != NULL;
    for (size_t i = 0; ok && i < c->n_exchanges; i++)
        ok = json_array_append_new(exchanges, json_of_exchange(&c->exchanges[i])) == 0;
    if (!ok) {
        json_decref(exchanges);
        return NULL;
    }
    json_t *note =
        json_pack("{s:i, s:o, s:b, s:I, s:o, s:o, s:o}", "conversation", NOTE_VERSION, "system",
                  json_of(&c->system), "thinking", c->thinking, "thinking_budget",
                  (json_int_t)c->thinking_budget, "exchanges", exchanges, "ids",
                  json_of_ids(&c->ids), "history", json_of(&c->history));
    char *text = note ? json_dumps(note, JSON_COMPACT) : NULL;
    json_decref(note);
    return text;
}

ob_status ob_conversation_save(const struct ob_conversation *c, const char *path,
                               struct ob_error *err)
{
    char *note = make_note(c);
    if (!note)
        return ob_fail(err, OB_INVALID_ARGUMENT,
                       "the conversation is not UTF-8, or there is no memory for it");
    ob_status status = ob_session_save(c->session, path, note, strlen(note), err);
    free(note);
    return status;
}

/* ------------------------------------------------------------------------------------- reading */

/* What a note says, to be taken over as a whole. */
struct said {
    struct ob_text system, history;
    struct ob_ids ids;
    struct ob_exchange *exchanges;
    size_t n_exchanges;
    bool thinking;
    size_t thinking_budget;
};

static void free_said(struct said *s)
{
    for (size_t i = 0; i < s->n_exchanges; i++)
        ob_exchange_free(&s->exchanges[i]);
    free(s->exchanges);
    ob_text_free(&s->system);
    ob_text_free(&s->history);
    free(s->ids.data);
}

/* The string `name` of an object, to an empty text. False when there is none, or no memory. */
static bool read_text(const json_t *object, const char *name, struct ob_text *text)
{
    const json_t *value = json_object_get(object, name);
    if (!json_is_string(value))
        return false;
    ob_text_append(text, json_string_value(value), json_string_length(value));
    return !text->failed;
}

/* An integer from 0 to `most`. */
static bool read_size(const json_t *object, const char *name, size_t most, size_t *out)
{
    const json_t *value = json_object_get(object, name);
    if (!json_is_integer(value) || json_integer_value(value) < 0 ||
        (uint64_t)json_integer_value(value) > most)
        return false;
    *out = (size_t)json_integer_value(value);
    return true;
}

static bool read_ids(const json_t *list, size_t n_vocab, struct ob_ids *ids)
{
    if (!json_is_array(list))
        return false;
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *value = json_array_get(list, i);
        int32_t id = (int32_t)json_integer_value(value);
        if (!json_is_integer(value) || json_integer_value(value) < 0 ||
            (uint64_t)json_integer_value(value) >= n_vocab || !ob_ids_append(ids, &id, 1))
            return false;
    }
    return true;
}

static bool read_exchange(const json_t *object, const struct said *s, struct ob_exchange *e)
{
    e->thought = json_is_true(json_object_get(object, "thought"));
    return read_text(object, "question", &e->question) &&
           read_text(object, "reasoning", &e->reasoning) &&
           read_text(object, "content", &e->content) &&
           read_size(object, "n_ids", s->ids.len, &e->n_ids) &&
           read_size(object, "n_bytes", s->history.len, &e->n_bytes);
}

static bool read_said(const json_t *note, size_t n_vocab, struct said *s)
{
    const json_t *list = json_object_get(note, "exchanges");
    size_t n = json_array_size(list);
    s->thinking = json_is_true(json_object_get(note, "thinking"));
    if (json_integer_value(json_object_get(note, "conversation")) != NOTE_VERSION ||
        !json_is_array(list) || !read_text(note, "system", &s->system) ||
        !read_text(note, "history", &s->history) ||
        !read_ids(json_object_get(note, "ids"), n_vocab, &s->ids) ||
        !read_size(note, "thinking_budget", SIZE_MAX >> 1, &s->thinking_budget))
        return false;
    s->exchanges = ob_calloc(n, sizeof *s->exchanges);
    if (!s->exchanges)
        return false;
    for (; s->n_exchanges < n; s->n_exchanges++)
        if (!read_exchange(json_array_get(list, s->n_exchanges), s,
                           &s->exchanges[s->n_exchanges])) {
            ob_exchange_free(&s->exchanges[s->n_exchanges]);
            return false;
        }
    return true;
}

static void take_over(struct ob_conversation *c, struct said *s)
{
    struct said old = {c->system,   c->history,        c->ids, c->exchanges, c->n_exchanges,
                       c->thinking, c->thinking_budget};
    c->system = s->system;
    c->history = s->history;
    c->ids = s->ids;
    c->exchanges = s->exchanges;
    c->n_exchanges = c->capacity = s->n_exchanges;
    c->thinking = s->thinking;
    c->thinking_budget = s->thinking_budget;
    *s = old;
}

ob_status ob_conversation_restore(struct ob_conversation *c, struct ob_snapshot *snapshot,
                                  const char **notice, struct ob_error *err)
{
    struct ob_snapshot_info info = ob_snapshot_get_info(snapshot);
    struct said said = {0};
    ob_status status = OB_OK;
    json_t *note =
        json_loadb(info.note, info.n_note, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, NULL);
    if (!note || !read_said(note, (size_t)c->model->plan->n_vocab, &said))
        status = ob_fail(err, OB_BAD_FILE, "%s: holds no conversation that this engine can read",
                         ob_snapshot_path(snapshot));
    if (status == OB_OK)
        status = ob_session_restore(c->session, snapshot, notice, err);
    if (status == OB_OK)
        take_over(c, &said);
    free_said(&said);
    json_decref(note);
    return status;
}
