/* lines.h - a file's lines as they come: from a pipe or a terminal before its end. */
#ifndef FTX_RUNNER_LINES_H
#define FTX_RUNNER_LINES_H

#include <stdbool.h>
#include <stddef.h>

typedef struct Lines {
    int fd;
    const char *name; /* of the file, for messages; NULL: standard input */
    bool end;         /* nothing more is in the file */
    bool failed;      /* it could not be read, which has been said */
    char *at;
    size_t from, n, cap; /* of `at`: given out up to `from`, read up to `n` */
} Lines;

/* The next line without its end, to be freed, and its bytes, of which any may be 0. NULL: none; with `wait`
 * only at the end or after a signal, else also while none has come yet. */
char *lines_next(Lines *l, bool wait, size_t *bytes);
char *lines_rest(Lines *l, size_t *bytes); /* all up to the end, likewise; NULL: it could not be read */
void lines_of(Lines *l, const char *text); /* those of a text */
void lines_close(Lines *l);

#endif
