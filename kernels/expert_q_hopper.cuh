// expert_q_hopper.cuh - linear layers of experts with quantised weights for many rows on sm_90a: those of expert_hopper.cuh, whose
// producers make numbers of codes.
//
// Tiles, units, the ring and the two warpgroups that multiply are as there. A slot's 128 x 64 numbers of w are written by the
// producers: each of their eight warps has a tile of 16 rows, whose bricks of 128 k come by bulk copies to a ring of its own,
// AHEAD deep, on past the ends of units. A number is scale * (code - zero), or what the codes stand for, rounded once, as
// unpack.cuh writes it; so products are those of unpacked weights.
//
//   w   tiles of 16 rows (runtime/base/packed.h) in the form m16k16 (compiler/ir/forms.def), N % 16 == 0, K % 64 == 0, groups of 32
//       and more
//
// What limits it: with few rows of an expert making the numbers, 32 for each thread and step of 64 k.
#pragma once
#include "device/async.cuh"
#include "device/atomic.cuh"
#include "device/barrier.cuh"
#include "device/pdl.cuh"
#include "device/registers.cuh"
#include "device/shared.cuh"
#include "device/tensor.cuh"
#include "device/wgmma_wide.cuh"
#include "body/brick.cuh"
#include "body/ring.cuh"
#include "body/experts.cuh"
#include "body/unpacked.cuh"

enum { MANY_COLUMNS = 128, MANY_PAIRS = 160, MANY_THREADS = 512 };

template <class C> using ManyRing = Ring<C::STAGES, C::SLOT_BYTES>;

template <class C> struct ManyShape {
    static constexpr int UNITS = ceil_div(C::N, MANY_COLUMNS); // of a tile
    static constexpr int STEPS = C::K / 64;
    static constexpr int W = MANY_COLUMNS * 128;               // bytes of w in a slot
    static constexpr int BRICKS = ceil_div(C::K, 128);
    static_assert(C::K % 64 == 0 && C::N % 16 == 0 && C::GROUP >= 32 && C::BRICK_K == 128, "");
};

// The bricks of a producer's tile of 16 rows, unit after unit of this block.
template <class C> struct ManyWalk {
    typedef ManyShape<C> P;
    typedef Brick<C> Q;
    const char *w, *tile;
    const ExpertTile *tiles;
    int warp, u, units, brick;
    DEVICE ManyWalk(const void *matrices, const ExpertTile *all, int warp_, int units_)
    {
        w = (const char *)matrices;
        tiles = all;
        warp = warp_;
        u = blockIdx.x;
        units = units_;
        brick = 0;
        open();
    }
    DEVICE bool done() const { return u >= units; }
    DEVICE void copy(u32 slot, u32 arrived)
    {
        const int k = least(128, C::K - brick * 128), scales = k / C::GROUP * 16;
        if (lane_id() == 0) {
            mbarrier_expect(arrived, k * 2 * C::BITS + scales * (Q::SCALE + Q::ZERO));
            bulk_copy(slot, tile + brick * Q::BRICK, k * 2 * C::BITS, arrived);
            bulk_copy(slot + Q::BRICK, tile + Q::SCALES_AT + brick * (Q::GROUPS * 16 * Q::SCALE), scales * Q::SCALE, arrived);
            if (Q::ZERO)
                bulk_copy(slot + Q::BRICK + Q::GROUPS * 16 * Q::SCALE, tile + Q::ZEROS_AT + brick * (Q::GROUPS * 16 * Q::ZERO), scales * Q::ZERO, arrived);
        }
        if (++brick < P::BRICKS)
            return;
        brick = 0;
        u += gridDim.x;
        open();
    }
private:
    DEVICE void open()
    {
        if (done())
            return;
        const i64 first = (i64)tiles[u / P::UNITS].expert * (C::N / 16);
        tile = w + (first + least(u % P::UNITS * 8 + warp, C::N / 16 - 1)) * Q::TILE; // beyond N the last one once more, for nothing
    }
};

// One warp: 16 rows and 64 k of a brick, its first or second half, as numbers to rows of 128 bytes of a slot at `to`. Odd rows
// write their pieces in another order, so that there are no bank conflicts.
template <class C> DEVICE void many_numbers(const char *brick, int half, u32 to)
{
    typedef Brick<C> Q;
    typedef Unpacked<C> U;
    typedef typename C::T T;
    const int g = lane_id() >> 2, odd = g & 1;
#pragma unroll
    for (int j = 0; j < 64 / U::SPAN; j++) {
        const int block = U::FOUR ? 0 : j ^ odd;
        const uint4_ four = shared_load16(shared_address(brick) + (half * (64 / U::SPAN) + block) * 512 + lane_id() * 16);
        u32 w[4] = {four.x, four.y, four.z, four.w}, piece[U::PIECES][4];
        const int first = block * U::SPAN + U::exchange(piece, w), group = (half * 64 + first) / C::GROUP;
        float scale[2], offset[2];
#pragma unroll
        for (int lower = 0; lower < 2; lower++) {
            scale[lower] = Q::scale(brick, group, g + 8 * lower);
            offset[lower] = unpacked_offset<C>(C::SCALES == 3 ? Q::minimum(brick, group, g + 8 * lower) : Q::zero(brick, group, g + 8 * lower));
        }
#pragma unroll
        for (int p = 0; p < U::PIECES; p++) {
            const int other = U::FOUR ? p ^ odd : p, unit = first / 8 + 2 * other;
#pragma unroll
            for (int lower = 0; lower < 2; lower++) {
                Vec<float, 8> v;
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    const u32 word = !U::FOUR ? piece[0][i] : odd ? piece[(1 - p) % U::PIECES][i] : piece[p][i];
                    const u32 pair = U::FOUR ? word >> 4 * lower & 0x000f000f : word >> 8 * lower & 0x00ff00ff;
                    v[2 * i] = unpacked_number<C>(pair & 0xffff, scale[lower], offset[lower]);
                    v[2 * i + 1] = unpacked_number<C>(pair >> 16, scale[lower], offset[lower]);
                }
                Vec<T, 8> numbers = from_floats<T>(v);
                shared_store16(to + (g + 8 * lower) * 128 + (unit ^ g) * 16, *(uint4_ *)&numbers);
            }
        }
    }
}

// The producers: all steps of this block's units.
template <class C> DEVICE void many_produce(const ExpertArgs &a, const ManyRing<C> &ring, char *shared, const ExpertTile *tiles, int units)
{
    typedef ManyShape<C> P;
    typedef Brick<C> Q;
    typedef typename C::T T;
    constexpr int GROUPS = MANY_PAIRS / 32;
    const int row = (threadIdx.x - 256) / 8, unit = threadIdx.x % 8; // rows row, row + 32, ... of a tile, 8 of the 64 k
    const int warp = warp_id() - 8;
    char *own = shared + C::CODES_AT + warp * C::AHEAD * Q::SLOT;
    const u32 arrived = ring.end() + warp * C::AHEAD * 8; // mbarriers of its bricks
    RingSlot<C::STAGES> slot = {0, 1};
    RingSlot<C::AHEAD> brick = {0, 0};
    ManyWalk<C> walk(a.w, tiles, warp, units);
#pragma unroll 1
    for (int i = 0; i < C::AHEAD - 1 && !walk.done(); i++)
        walk.copy(shared_address(own) + i * Q::SLOT, arrived + i * 8);
    for (int u = blockIdx.x; u < units; u += gridDim.x) {
        const ExpertTile tile = tiles[u / P::UNITS];
        const T *x[GROUPS];
#pragma unroll
        for (int i = 0; i < GROUPS; i++) { // rows beyond the last pair are computed and dropped
            const int pair = a.rows[tile.first + least(row + 32 * i, tile.count - 1)];
            x[i] = (const T *)a.x + (i64)(C::SUM ? pair : pair / C::R) * C::K + unit * 8;
        }
#pragma unroll 1
        for (int s = 0; s < P::STEPS; s++) {
            if (s % 2 == 0) {
                if (!walk.done()) // to where the brick before this one was; all lanes have met since
                    walk.copy(shared_address(own) + brick.before() * Q::SLOT, arrived + brick.before() * 8);
                mbarrier_wait(arrived + brick.at * 8, brick.parity);
            }
            const u32 to = ring.data(slot.at) + P::W + row * 128 + (unit ^ (row & 7)) * 16;
            ring.wait_empty(slot);
#pragma unroll
            for (int i = 0; i < GROUPS; i++)
                if (32 * i < tile.count)
                    copy16(to + 32 * i * 128, x[i] + s * 64);
            copy_arrive(ring.full(slot.at));
            many_numbers<C>(own + brick.at * Q::SLOT, s % 2, ring.data(slot.at) + warp * 16 * 128);
            warp_sync();
            if (lane_id() == 0)
                mbarrier_arrive(ring.full(slot.at));
            slot.next();
            if (s % 2 || s + 1 == P::STEPS)
                brick.next();
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
        async_proxy_fence(); // the producers write by ordinary stores and cp.async
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

template <class C, class A> DEVICE void expert_q_hopper(const A &a)
{
    typedef ManyShape<C> P;
    char *shared = shared_memory();
    const ManyRing<C> ring = {shared_address(shared + C::RING_AT), shared_address(shared + C::BARRIERS_AT)};
    ExpertTile *tiles = (ExpertTile *)(shared + C::TILES_AT);
    int *all = (int *)(shared + C::COUNT_AT);
    if (threadIdx.x == 0) {
        ring.init(264, 4); // 256 threads whose copies are there, 8 warps whose numbers are
        for (int i = 0; i < 8 * C::AHEAD; i++)
            mbarrier_init(ring.end() + i * 8, 1);
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
        registers_give<48>();
        many_produce<C>(a, ring, shared, tiles, units);
        return;
    }
    registers_take<208>();
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
