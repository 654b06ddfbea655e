// tops.cuh - the best `take` of a row of values, found by warps that see a tile of it each.
//
// A tile is TILE neighbouring ids, N values a lane. The take-th greatest of the lanes' maxima bounds the
// take-th greatest value of the tile, and so of the row, from below. What is not below the highest bound
// that any warp knows goes to a list: few more than `take`
// values, since most tiles push nothing. At the end the list is put in order by counting. The result
// is exact and does not depend on who came first.
//
//   S: THREADS, TILE, MOST (take at most)
#pragma once
#include "device/atomic.cuh"
#include "device/block.cuh"
#include "device/fragment.cuh"
#include "device/order.cuh"

template <class S> struct TopsRoom { // shared memory
    static constexpr int WARPS = S::THREADS / 32;
    static constexpr int EACH = most(32, S::MOST);                           // places that a tile pushes at most
    static constexpr int LIST = (WARPS + 1) * EACH;    // a round of tiles, and what was kept
    u64 list[LIST], best[S::MOST];
    u32 n;
    u32 bound[WARPS]; // keys of values that the row's take-th is not below, as each warp knows them
};

// Before the first tile. The whole block; what follows needs a barrier before it.
template <class S> DEVICE void tops_start(TopsRoom<S> &room)
{
    if (threadIdx.x == 0)
        room.n = 0;
    if (threadIdx.x < TopsRoom<S>::WARPS)
        room.bound[threadIdx.x] = 0;
}

// One warp: its bound, from the values of a tile. -inf and NaN are no values. A barrier comes before tops_push.
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

// One warp: the tile's values that may be among the row's best, at most EACH; id_of(i): of x[i].
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
        for (; mine; mine &= mine - 1) { // few: one short text for all i
            const int at = __ffs(mine) - 1;
            float value = x[0];
#pragma unroll
            for (int i = 1; i < N; i++)
                value = i == at ? x[i] : value;
            room.list[shared_atomic_add(&room.n, 1u)] = place_of(value, id_of(at));
        }
        return;
    }
    u32 at = 0; // too many alike: the tile's best `take`, one by one
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

// list[0..n) in its order, cut to `take`. The whole block; begins and ends in a barrier.
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

// Makes room for another round of tiles. The whole block, at the same place.
template <class S> DEVICE void tops_next(TopsRoom<S> &room, int take)
{
    block_sync();
    const bool full = room.n > TopsRoom<S>::LIST - TopsRoom<S>::WARPS * TopsRoom<S>::EACH;
    block_sync();
    if (full)
        tops_sort(room, take);
}
