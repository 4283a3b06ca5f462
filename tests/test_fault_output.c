/* Every allocation of the output parser fails once: it reports that, tells nothing afterwards, and
 * leaks nothing. */
#include "support/check.h"
#include "support/fault.h"

#include "text/output.h"

static const char text[] =
    "<think>why \n</think>\n\nSo <b>. <tool_call>{\"id\": [1], \"arguments\": {\"a\": \"\n\"}, "
    "\"name\": \"f\"}</tool_call>\n<tool_call>{\"arguments\": \"{\\\"\\u00e9\\\": 1}\", \"name\": "
    "\"a rather long name\"}</tool_call> <function=f><parameter=a>\nvalue\n</parameter>\n\n"
    "</parameter>\n</function>\n</tool_call><tool_call>{]} <tool_call><function=f><parameter=b>";

static int count(void *context, const struct ob_output_event *event)
{
    (void)event;
    ++*(size_t *)context;
    return 0;
}

/* One answer whose n-th allocation fails; true when it was told to. */
static bool parse_once(size_t n, size_t portion, size_t *n_events)
{
    const struct ob_output_options options = {.calls = true};
    struct ob_output *output = NULL;
    struct ob_error err = {0};
    size_t after = 0;
    *n_events = 0;
    fault_arm(FAULT_ALLOC, n);
    ob_status status = ob_output_create(&options, &output, &err);
    for (size_t at = 0; status == OB_OK && at < sizeof text - 1; at += portion) {
        size_t left = sizeof text - 1 - at;
        status =
            ob_output_feed(output, text + at, left < portion ? left : portion, count, n_events);
    }
    if (status == OB_OK)
        status = ob_output_finish(output, count, n_events);
    bool failed = fault_disarm();
    CHECK(status == (failed ? OB_NO_MEMORY : OB_OK), "allocation %zu: status %d", n, (int)status);
    if (output && failed) {
        assert_int_equal(ob_output_feed(output, "x", 1, count, &after), OB_NO_MEMORY);
        assert_int_equal(ob_output_finish(output, count, &after), OB_NO_MEMORY);
        assert_int_equal(after, 0);
    }
    ob_output_destroy(output);
    return failed;
}

static void test_allocations(void **state)
{
    (void)state;
    for (size_t portion = 1; portion <= sizeof text; portion += sizeof text - 1) {
        size_t n = 1, n_events;
        while (parse_once(n, portion, &n_events))
            n++;
        assert_true(n > 10);
        assert_true(n_events >= 15);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_allocations)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
