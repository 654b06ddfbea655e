/* cpu.c - the table of kernels, and the level (instruction set) that this processor runs.
 *
 * FTX_CPU=plain|avx2|avx512|avx512bf16|amx (on Arm plain|dotprod|i8mm) asks for a level, for tests and to find bugs; where the machine
 * lacks it, for the best that it has. */
#include "levels.h"

#include <stdlib.h>
#if defined __aarch64__
#include <sys/auxv.h>
#elif defined __x86_64__
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

/* Enumerators end as the names of forms do. */
#if defined __aarch64__
enum { CPU_plain, CPU_dotprod, CPU_i8mm };
static const char *const cpu_names[] = {"plain", "dotprod", "i8mm"};
static const char *const cpu_said[] = {"NEON", "NEON dotprod", "NEON i8mm"};
#else
enum { CPU_plain, CPU_avx2, CPU_avx512, CPU_avx512bf16, CPU_amx };
static const char *const cpu_names[] = {"plain", "avx2", "avx512", "avx512bf16", "amx"};
#if defined __x86_64__
static const char *const cpu_said[] = {"SSE2", "AVX2", "AVX-512", "AVX-512 BF16", "AVX-512 AMX"};
#else
static const char *const cpu_said[] = {"plain"};
#endif
#endif
enum { CPU_LEVEL_COUNT = sizeof cpu_names / sizeof *cpu_names };

#define CPU_FORM(name, level) [CPU_##level] = name##_##level,
#define CPU_ROW(name) {#name, {CPU_LEVELS(name, CPU_FORM)}},
#define CPU_DOT_ROW(name) {#name, {CPU_DOT_LEVELS(name, CPU_FORM)}},
#define CPU_BF16_ROW(name) {#name, {CPU_BF16_LEVELS(name, CPU_FORM)}},
#define CPU_PAIR_ROW(name) {#name, {CPU_PAIR_LEVELS(name, CPU_FORM)}},
static const struct {
    const char *name;
    CpuKernel *form[CPU_LEVEL_COUNT]; /* NULL: that of the level below */
} cpu_families[] = {CPU_FAMILIES(CPU_ROW, CPU_DOT_ROW, CPU_BF16_ROW, CPU_PAIR_ROW)};
#undef CPU_FORM
#undef CPU_ROW
#undef CPU_DOT_ROW
#undef CPU_BF16_ROW
#undef CPU_PAIR_ROW

#if defined __x86_64__
/* Whether the processor multiplies pairs of bf16. */
static bool cpu_bf16_pairs(void)
{
    unsigned a, b, c, d;

    return __get_cpuid_count(7, 1, &a, &b, &c, &d) && a & 1u << 5;
}

/* Whether one that does multiplies tiles of bytes and of bf16, too (which all processors with tiles do) and Linux lets this
 * process do so, which it asks for here: tiles are 8 KB of state that a process has for each of its threads from the first use
 * on. Asking again is harmless. */
static bool cpu_tiles(void)
{
    enum { REQUEST_PERMISSION = 0x1023, TILE_DATA = 18 }; /* ARCH_REQ_XCOMP_PERM of Linux 5.16 */
    unsigned a, b, c, d;

    return __get_cpuid_count(7, 0, &a, &b, &c, &d) && d & 1u << 22 && d & 1u << 24 && d & 1u << 25 && c & 1u << 11 &&
           syscall(SYS_arch_prctl, REQUEST_PERMISSION, TILE_DATA) == 0;
}
#endif

static int cpu_best_level(bool tiles)
{
#if defined __x86_64__
    __builtin_cpu_init();
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) /* F16C comes with AVX2 */
        return CPU_plain;
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
        __builtin_cpu_supports("avx512dq"))
        return !cpu_bf16_pairs() ? CPU_avx512 : tiles && cpu_tiles() ? CPU_amx : CPU_avx512bf16;
    return CPU_avx2;
#elif defined __aarch64__
    (void)tiles;
    if (!(getauxval(AT_HWCAP) & 1ul << 20)) /* HWCAP_ASIMDDP */
        return CPU_plain;
    return getauxval(AT_HWCAP2) & 1ul << 13 ? CPU_i8mm : CPU_dotprod; /* HWCAP2_I8MM */
#else
    (void)tiles;
    return CPU_plain;
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
    const char *asked = getenv("FTX_CPU");
    const int level = asked ? cpu_level_named(asked) : -1;
    const int best = cpu_best_level(level < 0 || level == CPU_LEVEL_COUNT - 1);

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

            while (level > CPU_plain && !cpu_families[i].form[level])
                level--;
            return cpu_families[i].form[level];
        }
    return NULL;
}

const char *cpu_features(void)
{
    return cpu_said[cpu_level()];
}
