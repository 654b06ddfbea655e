/* lines.c - a file's lines as they come. */
#include "lines.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "command.h"

enum { PIECE = 1 << 16 };

static void *must(void *p)
{
    if (!p) {
        command_say("out of memory");
        exit(EXIT_BUG);
    }
    return p;
}

static char *take(Lines *l, size_t bytes, size_t ending)
{
    char *line = must(malloc(bytes + 1));

    memcpy(line, l->at + l->from, bytes);
    line[bytes] = '\0';
    l->from += bytes + ending;
    return line;
}

/* False: a signal came, or (without wait) nothing. */
static bool read_more(Lines *l, bool wait)
{
    struct pollfd p = {.fd = l->fd, .events = POLLIN};
    ssize_t got;

    if (!wait && poll(&p, 1, 0) <= 0)
        return false;
    if (l->from) {
        memmove(l->at, l->at + l->from, l->n -= l->from);
        l->from = 0;
    }
    if (l->cap - l->n < PIECE)
        l->at = must(realloc(l->at, l->cap = l->cap * 2 + 2 * PIECE));
    got = read(l->fd, l->at + l->n, PIECE);
    if (got < 0)
        return errno != EINTR && errno != EAGAIN ? (l->end = true) : false;
    l->end = got == 0;
    l->n += (size_t)got;
    return true;
}

char *lines_next(Lines *l, bool wait)
{
    for (;;) {
        const char *end = l->n > l->from ? memchr(l->at + l->from, '\n', l->n - l->from) : NULL;

        if (end)
            return take(l, (size_t)(end - l->at) - l->from, 1);
        if (l->end)
            return l->n > l->from ? take(l, l->n - l->from, 0) : NULL;
        if (!read_more(l, wait))
            return NULL;
    }
}

void lines_of(Lines *l, const char *text)
{
    const size_t n = strlen(text);

    *l = (Lines){.end = true, .at = must(strdup(text)), .n = n, .cap = n};
}

void lines_close(Lines *l)
{
    free(l->at);
    if (l->fd > 0)
        close(l->fd);
    *l = (Lines){.end = true};
}
