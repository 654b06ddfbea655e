/* swap.c - KV pages of preempted requests on the host (FtxOptions.swap_bytes), the second way beside recomputing them.
 *
 *   preempt    pages of the cache ─▶ pages on the host    both copies are enqueued behind the steps before them, so the
 *   run again  pages of the cache ◀─ pages on the host    pages of the cache can be given away at once
 *
 * Copied are pages that nobody else uses. Those before them are others', too, and are found in the prefix cache when the
 * request runs again, or it is recomputed. A copy there and back must take less time than to recompute the tokens: times of
 * both are measured at open. */
#include "engine.h"

enum { MEASURED_PAGES = 16, MEASURED_TOKENS = 64 };

uint32_t swap_count(const FtxModel *model, uint64_t bytes, uint32_t most)
{
    const uint64_t page = model->plan->head->space_bytes[FTX_SPACE_PAGES], n = page ? bytes / page : 0;

    return n < most ? (uint32_t)n : most;
}

/* Copies n pages to the host or back and waits. */
static FtxStatus copy_pages(FtxEngine *e, uint32_t n, bool back, FtxError *err)
{
    FtxStatus s = FTX_OK;

    for (uint32_t i = 0; i < n && !s; i++)
        s = e->api->keep(e->session, i, i, back, err);
    return s ? s : e->api->wait(e->session, err);
}

/* The second time counts: the first touches the memory. */
static FtxStatus measure_copies(FtxEngine *e, FtxError *err)
{
    const uint64_t room = (uint64_t)e->pages.all * e->facts->kv_block;
    uint32_t n = MEASURED_PAGES < e->pages.all ? MEASURED_PAGES : e->pages.all;
    int tokens = MEASURED_TOKENS < (int)e->facts->tokens ? MEASURED_TOKENS : (int)e->facts->tokens;
    double from = 0.0, median, most;
    FtxStatus s = FTX_OK;

    n = n < e->swap.all ? n : e->swap.all;
    for (int turn = 0; turn < 2 && !s; turn++) {
        from = engine_now();
        s = copy_pages(e, n, false, err);
        if (!s)
            s = copy_pages(e, n, true, err);
    }
    e->swap.page_us = (engine_now() - from) * 1e6 / (2.0 * n);
    e->swap.token_us = e->pace.token_us;
    if (s || e->pace.n)
        return s;
    tokens = tokens < (int)e->facts->context ? tokens : (int)e->facts->context;
    tokens = (uint64_t)tokens < room ? tokens : (int)room;
    s = ftx_engine_bench(e, 1, tokens, 0, 3, &median, &e->swap.token_us, &most, err);
    e->swap.token_us /= tokens;
    return s;
}

FtxStatus swap_open(FtxEngine *e, FtxError *err)
{
    Swap *w = &e->swap;
    FtxStatus s;

    if (!w->all)
        return FTX_OK;
    s = e->api->keep_open(e->session, w->all, err);
    for (w->n = 0; w->n < w->all; w->n++)
        w->free[w->n] = (int32_t)(w->all - 1 - w->n);
    if (!s)
        s = measure_copies(e, err);
    if (!s)
        model_log(e->model, 0, "%u KV pages on the host: %.1f us to copy one, %.1f us to recompute its %u tokens",
                  w->all, w->page_us, w->token_us * e->facts->kv_block, e->facts->kv_block);
    return s;
}

bool swap_out(FtxEngine *e, Request *r)
{
    const int block = (int)e->facts->kv_block;
    const uint32_t end = (uint32_t)((r->fed + block - 1) / block);
    Swap *w = &e->swap;
    uint32_t first = 0, n;

    while (first < end && e->pages.users[r->pages[first]] > 1)
        first++;
    n = end - first;
    if (!n || n > w->n || 2.0 * n * w->page_us >= (r->fed - (int)first * block) * w->token_us)
        return false;
    r->kept_first = first;
    r->kept_fed = r->fed;
    while (r->kept_pages < n) {
        const int32_t kept = w->free[--w->n];

        r->kept[r->kept_pages] = kept;
        if (e->api->keep(e->session, (uint32_t)kept, (uint32_t)r->pages[first + r->kept_pages++], false, NULL)) {
            swap_drop(e, r);
            return false;
        }
    }
    e->stats.swaps++;
    return true;
}

int swap_in(FtxEngine *e, Request *r, uint32_t found)
{
    const uint32_t first = r->kept_first, end = first + r->kept_pages;
    int fed = (int)(found * e->facts->kv_block);
    bool whole = found >= first;

    if (!r->kept_pages)
        return fed;
    for (uint32_t i = found; i < end && whole; i++)
        whole = !e->api->keep(e->session, (uint32_t)r->kept[i - first], (uint32_t)r->pages[i], true, NULL);
    if (!whole)
        e->stats.recomputed_tokens += (uint64_t)(r->kept_fed - fed);
    else if (r->kept_fed > fed)
        fed = r->kept_fed;
    swap_drop(e, r);
    return fed;
}

void swap_drop(FtxEngine *e, Request *r)
{
    while (r->kept_pages)
        e->swap.free[e->swap.n++] = r->kept[--r->kept_pages];
}
