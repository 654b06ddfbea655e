// wgmma_wide.cuh - products of wgmma.cuh with 160, 168, 192 and 224 columns, both operands in shared memory.
//
// A product reads 64 rows of A and N of B: the wider, the fewer bytes of shared memory for its work. With N = 224 these are 82
// bytes a clock, with two of 112 columns 101, of the 128 that shared memory gives to products and copies together.
#pragma once
#include "device/wgmma.cuh"

#define WGMMA_NAMES_80 WGMMA_NAMES_64 ",%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79"
#define WGMMA_NAMES_84 WGMMA_NAMES_80 ",%80,%81,%82,%83"
#define WGMMA_NAMES_96 WGMMA_NAMES_80 ",%80,%81,%82,%83,%84,%85,%86,%87,%88,%89,%90,%91,%92,%93,%94,%95"
#define WGMMA_NAMES_112 WGMMA_NAMES_96 ",%96,%97,%98,%99,%100,%101,%102,%103,%104,%105,%106,%107,%108,%109,%110,%111"
#define WGMMA_SUMS_80(MODE, d) WGMMA_SUMS_64(MODE, d), WGMMA_SUMS_16(MODE, (d + 64))
#define WGMMA_SUMS_84(MODE, d) WGMMA_SUMS_80(MODE, d), MODE "f"(d[80]), MODE "f"(d[81]), MODE "f"(d[82]), MODE "f"(d[83])
#define WGMMA_SUMS_96(MODE, d) WGMMA_SUMS_64(MODE, d), WGMMA_SUMS_32(MODE, (d + 64))
#define WGMMA_SUMS_112(MODE, d) WGMMA_SUMS_64(MODE, d), WGMMA_SUMS_48(MODE, (d + 64))
#define WGMMA_ADD(N, SUMS, TYPE, NAME, A, B) \
    template <> struct Wgmma<N, TYPE> { \
        static DEVICE void add(float *d, u64 a, u64 b) \
        { \
            asm volatile("wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." NAME "." NAME \
                         " {" WGMMA_NAMES_##SUMS "}, " A ", " B ", 1, 1, 1, 0, 0;" \
                         : WGMMA_SUMS_##SUMS("+", d) \
                         : "l"(a), "l"(b)); \
        } \
    };
#define WGMMA_SHAPE(N, SUMS, A, B) \
    WGMMA_ADD(N, SUMS, bf16, "bf16", A, B) \
    WGMMA_ADD(N, SUMS, half, "f16", A, B)

// Columns, sums of a lane, and the numbers of the operands behind the sums.
WGMMA_SHAPE(160, 80, "%80", "%81")
WGMMA_SHAPE(168, 84, "%84", "%85")
WGMMA_SHAPE(192, 96, "%96", "%97")
WGMMA_SHAPE(224, 112, "%112", "%113")
#undef WGMMA_SHAPE
#undef WGMMA_ADD
