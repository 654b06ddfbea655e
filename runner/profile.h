/* profile.h - `--profile`: time by kernel, and the share of matrix products. */
#ifndef FTX_RUNNER_PROFILE_H
#define FTX_RUNNER_PROFILE_H

#include "../runtime/ftx.h"

/* From here on the engine waits after every launch and notes its time. */
FtxStatus profile_start(FtxEngine *engine, FtxError *err);
void profile_print(FtxEngine *engine); /* to stderr: all since the start */

#endif
