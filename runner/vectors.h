/* vectors.h - runs an encoder: texts in; vectors, cosine similarities, or classes out. */
#ifndef FTX_RUNNER_VECTORS_H
#define FTX_RUNNER_VECTORS_H

#include "../runtime/ftx.h"

typedef struct VectorsJob {
    const char *const *text;               /* [count]; NULL: ids */
    const char *const *pair;               /* [count]: second sentences; NULL: none has one */
    const size_t *text_bytes, *pair_bytes; /* [count] */
    size_t count;
    size_t before; /* texts of earlier calls, for the numbers in messages */
    FtxTruncate truncate;
    bool literal;               /* the text of a special token is text */
    const int32_t *ids, *types; /* [n_ids]; types NULL: all 0 */
    size_t n_ids;
    bool lines; /* one line for each text, also for a single text */
    bool json, quiet;
} VectorsJob;

/* Prints the vector of one text, the cosine similarities of several, or the scores of a classifier's labels;
 * with json one object for each text. Returns an exit code. */
int vectors_run(FtxModel *model, FtxEngine *engine, const VectorsJob *job);

#endif
