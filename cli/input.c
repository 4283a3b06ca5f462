#include "input.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "report.h"

int input_no_model(void)
{
    return report(EXIT_USAGE,
                  "no model: pass -m FILE (models/onebit-demo.gguf comes with the sources)");
}

static int open_model(const char *path, const struct ob_model_options *wanted,
                      struct ob_model **model)
{
    struct ob_error err;
    if (!path)
        return input_no_model();
    ob_status status = ob_model_open(path, wanted, model, &err);
    /* Messages about a file start with its name; the others are about what was asked for. */
    if (status == OB_UNSUPPORTED && strncmp(err.message, path, strlen(path)) != 0)
        return report(EXIT_USAGE, "%s", err.message);
    return report_open(status, &err);
}

int input_open_model(const struct common_options *common, const struct ob_model_options *wanted,
                     struct ob_model **model)
{
    if (common->kv > 2)
        return report(EXIT_USAGE, "--kv %s: this version has f16 and f32",
                      common->kv == 3 ? "q8" : "q4");
    return open_model(common->model, wanted, model);
}

int input_open_vocabulary(const struct common_options *common, struct ob_model **model)
{
    const struct ob_model_options wanted = {.backend = "null", .n_threads = 1};
    return open_model(common->model, &wanted, model);
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
