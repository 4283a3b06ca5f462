/* `tojson`, which is Python's json.dumps with ensure_ascii false. */
#include "text/template_eval.h"

#include "text/template_text.h"

#include <math.h>
#include <stdio.h>

struct json {
    struct ob_run *run;
    struct ob_string_buffer buffer;
    bool ensure_ascii, sort_keys;
    bool has_indent;
    struct ob_value indent;              /* one level, a string */
    const struct ob_vstring *item, *key; /* the separators */
};

static void put(struct json *json, const char *text, uint8_t origin)
{
    ob_buffer_text(json->run->heap, &json->buffer, text, (enum ob_origin)origin);
}

static void put_unicode(struct json *json, unsigned unit, enum ob_origin origin)
{
    char text[16];
    snprintf(text, sizeof text, "\\u%04x", unit);
    put(json, text, (uint8_t)origin);
}

/* The character c at byte `at`, which must not stand for itself. */
static void put_escape(struct json *json, int32_t c, enum ob_origin origin)
{
    static const char from[] = "\"\\\n\r\t\b\f", to[] = "\"\\nrtbf";
    const char *named = c > 0 && c < 0x80 ? strchr(from, (char)c) : NULL;
    if (named) {
        char text[3] = {'\\', to[named - from], '\0'};
        put(json, text, (uint8_t)origin);
    } else if (c < 0x10000) {
        put_unicode(json, (unsigned)c, origin);
    } else {
        put_unicode(json, 0xd800u + ((unsigned)(c - 0x10000) >> 10), origin);
        put_unicode(json, 0xdc00u + ((unsigned)(c - 0x10000) & 0x3ff), origin);
    }
}

static bool put_string(struct json *json, const struct ob_value *v)
{
    const struct ob_vstring *s = v->as.string;
    size_t from = 0;
    if (!ob_run_steps(json->run, 1 + s->len / 16))
        return false;
    put(json, "\"", v->origin);
    for (size_t at = 0, length; at < s->len; at += length) {
        int32_t c = ob_char_at(s->ptr + at, s->len - at, &length);
        if (c < 0 || (c >= 0x20 && c != '"' && c != '\\' && !(json->ensure_ascii && c > 0x7e)))
            continue;
        ob_buffer_part(json->run->heap, &json->buffer, s, from, at);
        put_escape(json, c, ob_vstring_origin(s, at));
        from = at + length;
    }
    ob_buffer_part(json->run->heap, &json->buffer, s, from, s->len);
    put(json, "\"", v->origin);
    return true;
}

static void put_number(struct json *json, const struct ob_value *v)
{
    char text[OB_REPR_FLOAT_BYTES];
    if (v->kind == OB_VALUE_INT) {
        snprintf(text, sizeof text, "%lld", (long long)v->as.integer);
    } else if (isfinite(v->as.real)) {
        text[ob_repr_float(v->as.real, text)] = '\0';
    } else {
        snprintf(text, sizeof text, "%s",
                 isnan(v->as.real) ? "NaN"
                 : v->as.real > 0  ? "Infinity"
                                   : "-Infinity");
    }
    put(json, text, v->origin);
}

static void new_line(struct json *json, int level, uint8_t origin)
{
    if (!json->has_indent)
        return;
    put(json, "\n", origin);
    for (int i = 0; i < level; i++)
        ob_buffer_string(json->run->heap, &json->buffer, json->indent.as.string);
}

/* Before an item. */
static bool put_separator(struct json *json, size_t i, int level, uint8_t origin)
{
    if (i > 0)
        ob_buffer_bytes(json->run->heap, &json->buffer, json->item->ptr, json->item->len,
                        (enum ob_origin)origin);
    new_line(json, level, origin);
    return ob_run_steps(json->run, 1 + (size_t)level / 8);
}

static bool put_value(struct json *json, const struct ob_value *v, int level);

static bool put_list(struct json *json, const struct ob_value *v, int level)
{
    const struct ob_seq *seq = v->as.seq;
    put(json, "[", v->origin);
    for (size_t i = 0; i < seq->len; i++)
        if (!put_separator(json, i, level + 1, v->origin) ||
            !put_value(json, &seq->items[i], level + 1))
            return false;
    if (seq->len > 0)
        new_line(json, level, v->origin);
    put(json, "]", v->origin);
    return true;
}

static bool put_key(struct json *json, const struct ob_value *key)
{
    switch (key->kind) {
    case OB_VALUE_STRING:
        return put_string(json, key);
    case OB_VALUE_NONE:
    case OB_VALUE_BOOL:
    case OB_VALUE_INT:
    case OB_VALUE_FLOAT:
        put(json, "\"", key->origin);
        if (!put_value(json, key, 0))
            return false;
        put(json, "\"", key->origin);
        return true;
    default:
        return ob_run_wrong(json->run, "%s cannot be a key in JSON", ob_value_type(key));
    }
}

/* The order in which the keys are written: an insertion sort, paid for in steps. */
static bool sorted_order(struct json *json, const struct ob_dict *dict, size_t *order)
{
    for (size_t i = 0; i < dict->len; i++) {
        size_t at = i;
        for (; json->sort_keys && at > 0; at--) {
            int compared;
            if (!ob_run_steps(json->run, 1) ||
                !ob_op_order(json->run, &dict->keys[order[at - 1]], &dict->keys[i], &compared))
                return false;
            if (compared <= 0)
                break;
            order[at] = order[at - 1];
        }
        order[at] = i;
    }
    return true;
}

static bool put_dict(struct json *json, const struct ob_value *v, int level)
{
    const struct ob_dict *dict = v->as.dict;
    size_t *order = ob_heap_alloc(json->run->heap, dict->len, sizeof *order);
    if (!order)
        return ob_run_no_memory(json->run);
    if (!sorted_order(json, dict, order))
        return false;
    put(json, "{", v->origin);
    for (size_t i = 0; i < dict->len; i++) {
        if (!put_separator(json, i, level + 1, v->origin) || !put_key(json, &dict->keys[order[i]]))
            return false;
        ob_buffer_bytes(json->run->heap, &json->buffer, json->key->ptr, json->key->len,
                        (enum ob_origin)v->origin);
        if (!put_value(json, &dict->values[order[i]], level + 1))
            return false;
    }
    if (dict->len > 0)
        new_line(json, level, v->origin);
    put(json, "}", v->origin);
    return true;
}

static bool put_value(struct json *json, const struct ob_value *v, int level)
{
    bool ok;
    switch (v->kind) {
    case OB_VALUE_NONE:
        put(json, "null", v->origin);
        return true;
    case OB_VALUE_BOOL:
        put(json, v->as.boolean ? "true" : "false", v->origin);
        return true;
    case OB_VALUE_INT:
    case OB_VALUE_FLOAT:
        put_number(json, v);
        return true;
    case OB_VALUE_STRING:
        return put_string(json, v);
    case OB_VALUE_LIST:
    case OB_VALUE_TUPLE:
    case OB_VALUE_DICT:
        if (!ob_run_enter(json->run))
            return false;
        ok = v->kind == OB_VALUE_DICT ? put_dict(json, v, level) : put_list(json, v, level);
        ob_run_leave(json->run);
        return ok;
    default:
        return ob_run_wrong(json->run, "%s cannot be written as JSON", ob_value_type(v));
    }
}

/* `indent` is a number of blanks or a string. */
static bool set_indent(struct json *json, const struct ob_value *indent)
{
    struct ob_run *run = json->run;
    struct ob_string_buffer blanks = {0};
    int64_t n;
    if (indent->kind == OB_VALUE_MISSING || indent->kind == OB_VALUE_NONE)
        return true;
    json->has_indent = true;
    json->indent = *indent;
    if (indent->kind == OB_VALUE_STRING)
        return true;
    if (!ob_args_int(run, indent, 0, &n))
        return false;
    if (n > 1000)
        return ob_run_wrong(run, "an indent above 1000");
    for (int64_t i = 0; i < n; i++)
        ob_buffer_text(run->heap, &blanks, " ", OB_FROM_TEMPLATE);
    return ob_run_finish(run, &blanks, &json->indent);
}

static bool set_separators(struct json *json, const struct ob_value *separators)
{
    struct ob_run *run = json->run;
    struct ob_value item, key;
    if (separators->kind == OB_VALUE_MISSING || separators->kind == OB_VALUE_NONE) {
        if (!ob_run_string(run, json->has_indent ? "," : ", ", &item) ||
            !ob_run_string(run, ": ", &key))
            return false;
    } else {
        if ((separators->kind != OB_VALUE_TUPLE && separators->kind != OB_VALUE_LIST) ||
            separators->as.seq->len != 2)
            return ob_run_wrong(run, "separators must be two strings");
        item = separators->as.seq->items[0];
        key = separators->as.seq->items[1];
        if (item.kind != OB_VALUE_STRING || key.kind != OB_VALUE_STRING)
            return ob_run_wrong(run, "separators must be two strings");
    }
    json->item = item.as.string;
    json->key = key.as.string;
    return true;
}

bool ob_op_json(struct ob_run *run, const struct ob_value *v, const struct ob_args *args,
                struct ob_value *out)
{
    struct json json = {.run = run};
    struct ob_value given[4];
    if (!ob_args_bind(run, args, "ensure_ascii indent separators sort_keys", 0, given) ||
        !ob_op_truth(run, &given[0], &json.ensure_ascii) ||
        !ob_op_truth(run, &given[3], &json.sort_keys) || !set_indent(&json, &given[1]) ||
        !set_separators(&json, &given[2]) || !put_value(&json, v, 0))
        return false;
    return ob_run_finish(run, &json.buffer, out);
}
