/* offload.c - weights that stay in host memory: the pinned block, and the copies that a step makes of it.
 *
 *   stream   ... last launch of layer 22 | copy of layer 23 | first launch of layer 23 | ...
 *
 * All three are on the session's stream. The copy begins when the launches before it have ended, which have read the staging
 * area: a copy has no programmatic edge, and a kernel with one does not end before the previous kernel. The launch behind
 * the copy is enqueued without a programmatic edge, because kernels read weights before they wait (program.c). A program
 * that is a graph has the copies as nodes. */
#include "device_cuda.h"

#ifdef FTX_HAVE_CUDA
#include <stdio.h>

static double gb(uint64_t bytes)
{
    return (double)bytes * 1e-9;
}

/* --- open ----------------------------------------------------------------------------------------- */

FtxStatus cuda_offload_open(Device *d, const FtxOptions *o, FtxError *err)
{
    FtxStatus s;

    if (!o || (!o->gpu_layers && !o->gpu_memory))
        return FTX_OK;
    s = offload_open(&d->memory, d->artifact, d->plan, o->gpu_layers, o->gpu_memory, &d->offload, err);
    if (s || !d->offload->host_bytes)
        return s;
    s = cuda_check(d->cu,
                   d->cu->cuMemHostAlloc((void **)&d->host, d->offload->host_bytes,
                                         CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_PORTABLE),
                   err, "%.3f GB of pinned memory for weights (gpu_layers, gpu_memory)", gb(d->offload->host_bytes));
    if (s)
        d->host = NULL;
    return s ? s
             : cuda_check(d->cu, d->cu->cuMemHostGetDevicePointer(&d->host_rows, d->host, 0), err,
                          "mapping the weights in host memory");
}

typedef struct Probe {
    CUdeviceptr to;
    CUstream stream;
    CUevent event[2];
} Probe;

static FtxStatus open_probe(Device *d, size_t bytes, Probe *p, FtxError *err)
{
    const CudaDriver *cu = d->cu;
    FtxStatus s = cuda_check(cu, cu->cuMemAlloc(&p->to, bytes), err, "%zu bytes to time a copy", bytes);

    if (s)
        p->to = 0;
    if (!s && (s = cuda_check(cu, cu->cuStreamCreate(&p->stream, CU_STREAM_NON_BLOCKING), err, "a stream")))
        p->stream = NULL;
    for (int i = 0; i < 2 && !s; i++)
        if ((s = cuda_check(cu, cu->cuEventCreate(&p->event[i], CU_EVENT_DEFAULT), err, "an event")))
            p->event[i] = NULL;
    return s;
}

static void close_probe(Device *d, Probe *p)
{
    const CudaDriver *cu = d->cu;

    if (d->lost)
        return;
    for (int i = 0; i < 2; i++)
        if (p->event[i])
            cu->cuEventDestroy(p->event[i]);
    if (p->stream)
        cu->cuStreamDestroy(p->stream);
    if (p->to)
        cu->cuMemFree(p->to);
}

/* The second copy counts. */
static FtxStatus time_copy(Device *d, const Probe *p, size_t bytes, FtxError *err)
{
    const CudaDriver *cu = d->cu;
    float ms = 0.0f;
    FtxStatus s = cuda_check(cu, cu->cuMemcpyHtoDAsync(p->to, d->host, bytes, p->stream), err, "timing a copy");

    if (!s)
        s = cuda_check(cu, cu->cuEventRecord(p->event[0], p->stream), err, "timing a copy");
    if (!s)
        s = cuda_check(cu, cu->cuMemcpyHtoDAsync(p->to, d->host, bytes, p->stream), err, "timing a copy");
    if (!s)
        s = cuda_check(cu, cu->cuEventRecord(p->event[1], p->stream), err, "timing a copy");
    if (!s)
        s = cuda_wait_stream(d, p->stream, 1, err, "timing a copy");
    if (!s)
        s = cuda_check(cu, cu->cuEventElapsedTime(&ms, p->event[0], p->event[1]), err, "timing a copy");
    d->copy_rate = ms > 0.0f ? (double)bytes / ((double)ms * 1e-3) : 0.0;
    return s;
}

FtxStatus cuda_offload_measure(Device *d, FtxError *err)
{
    static const uint64_t most = 64 << 20; /* bytes: above, a copy has its full rate */
    const uint64_t staging = cuda_staging_bytes(d), bytes = staging < most ? staging : most;
    Probe p = {0};

    if (!bytes)
        return FTX_OK;
    FtxStatus s = open_probe(d, bytes, &p, err);
    if (!s && (s = time_copy(d, &p, bytes, err)))
        cuda_wait_stream(d, p.stream, 1, NULL, "timing a copy"); /* it may still read and write */
    close_probe(d, &p);
    return s;
}

/* --- a step --------------------------------------------------------------------------------------- */

uint64_t cuda_staging_bytes(const Device *d)
{
    return d->offload ? d->offload->staging_bytes : 0;
}

CUdeviceptr cuda_weight(const Session *s, uint64_t offset)
{
    const Device *d = s->device;
    uint64_t inside;

    if (!d->offload)
        return d->weights + offset;
    const OffloadWeight *w = &d->offload->weights[offload_find(d->artifact, offset, &inside)];
    return w->place == OFFLOAD_ROWS     ? d->host_rows + w->from + inside
           : w->place == OFFLOAD_COPIED ? s->staging + w->at + inside
                                        : d->weights + w->at + inside;
}

bool cuda_offload_copies(const Device *d, uint32_t launch)
{
    size_t n = 0;

    if (d->offload)
        offload_copies(d->offload, launch, &n);
    return n > 0;
}

FtxStatus cuda_offload_copy(Session *s, uint32_t launch, FtxError *err)
{
    const Device *d = s->device;
    size_t n = 0;
    const OffloadCopy *c = d->offload ? offload_copies(d->offload, launch, &n) : NULL;
    uint64_t bytes = 0;
    FtxStatus status = FTX_OK;

    for (size_t i = 0; i < n && !status; i++) {
        status = cuda_check(d->cu,
                            d->cu->cuMemcpyHtoDAsync(s->staging + c[i].at, d->host + c[i].from, c[i].bytes, s->stream),
                            err, "copying the weights of %s", cuda_launch_label(d, launch));
        bytes += c[i].bytes;
    }
    if (!n || status)
        return status;
    s->copied = true;
    return s->timeline ? cuda_timeline_copy(s, bytes, err) : FTX_OK;
}

/* --- what it says --------------------------------------------------------------------------------- */

void cuda_offload_tell(const Device *d, FtxModelInfo *info)
{
    const Offload *o = d->offload;

    if (!o)
        return;
    info->weight_bytes = o->gpu_bytes;
    info->engine_bytes += o->staging_bytes;
    info->host_weight_bytes = o->host_bytes;
    info->host_layers = o->layers - o->gpu_layers;
    info->copy_bytes = o->step_bytes;
    info->copy_us = d->copy_rate > 0.0 ? (uint64_t)((double)o->step_bytes / d->copy_rate * 1e6) : 0;
}

const char *cuda_offload_advice(const Device *d, uint64_t bytes, char *text, size_t text_bytes)
{
    Offload *o = NULL;

    *text = '\0';
    if (d->artifact->facts->ranks > 1 || offload_open(&d->memory, d->artifact, d->plan, 0, bytes, &o, NULL))
        return text;
    if (o->gpu_layers < o->layers)
        snprintf(text, text_bytes,
                 "; with gpu_layers (--gpu-layers) %u the weights of the other %u layers, %.1f GB, stay in host memory "
                 "and are copied in every step",
                 o->gpu_layers, o->layers - o->gpu_layers, gb(o->host_bytes - o->row_bytes));
    else
        snprintf(text, text_bytes, "; with gpu_memory (--gpu-memory) %lluM they fit", (unsigned long long)bytes >> 20);
    offload_close(o);
    return text;
}
#endif
