// wgmma_s8.cuh - wgmma.mma_async (sm_90a) on integers: D[64, N] += A[64, 32] * B[N, 32]^T, 8-bit integers with sign, exact sums of 32 bits.
//
// wgmma.cuh says what may be touched and when. Lane 4g + t of warp w has of A, which is in registers: a[0] row 16w + g, k 4t .. 4t + 3;
// a[1] row 16w + g + 8, the same k; a[2] and a[3] the same rows, 16 k further on. B has rows of 128 k with the 128-byte swizzle; four
// products of 32 k walk through them.
#pragma once
#include "device/wgmma.cuh"

// Products of N columns; d: the N / 2 sums of a lane. set: D = A * B^T.
template <int N> struct WgmmaS8;
#define WGMMA_INTS_8(MODE, d, i) MODE "r"(d[i]), MODE "r"(d[i + 1]), MODE "r"(d[i + 2]), MODE "r"(d[i + 3]), \
    MODE "r"(d[i + 4]), MODE "r"(d[i + 5]), MODE "r"(d[i + 6]), MODE "r"(d[i + 7])
#define WGMMA_INTS_16(MODE, d, i) WGMMA_INTS_8(MODE, d, i), WGMMA_INTS_8(MODE, d, i + 8)
#define WGMMA_INTS_32(MODE, d, i) WGMMA_INTS_16(MODE, d, i), WGMMA_INTS_16(MODE, d, i + 16)
#define WGMMA_S8(N, SUMS, A0, A1, A2, A3, B) \
    template <> struct WgmmaS8<N> { \
        static DEVICE void add(int *d, const u32 (&a)[4], u64 b) \
        { \
            asm volatile("wgmma.mma_async.sync.aligned.m64n" #N "k32.s32.s8.s8 {" WGMMA_NAMES_##SUMS "}, {" A0 "," A1 "," A2 "," A3 "}, " B ", 1;" \
                         : WGMMA_INTS_##SUMS("+", d, 0) \
                         : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b)); \
        } \
        static DEVICE void set(int *d, const u32 (&a)[4], u64 b) \
        { \
            asm volatile("wgmma.mma_async.sync.aligned.m64n" #N "k32.s32.s8.s8 {" WGMMA_NAMES_##SUMS "}, {" A0 "," A1 "," A2 "," A3 "}, " B ", 0;" \
                         : WGMMA_INTS_##SUMS("+", d, 0) \
                         : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b)); \
        } \
    };
WGMMA_S8(16, 8, "%8", "%9", "%10", "%11", "%12")
WGMMA_S8(32, 16, "%16", "%17", "%18", "%19", "%20")
WGMMA_S8(64, 32, "%32", "%33", "%34", "%35", "%36")
#undef WGMMA_S8
#undef WGMMA_INTS_32
#undef WGMMA_INTS_16
#undef WGMMA_INTS_8
