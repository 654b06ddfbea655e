/* parts.h - what the files of this room share:  text -> cache, or NVRTC in a worker -> cubin. */
#ifndef FTXC_INSTANTIATE_PARTS_H
#define FTXC_INSTANTIATE_PARTS_H

#include "instantiate.h"
#include "../../runtime/base/hash.h"

/* --- text.c --- */

/* The template with its constants filled in, without a head. Line numbers are those of the template. */
const char *text_body(const Instance *i, Arena *keep);

/* The embedded headers that a text includes, directly or not: indices into catalog_headers, sorted. */
size_t text_headers(const char *text, size_t *indices, size_t max);

/* "sm_90a", "compute_80": the value of --gpu-architecture. */
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

/* A cubin, or for a PTX target its text with the NUL. False: *out is NVRTC's log. The caller frees the bytes. */
bool nvrtc_compile(const char *text, Target t, Bytes *out);

/* --- workers.c --- */

/* Called in a child process for job i: fills *out, from malloc, with a result (true) or an error text (false). */
typedef bool Work(void *user, size_t i, Bytes *out);
/* Called in this process with each result, in the order of completion. False stops the rest. */
typedef bool WorkDone(void *user, size_t i, bool ok, Bytes bytes);

/* Runs jobs [0, n) in as many processes as there are processors. False: done returned false, or *died < n: the process
 * that ran job *died ended without a result. */
bool workers_run(size_t n, Work *work, WorkDone *done, void *user, size_t *died);

/* --- cache.c --- */

/* The code of an earlier compile, in `keep`, its checksum verified. False: there is none. */
bool cache_read(Hash128 key, Arena *keep, Bytes *out);
/* A cache that cannot be written is not an error. */
void cache_write(Hash128 key, Bytes b);

/* --- cubin.c --- */

/* Kinds of instructions: name in `ftxc show --kernels`, meaning. The wide form of an access stands before the narrow. */
#define CODE_CLASSES(C) \
    C(MATRIX, "matrix", "products on the matrix units") \
    C(BULK, "bulk", "bulk copies to shared memory, and their prefetch") \
    C(ASYNC16, "async16", "asynchronous copies of 16 bytes a thread") \
    C(ASYNC, "async", "asynchronous copies of 4 and 8 bytes") \
    C(LOAD16, "load16", "loads of 16 bytes from global memory") \
    C(LOAD, "load", "narrower loads from global memory") \
    C(STORE16, "store16", "stores of 16 bytes to global memory") \
    C(STORE, "store", "narrower stores to global memory") \
    C(SHARED, "shared", "loads and stores of shared memory") \
    C(LOCAL, "local", "loads and stores of local memory: spills") \
    C(FMA, "fma", "fused multiply-add in fp32 and in pairs of 16 bits") \
    C(SPECIAL, "special", "exponential, square root, reciprocal and other special functions") \
    C(SHUFFLE, "shuffle", "exchanges between the lanes of a warp") \
    C(BARRIER, "barrier", "barriers of a block, mbarriers") \
    C(ATOMIC, "atomic", "atomics on global and shared memory") \
    C(FENCE, "fence", "fences") \
    C(OTHER, "other", "the rest: addresses, comparisons, conversions")

typedef enum CodeClass {
#define C(id, name, what) CODE_##id,
    CODE_CLASSES(C)
#undef C
        CODE_COUNT,
} CodeClass;
const char *code_class_name(CodeClass c);

typedef struct Resources {
    uint32_t registers;        /* of a thread */
    uint32_t stack_bytes;      /* of a thread: local arrays and spills */
    uint32_t spill_bytes;      /* bytes of all local loads and stores in the code, each instruction counted once */
    uint32_t static_smem;      /* of a block */
    uint32_t barriers;         /* named barriers of a block, of 16 */
    uint32_t instructions;     /* of 16 bytes */
    uint32_t operand_moves;    /* R2UR between two HGMMA without a branch between: the second waits for them */
    uint32_t code[CODE_COUNT]; /* instructions of each kind; padding at the end is OTHER */
} Resources;

/* The resources of one kernel, from its ELF file. False: this is not a cubin, or it has no such kernel. */
bool cubin_resources(Bytes cubin, const char *entry, Resources *out);

#endif
