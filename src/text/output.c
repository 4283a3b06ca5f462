#include "text/output_internal.h"

#include <stdlib.h>

static const char open_tag[] = "<think>", close_tag[] = "</think>";

/* ------------------------------------------------------------------------------------- events */

static void emit(struct ob_output *o, enum ob_output_kind kind, struct ob_str text)
{
    struct ob_output_event event = {.kind = kind, .call = o->n_calls, .text = text};
    if (o->status == OB_OK && o->fn(o->context, &event) != 0)
        o->status = OB_CANCELLED;
}

static void flush(struct ob_output *o)
{
    if (o->delta.failed)
        o->status = OB_NO_MEMORY;
    else if (o->delta.len > 0)
        emit(o, o->delta_kind, ob_output_str(&o->delta));
    o->delta.len = 0;
}

void ob_output_put(struct ob_output *o, enum ob_output_kind kind, const char *bytes, size_t n)
{
    if (o->delta_kind != kind)
        flush(o);
    o->delta_kind = kind;
    ob_text_append(&o->delta, bytes, n);
}

void ob_output_send(struct ob_output *o, enum ob_output_kind kind, struct ob_str text)
{
    flush(o);
    emit(o, kind, text);
}

enum ob_tag_match ob_output_match(struct ob_str text, const char *const *tags, size_t *which)
{
    for (size_t i = 0; tags[i]; i++) {
        size_t n = strlen(tags[i]);
        if (text.len > n || memcmp(text.ptr, tags[i], text.len) != 0)
            continue;
        *which = i;
        return text.len == n ? OB_TAG_WHOLE : OB_TAG_PARTIAL;
    }
    return OB_TAG_NONE;
}

/* --------------------------------------------------------------------------------------- bytes */

static void step(struct ob_output *o, char byte);

/* Nothing came but white space: the model may open its thought itself, or again. */
static void step_start(struct ob_output *o, char byte)
{
    static const char *const tags[] = {open_tag, NULL};
    size_t which;
    if (o->held.len == 0 && ob_json_is_space(byte)) {
        ob_text_append(&o->space, &byte, 1);
        return;
    }
    ob_text_append(&o->held, &byte, 1);
    enum ob_tag_match match = ob_output_match(ob_output_str(&o->held), tags, &which);
    if (match == OB_TAG_PARTIAL)
        return;
    struct ob_text held = o->held, space = o->space;
    o->held = o->space = (struct ob_text){0};
    o->mode = OB_MODE_THOUGHT;
    o->skip_newlines = match == OB_TAG_WHOLE;
    if (match == OB_TAG_NONE) { /* read it again as what it is */
        o->mode = o->options.in_thought ? OB_MODE_THOUGHT : OB_MODE_CONTENT;
        for (size_t i = 0; i < space.len; i++)
            step(o, space.data[i]);
        for (size_t i = 0; i < held.len; i++)
            step(o, held.data[i]);
    }
    ob_text_free(&space);
    ob_text_free(&held);
}

/* No tag has a second '<', so when `held` is no tag only its last byte can begin one. */
static void step_thought(struct ob_output *o, char byte)
{
    static const char *const tags[] = {close_tag, NULL};
    size_t which;
    ob_text_append(&o->held, &byte, 1);
    struct ob_str tag = ob_output_str(&o->held);
    if (tag.len > 0 && *tag.ptr == '\n')
        tag = (struct ob_str){tag.ptr + 1, tag.len - 1};
    enum ob_tag_match match = ob_output_match(tag, tags, &which);
    if (match == OB_TAG_PARTIAL)
        return;
    size_t n = o->held.len;
    if (match == OB_TAG_WHOLE) {
        o->mode = OB_MODE_CONTENT;
        o->skip_newlines = true;
    } else if (n > 0) {
        ob_output_put(o, OB_OUTPUT_REASONING, o->held.data, n > 1 ? n - 1 : 1);
    }
    o->held.len = 0;
    if (match == OB_TAG_NONE && n > 1)
        step_thought(o, byte);
}

/* White space that turned out to stand before text. */
static void put_space(struct ob_output *o)
{
    if (o->has_content || !o->after_call)
        ob_output_put(o, OB_OUTPUT_CONTENT, o->space.len ? o->space.data : "", o->space.len);
    o->space.len = 0;
    o->has_content = true;
    o->after_call = false;
}

static void step_content(struct ob_output *o, char byte)
{
    static const char *const tags[] = {"<tool_call>", "<function=", "</tool_call>", NULL};
    size_t which = 0;
    if (!o->options.calls) {
        ob_output_put(o, OB_OUTPUT_CONTENT, &byte, 1);
        return;
    }
    if (o->held.len == 0 && ob_json_is_space(byte)) {
        ob_text_append(&o->space, &byte, 1);
        return;
    }
    ob_text_append(&o->held, &byte, 1);
    enum ob_tag_match match = ob_output_match(ob_output_str(&o->held), tags, &which);
    if (match == OB_TAG_PARTIAL)
        return;
    size_t n = o->held.len;
    bool stray = match == OB_TAG_WHOLE && which == 2;
    if (match == OB_TAG_WHOLE && !stray) {
        ob_output_call_begin(o, which == 0);
        return;
    }
    if (stray && o->bare_call) {
        o->space.len = 0;
    } else if (n > 0) {
        put_space(o);
        ob_output_put(o, OB_OUTPUT_CONTENT, o->held.data, n > 1 && !stray ? n - 1 : n);
    }
    o->bare_call = false;
    o->held.len = 0;
    if (n > 1 && !stray)
        step_content(o, byte);
}

/* What was taken for a call is text. What was taken for its next tag, up to the byte that was wrong,
 * may begin another call and is read again. */
static void give_up_call(struct ob_output *o)
{
    char again[16];
    size_t n = o->held.len > 1 ? o->held.len - 1 : 0, rest = o->raw.len - n;
    if (o->call.announced) {
        ob_output_send(o, OB_OUTPUT_CALL_MALFORMED, (struct ob_str){"", 0});
        o->n_calls++;
    }
    put_space(o);
    memcpy(again, o->raw.data + rest, n);
    ob_output_put(o, OB_OUTPUT_CONTENT, o->raw.data, rest);
    o->raw.len = o->held.len = 0;
    o->mode = OB_MODE_CONTENT;
    for (size_t i = 0; i < n; i++)
        step(o, again[i]);
}

static void step(struct ob_output *o, char byte)
{
    if (o->skip_newlines && byte == '\n')
        return;
    o->skip_newlines = false;
    if (o->mode == OB_MODE_START) {
        step_start(o, byte);
    } else if (o->mode == OB_MODE_THOUGHT) {
        step_thought(o, byte);
    } else if (o->mode == OB_MODE_CONTENT) {
        step_content(o, byte);
    } else if (ob_output_call_byte(o, byte)) {
        ob_text_append(&o->raw, &byte, 1);
    } else {
        give_up_call(o);
        step(o, byte);
    }
}

/* ------------------------------------------------------------------------------------- outside */

static bool failed(const struct ob_output *o)
{
    const struct ob_output_call *c = &o->call;
    return o->space.failed || o->held.failed || o->raw.failed || o->delta.failed ||
           c->name.failed || c->key.failed || c->value.failed || c->arguments.failed;
}

static ob_status settle(struct ob_output *o)
{
    if (o->status == OB_OK && failed(o))
        o->status = OB_NO_MEMORY;
    if (o->status == OB_OK)
        flush(o);
    return o->status;
}

ob_status ob_output_feed(struct ob_output *o, const char *bytes, size_t n_bytes, ob_output_fn fn,
                         void *context)
{
    o->fn = fn;
    o->context = context;
    for (size_t i = 0; i < n_bytes && o->status == OB_OK; i++) {
        step(o, bytes[i]);
        if (failed(o))
            o->status = OB_NO_MEMORY;
    }
    return settle(o);
}

bool ob_output_in_thought(const struct ob_output *o)
{
    return o->mode == OB_MODE_THOUGHT || (o->mode == OB_MODE_START && o->options.in_thought);
}

/* What was held back is no tag. */
static void release(struct ob_output *o)
{
    bool thought =
        o->mode == OB_MODE_THOUGHT || (o->mode == OB_MODE_START && o->options.in_thought);
    enum ob_output_kind kind = thought ? OB_OUTPUT_REASONING : OB_OUTPUT_CONTENT;
    if (thought)
        ob_output_put(o, kind, o->space.len ? o->space.data : "", o->space.len);
    else if (o->held.len > 0 || !o->after_call)
        put_space(o);
    ob_output_put(o, kind, o->held.len ? o->held.data : "", o->held.len);
}

ob_status ob_output_finish(struct ob_output *o, ob_output_fn fn, void *context)
{
    o->fn = fn;
    o->context = context;
    if (o->status != OB_OK)
        return o->status;
    if (o->mode == OB_MODE_CALL)
        ob_output_send(o, OB_OUTPUT_CALL_UNFINISHED, ob_output_str(&o->raw));
    else
        release(o);
    o->space.len = o->held.len = 0;
    return settle(o);
}

ob_status ob_output_create(const struct ob_output_options *options, struct ob_output **out,
                           struct ob_error *err)
{
    struct ob_output *o = ob_calloc(1, sizeof *o);
    if (!o)
        return ob_fail_memory(err, sizeof *o, "the output of a model");
    o->options = *options;
    *out = o;
    return OB_OK;
}

void ob_output_destroy(struct ob_output *o)
{
    if (!o)
        return;
    ob_text_free(&o->space);
    ob_text_free(&o->held);
    ob_text_free(&o->raw);
    ob_text_free(&o->delta);
    ob_output_call_free(&o->call);
    free(o);
}

bool ob_output_prompt_in_thought(const struct ob_rendered *prompt)
{
    const size_t n_open = sizeof open_tag - 1, n_close = sizeof close_tag - 1;
    size_t from = prompt->n_bytes;
    for (size_t i = prompt->n_spans; i-- > 0;) {
        from -= prompt->spans[i].n_bytes;
        if (!prompt->spans[i].is_data)
            break;
    }
    for (size_t at = prompt->n_bytes; at-- > from;) {
        size_t left = prompt->n_bytes - at;
        if (left >= n_open && memcmp(prompt->text + at, open_tag, n_open) == 0)
            return true;
        if (left >= n_close && memcmp(prompt->text + at, close_tag, n_close) == 0)
            return false;
    }
    return false;
}
