/* watch.c - engine_watch. */
#include "watch.h"

#include "engine.h"

FtxStatus engine_watch(FtxEngine *e, const Watch *w, FtxError *err)
{
    const DeviceApi *api = e->trace ? e->trace->traced : e->api;

    if (!api->watch)
        return ftx_fail(err, FTX_EINVAL, "the device \"%s\" does not tell what matrices multiply", api->name);
    api->watch(e->trace ? e->trace->session : e->session, w);
    return FTX_OK;
}
