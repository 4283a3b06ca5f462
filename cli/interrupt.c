#include "interrupt.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

/* Signals reach any thread, so these are atomic; all are lock-free where the engine runs. */
static atomic_int held, pending;
static atomic_bool file_named;
static const char *_Atomic farewell;
/* A copy, so that a handler on one thread never reads what another has freed. */
static char file_to_remove[4096];

static void say(int fd, const char *text)
{
    ssize_t ignored = isatty(fd) ? write(fd, text, strlen(text)) : 0;
    (void)ignored;
}

static void end_now(int signal_number)
{
    const char *last = atomic_load(&farewell);
    if (atomic_load(&file_named))
        unlink(file_to_remove);
    if (last)
        say(STDOUT_FILENO, last);
    say(STDERR_FILENO, "\n"); /* the prompt shall not follow a progress bar on its line */
    _exit(128 + signal_number);
}

static void on_signal(int signal_number)
{
    atomic_store(&pending, signal_number);
    if (!atomic_load(&held))
        end_now(signal_number);
}

void interrupt_install(void)
{
    static const int fatal[] = {SIGINT, SIGTERM, SIGHUP};
    struct sigaction action, old;
    memset(&action, 0, sizeof action);
    sigemptyset(&action.sa_mask);
    action.sa_handler = on_signal;
    for (size_t i = 0; i < sizeof fatal / sizeof *fatal; i++)
        /* What the parent chose to ignore (nohup, a shell's background job) stays ignored. */
        if (sigaction(fatal[i], NULL, &old) == 0 && old.sa_handler != SIG_IGN)
            sigaction(fatal[i], &action, NULL);
    action.sa_handler = SIG_IGN;
    sigaction(SIGPIPE, &action, NULL);
}

void interrupt_hold(void)
{
    atomic_store(&held, 1);
}

void interrupt_release(void)
{
    atomic_store(&held, 0);
    int signal_number = atomic_load(&pending);
    if (signal_number)
        end_now(signal_number);
}

int interrupt_pending(void)
{
    return atomic_load(&pending) != 0;
}

void interrupt_farewell(const char *text)
{
    atomic_store(&farewell, text);
}

void interrupt_remove(const char *path)
{
    atomic_store(&file_named, false);
    if (!path || strlen(path) >= sizeof file_to_remove)
        return;
    strcpy(file_to_remove, path);
    atomic_store(&file_named, true);
}
