// linear_q_hopper.cuh - linear layers of 9 to 64 rows with quantised weights on sm_90a: wgmma with w in registers.
//
//   y[m,n] = epilogue(sum_k x[m,k] * w[n,k] + b[n])        epilogue: activation, GLU, residual, RoPE + cache (body/linear.cuh)
//   w[n,k] = scale[n, k / GROUP] * (code[n,k] - zero[n, k / GROUP])
//
//   x  [M, K]  16-bit, row-major, given as a TMA descriptor; K % 64 == 0
//   w  tiles of 16 rows (runtime/base/packed.h) in the form m16k16 (compiler/ir/forms.def), without minima
//   b  [N] fp32, r [M, N];  y [M, N] 16-bit or fp32       sums in fp32
//
// What limits it: with few rows reading w, with many the matrix units. wgmma takes 64 rows of w from registers, a tile from
// each of its four warps, in the order in which the tiles lie in memory; rows of x (BLOCK_M) are the other operand.
//
//   - code - zero is exact in 16 bits (body/codes.cuh). Scales multiply the sum of a group in fp32. So w is never rounded.
//   - A block computes TILE_N columns of y. The CLUSTER_SIZE blocks of a cluster compute the same ones, each a slice of K, and
//     exchange sums through distributed shared memory. Within a block SPLIT sets of warpgroups take parts of each step.
//
// A block has a ring of STAGES slots, each with STEP_K k: [x: BLOCK_M rows of 64 k, of the next 64, ... | codes, tile after
// tile]. Its warps:
//
//   0 ..           SPLIT * ROWS warpgroups that multiply; warpgroup i has tiles i % ROWS * 4 .. + 3
//   the last one   the producer: codes and scales by bulk copies, from before the previous kernel has ended, x by TMA
//
//   full[slot]   mbarrier: x and codes are in the slot     producer -> warpgroups
//   empty[slot]  mbarrier: all warps have read it          warpgroups -> producer
//   scales       mbarrier: the scales of the slice of K have landed
//
// At the end the ring, free by then, receives the sums, and all warps run the epilogue.
//
// Order of summation: 16 k after 16 k of a group, groups in order; then the parts of steps, then the slices in order. It
// depends on N and K alone: a row has the same bits for 9 to 64 rows.
#pragma once
#include "device/async.cuh"
#include "device/barrier.cuh"
#include "device/cluster.cuh"
#include "device/mbarrier.cuh"
#include "device/pdl.cuh"
#include "device/shared.cuh"
#include "device/tensor.cuh"
#include "device/warp.cuh"
#include "device/wgmma.cuh"
#include "body/codes.cuh"
#include "body/linear.cuh"
#include "body/ring.cuh"

template <class C> struct CodedShape {
    typedef Codes<C> Q;
    static constexpr int TILES = C::TILE_N / 16, ROWS = ceil_div(TILES, 4), GROUPS = C::SPLIT * ROWS; // warpgroups
    static constexpr int PRODUCER = GROUPS * 4, THREADS = PRODUCER * 32 + 32;
    static constexpr int STEPS = ceil_div(C::K, C::STEP_K), OWN_STEPS = ceil_div(STEPS, C::CLUSTER_SIZE); // of a slice, at most
    static constexpr int X = C::BLOCK_M * C::STEP_K * 2, CODES = C::STEP_K * 2 * C::BITS;  // bytes in a slot: of x, of a tile
    static constexpr int PART_K = C::STEP_K / C::SPLIT, WHOLE = most(C::GROUP, 64); // k of a warpgroup in a step; of whole groups
    static constexpr int ONCE = least(WHOLE / 2, C::BLOCK_M == 64 ? 16 : Q::BLOCK_K); // k that are multiplied at once
    // PAIR: one group's sums are added while the next group's products run, where there are registers for both. UNIT: k of a loop.
    static constexpr int PAIR = C::BITS == 4 && C::BLOCK_M <= 32 && PART_K % (2 * WHOLE) == 0 && C::K % (2 * WHOLE) == 0, UNIT = (1 + PAIR) * WHOLE;
    static constexpr int SLICE_GROUPS = OWN_STEPS * (C::STEP_K / C::GROUP);                // groups of a slice, at most
    static constexpr int SCALES = SLICE_GROUPS * 16 * Q::SCALE, ZEROS = SLICE_GROUPS * 16 * Q::ZERO; // bytes of a tile
    static constexpr int OWN_N = C::TILE_N / C::CLUSTER_SIZE;       // columns this block finishes
    static constexpr int SUM = C::BLOCK_M * 8 + 8;                  // floats of 8 columns; 8 more: no bank conflicts
    static constexpr int SUMS = C::SPLIT * C::CLUSTER_SIZE;         // sums that are added in order
    static constexpr int PAIRS = C::BLOCK_M * (OWN_N / 2), ITEMS = ceil_div(PAIRS, THREADS); // outputs
    static constexpr int RECEIVED_BYTES = (C::CLUSTER_SIZE - 1) * C::SPLIT * C::BLOCK_M * OWN_N * 4; // from the other blocks
    static_assert(OWN_N % 8 == 0 && PART_K % UNIT == 0, "columns come in eights, groups whole");
};

template <class C> using CodedRing = Ring<C::STAGES, C::SLOT_BYTES>;

// This block's work: tiles [tile, tile + tiles), steps s0 .. s1 of STEP_K k.
template <class C> struct CodedWork {
    int warp; // from a shuffle, so that the compiler knows it is the same in all lanes: descriptors need uniform registers
    int rank, tile, tiles, s0, s1;
    DEVICE CodedWork()
    {
        typedef CodedShape<C> P;
        warp = shuffle(warp_id(), 0);
        rank = C::CLUSTER_SIZE > 1 ? cluster_rank() : 0;
        tile = blockIdx.x / C::CLUSTER_SIZE * P::TILES;
        tiles = least(P::TILES, ceil_div(C::N, 16) - tile);
        s0 = rank * P::STEPS / C::CLUSTER_SIZE;
        s1 = (rank + 1) * P::STEPS / C::CLUSTER_SIZE;
    }
    DEVICE int ahead() const { return least(C::STAGES, s1 - s0); } // steps of w that are copied at once
    static DEVICE int length(int s) { return C::K % C::STEP_K ? least(C::STEP_K, C::K - s * C::STEP_K) : C::STEP_K; } // k of a step
};

// The producer: requests the codes of a step, a tile by each lane.
template <class C> DEVICE void coded_copy_w(const LinearArgs &a, const CodedWork<C> &at, int s, int slot, const CodedRing<C> &ring)
{
    typedef CodedShape<C> P;
    const int bytes = at.length(s) * 2 * C::BITS;
    warp_mbarrier_expect(ring.full(slot), P::X + bytes * at.tiles);
    warp_sync();
    if (lane_id() < at.tiles)
        bulk_copy(ring.data(slot) + P::X + lane_id() * P::CODES, (const char *)a.w + (i64)(at.tile + lane_id()) * Codes<C>::TILE + s * P::CODES,
                  bytes, ring.full(slot));
}
// The scales and zeros of the slice.
template <class C> DEVICE void coded_copy_scales(const LinearArgs &a, const CodedWork<C> &at, char *shared, u32 scales)
{
    typedef CodedShape<C> P;
    typedef Codes<C> Q;
    const int first = at.s0 * (C::STEP_K / C::GROUP) * 16, rows = (least(C::K, at.s1 * C::STEP_K) - at.s0 * C::STEP_K) / C::GROUP * 16;
    const char *tile = (const char *)a.w + (i64)(at.tile + lane_id()) * Q::TILE;
    warp_mbarrier_expect(scales, rows * (Q::SCALE + Q::ZERO) * at.tiles);
    warp_sync();
    if (lane_id() >= at.tiles || rows == 0) // a slice may have no step
        return;
    bulk_copy(shared_address(shared + C::SCALES_OF_AT) + lane_id() * P::SCALES, tile + Q::SCALES_AT + first * Q::SCALE, rows * Q::SCALE, scales);
    if (Q::ZERO)
        bulk_copy(shared_address(shared + C::ZEROS_OF_AT) + lane_id() * P::ZEROS, tile + Q::ZEROS_AT + first * Q::ZERO, rows * Q::ZERO, scales);
}

// The producer keeps the ring full; the first steps of w are requested already.
template <class C> DEVICE void coded_produce(const LinearArgs &a, const CodedWork<C> &at, const CodedRing<C> &ring)
{
    RingSlot<C::STAGES> slot = {0, 1};
    wait_for_previous();
#pragma unroll 1
    for (int s = at.s0; s < at.s1; s++) {
        if (s - at.s0 >= at.ahead()) {
            ring.wait_empty(slot);
            coded_copy_w<C>(a, at, s, slot.at, ring);
        }
#pragma unroll 1
        for (int i = 0; i < C::STEP_K / 64; i++)
            warp_tensor_copy(ring.data(slot.at) + i * (C::BLOCK_M * 128), (const TensorMap *)a.x, 0, s * C::STEP_K + i * 64, ring.full(slot.at));
        slot.next();
    }
}

// total = w * x^T over this warpgroup's part of the block's K.
template <class C> DEVICE void coded_multiply(float (&total)[C::BLOCK_M / 2], const CodedWork<C> &at, const CodedRing<C> &ring, char *shared, u32 scales)
{
    typedef CodedShape<C> P;
    typedef Codes<C> Q;
    typedef typename C::T T;
    const int tile = at.warp / 4 % P::ROWS * 4 + at.warp % 4, part = at.warp / 4 / P::ROWS, g = lane_id() >> 2;
    const int own = tile < at.tiles ? tile : 0; // beyond the last tile the sums of another one, which nobody reads
    const char *tile_scales = shared + C::SCALES_OF_AT + own * P::SCALES, *tile_zeros = shared + C::ZEROS_OF_AT + own * P::ZEROS;
    RingSlot<C::STAGES> slot = {0, 0};
#pragma unroll
    for (int i = 0; i < C::BLOCK_M / 2; i++)
        total[i] = 0.0f;
    mbarrier_wait(scales, 0);
#pragma unroll 1
    for (int s = at.s0; s < at.s1; s++) {
        const int end = least(P::PART_K, at.length(s) - part * P::PART_K); // k of this part
        u32 codes = ring.data(slot.at) + P::X + own * P::CODES + part * P::PART_K / Q::BLOCK_K * 512 + lane_id() * 16;
        u64 x = wgmma_descriptor(ring.data(slot.at), part * P::PART_K / 64 * C::BLOCK_M, 0);
        int group = ((s - at.s0) * C::STEP_K + part * P::PART_K) / C::GROUP; // of the slice
        uint4_ v;
        u32 w[2][P::ONCE / 16][4]; // of the products that are under way, and of the next ones
        typename Q::Offset upper, lower;
        const auto expand = [&](int k, u32 from, int of) { // the codes k further on than those at `from`, in group `of`
            if (k % C::GROUP == 0) {
                upper = typename Q::Offset(tile_zeros, of + k / C::GROUP, g);
                lower = typename Q::Offset(tile_zeros, of + k / C::GROUP, g + 8);
            }
            if (k % Q::BLOCK_K == 0)
                v = shared_load16(from + k / Q::BLOCK_K * 512);
#pragma unroll
            for (int j = 0; j < P::ONCE / 16; j++)
                Q::fragment(w[k / P::ONCE % 2][j], v, k % Q::BLOCK_K / 16 + j, upper, lower);
        };
        ring.wait_full(slot);
        if (end > 0)
            expand(0, codes, group);
#pragma unroll 1
        for (int left = end; left > 0; left -= P::UNIT) {
            const bool more = left > P::UNIT; // else the last codes once more, for nothing
            const u32 next_codes = more ? codes + P::UNIT / Q::BLOCK_K * 512 : codes;
            const int next_group = more ? group + P::UNIT / C::GROUP : group;
            float d[1 + P::PAIR][C::BLOCK_M / 2], scale[2];
            const auto add = [&](const float (&sums)[C::BLOCK_M / 2]) {
#pragma unroll
                for (int j = 0; j < C::BLOCK_M / 2; j++)
                    total[j] = fmaf(scale[j / 2 % 2], sums[j], total[j]);
            };
#pragma unroll
            for (int k = 0; k < P::UNIT; k += P::ONCE) {
                const int now = P::PAIR ? k / C::GROUP % 2 : 0;
                if (k % C::GROUP == 0)
#pragma unroll
                    for (int j = 0; j < C::BLOCK_M / 2; j++)
                        d[now][j] = 0.0f;
                wgmma_fence();
#pragma unroll
                for (int j = 0; j < P::ONCE / 16; j++)
                    Wgmma<C::BLOCK_M, T>::add(d[now], w[k / P::ONCE % 2][j], wgmma_descriptor_at(x, k / 64 * C::BLOCK_M, k % 64 / 16 + j));
                wgmma_commit();
                wgmma_wait<1>(); // the products before these have read their codes
                if (k % C::GROUP == 0) {
                    if (P::PAIR && k > 0) {
                        wgmma_complete(d[now ^ P::PAIR]);
                        add(d[now ^ P::PAIR]);
                    }
                    scale[0] = Q::scale(tile_scales, group + k / C::GROUP, g);
                    scale[1] = Q::scale(tile_scales, group + k / C::GROUP, g + 8);
                }
                if (k + P::ONCE < P::UNIT)
                    expand(k + P::ONCE, codes, group);
                else
                    expand(0, next_codes, next_group);
                if ((k + P::ONCE) % (P::PAIR ? P::UNIT : C::GROUP) == 0) {
                    wgmma_wait<0>();
                    add(d[now]);
                }
            }
            codes = next_codes;
            group = next_group;
            x = wgmma_descriptor_at(x, P::UNIT / 64 * C::BLOCK_M, 0);
        }
        warp_sync();
        if (lane_id() == 0)
            mbarrier_arrive(ring.empty(slot.at));
        slot.next();
    }
}

// Sends this block's sums to the blocks that finish those columns. Each block receives sums [CLUSTER_SIZE][SPLIT][OWN_N / 8]
// [BLOCK_M][8]. Lane 4g + t has columns g and g + 8 of its tile, for rows 2t and 2t + 1 of every 8: two lanes exchange values,
// so that each sends two neighbouring columns of a row.
template <class C> DEVICE void coded_send_sums(const float (&total)[C::BLOCK_M / 2], const CodedWork<C> &at, float *sums, u32 arrived)
{
    typedef CodedShape<C> P;
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
DEVICE void coded_finish(const LinearArgs &a, const CodedWork<C> &work, const float *sums, const int *places, u32 arrived, int live)
{
    typedef CodedShape<C> P;
    constexpr int TILES = P::OWN_N / 8;
    const int column = work.tile * 16 + work.rank * P::OWN_N;
    const auto at = [&](int i, int &m, int &n) {
        const int item = threadIdx.x + i * P::THREADS;
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
        for (int r = 1; r < P::SUMS; r++) {
            const Vec<float, 2> v = load<2>(from + r * TILES * P::SUM);
            all[0] += v[0];
            all[1] += v[1];
        }
        return all;
    };
    linear_finish<C, P::ITEMS, least(P::ITEMS, 2)>(a, places, at, wait, sum);
}

template <class C> DEVICE void linear_q_hopper(const LinearArgs &a)
{
    typedef CodedShape<C> P;
    launch_dependents();
    char *shared = shared_memory();
    const CodedWork<C> at;
    const CodedRing<C> ring = {shared_address(shared), shared_address(shared + C::BARRIERS_AT)};
    const u32 arrived = ring.end(), scales = arrived + 8; // counts the sums of the other blocks
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
        coded_copy_scales<C>(a, at, shared, scales);
#pragma unroll 1
        for (int i = 0; i < at.ahead(); i++)
            coded_copy_w<C>(a, at, at.s0 + i, i, ring);
    }
    block_sync();

    float total[C::BLOCK_M / 2];
    if (at.warp == P::PRODUCER) {
        coded_produce<C>(a, at, ring);
        if constexpr (C::APPEND)
            for (int m = lane_id(); m < least(live_rows<C::ROWS_S>(a.step), C::M); m += 32)
                linear_find_place<C>(a, m, places);
    } else {
        coded_multiply<C>(total, at, ring, shared, scales);
        wait_for_previous();
    }
    block_sync(); // all warps have read the ring, which now receives the sums
    if (C::CLUSTER_SIZE > 1) {
        cluster_arrive();
        cluster_wait();
    }
    if (at.warp < P::PRODUCER)
        coded_send_sums<C>(total, at, (float *)shared, arrived);
    coded_finish<C>(a, at, (const float *)shared, places, arrived, least(live_rows<C::ROWS_S>(a.step), C::M));
}
