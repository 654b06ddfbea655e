// expert_few.cuh - linear layers of experts for few rows in 16 bits, on sm_90 and newer: the functions of experts.cuh.
//
//   expert_linear   y[m, i*N + n] = epilogue(norm(x)[m,:] . w[e,n,:] + b[e,n]) with NORM
//
// What limits them: reading the matrices of the experts that are hit, once each. A unit of work is 16 columns of an expert
// for up to 16 of its rows. A block of expert_linear computes a run of neighbouring units, expert after expert. A block of
// expert_sum takes the same 16 columns of all experts that are hit and keeps their weighted sums for all rows in shared
// memory, so that no other block has a part of them. Its warps:
//
//   warps 0..7  multiply: w is the A operand of mma.m16n8k16, rows of x are the B operand. Warp j takes the blocks of 32 k
//               with number j mod 8 of a slot; the 8 partial sums are added at the end of a unit
//   warp 8      streams w through a ring in shared memory by bulk copies; a slot has 16 rows of w, CHUNK k of each. In
//               expert_sum, where each unit has rows of its own, they come the same way behind those of w; expert_linear
//               reads them from L1, or, up to 8 rows in all (HELD), from shared memory, where the other warps put them while
//               the first weights come: loads that were issued later would stand behind these in the SM's queue
//
// NORM: rows lie in shared memory times the gains; the root mean square divides the sums at the end.
//
// Rows g and g + 8 of A are columns 2g and 2g + 1, so that both columns of a gate end in one lane. A lane reads 8
// consecutive k of both columns and of a row of x with 16 bytes each: the first four elements make one instruction of 16 k,
// the last four the other.
//
// Order of summation: K as one unit sums it, then the experts of a row by their numbers.
#pragma once
#include "device/async.cuh"
#include "device/barrier.cuh"
#include "device/mma.cuh"
#include "device/pdl.cuh"
#include "device/shared.cuh"
#include "body/ring.cuh"
#include "body/experts.cuh"
#include "body/linear.cuh"

enum { FEW_COLUMNS = 16, FEW_ROWS = 16, FEW_WARPS = 8, FEW_THREADS = 288 };

template <class C> using FewRing = Ring<C::SLOTS, C::SLOT_BYTES>;

template <class C> struct FewShape {
    static constexpr int X_VECTORS = ceil_div(C::K / 8, FEW_WARPS * 32); // of 8 elements of a row, of a thread
    static constexpr int UNITS = ceil_div(C::N, FEW_COLUMNS); // of FEW_ROWS rows of an expert
    static constexpr int CHUNKS = ceil_div(C::K, C::CHUNK);
    static constexpr int STEPS = C::CHUNK / 256;              // blocks of 32 k that a warp takes of a slot
};

// Units u0, u0 + step, ... below u1, numbered by rows of experts, then columns.
struct FewUnits { int u0, u1, step; };

// Warp 8: copies the matrices of these units, and of expert_sum the rows of x; pairs: all, in shared memory.
template <class C>
DEVICE void few_produce(const ExpertArgs &a, const FewRing<C> &ring, const ExpertTile *tiles, const int *pairs, const FewUnits &units)
{
    typedef FewShape<C> P;
    RingSlot<C::SLOTS> slot = {0, 1};
    for (int u = units.u0; u < units.u1; u += units.step) {
        const ExpertTile at = tiles[u / P::UNITS];
        const int n = u % P::UNITS * FEW_COLUMNS, rows = least(FEW_COLUMNS, C::N - n), of_x = C::SUM ? at.count : 0;
        for (int c = 0; c < P::CHUNKS; c++) {
            const int k = c * C::CHUNK, bytes = least(C::CHUNK, C::K - k) * 2;
            const typename C::T *w = (const typename C::T *)a.w + ((i64)at.expert * C::N + n) * C::K + k;
            ring.wait_empty(slot);
            if (lane_id() == 0)
                mbarrier_expect(ring.full(slot.at), (rows + of_x) * bytes);
            warp_sync();
            if (P::CHUNKS == 1 && C::ROW_BYTES == 2 * C::K) { // the rows follow one another
                if (lane_id() == 0)
                    bulk_copy(ring.data(slot.at), w, rows * bytes, ring.full(slot.at));
            } else if (lane_id() < rows) {
                bulk_copy(ring.data(slot.at) + lane_id() * C::ROW_BYTES, w + (i64)lane_id() * C::K, bytes, ring.full(slot.at));
            }
            if (lane_id() < of_x)
                bulk_copy(ring.data(slot.at) + (FEW_COLUMNS + lane_id()) * C::ROW_BYTES,
                          (const typename C::T *)a.x + (i64)pairs[at.first + lane_id()] * C::K + k, bytes, ring.full(slot.at));
            slot.next();
        }
    }
}

// expert_sum: adds columns n and n + 1 of a pair, with its weight, to those of its row.
template <class C> DEVICE void few_add(const ExpertArgs &a, int e, int pair, float weight, int n, float v0, float v1, float *total)
{
    float *to = total + pair / C::R * FEW_COLUMNS + n % FEW_COLUMNS;
    to[0] += weight * (C::BIAS ? v0 + a.b[e * C::N + n] : v0);
    if (n + 1 < C::N)
        to[1] += weight * (C::BIAS ? v1 + a.b[e * C::N + n + 1] : v1);
}

// HELD: rows of x in shared memory, times the gains of the norm. Rows beyond the live ones are loaded, too: they may be read,
// and no result depends on them.
template <class C> struct FewRows {
    typedef typename C::T T;
    static constexpr int VECTORS = FewShape<C>::X_VECTORS;
    uint4_ gain[C::NORM ? VECTORS : 1];

    DEVICE static int vector(int i) { return threadIdx.x + FEW_WARPS * 32 * i; }
    DEVICE void gains(const ExpertArgs &a) // of expert_linear a.r is the gain
    {
#pragma unroll
        for (int i = 0; i < VECTORS && C::NORM; i++) {
            const float *g = (const float *)a.r + least(vector(i), C::K / 8 - 1) * 8;
            gain[i] = pack_gains<T>(load<4>(g), load<4>(g + 4));
        }
    }
    DEVICE void hold(const ExpertArgs &a, u32 to) const
    {
        constexpr int ALL = C::HELD * VECTORS;
#pragma unroll
        for (int first = 0; first < ALL; first += 8) { // eight loads under way at a time
            uint4_ x[8];
#pragma unroll
            for (int j = 0; j < 8; j++)
                if (first + j < ALL && vector((first + j) % VECTORS) < C::K / 8)
                    x[j] = load_l2((const T *)a.x + (i64)((first + j) / VECTORS) * C::K + vector((first + j) % VECTORS) * 8);
#pragma unroll
            for (int j = 0; j < 8; j++)
                if (first + j < ALL && vector((first + j) % VECTORS) < C::K / 8)
                    shared_store16(to + (first + j) / VECTORS * C::X_ROW_BYTES + vector((first + j) % VECTORS) * 16,
                                   C::NORM ? rms_vector<C>(x[j], gain[(first + j) % VECTORS]) : x[j]);
        }
    }
    // 1 / root mean square of each row, by the 8 warps.
    DEVICE static void scales(const ExpertArgs &a, float *scale)
    {
        for (int m = FEW_WARPS - 1 - warp_id(); m < C::HELD; m += FEW_WARPS) {
            const RowStat s = row_stat<1, C::K>((const T *)a.x + (i64)m * C::K, C::EPS);
            if (lane_id() == 0)
                scale[m] = s.scale;
        }
    }
};

// Units u0 .. u1 - 1, all of these rows, TILES times 8 at most; the sums of a unit go through `sums`
// [8 warps][TILES][32 lanes][4]. Of expert_sum: pairs and weights of all, total [rows][16], in shared memory. HELD: x, scales.
template <class C, int TILES>
DEVICE void few_multiply(const ExpertArgs &a, const FewRing<C> &ring, RingSlot<C::SLOTS> &slot, const ExpertTile &at, float *sums,
                         const int *pairs, const float *weights, float *total, u32 held, const float *scale, int u0, int u1)
{
    typedef FewShape<C> P;
    typedef typename C::T T;
    const int g = lane_id() >> 2, t = lane_id() & 3;
    const T *x[TILES];
    u32 row[TILES]; // of x in a slot; HELD: where it lies
#pragma unroll
    for (int i = 0; i < TILES; i++) {
        const int of = least(8 * i + g, at.count - 1), m = C::SUM ? 0 : pairs[at.first + of] / C::R;
        row[i] = C::HELD ? held + m * C::X_ROW_BYTES + warp_id() * 64 + t * 16 : (FEW_COLUMNS + of) * C::ROW_BYTES;
        x[i] = (const T *)a.x + (C::SUM || C::HELD ? 0 : (i64)m * C::K + warp_id() * 32 + 8 * t);
    }
    for (int u = u0; u < u1; u++) {
        const int n = u % P::UNITS * FEW_COLUMNS, last = C::N % FEW_COLUMNS ? least(FEW_COLUMNS, C::N - n) - 1 : FEW_COLUMNS - 1;
        float d[TILES][4] = {};
        for (int c = 0; c < P::CHUNKS; c++) {
            uint4_ v[P::STEPS][TILES];
#pragma unroll
            for (int s = 0; s < P::STEPS; s++)
#pragma unroll
                for (int i = 0; i < TILES && !C::SUM; i++) {
                    const int k = c * C::CHUNK + s * 256;
                    v[s][i] = uint4_{0, 0, 0, 0};
                    if (k + warp_id() * 32 + 8 * t < C::K)
                        v[s][i] = C::HELD ? shared_load16(row[i] + k * 2) : *(const uint4_ *)(x[i] + k);
                }
            ring.wait_full(slot);
            const u32 from = ring.data(slot.at) + warp_id() * 64 + t * 16;
#pragma unroll
            for (int s = 0; s < P::STEPS; s++) {
                const int k = c * C::CHUNK + s * 256 + warp_id() * 32;
                if (k >= C::K)
                    break;
                uint4_ w0 = {0, 0, 0, 0}, w1 = w0;
                if (C::K % 32 == 0 || k + 8 * t < C::K) {
                    w0 = shared_load16(from + least(2 * g, last) * C::ROW_BYTES + s * 512);
                    w1 = shared_load16(from + least(2 * g + 1, last) * C::ROW_BYTES + s * 512);
                }
#pragma unroll
                for (int i = 0; i < TILES; i++) {
                    if (C::SUM)
                        v[s][i] = C::K % 32 == 0 || k + 8 * t < C::K ? shared_load16(from + row[i] + s * 512) : uint4_{0, 0, 0, 0};
                    mma<T>(d[i], w0.x, w1.x, w0.y, w1.y, v[s][i].x, v[s][i].y);
                    mma<T>(d[i], w0.z, w1.z, w0.w, w1.w, v[s][i].z, v[s][i].w);
                }
            }
            warp_sync();
            if (lane_id() == 0)
                mbarrier_arrive(ring.empty(slot.at));
            slot.next();
        }
#pragma unroll
        for (int i = 0; i < TILES; i++)
#pragma unroll
            for (int j = 0; j < 4; j++)
                sums[((warp_id() * TILES + i) * 32 + lane_id()) * 4 + j] = d[i][j];
        named_barrier_sync(1, FEW_WARPS * 32);
        const int item = threadIdx.x, tile = item >> 6, lane = item >> 1 & 31, of = 8 * tile + 2 * (lane & 3) + (item & 1);
        const int column = n + 2 * (lane >> 2);
        if (tile < TILES && of < at.count && column < C::N) {
            const int pair = pairs[at.first + of];
            const float *from = sums + (tile * 32 + lane) * 4 + (item & 1);
            float v0 = 0.0f, v1 = 0.0f;
#pragma unroll
            for (int j = 0; j < FEW_WARPS; j++) {
                v0 += from[j * TILES * 128];
                v1 += from[j * TILES * 128 + 2];
            }
            if constexpr (C::NORM) {
                v0 = __fmul_rn(v0, scale[pair / C::R]);
                v1 = __fmul_rn(v1, scale[pair / C::R]);
            }
            if constexpr (C::SUM) {
                few_add<C>(a, at.expert, pair, weights[at.first + of], column, v0, v1, total);
            } else {
                expert_out<C>(a, at.expert, pair, column, v0, v1);
                if (!C::GLU && column + 1 < C::N)
                    expert_out<C>(a, at.expert, pair, column + 1, v1, 0.0f);
            }
        }
        named_barrier_sync(1, FEW_WARPS * 32);
    }
}

template <class C> DEVICE void expert_few(const ExpertArgs &a)
{
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
    typedef FewShape<C> P;
    typedef typename C::T T;
    char *shared = shared_memory();
    const FewRing<C> ring = {shared_address(shared + C::RING_AT), shared_address(shared + C::BARRIERS_AT)};
    ExpertTile *tiles = (ExpertTile *)(shared + C::TILES_AT);
    int *list = (int *)(shared + C::PAIRS_AT);
    float *sums = (float *)(shared + C::SUMS_AT), *weights = (float *)(shared + C::WEIGHTS_AT), *total = (float *)(shared + C::TOTAL_AT);
    int *all = (int *)(shared + C::COUNT_AT);
    float *scale = (float *)(shared + C::SCALES_AT);
    const u32 held = shared_address(shared + C::X_AT);
    FewRows<C> x;
    if (threadIdx.x == 0) {
        ring.init(1, FEW_WARPS);
        mbarrier_init_fence();
    }
    launch_dependents();
    if constexpr (C::HELD) {
        block_sync(); // the ring is there
        if (warp_id() < FEW_WARPS)
            x.gains(a);
    }
    wait_for_previous();
    const int rows = C::SUM ? a.starts[C::X] / C::R : 0;
    if (C::SUM)
        for (int i = threadIdx.x; i < (C::ROWS ? C::ROWS : rows) * C::R; i += FEW_THREADS) // beyond the live ones, too, but unused
            list[i] = a.rows[i];
    if (warp_id() == FEW_WARPS) {
        const int count = for_expert_tiles<C::X, FEW_ROWS>(a.starts, [&](int i, ExpertTile tile) { tiles[i] = tile; });
        if (lane_id() == 0)
            all[0] = count;
    }
    const int *pairs = C::SUM || C::HELD ? list : a.rows;
    if constexpr (!C::HELD) {
        block_sync();
    } else if (warp_id() == FEW_WARPS) { // it needs no more
        warp_sync();
        named_barrier_arrive(2, FEW_THREADS);
    } else {
        for (int i = threadIdx.x; i < C::HELD * C::R; i += FEW_WARPS * 32)
            list[i] = a.rows[i];
        x.hold(a, held);
        named_barrier_sync(2, FEW_THREADS);
        if constexpr (C::NORM) // needed at the end of a unit
            x.scales(a, scale);
    }
    const i64 count = (i64)all[0] * P::UNITS;
    const FewUnits units = C::SUM ? FewUnits{(int)blockIdx.x, (int)count, P::UNITS}
                                  : FewUnits{(int)(count * blockIdx.x / gridDim.x), (int)(count * (blockIdx.x + 1) / gridDim.x), 1};
    if (warp_id() == FEW_WARPS) {
        few_produce<C>(a, ring, tiles, pairs, units);
        return;
    }
    if (C::SUM) { // read behind the barriers of the first unit
        for (int i = threadIdx.x; i < rows * FEW_COLUMNS; i += FEW_WARPS * 32)
            total[i] = 0.0f;
        for (int i = threadIdx.x; i < rows * C::R; i += FEW_WARPS * 32)
            weights[i] = expert_weight<C>(a, list[i]);
    }
    RingSlot<C::SLOTS> slot = {0, 0};
    for (int u = units.u0; u < units.u1;) {
        const ExpertTile at = tiles[u / P::UNITS];
        const int end = C::SUM ? u + 1 : least(units.u1, (u / P::UNITS + 1) * P::UNITS);
        if (at.count > 8 && !C::HELD)
            few_multiply<C, C::HELD ? 1 : 2>(a, ring, slot, at, sums, pairs, weights, total, held, scale, u, end);
        else
            few_multiply<C, 1>(a, ring, slot, at, sums, pairs, weights, total, held, scale, u, end);
        u = C::SUM ? u + P::UNITS : end;
    }
    for (int i = threadIdx.x; i < rows * FEW_COLUMNS && C::SUM; i += FEW_WARPS * 32) {
        const int m = i / FEW_COLUMNS, n = blockIdx.x * FEW_COLUMNS + i % FEW_COLUMNS;
        if (n < C::N)
            ((typename C::OUT *)a.y)[(i64)m * C::N + n] =
                from_float<typename C::OUT>(total[i] + (C::RES ? to_float(((const T *)a.r)[(i64)m * C::N + n]) : 0.0f));
    }
#endif
}
