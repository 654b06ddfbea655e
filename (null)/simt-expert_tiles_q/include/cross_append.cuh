// cross_append.cuh - writes keys and values of a source to where the decoder layer's attend_cross reads them.
//
//   x [T, 2G * E]                   of each source token its keys, then its values
//   k, v [sources][G][SOURCE][E]    token p of the source in src_slot s is row p of [s][g]
//
// A block takes one token and THREADS vectors of its row. Memory bound.
#pragma once
#include "device/io.h"
#include "device/pdl.cuh"
#include "device/vec.cuh"

struct CrossAppendArgs {
    const void *x;
    const FtxStep *step;
    const FtxRow *rows;
    const FtxToken *token;
    void *k, *v;
    void *y; // the graph's result; its data are in k and v
};

template <class K> DEVICE void cross_append(const CrossAppendArgs &a)
{
    typedef typename K::T T;
    typedef typename K::KV KV;
    constexpr int VEC = vec_width<T>(K::E), C = 2 * K::G * K::E;
    launch_dependents();
    wait_for_previous();
    const int t = blockIdx.x;
    if (t >= a.step->tokens)
        return;
    const FtxToken token = a.token[t];
    const int slot = a.rows[token.row].src_slot;
    for (int v = blockIdx.y * K::THREADS + threadIdx.x; v < C / VEC; v += gridDim.y * K::THREADS) {
        const int n = v * VEC, head = n / K::E, e = n % K::E;
        KV *to = (KV *)(head < K::G ? a.k : a.v) + (((i64)slot * K::G + head % K::G) * K::SOURCE + token.pos) * K::E + e;
        store(to, from_floats<KV>(to_floats(load<VEC>((const T *)a.x + (i64)t * C + n))));
    }
}
