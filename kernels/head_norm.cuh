// head_norm.cuh - root-mean-square norm and layer norm of each head of a token, as norm.cuh of each row; with MUL the product of
// the norm and another value.
//
//   x, y, z [T, H, E]    g, c [E] fp32, or [H, E] where each head has its own (OWN_G, OWN_C); c NULL with NORM = 1
//
// A warp takes one head; it reads it twice, the second time from the cache. z is on its way meanwhile. Memory bound.
#pragma once
#include "device/io.h"
#include "device/pdl.cuh"
#include "body/norm.cuh"

struct HeadNormArgs {
    const void *x;
    const float *g, *c, *own_g, *own_c;
    const void *z;
    const FtxStep *step;
    void *y;
};

template <class K> DEVICE void head_norm(const HeadNormArgs &a)
{
    typedef typename K::T T;
    constexpr int VEC = vec_width<T>(K::E);
    launch_dependents();
    wait_for_previous();
    const int at = blockIdx.x * (K::THREADS / 32) + warp_id(), head = at % K::H;
    if (at >= a.step->tokens * K::H)
        return;
    const T *x = (const T *)a.x + (i64)at * K::E;
    T *y = (T *)a.y + (i64)at * K::E;
    const float *g = K::OWN_G ? a.own_g + head * K::E : a.g, *c = K::OWN_C ? a.own_c + head * K::E : a.c;
    const T *z = (const T *)a.z + (i64)at * K::E;
    Vec<T, VEC> by; // of a head of up to 32 * VEC elements all that the lane needs of z
    if (K::MUL && lane_id() * VEC < K::E)
        by = load<VEC>(z + lane_id() * VEC);
    const RowStat stat = row_stat<K::NORM, K::E>(x, K::EPS);
    for (int e = lane_id() * VEC; e < K::E; e += 32 * VEC) {
        Vec<float, VEC> f = to_floats(load<VEC>(x + e));
        if (K::MUL && e >= 32 * VEC)
            by = load<VEC>(z + e);
        const Vec<float, VEC> gain = load<VEC>(g + e), shift = K::NORM == 2 ? load<VEC>(c + e) : zeros<float, VEC>();
#pragma unroll
        for (int i = 0; i < VEC; i++) {
            f[i] = K::NORM == 2 ? norm_apply(f[i], stat, gain[i], shift[i]) : f[i] * stat.scale * gain[i];
            if constexpr (K::MUL)
                f[i] *= to_float(by[i]);
        }
        store(y + e, from_floats<T>(f));
    }
}
