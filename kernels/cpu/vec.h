/* vec.h - float vectors of one level: Vf holds LANES floats. Included by each.h.
 *
 * Written with the compiler's vector types, so that one text serves SSE2, NEON, AVX2 and AVX-512;
 * `a * b + c` becomes a fused multiply-add where the level has one. The include guard is per level, so
 * that all kernels may be compiled as one file (runtime/ftx_all.c). */
#if (LANES == 4 && !DOTS && !defined CPU_VEC_4) || (LANES == 8 && !defined CPU_VEC_8) || \
    (LANES == 16 && !defined CPU_VEC_16) || (DOTS == 1 && !defined CPU_VEC_DOTPROD) || \
    (DOTS == 2 && !defined CPU_VEC_I8MM)
#if DOTS == 1
#define CPU_VEC_DOTPROD
#elif DOTS == 2
#define CPU_VEC_I8MM
#elif LANES == 4
#define CPU_VEC_4
#elif LANES == 8
#define CPU_VEC_8
#else
#define CPU_VEC_16
#endif

typedef float AT(CpuVf) __attribute__((vector_size(LANES * 4)));
typedef int32_t AT(CpuVi) __attribute__((vector_size(LANES * 4)));
typedef uint32_t AT(CpuVu) __attribute__((vector_size(LANES * 4)));
typedef uint16_t AT(CpuVh) __attribute__((vector_size(LANES * 2)));

#ifndef Vf
#define Vf AT(CpuVf)
#define Vi AT(CpuVi)
#define Vu AT(CpuVu)
#define Vh AT(CpuVh)
#define vset AT(cpu_vset)
#define vload AT(cpu_vload)
#define vload_n AT(cpu_vload_n)
#define vstore AT(cpu_vstore)
#define vstore_n AT(cpu_vstore_n)
#define vwiden AT(cpu_vwiden)
#define vhalf AT(cpu_vhalf)
#define vload_as AT(cpu_vload_as)
#define vload_as_n AT(cpu_vload_as_n)
#define vsum AT(cpu_vsum)
#define vsum4 AT(cpu_vsum4)
#define vmax_of AT(cpu_vmax_of)
#define vmax AT(cpu_vmax)
#define vselect AT(cpu_vselect)
#define vround AT(cpu_vround)
#define vexp AT(cpu_vexp)
#define vtanh AT(cpu_vtanh)
#define verf AT(cpu_verf)
#define vact AT(cpu_vact)
#endif

ALWAYS_INLINE Vf vset(float f)
{
    return (Vf){0} + f;
}

ALWAYS_INLINE Vf vload(const float *p)
{
    Vf v;
    memcpy(&v, p, sizeof v);
    return v;
}

ALWAYS_INLINE void vstore(float *p, Vf v)
{
    memcpy(p, &v, sizeof v);
}

/* The first n (0 < n < LANES) elements of a vector; loads fill the others with zeros. */
ALWAYS_INLINE Vf vload_n(const float *p, int64_t n)
{
#if LANES == 16
    return (Vf)_mm512_maskz_loadu_ps((__mmask16)((1u << n) - 1), p);
#else
    Vf v = {0};
    memcpy(&v, p, (size_t)n * sizeof *p);
    return v;
#endif
}

ALWAYS_INLINE void vstore_n(float *p, Vf v, int64_t n)
{
#if LANES == 16
    _mm512_mask_storeu_ps(p, (__mmask16)((1u << n) - 1), (__m512)v);
#else
    memcpy(p, &v, (size_t)n * sizeof *p);
#endif
}

ALWAYS_INLINE Vf vselect(Vi mask, Vf yes, Vf no)
{
    return (Vf)(((Vi)yes & mask) | ((Vi)no & ~mask));
}

/* fp32 values that bf16 can hold: the nearest, ties to even. */
ALWAYS_INLINE Vf vround(Vf x)
{
    const Vu u = (Vu)x, up = u + 0x7fff + (u >> 16 & 1);

    const Vi number = (u & 0x7fffffff) <= 0x7f800000; /* NaN stays NaN */

    return (Vf)((Vu)vselect(number, (Vf)up, (Vf)(u | 0x400000)) & 0xffff0000);
}

/* bf16 and fp16 bits to fp32. */
ALWAYS_INLINE Vf vwiden(Vh h)
{
#if LANES == 16
    return (Vf)_mm512_slli_epi32(_mm512_cvtepu16_epi32((__m256i)h), 16);
#elif LANES == 8
    return (Vf)_mm256_slli_epi32(_mm256_cvtepu16_epi32((__m128i)h), 16);
#elif defined __aarch64__ /* here and below: gcc 12 moves vectors of 8 bytes element by element */
    return (Vf)vshll_n_u16((uint16x4_t)h, 16);
#else
    return (Vf)(__builtin_convertvector(h, Vu) << 16);
#endif
}

ALWAYS_INLINE Vf vhalf(Vh h)
{
#if LANES == 16
    return (Vf)_mm512_cvtph_ps((__m256i)h);
#elif LANES == 8
    return (Vf)_mm256_cvtph_ps((__m128i)h);
#elif defined __aarch64__
    return (Vf)vcvt_f32_f16((float16x4_t)h);
#else
    /* Exponent and mantissa move up by 13 bits, a product with 2^112 corrects the bias, for
     * subnormals too; infinities and NaN get the largest exponent. */
    const Vu u = __builtin_convertvector(h, Vu);
    const Vu magnitude = (u & 0x7fff) << 13;
    const Vu scaled = (Vu)((Vf)magnitude * 0x1p112f);
    const Vu special = (Vu)(magnitude >= (0x7c00u << 13)) & 0x7f800000u;

    return (Vf)(scaled | special | (u & 0x8000) << 16);
#endif
}

/* LANES elements of storage type `type` (a constant wherever this is inlined). */
ALWAYS_INLINE Vf vload_as(const void *p, int type)
{
    Vh h;

    if (type == CPU_FP32)
        return vload(p);
    memcpy(&h, p, sizeof h);
    return type == CPU_BF16 ? vwiden(h) : vhalf(h);
}

ALWAYS_INLINE Vf vload_as_n(const void *p, int type, int64_t n)
{
    Vh h = {0};

    if (type == CPU_FP32)
        return vload_n(p, n);
#if LANES == 16
    h = (Vh)_mm256_maskz_loadu_epi16((__mmask16)((1u << n) - 1), p);
#else
    memcpy(&h, p, (size_t)n * sizeof(uint16_t));
#endif
    return type == CPU_BF16 ? vwiden(h) : vhalf(h);
}

ALWAYS_INLINE Vf vmax(Vf a, Vf b)
{
#if LANES == 16
    return (Vf)_mm512_max_ps((__m512)a, (__m512)b);
#else
    return vselect(a > b, a, b);
#endif
}

/* Sums of four vectors at once, each by the same tree: neighbours at distance 2, 1, then (across
 * 128-bit lanes) 4 or 8. Thirteen instructions for four sums under AVX-512. */
typedef float AT(CpuQuad) __attribute__((vector_size(16)));
#ifndef Quad
#define Quad AT(CpuQuad)
#endif

ALWAYS_INLINE Quad vsum4(Vf a, Vf b, Vf c, Vf d)
{
#if LANES == 16
    const __m512 ab = _mm512_add_ps(_mm512_unpacklo_ps((__m512)a, (__m512)b), _mm512_unpackhi_ps((__m512)a, (__m512)b));
    const __m512 cd = _mm512_add_ps(_mm512_unpacklo_ps((__m512)c, (__m512)d), _mm512_unpackhi_ps((__m512)c, (__m512)d));
    const __m512 s = _mm512_add_ps(_mm512_castpd_ps(_mm512_unpacklo_pd(_mm512_castps_pd(ab), _mm512_castps_pd(cd))),
                                   _mm512_castpd_ps(_mm512_unpackhi_pd(_mm512_castps_pd(ab), _mm512_castps_pd(cd))));
    const __m256 half = _mm256_add_ps(_mm512_castps512_ps256(s), _mm512_extractf32x8_ps(s, 1));

    return (Quad)_mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
#elif LANES == 8
    const __m256 ab = _mm256_add_ps(_mm256_unpacklo_ps((__m256)a, (__m256)b), _mm256_unpackhi_ps((__m256)a, (__m256)b));
    const __m256 cd = _mm256_add_ps(_mm256_unpacklo_ps((__m256)c, (__m256)d), _mm256_unpackhi_ps((__m256)c, (__m256)d));
    const __m256 s = _mm256_add_ps(_mm256_castpd_ps(_mm256_unpacklo_pd(_mm256_castps_pd(ab), _mm256_castps_pd(cd))),
                                   _mm256_castpd_ps(_mm256_unpackhi_pd(_mm256_castps_pd(ab), _mm256_castps_pd(cd))));

    return (Quad)_mm_add_ps(_mm256_castps256_ps128(s), _mm256_extractf128_ps(s, 1));
#else
    const Vf ab = __builtin_shufflevector(a, b, 0, 4, 1, 5) + __builtin_shufflevector(a, b, 2, 6, 3, 7);
    const Vf cd = __builtin_shufflevector(c, d, 0, 4, 1, 5) + __builtin_shufflevector(c, d, 2, 6, 3, 7);

    return __builtin_shufflevector(ab, cd, 0, 1, 4, 5) + __builtin_shufflevector(ab, cd, 2, 3, 6, 7);
#endif
}

ALWAYS_INLINE float vsum(Vf a)
{
    return vsum4(a, a, a, a)[0];
}

ALWAYS_INLINE float vmax_of(Vf a)
{
#if LANES == 16
    return _mm512_reduce_max_ps((__m512)a);
#else
    float m = a[0];

    for (int i = 1; i < LANES; i++)
        m = a[i] > m ? a[i] : m;
    return m;
#endif
}

/* exp(x), 1 ulp or so: 2^n * e^r with |r| <= ln 2 / 2 and the Taylor polynomial of degree 7;
 * below -87.3 zero (no subnormals), above 88.7 infinity. exp(-inf) is 0. */
ALWAYS_INLINE Vf vexp(Vf x)
{
#if LANES == 16 /* vscalefps handles both ends of the range; of NaN and a number these return the second, here NaN */
    const Vf c = (Vf)_mm512_min_ps(_mm512_set1_ps(89.0f), _mm512_max_ps(_mm512_set1_ps(-87.33654f), (__m512)x));
    const Vf n = (Vf)_mm512_roundscale_ps((__m512)(c * 1.44269504f), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
#else
    const Vf top = vset(88.72283f), low = vset(-87.33654f);
    const Vf c = vselect(x > top, top, vselect(x < low, low, x));
    const Vf magic = vset(0x1.8p23f); /* adding it rounds to an integer, which is in the low bits */
    const Vf shifted = c * 1.44269504f + magic;
    const Vf n = shifted - magic;
#endif
    const Vf r = (c - n * 0.693145751953125f) - n * 1.42860677e-6f;
    Vf p = vset(1.0f / 5040);

    p = p * r + 1.0f / 720;
    p = p * r + 1.0f / 120;
    p = p * r + 1.0f / 24;
    p = p * r + 1.0f / 6;
    p = p * r + 0.5f;
    p = p * r + 1.0f;
    p = p * r + 1.0f;
#if LANES == 16
    return (Vf)_mm512_maskz_scalef_ps(_mm512_cmp_ps_mask((__m512)x, _mm512_set1_ps(-87.33654f), _CMP_NLT_UQ), (__m512)p,
                                      (__m512)n);
#else
    /* n may be 128, so 2^n is a product of two factors. */
    const Vi whole = (Vi)shifted - 0x4b400000;
    const Vi first = whole >> 1, second = whole - first;
    const Vf y = p * (Vf)((first + 127) << 23) * (Vf)((second + 127) << 23);

    return vselect(x < low, vset(0.0f), vselect(x > top, vset(__builtin_inff()), y));
#endif
}

/* tanh(x) = 1 - 2 / (e^2x + 1); near zero its odd series, where that form would cancel. */
ALWAYS_INLINE Vf vtanh(Vf x)
{
    const Vf x2 = x * x;
    const Vf series = x + x * x2 * (-1.0f / 3 + x2 * (2.0f / 15 + x2 * (-17.0f / 315 + x2 * (62.0f / 2835))));
    const Vf whole = 1.0f - 2.0f / (vexp(x + x) + 1.0f);

    return vselect(x2 < 0.04f, series, whole);
}

/* erf(x), 1.3 ulp: up to 0.93 an odd polynomial, beyond it 1 - e^p(|x|), where p is the polynomial nearest to
 * log(erfc); both are fitted by Lawson's iteration, with errors below 2e-9. From 4 on erf is 1 in fp32. */
ALWAYS_INLINE Vf verf(Vf x)
{
    const Vf x2 = x * x, size = vselect(x < 0.0f, -x, x), t = vselect(size > 4.0f, vset(4.0f), size);
    Vf near = vset(8.345225e-05f), p = vset(1.9381061e-04f);

    near = near * x2 - 8.1374374e-04f;
    near = near * x2 + 5.2006342e-03f;
    near = near * x2 - 2.6859270e-02f;
    near = near * x2 + 1.1283694e-01f;
    near = near * x2 - 3.7612635e-01f;
    near = near * x2 + 1.2837917e-01f;
    p = p * t - 3.0224740e-03f;
    p = p * t + 2.2144745e-02f;
    p = p * t - 1.0376228e-01f;
    p = p * t - 6.3737381e-01f;
    p = p * t - 1.1275628e+00f;
    p = p * t - 2.2278106e-04f;

    const Vf far = 1.0f - vexp(p);

    return vselect(size > 0.93f, vselect(x < 0.0f, -far, far), x * near + x);
}

ALWAYS_INLINE Vf vact(Vf x, int64_t kind)
{
    switch (kind) {
    case CPU_RELU: return vselect(x > 0.0f, x, vset(0.0f));
    case CPU_GELU_ERF: return 0.5f * x * (1.0f + verf(x * 0.70710678f));
    /* 0.5 (1 + tanh(u)) = 1 / (1 + e^-2u) */
    case CPU_GELU_TANH: return x / (1.0f + vexp(x * (-1.5957691f + -0.071354816f * (x * x))));
    case CPU_QUICK_GELU: return x / (1.0f + vexp(x * -1.702f));
    case CPU_SILU: return x / (1.0f + vexp(-x));
    case CPU_TANH: return 1.0f - 2.0f / (1.0f + vexp(2.0f * x));
    case CPU_RELU2: return vselect(x > 0.0f, x * x, vset(0.0f));
    case CPU_SIGMOID: return 1.0f / (1.0f + vexp(-x));
    }
    return x;
}
#endif
