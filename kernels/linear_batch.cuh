// linear_batch.cuh - linear layers of 65 to 512 rows on sm_90a: wide tiles by wgmma and TMA, whose blocks share x.
//
//   y[m,n] = epilogue(sum_k x[m,k] * w[n,k] + b[n])        epilogue: activation, GLU, residual, RoPE + cache (body/linear.cuh)
//
//   x  [M, K], w [N, K]  16-bit, row-major, given as TMA descriptors; K % 8 == 0
//   b  [N] fp32, r [M, N]
//   y  [M, N]            16-bit; logits of a head and their segments (body/segments.cuh): fp32             sums in fp32
//
// What limits it: with few rows reading w, with many the traffic of shared memory. A step of 16 k of a warpgroup reads 64 rows
// of x and TILE_N of w from there, 2 * (64 + TILE_N) * 16 bytes in TILE_N / 2 clocks, and the copies write beside it. So tiles
// are high, 64 rows for each of 2 to 4 warpgroups, and as wide as the registers allow.
//
// A block has WARPGROUPS warpgroups that multiply, one producer warp, and a ring of STAGES slots in shared memory, each
// [x 64 * WARPGROUPS x 64 k | w TILE_N x 64 k].
// GIVE: three idle warps stand beside the producer's, since only a whole warpgroup can give its registers to the others. They
// cost 0.3 to 0.5 us a launch.
//
//   full[slot]   mbarrier: x and w are in the slot                        producer -> warpgroups
//   empty[slot]  mbarrier: all warps of the warpgroups have read it       warpgroups -> producer
//
// Rows come in blocks of 64, the rows of one product. Blocks without a live row are neither copied nor multiplied. More than
// WARPGROUPS are several row tiles. With SPLIT_K == 1 a block takes tiles first, first + blocks, ...: the producer requests the next one
// while the warpgroups write the last.
//
// SPLIT_K > 1: the blocks of a cluster compute one tile, a slice of K each. They exchange sums through distributed shared memory;
// each adds the slices in order for TILE_N / SPLIT_K columns.
//
// Order of summation: 16 k after 16 k, then the slices in order: never by the number of rows in a program.
//
// Shared memory: ring | mbarriers. With SPLIT_K > 1 the ring, free by then, receives the sums.
#pragma once
#include "device/barrier.cuh"
#include "device/cluster.cuh"
#include "device/mbarrier.cuh"
#include "device/pdl.cuh"
#include "device/registers.cuh"
#include "device/shared.cuh"
#include "device/tensor.cuh"
#include "device/warp.cuh"
#include "device/wgmma_wide.cuh"
#include "body/linear.cuh"
#include "body/quad.cuh"
#include "body/ring.cuh"

template <class C> struct BatchShape {
    static constexpr int PRODUCER = 4 * C::WARPGROUPS, WORKERS = 128 * C::WARPGROUPS; // its warp; threads that multiply
    static constexpr int REGISTERS = C::WARPGROUPS == 2 ? 240 : C::WARPGROUPS == 3 ? 160 : 112; // GIVE: of a thread that multiplies
    // Columns of a product. With more than two warpgroups ptxas has no registers for one of 224.
    static constexpr int PRODUCT_N = C::WARPGROUPS > 2 && C::TILE_N == 224 ? 112 : C::TILE_N;
    static constexpr int BLOCK = 64 * 128, X = C::WARPGROUPS * BLOCK; // bytes of a block of rows in a slot, of all
    static constexpr int STEPS = ceil_div(C::K, 64);
    static constexpr int OWN_N = C::TILE_N / C::SPLIT_K;     // columns that this block finishes
    static constexpr int ACROSS = ceil_div(C::N, C::TILE_N); // tiles in a row of tiles
    static constexpr bool ONE_ROW_TILE = C::M <= 64 * C::WARPGROUPS;
    static_assert(OWN_N % 8 == 0, "columns come in eights");
    static_assert(C::SPLIT_K <= STEPS, "each slice of K has a step");
};

template <class C> using BatchRing = Ring<C::STAGES, C::SLOT_BYTES>;

// A tile: `blocks` blocks of rows from `block` on, columns from `column` on.
struct BatchTile {
    int block, blocks, column;
};

// This block's work: steps s0 .. s1 of 64 k of tiles first, first + every, ...
template <class C> struct BatchWork {
    int warp; // from a shuffle, so that the compiler knows it is the same in all lanes: descriptors need uniform registers
    int slice, s0, s1, first, every, turn, live, blocks, row_tiles, tiles;
    DEVICE BatchWork(const FtxStep *step)
    {
        typedef BatchShape<C> P;
        warp = shuffle(warp_id(), 0);
        slice = C::SPLIT_K > 1 ? cluster_rank() : 0;
        s0 = slice * P::STEPS / C::SPLIT_K;
        s1 = (slice + 1) * P::STEPS / C::SPLIT_K;
        first = blockIdx.x / C::SPLIT_K;
        every = gridDim.x / C::SPLIT_K;
        live = least(live_rows<C::ROWS_S>(step), C::M); // no kernel of a program writes it
        blocks = ceil_div(live, 64);
        row_tiles = P::ONE_ROW_TILE ? 1 : ceil_div(blocks, C::WARPGROUPS);
        turn = every % row_tiles == 0;
        tiles = row_tiles * P::ACROSS;
    }
    // Tiles with the same columns follow each other, so that w is read from memory once. Their row tiles may differ by a block
    // of rows: each round of all blocks begins with another, so that no block gets it always.
    DEVICE BatchTile tile(int i) const
    {
        const int row = (i + (turn ? i / every : 0)) % row_tiles, from = row * blocks / row_tiles;
        return {from, (row + 1) * blocks / row_tiles - from, i / row_tiles * C::TILE_N};
    }
    DEVICE int ahead() const { return least(C::STAGES, s1 - s0); } // steps of w that are copied at once
};

// The producer: requests a step of w. A phase of `full` has two arrivals, this one and that of x.
template <class C> DEVICE void batch_copy_w(const LinearArgs &a, int column, int s, int slot, const BatchRing<C> &ring)
{
    warp_mbarrier_expect(ring.full(slot), C::TILE_N * 128);
    warp_tensor_copy(ring.data(slot) + BatchShape<C>::X, (const TensorMap *)a.w, column, s * 64, ring.full(slot));
}
// The same for the live blocks of x.
template <class C> DEVICE void batch_copy_x(const LinearArgs &a, const BatchTile &t, int s, int slot, const BatchRing<C> &ring)
{
    constexpr int BYTES = BatchShape<C>::BLOCK;
    warp_mbarrier_expect(ring.full(slot), t.blocks * BYTES);
#pragma unroll
    for (int i = 0; i < C::WARPGROUPS; i++)
        if (i < t.blocks)
            warp_tensor_copy(ring.data(slot) + i * BYTES, (const TensorMap *)a.x, (t.block + i) * 64, s * 64, ring.full(slot));
}

// The producer keeps the ring full; the first steps of w are requested already.
template <class C> DEVICE void batch_produce(const LinearArgs &a, const BatchWork<C> &work, const BatchRing<C> &ring)
{
    RingSlot<C::STAGES> slot = {0, 1};
    wait_for_previous();
#pragma unroll 1
    for (int i = work.first; i < work.tiles; i += work.every) {
        const BatchTile t = work.tile(i);
#pragma unroll 1
        for (int s = work.s0; s < work.s1; s++) {
            if (i != work.first || s - work.s0 >= work.ahead()) {
                ring.wait_empty(slot);
                batch_copy_w<C>(a, t.column, s, slot.at, ring);
            }
            batch_copy_x<C>(a, t, s, slot.at, ring);
            slot.next();
        }
    }
}

// d = x * w^T of a tile over this block's K, for this warpgroup's block of rows; without LIVE rows the slots are only passed.
template <class C, bool LIVE>
DEVICE void batch_multiply(float (&d)[C::TILE_N / 2], const BatchWork<C> &work, RingSlot<C::STAGES> &slot, const BatchRing<C> &ring)
{
    typedef BatchShape<C> P;
#pragma unroll
    for (int i = 0; i < C::TILE_N / 2; i++)
        d[i] = 0.0f;
#pragma unroll 1
    for (int s = work.s0; s < work.s1; s++) {
        const u64 x = wgmma_descriptor(ring.data(slot.at), work.warp / 4 * 64, 0), w = wgmma_descriptor(ring.data(slot.at) + P::X, 0, 0);
        ring.wait_full(slot);
        if (LIVE) {
            wgmma_fence();
#pragma unroll
            for (int k = 0; k < 4; k++)
#pragma unroll
                for (int n = 0; n < C::TILE_N; n += P::PRODUCT_N)
                    Wgmma<P::PRODUCT_N, typename C::T>::add(d + n / 2, wgmma_descriptor_at(x, 0, k), wgmma_descriptor_at(w, n, k));
            wgmma_commit();
            wgmma_wait<1>();
        } else {
            warp_sync(); // as a product would: the slot is not given back while a lane still waits for it
        }
        if (s > work.s0 && lane_id() == 0)
            mbarrier_arrive(ring.empty(slot.before()));
        slot.next();
    }
    wgmma_wait<0>();
    if (lane_id() == 0)
        mbarrier_arrive(ring.empty(slot.before()));
}

// Where row m goes, looked up before its sums are ready: with append a place in the cache.
template <class C> DEVICE AppendRow batch_place(const LinearArgs &a, int m, int live)
{
    if constexpr (C::APPEND)
        return append_row<C>(a.token[most(0, least(m, live - 1))], a.pages, a.table);
    else
        return AppendRow{};
}

// What a lane needs of row m beside its sums, read before they are there: residuals; cos and sin of the first columns.
template <class C> struct BatchBeside {
    static constexpr int TILES = BatchShape<C>::OWN_N / 8;
    u32 r[C::RES ? TILES : 1];
    Vec<float, 2> angles[C::APPEND ? 4 : 1];
    DEVICE void read(const LinearArgs &a, const AppendRow &row, int m, int live, int n)
    {
        typedef typename C::T T;
        if constexpr (C::RES)
#pragma unroll
            for (int j = 0; j < TILES; j++)
                r[j] = m < live && n + j * 8 < C::N ? *(const u32 *)((const T *)a.r + (i64)m * C::N + n + j * 8 + 2 * (lane_id() & 3)) : 0;
        read_angles(row, n);
    }
    DEVICE void read_angles(const AppendRow &row, int n) // of four times 8 columns
    {
        if constexpr (C::APPEND)
#pragma unroll
            for (int i = 0; i < 4; i++)
                angles[i] = append_angles<C, 1>(row, n + i * 8 + 2 * (lane_id() & 3));
    }
};

// Writes columns n .. n + OWN_N of row m: the lane has sums d[4 * j] and d[4 * j + 1] of columns 8 * j + 2 * (lane % 4) and
// the next. Four lanes exchange results, so that each writes 16 bytes (GLU: 8), for four times 8 columns at a time.
template <class C> DEVICE void batch_write(const LinearArgs &a, const float *d, const AppendRow &row, BatchBeside<C> beside, int m, int live, int n)
{
    typedef typename C::T T;
    typedef BatchShape<C> P;
    constexpr int TILES = P::OWN_N / 8;
    constexpr bool AHEAD = !C::BIAS; // beside biases the angles of the next columns do not fit the registers
    const int t = lane_id() & 3;
    const auto finish = [&](int j) { // the result for this lane's two columns of eight j; GLU: one, in the low half
        const int at = n + j * 8 + 2 * t;
        Vec<float, 2> v;
        v[0] = d[j * 4];
        v[1] = d[j * 4 + 1];
        if constexpr (C::BIAS) {
            const LinearBias b = linear_bias<C>(a, at);
            v[0] += b.b[0];
            v[1] += b.b[1];
        }
        if constexpr (C::APPEND) {
            if constexpr (C::ROT > 0)
                append_turn<1>(beside.angles[j % 4], v);
        } else if constexpr (C::GLU) {
            v[0] = activate<C::ACT>(v[0]) * v[1];
        } else {
            v[0] = activate<C::ACT>(v[0]);
            v[1] = activate<C::ACT>(v[1]);
            if constexpr (C::RES) {
                v[0] += low<T>(beside.r[j]);
                v[1] += high<T>(beside.r[j]);
            }
        }
        return pack2<T>(v[0], v[1]);
    };
    const auto place = [&](int at) { // of column `at` of the product
        if constexpr (C::APPEND)
            return at < C::H * C::E ? (T *)a.y + (i64)m * (C::H * C::E) + at : append_cached<C>(a.k, a.v, row, at);
        else if constexpr (C::GLU)
            return (T *)a.y + (i64)m * (C::N / 2) + at / 2;
        else
            return (T *)a.y + (i64)m * C::N + at;
    };
#pragma unroll
    for (int j = 0; j < TILES; j += 4) {
        u32 v[4] = {};
        if (!AHEAD && j > 0)
            beside.read_angles(row, n + j * 8);
#pragma unroll
        for (int i = 0; i < 4; i++)
            if (j + i < TILES)
                v[i] = finish(j + i);
        if (AHEAD && j + 4 < TILES) // before the stores, which later reads may not pass
            beside.read_angles(row, n + (j + 4) * 8);
        quad_transpose(v); // now of 8 columns: those of eight j + t
        const int at = n + (j + t) * 8;
        if (m >= live || at >= C::N || j + t >= TILES)
            continue;
        if constexpr (C::GLU)
            *(uint2_ *)place(at) = uint2_{v[0] & 0xffff | v[1] << 16, v[2] & 0xffff | v[3] << 16};
        else
            *(uint4_ *)place(at) = uint4_{v[0], v[1], v[2], v[3]};
    }
}

// SPLIT_K > 1: sends the sums of this block's slice to the blocks that finish those columns. Thread i of a block finishes
// what thread i of all blocks has. Received: sums [other slices][pairs of a thread][threads].
template <class C> DEVICE void batch_send_sums(const float (&d)[C::TILE_N / 2], int slice, float *sums, u32 arrived)
{
    typedef BatchShape<C> P;
    constexpr int PAIRS = P::OWN_N / 4;
#pragma unroll
    for (int to = 0; to < C::SPLIT_K; to++) {
        if (to == slice)
            continue;
        float *at = sums + ((slice - (slice > to)) * PAIRS * P::WORKERS + threadIdx.x) * 2;
        const u32 there = cluster_map(shared_address(at), to), counter = cluster_map(arrived, to);
#pragma unroll
        for (int i = 0; i < PAIRS; i++)
            cluster_send2(there + i * P::WORKERS * 8, d[(to * PAIRS + i) * 2], d[(to * PAIRS + i) * 2 + 1], counter);
    }
}

// v = the sums of this block's columns, slices 0, 1, ... added in order.
template <class C>
DEVICE void batch_add_sums(float (&v)[BatchShape<C>::OWN_N / 2], const float (&d)[C::TILE_N / 2], const float *sums, int slice)
{
    typedef BatchShape<C> P;
    constexpr int PAIRS = P::OWN_N / 4;
#pragma unroll
    for (int own = 0; own < C::SPLIT_K; own++) { // `own` is a constant in each copy of the body, so d stays in registers
        if (own != slice)
            continue;
#pragma unroll
        for (int i = 0; i < PAIRS; i++)
#pragma unroll
            for (int from = 0; from < C::SPLIT_K; from++) {
                const float *at = sums + (((from - (from > own)) * PAIRS + i) * P::WORKERS + (int)threadIdx.x) * 2;
                const float v0 = from == own ? d[(own * PAIRS + i) * 2] : at[0], v1 = from == own ? d[(own * PAIRS + i) * 2 + 1] : at[1];
                v[i * 2] = from ? v[i * 2] + v0 : v0;
                v[i * 2 + 1] = from ? v[i * 2 + 1] + v1 : v1;
            }
    }
}

// head: writes a segment of row m of the logits, columns n .. n + TILE_N, and of its logits what `keep` says.
template <class C> DEVICE void batch_segment(const LinearHeadArgs &a, float *d, int m, int live, int keep, int n)
{
    if constexpr (C::BIAS)
#pragma unroll
        for (int j = 0; j < C::TILE_N / 8; j++) {
            const LinearBias b = linear_bias<C>(a, n + j * 8 + 2 * (lane_id() & 3));
            d[j * 4] += b.b[0];
            d[j * 4 + 1] += b.b[1];
        }
    quad_write_segment<C::TILE_N / 8, true>(m < live ? segments_of(a.segments, C::N, m) + n / C::TILE_N : nullptr, (float *)a.y + (i64)m * C::N,
                                            d, n, C::N, keep, m < live ? inv_temperature_of(a, m, keep) : 1.0f);
}

// The warpgroups: multiply tile after tile and write the results.
template <class C, class A> DEVICE void batch_work(const A &a, const BatchWork<C> &work, char *shared, const BatchRing<C> &ring)
{
    typedef BatchShape<C> P;
    RingSlot<C::STAGES> slot = {0, 0};
#pragma unroll 1
    for (int i = work.first; i < work.tiles; i += work.every) {
        const BatchTile t = work.tile(i);
        const bool some = work.warp / 4 < t.blocks;
        const int m = (t.block + work.warp / 4) * 64 + work.warp % 4 * 16 + (lane_id() >> 2); // this lane's rows: m and m + 8
        u32 keeps = 0; // keep of both rows
        if constexpr (C::SEGMENTS)
            keeps = keeps_of<2>(a, m, work.live);
        const AppendRow row[2] = {batch_place<C>(a, m, work.live), batch_place<C>(a, m + 8, work.live)};
        float d[C::TILE_N / 2];
        if (some)
            batch_multiply<C, true>(d, work, slot, ring);
        else
            batch_multiply<C, false>(d, work, slot, ring);
        wait_for_previous();
        if constexpr (C::SPLIT_K == 1) {
#pragma unroll
            for (int h = 0; h < 2 && some; h++) {
                warp_sync(); // one row at a time: what is read for both would not fit the registers
                if constexpr (C::SEGMENTS) {
                    batch_segment<C>(a, d + h * 2, m + h * 8, work.live, keep_at(keeps, h), t.column);
                } else {
                    BatchBeside<C> beside;
                    beside.read(a, row[h], m + h * 8, work.live, t.column);
                    batch_write<C>(a, d + h * 2, row[h], beside, m + h * 8, work.live, t.column);
                }
            }
        } else {
            const int own = t.column + work.slice * P::OWN_N;
            float v[P::OWN_N / 2];
            BatchBeside<C> beside[2];
#pragma unroll
            for (int h = 0; h < 2; h++)
                beside[h].read(a, row[h], m + h * 8, work.live, own);
            cluster_arrive(); // all blocks have read their rings, which now receive sums
            cluster_wait();
            if (!some)
                return;
            batch_send_sums<C>(d, work.slice, (float *)shared, ring.end());
            mbarrier_wait(ring.end(), 0);
            batch_add_sums<C>(v, d, (const float *)shared, work.slice);
#pragma unroll
            for (int h = 0; h < 2; h++)
                batch_write<C>(a, v + h * 2, row[h], beside[h], m + h * 8, work.live, own);
            return;
        }
    }
}

template <class C, class A> DEVICE void linear_batch(const A &a)
{
    typedef BatchShape<C> P;
    launch_dependents();
    char *shared = shared_memory();
    const BatchWork<C> work(a.step);
    const BatchRing<C> ring = {shared_address(shared), shared_address(shared + C::BARRIERS_AT)};
    const u32 arrived = ring.end(); // counts the sums of the other slices
    if (!P::ONE_ROW_TILE && work.first >= work.tiles) { // the same in all blocks of the cluster
        wait_for_previous();
        return;
    }
    if (work.warp == P::PRODUCER) {
        if (lane_id() == 0) {
            ring.init(2, P::PRODUCER);
            mbarrier_init(arrived, 1);
            mbarrier_init_fence();
        }
        warp_sync();
#pragma unroll 1
        for (int i = 0; i < work.ahead(); i++)
            batch_copy_w<C>(a, work.tile(work.first).column, work.s0 + i, i, ring);
        if (C::SPLIT_K > 1)
            warp_mbarrier_expect(arrived, (C::SPLIT_K - 1) * work.tile(work.first).blocks * 64 * P::OWN_N * 4);
    }
    block_sync();
    if (work.warp < P::PRODUCER) {
        if constexpr (C::GIVE)
            registers_take<P::REGISTERS>();
        batch_work<C>(a, work, shared, ring);
        return;
    }
    if constexpr (C::GIVE)
        registers_give<24>();
    if (work.warp == P::PRODUCER)
        batch_produce<C>(a, work, ring);
    if constexpr (C::SEGMENTS)
        if (blockIdx.x == 0 && threadIdx.x == P::WORKERS)
            a.segments->count = P::ACROSS;
    if (C::SPLIT_K > 1) { // this warpgroup's part in batch_work's barrier
        cluster_arrive();
        cluster_wait();
    }
}
