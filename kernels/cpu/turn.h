/* turn.h - an element in all lanes; rows for columns of LANES vectors. There is no include guard, since each.h includes a kernel's
 * text once for each level. */

ALWAYS_INLINE Vf AT(spread)(const float *p)
{
#if LANES == 16
    return (Vf)_mm512_set1_ps(*p);
#elif LANES == 8
    return (Vf)_mm256_broadcast_ss(p);
#else
    return (Vf){*p, *p, *p, *p};
#endif
}

/* v[i][j] and v[j][i] change places. */
ALWAYS_INLINE void AT(turn)(Vf v[LANES])
{
#if LANES == 4
    const Vf a = __builtin_shufflevector(v[0], v[1], 0, 4, 1, 5), b = __builtin_shufflevector(v[0], v[1], 2, 6, 3, 7);
    const Vf c = __builtin_shufflevector(v[2], v[3], 0, 4, 1, 5), d = __builtin_shufflevector(v[2], v[3], 2, 6, 3, 7);

    v[0] = __builtin_shufflevector(a, c, 0, 1, 4, 5);
    v[1] = __builtin_shufflevector(a, c, 2, 3, 6, 7);
    v[2] = __builtin_shufflevector(b, d, 0, 1, 4, 5);
    v[3] = __builtin_shufflevector(b, d, 2, 3, 6, 7);
#elif LANES == 8
    __m256 four[LANES]; /* four[4 i + c]: columns c and 4 + c of rows 4 i .. 4 i + 3 */

#pragma GCC unroll 2
    for (int i = 0; i < LANES; i += 4) {
        const __m256 a = _mm256_unpacklo_ps((__m256)v[i], (__m256)v[i + 1]);
        const __m256 b = _mm256_unpackhi_ps((__m256)v[i], (__m256)v[i + 1]);
        const __m256 c = _mm256_unpacklo_ps((__m256)v[i + 2], (__m256)v[i + 3]);
        const __m256 d = _mm256_unpackhi_ps((__m256)v[i + 2], (__m256)v[i + 3]);

        four[i] = _mm256_shuffle_ps(a, c, 0x44);
        four[i + 1] = _mm256_shuffle_ps(a, c, 0xee);
        four[i + 2] = _mm256_shuffle_ps(b, d, 0x44);
        four[i + 3] = _mm256_shuffle_ps(b, d, 0xee);
    }
#pragma GCC unroll 4
    for (int c = 0; c < 4; c++) {
        v[c] = (Vf)_mm256_permute2f128_ps(four[c], four[4 + c], 0x20);
        v[4 + c] = (Vf)_mm256_permute2f128_ps(four[c], four[4 + c], 0x31);
    }
#else
    __m512 four[LANES]; /* four[4 i + c]: columns c, 4 + c, 8 + c and 12 + c of rows 4 i .. 4 i + 3 */

#pragma GCC unroll 4
    for (int i = 0; i < LANES; i += 4) {
        const __m512 a = _mm512_unpacklo_ps((__m512)v[i], (__m512)v[i + 1]);
        const __m512 b = _mm512_unpackhi_ps((__m512)v[i], (__m512)v[i + 1]);
        const __m512 c = _mm512_unpacklo_ps((__m512)v[i + 2], (__m512)v[i + 3]);
        const __m512 d = _mm512_unpackhi_ps((__m512)v[i + 2], (__m512)v[i + 3]);

        four[i] = _mm512_shuffle_ps(a, c, 0x44);
        four[i + 1] = _mm512_shuffle_ps(a, c, 0xee);
        four[i + 2] = _mm512_shuffle_ps(b, d, 0x44);
        four[i + 3] = _mm512_shuffle_ps(b, d, 0xee);
    }
#pragma GCC unroll 4
    for (int c = 0; c < 4; c++) {
        const __m512 a = _mm512_shuffle_f32x4(four[c], four[4 + c], 0x88);
        const __m512 b = _mm512_shuffle_f32x4(four[c], four[4 + c], 0xdd);
        const __m512 d = _mm512_shuffle_f32x4(four[8 + c], four[12 + c], 0x88);
        const __m512 e = _mm512_shuffle_f32x4(four[8 + c], four[12 + c], 0xdd);

        v[c] = (Vf)_mm512_shuffle_f32x4(a, d, 0x88);
        v[4 + c] = (Vf)_mm512_shuffle_f32x4(b, e, 0x88);
        v[8 + c] = (Vf)_mm512_shuffle_f32x4(a, d, 0xdd);
        v[12 + c] = (Vf)_mm512_shuffle_f32x4(b, e, 0xdd);
    }
#endif
}
