/* cpu.h - the interface of a CPU kernel.
 *
 * A step runs its launches one after another on a team of threads (runtime/base/team.h): every thread calls the kernel
 * with its number and does its share of the work; after each launch all threads meet at a barrier. A kernel allocates
 * nothing and writes only its outputs and its thread's scratch. How the work is cut depends on shapes alone, so results do not depend on the
 * number of threads. */
#ifndef FTX_CPU_H
#define FTX_CPU_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "../device/io.h"

enum { CPU_SCRATCH = 832 << 10 }; /* bytes of scratch for one thread; used by linear.c for many rows */

typedef struct CpuCall {
    void *const *arg; /* operands in the order of the contract's args; NULL where absent */
    const int64_t *k; /* the contract's constants, by consts.h */
    int T, S;         /* live tokens and rows */
    int thread, threads;
    void *scratch; /* [CPU_SCRATCH], 64-byte aligned; holds nothing; NULL: none, with the same results */
} CpuCall;

typedef void CpuKernel(const CpuCall *c);

/* A constant that is a double, not an integer. */
static inline double cpu_number(const CpuCall *c, int i)
{
    double f;
    memcpy(&f, &c->k[i], sizeof f);
    return f;
}

/* This thread's share [*first, *last) of n pieces of work. */
static inline void cpu_share(const CpuCall *c, int64_t n, int64_t *first, int64_t *last)
{
    *first = n * c->thread / c->threads;
    *last = n * (c->thread + 1) / c->threads;
}

typedef struct CpuExtents { /* see extents.def */
    const char *family, *constants, *condition, *operands;
} CpuExtents;

const CpuExtents *cpu_extents(const char *family); /* NULL: no program runs this kernel */

/* By name ("linear"), at the level of this processor; NULL: no such kernel. */
CpuKernel *cpu_kernel(const char *family);
const char *cpu_features(void); /* "AVX-512" */
bool cpu_asked_known(void);     /* FTX_CPU, if set, names a level: one of these */
#if defined __aarch64__
#define CPU_LEVEL_NAMES "i8mm, dotprod or plain"
#else
#define CPU_LEVEL_NAMES "amx, avx512, avx2 or plain"
#endif

#endif
