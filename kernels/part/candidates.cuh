// candidates.cuh - the best of a row by what the kernel of its logits has left of it (part/parts.cuh): the numbers of
// its parts, by some warps; then, by one, the parts that may hold one of the best, and their candidates.
#pragma once
#include "device/shared.cuh"
#include "part/parts.cuh"

struct RowParts {
    const FtxPart *parts;
    const float *logits; // where candidates stand
    int count;
};

struct PartSum {
    float top, sum; // sum of exp(x - top)
};

DEVICE void part_add(PartSum &to, float top, float sum)
{
    const float high = fmaxf(to.top, top);
    if (top > negative_infinity()) {
        to.sum = to.sum * part_exp(to.top, high) + sum * part_exp(top, high);
        to.top = high;
    }
}
// Over lanes; every lane gets it.
DEVICE PartSum part_total(PartSum mine)
{
    const float high = warp_max(mine.top);
    return PartSum{high, warp_sum(mine.sum * part_exp(mine.top, high))};
}

// Thread `at` of `threads` reads every so manieth part of a row, AHEAD at once: the maxima to tops[FTX_PARTS(V)] in shared memory, to
// f what each part says.
template <int V, class F> DEVICE void read_parts(const FtxParts *parts, int row, int at, int threads, float *tops, F f)
{
    constexpr int AHEAD = 3, ALL = FTX_PARTS(V);
    const FtxPart *from = parts_of(parts, V, row);
    const int count = load_l2_scalar(&parts->count);
#pragma unroll 1
    for (int first = at; first < ALL; first += AHEAD * threads) {
        FtxPart part[AHEAD];
#pragma unroll
        for (int i = 0; i < AHEAD; i++)
            part[i] = part_load(from + least(first + i * threads, ALL - 1));
        if (first >= count)
            return;
#pragma unroll
        for (int i = 0; i < AHEAD; i++)
            if (first + i * threads < count) {
                tops[first + i * threads] = part[i].top;
                f(part[i]);
            }
    }
}

// One warp's list of values. A lane says which of its own come along, in the order of lanes.
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

// The values of a part whose logits are all there, from `low` on; at most `few` of them, the best.
DEVICE void search_part(CandidateList &to, const float *logits, int first, int width, float low, int few)
{
    constexpr int EACH = PART_COLUMNS / 32;
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
    for (int n = 0; n < few; n++) { // too many alike
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

// One warp, lane i < n with the i-th part: places of the parts' values from `low` on, in no order; of one whose logits
// are all there at most `take`. list[n * PART_LIST] holds them. How many.
DEVICE int gather_candidates(u64 *list, const FtxPart &mine, int n, float low, const float *logits, int take)
{
    CandidateList to = {list, 0};
#pragma unroll 1
    for (int from = 0; from < n; from += 8) { // half a warp a part
        float x[4];
        int id[4];
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int part = from + 2 * i + lane_id() / PART_LIST, first = shuffle(mine.first, part % 32);
            const bool there = lane_id() % PART_LIST < shuffle(mine.kept, part % 32) && part < n;
            const float *y = logits + first + lane_id() % PART_LIST;
            x[i] = there ? load_l2_scalar(y) : negative_infinity();
            id[i] = there ? __float_as_int(load_l2_scalar(y + PART_LIST)) : 0;
        }
#pragma unroll
        for (int i = 0; i < 4; i++)
            to.push(x[i] >= low, x[i], id[i]);
    }
#pragma unroll 1
    for (u32 whole = warp_ballot(mine.kept == WHOLE); whole; whole &= whole - 1) {
        const int part = __ffs(whole) - 1;
        search_part(to, logits, shuffle(mine.first, part), shuffle(mine.width, part), low, take);
    }
    warp_sync();
    return to.n;
}

// One warp, from the maxima of `count` parts, which it uses up: places of all values that may be among the best
// `take`, 2 to PART_NEED, in no order; list[take * PART_LIST] holds them. How many.
DEVICE int find_candidates(u64 *list, float *tops, int count, const FtxPart *parts, const float *logits, int take)
{
    float best, low = part_low(negative_infinity());
    int at, which = 0, n = 0;
    const auto look = [&] { // for the best of the lane's parts
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
        const int part = (int)warp_min(key == top ? (u32)at : ~0u);
        which = lane_id() == n ? part : which;
        if (++n == take)
            low = value;
        if (key == top && at == part) {
            tops[part] = negative_infinity();
            look();
        }
    }
    const FtxPart mine = lane_id() < n ? part_load(parts + which) : FtxPart{};
    return gather_candidates(list, mine, n, low, logits, take);
}
