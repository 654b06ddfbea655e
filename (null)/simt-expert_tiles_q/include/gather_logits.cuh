// gather_logits.cuh - the logits of all ranks of a tensor-parallel model, as far as `sample` needs them (device/gather.h).
//
//   x [S, C] fp32     y [S, COLUMNS]: columns r * C ... are those of rank r; from COLUMNS on is padding, which is dropped
//
// Up to SMALL bytes of x are sent whole, which takes no longer; so are rows for which the rule has no bound. The blocks of a row
// share the work then. Of other rows one block sends a list:
//
//   x[s,:]  columns that a processor may change (`changed`, a bit each) ----> list
//           others at or above a bound ------------------------------------> list
//           the rest: their largest, the sum of their exponentials --------> FtxGather.rest
//
// The bound is the n-th largest of the maxima of the block's threads, so at least n logits lie at or above it. A list that
// gets too long, or a logit that is not finite: the row is sent whole, and FtxGather says so.
//
// A block takes a row after another, the same on all ranks, and sends what its own rank has before it waits.
#pragma once
#include "device/atomic.cuh"
#include "device/block.cuh"
#include "device/fragment.cuh"
#include "device/gather.h"
#include "device/l2.cuh"
#include "device/pdl.cuh"
#include "device/vec.cuh"
#include "body/exchange.cuh"

struct GatherLogitsArgs {
    const float *x;
    const FtxStep *step;
    const FtxRow *rows;
    const FtxParams *params;
    const int *ends;
    const FtxBias *bias;
    const int *bad_words, *history;
    const FtxPeers *peers;
    FtxExchange *exchange;
    float *y;
};

// What a block has in shared memory.
template <class K> struct GatherRoom {
    u32 changed[ceil_div(K::C, 32)];
    float maxima[K::THREADS];
    FtxGathered list[K::LIST];
    uint4_ head[K::RANKS]; // FtxGather of each rank
    float bound, sums[72];
    u32 n, odd; // for the list; not 0: a logit is not finite
};

template <class K> struct GatherLogits {
    static constexpr int C = K::C, VECTORS = ceil_div(C, 4), ROW = VECTORS + 1; // ROW: of a row in the exchange
    static constexpr bool FOURS = C % 4 == 0 && K::COLUMNS % 4 == 0;
    static constexpr int LIST = least(K::LIST, most(2, C / 4 * 2)); // logits of a list, which ends before the next row
    static_assert(K::THREADS >= FTX_GATHER_MOST && LIST % 2 == 0, "as many maxima as the bound may need");

    const GatherLogitsArgs &a;
    GatherRoom<K> &room;
    Exchange<K::RANKS> e;

    DEVICE GatherLogits(const GatherLogitsArgs &a, GatherRoom<K> &room) : a(a), room(room), e(a.peers, a.exchange) {}

    DEVICE static int width(int rank) { return least(C, K::COLUMNS - rank * C < 0 ? 0 : K::COLUMNS - rank * C); }

    // Vector i of this rank's row, as it is sent.
    DEVICE uint4_ own(int row, int i) const
    {
        const float *x = a.x + (i64)row * C + i * 4;
        if (C % 4 == 0)
            return to_wire<float>(load_l2(x));
        const auto at = [&](int k) { return i * 4 + k < C ? __float_as_uint(load_l2_scalar(x + k)) : 0u; };
        return to_wire<float>(uint4_{at(0), at(1), at(2), at(3)});
    }
    // Vector i of a rank's row, into y.
    DEVICE void put(int row, int rank, int i, uint4_ v) const
    {
        float *y = a.y + (i64)row * K::COLUMNS + rank * C + i * 4;
        const int n = width(rank) - i * 4;
        if (FOURS && n > 0)
            *(uint4_ *)y = v;
        if (FOURS)
            return;
        if (n > 0)
            y[0] = __uint_as_float(v.x);
        if (n > 1)
            y[1] = __uint_as_float(v.y);
        if (n > 2)
            y[2] = __uint_as_float(v.z);
        if (n > 3)
            y[3] = __uint_as_float(v.w);
    }

    // --- a row that is sent whole: vectors from `first` on, each `step`-th ---
    DEVICE void send_whole(int row, int first, int step) const
    {
        for (int i = first; i < VECTORS; i += step)
            e.send((i64)row * ROW + 1 + i, own(row, i));
    }
    DEVICE void take_whole(int row, int rank, int first, int step)
    {
        for (int i = first; i < VECTORS; i += step)
            put(row, rank, i, from_wire<float>(rank == e.rank ? own(row, i) : e.receive_from((i64)row * ROW + 1 + i, rank)));
    }

    // --- a row of which a list is sent ---
    DEVICE void mark(int id) const
    {
        const int at = id - e.rank * C;
        if (at >= 0 && at < C)
            shared_atomic_or(&room.changed[at / 32], 1u << at % 32);
    }
    DEVICE void mark_changed(int row, const FtxParams &p, const FtxRow &r) const
    {
        const int t = threadIdx.x;
        for (int i = t; i < ceil_div(C, 32); i += K::THREADS)
            room.changed[i] = 0;
        block_sync();
        for (int i = t; i < p.n_bias; i += K::THREADS)
            mark(a.bias[row * K::LOGIT_BIAS + i].id);
        for (int i = t; i < p.n_words; i += K::THREADS)
            if (a.bad_words[(i64)r.slot * K::BAD_WORDS + i] < 0)
                mark(~a.bad_words[(i64)r.slot * K::BAD_WORDS + i]);
        for (int i = t; i < p.n_ends && r.kv_len < p.min_length; i += K::THREADS)
            mark(a.ends[row * K::END_IDS + i]);
        if (p.repetition != 1.0f || p.presence != 0.0f || p.frequency != 0.0f || p.ngram > 0)
            for (int i = t; i < r.kv_len; i += K::THREADS)
                mark(a.history[(i64)r.slot * K::CONTEXT + i]);
        block_sync();
    }
    // f(column, value, changed) for this thread's columns.
    template <class F> DEVICE void each(int row, F f) const
    {
        for (int i = threadIdx.x; i < width(e.rank); i += K::THREADS)
            f(i, load_l2_scalar(a.x + (i64)row * C + i), (room.changed[i / 32] >> i % 32 & 1) != 0);
    }
    // Fills the list and head[rank]. The whole block.
    DEVICE void choose(int row, const FtxParams &p, const FtxRow &r, int n)
    {
        const int t = threadIdx.x;
        float top = negative_infinity(), rest_top = negative_infinity(), sum = 0.0f, left = 0.0f;
        if (t == 0) {
            room.n = room.odd = 0;
            room.bound = negative_infinity();
        }
        mark_changed(row, p, r);
        bool odd = false;
        each(row, [&](int, float x, bool changed) {
            top = changed ? top : fmaxf(top, x);
            odd = odd || !(x - x == 0.0f);
        });
        room.maxima[t] = top;
        if (odd)
            shared_atomic_or(&room.odd, 1);
        block_sync();
        int before = 0; // maxima of other threads that stand before this one's
        for (int i = 0; i < K::THREADS; i++)
            before += room.maxima[i] > top || (room.maxima[i] == top && i < t);
        if (before == n - 1)
            room.bound = top;
        top = block_max<K::THREADS>(top, room.sums); // ends with a barrier, as block_sum does
        const float reach = p.temperature == 0.0f || p.min_p <= 0.0f || p.top_p < 1.0f ? 0.0f : logf(0.999f * p.min_p) * p.temperature;
        const float bound = room.bound + reach;
        each(row, [&](int i, float x, bool changed) {
            if (changed || x >= bound) {
                const u32 at = shared_atomic_add(&room.n, 1u);
                if (at < LIST)
                    room.list[at] = FtxGathered{i, x};
                return;
            }
            sum += expf(x - top);
            left += 1.0f;
            rest_top = fmaxf(rest_top, x);
        });
        block_sync();
        sum = block_sum<K::THREADS>(sum, room.sums);
        left = block_sum<K::THREADS>(left, room.sums + 36);
        block_sync();
        rest_top = block_max<K::THREADS>(rest_top, room.sums);
        const float rest = left > 0.0f ? fminf(rest_top, top + logf(sum / left)) : 0.0f;
        if (t == 0)
            room.head[e.rank] = uint4_{room.odd || room.n > LIST ? ~0u : room.n, __float_as_uint(rest), 0, 0};
        block_sync();
    }
    // Two of the list, as they are sent.
    DEVICE uint4_ pair(int i) const
    {
        const FtxGathered first = room.list[2 * i], second = room.list[2 * i + 1];
        return to_wire<float>(uint4_{(u32)first.column, __float_as_uint(first.value), (u32)second.column, __float_as_uint(second.value)});
    }
    DEVICE void send_list(int row) const
    {
        const int n = (int)room.head[e.rank].x;
        if (threadIdx.x == 0)
            e.send((i64)row * ROW, to_wire<float>(room.head[e.rank]));
        for (int i = threadIdx.x; 2 * i < n; i += K::THREADS)
            e.send((i64)row * ROW + 1 + i, pair(i));
        if (n < 0)
            send_whole(row, threadIdx.x, K::THREADS);
    }
    DEVICE void take_list(int row, int rank)
    {
        if (threadIdx.x == 0 && rank != e.rank)
            room.head[rank] = from_wire<float>(e.receive_from((i64)row * ROW, rank));
        block_sync();
        const int n = (int)room.head[rank].x;
        if (n < 0) {
            take_whole(row, rank, threadIdx.x, K::THREADS);
            return;
        }
        const u32 rest = room.head[rank].y;
        for (int i = threadIdx.x; i < VECTORS; i += K::THREADS)
            put(row, rank, i, uint4_{rest, rest, rest, rest});
        block_sync();
        float *y = a.y + (i64)row * K::COLUMNS + rank * C;
        for (int i = threadIdx.x; 2 * i < n; i += K::THREADS) {
            const uint4_ v = from_wire<float>(rank == e.rank ? pair(i) : e.receive_from((i64)row * ROW + 1 + i, rank));
            y[v.x] = __uint_as_float(v.y);
            if (2 * i + 1 < n)
                y[v.z] = __uint_as_float(v.w);
        }
    }
};

// n: the bound is the n-th largest of the logits that no processor changes. 0: there is no bound, all are sent.
DEVICE int gather_count(const FtxParams &p)
{
    if (p.logits)
        return 0;
    if (p.temperature == 0.0f || (p.min_p > 0.0f && p.top_p >= 1.0f))
        return 1;
    return p.top_k > 0 && p.top_k <= FTX_GATHER_MOST ? p.top_k : 0;
}

template <class K> DEVICE void gather_logits(const GatherLogitsArgs &a)
{
    GatherRoom<K> &room = *(GatherRoom<K> *)shared_memory();
    static_assert(sizeof(GatherRoom<K>) <= K::SHARED, "room for a row");
    launch_dependents();
    GatherLogits<K> g(a, room);
    wait_for_previous();
    g.e.begin();
    g.e.counted();
    const int S = a.step->rows, share = S < (int)gridDim.x ? (int)gridDim.x / S : 1; // blocks of a row
    const bool small = (i64)S * K::C * 4 <= K::SMALL;
    for (int row = blockIdx.x / share; row < S; row += gridDim.x / share) {
        const FtxParams p = a.params[row];
        const FtxRow r = a.rows[row];
        const int part = blockIdx.x % share, n = small ? 0 : gather_count(p);
        if (!p.logits && (!r.emit || r.done))
            continue;
        if (n > 0 && part == 0) {
            g.choose(row, p, r, n);
            g.send_list(row);
            for (int rank = 0; rank < K::RANKS; rank++)
                g.take_list(row, rank);
        }
        if (n > 0)
            continue;
        g.send_whole(row, part * K::THREADS + threadIdx.x, share * K::THREADS);
        for (int rank = 0; rank < K::RANKS; rank++)
            g.take_whole(row, rank, part * K::THREADS + threadIdx.x, share * K::THREADS);
    }
}
