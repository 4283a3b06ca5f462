#include "input.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "report.h"

/* The demo model, from demo_model.S. */
extern const unsigned char onebit_demo_model[], onebit_demo_model_end[];

int input_open_model(const struct common_options *common, const struct ob_model_options *wanted,
                     struct ob_model **model)
{
    static const char built_in[] = "the built-in model";
    const char *path = common->model;
    struct ob_error err;
    size_t n_bytes = (uintptr_t)onebit_demo_model_end - (uintptr_t)onebit_demo_model;
    ob_status status =
        path ? ob_model_open(path, wanted, model, &err)
             : ob_model_open_memory(built_in, onebit_demo_model, n_bytes, wanted, model, &err);
    const char *name = path ? path : built_in;
    /* Messages about a file start with its name; the others are about what was asked for. */
    if ((status == OB_UNSUPPORTED || status == OB_INVALID_ARGUMENT) &&
        strncmp(err.message, name, strlen(name)) != 0)
        return report(EXIT_USAGE, "%s", err.message);
    return report_open(status, &err);
}

int input_open_vocabulary(const struct common_options *common, struct ob_model **model)
{
    const struct ob_model_options wanted = {.backend = "null", .n_threads = 1};
    return input_open_model(common, &wanted, model);
}

int input_read_text(const char *path, struct ob_text *text)
{
    const char *name = path ? path : "the standard input";
    FILE *f = path ? fopen(path, "rbe") : stdin;
    if (!f)
        return report(EXIT_FILE, "%s: cannot open it: %s", name, strerror(errno));
    char block[1 << 14];
    size_t n;
    while ((n = fread(block, 1, sizeof block, f)) > 0)
        ob_text_append(text, block, n);
    int error = ferror(f) ? errno : 0;
    if (path)
        fclose(f);
    if (error)
        return report(EXIT_FILE, "%s: cannot read it: %s", name, strerror(error));
    if (text->failed)
        return report(EXIT_MEMORY, "%s: not enough memory to hold it", name);
    return EXIT_DONE;
}

int input_tokenize(const struct ob_model *model, struct ob_str text, int flags, int32_t **ids,
                   size_t *n_ids)
{
    struct ob_error err = {0};
    size_t capacity = text.len / 2 + 16, n;
    for (;;) {
        int32_t *list = ob_calloc(capacity, sizeof *list);
        if (!list)
            return report(EXIT_MEMORY, "not enough memory for %zu tokens", capacity);
        ob_status status = ob_tokenize(model, text.ptr, text.len, flags, list, capacity, &n, &err);
        if (status == OB_OK) {
            *ids = list;
            *n_ids = n;
            return EXIT_DONE;
        }
        free(list);
        if (status != OB_NEED_MORE || n <= capacity)
            return report_run(status, &err);
        capacity = n;
    }
}
