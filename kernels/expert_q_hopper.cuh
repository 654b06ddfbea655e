// expert_q_hopper.cuh - linear layers of experts with quantised weights for many rows on sm_90a: those of expert_hopper.cuh, whose
// producers make numbers of codes.
//
//   w   tiles of 16 rows (runtime/base/packed.h) in the form m16k16 (compiler/ir/forms.def), N % 16 == 0, K % 64 == 0, groups of 32
//       and more
//
// body/many.cuh explains tiles, units and the ring. Of a block's 16 warps the last eight are producers. Rows of x come by cp.async, 32
// at a time. Of a slot's 128 rows of w each producer has 16: bricks of BRICK_K k come by cp.async to a ring of its own, AHEAD deep,
// across the ends of units. Their codes become the registers of a fragment (body/codes.cuh), which stmatrix writes as rows.
//
// A number is scale * (code - zero), rounded once to 16 bits, so products are those of unpacked weights.
#pragma once
#include "device/mma.cuh"
#include "body/brick.cuh"
#include "body/codes.cuh"
#include "body/many.cuh"

// The bricks of a producer's 16 rows, unit after unit of this block.
template <class C> struct ManyBricks {
    typedef ManyShape<C> P;
    typedef Brick<C> Q;
    static constexpr int BRICKS = ceil_div(C::K, C::BRICK_K); // of a tile
    static_assert(C::K % 64 == 0 && C::N % 16 == 0 && C::GROUP >= 32 && C::BRICK_K % 128 == 0, "");
    const char *w, *tile;
    const ExpertTile *tiles;
    int warp, u, units, brick;
    DEVICE ManyBricks(const void *matrices, const ExpertTile *all, int warp_, int units_)
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
    // Requests the next brick, by all lanes.
    DEVICE void copy(u32 slot, u32 arrived)
    {
        Q::copy(tile, brick, slot);
        copy_arrive(arrived);
        if (++brick < BRICKS)
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

// scale * pairs of code - zero, rounded once to T. bf16 has a scale as the sum of two numbers; fp32 scales in half, and minima, go
// by way of fp32.
template <class C> struct ManyScale {
    typedef typename C::T T;
    static constexpr bool HALF = Magic<T>::BASE != 128.0f, PAIRS = C::SCALES < (HALF ? 2 : 3);
    u32 upper, lower;
    float scale, zero; // zero: of minima, the number of a pair's 0
    DEVICE ManyScale(const char *brick, int group, int row)
    {
        scale = Codes<C>::scale(brick + Brick<C>::BRICK, group, row);
        upper = pack2<T>(scale, scale);
        lower = pack2<T>(scale - low<T>(upper), scale - low<T>(upper));
        zero = C::SCALES == 3 ? fmaf(C::BITS == 4 ? 8.0f : 128.0f, scale, -Brick<C>::minimum(brick, group, row)) : 0.0f;
    }
    DEVICE u32 times(u32 pair) const
    {
        if (!PAIRS)
            return pack2<T>(fmaf(scale, low<T>(pair), zero), fmaf(scale, high<T>(pair), zero));
        return HALF ? mul2<T>(pair, upper) : fma2<T>(pair, upper, mul2<T>(pair, lower));
    }
};

// By one warp: 16 rows and the part-th 64 k of a brick as numbers, to rows of 128 bytes of a slot at `to`.
template <class C> DEVICE void many_numbers(const char *brick, int part, u32 to)
{
    typedef Codes<C> Q;
    constexpr int BLOCKS = 64 / Q::BLOCK_K, EACH = Q::BLOCK_K / 16, SPAN = least(C::GROUP, 64); // k of a group
    const char *zeros = brick + Brick<C>::BRICK + Brick<C>::GROUPS * 16 * Q::SCALE;
    const int g = lane_id() >> 2, row = lane_id() & 15;
    const u32 at = to + row * 128 + (lane_id() >> 4 ^ row & 7) * 16; // of the first 16 k: `to` is a multiple of 128 bytes
    uint4_ codes[BLOCKS];
#pragma unroll
    for (int i = 0; i < BLOCKS; i++)
        codes[i] = shared_load16(shared_address(brick) + (part * BLOCKS + i) * 512 + lane_id() * 16);
#pragma unroll
    for (int k = 0; k < 64; k += SPAN) {
        const int group = (part * 64 + k) / C::GROUP;
        const typename Q::Offset upper_zero(zeros, group, g), lower_zero(zeros, group, g + 8);
        const ManyScale<C> upper(brick, group, g), lower(brick, group, g + 8);
#pragma unroll
        for (int i = k / 16; i < (k + SPAN) / 16; i++) {
            u32 a[4];
            Q::fragment(a, codes[i / EACH], i % EACH, upper_zero, lower_zero);
            stmatrix4(at ^ i * 32, {upper.times(a[0]), lower.times(a[1]), upper.times(a[2]), lower.times(a[3])});
        }
    }
}

// A producer's rows of x: row, row + 32, ... of a tile, 8 of the 64 k, step after step of this block's units.
template <class C> struct ManyRows {
    typedef ManyShape<C> P;
    typedef typename C::T T;
    static constexpr int GROUPS = MANY_PAIRS / 32;
    const ExpertArgs &a;
    const ExpertTile *tiles;
    int row, unit, u, units, s, count, from[GROUPS]; // from: of a.x, in units of 8 elements
    RingSlot<C::STAGES> slot;
    DEVICE ManyRows(const ExpertArgs &args, const ExpertTile *all, int units_) : a(args)
    {
        tiles = all;
        row = (threadIdx.x - 256) / 8;
        unit = threadIdx.x % 8;
        u = blockIdx.x;
        units = units_;
        s = 0;
        slot = {0, 1};
        open();
    }
    DEVICE bool done() const { return u >= units; }
    DEVICE void copy(const ManyRing<C> &ring)
    {
        const u32 to = ring.data(slot.at) + P::W + row * 128 + (unit ^ (row & 7)) * 16;
        ring.wait_empty(slot);
#pragma unroll
        for (int i = 0; i < GROUPS; i++)
            if (row + 32 * i < count) // rows beyond the last pair are computed and dropped
                copy16(to + 32 * i * 128, (const T *)a.x + (i64)(from[i] + s * 8) * 8);
        copy_arrive(ring.full(slot.at));
        slot.next();
        if (++s < P::STEPS)
            return;
        s = 0;
        u += gridDim.x;
        open();
    }
private:
    DEVICE void open()
    {
        if (done())
            return;
        const ExpertTile tile = tiles[u / P::UNITS];
        count = tile.count;
#pragma unroll
        for (int i = 0; i < GROUPS; i++) {
            const int pair = a.rows[tile.first + least(row + 32 * i, count - 1)];
            from[i] = (C::SUM ? pair : pair / C::R) * (C::K / 8) + unit;
        }
    }
};

// The producers: all steps of this block's units. Rows of x are requested a step before the numbers of w are made.
template <class C> DEVICE void many_produce_codes(const ExpertArgs &a, const ManyRing<C> &ring, const ExpertTile *tiles, int units)
{
    typedef ManyShape<C> P;
    typedef Brick<C> Q;
    constexpr int PARTS = C::BRICK_K / 64;
    const int warp = warp_id() - 8;
    char *own = shared_memory() + C::CODES_AT + warp * C::AHEAD * Q::SLOT;
    const u32 arrived = ring.end() + warp * C::AHEAD * 8; // mbarriers of its bricks
    RingSlot<C::STAGES> slot = {0, 0};
    RingSlot<C::AHEAD> brick = {0, 0};
    ManyBricks<C> next(a.w, tiles, warp, units);
    ManyRows<C> x(a, tiles, units);
#pragma unroll 1
    for (int i = 0; i < C::AHEAD - 1 && !next.done(); i++)
        next.copy(shared_address(own) + i * Q::SLOT, arrived + i * 8);
    if (!x.done())
        x.copy(ring);
    for (int u = blockIdx.x; u < units; u += gridDim.x)
#pragma unroll 1
        for (int s = 0; s < P::STEPS; s++) {
            if (s % PARTS == 0) {
                if (!next.done()) // to where the brick before this one was; all lanes have met since
                    next.copy(shared_address(own) + brick.before() * Q::SLOT, arrived + brick.before() * 8);
                mbarrier_wait(arrived + brick.at * 8, brick.parity);
            }
            if (!x.done())
                x.copy(ring);
            many_numbers<C>(own + brick.at * Q::SLOT, s % PARTS, ring.data(slot.at) + warp * 16 * 128);
            warp_sync();
            if (lane_id() == 0)
                mbarrier_arrive(ring.full(slot.at));
            slot.next();
            if (s % PARTS == PARTS - 1 || s + 1 == P::STEPS)
                brick.next();
        }
}

template <class C> DEVICE void expert_q_hopper(const ExpertArgs &a)
{
    const u32 arrived = ManyRing<C>{0, shared_address(shared_memory() + C::BARRIERS_AT)}.end();
    if (threadIdx.x == 0)
        for (int i = 0; i < 8 * C::AHEAD; i++)
            mbarrier_init(arrived + i * 8, 32);
    // a slot is full when the copies of 256 threads and the numbers of 8 warps are there
    many_experts<C, 264, 56, 200>(a, [&](const ManyRing<C> &ring, const ExpertTile *tiles, int units) { many_produce_codes<C>(a, ring, tiles, units); });
}
