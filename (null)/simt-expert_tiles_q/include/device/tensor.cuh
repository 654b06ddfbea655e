// tensor.cuh - TMA copies on the host: the descriptor is a SimtMap, which says where the matrix is.
#pragma once
#include "device/types.cuh"

struct TensorMap;
DEVICE void tensor_map_prefetch(const TensorMap *) {}
DEVICE void tensor_copy(u32 to, const TensorMap *map, int row, int column, u32 mbarrier) { simt_tensor_copy(to, map, row, column, mbarrier, 0); }
DEVICE void tensor_copy_multicast(u32 to, const TensorMap *map, int row, int column, u32 mbarrier, u32 mask)
{
    simt_tensor_copy(to, map, row, column, mbarrier, mask);
}
// By a whole warp, of which the first lane issues the instruction.
DEVICE void warp_mbarrier_expect(u32 mbarrier, u32 bytes)
{
    if (threadIdx.x % 32 == 0)
        simt_mbarrier_arrive(mbarrier, bytes);
}
DEVICE void warp_tensor_prefetch(const TensorMap *, int, int) {}
DEVICE void warp_tensor_copy(u32 to, const TensorMap *map, int row, int column, u32 mbarrier)
{
    if (threadIdx.x % 32 == 0)
        simt_tensor_copy(to, map, row, column, mbarrier, 0);
}
DEVICE void warp_tensor_copy_multicast(u32 to, const TensorMap *map, int row, int column, u32 mbarrier, u32 mask)
{
    if (threadIdx.x % 32 == 0)
        simt_tensor_copy(to, map, row, column, mbarrier, mask);
}
