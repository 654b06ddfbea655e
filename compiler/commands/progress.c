/* progress.c - one line on a terminal, rewritten as a stage advances. */
#include "progress.h"

#include <stdio.h>

void progress_line(void *user, const char *what, uint64_t done, uint64_t all)
{
    ProgressLine *p = user;
    const int percent = all ? (int)(done * 100 / all) : 100;

    if (p->what == what && p->percent == percent)
        return;
    p->what = what;
    p->percent = percent;
    fprintf(stderr, "\r%s %3d%%%s", what, percent, done >= all ? "\r\033[K" : "");
    fflush(stderr);
}
