/* peers.c - several GPUs that share a model: each reaches the memory of the others, and their kernels exchange sums there
 * (kernels/body/exchange.cuh). A GPU that has waited too long says so in a report in the host's memory. */
#include "device_cuda.h"

#ifdef FTX_HAVE_CUDA
#include "../../base/env.h"

/* Lets the current context, that of s, reach the memory of another GPU. */
static FtxStatus reach(const Session *s, const Device *other, FtxError *err)
{
    const Device *d = s->device;
    int can = 0;
    FtxStatus status;

    if (other->device == d->device)
        return FTX_OK;
    status = cuda_check(d->cu, d->cu->cuDeviceCanAccessPeer(&can, d->device, other->device), err,
                        "asking whether GPU %d reaches the memory of GPU %d", d->device, other->device);
    if (!status && !can)
        return ftx_fail(err, FTX_ENODEVICE,
                        "GPU %d (%s) does not reach the memory of GPU %d (%s): the GPUs of one model need peer access "
                        "(nvidia-smi topo -p2p r shows which have it)",
                        d->device, d->name, other->device, other->name);
    if (status)
        return status;
    const CUresult r = d->cu->cuCtxEnablePeerAccess(other->context, 0);
    return r == CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED
               ? FTX_OK
               : cuda_check(d->cu, r, err, "letting GPU %d reach the memory of GPU %d", d->device, other->device);
}

static CUdeviceptr named_at(const Session *s, int named)
{
    return s->space[FTX_SPACE_STATE] + s->device->plan->head->named[named];
}

FtxStatus cuda_session_join(Session *s, int rank, int ranks, Session *const *all, FtxError *err)
{
    const Device *d = s->device;
    FtxPeers peers = {.rank = rank, .ranks = ranks, .bytes = d->plan->head->exchange};
    CUdeviceptr report = 0;
    FtxStatus status = env_int(ENV_FTX_PEER_TIMEOUT, 1, 3600, 10, &s->peer_timeout, err);

    if (!status)
        status = cuda_enter(d, err);
    if (status)
        return status;
    for (int r = 0; r < ranks && !status; r++)
        status = reach(s, all[r]->device, err);
    if (!status)
        status =
            cuda_check(d->cu, d->cu->cuMemHostGetDevicePointer(&report, s->report, 0), err, "mapping a rank's report");
    cuda_leave(d);
    peers.timeout_ms = s->peer_timeout * 1000;
    peers.report = report;
    for (int r = 0; r < ranks; r++)
        peers.exchange[r] = named_at(all[r], FTX_NAMED_exchange);
    if (!status)
        status = cuda_session_write(s, FTX_NAMED_peers, 0, &peers, sizeof peers, err);
    s->joined = !status;
    return status;
}

/* The kernels look at the host's word while they wait: no call of the driver is needed, which might itself wait. */
void cuda_session_stop(Session *s)
{
    __atomic_store_n(&s->report->stop, 1, __ATOMIC_RELEASE);
}

FtxStatus cuda_session_peers(Session *s, FtxError *err)
{
    if (!s->report)
        return FTX_OK;
    if (!s->joined)
        return ftx_fail(err, FTX_EINVAL, "the session is one of several ranks and has not joined the others");
    if (__atomic_load_n(&s->report->written, __ATOMIC_ACQUIRE))
        return ftx_fail(err, FTX_EDEVICE, "rank %u did not come to exchange %u within %d s (FTX_PEER_TIMEOUT)",
                        s->report->failed - 1, s->report->step, s->peer_timeout);
    if (s->links && cuda_ranks_check(s, err))
        return FTX_EDEVICE;
    if (__atomic_load_n(&s->report->stop, __ATOMIC_ACQUIRE))
        return ftx_fail(err, FTX_EDEVICE, "another rank has failed");
    return FTX_OK;
}
#endif
