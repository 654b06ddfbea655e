/* cpu.c - the table of kernels, and the level (instruction set) that this processor runs.
 *
 * FTX_CPU=plain|avx2|avx512 (on Arm plain|dotprod|i8mm) asks for a lower level than the machine has, for tests and to find
 * bugs. */
#include "levels.h"

#include <stdlib.h>
#if defined __aarch64__
#include <sys/auxv.h>
#endif

#if defined __aarch64__
enum { CPU_PLAIN, CPU_DOTPROD, CPU_I8MM };
static const char *const cpu_names[] = {"plain", "dotprod", "i8mm"};
static const char *const cpu_said[] = {"NEON", "NEON dotprod", "NEON i8mm"};
#else
enum { CPU_PLAIN, CPU_AVX2, CPU_AVX512 };
static const char *const cpu_names[] = {"plain", "avx2", "avx512"};
#if defined __x86_64__
static const char *const cpu_said[] = {"SSE2", "AVX2", "AVX-512"};
#else
static const char *const cpu_said[] = {"plain"};
#endif
#endif
enum { CPU_LEVEL_COUNT = sizeof cpu_names / sizeof *cpu_names };

#define CPU_FORM(name, level) name##_##level,
#define CPU_ROW(name) {#name, {CPU_LEVELS(name, CPU_FORM)}},
#define CPU_DOT_ROW(name) {#name, {CPU_DOT_LEVELS(name, CPU_FORM)}},
static const struct {
    const char *name;
    CpuKernel *form[CPU_LEVEL_COUNT]; /* NULL: that of the level below */
} cpu_families[] = {CPU_FAMILIES(CPU_ROW, CPU_DOT_ROW)};
#undef CPU_FORM
#undef CPU_ROW
#undef CPU_DOT_ROW

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
#elif defined __aarch64__
    if (!(getauxval(AT_HWCAP) & 1ul << 20)) /* HWCAP_ASIMDDP */
        return CPU_PLAIN;
    return getauxval(AT_HWCAP2) & 1ul << 13 ? CPU_I8MM : CPU_DOTPROD; /* HWCAP2_I8MM */
#else
    return CPU_PLAIN;
#endif
}

/* The level of this name; -1: there is none. */
static int cpu_level_named(const char *name)
{
    for (int i = 0; i < CPU_LEVEL_COUNT; i++)
        if (strcmp(name, cpu_names[i]) == 0)
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
        if (strcmp(cpu_families[i].name, family) == 0) {
            int level = cpu_level();

            while (level > CPU_PLAIN && !cpu_families[i].form[level])
                level--;
            return cpu_families[i].form[level];
        }
    return NULL;
}

const char *cpu_features(void)
{
    return cpu_said[cpu_level()];
}
