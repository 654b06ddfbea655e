/* fake_nccl.c - an NCCL that carries nothing and writes everything down. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "fake_parts.h"
#include "runtime/device/cuda/nccl.h"
#include "runtime/device/cuda/nccl_table.h"

enum { FAILED = 2 }; /* ncclSystemError */

FakeNccl fake_nccl;

struct NcclComm {
    int ranks, rank, asked;
};

static int depth; /* of groups */

static int may_fail(const char *function)
{
    fake_nccl.calls++;
    if (fake_nccl.calls != fake_nccl.fail_at)
        return NCCL_SUCCESS;
    fake_nccl.failed = function;
    return FAILED;
}

static int fake_version(int *version)
{
    *version = fake_nccl.version;
    return NCCL_SUCCESS;
}

static int fake_id(NcclUniqueId *id)
{
    memset(id->bytes, 'i', sizeof id->bytes);
    return may_fail(__func__);
}

static int fake_init(NcclHandle *comm, int ranks, NcclUniqueId id, int rank, NcclConfig *c)
{
    static const char all_i[4] = "iiii";
    const char *nvls = getenv("NCCL_NVLS_ENABLE");

    fake_need_context();
    if (c->size != sizeof *c || c->magic != 0xcafebeef || c->version != NCCL_OLDEST || c->blocking != 0 ||
        memcmp(id.bytes + 124, all_i, 4) != 0 || rank >= ranks)
        abort();
    if (may_fail(__func__))
        return FAILED;
    *comm = calloc(1, sizeof **comm);
    **comm = (struct NcclComm){.ranks = ranks, .rank = rank};
    fake_nccl.nvls |= !nvls || strcmp(nvls, "0") != 0;
    fake_nccl.opened++;
    __atomic_add_fetch(&fake.handles, 1, __ATOMIC_SEQ_CST);
    return NCCL_IN_PROGRESS;
}

static int fake_async(NcclHandle comm, int *result)
{
    *result =
        fake_nccl.meets_after < 0 || comm->asked++ < fake_nccl.meets_after ? NCCL_IN_PROGRESS : fake_nccl.async_error;
    return may_fail(__func__);
}

/* As the real one does, it returns when no graph has its calls any more. */
static int fake_abort(NcclHandle comm)
{
    __atomic_store_n(&fake.hang_at, 0, __ATOMIC_SEQ_CST);
    while (__atomic_load_n(&fake.execs, __ATOMIC_SEQ_CST))
        nanosleep(&(struct timespec){0, 1000 * 1000}, NULL);
    free(comm);
    fake_nccl.aborted++;
    __atomic_sub_fetch(&fake.handles, 1, __ATOMIC_SEQ_CST);
    return NCCL_SUCCESS;
}

static const char *fake_text(int r)
{
    return r == NCCL_REMOTE_ERROR ? "remote process exited" : "made to fail";
}

static const char *fake_last(NcclHandle comm)
{
    return comm ? "it was told so" : NULL;
}

static int fake_start(void)
{
    if (may_fail(__func__))
        return FAILED;
    depth++;
    return NCCL_SUCCESS;
}

static int fake_end(void)
{
    if (--depth)
        abort();
    return may_fail(__func__);
}

static int record(const char *name, const void *p, size_t bytes, int type, int peer, const struct NcclComm *comm,
                  void *stream)
{
    FakeLaunch l = {.n_params = 3, .param = {(CUdeviceptr)(uintptr_t)p, bytes, (CUdeviceptr)peer}};

    if (depth != 1 || type != NCCL_BYTE || peer == comm->rank || peer >= comm->ranks ||
        !fake_holds((CUdeviceptr)(uintptr_t)p, bytes))
        abort();
    strcpy(l.kernel, name);
    fake_record(stream, &l);
    return NCCL_SUCCESS;
}

static int fake_send(const void *from, size_t count, int type, int peer, NcclHandle comm, void *stream)
{
    return may_fail(__func__) ? FAILED : record("nccl_send", from, count, type, peer, comm, stream);
}

static int fake_receive(void *to, size_t count, int type, int peer, NcclHandle comm, void *stream)
{
    return may_fail(__func__) ? FAILED : record("nccl_recv", to, count, type, peer, comm, stream);
}

static const NcclTable table = {
    .ncclGetVersion = fake_version,
    .ncclGetUniqueId = fake_id,
    .ncclCommInitRankConfig = fake_init,
    .ncclCommGetAsyncError = fake_async,
    .ncclCommAbort = fake_abort,
    .ncclGetErrorString = fake_text,
    .ncclGetLastError = fake_last,
    .ncclGroupStart = fake_start,
    .ncclGroupEnd = fake_end,
    .ncclSend = fake_send,
    .ncclRecv = fake_receive,
};

void fake_install_nccl(void)
{
    depth = 0;
    fake_nccl = (FakeNccl){.version = 22809, .meets_after = 3};
    nccl_replace(&table);
}
