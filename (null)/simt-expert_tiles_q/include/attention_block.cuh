// attention_block.cuh - a whole residual block of attention, for up to 8 rows that bring one token each (sm_90):
//
//   self    y = z + attend(append(n(x) w^T + b)) wo^T + bo      w [3*H*E, D]: queries, keys, values
//   cross   y = z + attend_cross(n(x) w^T + b) wo^T + bo        w [H*E, D]: queries
//
//   x, y [M, D]   16-bit; sums in fp32       n(x)  layer norm, RMS norm or x       z  x, or n(x) where PRE is 0
//   wo [D, H*E]   row-major, as w
//   k, v          self: the layer's pages; cross: the sources of the layer
//
// With so few rows no kernel is limited by bytes: each pays for its launch, the wait for x and a sum over warps. So one
// cluster does everything, one block a head. Before the previous kernel has ended, a block has loaded its share of the
// weights: its rows of w into registers, as the A operand of m16n8k16 (a warp has up to 128 columns of one of q, k, v
// for one slice of D); its columns of wo and the first keys and values into shared memory. After the wait:
//
//   x from L2, n(x) ── products with w ── sum over SPLIT slices of D: q, k, v of the head ── attention; the warps'
//   partial results added ── products with wo ── sent to the block that finishes the column, which adds the heads in order
//
// Every sum is added in an order that follows from D, the heads and the row's own length: a row's bits depend neither
// on its neighbours nor on M.
#pragma once
#include "device/async.cuh"
#include "device/block.cuh"
#include "device/cluster.cuh"
#include "device/mbarrier.cuh"
#include "device/mma.cuh"
#include "device/pdl.cuh"
#include "body/append.cuh"
#include "body/brief.cuh"
#include "body/norm.cuh"
#include "body/source.cuh"

struct AttentionBlockArgs {
    const void *x;       // [M, D]
    const void *w;       // [COLUMNS of all heads, D]
    const float *g, *c;  // [D] gain and bias of the norm
    const float *b;      // of w
    const void *wo;      // [D, H*E]
    const float *bo;     // [D]
    const float *table;  // self: cos, sin of each position; cross: NULL
    const FtxStep *step;
    const FtxRow *rows;
    const int *pages;
    const int *owner;
    void *k, *v;         // of the layer
    void *y;             // [M, D]
};

// What follows from the constants of an instance.
template <class K> struct AttentionBlockShape {
    using C = Columns<K>;
    static constexpr int M = K::M, GROUPS = K::CROSS ? 1 : 3, SPLIT = K::CROSS ? 8 : 4;
    static constexpr int WARPS = GROUPS * SPLIT, THREADS = WARPS * 32;
    static constexpr int TILES = ceil_div(K::E, 16);                     // tiles of 16 columns of a group (q, k or v)
    static constexpr int STEPS = ceil_div(ceil_div(K::D, 32), SPLIT);    // steps of 32 k of a slice of D
    static constexpr int COLUMNS = GROUPS * C::WIDE; // of all groups
    static constexpr int BEHIND = K::STAGES + 1;                         // groups of copies that follow that of the floats
    static_assert(C::WIDE <= 128 && K::D % 8 == 0 && M <= 8 && M <= WARPS, "");
    static_assert(8 * TILES * STEPS + 4 * TILES <= 144, "the weights of a warp do not fit its registers");
};

// Where a row's keys are.
struct AttentionBlockRow {
    BriefRow at; // self: the row; cross: only length and slot, of its source
    int page;    // self: page of the step's own position
};
template <class K> DEVICE AttentionBlockRow attention_block_row(const AttentionBlockArgs &a, int m)
{
    AttentionBlockRow r = {};
    if constexpr (K::CROSS) {
        r.at.length = a.rows[m].src_len;
        r.at.slot = a.rows[m].src_slot;
    } else {
        r.at = brief_row<K>(a.rows, m);
        r.page = a.pages[r.at.slot * ceil_div(K::CONTEXT, K::BLOCK) + (r.at.length - 1) / K::BLOCK];
    }
    return r;
}

DEVICE void add_pair(Vec<float, 2> &v, const Vec<float, 2> &more)
{
    v[0] += more[0];
    v[1] += more[1];
}

// The warp's weights in registers: lane 4g + t has columns 16i + 2g and the next one of its group, and 8 neighbouring k
// of each step. Elements outside of the matrix are zero.
template <class K> struct AttentionBlockWeights {
    using S = AttentionBlockShape<K>;
    using T = typename K::T;
    uint4_ w[S::TILES][S::STEPS][2];

    static DEVICE int group() { return warp_id() / S::SPLIT; }
    static DEVICE int slice() { return warp_id() % S::SPLIT; }
    static DEVICE int k(int step) { return (slice() * S::STEPS + step) * 32 + (lane_id() & 3) * 8; }

    DEVICE void fetch(const AttentionBlockArgs &a, int head)
    {
        const T *from = (const T *)a.w + (i64)(group() * K::HEADS + head) * K::E * K::D;
#pragma unroll
        for (int j = 0; j < S::STEPS; j++)
#pragma unroll
            for (int i = 0; i < S::TILES; i++)
#pragma unroll
                for (int h = 0; h < 2; h++) {
                    const int column = i * 16 + (lane_id() >> 2) * 2 + h;
                    w[i][j][h] = uint4_{0, 0, 0, 0};
                    if ((K::E % 16 == 0 || column < K::E) && (K::D % (32 * S::SPLIT) == 0 || k(j) < K::D))
                        w[i][j][h] = *(const uint4_ *)(from + (i64)column * K::D + k(j));
                }
    }
    // Products with the rows of x, to sums [SPLIT][M][LINE].
    DEVICE void multiply(u32 x, float *sums) const
    {
        const int g = lane_id() >> 2, t = lane_id() & 3;
        float d[S::TILES][4] = {};
#pragma unroll
        for (int j = 0; j < S::STEPS; j++) {
            uint4_ v = {0, 0, 0, 0};
            if (g < S::M && (K::D % (32 * S::SPLIT) == 0 || k(j) < K::D))
                v = shared_load16(x + g * K::X_ROW_BYTES + k(j) * 2);
#pragma unroll
            for (int i = 0; i < S::TILES; i++) {
                mma<T>(d[i], w[i][j][0].x, w[i][j][1].x, w[i][j][0].y, w[i][j][1].y, v.x, v.y);
                mma<T>(d[i], w[i][j][0].z, w[i][j][1].z, w[i][j][0].w, w[i][j][1].w, v.z, v.w);
            }
        }
        float *to = sums + (slice() * S::M + 2 * t) * K::SUM_LINE + group() * S::C::WIDE + 2 * g;
#pragma unroll
        for (int i = 0; i < S::TILES; i++)
#pragma unroll
            for (int e = 0; e < 2; e++) // of tokens 2t, 2t+1
                if (2 * t + e < S::M) {
                    Vec<float, 2> v;
                    v[0] = d[i][e];
                    v[1] = d[i][2 + e];
                    store(to + e * K::SUM_LINE + i * 16, v);
                }
    }
};

// Starts the copies of the small vectors: gains and biases of the norm, biases of w and wo.
template <class K> DEVICE void attention_block_floats(const AttentionBlockArgs &a, int head, char *shared)
{
    using S = AttentionBlockShape<K>;
    const u32 gain = shared_address(shared + K::GAINS_AT), bias = shared_address(shared + K::BIASES_AT);
#pragma unroll 1
    for (int i = threadIdx.x; i < K::D / 4 && K::NORM > 0; i += S::THREADS) {
        copy16(gain + i * 16, a.g + i * 4);
        if (K::NORM == 2)
            copy16(gain + K::D * 4 + i * 16, a.c + i * 4);
    }
#pragma unroll 1
    for (int i = threadIdx.x; i < S::GROUPS * K::E && K::BIAS; i += S::THREADS)
        copy4(bias + (i / K::E * S::C::WIDE + i % K::E) * 4, a.b + (i / K::E * K::HEADS + head) * K::E + i % K::E);
#pragma unroll 1
    for (int i = threadIdx.x; i < K::EACH && head * K::EACH + i < K::D && K::BIAS_OUT; i += S::THREADS)
        copy4(bias + (S::COLUMNS + i) * 4, a.bo + head * K::EACH + i);
}

// Starts the copy of the head's columns of wo. Rows are permuted within each 32, row 4i + r to place 8r + i, so that mma
// leaves four neighbouring columns of y in one lane.
template <class K> DEVICE void attention_block_wo(const AttentionBlockArgs &a, int head, char *shared)
{
    using S = AttentionBlockShape<K>;
    using C = Columns<K>;
    const u32 to = shared_address(shared);
#pragma unroll 2
    for (int i = threadIdx.x; i < K::D * C::VECS; i += S::THREADS) {
        const int n = i / C::VECS, row = n / 32 * 32 + n % 4 * 8 + n % 32 / 4;
        copy16(to + C::Rows::piece(row, i % C::VECS), (const typename K::T *)a.wo + ((i64)n * K::HEADS + head) * K::E + i % C::VECS * 8);
    }
    if (C::WIDE > K::E) // zeros behind the E columns
        for (int row = threadIdx.x; row < round_up(K::D, 32); row += S::THREADS)
            shared_store16(to + C::Rows::piece(row, C::VECS), uint4_{0, 0, 0, 0});
}

// Row m of x, held by warp m, to shared memory as n(x), and with PRE also as it is.
template <class K> DEVICE void attention_block_norm(const Vec<typename K::T, 8> (&row)[ceil_div(K::D, 256)], int m, char *shared)
{
    using S = AttentionBlockShape<K>;
    using T = typename K::T;
    const float *gain = (const float *)(shared + K::GAINS_AT), *bias = gain + K::D;
    const u32 x = shared_address(shared + K::X_AT + m * K::X_ROW_BYTES), raw = shared_address(shared + K::RAW_AT + m * K::X_ROW_BYTES);
    RowStat s = {};
    if (K::NORM > 0)
        s = held_stat<K::NORM, K::D>(row, K::EPS);
#pragma unroll
    for (int i = 0; i < ceil_div(K::D, 256); i++) {
        const int v = i * 32 + lane_id();
        if (v >= K::D / 8)
            continue;
        Vec<T, 8> y = row[i];
        if (K::PRE)
            shared_store16(raw + v * 16, *(const uint4_ *)&row[i]);
        if (K::NORM > 0)
#pragma unroll
            for (int e = 0; e < 8; e++)
                y[e] = from_float<T>(norm_apply(to_float(row[i][e]), s, gain[v * 8 + e], K::NORM == 2 ? bias[v * 8 + e] : 0.0f));
        shared_store16(x + v * 16, *(const uint4_ *)&y);
    }
}

// Finishes q, k and v of the head: a thread has two neighbouring columns of ROUNDS rows.
template <class K> struct AttentionBlockHead {
    using S = AttentionBlockShape<K>;
    using T = typename K::T;
    static constexpr int PAIRS = S::COLUMNS / 2, AT_ONCE = S::THREADS / PAIRS, ROUNDS = ceil_div(S::M, AT_ONCE);
    Vec<float, 2> angle[ROUNDS];

    static DEVICE int column() { return (int)threadIdx.x % PAIRS * 2; }
    static DEVICE int group() { return column() / S::C::WIDE; }
    static DEVICE int element() { return column() % S::C::WIDE; } // of the head
    static DEVICE int row(int round) { return (int)threadIdx.x / PAIRS + round * AT_ONCE; }
    static DEVICE bool some(int round, int live)
    {
        return (int)threadIdx.x < PAIRS * AT_ONCE && (K::E % 16 == 0 || element() < K::E) && row(round) < live;
    }
    DEVICE void fetch(const AttentionBlockArgs &a, int head, int live)
    {
        if constexpr (!K::CROSS)
            if (K::ROT > 0)
#pragma unroll
                for (int i = 0; i < ROUNDS; i++)
                    if (some(i, live))
                        angle[i] = append_angles<K, 1>(AppendRow{0, 0, a.table + (i64)(a.rows[row(i)].kv_len - 1) * K::ROT},
                                                       (group() * K::HEADS + head) * K::E + element());
    }
    DEVICE void finish(int live, char *shared) const
    {
        const float *sums = (const float *)(shared + K::SUMS_AT) + column();
#pragma unroll
        for (int i = 0; i < ROUNDS; i++) {
            const int m = row(i);
            if (!some(i, live))
                break;
            Vec<float, 2> v = load<2>(sums + m * K::SUM_LINE);
#pragma unroll
            for (int p = 1; p < S::SPLIT; p++)
                add_pair(v, load<2>(sums + (p * S::M + m) * K::SUM_LINE));
            if (K::BIAS)
                add_pair(v, load<2>((const float *)(shared + K::BIASES_AT) + column()));
            if constexpr (!K::CROSS)
                if (K::ROT > 0)
                    append_turn<1>(angle[i], v);
            store((T *)(shared + K::HEAD_AT + (group() * S::M + m) * K::H_ROW_BYTES) + element(), from_floats<T>(v));
        }
    }
};

// Writes keys and values of the step's own tokens from shared memory to the cache.
template <class K> DEVICE void attention_block_append(const AttentionBlockArgs &a, const AttentionBlockRow *rows, int head, int live, const char *shared)
{
    using S = AttentionBlockShape<K>;
    using T = typename K::T;
    constexpr int VECS = Columns<K>::VECS;
#pragma unroll 1
    for (int i = threadIdx.x; i < 2 * live * VECS; i += S::THREADS) {
        const int m = i / VECS % live, kind = i / VECS / live; // kind 1: values
        T *to = (T *)(kind ? a.v : a.k) +
                (((i64)rows[m].page * K::HEADS + head) * K::BLOCK + (rows[m].at.length - 1) % K::BLOCK) * K::E + i % VECS * 8;
        *(uint4_ *)to = *(const uint4_ *)(shared + K::HEAD_AT + ((1 + kind) * S::M + m) * K::H_ROW_BYTES + i % VECS * 16);
    }
}

// Self attention. The tiles of a row's keys are dealt out to SLICES slices: slice s has the tiles s, s + SLICES, ...
// SHARE warps share a row and take slices in turn, so the order of a sum does not depend on how many warps that are. As
// in attend_brief.cuh, but the step's own key and value come from shared memory.
template <class K, bool CROSS = K::CROSS> struct AttentionBlockKeys {
    using S = AttentionBlockShape<K>;
    using C = Columns<K>;
    static constexpr int OF_SLICE = ceil_div(ceil_div(K::CONTEXT, C::TILE), K::SLICES);  // tiles of a slice
    static constexpr int TURNS = ceil_div(K::SLICES, K::SHARE) * OF_SLICE;               // turns of a warp, a tile each

    static DEVICE int row() { return warp_id() / K::SHARE; }
    static DEVICE int slice(int turn) { return warp_id() % K::SHARE + turn / OF_SLICE * K::SHARE; }
    // The tile of the warp's turn; one past the row's last tile does not exist.
    static DEVICE int tile(int turn)
    {
        return K::SLICES % K::SHARE == 0 || slice(turn) < K::SLICES ? slice(turn) + turn % OF_SLICE * K::SLICES : 1 << 20;
    }
    static DEVICE char *slot(int turn, char *shared)
    {
        return shared + K::TILES_AT + (warp_id() * K::STAGES + turn % K::STAGES) * K::TILE_BYTES;
    }
    static DEVICE void issue(const AttentionBlockArgs &a, const BriefRow &r, int head, int turn, char *shared)
    {
        if (tile(turn) * C::TILE < r.length)
            brief_issue<K>(BriefCache{a.k, a.v, a.pages, a.owner}, r, head, tile(turn), shared_address(slot(turn, shared)));
    }

    // Commits STAGES groups of copies; warps from KEY_WARPS on have no row.
    DEVICE void begin(const AttentionBlockArgs &a, int head, int live, char *shared)
    {
        BriefRow r = {};
        if (row() < live)
            r = brief_row<K>(a.rows, row());
        // Not unrolled, the loop makes the compiler spill some of the weights' registers.
#pragma unroll 4
        for (int i = 0; i < K::STAGES; i++) {
            if (row() < live)
                C::pad(slot(i, shared));
            issue(a, r, head, i, shared);
            copy_commit();
        }
    }
    // Copies the step's own key and value to their place in a tile.
    static DEVICE void own(u32 tile, int length, const char *shared)
    {
        if (lane_id() < 2 * C::VECS) {
            const int kind = lane_id() / C::VECS, piece = lane_id() % C::VECS;
            const uint4_ x = *(const uint4_ *)(shared + K::HEAD_AT + ((1 + kind) * S::M + row()) * K::H_ROW_BYTES + piece * 16);
            shared_store16(tile + kind * C::TILE * K::PITCH + C::Rows::piece((length - 1) % C::TILE, piece), x);
        }
        warp_sync();
    }
    DEVICE void attend(const AttentionBlockArgs &a, int head, const AttentionBlockRow *rows, int live, char *shared)
    {
        if (row() >= live)
            return;
        const BriefRow r = rows[row()].at;
        const int last = (r.length - 1) / C::TILE; // the tile of the step's own token
        C state;
        state.fetch(lane_id() < 4 ? (const typename K::T *)(shared + K::HEAD_AT + row() * K::H_ROW_BYTES) : nullptr);
#pragma unroll 1
        for (int i = 0; i < TURNS; i++) {
            const u32 at = shared_address(slot(i, shared));
            copy_wait<K::STAGES - 1>();
            warp_sync();
            if (tile(i) <= last) {
                if (i % OF_SLICE == 0)
                    state.start();
                if (tile(i) == last)
                    own(at, r.length, shared);
                state.tile(at, 0, r.length - tile(i) * C::TILE);
                warp_sync();
                if (tile(i) + K::SLICES > last)
                    state.put((float *)(shared + K::PARTIALS_AT) + (row() * K::SLICES + slice(i)) * C::PARTIAL, 0, 1);
            }
            if (i + K::STAGES < TURNS)
                issue(a, r, head, i + K::STAGES, shared);
            copy_commit();
        }
    }
};

// Cross attention: KEY_WARPS warps share the tiles of all rows' sources (body/source.cuh).
template <class K> struct AttentionBlockKeys<K, true> {
    using S = AttentionBlockShape<K>;
    using C = Columns<K>;
    SourceWalk<K> walk, ahead;

    static DEVICE char *tiles(char *shared) { return shared + K::TILES_AT + warp_id() * K::STAGES * K::TILE_BYTES; }
    DEVICE void begin(const AttentionBlockArgs &a, int head, int live, char *shared)
    {
        AttentionBlockRow r = {};
        if (lane_id() < live)
            r = attention_block_row<K>(a, lane_id());
        walk.start(warp_id() < K::KEY_WARPS ? live : 0, r.at.slot, r.at.length);
        ahead = source_begin<K>(SourceCache{a.k, a.v, head}, walk, tiles(shared));
    }
    DEVICE void attend(const AttentionBlockArgs &a, int head, const AttentionBlockRow *, int live, char *shared)
    {
        const int g = lane_id() >> 2;
        source_attend<K>(SourceCache{a.k, a.v, head}, walk, ahead, tiles(shared),
                         g < live ? (const typename K::T *)(shared + K::HEAD_AT + g * K::H_ROW_BYTES) : nullptr,
                         (float *)(shared + K::PARTIALS_AT) + warp_id() * S::M * C::PARTIAL);
    }
};

// Adds the partial results of attention; the head's result takes the place of its queries.
template <class K> DEVICE void attention_block_join(const AttentionBlockRow *rows, int live, char *shared)
{
    using S = AttentionBlockShape<K>;
    using C = Columns<K>;
    const float *partial = (const float *)(shared + K::PARTIALS_AT);
#pragma unroll 1
    for (int i = threadIdx.x * 2; i < live * K::E; i += S::THREADS * 2) {
        const int m = i / K::E, used = least(K::SLICES, ceil_div(rows[m].at.length, C::TILE));
        const Vec<float, 2> y = add_few_partials<K, K::SLICES>(partial + m * (K::CROSS ? 1 : K::SLICES) * C::PARTIAL, used, (K::CROSS ? S::M : 1) * C::PARTIAL, i % K::E);
        store((typename K::T *)(shared + K::HEAD_AT + m * K::H_ROW_BYTES) + i % K::E, from_floats<typename K::T>(y));
    }
}

// Sends what the head adds to y to the blocks that finish the columns, four neighbouring columns in one write: a write
// to another SM's shared memory takes 1 ns, whatever its width.
template <class K> DEVICE void attention_block_out(int head, u32 arrived, char *shared)
{
    using S = AttentionBlockShape<K>;
    using C = Columns<K>;
    using T = typename K::T;
    constexpr int ALL = ceil_div(K::D, 32), ROUNDS = ceil_div(ALL, S::WARPS);
    const int lane = lane_id(), g = lane >> 2, t = lane & 3;
    C state; // only to load the B operand, row g of the head's result
    state.fetch(g < S::M ? (const T *)(shared + K::HEAD_AT + g * K::H_ROW_BYTES) : nullptr);
    const u32 wo = shared_address(shared) + C::Rows::piece(lane % 16, lane / 16);
    const u32 mine = shared_address(shared + K::HEADS_AT + head * S::M * K::EACH * 4);
#pragma unroll(ROUNDS <= 4 ? ROUNDS : 4)
    for (int i = 0; i < ROUNDS; i++) {
        const int tile = i * S::WARPS + warp_id(), n = tile * 32 + 4 * g;
        if (tile >= ALL)
            break;
        float d[2][4] = {};
#pragma unroll
        for (int j = 0; j < C::STEPS; j++)
#pragma unroll
            for (int h = 0; h < 2; h++) {
                u32 w[4];
                ldmatrix4(w, C::Rows::pair(wo, j) + (tile * 2 + h) * 16 * K::PITCH);
                mma<T>(d[h], w, state.q[0][j]);
            }
        if (n >= K::D)
            continue;
        const u32 rank = n / K::EACH, to = cluster_map(mine + n % K::EACH * 4, rank), count = cluster_map(arrived, rank);
#pragma unroll
        for (int e = 0; e < 2; e++)
            if (2 * t + e < S::M)
                cluster_send4(to + (2 * t + e) * K::EACH * 4, d[0][e], d[0][2 + e], d[1][e], d[1][2 + e], count);
    }
}

// Finishes this block's columns of y: sum over the heads in order, bias, residual.
template <class K> DEVICE void attention_block_finish(const AttentionBlockArgs &a, int rank, int live, const char *shared)
{
    using S = AttentionBlockShape<K>;
    using T = typename K::T;
    constexpr int PAIRS = K::EACH / 2;
#pragma unroll 1
    for (int i = threadIdx.x; i < live * PAIRS; i += S::THREADS) {
        const int m = i / PAIRS, column = i % PAIRS * 2, n = rank * K::EACH + column;
        if (n >= K::D)
            continue;
        const float *from = (const float *)(shared + K::HEADS_AT) + m * K::EACH + column;
        Vec<float, 2> v = load<2>(from);
#pragma unroll
        for (int h = 1; h < K::HEADS; h++)
            add_pair(v, load<2>(from + h * S::M * K::EACH));
        if (K::BIAS_OUT)
            add_pair(v, load<2>((const float *)(shared + K::BIASES_AT) + S::COLUMNS + column));
        add_pair(v, to_floats(load<2>((const T *)(shared + (K::PRE ? K::RAW_AT : K::X_AT) + m * K::X_ROW_BYTES) + n)));
        store((T *)a.y + (i64)m * K::D + n, from_floats<T>(v));
    }
}

template <class K> // K: T KV M D HEADS KV_HEADS H G E CROSS NORM PRE BIAS BIAS_OUT EPS SCALE SOFTCAP KEY_WARPS SLICES STAGES;
                   // FIRST: reads before the wait nothing that a step writes; self: ROT BLOCK CONTEXT BEAMS SHARE; cross: SOURCE UNIT
DEVICE void attention_block(const AttentionBlockArgs &a)
{
    using S = AttentionBlockShape<K>;
    using C = Columns<K>;
    using T = typename K::T;
    SHARED(u64, barrier, 1);
    SHARED(AttentionBlockRow, rows, 8);
    char *shared = shared_memory();
    const u32 arrived = shared_address(barrier);
    const int head = cluster_rank();
    if (!K::FIRST)
        launch_dependents();
    if (threadIdx.x == 0) {
        mbarrier_init(arrived, 1);
        mbarrier_init_fence();
        mbarrier_expect(arrived, K::HEADS * S::M * most(0, least(K::EACH, K::D - head * K::EACH)) * 4);
    }
    warp_sync();
    cluster_arrive();

    // Read before the wait: weights, and what is written between programs only ($step, $rows, $pages, $owner, cached
    // positions before the step's own, sources). Loads without a look-up come first.
    attention_block_floats<K>(a, head, shared);
    copy_commit();
    AttentionBlockWeights<K> weights;
    weights.fetch(a, head);
    if (K::FIRST) { // all other inputs may still be written by the previous step
        attention_block_wo<K>(a, head, shared);
        wait_for_previous();
        launch_dependents();
    }
    const int live = least(a.step->decode_rows, S::M);
    AttentionBlockKeys<K> keys;
    keys.begin(a, head, live, shared);
    AttentionBlockHead<K> projection;
    projection.fetch(a, head, live);
    if (threadIdx.x < live)
        rows[threadIdx.x] = attention_block_row<K>(a, threadIdx.x);
    if (!K::FIRST)
        attention_block_wo<K>(a, head, shared); // needed last
    copy_commit();
    copy_wait<S::BEHIND>(); // the small vectors have arrived
    block_sync();
    cluster_wait(); // all blocks have initialised their barriers
    wait_for_previous();

    Vec<T, 8> row[ceil_div(K::D, 256)];
    if (warp_id() < live)
        hold_row<K::D>(row, (const T *)a.x + (i64)warp_id() * K::D);
    if (warp_id() < live)
        attention_block_norm<K>(row, warp_id(), shared);
    block_sync();
    weights.multiply(shared_address(shared + K::X_AT), (float *)(shared + K::SUMS_AT));
    block_sync();
    projection.finish(live, shared);
    block_sync();
    if (warp_id() < K::KEY_WARPS)
        keys.attend(a, head, rows, live, shared);
    copy_wait<0>();
    block_sync();
    attention_block_join<K>(rows, live, shared);
    block_sync();
    attention_block_out<K>(head, arrived, shared);
    if constexpr (!K::CROSS)
        attention_block_append<K>(a, rows, head, live, shared);
    mbarrier_wait(arrived, 0);
    attention_block_finish<K>(a, head, live, shared);
}
