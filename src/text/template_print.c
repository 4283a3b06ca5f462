/* Values as text: str(), repr(), HTML escapes, printf formats. */
#include "text/template_eval.h"

#include "text/template_text.h"
#include "text/utf8.h"

#include <stdio.h>

static void put(struct ob_run *run, struct ob_string_buffer *buffer, const char *text,
                uint8_t origin)
{
    ob_buffer_text(run->heap, buffer, text, (enum ob_origin)origin);
}

/* ---------------------------------------------------------------------------------------- repr */

/* One character of repr('...'), at byte `at` of s. */
static void repr_char(struct ob_run *run, struct ob_string_buffer *buffer,
                      const struct ob_vstring *s, size_t at, size_t length, char quote)
{
    char text[16];
    size_t used;
    int32_t c = ob_char_at(s->ptr + at, s->len - at, &used);
    if (c == '\n' || c == '\r' || c == '\t')
        snprintf(text, sizeof text, "\\%c", c == '\n' ? 'n' : c == '\r' ? 'r' : 't');
    else if (c == '\\' || c == quote)
        snprintf(text, sizeof text, "\\%c", (char)c);
    else if (c < 0) /* ill-formed, as Python's surrogateescape shows it */
        snprintf(text, sizeof text, "\\udc%02x", (unsigned char)s->ptr[at]);
    else if (ob_is_printable(c)) {
        ob_buffer_part(run->heap, buffer, s, at, at + length);
        return;
    } else
        snprintf(text, sizeof text,
                 c < 0x100     ? "\\x%02x"
                 : c < 0x10000 ? "\\u%04x"
                               : "\\U%08x",
                 (unsigned)c);
    ob_buffer_text(run->heap, buffer, text, ob_vstring_origin(s, at));
}

static void repr_string(struct ob_run *run, struct ob_string_buffer *buffer,
                        const struct ob_value *v)
{
    const struct ob_vstring *s = v->as.string;
    bool single = s->len && memchr(s->ptr, '\'', s->len);
    bool twice = s->len && memchr(s->ptr, '"', s->len);
    char quote[2] = {single && !twice ? '"' : '\'', '\0'};
    put(run, buffer, s->markup ? "Markup(" : "", v->origin);
    put(run, buffer, quote, v->origin);
    for (size_t at = 0, length; at < s->len; at += length) {
        ob_char_at(s->ptr + at, s->len - at, &length);
        repr_char(run, buffer, s, at, length, quote[0]);
    }
    put(run, buffer, quote, v->origin);
    put(run, buffer, s->markup ? ")" : "", v->origin);
}

static bool repr_items(struct ob_run *run, struct ob_string_buffer *buffer,
                       const struct ob_value *v, const char *open, const char *close)
{
    const struct ob_seq *seq = v->as.seq;
    put(run, buffer, open, v->origin);
    for (size_t i = 0; i < seq->len; i++) {
        if (i > 0)
            put(run, buffer, ", ", v->origin);
        if (!ob_op_repr(run, buffer, &seq->items[i]))
            return false;
    }
    if (v->kind == OB_VALUE_TUPLE && seq->len == 1)
        put(run, buffer, ",", v->origin);
    put(run, buffer, close, v->origin);
    return true;
}

static bool repr_dict(struct ob_run *run, struct ob_string_buffer *buffer, const struct ob_value *v)
{
    const struct ob_dict *dict = v->as.dict;
    bool is_namespace = v->kind == OB_VALUE_NAMESPACE;
    put(run, buffer, is_namespace ? "<Namespace {" : "{", v->origin);
    for (size_t i = 0; i < dict->len; i++) {
        if (i > 0)
            put(run, buffer, ", ", v->origin);
        if (!ob_op_repr(run, buffer, &dict->keys[i]))
            return false;
        put(run, buffer, ": ", v->origin);
        if (!ob_op_repr(run, buffer, &dict->values[i]))
            return false;
    }
    put(run, buffer, is_namespace ? "}>" : "}", v->origin);
    return true;
}

static bool repr_container(struct ob_run *run, struct ob_string_buffer *buffer,
                           const struct ob_value *v)
{
    switch (v->kind) {
    case OB_VALUE_LIST:
        return repr_items(run, buffer, v, "[", "]");
    case OB_VALUE_TUPLE:
        return repr_items(run, buffer, v, "(", ")");
    case OB_VALUE_VIEW:
        put(run, buffer,
            v->as.seq->view_kind == 'i'   ? "dict_items("
            : v->as.seq->view_kind == 'k' ? "dict_keys("
                                          : "dict_values(",
            v->origin);
        return repr_items(run, buffer, v, "[", "])");
    default:
        return repr_dict(run, buffer, v);
    }
}

static void repr_range(struct ob_run *run, struct ob_string_buffer *buffer,
                       const struct ob_range *range)
{
    char text[80];
    if (range->step == 1)
        snprintf(text, sizeof text, "range(%lld, %lld)", (long long)range->start,
                 (long long)range->stop);
    else
        snprintf(text, sizeof text, "range(%lld, %lld, %lld)", (long long)range->start,
                 (long long)range->stop, (long long)range->step);
    put(run, buffer, text, OB_FROM_TEMPLATE);
}

static void repr_number(struct ob_run *run, struct ob_string_buffer *buffer,
                        const struct ob_value *v)
{
    char text[OB_REPR_FLOAT_BYTES];
    size_t n;
    if (v->kind == OB_VALUE_FLOAT)
        n = ob_repr_float(v->as.real, text);
    else
        n = (size_t)snprintf(text, sizeof text, "%lld", (long long)v->as.integer);
    ob_buffer_bytes(run->heap, buffer, text, n, (enum ob_origin)v->origin);
}

bool ob_op_repr(struct ob_run *run, struct ob_string_buffer *buffer, const struct ob_value *v)
{
    if (!ob_run_steps(run, 1))
        return false;
    switch (v->kind) {
    case OB_VALUE_UNDEFINED:
        put(run, buffer, "Undefined", v->origin);
        break;
    case OB_VALUE_NONE:
        put(run, buffer, "None", v->origin);
        break;
    case OB_VALUE_BOOL:
        put(run, buffer, v->as.boolean ? "True" : "False", v->origin);
        break;
    case OB_VALUE_INT:
    case OB_VALUE_FLOAT:
        repr_number(run, buffer, v);
        break;
    case OB_VALUE_STRING:
        repr_string(run, buffer, v);
        return ob_run_steps(run, v->as.string->len / 16);
    case OB_VALUE_RANGE:
        repr_range(run, buffer, v->as.range);
        break;
    case OB_VALUE_LIST:
    case OB_VALUE_TUPLE:
    case OB_VALUE_VIEW:
    case OB_VALUE_DICT:
    case OB_VALUE_NAMESPACE: {
        if (!ob_run_enter(run))
            return false;
        bool ok = repr_container(run, buffer, v);
        ob_run_leave(run);
        return ok;
    }
    default: /* Python prints addresses here */
        put(run, buffer, "<", v->origin);
        put(run, buffer, ob_value_type(v), v->origin);
        put(run, buffer, ">", v->origin);
    }
    return true;
}

void ob_op_write(struct ob_run *run, struct ob_string_buffer *buffer, const struct ob_value *v)
{
    if (v->kind == OB_VALUE_STRING)
        ob_buffer_string(run->heap, buffer, v->as.string);
    else if (v->kind != OB_VALUE_UNDEFINED)
        ob_op_repr(run, buffer, v); /* a failure is in run->status */
}

bool ob_op_str(struct ob_run *run, const struct ob_value *v, struct ob_value *out)
{
    struct ob_string_buffer buffer = {0};
    if (v->kind == OB_VALUE_STRING) {
        *out = *v;
        return true;
    }
    ob_op_write(run, &buffer, v);
    if (run->status != OB_OK || !ob_run_finish(run, &buffer, out))
        return false;
    out->origin = v->origin;
    return true;
}

/* -------------------------------------------------------------------------------------- escape */

static const char *html_escape(char c)
{
    switch (c) {
    case '&':
        return "&amp;";
    case '<':
        return "&lt;";
    case '>':
        return "&gt;";
    case '\'':
        return "&#39;";
    case '"':
        return "&#34;";
    default:
        return NULL;
    }
}

bool ob_op_escape(struct ob_run *run, const struct ob_value *v, struct ob_value *out)
{
    struct ob_string_buffer buffer = {0};
    struct ob_value text;
    if (v->kind == OB_VALUE_STRING && v->as.string->markup) {
        *out = *v;
        return true;
    }
    if (!ob_op_str(run, v, &text) || !ob_run_steps(run, text.as.string->len / 16))
        return false;
    const struct ob_vstring *s = text.as.string;
    size_t from = 0;
    for (size_t at = 0; at < s->len; at++) {
        const char *escaped = html_escape(s->ptr[at]);
        if (!escaped)
            continue;
        ob_buffer_part(run->heap, &buffer, s, from, at);
        ob_buffer_text(run->heap, &buffer, escaped, ob_vstring_origin(s, at));
        from = at + 1;
    }
    ob_buffer_part(run->heap, &buffer, s, from, s->len);
    if (!ob_run_finish(run, &buffer, out))
        return false;
    out->as.string->markup = true;
    return true;
}

/* -------------------------------------------------------------------------------------- format */

struct format {
    struct ob_run *run;
    struct ob_vstring *text;
    size_t at;
    const struct ob_value *args;
    size_t next; /* argument */
    struct ob_string_buffer buffer;
};

struct conversion {
    char flags[6];
    int64_t width, precision; /* -1: not given */
    char type;
};

static char format_char(const struct format *format)
{
    return format->at < format->text->len ? format->text->ptr[format->at] : '\0';
}

static bool next_argument(struct format *format, struct ob_value *out)
{
    const struct ob_value *args = format->args;
    size_t n = args->kind == OB_VALUE_TUPLE ? args->as.seq->len : 1;
    if (format->next >= n)
        return ob_run_wrong(format->run, "not enough arguments for the format string");
    *out = args->kind == OB_VALUE_TUPLE ? args->as.seq->items[format->next] : *args;
    format->next++;
    return true;
}

/* "(name)" after a '%'. */
static bool named_argument(struct format *format, struct ob_value *out)
{
    size_t from = ++format->at;
    while (format->at < format->text->len && format_char(format) != ')')
        format->at++;
    struct ob_str name = {format->text->ptr + from, format->at - from};
    const struct ob_value *found = NULL;
    if (format->args->kind == OB_VALUE_DICT)
        found = ob_dict_get_str(format->args->as.dict, name);
    if (!found || format->at == format->text->len)
        return ob_run_wrong(format->run, "the format string names '%.*s', which is not given",
                            OB_STR_ARG(name));
    format->at++;
    *out = *found;
    return true;
}

static bool format_number(struct format *format, int64_t *out)
{
    *out = -1;
    if (format_char(format) == '*') {
        struct ob_value v;
        format->at++;
        return next_argument(format, &v) && ob_args_int(format->run, &v, 0, out);
    }
    for (; format_char(format) >= '0' && format_char(format) <= '9'; format->at++) {
        *out = (*out < 0 ? 0 : *out) * 10 + format_char(format) - '0';
        if (*out > 1000)
            return ob_run_fail(format->run, OB_UNSUPPORTED, "a format width above 1000");
    }
    return true;
}

static bool read_conversion(struct format *format, struct conversion *conversion)
{
    size_t n = 0;
    *conversion = (struct conversion){.precision = -1};
    while (format_char(format) != '\0' && strchr("-+ #0", format_char(format)) && n < 5)
        conversion->flags[n++] = format->text->ptr[format->at++];
    if (!format_number(format, &conversion->width))
        return false;
    if (format_char(format) == '.') {
        format->at++;
        if (!format_number(format, &conversion->precision))
            return false;
        if (conversion->precision < 0)
            conversion->precision = 0;
    }
    while (format_char(format) != '\0' && strchr("hlL", format_char(format)))
        format->at++;
    conversion->type = format_char(format);
    format->at++;
    return true;
}

/* A number in C's format, which is Python's for these types, without the locale's decimal point. */
static bool format_numeric(struct format *format, const struct conversion *conversion,
                           const struct ob_value *v)
{
    char spec[48], text[1400], point[8];
    bool is_float = strchr("eEfFgG", conversion->type) != NULL;
    bool is_hex = strchr("xXo", conversion->type) != NULL;
    if (v->kind == OB_VALUE_UNDEFINED)
        return ob_run_is_undefined(format->run, v);
    if (v->kind != OB_VALUE_INT && v->kind != OB_VALUE_BOOL &&
        (v->kind != OB_VALUE_FLOAT || is_hex))
        return ob_run_wrong(format->run, "%%%c needs a number, not %s", conversion->type,
                            ob_value_type(v));
    double real = v->kind == OB_VALUE_FLOAT ? v->as.real
                  : v->kind == OB_VALUE_INT ? (double)v->as.integer
                                            : (double)v->as.boolean;
    bool fits = real > -0x1p63 && real < 0x1p63; /* false for NaN */
    long long whole = v->kind == OB_VALUE_BOOL  ? v->as.boolean
                      : v->kind == OB_VALUE_INT ? v->as.integer
                      : fits                    ? (long long)real
                                                : 0;
    if (!is_float && v->kind == OB_VALUE_FLOAT && !fits)
        return ob_run_fail(format->run, OB_UNSUPPORTED, "a whole number above 64 bits");
    if (conversion->precision > 300 || (is_hex && (whole < 0 || strchr(conversion->flags, '#'))))
        return ob_run_fail(format->run, OB_UNSUPPORTED, "this format is not implemented");
    char type = is_float || is_hex ? conversion->type : 'd';
    int width = conversion->width < 0 ? 0 : (int)conversion->width;
    snprintf(spec, sizeof spec, "%%%s*.*%s%c", conversion->flags, is_float ? "" : "ll", type);
    int n = is_float ? snprintf(text, sizeof text, spec, width, (int)conversion->precision, real)
                     : snprintf(text, sizeof text, spec, width, (int)conversion->precision, whole);
    if (n < 0 || (size_t)n >= sizeof text)
        return ob_run_fail(format->run, OB_UNSUPPORTED, "a number that is too long");
    snprintf(point, sizeof point, "%.1f", 0.5);
    for (char *c = text; *c; c++)
        if (*c == point[1])
            *c = '.';
    ob_buffer_bytes(format->run->heap, &format->buffer, text, (size_t)n, (enum ob_origin)v->origin);
    return true;
}

static bool format_text(struct format *format, const struct conversion *conversion,
                        const struct ob_value *v)
{
    struct ob_run *run = format->run;
    struct ob_value text;
    if (conversion->type == 's') {
        if (!ob_op_str(run, v, &text) || (format->text->markup && !ob_op_escape(run, &text, &text)))
            return false;
    } else {
        struct ob_string_buffer repr = {0};
        if (!ob_op_repr(run, &repr, v) || !ob_run_finish(run, &repr, &text))
            return false;
    }
    struct ob_vstring *s = text.as.string;
    size_t n = ob_string_n_chars(s), end = s->len;
    if (conversion->precision >= 0 && (size_t)conversion->precision < n) {
        n = (size_t)conversion->precision;
        end = ob_string_byte_at(s, n);
    }
    size_t width = conversion->width < 0 ? 0 : (size_t)conversion->width;
    size_t padding = width > n ? width - n : 0;
    bool left = strchr(conversion->flags, '-') != NULL;
    for (size_t i = 0; i < padding && !left; i++)
        put(run, &format->buffer, " ", OB_FROM_TEMPLATE);
    ob_buffer_part(run->heap, &format->buffer, s, 0, end);
    for (size_t i = 0; i < padding && left; i++)
        put(run, &format->buffer, " ", OB_FROM_TEMPLATE);
    return true;
}

static bool format_one(struct format *format)
{
    struct conversion conversion;
    struct ob_value v = {.kind = OB_VALUE_MISSING};
    format->at++;
    if (format_char(format) == '(' && !named_argument(format, &v))
        return false;
    if (!read_conversion(format, &conversion))
        return false;
    if (conversion.type == '%') {
        ob_buffer_part(format->run->heap, &format->buffer, format->text, format->at - 1,
                       format->at);
        return true;
    }
    if (v.kind == OB_VALUE_MISSING && !next_argument(format, &v))
        return false;
    if (conversion.type == 's' || conversion.type == 'r')
        return format_text(format, &conversion, &v);
    if (conversion.type != '\0' && strchr("diuxXoeEfFgG", conversion.type))
        return format_numeric(format, &conversion, &v);
    return ob_run_fail(format->run, OB_UNSUPPORTED, "a format character that is not implemented");
}

bool ob_op_format(struct ob_run *run, struct ob_vstring *text, const struct ob_value *args,
                  struct ob_value *out)
{
    struct format format = {.run = run, .text = text, .args = args};
    while (format.at < text->len) {
        size_t from = format.at;
        while (format.at < text->len && text->ptr[format.at] != '%')
            format.at++;
        ob_buffer_part(run->heap, &format.buffer, text, from, format.at);
        if (!ob_run_steps(run, 1 + (format.at - from) / 64) ||
            (format.at < text->len && !format_one(&format)))
            return false;
    }
    bool all_used =
        args->kind == OB_VALUE_TUPLE ? format.next == args->as.seq->len : format.next == 1;
    if (!all_used && args->kind != OB_VALUE_DICT && args->kind != OB_VALUE_LIST)
        return ob_run_wrong(run, "not all arguments were used by the format string");
    if (!ob_run_finish(run, &format.buffer, out))
        return false;
    out->as.string->markup = text->markup;
    return true;
}
