// expert_tile.cuh - linear layers of experts for many rows: each expert's rows as tiles for the matrix units.
//
//   expert_linear   y[m, i*N + n] = epilogue(x[m,:] . w[e,n,:] + b[e,n])             e: expert i of row m
//   expert_sum      y[m,n] = sum over i of weight * (x[m, i*K:] . w[e,n,:] + b[e,n]) + r[m,n]
//
//   x [M, K] or [M, R*K], w [X*N, K]   16-bit, row-major, K % 8 == 0, N even      b [X*N] fp32, r and y [M, N]
//   routes [M, 2R], starts [X + 1], rows [M*R]: the form by_expert of routes (compiler/ir/forms.def)
//
// Block (c, j) computes 128 columns of the j-th tile: 64 pairs of row and expert, all of one expert. Its rows of x are
// gathered by cp.async, wherever they stand. 8 warps compute 32 x 32 each; K is summed in order, 16 at a time.
//
//   stage of the ring:  | 64 rows of x, 64 k | 128 rows of w, 64 k |      rows of 144 bytes: no bank conflicts
//
// expert_sum writes the weighted products of each pair to `parts`. The last of the R blocks that have columns of a row
// adds the row's parts in the order of its experts: so the bits of a row do not depend on the others.
#pragma once
#include "device/async.cuh"
#include "device/atomic.cuh"
#include "device/block.cuh"
#include "device/mma.cuh"
#include "device/pdl.cuh"
#include "device/vec.cuh"
#include "body/experts.cuh"

enum { TILE_ROWS = 64, TILE_COLUMNS = 128, TILE_K = 64, TILE_PITCH = 144, TILE_THREADS = 256, TILE_STAGES = 3 };

// The vectors of 8 elements that this thread copies: one of the 8 of a stage's row, in every 32nd row.
template <class C> struct ExpertTileCopy {
    typedef typename C::T T;
    const T *x[TILE_ROWS / 32], *w[TILE_COLUMNS / 32];
    u32 to;

    DEVICE ExpertTileCopy(const ExpertArgs &a, const ExpertTile &t, const int *pairs, int n0, u32 ring)
    {
        const int row = threadIdx.x / 8;
#pragma unroll
        for (int i = 0; i < TILE_ROWS / 32; i++)
            x[i] = (const T *)a.x + (i64)(C::SUM ? pairs[row + 32 * i] : pairs[row + 32 * i] / C::R) * C::K;
#pragma unroll
        for (int i = 0; i < TILE_COLUMNS / 32; i++)
            w[i] = (const T *)a.w + ((i64)t.expert * C::N + least(n0 + row + 32 * i, C::N - 1)) * C::K;
        to = ring + row * TILE_PITCH + threadIdx.x % 8 * 16;
    }
    // k from k0 on; beyond K zeros.
    DEVICE void stage(int slot, int k0) const
    {
        const int k = k0 + threadIdx.x % 8 * 8, bytes = k < C::K ? 16 : 0, at = k < C::K ? k : 0;
        const u32 base = to + slot * C::STAGE_BYTES;
#pragma unroll
        for (int i = 0; i < TILE_ROWS / 32; i++)
            copy16(base + 32 * i * TILE_PITCH, x[i] + at, bytes);
#pragma unroll
        for (int i = 0; i < TILE_COLUMNS / 32; i++)
            copy16(base + (TILE_ROWS + 32 * i) * TILE_PITCH, w[i] + at, bytes);
    }
};

// The products of one stage: 32 rows and 32 columns of this warp.
template <class C> DEVICE void expert_tile_stage(float (&d)[2][4][4], u32 slot)
{
    typedef typename C::T T;
    const int l = lane_id(), rows = warp_id() / 4 * 32, columns = warp_id() % 4 * 32;
    const u32 x = slot + (rows + (l & 15)) * TILE_PITCH + (l >> 4) * 16;
    const u32 w = slot + (TILE_ROWS + columns + (l & 7) + (l >> 4) * 8) * TILE_PITCH + (l >> 3 & 1) * 16;
#pragma unroll
    for (int k = 0; k < TILE_K / 16; k++) {
        u32 a[2][4], b[2][4];
#pragma unroll
        for (int i = 0; i < 2; i++) {
            ldmatrix4(a[i], x + i * 16 * TILE_PITCH + k * 32);
            ldmatrix4(b[i], w + i * 16 * TILE_PITCH + k * 32);
        }
#pragma unroll
        for (int i = 0; i < 2; i++)
#pragma unroll
            for (int j = 0; j < 4; j++)
                mma<T>(d[i][j], a[i][0], a[i][1], a[i][2], a[i][3], b[j / 2][j % 2 * 2], b[j / 2][j % 2 * 2 + 1]);
    }
}

// Adds the parts of those rows whose last part is this block's.
template <class C> DEVICE void expert_tile_sum(const ExpertSumArgs &a, const int *pairs, int count, int n0, int *ready)
{
    typedef typename C::T T;
    typedef typename C::OUT O;
    block_sync();
    if ((int)threadIdx.x < count)
        ready[threadIdx.x] = atomic_add_acq_rel(&a.arrived[pairs[threadIdx.x] / C::R * gridDim.x + blockIdx.x], 1) + 1 == C::R;
    block_sync();
    for (int i = warp_id(); i < count; i += TILE_THREADS / 32) {
        const int m = pairs[i] / C::R;
        if (!ready[i])
            continue;
        for (int n = n0 + lane_id() * 2; n < least(n0 + TILE_COLUMNS, C::N); n += 64) {
            Vec<float, 2> sum = load<2>(a.parts + (i64)m * C::R * C::N + n);
#pragma unroll
            for (int k = 1; k < C::R; k++) {
                const Vec<float, 2> part = load<2>(a.parts + ((i64)m * C::R + k) * C::N + n);
                sum[0] += part[0];
                sum[1] += part[1];
            }
            if (C::RES) {
                const Vec<float, 2> r = to_floats(load<2>((const T *)a.r + (i64)m * C::N + n));
                sum[0] += r[0];
                sum[1] += r[1];
            }
            store((O *)a.y + (i64)m * C::N + n, from_floats<O>(sum));
        }
        if (lane_id() == 0)
            a.arrived[m * gridDim.x + blockIdx.x] = 0;
    }
}

template <class C, class A> DEVICE void expert_tiles(const A &a)
{
    constexpr int STEPS = ceil_div(C::K, (int)TILE_K);
    char *shared = shared_memory();
    int *pairs = (int *)(shared + C::PAIRS_AT), *ready = (int *)(shared + C::READY_AT);
    const int n0 = blockIdx.x * TILE_COLUMNS;
    launch_dependents();
    wait_for_previous();
    SHARED(ExpertTile, mine, 1);
    if (threadIdx.x == 0)
        mine[0].count = 0;
    block_sync();
    if (warp_id() == 0)
        for_expert_tiles<C::X, TILE_ROWS>(a.starts, [&](int i, ExpertTile tile) {
            if (i == (int)blockIdx.y)
                mine[0] = tile;
        });
    block_sync();
    const ExpertTile t = mine[0];
    if (!t.count)
        return;
    if (threadIdx.x < TILE_ROWS) // rows beyond the last pair are computed and dropped
        pairs[threadIdx.x] = a.rows[t.first + least(threadIdx.x, t.count - 1)];
    block_sync();
    const u32 ring = shared_address(shared + C::RING_AT);
    const ExpertTileCopy<C> copy(a, t, pairs, n0, ring);
    float d[2][4][4] = {};
#pragma unroll
    for (int s = 0; s < TILE_STAGES - 1; s++) {
        if (s < STEPS)
            copy.stage(s, s * TILE_K);
        copy_commit();
    }
    for (int s = 0; s < STEPS; s++) {
        copy_wait<TILE_STAGES - 2>();
        block_sync(); // the stage is there for all warps, and all have left the one that is filled next
        if (s + TILE_STAGES - 1 < STEPS)
            copy.stage((s + TILE_STAGES - 1) % TILE_STAGES, (s + TILE_STAGES - 1) * TILE_K);
        copy_commit();
        expert_tile_stage<C>(d, ring + s % TILE_STAGES * C::STAGE_BYTES);
    }
    const int g = lane_id() >> 2, c = (lane_id() & 3) * 2;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const int row = warp_id() / 4 * 32 + i * 8 + g;
#pragma unroll
        for (int j = 0; j < 4; j++) {
            const int n = n0 + warp_id() % 4 * 32 + j * 8 + c;
            if (row < t.count && n < C::N)
                expert_out2<C>(a, t.expert, pairs[row], C::SUM ? expert_weight<C>(a, pairs[row]) : 0.0f, n, d[i / 2][j][i % 2 * 2], d[i / 2][j][i % 2 * 2 + 1]);
        }
    }
    if constexpr (C::SUM)
        expert_tile_sum<C>(a, pairs, t.count, n0, ready);
}
