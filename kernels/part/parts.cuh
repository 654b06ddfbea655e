// parts.cuh - parts of a row of logits: what the kernel of the LM head leaves for `sample` and `beam`, who then need
// not read the row again.
//
// A part is a run of neighbouring columns that one block has at hand when their sums are finished: its greatest
// value, whose column that is, its sum of exp(x - greatest). They give the arg max and the log-sum-exp of the row;
// the n-th greatest maximum bounds the n-th greatest value from below, so the best n stand in n parts at most
// (hierarchical decoding; Wang et al. 2021, LightSeq). The values themselves are written for rows that need them:
// those with processors, those that draw or search, those whose logits the host wants.
//
// Parts of a row stand in the order of their columns; empty ones may lie between.
#pragma once
#include "device/fragment.cuh"
#include "device/io.h"
#include "device/l2.cuh"
#include "device/vec.cuh"
#include "device/warp.cuh"

enum { PART_COLUMNS = 256 }; // at most

struct PartsWishes { // first among the arguments of a kernel that leaves parts
    const FtxParams *params;
    const FtxBeam *beams;
};

DEVICE FtxPart *parts_of(FtxParts *parts, int vocab, int row) { return (FtxPart *)(parts + 1) + (i64)row * FTX_PARTS(vocab); }
DEVICE const FtxPart *parts_of(const FtxParts *parts, int vocab, int row) { return (const FtxPart *)(parts + 1) + (i64)row * FTX_PARTS(vocab); }

// Whether the row's logits are to be written. Asked at any time: the host alone writes what this reads.
template <int LANES> DEVICE bool wants_logits(const PartsWishes &a, int row)
{
    return a.params[row].logits || !a.params[row].simple || (LANES > 0 && a.beams[row].width);
}
// Of the rows m, m + 8, ..., COUNT of them, those below `live`: a bit each.
template <int LANES, int COUNT> DEVICE u32 wants_rows(const PartsWishes &a, int m, int live)
{
    u32 wants = 0;
#pragma unroll
    for (int i = 0; i < COUNT; i++)
        wants |= m + 8 * i < live && wants_logits<LANES>(a, m + 8 * i) ? 1u << i : 0;
    return wants;
}

// One store.
DEVICE void part_store(FtxPart *to, float top, float sum, int first, int width, int at)
{
    *(uint4_ *)to = uint4_{__float_as_uint(top + 0.0f), __float_as_uint(sum), (u32)first, (u32)width | (u32)at << 16}; // -0 is 0
}
DEVICE void part_store_none(FtxPart *to, int vocab) { part_store(to, negative_infinity(), 0.0f, vocab, 0, -1); }
DEVICE FtxPart part_load(const FtxPart *from)
{
    const uint4_ v = load_l2(from);
    return FtxPart{__uint_as_float(v.x), __uint_as_float(v.y), (int)v.z, (short)v.w, (short)(v.w >> 16)};
}

// exp(x - top), where top may be -inf.
DEVICE float part_exp(float x, float top)
{
    return exp2_fast((x - (top == negative_infinity() ? 0.0f : top)) * 1.4426950408889634f);
}

// Over the warp: the greatest of all x, and the sum of exp(x - top).
template <int N> DEVICE float warp_top(const float (&x)[N])
{
    float top = x[0];
#pragma unroll
    for (int i = 1; i < N; i++)
        top = fmaxf(top, x[i]);
    return warp_max(top);
}
template <int N> DEVICE float sum_exp(const float (&x)[N], float top)
{
    float s[4] = {0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll
    for (int i = 0; i < N; i++)
        s[i % 4] += part_exp(x[i], top);
    return warp_sum((s[0] + s[1]) + (s[2] + s[3]));
}

// By a warp: `width` values in shared memory, at most MOST, columns `first` and on of a row; to y, too, if not NULL.
template <int MOST> DEVICE void part_of_warp(FtxPart *to, float *y, const float *values, int first, int width)
{
    float x[MOST / 32];
    u32 at = 0xffff;
#pragma unroll
    for (int i = 0; i < MOST / 32; i++) {
        const int n = i * 32 + lane_id();
        x[i] = n < width ? values[n] : negative_infinity();
        if (y && n < width)
            y[first + n] = x[i];
    }
    const float top = warp_top(x), sum = sum_exp(x, top);
#pragma unroll
    for (int i = MOST / 32 - 1; i >= 0; i--) // a lane's columns ascend
        at = x[i] == top && i * 32 + lane_id() < width ? i * 32 + lane_id() : at;
    at = warp_min(at);
    if (lane_id() == 0)
        part_store(to, top, sum, first, width, at);
}

// By quads of lanes, each with its row: TILES tiles of 8 columns; values v[4 * i], v[4 * i + 1] of lane t of the quad
// are columns first + 8 * i + 2 * t and the next; from `last` on there are none. `to` NULL: a row that is not alive.
template <int TILES> DEVICE void part_of_quad(FtxPart *to, const float *v, int first, int last)
{
    const int t = lane_id() & 3, n = last - first - 2 * t; // columns of the lane: those below n
    float top = negative_infinity(), s[2] = {0.0f, 0.0f};
    int at = 0xffff;
#pragma unroll
    for (int i = 0; i < TILES; i++)
#pragma unroll
        for (int e = 0; e < 2; e++)
            top = fmaxf(top, 8 * i + e < n ? v[4 * i + e] : negative_infinity());
    top = fmaxf(top, shuffle_xor(top, 1));
    top = fmaxf(top, shuffle_xor(top, 2));
#pragma unroll
    for (int i = TILES - 1; i >= 0; i--)
#pragma unroll
        for (int e = 1; e >= 0; e--)
            at = 8 * i + e < n && v[4 * i + e] == top ? 8 * i + 2 * t + e : at;
#pragma unroll
    for (int i = 0; i < TILES; i++)
#pragma unroll
        for (int e = 0; e < 2; e++)
            s[e] += 8 * i + e < n ? part_exp(v[4 * i + e], top) : 0.0f;
    float sum = s[0] + s[1];
    sum += shuffle_xor(sum, 1);
    sum += shuffle_xor(sum, 2);
    at = least(at, shuffle_xor(at, 1));
    at = least(at, shuffle_xor(at, 2));
    if (to && t == 0)
        part_store(to, top, sum, first, least(TILES * 8, last - first), at);
}
