// tensor.cuh - tiles of a matrix by the copy engine, on the host: a SimtMap says where the matrix is.
#pragma once
#include "device/types.cuh"

struct TensorMap;
DEVICE void tensor_expect(const TensorMap *) {}
DEVICE void tensor_ahead(const TensorMap *, int, int) {}
DEVICE void tensor_copy(u32 to, const TensorMap *map, int row, int column, u32 mbarrier) { simt_tensor_copy(to, map, row, column, mbarrier, 0); }
DEVICE void tensor_copy_all(u32 to, const TensorMap *map, int row, int column, u32 mbarrier, u32 mask)
{
    simt_tensor_copy(to, map, row, column, mbarrier, mask);
}
// By a whole warp, of which the first lane asks.
DEVICE void warp_expect(u32 mbarrier, u32 bytes)
{
    if (threadIdx.x % 32 == 0)
        simt_mbarrier_arrive(mbarrier, bytes);
}
DEVICE void warp_tensor_ahead(const TensorMap *, int, int) {}
DEVICE void warp_tensor_copy(u32 to, const TensorMap *map, int row, int column, u32 mbarrier)
{
    if (threadIdx.x % 32 == 0)
        simt_tensor_copy(to, map, row, column, mbarrier, 0);
}
DEVICE void warp_tensor_copy_all(u32 to, const TensorMap *map, int row, int column, u32 mbarrier, u32 mask)
{
    if (threadIdx.x % 32 == 0)
        simt_tensor_copy(to, map, row, column, mbarrier, mask);
}
