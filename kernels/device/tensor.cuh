// tensor.cuh - TMA copies (sm_90): tiles of a matrix from global to shared memory, described by a TMA descriptor.
//
// The host makes the descriptor of a matrix (16-bit, row-major) when an engine is opened; a contract asks for it by
// `tiled`. A tile has 64 columns, 128 bytes a row, and as many rows as the descriptor says. It lands with the 128-byte
// swizzle that wgmma.cuh reads: unit u (16 bytes) of row r at u ^ (r & 7). Rows and columns outside of the matrix
// become zeros, which count as bytes that landed.
#pragma once
#include "device/types.cuh"

struct TensorMap; // a TMA descriptor (CUtensorMap): 128 bytes that only the TMA unit reads

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
// prefetch.tensormap: brings the descriptor into the cache.
DEVICE void tensor_map_prefetch(const TensorMap *map) { asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory"); }

// cp.async.bulk.tensor, by one thread: the tile whose first element is (row, column), to shared memory at `to`, which
// is 1024-byte aligned. The mbarrier counts its bytes as they land (complete_tx).
DEVICE void tensor_copy(u32 to, const TensorMap *map, int row, int column, u32 mbarrier)
{
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];"
                 ::"r"(to), "l"(map), "r"(column), "r"(row), "r"(mbarrier) : "memory");
}
// The same with .multicast::cluster: to all blocks of the cluster in `mask` (bit r: rank r). Each gets the tile at the
// same address, and its own mbarrier at the address `mbarrier` counts the bytes.
DEVICE void tensor_copy_multicast(u32 to, const TensorMap *map, int row, int column, u32 mbarrier, u32 mask)
{
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster "
                 "[%0], [%1, {%2, %3}], [%4], %5;"
                 ::"r"(to), "l"(map), "r"(column), "r"(row), "r"(mbarrier), "h"((u16)mask) : "memory");
}

// The warp_ forms are called by all lanes of a warp, and elect.sync picks the one that issues the instruction. The
// operands must be equal in all lanes: then they stay in uniform registers. Behind `if (lane == 0)` the compiler
// cannot know that one lane is left, and writes a loop over those that might be.
#define ONE_LANE "{.reg .pred one; elect.sync _|one, 0xffffffff; @one "
// mbarrier_expect.
DEVICE void warp_mbarrier_expect(u32 mbarrier, u32 bytes)
{
    asm volatile(ONE_LANE "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;}" ::"r"(mbarrier), "r"(bytes) : "memory");
}
// cp.async.bulk.prefetch.tensor: brings a tile into L2.
DEVICE void warp_tensor_prefetch(const TensorMap *map, int row, int column)
{
    asm volatile(ONE_LANE "cp.async.bulk.prefetch.tensor.2d.L2.global [%0, {%1, %2}];}" ::"l"(map), "r"(column), "r"(row) : "memory");
}
// tensor_copy.
DEVICE void warp_tensor_copy(u32 to, const TensorMap *map, int row, int column, u32 mbarrier)
{
    asm volatile(ONE_LANE "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];}"
                 ::"r"(to), "l"(map), "r"(column), "r"(row), "r"(mbarrier) : "memory");
}
// tensor_copy_multicast.
DEVICE void warp_tensor_copy_multicast(u32 to, const TensorMap *map, int row, int column, u32 mbarrier, u32 mask)
{
    asm volatile(ONE_LANE "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster "
                 "[%0], [%1, {%2, %3}], [%4], %5;}"
                 ::"r"(to), "l"(map), "r"(column), "r"(row), "r"(mbarrier), "h"((u16)mask) : "memory");
}
#undef ONE_LANE
#else // before sm_90 no kernel calls them
DEVICE void tensor_map_prefetch(const TensorMap *) {}
DEVICE void tensor_copy(u32, const TensorMap *, int, int, u32) {}
DEVICE void tensor_copy_multicast(u32, const TensorMap *, int, int, u32, u32) {}
DEVICE void warp_mbarrier_expect(u32, u32) {}
DEVICE void warp_tensor_prefetch(const TensorMap *, int, int) {}
DEVICE void warp_tensor_copy(u32, const TensorMap *, int, int, u32) {}
DEVICE void warp_tensor_copy_multicast(u32, const TensorMap *, int, int, u32, u32) {}
#endif
