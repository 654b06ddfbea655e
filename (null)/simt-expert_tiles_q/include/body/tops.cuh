// tops.cuh - the `take` greatest values of a row, found by the warps of one block, each of which holds a tile of it.
//
// A tile is TILE neighbouring ids, N values a lane. The take-th greatest of the lanes' maxima is a lower bound of the
// take-th greatest value of the tile, and so of the row. Values at or above the highest bound that any warp knows
// are appended to a list: few more than `take`, since most tiles append nothing. At the end the list is sorted by
// counting. The result is exact and does not depend on the order in which warps append.
//
//   for each round of tiles:  tops_bound | barrier | tops_push | tops_next      then  tops_sort
//
//   S: THREADS, TILE, MOST (take at most), TOPS (entries of the list)
#pragma once
#include "device/atomic.cuh"
#include "device/block.cuh"
#include "device/fragment.cuh"
#include "device/order.cuh"

template <class S> struct TopsRoom { // shared memory
    static constexpr int WARPS = S::THREADS / 32;
    static constexpr int LIST = S::TOPS;               // one round of tiles, and what earlier rounds left
    static constexpr int EACH = LIST / (WARPS + 1);    // a tile appends at most this many places
    static_assert(EACH >= most(32, S::MOST), "a tile may append a place a lane, or all that are taken");
    u64 list[LIST], best[S::MOST];
    u32 n;
    u32 bound[WARPS]; // of each warp: order_key of a lower bound of the row's take-th greatest value
};

// The whole block, before the first tile. The caller puts a barrier behind it.
template <class S> DEVICE void tops_start(TopsRoom<S> &room)
{
    if (threadIdx.x == 0)
        room.n = 0;
    if (threadIdx.x < TopsRoom<S>::WARPS)
        room.bound[threadIdx.x] = 0;
}

// One warp: raises its bound by the values of a tile; -inf and NaN do not count. The caller puts a barrier between this
// and tops_push.
template <class S, int N> DEVICE void tops_bound(TopsRoom<S> &room, const float (&x)[N], int take)
{
    float mine = negative_infinity();
#pragma unroll
    for (int i = 0; i < N; i++)
        mine = fmaxf(mine, x[i]);
    u32 left = mine > negative_infinity() ? order_key(mine) : 0, bound = 0;
    if (take > 32)
        return;
#pragma unroll 1
    for (int n = 0; n < take; n++) {
        bound = warp_most(left);
        if (!bound)
            return; // fewer lanes with values than are asked for
        if (lane_id() == __ffs(warp_ballot(left == bound)) - 1)
            left = 0;
    }
    if (lane_id() == 0 && bound > room.bound[warp_id()])
        room.bound[warp_id()] = bound;
}

// One warp: appends those of the tile's values that may be among the row's greatest, at most EACH. id_of(i): id of x[i].
template <class S, int N, class F> DEVICE void tops_push(TopsRoom<S> &room, const float (&x)[N], int take, F id_of)
{
    const u32 bound = warp_most(room.bound[lane_id() % TopsRoom<S>::WARPS]);
    u32 mine = 0; // which of x
#pragma unroll
    for (int i = 0; i < N; i++)
        mine |= x[i] > negative_infinity() && order_key(x[i]) >= bound ? 1u << i : 0;
    const int all = warp_sum((int)__popc(mine));
    if (!all)
        return;
    if (all <= TopsRoom<S>::EACH) {
#pragma unroll 1
        for (; mine; mine &= mine - 1) { // few: a short loop in place of N unrolled branches
            const int at = __ffs(mine) - 1;
            float value = x[0];
#pragma unroll
            for (int i = 1; i < N; i++)
                value = i == at ? x[i] : value;
            room.list[shared_atomic_add(&room.n, 1u)] = place_of(value, id_of(at));
        }
        return;
    }
    u32 at = 0; // too many equal values: the tile's best `take`, one by one
    if (lane_id() == 0)
        at = shared_atomic_add(&room.n, (u32)take);
    at = shuffle(at, 0);
#pragma unroll 1
    for (int n = 0; n < take; n++) {
        u64 best = 0;
#pragma unroll
        for (int i = 0; i < N; i++) {
            const u64 place = mine >> i & 1 ? place_of(x[i], id_of(i)) : 0;
            best = place > best ? place : best;
        }
        const u64 top = warp_most(best);
        if (lane_id() == 0)
            room.list[at + n] = top;
#pragma unroll
        for (int i = 0; i < N; i++)
            if (mine >> i & 1 && place_of(x[i], id_of(i)) == top)
                mine &= ~(1u << i);
    }
}

// Sorts list[0..n), best first, and cuts it to `take`. The whole block; begins and ends with a barrier.
template <class S> DEVICE void tops_sort(TopsRoom<S> &room, int take)
{
    block_sync();
    const int n = room.n;
#pragma unroll 1
    for (int i = threadIdx.x; i < n; i += S::THREADS) {
        const u64 mine = room.list[i];
        int above = 0;
#pragma unroll 2
        for (int j = 0; j < n; j++)
            above += room.list[j] > mine;
        if (above < take)
            room.best[above] = mine;
    }
    block_sync();
    if ((int)threadIdx.x < least(n, take))
        room.list[threadIdx.x] = room.best[threadIdx.x];
    if (threadIdx.x == 0)
        room.n = least(n, take);
    block_sync();
}

// Makes room for another round of tiles. The whole block, between rounds.
template <class S> DEVICE void tops_next(TopsRoom<S> &room, int take)
{
    block_sync();
    const bool full = room.n > TopsRoom<S>::LIST - TopsRoom<S>::WARPS * TopsRoom<S>::EACH;
    block_sync();
    if (full)
        tops_sort(room, take);
}
