// experts.cuh - linear layers of experts for few rows: each row with the matrices of the experts that it was routed to.
//
//   expert_linear   y[m, i*N + n] = epilogue(x[m,:] . w[e,n,:] + b[e,n])             e: expert i of row m
//   expert_sum      y[m,n] = sum over i of weight * (x[m, i*K:] . w[e,n,:] + b[e,n]) + r[m,n]
//
//   x [M, K] or [M, R*K], w [X*N, K]   one type, row-major      b [X*N] fp32, r and y [M, N]
//   routes [M, 2R], starts [X + 1], rows [M*R]: the form by_expert of routes (compiler/ir/forms.def)
//
// What limits them: reading the matrices of the experts that are hit, once each. Lane l of a warp multiplies vectors
// l, l + 32, ... of K by plain multiply-adds, then the lanes are added as a tree: the order depends on K alone. Block (c, j)
// computes a run of columns of the j-th expert that is hit, for all of its rows, 4 at a time; blocks beyond the last such
// expert end at once. A warp has COLUMNS columns.
//
// expert_sum writes the weighted products of each pair of row and expert to `parts`. The last of the R warps that have
// columns of a row adds its parts in the order of the row's experts: so a row's bits do not depend on the others.
#pragma once
#include "device/pdl.cuh"
#include "device/vec.cuh"
#include "device/warp.cuh"
#include "body/last_part.cuh"

enum { EXPERT_WARPS = 8 };

// The number of the j-th expert that some row has; -1: so many are not hit. By a whole warp.
template <int X> DEVICE int expert_hit(const int *starts, int j)
{
    for (int from = 0; from < X; from += 32) {
        const int e = from + lane_id();
        const bool hit = e < X && starts[least(e, X - 1) + 1] > starts[least(e, X - 1)];
        const u32 before = warp_prefix_sum(hit ? 1u : 0u) - (hit ? 1u : 0u), all = shuffle(before + (hit ? 1u : 0u), 31);
        if ((u32)j < all)
            return warp_sum(hit && before == (u32)j ? e : 0);
        j -= (int)all;
    }
    return -1;
}

// d[r][i] += the lane's share of w[r] . x[i]
template <class C, int NR, int MC>
DEVICE void expert_products(float (&d)[NR][MC], const typename C::T *const (&w)[NR], const typename C::T *const (&x)[MC])
{
    constexpr int VEC = vec_width<typename C::T>(C::K);
#pragma unroll(MC == 1 ? 4 : 1)
    for (int v = lane_id() * VEC; v < C::K; v += 32 * VEC) {
        Vec<float, VEC> wv[NR];
#pragma unroll
        for (int r = 0; r < NR; r++)
            wv[r] = to_floats(load<VEC>(w[r] + v));
#pragma unroll
        for (int i = 0; i < MC; i++) {
            const Vec<float, VEC> xv = to_floats(load<VEC>(x[i] + v));
#pragma unroll
            for (int r = 0; r < NR; r++)
#pragma unroll
                for (int e = 0; e < VEC; e++)
                    d[r][i] = fmaf(wv[r][e], xv[e], d[r][i]);
        }
    }
#pragma unroll
    for (int r = 0; r < NR; r++)
#pragma unroll
        for (int i = 0; i < MC; i++)
            d[r][i] = warp_sum(d[r][i]);
}

// This warp's columns, from n on, of expert e for the first `count`, at most MC, of these pairs.
template <class C, int MC, class A> DEVICE void expert_tile(const A &a, int e, int n, const int *rows, int count)
{
    typedef typename C::T T;
    constexpr int NR = C::COLUMNS;
    const T *w[NR], *x[MC];
    float d[NR][MC] = {};
#pragma unroll
    for (int r = 0; r < NR; r++)
        w[r] = (const T *)a.w + ((i64)e * C::N + least(n + r, C::N - 1)) * C::K;
#pragma unroll
    for (int i = 0; i < MC; i++) {
        const int pair = rows[least(i, count - 1)];
        x[i] = (const T *)a.x + (i64)(C::SUM ? pair : pair / C::R) * C::K;
    }
    expert_products<C, NR, MC>(d, w, x);
#pragma unroll
    for (int i = 0; i < MC; i++)
#pragma unroll
        for (int r = 0; r < NR; r += C::GLU ? 2 : 1)
            if (lane_id() == i * NR + r && i < count && n + r < C::N)
                expert_out<C>(a, e, rows[i], n + r, d[r][i], d[r + C::GLU][i]);
}

template <class C, class A> DEVICE void expert(const A &a)
{
    launch_dependents();
    wait_for_previous();
    const int e = expert_hit<C::X>(a.starts, blockIdx.y), n = (blockIdx.x * EXPERT_WARPS + warp_id()) * C::COLUMNS;
    if (e < 0 || n >= C::N)
        return;
    const int *rows = a.rows + a.starts[e];
    const int count = a.starts[e + 1] - a.starts[e];
    for (int i = 0; i < count; i += 4) {
        const int left = count - i;
        if (left > 2)
            expert_tile<C, 4>(a, e, n, rows + i, left);
        else if (left == 2)
            expert_tile<C, 2>(a, e, n, rows + i, left);
        else
            expert_tile<C, 1>(a, e, n, rows + i, left);
    }
    if constexpr (C::SUM)
        add_last_part<C>(a, n, rows, count);
}
