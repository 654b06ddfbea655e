/* activity.h - when each kernel and copy of a stream ran, by CUPTI, which is loaded when first needed. */
#ifndef FTX_CUDA_ACTIVITY_H
#define FTX_CUDA_ACTIVITY_H

#include "driver.h"
#include "../../base/memory.h"

#ifdef FTX_HAVE_CUDA

typedef struct Activity {
    int64_t from, to; /* ns of CLOCK_MONOTONIC */
    const char *name; /* of the kernel, CUPTI's until the process ends; or what a copy does */
    uint64_t bytes;   /* 0: a kernel */
} Activity;

typedef struct Activities Activities;

/* Records what the stream does from now on, and copies of the context's default stream; at most `room` of both. The
 * context is current. One stream of a process is recorded at a time. FTX_ENODEVICE: no CUPTI; FTX_EDEVICE: it is in
 * use, or a call failed. */
FtxStatus activity_open(const Memory *m, CUcontext context, CUstream stream, size_t room, Activities **out,
                        FtxError *err);

/* What has been recorded since the last call, by its begin; the stream must be idle. *rows are valid until the next
 * call. *dropped: how many there was no room for. */
FtxStatus activity_take(Activities *a, const Activity **rows, size_t *n, uint64_t *dropped, FtxError *err);
void activity_close(Activities *a); /* NULL is fine */

FtxStatus activity_find(FtxError *err); /* loads CUPTI. FTX_ENODEVICE: it is not there, or too old */

/* For tests: the table that is used from now on; NULL: the machine's CUPTI again. */
struct CuptiTable;
void activity_replace(const struct CuptiTable *table);
#endif

#endif
