/* cache.h - how many pages an engine's KV cache has, and where an operand is among them. */
#ifndef FTX_DEVICE_CACHE_H
#define FTX_DEVICE_CACHE_H

#include "../artifact/artifact.h"

/* A device's memory before the pages are taken. */
typedef struct CacheMemory {
    uint64_t all, free; /* bytes */
    FtxStatus full;     /* the status of an engine that does not fit */
} CacheMemory;

/* As many pages as the limits can use and fit in kv_bytes (FtxOptions), or, if that is 0, in the free memory less a
 * reserve. Fewer than one page for each sequence are refused. 0 pages: an encoder. */
FtxStatus cache_pages(const Artifact *a, const ArtifactPlan *p, uint64_t kv_bytes, CacheMemory memory, uint32_t *pages,
                      FtxError *err);

static inline uint64_t cache_bytes(const ArtifactPlan *p, uint32_t pages)
{
    return p->head->space_bytes[FTX_SPACE_PAGES] * pages;
}

/* Device memory that an engine needs beside the weights, with a page for each sequence and the reserve of a device with so many
 * bytes. */
uint64_t cache_least(const Artifact *a, const ArtifactPlan *p, uint64_t all);

/* The parts of a KV page: its keys and its values in each cache. */
typedef struct CachePart {
    uint64_t at;    /* its byte in PAGES */
    uint64_t alone; /* its byte in a page that stands alone, of space_bytes[PAGES] */
    uint64_t bytes;
} CachePart;

/* Part i of a page of an engine with `pages` of them; false: it has fewer parts. */
bool cache_part(const Artifact *a, const ArtifactPlan *p, uint32_t pages, uint32_t page, uint32_t i, CachePart *part);

/* One recurrent state of a slot, and its copy in a snapshot: their bytes in STATE. */
typedef struct CacheState {
    uint64_t at, copy, bytes;
} CacheState;

/* State i of a slot and a snapshot, which the plan has; false: there are fewer states. */
bool cache_state(const Artifact *a, const ArtifactPlan *p, uint32_t slot, uint32_t snapshot, uint32_t i,
                 CacheState *state);
/* How many snapshots the plan has room for. */
uint32_t cache_snapshots(const Artifact *a, const ArtifactPlan *p);

/* The operand's byte in its space. */
static inline uint64_t cache_operand(const FtxOperand *o, uint32_t pages)
{
    return o->space == FTX_SPACE_PAGES ? o->offset * pages : o->offset;
}

#endif
