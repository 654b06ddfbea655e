// linear_swapped.cuh - linear layers of 9 to 64 rows on sm_90a: wgmma with its operands swapped.
//
//   y[m,n] = epilogue(sum_k x[m,k] * w[n,k] + b[n])        epilogue: activation, GLU, residual, RoPE + cache (body/linear.cuh)
//
//   x  [M, K], w  [N, K]  16-bit, row-major, given as TMA descriptors; K % 8 == 0
//   b  [N] fp32, r [M, N]
//   y  [M, N]             16-bit or fp32          sums in fp32
//
// wgmma multiplies 64 rows of its first operand by 8 to 256 of its second. Here the first is w, so that its 64 rows are
// always of use; the rows of x are the second: 16, 32 or 64 (BLOCK_M). The sums are those of y transposed.
//
// What limits it: with many rows, the traffic from L2. A block that computes TILE_N columns of y reads TILE_N rows of w,
// but also all of x, BLOCK_M / TILE_N times as many bytes. So the CLUSTER_SIZE blocks of a cluster compute the same TILE_N
// columns, each over its slice of K (split-K):
//
//            K slice 0      K slice 1               sums go through distributed shared memory; block r
//   x  [M]  | block 0 reads | block 1 reads |       adds slices 0, 1, ... in order for columns
//   w [TILE_N]              |               |       r * OWN_N .. (r + 1) * OWN_N of the tile
//
// A block has a ring of STAGES slots in shared memory, each [w TILE_N x 64 k | x BLOCK_M x 64 k], and 5 warps:
//
//   0..3   one warpgroup multiplies, both operands from shared memory; sums [TILE_N, BLOCK_M] in registers
//   4      the producer: TMA copies of w, which start before the previous kernel has ended (pdl.cuh), and of x
//
//   full[slot]   mbarrier: w and x are in the slot       producer -> warpgroup
//   empty[slot]  mbarrier: the 4 warps have read it      warpgroup -> producer
//
// NORM: y = epilogue(layernorm(x) * w^T + b) = epilogue(scale[m] * (x * w'^T) + b'); gain, bias and mean of the norm are folded into w'
// and b' when the model is compiled (weights/pack.c). Four more warps (5..8) add up sum and squares of each row of x from the
// slots, the blocks of a cluster exchange them, and scale[m] = 1 / standard deviation is applied to the finished sums. They
// arrive at `empty`, too.
//
// At the end the ring, free by then, receives the sums, and all warps run the epilogue.
//
// Order of summation: 16 k after 16 k within a slice, then the slices in order. It depends on N and K, never on the
// number of rows, so a row has the same bits in any batch of 9 to 64 rows. It is not the order of linear.cuh (up to 8
// rows): across that border the last bits may differ.
//
// Shared memory: ring | statistics | cache places | mbarriers, as the template's shared lines say.
#pragma once
#include "device/barrier.cuh"
#include "device/cluster.cuh"
#include "device/mbarrier.cuh"
#include "device/pdl.cuh"
#include "device/shared.cuh"
#include "device/tensor.cuh"
#include "device/warp.cuh"
#include "device/wgmma.cuh"
#include "body/linear.cuh"
#include "body/ring.cuh"

template <class C> struct SwappedShape {
    static constexpr int PRODUCER = 4, STATS = 5;                   // their first warps
    static constexpr int STEPS = ceil_div(C::K, 64);
    static constexpr int W = C::TILE_N * 128;                       // bytes of w in a slot
    static constexpr int BLOCKS = ceil_div(C::TILE_N, 64);          // products of 64 columns of y
    static constexpr int OWN_N = C::TILE_N / C::CLUSTER_SIZE;       // columns this block finishes
    static constexpr int SUM = C::BLOCK_M * 8 + 8;                  // floats of 8 columns; 8 more: no bank conflicts
    static constexpr int PAIRS = C::BLOCK_M * (OWN_N / 2), ITEMS = ceil_div(PAIRS, C::THREADS); // outputs
    static constexpr int RECEIVED_BYTES = (C::CLUSTER_SIZE - 1) * C::BLOCK_M * (OWN_N * 4 + (C::NORM ? 8 : 0)); // from the other blocks
    static constexpr int ROW_LANES = 128 / C::BLOCK_M, UNITS = 8 / ROW_LANES; // lanes that share a row of x; 16 bytes of each
    // The first column of product i. Where TILE_N is no multiple of 64, the last product begins within the one before.
    static constexpr DEVICE int product(int i) { return most(0, least(i * 64, C::TILE_N - 64)); }
    static_assert(OWN_N % 8 == 0, "columns come in eights");
    static_assert(C::TILE_N + C::BLOCK_M >= 64, "a product reads 64 rows of the slot");
};

template <class C> using SwappedRing = Ring<C::STAGES, C::SLOT_BYTES>;
template <class C> using SwappedSums = float[SwappedShape<C>::BLOCKS][C::BLOCK_M / 2];

// This block's work: columns from `first` on, steps s0 .. s1 of 64 k. All blocks walk through K in the same order; starting
// each at another k reads x up to 20 % slower.
template <class C> struct SwappedWork {
    int rank, first, s0, s1;
    int warp; // from a shuffle, so that the compiler knows it is the same in all lanes: descriptors need uniform registers
    DEVICE SwappedWork()
    {
        warp = shuffle(warp_id(), 0);
        rank = C::CLUSTER_SIZE > 1 ? cluster_rank() : 0;
        first = blockIdx.x / C::CLUSTER_SIZE * C::TILE_N;
        s0 = rank * SwappedShape<C>::STEPS / C::CLUSTER_SIZE;
        s1 = (rank + 1) * SwappedShape<C>::STEPS / C::CLUSTER_SIZE;
    }
    DEVICE int ahead() const { return least(C::STAGES, s1 - s0); } // steps of w that are copied at once
};

// The producer: requests a step of w.
template <class C> DEVICE void swapped_copy_w(const LinearArgs &a, const SwappedWork<C> &at, int s, int slot, const SwappedRing<C> &ring)
{
    warp_mbarrier_expect(ring.full(slot), C::SLOT_BYTES);
    warp_tensor_copy(ring.data(slot), (const TensorMap *)a.w, at.first, s * 64, ring.full(slot));
}

// The producer keeps the ring full; the first steps of w are requested already.
template <class C> DEVICE void swapped_produce(const LinearArgs &a, const SwappedWork<C> &at, const SwappedRing<C> &ring)
{
    RingSlot<C::STAGES> slot = {0, 1};
    wait_for_previous();
#pragma unroll 1
    for (int s = at.s0; s < at.s1; s++) {
        if (s - at.s0 >= at.ahead()) {
            ring.wait_empty(slot);
            swapped_copy_w<C>(a, at, s, slot.at, ring);
        }
        warp_tensor_copy(ring.data(slot.at) + SwappedShape<C>::W, (const TensorMap *)a.x, 0, s * 64, ring.full(slot.at));
        slot.next();
    }
}

// d = w * x^T over this block's K.
template <class C> DEVICE void swapped_multiply(SwappedSums<C> &d, const SwappedWork<C> &at, const SwappedRing<C> &ring)
{
    typedef SwappedShape<C> P;
    RingSlot<C::STAGES> slot = {0, 0};
#pragma unroll
    for (int i = 0; i < P::BLOCKS * C::BLOCK_M / 2; i++)
        d[i / (C::BLOCK_M / 2)][i % (C::BLOCK_M / 2)] = 0.0f;
#pragma unroll 1
    for (int s = at.s0; s < at.s1; s++) {
        const u64 w = wgmma_descriptor(ring.data(slot.at), 0, 0), x = wgmma_descriptor(ring.data(slot.at) + P::W, 0, 0);
        ring.wait_full(slot);
        wgmma_fence();
#pragma unroll
        for (int k = 0; k < 4; k++)
#pragma unroll
            for (int i = 0; i < P::BLOCKS; i++)
                Wgmma<C::BLOCK_M, typename C::T>::add(d[i], wgmma_descriptor_at(w, P::product(i), k), wgmma_descriptor_at(x, 0, k));
        wgmma_commit();
        wgmma_wait<1>();
        if (s > at.s0 && lane_id() == 0)
            mbarrier_arrive(ring.empty(slot.before()));
        slot.next();
    }
    wgmma_wait<0>();
}

// Sends the sums of this block's K slice to the blocks that finish those columns. Each block receives
// sums [CLUSTER_SIZE][OWN_N / 8][BLOCK_M][8], the slices in the order of the ranks. Lane 4g + t has columns g and g + 8 of
// the warp's 16 of each product, for rows 2t and 2t + 1 of every 8: two lanes exchange values, so that each sends two
// neighbouring columns of a row.
template <class C> DEVICE void swapped_send_sums(const SwappedSums<C> &d, const SwappedWork<C> &at, float *sums, u32 arrived)
{
    typedef SwappedShape<C> P;
    constexpr int TILES = P::OWN_N / 8;
    const int g = lane_id() >> 2, odd = g & 1, row = (lane_id() & 3) * 2 + odd;
#pragma unroll
    for (int i = 0; i < P::BLOCKS * 2; i++) {
        const int b = i / 2, h = i % 2, column = P::product(b) + at.warp * 16 + h * 8, to = column / P::OWN_N;
        if (column < b * 64 || column >= C::TILE_N) // the product before has it; or no column of the tile
            continue;
        float *own = sums + (at.rank * TILES + column / 8 % TILES) * P::SUM + row * 8 + (g & 6);
        const u32 there = cluster_map(shared_address(own), to), count = cluster_map(arrived, to);
#pragma unroll
        for (int j = 0; j < C::BLOCK_M / 8; j++) {
            const float v0 = d[b][j * 4 + h * 2], v1 = d[b][j * 4 + h * 2 + 1], other = shuffle_xor(odd ? v0 : v1, 4);
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

// NORM: sum and sum of squares of each row of x, from the slots. A row's 8 units of 16 bytes are added up one by one, in the
// order of K, and at the end as a tree, so the order does not depend on BLOCK_M.
template <class C> DEVICE Vec<float, 2> swapped_stats(const SwappedWork<C> &at, const SwappedRing<C> &ring, int thread)
{
    typedef SwappedShape<C> P;
    typedef typename C::T T;
    const int row = thread / P::ROW_LANES, first = thread % P::ROW_LANES * P::UNITS;
    float sum[P::UNITS] = {}, squares[P::UNITS] = {};
    RingSlot<C::STAGES> slot = {0, 0};
#pragma unroll 1
    for (int s = at.s0; s < at.s1; s++) {
        ring.wait_full(slot);
#pragma unroll
        for (int i = 0; i < P::UNITS; i++) {
            const uint4_ v = shared_load16(ring.data(slot.at) + P::W + row * 128 + (first + i ^ row & 7) * 16);
            const u32 words[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
            for (int k = 0; k < 4; k++) {
                const float x0 = low<T>(words[k]), x1 = high<T>(words[k]);
                sum[i] += x0 + x1;
                squares[i] = fmaf(x0, x0, fmaf(x1, x1, squares[i]));
            }
        }
        warp_sync();
        if (lane_id() == 0)
            mbarrier_arrive(ring.empty(slot.at));
        slot.next();
    }
#pragma unroll
    for (int n = P::UNITS / 2; n; n /= 2)
#pragma unroll
        for (int i = 0; i < n; i++) {
            sum[i] = sum[2 * i] + sum[2 * i + 1];
            squares[i] = squares[2 * i] + squares[2 * i + 1];
        }
    Vec<float, 2> all;
    all[0] = sum[0];
    all[1] = squares[0];
#pragma unroll
    for (int m = 1; m < P::ROW_LANES; m *= 2) {
        all[0] += shuffle_xor(all[0], m);
        all[1] += shuffle_xor(all[1], m);
    }
    return all;
}

// Sends the statistics of this block's K slice to all blocks of the cluster: stats [CLUSTER_SIZE][BLOCK_M][2].
template <class C>
DEVICE void swapped_send_stats(const Vec<float, 2> &mine, const SwappedWork<C> &at, float *stats, u32 arrived, int thread)
{
    typedef SwappedShape<C> P;
    float *own = stats + (at.rank * C::BLOCK_M + thread / P::ROW_LANES) * 2;
#pragma unroll
    for (int i = 0; i < ceil_div(C::CLUSTER_SIZE, P::ROW_LANES); i++) {
        const int to = thread % P::ROW_LANES + i * P::ROW_LANES;
        if (to == at.rank)
            store(own, mine);
        else if (to < C::CLUSTER_SIZE)
            cluster_send2(cluster_map(shared_address(own), to), mine[0], mine[1], cluster_map(arrived, to));
    }
}

// 1 / standard deviation of row m.
template <class C> DEVICE float swapped_scale(const float *stats, int m)
{
    constexpr float BY = 1.0f / C::K;
    float sum = 0.0f, squares = 0.0f;
#pragma unroll
    for (int r = 0; r < C::CLUSTER_SIZE; r++) {
        const Vec<float, 2> v = load<2>(stats + (r * C::BLOCK_M + m) * 2);
        sum += v[0];
        squares += v[1];
    }
    const float mean = sum * BY;
    return rsqrtf(fmaxf(squares * BY - mean * mean, 0.0f) + C::EPS);
}

// Finishes this block's OWN_N columns of all rows: adds the slices of K in order and runs the epilogue.
template <class C>
DEVICE void swapped_finish(const LinearArgs &a, const SwappedWork<C> &work, const float *sums, const float *stats, const int *places,
                           u32 arrived, int live)
{
    typedef SwappedShape<C> P;
    constexpr int TILES = P::OWN_N / 8, AHEAD = least(P::ITEMS, C::RES ? 4 : 2);
    const int column = work.first + work.rank * P::OWN_N;
    const auto at = [&](int i, int &m, int &n) {
        const int item = threadIdx.x + i * C::THREADS;
        m = item / (P::OWN_N / 2);
        n = column + item % (P::OWN_N / 2) * 2;
        return m < live && n < C::N;
    };
    const auto wait = [&] {
        if (C::CLUSTER_SIZE > 1)
            mbarrier_wait(arrived, 0);
        block_sync();
    };
    const auto sum = [&](int m, int n) {
        const int pair = (n - column) / 2;
        const float *from = sums + (pair >> 2) * P::SUM + m * 8 + (pair & 3) * 2;
        Vec<float, 2> all = load<2>(from);
#pragma unroll
        for (int r = 1; r < C::CLUSTER_SIZE; r++) {
            const Vec<float, 2> v = load<2>(from + r * TILES * P::SUM);
            all[0] += v[0];
            all[1] += v[1];
        }
        if (C::NORM) {
            const float scale = swapped_scale<C>(stats, m);
            all[0] *= scale;
            all[1] *= scale;
        }
        return all;
    };
    linear_finish<C, P::ITEMS, AHEAD>(a, places, at, wait, sum);
}

template <class C> DEVICE void linear_swapped(const LinearArgs &a)
{
    typedef SwappedShape<C> P;
    launch_dependents();
    char *shared = shared_memory();
    const SwappedWork<C> at;
    const SwappedRing<C> ring = {shared_address(shared), shared_address(shared + C::BARRIERS_AT)};
    const u32 arrived = ring.end(); // counts the sums of the other blocks
    int *places = (int *)(shared + C::PLACES_AT);
    float *stats = (float *)(shared + C::STATS_AT);
    const int thread = threadIdx.x - P::STATS * 32; // of the warps of statistics
    if (at.warp == P::PRODUCER) {
        if (lane_id() == 0) {
            ring.init(1, C::NORM ? 8 : 4);
            mbarrier_init(arrived, 1);
            mbarrier_init_fence();
            if (C::CLUSTER_SIZE > 1)
                mbarrier_expect(arrived, P::RECEIVED_BYTES);
        }
        warp_sync();
#pragma unroll 1
        for (int i = 0; i < at.ahead(); i++)
            swapped_copy_w<C>(a, at, at.s0 + i, i, ring);
    }
    block_sync();

    const int live = least(live_rows<C::ROWS_S>(a.step), C::M); // no kernel of a program writes it
    SwappedSums<C> d;
    Vec<float, 2> stat = {};
    if (C::NORM && at.warp >= P::STATS) {
        stat = swapped_stats<C>(at, ring, thread);
        wait_for_previous();
    } else if (at.warp == P::PRODUCER) {
        swapped_produce<C>(a, at, ring);
        if constexpr (C::APPEND)
            for (int m = lane_id(); m < live; m += 32)
                linear_find_place<C>(a, m, places);
    } else {
        swapped_multiply<C>(d, at, ring);
        wait_for_previous();
    }
    block_sync(); // all warps have read the ring, which now receives the sums
    if (C::CLUSTER_SIZE > 1) {
        cluster_arrive();
        cluster_wait();
    }
    if (at.warp < 4)
        swapped_send_sums<C>(d, at, (float *)shared, arrived);
    else if (C::NORM && at.warp >= P::STATS)
        swapped_send_stats<C>(stat, at, stats, arrived, thread);
    swapped_finish<C>(a, at, (const float *)shared, stats, places, arrived, live);
}
