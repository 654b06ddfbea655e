// warp.cuh - shuffles, votes and reductions over the 32 lanes of a warp. All lanes call them.
#pragma once
#include "device/types.cuh"

DEVICE int lane_id() { return threadIdx.x & 31; }
DEVICE int warp_id() { return threadIdx.x >> 5; }

template <class T> DEVICE T shuffle_xor(T v, int mask) { return __shfl_xor_sync(~0u, v, mask); }
template <class T> DEVICE T shuffle_up(T v, int by) { return __shfl_up_sync(~0u, v, by); }
template <class T> DEVICE T shuffle(T v, int lane) { return __shfl_sync(~0u, v, lane); }

// Sum and largest value over groups of W neighbouring lanes; every lane gets the result.
template <int W = 32> DEVICE float warp_sum(float v)
{
#pragma unroll
    for (int m = W / 2; m; m /= 2)
        v += shuffle_xor(v, m);
    return v;
}
template <int W = 32> DEVICE float warp_max(float v)
{
#pragma unroll
    for (int m = W / 2; m; m /= 2)
        v = fmaxf(v, shuffle_xor(v, m));
    return v;
}
template <int W = 32> DEVICE int warp_sum(int v)
{
#pragma unroll
    for (int m = W / 2; m; m /= 2)
        v += shuffle_xor(v, m);
    return v;
}

// redux.sync: smallest and largest integer of the warp; for 64 bits by shuffles.
DEVICE u32 warp_min(u32 v) { return __reduce_min_sync(~0u, v); }
DEVICE u32 warp_most(u32 v) { return ~warp_min(~v); }
DEVICE u64 warp_most(u64 v)
{
#pragma unroll
    for (int m = 16; m; m /= 2) {
        const u64 other = shuffle_xor(v, m);
        v = other > v ? other : v;
    }
    return v;
}

// Inclusive prefix sum: lane l gets the sum of lanes 0..l.
template <class T> DEVICE T warp_prefix_sum(T v)
{
#pragma unroll
    for (int d = 1; d < 32; d *= 2) {
        const T other = shuffle_up(v, d);
        v += lane_id() >= d ? other : 0;
    }
    return v;
}

// The larger value with its id; of equal values the lower id.
struct Best { float value; int id; };
DEVICE Best better(Best a, Best b)
{
    return b.value > a.value || (b.value == a.value && b.id < a.id) ? b : a;
}
template <int W = 32> DEVICE Best warp_best(Best v)
{
#pragma unroll
    for (int m = W / 2; m; m /= 2)
        v = better(v, Best{shuffle_xor(v.value, m), shuffle_xor(v.id, m)});
    return v;
}

DEVICE void warp_sync() { __syncwarp(); }
DEVICE u32 warp_ballot(bool p) { return __ballot_sync(~0u, p); }
