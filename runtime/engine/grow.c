/* grow.c - pages for requests that take them as they grow (FtxOptions.overcommit), and which request is preempted when
 * there are none.
 *
 * A request is admitted if the pages that the running ones will probably still take leave room for it. How much of its
 * max_new a request probably uses is guessed: `share` falls while all goes well and rises when a request is preempted
 * (as the new-token ratio of SGLang). It does not fall below `used`, the mean of those that have ended. A preempted request loses its pages and is requeued before all others of its
 * priority. When it runs again, the keys and values of its tokens are recomputed: they stand in its ids, so it
 * continues where it was. Or they are copied to the host and back (swap.c). After MOST_PREEMPTIONS a request takes all its pages at admission, as every request does
 * without this option. */
#include "engine.h"

enum {
    GROW_TOKENS = 64, /* room for new tokens that a request takes at once: a flight of as many runs needs no host */
    MOST_PREEMPTIONS = 2,
};

static const float most_share = 0.7f, least_share = 0.1f, falls = 0.99f; /* of each composition */
static const float learns = 1.0f / 16.0f;                                /* of each request that ends */

static uint32_t pages_for(const FtxEngine *e, const Request *r, int64_t tokens)
{
    const uint32_t n = (uint32_t)((tokens + e->facts->kv_block - 1) / e->facts->kv_block);

    return n < r->own_pages ? n : r->own_pages;
}

/* Pages with which r probably ends. */
static uint32_t probable_pages(const FtxEngine *e, const Request *r)
{
    return pages_for(e, r, r->length + (int64_t)(e->share * (float)(r->limit - r->length)));
}

void grow_begin(FtxEngine *e)
{
    e->overcommit = true;
    e->share = most_share;
    e->used = least_share;
}

void grow_learn(FtxEngine *e, const Request *r)
{
    if (r->grows)
        e->used += learns * ((float)(r->length - r->prompt) / (float)(r->limit - r->prompt) - e->used);
}

bool grow_does(const Request *r)
{
    return r->grows && r->preemptions < MOST_PREEMPTIONS;
}

uint32_t grow_first(const FtxEngine *e, const Request *r)
{
    return pages_for(e, r, (int64_t)r->length + GROW_TOKENS);
}

uint32_t grow_needs(const FtxEngine *e, const Request *r)
{
    const uint32_t first = grow_first(e, r), probably = probable_pages(e, r);

    return first > probably ? first : probably;
}

uint32_t grow_reserve(const FtxEngine *e)
{
    uint32_t pages = 0;

    for (uint32_t i = 0; i < e->running.n; i++) {
        const Request *r = e->running.at[i];
        const uint32_t probably = probable_pages(e, r);

        if (r->n_pages < probably && grow_does(r))
            pages += probably - r->n_pages;
    }
    return pages;
}

int grow_room(const FtxEngine *e, const Request *r)
{
    return (int)(r->n_pages * e->facts->kv_block) + 1; /* the last token is known and not fed */
}

/* Of the requests that grow: of the last priority the one with the fewest tokens to recompute. */
static Request *find_victim(const FtxEngine *e)
{
    Request *least = NULL;

    for (uint32_t i = 0; i < e->running.n; i++) {
        Request *r = e->running.at[i];

        if (grow_does(r) &&
            (!least || r->priority > least->priority || (r->priority == least->priority && r->length <= least->length)))
            least = r;
    }
    return least;
}

static void preempt(FtxEngine *e, Request *r)
{
    const bool kept = swap_out(e, r);

    schedule_release(e, r);
    list_remove(&e->running, r);
    r->preemptions++;
    submit_wait(e, r, true);
    e->share = e->used > most_share ? e->used : most_share;
    e->stats.preemptions++;
    e->stats.recomputed_tokens += kept ? 0 : (uint64_t)r->fed;
}

/* Gives r pages up to `pages` in all, as many as there are; false: fewer than `least`. */
static bool take_pages(FtxEngine *e, Request *r, uint32_t pages, uint32_t least, FtxStatus *s, FtxError *err)
{
    const uint32_t missing = pages > r->n_pages ? pages - r->n_pages : 0;
    const uint32_t n = missing < e->pages.n ? missing : e->pages.n;

    if (r->n_pages + n < least)
        return false;
    pages_take(&e->pages, r->pages + r->n_pages, n);
    *s = grow_clean(e, r->pages + r->n_pages, n, err);
    if (n && !*s)
        *s = table_put(e, &e->page_table, r->slot, r->n_pages, r->pages + r->n_pages, n, err);
    r->n_pages += n;
    return true;
}

FtxStatus grow_all(FtxEngine *e, bool may_preempt, bool *short_of, FtxError *err)
{
    FtxStatus s = FTX_OK;

    *short_of = false;
    e->share = e->share > least_share ? e->share * falls : e->share;
    e->share = e->share < e->used ? e->used : e->share;
    for (uint32_t i = 0; i < e->running.n && !s;) {
        Request *r = e->running.at[i];
        const uint32_t now = pages_for(e, r, r->length), soon = pages_for(e, r, (int64_t)r->length + GROW_TOKENS);

        if (!grow_does(r) || pages_for(e, r, (int64_t)r->length + GROW_TOKENS / 2) <= r->n_pages ||
            take_pages(e, r, soon, now, &s, err)) {
            i++;
            continue;
        }
        *short_of = true;
        if (!may_preempt)
            break;
        preempt(e, find_victim(e));
        i = 0; /* the list has changed */
    }
    return s;
}

FtxStatus grow_wipe(FtxEngine *e, const Request *r, FtxError *err)
{
    FtxStatus s = FTX_OK;

    for (uint32_t i = 0; i < r->n_pages && !s; i++) {
        const int32_t page = r->pages[i];

        e->pages.doubtful[page] = e->pages.users[page] > 1;
        if (e->pages.doubtful[page])
            continue;
        if (e->pages.prefix)
            prefix_drop(e->pages.prefix, page);
        s = e->api->wipe(e->session, (uint32_t)page, err);
    }
    return s;
}

/* A prompt that was cancelled or preempted before its end. Pages that it wrote may be found by those who begin alike, so they are
 * wiped when others take them; those that it found are their writer's. */
void grow_doubt(FtxEngine *e, const Request *r)
{
    const uint32_t written = ((uint32_t)r->fed + e->facts->kv_block - 1) / e->facts->kv_block;

    for (uint32_t i = schedule_shared(r); i < written && i < r->n_pages && !r->checked; i++)
        e->pages.doubtful[r->pages[i]] = true;
}

FtxStatus grow_clean(FtxEngine *e, const int32_t *page, uint32_t n, FtxError *err)
{
    FtxStatus s = FTX_OK;

    for (uint32_t i = 0; i < n && !s; i++)
        if (e->pages.doubtful[page[i]]) {
            e->pages.doubtful[page[i]] = false;
            s = e->api->wipe(e->session, (uint32_t)page[i], err);
        }
    return s;
}
