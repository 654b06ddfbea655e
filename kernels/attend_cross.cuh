// attend_cross.cuh - attention of a decoder's tokens over the source of their sequence, whose keys and
// values were computed once.
//
//   q, y [T, H*E]      k, v [sources][G][SOURCE][E]: those of a row stand in slot src_slot, src_len tokens
//
// Two forms. A warp walks every WARPS-th tile of keys, and the warps' parts are put together, so the
// order of a sum follows from the source's length alone.
//
//   columns  16-bit, on the matrix units: a block takes one head of UNIT neighbouring tokens. Those of
//            one source, the lanes of a beam, share its tiles of 16 keys. The source stood in memory
//            before this program, so its first tiles are on their way before the kernel in front ends.
//   plain    any types, by FMA: one head of one token. Of a tile of 32 keys a lane has one for the
//            scores, and columns lane, lane + 32, ... for the sum; the probabilities go from lane to lane.
#pragma once
#include "device/block.cuh"
#include "device/fragment.cuh"
#include "device/io.h"
#include "device/pdl.cuh"
#include "device/vec.cuh"
#include "part/columns.cuh"

struct AttendCrossArgs {
    const void *q;
    const void *c; // not there: it stands in k and v
    const FtxStep *step;
    const FtxRow *rows;
    const FtxToken *token;
    const void *k, *v;
    void *y;
};

// The tiles of one warp over all sources of the block's tokens, one after another.
template <class K> struct CrossWalk {
    using C = Columns<K>;
    static constexpr int WARPS = K::THREADS / 32;
    u32 firsts;       // tokens whose source is not that of the token before
    int live;         // tokens there are
    int slot, length; // of this lane's token
    int token, tile;  // where the walk stands; token == live: at its end

    // The source of the token it stands at: its tokens are [token, next_token()).
    DEVICE int next_token() const { return least(live, __ffs(firsts >> (token + 1) << (token + 1) | 1u << 31) - 1); }
    DEVICE int keys() const { return shuffle(length, token); }
    // From here on to a tile there is.
    DEVICE void settle()
    {
        while (token < live && tile * C::TILE >= keys()) {
            token = next_token();
            tile = warp_id();
        }
    }
    DEVICE void next()
    {
        tile += WARPS;
        settle();
    }
    DEVICE void start()
    {
        token = 0;
        tile = warp_id();
        settle();
    }
};

// Starts the copy of the tile at which the walk stands, keys that are not there as zeros.
template <class K> DEVICE void cross_issue(const AttendCrossArgs &a, const CrossWalk<K> &w, u32 to)
{
    using C = Columns<K>;
    using KV = typename K::KV;
    const int n = w.keys() - w.tile * C::TILE;
    const i64 head = (i64)shuffle(w.slot, w.token) * K::KV_HEADS + blockIdx.x / (K::HEADS / K::KV_HEADS);
    const i64 from = (head * K::SOURCE + w.tile * C::TILE) * K::E;
#pragma unroll
    for (int i = 0; i < ceil_div(C::TILE * C::VECS, 32); i++) {
        const int piece = i * 32 + lane_id(), r = piece / C::VECS;
        if (r >= C::TILE)
            break;
        const bool there = r < n;
        const i64 at = from + (there ? piece * 8 : 0);
        const u32 dst = to + C::Rows::piece(r, piece % C::VECS);
        copy16(dst, (const KV *)a.k + at, there ? 16 : 0);
        copy16(dst + C::TILE * C::Rows::PITCH, (const KV *)a.v + at, there ? 16 : 0);
    }
}

template <class K> DEVICE void attend_cross_columns(const AttendCrossArgs &a)
{
    using C = Columns<K>;
    using T = typename K::T;
    constexpr int WARPS = K::THREADS / 32, STAGES = 2;
    SHARED(float, part, WARPS * K::UNIT * C::PART);
    SHARED(int, lengths, K::UNIT);
    const int base = blockIdx.y * K::UNIT, lane = lane_id();
    char *tiles = shared_memory() + warp_id() * STAGES * C::BYTES;
    launch_dependents();

    // $step, $token and $rows are written between programs only.
    CrossWalk<K> walk;
    walk.live = least(K::UNIT, a.step->tokens - base);
    if (walk.live <= 0) {
        wait_for_previous(); // a block that leaves early would let later kernels run early
        return;
    }
    walk.slot = walk.length = 0;
    if (lane < walk.live) {
        const FtxRow &row = a.rows[a.token[base + lane].row];
        walk.slot = row.src_slot;
        walk.length = row.src_len;
        if (warp_id() == 0)
            lengths[lane] = walk.length;
    }
    const int before = shuffle_up(walk.slot, 1);
    walk.firsts = warp_ballot(lane < walk.live && (lane == 0 || before != walk.slot));
    walk.start();
    CrossWalk<K> ahead = walk;
#pragma unroll 1
    for (int i = 0; i < STAGES; i++) {
        C::pad(tiles + i * C::BYTES);
        if (ahead.token < ahead.live) {
            cross_issue<K>(a, ahead, shared_address(tiles) + i * C::BYTES);
            ahead.next();
        }
        copy_commit();
    }
    wait_for_previous();

    C state;
    const int g = lane / 4;
    state.fetch(g < walk.live ? (const T *)a.q + ((i64)(base + g) * K::HEADS + blockIdx.x) * K::E : nullptr);
    for (int stage = 0; walk.token < walk.live; stage ^= 1) {
        const int first = walk.token, end = walk.next_token();
        const u32 at = shared_address(tiles) + stage * C::BYTES;
        if (walk.tile == warp_id())
            state.start();
        copy_wait<STAGES - 1>();
        warp_sync();
        state.tile(at, walk.keys() - walk.tile * C::TILE);
        warp_sync();
        walk.next();
        if (walk.token != first)
            state.put(part + warp_id() * K::UNIT * C::PART, first, end);
        if (ahead.token < ahead.live) {
            cross_issue<K>(a, ahead, at);
            ahead.next();
        }
        copy_commit();
    }
    copy_wait<0>();
    block_sync();
    for (int i = threadIdx.x * 2; i < walk.live * K::E; i += K::THREADS * 2) {
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
