/* Encoding must stay near-linear on text made to hurt it. Times (of the processor, since the
 * machine may be busy) are compared with each other, with much room; at these sizes quadratic work
 * would take many seconds. Only the 10 kB word has a limit in milliseconds.
 *
 *     test_tokenizer_speed TOKENIZER.json FILE...   measure instead: bytes per second of each file */
#include "support/check.h"
#include "support/hf_tokenizer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SANITIZED 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__)
#define SANITIZED 1
#endif
#ifndef SANITIZED
#define SANITIZED 0
#endif

static const double max_10k_seconds = SANITIZED ? 0.5 : 0.05;

struct fixture {
    struct hf_tokenizer hf;
    struct ob_tokenizer *tokenizer;
};

static int set_up(void **state)
{
    struct fixture *fixture = calloc(1, sizeof *fixture);
    struct ob_error err;
    assert_non_null(fixture);
    assert_true(hf_tokenizer_load(TEST_DATA "/tokenizer.json", OB_PRE_QWEN35, &fixture->hf));
    CHECK_OK(ob_tokenizer_create(&fixture->hf.vocab, &fixture->tokenizer, &err), err);
    *state = fixture;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *fixture = *state;
    ob_tokenizer_destroy(fixture->tokenizer);
    hf_tokenizer_free(&fixture->hf);
    free(fixture);
    return 0;
}

/* Processor seconds for a text: best of three, since noise only adds. */
static double time_text(const struct ob_tokenizer *tokenizer, const char *text, size_t n)
{
    double best = 1e9;
    for (int round = 0; round < 3; round++) {
        struct ob_ids ids = {0};
        struct ob_error err;
        clock_t start = clock();
        CHECK_OK(ob_tokenizer_encode(tokenizer, text, n, true, &ids, &err), err);
        double seconds = (double)(clock() - start) / CLOCKS_PER_SEC;
        best = seconds < best ? seconds : best;
        free(ids.data);
    }
    return best;
}

/* The same for n bytes of `unit` over and over. */
static double time_repeated(const struct fixture *fixture, const char *unit, size_t n)
{
    size_t length = strlen(unit);
    char *text = malloc(n);
    assert_non_null(text);
    for (size_t i = 0; i < n; i++)
        text[i] = unit[i % length];
    double seconds = time_text(fixture->tokenizer, text, n);
    free(text);
    return seconds;
}

static void test_10k_of_one_letter(void **state)
{
    double seconds = time_repeated(*state, "x", 10000);
    CHECK(seconds < max_10k_seconds, "%.1f ms", 1e3 * seconds);
}

/* Twice the text may take 2 times as long, and a little more; quadratic would be 4. */
static void test_not_quadratic(void **state)
{
    static const char *const units[] = {"x",    " ",          "\n\r",         "e\u0301", "\u0301",
                                        "\xff", "<|im_start", "\u0301\u0323", "ab"};
    for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
        double half = time_repeated(*state, units[i], 200000);
        double whole = time_repeated(*state, units[i], 400000);
        CHECK(whole < 3.3 * half + 0.1, "'%s': %.1f ms, then %.1f ms", units[i], 1e3 * half,
              1e3 * whole);
    }
}

static void test_1m_of_one_letter(void **state)
{
    double small = time_repeated(*state, "x", 100000), large = time_repeated(*state, "x", 1000000);
    /* 10 times the text; 100 times if quadratic, and caches take their part */
    CHECK(large < 40 * small + 0.1, "%.1f ms, then %.1f ms", 1e3 * small, 1e3 * large);
}

static int measure(const char *json, char **paths)
{
    struct hf_tokenizer hf;
    struct ob_tokenizer *tokenizer;
    struct ob_error err;
    if (!hf_tokenizer_load(json, OB_PRE_QWEN2, &hf) ||
        ob_tokenizer_create(&hf.vocab, &tokenizer, &err) != OB_OK)
        return 1;
    for (; *paths; paths++) {
        FILE *file = fopen(*paths, "rb");
        if (!file || fseek(file, 0, SEEK_END) != 0) {
            perror(*paths);
            return 1;
        }
        size_t n = (size_t)ftell(file);
        char *text = malloc(n + 1);
        rewind(file);
        if (!text || fread(text, 1, n, file) != n)
            return 1;
        fclose(file);
        double seconds = time_text(tokenizer, text, n);
        printf("%s: %zu bytes, %.2f ms, %.1f MB/s\n", *paths, n, 1e3 * seconds,
               (double)n / seconds / 1e6);
        free(text);
    }
    ob_tokenizer_destroy(tokenizer);
    hf_tokenizer_free(&hf);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc > 2)
        return measure(argv[1], argv + 2);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_10k_of_one_letter),
        cmocka_unit_test(test_not_quadratic),
        cmocka_unit_test(test_1m_of_one_letter),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
