/* weights.c - the weight block on the device: copied from the artifact, or drawn from a seed.
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

typedef struct Fill {   /* one piece: bytes [at, at + bytes) of the block */
    const char *stored; /* the block in the artifact */
    uint64_t at, bytes;
    char *to;
} Fill;

static void fill_share(void *user, int piece, int share, int shares)
{
    const Fill *f = user;
    const uint64_t lines = (f->bytes + share_align - 1) / share_align;
    const uint64_t first = f->at + lines * (uint64_t)share / (uint64_t)shares * share_align;
    const uint64_t end = f->at + lines * (uint64_t)(share + 1) / (uint64_t)shares * share_align;
    const uint64_t last = end < f->at + f->bytes ? end : f->at + f->bytes;

    (void)piece;
    if (first >= last)
        return;
    memcpy(f->to + (first - f->at), f->stored + first, last - first);
}

typedef struct Staging {
    Team *team;
    CUstream stream;
    char *pinned; /* PIECES pieces */
    size_t piece;
    CUevent copied[PIECES];
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

static FtxStatus copy_piece(Device *d, Staging *g, uint64_t number, Fill *f, FtxError *err)
{
    const CudaDriver *cu = d->cu;
    const int i = (int)(number % PIECES);
    FtxStatus s = FTX_OK;

    if (number >= PIECES)
        s = cuda_wait_event(d, g->copied[i], err, "copying weights");
    if (s)
        return s;
    f->to = g->pinned + (size_t)i * g->piece;
    team_run(g->team, fill_share, f, 1);
    s = cuda_check(cu, cu->cuMemcpyHtoDAsync(d->weights + f->at, f->to, f->bytes, g->stream), err, "copying weights");
    if (!s)
        s = cuda_check(cu, cu->cuEventRecord(g->copied[i], g->stream), err, "copying weights");
    return s;
}

static FtxStatus copy_stored(Device *d, uint64_t bytes, FtxError *err)
{
    Staging g = {0};
    FtxStatus s = open_staging(d, bytes, &g, err);
    uint64_t number = 0;

    for (uint64_t at = 0; at < bytes && !s; at += g.piece) {
        Fill f = {d->artifact->weight_data, at, bytes - at < g.piece ? bytes - at : g.piece, NULL};

        s = copy_piece(d, &g, number++, &f, err);
    }
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
    const bool matrix = w->kind == FTX_WEIGHT_MATRIX;
    Drawn d;

    if (packed_type(w->type))
        d.codes = (FtxCodesFill){
            .offset = w->offset,
            .tiles = (unsigned)packed_tiles(w->dim[0]),
            .codes = (unsigned)packed_codes(w->type, w->dim[1]),
            .groups = (unsigned)(w->dim[1] / w->group * PACKED_ROWS),
            .scales = w->scales,
            .zero = packed_zero(w->type),
            .key = random_key(seed, i),
            .scale = random_code_scale(w),
        };
    else
        d.elements = (FtxFill){
            .offset = w->offset,
            .elements = w->bytes / dtype_size(w->type),
            .key = random_key(seed, i),
            .scale = matrix                       ? random_scale(w)
                     : w->kind == FTX_WEIGHT_GAIN ? 1.0f
                                                  : 0.0f,
            .type = (int)w->type,
            .constant = !matrix,
        };
    return d;
}

static FtxStatus draw_one(Device *d, uint32_t kernel, CUdeviceptr fill, CUstream stream, FtxError *err)
{
    const FtxKernel *k = &d->plan->kernels[kernel];
    CUdeviceptr operands[2] = {d->weights, fill};
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
    Drawn *fills;   /* one for each weight, then all tables; pinned */
    CUdeviceptr at; /* the fills on the device */
} Drawing;

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
    const size_t pinned = bytes + table_bytes(d->artifact);
    FtxStatus s = FTX_OK;

    g->elements = find_kernel(d, "random");
    g->codes = find_kernel(d, "random_codes");
    if (!draws(d, g->elements) || (has_codes(d->artifact) && !draws(d, g->codes)))
        return ftx_fail(err, FTX_EFORMAT, "the artifact has no kernel that draws random weights: compile it anew");
    s = cuda_check(cu, cu->cuMemHostAlloc((void **)&g->fills, pinned, 0), err, "%zu bytes of pinned memory", pinned);
    if (!s)
        s = cuda_check(cu, cu->cuMemAlloc(&g->at, bytes), err, "%zu bytes for what to draw", bytes);
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
    if (g->fills)
        d->cu->cuMemFreeHost(g->fills);
}

static FtxStatus draw_each(Device *d, uint64_t seed, const Drawing *g, FtxError *err)
{
    const Artifact *a = d->artifact;
    const CudaDriver *cu = d->cu;
    char *table = (char *)(g->fills + a->n_weights);
    FtxStatus s;

    for (uint32_t i = 0; i < a->n_weights; i++)
        g->fills[i] = drawn_of(a, i, seed);
    s = cuda_check(cu, cu->cuMemsetD8Async(d->weights, 0, a->facts->weight_bytes, g->stream), err,
                   "clearing the weights");
    if (!s && a->n_weights)
        s = cuda_check(cu, cu->cuMemcpyHtoDAsync(g->at, g->fills, a->n_weights * sizeof *g->fills, g->stream), err,
                       "what to draw");
    for (uint32_t i = 0; i < a->n_weights && !s; i++) {
        const FtxWeight *w = &a->weights[i];

        if (w->kind != FTX_WEIGHT_TABLE) {
            s = draw_one(d, packed_type(w->type) ? g->codes : g->elements, g->at + i * sizeof *g->fills, g->stream,
                         err);
            continue;
        }
        memcpy(table, artifact_weight(a, i), w->bytes);
        s = cuda_check(cu, cu->cuMemcpyHtoDAsync(d->weights + w->offset, table, w->bytes, g->stream), err,
                       "copying a table");
        table += w->bytes;
    }
    return s;
}

static FtxStatus draw_all(Device *d, uint64_t seed, FtxError *err)
{
    Drawing g = {0};
    FtxStatus s = open_drawing(d, &g, err);

    if (!s) {
        s = draw_each(d, seed, &g, err);
        const FtxStatus end = cuda_wait_stream(d, g.stream, 1, s ? NULL : err, "drawing random weights");

        s = s ? s : end;
    }
    close_drawing(d, &g);
    return s;
}

FtxStatus cuda_weights(Device *d, uint64_t seed, FtxError *err)
{
    const uint64_t bytes = d->artifact->facts->weight_bytes;
    size_t unused = 0, all = 0;

    if (!seed && !d->artifact->weight_data)
        return ftx_fail(err, FTX_EINVAL,
                        "the artifact holds no weights; open it with random weights, or compile it "
                        "from a checkpoint");
    FtxStatus s = cuda_check(d->cu, d->cu->cuMemGetInfo(&unused, &all), err, "the GPU's memory");
    if (s)
        return s;
    if (bytes > unused)
        return ftx_fail(err, FTX_EDEVICE, "the weights need %.1f GB on the GPU, %.1f of %.1f GB are free",
                        (double)bytes * 1e-9, (double)unused * 1e-9, (double)all * 1e-9);
    s = cuda_check(d->cu, d->cu->cuMemAlloc(&d->weights, bytes ? bytes : 1), err, "%.3f GB for the weights",
                   (double)bytes * 1e-9);
    if (s)
        d->weights = 0;
    if (s || bytes == 0)
        return s;
    return seed ? draw_all(d, seed, err) : copy_stored(d, bytes, err);
}
#endif
