/* The tokenizer against the answers of HF `tokenizers` (tests/data/tokenizer_golden.json), against
 * a merge loop written the slow way, and on vocabularies made to be awkward. */
#include "support/check.h"
#include "support/hf_tokenizer.h"
#include "support/pcre_split.h"
#include "support/toy_vocab.h"

#include "text/unicode.h"
#include "text/utf8.h"

#include <jansson.h>
#include <stdlib.h>

struct fixture {
    struct hf_tokenizer hf;
    struct ob_tokenizer *tokenizer;
    json_t *golden;
};

static int set_up(void **state)
{
    struct fixture *fixture = calloc(1, sizeof *fixture);
    struct ob_error err;
    json_error_t error;
    assert_non_null(fixture);
    assert_true(hf_tokenizer_load(TEST_DATA "/tokenizer.json", OB_PRE_QWEN35, &fixture->hf));
    CHECK_OK(ob_tokenizer_create(&fixture->hf.vocab, &fixture->tokenizer, &err), err);
    fixture->golden = json_load_file(TEST_DATA "/tokenizer_golden.json", JSON_ALLOW_NUL, &error);
    assert_true(json_array_size(fixture->golden) > 40);
    *state = fixture;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *fixture = *state;
    ob_tokenizer_destroy(fixture->tokenizer);
    hf_tokenizer_free(&fixture->hf);
    json_decref(fixture->golden);
    free(fixture);
    return 0;
}

static struct ob_str text_of(json_t *row, const char *key)
{
    json_t *value = json_object_get(row, key);
    assert_true(json_is_string(value));
    return (struct ob_str){json_string_value(value), json_string_length(value)};
}

static struct ob_ids encode(const struct ob_tokenizer *tokenizer, struct ob_str text, bool special)
{
    struct ob_ids ids = {0};
    struct ob_error err;
    CHECK_OK(ob_tokenizer_encode(tokenizer, text.ptr, text.len, special, &ids, &err), err);
    return ids;
}

static void check_ids(const struct ob_tokenizer *tokenizer, struct ob_str text, bool special,
                      const int32_t *expected, size_t n)
{
    struct ob_ids ids = encode(tokenizer, text, special);
    for (size_t i = 0; i < n && i < ids.len; i++)
        CHECK(ids.data[i] == expected[i], "'%.*s': id %zu is %d, expected %d", OB_STR_ARG(text), i,
              (int)ids.data[i], (int)expected[i]);
    CHECK(ids.len == n, "'%.*s': %zu ids, expected %zu", OB_STR_ARG(text), ids.len, n);
    free(ids.data);
}

/* The bytes of ids, end to end; free() them. */
static struct ob_str decode(const struct ob_tokenizer *tokenizer, const struct ob_ids *ids)
{
    size_t n = 0;
    for (size_t i = 0; i < ids->len; i++)
        n += ob_tokenizer_bytes(tokenizer, ids->data[i]).len;
    char *text = malloc(n + 1);
    assert_non_null(text);
    n = 0;
    for (size_t i = 0; i < ids->len; i++) {
        struct ob_str bytes = ob_tokenizer_bytes(tokenizer, ids->data[i]);
        if (bytes.len > 0)
            memcpy(text + n, bytes.ptr, bytes.len);
        n += bytes.len;
    }
    return (struct ob_str){text, n};
}

static void check_decoded(const struct ob_tokenizer *tokenizer, const struct ob_ids *ids,
                          struct ob_str expected)
{
    struct ob_str text = decode(tokenizer, ids);
    CHECK(ob_str_equal(text, expected), "decoded '%.*s', expected '%.*s'", OB_STR_ARG(text),
          OB_STR_ARG(expected));
    free((char *)(uintptr_t)text.ptr);
}

/* ------------------------------------------------------------------------------------- golden */

static void test_golden(void **state)
{
    const struct fixture *fixture = *state;
    size_t i;
    json_t *row;
    json_array_foreach(fixture->golden, i, row)
    {
        json_t *list = json_object_get(row, "ids");
        struct ob_ids ids = {0};
        size_t n = json_array_size(list);
        ids.data = calloc(n + 1, sizeof *ids.data);
        assert_non_null(ids.data);
        for (; ids.len < n; ids.len++)
            ids.data[ids.len] = (int32_t)json_integer_value(json_array_get(list, ids.len));
        check_ids(fixture->tokenizer, text_of(row, "text"), true, ids.data, n);
        check_decoded(fixture->tokenizer, &ids, text_of(row, "decoded"));
        free(ids.data);
    }
}

static void test_golden_streamed(void **state)
{
    const struct fixture *fixture = *state;
    size_t i;
    json_t *row;
    json_array_foreach(fixture->golden, i, row)
    {
        struct ob_str expected = text_of(row, "decoded");
        struct ob_ids ids = encode(fixture->tokenizer, text_of(row, "text"), true);
        struct ob_utf8_stream stream = {0};
        size_t used = 0;
        for (size_t k = 0; k < ids.len; k++) {
            struct ob_str bytes = ob_tokenizer_bytes(fixture->tokenizer, ids.data[k]);
            char out[3 * 256];
            assert_true(bytes.len + 3 <= 256);
            size_t n = ob_utf8_stream_bytes(&stream, bytes.ptr, bytes.len, out, sizeof out);
            /* equal to the text, so any U+FFFD is one of the text */
            assert_true(used + n <= expected.len);
            assert_memory_equal(out, expected.ptr + used, n);
            used += n;
        }
        assert_int_equal(used, expected.len);
        assert_int_equal(stream.n_held, 0);
        free(ids.data);
    }
}

/* The same strings cut by the qwen2 pattern; scripts with marks must come apart differently. */
static void test_golden_qwen2_splits(void **state)
{
    const struct fixture *fixture = *state;
    struct pcre_split qwen2 = pcre_split_new(pattern_qwen2);
    struct ob_nfc nfc = {0};
    size_t i, n_different = 0, n_must = 0;
    json_t *row;
    json_array_foreach(fixture->golden, i, row)
    {
        struct ob_str raw = text_of(row, "text"), text;
        bool different = false;
        assert_true(ob_nfc_normalize(&nfc, raw.ptr, raw.len, &text.ptr, &text.len));
        for (size_t at = 0; at < text.len;) {
            size_t n = ob_pretokenize_next(OB_PRE_QWEN2, text.ptr + at, text.len - at);
            CHECK(n == pcre_split_next(&qwen2, text.ptr, text.len, at), "'%.*s' at %zu",
                  OB_STR_ARG(text), at);
            different |= n != ob_pretokenize_next(OB_PRE_QWEN35, text.ptr + at, text.len - at);
            at += n;
        }
        n_different += different;
        bool must = strstr(raw.ptr, "\u0939\u093f") || strstr(raw.ptr, "\u0645\u064f") ||
                    strstr(raw.ptr, "\u0938\u094d");
        CHECK(different || !must, "'%.*s' splits alike", OB_STR_ARG(text));
        n_must += must;
    }
    assert_int_equal(n_must, 3);
    assert_true(n_different >= 4); /* the stacked marks as well */
    ob_nfc_free(&nfc);
    pcre_split_free(&qwen2);
}

/* ------------------------------------------------------------------------------- added tokens */

static void test_special_off(void **state)
{
    const struct fixture *fixture = *state;
    const struct ob_tokenizer *t = fixture->tokenizer;
    struct ob_str text = ob_str_from("<|im_start|>user<think>x</think><|im_end|>");
    int32_t start = ob_tokenizer_added_id(t, ob_str_from("<|im_start|>"));
    int32_t think = ob_tokenizer_added_id(t, ob_str_from("<think>"));
    assert_int_equal(ob_tokenizer_type(t, start), OB_TOKEN_CONTROL);
    assert_int_equal(ob_tokenizer_type(t, think), OB_TOKEN_USER_DEFINED);
    struct ob_ids with = encode(t, text, true), without = encode(t, text, false);
    assert_int_equal(with.data[0], start);
    int n_think = 0;
    for (size_t i = 0; i < without.len; i++) {
        assert_int_not_equal(ob_tokenizer_type(t, without.data[i]), OB_TOKEN_CONTROL);
        n_think += without.data[i] == think;
    }
    assert_int_equal(n_think, 1);
    check_decoded(t, &with, text);
    check_decoded(t, &without, text);
    free(with.data);
    free(without.data);
    assert_int_equal(ob_tokenizer_added_id(t, ob_str_from("user")), -1);
    assert_int_equal(ob_tokenizer_added_id(t, ob_str_from("")), -1);
    assert_int_equal(ob_tokenizer_added_id(t, ob_str_from("<|im_start|")), -1);
}

static struct ob_tokenizer *create(const struct ob_vocab *vocab)
{
    struct ob_tokenizer *tokenizer = NULL;
    struct ob_error err;
    CHECK_OK(ob_tokenizer_create(vocab, &tokenizer, &err), err);
    return tokenizer;
}

static void test_added_overlaps(void **state)
{
    (void)state;
    struct toy_vocab *toy = malloc(sizeof *toy);
    assert_non_null(toy);
    toy_init(toy, OB_PRE_QWEN2);
    enum { A = 256, AB, ABCD, BC, CTRL, CTRL_LONG, WIDE };
    assert_int_equal(toy_add(toy, "<a", OB_TOKEN_USER_DEFINED), A);
    toy_add(toy, "<ab", OB_TOKEN_USER_DEFINED);
    toy_add(toy, "<abcd", OB_TOKEN_USER_DEFINED);
    toy_add(toy, "bc", OB_TOKEN_USER_DEFINED);
    toy_add(toy, "<c", OB_TOKEN_CONTROL);
    toy_add(toy, "<ab!", OB_TOKEN_CONTROL);
    toy_add(toy, "e\u0301", OB_TOKEN_USER_DEFINED);
    struct ob_tokenizer *t = create(&toy->vocab);
    struct {
        const char *text;
        bool special;
        int32_t ids[8];
        size_t n;
    } cases[] = {
        {"<abcd", true, {ABCD}, 1},
        {"<abce", true, {AB, 'c', 'e'}, 3}, /* the longest at the leftmost start, not "bc" */
        {"<abc", true, {AB, 'c'}, 2},
        {"<ax", true, {A, 'x'}, 2},
        {"bcbc<a<a", true, {BC, BC, A, A}, 4},
        {"<<a", true, {'<', A}, 2},
        {"<", true, {'<'}, 1},
        {"<c<ab!", true, {CTRL, CTRL_LONG}, 2},
        {"<c<ab!", false, {'<', 'c', AB, '!'}, 4},
        {"<cbc", false, {'<', 'c', BC}, 3},
        {"e\u0301", true, {WIDE}, 1}, /* matched before NFC */
        {"\u00e9", true, {0xc3, 0xa9}, 2},
        {"e\u0301e", true, {WIDE, 'e'}, 2},
        {"", true, {0}, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        check_ids(t, ob_str_from(cases[i].text), cases[i].special, cases[i].ids, cases[i].n);
    ob_tokenizer_destroy(t);
    free(toy);
}

/* A mark after an added token must not compose with the text before it. */
static void test_nfc_stays_within_pieces(void **state)
{
    (void)state;
    struct toy_vocab *toy = malloc(sizeof *toy);
    assert_non_null(toy);
    toy_init(toy, OB_PRE_QWEN35);
    int32_t x = toy_add(toy, "<x>", OB_TOKEN_USER_DEFINED);
    struct ob_tokenizer *t = create(&toy->vocab);
    const int32_t apart[] = {'e', x, 0xcc, 0x81}, joined[] = {0xc3, 0xa9, x};
    check_ids(t, ob_str_from("e<x>\u0301"), false, apart, 4);
    check_ids(t, ob_str_from("e\u0301<x>"), false, joined, 3);
    ob_tokenizer_destroy(t);
    free(toy);
}

/* -------------------------------------------------------------------------------- vocabularies */

static void expect_failure(const struct toy_vocab *toy, ob_status status, const char *part)
{
    struct ob_error err = {0};
    struct ob_tokenizer *tokenizer = NULL;
    ob_status got = ob_tokenizer_create(&toy->vocab, &tokenizer, &err);
    CHECK(got == status, "status %d, '%s'", (int)got, err.message);
    assert_int_equal(err.status, status);
    CHECK(strstr(err.message, part), "'%s' lacks '%s'", err.message, part);
    assert_null(tokenizer);
    assert_int_equal(ob_tokenizer_create(&toy->vocab, &tokenizer, NULL), status);
}

static void test_refused(void **state)
{
    (void)state;
    struct toy_vocab *toy = malloc(sizeof *toy);
    assert_non_null(toy);
    toy_init(toy, OB_PRE_QWEN2);
    toy->types[65] = OB_TOKEN_UNUSED;
    expect_failure(toy, OB_BAD_FILE, "0x41");
    toy_init(toy, OB_PRE_QWEN2);
    toy_merge(toy, "a b");
    expect_failure(toy, OB_BAD_FILE, "merge 0, 'a b', makes a token");
    toy_add(toy, "ab", OB_TOKEN_UNUSED);
    expect_failure(toy, OB_BAD_FILE, "merge 0");
    toy->types[256] = OB_TOKEN_NORMAL;
    toy_merge(toy, "ab zz");
    expect_failure(toy, OB_BAD_FILE, "merge 1, 'ab zz', has a part");
    static const char *const broken[] = {"ab", "", " ab", "ab ", " ", "a b c"};
    for (size_t i = 0; i < sizeof broken / sizeof *broken; i++) {
        toy->merges[1] = ob_str_from(broken[i]);
        expect_failure(toy, OB_BAD_FILE, "merge 1");
    }
    toy_init(toy, OB_PRE_QWEN2);
    toy_add(toy, "<x>", OB_TOKEN_CONTROL);
    toy_add(toy, "<y>", OB_TOKEN_CONTROL);
    toy_add(toy, "<x>", OB_TOKEN_USER_DEFINED);
    expect_failure(toy, OB_BAD_FILE, "256 and 258 are both '<x>'");
    toy_init(toy, OB_PRE_QWEN2);
    toy_add(toy, "x", 7);
    expect_failure(toy, OB_BAD_FILE, "token 256 has type 7");
    toy->types[256] = OB_TOKEN_BYTE;
    expect_failure(toy, OB_UNSUPPORTED, "token 256");
    toy->types[256] = 0;
    expect_failure(toy, OB_BAD_FILE, "token 256");
    toy_init(toy, (enum ob_pretokenizer)9);
    expect_failure(toy, OB_UNSUPPORTED, "9");
    toy_init(toy, OB_PRE_QWEN2);
    toy->vocab.n_tokens = 0;
    expect_failure(toy, OB_BAD_FILE, "0x00");
    free(toy);
}

/* Padding as real files have it: repeated, empty, unused; and equal normal tokens. */
static void test_padding_and_repeats(void **state)
{
    (void)state;
    struct toy_vocab *toy = malloc(sizeof *toy);
    assert_non_null(toy);
    toy_init(toy, OB_PRE_QWEN2);
    int32_t unused = toy_add(toy, "[PAD]", OB_TOKEN_UNUSED);
    toy_add(toy, "[PAD]", OB_TOKEN_UNUSED);
    int32_t unknown = toy_add(toy, "<unk>", OB_TOKEN_UNKNOWN);
    int32_t empty = toy_add(toy, "", OB_TOKEN_NORMAL);
    toy_add(toy, "", OB_TOKEN_NORMAL);
    toy_add(toy, "", OB_TOKEN_CONTROL);
    toy_add(toy, "", OB_TOKEN_CONTROL);
    int32_t first = toy_add(toy, "ab", OB_TOKEN_NORMAL);
    int32_t again = toy_add(toy, "ab", OB_TOKEN_NORMAL);
    int32_t plain = toy_add(toy, "two words", OB_TOKEN_NORMAL); /* no spelling: itself */
    int32_t odd = toy_add(toy, "\u0120\xff", OB_TOKEN_NORMAL);
    toy_merge(toy, "a b");
    toy->tokens[empty] = (struct ob_str){NULL, 0};
    struct ob_tokenizer *t = create(&toy->vocab);
    check_ids(t, ob_str_from("ab"), true, &first, 1);
    const int32_t pad[] = {'[', 'P', 'A', 'D', ']'};
    check_ids(t, ob_str_from("[PAD]"), true, pad, 5);
    assert_true(ob_str_is(ob_tokenizer_bytes(t, again), "ab"));
    assert_true(ob_str_is(ob_tokenizer_bytes(t, plain), "two words"));
    assert_true(ob_str_is(ob_tokenizer_bytes(t, odd), "\u0120\xff"));
    const int32_t silent[] = {unused, unknown, -1, INT32_MIN, odd + 1, INT32_MAX};
    for (size_t i = 0; i < sizeof silent / sizeof *silent; i++) {
        struct ob_str bytes = ob_tokenizer_bytes(t, silent[i]);
        assert_true(bytes.len == 0 && !bytes.ptr);
    }
    assert_int_equal(ob_tokenizer_bytes(t, empty).len, 0);
    assert_int_equal(ob_tokenizer_type(t, odd + 1), OB_TOKEN_UNUSED);
    assert_int_equal(ob_tokenizer_type(t, unknown), OB_TOKEN_UNKNOWN);
    assert_int_equal(ob_tokenizer_n_tokens(t), (size_t)odd + 1);
    ob_tokenizer_destroy(t);
    ob_tokenizer_destroy(NULL);
    free(toy);
}

static void test_every_byte_spells(void **state)
{
    (void)state;
    for (int byte = 0; byte < 256; byte++) {
        char spelled[2], out[2];
        size_t n = ob_byte_level_spell((unsigned char)byte, spelled);
        assert_int_equal(ob_byte_level_read((struct ob_str){spelled, n}, out), 1);
        assert_int_equal((unsigned char)out[0], byte);
    }
    char out[8];
    assert_int_equal(ob_byte_level_read(ob_str_from("\u0120a\u010a\u0143\u0142"), out), 5);
    assert_memory_equal(out, " a\n\xad\xa0", 5);
    assert_int_equal(ob_byte_level_read(ob_str_from("\u0144"), out), 2); /* one past the last */
    assert_memory_equal(out, "\u0144", 2);
}

/* ------------------------------------------------------------------------------------- merging */

struct slow_merge {
    int32_t left, right, result;
};

static int32_t slow_find(const struct ob_vocab *vocab, const char *text, size_t n)
{
    for (size_t i = 0; i < vocab->n_tokens; i++)
        if (vocab->types[i] == OB_TOKEN_NORMAL &&
            ob_str_equal(vocab->tokens[i], (struct ob_str){text, n}))
            return (int32_t)i;
    return -1;
}

static struct slow_merge *slow_merges(const struct ob_vocab *vocab)
{
    struct slow_merge *merges = calloc(vocab->n_merges + 1, sizeof *merges);
    assert_non_null(merges);
    for (size_t i = 0; i < vocab->n_merges; i++) {
        struct ob_str m = vocab->merges[i];
        char joined[512];
        assert_true(m.len < sizeof joined);
        size_t left = (size_t)((const char *)memchr(m.ptr, ' ', m.len) - m.ptr);
        memcpy(joined, m.ptr, left);
        memcpy(joined + left, m.ptr + left + 1, m.len - left - 1);
        merges[i] = (struct slow_merge){slow_find(vocab, m.ptr, left),
                                        slow_find(vocab, m.ptr + left + 1, m.len - left - 1),
                                        slow_find(vocab, joined, m.len - 1)};
    }
    return merges;
}

/* The definition: while some merge applies, take the first in the list, at its leftmost place. */
static size_t slow_word(const struct slow_merge *merges, size_t n_merges, int32_t *ids, size_t n)
{
    for (size_t rank = 0; rank < n_merges;) {
        size_t i = 0;
        while (i + 1 < n && (ids[i] != merges[rank].left || ids[i + 1] != merges[rank].right))
            i++;
        if (i + 1 >= n) {
            rank++;
            continue;
        }
        ids[i] = merges[rank].result;
        memmove(ids + i + 1, ids + i + 2, (n - i - 2) * sizeof *ids);
        n--;
        rank = 0;
    }
    return n;
}

static void check_random_words(const struct ob_vocab *vocab, const char *letters, int rounds,
                               size_t most)
{
    struct ob_tokenizer *t = create(vocab);
    struct slow_merge *merges = slow_merges(vocab);
    int32_t byte_ids[256];
    for (int i = 0; i < 256; i++) {
        char spelled[2];
        byte_ids[i] = slow_find(vocab, spelled, ob_byte_level_spell((unsigned char)i, spelled));
    }
    uint64_t seed = 99;
    for (int round = 0; round < rounds; round++) {
        char word[256];
        int32_t expected[256];
        assert_true(most < sizeof word);
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        size_t n = 1 + (size_t)(seed >> 33) % most;
        for (size_t i = 0; i < n; i++) {
            seed = seed * 6364136223846793005u + 1442695040888963407u;
            word[i] = letters[(seed >> 33) % strlen(letters)];
            expected[i] = byte_ids[(unsigned char)word[i]];
        }
        size_t n_expected = slow_word(merges, vocab->n_merges, expected, n);
        check_ids(t, (struct ob_str){word, n}, false, expected, n_expected);
    }
    free(merges);
    ob_tokenizer_destroy(t);
}

static void test_merges_slowly(void **state)
{
    const struct fixture *fixture = *state;
    check_random_words(&fixture->hf.vocab, "esrtinoalx", 400, 80);
    check_random_words(&fixture->hf.vocab, "x", 100, 250);
    check_random_words(&fixture->hf.vocab, "selfreturn", 400, 20);
}

/* Merges whose results take part in earlier ones, and chains that undo each other's order. */
static void test_merges_out_of_order(void **state)
{
    (void)state;
    struct toy_vocab *toy = malloc(sizeof *toy);
    assert_non_null(toy);
    toy_init(toy, OB_PRE_QWEN35);
    static const char *const tokens[] = {"aa",   "aaa", "ab",  "aab", "aaab",
                                         "abab", "ba",  "baa", "bb"};
    for (size_t i = 0; i < sizeof tokens / sizeof *tokens; i++)
        toy_add(toy, tokens[i], OB_TOKEN_NORMAL);
    static const char *const merges[] = {"aa b", "aa a", "ab ab", "b a", "a a",
                                         "ba a", "a b",  "a aab", "b b"};
    for (size_t i = 0; i < sizeof merges / sizeof *merges; i++)
        toy_merge(toy, merges[i]);
    check_random_words(&toy->vocab, "ab", 3000, 30);
    check_random_words(&toy->vocab, "ab", 3000, 200);
    check_random_words(&toy->vocab, "aab", 1000, 200);
    /* the same pair twice: the later rank holds */
    toy_init(toy, OB_PRE_QWEN35);
    int32_t ab = toy_add(toy, "ab", OB_TOKEN_NORMAL), bc = toy_add(toy, "bc", OB_TOKEN_NORMAL);
    toy_merge(toy, "a b");
    toy_merge(toy, "b c");
    toy_merge(toy, "a b");
    struct ob_tokenizer *t = create(&toy->vocab);
    const int32_t expected[] = {'a', bc}, other[] = {ab, 'a'};
    check_ids(t, ob_str_from("abc"), false, expected, 2);
    check_ids(t, ob_str_from("aba"), false, other, 2);
    ob_tokenizer_destroy(t);
    free(toy);
}

/* ------------------------------------------------------------------------------------ any bytes */

static void test_ill_formed(void **state)
{
    const struct fixture *fixture = *state;
    uint64_t seed = 5;
    for (int round = 0; round < 20000; round++) {
        char text[40];
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        size_t n = (size_t)(seed >> 33) % sizeof text;
        for (size_t i = 0; i < n; i++) {
            seed = seed * 6364136223846793005u + 1442695040888963407u;
            /* no lead byte of two or more, so nothing that NFC could change */
            text[i] = (char)(seed >> 40 & 1 ? 0x80 | (seed >> 33 & 0x3f) : seed >> 33 & 0x7f);
        }
        struct ob_ids ids = encode(fixture->tokenizer, (struct ob_str){text, n}, round & 1);
        check_decoded(fixture->tokenizer, &ids, (struct ob_str){text, n});
        free(ids.data);
    }
}

/* Word i of a text for the word cache: few and frequent, alike in their first bytes (so many that
 * they meet in the cache), or alike but for a final NUL. */
static struct ob_str cache_word(uint64_t random, char *buffer)
{
    static const struct ob_str words[] = {
        {" self", 5}, {" returned", 9}, {" \u65e5\u672c", 7}, {" a", 2},
        {" !!", 3},   {" !!\0", 4},     {" !!\0\0", 5},       {" extraordinarilylongwordhere", 28}};
    if (random & 1)
        return words[(random >> 1) % 8];
    static const char prefix[] = " prefixxxprefixxx";
    size_t n = random & 2 ? 9 : 17;
    memcpy(buffer, prefix, n);
    for (int i = 0; i < 3; i++)
        buffer[n++] = (char)('a' + (random >> (8 + 8 * i)) % 26);
    return (struct ob_str){buffer, n};
}

/* Long enough for the word cache: the same as the words one by one. */
static void test_cache_changes_nothing(void **state)
{
    const struct fixture *fixture = *state;
    enum { N_WORDS = 40000 };
    struct ob_ids expected = {0}, got = {0};
    char *text = malloc(32 * N_WORDS), buffer[32];
    assert_non_null(text);
    size_t n = 0;
    uint64_t seed = 3;
    for (int i = 0; i < N_WORDS; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        struct ob_str word = cache_word(seed >> 24, buffer);
        memcpy(text + n, word.ptr, word.len);
        n += word.len;
        assert_int_equal(
            ob_tokenizer_encode(fixture->tokenizer, word.ptr, word.len, false, &expected, NULL),
            OB_OK);
    }
    got = encode(fixture->tokenizer, (struct ob_str){text, n}, false);
    assert_int_equal(got.len, expected.len);
    assert_memory_equal(got.data, expected.data, got.len * sizeof *got.data);
    free(got.data);
    free(expected.data);
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_golden),
        cmocka_unit_test(test_golden_streamed),
        cmocka_unit_test(test_golden_qwen2_splits),
        cmocka_unit_test(test_special_off),
        cmocka_unit_test(test_added_overlaps),
        cmocka_unit_test(test_nfc_stays_within_pieces),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_padding_and_repeats),
        cmocka_unit_test(test_every_byte_spells),
        cmocka_unit_test(test_merges_slowly),
        cmocka_unit_test(test_merges_out_of_order),
        cmocka_unit_test(test_ill_formed),
        cmocka_unit_test(test_cache_changes_nothing),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
