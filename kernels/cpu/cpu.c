/* cpu.c - which kernels there are, and which of their forms this processor runs.
 *
 * FTX_CPU=plain|avx2|avx512 asks for a lower level than the machine has (tests, hunting bugs). */
#include "levels.h"

#include <stdlib.h>

enum { CPU_PLAIN, CPU_AVX2, CPU_AVX512, CPU_LEVEL_COUNT };

#define ONE(name, level) name##_##level,
#define FAMILY(name) {#name, {CPU_LEVELS(name, ONE)}},
static const struct {
    const char *name;
    CpuKernel *form[CPU_LEVEL_COUNT];
} families[] = {CPU_FAMILIES(FAMILY)};
#undef ONE
#undef FAMILY

static int best_level(void)
{
#if defined __x86_64__
    __builtin_cpu_init();
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) /* F16C comes with AVX2 */
        return CPU_PLAIN;
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq"))
        return CPU_AVX512;
    return CPU_AVX2;
#else
    return CPU_PLAIN;
#endif
}

static int level_in_use(void)
{
    static const char *const names[] = {"plain", "avx2", "avx512"};
    const int best = best_level();
    const char *asked = getenv("FTX_CPU");

    for (int i = 0; asked && i < best; i++)
        if (strcmp(asked, names[i]) == 0)
            return i;
    return best;
}

CpuKernel *cpu_kernel(const char *family)
{
    for (size_t i = 0; i < sizeof families / sizeof *families; i++)
        if (strcmp(families[i].name, family) == 0)
            return families[i].form[level_in_use()];
    return NULL;
}

const char *cpu_features(void)
{
    switch (level_in_use()) {
    case CPU_AVX512: return "AVX-512";
    case CPU_AVX2: return "AVX2";
    }
#if defined __aarch64__
    return "NEON";
#elif defined __x86_64__
    return "SSE2";
#else
    return "plain";
#endif
}
