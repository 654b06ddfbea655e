/* timeline.c - a session's kernels and copies in a Trace: by CUPTI, else by CUDA events.
 *
 * CUPTI gives the kernels of a stream with their names, in order. The launches that were enqueued are known, in order,
 * too. So a record belongs to the next launch of a kernel of that name; names that are not ours are of cuBLASLt, and
 * belong to the next matrix product.
 *
 * Without CUPTI an event is recorded after each launch, or after each graph, which is one launch to the stream. */
#include "device_cuda.h"

#ifdef FTX_HAVE_CUDA
#include <stdio.h>
#include <string.h>

#include "activity.h"
#include "../trace.h"

enum {
    RUNS = 4096,
    EVENTS = 256,
    LOOK = 4096,       /* launches among which that of a record is looked for: more than a program has */
    TOLD_ROWS = 65536, /* records of one run, if nothing is kept */
};

typedef struct Run { /* a call of DeviceApi.run or .time */
    uint32_t program, number;
    int T, S, times;
} Run;

typedef struct Place {
    size_t run;
    int time;
    uint32_t launch; /* of the program */
} Place;

struct Timeline {
    Memory memory;
    Trace *to;
    Run now;                /* what is being enqueued */
    Activities *activities; /* NULL: by events */
    Run run[RUNS];          /* by CUPTI: those whose records have not been read */
    size_t n_runs;

    /* Event 0 has passed at `time`; mark i is what ran between the events i - 1 and i. */
    int64_t time;
    CUevent event[EVENTS];
    TraceEvent mark[EVENTS]; /* name NULL: the stream was idle, or did something else */
    int n_events, n_marks;
};

/* --- by CUPTI ------------------------------------------------------------------------------------- */

static const FtxProgram *program_at(const Session *s, const Place *p)
{
    return &s->device->plan->programs[s->timeline->run[p->run].program];
}

static uint32_t launch_at(const Session *s, const Place *p)
{
    return program_at(s, p)->first_launch + p->launch;
}

static void advance(const Session *s, Place *p)
{
    if (++p->launch < program_at(s, p)->n_launches)
        return;
    p->launch = 0;
    if (++p->time < s->timeline->run[p->run].times)
        return;
    p->time = 0;
    p->run++;
}

static bool is_matmul(const Session *s, const Place *p)
{
    return p->run < s->timeline->n_runs && s->device->matmul[launch_at(s, p)];
}

/* Moves to the next launch of the kernel of this name. False: there is none near. */
static bool find_kernel(const Session *s, const char *name, Place *at)
{
    const Device *d = s->device;
    Place p = *at;

    for (int i = 0; i < LOOK && p.run < s->timeline->n_runs; i++, advance(s, &p)) {
        const uint32_t launch = launch_at(s, &p);

        if (!d->matmul[launch] && strcmp(cuda_kernel_name(d, d->plan->launches[launch].kernel), name) == 0) {
            *at = p;
            return true;
        }
    }
    return false;
}

/* A kernel of the launch at p. */
static TraceEvent of_launch(const Session *s, const Place *p, const char *kernel)
{
    const Run *r = &s->timeline->run[p->run];

    return (TraceEvent){.name = cuda_launch_label(s->device, launch_at(s, p)),
                        .kernel = kernel,
                        .run = r->number,
                        .T = r->T,
                        .S = r->S};
}

/* Names a kernel. *at: the first launch that no record before it belongs to; *last: that of the record before it. */
static TraceEvent name_kernel(const Session *s, const char *kernel, Place *at, Place *last)
{
    const bool second = strstr(kernel, "splitK") && is_matmul(s, last); /* it adds what the first one has split */

    if (!second && (find_kernel(s, kernel, at) || is_matmul(s, at))) {
        *last = *at;
        advance(s, at);
        return of_launch(s, last, kernel);
    }
    return is_matmul(s, last) ? of_launch(s, last, kernel) : (TraceEvent){.name = kernel, .kernel = kernel};
}

static FtxStatus collect_activities(Session *s, FtxError *err)
{
    Timeline *t = s->timeline;
    Place at = {0}, last = {.run = t->n_runs};
    const Activity *row;
    uint64_t dropped;
    size_t n;
    const FtxStatus status = activity_take(t->activities, &row, &n, &dropped, err);

    for (size_t i = 0; i < n; i++) {
        TraceEvent e = {.name = row[i].name, .bytes = row[i].bytes};

        if (!row[i].bytes)
            e = name_kernel(s, row[i].name, &at, &last);
        e.from = row[i].from;
        e.to = row[i].to;
        e.track = TRACE_DEVICE;
        trace_add(t->to, e);
    }
    t->to->dropped += dropped;
    t->n_runs = 0;
    return status;
}

/* --- by events ------------------------------------------------------------------------------------ */

static FtxStatus collect_marks(Session *s, FtxError *err)
{
    const CudaDriver *cu = s->device->cu;
    Timeline *t = s->timeline;
    FtxStatus status = FTX_OK;

    for (int i = 1; i < t->n_marks && !status; i++) {
        float ms = 0.0f;

        status = cuda_check(cu, cu->cuEventElapsedTime(&ms, t->event[i - 1], t->event[i]), err, "reading a time");
        t->mark[i].from = t->time;
        t->time += (int64_t)((double)ms * 1e6);
        t->mark[i].to = t->time;
        if (!status && t->mark[i].name)
            trace_add(t->to, t->mark[i]);
    }
    if (t->n_marks > 1) { /* the last event is the first of the next ones */
        CUevent first = t->event[0];

        t->event[0] = t->event[t->n_marks - 1];
        t->event[t->n_marks - 1] = first;
        t->n_marks = 1;
    }
    return status;
}

static FtxStatus open_events(Session *s, FtxError *err)
{
    const CudaDriver *cu = s->device->cu;
    Timeline *t = s->timeline;
    FtxStatus status = FTX_OK;

    while (t->n_events < EVENTS && !status) {
        status = cuda_check(cu, cu->cuEventCreate(&t->event[t->n_events], CU_EVENT_DEFAULT), err, "an event");
        t->n_events += !status;
    }
    if (!status)
        status = cuda_check(cu, cu->cuEventRecord(t->event[0], s->stream), err, "recording an event");
    if (!status)
        status = cuda_wait_stream(s->device, s->stream, 1, err, "starting a trace");
    t->time = trace_now();
    t->n_marks = 1;
    return status;
}

/* --- both ----------------------------------------------------------------------------------------- */

static FtxStatus collect(Session *s, FtxError *err)
{
    const FtxStatus status = cuda_wait_stream(s->device, s->stream, EVENTS, err, "waiting for what is traced");

    return status ? status : s->timeline->activities ? collect_activities(s, err) : collect_marks(s, err);
}

static FtxStatus mark(Session *s, TraceEvent e, FtxError *err)
{
    const CudaDriver *cu = s->device->cu;
    Timeline *t = s->timeline;
    FtxStatus status = t->n_marks == EVENTS ? collect(s, err) : FTX_OK;

    if (status)
        return status;
    e.track = TRACE_DEVICE;
    t->mark[t->n_marks] = e;
    return cuda_check(cu, cu->cuEventRecord(t->event[t->n_marks++], s->stream), err, "recording an event");
}

bool cuda_timeline_by_events(const Session *s)
{
    return s->timeline && !s->timeline->activities;
}

bool cuda_timeline_each(const Session *s)
{
    return cuda_timeline_by_events(s) && s->timeline->to->log;
}

FtxStatus cuda_timeline_run(Session *s, uint32_t program, int T, int S, int times, FtxError *err)
{
    Timeline *t = s->timeline;
    FtxStatus status = t->n_runs == RUNS ? collect(s, err) : FTX_OK;

    t->now = (Run){program, t->to->runs, T, S, times};
    if (status || !t->activities)
        return status ? status : mark(s, (TraceEvent){0}, err);
    if (s->device->plan->programs[program].n_launches)
        t->run[t->n_runs++] = t->now;
    return FTX_OK;
}

FtxStatus cuda_timeline_launch(Session *s, uint32_t launch, FtxError *err)
{
    const Device *d = s->device;
    const Run *r = &s->timeline->now;
    const TraceEvent e = {.name = cuda_launch_label(d, launch),
                          .kernel = cuda_kernel_name(d, d->plan->launches[launch].kernel),
                          .run = r->number,
                          .T = r->T,
                          .S = r->S};

    return s->timeline->activities ? FTX_OK : mark(s, e, err);
}

FtxStatus cuda_timeline_copy(Session *s, uint64_t bytes, FtxError *err)
{
    const TraceEvent e = {.name = "weights from the host", .run = s->timeline->now.number, .bytes = bytes};

    return s->timeline->activities ? FTX_OK : mark(s, e, err);
}

FtxStatus cuda_timeline_graph(Session *s, bool chain, FtxError *err)
{
    _Static_assert(FTX_CHAIN == 5, "it is in a name");
    static const char *const names[][2] = {{"program", "program"},
                                           [FTX_PROG_STEP] = {"program step", "program step"},
                                           [FTX_PROG_DECODE] = {"program decode", "program decode, 5 times"},
                                           [FTX_PROG_ENCODE] = {"program encode", "program encode"},
                                           [FTX_PROG_HIDDEN] = {"program hidden", "program hidden"}};
    const Run *r = &s->timeline->now;
    const uint32_t kind = s->device->plan->programs[r->program].kind;
    const TraceEvent e = {
        .name = names[kind <= FTX_PROG_HIDDEN ? kind : 0][chain], .run = r->number, .T = r->T, .S = r->S};

    return s->timeline->activities ? FTX_OK : mark(s, e, err);
}

FtxStatus cuda_timeline_tell(Session *s, FtxError *err)
{
    return s->timeline->to->log ? collect(s, err) : FTX_OK;
}

/* entered: the context is current. Events go with it at the latest. */
static void close_timeline(Session *s, bool entered)
{
    Timeline *t = s->timeline;
    const Memory m = t->memory;

    activity_close(t->activities);
    for (int i = 0; i < t->n_events && entered && !s->device->lost; i++)
        s->device->cu->cuEventDestroy(t->event[i]);
    s->timeline = NULL;
    memory_free(&m, t, sizeof *t);
}

static FtxStatus open_timeline(Session *s, Trace *to, FtxError *err)
{
    const Device *d = s->device;
    Timeline *t = memory_alloc(&d->memory, sizeof *t, 64);
    FtxError why;
    FtxStatus status;

    if (!t)
        return memory_fail(err, "a trace", sizeof *t);
    t->memory = d->memory;
    t->to = to;
    s->timeline = t;
    status = activity_open(&d->memory, d->context, s->stream, to->room ? to->room : TOLD_ROWS, &t->activities, &why);
    if (status == FTX_ENOMEM) {
        status = ftx_fail(err, status, "%s", why.text);
    } else if (status) {
        status = open_events(s, err);
        snprintf(to->note, sizeof to->note, "CUDA events, of a program that is a graph only the whole: %.300s",
                 why.text);
    } else {
        snprintf(to->note, sizeof to->note, "CUPTI");
    }
    if (status)
        close_timeline(s, true);
    return status;
}

FtxStatus cuda_timeline(Session *s, Trace *to, FtxError *err)
{
    const FtxStatus entered = cuda_enter(s->device, err);
    FtxStatus status = entered;

    if (!status)
        status = to ? open_timeline(s, to, err) : collect(s, err);
    if (!to)
        close_timeline(s, !entered);
    if (!entered)
        cuda_leave(s->device);
    return status;
}
#endif
