// linear.cuh - what the forms of linear share: their arguments and what happens to a finished sum.
//
//   y = epilogue(norm(x) * w^T + b)
//
// RMS norm is split: x * g goes into the product, the row's 1 / rms is multiplied into the sum,
// so that no one waits for the statistic. Layer norm is applied to x before the product.
// An element's sum is added up in an order that depends on K alone (never on how many rows a step
// has): blocks of 32 k are dealt out to 8 chains, b mod 8, each a sequence of matrix instructions
// of 16 k; then chains 0..3 and 4..7 are added in order, and the two halves last.
#pragma once
#include "device/io.h"
#include "device/vec.cuh"
#include "part/act.cuh"
#include "part/append.cuh"
#include "part/norm.cuh"
#include "part/rows.cuh"

struct LinearArgs {
    const void *x;      // [M, K], or [T, K] with LAST
    const void *w;      // [N, K]
    const float *g;     // [K] gain of the norm
    const float *c;     // [K] bias of a layer norm
    const float *b;     // [N]
    const void *r;      // [M, N] residual
    const float *table; // append: cos, sin
    const FtxStep *step;
    const FtxToken *token;
    const FtxRow *rows;
    const int *pages;
    void *k, *v;        // append: the layer's cache
    void *y;            // [M, N]; GLU: [M, N/2]; append: q [M, H*E]
};

// Eight neighbouring elements of a row of x, as the product wants them: g and c are those of the
// same columns (c with layer norm only).
template <class C> DEVICE uint4_ norm_vector(uint4_ x, RowStat s, const Vec<float, 4> &g0, const Vec<float, 4> &g1,
                                             const Vec<float, 4> &c0, const Vec<float, 4> &c1)
{
    typedef typename C::T T;
    if constexpr (C::NORM == 1) {
        x.x = pack2<T>(low<T>(x.x) * g0[0], high<T>(x.x) * g0[1]);
        x.y = pack2<T>(low<T>(x.y) * g0[2], high<T>(x.y) * g0[3]);
        x.z = pack2<T>(low<T>(x.z) * g1[0], high<T>(x.z) * g1[1]);
        x.w = pack2<T>(low<T>(x.w) * g1[2], high<T>(x.w) * g1[3]);
    } else if constexpr (C::NORM == 2) {
        x.x = pack2<T>(norm_apply(low<T>(x.x), s, g0[0], c0[0]), norm_apply(high<T>(x.x), s, g0[1], c0[1]));
        x.y = pack2<T>(norm_apply(low<T>(x.y), s, g0[2], c0[2]), norm_apply(high<T>(x.y), s, g0[3], c0[3]));
        x.z = pack2<T>(norm_apply(low<T>(x.z), s, g1[0], c1[0]), norm_apply(high<T>(x.z), s, g1[1], c1[1]));
        x.w = pack2<T>(norm_apply(low<T>(x.w), s, g1[2], c1[2]), norm_apply(high<T>(x.w), s, g1[3], c1[3]));
    }
    return x;
}

// Columns n, n+1 of row m (n even; n+1 may be N). C: the constants of the instance.
template <class C> DEVICE void linear_out(const LinearArgs &a, int m, int n, float v0, float v1)
{
    typedef typename C::OUT O;
    typedef typename C::T T;
    const bool two = C::N % 2 == 0 || n + 1 < C::N;
    if (C::BIAS) {
        v0 += a.b[n];
        if (two)
            v1 += a.b[n + 1];
    }
    if constexpr (C::APPEND) {
        Vec<float, 2> x;
        x[0] = v0;
        x[1] = v1;
        append_pairs<C, 1>(AppendTo{a.table, a.pages, a.k, a.v, a.y}, a.token[m], m, n, x);
    } else if constexpr (C::GLU) {
        ((O *)a.y)[(i64)m * (C::N / 2) + n / 2] = from_float<O>(activate<C::ACT>(v0) * v1);
    } else {
        const i64 at = (i64)m * C::N + n;
        v0 = activate<C::ACT>(v0);
        v1 = activate<C::ACT>(v1);
        if (C::RES) {
            v0 += to_float(((const T *)a.r)[at]);
            if (two)
                v1 += to_float(((const T *)a.r)[at + 1]);
        }
        if constexpr (C::N % 2 == 0) {
            Vec<float, 2> x;
            x[0] = v0;
            x[1] = v1;
            store((O *)a.y + at, from_floats<O>(x));
        } else {
            ((O *)a.y)[at] = from_float<O>(v0);
            if (two)
                ((O *)a.y)[at + 1] = from_float<O>(v1);
        }
    }
}
