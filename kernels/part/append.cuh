// append.cuh - one pair of a token's q, k, v: rotated where it must be, and written where it
// belongs. The column n (even) of [q heads | k heads | v heads] says which.
//
//   table  [positions][ROT/2] {cos, sin}: RoPE of neighbour pairs; NULL with ROT = 0
//   cache  [pages][G][BLOCK][E], position p of a slot: page pages[slot][p / BLOCK], row p % BLOCK
#pragma once
#include "device/vec.cuh"
#include "device/io.h"

struct AppendTo {
    const float *table;
    const int *pages;
    void *k, *v;  // of the layer
    void *q;      // [T, H*E]
};

// K: OUT type of q, KV type of the cache, H, G, E, ROT, BLOCK, PAGES (pages of a sequence).
template <class K, int PAIRS>
DEVICE void append_pairs(const AppendTo &to, const FtxToken &token, int t, int n, Vec<float, 2 * PAIRS> x)
{
    const int head = n / K::E, e = n - head * K::E;
    if (K::ROT > 0 && head < K::H + K::G) {
        const float *cs = to.table + (i64)token.pos * K::ROT + e;  // {cos, sin} of pair e/2
#pragma unroll
        for (int i = 0; i < PAIRS; i++)
            if (e + 2 * i < K::ROT) {
                const float c = cs[2 * i], s = cs[2 * i + 1], a = x[2 * i], b = x[2 * i + 1];
                x[2 * i] = fmaf(a, c, -__fmul_rn(b, s));  // as written: the same bits in every kernel
                x[2 * i + 1] = fmaf(a, s, __fmul_rn(b, c));
            }
    }
    if (head < K::H) {
        typedef typename K::OUT O;
        store((O *)to.q + (i64)t * (K::H * K::E) + n, from_floats<O>(x));
        return;
    }
    typedef typename K::KV V;
    const int page = to.pages[token.slot * K::PAGES + token.pos / K::BLOCK];
    const int kv = head - K::H, g = kv < K::G ? kv : kv - K::G;
    V *base = (V *)(kv < K::G ? to.k : to.v);
    store(base + (((i64)page * K::G + g) * K::BLOCK + token.pos % K::BLOCK) * K::E + e, from_floats<V>(x));
}
