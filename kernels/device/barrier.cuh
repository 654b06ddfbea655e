// barrier.cuh - barriers of a block and of parts of it.
#pragma once
#include "device/types.cuh"

DEVICE void block_sync() { __syncthreads(); }
// The same; every thread gets the number of threads for which p holds.
DEVICE int block_count(bool p) { return __syncthreads_count(p); }

// A named barrier (1..15) of `threads` threads, whole warps.
DEVICE void part_sync(int id, int threads)
{
    asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
DEVICE void part_arrive(int id, int threads)
{
    asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
