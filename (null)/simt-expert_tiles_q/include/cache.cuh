// cache.cuh - writes keys and values of heads to where attention reads them.
//
//   keys, values [T, G, E]
//   SOURCE = 0   the layer's pages, k and v each [pages][G][BLOCK][E]: position p of a slot is row p % BLOCK of page
//                pages[slot][p / BLOCK]
//   SOURCE > 0   [sources][G][SOURCE][E]: token p of the source in src_slot s is row p of [s][g]
//
// A block takes one token. Where the product before it can write them (body/append.cuh), this kernel is not used. Memory bound.
#pragma once
#include "device/io.h"
#include "device/pdl.cuh"
#include "device/vec.cuh"

struct CacheArgs {
    const void *keys, *values;
    const FtxStep *step;
    const FtxRow *rows;
    const FtxToken *token;
    const int *pages;
    void *k, *v;
};

template <class K> DEVICE void cache(const CacheArgs &a)
{
    typedef typename K::T T;
    typedef typename K::KV KV;
    constexpr int VEC = vec_width<T>(K::E), N = K::G * K::E / VEC;
    launch_dependents();
    wait_for_previous();
    const int t = blockIdx.x;
    if (t >= a.step->tokens)
        return;
    const FtxToken token = a.token[t];
    const int length = K::SOURCE ? K::SOURCE : K::BLOCK, in = K::SOURCE ? token.pos : token.pos % K::BLOCK;
    const int page = K::SOURCE ? a.rows[token.row].src_slot : a.pages[token.slot * K::PAGES + token.pos / K::BLOCK];
    for (int i = threadIdx.x; i < 2 * N; i += K::THREADS) {
        const int at = i % N * VEC, g = at / K::E;
        const T *from = (const T *)(i < N ? a.keys : a.values) + (i64)t * K::G * K::E + at;
        KV *to = (KV *)(i < N ? a.k : a.v) + (((i64)page * K::G + g) * length + in) * K::E + at % K::E;
        store(to, from_floats<KV>(to_floats(load<VEC>(from))));
    }
}
