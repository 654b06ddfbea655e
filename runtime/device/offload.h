/* offload.h - which weights a GPU holds where it is not to hold all of them (FtxOptions.gpu_layers, gpu_memory).
 *
 *   GPU      | weights of no layer, of layers 0 to 21 |     one block
 *   GPU      | staging |                                    of each engine, as large as the largest layer of the host
 *   host     | layer 22 | ... | layer 31 | rows |           one block of pinned memory
 *
 * The last layers go to the host. In every step, before the first launch of such a layer, its weights are copied to the
 * staging area, where the layer's launches read them. `rows` are embeddings that only lookups read: the GPU reads them where
 * they lie, one row a token. They go to the host before any layer does.
 *
 * A weight belongs to a layer if the labels of all launches that read it name that layer. Other weights (a head, an embedding
 * tied to it, tables, weights that layers share) stay on the GPU; what no launch of the plan reads is left out. A single layer
 * would take as much staging as it saves, so it stays. Each place lays its weights out in the order of the index. */
#ifndef FTX_OFFLOAD_H
#define FTX_OFFLOAD_H

#include "../artifact/artifact.h"
#include "../base/memory.h"

typedef enum OffloadPlace { OFFLOAD_UNUSED, OFFLOAD_GPU, OFFLOAD_COPIED, OFFLOAD_ROWS } OffloadPlace;

typedef struct OffloadWeight { /* one for each weight of the artifact's index */
    OffloadPlace place;
    int layer;     /* -1: of none */
    bool lookups;  /* nothing but lookups of rows reads it */
    uint64_t at;   /* its byte in the GPU's block (GPU), in the staging area (COPIED) */
    uint64_t from; /* its byte in the host's block (COPIED, ROWS) */
} OffloadWeight;

typedef struct OffloadCopy { /* host's block to staging area, before a launch of the plan */
    uint32_t launch;
    uint64_t from, at, bytes;
} OffloadCopy;

typedef struct Offload {
    Memory memory;
    const Artifact *artifact;
    uint32_t layers, gpu_layers; /* of the plan; of them those that stay on the GPU, the first ones */
    uint64_t gpu_bytes, staging_bytes, host_bytes;
    uint64_t row_bytes;     /* of the host's: embeddings */
    uint64_t step_bytes;    /* copied by one run of the program that copies the most */
    OffloadWeight *weights; /* [artifact->n_weights] */
    uint64_t *layer_bytes;  /* [layers] */
    bool *used;             /* [artifact->n_weights]: scratch of open */
    OffloadCopy *copies;    /* [n_copies], in the order of the launches */
    size_t n_copies;
    size_t bytes; /* of this block */
} Offload;

/* Decides for one plan. gpu_layers: so many of the first layers stay, FTX_NO_GPU_LAYERS: none; 0: as many as fit, with a
 * staging area, in gpu_memory bytes. The artifact must outlive *out. FTX_EINVAL: gpu_memory is too small with all layers in
 * host memory; FTX_EFORMAT: a launch reads what is no weight. */
FtxStatus offload_open(const Memory *m, const Artifact *a, const ArtifactPlan *p, int64_t gpu_layers,
                       uint64_t gpu_memory, Offload **out, FtxError *err);
void offload_close(Offload *o); /* NULL is fine */

/* The weight that holds a byte of the weight block (an operand's offset), *inside: the byte in it. n_weights: none. */
uint32_t offload_find(const Artifact *a, uint64_t offset, uint64_t *inside);

/* A run of weights that lie one after another in the artifact and in their place. */
typedef struct OffloadSpan {
    OffloadPlace place;
    uint64_t stored, to, bytes; /* byte in the weight block; in the GPU's block (GPU) or the host's (COPIED, ROWS) */
} OffloadSpan;

/* The next span of weights from *i on, which is set behind it. False: there is none. */
bool offload_span(const Offload *o, uint32_t *i, OffloadSpan *span);

/* The copies before a launch, *n of them. */
const OffloadCopy *offload_copies(const Offload *o, uint32_t launch, size_t *n);

#endif
