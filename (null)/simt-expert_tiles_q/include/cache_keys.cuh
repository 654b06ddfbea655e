// cache_keys.cuh - writes keys to where keys_attend reads them, which finds the values in their first elements.
//
//   keys [T, G, E]
//   k    the layer's pages, [pages][G][BLOCK][E]: position p of a slot is row p % BLOCK of page pages[slot][p / BLOCK]
//
// A block takes one token. Memory bound.
#pragma once
#include "device/io.h"
#include "device/pdl.cuh"
#include "device/vec.cuh"

struct CacheKeysArgs {
    const void *keys;
    const FtxStep *step;
    const FtxToken *token;
    const int *pages;
    void *k;
};

template <class K> DEVICE void cache_keys(const CacheKeysArgs &a)
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
    const int page = a.pages[token.slot * K::PAGES + token.pos / K::BLOCK];
    for (int i = threadIdx.x; i < N; i += K::THREADS) {
        const int at = i * VEC, g = at / K::E;
        const T *from = (const T *)a.keys + (i64)t * K::G * K::E + at;
        KV *to = (KV *)a.k + (((i64)page * K::G + g) * K::BLOCK + token.pos % K::BLOCK) * K::E + at % K::E;
        store(to, from_floats<KV>(to_floats(load<VEC>(from))));
    }
}
