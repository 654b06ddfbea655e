// attend_cross.cuh - attention of a decoder's tokens over the source of their sequence, whose keys and
// values were computed once.
//
//   q, y [T, H*E]      k, v [slots][G][SOURCE][E]: those of a row stand in slot src_slot, src_len tokens
//
// A block takes one head of one token. Each warp walks every WARPS-th tile of 32 keys: for the scores
// a lane has one key, for the sum it has columns lane, lane + 32, ...; the probabilities go from lane
// to lane. Then the warps' parts are put together. The order of a sum follows from the source's
// length alone. Memory bound: each head of a token reads its keys and values once; the lanes of a
// beam read the same ones, from L2.
#pragma once
#include "device/block.cuh"
#include "device/fragment.cuh"
#include "device/io.h"
#include "device/pdl.cuh"
#include "device/vec.cuh"

struct AttendCrossArgs {
    const void *q;
    const void *c; // not there: it stands in k and v
    const FtxStep *step;
    const FtxRow *rows;
    const FtxToken *token;
    const void *k, *v;
    void *y;
};

template <class K> DEVICE void attend_cross(const AttendCrossArgs &a)
{
    typedef typename K::T T;
    typedef typename K::KV KV;
    constexpr int WARPS = K::THREADS / 32, C = ceil_div(K::E, 32), VEC = vec_width<KV>(K::E);
    constexpr float BY = K::SCALE * 1.4426950408889634f; // exponents of 2
    SHARED(float, query, K::E);
    SHARED(float, part, WARPS * (K::E + 2));
    launch_dependents();
    wait_for_previous();
    const int t = blockIdx.y, h = blockIdx.x, lane = lane_id();
    if (t >= a.step->tokens)
        return;
    const FtxRow &row = a.rows[a.token[t].row];
    const i64 head = ((i64)row.src_slot * K::KV_HEADS + h / (K::HEADS / K::KV_HEADS)) * K::SOURCE * K::E;
    const KV *k = (const KV *)a.k + head, *v = (const KV *)a.v + head;
    const int n = row.src_len;
    const i64 at = ((i64)t * K::HEADS + h) * K::E;

    for (int e = threadIdx.x; e < K::E; e += K::THREADS)
        query[e] = to_float(((const T *)a.q)[at + e]) * BY;
    block_sync();
    float most_ = negative_infinity(), sum = 0.0f, y[C];
#pragma unroll
    for (int i = 0; i < C; i++)
        y[i] = 0.0f;
    for (int from = warp_id() * 32; from < n; from += K::THREADS) {
        const int key = from + lane, count = least(32, n - from);
        float s = negative_infinity();
        if (key < n) {
            s = 0.0f;
#pragma unroll
            for (int e = 0; e < K::E; e += VEC) {
                const Vec<float, VEC> f = to_floats(load<VEC>(k + (i64)key * K::E + e));
#pragma unroll
                for (int i = 0; i < VEC; i++)
                    s = fmaf(f[i], query[e + i], s);
            }
        }
        const float high = fmaxf(most_, warp_max(s)), keep = exp2f(most_ - high), p = exp2f(s - high);
        most_ = high;
        sum = sum * keep + warp_sum(p);
#pragma unroll
        for (int i = 0; i < C; i++)
            y[i] *= keep;
#pragma unroll 4
        for (int j = 0; j < count; j++) {
            const float by = shuffle(p, j);
#pragma unroll
            for (int i = 0; i < C; i++)
                if (i * 32 + lane < K::E)
                    y[i] = fmaf(by, to_float(v[(i64)(from + j) * K::E + i * 32 + lane]), y[i]);
        }
    }
    float *mine = part + warp_id() * (K::E + 2);
#pragma unroll
    for (int i = 0; i < C; i++)
        if (i * 32 + lane < K::E)
            mine[i * 32 + lane] = y[i];
    if (lane == 0) {
        mine[K::E] = most_;
        mine[K::E + 1] = sum;
    }
    block_sync();
    const int used = least(WARPS, ceil_div(n, 32)); // warps that had a key
    for (int e = threadIdx.x; e < K::E; e += K::THREADS) {
        float high = part[K::E], all = 0.0f, value = 0.0f;
        for (int w = 1; w < used; w++)
            high = fmaxf(high, part[w * (K::E + 2) + K::E]);
        for (int w = 0; w < used; w++) {
            const float by = exp2f(part[w * (K::E + 2) + K::E] - high);
            all += part[w * (K::E + 2) + K::E + 1] * by;
            value += part[w * (K::E + 2) + e] * by;
        }
        ((T *)a.y)[at + e] = from_float<T>(value / all);
    }
}
