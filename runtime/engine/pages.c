/* pages.c - the free pages of the KV cache, and the number of users of the others.
 *
 * Pages that were given back are taken first, the last one before all others, then those that were never taken, in
 * order. So neither the pages' memory nor these lists are touched before they are needed. Known pages (prefix.h) are
 * taken last. A sequence's last page is given back first, so of a text the end is forgotten before the beginning. */
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
    return p->n - (p->all - p->fresh) - (p->prefix ? p->prefix->idle : 0);
}

static int32_t take_page(Pages *p)
{
    const uint32_t stacked = pages_stacked(p);

    if (stacked)
        return p->free[stacked - 1];
    return p->fresh < p->all ? (int32_t)p->fresh++ : prefix_forget(p->prefix);
}

bool pages_take(Pages *p, int32_t *to, uint32_t n)
{
    if (n > p->n)
        return false;
    for (uint32_t i = 0; i < n; i++) {
        to[i] = take_page(p);
        p->n--;
        p->users[to[i]] = 1;
    }
    return true;
}

void pages_share(Pages *p, const int32_t *of, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        if (p->users[of[i]]++ == 0) {
            prefix_wake(p->prefix, of[i]);
            p->n--;
        }
}

void pages_give(Pages *p, const int32_t *from, uint32_t n)
{
    for (uint32_t i = n; i-- > 0;) {
        const int32_t page = from[i];

        assert(p->users[page]);
        if (--p->users[page])
            continue;
        if (p->prefix && p->prefix->page[page].known)
            prefix_rest(p->prefix, page);
        else
            p->free[pages_stacked(p)] = page;
        p->n++;
    }
}
