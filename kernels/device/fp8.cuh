// fp8.cuh - numbers of e4m3 (sm_90a): from fp32, and products of a warpgroup with them.
//
// D[64, N] += A[64, 32] * B[N, 32]^T as in wgmma.cuh, which says what may be touched and when. The sums of one instruction keep
// 14 bits or so, and are added to D with as many: who sums many adds D to numbers of fp32 now and then.
//
// Lane 4g + t of warp w has of A, which is in registers: a[0] row 16w + g, k 4t .. 4t + 3; a[1] row 16w + g + 8, the same k; a[2] and
// a[3] the same rows, 16 k further on. B has rows of 128 k with the 128-byte swizzle; four products of 32 k walk through them.
#pragma once
#include "device/wgmma.cuh"

// cvt.rn.satfinite.e4m3x2.f32: four numbers to the nearest codes, ties to even, at most 448 in magnitude; the first in the lowest byte.
DEVICE u32 pack_e4m3(float x0, float x1, float x2, float x3)
{
    u32 r;
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 890
    asm("{.reg .b16 low, high; cvt.rn.satfinite.e4m3x2.f32 low, %2, %1; cvt.rn.satfinite.e4m3x2.f32 high, %4, %3; mov.b32 %0, {low, high};}"
        : "=r"(r) : "f"(x0), "f"(x1), "f"(x2), "f"(x3));
#else // no kernel calls it
    r = 0;
#endif
    return r;
}

// Products of N columns; d: the N / 2 sums of a lane.
template <int N> struct WgmmaE4m3;
#define WGMMA_E4M3(N, SUMS, A0, A1, A2, A3, B) \
    template <> struct WgmmaE4m3<N> { \
        static DEVICE void add(float *d, const u32 (&a)[4], u64 b) \
        { \
            asm volatile("wgmma.mma_async.sync.aligned.m64n" #N "k32.f32.e4m3.e4m3 {" WGMMA_NAMES_##SUMS "}, {" A0 "," A1 "," A2 "," A3 "}, " B ", 1, 1, 1;" \
                         : WGMMA_SUMS_##SUMS("+", d) \
                         : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b)); \
        } \
        static DEVICE void set(float *d, const u32 (&a)[4], u64 b) \
        { \
            asm volatile("wgmma.mma_async.sync.aligned.m64n" #N "k32.f32.e4m3.e4m3 {" WGMMA_NAMES_##SUMS "}, {" A0 "," A1 "," A2 "," A3 "}, " B ", 0, 1, 1;" \
                         : WGMMA_SUMS_##SUMS("=", d) \
                         : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b)); \
        } \
    };
WGMMA_E4M3(64, 32, "%32", "%33", "%34", "%35", "%36")
WGMMA_E4M3(96, 48, "%48", "%49", "%50", "%51", "%52")
WGMMA_E4M3(128, 64, "%64", "%65", "%66", "%67", "%68")
#undef WGMMA_E4M3
