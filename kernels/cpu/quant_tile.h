/* quant_tile.h - rows of x times a few tiles of quantised weights, for linear_q.c and experts_q.c: sums without an epilogue.
 *
 * With codes of x all products of a group are summed as integers, exactly, and groups are added in order:
 *
 *   y[m,n] = sum over groups g of (scale[n,g] xs[m,g]) (sum of code[n,k] x[m,k] - zero[n,g] sum of x[m,k])
 *
 * With minima in place of zeros the integers are sums of code x, and minimum[n,g] xs[m,g] (sum of x[m,k]) is subtracted in
 * fp32. With fp32 rows the sums of (code - zero) x, or of (scale code - minimum) x, are fp32; a code of fp8 becomes the number
 * that it stands for, exactly. Either way a row's bits do not depend on M, tiles or threads.
 *
 * A vector of weights has 4 elements of LANES rows, which meet 4 broadcast elements of a row of x: TILE_ROWS rows of x times
 * QUANT_TILES tiles are in registers, and a single row of x takes twice as many tiles, since each sum is a chain. With i8mm
 * two rows of x meet 8 elements of two rows of w (quant_pairs). AMX multiplies many rows (amx.h).
 *
 * There is no include guard, since each.h includes a kernel's text once for each level. */
#ifndef QUANT_ONCE
#define QUANT_ONCE
enum {
    QUANT_ROWS = 16,    /* of a tile of weights */
    QUANT_KC = 1024,    /* elements of a row between two visits of a block of rows of x: tiles and x stay in L1 */
    QUANT_BLOCK_X = 48, /* rows of x in a piece of work */
    QUANT_MAX_TILES = 4,
    QUANT_AHEAD = 1024, /* bytes of a tile that a single row fetches before it needs them, also from page to page */
};

typedef struct QuantArgs {
    const char *x; /* codes; without xs floats */
    const float *xs;
    const int32_t *xt;
    const uint8_t *w;
    int64_t K, group, xgroup;
    int64_t tile, scales, zeros; /* bytes of a tile; where its scales and its zeros or minima begin */
    int bits;
    bool fp32, have_zeros, have_minima; /* fp32: the scales are */
    bool numbers;                       /* codes are those of fp8 */
} QuantArgs;
#endif

typedef uint8_t AT(QuantVb) __attribute__((vector_size(LANES)));

enum { AT(QUANT_PARTS) = QUANT_ROWS / LANES };

/* What quant_dot takes from each code of 8 bits: NEON has products of two signed bytes, but until i8mm none of mixed ones. */
#if defined __aarch64__ && DOTS < 2
#define QUANT_LESS(bits) ((bits) == 8 ? 128 : 0)
#else
#define QUANT_LESS(bits) 0
#endif

/* a * b + c. A compiler that is free to fuse them does so in one loop and not in another, and bits would depend on rows. */
ALWAYS_INLINE Vf AT(quant_fma)(Vf a, Vf b, Vf c)
{
#if LANES == 16
    return (Vf)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
#elif LANES == 8
    return (Vf)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
#elif defined __aarch64__
    for (int l = 0; l < LANES; l++)
        c[l] = __builtin_fmaf(a[l], b[l], c[l]);
    return c;
#else
    return a * b + c;
#endif
}

/* An element of x in every lane. */
ALWAYS_INLINE Vf AT(quant_one)(const float *x)
{
#if LANES == 16
    return (Vf)_mm512_set1_ps(*x);
#elif LANES == 8
    return (Vf)_mm256_broadcast_ss(x);
#else
    return vset(*x);
#endif
}

/* Four codes of x in every lane. */
ALWAYS_INLINE Vi AT(quant_codes)(const char *x)
{
    int32_t four;

    memcpy(&four, x, sizeof four);
    return (Vi){0} + four;
}

/* sum + the products of 4 unsigned codes of w, less QUANT_LESS, and 4 signed ones of x, lane by lane; bits: of a code of w. */
ALWAYS_INLINE Vi AT(quant_dot)(Vi sum, Vi w, Vi x, int bits)
{
#if LANES == 16
    /* _mm512_dpbusd_epi32, for which a compiler would ask for a target that not all AVX-512 processors are */
    (void)bits;
    __asm__("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(w), "v"(x));
    return sum;
#elif LANES == 8
    const __m256i odd = _mm256_srli_epi16((__m256i)w, 8), even = _mm256_and_si256((__m256i)w, _mm256_set1_epi16(255));

    if (bits == 4) /* 2 * 15 * 127 fits into 16 bits */
        return sum + (Vi)_mm256_madd_epi16(_mm256_maddubs_epi16((__m256i)w, (__m256i)x), _mm256_set1_epi16(1));
    return sum + (Vi)_mm256_madd_epi16(odd, _mm256_srai_epi16((__m256i)x, 8)) +
           (Vi)_mm256_madd_epi16(even, _mm256_srai_epi16(_mm256_slli_epi16((__m256i)x, 8), 8));
#elif defined __x86_64__
    const __m128i odd = _mm_srli_epi16((__m128i)w, 8), even = _mm_and_si128((__m128i)w, _mm_set1_epi16(255));

    (void)bits;
    return sum + (Vi)_mm_madd_epi16(odd, _mm_srai_epi16((__m128i)x, 8)) +
           (Vi)_mm_madd_epi16(even, _mm_srai_epi16(_mm_slli_epi16((__m128i)x, 8), 8));
#elif DOTS == 2
    (void)bits;
    __asm__("usdot %0.4s, %1.16b, %2.16b" : "+w"(sum) : "w"(w), "w"(x));
    return sum;
#elif defined __aarch64__
    const Vi code = bits == 8 ? (Vi)((Vu)w ^ 0x80808080) : w;
#if DOTS == 1
    __asm__("sdot %0.4s, %1.16b, %2.16b" : "+w"(sum) : "w"(code), "w"(x));
    return sum;
#else
    const int8x16_t a = (int8x16_t)code, b = (int8x16_t)x; /* 2 * 128 * 127 fits into 16 bits */

    return (Vi)vpadalq_s16((int32x4_t)sum, vpaddq_s16(vmull_s8(vget_low_s8(a), vget_low_s8(b)), vmull_high_s8(a, b)));
#endif
#else
    (void)bits;
    for (int j = 0; j < 4; j++)
        sum += ((Vi)((Vu)w >> (8 * j)) & 255) * ((Vi)((Vu)x << (24 - 8 * j)) >> 24);
    return sum;
#endif
}

ALWAYS_INLINE Vi AT(quant_load)(const uint8_t *p)
{
    Vi v;

    memcpy(&v, p, sizeof v);
    return v;
}

/* The upper codes of vectors of 4-bit codes. */
ALWAYS_INLINE Vi AT(quant_upper)(Vi codes)
{
#if defined __aarch64__
    return (Vi)vshrq_n_u8((uint8x16_t)codes, 4);
#else
    return (Vi)((Vu)codes >> 4) & ((Vi){0} + 0x0f0f0f0f);
#endif
}

/* Scales and zeros of LANES rows of a group. */
ALWAYS_INLINE Vf AT(quant_scales)(const QuantArgs *q, const uint8_t *w, int64_t g, int part)
{
    const int64_t at = g * QUANT_ROWS + part * LANES;

    return q->fp32 ? vload_as(w + q->scales + at * 4, CPU_FP32) : vload_as(w + q->scales + at * 2, CPU_FP16);
}

ALWAYS_INLINE Vi AT(quant_zeros)(const QuantArgs *q, const uint8_t *w, int64_t g, int part)
{
    AT(QuantVb) z;

    if (q->have_minima)
        return (Vi){0};
    if (!q->have_zeros)
        return (Vi){0} + (q->bits == 4 ? 8 : 128);
    memcpy(&z, w + q->zeros + g * QUANT_ROWS + part * LANES, sizeof z);
#if defined __aarch64__
    uint32_t four;

    memcpy(&four, &z, sizeof four);
    return (Vi)vmovl_u16(vget_low_u16(vmovl_u8(vcreate_u8(four))));
#else
    return __builtin_convertvector(z, Vi);
#endif
}

ALWAYS_INLINE Vf AT(quant_minima)(const QuantArgs *q, const uint8_t *w, int64_t g, int part)
{
    return vload_as(w + q->zeros + (g * QUANT_ROWS + part * LANES) * 4, CPU_FP32);
}

/* sums[i] = the sum of a group of 16, 32, 64 or 128 codes of row m + i of x; rows: a constant. */
ALWAYS_INLINE void AT(quant_sums)(int rows, const QuantArgs *q, int64_t m, int64_t g, int32_t *sums)
{
    const int64_t in_row = q->K / 32, parts = q->group / 32;
    const int32_t *of_32 = q->xt + m * in_row + g * parts;

#pragma GCC unroll 8
    for (int i = 0; i < rows; i++)
        sums[i] = parts ? of_32[i * in_row] : 0;
    for (int64_t part = 1; part < parts; part++)
#pragma GCC unroll 8
        for (int i = 0; i < rows; i++)
            sums[i] += of_32[i * in_row + part];
    for (int i = 0; parts == 0 && i < rows; i++)
        for (int64_t k = g * 16; k < g * 16 + 16; k++)
            sums[i] += (int8_t)q->x[(m + i) * q->K + k];
}

/* What the sums of LANES rows of w begin with: zeros times the sum of x. bits: a constant. */
ALWAYS_INLINE Vi AT(quant_offsets)(const QuantArgs *q, const uint8_t *w, int64_t g, int part, int bits, int32_t of_x)
{
    if (q->have_zeros)
        return (AT(quant_zeros)(q, w, g, part) - QUANT_LESS(bits)) * -of_x;
    return (Vi){0} + ((q->have_minima ? 0 : bits == 4 ? 8 : 128) - QUANT_LESS(bits)) * -of_x;
}

#if DOTS == 2
/* sum + the products of 8 unsigned codes of two rows of w and 8 signed ones of two rows of x. */
ALWAYS_INLINE Vi AT(quant_two_by_two)(Vi sum, Vi w, Vi x)
{
    __asm__("usmmla %0.4s, %1.16b, %2.16b" : "+w"(sum) : "w"(w), "w"(x));
    return sum;
}

/* sum[m][..] = the products of group g, two rows of x at a time. A last row that is alone meets itself, and half of its sums
 * are not used. */
ALWAYS_INLINE void AT(quant_pairs)(int rows, int vectors, int bits, const QuantArgs *q, int64_t m0,
                                   const uint8_t *const *w, int64_t g,
                                   Vi sum[TILE_ROWS][QUANT_MAX_TILES * QUANT_ROWS / LANES])
{
    enum { PARTS = AT(QUANT_PARTS), PAIRS = TILE_ROWS / 2 };
    const int64_t vector = QUANT_ROWS * 4;
    Vi both[PAIRS][QUANT_MAX_TILES * PARTS][2]; /* [0]: of rows 0 and 1 of a vector of w, [1]: of 2 and 3 */

#pragma GCC unroll 8
    for (int m = 0; m < rows; m += 2)
#pragma GCC unroll 16
        for (int t = 0; t < vectors; t++)
            both[m / 2][t][0] = both[m / 2][t][1] = (Vi){0};
    for (int64_t k = g * q->group; k < (g + 1) * q->group; k += 8) {
        Vi x[PAIRS];

#pragma GCC unroll 8
        for (int m = 0; m < rows; m += 2) {
            const char *row = q->x + (m0 + m) * q->K + k;

            x[m / 2] = (Vi)vcombine_s8(vld1_s8((const int8_t *)row),
                                       vld1_s8((const int8_t *)(m + 1 < rows ? row + q->K : row)));
        }
#pragma GCC unroll 16
        for (int t = 0; t < vectors; t++) {
            const uint8_t *at = w[t / PARTS] + k * bits / 32 * vector + t % PARTS * LANES * 4;
            const Vi codes = AT(quant_load)(at);
            const Vi low = bits == 4 ? codes & 0x0f0f0f0f : codes;
            const Vi high = bits == 4 ? AT(quant_upper)(codes) : AT(quant_load)(at + vector);
            const Vi first = (Vi)vzip1q_s32((int32x4_t)low, (int32x4_t)high);
            const Vi second = (Vi)vzip2q_s32((int32x4_t)low, (int32x4_t)high);
#pragma GCC unroll 8
            for (int m = 0; m < rows; m += 2) {
                both[m / 2][t][0] = AT(quant_two_by_two)(both[m / 2][t][0], first, x[m / 2]);
                both[m / 2][t][1] = AT(quant_two_by_two)(both[m / 2][t][1], second, x[m / 2]);
            }
        }
    }
#pragma GCC unroll 8
    for (int m = 0; m < rows; m++)
#pragma GCC unroll 16
        for (int t = 0; t < vectors; t++) {
            const int32x4_t a = (int32x4_t)both[m / 2][t][0], b = (int32x4_t)both[m / 2][t][1];

            sum[m][t] = (Vi)(m % 2 ? vuzp2q_s32(a, b) : vuzp1q_s32(a, b));
        }
}
#endif

/* totals[m][..] (+)= groups [g0, g1) of rows m of x times `tiles` tiles of w; rows, tiles and bits are constants. */
ALWAYS_INLINE void AT(quant_integers)(int rows, int tiles, int bits, const QuantArgs *q, int64_t m0,
                                      const uint8_t *const *w, int64_t g0, int64_t g1, float *totals, int64_t stride)
{
    enum { PARTS = AT(QUANT_PARTS) };
    const int64_t vector = QUANT_ROWS * 4, step = bits == 4 ? 8 : 4;
    const int64_t scales_of_x = q->K / q->xgroup, groups = q->xgroup / q->group;
    const Vi low = (Vi){0} + 0x0f0f0f0f;
    const bool pairs = DOTS == 2 && rows > 1;

    for (int64_t g = g0; g < g1; g++) {
        const float *const xs = q->xs + m0 * scales_of_x + g / groups; /* of the first row */
        Vi sum[TILE_ROWS][QUANT_MAX_TILES * PARTS];
        int32_t of_x[TILE_ROWS];

        AT(quant_sums)(rows, q, m0, g, of_x);
#if DOTS == 2
        if (pairs)
            AT(quant_pairs)(rows, tiles * PARTS, bits, q, m0, w, g, sum);
#endif
#pragma GCC unroll 8
        for (int m = 0; m < rows; m++)
#pragma GCC unroll 16
            for (int t = 0; t < tiles * PARTS; t++) {
                const Vi offsets = AT(quant_offsets)(q, w[t / PARTS], g, t % PARTS, bits, of_x[m]);

                sum[m][t] = pairs ? sum[m][t] + offsets : offsets;
            }
        for (int64_t k = g * q->group; !pairs && k < (g + 1) * q->group; k += step) {
            Vi codes[QUANT_MAX_TILES * PARTS];

#pragma GCC unroll 4
            for (int t = 0; t < tiles && rows == 1; t++)
                __builtin_prefetch(w[t] + k / step * vector + QUANT_AHEAD, 0, 2);
#pragma GCC unroll 16
            for (int t = 0; t < tiles * PARTS; t++)
                codes[t] = AT(quant_load)(w[t / PARTS] + k / step * vector + t % PARTS * LANES * 4);
#pragma GCC unroll 8
            for (int m = 0; m < rows; m++) {
                const Vi x = AT(quant_codes)(q->x + (m0 + m) * q->K + k);
#pragma GCC unroll 16
                for (int t = 0; t < tiles * PARTS; t++)
                    sum[m][t] = AT(quant_dot)(sum[m][t], bits == 4 ? codes[t] & low : codes[t], x, bits);
            }
#pragma GCC unroll 8
            for (int m = 0; m < rows && bits == 4; m++) {
                const Vi x = AT(quant_codes)(q->x + (m0 + m) * q->K + k + 4);
#pragma GCC unroll 16
                for (int t = 0; t < tiles * PARTS; t++)
                    sum[m][t] = AT(quant_dot)(sum[m][t], AT(quant_upper)(codes[t]), x, bits);
            }
        }
#pragma GCC unroll 16
        for (int t = 0; t < tiles * PARTS; t++) {
            const Vf scale = AT(quant_scales)(q, w[t / PARTS], g, t % PARTS);
#pragma GCC unroll 8
            for (int m = 0; m < rows; m++) {
                float *to = totals + m * stride + t * LANES;
                const Vf before = g ? vload(to) : vset(0.0f);

                vstore(to, AT(quant_fma)(__builtin_convertvector(sum[m][t], Vf), scale * xs[m * scales_of_x], before));
            }
        }
        for (int m = 0; q->have_minima && m < rows; m++) {
            const Vf less = vset(-xs[m * scales_of_x] * (float)of_x[m]);

            for (int t = 0; t < tiles * PARTS; t++) {
                float *to = totals + m * stride + t * LANES;

                vstore(to, AT(quant_fma)(AT(quant_minima)(q, w[t / PARTS], g, t % PARTS), less, vload(to)));
            }
        }
    }
}

/* The same for rows of fp32. */
ALWAYS_INLINE void AT(quant_floats)(int rows, int tiles, int bits, const QuantArgs *q, int64_t m0,
                                    const uint8_t *const *w, int64_t g0, int64_t g1, float *totals, int64_t stride)
{
    enum { PARTS = AT(QUANT_PARTS) };
    const int64_t vector = QUANT_ROWS * 4, step = bits == 4 ? 8 : 4;
    const float *x = (const float *)(const void *)q->x + m0 * q->K;

    for (int64_t g = g0; g < g1; g++)
        for (int t = 0; t < tiles * PARTS; t++) {
            const Vi zero = AT(quant_zeros)(q, w[t / PARTS], g, t % PARTS);
            const Vf scale = AT(quant_scales)(q, w[t / PARTS], g, t % PARTS);
            const Vf minima = q->have_minima ? AT(quant_minima)(q, w[t / PARTS], g, t % PARTS) : vset(0.0f);
            Vf sum[TILE_ROWS];

#pragma GCC unroll 8
            for (int m = 0; m < rows; m++)
                sum[m] = vset(0.0f);
            for (int64_t k = g * q->group; k < (g + 1) * q->group; k += step) {
                const Vu codes = (Vu)AT(quant_load)(w[t / PARTS] + k / step * vector + t % PARTS * LANES * 4);
#pragma GCC unroll 8
                for (int j = 0; j < step; j++) {
                    const Vu code = bits == 4 ? codes >> (j / 4 * 4 + j % 4 * 8) & 15 : codes >> (j * 8) & 255;
                    const Vf whole = __builtin_convertvector((Vi)code - zero, Vf);
                    const Vf v = q->have_minima ? AT(quant_fma)(whole, scale, -minima) : whole;
#pragma GCC unroll 8
                    for (int m = 0; m < rows; m++)
                        sum[m] = AT(quant_fma)(v, vset(x[m * q->K + k + j]), sum[m]);
                }
            }
#pragma GCC unroll 8
            for (int m = 0; m < rows; m++) {
                float *to = totals + m * stride + t * LANES;

                vstore(to, AT(quant_fma)(sum[m], q->have_minima ? vset(1.0f) : scale, g ? vload(to) : vset(0.0f)));
            }
        }
}

/* Codes of e4m3 become numbers, times 2^-8, a vector of 16-bit halves at a time: with exponent and mantissa one bit down they are
 * fp16. Such a vector has QUANT_PAIR_K elements of a row, of QUANT_PAIR_PARTS parts of a tile. */
#if LANES == 16
enum { AT(QUANT_PAIR_K) = 4, AT(QUANT_PAIR_PARTS) = 1 };
#else
enum { AT(QUANT_PAIR_K) = 2, AT(QUANT_PAIR_PARTS) = 2 };
#endif
typedef int16_t AT(QuantHalves) __attribute__((vector_size(4 * LANES)));

/* The halves at p: the first and the second LANES of the even and of the odd bytes. */
ALWAYS_INLINE void AT(quant_numbers_of)(const uint8_t *p, Vf v[2][2])
{
    AT(QuantHalves) h, both[2];

    memcpy(&h, p, sizeof h);
    both[0] = (h << 8) >> 1 & (int16_t)0xbf80;
    both[1] = h >> 1 & (int16_t)0xbf80;
    for (int j = 0; j < 2; j++) {
#if LANES == 16
        v[0][j] = (Vf)_mm512_cvtph_ps(_mm512_castsi512_si256((__m512i)both[j]));
        v[1][j] = (Vf)_mm512_cvtph_ps(_mm512_extracti64x4_epi64((__m512i)both[j], 1));
#elif LANES == 8
        v[0][j] = (Vf)_mm256_cvtph_ps(_mm256_castsi256_si128((__m256i)both[j]));
        v[1][j] = (Vf)_mm256_cvtph_ps(_mm256_extracti128_si256((__m256i)both[j], 1));
#elif defined __aarch64__
        v[0][j] = (Vf)vcvt_f32_f16(vget_low_f16((float16x8_t)both[j]));
        v[1][j] = (Vf)vcvt_high_f32_f16((float16x8_t)both[j]);
#else
        Vh half[2];

        memcpy(half, &both[j], sizeof half);
        v[0][j] = vhalf(half[0]);
        v[1][j] = vhalf(half[1]);
#endif
    }
}

/* The same for rows of fp32 and codes of fp8. */
ALWAYS_INLINE void AT(quant_numbers)(int rows, int tiles, int bits, const QuantArgs *q, int64_t m0,
                                     const uint8_t *const *w, int64_t g0, int64_t g1, float *totals, int64_t stride)
{
    enum { PARTS = AT(QUANT_PARTS), STEP = AT(QUANT_PAIR_K), WIDE = AT(QUANT_PAIR_PARTS) };
    const float *x = (const float *)(const void *)q->x + m0 * q->K;

    (void)bits;
    for (int64_t g = g0; g < g1; g++) {
        Vf sum[TILE_ROWS][QUANT_MAX_TILES * PARTS];

#pragma GCC unroll 8
        for (int m = 0; m < rows; m++)
#pragma GCC unroll 16
            for (int t = 0; t < tiles * PARTS; t++)
                sum[m][t] = vset(0.0f);
        for (int64_t k = g * q->group; k < (g + 1) * q->group; k += STEP) {
            Vf number[QUANT_MAX_TILES * PARTS][STEP];

#pragma GCC unroll 16
            for (int t = 0; t < tiles * PARTS; t += WIDE) {
                Vf v[2][2];

                AT(quant_numbers_of)(w[t / PARTS] + k * QUANT_ROWS + t % PARTS * LANES * 2, v);
#pragma GCC unroll 4
                for (int i = 0; i < 4; i++)
                    number[t + i / 2 % WIDE][i % STEP] = v[i / 2][i % 2];
            }
#pragma GCC unroll 8
            for (int m = 0; m < rows; m++)
#pragma GCC unroll 4
                for (int i = 0; i < STEP; i++)
#pragma GCC unroll 16
                    for (int t = 0; t < tiles * PARTS; t++)
                        sum[m][t] = AT(quant_fma)(number[t][i], AT(quant_one)(x + m * q->K + k + i), sum[m][t]);
        }
#pragma GCC unroll 16
        for (int t = 0; t < tiles * PARTS; t++) {
            const Vf scale = AT(quant_scales)(q, w[t / PARTS], g, t % PARTS) * 256.0f;
#pragma GCC unroll 8
            for (int m = 0; m < rows; m++) {
                float *to = totals + m * stride + t * LANES;

                vstore(to, AT(quant_fma)(sum[m][t], scale, g ? vload(to) : vset(0.0f)));
            }
        }
    }
}

/* Functions for 1 to TILE_ROWS rows of x, by what x and w are (codes, floats; floats and fp8) and the bits of a code of w. */
#undef QUANT_TILES
#undef TILE_TILES
#define QUANT_TILES(rows) ((rows) == 1 ? 2 * TILE_TILES : TILE_TILES)
#if LANES == 16
#define TILE_TILES 2
#else
#define TILE_TILES 1
#endif
#define QUANT_RUN(x, rows, bits) \
    static __attribute__((noinline)) void AT(quant_##x##_##bits##_##rows)(const QuantArgs *q, int64_t m0, \
                                                                          const uint8_t *const *w, int64_t g0, \
                                                                          int64_t g1, float *totals, int64_t stride) \
    { \
        AT(quant_##x)(rows, QUANT_TILES(rows), bits, q, m0, w, g0, g1, totals, stride); \
    }
#define QUANT_TABLE_2(F, x, bits) F(x, 1, bits) F(x, 2, bits)
#if TILE_ROWS == 6
#define QUANT_EACH(F, x, bits) QUANT_TABLE_2(F, x, bits) F(x, 3, bits) F(x, 4, bits) F(x, 5, bits) F(x, 6, bits)
#elif TILE_ROWS == 4
#define QUANT_EACH(F, x, bits) QUANT_TABLE_2(F, x, bits) F(x, 3, bits) F(x, 4, bits)
#else
#define QUANT_EACH(F, x, bits) QUANT_TABLE_2(F, x, bits)
#endif
QUANT_EACH(QUANT_RUN, integers, 8)
QUANT_EACH(QUANT_RUN, integers, 4)
QUANT_EACH(QUANT_RUN, floats, 8)
QUANT_EACH(QUANT_RUN, floats, 4)
QUANT_EACH(QUANT_RUN, numbers, 8)

#define QUANT_NAME(x, rows, bits) AT(quant_##x##_##bits##_##rows),
static void (*const AT(quant_runs)[5][TILE_ROWS])(const QuantArgs *q, int64_t m0, const uint8_t *const *w, int64_t g0,
                                                  int64_t g1, float *totals, int64_t stride) = {
    {QUANT_EACH(QUANT_NAME, integers, 8)}, {QUANT_EACH(QUANT_NAME, integers, 4)}, {QUANT_EACH(QUANT_NAME, floats, 8)},
    {QUANT_EACH(QUANT_NAME, floats, 4)},   {QUANT_EACH(QUANT_NAME, numbers, 8)},
};

/* totals = rows m0 .. m0+height of x, QUANT_BLOCK_X at most, times the tiles of weight rows n0 .. n0 + QUANT_TILES of N. */
static void AT(quant_totals)(int64_t N, const QuantArgs *q, int64_t m0, int64_t height, int64_t n0,
                             float totals[][QUANT_MAX_TILES * QUANT_ROWS])
{
    const int64_t groups = q->K / q->group, tiles = (height + TILE_ROWS - 1) / TILE_ROWS;
    const int64_t step = tiles == 1 ? groups : QUANT_KC / q->group;
    const int kind = q->numbers ? 4 : 2 * !q->xs + (q->bits == 4);
    const uint8_t *w[QUANT_MAX_TILES]; /* past the end the last tile again; these sums are not used */

    for (int64_t i = 0; i < QUANT_MAX_TILES; i++) {
        const int64_t n = n0 + i * QUANT_ROWS;

        w[i] = q->w + (n < N ? n : N - 1) / QUANT_ROWS * q->tile;
    }
    for (int64_t g = 0; g < groups; g += step)
        for (int64_t i = 0; i < tiles; i++) { /* of about equal height */
            const int64_t m = height * i / tiles, rows = height * (i + 1) / tiles - m;

            AT(quant_runs)
            [kind][rows - 1](q, m0 + m, w, g, g + step < groups ? g + step : groups, totals[m],
                             QUANT_MAX_TILES * QUANT_ROWS);
        }
}

/* The fields that the form of the weights gives: type as CPU_INT4, kind as PackedScales of runtime/base/packed.h. The caller sets
 * x and w. */
ALWAYS_INLINE QuantArgs AT(quant_weights)(int64_t K, int64_t type, int64_t group, int64_t kind, int64_t xgroup)
{
    const int64_t bits = type == CPU_INT4 ? 4 : 8, groups = K / group, codes = QUANT_ROWS * K * bits / 8;
    const int64_t scales = QUANT_ROWS * groups * (kind >= 2 ? 4 : 2);
    const int64_t zeros = QUANT_ROWS * groups * (kind == 1 ? 1 : kind == 3 ? 4 : 0);

    return (QuantArgs){.K = K,
                       .group = group,
                       .xgroup = xgroup,
                       .tile = (codes + scales + zeros + 63) / 64 * 64,
                       .scales = codes,
                       .zeros = codes + scales,
                       .bits = (int)bits,
                       .fp32 = kind >= 2,
                       .have_zeros = kind == 1,
                       .have_minima = kind == 3,
                       .numbers = type == CPU_FP8};
}

#if LANES == 16 || defined AMX_EMULATED
#include "amx.h"
#endif
#undef QUANT_LESS
#undef QUANT_RUN
#undef QUANT_TABLE_2
#undef QUANT_EACH
#undef QUANT_NAME
