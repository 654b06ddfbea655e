/* session.c - an engine's memory on a GPU, and the copies into and out of it.
 *
 *   device   STATE | IO | WORK | workspace of cuBLASLt | TMA descriptors | staging   one block; STATE is zero at open
 *   device   PAGES                                                        another, of what is left; zero at open
 *   pinned   OUT | IO | ring | masks | report of a rank                    one block of the host
 *
 * Kernels write OUT in the host's memory, which the host polls. All work is on one stream, in the order of the
 * calls; only masks are copied on one of their own, while layers run. */
#include "device_cuda.h"

#ifdef FTX_HAVE_CUDA
#include <string.h>

#include "../../base/env.h"
#include "../../../kernels/device/mask.h"

static const uint32_t named_space[FTX_NAMED_COUNT] = {
#define NAMED(name, space, bytes, what) FTX_SPACE_##space,
#include "../../artifact/named.def"
#undef NAMED
};

static const char *const named_name[FTX_NAMED_COUNT] = {
#define NAMED(name, space, bytes, what) #name,
#include "../../artifact/named.def"
#undef NAMED
};

enum { DEVICE_ALIGN = 4096 };

static uint64_t aligned(uint64_t n)
{
    return (n + DEVICE_ALIGN - 1) / DEVICE_ALIGN * DEVICE_ALIGN;
}

/* --- open and close ------------------------------------------------------------------------------- */

static size_t lay_out(Session *s, Carve *c, const Device *d)
{
    const ArtifactPlan *p = d->plan;

    carve(c, 1, sizeof(Session));
    CUdeviceptr *arg = carve(c, p->n_operands, sizeof *arg);
    CUgraphExec *graph = carve(c, p->n_programs, sizeof *graph);
    CUgraphExec *chain = carve(c, p->n_programs, sizeof *chain);
    CUgraphExec *head = carve(c, p->n_programs, sizeof *head);
    CUgraphExec *tail = carve(c, p->n_programs, sizeof *tail);
    uint32_t(*grid)[3] = carve(c, p->n_kernels, sizeof *grid);
    FtxProfile *row = carve(c, p->n_kernels + 1, sizeof *row);
    uint32_t longest = 64; /* events: one around each launch and copy of a program, or for some timed runs */

    for (uint32_t i = 0; i < p->n_programs; i++) {
        const uint32_t n = p->programs[i].n_launches * (cuda_staging_bytes(d) ? 2 : 1);

        longest = n > longest ? n : longest;
    }
    CUevent *event = carve(c, longest + 1, sizeof *event);
    if (s) {
        s->arg = arg;
        s->graph = graph;
        s->chain = chain;
        s->head = head;
        s->tail = tail;
        s->grid = grid;
        s->profile_row = row;
        s->event = event;
        s->max_events = longest + 1;
    }
    return c->at;
}

/* One workspace serves all launches, which follow one another. */
static size_t matmul_workspace(const Device *d)
{
    size_t most = 0;

    for (uint32_t i = 0; i < d->plan->n_launches; i++)
        if (d->matmul[i] && lt_workspace(d->matmul[i]) > most)
            most = lt_workspace(d->matmul[i]);
    return most;
}

static uint64_t descriptor_bytes(const ArtifactPlan *p)
{
    uint64_t bytes = 0;

    for (uint32_t i = 0; i < p->n_operands; i++)
        bytes += p->operands[i].tile_rows ? sizeof(CUtensorMap) : 0;
    return bytes;
}

static FtxStatus take_device_memory(Session *s, FtxError *err)
{
    const Device *d = s->device;
    const uint64_t *bytes = d->plan->head->space_bytes;
    const uint64_t io = aligned(bytes[FTX_SPACE_STATE]), work = io + aligned(bytes[FTX_SPACE_IO]);
    const uint64_t workspace = work + aligned(bytes[FTX_SPACE_WORK]);

    const uint64_t descriptors = workspace + aligned(matmul_workspace(d));

    const uint64_t staging = aligned(descriptors + descriptor_bytes(d->plan) + DEVICE_ALIGN);

    s->device_bytes = staging + cuda_staging_bytes(d);
    FtxStatus status = cuda_check(d->cu, d->cu->cuMemAlloc(&s->block, s->device_bytes), err,
                                  "%.3f GB for the engine's state", (double)s->device_bytes * 1e-9);
    if (status) {
        s->block = 0;
        return status;
    }
    s->space[FTX_SPACE_STATE] = s->block;
    s->space[FTX_SPACE_IO] = s->block + io;
    s->space[FTX_SPACE_WORK] = s->block + work;
    s->workspace = s->block + workspace;
    s->descriptors = s->block + descriptors;
    s->staging = s->block + staging;
    return FTX_OK;
}

/* Memory for KV pages, after all other device memory of the session. Zeros: kernels multiply what is behind a sequence's
 * last position by zero, so it must be finite. */
static FtxStatus take_pages(Session *s, uint64_t kv_bytes, FtxError *err)
{
    const Device *d = s->device;
    size_t unused, all;
    FtxStatus status = cuda_check(d->cu, d->cu->cuMemGetInfo(&unused, &all), err, "the GPU's memory");

    if (!status)
        status = cache_pages(d->artifact, d->plan, kv_bytes,
                             (CacheMemory){.all = all, .free = unused, .full = FTX_EDEVICE}, &s->pages, err);
    if (status || !cache_bytes(d->plan, s->pages))
        return status;
    status = cuda_check(d->cu, d->cu->cuMemAlloc(&s->kv, cache_bytes(d->plan, s->pages)), err,
                        "%.3f GB for the KV cache", (double)cache_bytes(d->plan, s->pages) * 1e-9);
    if (status)
        s->kv = 0;
    s->space[FTX_SPACE_PAGES] = s->kv;
    return status;
}

static FtxStatus take_pinned_memory(Session *s, FtxError *err)
{
    const Device *d = s->device;
    const uint64_t out = aligned(d->plan->head->space_bytes[FTX_SPACE_OUT]);
    const uint64_t io = aligned(d->plan->head->space_bytes[FTX_SPACE_IO]);

    const size_t ring = RING_PARTS * RING_PART_BYTES, report = d->plan->head->exchange ? DEVICE_ALIGN : 0;
    const size_t masks = aligned(d->plan->head->named_bytes[FTX_NAMED_mask]);

    s->pinned_bytes = out + io + ring + masks + report;
    FtxStatus status = cuda_check(d->cu,
                                  d->cu->cuMemHostAlloc((void **)&s->pinned, s->pinned_bytes,
                                                        CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_PORTABLE),
                                  err, "%.3f MB of pinned memory", (double)s->pinned_bytes * 1e-6);
    if (status) {
        s->pinned = NULL;
        return status;
    }
    memset(s->pinned, 0, s->pinned_bytes);
    s->out = s->pinned;
    s->io = s->pinned + out;
    s->ring = s->io + io;
    s->masks = masks ? (uint32_t *)(void *)(s->ring + ring) : NULL;
    s->report = report ? (FtxReport *)(void *)(s->ring + ring + masks) : NULL;
    s->count = s->report ? (unsigned *)(void *)(s->report + 2) : NULL; /* in a cache line of its own */
    return cuda_check(d->cu, d->cu->cuMemHostGetDevicePointer(&s->space[FTX_SPACE_OUT], s->out, 0), err,
                      "mapping the results' memory");
}

static CUdeviceptr address(const Session *s, const FtxOperand *o)
{
    return o->space == FTX_SPACE_NULL      ? 0
           : o->space == FTX_SPACE_WEIGHTS ? cuda_weight(s, o->offset)
                                           : s->space[o->space] + cache_operand(o, s->pages);
}

/* The TMA descriptor of one operand: tiles of 64 columns, 128 bytes, whose 16-byte units are swizzled within 8 rows. */
static FtxStatus make_descriptor(const Session *s, const FtxOperand *o, CUtensorMap *map, FtxError *err)
{
    const CudaDriver *cu = s->device->cu;
    const CUdeviceptr matrix = address(s, o);
    const cuuint64_t rows = (cuuint64_t)o->rows * (o->space == FTX_SPACE_PAGES ? s->pages : 1);
    const cuuint64_t size[] = {o->columns, rows}, stride[] = {2 * (cuuint64_t)o->columns};
    const cuuint32_t tile[] = {64, o->tile_rows}, every[] = {1, 1};

    return cuda_check(cu,
                      cu->cuTensorMapEncodeTiled(
                          map, o->type == DT_BF16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 : CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
                          2, (void *)(uintptr_t)matrix, size, stride, tile, every, CU_TENSOR_MAP_INTERLEAVE_NONE,
                          CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                          CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE),
                      err, "a TMA descriptor of [%u,%u] in tiles of %u rows", o->rows, o->columns, o->tile_rows);
}

/* Copies TMA descriptors from the ring to the GPU. */
static FtxStatus send_descriptors(Session *s, CUdeviceptr to, size_t n, FtxError *err)
{
    FtxStatus status =
        n ? cuda_check(s->device->cu, s->device->cu->cuMemcpyHtoDAsync(to, s->ring, n * sizeof(CUtensorMap), s->stream),
                       err, "the TMA descriptors")
          : FTX_OK;

    return status || !n ? status : cuda_wait_stream(s->device, s->stream, 1, err, "copying the TMA descriptors");
}

static FtxStatus make_descriptors(Session *s, FtxError *err)
{
    const ArtifactPlan *p = s->device->plan;
    CUdeviceptr to = s->descriptors; /* address of the first descriptor in the ring */
    CUtensorMap *map = (CUtensorMap *)(void *)s->ring;
    size_t n = 0;
    FtxStatus status = FTX_OK;

    for (uint32_t i = 0; i < p->n_operands && !status; i++) {
        if (!p->operands[i].tile_rows)
            continue;
        if (n == RING_PART_BYTES / sizeof *map) {
            status = send_descriptors(s, to, n, err);
            to += n * sizeof *map;
            n = 0;
        }
        s->arg[i] = to + n * sizeof *map;
        if (!status)
            status = make_descriptor(s, &p->operands[i], &map[n++], err);
    }
    return status ? status : send_descriptors(s, to, n, err);
}

static void resolve(Session *s)
{
    const Device *d = s->device;

    for (uint32_t i = 0; i < d->plan->n_operands; i++)
        s->arg[i] = address(s, &d->plan->operands[i]);
    for (uint32_t i = 0; i < d->plan->n_kernels; i++)
        s->profile_row[i] = (FtxProfile){.kernel = cuda_kernel_name(d, i), .matmul = d->plan->kernels[i].matmul != 0};
    s->profile_row[d->plan->n_kernels] = (FtxProfile){.kernel = "weights from the host"};
}

FtxStatus cuda_session_zero(Session *s, FtxError *err)
{
    const CudaDriver *cu = s->device->cu;
    const struct {
        CUdeviceptr at;
        size_t bytes;
    } blocks[] = {{s->block, s->workspace - s->block}, {s->kv, cache_bytes(s->device->plan, s->pages)}};
    FtxStatus status = FTX_OK;

    for (size_t i = 0; i < sizeof blocks / sizeof *blocks && !status; i++)
        if (blocks[i].bytes)
            status = cuda_check(cu, cu->cuMemsetD8Async(blocks[i].at, 0, blocks[i].bytes, s->stream), err,
                                "clearing the engine's state");
    return status ? status : cuda_wait_stream(s->device, s->stream, 1, err, "clearing the engine's state");
}

static FtxStatus open_masks(Session *s, FtxError *err)
{
    const CudaDriver *cu = s->device->cu;
    FtxStatus status =
        cuda_check(cu, cu->cuStreamCreate(&s->masks_stream, CU_STREAM_NON_BLOCKING), err, "a stream for masks");

    if (status)
        s->masks_stream = NULL;
    else
        status = cuda_check(cu, cu->cuEventCreate(&s->masks_there, CU_EVENT_DISABLE_TIMING), err, "an event");
    return status;
}

static FtxStatus fill_session(Session *s, uint64_t kv_bytes, FtxError *err)
{
    const CudaDriver *cu = s->device->cu;
    FtxStatus status = cuda_check(cu, cu->cuStreamCreate(&s->stream, CU_STREAM_NON_BLOCKING), err, "a stream");

    if (status)
        s->stream = NULL;
    for (int i = 0; i < RING_PARTS && !status; i++)
        status = cuda_check(cu, cu->cuEventCreate(&s->part_done[i], CU_EVENT_DISABLE_TIMING), err, "an event");
    if (!status)
        status = cuda_check(cu, cu->cuEventCreate(&s->uploaded, CU_EVENT_DISABLE_TIMING), err, "an event");
    if (!status)
        status = cuda_check(cu, cu->cuEventCreate(&s->followed, CU_EVENT_DISABLE_TIMING), err, "an event");
    if (!status)
        status = take_device_memory(s, err);
    if (!status)
        status = take_pinned_memory(s, err);
    if (!status && s->masks)
        status = open_masks(s, err);
    if (!status)
        status = take_pages(s, kv_bytes, err);
    if (status)
        return status;
    resolve(s);
    status = make_descriptors(s, err);
    if (!status)
        status = cuda_session_zero(s, err);
    if (status || s->device->processes) /* its programs are prepared when it has joined the other ranks */
        return status;
    status = cuda_program_prepare(s, err);
    return status ? status : cuda_session_zero(s, err); /* the warm-up has written there */
}

static void empty_session(Session *s)
{
    const CudaDriver *cu = s->device->cu;

    if (s->links)
        cuda_ranks_leave(s);
    if (s->stream)
        cuda_wait_stream(s->device, s->stream, 1, NULL, "closing");
    if (s->device->lost)
        return;
    cuda_program_close(s);
    cuda_ranks_close(s);
    for (int i = 0; i < RING_PARTS; i++)
        if (s->part_done[i])
            cu->cuEventDestroy(s->part_done[i]);
    if (s->uploaded)
        cu->cuEventDestroy(s->uploaded);
    if (s->followed)
        cu->cuEventDestroy(s->followed);
    if (s->masks_there)
        cu->cuEventDestroy(s->masks_there);
    if (s->masks_stream)
        cu->cuStreamDestroy(s->masks_stream);
    if (s->pinned)
        cu->cuMemFreeHost(s->pinned);
    if (s->kept)
        cu->cuMemFreeHost(s->kept);
    if (s->block)
        cu->cuMemFree(s->block);
    if (s->kv)
        cu->cuMemFree(s->kv);
    if (s->stream)
        cu->cuStreamDestroy(s->stream);
}

void cuda_session_close(Session *s)
{
    if (!s)
        return;

    const Memory m = s->device->memory;

    if (!cuda_enter(s->device, NULL)) {
        empty_session(s);
        cuda_leave(s->device);
    }
    memory_free(&m, s, s->bytes);
}

FtxStatus cuda_session_open(Device *d, uint64_t kv_bytes, Session **out, uint32_t *pages, FtxError *err)
{
    Carve size = {NULL, 0};
    const size_t bytes = lay_out(NULL, &size, d);
    Session *s = memory_alloc(&d->memory, bytes, 64);
    FtxStatus status;

    *out = NULL;
    if (!s)
        return memory_fail(err, "a session", bytes);
    lay_out(s, &(Carve){(char *)s, 0}, d);
    s->device = d;
    s->bytes = bytes;
    s->sync = env_on(ENV_FTX_SYNC);
    s->nan = env_on(ENV_FTX_NAN);
    status = cuda_enter(d, err);
    if (!status) {
        status = fill_session(s, kv_bytes, err);
        cuda_leave(d);
    }
    if (status) {
        cuda_session_close(s);
        return status;
    }
    *out = s;
    *pages = s->pages;
    return FTX_OK;
}

/* --- copies --------------------------------------------------------------------------------------- */

void *cuda_session_io(Session *s)
{
    return s->io;
}

const void *cuda_session_out(Session *s)
{
    return s->out;
}

static FtxStatus copy_in(Session *s, CUdeviceptr to, const void *from, size_t bytes, const char *what, FtxError *err)
{
    return cuda_check(s->device->cu, s->device->cu->cuMemcpyHtoDAsync(to, from, bytes, s->stream), err,
                      "copying %zu bytes to %s", bytes, what);
}

FtxStatus cuda_session_upload(Session *s, size_t bytes, FtxError *err)
{
    const uint64_t most = s->device->plan->head->space_bytes[FTX_SPACE_IO];
    FtxStatus status;

    if (bytes > most)
        return ftx_fail(err, FTX_EINVAL, "%zu bytes of step data, there is room for %llu", bytes,
                        (unsigned long long)most);
    status = cuda_enter(s->device, err);
    if (status)
        return status;
    if (bytes)
        status = copy_in(s, s->space[FTX_SPACE_IO], s->io, bytes, "the step", err);
    if (!status)
        status = cuda_check(s->device->cu, s->device->cu->cuEventRecord(s->uploaded, s->stream), err, "marking a copy");
    cuda_leave(s->device);
    return status;
}

FtxStatus cuda_session_settle(Session *s, FtxError *err)
{
    FtxStatus status = cuda_enter(s->device, err);

    if (status)
        return status;
    status = cuda_wait_session(s, s->uploaded, 1, err, "waiting for the step's copy");
    cuda_leave(s->device);
    return status;
}

/* Room for `bytes` in the ring that no copy in flight reads. */
static FtxStatus ring_room(Session *s, size_t bytes, char **room, FtxError *err)
{
    const CudaDriver *cu = s->device->cu;
    FtxStatus status = FTX_OK;

    if (s->part_at + bytes > RING_PART_BYTES) {
        status = cuda_check(cu, cu->cuEventRecord(s->part_done[s->part], s->stream), err, "marking a copy");
        s->part_used[s->part] = !status;
        s->part = (s->part + 1) % RING_PARTS;
        s->part_at = 0;
        if (!status && s->part_used[s->part])
            status = cuda_wait_event(s->device, s->part_done[s->part], err, "waiting for a copy");
    }
    *room = s->ring + (size_t)s->part * RING_PART_BYTES + s->part_at;
    s->part_at += (bytes + 15) / 16 * 16;
    return status;
}

static bool in_named(const Session *s, int named, size_t offset, size_t bytes)
{
    const FtxPlan *head = s->device->plan->head;

    return named >= 0 && named < FTX_NAMED_COUNT && named_space[named] != FTX_SPACE_PAGES &&
           offset <= head->named_bytes[named] && bytes <= head->named_bytes[named] - offset;
}

static FtxStatus outside(int named, size_t offset, size_t bytes, FtxError *err)
{
    return ftx_fail(err, FTX_EINVAL, "bytes %zu to %zu of $%s are outside of it", offset, offset + bytes,
                    named >= 0 && named < FTX_NAMED_COUNT ? named_name[named] : "?");
}

FtxStatus cuda_session_write(Session *s, int named, size_t offset, const void *p, size_t bytes, FtxError *err)
{
    char *room;
    FtxStatus status;

    if (!in_named(s, named, offset, bytes) || bytes > WRITE_MAX || named_space[named] != FTX_SPACE_STATE)
        return outside(named, offset, bytes, err);
    if (bytes == 0)
        return FTX_OK;
    status = cuda_enter(s->device, err);
    if (status)
        return status;
    status = ring_room(s, bytes, &room, err);
    if (!status) {
        memcpy(room, p, bytes);
        status = copy_in(s, s->space[FTX_SPACE_STATE] + s->device->plan->head->named[named] + offset, room, bytes,
                         named_name[named], err);
    }
    cuda_leave(s->device);
    return status;
}

FtxStatus cuda_session_read(Session *s, int named, size_t offset, void *p, size_t bytes, FtxError *err)
{
    const CudaDriver *cu = s->device->cu;
    FtxStatus status;

    if (!in_named(s, named, offset, bytes))
        return outside(named, offset, bytes, err);
    status = cuda_session_wait(s, err);
    if (status || bytes == 0)
        return status;
    const size_t at = s->device->plan->head->named[named] + offset;
    if (named_space[named] == FTX_SPACE_OUT) {
        memcpy(p, s->out + at, bytes);
        return FTX_OK;
    }
    status = cuda_enter(s->device, err);
    if (status)
        return status;
    status = cuda_check(cu, cu->cuMemcpyDtoH(p, s->space[named_space[named]] + at, bytes), err,
                        "copying %zu bytes of $%s", bytes, named_name[named]);
    cuda_leave(s->device);
    return status;
}

/* --- masks ------------------------------------------------------------------------------------------- */

uint32_t *cuda_session_masks(Session *s)
{
    return s->masks;
}

FtxStatus cuda_session_send_masks(Session *s, int first, int n, FtxError *err)
{
    const CudaDriver *cu = s->device->cu;
    const FtxPlan *head = s->device->plan->head;
    const size_t row = FTX_MASK_WORDS((size_t)s->device->artifact->facts->vocab) * sizeof *s->masks;
    const size_t at = (size_t)first * row, bytes = (size_t)n * row;
    FtxStatus status;

    if (first < 0 || n < 0 || !in_named(s, FTX_NAMED_mask, at, bytes))
        return outside(FTX_NAMED_mask, at, bytes, err);
    if (n == 0)
        return FTX_OK;
    status = cuda_check(cu,
                        cu->cuMemcpyHtoDAsync(s->space[FTX_SPACE_STATE] + head->named[FTX_NAMED_mask] + at,
                                              (char *)s->masks + at, bytes, s->masks_stream),
                        err, "copying the masks of %d rows", n);
    if (!status)
        status = cuda_check(cu, cu->cuEventRecord(s->masks_there, s->masks_stream), err, "marking the masks");
    if (!status)
        status = cuda_check(cu, cu->cuStreamWaitEvent(s->stream, s->masks_there, 0), err, "waiting for the masks");
    return status;
}

/* --- pages outside of the KV cache ------------------------------------------------------------------ */

FtxStatus cuda_session_keep_open(Session *s, uint32_t n, FtxError *err)
{
    const Device *d = s->device;
    const uint64_t bytes = n * cache_bytes(d->plan, 1);
    FtxStatus status = cuda_enter(d, err);

    if (status)
        return status;
    status = cuda_check(d->cu, d->cu->cuMemHostAlloc((void **)&s->kept, bytes, CU_MEMHOSTALLOC_PORTABLE), err,
                        "%.3f GB of pinned memory for KV pages (swap_bytes)", (double)bytes * 1e-9);
    s->kept = status ? NULL : s->kept;
    s->n_kept = status ? 0 : n;
    cuda_leave(d);
    return status;
}

FtxStatus cuda_session_keep(Session *s, uint32_t kept, uint32_t page, bool back, FtxError *err)
{
    const Device *d = s->device;
    char *alone = s->kept + kept * cache_bytes(d->plan, 1);
    FtxStatus status;
    CachePart part;

    if (kept >= s->n_kept || page >= s->pages)
        return ftx_fail(err, FTX_EINVAL, "page %u of %u, page %u of %u outside of the cache", page, s->pages, kept,
                        s->n_kept);
    status = cuda_enter(d, err);
    if (status)
        return status;
    for (uint32_t i = 0; !status && cache_part(d->artifact, d->plan, s->pages, page, i, &part); i++)
        status = cuda_check(d->cu,
                            back ? d->cu->cuMemcpyHtoDAsync(s->kv + part.at, alone + part.alone, part.bytes, s->stream)
                                 : d->cu->cuMemcpyDtoHAsync(alone + part.alone, s->kv + part.at, part.bytes, s->stream),
                            err, "copying a KV page %s the host", back ? "from" : "to");
    cuda_leave(d);
    return status;
}

FtxStatus cuda_session_wipe(Session *s, uint32_t page, FtxError *err)
{
    const Device *d = s->device;
    FtxStatus status;
    CachePart part;

    if (page >= s->pages)
        return ftx_fail(err, FTX_EINVAL, "page %u of %u is to be wiped", page, s->pages);
    status = cuda_enter(d, err);
    if (status)
        return status;
    for (uint32_t i = 0; !status && cache_part(d->artifact, d->plan, s->pages, page, i, &part); i++)
        status = cuda_check(d->cu, d->cu->cuMemsetD8Async(s->kv + part.at, 0, part.bytes, s->stream), err,
                            "wiping a KV page");
    cuda_leave(d);
    return status;
}

/* --- recurrent states behind prompts ---------------------------------------------------------------- */

FtxStatus cuda_session_snapshot(Session *s, uint32_t snapshot, uint32_t slot, bool back, FtxError *err)
{
    const Device *d = s->device;
    const uint32_t n = cache_snapshots(d->artifact, d->plan);
    const CUdeviceptr base = s->space[FTX_SPACE_STATE];
    FtxStatus status;
    CacheState state;

    if (snapshot >= n || slot >= d->artifact->facts->sequences)
        return ftx_fail(err, FTX_EINVAL, "snapshot %u of %u, slot %u of %u", snapshot, n, slot,
                        d->artifact->facts->sequences);
    status = cuda_enter(d, err);
    if (status)
        return status;
    for (uint32_t i = 0; !status && cache_state(d->artifact, d->plan, slot, snapshot, i, &state); i++)
        status = cuda_check(d->cu,
                            d->cu->cuMemcpyDtoDAsync(base + (back ? state.at : state.copy),
                                                     base + (back ? state.copy : state.at), state.bytes, s->stream),
                            err, "copying a recurrent state");
    cuda_leave(d);
    return status;
}

/* --- memory of the caller on the GPU ---------------------------------------------------------------- */

FtxStatus cuda_session_owns(Session *s, const char *field, const void *p, FtxError *err)
{
    const Device *d = s->device;
    const CUdeviceptr at = (CUdeviceptr)(uintptr_t)p;
    CUmemorytype type = CU_MEMORYTYPE_HOST;
    int ordinal = 0;
    FtxStatus status = cuda_enter(d, err);

    if (status)
        return status;
    CUresult r = d->cu->cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, at);
    if (!r)
        r = d->cu->cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, at);
    cuda_leave(d);
    if (r == CUDA_ERROR_INVALID_VALUE || (!r && type != CU_MEMORYTYPE_DEVICE))
        return ftx_fail(err, FTX_EINVAL, "%s: it is memory of the host, and on_device says that it is the GPU's",
                        field);
    if (!r && ordinal != d->device)
        return ftx_fail(err, FTX_EINVAL, "%s: it is memory of GPU %d, and the model is on GPU %d", field, ordinal,
                        d->device);
    return cuda_check(d->cu, r, err, "%s: asking which memory it is", field);
}

FtxStatus cuda_session_follow(Session *s, void *stream, FtxError *err)
{
    const CudaDriver *cu = s->device->cu;
    FtxStatus status = cuda_enter(s->device, err);

    if (status)
        return status;
    if (!stream) {
        status = cuda_check(cu, cu->cuCtxSynchronize(), err, "waiting for the caller's work");
    } else {
        status = cuda_check(cu, cu->cuEventRecord(s->followed, stream), err, "stream: marking the caller's work");
        if (!status)
            status = cuda_check(cu, cu->cuStreamWaitEvent(s->stream, s->followed, 0), err,
                                "stream: following the caller's work");
    }
    cuda_leave(s->device);
    return status;
}

/* Enqueues a copy on the GPU: in, from the caller's memory to a named buffer, or out. */
static FtxStatus copy_on_device(Session *s, int named, size_t offset, CUdeviceptr p, size_t bytes, bool in,
                                FtxError *err)
{
    const CudaDriver *cu = s->device->cu;

    if (!in_named(s, named, offset, bytes) || named_space[named] != FTX_SPACE_STATE)
        return outside(named, offset, bytes, err);

    const CUdeviceptr ours = s->space[FTX_SPACE_STATE] + s->device->plan->head->named[named] + offset;
    FtxStatus status = bytes ? cuda_enter(s->device, err) : FTX_OK;

    if (status || !bytes)
        return status;
    status = cuda_check(cu, cu->cuMemcpyDtoDAsync(in ? ours : p, in ? p : ours, bytes, s->stream), err,
                        "copying %zu bytes of $%s on the GPU", bytes, named_name[named]);
    cuda_leave(s->device);
    return status;
}

FtxStatus cuda_session_copy_in(Session *s, int named, size_t offset, const void *p, size_t bytes, FtxError *err)
{
    return copy_on_device(s, named, offset, (CUdeviceptr)(uintptr_t)p, bytes, true, err);
}

FtxStatus cuda_session_copy_out(Session *s, int named, size_t offset, void *p, size_t bytes, FtxError *err)
{
    return copy_on_device(s, named, offset, (CUdeviceptr)(uintptr_t)p, bytes, false, err);
}

FtxStatus cuda_session_clear(Session *s, void *p, size_t bytes, FtxError *err)
{
    const CudaDriver *cu = s->device->cu;
    FtxStatus status = bytes ? cuda_enter(s->device, err) : FTX_OK;

    if (status || !bytes)
        return status;
    status = cuda_check(cu, cu->cuMemsetD8Async((CUdeviceptr)(uintptr_t)p, 0, bytes, s->stream), err,
                        "clearing %zu bytes of the caller", bytes);
    cuda_leave(s->device);
    return status;
}

FtxStatus cuda_session_wait(Session *s, FtxError *err)
{
    FtxStatus status = cuda_enter(s->device, err);

    if (status)
        return status;
    status = cuda_wait_session(s, NULL, 1, err,
                               s->sync ? "waiting for the GPU" : "waiting for the GPU (FTX_SYNC=1 names the launch)");
    cuda_leave(s->device);
    return status ? status : cuda_session_peers(s, err);
}
#endif
