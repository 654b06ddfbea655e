// quad.cuh - results of a product, from the lanes that have two columns of every 8 to lanes that have 8 columns.
#pragma once
#include "device/warp.cuh"

// Four words a lane of a quad, word i of lane t meaning (i, t), become (t, i): its own inverse.
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
