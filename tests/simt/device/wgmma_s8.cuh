// wgmma_s8.cuh - products of a warpgroup with integers of 8 bits on the host.
#pragma once
#include "device/wgmma.cuh"

template <int N> struct WgmmaS8 {
    static DEVICE void add(int *d, const u32 (&a)[4], u64 b) { simt_wgmma_s8(N, d, a, b); }
    static DEVICE void set(int *d, const u32 (&a)[4], u64 b)
    {
        for (int i = 0; i < N / 2; i++)
            d[i] = 0;
        simt_wgmma_s8(N, d, a, b);
    }
};
