// wgmma.cuh - the matrix units of sm_90a, driven by a warpgroup (4 warps, the first a multiple of
// 4): D[64, n] += A[64, 16] * B[n, 16]^T, 16-bit inputs, fp32 sums, running beside the program.
//
// A comes from registers, B from shared memory. Warp w of the group has the rows 16w .. 16w + 15 of
// A and D; its lanes hold them as in mma.cuh (d[4j..4j+3]: columns 8j .. 8j + 7).
// B: row r has 64 k, 128 bytes, at r * 128 from a base that is 1024-byte aligned; unit u (16 bytes)
// stands at u ^ (r & 7). Four products of 16 k walk through it.
//
// wgmma_fence, products, wgmma_commit, wgmma_wait; until the wait neither d nor a may be touched,
// nor the rows of B be overwritten.
#pragma once
#include "device/types.cuh"

// Where rows `row` .. of B at shared address `base` and their k16-th 16 k stand (row % 8 == 0).
DEVICE u64 wgmma_operand(u32 base, int row, int k16)
{
    const u32 at = base + row * 128 + k16 * 32;
    return (u64)1 << 62 | (u64)(1024 >> 4) << 32 | (u64)1 << 16 | (at & 0x3ffff) >> 4;
}

// What this warp wrote to registers before is seen by the products that follow.
DEVICE void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
DEVICE void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
// Until at most PENDING committed groups are under way.
template <int PENDING> DEVICE void wgmma_wait() { asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING) : "memory"); }
// After a wait that leaves others under way: what reads these sums stays behind it.
template <int N> DEVICE void wgmma_take(float (&d)[N])
{
#pragma unroll
    for (int i = 0; i < N; i++)
        asm volatile("" : "+f"(d[i])::"memory");
}

// The sums of a product in its text, and in the list behind it: of d, which a lane holds.
#define WGMMA_NAMES_8 "%0,%1,%2,%3,%4,%5,%6,%7"
#define WGMMA_NAMES_16 "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15"
#define WGMMA_NAMES_32 WGMMA_NAMES_16 ",%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31"
#define WGMMA_NAMES_24 WGMMA_NAMES_16 ",%16,%17,%18,%19,%20,%21,%22,%23"
#define WGMMA_NAMES_48 WGMMA_NAMES_32 ",%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47"
#define WGMMA_NAMES_56 WGMMA_NAMES_48 ",%48,%49,%50,%51,%52,%53,%54,%55"
#define WGMMA_NAMES_64 WGMMA_NAMES_56 ",%56,%57,%58,%59,%60,%61,%62,%63"
#define WGMMA_NAMES_128 WGMMA_NAMES_64 ",%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79" \
    ",%80,%81,%82,%83,%84,%85,%86,%87,%88,%89,%90,%91,%92,%93,%94,%95,%96,%97,%98,%99,%100,%101,%102,%103" \
    ",%104,%105,%106,%107,%108,%109,%110,%111,%112,%113,%114,%115,%116,%117,%118,%119,%120,%121,%122,%123,%124,%125,%126,%127"
#define WGMMA_EIGHT(d, i) \
    "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]), "+f"(d[i + 7])
#define WGMMA_SUMS_8(d) WGMMA_EIGHT(d, 0)
#define WGMMA_SUMS_16(d) WGMMA_EIGHT(d, 0), WGMMA_EIGHT(d, 8)
#define WGMMA_SUMS_32(d) WGMMA_SUMS_16(d), WGMMA_EIGHT(d, 16), WGMMA_EIGHT(d, 24)
#define WGMMA_SUMS_24(d) WGMMA_SUMS_16(d), WGMMA_EIGHT(d, 16)
#define WGMMA_SUMS_48(d) WGMMA_SUMS_32(d), WGMMA_EIGHT(d, 32), WGMMA_EIGHT(d, 40)
#define WGMMA_SUMS_56(d) WGMMA_SUMS_48(d), WGMMA_EIGHT(d, 48)
#define WGMMA_SUMS_64(d) WGMMA_SUMS_56(d), WGMMA_EIGHT(d, 56)
#define WGMMA_SUMS_128(d) WGMMA_SUMS_64(d), WGMMA_SUMS_64((d + 64))

// n = 32 and 64, with 16 and 32 sums a lane: wgmma32<bf16>(d, a, b), ...
template <class T> DEVICE void wgmma32(float *d, const u32 (&a)[4], u64 b);
template <class T> DEVICE void wgmma64(float *d, const u32 (&a)[4], u64 b);
#define WGMMA_ROWS(N, SUMS, TYPE, NAME, A, B) \
    template <> DEVICE void wgmma##N<TYPE>(float *d, const u32 (&a)[4], u64 b) \
    { \
        asm volatile("{.reg .pred add; setp.eq.u32 add, 0, 0; wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." NAME "." NAME \
                     " {" WGMMA_NAMES_##SUMS "}, {" A "}, " B ", add, 1, 1, 0;}" \
                     : WGMMA_SUMS_##SUMS(d) \
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b)); \
    }
WGMMA_ROWS(32, 16, bf16, "bf16", "%16,%17,%18,%19", "%20")
WGMMA_ROWS(32, 16, half, "f16", "%16,%17,%18,%19", "%20")
WGMMA_ROWS(64, 32, bf16, "bf16", "%32,%33,%34,%35", "%36")
WGMMA_ROWS(64, 32, half, "f16", "%32,%33,%34,%35", "%36")
#undef WGMMA_ROWS

// The same with B [16, N], its rows the k: row r has N of 64 columns, 128 bytes, where the rows of a B above have 64 k.
// wgmma_operand names 16 rows by the first. N / 2 sums a lane.
template <int N, class T> struct WgmmaAcross;
#define WGMMA_ACROSS(N, SUMS, TYPE, NAME, A, B) \
    template <> struct WgmmaAcross<N, TYPE> { \
        static DEVICE void add(float *d, const u32 (&a)[4], u64 b) \
        { \
            asm volatile("{.reg .pred add; setp.eq.u32 add, 0, 0; wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." NAME "." NAME \
                         " {" WGMMA_NAMES_##SUMS "}, {" A "}, " B ", add, 1, 1, 1;}" \
                         : WGMMA_SUMS_##SUMS(d) \
                         : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b)); \
        } \
    };
#define WGMMA_ACROSS_OF(N, SUMS, A, B) \
    WGMMA_ACROSS(N, SUMS, bf16, "bf16", A, B) \
    WGMMA_ACROSS(N, SUMS, half, "f16", A, B)
WGMMA_ACROSS_OF(16, 8, "%8,%9,%10,%11", "%12")
WGMMA_ACROSS_OF(32, 16, "%16,%17,%18,%19", "%20")
WGMMA_ACROSS_OF(48, 24, "%24,%25,%26,%27", "%28")
WGMMA_ACROSS_OF(64, 32, "%32,%33,%34,%35", "%36")
#undef WGMMA_ACROSS_OF
#undef WGMMA_ACROSS
