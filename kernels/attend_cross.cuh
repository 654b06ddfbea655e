// attend_cross.cuh - attention of a decoder's tokens over the source of their sequence, whose keys and
// values were computed once.
//
//   q, y [T, H*E]      k, v [sources][G][SOURCE][E]: those of a row stand in slot src_slot, src_len tokens
//
// Two forms. A warp walks every WARPS-th tile of keys, and the warps' parts are put together, so the
// order of a sum follows from the source's length alone.
//
//   columns  16-bit, on the matrix units (body/source.cuh): a block takes one head of UNIT neighbouring tokens.
//   plain    any types, by FMA: one head of one token. Of a tile of 32 keys a lane has one for the
//            scores, and columns lane, lane + 32, ... for the sum; the probabilities go from lane to lane.
#pragma once
#include "device/block.cuh"
#include "device/fragment.cuh"
#include "device/io.h"
#include "device/pdl.cuh"
#include "device/vec.cuh"
#include "body/source.cuh"

struct AttendCrossArgs {
    const void *q;
    const void *c; // not there: it stands in k and v
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
    constexpr int WARPS = K::WALKERS;
    SHARED(float, part, WARPS * K::UNIT * C::PART);
    SHARED(int, lengths, K::UNIT);
    const int base = blockIdx.y * K::UNIT, lane = lane_id(), g = lane / 4;
    const SourceCache cache = {a.k, a.v, (int)blockIdx.x};
    char *tiles = shared_memory() + warp_id() * K::HELD * C::BYTES;
    launch_dependents();

    // $step, $token and $rows are written between programs only.
    const int live = least(K::UNIT, a.step->tokens - base);
    if (live <= 0) {
        wait_for_previous(); // a block that leaves early would let later kernels run early
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
    source_attend<K>(cache, walk, ahead, tiles, query, part + warp_id() * K::UNIT * C::PART);
    block_sync();
    for (int i = threadIdx.x * 2; i < live * K::E; i += K::THREADS * 2) {
        const int n = i / K::E, warps = least(WARPS, ceil_div(lengths[n], C::TILE));
        const Vec<float, 2> y = add_parts<K>(part + n * C::PART, warps, K::UNIT * C::PART, i % K::E);
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

template <class K> // K: T KV HEADS KV_HEADS E SOURCE SCALE UNIT THREADS
DEVICE void attend_cross(const AttendCrossArgs &a)
{
    if constexpr (K::UNIT > 0)
        attend_cross_columns<K>(a);
    else
        attend_cross_plain<K>(a);
}
