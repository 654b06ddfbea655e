/* prefix.h - which pages of the KV cache hold the beginning of which text, so that the next prompt that begins alike
 * need not be read again.
 *
 * A page is known by a key: the hash of its tokens and of the key of the page before it (a hash chain, as in vLLM's
 * automatic prefix caching). So equal keys mean equal text from the first token on. Only full pages are known. A known
 * page that nobody uses is idle: it stays findable until its memory is needed; the one that has been idle longest
 * goes first. All arrays are the caller's, zeroed, and of fixed size. */
#ifndef FTX_PREFIX_H
#define FTX_PREFIX_H

#include <stdbool.h>
#include <stdint.h>

#include "../base/hash.h"

typedef struct PrefixPage {
    Hash128 key;
    uint32_t next;         /* in its bucket: a page + 1; 0: the last */
    uint32_t older, newer; /* of idle pages: a page + 1; 0: none */
    uint32_t snapshot;     /* the recurrent states behind it (snapshots.c): a snapshot + 1; 0: none */
    bool known;
} PrefixPage;

typedef struct Prefix {
    PrefixPage *page;              /* [pages] */
    int32_t *ids;                  /* [pages][block]: tokens of known pages */
    uint32_t *bucket;              /* [buckets]: a page + 1; 0: empty */
    uint32_t buckets;              /* a power of two */
    uint32_t block;                /* tokens of a page */
    uint32_t oldest, newest, idle; /* idle pages: the ends of their list (a page + 1, or 0), how many */
    uint64_t seed;                 /* random: nobody can make texts with equal keys */
} Prefix;

uint32_t prefix_buckets(uint32_t pages); /* as many as the array needs for so many pages */

/* The key of a page of `block` tokens behind the page with the key *before. */
Hash128 prefix_key(const Prefix *p, const Hash128 *before, const int32_t *ids);
/* The page with this key and these tokens; -1: there is none. */
int32_t prefix_find(const Prefix *p, const Hash128 *key, const int32_t *ids);
/* Makes a page known, if no other page is known by its key. */
void prefix_keep(Prefix *p, int32_t page, const Hash128 *key, const int32_t *ids);
void prefix_rest(Prefix *p, int32_t page); /* a known page has lost its last user: it is idle */
void prefix_wake(Prefix *p, int32_t page); /* an idle page has a user again */
int32_t prefix_forget(Prefix *p);          /* the page that has been idle longest, which is known no more */
void prefix_drop(Prefix *p, int32_t page); /* a page in use is known no more, if it was */

#endif
