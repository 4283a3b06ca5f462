#include "text/template_strings.h"

#include "text/template_case.h"
#include "text/template_text.h"
#include "text/unicode.h"

static bool slice(struct ob_run *run, const struct ob_vstring *s, size_t from, size_t to,
                  struct ob_value *out)
{
    return ob_string_slice(run->heap, s, from, to, out) || ob_run_no_memory(run);
}

static bool push_slice(struct ob_run *run, struct ob_value *list, const struct ob_vstring *s,
                       size_t from, size_t to)
{
    struct ob_value part;
    return ob_run_steps(run, 1) && slice(run, s, from, to, &part) && ob_run_push(run, list, part);
}

/* ---------------------------------------------------------------------------------------- case */

static bool is_cased(int32_t c)
{
    return ob_case_is_lower(c) || ob_case_is_upper(c) || ob_case_is_title(c);
}

/* A capital sigma at byte `at` is final when a letter stands before it and none behind it. */
static bool is_final_sigma(const struct ob_vstring *s, size_t at)
{
    size_t length, before = at;
    while (before > 0 && ((unsigned char)s->ptr[before - 1] & 0xc0) == 0x80)
        before--;
    before -= before > 0;
    if (at == 0 || !is_cased(ob_char_at(s->ptr + before, at - before, &length)))
        return false;
    size_t after = at + 2;
    return after >= s->len || !is_cased(ob_char_at(s->ptr + after, s->len - after, &length));
}

static bool begins_headline(int32_t c)
{
    return ob_is_space(c) || c == '-' || c == '(' || c == '{' || c == '[' || c == '<';
}

/* What the character c becomes; *inside says whether the one before belongs to the same word. */
static enum ob_case case_of(enum ob_string_case to, int32_t c, bool *inside)
{
    bool was_inside = *inside;
    switch (to) {
    case OB_STRING_UPPER:
        return OB_CASE_UPPER;
    case OB_STRING_LOWER:
        return OB_CASE_LOWER;
    case OB_STRING_SWAP:
        return ob_case_is_upper(c) ? OB_CASE_LOWER : OB_CASE_UPPER;
    case OB_STRING_TITLE:
        *inside = is_cased(c);
        return was_inside ? OB_CASE_LOWER : OB_CASE_TITLE;
    case OB_STRING_HEADLINE:
        *inside = !begins_headline(c);
        return was_inside ? OB_CASE_LOWER : OB_CASE_UPPER;
    default:
        *inside = true;
        return was_inside ? OB_CASE_LOWER : OB_CASE_TITLE;
    }
}

bool ob_string_case(struct ob_run *run, const struct ob_vstring *s, enum ob_string_case to,
                    struct ob_value *out)
{
    struct ob_string_buffer buffer = {0};
    bool inside = false;
    if (!ob_run_steps(run, s->len / 8))
        return false;
    for (size_t at = 0, length; at < s->len; at += length) {
        char mapped[OB_CASE_BYTES];
        int32_t c = ob_char_at(s->ptr + at, s->len - at, &length);
        if (c < 0 || (to == OB_STRING_SWAP && !ob_case_is_lower(c) && !ob_case_is_upper(c))) {
            ob_buffer_part(run->heap, &buffer, s, at, at + length);
            continue;
        }
        enum ob_case one = case_of(to, c, &inside);
        size_t n = ob_case_map(c, one, mapped);
        if (c == 0x3a3 && one == OB_CASE_LOWER && is_final_sigma(s, at))
            mapped[1] = (char)0x82;
        ob_buffer_bytes(run->heap, &buffer, mapped, n, ob_vstring_origin(s, at));
    }
    if (!ob_run_finish(run, &buffer, out))
        return false;
    out->as.string->markup = s->markup && to != OB_STRING_HEADLINE;
    return true;
}

/* ------------------------------------------------------------------------------- trim, replace */

static bool holds_char(const struct ob_vstring *chars, const char *c, size_t length)
{
    for (size_t at = 0, n; at < chars->len; at += n) {
        ob_char_at(chars->ptr + at, chars->len - at, &n);
        if (n == length && memcmp(chars->ptr + at, c, n) == 0)
            return true;
    }
    return false;
}

bool ob_string_trim(struct ob_run *run, const struct ob_vstring *s, const struct ob_vstring *chars,
                    bool left, bool right, struct ob_value *out)
{
    size_t from = 0, to = s->len, length;
    if (!ob_run_steps(run, 1 + s->len / 64))
        return false;
    if (!chars) {
        if (left)
            from = ob_space_before(s->ptr, s->len);
        if (right)
            to -= ob_space_after(s->ptr + from, s->len - from);
        return slice(run, s, from, to, out);
    }
    while (left && from < to) {
        ob_char_at(s->ptr + from, to - from, &length);
        if (!holds_char(chars, s->ptr + from, length))
            break;
        from += length;
    }
    while (right && to > from) {
        size_t start = to - 1;
        while (start > from && to - start < 4 && ((unsigned char)s->ptr[start] & 0xc0) == 0x80)
            start--;
        ob_char_at(s->ptr + start, to - start, &length);
        if (start + length != to)
            start = to - 1;
        if (!holds_char(chars, s->ptr + start, to - start))
            break;
        to = start;
    }
    return slice(run, s, from, to, out);
}

/* An empty pattern is found before every character and at the end. */
static bool replace_empty(struct ob_run *run, const struct ob_vstring *s,
                          const struct ob_vstring *new, int64_t count, struct ob_value *out)
{
    struct ob_string_buffer buffer = {0};
    size_t at = 0;
    while (count != 0) {
        size_t length = 0;
        ob_buffer_string(run->heap, &buffer, new);
        count--;
        if (at == s->len || !ob_run_steps(run, 1 + new->len / 64))
            break;
        ob_char_at(s->ptr + at, s->len - at, &length);
        ob_buffer_part(run->heap, &buffer, s, at, at + length);
        at += length;
    }
    ob_buffer_part(run->heap, &buffer, s, at, s->len);
    return run->status == OB_OK && ob_run_finish(run, &buffer, out);
}

bool ob_string_replace(struct ob_run *run, const struct ob_vstring *s, const struct ob_vstring *old,
                       const struct ob_vstring *new, int64_t count, struct ob_value *out)
{
    struct ob_string_buffer buffer = {0};
    if (old->len == 0)
        return replace_empty(run, s, new, count, out);
    if (!ob_run_steps(run, 1 + s->len / 64 * (1 + old->len / 64)))
        return false;
    size_t at = 0;
    for (; count != 0; count--) {
        size_t found = ob_find_bytes(s->ptr + at, s->len - at, old->ptr, old->len);
        if (found == s->len - at)
            break;
        ob_buffer_part(run->heap, &buffer, s, at, at + found);
        ob_buffer_string(run->heap, &buffer, new);
        at += found + old->len;
        if (!ob_run_steps(run, 1 + new->len / 64))
            return false;
    }
    ob_buffer_part(run->heap, &buffer, s, at, s->len);
    return ob_run_finish(run, &buffer, out);
}

/* --------------------------------------------------------------------------------------- split */

static bool split_space(struct ob_run *run, const struct ob_vstring *s, int64_t max,
                        struct ob_value *out)
{
    size_t at = ob_space_before(s->ptr, s->len);
    for (; at < s->len; max--) {
        size_t end = at, length;
        if (max == 0)
            return push_slice(run, out, s, at, s->len);
        while (end < s->len && !ob_is_space(ob_char_at(s->ptr + end, s->len - end, &length)))
            end += length;
        if (!push_slice(run, out, s, at, end))
            return false;
        at = end + ob_space_before(s->ptr + end, s->len - end);
    }
    return true;
}

bool ob_string_split(struct ob_run *run, const struct ob_vstring *s,
                     const struct ob_vstring *separator, int64_t max, struct ob_value *out)
{
    size_t at = 0;
    if (!ob_run_seq(run, OB_VALUE_LIST, out) || !ob_run_steps(run, 1 + s->len / 16))
        return false;
    if (!separator)
        return split_space(run, s, max, out);
    if (separator->len == 0)
        return ob_run_wrong(run, "the separator is empty");
    for (; max != 0; max--) {
        size_t n = ob_find_bytes(s->ptr + at, s->len - at, separator->ptr, separator->len);
        if (n == s->len - at)
            break;
        if (!push_slice(run, out, s, at, at + n))
            return false;
        at += n + separator->len;
    }
    return push_slice(run, out, s, at, s->len);
}

static void reverse(struct ob_seq *seq)
{
    for (size_t i = 0; i < seq->len / 2; i++) {
        struct ob_value swap = seq->items[i];
        seq->items[i] = seq->items[seq->len - 1 - i];
        seq->items[seq->len - 1 - i] = swap;
    }
}

/* Words from the right, in reverse. */
static bool split_space_right(struct ob_run *run, const struct ob_vstring *s, int64_t max,
                              struct ob_value *out)
{
    size_t end = s->len - ob_space_after(s->ptr, s->len);
    for (; end > 0; max--) {
        size_t start = end;
        if (max == 0)
            return push_slice(run, out, s, 0, end);
        while (start > 0 && ob_space_after(s->ptr, start) == 0)
            start--;
        if (!push_slice(run, out, s, start, end))
            return false;
        end = start - ob_space_after(s->ptr, start);
    }
    return true;
}

bool ob_string_split_right(struct ob_run *run, const struct ob_vstring *s,
                           const struct ob_vstring *separator, int64_t max, struct ob_value *out)
{
    size_t end = s->len;
    if (!ob_run_seq(run, OB_VALUE_LIST, out) || !ob_run_steps(run, 1 + s->len / 16))
        return false;
    if (!separator) {
        if (!split_space_right(run, s, max, out))
            return false;
        reverse(out->as.seq);
        return true;
    }
    if (separator->len == 0)
        return ob_run_wrong(run, "the separator is empty");
    for (; max != 0; max--) {
        size_t at = ob_find_last_bytes(s->ptr, end, separator->ptr, separator->len);
        if (at == end)
            break;
        if (!push_slice(run, out, s, at + separator->len, end))
            return false;
        end = at;
    }
    if (!push_slice(run, out, s, 0, end))
        return false;
    reverse(out->as.seq);
    return true;
}

bool ob_string_lines(struct ob_run *run, const struct ob_vstring *s, bool keep_ends,
                     struct ob_value *out)
{
    if (!ob_run_seq(run, OB_VALUE_LIST, out) || !ob_run_steps(run, 1 + s->len / 16))
        return false;
    for (size_t at = 0; at < s->len;) {
        size_t end = at, length = 0;
        while (end < s->len && !ob_is_line_break(ob_char_at(s->ptr + end, s->len - end, &length)))
            end += length;
        size_t next = end < s->len ? end + length : end;
        if (end + 1 < s->len && s->ptr[end] == '\r' && s->ptr[end + 1] == '\n')
            next++;
        if (!push_slice(run, out, s, at, keep_ends ? next : end))
            return false;
        at = next;
    }
    return true;
}

/* -------------------------------------------------------------------------------- join, layout */

bool ob_string_join_list(struct ob_run *run, const struct ob_vstring *separator,
                         const struct ob_value *list, struct ob_value *out)
{
    struct ob_string_buffer buffer = {0};
    for (size_t i = 0; i < list->as.seq->len; i++) {
        if (i > 0 && separator)
            ob_buffer_string(run->heap, &buffer, separator);
        ob_op_write(run, &buffer, &list->as.seq->items[i]);
        if (run->status != OB_OK || !ob_run_steps(run, 1))
            return false;
    }
    return ob_run_steps(run, buffer.len / 64) && ob_run_finish(run, &buffer, out);
}

static bool put_fill(struct ob_run *run, struct ob_string_buffer *buffer,
                     const struct ob_vstring *fill, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        if (fill)
            ob_buffer_string(run->heap, buffer, fill);
        else
            ob_buffer_text(run->heap, buffer, " ", OB_FROM_TEMPLATE);
        if (buffer->failed || !ob_run_steps(run, 1))
            return buffer->failed ? ob_run_no_memory(run) : false;
    }
    return true;
}

bool ob_string_pad(struct ob_run *run, struct ob_vstring *s, int64_t width,
                   const struct ob_vstring *fill, char align, struct ob_value *out)
{
    struct ob_string_buffer buffer = {0};
    int64_t room = width - (int64_t)ob_string_n_chars(s);
    if (room < 0)
        room = 0;
    /* As CPython centres: the odd blank goes left when the width is odd too. */
    int64_t left = align == '>' ? room : align == '^' ? room / 2 + (room & width & 1) : 0;
    if (!put_fill(run, &buffer, fill, left))
        return false;
    ob_buffer_string(run->heap, &buffer, s);
    if (!put_fill(run, &buffer, fill, room - left) || !ob_run_finish(run, &buffer, out))
        return false;
    out->as.string->markup = s->markup;
    return true;
}

bool ob_string_indent(struct ob_run *run, const struct ob_vstring *s,
                      const struct ob_vstring *indent, bool first, bool blank, struct ob_value *out)
{
    struct ob_string_buffer buffer = {0};
    struct ob_value lines;
    if (!ob_string_lines(run, s, false, &lines))
        return false;
    /* Jinja adds a line break before it splits, so that a break at the end stays one. */
    size_t length = 0, last = s->len;
    while (last > 0 && ((unsigned char)s->ptr[last - 1] & 0xc0) == 0x80)
        last--;
    last -= last > 0;
    bool empty_end =
        s->len == 0 || ob_is_line_break(ob_char_at(s->ptr + last, s->len - last, &length));
    if (empty_end && s->len > 0 && s->ptr[s->len - 1] == '\r')
        empty_end = false; /* "\r" and the added "\n" are one break */
    if (empty_end && !push_slice(run, &lines, s, s->len, s->len))
        return false;
    for (size_t i = 0; i < lines.as.seq->len; i++) {
        const struct ob_vstring *line = lines.as.seq->items[i].as.string;
        if (i > 0)
            ob_buffer_text(run->heap, &buffer, "\n", OB_FROM_TEMPLATE);
        if (i == 0 ? first : (blank || line->len > 0))
            ob_buffer_string(run->heap, &buffer, indent);
        ob_buffer_string(run->heap, &buffer, line);
        if (buffer.failed || !ob_run_steps(run, 1 + indent->len / 64))
            break;
    }
    if (run->status != OB_OK || !ob_run_finish(run, &buffer, out))
        return false;
    out->as.string->markup = s->markup;
    return true;
}
