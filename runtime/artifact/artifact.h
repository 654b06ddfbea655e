/* artifact.h - an artifact, mapped and checked: after artifact_open every offset, count and index
 * of its plan sections has been checked against what it points into. */
#ifndef FTX_ARTIFACT_H
#define FTX_ARTIFACT_H

#include "../base/error.h"
#include "../base/file.h"
#include "ftx_format.h"

typedef struct ArtifactPlan { /* borrowed from the map */
    const FtxPlan *head;
    const FtxKernel *kernels;
    const int64_t *consts;
    const FtxProgram *programs;
    const FtxLaunch *launches;
    const FtxOperand *operands;
    const int64_t *exprs;
    const FtxBuffer *buffers;
    const FtxCache *caches;
    uint32_t n_kernels, n_consts, n_programs, n_launches, n_operands, n_exprs, n_buffers, n_caches;
    const void *cubin; /* code images, see FtxKernel.code_at; NULL: none (the CPU) */
    size_t cubin_bytes;
    const char *source; /* NULL: none */
} ArtifactPlan;

enum { ARTIFACT_MAX_PLANS = 16 };

typedef struct Artifact {
    FileMap map;           /* the artifact: the whole file, or the part appended to a program */
    FileMap file, sidecar; /* the mapped files; `file` is empty if the bytes are the caller's */
    const FtxHeader *header;
    const FtxSection *sections;
    const FtxFacts *facts;
    const char *strings;
    size_t strings_bytes;
    const char *spec, *build; /* NUL-terminated */
    const FtxWeight *weights;
    uint32_t n_weights;
    const int32_t *bad_words; /* NULL: none */
    uint32_t n_bad_words;     /* ids of all of them */
    uint32_t rank;            /* whose weights these are; artifact_rank chooses */
    const void *weight_data;  /* the block; NULL: not stored, random weights only */
    const void *tables;       /* if weight_data is NULL; see artifact_weight */
    const void *tokenizer;    /* NULL: none */
    size_t tokenizer_bytes;
    const void *chat; /* NULL: none */
    size_t chat_bytes;
    ArtifactPlan plans[ARTIFACT_MAX_PLANS];
    uint32_t n_plans;
} Artifact;

/* Maps and checks structure; checksums of all sections but the weights. */
FtxStatus artifact_open(const char *path, Artifact *a, FtxError *err);
/* The same for bytes in memory (64-byte aligned, the caller's, must outlive the artifact), which
 * can have no sidecar. */
FtxStatus artifact_open_bytes(const void *p, size_t bytes, Artifact *a, FtxError *err);
void artifact_close(Artifact *a);
FtxStatus artifact_verify(const Artifact *a, FtxError *err); /* the weights' checksum too */

/* The artifact with the weights of another rank, below facts->ranks. A copy: `a` owns the files. */
Artifact artifact_rank(const Artifact *a, uint32_t rank);

/* The stored bytes of weight i (weights[i].bytes of them); NULL: not stored, draw them. Tables are
 * always stored. */
const void *artifact_weight(const Artifact *a, uint32_t i);

/* The nearest plan for a device: of its very target, else of the highest plain target of the same major at or below it,
 * else of the highest PTX target at or below it. Of several plans of one target: that for the GPU of this name, else the one
 * for any GPU, else the first. NULL: none. */
const ArtifactPlan *artifact_plan(const Artifact *a, uint32_t target, const char *device);

/* The layer that a launch's label names, *rest at the colon behind it: "layer 3: qkv" is of layer 3. -1: of none, *rest at the
 * label's start. rest may be NULL. */
int artifact_layer(const char *label, const char **rest);

const char *artifact_section_name(uint32_t kind); /* "weights" */

/* Centred or not (FtxWeightKind). */
static inline bool artifact_is_matrix(const FtxWeight *w)
{
    return w->kind == FTX_WEIGHT_MATRIX || w->kind == FTX_WEIGHT_CENTRED;
}

static inline const char *artifact_string(const Artifact *a, uint32_t str)
{
    return a->strings + str;
}

#endif
