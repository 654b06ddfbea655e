/* queue.c - the order of waiting requests, and how far a small one may pass those that do not fit. */
#include "queue.h"

static bool is_before(const QueueItem *item, uint32_t a, uint32_t b)
{
    if (item[a].priority != item[b].priority)
        return item[a].priority < item[b].priority;
    if (item[a].preempted != item[b].preempted)
        return item[a].preempted;
    if (item[a].served != item[b].served)
        return item[a].served < item[b].served;
    return a < b;
}

/* The item that stands behind `last` in the queue; last n: the first. n: there is none. */
static uint32_t item_behind(const QueueItem *item, uint32_t n, uint32_t last)
{
    uint32_t best = n;

    for (uint32_t i = 0; i < n; i++)
        if (i != last && (last == n || is_before(item, last, i)) && (best == n || is_before(item, i, best)))
            best = i;
    return best;
}

uint32_t queue_next(const QueueItem *item, uint32_t n, QueueFit (*fit)(void *user, uint32_t i), void *user,
                    uint32_t *too_large, uint32_t *n_too_large)
{
    *n_too_large = 0;
    for (uint32_t i = item_behind(item, n, n); i < n; i = item_behind(item, n, i))
        switch (fit(user, i)) {
        case QUEUE_FITS: return i;
        case QUEUE_LATER: break;
        case QUEUE_TOO_LARGE:
            if (*n_too_large == QUEUE_MOST_PASSED || item[i].passed >= QUEUE_MOST_TIMES)
                return n;
            too_large[(*n_too_large)++] = i;
        }
    return n;
}
