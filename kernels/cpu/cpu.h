/* cpu.h - the interface of a CPU kernel.
 *
 * A step runs its launches one after another on a team of threads (runtime/base/team.h): every thread calls the kernel
 * with its number and does its share of the work; after each launch all threads meet at a barrier. A kernel allocates
 * nothing and writes only its outputs and its thread's scratch. A result does not depend on the number of threads, nor on which
 * of them computes it. */
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
    void *scratch;  /* [CPU_SCRATCH], 64-byte aligned; holds nothing; NULL: none, with the same results */
    int32_t *taken; /* pieces that cpu_take has dealt out in this launch, from 0; NULL: it deals out none */
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

/* The next piece of n that this thread does, -1: there is none. The last third of each share goes to whoever is done first, so
 * that a core which others use, too, does not keep the rest waiting. own: from 0, counts the pieces of the thread's share. */
static inline int64_t cpu_take(const CpuCall *c, int64_t n, int64_t *own)
{
    int64_t first, last, left;

    cpu_share(c, n, &first, &last);
    if (*own < last - first - (c->taken ? (last - first) / 3 : 0))
        return first + (*own)++;
    if (!c->taken)
        return -1;
    left = __atomic_fetch_add(c->taken, 1, __ATOMIC_RELAXED);
    for (CpuCall of = {.threads = c->threads}; of.thread < of.threads; of.thread++) {
        cpu_share(&of, n, &first, &last);
        if (left < (last - first) / 3)
            return last - (last - first) / 3 + left;
        left -= (last - first) / 3;
    }
    return -1;
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
#define CPU_LEVEL_NAMES "amx, avx512bf16, avx512, avx2 or plain"
#endif

#endif
