// linear_wide.cuh - y = epilogue(norm(x) * w^T + b) for up to 64 rows, any K and N, every target.
//
//   x [M, K]  16-bit      w [N, K]  16-bit, row-major      sums in fp32
//
// A block holds the sums of NT weight rows for all M rows of x in registers and walks over K in
// stages of 128: w [NT, 128] and x [M, 128] stream through shared memory by cp.async, weights
// starting before the kernel in front has ended. Warps are 4 over k (32 of a stage each) times
// NT / WN over n; fragments as in linear.cuh. x comes from L2 once for each NT rows, so NT is as
// large as registers allow, and with CL = 2 a pair of blocks shares NT rows: each takes every
// other stage, reads half of x, and they exchange half of their sums through shared memory.
//
// Order of summation: chain (s mod 2, warp over k) of stage s is the chain of block b = 4s + warp
// in linear.cuh. Without pairs a block sweeps over the even stages, then over the odd ones.
//
// Shared memory: [stages][w NT x 256 | x MB x 256 | g, c 512 each] | sums | the pair's or the
// second sweep's sums | statistics. Rows are 256 bytes, of which odd rows swap their 64-byte
// halves: a quarter warp reads 4 x 16 bytes of two neighbouring rows without a bank twice.
#pragma once
#include "device/async.cuh"
#include "device/block.cuh"
#include "device/cluster.cuh"
#include "device/mma.cuh"
#include "device/pdl.cuh"
#include "part/linear.cuh"

template <class C> struct WideShape {
    static constexpr int MB = C::M <= 16 ? 16 : C::M <= 32 ? 32 : 64;  // rows held
    static constexpr int MT = MB / 16, JT = C::WN / 8;                 // a warp's tiles
    static constexpr int THREADS = 128 * (C::NT / C::WN);
    static constexpr int S = ceil_div(C::K, 128);                      // stages of K
    static constexpr int STAGE = (C::NT + MB) * 256 + C::NORM * 512;
    static constexpr int SUM = MB * 8 + 8;                             // floats of a tile of 8 columns
    static constexpr int OTHER = C::CL == 2 ? MB * 4 + 8 : SUM;        // the same, second buffer
    static constexpr int SUM_AT = C::STAGES * STAGE;
    static constexpr int OTHER_AT = SUM_AT + C::NT / 8 * SUM * 4;
    static constexpr int STAT_AT = OTHER_AT + C::NT / 8 * OTHER * 4;
    static constexpr int BYTES = STAT_AT + MB * 8;
    static constexpr bool FAST = C::K % 8 == 0;                        // rows are 16-byte aligned
    static constexpr bool STREAMED = C::NORM == 1 && FAST;             // squares summed on the way
    static constexpr int AT_ONCE = THREADS / 16, STATS = ceil_div(MB, AT_ONCE);
    static_assert(BYTES <= C::SMEM, "the contract gives less shared memory than the stages need");
};

// Walks the stages of this block: rows row .. row + NT of w, stage s.
template <class C> struct WideWalk {
    int row, s;
    DEVICE void next(int rank)
    {
        s += 2;
        if (s < WideShape<C>::S)
            return;
        if (C::CL == 1 && s % 2 == 0 && WideShape<C>::S > 1) {
            s = 1;
        } else {
            row += C::NT;
            s = C::CL == 1 ? 0 : rank;
        }
    }
};

DEVICE int wide_unit(int row, int unit) { return row * 256 + (unit ^ (row & 1) << 2) * 16; }

// Eight elements from column k of a row into a 16-byte unit, zeros at and beyond K; all zeros
// where `row` is NULL. any: an address that may be read.
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

// Thread i copies unit i % 16 of the rows i / 16, i / 16 + AT_ONCE, ...
template <class C> DEVICE void wide_load_w(const LinearArgs &a, WideWalk<C> at, int last, u32 stage)
{
    typedef WideShape<C> P;
    typedef typename C::T T;
    const int r = threadIdx.x >> 4, u = threadIdx.x & 15, left = last - at.row - r;
    const T *from = (const T *)a.w + (i64)(at.row + r) * C::K;
    const u32 to = stage + wide_unit(r, u);
#pragma unroll
    for (int i = 0; i < ceil_div(C::NT, P::AT_ONCE); i++)
        if (i * P::AT_ONCE < left && (C::NT % P::AT_ONCE == 0 || r + i * P::AT_ONCE < C::NT))
            wide_copy<C>(to + i * P::AT_ONCE * 256, from + (i64)i * P::AT_ONCE * C::K, at.s * 128 + u * 8, a.w);
    if (C::NORM && threadIdx.x < 32 * C::NORM) {
        const int k = at.s * 128 + (threadIdx.x & 31) * 4, bytes = least(16, most(0, C::K - k) * 4);
        const float *vector = (threadIdx.x < 32 ? a.g : a.c) + (bytes ? k : 0);
        copy16(stage + (C::NT + P::MB) * 256 + threadIdx.x * 16, vector, bytes);
    }
}

template <class C> DEVICE void wide_load_x(const LinearArgs &a, WideWalk<C> at, int live, u32 stage)
{
    typedef WideShape<C> P;
    typedef typename C::T T;
    const int r = threadIdx.x >> 4, u = threadIdx.x & 15;
    const T *from = (const T *)a.x + (i64)r * C::K;
    const u32 to = stage + C::NT * 256 + wide_unit(r, u);
#pragma unroll
    for (int i = 0; i < ceil_div(P::MB, P::AT_ONCE); i++) {
        const int m = r + i * P::AT_ONCE;
        if (P::MB % P::AT_ONCE && m >= P::MB)
            break;
        const T *row = C::LAST ? (const T *)a.x + (i64)source_row<C::LAST>(a.rows, most(0, least(m, live - 1))) * C::K
                               : from + (i64)i * P::AT_ONCE * C::K;
        wide_copy<C>(to + i * P::AT_ONCE * 256, m < live ? row : 0, at.s * 128 + u * 8, a.x);
    }
}

// This warp's products of one stage.
template <class C>
DEVICE void wide_stage(float (&d)[WideShape<C>::MT][WideShape<C>::JT][4], u32 stage, const RowStat *stat)
{
    typedef WideShape<C> P;
    typedef typename C::T T;
    const int g = lane_id() >> 2, t = lane_id() & 3, kw = warp_id() & 3, ng = warp_id() >> 2;
    const u32 unit = wide_unit(g, kw * 4 + t);
    const u32 wa = stage + ng * C::WN * 256 + unit, xa = stage + C::NT * 256 + unit;
    const RowStat none = {0.0f, 1.0f};
    uint4_ w[P::JT];
#pragma unroll
    for (int j = 0; j < P::JT; j++)
        w[j] = shared_load16(wa + j * 2048);
#pragma unroll
    for (int i = 0; i < P::MT; i++) {
        uint4_ lo = shared_load16(xa + i * 4096), hi = shared_load16(xa + i * 4096 + 2048);
        if constexpr (C::NORM != 0) {  // read again for each i: registers are scarcer
            const u32 ga = stage + (C::NT + P::MB) * 256 + (kw * 32 + t * 8) * 4;
            Vec<float, 4> gain[2], bias[2];
#pragma unroll
            for (int h = 0; h < 2; h++) {
                *(uint4_ *)&gain[h] = shared_load16(ga + h * 16);
                *(uint4_ *)&bias[h] = C::NORM == 2 ? shared_load16(ga + 512 + h * 16) : uint4_{0, 0, 0, 0};
            }
            lo = norm_vector<C>(lo, C::NORM == 2 ? stat[i * 16 + g] : none, gain[0], gain[1], bias[0], bias[1]);
            hi = norm_vector<C>(hi, C::NORM == 2 ? stat[i * 16 + g + 8] : none, gain[0], gain[1], bias[0], bias[1]);
        }
#pragma unroll
        for (int j = 0; j < P::JT; j++) {
            mma<T>(d[i][j], lo.x, hi.x, lo.y, hi.y, w[j].x, w[j].y);
            mma<T>(d[i][j], lo.z, hi.z, lo.w, hi.w, w[j].z, w[j].w);
        }
    }
}

// Squares of the rows of x in this stage, for the root mean square.
template <class C> DEVICE void wide_squares(float (&s)[WideShape<C>::STATS], u32 stage)
{
    typedef WideShape<C> P;
#pragma unroll
    for (int i = 0; i < P::STATS; i++) {
        if (P::MB % P::AT_ONCE && threadIdx.x / 16 + i * P::AT_ONCE >= P::MB)
            break;
        const uint4_ x = shared_load16(stage + (C::NT + i * P::AT_ONCE) * 256 + wide_unit(threadIdx.x / 16, threadIdx.x & 15));
        s[i] = add_squares(s[i], *(const Vec<typename C::T, 8> *)&x, 0.0f);
    }
}

// Chains 0..3 of the warps over k, added in order. The warps of chain 3 hold the result.
template <class C> DEVICE void wide_reduce(float (&d)[WideShape<C>::MT][WideShape<C>::JT][4], float *sums)
{
    typedef WideShape<C> P;
    const int g = lane_id() >> 2, t = lane_id() & 3, kw = warp_id() & 3, ng = warp_id() >> 2;
#pragma unroll
    for (int p = 0; p < 4; p++) {
        if (kw == p)
#pragma unroll
            for (int j = 0; j < P::JT; j++)
#pragma unroll
                for (int i = 0; i < P::MT * 2; i++) {
                    Vec<float, 2> *at = (Vec<float, 2> *)(sums + (ng * P::JT + j) * P::SUM + (i * 8 + g) * 8 + 2 * t);
                    float &v0 = d[i / 2][j][i % 2 * 2], &v1 = d[i / 2][j][i % 2 * 2 + 1];
                    if (p > 0) {
                        const Vec<float, 2> before = *at;
                        v0 = before[0] + v0;
                        v1 = before[1] + v1;
                    }
                    if (p < 3) {
                        Vec<float, 2> v;
                        v[0] = v0;
                        v[1] = v1;
                        *at = v;
                    }
                }
        if (p < 3)
            block_sync();
    }
}

// The result of a sweep goes to where the epilogue reads it: with pairs, the half of the rows that
// is the other's to finish goes to the other.
template <class C>
DEVICE void wide_give(float (&d)[WideShape<C>::MT][WideShape<C>::JT][4], float *mine, u32 theirs, int rank)
{
    typedef WideShape<C> P;
    const int g = lane_id() >> 2, t = lane_id() & 3, ng = warp_id() >> 2;
    if ((warp_id() & 3) != 3)
        return;
#pragma unroll
    for (int j = 0; j < P::JT; j++)
#pragma unroll
        for (int i = 0; i < P::MT * 2; i++) {
            const float v0 = d[i / 2][j][i % 2 * 2], v1 = d[i / 2][j][i % 2 * 2 + 1];
            const int tile = ng * P::JT + j;
            if (C::CL == 1 || i / P::MT == rank) {
                Vec<float, 2> v;
                v[0] = v0;
                v[1] = v1;
                *(Vec<float, 2> *)(mine + tile * P::SUM + (i * 8 + g) * 8 + 2 * t) = v;
            } else {
                cluster_store2(theirs + (tile * P::OTHER + ((i % P::MT) * 8 + g) * 8 + 2 * t) * 4, v0, v1);
            }
        }
}

template <class C> DEVICE void linear_wide(const LinearArgs &a)
{
    typedef WideShape<C> P;
    typedef typename C::T T;
    launch_dependents();
    char *shared = shared_memory();
    const u32 ring = shared_address(shared);
    float *sums = (float *)(shared + P::SUM_AT), *others = (float *)(shared + P::OTHER_AT);
    float *half = (float *)(shared + P::STAT_AT);  // [2][MB]: sums of squares of even and odd stages
    RowStat *stat = (RowStat *)half;               // layer norm
    const int rank = C::CL == 2 ? blockIdx.x & 1 : 0, pair = blockIdx.x / C::CL, pairs = gridDim.x / C::CL;
    const int tiles = ceil_div(C::N, 8);
    const int first = (int)((i64)pair * tiles / pairs) * 8;
    const int last = least((int)((i64)(pair + 1) * tiles / pairs) * 8, C::N);
    const int passes = ceil_div(last - first, C::NT);
    const int total = passes * (C::CL == 1 ? P::S : (P::S + 1 - rank) / 2);
    if (C::CL == 2)
        cluster_arrive();

    WideWalk<C> walk = {first, C::CL == 1 ? 0 : rank}, ahead = walk;
    for (int i = 0; i < C::STAGES - 1 && i < total; i++, ahead.next(rank))
        wide_load_w<C>(a, ahead, last, ring + i * P::STAGE);
    wait_for_previous();
    const int live = least(live_rows<C::ROWS_S>(a.step), C::M);
    ahead = walk;
    for (int i = 0; i < C::STAGES - 1; i++) {
        if (i < total) {
            wide_load_x<C>(a, ahead, live, ring + i * P::STAGE);
            ahead.next(rank);
        }
        copy_commit();
    }
    if (C::NORM && !P::STREAMED) {
        for (int m = warp_id(); m < live; m += P::THREADS / 32) {
            const RowStat s = row_stat<C::NORM, C::K>((const T *)a.x + (i64)source_row<C::LAST>(a.rows, m) * C::K, C::EPS);
            if (lane_id() == 0)
                stat[m] = s;
        }
    }

    float squares[P::STATS] = {};
    int slot = 0, more = total - (C::STAGES - 1);  // stages to be loaded yet
    for (int row = first; row < last; row += C::NT) {
#pragma unroll 1
        for (int sweep = 0; sweep < (C::CL == 1 ? 2 : 1); sweep++) {
            const int h = C::CL == 1 ? sweep : rank;
            float d[P::MT][P::JT][4] = {};
#pragma unroll 1
            for (int s = h; s < P::S; s += 2) {
                copy_wait<C::STAGES - 2>();
                block_sync();
                if (more-- > 0) {
                    const u32 free = ring + (slot == 0 ? C::STAGES - 1 : slot - 1) * P::STAGE;
                    wide_load_w<C>(a, ahead, last, free);
                    wide_load_x<C>(a, ahead, live, free);
                    ahead.next(rank);
                }
                copy_commit();
                if (P::STREAMED && row == first)
                    wide_squares<C>(squares, ring + slot * P::STAGE);
                wide_stage<C>(d, ring + slot * P::STAGE, stat);
                slot = slot == C::STAGES - 1 ? 0 : slot + 1;
            }
            float *to = sweep == 0 ? sums : others;
            if (C::CL == 2)
                cluster_wait();  // both have read what they got last time
            wide_reduce<C>(d, to);
            wide_give<C>(d, to, C::CL == 2 ? cluster_map(shared_address(others), rank ^ 1) : 0, rank);
            if (P::STREAMED && row == first) {
#pragma unroll
                for (int i = 0; i < P::STATS; i++) {
                    const int m = threadIdx.x / 16 + i * P::AT_ONCE;
                    float v = squares[i];
                    squares[i] = 0.0f;
#pragma unroll
                    for (int x = 8; x; x /= 2)
                        v += shuffle_xor(v, x);
                    if ((threadIdx.x & 15) == 0 && m < P::MB) {
                        half[h * P::MB + m] = v;
                        if (C::CL == 2)
                            cluster_store(cluster_map(shared_address(half + h * P::MB + m), rank ^ 1), v);
                    }
                }
            }
        }
        if (C::CL == 2) {
            cluster_arrive();
            cluster_wait();
        } else {
            block_sync();
        }
        constexpr int ROWS = P::MB / C::CL;
#pragma unroll 1
        for (int i = threadIdx.x; i < ROWS * (C::NT / 2); i += P::THREADS) {
            const int m = i / (C::NT / 2) + (C::CL == 2 ? rank * ROWS : 0), p = i % (C::NT / 2);
            const int n = row + 2 * p;
            if (m >= live || n >= last)
                continue;
            const Vec<float, 2> u = *(const Vec<float, 2> *)(sums + (p >> 2) * P::SUM + m * 8 + (p & 3) * 2);
            const Vec<float, 2> v = *(const Vec<float, 2> *)(others + (p >> 2) * P::OTHER + (C::CL == 2 ? m - rank * ROWS : m) * 8 + (p & 3) * 2);
            float v0 = u[0] + v[0], v1 = u[1] + v[1];
            if (C::NORM == 1) {
                const float scale = P::STREAMED ? rms_scale<C::K>(half[m] + half[P::MB + m], C::EPS) : stat[m].scale;
                v0 = __fmul_rn(v0, scale);
                v1 = __fmul_rn(v1, scale);
            }
            linear_out<C>(a, m, n, v0, v1);
        }
        if (C::CL == 2)
            cluster_arrive();
        else
            block_sync();
    }
    if (C::CL == 2)
        cluster_wait();
}
