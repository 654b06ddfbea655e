// pool_mean.cuh - the mean of each sequence's tokens:  y[s,:] = sum over the tokens t of row s of x[t,:] / q_len
//
//   x [T, C]     y [S, C]
//
// A block takes one sequence and THREADS vectors of its columns. Summed in fp32, tokens in order; texts are short, so
// the sum is not split.
#pragma once
#include "device/io.h"
#include "device/pdl.cuh"
#include "device/vec.cuh"

struct PoolMeanArgs {
    const void *x;
    const FtxStep *step;
    const FtxRow *rows;
    void *y;
};

template <class K> DEVICE void pool_mean(const PoolMeanArgs &a)
{
    typedef typename K::T T;
    typedef typename K::OUT O;
    constexpr int VEC = vec_width<T>(K::C);
    launch_dependents();
    wait_for_previous();
    const int s = blockIdx.x, v = blockIdx.y * K::THREADS + threadIdx.x;
    if (s >= a.step->rows || v >= K::C / VEC)
        return;
    const FtxRow &row = a.rows[s];
    const T *x = (const T *)a.x + (i64)row.q_start * K::C + v * VEC;
    const int n = row.q_len;
    Vec<float, VEC> sum = zeros<float, VEC>();
#pragma unroll 8
    for (int t = 0; t < n; t++) {
        const Vec<float, VEC> f = to_floats(load<VEC>(x + (i64)t * K::C));
#pragma unroll
        for (int i = 0; i < VEC; i++)
            sum[i] += f[i];
    }
#pragma unroll
    for (int i = 0; i < VEC; i++)
        sum[i] /= (float)n;
    store((O *)a.y + (i64)s * K::C + v * VEC, from_floats<O>(sum));
}
