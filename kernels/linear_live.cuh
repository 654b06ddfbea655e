// linear_live.cuh - linear layers of 129 to 512 rows on sm_90a whose products are as wide as the step has rows.
//
//   y[m,n] = epilogue(sum_k x[m,k] * w[n,k] + b[n])        epilogue: activation, GLU, residual, RoPE + cache (body/linear.cuh)
//
//   x  [M, K], w [N, K]  16-bit, row-major, given as TMA descriptors; K % 8 == 0
//   b  [N] fp32, r [M, N]
//   y  [M, N]            16-bit             sums in fp32
//
// linear_batch multiplies blocks of 64 rows of x, and one live row of a block costs as much as 64. Here w is the first operand
// of wgmma, 64 rows for each warpgroup (linear_swapped.cuh), and the rows of x are the second: a multiple of 16, up to 256. The
// program has M rows at most; a step with fewer takes products of fewer columns.
//
// A block has WARPGROUPS warpgroups that multiply, one producer warp, and a ring of STAGES slots in shared memory, each
// [w 64 * WARPGROUPS x 64 k | x ROWS x 64 k], of x the live rows, 32 at a time:
//
//   full[slot]   mbarrier: w and x are in the slot                        producer -> warpgroups
//   empty[slot]  mbarrier: all warps of the warpgroups have read it       warpgroups -> producer
//
// More than ROWS live rows are several row tiles of the same height. With SPLIT_K == 1 a block takes tiles first, first + blocks,
// ...: the producer requests the next one while the warpgroups write the last.
//
// SPLIT_K > 1: the blocks of a cluster compute one tile, a slice of K each. They exchange sums through distributed shared memory:
// block r adds the slices in order for the eights of rows r, r + SPLIT_K, ...
//
// Order of summation: 16 k after 16 k, then the slices in order: that of linear_batch, never by the number of rows in a program.
//
// Shared memory: ring | cache places | mbarriers. With SPLIT_K > 1 the ring, free by then, receives the sums.
#pragma once
#include "device/barrier.cuh"
#include "device/cluster.cuh"
#include "device/mbarrier.cuh"
#include "device/pdl.cuh"
#include "device/shared.cuh"
#include "device/tensor.cuh"
#include "device/warp.cuh"
#include "device/wgmma_rows.cuh"
#include "body/linear.cuh"
#include "body/ring.cuh"

template <class C> struct LiveShape {
    static constexpr int PRODUCER = 4 * C::WARPGROUPS, WORKERS = 128 * C::WARPGROUPS; // its warp; threads that multiply
    static constexpr int W = C::TILE_N * 128, BOX = 32;        // bytes of w in a slot; rows of x that are copied at once
    static constexpr int STEPS = ceil_div(C::K, 64);
    static constexpr int ACROSS = ceil_div(C::N, C::TILE_N);   // tiles in a row of tiles
    static constexpr int OWN = ceil_div(C::ROWS / 8, C::SPLIT_K); // eights of rows that a block finishes
    static_assert(C::SPLIT_K <= STEPS, "each slice of K has a step");
    static_assert(C::ROWS % 16 == 0 && C::ROWS >= 128 && C::ROWS <= 256, "columns of a product");
};

template <class C> using LiveRing = Ring<C::STAGES, C::SLOT_BYTES>;

// A tile: `rows` rows from `row` on, columns from `column` on.
struct LiveTile {
    int row, rows, column;
    DEVICE int width() const { return rows <= 64 ? 64 : rows <= 128 ? 128 : ceil_div(rows, 16) * 16; } // columns of its products
    DEVICE int eights() const { return ceil_div(rows, 8); }                                           // of rows
};

// This block's work: steps s0 .. s1 of 64 k of tiles first, first + every, ...
template <class C> struct LiveWork {
    int warp; // from a shuffle, so that the compiler knows it is the same in all lanes: descriptors need uniform registers
    int slice, s0, s1, first, every, live, row_tiles, height, tiles;
    DEVICE LiveWork(const FtxStep *step)
    {
        typedef LiveShape<C> P;
        warp = shuffle(warp_id(), 0);
        slice = C::SPLIT_K > 1 ? cluster_rank() : 0;
        s0 = slice * P::STEPS / C::SPLIT_K;
        s1 = (slice + 1) * P::STEPS / C::SPLIT_K;
        first = blockIdx.x / C::SPLIT_K;
        every = gridDim.x / C::SPLIT_K;
        live = least(live_rows<C::ROWS_S>(step), C::M); // no kernel of a program writes it
        row_tiles = C::M <= C::ROWS ? 1 : ceil_div(live, C::ROWS);
        height = C::M <= C::ROWS ? live : ceil_div(ceil_div(live, most(1, row_tiles)), 16) * 16;
        tiles = live > 0 ? row_tiles * P::ACROSS : 0;
    }
    // Tiles with the same columns follow each other, so that w is read from memory once.
    DEVICE LiveTile tile(int i) const
    {
        const int row = i % row_tiles * height;
        return {row, least(height, live - row), i / row_tiles * C::TILE_N};
    }
    DEVICE int ahead() const { return least(C::STAGES, s1 - s0); } // steps of w that are copied at once
};

// The producer: requests a step of w. A phase of `full` has two arrivals, this one and that of x.
template <class C> DEVICE void live_copy_w(const LinearArgs &a, int column, int s, int slot, const LiveRing<C> &ring)
{
    warp_mbarrier_expect(ring.full(slot), LiveShape<C>::W);
    warp_tensor_copy(ring.data(slot), (const TensorMap *)a.w, column, s * 64, ring.full(slot));
}
// The same for the live rows of x.
template <class C> DEVICE void live_copy_x(const LinearArgs &a, const LiveTile &t, int s, int slot, const LiveRing<C> &ring)
{
    typedef LiveShape<C> P;
    const int boxes = ceil_div(t.width(), P::BOX);
    warp_mbarrier_expect(ring.full(slot), boxes * P::BOX * 128);
#pragma unroll 1
    for (int i = 0; i < boxes; i++)
        warp_tensor_copy(ring.data(slot) + P::W + i * P::BOX * 128, (const TensorMap *)a.x, t.row + i * P::BOX, s * 64, ring.full(slot));
}

// The producer keeps the ring full; the first steps of w are requested already.
template <class C> DEVICE void live_produce(const LinearArgs &a, const LiveWork<C> &work, const LiveRing<C> &ring)
{
    RingSlot<C::STAGES> slot = {0, 1};
    wait_for_previous();
#pragma unroll 1
    for (int i = work.first; i < work.tiles; i += work.every) {
        const LiveTile t = work.tile(i);
#pragma unroll 1
        for (int s = work.s0; s < work.s1; s++) {
            if (i != work.first || s - work.s0 >= work.ahead()) {
                ring.wait_empty(slot);
                live_copy_w<C>(a, t.column, s, slot.at, ring);
            }
            live_copy_x<C>(a, t, s, slot.at, ring);
            slot.next();
        }
    }
}

// d = w * x^T over this block's K, for this warpgroup's 64 columns of y and WIDTH rows.
template <class C, int WIDTH>
DEVICE void live_multiply(float (&d)[C::ROWS / 2], const LiveWork<C> &work, RingSlot<C::STAGES> &slot, const LiveRing<C> &ring)
{
#pragma unroll 1
    for (int s = work.s0; s < work.s1; s++) {
        const u64 w = wgmma_descriptor(ring.data(slot.at), work.warp / 4 * 64, 0);
        const u64 x = wgmma_descriptor(ring.data(slot.at) + LiveShape<C>::W, 0, 0);
        ring.wait_full(slot);
        wgmma_fence();
#pragma unroll
        for (int k = 0; k < 4; k++)
            Wgmma<WIDTH, typename C::T>::add(d, wgmma_descriptor_at(w, 0, k), wgmma_descriptor_at(x, 0, k));
        wgmma_commit();
        wgmma_wait<1>();
        if (s > work.s0 && lane_id() == 0)
            mbarrier_arrive(ring.empty(slot.before()));
        slot.next();
    }
    wgmma_wait<0>();
    if (lane_id() == 0)
        mbarrier_arrive(ring.empty(slot.before()));
}
// The same by the narrowest product that has all `rows`.
template <class C, int WIDTH>
DEVICE void live_multiply_rows(int rows, float (&d)[C::ROWS / 2], const LiveWork<C> &work, RingSlot<C::STAGES> &slot, const LiveRing<C> &ring)
{
    constexpr int NEXT = WIDTH < 128 ? 128 : WIDTH + 16;
    if constexpr (NEXT <= C::ROWS) {
        if (rows > WIDTH) {
            live_multiply_rows<C, NEXT>(rows, d, work, slot, ring);
            return;
        }
    }
    live_multiply<C, WIDTH>(d, work, slot, ring);
}

// Lanes l, l ^ 8, l ^ 16, l ^ 24 have four words each; word i of the one with l / 8 == t and word t of that with l / 8 == i are
// exchanged.
DEVICE void live_transpose(u32 (&v)[4])
{
    const int t = lane_id() >> 3;
    const u32 a = shuffle_xor(t & 1 ? v[0] : v[1], 8), b = shuffle_xor(t & 1 ? v[2] : v[3], 8);
    const u32 q0 = t & 1 ? a : v[0], q1 = t & 1 ? v[1] : a, q2 = t & 1 ? b : v[2], q3 = t & 1 ? v[3] : b;
    const u32 c = shuffle_xor(t & 2 ? q0 : q2, 16), e = shuffle_xor(t & 2 ? q1 : q3, 16);
    v[0] = t & 2 ? c : q0;
    v[1] = t & 2 ? e : q1;
    v[2] = t & 2 ? q2 : c;
    v[3] = t & 2 ? q3 : e;
}

// Where a lane's sums belong. Of each eight of rows i that the block finishes it has sums of columns `column` + g and
// `column` + 8 + g (g: lane / 4) for rows 2t and 2t + 1 (t: lane % 4). Lanes g and g ^ 1 exchange sums: then each has two
// neighbouring columns of one row, `row(i)`. For two eights these are four words, which four lanes exchange: then each has
// 8 columns of one row, in the half `half` of the 16, of eight i + later.
template <class C> struct LiveLane {
    int begin, first, live; // the block's first row; the lane's; where the rows of the tile end
    int pair, half, later, odd;
    DEVICE LiveLane(const LiveWork<C> &work, const LiveTile &t)
    {
        const int g = lane_id() >> 2;
        odd = g & 1;
        begin = t.row + 8 * work.slice;
        first = begin + (lane_id() & 3) * 2 + odd;
        live = t.row + t.rows;
        pair = g & 6;
        half = g >> 1 & 1;
        later = g >> 2;
    }
    DEVICE int row(int i) const { return first + 8 * C::SPLIT_K * i; }
    DEVICE bool has(int i) const { return begin + 8 * C::SPLIT_K * i < live; } // the same in all lanes
};

template <class C> DEVICE AppendRow live_place(const LinearArgs &a, const int *places, int m)
{
    if constexpr (C::APPEND)
        return AppendRow{places[2 * m], places[2 * m + 1] % C::BLOCK, a.table + (i64)places[2 * m + 1] * C::ROT};
    else
        return AppendRow{};
}

// What a lane needs beside its sums for two eights of rows: residuals of 8 columns; cos and sin of its pairs.
template <class C> struct LiveBeside {
    uint4_ r;
    Vec<float, 2> angles[C::APPEND ? 4 : 1];
    DEVICE void read(const LinearArgs &a, const LiveLane<C> &lane, const int *places, int i, int column)
    {
        typedef typename C::T T;
        if constexpr (C::RES) {
            const int m = lane.row(i + lane.later), n = column + lane.half * 8;
            r = m < lane.live && n < C::N ? *(const uint4_ *)((const T *)a.r + (i64)m * C::N + n) : uint4_{0, 0, 0, 0};
        }
        if constexpr (C::APPEND) {
#pragma unroll
            for (int u = 0; u < 4 && C::ROT > 0; u++) {
                const int m = least(lane.row(i + u / 2), lane.live - 1);
                angles[u] = append_angles<C, 1>(live_place<C>(a, places, m), column + u % 2 * 8 + lane.pair);
            }
        }
    }
};

// Writes the sums d[4 * i + 2 * h + e] of this block's eights of rows, columns `column` .. `column` + 16.
template <class C, int AHEAD>
DEVICE void live_write(const LinearArgs &a, const float *d, const LiveLane<C> &lane, LiveBeside<C> (&beside)[AHEAD], const int *places, int column)
{
    typedef typename C::T T;
    typedef LiveShape<C> P;
    LinearBias bias[2] = {};
#pragma unroll
    for (int h = 0; h < 2; h++)
        bias[h] = linear_bias<C>(a, column + h * 8 + lane.pair);
    const auto finish = [&](int i, int h, u32 r, Vec<float, 2> angle) { // two columns of a row; GLU: one, in the low half
        const float s0 = d[i * 4 + h * 2], s1 = d[i * 4 + h * 2 + 1], other = shuffle_xor(lane.odd ? s0 : s1, 4);
        Vec<float, 2> v;
        v[0] = lane.odd ? other : s0;
        v[1] = lane.odd ? s1 : other;
        if constexpr (C::BIAS) {
            v[0] += bias[h].b[0];
            v[1] += bias[h].b[1];
        }
        if constexpr (C::APPEND) {
            if constexpr (C::ROT > 0)
                append_turn<1>(angle, v);
        } else if constexpr (C::GLU) {
            v[0] = activate<C::ACT>(v[0]) * v[1];
            v[1] = 0.0f;
        } else {
            v[0] = activate<C::ACT>(v[0]);
            v[1] = activate<C::ACT>(v[1]);
            if constexpr (C::RES) {
                v[0] += low<T>(r);
                v[1] += high<T>(r);
            }
        }
        return pack2<T>(v[0], v[1]);
    };
#pragma unroll
    for (int i = 0; i < P::OWN; i += 2) {
        if (!lane.has(i))
            break;
        const LiveBeside<C> now = beside[i / 2 % AHEAD];
        if (i + 2 * AHEAD < P::OWN)
            beside[i / 2 % AHEAD].read(a, lane, places, i + 2 * AHEAD, column);
        u32 r[4] = {}, v[4] = {};
        if constexpr (C::RES) {
            r[0] = now.r.x;
            r[1] = now.r.y;
            r[2] = now.r.z;
            r[3] = now.r.w;
            live_transpose(r);
        }
#pragma unroll
        for (int u = 0; u < 4; u++)
            if (i + u / 2 < P::OWN)
                v[u] = finish(i + u / 2, u % 2, r[u], now.angles[C::APPEND ? u : 0]);
        live_transpose(v);
        const int m = lane.row(i + lane.later), n = column + lane.half * 8;
        if (m >= lane.live || n >= C::N || i + lane.later >= P::OWN)
            continue;
        if constexpr (C::GLU)
            *(uint2_ *)((T *)a.y + (i64)m * (C::N / 2) + n / 2) = uint2_{v[0] & 0xffff | v[1] << 16, v[2] & 0xffff | v[3] << 16};
        else if constexpr (C::APPEND)
            *(uint4_ *)(n < C::H * C::E ? (T *)a.y + (i64)m * (C::H * C::E) + n : append_cached<C>(a.k, a.v, live_place<C>(a, places, m), n)) =
                uint4_{v[0], v[1], v[2], v[3]};
        else
            *(uint4_ *)((T *)a.y + (i64)m * C::N + n) = uint4_{v[0], v[1], v[2], v[3]};
    }
}

// SPLIT_K > 1: sends the sums of this block's slice to the blocks that finish those rows. Thread i of a block finishes what
// thread i of all blocks has. Received: sums [other slices][pairs of a thread][threads].
template <class C> DEVICE void live_send_sums(const float (&d)[C::ROWS / 2], int slice, int eights, float *sums, u32 arrived)
{
    typedef LiveShape<C> P;
#pragma unroll
    for (int to = 0; to < C::SPLIT_K; to++) {
        if (to == slice)
            continue;
        float *at = sums + ((slice - (slice > to)) * P::OWN * 2 * P::WORKERS + threadIdx.x) * 2;
        const u32 there = cluster_map(shared_address(at), to), counter = cluster_map(arrived, to);
#pragma unroll
        for (int i = 0; i < P::OWN; i++) {
            const int j = to + C::SPLIT_K * i;
            if (j >= C::ROWS / 8 || j >= eights)
                break;
#pragma unroll
            for (int h = 0; h < 2; h++)
                cluster_send2(there + (i * 2 + h) * P::WORKERS * 8, d[j * 4 + h * 2], d[j * 4 + h * 2 + 1], counter);
        }
    }
}
// The pairs of sums that a block receives from one other.
template <class C> DEVICE int live_pairs(int slice, int eights) { return eights > slice ? ceil_div(eights - slice, C::SPLIT_K) * 2 : 0; }

// v = the sums of this block's eights of rows, slices 0, 1, ... added in order.
template <class C>
DEVICE void live_add_sums(float (&v)[LiveShape<C>::OWN * 4], const float (&d)[C::ROWS / 2], const float *sums, int slice, int eights)
{
    typedef LiveShape<C> P;
#pragma unroll
    for (int own = 0; own < C::SPLIT_K; own++) { // `own` is a constant in each copy of the body, so d stays in registers
        if (own != slice)
            continue;
#pragma unroll
        for (int i = 0; i < P::OWN * 2; i++) {
            const int j = own + C::SPLIT_K * (i / 2), at_d = least(j, C::ROWS / 8 - 1) * 4 + i % 2 * 2;
            const bool some = j < eights;
#pragma unroll
            for (int from = 0; from < C::SPLIT_K; from++) {
                const float *at = sums + (((from - (from > own)) * P::OWN * 2 + i) * P::WORKERS + (int)threadIdx.x) * 2;
                const float v0 = from == own ? d[at_d] : some ? at[0] : 0.0f, v1 = from == own ? d[at_d + 1] : some ? at[1] : 0.0f;
                v[i * 2] = from ? v[i * 2] + v0 : v0;
                v[i * 2 + 1] = from ? v[i * 2 + 1] + v1 : v1;
            }
        }
    }
}

// The warpgroups: multiply tile after tile and write the results.
template <class C> DEVICE void live_work(const LinearArgs &a, const LiveWork<C> &work, char *shared, const LiveRing<C> &ring)
{
    typedef LiveShape<C> P;
    const int *places = (const int *)(shared + C::PLACES_AT);
    RingSlot<C::STAGES> slot = {0, 0};
#pragma unroll 1
    for (int i = work.first; i < work.tiles; i += work.every) {
        const LiveTile t = work.tile(i);
        const int column = t.column + work.warp * 16;
        const LiveLane<C> lane(work, t);
        float d[C::ROWS / 2];
#pragma unroll
        for (int j = 0; j < C::ROWS / 2; j++)
            d[j] = 0.0f;
        live_multiply_rows<C, 64>(t.rows, d, work, slot, ring);
        wait_for_previous();
        if constexpr (C::SPLIT_K == 1) {
            LiveBeside<C> beside[1];
            beside[0].read(a, lane, places, 0, column);
            live_write<C>(a, d, lane, beside, places, column);
        } else {
            constexpr int GROUPS = ceil_div(P::OWN, 2), AHEAD = C::RES ? GROUPS : C::APPEND ? least(4, GROUPS) : 1;
            float v[P::OWN * 4];
            LiveBeside<C> beside[AHEAD];
#pragma unroll
            for (int g = 0; g < AHEAD && !C::APPEND; g++)
                beside[g].read(a, lane, places, 2 * g, column);
            cluster_arrive(); // all blocks have read their rings, which now receive sums
            cluster_wait();
            live_send_sums<C>(d, work.slice, t.eights(), (float *)shared, ring.end());
#pragma unroll
            for (int g = 0; g < AHEAD && C::APPEND; g++) // there are registers for these only now
                beside[g].read(a, lane, places, 2 * g, column);
            mbarrier_wait(ring.end(), 0);
            live_add_sums<C>(v, d, (const float *)shared, work.slice, t.eights());
            live_write<C>(a, v, lane, beside, places, column);
            return;
        }
    }
}

template <class C> DEVICE void linear_live(const LinearArgs &a)
{
    typedef LiveShape<C> P;
    launch_dependents();
    char *shared = shared_memory();
    const LiveWork<C> work(a.step);
    const LiveRing<C> ring = {shared_address(shared), shared_address(shared + C::BARRIERS_AT)};
    const u32 arrived = ring.end(); // counts the sums of the other slices
    if (work.first >= work.tiles) { // the same in all blocks of the cluster
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
        const LiveTile t = work.tile(work.first);
#pragma unroll 1
        for (int i = 0; i < work.ahead(); i++)
            live_copy_w<C>(a, t.column, work.s0 + i, i, ring);
        if (C::SPLIT_K > 1)
            warp_mbarrier_expect(arrived, (C::SPLIT_K - 1) * live_pairs<C>(work.slice, t.eights()) * P::WORKERS * 8);
    }
    if constexpr (C::APPEND)
        if (work.warp < P::PRODUCER)
            for (int m = threadIdx.x; m < work.live; m += P::WORKERS)
                linear_find_place<C>(a, m, (int *)(shared + C::PLACES_AT));
    block_sync();
    if (work.warp < P::PRODUCER) {
        live_work<C>(a, work, shared, ring);
        return;
    }
    live_produce<C>(a, work, ring);
    if (C::SPLIT_K > 1) { // the producer's part in live_work's barrier
        cluster_arrive();
        cluster_wait();
    }
}
