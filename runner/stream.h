/* stream.h - `--stream`: a JSON object for each piece of text of a batch, as it comes. */
#ifndef FTX_RUNNER_STREAM_H
#define FTX_RUNNER_STREAM_H

#include "answers.h"

/* A piece of a text of j, as long as finish is FTX_RUNNING; else its last one. */
void stream_print(const Answers *all, const Job *j, int sample, const char *text, size_t bytes, FtxFinish finish);
void stream_refuse(const Answers *all, const Job *j);

#endif
