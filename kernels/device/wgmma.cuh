// wgmma.cuh - wgmma.mma_async (sm_90a): D[64, N] += A[64, 16] * B[N, 16]^T by a warpgroup, asynchronously; 16-bit
// inputs, fp32 sums.
//
// A warpgroup is 4 warps, the first a multiple of 4. Warp w has rows 16w .. 16w + 15 of D, and of A where A is in
// registers; its lanes hold them as in mma.cuh (d[4j .. 4j + 3]: columns 8j .. 8j + 7), N / 2 sums a lane.
//
// B, and A where it is in shared memory, are K-major with the 128-byte swizzle: row r has 64 k, 128 bytes, at r * 128
// from a base that is 1024-byte aligned; unit u (16 bytes) of a row stands at u ^ (r & 7). Four products of 16 k walk
// through the 64.
//
//   wgmma_fence        before the first product: registers and shared memory are ready
//   Wgmma<N, T>::add   any number of products
//   wgmma_commit       they are one group
//   wgmma_wait<P>      until at most P groups are incomplete
//
// Until the wait nothing may touch d or a, or overwrite A or B in shared memory. What ordinary stores or cp.async wrote
// there needs async_proxy_fence before. PTX ISA, "Asynchronous warpgroup level matrix instructions".
#pragma once
#include "device/types.cuh"

// The matrix descriptor of the rows from `row` (a multiple of 8) of the matrix at shared address `base`, from their
// k16-th 16 k on. Fields: bits 0..13 address / 16; 16..29 leading dimension offset, not used by this layout, 1;
// 32..45 stride from 8 rows to the next 8, 1024 bytes / 16; 62..63 the 128-byte swizzle, 1.
DEVICE u64 wgmma_descriptor(u32 base, int row, int k16)
{
    const u32 at = base + row * 128 + k16 * 32;
    return (u64)1 << 62 | (u64)(1024 >> 4) << 32 | (u64)1 << 16 | (at & 0x3ffff) >> 4;
}
// The same for an N-major B of more than 64 columns: the next 64 columns begin `rows` rows further on (the leading
// dimension offset, rows * 128 bytes / 16).
DEVICE u64 wgmma_descriptor_n_major(u32 base, int rows)
{
    return (u64)1 << 62 | (u64)(1024 >> 4) << 32 | (u64)(rows * 8) << 16 | (base & 0x3ffff) >> 4;
}
// The descriptor `rows` rows (a multiple of 8) and k16 times 16 k further on: one addition.
DEVICE u64 wgmma_descriptor_at(u64 descriptor, int rows, int k16)
{
    return descriptor & 0xffffffff00000000ull | ((u32)descriptor + rows * 8 + k16 * 2);
}

// wgmma.fence: orders this warp's earlier accesses to d and a with the products that follow.
DEVICE void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
// wgmma.commit_group: the products since the last commit become one group.
DEVICE void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
// wgmma.wait_group: waits until at most the PENDING newest groups are incomplete.
template <int PENDING> DEVICE void wgmma_wait() { asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING) : "memory"); }
// No instruction: after a wait that leaves newer groups incomplete, the compiler may not move reads of these sums
// before it.
template <int N> DEVICE void wgmma_complete(float (&d)[N])
{
#pragma unroll
    for (int i = 0; i < N; i++)
        asm volatile("" : "+f"(d[i])::"memory");
}

// Products of N columns; d: the N / 2 sums of a lane.
template <int N, class T> struct Wgmma;
//   add(d, u64 a, u64 b)             D += A * B^T, descriptors of A and B
//   set(d, u64 a, u64 b)             D = A * B^T
//   add(d, u32 a[4], u64 b)          D += A * B^T, A in registers
//   add_n_major(d, u32 a[4], u64 b)  D += A * B with B [16, N], N-major: a row is one k and has 64 of the columns

// The sums in the text of an instruction, and as its operands; MODE: "+" adds to them, "=" sets them.
#define WGMMA_NAMES_8 "%0,%1,%2,%3,%4,%5,%6,%7"
#define WGMMA_NAMES_16 WGMMA_NAMES_8 ",%8,%9,%10,%11,%12,%13,%14,%15"
#define WGMMA_NAMES_24 WGMMA_NAMES_16 ",%16,%17,%18,%19,%20,%21,%22,%23"
#define WGMMA_NAMES_32 WGMMA_NAMES_24 ",%24,%25,%26,%27,%28,%29,%30,%31"
#define WGMMA_NAMES_48 WGMMA_NAMES_32 ",%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47"
#define WGMMA_NAMES_56 WGMMA_NAMES_48 ",%48,%49,%50,%51,%52,%53,%54,%55"
#define WGMMA_NAMES_64 WGMMA_NAMES_56 ",%56,%57,%58,%59,%60,%61,%62,%63"
#define WGMMA_NAMES_128 WGMMA_NAMES_64 ",%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79" \
    ",%80,%81,%82,%83,%84,%85,%86,%87,%88,%89,%90,%91,%92,%93,%94,%95,%96,%97,%98,%99,%100,%101,%102,%103" \
    ",%104,%105,%106,%107,%108,%109,%110,%111,%112,%113,%114,%115,%116,%117,%118,%119,%120,%121,%122,%123,%124,%125,%126,%127"
#define WGMMA_EIGHT(MODE, d, i) MODE "f"(d[i]), MODE "f"(d[i + 1]), MODE "f"(d[i + 2]), MODE "f"(d[i + 3]), \
    MODE "f"(d[i + 4]), MODE "f"(d[i + 5]), MODE "f"(d[i + 6]), MODE "f"(d[i + 7])
#define WGMMA_SUMS_8(MODE, d) WGMMA_EIGHT(MODE, d, 0)
#define WGMMA_SUMS_16(MODE, d) WGMMA_SUMS_8(MODE, d), WGMMA_EIGHT(MODE, d, 8)
#define WGMMA_SUMS_24(MODE, d) WGMMA_SUMS_16(MODE, d), WGMMA_EIGHT(MODE, d, 16)
#define WGMMA_SUMS_32(MODE, d) WGMMA_SUMS_24(MODE, d), WGMMA_EIGHT(MODE, d, 24)
#define WGMMA_SUMS_48(MODE, d) WGMMA_SUMS_32(MODE, d), WGMMA_EIGHT(MODE, d, 32), WGMMA_EIGHT(MODE, d, 40)
#define WGMMA_SUMS_56(MODE, d) WGMMA_SUMS_48(MODE, d), WGMMA_EIGHT(MODE, d, 48)
#define WGMMA_SUMS_64(MODE, d) WGMMA_SUMS_56(MODE, d), WGMMA_EIGHT(MODE, d, 56)
#define WGMMA_SUMS_128(MODE, d) WGMMA_SUMS_64(MODE, d), WGMMA_SUMS_64(MODE, (d + 64))

// One product. KEEP: eq adds to the sums, ne sets them. FLAGS: scales of A and B (1, 1), then for each operand in
// shared memory whether it is transposed.
#define WGMMA(N, SUMS, NAME, MODE, KEEP, A, B, FLAGS, ...) \
    asm volatile("{.reg .pred add; setp." KEEP ".u32 add, 0, 0; wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." NAME "." NAME \
                 " {" WGMMA_NAMES_##SUMS "}, " A ", " B ", add, " FLAGS ";}" \
                 : WGMMA_SUMS_##SUMS(MODE, d) \
                 : __VA_ARGS__)
#define WGMMA_OF(N, SUMS, TYPE, NAME, I0, I1, I2, I3, I4) \
    template <> struct Wgmma<N, TYPE> { \
        static DEVICE void add(float *d, u64 a, u64 b) { WGMMA(N, SUMS, NAME, "+", "eq", I0, I1, "1, 1, 0, 0", "l"(a), "l"(b)); } \
        static DEVICE void set(float *d, u64 a, u64 b) { WGMMA(N, SUMS, NAME, "=", "ne", I0, I1, "1, 1, 0, 0", "l"(a), "l"(b)); } \
        static DEVICE void add(float *d, const u32 (&a)[4], u64 b) \
        { \
            WGMMA(N, SUMS, NAME, "+", "eq", "{" I0 "," I1 "," I2 "," I3 "}", I4, "1, 1, 0", \
                  "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b)); \
        } \
        static DEVICE void add_n_major(float *d, const u32 (&a)[4], u64 b) \
        { \
            WGMMA(N, SUMS, NAME, "+", "eq", "{" I0 "," I1 "," I2 "," I3 "}", I4, "1, 1, 1", \
                  "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b)); \
        } \
    };
#define WGMMA_SHAPE(N, SUMS, ...) \
    WGMMA_OF(N, SUMS, bf16, "bf16", __VA_ARGS__) \
    WGMMA_OF(N, SUMS, half, "f16", __VA_ARGS__)

// Columns, sums of a lane, and the numbers of the operands behind the sums.
WGMMA_SHAPE(16, 8, "%8", "%9", "%10", "%11", "%12")
WGMMA_SHAPE(32, 16, "%16", "%17", "%18", "%19", "%20")
WGMMA_SHAPE(48, 24, "%24", "%25", "%26", "%27", "%28")
WGMMA_SHAPE(64, 32, "%32", "%33", "%34", "%35", "%36")
WGMMA_SHAPE(96, 48, "%48", "%49", "%50", "%51", "%52")
WGMMA_SHAPE(112, 56, "%56", "%57", "%58", "%59", "%60")
WGMMA_SHAPE(128, 64, "%64", "%65", "%66", "%67", "%68")
WGMMA_SHAPE(256, 128, "%128", "%129", "%130", "%131", "%132")
#undef WGMMA_SHAPE
#undef WGMMA_OF
#undef WGMMA
