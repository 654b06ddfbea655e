// convolve.cuh - of each column a sum over a token and those before it in its sequence
//
//   x, y [T, C]     w [C, TAPS], b [C] or absent     y[t, c] = b[c] + sum of w[c, TAPS-1-j] * x[t-j, c]
//   recurrent [slots][TAPS-1][C]: the last rows of x of each sequence before the step, then with it
//
// blockIdx.x is the token; blocks along y share the columns. The block of a chunk's first token does all tokens that read
// the state, which are TAPS - 1 at most, and then writes it. Sums go from the oldest row to the newest in fp32, so a prompt in
// chunks has the bits of the whole. Memory bound.
#pragma once
#include "body/rows.cuh"
#include "device/pdl.cuh"
#include "device/vec.cuh"

struct ConvolveArgs {
    const void *x, *w, *b;
    const FtxStep *step;
    const FtxRow *rows;
    const FtxToken *token;
    float *recurrent;
    void *y;
};

// Columns of a thread: as many as one access has, fewer where their taps would not leave registers.
template <class T> constexpr DEVICE int convolve_vec(int C, int taps)
{
    int n = vec_width<T>(C);
    while (n > 1 && n * taps > 32)
        n /= 2;
    return n;
}

template <class K> DEVICE void convolve(const ConvolveArgs &a) // K: T W B C TAPS THREADS
{
    typedef typename K::T T;
    constexpr int VEC = convolve_vec<T>(K::C, K::TAPS), KEPT = K::TAPS - 1;
    launch_dependents();
    wait_for_previous();
    const int t = blockIdx.x;
    if (t >= live_rows<0>(a.step))
        return;
    const FtxRow row = a.rows[a.token[t].row];
    const int i = t - row.q_start, tokens = i ? 1 : row.q_len < KEPT ? row.q_len : KEPT;
    if (i > 0 && i < KEPT)
        return;
    for (int v = blockIdx.y * K::THREADS + threadIdx.x; v < K::C / VEC; v += gridDim.y * K::THREADS) {
        const int c = v * VEC;
        float *state = a.recurrent + (i64)row.slot * KEPT * K::C + c;
        const T *x = (const T *)a.x + (i64)row.q_start * K::C + c;
        Vec<float, VEC> w[K::TAPS], b, before[KEPT];
#pragma unroll
        for (int e = 0; e < VEC; e++) {
            b[e] = a.b ? to_float(((const typename K::B *)a.b)[c + e]) : 0.0f;
#pragma unroll
            for (int k = 0; k < K::TAPS; k++)
                w[k][e] = to_float(((const typename K::W *)a.w)[(c + e) * K::TAPS + k]);
        }
#pragma unroll
        for (int k = 0; k < KEPT; k++)
            if (i)
                before[k] = to_floats(load<VEC>(x + (i64)(i - KEPT + k) * K::C));
            else // a new sequence finds what another left
                before[k] = row.kv_len == row.q_len ? zeros<float, VEC>() : load<VEC>(state + (i64)k * K::C);
        for (int n = i; n < i + tokens; n++) {
            const Vec<float, VEC> now = to_floats(load<VEC>(x + (i64)n * K::C));
            Vec<float, VEC> y = zeros<float, VEC>();
#pragma unroll
            for (int k = 0; k < K::TAPS; k++)
#pragma unroll
                for (int e = 0; e < VEC; e++)
                    y[e] += w[k][e] * (k < KEPT ? before[k < KEPT ? k : 0][e] : now[e]);
#pragma unroll
            for (int e = 0; e < VEC; e++)
                y[e] += b[e];
            store((T *)a.y + (i64)(row.q_start + n) * K::C + c, from_floats<T>(y));
#pragma unroll
            for (int k = 0; k < KEPT; k++)
                before[k] = k + 1 < KEPT ? before[k + 1 < KEPT ? k + 1 : k] : now;
        }
        if (i == 0)
#pragma unroll
            for (int k = 0; k < KEPT; k++)
                store(state + (i64)k * K::C,
                      row.q_len <= KEPT ? before[k] : to_floats(load<VEC>(x + (i64)(row.q_len - KEPT + k) * K::C)));
    }
}
