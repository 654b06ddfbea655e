/* catalog.h - which kernels exist and where they fit: the contracts, read from the `//@` lines of
 * templates/ (CUDA) and kernels/cpu/ (C). The text of both, and of every .cuh, is embedded in ftxc.
 *
 *   //@ kernel  NAME                       the family; first part of instance names
 *   //@ device  cuda | cpu | matmul        matmul: a cuBLASLt node, no text
 *   //@ args    x[M,K] w[N,K] g[K]:fp32 b[N]:fp32 r[M,N] $token $k -> y[M,N]
 *                 The kernel's pointers, in this order. A name the match line does not bind is
 *                 NULL. Capital letters bind dimensions. :type asks for that storage of a
 *                 weight (it is packed so); without it any type goes. $name is of named.def.
 *   //@ match   y = linear(rmsnorm(x, g), w, b?)  | NORM=1 RES=0
 *                 One line for each subgraph the kernel computes: a tree of ops of ops.def, its
 *                 inner values read by nobody else. `b?` may be missing. Constants after the bar.
 *   //@ rows    all | decode | prefill     attention: which rows it serves (default all). In a
 *                 step program an op is covered by one `all` kernel or by a decode and a
 *                 prefill kernel, launched one after the other on the same operands.
 *   //@ consts  X: type(x)  N: N  K: K  EPS: rmsnorm.eps  KIND: glu.kind  BIAS: has(b)
 *   //@ consts  TILE: 8 16 32              candidates: the first that `fits` (tuned later)
 *                 op.attr is an attribute of the op that matched; of two of one op the outer one;
 *                 words become numbers by FtxAct. A later expression may use an earlier constant.
 *   //@ fits    expression                 over constants, dims, T_MAX (bucket, or limits.tokens),
 *                 S_MAX, BUCKET (0: exact), DECODE (1 in decode programs), ARCH (80, 90 ...),
 *                 SMEM (shared memory a block may have on the target), CONTEXT, BLOCK (kv_block)
 *   //@ launch  grid E, E, E   block E   smem E       grid may use T, S, SMS
 *   //@ scratch NAME bytes                 workspace for this launch; an operand after the outs
 *   //@ zeroed  NAME bytes                 zero at engine open, and left zero by the kernel
 *   //@ moves   bytes      //@ flops  operations     //@ matmul yes     //@ overlap yes
 *
 * Lines may repeat (match, consts, fits, scratch, zeroed) and add up. Expressions: base/expr.h.
 * The instance text is the template with @NAME@ (the entry) and @CONST@ replaced: types become
 * `float`, `half`, `bf16` (device/types.cuh), floats get an f, ints stay. */
#ifndef FTXC_CATALOG_H
#define FTXC_CATALOG_H

#include "../ir/ir.h"
#include "../../runtime/base/expr.h"

typedef enum KernelDevice { KD_CUDA, KD_CPU, KD_MATMUL } KernelDevice;
typedef enum RowsServed { ROWS_ALL, ROWS_DECODE, ROWS_PREFILL } RowsServed;

typedef struct Contract Contract; /* catalog_internal of the room; fields other rooms need: */

typedef enum ConstKind { CONST_INT, CONST_FLOAT, CONST_TYPE } ConstKind;
typedef struct Const {
    const char *name;
    ConstKind kind;
    int64_t i; /* int, or DType */
    double f;
} Const;

/* A contract with its constants fixed: what instantiate turns into text and code. */
typedef struct Instance {
    const Contract *contract;
    const char *family;   /* "linear" */
    const char *entry;    /* extern "C" name, made of its facts; unique */
    KernelDevice device;
    const char *template_name; /* "linear.cu"; NULL for cpu, matmul */
    Const *consts;
    size_t n_consts;
    uint32_t block, smem;
    bool overlap, matmul;
    Expr grid[3], moves;
    const char *note; /* "for %37 of llama.lua:48": the first use */
    /* read back from the cubin by instantiate */
    uint32_t registers, stack_bytes, spill_bytes, static_smem;
} Instance;

typedef struct Catalog {
    Contract **at;
    size_t n;
} Catalog;

/* All contracts, parsed once; a mistake in one is a diagnostic with file and line. */
bool catalog_open(Arena *keep, Catalog *c, Diag *d);

/* Text of an embedded file: "rmsnorm.cu", "rmsnorm.cuh", "device/vec.cuh". NULL: none. */
const char *catalog_text(const char *name);
/* Every embedded .cuh, for NVRTC's header list. */
size_t catalog_headers(const char *const **names, const char *const **texts);

#endif
