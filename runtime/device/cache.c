/* cache.c - how many pages an engine's KV cache has. */
#include "cache.h"

#include "../artifact/sizes.h"

/* Kept free of the cache, for what comes later: CUDA graphs, the driver's own memory, other programs. */
static const uint64_t least_reserve = UINT64_C(256) << 20;
enum { RESERVE_PART = 50 }; /* and at least 1 / 50 of all memory */

static double mb(uint64_t bytes)
{
    return (double)bytes * 1e-6;
}

static uint32_t least_pages(const FtxFacts *f)
{
    return f->sequences < f->kv_pages ? f->sequences : f->kv_pages;
}

static uint64_t reserve_of(uint64_t all)
{
    return all / RESERVE_PART > least_reserve ? all / RESERVE_PART : least_reserve;
}

uint64_t cache_least(const Artifact *a, const ArtifactPlan *p, uint64_t all)
{
    const uint64_t *space = p->head->space_bytes;

    return space[FTX_SPACE_STATE] + space[FTX_SPACE_IO] + space[FTX_SPACE_WORK] +
           cache_bytes(p, least_pages(a->facts)) + reserve_of(all);
}

FtxStatus cache_pages(const Artifact *a, const ArtifactPlan *p, uint64_t kv_bytes, CacheMemory memory, uint32_t *pages,
                      FtxError *err)
{
    const FtxFacts *f = a->facts;
    const uint64_t page = p->head->space_bytes[FTX_SPACE_PAGES];
    const uint32_t least = least_pages(f);
    const uint64_t reserve = reserve_of(memory.all);
    const uint64_t spare = memory.free > reserve ? memory.free - reserve : 0;
    const uint64_t fit = page ? (kv_bytes ? kv_bytes : spare) / page : f->kv_pages;

    *pages = fit < f->kv_pages ? (uint32_t)fit : f->kv_pages;
    if (*pages < least && kv_bytes)
        return ftx_fail(err, FTX_EINVAL,
                        "kv_bytes (--kv-memory) is %.1f MB, and the KV cache needs %.1f MB at least, one page of %u "
                        "tokens for each of %u sequences: raise it",
                        mb(kv_bytes), mb(page) * least, f->kv_block, least);
    if (*pages < least)
        return ftx_fail(err, memory.full,
                        "the KV cache needs %.1f MB at least, one page of %u tokens for each of %u sequences; free are "
                        "%.1f MB, of which %.1f MB are kept in reserve: free memory, give other engines less with "
                        "kv_bytes (--kv-memory), or set it here to use the reserve",
                        mb(page) * least, f->kv_block, least, mb(memory.free), mb(reserve));
    if (kv_bytes && cache_bytes(p, *pages) > memory.free)
        return ftx_fail(err, memory.full,
                        "the KV cache needs %.1f MB with kv_bytes (--kv-memory) of %.1f MB, and %.1f MB are free: "
                        "lower it",
                        mb(cache_bytes(p, *pages)), mb(kv_bytes), mb(memory.free));
    return FTX_OK;
}

/* Bytes of the recurrent states before state i of one sequence, and of itself; false: there are fewer. */
static bool find_state(const Artifact *a, const ArtifactPlan *p, uint32_t i, uint64_t *before, uint64_t *bytes)
{
    uint64_t values;

    *before = *bytes = 0;
    for (uint32_t c = 0; c < p->n_caches; c++) {
        if (!p->caches[c].recurrent)
            continue;
        *before += *bytes;
        sizes_cache(&p->caches[c], a->facts->kv_block, bytes, &values); /* artifact_open has checked it */
        if (!i--)
            return true;
    }
    *before += *bytes;
    return false;
}

bool cache_state(const Artifact *a, const ArtifactPlan *p, uint32_t slot, uint32_t snapshot, uint32_t i,
                 CacheState *state)
{
    const uint64_t *named = p->head->named;
    uint64_t before, all, none;

    if (!find_state(a, p, i, &before, &state->bytes))
        return false;
    find_state(a, p, UINT32_MAX, &all, &none);
    state->at = named[FTX_NAMED_recurrent] + before * a->facts->sequences + slot * state->bytes;
    state->copy = named[FTX_NAMED_snapshots] + snapshot * all + before;
    return true;
}

uint32_t cache_snapshots(const Artifact *a, const ArtifactPlan *p)
{
    uint64_t all, none;

    find_state(a, p, UINT32_MAX, &all, &none);
    return all ? (uint32_t)(p->head->named_bytes[FTX_NAMED_snapshots] / all) : 0;
}

bool cache_part(const Artifact *a, const ArtifactPlan *p, uint32_t pages, uint32_t page, uint32_t i, CachePart *part)
{
    uint64_t before[2] = {0, 0}, bytes[2] = {0, 0};
    uint32_t n = i / 2, c = 0;

    for (; c < p->n_caches; c++) {
        if (p->caches[c].source || p->caches[c].recurrent) /* these have no pages */
            continue;
        sizes_cache(&p->caches[c], a->facts->kv_block, &bytes[0], &bytes[1]); /* artifact_open has checked it */
        if (!n--)
            break;
        before[0] += bytes[0];
        before[1] += bytes[1];
    }
    if (c == p->n_caches)
        return false;
    part->alone = p->head->named[i % 2 ? FTX_NAMED_v : FTX_NAMED_k] + before[i % 2];
    part->bytes = bytes[i % 2];
    part->at = part->alone * pages + page * part->bytes;
    return true;
}
