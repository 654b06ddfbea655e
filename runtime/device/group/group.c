/* group.c - several ranks as one device: a device, a session and a thread for each; the engine does not know.
 *
 *   engine ─ upload, run, wait ─▶ group ─▶ rank 0   the caller's thread: its IO is what the engine writes
 *                                       ├▶ rank 1   a thread: a copy of rank 0's IO, then the same call
 *                                       └▶ ...
 *
 * A call returns when all ranks have made it. Each rank counts the steps that it gets: the step block has a number and a hash,
 * and a rank that finds another number or hash than its own does not run. When a rank fails, the waits of all others for it
 * are ended; the session returns that error from then on, with the rank's number.
 *
 * Kernels of GPUs wait for those of other ranks and keep their place meanwhile, so those of another session that shares the GPUs
 * could be in the way of what they wait for, and theirs in its way. So sessions take turns: what one has enqueued is done on
 * all ranks before another one's work is enqueued on any.
 *
 * With FTX_MASTER every rank is a process (link.h). Rank 0's has this group; the device of another rank is device_remote
 * (remote.c), which sends the calls to that rank's process. */
#include "group.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "../../../kernels/device/io.h"
#include "../../base/hash.h"
#include "../../base/memory.h"
#include "../../base/team.h"
#include "remote.h"

struct Device {
    Memory memory;
    const DeviceApi *inner;              /* of rank 0 */
    const DeviceApi *api[FTX_MAX_RANKS]; /* `inner`, or of ranks in other processes device_remote */
    Links *links;                        /* to these; NULL: all ranks are in this process */
    const ArtifactPlan *plan;
    int ranks;
    bool shares_memory; /* the ranks take their pages from one memory: the CPU */
    Artifact artifact[FTX_MAX_RANKS];
    Device *rank[FTX_MAX_RANKS]; /* of `inner` */
    int ordinal[FTX_MAX_RANKS];  /* of the GPU of a rank in this process */
    char name[200];
};

typedef struct Call Call;
typedef FtxStatus RankCall(Session *s, int rank, const Call *c, FtxError *err);

/* What all ranks do next. */
struct Call {
    RankCall *run;
    size_t bytes;
    uint32_t program, page, snapshot, slot;
    bool back;
    int T, S, times;
    double *us;
    int named;
    size_t offset;
    const void *from;
};

typedef struct Rank { /* of a session */
    Session *of;
    Session *session; /* of `inner` */
    int number;
    pthread_t thread;
    bool started;
    unsigned steps; /* that it got */
    FtxError error;
} Rank;

struct Session {
    Device *device;
    Rank rank[FTX_MAX_RANKS];
    pthread_mutex_t lock;
    pthread_cond_t begin, end;
    const Call *call;
    unsigned calls; /* begun */
    int pending;    /* ranks that have not made it yet */
    bool ending;
    int failed;        /* the first rank that failed; -1: none */
    FtxError dead;     /* what all calls return from then on */
    unsigned composed; /* steps */
    size_t fresh;      /* bytes of a step that no run has seen yet; 0: none */
    Session *next;     /* in `open_sessions` */
    bool enqueued;     /* a run, which may not be done */
};

/* Those that enqueue on GPUs of this process, and whose turn it is: who holds the lock. */
static pthread_mutex_t turns = PTHREAD_MUTEX_INITIALIZER;
static Session *open_sessions;

/* --- device -------------------------------------------------------------------------------------- */

static void group_close(Device *d)
{
    const Memory m = d->memory;

    for (int r = 0; r < d->ranks; r++)
        if (d->rank[r])
            d->api[r]->close(d->rank[r]);
    links_close(d->links);
    memory_free(&m, d, sizeof *d);
}

uint64_t group_artifact(const Artifact *a, const ArtifactPlan *plan)
{
    return a->header->sections_checksum + plan->head->target;
}

/* Rank 0 of several processes: the others come, and each gets a device that stands for it. */
static FtxStatus open_remotes(Device *d, const Artifact *a, const FtxOptions *o, FtxError *err)
{
    FtxStatus s = links_open(o, 0, d->ranks, group_artifact(a, d->plan), &d->links, err);

    for (int r = 1; !s && r < d->ranks; r++) {
        d->api[r] = &device_remote;
        s = remote_open(&d->memory, d->plan, d->links, r, &d->rank[r], err);
    }
    return s;
}

/* Whether the other ranks are in other processes. */
static FtxStatus find_processes(const DeviceApi *inner, int ranks, bool *apart, FtxError *err)
{
    int rank, processes;
    const FtxStatus s = link_read(&rank, &processes, err);

    *apart = processes > 0;
    if (s || !*apart)
        return s;
    if (processes != ranks)
        return ftx_fail(err, FTX_EINVAL, "there are %d processes (FTX_RANKS), and the artifact is for %d ranks",
                        processes, ranks);
    if (rank)
        return ftx_fail(err, FTX_EINVAL, "this process is rank %d: only rank 0 has an engine, others call ftx_rank_run",
                        rank);
    if (!inner->join_links)
        return ftx_fail(err, FTX_ENODEVICE, "FTX_MASTER is set: %s has no ranks in several processes", inner->name);
    return FTX_OK;
}

FtxStatus group_open(const DeviceApi *inner, const Artifact *a, const ArtifactPlan *plan, const FtxOptions *o,
                     Device **out, FtxError *err)
{
    const FtxOptions none = FTX_OPTIONS_INIT, *of = o ? o : &none;
    const Memory m = memory_of(o);
    const int ranks = (int)a->facts->ranks, threads = of->threads ? of->threads : team_default_threads();
    Device *d;
    bool apart;
    FtxStatus s = find_processes(inner, ranks, &apart, err);

    *out = NULL;
    if (s)
        return s;
    if (!inner->join)
        return ftx_fail(err, FTX_ENODEVICE, "the artifact was compiled for %d ranks (parallel=%d), %s runs one", ranks,
                        ranks, inner->name);
    d = memory_alloc(&m, sizeof *d, 64);
    if (!d)
        return memory_fail(err, "the ranks", sizeof *d);
    d->memory = m;
    d->inner = inner;
    d->plan = plan;
    d->ranks = ranks;
    d->shares_memory = plan->head->target == FTX_TARGET_CPU && !apart;
    for (int r = 0; !s && r < (apart ? 1 : ranks); r++) {
        FtxOptions one = *of;

        d->api[r] = inner;
        one.threads = apart ? threads : threads > ranks ? threads / ranks : 1;
        one.ordinal = of->device_count ? of->devices[r] : apart ? of->ordinal : r;
        if (apart && !of->device_count && !of->ordinal)
            s = link_local(&one.ordinal, err);
        d->ordinal[r] = one.ordinal;
        if (s)
            break;
        d->artifact[r] = artifact_rank(a, (uint32_t)r);
        s = ftx_context(err, inner->open(&d->artifact[r], plan, &one, &d->rank[r], err), "rank %d", r);
    }
    if (!s && apart)
        s = open_remotes(d, a, of, err);
    if (s) {
        group_close(d);
        return s;
    }
    snprintf(d->name, sizeof d->name, "%d ranks of %s", ranks, inner->describe(d->rank[0]));
    *out = d;
    return FTX_OK;
}

static FtxStatus group_open_cpu(const Artifact *a, const ArtifactPlan *plan, const FtxOptions *o, Device **out,
                                FtxError *err)
{
    return group_open(&device_cpu, a, plan, o, out, err);
}

static FtxStatus group_open_cuda(const Artifact *a, const ArtifactPlan *plan, const FtxOptions *o, Device **out,
                                 FtxError *err)
{
    return group_open(&device_cuda, a, plan, o, out, err);
}

static const char *group_describe(const Device *d)
{
    return d->name;
}

/* --- a call on all ranks ---------------------------------------------------------------------------- */

static void make_call(Session *s, int rank, const Call *c)
{
    if (!c->run(s, rank, c, &s->rank[rank].error))
        return;
    pthread_mutex_lock(&s->lock);
    if (s->failed < 0)
        s->failed = rank;
    pthread_mutex_unlock(&s->lock);
    for (int r = 0; r < s->device->ranks; r++)
        s->device->api[r]->stop(s->rank[r].session);
}

static void *rank_thread(void *user)
{
    Rank *me = user;
    Session *s = me->of;
    unsigned done = 0;

    pthread_mutex_lock(&s->lock);
    for (;;) {
        while (s->calls == done && !s->ending)
            pthread_cond_wait(&s->begin, &s->lock);
        if (s->ending)
            break;
        done = s->calls;
        pthread_mutex_unlock(&s->lock);
        make_call(s, me->number, s->call);
        pthread_mutex_lock(&s->lock);
        if (--s->pending == 0)
            pthread_cond_signal(&s->end);
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

static FtxStatus on_all(Session *s, const Call *c, FtxError *err)
{
    if (s->dead.status)
        return ftx_fail(err, s->dead.status, "%s", s->dead.text);
    if (s->device->links)
        links_hurry(s->device->links, false);
    pthread_mutex_lock(&s->lock);
    s->call = c;
    s->calls++;
    s->pending = s->device->ranks - 1;
    pthread_cond_broadcast(&s->begin);
    pthread_mutex_unlock(&s->lock);
    make_call(s, 0, c);
    if (s->device->links)
        links_hurry(s->device->links, true);
    pthread_mutex_lock(&s->lock);
    while (s->pending)
        pthread_cond_wait(&s->end, &s->lock);
    pthread_mutex_unlock(&s->lock);
    if (s->failed < 0)
        return FTX_OK;
    s->dead = s->rank[s->failed].error;
    ftx_context(&s->dead, s->dead.status, "rank %d", s->failed);
    return ftx_fail(err, s->dead.status, "%s", s->dead.text);
}

/* --- turns -------------------------------------------------------------------------------------------- */

static bool takes_turns(const Session *s)
{
    return s->device->inner->asynchronous && !s->device->links;
}

static bool share_a_gpu(const Device *a, const Device *b)
{
    for (int r = 0; r < a->ranks; r++)
        for (int k = 0; k < b->ranks; k++)
            if (a->ordinal[r] == b->ordinal[k])
                return true;
    return false;
}

static void begin_turn(Session *s)
{
    if (!takes_turns(s))
        return;
    pthread_mutex_lock(&turns);
    for (Session *other = open_sessions; other; other = other->next) {
        if (other == s || !other->enqueued || !share_a_gpu(s->device, other->device))
            continue;
        for (int r = 0; r < other->device->ranks; r++) /* its own calls say what went wrong */
            other->device->api[r]->wait(other->rank[r].session, NULL);
        other->enqueued = false;
    }
    s->enqueued = true;
}

static void end_turn(Session *s)
{
    if (takes_turns(s))
        pthread_mutex_unlock(&turns);
}

static void join_turns(Session *s)
{
    pthread_mutex_lock(&turns);
    s->next = open_sessions;
    open_sessions = s;
    pthread_mutex_unlock(&turns);
}

static void leave_turns(Session *s)
{
    pthread_mutex_lock(&turns);
    for (Session **at = &open_sessions; *at; at = &(*at)->next)
        if (*at == s) {
            *at = s->next;
            break;
        }
    pthread_mutex_unlock(&turns);
}

/* --- session ----------------------------------------------------------------------------------------- */

static void group_session_close(Session *s)
{
    const Device *d = s->device;
    const Memory m = d->memory;

    leave_turns(s);
    pthread_mutex_lock(&s->lock);
    s->ending = true;
    pthread_cond_broadcast(&s->begin);
    pthread_mutex_unlock(&s->lock);
    for (int r = 0; r < d->ranks; r++)
        if (s->rank[r].started)
            pthread_join(s->rank[r].thread, NULL);
    for (int r = 0; r < d->ranks; r++) /* a kernel of one rank may be writing into memory of another */
        if (s->rank[r].session)
            d->api[r]->wait(s->rank[r].session, NULL);
    for (int r = 0; r < d->ranks; r++)
        if (s->rank[r].session)
            d->api[r]->session_close(s->rank[r].session);
    pthread_cond_destroy(&s->begin);
    pthread_cond_destroy(&s->end);
    pthread_mutex_destroy(&s->lock);
    memory_free(&m, s, sizeof *s);
}

/* Opens the sessions with equally many pages: those of the rank that has room for the fewest. */
static FtxStatus open_ranks(Session *s, uint64_t kv_bytes, uint32_t *pages, FtxError *err)
{
    const Device *d = s->device;
    const uint64_t page = d->plan->head->space_bytes[FTX_SPACE_PAGES];
    uint32_t found[FTX_MAX_RANKS] = {0}, least = UINT32_MAX;
    FtxStatus status = FTX_OK;

    for (int r = 0; !status && r < d->ranks; r++) {
        status = ftx_context(err, d->api[r]->session_open(d->rank[r], kv_bytes, &s->rank[r].session, &found[r], err),
                             "rank %d", r);
        least = found[r] < least ? found[r] : least;
    }
    if (d->shares_memory && !kv_bytes && least < d->artifact[0].facts->kv_pages)
        least = least / (uint32_t)d->ranks > 0 ? least / (uint32_t)d->ranks : 1;
    for (int r = 0; !status && r < d->ranks; r++) {
        if (found[r] == least)
            continue;
        d->api[r]->session_close(s->rank[r].session);
        s->rank[r].session = NULL;
        status = ftx_context(
            err, d->api[r]->session_open(d->rank[r], least * page, &s->rank[r].session, &found[r], err), "rank %d", r);
    }
    *pages = least;
    return status;
}

/* Workers block all signals: these are for the program's own threads. */
static FtxStatus start_threads(Session *s, FtxError *err)
{
    sigset_t all, before;
    int failed = 0;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    for (int r = 1; !failed && r < s->device->ranks; r++) {
        failed = pthread_create(&s->rank[r].thread, NULL, rank_thread, &s->rank[r]);
        s->rank[r].started = !failed;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return failed ? ftx_fail(err, FTX_ENOMEM, "cannot start a thread for a rank: %s", strerror(failed)) : FTX_OK;
}

static FtxStatus rank_join(Session *s, int rank, const Call *c, FtxError *err)
{
    const Device *d = s->device;

    (void)c;
    return rank ? d->api[rank]->join(s->rank[rank].session, rank, d->ranks, NULL, err)
                : d->inner->join_links(s->rank[0].session, d->links, err);
}

/* All at the same time: each may wait for the others. */
static FtxStatus join_processes(Session *s, FtxError *err)
{
    const Device *d = s->device;
    const FtxStatus status = d->inner->join_word ? d->inner->join_word(links_word(d->links), err) : FTX_OK;

    return status ? ftx_context(err, status, "rank 0") : on_all(s, &(Call){.run = rank_join}, err);
}

static FtxStatus group_session_open(Device *d, uint64_t kv_bytes, Session **out, uint32_t *pages, FtxError *err)
{
    Session *s = memory_alloc(&d->memory, sizeof *s, 64), *all[FTX_MAX_RANKS];
    FtxStatus status;

    *out = NULL;
    if (!s)
        return memory_fail(err, "a session", sizeof *s);
    s->device = d;
    s->failed = -1;
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->begin, NULL);
    pthread_cond_init(&s->end, NULL);
    for (int r = 0; r < d->ranks; r++) {
        s->rank[r].of = s;
        s->rank[r].number = r;
    }
    status = open_ranks(s, kv_bytes, pages, err);
    for (int r = 0; r < d->ranks; r++)
        all[r] = s->rank[r].session;
    for (int r = 0; !status && !d->links && r < d->ranks; r++)
        status = ftx_context(err, d->api[r]->join(all[r], r, d->ranks, all, err), "rank %d", r);
    if (!status)
        status = start_threads(s, err);
    if (!status && d->links)
        status = join_processes(s, err);
    if (status) {
        group_session_close(s);
        return status;
    }
    if (takes_turns(s))
        join_turns(s);
    *out = s;
    return FTX_OK;
}

static void *group_io(Session *s)
{
    return s->device->inner->io(s->rank[0].session);
}

static const void *group_out(Session *s)
{
    return s->device->inner->out(s->rank[0].session);
}

/* --- steps -------------------------------------------------------------------------------------------- */

uint64_t group_step_hash(const void *io, size_t bytes)
{
    FtxStep step;
    uint64_t of[2];

    memcpy(&step, io, sizeof step);
    step.hash_low = step.hash_high = 0;
    of[0] = hash64(&step, sizeof step);
    of[1] = hash64((const char *)io + sizeof step, bytes - sizeof step);
    return hash64(of, sizeof of);
}

/* A rank's step must be the next one that it gets, and be what rank 0 has written. */
static FtxStatus check_step(Session *s, int rank, FtxError *err)
{
    const void *io = s->device->api[rank]->io(s->rank[rank].session);
    Rank *me = &s->rank[rank];
    FtxStep step;
    uint64_t hash, said;

    if (!s->fresh)
        return FTX_OK;
    memcpy(&step, io, sizeof step);
    hash = group_step_hash(io, s->fresh);
    said = (uint64_t)step.hash_high << 32 | step.hash_low;
    me->steps++;
    if (step.number == me->steps && step.number == s->composed && hash == said)
        return FTX_OK;
    return ftx_fail(
        err, FTX_EDEVICE,
        "its step %u has the hash %016llx, not %016llx; it expects step %u, and rank 0 has composed step %u",
        step.number, (unsigned long long)hash, (unsigned long long)said, me->steps, s->composed);
}

static FtxStatus rank_upload(Session *s, int rank, const Call *c, FtxError *err)
{
    const DeviceApi *api = s->device->api[rank];

    if (rank)
        memcpy(api->io(s->rank[rank].session), group_io(s), c->bytes);
    return api->upload(s->rank[rank].session, c->bytes, err);
}

static FtxStatus group_upload(Session *s, size_t bytes, FtxError *err)
{
    FtxStep *step = group_io(s);
    uint64_t hash;

    step->number = ++s->composed;
    hash = group_step_hash(step, bytes);
    step->hash_low = (unsigned)hash;
    step->hash_high = (unsigned)(hash >> 32);
    s->fresh = bytes;
    return on_all(s, &(Call){.run = rank_upload, .bytes = bytes}, err);
}

static FtxStatus rank_run(Session *s, int rank, const Call *c, FtxError *err)
{
    const FtxStatus status = check_step(s, rank, err);

    return status ? status : s->device->api[rank]->run(s->rank[rank].session, c->program, c->T, c->S, c->times, err);
}

static FtxStatus group_run(Session *s, uint32_t program, int T, int S, int times, FtxError *err)
{
    begin_turn(s);
    const FtxStatus status =
        on_all(s, &(Call){.run = rank_run, .program = program, .T = T, .S = S, .times = times}, err);
    end_turn(s);
    s->fresh = 0;
    return status;
}

/* The times of rank 0. All ranks run each program before the next one. */
static FtxStatus rank_time(Session *s, int rank, const Call *c, FtxError *err)
{
    FtxStatus status = check_step(s, rank, err);
    double us;

    for (int i = 0; !status && i < c->times; i++)
        status =
            s->device->api[rank]->time(s->rank[rank].session, c->program, c->T, c->S, 1, rank ? &us : &c->us[i], err);
    return status;
}

static FtxStatus group_time(Session *s, uint32_t program, int T, int S, int repeat, double *times, FtxError *err)
{
    begin_turn(s);
    const FtxStatus status =
        on_all(s, &(Call){.run = rank_time, .program = program, .T = T, .S = S, .times = repeat, .us = times}, err);
    end_turn(s);
    s->fresh = 0;
    return status;
}

static FtxStatus rank_settle(Session *s, int rank, const Call *c, FtxError *err)
{
    (void)c;
    return s->device->api[rank]->settle(s->rank[rank].session, err);
}

static FtxStatus group_settle(Session *s, FtxError *err)
{
    return on_all(s, &(Call){.run = rank_settle}, err);
}

/* Rank 0's results are those of all. A rank in another process tells what went wrong with its next call. */
static FtxStatus rank_wait(Session *s, int rank, const Call *c, FtxError *err)
{
    (void)c;
    if (s->device->links && rank)
        return FTX_OK;
    return s->device->api[rank]->wait(s->rank[rank].session, err);
}

static FtxStatus group_wait(Session *s, FtxError *err)
{
    return on_all(s, &(Call){.run = rank_wait}, err);
}

static FtxStatus rank_write(Session *s, int rank, const Call *c, FtxError *err)
{
    return s->device->api[rank]->write(s->rank[rank].session, c->named, c->offset, c->from, c->bytes, err);
}

static FtxStatus group_write(Session *s, int named, size_t offset, const void *p, size_t bytes, FtxError *err)
{
    return on_all(s, &(Call){.run = rank_write, .named = named, .offset = offset, .from = p, .bytes = bytes}, err);
}

static FtxStatus rank_wipe(Session *s, int rank, const Call *c, FtxError *err)
{
    return s->device->api[rank]->wipe(s->rank[rank].session, c->page, err);
}

static FtxStatus group_wipe(Session *s, uint32_t page, FtxError *err)
{
    return on_all(s, &(Call){.run = rank_wipe, .page = page}, err);
}

static FtxStatus rank_snapshot(Session *s, int rank, const Call *c, FtxError *err)
{
    return s->device->api[rank]->snapshot(s->rank[rank].session, c->snapshot, c->slot, c->back, err);
}

static FtxStatus group_snapshot(Session *s, uint32_t snapshot, uint32_t slot, bool back, FtxError *err)
{
    return on_all(s, &(Call){.run = rank_snapshot, .snapshot = snapshot, .slot = slot, .back = back}, err);
}

/* Rank 0's results are taken while the programs run. The first rank that has waited in vain says so: rank 0 may notice later, or
 * not at all if it is the one that was waited for. */
static FtxStatus group_check(Session *s, FtxError *err)
{
    const DeviceApi *const *api = s->device->api;

    for (int r = 0; !s->dead.status && r < s->device->ranks; r++) {
        if (!api[r]->check || !api[r]->check(s->rank[r].session, &s->dead))
            continue;
        ftx_context(&s->dead, s->dead.status, "rank %d", r);
        for (int i = 0; i < s->device->ranks; i++)
            api[i]->stop(s->rank[i].session);
    }
    return s->dead.status ? ftx_fail(err, s->dead.status, "%s", s->dead.text) : FTX_OK;
}

/* --- what rank 0 has stands for all -------------------------------------------------------------------- */

static FtxStatus group_read(Session *s, int named, size_t offset, void *p, size_t bytes, FtxError *err)
{
    return s->device->inner->read(s->rank[0].session, named, offset, p, bytes, err);
}

static FtxStatus group_profile(Session *s, bool on, const FtxProfile **rows, size_t *n, FtxError *err)
{
    return s->device->inner->profile(s->rank[0].session, on, rows, n, err);
}

static FtxStatus group_trace(Session *s, Trace *t, FtxError *err)
{
    return s->device->inner->trace(s->rank[0].session, t, err);
}

/* owns, follow, copy_in, copy_out and clear are NULL: a pointer of the caller is valid on one GPU only, not on all ranks. */
#define GROUP(kind, is_asynchronous) \
    { \
        .name = #kind, .open = group_open_##kind, .close = group_close, .describe = group_describe, \
        .session_open = group_session_open, .session_close = group_session_close, .io = group_io, .out = group_out, \
        .upload = group_upload, .settle = group_settle, .write = group_write, .read = group_read, .wipe = group_wipe, \
        .snapshot = group_snapshot, .run = group_run, .wait = group_wait, .check = group_check, \
        .asynchronous = (is_asynchronous), .profile = group_profile, .time = group_time, .trace = group_trace \
    }

const DeviceApi device_group_cpu = GROUP(cpu, false);
const DeviceApi device_group_cuda = GROUP(cuda, true);
