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
} LtShape;

typedef struct LtPointers {
    CUdeviceptr x, w, b, r, y; /* 16-byte aligned */
} LtPointers;

typedef struct LtMatmul LtMatmul;

/* The library's version: 130002 is 13.0.2. */
FtxStatus lt_version(size_t *version, FtxError *err);

/* The library's handle, one for each device: of the current context. */
FtxStatus lt_start(void **handle, FtxError *err);
void lt_stop(void *handle); /* NULL is fine */

/* Chooses algorithms for every M up to shape->rows, one for each 64 rows. */
FtxStatus lt_open(const Memory *m, void *handle, const LtShape *shape, LtMatmul **out, FtxError *err);
void lt_close(LtMatmul *l); /* NULL is fine */
bool lt_equal(const LtMatmul *l, const LtShape *shape);

/* Workspace bytes of the chosen algorithms; launches of a session share it. */
size_t lt_workspace(const LtMatmul *l);

FtxStatus lt_run(const LtMatmul *l, int64_t rows, const LtPointers *p, CUdeviceptr workspace, CUstream stream,
                 FtxError *err);

/* Runs each algorithm that was chosen once, so that none is loaded later. */
FtxStatus lt_warm(const LtMatmul *l, const LtPointers *p, CUdeviceptr workspace, CUstream stream, FtxError *err);

/* The library as a table, for tests to replace. */
typedef struct CublasLtTable CublasLtTable;
void cublaslt_replace(const CublasLtTable *table);

#endif
#endif
