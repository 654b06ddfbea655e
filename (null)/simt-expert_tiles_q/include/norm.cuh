// norm.cuh - root-mean-square norm and layer norm of each row.
//
//   y[m,:] = g * x[m,:] / rms(x[m,:]), with RES plus r[m,:]        Zhang & Sennrich 2019, eq. 4
//   y[m,:] = g * (x[m,:] - mean) / sqrt(var + eps) + c             Ba et al. 2016
//
//   x, r [M, C]  row-major      g, c [C] fp32      y [M, C]  may alias x or r
//
// LANES threads compute one row, a warp or a whole block, and keep it in registers, so x is read once. Sums are in
// fp32, the variance around the mean. Memory bound; with a warp for each row there is no barrier.
#pragma once
#include "device/block.cuh"
#include "device/pdl.cuh"
#include "body/norm.cuh"
#include "body/rows.cuh"

struct NormArgs {
    const void *x;
    const float *g, *c;
    const void *r;
    const FtxStep *step;
    void *y;
};

template <class K> DEVICE void norm(const NormArgs &a)
{
    typedef typename K::T T;
    constexpr int VEC = vec_width<T>(K::C), STEP = VEC * K::LANES; // elements that all lanes of a row load at once
    constexpr int N = ceil_div(K::C, STEP);
    static_assert(K::LANES == 32 || K::LANES == K::THREADS, "a warp or a block");
    constexpr bool AHEAD = N * VEC <= 32; // gains and biases fit registers: they are loaded while the previous kernel runs
    SHARED(float, room, 72);
    launch_dependents();
    const int row = blockIdx.x * (K::THREADS / K::LANES) + threadIdx.x / K::LANES, lane = threadIdx.x % K::LANES;
    Vec<float, VEC> g[N], c[N];
#pragma unroll
    for (int i = 0; i < N && AHEAD; i++) {
        const int at = i * STEP + lane * VEC;
        if (at < K::C) {
            g[i] = load<VEC>(a.g + at);
            if (K::NORM == 2)
                c[i] = load<VEC>(a.c + at);
        }
    }
    const bool live = row < live_rows<K::ROWS_S>(a.step); // no kernel of a program writes a.step
    wait_for_previous();
    if (!live)
        return;
    const T *x = (const T *)a.x + (i64)row * K::C;
    typename K::OUT *y = (typename K::OUT *)a.y + (i64)row * K::C;

    Vec<T, VEC> v[N], r[N];
    float s = 0.0f;
#pragma unroll
    for (int i = 0; i < N; i++)
        v[i] = i * STEP + lane * VEC < K::C ? load<VEC>(x + i * STEP + lane * VEC) : zeros<T, VEC>();
#pragma unroll
    for (int i = 0; i < N && K::RES; i++)
        if (i * STEP + lane * VEC < K::C)
            r[i] = load<VEC>((const T *)a.r + (i64)row * K::C + i * STEP + lane * VEC);
#pragma unroll
    for (int i = 0; i < N; i++)
        s = K::NORM == 2 ? add_sum(s, v[i]) : add_squares(s, v[i], 0.0f);
    RowStat stat = {0.0f, 1.0f};
    s = K::LANES == 32 ? stat_tree(s) : block_sum<K::THREADS>(s, room);
    if (K::NORM == 2) {
        stat.mean = s / K::C;
        s = 0.0f;
#pragma unroll
        for (int i = 0; i < N; i++)
            if (i * STEP + lane * VEC < K::C)
                s = add_squares(s, v[i], stat.mean);
        s = K::LANES == 32 ? stat_tree(s) : block_sum<K::THREADS>(s, room + 36);
    }
    stat.scale = rms_scale<K::C>(s, K::EPS);
#pragma unroll
    for (int i = 0; i < N; i++) {
        const int at = i * STEP + lane * VEC;
        if (at >= K::C)
            break;
        if (!AHEAD) {
            g[i] = load<VEC>(a.g + at);
            if (K::NORM == 2)
                c[i] = load<VEC>(a.c + at);
        }
        Vec<float, VEC> f;
#pragma unroll
        for (int k = 0; k < VEC; k++)
            f[k] = K::NORM == 2 ? norm_apply(to_float(v[i][k]), stat, g[i][k], c[i][k]) : to_float(v[i][k]) * stat.scale * g[i][k];
#pragma unroll
        for (int k = 0; k < VEC && K::RES; k++)
            f[k] += to_float(r[i][k]);
        store(y + at, from_floats<typename K::OUT>(f));
    }
}
