// candidates.cuh - the greatest values of a row of logits, read from its segments (body/segments.cuh).
//
// Some warps read the records of the segments (read_segments). Then one warp picks the segments that may hold one of
// the n greatest values and collects their candidates (find_candidates): the n greatest are among them.
//
// A value and its id are kept as one 64-bit place (device/order.cuh): greater values first, of equal ones the lower id.
#pragma once
#include "device/shared.cuh"
#include "body/segments.cuh"

struct RowSegments {
    const FtxSegment *segments;
    const float *logits; // the row; candidates stand in it, too
    int count;
};

struct SegmentSum {
    float top, sum; // sum of exp(x - top)
};

DEVICE void segment_add(SegmentSum &to, float top, float sum)
{
    const float high = fmaxf(to.top, top);
    if (top > negative_infinity()) {
        to.sum = to.sum * segment_exp(to.top, high) + sum * segment_exp(top, high);
        to.top = high;
    }
}
// The sum over the lanes of a warp; every lane gets it.
DEVICE SegmentSum segment_total(SegmentSum mine)
{
    const float high = warp_max(mine.top);
    return SegmentSum{high, warp_sum(mine.sum * segment_exp(mine.top, high))};
}

// Thread `at` of `threads` reads the segments at, at + threads, ... of a row, AHEAD of them in flight: each maximum goes
// to tops[FTX_SEGMENTS(V)] in shared memory, each record to f.
template <int V, class F> DEVICE void read_segments(const FtxSegments *segments, int row, int at, int threads, float *tops, F f)
{
    constexpr int AHEAD = 3, ALL = FTX_SEGMENTS(V);
    const FtxSegment *from = segments_of(segments, V, row);
    const int count = load_l2_scalar(&segments->count);
#pragma unroll 1
    for (int first = at; first < ALL; first += AHEAD * threads) {
        FtxSegment segment[AHEAD];
#pragma unroll
        for (int i = 0; i < AHEAD; i++)
            segment[i] = segment_load(from + least(first + i * threads, ALL - 1));
        if (first >= count)
            return;
#pragma unroll
        for (int i = 0; i < AHEAD; i++)
            if (first + i * threads < count) {
                tops[first + i * threads] = segment[i].top;
                f(segment[i]);
            }
    }
}

// A list of places that one warp appends to, in the order of lanes. Each lane says whether its value is appended.
struct CandidateList {
    u64 *list;
    int n;
    DEVICE void push(bool mine, float x, int id)
    {
        const u32 all = warp_ballot(mine);
        const int at = n + __popc(all & ((1u << lane_id()) - 1));
        if (mine)
            list[at] = place_of(x + 0.0f, id);
        n += __popc(all);
    }
};

// Appends the values >= low of a segment that has all its logits: all of them, or the `few` best if there are more.
DEVICE void search_segment(CandidateList &to, const float *logits, int first, int width, float low, int few)
{
    constexpr int EACH = SEGMENT_COLUMNS / 32;
    float x[EACH];
    int all = 0;
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        x[i] = i * 32 + lane_id() < width ? load_l2_scalar(logits + first + i * 32 + lane_id()) : negative_infinity();
        all += __popc(warp_ballot(x[i] >= low));
    }
    if (all <= few) {
#pragma unroll
        for (int i = 0; i < EACH; i++)
            to.push(x[i] >= low, x[i], first + i * 32 + lane_id());
        return;
    }
#pragma unroll 1
    for (int n = 0; n < few; n++) { // too many: the best, one at a time
        u64 best = 0;
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            const u64 place = x[i] >= low ? place_of(x[i] + 0.0f, first + i * 32 + lane_id()) : 0;
            best = place > best ? place : best;
        }
        const u64 top = warp_most(best);
        to.push(best == top, place_value(best), place_id(best));
#pragma unroll
        for (int i = 0; i < EACH; i++)
            x[i] = place_id(top) == first + i * 32 + lane_id() ? negative_infinity() : x[i];
    }
}

// One warp; lane i < n holds the i-th segment. Collects the places of their values >= low, in no order, at most `take`
// from a segment that has all its logits. `list` has room for n * SEGMENT_LIST. Returns how many.
DEVICE int gather_candidates(u64 *list, const FtxSegment &mine, int n, float low, const float *logits, int take)
{
    CandidateList to = {list, 0};
#pragma unroll 1
    for (int from = 0; from < n; from += 8) { // half a warp reads one segment
        float x[4];
        int id[4];
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int segment = from + 2 * i + lane_id() / SEGMENT_LIST, first = shuffle(mine.first, segment % 32);
            const bool there = lane_id() % SEGMENT_LIST < shuffle(mine.kept, segment % 32) && segment < n;
            const float *y = logits + first + lane_id() % SEGMENT_LIST;
            x[i] = there ? load_l2_scalar(y) : negative_infinity();
            id[i] = there ? __float_as_int(load_l2_scalar(y + SEGMENT_LIST)) : 0;
        }
#pragma unroll
        for (int i = 0; i < 4; i++)
            to.push(x[i] >= low, x[i], id[i]);
    }
#pragma unroll 1
    for (u32 whole = warp_ballot(mine.kept == KEEP_ALL); whole; whole &= whole - 1) {
        const int segment = __ffs(whole) - 1;
        search_segment(to, logits, shuffle(mine.first, segment), shuffle(mine.width, segment), low, take);
    }
    warp_sync();
    return to.n;
}

// One warp: collects the places of all values that may be among the `take` greatest (2 to MAX_TOP_NEEDED), in no order.
// tops: the maxima of the row's `count` segments; overwritten. `list` has room for take * SEGMENT_LIST. Returns how many.
DEVICE int find_candidates(u64 *list, float *tops, int count, const FtxSegment *segments, const float *logits, int take)
{
    float best, low = candidate_floor(negative_infinity());
    int at, which = 0, n = 0;
    const auto look = [&] { // this lane's greatest maximum
        best = negative_infinity();
        at = 0;
#pragma unroll 4
        for (int i = lane_id(); i < count; i += 32)
            if (tops[i] > best) {
                best = tops[i];
                at = i;
            }
    };
    look();
#pragma unroll 1
    while (n < take) {
        const u32 key = order_key(best), top = warp_most(key);
        const float value = order_value(top);
        if (!(value > negative_infinity()))
            break;
        const int segment = (int)warp_min(key == top ? (u32)at : ~0u);
        which = lane_id() == n ? segment : which;
        if (++n == take)
            low = value;
        if (key == top && at == segment) {
            tops[segment] = negative_infinity();
            look();
        }
    }
    const FtxSegment mine = lane_id() < n ? segment_load(segments + which) : FtxSegment{};
    return gather_candidates(list, mine, n, low, logits, take);
}
