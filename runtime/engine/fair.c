/* fair.c - counters of tokens by key, in as many entries as there are requests. */
#include "fair.h"

#include <assert.h>

/* The key's entry, or the one of those without users that was served least. */
static uint32_t entry_of(const Fair *f, uint64_t key)
{
    uint32_t entry = f->n;

    for (uint32_t i = 0; i < f->n; i++) {
        if (f->at[i].key == key && (f->at[i].users || f->at[i].served))
            return i;
        if (!f->at[i].users && (entry == f->n || f->at[i].served < f->at[entry].served))
            entry = i;
    }
    assert(entry < f->n);
    return entry;
}

/* The least counter of the keys that have requests; if there are none, that of the last one. */
static uint64_t least_served(const Fair *f)
{
    uint64_t least = f->left;
    int found = 0;

    for (uint32_t i = 0; i < f->n; i++)
        if (f->at[i].users && (!found++ || f->at[i].served < least))
            least = f->at[i].served;
    return least;
}

uint32_t fair_enter(Fair *f, uint64_t key)
{
    const uint32_t entry = entry_of(f, key);
    FairKey *at = &f->at[entry];

    if (at->key != key)
        *at = (FairKey){.key = key};
    if (!at->users) {
        const uint64_t least = least_served(f);

        at->served = at->served > least ? at->served : least;
    }
    at->users++;
    return entry;
}

void fair_serve(Fair *f, uint32_t entry, uint64_t tokens)
{
    f->at[entry].served += tokens;
}

void fair_leave(Fair *f, uint32_t entry)
{
    if (--f->at[entry].users == 0)
        f->left = f->at[entry].served;
}
