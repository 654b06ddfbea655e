// barrier.cuh - barriers of a block and named barriers of some of its warps, on the host.
#pragma once
#include "device/types.cuh"

DEVICE void block_sync() { simt_block_sync(); }
DEVICE int block_count(bool p) { return simt_block_count(p); }
DEVICE void named_barrier_sync(int id, int threads) { simt_named_barrier_sync(id, threads); }
DEVICE void named_barrier_arrive(int id, int threads) { simt_named_barrier_arrive(id, threads); }
