/* progress.h - one line on a terminal that says how far a stage is. */
#ifndef FTXC_PROGRESS_H
#define FTXC_PROGRESS_H

#include <stdint.h>

typedef struct ProgressLine {
    const char *what; /* the stage that is on the line */
    int percent;
} ProgressLine;

/* CompileOptions.progress; user: a ProgressLine, zero at first. Rewrites the line, and clears it at the end of
 * a stage. Writes to standard error. */
void progress_line(void *user, const char *what, uint64_t done, uint64_t all);

#endif
