#include "text/template.h"

#include "text/template_eval.h"

#include <stdlib.h>

enum {
    DEFAULT_STEPS = 20000000,
    DEFAULT_DEPTH = 500,
    DEFAULT_OUTPUT = 64 << 20,
    DEFAULT_MEMORY = 512 << 20,
    MAX_DEPTH = 100000,
};

ob_status ob_template_compile(const char *text, size_t n, struct ob_template **out,
                              struct ob_error *err)
{
    struct ob_template *tpl = ob_calloc(1, sizeof *tpl);
    if (!tpl)
        return ob_fail_memory(err, sizeof *tpl, "a chat template");
    ob_status status = ob_source_make(&tpl->heap, text, n, &tpl->source, err);
    if (status == OB_OK)
        status = ob_template_parse(tpl, err);
    if (status != OB_OK) {
        ob_template_destroy(tpl);
        return status;
    }
    *out = tpl;
    return OB_OK;
}

void ob_template_destroy(struct ob_template *tpl)
{
    if (!tpl)
        return;
    ob_heap_free(&tpl->heap);
    free(tpl->symbols);
    free(tpl);
}

/* Copy the buffer out of the heap and describe its origins as spans. */
static ob_status take_output(const struct ob_string_buffer *buffer, struct ob_rendered *out,
                             struct ob_error *err)
{
    struct ob_rendered made = {.n_bytes = buffer->len};
    for (size_t i = 0; i < buffer->len; i++)
        made.n_spans += i == 0 || buffer->origins[i] != buffer->origins[i - 1];
    made.text = ob_calloc(buffer->len, 1);
    made.spans = ob_calloc(made.n_spans, sizeof *made.spans);
    if (!made.text || !made.spans) {
        ob_rendered_free(&made);
        return ob_fail_memory(err, buffer->len, "the rendered template");
    }
    if (buffer->len > 0)
        memcpy(made.text, buffer->bytes, buffer->len);
    for (size_t i = 0, n = 0; i < buffer->len; i++) {
        n += i == 0 || buffer->origins[i] != buffer->origins[i - 1];
        made.spans[n - 1].is_data = buffer->origins[i] == OB_FROM_DATA;
        made.spans[n - 1].n_bytes++;
    }
    *out = made;
    return OB_OK;
}

ob_status ob_template_render(const struct ob_template *tpl, const struct ob_value *context,
                             const struct ob_template_options *options, struct ob_rendered *out,
                             struct ob_error *err)
{
    static const struct ob_template_options defaults = {0};
    static const struct ob_template_clock epoch = {.year = 1970, .month = 1, .day = 1};
    const struct ob_template_options *o = options ? options : &defaults;
    struct ob_heap heap = {.limit = o->limits.memory_bytes ? o->limits.memory_bytes
                                                           : (size_t)DEFAULT_MEMORY};
    struct ob_string_buffer buffer = {0};
    if (context->kind != OB_VALUE_DICT)
        return ob_fail(err, OB_INVALID_ARGUMENT, "the context of a template must be a dict");
    struct ob_run run = {.tpl = tpl, .heap = &heap, .err = err, .status = OB_OK, .out = &buffer};
    run.steps_left = o->limits.steps ? o->limits.steps : DEFAULT_STEPS;
    run.max_depth = o->limits.depth == 0          ? DEFAULT_DEPTH
                    : o->limits.depth < MAX_DEPTH ? (int)o->limits.depth
                                                  : (int)MAX_DEPTH;
    run.output_left = o->limits.output_bytes ? o->limits.output_bytes : (size_t)DEFAULT_OUTPUT;
    run.context = context->as.dict;
    run.clock = o->clock.year ? &o->clock : &epoch;
    run.scope = ob_run_scope(&run, NULL);
    if (run.scope)
        ob_run_body(&run, tpl->body);
    ob_status status = run.status;
    if (status == OB_OK)
        status = take_output(&buffer, out, err);
    ob_heap_free(&heap);
    return status;
}

void ob_rendered_free(struct ob_rendered *rendered)
{
    free(rendered->text);
    free(rendered->spans);
    *rendered = (struct ob_rendered){0};
}
