// expert_few.cuh - linear layers of experts for few rows in 16 bits, on tensor cores: the functions of experts.cuh.
//
// What limits them: reading the matrices of the experts that are hit, once each. The matrix is the A operand of
// mma.m16n8k16, the rows of x are the B operand: a warp computes 16 columns of one expert for all of the expert's rows, up
// to 32 at a time. Block (c, j) has neighbouring columns of the j-th expert that is hit; blocks beyond the last such expert
// end at once.
//
// Rows g and g + 8 of A are columns 2g and 2g + 1, so that both columns of a gate end in one lane. A lane reads 8
// consecutive k of both columns and of a row of x with 16 bytes each: the first four elements make one instruction of 16 k,
// the last four the other.
//
// Order of summation: blocks of 32 k one after the other, by one warp. It depends on K alone.
#pragma once
#include "device/mma.cuh"
#include "experts.cuh"

enum { FEW_WARPS = 4, FEW_COLUMNS = 16 };

// What a lane reads of both columns and of its rows of x in STEPS blocks of 32 k.
template <int TILES> struct FewBatch {
    static constexpr int STEPS = TILES == 4 ? 2 : 4;
    uint4_ w[STEPS][2], x[STEPS][TILES];
};

// Reads the batch from k on, zeros beyond K. w and x point to the lane's first k.
template <class C, int TILES>
DEVICE void expert_few_load(FewBatch<TILES> &b, const typename C::T *const (&w)[2], const typename C::T *const (&x)[TILES], int k)
{
    constexpr int STEPS = FewBatch<TILES>::STEPS;
#pragma unroll
    for (int s = 0; s < STEPS; s++, k += 32) {
        const bool in = C::K % (32 * STEPS) == 0 ? k < C::K : k + 8 * (lane_id() & 3) < C::K;
#pragma unroll
        for (int h = 0; h < 2; h++)
            b.w[s][h] = in ? *(const uint4_ *)(w[h] + k) : uint4_{0, 0, 0, 0};
#pragma unroll
        for (int i = 0; i < TILES; i++)
            b.x[s][i] = in ? *(const uint4_ *)(x[i] + k) : uint4_{0, 0, 0, 0};
    }
}

// 16 columns from n on of expert e for the first `count`, at most 8 * TILES, of these pairs. A batch is multiplied while
// the next one is on its way.
template <class C, int TILES, class A> DEVICE void expert_few_tile(const A &a, int e, int n, const int *rows, int count)
{
    typedef typename C::T T;
    constexpr int STEPS = FewBatch<TILES>::STEPS;
    const int g = lane_id() >> 2, t = lane_id() & 3;
    const T *w[2], *x[TILES];
    float d[TILES][4] = {};
    FewBatch<TILES> now, next;
#pragma unroll
    for (int h = 0; h < 2; h++)
        w[h] = (const T *)a.w + ((i64)e * C::N + least(n + 2 * g + h, C::N - 1)) * C::K + 8 * t;
#pragma unroll
    for (int i = 0; i < TILES; i++) {
        const int pair = rows[least(8 * i + g, count - 1)];
        x[i] = (const T *)a.x + (i64)(C::SUM ? pair : pair / C::R) * C::K + 8 * t;
    }
    expert_few_load<C, TILES>(now, w, x, 0);
#pragma unroll 2
    for (int k = 0; k < C::K; k += 32 * STEPS) {
        expert_few_load<C, TILES>(next, w, x, k + 32 * STEPS);
#pragma unroll
        for (int s = 0; s < STEPS; s++)
#pragma unroll
            for (int i = 0; i < TILES; i++) {
                const uint4_ *u = now.w[s], v = now.x[s][i];
                mma<T>(d[i], u[0].x, u[1].x, u[0].y, u[1].y, v.x, v.y);
                mma<T>(d[i], u[0].z, u[1].z, u[0].w, u[1].w, v.z, v.w);
            }
        now = next;
    }
#pragma unroll
    for (int i = 0; i < TILES; i++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const int at = 8 * i + 2 * t + h, column = n + 2 * g;
            if (at >= count || column >= C::N)
                continue;
            expert_out<C>(a, e, rows[at], column, d[i][h], d[i][2 + h]);
            if (!C::GLU && column + 1 < C::N)
                expert_out<C>(a, e, rows[at], column + 1, d[i][2 + h], 0.0f);
        }
}

template <class C, class A> DEVICE void expert_few(const A &a)
{
    launch_dependents();
    wait_for_previous();
    const int e = expert_hit<C::X>(a.starts, blockIdx.y), n = (blockIdx.x * FEW_WARPS + warp_id()) * FEW_COLUMNS;
    if (e < 0 || n >= C::N)
        return;
    const int *rows = a.rows + a.starts[e];
    const int count = a.starts[e + 1] - a.starts[e];
    for (int i = 0; i < count; i += 32) {
        const int some = least(count - i, 32);
        if (some > 16)
            expert_few_tile<C, 4>(a, e, n, rows + i, some);
        else if (some > 8)
            expert_few_tile<C, 2>(a, e, n, rows + i, some);
        else
            expert_few_tile<C, 1>(a, e, n, rows + i, some);
    }
    if constexpr (C::SUM)
        expert_add<C>(a, n, rows, count);
}
