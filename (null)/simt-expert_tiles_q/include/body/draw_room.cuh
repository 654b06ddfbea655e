// draw_room.cuh - what the block of a draw (body/draw.cuh) keeps in shared memory; weights of tokens; sorting its list.
#pragma once
#include "device/atomic.cuh"
#include "device/block.cuh"
#include "device/order.cuh"
#include "device/vec.cuh"
#include "body/candidates.cuh"

// K: V, TILE, TILES, THREADS, SEGMENTS
template <class K> struct DrawRoom {
    static constexpr int LIST = 2048, BINS = 2048, FACTS = 1024;
    u64 list[LIST]; // places
    union {
        struct {
            u32 count[BINS], low[BINS], high[BINS];
        } bin;
        struct {
            union {
                struct { // while a short list is sorted
                    u64 list[K::THREADS];
                    u32 rank[K::THREADS];
                } sort;
                u32 fact[FACTS]; // words of the list's ids (body/processors.cuh)
                u16 which[FTX_SEGMENTS(K::V)];
            };
            float segment_top[FTX_SEGMENTS(K::V)];
        } few;
        u64 tile_weight[K::TILES];
        u32 rank[K::TILES];
        u32 which[K::TILES];
    } u;
    alignas(16) float tile_top[round_up(K::TILES, 4)];
    float tile_sum[K::TILES];
    u64 partial[K::THREADS / 32 + 1];
    u64 found[4];
    u32 n, tiles;
    u32 random; // 24 bits
    float sum;   // of ratio() over the row
    float value; // logit of the token, where it is not drawn from all
    float raw_top, raw_sum; // of the raw logits: maximum, sum of exp(x - maximum)
    RowSegments segments;
    float *values; // [V] processed but for the temperature
    int token;
};

constexpr int WEIGHT_BITS = 40;

// exp((x - top) / temperature); inv_temperature is finite.
DEVICE float ratio(float x, float top, float inv_temperature) { return x == top ? 1.0f : expf((x - top) * inv_temperature); }
DEVICE u64 whole_weight(float ratio) { return (u64)(ratio * (float)(1ull << WEIGHT_BITS)); }

// Sum of v over the threads before this one; *all: over the block. Begins and ends with a barrier.
template <int THREADS> DEVICE u64 block_before(u64 v, u64 *room, u64 *all)
{
    const u64 upto = warp_prefix_sum(v);
    block_sync();
    if (lane_id() == 31)
        room[warp_id()] = upto;
    block_sync();
    const u64 warps = warp_prefix_sum(lane_id() < THREADS / 32 ? room[lane_id()] : 0);
    *all = shuffle(warps, 31);
    const u64 before = shuffle(warps, warp_id()) - room[warp_id()] + upto - v;
    block_sync();
    return before;
}

// Sorts list[0..n) descending; no two are equal. Short lists by counting the entries above each one, all pairs at
// once; long ones by a bitonic network, padded to a power of two with zeros.
template <class K> DEVICE void sort_descending(DrawRoom<K> &room, int n)
{
    constexpr int THREADS = K::THREADS;
    u64 *list = room.list;
    int size = 32;
    while (size < n)
        size *= 2;
    block_sync();
    if (size <= THREADS) {
        const int i = threadIdx.x & (size - 1), stride = THREADS / size, share = threadIdx.x / size;
        if (share == 0)
            room.u.few.sort.rank[i] = 0;
        block_sync();
        const u64 mine = i < n ? list[i] : 0;
        u32 above = 0;
#pragma unroll 8
        for (int j = share; j < n; j += stride)
            above += list[j] > mine;
        if (i < n)
            shared_atomic_add(&room.u.few.sort.rank[i], above);
        block_sync();
        if (share == 0 && i < n)
            room.u.few.sort.list[room.u.few.sort.rank[i]] = mine;
        block_sync();
        if (share == 0 && i < n)
            list[i] = room.u.few.sort.list[i];
        block_sync();
        return;
    }
#pragma unroll 1
    for (int i = n + threadIdx.x; i < size; i += THREADS)
        list[i] = 0;
    block_sync();
#pragma unroll 1
    for (int run = 2; run <= size; run *= 2)
#pragma unroll 1
        for (int step = run / 2; step; step /= 2) {
#pragma unroll 1
            for (int i = threadIdx.x; i < size / 2; i += THREADS) {
                const int a = 2 * i - (i & (step - 1)), b = a + step;
                const bool down = (a & run) == 0;
                const u64 x = list[a], y = list[b];
                if ((x < y) == down) {
                    list[a] = y;
                    list[b] = x;
                }
            }
            block_sync();
        }
}

// One warp sorts the values of lanes [0, n) descending; no two are equal. `room` holds n.
DEVICE u64 warp_descending(u64 mine, int n, u64 *room)
{
    int above = 0;
#pragma unroll 4
    for (int i = 0; i < n; i++)
        above += shuffle(mine, i) > mine;
    warp_sync();
    if (lane_id() < n)
        room[above] = mine;
    warp_sync();
    return lane_id() < n ? room[lane_id()] : 0;
}
