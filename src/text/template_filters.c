/* Filters on single values, and the table of all filters. Those on sequences are in
 * template_filters_seq.c. */
#include "text/template_filters.h"

#include "text/template_strings.h"
#include "text/template_text.h"

#include <math.h>
#include <stdio.h>

/* The value as a string, which the caller may treat as its own. */
static bool soft_string(struct ob_run *run, const struct ob_value *v, struct ob_vstring **out)
{
    struct ob_value text;
    if (!ob_op_str(run, v, &text))
        return false;
    *out = text.as.string;
    return true;
}

/* The same without the mark of `safe`, as Python's str() gives it. */
static bool plain_string(struct ob_run *run, const struct ob_value *v, struct ob_value *out)
{
    if (!ob_op_str(run, v, out))
        return false;
    if (!out->as.string->markup)
        return true;
    struct ob_vstring *s = out->as.string;
    return ob_string_slice(run->heap, s, 0, s->len, out) ? (out->as.string->markup = false, true)
                                                         : ob_run_no_memory(run);
}

/* ---------------------------------------------------------------------------------------- text */

static bool change_case(struct ob_run *run, const struct ob_value *self, const struct ob_args *args,
                        enum ob_string_case to, struct ob_value *out)
{
    struct ob_vstring *s;
    return ob_args_none(run, args) && soft_string(run, self, &s) && ob_string_case(run, s, to, out);
}

static bool filter_upper(struct ob_run *run, const struct ob_value *self,
                         const struct ob_args *args, struct ob_value *out)
{
    return change_case(run, self, args, OB_STRING_UPPER, out);
}

static bool filter_lower(struct ob_run *run, const struct ob_value *self,
                         const struct ob_args *args, struct ob_value *out)
{
    return change_case(run, self, args, OB_STRING_LOWER, out);
}

static bool filter_capitalize(struct ob_run *run, const struct ob_value *self,
                              const struct ob_args *args, struct ob_value *out)
{
    return change_case(run, self, args, OB_STRING_CAPITALIZE, out);
}

static bool filter_title(struct ob_run *run, const struct ob_value *self,
                         const struct ob_args *args, struct ob_value *out)
{
    return change_case(run, self, args, OB_STRING_HEADLINE, out);
}

static bool filter_trim(struct ob_run *run, const struct ob_value *self, const struct ob_args *args,
                        struct ob_value *out)
{
    struct ob_value chars;
    struct ob_vstring *s, *set = NULL;
    return ob_args_bind(run, args, "chars", 0, &chars) && soft_string(run, self, &s) &&
           (chars.kind == OB_VALUE_NONE || ob_args_string(run, &chars, &set)) &&
           ob_string_trim(run, s, set, true, true, out);
}

static bool filter_replace(struct ob_run *run, const struct ob_value *self,
                           const struct ob_args *args, struct ob_value *out)
{
    struct ob_value given[3], s, old, new;
    int64_t count = -1;
    return ob_args_bind(run, args, "old new count", 2, given) && plain_string(run, self, &s) &&
           plain_string(run, &given[0], &old) && plain_string(run, &given[1], &new) &&
           (given[2].kind == OB_VALUE_NONE || ob_args_int(run, &given[2], -1, &count)) &&
           ob_string_replace(run, s.as.string, old.as.string, new.as.string, count, out);
}

static bool filter_indent(struct ob_run *run, const struct ob_value *self,
                          const struct ob_args *args, struct ob_value *out)
{
    struct ob_value given[3], blanks;
    struct ob_vstring *s, *indent;
    struct ob_value one;
    bool first, blank;
    int64_t width;
    if (!ob_args_bind(run, args, "width first blank", 0, given) || !ob_args_string(run, self, &s) ||
        !ob_op_truth(run, &given[1], &first) || !ob_op_truth(run, &given[2], &blank))
        return false;
    if (given[0].kind == OB_VALUE_STRING) {
        indent = given[0].as.string;
    } else {
        if (!ob_args_int(run, &given[0], 4, &width) || !ob_run_string(run, "", &one) ||
            !ob_string_pad(run, one.as.string, width, NULL, '<', &blanks))
            return false;
        indent = blanks.as.string;
    }
    return ob_string_indent(run, s, indent, first, blank, out);
}

static bool filter_center(struct ob_run *run, const struct ob_value *self,
                          const struct ob_args *args, struct ob_value *out)
{
    struct ob_value given;
    struct ob_vstring *s;
    int64_t width;
    return ob_args_bind(run, args, "width", 0, &given) && soft_string(run, self, &s) &&
           ob_args_int(run, &given, 80, &width) && ob_string_pad(run, s, width, NULL, '^', out);
}

static bool filter_string(struct ob_run *run, const struct ob_value *self,
                          const struct ob_args *args, struct ob_value *out)
{
    return ob_args_none(run, args) && ob_op_str(run, self, out);
}

static bool filter_safe(struct ob_run *run, const struct ob_value *self, const struct ob_args *args,
                        struct ob_value *out)
{
    struct ob_vstring *s;
    if (!ob_args_none(run, args) || !soft_string(run, self, &s))
        return false;
    if (!ob_string_slice(run->heap, s, 0, s->len, out))
        return ob_run_no_memory(run);
    out->as.string->markup = true;
    return true;
}

static bool filter_escape(struct ob_run *run, const struct ob_value *self,
                          const struct ob_args *args, struct ob_value *out)
{
    return ob_args_none(run, args) && ob_op_escape(run, self, out);
}

static bool filter_forceescape(struct ob_run *run, const struct ob_value *self,
                               const struct ob_args *args, struct ob_value *out)
{
    struct ob_value text;
    return ob_args_none(run, args) && plain_string(run, self, &text) &&
           ob_op_escape(run, &text, out);
}

static bool filter_format(struct ob_run *run, const struct ob_value *self,
                          const struct ob_args *args, struct ob_value *out)
{
    struct ob_vstring *s;
    struct ob_value given;
    if (args->n_plain && args->n_keywords)
        return ob_run_wrong(run, "a format takes arguments or keywords, not both");
    if (!soft_string(run, self, &s))
        return false;
    if (args->n_keywords) {
        if (!ob_args_dict(run, args, &given))
            return false;
    } else {
        if (!ob_run_seq(run, OB_VALUE_TUPLE, &given))
            return false;
        for (size_t i = 0; i < args->n_plain; i++)
            if (!ob_run_push(run, &given, args->plain[i]))
                return false;
    }
    return ob_op_format(run, s, &given, out);
}

/* A cut after `end` characters that leaves the last, broken word out. */
static bool cut_word(struct ob_run *run, struct ob_value *text)
{
    struct ob_vstring *s = text->as.string;
    size_t end = s->len;
    while (end > 0 && s->ptr[end - 1] != ' ')
        end--;
    return end == 0 || ob_string_slice(run->heap, s, 0, end - 1, text) || ob_run_no_memory(run);
}

static bool filter_truncate(struct ob_run *run, const struct ob_value *self,
                            const struct ob_args *args, struct ob_value *out)
{
    struct ob_value given[4], text, mark;
    struct ob_vstring *s;
    int64_t length, leeway = 5;
    bool kill_words;
    if (!ob_args_bind(run, args, "length killwords end leeway", 0, given) ||
        !ob_args_string(run, self, &s) || !ob_args_int(run, &given[0], 255, &length) ||
        !ob_op_truth(run, &given[1], &kill_words) ||
        (given[3].kind != OB_VALUE_NONE && !ob_args_int(run, &given[3], 5, &leeway)))
        return false;
    mark = given[2];
    if (mark.kind == OB_VALUE_MISSING && !ob_run_string(run, "...", &mark))
        return false;
    if (mark.kind != OB_VALUE_STRING)
        return ob_run_wrong(run, "the end of a cut text must be a string");
    int64_t end = length - (int64_t)ob_string_n_chars(mark.as.string);
    if (end < 0 || leeway < 0)
        return ob_run_wrong(run, "a text cannot be cut to %lld characters", (long long)length);
    *out = *self;
    if ((int64_t)ob_string_n_chars(s) <= length + leeway)
        return ob_run_steps(run, s->len / 64);
    if (!ob_string_slice(run->heap, s, 0, ob_string_byte_at(s, (size_t)end), &text))
        return ob_run_no_memory(run);
    return (kill_words || cut_word(run, &text)) &&
           ob_op_arithmetic(run, OB_OP_ADD, &text, &mark, out);
}

static bool filter_wordcount(struct ob_run *run, const struct ob_value *self,
                             const struct ob_args *args, struct ob_value *out)
{
    struct ob_vstring *s;
    int64_t n = 0;
    bool inside = false;
    if (!ob_args_none(run, args) || !soft_string(run, self, &s) || !ob_run_steps(run, s->len / 16))
        return false;
    for (size_t at = 0, length; at < s->len; at += length) {
        bool word = ob_is_word(ob_char_at(s->ptr + at, s->len - at, &length));
        n += word && !inside;
        inside = word;
    }
    *out = ob_value_int(n, OB_FROM_TEMPLATE);
    return true;
}

static bool filter_urlencode(struct ob_run *run, const struct ob_value *self,
                             const struct ob_args *args, struct ob_value *out)
{
    struct ob_string_buffer buffer = {0};
    struct ob_vstring *s;
    if (!ob_args_none(run, args))
        return false;
    if (self->kind == OB_VALUE_DICT || self->kind == OB_VALUE_LIST)
        return ob_run_fail(run, OB_UNSUPPORTED, "urlencode of %s", ob_value_type(self));
    if (!soft_string(run, self, &s) || !ob_run_steps(run, s->len / 16))
        return false;
    for (size_t at = 0; at < s->len; at++) {
        char c = s->ptr[at], hex[4];
        if ((c >= '0' && c <= '9') || ((c | 0x20) >= 'a' && (c | 0x20) <= 'z') ||
            (c != '\0' && strchr("_.-~/", c))) {
            ob_buffer_part(run->heap, &buffer, s, at, at + 1);
            continue;
        }
        snprintf(hex, sizeof hex, "%%%02X", (unsigned)(unsigned char)c);
        ob_buffer_text(run->heap, &buffer, hex, ob_vstring_origin(s, at));
    }
    return ob_run_finish(run, &buffer, out);
}

/* ------------------------------------------------------------------------------------- numbers */

static bool filter_abs(struct ob_run *run, const struct ob_value *self, const struct ob_args *args,
                       struct ob_value *out)
{
    int64_t i;
    if (!ob_args_none(run, args))
        return false;
    if (self->kind == OB_VALUE_FLOAT) {
        *out = ob_value_float(fabs(self->as.real), (enum ob_origin)self->origin);
        return true;
    }
    if (!ob_args_int(run, self, 0, &i))
        return false;
    if (i == INT64_MIN)
        return ob_run_fail(run, OB_UNSUPPORTED, "a whole number above 64 bits");
    *out = ob_value_int(i < 0 ? -i : i, (enum ob_origin)self->origin);
    return true;
}

static int digit_of(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'z' ? c - 'a' + 10 : 99;
}

/* int("...", base); *known is false where Python raises ValueError. */
static bool parse_int(struct ob_run *run, const struct ob_vstring *s, int base, bool *known,
                      int64_t *out)
{
    size_t at = ob_space_before(s->ptr, s->len), end = s->len - ob_space_after(s->ptr, s->len);
    bool negative = false, digit = false;
    *known = false;
    if (at < end && (s->ptr[at] == '-' || s->ptr[at] == '+'))
        negative = s->ptr[at++] == '-';
    if (at + 1 < end && s->ptr[at] == '0') {
        char mark = s->ptr[at + 1] | 0x20;
        int marked = mark == 'x' ? 16 : mark == 'o' ? 8 : mark == 'b' ? 2 : 0;
        if (marked && (base == marked || base == 0)) {
            base = marked;
            at += 2;
        }
    }
    if (base == 0)
        base = 10;
    int64_t value = 0;
    for (; at < end; at++) {
        if (s->ptr[at] == '_' && digit && at + 1 < end && s->ptr[at + 1] != '_')
            continue;
        int d = digit_of(s->ptr[at]);
        if (d >= base)
            return true;
        digit = true;
        if (__builtin_mul_overflow(value, base, &value) || __builtin_sub_overflow(value, d, &value))
            return ob_run_fail(run, OB_UNSUPPORTED, "a whole number above 64 bits");
    }
    if (!digit)
        return true;
    if (!negative && value == INT64_MIN)
        return ob_run_fail(run, OB_UNSUPPORTED, "a whole number above 64 bits");
    *known = true;
    *out = negative ? value : -value;
    return true;
}

/* float("..."); false where Python raises ValueError. */
static bool parse_float(const struct ob_vstring *s, double *out)
{
    char digits[128];
    size_t at = ob_space_before(s->ptr, s->len), end = s->len - ob_space_after(s->ptr, s->len);
    size_t n = 0;
    for (size_t i = at; i < end && n < sizeof digits; i++)
        if (s->ptr[i] != '_')
            digits[n++] = s->ptr[i];
    if (n == sizeof digits)
        return false;
    digits[n] = '\0';
    static const struct {
        const char *name;
        double value;
    } names[] = {{"inf", (double)INFINITY}, {"infinity", (double)INFINITY}, {"nan", (double)NAN}};
    size_t sign = n > 0 && (digits[0] == '-' || digits[0] == '+');
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        size_t k = 0;
        while (names[i].name[k] && (digits[sign + k] | 0x20) == names[i].name[k])
            k++;
        if (!names[i].name[k] && sign + k == n) {
            *out = digits[0] == '-' ? -names[i].value : names[i].value;
            return true;
        }
    }
    return ob_parse_float(digits, n, out);
}

static bool float_to_int(struct ob_run *run, double f, const struct ob_value *fallback,
                         enum ob_origin origin, struct ob_value *out)
{
    *out = *fallback;
    if (isnan(f))
        return true;
    if (isinf(f))
        return ob_run_wrong(run, "infinity is no whole number");
    if (!(f > -0x1p63 && f < 0x1p63))
        return ob_run_fail(run, OB_UNSUPPORTED, "a whole number above 64 bits");
    *out = ob_value_int((int64_t)f, origin);
    return true;
}

static bool filter_int(struct ob_run *run, const struct ob_value *self, const struct ob_args *args,
                       struct ob_value *out)
{
    struct ob_value given[2];
    enum ob_origin origin = (enum ob_origin)self->origin;
    int64_t base, i;
    bool known;
    double f;
    if (!ob_args_bind(run, args, "default base", 0, given) ||
        !ob_args_int(run, &given[1], 10, &base))
        return false;
    if (base != 0 && (base < 2 || base > 36))
        return ob_run_wrong(run, "there is no base %lld", (long long)base);
    if (given[0].kind == OB_VALUE_MISSING)
        given[0] = ob_value_int(0, OB_FROM_TEMPLATE);
    *out = given[0];
    switch (self->kind) {
    case OB_VALUE_BOOL:
    case OB_VALUE_INT:
        *out =
            ob_value_int(self->kind == OB_VALUE_INT ? self->as.integer : self->as.boolean, origin);
        return true;
    case OB_VALUE_FLOAT:
        return float_to_int(run, self->as.real, &given[0], origin, out);
    case OB_VALUE_STRING:
        if (!parse_int(run, self->as.string, (int)base, &known, &i))
            return false;
        origin = self->as.string->origins ? OB_FROM_DATA : (enum ob_origin)self->as.string->origin;
        if (known)
            *out = ob_value_int(i, origin);
        else if (parse_float(self->as.string, &f))
            return float_to_int(run, f, &given[0], origin, out);
        return true;
    case OB_VALUE_UNDEFINED:
        return ob_run_is_undefined(run, self);
    default:
        return true;
    }
}

static bool filter_float(struct ob_run *run, const struct ob_value *self,
                         const struct ob_args *args, struct ob_value *out)
{
    struct ob_value fallback;
    double f = 0;
    if (!ob_args_bind(run, args, "default", 0, &fallback))
        return false;
    if (fallback.kind == OB_VALUE_MISSING)
        fallback = ob_value_float(0, OB_FROM_TEMPLATE);
    bool known = true;
    if (self->kind == OB_VALUE_INT)
        f = (double)self->as.integer;
    else if (self->kind == OB_VALUE_BOOL)
        f = self->as.boolean;
    else if (self->kind == OB_VALUE_FLOAT)
        f = self->as.real;
    else if (self->kind == OB_VALUE_UNDEFINED)
        return ob_run_is_undefined(run, self);
    else
        known = self->kind == OB_VALUE_STRING && parse_float(self->as.string, &f);
    *out = known ? ob_value_float(f, (enum ob_origin)self->origin) : fallback;
    return true;
}

/* round(f, n): the decimal nearest to f, halves of the exact value to even. */
static double round_decimal(double f, int64_t precision)
{
    char text[512];
    double rounded;
    if (!isfinite(f) || precision > 22)
        return f;
    if (precision < 0) {
        double power = pow(10.0, (double)-precision);
        return precision < -308 ? 0.0 : nearbyint(f / power) * power;
    }
    int n = snprintf(text, sizeof text, "%.*f", (int)precision, f);
    for (int i = 0; i < n; i++)
        if (text[i] != '-' && (text[i] < '0' || text[i] > '9'))
            text[i] = '.';
    return ob_parse_float(text, (size_t)n, &rounded) ? rounded : f;
}

static bool filter_round(struct ob_run *run, const struct ob_value *self,
                         const struct ob_args *args, struct ob_value *out)
{
    struct ob_value given[2];
    struct ob_vstring *method;
    int64_t precision;
    enum ob_origin origin = (enum ob_origin)self->origin;
    if (!ob_args_bind(run, args, "precision method", 0, given) ||
        !ob_args_int(run, &given[0], 0, &precision) || !ob_args_string(run, &given[1], &method))
        return false;
    struct ob_str name = method ? ob_value_str(&given[1]) : ob_str_from("common");
    bool common = ob_str_is(name, "common"), up = ob_str_is(name, "ceil");
    if (!common && !up && !ob_str_is(name, "floor"))
        return ob_run_wrong(run, "the method must be common, ceil or floor");
    bool whole = self->kind == OB_VALUE_INT || self->kind == OB_VALUE_BOOL;
    if (!whole && self->kind != OB_VALUE_FLOAT)
        return self->kind == OB_VALUE_UNDEFINED
                   ? ob_run_is_undefined(run, self)
                   : ob_run_wrong(run, "%s cannot be rounded", ob_value_type(self));
    int64_t i = self->kind == OB_VALUE_INT ? self->as.integer : whole && self->as.boolean;
    if (whole && common && precision >= 0) {
        *out = ob_value_int(i, origin);
        return true;
    }
    if (whole && common)
        return ob_run_fail(run, OB_UNSUPPORTED, "rounding whole numbers is not implemented");
    double f = whole ? (double)i : self->as.real, power = pow(10.0, (double)precision);
    f = common ? round_decimal(f, precision) : (up ? ceil(f * power) : floor(f * power)) / power;
    *out = ob_value_float(f, origin);
    return true;
}

/* --------------------------------------------------------------------------------------- other */

static bool filter_default(struct ob_run *run, const struct ob_value *self,
                           const struct ob_args *args, struct ob_value *out)
{
    struct ob_value given[2];
    bool also_false, truth;
    if (!ob_args_bind(run, args, "default_value boolean", 0, given) ||
        !ob_op_truth(run, &given[1], &also_false) || !ob_op_truth(run, self, &truth))
        return false;
    *out = *self;
    if (self->kind != OB_VALUE_UNDEFINED && (truth || !also_false))
        return true;
    *out = given[0];
    return given[0].kind != OB_VALUE_MISSING || ob_run_string(run, "", out);
}

static bool filter_length(struct ob_run *run, const struct ob_value *self,
                          const struct ob_args *args, struct ob_value *out)
{
    size_t n;
    if (!ob_args_none(run, args) || !ob_op_length(run, self, &n))
        return false;
    *out = ob_value_int((int64_t)n, OB_FROM_TEMPLATE);
    return true;
}

static bool filter_attr(struct ob_run *run, const struct ob_value *self, const struct ob_args *args,
                        struct ob_value *out)
{
    struct ob_value name;
    struct ob_vstring *text;
    if (!ob_args_bind(run, args, "name", 1, &name) || !ob_args_string(run, &name, &text))
        return false;
    const struct ob_filter *method;
    if (self->kind == OB_VALUE_DICT &&
        ob_method_find(self, ob_value_str(&name), &method) == OB_METHOD_NONE)
        return ob_run_undefined(run, out, "the dict has no attribute '%.*s'",
                                OB_STR_ARG(ob_value_str(&name)));
    return ob_op_attribute(run, self, &name, out);
}

static const struct ob_filter filters[] = {
    {"abs", filter_abs},
    {"attr", filter_attr},
    {"capitalize", filter_capitalize},
    {"center", filter_center},
    {"count", filter_length},
    {"d", filter_default},
    {"default", filter_default},
    {"e", filter_escape},
    {"escape", filter_escape},
    {"float", filter_float},
    {"forceescape", filter_forceescape},
    {"format", filter_format},
    {"indent", filter_indent},
    {"int", filter_int},
    {"length", filter_length},
    {"lower", filter_lower},
    {"replace", filter_replace},
    {"round", filter_round},
    {"safe", filter_safe},
    {"string", filter_string},
    {"title", filter_title},
    {"tojson", ob_op_json},
    {"trim", filter_trim},
    {"truncate", filter_truncate},
    {"upper", filter_upper},
    {"urlencode", filter_urlencode},
    {"wordcount", filter_wordcount},
};

const struct ob_filter *ob_filter_find(struct ob_str name)
{
    for (size_t i = 0; i < sizeof filters / sizeof *filters; i++)
        if (ob_str_is(name, filters[i].name))
            return &filters[i];
    for (size_t i = 0; i < ob_n_seq_filters; i++)
        if (ob_str_is(name, ob_seq_filters[i].name))
            return &ob_seq_filters[i];
    return NULL;
}
