// experts.cuh - linear layers of experts for few rows: each row with the matrices of the experts that it was routed to.
//
//   expert_linear   y[m, i*N + n] = epilogue(x[m,:] . w[e,n,:] + b[e,n])             e: expert i of row m
//   expert_sum      y[m,n] = sum over i of weight * (x[m, i*K:] . w[e,n,:] + b[e,n]) + r[m,n]
//
//   x [M, K] or [M, R*K], w [X*N, K]   one type, row-major      b [X*N] fp32, r and y [M, N]
//   routes [M, 2R], starts [X + 1], rows [M*R]: the form by_expert of routes (compiler/ir/forms.def)
//
// What limits them: reading the matrices of the experts that are hit. Lane l of a warp multiplies vectors l, l + 32, ...
// of K by plain multiply-adds, then the lanes are added as a tree: the order depends on K alone. expert_sum adds the
// experts of a row by their number.
//
//   expert_linear   block (c, j): a run of columns of the j-th expert that is hit, for all of its rows. Blocks beyond
//                   the last such expert end at once
//   expert_sum      a warp takes COLUMNS columns and goes through the pairs of row and expert, by expert, PAIRS at a
//                   time; the rows of one expert read w from the first-level cache. A block has TOKENS rows of y
#pragma once
#include "device/block.cuh"
#include "device/pdl.cuh"
#include "device/vec.cuh"
#include "body/act.cuh"
#include "body/rows.cuh"

struct ExpertArgs {
    const void *x;
    const int *routes, *starts, *rows;
    const void *w;
    const float *b;
    const void *r;
    const FtxStep *step;
    void *y;
};

enum { EXPERT_THREADS = 256, EXPERT_WARPS = 8 };

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

// Columns n .. n + NR - 1 of expert e for the pairs rows[0..MC).
template <class C, int NR, int MC> DEVICE void expert_tile(const ExpertArgs &a, int e, int n, const int *rows)
{
    typedef typename C::T T;
    const T *w[NR], *x[MC];
    float d[NR][MC] = {};
#pragma unroll
    for (int r = 0; r < NR; r++)
        w[r] = (const T *)a.w + ((i64)e * C::N + least(n + r, C::N - 1)) * C::K;
#pragma unroll
    for (int i = 0; i < MC; i++)
        x[i] = (const T *)a.x + (i64)(rows[i] / C::R) * C::K;
    expert_products<C, NR, MC>(d, w, x);
#pragma unroll
    for (int i = 0; i < MC; i++)
#pragma unroll
        for (int r = 0; r < NR; r += C::GLU ? 2 : 1) {
            const int at = n + r;
            if (lane_id() != i * NR + r || at >= C::N)
                continue;
            float v0 = d[r][i], v1 = C::GLU ? d[r + C::GLU][i] : 0.0f;
            if (C::BIAS) {
                v0 += a.b[e * C::N + at];
                if (C::GLU)
                    v1 += a.b[e * C::N + at + 1];
            }
            if constexpr (C::GLU)
                ((T *)a.y)[(i64)rows[i] * (C::N / 2) + at / 2] = from_float<T>(activate<C::ACT>(v0) * v1);
            else
                ((T *)a.y)[(i64)rows[i] * C::N + at] = from_float<T>(activate<C::ACT>(v0));
        }
}

template <class C> DEVICE void expert_linear(const ExpertArgs &a)
{
    constexpr int NR = C::COLUMNS;
    launch_dependents();
    wait_for_previous();
    const int e = expert_hit<C::X>(a.starts, blockIdx.y), n = (blockIdx.x * EXPERT_WARPS + warp_id()) * NR;
    if (e < 0 || n >= C::N)
        return;
    const int *rows = a.rows + a.starts[e];
    int left = a.starts[e + 1] - a.starts[e];
    for (; left >= 4; left -= 4, rows += 4)
        expert_tile<C, NR, 4>(a, e, n, rows);
    if (left >= 2) {
        expert_tile<C, NR, 2>(a, e, n, rows);
        left -= 2;
        rows += 2;
    }
    if (left)
        expert_tile<C, NR, 1>(a, e, n, rows);
}

// The products of PAIRS pairs, from the q-th on, with column n.
template <class C, int PAIRS> DEVICE void expert_pairs(const ExpertArgs &a, int q, int n, int first, float *sums)
{
    typedef typename C::T T;
    constexpr int VEC = vec_width<T>(C::K);
    const T *w[PAIRS], *x[PAIRS];
    float d[PAIRS] = {};
    int pair[PAIRS], e[PAIRS];
#pragma unroll
    for (int i = 0; i < PAIRS; i++) {
        pair[i] = a.rows[q + i];
        e[i] = a.routes[(i64)(pair[i] / C::R) * 2 * C::R + pair[i] % C::R];
        w[i] = (const T *)a.w + ((i64)e[i] * C::N + n) * C::K;
        x[i] = (const T *)a.x + (i64)pair[i] * C::K;
    }
#pragma unroll 2
    for (int v = lane_id() * VEC; v < C::K; v += 32 * VEC) {
        Vec<T, VEC> wv[PAIRS], xv[PAIRS];
#pragma unroll
        for (int i = 0; i < PAIRS; i++) {
            wv[i] = load<VEC>(w[i] + v);
            xv[i] = load<VEC>(x[i] + v);
        }
#pragma unroll
        for (int i = 0; i < PAIRS; i++)
#pragma unroll
            for (int k = 0; k < VEC; k++)
                d[i] = fmaf(to_float(wv[i][k]), to_float(xv[i][k]), d[i]);
    }
#pragma unroll
    for (int i = 0; i < PAIRS; i++) {
        const int m = pair[i] / C::R;
        float v = warp_sum(d[i]);
        if (lane_id() != 0 || m < first || m >= first + C::TOKENS)
            continue;
        if (C::BIAS)
            v += a.b[e[i] * C::N + n];
        sums[m - first] += __uint_as_float((u32)a.routes[(i64)m * 2 * C::R + C::R + pair[i] % C::R]) * v;
    }
}

template <class C> DEVICE void expert_sum(const ExpertArgs &a)
{
    typedef typename C::T T;
    typedef typename C::OUT O;
    SHARED(float, room, EXPERT_WARPS * C::TOKENS);
    float *sums = room + warp_id() * C::TOKENS;
    launch_dependents();
    wait_for_previous();
    const int all = live_rows<C::ROWS_S>(a.step), first = blockIdx.y * C::TOKENS, pairs = all * C::R;
    const int n = blockIdx.x * EXPERT_WARPS + warp_id();
    if (n >= C::N || first >= all)
        return;
    for (int m = lane_id(); m < C::TOKENS; m += 32)
        sums[m] = 0.0f;
    warp_sync();
    int q = 0;
    for (; q + 4 <= pairs; q += 4)
        expert_pairs<C, 4>(a, q, n, first, sums);
    for (; q < pairs; q++)
        expert_pairs<C, 1>(a, q, n, first, sums);
    warp_sync();
    for (int m = lane_id(); m < least(C::TOKENS, all - first); m += 32) {
        const i64 at = (i64)(first + m) * C::N + n;
        ((O *)a.y)[at] = from_float<O>(C::RES ? sums[m] + to_float(((const T *)a.r)[at]) : sums[m]);
    }
}
