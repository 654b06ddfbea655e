/* fake_driver.c - a CUDA driver that runs nothing and writes everything down. */
#include "fake_parts.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

Fake fake;

enum {
    MAX_BLOCKS = 64,
    BLOCK_ALIGN = 256,
    POISONED = 1 << 19, /* bytes of a block: a test should not take long */
};
static struct {
    char *at;
    size_t bytes;
} blocks[MAX_BLOCKS];

/* Everything that is open, so that it can go with the context, as it does in a real driver. */
enum { MAX_LIVE = 1024 };
static struct {
    void *at;
    void (*release)(void *p);
    int *count;
} live[MAX_LIVE];

void *fake_keep(void *p, void (*release)(void *p), int *count)
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

void fake_drop(void *p)
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
    fake_forget_work();
    for (int i = 0; i < MAX_LIVE; i++)
        if (live[i].at)
            fake_drop(live[i].at);
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

static void *take(size_t bytes)
{
    for (int i = 0; i < MAX_BLOCKS; i++) {
        if (!blocks[i].at) {
            void *p;

            if (posix_memalign(&p, BLOCK_ALIGN, bytes ? bytes : 1))
                abort();
            blocks[i].at = p;
            blocks[i].bytes = bytes;
            memset(p, 0xAA, bytes < POISONED ? bytes : POISONED);
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

/* Memory that a copy still reads or writes is in use. */
static void check_unused(const void *p)
{
    for (int i = 0; i < MAX_BLOCKS; i++)
        if (blocks[i].at == p && fake_in_flight(p, blocks[i].bytes))
            abort();
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

static _Thread_local int pushed; /* by this thread: each rank has one */

void fake_need_context(void)
{
    if (pushed != 1)
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
         : a == CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE        ? 3201000
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
    pushed++;
    __atomic_add_fetch(&fake.pushed, 1, __ATOMIC_SEQ_CST);
    return CUDA_SUCCESS;
}

static CUresult fake_CtxPopCurrent(CUcontext *c)
{
    *c = NULL;
    pushed--;
    __atomic_sub_fetch(&fake.pushed, 1, __ATOMIC_SEQ_CST);
    return RESULT;
}

static CUresult fake_MemGetInfo(size_t *unused, size_t *all)
{
    fake_need_context();
    MAY_FAIL;
    *unused = fake.free_bytes;
    *all = (size_t)1 << 37;
    return CUDA_SUCCESS;
}

static CUresult fake_MemAlloc(CUdeviceptr *p, size_t bytes)
{
    fake_need_context();
    MAY_FAIL;
    if (bytes > fake.free_bytes)
        return CUDA_ERROR_OUT_OF_MEMORY;
    fake.free_bytes -= bytes;
    *p = (CUdeviceptr)(uintptr_t)fake_keep(take(bytes), give_back, &fake.allocations);
    return CUDA_SUCCESS;
}

static CUresult fake_MemFree(CUdeviceptr p)
{
    fake_need_context();
    check_unused((void *)(uintptr_t)p);
    for (int i = 0; i < MAX_BLOCKS; i++)
        if (blocks[i].at == (char *)(uintptr_t)p)
            fake.free_bytes += blocks[i].bytes;
    fake_drop((void *)(uintptr_t)p);
    return RESULT;
}

static CUresult fake_MemHostAlloc(void **p, size_t bytes, unsigned flags)
{
    (void)flags;
    fake_need_context();
    MAY_FAIL;
    *p = fake_keep(take(bytes), give_back, &fake.pinned);
    return CUDA_SUCCESS;
}

static CUresult fake_MemFreeHost(void *p)
{
    fake_need_context();
    check_unused(p);
    fake_drop(p);
    return RESULT;
}

static CUresult fake_MemHostGetDevicePointer(CUdeviceptr *d, void *p, unsigned flags)
{
    (void)flags;
    MAY_FAIL;
    *d = (CUdeviceptr)(uintptr_t)p;
    return CUDA_SUCCESS;
}

static CUresult fake_MemcpyDtoH(void *p, CUdeviceptr d, size_t bytes)
{
    fake_need_context();
    MAY_FAIL;
    if (!fake_holds(d, bytes))
        abort();
    fake.to_host++;
    memcpy(p, (void *)(uintptr_t)d, bytes);
    fake_cupti_copy(NULL, 2, bytes);
    return CUDA_SUCCESS;
}

bool fake_is_device(CUdeviceptr p)
{
    for (int i = 0; i < MAX_BLOCKS; i++)
        for (int k = 0; k < MAX_LIVE && blocks[i].at; k++)
            if (live[k].at == blocks[i].at && p - (uintptr_t)blocks[i].at < blocks[i].bytes)
                return live[k].count == &fake.allocations;
    return false;
}

static CUresult fake_DeviceCanAccessPeer(int *can, CUdevice d, CUdevice other)
{
    MAY_FAIL;
    *can = !fake.apart && d != other;
    return CUDA_SUCCESS;
}

static CUresult fake_CtxEnablePeerAccess(CUcontext other, unsigned flags)
{
    fake_need_context();
    (void)other, (void)flags;
    MAY_FAIL;
    return fake.peers++ > 0 ? CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED : CUDA_SUCCESS;
}

static CUresult fake_PointerGetAttribute(void *value, CUpointer_attribute a, CUdeviceptr p)
{
    fake_need_context();
    MAY_FAIL;
    if (!fake_holds(p, 1))
        return CUDA_ERROR_INVALID_VALUE;
    if (a == CU_POINTER_ATTRIBUTE_MEMORY_TYPE)
        *(CUmemorytype *)value = fake_is_device(p) ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST;
    else if (a == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL)
        *(int *)value = fake.memory_of;
    else
        return CUDA_ERROR_INVALID_VALUE;
    return CUDA_SUCCESS;
}

static CUresult fake_TensorMapEncodeTiled(CUtensorMap *map, CUtensorMapDataType type, cuuint32_t rank, void *matrix,
                                          const cuuint64_t *size, const cuuint64_t *stride, const cuuint32_t *tile,
                                          const cuuint32_t *every, CUtensorMapInterleave interleave,
                                          CUtensorMapSwizzle swizzle, CUtensorMapL2promotion promotion,
                                          CUtensorMapFloatOOBfill fill)
{
    const FakeDescriptor f = {.matrix = (CUdeviceptr)(uintptr_t)matrix,
                              .bf16 = type == CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
                              .columns = size[0],
                              .rows = size[1],
                              .row_bytes = stride[0],
                              .tile_columns = tile[0],
                              .tile_rows = tile[1]};

    (void)interleave, (void)promotion, (void)fill;
    MAY_FAIL;
    if (rank != 2 || every[0] != 1 || every[1] != 1 || swizzle != CU_TENSOR_MAP_SWIZZLE_128B)
        return CUDA_ERROR_INVALID_VALUE;
    memset(map, 0, sizeof *map);
    memcpy(map, &f, sizeof f);
    return CUDA_SUCCESS;
}

static CudaDriver table = {
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
    .cuMemcpyDtoH = fake_MemcpyDtoH,
    .cuPointerGetAttribute = fake_PointerGetAttribute,
    .cuDeviceCanAccessPeer = fake_DeviceCanAccessPeer,
    .cuCtxEnablePeerAccess = fake_CtxEnablePeerAccess,
    .cuTensorMapEncodeTiled = fake_TensorMapEncodeTiled,
};

int fake_open_things(void)
{
    return fake.contexts + fake.pushed + fake.allocations + fake.pinned + fake.streams + fake.events + fake.modules +
           fake.graphs + fake.execs + fake.handles;
}

void fake_reset(void)
{
    drop_all(); /* what a device that hung has kept */
    pushed = 0;
    fake = (Fake){.gpus = 1, .cc = 90, .version = 13000, .free_bytes = (size_t)1 << 36};
    fake_add_streams(&table);
    fake_add_modules(&table);
    cuda_driver_replace(&table);
    fake_install_cublaslt();
    fake_install_cupti();
    fake_install_nccl();
}
