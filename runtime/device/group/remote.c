/* remote.c - the calls of a device whose rank is another process: sent, made there, answered. */
#include "remote.h"

#include <string.h>

#include "group.h"

enum { OPEN_SECONDS = 60, MOST_WRITE = 64 << 10 }; /* OPEN_SECONDS: a session takes and clears its memory */

struct Device {
    Memory memory;
    const ArtifactPlan *plan;
    Links *links;
    int rank;
    bool busy; /* it has a session */
};

struct Session {
    Device *device;
    void *io; /* what the next upload sends */
};

/* --- rank 0 ---------------------------------------------------------------------------------------- */

static uint64_t io_bytes(const ArtifactPlan *plan)
{
    return plan->head->space_bytes[FTX_SPACE_IO];
}

/* Sends a call with its bytes and waits for the answer. A program's run takes as long as that of rank 0 does; the others are done
 * at once, but for a session that begins or ends. */
static FtxStatus call_remote(const Device *d, RemoteCall c, const void *bytes, RemoteAnswer *a, FtxError *err)
{
    const bool runs = c.op == REMOTE_RUN || c.op == REMOTE_TIME;
    const bool session = c.op == REMOTE_OPEN || c.op == REMOTE_JOIN || c.op == REMOTE_CLOSE;
    const int timeout = links_timeout(d->links), most = session && timeout < OPEN_SECONDS ? OPEN_SECONDS : timeout;
    FtxStatus s = link_send(d->links, d->rank, &c, sizeof c, err);

    if (!s && c.bytes)
        s = link_send(d->links, d->rank, bytes, c.bytes, err);
    if (!s)
        s = link_receive(d->links, d->rank, a, sizeof *a, runs ? 0 : most, err);
    if (s)
        link_stop(d->links, d->rank); /* a late answer must not stand for that of another call */
    if (s || !a->status)
        return s;
    a->text[sizeof a->text - 1] = '\0';
    return ftx_fail(err, (FtxStatus)a->status, "%s", a->text);
}

FtxStatus remote_open(const Memory *m, const ArtifactPlan *plan, Links *l, int rank, Device **out, FtxError *err)
{
    Device *d = memory_alloc(m, sizeof *d, 64);

    *out = d;
    if (!d)
        return memory_fail(err, "a rank", sizeof *d);
    *d = (Device){*m, plan, l, rank, false};
    return FTX_OK;
}

static void remote_close(Device *d)
{
    const Memory m = d->memory;
    const RemoteCall end = {.op = REMOTE_END};

    link_send(d->links, d->rank, &end, sizeof end, NULL);
    memory_free(&m, d, sizeof *d);
}

static void leave_remote(Device *d)
{
    __atomic_store_n(&d->busy, false, __ATOMIC_RELEASE);
}

/* The connection takes one call at a time, and an engine of another thread may be making one. */
static FtxStatus remote_session_open(Device *d, uint64_t kv_bytes, Session **out, uint32_t *pages, FtxError *err)
{
    Session *s = memory_alloc(&d->memory, sizeof *s, 64);
    RemoteAnswer a = {0};
    FtxStatus status;

    *out = NULL;
    if (!s)
        return memory_fail(err, "a session", sizeof *s);
    if (__atomic_exchange_n(&d->busy, true, __ATOMIC_ACQUIRE)) {
        memory_free(&d->memory, s, sizeof *s);
        return ftx_fail(err, FTX_EINVAL, "a rank has one session at a time: close the other engine first");
    }
    s->device = d;
    s->io = memory_alloc(&d->memory, io_bytes(d->plan), 64);
    status = s->io ? call_remote(d, (RemoteCall){.op = REMOTE_OPEN, .kv_bytes = kv_bytes}, NULL, &a, err)
                   : memory_fail(err, "a step", io_bytes(d->plan));
    if (status) {
        memory_free(&d->memory, s->io, io_bytes(d->plan));
        memory_free(&d->memory, s, sizeof *s);
        leave_remote(d);
        return status;
    }
    *pages = a.pages;
    *out = s;
    return FTX_OK;
}

static void remote_session_close(Session *s)
{
    const Memory m = s->device->memory;
    RemoteAnswer a;

    call_remote(s->device, (RemoteCall){.op = REMOTE_CLOSE}, NULL, &a, NULL);
    leave_remote(s->device);
    memory_free(&m, s->io, io_bytes(s->device->plan));
    memory_free(&m, s, sizeof *s);
}

static FtxStatus remote_join(Session *s, int rank, int ranks, Session *const *all, FtxError *err)
{
    RemoteAnswer a;

    (void)rank, (void)ranks, (void)all; /* its links know */
    return call_remote(s->device, (RemoteCall){.op = REMOTE_JOIN, .bytes = FTX_JOIN_WORD}, links_word(s->device->links),
                       &a, err);
}

static void remote_stop(Session *s)
{
    link_stop(s->device->links, s->device->rank);
}

static void *remote_io(Session *s)
{
    return s->io;
}

static FtxStatus remote_upload(Session *s, size_t bytes, FtxError *err)
{
    RemoteAnswer a;

    return call_remote(s->device, (RemoteCall){.op = REMOTE_UPLOAD, .bytes = bytes}, s->io, &a, err);
}

static FtxStatus remote_write(Session *s, int named, size_t offset, const void *p, size_t bytes, FtxError *err)
{
    RemoteAnswer a;

    return call_remote(s->device, (RemoteCall){.op = REMOTE_WRITE, .named = named, .offset = offset, .bytes = bytes}, p,
                       &a, err);
}

static FtxStatus remote_wipe(Session *s, uint32_t page, FtxError *err)
{
    RemoteAnswer a;

    return call_remote(s->device, (RemoteCall){.op = REMOTE_WIPE, .program = page}, NULL, &a, err);
}

static FtxStatus remote_snapshot(Session *s, uint32_t snapshot, uint32_t slot, bool back, FtxError *err)
{
    RemoteAnswer a;

    return call_remote(s->device,
                       (RemoteCall){.op = REMOTE_SNAPSHOT, .program = snapshot, .S = (int)slot, .times = back}, NULL,
                       &a, err);
}

static FtxStatus remote_program(Session *s, uint32_t program, int T, int S, int times, FtxError *err)
{
    RemoteAnswer a;

    return call_remote(s->device, (RemoteCall){.op = REMOTE_RUN, .program = program, .T = T, .S = S, .times = times},
                       NULL, &a, err);
}

static FtxStatus remote_time(Session *s, uint32_t program, int T, int S, int repeat, double *times, FtxError *err)
{
    RemoteAnswer a = {0};
    FtxStatus status = FTX_OK;

    for (int i = 0; !status && i < repeat; i++) {
        status =
            call_remote(s->device, (RemoteCall){.op = REMOTE_TIME, .program = program, .T = T, .S = S}, NULL, &a, err);
        times[i] = a.us;
    }
    return status;
}

static FtxStatus remote_wait(Session *s, FtxError *err)
{
    RemoteAnswer a;

    return call_remote(s->device, (RemoteCall){.op = REMOTE_WAIT}, NULL, &a, err);
}

/* What an upload has sent has been read when it is answered. */
static FtxStatus remote_settle(Session *s, FtxError *err)
{
    (void)s, (void)err;
    return FTX_OK;
}

/* What group.c asks of ranks above 0. */
const DeviceApi device_remote = {
    .name = "a rank in another process",
    .close = remote_close,
    .session_open = remote_session_open,
    .session_close = remote_session_close,
    .join = remote_join,
    .stop = remote_stop,
    .io = remote_io,
    .upload = remote_upload,
    .settle = remote_settle,
    .write = remote_write,
    .wipe = remote_wipe,
    .snapshot = remote_snapshot,
    .run = remote_program,
    .wait = remote_wait,
    .time = remote_time,
};

/* --- another rank ------------------------------------------------------------------------------------ */

typedef struct Remote {
    const DeviceApi *inner;
    const ArtifactPlan *plan;
    Device *device; /* of `inner` */
    Session *session;
    Links *links;
    unsigned steps; /* of the session */
    char bytes[MOST_WRITE];
} Remote;

/* A step must be the next one, and be what rank 0 has written. */
static FtxStatus take_step(Remote *r, size_t bytes, FtxError *err)
{
    const void *io = r->inner->io(r->session);
    const uint64_t hash = group_step_hash(io, bytes);
    FtxStep step;
    uint64_t said;

    memcpy(&step, io, sizeof step);
    said = (uint64_t)step.hash_high << 32 | step.hash_low;
    r->steps++;
    if (step.number == r->steps && hash == said)
        return r->inner->upload(r->session, bytes, err);
    return ftx_fail(err, FTX_EDEVICE, "step %u has come with the hash %016llx, not %016llx; this rank expects step %u",
                    step.number, (unsigned long long)hash, (unsigned long long)said, r->steps);
}

static FtxStatus obey(Remote *r, const RemoteCall *c, RemoteAnswer *a, FtxError *err)
{
    const DeviceApi *inner = r->inner;

    if ((c->op == REMOTE_OPEN) == (r->session != NULL))
        return ftx_fail(err, FTX_EINVAL, "a rank has one session at a time: close the other engine first");
    switch ((RemoteOp)c->op) {
    case REMOTE_OPEN: r->steps = 0; return inner->session_open(r->device, c->kv_bytes, &r->session, &a->pages, err);
    case REMOTE_JOIN:
        memcpy(links_word(r->links), r->bytes, FTX_JOIN_WORD);
        return inner->join_links(r->session, r->links, err);
    case REMOTE_CLOSE:
        inner->session_close(r->session);
        r->session = NULL;
        return FTX_OK;
    case REMOTE_UPLOAD: return take_step(r, c->bytes, err);
    case REMOTE_WRITE: return inner->write(r->session, c->named, c->offset, r->bytes, c->bytes, err);
    case REMOTE_WIPE: return inner->wipe(r->session, c->program, err);
    case REMOTE_SNAPSHOT: return inner->snapshot(r->session, c->program, (uint32_t)c->S, c->times, err);
    case REMOTE_RUN: return inner->run(r->session, c->program, c->T, c->S, c->times, err);
    case REMOTE_TIME: return inner->time(r->session, c->program, c->T, c->S, 1, &a->us, err);
    case REMOTE_WAIT: return inner->wait(r->session, err);
    case REMOTE_END: break;
    }
    return ftx_fail(err, FTX_EINVAL, "rank 0 asks for call %d, which this build does not know", c->op);
}

/* Receives what follows a call. */
static FtxStatus take_bytes(Remote *r, const RemoteCall *c, FtxError *err)
{
    const bool io = c->op == REMOTE_UPLOAD && r->session, write = c->op == REMOTE_WRITE, join = c->op == REMOTE_JOIN;
    const uint64_t room = io ? io_bytes(r->plan) : write ? sizeof r->bytes : join ? FTX_JOIN_WORD : 0;

    if (c->bytes > room || (io && c->bytes < sizeof(FtxStep)) || (join && c->bytes != room))
        return ftx_fail(err, FTX_EDEVICE, "rank 0 sends %llu bytes, there is room for %llu",
                        (unsigned long long)c->bytes, (unsigned long long)room);
    if (io && r->inner->settle(r->session, err)) /* the copy of the step before may still be under way */
        return FTX_EDEVICE;
    return link_receive(r->links, 0, io ? r->inner->io(r->session) : r->bytes, c->bytes, links_timeout(r->links), err);
}

static FtxStatus obey_all(Remote *r, FtxError *err)
{
    RemoteCall c;
    FtxStatus s;

    for (;;) {
        RemoteAnswer a = {0};
        FtxError why = {0};

        s = link_receive(r->links, 0, &c, sizeof c, 0, err);
        if (s || c.op == REMOTE_END)
            return s;
        s = take_bytes(r, &c, err);
        if (s)
            return s;
        a.status = (int32_t)obey(r, &c, &a, &why);
        memcpy(a.text, why.text, sizeof a.text);
        s = link_send(r->links, 0, &a, sizeof a, err);
        if (s)
            return s;
    }
}

FtxStatus remote_run(const DeviceApi *inner, const Artifact *a, const ArtifactPlan *plan, const FtxOptions *o, int rank,
                     int ranks, FtxError *err)
{
    const Artifact own = artifact_rank(a, (uint32_t)rank);
    const Memory m = memory_of(o);
    Remote *r = memory_alloc(&m, sizeof *r, 64);
    FtxOptions one = *o;
    FtxStatus s = FTX_OK;

    if (!r)
        return memory_fail(err, "a rank", sizeof *r);
    r->inner = inner;
    r->plan = plan;
    if (o->device_count)
        one.ordinal = o->devices[rank];
    else if (!o->ordinal)
        s = link_local(&one.ordinal, err);
    if (!s)
        s = inner->open(&own, plan, &one, &r->device, err);
    if (!s)
        s = links_open(o, rank, ranks, group_artifact(a, plan), &r->links, err);
    if (!s)
        s = obey_all(r, err);
    if (r->session)
        inner->session_close(r->session);
    links_close(r->links);
    if (r->device)
        inner->close(r->device);
    memory_free(&m, r, sizeof *r);
    return s;
}
