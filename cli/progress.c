#include "progress.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/os.h"
#include "report.h"

static const double delay_seconds = 1.0, redraw_seconds = 0.1;

void progress_begin(struct progress *progress, const char *what, size_t total, bool quiet)
{
    *progress = (struct progress){
        .what = what,
        .total = total,
        .start = ob_os_seconds(),
        .enabled = !quiet && total > 0 && isatty(STDERR_FILENO),
    };
}

static void draw(const struct progress *progress, size_t done, double elapsed)
{
    enum { WIDTH = 30 };
    char bar[WIDTH + 1];
    double share = (double)done / (double)progress->total;
    int filled = (int)(share * WIDTH);
    memset(bar, '-', WIDTH);
    memset(bar, '#', (size_t)(filled < WIDTH ? filled : WIDTH));
    bar[WIDTH] = '\0';
    double rate = (double)done / elapsed;
    const char *on = report_colours() ? "\033[36m" : "", *off = *on ? "\033[0m" : "";
    fprintf(stderr, "\r%s [%s%s%s] %3.0f%%", progress->what, on, bar, off, 100.0 * share);
    if (share > 0.01) /* earlier it would be a guess */
        fprintf(stderr, " %.1f/s, %.0f s left ", rate, (double)(progress->total - done) / rate);
}

void progress_update(struct progress *progress, size_t done)
{
    if (!progress->enabled)
        return;
    double now = ob_os_seconds();
    if (now - progress->start < delay_seconds || now - progress->drawn < redraw_seconds)
        return;
    draw(progress, done, now - progress->start);
    progress->drawn = now;
}

void progress_end(struct progress *progress)
{
    if (progress->enabled && progress->drawn > 0)
        fprintf(stderr, "\r%*s\r", 79, "");
    progress->enabled = false;
}
