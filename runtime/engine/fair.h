/* fair.h - tokens that each key (a user, a tenant) was served, so that the one with the fewest is next.
 *
 * A virtual token counter (Sheng et al. 2024, VTC): a key that is new or comes back after a pause begins at the least
 * counter of the keys that have requests, or of the last that had one, so a pause earns no credit. */
#ifndef FTX_FAIR_H
#define FTX_FAIR_H

#include <stdint.h>

typedef struct FairKey {
    uint64_t key, served;
    uint32_t users; /* its requests that wait or run; 0: the entry may be given to another key */
} FairKey;

typedef struct Fair {
    FairKey *at; /* [n], zeroed; as many as there can be requests */
    uint32_t n;
    uint64_t left; /* the counter of the key that was the last to have no requests any more */
} Fair;

uint32_t fair_enter(Fair *f, uint64_t key); /* a request of this key waits; returns the entry */
void fair_serve(Fair *f, uint32_t entry, uint64_t tokens);
void fair_leave(Fair *f, uint32_t entry); /* it has ended */

#endif
