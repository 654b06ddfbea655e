/* processes.c - GPUs that share a model, each in a process of its own.
 *
 *   one process        all_reduce(x)     stores into the memory of the other GPUs (peers.c)
 *   several processes  NCCL: x of each rank into $exchange of all, then the same kernel, which finds all parts there
 *   linear_sum         makes its part itself: the kernel, NCCL, the same kernel once more
 *
 * So the sums have the bits of one process. NCCL does not say which rank is late, and its kernels wait for ever. The host
 * does: while it waits for the stream it looks whether a process has ended (link.h), what NCCL says, and whether the count of
 * exchanges goes on, which a stream of its own reads. */
#include "device_cuda.h"

#ifdef FTX_HAVE_CUDA
#include <stddef.h>
#include <string.h>

#include "../group/link.h"
#include "../group/meeting.h"
#include "../../base/env.h"

static const double check_s = 1e-3, probe_s = 50e-3; /* how often NCCL is asked, and the count read */

/* Kernels of ranks, and the constants of their contracts (templates/all_reduce.cu, all_gather.cu, linear.cu): type and number
 * of what a row brings, and whether rows are sequences. */
static const struct {
    const char *family;
    uint32_t type, columns, rows_s;
    bool twice;
} kinds[] = {{"all_reduce", 0, 2, 4, false}, {"all_gather", 0, 1, 4, false}, {"linear_sum", 2, 3, 7, true}};
enum { KINDS = sizeof kinds / sizeof *kinds };

static CUdeviceptr exchange_at(const Session *s)
{
    return s->space[FTX_SPACE_STATE] + s->device->plan->head->named[FTX_NAMED_exchange];
}

static uint64_t share_of(const Device *d)
{
    return d->plan->head->exchange / d->artifact->facts->ranks;
}

/* --- what launches bring ------------------------------------------------------------------------------ */

static bool reads_exchange(const Device *d, const FtxLaunch *l)
{
    const FtxPlan *head = d->plan->head;

    for (uint32_t i = 0; i < d->plan->kernels[l->kernel].n_operands; i++) {
        const FtxOperand *o = &d->plan->operands[l->first_operand + i];

        if (o->space == FTX_SPACE_STATE &&
            o->offset - head->named[FTX_NAMED_exchange] < head->named_bytes[FTX_NAMED_exchange])
            return true;
    }
    return false;
}

static FtxStatus read_kernel(Device *d, uint32_t kernel, FtxError *err)
{
    const FtxKernel *k = &d->plan->kernels[kernel];
    const int64_t *c = &d->plan->consts[k->first_const];
    size_t i = 0;

    while (i < KINDS && strcmp(artifact_string(d->artifact, k->family), kinds[i].family) != 0)
        i++;
    if (i == KINDS)
        return ftx_fail(
            err, FTX_ENODEVICE,
            "%s: GPUs of several processes have all_reduce, all_gather and linear_sum alone: compile with a "
            "tuning file that avoids this kernel",
            cuda_kernel_name(d, kernel));
    if (k->n_consts <= kinds[i].rows_s || k->kind != FTX_KERNEL_CUDA)
        return ftx_fail(err, FTX_EFORMAT, "%s has %u constants, not %u", cuda_kernel_name(d, kernel), k->n_consts,
                        kinds[i].rows_s + 1);

    const int64_t type = c[kinds[i].type], columns = c[kinds[i].columns];
    const size_t element = type == DT_FP32 || type == DT_FP16 || type == DT_BF16 ? dtype_size((DType)type) : 0;

    if (!element || columns < 1 || columns > INT32_MAX || columns * (int64_t)element % 4)
        return ftx_fail(err, FTX_ENODEVICE, "%s: GPUs of several processes exchange rows of whole words of 4 bytes",
                        cuda_kernel_name(d, kernel));
    d->brought[kernel] =
        (Brought){.row_bytes = (uint64_t)columns * element, .rows_s = c[kinds[i].rows_s] != 0, .twice = kinds[i].twice};
    return FTX_OK;
}

/* The bytes that a launch brings fit into $exchange, and lie in the space of its first operand. */
static FtxStatus check_launch(const Device *d, const FtxProgram *p, const FtxLaunch *l, FtxError *err)
{
    const FtxPlan *head = d->plan->head;
    const FtxOperand *x = &d->plan->operands[l->first_operand];
    const Brought *b = &d->brought[l->kernel];
    const uint64_t bytes = (uint64_t)cuda_most_rows(d, p, b->rows_s) * b->row_bytes;
    const uint64_t room = x->space < FTX_SPACE_COUNT ? head->space_bytes[x->space] : 0;

    if (bytes <= share_of(d) && (b->twice || ((x->space == FTX_SPACE_WORK || x->space == FTX_SPACE_STATE) &&
                                              !x->tile_rows && x->offset <= room && bytes <= room - x->offset)))
        return FTX_OK;
    return ftx_fail(err, FTX_EFORMAT, "%s brings %llu bytes to an exchange: there are not so many, or no room for them",
                    cuda_launch_label(d, (uint32_t)(l - d->plan->launches)), (unsigned long long)bytes);
}

FtxStatus cuda_exchange_find(Device *d, FtxError *err)
{
    const ArtifactPlan *plan = d->plan;
    FtxStatus s = FTX_OK;

    for (uint32_t i = 0; i < plan->n_programs && !s; i++) {
        const FtxProgram *p = &plan->programs[i];

        for (uint32_t k = p->first_launch; k < p->first_launch + p->n_launches && !s; k++) {
            const FtxLaunch *l = &plan->launches[k];

            if (!reads_exchange(d, l))
                continue;
            if (!d->brought[l->kernel].row_bytes)
                s = read_kernel(d, l->kernel, err);
            if (!s)
                s = check_launch(d, p, l, err);
        }
    }
    return s;
}

const Brought *cuda_exchanges(const Session *s, const FtxLaunch *l)
{
    const Brought *b = s->nccl ? &s->device->brought[l->kernel] : NULL;

    return b && b->row_bytes ? b : NULL;
}

FtxStatus cuda_exchange(Session *s, const FtxLaunch *l, int T, int S, FtxError *err)
{
    const Brought *b = &s->device->brought[l->kernel];
    const CUdeviceptr parts = exchange_at(s) + sizeof(FtxExchange);
    const uint64_t share = share_of(s->device), bytes = (uint64_t)(b->rows_s ? S : T) * b->row_bytes;
    const CUdeviceptr own = b->twice ? parts + (uint64_t)s->rank * share : s->arg[l->first_operand];

    return ftx_context(err, nccl_exchange(s->nccl, own, bytes, parts, share, s->stream, err), "launching %s",
                       cuda_launch_label(s->device, (uint32_t)(l - s->device->plan->launches)));
}

/* --- what goes wrong ------------------------------------------------------------------------------------ */

/* The first failure: waits end, and NCCL's kernels. */
static void give_up(Session *s)
{
    __atomic_store_n(&s->report->stop, 1, __ATOMIC_RELEASE);
    if (s->nccl)
        nccl_abort(s->nccl);
}

/* Whether a process has ended, or NCCL has failed. */
static bool has_failed(Session *s)
{
    const int lost = wire_lost(s->links);

    if (!s->failed.status && lost >= 0)
        ftx_fail(&s->failed, FTX_EDEVICE, "the connection to rank %d has ended", lost);
    if (!s->failed.status && s->nccl && !__atomic_load_n(&s->report->stop, __ATOMIC_ACQUIRE))
        nccl_check(s->nccl, &s->failed);
    return s->failed.status != FTX_OK;
}

/* Reads the count of exchanges, and looks whether it has moved within the time that a rank has. */
static bool is_late(Session *s, double waited)
{
    const CudaDriver *cu = s->device->cu;

    if (s->probing && cu->cuStreamQuery(s->probe) == CUDA_SUCCESS) {
        s->probing = false;
        if (*s->count != s->seen) {
            s->seen = *s->count;
            s->since = waited;
        }
    }
    if (!s->probing)
        s->probing = cu->cuMemcpyDtoHAsync(s->count, exchange_at(s) + offsetof(FtxExchange, count), sizeof *s->count,
                                           s->probe) == CUDA_SUCCESS;
    return waited - s->since > s->peer_timeout;
}

static void blame(Session *s)
{
    if (s->ranks == 2)
        ftx_fail(&s->failed, FTX_EDEVICE, "rank %d did not come to exchange %u within %d s (FTX_PEER_TIMEOUT)",
                 1 - s->rank, s->seen, s->peer_timeout);
    else
        ftx_fail(&s->failed, FTX_EDEVICE,
                 "a rank did not come to exchange %u within %d s (FTX_PEER_TIMEOUT); NCCL does not say which", s->seen,
                 s->peer_timeout);
}

bool cuda_ranks_over(Session *s, double waited)
{
    if (waited < s->next_look)
        return false;
    s->next_look = waited + check_s;
    if (!has_failed(s) && waited >= s->next_probe) {
        s->next_probe = waited + probe_s;
        if (is_late(s, waited))
            blame(s);
    }
    if (!s->failed.status)
        return false;
    give_up(s);
    return true;
}

FtxStatus cuda_ranks_check(Session *s, FtxError *err)
{
    if (!has_failed(s))
        return FTX_OK;
    give_up(s);
    return ftx_fail(err, s->failed.status, "%s", s->failed.text);
}

void cuda_ranks_leave(Session *s)
{
    if (has_failed(s) || __atomic_load_n(&s->report->stop, __ATOMIC_ACQUIRE))
        give_up(s);
}

void cuda_ranks_close(Session *s)
{
    nccl_close(s->nccl);
    s->nccl = NULL;
    if (s->probe)
        s->device->cu->cuStreamDestroy(s->probe);
}

/* --- joining --------------------------------------------------------------------------------------------- */

static bool is_over(void *user)
{
    Session *s = user;

    return wire_lost(s->links) >= 0 || __atomic_load_n(&s->report->stop, __ATOMIC_ACQUIRE);
}

/* An exchange of 16 bytes, which connects the ranks before a graph is recorded. */
static FtxStatus connect_ranks(Session *s, FtxError *err)
{
    const CUdeviceptr parts = exchange_at(s) + sizeof(FtxExchange);
    const uint64_t share = share_of(s->device);
    FtxStatus status = nccl_exchange(s->nccl, parts + (uint64_t)s->rank * share, share < 16 ? share : 16, parts, share,
                                     s->stream, err);

    return status ? status : cuda_wait_session(s, NULL, 1, err, "connecting the ranks");
}

static FtxStatus open_ranks(Session *s, FtxError *err)
{
    const Device *d = s->device;
    FtxStatus status = cuda_check(d->cu, d->cu->cuStreamCreate(&s->probe, CU_STREAM_NON_BLOCKING), err, "a stream");

    if (status) {
        s->probe = NULL;
        return status;
    }
    status = nccl_open(&d->memory, links_word(s->links), s->rank, s->ranks, MEETING_TIMES * s->peer_timeout, is_over, s,
                       &s->nccl, err);
    if (!status)
        status = connect_ranks(s, err);
    if (!status)
        status = cuda_program_prepare(s, err);
    return status ? status : cuda_session_zero(s, err);
}

FtxStatus cuda_session_join_links(Session *s, Links *l, FtxError *err)
{
    const Device *d = s->device;
    FtxPeers peers = {.rank = links_rank(l), .ranks = links_ranks(l), .bytes = d->plan->head->exchange, .reserved = 1};
    CUdeviceptr report = 0;
    FtxStatus status;

    if (!d->processes || !s->report)
        return ftx_fail(err, FTX_EINVAL, "the artifact is for one rank, or FTX_MASTER was not set when it was opened");
    s->failed = (FtxError){FTX_OK, ""};
    s->links = l;
    s->rank = peers.rank;
    s->ranks = peers.ranks;
    s->peer_timeout = links_timeout(l);
    status = cuda_enter(d, err);
    if (status)
        return status;
    status = open_ranks(s, err);
    if (!status)
        status =
            cuda_check(d->cu, d->cu->cuMemHostGetDevicePointer(&report, s->report, 0), err, "mapping a rank's report");
    cuda_leave(d);
    peers.timeout_ms = s->peer_timeout * 1000;
    peers.report = report;
    for (int r = 0; r < s->ranks; r++)
        peers.exchange[r] = exchange_at(s);
    if (!status)
        status = cuda_session_write(s, FTX_NAMED_peers, 0, &peers, sizeof peers, err);
    s->joined = !status;
    return status;
}
#endif
