/* catalog.h - which kernels exist and where they fit: the contracts, read from the `//@` lines of
 * templates/ (CUDA) and kernels/cpu/ (C). The text of both, and of every .cuh, is embedded in ftxc.
 *
 *   //@ kernel  NAME                       the family; first part of instance names
 *   //@ rank    N                          of kernels that cost the same, the one with the lowest rank is
 *                 taken. No two of one back end share a rank; cuBLASLt's node counts as CUDA.
 *   //@ device  matmul                     a cuBLASLt node, no text (else the folder says cuda or cpu)
 *   //@ args    x[M,K] w[N,K] g[K]:fp32 b[N]:fp32 r[M,N] $token $k -> y[M,N]
 *                 The kernel's pointers, in this order. A name the match line does not bind is
 *                 NULL. Capital letters bind dimensions; other sizes (2*F, 64) must be equal. With
 *                 fewer sizes than the value has, its last ones count as one; without [..] any
 *                 shape goes. :type asks for that storage of a weight (it is packed so) and of an
 *                 activation (or there is no match); :type(y) for that of another argument;
 *                 without it any type goes. $name is of named.def; $k and $v are the layer's.
 *                 xs:stats(x) and, of an out, ys:stats(y) are statistics of the argument's rows:
 *                 of each part of their columns the sum and the sum of squares. Those of x come
 *                 where the match has a norm whose input is x; those of y where they are read.
 *   //@ leaves  ys columns                 of a part of the statistics left of y, the last having
 *                 the rest; 0: this instance leaves none, or there is no ys
 *   //@ folded  w b g c                    where a match binds g and c, gain and shift of a norm in
 *                 front of the product w, b, these are computed into w and b when they are packed
 *                 (weights/pack.c says how): the kernel multiplies by the rows' 1 / sd alone. Match
 *                 lines, which stand behind it, name g and c; they are no pointers of the kernel.
 *   //@ match   y = linear(rmsnorm(x, g), w, b?)  | NORM=1 RES=0
 *                 One line for each subgraph the kernel computes: a tree of ops of ops.def, its
 *                 inner values read by nobody else. `b?` may be missing; ids() has no arguments.
 *                 add and mul are tried both ways round. After the bar constants, each an
 *                 expression without blanks; those that other lines name and this one does not
 *                 are 0. An output that is $name, or not in args, has no buffer of its own.
 *                 `match none`: it computes no op; the runtime launches it by family.
 *   //@ rows    all | decode | prefill     attention: which rows it serves (default all). In a
 *                 step program an op is covered by one `all` kernel or by a decode and a
 *                 prefill kernel, launched one after the other on the same operands.
 *   //@ consts  X: type(x)  N: N  K: K  EPS: rmsnorm.eps  KIND: glu.kind  BIAS: has(b)
 *   //@ consts  TILE: 8 16 32              candidates: the first that `fits` (tuned later)
 *                 op.attr is an attribute of the op that matched (0: it did not); of two of one
 *                 op the outer one; words become numbers by FtxAct. `layer` is no constant: $k
 *                 and $v know it. A later expression may use an earlier constant. Constants are
 *                 numbered as the consts lines name them, then those of match lines;
 *                 a consts line `ACT: ACT` gives a constant of match lines its place.
 *   //@ fits    expression
 *   //@ launch  grid E, E, E   block E   smem E       grid may use T, S, SMS and live dimensions
 *   //@ scratch NAME bytes                 workspace for this launch; an operand after the outs
 *   //@ zeroed  NAME bytes                 zero at engine open, and left zero by the kernel
 *   //@ tiled   NAME rows                  NAME, a matrix of 16 bits, is given as a map of tiles of so
 *                 many rows and 64 columns (device/tensor.cuh) in place of its address; 0: it is not
 *   //@ rate    TFLOP/s                    that the kernel reaches on large shapes, for its cost
 *   //@ moves   bytes      //@ flops  operations     //@ matmul yes     //@ overlap yes
 *
 * Lines may repeat (match, consts, fits, scratch, zeroed, tiled) and add up. Expressions (base/expr.h)
 * are over the constants; the dimensions; X_MAX, the largest value of dimension X in the program,
 * and X_IS_S, 1 if it counts sequences; rows(x), 1 if x has a row a sequence; logits(x), 1 if a
 * sample or a beam reads x; columns(xs), of a part of the statistics that x's kernel left, 0: it left
 * none; has(b); type(x); sizeof(x), bytes of an element of an argument or of a
 * type constant; T and S, and dimensions that are one of them, in grid, moves and flops, and with their
 * largest values in scratch and zeroed; SMS in grid, moves and flops; the types fp32 fp16 bf16; the kinds of FtxAct relu gelu_erf gelu_tanh quick_gelu silu tanh; and
 *   T_MAX (bucket, or limits.tokens)   S_MAX   BUCKET (0: exact)   DECODE (1 in decode programs)
 *   ENCODE (1 in encode programs)   SOURCE (tokens of a source at most)
 *   ARCH (80, 90 ...; 0: CPU)   SMEM (shared memory a block may have on the target)
 *   ARCH_A (1: code for the 'a' form of ARCH)
 *   CONTEXT  BLOCK (kv_block)  PAGES (kv_pages)  SEQUENCES  TOKENS  LOGIT_BIAS  END_IDS  BAD_WORDS
 *   BEAMS (lanes of a request at most; 0: no beam search)
 *   LOGIT_SEGMENTS (1: the kernel of the logits leaves $segments; one does whose outs have $segments and whose
 *   constant PARTS is not 0)
 *   ENTRY_WAITS (1: the program's second kernel has a constant FIRST that is not 0: before it waits it reads
 *   weights alone, and it lets none start before that, so the first need not wait to let it start)
 * The instance text is the template with @NAME@ (the entry) and @CONST@ replaced: types become
 * `float`, `half`, `bf16` (device/types.cuh), floats get an f, ints stay. */
#ifndef FTXC_CATALOG_H
#define FTXC_CATALOG_H

#include "../embed.h"
#include "../ir/ir.h"
#include "../../runtime/base/expr.h"

typedef enum KernelDevice { KD_CUDA, KD_CPU, KD_MATMUL } KernelDevice;
typedef enum RowsServed { ROWS_ALL, ROWS_DECODE, ROWS_PREFILL } RowsServed;

typedef struct Contract Contract; /* catalog/contract.h: for select and the tests */

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
    const char *family; /* "linear" */
    const char *entry;  /* extern "C" name, made of its facts; unique */
    KernelDevice device;
    const char *template_name; /* "linear.cu"; NULL for cpu, matmul */
    Const *consts;
    size_t n_consts;
    uint32_t n_operands; /* pointers: args, scratch, zeroed */
    uint32_t block, smem;
    bool overlap, matmul;
    Expr grid[3], moves;
    const char *note; /* "for %37 of llama.lua:48": the first use */
    /* read back from the cubin by instantiate */
    uint32_t registers, stack_bytes, spill_bytes, static_smem;
} Instance;

/* What other weights are computed into one when it is packed, so that a product of x does for one of
 * layernorm(x, g, c): all 0, nothing. */
typedef struct Fold {
    Id gain;          /* g, into a matrix: w[n,k] g[k], less the mean of the row */
    Id matrix, shift; /* w and c, into a bias: b[n] + sum over k of w[n,k] c[k] */
} Fold;

typedef struct Catalog {
    Contract **at; /* CUDA's by rank, then the CPU's by rank: file names decide nothing */
    size_t n;
} Catalog;

/* All contracts, parsed once; a mistake in one is a diagnostic with file and line. */
bool catalog_open(Arena *keep, Catalog *c, Diag *d);

/* The same from texts at hand: tests bring their own. */
bool catalog_read(Arena *keep, const EmbeddedFile *files, size_t n, Catalog *c, Diag *d);

/* Text of an embedded file: "rmsnorm.cu", "rmsnorm.cuh", "device/vec.cuh". NULL: none. */
const char *catalog_text(const char *name);
/* Every embedded .cuh, for NVRTC's header list. */
size_t catalog_headers(const char *const **names, const char *const **texts);

#endif
