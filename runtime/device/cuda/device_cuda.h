/* device_cuda.h - declarations that the files of the CUDA device share.
 *
 *   plan.c           names, rows and grids of the plan; the context. Calls none of the others
 *   device_cuda.c    the device: context, code, matrix products; the table of functions
 *   weights.c        the weights: stored or drawn, through pinned memory to the device
 *   offload.c        weights that stay in host memory: their copies in a step
 *   session.c        an engine's memory, and the copies into and out of it
 *   peers.c          several GPUs that share a model
 *   processes.c      the same where the other GPUs are in other processes: exchanges by NCCL (nccl.h)
 *   program.c        launches: prepared as graphs, or one by one; times
 *   activity.c       what CUPTI has recorded of a stream
 *   timeline.c       kernels and copies in a Trace
 *   wait.c           waits with a time limit
 *   nan.c            FTX_NAN: checks what a launch wrote
 *
 * Every function of the table makes the device's context current and restores the caller's. */
#ifndef FTX_DEVICE_CUDA_H
#define FTX_DEVICE_CUDA_H

#include "cublaslt.h"
#include "driver.h"
#include "nccl.h"
#include "../cache.h"
#include "../device.h"
#include "../offload.h"
#include "../../../kernels/device/io.h"
#include "../../base/memory.h"

#ifdef FTX_HAVE_CUDA
#include <stdatomic.h>

/* A kernel of ranks, as the ranks of several processes need it: what a launch brings to the exchange, so many bytes for each
 * live row, is its first operand; or the kernel makes it in the rank's own part of $exchange, and is launched twice. */
typedef struct Brought {
    uint64_t row_bytes; /* 0: it exchanges nothing */
    bool rows_s;        /* rows are sequences, else tokens */
    bool twice;
} Brought;

struct Device {
    Memory memory;
    size_t bytes;
    const CudaDriver *cu;
    const Artifact *artifact;
    const ArtifactPlan *plan;
    int threads;  /* for filling staging memory */
    int patience; /* seconds that a program may take, FTX_PATIENCE; 0: no limit */
    CUdevice device;
    CUcontext context; /* the primary context, retained */
    int64_t sms;
    atomic_bool lost; /* it stopped answering: make no call that may wait */
    bool overlap;     /* the GPU knows programmatic dependent launch */
    CUdeviceptr weights;
    Offload *offload;      /* NULL: all weights are in `weights`, as the artifact has them */
    char *host;            /* pinned: offload's weights in host memory; NULL: none */
    CUdeviceptr host_rows; /* its address on the GPU, which reads rows of embeddings there */
    double copy_rate;      /* bytes a second from there to the GPU; 0: nothing is copied */
    void *lt;              /* NULL: no launch needs cuBLASLt */
    CUmodule *module;      /* [n_kernels], NULL where an earlier kernel has the same image */
    CUfunction *function;  /* [n_kernels], NULL for matrix products */
    LtMatmul **matmul;     /* [n_launches], NULL for kernels; equal ones are shared */
    bool processes;        /* other ranks are in other processes */
    Brought *brought;      /* [n_kernels]; of `processes` alone */
    char name[256];
};

typedef struct Timeline Timeline;

enum { WRITE_MAX = 64 << 10, RING_PARTS = 4, RING_PART_BYTES = 4 * WRITE_MAX };

struct Session {
    Device *device;
    size_t bytes; /* of this block of host memory */
    CUstream stream;
    CUdeviceptr block; /* STATE | IO | WORK | workspace of cuBLASLt */
    CUdeviceptr kv;    /* PAGES; 0: none */
    uint32_t pages;
    char *pinned; /* OUT | IO | ring | masks | report */
    char *kept;   /* pinned: pages outside of the KV cache; NULL: none */
    uint32_t n_kept;
    CUdeviceptr space[FTX_SPACE_COUNT];
    CUdeviceptr workspace;
    CUdeviceptr staging;     /* offload's staging area */
    bool copied;             /* weights were copied there, and nothing was launched since */
    CUdeviceptr descriptors; /* TMA descriptor (CUtensorMap) of each tiled operand, in their order */
    char *io, *out, *ring;
    size_t device_bytes, pinned_bytes;
    FtxReport *report; /* of one of several ranks, pinned; else NULL */
    int peer_timeout;  /* seconds, FTX_PEER_TIMEOUT */
    bool joined;       /* the other ranks */

    /* Ranks of several processes; links NULL: there are none. */
    Links *links;
    Nccl *nccl;
    FtxError failed; /* what has gone wrong between the ranks; status FTX_OK: nothing */
    int rank, ranks;
    CUstream probe;  /* reads while kernels run */
    unsigned *count; /* pinned: FtxExchange.count as it was read last */
    bool probing;    /* it is being read */
    unsigned seen;   /* the last other value ... */
    double since;    /* ... and when it was seen, in seconds of the wait */
    double next_look, next_probe;

    /* write() copies through a ring of parts; a part is used again when its event has passed. */
    CUevent part_done[RING_PARTS];
    bool part_used[RING_PARTS];
    int part;
    size_t part_at;
    uint32_t *masks;       /* pinned: the host's $mask; NULL: the plan has none */
    CUstream masks_stream; /* copies them while the layers before `mask` run */
    CUevent masks_there;   /* recorded after the last of these copies */
    bool begun;            /* cuda_program_begin has enqueued its part */
    CUevent uploaded;      /* recorded after the last copy of IO */
    CUevent followed;      /* recorded in the caller's stream */

    CUdeviceptr *arg;         /* [n_operands] */
    CUgraphExec *graph;       /* [n_programs], NULL: launched one by one */
    CUgraphExec *chain;       /* [n_programs]: FTX_CHAIN runs in one; NULL: there is none */
    CUgraphExec *head, *tail; /* [n_programs]: the launches before `mask`, and from there on; NULL: there is none */
    uint32_t (*grid)[3];      /* [n_kernels], of the last T and S */
    int grid_T, grid_S;
    FtxProfile *profile_row; /* [n_kernels], and one of copied weights */
    CUevent *event;          /* [n_events]: made when time or profile first asks */
    size_t n_events, max_events;
    bool profiling, sync, nan;
    Timeline *timeline; /* NULL: nothing is traced */
};

/* plan.c. cuda_enter makes the device's context current; cuda_leave, after each success, restores the caller's. */
FtxStatus cuda_enter(const Device *d, FtxError *err);
void cuda_leave(const Device *d);
const char *cuda_launch_label(const Device *d, uint32_t launch); /* "layer 3: qkv" */
const char *cuda_kernel_name(const Device *d, uint32_t kernel);  /* its entry, or its family */

/* The most rows (rows_s) or tokens of program p. */
int64_t cuda_most_rows(const Device *d, const FtxProgram *p, bool rows_s);

/* The grid of a kernel, in blocks; variables [VAR_COUNT] are those of base/expr.h. */
FtxStatus cuda_grid(const Device *d, uint32_t kernel, const int64_t *variables, uint32_t grid[3], FtxError *err);

/* Waits until all work on the stream, so many programs, is done. */
FtxStatus cuda_wait_stream(Device *d, CUstream stream, int programs, FtxError *err, const char *what, ...)
    __attribute__((format(printf, 5, 6)));
FtxStatus cuda_wait_event(Device *d, CUevent event, FtxError *err, const char *what);
/* The same for the session's stream, or an event on it. Of several ranks: a wait ends, too, when `stop` is called meanwhile;
 * one that begins after that waits to the end. */
FtxStatus cuda_wait_session(Session *s, CUevent event, int programs, FtxError *err, const char *what);

FtxStatus cuda_weights(Device *d, uint64_t seed, FtxError *err);

/* offload.c. cuda_offload_open decides and takes the host's memory, before cuda_weights fills it; _measure times a copy after that.
 * cuda_weight: the address of an operand of WEIGHTS. cuda_offload_copy enqueues the copies before a launch, if it has any. */
FtxStatus cuda_offload_open(Device *d, const FtxOptions *o, FtxError *err);
FtxStatus cuda_offload_measure(Device *d, FtxError *err);
void cuda_offload_tell(const Device *d, FtxModelInfo *info);
CUdeviceptr cuda_weight(const Session *s, uint64_t offset);
uint64_t cuda_staging_bytes(const Device *d);
bool cuda_offload_copies(const Device *d, uint32_t launch);
FtxStatus cuda_offload_copy(Session *s, uint32_t launch, FtxError *err);
/* "; with --gpu-layers 20 ...": what would fit in so many bytes. "": nothing would. */
const char *cuda_offload_advice(const Device *d, uint64_t bytes, char *text, size_t text_bytes);

FtxStatus cuda_session_open(Device *d, uint64_t kv_bytes, Session **out, uint32_t *pages, FtxError *err);
void cuda_session_close(Session *s);
void *cuda_session_io(Session *s);
const void *cuda_session_out(Session *s);
FtxStatus cuda_session_upload(Session *s, size_t bytes, FtxError *err);
FtxStatus cuda_session_write(Session *s, int named, size_t offset, const void *p, size_t bytes, FtxError *err);
FtxStatus cuda_session_read(Session *s, int named, size_t offset, void *p, size_t bytes, FtxError *err);
FtxStatus cuda_session_owns(Session *s, const char *field, const void *p, FtxError *err);
FtxStatus cuda_session_follow(Session *s, void *stream, FtxError *err);
FtxStatus cuda_session_copy_in(Session *s, int named, size_t offset, const void *p, size_t bytes, FtxError *err);
FtxStatus cuda_session_copy_out(Session *s, int named, size_t offset, void *p, size_t bytes, FtxError *err);
FtxStatus cuda_session_clear(Session *s, void *p, size_t bytes, FtxError *err);
FtxStatus cuda_session_keep_open(Session *s, uint32_t n, FtxError *err);
FtxStatus cuda_session_keep(Session *s, uint32_t kept, uint32_t page, bool back, FtxError *err);
FtxStatus cuda_session_snapshot(Session *s, uint32_t snapshot, uint32_t slot, bool back, FtxError *err);
FtxStatus cuda_session_wipe(Session *s, uint32_t page, FtxError *err);
uint32_t *cuda_session_masks(Session *s);
/* Enqueues the copy of the masks of rows [first, first + n); what is enqueued after that waits for it. */
FtxStatus cuda_session_send_masks(Session *s, int first, int n, FtxError *err);
FtxStatus cuda_session_settle(Session *s, FtxError *err);
FtxStatus cuda_session_wait(Session *s, FtxError *err);

FtxStatus cuda_session_join(Session *s, int rank, int ranks, Session *const *all, FtxError *err);
void cuda_session_stop(Session *s);
FtxStatus cuda_session_peers(Session *s, FtxError *err); /* what went wrong between the ranks, if anything did */

/* processes.c. cuda_exchange enqueues what a launch brings to the other ranks, before the launch or between the two;
 * cuda_exchanges: what it brings, NULL: nothing. cuda_ranks_over: whether a wait that has taken so many seconds is given up. */
FtxStatus cuda_exchange_find(Device *d, FtxError *err);
const Brought *cuda_exchanges(const Session *s, const FtxLaunch *l);
FtxStatus cuda_exchange(Session *s, const FtxLaunch *l, int T, int S, FtxError *err);
FtxStatus cuda_session_join_links(Session *s, Links *l, FtxError *err);
bool cuda_ranks_over(Session *s, double waited);
FtxStatus cuda_ranks_check(Session *s, FtxError *err);
void cuda_ranks_leave(Session *s); /* before the last wait: kernels that wait for others end, if others have failed */
void cuda_ranks_close(Session *s); /* after the graphs */

FtxStatus cuda_session_zero(Session *s, FtxError *err); /* clears STATE, IO, WORK and the pages */

FtxStatus cuda_program_prepare(Session *s, FtxError *err); /* warms, captures, uploads */
void cuda_program_close(Session *s);
FtxStatus cuda_program_run(Session *s, uint32_t program, int T, int S, int times, FtxError *err);
FtxStatus cuda_program_begin(Session *s, uint32_t program, int T, int S, FtxError *err);
FtxStatus cuda_program_finish(Session *s, uint32_t program, int T, int S, int first, int n, FtxError *err);
FtxStatus cuda_program_profile(Session *s, bool on, const FtxProfile **rows, size_t *n, FtxError *err);
FtxStatus cuda_program_time(Session *s, uint32_t program, int T, int S, int repeat, double *times, FtxError *err);

/* DeviceApi.trace. While s->timeline is set, a program tells it what it enqueues: first cuda_timeline_run, then each
 * launch or graph; cuda_timeline_tell when all is enqueued. by_events: an event is behind each launch, so launches do
 * not overlap. each: FTX_TRACE wants the time of each launch, for which there are no graphs then. */
FtxStatus cuda_timeline(Session *s, Trace *to, FtxError *err);
bool cuda_timeline_by_events(const Session *s);
bool cuda_timeline_each(const Session *s);
FtxStatus cuda_timeline_run(Session *s, uint32_t program, int T, int S, int times, FtxError *err);
FtxStatus cuda_timeline_launch(Session *s, uint32_t launch, FtxError *err);
FtxStatus cuda_timeline_graph(Session *s, bool chain, FtxError *err);
FtxStatus cuda_timeline_copy(Session *s, uint64_t bytes, FtxError *err); /* of weights, before a launch */
FtxStatus cuda_timeline_tell(Session *s, FtxError *err);

/* After launch `launch` of a program with T live tokens in S rows, and a wait. */
FtxStatus cuda_look_for_nan(const Session *s, uint32_t program, uint32_t launch, int T, int S, FtxError *err);

#endif
#endif
