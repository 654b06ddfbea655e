// tensor.cuh - tiles of a matrix by the copy engine of sm_90: one thread asks, the bytes are counted on an
// mbarrier.
//
// The map of a matrix (16-bit, row-major) is made by the host when an engine is opened: contracts ask for it
// with `tiled`. A tile has 64 columns, 128 bytes a row, and the map's number of rows; it lands as wgmma.cuh
// wants it, unit u (16 bytes) of row r at u ^ (r & 7). Rows and columns outside of the matrix become zeros.
#pragma once
#include "device/types.cuh"

struct TensorMap;  // 128 bytes that only the copy engine reads

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
// The map will be needed soon.
DEVICE void tensor_expect(const TensorMap *map) { asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory"); }

// A tile will be: it is brought to L2.
DEVICE void tensor_ahead(const TensorMap *map, int row, int column)
{
    asm volatile("cp.async.bulk.prefetch.tensor.2d.L2.global [%0, {%1, %2}];" ::"l"(map), "r"(column), "r"(row) : "memory");
}
// The tile whose first element is (row, column), to shared memory at `to`, 1024-byte aligned.
DEVICE void tensor_copy(u32 to, const TensorMap *map, int row, int column, u32 mbarrier)
{
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];"
                 ::"r"(to), "l"(map), "r"(column), "r"(row), "r"(mbarrier) : "memory");
}
// The same to the blocks of the cluster in `mask` (bit r: of rank r), in each at the same address, counted on the
// mbarrier that each has there.
DEVICE void tensor_copy_all(u32 to, const TensorMap *map, int row, int column, u32 mbarrier, u32 mask)
{
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster "
                 "[%0], [%1, {%2, %3}], [%4], %5;"
                 ::"r"(to), "l"(map), "r"(column), "r"(row), "r"(mbarrier), "h"((u16)mask) : "memory");
}
// The same by a whole warp, of which one lane asks. The compiler knows that, and takes operands that are one for all
// lanes as they are; behind a condition on the lane it would make sure in a loop that those who ask agree.
#define ONE_LANE "{.reg .pred one; elect.sync _|one, 0xffffffff; @one "
DEVICE void warp_expect(u32 mbarrier, u32 bytes)
{
    asm volatile(ONE_LANE "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;}" ::"r"(mbarrier), "r"(bytes) : "memory");
}
DEVICE void warp_tensor_ahead(const TensorMap *map, int row, int column)
{
    asm volatile(ONE_LANE "cp.async.bulk.prefetch.tensor.2d.L2.global [%0, {%1, %2}];}" ::"l"(map), "r"(column), "r"(row) : "memory");
}
DEVICE void warp_tensor_copy(u32 to, const TensorMap *map, int row, int column, u32 mbarrier)
{
    asm volatile(ONE_LANE "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];}"
                 ::"r"(to), "l"(map), "r"(column), "r"(row), "r"(mbarrier) : "memory");
}
DEVICE void warp_tensor_copy_all(u32 to, const TensorMap *map, int row, int column, u32 mbarrier, u32 mask)
{
    asm volatile(ONE_LANE "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster "
                 "[%0], [%1, {%2, %3}], [%4], %5;}"
                 ::"r"(to), "l"(map), "r"(column), "r"(row), "r"(mbarrier), "h"((u16)mask) : "memory");
}
#undef ONE_LANE
#else  // before sm_90 nothing calls them
DEVICE void tensor_expect(const TensorMap *) {}
DEVICE void tensor_ahead(const TensorMap *, int, int) {}
DEVICE void tensor_copy(u32, const TensorMap *, int, int, u32) {}
DEVICE void tensor_copy_all(u32, const TensorMap *, int, int, u32, u32) {}
DEVICE void warp_expect(u32, u32) {}
DEVICE void warp_tensor_ahead(const TensorMap *, int, int) {}
DEVICE void warp_tensor_copy(u32, const TensorMap *, int, int, u32) {}
DEVICE void warp_tensor_copy_all(u32, const TensorMap *, int, int, u32, u32) {}
#endif
