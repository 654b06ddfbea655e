/* cpu.h - what a CPU kernel is.
 *
 * A step walks its launches on a team of threads (runtime/base/team.h): every thread calls the kernel with
 * its number, takes its share of the work, and meets the others at a barrier after each launch.
 * A kernel allocates nothing and writes only its outputs. Shares depend on shapes alone, so the
 * results do not depend on the number of threads. */
#ifndef FTX_CPU_H
#define FTX_CPU_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "../device/io.h"

typedef struct CpuCall {
    void *const *arg; /* operands in the order of the contract's args; NULL where absent */
    const int64_t *k; /* the contract's constants, by consts.h */
    int T, S;         /* live tokens and rows */
    int thread, threads;
} CpuCall;

typedef void CpuKernel(const CpuCall *c);

/* A constant that is a number, not an integer. */
static inline double cpu_number(const CpuCall *c, int i)
{
    double f;
    memcpy(&f, &c->k[i], sizeof f);
    return f;
}

/* The share [*first, *last) of n pieces of work for this thread. */
static inline void cpu_share(const CpuCall *c, int64_t n, int64_t *first, int64_t *last)
{
    *first = n * c->thread / c->threads;
    *last = n * (c->thread + 1) / c->threads;
}

/* By family name ("linear"); NULL: no such kernel. The best form for this processor. */
CpuKernel *cpu_kernel(const char *family);
const char *cpu_features(void); /* "AVX-512, BF16" */
bool cpu_asked_known(void);     /* FTX_CPU, if set, names a level */

#endif
