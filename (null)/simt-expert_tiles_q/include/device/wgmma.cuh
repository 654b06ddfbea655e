// wgmma.cuh - the matrix units of a warpgroup on the host. Each warp has 16 rows of its own, so warps run
// apart; a descriptor holds base (24 bits), rows from 64 columns to the next (in eights, 8 bits), row and place along k.
#pragma once
#include "device/types.cuh"

DEVICE u64 wgmma_descriptor(u32 base, int row, int k16) { return (u64)k16 << 48 | (u64)row << 32 | base; }
DEVICE u64 wgmma_descriptor_n_major(u32 base, int rows) { return (u64)(rows / 8) << 24 | base; }
DEVICE u64 wgmma_descriptor_at(u64 descriptor, int rows, int k16) { return descriptor + ((u64)k16 << 48) + ((u64)rows << 32); }
DEVICE void wgmma_fence() { simt_wgmma_fence(); }
DEVICE void wgmma_commit() { simt_wgmma_commit(); }
template <int PENDING> DEVICE void wgmma_wait() { simt_wgmma_wait(PENDING); }
template <int N> DEVICE void wgmma_complete(float (&)[N]) {}
template <int N, class T> struct Wgmma {
    static DEVICE void add(float *d, u64 a, u64 b) { simt_wgmma_shared(Same<T, bf16>::value, N, d, a, b); }
    static DEVICE void set(float *d, u64 a, u64 b)
    {
        for (int i = 0; i < N / 2; i++)
            d[i] = 0.0f;
        simt_wgmma_shared(Same<T, bf16>::value, N, d, a, b);
    }
    static DEVICE void add(float *d, const u32 (&a)[4], u64 b) { simt_wgmma(Same<T, bf16>::value, N, d, a, b); }
    static DEVICE void add_n_major(float *d, const u32 (&a)[4], u64 b) { simt_wgmma_n_major(Same<T, bf16>::value, N, d, a, b); }
};
