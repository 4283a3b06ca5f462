/* Chat templates: the part of the Jinja language that published models use.
 *
 * Owns: compiling and rendering, within limits. Does not own: files, JSON, tokens, conversations
 * (chat.h). The reference is Jinja 3.1 set up as the transformers library does it: sandboxed and
 * immutable, trim_blocks, lstrip_blocks, loop controls, `tojson` that escapes nothing,
 * `raise_exception`, `strftime_now`. What renders there renders here to the same bytes; what raises
 * there is an error here. A compiled template is immutable and may be used by any number of
 * threads. Builds without any library (wasm32); needs about 1 KB of stack per level of depth. */
#ifndef OB_TEXT_TEMPLATE_H
#define OB_TEXT_TEMPLATE_H

#include "base/error.h"
#include "text/span.h"
#include "text/template_value.h"

struct ob_template;

/* Compile text [n]; it is copied. Fails with OB_BAD_FILE (syntax), OB_UNSUPPORTED (filters, tags,
 * sizes that are not implemented) or OB_NO_MEMORY; messages say line and column. */
ob_status ob_template_compile(const char *text, size_t n, struct ob_template **out,
                              struct ob_error *err);
/* NULL is allowed. */
void ob_template_destroy(struct ob_template *tpl);

/* 0 is the default in brackets. */
struct ob_template_limits {
    size_t steps;        /* [20 million] nodes evaluated, and a share of the bytes looked at */
    size_t depth;        /* [500] nesting of statements, expressions and macro calls */
    size_t output_bytes; /* [64 MiB] all that is printed, also into variables */
    size_t memory_bytes; /* [512 MiB] of values */
};

/* What strftime_now tells, in the Gregorian calendar; local time of the caller's choice. */
struct ob_template_clock {
    int year, month, day; /* month and day from 1 */
    int hour, minute, second;
};

struct ob_template_options {
    struct ob_template_limits limits;
    struct ob_template_clock clock; /* year 0: 1970-01-01 00:00:00 */
};

/* What a template made. {0} is empty; ob_rendered_free releases it. */
struct ob_rendered {
    char *text; /* [n_bytes], not NUL-terminated */
    size_t n_bytes;
    struct ob_span *spans; /* [n_spans] their lengths add up to n_bytes; origins alternate */
    size_t n_spans;
};

/* Render with the names in `context`, a dict. Values of the context are not changed, except by
 * list.pop and list.clear, which Jinja's sandbox allows. Fails with OB_INVALID_ARGUMENT (the
 * template calls raise_exception, uses what is undefined or of a wrong type, or reaches a limit),
 * OB_UNSUPPORTED (integers above 64 bits, rare formats) or OB_NO_MEMORY; messages say line and
 * column. `options` may be NULL. */
ob_status ob_template_render(const struct ob_template *tpl, const struct ob_value *context,
                             const struct ob_template_options *options, struct ob_rendered *out,
                             struct ob_error *err);
void ob_rendered_free(struct ob_rendered *rendered);

#endif
