#include "text/unicode.h"

#include "base/memory.h"
#include "text/utf8.h"
#include "unicode_tables.h"

#include <stdlib.h>
#include <string.h>

/* Hangul syllables are arithmetic (Unicode, section 3.12). */
enum {
    S_BASE = 0xac00,
    L_BASE = 0x1100,
    V_BASE = 0x1161,
    T_BASE = 0x11a7,
    L_COUNT = 19,
    V_COUNT = 21,
    T_COUNT = 28,
    S_COUNT = L_COUNT * V_COUNT * T_COUNT,
};

/* An ill-formed byte b travels as 0x110000 + b: no code point, no properties. */
enum { RAW_BYTE = 0x110000, CODE_MASK = 0x1fffff, SHORT_RUN = 24 };

_Static_assert((int)OB_UNICODE_LETTER == (int)UNICODE_LETTER &&
                   (int)OB_UNICODE_MARK == (int)UNICODE_MARK &&
                   (int)OB_UNICODE_NUMBER == (int)UNICODE_NUMBER &&
                   (int)OB_UNICODE_SPACE == (int)UNICODE_SPACE,
               "the generator and unicode.h must agree");

/* Where c's value stands in the blocks of a two-stage table with this index. */
static size_t cell(const uint8_t *index, int32_t c)
{
    uint32_t code = (uint32_t)c;
    return (size_t)index[code / UNICODE_BLOCK] * UNICODE_BLOCK + code % UNICODE_BLOCK;
}

static unsigned flags_of(int32_t c)
{
    return unicode_class_blocks[cell(unicode_class_index, c)];
}

unsigned ob_unicode_class(int32_t c)
{
    return flags_of(c) &
           (OB_UNICODE_LETTER | OB_UNICODE_MARK | OB_UNICODE_NUMBER | OB_UNICODE_SPACE);
}

unsigned ob_unicode_ccc(int32_t c)
{
    return unicode_ccc_blocks[cell(unicode_ccc_index, c)];
}

const char *ob_unicode_version(void)
{
    return OB_UNICODE_VERSION;
}

/* The character at text + *at, or RAW_BYTE + its first byte; moves *at past it. */
static int32_t next_code(const char *text, size_t n, size_t *at)
{
    size_t length;
    int32_t c = ob_utf8_decode(text + *at, n - *at, &length);
    if (c < 0) {
        c = RAW_BYTE + (unsigned char)text[*at];
        length = 1;
    }
    *at += length;
    return c;
}

/* A character before which text can be cut: it starts, and composes with nothing before it. */
static bool is_boundary(int32_t c)
{
    return c >= RAW_BYTE || !(flags_of(c) & (UNICODE_NFC_CHECK | UNICODE_NON_STARTER));
}

/* The quick check of UAX #15. Returns n when text is NFC; otherwise the offset of the boundary at
 * or before the first doubt, up to which it is. */
static size_t quick_check(const char *text, size_t n)
{
    size_t at = 0, boundary = 0;
    unsigned last_ccc = 0;
    while (at < n) {
        if ((unsigned char)text[at] < 0x80) {
            last_ccc = 0;
            boundary = at++;
            continue;
        }
        size_t start = at;
        int32_t c = next_code(text, n, &at);
        unsigned flags = c >= RAW_BYTE ? 0 : flags_of(c);
        if (flags & UNICODE_NFC_CHECK)
            return boundary;
        unsigned ccc = flags & UNICODE_NON_STARTER ? ob_unicode_ccc(c) : 0;
        if (ccc && ccc < last_ccc)
            return boundary;
        last_ccc = ccc;
        if (!ccc)
            boundary = start;
    }
    return n;
}

static bool push_code(struct ob_nfc *nfc, int32_t c)
{
    void *items = nfc->codes;
    if (!ob_grow(&items, &nfc->codes_capacity, nfc->n_codes + 1, sizeof *nfc->codes))
        return false;
    nfc->codes = items;
    uint32_t ccc = c < RAW_BYTE ? ob_unicode_ccc(c) : 0;
    nfc->codes[nfc->n_codes++] = ccc << 24 | (uint32_t)c;
    return true;
}

/* Append the full canonical decomposition of c. */
static bool push_decomposed(struct ob_nfc *nfc, int32_t c)
{
    if (c >= RAW_BYTE)
        return push_code(nfc, c);
    if (c >= S_BASE && c < S_BASE + S_COUNT) {
        int32_t s = c - S_BASE, t = s % T_COUNT;
        return push_code(nfc, L_BASE + s / (V_COUNT * T_COUNT)) &&
               push_code(nfc, V_BASE + s / T_COUNT % V_COUNT) &&
               (t == 0 || push_code(nfc, T_BASE + t));
    }
    size_t full = unicode_full_blocks[cell(unicode_full_index, c)];
    if (full == 0)
        return push_code(nfc, c);
    for (uint32_t i = 1; i <= unicode_pool[full]; i++)
        if (!push_code(nfc, (int32_t)unicode_pool[full + i]))
            return false;
    return true;
}

/* Stable counting sort of a run of non-starters by combining class, for runs so long that only
 * somebody who wants the quadratic time of insertion would write them. */
static bool sort_long_run(struct ob_nfc *nfc, uint32_t *run, size_t n)
{
    void *items = nfc->sorted;
    if (!ob_grow(&items, &nfc->sorted_capacity, n, sizeof *nfc->sorted))
        return false;
    nfc->sorted = items;
    size_t start[257] = {0};
    for (size_t i = 0; i < n; i++)
        start[(run[i] >> 24) + 1]++;
    for (size_t i = 1; i < 257; i++)
        start[i] += start[i - 1];
    for (size_t i = 0; i < n; i++)
        nfc->sorted[start[run[i] >> 24]++] = run[i];
    memcpy(run, nfc->sorted, n * sizeof *run);
    return true;
}

static void sort_short_run(uint32_t *run, size_t n)
{
    for (size_t i = 1; i < n; i++) {
        uint32_t code = run[i];
        size_t j = i;
        for (; j > 0 && run[j - 1] >> 24 > code >> 24; j--)
            run[j] = run[j - 1];
        run[j] = code;
    }
}

/* Canonical ordering: every run of non-starters sorted by class, equal ones left in place. */
static bool reorder(struct ob_nfc *nfc)
{
    for (size_t i = 0; i < nfc->n_codes;) {
        size_t first = i;
        while (i < nfc->n_codes && nfc->codes[i] >> 24)
            i++;
        if (i - first > SHORT_RUN) {
            if (!sort_long_run(nfc, nfc->codes + first, i - first))
                return false;
        } else {
            sort_short_run(nfc->codes + first, i - first);
        }
        i += i == first;
    }
    return true;
}

/* The primary composite of a and b, 0 if there is none. */
static uint32_t compose_pair(uint32_t a, uint32_t b)
{
    if (a - L_BASE < L_COUNT && b - V_BASE < V_COUNT)
        return S_BASE + ((a - L_BASE) * V_COUNT + (b - V_BASE)) * T_COUNT;
    if (a - S_BASE < S_COUNT && (a - S_BASE) % T_COUNT == 0 && b - T_BASE - 1 < T_COUNT - 1)
        return a + (b - T_BASE);
    size_t low = 0, high = sizeof unicode_pairs / sizeof *unicode_pairs;
    while (low < high) {
        size_t middle = (low + high) / 2;
        uint32_t first = unicode_pairs[middle].first, second = unicode_pairs[middle].second;
        if (first == a && second == b)
            return unicode_pairs[middle].result;
        if (first < a || (first == a && second < b))
            low = middle + 1;
        else
            high = middle;
    }
    return 0;
}

/* Canonical composition of the run, in place. A character is blocked from its starter by one of the
 * same or a higher class in between, or by another starter. */
static void compose(struct ob_nfc *nfc)
{
    size_t n = 0, starter = SIZE_MAX;
    uint32_t last_ccc = 0; /* of what was kept after the starter; 0: nothing was */
    for (size_t i = 0; i < nfc->n_codes; i++) {
        uint32_t code = nfc->codes[i], ccc = code >> 24;
        bool adjacent = starter != SIZE_MAX && n == starter + 1;
        if (starter != SIZE_MAX && (adjacent || last_ccc < ccc)) {
            uint32_t whole = compose_pair(nfc->codes[starter], code & CODE_MASK);
            if (whole) {
                nfc->codes[starter] = whole; /* every composite here is a starter */
                continue;
            }
        }
        if (ccc == 0)
            starter = n;
        last_ccc = ccc;
        nfc->codes[n++] = code;
    }
    nfc->n_codes = n;
}

static bool append_bytes(struct ob_nfc *nfc, const char *bytes, size_t n)
{
    size_t need;
    void *items = nfc->text;
    if (!ob_add_size(nfc->len, n, &need) || !ob_grow(&items, &nfc->capacity, need, 1))
        return false;
    nfc->text = items;
    if (n > 0)
        memcpy(nfc->text + nfc->len, bytes, n);
    nfc->len = need;
    return true;
}

/* Decompose, order, compose and append text [n], which starts at a boundary (or at the start). */
static bool append_run(struct ob_nfc *nfc, const char *text, size_t n)
{
    nfc->n_codes = 0;
    for (size_t at = 0; at < n;)
        if (!push_decomposed(nfc, next_code(text, n, &at)))
            return false;
    if (!reorder(nfc))
        return false;
    compose(nfc);
    for (size_t i = 0; i < nfc->n_codes; i++) {
        char bytes[4];
        int32_t c = (int32_t)(nfc->codes[i] & CODE_MASK);
        size_t length = 1;
        if (c >= RAW_BYTE)
            bytes[0] = (char)(c - RAW_BYTE);
        else
            length = ob_utf8_encode(c, bytes);
        if (!append_bytes(nfc, bytes, length))
            return false;
    }
    return true;
}

/* Offset of the first boundary after the character at text + at. */
static size_t next_boundary(const char *text, size_t n, size_t at)
{
    next_code(text, n, &at);
    while (at < n) {
        size_t start = at;
        if (is_boundary(next_code(text, n, &at)))
            return start;
    }
    return n;
}

bool ob_nfc_normalize(struct ob_nfc *nfc, const char *text, size_t n, const char **out,
                      size_t *n_out)
{
    size_t good = quick_check(text, n);
    *out = text;
    *n_out = n;
    if (good == n)
        return true;
    nfc->len = 0;
    for (size_t at = 0; at < n;) {
        if (!append_bytes(nfc, text + at, good))
            return false;
        at += good;
        if (at == n)
            break;
        size_t end = next_boundary(text, n, at);
        if (!append_run(nfc, text + at, end - at))
            return false;
        at = end;
        good = quick_check(text + at, n - at);
    }
    *out = nfc->text;
    *n_out = nfc->len;
    return true;
}

void ob_nfc_free(struct ob_nfc *nfc)
{
    free(nfc->text);
    free(nfc->codes);
    free(nfc->sorted);
    *nfc = (struct ob_nfc){0};
}
