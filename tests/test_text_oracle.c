/* src/text against libraries that do the same: PCRE2 (classes, pre-token patterns) and utf8proc
 * (categories, combining classes, NFC). Where a library's Unicode version is older than that of our
 * tables, code points that it does not know are counted and left out. */
#include "support/check.h"
#include "support/pcre_split.h"

#include "text/unicode.h"
#include "text/utf8.h"

#include <string.h>
#include <utf8proc.h>

enum { N_CODES = 0x110000, MAX_TEXT = 256, MAX_PARTS = 4096 };

static bool is_surrogate(int32_t c)
{
    return c >= 0xd800 && c < 0xe000;
}

/* xorshift, so that a failure repeats. */
static uint32_t next_random(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return (uint32_t)(*state >> 32);
}

static void print_text(const char *label, const char *text, size_t n)
{
    print_message("%s:", label);
    for (size_t i = 0; i < n; i++)
        print_message(" %02x", (unsigned char)text[i]);
    print_message("\n");
}

/* ------------------------------------------------------------------------------------ classes */

/* What PCRE2 says about c, as our class bits; -1: unassigned in its Unicode version. */
static int pcre_class(const struct pcre_split *split, int32_t c)
{
    char text[4];
    size_t n = ob_utf8_encode(c, text);
    int rc =
        pcre2_match(split->code, (PCRE2_SPTR)text, n, 0, PCRE2_NO_UTF_CHECK, split->match, NULL);
    static const int classes[] = {
        0, 0, OB_UNICODE_LETTER, OB_UNICODE_MARK, OB_UNICODE_NUMBER, OB_UNICODE_SPACE, -1};
    assert_true(rc >= 1 && rc <= 6);
    return classes[rc];
}

static int utf8proc_class(int32_t c)
{
    switch (utf8proc_category(c)) {
    case UTF8PROC_CATEGORY_CN:
        return -1;
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
        return OB_UNICODE_LETTER;
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
        return OB_UNICODE_MARK;
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_NO:
        return OB_UNICODE_NUMBER;
    default:
        return 0;
    }
}

/* Unicode 13 knows 143,859 characters and Unicode 15 149,186: between versions that are supported
 * here, at most this many are new, all of them unassigned before. */
enum { MAX_NEW = 149186 - 143859 };

static void check_skipped(const char *library, const char *version, size_t skipped)
{
    print_message("%s has Unicode %s, the tables %s: %zu code points skipped\n", library, version,
                  ob_unicode_version(), skipped);
    bool same = strncmp(version, ob_unicode_version(), 4) == 0;
    assert_true(skipped <= (same ? 0 : MAX_NEW));
}

static void test_classes_pcre(void **state)
{
    (void)state;
    char version[32];
    pcre2_config(PCRE2_CONFIG_UNICODE_VERSION, version);
    struct pcre_split split =
        pcre_split_new("(\\p{L})|(\\p{M})|(\\p{N})|([" WHITE_SPACE "])|(\\p{Cn})|\\P{Cn}");
    size_t skipped = 0, wrong = 0;
    for (int32_t c = 0; c < N_CODES; c++) {
        if (is_surrogate(c)) {
            assert_int_equal(ob_unicode_class(c), 0);
            continue;
        }
        int theirs = pcre_class(&split, c), ours = (int)ob_unicode_class(c);
        skipped += theirs < 0 && ours != 0;
        if (theirs >= 0 && theirs != ours) {
            print_message("U+%04X is %d here and %d in PCRE2\n", (unsigned)c, ours, theirs);
            wrong++;
        }
    }
    pcre_split_free(&split);
    assert_int_equal(wrong, 0);
    check_skipped("PCRE2", version, skipped);
}

static void test_classes_utf8proc(void **state)
{
    (void)state;
    size_t skipped = 0, wrong = 0;
    for (int32_t c = 0; c < N_CODES; c++) {
        int theirs = utf8proc_class(c), ours = (int)ob_unicode_class(c) & ~OB_UNICODE_SPACE;
        skipped += theirs < 0 && ours != 0;
        if (theirs >= 0 && (theirs != ours ||
                            utf8proc_get_property(c)->combining_class != (int)ob_unicode_ccc(c))) {
            print_message("U+%04X is %d ccc %u here and %d in utf8proc\n", (unsigned)c, ours,
                          ob_unicode_ccc(c), theirs);
            wrong++;
        }
    }
    assert_int_equal(wrong, 0);
    check_skipped("utf8proc", utf8proc_unicode_version(), skipped);
}

/* The patterns are written for an engine whose \s is White_Space. PCRE2 takes U+180E as well. */
static void test_white_space(void **state)
{
    (void)state;
    struct pcre_split split = pcre_split_new("\\s");
    for (int32_t c = 0; c < N_CODES; c++) {
        char text[4];
        if (is_surrogate(c))
            continue;
        size_t n = ob_utf8_encode(c, text);
        bool theirs = pcre_split_next(&split, text, n, 0) > 0;
        bool ours = (ob_unicode_class(c) & OB_UNICODE_SPACE) != 0;
        assert_true(theirs == ours || c == 0x180e);
    }
    pcre_split_free(&split);
    assert_int_equal(ob_unicode_class(0x180e), 0);
    assert_int_equal(ob_unicode_class(0x85), OB_UNICODE_SPACE);
    assert_int_equal(ob_unicode_class(0x200b), 0);
    assert_int_equal(ob_unicode_class(0x3000), OB_UNICODE_SPACE);
}

/* ---------------------------------------------------------------------------------------- NFC */

/* Compare with utf8proc on well-formed text [n]. */
static void check_nfc(struct ob_nfc *nfc, const char *text, size_t n)
{
    utf8proc_uint8_t *expected = NULL;
    ssize_t n_expected = utf8proc_map((const utf8proc_uint8_t *)text, (ssize_t)n, &expected,
                                      UTF8PROC_STABLE | UTF8PROC_COMPOSE);
    const char *got;
    size_t n_got;
    assert_true(n_expected >= 0);
    assert_true(ob_nfc_normalize(nfc, text, n, &got, &n_got));
    if (n_got != (size_t)n_expected || memcmp(got, expected, n_got) != 0) {
        print_text("text    ", text, n);
        print_text("utf8proc", (const char *)expected, (size_t)n_expected);
        print_text("ours    ", got, n_got);
        fail();
    }
    free(expected);
}

static void test_nfc_every_code_point(void **state)
{
    (void)state;
    struct ob_nfc nfc = {0};
    for (int32_t c = 0; c < N_CODES; c++) {
        char text[16];
        if (is_surrogate(c) || utf8proc_category(c) == UTF8PROC_CATEGORY_CN)
            continue;
        size_t n = ob_utf8_encode(c, text);
        check_nfc(&nfc, text, n);
        text[n] = 'e'; /* before and after letters, and before a mark of class 230 */
        check_nfc(&nfc, text, n + 1);
        memcpy(text + n, "\xcc\x81", 2);
        check_nfc(&nfc, text, n + 2);
        memmove(text + 1, text, n);
        text[0] = 'e';
        check_nfc(&nfc, text, n + 1);
    }
    ob_nfc_free(&nfc);
}

/* The characters that occur in canonical decompositions, sorted into those that are first of a pair
 * and those that follow. */
struct parts {
    int32_t first[MAX_PARTS], later[MAX_PARTS];
    size_t n_first, n_later;
};

static void add_part(int32_t *list, size_t *n, int32_t c)
{
    for (size_t i = 0; i < *n; i++)
        if (list[i] == c)
            return;
    assert_true(*n < MAX_PARTS);
    list[(*n)++] = c;
}

static struct parts *collect_parts(void)
{
    struct parts *parts = calloc(1, sizeof *parts);
    assert_non_null(parts);
    for (int32_t c = 0; c < N_CODES; c++) {
        int32_t out[16];
        int last_class = 0;
        if (is_surrogate(c) || (c >= 0xac00 && c <= 0xd7a3))
            continue;
        ssize_t n = utf8proc_decompose_char(c, out, 16, UTF8PROC_DECOMPOSE, &last_class);
        if (n < 2)
            continue;
        add_part(parts->first, &parts->n_first, out[0]);
        for (ssize_t i = 1; i < n; i++)
            add_part(parts->later, &parts->n_later, out[i]);
        add_part(parts->first, &parts->n_first, c); /* a composite may take more marks */
    }
    return parts;
}

static void test_nfc_pairs(void **state)
{
    (void)state;
    struct parts *parts = collect_parts();
    struct ob_nfc nfc = {0};
    char text[16];
    assert_true(parts->n_first > 900 && parts->n_later > 50);
    for (size_t i = 0; i < parts->n_first; i++) {
        size_t n = ob_utf8_encode(parts->first[i], text);
        for (size_t j = 0; j < parts->n_later; j++)
            check_nfc(&nfc, text, n + ob_utf8_encode(parts->later[j], text + n));
    }
    ob_nfc_free(&nfc);
    free(parts);
}

static void test_nfc_hangul(void **state)
{
    (void)state;
    struct ob_nfc nfc = {0};
    for (int32_t s = 0xac00; s <= 0xd7a3; s++) {
        char text[16], whole[4];
        int32_t index = s - 0xac00, t = index % 28;
        size_t n = ob_utf8_encode(0x1100 + index / 588, text);
        n += ob_utf8_encode(0x1161 + index / 28 % 21, text + n);
        if (t)
            n += ob_utf8_encode(0x11a7 + t, text + n);
        const char *got;
        size_t n_got;
        assert_true(ob_nfc_normalize(&nfc, text, n, &got, &n_got));
        assert_int_equal(n_got, ob_utf8_encode(s, whole));
        assert_memory_equal(got, whole, n_got);
    }
    /* The edges of the four ranges, in every order of three. U+11A7, one before the first final, is
     * left to the check below: utf8proc swallows it as an empty final. */
    static const int32_t jamo[] = {0x10ff, 0x1100, 0x1112, 0x1113, 0x1160, 0x1161,
                                   0x1175, 0x1176, 0x11a8, 0x11c2, 0x11c3, 0xac00,
                                   0xac01, 0xac1c, 0xd788, 0xd7a3, 0x0301, 'a'};
    size_t n_jamo = sizeof jamo / sizeof *jamo;
    for (size_t i = 0; i < n_jamo * n_jamo * n_jamo; i++) {
        char text[16];
        size_t n = ob_utf8_encode(jamo[i % n_jamo], text);
        n += ob_utf8_encode(jamo[i / n_jamo % n_jamo], text + n);
        n += ob_utf8_encode(jamo[i / n_jamo / n_jamo], text + n);
        check_nfc(&nfc, text, n);
    }
    const char *got, *no_final = "\xea\xb0\x80\xe1\x86\xa7"; /* U+AC00 U+11A7 */
    size_t n_got;
    assert_true(ob_nfc_normalize(&nfc, no_final, 6, &got, &n_got));
    assert_int_equal(n_got, 6);
    assert_memory_equal(got, no_final, 6);
    ob_nfc_free(&nfc);
}

static void test_nfc_random(void **state)
{
    (void)state;
    struct parts *parts = collect_parts();
    static const int32_t others[] = {
        'a',     'e',    ' ',    0x0345, 0x0315, 0x0f71,  0x0f72, 0x0f74, 0x0344, 0x0958, 0xfb1d,
        0x1d15e, 0x212b, 0x2126, 0x0340, 0x3099, 0x304b,  0x05b0, 0x0591, 0x1100, 0x1161, 0x11a8,
        0xac00,  0x0e38, 0x0e48, 0x302a, 0x0334, 0x1d165, 0x0327, 0x0323, 0x0301, 0x4e2d};
    size_t n_others = sizeof others / sizeof *others;
    struct ob_nfc nfc = {0};
    uint64_t seed = 0x5eed;
    for (int round = 0; round < 200000; round++) {
        char text[MAX_TEXT];
        size_t n = 0, n_chars = 1 + next_random(&seed) % (round % 100 ? 12 : 50);
        for (size_t i = 0; i < n_chars; i++) {
            uint32_t r = next_random(&seed), kind = r % 8;
            r /= 8;
            int32_t c = kind < 2   ? parts->first[r % parts->n_first]
                        : kind < 6 ? parts->later[r % parts->n_later]
                                   : others[r % n_others];
            n += ob_utf8_encode(c, text + n);
        }
        check_nfc(&nfc, text, n);
    }
    ob_nfc_free(&nfc);
    free(parts);
}

/* Ill-formed bytes stay what and where they are, and nothing composes across them. */
static void test_nfc_ill_formed(void **state)
{
    (void)state;
    static const struct {
        const char *text, *nfc;
    } cases[] = {
        {"e\xff\xcc\x81", "e\xff\xcc\x81"},
        {"\xff"
         "e\xcc\x81\xff",
         "\xff\xc3\xa9\xff"},
        {"e\xcc\x81\xcc", "\xc3\xa9\xcc"},
        {"\xe2\x82"
         "e\xcc\x81",
         "\xe2\x82\xc3\xa9"},
        {"\xcc\x81\xed\xa0\x80\xcc\x81", "\xcc\x81\xed\xa0\x80\xcc\x81"},
        {"\xc2\xcc\xa3", "\xc2\xcc\xa3"},
        {"a\xcc\x81\x80\xcc\xa3", "\xc3\xa1\x80\xcc\xa3"},
    };
    struct ob_nfc nfc = {0};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *got;
        size_t n;
        assert_true(ob_nfc_normalize(&nfc, cases[i].text, strlen(cases[i].text), &got, &n));
        assert_int_equal(n, strlen(cases[i].nfc));
        assert_memory_equal(got, cases[i].nfc, n);
    }
    ob_nfc_free(&nfc);
}

/* A long run of marks, out of order, sorts like a short one (and not by insertion). */
static void test_nfc_long_run(void **state)
{
    (void)state;
    enum { N_MARKS = 20000 };
    static const int32_t marks[] = {0x0301, 0x0323, 0x0345, 0x0334, 0x0302, 0x0327};
    char *text = malloc(1 + 2 * N_MARKS);
    assert_non_null(text);
    text[0] = 'q';
    size_t n = 1;
    uint64_t seed = 7;
    for (int i = 0; i < N_MARKS; i++)
        n += ob_utf8_encode(marks[next_random(&seed) % 6], text + n);
    struct ob_nfc nfc = {0};
    check_nfc(&nfc, text, n);
    ob_nfc_free(&nfc);
    free(text);
}

/* ---------------------------------------------------------------------------------- pre-tokens */

static const int32_t interesting[] = {
    'a',    'b',    'S',      's',    't',    'T',    'r',     'R',     'e',     'E',
    'v',    'V',    'm',      'l',    'L',    'd',    'D',     '\'',    '\'',    '\'',
    0x2019, 0x17f,  0x212a,   ' ',    ' ',    ' ',    '\t',    '\n',    '\n',    '\r',
    '\v',   '\f',   0x85,     0xa0,   0x1680, 0x180e, 0x2003,  0x2028,  0x2029,  0x202f,
    0x205f, 0x3000, 0x200b,   0x200d, 0xfeff, '0',    '9',     0xb2,    0xbd,    0x0661,
    0x2160, 0x2460, 0x4e00,   '.',    '!',    '_',    '-',     '<',     '|',     0,
    0x7f,   0x1f,   0x1c,     0xad,   0x301,  0x323,  0x0903,  0x093f,  0x094d,  0x0924,
    0x0939, 0x064f, 0x0645,   0x20dd, 0xe01,  0xe38,  0x1f600, 0x1f1eb, 0x1d165, 0x20000,
    0xe000, 0xfffd, 0x10ffff, 0x345,  0xdf,   0x130,  0xfb05,  0x1100,  0xac00,  0x2f00,
};

/* Well-formed text from `interesting`; also, in `bytes`, the same with an ill-formed byte for every
 * U+E000, to which the patterns must be equally blind. A cut-off character is two such bytes. */
static size_t random_text(uint64_t *seed, char *text, char *bytes, size_t *n_bytes)
{
    static const char *const stray[] = {"\xc0", "\xff", "\xf5", "\xe2\x82", "\xf0\x9f", "\x80"};
    size_t n = 0, n_chars = next_random(seed) % 16;
    bool cut = false; /* a continuation byte would complete the character before it */
    *n_bytes = 0;
    for (size_t i = 0; i < n_chars; i++) {
        uint32_t r = next_random(seed);
        int32_t c = interesting[r % (sizeof interesting / sizeof *interesting)];
        for (uint32_t repeat = r >> 28 ? 1 : 3; repeat > 0; repeat--) {
            n += ob_utf8_encode(c, text + n);
            if (c != 0xe000) {
                *n_bytes += ob_utf8_encode(c, bytes + *n_bytes);
                cut = false;
                continue;
            }
            const char *bad = stray[next_random(seed) % (cut ? 5 : 6)];
            size_t length = strlen(bad);
            memcpy(bytes + *n_bytes, bad, length);
            *n_bytes += length;
            cut = length == 2;
            if (cut)
                n += ob_utf8_encode(c, text + n);
        }
    }
    return n;
}

static size_t count_chars(const char *text, size_t n)
{
    size_t count = 0;
    for (size_t at = 0, length; at < n; at += length, count++)
        if (ob_utf8_decode(text + at, n - at, &length) < 0)
            length = 1;
    return count;
}

static void check_split(const struct pcre_split *split, enum ob_pretokenizer pre, const char *text,
                        size_t n, const char *bytes, size_t n_bytes)
{
    size_t at = 0, at_bytes = 0;
    while (at < n) {
        size_t theirs = pcre_split_next(split, text, n, at);
        size_t ours = ob_pretokenize_next(pre, text + at, n - at);
        size_t raw = ob_pretokenize_next(pre, bytes + at_bytes, n_bytes - at_bytes);
        if (theirs != ours || theirs == 0 ||
            count_chars(text + at, ours) != count_chars(bytes + at_bytes, raw)) {
            print_text("text ", text, n);
            print_text("bytes", bytes, n_bytes);
            print_message("at %zu: PCRE2 %zu, ours %zu, ours in bytes %zu\n", at, theirs, ours,
                          raw);
            fail();
        }
        at += ours;
        at_bytes += raw;
    }
    assert_int_equal(at, n);
    assert_int_equal(at_bytes, n_bytes);
}

static void test_pretokens_random(void **state)
{
    (void)state;
    struct pcre_split qwen2 = pcre_split_new(pattern_qwen2);
    struct pcre_split qwen35 = pcre_split_new(pattern_qwen35);
    uint64_t seed = 0xfeed;
    for (int round = 0; round < 250000; round++) {
        char text[MAX_TEXT], bytes[MAX_TEXT];
        size_t n_bytes, n = random_text(&seed, text, bytes, &n_bytes);
        check_split(&qwen2, OB_PRE_QWEN2, text, n, bytes, n_bytes);
        check_split(&qwen35, OB_PRE_QWEN35, text, n, bytes, n_bytes);
    }
    pcre_split_free(&qwen2);
    pcre_split_free(&qwen35);
}

/* ---------------------------------------------------------------------------------------- UTF-8 */

/* Is s [k] the start (or all) of a character's encoding? Reasoned from values: fill up with the
 * smallest and the largest continuation, and ask for a scalar value of that length in between. */
static bool is_prefix(const unsigned char *s, size_t k, size_t *whole)
{
    *whole = s[0] < 0x80   ? 1
             : s[0] < 0xc0 ? 0
             : s[0] < 0xe0 ? 2
             : s[0] < 0xf0 ? 3
             : s[0] < 0xf8 ? 4
                           : 0;
    if (*whole == 0 || k > *whole)
        return false;
    int32_t low = *whole == 1 ? s[0] : s[0] & (0x7f >> *whole), high = low;
    for (size_t i = 1; i < *whole; i++) {
        if (i < k && (s[i] & 0xc0) != 0x80)
            return false;
        low = low << 6 | (i < k ? s[i] & 0x3f : 0);
        high = high << 6 | (i < k ? s[i] & 0x3f : 0x3f);
    }
    static const int32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    static const int32_t most[] = {0, 0x7f, 0x7ff, 0xffff, 0x10ffff};
    low = low < least[*whole] ? least[*whole] : low;
    high = high > most[*whole] ? most[*whole] : high;
    if (is_surrogate(low))
        low = 0xe000;
    if (is_surrogate(high))
        high = 0xd7ff;
    return low <= high;
}

/* The reference for ob_utf8_decode: *length and whether it is whole, invalid or incomplete. */
static int reference_decode(const unsigned char *s, size_t n, size_t *length)
{
    size_t whole, best = 0;
    for (size_t k = 1; k <= n && k <= 4 && is_prefix(s, k, &whole); k++)
        best = k;
    *length = best ? best : 1;
    if (best && is_prefix(s, best, &whole) && best == whole)
        return 0;
    return best == n ? OB_UTF8_INCOMPLETE : OB_UTF8_INVALID;
}

static void check_decode(const unsigned char *s, size_t n)
{
    size_t ours, theirs;
    int32_t c = ob_utf8_decode((const char *)s, n, &ours);
    int kind = reference_decode(s, n, &theirs);
    if (ours != theirs || (c < 0 ? c : 0) != kind) {
        print_text("bytes", (const char *)s, n);
        fail_msg("decoded to %d, %zu bytes; expected kind %d, %zu bytes", (int)c, ours, kind,
                 theirs);
    }
}

static void test_utf8_decode(void **state)
{
    (void)state;
    static const unsigned char bytes[] = {0x00, 0x41, 0x7f, 0x80, 0x8f, 0x90, 0x9f, 0xa0, 0xbf,
                                          0xc0, 0xc2, 0xdf, 0xe0, 0xed, 0xf0, 0xf4, 0xff};
    const size_t n = sizeof bytes;
    for (unsigned first = 0; first < 256; first++) {
        for (unsigned second = 0; second < 256; second++) {
            for (size_t i = 0; i < n * n; i++) {
                unsigned char s[4] = {(unsigned char)first, (unsigned char)second, bytes[i % n],
                                      bytes[i / n]};
                for (size_t k = i ? 3 : 1; k <= 4; k++)
                    check_decode(s, k);
            }
        }
    }
    for (int32_t c = 0; c < N_CODES; c++) {
        char text[4];
        size_t length;
        if (is_surrogate(c))
            continue;
        size_t k = ob_utf8_encode(c, text);
        assert_int_equal(ob_utf8_decode(text, k, &length), c);
        assert_int_equal(length, k);
    }
}

static void test_utf8_table_3_11(void **state)
{
    /* Unicode 15, table 3-11 and its neighbours: one U+FFFD for each maximal ill-formed part. */
    (void)state;
    static const struct {
        const char *bytes, *text;
    } cases[] = {
        {"\xe1\x80\xe2\xf0\x91\x92\xf1\xbf\x41", "????A"},
        {"\xc0\xaf\xe0\x80\xbf\xf0\x81\x82\x41", "????????A"},
        {"\xed\xa0\x80\xed\xbf\xbf\xed\xaf\x41", "????????A"},
        {"\xf4\x91\x92\x93\xff\x41\x80\xbf\x42", "?????A??B"},
        {"\xe2\x82", "?"},
        {"\xf0\x9f\x98", "?"},
        {"\xf0\x9f\x98\xf0\x9f\x98\x8a", "?\xf0\x9f\x98\x8a"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct ob_utf8_stream stream = {0};
        char out[64], expected[64];
        size_t n = 0;
        for (const char *t = cases[i].text; *t; t++) {
            if (*t == '?')
                memcpy(expected + n, "\xef\xbf\xbd", 3);
            else
                expected[n] = *t;
            n += *t == '?' ? 3 : 1;
        }
        size_t got =
            ob_utf8_stream_bytes(&stream, cases[i].bytes, strlen(cases[i].bytes), out, sizeof out);
        got += ob_utf8_stream_finish(&stream, out + got, sizeof out - got);
        assert_int_equal(got, n);
        assert_memory_equal(out, expected, n);
        assert_int_equal(stream.n_held, 0);
    }
}

/* Text with U+FFFD for each ill-formed part, by the reference. */
static size_t reference_text(const unsigned char *s, size_t n, char *out)
{
    size_t used = 0, length;
    for (size_t at = 0; at < n; at += length) {
        bool ok = reference_decode(s + at, n - at, &length) == 0;
        memcpy(out + used, ok ? (const char *)s + at : "\xef\xbf\xbd", ok ? length : 3);
        used += ok ? length : 3;
    }
    return used;
}

static void test_utf8_stream(void **state)
{
    (void)state;
    static const unsigned char pool[] = {0x41, 0x80, 0x8a, 0x98, 0x9f, 0x9f, 0xa0,
                                         0xbf, 0xc2, 0xc3, 0xe2, 0x82, 0xac, 0xed,
                                         0xf0, 0xf0, 0xf4, 0xff, 0xe0, 0x90};
    uint64_t seed = 0xabc;
    for (int round = 0; round < 100000; round++) {
        unsigned char bytes[24];
        char expected[3 * sizeof bytes], out[3 * (sizeof bytes + 3)];
        size_t n = next_random(&seed) % (sizeof bytes + 1), used = 0, at = 0;
        for (size_t i = 0; i < n; i++)
            bytes[i] = pool[next_random(&seed) % sizeof pool];
        size_t n_expected = reference_text(bytes, n, expected);
        struct ob_utf8_stream stream = {0};
        while (at < n) {
            size_t step = 1 + next_random(&seed) % 5;
            step = step > n - at ? n - at : step;
            size_t got = ob_utf8_stream_bytes(&stream, (char *)bytes + at, step, out + used,
                                              sizeof out - used);
            assert_true(got <= 3 * (step + 3));
            used += got;
            at += step;
        }
        used += ob_utf8_stream_finish(&stream, out + used, sizeof out - used);
        assert_int_equal(used, n_expected);
        assert_memory_equal(out, expected, used);
        /* with too little room: whole characters of the same text, as many as fit */
        size_t room = next_random(&seed) % (sizeof out);
        stream = (struct ob_utf8_stream){0};
        size_t cut = ob_utf8_stream_bytes(&stream, (char *)bytes, n, out, room);
        assert_true(cut <= room && cut <= n_expected);
        assert_memory_equal(out, expected, cut);
        assert_true(cut == n_expected || (expected[cut] & 0xc0) != 0x80);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_classes_pcre), cmocka_unit_test(test_classes_utf8proc),
        cmocka_unit_test(test_white_space),  cmocka_unit_test(test_nfc_every_code_point),
        cmocka_unit_test(test_nfc_pairs),    cmocka_unit_test(test_nfc_hangul),
        cmocka_unit_test(test_nfc_random),   cmocka_unit_test(test_nfc_ill_formed),
        cmocka_unit_test(test_nfc_long_run), cmocka_unit_test(test_pretokens_random),
        cmocka_unit_test(test_utf8_decode),  cmocka_unit_test(test_utf8_table_3_11),
        cmocka_unit_test(test_utf8_stream),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
