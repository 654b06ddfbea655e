/* pages.c - the free pages of the KV cache, and the number of users of the others.
 *
 * Pages that were given back are taken first, the last one before all others, then those that were never taken, in
 * order. So neither the pages' memory nor these lists are touched before they are needed. */
#include "pages.h"

#include <assert.h>

void pages_init(Pages *p, uint32_t all)
{
    p->n = p->all = all;
    p->fresh = 0;
}

/* Free pages that are on the stack. */
static uint32_t pages_stacked(const Pages *p)
{
    return p->n - (p->all - p->fresh);
}

bool pages_take(Pages *p, int32_t *to, uint32_t n)
{
    if (n > p->n)
        return false;
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t stacked = pages_stacked(p);

        to[i] = stacked ? p->free[stacked - 1] : (int32_t)p->fresh++;
        p->n--;
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
        if (--p->users[from[i]] == 0) {
            p->free[pages_stacked(p)] = from[i];
            p->n++;
        }
    }
}
