/* program.c - programs on a GPU: launch lists, as graphs if they are fixed.
 *
 * A program with a bucket has constant grids: its launches are captured once, at open, into a graph that a step
 * launches as a whole. A program without one depends on T and S: its grids are computed at each step and its kernels
 * launched one by one. So are all programs while they are watched (profile, FTX_SYNC, FTX_NAN, FTX_TRACE without
 * CUPTI).
 *
 * A kernel with programmatic dependent launch may start while the previous one runs, and waits inside. The first
 * launch of a program waits for all earlier work. A chain is FTX_CHAIN runs of a small decode program in one graph,
 * without the idle time between two graphs. In a chain either the first kernel, `embed`, triggers its dependents
 * only when the previous run has ended, or the second kernel does (compiler/passes/edges.c). So what a kernel reads
 * ahead of its wait comes from the finished run.
 *
 * A run with masked rows is enqueued in two parts: the launches before the kernel `mask`, and the others; each part of a
 * program of fixed size has a CUDA graph. While launches are timed or traced, cuda_program_finish enqueues both. */
#include "device_cuda.h"

#ifdef FTX_HAVE_CUDA
#include <stdio.h>
#include <string.h>

#include "../../base/expr.h"

/* --- one launch ----------------------------------------------------------------------------------- */

/* The grids of all kernels for T tokens in S rows. */
static FtxStatus size_grids(Session *s, int T, int S, FtxError *err)
{
    const int64_t variables[VAR_COUNT] = {[VAR_T] = T, [VAR_S] = S, [VAR_SMS] = s->device->sms};
    FtxStatus status = FTX_OK;

    if (s->grid_T == T && s->grid_S == S)
        return FTX_OK;
    s->grid_T = s->grid_S = 0; /* until all are known */
    for (uint32_t i = 0; i < s->device->plan->n_kernels && !status; i++)
        if (s->device->plan->kernels[i].kind == FTX_KERNEL_CUDA)
            status = cuda_grid(s->device, i, variables, s->grid[i], err);
    if (!status) {
        s->grid_T = T;
        s->grid_S = S;
    }
    return status;
}

static FtxStatus launch_kernel(Session *s, const FtxLaunch *l, bool first, FtxError *err)
{
    const Device *d = s->device;
    const FtxKernel *k = &d->plan->kernels[l->kernel];
    const uint32_t *grid = s->grid[l->kernel];
    void *parameters[] = {&s->arg[l->first_operand]};
    CUlaunchAttribute overlap = {.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION};
    CUlaunchConfig c = {
        .gridDimX = grid[0],
        .gridDimY = grid[1],
        .gridDimZ = grid[2],
        .blockDimX = k->block,
        .blockDimY = 1,
        .blockDimZ = 1,
        .sharedMemBytes = k->smem,
        .hStream = s->stream,
        .attrs = &overlap,
        .numAttrs = d->overlap && (k->flags & FTX_KERNEL_OVERLAP) && !first && !s->copied ? 1 : 0,
    };

    overlap.value.programmaticStreamSerializationAllowed = 1;
    if (grid[0] == 0 || grid[1] == 0 || grid[2] == 0)
        return FTX_OK; /* nothing to do for this T and S */
    s->copied = false;
    return cuda_check(d->cu, d->cu->cuLaunchKernelEx(&c, d->function[l->kernel], parameters, NULL), err,
                      "launching %s (%s)", cuda_launch_label(d, (uint32_t)(l - d->plan->launches)),
                      cuda_kernel_name(d, l->kernel));
}

static LtPointers pointers_of(const Session *s, const FtxLaunch *l)
{
    const CUdeviceptr *a = &s->arg[l->first_operand];

    return (LtPointers){.x = a[0], .w = a[1], .b = a[2], .r = a[3], .y = a[4]};
}

static FtxStatus launch_matmul(Session *s, const FtxLaunch *l, int T, int S, FtxError *err)
{
    const Device *d = s->device;
    const uint32_t launch = (uint32_t)(l - d->plan->launches);
    const int64_t *c = &d->plan->consts[d->plan->kernels[l->kernel].first_const];
    const LtPointers p = pointers_of(s, l);

    s->copied = false;
    return ftx_context(err, lt_run(d->matmul[launch], c[FTX_MM_ROWS_S] ? S : T, &p, s->workspace, s->stream, err),
                       "launching %s", cuda_launch_label(d, launch));
}

static FtxStatus launch_one(Session *s, uint32_t launch, bool first, int T, int S, FtxError *err)
{
    const FtxLaunch *l = &s->device->plan->launches[launch];
    const Brought *exchanges = cuda_exchanges(s, l);
    FtxStatus status = exchanges && exchanges->twice ? launch_kernel(s, l, true, err) : FTX_OK;

    if (exchanges && !status)
        status = cuda_exchange(s, l, T, S, err);
    if (!status && s->device->matmul[launch])
        status = launch_matmul(s, l, T, S, err);
    else if (!status) /* NCCL's kernels do not trigger their dependents */
        status = launch_kernel(s, l, first || exchanges != NULL || cuda_timeline_by_events(s), err);
    return status || !s->timeline ? status : cuda_timeline_launch(s, launch, err);
}

/* Launches [from, to) of a program, so many times. */
typedef struct Part {
    uint32_t from, to;
    int times;
} Part;

static Part whole(const FtxProgram *p, int times)
{
    return (Part){0, p->n_launches, times};
}

/* How many launches come before `mask`; all, if there is none. */
static uint32_t before_mask(const Device *d, const FtxProgram *p)
{
    for (uint32_t i = 0; i < p->n_launches; i++) {
        const FtxKernel *k = &d->plan->kernels[d->plan->launches[p->first_launch + i].kernel];

        if (k->kind == FTX_KERNEL_CUDA && strcmp(artifact_string(d->artifact, k->family), "mask") == 0)
            return i;
    }
    return p->n_launches;
}

static FtxStatus launch_part(Session *s, const FtxProgram *p, Part part, int T, int S, FtxError *err)
{
    FtxStatus status = size_grids(s, T, S, err);

    for (int run = 0; run < part.times; run++)
        for (uint32_t i = part.from; i < part.to && !status; i++) {
            status = cuda_offload_copy(s, p->first_launch + i, err);
            if (!status)
                status = launch_one(s, p->first_launch + i, run == 0 && i == part.from, T, S, err);
        }
    return status;
}

/* --- prepared programs ---------------------------------------------------------------------------- */

/* Runs every cuBLASLt kernel once, before the first step needs it. */
static FtxStatus warm(Session *s, FtxError *err)
{
    const Device *d = s->device;
    FtxStatus status = FTX_OK;

    for (uint32_t i = 0; i < d->plan->n_launches && !status; i++) {
        const LtPointers p = d->matmul[i] ? pointers_of(s, &d->plan->launches[i]) : (LtPointers){0};
        bool seen = !d->matmul[i];

        for (uint32_t j = 0; j < i && !seen; j++)
            seen = d->matmul[j] == d->matmul[i];
        if (!seen)
            status = lt_warm(d->matmul[i], &p, s->workspace, s->stream, err);
    }
    if (!status)
        status = cuda_wait_stream(s->device, s->stream, 1, err, "warming cuBLASLt");
    return status;
}

static FtxStatus capture(Session *s, const FtxProgram *p, Part part, CUgraph *graph, FtxError *err)
{
    const CudaDriver *cu = s->device->cu;
    const int T = (int)p->bucket, S = (int)cuda_most_rows(s->device, p, true);
    FtxStatus status =
        cuda_check(cu, cu->cuStreamBeginCapture(s->stream, CU_STREAM_CAPTURE_MODE_RELAXED), err, "recording a program");

    *graph = NULL;
    if (status)
        return status;
    status = launch_part(s, p, part, T, S, err);
    const CUresult r = cu->cuStreamEndCapture(s->stream, graph); /* also after a failure, to end the capture */
    return status ? status : cuda_check(cu, r, err, "recording a program");
}

static FtxStatus make_graph(Session *s, const FtxProgram *p, Part part, CUgraphExec *exec, FtxError *err)
{
    const CudaDriver *cu = s->device->cu;
    CUgraph graph;
    FtxStatus status = capture(s, p, part, &graph, err);

    if (!status)
        status = cuda_check(cu, cu->cuGraphInstantiate(exec, graph, 0), err, "preparing a program's graph");
    if (status)
        *exec = NULL;
    if (graph)
        cu->cuGraphDestroy(graph);
    if (!status)
        status = cuda_check(cu, cu->cuGraphUpload(*exec, s->stream), err, "uploading a program's graph");
    return status;
}

/* With more rows a step is so long that the gap between two does not count. */
static bool has_chain(const FtxProgram *p)
{
    return p->kind == FTX_PROG_DECODE && p->bucket && p->bucket <= 64;
}

/* The graphs of a program's two parts. */
static FtxStatus make_halves(Session *s, uint32_t program, FtxError *err)
{
    const FtxProgram *p = &s->device->plan->programs[program];
    const uint32_t cut = before_mask(s->device, p);
    FtxStatus status = FTX_OK;

    if (!p->bucket || cut == p->n_launches)
        return FTX_OK;
    status = make_graph(s, p, (Part){0, cut, 1}, &s->head[program], err);
    return status ? status : make_graph(s, p, (Part){cut, p->n_launches, 1}, &s->tail[program], err);
}

FtxStatus cuda_program_prepare(Session *s, FtxError *err)
{
    const ArtifactPlan *p = s->device->plan;
    FtxStatus status = s->device->lt ? warm(s, err) : FTX_OK;

    for (uint32_t i = 0; i < p->n_programs && !status; i++)
        if (p->programs[i].bucket)
            status = make_graph(s, &p->programs[i], whole(&p->programs[i], 1), &s->graph[i], err);
    for (uint32_t i = 0; i < p->n_programs && !status; i++)
        if (has_chain(&p->programs[i]))
            status = make_graph(s, &p->programs[i], whole(&p->programs[i], FTX_CHAIN), &s->chain[i], err);
    for (uint32_t i = 0; i < p->n_programs && !status && s->masks; i++)
        status = make_halves(s, i, err);
    return status;
}

void cuda_program_close(Session *s)
{
    for (uint32_t i = 0; i < s->device->plan->n_programs; i++) {
        if (s->graph[i])
            s->device->cu->cuGraphExecDestroy(s->graph[i]);
        if (s->chain[i])
            s->device->cu->cuGraphExecDestroy(s->chain[i]);
        if (s->head[i])
            s->device->cu->cuGraphExecDestroy(s->head[i]);
        if (s->tail[i])
            s->device->cu->cuGraphExecDestroy(s->tail[i]);
    }
    for (size_t i = 0; i < s->n_events; i++)
        s->device->cu->cuEventDestroy(s->event[i]);
}

/* --- running -------------------------------------------------------------------------------------- */

static FtxStatus need_events(Session *s, size_t n, FtxError *err)
{
    FtxStatus status = FTX_OK;

    while (s->n_events < n && !status) {
        status = cuda_check(s->device->cu, s->device->cu->cuEventCreate(&s->event[s->n_events], CU_EVENT_DEFAULT), err,
                            "an event");
        s->n_events += !status;
    }
    return status;
}

static FtxStatus record(Session *s, size_t event, FtxError *err)
{
    return cuda_check(s->device->cu, s->device->cu->cuEventRecord(s->event[event], s->stream), err,
                      "recording an event");
}

static FtxStatus elapsed_us(Session *s, size_t from, size_t to, double *us, FtxError *err)
{
    float ms = 0;
    const FtxStatus status = cuda_check(
        s->device->cu, s->device->cu->cuEventElapsedTime(&ms, s->event[from], s->event[to]), err, "reading a time");

    *us = (double)ms * 1e3;
    return status;
}

static FtxStatus wait_for(Session *s, int programs, const char *what, const char *kernel, FtxError *err)
{
    char text[300];

    snprintf(text, sizeof text, "in %s (%s)", what, kernel);
    return cuda_wait_session(s, NULL, programs, err, text);
}

/* Adds the time between event `to` and the one before it to a row. */
static FtxStatus add_time(Session *s, FtxProfile *row, size_t to, FtxError *err)
{
    double us = 0;
    const FtxStatus status = elapsed_us(s, to - 1, to, &us, err);

    row->time_us += us;
    row->launches++;
    return status;
}

/* Adds the times between events to the rows of the kernels, and of the copies, between them. */
static FtxStatus add_times(Session *s, const FtxProgram *p, FtxError *err)
{
    const ArtifactPlan *plan = s->device->plan;
    size_t event = 0;
    FtxStatus status = wait_for(s, 1, "a profiled program", "all launches", err);

    for (uint32_t i = p->first_launch; i < p->first_launch + p->n_launches && !status; i++) {
        if (cuda_offload_copies(s->device, i))
            status = add_time(s, &s->profile_row[plan->n_kernels], ++event, err);
        if (!status)
            status = add_time(s, &s->profile_row[plan->launches[i].kernel], ++event, err);
    }
    return status;
}

static bool watched(const Session *s)
{
    return s->profiling || s->sync || s->nan || cuda_timeline_each(s);
}

/* The copies before a launch; while kernels are profiled, with an event behind them. */
static FtxStatus before_launch(Session *s, uint32_t launch, size_t *events, FtxError *err)
{
    const FtxStatus status = cuda_offload_copy(s, launch, err);

    return status || !s->profiling || !cuda_offload_copies(s->device, launch) ? status : record(s, (*events)++, err);
}

/* Waits and checks after a launch; T and S are the live ones. */
static FtxStatus after_launch(Session *s, uint32_t program, uint32_t launch, int T, int S, size_t *events,
                              FtxError *err)
{
    const Device *d = s->device;
    FtxStatus status = FTX_OK;

    if (s->profiling)
        status = record(s, (*events)++, err);
    if (!status && (s->sync || s->nan))
        status =
            wait_for(s, 1, cuda_launch_label(d, launch), cuda_kernel_name(d, d->plan->launches[launch].kernel), err);
    return status || !s->nan ? status : cuda_look_for_nan(s, program, launch, T, S, err);
}

/* One launch at a time; the grids are those of the bucket. */
static FtxStatus run_watched(Session *s, uint32_t program, int T, int S, FtxError *err)
{
    const FtxProgram *p = &s->device->plan->programs[program];
    const int grid_T = p->bucket ? (int)p->bucket : T;
    const int grid_S = p->bucket ? (int)cuda_most_rows(s->device, p, true) : S;
    size_t events = 0;
    FtxStatus status = size_grids(s, grid_T, grid_S, err);

    if (!status && s->profiling)
        status = need_events(s, p->n_launches * (cuda_staging_bytes(s->device) ? 2 : 1) + 1, err);
    if (!status && s->profiling)
        status = record(s, events++, err);
    for (uint32_t i = 0; i < p->n_launches && !status; i++) {
        const uint32_t launch = p->first_launch + i;

        status = before_launch(s, launch, &events, err);
        if (!status)
            status = launch_one(s, launch, i == 0 || s->profiling, grid_T, grid_S, err);
        if (!status)
            status = after_launch(s, program, launch, T, S, &events, err);
    }
    return status || !s->profiling ? status : add_times(s, p, err);
}

static FtxStatus enqueue(Session *s, uint32_t program, int T, int S, int times, FtxError *err)
{
    const CudaDriver *cu = s->device->cu;
    FtxStatus status = s->timeline ? cuda_timeline_run(s, program, T, S, times, err) : FTX_OK;

    if (status)
        return status;
    if (!watched(s) && !s->graph[program])
        return launch_part(s, &s->device->plan->programs[program], whole(&s->device->plan->programs[program], times), T,
                           S, err);
    for (int i = 0, n; i < times && !status; i += n) {
        n = !watched(s) && s->chain[program] && times - i >= FTX_CHAIN ? FTX_CHAIN : 1;
        if (watched(s))
            status = run_watched(s, program, T, S, err);
        else
            status = cuda_check(cu, cu->cuGraphLaunch(n > 1 ? s->chain[program] : s->graph[program], s->stream), err,
                                "launching a program");
        if (!status && s->timeline && !watched(s))
            status = cuda_timeline_graph(s, n > 1, err);
    }
    return status;
}

static FtxStatus check_run(const Session *s, uint32_t program, int T, int S, FtxError *err)
{
    const Device *d = s->device;

    if (program >= d->plan->n_programs)
        return ftx_fail(err, FTX_EINVAL, "no program %u", program);
    const FtxProgram *p = &d->plan->programs[program];
    if (T < 1 || S < 1 || T > cuda_most_rows(d, p, false) || S > cuda_most_rows(d, p, true))
        return ftx_fail(err, FTX_EINVAL, "%d tokens in %d rows do not fit a program for %lld and %lld", T, S,
                        (long long)cuda_most_rows(d, p, false), (long long)cuda_most_rows(d, p, true));
    return FTX_OK;
}

FtxStatus cuda_program_run(Session *s, uint32_t program, int T, int S, int times, FtxError *err)
{
    FtxStatus status = check_run(s, program, T, S, err);

    if (!status)
        status = cuda_session_peers(s, err);
    if (!status)
        status = cuda_enter(s->device, err);
    if (status)
        return status;
    status = enqueue(s, program, T, S, times, err);
    if (!status && s->timeline)
        status = cuda_timeline_tell(s, err);
    cuda_leave(s->device);
    return status;
}

/* One of the two parts. */
static FtxStatus enqueue_half(Session *s, uint32_t program, bool head, int T, int S, FtxError *err)
{
    const FtxProgram *p = &s->device->plan->programs[program];
    CUgraphExec graph = head ? s->head[program] : s->tail[program];
    uint32_t cut;

    if (graph)
        return cuda_check(s->device->cu, s->device->cu->cuGraphLaunch(graph, s->stream), err,
                          "launching a part of a program");
    cut = before_mask(s->device, p);
    return launch_part(s, p, head ? (Part){0, cut, 1} : (Part){cut, p->n_launches, 1}, T, S, err);
}

FtxStatus cuda_program_begin(Session *s, uint32_t program, int T, int S, FtxError *err)
{
    FtxStatus status = check_run(s, program, T, S, err);

    if (!status)
        status = cuda_enter(s->device, err);
    if (status)
        return status;
    s->begun = !watched(s) && !s->timeline;
    if (s->begun)
        status = enqueue_half(s, program, true, T, S, err);
    cuda_leave(s->device);
    return status;
}

FtxStatus cuda_program_finish(Session *s, uint32_t program, int T, int S, int first, int n, FtxError *err)
{
    FtxStatus status = check_run(s, program, T, S, err);

    if (!status)
        status = cuda_enter(s->device, err);
    if (status)
        return status;
    status = cuda_session_send_masks(s, first, n, err);
    if (!status && s->begun)
        status = enqueue_half(s, program, false, T, S, err);
    cuda_leave(s->device);
    return status || s->begun ? status : cuda_program_run(s, program, T, S, 1, err);
}

FtxStatus cuda_program_profile(Session *s, bool on, const FtxProfile **rows, size_t *n, FtxError *err)
{
    (void)err;
    s->profiling = on;
    *rows = s->profile_row;
    *n = s->device->plan->n_kernels + (cuda_staging_bytes(s->device) ? 1 : 0);
    return FTX_OK;
}

/* Enqueues runs with an event between two, as many as there are events. The time of a run is what it adds to the one
 * before. */
static FtxStatus time_some(Session *s, uint32_t program, int T, int S, size_t n, double *times, FtxError *err)
{
    FtxStatus status = need_events(s, n + 1, err);

    if (!status)
        status = record(s, 0, err);
    for (size_t i = 0; i < n && !status; i++) {
        status = enqueue(s, program, T, S, 1, err);
        if (!status)
            status = record(s, i + 1, err);
    }
    if (!status)
        status = wait_for(s, (int)n, "a timed program", "all launches", err);
    for (size_t i = 0; i < n && !status; i++)
        status = elapsed_us(s, i, i + 1, &times[i], err);
    return status ? status : cuda_session_peers(s, err);
}

static double profiled_us(const Session *s)
{
    double us = 0;

    for (uint32_t i = 0; i <= s->device->plan->n_kernels; i++) /* and copies */
        us += s->profile_row[i].time_us;
    return us;
}

/* While kernels are profiled, the time of a run is that of its launches, each by itself. */
static FtxStatus time_profiled(Session *s, uint32_t program, int T, int S, int repeat, double *times, FtxError *err)
{
    FtxStatus status = FTX_OK;

    for (int i = 0; i < repeat && !status; i++) {
        const double before = profiled_us(s);

        status = enqueue(s, program, T, S, 1, err);
        times[i] = profiled_us(s) - before;
    }
    return status ? status : cuda_session_peers(s, err);
}

FtxStatus cuda_program_time(Session *s, uint32_t program, int T, int S, int repeat, double *times, FtxError *err)
{
    FtxStatus status = check_run(s, program, T, S, err);

    if (!status)
        status = cuda_enter(s->device, err);
    if (status)
        return status;
    if (s->profiling)
        status = time_profiled(s, program, T, S, repeat, times, err);
    for (size_t done = 0, n; !s->profiling && done < (size_t)(repeat > 0 ? repeat : 0) && !status; done += n) {
        n = (size_t)repeat - done;
        n = n < s->max_events - 1 ? n : s->max_events - 1;
        status = time_some(s, program, T, S, n, times + done, err);
    }
    cuda_leave(s->device);
    return status;
}

/* --- algorithms of cuBLASLt ------------------------------------------------------------------------- */

/* Enqueues at most `most` launches of a kernel with one algorithm; *n: how many there are. */
static FtxStatus try_launches(Session *s, const FtxProgram *p, uint32_t kernel, const LtChoice *c, int64_t rows,
                              size_t most, size_t *n, FtxError *err)
{
    const ArtifactPlan *plan = s->device->plan;
    FtxStatus status = FTX_OK;

    *n = 0;
    for (uint32_t i = p->first_launch; i < p->first_launch + p->n_launches && *n < most && !status; i++) {
        if (plan->launches[i].kernel != kernel)
            continue;
        const LtPointers at = pointers_of(s, &plan->launches[i]);

        status = lt_try(s->device->matmul[i], c, rows, &at, s->workspace, s->stream, err);
        ++*n;
    }
    return status;
}

/* The time of a launch, the less of two series, after one launch that loads the algorithm. */
static FtxStatus time_choice(Session *s, const FtxProgram *p, uint32_t kernel, const LtChoice *c, int64_t rows,
                             double *us, FtxError *err)
{
    enum { SERIES = 2, FEW_ROWS = 512, MANY = 16, FEW = 4 };
    size_t n;
    FtxStatus status = FTX_OK;

    *us = 0;
    if (try_launches(s, p, kernel, c, rows, 1, &n, NULL))
        return wait_for(s, 1, "an algorithm of cuBLASLt", "one launch", err); /* it does not serve so many rows */
    for (int i = 0; i < SERIES && !status; i++) {
        double all = 0;

        status = record(s, 0, err);
        if (!status)
            status = try_launches(s, p, kernel, c, rows, rows <= FEW_ROWS ? MANY : FEW, &n, err);
        if (!status)
            status = record(s, 1, err);
        if (!status)
            status = wait_for(s, 1, "an algorithm of cuBLASLt", "all launches", err);
        if (!status)
            status = elapsed_us(s, 0, 1, &all, err);
        *us = i == 0 || all / (double)n < *us ? all / (double)n : *us;
    }
    return status;
}

static FtxStatus time_choices(Session *s, const FtxProgram *p, uint32_t kernel, int64_t rows, DeviceAlgorithm *out,
                              size_t most, size_t *n, FtxError *err)
{
    enum { MOST = 8 };
    LtChoice choice[MOST];
    uint32_t launch = p->first_launch;
    FtxStatus status = need_events(s, 2, err);

    while (launch < p->first_launch + p->n_launches && s->device->plan->launches[launch].kernel != kernel)
        launch++;
    if (launch == p->first_launch + p->n_launches || !s->device->matmul[launch])
        return ftx_fail(err, FTX_EINVAL, "the program has no matrix product of kernel %u", kernel);
    if (!status)
        status = lt_list(s->device->matmul[launch], rows, choice, most < MOST ? most : MOST, n, err);
    for (size_t i = 0; i < *n && !status; i++) {
        memcpy(out[i].attribute, choice[i].attribute, sizeof out->attribute);
        status = time_choice(s, p, kernel, &choice[i], rows, &out[i].us, err);
    }
    return status;
}

FtxStatus device_cuda_algorithms(Session *s, uint32_t program, uint32_t kernel, int64_t rows, DeviceAlgorithm *out,
                                 size_t most, size_t *n, FtxError *err)
{
    FtxStatus status = check_run(s, program, 1, 1, err);

    *n = 0;
    if (!status)
        status = cuda_enter(s->device, err);
    if (status)
        return status;
    status = time_choices(s, &s->device->plan->programs[program], kernel, rows, out, most, n, err);
    cuda_leave(s->device);
    return status;
}
#endif
