#include "text/template_text.h"

#include "text/unicode.h"
#include "text/utf8.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool ob_is_space(int32_t c)
{
    return (c >= 0x09 && c <= 0x0d) || (c >= 0x1c && c <= 0x20) || c == 0x85 || c == 0xa0 ||
           c == 0x1680 || (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 ||
           c == 0x202f || c == 0x205f || c == 0x3000;
}

bool ob_is_word(int32_t c)
{
    return c == '_' || (c >= 0 && (ob_unicode_class(c) & (OB_UNICODE_LETTER | OB_UNICODE_NUMBER)));
}

bool ob_is_line_break(int32_t c)
{
    return (c >= 0x0a && c <= 0x0d) || (c >= 0x1c && c <= 0x1e) || c == 0x85 || c == 0x2028 ||
           c == 0x2029;
}

/* General categories Cc, Cf, Cs, Co, Zs, Zl, Zp and the noncharacters; ' ' is printable. */
bool ob_is_printable(int32_t c)
{
    static const int32_t hidden[][2] = {
        {0x0, 0x1f},        {0x7f, 0xa0},       {0xad, 0xad},       {0x600, 0x605},
        {0x61c, 0x61c},     {0x6dd, 0x6dd},     {0x70f, 0x70f},     {0x890, 0x891},
        {0x8e2, 0x8e2},     {0x1680, 0x1680},   {0x180e, 0x180e},   {0x2000, 0x200f},
        {0x2028, 0x202f},   {0x205f, 0x206f},   {0x3000, 0x3000},   {0xd800, 0xf8ff},
        {0xfdd0, 0xfdef},   {0xfeff, 0xfeff},   {0xfff0, 0xfffb},   {0xfffe, 0xffff},
        {0x110bd, 0x110bd}, {0x110cd, 0x110cd}, {0x13430, 0x1343f}, {0x1bca0, 0x1bca3},
        {0x1d173, 0x1d17a}, {0x1fffe, 0x1ffff}, {0xe0000, 0xe00ff}, {0xe01f0, 0x10ffff},
    };
    for (size_t i = 0; i < sizeof hidden / sizeof *hidden; i++)
        if (c >= hidden[i][0] && c <= hidden[i][1])
            return false;
    return true;
}

int32_t ob_char_at(const char *text, size_t n, size_t *length)
{
    *length = 1;
    if ((unsigned char)*text < 0x80)
        return *text;
    int32_t c = ob_utf8_decode(text, n, length);
    if (c >= 0)
        return c;
    *length = 1;
    return -1;
}

size_t ob_space_before(const char *text, size_t n)
{
    size_t at = 0, length;
    while (at < n && ob_is_space(ob_char_at(text + at, n - at, &length)))
        at += length;
    return at;
}

size_t ob_space_after(const char *text, size_t n)
{
    size_t end = n;
    while (end > 0) {
        size_t start = end - 1, length;
        while (start > 0 && end - start < 4 && ((unsigned char)text[start] & 0xc0) == 0x80)
            start--;
        int32_t c = ob_char_at(text + start, end - start, &length);
        if (start + length != end || !ob_is_space(c))
            break;
        end = start;
    }
    return n - end;
}

size_t ob_find_bytes(const char *text, size_t n, const char *needle, size_t m)
{
    for (size_t at = 0; at + m <= n; at++) {
        const char *first = memchr(text + at, needle[0], n - m - at + 1);
        if (!first)
            break;
        at = (size_t)(first - text);
        if (memcmp(first, needle, m) == 0)
            return at;
    }
    return n;
}

size_t ob_find_last_bytes(const char *text, size_t n, const char *needle, size_t m)
{
    for (size_t at = n; at >= m; at--)
        if (memcmp(text + at - m, needle, m) == 0)
            return at - m;
    return n;
}

/* Digits d.ddd and the decimal exponent of |f|, the fewest that read back as f. */
static int shortest_digits(double f, char digits[20], int *exponent)
{
    char text[40];
    for (int n = 1; n <= 17; n++) {
        snprintf(text, sizeof text, "%.*e", n - 1, fabs(f));
        if (n < 17 && strtod(text, NULL) != fabs(f))
            continue;
        char *e = strchr(text, 'e');
        *exponent = atoi(e + 1);
        digits[0] = text[0];
        if (n > 1) /* the decimal point, whatever the locale takes for it, ends before the digits */
            memcpy(digits + 1, e - (n - 1), (size_t)n - 1);
        return n;
    }
    return 0;
}

size_t ob_repr_float(double f, char out[OB_REPR_FLOAT_BYTES])
{
    char digits[20];
    int exponent, used = 0;
    const char *sign = signbit(f) ? "-" : "";
    if (isnan(f))
        return (size_t)snprintf(out, OB_REPR_FLOAT_BYTES, "nan");
    if (isinf(f))
        return (size_t)snprintf(out, OB_REPR_FLOAT_BYTES, "%sinf", sign);
    int n = shortest_digits(f, digits, &exponent);
    used = snprintf(out, OB_REPR_FLOAT_BYTES, "%s", sign);
    if (exponent < -4 || exponent >= 16) {
        out[used++] = digits[0];
        if (n > 1) {
            out[used++] = '.';
            memcpy(out + used, digits + 1, (size_t)n - 1);
            used += n - 1;
        }
        used += snprintf(out + used, (size_t)(OB_REPR_FLOAT_BYTES - used), "e%c%02d",
                         exponent < 0 ? '-' : '+', abs(exponent));
        return (size_t)used;
    }
    for (int i = exponent < 0 ? exponent : 0; i < n || i <= exponent + 1; i++) {
        if (i == exponent + 1)
            out[used++] = '.';
        out[used++] = i >= 0 && i < n ? digits[i] : '0';
    }
    return (size_t)used;
}

bool ob_parse_float(const char *text, size_t n, double *out)
{
    char copy[128], point[8], *end;
    if (n == 0 || n >= sizeof copy)
        return false;
    snprintf(point, sizeof point, "%.1f", 0.5);
    for (size_t i = 0; i < n; i++) {
        if (!strchr("0123456789.eE+-", text[i]) || text[i] == '\0')
            return false;
        copy[i] = text[i] == '.' ? point[1] : text[i];
    }
    copy[n] = '\0';
    *out = strtod(copy, &end);
    return end == copy + n;
}
