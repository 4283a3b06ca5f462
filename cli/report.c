#include "report.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

bool report_colours(void)
{
    const char *no_color = getenv("NO_COLOR"), *term = getenv("TERM");
    return isatty(STDERR_FILENO) && !(no_color && no_color[0]) && term && strcmp(term, "dumb") != 0;
}

int report(enum exit_code code, const char *format, ...)
{
    va_list args;
    fputs(report_colours() ? "\033[1;31monebit:\033[0m " : "onebit: ", stderr);
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fputc('\n', stderr);
    return code;
}

static int exit_code(ob_status status, enum exit_code file_code)
{
    switch (status) {
    case OB_OK:
        return EXIT_DONE;
    case OB_NO_MEMORY:
        return EXIT_MEMORY;
    case OB_INVALID_ARGUMENT:
        return EXIT_USAGE;
    case OB_CANCELLED:
        return EXIT_INTERRUPTED;
    case OB_BAD_FILE:
    case OB_UNSUPPORTED:
    case OB_IO_ERROR:
        return file_code;
    case OB_CONTEXT_FULL:
    case OB_NEED_MORE:
        break;
    }
    return EXIT_FAILED;
}

int report_open(ob_status status, const struct ob_error *err)
{
    int code = exit_code(status, EXIT_FILE);
    return code == EXIT_DONE ? code : report((enum exit_code)code, "%s", err->message);
}

int report_run(ob_status status, const struct ob_error *err)
{
    int code = status == OB_INVALID_ARGUMENT ? EXIT_FAILED : exit_code(status, EXIT_FAILED);
    return code == EXIT_DONE ? code : report((enum exit_code)code, "%s", err->message);
}

/* errno of the first write to stdout that failed while somebody looked; stdio forgets it. */
static int write_error;

static bool flush(void)
{
    errno = 0;
    bool ok = fflush(stdout) == 0 && !ferror(stdout);
    if (!ok && !write_error)
        write_error = errno;
    return ok;
}

int report_json(json_t *object)
{
    char *line = object ? json_dumps(object, JSON_COMPACT) : NULL;
    json_decref(object);
    if (!line)
        return report(EXIT_MEMORY, "not enough memory for the JSON output");
    puts(line);
    free(line);
    flush(); /* whoever reads line by line waits for it; report_finish tells of a failure */
    return EXIT_DONE;
}

bool report_text(const char *text, size_t n)
{
    errno = 0;
    if (fwrite(text, 1, n, stdout) < n && !write_error)
        write_error = errno;
    return flush();
}

int report_finish(int code)
{
    if (flush() || code == EXIT_USAGE)
        return code;
    return report(EXIT_FAILED, "cannot write to the standard output: %s",
                  write_error ? strerror(write_error) : "an earlier write failed");
}
