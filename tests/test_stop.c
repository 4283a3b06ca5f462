/* The stop matcher against a search that sees the whole text at once, for every way to cut it. */
#include "support/check.h"
#include "support/rng.h"

#include <stdlib.h>
#include <string.h>

#include "sample/stop.h"

enum { MAX_TEXT = 256, MAX_STOPS = 5 };

static struct ob_stop *make(const char *const *strings, size_t n)
{
    struct ob_str list[MAX_STOPS] = {{0}};
    for (size_t i = 0; i < n; i++)
        list[i] = ob_str_from(strings[i]);
    struct ob_stop *stop;
    struct ob_error err = {0};
    CHECK_OK(ob_stop_create(list, n, &stop, &err), err);
    return stop;
}

/* Feed a text that does not match on the way; what comes out must be `want`. */
static void feed(struct ob_stop *stop, const char *text, const char *want)
{
    char out[MAX_TEXT];
    struct ob_stop_result r = ob_stop_feed(stop, text, strlen(text), out);
    CHECK(!r.matched && r.n_out == strlen(want) && memcmp(out, want, r.n_out) == 0,
          "\"%s\" gave \"%.*s\", want \"%s\"", text, (int)r.n_out, out, want);
    assert_int_equal(r.n_consumed, strlen(text));
}

static void finish(struct ob_stop *stop, const char *want)
{
    char out[MAX_TEXT];
    size_t n = ob_stop_finish(stop, out);
    CHECK(n == strlen(want) && memcmp(out, want, n) == 0, "\"%.*s\", want \"%s\"", (int)n, out,
          want);
}

static void test_holds_back(void **state)
{
    (void)state;
    struct ob_stop *stop = make((const char *const[]){"<|end|>", "\nUser:"}, 2);
    assert_int_equal(ob_stop_max_held(stop), 6);
    feed(stop, "a < b", "a < b");
    feed(stop, "<", "");
    feed(stop, "|en", "");
    feed(stop, "d<|", "<|end");
    feed(stop, "", "");
    feed(stop, "x\n", "<|x");
    feed(stop, "\nUse", "\n");
    finish(stop, "\nUse");
    finish(stop, "");
    /* As new: a match, where it is, which one, and what was read of the last piece. */
    feed(stop, "answer.\nUs", "answer.");
    char out[MAX_TEXT];
    for (int i = 0; i < 2; i++) {
        struct ob_stop_result r = ob_stop_feed(stop, "er: more", 8, out);
        assert_true(r.matched && r.index == 1 && r.offset == 7 && r.n_out == 0);
        assert_int_equal(r.n_consumed, i == 0 ? 3 : 0); /* nothing is read after a match */
    }
    finish(stop, "");
    feed(stop, "again", "again");
    ob_stop_reset(stop);
    struct ob_stop_result r = ob_stop_feed(stop, "ok<|end|>\nUser:", 15, out);
    assert_true(r.matched && r.index == 0 && r.offset == 2 && r.n_out == 2 && r.n_consumed == 9);
    assert_memory_equal(out, "ok", 2);
    ob_stop_destroy(stop);
}

static void test_which_one(void **state)
{
    (void)state;
    char out[MAX_TEXT];
    /* The one that ends first wins; of those that end together the longest; then the first. */
    struct ob_stop *stop = make((const char *const[]){"abcd", "bc", "abc", "abc"}, 4);
    struct ob_stop_result r = ob_stop_feed(stop, "xabcd", 5, out);
    assert_true(r.matched && r.index == 2 && r.offset == 1 && r.n_out == 1 && r.n_consumed == 4);
    ob_stop_destroy(stop);
    /* A prefix that falls back to a shorter one: a a a b in a a a a b. */
    stop = make((const char *const[]){"aaab"}, 1);
    feed(stop, "aaaa", "a");
    r = ob_stop_feed(stop, "b", 1, out);
    assert_true(r.matched && r.offset == 1 && r.n_out == 0);
    ob_stop_destroy(stop);
    /* One byte, and bytes that are no text. */
    stop = make((const char *const[]){"\xff"}, 1);
    assert_int_equal(ob_stop_max_held(stop), 0);
    r = ob_stop_feed(stop, "\x80\xfe\xff", 3, out);
    assert_true(r.matched && r.offset == 2 && r.n_out == 2);
    ob_stop_destroy(stop);
    /* A zero byte is a byte. */
    struct ob_str zero = {"a\0b", 3};
    struct ob_error err = {0};
    CHECK_OK(ob_stop_create(&zero, 1, &stop, &err), err);
    r = ob_stop_feed(stop, "a\0a\0b", 5, out);
    assert_true(r.matched && r.offset == 2 && r.n_out == 2);
    ob_stop_destroy(stop);
}

/* Characters arrive whole and leave whole, though the strings share their first bytes. */
static void test_utf8(void **state)
{
    (void)state;
    struct ob_stop *stop = make((const char *const[]){"\xe2\x82\xac\xe2\x82\xac"}, 1); /* 2 euros */
    feed(stop, "\xe2\x82\xad", "\xe2\x82\xad"); /* kip: the same first two bytes */
    feed(stop, "\xe2\x82\xac", "");
    feed(stop, "\xe2\x82\xad", "\xe2\x82\xac\xe2\x82\xad");
    feed(stop, "\xe2\x82\xac", "");
    finish(stop, "\xe2\x82\xac");
    ob_stop_destroy(stop);
}

static void test_none_and_refused(void **state)
{
    (void)state;
    struct ob_stop *stop = make(NULL, 0);
    assert_int_equal(ob_stop_max_held(stop), 0);
    feed(stop, "anything", "anything");
    finish(stop, "");
    ob_stop_destroy(stop);
    ob_stop_destroy(NULL);
    const struct ob_str empty[2] = {{"x", 1}, {"", 0}};
    struct ob_error err = {0};
    stop = NULL;
    assert_int_equal(ob_stop_create(empty, 2, &stop, &err), OB_INVALID_ARGUMENT);
    assert_string_equal(err.message, "stop string 2 is empty");
    assert_null(stop);
}

struct found {
    size_t end, start, index; /* end 0: none */
};

/* The first end, then the longest, then the first string. */
static struct found search(const struct ob_str *stops, size_t n_stops, const char *text, size_t n)
{
    for (size_t end = 1; end <= n; end++) {
        struct found best = {0};
        for (size_t i = 0; i < n_stops; i++)
            if (stops[i].len <= end &&
                memcmp(text + end - stops[i].len, stops[i].ptr, stops[i].len) == 0 &&
                (best.end == 0 || end - stops[i].len < best.start))
                best = (struct found){end, end - stops[i].len, i};
        if (best.end)
            return best;
    }
    return (struct found){0};
}

/* Bytes at the end of text [n] that begin a stop string. */
static size_t must_hold(const struct ob_str *stops, size_t n_stops, const char *text, size_t n)
{
    for (size_t held = n; held > 0; held--)
        for (size_t i = 0; i < n_stops; i++)
            if (held < stops[i].len && memcmp(text + n - held, stops[i].ptr, held) == 0)
                return held;
    return 0;
}

static void random_bytes(struct rng *rng, char *out, size_t n, size_t letters)
{
    for (size_t i = 0; i < n; i++)
        out[i] = (char)('a' + (int)rng_below(rng, letters));
}

static void test_random(void **state)
{
    (void)state;
    struct rng rng = {1};
    int n_matches = 0;
    for (int round = 0; round < 20000; round++) {
        char text[MAX_TEXT], strings[MAX_STOPS][12];
        struct ob_str stops[MAX_STOPS];
        size_t n = rng_below(&rng, 60), n_stops = rng_below(&rng, MAX_STOPS + 1);
        size_t letters = 2 + (size_t)(round % 2), passed = 0, at = 0, fed = 0;
        random_bytes(&rng, text, n, letters);
        for (size_t i = 0; i < n_stops; i++) {
            stops[i] = (struct ob_str){strings[i], 3 + rng_below(&rng, 9)};
            random_bytes(&rng, strings[i], stops[i].len, letters);
        }
        struct found want = search(stops, n_stops, text, n);
        struct ob_stop *stop;
        struct ob_error err = {0};
        CHECK_OK(ob_stop_create(stops, n_stops, &stop, &err), err);
        struct ob_stop_result r = {0};
        while (fed < n && !r.matched) {
            size_t piece = 1 + rng_below(&rng, n - fed);
            /* exactly as large as promised, so that a sanitizer sees one byte more */
            size_t room = piece + ob_stop_max_held(stop);
            char *out = malloc(room);
            assert_non_null(out);
            r = ob_stop_feed(stop, text + fed, piece, out);
            assert_true(r.n_out <= room && memcmp(out, text + passed, r.n_out) == 0);
            free(out);
            passed += r.n_out;
            at = fed + r.n_consumed;
            fed += piece;
            if (!r.matched)
                assert_int_equal(fed - passed, must_hold(stops, n_stops, text, fed));
        }
        CHECK(r.matched == (want.end > 0), "round %d", round);
        if (r.matched) {
            assert_true(at == want.end && passed == want.start && r.offset == want.start);
            assert_int_equal(r.index, want.index);
            n_matches++;
        } else {
            char out[16];
            size_t rest = ob_stop_finish(stop, out);
            assert_true(passed + rest == n && memcmp(out, text + passed, rest) == 0);
        }
        ob_stop_destroy(stop);
    }
    assert_true(n_matches > 5000 && n_matches < 19000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_holds_back), cmocka_unit_test(test_which_one),
        cmocka_unit_test(test_utf8),       cmocka_unit_test(test_none_and_refused),
        cmocka_unit_test(test_random),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
