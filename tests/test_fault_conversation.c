/* Every allocation of a turn fails once: the turn is then as if it had not been tried. */
#include <string.h>

#include "run/conversation.h"
#include "support/check.h"
#include "support/fault.h"
#include "support/models.h"

static int take(void *context, const char *text, size_t n, bool reasoning)
{
    (void)context;
    (void)text;
    (void)n;
    (void)reasoning;
    return 0;
}

static const char *const questions[] = {"Hello!", "Who are you?"};

static ob_status ask(struct ob_conversation *c, int i, struct ob_error *err)
{
    struct ob_turn turn;
    const struct ob_generate_options options = {.max_tokens = 6};
    return ob_conversation_ask(c, ob_str_from(questions[i]), &options, take, NULL, &turn, err);
}

static struct ob_conversation *begin(struct ob_model *model)
{
    struct ob_conversation *c;
    struct ob_error err;
    const struct ob_conversation_options options = {.thinking = true, .thinking_budget = 1};
    CHECK_OK(ob_conversation_open(model, &options, &c, &err), err);
    return c;
}

static void test_every_allocation(void **state)
{
    (void)state;
    struct ob_model_options options = {.n_ctx = 256};
    struct ob_model *model = test_open(TEST_MODELS "/onebit-demo.gguf", &options);
    struct ob_error err;
    int32_t ids[256];
    struct ob_conversation *c = begin(model);
    for (int i = 0; i < 2; i++)
        CHECK_OK(ask(c, i, &err), err);
    size_t n_ids = ob_conversation_length(c);
    memcpy(ids, ob_conversation_ids(c), n_ids * sizeof *ids);
    ob_conversation_close(c);
    for (int turn = 0; turn < 2; turn++) {
        bool came = true;
        for (size_t n = 1; came; n++) {
            c = begin(model);
            for (int i = 0; i < turn; i++)
                CHECK_OK(ask(c, i, &err), err);
            fault_reset();
            fault_arm(FAULT_ALLOC, n);
            ob_status status = ask(c, turn, &err);
            came = fault_disarm();
            CHECK(status == (came ? OB_NO_MEMORY : OB_OK), "turn %d, allocation %zu: %s", turn, n,
                  ob_status_name(status));
            CHECK(came || n > 20, "turn %d made only %zu allocations", turn, n);
            assert_int_equal(ob_conversation_n_turns(c), turn + !came);
            for (int i = turn + !came; i < 2; i++)
                CHECK_OK(ask(c, i, &err), err);
            assert_int_equal(ob_conversation_length(c), n_ids);
            assert_memory_equal(ob_conversation_ids(c), ids, n_ids * sizeof *ids);
            ob_conversation_close(c);
        }
    }
    ob_model_close(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_every_allocation)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
