#include "text/pretokenize.h"

#include "text/unicode.h"
#include "text/utf8.h"

enum {
    L = OB_UNICODE_LETTER,
    M = OB_UNICODE_MARK,
    N = OB_UNICODE_NUMBER,
    S = OB_UNICODE_SPACE,
    LINE_END = 64, /* \r or \n, besides S */
};

/* Classes of ASCII, which is most text: control characters 9..13 and the space are S. */
static unsigned ascii_class(unsigned char c)
{
    if ((unsigned)(c | 0x20) - 'a' < 26)
        return L;
    if ((unsigned)c - '0' < 10)
        return N;
    if (c == '\n' || c == '\r')
        return S | LINE_END;
    return c == ' ' || (unsigned)c - '\t' < 5 ? S : 0;
}

/* Class of the character at text [n >= 1] and its length in bytes. */
static unsigned class_at(const char *text, size_t n, size_t *length)
{
    unsigned char byte = (unsigned char)text[0];
    if (byte < 0x80) {
        *length = 1;
        return ascii_class(byte);
    }
    int32_t c = ob_utf8_decode(text, n, length);
    if (c >= 0)
        return ob_unicode_class(c);
    *length = 1; /* each byte of an ill-formed part stands for itself */
    return 0;
}

/* The end of the run of characters from `at` on whose class is in `mask`. */
static size_t skip_class(const char *text, size_t n, size_t at, unsigned mask)
{
    size_t length;
    while (at < n && (class_at(text + at, n - at, &length) & mask))
        at += length;
    return at;
}

/* The same for characters whose class is not in `mask`. */
static size_t skip_other(const char *text, size_t n, size_t at, unsigned mask)
{
    size_t length;
    while (at < n && !(class_at(text + at, n - at, &length) & mask))
        at += length;
    return at;
}

/* (?i:'s|'t|'re|'ve|'m|'ll|'d) at text, 0 if it does not match. */
static size_t contraction(const char *text, size_t n)
{
    if (n < 2 || text[0] != '\'')
        return 0;
    switch (text[1] | 0x20) {
    case 's':
    case 't':
    case 'm':
    case 'd':
        return 2;
    case 'r':
    case 'v':
        return n > 2 && (text[2] | 0x20) == 'e' ? 3 : 0;
    case 'l':
        return n > 2 && (text[2] | 0x20) == 'l' ? 3 : 0;
    default:
        return n > 2 && text[1] == '\xc5' && text[2] == '\xbf' ? 3 : 0; /* U+017F */
    }
}

/* The three alternatives for text that starts with white space and not with a word:
 * \s*[\r\n]+ ends after the last line end of the run; else \s+(?!\S) leaves the last space to the
 * word after it, unless the text ends or the run is that one space. */
static size_t white_space(const char *text, size_t n)
{
    size_t at = 0, length, last_start = 0, line_end = 0;
    while (at < n) {
        unsigned class = class_at(text + at, n - at, &length);
        if (!(class & S))
            break;
        last_start = at;
        at += length;
        if (class & LINE_END)
            line_end = at;
    }
    if (line_end)
        return line_end;
    return at == n || last_start == 0 ? at : last_start;
}

size_t ob_pretokenize_next(enum ob_pretokenizer pre, const char *text, size_t n)
{
    const unsigned word = pre == OB_PRE_QWEN35 ? L | M : L;
    size_t first, second;
    unsigned class = class_at(text, n, &first);
    if (class & word)
        return skip_class(text, n, first, word);
    if (class & N)
        return first;
    size_t end = contraction(text, n);
    if (end)
        return end;
    /* class is now S, M under qwen2, or 0: what may stand before a word, unless it ends a line. */
    unsigned next = first < n ? class_at(text + first, n - first, &second) : S;
    if (!(class & LINE_END) && (next & word))
        return skip_class(text, n, first + second, word);
    const unsigned not_other = S | N | word;
    if (!(class & S) || (text[0] == ' ' && !(next & not_other))) {
        end = skip_other(text, n, first, not_other);
        return skip_class(text, n, end, LINE_END);
    }
    return white_space(text, n);
}
