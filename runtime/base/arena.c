/* arena.c - memory with one lifetime: a list of blocks, the newest in front. */
#include "arena.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "diag.h"

typedef struct Block Block;
struct Block {
    Block *next;
    size_t used, size;
    _Alignas(16) char at[];
};

struct Arena {
    Block *first;
};

static const size_t BLOCK_BYTES = 64 * 1024;

Arena *arena_open(void)
{
    Arena *a = calloc(1, sizeof *a);

    if (!a)
        die("out of memory");
    return a;
}

void arena_reset(Arena *a)
{
    for (Block *b = a->first, *next; b; b = next) {
        next = b->next;
        free(b);
    }
    a->first = NULL;
}

void arena_close(Arena *a)
{
    if (!a)
        return;
    arena_reset(a);
    free(a);
}

void *arena_alloc(Arena *a, size_t bytes)
{
    Block *b = a->first;

    if (bytes > SIZE_MAX / 2)
        die("out of memory: %zu bytes asked for at once", bytes);
    bytes = (bytes + 15) & ~(size_t)15;
    if (!b || b->size - b->used < bytes) {
        const size_t size = bytes > BLOCK_BYTES / 4 ? bytes : BLOCK_BYTES;

        b = calloc(1, sizeof *b + size);
        if (!b)
            die("out of memory: %zu bytes", size);
        b->size = size;
        if (a->first && size == bytes && bytes <= SIZE_MAX / 4 && a->first->size - a->first->used > 0) {
            b->next = a->first->next; /* a large piece of its own: the open block stays in front */
            a->first->next = b;
        } else {
            b->next = a->first;
            a->first = b;
        }
    }
    b->used += bytes;
    return b->at + b->used - bytes;
}

void *arena_grow(Arena *a, void *p, size_t old, size_t now)
{
    void *q = arena_alloc(a, now);

    if (old)
        memcpy(q, p, old);
    return q;
}

char *arena_strndup(Arena *a, const char *s, size_t n)
{
    char *p = arena_alloc(a, n + 1);

    memcpy(p, s, n);
    return p;
}

char *arena_strdup(Arena *a, const char *s)
{
    return arena_strndup(a, s, strlen(s));
}

char *arena_vprintf(Arena *a, const char *format, va_list ap)
{
    va_list again;
    char *p;
    int n;

    va_copy(again, ap);
    n = vsnprintf(NULL, 0, format, again);
    va_end(again);
    if (n < 0)
        die("a text could not be formatted: %s", format);
    p = arena_alloc(a, (size_t)n + 1);
    vsnprintf(p, (size_t)n + 1, format, ap);
    return p;
}

char *arena_printf(Arena *a, const char *format, ...)
{
    va_list ap;
    char *p;

    va_start(ap, format);
    p = arena_vprintf(a, format, ap);
    va_end(ap);
    return p;
}
