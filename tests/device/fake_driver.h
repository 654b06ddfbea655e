/* fake_driver.h - a CUDA driver that runs nothing: device memory comes from malloc, copies happen
 * at once (or as late as they may), launches are written down.
 *
 * A code image is the text "ENTRY N", one kernel that takes a struct of N pointers, or a cubin of
 * NVRTC. Any one call can be made to fail, the device can hang from any call on, and everything
 * that is opened is counted until it is closed. */
#ifndef FTX_FAKE_DRIVER_H
#define FTX_FAKE_DRIVER_H

#include <stdint.h>

#include "runtime/device/cuda/driver.h"
#include "runtime/device/cuda/cublaslt.h"

enum { FAKE_MAX_PARAMS = 32, FAKE_NAME_BYTES = 128 };
enum { FAKE_CUPTI_AHEAD = 2000000000 }; /* ns: of CUPTI's clock before CLOCK_MONOTONIC */

typedef struct FakeLaunch {
    char kernel[FAKE_NAME_BYTES]; /* "lt": a matrix product */
    unsigned grid[3], block, smem;
    bool overlap; /* a programmatic edge to the launch before */
    bool in_graph;
    unsigned n_params;
    CUdeviceptr param[FAKE_MAX_PARAMS];
    long long m, n, k; /* of a matrix product */
    float beta;
    int epilogue;
    long long algo; /* the algorithm was chosen for so many rows */
} FakeLaunch;

typedef struct FakeDescriptor { /* in the opaque TMA descriptor */
    CUdeviceptr matrix;
    bool bf16;
    uint64_t columns, rows, row_bytes;
    uint32_t tile_columns, tile_rows;
} FakeDescriptor;

typedef struct Fake {
    /* what the machine is */
    int gpus, cc, version;
    size_t free_bytes; /* of the device; allocations take from it */
    /* fault injection: call number `fail_at` (from 1) fails; 0: none */
    unsigned long fail_at, calls;
    CUresult fail_with;    /* 0: CUDA_ERROR_UNKNOWN */
    unsigned long hang_at; /* from this call on the device never gets ready; 0: it answers */
    bool only_kernels;     /* streams to which nothing was launched answer */
    const char *failed;    /* the function that was made to fail */
    /* what is open */
    int contexts, pushed, allocations, pinned, streams, events, modules, graphs, execs, handles;
    /* what was run */
    FakeLaunch run[4096];
    size_t n_run;
    void (*execute)(const FakeLaunch *l); /* NULL: what is launched does nothing */
    bool late;           /* work waits until the host waits for it: what it reads may not change before */
    bool picky;          /* an algorithm of cuBLASLt serves the row count it was chosen for, no other */
    double clock_ms;     /* what launches with measured algorithms of cuBLASLt took beyond those with the first */
    unsigned long asked; /* times the host asked whether work is done */
    int driver_calls_that_allocate;
    int from_host, to_host, on_device; /* copies that were enqueued */
    int copied;                        /* copies that were done */
    bool apart;                        /* no GPU reaches the memory of another */
    int peers;                         /* times that one was let reach it */
    int memory_of;                     /* the GPU whose memory all is */
    bool cupti;                        /* CUPTI may record */
    bool split;                        /* a matrix product is two kernels */
    size_t cupti_dropped;              /* records that CUPTI says it had no buffer for */
} Fake;

extern Fake fake;

/* An NCCL that carries nothing: what is sent and received is written down as launches "nccl_send" and "nccl_recv", whose
 * parameters are the address, the bytes and the other rank. ncclCommAbort waits until no graph is left, and ends a hang. */
typedef struct FakeNccl {
    unsigned long fail_at, calls; /* as in Fake */
    const char *failed;
    int version;
    int meets_after; /* times that a communicator says that it is in progress; -1: it never meets the others */
    int async_error; /* what it says of itself then */
    int opened, aborted;
    bool nvls; /* NCCL_NVLS_ENABLE was not 0 when a communicator was opened */
} FakeNccl;

extern FakeNccl fake_nccl;

void fake_reset(void); /* a machine with one sm_90; installs both tables */
int fake_open_things(void);
/* Whether [p, p + bytes) is device memory (or mapped host memory) that is allocated. */
bool fake_holds(CUdeviceptr p, size_t bytes);

#endif
