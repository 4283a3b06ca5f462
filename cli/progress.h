/* A progress bar on stderr: only on a terminal, only for work that lasts over a second. */
#ifndef CLI_PROGRESS_H
#define CLI_PROGRESS_H

#include <stdbool.h>
#include <stddef.h>

struct progress {
    const char *what;
    size_t total;
    double start, drawn; /* seconds; drawn is 0 before the first time */
    bool enabled;
};

/* `what` is kept. `quiet` switches the bar off. */
void progress_begin(struct progress *progress, const char *what, size_t total, bool quiet);
/* Cheap enough to call for every token. */
void progress_update(struct progress *progress, size_t done);
/* Wipe the bar. */
void progress_end(struct progress *progress);

#endif
