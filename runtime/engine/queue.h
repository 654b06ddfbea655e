/* queue.h - which of the waiting requests runs next: a pure function of their priorities, of the tokens that their keys
 * were served, and of their order. */
#ifndef FTX_QUEUE_H
#define FTX_QUEUE_H

#include <stdbool.h>
#include <stdint.h>

enum {
    QUEUE_MOST_PASSED = 8, /* requests that are too large at present and let a smaller one pass */
    QUEUE_MOST_TIMES = 32, /* how often a request is passed; then nobody passes it any more */
};

typedef struct QueueItem {
    int priority;    /* the lowest first */
    bool preempted;  /* among equal priorities before the others */
    uint64_t served; /* then the key with the fewest tokens, then the order in which they stand */
    uint32_t passed; /* how often others have passed it */
} QueueItem;

/* Whether a request can run now. LATER: it could, but waits for what another computes for it; it may be passed. */
typedef enum QueueFit { QUEUE_FITS, QUEUE_LATER, QUEUE_TOO_LARGE } QueueFit;

/* The index of the item that runs next; n: none. heap: room for n numbers. too_large[*n_too_large], at most QUEUE_MOST_PASSED: those that it
 * passes. `fit` is called in the order of the queue. */
uint32_t queue_next(const QueueItem *item, uint32_t n, uint32_t *heap, QueueFit (*fit)(void *user, uint32_t i),
                    void *user, uint32_t *too_large, uint32_t *n_too_large);

#endif
