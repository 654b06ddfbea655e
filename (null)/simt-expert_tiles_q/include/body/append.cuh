// append.cuh - where a pair of columns of a token's [q heads | k heads | v heads] goes: RoPE, then q or the paged cache.
//
//   table  [positions][ROT/2] {cos, sin}: rotates pairs of neighbouring columns of q and k; NULL with ROT = 0
//   cache  k and v of the layer, each [pages][G][BLOCK][E]; position p of a slot is row p % BLOCK of page
//          pages[slot][p / BLOCK]
#pragma once
#include "device/vec.cuh"
#include "device/io.h"

struct AppendTo {
    void *k, *v;  // of the layer
    void *q;      // [T, H*E]
};
struct AppendRow {
    int page, at;     // page and row in it of the token's key and value
    const float *cs;  // {cos, sin} of ROT/2 pairs at the token's position
};

template <class K> DEVICE AppendRow append_row(const FtxToken &t, const int *pages, const float *table)
{
    return AppendRow{pages[t.slot * K::PAGES + t.pos / K::BLOCK], t.pos % K::BLOCK, table + (i64)t.pos * K::ROT};
}

// {cos, sin} of the pairs of columns n, n + 2, ...; {1, 0} for pairs that are not rotated.
template <class K, int PAIRS> DEVICE Vec<float, 2 * PAIRS> append_angles(const AppendRow &row, int n)
{
    const int head = n / K::E, e = n - head * K::E;
    Vec<float, 2 * PAIRS> cs;
#pragma unroll
    for (int i = 0; i < PAIRS; i++) {
        const bool turned = K::ROT > 0 && head < K::H + K::G && e + 2 * i < K::ROT;
        cs[2 * i] = turned ? row.cs[e + 2 * i] : 1.0f;
        cs[2 * i + 1] = turned ? row.cs[e + 2 * i + 1] : 0.0f;
    }
    return cs;
}

template <int PAIRS> DEVICE void append_turn(const Vec<float, 2 * PAIRS> &cs, Vec<float, 2 * PAIRS> &x)
{
#pragma unroll
    for (int i = 0; i < PAIRS; i++) {
        const float c = cs[2 * i], s = cs[2 * i + 1], a = x[2 * i], b = x[2 * i + 1];
        x[2 * i] = fmaf(a, c, -__fmul_rn(b, s));  // no choice of contraction: the same bits in every kernel
        x[2 * i + 1] = fmaf(a, s, __fmul_rn(b, c));
    }
}

// The cache's address of column n, which is one of k or v.
template <class K> DEVICE typename K::KV *append_cached(void *k, void *v, const AppendRow &row, int n)
{
    const int kv = n / K::E - K::H, g = kv < K::G ? kv : kv - K::G;
    return (typename K::KV *)(kv < K::G ? k : v) + (((i64)row.page * K::G + g) * K::BLOCK + row.at) * K::E + n % K::E;
}

// Stores PAIRS pairs of columns of token t, from column n on.
// K: OUT type of q, KV type of the cache, H, G, E, ROT, BLOCK, PAGES (pages of a sequence).
template <class K, int PAIRS>
DEVICE void append_pairs(const AppendTo &to, const AppendRow &row, const Vec<float, 2 * PAIRS> &cs, int t, int n,
                         Vec<float, 2 * PAIRS> x)
{
    if (K::ROT > 0)
        append_turn<PAIRS>(cs, x);
    if (n < K::H * K::E) {
        typedef typename K::OUT O;
        store((O *)to.q + (i64)t * (K::H * K::E) + n, from_floats<O>(x));
        return;
    }
    typedef typename K::KV V;
    store(append_cached<K>(to.k, to.v, row, n), from_floats<V>(x));
}
