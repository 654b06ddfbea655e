// elementwise.cuh - element by element, beside act.cuh: clamps, gates within limits, scales by position, parts of heads,
// weights of routes. Memory bound.
//
//   x, a, b, y  [M, C]  row-major, one type, computed in fp32
//
// blockIdx.x is the row; blocks along y share its columns.
#pragma once
#include "body/rows.cuh"
#include "device/pdl.cuh"
#include "device/vec.cuh"

struct ElementArgs { const void *x; const FtxStep *step; void *y; };
struct PositionArgs { const void *x; const FtxToken *token; const FtxStep *step; void *y; };
struct RankSliceArgs { const void *x, *h; const FtxPeers *peers; const FtxStep *step; void *y; };
struct PartsArgs { const void *a, *b; const FtxStep *step; void *y; };

// Calls each(row, column) for the elements that this thread computes.
template <class K, class F> DEVICE void for_elements(const FtxStep *step, F each)
{
    launch_dependents();
    wait_for_previous();
    if ((int)blockIdx.x >= live_rows<K::ROWS_S>(step))
        return;
    for (int i = blockIdx.y * K::THREADS + threadIdx.x; i < K::C; i += gridDim.y * K::THREADS)
        each((i64)blockIdx.x, i);
}

DEVICE float clamped(float x, float low, float high) { return fminf(fmaxf(x, low), high); }

// y[m,i] = x[m,i], at least LOW, at most HIGH
template <class K> DEVICE void clamp(const ElementArgs &a)
{
    typedef typename K::T T;
    for_elements<K>(a.step, [&](i64 row, int i) {
        const float x = to_float(((const T *)a.x)[row * K::C + i]);
        ((T *)a.y)[row * K::C + i] = from_float<T>(clamped(x, K::LOW, K::HIGH));
    });
}

// y[m,i] = g * sigmoid(ALPHA * g) * (u + 1): g = x[m,2i] is at most LIMIT, u = x[m,2i+1] at most LIMIT away from 0
template <class K> DEVICE void glu_clamped(const ElementArgs &a)
{
    typedef typename K::T T;
    for_elements<K>(a.step, [&](i64 row, int i) {
        const T *x = (const T *)a.x + (row * K::C + i) * 2;
        const float g = fminf(to_float(x[0]), K::LIMIT), u = clamped(to_float(x[1]), -K::LIMIT, K::LIMIT);
        ((T *)a.y)[row * K::C + i] = from_float<T>(g / (1.0f + expf(-K::ALPHA * g)) * (u + 1.0f));
    });
}

// y[t,i] = x[t,i] * (1 + BY * log(1 + floor((position + OFFSET) / EVERY)))
template <class K> DEVICE void scale_by_position(const PositionArgs &a)
{
    typedef typename K::T T;
    for_elements<K>(a.step, [&](i64 row, int i) {
        const int steps = (a.token[row].pos + K::OFFSET) / K::EVERY;
        const float by = fmaf(K::BY, logf((float)(steps + 1)), 1.0f);
        ((T *)a.y)[row * K::C + i] = from_float<T>(to_float(((const T *)a.x)[row * K::C + i]) * by);
    });
}

// y [T, H, E]: elements FROM .. FROM + E - 1 of each head of x [T, H, N]; C = H * E
template <class K> DEVICE void slice_heads(const ElementArgs &a)
{
    typedef typename K::T T;
    for_elements<K>(a.step, [&](i64 row, int i) {
        const i64 head = row * (K::C / K::E) + i / K::E;
        ((T *)a.y)[row * K::C + i] = ((const T *)a.x)[head * K::N + K::FROM + i % K::E];
    });
}

// y [T, H, E]: in each head the elements of a [T, H, A], then those of b [T, HB, E - A]; HB is H, or 1 for all heads
template <class K> DEVICE void join_parts(const PartsArgs &a)
{
    typedef typename K::T T;
    for_elements<K>(a.step, [&](i64 row, int i) {
        constexpr int H = K::C / K::E, B = K::E - K::A;
        const int head = i / K::E, e = i % K::E;
        ((T *)a.y)[row * K::C + i] = e < K::A ? ((const T *)a.a)[(row * H + head) * K::A + e]
                                              : ((const T *)a.b)[(row * K::HB + head % K::HB) * B + e - K::A];
    });
}

// y[m,i] = the weight of the i-th expert of row m; x [M, 2C] i32, the weights' bits behind C numbers of experts
template <class K> DEVICE void route_weights(const ElementArgs &a)
{
    typedef typename K::T T;
    for_elements<K>(a.step, [&](i64 row, int i) {
        ((T *)a.y)[row * K::C + i] = from_float<T>(((const float *)a.x)[row * 2 * K::C + K::C + i]);
    });
}

// y [M, C]: piece rank * OF / ranks of the OF * C columns of x; h: the same of heads
template <class K> DEVICE void rank_slice(const RankSliceArgs &a)
{
    typedef typename K::T T;
    const i64 first = (i64)(a.peers->rank * K::OF / a.peers->ranks) * K::C;
    const T *x = (const T *)(a.x ? a.x : a.h);
    for_elements<K>(a.step, [&](i64 row, int i) { ((T *)a.y)[row * K::C + i] = x[row * (i64)(K::C * K::OF) + first + i]; });
}
