/* plan.c - names, rows and grids of the plan, and the context, for the other files of the CUDA device. */
#include "device_cuda.h"

#include "../../base/expr.h"

#ifdef FTX_HAVE_CUDA

FtxStatus cuda_enter(const Device *d, FtxError *err)
{
    return cuda_check(d->cu, d->cu->cuCtxPushCurrent(d->context), err, "making the GPU's context current");
}

void cuda_leave(const Device *d)
{
    CUcontext ours;

    d->cu->cuCtxPopCurrent(&ours);
}

const char *cuda_kernel_name(const Device *d, uint32_t kernel)
{
    const FtxKernel *k = &d->plan->kernels[kernel];
    const char *entry = artifact_string(d->artifact, k->entry);

    return *entry ? entry : artifact_string(d->artifact, k->family);
}

const char *cuda_launch_label(const Device *d, uint32_t launch)
{
    return artifact_string(d->artifact, d->plan->launches[launch].label);
}

int64_t cuda_most_rows(const Device *d, const FtxProgram *p, bool rows_s)
{
    const int64_t sequences = d->artifact->facts->sequences;
    const int64_t tokens = p->bucket                    ? p->bucket
                           : p->kind == FTX_PROG_DECODE ? sequences /* one token each */
                                                        : d->artifact->facts->tokens;

    return !rows_s ? tokens : tokens < sequences ? tokens : sequences;
}

FtxStatus cuda_grid(const Device *d, uint32_t kernel, const int64_t *variables, uint32_t grid[3], FtxError *err)
{
    static const int64_t most[3] = {INT32_MAX, 65535, 65535};
    const ArtifactPlan *p = d->plan;

    for (int i = 0; i < 3; i++) {
        const uint32_t *e = p->kernels[kernel].grid[i];
        int64_t n = 1;
        const FtxStatus status = e[1] ? expr_run(p->exprs + e[0], e[1], variables, VAR_COUNT, &n, err) : FTX_OK;

        if (status)
            return ftx_context(err, status, "the grid of %s", cuda_kernel_name(d, kernel));
        if (n < 0 || n > most[i])
            return ftx_fail(err, FTX_EFORMAT, "%s: a grid of %lld blocks in direction %d", cuda_kernel_name(d, kernel),
                            (long long)n, i);
        grid[i] = (uint32_t)n;
    }
    return FTX_OK;
}
#endif
