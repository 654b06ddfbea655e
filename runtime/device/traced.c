/* traced.c - a session whose calls are recorded: a DeviceApi in front of the session's own.
 *
 *   engine ──▶ t->api, (Session *)t ──▶ the session's own table
 *                    │                        │
 *                    └─ calls ──▶ Trace ◀─────┘ kernels, copies
 *
 * While nothing is recorded, the engine calls the session's own table: a trace costs nothing then. */
#include "trace.h"

static Trace *of(Session *s)
{
    return (Trace *)(void *)s;
}

/* Records a call of the host that began at `from`, and returns its status. */
static FtxStatus called(Trace *t, TraceEvent e, FtxStatus status)
{
    e.to = trace_now();
    trace_add(t, e);
    return status;
}

static FtxStatus traced_upload(Session *s, size_t bytes, FtxError *err)
{
    Trace *t = of(s);
    const TraceEvent e = {.name = "upload", .from = trace_now(), .bytes = bytes};

    return called(t, e, t->traced->upload(t->session, bytes, err));
}

static FtxStatus traced_settle(Session *s, FtxError *err)
{
    Trace *t = of(s);
    const TraceEvent e = {.name = "wait for the upload", .from = trace_now()};

    return called(t, e, t->traced->settle(t->session, err));
}

static FtxStatus traced_write(Session *s, int named, size_t offset, const void *p, size_t bytes, FtxError *err)
{
    Trace *t = of(s);
    const TraceEvent e = {.name = "write", .from = trace_now(), .bytes = bytes};

    return called(t, e, t->traced->write(t->session, named, offset, p, bytes, err));
}

static FtxStatus traced_read(Session *s, int named, size_t offset, void *p, size_t bytes, FtxError *err)
{
    Trace *t = of(s);
    const TraceEvent e = {.name = "read", .from = trace_now(), .bytes = bytes};

    return called(t, e, t->traced->read(t->session, named, offset, p, bytes, err));
}

static FtxStatus traced_owns(Session *s, const char *field, const void *p, FtxError *err)
{
    return of(s)->traced->owns(of(s)->session, field, p, err);
}

static FtxStatus traced_follow(Session *s, void *stream, FtxError *err)
{
    Trace *t = of(s);
    const TraceEvent e = {.name = "follow the caller's stream", .from = trace_now()};

    return called(t, e, t->traced->follow(t->session, stream, err));
}

static FtxStatus traced_copy_in(Session *s, int named, size_t offset, const void *p, size_t bytes, FtxError *err)
{
    Trace *t = of(s);
    const TraceEvent e = {.name = "copy in on the device", .from = trace_now(), .bytes = bytes};

    return called(t, e, t->traced->copy_in(t->session, named, offset, p, bytes, err));
}

static FtxStatus traced_copy_out(Session *s, int named, size_t offset, void *p, size_t bytes, FtxError *err)
{
    Trace *t = of(s);
    const TraceEvent e = {.name = "copy out on the device", .from = trace_now(), .bytes = bytes};

    return called(t, e, t->traced->copy_out(t->session, named, offset, p, bytes, err));
}

static FtxStatus traced_clear(Session *s, void *p, size_t bytes, FtxError *err)
{
    Trace *t = of(s);
    const TraceEvent e = {.name = "clear on the device", .from = trace_now(), .bytes = bytes};

    return called(t, e, t->traced->clear(t->session, p, bytes, err));
}

static FtxStatus traced_keep(Session *s, uint32_t kept, uint32_t page, bool back, FtxError *err)
{
    Trace *t = of(s);
    const TraceEvent e = {.name = back ? "KV page from the host" : "KV page to the host", .from = trace_now()};

    return called(t, e, t->traced->keep(t->session, kept, page, back, err));
}

static FtxStatus traced_wipe(Session *s, uint32_t page, FtxError *err)
{
    Trace *t = of(s);
    const TraceEvent e = {.name = "wipe a KV page", .from = trace_now()};

    return called(t, e, t->traced->wipe(t->session, page, err));
}

static FtxStatus traced_snapshot(Session *s, uint32_t snapshot, uint32_t slot, bool back, FtxError *err)
{
    Trace *t = of(s);
    const TraceEvent e = {.name = back ? "states from a snapshot" : "states to a snapshot", .from = trace_now()};

    return called(t, e, t->traced->snapshot(t->session, snapshot, slot, back, err));
}

static FtxStatus traced_run(Session *s, uint32_t program, int T, int S, int times, FtxError *err)
{
    Trace *t = of(s);
    const TraceEvent e = {.name = "run", .from = trace_now(), .T = T, .S = S, .run = ++t->runs};

    return called(t, e, t->traced->run(t->session, program, T, S, times, err));
}

static FtxStatus traced_begin(Session *s, uint32_t program, int T, int S, FtxError *err)
{
    Trace *t = of(s);
    const TraceEvent e = {.name = "begin", .from = trace_now(), .T = T, .S = S, .run = ++t->runs};

    return called(t, e, t->traced->begin(t->session, program, T, S, err));
}

static FtxStatus traced_finish(Session *s, uint32_t program, int T, int S, int first, int n, FtxError *err)
{
    Trace *t = of(s);
    const TraceEvent e = {.name = "finish", .from = trace_now(), .T = T, .S = S, .run = t->runs};

    return called(t, e, t->traced->finish(t->session, program, T, S, first, n, err));
}

static FtxStatus traced_wait(Session *s, FtxError *err)
{
    Trace *t = of(s);
    const TraceEvent e = {.name = "wait", .from = trace_now()};

    return called(t, e, t->traced->wait(t->session, err));
}

/* Asked for every token: not recorded. */
static FtxStatus traced_check(Session *s, FtxError *err)
{
    return of(s)->traced->check(of(s)->session, err);
}

static FtxStatus traced_profile(Session *s, bool on, const FtxProfile **rows, size_t *n, FtxError *err)
{
    return of(s)->traced->profile(of(s)->session, on, rows, n, err);
}

static FtxStatus traced_time(Session *s, uint32_t program, int T, int S, int repeat, double *times, FtxError *err)
{
    Trace *t = of(s);
    const TraceEvent e = {.name = "time", .from = trace_now(), .T = T, .S = S, .run = ++t->runs};

    return called(t, e, t->traced->time(t->session, program, T, S, repeat, times, err));
}

FtxStatus trace_enter(Trace *t, const DeviceApi *api, Session *s, FtxError *err)
{
    const FtxStatus status = api->trace(s, t, err);

    if (status)
        return status;
    t->traced = api;
    t->session = s;
    t->api = *api; /* without io and out, which an engine asks for once, at open */
    t->api.upload = traced_upload;
    t->api.settle = traced_settle;
    t->api.write = traced_write;
    t->api.read = traced_read;
    if (api->owns) {
        t->api.owns = traced_owns;
        t->api.follow = traced_follow;
        t->api.copy_in = traced_copy_in;
        t->api.copy_out = traced_copy_out;
        t->api.clear = traced_clear;
    }
    if (api->keep)
        t->api.keep = traced_keep;
    t->api.wipe = traced_wipe;
    t->api.snapshot = traced_snapshot;
    t->api.run = traced_run;
    if (api->masks) {
        t->api.begin = traced_begin;
        t->api.finish = traced_finish;
    }
    t->api.wait = traced_wait;
    if (api->check)
        t->api.check = traced_check;
    t->api.profile = traced_profile;
    t->api.time = traced_time;
    return FTX_OK;
}

FtxStatus trace_leave(Trace *t, FtxError *err)
{
    return t->traced->trace(t->session, NULL, err);
}
