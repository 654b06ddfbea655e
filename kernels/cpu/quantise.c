/* quantise.c - rows of activations as codes of 8 bits (form int8_rows of compiler/ir/forms.def), for products of integers.
 *
 *   x [M,K] fp32; y [M,K] codes; scales [M, K / GROUP] fp32; sums [M, K / 32] int32
 *
 * A group's scale is its largest magnitude / 127, a code the nearest integer (ties to even) to x * (127 / magnitude). Groups
 * whose magnitudes are all below 2^-100 become 0. A group with NaN or infinity has a scale that is not finite, so every
 * product of it is NaN. */
//@ kernel  quantise
//@ rank    210
//@ args    x[M,K]:fp32 -> y[M,K]:fp32 scales:int8_rows.scales(y) sums:int8_rows.sums(y)
//@ match   y = x
//@ gives   y as int8_rows GROUP
//@ consts  K: K  GROUP: K % 128 == 0 ? 128 : K % 64 == 0 ? 64 : 32  ROWS_S: rows(x)
//@ fits    K % 32 == 0
//@ moves   5 * M * K
#ifndef LEVEL
#define BODY "quantise.c"
#include "each.h"
#else

/* The nearest integers, ties to even. */
ALWAYS_INLINE Vi AT(quantise_round)(Vf x)
{
#if LANES == 16
    return (Vi)_mm512_cvtps_epi32((__m512)x);
#elif LANES == 8
    return (Vi)_mm256_cvtps_epi32((__m256)x);
#elif defined __x86_64__
    return (Vi)_mm_cvtps_epi32((__m128)x);
#elif defined __aarch64__
    return (Vi)vcvtnq_s32_f32((float32x4_t)x);
#else
    Vi i = {0};

    for (int l = 0; l < LANES; l++)
        i[l] = (int32_t)__builtin_rintf(x[l]);
    return i;
#endif
}

/* The largest element; the sum of all. */
ALWAYS_INLINE int32_t AT(quantise_most)(Vi v)
{
#if LANES == 16
    return _mm512_reduce_max_epi32((__m512i)v);
#else
    int32_t most = v[0];

    for (int l = 1; l < LANES; l++)
        most = v[l] > most ? v[l] : most;
    return most;
#endif
}

ALWAYS_INLINE int32_t AT(quantise_sum)(Vi v)
{
#if LANES == 16
    return _mm512_reduce_add_epi32((__m512i)v);
#else
    int32_t sum = 0;

    for (int l = 0; l < LANES; l++)
        sum += v[l];
    return sum;
#endif
}

static void AT(quantise_group)(const float *x, int64_t group, int8_t *y, float *scale, int32_t *sums)
{
    Vi most = {0};
    int32_t bits;
    float largest, by;

    for (int64_t k = 0; k < group; k += LANES) { /* bits of magnitudes are ordered as they are, NaN is above all */
        const Vi magnitude = (Vi)vload(x + k) & 0x7fffffff;

        most = (Vi)vselect(magnitude > most, (Vf)magnitude, (Vf)most);
    }
    bits = AT(quantise_most)(most);
    memcpy(&largest, &bits, sizeof largest);
    if (bits >= 0x7f800000 || largest < 0x1p-100f) {
        *scale = bits >= 0x7f800000 ? largest : 0.0f;
        memset(y, 0, (size_t)group);
        memset(sums, 0, (size_t)(group / 32) * sizeof *sums);
        return;
    }
    *scale = largest / 127.0f;
    by = 127.0f / largest;
    for (int64_t k = 0; k < group; k += 32) {
        Vi sum = {0};

        for (int64_t i = k; i < k + 32; i += LANES) {
            const Vi code = AT(quantise_round)(vload(x + i) * by);

            sum += code;
#if LANES == 16
            _mm_storeu_si128((__m128i *)(void *)(y + i), _mm512_cvtepi32_epi8((__m512i)code));
#elif defined __aarch64__
            const int16x4_t half = vmovn_s32((int32x4_t)code);
            const int8x8_t eight = vmovn_s16(vcombine_s16(half, half));

            memcpy(y + i, &eight, LANES);
#else
            for (int l = 0; l < LANES; l++)
                y[i + l] = (int8_t)code[l];
#endif
        }
        sums[k / 32] = AT(quantise_sum)(sum);
    }
}

void AT(quantise)(const CpuCall *c)
{
    const float *x = c->arg[0];
    int8_t *y = c->arg[1];
    float *scales = c->arg[2];
    int32_t *sums = c->arg[3];
    const int64_t K = c->k[QUANTISE_K], group = c->k[QUANTISE_GROUP];
    const int64_t M = c->k[QUANTISE_ROWS_S] ? c->S : c->T;
    int64_t first, last;

    cpu_share(c, M * (K / group), &first, &last);
    for (int64_t g = first; g < last; g++)
        AT(quantise_group)(x + g * group, group, y + g * group, scales + g, sums + g * (group / 32));
}
#endif
