/* vectors.h - what `run` does with an encoder. */
#ifndef FTX_RUNNER_VECTORS_H
#define FTX_RUNNER_VECTORS_H

#include "../runtime/ftx.h"

typedef struct VectorsJob {
    const char *const *text; /* [count]; NULL: ids */
    size_t count;
    const int32_t *ids;
    size_t n_ids;
    bool json, quiet;
} VectorsJob;

/* Prints the vector of one text; of several their cosine similarities; with json an object a text.
 * Gives an exit code. */
int vectors_run(FtxModel *model, FtxEngine *engine, const VectorsJob *job);

#endif
