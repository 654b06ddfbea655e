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

// Columns of a thread: as many as one access has, fewer where they would not leave registers.
template <class T> constexpr DEVICE int convolve_vec(int C, int taps)
{
    int n = vec_width<T>(C);
    while (n > 1 && n * taps > 32)
        n /= 2;
    return n;
}

template <class K, int VEC> struct Taps {
    float w[VEC * K::TAPS], b[VEC];

    DEVICE void read(const ConvolveArgs &a, int c)
    {
#pragma unroll
        for (int e = 0; e < VEC * K::TAPS; e++)
            w[e] = to_float(((const typename K::W *)a.w)[c * K::TAPS + e]);
#pragma unroll
        for (int e = 0; e < VEC; e++)
            b[e] = a.b ? to_float(((const typename K::B *)a.b)[c + e]) : 0.0f;
    }
    // Adds row k of the TAPS that end with a token; then the bias.
    DEVICE void add(Vec<float, VEC> &y, const Vec<float, VEC> &row, int k) const
    {
#pragma unroll
        for (int e = 0; e < VEC; e++)
            y[e] += w[e * K::TAPS + k] * row[e];
    }
    DEVICE Vec<float, VEC> biased(Vec<float, VEC> y) const
    {
#pragma unroll
        for (int e = 0; e < VEC; e++)
            y[e] += b[e];
        return y;
    }
};

// The first tokens of a chunk, which read the state, and the state after the chunk. x, y: of its first token.
template <class K, int VEC>
DEVICE void convolve_first(const FtxRow &row, const Taps<K, VEC> &taps, const typename K::T *x, float *state, typename K::T *y)
{
    typedef typename K::T T;
    constexpr int KEPT = K::TAPS - 1;
    Vec<float, VEC> past[KEPT];
#pragma unroll
    for (int k = 0; k < KEPT; k++) // a new sequence finds what another left
        past[k] = row.kv_len == row.q_len ? zeros<float, VEC>() : load<VEC>(state + (i64)k * K::C);
#pragma unroll
    for (int t = 0; t < KEPT; t++) {
        if (t >= row.q_len)
            break;
        Vec<float, VEC> sum = zeros<float, VEC>();
#pragma unroll
        for (int k = 0; k < K::TAPS; k++)
            taps.add(sum, t + k < KEPT ? past[t + k] : to_floats(load<VEC>(x + (i64)(t + k - KEPT) * K::C)), k);
        store(y + (i64)t * K::C, from_floats<T>(taps.biased(sum)));
    }
#pragma unroll
    for (int k = 0; k < KEPT; k++) {
        if (row.q_len + k >= KEPT)
            store(state + (i64)k * K::C, to_floats(load<VEC>(x + (i64)(row.q_len + k - KEPT) * K::C)));
#pragma unroll
        for (int from = k + 1; from < KEPT; from++) // a register has no index
            if (row.q_len + k == from)
                store(state + (i64)k * K::C, past[from]);
    }
}

template <class K> DEVICE void convolve(const ConvolveArgs &a) // K: T W B C TAPS THREADS
{
    typedef typename K::T T;
    constexpr int KEPT = K::TAPS - 1, VEC = convolve_vec<T>(K::C, K::TAPS);
    launch_dependents();
    wait_for_previous();
    if ((int)blockIdx.x >= live_rows<0>(a.step))
        return;
    const FtxRow row = a.rows[a.token[blockIdx.x].row];
    const int t = blockIdx.x - row.q_start;
    if (t > 0 && t < KEPT)
        return;
    for (int v = blockIdx.y * K::THREADS + threadIdx.x; v < K::C / VEC; v += gridDim.y * K::THREADS) {
        const int c = v * VEC;
        const T *x = (const T *)a.x + (i64)row.q_start * K::C + c;
        T *y = (T *)a.y + (i64)row.q_start * K::C + c;
        Taps<K, VEC> taps;
        taps.read(a, c);
        if (t == 0) {
            convolve_first(row, taps, x, a.recurrent + (i64)row.slot * KEPT * K::C + c, y);
            continue;
        }
        Vec<float, VEC> sum = zeros<float, VEC>();
#pragma unroll
        for (int k = 0; k < K::TAPS; k++)
            taps.add(sum, to_floats(load<VEC>(x + (i64)(t + k - KEPT) * K::C)), k);
        store(y + (i64)t * K::C, from_floats<T>(taps.biased(sum)));
    }
}
