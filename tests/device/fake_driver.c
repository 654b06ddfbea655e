/* fake_driver.c - a CUDA driver that runs nothing and writes everything down. */
#include "fake_driver.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

Fake fake;

enum { MAX_BLOCKS = 64, POISONED = 1 << 19 /* bytes of a block: a test should not take long */ };
static struct {
    char *at;
    size_t bytes;
} blocks[MAX_BLOCKS];

typedef struct FakeGraph {
    FakeLaunch *at;
    size_t n;
} FakeGraph;

struct CUstream_st {
    FakeGraph *recording; /* NULL: launches run */
};
enum { MAX_FUNCTIONS = 64 };
struct CUmod_st {
    const void *elf; /* NULL: the text form */
    unsigned n_functions;
    struct CUfunc_st {
        char name[FAKE_NAME_BYTES];
        unsigned n_params;
    } function[MAX_FUNCTIONS];
};

/* Everything that is open, so that it can go with the context, as it does in a real driver. */
enum { MAX_LIVE = 1024 };
static struct {
    void *at;
    void (*release)(void *p);
    int *count;
} live[MAX_LIVE];

static void *keep(void *p, void (*release)(void *p), int *count)
{
    for (int i = 0; i < MAX_LIVE; i++) {
        if (!live[i].at) {
            live[i].at = p;
            live[i].release = release;
            live[i].count = count;
            ++*count;
            return p;
        }
    }
    abort();
}

static void drop(void *p)
{
    for (int i = 0; i < MAX_LIVE; i++) {
        if (live[i].at == p) {
            live[i].at = NULL;
            --*live[i].count;
            live[i].release(p);
            return;
        }
    }
    abort(); /* not ours, or closed twice */
}

static void drop_all(void)
{
    for (int i = 0; i < MAX_LIVE; i++)
        if (live[i].at)
            drop(live[i].at);
}

bool fake_fails(const char *function)
{
    fake.calls++;
    if (fake.calls != fake.fail_at)
        return false;
    fake.failed = function;
    return true;
}

CUresult fake_error(void)
{
    return fake.fail_with ? fake.fail_with : CUDA_ERROR_UNKNOWN;
}

static bool fake_hangs(void)
{
    return fake.hang_at && fake.calls >= fake.hang_at;
}

#define MAY_FAIL \
    do { \
        if (fake_fails(__func__)) \
            return fake_error(); \
    } while (0)
/* A destructor does its work also when it reports an error. */
#define RESULT (fake_fails(__func__) ? fake_error() : CUDA_SUCCESS)

static void *take(size_t bytes)
{
    for (int i = 0; i < MAX_BLOCKS; i++) {
        if (!blocks[i].at) {
            blocks[i].at = calloc(1, bytes ? bytes : 1);
            blocks[i].bytes = bytes;
            memset(blocks[i].at, 0xAA, bytes < POISONED ? bytes : POISONED);
            fake.driver_calls_that_allocate++;
            return blocks[i].at;
        }
    }
    abort();
}

static void give_back(void *p)
{
    for (int i = 0; i < MAX_BLOCKS; i++) {
        if (blocks[i].at == p) {
            free(p);
            blocks[i].at = NULL;
            return;
        }
    }
    abort(); /* not ours, or freed twice */
}

bool fake_holds(CUdeviceptr p, size_t bytes)
{
    for (int i = 0; i < MAX_BLOCKS; i++) {
        const uintptr_t at = (uintptr_t)blocks[i].at;

        if (at && p >= at && p - at <= blocks[i].bytes && bytes <= blocks[i].bytes - (p - at))
            return true;
    }
    return false;
}

static void need_context(void)
{
    if (fake.pushed != 1)
        abort(); /* a call without the device's context */
}

static CUresult fake_Init(unsigned flags)
{
    (void)flags;
    MAY_FAIL;
    return CUDA_SUCCESS;
}

static CUresult fake_DriverGetVersion(int *v)
{
    *v = fake.version;
    return CUDA_SUCCESS;
}

static CUresult fake_GetErrorName(CUresult r, const char **name)
{
    *name = r == CUDA_ERROR_OUT_OF_MEMORY ? "CUDA_ERROR_OUT_OF_MEMORY" : "CUDA_ERROR_UNKNOWN";
    return CUDA_SUCCESS;
}

static CUresult fake_GetErrorString(CUresult r, const char **text)
{
    *text = r == CUDA_ERROR_OUT_OF_MEMORY ? "out of memory" : "made to fail";
    return CUDA_SUCCESS;
}

static CUresult fake_DeviceGetCount(int *n)
{
    MAY_FAIL;
    *n = fake.gpus;
    return CUDA_SUCCESS;
}

static CUresult fake_DeviceGet(CUdevice *d, int ordinal)
{
    MAY_FAIL;
    *d = ordinal;
    return CUDA_SUCCESS;
}

static CUresult fake_DeviceGetName(char *name, int n, CUdevice d)
{
    MAY_FAIL;
    snprintf(name, (size_t)n, "Fake GPU %d", d);
    return CUDA_SUCCESS;
}

static CUresult fake_DeviceGetAttribute(int *v, CUdevice_attribute a, CUdevice d)
{
    (void)d;
    MAY_FAIL;
    *v = a == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR   ? fake.cc / 10
         : a == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR ? fake.cc % 10
         : a == CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT     ? 132
                                                             : 0;
    return CUDA_SUCCESS;
}

static CUresult fake_DevicePrimaryCtxRetain(CUcontext *c, CUdevice d)
{
    (void)d;
    MAY_FAIL;
    fake.contexts++;
    *c = (CUcontext)(void *)&fake;
    return CUDA_SUCCESS;
}

static CUresult fake_DevicePrimaryCtxRelease(CUdevice d)
{
    (void)d;
    if (--fake.contexts == 0)
        drop_all();
    return RESULT;
}

static CUresult fake_CtxPushCurrent(CUcontext c)
{
    (void)c;
    MAY_FAIL;
    fake.pushed++;
    return CUDA_SUCCESS;
}

static CUresult fake_CtxPopCurrent(CUcontext *c)
{
    *c = NULL;
    fake.pushed--;
    return RESULT;
}

static CUresult fake_MemGetInfo(size_t *unused, size_t *all)
{
    need_context();
    MAY_FAIL;
    *unused = fake.free_bytes;
    *all = (size_t)1 << 37;
    return CUDA_SUCCESS;
}

static CUresult fake_MemAlloc(CUdeviceptr *p, size_t bytes)
{
    need_context();
    MAY_FAIL;
    *p = (CUdeviceptr)(uintptr_t)keep(take(bytes), give_back, &fake.allocations);
    return CUDA_SUCCESS;
}

static CUresult fake_MemFree(CUdeviceptr p)
{
    need_context();
    drop((void *)(uintptr_t)p);
    return RESULT;
}

static CUresult fake_MemHostAlloc(void **p, size_t bytes, unsigned flags)
{
    (void)flags;
    need_context();
    MAY_FAIL;
    *p = keep(take(bytes), give_back, &fake.pinned);
    return CUDA_SUCCESS;
}

static CUresult fake_MemFreeHost(void *p)
{
    need_context();
    drop(p);
    return RESULT;
}

static CUresult fake_MemHostGetDevicePointer(CUdeviceptr *d, void *p, unsigned flags)
{
    (void)flags;
    MAY_FAIL;
    *d = (CUdeviceptr)(uintptr_t)p;
    return CUDA_SUCCESS;
}

static CUresult fake_MemcpyHtoDAsync(CUdeviceptr d, const void *p, size_t bytes, CUstream s)
{
    (void)s;
    need_context();
    MAY_FAIL;
    if (!fake_holds(d, bytes) || !fake_holds((CUdeviceptr)(uintptr_t)p, bytes))
        abort(); /* outside of memory, or from memory that is not pinned */
    memcpy((void *)(uintptr_t)d, p, bytes);
    fake.copied_bytes += bytes;
    fake.uploads++;
    return CUDA_SUCCESS;
}

static CUresult fake_MemcpyDtoH(void *p, CUdeviceptr d, size_t bytes)
{
    need_context();
    MAY_FAIL;
    if (!fake_holds(d, bytes))
        abort();
    memcpy(p, (void *)(uintptr_t)d, bytes);
    return CUDA_SUCCESS;
}

static CUresult fake_MemsetD8Async(CUdeviceptr d, unsigned char v, size_t bytes, CUstream s)
{
    (void)s;
    need_context();
    MAY_FAIL;
    if (!fake_holds(d, bytes))
        abort();
    memset((void *)(uintptr_t)d, v, bytes);
    return CUDA_SUCCESS;
}

static CUresult fake_StreamCreate(CUstream *s, unsigned flags)
{
    (void)flags;
    need_context();
    MAY_FAIL;
    *s = keep(calloc(1, sizeof **s), free, &fake.streams);
    return CUDA_SUCCESS;
}

static CUresult fake_StreamDestroy(CUstream s)
{
    if (s->recording)
        abort();
    drop(s);
    return RESULT;
}

/* A device that hangs is never ready. */
static CUresult fake_StreamQuery(CUstream s)
{
    need_context();
    if (s->recording)
        abort();
    MAY_FAIL;
    return fake_hangs() ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
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
    *g = keep(recorded, free_graph, &fake.graphs);
    return CUDA_SUCCESS;
}

static CUresult fake_EventCreate(CUevent *e, unsigned flags)
{
    (void)flags;
    need_context();
    MAY_FAIL;
    *e = keep(malloc(1), free, &fake.events);
    return CUDA_SUCCESS;
}

static CUresult fake_EventDestroy(CUevent e)
{
    drop(e);
    return RESULT;
}

static CUresult fake_EventRecord(CUevent e, CUstream s)
{
    (void)e, (void)s;
    MAY_FAIL;
    return CUDA_SUCCESS;
}

static CUresult fake_EventQuery(CUevent e)
{
    (void)e;
    MAY_FAIL;
    return fake_hangs() ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
}

static CUresult fake_EventElapsedTime(float *ms, CUevent a, CUevent b)
{
    (void)a, (void)b;
    MAY_FAIL;
    *ms = 0.25f;
    return CUDA_SUCCESS;
}

static uint64_t word(const void *p, size_t at, size_t bytes)
{
    uint64_t v = 0;

    memcpy(&v, (const char *)p + at, bytes);
    return v;
}

/* Pointers that an entry of a cubin takes: the size of its parameter 0, from the records KPARAM_INFO
 * of section .nv.info.ENTRY. 0: no such entry. */
static unsigned elf_params(const void *elf, const char *name)
{
    enum { KPARAM_INFO = 0x17 };
    const char *file = elf, *table = file + word(file, 40, 8);
    const char *names = file + word(table + 64 * word(file, 62, 2), 24, 8);

    for (uint64_t i = 0; i < word(file, 60, 2); i++) {
        const char *s = table + 64 * i, *section = names + word(s, 0, 4), *p = file + word(s, 24, 8);

        if (strncmp(section, ".nv.info.", 9) != 0 || strcmp(section + 9, name) != 0)
            continue;
        for (uint64_t at = 0; at + 4 <= word(s, 32, 8); at += 4 + (p[at] == 4 ? word(p, at + 2, 2) : 0))
            if (p[at] == 4 && p[at + 1] == KPARAM_INFO) /* {u32, ordinal u16, offset u16, flags and size << 18} */
                return (unsigned)(word(p, at + 12, 4) >> 18) / sizeof(CUdeviceptr);
    }
    return 0;
}

static CUresult fake_ModuleLoadDataEx(CUmodule *m, const void *image, unsigned n, CUjit_option *o, void **values)
{
    (void)o;
    need_context();
    MAY_FAIL;
    *m = calloc(1, sizeof **m);
    if (memcmp(image, "\177ELF", 4) == 0) {
        (*m)->elf = image;
    } else if (sscanf(image, "%127s %u", (*m)->function[0].name, &(*m)->function[0].n_params) == 2) {
        (*m)->n_functions = 1;
    } else {
        free(*m);
        if (n)
            strcpy(values[0], "no such code");
        return CUDA_ERROR_UNKNOWN;
    }
    keep(*m, free, &fake.modules);
    return CUDA_SUCCESS;
}

static CUresult fake_ModuleUnload(CUmodule m)
{
    drop(m);
    return RESULT;
}

static CUresult fake_ModuleGetFunction(CUfunction *f, CUmodule m, const char *name)
{
    MAY_FAIL;
    for (unsigned i = 0; i < m->n_functions; i++)
        if (strcmp(m->function[i].name, name) == 0) {
            *f = &m->function[i];
            return CUDA_SUCCESS;
        }
    if (!m->elf || !elf_params(m->elf, name) || m->n_functions == MAX_FUNCTIONS)
        return CUDA_ERROR_UNKNOWN;
    *f = &m->function[m->n_functions++];
    snprintf((*f)->name, sizeof(*f)->name, "%s", name);
    (*f)->n_params = elf_params(m->elf, name);
    return CUDA_SUCCESS;
}

static CUresult fake_FuncLoad(CUfunction f)
{
    (void)f;
    MAY_FAIL;
    return CUDA_SUCCESS;
}

static CUresult fake_FuncGetAttribute(int *v, CUfunction_attribute a, CUfunction f)
{
    (void)a, (void)f;
    MAY_FAIL;
    *v = 1024;
    return CUDA_SUCCESS;
}

static CUresult fake_FuncSetAttribute(CUfunction f, CUfunction_attribute a, int v)
{
    (void)f;
    MAY_FAIL;
    return a == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES && v > 232448 ? CUDA_ERROR_UNKNOWN : CUDA_SUCCESS;
}

static CUresult fake_FuncGetParamInfo(CUfunction f, size_t i, size_t *at, size_t *bytes)
{
    MAY_FAIL;
    if (i > 0)
        return CUDA_ERROR_UNKNOWN;
    *at = 0;
    *bytes = f->n_params * sizeof(CUdeviceptr);
    return CUDA_SUCCESS;
}

static CUresult fake_TensorMapEncodeTiled(CUtensorMap *map, CUtensorMapDataType type, cuuint32_t rank, void *matrix,
                                          const cuuint64_t *size, const cuuint64_t *stride, const cuuint32_t *tile,
                                          const cuuint32_t *every, CUtensorMapInterleave interleave,
                                          CUtensorMapSwizzle swizzle, CUtensorMapL2promotion promotion,
                                          CUtensorMapFloatOOBfill fill)
{
    MAY_FAIL;
    (void)type, (void)rank, (void)matrix, (void)size, (void)stride, (void)tile, (void)every, (void)interleave;
    (void)swizzle, (void)promotion, (void)fill;
    memset(map, 0, sizeof *map);
    return CUDA_SUCCESS;
}

void fake_record(CUstream s, const FakeLaunch *l)
{
    if (s->recording) {
        FakeGraph *g = s->recording;

        g->at = realloc(g->at, (g->n + 1) * sizeof *g->at);
        g->at[g->n++] = *l;
        return;
    }
    if (fake.n_run < sizeof fake.run / sizeof *fake.run)
        fake.run[fake.n_run++] = *l;
    if (fake.execute)
        fake.execute(l);
}

static CUresult fake_LaunchKernelEx(const CUlaunchConfig *c, CUfunction f, void **params, void **extra)
{
    FakeLaunch l = {.grid = {c->gridDimX, c->gridDimY, c->gridDimZ},
                    .block = c->blockDimX,
                    .smem = c->sharedMemBytes,
                    .n_params = f->n_params};

    (void)extra;
    need_context();
    MAY_FAIL;
    if (l.n_params > FAKE_MAX_PARAMS)
        abort();
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
    *e = keep(to, free_graph, &fake.execs);
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

    need_context();
    MAY_FAIL;
    for (size_t i = 0; i < g->n; i++) {
        FakeLaunch l = g->at[i];

        l.in_graph = true;
        fake_record(s, &l);
    }
    return CUDA_SUCCESS;
}

static CUresult fake_GraphExecDestroy(CUgraphExec e)
{
    drop(e);
    return RESULT;
}

static CUresult fake_GraphDestroy(CUgraph g)
{
    drop(g);
    return RESULT;
}

static const CudaDriver table = {
    .cuInit = fake_Init,
    .cuDriverGetVersion = fake_DriverGetVersion,
    .cuGetErrorName = fake_GetErrorName,
    .cuGetErrorString = fake_GetErrorString,
    .cuDeviceGetCount = fake_DeviceGetCount,
    .cuDeviceGet = fake_DeviceGet,
    .cuDeviceGetName = fake_DeviceGetName,
    .cuDeviceGetAttribute = fake_DeviceGetAttribute,
    .cuDevicePrimaryCtxRetain = fake_DevicePrimaryCtxRetain,
    .cuDevicePrimaryCtxRelease = fake_DevicePrimaryCtxRelease,
    .cuCtxPushCurrent = fake_CtxPushCurrent,
    .cuCtxPopCurrent = fake_CtxPopCurrent,
    .cuMemGetInfo = fake_MemGetInfo,
    .cuMemAlloc = fake_MemAlloc,
    .cuMemFree = fake_MemFree,
    .cuMemHostAlloc = fake_MemHostAlloc,
    .cuMemFreeHost = fake_MemFreeHost,
    .cuMemHostGetDevicePointer = fake_MemHostGetDevicePointer,
    .cuMemcpyHtoDAsync = fake_MemcpyHtoDAsync,
    .cuMemcpyDtoH = fake_MemcpyDtoH,
    .cuMemsetD8Async = fake_MemsetD8Async,
    .cuStreamCreate = fake_StreamCreate,
    .cuStreamDestroy = fake_StreamDestroy,
    .cuStreamQuery = fake_StreamQuery,
    .cuStreamBeginCapture = fake_StreamBeginCapture,
    .cuStreamEndCapture = fake_StreamEndCapture,
    .cuEventCreate = fake_EventCreate,
    .cuEventDestroy = fake_EventDestroy,
    .cuEventRecord = fake_EventRecord,
    .cuEventQuery = fake_EventQuery,
    .cuEventElapsedTime = fake_EventElapsedTime,
    .cuModuleLoadDataEx = fake_ModuleLoadDataEx,
    .cuModuleUnload = fake_ModuleUnload,
    .cuModuleGetFunction = fake_ModuleGetFunction,
    .cuFuncLoad = fake_FuncLoad,
    .cuFuncGetAttribute = fake_FuncGetAttribute,
    .cuFuncSetAttribute = fake_FuncSetAttribute,
    .cuFuncGetParamInfo = fake_FuncGetParamInfo,
    .cuTensorMapEncodeTiled = fake_TensorMapEncodeTiled,
    .cuLaunchKernelEx = fake_LaunchKernelEx,
    .cuGraphInstantiate = fake_GraphInstantiate,
    .cuGraphUpload = fake_GraphUpload,
    .cuGraphLaunch = fake_GraphLaunch,
    .cuGraphExecDestroy = fake_GraphExecDestroy,
    .cuGraphDestroy = fake_GraphDestroy,
};

int fake_open_things(void)
{
    return fake.contexts + fake.pushed + fake.allocations + fake.pinned + fake.streams + fake.events + fake.modules +
           fake.graphs + fake.execs + fake.handles;
}

void fake_reset(void)
{
    drop_all(); /* what a device that hung has kept */
    fake = (Fake){.gpus = 1, .cc = 90, .version = 13000, .free_bytes = (size_t)1 << 36};
    cuda_driver_replace(&table);
    fake_install_cublaslt();
}
