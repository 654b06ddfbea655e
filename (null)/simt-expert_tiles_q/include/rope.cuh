// rope.cuh - rotates pairs of values of each head by the token's position (RoPE). Su et al. 2021, eq. 15.
//
//   x, y [T, H, E]    table [positions][ROT/2] {cos, sin}
//
// HALF: pair i is values i and i + ROT/2, else 2i and 2i + 1. Values from ROT on stay as they are. A block takes one token.
// Where the product before it can rotate (body/append.cuh), this kernel is not used. Memory bound.
//
// rope_counted counts positions within the prefix (the prompt without its last TAIL tokens), where they stay at its last
// token behind it; with REST they are 0 within it and go on behind it, from 1.
#pragma once
#include "device/io.h"
#include "device/pdl.cuh"
#include "device/types.cuh"

struct RopeArgs {
    const void *x;
    const float *table;
    const FtxStep *step;
    const FtxToken *token;
    void *y;
};

struct RopeCountedArgs {
    const void *x;
    const float *table;
    const FtxStep *step;
    const FtxRow *rows;
    const FtxToken *token;
    void *y;
};

template <class K, class Args> DEVICE void rotate_token(const Args &a, int t, int pos)
{
    typedef typename K::T T;
    constexpr int PAIRS = K::E / 2, TURNED = K::ROT / 2;
    static_assert(K::E % 2 == 0 && K::ROT % 2 == 0, "pairs");
    const float *turn = a.table + (i64)pos * K::ROT;
    const T *x = (const T *)a.x + (i64)t * K::H * K::E;
    T *y = (T *)a.y + (i64)t * K::H * K::E;
    for (int i = threadIdx.x; i < K::H * PAIRS; i += K::THREADS) {
        const int p = i % PAIRS, head = i / PAIRS * K::E;
        const bool turned = p < TURNED;
        const int one = head + (turned && K::HALF ? p : 2 * p), two = turned && K::HALF ? one + TURNED : one + 1;
        const float c = turned ? turn[2 * p] : 1.0f, s = turned ? turn[2 * p + 1] : 0.0f;
        const float u = to_float(x[one]), w = to_float(x[two]);
        y[one] = from_float<T>(fmaf(u, c, -__fmul_rn(w, s)));
        y[two] = from_float<T>(fmaf(u, s, __fmul_rn(w, c)));
    }
}

template <class K> DEVICE void rope(const RopeArgs &a)
{
    launch_dependents();
    wait_for_previous();
    const int t = blockIdx.x;
    if (t >= a.step->tokens)
        return;
    rotate_token<K>(a, t, a.token[t].pos);
}

template <class K> DEVICE void rope_counted(const RopeCountedArgs &a)
{
    launch_dependents();
    wait_for_previous();
    const int t = blockIdx.x;
    if (t >= a.step->tokens)
        return;
    const int pos = a.token[t].pos, prefix = most(1, a.rows[a.token[t].row].prompt - K::TAIL);
    rotate_token<K>(a, t, K::REST ? most(0, pos - prefix + 1) : least(pos, prefix - 1));
}
