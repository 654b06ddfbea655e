/* parts.h - what the files of this room share:  text -> (cache | NVRTC in a worker) -> cubin. */
#ifndef FTXC_INSTANTIATE_PARTS_H
#define FTXC_INSTANTIATE_PARTS_H

#include "instantiate.h"
#include "../../runtime/base/hash.h"

/* --- text.c --- */

/* The template with its constants filled in, line for line as the template: without the heading,
 * so that equal code has equal text. */
const char *text_body(const Instance *i, Arena *keep);

/* The embedded headers that a text includes, and those that they include, by index into
 * catalog_headers; sorted. */
size_t text_headers(const char *text, size_t *indices, size_t max);

/* "sm_90a", "compute_80": what --gpu-architecture wants. */
void text_architecture(Target t, char out[32]);
static inline bool target_is_ptx(Target t)
{
    return t.id % 10 == 2;
}

/* --- strip.c --- */

/* The text without comments and blanks at the end of lines; without keep_lines also without empty lines. */
const char *text_strip(const char *text, bool keep_lines, Arena *keep);

/* --- nvrtc.c --- */

typedef struct Bytes {
    const void *at;
    size_t bytes;
} Bytes;

enum { NVRTC_MAX_FLAGS = 8 };
size_t nvrtc_flags(Target t, const char *flags[NVRTC_MAX_FLAGS], char architecture[64]);

/* A cubin, or for a PTX target a text with its NUL. False: *out is NVRTC's log. The bytes come
 * from malloc and belong to the caller. */
bool nvrtc_compile(const char *text, Target t, Bytes *out);

/* --- workers.c --- */

/* In a child process: the bytes of piece i, from malloc, and whether they are a result or a
 * reason. */
typedef bool Work(void *user, size_t i, Bytes *out);
/* In this process, in the order of completion. False stops the rest. */
typedef bool WorkDone(void *user, size_t i, bool ok, Bytes bytes);

/* Runs pieces [0, n) in as many processes as there are processors. False: done returned false, or
 * (*died < n) the process that worked on piece *died ended without a word. */
bool workers_run(size_t n, Work *work, WorkDone *done, void *user, size_t *died);

/* --- cache.c --- */

/* A result kept from an earlier compile: in `keep`, checked. False: none. */
bool cache_read(Hash128 key, Arena *keep, Bytes *out);
/* A cache that cannot be written is no error: the next compile takes longer. */
void cache_write(Hash128 key, Bytes b);

/* --- cubin.c --- */

/* Kinds of instructions that a person looks for in a kernel's code. */
#define CODE_CLASSES(C) \
    C(MATRIX, "matrix", "products on the matrix units") \
    C(BULK, "bulk", "bulk copies to shared memory, and their prefetch") \
    C(ASYNC16, "async16", "asynchronous copies of 16 bytes a thread") \
    C(ASYNC, "async", "asynchronous copies of 4 and 8 bytes") \
    C(LOAD16, "load16", "loads of 16 bytes from global memory") \
    C(LOAD, "load", "narrower ones") \
    C(STORE16, "store16", "stores of 16 bytes to global memory") \
    C(STORE, "store", "narrower ones") \
    C(SHARED, "shared", "loads and stores of shared memory") \
    C(LOCAL, "local", "loads and stores of local memory: spills") \
    C(FMA, "fma", "multiply and add of fp32 and of halves") \
    C(SPECIAL, "special", "exponent, root, reciprocal and their kind") \
    C(SHUFFLE, "shuffle", "words moved between the lanes of a warp") \
    C(BARRIER, "barrier", "barriers of a block and in shared memory") \
    C(ATOMIC, "atomic", "atomics on global and shared memory") \
    C(FENCE, "fence", "fences") \
    C(OTHER, "other", "all else: addresses, compares, conversions")

typedef enum CodeClass {
#define C(id, name, what) CODE_##id,
    CODE_CLASSES(C)
#undef C
        CODE_COUNT,
} CodeClass;
const char *code_class_name(CodeClass c);

typedef struct Resources {
    uint32_t registers;     /* a thread */
    uint32_t stack_bytes;   /* a thread: local arrays and spills */
    uint32_t spill_bytes;   /* moved by the local loads and stores in the code, each counted once */
    uint32_t static_smem;   /* a block */
    uint32_t barriers;      /* named barriers of a block, of 16 */
    uint32_t instructions;  /* 16 bytes each */
    uint32_t operand_moves; /* R2UR between two products of a warpgroup (HGMMA) in a row: the second waits for them */
    uint32_t code[CODE_COUNT]; /* of which kind they are; no-ops that fill the end are OTHER */
} Resources;

/* What the ELF file says about one of its kernels. False: it is not a cubin, or has no such entry.
 */
bool cubin_resources(Bytes cubin, const char *entry, Resources *out);

#endif
