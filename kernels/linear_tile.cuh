// linear_tile.cuh - y = act(x * w^T + b) + r in tiles of TILE_M x TILE_N, for any number of rows, on sm_90a.
//
//   x [M, K], w [N, K]  16-bit, given as maps for the copy engine      sums in fp32
//
//   the first warps  WARPGROUPS warpgroups: wgmma with both operands in shared memory. With TILE_WARPGROUPS = 1 they take tiles in
//                    turn, so that one multiplies while the other writes, and hand over as soon as their last
//                    products are under way; with TILE_WARPGROUPS = 2 each has half of the rows of every tile, which then
//                    may be twice as wide: fewer bytes for the same products, but nobody multiplies meanwhile
//   the last warp    asks for the tiles of x and w, 64 k a slot of the ring, tile after tile; the first of w
//                    before the kernel in front has ended
//
// Blocks of a cluster share what they read, or the work on a tile:
//
//   CLUSTER_M        blocks of CLUSTER_M tiles of rows by one of columns: a tile of w is read once for them, each asks for a part and
//             it goes to all. A cluster takes every so manieth of such groups of tiles.
//   SPLIT_K        blocks of one tile, each with its part of K; then each finishes TILE_N / SPLIT_K columns, with sums that
//             the others send
//
// Norms have no launch: who writes a row leaves sum and sum of squares of its parts (Y_STATS columns each, of fp32 values), and
//
//   X_STATS   y = act(layernorm(x) * w^T + b) = act(scale[m] * (x * w'^T) + b'), gain, shift and mean folded into w' and b'
//           when the model is compiled
//   R_STATS   the residual is normed as it is added: two products an element
//
// Sums are asked for beside the first of x, and added up while the products are under way.
// Order of summation: 16 k after 16 k, then parts of K in order: never by the number of rows.
// SMEM_EPILOGUE: results of 16 bits go through shared memory, 48 instructions where the way through the quads has 274. What
// the writing warps do slows the products of the others, with whom they share the registers' ports and the power.
// The residual comes as one more step of the ring for every 128 columns; with SPLIT_K > 1 a thread reads its few values
// itself.
//
// Shared memory: [stages][x TILE_M x 128 | w TILE_N x 128] | stage of each warp | biases, gains | barriers. With SPLIT_K > 1 the ring,
// free by then, holds sums.
#pragma once
#include "device/async.cuh"
#include "device/barrier.cuh"
#include "device/cluster.cuh"
#include "device/mbarrier.cuh"
#include "device/mma.cuh"
#include "device/pdl.cuh"
#include "device/shared.cuh"
#include "device/tensor.cuh"
#include "device/warp.cuh"
#include "device/wgmma.cuh"
#include "body/act.cuh"
#include "body/append.cuh"
#include "body/norm.cuh"
#include "body/segments.cuh"
#include "body/quad.cuh"
#include "body/rows.cuh"

struct TileArgs {
    const TensorMap *x, *w; // in tiles of TILE_M and TILE_N / CLUSTER_M rows
    const float *b;         // [N]
    const void *r;          // [M, N] residual: a map in tiles of TILE_M rows; with SPLIT_K > 1 the matrix itself
    const FtxStep *step;
    void *y; // [M, N]
};
struct TileCache {      // of a layer: y's columns are q, which goes to y, then k and v
    const float *table; // cos, sin
    const FtxToken *token;
    const int *pages;
    void *k, *v;
};
struct TileAppendArgs : TileCache, TileArgs {
};
struct TileNorms {
    const float *rg, *rc; // [N] gain and shift of the residual's norm
    const float *xs, *rs; // what was left of the rows of x, of the residual: body/norm.cuh, QuadSums
};
struct TileNormArgs : TileNorms, TileArgs {
    float *ys; // what is left of y's rows
};
struct TileHeadArgs : SegmentArgs, TileArgs {
    FtxSegments *segments; // SEGMENTS: of the rows of y, TILE_N columns each; y itself is written as keep_of() says
};

template <class C> struct TileShape {
    static constexpr int WORKERS = 128 * C::WARPGROUPS, THREADS = WORKERS + 32;
    static constexpr bool ONE = C::WARPGROUPS == 1;                                  // tile of a block: grids have all tiles
    static constexpr int TURNS = C::WARPGROUPS / C::TILE_WARPGROUPS;                            // tiles under way
    static constexpr int GROUPS = C::TILE_M / 64 / C::TILE_WARPGROUPS;                       // of 64 rows, a warpgroup's
    static constexpr int BLOCKS = C::CLUSTER_M * C::SPLIT_K;                              // of a cluster
    static constexpr int RWIDE = least(C::TILE_N, 128);                           // columns of a step of the residual
    static constexpr int RESIDUAL = C::RES && C::SPLIT_K == 1 ? C::TILE_N / RWIDE : 0; // such steps more, in tiles of 64 columns
    static constexpr int X = C::TILE_M * 128, R = round_up(RWIDE, 64) * C::TILE_M * 2,
                         SLOT = most(X + C::TILE_N * 128, (RESIDUAL > 0) * R);
    static constexpr int STEPS = ceil_div(C::K, 64);
    static constexpr int PART = C::TILE_N / C::SPLIT_K;                              // columns that a block finishes
    static constexpr int STAGE_AT = C::STAGES * SLOT;                       // 16 rows of 64 columns of each warp
    static constexpr int BIAS_AT = STAGE_AT + C::SMEM_EPILOGUE * 8 * 2048;         // of each warpgroup's tile
    static constexpr int LINES = C::R_STATS ? 2 : 1;                          // of floats beside a tile: biases, gains
    static constexpr int BARRIER_AT = BIAS_AT + C::WARPGROUPS * LINES * C::TILE_N * 4; // full, empty of each slot; arrived
    static constexpr int BYTES = BARRIER_AT + (2 * C::STAGES + 1) * 8;
    static constexpr bool BIASED = C::BIAS || C::R_STATS;         // the shift of the residual's norm is added to the bias
    static constexpr bool BEGUN = C::SMEM_EPILOGUE && !C::X_STATS;       // sums begin with it
    static constexpr int SENT = (C::SPLIT_K - 1) * C::TILE_M * PART * 4; // bytes of sums a block gets
    static_assert(BYTES <= C::SMEM, "the contract gives less shared memory than the stages need");
    static_assert(C::SPLIT_K == 1 || C::CLUSTER_M * C::WARPGROUPS == 1, "a cluster shares reads or work");
    static_assert(C::SPLIT_K <= STEPS, "each of SPLIT_K blocks has a step");
    static_assert(C::WARPGROUPS <= 2, "two take turns, or a tile together");
    static_assert(RESIDUAL <= 1 || (C::SMEM_EPILOGUE && TURNS == 1 && C::TILE_N % RWIDE == 0), "whole steps of the residual");
    static_assert(!C::SEGMENTS || (C::SPLIT_K == 1 && !C::RES && sizeof(typename C::OUT) == 4),
                  "segments are of logits, whole columns of them");
    static_assert(SENT <= BIAS_AT, "the ring holds the sums");
    static_assert(C::TILE_M % 64 == 0 && PART % 8 == 0, "tiles of 64 x 8");
    static_assert(C::TILE_N / C::CLUSTER_M % 8 == 0, "parts of a tile keep its order");
    static_assert((!C::X_STATS || C::BIAS) && (!C::R_STATS || C::RES), "what norms need");
    static_assert(!C::Y_STATS || C::Y_STATS == least(PART, RWIDE), "a part of a row is what a block finishes at once");
};

// What this block does: steps s0 .. s1 of 64 k of the tiles that its cluster takes.
template <class C> struct TileWork {
    static constexpr int ACROSS = ceil_div(C::N, C::TILE_N);                      // tiles side by side
    static constexpr int EACH = TileShape<C>::STEPS + TileShape<C>::RESIDUAL; // steps of the ring for a tile
    static constexpr int AHEAD = C::CLUSTER_M == 1; // the first of w is asked for before anything else
    int rank, rm, s0, s1, first, every, ahead, groups, steps;
    DEVICE TileWork()
    {
        typedef TileShape<C> P;
        rank = P::BLOCKS > 1 ? cluster_rank() : 0;
        rm = C::SPLIT_K > 1 ? 0 : rank;
        const int part = C::SPLIT_K > 1 ? rank : 0;
        s0 = part * P::STEPS / C::SPLIT_K;
        s1 = (part + 1) * P::STEPS / C::SPLIT_K;
        first = blockIdx.x / P::BLOCKS;
        every = gridDim.x / P::BLOCKS;
        ahead = least(C::STAGES, s1 - s0);
    }
    DEVICE void count(int live)
    {
        groups = ceil_div(live, C::TILE_M * C::CLUSTER_M) * ACROSS;
        steps = C::SPLIT_K > 1 ? own() : TileShape<C>::ONE ? EACH : ceil_div(groups - first, every) * EACH;
    }
    DEVICE int own() const { return TileShape<C>::STEPS % C::SPLIT_K ? s1 - s0 : TileShape<C>::STEPS / C::SPLIT_K; }
    DEVICE int row(int group) const { return (group / ACROSS * C::CLUSTER_M + rm) * C::TILE_M; }
    DEVICE int column(int group) const { return group % ACROSS * C::TILE_N; }
};

struct TileSlot { // of the ring, and the parity of its barriers
    int at;
    u32 parity;
    template <class C> DEVICE void next()
    {
        if (++at == C::STAGES) {
            at = 0;
            parity ^= 1;
        }
    }
    template <class C> DEVICE int before() const { return at ? at - 1 : C::STAGES - 1; }
    template <class C> DEVICE void skip(int steps)
    {
        at += steps;
        parity ^= at / C::STAGES & 1;
        at %= C::STAGES;
    }
};

// The tile of x; this block's part of that of w, to all blocks of the cluster.
template <class C> DEVICE void tile_ask_x(const TileArgs &a, int row, int s, u32 slot, u32 full)
{
    warp_tensor_copy(slot, a.x, row, s * 64, full);
}
template <class C>
DEVICE void tile_ask_w(const TileArgs &a, const TileWork<C> &t, int column, int s, u32 slot, u32 full)
{
    constexpr int ROWS = C::TILE_N / C::CLUSTER_M;
    const u32 to = slot + TileShape<C>::X + t.rm * ROWS * 128;
    if (C::CLUSTER_M == 1)
        warp_tensor_copy(to, a.w, column, s * 64, full);
    else
        warp_tensor_copy_multicast(to, a.w, column + t.rm * ROWS, s * 64, full, (1 << C::CLUSTER_M) - 1);
}

// The first of w, as much as the ring holds; of few rows, what more there is to L2.
template <class C> DEVICE void tile_begin(const TileArgs &a, const TileWork<C> &t, u32 ring, u32 full)
{
    const int column = t.column(t.first);
#pragma unroll 1
    for (int i = 0; i < t.ahead; i++) {
        warp_mbarrier_expect(full + 8 * i, TileShape<C>::X + C::TILE_N * 128);
        tile_ask_w<C>(a, t, column, t.s0 + i, ring + i * TileShape<C>::SLOT, full + 8 * i);
    }
#pragma unroll 1
    for (int i = t.ahead; i < t.s1 - t.s0 && t.AHEAD; i++)
        warp_tensor_prefetch(a.w, column, (t.s0 + i) * 64);
}

// There are no rows for this block; what it asked for has to come before it ends.
template <class C> DEVICE void tile_end(const TileArgs &a, const TileWork<C> &t, u32 ring, u32 full)
{
#pragma unroll 1
    for (int i = 0; i < t.ahead; i++) {
        tile_ask_x<C>(a, t.row(t.first), t.s0 + i, ring + i * TileShape<C>::SLOT, full + 8 * i);
        mbarrier_wait(full + 8 * i, 0);
    }
}

// One warp keeps the ring full, in loops that are not unrolled: with few rows a block walks through its text once, and
// waits for that too.
template <class C> DEVICE void tile_produce(const TileArgs &a, const TileWork<C> &t, u32 ring, u32 full, u32 empty)
{
    typedef TileShape<C> P;
    if (!t.AHEAD)
        tile_begin<C>(a, t, ring, full);
    wait_for_previous();
    TileSlot slot = {0, 1};
    for (int group = t.first; group < t.groups; group += t.every) {
        const int row = t.row(group), column = t.column(group);
#pragma unroll 1
        for (int s = t.s0; s < t.s1; s++) {
            const u32 to = ring + slot.at * P::SLOT, barrier = full + 8 * slot.at;
            if (group != t.first || s - t.s0 >= t.ahead) {
                mbarrier_wait(empty + 8 * slot.at, slot.parity);
                warp_mbarrier_expect(barrier, P::X + C::TILE_N * 128);
                tile_ask_w<C>(a, t, column, s, to, barrier);
            }
            tile_ask_x<C>(a, row, s, to, barrier);
            slot.next<C>();
        }
        for (int i = 0; i < P::RESIDUAL; i++) {
            mbarrier_wait(empty + 8 * slot.at, slot.parity);
            warp_mbarrier_expect(full + 8 * slot.at, P::R);
            for (int n = 0; n < P::RWIDE; n += 64)
                warp_tensor_copy(ring + slot.at * P::SLOT + n * C::TILE_M * 2, (const TensorMap *)a.r, row,
                                 column + i * P::RWIDE + n, full + 8 * slot.at);
            slot.next<C>();
        }
    }
}

// This warp has read the slot of a step: all blocks that write to it are told, if any will. (One that nobody waits
// for might come when the other block has ended.)
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

// The sums of a tile begin with its bias or with 0 (bias: from the lane's columns on).
template <class C> DEVICE void tile_start(float (&d)[TileShape<C>::GROUPS][C::TILE_N / 2], const float *bias)
{
#pragma unroll
    for (int j = 0; j < C::TILE_N / 8; j++) {
        Vec<float, 2> b = {};
        if (TileShape<C>::BEGUN && TileShape<C>::BIASED)
            b = *(const Vec<float, 2> *)(bias + j * 8);
#pragma unroll
        for (int i = 0; i < TileShape<C>::GROUPS * 4; i++)
            d[i / 4][j * 4 + i % 4] = b[i % 2];
    }
}

// d += x * w^T of a tile, rows from x0 on, from step `step` of the ring on; the last step's are left under way, for
// tile_products_end. Where a block has one tile of few steps all addresses are constants: the loop around the
// products would take longer than they do.
template <class C>
DEVICE void tile_products(float (&d)[TileShape<C>::GROUPS][C::TILE_N / 2], const TileWork<C> &t, int x0, int step,
                          TileSlot &slot, u32 ring, u32 full, u32 empty)
{
    typedef TileShape<C> P;
    constexpr int EACH = ceil_div(P::STEPS, C::SPLIT_K);
    // More steps would not have their operands in uniform registers.
    constexpr bool FLAT = P::ONE && EACH * P::GROUPS <= 16 && EACH * C::TILE_N <= 1152;
#pragma unroll(FLAT ? EACH : 1)
    for (int s = 0; s < EACH; s++) {
        if (s >= t.own())
            break;
        if (FLAT)
            slot = {s % C::STAGES, s / C::STAGES & 1u};
        const u32 at = ring + slot.at * P::SLOT;
        const u64 x = wgmma_descriptor(at, x0, 0), w = wgmma_descriptor(at + P::X, 0, 0);
        mbarrier_wait(full + 8 * slot.at, slot.parity);
        wgmma_fence();
#pragma unroll
        for (int k = 0; k < 4; k++)
#pragma unroll
            for (int g = 0; g < P::GROUPS; g++)
                Wgmma<C::TILE_N, typename C::T>::add(d[g], wgmma_descriptor_at(x, g * 64, k), wgmma_descriptor_at(w, 0, k));
        wgmma_commit();
        if (!FLAT || s - 1 + C::STAGES < EACH + P::RESIDUAL) // the slot will be filled again
            wgmma_wait<1>();
        if (s > 0)
            tile_release<C>(t, step + s - 1, empty + 8 * slot.before<C>());
        slot.next<C>();
    }
}
template <class C> DEVICE void tile_products_end(const TileWork<C> &t, int step, const TileSlot &slot, u32 empty)
{
    wgmma_wait<0>();
    tile_release<C>(t, step + t.s1 - t.s0 - 1, empty + 8 * slot.before<C>());
}

// How the lane's rows of a tile, and the residual's, are normed: of what was left of them, asked for early. Row i of
// the lane is 8 * i + 48 * (i / 2) rows behind its first.
struct TileNorm {
    RowLine x, r;
};
template <class C> struct TileNormRows {
    static constexpr int ROWS = TileShape<C>::GROUPS * 2;
    QuadSums<C::K, C::X_STATS> x[ROWS];
    QuadSums<C::N, C::R_STATS> r[ROWS];
    // Sums are added up while the products are under way, or before them where the registers would not hold both.
    static constexpr int FLOATS = (QuadSums<C::K, C::X_STATS>::FLOATS + QuadSums<C::N, C::R_STATS>::FLOATS) * ROWS;
    static constexpr bool SOON = C::WARPGROUPS == 2 && C::TILE_N / 2 * TileShape<C>::GROUPS + FLOATS > 144;
    template <class A> DEVICE void ask(const A &a, int row, int live)
    {
        if constexpr (C::X_STATS > 0 || C::R_STATS > 0) {
            wait_for_previous();
#pragma unroll
            for (int i = 0; i < ROWS; i++) {
                const int m = row + i * 8 + i / 2 * 48;
                x[i].ask(a.xs, m, m < live);
                r[i].ask(a.rs, m, m < live);
            }
        }
    }
    DEVICE void take(TileNorm (&norm)[ROWS]) const
    {
#pragma unroll
        for (int i = 0; i < ROWS; i++)
            norm[i] = {x[i].line(C::EPS), r[i].line(C::R_EPS)};
    }
};

// What is left of two rows of y, 8 apart, by the quad that has them.
template <class C> struct TileSums {
    float v[2][2] = {}; // row; sum, squares
    DEVICE void add(int row, const Vec<float, 2> &pair)
    {
        if (C::Y_STATS) {
            v[row][0] += pair[0] + pair[1];
            v[row][1] = fmaf(pair[0], pair[0], fmaf(pair[1], pair[1], v[row][1]));
        }
    }
    // Of rows m and m + 8 the part that has column n: each lane keeps one of the four.
    template <class A> DEVICE void leave(const A &a, int m, int live, int n)
    {
        if constexpr (C::Y_STATS > 0) {
            const bool row = lane_id() & 1, squares = lane_id() & 2;
            float one[2];
#pragma unroll
            for (int i = 0; i < 2; i++)
                one[i] = (row ? v[1][i] : v[0][i]) + shuffle_xor(row ? v[0][i] : v[1][i], 1);
            const float sum = (squares ? one[1] : one[0]) + shuffle_xor(squares ? one[0] : one[1], 2);
            m += row * 8;
            if (m < live && n < C::N)
                a.ys[(m * ceil_div(C::N, C::Y_STATS) + n / C::Y_STATS) * 2 + squares] = sum;
        }
    }
};

// Norm of x, bias, activation and residual on two neighbouring columns; the gains stand behind the biases.
template <class C>
DEVICE Vec<float, 2> tile_pair(float v0, float v1, const float *bias, u32 residual, const TileNorm &norm = {})
{
    typedef typename C::T T;
    typedef TileShape<C> P;
    const float old[2] = {C::RES ? low<T>(residual) : 0.0f, C::RES ? high<T>(residual) : 0.0f};
    Vec<float, 2> v, b = {}, g = {};
    v[0] = v0;
    v[1] = v1;
    if (P::BIASED && !P::BEGUN)
        b = *(const Vec<float, 2> *)bias;
    if (C::R_STATS)
        g = *(const Vec<float, 2> *)(bias + C::TILE_N);
#pragma unroll
    for (int i = 0; i < 2; i++) {
        if (C::X_STATS)
            v[i] = fmaf(v[i], norm.x.scale, b[i]);
        else if (P::BIASED && !P::BEGUN)
            v[i] += b[i];
        v[i] = sizeof(typename C::OUT) == 2 ? activate_short<C::ACT>(v[i]) : activate<C::ACT>(v[i]);
        if (C::R_STATS)
            v[i] = fmaf(fmaf(old[i], norm.r.scale, norm.r.shift), g[i], v[i]);
        else if (C::RES)
            v[i] += old[i];
    }
    return v;
}

// Where row m of y goes, looked up before its sums are there: to row m, or also to the token's place in the cache.
struct TileRow {
};
template <class C> DEVICE TileRow tile_row(const TileArgs &, int, int)
{
    return {};
}
template <class C> DEVICE AppendRow tile_row(const TileAppendArgs &a, int m, int live)
{
    return m < live ? append_row<C>(a.token[m], a.pages, a.table) : AppendRow{0, 0, a.table};
}
template <class C> DEVICE typename C::OUT *tile_place(const TileArgs &a, const TileRow &, int m, int n)
{
    return (typename C::OUT *)a.y + (i64)m * C::N + n;
}
template <class C> DEVICE typename C::OUT *tile_place(const TileAppendArgs &a, const AppendRow &to, int m, int n)
{
    if (n < C::H * C::E)
        return (typename C::OUT *)a.y + (i64)m * (C::H * C::E) + n;
    return append_cached<C>(a.k, a.v, to, n);
}
template <class C> DEVICE void tile_turn(const TileRow &, int, Vec<float, 2> &) {}
template <class C> DEVICE void tile_turn(const AppendRow &to, int n, Vec<float, 2> &v)
{
    if (C::ROT > 0 && n < C::N)
        append_turn<1>(append_angles<C, 1>(to, n), v);
}

// Row m of TILES tiles of 8 columns from column n on; sums d[4 * i], d[4 * i + 1] are tile i's, r[i] the residual
// there, bias that of the lane's columns. Results of 16 bits go through the quad, four tiles at a time, so that a
// lane writes 16 bytes. It is row i of `sums`.
template <class C, int TILES, class A, class To>
DEVICE void tile_write(const A &a, const float *d, const u32 (&r)[TILES], const float *bias, const TileNorm &norm,
                       TileSums<C> &sums, int i, int m, bool live, int n, const To &to)
{
    typedef typename C::T T;
    const int t = lane_id() & 3;
    constexpr int FOURS = sizeof(typename C::OUT) == 2 ? TILES / 4 * 4 : 0;
    u32 v[TILES];
#pragma unroll
    for (int j = 0; j < FOURS; j++) {
        Vec<float, 2> pair = tile_pair<C>(d[j * 4], d[j * 4 + 1], bias + j * 8, r[j], norm);
        tile_turn<C>(to, n + j * 8 + 2 * t, pair);
        sums.add(i, pair);
        v[j] = pack2<T>(pair[0], pair[1]);
    }
#pragma unroll
    for (int j = 0; j < FOURS; j += 4) {
        const int mine = n + (j + t) * 8;
        u32 four[4] = {v[j], v[j + 1], v[j + 2], v[j + 3]};
        quad_transpose(four);
        if (live && mine < C::N)
            *(uint4_ *)tile_place<C>(a, to, m, mine) = uint4_{four[0], four[1], four[2], four[3]};
    }
#pragma unroll
    for (int j = FOURS; j < TILES; j++) {
        const int at = n + j * 8 + 2 * t;
        Vec<float, 2> pair = tile_pair<C>(d[j * 4], d[j * 4 + 1], bias + j * 8, r[j], norm);
        tile_turn<C>(to, at, pair);
        sums.add(i, pair);
        if (live && at < C::N)
            store(tile_place<C>(a, to, m, at), from_floats<typename C::OUT>(pair));
    }
}

// The same for logits: a segment of each row, and what is wished for of the row itself. d: 2 sums of every 8 columns.
template <class C>
DEVICE void tile_segment(const TileHeadArgs &a, float *d, const float *bias, int m, bool live, int keep, int n)
{
#pragma unroll
    for (int j = 0; j < C::TILE_N / 8; j++) {
        const Vec<float, 2> pair = tile_pair<C>(d[j * 4], d[j * 4 + 1], bias + j * 8, 0);
        d[j * 4] = pair[0];
        d[j * 4 + 1] = pair[1];
    }
    quad_write_segment<C::TILE_N / 8, true>(live ? segments_of(a.segments, C::N, m) + n / C::TILE_N : nullptr, (float *)a.y + (i64)m * C::N,
                                  d, n, C::N, keep, inv_temperature_of(a, m, keep));
}

// 16 rows of a warp's tile, from element (row, column) of y on: through the warp's stage, so
// that eight lanes write 128 bytes of a row. Unit u (16 bytes) of row r stands at u ^ (r & 7), in the stage as in
// `slot`, which has the residual from there on; bias and norm are of the lane's columns and of its two rows.
template <class C, int COLUMNS, class A>
DEVICE void tile_stage(const A &a, const float *d, const float *bias, const TileNorm *norm, u32 slot, u32 stage,
                       int row, int live, int column)
{
    typedef typename C::T T;
    const int lane = lane_id(), r = lane & 15;
    const u32 at = r * 128 + (lane >> 4 ^ r & 7) * 16; // of the lane's row of a matrix
    TileSums<C> sums;
#pragma unroll
    for (int n = 0; n < COLUMNS; n += 64) {
        const int units = least(COLUMNS - n, 64) / 8;
#pragma unroll
        for (int u = 0; u < 8; u += 2) {
            if (u >= units)
                break;
            u32 v[4], old[4] = {};
            if constexpr (C::RES)
                ldmatrix4(old, slot + n * C::TILE_M * 2 + (at ^ u * 16));
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const int tile = n / 8 + u + i / 2;
                const float *sum = d + (tile * 2 + i % 2) * 2;
                const Vec<float, 2> pair = tile_pair<C>(sum[0], sum[1], bias + tile * 8, old[i], norm[i % 2]);
                sums.add(i % 2, pair);
                v[i] = pack2<T>(pair[0], pair[1]);
            }
            stmatrix4(stage + (at ^ u * 16), v);
        }
        warp_sync();
#pragma unroll(C::Y_STATS ? 2 : 4) // two: registers
        for (int i = 0; i < 4; i++) {
            const int k = i * 4 + lane / 8, u = lane % 8;
            if (row + k < live && u < units && column + n + u * 8 < C::N)
                *(uint4_ *)((typename C::OUT *)a.y + (u32)((row + k) * C::N + column + n + u * 8)) =
                    shared_load16(stage + k * 128 + (u ^ k & 7) * 16);
        }
        warp_sync();
    }
    sums.leave(a, row + (lane >> 2), live, column);
}

// The residual of row m (of the tile) from the slot that holds it, for the lane's columns of every 8.
template <class C> DEVICE void tile_residual(u32 (&r)[C::TILE_N / 8], const char *slot, int m)
{
#pragma unroll
    for (int j = 0; j < C::TILE_N / 8; j++)
        r[j] = *(const u32 *)(slot + j / 8 * C::TILE_M * 128 + m * 128 + (j % 8 ^ (m & 7)) * 16 + (lane_id() & 3) * 4);
}

// The end of a tile whose first element is (row, column): its residual is step `step` of the ring, and m is the
// warp's first row of it, or the lane's.
template <class C, class A>
DEVICE void tile_finish_staged(const A &a, const TileWork<C> &t, const float (&d)[TileShape<C>::GROUPS][C::TILE_N / 2],
                               int step, TileSlot &slot, u32 ring, u32 full, u32 empty, const float *bias,
                               const TileNorm (&norm)[TileShape<C>::GROUPS * 2], int m, int row, int column, int live)
{
    typedef TileShape<C> P;
    constexpr int PIECES = most(P::RESIDUAL, 1), COLUMNS = C::TILE_N / PIECES;
    const u32 stage = ring + P::STAGE_AT + warp_id() * 2048;
#pragma unroll
    for (int i = 0; i < PIECES; i++) {
        if (P::RESIDUAL)
            mbarrier_wait(full + 8 * slot.at, slot.parity);
#pragma unroll
        for (int g = 0; g < P::GROUPS; g++)
            tile_stage<C, COLUMNS>(a, d[g] + i * COLUMNS / 2, bias + i * COLUMNS, norm + 2 * g,
                                   ring + slot.at * P::SLOT + (m + g * 64) * 128, stage, row + m + g * 64, live,
                                   column + i * COLUMNS);
        if (P::RESIDUAL) {
            tile_release<C>(t, step + i, empty + 8 * slot.at);
            slot.next<C>();
        }
    }
}
template <class C, class A, class To>
DEVICE void tile_finish(const A &a, const TileWork<C> &t, float (&d)[TileShape<C>::GROUPS][C::TILE_N / 2], int step,
                        TileSlot &slot, const char *shared, u32 full, u32 empty, const float *bias,
                        const TileNorm (&norm)[TileShape<C>::GROUPS * 2], u32 keeps,
                        const To (&to)[TileShape<C>::GROUPS * 2], int m0, int row, int column, int live)
{
    typedef TileShape<C> P;
    TileSums<C> sums[P::GROUPS];
    if (P::RESIDUAL)
        mbarrier_wait(full + 8 * slot.at, slot.parity);
#pragma unroll
    for (int i = 0; i < P::GROUPS * 2; i++) {
        const int m = m0 + i * 8 + i / 2 * 48;
        u32 r[C::TILE_N / 8] = {};
        if constexpr (P::RESIDUAL > 0) {
            warp_sync(); // that of all rows at once would not fit the registers
            tile_residual<C>(r, shared + slot.at * P::SLOT, m);
        }
        if constexpr (C::SEGMENTS) {
            warp_sync(); // nor would the work on all of them
            tile_segment<C>(a, d[i / 2] + 2 * (i % 2), bias, row + m, row + m < live, keep_at(keeps, i), column);
        } else
            tile_write<C, C::TILE_N / 8>(a, d[i / 2] + 2 * (i % 2), r, bias, norm[i], sums[i / 2], i % 2, row + m,
                                     row + m < live, column, to[i]);
    }
#pragma unroll
    for (int g = 0; g < P::GROUPS; g++)
        sums[g].leave(a, row + m0 + g * 64, live, column);
    if (P::RESIDUAL) {
        warp_sync();
        tile_release<C>(t, step, empty + 8 * slot.at);
        slot.next<C>();
    }
}

// What stands beside a tile: the biases of its columns, and the gains of the residual's norm.
template <class C, class A> DEVICE void tile_lines(const A &a, float *bias, int column, int first, int threads)
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

// A warpgroup's tiles, one after another, but for the sums of SPLIT_K blocks. The warpgroups wait for slots in turn: a
// barrier's parity says nothing to one who is two phases behind.
template <class C, class A>
DEVICE void tile_work(const A &a, const TileWork<C> &t, char *shared, u32 ring, u32 full, u32 empty, int live)
{
    typedef TileShape<C> P;
    const int own = C::WARPGROUPS > 1 ? shuffle(warp_id(), 0) / 4 : 0, lane = threadIdx.x % (128 * C::TILE_WARPGROUPS);
    const int turn = P::TURNS > 1 ? own : 0, place = C::TILE_WARPGROUPS > 1 ? 0 : own;
    const int x0 = C::TILE_WARPGROUPS > 1 ? own * P::GROUPS * 64 : 0, mw = x0 + shuffle(warp_id(), 0) % 4 * 16,
              m0 = mw + (lane_id() >> 2);
    float *lines = (float *)(shared + P::BIAS_AT) + place * P::LINES * C::TILE_N;
    const float *bias = lines + (lane_id() & 3) * 2;
    float d[P::GROUPS][C::TILE_N / 2];
    TileSlot slot = {0, 0};
    int step = turn * t.EACH;
    slot.skip<C>(step);
    for (int group = t.first + turn * t.every; group < t.groups; group += P::TURNS * t.every) {
        const int row = t.row(group), column = t.column(group);
        TileNormRows<C> rows;
        TileNorm norm[P::GROUPS * 2];
        u32 keeps = 0; // of the lane's rows
        if constexpr (C::SEGMENTS)
#pragma unroll
            for (int i = 0; i < P::GROUPS; i++)
                keeps |= keeps_of<2>(a, row + m0 + i * 64, live) << 8 * i;
        tile_lines<C>(a, lines, column, lane, 128 * C::TILE_WARPGROUPS);
        named_barrier_sync(3 + place, 128 * C::TILE_WARPGROUPS);
        tile_start<C>(d, bias);
        decltype(tile_row<C>(a, 0, 0)) to[P::GROUPS * 2];
#pragma unroll
        for (int i = 0; i < P::GROUPS * 2; i++)
            to[i] = tile_row<C>(a, row + m0 + i * 8 + i / 2 * 48, live);
        rows.ask(a, row + m0, live);
        if (rows.SOON)
            rows.take(norm);
        if (P::TURNS > 1 && group != t.first)
            named_barrier_sync(1 + own, 256); // the other warpgroup's turn is over
        tile_products<C>(d, t, x0, step, slot, ring, full, empty);
        wait_for_previous();
        if (P::TURNS > 1) {
            if (P::RESIDUAL)
                mbarrier_wait(full + 8 * slot.at, slot.parity);
            if (group + t.every < t.groups)
                named_barrier_arrive(2 - own, 256);
        }
        if (!rows.SOON)
            rows.take(norm);
        tile_products_end<C>(t, step, slot, empty);
        if constexpr (C::SMEM_EPILOGUE)
            tile_finish_staged<C>(a, t, d, step + P::STEPS, slot, ring, full, empty, bias, norm, mw, row, column, live);
        else
            tile_finish<C>(a, t, d, step + P::STEPS, slot, shared, full, empty, bias, norm, keeps, to, m0, row, column,
                           live);
        step += P::TURNS * t.EACH;
        slot.skip<C>((P::TURNS - 1) * t.EACH);
        named_barrier_sync(3 + place, 128 * C::TILE_WARPGROUPS); // the lines have been read
    }
}

// Sums of this block's part of K to the blocks that finish them: thread i of each finishes what thread i of all
// has. `sums` there: [parts but its own][pairs of a thread][threads].
template <class C>
DEVICE void tile_give(const float (&d)[TileShape<C>::GROUPS][C::TILE_N / 2], float *sums, u32 arrived, int rank)
{
    typedef TileShape<C> P;
    constexpr int EACH = P::PART / 4; // pairs of a thread and a group of rows
#pragma unroll
    for (int to = 0; to < C::SPLIT_K; to++) {
        if (to == rank)
            continue;
        float *at = sums + ((rank - (rank > to)) * P::GROUPS * EACH * 128 + threadIdx.x) * 2;
        const u32 there = cluster_map(shared_address(at), to), count = cluster_map(arrived, to);
#pragma unroll
        for (int g = 0; g < P::GROUPS; g++)
#pragma unroll
            for (int i = 0; i < EACH; i++)
                cluster_send2(there + (g * EACH + i) * 1024, d[g][(to * EACH + i) * 2], d[g][(to * EACH + i) * 2 + 1],
                              count);
    }
}

// The columns that this block finishes: v[g] = parts 0, 1, .. added in order.
template <class C>
DEVICE void tile_take(float (&v)[TileShape<C>::GROUPS][TileShape<C>::PART / 2],
                      const float (&d)[TileShape<C>::GROUPS][C::TILE_N / 2], const float *sums, int rank)
{
    typedef TileShape<C> P;
    constexpr int EACH = P::PART / 4;
#pragma unroll
    for (int own = 0; own < C::SPLIT_K; own++) { // a constant in each copy of the body: d stays in registers
        if (own != rank)
            continue;
#pragma unroll
        for (int g = 0; g < P::GROUPS; g++)
#pragma unroll
            for (int i = 0; i < EACH; i++) {
                float v0 = 0.0f, v1 = 0.0f;
#pragma unroll
                for (int part = 0; part < C::SPLIT_K; part++) {
                    const float *at =
                        sums + ((((part - (part > own)) * P::GROUPS + g) * EACH + i) * 128 + (int)threadIdx.x) * 2;
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

// The one tile of a cluster whose blocks have parts of K.
template <class C, class A>
DEVICE void tile_share(const A &a, const TileWork<C> &t, const float (&d)[TileShape<C>::GROUPS][C::TILE_N / 2],
                       const TileNormRows<C> &rows, char *shared, u32 arrived, int live)
{
    typedef TileShape<C> P;
    constexpr int TILES = P::PART / 8;
    const int m0 = t.row(t.first) + warp_id() * 16 + (lane_id() >> 2), column = t.rank * P::PART + (lane_id() & 3) * 2;
    const int n0 = t.column(t.first);
    float v[P::GROUPS][P::PART / 2];
    u32 r[P::GROUPS * 2][TILES] = {};
    decltype(tile_row<C>(a, 0, 0)) to[P::GROUPS * 2];
#pragma unroll
    for (int i = 0; i < P::GROUPS * 2; i++)
        to[i] = tile_row<C>(a, m0 + i * 8 + i / 2 * 48, live);
    tile_give<C>(d, (float *)shared, arrived, t.rank);
    if (C::RES)
#pragma unroll
        for (int i = 0; i < P::GROUPS * 2 * TILES; i++) {
            const int m = m0 + i / TILES * 8 + i / TILES / 2 * 48, n = n0 + column + i % TILES * 8;
            if (m < live && n < C::N)
                r[i / TILES][i % TILES] = *(const u32 *)((const typename C::T *)a.r + (i64)m * C::N + n);
        }
    TileNorm norm[P::GROUPS * 2];
    TileSums<C> sums[P::GROUPS];
    rows.take(norm);
    mbarrier_wait(arrived, 0);
    tile_take<C>(v, d, (float *)shared, t.rank);
#pragma unroll
    for (int i = 0; i < P::GROUPS * 2; i++) {
        const int m = m0 + i * 8 + i / 2 * 48;
        tile_write<C, TILES>(a, v[i / 2] + 2 * (i % 2), r[i], (const float *)(shared + P::BIAS_AT) + column, norm[i],
                             sums[i / 2], i % 2, m, m < live, n0 + t.rank * P::PART, to[i]);
    }
#pragma unroll
    for (int g = 0; g < P::GROUPS; g++)
        sums[g].leave(a, m0 + g * 64, live, n0 + t.rank * P::PART);
}

template <class C, class A> DEVICE void linear_tile(const A &a)
{
    typedef TileShape<C> P;
    launch_dependents();
    char *shared = shared_memory();
    TileWork<C> t;
    const u32 ring = shared_address(shared), full = ring + P::BARRIER_AT;
    const u32 empty = full + 8 * C::STAGES, arrived = empty + 8 * C::STAGES;
    if (threadIdx.x == P::WORKERS) {
        for (int i = 0; i < C::STAGES; i++) {
            mbarrier_init(full + 8 * i, 1);
            mbarrier_init(empty + 8 * i, 4 * C::TILE_WARPGROUPS * C::CLUSTER_M);
        }
        mbarrier_init(arrived, 1);
        mbarrier_init_fence();
        tensor_map_prefetch(a.x);
    }
    const bool asks = shuffle(warp_id(), 0) == 4 * C::WARPGROUPS; // one for all lanes, which the compiler has to know
    if (asks && t.AHEAD) {
        warp_sync();
        tile_begin<C>(a, t, ring, full);
    }
    const int live = live_rows<C::ROWS_S>(a.step); // written between programs only
    t.count(live);
    if (t.first >= t.groups) { // all blocks of the cluster
        wait_for_previous();
        if (asks && t.AHEAD)
            tile_end<C>(a, t, ring, full);
        return;
    }
    if (C::SPLIT_K > 1 && threadIdx.x == P::WORKERS)
        mbarrier_expect(arrived, P::SENT);
    block_sync();
    if (C::CLUSTER_M > 1) { // the others' barriers are there
        cluster_arrive();
        cluster_wait();
    }
    if (asks) {
        tile_produce<C>(a, t, ring, full, empty);
        if constexpr (C::SEGMENTS)
            if (blockIdx.x == 0 && lane_id() == 0)
                a.segments->count = ceil_div(C::N, C::TILE_N);
        warp_sync();
    } else if constexpr (C::SPLIT_K == 1) {
        tile_work<C>(a, t, shared, ring, full, empty, live);
    } else {
        float d[P::GROUPS][C::TILE_N / 2];
        TileSlot slot = {0, 0};
        TileNormRows<C> rows;
        tile_lines<C>(a, (float *)(shared + P::BIAS_AT), t.column(t.first), threadIdx.x, 128);
        named_barrier_sync(1, 128);
        tile_start<C>(d, nullptr);
        rows.ask(a, t.row(t.first) + warp_id() * 16 + (lane_id() >> 2), live);
        tile_products<C>(d, t, 0, 0, slot, ring, full, empty);
        tile_products_end<C>(t, 0, slot, empty);
        wait_for_previous();
        cluster_arrive(); // all rings have been read
        cluster_wait();
        tile_share<C>(a, t, d, rows, shared, arrived, live);
        return;
    }
    if (C::SPLIT_K > 1) { // the same barrier
        cluster_arrive();
        cluster_wait();
    }
}
