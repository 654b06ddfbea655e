/* prefix.c - known pages by key in a hash table with chains, idle ones in a list from oldest to newest. */
#include "prefix.h"

#include <assert.h>
#include <string.h>

uint32_t prefix_buckets(uint32_t pages)
{
    uint32_t n = 1;

    while (n < pages)
        n *= 2;
    return n;
}

Hash128 prefix_key(const Prefix *p, const Hash128 *before, const int32_t *ids)
{
    const Hash128 chain[2] = {*before, hash128_seeded(ids, p->block * sizeof *ids, p->seed)};

    return hash128_seeded(chain, sizeof chain, p->seed);
}

static uint32_t *bucket_of(const Prefix *p, const Hash128 *key)
{
    return &p->bucket[key->low & (p->buckets - 1)];
}

static bool same_key(const Hash128 *a, const Hash128 *b)
{
    return a->low == b->low && a->high == b->high;
}

static int32_t page_of(const Prefix *p, const Hash128 *key)
{
    for (uint32_t at = *bucket_of(p, key); at; at = p->page[at - 1].next)
        if (same_key(&p->page[at - 1].key, key))
            return (int32_t)(at - 1);
    return -1;
}

int32_t prefix_find(const Prefix *p, const Hash128 *key, const int32_t *ids)
{
    const int32_t page = page_of(p, key);

    return page >= 0 && memcmp(p->ids + (size_t)page * p->block, ids, p->block * sizeof *ids) == 0 ? page : -1;
}

void prefix_keep(Prefix *p, int32_t page, const Hash128 *key, const int32_t *ids)
{
    PrefixPage *at = &p->page[page];
    uint32_t *bucket = bucket_of(p, key);

    if (at->known || page_of(p, key) >= 0)
        return;
    *at = (PrefixPage){.key = *key, .next = *bucket, .known = true};
    *bucket = (uint32_t)page + 1;
    memcpy(p->ids + (size_t)page * p->block, ids, p->block * sizeof *ids);
}

void prefix_rest(Prefix *p, int32_t page)
{
    const uint32_t self = (uint32_t)page + 1;

    p->page[page].older = p->newest;
    p->page[page].newer = 0;
    *(p->newest ? &p->page[p->newest - 1].newer : &p->oldest) = self;
    p->newest = self;
    p->idle++;
}

void prefix_wake(Prefix *p, int32_t page)
{
    const PrefixPage *at = &p->page[page];

    *(at->older ? &p->page[at->older - 1].newer : &p->oldest) = at->newer;
    *(at->newer ? &p->page[at->newer - 1].older : &p->newest) = at->older;
    p->idle--;
}

void prefix_drop(Prefix *p, int32_t page)
{
    uint32_t *link = bucket_of(p, &p->page[page].key);

    if (!p->page[page].known)
        return;
    while (*link != (uint32_t)page + 1)
        link = &p->page[*link - 1].next;
    *link = p->page[page].next;
    p->page[page].known = false;
    p->page[page].snapshot = 0;
}

int32_t prefix_forget(Prefix *p)
{
    const int32_t page = (int32_t)p->oldest - 1;

    assert(page >= 0);
    prefix_wake(p, page);
    prefix_drop(p, page);
    return page;
}
