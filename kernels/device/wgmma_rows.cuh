// wgmma_rows.cuh - products of wgmma_wide.cuh with 144, 176, 208 and 240 columns: with those there, all multiples of 16 from 128 on.
#pragma once
#include "device/wgmma_wide.cuh"

#define WGMMA_NAMES_72 WGMMA_NAMES_64 ",%64,%65,%66,%67,%68,%69,%70,%71"
#define WGMMA_NAMES_88 WGMMA_NAMES_80 ",%80,%81,%82,%83,%84,%85,%86,%87"
#define WGMMA_NAMES_104 WGMMA_NAMES_96 ",%96,%97,%98,%99,%100,%101,%102,%103"
#define WGMMA_NAMES_120 WGMMA_NAMES_112 ",%112,%113,%114,%115,%116,%117,%118,%119"
#define WGMMA_SUMS_72(MODE, d) WGMMA_SUMS_64(MODE, d), WGMMA_SUMS_8(MODE, (d + 64))
#define WGMMA_SUMS_88(MODE, d) WGMMA_SUMS_64(MODE, d), WGMMA_SUMS_24(MODE, (d + 64))
#define WGMMA_SUMS_104(MODE, d) WGMMA_SUMS_96(MODE, d), WGMMA_SUMS_8(MODE, (d + 96))
#define WGMMA_SUMS_120(MODE, d) WGMMA_SUMS_96(MODE, d), WGMMA_SUMS_24(MODE, (d + 96))
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
WGMMA_SHAPE(144, 72, "%72", "%73")
WGMMA_SHAPE(176, 88, "%88", "%89")
WGMMA_SHAPE(208, 104, "%104", "%105")
WGMMA_SHAPE(240, 120, "%120", "%121")
#undef WGMMA_SHAPE
#undef WGMMA_ADD
