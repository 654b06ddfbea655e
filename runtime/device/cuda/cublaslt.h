/* cublaslt.h - large matrix products by cuBLASLt, which is loaded when first needed.
 *
 *     y[M,N] = act(x[M,K] w[N,K]^T + b) + r        row-major, summed in fp32 (fp32: never TF32)
 *
 * Only what cuBLASLt computes exactly as written is taken: its activation comes after the residual, so both together
 * are refused, and so are activations other than relu and tanh's GELU. Running allocates nothing: descriptors are on
 * the stack, algorithms were chosen before. */
#ifndef FTX_CUBLASLT_H
#define FTX_CUBLASLT_H

#include "../../base/dtype.h"
#include "driver.h"
#include "../../artifact/ftx_format.h"
#include "../../base/memory.h"

#ifdef FTX_HAVE_CUDA

enum { LT_WORKSPACE_MOST = 32 << 20 }; /* bytes an algorithm may ask for: what NVIDIA advises for Hopper */

typedef struct LtShape {
    int64_t rows; /* M at most */
    int64_t n, k;
    DType x, w, y; /* b and r have y's type */
    FtxAct act;
    bool bias, residual;
    const int64_t *measured; /* records as in FtxMatmulAlgo, of this version of the library; the caller's */
    uint32_t n_measured;
    int64_t version;
} LtShape;

/* An algorithm: as the library has it, and its attributes. */
typedef struct LtChoice {
    uint64_t opaque[8];
    int64_t attribute[FTX_MM_ATTRIBUTES];
} LtChoice;

typedef struct LtPointers {
    CUdeviceptr x, w, b, r, y; /* 16-byte aligned */
} LtPointers;

typedef struct LtMatmul LtMatmul;

/* The library's version: 130002 is 13.0.2. */
FtxStatus lt_version(size_t *version, FtxError *err);

/* The library's handle, one for each device: of the current context. */
FtxStatus lt_start(void **handle, FtxError *err);
void lt_stop(void *handle); /* NULL is fine */

/* Chooses algorithms for every M up to shape->rows, one for each 64 rows: the measured ones, else the library's first. */
FtxStatus lt_open(const Memory *m, void *handle, const LtShape *shape, LtMatmul **out, FtxError *err);
void lt_close(LtMatmul *l); /* NULL is fine */
bool lt_equal(const LtMatmul *l, const LtShape *shape);

/* Workspace bytes of the chosen algorithms; launches of a session share it. */
size_t lt_workspace(const LtMatmul *l);

FtxStatus lt_run(const LtMatmul *l, int64_t rows, const LtPointers *p, CUdeviceptr workspace, CUstream stream,
                 FtxError *err);

/* Measured records that were not taken: of another version of the library, or which it does not accept. */
uint32_t lt_ignored(const LtMatmul *l);
uint32_t lt_measured(const LtMatmul *l); /* all of them */

/* The library's algorithms for so many rows, its first choice first, at most `most`; a run with one of them. */
FtxStatus lt_list(const LtMatmul *l, int64_t rows, LtChoice *out, size_t most, size_t *n, FtxError *err);
FtxStatus lt_try(const LtMatmul *l, const LtChoice *c, int64_t rows, const LtPointers *p, CUdeviceptr workspace,
                 CUstream stream, FtxError *err);

/* Runs each algorithm that was chosen once, so that none is loaded later. */
FtxStatus lt_warm(const LtMatmul *l, const LtPointers *p, CUdeviceptr workspace, CUstream stream, FtxError *err);

/* The library as a table, for tests to replace. */
typedef struct CublasLtTable CublasLtTable;
void cublaslt_replace(const CublasLtTable *table);

#endif
#endif
