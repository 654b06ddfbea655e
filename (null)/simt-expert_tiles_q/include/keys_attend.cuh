// keys_attend.cuh - causal attention over a cache of keys whose first V elements are their values.
//
//   y[i,h] = sum_j softmax_j(cap(SCALE * q[i,h] . k[j])) k[j][:V],   j <= i, j > i - WINDOW
//
//   q [T, H, E], y [T, H, V]; k: the layer's pages, [pages][G][BLOCK][E]. sinks [H] fp32: a key more with this score and no
//   value; may be NULL. With V = E values are keys; latent attention has one kv head of E = V + rotated elements.
//
// A block takes HEADS heads of one token that read the same keys. Warp w takes tiles of 32 keys w, w + WARPS, ... from the
// first key that the token sees; a lane has one key of a tile, whose scores with all heads it computes from one read, and of
// the sums of values columns lane, lane + 32, ... The warps' results are added in order: the order of sums is that of
// attend.cuh, and the bits of a result depend on the token's position alone. Bound by multiply-adds: there is no form with
// matrix instructions yet.
#pragma once
#include "device/block.cuh"
#include "device/fragment.cuh"
#include "device/io.h"
#include "device/pdl.cuh"
#include "device/vec.cuh"

struct KeysAttendArgs {
    const void *q, *keys;
    const float *sinks;
    const FtxStep *step;
    const FtxRow *rows;
    const FtxToken *token;
    const int *pages;
    const void *k;
    const int *owner; // of positions of the lanes of a beam search: [slots][CONTEXT]
    void *y;
};

// Where the key of position j begins.
template <class K> DEVICE const typename K::KV *keys_at(const KeysAttendArgs &a, const FtxRow &row, int g, int j)
{
    int slot = row.slot;
    if (K::BEAM && row.lane >= 0 && j != row.kv_len - 1)
        slot = j < row.prompt ? a.rows[row.group].slot : a.owner[(i64)slot * K::CONTEXT + j];
    const i64 page = a.pages[(i64)slot * ceil_div(K::CONTEXT, K::BLOCK) + j / K::BLOCK];
    return (const typename K::KV *)a.k + ((page * K::G + g) * K::BLOCK + j % K::BLOCK) * K::E;
}

// The scores of one key with all heads; query: [HEADS][E].
template <class K, int N> DEVICE void keys_scores(const typename K::KV *key, const float *query, float (&s)[N])
{
    constexpr int VEC = vec_width<typename K::KV>(K::E);
    for (int e = 0; e < K::E; e += VEC) {
        const Vec<float, VEC> f = to_floats(load<VEC>(key + e));
#pragma unroll
        for (int h = 0; h < N; h++)
#pragma unroll
            for (int n = 0; n < VEC; n++)
                s[h] = fmaf(f[n], query[h * K::E + e + n], s[h]);
    }
#pragma unroll
    for (int h = 0; h < N; h++) {
        if (K::SOFTCAP > 0.0f)
            s[h] = tanhf(s[h] / (K::SOFTCAP > 0.0f ? K::SOFTCAP : 1.0f)) * K::SOFTCAP;
        s[h] *= 1.4426950408889634f; // of exponentials of 2
    }
}

// Adds the warps' results for one head, in order: partial [WARPS][HEADS][V + 2].
template <class K> DEVICE void keys_finish(const KeysAttendArgs &a, const float *partial, int used, int h, int head, i64 at)
{
    typedef typename K::T T;
    constexpr int ROW = K::V + 2;
    const float sink = K::SINKS ? a.sinks[head] * 1.4426950408889634f : negative_infinity();
    for (int e = threadIdx.x; e < K::V; e += K::WARPS * 32) {
        float top = sink, value = 0.0f;
        for (int w = 0; w < used; w++)
            top = fmaxf(top, partial[(w * K::HEADS + h) * ROW + K::V]);
        float all = K::SINKS ? exp2f(sink - top) : 0.0f;
        for (int w = 0; w < used; w++) {
            const float *mine = partial + (w * K::HEADS + h) * ROW;
            const float by = exp2f(mine[K::V] - top);
            all += mine[K::V + 1] * by;
            value += mine[e] * by;
        }
        ((T *)a.y)[at + e] = from_float<T>(value / all);
    }
}

template <class K> // K: T KV H G E V HEADS WINDOW SINKS BEAM BLOCK CONTEXT SCALE SOFTCAP WARPS
DEVICE void keys_attend(const KeysAttendArgs &a)
{
    typedef typename K::T T;
    typedef typename K::KV KV;
    constexpr int C = ceil_div(K::V, 32), EACH = K::H / K::G, RUNS = ceil_div(EACH, K::HEADS), ROW = K::V + 2;
    SHARED(float, query, K::HEADS * K::E);
    SHARED(float, partial, K::WARPS * K::HEADS * (K::V + 2));
    launch_dependents();
    wait_for_previous();
    const int t = blockIdx.y, g = blockIdx.x / RUNS, from = blockIdx.x % RUNS * K::HEADS, lane = lane_id();
    if (t >= a.step->tokens)
        return;
    const FtxRow &row = a.rows[a.token[t].row];
    const int last = t - row.q_start + row.kv_len - row.q_len + 1, first = K::WINDOW > 0 ? most(0, last - K::WINDOW) : 0;
    const int head = g * EACH + from, heads = least(K::HEADS, EACH - from); // of this block; the rest is computed in vain
    const i64 q_at = ((i64)t * K::H + head) * K::E;

    for (int e = threadIdx.x; e < K::HEADS * K::E; e += K::WARPS * 32)
        query[e] = e < heads * K::E ? to_float(((const T *)a.q)[q_at + e]) * K::SCALE : 0.0f;
    block_sync();
    float high[K::HEADS], sum[K::HEADS], y[K::HEADS][C];
#pragma unroll
    for (int h = 0; h < K::HEADS; h++) {
        high[h] = negative_infinity();
        sum[h] = 0.0f;
#pragma unroll
        for (int c = 0; c < C; c++)
            y[h][c] = 0.0f;
    }
    for (int tile = first + warp_id() * 32; tile < last; tile += K::WARPS * 32) {
        const int j = tile + lane, count = least(32, last - tile);
        const KV *key = j < last ? keys_at<K>(a, row, g, j) : (const KV *)a.k;
        float p[K::HEADS] = {};
        if (j < last)
            keys_scores<K>(key, query, p);
#pragma unroll
        for (int h = 0; h < K::HEADS; h++) {
            const float s = j < last ? p[h] : negative_infinity();
            const float top = fmaxf(high[h], warp_max(s)), keep = exp2f(high[h] - top);
            p[h] = exp2f(s - top);
            high[h] = top;
            sum[h] = sum[h] * keep + warp_sum(p[h]);
#pragma unroll
            for (int c = 0; c < C; c++)
                y[h][c] *= keep;
        }
        const i64 place = key - (const KV *)a.k;
        for (int n = 0; n < count; n++) {
            const KV *value = (const KV *)a.k + shuffle(place, n);
            float by[K::HEADS];
#pragma unroll
            for (int h = 0; h < K::HEADS; h++)
                by[h] = shuffle(p[h], n);
#pragma unroll
            for (int c = 0; c < C; c++)
                if (c * 32 + lane < K::V) {
                    const float v = to_float(value[c * 32 + lane]);
#pragma unroll
                    for (int h = 0; h < K::HEADS; h++)
                        y[h][c] = fmaf(by[h], v, y[h][c]);
                }
        }
    }
#pragma unroll
    for (int h = 0; h < K::HEADS; h++) {
        float *mine = partial + (warp_id() * K::HEADS + h) * ROW;
#pragma unroll
        for (int c = 0; c < C; c++)
            if (c * 32 + lane < K::V)
                mine[c * 32 + lane] = y[h][c];
        if (lane == 0) {
            mine[K::V] = high[h];
            mine[K::V + 1] = sum[h];
        }
    }
    block_sync();
    const int used = least(K::WARPS, ceil_div(last - first, 32)); // warps that had a key
    for (int h = 0; h < heads; h++)
        keys_finish<K>(a, partial, used, h, head + h, ((i64)t * K::H + head + h) * K::V);
}
