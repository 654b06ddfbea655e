// act.cuh - element by element: activations, gated units, sums, products, scales, copies of columns. Memory bound.
//
//   x, a, b, y  [M, C]  row-major (glu: x [M, 2C])      one type (scale: y may have another), computed in fp32
//   mul_by: b [M], w [C] fp32
//
// blockIdx.x is the row; blocks along y share its columns, each thread taking vectors of up to 16 bytes.
#pragma once
#include "device/pdl.cuh"
#include "device/vec.cuh"
#include "body/act.cuh"
#include "body/rows.cuh"

// Calls each(row, first column) for the vectors of VEC elements that this thread computes.
template <class K, int VEC, class F> DEVICE void for_vectors(const FtxStep *step, F each)
{
    launch_dependents();
    wait_for_previous();
    if ((int)blockIdx.x >= live_rows<K::ROWS_S>(step))
        return;
    for (int v = blockIdx.y * K::THREADS + threadIdx.x; v < K::C / VEC; v += gridDim.y * K::THREADS)
        each((i64)blockIdx.x, v * VEC);
}

struct OneArgs { const void *x; const FtxStep *step; void *y; };
struct TwoArgs { const void *a, *b; const FtxStep *step; void *y; };
struct FactorArgs { const void *a, *b; const float *w; const FtxStep *step; void *y; };

// y[m,i] = kind(x[m,i])
template <class K> DEVICE void act(const OneArgs &a)
{
    typedef typename K::T T;
    constexpr int VEC = vec_width<T>(K::C);
    for_vectors<K, VEC>(a.step, [&](i64 row, int at) {
        Vec<float, VEC> f = to_floats(load<VEC>((const T *)a.x + row * K::C + at));
#pragma unroll
        for (int i = 0; i < VEC; i++)
            f[i] = activate<K::KIND>(f[i]);
        store((T *)a.y + row * K::C + at, from_floats<T>(f));
    });
}

// y[m,i] = kind(x[m,2i]) * x[m,2i+1]: gate and up projections are interleaved
template <class K> DEVICE void glu(const OneArgs &a)
{
    typedef typename K::T T;
    constexpr int VEC = vec_width<T>(K::C);
    for_vectors<K, VEC>(a.step, [&](i64 row, int at) {
        const T *x = (const T *)a.x + (row * K::C + at) * 2;
        const Vec<T, VEC> first = load<VEC>(x), second = load<VEC>(x + VEC);
        Vec<float, VEC> f;
#pragma unroll
        for (int i = 0; i < VEC; i++) {
            const T gate = 2 * i < VEC ? first[2 * i % VEC] : second[2 * i % VEC];
            const T up = 2 * i + 1 < VEC ? first[(2 * i + 1) % VEC] : second[(2 * i + 1) % VEC];
            f[i] = activate<K::KIND>(to_float(gate)) * to_float(up);
        }
        store((T *)a.y + row * K::C + at, from_floats<T>(f));
    });
}

// y[m,i] = a[m,i] + b[m,i], or with MUL their product
template <class K> DEVICE void add_mul(const TwoArgs &a)
{
    typedef typename K::T T;
    constexpr int VEC = vec_width<T>(K::C);
    for_vectors<K, VEC>(a.step, [&](i64 row, int at) {
        Vec<float, VEC> f = to_floats(load<VEC>((const T *)a.a + row * K::C + at));
        const Vec<float, VEC> g = to_floats(load<VEC>((const T *)a.b + row * K::C + at));
#pragma unroll
        for (int i = 0; i < VEC; i++)
            f[i] = K::MUL ? f[i] * g[i] : f[i] + g[i];
        store((T *)a.y + row * K::C + at, from_floats<T>(f));
    });
}

// y[m,i] = a[m,i] * b[m], or without OF_ROW a[m,i] * w[i]
template <class K> DEVICE void mul_by(const FactorArgs &a)
{
    typedef typename K::T T;
    constexpr int VEC = vec_width<T>(K::C);
    for_vectors<K, VEC>(a.step, [&](i64 row, int at) {
        Vec<float, VEC> f = to_floats(load<VEC>((const T *)a.a + row * K::C + at));
        if constexpr (K::OF_ROW) {
            const float by = to_float(((const T *)a.b)[row]);
#pragma unroll
            for (int i = 0; i < VEC; i++)
                f[i] *= by;
        } else {
            const Vec<float, VEC> by = load<VEC>(a.w + at);
#pragma unroll
            for (int i = 0; i < VEC; i++)
                f[i] *= by[i];
        }
        store((T *)a.y + row * K::C + at, from_floats<T>(f));
    });
}

// y[m,i] = x[m,FROM + i], x [M, N]
template <class K> DEVICE void slice(const OneArgs &a)
{
    typedef typename K::T T;
    constexpr int VEC = vec_width<T>(K::C | K::N | K::FROM);
    for_vectors<K, VEC>(a.step, [&](i64 row, int at) {
        store((T *)a.y + row * K::C + at, load<VEC>((const T *)a.x + row * K::N + K::FROM + at));
    });
}

// y[m,:] = a[m,:], b[m,:], a [M, A], b [M, C - A]
template <class K> DEVICE void join(const TwoArgs &a)
{
    typedef typename K::T T;
    constexpr int VEC = vec_width<T>(K::C | K::A);
    for_vectors<K, VEC>(a.step, [&](i64 row, int at) {
        const T *from = at < K::A ? (const T *)a.a + row * K::A + at : (const T *)a.b + row * (K::C - K::A) + at - K::A;
        store((T *)a.y + row * K::C + at, load<VEC>(from));
    });
}

// y[m,i] = x[m,i] * BY, y of type OUT
template <class K> DEVICE void scale(const OneArgs &a)
{
    typedef typename K::T T;
    typedef typename K::OUT O;
    constexpr int VEC = least(vec_width<T>(K::C), vec_width<O>(K::C));
    for_vectors<K, VEC>(a.step, [&](i64 row, int at) {
        Vec<float, VEC> f = to_floats(load<VEC>((const T *)a.x + row * K::C + at));
#pragma unroll
        for (int i = 0; i < VEC; i++)
            f[i] *= K::BY;
        store((O *)a.y + row * K::C + at, from_floats<O>(f));
    });
}
