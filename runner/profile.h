/* profile.h - `--profile`, the time of each kernel and the share of matrix products; `--trace`, a timeline. */
#ifndef FTX_RUNNER_PROFILE_H
#define FTX_RUNNER_PROFILE_H

#include "../runtime/ftx.h"

/* From now on the engine waits after every launch and records its time. */
FtxStatus profile_start(FtxEngine *engine, FtxError *err);
void profile_print(FtxEngine *engine); /* to standard error: all launches since profile_start */

/* trace_finish writes the timeline, of at most a million events, and returns `code`, or that of its own failure if
 * code is that of success or of Ctrl-C. */
FtxStatus trace_start(FtxEngine *engine, FtxError *err);
int trace_finish(FtxEngine *engine, const char *path, int code);

#endif
