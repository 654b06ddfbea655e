/* nccl.h - what GPUs of several processes bring to an exchange, carried by NCCL, which is loaded when first needed.
 *
 * The communicator does not block: each call returns at once or says that it is in progress, and is asked until then, so
 * that a rank that does not come ends in an error. It is ended by ncclCommAbort alone: that waits for no other rank, and its
 * kernels end. But it returns only when no graph has a call of the communicator any more, so a thread makes it. */
#ifndef FTX_NCCL_H
#define FTX_NCCL_H

#include "driver.h"
#include "../../base/memory.h"

#ifdef FTX_HAVE_CUDA

typedef struct Nccl Nccl; /* a communicator: one rank of it */
enum { NCCL_ID_BYTES = 128 };

/* Whether to give up what is waited for; asked while a call is in progress. */
typedef bool NcclOver(void *user);

/* The library's version: 22809 is 2.28.9. FTX_ENODEVICE: it is not there, or too old. */
FtxStatus nccl_version(int *version, FtxError *err);

/* In rank 0: what all ranks need to find each other. */
FtxStatus nccl_id(char id[NCCL_ID_BYTES], FtxError *err);

/* Meets the other ranks within so many seconds. The GPU's context is current. */
FtxStatus nccl_open(const Memory *m, const char id[NCCL_ID_BYTES], int rank, int ranks, int seconds, NcclOver *over,
                    void *user, Nccl **out, FtxError *err);

/* Enqueues: `bytes` of x go to each other rank, and those of rank r come to into + r * share. The stream may record a graph,
 * but not in the first exchange, which connects the ranks. */
FtxStatus nccl_exchange(Nccl *n, CUdeviceptr x, size_t bytes, CUdeviceptr into, uint64_t share, CUstream stream,
                        FtxError *err);

FtxStatus nccl_check(const Nccl *n, FtxError *err); /* what has gone wrong meanwhile, if anything has */

/* The communicator's kernels end; calls after it fail. */
void nccl_abort(Nccl *n);
/* After all graphs with its calls have been destroyed. NULL is fine. */
void nccl_close(Nccl *n);

/* For tests: the table that is used from now on; NULL: the machine's NCCL again. */
struct NcclTable;
void nccl_replace(const struct NcclTable *table);

#endif
#endif
