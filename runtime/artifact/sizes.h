/* sizes.h - the bytes of named buffers and caches: one place for the compiler, which plans them, and for the checks of
 * an artifact. */
#ifndef FTX_ARTIFACT_SIZES_H
#define FTX_ARTIFACT_SIZES_H

#include <stdbool.h>

#include "../base/dtype.h"
#include "../base/error.h"
#include "ftx_format.h"

static const uint64_t MAX_SPACE = (uint64_t)1 << 46; /* 64 TiB: sums of offsets cannot overflow */

/* The variables of named.def's expressions: SIZE(name, what). What a model does not have is 0. */
#define SIZES(SIZE) \
    SIZE(S, "sequences") \
    SIZE(T, "tokens of a step") \
    SIZE(C, "context") \
    SIZE(B, "kv_block") \
    SIZE(V, "vocab of models that generate") \
    SIZE(KEYS, "bytes of a page's keys in all caches") \
    SIZE(VALUES, "bytes of a page's values in all caches") \
    SIZE(CROSS_KEYS, "bytes of a source's keys in all caches") \
    SIZE(CROSS_VALUES, "bytes of a source's values in all caches") \
    SIZE(BIAS, "logit_bias") \
    SIZE(ENDS, "end_ids") \
    SIZE(WORDS, "ids of bad words") \
    SIZE(RING, "FTX_OUT_RING") \
    SIZE(D, "width of hidden states that are a result") \
    SIZE(POOL, "width of its pooled vector") \
    SIZE(SRC, "source_context") \
    SIZE(SOURCES, "sources") \
    SIZE(BEAMS, "lanes (beams) of a request") \
    SIZE(IN, "bytes of a token's hidden states, if these may be given") \
    SIZE(RANKS, "devices that share the model, less 1") \
    SIZE(EXCHANGE, "bytes of a buffer for what ranks exchange") \
    SIZE(MASKS, "0, but in plans with masks") \
    SIZE(RECURRENT, "bytes of a sequence's recurrent states in all layers") \
    SIZE(SNAPSHOTS, "copies of them behind prompts that others may begin with")

typedef struct Sizes {
#define SIZE(name, what) int64_t name;
    SIZES(SIZE)
#undef SIZE
} Sizes;

/* Bytes of a row of a cache, with its scale if it has codes. 0: no cache has this type. */
uint64_t sizes_row(DType type, uint32_t dim);

/* Bytes of a cache's keys and of its values: of one page, or of one source. Of a recurrent state, *keys: of one slot. False:
 * more than MAX_SPACE. */
bool sizes_cache(const FtxCache *c, int64_t kv_block, uint64_t *keys, uint64_t *values);

/* Checks the caches and sets KEYS, VALUES, CROSS_KEYS, CROSS_VALUES and RECURRENT; B and SRC are set. */
FtxStatus sizes_caches(Sizes *s, const FtxCache *caches, size_t n, FtxError *err);

/* Bytes of a named buffer; at most MAX_SPACE. */
FtxStatus sizes_named(const Sizes *s, int named, uint64_t *bytes, FtxError *err);

#endif
