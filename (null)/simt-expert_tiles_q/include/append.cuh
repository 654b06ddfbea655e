// append.cuh - splits a row [q | k | v]: q and k are rotated (RoPE), k and v written to the layer's pages, q to q.
//
//   x [T, (H + 2G) * E]  ->  q [T, H * E], and the cache (body/append.cuh)
//
// For steps whose projection is a cuBLASLt product; other projections end in the same body. A block takes one token
// and THREADS vectors of its row. Memory bound.
#pragma once
#include "device/pdl.cuh"
#include "body/append.cuh"

struct AppendArgs {
    const void *x;
    const float *table; // body/append.cuh; NULL with ROT = 0
    const FtxStep *step;
    const FtxToken *token;
    const int *pages;
    void *k, *v;
    void *q;
};

template <class K> DEVICE void append(const AppendArgs &a)
{
    typedef typename K::T T;
    constexpr int VEC = vec_width<T>(K::E), C = (K::H + 2 * K::G) * K::E;
    static_assert(VEC % 2 == 0, "head_dim must be even");
    launch_dependents();
    wait_for_previous();
    const int t = blockIdx.x;
    if (t >= a.step->tokens)
        return;
    const AppendRow row = append_row<K>(a.token[t], a.pages, a.table);
    for (int v = blockIdx.y * K::THREADS + threadIdx.x; v < C / VEC; v += gridDim.y * K::THREADS)
        append_pairs<K, VEC / 2>(AppendTo{a.k, a.v, a.q}, row, append_angles<K, VEC / 2>(row, v * VEC), t, v * VEC,
                                 to_floats(load<VEC>((const T *)a.x + (i64)t * C + v * VEC)));
}
