// linear_q_digits.cuh - linear layers of 5 to 64 rows with weights of int4 and int8 on sm_90a: wgmma on integers, rows of x as digits.
//
//   y[m,n] = epilogue(sum_k x[m,k] * w[n,k] + b[n])        epilogue: activation, GLU, residual, RoPE + cache (body/linear.cuh)
//   w[n,k] = scale[n, k / GROUP] * (code[n,k] - zero[n, k / GROUP])
//   x[m,k] = unit[m, k / 128] * (256 * high[m,k] + low[m,k])
//
//   x  [M, K]  digits in the form digit_rows (compiler/ir/forms.def), units [K / 128][ROWS]; K % 128 == 0
//   w  tiles of 16 rows (runtime/base/packed.h) in the form m16k16 (compiler/ir/forms.def), without minima
//   b  [N] fp32, r [M, N];  y [M, N] 16-bit or fp32       sums exact within a group, then in fp32
#pragma once
#include "device/async.cuh"
#include "device/barrier.cuh"
#include "device/bytes.cuh"
#include "device/cluster.cuh"
#include "device/mbarrier.cuh"
#include "device/pdl.cuh"
#include "device/registers.cuh"
#include "device/shared.cuh"
#include "device/tensor.cuh"
#include "device/warp.cuh"
#include "device/wgmma_s8.cuh"
#include "body/codes.cuh"
#include "body/linear.cuh"
#include "body/ring.cuh"

struct RowUnits {
    const float *units; // of the rows of x
};
struct LinearDigitArgs : RowUnits, LinearArgs {};

template <class C> struct DigitShape {
    typedef Codes<C> Q;
    static constexpr int TILES = C::TILE_N / 16, ROWS = ceil_div(TILES, 4), GROUPS = C::SPLIT * ROWS; // warpgroups
    static constexpr int GIVES = C::GIVES;                          // the producer is a warpgroup that gives its registers
    static constexpr int PRODUCER = GROUPS * 4, WORKERS = PRODUCER * 32, THREADS = WORKERS + (GIVES ? 128 : 32);
    static constexpr int STEPS = ceil_div(C::K, C::STEP_K), OWN_STEPS = ceil_div(STEPS, C::CLUSTER_SIZE); // of a slice, at most
    static constexpr int X = C::BLOCK_M * C::STEP_K * 2, CODES = C::STEP_K * 2 * C::BITS;  // bytes in a slot: of x, of a tile
    static constexpr int PANEL = C::BLOCK_M * 2;                    // rows of digits of 128 k
    static constexpr int ONCE = least(C::BLOCK_M, 32), PARTS = C::BLOCK_M / ONCE; // rows of x that are multiplied at once
    static constexpr int LATER = C::LATER;                          // sums are added while the next products run, where there are registers for both
    static constexpr int PART_K = C::STEP_K / C::SPLIT, PART_GROUPS = PART_K / C::GROUP; // of a warpgroup in a step
    static constexpr int WORDS = C::GROUP * C::BITS / 64;           // of a lane's codes of a group
    static constexpr int SLICE_GROUPS = OWN_STEPS * (C::STEP_K / C::GROUP);                // groups of a slice, at most
    static constexpr int SCALES = SLICE_GROUPS * 16 * Q::SCALE, ZEROS = SLICE_GROUPS * 16 * Q::ZERO; // bytes of a tile
    static constexpr int OWN_N = C::TILE_N / C::CLUSTER_SIZE;       // columns this block finishes
    static constexpr int SUM = C::BLOCK_M * 8 + 8;                  // floats of 8 columns; 8 more: no bank conflicts
    static constexpr int SUMS = C::SPLIT * C::CLUSTER_SIZE;         // sums that are added in order
    static constexpr int PAIRS = C::BLOCK_M * (OWN_N / 2), ITEMS = ceil_div(PAIRS, WORKERS); // outputs
    static constexpr int RECEIVED_BYTES = (C::CLUSTER_SIZE - 1) * C::SPLIT * C::BLOCK_M * OWN_N * 4; // from the other blocks
    static_assert(OWN_N % 8 == 0 && PART_K % 128 == 0 && C::K % 128 == 0 && 128 % C::GROUP == 0, "columns come in eights, groups whole");
};

template <class C> using DigitRing = Ring<C::STAGES, C::SLOT_BYTES>;

// This block's work: tiles [tile, tile + tiles), steps s0 .. s1 of STEP_K k.
template <class C> struct DigitWork {
    int warp; // from a shuffle, so that the compiler knows it is the same in all lanes: descriptors need uniform registers
    int rank, tile, tiles, s0, s1;
    DEVICE DigitWork()
    {
        typedef DigitShape<C> P;
        warp = shuffle(warp_id(), 0);
        rank = C::CLUSTER_SIZE > 1 ? cluster_rank() : 0;
        tile = blockIdx.x / C::CLUSTER_SIZE * P::TILES;
        tiles = least(P::TILES, ceil_div(C::N, 16) - tile);
        s0 = rank * P::STEPS / C::CLUSTER_SIZE;
        s1 = (rank + 1) * P::STEPS / C::CLUSTER_SIZE;
    }
    DEVICE int ahead() const { return least(C::STAGES, s1 - s0); } // steps of w that are copied at once
    static DEVICE int length(int s) { return C::K % C::STEP_K ? least(C::STEP_K, C::K - s * C::STEP_K) : C::STEP_K; } // k of a step
    DEVICE int slice() const { return s1 > s0 ? (s1 - s0 - 1) * C::STEP_K + length(s1 - 1) : 0; } // k of the slice
};

// The producer: requests the codes of a step, a tile by each lane.
template <class C> DEVICE void digit_copy_w(const LinearDigitArgs &a, const DigitWork<C> &at, int s, int slot, const DigitRing<C> &ring)
{
    typedef DigitShape<C> P;
    const int bytes = at.length(s) * 2 * C::BITS;
    warp_mbarrier_expect(ring.full(slot), at.length(s) * P::PANEL + bytes * at.tiles);
    warp_sync();
    if (lane_id() < at.tiles)
        bulk_copy(ring.data(slot) + P::X + lane_id() * P::CODES, (const char *)a.w + (i64)(at.tile + lane_id()) * Codes<C>::TILE + s * P::CODES,
                  bytes, ring.full(slot));
}
// The scales and zeros of the slice.
template <class C> DEVICE void digit_copy_scales(const LinearDigitArgs &a, const DigitWork<C> &at, char *shared, u32 scales)
{
    typedef DigitShape<C> P;
    typedef Codes<C> Q;
    const int first = at.s0 * (C::STEP_K / C::GROUP) * 16, rows = at.slice() / C::GROUP * 16;
    const char *tile = (const char *)a.w + (i64)(at.tile + lane_id()) * Q::TILE;
    warp_mbarrier_expect(scales, rows * (Q::SCALE + Q::ZERO) * at.tiles + at.slice() / 128 * C::BLOCK_M * 4);
    warp_sync();
    if (lane_id() >= at.tiles || rows == 0) // a slice may have no step
        return;
    bulk_copy(shared_address(shared + C::SCALES_OF_AT) + lane_id() * P::SCALES, tile + Q::SCALES_AT + first * Q::SCALE, rows * Q::SCALE, scales);
    if (Q::ZERO)
        bulk_copy(shared_address(shared + C::ZEROS_OF_AT) + lane_id() * P::ZEROS, tile + Q::ZEROS_AT + first * Q::ZERO, rows * Q::ZERO, scales);
}

// The producer keeps the ring full; the first steps of w are requested already.
template <class C> DEVICE void digit_produce(const LinearDigitArgs &a, const DigitWork<C> &at, const DigitRing<C> &ring, char *shared, u32 scales)
{
    typedef DigitShape<C> P;
    RingSlot<C::STAGES> slot = {0, 1};
    wait_for_previous();
    if (lane_id() == 0 && at.s1 > at.s0)
        bulk_copy(shared_address(shared + C::UNITS_AT), a.units + (i64)at.s0 * (C::STEP_K / 128) * C::BLOCK_M, at.slice() / 128 * C::BLOCK_M * 4, scales);
#pragma unroll 1
    for (int s = at.s0; s < at.s1; s++) {
        if (s - at.s0 >= at.ahead()) {
            ring.wait_empty(slot);
            digit_copy_w<C>(a, at, s, slot.at, ring);
        }
        if (lane_id() == 0)
            bulk_copy(ring.data(slot.at), (const char *)a.x + (i64)s * P::X, at.length(s) * P::PANEL, ring.full(slot.at));
        slot.next();
    }
}

// The codes of a group as integers with sign, 16 (int8: 1) times as large: the first operands of its products of 32 k.
template <class C> struct DigitCodes {
    typedef DigitShape<C> P;
    static constexpr float UNIT = C::BITS == 4 ? 0.0625f : 1.0f;
    u32 words[P::WORDS];

    DEVICE void load(u32 codes, int k) // k: from the block's first one on
    {
        const u32 from = codes + k / P::Q::BLOCK_K * 512 + (P::WORDS == 2 ? k % P::Q::BLOCK_K / 4 : 0);
        if constexpr (P::WORDS == 2) {
            const Vec<float, 2> v = shared_load8(from);
            words[0] = __float_as_uint(v[0]);
            words[1] = __float_as_uint(v[1]);
        } else {
#pragma unroll
            for (int i = 0; i < P::WORDS / 4; i++) {
                const uint4_ v = shared_load16(from + i * 512);
                words[4 * i] = v.x;
                words[4 * i + 1] = v.y;
                words[4 * i + 2] = v.z;
                words[4 * i + 3] = v.w;
            }
        }
    }
    DEVICE void operand(u32 (&a)[4], int i) const // of products i: 32 k
    {
        if constexpr (C::BITS == 4) {
#pragma unroll
            for (int j = 0; j < 2; j++) {
                const u32 w = words[2 * i + j];
                a[2 * j] = xor_and(w << 4, 0x80808080u, 0xf0f0f0f0u);
                a[2 * j + 1] = xor_and(w, 0x80808080u, 0xf0f0f0f0u);
            }
        } else {
#pragma unroll
            for (int j = 0; j < 2; j++) {
                const u32 v = words[4 * i + 2 * j], w = words[4 * i + 2 * j + 1];
                a[2 * j] = permute(v, w, 0x6240) ^ 0x80808080u;
                a[2 * j + 1] = permute(v, w, 0x7351) ^ 0x80808080u;
            }
        }
    }
};

// total = w * x^T over this warpgroup's part of the block's K.
template <class C> DEVICE void digit_multiply(float (&total)[C::BLOCK_M / 2], const DigitWork<C> &at, const DigitRing<C> &ring, const char *shared, u32 scales)
{
    typedef DigitShape<C> P;
    typedef Codes<C> Q;
    constexpr int SUMS = P::ONCE / 2, STEPS = C::GROUP / 32;
    const int tile = at.warp / 4 % P::ROWS * 4 + at.warp % 4, part = at.warp / 4 / P::ROWS, g = lane_id() >> 2;
    const int own = tile < at.tiles ? tile : 0; // beyond the last tile the sums of another one, which nobody reads
    const char *tile_scales = shared + C::SCALES_OF_AT + own * P::SCALES;
    const float *units = (const float *)(shared + C::UNITS_AT) + (lane_id() & 3) * 2;
    const int last = at.s1 > at.s0 ? most(0, least(P::PART_K, at.length(at.s1 - 1) - part * P::PART_K)) / C::GROUP : 0; // groups of the last step
    const int count = (at.s1 - at.s0 - 1) * P::PART_GROUPS + last;
#pragma unroll
    for (int i = 0; i < C::BLOCK_M / 2; i++)
        total[i] = 0.0f;
    if (count <= 0)
        return;
    RingSlot<C::STAGES> slot = {0, 0};
    DigitCodes<C> codes;
    u32 w[STEPS][4];
    int d[P::ONCE], v[SUMS], in_part = 0, group = part * P::PART_GROUPS, before = group; // group: of the slice
    const auto load = [&] { codes.load(ring.data(slot.at) + P::X + own * P::CODES + part * P::PART_K / Q::BLOCK_K * 512 + lane_id() * 16, in_part * C::GROUP); };
    const auto expand = [&] {
#pragma unroll
        for (int i = 0; i < STEPS; i++)
            codes.operand(w[i], i);
    };
    const auto multiply = [&](int rows) {
        const int k = part * P::PART_K + in_part * C::GROUP;
        const u64 x = wgmma_descriptor(ring.data(slot.at), k / 128 * P::PANEL + rows * P::ONCE * 2, k % 128 / 32);
        wgmma_fence();
        WgmmaS8<P::ONCE * 2>::set(d, w[0], x);
#pragma unroll
        for (int i = 1; i < STEPS; i++)
            WgmmaS8<P::ONCE * 2>::add(d, w[i], wgmma_descriptor_at(x, 0, i));
        wgmma_commit();
    };
    const auto join = [&] {
        wgmma_wait<0>();
#pragma unroll
        for (int i = 0; i < SUMS; i++)
            v[i] = d[i] * 256 + d[SUMS + i];
    };
    const auto add = [&](int rows, int of) {
        const float scale[2] = {Q::scale(tile_scales, of, g), Q::scale(tile_scales, of, g + 8)};
        const float *from = units + of * C::GROUP / 128 * C::BLOCK_M + rows * P::ONCE;
#pragma unroll
        for (int j = 0; j < SUMS / 4; j++) {
            const Vec<float, 2> unit = ::load<2>(from + j * 8);
#pragma unroll
            for (int e = 0; e < 4; e++)
                total[rows * SUMS + j * 4 + e] = fmaf(scale[e / 2] * unit[e % 2], (float)v[j * 4 + e], total[rows * SUMS + j * 4 + e]);
        }
    };
#pragma unroll
    for (int i = 0; i < SUMS; i++)
        v[i] = d[i] = d[SUMS + i] = 0;
    mbarrier_wait(scales, 0);
    ring.wait_full(slot);
    load();
    expand();
    multiply(0);
#pragma unroll 1
    for (int left = count - 1; left > 0; left--) {
        const int next = in_part + 1 < P::PART_GROUPS ? in_part + 1 : 0, now = slot.at;
#pragma unroll
        for (int rows = 0; rows < P::PARTS; rows++) {
            if (P::LATER)
                add(0, before);
            if (rows + 1 == P::PARTS) {
                if (next == 0) {
                    slot.next();
                    ring.wait_full(slot);
                }
                in_part = next;
                load();
            }
            join();
            if (!P::LATER)
                add(rows, group);
            if (rows + 1 == P::PARTS) {
                if (next == 0 && lane_id() == 0)
                    mbarrier_arrive(ring.empty(now));
                expand();
            }
            multiply((rows + 1) % P::PARTS);
        }
        before = group;
        group += next ? 1 : C::STEP_K / C::GROUP - P::PART_GROUPS + 1;
    }
#pragma unroll
    for (int rows = 0; rows < P::PARTS; rows++) {
        if (P::LATER)
            add(0, before);
        join();
        add(rows, group);
        if (rows + 1 < P::PARTS)
            multiply(rows + 1);
    }
#pragma unroll
    for (int i = 0; i < C::BLOCK_M / 2; i++)
        total[i] *= DigitCodes<C>::UNIT;
}
// Sends this block's sums to the blocks that finish those columns. Each block receives sums [CLUSTER_SIZE][SPLIT][OWN_N / 8]
// [BLOCK_M][8]. Lane 4g + t has columns g and g + 8 of its tile, for rows 2t and 2t + 1 of every 8: two lanes exchange values,
// so that each sends two neighbouring columns of a row.
template <class C> DEVICE void digit_send_sums(const float (&total)[C::BLOCK_M / 2], const DigitWork<C> &at, float *sums, u32 arrived)
{
    typedef DigitShape<C> P;
    constexpr int TILES = P::OWN_N / 8;
    const int g = lane_id() >> 2, odd = g & 1, row = (lane_id() & 3) * 2 + odd, part = at.warp / 4 / P::ROWS;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        const int column = at.warp / 4 % P::ROWS * 64 + at.warp % 4 * 16 + h * 8, to = column / P::OWN_N;
        if (column >= C::TILE_N)
            continue;
        float *own = sums + ((at.rank * C::SPLIT + part) * TILES + column / 8 % TILES) * P::SUM + row * 8 + (g & 6);
        const u32 there = cluster_map(shared_address(own), to), count = cluster_map(arrived, to);
#pragma unroll
        for (int j = 0; j < C::BLOCK_M / 8; j++) {
            const float v0 = total[j * 4 + h * 2], v1 = total[j * 4 + h * 2 + 1], other = shuffle_xor(odd ? v0 : v1, 4);
            Vec<float, 2> v;
            v[0] = odd ? other : v0;
            v[1] = odd ? v1 : other;
            if (to == at.rank)
                *(Vec<float, 2> *)(own + j * 64) = v;
            else
                cluster_send2(there + j * 256, v[0], v[1], count);
        }
    }
}

// Finishes this block's OWN_N columns of all rows: adds the sums in order and runs the epilogue.
template <class C>
DEVICE void digit_finish(const LinearDigitArgs &a, const DigitWork<C> &work, const float *sums, const int *places, u32 arrived, int live)
{
    typedef DigitShape<C> P;
    constexpr int TILES = P::OWN_N / 8;
    const int column = work.tile * 16 + work.rank * P::OWN_N;
    const auto at = [&](int i, int &m, int &n) {
        const int item = threadIdx.x + i * P::WORKERS;
        m = item / (P::OWN_N / 2);
        n = column + item % (P::OWN_N / 2) * 2;
        return m < live && n < C::N;
    };
    const auto wait = [&] {
        if (C::CLUSTER_SIZE > 1)
            mbarrier_wait(arrived, 0);
        named_barrier_sync(1, P::WORKERS);
    };
    const auto sum = [&](int m, int n) {
        const int pair = (n - column) / 2;
        const float *from = sums + (pair >> 2) * P::SUM + m * 8 + (pair & 3) * 2;
        Vec<float, 2> all = load<2>(from);
#pragma unroll
        for (int r = 1; r < P::SUMS; r++) {
            const Vec<float, 2> v = load<2>(from + r * TILES * P::SUM);
            all[0] += v[0];
            all[1] += v[1];
        }
        return all;
    };
    linear_finish<C, P::ITEMS, least(P::ITEMS, 2)>(a, places, at, wait, sum);
}

template <class C> DEVICE void linear_q_digits(const LinearDigitArgs &a)
{
    typedef DigitShape<C> P;
    launch_dependents();
    char *shared = shared_memory();
    const DigitWork<C> at;
    const DigitRing<C> ring = {shared_address(shared), shared_address(shared + C::BARRIERS_AT)};
    const u32 arrived = ring.end(), scales = arrived + 8; // counts the sums of the other blocks; those of the slice and x's units
    int *places = (int *)(shared + C::PLACES_AT);
    if (at.warp == P::PRODUCER) {
        if (lane_id() == 0) {
            ring.init(1, P::PRODUCER);
            mbarrier_init(arrived, 1);
            mbarrier_init(scales, 1);
            mbarrier_init_fence();
            if (C::CLUSTER_SIZE > 1)
                mbarrier_expect(arrived, P::RECEIVED_BYTES);
        }
        warp_sync();
        digit_copy_scales<C>(a, at, shared, scales);
#pragma unroll 1
        for (int i = 0; i < at.ahead(); i++)
            digit_copy_w<C>(a, at, at.s0 + i, i, ring);
    }
    block_sync();

    if (at.warp >= P::PRODUCER) {
        if constexpr (P::GIVES)
            registers_give<24>();
        if (at.warp == P::PRODUCER) {
            digit_produce<C>(a, at, ring, shared, scales);
            if constexpr (C::APPEND)
                for (int m = lane_id(); m < least(live_rows<C::ROWS_S>(a.step), C::M); m += 32)
                    linear_find_place<C>(a, m, places);
        }
        block_sync();
        if (C::CLUSTER_SIZE > 1) {
            cluster_arrive();
            cluster_wait();
        }
        return;
    }
    if constexpr (P::GIVES)
        registers_take<C::TAKE>();
    float total[C::BLOCK_M / 2];
    digit_multiply<C>(total, at, ring, shared, scales);
    wait_for_previous();
    block_sync(); // all warps have read the ring, which now receives the sums
    if (C::CLUSTER_SIZE > 1) {
        cluster_arrive();
        cluster_wait();
    }
    digit_send_sums<C>(total, at, (float *)shared, arrived);
    digit_finish<C>(a, at, (const float *)shared, places, arrived, least(live_rows<C::ROWS_S>(a.step), C::M));
}
