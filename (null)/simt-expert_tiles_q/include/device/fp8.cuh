// fp8.cuh - numbers of e4m3 on the host: from fp32, and products of a warpgroup, whose sums are those of fp32.
#pragma once
#include "device/wgmma.cuh"

DEVICE u32 e4m3_code(float x)
{
    const float most = x != x ? x : x > 448.0f ? 448.0f : x < -448.0f ? -448.0f : x;
    const u32 sign = __float_as_uint(most) >> 24 & 0x80, u = __float_as_uint(most) & 0x7fffffff;
    if (most != most)
        return 0x7f;
    if (u < 0x3c800000)  // below 2^-6: the sum with 2^14 leaves units of 2^-9 in the low bits
        return sign | (__float_as_uint(__uint_as_float(u) + 16384.0f) - 0x46800000u);
    return sign | (((u + 0x7ffff + (u >> 20 & 1)) >> 20) - 960);
}
DEVICE u32 pack_e4m3(float x0, float x1, float x2, float x3)
{
    return e4m3_code(x0) | e4m3_code(x1) << 8 | e4m3_code(x2) << 16 | e4m3_code(x3) << 24;
}

template <int N> struct WgmmaE4m3 {
    static DEVICE void add(float *d, const u32 (&a)[4], u64 b) { simt_wgmma_e4m3(N, d, a, b); }
    static DEVICE void set(float *d, const u32 (&a)[4], u64 b)
    {
        for (int i = 0; i < N / 2; i++)
            d[i] = 0.0f;
        simt_wgmma_e4m3(N, d, a, b);
    }
};
