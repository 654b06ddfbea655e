// attend.cuh - attention as a graph says it, with whatever changes a score: for what the other kernels do not compute.
//
//   y[i,h] = sum_j softmax_j(cap(SCALE * q[i,h] . k[j]) + bias[h, j - i] + slope[h] * (j - i)) v[j]
//
//   q, y [T, H, E]. Where keys and values lie (PLACE), and which of them token i of a sequence sees:
//     0  the layer's pages (body/paged.cuh)    keys up to i
//     1  rows of this step, [T, G, E]          all of the token's text, with CAUSAL those up to i
//     2  the source, [sources][G][SOURCE][E]   all of it
//   WINDOW      0: no limit; else the last WINDOW keys up to i, with PLACE 1 and not CAUSAL those at most WINDOW away
//   bias        [H, SPAN] fp32, column j - i + SPAN/2, the nearest there is; slopes, sinks [H] fp32. Each may be NULL
//   sinks       a key more with this score and no value
//   CHUNK       0: none; else a token sees its own run of CHUNK keys up to itself: runs begin at multiples of CHUNK
//   PREFIX      with PLACE 0: a token sees all of its prompt but the last TAIL tokens, too
//   ROUNDED     slopes are multiplied by j and by SCALE in place of j - i, with slope, j and their product as bf16 holds them
//
// A block takes one head of one token. Warp w takes tiles of 32 keys w, w + WARPS, ... from the first key that the token
// sees; a lane has one score of a tile, and of the sum of values columns lane, lane + 32, ... The warps' results are added in
// order, so the bits of a result depend on the token's position alone. Bound by the caches: keys are not shared by tokens.
#pragma once
#include "device/block.cuh"
#include "device/fragment.cuh"
#include "device/io.h"
#include "device/pdl.cuh"
#include "device/vec.cuh"

struct AttendArgs {
    const void *q, *keys, *values;
    const float *bias, *slopes, *sinks;
    const FtxStep *step;
    const FtxRow *rows;
    const FtxToken *token;
    const int *pages;
    const void *k, *v, *cross_k, *cross_v;
    const int *owner; // of positions of the lanes of a beam search: [slots][CONTEXT]
    void *y;
};

// The type of keys and values: of this step's rows T, else that of the cache.
template <int PLACE, class T, class KV> struct AttendKey { typedef KV Type; };
template <class T, class KV> struct AttendKey<1, T, KV> { typedef T Type; };

// The rows of keys and values of one (sequence, kv head).
template <class K> struct AttendRows {
    typedef typename AttendKey<K::PLACE, typename K::T, typename K::KV>::Type KEY;
    const AttendArgs &a;
    const FtxRow &row;
    const int head;

    DEVICE const KEY *keys() const { return (const KEY *)(K::PLACE == 1 ? a.keys : K::PLACE == 2 ? a.cross_k : a.k); }
    DEVICE const KEY *values() const { return (const KEY *)(K::PLACE == 1 ? a.values : K::PLACE == 2 ? a.cross_v : a.v); }
    DEVICE i64 at(int j) const
    {
        if (K::PLACE == 1)
            return ((i64)(row.q_start + j) * K::G + head) * K::E;
        if (K::PLACE == 2)
            return (((i64)row.src_slot * K::G + head) * K::SOURCE + j) * K::E;
        int slot = row.slot;
        if (K::BEAM && row.lane >= 0 && j != row.kv_len - 1)
            slot = j < row.prompt ? a.rows[row.group].slot : a.owner[(i64)slot * K::CONTEXT + j];
        const i64 page = a.pages[(i64)slot * ceil_div(K::CONTEXT, K::BLOCK) + j / K::BLOCK];
        return ((page * K::G + head) * K::BLOCK + j % K::BLOCK) * K::E;
    }
};

// x as bf16 holds it.
DEVICE float as_bf16(float x) { return to_float(from_float<bf16>(x)); }

template <class K> // K: T KV H G E PLACE CAUSAL WINDOW SPAN BEAM BLOCK CONTEXT SOURCE SCALE SOFTCAP WARPS CHUNK ROUNDED PREFIX TAIL
DEVICE void attend(const AttendArgs &a)
{
    typedef typename K::T T;
    typedef typename AttendRows<K>::KEY KEY;
    constexpr int C = ceil_div(K::E, 32), VEC = vec_width<KEY>(K::E), HALF = K::SPAN / 2;
    constexpr float LOG2E = 1.4426950408889634f;
    SHARED(float, query, K::E);
    SHARED(float, partial, K::WARPS * (K::E + 2));
    launch_dependents();
    wait_for_previous();
    const int t = blockIdx.y, h = blockIdx.x, lane = lane_id();
    if (t >= a.step->tokens)
        return;
    const FtxRow &row = a.rows[a.token[t].row];
    const AttendRows<K> cached{a, row, h / (K::H / K::G)};
    const int i = t - row.q_start + (K::PLACE == 0 ? row.kv_len - row.q_len : 0);
    const int own = K::PLACE == 2 ? row.src_len : K::PLACE == 0 || K::CAUSAL ? i + 1 : row.q_len;
    const int end = K::PREFIX ? most(own, least(row.prompt - K::TAIL, row.kv_len)) : own;
    const int near = K::WINDOW > 0 ? most(0, i - K::WINDOW + (K::PLACE == 0 || K::CAUSAL ? 1 : 0)) : 0;
    const int first = K::CHUNK > 0 ? most(near, i - i % (K::CHUNK > 0 ? K::CHUNK : 1)) : near;
    const int last = K::WINDOW > 0 ? least(end, i + K::WINDOW + 1) : end;
    const i64 at = ((i64)t * K::H + h) * K::E;

    for (int e = threadIdx.x; e < K::E; e += K::WARPS * 32)
        query[e] = to_float(((const T *)a.q)[at + e]) * K::SCALE;
    block_sync();
    float high = negative_infinity(), sum = 0.0f, y[C];
#pragma unroll
    for (int c = 0; c < C; c++)
        y[c] = 0.0f;
    for (int from = first + warp_id() * 32; from < last; from += K::WARPS * 32) {
        const int j = from + lane, count = least(32, last - from);
        const i64 place = j < last ? cached.at(j) : 0;
        float s = negative_infinity();
        if (j < last) {
            s = 0.0f;
            for (int e = 0; e < K::E; e += VEC) {
                const Vec<float, VEC> f = to_floats(load<VEC>(cached.keys() + place + e));
#pragma unroll
                for (int n = 0; n < VEC; n++)
                    s = fmaf(f[n], query[e + n], s);
            }
            if (K::SOFTCAP > 0.0f)
                s = tanhf(s / (K::SOFTCAP > 0.0f ? K::SOFTCAP : 1.0f)) * K::SOFTCAP;
            if (K::SPAN > 0)
                s += a.bias[h * K::SPAN + most(-HALF, least(HALF, j - i)) + HALF];
            if (K::SLOPES && K::ROUNDED)
                s = fmaf(as_bf16(as_bf16(a.slopes[h]) * as_bf16((float)j)), K::SCALE, s);
            else if (K::SLOPES)
                s = fmaf(a.slopes[h], (float)(j - i), s);
            s *= LOG2E;
        }
        const float top = fmaxf(high, warp_max(s)), keep = exp2f(high - top), p = exp2f(s - top);
        high = top;
        sum = sum * keep + warp_sum(p);
#pragma unroll
        for (int c = 0; c < C; c++)
            y[c] *= keep;
        for (int n = 0; n < count; n++) {
            const float by = shuffle(p, n);
            const KEY *value = cached.values() + shuffle(place, n);
#pragma unroll
            for (int c = 0; c < C; c++)
                if (c * 32 + lane < K::E)
                    y[c] = fmaf(by, to_float(value[c * 32 + lane]), y[c]);
        }
    }
    float *mine = partial + warp_id() * (K::E + 2);
#pragma unroll
    for (int c = 0; c < C; c++)
        if (c * 32 + lane < K::E)
            mine[c * 32 + lane] = y[c];
    if (lane == 0) {
        mine[K::E] = high;
        mine[K::E + 1] = sum;
    }
    block_sync();
    const int used = least(K::WARPS, ceil_div(last - first, 32)); // warps that had a key
    for (int e = threadIdx.x; e < K::E; e += K::WARPS * 32) {
        const float sink = K::SINKS ? a.sinks[h] * LOG2E : negative_infinity();
        float top = sink, value = 0.0f;
        for (int w = 0; w < used; w++)
            top = fmaxf(top, partial[w * (K::E + 2) + K::E]);
        float all = K::SINKS ? exp2f(sink - top) : 0.0f;
        for (int w = 0; w < used; w++) {
            const float by = exp2f(partial[w * (K::E + 2) + K::E] - top);
            all += partial[w * (K::E + 2) + K::E + 1] * by;
            value += partial[w * (K::E + 2) + e] * by;
        }
        ((T *)a.y)[at + e] = from_float<T>(value / all);
    }
}
