/* rate.c - how fast the memory of a GPU is: a copy inside it, which a GPU that is unwell, a part of one, or one that others use
 * makes more slowly than its kind does. */
#include "device_cuda.h"

#ifdef FTX_HAVE_CUDA

enum { COPIES = 8, TRIES = 3 /* the fastest counts */ };

typedef struct Bench {
    const CudaDriver *cu;
    CUdeviceptr from, to;
    CUstream stream;
    CUevent event[2];
} Bench;

static FtxStatus open_bench(Bench *b, size_t bytes, FtxError *err)
{
    const CudaDriver *cu = b->cu;
    CUdeviceptr *const blocks[] = {&b->from, &b->to};
    FtxStatus s = FTX_OK;

    for (int i = 0; i < 2 && !s; i++)
        if ((s = cuda_check(cu, cu->cuMemAlloc(blocks[i], bytes), err, "%zu bytes to time a copy", bytes)))
            *blocks[i] = 0;
    if (!s && (s = cuda_check(cu, cu->cuStreamCreate(&b->stream, CU_STREAM_NON_BLOCKING), err, "a stream")))
        b->stream = NULL;
    for (int i = 0; i < 2 && !s; i++)
        if ((s = cuda_check(cu, cu->cuEventCreate(&b->event[i], CU_EVENT_DEFAULT), err, "an event")))
            b->event[i] = NULL;
    return s;
}

static void close_bench(Bench *b)
{
    for (int i = 0; i < 2; i++)
        if (b->event[i])
            b->cu->cuEventDestroy(b->event[i]);
    if (b->stream)
        b->cu->cuStreamDestroy(b->stream);
    if (b->to)
        b->cu->cuMemFree(b->to);
    if (b->from)
        b->cu->cuMemFree(b->from);
}

/* Milliseconds of COPIES copies behind one that warms the GPU up. */
static FtxStatus time_copies(const Bench *b, size_t bytes, float *ms, FtxError *err)
{
    const CudaDriver *cu = b->cu;
    FtxStatus s = FTX_OK;

    for (int i = 0; i <= COPIES && !s; i++) {
        s = cuda_check(cu, cu->cuMemcpyDtoDAsync(b->to, b->from, bytes, b->stream), err, "timing a copy");
        if (!s && (i == 0 || i == COPIES))
            s = cuda_check(cu, cu->cuEventRecord(b->event[i == COPIES], b->stream), err, "timing a copy");
    }
    if (!s)
        s = cuda_check(cu, cu->cuCtxSynchronize(), err, "timing a copy");
    if (!s)
        s = cuda_check(cu, cu->cuEventElapsedTime(ms, b->event[0], b->event[1]), err, "timing a copy");
    return s;
}

/* In the context of the GPU. */
static FtxStatus measure(const CudaDriver *cu, size_t bytes, double *gb_s, FtxError *err)
{
    Bench b = {.cu = cu};
    FtxStatus s = open_bench(&b, bytes, err);

    for (int i = 0; i < TRIES && !s; i++) {
        float ms = 0.0f;

        if (!(s = time_copies(&b, bytes, &ms, err)) && ms > 0.0f) {
            const double rate = 2.0 * (double)bytes * COPIES / ((double)ms * 1e6); /* read and written */

            *gb_s = rate > *gb_s ? rate : *gb_s;
        }
    }
    if (s)
        cu->cuCtxSynchronize(); /* a copy may still read and write */
    close_bench(&b);
    return s;
}

FtxStatus device_cuda_rate(int ordinal, size_t bytes, double *gb_s, FtxError *err)
{
    const CudaDriver *cu;
    CUdevice device;
    CUcontext context;
    FtxStatus s = cuda_driver(&cu, err);

    *gb_s = 0;
    if (!s)
        s = cuda_check(cu, cu->cuInit(0), err, "the CUDA driver does not start");
    if (!s)
        s = cuda_check(cu, cu->cuDeviceGet(&device, ordinal), err, "GPU %d", ordinal);
    if (!s)
        s = cuda_check(cu, cu->cuDevicePrimaryCtxRetain(&context, device), err, "a context on GPU %d", ordinal);
    if (s)
        return s;
    s = cuda_check(cu, cu->cuCtxPushCurrent(context), err, "a context on GPU %d", ordinal);
    if (!s) {
        s = measure(cu, bytes, gb_s, err);
        cu->cuCtxPopCurrent(&context);
    }
    cu->cuDevicePrimaryCtxRelease(device);
    return s;
}

#else

FtxStatus device_cuda_rate(int ordinal, size_t bytes, double *gb_s, FtxError *err)
{
    (void)ordinal, (void)bytes;
    *gb_s = 0;
    return ftx_fail(err, FTX_ENODEVICE, "this runtime was built without the CUDA parts");
}

#endif
