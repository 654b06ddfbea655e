/* cpu_test.h - what the tests of CPU kernels share: random tensors, calls, comparisons, levels. */
#ifndef CPU_TEST_H
#define CPU_TEST_H

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "kernels/cpu/consts.h"
#include "kernels/cpu/cpu.h"
#include "kernels/ref/ref.h"

#if defined __x86_64__
static const char *const levels[] = {"plain", "avx2", "avx512"};
#elif defined __aarch64__
static const char *const levels[] = {"plain", "dotprod", "i8mm"};
#else
static const char *const levels[] = {"plain"};
#endif
enum { LEVELS = sizeof levels / sizeof *levels };

/* The kernel as compiled for a level; the machine's best where it lacks that one. */
static inline CpuKernel *kernel_at(const char *family, int level)
{
    CpuKernel *k;

    setenv("FTX_CPU", levels[level], 1);
    k = cpu_kernel(family);
    unsetenv("FTX_CPU");
    assert_non_null(k);
    return k;
}

static uint64_t random_state = 1;

static inline uint32_t random_bits(void)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(random_state >> 33);
}

static inline int random_below(int n)
{
    return (int)(random_bits() % (uint32_t)n);
}

static inline float random_float(void) /* in [-1, 1) */
{
    return (float)random_bits() * 0x1p-30f - 1.0f;
}

/* An array of exactly n elements, so that a sanitizer sees a read past its end. */
static inline void *random_tensor(size_t n, DType type, float scale)
{
    void *p = malloc(n * dtype_size(type) + (n == 0));

    for (size_t i = 0; i < n; i++)
        dtype_store(p, i, type, random_float() * scale);
    return p;
}

static inline int64_t number_bits(double f)
{
    int64_t i;
    memcpy(&i, &f, sizeof i);
    return i;
}

static _Alignas(64) char scratch[CPU_SCRATCH];

/* Every thread's share, one after the other, all with one scratch. */
static inline void call(CpuKernel *kernel, void *const *arg, const int64_t *k, int T, int S, int threads)
{
    for (int i = 0; i < threads; i++) {
        const CpuCall c = {.arg = arg, .k = k, .T = T, .S = S, .thread = i, .threads = threads, .scratch = scratch};
        kernel(&c);
    }
}

/* The same with pieces that are dealt out; the last thread begins, and takes what the others leave. */
static inline void call_dealt(CpuKernel *kernel, void *const *arg, const int64_t *k, int T, int S, int threads)
{
    int32_t taken = 0;

    for (int i = threads - 1; i >= 0; i--) {
        const CpuCall c = {
            .arg = arg, .k = k, .T = T, .S = S, .thread = i, .threads = threads, .scratch = scratch, .taken = &taken};
        kernel(&c);
    }
}

static inline double largest_of(const float *x, size_t n)
{
    double largest = 1e-30;

    for (size_t i = 0; i < n; i++) /* no fmax: gcc 12 for aarch64 crashes on its reduction */
        largest = fabs(x[i]) > largest ? fabs(x[i]) : largest;
    return largest;
}

static inline void assert_within(const float *got, const float *want, size_t n, double bound, const char *what)
{
    for (size_t i = 0; i < n; i++)
        if (!(fabs((double)got[i] - want[i]) <= bound))
            fail_msg("%s: element %zu is %.9g, should be %.9g (within %.3g)", what, i, got[i], want[i], bound);
}

/* Within `relative` of the largest reference value (fp32 sums in another order). */
static inline void assert_close(const float *got, const float *want, size_t n, double relative, const char *what)
{
    assert_within(got, want, n, relative * largest_of(want, n), what);
}

#endif
