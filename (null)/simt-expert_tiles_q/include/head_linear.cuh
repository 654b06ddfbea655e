// head_linear.cuh - a product for each head:   y[t,h,:] = w_h x[t,h,:]
//
//   x [T, H, K], y [T, H, N]; w [H*N, K] row-major, w_h: its rows h*N .. h*N + N - 1
//
// A block of four warps computes ROWS tokens x 64 columns of one head. K is taken in steps, which go through shared memory;
// the next step's elements are read while one is multiplied. Where x and w have one 16-bit type, warp w multiplies by matrix
// instructions for columns 16w .. 16w + 15; else a thread has 4 columns of ROWS / 8 tokens, by multiply-adds in fp32. Every
// output is one chain of sums in the order of k: it depends neither on ROWS nor on other tokens.
#pragma once
#include "device/block.cuh"
#include "device/io.h"
#include "device/mma.cuh"
#include "device/pdl.cuh"
#include "device/vec.cuh"

struct HeadLinearArgs {
    const void *x, *w;
    const FtxStep *step;
    void *y;
};

template <class A, class B> struct HeadHalves { static constexpr bool VALUE = false; typedef float Type; };
template <> struct HeadHalves<bf16, bf16> { static constexpr bool VALUE = true; typedef bf16 Type; };
template <> struct HeadHalves<half, half> { static constexpr bool VALUE = true; typedef half Type; };

enum { HEAD_COLUMNS = 64, HEAD_THREADS = 128 };

// A step of K for R rows of a matrix: from memory to registers, then to shared memory as S, with PITCH elements a row.
template <class T, class S, int R, int STEP, int PITCH, int K> struct HeadTile {
    static constexpr int VEC = vec_width<T>(K), IN_ROW = ceil_div(STEP, VEC), EACH = ceil_div(R * IN_ROW, HEAD_THREADS);
    Vec<T, VEC> v[EACH];

    // Row r of `rows` is at from + r * stride; zeros beyond these rows and beyond K.
    DEVICE void read(const T *from, i64 stride, int rows, int k)
    {
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            const int at = i * HEAD_THREADS + threadIdx.x, r = at / IN_ROW, e = k + at % IN_ROW * VEC;
            v[i] = zeros<T, VEC>();
            if (r < rows && r < R && e < K)
                v[i] = load<VEC>(from + r * stride + e);
        }
    }
    DEVICE void put(S *to) const
    {
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            const int at = i * HEAD_THREADS + threadIdx.x, r = at / IN_ROW, e = at % IN_ROW * VEC;
            if (r < R)
#pragma unroll
                for (int n = 0; n < VEC; n++)
                    to[r * PITCH + e + n] = from_float<S>(to_float(v[i][n]));
        }
    }
};

// d[m][n]: rows 16m .. of x times columns 16 * warp + 8n .. of w
template <class S, int M, int STEP, int PITCH> DEVICE void head_matrix(const S *x, const S *w, float (&d)[M][2][4])
{
    const int g = lane_id() / 4, c = lane_id() % 4 * 2;
#pragma unroll
    for (int k = 0; k < STEP; k += 16) {
        u32 b[2][2];
#pragma unroll
        for (int n = 0; n < 2; n++)
#pragma unroll
            for (int i = 0; i < 2; i++)
                b[n][i] = *(const u32 *)(w + (warp_id() * 16 + n * 8 + g) * PITCH + k + i * 8 + c);
#pragma unroll
        for (int m = 0; m < M; m++) {
            u32 q[4];
#pragma unroll
            for (int i = 0; i < 4; i++)
                q[i] = *(const u32 *)(x + (m * 16 + i % 2 * 8 + g) * PITCH + k + i / 2 * 8 + c);
#pragma unroll
            for (int n = 0; n < 2; n++)
                mma<S>(d[m][n], q, b[n]);
        }
    }
}

// d[m][n]: row M * (thread / 16) + m of x times column thread % 16 + 16n of w
template <int M, int STEP, int PITCH> DEVICE void head_fma(const float *x, const float *w, float (&d)[M][4])
{
    const int row = threadIdx.x / 16 * M, column = threadIdx.x % 16;
#pragma unroll 4
    for (int k = 0; k < STEP; k++)
#pragma unroll
        for (int n = 0; n < 4; n++) {
            const float f = w[(column + n * 16) * PITCH + k];
#pragma unroll
            for (int m = 0; m < M; m++)
                d[m][n] = fmaf(x[(row + m) * PITCH + k], f, d[m][n]);
        }
}

template <class K> // K: T W OUT H N K ROWS
DEVICE void head_linear(const HeadLinearArgs &a)
{
    typedef typename K::T T;
    typedef typename K::W W;
    typedef typename K::OUT OUT;
    typedef typename HeadHalves<T, W>::Type S;
    constexpr bool HALVES = HeadHalves<T, W>::VALUE;
    constexpr int STEP = HALVES ? 64 : 16, PITCH = HALVES ? STEP + 8 : STEP + 1, M = K::ROWS / (HALVES ? 16 : 8);
    SHARED(S, xs, K::ROWS * PITCH);
    SHARED(S, ws, HEAD_COLUMNS * PITCH);
    launch_dependents();
    wait_for_previous();
    const int h = blockIdx.y, column = blockIdx.x * HEAD_COLUMNS, token = blockIdx.z * K::ROWS;
    const int rows = least(K::ROWS, a.step->tokens - token), columns = least((int)HEAD_COLUMNS, K::N - column);
    if (rows <= 0)
        return;
    const T *x = (const T *)a.x + ((i64)token * K::H + h) * K::K;
    const W *w = (const W *)a.w + ((i64)h * K::N + column) * K::K;
    HeadTile<T, S, K::ROWS, STEP, PITCH, K::K> x_tile;
    HeadTile<W, S, HEAD_COLUMNS, STEP, PITCH, K::K> w_tile;
    OUT *y = (OUT *)a.y + ((i64)token * K::H + h) * K::N + column;

    x_tile.read(x, (i64)K::H * K::K, rows, 0);
    w_tile.read(w, K::K, columns, 0);
    if constexpr (HALVES) {
        float d[M][2][4] = {};
        for (int k = 0; k < K::K; k += STEP) {
            x_tile.put(xs);
            w_tile.put(ws);
            block_sync();
            x_tile.read(x, (i64)K::H * K::K, rows, k + STEP);
            w_tile.read(w, K::K, columns, k + STEP);
            head_matrix<S, M, STEP, PITCH>(xs, ws, d);
            block_sync();
        }
#pragma unroll
        for (int m = 0; m < M; m++)
#pragma unroll
            for (int n = 0; n < 2; n++)
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    const int r = m * 16 + i / 2 * 8 + lane_id() / 4, c = warp_id() * 16 + n * 8 + lane_id() % 4 * 2 + i % 2;
                    if (r < rows && c < columns)
                        y[(i64)r * K::H * K::N + c] = from_float<OUT>(d[m][n][i]);
                }
    } else {
        float d[M][4] = {};
        for (int k = 0; k < K::K; k += STEP) {
            x_tile.put(xs);
            w_tile.put(ws);
            block_sync();
            x_tile.read(x, (i64)K::H * K::K, rows, k + STEP);
            w_tile.read(w, K::K, columns, k + STEP);
            head_fma<M, STEP, PITCH>(xs, ws, d);
            block_sync();
        }
#pragma unroll
        for (int m = 0; m < M; m++)
#pragma unroll
            for (int n = 0; n < 4; n++) {
                const int r = threadIdx.x / 16 * M + m, c = threadIdx.x % 16 + n * 16;
                if (r < rows && c < columns)
                    y[(i64)r * K::H * K::N + c] = from_float<OUT>(d[m][n]);
            }
    }
}
