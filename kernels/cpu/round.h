/* round.h - fp32 values as another type: nearest, ties to even; NaN stays NaN. */
#ifndef FTX_CPU_ROUND_H
#define FTX_CPU_ROUND_H

#include "levels.h"

static inline uint16_t cpu_bf16(float f)
{
    uint32_t u;

    memcpy(&u, &f, sizeof u);
    if (f != f)
        return (uint16_t)(u >> 16 | 0x40);
    return (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}

static inline uint16_t cpu_fp16(float f)
{
    uint32_t u, sign;

    memcpy(&u, &f, sizeof u);
    sign = u >> 16 & 0x8000;
    u &= 0x7fffffff;
    if (u > 0x7f800000)
        return (uint16_t)(sign | 0x7e00);
    if (u >= 0x477ff000) /* 65520 and more round to infinity */
        return (uint16_t)(sign | 0x7c00);
    if (u < 0x38800000) { /* subnormal: adding 0.5 leaves units of 2^-24 in the low bits, rounded */
        float a;

        memcpy(&a, &u, sizeof a);
        a += 0.5f;
        memcpy(&u, &a, sizeof u);
        return (uint16_t)(sign | (u - 0x3f000000));
    }
    u -= 112u << 23;
    return (uint16_t)(sign | (u + 0xfff + (u >> 13 & 1)) >> 13);
}

/* n values to an array of a storage type. */
static inline void cpu_round(const float *x, int64_t n, int64_t type, void *y)
{
    uint16_t *half = y;

    if (type == CPU_FP32)
        memcpy(y, x, (size_t)n * sizeof *x);
    else if (type == CPU_BF16)
        for (int64_t i = 0; i < n; i++)
            half[i] = cpu_bf16(x[i]);
    else
        for (int64_t i = 0; i < n; i++)
            half[i] = cpu_fp16(x[i]);
}

#endif
