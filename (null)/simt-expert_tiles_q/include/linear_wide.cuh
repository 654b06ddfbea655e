// linear_wide.cuh - linear layers of up to 64 rows by mma.sync, any K and N, every target from sm_80 on.
//
//   y[m,n] = epilogue(sum_k norm(x)[m,k] * w[n,k] + b[n])         epilogue: activation, GLU, residual, RoPE + cache
//                                                                 (body/linear.cuh)
//   x  [M, K]  16-bit, row-major                  g, c [K] fp32   gain and bias of the norm
//   w  [N, K]  16-bit, row-major                  b [N] fp32, r [M, N]
//   y  [M, N]  16-bit or fp32                     sums in fp32
//
// A block computes TILE_N columns for all M rows, with the sums in registers, and walks through K in stages of 128:
// w [TILE_N, 128] and x [BLOCK_M, 128] come to shared memory by cp.async; w starts before the previous kernel has
// ended.
//
//   warps:  4 over the 128 k of a stage (32 each)  x  1 or 2 over the rows  x  1 to 4 over the columns
//
// Each TILE_N columns read x from L2 again, so TILE_N is as large as the registers allow. On sm_90 a pair of blocks
// (CLUSTER_SIZE = 2) shares TILE_N columns: one takes the even stages, one the odd, so each reads half of x; they swap
// half of their sums through distributed shared memory, and each finishes half of the rows.
//
// ROW_BLOCKS: any number of rows; blocks with the same blockIdx.y compute 64 of them.
//
// Order of summation: that of body/linear.cuh. Warp j over k of stage s has block 4s + j of 32 k, whose chain is (4s +
// j) mod 8. A block without a partner sweeps over the even stages, then over the odd ones, for the same order.
//
// Shared memory: [stages][w TILE_N x 256 | x BLOCK_M x 256 | g, c 512 each] | sums | sums of the other block or of the
// second sweep | statistics | cache places | mbarrier.
#pragma once
#include "device/async.cuh"
#include "device/block.cuh"
#include "device/cluster.cuh"
#include "device/mbarrier.cuh"
#include "device/mma.cuh"
#include "device/pdl.cuh"
#include "body/linear.cuh"

template <class C> struct WideShape {
    static constexpr int GROUPS = C::THREADS / 128;                                // groups of four warps
    static constexpr int M_GROUPS = C::BLOCK_M == 64 ? 2 : 1, N_GROUPS = GROUPS / M_GROUPS; // of them over m, over n
    static constexpr int M_TILES = C::BLOCK_M / 16 / M_GROUPS, N_TILES = C::TILE_N / N_GROUPS / 8; // 16-row and 8-column tiles of a warp
    static constexpr int K_STAGES = ceil_div(C::K, 128);                           // stages of 128 k
    static constexpr bool FAST = C::K % 8 == 0;                                    // rows are 16-byte aligned
    static constexpr bool STREAMED = C::NORM == 1 && FAST; // squares are summed from the stages, not in a pass of their own
    static constexpr int AT_ONCE = C::THREADS / 16, STATS = ceil_div(C::BLOCK_M, AT_ONCE);
    static constexpr int PAIRS = C::BLOCK_M / C::CLUSTER_SIZE * (C::TILE_N / 2), ITEMS = ceil_div(PAIRS, C::THREADS); // outputs
    static_assert(C::TILE_N % 16 == 0, "at least two tiles of 8 columns");
};

// The order of the stages of this block: rows row .. row + TILE_N of w, 128 k from s * 128.
template <class C> struct WideWalk {
    int row, s;
    DEVICE void next(int rank)
    {
        s += 2;
        if (s < WideShape<C>::K_STAGES)
            return;
        if (C::CLUSTER_SIZE == 1 && s % 2 == 0 && WideShape<C>::K_STAGES > 1) {
            s = 1;
        } else {
            row += C::TILE_N;
            s = C::CLUSTER_SIZE == 1 ? 0 : rank;
        }
    }
};

// Byte offset of unit u (16 bytes) of a row of 256 bytes. Odd rows swap neighbouring groups of 64 bytes, so that the
// eight lanes of a quarter warp, which read 4 units of two neighbouring rows, have no bank conflict.
DEVICE int wide_unit(int row, int u) { return row * 256 + (u ^ (row & 1) << 2) * 16; }

// Copies eight elements from column k of a row into a 16-byte unit, zeros at and beyond K; all zeros if `row` is NULL.
// any: an address that may be read.
template <class C> DEVICE void wide_copy(u32 to, const typename C::T *row, int k, const void *any)
{
    if constexpr (WideShape<C>::FAST) {
        const bool inside = row && k < C::K;
        copy16(to, inside ? row + k : any, inside ? 16 : 0);
    } else {
        u32 w[4];
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const u32 lo = row && k + 2 * i < C::K ? row[k + 2 * i].bits : 0;
            const u32 hi = row && k + 2 * i + 1 < C::K ? row[k + 2 * i + 1].bits : 0;
            w[i] = hi << 16 | lo;
        }
        shared_store16(to, uint4_{w[0], w[1], w[2], w[3]});
    }
}

// Stage `at` of w, and of g and c of the norm: thread i copies unit i % 16 of rows i / 16, i / 16 + AT_ONCE, ...
template <class C> DEVICE void wide_load_w(const LinearArgs &a, WideWalk<C> at, int last, u32 stage)
{
    typedef WideShape<C> P;
    typedef typename C::T T;
    const int r = threadIdx.x >> 4, u = threadIdx.x & 15, left = last - at.row - r;
    const T *from = (const T *)a.w + (i64)(at.row + r) * C::K;
    const u32 to = stage + wide_unit(r, u);
#pragma unroll
    for (int i = 0; i < ceil_div(C::TILE_N, P::AT_ONCE); i++)
        if (i * P::AT_ONCE < left && (C::TILE_N % P::AT_ONCE == 0 || r + i * P::AT_ONCE < C::TILE_N))
            wide_copy<C>(to + i * P::AT_ONCE * 256, from + (i64)i * P::AT_ONCE * C::K, at.s * 128 + u * 8, a.w);
    if (C::NORM && threadIdx.x < 32 * C::NORM) {
        const int k = at.s * 128 + (threadIdx.x & 31) * 4, bytes = least(16, most(0, C::K - k) * 4);
        const float *vector = (threadIdx.x < 32 ? a.g : a.c) + (bytes ? k : 0);
        copy16(stage + (C::TILE_N + C::BLOCK_M) * 256 + threadIdx.x * 16, vector, bytes);
    }
}

// The same stage of x.
template <class C> DEVICE void wide_load_x(const LinearArgs &a, WideWalk<C> at, int live, u32 stage)
{
    typedef WideShape<C> P;
    typedef typename C::T T;
    const int r = threadIdx.x >> 4, u = threadIdx.x & 15;
    const T *from = (const T *)a.x + (i64)r * C::K;
    const u32 to = stage + C::TILE_N * 256 + wide_unit(r, u);
#pragma unroll
    for (int i = 0; i < ceil_div(C::BLOCK_M, P::AT_ONCE); i++) {
        const int m = r + i * P::AT_ONCE;
        if (C::BLOCK_M % P::AT_ONCE && m >= C::BLOCK_M)
            break;
        const T *row = C::LAST ? (const T *)a.x + (i64)source_row<C::LAST>(a.rows, most(0, least(m, live - 1))) * C::K
                               : from + (i64)i * P::AT_ONCE * C::K;
        wide_copy<C>(to + i * P::AT_ONCE * 256, m < (C::ROWS_S || C::ROW_BLOCKS ? live : C::M) ? row : 0, at.s * 128 + u * 8, a.x);
    }
}

// A warp's place in the tile: its 32 k of each stage, first row, first tile of 8 columns.
template <class C> struct WideWarp {
    int kw, m, tile;
    DEVICE WideWarp()
        : kw(warp_id() & 3), m((warp_id() >> 2) / WideShape<C>::N_GROUPS * WideShape<C>::M_TILES * 16),
          tile((warp_id() >> 2) % WideShape<C>::N_GROUPS * WideShape<C>::N_TILES) {}
};

// Multiplies this warp's 32 k of one stage: two instructions of 16 k, as in linear.cuh.
template <class C>
DEVICE void wide_stage(float (&d)[WideShape<C>::M_TILES][WideShape<C>::N_TILES][4], u32 stage, const RowStat *stat)
{
    typedef WideShape<C> P;
    typedef typename C::T T;
    constexpr int AT_A_TIME = least(P::N_TILES, P::M_TILES == 1 ? 4 : 2);
    const WideWarp<C> at;
    const int g = lane_id() >> 2, t = lane_id() & 3;
    const u32 unit = wide_unit(g, at.kw * 4 + t);
    const u32 wa = stage + at.tile * 2048 + unit, xa = stage + (C::TILE_N + at.m) * 256 + unit;
    u32 x[2][P::M_TILES][4];
    {
        uint4_ gain, rows[P::M_TILES][2];
        Vec<float, 4> vector[2][2];  // gains, biases
#pragma unroll
        for (int i = 0; i < P::M_TILES; i++) {
            rows[i][0] = shared_load16(xa + i * 4096);
            rows[i][1] = shared_load16(xa + i * 4096 + 2048);
        }
        if constexpr (C::NORM != 0) {
            const u32 va = stage + (C::TILE_N + C::BLOCK_M) * 256 + (at.kw * 32 + t * 8) * 4;
#pragma unroll
            for (int h = 0; h < 2; h++) {
                *(uint4_ *)&vector[0][h] = shared_load16(va + h * 16);
                if (C::NORM == 2)
                    *(uint4_ *)&vector[1][h] = shared_load16(va + 512 + h * 16);
            }
            gain = pack_gains<T>(vector[0][0], vector[0][1]);
        }
#pragma unroll
        for (int i = 0; i < P::M_TILES; i++)
#pragma unroll
            for (int r = 0; r < 2; r++) {
                uint4_ v = rows[i][r];
                if constexpr (C::NORM == 1)
                    v = rms_vector<C>(v, gain);
                if constexpr (C::NORM == 2)
                    v = layer_vector<C>(v, stat[at.m + i * 16 + r * 8 + g], vector[0][0], vector[0][1], vector[1][0], vector[1][1]);
                x[0][i][r] = v.x;
                x[0][i][r + 2] = v.y;
                x[1][i][r] = v.z;
                x[1][i][r + 2] = v.w;
            }
    }
#pragma unroll
    for (int j = 0; j < P::N_TILES; j += AT_A_TIME) {
        uint4_ w[AT_A_TIME];
#pragma unroll
        for (int n = 0; n < AT_A_TIME; n++)
            if (j + n < P::N_TILES)
                w[n] = shared_load16(wa + (j + n) * 2048);
#pragma unroll
        for (int h = 0; h < 2; h++) // two products into one sum are issued far apart
#pragma unroll
            for (int n = 0; n < AT_A_TIME; n++)
#pragma unroll
                for (int i = 0; i < P::M_TILES; i++)
                    if (j + n < P::N_TILES)
                        mma<T>(d[i][j + n], x[h][i][0], x[h][i][1], x[h][i][2], x[h][i][3], h ? w[n].z : w[n].x, h ? w[n].w : w[n].y);
    }
}

// Adds the squares of x in this stage, for the root mean square.
template <class C> DEVICE void wide_squares(float (&s)[WideShape<C>::STATS], u32 stage)
{
    typedef WideShape<C> P;
#pragma unroll
    for (int i = 0; i < P::STATS; i++) {
        if (C::BLOCK_M % P::AT_ONCE && threadIdx.x / 16 + i * P::AT_ONCE >= C::BLOCK_M)
            break;
        const uint4_ x = shared_load16(stage + (C::TILE_N + i * P::AT_ONCE) * 256 + wide_unit(threadIdx.x / 16, threadIdx.x & 15));
        s[i] = add_squares(s[i], *(const Vec<typename C::T, 8> *)&x, 0.0f);
    }
}

// Adds the sums of the four warps over k in their order. The warps with kw == 3 hold the result.
template <class C> DEVICE void wide_reduce(float (&d)[WideShape<C>::M_TILES][WideShape<C>::N_TILES][4], float *sums)
{
    typedef WideShape<C> P;
    const WideWarp<C> at;
    const int g = lane_id() >> 2, t = lane_id() & 3;
#pragma unroll
    for (int p = 0; p < 4; p++) {
        if (at.kw == p)
#pragma unroll
            for (int j = 0; j < P::N_TILES; j++)
#pragma unroll
                for (int i = 0; i < P::M_TILES * 2; i++) {
                    Vec<float, 2> *to = (Vec<float, 2> *)(sums + (at.tile + j) * C::SUM + (at.m + i * 8 + g) * 8 + 2 * t);
                    float &v0 = d[i / 2][j][i % 2 * 2], &v1 = d[i / 2][j][i % 2 * 2 + 1];
                    if (p > 0) {
                        const Vec<float, 2> before = *to;
                        v0 = before[0] + v0;
                        v1 = before[1] + v1;
                    }
                    if (p < 3) {
                        Vec<float, 2> v;
                        v[0] = v0;
                        v[1] = v1;
                        *to = v;
                    }
                }
        if (p < 3)
            block_sync();
    }
}

// Writes the result to where the epilogue reads it. In a pair of blocks, the half of the rows that the other block
// finishes is sent to it.
template <class C>
DEVICE void wide_send_sums(float (&d)[WideShape<C>::M_TILES][WideShape<C>::N_TILES][4], float *mine, float *others, u32 arrived, int rank)
{
    typedef WideShape<C> P;
    const WideWarp<C> at;
    const int g = lane_id() >> 2, t = lane_id() & 3;
    if (at.kw != 3)
        return;
#pragma unroll
    for (int h = 0; h < (P::M_GROUPS == 2 ? 1 : 2); h++) { // a half of the rows: all rows of this warp, or half of them
        constexpr int GROUPS = P::M_GROUPS == 2 ? 2 * P::M_TILES : P::M_TILES;  // of 8 rows
        if (C::CLUSTER_SIZE == 1 || (P::M_GROUPS == 2 ? at.m * 2 / C::BLOCK_M : h) == rank) {
            float *to = mine + at.tile * C::SUM + (at.m + g) * 8 + 2 * t;
#pragma unroll
            for (int j = 0; j < P::N_TILES; j++)
#pragma unroll
                for (int i = h * GROUPS; i < (h + 1) * GROUPS; i++) {
                    Vec<float, 2> v;
                    v[0] = d[i / 2][j][i % 2 * 2];
                    v[1] = d[i / 2][j][i % 2 * 2 + 1];
                    *(Vec<float, 2> *)(to + j * C::SUM + i * 64) = v;
                }
        } else {
            const u32 to = cluster_map(shared_address(others + at.tile * C::OTHER_SUM + g * 8 + 2 * t), rank ^ 1);
            const u32 count = cluster_map(arrived, rank ^ 1);
#pragma unroll
            for (int j = 0; j < P::N_TILES; j++)
#pragma unroll
                for (int i = 0; i < GROUPS; i++)
                    cluster_send2(to + (j * C::OTHER_SUM + i * 64) * 4, d[(i + h * GROUPS) / 2][j][(i + h * GROUPS) % 2 * 2],
                                  d[(i + h * GROUPS) / 2][j][(i + h * GROUPS) % 2 * 2 + 1], count);
        }
    }
}

// Finishes TILE_N columns from `row` on: adds the two halves of the sum, multiplies by the norm's 1 / rms, runs the
// epilogue.
template <class C>
DEVICE void wide_finish(const LinearArgs &a, const float *sums, const float *others, const float *half, const RowStat *stat, const int *places,
                        u32 arrived, u32 parity, int rank, int live, int row, int last)
{
    typedef WideShape<C> P;
    constexpr int ROWS = C::BLOCK_M / C::CLUSTER_SIZE, AHEAD = least(P::ITEMS, C::APPEND || C::BLOCK_M == 64 ? 2 : 4);
    const int base = C::CLUSTER_SIZE == 2 ? rank * ROWS : 0;
    const auto at = [&](int i, int &m, int &n) {
        const int item = threadIdx.x + i * C::THREADS;
        m = base + item / (C::TILE_N / 2);
        n = row + item % (C::TILE_N / 2) * 2;
        return item < P::PAIRS && m < live && n < last;
    };
    const auto wait = [&] {
        if (C::CLUSTER_SIZE == 2)
            mbarrier_wait(arrived, parity);
        block_sync();
    };
    const auto sum = [&](int m, int n) {
        const int pair = (n - row) / 2;
        Vec<float, 2> all = load<2>(sums + (pair >> 2) * C::SUM + m * 8 + (pair & 3) * 2);
        const Vec<float, 2> v = load<2>(others + (pair >> 2) * C::OTHER_SUM + (m - base) * 8 + (pair & 3) * 2);
        all[0] += v[0];
        all[1] += v[1];
        if (C::NORM == 1) {
            const float scale = P::STREAMED ? rms_scale<C::K>(half[m] + half[C::BLOCK_M + m], C::EPS) : stat[m].scale;
            all[0] = __fmul_rn(all[0], scale);
            all[1] = __fmul_rn(all[1], scale);
        }
        return all;
    };
    linear_finish<C, P::ITEMS, AHEAD>(a, places, at, wait, sum);
}

// Rows before .. before + M; all pointers of `a` are moved there.
template <class C> DEVICE void wide_rows(const LinearArgs &a, int before)
{
    typedef WideShape<C> P;
    typedef typename C::T T;
    launch_dependents();
    char *shared = shared_memory();
    const u32 ring = shared_address(shared);
    float *sums = (float *)(shared + C::SUMS_AT), *others = (float *)(shared + C::OTHERS_AT);
    float *half = (float *)(shared + C::STATS_AT);  // [2][BLOCK_M]: sums of squares of even and odd stages
    RowStat *stat = (RowStat *)half;               // layer norm
    const int rank = C::CLUSTER_SIZE == 2 ? blockIdx.x & 1 : 0, pair = blockIdx.x / C::CLUSTER_SIZE, pairs = gridDim.x / C::CLUSTER_SIZE;
    const int tiles = ceil_div(C::N, 8);
    const int first = (int)((i64)pair * tiles / pairs) * 8;
    const int last = least((int)((i64)(pair + 1) * tiles / pairs) * 8, C::N);
    const int passes = ceil_div(last - first, C::TILE_N);
    const int total = passes * (C::CLUSTER_SIZE == 1 ? P::K_STAGES : (P::K_STAGES + 1 - rank) / 2);
    const u32 arrived = shared_address(shared + C::BARRIER_AT);  // counts the bytes that the other block sends
    u32 parity = 0;
    if (C::CLUSTER_SIZE == 2) {
        if (threadIdx.x == 0) {
            mbarrier_init(arrived, 1);
            mbarrier_init_fence();
        }
        warp_sync();
        cluster_arrive();
    }

    WideWalk<C> walk = {first, C::CLUSTER_SIZE == 1 ? 0 : rank}, ahead = walk;
    for (int i = 0; i < C::STAGES - 1 && i < total; i++, ahead.next(rank))
        wide_load_w<C>(a, ahead, last, ring + i * C::STAGE_BYTES);
    const int live = least(live_rows<C::ROWS_S>(a.step) - before, C::M);  // no kernel of a program writes it
    wait_for_previous();
    ahead = walk;
    for (int i = 0; i < C::STAGES - 1; i++) {
        if (i < total) {
            wide_load_x<C>(a, ahead, live, ring + i * C::STAGE_BYTES);
            ahead.next(rank);
        }
        copy_commit();
    }
    int *places = (int *)(shared + C::PLACES_AT);
    if constexpr (C::APPEND)
        if (threadIdx.x < live)
            linear_find_place<C>(a, threadIdx.x, places);
    if (C::NORM && !P::STREAMED) {
        for (int m = warp_id(); m < live; m += C::THREADS / 32) {
            const RowStat s = row_stat<C::NORM, C::K>((const T *)a.x + (i64)source_row<C::LAST>(a.rows, m) * C::K, C::EPS);
            if (lane_id() == 0)
                stat[m] = s;
        }
    }

    float squares[P::STATS] = {};
    int slot = 0, more = total - (C::STAGES - 1); // stages still to be loaded
    for (int row = first; row < last; row += C::TILE_N) {
#pragma unroll 1
        for (int sweep = 0; sweep < (C::CLUSTER_SIZE == 1 ? 2 : 1); sweep++) {
            const int h = C::CLUSTER_SIZE == 1 ? sweep : rank;
            float d[P::M_TILES][P::N_TILES][4] = {};
#pragma unroll 1
            for (int s = h; s < P::K_STAGES; s += 2) {
                copy_wait<C::STAGES - 2>();
                block_sync();
                if (more-- > 0) {
                    const u32 free = ring + (slot == 0 ? C::STAGES - 1 : slot - 1) * C::STAGE_BYTES;
                    wide_load_w<C>(a, ahead, last, free);
                    wide_load_x<C>(a, ahead, live, free);
                    ahead.next(rank);
                }
                copy_commit();
                if (P::STREAMED && row == first)
                    wide_squares<C>(squares, ring + slot * C::STAGE_BYTES);
                wide_stage<C>(d, ring + slot * C::STAGE_BYTES, stat);
                slot = slot == C::STAGES - 1 ? 0 : slot + 1;
            }
            float *to = sweep == 0 ? sums : others;
            if (C::CLUSTER_SIZE == 2) {
                cluster_wait(); // both blocks have read what they received last time
                if (threadIdx.x == 0)
                    mbarrier_expect(arrived, C::TILE_N * C::BLOCK_M * 2 + (P::STREAMED && row == first ? C::BLOCK_M * 4 : 0));
            }
            wide_reduce<C>(d, to);
            wide_send_sums<C>(d, to, others, arrived, rank);
            if (P::STREAMED && row == first) {
#pragma unroll
                for (int i = 0; i < P::STATS; i++) {
                    const int m = threadIdx.x / 16 + i * P::AT_ONCE;
                    float v = squares[i];
                    squares[i] = 0.0f;
#pragma unroll
                    for (int x = 8; x; x /= 2)
                        v += shuffle_xor(v, x);
                    if ((threadIdx.x & 15) == 0 && m < C::BLOCK_M) {
                        half[h * C::BLOCK_M + m] = v;
                        if (C::CLUSTER_SIZE == 2)
                            cluster_send(cluster_map(shared_address(half + h * C::BLOCK_M + m), rank ^ 1), v,
                                         cluster_map(arrived, rank ^ 1));
                    }
                }
            }
        }
        wide_finish<C>(a, sums, others, half, stat, places, arrived, parity, rank, live, row, last);
        parity ^= 1;
        if (C::CLUSTER_SIZE == 2)
            cluster_arrive();
        else
            block_sync();
    }
    if (C::CLUSTER_SIZE == 2)
        cluster_wait();
}

// The arguments for rows m, m + 1, ...
template <class C> DEVICE LinearArgs linear_rows_from(LinearArgs a, int m)
{
    typedef typename C::T T;
    int columns = C::N / (C::GLU ? 2 : 1); // of y
    if constexpr (C::APPEND)
        columns = C::H * C::E;
    if (C::LAST)
        a.rows += m;
    else
        a.x = (const T *)a.x + (i64)m * C::K;
    a.r = (const T *)a.r + (i64)m * C::N;
    a.token += m;
    a.y = (typename C::OUT *)a.y + (i64)m * columns;
    return a;
}

template <class C> DEVICE void linear_wide(const LinearArgs &a)
{
    if constexpr (C::ROW_BLOCKS) {
        const int before = blockIdx.y * 64;
        if (before >= live_rows<C::ROWS_S>(a.step)) {
            wait_for_previous();
            return;
        }
        wide_rows<C>(linear_rows_from<C>(a, before), before);
    } else {
        wide_rows<C>(a, 0);
    }
}
