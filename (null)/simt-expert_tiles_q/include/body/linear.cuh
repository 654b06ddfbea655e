// linear.cuh - what the linear kernels share: their arguments and the epilogue on a finished sum.
//
//   s[m,n] = sum_k norm(x)[m,k] * w[n,k] + b[n]
//
//   plain     y = act(s)               GLU     y[m, n/2] = act(s[m,n]) * s[m,n+1], n even: gate and up interleaved
//   residual  y = act(s) + r           append  q to y, k and v to the cache, with RoPE (body/append.cuh)
//   head      logits y = s, or segments of them (body/segments.cuh)
//
// RMS norm is split: the product takes x * g, and the finished sum is multiplied by the row's 1 / rms, so that nothing
// waits for the statistic. Layer norm is applied to x before the product.
//
// Constants of an instance (Config in the templates): T type of x and w, OUT type of y, M rows at most; NORM 1 RMS norm
// of x, 2 layer norm; RES 1 adds r, 2 adds layernorm(r); ACT an FtxAct; ROWS_S 1: rows are sequences, not tokens; LAST
// 1: row m of x is the last token of sequence m.
//
// Order of summation of linear.cuh and linear_wide.cuh; it depends on K alone, never on the number of rows of a step.
// Block b of 32 k belongs to chain b mod 8; a chain is a sequence of matrix instructions of 16 k. At the end chains
// 0..3 are added in order, chains 4..7 too, last the two halves.
#pragma once
#include "device/io.h"
#include "device/vec.cuh"
#include "body/act.cuh"
#include "body/append.cuh"
#include "body/norm.cuh"
#include "body/segments.cuh"
#include "body/rows.cuh"

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
struct LinearHeadArgs : SegmentArgs, LinearArgs {
    FtxSegments *segments; // SEGMENTS: of the rows of y; y itself is written as keep_of() says
};

// Eight neighbouring elements of a row of x as they are multiplied by w.
// RMS norm: x * g. The gains are rounded to x's type, in which a checkpoint of that type stores them.
template <class C> DEVICE uint4_ rms_vector(uint4_ x, uint4_ g)
{
    typedef typename C::T T;
    return uint4_{mul2<T>(x.x, g.x), mul2<T>(x.y, g.y), mul2<T>(x.z, g.z), mul2<T>(x.w, g.w)};
}
template <class T> DEVICE uint4_ pack_gains(const Vec<float, 4> &a, const Vec<float, 4> &b)
{
    return uint4_{pack2<T>(a[0], a[1]), pack2<T>(a[2], a[3]), pack2<T>(b[0], b[1]), pack2<T>(b[2], b[3])};
}
// Layer norm: (x - mean) * scale * g + c.
template <class C> DEVICE uint4_ layer_vector(uint4_ x, RowStat s, const Vec<float, 4> &g0, const Vec<float, 4> &g1,
                                              const Vec<float, 4> &c0, const Vec<float, 4> &c1)
{
    typedef typename C::T T;
    x.x = pack2<T>(norm_apply(low<T>(x.x), s, g0[0], c0[0]), norm_apply(high<T>(x.x), s, g0[1], c0[1]));
    x.y = pack2<T>(norm_apply(low<T>(x.y), s, g0[2], c0[2]), norm_apply(high<T>(x.y), s, g0[3], c0[3]));
    x.z = pack2<T>(norm_apply(low<T>(x.z), s, g1[0], c1[0]), norm_apply(high<T>(x.z), s, g1[1], c1[1]));
    x.w = pack2<T>(norm_apply(low<T>(x.w), s, g1[2], c1[2]), norm_apply(high<T>(x.w), s, g1[3], c1[3]));
    return x;
}

// What the epilogue reads from memory for columns n, n+1 of row m; loaded before it is needed.
struct LinearBias { float b[2]; };
struct LinearResidual { float r[2]; };

template <class C> DEVICE LinearBias linear_bias(const LinearArgs &a, int n)
{
    LinearBias v = {};
    if (C::BIAS && n < C::N) {
        v.b[0] = a.b[n];
        if (C::N % 2 == 0 || n + 1 < C::N)
            v.b[1] = a.b[n + 1];
    }
    return v;
}
template <class C> DEVICE LinearResidual linear_residual(const LinearArgs &a, int m, int n)
{
    typedef typename C::T T;
    LinearResidual v = {};
    if (C::RES && n < C::N) {
        const T *r = (const T *)a.r + (i64)m * C::N + n;
        if constexpr (C::N % 2 == 0) {
            const Vec<T, 2> both = load<2>(r);
            v.r[0] = to_float(both[0]);
            v.r[1] = to_float(both[1]);
        } else {
            v.r[0] = to_float(r[0]);
            if (n + 1 < C::N)
                v.r[1] = to_float(r[1]);
        }
    }
    return v;
}

// append: the place of row m in the cache, and the RoPE angle for columns n, n+1. The caller loads the token, early.
struct LinearPlace {
    AppendRow row;
    Vec<float, 2> cs;
};
template <class C> DEVICE FtxToken linear_token(const LinearArgs &a, int m)
{
    return C::APPEND ? a.token[m] : FtxToken{};
}
template <class C> DEVICE LinearPlace linear_place(const LinearArgs &a, const FtxToken &t, int n)
{
    LinearPlace p = {};
    if constexpr (C::APPEND) {
        p.row = append_row<C>(t, a.pages, a.table);
        p.cs = append_angles<C, 1>(p.row, n);
    }
    return p;
}

// Stores columns n, n+1 of row m of y (n even; n+1 may be N).
template <class C> DEVICE void linear_store(const LinearArgs &a, int m, int n, float v0, float v1)
{
    typedef typename C::OUT O;
    O *to = (O *)a.y + (i64)m * C::N + n;
    if constexpr (C::N % 2 == 0) {
        Vec<float, 2> x;
        x[0] = v0;
        x[1] = v1;
        store(to, from_floats<O>(x));
    } else {
        to[0] = from_float<O>(v0);
        if (n + 1 < C::N)
            to[1] = from_float<O>(v1);
    }
}

// The epilogue: finishes and stores columns n, n+1 of row m (n even; n+1 may be N). C: the constants of the instance.
template <class C>
DEVICE void linear_out(const LinearArgs &a, const LinearBias &b, const LinearResidual &r, const LinearPlace &p, int m, int n,
                       float v0, float v1)
{
    typedef typename C::OUT O;
    if (C::BIAS) {
        v0 += b.b[0];
        v1 += b.b[1];
    }
    if constexpr (C::APPEND) {
        Vec<float, 2> x;
        x[0] = v0;
        x[1] = v1;
        append_pairs<C, 1>(AppendTo{a.k, a.v, a.y}, p.row, p.cs, m, n, x);
    } else if constexpr (C::GLU) {
        ((O *)a.y)[(i64)m * (C::N / 2) + n / 2] = from_float<O>(activate<C::ACT>(v0) * v1);
    } else {
        v0 = activate<C::ACT>(v0);
        v1 = activate<C::ACT>(v1);
        if (C::RES) {
            v0 += r.r[0];
            v1 += r.r[1];
        }
        linear_store<C>(a, m, n, v0, v1);
    }
}

// append: page and position of row m's key and value, looked up by one thread.
template <class C> DEVICE void linear_find_place(const LinearArgs &a, int m, int *places)
{
    const FtxToken t = a.token[m];
    places[2 * m] = a.pages[t.slot * C::PAGES + t.pos / C::BLOCK];
    places[2 * m + 1] = t.pos;
}

// The epilogue on ITEMS pairs of columns of each thread, AHEAD at a time. Bias, residual and angles of the first are
// loaded before the sums are complete.
//
//   at(i, m, n)   row and first column of pair i; false: there is none
//   wait()        returns when the sums are complete
//   sum(m, n)     the two sums, a norm's 1 / rms included
//   places        append: {page, position} of each row
template <class C, int ITEMS, int AHEAD, class At, class Wait, class Sum>
DEVICE void linear_finish(const LinearArgs &a, const int *places, At at, Wait wait, Sum sum)
{
#pragma unroll 1
    for (int begin = 0; begin < ITEMS; begin += AHEAD) {
        int m[AHEAD], n[AHEAD];
        LinearBias bias[AHEAD];
        LinearResidual residual[AHEAD];
        Vec<float, 2> angle[AHEAD];
#pragma unroll
        for (int i = 0; i < AHEAD; i++) {
            if (!at(begin + i, m[i], n[i]))
                m[i] = -1;
            bias[i] = linear_bias<C>(a, m[i] < 0 ? C::N : n[i]);
            residual[i] = linear_residual<C>(a, m[i], m[i] < 0 ? C::N : n[i]);
            if constexpr (C::APPEND)
                if (m[i] >= 0)
                    angle[i] = append_angles<C, 1>(AppendRow{0, 0, a.table + (i64)places[2 * m[i] + 1] * C::ROT}, n[i]);
        }
        if (begin == 0)
            wait();
#pragma unroll
        for (int i = 0; i < AHEAD; i++) {
            if (m[i] < 0)
                continue;
            const Vec<float, 2> v = sum(m[i], n[i]);
            LinearPlace place = {};
            if constexpr (C::APPEND)
                place = LinearPlace{AppendRow{places[2 * m[i]], places[2 * m[i] + 1] % C::BLOCK, 0}, angle[i]};
            linear_out<C>(a, bias[i], residual[i], place, m[i], n[i], v[0], v[1]);
        }
    }
}
