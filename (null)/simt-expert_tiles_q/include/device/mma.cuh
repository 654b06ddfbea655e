// mma.cuh - the matrix units on the host; fragments as kernels/device/mma.cuh draws them.
#pragma once
#include "device/types.cuh"

template <class T> DEVICE void mma(float (&d)[4], u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1)
{
    const u32 a[4] = {a0, a1, a2, a3}, b[2] = {b0, b1};
    simt_mma(Same<T, bf16>::value, d, a, b);
}
template <class T> DEVICE void mma(float (&d)[4], const u32 (&a)[4], const u32 (&b)[2]) { simt_mma(Same<T, bf16>::value, d, a, b); }

DEVICE void mma_codes(int (&d)[4], const u32 (&a)[4], u32 b0, u32 b1)
{
    const u32 b[2] = {b0, b1};
    simt_mma_codes(32, d, a, b);
}
DEVICE void mma_codes(int (&d)[4], u32 a0, u32 a1, u32 b0)
{
    const u32 a[4] = {a0, a1, 0, 0}, b[2] = {b0, 0};
    simt_mma_codes(16, d, a, b);
}

DEVICE void ldmatrix2(u32 (&r)[2], u32 row) { simt_ldmatrix(r, 2, 0, row); }
DEVICE void ldmatrix4(u32 (&r)[4], u32 row) { simt_ldmatrix(r, 4, 0, row); }
DEVICE void ldmatrix2_trans(u32 (&r)[2], u32 row) { simt_ldmatrix(r, 2, 1, row); }
DEVICE void ldmatrix4_trans(u32 (&r)[4], u32 row) { simt_ldmatrix(r, 4, 1, row); }

DEVICE void stmatrix4(u32 row, const u32 (&r)[4])
{
    const u32 lane = simt_thread_index().x % 32;
    for (int i = 0; i < 4; i++) {
        u32 to = row;
        simt_shuffle(SIMT_INDEX, &to, sizeof to, i * 8 + lane / 4);
        simt_shared_store(to + lane % 4 * 4, &r[i], 4);
    }
}
