/* nan.c - FTX_NAN=1: checks after a launch that the values it wrote are finite.
 *
 * Checked are the values of the graph in WORK ('%12' in the memory map; scratch may hold anything) and the logits.
 * Rows after the live ones hold old values, and a buffer does not say whether it has T or S rows; so only the rows
 * that are live in both cases are checked, and every live logit. */
#include "device_cuda.h"

#ifdef FTX_HAVE_CUDA
#include <math.h>

enum {
    PIECE = 4096,  /* bytes copied at a time */
    PADDING = 256, /* bytes at the end of a buffer that may be no values */
};

/* Checks n elements on the device. */
static FtxStatus look(const Session *s, CUdeviceptr at, uint64_t n, DType type, uint32_t launch, FtxError *err)
{
    const Device *d = s->device;
    const uint64_t size = dtype_size(type), piece = PIECE / size;
    float held[PIECE / sizeof(float)];

    for (uint64_t from = 0; from < n; from += piece) {
        const uint64_t count = n - from < piece ? n - from : piece;
        const FtxStatus status = cuda_check(d->cu, d->cu->cuMemcpyDtoH(held, at + from * size, count * size), err,
                                            "looking at the result of %s", cuda_launch_label(d, launch));

        if (status)
            return status;
        for (uint64_t i = 0; i < count; i++)
            if (!isfinite(dtype_load(held, i, type)))
                return ftx_fail(err, FTX_EDEVICE, "%s (%s): element %llu is not a finite number",
                                cuda_launch_label(d, launch), cuda_kernel_name(d, d->plan->launches[launch].kernel),
                                (unsigned long long)from + i);
    }
    return FTX_OK;
}

static uint64_t live_bytes(const Device *d, const FtxProgram *p, const FtxBuffer *b, int T, int S)
{
    const uint64_t by_tokens = b->bytes * (uint64_t)T / (uint64_t)cuda_most_rows(d, p, false);
    const uint64_t by_rows = b->bytes * (uint64_t)S / (uint64_t)cuda_most_rows(d, p, true);
    const uint64_t live = by_tokens < by_rows ? by_tokens : by_rows;

    return live > PADDING ? live - PADDING : 0;
}

FtxStatus cuda_look_for_nan(const Session *s, uint32_t program, uint32_t launch, int T, int S, FtxError *err)
{
    const Device *d = s->device;
    const ArtifactPlan *p = d->plan;
    const FtxProgram *in = &p->programs[program];
    const FtxKernel *k = &p->kernels[p->launches[launch].kernel];
    const FtxOperand *o = &p->operands[p->launches[launch].first_operand];
    const DType type = (DType)p->head->compute_type;
    FtxStatus status = FTX_OK;

    for (uint32_t i = 0; i < p->n_buffers && !status && dtype_size(type); i++) {
        const FtxBuffer *b = &p->buffers[i];

        if (b->space == FTX_SPACE_WORK && b->program == program && b->first == launch - in->first_launch &&
            *artifact_string(d->artifact, b->name) == '%')
            status = look(s, s->space[FTX_SPACE_WORK] + b->offset, live_bytes(d, in, b, T, S) / dtype_size(type), type,
                          launch, err);
    }
    for (uint32_t i = 0; i < k->n_operands && !status; i++)
        if (o[i].space == FTX_SPACE_STATE && o[i].offset == p->head->named[FTX_NAMED_logits])
            status = look(s, s->space[FTX_SPACE_STATE] + o[i].offset, (uint64_t)S * d->artifact->facts->vocab, DT_FP32,
                          launch, err);
    return status;
}
#endif
