/* catalog.h - the contracts of all kernels, read from the `//@` lines of templates/ (CUDA) and kernels/cpu/ (CPU), and the
 * forms of values, read from those of compiler/ir/forms.def.
 *
 * docs/contracts.md explains the language, lines.def lists its lines, names.def the names that expressions may use. The
 * texts of templates/ and kernels/ are embedded in ftxc, so contracts are there without the source tree. */
#ifndef FTXC_CATALOG_H
#define FTXC_CATALOG_H

#include "../embed.h"
#include "../ir/ir.h"
#include "../targets.h"
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

/* A contract with its constants chosen: one kernel, which instantiate turns into text and code. */
typedef struct Instance {
    const Contract *contract;
    const char *family; /* "linear" */
    const char *entry;  /* its extern "C" name, made of the constants; unique */
    KernelDevice device;
    const char *template_name; /* "linear.cu"; NULL for cpu, matmul */
    const char *variant;       /* "head"; NULL: the contract has no variants */
    Const *consts;
    size_t n_consts;
    const Const *fixed; /* numbers of the variant, the same in all its instances */
    size_t n_fixed;
    Const *regions; /* offsets of the regions of shared memory, NAME_AT, and the end of all, SHARED */
    size_t n_regions;
    const int64_t *algorithms; /* of a matmul, measured: behind its constants in the artifact (FtxMatmulAlgo) */
    size_t n_algorithms;       /* words; 0: none */
    uint32_t n_operands;       /* pointers of the kernel: args, then scratch, then zeroed */
    uint32_t block, smem;
    bool overlap, matmul;
    Expr grid[3], moves;
    const char *note; /* "for %37 of llama.lua:48": its first use */
    /* set by instantiate, from the cubin */
    uint32_t registers, stack_bytes, spill_bytes, static_smem;
} Instance;

/* The weights that are folded into another when it is packed: the product with the folded matrix and bias is that of
 * layernorm(x, g, c), up to the factor 1 / sd of each row. All 0: none. */
typedef struct Fold {
    Id gain;          /* of a matrix: w[n,k] g[k], minus the mean of the row */
    Id matrix, shift; /* of a bias: b[n] + sum over k of w[n,k] c[k] */
} Fold;

typedef struct Form Form; /* catalog/contract.h; number 0 is plain */

typedef struct Catalog {
    Contract **at; /* CUDA contracts by rank, then CPU contracts by rank; the order of files has no effect */
    size_t n;
    const Form *forms; /* [n_forms] */
    size_t n_forms;
} Catalog;

/* Reads all embedded contracts; a mistake in one is a diagnostic with file and line. */
bool catalog_open(Arena *keep, Catalog *c, Diag *d);

/* The same for given files: tests bring their own, contracts without kernels, which need no types. */
bool catalog_read(Arena *keep, const EmbeddedFile *files, size_t n, Catalog *c, Diag *d);

/* types.c: that each CUDA kernel knows the types of all that it reads and writes. */
bool catalog_check_types(const Catalog *c, Diag *d);

/* Text of an embedded file: "rmsnorm.cu", "rmsnorm.cuh", "device/vec.cuh". NULL: none. */
const char *catalog_text(const char *name);
/* The text after `text` if the line at `line` is `//@ NAME, NAME: text ...` and names the variant, else NULL. */
const char *catalog_text_line(const char *line, const char *variant);
/* Every embedded .cuh, for NVRTC's header list. */
enum { CATALOG_MAX_HEADERS = 256 };
size_t catalog_headers(const char *const **names, const char *const **texts);

/* The embedded headers that a text includes, directly or not: indices into catalog_headers, sorted. */
size_t catalog_includes(const char *text, size_t *indices, size_t max);

/* strip.c: the text without comments and blanks at the end of lines; without keep_lines also without empty lines. */
const char *catalog_strip(const char *text, bool keep_lines, Arena *keep);

/* Of everything that kernels of a template follow from, but for constants and target: its contracts, its text and the
 * headers that it includes, these two without comments. 0: there is no such template. */
uint64_t catalog_hash(const char *name, Arena *scratch);

#endif
