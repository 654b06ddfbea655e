/* weights.c - checks the index of weights and the blocks that hold them: in sections, or in a file beside the artifact; one
 * block for each rank (a device of several that share the model). */
#include "weights.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "../base/dtype.h"
#include "../base/packed.h"
#include "facts.h"
#include "sizes.h"

enum { WEIGHT_AT = 256 /* what offsets of weights and tables are multiples of */ };

static uint64_t weights_up(uint64_t n, uint64_t to)
{
    return (n + to - 1) / to * to;
}

static bool weights_inside(uint64_t at, uint64_t bytes, uint64_t all)
{
    return at <= all && bytes <= all - at;
}

/* A quantised weight: tiles of base/packed.h. */
static FtxStatus check_packed(const Artifact *a, const FtxWeight *w, FtxError *err)
{
    const uint64_t N = w->dim[0], K = w->dim[1];
    uint64_t bytes;

    if (w->rank != 2 || w->kind != FTX_WEIGHT_MATRIX || w->scales >= PACKED_SCALES_COUNT ||
        !packed_has((DType)w->type, (PackedScales)w->scales) || !artifact_has_string(a, w->form) || N > UINT32_MAX ||
        K > UINT32_MAX || !packed_group(w->group, K))
        return ftx_fail(err, FTX_EFORMAT,
                        "%" PRIu64 " rows of %" PRIu64 " elements in groups of %u are no quantised weight", N, K,
                        w->group);
    if (__builtin_mul_overflow(packed_tiles(N), packed_tile((DType)w->type, K, w->group, (PackedScales)w->scales),
                               &bytes) ||
        bytes != w->bytes || w->offset % WEIGHT_AT || !weights_inside(w->offset, w->bytes, a->facts->weight_bytes))
        return ftx_fail(err, FTX_EFORMAT, "%" PRIu64 " bytes at %" PRIu64 " are not what its shape asks for", w->bytes,
                        w->offset);
    return FTX_OK;
}

static FtxStatus check_weight(const Artifact *a, const FtxWeight *w, FtxError *err)
{
    uint64_t bytes;

    if (!artifact_has_string(a, w->name))
        return ftx_fail(err, FTX_EFORMAT, "its name is not inside the strings");
    if (w->like && (w->like > (uint64_t)(w - a->weights) || a->weights[w->like - 1].like))
        return ftx_fail(err, FTX_EFORMAT, "weight %u, whose numbers it takes, is no earlier one with its own",
                        w->like - 1);
    if (packed_type((DType)w->type))
        return check_packed(a, w, err);
    if (w->type != DT_FP32 && w->type != DT_FP16 && w->type != DT_BF16)
        return ftx_fail(err, FTX_EFORMAT, "its type is %u", w->type);
    if (w->rank < 1 || w->rank > 4 || w->kind > FTX_WEIGHT_CENTRED)
        return ftx_fail(err, FTX_EFORMAT, "its rank is %u, its kind %u", w->rank, w->kind);
    if (w->kind == FTX_WEIGHT_CENTRED && w->dim[w->rank - 1] % 2)
        return ftx_fail(err, FTX_EFORMAT, "its rows of %" PRIu64 " elements are no pairs", w->dim[w->rank - 1]);
    bytes = dtype_size((DType)w->type);
    for (uint32_t i = 0; i < w->rank; i++)
        if (__builtin_mul_overflow(bytes, w->dim[i], &bytes))
            return ftx_fail(err, FTX_EFORMAT, "its shape has more elements than there can be");
    if (bytes != w->bytes || w->offset % WEIGHT_AT || !weights_inside(w->offset, w->bytes, a->facts->weight_bytes))
        return ftx_fail(err, FTX_EFORMAT, "%" PRIu64 " bytes at %" PRIu64 " are not what its shape asks for", w->bytes,
                        w->offset);
    return FTX_OK;
}

/* Maps FILE.ftxw, a name without folders, beside the artifact. */
static FtxStatus open_sidecar(Artifact *a, const char *path, FtxError *err)
{
    const char *name = artifact_string(a, a->facts->sidecar), *slash = path ? strrchr(path, '/') : NULL;
    const uint64_t all =
        (a->facts->ranks - 1) * weights_up(a->facts->weight_bytes, ARTIFACT_RANK_ALIGN) + a->facts->weight_bytes;
    char beside[4096];
    FtxStatus s;

    if (!path)
        return ftx_fail(err, FTX_EFORMAT, "its weights are in a file of their own, and it is in memory");
    if (strchr(name, '/') || strcmp(name, "..") == 0 || strcmp(name, ".") == 0)
        return ftx_fail(err, FTX_EFORMAT, "its weights are said to be in \"%.200s\", which is no plain file name",
                        name);
    if (snprintf(beside, sizeof beside, "%.*s%s", slash ? (int)(slash + 1 - path) : 0, path, name) >=
        (int)sizeof beside)
        return ftx_fail(err, FTX_EIO, "the path of its weights is too long");
    s = file_map(beside, &a->sidecar, err);
    if (s)
        return ftx_context(err, s, "the weights are in a file beside the artifact");
    if (a->sidecar.bytes != all)
        return ftx_fail(err, FTX_EFORMAT, "%s has %zu bytes of weights, the artifact asks for %" PRIu64, beside,
                        a->sidecar.bytes, all);
    return FTX_OK;
}

/* Weights of the sections, or tables: of every rank as many bytes. */
static FtxStatus check_stored(const Artifact *a, uint32_t kind, uint64_t bytes, FtxError *err)
{
    for (uint32_t i = 0; i < a->header->sections; i++)
        if (a->sections[i].kind == kind && a->sections[i].rank >= a->facts->ranks)
            return ftx_fail(err, FTX_EFORMAT, "it has %s of rank %u, and %u ranks", artifact_section_name(kind),
                            a->sections[i].rank, a->facts->ranks);
    for (uint32_t r = 0; r < a->facts->ranks; r++) {
        const FtxSection *s = artifact_block(a, kind, r);

        if (!s)
            return ftx_fail(err, FTX_EFORMAT, "it has no %s of rank %u", artifact_section_name(kind), r);
        if (s->bytes != bytes)
            return ftx_fail(err, FTX_EFORMAT, "it has %" PRIu64 " bytes of %s and asks for %" PRIu64, s->bytes,
                            artifact_section_name(kind), bytes);
    }
    return FTX_OK;
}

FtxStatus weights_check(Artifact *a, const char *path, FtxError *err)
{
    const FtxSection *inner = artifact_block(a, FTX_SEC_WEIGHTS, 0), *tables = artifact_block(a, FTX_SEC_TABLES, 0);
    uint64_t table_bytes = 0;
    FtxStatus status = FTX_OK;

    for (uint32_t i = 0; i < a->n_weights; i++) {
        const FtxStatus s = check_weight(a, &a->weights[i], err);

        if (s)
            return ftx_context(err, s, "weight %u", i);
        if (a->weights[i].kind == FTX_WEIGHT_TABLE)
            table_bytes = weights_up(table_bytes, WEIGHT_AT) + a->weights[i].bytes;
        if (table_bytes > MAX_SPACE)
            return ftx_fail(err, FTX_EFORMAT, "its tables have more bytes than there can be");
    }
    if (!!inner + !!tables + !!a->facts->sidecar != 1)
        return ftx_fail(err, FTX_EFORMAT, "it must have one of a weights section, a tables section and a sidecar");
    if (a->facts->sidecar)
        status = open_sidecar(a, path, err);
    else if (inner)
        status = check_stored(a, FTX_SEC_WEIGHTS, a->facts->weight_bytes, err);
    else
        status = check_stored(a, FTX_SEC_TABLES, table_bytes, err);
    if (!status)
        *a = artifact_rank(a, 0);
    return status;
}
