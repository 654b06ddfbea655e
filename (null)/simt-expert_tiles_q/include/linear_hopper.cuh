// linear_hopper.cuh - linear layers of 9 to 64 rows on sm_90a: tensor cores by wgmma, clusters that split K.
//
//   y[m,n] = epilogue(sum_k norm(x)[m,k] * w[n,k] + b[n])         epilogue: activation, GLU, residual, RoPE + cache, or
//                                                                 segments of logits (body/linear.cuh)
//   x  [M, K]  16-bit, row-major, K % 8 == 0      g [K] fp32      gains of an RMS norm
//   w  [N, K]  16-bit, row-major                  b [N] fp32, r [M, N]
//   y  [M, N]  16-bit or fp32                     sums in fp32
//
// What limits it: with many rows, the traffic from L2. A block that computes TILE_N columns reads TILE_N rows of w, but
// also all of x, BLOCK_M / TILE_N times as many bytes. So TILE_N is large, and the CLUSTER_SIZE blocks of a cluster
// compute the same TILE_N columns, each over its slice of K (split-K):
//
//            K slice 0      K slice 1               sums go through distributed shared memory; block r
//   x  [M]  | block 0 reads | block 1 reads |       adds slices 0, 1, ... in order for columns
//   w [TILE_N]              |               |       r * OWN_N .. (r + 1) * OWN_N of the tile
//
// A block has 8 warps and a ring of STAGES slots in shared memory, each [w TILE_N x 64 k | x BLOCK_M x 64 k]:
//
//   warps 0..3  one warpgroup multiplies: x from shared memory to registers (ldmatrix), there times the gains,
//               w from shared memory; sums [64, TILE_N] in registers
//   warps 4, 5  copy w by cp.async; they start before the previous kernel has ended (pdl.cuh)
//   warps 6, 7  copy x, after the previous kernel
//
//   full[slot]   mbarrier: all copies into the slot have landed       copiers -> warpgroup
//   empty[slot]  mbarrier: the 4 warps have read the slot             warpgroup -> copiers
//
// The RMS norm needs no pass of its own: x * g is multiplied, the squares of x are summed on the way, and the finished
// sum is multiplied by 1 / rms.
//
// Two ways to the end. CLUSTER_SIZE > 1 or one pass: the ring, free by then, receives the sums, and all 8 warps run the
// epilogue (hopper_finish). DIRECT (N so large that a block computes several tiles of TILE_N, or segments of logits):
// the warpgroup writes from registers, while the next tile of w is being copied.
//
// Order of summation: 16 k after 16 k within a slice, then the slices in order. It depends on N and K, never on the
// number of rows, so a row has the same bits in any batch of 9 to 64 rows. It is not the order of linear.cuh (up to 8
// rows): across that border the last bits may differ.
//
// Shared memory: ring | gains | sums of squares | cache places | mbarriers, as the template's shared lines say.
// CUTLASS calls this producer and consumer warps; CUDA Programming Guide, "Thread Block Clusters".
#pragma once
#include "device/async.cuh"
#include "device/barrier.cuh"
#include "device/cluster.cuh"
#include "device/mbarrier.cuh"
#include "device/mma.cuh"
#include "device/pdl.cuh"
#include "device/shared.cuh"
#include "device/warp.cuh"
#include "device/wgmma.cuh"
#include "body/linear.cuh"
#include "body/ring.cuh"

template <class C> struct HopperShape {
    static constexpr int THREADS = 256, COPIERS = 64;                          // threads that copy w, and as many x
    static constexpr bool DIRECT = C::PASSES > 1 || C::SEGMENTS;               // results are written from registers
    static constexpr int STEPS = ceil_div(C::K, 64);
    static constexpr int OWN_N = C::TILE_N / C::CLUSTER_SIZE;                  // columns this block finishes
    static constexpr int SUM = C::BLOCK_M * 8 + 8; // floats of 8 columns; 8 more: no bank conflicts
    static constexpr int PAIRS = C::BLOCK_M * (OWN_N / 2), ITEMS = ceil_div(PAIRS, THREADS); // outputs
    static constexpr int RECEIVED_BYTES = (C::CLUSTER_SIZE - 1) * C::BLOCK_M * (OWN_N + (C::NORM ? 1 : 0)) * 4; // from the other blocks
    static_assert(!DIRECT || C::CLUSTER_SIZE == 1, "passes and segments need all of K in one block");
    static_assert(!C::SEGMENTS || C::TILE_N <= SEGMENT_COLUMNS, "a segment is at most SEGMENT_COLUMNS wide");
    static_assert(C::NORM < 2, "a layer norm needs the mean before the product");
    static_assert(C::TILE_N % 32 == 0 && OWN_N % 8 == 0, "columns come in tiles");
};

template <class C> using HopperRing = Ring<C::STAGES, C::SLOT_BYTES>;

// This block's work: columns first .. last in passes of TILE_N, steps s0 .. s1 of 64 k. All blocks walk through K in
// the same order; starting each at another k reads x up to 20 % slower.
template <class C> struct HopperWork {
    int rank, first, last, s0, s1;
    int warp; // from a shuffle, so that the compiler knows it is the same in all lanes: descriptors need uniform registers
    DEVICE HopperWork()
    {
        warp = shuffle(warp_id(), 0);
        rank = C::CLUSTER_SIZE > 1 ? cluster_rank() : 0;
        if (C::PASSES > 1) {
            const int tiles = ceil_div(C::N, 8);
            first = (int)((i64)blockIdx.x * tiles / gridDim.x) * 8;
            last = least((int)((i64)(blockIdx.x + 1) * tiles / gridDim.x) * 8, C::N);
        } else {
            first = blockIdx.x / C::CLUSTER_SIZE * C::TILE_N;
            last = least(first + C::TILE_N, C::N);
        }
        s0 = rank * HopperShape<C>::STEPS / C::CLUSTER_SIZE;
        s1 = (rank + 1) * HopperShape<C>::STEPS / C::CLUSTER_SIZE;
    }
};

// Byte offset of unit u (16 bytes) of row r: rows of 64 k with the 128-byte swizzle (wgmma.cuh).
DEVICE int hopper_unit(int r, int u) { return r * 128 + (u ^ (r & 7)) * 16; }

// Warps 4 and 5: tiles of w into the ring. Thread i copies unit i % 8 of rows i / 8, i / 8 + 8, ...
template <class C> DEVICE void hopper_copy_w(const LinearArgs &a, HopperWork<C> at, const HopperRing<C> &ring)
{
    typedef typename C::T T;
    const int i = threadIdx.x - 128, r = i >> 3, u = i & 7;
    RingSlot<C::STAGES> slot = {0, 1};
    for (int row = at.first; row < at.last; row += C::TILE_N) {
        const int rows = at.last - row - r;
        const T *from = (const T *)a.w + (i64)(row + r) * C::K + u * 8;
        for (int s = at.s0; s < at.s1; s++) {
            const bool inside = C::K % 64 == 0 || s * 64 + u * 8 < C::K;
            const u32 to = ring.data(slot.at) + hopper_unit(r, u);
            ring.wait_empty(slot);
#pragma unroll
            for (int m = 0; m < C::TILE_N; m += 8)
                if (m < rows)
                    copy16(to + m * 128, inside ? from + (i64)m * C::K + s * 64 : a.w, inside ? 16 : 0);
            copy_arrive(ring.full(slot.at));
            slot.next();
        }
    }
}

// Warps 6 and 7: tiles of x into the same slots, zeros for rows that are not live.
template <class C> DEVICE void hopper_copy_x(const LinearArgs &a, HopperWork<C> at, int live, const HopperRing<C> &ring)
{
    typedef typename C::T T;
    const int i = threadIdx.x - 192, r = i >> 3, u = i & 7;
    int source[C::BLOCK_M / 8];
#pragma unroll
    for (int m = 0; m < C::BLOCK_M / 8; m++)
        source[m] = C::LAST ? source_row<C::LAST>(a.rows, most(0, least(m * 8 + r, live - 1))) : m * 8 + r;
    RingSlot<C::STAGES> slot = {0, 1};
    for (int row = at.first; row < at.last; row += C::TILE_N)
        for (int s = at.s0; s < at.s1; s++) {
            const bool inside = C::K % 64 == 0 || s * 64 + u * 8 < C::K;
            const u32 to = ring.data(slot.at) + C::TILE_N * 128 + hopper_unit(r, u);
            ring.wait_empty(slot);
#pragma unroll
            for (int m = 0; m < C::BLOCK_M / 8; m++) {
                const bool read = inside && m * 8 + r < live;
                copy16(to + m * 1024, read ? (const T *)a.x + (i64)source[m] * C::K + s * 64 + u * 8 : a.x, read ? 16 : 0);
            }
            copy_arrive(ring.full(slot.at));
            slot.next();
        }
}

// The norm's gains for this block's k, in x's type; zeros beyond K.
template <class C> DEVICE void hopper_gains(const LinearArgs &a, HopperWork<C> at, u32 *gains)
{
    for (int i = threadIdx.x; i < (at.s1 - at.s0) * 32; i += 128) {
        const int k = at.s0 * 64 + 2 * i;
        gains[i] = k < C::K ? pack2<typename C::T>(a.g[k], a.g[k + 1]) : 0;
    }
}

// d += x * w^T for 16 k and TILE_N columns, in products of 64 and 32 columns. x: fragments in registers.
template <class C, int ROW = 0> DEVICE void hopper_multiply(float *d, const u32 (&x)[4], u32 w, int k16)
{
    typedef typename C::T T;
    if constexpr (C::TILE_N - ROW >= 64) {
        Wgmma<64, T>::add(d + ROW / 2, x, wgmma_descriptor(w, ROW, k16));
        hopper_multiply<C, ROW + 64>(d, x, w, k16);
    } else if constexpr (C::TILE_N - ROW >= 32) {
        Wgmma<32, T>::add(d + ROW / 2, x, wgmma_descriptor(w, ROW, k16));
    }
}

// The warp's 16 rows of x from a slot to registers, times the gains. With `first` their squares are summed.
template <class C>
DEVICE void hopper_load_x(u32 (&v)[4][4], float (&squares)[2], bool first, int warp, u32 x, const u32 *gains)
{
    typedef typename C::T T;
    const int lane = lane_id(), m = warp * 16;
    const int r = lane & 15, u = lane >> 4; // row and unit that this lane passes to ldmatrix
    if (C::BLOCK_M < 64 && m >= C::BLOCK_M) {
#pragma unroll
        for (int i = 0; i < 16; i++)
            v[i / 4][i % 4] = 0;
        return;
    }
#pragma unroll
    for (int k = 0; k < 4; k++)
        ldmatrix4(v[k], x + hopper_unit(m + r, 2 * k + u));
    if constexpr (C::NORM == 1) {
        if (first)
#pragma unroll
            for (int k = 0; k < 4; k++)
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    const float lo = low<T>(v[k][i]), hi = high<T>(v[k][i]);
                    squares[i & 1] = fmaf(hi, hi, fmaf(lo, lo, squares[i & 1]));
                }
#pragma unroll
        for (int k = 0; k < 4; k++) {
            const u32 *g = gains + k * 8 + (lane & 3);
            const u32 g0 = g[0], g1 = g[4];
            v[k][0] = mul2<T>(v[k][0], g0);
            v[k][1] = mul2<T>(v[k][1], g0);
            v[k][2] = mul2<T>(v[k][2], g1);
            v[k][3] = mul2<T>(v[k][3], g1);
        }
    }
}

// Multiplies the next COUNT slots; `gains` are those of the first.
template <class C, int COUNT>
DEVICE void hopper_steps(float (&d)[C::TILE_N / 2], float (&squares)[2], bool first, int warp, RingSlot<C::STAGES> &slot,
                         const HopperRing<C> &ring, const u32 *gains)
{
    u32 v[COUNT][4][4], w[COUNT];
    RingSlot<C::STAGES> next = slot;
#pragma unroll
    for (int i = 0; i < COUNT; i++) {
        w[i] = ring.data(next.at);
        ring.wait_full(next);
        hopper_load_x<C>(v[i], squares, first, warp, w[i] + C::TILE_N * 128, gains + i * 32);
        next.next();
    }
    async_proxy_fence();
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < COUNT; i++)
#pragma unroll
        for (int k = 0; k < 4; k++)
            hopper_multiply<C>(d, v[i][k], w[i], k);
    wgmma_commit();
    wgmma_wait<0>();
#pragma unroll
    for (int i = 0; i < COUNT; i++) {
        if (lane_id() == 0)
            mbarrier_arrive(ring.empty(slot.at));
        slot.next();
    }
}

// One pass over this block's K: d = x * w^T, and with `first` the sums of squares of rows g and g + 8. Two slots at a
// time, because waiting and loading x take as long as the products of a narrow tile.
template <class C>
DEVICE void hopper_pass(float (&d)[C::TILE_N / 2], float (&squares)[2], bool first, HopperWork<C> at,
                        RingSlot<C::STAGES> &slot, const HopperRing<C> &ring, const u32 *gains)
{
#pragma unroll
    for (int i = 0; i < C::TILE_N / 2; i++)
        d[i] = 0.0f;
    const int steps = at.s1 - at.s0;
#pragma unroll 1
    for (int s = 0; s + 1 < steps; s += 2)
        hopper_steps<C, 2>(d, squares, first, at.warp, slot, ring, gains + s * 32);
    if (steps % 2)
        hopper_steps<C, 1>(d, squares, first, at.warp, slot, ring, gains + (steps - 1) * 32);
}

// Sends the sums of this block's K slice to the blocks that finish those columns. Each block receives
// sums [CLUSTER_SIZE][OWN_N / 8][BLOCK_M][8], the slices in the order of the ranks.
template <class C> DEVICE void hopper_send_sums(const float (&d)[C::TILE_N / 2], float *sums, u32 arrived, int rank)
{
    typedef HopperShape<C> P;
    constexpr int TILES = P::OWN_N / 8;
    const int m = warp_id() * 16 + (lane_id() >> 2);
    if (warp_id() * 16 >= C::BLOCK_M)
        return;
    float *from = sums + rank * TILES * P::SUM + m * 8 + (lane_id() & 3) * 2;
#pragma unroll
    for (int to = 0; to < C::CLUSTER_SIZE; to++) {
        if (to == rank) {
#pragma unroll
            for (int j = 0; j < TILES; j++)
#pragma unroll
                for (int h = 0; h < 2; h++) {
                    Vec<float, 2> v;
                    v[0] = d[(to * TILES + j) * 4 + h * 2];
                    v[1] = d[(to * TILES + j) * 4 + h * 2 + 1];
                    *(Vec<float, 2> *)(from + j * P::SUM + h * 64) = v;
                }
        } else {
            const u32 there = cluster_map(shared_address(from), to), count = cluster_map(arrived, to);
#pragma unroll
            for (int j = 0; j < TILES; j++)
#pragma unroll
                for (int h = 0; h < 2; h++)
                    cluster_send2(there + (j * P::SUM + h * 64) * 4, d[(to * TILES + j) * 4 + h * 2],
                                  d[(to * TILES + j) * 4 + h * 2 + 1], count);
        }
    }
}

// Completes the sums of squares of the warp's rows over the lanes of a row, and sends them to all blocks of the
// cluster.
template <class C> DEVICE void hopper_squares(float (&squares)[2], float *shared, u32 arrived, int rank)
{
    typedef HopperShape<C> P;
    const int m = warp_id() * 16 + (lane_id() >> 2);
#pragma unroll
    for (int h = 0; h < 2; h++) {
        float v = squares[h];
        v += shuffle_xor(v, 1);
        v += shuffle_xor(v, 2);
        squares[h] = v;
        if (P::DIRECT || warp_id() * 16 >= C::BLOCK_M || (lane_id() & 3))
            continue;
        float *at = shared + rank * C::BLOCK_M + m + 8 * h;
#pragma unroll
        for (int to = 0; to < C::CLUSTER_SIZE; to++)
            if (to == rank)
                *at = v;
            else
                cluster_send(cluster_map(shared_address(at), to), v, cluster_map(arrived, to));
    }
}

// Finishes this block's OWN_N columns of all rows: adds the slices of K in order, multiplies by the norm's 1 / rms,
// runs the epilogue.
template <class C>
DEVICE void hopper_finish(const LinearArgs &a, HopperWork<C> work, const float *sums, float *squares, const int *places, u32 arrived,
                          int live)
{
    typedef HopperShape<C> P;
    constexpr int TILES = P::OWN_N / 8, AHEAD = least(P::ITEMS, C::RES ? 4 : 2);
    const int column = work.first + work.rank * P::OWN_N;
    const auto at = [&](int i, int &m, int &n) {
        const int item = threadIdx.x + i * P::THREADS;
        m = item / (P::OWN_N / 2);
        n = column + item % (P::OWN_N / 2) * 2;
        return m < live && n < work.last;
    };
    const auto wait = [&] {
        if (C::CLUSTER_SIZE > 1)
            mbarrier_wait(arrived, 0);
        block_sync();
        if (C::NORM == 1) {
            if (threadIdx.x < C::BLOCK_M) {
                float v = squares[threadIdx.x];
#pragma unroll
                for (int r = 1; r < C::CLUSTER_SIZE; r++)
                    v += squares[r * C::BLOCK_M + threadIdx.x];
                squares[threadIdx.x] = rms_scale<C::K>(v, C::EPS);
            }
            block_sync();
        }
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
        if (C::NORM == 1) {
            all[0] = __fmul_rn(all[0], squares[m]);
            all[1] = __fmul_rn(all[1], squares[m]);
        }
        return all;
    };
    linear_finish<C, P::ITEMS, AHEAD>(a, places, at, wait, sum);
}

// DIRECT: the epilogue of one pass on the sums in registers, 8 columns at a time.
template <class C> DEVICE void hopper_write(const LinearArgs &a, const float (&d)[C::TILE_N / 2], const float (&squares)[2], int row, int last, int live)
{
    const int g = lane_id() >> 2, t = lane_id() & 3;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        const int m = warp_id() * 16 + h * 8 + g;
        if (m >= live)
            continue;
        const float scale = C::NORM == 1 ? rms_scale<C::K>(squares[h], C::EPS) : 1.0f;
        const FtxToken token = linear_token<C>(a, m);
#pragma unroll
        for (int j = 0; j < C::TILE_N / 8; j++) {
            const int n = row + j * 8 + t * 2;
            if (n < last)
                linear_out<C>(a, linear_bias<C>(a, n), linear_residual<C>(a, m, n), linear_place<C>(a, token, n), m, n,
                              __fmul_rn(d[j * 4 + h * 2], scale), __fmul_rn(d[j * 4 + h * 2 + 1], scale));
        }
    }
}

// DIRECT, logits: writes a segment of each row, and of its logits what `keep` says (body/segments.cuh).
template <class C>
DEVICE void hopper_segments(const LinearHeadArgs &a, HopperWork<C> at, float (&d)[C::TILE_N / 2], const float (&squares)[2], int row, int live,
                         u32 keeps)
{
    const int n = row + (lane_id() & 3) * 2, pass = (row - at.first) / C::TILE_N;
    const int each = C::PASSES == 1 ? 1 : ceil_div(ceil_div(ceil_div(C::N, 8), (int)gridDim.x) * 8, C::TILE_N); // of a block
    if (at.warp * 16 >= live)
        return;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        const int m = at.warp * 16 + h * 8 + (lane_id() >> 2);
        const float scale = C::NORM == 1 ? rms_scale<C::K>(squares[h], C::EPS) : 1.0f;
        float *v = d + h * 2;
#pragma unroll
        for (int j = 0; j < C::TILE_N / 8; j++) {
            const LinearBias bias = linear_bias<C>(a, n + j * 8);
#pragma unroll
            for (int e = 0; e < 2; e++) {
                if (C::NORM == 1)
                    v[j * 4 + e] = __fmul_rn(v[j * 4 + e], scale);
                if (C::BIAS)
                    v[j * 4 + e] += bias.b[e];
            }
        }
        FtxSegment *to = m < live ? segments_of(a.segments, C::N, m) + blockIdx.x * each + pass : nullptr;
        quad_write_segment<C::TILE_N / 8, C::N % 2 == 0>(to, (float *)a.y + (i64)m * C::N, v, row, at.last, keep_at(keeps, h),
                                                  inv_temperature_of(a, m, keep_at(keeps, h)));
        if (to && (lane_id() & 3) == 0 && row + C::TILE_N >= at.last)
            for (int i = pass + 1; i < each; i++)
                segment_store_empty(++to, C::N);
    }
    if (blockIdx.x == 0 && threadIdx.x == 0)
        a.segments->count = gridDim.x * each;
}

template <class C, class A> DEVICE void linear_hopper(const A &a)
{
    typedef HopperShape<C> P;
    launch_dependents();
    char *shared = shared_memory();
    const HopperWork<C> at;
    const HopperRing<C> ring = {shared_address(shared), shared_address(shared + C::BARRIERS_AT)};
    const u32 arrived = ring.end();
    float *sums = (float *)shared, *squares = (float *)(shared + C::SQUARES_AT);
    int *places = (int *)(shared + C::PLACES_AT);
    u32 *gains = (u32 *)(shared + C::GAINS_AT);
    if (threadIdx.x == 128) {
        ring.init(2 * P::COPIERS, 4);
        mbarrier_init(arrived, 1);
        mbarrier_init_fence();
        if (C::CLUSTER_SIZE > 1)
            mbarrier_expect(arrived, P::RECEIVED_BYTES);
    }
    block_sync();

    float d[C::TILE_N / 2], square[2] = {0.0f, 0.0f};
    if (at.warp >= 6) {
        const int live = least(live_rows<C::ROWS_S>(a.step), C::M);  // no kernel of a program writes it
        wait_for_previous();
        hopper_copy_x<C>(a, at, live, ring);
        if (P::DIRECT)
            return;
    } else if (at.warp >= 4) {
        hopper_copy_w<C>(a, at, ring);
        if (P::DIRECT)
            return;
        wait_for_previous();
        if constexpr (C::APPEND)
            if ((int)threadIdx.x - 128 < least(live_rows<C::ROWS_S>(a.step), C::M))
                linear_find_place<C>(a, threadIdx.x - 128, places);
    } else {
        if (C::NORM == 1) {
            hopper_gains<C>(a, at, gains);
            named_barrier_sync(1, 128);
        }
        RingSlot<C::STAGES> slot = {0, 0};
        if constexpr (P::DIRECT) {
            wait_for_previous();
            const int live = least(live_rows<C::ROWS_S>(a.step), C::M);
            u32 keeps = 0;
            if constexpr (C::SEGMENTS)
                keeps = keeps_of<2, true>(a, at.warp * 16 + (lane_id() >> 2), live);
            for (int row = at.first; row < at.last; row += C::TILE_N) {
                hopper_pass<C>(d, square, row == at.first, at, slot, ring, gains);
                if (C::NORM == 1 && row == at.first)
                    hopper_squares<C>(square, squares, arrived, 0);
                if constexpr (C::SEGMENTS)
                    hopper_segments<C>(a, at, d, square, row, live, keeps);
                else
                    hopper_write<C>(a, d, square, row, at.last, live);
            }
            return;
        }
        hopper_pass<C>(d, square, true, at, slot, ring, gains);
        wait_for_previous();
    }
    if constexpr (!P::DIRECT) {
        const int live = least(live_rows<C::ROWS_S>(a.step), C::M);
        block_sync(); // all warps have read the ring, which now receives the sums
        if (C::CLUSTER_SIZE > 1) {
            cluster_arrive();
            cluster_wait();
        }
        if (at.warp < 4) {
            hopper_send_sums<C>(d, sums, arrived, at.rank);
            if (C::NORM == 1)
                hopper_squares<C>(square, squares, arrived, at.rank);
        }
        hopper_finish<C>(a, at, sums, squares, places, arrived, live);
    }
}
