// quad.cuh - transposes words among four lanes: from mma's accumulators, two columns of every 8 a lane, to 8 columns a lane.
#pragma once
#include "device/warp.cuh"

// Lane t of a quad has four words; word i of lane t and word t of lane i are exchanged.
DEVICE void quad_transpose(u32 (&v)[4])
{
    const int t = lane_id() & 3;
    const u32 a = shuffle_xor(t & 1 ? v[0] : v[1], 1), b = shuffle_xor(t & 1 ? v[2] : v[3], 1);
    const u32 q0 = t & 1 ? a : v[0], q1 = t & 1 ? v[1] : a, q2 = t & 1 ? b : v[2], q3 = t & 1 ? v[3] : b;
    const u32 c = shuffle_xor(t & 2 ? q0 : q2, 2), e = shuffle_xor(t & 2 ? q1 : q3, 2);
    v[0] = t & 2 ? c : q0;
    v[1] = t & 2 ? e : q1;
    v[2] = t & 2 ? q2 : c;
    v[3] = t & 2 ? q3 : e;
}
