/* watch.h - an engine whose device tells what matrices multiply, for `ftxc compile --calibrate`. */
#ifndef FTX_ENGINE_WATCH_H
#define FTX_ENGINE_WATCH_H

#include "../device/device.h"

/* The engine's later runs tell w, which stays the caller's and must outlive the engine. FTX_EINVAL: its device cannot. */
FtxStatus engine_watch(FtxEngine *e, const Watch *w, FtxError *err);

#endif
