/* ranks_check.c - two GPUs that share a model, one of which is late or does not come: tokens after a delay are the same; a
 * GPU that is held for longer than FTX_PEER_TIMEOUT ends the requests in time with an error that names its rank; the
 * process opens the model again.
 *
 *     FTX_PEER_TIMEOUT=2 ranks_check FILE        FILE: compiled with -D parallel=2
 *
 * A kernel that fills GPU 1 holds it: rank 1's own kernels find no room until it ends. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "ftx.h"
#include "runtime/device/cuda/driver.h"

enum { NEW = 150, HOLD_AT = 30, HELD = 1 };

static const char spin_text[] = ".version 7.8\n.target sm_80\n.address_size 64\n"
                                ".visible .entry spin(.param .u64 ns)\n{\n"
                                "  .reg .u64 %n<5>;\n  .reg .pred %p;\n"
                                "  ld.param.u64 %n1, [ns];\n  mov.u64 %n2, %globaltimer;\n"
                                "again:\n  mov.u64 %n3, %globaltimer;\n  sub.u64 %n4, %n3, %n2;\n"
                                "  setp.lt.u64 %p, %n4, %n1;\n  @%p bra again;\n  ret;\n}\n";

typedef struct Holder {
    const CudaDriver *cu;
    CUcontext context;
    CUfunction spin;
    CUstream stream;
} Holder;

static void must(FtxStatus s, const FtxError *err)
{
    if (s) {
        fprintf(stderr, "ranks_check: %s\n", err->text);
        exit(1);
    }
}

static double seconds(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void call(const Holder *h, CUresult r, const char *what)
{
    FtxError err;

    must(cuda_check(h->cu, r, &err, "%s", what), &err);
}

static void open_holder(Holder *h)
{
    CUmodule module;
    CUcontext ours;
    FtxError err;

    must(cuda_driver(&h->cu, &err), &err);
    call(h, h->cu->cuInit(0), "cuInit");
    call(h, h->cu->cuDevicePrimaryCtxRetain(&h->context, HELD), "a context");
    call(h, h->cu->cuCtxPushCurrent(h->context), "a context");
    call(h, h->cu->cuModuleLoadDataEx(&module, spin_text, 0, NULL, NULL), "the kernel");
    call(h, h->cu->cuModuleGetFunction(&h->spin, module, "spin"), "the kernel");
    call(h, h->cu->cuFuncLoad(h->spin), "the kernel");
    call(h, h->cu->cuStreamCreate(&h->stream, CU_STREAM_NON_BLOCKING), "a stream");
    h->cu->cuCtxPopCurrent(&ours);
}

static void hold(const Holder *h, double s)
{
    unsigned long long ns = (unsigned long long)(s * 1e9);
    void *parameters[] = {&ns};
    const CUlaunchConfig c = {.gridDimX = 2 * 132,
                              .gridDimY = 1,
                              .gridDimZ = 1,
                              .blockDimX = 1024,
                              .blockDimY = 1,
                              .blockDimZ = 1,
                              .hStream = h->stream};
    CUcontext ours;

    call(h, h->cu->cuCtxPushCurrent(h->context), "a context");
    call(h, h->cu->cuLaunchKernelEx(&c, h->spin, parameters, NULL), "the kernel");
    h->cu->cuCtxPopCurrent(&ours);
}

typedef struct Run {
    int32_t ids[NEW];
    size_t n;
    double opened, seconds; /* to open; to generate, or to fail */
    FtxStatus status;
    FtxError err;
} Run;

/* Opens the model, generates, and closes it; GPU 1 is held from the 30th token on. */
static void generate(const char *path, const Holder *h, double held, Run *r)
{
    const FtxOptions options = {.size = sizeof(FtxOptions), .device = FTX_DEVICE_CUDA};
    static const int32_t prompt[] = {5, 6, 7};
    const double from = seconds();
    FtxModel *model = NULL;
    FtxEngine *engine = NULL;

    memset(r, 0, sizeof *r);
    must(ftx_model_open(path, &options, &model, &r->err), &r->err);
    must(ftx_engine_open(model, NULL, &engine, &r->err), &r->err);
    r->opened = seconds() - from;
    FtxRequest q = ftx_request_default(model);
    q.ids = prompt;
    q.ids_count = 3;
    q.max_new = NEW;
    q.ignore_eos = true;
    must(ftx_engine_submit(engine, &q, NULL, &r->err), &r->err);
    while (!r->status && ftx_engine_busy(engine)) {
        FtxEvent events[16] = {FTX_EVENT_INIT};
        size_t n = 0;

        r->status = ftx_engine_step(engine, events, 16, &n, &r->err);
        for (size_t i = 0; i < n; i++)
            if (events[i].token >= 0 && r->n < NEW)
                r->ids[r->n++] = events[i].token;
        if (r->n >= HOLD_AT && held > 0) {
            hold(h, held);
            held = 0;
        }
    }
    r->seconds = seconds() - from - r->opened;
    ftx_engine_close(engine);
    ftx_model_close(model);
}

static int check(bool ok, const char *what, const Run *r)
{
    printf("%s %s: %zu tokens in %.2f s, opened in %.2f s%s%s\n", ok ? "ok  " : "FAIL", what, r->n, r->seconds,
           r->opened, r->status ? ": " : "", r->status ? r->err.text : "");
    return !ok;
}

int main(int argc, char **argv)
{
    Run plain, late, absent, again;
    Holder h;
    int failures = 0;

    if (argc != 2) {
        fprintf(stderr, "ranks_check FILE\n");
        return 2;
    }
    open_holder(&h);
    generate(argv[1], &h, 0, &plain);
    failures += check(!plain.status && plain.n == NEW, "no delay", &plain);
    generate(argv[1], &h, 1.0, &late);
    failures +=
        check(!late.status && late.n == NEW && late.seconds > 0.9 && !memcmp(late.ids, plain.ids, sizeof plain.ids),
              "rank 1 late by 1 s", &late);
    generate(argv[1], &h, 8.0, &absent);
    failures += check(absent.status == FTX_EDEVICE && strstr(absent.err.text, "rank 1") && absent.n < NEW &&
                          absent.seconds > 1.5 && absent.seconds < 4 && !memcmp(absent.ids, plain.ids, absent.n * 4),
                      "rank 1 held for 8 s", &absent);
    generate(argv[1], &h, 0, &again);
    failures += check(!again.status && again.n == NEW && !memcmp(again.ids, plain.ids, sizeof plain.ids),
                      "opened again", &again);
    return failures != 0;
}
