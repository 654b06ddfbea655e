// few.cuh - the greatest values of a row of logits, read from its segments (body/segments.cuh) by several warps at once.
//
// Each warp lists those of its segments that may hold one of the greatest (FewSegments); then all warps of the row
// collect the candidates of these (RowCandidates). Where so many values are equal that the list overflows, one warp
// finds the best segments alone (search_segments).
#pragma once
#include "body/candidates.cuh"

// The segments of one warp that may hold one of the row's greatest values. Each lane says whether its segment is appended.
struct FewSegments {
    enum { MOST = 16 };
    uint4_ *list; // FtxSegment records
    int n;        // how many were appended; the list holds the first MOST
    DEVICE void push(bool mine, uint4_ segment)
    {
        const u32 all = warp_ballot(mine);
        const int at = n + __popc(all & ((1u << lane_id()) - 1));
        if (mine && at < MOST)
            list[at] = segment;
        n += __popc(all);
    }
};

// The candidates of a row, collected by all of its warps, in no order.
struct RowCandidates {
    enum { MOST = MAX_TOP_NEEDED * SEGMENT_LIST };
    u64 *list; // places
    u32 *n;    // how many; above MOST the list is not valid

    // One warp: appends those of each lane's N values that are >= low.
    template <int N> DEVICE void push(const float (&x)[N], const int (&id)[N], float low) const
    {
        int before[N], all = 0;
#pragma unroll
        for (int i = 0; i < N; i++) {
            const u32 high = warp_ballot(x[i] >= low);
            before[i] = all + __popc(high & ((1u << lane_id()) - 1));
            all += __popc(high);
        }
        u32 at = 0;
        if (lane_id() == 0)
            at = shared_atomic_add(n, (u32)all);
        at = shuffle(at, 0);
#pragma unroll
        for (int i = 0; i < N; i++)
            if (x[i] >= low && at + before[i] < MOST)
                list[at + before[i]] = place_of(x[i] + 0.0f, id[i]);
    }
    // One warp: appends the candidates of its segments. meanwhile() runs once, while the first loads are in flight.
    template <class F> DEVICE void push(const FewSegments &from, const float *logits, float low, F meanwhile) const
    {
        const FtxSegment *segments = (const FtxSegment *)from.list;
        const int all = least(from.n, FewSegments::MOST), column = lane_id() % SEGMENT_LIST; // half a warp reads one segment
        u32 whole = 0;
        int first = 0;
        warp_sync();
        do {
            float x[4];
            int id[4];
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const int segment = first + 2 * i + lane_id() / SEGMENT_LIST;
                const int kept = segment < all ? segments[segment].kept : 0;
                const float *y = logits + (segment < all ? segments[segment].first : 0) + column;
                x[i] = column < kept ? load_l2_scalar(y) : negative_infinity();
                id[i] = column < kept ? __float_as_int(load_l2_scalar(y + SEGMENT_LIST)) : 0;
                whole |= kept == KEEP_ALL ? 1u << segment : 0;
            }
            if (first == 0)
                meanwhile();
            push(x, id, low);
            first += 8;
        } while (first < all);
#pragma unroll 1
        for (whole |= shuffle_xor(whole, SEGMENT_LIST); whole; whole &= whole - 1) {
            const FtxSegment segment = segments[__ffs(whole) - 1];
#pragma unroll 1
            for (int i = lane_id(); i - lane_id() < segment.width; i += 32) {
                const int id[1] = {segment.first + i};
                const float x[1] = {i < segment.width ? load_l2_scalar(logits + segment.first + i) : negative_infinity()};
                push(x, id, low);
            }
        }
        if (from.n > all && lane_id() == 0)
            shared_atomic_add(n, MOST + 1u);
    }
};

// One warp: lane i < take gets the segment with the i-th greatest maximum, of equal ones the first; width 0: none.
DEVICE FtxSegment search_segments(const FtxSegment *segments, int count, int take)
{
    FtxSegment mine = {};
    u64 last = ~(u64)0;
#pragma unroll 1
    for (int n = 0; n < take; n++) {
        u64 best = 0;
        int at = 0;
#pragma unroll 1
        for (int i = lane_id(); i < count; i += 32) {
            const FtxSegment segment = segment_load(segments + i);
            const u64 place = segment.top > negative_infinity() ? place_of(segment.top, segment.first) : 0;
            if (place < last && place > best) {
                best = place;
                at = i;
            }
        }
        last = warp_most(best);
        if (!last)
            break;
        at = (int)warp_min(best == last ? (u32)at : ~0u);
        if (lane_id() == n)
            mine = segment_load(segments + at);
    }
    return mine;
}
