// beam_narrow.cuh - the rows of a beam search whose top_needed is small: only candidates of their logits are written
// (body/segments.cuh), and one block does all rows of the search.
//
//   list_candidates   each warp reads some of its row's segments and lists candidates of the row
//   order_candidates  the warps of a row sort them: the row's best `take`
//   beam_narrow       both, and the log-sum-exp of each row: entries with log-probabilities
#pragma once
#include "device/block.cuh"
#include "device/l2.cuh"
#include "device/order.cuh"
#include "body/beam_shape.cuh"
#include "body/candidates.cuh"
#include "body/few.cuh"
#include "body/lanes.cuh"
#include "body/segments.cuh"

// Which warp works on which row.
struct RowWarps {
    int each, row, which; // warps of a row; this warp's row, and its number among the row's warps
    bool live;
};
template <class K> DEVICE RowWarps row_warps(const BeamGroup<K> &g)
{
    static_assert(BeamShape<K>::WARPS == 16, "of one row, of 4 or of 8");
    const int bits = g.live > 4 ? 1 : g.live > 1 ? 2 : 4, row = warp_id() >> bits;
    return RowWarps{1 << bits, row, warp_id() & ((1 << bits) - 1), row < g.live};
}

// What warps exchange; entries of warps, or of rows.
template <class K> struct NarrowRoom {
    static constexpr int WARPS = BeamShape<K>::WARPS;
    u32 bound[WARPS];   // order_key of the take-th greatest maximum that the warp reads: a lower bound for the row
    SegmentSum sum[WARPS];
    u32 found[WARPS];   // number of the row's candidates
    float shift[WARPS]; // log-probability = logit + shift
};

// The block: lists what may be among the best of each row. Returns how many segments a row has. Barriers inside and
// at the end.
template <class K>
DEVICE int list_candidates(const BeamArgs &a, const BeamGroup<K> &g, const RowWarps &w, NarrowRoom<K> &room,
                           const RowCandidates &found, FewSegments few, const FtxSegment *segments, const float *logits)
{
    constexpr int AHEAD = 3, LAST = FTX_SEGMENTS(K::V) - 1;
    const int at = w.which * 32 + lane_id(), stride = w.each * 32, take = g.take;
    SegmentSum rest = {negative_infinity(), 0.0f};
    uint4_ segment[AHEAD];
    float top[AHEAD], best = negative_infinity(), high = best;
    int count = 0;
    if (w.live) {
        count = load_l2_scalar(&a.segments->count);
#pragma unroll
        for (int i = 0; i < AHEAD; i++)
            segment[i] = load_l2(segments + least(at + i * stride, LAST));
#pragma unroll
        for (int i = 0; i < AHEAD; i++) {
            top[i] = at + i * stride < count ? __uint_as_float(segment[i].x) : negative_infinity();
            best = fmaxf(best, top[i]);
        }
#pragma unroll 1
        for (int i = at + AHEAD * stride; i < count; i += stride) {
            const FtxSegment more = segment_load(segments + i);
            best = fmaxf(best, more.top);
            segment_add(rest, more.top, more.sum);
        }
        u32 left = order_key(best), bound = warp_most(left);
        high = order_value(bound);
#pragma unroll 1
        for (int i = 1; i < take; i++) { // equal keys are removed together, which makes the bound lower, never wrong
            left = left == bound ? 0 : left;
            bound = warp_most(left);
        }
        if (lane_id() == 0)
            room.bound[warp_id()] = bound;
        if (at == 0)
            *found.n = 0;
    }
    block_sync();
    if (w.live) {
        const u32 bound = warp_most(lane_id() < w.each ? room.bound[w.row * w.each + lane_id()] : 0);
        const float low = candidate_floor(bound ? order_value(bound) : negative_infinity());
#pragma unroll
        for (int i = 0; i < AHEAD; i++)
            few.push(top[i] >= low, segment[i]);
#pragma unroll 1
        for (int i = at - lane_id() + AHEAD * stride; i < count && warp_ballot(best >= low); i += stride) {
            const uint4_ more = load_l2(segments + least(i + lane_id(), LAST));
            few.push(i + lane_id() < count && __uint_as_float(more.x) >= low, more);
        }
        found.push(few, logits, low, [&] {
            float sum = rest.sum * segment_exp(rest.top, high);
#pragma unroll
            for (int i = 0; i < AHEAD; i++)
                sum += top[i] > negative_infinity() ? __uint_as_float(segment[i].y) * segment_exp(top[i], high) : 0.0f;
            sum = warp_sum(sum);
            if (lane_id() == 0)
                room.sum[warp_id()] = SegmentSum{high, sum};
        });
    }
    block_sync();
    return count;
}

// The warps of a row: write the best `take` of its candidates, best first; an entry's total is the logit.
DEVICE void order_candidates(BeamEntry *entry, const RowWarps &w, const RowCandidates &found, const FtxSegment *segments, int count,
                             const float *logits, int take)
{
    int n = *found.n, step = w.each * 8;
    if (n > found.MOST && w.which == 0) { // too many equal values: this warp does it alone
        const FtxSegment mine = search_segments(segments, count, take);
        n = __popc(warp_ballot(mine.width > 0));
        const float low = n == take ? shuffle(mine.top, n - 1) : candidate_floor(negative_infinity());
        n = gather_candidates(found.list, mine, n, low, logits, take);
        step = 8;
    } else if (n > found.MOST) {
        n = 0;
    }
#pragma unroll 1
    for (int first = w.which * 8; first < n; first += step) { // four lanes count the candidates above one
        const int at = first + lane_id() / 4;
        const u64 mine = at < n ? found.list[at] : 0;
        int above = 0;
#pragma unroll 4
        for (int i = lane_id() % 4; i < n; i += 4)
            above += found.list[i] > mine;
        above += shuffle_xor(above, 1);
        above += shuffle_xor(above, 2);
        if (lane_id() % 4 == 0 && at < n && above < take)
            entry[above] = BeamEntry{{place_value(mine), place_id(mine)}, 0.0f};
    }
    for (int i = n + lane_id(); i < take && w.which == 0; i += 32)
        entry[i] = BeamEntry{{0.0f, -1}, 0.0f};
}

// The block: the entries of all rows, as merge_group expects them.
template <class K> DEVICE void beam_narrow(const BeamArgs &a, const BeamGroup<K> &g, const RowWarps &w, char *shared)
{
    using D = BeamShape<K>;
    SHARED(NarrowRoom<K>, room_, 1);
    NarrowRoom<K> &room = room_[0];
    const FtxSegment *segments = segments_of(a.segments, K::V, g.row + w.row);
    const float *logits = a.logits + (i64)(g.row + w.row) * K::V;
    const RowCandidates found = {(u64 *)(shared + D::FOUND_AT) + w.row * D::FOUND, room.found + w.row};
    const FewSegments few = {(uint4_ *)(shared + D::FEW_AT) + warp_id() * FewSegments::MOST, 0};
    BeamEntry *entry = (BeamEntry *)shared;
    const int count = list_candidates<K>(a, g, w, room, found, few, segments, logits);
    if (w.live)
        order_candidates(entry + w.row * g.take, w, found, segments, count, logits, g.take);
    if (w.live && w.which == w.each - 1) { // the row's last warp has the fewest candidates
        const bool mine = lane_id() < w.each;
        const SegmentSum all = segment_total(mine ? room.sum[w.row * w.each + lane_id()] : SegmentSum{negative_infinity(), 0.0f});
        if (lane_id() == 0)
            room.shift[w.row] = -(all.top + logf(all.sum));
    }
    block_sync();
    if (warp_id() > 0)
        return;
#pragma unroll 1
    for (int i = lane_id(); i < g.live * g.take; i += 32) {
        const int row = i * g.inverse >> 16;
        const float shift = room.shift[row], score = g.live == 1 ? 0.0f : g.scores[row];
        const bool runs = shift - shift == 0.0f && score > negative_infinity(); // shift is finite, and the lane is running
        BeamEntry &e = entry[i];
        e.logp = e.total + shift;
        e.total = score + e.logp;
        e.id = runs ? e.id : -1;
    }
    warp_sync();
}
