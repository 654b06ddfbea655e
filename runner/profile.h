/* profile.h - `--profile`: the time of each kernel and the share of matrix products. */
#ifndef FTX_RUNNER_PROFILE_H
#define FTX_RUNNER_PROFILE_H

#include "../runtime/ftx.h"

/* From now on the engine waits after every launch and records its time. */
FtxStatus profile_start(FtxEngine *engine, FtxError *err);
void profile_print(FtxEngine *engine); /* to standard error: all launches since profile_start */

#endif
