/* weights.c - the weights: copied from the artifact, or drawn from a seed, to the device, or where offload.h has them in host
 * memory, there.
 *
 * A stored block goes through two pieces of pinned memory: while one is copied to the device, a team of threads
 * fills the other from the mapped file (one thread would reach a fifth of the bus). Random weights are drawn in
 * place by the kernel `random`, which every plan for a GPU has; only tables are copied. */
#include "device_cuda.h"

#ifdef FTX_HAVE_CUDA
#include <string.h>

#include "../../../kernels/device/io.h"
#include "../../base/expr.h"
#include "../random.h"
#include "../../base/packed.h"
#include "../../../kernels/device/fill.h"
#include "../../base/team.h"

enum { PIECES = 2 };
static const size_t piece_most = 32 << 20; /* bytes */
static const size_t share_align = 256;     /* between threads: whole elements, whole lines */

/* --- stored -------------------------------------------------------------------------------- */

typedef struct Fill { /* one piece */
    const char *from; /* in the artifact */
    uint64_t bytes;
    char *to;
} Fill;

static void fill_share(void *user, int piece, int share, int shares)
{
    const Fill *f = user;
    const uint64_t lines = (f->bytes + share_align - 1) / share_align;
    const uint64_t first = lines * (uint64_t)share / (uint64_t)shares * share_align;
    const uint64_t end = lines * (uint64_t)(share + 1) / (uint64_t)shares * share_align;
    const uint64_t last = end < f->bytes ? end : f->bytes;

    (void)piece;
    if (first < last)
        memcpy(f->to + first, f->from + first, last - first);
}

typedef struct Staging {
    Team *team;
    CUstream stream;
    char *pinned; /* PIECES pieces */
    size_t piece;
    CUevent copied[PIECES];
    uint64_t pieces; /* that were copied */
} Staging;

static void close_staging(Device *d, Staging *g)
{
    team_close(g->team);
    if (d->lost)
        return;
    for (int i = 0; i < PIECES; i++)
        if (g->copied[i])
            d->cu->cuEventDestroy(g->copied[i]);
    if (g->stream)
        d->cu->cuStreamDestroy(g->stream);
    if (g->pinned)
        d->cu->cuMemFreeHost(g->pinned);
}

static FtxStatus open_staging(Device *d, uint64_t bytes, Staging *g, FtxError *err)
{
    const CudaDriver *cu = d->cu;
    FtxStatus s = team_open(&d->memory, d->threads, &g->team, err);

    g->piece = bytes < piece_most ? (bytes + share_align - 1) / share_align * share_align : piece_most;
    if (!s)
        s = cuda_check(cu, cu->cuMemHostAlloc((void **)&g->pinned, PIECES * g->piece, 0), err,
                       "%zu bytes of pinned memory to copy weights through", PIECES * g->piece);
    if (!s)
        s = cuda_check(cu, cu->cuStreamCreate(&g->stream, CU_STREAM_NON_BLOCKING), err, "a stream for the weights");
    for (int i = 0; i < PIECES && !s; i++)
        s = cuda_check(cu, cu->cuEventCreate(&g->copied[i], CU_EVENT_DISABLE_TIMING), err, "an event for the weights");
    return s;
}

static FtxStatus copy_piece(Device *d, Staging *g, Fill f, CUdeviceptr to, FtxError *err)
{
    const CudaDriver *cu = d->cu;
    const int i = (int)(g->pieces % PIECES);
    FtxStatus s = FTX_OK;

    if (g->pieces++ >= PIECES)
        s = cuda_wait_event(d, g->copied[i], err, "copying weights");
    if (s)
        return s;
    f.to = g->pinned + (size_t)i * g->piece;
    team_run(g->team, fill_share, &f, 1);
    s = cuda_check(cu, cu->cuMemcpyHtoDAsync(to, f.to, f.bytes, g->stream), err, "copying weights");
    if (!s)
        s = cuda_check(cu, cu->cuEventRecord(g->copied[i], g->stream), err, "copying weights");
    return s;
}

/* Stored bytes to their place. */
static FtxStatus copy_span(Device *d, Staging *g, const OffloadSpan *span, FtxError *err)
{
    const char *from = (const char *)d->artifact->weight_data + span->stored;
    FtxStatus s = FTX_OK;

    if (span->place != OFFLOAD_GPU) {
        team_run(g->team, fill_share, &(Fill){from, span->bytes, d->host + span->to}, 1);
        return FTX_OK;
    }
    for (uint64_t at = 0; at < span->bytes && !s; at += g->piece) {
        const uint64_t left = span->bytes - at;

        s = copy_piece(d, g, (Fill){from + at, left < g->piece ? left : g->piece, NULL}, d->weights + span->to + at,
                       err);
    }
    return s;
}

static FtxStatus copy_stored(Device *d, uint64_t bytes, FtxError *err)
{
    const OffloadSpan whole = {OFFLOAD_GPU, 0, 0, bytes};
    OffloadSpan span;
    Staging g = {0};
    uint32_t at = 0;
    FtxStatus s = open_staging(d, bytes, &g, err);

    if (!d->offload && !s)
        s = copy_span(d, &g, &whole, err);
    while (d->offload && !s && offload_span(d->offload, &at, &span))
        s = copy_span(d, &g, &span, err);
    if (g.stream) { /* also after a failure: the pinned memory may be in use */
        const FtxStatus end = cuda_wait_stream(d, g.stream, 1, s ? NULL : err, "copying weights");

        s = s ? s : end;
    }
    close_staging(d, &g);
    return s;
}

/* --- drawn from a seed ------------------------------------------------------------------------ */

/* The plan's kernel of a family that no program launches; n_kernels: none. */
static uint32_t find_kernel(const Device *d, const char *family)
{
    uint32_t i = 0;

    while (i < d->plan->n_kernels && strcmp(artifact_string(d->artifact, d->plan->kernels[i].family), family) != 0)
        i++;
    return i;
}

/* What a kernel draws: elements of one type, or codes. */
typedef union Drawn {
    FtxFill elements;
    FtxCodesFill codes;
} Drawn;

static Drawn drawn_of(const Artifact *a, uint32_t i, uint64_t seed)
{
    const FtxWeight *w = &a->weights[i];
    const bool matrix = artifact_is_matrix(w);
    Drawn d;

    if (packed_type(w->type))
        d.codes = (FtxCodesFill){
            .offset = w->offset,
            .tiles = (unsigned)packed_tiles(w->dim[0]),
            .codes = (unsigned)packed_codes(w->type, w->dim[1]),
            .groups = (unsigned)(w->dim[1] / w->group * PACKED_ROWS),
            .scales = w->scales,
            .zero = packed_zero(w->type),
            .key = random_key(seed, random_index(a, i)),
            .scale = random_code_scale(w),
        };
    else
        d.elements = (FtxFill){
            .offset = w->offset,
            .elements = w->bytes / dtype_size(w->type),
            .key = random_key(seed, random_index(a, i)),
            .scale = matrix                       ? random_scale(w)
                     : w->kind == FTX_WEIGHT_GAIN ? 1.0f
                                                  : 0.0f,
            .type = (int)w->type,
            .constant = w->kind == FTX_WEIGHT_CENTRED ? 2 : !matrix,
        };
    return d;
}

/* block: where the fill's offset counts from. */
static FtxStatus draw_one(Device *d, uint32_t kernel, CUdeviceptr block, CUdeviceptr fill, CUstream stream,
                          FtxError *err)
{
    const FtxKernel *k = &d->plan->kernels[kernel];
    CUdeviceptr operands[2] = {block, fill};
    void *params[] = {operands};
    const int64_t variables[VAR_COUNT] = {[VAR_T] = 1, [VAR_S] = 1, [VAR_SMS] = d->sms};
    uint32_t grid[3];
    FtxStatus s = cuda_grid(d, kernel, variables, grid, err);

    if (s)
        return s;
    const CUlaunchConfig config = {.gridDimX = grid[0],
                                   .gridDimY = grid[1],
                                   .gridDimZ = grid[2],
                                   .blockDimX = k->block,
                                   .blockDimY = 1,
                                   .blockDimZ = 1,
                                   .hStream = stream};

    return cuda_check(d->cu, d->cu->cuLaunchKernelEx(&config, d->function[kernel], params, NULL), err,
                      "drawing random weights");
}

/* Memory for drawing, beside the block itself. */
typedef struct Drawing {
    uint32_t elements, codes; /* the kernels; of codes n_kernels where no weight has any */
    CUstream stream;
    Drawn *fills;     /* one for each weight, then all tables; pinned */
    CUdeviceptr at;   /* the fills on the device */
    CUdeviceptr room; /* for the largest weight in host memory, which is drawn there and copied; 0: there is none */
} Drawing;

static OffloadPlace place_of(const Device *d, uint32_t i)
{
    return d->offload ? d->offload->weights[i].place : OFFLOAD_GPU;
}

static bool in_host(const Device *d, uint32_t i)
{
    return place_of(d, i) == OFFLOAD_COPIED || place_of(d, i) == OFFLOAD_ROWS;
}

static uint64_t most_in_host(const Device *d)
{
    const Artifact *a = d->artifact;
    uint64_t most = 0;

    for (uint32_t i = 0; i < a->n_weights; i++)
        if (in_host(d, i) && a->weights[i].kind != FTX_WEIGHT_TABLE && a->weights[i].bytes > most)
            most = a->weights[i].bytes;
    return most;
}

static uint64_t table_bytes(const Artifact *a)
{
    uint64_t bytes = 0;

    for (uint32_t i = 0; i < a->n_weights; i++)
        bytes += a->weights[i].kind == FTX_WEIGHT_TABLE ? a->weights[i].bytes : 0;
    return bytes;
}

static bool has_codes(const Artifact *a)
{
    uint32_t i = 0;

    while (i < a->n_weights && !packed_type(a->weights[i].type))
        i++;
    return i < a->n_weights;
}

static bool draws(const Device *d, uint32_t kernel)
{
    return kernel < d->plan->n_kernels && d->plan->kernels[kernel].n_operands == 2;
}

static FtxStatus open_drawing(Device *d, Drawing *g, FtxError *err)
{
    const CudaDriver *cu = d->cu;
    const size_t bytes = (d->artifact->n_weights + 1) * sizeof *g->fills;
    const size_t pinned = bytes + table_bytes(d->artifact), room = most_in_host(d);
    FtxStatus s = FTX_OK;

    g->elements = find_kernel(d, "random");
    g->codes = find_kernel(d, "random_codes");
    if (!draws(d, g->elements) || (has_codes(d->artifact) && !draws(d, g->codes)))
        return ftx_fail(err, FTX_EFORMAT, "the artifact has no kernel that draws random weights: compile it anew");
    s = cuda_check(cu, cu->cuMemHostAlloc((void **)&g->fills, pinned, 0), err, "%zu bytes of pinned memory", pinned);
    if (!s)
        s = cuda_check(cu, cu->cuMemAlloc(&g->at, bytes), err, "%zu bytes for what to draw", bytes);
    if (!s && room && (s = cuda_check(cu, cu->cuMemAlloc(&g->room, room), err, "%zu bytes to draw in", room)))
        g->room = 0;
    if (!s)
        s = cuda_check(cu, cu->cuStreamCreate(&g->stream, CU_STREAM_NON_BLOCKING), err, "a stream for the weights");
    return s;
}

static void close_drawing(Device *d, Drawing *g)
{
    if (d->lost)
        return;
    if (g->stream)
        d->cu->cuStreamDestroy(g->stream);
    if (g->at)
        d->cu->cuMemFree(g->at);
    if (g->room)
        d->cu->cuMemFree(g->room);
    if (g->fills)
        d->cu->cuMemFreeHost(g->fills);
}

/* Draws weight i: in its place on the GPU, or in g->room, from where it is copied to the host. */
static FtxStatus draw_weight(Device *d, const Drawing *g, uint32_t i, FtxError *err)
{
    const FtxWeight *w = &d->artifact->weights[i];
    const uint32_t kernel = packed_type(w->type) ? g->codes : g->elements;
    const CUdeviceptr fill = g->at + i * sizeof *g->fills;
    FtxStatus s;

    if (!in_host(d, i))
        return draw_one(d, kernel, d->weights, fill, g->stream, err);
    s = cuda_check(d->cu, d->cu->cuMemsetD8Async(g->room, 0, w->bytes, g->stream), err, "clearing a weight");
    if (!s)
        s = draw_one(d, kernel, g->room, fill, g->stream, err);
    return s ? s
             : cuda_check(d->cu,
                          d->cu->cuMemcpyDtoHAsync(d->host + d->offload->weights[i].from, g->room, w->bytes, g->stream),
                          err, "copying a weight to host memory");
}

/* *table: room for it in pinned memory. */
static FtxStatus copy_table(Device *d, const Drawing *g, uint32_t i, char **table, FtxError *err)
{
    const FtxWeight *w = &d->artifact->weights[i];

    if (in_host(d, i)) {
        memcpy(d->host + d->offload->weights[i].from, artifact_weight(d->artifact, i), w->bytes);
        return FTX_OK;
    }
    char *from = memcpy(*table, artifact_weight(d->artifact, i), w->bytes);
    *table += w->bytes;
    return cuda_check(d->cu,
                      d->cu->cuMemcpyHtoDAsync(d->weights + (d->offload ? d->offload->weights[i].at : w->offset), from,
                                               w->bytes, g->stream),
                      err, "copying a table");
}

/* The fill of weight i, at its place. */
static Drawn placed(const Device *d, uint32_t i, uint64_t seed)
{
    const bool codes = packed_type(d->artifact->weights[i].type);
    Drawn fill = drawn_of(d->artifact, i, seed);
    const uint64_t at = in_host(d, i) ? 0 : d->offload ? d->offload->weights[i].at : d->artifact->weights[i].offset;

    if (codes)
        fill.codes.offset = at;
    else
        fill.elements.offset = at;
    return fill;
}

static FtxStatus draw_each(Device *d, uint64_t seed, uint64_t bytes, const Drawing *g, FtxError *err)
{
    const Artifact *a = d->artifact;
    const CudaDriver *cu = d->cu;
    char *table = (char *)(g->fills + a->n_weights);
    FtxStatus s = FTX_OK;

    for (uint32_t i = 0; i < a->n_weights; i++)
        g->fills[i] = placed(d, i, seed);
    if (bytes)
        s = cuda_check(cu, cu->cuMemsetD8Async(d->weights, 0, bytes, g->stream), err, "clearing the weights");
    if (!s && a->n_weights)
        s = cuda_check(cu, cu->cuMemcpyHtoDAsync(g->at, g->fills, a->n_weights * sizeof *g->fills, g->stream), err,
                       "what to draw");
    for (uint32_t i = 0; i < a->n_weights && !s; i++) {
        if (place_of(d, i) != OFFLOAD_UNUSED)
            s = a->weights[i].kind == FTX_WEIGHT_TABLE ? copy_table(d, g, i, &table, err) : draw_weight(d, g, i, err);
    }
    return s;
}

static FtxStatus draw_all(Device *d, uint64_t seed, uint64_t bytes, FtxError *err)
{
    Drawing g = {0};
    FtxStatus s = open_drawing(d, &g, err);

    if (!s) {
        s = draw_each(d, seed, bytes, &g, err);
        const FtxStatus end = cuda_wait_stream(d, g.stream, 1, s ? NULL : err, "drawing random weights");

        s = s ? s : end;
    }
    close_drawing(d, &g);
    return s;
}

FtxStatus cuda_weights(Device *d, uint64_t seed, FtxError *err)
{
    const uint64_t stored = d->artifact->facts->weight_bytes, bytes = d->offload ? d->offload->gpu_bytes : stored;
    const uint64_t need = bytes + cuda_staging_bytes(d);
    size_t unused = 0, all = 0;
    char advice[300];

    if (!seed && !d->artifact->weight_data)
        return ftx_fail(err, FTX_EINVAL,
                        "the artifact holds no weights; open it with random weights, or compile it "
                        "from a checkpoint");
    FtxStatus s = cuda_check(d->cu, d->cu->cuMemGetInfo(&unused, &all), err, "the GPU's memory");
    if (s)
        return s;
    if (need > unused) {
        const uint64_t engine = cache_least(d->artifact, d->plan, all);

        return ftx_fail(err, FTX_EDEVICE, "the weights need %.1f GB on the GPU, %.1f of %.1f GB are free%s",
                        (double)need * 1e-9, (double)unused * 1e-9, (double)all * 1e-9,
                        cuda_offload_advice(d, unused > engine ? unused - engine : 0, advice, sizeof advice));
    }
    s = cuda_check(d->cu, d->cu->cuMemAlloc(&d->weights, bytes ? bytes : 1), err, "%.3f GB for the weights",
                   (double)bytes * 1e-9);
    if (s)
        d->weights = 0;
    if (s || stored == 0)
        return s;
    return seed ? draw_all(d, seed, bytes, err) : copy_stored(d, stored, err);
}
#endif
