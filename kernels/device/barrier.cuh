// barrier.cuh - barriers of a whole block, and named barriers of some of its warps.
#pragma once
#include "device/types.cuh"

// bar.sync 0: all threads of the block arrive and wait; their earlier writes are visible to all after it.
DEVICE void block_sync() { __syncthreads(); }
// The same; returns to every thread the number of threads for which p holds.
DEVICE int block_count(bool p) { return __syncthreads_count(p); }

// bar.sync, bar.arrive: named barrier `id` (1..15) of `threads` threads, whole warps. `arrive` does not wait.
DEVICE void named_barrier_sync(int id, int threads)
{
    asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
DEVICE void named_barrier_arrive(int id, int threads)
{
    asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
