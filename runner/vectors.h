/* vectors.h - what `run` does with an encoder. */
#ifndef FTX_RUNNER_VECTORS_H
#define FTX_RUNNER_VECTORS_H

#include "../runtime/ftx.h"

typedef struct VectorsJob {
    const char *const *text;               /* [count]; NULL: ids */
    const char *const *pair;               /* [count]: second sentences; NULL: none has one */
    const size_t *text_bytes, *pair_bytes; /* [count] */
    size_t count, before;                  /* before: texts that earlier calls had, for messages */
    FtxTruncate truncate;
    const int32_t *ids, *types; /* [n_ids]; types NULL: all 0 */
    size_t n_ids;
    bool lines; /* a line each, also where it is one text */
    bool json, quiet;
} VectorsJob;

/* Prints the vector of one text; of several their cosine similarities; of a classifier the labels of each
 * with their scores; with json an object a text. Gives an exit code. */
int vectors_run(FtxModel *model, FtxEngine *engine, const VectorsJob *job);

#endif
