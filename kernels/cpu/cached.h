/* cached.h - rows of the KV cache: numbers, or codes of 8 bits with a scale for each row.
 *
 *   a page of a layer's keys, or of its values   [rows][E] of type KV; of int8 and fp8 then [rows] scales in fp16. rows: G * BLOCK
 *
 *   scale = M / most    M: the row's largest magnitude, at most 65,024; most: 127 of int8, 448 of fp8 (e4m3)
 *   code  = x * (1 / scale), to the nearest (ties to even), at most `most`; NaN becomes 0
 *
 * Included by kernels, once for each level. */

#ifndef CACHED_ONCE
#define CACHED_ONCE
#include "round.h"

static const float CACHED_LARGEST = 65024.0f;

static inline float cached_scale(uint16_t half)
{
    const uint32_t moved = (uint32_t)half << 13; /* no sign, no infinity */
    float f;

    memcpy(&f, &moved, sizeof f);
    return f * 0x1p112f; /* corrects the exponent's bias, of subnormals too */
}

/* x, at most 448, as e4m3. */
static inline uint8_t cached_e4m3(float x)
{
    uint32_t u, sign;

    memcpy(&u, &x, sizeof u);
    sign = u >> 24 & 0x80;
    u &= 0x7fffffff;
    if (u < 0x3c800000) { /* below 2^-6: the sum with 2^14 leaves units of 2^-9 in the low bits, rounded */
        float a;

        memcpy(&a, &u, sizeof a);
        a += 0x1p14f;
        memcpy(&u, &a, sizeof u);
        return (uint8_t)(sign | (u - 0x46800000));
    }
    return (uint8_t)(sign | (((u + 0x7ffff + (u >> 20 & 1)) >> 20) - 960));
}

/* E numbers as codes; gives the scale's bits. */
static inline uint16_t cached_codes(const float *x, int64_t E, int64_t type, uint8_t *codes)
{
    const float most = type == CPU_INT8 ? 127.0f : 448.0f;
    float largest = 0.0f, by;
    uint16_t half;

    for (int64_t e = 0; e < E; e++) {
        const float a = __builtin_fabsf(x[e]);

        largest = a > largest ? a : largest;
    }
    half = cpu_fp16((largest < CACHED_LARGEST ? largest : CACHED_LARGEST) / most);
    by = half ? 1.0f / cached_scale(half) : 0.0f;
    for (int64_t e = 0; e < E; e++) {
        const float a = x[e] == x[e] ? x[e] * by : 0.0f, b = a < most ? a : most, c = b > -most ? b : -most;

        codes[e] = type == CPU_INT8 ? (uint8_t)(int8_t)__builtin_rintf(c) : cached_e4m3(c);
    }
    return half;
}

static inline int64_t cached_page_bytes(int64_t rows, int64_t type, int64_t E)
{
    return rows * (E * cpu_type_bytes(type) + (cpu_is_code(type) ? 2 : 0));
}

/* Writes a row of a page. */
static inline void cached_put(const float *x, char *page, int64_t rows, int64_t row, int64_t type, int64_t E)
{
    uint16_t scale;

    if (!cpu_is_code(type)) {
        cpu_round(x, E, type, page + row * E * cpu_type_bytes(type));
        return;
    }
    scale = cached_codes(x, E, type, (uint8_t *)page + row * E);
    memcpy(page + rows * E + row * 2, &scale, sizeof scale);
}
#endif

/* LANES codes, or the first n, as numbers without their scale; those of fp8 times 2^-120. */
ALWAYS_INLINE Vf AT(cached_vector)(const char *codes, int64_t type, int64_t n)
{
    typedef int8_t Vb __attribute__((vector_size(LANES)));
    Vb b = {0};
    Vi i;

    memcpy(&b, codes, n < LANES ? (size_t)n : LANES);
#if LANES == 16
    i = (Vi)_mm512_cvtepi8_epi32((__m128i)b);
#elif LANES == 8
    __m128i low = {0};

    memcpy(&low, &b, sizeof b);
    i = (Vi)_mm256_cvtepi8_epi32(low);
#elif defined __aarch64__
    uint32_t four;

    memcpy(&four, &b, sizeof four);
    i = (Vi)vmovl_s16(vget_low_s16(vmovl_s8(vcreate_s8(four))));
#else
    i = __builtin_convertvector(b, Vi);
#endif
    return type == CPU_INT8 ? __builtin_convertvector(i, Vf) : (Vf)((i & INT32_MIN) | (i & 0x7f) << 20);
}

/* Row `row` of a page as fp32, padded to whole vectors. */
static inline void AT(cached_get)(float *to, const char *page, int64_t rows, int64_t row, int64_t type, int64_t E)
{
    const char *from = page + row * E * cpu_type_bytes(type);
    float scale = 1.0f;

    if (cpu_is_code(type)) {
        uint16_t half;

        memcpy(&half, page + rows * E + row * 2, sizeof half);
        scale = cached_scale(half) * (type == CPU_INT8 ? 1.0f : 0x1p120f);
    }
    for (int64_t e = 0; e < E; e += LANES) {
        const int64_t n = E - e;
        Vf v;

        if (cpu_is_code(type))
            v = AT(cached_vector)(from + e, type, n) * scale;
        else if (type == CPU_FP32)
            v = n < LANES ? vload_as_n(from + e * 4, CPU_FP32, n) : vload_as(from + e * 4, CPU_FP32);
        else if (type == CPU_FP16)
            v = n < LANES ? vload_as_n(from + e * 2, CPU_FP16, n) : vload_as(from + e * 2, CPU_FP16);
        else
            v = n < LANES ? vload_as_n(from + e * 2, CPU_BF16, n) : vload_as(from + e * 2, CPU_BF16);
        vstore(to + e, v);
    }
}
