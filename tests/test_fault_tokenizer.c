/* Every allocation of the tokenizer fails once: creation and encoding report it, leak nothing, and
 * leave the caller's ids alone. */
#include "support/check.h"
#include "support/fault.h"
#include "support/toy_vocab.h"

#include <stdlib.h>

static struct toy_vocab *make_vocab(void)
{
    struct toy_vocab *toy = malloc(sizeof *toy);
    assert_non_null(toy);
    toy_init(toy, OB_PRE_QWEN35);
    toy_add(toy, "<x>", OB_TOKEN_CONTROL);
    toy_add(toy, "aa", OB_TOKEN_NORMAL);
    toy_merge(toy, "a a");
    return toy;
}

static void test_create(void **state)
{
    (void)state;
    struct toy_vocab *toy = make_vocab();
    size_t n = 1;
    for (;; n++) {
        struct ob_tokenizer *tokenizer = NULL;
        struct ob_error err = {0};
        fault_arm(FAULT_ALLOC, n);
        ob_status status = ob_tokenizer_create(&toy->vocab, &tokenizer, &err);
        bool failed = fault_disarm();
        CHECK(status == (failed ? OB_NO_MEMORY : OB_OK), "allocation %zu: status %d", n,
              (int)status);
        if (!failed) {
            ob_tokenizer_destroy(tokenizer);
            break;
        }
        assert_int_equal(err.status, OB_NO_MEMORY);
        assert_null(tokenizer);
    }
    assert_true(n > 5);
    free(toy);
}

/* Text for every kind of working memory: cache, NFC with a long run of marks, a long word. */
static size_t make_text(char *text, size_t capacity)
{
    size_t n = 0;
    while (n < capacity / 4)
        text[n++] = 'a';
    memcpy(text + n, "<x>e", 4);
    n += 4;
    for (int i = 0; i < 60; i++, n += 4)
        memcpy(text + n, "\xcc\x81\xcc\xa3", 4);
    while (n + 2 <= capacity) {
        memcpy(text + n, " b", 2);
        n += 2;
    }
    return n;
}

static void test_encode(void **state)
{
    (void)state;
    struct toy_vocab *toy = make_vocab();
    struct ob_tokenizer *tokenizer = NULL;
    struct ob_error err = {0};
    char text[2000];
    size_t n_text = make_text(text, sizeof text), n = 1, n_ids = 0;
    CHECK_OK(ob_tokenizer_create(&toy->vocab, &tokenizer, &err), err);
    for (;; n++) {
        struct ob_ids ids = {0};
        CHECK_OK(ob_tokenizer_encode(tokenizer, "aab", 3, true, &ids, &err), err);
        assert_int_equal(ids.len, 2);
        fault_arm(FAULT_ALLOC, n);
        ob_status status = ob_tokenizer_encode(tokenizer, text, n_text, true, &ids, &err);
        bool failed = fault_disarm();
        CHECK(status == (failed ? OB_NO_MEMORY : OB_OK), "allocation %zu: status %d", n,
              (int)status);
        assert_int_equal(ids.data[0], 257);
        assert_int_equal(ids.data[1], 'b');
        n_ids = ids.len;
        free(ids.data);
        if (!failed)
            break;
        assert_int_equal(err.status, OB_NO_MEMORY);
        assert_int_equal(n_ids, 2);
    }
    assert_true(n > 8);
    assert_true(n_ids > 500);
    ob_tokenizer_destroy(tokenizer);
    free(toy);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_create),
        cmocka_unit_test(test_encode),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
