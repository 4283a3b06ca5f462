/* Running the program as a user does: arguments in, exit code and both streams out. Input and outputs
 * are files of the test's folder (support/folder.h) while it runs. */
#ifndef TEST_SUPPORT_PROGRAM_H
#define TEST_SUPPORT_PROGRAM_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/resource.h>
#include <sys/types.h>

/* How the next program is started; all zero again after it. */
struct program_setup {
    const char *input;   /* text of its standard input */
    int output;          /* descriptor of its standard output, 0: captured */
    rlim_t file_bytes;   /* largest file it may write, 0: no limit */
    rlim_t memory_bytes; /* of address space, 0: no limit */
};
extern struct program_setup setup;

/* What the last one left. */
extern int exit_code;
extern char out[1 << 20], err[1 << 16]; /* what it wrote, NUL-terminated */
extern size_t n_out;                    /* bytes of `out` */

/* Run with the arguments of a NULL-terminated list. */
void run(const char *first, ...);
#define RUN(...) run(__VA_ARGS__, NULL)

/* The same in two steps, with something in between. */
pid_t start_program(char **argv);
void finish_program(pid_t child);

void expect_success(void);
/* A failure: nothing on stdout, one line on stderr that holds `part`. */
void expect_failure(int code, const char *part);

/* Line number i of stdout as JSON; json_decref it. */
json_t *json_line(int i);

#endif
