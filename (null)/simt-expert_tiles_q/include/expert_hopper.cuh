// expert_hopper.cuh - linear layers of experts for many rows on sm_90a, by wgmma.
//
//   linear   y[m, i*N + n] = epilogue(x[m,:] . w[e,n,:] + b[e,n])                        e: expert i of row m
//   sum      y[m, i, n] = weight * (x[m, i*K:] . w[e,n,:] + b[e,n]), the form parts of expert_sum, which expert_add.cuh adds
//
// body/many.cuh explains tiles, units and the ring. Of a block's 12 warps the last four are producers: w by TMA; rows of x by
// cp.async, 16 rows at a time.
//
// Parts are rounded to 16 bits: in fp32, and added by the last of a row's units, they would cost as much as the products
// (docs/decisions/035-experts.md).
#pragma once
#include "body/many.cuh"

// The producers: all steps of this block's units.
template <class C> DEVICE void many_produce(const ExpertArgs &a, const ManyRing<C> &ring, const ExpertTile *tiles, int units)
{
    typedef ManyShape<C> P;
    typedef typename C::T T;
    constexpr int GROUPS = MANY_PAIRS / 16;
    const int row = (threadIdx.x - 256) / 8, unit = threadIdx.x % 8; // rows row, row + 16, ... of a tile, 8 of the 64 k
    RingSlot<C::STAGES> slot = {0, 1};
    for (int u = blockIdx.x; u < units; u += gridDim.x) {
        const ExpertTile tile = tiles[u / P::UNITS];
        const int n = u % P::UNITS * MANY_COLUMNS;
        const T *x[GROUPS];
#pragma unroll
        for (int i = 0; i < GROUPS; i++) { // rows beyond the last pair are computed and dropped
            const int pair = a.rows[tile.first + least(row + 16 * i, tile.count - 1)];
            x[i] = (const T *)a.x + (i64)(C::SUM ? pair : pair / C::R) * C::K + unit * 8;
        }
        for (int s = 0; s < P::STEPS; s++) {
            const u32 to = ring.data(slot.at) + P::W + row * 128 + (unit ^ (row & 7)) * 16;
            const int in = s * 64 + unit * 8 < C::K;
            ring.wait_empty(slot);
            if (threadIdx.x / 32 == 8) {
                warp_mbarrier_expect(ring.full(slot.at), P::W);
                warp_tensor_copy(ring.data(slot.at), (const TensorMap *)a.w, tile.expert * C::N + n, s * 64, ring.full(slot.at));
            }
#pragma unroll
            for (int i = 0; i < GROUPS; i++)
                if (16 * i < tile.count)
                    copy16(to + 16 * i * 128, in ? x[i] + s * 64 : x[i], in ? 16 : 0);
            copy_arrive(ring.full(slot.at));
            slot.next();
        }
    }
}

template <class C> DEVICE void expert_hopper(const ExpertArgs &a)
{
    many_experts<C, 129, 72, 216>(a, [&](const ManyRing<C> &ring, const ExpertTile *tiles, int units) { many_produce<C>(a, ring, tiles, units); });
}
