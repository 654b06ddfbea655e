// route.cuh - the experts of each row and their weights, from a router's logits; and the rows of each expert.
//
//   x [M, N]   fp32 logits of N experts      b [N]  added to the scores for the choice only
//   y [M, 2K]  i32: K experts, the best first, then the bits of their K weights in fp32
//   starts [N + 1], rows [M * K]: the form by_expert of y (compiler/ir/forms.def)
//
// A warp takes a row (body/route.cuh). Each block counts the pairs row * K + i of its rows by expert. The last block to finish
// sorts those of all blocks; the order within an expert is any: no result depends on it. Where there is one block, it finds
// the experts of all rows in shared memory. STAGED: the sorted pairs have room in shared memory.
#pragma once
#include "device/atomic.cuh"
#include "device/barrier.cuh"
#include "device/pdl.cuh"
#include "device/shared.cuh"
#include "body/route.cuh"
#include "body/rows.cuh"

struct RouteArgs {
    const float *x, *b;
    const FtxStep *step;
    int *y, *starts, *rows;
    u32 *counts; // [N] pairs of all blocks by expert, then the number of blocks that have ended
};

template <class C> DEVICE void route(const RouteArgs &a)
{
    constexpr int WARPS = C::THREADS / 32;
    SHARED(float, room, WARPS * C::N * (C::KEPT < C::GROUPS ? 2 : 1));
    SHARED(u32, count, C::N + 1);
    SHARED(int, chosen, WARPS * C::K);
    SHARED(u32, arrived, 1);
    launch_dependents();
    if (C::SORTED) {
        for (int e = threadIdx.x; e < C::N; e += C::THREADS)
            count[e] = 0;
        block_sync();
    }
    wait_for_previous();
    const int rows = live_rows<C::ROWS_S>(a.step);
    const Routes to = {a.y, a.starts, a.rows};
    for (int m = blockIdx.x * WARPS + warp_id(); m < rows; m += gridDim.x * WARPS) {
        route_row<C>(a.x + (i64)m * C::N, a.b, to, m, room + warp_id() * C::N, room + (WARPS + warp_id()) * C::N, chosen + warp_id() * C::K);
        if (C::SORTED && lane_id() < C::K)
            shared_atomic_add(&count[chosen[warp_id() * C::K + lane_id()]], 1);
    }
    if constexpr (C::SORTED) {
        block_sync();
        if (gridDim.x > 1) {
            for (int e = threadIdx.x; e < C::N; e += C::THREADS)
                if (count[e])
                    atomic_add_relaxed(&a.counts[e], count[e]);
            block_sync();
            if (threadIdx.x == 0)
                arrived[0] = atomic_add_acq_rel(&a.counts[C::N], 1);
            block_sync();
            if (arrived[0] + 1 < gridDim.x)
                return;
            for (int e = threadIdx.x; e <= C::N; e += C::THREADS) {
                count[e] = a.counts[e];
                a.counts[e] = 0;
            }
            block_sync();
        }
        route_sort<C, C::THREADS>(to, rows, count, gridDim.x == 1 ? chosen : (const int *)0, C::STAGED ? (int *)shared_memory() : (int *)0);
    }
}
