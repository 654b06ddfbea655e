/* texts.h - the texts of an encoder: from the command line, or from lines as they come. */
#ifndef FTX_RUNNER_TEXTS_H
#define FTX_RUNNER_TEXTS_H

#include "lines.h"
#include "options.h"
#include "vectors.h"

/* how: all but the texts. Those are the arguments behind the first of `rest`; or `text`, which is not
 * const since the end of its line goes; or lines, each with its second sentence behind a tab. pair: the
 * second sentence of a single text, or NULL. Gives an exit code. */
int texts_run(FtxModel *model, FtxEngine *engine, const VectorsJob *how, const TextList *rest, char *text, size_t bytes,
              const char *pair, Lines *lines);

#endif
