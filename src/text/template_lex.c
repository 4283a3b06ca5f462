#include "text/template_lex.h"

#include "text/template_text.h"
#include "text/utf8.h"

#include <stdio.h>

enum { MAX_SOURCE = 16 << 20, MAX_OPEN = 256 };

struct lexer {
    struct ob_heap *heap;
    const struct ob_source *source;
    struct ob_token_list *tokens;
    struct ob_error *err;
    size_t at;
    bool line_starting;  /* the last tag ended with a line break */
    char open[MAX_OPEN]; /* the closing brackets that are due */
    size_t n_open;
};

/* ------------------------------------------------------------------------------------- source */

ob_status ob_source_make(struct ob_heap *heap, const char *text, size_t n, struct ob_source *source,
                         struct ob_error *err)
{
    if (n > MAX_SOURCE)
        return ob_fail(err, OB_UNSUPPORTED, "a chat template of %zu bytes is too long", n);
    char *copy = ob_heap_alloc(heap, n, 1);
    if (!copy)
        return ob_fail_memory(err, n, "the chat template");
    size_t len = 0;
    for (size_t i = 0; i < n; i++) {
        if (text[i] != '\r')
            copy[len++] = text[i];
        else if (i + 1 == n || text[i + 1] != '\n')
            copy[len++] = '\n';
    }
    if (len > 0 && copy[len - 1] == '\n')
        len--;
    *source = (struct ob_source){copy, len};
    return OB_OK;
}

void ob_source_place(const struct ob_source *source, size_t at, size_t *line, size_t *column)
{
    size_t start = 0;
    *line = *column = 1;
    for (size_t i = 0; i < at && i < source->len; i++)
        if (source->text[i] == '\n') {
            ++*line;
            start = i + 1;
        }
    for (size_t i = start; i < at && i < source->len; i++)
        *column += ((unsigned char)source->text[i] & 0xc0) != 0x80;
}

void ob_source_prefix(struct ob_error *err, ob_status status, const struct ob_source *source,
                      size_t at)
{
    size_t line, column;
    ob_source_place(source, at, &line, &column);
    ob_error_prefix(err, status, "chat template, line %zu, column %zu: ", line, column);
}

/* ------------------------------------------------------------------------------------- tokens */

static ob_status add(struct lexer *lexer, struct ob_token token)
{
    struct ob_token_list *tokens = lexer->tokens;
    void *data = tokens->data;
    if (!ob_grow(&data, &tokens->capacity, tokens->len + 1, sizeof token))
        return ob_fail_memory(lexer->err, tokens->len * sizeof token, "a chat template");
    tokens->data = data;
    tokens->data[tokens->len++] = token;
    return OB_OK;
}

static ob_status add_slice(struct lexer *lexer, enum ob_token_kind kind, size_t from, size_t to)
{
    struct ob_token token = {.kind = kind, .at = (uint32_t)from};
    token.text = (struct ob_str){lexer->source->text + from, to - from};
    return add(lexer, token);
}

static bool starts(const struct lexer *lexer, size_t at, const char *text)
{
    size_t n = strlen(text);
    return at + n <= lexer->source->len && memcmp(lexer->source->text + at, text, n) == 0;
}

static char byte_at(const struct lexer *lexer, size_t at)
{
    return at < lexer->source->len ? lexer->source->text[at] : '\0';
}

static size_t skip_space(const struct lexer *lexer, size_t at)
{
    return at + ob_space_before(lexer->source->text + at, lexer->source->len - at);
}

/* The end of a tag at `at`, such as "-%}": its length with the blanks it eats, or 0. */
static size_t tag_end(const struct lexer *lexer, size_t at, const char *close, bool trim)
{
    if (byte_at(lexer, at) == '-' && starts(lexer, at + 1, close))
        return skip_space(lexer, at + 3) - at;
    if (trim && byte_at(lexer, at) == '+' && starts(lexer, at + 1, close))
        return 3;
    if (!starts(lexer, at, close))
        return 0;
    return 2 + (trim && byte_at(lexer, at + 2) == '\n');
}

/* ---------------------------------------------------------------------- text outside of tags */

/* Text [from, to) before a tag with the given sign. */
static ob_status add_data(struct lexer *lexer, size_t from, size_t to, char sign, bool is_print)
{
    const char *text = lexer->source->text;
    if (sign == '-') {
        to -= ob_space_after(text + from, to - from);
    } else if (sign != '+' && !is_print) {
        size_t line = to;
        while (line > from && text[line - 1] != '\n')
            line--;
        if ((line > from || lexer->line_starting) &&
            ob_space_before(text + line, to - line) == to - line)
            to = line;
    }
    return to > from ? add_slice(lexer, OB_TOK_DATA, from, to) : OB_OK;
}

static void leave_tag(struct lexer *lexer, size_t end)
{
    lexer->at = end;
    lexer->line_starting = end > 0 && lexer->source->text[end - 1] == '\n';
}

static char sign_at(const struct lexer *lexer, size_t at)
{
    char c = byte_at(lexer, at);
    return c == '-' || c == '+' ? c : '\0';
}

/* At "{%" or so plus its sign: the length of "{%- raw -%}" with the blanks it eats, or 0. */
static size_t raw_begin(const struct lexer *lexer, size_t at)
{
    size_t p = skip_space(lexer, at + 2 + (sign_at(lexer, at + 2) != '\0'));
    if (!starts(lexer, p, "raw"))
        return 0;
    p = skip_space(lexer, p + 3);
    size_t end = tag_end(lexer, p, "%}", false);
    return end ? p + end - at : 0;
}

static ob_status lex_raw(struct lexer *lexer, size_t open, size_t from)
{
    for (size_t at = from; at < lexer->source->len; at++) {
        if (!starts(lexer, at, "{%"))
            continue;
        char sign = sign_at(lexer, at + 2);
        size_t p = skip_space(lexer, at + 2 + (sign != '\0'));
        if (!starts(lexer, p, "endraw"))
            continue;
        p = skip_space(lexer, p + 6);
        size_t end = tag_end(lexer, p, "%}", true);
        if (end == 0)
            continue;
        lexer->line_starting = from > 0 && lexer->source->text[from - 1] == '\n';
        OB_TRY(add_data(lexer, from, at, sign, false));
        leave_tag(lexer, p + end);
        return OB_OK;
    }
    if (from >= lexer->source->len) { /* Jinja does not mind when nothing follows */
        leave_tag(lexer, lexer->source->len);
        return OB_OK;
    }
    return ob_fail_at(lexer->err, OB_BAD_FILE, lexer->source, open, "{%% raw %%} without an end");
}

static ob_status lex_comment(struct lexer *lexer, size_t open)
{
    size_t from = open + 2 + (sign_at(lexer, open + 2) != '\0');
    for (size_t at = from; at < lexer->source->len; at++) {
        size_t end = tag_end(lexer, at, "#}", true);
        if (end == 0)
            continue;
        leave_tag(lexer, at + end);
        return OB_OK;
    }
    if (from >= lexer->source->len) {
        leave_tag(lexer, lexer->source->len);
        return OB_OK;
    }
    return ob_fail_at(lexer->err, OB_BAD_FILE, lexer->source, open, "a comment without an end");
}

/* ----------------------------------------------------------------------------- inside of tags */

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Digits of base 8 or 16 at text [n], at most `max`: their number, -1 if the value is too big. */
static int read_digits(const char *text, size_t n, int base, int max, int32_t *out)
{
    int used = 0;
    *out = 0;
    while (used < max && (size_t)used < n) {
        int digit = hex_digit(text[used]);
        if (digit < 0 || digit >= base)
            break;
        if (*out > 0x10ffff)
            return -1;
        *out = *out * base + digit;
        used++;
    }
    return used;
}

/* The escape after a backslash at text [n >= 1], as in a Python string. Writes what it means to
 * `out` [4 + 10] and its length to *n_out; returns the bytes read, 0 when it is wrong. */
static size_t read_escape(const char *text, size_t n, char *out, size_t *n_out)
{
    static const char names[] = "abfnrtv\\'\"", meanings[] = "\a\b\f\n\r\t\v\\'\"";
    const char *name = *text ? strchr(names, *text) : NULL;
    int32_t c;
    int digits;
    *n_out = 1;
    if (name) {
        out[0] = meanings[name - names];
        return 1;
    }
    if (*text == '\n') {
        *n_out = 0;
        return 1;
    }
    if (*text >= '0' && *text <= '7') {
        digits = read_digits(text, n, 8, 3, &c);
        *n_out = ob_utf8_encode(c, out);
        return (size_t)digits;
    }
    int wanted = *text == 'x' ? 2 : *text == 'u' ? 4 : *text == 'U' ? 8 : 0;
    if (wanted) {
        digits = read_digits(text + 1, n - 1, 16, wanted, &c);
        if (digits != wanted || c > 0x10ffff || (c >= 0xd800 && c <= 0xdfff))
            return 0;
        *n_out = ob_utf8_encode(c, out);
        return (size_t)wanted + 1;
    }
    if (*text == 'N')
        return 0;
    /* Any other character stays, and so does its backslash. Jinja spells characters above 7 bits
     * as escapes first, so that "\e" with an accent becomes the text "\xe9". */
    size_t length;
    c = ob_char_at(text, n, &length);
    if (c < 0x80)
        *n_out = (size_t)snprintf(out, 14, "\\%.*s", (int)length, text);
    else
        *n_out = (size_t)snprintf(out, 14,
                                  c < 0x100     ? "\\x%02x"
                                  : c < 0x10000 ? "\\u%04x"
                                                : "\\U%08x",
                                  (unsigned)c);
    return length;
}

static ob_status lex_string(struct lexer *lexer, size_t end)
{
    const char *text = lexer->source->text;
    size_t from = lexer->at + 1, used = 0;
    struct ob_token token = {.kind = OB_TOK_STRING, .at = (uint32_t)lexer->at};
    char *out = ob_heap_alloc(lexer->heap, (end - from) * 2 + 16, 1);
    if (!out)
        return ob_fail_memory(lexer->err, end - from, "a string of a chat template");
    for (size_t at = from; at < end;) {
        if (text[at] != '\\') {
            out[used++] = text[at++];
            continue;
        }
        size_t n_out, n = read_escape(text + at + 1, end - at - 1, out + used, &n_out);
        if (n == 0)
            return ob_fail_at(lexer->err, OB_BAD_FILE, lexer->source, at,
                              "the escape \\%c cannot be read", text[at + 1]);
        used += n_out;
        at += n + 1;
    }
    token.text = (struct ob_str){out, used};
    lexer->at = end + 1;
    return add(lexer, token);
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* The end of digits with single underscores between them that start at `at`. */
static size_t digits_end(const struct lexer *lexer, size_t at)
{
    while (is_digit(byte_at(lexer, at)) ||
           (byte_at(lexer, at) == '_' && is_digit(byte_at(lexer, at + 1))))
        at++;
    return at;
}

/* The end of a float that starts at the digit at `at`, or `at`. */
static size_t float_end(const struct lexer *lexer, size_t at)
{
    size_t whole = digits_end(lexer, at), end = whole;
    if (at > 0 && lexer->source->text[at - 1] == '.')
        return at;
    if (byte_at(lexer, whole) == '.' && is_digit(byte_at(lexer, whole + 1)))
        end = digits_end(lexer, whole + 1);
    if ((byte_at(lexer, end) | 0x20) == 'e') {
        char sign = byte_at(lexer, end + 1);
        size_t power = end + 1 + (sign == '+' || sign == '-');
        if (is_digit(byte_at(lexer, power)))
            end = digits_end(lexer, power);
    }
    return end > whole ? end : at;
}

static ob_status lex_float(struct lexer *lexer, size_t end)
{
    char digits[128];
    size_t n = 0;
    struct ob_token token = {.kind = OB_TOK_FLOAT, .at = (uint32_t)lexer->at};
    for (size_t at = lexer->at; at < end && n < sizeof digits; at++)
        if (lexer->source->text[at] != '_')
            digits[n++] = lexer->source->text[at];
    if (!ob_parse_float(digits, n, &token.real))
        return ob_fail_at(lexer->err, OB_UNSUPPORTED, lexer->source, lexer->at,
                          "a number of too many digits");
    lexer->at = end;
    return add(lexer, token);
}

static ob_status lex_int(struct lexer *lexer)
{
    struct ob_token token = {.kind = OB_TOK_INT, .at = (uint32_t)lexer->at};
    size_t at = lexer->at;
    int base = 10;
    if (byte_at(lexer, at) == '0') {
        char mark = byte_at(lexer, at + 1) | 0x20;
        int marked = mark == 'x' ? 16 : mark == 'o' ? 8 : mark == 'b' ? 2 : 10;
        int digit = hex_digit(byte_at(lexer, at + 2));
        if (marked != 10 && digit >= 0 && digit < marked) {
            base = marked;
            at += 2;
        }
    }
    for (;; at++) {
        char c = byte_at(lexer, at);
        int digit = hex_digit(c == '_' ? byte_at(lexer, at + 1) : c);
        if (digit < 0 || digit >= base)
            break;
        if (c == '_')
            continue;
        if (token.integer > (INT64_MAX - digit) / base)
            return ob_fail_at(lexer->err, OB_UNSUPPORTED, lexer->source, lexer->at,
                              "a number above 64 bits");
        token.integer = token.integer * base + digit;
    }
    lexer->at = at;
    return add(lexer, token);
}

static size_t name_end(const struct lexer *lexer, size_t at)
{
    const char *text = lexer->source->text;
    while (at < lexer->source->len) {
        size_t length;
        int32_t c = ob_char_at(text + at, lexer->source->len - at, &length);
        if (!ob_is_word(c))
            break;
        at += length;
    }
    return at;
}

/* The end of the string literal at `at` (its closing quote), or the end of the source. */
static size_t string_end(const struct lexer *lexer, size_t at)
{
    char quote = byte_at(lexer, at++);
    while (at < lexer->source->len && lexer->source->text[at] != quote)
        at += lexer->source->text[at] == '\\' ? 2 : 1;
    return at < lexer->source->len ? at : lexer->source->len;
}

static ob_status lex_operator(struct lexer *lexer)
{
    static const char *const doubles[] = {"//", "**", "==", "!=", ">=", "<="};
    size_t length = 0;
    char c = byte_at(lexer, lexer->at);
    for (size_t i = 0; i < sizeof doubles / sizeof *doubles; i++)
        if (starts(lexer, lexer->at, doubles[i]))
            length = 2;
    if (length == 0 && c != '\0' && strchr("+-/*%~[](){}><=.:|,;", c))
        length = 1;
    if (length == 0)
        return ob_fail_at(lexer->err, OB_BAD_FILE, lexer->source, lexer->at,
                          "a character that means nothing in a tag");
    const char *open = strchr("([{", c), *close = strchr(")]}", c);
    if (length == 1 && open) {
        if (lexer->n_open == MAX_OPEN)
            return ob_fail_at(lexer->err, OB_UNSUPPORTED, lexer->source, lexer->at,
                              "brackets are nested too deeply");
        lexer->open[lexer->n_open++] = c == '(' ? ')' : (char)(c + 2);
    }
    if (length == 1 && close && (lexer->n_open == 0 || lexer->open[--lexer->n_open] != c))
        return ob_fail_at(lexer->err, OB_BAD_FILE, lexer->source, lexer->at, "unexpected '%c'", c);
    ob_status status = add_slice(lexer, OB_TOK_OPERATOR, lexer->at, lexer->at + length);
    lexer->at += length;
    return status;
}

static ob_status lex_in_tag(struct lexer *lexer)
{
    char c = byte_at(lexer, lexer->at);
    size_t end;
    if (is_digit(c)) {
        end = float_end(lexer, lexer->at);
        return end > lexer->at ? lex_float(lexer, end) : lex_int(lexer);
    }
    end = name_end(lexer, lexer->at);
    if (end > lexer->at) {
        ob_status status = add_slice(lexer, OB_TOK_NAME, lexer->at, end);
        lexer->at = end;
        return status;
    }
    if (c == '\'' || c == '"') {
        end = string_end(lexer, lexer->at);
        if (end < lexer->source->len)
            return lex_string(lexer, end);
    }
    return lex_operator(lexer);
}

/* From "{{" or "{%" to its end. */
static ob_status lex_tag(struct lexer *lexer, bool is_print)
{
    const char *close = is_print ? "}}" : "%}";
    size_t open = lexer->at;
    OB_TRY(add_slice(lexer, is_print ? OB_TOK_PRINT_BEGIN : OB_TOK_BLOCK_BEGIN, open, open + 2));
    lexer->at += 2 + (sign_at(lexer, open + 2) != '\0');
    lexer->n_open = 0;
    for (;;) {
        lexer->at = skip_space(lexer, lexer->at);
        if (lexer->at >= lexer->source->len)
            return ob_fail_at(lexer->err, OB_BAD_FILE, lexer->source, open,
                              "a tag without an end: '%s' is missing", close);
        size_t end = lexer->n_open ? 0 : tag_end(lexer, lexer->at, close, !is_print);
        if (end > 0) {
            OB_TRY(add_slice(lexer, is_print ? OB_TOK_PRINT_END : OB_TOK_BLOCK_END, lexer->at,
                             lexer->at + end));
            leave_tag(lexer, lexer->at + end);
            return OB_OK;
        }
        OB_TRY(lex_in_tag(lexer));
    }
}

static ob_status lex_next(struct lexer *lexer)
{
    const char *text = lexer->source->text;
    size_t from = lexer->at, at = from, n = lexer->source->len;
    while (at < n &&
           !(text[at] == '{' && at + 1 < n && strchr("{%#", text[at + 1]) && text[at + 1] != '\0'))
        at++;
    if (at == n) {
        lexer->at = n;
        return n > from ? add_slice(lexer, OB_TOK_DATA, from, n) : OB_OK;
    }
    char kind = text[at + 1], sign = sign_at(lexer, at + 2);
    OB_TRY(add_data(lexer, from, at, sign, kind == '{'));
    lexer->at = at;
    if (kind == '#')
        return lex_comment(lexer, at);
    size_t raw = kind == '%' ? raw_begin(lexer, at) : 0;
    if (raw > 0)
        return lex_raw(lexer, at, at + raw);
    return lex_tag(lexer, kind == '{');
}

ob_status ob_template_lex(struct ob_heap *heap, const struct ob_source *source,
                          struct ob_token_list *tokens, struct ob_error *err)
{
    struct lexer lexer = {.heap = heap, .source = source, .tokens = tokens, .err = err};
    lexer.line_starting = true;
    while (lexer.at < source->len)
        OB_TRY(lex_next(&lexer));
    struct ob_token end = {.kind = OB_TOK_END, .at = (uint32_t)source->len};
    return add(&lexer, end);
}
