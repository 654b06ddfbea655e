// many.cuh - linear layers of experts for many rows on sm_90a, by wgmma: what expert_hopper.cuh and expert_q_hopper.cuh share. They
// differ in how rows of w get into shared memory.
//
// The operands are swapped as in linear_swapped.cuh: the first is w, 128 columns of y, and the rows of x, which come from
// anywhere, are the second, up to 160 of them. So an expert with 130 rows costs as much as 160, not as 256.
//
// A tile is some pairs of one expert, as even as they can be; a unit is 128 columns of a tile. Block i computes units i,
// i + blocks, ...: neighbours share the tile's rows of x in L2. A block has a ring of STAGES slots in shared memory, each
// [w 128 x 64 k | x 160 x 64 k]. Its warps:
//
//   0..7   two warpgroups take units in turn, all columns and rows: one multiplies while the other writes. The one whose turn
//          ends lets the other begin: it waits for no phase of the ring before all those before it are complete
//   8..    the producers, who fill the ring
//
// Order of summation: 16 k after 16 k.
//
//   C: T, X, N, K, R, BIAS, SUM, ACT, GLU, STAGES, SLOT_BYTES; RING_AT, BARRIERS_AT, COUNT_AT, TILES_AT, PAIRS_AT, WEIGHTS_AT
#pragma once
#include "device/async.cuh"
#include "device/barrier.cuh"
#include "device/bytes.cuh"
#include "device/fragment.cuh"
#include "device/pdl.cuh"
#include "device/registers.cuh"
#include "device/shared.cuh"
#include "device/tensor.cuh"
#include "device/wgmma_wide.cuh"
#include "body/experts.cuh"
#include "body/quad.cuh"
#include "body/ring.cuh"

enum { MANY_COLUMNS = 128, MANY_PAIRS = 160 };

template <class C> using ManyRing = Ring<C::STAGES, C::SLOT_BYTES>;

template <class C> struct ManyShape {
    static constexpr int UNITS = ceil_div(C::N, MANY_COLUMNS); // of a tile
    static constexpr int STEPS = ceil_div(C::K, 64);
    static constexpr int W = MANY_COLUMNS * 128;               // bytes of w in a slot
};

// The barriers of warpgroup `group`: of its threads; of both, when its turn to multiply comes.
DEVICE void many_sync(int group) { named_barrier_sync(1 + group, 128); }
enum { MANY_TURN = 3 };

// d = w * x^T of a unit, by one warpgroup: ROWS rows, twice 64 columns.
template <class C, int ROWS> DEVICE void many_multiply(float (&d)[2][ROWS / 2], const ManyRing<C> &ring, RingSlot<C::STAGES> &slot)
{
    typedef ManyShape<C> P;
    typedef typename C::T T;
#pragma unroll
    for (int i = 0; i < ROWS / 2; i++)
        d[0][i] = d[1][i] = 0.0f;
#pragma unroll 1
    for (int s = 0; s < P::STEPS; s++) {
        const u64 w = wgmma_descriptor(ring.data(slot.at), 0, 0), x = wgmma_descriptor(ring.data(slot.at) + P::W, 0, 0);
        ring.wait_full(slot);
        async_proxy_fence(); // producers write by cp.async and by ordinary stores
        wgmma_fence();
#pragma unroll
        for (int k = 0; k < 4; k++)
#pragma unroll
            for (int h = 0; h < 2; h++)
                Wgmma<ROWS, T>::add(d[h], wgmma_descriptor_at(w, 64 * h, k), wgmma_descriptor_at(x, 0, k));
        wgmma_commit();
        wgmma_wait<1>();
        if (s > 0 && lane_id() == 0)
            mbarrier_arrive(ring.empty(slot.before()));
        slot.next();
    }
}

// The outputs of a unit, 8 columns of a row in one store. Lane 4g + t has the sums of column g for rows 2t and 2t + 1 of each block
// of 8 rows and 8 columns. The warp has four blocks side by side, h = 0 .. 3, at 0, 8, 64 and 72 from its first column. Each is
// transposed; then the lanes of a quad exchange four of them. pairs, weights: of the tile, in shared memory.
template <class C, int ROWS>
DEVICE void many_finish(const ExpertArgs &a, const ExpertTile &tile, const int *pairs, const float *weights, int n0, const float (&d)[2][ROWS / 2])
{
    typedef typename C::T T;
    const int g = lane_id() >> 2, t = lane_id() & 3, first = n0 + warp_id() % 4 * 16;
    float bias[4] = {};
#pragma unroll
    for (int h = 0; h < 4 && C::BIAS; h++)
        bias[h] = a.b[tile.expert * C::N + least(first + h / 2 * 64 + h % 2 * 8 + g, C::N - 1)];
    u32 v[4];
    if constexpr (C::GLU) { // columns g and g + 1, gate and up: the even lane finishes those of block h, the odd one of block h + 1
        const int odd = g & 1, n = first + t % 2 * 64;
#pragma unroll
        for (int j = 0; j < ROWS / 8; j += 2) {
#pragma unroll
            for (int i = 0; i < 4; i++) { // rows 8 (j + i / 2) ..., columns 64 (i % 2) ...
                float y[2];
#pragma unroll
                for (int r = 0; r < 2; r++) {
                    const float v0 = d[i % 2][4 * (j + i / 2) + r] + bias[i % 2 * 2], v1 = d[i % 2][4 * (j + i / 2) + 2 + r] + bias[i % 2 * 2 + 1];
                    const float got = shuffle_xor(odd ? v0 : v1, 4);
                    y[r] = activate<C::ACT>(odd ? got : v0) * (odd ? v1 : got);
                }
                v[i] = transpose8x8(pack2<T>(y[0], y[1])); // columns t and t + 4 of the 8 of y
            }
            quad_transpose(v);
            const int row = 8 * (j + t / 2) + g;
            if (row < tile.count && n < C::N)
                *(uint4_ *)((T *)a.y + (i64)pairs[row] * (C::N / 2) + n / 2) = {permute(v[0], v[1], 0x5410), permute(v[2], v[3], 0x5410),
                                                                               permute(v[0], v[1], 0x7632), permute(v[2], v[3], 0x7632)};
        }
    } else {
        const int n = first + t / 2 * 64 + t % 2 * 8;
#pragma unroll
        for (int j = 0; j < ROWS / 8; j++) {
            Vec<float, 2> weight;
            if (C::SUM)
                weight = load<2>(weights + 8 * j + 2 * t);
#pragma unroll
            for (int h = 0; h < 4; h++) {
                const float v0 = d[h / 2][4 * j + h % 2 * 2] + bias[h], v1 = d[h / 2][4 * j + h % 2 * 2 + 1] + bias[h];
                v[h] = transpose8x8(C::SUM ? pack2<T>(weight[0] * v0, weight[1] * v1) : pack2<T>(activate<C::ACT>(v0), activate<C::ACT>(v1)));
            }
            quad_transpose(v);
            const int row = 8 * j + g;
            if (row < tile.count && n < C::N)
                *(uint4_ *)((T *)a.y + (i64)pairs[row] * C::N + n) = {v[0], v[1], v[2], v[3]};
        }
    }
}

// next: whether the other warpgroup has a unit after this one.
template <class C, int ROWS>
DEVICE void many_unit(const ExpertArgs &a, const ManyRing<C> &ring, RingSlot<C::STAGES> &slot, const ExpertTile &tile, const int *pairs,
                      const float *weights, int n0, int group, bool next)
{
    float d[2][ROWS / 2];
    many_multiply<C, ROWS>(d, ring, slot);
    if (next)
        named_barrier_arrive(MANY_TURN + (group ^ 1), 256);
    wgmma_wait<0>();
    if (lane_id() == 0)
        mbarrier_arrive(ring.empty(slot.before()));
    many_sync(group); // pairs and weights are there
    many_finish<C, ROWS>(a, tile, pairs, weights, n0, d);
}

// All of a block. ARRIVALS: of producers, until a slot is full. produce(ring, tiles, units): what a producer does, for all steps of
// this block's units. Registers of each of its threads, and of the others.
template <class C, int ARRIVALS, int PRODUCER_REGISTERS, int REGISTERS, class F> DEVICE void many_experts(const ExpertArgs &a, F produce)
{
    typedef ManyShape<C> P;
    char *shared = shared_memory();
    const ManyRing<C> ring = {shared_address(shared + C::RING_AT), shared_address(shared + C::BARRIERS_AT)};
    ExpertTile *tiles = (ExpertTile *)(shared + C::TILES_AT);
    int *all = (int *)(shared + C::COUNT_AT);
    if (threadIdx.x == 0) {
        ring.init(ARRIVALS, 4);
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
        registers_give<PRODUCER_REGISTERS>();
        produce(ring, tiles, units);
        return;
    }
    registers_take<REGISTERS>();
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
        switch (ceil_div(tile.count, 16)) {
        case 1: many_unit<C, 16>(a, ring, slot, tile, pairs, weights, n0, group, next); break;
        case 2: many_unit<C, 32>(a, ring, slot, tile, pairs, weights, n0, group, next); break;
        case 3: many_unit<C, 48>(a, ring, slot, tile, pairs, weights, n0, group, next); break;
        case 4: many_unit<C, 64>(a, ring, slot, tile, pairs, weights, n0, group, next); break;
        case 5: case 6: many_unit<C, 96>(a, ring, slot, tile, pairs, weights, n0, group, next); break;
        case 7: many_unit<C, 112>(a, ring, slot, tile, pairs, weights, n0, group, next); break;
        case 8: many_unit<C, 128>(a, ring, slot, tile, pairs, weights, n0, group, next); break;
        default: many_unit<C, 160>(a, ring, slot, tile, pairs, weights, n0, group, next); break;
        }
        slot.skip(P::STEPS); // those of the other warpgroup's unit
    }
}
