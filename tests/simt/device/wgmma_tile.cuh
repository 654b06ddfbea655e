// wgmma_tile.cuh - products with both operands in shared memory, on the host.
#pragma once
#include "device/wgmma.cuh"

DEVICE u64 wgmma_further(u64 operand, int rows, int k16) { return operand + ((u64)k16 << 48) + ((u64)rows << 32); }
template <int N, class T> struct WgmmaTile {
    static DEVICE void add(float (&d)[N / 2], u64 a, u64 b) { simt_wgmma_tile(Same<T, bf16>::value, N, d, a, b); }
    static DEVICE void set(float (&d)[N / 2], u64 a, u64 b)
    {
        for (int i = 0; i < N / 2; i++)
            d[i] = 0.0f;
        simt_wgmma_tile(Same<T, bf16>::value, N, d, a, b);
    }
};
