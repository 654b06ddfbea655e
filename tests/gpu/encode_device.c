/* encode_device.c - an encoder on a GPU with hidden states and vectors in memory of the GPU: the same bits as by way of
 * the host; and a trace of it.
 *
 *     encode_device FILE.ftx TRACE.json
 *
 * Uses ftx.h and the driver, as any program would. Each array is written by a stream of this program right before the
 * call: the library has to follow that stream. */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ftx.h"

/* --- the driver, as far as it is needed ------------------------------------------------------------- */

typedef uint64_t DevicePointer;
typedef void *Handle;

static struct {
    int (*init)(unsigned);
    int (*retain)(Handle *context, int device);
    int (*push)(Handle context);
    int (*alloc)(DevicePointer *p, size_t bytes);
    int (*to_device)(DevicePointer p, const void *from, size_t bytes);
    int (*to_host)(void *to, DevicePointer p, size_t bytes);
    int (*copy)(DevicePointer to, DevicePointer from, size_t bytes, Handle stream);
    int (*set)(DevicePointer p, unsigned char value, size_t bytes, Handle stream);
    int (*stream)(Handle *stream, unsigned flags);
} cu;

static void stop(const char *what)
{
    fprintf(stderr, "encode_device: %s\n", what);
    exit(1);
}

static void must(FtxStatus s, const FtxError *err)
{
    if (s)
        stop(err->text);
}

#define CALL(call) \
    do { \
        if (cu.call) \
            stop(#call); \
    } while (0)

static void open_driver(int ordinal)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    Handle context;

    if (!library)
        stop(dlerror());
    *(void **)&cu.init = dlsym(library, "cuInit");
    *(void **)&cu.retain = dlsym(library, "cuDevicePrimaryCtxRetain");
    *(void **)&cu.push = dlsym(library, "cuCtxPushCurrent_v2");
    *(void **)&cu.alloc = dlsym(library, "cuMemAlloc_v2");
    *(void **)&cu.to_device = dlsym(library, "cuMemcpyHtoD_v2");
    *(void **)&cu.to_host = dlsym(library, "cuMemcpyDtoH_v2");
    *(void **)&cu.copy = dlsym(library, "cuMemcpyDtoDAsync_v2");
    *(void **)&cu.set = dlsym(library, "cuMemsetD8Async");
    *(void **)&cu.stream = dlsym(library, "cuStreamCreate");
    CALL(init(0));
    CALL(retain(&context, ordinal));
    CALL(push(context));
}

static void *pointer(DevicePointer p)
{
    return (void *)(uintptr_t)p;
}

/* --- texts ---------------------------------------------------------------------------------------- */

enum { TEXTS = 40, STRIDE = 64, ROWS = TEXTS * STRIDE };

static FtxModel *model;
static FtxEngine *engine;
static FtxModelInfo info;
static int32_t ids[ROWS], lengths[TEXTS];
static float *input, *hidden, *pooled, *got;
static size_t hidden_bytes, pooled_bytes, input_bytes; /* input: in the model's type */
static DevicePointer d_input, d_ready, d_hidden, d_pooled;
static Handle stream;

/* A number that all types hold exactly: a multiple of 1/8 below 4, never 0. */
static float exact(size_t i)
{
    return (float)((int)(i * 37 % 31) - 31) / 8.0f;
}

static void store(void *to, size_t i, float v)
{
    uint32_t bits;

    memcpy(&bits, &v, sizeof bits);
    if (info.input_type == FTX_FP32)
        ((float *)to)[i] = v;
    else if (info.input_type == FTX_BF16)
        ((uint16_t *)to)[i] = (uint16_t)(bits >> 16);
    else
        ((uint16_t *)to)[i] =
            (uint16_t)((bits >> 16 & 0x8000) | ((bits >> 23 & 255) - 112) << 10 | (bits >> 13 & 0x3ff));
}

static void make_texts(void)
{
    const size_t n = (size_t)ROWS * (size_t)info.input, size = info.input_type == FTX_FP32 ? 4 : 2;
    void *device_form = malloc(n * size);

    hidden_bytes = (size_t)ROWS * (size_t)info.hidden * sizeof(float);
    pooled_bytes = (size_t)TEXTS * (size_t)info.pooled * sizeof(float);
    input_bytes = n * size;
    input = malloc(n * sizeof *input);
    hidden = malloc(hidden_bytes);
    pooled = malloc(pooled_bytes);
    got = malloc(hidden_bytes > pooled_bytes ? hidden_bytes : pooled_bytes);
    if (!device_form || !input || !hidden || !pooled || !got)
        stop("out of memory");
    for (int i = 0; i < TEXTS; i++)
        lengths[i] = 1 + i * 29 % STRIDE;
    for (int i = 0; i < ROWS; i++)
        ids[i] = 1 + i * 131 % (info.vocab - 1);
    for (size_t i = 0; i < n; i++) {
        input[i] = exact(i);
        store(device_form, i, input[i]);
    }
    CALL(alloc(&d_input, input_bytes));
    CALL(alloc(&d_ready, input_bytes));
    CALL(alloc(&d_hidden, hidden_bytes));
    CALL(alloc(&d_pooled, pooled_bytes ? pooled_bytes : 4));
    CALL(to_device(d_ready, device_form, input_bytes));
    CALL(stream(&stream, 1)); /* CU_STREAM_NON_BLOCKING: nothing but `stream` of the job orders it */
    free(device_form);
}

static FtxEncode job_of(size_t stride, bool by_input)
{
    FtxEncode job = FTX_ENCODE_INIT;

    job.count = TEXTS;
    job.lengths = lengths;
    job.stride = stride;
    job.hidden_rows = ROWS;
    job.ids = by_input ? NULL : ids;
    job.input = by_input ? input : NULL;
    job.hidden = hidden;
    job.pooled = info.pooled ? pooled : NULL;
    return job;
}

/* One of the ways, by the host and on the GPU. */
static void compare(size_t stride, bool by_input, bool by_stream)
{
    FtxEncode job = job_of(stride, by_input);
    FtxError err;

    memset(hidden, 0, hidden_bytes);
    must(ftx_engine_encode(engine, &job, &err), &err);
    job.input = by_input ? pointer(d_input) : NULL;
    job.hidden = pointer(d_hidden);
    job.pooled = info.pooled ? pointer(d_pooled) : NULL;
    job.on_device = true;
    job.stream = by_stream ? stream : NULL;
    CALL(set(d_input, 0xff, input_bytes, stream));
    CALL(set(d_hidden, 0, hidden_bytes, stream));
    CALL(copy(d_input, d_ready, input_bytes, stream));
    must(ftx_engine_encode(engine, &job, &err), &err);
    CALL(to_host(got, d_hidden, hidden_bytes));
    if (memcmp(got, hidden, hidden_bytes) != 0)
        stop("the hidden states differ from those by way of the host");
    if (info.pooled)
        CALL(to_host(got, d_pooled, pooled_bytes));
    if (memcmp(got, info.pooled ? pooled : got, pooled_bytes) != 0)
        stop("the pooled vectors differ from those by way of the host");
    printf("%s, %s, %s: the same bits\n", by_input ? "hidden states" : "ids", stride ? "padded" : "packed",
           by_stream ? "after a stream" : "after all work");
}

int main(int n, char **words)
{
    const FtxOptions options = {.size = sizeof options, .device = FTX_DEVICE_CUDA};
    FtxError err;

    if (n != 3) {
        fprintf(stderr, "usage: encode_device FILE.ftx TRACE.json\n");
        return 2;
    }
    must(ftx_model_open(words[1], &options, &model, &err), &err);
    must(ftx_engine_open(model, NULL, &engine, &err), &err);
    ftx_model_info(model, &info);
    if (!info.input)
        stop("the model takes no hidden states");
    open_driver(info.ordinal);
    make_texts();
    for (int way = 0; way < 8; way++)
        compare(way & 1 ? STRIDE : 0, way & 2, way & 4);

    FtxEncode job = job_of(STRIDE, false);

    job.on_device = true;
    if (ftx_engine_encode(engine, &job, &err) != FTX_EINVAL || !strstr(err.text, "hidden: it is memory of the host"))
        stop("a pointer of the host was taken for one of the GPU");
    job = job_of(STRIDE, true);
    job.input = pointer(d_input);
    job.hidden = pointer(d_hidden);
    job.pooled = info.pooled ? pointer(d_pooled) : NULL;
    job.on_device = true;
    job.stream = stream;
    must(ftx_engine_trace_begin(engine, 100000, &err), &err);
    must(ftx_engine_encode(engine, &job, &err), &err);
    must(ftx_engine_trace_end(engine, words[2], &err), &err);
    ftx_engine_close(engine);
    ftx_model_close(model);
    return 0;
}
