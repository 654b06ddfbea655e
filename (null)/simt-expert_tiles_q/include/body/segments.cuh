// segments.cuh - segments of a row of logits: the LM head's kernel writes them so that `sample` and `beam` need not
// read the whole row again.
//
//   row of logits   |---- segment 0 ----|--- segment 1 ---|- 2 -| ...      FtxSegment: device/io.h
//   of each segment: its maximum, the column of the maximum, sum of exp(x - maximum), candidates
//
// A segment is a run of neighbouring columns of one row that one block finishes together. The maxima give the row's
// arg max, maxima and sums its log-sum-exp. The n-th greatest maximum is a lower bound of the row's n-th greatest
// value, so the n greatest values lie in at most n segments (hierarchical decoding; Wang et al. 2021, LightSeq).
//
// Where a row needs only its n = top_needed greatest values (at most MAX_TOP_NEEDED), a segment keeps candidates, in
// place of its logits: all values at or above the n-th greatest of several partial maxima (of lanes, or of groups of
// columns). These are at least its n greatest values; usually 5 to 11. With more than SEGMENT_LIST of them (many
// equal values) the segment writes its logits instead. All logits are also written for rows that need more than
// MAX_TOP_NEEDED values, and where that is faster: the reader then looks into few segments only.
//
// Candidate i of a segment: its value at y[first + i], its column at y[first + SEGMENT_LIST + i].
// Segments of a row are in the order of their columns; empty ones may lie between.
#pragma once
#include "device/fragment.cuh"
#include "device/io.h"
#include "device/l2.cuh"
#include "device/order.cuh"
#include "device/vec.cuh"
#include "device/warp.cuh"

enum { SEGMENT_COLUMNS = 256, MAX_TOP_NEEDED = 8, SEGMENT_LIST = 16 }; // largest width, top_needed, number of candidates

// keep: what the head's kernel writes of a row in addition to its segments. 0: nothing. n > 0: candidates for the n greatest.
// KEEP_ALL: all logits; it also stands in FtxSegment.kept. KEEP_ALL_MASS: all logits, and the segments' sums are of
// exp((x - maximum) / temperature).
enum { KEEP_ALL = -1, KEEP_ALL_MASS = -2 };

struct SegmentArgs { // first among the arguments of a kernel that writes segments
    const FtxParams *params;
};

DEVICE FtxSegment *segments_of(FtxSegments *segments, int vocab, int row) { return (FtxSegment *)(segments + 1) + (i64)row * FTX_SEGMENTS(vocab); }
DEVICE const FtxSegment *segments_of(const FtxSegments *segments, int vocab, int row) { return (const FtxSegment *)(segments + 1) + (i64)row * FTX_SEGMENTS(vocab); }

// A draw from the whole row, or with top-p alone, needs the row's probability mass at its temperature, so its
// segments' sums are of exp((x - top) / temperature).
DEVICE bool draws_by_mass(const FtxParams &p)
{
    return p.temperature > 0.0f && p.top_needed > MAX_TOP_NEEDED && p.top_k == 0 && (p.top_p < 1.0f || p.min_p == 0.0f);
}
DEVICE float inv_temperature_of(const FtxParams &p) { return fminf(1.0f / p.temperature, 1e30f); } // finite

// keep of a row. May be called at any time: only the host writes what it reads. FEW: rows that are drawn from get all
// logits, since in this kernel writing them is faster than finding candidates.
template <bool FEW = false> DEVICE int keep_of(const SegmentArgs &a, int row)
{
    const FtxParams &p = a.params[row];
    const int need = p.top_needed;
    const bool whole = p.logits || need < 1 || need > MAX_TOP_NEEDED || (FEW && p.temperature > 0.0f);
    return draws_by_mass(p) ? KEEP_ALL_MASS : whole ? KEEP_ALL : need > 1 ? need : 0;
}
// The segments' sums are of exp((x - top) * this).
DEVICE float inv_temperature_of(const SegmentArgs &a, int row, int keep) { return keep == KEEP_ALL_MASS ? inv_temperature_of(a.params[row]) : 1.0f; }
// keep of the COUNT rows m, m + 8, ..., four bits each; 0 for rows from `live` on.
template <int COUNT, bool FEW = false> DEVICE u32 keeps_of(const SegmentArgs &a, int m, int live)
{
    u32 keeps = 0;
#pragma unroll
    for (int i = 0; i < COUNT; i++)
        keeps |= m + 8 * i < live ? (u32)(keep_of<FEW>(a, m + 8 * i) & 15) << 4 * i : 0;
    return keeps;
}
DEVICE int keep_at(u32 keeps, int i)
{
    const int keep = keeps >> 4 * i & 15;
    return keep > MAX_TOP_NEEDED ? keep - 16 : keep;
}

// Whether the segments, and the logits or candidates they point to, decide the row's next token.
DEVICE bool segments_suffice(const FtxParams &p) { return p.top_needed > 0; }

// One 16-byte store.
DEVICE void segment_store(FtxSegment *to, float top, float sum, int first, int width, int kept, int at)
{
    *(uint4_ *)to = uint4_{__float_as_uint(top + 0.0f), __float_as_uint(sum), (u32)first, // -0 is 0
                           (u32)width | (u32)(kept & 63) << 10 | (u32)at << 16};
}
DEVICE void segment_store_empty(FtxSegment *to, int vocab) { segment_store(to, negative_infinity(), 0.0f, vocab, 0, 0, -1); }
DEVICE FtxSegment segment_load(const FtxSegment *from)
{
    const uint4_ v = load_l2(from);
    FtxSegment segment;
    segment.top = __uint_as_float(v.x);
    segment.sum = __uint_as_float(v.y);
    segment.first = (int)v.z;
    segment.width = (int)(v.w << 22) >> 22;
    segment.kept = (int)(v.w << 16) >> 26;
    segment.at = (int)v.w >> 16;
    return segment;
}

// exp((x - top) * inv_temperature); 0 where both are -inf.
DEVICE float segment_exp(float x, float top, float inv_temperature = 1.0f)
{
    return exp2_fast((x - (top == negative_infinity() ? 0.0f : top)) * (inv_temperature * 1.4426950408889634f));
}

// The least value that counts as a candidate, given a lower bound of the wanted values: -inf and NaN never count.
DEVICE float candidate_floor(float bound) { return fmaxf(bound, __uint_as_float(0xff7fffffu)); }

// Over the warp: the greatest of all x, and the sum of exp((x - top) * inv_temperature).
template <int N> DEVICE float warp_top(const float (&x)[N])
{
    float top = x[0];
#pragma unroll
    for (int i = 1; i < N; i++)
        top = fmaxf(top, x[i]);
    return warp_max(top);
}
template <int N> DEVICE float sum_exp(const float (&x)[N], float top, float inv_temperature = 1.0f)
{
    float s[4] = {0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll
    for (int i = 0; i < N; i++)
        s[i % 4] += segment_exp(x[i], top, inv_temperature);
    return warp_sum((s[0] + s[1]) + (s[2] + s[3]));
}

// One warp, one value a lane: the n-th greatest of them, -inf if there are fewer. Equal values count each.
DEVICE float warp_nth(float mine, int n)
{
    u32 left = order_key(mine + 0.0f), bound = 0;
#pragma unroll 1
    for (int i = 0; i < n; i++) {
        bound = warp_most(left);
        if (lane_id() == __ffs(warp_ballot(left == bound)) - 1)
            left = 0;
    }
    return order_value(bound);
}

// One warp writes the segment of `width` values in shared memory (at most MOST), which are columns first, first + 1,
// ... of row y: its record to `to`, and candidates or logits to y.
template <int MOST> DEVICE void warp_write_segment(FtxSegment *to, float *y, const float *values, int first, int width, int keep, float inv_temperature)
{
    float x[MOST / 32], top = negative_infinity();
    u32 at = 0xffff;
    int kept = keep < 0 ? KEEP_ALL : 0;
#pragma unroll
    for (int i = 0; i < MOST / 32; i++) {
        const int n = i * 32 + lane_id();
        x[i] = n < width ? values[n] : negative_infinity();
        top = fmaxf(top, x[i]);
    }
    if (keep > 0) {
        const float low = candidate_floor(warp_nth(top, keep));
        u32 mine = 0;
#pragma unroll
        for (int i = 0; i < MOST / 32; i++)
            mine |= x[i] >= low ? 1u << i : 0;
        const int upto = warp_prefix_sum((int)__popc(mine)), all = shuffle(upto, 31);
        kept = all <= (width < 2 * SEGMENT_LIST ? 0 : SEGMENT_LIST) ? all : KEEP_ALL;
        float *list = y + first + upto - __popc(mine);
#pragma unroll
        for (int i = 0; i < MOST / 32; i++)
            if (kept != KEEP_ALL && (mine >> i & 1)) {
                list[0] = x[i];
                list[SEGMENT_LIST] = __int_as_float(first + i * 32 + lane_id());
                list++;
            }
    }
    top = warp_max(top);
    const float sum = sum_exp(x, top, inv_temperature);
#pragma unroll
    for (int i = MOST / 32 - 1; i >= 0; i--) { // a lane's columns ascend
        const int n = i * 32 + lane_id();
        at = x[i] == top && n < width ? n : at;
        if (kept == KEEP_ALL && n < width)
            y[first + n] = x[i];
    }
    at = warp_min(at);
    if (lane_id() == 0)
        segment_store(to, top, sum, first, width, kept, at);
}

// --- four lanes (a quad) hold the values of one row --------------------------------------------------

DEVICE void put_greater_first(float &a, float &b)
{
    const float high = fmaxf(a, b);
    b = fminf(a, b);
    a = high;
}

// The n-th greatest of the quad's 16 values, 1 <= n <= MAX_TOP_NEEDED: each lane sorts its four, pairs of lanes merge
// to eight, the two pairs merge to the 8 greatest of all.
DEVICE float quad_nth(float (&x)[4], int n)
{
    float s[8], bound;
    put_greater_first(x[0], x[1]);
    put_greater_first(x[2], x[3]);
    put_greater_first(x[0], x[2]);
    put_greater_first(x[1], x[3]);
    put_greater_first(x[1], x[2]);
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const float other = shuffle_xor(x[3 - i], 1);
        s[i] = fmaxf(x[i], other);
        s[4 + i] = fminf(x[i], other);
    }
#pragma unroll
    for (int k = 0; k < 8; k += 4) {
        put_greater_first(s[k], s[k + 2]);
        put_greater_first(s[k + 1], s[k + 3]);
        put_greater_first(s[k], s[k + 1]);
        put_greater_first(s[k + 2], s[k + 3]);
    }
    float t[8];
#pragma unroll
    for (int i = 0; i < 8; i++)
        t[i] = fmaxf(s[i], shuffle_xor(s[7 - i], 2));
#pragma unroll
    for (int step = 4; step; step /= 2)
#pragma unroll
        for (int i = 0; i < 8; i++)
            if (!(i & step))
                put_greater_first(t[i], t[i + step]);
    bound = t[0];
#pragma unroll
    for (int i = 1; i < 8; i++)
        bound = n == i + 1 ? t[i] : bound;
    return bound;
}

// One quad writes the segment of TILES tiles of 8 columns. v[4 * i] and v[4 * i + 1] of lane t are columns
// first + 8 * i + 2 * t and the next one of row y, as mma.cuh's accumulators lie; columns from `last` on do not exist,
// and their v becomes -inf. to NULL: the row is not live and nothing is written. EVEN: every pair of columns is whole
// and aligned to 8 bytes.
template <int TILES, bool EVEN> DEVICE void quad_write_segment(FtxSegment *to, float *y, float *v, int first, int last, int keep, float inv_temperature)
{
    const int t = lane_id() & 3, width = least(TILES * 8, last - first), column = first + 2 * t;
    float some[4], s[4] = {};
    int at[4], kept = keep < 0 ? KEEP_ALL : 0;
    if (width < TILES * 8)
#pragma unroll
        for (int i = 0; i < 2 * TILES; i++)
            v[i + i / 2 * 2] = i / 2 * 8 + i % 2 + 2 * t < width ? v[i + i / 2 * 2] : negative_infinity();
#pragma unroll
    for (int i = 0; i < 4; i++)
        some[i] = negative_infinity();
#pragma unroll
    for (int i = 0; i < 2 * TILES; i++)
        some[i % 4] = fmaxf(some[i % 4], v[i + i / 2 * 2]);
    float top = fmaxf(fmaxf(some[0], some[1]), fmaxf(some[2], some[3]));
    top = fmaxf(top, shuffle_xor(top, 1));
    top = fmaxf(top, shuffle_xor(top, 2));
    const float base = top == negative_infinity() ? 0.0f : top;
#pragma unroll
    for (int i = 0; i < 4; i++)
        at[i] = 0xffff;
#pragma unroll
    for (int i = 2 * TILES - 1; i >= 0; i--) {
        at[i % 4] = v[i + i / 2 * 2] == top ? i / 2 * 8 + i % 2 : at[i % 4];
        s[i % 4] += exp2_fast((v[i + i / 2 * 2] - base) * (inv_temperature * 1.4426950408889634f));
    }
    if (warp_ballot(keep > 0)) {
        const float bound = candidate_floor(quad_nth(some, most(keep, 1)));
        int mine = 0;
#pragma unroll
        for (int i = 0; i < 2 * TILES; i++)
            mine += v[i + i / 2 * 2] >= bound;
        const int other = shuffle_xor(mine, 1), pair = mine + other, pairs = shuffle_xor(pair, 2);
        if (keep > 0)
            kept = pair + pairs <= (width < 2 * SEGMENT_LIST ? 0 : SEGMENT_LIST) ? pair + pairs : KEEP_ALL;
        if (to && kept > 0) {
            float *list = y + first + (t & 1 ? other : 0) + (t & 2 ? pairs : 0);
#pragma unroll
            for (int i = 0; i < 2 * TILES; i++)
                if (v[i + i / 2 * 2] >= bound) {
                    list[0] = v[i + i / 2 * 2];
                    list[SEGMENT_LIST] = __int_as_float(column + i / 2 * 8 + i % 2);
                    list++;
                }
        }
    }
    if (to && kept == KEEP_ALL)
#pragma unroll
        for (int i = 0; i < TILES; i++) {
            Vec<float, 2> pair;
            pair[0] = v[4 * i];
            pair[1] = v[4 * i + 1];
            if (EVEN && column + 8 * i < last)
                store(y + column + 8 * i, pair);
            if (!EVEN && column + 8 * i < last)
                y[column + 8 * i] = pair[0];
            if (!EVEN && column + 8 * i + 1 < last)
                y[column + 8 * i + 1] = pair[1];
        }
    float sum = (s[0] + s[1]) + (s[2] + s[3]);
    sum += shuffle_xor(sum, 1);
    sum += shuffle_xor(sum, 2);
    int where = least(least(at[0], at[1]), least(at[2], at[3])) + 2 * t;
    where = least(where, shuffle_xor(where, 1));
    where = least(where, shuffle_xor(where, 2));
    if (to && t == 0)
        segment_store(to, top, sum, first, width, kept, where < width ? where : -1);
}
