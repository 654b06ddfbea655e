/* tracing.c - records the timeline of an engine: ftx_engine_trace_begin, ftx_engine_trace_end, FTX_TRACE. */
#include "engine.h"

#include "../base/env.h"

FtxStatus tracing_begin(FtxEngine *e, size_t events, FtxError *err)
{
    const FtxModel *m = e->model;
    Trace *t;
    FtxStatus s = trace_open(&e->memory, events, env_on(ENV_FTX_TRACE) ? m->log : NULL, m->log_user, &t, err);

    if (!s)
        s = trace_enter(t, e->api, e->session, err);
    if (s) {
        trace_close(t);
        return s;
    }
    e->trace = t;
    e->api = &t->api;
    e->session = (Session *)(void *)t;
    return FTX_OK;
}

FtxStatus tracing_end(FtxEngine *e, const char *path, FtxError *err)
{
    Trace *t = e->trace;
    FtxError why;
    FtxStatus s = trace_leave(t, err), written = FTX_OK;

    e->trace = NULL;
    e->api = t->traced;
    e->session = t->session;
    if (path) /* also after a failure of the device: what was recorded is kept */
        written = trace_write(t, artifact_string(&e->model->artifact, e->facts->name),
                              e->api->describe(e->model->device), path, &why);
    trace_close(t);
    return s || !written ? s : ftx_fail(err, written, "%s", why.text);
}

FtxStatus ftx_engine_trace_begin(FtxEngine *e, size_t events, FtxError *err)
{
    FtxStatus s = e->dead.status ? ftx_fail(err, e->dead.status, "%s", e->dead.text) : FTX_OK;

    if (!s && e->trace && e->trace->room)
        s = ftx_fail(err, FTX_EINVAL, "ftx_engine_trace_begin: a trace is being recorded");
    if (!s && events == 0)
        s = ftx_fail(err, FTX_EINVAL, "events: expected 1 or more");
    if (!s && e->trace)
        s = tracing_end(e, NULL, err);
    if (!s)
        s = e->api->wait(e->session, err); /* runs before it belong to no call that is recorded */
    return s ? s : tracing_begin(e, events, err);
}

FtxStatus ftx_engine_trace_end(FtxEngine *e, const char *path, FtxError *err)
{
    if (!e->trace || !e->trace->room)
        return ftx_fail(err, FTX_EINVAL, "ftx_engine_trace_end: no trace is being recorded");
    return tracing_end(e, path, err);
}
