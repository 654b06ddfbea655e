/* snapshots.c - copies of recurrent states behind pages of the prefix cache: such a page can be taken over only with the states of
 * all tokens up to its end.
 *
 *   a step ends at the page's end    states of the slot ─▶ a snapshot, which is the page's when it is known
 *   a request finds the page         states of its slot ◀─ the snapshot
 *
 * Both copies are enqueued, behind the step and before the next one. A prompt is cut where its last whole page ends (the next turn
 * of a conversation begins with it), and where it leaves what is known without a snapshot (a system prompt that many have). It is
 * not cut for fewer than SNAPSHOT_TOKENS. A page that is forgotten takes its snapshot with it; where all are taken, the one that
 * was used longest ago goes. */
#include "engine.h"

enum { SNAPSHOT_TOKENS = 32 };

/* Pages behind which r leaves a snapshot, the next ones that end behind `from` of its tokens; 0: none. */
static uint32_t next_snapshot(const FtxEngine *e, const Request *r, int from)
{
    const uint32_t block = e->facts->kv_block, last = (uint32_t)(r->prompt - 1) / block;
    const uint32_t at[] = {r->branch_pages < last ? r->branch_pages : 0, last};
    uint32_t before = (uint32_t)r->placed / block;

    if (!e->snapshots.all || r->wants_prompt || !r->together) /* the first of several samples does it for all */
        return 0;
    for (size_t i = 0; i < sizeof at / sizeof *at; i++) {
        if (at[i] <= before || (at[i] - before) * block < SNAPSHOT_TOKENS)
            continue;
        if ((int64_t)at[i] * block > from)
            return at[i];
        before = at[i];
    }
    return 0;
}

uint32_t snapshots_next(const FtxEngine *e, const Request *r)
{
    return next_snapshot(e, r, (int)(r->known_pages * e->facts->kv_block));
}

int snapshots_cut(const FtxEngine *e, const Request *r, int need)
{
    const int end = (int)(next_snapshot(e, r, r->fed) * e->facts->kv_block);

    return end && end - r->fed < need ? end - r->fed : need;
}

/* The page that snapshot i belongs to; NULL: it is free, or about to get one. */
static PrefixPage *snapshot_page(const FtxEngine *e, uint32_t i)
{
    PrefixPage *page = &e->pages.prefix->page[e->snapshots.at[i].page];

    return page->snapshot == i + 1 ? page : NULL;
}

/* One that is free, else the one that was used longest ago; `all`: each is about to get a page. */
static uint32_t take_snapshot(FtxEngine *e)
{
    uint32_t oldest = e->snapshots.all;

    for (uint32_t i = 0; i < e->snapshots.all; i++) {
        const Snapshot *s = &e->snapshots.at[i];

        if (s->of)
            continue;
        if (!snapshot_page(e, i))
            return i;
        if (oldest == e->snapshots.all || s->used < e->snapshots.at[oldest].used)
            oldest = i;
    }
    if (oldest < e->snapshots.all)
        snapshot_page(e, oldest)->snapshot = 0;
    return oldest;
}

FtxStatus snapshots_enqueued(FtxEngine *e, const Flight *f, FtxError *err)
{
    FtxStatus s = FTX_OK;

    for (int i = 0; e->snapshots.all && i < f->rows && !s; i++) {
        const Row *w = &f->row[i];
        const uint32_t pages = w->request ? next_snapshot(e, w->request, w->from) : 0;
        uint32_t at;

        if (!pages || w->from + w->count != (int)(pages * e->facts->kv_block))
            continue;
        at = take_snapshot(e);
        if (at == e->snapshots.all)
            break;
        e->snapshots.at[at] = (Snapshot){.of = w->request, .pages = pages};
        e->snapshots.n++;
        s = e->api->snapshot(e->session, at, (uint32_t)w->request->slot, false, err);
    }
    return s;
}

void snapshots_landed(FtxEngine *e, Request *r)
{
    for (uint32_t i = 0; e->snapshots.n && i < e->snapshots.all; i++) {
        Snapshot *s = &e->snapshots.at[i];

        if (s->of != r || s->pages > r->known_pages)
            continue;
        const int32_t page = reuse_page(e, r, s->pages - 1); /* another's, if that one was known first */

        s->of = NULL;
        e->snapshots.n--;
        if (page < 0)
            continue;
        e->pages.prefix->page[page].snapshot = i + 1;
        s->page = (uint32_t)page;
        s->used = ++e->snapshots.uses;
    }
}

void snapshots_leave(FtxEngine *e, const Request *r)
{
    for (uint32_t i = 0; e->snapshots.n && i < e->snapshots.all; i++)
        if (e->snapshots.at[i].of == r) {
            e->snapshots.at[i].of = NULL;
            e->snapshots.n--;
        }
}

FtxStatus snapshots_begin(FtxEngine *e, const Request *r, FtxError *err)
{
    uint32_t at;

    if (!e->snapshots.all || !r->fed)
        return FTX_OK;
    at = e->pages.prefix->page[r->pages[r->fed / (int)e->facts->kv_block - 1]].snapshot - 1;
    e->snapshots.at[at].used = ++e->snapshots.uses;
    return e->api->snapshot(e->session, at, (uint32_t)r->slot, true, err);
}
