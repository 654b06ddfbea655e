// wgmma.cuh - the matrix units of a warpgroup on the host. Each warp has 16 rows of its own, so warps run
// apart; B is named by its base, row and place along k.
#pragma once
#include "device/types.cuh"

DEVICE u64 wgmma_operand(u32 base, int row, int k16) { return (u64)k16 << 48 | (u64)row << 32 | base; }
DEVICE void wgmma_fence() { simt_wgmma_fence(); }
DEVICE void wgmma_commit() { simt_wgmma_commit(); }
template <int PENDING> DEVICE void wgmma_wait() { simt_wgmma_wait(PENDING); }
template <int N> DEVICE void wgmma_take(float (&)[N]) {}
template <class T> DEVICE void wgmma32(float *d, const u32 (&a)[4], u64 b) { simt_wgmma(Same<T, bf16>::value, 32, d, a, b); }
template <class T> DEVICE void wgmma64(float *d, const u32 (&a)[4], u64 b) { simt_wgmma(Same<T, bf16>::value, 64, d, a, b); }
template <int N, class T> struct WgmmaAcross {
    static DEVICE void add(float *d, const u32 (&a)[4], u64 b) { simt_wgmma_across(Same<T, bf16>::value, N, d, a, b); }
};
