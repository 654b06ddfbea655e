/* pages.c - the pages of the cache that nobody has: a stack. */
#include <assert.h>
#include <string.h>

#include "engine.h"

void pages_init(Pages *p, int32_t *room, uint32_t all)
{
    p->free = room;
    p->n = p->all = all;
    for (uint32_t i = 0; i < all; i++)
        room[i] = (int32_t)(all - 1 - i); /* page 0 is taken first */
}

bool pages_take(Pages *p, int32_t *to, uint32_t n)
{
    if (n > p->n)
        return false;
    for (uint32_t i = 0; i < n; i++)
        to[i] = p->free[--p->n];
    return true;
}

void pages_give(Pages *p, const int32_t *from, uint32_t n)
{
    assert(n <= p->all - p->n);
    memcpy(p->free + p->n, from, n * sizeof *from);
    p->n += n;
}
