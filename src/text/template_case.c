#include "text/template_case.h"

#include "text/utf8.h"

#include <string.h>

struct case_range {
    int32_t first, last, step, delta;
};

struct case_special {
    int32_t c;
    const char *upper, *title;
};

#include "text/template_case_tables.h"

/* c moved by the range that holds it; c itself when none does. */
static int32_t map_in(const struct case_range *ranges, size_t n, int32_t c)
{
    size_t low = 0, high = n;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (ranges[middle].last < c)
            low = middle + 1;
        else
            high = middle;
    }
    bool inside =
        low < n && c >= ranges[low].first && (c - ranges[low].first) % ranges[low].step == 0;
    return inside ? c + ranges[low].delta : c;
}

#define MAP(table, c) map_in((table), sizeof(table) / sizeof *(table), (c))

static const struct case_special *special(int32_t c)
{
    for (size_t i = 0; i < sizeof case_specials / sizeof *case_specials; i++)
        if (case_specials[i].c == c)
            return &case_specials[i];
    return NULL;
}

static size_t copy(const char *text, char *out)
{
    size_t n = strlen(text);
    memcpy(out, text, n);
    return n;
}

size_t ob_case_map(int32_t c, enum ob_case to, char out[OB_CASE_BYTES])
{
    if (c < 0x80) {
        bool upper = c >= 'A' && c <= 'Z', lower = c >= 'a' && c <= 'z';
        out[0] = (char)(to == OB_CASE_LOWER ? (upper ? c + 32 : c) : (lower ? c - 32 : c));
        return 1;
    }
    if (to == OB_CASE_LOWER) {
        if (c == 0x130)
            return copy("i\u0307", out);
        return ob_utf8_encode(MAP(case_lower, c), out);
    }
    const struct case_special *many = special(c);
    if (many)
        return copy(to == OB_CASE_UPPER ? many->upper : many->title, out);
    if (to == OB_CASE_TITLE) {
        for (size_t i = 0; i < sizeof case_title / sizeof *case_title; i++)
            if (c >= case_title[i].first && c <= case_title[i].last)
                return ob_utf8_encode(c + case_title[i].delta, out);
    }
    return ob_utf8_encode(MAP(case_upper, c), out);
}

bool ob_case_is_lower(int32_t c)
{
    return c >= 0 && (MAP(case_upper, c) != c || special(c) != NULL) && MAP(case_lower, c) == c;
}

bool ob_case_is_upper(int32_t c)
{
    return c == 0x130 ||
           (c >= 0 && MAP(case_lower, c) != c && MAP(case_upper, c) == c && !special(c));
}

bool ob_case_is_title(int32_t c)
{
    return c >= 0 && MAP(case_lower, c) != c && (MAP(case_upper, c) != c || special(c));
}
