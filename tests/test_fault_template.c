/* Every allocation of the template language fails once: compiling, rendering, conversations and
 * their ids report it and leak nothing. */
#include "support/check.h"
#include "support/fault.h"
#include "support/toy_vocab.h"

#include "text/chat.h"

#include <stdlib.h>

static const char source[] =
    "{% set ns = namespace(n=0, text='') %}{% macro m(a, b=2, c='x') %}{{ a }}{{ varargs }}"
    "{{ kwargs }}{{ caller() if caller }}{% endmacro %}"
    "{% for m in messages if m.role %}{% set ns.n = ns.n + 1 %}"
    "{% set ns.text = ns.text + m.content | upper + loop.length ~ loop.nextitem %}"
    "<|{{ m.role }}|>{{ m.content.split(',') | map('trim') | list | tojson(indent=2) }}"
    "{{ m.content.replace('a', 'bb') | indent(2) }}{% endfor %}"
    "{{ {'a': [1, 2.5, none], 'b': messages} }}{{ [3, 1, 2] | sort | join(',') }}"
    "{{ messages | groupby('role') | list | length }}{{ {'b': 1, 'a': 2} | dictsort }}"
    "{{ messages | selectattr('role', 'equalto', 'user') | map(attribute='content') | first }}"
    "{% call m(1, 2, 3, 4, d=5) %}{{ '%s %5d' % ('x', 3) }}{% endcall %}"
    "{% set b | upper %}block{% endset %}{{ b[1:3] ~ b[::-1] }}{{ '<' | e + '<' }}"
    "{{ strftime_now('%c') }}{{ (1 if false) ~ missing }}{{ 'é'.title() }}"
    "{{ '{}'.format(1) }}{{ range(3) | batch(2) | list }}{{ ' a b '.rsplit() }}{{ ns.text }}";

static struct ob_value make_messages(struct ob_heap *heap)
{
    struct ob_value messages = {.kind = OB_VALUE_NONE};
    for (int i = 0; i < 3; i++)
        assert_true(ob_chat_add(heap, &messages, ob_str_from(i & 1 ? "assistant" : "user"),
                                ob_str_from("a, b\nc"), ob_str_from("thought")));
    return messages;
}

static void test_compile(void **state)
{
    size_t n = 1;
    (void)state;
    for (;; n++) {
        struct ob_template *tpl = NULL;
        struct ob_error err = {0};
        fault_arm(FAULT_ALLOC, n);
        ob_status status = ob_template_compile(source, sizeof source - 1, &tpl, &err);
        bool failed = fault_disarm();
        CHECK(status == (failed ? OB_NO_MEMORY : OB_OK), "allocation %zu: %s", n, err.message);
        if (!failed) {
            ob_template_destroy(tpl);
            break;
        }
        assert_null(tpl);
        assert_int_equal(err.status, OB_NO_MEMORY);
    }
    assert_true(n > 5);
}

/* One render and encode; true when it was told to fail. */
static bool render_once(const struct ob_template *tpl, const struct ob_value *messages,
                        const struct ob_tokenizer *tokenizer, size_t n)
{
    struct ob_rendered out = {0};
    struct ob_ids ids = {0};
    struct ob_error err = {0};
    fault_arm(FAULT_ALLOC, n);
    ob_status status = ob_chat_render(tpl, messages, NULL, NULL, &out, &err);
    if (status == OB_OK)
        status = ob_chat_encode(tokenizer, &out, &ids, &err);
    bool failed = fault_disarm();
    CHECK(status == (failed ? OB_NO_MEMORY : OB_OK), "allocation %zu: %s", n, err.message);
    free(ids.data);
    ob_rendered_free(&out);
    return failed;
}

static void test_render(void **state)
{
    struct ob_heap heap = {0};
    struct toy_vocab *toy = malloc(sizeof *toy);
    struct ob_template *tpl;
    struct ob_tokenizer *tokenizer;
    struct ob_error err;
    size_t n = 1;
    (void)state;
    assert_non_null(toy);
    toy_init(toy, OB_PRE_QWEN35);
    toy_add(toy, "<|user|>", OB_TOKEN_CONTROL);
    CHECK_OK(ob_tokenizer_create(&toy->vocab, &tokenizer, &err), err);
    CHECK_OK(ob_template_compile(source, sizeof source - 1, &tpl, &err), err);
    struct ob_value messages = make_messages(&heap);
    while (render_once(tpl, &messages, tokenizer, n))
        n++;
    assert_true(n > 5);
    ob_heap_free(&heap);
    ob_template_destroy(tpl);
    ob_tokenizer_destroy(tokenizer);
    free(toy);
}

/* The same where system messages are folded, since the template refuses them. */
static void test_folded(void **state)
{
    static const char strict[] =
        "{% for m in messages %}{% if m.role == 'system' and not loop.first %}"
        "{{ raise_exception('late') }}{% endif %}<|{{ m.role }}|>{{ m.content }}{% endfor %}";
    const struct ob_str none = {NULL, 0};
    struct ob_heap heap = {0};
    struct ob_template *tpl;
    struct ob_error err;
    struct ob_value messages = make_messages(&heap);
    size_t n = 1;
    (void)state;
    for (int i = 0; i < 2; i++)
        assert_true(
            ob_chat_add(&heap, &messages, ob_str_from("system"), ob_str_from("text"), none));
    CHECK_OK(ob_template_compile(strict, sizeof strict - 1, &tpl, &err), err);
    for (bool failed = true; failed; n++) {
        struct ob_rendered out = {0};
        fault_arm(FAULT_ALLOC, n);
        ob_status status = ob_chat_render(tpl, &messages, NULL, NULL, &out, &err);
        failed = fault_disarm();
        CHECK(status == (failed ? OB_NO_MEMORY : OB_OK), "allocation %zu: %s", n, err.message);
        ob_rendered_free(&out);
    }
    assert_true(n > 5);
    ob_heap_free(&heap);
    ob_template_destroy(tpl);
}

/* The limit of a heap works as running out of memory does, at any size. */
static void test_memory_limit(void **state)
{
    struct ob_heap heap = {0};
    struct ob_template *tpl;
    struct ob_error err;
    struct ob_value messages = make_messages(&heap);
    (void)state;
    CHECK_OK(ob_template_compile(source, sizeof source - 1, &tpl, &err), err);
    bool fits = false;
    for (size_t limit = 1; !fits; limit += 37) {
        struct ob_chat_options options = {.template_options.limits.memory_bytes = limit};
        struct ob_rendered out = {0};
        ob_status status = ob_chat_render(tpl, &messages, NULL, &options, &out, &err);
        fits = status == OB_OK;
        CHECK(fits || status == OB_INVALID_ARGUMENT, "limit %zu: %s", limit, err.message);
        ob_rendered_free(&out);
    }
    ob_template_destroy(tpl);
    ob_heap_free(&heap);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_compile),
        cmocka_unit_test(test_render),
        cmocka_unit_test(test_folded),
        cmocka_unit_test(test_memory_limit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
