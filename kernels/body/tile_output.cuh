// tile_output.cuh - arguments, shape and epilogue of linear_tile.cuh: what happens to the finished sums of a tile.
//
//   sums -> norm of x -> bias -> activation -> residual, itself normed or not -> y, with row statistics of y
//                                            -> RoPE, q to y, k and v to the cache
//                                            -> segments of logits
//
// A lane holds two neighbouring columns of every 8 of its rows, as mma.cuh draws D. Two ways to memory: from registers
// (tile_write), or through shared memory (tile_store_staged), which needs fewer instructions.
#pragma once
#include "device/mma.cuh"
#include "device/pdl.cuh"
#include "device/shared.cuh"
#include "device/tensor.cuh"
#include "device/warp.cuh"
#include "body/act.cuh"
#include "body/append.cuh"
#include "body/norm.cuh"
#include "body/quad.cuh"
#include "body/rows.cuh"
#include "body/segments.cuh"

struct TileArgs {
    const TensorMap *x, *w; // TMA descriptors, tiles of TILE_M and TILE_N / CLUSTER_M rows
    const float *b;         // [N]
    const void *r;          // [M, N] residual: a TMA descriptor, tiles of TILE_M rows; with SPLIT_K > 1 the matrix itself
    const FtxStep *step;
    void *y; // [M, N]
};
struct TileCache {      // append: columns of the product are q, which goes to y, then k and v, which go to the cache
    const float *table; // cos, sin
    const FtxToken *token;
    const int *pages;
    void *k, *v;
};
struct TileNorms {
    const float *rg, *rc; // [N] gain and bias of the residual's norm
    const float *xs, *rs; // row statistics of x and of the residual: body/norm.cuh, RowSums
};
struct TileAppendArgs : TileCache, TileNorms, TileArgs {
};
struct TileNormArgs : TileNorms, TileArgs {
    float *ys; // row statistics of y
};
struct TileHeadArgs : SegmentArgs, TileArgs {
    FtxSegments *segments; // SEGMENTS: of the rows of y, TILE_N columns each; y itself is written as keep_of() says
};

template <class C> struct TileShape {
    static constexpr int WORKERS = 128 * C::WARPGROUPS, THREADS = WORKERS + 32;
    static constexpr bool ONE_TILE = C::WARPGROUPS == 1; // a block computes one tile; the grid has all of them
    static constexpr int TILES_AT_ONCE = C::WARPGROUPS / C::TILE_WARPGROUPS; // tiles that the block works on at a time
    static constexpr int M_BLOCKS = C::TILE_M / 64 / C::TILE_WARPGROUPS;     // blocks of 64 rows of a warpgroup
    static constexpr int CLUSTER_SIZE = C::CLUSTER_M * C::SPLIT_K;           // blocks of a cluster
    static constexpr int R_COLUMNS = least(C::TILE_N, 128);                  // columns of one step of the residual
    static constexpr int R_STEPS = C::RES && C::SPLIT_K == 1 ? C::TILE_N / R_COLUMNS : 0; // steps of the ring for the residual
    static constexpr int X = C::TILE_M * 128, R = round_up(R_COLUMNS, 64) * C::TILE_M * 2; // bytes of a slot's x, residual
    static constexpr int STEPS = ceil_div(C::K, 64);
    static constexpr int OWN_N = C::TILE_N / C::SPLIT_K;                            // columns that this block finishes
    static constexpr int VECTORS = C::R_STATS ? 2 : 1; // such vectors: biases, and gains of the residual's norm
    static constexpr bool BIASED = C::BIAS || C::R_STATS; // the bias of the residual's norm is added to b
    static constexpr bool BIAS_FIRST = C::SMEM_EPILOGUE && !C::X_STATS; // sums start with the bias, not with 0
    static constexpr int RECEIVED_BYTES = (C::SPLIT_K - 1) * C::TILE_M * OWN_N * 4; // sums from the other blocks
    static_assert(C::SPLIT_K == 1 || C::CLUSTER_M * C::WARPGROUPS == 1, "a cluster shares w or splits K");
    static_assert(C::SPLIT_K <= STEPS, "each of SPLIT_K blocks needs a step");
    static_assert(C::WARPGROUPS <= 2, "at most two warpgroups");
    static_assert(R_STEPS <= 1 || (C::SMEM_EPILOGUE && TILES_AT_ONCE == 1 && C::TILE_N % R_COLUMNS == 0),
                  "the residual comes in whole steps");
    static_assert(!C::SEGMENTS || (C::SPLIT_K == 1 && !C::RES && sizeof(typename C::OUT) == 4),
                  "segments need logits in fp32, summed over all of K");
    static_assert(C::TILE_M % 64 == 0 && OWN_N % 8 == 0, "tiles of 64 x 8");
    static_assert(C::TILE_N / C::CLUSTER_M % 8 == 0, "a slice of w is whole groups of 8 rows");
    static_assert((!C::X_STATS || C::BIAS) && (!C::R_STATS || C::RES),
                  "a norm of x needs a bias, a norm of the residual a residual");
    static_assert(!C::Y_STATS || C::Y_STATS == least(OWN_N, R_COLUMNS),
                  "statistics are of the columns that a block finishes at once");
};

// Scale and shift of the norms of the lane's rows of x and of the residual, from row statistics that are loaded early.
// Row i of the lane is its first row + 8 * i + 48 * (i / 2).
struct TileAffine {
    RowAffine x, r;
};
template <class C> struct TileAffineRows {
    static constexpr int ROWS = TileShape<C>::M_BLOCKS * 2;
    RowSums<C::K, C::X_STATS> x[ROWS];
    RowSums<C::N, C::R_STATS> r[ROWS];
    // EARLY: finish before the products, since the registers would not hold sums and statistics at once; else beside them.
    static constexpr int FLOATS = (RowSums<C::K, C::X_STATS>::FLOATS + RowSums<C::N, C::R_STATS>::FLOATS) * ROWS;
    static constexpr bool EARLY = C::WARPGROUPS == 2 && C::TILE_N / 2 * TileShape<C>::M_BLOCKS + FLOATS > 144;
    template <class A> DEVICE void load(const A &a, int row, int live)
    {
        if constexpr (C::X_STATS > 0 || C::R_STATS > 0) {
            wait_for_previous();
#pragma unroll
            for (int i = 0; i < ROWS; i++) {
                const int m = row + i * 8 + i / 2 * 48;
                x[i].load(a.xs, m, m < live);
                r[i].load(a.rs, m, m < live);
            }
        }
    }
    DEVICE void finish(TileAffine (&norm)[ROWS]) const
    {
#pragma unroll
        for (int i = 0; i < ROWS; i++)
            norm[i] = {x[i].affine(C::EPS), r[i].affine(C::R_EPS)};
    }
};

// Row statistics of two rows of y, 8 apart, by the 4 lanes that hold them.
template <class C> struct TileStats {
    float v[2][2] = {}; // row; sum, squares
    DEVICE void add(int row, const Vec<float, 2> &pair)
    {
        if (C::Y_STATS) {
            v[row][0] += pair[0] + pair[1];
            v[row][1] = fmaf(pair[0], pair[0], fmaf(pair[1], pair[1], v[row][1]));
        }
    }
    // Writes sum and squares of rows m and m + 8 over the Y_STATS columns around n: one of the four by each lane.
    template <class A> DEVICE void write(const A &a, int m, int live, int n)
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

// The epilogue on two neighbouring columns: norm of x, bias, activation, residual. Gains stand TILE_N behind the
// biases.
template <class C>
DEVICE Vec<float, 2> tile_epilogue(float v0, float v1, const float *bias, u32 residual, const TileAffine &norm = {})
{
    typedef typename C::T T;
    typedef TileShape<C> P;
    const float old[2] = {C::RES ? low<T>(residual) : 0.0f, C::RES ? high<T>(residual) : 0.0f};
    Vec<float, 2> v, b = {}, g = {};
    v[0] = v0;
    v[1] = v1;
    if (P::BIASED && !P::BIAS_FIRST)
        b = *(const Vec<float, 2> *)bias;
    if (C::R_STATS)
        g = *(const Vec<float, 2> *)(bias + C::TILE_N);
#pragma unroll
    for (int i = 0; i < 2; i++) {
        if (C::X_STATS)
            v[i] = fmaf(v[i], norm.x.scale, b[i]);
        else if (P::BIASED && !P::BIAS_FIRST)
            v[i] += b[i];
        v[i] = sizeof(typename C::OUT) == 2 ? activate_short<C::ACT>(v[i]) : activate<C::ACT>(v[i]);
        if (C::R_STATS)
            v[i] = fmaf(fmaf(old[i], norm.r.scale, norm.r.shift), g[i], v[i]);
        else if (C::RES)
            v[i] += old[i];
    }
    return v;
}

// Destination of row m, looked up before its sums are ready: row m of y; with append also a place in the cache.
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
template <class C> DEVICE typename C::OUT *tile_address(const TileArgs &a, const TileRow &, int m, int n)
{
    return (typename C::OUT *)a.y + (i64)m * C::N + n;
}
template <class C> DEVICE typename C::OUT *tile_address(const TileAppendArgs &a, const AppendRow &to, int m, int n)
{
    if (n < C::H * C::E)
        return (typename C::OUT *)a.y + (i64)m * (C::H * C::E) + n;
    return append_cached<C>(a.k, a.v, to, n);
}
template <class C> DEVICE void tile_rotate(const TileRow &, int, Vec<float, 2> &) {}
template <class C> DEVICE void tile_rotate(const AppendRow &to, int n, Vec<float, 2> &v)
{
    if (C::ROT > 0 && n < C::N)
        append_turn<1>(append_angles<C, 1>(to, n), v);
}

// Writes row m, TILES tiles of 8 columns from column n on. Tile i has sums d[4 * i] and d[4 * i + 1] and residual r[i];
// bias: at the lane's columns. 16-bit results are exchanged among 4 lanes, four tiles at a time, so that each lane
// writes 16 bytes. i: the row's index in `sums`.
template <class C, int TILES, class A, class To>
DEVICE void tile_write(const A &a, const float *d, const u32 (&r)[TILES], const float *bias, const TileAffine &norm,
                       TileStats<C> &sums, int i, int m, bool live, int n, const To &to)
{
    typedef typename C::T T;
    const int t = lane_id() & 3;
    constexpr int FOURS = sizeof(typename C::OUT) == 2 ? TILES / 4 * 4 : 0;
    u32 v[TILES];
#pragma unroll
    for (int j = 0; j < FOURS; j++) {
        Vec<float, 2> pair = tile_epilogue<C>(d[j * 4], d[j * 4 + 1], bias + j * 8, r[j], norm);
        tile_rotate<C>(to, n + j * 8 + 2 * t, pair);
        sums.add(i, pair);
        v[j] = pack2<T>(pair[0], pair[1]);
    }
#pragma unroll
    for (int j = 0; j < FOURS; j += 4) {
        const int mine = n + (j + t) * 8;
        u32 four[4] = {v[j], v[j + 1], v[j + 2], v[j + 3]};
        quad_transpose(four);
        if (live && mine < C::N)
            *(uint4_ *)tile_address<C>(a, to, m, mine) = uint4_{four[0], four[1], four[2], four[3]};
    }
#pragma unroll
    for (int j = FOURS; j < TILES; j++) {
        const int at = n + j * 8 + 2 * t;
        Vec<float, 2> pair = tile_epilogue<C>(d[j * 4], d[j * 4 + 1], bias + j * 8, r[j], norm);
        tile_rotate<C>(to, at, pair);
        sums.add(i, pair);
        if (live && at < C::N)
            store(tile_address<C>(a, to, m, at), from_floats<typename C::OUT>(pair));
    }
}

// The same for logits: writes a segment of the row, and of its logits what `keep` says. d: 2 sums of every 8 columns.
template <class C>
DEVICE void tile_segment(const TileHeadArgs &a, float *d, const float *bias, int m, bool live, int keep, int n)
{
#pragma unroll
    for (int j = 0; j < C::TILE_N / 8; j++) {
        const Vec<float, 2> pair = tile_epilogue<C>(d[j * 4], d[j * 4 + 1], bias + j * 8, 0);
        d[j * 4] = pair[0];
        d[j * 4 + 1] = pair[1];
    }
    quad_write_segment<C::TILE_N / 8, true>(live ? segments_of(a.segments, C::N, m) + n / C::TILE_N : nullptr, (float *)a.y + (i64)m * C::N,
                                  d, n, C::N, keep, inv_temperature_of(a, m, keep));
}

// SMEM_EPILOGUE: writes 16 rows of a warp's tile from (row, column) on through the warp's staging area, so that eight
// lanes write 128 bytes of a row. Unit u (16 bytes) of row r is at u ^ (r & 7), in the staging area and in `slot`,
// which has the residual. bias, norm: at the lane's columns, of its two rows.
template <class C, int COLUMNS, class A>
DEVICE void tile_store_staged(const A &a, const float *d, const float *bias, const TileAffine *norm, u32 slot, u32 stage,
                       int row, int live, int column)
{
    typedef typename C::T T;
    const int lane = lane_id(), r = lane & 15;
    const u32 at = r * 128 + (lane >> 4 ^ r & 7) * 16; // the row that this lane passes to ldmatrix and stmatrix
    TileStats<C> sums;
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
                const Vec<float, 2> pair = tile_epilogue<C>(sum[0], sum[1], bias + tile * 8, old[i], norm[i % 2]);
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
    sums.write(a, row + (lane >> 2), live, column);
}

// The residual of row m of the tile from the slot that holds it, at the lane's columns of every 8.
template <class C> DEVICE void tile_residual(u32 (&r)[C::TILE_N / 8], const char *slot, int m)
{
#pragma unroll
    for (int j = 0; j < C::TILE_N / 8; j++)
        r[j] = *(const u32 *)(slot + j / 8 * C::TILE_M * 128 + m * 128 + (j % 8 ^ (m & 7)) * 16 + (lane_id() & 3) * 4);
}
