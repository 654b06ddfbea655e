// neighbours.cuh - what a convolution over tokens multiplies:  y[t, c * COUNT + k] = x[t + FROM - 64 + k, c]
//
//   x [T, C]     y [T, C * COUNT]     blockIdx.x is the row; blocks along y share its columns. Memory bound.
//   Rows outside of the text are 0; with RING they are those of its other end.
#pragma once
#include "body/rows.cuh"
#include "device/pdl.cuh"
#include "device/vec.cuh"

struct NeighboursArgs {
    const void *x;
    const FtxStep *step;
    const FtxRow *rows;
    const FtxToken *token;
    void *y;
};

template <class K> DEVICE void neighbours(const NeighboursArgs &a) // K: T C FROM COUNT RING THREADS
{
    typedef typename K::T T;
    launch_dependents();
    wait_for_previous();
    const int t = blockIdx.x;
    if (t >= live_rows<0>(a.step))
        return;
    const FtxRow &row = a.rows[a.token[t].row];
    for (int i = blockIdx.y * K::THREADS + threadIdx.x; i < K::C * K::COUNT; i += gridDim.y * K::THREADS) {
        int at = t - row.q_start + K::FROM - 64 + i % K::COUNT;
        if (K::RING)
            at = (at % row.q_len + row.q_len) % row.q_len;
        const bool inside = at >= 0 && at < row.q_len;
        ((T *)a.y)[(i64)t * K::C * K::COUNT + i] =
            inside ? ((const T *)a.x)[(i64)(row.q_start + at) * K::C + i / K::COUNT] : from_float<T>(0.0f);
    }
}
