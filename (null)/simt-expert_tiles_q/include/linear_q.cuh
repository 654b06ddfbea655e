// linear_q.cuh - linear layers of 1 to 64 rows with quantised weights: codes of 4 or 8 bits, sm_80 and newer.
//
//   y[m,n] = epilogue(sum_k norm(x)[m,k] * w[n,k] + b[n])         epilogue: activation, GLU, residual, RoPE + cache
//   w[n,k] = scale[n, k / GROUP] * (code[n,k] - zero[n, k / GROUP])                                (body/linear.cuh)
//
//   x  [M, K]  16-bit, row-major, K % 64 == 0     g [K] fp32   gain of an RMS norm
//   w  tiles of 16 rows (runtime/base/packed.h) in the form m16k16 (compiler/ir/forms.def)
//   b  [N] fp32, r [M, N];  y [M, N] 16-bit or fp32            sums in fp32
//
// What limits it: reading w once. A tile of w is the first operand of mma.m16n8k16, rows of x are the second, 8 at a time.
//
//   - A code becomes an element of T by logic instructions alone: the bits of 128 (half: 1024) with a nibble in the lowest
//     bits are 128 + nibble. A code of 8 bits is two nibbles with a sum each, added as 16 * high + low.
//   - The sum of a group starts at -(128 + zero) * (sum of x over the group), which takes the 128 and the zero out again.
//   - Scales multiply the sum of a group in fp32. So w is never rounded.
//
// A brick is 16 rows and BRICK_K k. K is cut into SLICES; chain j of 8 has bricks j, j + 8, ... of each slice. THREADS / 256
// groups of 8 warps take the tiles in turns, each warp a chain. It copies its own bricks by cp.async to a ring of its own,
// STAGES deep, from before the previous kernel has ended. x, with the gains of the norm, lies in shared memory.
//
//   blocks     the CLUSTER_SIZE blocks of a cluster compute the same tiles, each SLICES / CLUSTER_SIZE slices of K
//   grid       x: clusters, each with a run of neighbouring tiles; y: BLOCK_M rows
//   a round    ROUND_TILES tiles, whose sums are then added and finished by all threads
//
// Order of summation: within a group even and odd 16 k (int8: high and low nibbles) apart; groups and bricks in order; then
// the 8 chains of a slice, then the slices. It depends on K alone (SLICES does), but above 8 rows int4 has no parts by 16 k and
// SLICES are others: a row has the same bits for 1 to 8 rows and for 9 to 64, but not across that border.
#pragma once
#include "device/async.cuh"
#include "device/block.cuh"
#include "device/cluster.cuh"
#include "device/mbarrier.cuh"
#include "device/mma.cuh"
#include "device/pdl.cuh"
#include "body/brick.cuh"
#include "body/linear.cuh"

template <class C> struct QuantShape {
    static constexpr int WARPS = C::THREADS / 32, GROUPS = WARPS / 8;
    static constexpr int BRICKS = ceil_div(C::K, C::BRICK_K), OWN_SLICES = C::SLICES / C::CLUSTER_SIZE;
    static constexpr int X_BRICKS = ceil_div(BRICKS, C::CLUSTER_SIZE);          // of a block, at most
    static constexpr int X_SQUARES = X_BRICKS * (C::BRICK_K / 64);              // sums of squares of a row of x
    static constexpr int X_PIECES = ceil_div(X_BRICKS * (C::BRICK_K / 8), 32);               // of a row of x: 32 vectors of 8 elements
    static constexpr int COLUMN_TILES = ceil_div(C::BLOCK_M, 8);
    static constexpr int SUM_PITCH = 20;                                        // floats of a tile's 16 sums; no bank conflicts
    static constexpr int SUMS = C::ROUND_TILES * OWN_SLICES * 8 * C::BLOCK_M * SUM_PITCH; // floats of a round
    static constexpr int PAIRS = C::ROUND_TILES * 8 * C::BLOCK_M, OWN_PAIRS = PAIRS / C::CLUSTER_SIZE; // outputs of a round
    static constexpr int ITEMS = ceil_div(OWN_PAIRS, C::THREADS);                      // of a thread
    static constexpr int RECEIVED = C::SLICES * OWN_PAIRS * 2;                  // floats of a round, of all blocks
    static constexpr int RECEIVED_BYTES = (C::CLUSTER_SIZE - 1) * OWN_SLICES * OWN_PAIRS * 8;
    static_assert(C::K % 64 == 0 && C::SLICES % C::CLUSTER_SIZE == 0 && PAIRS % C::CLUSTER_SIZE == 0, "");
    static DEVICE int slice(int s) { return s * BRICKS / C::SLICES; }           // its first brick
};

// This block's work: tiles [first, first + count), bricks [begin, end) of K, rows from `row` on.
template <class C> struct QuantWork {
    int rank, first, count, begin, end, row;
    int chain, group; // of the warp
    DEVICE QuantWork()
    {
        typedef QuantShape<C> P;
        const int tiles = ceil_div(C::N, 16), clusters = gridDim.x / C::CLUSTER_SIZE, cluster = blockIdx.x / C::CLUSTER_SIZE;
        rank = C::CLUSTER_SIZE > 1 ? cluster_rank() : 0;
        first = (int)((i64)cluster * tiles / clusters);
        count = (int)((i64)(cluster + 1) * tiles / clusters) - first;
        begin = P::slice(rank * P::OWN_SLICES);
        end = P::slice((rank + 1) * P::OWN_SLICES);
        row = blockIdx.y * C::BLOCK_M;
        chain = warp_id() & 7;
        group = warp_id() >> 3;
    }
};

// The bricks of this warp in the order in which it multiplies them: those of its chain in slice after slice of a tile.
template <class C> struct QuantWalk {
    const char *tile, *last; // tiles of w
    int s, end, brick;       // brick: the next one; s: its slice, which ends before brick `end`
    DEVICE QuantWalk(const LinearArgs &a, const QuantWork<C> &at)
    {
        tile = (const char *)a.w + (i64)(at.first + at.group) * Brick<C>::TILE;
        last = (const char *)a.w + (i64)(at.first + at.count) * Brick<C>::TILE;
        open(at, 0);
        settle(at);
    }
    DEVICE bool done() const { return tile >= last; }
    DEVICE void next(const QuantWork<C> &at)
    {
        brick += 8;
        settle(at);
    }
private:
    DEVICE void open(const QuantWork<C> &at, int slice)
    {
        typedef QuantShape<C> P;
        s = slice;
        brick = P::slice(at.rank * P::OWN_SLICES + s) + at.chain;
        end = P::slice(at.rank * P::OWN_SLICES + s + 1);
    }
    DEVICE void settle(const QuantWork<C> &at) // past the ends of slices and tiles
    {
        while (brick >= end && tile < last) {
            const bool whole = s + 1 == QuantShape<C>::OWN_SLICES;
            tile += whole ? QuantShape<C>::GROUPS * (i64)Brick<C>::TILE : 0;
            open(at, whole ? 0 : s + 1);
        }
    }
};

// Gains of the norm to shared memory, in x's type.
template <class C> DEVICE void quant_load_gains(const LinearArgs &a, const QuantWork<C> &at, char *shared)
{
    if (C::NORM)
        for (int v = threadIdx.x; v < (least(C::K, at.end * C::BRICK_K) - at.begin * C::BRICK_K) / 8; v += C::THREADS)
            shared_store16(shared_address(shared + C::GAINS_AT) + v * 16,
                           pack_gains<typename C::T>(load<4>(a.g + at.begin * C::BRICK_K + v * 8), load<4>(a.g + at.begin * C::BRICK_K + v * 8 + 4)));
}

// Loads this block's columns of x into shared memory, times the gains: x [BLOCK_M][X_ROW_BYTES], the sums of groups
// [groups][BLOCK_M] and, for the norm, the sums of squares of every 64 columns [BLOCK_M][X_SQUARES]. Rows that are not
// live become 0.
template <class C> DEVICE void quant_load_x(const LinearArgs &a, const QuantWork<C> &at, int live, char *shared)
{
    typedef QuantShape<C> P;
    typedef typename C::T T;
    constexpr int PIECES = P::X_PIECES * C::BLOCK_M, EACH = ceil_div(PIECES, P::WARPS), ONCE = least(EACH, 8), LANES = C::GROUP / 8;
    const int vectors = (least(C::K, at.end * C::BRICK_K) - at.begin * C::BRICK_K) / 8;
    float *sums = (float *)(shared + C::X_SUMS_AT), *squares = (float *)(shared + C::SQUARES_AT);
#pragma unroll 1
    for (int first = 0; first < EACH; first += ONCE) {
        uint4_ x[ONCE];
#pragma unroll
        for (int j = 0; j < ONCE; j++) {
            const int piece = warp_id() + P::WARPS * (first + j), m = piece / P::X_PIECES, v = piece % P::X_PIECES * 32 + lane_id();
            x[j] = uint4_{0, 0, 0, 0};
            if (piece < PIECES && v < vectors && at.row + m < live)
                x[j] = load_l2((const T *)a.x + (i64)source_row<C::LAST>(a.rows, at.row + m) * C::K + at.begin * C::BRICK_K + v * 8);
        }
#pragma unroll
        for (int j = 0; j < ONCE; j++) {
            const int piece = warp_id() + P::WARPS * (first + j), m = piece / P::X_PIECES, v = piece % P::X_PIECES * 32 + lane_id();
            const bool here = piece < PIECES && v < vectors;
            if (C::NORM) {
                const float square = warp_sum<8>(add_squares(0.0f, *(Vec<T, 8> *)&x[j], 0.0f));
                if (here) {
                    x[j] = rms_vector<C>(x[j], shared_load16(shared_address(shared + C::GAINS_AT) + v * 16));
                    if (v % 8 == 0)
                        squares[m * P::X_SQUARES + v / 8] = square;
                }
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

// Sums of squares of the rows, for each slice of K; those of this block's slices go to all blocks of the cluster.
template <class C> DEVICE void quant_square_sums(const QuantWork<C> &at, char *shared, u32 arrived)
{
    typedef QuantShape<C> P;
    const float *squares = (const float *)(shared + C::SQUARES_AT);
    float *to = (float *)(shared + C::STATS_AT); // [SLICES][BLOCK_M]
    for (int i = warp_id(); i < C::BLOCK_M * P::OWN_SLICES; i += P::WARPS) {
        const int m = i % C::BLOCK_M, s = at.rank * P::OWN_SLICES + i / C::BLOCK_M;
        constexpr int EACH = C::BRICK_K / 64;
        const int from = (P::slice(s) - at.begin) * EACH, last = least(C::K / 64, P::slice(s + 1) * EACH) - at.begin * EACH;
        float sum = 0.0f;
        for (int v = from + lane_id(); v < last; v += 32)
            sum += squares[m * P::X_SQUARES + v];
        sum = warp_sum(sum);
        if (lane_id() == at.rank)
            to[s * C::BLOCK_M + m] = sum;
        else if (lane_id() < C::CLUSTER_SIZE)
            cluster_send(cluster_map(shared_address(to + s * C::BLOCK_M + m), lane_id()), sum, cluster_map(arrived, lane_id()));
    }
}
// 1 / rms of a row of this block.
template <class C> DEVICE float quant_scale(const char *shared, int m)
{
    const float *from = (const float *)(shared + C::STATS_AT);
    float sum = from[m];
#pragma unroll
    for (int s = 1; s < C::SLICES; s++)
        sum += from[s * C::BLOCK_M + m];
    return rms_scale<C::K>(sum, C::EPS);
}

// Sends the sums of a round to the blocks that finish them: pair p belongs to block p % CLUSTER_SIZE. It receives
// [SLICES][OWN_PAIRS].
template <class C> DEVICE void quant_send(const QuantWork<C> &at, const float *sums, float *received, int here, u32 arrived)
{
    typedef QuantShape<C> P;
    for (int i = threadIdx.x; i < P::PAIRS * P::OWN_SLICES; i += C::THREADS) {
        const int p = i % P::PAIRS, s = i / P::PAIRS, to = p % C::CLUSTER_SIZE;
        float *own = received + ((at.rank * P::OWN_SLICES + s) * P::OWN_PAIRS + p / C::CLUSTER_SIZE) * 2;
        Vec<float, 2> v = zeros<float, 2>();
        if (p / (8 * C::BLOCK_M) < here)
            v = brick_add_warps<C::BLOCK_M * P::SUM_PITCH>(sums + (p / (8 * C::BLOCK_M) * P::OWN_SLICES + s) * 8 * C::BLOCK_M * P::SUM_PITCH +
                                                           p / 8 % C::BLOCK_M * P::SUM_PITCH + p % 8 * 2);
        if (to == at.rank)
            store(own, v);
        else
            cluster_send2(cluster_map(shared_address(own), to), v[0], v[1], cluster_map(arrived, to));
    }
}

// SEGMENTS: writes the columns kept since the last segment as a new one, row m by warp m; behind the block's last tile also
// empty segments for those that it does not need, and the number of segments of a row. tile: the next tile of `at`.
template <class C> DEVICE void quant_segment(const LinearHeadArgs &a, const QuantWork<C> &at, const float *kept, int tile, int live, int keep)
{
    constexpr int TILES = SEGMENT_COLUMNS / 16;
    const int each = ceil_div(ceil_div(ceil_div(C::N, 16), (int)gridDim.x), TILES), m = warp_id(), lane = lane_id();
    const int index = (tile - 1) / TILES, column = (at.first + index * TILES) * 16;
    block_sync();
    if (m < live) {
        FtxSegment *to = segments_of(a.segments, C::N, m) + blockIdx.x * each;
        warp_write_segment<SEGMENT_COLUMNS>(to + index, (float *)a.y + (i64)m * C::N, kept + m * SEGMENT_COLUMNS, column,
                                            least((at.first + tile) * 16, C::N) - column, keep, inv_temperature_of(a, m, keep));
        if (tile == at.count && index + 1 + lane < each)
            segment_store_empty(to + index + 1 + lane, C::N);
    }
    if (blockIdx.x == 0 && threadIdx.x == 0)
        a.segments->count = gridDim.x * each;
}

template <class C, class A> DEVICE void linear_q(const A &a)
{
    typedef QuantShape<C> P;
    typedef Brick<C> Q;
    launch_dependents();
    char *shared = shared_memory();
    const QuantWork<C> at;
    const u32 arrived = shared_address(shared), squares = arrived + 8; // mbarriers: sums of a round, of squares of x
    const u32 ring = shared_address(shared + C::RING_AT) + warp_id() * (C::STAGES * Q::SLOT);
    QuantWalk<C> walk(a, at);
#pragma unroll 1
    for (int i = 0; i < C::STAGES - 1; i++) {
        if (!walk.done()) {
            Q::copy(walk.tile, walk.brick, ring + i * Q::SLOT);
            walk.next(at);
        }
        copy_commit();
    }
    if (C::CLUSTER_SIZE > 1 && threadIdx.x == 0) {
        mbarrier_init(arrived, 1);
        mbarrier_init(squares, 1);
        mbarrier_init_fence();
        if (C::NORM)
            mbarrier_expect(squares, (C::CLUSTER_SIZE - 1) * P::OWN_SLICES * C::BLOCK_M * 4);
    }
    quant_load_gains<C>(a, at, shared);
    block_sync();
    if (C::CLUSTER_SIZE > 1)
        cluster_arrive();
    wait_for_previous();
    const int live = least(live_rows<C::ROWS_S>(a.step), C::M);
    int *places = (int *)(shared + C::PLACES_AT), keep = 0;
    if constexpr (C::SEGMENTS)
        keep = warp_id() < live ? keep_of(a, warp_id()) : 0;
    quant_load_x<C>(a, at, live, shared);
    if constexpr (C::APPEND)
        if (threadIdx.x < C::BLOCK_M && at.row + threadIdx.x < live)
            linear_find_place<C>(a, at.row + threadIdx.x, places);
    if (C::CLUSTER_SIZE > 1)
        cluster_wait();
    block_sync();
    if (C::NORM)
        quant_square_sums<C>(at, shared, squares);

    const u32 x = shared_address(shared + C::X_AT);
    const float *x_sums = (const float *)(shared + C::X_SUMS_AT);
    int slot = 0;
    for (int t0 = 0, round = 0; t0 < at.count; t0 += C::ROUND_TILES, round++) {
        const int here = least(C::ROUND_TILES, at.count - t0);
        float *sums = (float *)(shared + C::SUMS_AT) + round % C::BUFFERS * P::SUMS;
        float *received = (float *)(shared + C::RECEIVED_AT);
        if (C::CLUSTER_SIZE > 1 && threadIdx.x == 0)
            mbarrier_expect(arrived, P::RECEIVED_BYTES);
#pragma unroll 1
        for (int i = 0; i < here * P::OWN_SLICES; i++) {
            const int s = at.rank * P::OWN_SLICES + i % P::OWN_SLICES;
            if (P::GROUPS > 1 && (t0 + i / P::OWN_SLICES) % P::GROUPS != at.group)
                continue;
            float total[P::COLUMN_TILES][4] = {};
#pragma unroll 1
            for (int b = P::slice(s) + at.chain; b < P::slice(s + 1); b += 8) {
                copy_wait<C::STAGES - 2>();
                warp_sync();
                if (!walk.done()) {
                    Q::copy(walk.tile, walk.brick, ring + (slot ? slot - 1 : C::STAGES - 1) * Q::SLOT);
                    walk.next(at);
                }
                copy_commit();
                Q::multiply(total, shared + C::RING_AT + (warp_id() * C::STAGES + slot) * Q::SLOT, x + (b - at.begin) * (C::BRICK_K * 2),
                            x_sums + (b - at.begin) * (Q::GROUPS * C::BLOCK_M), C::K - b * C::BRICK_K);
                slot = slot + 1 == C::STAGES ? 0 : slot + 1;
            }
            Q::put(total, sums + (i * 8 + at.chain) * C::BLOCK_M * P::SUM_PITCH, P::SUM_PITCH);
        }
        const auto item = [&](int i, int &m, int &n) {
            const int own = threadIdx.x + i * C::THREADS, p = own * C::CLUSTER_SIZE + at.rank;
            m = at.row + p / 8 % C::BLOCK_M;
            n = (at.first + t0 + p / (8 * C::BLOCK_M)) * 16 + p % 8 * 2;
            return own < P::OWN_PAIRS && p / (8 * C::BLOCK_M) < here && m < live && n < C::N;
        };
        const auto wait = [&] {
            block_sync();
            if constexpr (C::CLUSTER_SIZE > 1) {
                if (round) // all blocks have read the round before
                    cluster_wait();
                quant_send<C>(at, sums, received, here, arrived);
                if (C::NORM)
                    mbarrier_wait(squares, 0);
                mbarrier_wait(arrived, round % 2);
                block_sync();
            }
        };
        const auto sum = [&](int m, int n) {
            const int row = m - at.row, pair = n / 2 - (at.first + t0) * 8, tile = pair / 8;
            Vec<float, 2> all;
#pragma unroll
            for (int s = 0; s < C::SLICES; s++) {
                const Vec<float, 2> v = C::CLUSTER_SIZE > 1
                                            ? load<2>(received + (s * P::OWN_PAIRS + ((tile * C::BLOCK_M + row) * 8 + pair % 8) / C::CLUSTER_SIZE) * 2)
                                            : brick_add_warps<C::BLOCK_M * P::SUM_PITCH>(sums + ((tile * C::SLICES + s) * 8 * C::BLOCK_M + row) * P::SUM_PITCH + pair % 8 * 2);
                all[0] = s ? all[0] + v[0] : v[0];
                all[1] = s ? all[1] + v[1] : v[1];
            }
            if (C::NORM) {
                const float scale = quant_scale<C>(shared, row);
                all[0] = __fmul_rn(all[0], scale);
                all[1] = __fmul_rn(all[1], scale);
            }
            return all;
        };
        if constexpr (C::SEGMENTS) {
            float *kept = (float *)(shared + C::KEPT_AT);
            const int next = t0 + here;
            int m, n;
            wait();
            for (int i = 0; i < P::ITEMS; i++)
                if (item(i, m, n)) {
                    const LinearBias bias = linear_bias<C>(a, n);
                    const Vec<float, 2> v = sum(m, n);
                    float *to = kept + m * SEGMENT_COLUMNS + (n - at.first * 16) % SEGMENT_COLUMNS;
                    to[0] = v[0] + bias.b[0];
                    to[1] = v[1] + bias.b[1];
                }
            if (next * 16 % SEGMENT_COLUMNS == 0 || next == at.count)
                quant_segment<C>(a, at, kept, next, live, keep);
        } else {
            linear_finish<C, P::ITEMS, least(P::ITEMS, 2)>(a, places, item, wait, sum);
        }
        if (C::BUFFERS == 1)
            block_sync();
        if (C::CLUSTER_SIZE > 1 && t0 + C::ROUND_TILES < at.count)
            cluster_arrive();
    }
}
