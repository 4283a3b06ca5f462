/* Methods of strings, lists and dicts. */
#include "text/template_strings.h"

#include "text/template_case.h"
#include "text/template_text.h"
#include "text/unicode.h"

enum { EQUAL_DEPTH = 64 };

#define METHOD(name)                                                                               \
    static bool name(struct ob_run *run, const struct ob_value *self, const struct ob_args *args,  \
                     struct ob_value *out)

static struct ob_vstring *text_of(const struct ob_value *self)
{
    return self->as.string;
}

/* ------------------------------------------------------------------------------------ strings */

static bool change_case(struct ob_run *run, const struct ob_value *self, const struct ob_args *args,
                        enum ob_string_case to, struct ob_value *out)
{
    return ob_args_none(run, args) && ob_string_case(run, text_of(self), to, out);
}

METHOD(str_upper)
{
    return change_case(run, self, args, OB_STRING_UPPER, out);
}

METHOD(str_lower)
{
    return change_case(run, self, args, OB_STRING_LOWER, out);
}

METHOD(str_capitalize)
{
    return change_case(run, self, args, OB_STRING_CAPITALIZE, out);
}

METHOD(str_title)
{
    return change_case(run, self, args, OB_STRING_TITLE, out);
}

METHOD(str_swapcase)
{
    return change_case(run, self, args, OB_STRING_SWAP, out);
}

/* A string that may also be none or not given, both of which give NULL. */
static bool maybe_string(struct ob_run *run, const struct ob_value *v, struct ob_vstring **out)
{
    *out = NULL;
    return v->kind == OB_VALUE_NONE || ob_args_string(run, v, out);
}

static bool strip(struct ob_run *run, const struct ob_value *self, const struct ob_args *args,
                  bool left, bool right, struct ob_value *out)
{
    struct ob_value given;
    struct ob_vstring *chars;
    return ob_args_bind(run, args, "chars", 0, &given) && maybe_string(run, &given, &chars) &&
           ob_string_trim(run, text_of(self), chars, left, right, out);
}

METHOD(str_strip)
{
    return strip(run, self, args, true, true, out);
}

METHOD(str_lstrip)
{
    return strip(run, self, args, true, false, out);
}

METHOD(str_rstrip)
{
    return strip(run, self, args, false, true, out);
}

METHOD(str_split)
{
    struct ob_value given[2];
    struct ob_vstring *separator;
    int64_t max;
    return ob_args_bind(run, args, "sep maxsplit", 0, given) &&
           maybe_string(run, &given[0], &separator) && ob_args_int(run, &given[1], -1, &max) &&
           ob_string_split(run, text_of(self), separator, max, out);
}

METHOD(str_rsplit)
{
    struct ob_value given[2];
    struct ob_vstring *separator;
    int64_t max;
    return ob_args_bind(run, args, "sep maxsplit", 0, given) &&
           maybe_string(run, &given[0], &separator) && ob_args_int(run, &given[1], -1, &max) &&
           ob_string_split_right(run, text_of(self), separator, max, out);
}

METHOD(str_splitlines)
{
    struct ob_value keep;
    bool keep_ends;
    return ob_args_bind(run, args, "keepends", 0, &keep) && ob_op_truth(run, &keep, &keep_ends) &&
           ob_string_lines(run, text_of(self), keep_ends, out);
}

METHOD(str_replace)
{
    struct ob_value given[3];
    struct ob_vstring *old, *new;
    int64_t count;
    if (!ob_args_bind(run, args, "old new count", 2, given) ||
        !ob_args_string(run, &given[0], &old) || !ob_args_string(run, &given[1], &new) ||
        !ob_args_int(run, &given[2], -1, &count) ||
        !ob_string_replace(run, text_of(self), old, new, count, out))
        return false;
    out->as.string->markup = text_of(self)->markup;
    return true;
}

METHOD(str_join)
{
    struct ob_value items, list;
    if (!ob_args_bind(run, args, "iterable", 1, &items) || !ob_op_list(run, &items, &list))
        return false;
    for (size_t i = 0; i < list.as.seq->len; i++) {
        struct ob_value *item = &list.as.seq->items[i];
        if (item->kind != OB_VALUE_STRING)
            return ob_run_wrong(run, "only strings can be joined, not %s", ob_value_type(item));
        struct ob_value plain = *item;
        if (text_of(self)->markup && !ob_op_escape(run, &plain, item))
            return false;
    }
    return ob_string_join_list(run, text_of(self), &list, out);
}

/* Python's clamping of an optional [start, end) in characters, as bytes. */
static bool byte_range(struct ob_run *run, struct ob_vstring *s, const struct ob_value *start,
                       const struct ob_value *end, size_t *from, size_t *to)
{
    int64_t n = (int64_t)ob_string_n_chars(s), first, last;
    if ((start->kind == OB_VALUE_NONE ? (first = 0, false) : !ob_args_int(run, start, 0, &first)) ||
        (end->kind == OB_VALUE_NONE ? (last = n, false) : !ob_args_int(run, end, n, &last)))
        return false;
    first = first < 0 ? (first < -n ? 0 : first + n) : first;
    last = last < 0 ? (last < -n ? 0 : last + n) : last > n ? n : last;
    *from = *to = SIZE_MAX; /* nothing is found there */
    if (first > last)
        return true;
    *from = ob_string_byte_at(s, (size_t)first);
    *to = ob_string_byte_at(s, (size_t)last);
    return ob_run_steps(run, 1 + s->len / 64);
}

static bool affix_at(const struct ob_vstring *s, size_t from, size_t to,
                     const struct ob_vstring *affix, bool at_end)
{
    if (from == SIZE_MAX || affix->len > to - from)
        return false;
    const char *where = at_end ? s->ptr + to - affix->len : s->ptr + from;
    return memcmp(where, affix->ptr, affix->len) == 0;
}

/* startswith, endswith: one string or a tuple of them. */
static bool has_affix(struct ob_run *run, const struct ob_value *self, const struct ob_args *args,
                      bool at_end, struct ob_value *out)
{
    struct ob_value given[3];
    struct ob_vstring *affix;
    size_t from, to;
    bool holds = false;
    if (!ob_args_bind(run, args, "prefix start end", 1, given) ||
        !byte_range(run, text_of(self), &given[1], &given[2], &from, &to))
        return false;
    if (given[0].kind == OB_VALUE_TUPLE) {
        const struct ob_seq *affixes = given[0].as.seq;
        for (size_t i = 0; i < affixes->len && !holds; i++) {
            if (!ob_args_string(run, &affixes->items[i], &affix))
                return false;
            holds = affix_at(text_of(self), from, to, affix, at_end);
        }
    } else {
        if (!ob_args_string(run, &given[0], &affix))
            return false;
        holds = affix_at(text_of(self), from, to, affix, at_end);
    }
    *out = ob_value_bool(holds, OB_FROM_TEMPLATE);
    return true;
}

METHOD(str_startswith)
{
    return has_affix(run, self, args, false, out);
}

METHOD(str_endswith)
{
    return has_affix(run, self, args, true, out);
}

static size_t count_chars(const struct ob_vstring *s, size_t n_bytes)
{
    struct ob_vstring part = {.ptr = s->ptr, .len = n_bytes};
    return ob_string_n_chars(&part);
}

/* find, rfind, index, rindex: the character where a part begins, or -1. */
static bool search(struct ob_run *run, const struct ob_value *self, const struct ob_args *args,
                   bool last, bool must, struct ob_value *out)
{
    struct ob_value given[3];
    struct ob_vstring *part, *s = text_of(self);
    size_t from, to;
    int64_t found = -1;
    if (!ob_args_bind(run, args, "sub start end", 1, given) ||
        !ob_args_string(run, &given[0], &part) ||
        !byte_range(run, s, &given[1], &given[2], &from, &to) ||
        !ob_run_steps(run, s->len / 64 * (1 + part->len / 64)))
        return false;
    if (from != SIZE_MAX) {
        size_t n = to - from, at;
        if (part->len == 0)
            at = last ? n : 0;
        else
            at = last ? ob_find_last_bytes(s->ptr + from, n, part->ptr, part->len)
                      : ob_find_bytes(s->ptr + from, n, part->ptr, part->len);
        if (part->len == 0 || at < n)
            found = (int64_t)count_chars(s, from + at);
    }
    if (must && found < 0)
        return ob_run_wrong(run, "the part is not in the string");
    *out = ob_value_int(found, OB_FROM_TEMPLATE);
    return true;
}

METHOD(str_find)
{
    return search(run, self, args, false, false, out);
}

METHOD(str_rfind)
{
    return search(run, self, args, true, false, out);
}

METHOD(str_index)
{
    return search(run, self, args, false, true, out);
}

METHOD(str_rindex)
{
    return search(run, self, args, true, true, out);
}

METHOD(str_count)
{
    struct ob_value given[3];
    struct ob_vstring *part, *s = text_of(self);
    size_t from, to;
    int64_t n = 0;
    if (!ob_args_bind(run, args, "sub start end", 1, given) ||
        !ob_args_string(run, &given[0], &part) ||
        !byte_range(run, s, &given[1], &given[2], &from, &to) ||
        !ob_run_steps(run, s->len / 64 * (1 + part->len / 64)))
        return false;
    if (from != SIZE_MAX && part->len == 0) {
        n = (int64_t)(count_chars(s, to) - count_chars(s, from)) + 1;
    } else if (from != SIZE_MAX) {
        while (from < to) {
            size_t at = ob_find_bytes(s->ptr + from, to - from, part->ptr, part->len);
            n += at < to - from;
            from += at + part->len;
        }
    }
    *out = ob_value_int(n, OB_FROM_TEMPLATE);
    return true;
}

/* (before, separator, after) around the first or last separator. */
static bool partition(struct ob_run *run, const struct ob_value *self, const struct ob_args *args,
                      bool last, struct ob_value *out)
{
    struct ob_value given, parts[3];
    struct ob_vstring *separator, *s = text_of(self);
    if (!ob_args_bind(run, args, "sep", 1, &given) || !ob_args_string(run, &given, &separator))
        return false;
    if (separator->len == 0)
        return ob_run_wrong(run, "the separator is empty");
    size_t at = last ? ob_find_last_bytes(s->ptr, s->len, separator->ptr, separator->len)
                     : ob_find_bytes(s->ptr, s->len, separator->ptr, separator->len);
    size_t end = at < s->len ? at + separator->len : at;
    if (last && at == s->len)
        at = end = 0;
    if (!ob_string_slice(run->heap, s, 0, at, &parts[0]) ||
        !ob_string_slice(run->heap, s, at, end, &parts[1]) ||
        !ob_string_slice(run->heap, s, end, s->len, &parts[2]))
        return ob_run_no_memory(run);
    return ob_run_steps(run, 1 + s->len / 64) && ob_run_seq(run, OB_VALUE_TUPLE, out) &&
           ob_run_push(run, out, parts[0]) && ob_run_push(run, out, parts[1]) &&
           ob_run_push(run, out, parts[2]);
}

METHOD(str_partition)
{
    return partition(run, self, args, false, out);
}

METHOD(str_rpartition)
{
    return partition(run, self, args, true, out);
}

static bool remove_affix(struct ob_run *run, const struct ob_value *self,
                         const struct ob_args *args, bool at_end, struct ob_value *out)
{
    struct ob_value given;
    struct ob_vstring *affix, *s = text_of(self);
    if (!ob_args_bind(run, args, "prefix", 1, &given) || !ob_args_string(run, &given, &affix))
        return false;
    size_t n = affix_at(s, 0, s->len, affix, at_end) ? affix->len : 0;
    return ob_string_slice(run->heap, s, at_end ? 0 : n, at_end ? s->len - n : s->len, out) ||
           ob_run_no_memory(run);
}

METHOD(str_removeprefix)
{
    return remove_affix(run, self, args, false, out);
}

METHOD(str_removesuffix)
{
    return remove_affix(run, self, args, true, out);
}

static bool pad(struct ob_run *run, const struct ob_value *self, const struct ob_args *args,
                char align, struct ob_value *out)
{
    struct ob_value given[2];
    struct ob_vstring *fill;
    int64_t width;
    if (!ob_args_bind(run, args, "width fillchar", 1, given) ||
        !ob_args_int(run, &given[0], 0, &width) || !ob_args_string(run, &given[1], &fill))
        return false;
    if (fill && ob_string_n_chars(fill) != 1)
        return ob_run_wrong(run, "the fill must be one character");
    return ob_string_pad(run, text_of(self), width, fill, align, out);
}

METHOD(str_ljust)
{
    return pad(run, self, args, '<', out);
}

METHOD(str_rjust)
{
    return pad(run, self, args, '>', out);
}

METHOD(str_center)
{
    return pad(run, self, args, '^', out);
}

METHOD(str_zfill)
{
    struct ob_value given, zero, sign, rest, padded;
    struct ob_vstring *s = text_of(self);
    int64_t width;
    if (!ob_args_bind(run, args, "width", 1, &given) || !ob_args_int(run, &given, 0, &width) ||
        !ob_run_string(run, "0", &zero))
        return false;
    size_t n = s->len > 0 && (s->ptr[0] == '-' || s->ptr[0] == '+');
    if (!ob_string_slice(run->heap, s, 0, n, &sign) ||
        !ob_string_slice(run->heap, s, n, s->len, &rest))
        return ob_run_no_memory(run);
    return ob_string_pad(run, rest.as.string, width - (int64_t)n, zero.as.string, '>', &padded) &&
           ob_op_arithmetic(run, OB_OP_ADD, &sign, &padded, out);
}

/* Whether there are characters and all have a property. */
static bool all_chars(struct ob_run *run, const struct ob_value *self, const struct ob_args *args,
                      bool (*has)(int32_t c), struct ob_value *out)
{
    const struct ob_vstring *s = text_of(self);
    bool holds = s->len > 0;
    for (size_t at = 0, length; holds && at < s->len; at += length)
        holds = has(ob_char_at(s->ptr + at, s->len - at, &length));
    *out = ob_value_bool(holds, OB_FROM_TEMPLATE);
    return ob_args_none(run, args) && ob_run_steps(run, 1 + s->len / 16);
}

static bool is_letter(int32_t c)
{
    return c >= 0 && (ob_unicode_class(c) & OB_UNICODE_LETTER);
}

static bool is_alnum(int32_t c)
{
    return c >= 0 && (ob_unicode_class(c) & (OB_UNICODE_LETTER | OB_UNICODE_NUMBER));
}

/* Decimal digits of ASCII only; of other scripts Python knows more. */
static bool is_digit(int32_t c)
{
    return c >= '0' && c <= '9';
}

static bool is_ascii(int32_t c)
{
    return c >= 0 && c < 0x80;
}

METHOD(str_isalpha)
{
    return all_chars(run, self, args, is_letter, out);
}

METHOD(str_isalnum)
{
    return all_chars(run, self, args, is_alnum, out);
}

METHOD(str_isdigit)
{
    return all_chars(run, self, args, is_digit, out);
}

METHOD(str_isspace)
{
    return all_chars(run, self, args, ob_is_space, out);
}

METHOD(str_isascii)
{
    if (!all_chars(run, self, args, is_ascii, out))
        return false;
    out->as.boolean |= text_of(self)->len == 0;
    return true;
}

static bool cased_test(struct ob_run *run, const struct ob_value *self, const struct ob_args *args,
                       const char *name, struct ob_value *out)
{
    bool holds;
    if (!ob_test_find(ob_str_from(name))->call(run, self, args, &holds))
        return false;
    *out = ob_value_bool(holds, OB_FROM_TEMPLATE);
    return true;
}

METHOD(str_islower)
{
    return cased_test(run, self, args, "lower", out);
}

METHOD(str_isupper)
{
    return cased_test(run, self, args, "upper", out);
}

/* The value that "{...}" at bytes [from, to) of the format names; *next counts the unnamed ones. */
static bool format_field(struct ob_run *run, const struct ob_vstring *s, size_t from, size_t to,
                         const struct ob_args *args, size_t *next, struct ob_value *out)
{
    struct ob_str name = {s->ptr + from, to - from};
    size_t index = name.len == 0 ? (*next)++ : 0;
    bool digits = true;
    for (size_t i = 0; i < name.len; i++) {
        if (!ob_is_word((unsigned char)name.ptr[i]))
            return ob_run_fail(run, OB_UNSUPPORTED, "format fields are only names and numbers");
        digits &= is_digit(name.ptr[i]);
        index = digits && index < 1000000 ? index * 10 + (size_t)(name.ptr[i] - '0') : index;
    }
    if (digits && index < args->n_plain) {
        *out = args->plain[index];
        return true;
    }
    for (size_t i = 0; !digits && i < args->n_keywords; i++)
        if (ob_str_equal(args->keywords[i].name, name)) {
            *out = args->keywords[i].value;
            return true;
        }
    return ob_run_wrong(run, "the format field '%.*s' is not given", OB_STR_ARG(name));
}

METHOD(str_format)
{
    struct ob_string_buffer buffer = {0};
    const struct ob_vstring *s = text_of(self);
    size_t next = 0;
    for (size_t at = 0; at < s->len; at++) {
        char c = s->ptr[at];
        bool twice = at + 1 < s->len && s->ptr[at + 1] == c;
        if ((c != '{' && c != '}') || twice) {
            ob_buffer_part(run->heap, &buffer, s, at, at + 1);
            at += twice && (c == '{' || c == '}');
            continue;
        }
        size_t end = at + 1;
        while (end < s->len && s->ptr[end] != '}')
            end++;
        struct ob_value v;
        if (c == '}' || end == s->len)
            return ob_run_wrong(run, "a single '%c' in a format", c);
        if (!format_field(run, s, at + 1, end, args, &next, &v))
            return false;
        ob_op_write(run, &buffer, &v);
        if (run->status != OB_OK || !ob_run_steps(run, 1 + buffer.len / 64))
            return false;
        at = end;
    }
    return ob_run_steps(run, s->len / 16) && ob_run_finish(run, &buffer, out);
}

/* --------------------------------------------------------------------------------------- lists */

METHOD(list_count)
{
    struct ob_value v;
    int64_t n = 0;
    const struct ob_seq *seq = self->as.seq;
    if (!ob_args_bind(run, args, "value", 1, &v))
        return false;
    for (size_t i = 0; i < seq->len; i++)
        n += ob_value_equal(&seq->items[i], &v, EQUAL_DEPTH, &run->steps_left);
    *out = ob_value_int(n, OB_FROM_TEMPLATE);
    return ob_run_steps(run, 1);
}

METHOD(list_index)
{
    struct ob_value v;
    const struct ob_seq *seq = self->as.seq;
    if (!ob_args_bind(run, args, "value", 1, &v))
        return false;
    for (size_t i = 0; i < seq->len; i++)
        if (ob_value_equal(&seq->items[i], &v, EQUAL_DEPTH, &run->steps_left)) {
            *out = ob_value_int((int64_t)i, OB_FROM_TEMPLATE);
            return true;
        }
    return ob_run_steps(run, 1) && ob_run_wrong(run, "the value is not in the list");
}

METHOD(list_copy)
{
    return ob_args_none(run, args) && ob_op_list(run, self, out);
}

/* The sandbox of Jinja 3.1 allows pop and clear of lists. */
METHOD(list_pop)
{
    struct ob_value given;
    struct ob_seq *seq = self->as.seq;
    int64_t index;
    if (!ob_args_bind(run, args, "index", 0, &given) || !ob_args_int(run, &given, -1, &index))
        return false;
    if (index < 0)
        index += (int64_t)seq->len;
    if (index < 0 || index >= (int64_t)seq->len)
        return ob_run_wrong(run, "pop of an item that is not there");
    *out = seq->items[index];
    seq->len--;
    for (size_t i = (size_t)index; i < seq->len; i++)
        seq->items[i] = seq->items[i + 1];
    return ob_run_steps(run, 1 + seq->len / 16);
}

METHOD(list_clear)
{
    self->as.seq->len = 0;
    *out = ob_value_none(OB_FROM_TEMPLATE);
    return ob_args_none(run, args);
}

/* --------------------------------------------------------------------------------------- dicts */

METHOD(dict_get)
{
    struct ob_value given[2];
    if (args->n_keywords > 0)
        return ob_run_wrong(run, "get takes no keywords");
    if (!ob_args_bind(run, args, "key default", 1, given))
        return false;
    if (given[0].kind == OB_VALUE_LIST || given[0].kind == OB_VALUE_DICT)
        return ob_run_wrong(run, "%s cannot be a key", ob_value_type(&given[0]));
    const struct ob_value *found = ob_dict_get(self->as.dict, &given[0]);
    *out = found                               ? *found
           : given[1].kind != OB_VALUE_MISSING ? given[1]
                                               : ob_value_none(OB_FROM_TEMPLATE);
    return true;
}

static bool view(struct ob_run *run, const struct ob_value *self, const struct ob_args *args,
                 char kind, struct ob_value *out)
{
    const struct ob_dict *dict = self->as.dict;
    if (!ob_args_none(run, args) || !ob_run_seq(run, OB_VALUE_VIEW, out) ||
        !ob_run_steps(run, 1 + dict->len))
        return false;
    out->as.seq->view_kind = kind;
    for (size_t i = 0; i < dict->len; i++) {
        struct ob_value item = kind == 'k' ? dict->keys[i] : dict->values[i];
        if (kind == 'i' &&
            (!ob_run_seq(run, OB_VALUE_TUPLE, &item) || !ob_run_push(run, &item, dict->keys[i]) ||
             !ob_run_push(run, &item, dict->values[i])))
            return false;
        if (!ob_run_push(run, out, item))
            return false;
    }
    return true;
}

METHOD(dict_items)
{
    return view(run, self, args, 'i', out);
}

METHOD(dict_keys)
{
    return view(run, self, args, 'k', out);
}

METHOD(dict_values)
{
    return view(run, self, args, 'v', out);
}

METHOD(dict_copy)
{
    if (!ob_args_none(run, args))
        return false;
    if (!ob_value_dict(run->heap, (enum ob_origin)self->origin, out))
        return ob_run_no_memory(run);
    for (size_t i = 0; i < self->as.dict->len; i++)
        if (!ob_dict_set(run->heap, out->as.dict, self->as.dict->keys[i], self->as.dict->values[i]))
            return ob_run_no_memory(run);
    return ob_run_steps(run, self->as.dict->len);
}

/* --------------------------------------------------------------------------------------- loops */

METHOD(loop_cycle)
{
    if (args->n_plain == 0)
        return ob_run_wrong(run, "no items for cycling given");
    *out = args->plain[self->as.loop->index0 % args->n_plain];
    return true;
}

METHOD(loop_changed)
{
    struct ob_value now, *last = &self->as.loop->changed;
    if (!ob_run_seq(run, OB_VALUE_TUPLE, &now))
        return false;
    for (size_t i = 0; i < args->n_plain; i++)
        if (!ob_run_push(run, &now, args->plain[i]))
            return false;
    bool same = ob_value_equal(&now, last, EQUAL_DEPTH, &run->steps_left);
    *last = now;
    *out = ob_value_bool(!same, OB_FROM_TEMPLATE);
    return true;
}

/* -------------------------------------------------------------------------------------- tables */

static const struct ob_filter string_methods[] = {
    {"capitalize", str_capitalize},
    {"center", str_center},
    {"count", str_count},
    {"endswith", str_endswith},
    {"find", str_find},
    {"format", str_format},
    {"index", str_index},
    {"isalnum", str_isalnum},
    {"isalpha", str_isalpha},
    {"isascii", str_isascii},
    {"isdecimal", str_isdigit},
    {"isdigit", str_isdigit},
    {"islower", str_islower},
    {"isnumeric", str_isdigit},
    {"isspace", str_isspace},
    {"isupper", str_isupper},
    {"join", str_join},
    {"ljust", str_ljust},
    {"lower", str_lower},
    {"lstrip", str_lstrip},
    {"partition", str_partition},
    {"removeprefix", str_removeprefix},
    {"replace", str_replace},
    {"removesuffix", str_removesuffix},
    {"rfind", str_rfind},
    {"rindex", str_rindex},
    {"rjust", str_rjust},
    {"rpartition", str_rpartition},
    {"rsplit", str_rsplit},
    {"rstrip", str_rstrip},
    {"split", str_split},
    {"splitlines", str_splitlines},
    {"startswith", str_startswith},
    {"strip", str_strip},
    {"swapcase", str_swapcase},
    {"title", str_title},
    {"upper", str_upper},
    {"zfill", str_zfill},
    {NULL, NULL},
};

static const struct ob_filter list_methods[] = {
    {"clear", list_clear}, {"copy", list_copy}, {"count", list_count},
    {"index", list_index}, {"pop", list_pop},   {NULL, NULL},
};

static const struct ob_filter tuple_methods[] = {
    {"count", list_count}, {"index", list_index}, {NULL, NULL}};

static const struct ob_filter dict_methods[] = {
    {"copy", dict_copy}, {"get", dict_get},       {"items", dict_items},
    {"keys", dict_keys}, {"values", dict_values}, {NULL, NULL},
};

static const struct ob_filter loop_methods[] = {
    {"changed", loop_changed}, {"cycle", loop_cycle}, {NULL, NULL}};

static const struct {
    enum ob_value_kind kind;
    const struct ob_filter *methods;
    const char *unsafe, *unknown; /* names between blanks */
} types[] = {
    {OB_VALUE_STRING, string_methods, "",
     " casefold encode expandtabs format_map isidentifier isprintable istitle maketrans "
     "translate "},
    {OB_VALUE_LIST, list_methods, " append extend insert remove reverse sort ", ""},
    {OB_VALUE_TUPLE, tuple_methods, "", ""},
    {OB_VALUE_DICT, dict_methods, " clear pop popitem setdefault update ", " fromkeys "},
    {OB_VALUE_LOOP, loop_methods, "", ""},
};

static bool is_in(const char *names, struct ob_str name)
{
    for (const char *at = names; *at; at++) {
        size_t n = strcspn(at, " ");
        if (n == name.len && n > 0 && memcmp(at, name.ptr, n) == 0)
            return true;
        at += n;
        if (!*at)
            break;
    }
    return false;
}

enum ob_method_kind ob_method_find(const struct ob_value *v, struct ob_str name,
                                   const struct ob_filter **out)
{
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        if (types[i].kind != v->kind)
            continue;
        for (const struct ob_filter *method = types[i].methods; method->name; method++)
            if (ob_str_is(name, method->name)) {
                *out = method;
                return OB_METHOD_FOUND;
            }
        if (is_in(types[i].unsafe, name))
            return OB_METHOD_UNSAFE;
        if (is_in(types[i].unknown, name))
            return OB_METHOD_UNKNOWN;
    }
    return OB_METHOD_NONE;
}

/* Methods of markup that escape their strings first (markupsafe's _simple_escaping_wrapper). */
static bool escapes_arguments(const struct ob_filter *method)
{
    static const char names[] = " center ljust lstrip replace rjust rstrip strip ";
    return is_in(names, ob_str_from(method->name));
}

static bool escape_arguments(struct ob_run *run, struct ob_args *args)
{
    struct ob_value *plain = ob_heap_alloc(run->heap, args->n_plain, sizeof *plain);
    if (!plain)
        return ob_run_no_memory(run);
    for (size_t i = 0; i < args->n_plain; i++) {
        plain[i] = args->plain[i];
        if (plain[i].kind == OB_VALUE_STRING && !ob_op_escape(run, &args->plain[i], &plain[i]))
            return false;
    }
    args->plain = plain;
    return true;
}

bool ob_method_call(struct ob_run *run, const struct ob_method *method, const struct ob_args *args,
                    struct ob_value *out)
{
    struct ob_args own = *args;
    const struct ob_value *self = &method->self;
    if (self->kind == OB_VALUE_STRING && self->as.string->markup &&
        escapes_arguments(method->method) && !escape_arguments(run, &own))
        return false;
    return method->method->call(run, self, &own, out);
}
