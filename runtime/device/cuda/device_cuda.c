/* device_cuda.c - runs a plan on a GPU: code and weights on the device, programs as CUDA graphs.
 *
 * This file opens the device: chooses the GPU, checks that the plan's code is for it, loads the kernels eagerly,
 * chooses cuBLASLt's algorithms. The driver is used through a table, so that a machine without one, or a build
 * without CUDA, says so and does everything else. */
#include "device_cuda.h"

#include <stdio.h>
#include <string.h>

#include "activity.h"
#include "../../base/env.h"
#include "../../base/team.h"

#ifdef FTX_HAVE_CUDA

enum {
    PATIENCE_SECONDS = 120, /* a step takes milliseconds, a long prompt of a large model some seconds */
    MOST_SECONDS = 1000000,
};

/* --- which GPU ------------------------------------------------------------------------------------ */

static FtxStatus find_device(const CudaDriver *cu, int ordinal, CUdevice *device, int *cc, FtxError *err)
{
    int count = 0, major = 0, minor = 0;
    FtxStatus s = cuda_check(cu, cu->cuInit(0), err, "the CUDA driver does not start");

    if (!s)
        s = cuda_check(cu, cu->cuDeviceGetCount(&count), err, "counting GPUs");
    if (s) {
        if (err)
            err->status = FTX_ENODEVICE;
        return FTX_ENODEVICE;
    }
    if (count == 0)
        return ftx_fail(err, FTX_ENODEVICE, "the CUDA driver sees no GPU");
    if (ordinal < 0 || ordinal >= count)
        return ftx_fail(err, FTX_ENODEVICE, "no GPU %d: there %s %d, counted from 0", ordinal,
                        count == 1 ? "is" : "are", count);
    s = cuda_check(cu, cu->cuDeviceGet(device, ordinal), err, "GPU %d", ordinal);
    if (!s)
        s = cuda_check(cu, cu->cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, *device), err,
                       "GPU %d", ordinal);
    if (!s)
        s = cuda_check(cu, cu->cuDeviceGetAttribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, *device), err,
                       "GPU %d", ordinal);
    *cc = major * 10 + minor;
    return s;
}

/* From sm_90 on the 'a' target has all features of the GPU. */
static uint32_t target_of(int cc)
{
    return (uint32_t)cc * 10 + (cc >= 90 ? 1 : 0);
}

FtxStatus device_cuda_probe(int ordinal, uint32_t *target, FtxError *err)
{
    const CudaDriver *cu;
    CUdevice device;
    int cc = 0;
    FtxStatus s = cuda_driver(&cu, err);

    if (!s)
        s = find_device(cu, ordinal, &device, &cc, err);
    *target = target_of(cc);
    return s;
}

FtxStatus device_cuda_name(int ordinal, char *name, size_t bytes, FtxError *err)
{
    const CudaDriver *cu;
    CUdevice device;
    int cc;
    FtxStatus s = cuda_driver(&cu, err);

    if (!s)
        s = find_device(cu, ordinal, &device, &cc, err);
    return s ? s : cuda_check(cu, cu->cuDeviceGetName(name, (int)bytes, device), err, "GPU %d", ordinal);
}

FtxStatus device_cuda_facts(int ordinal, CudaFacts *f, FtxError *err)
{
    const CudaDriver *cu;
    CUdevice device;
    CUcontext context;
    int cc = 0;
    FtxStatus s = cuda_driver(&cu, err);

    if (!s)
        s = find_device(cu, ordinal, &device, &cc, err);
    if (s)
        return s;
    f->target = target_of(cc);
    cu->cuDriverGetVersion(&f->driver);
    cu->cuDeviceGetCount(&f->gpus);
    f->sms = f->memory_mhz = 0;
    cu->cuDeviceGetAttribute(&f->sms, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device);
    cu->cuDeviceGetAttribute(&f->memory_mhz, CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE, device); /* kHz */
    f->memory_mhz /= 1000;
    s = cuda_check(cu, cu->cuDeviceGetName(f->name, sizeof f->name, device), err, "GPU %d", ordinal);
    if (!s)
        s = cuda_check(cu, cu->cuDevicePrimaryCtxRetain(&context, device), err, "a context on GPU %d", ordinal);
    if (s)
        return s;
    s = cuda_check(cu, cu->cuCtxPushCurrent(context), err, "a context on GPU %d", ordinal);
    if (!s) {
        s = cuda_check(cu, cu->cuMemGetInfo(&f->memory_free, &f->memory), err, "memory of GPU %d", ordinal);
        cu->cuCtxPopCurrent(&context);
    }
    cu->cuDevicePrimaryCtxRelease(device);
    return s;
}

FtxStatus device_cuda_blas(size_t *version, FtxError *err)
{
    return lt_version(version, err);
}

FtxStatus device_cuda_cupti(FtxError *err)
{
    return activity_find(err);
}

FtxStatus device_cuda_nccl(int *version, FtxError *err)
{
    return nccl_version(version, err);
}

/* Code for a target runs on compute capability cc: an 'a' target only there, a plain one on later GPUs of its major
 * number, PTX on all later ones. */
static bool serves(uint32_t target, int cc)
{
    const uint32_t of = target / 10, form = target % 10, gpu = (uint32_t)cc;

    if (form == 1)
        return of == gpu;
    return form == 2 ? of <= gpu : of <= gpu && of / 10 == gpu / 10;
}

static FtxStatus take_device(Device *d, int ordinal, FtxError *err)
{
    const CudaDriver *cu = d->cu;
    int cc = 0, sms = 0;
    FtxStatus s = find_device(cu, ordinal, &d->device, &cc, err);

    if (s)
        return s;
    if (!serves(d->plan->head->target, cc))
        return ftx_fail(err, FTX_ENODEVICE, "GPU %d has compute capability %d.%d; this code is for %u.%u%s", ordinal,
                        cc / 10, cc % 10, d->plan->head->target / 100, d->plan->head->target / 10 % 10,
                        d->plan->head->target % 10 == 1 ? " alone" : "");
    s = cuda_check(cu, cu->cuDeviceGetName(d->name, sizeof d->name, d->device), err, "GPU %d", ordinal);
    if (!s)
        s = cuda_check(cu, cu->cuDeviceGetAttribute(&sms, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, d->device), err,
                       "GPU %d", ordinal);
    if (!s)
        s = cuda_check(cu, cu->cuDevicePrimaryCtxRetain(&d->context, d->device), err, "a context on GPU %d", ordinal);
    if (s)
        d->context = NULL;
    d->sms = sms;
    d->overlap = cc >= 90;
    return s;
}

/* --- code ----------------------------------------------------------------------------------------- */

/* The module of kernel i: its own, or that of an earlier kernel with the same image. */
static FtxStatus load_module(Device *d, uint32_t i, CUmodule *module, FtxError *err)
{
    const FtxKernel *k = &d->plan->kernels[i];
    char log[400] = "";
    CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
    void *values[] = {log, (void *)(uintptr_t)sizeof log};

    for (uint32_t j = 0; j < i; j++) {
        if (d->module[j] && d->plan->kernels[j].code_at == k->code_at) {
            *module = d->module[j];
            return FTX_OK;
        }
    }
    const CUresult r =
        d->cu->cuModuleLoadDataEx(&d->module[i], (const char *)d->plan->cubin + k->code_at, 2, options, values);
    if (r)
        d->module[i] = NULL;
    *module = d->module[i];
    log[sizeof log - 1] = '\0';
    return cuda_check(d->cu, r, err, "loading %s%s%.300s", cuda_kernel_name(d, i), *log ? ": " : "", log);
}

/* The kernel takes one struct: a pointer for each operand. */
static FtxStatus check_parameters(const Device *d, uint32_t i, FtxError *err)
{
    const uint32_t pointers = d->plan->kernels[i].n_operands;
    size_t at, bytes;
    const FtxStatus s = cuda_check(d->cu, d->cu->cuFuncGetParamInfo(d->function[i], 0, &at, &bytes), err,
                                   "the parameters of %s", cuda_kernel_name(d, i));

    if (!s && bytes != sizeof(CUdeviceptr) * pointers)
        return ftx_fail(err, FTX_EFORMAT, "%s takes %zu bytes of parameters, not a struct of %u pointers",
                        cuda_kernel_name(d, i), bytes, pointers);
    return s;
}

/* Sets dynamic shared memory. Kernels with programmatic dependent launch all ask for the largest carveout: an SM
 * that has to change the carveout between two of them would drain first. */
static FtxStatus set_shared_memory(const Device *d, uint32_t i, FtxError *err)
{
    const FtxKernel *k = &d->plan->kernels[i];
    const CudaDriver *cu = d->cu;
    FtxStatus s = FTX_OK;

    if (k->smem)
        s = cuda_check(
            cu, cu->cuFuncSetAttribute(d->function[i], CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, (int)k->smem),
            err, "%u bytes of shared memory for %s", k->smem, cuda_kernel_name(d, i));
    if (!s && (k->flags & FTX_KERNEL_OVERLAP))
        s = cuda_check(cu,
                       cu->cuFuncSetAttribute(d->function[i], CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT,
                                              CU_SHAREDMEM_CARVEOUT_MAX_SHARED),
                       err, "the share of shared memory for %s", cuda_kernel_name(d, i));
    return s;
}

static FtxStatus check_block(const Device *d, uint32_t i, FtxError *err)
{
    int most = 0;
    const FtxStatus s =
        cuda_check(d->cu, d->cu->cuFuncGetAttribute(&most, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, d->function[i]),
                   err, "the limits of %s", cuda_kernel_name(d, i));

    if (!s && (d->plan->kernels[i].block == 0 || d->plan->kernels[i].block > (uint32_t)most))
        return ftx_fail(err, FTX_EFORMAT, "%s runs in blocks of at most %d threads, not of %u", cuda_kernel_name(d, i),
                        most, d->plan->kernels[i].block);
    return s;
}

static FtxStatus load_kernel(Device *d, uint32_t i, FtxError *err)
{
    const CudaDriver *cu = d->cu;
    CUmodule module = NULL;
    FtxStatus s = load_module(d, i, &module, err);

    if (!s)
        s = cuda_check(cu, cu->cuModuleGetFunction(&d->function[i], module, cuda_kernel_name(d, i)), err,
                       "finding %s in its code", cuda_kernel_name(d, i));
    if (!s)
        s = cuda_check(cu, cu->cuFuncLoad(d->function[i]), err, "loading %s", cuda_kernel_name(d, i));
    if (!s)
        s = check_parameters(d, i, err);
    if (!s)
        s = check_block(d, i, err);
    return s ? s : set_shared_memory(d, i, err);
}

static FtxStatus load_kernels(Device *d, FtxError *err)
{
    FtxStatus s = FTX_OK;

    for (uint32_t i = 0; i < d->plan->n_kernels && !s; i++) {
        const uint32_t kind = d->plan->kernels[i].kind;

        if (kind == FTX_KERNEL_CUDA)
            s = load_kernel(d, i, err);
        else if (kind != FTX_KERNEL_MATMUL)
            s = ftx_fail(err, FTX_EFORMAT, "%s is no kernel for a GPU", cuda_kernel_name(d, i));
    }
    return s;
}

/* --- matrix products ------------------------------------------------------------------------------ */

static FtxStatus open_matmul(Device *d, const FtxProgram *p, uint32_t launch, FtxError *err)
{
    const FtxLaunch *l = &d->plan->launches[launch];
    const FtxKernel *k = &d->plan->kernels[l->kernel];
    const FtxOperand *o = &d->plan->operands[l->first_operand]; /* x w b r y */
    const int64_t *c = &d->plan->consts[k->first_const];

    if (k->n_consts < FTX_MM_CONSTS || k->n_operands != 5)
        return ftx_fail(err, FTX_EFORMAT, "%s has %u constants and %u operands, not %d and 5",
                        cuda_kernel_name(d, l->kernel), k->n_consts, k->n_operands, FTX_MM_CONSTS);
    const LtShape shape = {
        .rows = cuda_most_rows(d, p, c[FTX_MM_ROWS_S] != 0),
        .n = c[FTX_MM_N],
        .k = c[FTX_MM_K],
        .x = (DType)c[FTX_MM_TYPE_X],
        .w = (DType)c[FTX_MM_TYPE_W],
        .y = (DType)c[FTX_MM_TYPE_Y],
        .act = (FtxAct)c[FTX_MM_ACT],
        .bias = o[2].space != FTX_SPACE_NULL,
        .residual = o[3].space != FTX_SPACE_NULL,
        .measured = k->n_consts > FTX_MM_CONSTS ? c + FTX_MM_CONSTS + 1 : NULL,
        .n_measured = k->n_consts > FTX_MM_CONSTS ? (k->n_consts - FTX_MM_CONSTS) / FTX_MM_RECORD : 0,
        .version = k->n_consts > FTX_MM_CONSTS ? c[FTX_MM_CONSTS] : 0,
    };
    for (int i = 0; i < 5; i++)
        if (o[i].offset % 16)
            return ftx_fail(err, FTX_EFORMAT, "%s: operand %d is not at a multiple of 16 bytes",
                            cuda_launch_label(d, launch), i);
    for (uint32_t i = 0; i < launch; i++) {
        if (d->matmul[i] && lt_equal(d->matmul[i], &shape)) {
            d->matmul[launch] = d->matmul[i];
            return FTX_OK;
        }
    }
    const FtxStatus s = d->lt ? FTX_OK : lt_start(&d->lt, err);
    return s ? s
             : ftx_context(err, lt_open(&d->memory, d->lt, &shape, &d->matmul[launch], err), "%s",
                           cuda_launch_label(d, launch));
}

static FtxStatus open_matmuls(Device *d, FtxError *err)
{
    FtxStatus s = FTX_OK;

    for (uint32_t i = 0; i < d->plan->n_programs; i++) {
        const FtxProgram *p = &d->plan->programs[i];

        for (uint32_t j = 0; j < p->n_launches && !s; j++)
            if (d->plan->kernels[d->plan->launches[p->first_launch + j].kernel].kind == FTX_KERNEL_MATMUL)
                s = open_matmul(d, p, p->first_launch + j, err);
    }
    return s;
}

/* --- open and close ------------------------------------------------------------------------------- */

static size_t lay_out(Device *d, Carve *c, const ArtifactPlan *p)
{
    carve(c, 1, sizeof(Device));
    CUmodule *module = carve(c, p->n_kernels, sizeof *module);
    CUfunction *function = carve(c, p->n_kernels, sizeof *function);
    LtMatmul **matmul = carve(c, p->n_launches, sizeof *matmul);
    Brought *brought = carve(c, p->n_kernels, sizeof *brought);

    if (d) {
        d->module = module;
        d->function = function;
        d->matmul = matmul;
        d->brought = brought;
    }
    return c->at;
}

static void close_matmuls(Device *d)
{
    for (uint32_t i = 0; i < d->plan->n_launches; i++) {
        LtMatmul *l = d->matmul[i];

        for (uint32_t j = i; j < d->plan->n_launches && l; j++)
            if (d->matmul[j] == l)
                d->matmul[j] = NULL;
        lt_close(l);
    }
    if (!d->lost)
        lt_stop(d->lt);
}

static void cuda_close(Device *d)
{
    if (!d)
        return;

    const Memory m = d->memory;

    close_matmuls(d);
    if (d->context && !d->lost && !cuda_enter(d, NULL)) {
        for (uint32_t i = 0; i < d->plan->n_kernels; i++)
            if (d->module[i])
                d->cu->cuModuleUnload(d->module[i]);
        if (d->weights)
            d->cu->cuMemFree(d->weights);
        if (d->host)
            d->cu->cuMemFreeHost(d->host);
        cuda_leave(d);
    }
    offload_close(d->offload);
    if (d->context && !d->lost)
        d->cu->cuDevicePrimaryCtxRelease(d->device);
    memory_free(&m, d, d->bytes);
}

static FtxStatus fill_device(Device *d, const FtxOptions *o, FtxError *err)
{
    FtxStatus s = cuda_enter(d, err);

    if (s)
        return s;
    s = load_kernels(d, err);
    if (!s)
        s = open_matmuls(d, err);
    if (!s)
        s = cuda_offload_open(d, o, err);
    if (!s)
        s = cuda_weights(d, o ? o->random_weights : 0, err);
    if (!s)
        s = cuda_offload_measure(d, err);
    cuda_leave(d);
    return s;
}

/* A line for the log about measured algorithms that are not for this library. */
static void tell_ignored(const Device *d, const FtxOptions *o)
{
    uint32_t ignored = 0, all = 0;
    char text[200];

    for (uint32_t i = 0; i < d->plan->n_launches; i++) {
        bool seen = !d->matmul[i];

        for (uint32_t j = 0; j < i && !seen; j++)
            seen = d->matmul[j] == d->matmul[i];
        ignored += seen ? 0 : lt_ignored(d->matmul[i]);
        all += seen ? 0 : lt_measured(d->matmul[i]);
    }
    if (!ignored || !o || !o->log)
        return;
    snprintf(text, sizeof text,
             "%u of %u measured cuBLASLt algorithms are not for this version of the library: it chooses itself",
             ignored, all);
    o->log(o->log_user, 0, text);
}

static FtxStatus cuda_open(const Artifact *a, const ArtifactPlan *plan, const FtxOptions *o, Device **out,
                           FtxError *err)
{
    const Memory m = memory_of(o);
    const CudaDriver *cu;
    Carve size = {NULL, 0};
    int patience;
    FtxStatus s = env_int(ENV_FTX_PATIENCE, 0, MOST_SECONDS, PATIENCE_SECONDS, &patience, err);

    *out = NULL;
    if (!s)
        s = cuda_driver(&cu, err);
    if (s)
        return s;
    const size_t bytes = lay_out(NULL, &size, plan);
    Device *d = memory_alloc(&m, bytes, 64);
    if (!d)
        return memory_fail(err, "the device", bytes);
    lay_out(d, &(Carve){(char *)d, 0}, plan);
    d->memory = m;
    d->patience = patience;
    d->bytes = bytes;
    d->cu = cu;
    d->artifact = a;
    d->plan = plan;
    d->threads = o && o->threads ? o->threads : team_default_threads();
    d->processes = a->facts->ranks > 1 && env_text(ENV_FTX_MASTER);
    s = d->processes ? cuda_exchange_find(d, err) : FTX_OK;
    if (!s)
        s = take_device(d, o ? o->ordinal : 0, err);
    if (!s)
        s = fill_device(d, o, err);
    if (s) {
        cuda_close(d);
        return s;
    }
    tell_ignored(d, o);
    *out = d;
    return FTX_OK;
}

static const char *cuda_describe(const Device *d)
{
    return d->name;
}

const DeviceApi device_cuda = {
    .name = "cuda",
    .open = cuda_open,
    .close = cuda_close,
    .describe = cuda_describe,
    .tell = cuda_offload_tell,
    .session_open = cuda_session_open,
    .session_close = cuda_session_close,
    .join = cuda_session_join,
    .join_word = nccl_id,
    .join_links = cuda_session_join_links,
    .stop = cuda_session_stop,
    .check = cuda_session_peers,
    .io = cuda_session_io,
    .out = cuda_session_out,
    .upload = cuda_session_upload,
    .settle = cuda_session_settle,
    .write = cuda_session_write,
    .read = cuda_session_read,
    .owns = cuda_session_owns,
    .follow = cuda_session_follow,
    .copy_in = cuda_session_copy_in,
    .copy_out = cuda_session_copy_out,
    .clear = cuda_session_clear,
    .keep_open = cuda_session_keep_open,
    .keep = cuda_session_keep,
    .wipe = cuda_session_wipe,
    .snapshot = cuda_session_snapshot,
    .run = cuda_program_run,
    .masks = cuda_session_masks,
    .begin = cuda_program_begin,
    .finish = cuda_program_finish,
    .wait = cuda_session_wait,
    .asynchronous = true,
    .profile = cuda_program_profile,
    .time = cuda_program_time,
    .trace = cuda_timeline,
};

#else /* no cuda.h when this was built */

static FtxStatus no_cuda(FtxError *err)
{
    return ftx_fail(err, FTX_ENODEVICE, "this runtime was built without the CUDA parts");
}

FtxStatus device_cuda_probe(int ordinal, uint32_t *target, FtxError *err)
{
    (void)ordinal;
    *target = 0;
    return no_cuda(err);
}

FtxStatus device_cuda_name(int ordinal, char *name, size_t bytes, FtxError *err)
{
    (void)ordinal, (void)name, (void)bytes;
    return no_cuda(err);
}

FtxStatus device_cuda_facts(int ordinal, CudaFacts *f, FtxError *err)
{
    (void)ordinal, (void)f;
    return no_cuda(err);
}

FtxStatus device_cuda_blas(size_t *version, FtxError *err)
{
    (void)version;
    return no_cuda(err);
}

FtxStatus device_cuda_cupti(FtxError *err)
{
    return no_cuda(err);
}

FtxStatus device_cuda_nccl(int *version, FtxError *err)
{
    *version = 0;
    return no_cuda(err);
}

FtxStatus device_cuda_algorithms(Session *s, uint32_t program, uint32_t kernel, int64_t rows, DeviceAlgorithm *out,
                                 size_t most, size_t *n, FtxError *err)
{
    (void)s, (void)program, (void)kernel, (void)rows, (void)out, (void)most;
    *n = 0;
    return no_cuda(err);
}

static FtxStatus cuda_open(const Artifact *a, const ArtifactPlan *plan, const FtxOptions *o, Device **out,
                           FtxError *err)
{
    (void)a, (void)plan, (void)o;
    *out = NULL;
    return no_cuda(err);
}

const DeviceApi device_cuda = {.name = "cuda", .open = cuda_open, .asynchronous = true};
#endif
