// block.cuh - reductions over the threads of a block.
#pragma once
#include "device/barrier.cuh"
#include "device/shared.cuh"
#include "device/warp.cuh"

// Sum over the block, to every thread. `room`: 33 floats of shared memory that may be used again after the next
// barrier. The order of summation depends on THREADS alone.
template <int THREADS> DEVICE float block_sum(float v, float *room)
{
    v = warp_sum(v);
    if (THREADS == 32)
        return v;
    if (lane_id() == 0)
        room[warp_id()] = v;
    block_sync();
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < THREADS / 32; i++)
        sum += room[i];
    return sum;
}
// Largest value of the block, to every thread.
template <int THREADS> DEVICE float block_max(float v, float *room)
{
    v = warp_max(v);
    if (THREADS == 32)
        return v;
    if (lane_id() == 0)
        room[warp_id()] = v;
    block_sync();
    float top = room[0];
#pragma unroll
    for (int i = 1; i < THREADS / 32; i++)
        top = fmaxf(top, room[i]);
    return top;
}
