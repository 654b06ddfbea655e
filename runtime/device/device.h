/* device.h - the table of functions that runs a plan: on the CPU (cpu/device_cpu.c) or on a GPU
 * (cuda/device_cuda.c).
 *
 * A Device is opened for an artifact's plan: it holds the weights and prepared programs. A Session is one engine's
 * memory on it: the spaces STATE, IO, WORK, OUT and PAGES, and its stream. */
#ifndef FTX_DEVICE_H
#define FTX_DEVICE_H

#include "../artifact/artifact.h"
#include "../base/error.h"

typedef struct Device Device;
typedef struct Session Session;
typedef struct Trace Trace; /* trace.h */
typedef struct Team Team;   /* base/team.h */

enum { FTX_JOIN_WORD = 128 };

/* Is told what matrices multiply: for `ftxc compile --calibrate`. */
typedef struct Watch {
    /* x [rows][columns], which a linear layer or experts are about to multiply with a matrix [N][columns]; at: the matrix's
     * offset in the block of weights. Valid during the call. */
    void (*inputs)(void *user, uint64_t at, const float *x, int64_t rows, int64_t columns);
    void *user;
} Watch;

enum { FTX_CHAIN = 5 }; /* decode runs that a GPU takes as one graph */

typedef struct Links Links; /* group/link.h */

typedef struct DeviceApi {
    const char *name; /* "cpu", "cuda" */

    /* Opens a device for one plan of the artifact; loads code and weights. o->random_weights: draws them. */
    FtxStatus (*open)(const Artifact *a, const ArtifactPlan *plan, const FtxOptions *o, Device **out, FtxError *err);
    void (*close)(Device *d);
    const char *(*describe)(const Device *d); /* "NVIDIA H200", "cpu (2 threads, AVX-512)" */
    /* Where weights lie that are not all on the device: weight_bytes, engine_bytes, host_... and copy_... of info. NULL: they
     * all are. */
    void (*tell)(const Device *d, FtxModelInfo *info);

    /* kv_bytes: FtxOptions. pages: how many the KV cache has (cache.h). */
    FtxStatus (*session_open)(Device *d, uint64_t kv_bytes, Session **out, uint32_t *pages, FtxError *err);
    void (*session_close)(Session *s);

    /* Several ranks (group/): the session is number `rank` of all the sessions, which are of this api, and gets the
     * addresses of their $exchange. After all are open, before the first run. NULL: the device has no ranks. */
    FtxStatus (*join)(Session *s, int rank, int ranks, Session *const *all, FtxError *err);
    /* The same where the other ranks are in other processes (group/link.h). NULL: they cannot be. All make this call at
     * the same time. What join_word writes in rank 0 is links_word of all ranks then; NULL: nothing. */
    FtxStatus (*join_links)(Session *s, Links *l, FtxError *err);
    FtxStatus (*join_word)(char word[FTX_JOIN_WORD], FtxError *err);
    /* Ends the session's waits for other ranks, now and later: its runs fail. From any thread. */
    void (*stop)(Session *s);
    /* What has gone wrong between ranks so far, without waiting: asked before a result is taken from OUT while programs run.
     * NULL: run tells. */
    FtxStatus (*check)(Session *s, FtxError *err);

    /* Host pointers of the spaces the host writes (IO) and reads (OUT); fixed for the session. On
     * a GPU IO is pinned memory that `upload` copies, OUT is mapped. The engine sets the lengths of
     * OUT to -1 while nothing is in flight, so that it never takes an old result for a new one. */
    void *(*io)(Session *s);
    const void *(*out)(Session *s);

    /* Enqueues the copy of the first `bytes` of IO. The host may write IO again once a later
     * `settle` or `wait` has returned. */
    FtxStatus (*upload)(Session *s, size_t bytes, FtxError *err);
    FtxStatus (*settle)(Session *s, FtxError *err); /* waits for the copies of `upload`; programs may still run */
    /* Enqueues a copy of host bytes into a named buffer of STATE (page-table rows); the source is
     * copied before return. At most 64 KiB a call. */
    FtxStatus (*write)(Session *s, int named, size_t offset, const void *p, size_t bytes, FtxError *err);
    /* Copies from a named buffer; waits. */
    FtxStatus (*read)(Session *s, int named, size_t offset, void *p, size_t bytes, FtxError *err);

    /* Memory of the caller on the session's GPU; the CPU has none of these functions. `owns` refuses a pointer to
     * anything else with FTX_EINVAL. What is enqueued after `follow` begins when what the caller's stream holds is done;
     * NULL: it waits for all work of the context. `copy` and `clear` are enqueued: from or to a named buffer of STATE,
     * zeros. */
    FtxStatus (*owns)(Session *s, const char *field, const void *p, FtxError *err);
    FtxStatus (*follow)(Session *s, void *stream, FtxError *err);
    FtxStatus (*copy_in)(Session *s, int named, size_t offset, const void *p, size_t bytes, FtxError *err);
    FtxStatus (*copy_out)(Session *s, int named, size_t offset, void *p, size_t bytes, FtxError *err);
    FtxStatus (*clear)(Session *s, void *p, size_t bytes, FtxError *err);

    /* KV pages in memory of the host. keep_open takes memory for n of them (pinned, on a GPU), once, before the first run.
     * `keep` enqueues the copy of a page of the cache to one of these, or back. NULL: the device has none (ranks). */
    FtxStatus (*keep_open)(Session *s, uint32_t n, FtxError *err);
    FtxStatus (*keep)(Session *s, uint32_t kept, uint32_t page, bool back, FtxError *err);
    /* Enqueues zeros for a page of the cache, which may hold numbers that are not finite: kernels multiply what is behind a
     * sequence's last position by zero. */
    FtxStatus (*wipe)(Session *s, uint32_t page, FtxError *err);
    /* Enqueues the copy of a slot's recurrent states to row `snapshot` of $snapshots, or back. */
    FtxStatus (*snapshot)(Session *s, uint32_t snapshot, uint32_t slot, bool back, FtxError *err);

    /* Enqueues a program `times` times; each run continues from what the one before it left in IO. T, S: live tokens
     * and rows of the IO block. */
    FtxStatus (*run)(Session *s, uint32_t program, int T, int S, int times, FtxError *err);
    /* Of a GPU's plan with masks (limits.masks). `masks`: the host's memory for $mask, [S][FTX_MASK_WORDS(V)] by row of the
     * step (kernels/device/mask.h); NULL: the plan has none. `begin` and `finish` enqueue one run in two parts: what needs no
     * masks; then, behind a copy of those of rows [first, first + n), the rest. The host may write masks of the next run when
     * the results of this one are in OUT. `run` is for runs without masked rows. */
    uint32_t *(*masks)(Session *s);
    FtxStatus (*begin)(Session *s, uint32_t program, int T, int S, FtxError *err);
    FtxStatus (*finish)(Session *s, uint32_t program, int T, int S, int first, int n, FtxError *err);
    FtxStatus (*wait)(Session *s, FtxError *err); /* until all that was enqueued is done */
    /* Whether OUT may change without `wait` (a GPU) or is final when run returns (the CPU). */
    bool asynchronous;

    /* The session's threads, idle between runs. NULL: it has none for others. */
    Team *(*team)(Session *s);

    /* Profiling: run waits after each launch and adds its time to its kernel's row. */
    FtxStatus (*profile)(Session *s, bool on, const FtxProfile **rows, size_t *n, FtxError *err);
    /* Device time of `repeat` runs of a program one by one, in microseconds, into times. While kernels are profiled, their times
     * are added to the rows, and a run takes the sum of its launches. */
    FtxStatus (*time)(Session *s, uint32_t program, int T, int S, int repeat, double *times, FtxError *err);

    /* Records each kernel and copy in t from now on. NULL: no longer; first what has been enqueued is waited for and
     * recorded. */
    FtxStatus (*trace)(Session *s, Trace *t, FtxError *err);

    /* Runs tell w from now on; of matrices that are not quantised. NULL: no longer. NULL function: the device cannot. */
    void (*watch)(Session *s, const Watch *w);
} DeviceApi;

extern const DeviceApi device_cpu;
extern const DeviceApi device_cuda; /* without a GPU: opens with FTX_ENODEVICE and a reason */

/* Artifacts for several ranks (group/group.c), on the CPU and on GPUs. */
extern const DeviceApi device_group_cpu, device_group_cuda;

/* Ranks that are processes (group/launcher.c, group/remote.c). FTX_MASTER is set: rank and number of ranks of FTX_RANK and
 * FTX_RANKS, or of the variables of Slurm, Open MPI or PMI. Else *ranks is 0. */
FtxStatus link_read(int *rank, int *ranks, FtxError *err);
/* In a rank above 0: makes rank 0's calls on a device of `inner` until it closes its model. */
FtxStatus remote_run(const DeviceApi *inner, const Artifact *a, const ArtifactPlan *plan, const FtxOptions *o, int rank,
                     int ranks, FtxError *err);

/* CUDA: whether there is a driver and a device, and the device's target number (901 for an H200). */
FtxStatus device_cuda_probe(int ordinal, uint32_t *target, FtxError *err);
/* CUDA: the name of a GPU that the probe found: "NVIDIA H200". */
FtxStatus device_cuda_name(int ordinal, char *name, size_t bytes, FtxError *err);

/* CUDA: what `ftxc doctor` prints of a GPU. A context is opened on it, which shows that it can be used. */
typedef struct CudaFacts {
    char name[128];
    uint32_t target;            /* as device_cuda_probe */
    int driver;                 /* the CUDA version that the driver is for: 13000 is 13.0 */
    int gpus;                   /* how many the driver sees */
    int sms, memory_mhz;        /* multiprocessors; the clock of its memory */
    size_t memory, memory_free; /* bytes */
} CudaFacts;
FtxStatus device_cuda_facts(int ordinal, CudaFacts *facts, FtxError *err);

/* CUDA, for `ftxc tune`: cuBLASLt's algorithms for a matrix product of so many rows, its first choice first, and the time of
 * one launch with each: the launches of the kernel in a program follow one another, each with the weights of its layer. 0: it
 * does not run. Overwrites activations. */
typedef struct DeviceAlgorithm {
    int64_t attribute[FTX_MM_ATTRIBUTES];
    double us;
} DeviceAlgorithm;
FtxStatus device_cuda_algorithms(Session *s, uint32_t program, uint32_t kernel, int64_t rows, DeviceAlgorithm *out,
                                 size_t most, size_t *n, FtxError *err);

/* CUDA, for `ftxc tune`: how fast the GPU's memory is. GB/s, read and written, of copies of `bytes` inside it, for which twice as
 * many are taken; more than its caches hold, or they are measured. */
FtxStatus device_cuda_rate(int ordinal, size_t bytes, double *gb_s, FtxError *err);

/* The version of cuBLASLt: 130002 is 13.0.2. */
FtxStatus device_cuda_blas(size_t *version, FtxError *err);
/* Whether CUPTI is there, which times each kernel of a trace. */
FtxStatus device_cuda_cupti(FtxError *err);
/* The version of NCCL, for GPUs of several processes: 22809 is 2.28.9. */
FtxStatus device_cuda_nccl(int *version, FtxError *err);

#endif
