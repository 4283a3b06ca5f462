#include "output_file.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "file/out_file.h"
#include "interrupt.h"
#include "report.h"

static bool is_same_file(const char *a, const char *b)
{
    struct stat in, out;
    return stat(a, &in) == 0 && stat(b, &out) == 0 && in.st_dev == out.st_dev &&
           in.st_ino == out.st_ino;
}

int output_file_check(const char *option, const char *path, const char *input)
{
    if (!path)
        return EXIT_DONE;
    if (!*path)
        return report(EXIT_USAGE, "%s '': the name of the output file is empty", option);
    if (strcmp(path, "-") == 0)
        return report(EXIT_USAGE, "%s -: the output is a file, not a stream; name one", option);
    if (input && is_same_file(input, path))
        return report(EXIT_USAGE, "%s: the output would overwrite the input %s", path, input);
    return EXIT_DONE;
}

static ob_status write_whole(const char *path, const char *text, struct ob_error *err)
{
    struct ob_out_file *file;
    OB_TRY(ob_out_file_create(path, &file, err));
    size_t n = strlen(text);
    ob_status status = ob_out_file_write(file, 0, text, n, err);
    if (status == OB_OK)
        status = ob_out_file_write(file, n, "\n", 1, err);
    if (status == OB_OK)
        return ob_out_file_commit(file, err);
    ob_out_file_abort(file);
    return status;
}

int output_file_json(const char *path, const json_t *object)
{
    struct ob_error err;
    char *text = json_dumps(object, JSON_INDENT(1));
    if (!text)
        return report(EXIT_MEMORY, "%s: not enough memory for what is written there", path);
    interrupt_hold(); /* a signal waits for these few bytes */
    int code = report_run(write_whole(path, text, &err), &err);
    interrupt_release();
    free(text);
    return code;
}
