// coded_tiles.cuh - what kernels that multiply quantised weights by wgmma have in common: the work of a block, its copies of codes and
// scales, the exchange of sums in a cluster.
//
// A block computes TILE_N columns of y. The CLUSTER_SIZE blocks of a cluster compute the same ones, each a slice of K in steps of
// STEP_K, and exchange sums through distributed shared memory. Within a block SPLIT sets of warpgroups take parts of each step;
// warpgroup i has tiles i % ROWS * 4 .. + 3 of 16 columns. Behind them stands the producer.
//
//   slot          [x | codes, tile after tile]
//   SCALES_OF_AT  scales of the slice, tile after tile; ZEROS_OF_AT: zeros
//
//   C: T, M, N, K, BITS, GROUP, SCALES, TILE_N, BLOCK_M (rows of x), CLUSTER_SIZE, SPLIT, STEP_K, STAGES, SLOT_BYTES
#pragma once
#include "device/async.cuh"
#include "device/barrier.cuh"
#include "device/cluster.cuh"
#include "device/mbarrier.cuh"
#include "device/shared.cuh"
#include "device/tensor.cuh"
#include "device/warp.cuh"
#include "body/codes.cuh"
#include "body/linear.cuh"
#include "body/ring.cuh"

template <class C> struct CodedLayer {
    typedef Codes<C> Q;
    static constexpr int TILES = C::TILE_N / 16, ROWS = ceil_div(TILES, 4), GROUPS = C::SPLIT * ROWS; // warpgroups
    static constexpr int PRODUCER = GROUPS * 4, WORKERS = PRODUCER * 32;                    // a warp; threads that multiply
    static constexpr int STEPS = ceil_div(C::K, C::STEP_K), OWN_STEPS = ceil_div(STEPS, C::CLUSTER_SIZE); // of a slice, at most
    static constexpr int X = C::BLOCK_M * C::STEP_K * 2, CODES = C::STEP_K * 2 * C::BITS;  // bytes in a slot: of x, of a tile
    static constexpr int PART_K = C::STEP_K / C::SPLIT;             // k of a warpgroup in a step
    static constexpr int SLICE_GROUPS = OWN_STEPS * (C::STEP_K / C::GROUP);                // groups of a slice, at most
    static constexpr int SCALES = SLICE_GROUPS * 16 * Q::SCALE, ZEROS = SLICE_GROUPS * 16 * Q::ZERO; // bytes of a tile
    static constexpr int OWN_N = C::TILE_N / C::CLUSTER_SIZE;       // columns this block finishes
    static constexpr int SUM = C::BLOCK_M * 8 + 8;                  // floats of 8 columns; 8 more: no bank conflicts
    static constexpr int SUMS = C::SPLIT * C::CLUSTER_SIZE;         // sums that are added in order
    static constexpr int RECEIVED_BYTES = (C::CLUSTER_SIZE - 1) * C::SPLIT * C::BLOCK_M * OWN_N * 4; // from the other blocks
    static_assert(OWN_N % 8 == 0, "columns come in eights");
};

template <class C> using CodedRing = Ring<C::STAGES, C::SLOT_BYTES>;

// This block's work: tiles [tile, tile + tiles), steps s0 .. s1 of STEP_K k.
template <class C> struct CodedWork {
    int warp; // from a shuffle, so that the compiler knows it is the same in all lanes: descriptors need uniform registers
    int rank, tile, tiles, s0, s1;
    DEVICE CodedWork()
    {
        typedef CodedLayer<C> P;
        warp = shuffle(warp_id(), 0);
        rank = C::CLUSTER_SIZE > 1 ? cluster_rank() : 0;
        tile = blockIdx.x / C::CLUSTER_SIZE * P::TILES;
        tiles = least(P::TILES, ceil_div(C::N, 16) - tile);
        s0 = rank * P::STEPS / C::CLUSTER_SIZE;
        s1 = (rank + 1) * P::STEPS / C::CLUSTER_SIZE;
    }
    DEVICE int ahead() const { return least(C::STAGES, s1 - s0); } // steps of w that are copied at once
    static DEVICE int length(int s) { return C::K % C::STEP_K ? least(C::STEP_K, C::K - s * C::STEP_K) : C::STEP_K; } // k of a step
    DEVICE int slice() const { return s1 > s0 ? (s1 - s0 - 1) * C::STEP_K + length(s1 - 1) : 0; }
};

// The producer: requests the codes of a step, a tile by each lane. The slot gets x_bytes of x, too.
template <class C> DEVICE void coded_copy_w(const LinearArgs &a, const CodedWork<C> &at, int s, int slot, const CodedRing<C> &ring, int x_bytes)
{
    typedef CodedLayer<C> P;
    const int bytes = at.length(s) * 2 * C::BITS;
    warp_mbarrier_expect(ring.full(slot), x_bytes + bytes * at.tiles);
    warp_sync();
    if (lane_id() < at.tiles)
        bulk_copy(ring.data(slot) + P::X + lane_id() * P::CODES, (const char *)a.w + (i64)(at.tile + lane_id()) * Codes<C>::TILE + s * P::CODES,
                  bytes, ring.full(slot));
}
// The scales and zeros of the slice; `scales` gets x_bytes of x, too.
template <class C> DEVICE void coded_copy_scales(const LinearArgs &a, const CodedWork<C> &at, char *shared, u32 scales, int x_bytes)
{
    typedef CodedLayer<C> P;
    typedef Codes<C> Q;
    const int first = at.s0 * (C::STEP_K / C::GROUP) * 16, rows = at.slice() / C::GROUP * 16;
    const char *tile = (const char *)a.w + (i64)(at.tile + lane_id()) * Q::TILE;
    warp_mbarrier_expect(scales, rows * (Q::SCALE + Q::ZERO) * at.tiles + x_bytes);
    warp_sync();
    if (lane_id() >= at.tiles || rows == 0) // a slice may have no step
        return;
    bulk_copy(shared_address(shared + C::SCALES_OF_AT) + lane_id() * P::SCALES, tile + Q::SCALES_AT + first * Q::SCALE, rows * Q::SCALE, scales);
    if (Q::ZERO)
        bulk_copy(shared_address(shared + C::ZEROS_OF_AT) + lane_id() * P::ZEROS, tile + Q::ZEROS_AT + first * Q::ZERO, rows * Q::ZERO, scales);
}

// The producer, before the previous kernel has ended: initialises the barriers and requests the slice's scales and the first steps of w.
// arrived counts the sums of the other blocks; scales waits for the slice's scales and for unit_rows fp32 units of each 128 k of x.
template <class C> DEVICE void coded_begin(const LinearArgs &a, const CodedWork<C> &at, const CodedRing<C> &ring, char *shared, u32 arrived, u32 scales, int unit_rows)
{
    typedef CodedLayer<C> P;
    if (lane_id() == 0) {
        ring.init(1, P::PRODUCER);
        mbarrier_init(arrived, 1);
        mbarrier_init(scales, 1);
        mbarrier_init_fence();
        if (C::CLUSTER_SIZE > 1)
            mbarrier_expect(arrived, P::RECEIVED_BYTES);
    }
    warp_sync();
    coded_copy_scales<C>(a, at, shared, scales, at.slice() / 128 * unit_rows * 4);
#pragma unroll 1
    for (int i = 0; i < at.ahead(); i++)
        coded_copy_w<C>(a, at, at.s0 + i, i, ring, P::X);
}

// Sends this block's sums to the blocks that finish those columns. Each block receives sums [CLUSTER_SIZE][SPLIT][OWN_N / 8]
// [BLOCK_M][8]. Lane 4g + t has columns g and g + 8 of its tile, for rows 2t and 2t + 1 of every 8: two lanes exchange values,
// so that each sends two neighbouring columns of a row.
template <class C> DEVICE void coded_send_sums(const float (&total)[C::BLOCK_M / 2], const CodedWork<C> &at, float *sums, u32 arrived)
{
    typedef CodedLayer<C> P;
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

// Finishes this block's OWN_N columns of all rows, by its first THREADS threads: adds the sums in order and runs the epilogue.
template <class C, int THREADS>
DEVICE void coded_finish(const LinearArgs &a, const CodedWork<C> &work, const float *sums, const int *places, u32 arrived, int live)
{
    typedef CodedLayer<C> P;
    constexpr int TILES = P::OWN_N / 8, ITEMS = ceil_div(C::BLOCK_M * (P::OWN_N / 2), THREADS); // ITEMS: pairs of a thread
    const int column = work.tile * 16 + work.rank * P::OWN_N;
    const auto at = [&](int i, int &m, int &n) {
        const int item = threadIdx.x + i * THREADS;
        m = item / (P::OWN_N / 2);
        n = column + item % (P::OWN_N / 2) * 2;
        return m < live && n < C::N;
    };
    const auto wait = [&] {
        if (C::CLUSTER_SIZE > 1)
            mbarrier_wait(arrived, 0);
        named_barrier_sync(1, THREADS);
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
    linear_finish<C, ITEMS, least(ITEMS, 2)>(a, places, at, wait, sum);
}
