/* What a model writes, taken apart: thoughts, answers, calls of both forms, typed, cut and
 * malformed. Every case is fed whole and cut in every way into two and into single bytes. */
#include "support/check.h"
#include "support/rng.h"

#include "../cli/json_value.h"
#include "base/text_buffer.h"
#include "text/output.h"

#include <stdlib.h>
#include <string.h>

/* Events as one line of text: "kind:text" with " | " between; deltas joined. */
struct log {
    struct ob_text text;
    enum ob_output_kind last;
};

static int record(void *context, const struct ob_output_event *event)
{
    static const char *const names[] = {
        "think:", "content:", "call%zu:", "args:", "end%zu", "unfinished%zu:", "malformed%zu"};
    struct log *log = context;
    bool is_delta = event->kind <= OB_OUTPUT_CONTENT || event->kind == OB_OUTPUT_CALL_ARGUMENTS;
    char name[32];
    assert_true(!is_delta || event->text.len > 0);
    if (!is_delta || event->kind != log->last || log->text.len == 0) {
        snprintf(name, sizeof name, names[event->kind], event->call);
        ob_text_printf(&log->text, "%s%s", log->text.len ? " | " : "", name);
    }
    ob_text_append(&log->text, event->text.ptr, event->text.len);
    log->last = event->kind;
    return 0;
}

static const char tools_json[] =
    "[{\"type\": \"function\", \"function\": {\"name\": \"f\", \"parameters\": {\"type\": \"object\","
    "\"$defs\": {\"Color\": {\"enum\": [\"red\", \"blue\"]}, \"Loop\": {\"$ref\": \"#/$defs/Loop\"},"
    "\"Point\": {\"type\": \"object\"}},"
    "\"properties\": {\"s\": {\"type\": \"string\"}, \"i\": {\"type\": \"integer\"},"
    "\"x\": {\"type\": \"number\"}, \"b\": {\"type\": \"boolean\"}, \"o\": {\"type\": \"object\"},"
    "\"a\": {\"type\": \"array\"}, \"z\": {\"type\": \"null\"}, \"any\": {},"
    "\"sn\": {\"type\": [\"string\", \"null\"]}, \"si\": {\"type\": [\"string\", \"integer\"]},"
    "\"so\": {\"anyOf\": [{\"type\": \"string\"}, {\"type\": \"object\"}]},"
    "\"in\": {\"type\": \"integer\", \"nullable\": true}, \"e\": {\"enum\": [1, 2]},"
    "\"c\": {\"$ref\": \"#/$defs/Color\"}, \"p\": {\"allOf\": [{\"$ref\": \"#/$defs/Point\"}]},"
    "\"l\": {\"$ref\": \"#/$defs/Loop\"}}}}},"
    "{\"name\": \"g\", \"parameters\": {\"additionalProperties\": {\"type\": \"number\"}}}]";

struct fixture {
    struct ob_heap heap;
    struct ob_value tools;
};

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    json_error_t error;
    json_t *json = json_loads(tools_json, 0, &error);
    if (!f || !json || !json_value(&f->heap, json, &f->tools))
        return 1;
    json_decref(json);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    ob_heap_free(&f->heap);
    free(f);
    return 0;
}

/* The log of text, fed in portions that end at cuts [n_cuts], ascending. */
static struct ob_text run(const struct ob_output_options *options, struct ob_str text,
                          const size_t *cuts, size_t n_cuts)
{
    struct ob_output *output;
    struct ob_error err;
    struct log log = {0};
    size_t at = 0;
    CHECK_OK(ob_output_create(options, &output, &err), err);
    for (size_t i = 0; i <= n_cuts; i++) {
        size_t end = i < n_cuts ? cuts[i] : text.len;
        assert_int_equal(ob_output_feed(output, text.ptr + at, end - at, record, &log), OB_OK);
        at = end;
    }
    assert_int_equal(ob_output_finish(output, record, &log), OB_OK);
    ob_output_destroy(output);
    ob_text_append(&log.text, "", 0);
    return log.text;
}

/* However the text is cut, the log is `wanted`. */
static void check_output(const struct ob_output_options *options, const char *text,
                         const char *wanted)
{
    struct ob_str all = ob_str_from(text);
    size_t cuts[4096];
    struct ob_text log = run(options, all, NULL, 0);
    CHECK(strcmp(log.data, wanted) == 0, "%s\n gives %s\n  not  %s", text, log.data, wanted);
    ob_text_free(&log);
    assert_true(all.len < sizeof cuts / sizeof *cuts);
    for (size_t i = 0; i < all.len; i++)
        cuts[i] = i;
    log = run(options, all, cuts, all.len);
    CHECK(strcmp(log.data, wanted) == 0, "%s\n byte by byte gives %s", text, log.data);
    ob_text_free(&log);
    for (size_t i = 0; i <= all.len; i++) {
        log = run(options, all, &i, 1);
        CHECK(strcmp(log.data, wanted) == 0, "%s\n cut at %zu gives %s", text, i, log.data);
        ob_text_free(&log);
    }
}

struct expectation {
    const char *text, *wanted;
};

static void check_all(const struct ob_output_options *options, const struct expectation *cases,
                      size_t n)
{
    for (size_t i = 0; i < n; i++)
        check_output(options, cases[i].text, cases[i].wanted);
}

#define CHECK_ALL(options, cases) check_all(options, cases, sizeof(cases) / sizeof *(cases))

/* ------------------------------------------------------------------------------------ thoughts */

static void test_thoughts(void **state)
{
    static const struct expectation outside[] = {
        {"", ""},
        {"plain", "content:plain"},
        {" \n plain \n", "content: \n plain \n"},
        {"<think>\nWhy?\n</think>\n\nSo.", "think:Why? | content:So."},
        {"\n\n<think>a</think>b", "think:a | content:b"},
        {"<think></think>b", "content:b"},
        {"<think>\n\n</think>\n\nb\n", "content:b\n"},
        {"<think>a\n\n</think>b", "think:a\n | content:b"},
        {"<think>not closed", "think:not closed"},
        {"<think>a</thin", "think:a</thin"},
        {"<think>a</think>b<think>c</think>", "think:a | content:b<think>c</think>"},
        {"a <think>b</think>", "content:a <think>b</think>"},
        {"a</think>b", "content:a</think>b"},
        {"<thin", "content:<thin"},
        {"<thinking>x", "content:<thinking>x"},
        {"<<think>x</think>", "content:<<think>x</think>"},
        {"<think>a<</think>b", "think:a< | content:b"},
        {"<think>a</</think>b", "think:a</ | content:b"},
        {"<think>a\n\n\n</think>\nb", "think:a\n\n | content:b"},
        {"<think>1 < 2\n</ think>\n<think></think>2",
         "think:1 < 2\n</ think>\n<think> | content:2"},
    };
    static const struct expectation inside[] = {
        {"", ""},
        {"Why?\n</think>\n\nSo.", "think:Why? | content:So."},
        {"</think>So.", "content:So."},
        {"\n</think>So.", "content:So."},
        {"\n\na", "think:\n\na"},
        {" \n", "think: \n"},
        {"<think>\nagain</think>So.", "think:again | content:So."},
        {"<tool_call>{}</tool_call></think>", "think:<tool_call>{}</tool_call>"},
        {"cut \n", "think:cut \n"},
        {"\xf0\x9f\x98\x80</think>\xc3\xa9", "think:\xf0\x9f\x98\x80 | content:\xc3\xa9"},
    };
    struct ob_output_options options = {0};
    (void)state;
    CHECK_ALL(&options, outside);
    options.in_thought = true;
    CHECK_ALL(&options, inside);
    options.calls = true;
    CHECK_ALL(&options, inside);
    options.in_thought = false;
    CHECK_ALL(&options, outside);
}

/* --------------------------------------------------------------------------------------- calls */

static void test_json_calls(void **state)
{
    static const struct expectation cases[] = {
        {"<tool_call>\n{\"name\": \"f\", \"arguments\": {\"s\": \"02134\", \"i\": 5}}\n</tool_call>",
         "call0:f | args:{\"s\": \"02134\", \"i\": 5} | end0"},
        {"Let me see.\n\n<tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call>\n",
         "content:Let me see. | call0:f | args:{} | end0"},
        {"<tool_call>{\"arguments\": {\"a\": [1, {\"b\": null}]} , \"name\": \"f\"}</tool_call>",
         "call0:f | args:{\"a\": [1, {\"b\": null}]} | end0"},
        {"<tool_call>{\"name\": \"f\", \"arguments\": \"{\\\"a\\\": \\\"\\u00e9\\\"}\"}</tool_call>",
         "call0:f | args:{\"a\": \"\xc3\xa9\"} | end0"},
        {"<tool_call>{\"id\": 17, \"name\": \"f\", \"parameters\": {\"a\": -1.5e3}}</tool_call>",
         "call0:f | args:{\"a\": -1.5e3} | end0"},
        {"<tool_call>{\"name\": \"f\"}</tool_call>", "call0:f | args:{} | end0"},
        {"<tool_call>{\"name\": \"f\", \"arguments\": null}</tool_call>",
         "call0:f | args:{} | end0"},
        {"<tool_call>{\"name\": \"f\", \"arguments\": {\"s\": \"two\nlines\tand\"}}</tool_call>",
         "call0:f | args:{\"s\": \"two\\nlines\\tand\"} | end0"},
        {"<tool_call>{\"name\": \"f\", \"arguments\": {\"s\": \"\\\"{<tool_call></tool_call>\"}}"
         "</tool_call>",
         "call0:f | args:{\"s\": \"\\\"{<tool_call></tool_call>\"} | end0"},
        {"<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>\n<tool_call>\n{\"name\": \"g\", "
         "\"arguments\": {}}\n</tool_call>",
         "call0:f | args:{} | end0 | call1:g | args:{} | end1"},
        {"a <tool_call>{\"name\": \"f\"}</tool_call> b",
         "content:a | call0:f | args:{} | end0 | content: b"},
        {"<tool_call>{\"name\": \"f\"}</tool_call> b", "call0:f | args:{} | end0 | content:b"},
        {"<think>t</think>\n\n<tool_call>{\"name\": \"f\"}</tool_call>",
         "think:t | call0:f | args:{} | end0"},
    };
    struct fixture *f = *state;
    struct ob_output_options options = {.calls = true, .tools = &f->tools};
    CHECK_ALL(&options, cases);
}

#define ONE(name, value) "<function=f>\n<parameter=" name ">\n" value "\n</parameter>\n</function>"
#define TYPED(name, value, json)                                                                   \
    {                                                                                              \
        "<tool_call>\n" ONE(name, value) "\n</tool_call>",                                         \
            "call0:f | args:{\"" name "\": " json "} | end0"                                       \
    }

static void test_typed_values(void **state)
{
    static const struct expectation cases[] = {
        TYPED("s", "02134", "\"02134\""),
        TYPED("s", "5", "\"5\""),
        TYPED("s", "true", "\"true\""),
        TYPED("s", "null", "\"null\""),
        TYPED("s", "{\"a\": 1}", "\"{\\\"a\\\": 1}\""),
        TYPED("s", "say \"hi\\n\" 'x'", "\"say \\\"hi\\\\n\\\" 'x'\""),
        TYPED("s", "one\n\n  two\ttabs\n", "\"one\\n\\n  two\\ttabs\\n\""),
        TYPED("s", "", "\"\""),
        TYPED("s", "\xe6\x97\xa5 </b> <x", "\"\xe6\x97\xa5 </b> <x\""),
        TYPED("s", "<parameter=s>", "\"<parameter=s>\""),
        TYPED("s", "a</parameter>b", "\"a</parameter>b\""),
        TYPED("s", "a\n</parameter>\n\n</parame", "\"a\\n</parameter>\\n\\n</parame\""),
        TYPED("s", "</parameter></parameter>", "\"</parameter></parameter>\""),
        TYPED("s", "a\n</parameter>\n", "\"a\\n</parameter>\\n\""),
        TYPED("s", "</function>\n</tool>", "\"</function>\\n</tool>\""),
        TYPED("i", "5", "5"),
        TYPED("i", " -12 ", "-12"),
        TYPED("i", "02134", "\"02134\""),
        TYPED("i", "five", "\"five\""),
        TYPED("i", "\"5\"", "\"\\\"5\\\"\""),
        TYPED("x", "1e-3", "1e-3"),
        TYPED("x", "1.", "\"1.\""),
        TYPED("b", "true", "true"),
        TYPED("b", "False", "false"),
        TYPED("b", "yes", "\"yes\""),
        TYPED("o", "{\"a\": {\"b\": [1, \"]}\"]}}", "{\"a\": {\"b\": [1, \"]}\"]}}"),
        TYPED("o", "{\"a\": \"x\ny\"}", "{\"a\": \"x\\ny\"}"),
        TYPED("o", "{'a': 1}", "\"{'a': 1}\""),
        TYPED("o", "[1]", "\"[1]\""),
        TYPED("a", "[\n  1,\n  2\n]", "[\n  1,\n  2\n]"),
        TYPED("a", "[1, 2", "\"[1, 2\""),
        TYPED("z", "null", "null"),
        TYPED("z", "None", "null"),
        TYPED("any", "5", "5"),
        TYPED("any", "02134", "\"02134\""),
        TYPED("any", "word", "\"word\""),
        TYPED("sn", "null", "null"),
        TYPED("sn", "nullify", "\"nullify\""),
        TYPED("si", "5", "\"5\""),
        TYPED("so", "{\"a\": 1}", "{\"a\": 1}"),
        TYPED("so", "[1]", "\"[1]\""),
        TYPED("in", "null", "null"),
        TYPED("in", "3", "3"),
        TYPED("e", "2", "2"),
        TYPED("c", "red", "\"red\""),
        TYPED("c", "1", "\"1\""),
        TYPED("p", "{}", "{}"),
        TYPED("l", "[]", "[]"),
        TYPED("undeclared", "5", "\"5\""),
        {"<tool_call><function=g><parameter=q>5</parameter></function></tool_call>",
         "call0:g | args:{\"q\": 5} | end0"},
        {"<tool_call><function=h><parameter=i>5</parameter></function></tool_call>",
         "call0:h | args:{\"i\": \"5\"} | end0"},
    };
    struct fixture *f = *state;
    struct ob_output_options options = {.calls = true, .tools = &f->tools};
    CHECK_ALL(&options, cases);
}

static void test_tagged_calls(void **state)
{
    static const struct expectation cases[] = {
        {"Now.\n\n<tool_call>\n<function=f>\n<parameter=s>\na\n</parameter>\n<parameter=i>\n1\n"
         "</parameter>\n</function>\n</tool_call>\n<tool_call>\n<function=g>\n</function>\n"
         "</tool_call>",
         "content:Now. | call0:f | args:{\"s\": \"a\", \"i\": 1} | end0 | call1:g | args:{} | end1"},
        {ONE("s", "a"), "call0:f | args:{\"s\": \"a\"} | end0"},
        {"x " ONE("s", "a") "\n</tool_call>\ny",
         "content:x | call0:f | args:{\"s\": \"a\"} | end0 | content:\ny"},
        {"<tool_call>" ONE("s", "a") "\n" ONE("b", "true") "</tool_call>",
         "call0:f | args:{\"s\": \"a\"} | end0 | call1:f | args:{\"b\": true} | end1"},
        {"<tool_call><function=f><parameter=s>\na\n</function>\n</tool_call>!",
         "call0:f | args:{\"s\": \"a\"} | end0 | content:!"},
        {"<tool_call><function=f><parameter=i>\n7</function></tool_call>",
         "call0:f | args:{\"i\": 7} | end0"},
        {"<tool_call><function=f><parameter=a\"b\\>1</parameter></function></tool_call>",
         "call0:f | args:{\"a\\\"b\\\\\": \"1\"} | end0"},
    };
    struct fixture *f = *state;
    struct ob_output_options options = {.calls = true, .tools = &f->tools};
    CHECK_ALL(&options, cases);
}

static void test_unfinished_calls(void **state)
{
    static const struct expectation cases[] = {
        {"<tool_call>", "unfinished0:<tool_call>"},
        {"a\n<tool_call>\n{\"na", "content:a | unfinished0:<tool_call>\n{\"na"},
        {"<tool_call>{\"name\": \"f\", \"arguments\": {\"s\": \"x",
         "call0:f | args:{\"s\": \"x | unfinished0:<tool_call>{\"name\": \"f\", \"arguments\": "
         "{\"s\": \"x"},
        {"<tool_call>{\"name\": \"f\", \"arguments\": {}}\n",
         "call0:f | args:{} | unfinished0:<tool_call>{\"name\": \"f\", \"arguments\": {}}\n"},
        {"<tool_call><function=f><parameter=s>\nab\n</para",
         "call0:f | args:{\"s\": \"ab | unfinished0:<tool_call><function=f><parameter=s>\nab\n"
         "</para"},
        {"<tool_call><function=f><parameter=i>\n12",
         "call0:f | args:{\"i\":  | unfinished0:<tool_call><function=f><parameter=i>\n12"},
        {"<tool_call><function=f></function>",
         "call0:f | args:{} | unfinished0:<tool_call><function=f></function>"},
        {"#include <function=f", "content:#include | unfinished0:<function=f"},
        {"<tool_ca", "content:<tool_ca"},
    };
    struct fixture *f = *state;
    struct ob_output_options options = {.calls = true, .tools = &f->tools};
    CHECK_ALL(&options, cases);
}

/* All of a malformed call is text, and what follows is read. */
static void test_malformed_calls(void **state)
{
    static const char *const silent[] = {
        "Write <tool_call> and then </tool_call>.",
        "<tool_call></tool_call>",
        "<tool_call>\n[]</tool_call>",
        "<tool_call>{}</tool_call>",
        "<tool_call>{\"arguments\": {}}</tool_call>",
        "<tool_call>{\"name\": 5}</tool_call>",
        "<tool_call>{\"name\": \"\"}</tool_call>",
        "<tool_call>{\"name\": \"f\" \"arguments\": {}}</tool_call>",
        "<tool_call>{\"name\": \"f\", }</tool_call>",
        "<tool_call>{\"name\": \"f\", \"arguments\": 5}</tool_call>",
        "<tool_call>{\"name\": \"f\", \"arguments\": nil}</tool_call>",
        "<tool_call>{\"name\": \"f\", \"arguments\": \"text\"}</tool_call>",
        "<tool_call>{\"name\": \"f\", \"arguments\": \"{\"}</tool_call>",
        "<tool_call>{\"arguments\": {\"a\": }, \"name\": \"f\"}</tool_call>",
        "<tool_call>{\"name\": \"f\", \"name\": \"g\"}</tool_call>",
        "<tool_call>{'name': 'f'}</tool_call>",
        "<tool_call><func></tool_call>",
        "<function=></function>",
        "<function=a b\n></function>",
        "<function=f> and so on",
        "a </tool_call> b",
        " \n<tool_call> x",
    };
    static const struct expectation cases[] = {
        {"<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": }}</tool_call>",
         "call0:f | args:{\"a\":  | malformed0 | content:<tool_call>{\"name\": \"f\", "
         "\"arguments\": {\"a\": }}</tool_call>"},
        {"<tool_call>{\"name\": \"f\", \"arguments\": {}} ,</tool_call> <tool_call>{\"name\": "
         "\"g\"}</tool_call>",
         "call0:f | args:{} | malformed0 | content:<tool_call>{\"name\": \"f\", \"arguments\": {}} "
         ",</tool_call> | call1:g | args:{} | end1"},
        {"<tool_call>\n<tool_call>\n{\"name\": \"f\"}\n</tool_call>",
         "content:<tool_call>\n | call0:f | args:{} | end0"},
        {"<tool_call><function=f><parameter=s>a</parameter></function>?",
         "call0:f | args:{\"s\": \"a\"} | malformed0 | content:<tool_call><function=f>"
         "<parameter=s>a</parameter></function>?"},
    };
    struct fixture *f = *state;
    struct ob_output_options options = {.calls = true, .tools = &f->tools};
    CHECK_ALL(&options, cases);
    for (size_t i = 0; i < sizeof silent / sizeof *silent; i++) {
        struct ob_text wanted = {0};
        ob_text_printf(&wanted, "content:%s", silent[i]);
        check_output(&options, silent[i], wanted.data);
        ob_text_free(&wanted);
    }
}

/* Without tools, calls are text. */
static void test_no_calls(void **state)
{
    static const struct expectation cases[] = {
        {"<tool_call>{\"name\": \"f\"}</tool_call>\n",
         "content:<tool_call>{\"name\": \"f\"}</tool_call>\n"},
        {ONE("s", "a"), "content:" ONE("s", "a")},
    };
    const struct ob_output_options options = {0};
    (void)state;
    CHECK_ALL(&options, cases);
}

/* Nesting up to the scanner's limit passes, one more does not; long values take linear time. */
static void test_sizes(void **state)
{
    struct fixture *f = *state;
    struct ob_output_options options = {.calls = true, .tools = &f->tools};
    for (size_t depth = 127; depth <= 128; depth++) {
        struct ob_text text = {0};
        ob_text_printf(&text, "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": ");
        for (size_t i = 0; i < depth; i++)
            ob_text_append(&text, "[", 1);
        for (size_t i = 0; i < depth; i++)
            ob_text_append(&text, "]", 1);
        ob_text_printf(&text, "}}</tool_call>");
        struct ob_text log = run(&options, (struct ob_str){text.data, text.len}, NULL, 0);
        assert_int_equal(strstr(log.data, "end0") != NULL, depth == 127);
        assert_int_equal(strstr(log.data, "malformed0") != NULL, depth == 128);
        ob_text_free(&log);
        ob_text_free(&text);
    }
    struct ob_text text = {0};
    ob_text_printf(&text, "<tool_call><function=f><parameter=s>");
    for (size_t i = 0; i < 100000; i++)
        ob_text_printf(&text, i % 3 ? "\n</parameter>\n\n" : "<tool_call>{\n\n\n");
    ob_text_printf(&text, "</parameter></function></tool_call>");
    struct ob_text log = run(&options, (struct ob_str){text.data, text.len}, NULL, 0);
    assert_non_null(strstr(log.data, "| end0"));
    ob_text_free(&log);
    ob_text_free(&text);
}

/* Random mixtures of everything that means something, cut at random. */
static void test_random_cuts(void **state)
{
    static const char *const parts[] = {
        "<think>",
        "</think>",
        "<tool_call>",
        "</tool_call>",
        "<function=",
        "f>",
        "</function>",
        "<parameter=",
        "s>",
        "i>",
        "</parameter>",
        "\n",
        " ",
        "<",
        "</",
        "{\"name\": \"f\"",
        ", \"arguments\": ",
        "{\"a\": 1}",
        "}",
        "\"",
        "x",
        "5",
        "{",
        "[",
        "\\",
        "\xc3\xa9",
    };
    struct fixture *f = *state;
    struct rng rng = {20};
    for (int round = 0; round < 20000; round++) {
        struct ob_output_options options = {
            .in_thought = round & 1, .calls = (round & 6) != 0, .tools = &f->tools};
        struct ob_text text = {0};
        size_t cuts[8];
        for (size_t n = rng_below(&rng, 24); n > 0; n--)
            ob_text_printf(&text, "%s", parts[rng_below(&rng, sizeof parts / sizeof *parts)]);
        ob_text_append(&text, "", 0);
        for (size_t i = 0; i < 8; i++) {
            size_t before = i ? cuts[i - 1] : 0;
            cuts[i] = before + rng_below(&rng, (text.len - before) / 2 + 1);
        }
        struct ob_str all = {text.data, text.len};
        struct ob_text whole = run(&options, all, NULL, 0), cut = run(&options, all, cuts, 8);
        CHECK(strcmp(whole.data, cut.data) == 0, "%s\n whole %s\n cut   %s", text.data, whole.data,
              cut.data);
        ob_text_free(&whole);
        ob_text_free(&cut);
        ob_text_free(&text);
    }
}

static int stop_at_second(void *context, const struct ob_output_event *event)
{
    (void)event;
    return ++*(int *)context == 2;
}

static void test_cancelling(void **state)
{
    const struct ob_output_options options = {.calls = true};
    struct ob_output *output;
    struct ob_error err;
    int n = 0;
    (void)state;
    CHECK_OK(ob_output_create(&options, &output, &err), err);
    struct ob_str text = ob_str_from("<think>a</think>b<tool_call>{\"name\": \"f\"}</tool_call>");
    assert_int_equal(ob_output_feed(output, text.ptr, text.len, stop_at_second, &n), OB_CANCELLED);
    assert_int_equal(ob_output_finish(output, stop_at_second, &n), OB_CANCELLED);
    assert_int_equal(n, 2);
    ob_output_destroy(output);
}

/* -------------------------------------------------------------------------------------- prompts */

/* `parts` alternate between template and data, beginning with the template. */
static bool in_thought(const char *const *parts)
{
    struct ob_text text = {0};
    struct ob_span spans[8];
    struct ob_rendered prompt = {.spans = spans};
    for (size_t i = 0; parts[i]; i++) {
        size_t n = strlen(parts[i]);
        ob_text_append(&text, parts[i], n);
        if (n)
            spans[prompt.n_spans++] = (struct ob_span){n, i % 2 == 1};
    }
    prompt.text = text.data;
    prompt.n_bytes = text.len;
    bool is = ob_output_prompt_in_thought(&prompt);
    ob_text_free(&text);
    return is;
}

static void test_prompt_state(void **state)
{
    static const struct {
        const char *parts[6];
        bool wanted;
    } cases[] = {
        {{"user\n", "hi", "<end>\nassistant\n<think>\n"}, true},
        {{"user\n", "hi", "<end>\nassistant\n<think>\n\n</think>\n\n"}, false},
        {{"user\n", "hi", "<end>\nassistant\n"}, false},
        {{"user\n", "what is <think>", "<end>\nassistant\n"}, false},
        {{"user\n", "<think>", ""}, true}, /* a message to be continued */
        {{"x<think>\n", "so far", ""}, true},
        {{"x<think>\n", "so far</think>", ""}, false},
        {{"Think in <think> and </think>.\nuser\n", "hi", "\nassistant\n"}, false},
        {{"Begin with <think>.\nuser\n", "hi", "\nassistant\n"}, false},
        {{"a<think>", "t", "</think>b", "hi", "<think>"}, true},
        {{""}, false},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        CHECK(in_thought(cases[i].parts) == cases[i].wanted, "case %zu", i);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_thoughts),         cmocka_unit_test(test_json_calls),
        cmocka_unit_test(test_typed_values),     cmocka_unit_test(test_tagged_calls),
        cmocka_unit_test(test_unfinished_calls), cmocka_unit_test(test_malformed_calls),
        cmocka_unit_test(test_no_calls),         cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_random_cuts),      cmocka_unit_test(test_cancelling),
        cmocka_unit_test(test_prompt_state),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
