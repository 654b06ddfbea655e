/* cpu.c - the table of kernels, and the level (instruction set) that this processor runs.
 *
 * FTX_CPU=plain|avx2|avx512 asks for a lower level than the machine has, for tests and to find bugs. */
#include "levels.h"

#include <stdlib.h>

enum { CPU_PLAIN, CPU_AVX2, CPU_AVX512, CPU_LEVEL_COUNT };

#define CPU_FORM(name, level) name##_##level,
#define CPU_ROW(name) {#name, {CPU_LEVELS(name, CPU_FORM)}},
static const struct {
    const char *name;
    CpuKernel *form[CPU_LEVEL_COUNT];
} cpu_families[] = {CPU_FAMILIES(CPU_ROW)};
#undef CPU_FORM
#undef CPU_ROW

static int cpu_best_level(void)
{
#if defined __x86_64__
    __builtin_cpu_init();
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) /* F16C comes with AVX2 */
        return CPU_PLAIN;
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
        __builtin_cpu_supports("avx512dq"))
        return CPU_AVX512;
    return CPU_AVX2;
#else
    return CPU_PLAIN;
#endif
}

/* The level of this name; -1: there is none. */
static int cpu_level_named(const char *name)
{
    static const char *const names[] = {"plain", "avx2", "avx512"};

    for (int i = 0; i < (int)(sizeof names / sizeof *names); i++)
        if (strcmp(name, names[i]) == 0)
            return i;
    return -1;
}

static int cpu_level(void)
{
    const int best = cpu_best_level();
    const char *asked = getenv("FTX_CPU");
    const int level = asked ? cpu_level_named(asked) : -1;

    return level >= 0 && level < best ? level : best;
}

bool cpu_asked_known(void)
{
    const char *asked = getenv("FTX_CPU");

    return !asked || !*asked || cpu_level_named(asked) >= 0;
}

CpuKernel *cpu_kernel(const char *family)
{
    for (size_t i = 0; i < sizeof cpu_families / sizeof *cpu_families; i++)
        if (strcmp(cpu_families[i].name, family) == 0)
            return cpu_families[i].form[cpu_level()];
    return NULL;
}

const char *cpu_features(void)
{
    switch (cpu_level()) {
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
