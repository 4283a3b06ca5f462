/* What the user sees of success and failure: exit codes, errors on stderr, and the check that
 * everything printed on stdout arrived. */
#ifndef CLI_REPORT_H
#define CLI_REPORT_H

#include <jansson.h>
#include <stdbool.h>

#include "base/error.h"

enum exit_code {
    EXIT_DONE = 0,
    EXIT_FAILED = 1,       /* at run time */
    EXIT_USAGE = 2,        /* of the command line */
    EXIT_FILE = 3,         /* a model or data file cannot be opened, read or accepted */
    EXIT_MEMORY = 4,       /* not enough of it */
    EXIT_INTERRUPTED = 130 /* as shells count a SIGINT */
};

/* Whether stderr takes colours: a terminal, and neither NO_COLOR nor TERM=dumb is set. */
bool report_colours(void);

/* One sentence on stderr, behind the program's name; returns `code`. */
int report(enum exit_code code, const char *format, ...) OB_PRINTF(2, 3);

/* Print the message of a failed call that opened, read or judged a file, and return the exit code. */
int report_open(ob_status status, const struct ob_error *err);
/* The same for a call that computed or wrote. */
int report_run(ob_status status, const struct ob_error *err);

/* Print `object` as one line on stdout and drop the reference. NULL, which jansson gives when memory
 * runs out, is reported. */
int report_json(json_t *object);

/* Print text [n] on stdout now. False when it cannot be written: there is no use in going on, and
 * report_finish will say why. */
bool report_text(const char *text, size_t n);

/* At the end of main: `code`, or EXIT_FAILED with a message when stdout could not be written. */
int report_finish(int code);

#endif
