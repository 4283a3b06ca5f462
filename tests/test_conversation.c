/* Conversations by their ids: what the second turn reads is what the first has read and written, then
 * what is new, however the first answer ended. */
#include <stdio.h>
#include <string.h>

#include "run/conversation.h"
#include "support/check.h"
#include "support/models.h"

enum { END = 8183, CLOSE_THOUGHT = 8189, MOST_IDS = 2048 }; /* of the demo model */

/* A small ChatML that forgets every thought, its scaffold too, as Qwen3's does. */
#define FORGETFUL(end)                                                                             \
    "{%- for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + m.content }}" end                \
    "{%- endfor %}"                                                                                \
    "{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}"                              \
    "{%- if enable_thinking %}{{ '<think>\\n' }}{% else %}{{ '<think>\\n\\n</think>\\n\\n' }}"     \
    "{%- endif %}{%- endif %}"

static struct ob_model *model;

static struct ob_conversation *begin_with(struct ob_conversation_options options,
                                          const char *template)
{
    struct ob_conversation *c;
    struct ob_error err;
    if (template)
        options.template_text = ob_str_from(template);
    CHECK_OK(ob_conversation_open(model, &options, &c, &err), err);
    return c;
}

static struct ob_conversation *begin(bool thinking, const char *template)
{
    return begin_with((struct ob_conversation_options){.thinking = thinking}, template);
}

static int take(void *context, const char *text, size_t n, bool reasoning)
{
    size_t *left = context; /* bytes after which the caller has had enough; NULL: never */
    (void)text;
    (void)reasoning;
    if (!left)
        return 0;
    *left -= n < *left ? n : *left;
    return *left == 0;
}

static struct ob_turn ask(struct ob_conversation *c, const char *text,
                          const struct ob_generate_options *options, size_t enough)
{
    struct ob_error err;
    struct ob_turn turn;
    CHECK_OK(ob_conversation_ask(c, ob_str_from(text), options, take, enough ? &enough : NULL,
                                 &turn, &err),
             err);
    return turn;
}

/* A copy of the ledger. */
struct ledger {
    int32_t ids[MOST_IDS];
    size_t n;
};

static void copy_ledger(const struct ob_conversation *c, struct ledger *to)
{
    to->n = ob_conversation_length(c);
    assert_in_range(to->n, 1, MOST_IDS);
    memcpy(to->ids, ob_conversation_ids(c), to->n * sizeof *to->ids);
}

static void check_begins(const struct ob_conversation *c, const struct ledger *first)
{
    assert_true(ob_conversation_length(c) > first->n);
    assert_memory_equal(ob_conversation_ids(c), first->ids, first->n * sizeof *first->ids);
}

/* The template forgot what was thought: the second prompt is its rendering, and the turn says so. */
static void check_forgotten(struct ob_conversation *c, const struct ledger *first)
{
    static char text[8192];
    static int32_t ids[MOST_IDS];
    struct ob_error err;
    struct ob_turn turn = ask(c, "Who are you?", NULL, 0);
    struct ob_said said = ob_conversation_turn(c, 0);
    size_t n;
    int n_bytes =
        snprintf(text, sizeof text,
                 "<|im_start|>user\nHello!<|im_end|>\n<|im_start|>assistant\n%.*s<|im_end|>\n"
                 "<|im_start|>user\nWho are you?<|im_end|>\n<|im_start|>assistant\n<think>\n",
                 (int)said.content.len, said.content.ptr);
    CHECK_OK(
        ob_tokenize(model, text, (size_t)n_bytes, OB_TOKENIZE_SPECIAL, ids, MOST_IDS, &n, &err),
        err);
    assert_true(turn.dropped_thought && !turn.kept_ids);
    assert_int_equal(turn.n_prompt, n);
    assert_memory_equal(ob_conversation_ids(c), ids, n * sizeof *ids);
    size_t common = 0;
    while (common < first->n && common < n && first->ids[common] == ids[common])
        common++;
    assert_int_equal(turn.sync.n_common, common);
    assert_true(common < first->n && turn.sync.n_reused <= common);
    ob_conversation_close(c);
}

static int n_forgotten;

/* Ask twice. The second prompt must be the first's ledger, the token that was written last and not
 * read, an end of the turn, and what the template says after it. Only where it forgets thoughts and
 * there was one, it is what the template says alone. */
static void check_two_turns(struct ob_conversation *c, bool forgets,
                            const struct ob_generate_options *options, size_t enough,
                            enum ob_finish finish)
{
    static struct ledger first;
    struct ob_turn turn = ask(c, "Hello!", options, enough);
    assert_int_equal(turn.result.finish, finish);
    assert_false(turn.kept_ids);
    copy_ledger(c, &first);
    assert_int_equal(first.n, turn.n_prompt + turn.result.n_tokens - 1);
    if (forgets && ob_conversation_turn(c, 0).reasoning.len > 0) {
        check_forgotten(c, &first);
        n_forgotten++;
        return;
    }

    turn = ask(c, "Who are you?", options, enough);
    assert_true(turn.kept_ids && !turn.dropped_thought);
    assert_int_equal(turn.sync.n_reused, first.n);
    assert_int_equal(turn.sync.n_common, first.n);
    check_begins(c, &first);
    assert_int_equal(ob_conversation_ids(c)[first.n + (finish != OB_FINISH_STOP)], END);
    ob_conversation_close(c);
}

static const char *const templates[] = {NULL, FORGETFUL("{{ '<|im_end|>\\n' }}")};

static void test_whole_answers(void **state)
{
    (void)state;
    for (int thinking = 0; thinking < 2; thinking++)
        for (int t = 0; t < 2; t++)
            check_two_turns(begin(thinking, templates[t]), t == 1, NULL, 0, OB_FINISH_STOP);
}

static void test_cut_answers(void **state)
{
    (void)state;
    struct ob_generate_options few = {0};
    for (int thinking = 0; thinking < 2; thinking++)
        for (few.max_tokens = 1; few.max_tokens < 5; few.max_tokens++)
            check_two_turns(begin(thinking, templates[few.max_tokens % 2]), few.max_tokens % 2 == 1,
                            &few, 0, OB_FINISH_LENGTH);
    assert_true(n_forgotten > 0); /* or the rule was never put to the test */
}

static void test_stopped_answers(void **state)
{
    (void)state;
    struct ob_string stop = {"o", 1};
    struct ob_generate_options options = {.stop = &stop, .n_stop = 1};
    for (int thinking = 0; thinking < 2; thinking++) {
        check_two_turns(begin(thinking, NULL), false, NULL, 4, OB_FINISH_CANCELLED);
        check_two_turns(begin(thinking, NULL), false, &options, 0, OB_FINISH_STOP_STRING);
    }
}

/* A thought that is closed at once, and again and again: no rendering looks like that. */
static void test_oddly_closed_thought(void **state)
{
    (void)state;
    struct ob_logit_bias bias = {CLOSE_THOUGHT, 1000};
    struct ob_generate_options options = {.sampling = {.bias = &bias, .n_bias = 1},
                                          .max_tokens = 3};
    for (int thinking = 0; thinking < 2; thinking++)
        check_two_turns(begin(thinking, NULL), false, &options, 0, OB_FINISH_LENGTH);
}

/* A thought that reaches its budget is closed: by the very ids of the closing tag, after which the
 * answer goes on, within the same limit of tokens; and the next turn keeps all of it. */
static void test_thinking_budget(void **state)
{
    (void)state;
    enum { N_CLOSE = 3 }; /* "\n", "</think>", "\n\n" */
    static struct ledger first;
    struct ob_generate_options options = {.max_tokens = 30, .ignore_eos = true};
    for (size_t budget = 1; budget <= 4; budget++) {
        struct ob_conversation *c = begin_with(
            (struct ob_conversation_options){.thinking = true, .thinking_budget = budget}, NULL);
        struct ob_turn turn = ask(c, "Hello!", &options, 0);
        copy_ledger(c, &first);
        assert_int_equal(turn.result.finish, OB_FINISH_LENGTH);
        assert_int_equal(turn.result.n_tokens, options.max_tokens);
        assert_int_equal(first.n, turn.n_prompt + turn.result.n_tokens - 1);
        const int32_t *answer = first.ids + turn.n_prompt;
        for (size_t i = 0; i < budget; i++)
            assert_int_not_equal(answer[i], CLOSE_THOUGHT);
        assert_int_equal(answer[budget + 1], CLOSE_THOUGHT);
        struct ob_said said = ob_conversation_turn(c, 0);
        assert_true(said.reasoning.len > 0 && said.content.len > 0);
        assert_true(ask(c, "Who are you?", &options, 0).kept_ids);
        check_begins(c, &first);
        ob_conversation_close(c);
    }
    struct ob_conversation *c =
        begin_with((struct ob_conversation_options){.thinking = true, .thinking_budget = 4}, NULL);
    for (options.max_tokens = 1; options.max_tokens <= 5 + N_CLOSE; options.max_tokens++) {
        struct ob_turn turn = ask(c, "Hello!", &options, 0);
        assert_int_equal(turn.result.finish, OB_FINISH_LENGTH);
        bool closed = options.max_tokens >= 4; /* the tag comes whole, or not at all */
        size_t least = closed ? 4 + N_CLOSE : options.max_tokens;
        assert_int_equal(turn.result.n_tokens,
                         options.max_tokens > least ? options.max_tokens : least);
        assert_int_equal(ob_conversation_turn(c, 0).content.len > 0, turn.result.n_tokens > 7);
        assert_true(ob_conversation_undo(c));
    }
    ob_conversation_close(c);
}

static void test_undo(void **state)
{
    (void)state;
    static struct ledger first;
    struct ob_conversation *c = begin(true, NULL);
    ask(c, "Hello!", NULL, 0);
    copy_ledger(c, &first);
    ask(c, "Who are you?", NULL, 0);
    ask(c, "Why?", NULL, 0);
    for (int i = 0; i < 2; i++)
        assert_true(ob_conversation_undo(c));
    struct ob_turn turn = ask(c, "Where is London?", NULL, 0);
    assert_true(turn.kept_ids);
    check_begins(c, &first);
    for (int i = 0; i < 2; i++)
        assert_true(ob_conversation_undo(c));
    assert_false(ob_conversation_undo(c));
    assert_false(ask(c, "Hello!", NULL, 0).kept_ids);
    assert_int_equal(ob_conversation_length(c), first.n);
    ob_conversation_close(c);
}

/* Other messages before: all is rendered again, and what follows builds on that. */
static void test_another_system_message(void **state)
{
    (void)state;
    struct ob_error err;
    static struct ledger second;
    struct ob_conversation *c = begin(true, NULL);
    ask(c, "Hello!", NULL, 0);
    CHECK_OK(ob_conversation_set_system(c, ob_str_from("You are brief."), &err), err);
    assert_false(ask(c, "Who are you?", NULL, 0).kept_ids);
    copy_ledger(c, &second);
    assert_true(ask(c, "Why?", NULL, 0).kept_ids);
    check_begins(c, &second);
    for (int i = 0; i < 2; i++)
        assert_true(ob_conversation_undo(c));
    assert_false(
        ask(c, "Why?", NULL, 0).kept_ids); /* the first turn's ids were never rendered so */
    ob_conversation_close(c);
}

/* No token ends an answer, so there is no saying where it ends: the rendering is read. */
static void test_template_without_end(void **state)
{
    (void)state;
    struct ob_conversation *c = begin(false, FORGETFUL("{{ '\\n' }}"));
    ask(c, "Hello!", NULL, 0);
    assert_false(ask(c, "Who are you?", NULL, 0).kept_ids);
    assert_int_equal(ob_conversation_n_turns(c), 2);
    ob_conversation_close(c);
}

static int open_model(void **state)
{
    (void)state;
    struct ob_model_options options = {0};
    model = test_open(TEST_MODELS "/onebit-demo.gguf", &options);
    return 0;
}

static int close_model(void **state)
{
    (void)state;
    ob_model_close(model);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_whole_answers),          cmocka_unit_test(test_cut_answers),
        cmocka_unit_test(test_stopped_answers),        cmocka_unit_test(test_oddly_closed_thought),
        cmocka_unit_test(test_thinking_budget),        cmocka_unit_test(test_undo),
        cmocka_unit_test(test_another_system_message), cmocka_unit_test(test_template_without_end),
    };
    return cmocka_run_group_tests(tests, open_model, close_model);
}
