/* lines.c - the lines of a file or pipe, each as soon as it has arrived. */
#include "lines.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "command.h"

enum { PIECE = 1 << 16, MOST = 64 << 20 /* bytes of a line or a whole text; /dev/zero never ends */, SHORT_MS = 100 };

static char *take(Lines *l, size_t n, size_t ending, size_t *bytes)
{
    char *line = command_must(malloc(n + 1));

    memcpy(line, l->at + l->from, n);
    line[n] = '\0';
    l->from += n + ending;
    l->seen = 0;
    *bytes = n;
    return line;
}

/* Prints why the file cannot be read any further. */
static bool end_failed(Lines *l, const char *why)
{
    command_print("%s: %s: %s\n", command_program, l->name ? l->name : "standard input", why);
    return l->failed = l->end = true;
}

/* False: a signal came, or, without wait, nothing has arrived. */
static bool read_more(Lines *l, bool wait)
{
    struct pollfd p = {.fd = l->fd, .events = POLLIN};
    ssize_t got;
    int ready;

    do /* a signal that comes just before poll() does not end it */
        ready = poll(&p, 1, wait ? SHORT_MS : 0);
    while (wait && ready == 0 && !command_stopped);
    if (ready <= 0)
        return false;
    if (l->from) {
        memmove(l->at, l->at + l->from, l->n -= l->from);
        l->from = 0;
    }
    if (l->cap - l->n < PIECE)
        l->at = command_must(realloc(l->at, l->cap = l->cap * 2 + 2 * PIECE));
    got = read(l->fd, l->at + l->n, PIECE);
    if (got < 0)
        return errno != EINTR && errno != EAGAIN && end_failed(l, strerror(errno));
    l->end = got == 0;
    l->n += (size_t)got;
    if (l->n - l->from <= MOST)
        return true;
    l->from = l->n; /* drop what was read */
    l->seen = 0;
    return end_failed(l, "a text of more than 64 MiB");
}

char *lines_next(Lines *l, bool wait, size_t *bytes)
{
    for (;;) {
        const size_t start = l->from + l->seen;
        const char *end = l->n > start ? memchr(l->at + start, '\n', l->n - start) : NULL;

        if (end)
            return take(l, (size_t)(end - l->at) - l->from, 1, bytes);
        l->seen = l->n - l->from;
        if (l->end)
            return l->n > l->from ? take(l, l->n - l->from, 0, bytes) : NULL;
        if (!read_more(l, wait))
            return NULL;
    }
}

char *lines_rest(Lines *l, size_t *bytes)
{
    while (!l->end && !command_stopped)
        read_more(l, true);
    return l->failed ? NULL : take(l, l->n - l->from, 0, bytes);
}

void lines_of(Lines *l, const char *text)
{
    const size_t n = strlen(text);

    *l = (Lines){.end = true, .at = command_must(strdup(text)), .n = n, .cap = n};
}

bool lines_open(Lines *l, const char *file)
{
    *l = (Lines){0};
    if (!file || strcmp(file, "-") == 0)
        return true;
    l->name = file;
    l->fd = open(file, O_RDONLY | O_CLOEXEC);
    return l->fd >= 0 || !end_failed(l, strerror(errno));
}

void lines_close(Lines *l)
{
    free(l->at);
    if (l->fd > 0)
        close(l->fd);
    *l = (Lines){.end = true};
}
