/* reuse.c - what of a prompt is in the KV cache already: found at admission, made known when its step has ended.
 *
 * At least the last known token is always computed, because its row gives the next one. Pages of generated tokens
 * become known, too: the next turn of a conversation begins with them. Not with e->by_role, where a generated token has
 * other bits than the same one in a prompt (schedule.c). */
#include "engine.h"

static const Hash128 *key_of(FtxEngine *e, Request *r, uint32_t page)
{
    const Prefix *p = e->pages.prefix;

    for (; r->keys <= page; r->keys++) {
        const Hash128 root = {r->salt, 0};
        const Hash128 *before = r->keys ? &r->key[r->keys - 1] : &root;

        r->key[r->keys] = prefix_key(p, before, r->ids + (size_t)r->keys * p->block);
    }
    return &r->key[page];
}

/* Tokens of r that others may find, of `known` ones; whole pages of them. */
static uint32_t shared_tokens(const FtxEngine *e, const Request *r, int known)
{
    return (uint32_t)((e->by_role || r->beam.width) && known > r->prompt ? r->prompt : known);
}

/* Pages of r that it may find. */
static uint32_t most_pages(const FtxEngine *e, const Request *r)
{
    return shared_tokens(e, r, states_reusable(r, r->length - 1)) / e->pages.prefix->block;
}

int32_t reuse_page(FtxEngine *e, Request *r, uint32_t page)
{
    const Prefix *p = e->pages.prefix;

    return prefix_find(p, key_of(e, r, page), r->ids + (size_t)page * p->block);
}

uint32_t reuse_find(FtxEngine *e, Request *r)
{
    const Prefix *p = e->pages.prefix;
    uint32_t idle = 0;

    r->found_pages = r->branch_pages = 0;
    if (!p || r->wants_prompt) /* every token of it must be computed */
        return 0;
    for (uint32_t i = 0; i < most_pages(e, r) && (r->pages[i] = reuse_page(e, r, i)) >= 0; i++) {
        r->branch_pages = i + 1;
        if (!e->recurrent || p->page[r->pages[i]].snapshot)
            r->found_pages = i + 1;
    }
    for (uint32_t i = 0; i < r->found_pages; i++)
        idle += e->pages.users[r->pages[i]] == 0;
    return idle;
}

bool reuse_awaits(FtxEngine *e, Request *r)
{
    const uint32_t missing = r->found_pages;

    if (!e->pages.prefix || r->wants_prompt || missing == most_pages(e, r))
        return false;
    for (uint32_t i = 0; i < e->running.n; i++) {
        Request *other = e->running.at[i];
        const uint32_t known = shared_tokens(e, other, other->length - other->unread);
        const uint32_t end = e->recurrent ? snapshots_next(e, other) : missing + 1;

        if (end <= missing || end > most_pages(e, r) || other->known_pages >= end ||
            known < end * e->pages.prefix->block)
            continue;

        const Hash128 *a = key_of(e, r, end - 1), *b = key_of(e, other, end - 1);

        if (a->low == b->low && a->high == b->high)
            return true;
    }
    return false;
}

void reuse_landed(FtxEngine *e, Request *r, int tokens)
{
    const Prefix *p = e->pages.prefix;
    const uint32_t shared = shared_tokens(e, r, tokens); /* of a beam search the host knows no others */

    for (; p && (r->known_pages + 1) * p->block <= shared; r->known_pages++)
        prefix_keep(e->pages.prefix, r->pages[r->known_pages], key_of(e, r, r->known_pages),
                    r->ids + (size_t)r->known_pages * p->block);
    snapshots_landed(e, r);
}
