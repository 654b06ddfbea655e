// experts.cuh - what the linear layers of experts share: arguments, tiles, outputs.
//
//   expert_linear   y[m, i*N + n] = epilogue(x[m,:] . w[e,n,:] + b[e,n])             e: expert i of row m
//   expert_sum      y[m,n] = sum over i of weight * (x[m, i*K:] . w[e,n,:] + b[e,n]) + r[m,n]
//
//   x [M, K] or [M, R*K], w [X*N, K]   one type, row-major      b [X*N] fp32, r and y [M, N]
//   routes [M, 2R], starts [X + 1], rows [M*R]: the form by_expert of routes (compiler/ir/forms.def). Pair m * R + i is
//   row m with its expert i
#pragma once
#include "device/fragment.cuh"
#include "device/vec.cuh"
#include "device/warp.cuh"
#include "body/act.cuh"

struct ExpertArgs {
    const void *x;
    const int *routes, *starts, *rows;
    const void *w;
    const float *b;
    const void *r;
    void *y;
};
struct ExpertSumArgs : ExpertArgs {
    float *parts; // [M*R, N]
    u32 *arrived; // [M, groups of COLUMNS columns]
};

// Some pairs of one expert: rows[first] and the count - 1 behind it.
struct ExpertTile { int expert, first, count; };

// Tiles of all pairs: an expert's are cut into as few of at most MOST as can be, all but the last of one size. A warp walks
// through them with the experts' numbers in its lanes: at(tile) is called by the lane that has it.
template <int X, int MOST, class F> DEVICE int for_expert_tiles(const int *starts, F at)
{
    constexpr int GROUPS = ceil_div(X, 32), AT_ONCE = least(GROUPS, 8); // of 32 experts; loads under way
    int all = 0;
    for (int first = 0; first < GROUPS; first += AT_ONCE) {
        int begin[AT_ONCE], end[AT_ONCE];
#pragma unroll
        for (int j = 0; j < AT_ONCE; j++) {
            begin[j] = starts[least((first + j) * 32 + lane_id(), X)];
            end[j] = starts[least((first + j) * 32 + lane_id() + 1, X)];
        }
#pragma unroll
        for (int j = 0; j < AT_ONCE; j++) {
            const int pairs = end[j] - begin[j], tiles = ceil_div(pairs, MOST), each = ceil_div(pairs, most(tiles, 1));
            const int before = all + warp_prefix_sum(tiles) - tiles;
            for (int i = 0; i < tiles; i++)
                at(before + i, ExpertTile{(first + j) * 32 + lane_id(), begin[j] + i * each, least(each, pairs - i * each)});
            all = shuffle(before + tiles, 31);
        }
    }
    return all;
}

// The weight of a pair's expert.
template <class C> DEVICE float expert_weight(const ExpertArgs &a, int pair)
{
    return __uint_as_float((u32)a.routes[(i64)(pair / C::R) * 2 * C::R + C::R + pair % C::R]);
}

// Finishes column n of a pair, and with GLU the next one.
template <class C, class A> DEVICE void expert_out(const A &a, int e, int pair, int n, float v0, float v1)
{
    typedef typename C::T T;
    if (C::BIAS) {
        v0 += a.b[e * C::N + n];
        if (C::GLU)
            v1 += a.b[e * C::N + n + 1];
    }
    if constexpr (C::SUM)
        a.parts[(i64)pair * C::N + n] = expert_weight<C>(a, pair) * v0;
    else if constexpr (C::GLU)
        ((T *)a.y)[(i64)pair * (C::N / 2) + n / 2] = from_float<T>(activate<C::ACT>(v0) * v1);
    else
        ((T *)a.y)[(i64)pair * C::N + n] = from_float<T>(activate<C::ACT>(v0));
}

// Finishes columns n, n + 1 of a pair; weight: of expert_sum.
template <class C, class A> DEVICE void expert_out2(const A &a, int expert, int pair, float weight, int n, float v0, float v1)
{
    typedef typename C::T T;
    if (C::BIAS) {
        v0 += a.b[expert * C::N + n];
        v1 += a.b[expert * C::N + n + 1];
    }
    if constexpr (C::SUM) {
        Vec<float, 2> v;
        v[0] = weight * v0;
        v[1] = weight * v1;
        store(a.parts + (i64)pair * C::N + n, v);
    } else if constexpr (C::GLU) {
        ((T *)a.y)[(i64)pair * (C::N / 2) + n / 2] = from_float<T>(activate<C::ACT>(v0) * v1);
    } else {
        Vec<float, 2> v;
        v[0] = activate<C::ACT>(v0);
        v[1] = activate<C::ACT>(v1);
        store((T *)a.y + (i64)pair * C::N + n, from_floats<T>(v));
    }
}
