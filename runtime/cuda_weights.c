/* cuda_weights.c - the weight block on the device: stored in the artifact, or drawn from a seed.
 *
 * It goes through two pieces of pinned memory: while one is copied to the device the threads fill
 * the other, from the mapped file or from the generator. One thread reads a file from memory at a
 * fifth of what the bus takes, so a team fills. */
#include "device_cuda.h"

#ifdef FTX_HAVE_CUDA
#include <string.h>

#include "random.h"
#include "team.h"

enum { PIECES = 2 };
static const size_t piece_most = 32 << 20; /* bytes */
static const size_t share_align = 256;     /* between threads: whole elements, whole lines */

typedef struct Fill { /* one piece: bytes [at, at + bytes) of the block */
    const Artifact *artifact;
    uint64_t seed; /* 0: stored */
    uint64_t at, bytes;
    char *to;
} Fill;

/* The part of weight i that lies in [first, last) of the block. */
static void draw_part(const Fill *f, uint32_t i, uint64_t first, uint64_t last)
{
    const FtxWeight *w = &f->artifact->weights[i];
    const uint64_t size = dtype_size(w->type);
    const uint64_t from = w->offset > first ? w->offset : first;
    const uint64_t end = w->offset + w->bytes, to = end < last ? end : last;

    if (from < to)
        random_fill(f->artifact, i, f->seed, (from - w->offset) / size, (to - w->offset) / size,
                    f->to + (from - f->at));
}

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
    if (!f->seed) {
        memcpy(f->to + (first - f->at), (const char *)f->artifact->weight_data + first, last - first);
        return;
    }
    memset(f->to + (first - f->at), 0, last - first); /* what lies between weights */
    for (uint32_t i = 0; i < f->artifact->n_weights; i++)
        draw_part(f, i, first, last);
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

static FtxStatus copy_all(Device *d, uint64_t seed, uint64_t bytes, FtxError *err)
{
    Staging g = {0};
    FtxStatus s = open_staging(d, bytes, &g, err);
    uint64_t number = 0;

    for (uint64_t at = 0; at < bytes && !s; at += g.piece) {
        Fill f = {d->artifact, seed, at, bytes - at < g.piece ? bytes - at : g.piece, NULL};

        s = copy_piece(d, &g, number++, &f, err);
    }
    if (g.stream) { /* also after a failure: the pinned memory may be in use */
        const FtxStatus end = cuda_wait_stream(d, g.stream, 1, s ? NULL : err, "copying weights");

        s = s ? s : end;
    }
    close_staging(d, &g);
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
    return s || bytes == 0 ? s : copy_all(d, seed, bytes, err);
}
#endif
