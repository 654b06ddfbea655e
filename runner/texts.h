/* texts.h - the texts of an encoder: arguments, a whole file, or lines as they arrive. */
#ifndef FTX_RUNNER_TEXTS_H
#define FTX_RUNNER_TEXTS_H

#include "lines.h"
#include "options.h"
#include "vectors.h"

/* how: everything but the texts. They are the arguments after the first of `rest`; or `text`; or, if both are
 * missing, lines, in which a tab separates a second sentence. pair: the second sentence of a single text, or
 * NULL. Returns an exit code. */
int texts_run(FtxModel *model, FtxEngine *engine, const VectorsJob *how, const TextList *rest, const char *text,
              size_t bytes, const char *pair, Lines *lines);

#endif
