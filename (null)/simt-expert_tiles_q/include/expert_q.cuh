// expert_q.cuh - linear layers of experts with quantised weights for few rows: codes of 4 or 8 bits, sm_80 and newer.
//
//   expert_linear   y[m, i*N + n] = epilogue(norm(x)[m,:] . w[e,n,:] + b[e,n])       e: expert i of row m; epilogue: activation, GLU
//   expert_sum      y[m,n] = sum over i of weight * (x[m, i*K:] . w[e,n,:] + b[e,n]) + r[m,n]
//
//   x  [M, K] or [M, R*K]  16-bit, row-major, K % 64 == 0      g [K] fp32   gain of an RMS norm
//   w  [X*N, K]  tiles of 16 rows (runtime/base/packed.h) in the form m16k16 (compiler/ir/forms.def), N % 16 == 0: each expert
//      has tiles of its own                                    b [X*N] fp32, r and y [M, N]
//   routes [M, 2R], starts [X + 1], rows [M*R]: the form by_expert of routes (compiler/ir/forms.def)
//
// What limits it: reading the matrices of the experts that are hit, once each. A unit of work is a tile of w for up to BLOCK_M of
// the expert's rows; how codes become numbers is that of linear_q.cuh. A block has a run of neighbouring units, expert after
// expert, and the rows of x of one expert in shared memory, times the gains of a norm. Its 8 warps are groups of CHAINS, which
// take the block's units in turns:
//
//   - Chain j of a unit has bricks j, j + CHAINS, ... of K. Its warp copies them by cp.async to a ring of its own, STAGES deep,
//     on past the ends of units and experts.
//   - The sums of the chains meet in shared memory, where the unit is finished: of expert_sum by one warp, each time another one,
//     while the others go on.
//
// expert_sum writes the weighted products of each pair of row and expert to `parts`. The last of the R warps that have columns
// of a row adds its parts in the order of the row's experts: so a row's bits do not depend on the others.
#pragma once
#include "device/async.cuh"
#include "device/block.cuh"
#include "device/mma.cuh"
#include "device/pdl.cuh"
#include "body/brick.cuh"
#include "body/last_part.cuh"
#include "body/linear.cuh"

template <class C> struct ExpertQShape {
    static constexpr int WARPS = C::THREADS / 32, GROUPS = WARPS / C::CHAINS;
    static constexpr int UNITS = C::N / 16;                                     // of the rows of an expert
    static constexpr int BRICKS = ceil_div(C::K, C::BRICK_K);
    static constexpr int PIECES = ceil_div(C::K, 256);                          // of a row of x: 32 vectors of 8 elements
    static constexpr int SUM_PITCH = 20;                                        // floats of a tile's 16 sums; no bank conflicts
    static constexpr int SUMS = C::CHAINS * C::BLOCK_M * SUM_PITCH;             // floats of a unit
    static_assert(C::N % 16 == 0 && C::K % 64 == 0 && WARPS % C::CHAINS == 0 && C::CHAINS <= BRICKS, "");
};

// The bricks of this warp in the order in which it multiplies them: those of its chain in unit after unit of its group.
template <class C> struct ExpertQWalk {
    typedef ExpertQShape<C> P;
    typedef Brick<C> Q;
    const char *w, *tile; // of all experts, of this unit
    const ExpertTile *of;
    int chain, left, column, brick; // left: units to the end, this one included
    DEVICE ExpertQWalk(const void *matrices, const ExpertTile *tiles, int chain_, int u, int end)
    {
        w = (const char *)matrices;
        of = tiles + u / P::UNITS;
        chain = brick = chain_;
        column = u % P::UNITS;
        left = end - u;
        open();
    }
    DEVICE bool done() const { return left <= 0; }
    DEVICE void copy(u32 slot)
    {
        Q::copy(tile, brick, slot);
        brick += C::CHAINS;
        if (brick < P::BRICKS)
            return;
        brick = chain;
        left -= P::GROUPS;
        column += P::GROUPS;
        tile += (i64)P::GROUPS * Q::TILE;
        if (column >= P::UNITS) {
            of += column / P::UNITS;
            column %= P::UNITS;
            open();
        }
    }
private:
    DEVICE void open()
    {
        if (!done())
            tile = w + ((i64)of->expert * P::UNITS + column) * Q::TILE;
    }
};

// Rows of x of these pairs to shared memory, times the gains: x [BLOCK_M][X_ROW_BYTES], the sums of groups [groups][BLOCK_M], for
// the norm the sums of squares of every 256 columns [BLOCK_M][PIECES], of expert_sum the weights.
template <class C> DEVICE void expert_q_load(const ExpertArgs &a, const int *pairs, int count, char *shared)
{
    typedef ExpertQShape<C> P;
    typedef typename C::T T;
    constexpr int EACH = ceil_div(C::BLOCK_M * P::PIECES, P::WARPS), ONCE = least(EACH, 8), LANES = C::GROUP / 8;
    float *sums = (float *)(shared + C::X_SUMS_AT), *squares = (float *)(shared + C::SQUARES_AT);
    if (C::SUM && threadIdx.x < count)
        ((float *)(shared + C::WEIGHTS_AT))[threadIdx.x] = expert_weight<C>(a, pairs[threadIdx.x]);
#pragma unroll 1
    for (int first = 0; first < EACH && first * P::WARPS < count * P::PIECES; first += ONCE) {
        uint4_ x[ONCE];
#pragma unroll
        for (int j = 0; j < ONCE; j++) {
            const int piece = warp_id() + P::WARPS * (first + j), m = piece / P::PIECES, v = piece % P::PIECES * 32 + lane_id();
            x[j] = uint4_{0, 0, 0, 0};
            if (m < count && v < C::K / 8)
                x[j] = load_l2((const T *)a.x + (i64)(C::SUM ? pairs[m] : pairs[m] / C::R) * C::K + v * 8);
        }
#pragma unroll
        for (int j = 0; j < ONCE; j++) {
            const int piece = warp_id() + P::WARPS * (first + j), m = piece / P::PIECES, v = piece % P::PIECES * 32 + lane_id();
            const bool here = m < count && v < C::K / 8;
            if (C::NORM) { // of expert_linear a.r is the gain
                const float square = warp_sum(add_squares(0.0f, *(Vec<T, 8> *)&x[j], 0.0f));
                const float *g = (const float *)a.r + least(v, C::K / 8 - 1) * 8;
                x[j] = rms_vector<C>(x[j], pack_gains<T>(load<4>(g), load<4>(g + 4)));
                if (here && lane_id() == 0)
                    squares[piece] = square;
            }
            const float sum = warp_sum<LANES>(add_sum(0.0f, *(Vec<T, 8> *)&x[j]));
            if (!here)
                continue;
            shared_store16(shared_address(shared + C::X_AT + m * C::X_ROW_BYTES) + v * 16, x[j]);
            if (v % LANES == 0)
                sums[v / LANES * C::BLOCK_M + m] = sum;
        }
    }
}

// NORM: 1 / rms of each row.
template <class C> DEVICE void expert_q_scales(int count, char *shared)
{
    typedef ExpertQShape<C> P;
    const float *squares = (const float *)(shared + C::SQUARES_AT);
    for (int m = threadIdx.x; m < count; m += C::THREADS) {
        float sum = squares[m * P::PIECES];
#pragma unroll
        for (int i = 1; i < P::PIECES; i++)
            sum += squares[m * P::PIECES + i];
        ((float *)(shared + C::SCALES_OF_AT))[m] = rms_scale<C::K>(sum, C::EPS);
    }
}

// The outputs of a unit, from the sums of its chains: by warp `rank` of `warps`.
template <class C, class A>
DEVICE void expert_q_finish(const A &a, const ExpertTile &at, const int *pairs, int tile, const float *sums, const char *shared, int rank, int warps)
{
    typedef ExpertQShape<C> P;
    for (int i = rank * 32 + lane_id(); i < at.count * 8; i += warps * 32) {
        const int m = i / 8;
        const float *from = sums + m * P::SUM_PITCH + i % 8 * 2;
        Vec<float, 2> v = load<2>(from);
#pragma unroll
        for (int j = 1; j < C::CHAINS; j++) {
            const Vec<float, 2> more = load<2>(from + j * C::BLOCK_M * P::SUM_PITCH);
            v[0] += more[0];
            v[1] += more[1];
        }
        if (C::NORM) {
            const float scale = ((const float *)(shared + C::SCALES_OF_AT))[m];
            v[0] = __fmul_rn(v[0], scale);
            v[1] = __fmul_rn(v[1], scale);
        }
        const float weight = C::SUM ? ((const float *)(shared + C::WEIGHTS_AT))[m] : 0.0f;
        expert_out2<C>(a, at.expert, pairs[m], weight, tile * 16 + i % 8 * 2, v[0], v[1]);
    }
    if constexpr (C::SUM)
        add_last_part<C>(a, tile * 16, pairs, at.count);
}

template <class C, class A> DEVICE void expert_q(const A &a)
{
    typedef ExpertQShape<C> P;
    typedef Brick<C> Q;
    char *shared = shared_memory();
    ExpertTile *tiles = (ExpertTile *)(shared + C::TILES_AT);
    int *pairs = (int *)(shared + C::PAIRS_AT), *all = (int *)(shared + C::COUNT_AT);
    const int chain = warp_id() % C::CHAINS, group = warp_id() / C::CHAINS;
    launch_dependents();
    wait_for_previous();
    for (int i = threadIdx.x; i < C::PAIRS_MAX; i += C::THREADS) // beyond the live ones, too, but unused
        pairs[i] = a.rows[i];
    if (warp_id() == 0) {
        const int count = for_expert_tiles<C::X, C::BLOCK_M>(a.starts, [&](int i, ExpertTile tile) { tiles[i] = tile; });
        if (lane_id() == 0)
            all[0] = count;
    }
    block_sync();
    const i64 count = (i64)all[0] * P::UNITS;
    const int begin = (int)(count * blockIdx.x / gridDim.x), end = (int)(count * (blockIdx.x + 1) / gridDim.x);
    const u32 ring = shared_address(shared + C::RING_AT) + warp_id() * C::STAGES * Q::SLOT;
    ExpertQWalk<C> walk(a.w, tiles, chain, begin + group, end);
#pragma unroll
    for (int s = 0; s < C::STAGES - 1; s++) {
        if (!walk.done())
            walk.copy(ring + s * Q::SLOT);
        copy_commit();
    }
    const u32 x = shared_address(shared + C::X_AT);
    const float *x_sums = (const float *)(shared + C::X_SUMS_AT);
    float *sums = (float *)(shared + C::SUMS_AT) + group * 2 * P::SUMS;
    int slot = 0, turn = 0, unit = begin + group;
    for (int first = begin; first < end;) {
        const ExpertTile at = tiles[first / P::UNITS];
        const int last = least(end, (first / P::UNITS + 1) * P::UNITS);
        if (first > begin)
            block_sync(); // nobody reads the rows of the expert before
        expert_q_load<C>(a, pairs + at.first, at.count, shared);
        block_sync();
        if (C::NORM) {
            expert_q_scales<C>(at.count, shared);
            block_sync();
        }
        for (; unit < last; unit += P::GROUPS, turn++) {
            float total[Q::COLUMN_TILES][4] = {};
#pragma unroll 1
            for (int b = chain; b < P::BRICKS; b += C::CHAINS) {
                copy_wait<C::STAGES - 2>();
                warp_sync();
                if (!walk.done())
                    walk.copy(ring + (slot ? slot - 1 : C::STAGES - 1) * Q::SLOT);
                copy_commit();
                Q::multiply(total, shared + C::RING_AT + (warp_id() * C::STAGES + slot) * Q::SLOT, x + b * (C::BRICK_K * 2),
                            x_sums + b * (Q::GROUPS * C::BLOCK_M), C::K - b * C::BRICK_K);
                slot = slot + 1 == C::STAGES ? 0 : slot + 1;
            }
            float *own = sums + turn % 2 * P::SUMS;
            Q::put(total, own + chain * C::BLOCK_M * P::SUM_PITCH, P::SUM_PITCH);
            named_barrier_sync(1 + group, C::CHAINS * 32);
            const int rank = (chain + turn) % C::CHAINS; // who finishes changes
            if (!C::SUM || rank == 0)
                expert_q_finish<C>(a, at, pairs + at.first, unit % P::UNITS, own, shared, rank, C::SUM ? 1 : C::CHAINS);
        }
        first = last;
    }
}
