/* fake_streams.c - streams, events, graphs and launches of the fake driver. */
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "fake_parts.h"

typedef struct FakeGraph {
    FakeLaunch *at;
    size_t n;
} FakeGraph;

struct CUstream_st {
    FakeGraph *recording; /* NULL: launches run */
    bool has_launches;
};

struct CUevent_st {
    CUstream stream;      /* NULL: it was never recorded */
    unsigned long number; /* of the first work after it */
    double clock_ms;      /* fake.clock_ms when it was recorded */
};

/* --- work ----------------------------------------------------------------------------------------- */

typedef enum WorkKind { COPY, CLEAR, LAUNCH, FOLLOW } WorkKind;

typedef struct Work {
    CUstream stream;
    unsigned long number; /* in the order of all calls */
    WorkKind kind;
    bool done;
    int way;        /* of CUpti_ActivityMemcpyKind */
    CUstream other; /* FOLLOW: what that stream holds before `until` comes first */
    unsigned long until;
    void *to;
    const void *from;
    unsigned char value;
    size_t bytes;
    FakeLaunch launch;
    const char *name; /* of the kernel */
} Work;

/* What was enqueued and is not done; empty unless fake.late. */
static Work *waiting;
static size_t n_waiting;
static unsigned long issued;

static void finish(CUstream s, unsigned long number);

static void do_work(const Work *w)
{
    switch (w->kind) {
    case COPY:
        memcpy(w->to, w->from, w->bytes);
        fake.copied++;
        fake_cupti_copy(w->stream, w->way, w->bytes);
        break;
    case CLEAR:
        memset(w->to, w->value, w->bytes);
        fake_cupti_clear(w->stream, w->bytes);
        break;
    case LAUNCH:
        if (fake.execute)
            fake.execute(&w->launch);
        fake_cupti_kernel(w->stream, w->name);
        if (fake.split && strcmp(w->name, "lt") == 0)
            fake_cupti_kernel(w->stream, "splitKreduce_kernel");
        break;
    case FOLLOW: finish(w->other, w->until); break;
    }
}

static void enqueue(Work w)
{
    w.number = issued++;
    if (!fake.late) {
        do_work(&w);
        return;
    }
    waiting = realloc(waiting, (n_waiting + 1) * sizeof *waiting);
    waiting[n_waiting++] = w;
}

/* Does the work of a stream that came before `number`; NULL: of all. */
static void finish(CUstream s, unsigned long number)
{
    static int depth;
    size_t left = 0;

    depth++;
    for (size_t i = 0; i < n_waiting; i++)
        if (!waiting[i].done && (!s || waiting[i].stream == s) && waiting[i].number < number) {
            waiting[i].done = true;
            do_work(&waiting[i]);
        }
    for (size_t i = 0; i < n_waiting && depth == 1; i++)
        if (!waiting[i].done)
            waiting[left++] = waiting[i];
    n_waiting = --depth ? n_waiting : left;
}

bool fake_in_flight(const void *p, size_t bytes)
{
    const char *at = p;

    for (size_t i = 0; i < n_waiting; i++) {
        const char *to = waiting[i].to, *from = waiting[i].from;

        if ((to >= at && to < at + bytes) || (from >= at && from < at + bytes))
            return true;
    }
    return false;
}

void fake_forget_work(void)
{
    free(waiting);
    waiting = NULL;
    n_waiting = 0;
}

/* Whether the work before `number` is done. A device that hangs is never ready; after an error it runs nothing more. */
static CUresult ask(CUstream s, unsigned long number, const char *function)
{
    fake.asked++;
    if (fake_fails(function)) {
        fake_forget_work();
        return fake_error();
    }
    if (fake.hang_at && fake.calls >= fake.hang_at && (!fake.only_kernels || s->has_launches))
        return CUDA_ERROR_NOT_READY;
    finish(s, number);
    return CUDA_SUCCESS;
}

static void copy_from_host(CUdeviceptr d, const void *p, size_t bytes, CUstream s)
{
    fake.from_host++;
    enqueue((Work){.stream = s, .kind = COPY, .way = 1, .to = (void *)(uintptr_t)d, .from = p, .bytes = bytes});
}

static void add_to_graph(FakeGraph *g, const FakeLaunch *l)
{
    g->at = realloc(g->at, (g->n + 1) * sizeof *g->at);
    g->at[g->n++] = *l;
}

static const char copy_node[] = "copy"; /* of a graph: a launch with the parameters to, from, bytes */

static CUresult fake_MemcpyHtoDAsync(CUdeviceptr d, const void *p, size_t bytes, CUstream s)
{
    fake_need_context();
    MAY_FAIL;
    if (!fake_holds(d, bytes) || !fake_holds((CUdeviceptr)(uintptr_t)p, bytes))
        abort(); /* outside of memory, or from memory that is not pinned */
    if (s->recording) {
        FakeLaunch node = {.n_params = 3, .param = {d, (CUdeviceptr)(uintptr_t)p, bytes}};

        strcpy(node.kernel, copy_node);
        add_to_graph(s->recording, &node);
    } else {
        copy_from_host(d, p, bytes, s);
    }
    return CUDA_SUCCESS;
}

static CUresult fake_MemcpyDtoHAsync(void *p, CUdeviceptr d, size_t bytes, CUstream s)
{
    fake_need_context();
    MAY_FAIL;
    if (!fake_holds(d, bytes) || !fake_holds((CUdeviceptr)(uintptr_t)p, bytes))
        abort(); /* outside of memory, or to memory that is not pinned */
    fake.to_host++;
    enqueue((Work){.stream = s, .kind = COPY, .way = 2, .to = p, .from = (const void *)(uintptr_t)d, .bytes = bytes});
    return CUDA_SUCCESS;
}

static CUresult fake_MemcpyDtoDAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream s)
{
    fake_need_context();
    MAY_FAIL;
    if (!fake_holds(to, bytes) || !fake_holds(from, bytes) || !fake_is_device(to) || !fake_is_device(from))
        abort();
    fake.on_device++;
    enqueue((Work){.stream = s,
                   .kind = COPY,
                   .way = 8,
                   .to = (void *)(uintptr_t)to,
                   .from = (void *)(uintptr_t)from,
                   .bytes = bytes});
    return CUDA_SUCCESS;
}

static CUresult fake_MemsetD8Async(CUdeviceptr d, unsigned char v, size_t bytes, CUstream s)
{
    fake_need_context();
    MAY_FAIL;
    if (!fake_holds(d, bytes))
        abort();
    enqueue((Work){.stream = s, .kind = CLEAR, .to = (void *)(uintptr_t)d, .value = v, .bytes = bytes});
    return CUDA_SUCCESS;
}

/* --- streams and events --------------------------------------------------------------------------- */

static CUresult fake_StreamCreate(CUstream *s, unsigned flags)
{
    (void)flags;
    fake_need_context();
    MAY_FAIL;
    *s = fake_keep(calloc(1, sizeof **s), free, &fake.streams);
    return CUDA_SUCCESS;
}

static CUresult fake_StreamDestroy(CUstream s)
{
    if (s->recording)
        abort();
    fake_drop(s);
    return RESULT;
}

static CUresult fake_StreamQuery(CUstream s)
{
    fake_need_context();
    if (s->recording)
        abort();
    return ask(s, issued, __func__);
}

static CUresult fake_StreamBeginCapture(CUstream s, CUstreamCaptureMode mode)
{
    (void)mode;
    MAY_FAIL;
    s->recording = calloc(1, sizeof *s->recording);
    return CUDA_SUCCESS;
}

static void free_graph(void *p)
{
    FakeGraph *g = p;

    free(g->at);
    free(g);
}

static CUresult fake_StreamEndCapture(CUstream s, CUgraph *g)
{
    FakeGraph *recorded = s->recording;

    s->recording = NULL;
    if (fake_fails(__func__)) {
        free(recorded->at);
        free(recorded);
        return fake_error();
    }
    *g = fake_keep(recorded, free_graph, &fake.graphs);
    return CUDA_SUCCESS;
}

static CUresult fake_EventCreate(CUevent *e, unsigned flags)
{
    (void)flags;
    fake_need_context();
    MAY_FAIL;
    *e = fake_keep(calloc(1, sizeof **e), free, &fake.events);
    return CUDA_SUCCESS;
}

static CUresult fake_EventDestroy(CUevent e)
{
    fake_drop(e);
    return RESULT;
}

static CUresult fake_EventRecord(CUevent e, CUstream s)
{
    MAY_FAIL;
    *e = (struct CUevent_st){.stream = s, .number = issued, .clock_ms = fake.clock_ms};
    return CUDA_SUCCESS;
}

static CUresult fake_EventQuery(CUevent e)
{
    return ask(e->stream, e->number, __func__);
}

static CUresult fake_StreamWaitEvent(CUstream s, CUevent e, unsigned flags)
{
    (void)flags;
    fake_need_context();
    MAY_FAIL;
    enqueue((Work){.stream = s, .kind = FOLLOW, .other = e->stream, .until = e->number});
    return CUDA_SUCCESS;
}

static CUresult fake_CtxSynchronize(void)
{
    fake_need_context();
    MAY_FAIL;
    finish(NULL, issued);
    return CUDA_SUCCESS;
}

static CUresult fake_EventElapsedTime(float *ms, CUevent a, CUevent b)
{
    MAY_FAIL;
    if (!a->stream || !b->stream)
        return CUDA_ERROR_INVALID_HANDLE;
    *ms = (float)(0.25 + b->clock_ms - a->clock_ms);
    return CUDA_SUCCESS;
}

/* --- launches and graphs -------------------------------------------------------------------------- */

void fake_record(CUstream s, const FakeLaunch *l)
{
    if (s->recording) {
        add_to_graph(s->recording, l);
        return;
    }
    static pthread_mutex_t one = PTHREAD_MUTEX_INITIALIZER; /* ranks launch at the same time */
    const char *name = "more than are kept";

    pthread_mutex_lock(&one);
    s->has_launches = true;
    if (fake.n_run < sizeof fake.run / sizeof *fake.run) {
        name = fake.run[fake.n_run].kernel;
        fake.run[fake.n_run++] = *l;
    }
    enqueue((Work){.stream = s, .kind = LAUNCH, .launch = *l, .name = name});
    pthread_mutex_unlock(&one);
}

static CUresult fake_LaunchKernelEx(const CUlaunchConfig *c, CUfunction f, void **params, void **extra)
{
    FakeLaunch l = {.grid = {c->gridDimX, c->gridDimY, c->gridDimZ},
                    .block = c->blockDimX,
                    .smem = c->sharedMemBytes,
                    .n_params = f->n_params};

    (void)extra;
    fake_need_context();
    MAY_FAIL;
    if (l.n_params > FAKE_MAX_PARAMS)
        abort();
    if (!l.grid[0] || !l.grid[1] || !l.grid[2] || l.grid[1] > 65535 || l.grid[2] > 65535 || !l.block)
        return CUDA_ERROR_INVALID_VALUE;
    strcpy(l.kernel, f->name);
    for (unsigned i = 0; i < c->numAttrs; i++)
        l.overlap |= c->attrs[i].id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION &&
                     c->attrs[i].value.programmaticStreamSerializationAllowed;
    memcpy(l.param, params[0], l.n_params * sizeof(CUdeviceptr));
    fake_record(c->hStream, &l);
    return CUDA_SUCCESS;
}

static CUresult fake_GraphInstantiate(CUgraphExec *e, CUgraph g, unsigned long long flags)
{
    const FakeGraph *from = (const FakeGraph *)(const void *)g;
    FakeGraph *to;

    (void)flags;
    MAY_FAIL;
    to = calloc(1, sizeof *to);
    to->at = malloc((from->n + 1) * sizeof *to->at);
    if (from->n)
        memcpy(to->at, from->at, from->n * sizeof *to->at);
    to->n = from->n;
    *e = fake_keep(to, free_graph, &fake.execs);
    return CUDA_SUCCESS;
}

static CUresult fake_GraphUpload(CUgraphExec e, CUstream s)
{
    (void)e, (void)s;
    MAY_FAIL;
    return CUDA_SUCCESS;
}

static CUresult fake_GraphLaunch(CUgraphExec e, CUstream s)
{
    const FakeGraph *g = (const FakeGraph *)(const void *)e;

    fake_need_context();
    MAY_FAIL;
    for (size_t i = 0; i < g->n; i++) {
        FakeLaunch l = g->at[i];

        l.in_graph = true;
        if (strcmp(l.kernel, copy_node) == 0)
            copy_from_host(l.param[0], (const void *)(uintptr_t)l.param[1], l.param[2], s);
        else
            fake_record(s, &l);
    }
    return CUDA_SUCCESS;
}

static CUresult fake_GraphExecDestroy(CUgraphExec e)
{
    fake_drop(e);
    return RESULT;
}

static CUresult fake_GraphDestroy(CUgraph g)
{
    fake_drop(g);
    return RESULT;
}

void fake_add_streams(CudaDriver *t)
{
    t->cuMemcpyHtoDAsync = fake_MemcpyHtoDAsync;
    t->cuMemsetD8Async = fake_MemsetD8Async;
    t->cuMemcpyDtoDAsync = fake_MemcpyDtoDAsync;
    t->cuMemcpyDtoHAsync = fake_MemcpyDtoHAsync;
    t->cuStreamWaitEvent = fake_StreamWaitEvent;
    t->cuCtxSynchronize = fake_CtxSynchronize;
    t->cuStreamCreate = fake_StreamCreate;
    t->cuStreamDestroy = fake_StreamDestroy;
    t->cuStreamQuery = fake_StreamQuery;
    t->cuStreamBeginCapture = fake_StreamBeginCapture;
    t->cuStreamEndCapture = fake_StreamEndCapture;
    t->cuEventCreate = fake_EventCreate;
    t->cuEventDestroy = fake_EventDestroy;
    t->cuEventRecord = fake_EventRecord;
    t->cuEventQuery = fake_EventQuery;
    t->cuEventElapsedTime = fake_EventElapsedTime;
    t->cuLaunchKernelEx = fake_LaunchKernelEx;
    t->cuGraphInstantiate = fake_GraphInstantiate;
    t->cuGraphUpload = fake_GraphUpload;
    t->cuGraphLaunch = fake_GraphLaunch;
    t->cuGraphExecDestroy = fake_GraphExecDestroy;
    t->cuGraphDestroy = fake_GraphDestroy;
}
