// expert_hopper.cuh - linear layers of experts for many rows on sm_90a: the functions of expert_tile.cuh by wgmma.
//
// The operands are swapped as in linear_swapped.cuh: the first is w, 128 columns of y, and the rows of x, which come from
// anywhere, are the second, up to 192 of them. So an expert with 130 rows costs as much as 160, not as 256.
//
// A tile is some pairs of one expert, as even as they can be; a unit is 128 columns of a tile. Block i computes units i,
// i + blocks, ...: neighbours share the tile's rows of x in L2. A block has a ring of STAGES slots in shared memory, each
// [w 128 x 64 k | x 192 x 64 k], and 12 warps:
//
//   0..7   two warpgroups multiply, each 64 columns with all rows of the tile
//   8..11  the producers: w by TMA; rows of x by cp.async, 16 rows at a time
//
// Order of summation: 16 k after 16 k; the parts of a row as in expert_tile.cuh.
#pragma once
#include "device/async.cuh"
#include "device/atomic.cuh"
#include "device/barrier.cuh"
#include "device/pdl.cuh"
#include "device/shared.cuh"
#include "device/tensor.cuh"
#include "device/wgmma.cuh"
#include "body/ring.cuh"
#include "body/experts.cuh"

enum { MANY_COLUMNS = 128, MANY_PAIRS = 192, MANY_THREADS = 384 };

template <class C> using ManyRing = Ring<C::STAGES, C::SLOT_BYTES>;

template <class C> struct ManyShape {
    static constexpr int UNITS = ceil_div(C::N, MANY_COLUMNS); // of a tile
    static constexpr int STEPS = ceil_div(C::K, 64);
    static constexpr int W = MANY_COLUMNS * 128;               // bytes of w in a slot
};

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
                if (16 * i < round_up(tile.count, 32))
                    copy16(to + 16 * i * 128, in ? x[i] + s * 64 : x[i], in ? 16 : 0);
            copy_arrive(ring.full(slot.at));
            slot.next();
        }
    }
}

// d = w * x^T of a unit: THIRTIES times 32 rows.
template <class C, int THIRTIES> DEVICE void many_multiply(float (&d)[THIRTIES * 16], const ManyRing<C> &ring, RingSlot<C::STAGES> &slot, int group)
{
    typedef ManyShape<C> P;
    typedef typename C::T T;
#pragma unroll
    for (int i = 0; i < THIRTIES * 16; i++)
        d[i] = 0.0f;
#pragma unroll 1
    for (int s = 0; s < P::STEPS; s++) {
        const u64 w = wgmma_descriptor(ring.data(slot.at), group * 64, 0), x = wgmma_descriptor(ring.data(slot.at) + P::W, 0, 0);
        ring.wait_full(slot);
        async_proxy_fence(); // cp.async writes as ordinary stores do
        wgmma_fence();
#pragma unroll
        for (int k = 0; k < 4; k++) {
#pragma unroll
            for (int i = 0; i < THIRTIES / 2; i++)
                Wgmma<64, T>::add(d + 32 * i, wgmma_descriptor_at(w, 0, k), wgmma_descriptor_at(x, 64 * i, k));
            if (THIRTIES % 2)
                Wgmma<32, T>::add(d + 32 * (THIRTIES / 2), wgmma_descriptor_at(w, 0, k), wgmma_descriptor_at(x, 64 * (THIRTIES / 2), k));
        }
        wgmma_commit();
        wgmma_wait<1>();
        if (s > 0 && lane_id() == 0)
            mbarrier_arrive(ring.empty(slot.before()));
        slot.next();
    }
    wgmma_wait<0>();
    if (lane_id() == 0)
        mbarrier_arrive(ring.empty(slot.before()));
}

// The outputs of a unit. Lane 4g + t has columns g and g + 8 of the warp's 16 for rows 2t and 2t + 1 of every 8: two lanes
// exchange values, so that each has two neighbouring columns of a row. pairs, weights: of the tile, in shared memory.
template <class C, int THIRTIES, class A>
DEVICE void many_finish(const A &a, const ExpertTile &tile, const int *pairs, const float *weights, int n0, const float (&d)[THIRTIES * 16])
{
    const int g = lane_id() >> 2, odd = g & 1, n = n0 + warp_id() * 16 + g - odd;
#pragma unroll
    for (int j = 0; j < THIRTIES * 4; j++) {
        const int row = 8 * j + (lane_id() & 3) * 2 + odd, pair = pairs[least(row, tile.count - 1)];
        const float weight = C::SUM ? weights[least(row, tile.count - 1)] : 0.0f;
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const float v0 = d[4 * j + 2 * h], v1 = d[4 * j + 2 * h + 1], got = shuffle_xor(odd ? v0 : v1, 4);
            if (row < tile.count && n + 8 * h < C::N)
                expert_out2<C>(a, tile.expert, pair, weight, n + 8 * h, odd ? got : v0, odd ? v1 : got);
        }
    }
}

// Adds the parts of those rows whose last part is this unit's: ready [MANY_PAIRS], in shared memory, names them, or -1.
template <class C> DEVICE void many_add(const ExpertSumArgs &a, const ExpertTile &tile, const int *pairs, int n0, int *ready)
{
    typedef typename C::T T;
    typedef typename C::OUT O;
    constexpr int UNITS = ManyShape<C>::UNITS;
    named_barrier_sync(1, 256);
    if ((int)threadIdx.x < tile.count) {
        const int m = pairs[threadIdx.x] / C::R;
        u32 *arrived = &a.arrived[m * UNITS + n0 / MANY_COLUMNS];
        const bool last = atomic_add_acq_rel(arrived, 1) + 1 == C::R;
        ready[threadIdx.x] = last ? m : -1;
        if (last)
            *arrived = 0;
    }
    named_barrier_sync(1, 256);
    for (int i = warp_id(); i < tile.count; i += 8) {
        const int m = ready[i], n = n0 + lane_id() * 4;
        if (m < 0 || n >= C::N)
            continue;
#pragma unroll
        for (int h = 0; h < 4; h += 2) {
            if (n + h >= C::N)
                break;
            Vec<float, 2> sum = load<2>(a.parts + (i64)m * C::R * C::N + n + h);
#pragma unroll
            for (int k = 1; k < C::R; k++) {
                const Vec<float, 2> part = load<2>(a.parts + ((i64)m * C::R + k) * C::N + n + h);
                sum[0] += part[0];
                sum[1] += part[1];
            }
            if (C::RES) {
                const Vec<float, 2> r = to_floats(load<2>((const T *)a.r + (i64)m * C::N + n + h));
                sum[0] += r[0];
                sum[1] += r[1];
            }
            store((O *)a.y + (i64)m * C::N + n + h, from_floats<O>(sum));
        }
    }
    named_barrier_sync(1, 256); // all have read `ready`
}

template <class C, int THIRTIES, class A>
DEVICE void many_unit(const A &a, const ManyRing<C> &ring, RingSlot<C::STAGES> &slot, const ExpertTile &tile, const int *pairs,
                      const float *weights, int n0)
{
    float d[THIRTIES * 16];
    many_multiply<C, THIRTIES>(d, ring, slot, warp_id() / 4);
    named_barrier_sync(1, 256); // pairs and weights are there
    many_finish<C, THIRTIES>(a, tile, pairs, weights, n0, d);
}

template <class C, class A> DEVICE void expert_hopper(const A &a)
{
    typedef ManyShape<C> P;
    char *shared = shared_memory();
    const ManyRing<C> ring = {shared_address(shared + C::RING_AT), shared_address(shared + C::BARRIERS_AT)};
    ExpertTile *tiles = (ExpertTile *)(shared + C::TILES_AT);
    int *all = (int *)(shared + C::COUNT_AT);
    if (threadIdx.x == 0) {
        ring.init(129, 8);
        mbarrier_init_fence();
    }
    launch_dependents();
    wait_for_previous();
    if (warp_id() == 8) {
        const int count = for_expert_tiles<C::X, MANY_PAIRS>(a.starts, [&](int i, ExpertTile tile) { tiles[i] = tile; });
        if (lane_id() == 0)
            all[0] = count;
    }
    block_sync();
    const int units = all[0] * P::UNITS;
    if (warp_id() >= 8) {
        many_produce<C>(a, ring, tiles, units);
        return;
    }
    RingSlot<C::STAGES> slot = {0, 0};
    int turn = 0; // units take the two halves of `pairs` and `weights` in turn
    for (int u = blockIdx.x; u < units; u += gridDim.x, turn ^= 1) {
        const ExpertTile tile = tiles[u / P::UNITS];
        const int n0 = u % P::UNITS * MANY_COLUMNS;
        int *pairs = (int *)(shared + C::PAIRS_AT) + turn * MANY_PAIRS;
        float *weights = (float *)(shared + C::WEIGHTS_AT) + turn * MANY_PAIRS * C::SUM;
        if ((int)threadIdx.x < tile.count) {
            pairs[threadIdx.x] = a.rows[tile.first + threadIdx.x];
            if (C::SUM)
                weights[threadIdx.x] = expert_weight<C>(a, pairs[threadIdx.x]);
        }
        switch (ceil_div(tile.count, 32)) {
        case 1: many_unit<C, 1>(a, ring, slot, tile, pairs, weights, n0); break;
        case 2: many_unit<C, 2>(a, ring, slot, tile, pairs, weights, n0); break;
        case 3: many_unit<C, 3>(a, ring, slot, tile, pairs, weights, n0); break;
        case 4: many_unit<C, 4>(a, ring, slot, tile, pairs, weights, n0); break;
        case 5: many_unit<C, 5>(a, ring, slot, tile, pairs, weights, n0); break;
        default: many_unit<C, 6>(a, ring, slot, tile, pairs, weights, n0); break;
        }
        if constexpr (C::SUM)
            many_add<C>(a, tile, pairs, n0, (int *)(shared + C::READY_AT));
    }
}
