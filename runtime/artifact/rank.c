/* rank.c - the weights of one rank: a device of several that share a model. */
#include "weights.h"

const FtxSection *artifact_block(const Artifact *a, uint32_t kind, uint32_t rank)
{
    for (uint32_t i = 0; i < a->header->sections; i++)
        if (a->sections[i].kind == kind && a->sections[i].rank == rank)
            return &a->sections[i];
    return NULL;
}

Artifact artifact_rank(const Artifact *a, uint32_t rank)
{
    const uint64_t blocks = (a->facts->weight_bytes + ARTIFACT_RANK_ALIGN - 1) / ARTIFACT_RANK_ALIGN;
    const FtxSection *inner = artifact_block(a, FTX_SEC_WEIGHTS, rank);
    const FtxSection *tables = artifact_block(a, FTX_SEC_TABLES, rank);
    Artifact of = *a;

    of.rank = rank;
    of.tables = tables ? (const char *)a->map.at + tables->offset : NULL;
    of.weight_data = inner ? (const char *)a->map.at + inner->offset : NULL;
    if (a->sidecar.at)
        of.weight_data = (const char *)a->sidecar.at + rank * blocks * ARTIFACT_RANK_ALIGN;
    return of;
}
