/* lines.h - a file's lines as they come: from a pipe or a terminal before its end. */
#ifndef FTX_RUNNER_LINES_H
#define FTX_RUNNER_LINES_H

#include <stdbool.h>
#include <stddef.h>

typedef struct Lines {
    int fd;
    bool end; /* nothing more is in the file */
    char *at;
    size_t from, n, cap; /* of `at`: given out up to `from`, read up to `n` */
} Lines;

/* The next line without its end, to be freed. NULL: none; with `wait` only at the end or after a signal,
 * else also while none has come yet. */
char *lines_next(Lines *l, bool wait);
void lines_of(Lines *l, const char *text); /* those of a text */
void lines_close(Lines *l);

#endif
