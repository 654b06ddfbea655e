// norm.cuh - root-mean-square norm and layer norm of each row.
//
//   y[t,:] = g * x[t,:] / rms(x[t,:])                              Zhang & Sennrich 2019, eq. 4
//   y[t,:] = g * (x[t,:] - mean) / sqrt(var + eps) + c             Ba et al. 2016
//
//   x [rows, C]      g, c [C] fp32      y [rows, C] may alias x
//
// One block takes one row and keeps it in registers, so x is read once. Sums in fp32, the variance
// around the mean. Memory bound.
#pragma once
#include "device/block.cuh"
#include "device/pdl.cuh"
#include "part/norm.cuh"
#include "part/rows.cuh"

struct NormArgs {
    const void *x;
    const float *g, *c;
    const FtxStep *step;
    void *y;
};

template <class K> DEVICE void norm(const NormArgs &a)
{
    typedef typename K::T T;
    constexpr int VEC = vec_width<T>(K::C), STEP = VEC * K::THREADS;  // elements read at once
    constexpr int N = ceil_div(K::C, STEP);
    SHARED(float, room, 72);
    launch_dependents();
    wait_for_previous();
    if ((int)blockIdx.x >= live_rows<K::ROWS_S>(a.step))
        return;
    const T *x = (const T *)a.x + (i64)blockIdx.x * K::C;
    typename K::OUT *y = (typename K::OUT *)a.y + (i64)blockIdx.x * K::C;

    Vec<T, VEC> v[N];
    float s = 0.0f;
#pragma unroll
    for (int i = 0; i < N; i++) {
        const int at = i * STEP + threadIdx.x * VEC;
        v[i] = load_up_to<VEC>(x + at, K::C - at);  // zeros past the end of the row
        s = K::NORM == 2 ? add_sum(s, v[i]) : add_squares(s, v[i], 0.0f);
    }
    RowStat stat = {0.0f, 1.0f};
    s = block_sum<K::THREADS>(s, room);
    if (K::NORM == 2) {
        stat.mean = s / K::C;
        s = 0.0f;
#pragma unroll
        for (int i = 0; i < N; i++)
            if (i * STEP + (int)threadIdx.x * VEC < K::C)
                s = add_squares(s, v[i], stat.mean);
        s = block_sum<K::THREADS>(s, room + 36);
    }
    stat.scale = rms_scale<K::C>(s, K::EPS);
#pragma unroll
    for (int i = 0; i < N; i++) {
        const int at = i * STEP + threadIdx.x * VEC;
        if (at >= K::C)
            break;
        const Vec<float, VEC> g = load<VEC>(a.g + at);
        Vec<float, VEC> f;
#pragma unroll
        for (int k = 0; k < VEC; k++)
            f[k] = K::NORM == 2 ? norm_apply(to_float(v[i][k]), stat, g[k], a.c[at + k]) : to_float(v[i][k]) * stat.scale * g[k];
        store(y + at, from_floats<typename K::OUT>(f));
    }
}
