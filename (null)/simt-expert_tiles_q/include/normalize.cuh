// normalize.cuh - scales each row to length 1:  y[m,:] = x[m,:] / max(|x[m,:]|, EPS)
//
//   x, y [rows, C]     one block a row; sum of squares in fp32
#pragma once
#include "device/block.cuh"
#include "device/pdl.cuh"
#include "body/norm.cuh"
#include "body/rows.cuh"

struct NormalizeArgs {
    const void *x;
    const FtxStep *step;
    void *y;
};

template <class K> DEVICE void normalize(const NormalizeArgs &a)
{
    typedef typename K::T T;
    typedef typename K::OUT O;
    constexpr int VEC = vec_width<T>(K::C);
    SHARED(float, room, 36);
    launch_dependents();
    wait_for_previous();
    if ((int)blockIdx.x >= live_rows<K::ROWS_S>(a.step))
        return;
    const T *x = (const T *)a.x + (i64)blockIdx.x * K::C;
    O *y = (O *)a.y + (i64)blockIdx.x * K::C;
    float s = 0.0f;
    for (int v = threadIdx.x; v < K::C / VEC; v += K::THREADS)
        s = add_squares(s, load<VEC>(x + v * VEC), 0.0f);
    const float length = fmaxf(sqrtf(block_sum<K::THREADS>(s, room)), K::EPS);
    for (int v = threadIdx.x; v < K::C / VEC; v += K::THREADS) {
        Vec<float, VEC> f = to_floats(load<VEC>(x + v * VEC));
#pragma unroll
        for (int i = 0; i < VEC; i++)
            f[i] /= length;
        store(y + v * VEC, from_floats<O>(f));
    }
}
