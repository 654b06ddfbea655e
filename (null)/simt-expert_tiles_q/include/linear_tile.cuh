// linear_tile.cuh - linear layers of any number of rows on sm_90a: tiles of TILE_M x TILE_N by wgmma and TMA.
//
//   y[m,n] = act(sum_k x[m,k] * w[n,k] + b[n]) + r[m,n]           or RoPE + cache, or segments of logits
//
//   x  [M, K], w [N, K]  16-bit, row-major, given as TMA descriptors; K % 8 == 0, N % 8 == 0
//   b  [N] fp32          r, y [M, N]                              sums in fp32
//
// A block has one or two warpgroups that multiply and one producer warp, and a ring of STAGES slots in shared memory,
// each [x TILE_M x 64 k | w TILE_N x 64 k]:
//
//   producer (last warp)  one TMA copy of x and one of w a slot, tile after tile; the first of w before the previous
//                         kernel has ended
//   warpgroups            wgmma with both operands in shared memory, sums in registers
//
//   TILE_WARPGROUPS = 1   pingpong: each warpgroup has tiles of its own; one multiplies while the other runs its epilogue
//   TILE_WARPGROUPS = 2   cooperative: each has half of the rows of every tile, which may then be twice as wide. Fewer
//                         bytes for the same products, but nobody multiplies during the epilogue
//
// Blocks of a cluster share reads (CLUSTER_M) or the work on a tile (SPLIT_K):
//
//   CLUSTER_M = 2         | tile (i, j)   | block 0     the tile of w is read once: each block requests half of it and
//                         | tile (i+1, j) | block 1     multicasts it to both. Cluster c takes such groups of tiles
//                                                       c, c + clusters, c + 2 * clusters, ...
//   SPLIT_K = 2, 4        one tile, a slice of K for each block; each finishes TILE_N / SPLIT_K columns with the sums
//                         that the others send
//
// Norms need no launch of their own. The kernel that writes a row also writes row statistics: sum and sum of squares of
// every X_STATS, R_STATS or Y_STATS columns, of the fp32 values. From these:
//
//   X_STATS   y = act(layernorm(x) * w^T + b) = act(scale[m] * (x * w'^T) + b'); gain, bias and mean of the norm are folded
//             into w' and b' when the model is compiled (weights/pack.c)
//   R_STATS   the residual is normed as it is added: two products an element
//   Y_STATS   this kernel writes statistics of y
//
// Order of summation: 16 k after 16 k, then slices of K in order: never by the number of rows.
//
// SMEM_EPILOGUE: 16-bit results go through shared memory, 48 instructions where the way through shuffles takes 274.
// What the epilogue issues slows the other warpgroup's products, which share register ports and power. The residual
// comes by TMA as one more step of the ring for every 128 columns; with SPLIT_K > 1 a thread reads its few values
// itself.
//
// Shared memory: ring | staging of each warp | biases, gains | mbarriers. With SPLIT_K > 1 the ring, free by then,
// receives the sums. Pingpong and cooperative are CUTLASS's names of these schedules. Arguments, shape and epilogue:
// body/tile_output.cuh.
#pragma once
#include "device/barrier.cuh"
#include "device/cluster.cuh"
#include "device/mbarrier.cuh"
#include "device/pdl.cuh"
#include "device/shared.cuh"
#include "device/tensor.cuh"
#include "device/warp.cuh"
#include "device/wgmma.cuh"
#include "body/ring.cuh"
#include "body/tile_output.cuh"

// This block's work: steps s0 .. s1 of 64 k of tiles first, first + every, ... (groups of CLUSTER_M tiles).
template <class C> struct TileWork {
    static constexpr int ACROSS = ceil_div(C::N, C::TILE_N);                 // tiles in a row of tiles
    static constexpr int EACH = TileShape<C>::STEPS + TileShape<C>::R_STEPS; // steps of the ring for a tile
    static constexpr int AHEAD = C::CLUSTER_M == 1; // w is requested at once; with multicast only after a cluster barrier
    int rank, rm, s0, s1, first, every, ahead, groups, steps;
    DEVICE TileWork()
    {
        typedef TileShape<C> P;
        rank = P::CLUSTER_SIZE > 1 ? cluster_rank() : 0;
        rm = C::SPLIT_K > 1 ? 0 : rank;
        const int part = C::SPLIT_K > 1 ? rank : 0;
        s0 = part * P::STEPS / C::SPLIT_K;
        s1 = (part + 1) * P::STEPS / C::SPLIT_K;
        first = blockIdx.x / P::CLUSTER_SIZE;
        every = gridDim.x / P::CLUSTER_SIZE;
        ahead = least(C::STAGES, s1 - s0);
    }
    DEVICE void count(int live)
    {
        groups = ceil_div(live, C::TILE_M * C::CLUSTER_M) * ACROSS;
        steps = C::SPLIT_K > 1 ? own() : TileShape<C>::ONE_TILE ? EACH : ceil_div(groups - first, every) * EACH;
    }
    DEVICE int own() const { return TileShape<C>::STEPS % C::SPLIT_K ? s1 - s0 : TileShape<C>::STEPS / C::SPLIT_K; }
    DEVICE int row(int group) const { return (group / ACROSS * C::CLUSTER_M + rm) * C::TILE_M; }
    DEVICE int column(int group) const { return group % ACROSS * C::TILE_N; }
};

template <class C> using TileRing = Ring<C::STAGES, C::SLOT_BYTES>;

// TMA copies into a slot: a tile of x; this block's slice of the tile of w, to all blocks of the cluster.
template <class C> DEVICE void tile_load_x(const TileArgs &a, int row, int s, u32 slot, u32 full)
{
    warp_tensor_copy(slot, a.x, row, s * 64, full);
}
template <class C>
DEVICE void tile_load_w(const TileArgs &a, const TileWork<C> &t, int column, int s, u32 slot, u32 full)
{
    constexpr int ROWS = C::TILE_N / C::CLUSTER_M;
    const u32 to = slot + TileShape<C>::X + t.rm * ROWS * 128;
    if (C::CLUSTER_M == 1)
        warp_tensor_copy(to, a.w, column, s * 64, full);
    else
        warp_tensor_copy_multicast(to, a.w, column + t.rm * ROWS, s * 64, full, (1 << C::CLUSTER_M) - 1);
}

// Requests the first steps of w, as many as the ring holds, and prefetches the others into L2.
template <class C> DEVICE void tile_load_w_ahead(const TileArgs &a, const TileWork<C> &t, const TileRing<C> &ring)
{
    const int column = t.column(t.first);
#pragma unroll 1
    for (int i = 0; i < t.ahead; i++) {
        warp_mbarrier_expect(ring.full(i), TileShape<C>::X + C::TILE_N * 128);
        tile_load_w<C>(a, t, column, t.s0 + i, ring.data(i), ring.full(i));
    }
#pragma unroll 1
    for (int i = t.ahead; i < t.s1 - t.s0 && t.AHEAD; i++)
        warp_tensor_prefetch(a.w, column, (t.s0 + i) * 64);
}

// This block has no rows. It may not end before the copies it requested have landed.
template <class C> DEVICE void tile_drain(const TileArgs &a, const TileWork<C> &t, const TileRing<C> &ring)
{
#pragma unroll 1
    for (int i = 0; i < t.ahead; i++) {
        tile_load_x<C>(a, t.row(t.first), t.s0 + i, ring.data(i), ring.full(i));
        mbarrier_wait(ring.full(i), 0);
    }
}

// The producer warp keeps the ring full. Its loops are not unrolled: with few rows a block executes its code once, and
// fetching instructions takes time too.
template <class C> DEVICE void tile_produce(const TileArgs &a, const TileWork<C> &t, const TileRing<C> &ring)
{
    typedef TileShape<C> P;
    if (!t.AHEAD)
        tile_load_w_ahead<C>(a, t, ring);
    wait_for_previous();
    RingSlot<C::STAGES> slot = {0, 1};
    for (int group = t.first; group < t.groups; group += t.every) {
        const int row = t.row(group), column = t.column(group);
#pragma unroll 1
        for (int s = t.s0; s < t.s1; s++) {
            const u32 to = ring.data(slot.at), barrier = ring.full(slot.at);
            if (group != t.first || s - t.s0 >= t.ahead) {
                ring.wait_empty(slot);
                warp_mbarrier_expect(barrier, P::X + C::TILE_N * 128);
                tile_load_w<C>(a, t, column, s, to, barrier);
            }
            tile_load_x<C>(a, row, s, to, barrier);
            slot.next();
        }
        for (int i = 0; i < P::R_STEPS; i++) {
            ring.wait_empty(slot);
            warp_mbarrier_expect(ring.full(slot.at), P::R);
            for (int n = 0; n < P::R_COLUMNS; n += 64)
                warp_tensor_copy(ring.data(slot.at) + n * C::TILE_M * 2, (const TensorMap *)a.r, row,
                                 column + i * P::R_COLUMNS + n, ring.full(slot.at));
            slot.next();
        }
    }
}

// This warp has read the slot of a step: arrives at the `empty` mbarrier of every block that writes to it, if one will.
// (An arrival that nobody waits for might reach a block that has ended.)
template <class C> DEVICE void tile_release(const TileWork<C> &t, int step, u32 empty)
{
    const int lane = lane_id();
    if (step + C::STAGES >= t.steps)
        return;
    if (C::CLUSTER_M == 1) {
        if (lane == 0)
            mbarrier_arrive(empty);
    } else if (lane < C::CLUSTER_M) {
        cluster_mbarrier_arrive(cluster_map(empty, lane));
    }
}

// Sets the sums of a tile to its bias, or to 0. bias: at the lane's columns.
template <class C> DEVICE void tile_init_sums(float (&d)[TileShape<C>::M_BLOCKS][C::TILE_N / 2], const float *bias)
{
#pragma unroll
    for (int j = 0; j < C::TILE_N / 8; j++) {
        Vec<float, 2> b = {};
        if (TileShape<C>::BIAS_FIRST && TileShape<C>::BIASED)
            b = *(const Vec<float, 2> *)(bias + j * 8);
#pragma unroll
        for (int i = 0; i < TileShape<C>::M_BLOCKS * 4; i++)
            d[i / 4][j * 4 + i % 4] = b[i % 2];
    }
}

// d += x * w^T of a tile, rows from x0 on, from step `step` of the ring on. The last step's products are not waited
// for: tile_multiply_end does. FLAT: a block has one tile of few steps; all is unrolled with constant addresses, since
// the loop would take longer than its products.
template <class C>
DEVICE void tile_multiply(float (&d)[TileShape<C>::M_BLOCKS][C::TILE_N / 2], const TileWork<C> &t, int x0, int step,
                          RingSlot<C::STAGES> &slot, const TileRing<C> &ring)
{
    typedef TileShape<C> P;
    constexpr int EACH = ceil_div(P::STEPS, C::SPLIT_K);
    // With more steps the compiler does not keep descriptors in uniform registers.
    constexpr bool FLAT = P::ONE_TILE && EACH * P::M_BLOCKS <= 16 && EACH * C::TILE_N <= 1152;
#pragma unroll(FLAT ? EACH : 1)
    for (int s = 0; s < EACH; s++) {
        if (s >= t.own())
            break;
        if (FLAT)
            slot = {s % C::STAGES, s / C::STAGES & 1u};
        const u32 at = ring.data(slot.at);
        const u64 x = wgmma_descriptor(at, x0, 0), w = wgmma_descriptor(at + P::X, 0, 0);
        ring.wait_full(slot);
        wgmma_fence();
#pragma unroll
        for (int k = 0; k < 4; k++)
#pragma unroll
            for (int g = 0; g < P::M_BLOCKS; g++)
                Wgmma<C::TILE_N, typename C::T>::add(d[g], wgmma_descriptor_at(x, g * 64, k), wgmma_descriptor_at(w, 0, k));
        wgmma_commit();
        if (!FLAT || s - 1 + C::STAGES < EACH + P::R_STEPS) // the slot will be filled again
            wgmma_wait<1>();
        if (s > 0)
            tile_release<C>(t, step + s - 1, ring.empty(slot.before()));
        slot.next();
    }
}
template <class C> DEVICE void tile_multiply_end(const TileWork<C> &t, int step, const RingSlot<C::STAGES> &slot, const TileRing<C> &ring)
{
    wgmma_wait<0>();
    tile_release<C>(t, step + t.s1 - t.s0 - 1, ring.empty(slot.before()));
}

// Finishes a tile whose first element is (row, column). Its residual is step `step` of the ring; m (m0) is the first
// row of the warp (of the lane) in the tile.
template <class C, class A>
DEVICE void tile_finish_staged(const A &a, const TileWork<C> &t, const float (&d)[TileShape<C>::M_BLOCKS][C::TILE_N / 2],
                               int step, RingSlot<C::STAGES> &slot, const TileRing<C> &ring, const float *bias,
                               const TileAffine (&norm)[TileShape<C>::M_BLOCKS * 2], int m, int row, int column, int live)
{
    typedef TileShape<C> P;
    constexpr int PIECES = most(P::R_STEPS, 1), COLUMNS = C::TILE_N / PIECES;
    const u32 stage = ring.slots + C::STAGING_AT + warp_id() * 2048;
#pragma unroll
    for (int i = 0; i < PIECES; i++) {
        if (P::R_STEPS)
            ring.wait_full(slot);
#pragma unroll
        for (int g = 0; g < P::M_BLOCKS; g++)
            tile_store_staged<C, COLUMNS>(a, d[g] + i * COLUMNS / 2, bias + i * COLUMNS, norm + 2 * g,
                                   ring.data(slot.at) + (m + g * 64) * 128, stage, row + m + g * 64, live,
                                   column + i * COLUMNS);
        if (P::R_STEPS) {
            tile_release<C>(t, step + i, ring.empty(slot.at));
            slot.next();
        }
    }
}
template <class C, class A, class To>
DEVICE void tile_finish(const A &a, const TileWork<C> &t, float (&d)[TileShape<C>::M_BLOCKS][C::TILE_N / 2], int step,
                        RingSlot<C::STAGES> &slot, const TileRing<C> &ring, const char *shared, const float *bias,
                        const TileAffine (&norm)[TileShape<C>::M_BLOCKS * 2], u32 keeps,
                        const To (&to)[TileShape<C>::M_BLOCKS * 2], int m0, int row, int column, int live)
{
    typedef TileShape<C> P;
    TileStats<C> sums[P::M_BLOCKS];
    if (P::R_STEPS)
        ring.wait_full(slot);
#pragma unroll
    for (int i = 0; i < P::M_BLOCKS * 2; i++) {
        const int m = m0 + i * 8 + i / 2 * 48;
        u32 r[C::TILE_N / 8] = {};
        if constexpr (P::R_STEPS > 0) {
            warp_sync(); // one row at a time: the residual of all rows would not fit the registers
            tile_residual<C>(r, shared + slot.at * C::SLOT_BYTES, m);
        }
        if constexpr (C::SEGMENTS) {
            warp_sync(); // here too
            tile_segment<C>(a, d[i / 2] + 2 * (i % 2), bias, row + m, row + m < live, keep_at(keeps, i), column);
        } else
            tile_write<C, C::TILE_N / 8>(a, d[i / 2] + 2 * (i % 2), r, bias, norm[i], sums[i / 2], i % 2, row + m,
                                     row + m < live, column, to[i]);
    }
#pragma unroll
    for (int g = 0; g < P::M_BLOCKS; g++)
        sums[g].write(a, row + m0 + g * 64, live, column);
    if (P::R_STEPS) {
        warp_sync();
        tile_release<C>(t, step, ring.empty(slot.at));
        slot.next();
    }
}

// Loads the vectors beside a tile into shared memory: biases of its columns, gains of the residual's norm.
template <class C, class A> DEVICE void tile_load_vectors(const A &a, float *bias, int column, int first, int threads)
{
    for (int i = first; i < C::TILE_N && TileShape<C>::BIASED; i += threads) {
        const bool is = column + i < C::N;
        bias[i] = C::BIAS && is ? a.b[column + i] : 0.0f;
        if constexpr (C::R_STATS > 0) {
            bias[i] += is ? a.rc[column + i] : 0.0f;
            bias[C::TILE_N + i] = is ? a.rg[column + i] : 0.0f;
        }
    }
}

// SPLIT_K == 1: a warpgroup's tiles, one after another. Pingpong warpgroups multiply in turn, by two named barriers, so
// that neither waits for a slot two phases behind, where an mbarrier's parity would be ambiguous.
template <class C, class A>
DEVICE void tile_consume(const A &a, const TileWork<C> &t, const TileRing<C> &ring, char *shared, int live)
{
    typedef TileShape<C> P;
    const int own = C::WARPGROUPS > 1 ? shuffle(warp_id(), 0) / 4 : 0, lane = threadIdx.x % (128 * C::TILE_WARPGROUPS);
    const int turn = P::TILES_AT_ONCE > 1 ? own : 0, place = C::TILE_WARPGROUPS > 1 ? 0 : own;
    const int x0 = C::TILE_WARPGROUPS > 1 ? own * P::M_BLOCKS * 64 : 0, mw = x0 + shuffle(warp_id(), 0) % 4 * 16,
              m0 = mw + (lane_id() >> 2);
    float *lines = (float *)(shared + C::VECTORS_AT) + place * P::VECTORS * C::TILE_N;
    const float *bias = lines + (lane_id() & 3) * 2;
    float d[P::M_BLOCKS][C::TILE_N / 2];
    RingSlot<C::STAGES> slot = {0, 0};
    int step = turn * t.EACH;
    slot.skip(step);
    for (int group = t.first + turn * t.every; group < t.groups; group += P::TILES_AT_ONCE * t.every) {
        const int row = t.row(group), column = t.column(group);
        TileAffineRows<C> rows;
        TileAffine norm[P::M_BLOCKS * 2];
        u32 keeps = 0; // keep of the lane's rows, 4 bits each
        if constexpr (C::SEGMENTS)
#pragma unroll
            for (int i = 0; i < P::M_BLOCKS; i++)
                keeps |= keeps_of<2>(a, row + m0 + i * 64, live) << 8 * i;
        tile_load_vectors<C>(a, lines, column, lane, 128 * C::TILE_WARPGROUPS);
        named_barrier_sync(3 + place, 128 * C::TILE_WARPGROUPS);
        tile_init_sums<C>(d, bias);
        decltype(tile_row<C>(a, 0, 0)) to[P::M_BLOCKS * 2];
#pragma unroll
        for (int i = 0; i < P::M_BLOCKS * 2; i++)
            to[i] = tile_row<C>(a, row + m0 + i * 8 + i / 2 * 48, live);
        rows.load(a, row + m0, live);
        if (rows.EARLY)
            rows.finish(norm);
        if (P::TILES_AT_ONCE > 1 && group != t.first)
            named_barrier_sync(1 + own, 256); // the other warpgroup has issued its products
        tile_multiply<C>(d, t, x0, step, slot, ring);
        wait_for_previous();
        if (P::TILES_AT_ONCE > 1) {
            if (P::R_STEPS)
                ring.wait_full(slot);
            if (group + t.every < t.groups)
                named_barrier_arrive(2 - own, 256);
        }
        if (!rows.EARLY)
            rows.finish(norm);
        tile_multiply_end<C>(t, step, slot, ring);
        if constexpr (C::SMEM_EPILOGUE)
            tile_finish_staged<C>(a, t, d, step + P::STEPS, slot, ring, bias, norm, mw, row, column, live);
        else
            tile_finish<C>(a, t, d, step + P::STEPS, slot, ring, shared, bias, norm, keeps, to, m0, row, column, live);
        step += P::TILES_AT_ONCE * t.EACH;
        slot.skip((P::TILES_AT_ONCE - 1) * t.EACH);
        named_barrier_sync(3 + place, 128 * C::TILE_WARPGROUPS); // the vectors have been read
    }
}

// SPLIT_K > 1: sends the sums of this block's slice of K to the blocks that finish those columns. Thread i of a block
// finishes what thread i of all blocks has. Received: sums [other slices][pairs of a thread][threads].
template <class C>
DEVICE void tile_send_sums(const float (&d)[TileShape<C>::M_BLOCKS][C::TILE_N / 2], float *sums, u32 arrived, int rank)
{
    typedef TileShape<C> P;
    constexpr int EACH = P::OWN_N / 4; // pairs of a thread and a group of rows
#pragma unroll
    for (int to = 0; to < C::SPLIT_K; to++) {
        if (to == rank)
            continue;
        float *at = sums + ((rank - (rank > to)) * P::M_BLOCKS * EACH * 128 + threadIdx.x) * 2;
        const u32 there = cluster_map(shared_address(at), to), count = cluster_map(arrived, to);
#pragma unroll
        for (int g = 0; g < P::M_BLOCKS; g++)
#pragma unroll
            for (int i = 0; i < EACH; i++)
                cluster_send2(there + (g * EACH + i) * 1024, d[g][(to * EACH + i) * 2], d[g][(to * EACH + i) * 2 + 1],
                              count);
    }
}

// v[g] = the sums of this block's columns, slices 0, 1, ... added in order.
template <class C>
DEVICE void tile_add_sums(float (&v)[TileShape<C>::M_BLOCKS][TileShape<C>::OWN_N / 2],
                      const float (&d)[TileShape<C>::M_BLOCKS][C::TILE_N / 2], const float *sums, int rank)
{
    typedef TileShape<C> P;
    constexpr int EACH = P::OWN_N / 4;
#pragma unroll
    for (int own = 0; own < C::SPLIT_K; own++) { // `own` is a constant in each copy of the body, so d stays in registers
        if (own != rank)
            continue;
#pragma unroll
        for (int g = 0; g < P::M_BLOCKS; g++)
#pragma unroll
            for (int i = 0; i < EACH; i++) {
                float v0 = 0.0f, v1 = 0.0f;
#pragma unroll
                for (int part = 0; part < C::SPLIT_K; part++) {
                    const float *at =
                        sums + ((((part - (part > own)) * P::M_BLOCKS + g) * EACH + i) * 128 + (int)threadIdx.x) * 2;
                    const float a = part == own ? d[g][(own * EACH + i) * 2] : at[0];
                    const float b = part == own ? d[g][(own * EACH + i) * 2 + 1] : at[1];
                    v0 = part ? v0 + a : a;
                    v1 = part ? v1 + b : b;
                }
                v[g][i * 2] = v0;
                v[g][i * 2 + 1] = v1;
            }
    }
}

// Finishes the one tile of a cluster that splits K.
template <class C, class A>
DEVICE void tile_finish_split(const A &a, const TileWork<C> &t, const float (&d)[TileShape<C>::M_BLOCKS][C::TILE_N / 2],
                       const TileAffineRows<C> &rows, char *shared, u32 arrived, int live)
{
    typedef TileShape<C> P;
    constexpr int TILES = P::OWN_N / 8;
    const int m0 = t.row(t.first) + warp_id() * 16 + (lane_id() >> 2), column = t.rank * P::OWN_N + (lane_id() & 3) * 2;
    const int n0 = t.column(t.first);
    float v[P::M_BLOCKS][P::OWN_N / 2];
    u32 r[P::M_BLOCKS * 2][TILES] = {};
    decltype(tile_row<C>(a, 0, 0)) to[P::M_BLOCKS * 2];
#pragma unroll
    for (int i = 0; i < P::M_BLOCKS * 2; i++)
        to[i] = tile_row<C>(a, m0 + i * 8 + i / 2 * 48, live);
    tile_send_sums<C>(d, (float *)shared, arrived, t.rank);
    if (C::RES)
#pragma unroll
        for (int i = 0; i < P::M_BLOCKS * 2 * TILES; i++) {
            const int m = m0 + i / TILES * 8 + i / TILES / 2 * 48, n = n0 + column + i % TILES * 8;
            if (m < live && n < C::N)
                r[i / TILES][i % TILES] = *(const u32 *)((const typename C::T *)a.r + (i64)m * C::N + n);
        }
    TileAffine norm[P::M_BLOCKS * 2];
    TileStats<C> sums[P::M_BLOCKS];
    rows.finish(norm);
    mbarrier_wait(arrived, 0);
    tile_add_sums<C>(v, d, (float *)shared, t.rank);
#pragma unroll
    for (int i = 0; i < P::M_BLOCKS * 2; i++) {
        const int m = m0 + i * 8 + i / 2 * 48;
        tile_write<C, TILES>(a, v[i / 2] + 2 * (i % 2), r[i], (const float *)(shared + C::VECTORS_AT) + column, norm[i],
                             sums[i / 2], i % 2, m, m < live, n0 + t.rank * P::OWN_N, to[i]);
    }
#pragma unroll
    for (int g = 0; g < P::M_BLOCKS; g++)
        sums[g].write(a, m0 + g * 64, live, n0 + t.rank * P::OWN_N);
}

template <class C, class A> DEVICE void linear_tile(const A &a)
{
    typedef TileShape<C> P;
    launch_dependents();
    char *shared = shared_memory();
    TileWork<C> t;
    const TileRing<C> ring = {shared_address(shared), shared_address(shared) + C::BARRIERS_AT};
    const u32 arrived = ring.end();
    if (threadIdx.x == P::WORKERS) {
        ring.init(1, 4 * C::TILE_WARPGROUPS * C::CLUSTER_M);
        mbarrier_init(arrived, 1);
        mbarrier_init_fence();
        tensor_map_prefetch(a.x);
    }
    const bool producer = shuffle(warp_id(), 0) == 4 * C::WARPGROUPS; // from a shuffle, so that the compiler knows it is the same in all lanes
    if (producer && t.AHEAD) {
        warp_sync();
        tile_load_w_ahead<C>(a, t, ring);
    }
    const int live = live_rows<C::ROWS_S>(a.step); // no kernel of a program writes it
    t.count(live);
    if (t.first >= t.groups) { // the same in all blocks of the cluster
        wait_for_previous();
        if (producer && t.AHEAD)
            tile_drain<C>(a, t, ring);
        return;
    }
    if (C::SPLIT_K > 1 && threadIdx.x == P::WORKERS)
        mbarrier_expect(arrived, P::RECEIVED_BYTES);
    block_sync();
    if (C::CLUSTER_M > 1) { // the other blocks have initialised their mbarriers
        cluster_arrive();
        cluster_wait();
    }
    if (producer) {
        tile_produce<C>(a, t, ring);
        if constexpr (C::SEGMENTS)
            if (blockIdx.x == 0 && lane_id() == 0)
                a.segments->count = ceil_div(C::N, C::TILE_N);
        warp_sync();
    } else if constexpr (C::SPLIT_K == 1) {
        tile_consume<C>(a, t, ring, shared, live);
    } else {
        float d[P::M_BLOCKS][C::TILE_N / 2];
        RingSlot<C::STAGES> slot = {0, 0};
        TileAffineRows<C> rows;
        tile_load_vectors<C>(a, (float *)(shared + C::VECTORS_AT), t.column(t.first), threadIdx.x, 128);
        named_barrier_sync(1, 128);
        tile_init_sums<C>(d, nullptr);
        rows.load(a, t.row(t.first) + warp_id() * 16 + (lane_id() >> 2), live);
        tile_multiply<C>(d, t, 0, 0, slot, ring);
        tile_multiply_end<C>(t, 0, slot, ring);
        wait_for_previous();
        cluster_arrive(); // all blocks have read their rings, which now receive sums
        cluster_wait();
        tile_finish_split<C>(a, t, d, rows, shared, arrived, live);
        return;
    }
    if (C::SPLIT_K > 1) { // the producer's part in the barrier above
        cluster_arrive();
        cluster_wait();
    }
}
