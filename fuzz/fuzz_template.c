/* Fuzz target: any text as a template, compiled and rendered with small limits.
 *
 * Properties:
 *   - the spans cover the output exactly;
 *   - without text of the template that spells it, no data comes out as text of the template: the
 *     marker below stands only in the data, so a run of the template never holds it, whatever is
 *     done to strings (the marker uses characters that no case mapping or escape makes);
 *   - rendering twice gives the same.
 * The whole input is the template. */
#include "fuzz.h"

#include <string.h>

#include "text/template.h"

static const char marker[] = "\u2603\u2604";

static struct ob_value make_context(struct ob_heap *heap)
{
    struct ob_value context, messages, message, text;
    FUZZ_CHECK(ob_value_dict(heap, OB_FROM_DATA, &context));
    FUZZ_CHECK(ob_value_list(heap, OB_FROM_DATA, &messages));
    for (int i = 0; i < 3; i++) {
        FUZZ_CHECK(ob_value_dict(heap, OB_FROM_DATA, &message));
        FUZZ_CHECK(
            ob_value_copy(heap, ob_str_from(i & 1 ? "assistant" : "user"), OB_FROM_DATA, &text));
        FUZZ_CHECK(ob_dict_set_name(heap, message.as.dict, "role", text));
        FUZZ_CHECK(
            ob_value_copy(heap, ob_str_from(" a\u2603\u2604,<|x|>\n\u00e9 "), OB_FROM_DATA, &text));
        FUZZ_CHECK(ob_dict_set_name(heap, message.as.dict, "content", text));
        FUZZ_CHECK(ob_list_push(heap, messages.as.seq, message));
    }
    FUZZ_CHECK(ob_dict_set_name(heap, context.as.dict, "messages", messages));
    FUZZ_CHECK(ob_dict_set_name(heap, context.as.dict, "add_generation_prompt",
                                ob_value_bool(true, OB_FROM_DATA)));
    FUZZ_CHECK(ob_dict_set_name(heap, context.as.dict, "n", ob_value_int(3, OB_FROM_DATA)));
    return context;
}

static bool holds(const char *text, size_t n, const char *part, size_t m)
{
    for (size_t at = 0; at + m <= n; at++)
        if (memcmp(text + at, part, m) == 0)
            return true;
    return false;
}

static void check_spans(const struct ob_rendered *out, bool marker_in_template)
{
    size_t at = 0;
    for (size_t i = 0; i < out->n_spans; i++) {
        FUZZ_CHECK(out->spans[i].n_bytes > 0 && out->spans[i].n_bytes <= out->n_bytes - at);
        FUZZ_CHECK(i == 0 || out->spans[i].is_data != out->spans[i - 1].is_data);
        if (!out->spans[i].is_data && !marker_in_template)
            FUZZ_CHECK(!holds(out->text + at, out->spans[i].n_bytes, marker, sizeof marker - 1));
        at += out->spans[i].n_bytes;
    }
    FUZZ_CHECK(at == out->n_bytes);
}

static ob_status render(const struct ob_template *tpl, struct ob_rendered *out,
                        struct ob_error *err)
{
    const struct ob_template_options options = {
        .limits = {.steps = 20000, .depth = 60, .output_bytes = 1 << 16, .memory_bytes = 8 << 20}};
    struct ob_heap heap = {0};
    struct ob_value context = make_context(&heap);
    ob_status status = ob_template_render(tpl, &context, &options, out, err);
    ob_heap_free(&heap);
    return status;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct ob_template *tpl;
    struct ob_rendered first = {0}, second = {0};
    struct ob_error err = {0};
    const char *text = (const char *)data;
    if (ob_template_compile(text, size, &tpl, &err) != OB_OK) {
        FUZZ_CHECK(err.status == OB_BAD_FILE || err.status == OB_UNSUPPORTED);
        return 0;
    }
    /* Escapes can spell the marker too. */
    bool spelled = holds(text, size, "\xe2", 1) || holds(text, size, "\\", 1);
    ob_status status = render(tpl, &first, &err);
    FUZZ_CHECK(status == OB_OK || status == OB_INVALID_ARGUMENT || status == OB_UNSUPPORTED);
    FUZZ_CHECK(status == render(tpl, &second, NULL));
    FUZZ_CHECK(first.n_bytes == second.n_bytes);
    FUZZ_CHECK(first.n_bytes == 0 || memcmp(first.text, second.text, first.n_bytes) == 0);
    if (status == OB_OK)
        check_spans(&first, spelled);
    ob_rendered_free(&first);
    ob_rendered_free(&second);
    ob_template_destroy(tpl);
    return 0;
}
