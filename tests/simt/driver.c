/* driver.c - a CUDA driver whose launches run on the host, one after another.
 *
 * Device memory comes from the harness. The first allocation holds the weights; only the kernels `random` and `random_codes`, which
 * fills them, may write there. A launch without the attribute for programmatic dependent launch starts a chain.
 * A launch with it belongs to the chain: before its wait it must not touch what earlier launches of the chain use. */
#include "driver.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/device/cuda/driver.h"

#ifdef FTX_HAVE_CUDA

DriverCounts driver_counts;

static const Build *build;
static int multiprocessors;
static void *weights;
static size_t weights_bytes;
static bool weights_protected;

typedef struct Recorded {
    const SimtKernel *kernel;
    unsigned grid[3], block, smem;
    bool overlap;
    _Alignas(16) char args[512];
} Recorded;

typedef struct List {
    Recorded *at;
    size_t n, cap;
} List;

struct CUstream_st {
    List *recording;
};
struct CUfunc_st {
    const SimtKernel *kernel;
};
struct CUmod_st {
    struct CUfunc_st function;
    char entry[256];
};

/* --- launches ----------------------------------------------------------------------------------- */

/* Runs one launch. The schedule changes from launch to launch. */
static CUresult run(const Recorded *r, bool first)
{
    const SimtLaunch l = {.kernel = r->kernel,
                          .args = r->args,
                          .grid = {r->grid[0], r->grid[1], r->grid[2]},
                          .block = r->block,
                          .smem = r->smem,
                          .overlap = r->overlap && !first};

    if (!weights_protected && weights && strncmp(r->kernel->name, "random_", 7) != 0) {
        simt_protect(weights, weights_bytes);
        weights_protected = true;
    }
    simt_schedule((SimtSchedule)(driver_counts.launches % SIMT_SCHEDULES), driver_counts.launches + 1);
    driver_counts.launches++;
    driver_counts.overlapping += l.overlap;
    if (simt_launch(&l))
        return CUDA_SUCCESS;
    driver_counts.failed++;
    for (size_t i = 0; i < simt_reports(); i++)
        fprintf(stderr, "%s\n", simt_report(i)->text);
    simt_clear();
    return CUDA_ERROR_LAUNCH_FAILED;
}

static CUresult host_LaunchKernelEx(const CUlaunchConfig *c, CUfunction f, void **params, void **extra)
{
    Recorded r = {.kernel = f->kernel,
                  .grid = {c->gridDimX, c->gridDimY, c->gridDimZ},
                  .block = c->blockDimX,
                  .smem = c->sharedMemBytes};
    List *g = c->hStream->recording;

    (void)extra;
    for (unsigned i = 0; i < c->numAttrs; i++)
        r.overlap |= c->attrs[i].id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION &&
                     c->attrs[i].value.programmaticStreamSerializationAllowed;
    if (f->kernel->args_bytes > sizeof r.args)
        abort();
    memcpy(r.args, params[0], f->kernel->args_bytes);
    if (!g)
        return run(&r, false);
    if (g->n == g->cap) {
        g->cap = g->cap ? g->cap * 2 : 64;
        g->at = realloc(g->at, g->cap * sizeof *g->at);
        if (!g->at)
            abort();
    }
    g->at[g->n++] = r;
    return CUDA_SUCCESS;
}

static CUresult host_GraphLaunch(CUgraphExec e, CUstream s)
{
    const List *g = (const List *)(const void *)e;
    CUresult result = CUDA_SUCCESS;

    (void)s;
    driver_counts.graphs++;
    for (size_t i = 0; i < g->n && result == CUDA_SUCCESS; i++)
        result = run(&g->at[i], i == 0);
    return result;
}

/* --- allocations, streams, graphs, events ------------------------------------------------------- */

static void *opened(size_t bytes)
{
    void *p = calloc(1, bytes);

    if (!p)
        abort();
    driver_counts.open++;
    return p;
}

static CUresult closed(void *p)
{
    driver_counts.open--;
    free(p);
    return CUDA_SUCCESS;
}

static CUresult host_MemAlloc(CUdeviceptr *p, size_t bytes)
{
    void *at = simt_alloc(bytes, weights ? "engine" : "weights");

    if (!weights) {
        weights = at;
        weights_bytes = bytes;
    }
    driver_counts.open++;
    *p = (CUdeviceptr)(uintptr_t)at;
    return CUDA_SUCCESS;
}

static CUresult host_MemFree(CUdeviceptr p)
{
    void *at = (void *)(uintptr_t)p;

    if (at == weights) {
        weights = NULL;
        weights_protected = false;
    }
    simt_free(at);
    driver_counts.open--;
    return CUDA_SUCCESS;
}

/* Pinned memory. The host writes it with plain stores, which the harness does not see, so all of it counts as
 * written. */
static CUresult host_MemHostAlloc(void **p, size_t bytes, unsigned flags)
{
    (void)flags;
    *p = simt_alloc(bytes, "pinned");
    simt_fill(*p, 0xAA, bytes);
    driver_counts.open++;
    return CUDA_SUCCESS;
}

static CUresult host_MemFreeHost(void *p)
{
    simt_free(p);
    driver_counts.open--;
    return CUDA_SUCCESS;
}

static CUresult host_MemHostGetDevicePointer(CUdeviceptr *d, void *p, unsigned flags)
{
    (void)flags;
    *d = (CUdeviceptr)(uintptr_t)p;
    return CUDA_SUCCESS;
}

static CUresult host_MemcpyHtoDAsync(CUdeviceptr d, const void *p, size_t bytes, CUstream s)
{
    (void)s;
    simt_write((void *)(uintptr_t)d, p, bytes);
    return CUDA_SUCCESS;
}

static CUresult host_MemcpyDtoH(void *p, CUdeviceptr d, size_t bytes)
{
    if (!simt_holds((const void *)(uintptr_t)d, bytes))
        abort();
    memcpy(p, (const void *)(uintptr_t)d, bytes);
    return CUDA_SUCCESS;
}

static CUresult host_MemsetD8Async(CUdeviceptr d, unsigned char v, size_t bytes, CUstream s)
{
    (void)s;
    simt_fill((void *)(uintptr_t)d, v, bytes);
    return CUDA_SUCCESS;
}

/* The harness keeps a SimtMap in the bytes of the CUtensorMap. */
static CUresult host_TensorMapEncodeTiled(CUtensorMap *map, CUtensorMapDataType type, cuuint32_t rank, void *matrix,
                                          const cuuint64_t *size, const cuuint64_t *stride, const cuuint32_t *tile,
                                          const cuuint32_t *every, CUtensorMapInterleave interleave,
                                          CUtensorMapSwizzle swizzle, CUtensorMapL2promotion promotion,
                                          CUtensorMapFloatOOBfill fill)
{
    const SimtMap m = {matrix, (unsigned)size[1], (unsigned)size[0], tile[1]};

    (void)type, (void)interleave, (void)promotion, (void)fill, (void)every;
    if (rank != 2 || tile[0] != 64 || swizzle != CU_TENSOR_MAP_SWIZZLE_128B || stride[0] != 2 * size[0] ||
        (uintptr_t)matrix % 16)
        return CUDA_ERROR_INVALID_VALUE;
    memset(map, 0, sizeof *map);
    memcpy(map, &m, sizeof m);
    return CUDA_SUCCESS;
}

static CUresult host_StreamCreate(CUstream *s, unsigned flags)
{
    (void)flags;
    *s = opened(sizeof **s);
    return CUDA_SUCCESS;
}
static CUresult host_StreamDestroy(CUstream s)
{
    return closed(s);
}
static CUresult host_StreamQuery(CUstream s)
{
    (void)s;
    return CUDA_SUCCESS;
}
/* Work is done when it is enqueued. */
static CUresult host_StreamWaitEvent(CUstream s, CUevent e, unsigned flags)
{
    (void)s, (void)e, (void)flags;
    return CUDA_SUCCESS;
}
static CUresult host_StreamBeginCapture(CUstream s, CUstreamCaptureMode mode)
{
    (void)mode;
    s->recording = opened(sizeof *s->recording);
    return CUDA_SUCCESS;
}
static CUresult host_StreamEndCapture(CUstream s, CUgraph *g)
{
    *g = (CUgraph)(void *)s->recording;
    s->recording = NULL;
    return CUDA_SUCCESS;
}
static CUresult host_GraphInstantiate(CUgraphExec *e, CUgraph g, unsigned long long flags)
{
    const List *from = (const List *)(const void *)g;
    List *to = opened(sizeof *to);

    (void)flags;
    to->at = malloc((from->n + 1) * sizeof *to->at);
    if (!to->at)
        abort();
    if (from->n)
        memcpy(to->at, from->at, from->n * sizeof *to->at);
    to->n = from->n;
    *e = (CUgraphExec)(void *)to;
    return CUDA_SUCCESS;
}
static CUresult host_GraphUpload(CUgraphExec e, CUstream s)
{
    (void)e, (void)s;
    return CUDA_SUCCESS;
}
static CUresult close_list(List *g)
{
    free(g->at);
    return closed(g);
}
static CUresult host_GraphExecDestroy(CUgraphExec e)
{
    return close_list((List *)(void *)e);
}
static CUresult host_GraphDestroy(CUgraph g)
{
    return close_list((List *)(void *)g);
}
static CUresult host_EventCreate(CUevent *e, unsigned flags)
{
    (void)flags;
    *e = opened(1);
    return CUDA_SUCCESS;
}
static CUresult host_EventDestroy(CUevent e)
{
    return closed(e);
}
static CUresult host_EventRecord(CUevent e, CUstream s)
{
    (void)e, (void)s;
    return CUDA_SUCCESS;
}
static CUresult host_EventQuery(CUevent e)
{
    (void)e;
    return CUDA_SUCCESS;
}
static CUresult host_EventElapsedTime(float *ms, CUevent a, CUevent b)
{
    (void)a, (void)b;
    *ms = 1.0f;
    return CUDA_SUCCESS;
}

/* --- code --------------------------------------------------------------------------------------- */

static CUresult host_ModuleLoadDataEx(CUmodule *m, const void *image, unsigned n, CUjit_option *o, void **values)
{
    const SimtKernel *k = build_kernel(build, image);

    (void)n, (void)o, (void)values;
    if (!k)
        return CUDA_ERROR_INVALID_IMAGE;
    *m = opened(sizeof **m);
    (*m)->function.kernel = k;
    snprintf((*m)->entry, sizeof(*m)->entry, "%s", (const char *)image);
    return CUDA_SUCCESS;
}
static CUresult host_ModuleUnload(CUmodule m)
{
    return closed(m);
}
static CUresult host_ModuleGetFunction(CUfunction *f, CUmodule m, const char *name)
{
    if (strcmp(m->entry, name) != 0)
        return CUDA_ERROR_NOT_FOUND;
    *f = &m->function;
    return CUDA_SUCCESS;
}
static CUresult host_FuncLoad(CUfunction f)
{
    (void)f;
    return CUDA_SUCCESS;
}
static CUresult host_FuncGetAttribute(int *v, CUfunction_attribute a, CUfunction f)
{
    (void)a, (void)f;
    *v = 1024;
    return CUDA_SUCCESS;
}
static CUresult host_FuncSetAttribute(CUfunction f, CUfunction_attribute a, int v)
{
    (void)f, (void)a, (void)v;
    return CUDA_SUCCESS;
}
static CUresult host_FuncGetParamInfo(CUfunction f, size_t i, size_t *at, size_t *bytes)
{
    if (i > 0)
        return CUDA_ERROR_INVALID_VALUE;
    *at = 0;
    *bytes = f->kernel->args_bytes;
    return CUDA_SUCCESS;
}

/* --- the device --------------------------------------------------------------------------------- */

static CUresult host_Init(unsigned flags)
{
    (void)flags;
    return CUDA_SUCCESS;
}
static CUresult host_DriverGetVersion(int *v)
{
    *v = 13000;
    return CUDA_SUCCESS;
}
static CUresult host_GetErrorName(CUresult r, const char **name)
{
    *name = r == CUDA_ERROR_LAUNCH_FAILED ? "CUDA_ERROR_LAUNCH_FAILED" : "CUDA_ERROR";
    return CUDA_SUCCESS;
}
static CUresult host_GetErrorString(CUresult r, const char **text)
{
    (void)r;
    *text = "the host found something";
    return CUDA_SUCCESS;
}
static CUresult host_DeviceGetCount(int *n)
{
    *n = 1;
    return CUDA_SUCCESS;
}
static CUresult host_DeviceGet(CUdevice *d, int ordinal)
{
    *d = ordinal;
    return CUDA_SUCCESS;
}
static CUresult host_DeviceGetName(char *name, int n, CUdevice d)
{
    (void)d;
    snprintf(name, (size_t)n, "this host");
    return CUDA_SUCCESS;
}
static CUresult host_DeviceGetAttribute(int *v, CUdevice_attribute a, CUdevice d)
{
    (void)d;
    *v = a == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR ? 9
         : a == CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT   ? multiprocessors
                                                           : 0;
    return CUDA_SUCCESS;
}
static CUresult host_DevicePrimaryCtxRetain(CUcontext *c, CUdevice d)
{
    (void)d;
    *c = (CUcontext)(void *)&driver_counts;
    return CUDA_SUCCESS;
}
static CUresult host_DevicePrimaryCtxRelease(CUdevice d)
{
    (void)d;
    return CUDA_SUCCESS;
}
static CUresult host_CtxPushCurrent(CUcontext c)
{
    (void)c;
    return CUDA_SUCCESS;
}
static CUresult host_CtxPopCurrent(CUcontext *c)
{
    *c = NULL;
    return CUDA_SUCCESS;
}
static CUresult host_MemGetInfo(size_t *unused, size_t *all)
{
    *unused = *all = (size_t)1 << 40;
    return CUDA_SUCCESS;
}

static const CudaDriver table = {
#define F(name) .cu##name = host_##name
    F(Init),
    F(DriverGetVersion),
    F(GetErrorName),
    F(GetErrorString),
    F(DeviceGetCount),
    F(DeviceGet),
    F(DeviceGetName),
    F(DeviceGetAttribute),
    F(DevicePrimaryCtxRetain),
    F(DevicePrimaryCtxRelease),
    F(CtxPushCurrent),
    F(CtxPopCurrent),
    F(MemGetInfo),
    F(MemAlloc),
    F(MemFree),
    F(MemHostAlloc),
    F(MemFreeHost),
    F(MemHostGetDevicePointer),
    F(MemcpyHtoDAsync),
    F(MemcpyDtoH),
    F(MemsetD8Async),
    F(StreamCreate),
    F(StreamDestroy),
    F(StreamQuery),
    F(StreamWaitEvent),
    F(StreamBeginCapture),
    F(StreamEndCapture),
    F(EventCreate),
    F(EventDestroy),
    F(EventRecord),
    F(EventQuery),
    F(EventElapsedTime),
    F(ModuleLoadDataEx),
    F(ModuleUnload),
    F(ModuleGetFunction),
    F(FuncLoad),
    F(FuncGetAttribute),
    F(FuncSetAttribute),
    F(FuncGetParamInfo),
    F(TensorMapEncodeTiled),
    F(LaunchKernelEx),
    F(GraphInstantiate),
    F(GraphUpload),
    F(GraphLaunch),
    F(GraphExecDestroy),
    F(GraphDestroy),
#undef F
};

void driver_install(const Build *b, int sms)
{
    build = b;
    multiprocessors = sms;
    weights = NULL;
    weights_protected = false;
    driver_counts = (DriverCounts){0};
    cuda_driver_replace(&table);
}

void driver_remove(void)
{
    cuda_driver_replace(NULL);
    simt_free_all();
}
#endif
