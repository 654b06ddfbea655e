/* pages.c - the free pages of the KV cache, a stack, and the number of users of the others. */
#include "pages.h"

#include <assert.h>

void pages_init(Pages *p, uint32_t all)
{
    p->n = p->all = all;
    for (uint32_t i = 0; i < all; i++)
        p->free[i] = (int32_t)(all - 1 - i); /* page 0 is taken first */
}

bool pages_take(Pages *p, int32_t *to, uint32_t n)
{
    if (n > p->n)
        return false;
    for (uint32_t i = 0; i < n; i++) {
        to[i] = p->free[--p->n];
        p->users[to[i]] = 1;
    }
    return true;
}

void pages_share(Pages *p, const int32_t *of, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        p->users[of[i]]++;
}

void pages_give(Pages *p, const int32_t *from, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        assert(p->users[from[i]]);
        if (--p->users[from[i]] == 0)
            p->free[p->n++] = from[i];
    }
}
