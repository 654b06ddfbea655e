// segments.cuh - segments of a row of logits: what the kernel of the LM head leaves for `sample` and `beam`, who then need
// not read the row again.
//
// A segment is a run of neighbouring columns that one block has at hand when their sums are finished: its greatest
// value, whose column that is, its sum of exp(x - greatest). They give the arg max and the log-sum-exp of the row;
// the n-th greatest maximum bounds the n-th greatest value from below, so the best n stand in n segments at most
// (hierarchical decoding; Wang et al. 2021, LightSeq).
//
// Of a row that needs its `top_needed` greatest values (MAX_TOP_NEEDED at most) a segment keeps candidates: all its values that are
// not below the need-th greatest of the maxima of lanes, or of pieces of their columns, and so not below the need-th
// greatest of the segment; some 5 to 11 of them. Where more are alike than SEGMENT_LIST holds, the segment's logits are written; so
// they are for rows that need more, and where that is faster: by segments it is known then which few logits to read.
//
// Candidate i of a segment: its value at y[first + i], its column at y[first + SEGMENT_LIST + i].
// Segments of a row stand in the order of their columns; empty ones may lie between.
#pragma once
#include "device/fragment.cuh"
#include "device/io.h"
#include "device/l2.cuh"
#include "device/order.cuh"
#include "device/vec.cuh"
#include "device/warp.cuh"

enum { SEGMENT_COLUMNS = 256, MAX_TOP_NEEDED = 8, SEGMENT_LIST = 16 }; // at most
enum { WHOLE = -1, MASS = -2 }; // wishes: all logits are written, as FtxSegment.kept says, too; and sums are those of a temperature

struct SegmentWishes { // first among the arguments of a kernel that leaves segments
    const FtxParams *params;
};

DEVICE FtxSegment *segments_of(FtxSegments *segments, int vocab, int row) { return (FtxSegment *)(segments + 1) + (i64)row * FTX_SEGMENTS(vocab); }
DEVICE const FtxSegment *segments_of(const FtxSegments *segments, int vocab, int row) { return (const FtxSegment *)(segments + 1) + (i64)row * FTX_SEGMENTS(vocab); }

// A draw from all, or by top-p alone, is of the mass of the row at its temperature: sums of its segments are of
// exp((x - top) / temperature).
DEVICE bool draws_by_mass(const FtxParams &p)
{
    return p.temperature > 0.0f && p.top_needed > MAX_TOP_NEEDED && p.top_k == 0 && (p.top_p < 1.0f || p.min_p == 0.0f);
}
DEVICE float cool_of(const FtxParams &p) { return fminf(1.0f / p.temperature, 1e30f); } // finite

// What a row wants besides its segments: candidates for so many of the greatest, 0: nothing, or WHOLE, or MASS. Asked
// at any time: the host alone writes what this reads. FEW: logits of draws are written sooner than candidates are found.
template <bool FEW = false> DEVICE int wish_of(const SegmentWishes &a, int row)
{
    const FtxParams &p = a.params[row];
    const int need = p.top_needed;
    const bool whole = p.logits || need < 1 || need > MAX_TOP_NEEDED || (FEW && p.temperature > 0.0f);
    return draws_by_mass(p) ? MASS : whole ? WHOLE : need > 1 ? need : 0;
}
// What its segments' sums are of: exp((x - top) * this).
DEVICE float cool_of(const SegmentWishes &a, int row, int wish) { return wish == MASS ? cool_of(a.params[row]) : 1.0f; }
// Of the rows m, m + 8, ..., COUNT of them, those below `live`: four bits each.
template <int COUNT, bool FEW = false> DEVICE u32 wishes_of(const SegmentWishes &a, int m, int live)
{
    u32 wishes = 0;
#pragma unroll
    for (int i = 0; i < COUNT; i++)
        wishes |= m + 8 * i < live ? (u32)(wish_of<FEW>(a, m + 8 * i) & 15) << 4 * i : 0;
    return wishes;
}
DEVICE int wish_at(u32 wishes, int i)
{
    const int wish = wishes >> 4 * i & 15;
    return wish > MAX_TOP_NEEDED ? wish - 16 : wish;
}

// Whether the row's next token depends on no more than segments, and what they say where to look for.
DEVICE bool segments_suffice(const FtxParams &p) { return p.top_needed > 0; }

// One store.
DEVICE void segment_store(FtxSegment *to, float top, float sum, int first, int width, int kept, int at)
{
    *(uint4_ *)to = uint4_{__float_as_uint(top + 0.0f), __float_as_uint(sum), (u32)first, // -0 is 0
                           (u32)width | (u32)(kept & 63) << 10 | (u32)at << 16};
}
DEVICE void segment_store_none(FtxSegment *to, int vocab) { segment_store(to, negative_infinity(), 0.0f, vocab, 0, 0, -1); }
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

// exp((x - top) * cool), where top may be -inf.
DEVICE float segment_exp(float x, float top, float cool = 1.0f)
{
    return exp2_fast((x - (top == negative_infinity() ? 0.0f : top)) * (cool * 1.4426950408889634f));
}

// Where values begin that may be among the best, if those at or above `bound` are. -inf and NaN are none.
DEVICE float segment_low(float bound) { return fmaxf(bound, __uint_as_float(0xff7fffffu)); }

// Over the warp: the greatest of all x, and the sum of exp((x - top) * cool).
template <int N> DEVICE float warp_top(const float (&x)[N])
{
    float top = x[0];
#pragma unroll
    for (int i = 1; i < N; i++)
        top = fmaxf(top, x[i]);
    return warp_max(top);
}
template <int N> DEVICE float sum_exp(const float (&x)[N], float top, float cool = 1.0f)
{
    float s[4] = {0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll
    for (int i = 0; i < N; i++)
        s[i % 4] += segment_exp(x[i], top, cool);
    return warp_sum((s[0] + s[1]) + (s[2] + s[3]));
}

// By a warp: the n-th greatest of one value of each lane, -inf if there are fewer. Equal ones count each.
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

// By a warp: `width` values in shared memory, at most MOST, columns `first` and on of the row y.
template <int MOST> DEVICE void segment_of_warp(FtxSegment *to, float *y, const float *values, int first, int width, int wish, float cool)
{
    float x[MOST / 32], top = negative_infinity();
    u32 at = 0xffff;
    int kept = wish < 0 ? WHOLE : 0;
#pragma unroll
    for (int i = 0; i < MOST / 32; i++) {
        const int n = i * 32 + lane_id();
        x[i] = n < width ? values[n] : negative_infinity();
        top = fmaxf(top, x[i]);
    }
    if (wish > 0) {
        const float low = segment_low(warp_nth(top, wish));
        u32 mine = 0;
#pragma unroll
        for (int i = 0; i < MOST / 32; i++)
            mine |= x[i] >= low ? 1u << i : 0;
        const int upto = warp_upto((int)__popc(mine)), all = shuffle(upto, 31);
        kept = all <= (width < 2 * SEGMENT_LIST ? 0 : SEGMENT_LIST) ? all : WHOLE;
        float *list = y + first + upto - __popc(mine);
#pragma unroll
        for (int i = 0; i < MOST / 32; i++)
            if (kept != WHOLE && (mine >> i & 1)) {
                list[0] = x[i];
                list[SEGMENT_LIST] = __int_as_float(first + i * 32 + lane_id());
                list++;
            }
    }
    top = warp_max(top);
    const float sum = sum_exp(x, top, cool);
#pragma unroll
    for (int i = MOST / 32 - 1; i >= 0; i--) { // a lane's columns ascend
        const int n = i * 32 + lane_id();
        at = x[i] == top && n < width ? n : at;
        if (kept == WHOLE && n < width)
            y[first + n] = x[i];
    }
    at = warp_min(at);
    if (lane_id() == 0)
        segment_store(to, top, sum, first, width, kept, at);
}

// --- by quads of lanes, each with its row ------------------------------------------------------------

DEVICE void put_greater_first(float &a, float &b)
{
    const float high = fmaxf(a, b);
    b = fminf(a, b);
    a = high;
}

// The n-th greatest of the quad's 16 values, 1 <= n <= MAX_TOP_NEEDED: lanes put theirs in order, pairs of lanes merge
// them, pairs of pairs the 8 greatest.
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

// TILES tiles of 8 columns; values v[4 * i], v[4 * i + 1] of lane t of the quad are columns first + 8 * i + 2 * t and
// the next of the row y; from `last` on there are none, and v becomes -inf. `to` NULL: a row that is not alive.
// EVEN: pairs of columns are whole and aligned.
template <int TILES, bool EVEN> DEVICE void segment_of_quad(FtxSegment *to, float *y, float *v, int first, int last, int wish, float cool)
{
    const int t = lane_id() & 3, width = least(TILES * 8, last - first), column = first + 2 * t;
    float some[4], s[4] = {};
    int at[4], kept = wish < 0 ? WHOLE : 0;
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
        s[i % 4] += exp2_fast((v[i + i / 2 * 2] - base) * (cool * 1.4426950408889634f));
    }
    if (warp_ballot(wish > 0)) {
        const float bound = segment_low(quad_nth(some, most(wish, 1)));
        int mine = 0;
#pragma unroll
        for (int i = 0; i < 2 * TILES; i++)
            mine += v[i + i / 2 * 2] >= bound;
        const int other = shuffle_xor(mine, 1), pair = mine + other, pairs = shuffle_xor(pair, 2);
        if (wish > 0)
            kept = pair + pairs <= (width < 2 * SEGMENT_LIST ? 0 : SEGMENT_LIST) ? pair + pairs : WHOLE;
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
    if (to && kept == WHOLE)
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
