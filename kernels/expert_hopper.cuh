// expert_hopper.cuh - linear layers of experts for many rows on sm_90a: the functions of expert_tile.cuh by wgmma.
//
// The operands are swapped as in linear_swapped.cuh: the first is w, 128 columns of y, and the rows of x, which come from
// anywhere, are the second, up to 160 of them. So an expert with 130 rows costs as much as 160, not as 256.
//
// A tile is some pairs of one expert, as even as they can be; a unit is 128 columns of a tile. Block i computes units i,
// i + blocks, ...: neighbours share the tile's rows of x in L2. A block has a ring of STAGES slots in shared memory, each
// [w 128 x 64 k | x 160 x 64 k], and 12 warps:
//
//   0..7   two warpgroups take units in turn, all columns and rows: one multiplies while the other writes. The one whose turn
//          ends lets the other begin: it waits for no phase of the ring before all those before it are complete
//   8..11  the producers: w by TMA; rows of x by cp.async, 16 rows at a time
//
// Order of summation: 16 k after 16 k; the parts of a row as in expert_tile.cuh.
#pragma once
#include "device/async.cuh"
#include "device/atomic.cuh"
#include "device/barrier.cuh"
#include "device/pdl.cuh"
#include "device/registers.cuh"
#include "device/shared.cuh"
#include "device/tensor.cuh"
#include "device/wgmma_wide.cuh"
#include "body/ring.cuh"
#include "body/experts.cuh"

enum { MANY_COLUMNS = 128, MANY_PAIRS = 160, MANY_THREADS = 384 };

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

// The barriers of warpgroup `group`: of its threads; of both, when its turn to multiply comes.
DEVICE void many_sync(int group) { named_barrier_sync(1 + group, 128); }
enum { MANY_TURN = 3 };

// d = w * x^T of a unit, by one warpgroup: THIRTIES times 32 rows, twice 64 columns.
template <class C, int THIRTIES> DEVICE void many_multiply(float (&d)[2][THIRTIES * 16], const ManyRing<C> &ring, RingSlot<C::STAGES> &slot)
{
    typedef ManyShape<C> P;
    typedef typename C::T T;
#pragma unroll
    for (int i = 0; i < THIRTIES * 16; i++)
        d[0][i] = d[1][i] = 0.0f;
#pragma unroll 1
    for (int s = 0; s < P::STEPS; s++) {
        const u64 w = wgmma_descriptor(ring.data(slot.at), 0, 0), x = wgmma_descriptor(ring.data(slot.at) + P::W, 0, 0);
        ring.wait_full(slot);
        async_proxy_fence(); // cp.async writes as ordinary stores do
        wgmma_fence();
#pragma unroll
        for (int k = 0; k < 4; k++)
#pragma unroll
            for (int h = 0; h < 2; h++)
                Wgmma<THIRTIES * 32, T>::add(d[h], wgmma_descriptor_at(w, 64 * h, k), wgmma_descriptor_at(x, 0, k));
        wgmma_commit();
        wgmma_wait<1>();
        if (s > 0 && lane_id() == 0)
            mbarrier_arrive(ring.empty(slot.before()));
        slot.next();
    }
}

// The outputs of a unit. Lane 4g + t has columns g and g + 8 of the warp's 16 for rows 2t and 2t + 1 of every 8: two lanes
// exchange values, so that each has two neighbouring columns of a row. pairs, weights: of the tile, in shared memory.
template <class C, int THIRTIES, class A>
DEVICE void many_finish(const A &a, const ExpertTile &tile, const int *pairs, const float *weights, int n0, const float (&d)[2][THIRTIES * 16])
{
    const int g = lane_id() >> 2, odd = g & 1, n = n0 + warp_id() % 4 * 16 + g - odd;
#pragma unroll
    for (int j = 0; j < THIRTIES * 4; j++) {
        const int row = 8 * j + (lane_id() & 3) * 2 + odd, pair = pairs[least(row, tile.count - 1)];
        const float weight = C::SUM ? weights[least(row, tile.count - 1)] : 0.0f;
#pragma unroll
        for (int h = 0; h < 4; h++) { // of 8 columns: of both sums of the lane, then 64 further on
            const int to = n + h / 2 * 64 + h % 2 * 8;
            const float v0 = d[h / 2][4 * j + h % 2 * 2], v1 = d[h / 2][4 * j + h % 2 * 2 + 1], got = shuffle_xor(odd ? v0 : v1, 4);
            if (row < tile.count && to < C::N)
                expert_out2<C>(a, tile.expert, pair, weight, to, odd ? got : v0, odd ? v1 : got);
        }
    }
}

// Adds the parts of those rows whose last part is this unit's: ready [MANY_PAIRS], in shared memory, names them, or -1.
template <class C> DEVICE void many_add(const ExpertSumArgs &a, const ExpertTile &tile, const int *pairs, int n0, int *ready, int group)
{
    typedef typename C::T T;
    typedef typename C::OUT O;
    constexpr int UNITS = ManyShape<C>::UNITS, VEC = C::N % 4 ? 2 : 4;
    many_sync(group);
    for (int i = threadIdx.x % 128; i < tile.count; i += 128) {
        const int m = pairs[i] / C::R;
        u32 *arrived = &a.arrived[m * UNITS + n0 / MANY_COLUMNS];
        const bool last = atomic_add_acq_rel(arrived, 1) + 1 == C::R;
        ready[i] = last ? m : -1;
        if (last)
            *arrived = 0;
    }
    many_sync(group);
    for (int i = warp_id() % 4; i < tile.count; i += 4) {
        const int m = ready[i];
        if (m < 0)
            continue;
#pragma unroll
        for (int h = 0; h < 4; h += VEC) {
            const int n = n0 + lane_id() * 4 + h;
            if (n >= C::N)
                break;
            Vec<float, VEC> part[C::R], sum = zeros<float, VEC>();
            Vec<T, VEC> r;
#pragma unroll
            for (int k = 0; k < C::R; k++)
                part[k] = load<VEC>(a.parts + ((i64)m * C::R + k) * C::N + n);
            if (C::RES)
                r = load<VEC>((const T *)a.r + (i64)m * C::N + n);
#pragma unroll
            for (int k = 0; k < C::R; k++)
#pragma unroll
                for (int v = 0; v < VEC; v++)
                    sum[v] += part[k][v];
#pragma unroll
            for (int v = 0; v < VEC && C::RES; v++)
                sum[v] += to_float(r[v]);
            store((O *)a.y + (i64)m * C::N + n, from_floats<O>(sum));
        }
    }
    many_sync(group); // all have read `ready`
}

// next: whether the other warpgroup has a unit after this one.
template <class C, int THIRTIES, class A>
DEVICE void many_unit(const A &a, const ManyRing<C> &ring, RingSlot<C::STAGES> &slot, const ExpertTile &tile, const int *pairs,
                      const float *weights, int n0, int group, bool next)
{
    float d[2][THIRTIES * 16];
    many_multiply<C, THIRTIES>(d, ring, slot);
    if (next)
        named_barrier_arrive(MANY_TURN + (group ^ 1), 256);
    wgmma_wait<0>();
    if (lane_id() == 0)
        mbarrier_arrive(ring.empty(slot.before()));
    many_sync(group); // pairs and weights are there
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
        ring.init(129, 4);
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
        registers_give<72>();
        many_produce<C>(a, ring, tiles, units);
        return;
    }
    registers_take<216>();
    const int group = warp_id() / 4;
    RingSlot<C::STAGES> slot = {0, 0};
    slot.skip(group * P::STEPS);
    int turn = 0; // units take the two halves of `pairs` and `weights` in turn
    for (int u = blockIdx.x + group * gridDim.x; u < units; u += 2 * gridDim.x, turn ^= 1) {
        const ExpertTile tile = tiles[u / P::UNITS];
        const int n0 = u % P::UNITS * MANY_COLUMNS;
        const bool next = u + (int)gridDim.x < units;
        int *pairs = (int *)(shared + C::PAIRS_AT) + (group * 2 + turn) * MANY_PAIRS;
        float *weights = (float *)(shared + C::WEIGHTS_AT) + (group * 2 + turn) * MANY_PAIRS * C::SUM;
        for (int i = threadIdx.x % 128; i < tile.count; i += 128) {
            pairs[i] = a.rows[tile.first + i];
            if (C::SUM)
                weights[i] = expert_weight<C>(a, pairs[i]);
        }
        if (u >= (int)gridDim.x)
            named_barrier_sync(MANY_TURN + group, 256); // the unit before this one has been multiplied
        switch (ceil_div(tile.count, 32)) {
        case 1: many_unit<C, 1>(a, ring, slot, tile, pairs, weights, n0, group, next); break;
        case 2: many_unit<C, 2>(a, ring, slot, tile, pairs, weights, n0, group, next); break;
        case 3: many_unit<C, 3>(a, ring, slot, tile, pairs, weights, n0, group, next); break;
        case 4: many_unit<C, 4>(a, ring, slot, tile, pairs, weights, n0, group, next); break;
        default: many_unit<C, 5>(a, ring, slot, tile, pairs, weights, n0, group, next); break;
        }
        slot.skip(P::STEPS); // those of the other warpgroup's unit
        if constexpr (C::SUM)
            many_add<C>(a, tile, pairs, n0, (int *)(shared + C::READY_AT) + group * MANY_PAIRS, group);
    }
}
