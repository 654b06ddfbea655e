/* cubin.h - registers, stack, shared memory and instructions of a kernel, read from its cubin. */
#ifndef FTXC_CUBIN_H
#define FTXC_CUBIN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct Bytes {
    const void *at;
    size_t bytes;
} Bytes;

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
