// linear_fma.cuh - linear layers in fp32, up to 64 rows: tensor cores have no fp32 form.
//
//   y[m,n] = epilogue(sum_k norm(x)[m,k] * w[n,k] + b[n])         epilogue: activation, GLU, residual, RoPE + cache
//                                                                 (body/linear.cuh)
//   x  [M, K]  row-major      w  [N, K]  row-major      y  [M, N]      g, c [K], b [N], r [M, N]; any K, N
//
// A warp takes 2 or 4 rows of w and up to 8 rows of x at a time. Lane l multiplies vectors l, l + 32, ... of K by plain
// multiply-adds; then the lanes are added as a tree. The order depends on K alone. w is read again for each 8 rows of
// x, from the caches; x and the gains come from the caches too. A block has 8 warps and takes every gridDim-th group of
// rows.
#pragma once
#include "device/block.cuh"
#include "device/pdl.cuh"
#include "body/linear.cuh"

enum { FMA_THREADS = 256 };

template <class C> constexpr int FMA_ROWS = C::M == 1 ? 2 : 4;  // of a warp; 2 where x has one row, so that more warps share the work

// Products of rows n .. n + FMA_ROWS - 1 of w with rows m .. m + MC - 1 of x.
template <class C, int MC>
DEVICE void fma_tile(const LinearArgs &a, float (&d)[FMA_ROWS<C>][MC], int n, int m, int live, const RowStat *stat)
{
    constexpr int VEC = vec_width<float>(C::K), VECS = C::K / VEC;
    const float *w[FMA_ROWS<C>], *x[MC];
#pragma unroll
    for (int r = 0; r < FMA_ROWS<C>; r++)
        w[r] = (const float *)a.w + (i64)least(n + r, C::N - 1) * C::K;
#pragma unroll
    for (int i = 0; i < MC; i++)
        x[i] = (const float *)a.x + (i64)source_row<C::LAST>(a.rows, least(m + i, live - 1)) * C::K;
#pragma unroll(MC == 1 ? 4 : 1)
    for (int v = lane_id() * VEC; v < VECS * VEC; v += 32 * VEC) {
        Vec<float, VEC> wv[FMA_ROWS<C>], g, c;
#pragma unroll
        for (int r = 0; r < FMA_ROWS<C>; r++)
            wv[r] = load<VEC>(w[r] + v);
        if (C::NORM)
            g = load<VEC>(a.g + v);
        if (C::NORM == 2)
            c = load<VEC>(a.c + v);
#pragma unroll
        for (int i = 0; i < MC; i++) {
            Vec<float, VEC> xv = load<VEC>(x[i] + v);
#pragma unroll
            for (int e = 0; e < VEC; e++) {
                const float f = C::NORM == 0 ? xv[e] : C::NORM == 1 ? __fmul_rn(xv[e], g[e])
                                                                    : norm_apply(xv[e], stat[least(m + i, live - 1)], g[e], c[e]);
#pragma unroll
                for (int r = 0; r < FMA_ROWS<C>; r++)
                    d[r][i] = fmaf(wv[r][e], f, d[r][i]);
            }
        }
    }
}

template <class C> DEVICE void linear_fma(const LinearArgs &a)
{
    constexpr int MC = C::M < 8 ? pow2_at_least(C::M) : 8, WARPS = FMA_THREADS / 32;
    SHARED(RowStat, stat, C::M <= 64 ? C::M : 1); // more rows have their norm in a launch of its own
    SHARED(float, done, WARPS * MC * FMA_ROWS<C>);
    launch_dependents();
    wait_for_previous();
    const int live = least(live_rows<C::ROWS_S>(a.step), C::M);
    if (C::NORM) {
        for (int m = warp_id(); m < live; m += WARPS) {
            const RowStat s = row_stat<C::NORM, C::K>((const float *)a.x + (i64)source_row<C::LAST>(a.rows, m) * C::K, C::EPS);
            if (lane_id() == 0)
                stat[m] = s;
        }
        block_sync();
    }
    float *mine = done + warp_id() * MC * FMA_ROWS<C>;
    for (int n = (blockIdx.x * WARPS + warp_id()) * FMA_ROWS<C>; n < C::N; n += gridDim.x * WARPS * FMA_ROWS<C>) {
        for (int m = 0; m < live; m += MC) {
            float d[FMA_ROWS<C>][MC] = {};
            fma_tile<C, MC>(a, d, n, m, live, stat);
#pragma unroll
            for (int r = 0; r < FMA_ROWS<C>; r++)
#pragma unroll
                for (int i = 0; i < MC; i++) {
                    d[r][i] = warp_sum(d[r][i]);
                    if (lane_id() == 0)
                        mine[i * FMA_ROWS<C> + r] = d[r][i];
                }
            warp_sync();
            const int row = m + lane_id() / (FMA_ROWS<C> / 2), pair = lane_id() % (FMA_ROWS<C> / 2) * 2;
            if (lane_id() < MC * FMA_ROWS<C> / 2 && row < live && n + pair < C::N) {
                const float *v = mine + (row - m) * FMA_ROWS<C> + pair;
                const float scale = C::NORM == 1 ? stat[row].scale : 1.0f;
                linear_out<C>(a, linear_bias<C>(a, n + pair), linear_residual<C>(a, row, n + pair), linear_place<C>(a, linear_token<C>(a, row), n + pair),
                              row, n + pair,
                              __fmul_rn(v[0], scale), __fmul_rn(v[1], scale));
            }
            warp_sync();
        }
    }
}
