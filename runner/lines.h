/* lines.h - the lines of a file or pipe, each as soon as it has arrived. */
#ifndef FTX_RUNNER_LINES_H
#define FTX_RUNNER_LINES_H

#include <stdbool.h>
#include <stddef.h>

typedef struct Lines {
    int fd;
    const char *name; /* of the file, for messages; NULL: standard input */
    bool end;         /* all of the file has been read */
    bool failed;      /* reading failed; the reason has been printed */
    char *at;         /* [cap]: bytes from..n are read and not yet returned */
    size_t from, n, cap;
    size_t seen; /* bytes behind from that hold no newline */
} Lines;

/* The next line without its newline, and its length; the caller frees it. It may hold NUL bytes. NULL: no line.
 * With `wait` that means the end of the file or a signal; without, the line may not have arrived yet. */
char *lines_next(Lines *l, bool wait, size_t *bytes);
char *lines_rest(Lines *l, size_t *bytes); /* everything up to the end; NULL: reading failed */
void lines_of(Lines *l, const char *text); /* read from a text instead of a file */

/* Opens FILE, or standard input if it is NULL or "-". False: the reason has been printed. */
bool lines_open(Lines *l, const char *file);
void lines_close(Lines *l);

#endif
