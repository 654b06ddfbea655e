// attend_cross.cuh - attention of a decoder's tokens over the source of their sequence.
//
//   y[t,h] = sum_j softmax_j(SCALE * q[t,h] . k[j]) v[j]      j < src_len of the token's row
//
//   q, y [T, H*E]
//   k, v [sources][G][SOURCE][E]    written once a source by cross_append; those of a row are in slot src_slot
//
// Grid: blockIdx.x is the head, blockIdx.y the token or group of UNIT neighbouring tokens. Two forms; in both warp w
// takes the tiles of keys w, w + WARPS, ... and the block adds the warps' results in order, so the order of a sum
// follows from the source's length alone.
//
//   columns  UNIT > 0: 16 bits, on the matrix units (body/source.cuh), UNIT tokens (the lanes of a beam) a block
//   plain    UNIT = 0: any types, by FMA, one token a block. Of a tile of 32 keys a lane computes one score; for the
//            sum of values it has columns lane, lane + 32, ..., and the weights are shuffled from lane to lane.
#pragma once
#include "device/block.cuh"
#include "device/fragment.cuh"
#include "device/io.h"
#include "device/pdl.cuh"
#include "device/vec.cuh"
#include "body/source.cuh"

struct AttendCrossArgs {
    const void *q;
    const void *c; // the graph's operand; its data are in k and v
    const FtxStep *step;
    const FtxRow *rows;
    const FtxToken *token;
    const void *k, *v;
    void *y;
};

template <class K> DEVICE void attend_cross_columns(const AttendCrossArgs &a)
{
    using C = Columns<K>;
    using T = typename K::T;
    constexpr int WARPS = K::KEY_WARPS;
    SHARED(float, partial, WARPS * K::UNIT * C::PARTIAL);
    SHARED(int, lengths, K::UNIT);
    const int base = blockIdx.y * K::UNIT, lane = lane_id(), g = lane / 4;
    const SourceCache cache = {a.k, a.v, (int)blockIdx.x};
    char *tiles = shared_memory() + warp_id() * K::STAGES * K::TILE_BYTES;
    launch_dependents();

    // $step, $token and $rows are written between programs only.
    const int live = least(K::UNIT, a.step->tokens - base);
    if (live <= 0) {
        wait_for_previous(); // a block that exits without waiting would let later kernels start early
        return;
    }
    int slot = 0, length = 0;
    if (lane < live) {
        const FtxRow &row = a.rows[a.token[base + lane].row];
        slot = row.src_slot;
        length = row.src_len;
        if (warp_id() == 0)
            lengths[lane] = length;
    }
    SourceWalk<K> walk;
    walk.start(live, slot, length);
    const SourceWalk<K> ahead = source_begin<K>(cache, walk, tiles);
    wait_for_previous();

    const T *query = g < live ? (const T *)a.q + ((i64)(base + g) * K::HEADS + blockIdx.x) * K::E : nullptr;
    source_attend<K>(cache, walk, ahead, tiles, query, partial + warp_id() * K::UNIT * C::PARTIAL);
    block_sync();
    for (int i = threadIdx.x * 2; i < live * K::E; i += K::THREADS * 2) {
        const int n = i / K::E, warps = least(WARPS, ceil_div(lengths[n], C::TILE));
        const Vec<float, 2> y = add_partials<K>(partial + n * C::PARTIAL, warps, K::UNIT * C::PARTIAL, i % K::E);
        store((T *)a.y + ((i64)(base + n) * K::HEADS + blockIdx.x) * K::E + i % K::E, from_floats<T>(y));
    }
}

template <class K> DEVICE void attend_cross_plain(const AttendCrossArgs &a)
{
    typedef typename K::T T;
    typedef typename K::KV KV;
    constexpr int WARPS = K::THREADS / 32, C = ceil_div(K::E, 32), VEC = vec_width<KV>(K::E);
    constexpr float BY = K::SCALE * 1.4426950408889634f; // exponents of 2
    SHARED(float, query, K::E);
    SHARED(float, partial, WARPS * (K::E + 2));
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
    float *mine = partial + warp_id() * (K::E + 2);
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
        float high = partial[K::E], all = 0.0f, value = 0.0f;
        for (int w = 1; w < used; w++)
            high = fmaxf(high, partial[w * (K::E + 2) + K::E]);
        for (int w = 0; w < used; w++) {
            const float by = exp2f(partial[w * (K::E + 2) + K::E] - high);
            all += partial[w * (K::E + 2) + K::E + 1] * by;
            value += partial[w * (K::E + 2) + e] * by;
        }
        ((T *)a.y)[at + e] = from_float<T>(value / all);
    }
}

template <class K> // K: T KV HEADS KV_HEADS E SOURCE SCALE UNIT THREADS
DEVICE void attend_cross(const AttendCrossArgs &a)
{
    if constexpr (K::UNIT > 0)
        attend_cross_columns<K>(a);
    else
        attend_cross_plain<K>(a);
}
