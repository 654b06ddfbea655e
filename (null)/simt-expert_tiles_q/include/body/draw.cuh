// draw.cuh - draws one token of a row, by top-k, top-p, min-p, typical sampling and a uniform number; exact.
//
// The row is in global memory (`values`), processed but for the temperature. Of each tile of TILE ids the maximum and
// the sum of weights exp((x - maximum) / temperature) are known. Tokens are ordered by place (device/order.cuh): value
// descending, then id ascending. The temperature changes weights but not this order, so it makes no new ties.
//
// Each filter keeps a prefix of the order (top-k: with all ties of the k-th), so what is kept is
// {place >= bound, and exp((x - maximum) / temperature) >= min_p}. Weights are integers, multiples of 2^-40, so that a
// sum has one value whatever its order. The draw walks the kept ids in ascending order until their weights pass
// u * (sum of all kept weights).
//
// Paths, by what the row needs:
//   all       no filter: the sums of tiles, or of segments, lead to one of them, its values to the token.
//   few       the want-th greatest tile maximum is a lower bound of the want-th greatest value. All values at or above
//             it (one to a few times `want`) are listed and sorted in shared memory.
//   segments  `few`, with what the LM head's kernel has written (body/segments.cuh): the maxima of segments give the
//             bound; candidates, or the logits of the few segments that reach it, give the list. The list may hold
//             more values below what is kept, so the token is the same. Processors that only lower values change
//             the list alone: what is not listed is below the bound before and after. A list of logits that is too
//             short or too long gives up, and the row is read. Where only candidates are written and too many values
//             are equal, the candidates are written to `values` as a row.
//   whole     a histogram of counts and weights over the distance from the maximum; the bin with the border is
//             sorted, or split by digits of the place until it fits the list.
//   typical   after few or whole: of the kept values those nearest to their mean. These are no prefix of the order;
//             how near is found by digits, too.
#pragma once
#include "device/atomic.cuh"
#include "device/block.cuh"
#include "device/io.h"
#include "device/order.cuh"
#include "device/vec.cuh"
#include "body/candidates.cuh"
#include "body/draw_room.cuh"

template <class K> struct Draw {
    using Room = DrawRoom<K>;
    static constexpr int THREADS = K::THREADS, WARPS = THREADS / 32, PER_LANE = K::TILE / 32;
    Room &room;
    float top;             // greatest value of the row, or of the list
    float inv_temperature; // finite

    DEVICE float ratio_of(float x) const { return ratio(x, top, inv_temperature); }
    DEVICE u64 weight(float x) const { return whole_weight(ratio_of(x)); }
    static DEVICE int id_of(int t, int i) { return t * K::TILE + i * 32 + lane_id(); }

    // f(value, id) for every value of tile t; a lane has BATCH loads in flight. All lanes call f equally often, with
    // -inf beyond the row.
    template <int BATCH, class F> DEVICE void each_of(int t, F f) const
    {
#pragma unroll 1
        for (int from = 0; from < PER_LANE; from += BATCH) {
            const float *y = room.values + id_of(t, from);
            float x[BATCH];
#pragma unroll
            for (int i = 0; i < BATCH; i++)
                x[i] = id_of(t, from + i) < K::V ? load_l2_scalar(y + i * 32) : __int_as_float((int)0xff800000u);
#pragma unroll
            for (int i = 0; i < BATCH; i++)
                f(x[i], id_of(t, from + i));
        }
    }
    // The same for the tiles that may hold a place at or above the bound.
    template <int BATCH, class F> DEVICE void each(u64 bound, F f) const
    {
        const float least_value = bound ? place_value(bound) : __int_as_float((int)0xff800000u);
#pragma unroll 1
        for (int t = warp_id(); t < K::TILES; t += WARPS)
            if (room.tile_top[t] >= least_value)
                each_of<BATCH>(t, [&](float x, int id) {
                    if (id < K::V)
                        f(x, id);
                });
    }

    DEVICE void push(float x, int id) const
    {
        const u32 at = shared_atomic_add(&room.n, 1u);
        if (at < Room::LIST)
            room.list[at] = place_of(x, id);
    }
    DEVICE void clear() const
    {
        block_sync();
        if (threadIdx.x == 0)
            room.n = room.tiles = 0;
        block_sync();
    }

    // --- few ----------------------------------------------------------------------------------

    // The want-th greatest tile maximum, the least if there are fewer tiles. Ends in a barrier.
    DEVICE float tile_bound(int want) const
    {
        want = least(want, K::TILES);
        for (int i = threadIdx.x; i < K::TILES; i += THREADS)
            room.u.rank[i] = 0;
        block_sync();
        constexpr int PER_TILE = most(1, THREADS / pow2_at_least(K::TILES)); // threads of one tile
        constexpr int QUADS = ceil_div(K::TILES, 4);
        for (int n = threadIdx.x; n < K::TILES * PER_TILE; n += THREADS) {
            const int i = n % K::TILES, share = n / K::TILES;
            const float mine = room.tile_top[i];
            u32 above = 0;
#pragma unroll 2
            for (int q = share; q < QUADS; q += PER_TILE) {
                const Vec<float, 4> other = load<4>(room.tile_top + q * 4);
#pragma unroll
                for (int k = 0; k < 4; k++) {
                    const int j = q * 4 + k;
                    above += j < K::TILES && (other[k] > mine || (other[k] == mine && j < i));
                }
            }
            shared_atomic_add(&room.u.rank[i], above);
        }
        block_sync();
        for (int i = threadIdx.x; i < K::TILES; i += THREADS)
            if (room.u.rank[i] == (u32)want - 1)
                room.found[0] = __float_as_uint(room.tile_top[i]);
        block_sync();
        return __uint_as_float((u32)room.found[0]);
    }

    // Lists all values at or above the bound; false: they do not fit the list.
    DEVICE bool collect(float bound) const
    {
        clear();
        for (int t = threadIdx.x; t < K::TILES; t += THREADS)
            if (room.tile_top[t] >= bound)
                room.u.which[shared_atomic_add(&room.tiles, 1u)] = t;
        block_sync();
        for (u32 i = warp_id(); i < room.tiles; i += WARPS) {
            const int t = room.u.which[i];
#pragma unroll 1
            for (int from = 0; from < PER_LANE; from += 8) {
                const float *y = room.values + id_of(t, from);
                u32 high = 0; // which of the lane's values pass; few do, so they are loaded again
#pragma unroll
                for (int k = 0; k < 8; k++)
                    high |= id_of(t, from + k) < K::V && load_l2_scalar(y + k * 32) >= bound ? 1u << k : 0;
                for (; high; high &= high - 1) {
                    const int k = __ffs(high) - 1;
                    push(load_l2_scalar(y + k * 32), id_of(t, from + k));
                }
            }
        }
        block_sync();
        return room.n <= Room::LIST;
    }

    // --- segments --------------------------------------------------------------------------------

    // A lower bound of the want-th greatest value: `want` to about 1.125 * want of the threads' maxima reach it, where a
    // thread takes every THREADS-th segment. The least finite value if there are fewer.
    DEVICE float segment_bound(int want) const
    {
        u32 low = order_key(candidate_floor(negative_infinity())), high = order_key(top) + 1; // fewer than `want` reach `high`
        float some = negative_infinity();
        for (int i = threadIdx.x; i < room.segments.count; i += THREADS)
            some = fmaxf(some, room.u.few.segment_top[i]);
        const u32 mine = order_key(some);
        if (block_count(mine >= low) < want)
            return order_value(low);
#pragma unroll 1
        while (high - low > 1) {
            const u32 middle = low + (high - low) / 2;
            const int n = block_count(mine >= middle);
            (n < want ? high : low) = middle;
            if (n >= want && n <= want + want / 8)
                break;
        }
        return order_value(low);
    }
    // The same for want <= 32, by each warp for itself: a lane takes every 32nd segment.
    DEVICE float segment_bound_short(int want) const
    {
        float some = negative_infinity();
#pragma unroll 4
        for (int i = lane_id(); i < room.segments.count; i += 32)
            some = fmaxf(some, room.u.few.segment_top[i]);
        return candidate_floor(warp_nth(some, want));
    }

    // Lists the segments' values at or above `low`, as far as they are written; false: they do not fit the list.
    // spread: writes them to `values` in place of a list, -inf elsewhere.
    DEVICE bool collect_segments(float low, bool spread) const
    {
        constexpr int EACH = SEGMENT_COLUMNS / 32;
        const RowSegments &from = room.segments;
        clear();
        for (int i = threadIdx.x; i < K::V && spread; i += THREADS)
            room.values[i] = negative_infinity();
        for (int i = threadIdx.x; i < from.count; i += THREADS)
            if (room.u.few.segment_top[i] >= low)
                room.u.few.which[shared_atomic_add(&room.tiles, 1u)] = (u16)i;
        block_sync();
        const int all = room.tiles;
#pragma unroll 1
        for (int base = warp_id(); base < all; base += THREADS) {
            const int own = base + lane_id() * WARPS;
            const FtxSegment segment = own < all ? segment_load(from.segments + room.u.few.which[own]) : FtxSegment{};
            const int size = segment.kept == KEEP_ALL ? segment.width : -segment.kept; // negative: candidates
#pragma unroll 1
            for (int at = 0; at < 32 && base + at * WARPS < all; at++) {
                const int n = shuffle(size, at), first = shuffle(segment.first, at) + lane_id();
                const float *y = from.logits + first;
                float x[EACH];
#pragma unroll
                for (int i = 0; i < EACH; i++)
                    x[i] = i * 32 + lane_id() < most(n, -n) ? load_l2_scalar(y + i * 32) : negative_infinity();
#pragma unroll
                for (int i = 0; i < EACH; i++)
                    if (x[i] >= low) {
                        const int id = n < 0 ? __float_as_int(load_l2_scalar(y + i * 32 + SEGMENT_LIST)) : first + i * 32;
                        if (spread)
                            room.values[id] = x[i] + 0.0f;
                        else
                            push(x[i] + 0.0f, id);
                    }
            }
        }
        block_sync();
        return room.n <= Room::LIST;
    }
    // The tiles' maxima of a row that collect_segments has spread.
    DEVICE void top_tiles() const
    {
#pragma unroll 1
        for (int t = warp_id(); t < K::TILES; t += WARPS) {
            float most_ = negative_infinity();
            each_of<4>(t, [&](float x, int) { most_ = fmaxf(most_, x); });
            most_ = warp_max(most_);
            if (lane_id() == 0)
                room.tile_top[t] = most_;
        }
        block_sync();
    }

    // --- the list -----------------------------------------------------------------------------

    // For how many i < n holds(i) is true. The whole block.
    template <class F> DEVICE int count(int n, F holds) const
    {
        int sum = 0;
#pragma unroll 1
        for (int i = 0; i < n; i += THREADS)
            sum += block_count(i + (int)threadIdx.x < n && holds(i + threadIdx.x));
        return sum;
    }

    // Top-p: how many entries of list[0..n) have predecessors whose weights sum to less than share * whole (whole 0: the
    // sum of the list); -1 if all of the list sums to less than that.
    DEVICE int heavy(int n, double share, u64 whole) const
    {
        const int each_ = ceil_div(n, THREADS), from = threadIdx.x * each_, to = least(from + each_, n);
        u64 mine = 0, all, kept;
#pragma unroll 1
        for (int i = from; i < to; i++)
            mine += weight(place_value(room.list[i]));
        u64 before = block_before<THREADS>(mine, room.partial, &all);
        const u64 mass = (u64)((double)(whole ? whole : all) * share);
        if (mass > all)
            return -1;
        int keep = 0;
#pragma unroll 1
        for (int i = from; i < to; i++) {
            keep += before < mass;
            before += weight(place_value(room.list[i]));
        }
        block_before<THREADS>(keep, room.partial, &kept);
        return (int)kept;
    }

    // Draws from list[0..n): walks ids in ascending order until their weights pass u / 2^24 of the sum.
    DEVICE int draw_list(int n, u32 u) const
    {
        // Halves swapped, ~id is the high word: descending order is by id ascending.
        for (int i = threadIdx.x; i < n; i += THREADS)
            room.list[i] = room.list[i] << 32 | room.list[i] >> 32;
        sort_descending(room, n);
        const int each_ = ceil_div(n, THREADS), from = threadIdx.x * each_, to = least(from + each_, n);
        u64 mine = 0, all;
#pragma unroll 1
        for (int i = from; i < to; i++)
            mine += weight(order_value((u32)room.list[i]));
        u64 before = block_before<THREADS>(mine, room.partial, &all);
        const u64 target = __umul64hi(all, (u64)u << 40);
#pragma unroll 1
        for (int i = from; i < to; i++) {
            const u64 w = weight(order_value((u32)room.list[i]));
            if (before <= target && target < before + w) {
                room.token = (int)~(u32)(room.list[i] >> 32);
                room.value = order_value((u32)room.list[i]);
            }
            before += w;
        }
        block_sync();
        return room.token;
    }

    // The same for n <= 32, by one warp; lane i has place i.
    DEVICE int draw_lanes(u64 mine, int n) const
    {
        mine = warp_descending(lane_id() < n ? mine << 32 | mine >> 32 : 0, n, room.list);
        const u64 w = lane_id() < n ? weight(order_value((u32)mine)) : 0, upto = warp_prefix_sum(w), before = upto - w;
        const u64 target = __umul64hi(shuffle(upto, 31), (u64)room.random << 40);
        const int at = __ffs(warp_ballot(before <= target && target < upto)) - 1;
        if (lane_id() == at)
            room.value = order_value((u32)mine);
        warp_sync();
        return (int)~(u32)(shuffle(mine, at) >> 32);
    }
    // Filters and draws from a list of n <= 32, by one warp; gives what keep_of_list and draw_list give.
    DEVICE int draw_few(const FtxParams &p, int n) const
    {
        const u64 mine = warp_descending(lane_id() < n ? room.list[lane_id()] : 0, n, room.list);
        const auto keep = [&](bool stays) { n = most(1, __popc(warp_ballot(lane_id() < n && stays))); };
        keep(mine >> 32 >= shuffle(mine, least(p.top_k, n) - 1) >> 32);
        if (p.top_p < 1.0f) {
            const u64 w = lane_id() < n ? weight(place_value(mine)) : 0, upto = warp_prefix_sum(w);
            keep(upto - w < (u64)((double)shuffle(upto, 31) * share(p)));
        }
        if (p.min_p > 0.0f)
            keep(ratio_of(place_value(mine)) >= p.min_p);
        return draw_lanes(mine, n);
    }

    // --- all ----------------------------------------------------------------------------------

    // Draws from the whole row: finds the tile (or segment) at u / 2^24 of the weight, then the token in it. Tiles and
    // segments are in the order of ids.
    DEVICE int draw_all(u32 u, bool segments) const
    {
        const int all_ = segments ? room.segments.count : K::TILES, N = ceil_div(all_, THREADS);
        const auto weight_of = [&](int t) {
            if (t >= all_)
                return 0ull;
            if (!segments)
                return whole_weight(room.tile_sum[t] * ratio_of(room.tile_top[t]));
            const FtxSegment segment = segment_load(room.segments.segments + t);
            return segment.width ? whole_weight(segment.sum * ratio_of(segment.top)) : 0ull;
        };
        u64 mine = 0, all;
#pragma unroll 1
        for (int k = 0; k < N; k++)
            mine += weight_of(threadIdx.x * N + k);
        u64 before = block_before<THREADS>(mine, room.partial, &all);
        const u64 target = __umul64hi(all, (u64)u << 40);
#pragma unroll 1
        for (int k = 0; k < N; k++) {
            const u64 w = weight_of(threadIdx.x * N + k);
            if (before <= target && target < before + w) {
                room.found[0] = threadIdx.x * N + k;
                // how far into the tile, as a multiple of 2^-40 below 1
                const double share = (double)(target - before) / (double)w * (double)(1ull << 40);
                room.found[1] = share < (double)((1ull << 40) - 1) ? (u64)share : (1ull << 40) - 1;
            }
            before += w;
        }
        block_sync();
        if (warp_id() == 0) { // pass 0 sums the tile's weights, pass 1 finds the token
            const int t = (int)room.found[0];
            const FtxSegment segment = segments ? segment_load(room.segments.segments + t) : FtxSegment{};
            const float here = segments ? segment.top : room.tile_top[t];
            const int first = segments ? segment.first : t * K::TILE, n = segments ? segment.width : least(K::TILE, K::V - first);
            const float *y = (segments ? room.segments.logits : room.values) + first;
            u64 sum = 0;
#pragma unroll 1
            for (int pass = 0; pass < 2; pass++) {
                const u64 aim = __umul64hi(sum, room.found[1] << 24);
                u64 so_far = 0;
#pragma unroll 1
                for (int from = lane_id(); from - lane_id() < n; from += 128) {
                    float x[4];
#pragma unroll
                    for (int i = 0; i < 4; i++)
                        x[i] = from + i * 32 < n ? load_l2_scalar(y + from + i * 32) : negative_infinity();
#pragma unroll
                    for (int i = 0; i < 4; i++) {
                        const u64 w = whole_weight(ratio(x[i], here, inv_temperature)), upto = warp_prefix_sum(w);
                        if (pass && so_far + upto - w <= aim && aim < so_far + upto)
                            room.token = first + from + i * 32;
                        so_far += shuffle(upto, 31);
                    }
                }
                sum = so_far;
            }
        }
        block_sync();
        return room.token;
    }

    // --- whole --------------------------------------------------------------------------------

    // Weight of all places at or above the bound.
    DEVICE u64 total(u64 bound) const
    {
        u64 mine = 0, all;
        each<8>(bound, [&](float x, int id) { mine += place_of(x, id) >= bound ? weight(x) : 0; });
        block_before<THREADS>(mine, room.partial, &all);
        return all;
    }

    // A histogram over the places at or above `bound`, bin 0 first: finds the bin in which the running count (or weight)
    // reaches `aim`. *above: count (or weight) before this bin, *inside: count in it. bin_of: -1 leaves a value out.
    template <class F> DEVICE int border_bin(bool by_weight, u64 aim, u64 bound, u64 *above, u32 *inside, F bin_of) const
    {
        block_sync();
#pragma unroll 1
        for (int i = threadIdx.x; i < Room::BINS; i += THREADS)
            room.u.bin.count[i] = room.u.bin.low[i] = room.u.bin.high[i] = 0;
        block_sync();
        each<4>(bound, [&](float x, int id) {
            const int b = bin_of(x, id);
            if (b >= 0) {
                shared_atomic_add(&room.u.bin.count[b], 1u);
                if (by_weight)
                    shared_add64(&room.u.bin.low[b], &room.u.bin.high[b], weight(x));
            }
        });
        block_sync();
        constexpr int N = Room::BINS / THREADS;
        const auto of_bin = [&](int b) {
            return by_weight ? (u64)room.u.bin.high[b] << 32 | room.u.bin.low[b] : (u64)room.u.bin.count[b];
        };
        u64 mine = 0, all;
#pragma unroll 1
        for (int k = 0; k < N; k++)
            mine += of_bin(threadIdx.x * N + k);
        u64 before = block_before<THREADS>(mine, room.partial, &all);
#pragma unroll 1
        for (int k = 0; k < N; k++) {
            const int b = threadIdx.x * N + k;
            const u64 v = of_bin(b);
            if (before < aim && aim <= before + v) {
                room.found[0] = b;
                room.found[1] = before;
                room.found[2] = room.u.bin.count[b];
            }
            before += v;
        }
        block_sync();
        *above = room.found[1];
        *inside = (u32)room.found[2];
        return (int)room.found[0];
    }

    // The place at which the count (or weight) of the places from the greatest down, at or above `bound`, reaches
    // aim >= 1. Bins by distance from the maximum first, then by digits of the place.
    DEVICE u64 border(bool by_weight, u64 aim, u64 bound) const
    {
        constexpr int BITS = 11, ID_BITS = 22, FIRST = 5 * BITS; // 32 of the key and these
        static_assert(Room::BINS == 1 << BITS && K::V <= 1 << ID_BITS, "five digits are a place");
        u64 digits = 0, above = 0;
        u32 inside = 0;
        int near = 0; // the bin of distances
#pragma unroll 1
        for (int shift = FIRST;; shift -= BITS) {
            const auto bin_of = [&](float x, int id) {
                const float d = (top - x) * inv_temperature * 64.0f;
                const int far = d < (float)(Room::BINS - 1) ? (int)d : Room::BINS - 1;
                const u64 place = (u64)order_key(x) << ID_BITS | (~(u32)id & ((1u << ID_BITS) - 1));
                if (place_of(x, id) < bound)
                    return -1;
                if (shift == FIRST)
                    return far;
                return far == near && !((place ^ digits) >> (shift + BITS)) ? Room::BINS - 1 - (int)(place >> shift & (Room::BINS - 1)) : -1;
            };
            const int bin = border_bin(by_weight, aim, bound, &above, &inside, bin_of);
            aim -= above;
            if (inside <= Room::LIST) {
                clear();
                each<4>(bound, [&](float x, int id) {
                    if (bin_of(x, id) == bin)
                        push(x, id);
                });
                block_sync();
                const int n = room.n;
                sort_descending(room, n);
                const int keep = by_weight ? most(1, heavy(n, 1.0, aim)) : (int)aim;
                const u64 place = room.list[keep - 1];
                block_sync();
                return place;
            }
            if (shift == FIRST)
                near = bin;
            else
                digits |= (u64)(Room::BINS - 1 - bin) << shift;
        }
    }

    // Draws from the whole row with weights f(value, id): walks ids in ascending order until these pass u / 2^24 of the sum.
    template <class F> DEVICE int draw_kept(u32 u, F f) const
    {
        block_sync();
#pragma unroll 1
        for (int t = warp_id(); t < K::TILES; t += WARPS) {
            u64 mine = 0;
            each_of<8>(t, [&](float x, int id) { mine += id < K::V ? f(x, id) : 0; });
            const u64 upto = warp_prefix_sum(mine);
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
        const u64 target = __umul64hi(all, (u64)u << 40);
        for (int k = 0; k < N; k++) {
            const int t = threadIdx.x * N + k;
            const u64 w = t < K::TILES ? room.u.tile_weight[t] : 0;
            if (before <= target && target < before + w) {
                room.found[0] = t;
                room.found[1] = target - before;
            }
            before += w;
        }
        block_sync();
        if (warp_id() == 0) {
            const u64 rest = room.found[1];
            u64 so_far = 0;
            each_of<2>((int)room.found[0], [&](float x, int id) {
                const u64 w = id < K::V ? f(x, id) : 0, upto = warp_prefix_sum(w);
                if (so_far + upto - w <= rest && rest < so_far + upto) {
                    room.token = id;
                    room.value = x;
                }
                so_far += shuffle(upto, 31);
            });
        }
        block_sync();
        return room.token;
    }

    // ------------------------------------------------------------------------------------------

    static DEVICE int top_k(const FtxParams &p) { return p.top_k > 0 && p.top_k < K::V ? p.top_k : 0; }
    static DEVICE double share(const FtxParams &p) { return p.top_p > 0.0f ? (double)p.top_p : 0.0; }
    // sum: of the row's ratios (the greatest value has ratio 1). Whether top-p keeps more values than a list may hold:
    // the likeliest token has less than 1/32 of the kept mass.
    static DEVICE bool leaves_many(const FtxParams &p, float sum) { return p.top_p < 1.0f && !(p.top_p * sum <= 32.0f); }

    // Sorts the list, cuts what is below `low` and applies top-k, top-p and min-p. Returns how many are kept; -1 if values
    // that are kept may be missing in the list. all: the list has every value of the row that can be kept.
    DEVICE int keep_of_list(const FtxParams &p, int k, float low, bool all)
    {
        sort_descending(room, room.n);
        int n = room.n;
        if (low > negative_infinity())
            n = count(n, [&](int i) { return place_value(room.list[i]) >= low; });
        if (n < 1 || (n < k && !all))
            return -1;
        top = place_value(room.list[0]);
        if (k) {
            const u32 kth = (u32)(room.list[least(k, n) - 1] >> 32);
            n = count(n, [&](int i) { return (u32)(room.list[i] >> 32) >= kth; });
        }
        if (p.top_p < 1.0f) {
            n = heavy(n, share(p), k ? 0 : (u64)((double)room.sum * (double)(1ull << WEIGHT_BITS)));
            if (n < 0)
                return -1;
            n = most(1, n);
        } else if (!k && !all && ratio_of(place_value(room.list[n - 1])) >= p.min_p) {
            return -1; // min-p alone, and perhaps more beyond the list
        }
        if (p.min_p > 0.0f)
            n = most(1, count(n, [&](int i) { return ratio_of(place_value(room.list[i])) >= p.min_p; }));
        return n;
    }

    // Locally typical sampling (Meister et al. 2022; kernels/ref/tail.c in plain loops) of the places at or above `bound`
    // with ratio >= min_p. -log p(x) - entropy = (mean - x) / temperature, where mean is the mean of the kept values by
    // weight. So the values nearest to the mean stay, until their weights reach typical_p of all; ties of the last stay,
    // too. Returns the largest |x - mean| that stays, as the bits of a float; *middle: the mean.
    DEVICE u32 typical_reach(const FtxParams &p, u64 bound, float *middle) const
    {
        const float least_ratio = p.min_p;
        u64 mass = 0, depth = 0, all, sum;
        each<4>(bound, [&](float x, int id) {
            const float r = ratio_of(x);
            if (place_of(x, id) >= bound && r >= least_ratio && r > 0.0f) {
                mass += weight(x);
                depth += whole_weight(r * (top - x));
            }
        });
        block_before<THREADS>(mass, room.partial, &all);
        block_before<THREADS>(depth, room.partial, &sum);
        const float mean = *middle = (float)((double)top - (double)sum / (double)all);
        u64 aim = (u64)((double)all * (double)p.typical_p), above;
        u32 inside, reach = 0;
        aim = aim ? aim : 1;
#pragma unroll 1
        for (int shift = 21; shift >= 0; shift = shift == 21 ? 10 : shift - 10) { // bits 31..21, 20..10, 9..0
            const int bits = shift ? 11 : 10;
            const int digit = border_bin(true, aim, bound, &above, &inside, [&](float x, int id) {
                const u32 far = __float_as_uint(fabsf(x - mean));
                if (place_of(x, id) < bound || ratio_of(x) < least_ratio || (u64)(far ^ reach) >> (shift + bits))
                    return -1;
                return (int)(far >> shift & ((1u << bits) - 1));
            });
            aim -= above;
            reach |= (u32)digit << shift;
        }
        return reach;
    }

    // Draws the token of the row. The whole block; warp 0 gets the token. by_segments: read room.segments in place of the
    // row; -1: they do not decide the token. lowers(): the row has processors that lower values; lower() applies these to
    // the list, false: it is too long for that.
    template <class L, class F> DEVICE int token(const FtxParams &p, u32 &by_segments, L lowers, F lower)
    {
        const auto segments = [&] { return K::SEGMENTS && by_segments; };
        const float lowest = candidate_floor(negative_infinity());
        const int k = top_k(p);
        const bool typical = p.typical_p > 0.0f, filter = k || p.top_p < 1.0f || p.min_p > 0.0f;
        const auto candidates = [&] { return segments() && p.top_needed <= MAX_TOP_NEEDED; };
        if (!filter && !typical)
            return draw_all(room.random, segments());
        u64 bound = 0;
        if (filter) {
            // Without top-k, or with processors, how long a list is needed is a guess: first a short one, then a long one.
            int n = -1;
#pragma unroll 1
            for (int want = k ? lowers() ? k + 32 : k : segments() && p.top_p * room.sum > 16.0f ? 256 : 64;;) {
                const bool exact = segments() && !k && !lowers() && p.top_p >= 1.0f; // min-p alone: its limit is known
                const float low = candidates() ? segment_bound_short(k)
                                  : exact      ? candidate_floor(top + logf(0.999f * p.min_p) * p.temperature)
                                  : segments()    ? segment_bound(want)
                                               : tile_bound(want);
                bool all = segments() ? collect_segments(low, false) : collect(low);
                if (all && lowers())
                    all = lower();
                else if (all && segments() && k && room.n <= 32)
                    return warp_id() == 0 ? draw_few(p, room.n) : 0;
                if (all)
                    n = keep_of_list(p, k, lowers() ? low : negative_infinity(), exact || (segments() && low == lowest));
                if (candidates() && n < 0) {
                    collect_segments(low, true);
                    top_tiles();
                    if (threadIdx.x == 0)
                        by_segments = 0;
                    block_sync();
                    continue;
                }
                if (n >= 0 || want >= 256 || exact || (k && !lowers()))
                    break;
                want = 256;
            }
            if (segments() && n < 0)
                return -1;
            if (n > 0 && n <= 32 && !typical)
                return warp_id() == 0 ? draw_lanes(room.list[lane_id()], n) : 0;
            if (n > 0 && !typical)
                return draw_list(n, room.random);
            if (n > 0)
                bound = room.list[n - 1];
#pragma unroll 1
            for (int by_weight = 0; n < 0 && by_weight < 2; by_weight++) {
                if (by_weight ? p.top_p >= 1.0f : !k)
                    continue;
                const u64 aim = by_weight ? (u64)((double)total(bound) * share(p)) : k;
                bound = border(by_weight, aim ? aim : 1, bound);
                if (!by_weight)
                    bound = bound >> 32 << 32; // with its ties
            }
        }
        float mean = 0.0f;
        const u32 reach = typical ? typical_reach(p, bound, &mean) : ~0u;
        const float least_ratio = p.min_p;
        return draw_kept(room.random, [=](float x, int id) {
            const bool stays = place_of(x, id) >= bound && ratio_of(x) >= least_ratio && __float_as_uint(fabsf(x - mean)) <= reach;
            return stays ? weight(x) : 0ull;
        });
    }
};
