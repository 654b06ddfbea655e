/* queue.c - the order of waiting requests, and how far a small one may pass those that do not fit.
 *
 * Mostly one of the first fits, so a heap is made and not the whole order. */
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

/* Moves heap[at] down until none of those below it comes before it. */
static void sink(const QueueItem *item, uint32_t *heap, uint32_t n, uint32_t at)
{
    const uint32_t i = heap[at];

    for (uint32_t below; (below = 2 * at + 1) < n; at = below) {
        if (below + 1 < n && is_before(item, heap[below + 1], heap[below]))
            below++;
        if (!is_before(item, heap[below], i))
            break;
        heap[at] = heap[below];
    }
    heap[at] = i;
}

uint32_t queue_next(const QueueItem *item, uint32_t n, uint32_t *heap, QueueFit (*fit)(void *user, uint32_t i),
                    void *user, uint32_t *too_large, uint32_t *n_too_large)
{
    *n_too_large = 0;
    for (uint32_t i = 0; i < n; i++)
        heap[i] = i;
    for (uint32_t i = n / 2; i-- > 0;)
        sink(item, heap, n, i);
    for (uint32_t left = n; left;) {
        const uint32_t i = heap[0];

        switch (fit(user, i)) {
        case QUEUE_FITS: return i;
        case QUEUE_LATER: break;
        case QUEUE_TOO_LARGE:
            if (*n_too_large == QUEUE_MOST_PASSED || item[i].passed >= QUEUE_MOST_TIMES)
                return n;
            too_large[(*n_too_large)++] = i;
        }
        heap[0] = heap[--left];
        sink(item, heap, left, 0);
    }
    return n;
}
