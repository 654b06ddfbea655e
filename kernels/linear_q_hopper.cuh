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
#include "device/pdl.cuh"
#include "device/wgmma.cuh"
#include "body/coded_tiles.cuh"

template <class C> struct CodedShape : CodedLayer<C> {
    typedef CodedLayer<C> B;
    typedef typename B::Q Q;
    static constexpr int THREADS = B::WORKERS + 32;
    static constexpr int PART_K = B::PART_K, WHOLE = most(C::GROUP, 64); // WHOLE: k of whole groups
    static constexpr int ONCE = least(WHOLE / 2, C::BLOCK_M == 64 ? 16 : Q::BLOCK_K); // k that are multiplied at once
    // PAIR: one group's sums are added while the next group's products run, where there are registers for both. UNIT: k of a loop.
    static constexpr int PAIR = C::BITS == 4 && C::BLOCK_M <= 32 && PART_K % (2 * WHOLE) == 0 && C::K % (2 * WHOLE) == 0, UNIT = (1 + PAIR) * WHOLE;
    static_assert(PART_K % UNIT == 0, "groups are whole");
};

// The producer keeps the ring full; the first steps of w are requested already.
template <class C> DEVICE void coded_produce(const LinearArgs &a, const CodedWork<C> &at, const CodedRing<C> &ring)
{
    typedef CodedShape<C> P;
    RingSlot<C::STAGES> slot = {0, 1};
    wait_for_previous();
#pragma unroll 1
    for (int s = at.s0; s < at.s1; s++) {
        if (s - at.s0 >= at.ahead()) {
            ring.wait_empty(slot);
            coded_copy_w<C>(a, at, s, slot.at, ring, P::X);
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

template <class C> DEVICE void linear_q_hopper(const LinearArgs &a)
{
    typedef CodedShape<C> P;
    launch_dependents();
    char *shared = shared_memory();
    const CodedWork<C> at;
    const CodedRing<C> ring = {shared_address(shared), shared_address(shared + C::BARRIERS_AT)};
    const u32 arrived = ring.end(), scales = arrived + 8;
    int *places = (int *)(shared + C::PLACES_AT);
    if (at.warp == P::PRODUCER)
        coded_begin<C>(a, at, ring, shared, arrived, scales, 0);
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
    coded_finish<C, P::THREADS>(a, at, (const float *)shared, places, arrived, least(live_rows<C::ROWS_S>(a.step), C::M));
}
