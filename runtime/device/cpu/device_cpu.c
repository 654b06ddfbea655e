/* device_cpu.c - runs a plan on the CPU: C kernels, a team of threads, one launch after another.
 *
 * Weights are read from the mapped file. A session is one block,
 *
 *     STATE | IO | WORK | OUT | pointers of all operands | profile rows | PAGES
 *
 * whose pages take memory only when a kernel has written there;
 * run() walks prepared launches: it looks nothing up and allocates nothing. */
#include "../device.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "../../../kernels/cpu/cpu.h"
#include "../../base/dtype.h"
#include "../../base/env.h"
#include "../../base/memory.h"
#include "../cache.h"
#include "../group/link.h"
#include "../random.h"
#include "../trace.h"
#include "../../base/team.h"
#include "extents.h"
#include "inputs.h"

static const uint32_t named_space[FTX_NAMED_COUNT] = {
#define NAMED(name, space, bytes, what) FTX_SPACE_##space,
#include "../../artifact/named.def"
#undef NAMED
};

typedef struct Prepared { /* a launch */
    CpuKernel *kernel;
    const int64_t *consts;
    uint32_t first_operand;
    uint32_t kernel_index;
    const char *label;
} Prepared;

struct Device {
    Memory memory;
    size_t bytes;
    const Artifact *artifact;
    const ArtifactPlan *plan;
    const char *weights;
    void *drawn; /* random weights; NULL: the artifact's are used */
    int threads;
    char name[128];
    Prepared launch[]; /* [n_launches] */
};

struct Session {
    Device *device;
    Team *team;
    char *block;
    size_t block_bytes;
    char *space[FTX_SPACE_COUNT];
    uint32_t pages; /* of the KV cache */
    char *kept;     /* pages outside of it; NULL: none */
    uint32_t n_kept;
    void **arg;     /* [n_operands] */
    char *scratch;  /* [threads][CPU_SCRATCH] */
    int32_t *taken; /* [n_launches]: CpuCall.taken of each launch */
    FtxProfile *profile;
    bool profiling, nan;
    FtxExchange *exchange; /* of several ranks, after join; else NULL */
    int timeout;           /* seconds to wait for another rank */
    Links *links;          /* to ranks in other processes; NULL: there are none */
    Trace *trace;          /* NULL: nothing is recorded */
    const Watch *watch;    /* NULL: nobody watches */
    /* the run in progress */
    const FtxProgram *program;
    const Prepared *first; /* its first launch; watched: the one that runs */
    int T, S;
};

/* --- device ------------------------------------------------------------------------------------ */

typedef struct Draw {
    const Artifact *artifact;
    uint64_t seed;
    char *block;
} Draw;

static void draw(void *user, int piece, int share, int shares)
{
    const Draw *d = user;
    const FtxWeight *w = &d->artifact->weights[piece];
    const size_t size = random_unit(w);
    const uint64_t n = w->bytes / size;
    const uint64_t first = n * (uint64_t)share / (uint64_t)shares;
    const uint64_t last = n * (uint64_t)(share + 1) / (uint64_t)shares;

    random_fill(d->artifact, (uint32_t)piece, d->seed, first, last, d->block + w->offset + first * size);
}

static FtxStatus draw_weights(Device *d, uint64_t seed, FtxError *err)
{
    const size_t bytes = d->artifact->facts->weight_bytes;
    Draw job = {d->artifact, seed, memory_alloc(&d->memory, bytes, 4096)};
    Team *team;
    FtxStatus s;

    if (!job.block)
        return memory_fail(err, "random weights", bytes);
    d->drawn = job.block;
    d->weights = job.block;
    s = team_open(&d->memory, d->threads, &team, err);
    if (s)
        return s;
    team_run(team, draw, &job, (int)d->artifact->n_weights);
    team_close(team);
    return FTX_OK;
}

static FtxStatus take_weights(Device *d, uint64_t seed, FtxError *err)
{
    const Artifact *a = d->artifact;

    if (seed)
        return draw_weights(d, seed, err);
    if (!a->weight_data)
        return ftx_fail(err, FTX_EINVAL,
                        "the artifact holds no weights; open it with random weights, or compile it from a checkpoint");
    d->weights = a->weight_data;
    /* madvise may fail; if the file is cached it costs nothing. */
    const uintptr_t page = (uintptr_t)d->weights & ~(uintptr_t)4095;

    madvise((void *)page, a->facts->weight_bytes + ((uintptr_t)d->weights - page), MADV_WILLNEED);
    return FTX_OK;
}

static FtxStatus prepare(Device *d, FtxError *err)
{
    const ArtifactPlan *p = d->plan;

    for (uint32_t i = 0; i < p->n_launches; i++) {
        const FtxLaunch *l = &p->launches[i];
        const FtxKernel *k = &p->kernels[l->kernel];
        const char *family = artifact_string(d->artifact, k->family);
        CpuKernel *kernel = k->kind == FTX_KERNEL_CPU ? cpu_kernel(family) : NULL;

        if (!kernel)
            return ftx_fail(err, FTX_EVERSION,
                            "the artifact needs the CPU kernel '%s', which this runtime lacks: compile it again, "
                            "or use the runtime of its ftxc",
                            family);
        d->launch[i] = (Prepared){kernel, p->consts + k->first_const, l->first_operand, l->kernel,
                                  artifact_string(d->artifact, l->label)};
    }
    return FTX_OK;
}

static void cpu_close(Device *d)
{
    if (!d)
        return;

    const Memory m = d->memory;

    if (d->drawn)
        memory_free(&m, d->drawn, d->artifact->facts->weight_bytes);
    memory_free(&m, d, d->bytes);
}

static FtxStatus cpu_open(const Artifact *a, const ArtifactPlan *plan, const FtxOptions *o, Device **out, FtxError *err)
{
    const Memory m = memory_of(o);
    const size_t bytes = sizeof(Device) + sizeof(Prepared) * plan->n_launches;
    Device *d = memory_alloc(&m, bytes, 64);
    FtxStatus s;

    *out = NULL;
    if (!d)
        return memory_fail(err, "the device", bytes);
    if (!cpu_asked_known()) {
        memory_free(&m, d, bytes);
        return ftx_fail(err, FTX_EINVAL, "FTX_CPU is \"%s\": expected " CPU_LEVEL_NAMES, env_text(ENV_FTX_CPU));
    }
    d->memory = m;
    d->bytes = bytes;
    d->artifact = a;
    d->plan = plan;
    d->threads = o && o->threads ? o->threads : team_default_threads();
    snprintf(d->name, sizeof d->name, "cpu (%d thread%s, %s)", d->threads, d->threads == 1 ? "" : "s", cpu_features());
    s = prepare(d, err);
    if (!s)
        s = extents_check(a, plan, err);
    if (!s)
        s = take_weights(d, o ? o->random_weights : 0, err);
    if (s) {
        cpu_close(d);
        return s;
    }
    *out = d;
    return FTX_OK;
}

static const char *cpu_describe(const Device *d)
{
    return d->name;
}

/* --- session ----------------------------------------------------------------------------------- */

static void lay_out(Session *s, Carve *c)
{
    static const int held[] = {FTX_SPACE_STATE, FTX_SPACE_IO, FTX_SPACE_WORK, FTX_SPACE_OUT};
    const ArtifactPlan *p = s->device->plan;

    for (size_t i = 0; i < sizeof held / sizeof *held; i++)
        s->space[held[i]] = carve(c, p->head->space_bytes[held[i]], 1);
    s->arg = carve(c, p->n_operands, sizeof *s->arg);
    s->profile = carve(c, p->n_kernels, sizeof *s->profile);
    s->space[FTX_SPACE_PAGES] = carve(c, cache_bytes(p, s->pages), 1);
    s->scratch = carve(c, (size_t)s->device->threads, CPU_SCRATCH);
    s->taken = carve(c, p->n_launches, sizeof *s->taken);
}

/* Kernels do not write weights, but all operands are plain pointers. */
static char *writable(const char *p)
{
    return (char *)(uintptr_t)p;
}

static void resolve(Session *s)
{
    const Device *d = s->device;
    const ArtifactPlan *p = d->plan;

    s->space[FTX_SPACE_WEIGHTS] = writable(d->weights);
    for (uint32_t i = 0; i < p->n_operands; i++)
        if (p->operands[i].space != FTX_SPACE_NULL)
            s->arg[i] = s->space[p->operands[i].space] + cache_operand(&p->operands[i], s->pages);
    for (uint32_t i = 0; i < p->n_kernels; i++)
        s->profile[i] = (FtxProfile){.kernel = artifact_string(d->artifact, p->kernels[i].entry),
                                     .matmul = p->kernels[i].matmul != 0};
}

static void cpu_session_close(Session *s)
{
    if (!s)
        return;

    const Memory *m = &s->device->memory;

    if (s->links)
        wire_close(s->links);
    team_close(s->team);
    if (s->kept)
        memory_free(m, s->kept, s->n_kept * cache_bytes(s->device->plan, 1));
    memory_free(m, s->block, s->block_bytes);
    memory_free(m, s, sizeof *s);
}

/* The session's block of memory, with the pages that the machine has room for. */
static FtxStatus take_block(Session *s, uint64_t kv_bytes, FtxError *err)
{
    const Device *d = s->device;
    CacheMemory memory = {.full = FTX_ENOMEM};
    Carve size = {NULL, 0};
    FtxStatus status;

    memory_machine(&memory.all, &memory.free);
    status = cache_pages(d->artifact, d->plan, kv_bytes, memory, &s->pages, err);
    if (status)
        return status;
    lay_out(s, &size);
    s->block_bytes = size.at;
    s->block = memory_alloc(&d->memory, size.at, 4096);
    return s->block ? FTX_OK : memory_fail(err, "the engine's state", size.at);
}

static FtxStatus cpu_session_open(Device *d, uint64_t kv_bytes, Session **out, uint32_t *pages, FtxError *err)
{
    Session *s = memory_alloc(&d->memory, sizeof *s, 64);
    FtxStatus status;

    *out = NULL;
    if (!s)
        return memory_fail(err, "a session", sizeof *s);
    s->device = d;
    status = take_block(s, kv_bytes, err);
    if (!status)
        status = team_open(&d->memory, d->threads, &s->team, err);
    if (status) {
        cpu_session_close(s);
        return status;
    }
    lay_out(s, &(Carve){s->block, 0});
    resolve(s);
    s->nan = env_on(ENV_FTX_NAN);
    *out = s;
    *pages = s->pages;
    return FTX_OK;
}

static FtxExchange *exchange_at(const Session *s)
{
    return (FtxExchange *)(void *)(s->space[FTX_SPACE_STATE] + s->device->plan->head->named[FTX_NAMED_exchange]);
}

/* Writes $peers, but for the addresses of the other ranks. */
static FtxStatus fill_peers(Session *s, int rank, int ranks, FtxPeers **out, FtxError *err)
{
    const FtxPlan *head = s->device->plan->head;
    FtxPeers *peers = (FtxPeers *)(void *)(s->space[FTX_SPACE_STATE] + head->named[FTX_NAMED_peers]);
    const FtxStatus status = env_int(ENV_FTX_PEER_TIMEOUT, 1, 3600, 10, &s->timeout, err);

    if (status)
        return status;
    *peers = (FtxPeers){.rank = rank, .ranks = ranks, .timeout_ms = s->timeout * 1000, .bytes = head->exchange};
    s->exchange = exchange_at(s);
    *out = peers;
    return FTX_OK;
}

static FtxStatus cpu_join(Session *s, int rank, int ranks, Session *const *all, FtxError *err)
{
    FtxPeers *peers;
    const FtxStatus status = fill_peers(s, rank, ranks, &peers, err);

    for (int r = 0; !status && r < ranks; r++)
        peers->exchange[r] = (uintptr_t)exchange_at(all[r]);
    return status;
}

static FtxStatus cpu_join_links(Session *s, Links *l, FtxError *err)
{
    FtxPeers *peers;
    FtxStatus status = fill_peers(s, links_rank(l), links_ranks(l), &peers, err);

    if (!status)
        status = wire_open(l, s->exchange, peers->bytes, err);
    if (status)
        return status;
    s->links = l;
    peers->report = wire_report(l);
    for (int r = 0; r < peers->ranks; r++)
        peers->exchange[r] = wire_address(l, r);
    return FTX_OK;
}

static void cpu_stop(Session *s)
{
    __atomic_store_n(&s->exchange->stop, 1, __ATOMIC_RELAXED);
}

/* Whether an exchange with other ranks has failed. */
static FtxStatus check_exchange(const Session *s, FtxError *err)
{
    if (!s->exchange || !__atomic_load_n(&s->exchange->stop, __ATOMIC_RELAXED))
        return FTX_OK;
    if (s->links && wire_lost(s->links) >= 0)
        return ftx_fail(err, FTX_EDEVICE, "the connection to rank %d has ended", wire_lost(s->links));
    if (!s->exchange->failed)
        return ftx_fail(err, FTX_EDEVICE, "another rank has failed");
    return ftx_fail(err, FTX_EDEVICE, "rank %u did not come within %d s (FTX_PEER_TIMEOUT)", s->exchange->failed - 1,
                    s->timeout);
}

static void *cpu_io(Session *s)
{
    return s->space[FTX_SPACE_IO];
}

static const void *cpu_out(Session *s)
{
    return s->space[FTX_SPACE_OUT];
}

static FtxStatus cpu_upload(Session *s, size_t bytes, FtxError *err)
{
    (void)s, (void)bytes, (void)err; /* the kernels read IO where the host wrote it */
    return FTX_OK;
}

/* Bytes of a named buffer; NULL: outside of it, or KV pages, whose bytes are not those of the plan. */
static char *named_at(Session *s, int name, size_t offset, size_t bytes)
{
    const FtxPlan *head = s->device->plan->head;

    if (named_space[name] == FTX_SPACE_PAGES || offset > head->named_bytes[name] ||
        bytes > head->named_bytes[name] - offset)
        return NULL;
    return s->space[named_space[name]] + head->named[name] + offset;
}

static FtxStatus cpu_write(Session *s, int name, size_t offset, const void *p, size_t bytes, FtxError *err)
{
    char *to = named_at(s, name, offset, bytes);

    if (!to)
        return ftx_fail(err, FTX_EINVAL, "write of %zu bytes at %zu runs past a named buffer", bytes, offset);
    memcpy(to, p, bytes);
    return FTX_OK;
}

static FtxStatus cpu_read(Session *s, int name, size_t offset, void *p, size_t bytes, FtxError *err)
{
    const char *from = named_at(s, name, offset, bytes);

    if (!from)
        return ftx_fail(err, FTX_EINVAL, "read of %zu bytes at %zu runs past a named buffer", bytes, offset);
    memcpy(p, from, bytes);
    return FTX_OK;
}

/* Memory that nobody has touched takes no room yet. */
static FtxStatus cpu_keep_open(Session *s, uint32_t n, FtxError *err)
{
    const uint64_t bytes = n * cache_bytes(s->device->plan, 1);

    s->kept = memory_alloc(&s->device->memory, bytes, 4096);
    s->n_kept = n;
    return s->kept ? FTX_OK : memory_fail(err, "KV pages outside of the cache", bytes);
}

static FtxStatus cpu_keep(Session *s, uint32_t kept, uint32_t page, bool back, FtxError *err)
{
    const Device *d = s->device;
    char *alone = s->kept + kept * cache_bytes(d->plan, 1);
    CachePart part;

    if (kept >= s->n_kept || page >= s->pages)
        return ftx_fail(err, FTX_EINVAL, "page %u of %u, page %u of %u outside of the cache", page, s->pages, kept,
                        s->n_kept);
    for (uint32_t i = 0; cache_part(d->artifact, d->plan, s->pages, page, i, &part); i++) {
        char *in = s->space[FTX_SPACE_PAGES] + part.at, *out = alone + part.alone;

        memcpy(back ? in : out, back ? out : in, part.bytes);
    }
    return FTX_OK;
}

static FtxStatus cpu_snapshot(Session *s, uint32_t snapshot, uint32_t slot, bool back, FtxError *err)
{
    const Device *d = s->device;
    const uint32_t n = cache_snapshots(d->artifact, d->plan);
    CacheState state;

    if (snapshot >= n || slot >= d->artifact->facts->sequences)
        return ftx_fail(err, FTX_EINVAL, "snapshot %u of %u, slot %u of %u", snapshot, n, slot,
                        d->artifact->facts->sequences);
    for (uint32_t i = 0; cache_state(d->artifact, d->plan, slot, snapshot, i, &state); i++) {
        char *in = s->space[FTX_SPACE_STATE] + state.at, *out = s->space[FTX_SPACE_STATE] + state.copy;

        memcpy(back ? in : out, back ? out : in, state.bytes);
    }
    return FTX_OK;
}

static FtxStatus cpu_wipe(Session *s, uint32_t page, FtxError *err)
{
    const Device *d = s->device;
    CachePart part;

    if (page >= s->pages)
        return ftx_fail(err, FTX_EINVAL, "page %u of %u is to be wiped", page, s->pages);
    for (uint32_t i = 0; cache_part(d->artifact, d->plan, s->pages, page, i, &part); i++)
        memset(s->space[FTX_SPACE_PAGES] + part.at, 0, part.bytes);
    return FTX_OK;
}

/* --- running ----------------------------------------------------------------------------------- */

static void run_launch(const Session *s, const Prepared *l, int share, int shares)
{
    const CpuCall c = {.arg = s->arg + l->first_operand,
                       .k = l->consts,
                       .T = s->T,
                       .S = s->S,
                       .thread = share,
                       .threads = shares,
                       .scratch = s->scratch + (size_t)share * CPU_SCRATCH,
                       .taken = &s->taken[l - s->device->launch]};

    l->kernel(&c);
}

static void run_piece(void *user, int piece, int share, int shares)
{
    const Session *s = user;

    run_launch(s, s->first + piece, share, shares);
}

/* FTX_NAN: looks for NaN and infinity in the values in WORK that a launch of an fp32 plan wrote ("%12 linear";
 * scratch may hold anything). Rows after the live ones hold old values, and a buffer does not say whether it has T
 * or S rows; so only the rows that are live in both cases are checked, and every live logit. */
static bool has_nan(const float *v, uint64_t n, uint64_t *at)
{
    for (uint64_t i = 0; i < n; i++)
        if (!isfinite(v[i])) {
            *at = i;
            return true;
        }
    return false;
}

static bool makes_nan(const Session *s, uint32_t launch, uint64_t *at)
{
    const uint64_t padding = 64; /* floats at the end of a buffer that may be no values */
    const ArtifactPlan *p = s->device->plan;
    const FtxFacts *f = s->device->artifact->facts;
    const FtxPlan *head = p->head;
    const uint64_t program = (uint64_t)(s->program - p->programs);
    const FtxKernel *k = &p->kernels[p->launches[launch].kernel];
    const FtxOperand *o = &p->operands[p->launches[launch].first_operand];

    for (uint32_t i = 0; i < p->n_buffers && head->compute_type == DT_FP32; i++) {
        const FtxBuffer *b = &p->buffers[i];
        const uint64_t by_tokens = b->bytes * (uint64_t)s->T / f->tokens;
        const uint64_t by_rows = b->bytes * (uint64_t)s->S / f->sequences;

        const uint64_t live = (by_tokens < by_rows ? by_tokens : by_rows) / sizeof(float);

        if (b->space == FTX_SPACE_WORK && b->program == program && b->first == launch - s->program->first_launch &&
            *artifact_string(s->device->artifact, b->name) == '%' && live > padding &&
            has_nan((const float *)(s->space[FTX_SPACE_WORK] + b->offset), live - padding, at))
            return true;
    }
    for (uint32_t i = 0; i < k->n_operands; i++)
        if (o[i].space == FTX_SPACE_STATE && o[i].offset == head->named[FTX_NAMED_logits])
            return has_nan((const float *)(s->space[FTX_SPACE_STATE] + o[i].offset), (uint64_t)s->S * f->vocab, at);
    return false;
}

/* Tells who watches what the launch is about to multiply. */
static void tell_inputs(const Session *s, const Prepared *l)
{
    const ArtifactPlan *p = s->device->plan;
    const char *family = artifact_string(s->device->artifact, p->kernels[l->kernel_index].family);
    Product of;

    if (inputs_product(family, l->consts, s->T, s->S, &of))
        s->watch->inputs(s->watch->user, p->operands[l->first_operand + of.matrix].offset, s->arg[l->first_operand],
                         of.rows, of.columns);
}

/* Runs one launch at a time and checks after each. */
static FtxStatus run_watched(Session *s, uint32_t n, FtxError *err)
{
    for (const Prepared *end = s->first + n; s->first < end; s->first++) {
        const Prepared *l = s->first;
        FtxProfile *row = &s->profile[l->kernel_index];
        const int64_t from = trace_now();
        uint64_t at;

        if (s->watch)
            tell_inputs(s, l);
        team_run(s->team, run_piece, s, 1);

        const int64_t to = trace_now();

        if (s->trace)
            trace_add(s->trace,
                      (TraceEvent){from, to, l->label, row->kernel, 0, s->T, s->S, s->trace->runs, TRACE_DEVICE});
        if (s->profiling) {
            row->time_us += (double)(to - from) * 1e-3;
            row->launches++;
        }
        if (s->nan && makes_nan(s, (uint32_t)(l - s->device->launch), &at))
            return ftx_fail(err, FTX_EDEVICE, "%s (%s): element %llu is not a finite number", l->label, row->kernel,
                            (unsigned long long)at);
    }
    return FTX_OK;
}

static FtxStatus run_once(Session *s, uint32_t program, int T, int S, FtxError *err)
{
    s->program = &s->device->plan->programs[program];
    s->first = s->device->launch + s->program->first_launch;
    s->T = T;
    s->S = S;
    memset(s->taken, 0, s->device->plan->n_launches * sizeof *s->taken);
    if (s->device->artifact->facts->ranks > 1 && !s->exchange)
        return ftx_fail(err, FTX_EINVAL, "the session is one of several ranks and has not joined the others");
    if (s->profiling || s->trace || s->nan || s->watch) {
        const FtxStatus status = run_watched(s, s->program->n_launches, err);

        return status ? status : check_exchange(s, err);
    }
    team_run(s->team, run_piece, s, (int)s->program->n_launches);
    return check_exchange(s, err);
}

static FtxStatus cpu_run(Session *s, uint32_t program, int T, int S, int times, FtxError *err)
{
    FtxStatus status = FTX_OK;

    for (int i = 0; i < times && !status; i++)
        status = run_once(s, program, T, S, err);
    return status;
}

static FtxStatus cpu_wait(Session *s, FtxError *err)
{
    (void)s, (void)err;
    return FTX_OK;
}

static FtxStatus cpu_profile(Session *s, bool on, const FtxProfile **rows, size_t *n, FtxError *err)
{
    (void)err;
    s->profiling = on;
    *rows = s->profile;
    *n = s->device->plan->n_kernels;
    return FTX_OK;
}

static FtxStatus cpu_time(Session *s, uint32_t program, int T, int S, int repeat, double *times, FtxError *err)
{
    for (int i = 0; i < repeat; i++) {
        const int64_t from = trace_now();
        const FtxStatus status = run_once(s, program, T, S, err);

        if (status)
            return status;
        times[i] = (double)(trace_now() - from) * 1e-3;
    }
    return FTX_OK;
}

static FtxStatus cpu_trace(Session *s, Trace *t, FtxError *err)
{
    (void)err;
    s->trace = t;
    if (t)
        snprintf(t->note, sizeof t->note, "the host's clock around each kernel");
    return FTX_OK;
}

static void cpu_watch(Session *s, const Watch *w)
{
    s->watch = w;
}

static Team *cpu_team(Session *s)
{
    return s->team;
}

const DeviceApi device_cpu = {
    .name = "cpu",
    .open = cpu_open,
    .close = cpu_close,
    .describe = cpu_describe,
    .session_open = cpu_session_open,
    .session_close = cpu_session_close,
    .join = cpu_join,
    .join_links = cpu_join_links,
    .stop = cpu_stop,
    .io = cpu_io,
    .out = cpu_out,
    .upload = cpu_upload,
    .settle = cpu_wait,
    .write = cpu_write,
    .read = cpu_read,
    .keep_open = cpu_keep_open,
    .keep = cpu_keep,
    .wipe = cpu_wipe,
    .snapshot = cpu_snapshot,
    .run = cpu_run,
    .wait = cpu_wait,
    .asynchronous = false,
    .team = cpu_team,
    .profile = cpu_profile,
    .time = cpu_time,
    .trace = cpu_trace,
    .watch = cpu_watch,
};
