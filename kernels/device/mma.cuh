// mma.cuh - mma.sync.m16n8k16: D[16,8] += A[16,16] * B[8,16]^T by one warp, 16-bit inputs, fp32 sums.
//
// Lane 4g+t holds      a[0] A[g][2t,2t+1]     a[1] A[g+8][2t,2t+1]
//                      a[2] A[g][2t+8,2t+9]   a[3] A[g+8][2t+8,2t+9]
//                      b[0] B[g][2t,2t+1]     b[1] B[g][2t+8,2t+9]
//                      d[0,1] D[g][2t,2t+1]   d[2,3] D[g+8][2t,2t+1]
// A and B may have their k in any order, if it is the same one.
#pragma once
#include "device/types.cuh"

template <class T> DEVICE void mma(float (&d)[4], u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1);
template <> DEVICE void mma<bf16>(float (&d)[4], u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1)
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}
template <> DEVICE void mma<half>(float (&d)[4], u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1)
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}
template <class T> DEVICE void mma(float (&d)[4], const u32 (&a)[4], const u32 (&b)[2])
{
    mma<T>(d, a[0], a[1], a[2], a[3], b[0], b[1]);
}

// mma.sync.m16n8k32 and .m16n8k16 of bytes: the first operand without sign, the second with; sums of 32 bits. Lane 4g+t holds
// a[0] A[g][4t..4t+3], a[1] A[g+8][4t..], a[2], a[3] those 16 k further on; b[0] B[g][4t..], b[1] 16 k further on; d as above.
DEVICE void mma_codes(int (&d)[4], const u32 (&a)[4], u32 b0, u32 b1)
{
    asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
DEVICE void mma_codes(int (&d)[4], u32 a0, u32 a1, u32 b0)
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.s32.u8.s8.s32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"
                 : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
                 : "r"(a0), "r"(a1), "r"(b0));
}

// ldmatrix: 2 or 4 matrices of 8x8 16-bit elements from shared memory. Lane i passes the address of row i%8 of matrix
// i/8 (16 bytes, aligned); lane 4g+t gets elements 2t, 2t+1 of row g of each.
DEVICE void ldmatrix2(u32 (&r)[2], u32 row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0,%1}, [%2];" : "=r"(r[0]), "=r"(r[1]) : "r"(row) : "memory");
}
DEVICE void ldmatrix4(u32 (&r)[4], u32 row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(row) : "memory");
}
// ldmatrix.trans: the same, each matrix transposed: lane 4g+t gets rows 2t, 2t+1 of column g.
DEVICE void ldmatrix2_trans(u32 (&r)[2], u32 row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0,%1}, [%2];" : "=r"(r[0]), "=r"(r[1]) : "r"(row) : "memory");
}
DEVICE void ldmatrix4_trans(u32 (&r)[4], u32 row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(row) : "memory");
}
// stmatrix (sm_90): the reverse of ldmatrix4; lane i passes the address of row i%8 of matrix i/8.
DEVICE void stmatrix4(u32 row, const u32 (&r)[4])
{
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1,%2,%3,%4};" ::"r"(row), "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3]) : "memory");
#endif
}
