#include "support/program.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/check.h"
#include "support/folder.h"

struct program_setup setup;
int exit_code;
char out[1 << 20], err[1 << 16];
size_t n_out;

static void limit(int resource, rlim_t value)
{
    struct rlimit limits = {value, value};
    if (value)
        setrlimit(resource, &limits);
}

static void redirect(const char *path, int flags, int to)
{
    int fd = open(path, flags, 0666);
    if (fd < 0 || dup2(fd, to) < 0)
        _exit(126);
}

pid_t start_program(char **argv)
{
    write_file(in_folder("stdin"), setup.input ? setup.input : "",
               setup.input ? strlen(setup.input) : 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child > 0)
        return child;
    redirect(in_folder("stdin"), O_RDONLY, 0);
    redirect(in_folder("stderr"), O_WRONLY | O_CREAT | O_TRUNC, 2);
    if (setup.output)
        dup2(setup.output, 1);
    else
        redirect(in_folder("stdout"), O_WRONLY | O_CREAT | O_TRUNC, 1);
    signal(SIGXFSZ, SIG_IGN);
    limit(RLIMIT_FSIZE, setup.file_bytes);
    limit(RLIMIT_AS, setup.memory_bytes);
    execv(TEST_PROGRAM, argv);
    _exit(127);
}

void finish_program(pid_t child)
{
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    exit_code = WEXITSTATUS(status);
    n_out = setup.output ? 0 : read_file(in_folder("stdout"), out, sizeof out);
    read_file(in_folder("stderr"), err, sizeof err);
    unlink(in_folder("stdin"));
    unlink(in_folder("stdout"));
    unlink(in_folder("stderr"));
    memset(&setup, 0, sizeof setup);
}

void run(const char *first, ...)
{
    enum { MOST = 24 };
    char *argv[MOST + 1];
    char program[] = "onebit";
    int n = 0;
    va_list list;
    argv[n++] = program;
    va_start(list, first);
    for (const char *a = first; a; a = va_arg(list, const char *)) {
        assert_true(n < MOST);
        argv[n] = strdup(a);
        assert_non_null(argv[n]);
        n++;
    }
    va_end(list);
    argv[n] = NULL;
    finish_program(start_program(argv));
    for (int i = 1; i < n; i++)
        free(argv[i]);
}
void expect_success(void)
{
    if (exit_code != 0 || err[0])
        fail_msg("exit code %d, stderr: %s", exit_code, err);
}

void expect_failure(int code, const char *part)
{
    size_t n = strlen(err);
    if (exit_code != code || n_out || strncmp(err, "onebit: ", 8) != 0 ||
        strchr(err, '\n') != err + n - 1 || !strstr(err, part))
        fail_msg("exit code %d, not %d with '%s'; stdout: '%s', stderr: '%s'", exit_code, code,
                 part, out, err);
}

json_t *json_line(int i)
{
    const char *line = out;
    json_error_t fault;
    for (; i > 0; i--) {
        line = strchr(line, '\n');
        assert_non_null(line++);
    }
    json_t *object = json_loadb(line, strcspn(line, "\n"), JSON_REJECT_DUPLICATES, &fault);
    if (!object)
        fail_msg("%s in: %s", fault.text, line);
    return object;
}
