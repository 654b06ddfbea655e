// wgmma_tile.cuh - the matrix units of sm_90a with both operands in shared memory:
// D[64, N] += A[64, 16] * B[N, 16]^T, 16-bit inputs, fp32 sums. A and B lie as wgmma.cuh says of B, and the
// same fences hold; D is held by the warpgroup as there.
#pragma once
#include "device/wgmma.cuh"

// The operand `rows` rows (a multiple of 8) and k16 times 16 k further on: one addition, for what is made once a step.
DEVICE u64 wgmma_further(u64 operand, int rows, int k16)
{
    return operand & 0xffffffff00000000ull | ((u32)operand + rows * 8 + k16 * 2);
}

// N columns, so N / 2 sums a lane; the operands are numbered behind the sums. `set` is D = A * B^T.
template <int N, class T> struct WgmmaTile;
#define WGMMA_FRESH_8(d, i) \
    "=f"(d[i]), "=f"(d[i + 1]), "=f"(d[i + 2]), "=f"(d[i + 3]), "=f"(d[i + 4]), "=f"(d[i + 5]), "=f"(d[i + 6]), "=f"(d[i + 7])
#define WGMMA_FRESH_16(d) WGMMA_FRESH_8(d, 0), WGMMA_FRESH_8(d, 8)
#define WGMMA_FRESH_32(d) WGMMA_FRESH_16(d), WGMMA_FRESH_8(d, 16), WGMMA_FRESH_8(d, 24)
#define WGMMA_FRESH_24(d) WGMMA_FRESH_16(d), WGMMA_FRESH_8(d, 16)
#define WGMMA_FRESH_48(d) WGMMA_FRESH_32(d), WGMMA_FRESH_8(d, 32), WGMMA_FRESH_8(d, 40)
#define WGMMA_FRESH_56(d) WGMMA_FRESH_48(d), WGMMA_FRESH_8(d, 48)
#define WGMMA_FRESH_64(d) WGMMA_FRESH_56(d), WGMMA_FRESH_8(d, 56)
#define WGMMA_FRESH_128(d) WGMMA_FRESH_64(d), WGMMA_FRESH_64((d + 64))
#define WGMMA_TILE(N, SUMS, TYPE, NAME, A, B) \
    template <> struct WgmmaTile<N, TYPE> { \
        static DEVICE void add(float (&d)[N / 2], u64 a, u64 b) \
        { \
            asm volatile("{.reg .pred add; setp.eq.u32 add, 0, 0; wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." NAME "." NAME \
                         " {" WGMMA_NAMES_##SUMS "}, " A ", " B ", add, 1, 1, 0, 0;}" \
                         : WGMMA_SUMS_##SUMS(d) \
                         : "l"(a), "l"(b)); \
        } \
        static DEVICE void set(float (&d)[N / 2], u64 a, u64 b) \
        { \
            asm volatile("{.reg .pred add; setp.ne.u32 add, 0, 0; wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." NAME "." NAME \
                         " {" WGMMA_NAMES_##SUMS "}, " A ", " B ", add, 1, 1, 0, 0;}" \
                         : WGMMA_FRESH_##SUMS(d) \
                         : "l"(a), "l"(b)); \
        } \
    };
#define WGMMA_TILES(N, SUMS, A, B) \
    WGMMA_TILE(N, SUMS, bf16, "bf16", A, B) \
    WGMMA_TILE(N, SUMS, half, "f16", A, B)

WGMMA_TILES(32, 16, "%16", "%17")
WGMMA_TILES(48, 24, "%24", "%25")
WGMMA_TILES(64, 32, "%32", "%33")
WGMMA_TILES(96, 48, "%48", "%49")
WGMMA_TILES(112, 56, "%56", "%57")
WGMMA_TILES(128, 64, "%64", "%65")
WGMMA_TILES(256, 128, "%128", "%129")
#undef WGMMA_TILES
#undef WGMMA_TILE
