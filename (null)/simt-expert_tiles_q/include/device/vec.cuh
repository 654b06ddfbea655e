// vec.cuh - vectors of N elements, loaded and stored in accesses of up to 16 bytes; masked forms for the end of a row.
#pragma once
#include "device/l2.cuh"
#include "device/types.cuh"

template <class T, int N> struct alignas(N * sizeof(T) < 16 ? N * sizeof(T) : 16) Vec {
    T v[N];
    DEVICE T &operator[](int i) { return v[i]; }
    DEVICE const T &operator[](int i) const { return v[i]; }
};

// The widest vector (up to 16 bytes) that keeps every row of C elements aligned.
template <class T> constexpr DEVICE int vec_width(int C)
{
    int n = 16 / (int)sizeof(T);
    while (C % n)
        n /= 2;
    return n;
}

// p is aligned to N elements, or to 16 bytes if N elements are longer.
template <int N, class T> DEVICE Vec<T, N> load(const T *p) { return *(const Vec<T, N> *)p; }
template <int N, class T> DEVICE void store(T *p, const Vec<T, N> &v) { *(Vec<T, N> *)p = v; }

template <class T, int N> DEVICE Vec<T, N> zeros()
{
    Vec<T, N> v;
#pragma unroll
    for (int i = 0; i < N; i++)
        v[i] = from_float<T>(0.0f);
    return v;
}

// The first n of N elements, then zeros; nothing at or beyond p + n is read or written.
template <int N, class T> DEVICE Vec<T, N> load_up_to(const T *p, int n)
{
    if (n >= N)
        return load<N>(p);
    Vec<T, N> v = zeros<T, N>();
#pragma unroll
    for (int i = 0; i < N; i++)
        if (i < n)
            v[i] = p[i];
    return v;
}
template <int N, class T> DEVICE void store_up_to(T *p, const Vec<T, N> &v, int n)
{
    if (n >= N) {
        store(p, v);
        return;
    }
#pragma unroll
    for (int i = 0; i < N; i++)
        if (i < n)
            p[i] = v[i];
}

template <class T, int N> DEVICE Vec<float, N> to_floats(const Vec<T, N> &v)
{
    Vec<float, N> f;
#pragma unroll
    for (int i = 0; i < N; i++)
        f[i] = to_float(v[i]);
    return f;
}
template <class T, int N> DEVICE Vec<T, N> from_floats(const Vec<float, N> &f)
{
    Vec<T, N> v;
#pragma unroll
    for (int i = 0; i < N; i++)
        v[i] = from_float<T>(f[i]);
    return v;
}
