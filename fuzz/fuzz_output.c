/* Fuzz target: any text as what a model wrote.
 *
 * Properties:
 *   - the events are the same for the whole text, for single bytes and for other portions;
 *   - calls are numbered in order, and each comes as name, arguments, end;
 *   - the arguments of a call that ended are one JSON object;
 *   - without calls and thoughts the content is the text.
 * The first byte chooses options and portions; the rest is the text. */
#include "fuzz.h"

#include <string.h>

#include "text/json.h"
#include "text/output.h"

/* What was told: kinds and texts, deltas joined. */
struct told {
    struct ob_text all, content, arguments;
    enum ob_output_kind last;
    size_t n_calls;
    bool in_call;
};

static void check_call(struct told *told, const struct ob_output_event *event)
{
    FUZZ_CHECK(event->call == told->n_calls);
    switch (event->kind) {
    case OB_OUTPUT_CALL:
        FUZZ_CHECK(!told->in_call && event->text.len > 0);
        told->in_call = true;
        told->arguments.len = 0;
        break;
    case OB_OUTPUT_CALL_ARGUMENTS:
        FUZZ_CHECK(told->in_call);
        ob_text_append(&told->arguments, event->text.ptr, event->text.len);
        break;
    case OB_OUTPUT_CALL_END:
        FUZZ_CHECK(told->in_call && told->arguments.len > 0 && *told->arguments.data == '{');
        FUZZ_CHECK(ob_json_is_value((struct ob_str){told->arguments.data, told->arguments.len}));
        told->in_call = false;
        told->n_calls++;
        break;
    case OB_OUTPUT_CALL_MALFORMED:
        FUZZ_CHECK(told->in_call);
        told->in_call = false;
        told->n_calls++;
        break;
    default:
        told->in_call = false; /* unfinished: the last of all */
        told->n_calls = SIZE_MAX;
    }
}

static int tell(void *context, const struct ob_output_event *event)
{
    struct told *told = context;
    bool is_text = event->kind == OB_OUTPUT_CONTENT || event->kind == OB_OUTPUT_REASONING;
    if (is_text)
        FUZZ_CHECK(event->text.len > 0 && !told->in_call && told->n_calls != SIZE_MAX);
    else
        check_call(told, event);
    if (event->kind == OB_OUTPUT_CONTENT)
        ob_text_append(&told->content, event->text.ptr, event->text.len);
    if (told->all.len == 0 || event->kind != told->last ||
        !(is_text || event->kind == OB_OUTPUT_CALL_ARGUMENTS)) {
        char mark[2] = {'\0', (char)('0' + event->kind)};
        ob_text_append(&told->all, mark, 2);
    }
    ob_text_append(&told->all, event->text.ptr, event->text.len);
    told->last = event->kind;
    return 0;
}

static struct told run(const struct ob_output_options *options, const char *text, size_t n,
                       size_t portion)
{
    struct ob_output *output;
    struct told told = {0};
    FUZZ_CHECK(ob_output_create(options, &output, NULL) == OB_OK);
    for (size_t at = 0; at < n; at += portion) {
        size_t length = n - at < portion ? n - at : portion;
        char *copy = malloc(length); /* its own, so that a sanitizer sees a read past its end */
        FUZZ_CHECK(copy);
        memcpy(copy, text + at, length);
        FUZZ_CHECK(ob_output_feed(output, copy, length, tell, &told) == OB_OK);
        free(copy);
    }
    FUZZ_CHECK(ob_output_finish(output, tell, &told) == OB_OK);
    FUZZ_CHECK(!told.in_call);
    ob_output_destroy(output);
    return told;
}

static void free_told(struct told *told)
{
    ob_text_free(&told->all);
    ob_text_free(&told->content);
    ob_text_free(&told->arguments);
}

static void put(struct ob_heap *heap, struct ob_value *dict, const char *name, struct ob_value v)
{
    FUZZ_CHECK(ob_dict_set_name(heap, dict->as.dict, name, v));
}

/* Function f with parameters named after their types, "s" for string and so on. */
static struct ob_value make_tools(struct ob_heap *heap)
{
    static const char *const types[] = {"string", "integer", "boolean", "object", "array", "null"};
    struct ob_value tools, tool, parameters, properties, schema, name;
    FUZZ_CHECK(ob_value_list(heap, OB_FROM_DATA, &tools));
    FUZZ_CHECK(ob_value_dict(heap, OB_FROM_DATA, &tool));
    FUZZ_CHECK(ob_value_dict(heap, OB_FROM_DATA, &parameters));
    FUZZ_CHECK(ob_value_dict(heap, OB_FROM_DATA, &properties));
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        char first[2] = {types[i][0], '\0'};
        FUZZ_CHECK(ob_value_dict(heap, OB_FROM_DATA, &schema));
        FUZZ_CHECK(ob_value_borrow(heap, ob_str_from(types[i]), OB_FROM_DATA, &name));
        put(heap, &schema, "type", name);
        FUZZ_CHECK(ob_value_copy(heap, ob_str_from(first), OB_FROM_DATA, &name));
        FUZZ_CHECK(ob_dict_set(heap, properties.as.dict, name, schema));
    }
    FUZZ_CHECK(ob_value_dict(heap, OB_FROM_DATA, &schema));
    put(heap, &parameters, "properties", properties);
    put(heap, &parameters, "additionalProperties", schema); /* of any type */
    FUZZ_CHECK(ob_value_borrow(heap, ob_str_from("f"), OB_FROM_DATA, &name));
    put(heap, &tool, "name", name);
    put(heap, &tool, "parameters", parameters);
    FUZZ_CHECK(ob_list_push(heap, tools.as.seq, tool));
    return tools;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct ob_heap heap = {0};
    if (size == 0)
        return 0;
    struct ob_value tools = make_tools(&heap);
    struct ob_output_options options = {
        .in_thought = data[0] & 1, .calls = data[0] & 2, .tools = data[0] & 4 ? &tools : NULL};
    const char *text = (const char *)data + 1;
    size_t n = size - 1, portions[] = {n ? n : 1, 1, 2 + (size_t)(data[0] >> 3)};
    struct told whole = {0};
    for (size_t i = 0; i < 3; i++) {
        struct told told = run(&options, text, n, portions[i]);
        if (i == 0) {
            whole = told;
            continue;
        }
        FUZZ_CHECK(told.all.len == whole.all.len);
        FUZZ_CHECK(told.all.len == 0 || memcmp(told.all.data, whole.all.data, told.all.len) == 0);
        free_told(&told);
    }
    bool plain = !options.calls && !options.in_thought && !memchr(text, '<', n);
    if (plain)
        FUZZ_CHECK(whole.content.len == n && (n == 0 || !memcmp(whole.content.data, text, n)));
    free_told(&whole);
    ob_heap_free(&heap);
    return 0;
}
