// draw.cuh - one token of a row by top-k, top-p, min-p and a uniform number, exactly.
//
// The row stands in global memory after all processors; tiles of TILE values have their greatest
// value known. Tokens are ordered by place: value descending, then id ascending. A filter keeps
// a prefix of this order (top-k: with its ties), so what is kept is {place >= bound, and weight
// ratio >= min_p}. Weights exp(x - top) are integers of 2^-40, so that sums have one value
// whatever their order; the draw walks the kept ids in ascending order.
//
// Two ways to the bound, by what the values need alone:
//   few    the want-th greatest tile maximum bounds the want-th greatest value from below. What is
//          not below it (want to a few times want values) is sorted in shared memory.
//   whole  a histogram of counts and weights over distances from the top; then the bin that holds
//          the border is sorted, or, if it holds too many, split by key digits to one value.
#pragma once
#include "device/block.cuh"
#include "device/io.h"
#include "device/order.cuh"

// K: V, TILE, TILES, THREADS
template <class K> struct DrawRoom { // shared memory
    static constexpr int LIST = 2048, BINS = 2048;
    u64 list[LIST];
    union {
        struct {
            u32 count[BINS], low[BINS], high[BINS];
        } bin;
        u64 tile_weight[K::TILES];
    } u;
    float tile_top[K::TILES];
    u64 partial[K::THREADS / 32 + 1];
    u64 found[4];
    u32 n, tiles;
    int token;
};

constexpr int WEIGHT_BITS = 40;

DEVICE float ratio(float x, float top) { return x == top ? 1.0f : expf(x - top); }
DEVICE u64 weight(float x, float top) { return (u64)(ratio(x, top) * (float)(1ull << WEIGHT_BITS)); }

// Sum of v over the threads before this one; `all` gets the block's. Ends in a barrier.
template <int THREADS> DEVICE u64 block_before(u64 v, u64 *room, u64 *all)
{
    const u64 upto = warp_upto(v);
    block_sync();
    if (lane_id() == 31)
        room[warp_id()] = upto;
    block_sync();
    u64 before = upto - v, sum = 0;
#pragma unroll
    for (int w = 0; w < THREADS / 32; w++) {
        before += w < warp_id() ? room[w] : 0;
        sum += room[w];
    }
    *all = sum;
    block_sync();
    return before;
}

// list[0..n) descending, padded to a power of two with zeros.
template <int THREADS> DEVICE void sort_descending(u64 *list, int n)
{
    int size = 2;
    while (size < n)
        size *= 2;
    for (int i = n + threadIdx.x; i < size; i += THREADS)
        list[i] = 0;
    block_sync();
    for (int run = 2; run <= size; run *= 2)
        for (int step = run / 2; step; step /= 2) {
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

template <class K> struct Draw {
    using Room = DrawRoom<K>;
    static constexpr int THREADS = K::THREADS, WARPS = THREADS / 32, PER_LANE = K::TILE / 32;
    Room &room;
    const float *values; // [V] processed
    float top;           // greatest of them
    float min_p;

    // f(value, id) for every value of the tiles that may hold one at or above `least_value`.
    template <class F> DEVICE void each(float least_value, F f) const
    {
        for (int t = warp_id(); t < K::TILES; t += WARPS) {
            if (room.tile_top[t] < least_value)
                continue;
            float x[PER_LANE];
#pragma unroll
            for (int i = 0; i < PER_LANE; i++) {
                const int id = t * K::TILE + i * 32 + lane_id();
                x[i] = id < K::V ? __ldcg(values + id) : 0.0f;
            }
#pragma unroll
            for (int i = 0; i < PER_LANE; i++) {
                const int id = t * K::TILE + i * 32 + lane_id();
                if (id < K::V)
                    f(x[i], id);
            }
        }
    }

    DEVICE void push(float x, int id) const
    {
        const u32 at = atomicAdd(&room.n, 1u);
        if (at < Room::LIST)
            room.list[at] = place_of(x, id);
    }

    // The want-th greatest tile maximum, -inf if there are fewer tiles. Ends in a barrier.
    DEVICE float tile_bound(int want) const
    {
        if (threadIdx.x == 0)
            room.found[0] = (u64)__float_as_uint(__int_as_float((int)0xff800000u));
        block_sync();
        if (want <= K::TILES)
            for (int i = threadIdx.x; i < K::TILES; i += THREADS) {
                const float mine = room.tile_top[i];
                int above = 0;
                for (int j = 0; j < K::TILES; j++) {
                    const float other = room.tile_top[j];
                    above += other > mine || (other == mine && j < i);
                }
                if (above == want - 1)
                    room.found[0] = __float_as_uint(mine);
            }
        block_sync();
        return __uint_as_float((u32)room.found[0]);
    }

    // The list of all values at or above the bound, sorted; false: it does not hold them.
    DEVICE bool collect(float bound) const
    {
        if (threadIdx.x == 0)
            room.n = room.tiles = 0;
        block_sync();
        u32 *which = room.u.bin.count; // tiles that have such values
        for (int t = threadIdx.x; t < K::TILES; t += THREADS)
            if (room.tile_top[t] >= bound) {
                const u32 at = atomicAdd(&room.tiles, 1u);
                if (at < Room::BINS)
                    which[at] = t;
            }
        block_sync();
        if (room.tiles > Room::BINS)
            return false;
        for (u32 i = warp_id(); i < room.tiles; i += WARPS) {
            const int base = which[i] * K::TILE + lane_id();
            float x[PER_LANE];
#pragma unroll
            for (int k = 0; k < PER_LANE; k++)
                x[k] = base + k * 32 < K::V ? __ldcg(values + base + k * 32) : 0.0f;
#pragma unroll
            for (int k = 0; k < PER_LANE; k++)
                if (base + k * 32 < K::V && x[k] >= bound)
                    push(x[k], base + k * 32);
        }
        block_sync();
        if (room.n > Room::LIST)
            return false;
        sort_descending<THREADS>(room.list, room.n);
        return true;
    }

    // How many of list[0..n) (a prefix) hold: the block counts together.
    template <class F> DEVICE int prefix(int n, F holds) const
    {
        block_sync();
        if (threadIdx.x == 0)
            room.n = 0;
        block_sync();
        u32 mine = 0;
        for (int i = threadIdx.x; i < n; i += THREADS)
            mine += holds(i) ? 1 : 0;
        if (mine)
            atomicAdd(&room.n, mine);
        block_sync();
        const int count = room.n;
        block_sync();
        return count;
    }

    static constexpr int EACH = Room::LIST / THREADS; // list entries of a thread, neighbours

    // Of list[0..n), the entries whose predecessors weigh less than `mass` together.
    DEVICE int heavy(int n, u64 mass, u64 *all) const
    {
        u64 w[EACH], mine = 0;
#pragma unroll
        for (int k = 0; k < EACH; k++) {
            const int i = threadIdx.x * EACH + k;
            w[k] = i < n ? weight(place_value(room.list[i]), top) : 0;
            mine += w[k];
        }
        u64 before = block_before<THREADS>(mine, room.partial, all);
        u64 keep = 0, kept;
#pragma unroll
        for (int k = 0; k < EACH; k++) {
            keep += (int)threadIdx.x * EACH + k < n && before < mass;
            before += w[k];
        }
        block_before<THREADS>(keep, room.partial, &kept);
        return (int)kept;
    }

    // The token among list[0..n) at u / 2^24 of their weight, ids ascending.
    DEVICE int draw_list(int n, u32 u) const
    {
        // Sorted by id now, ascending: the descending order of ~id, with the place's key below it.
        for (int i = threadIdx.x; i < n; i += THREADS)
            room.list[i] = room.list[i] << 32 | room.list[i] >> 32;
        sort_descending<THREADS>(room.list, n);
        u64 w[EACH], mine = 0, all;
#pragma unroll
        for (int k = 0; k < EACH; k++) {
            const int i = threadIdx.x * EACH + k;
            w[k] = i < n ? weight(order_value((u32)room.list[i]), top) : 0;
            mine += w[k];
        }
        u64 before = block_before<THREADS>(mine, room.partial, &all);
        const u64 target = __umul64hi(all, (u64)u << 40);
#pragma unroll
        for (int k = 0; k < EACH; k++) {
            if (before <= target && target < before + w[k])
                room.token = (int)~(u32)(room.list[threadIdx.x * EACH + k] >> 32);
            before += w[k];
        }
        block_sync();
        return room.token;
    }

    // --- the whole row ----------------------------------------------------------------------

    DEVICE u64 total(u64 bound) const
    {
        u64 mine = 0, all;
        each(__int_as_float((int)0xff800000u), [&](float x, int id) { mine += place_of(x, id) >= bound ? weight(x, top) : 0; });
        block_before<THREADS>(mine, room.partial, &all);
        return all;
    }

    // Bins of values, the greatest first; finds the one in which the count (or weight) from the
    // top reaches `aim`, and what is above it. Ends in a barrier.
    template <class F> DEVICE int border_bin(bool by_weight, u64 aim, u64 *above, u32 *inside, F bin_of) const
    {
        for (int i = threadIdx.x; i < Room::BINS; i += THREADS)
            room.u.bin.count[i] = room.u.bin.low[i] = room.u.bin.high[i] = 0;
        block_sync();
        each(__int_as_float((int)0xff800000u), [&](float x, int id) {
            const int b = bin_of(x, id);
            if (b >= 0) {
                atomicAdd(&room.u.bin.count[b], 1u);
                if (by_weight)
                    shared_add64(&room.u.bin.low[b], &room.u.bin.high[b], weight(x, top));
            }
        });
        block_sync();
        constexpr int N = Room::BINS / THREADS;
        u64 v[N], mine = 0, all;
#pragma unroll
        for (int k = 0; k < N; k++) {
            const int b = threadIdx.x * N + k;
            v[k] = by_weight ? (u64)room.u.bin.high[b] << 32 | room.u.bin.low[b] : room.u.bin.count[b];
            mine += v[k];
        }
        u64 before = block_before<THREADS>(mine, room.partial, &all);
        if (threadIdx.x == 0)
            room.found[0] = Room::BINS - 1; // reached by none: rounding never lets this happen
        block_sync();
#pragma unroll
        for (int k = 0; k < N; k++) {
            if (before < aim && aim <= before + v[k]) {
                room.found[0] = threadIdx.x * N + k;
                room.found[1] = before;
                room.found[2] = room.u.bin.count[threadIdx.x * N + k];
            }
            before += v[k];
        }
        block_sync();
        const int b = (int)room.found[0];
        *above = room.found[1];
        *inside = (u32)room.found[2];
        block_sync();
        return b;
    }

    // The place of the first token, from the top, with which the count (or weight) of those at or
    // above `bound` reaches aim >= 1.
    DEVICE u64 border(bool by_weight, u64 aim, u64 bound) const
    {
        u64 above = 0;
        u32 inside = 0;
        const auto distance = [&](float x) {
            const float d = (top - x) * 64.0f;
            return d < (float)(Room::BINS - 1) ? (int)d : Room::BINS - 1;
        };
        const int bin = border_bin(by_weight, aim, &above, &inside,
                                   [&](float x, int id) { return place_of(x, id) >= bound ? distance(x) : -1; });
        aim -= above;
        if (inside <= Room::LIST) {
            if (threadIdx.x == 0)
                room.n = 0;
            block_sync();
            each(__int_as_float((int)0xff800000u), [&](float x, int id) {
                if (place_of(x, id) >= bound && distance(x) == bin)
                    push(x, id);
            });
            block_sync();
            const int n = room.n;
            sort_descending<THREADS>(room.list, n);
            u64 all;
            const int keep = by_weight ? heavy(n, aim, &all) : (int)aim;
            const u64 place = room.list[keep - 1];
            block_sync();
            return place;
        }
        // Too many in one bin: three digits of the key, then the id.
        u32 key = 0;
#pragma unroll 1
        for (int shift = 21; shift >= 0; shift = shift == 21 ? 10 : shift - 10) { // bits 31..21, 20..10, 9..0
            const int bits = shift ? 11 : 10;
            const int digit = border_bin(by_weight, aim, &above, &inside, [&](float x, int id) {
                const u32 k = order_key(x);
                if (place_of(x, id) < bound || distance(x) != bin || (u64)(k ^ key) >> (shift + bits))
                    return -1;
                return (1 << bits) - 1 - (int)(k >> shift & ((1u << bits) - 1));
            });
            aim -= above;
            key |= (u32)((1 << bits) - 1 - digit) << shift;
        }
        // Equal values from here: the aim-th of them (or as many as weigh so much), ids ascending.
        const u64 one = weight(order_value(key), top);
        const u64 nth = by_weight ? (aim + one - 1) / one : aim;
        const u64 id = nth_id(nth, [&](float x, int i) { return order_key(x) == key && place_of(x, i) >= bound ? 1ull : 0ull; });
        return (u64)key << 32 | (u32)~(u32)id;
    }

    // The id, ascending, with which the sum of f(value, id) reaches aim >= 1.
    template <class F> DEVICE int nth_id(u64 aim, F f) const
    {
        block_sync();
        for (int t = warp_id(); t < K::TILES; t += WARPS) {
            float x[PER_LANE];
            u64 mine = 0;
#pragma unroll
            for (int i = 0; i < PER_LANE; i++) {
                const int id = t * K::TILE + i * 32 + lane_id();
                x[i] = id < K::V ? __ldcg(values + id) : 0.0f;
            }
#pragma unroll
            for (int i = 0; i < PER_LANE; i++) {
                const int id = t * K::TILE + i * 32 + lane_id();
                mine += id < K::V ? f(x[i], id) : 0;
            }
            const u64 upto = warp_upto(mine);
            if (lane_id() == 31)
                room.u.tile_weight[t] = upto;
        }
        block_sync();
        constexpr int N = ceil_div(K::TILES, THREADS);
        u64 mine = 0, all;
        for (int k = 0; k < N; k++) {
            const int t = threadIdx.x * N + k;
            mine += t < K::TILES ? room.u.tile_weight[t] : 0;
        }
        u64 before = block_before<THREADS>(mine, room.partial, &all);
        for (int k = 0; k < N; k++) {
            const int t = threadIdx.x * N + k;
            const u64 w = t < K::TILES ? room.u.tile_weight[t] : 0;
            if (before < aim && aim <= before + w) {
                room.found[0] = t;
                room.found[1] = aim - before;
            }
            before += w;
        }
        block_sync();
        if (warp_id() == 0) {
            const int base = (int)room.found[0] * K::TILE;
            const u64 rest = room.found[1];
            u64 before_here = 0;
            for (int i = 0; i < PER_LANE; i++) {
                const int id = base + i * 32 + lane_id();
                const u64 w = id < K::V ? f(__ldcg(values + id), id) : 0;
                const u64 upto = warp_upto(w);
                if (before_here + upto - w < rest && rest <= before_here + upto)
                    room.token = id;
                before_here += __shfl_sync(~0u, upto, 31);
            }
        }
        block_sync();
        const int id = room.token;
        block_sync();
        return id;
    }

    // u: 24 random bits. sum: of ratio() over the row, in fp32.
    DEVICE int token(const FtxParams &p, u32 u, float sum) const
    {
        const int top_k = p.top_k > 0 && p.top_k < K::V ? p.top_k : 0;
        const bool by_p = p.top_p < 1.0f, by_min = p.min_p > 0.0f;
        const double share = p.top_p > 0.0f ? (double)p.top_p : 0.0;

        if (top_k || by_p || by_min) {
            const float bound = tile_bound(top_k ? top_k : 256);
            if (collect(bound)) {
                int n = room.n;
                bool exact = true;
                u64 all = 0;
                if (top_k) {
                    const u32 kth = (u32)(room.list[least(top_k, n) - 1] >> 32);
                    n = prefix(n, [&](int i) { return (u32)(room.list[i] >> 32) >= kth; });
                }
                if (by_p) {
                    heavy(n, 0, &all);
                    const u64 whole = top_k ? all : (u64)((double)sum * (double)(1ull << WEIGHT_BITS));
                    const u64 mass = (u64)((double)whole * share);
                    exact = mass <= all;
                    n = most(1, heavy(n, mass, &all));
                } else if (!top_k) {
                    exact = room.n == K::V || ratio(bound, top) < min_p;
                }
                if (exact) {
                    if (by_min)
                        n = most(1, prefix(n, [&](int i) { return ratio(place_value(room.list[i]), top) >= min_p; }));
                    return draw_list(n, u);
                }
            }
        }
        u64 bound = 0;
        if (top_k)
            bound = border(false, top_k, 0) >> 32 << 32; // with its ties
        if (by_p) {
            const u64 mass = (u64)((double)total(bound) * share);
            bound = border(true, mass ? mass : 1, bound);
        }
        const auto kept = [&](float x, int id) {
            return place_of(x, id) >= bound && ratio(x, top) >= min_p ? weight(x, top) : 0ull;
        };
        u64 mine = 0, all;
        each(__int_as_float((int)0xff800000u), [&](float x, int id) { mine += kept(x, id); });
        block_before<THREADS>(mine, room.partial, &all);
        return nth_id(__umul64hi(all, (u64)u << 40) + 1, kept);
    }
};
