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

// VEC columns of a chunk and what they are multiplied with. Row i < 0 is one before the chunk.
template <class K, int VEC> struct Reach {
    static constexpr int KEPT = K::TAPS - 1;
    const typename K::T *x; // of row 0
    Vec<float, VEC> past[KEPT];
    float w[VEC * K::TAPS], b[VEC];

    DEVICE Vec<float, VEC> row(int i) const
    {
        if (i >= 0)
            return to_floats(load<VEC>(x + (i64)i * K::C));
        Vec<float, VEC> before = past[0];
#pragma unroll
        for (int k = 1; k < KEPT; k++) // a register has no index
            if (KEPT + i == k)
                before = past[k];
        return before;
    }

    DEVICE Vec<float, VEC> sum(int i) const
    {
        Vec<float, VEC> y;
#pragma unroll
        for (int e = 0; e < VEC; e++)
            y[e] = 0.0f;
#pragma unroll
        for (int k = 0; k < K::TAPS; k++) {
            const Vec<float, VEC> from = row(i - KEPT + k);
#pragma unroll
            for (int e = 0; e < VEC; e++)
                y[e] += w[e * K::TAPS + k] * from[e];
        }
#pragma unroll
        for (int e = 0; e < VEC; e++)
            y[e] += b[e];
        return y;
    }
};

template <class K> DEVICE void convolve(const ConvolveArgs &a) // K: T W B C TAPS THREADS
{
    typedef typename K::T T;
    constexpr int VEC = vec_width<T>(K::C), KEPT = K::TAPS - 1;
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
        Reach<K, VEC> of = {(const T *)a.x + (i64)row.q_start * K::C + c};
#pragma unroll
        for (int e = 0; e < VEC * K::TAPS; e++)
            of.w[e] = to_float(((const typename K::W *)a.w)[c * K::TAPS + e]);
#pragma unroll
        for (int e = 0; e < VEC; e++)
            of.b[e] = a.b ? to_float(((const typename K::B *)a.b)[c + e]) : 0.0f;
        if (i == 0)
#pragma unroll
            for (int k = 0; k < KEPT; k++)
#pragma unroll
                for (int e = 0; e < VEC; e++) // a new sequence finds what another left
                    of.past[k][e] = row.kv_len == row.q_len ? 0.0f : state[(i64)k * K::C + e];
        for (int k = i; k < i + tokens; k++)
            store((T *)a.y + (i64)(row.q_start + k) * K::C + c, from_floats<T>(of.sum(k)));
        if (i == 0)
#pragma unroll
            for (int k = 0; k < KEPT; k++) {
                const Vec<float, VEC> last = of.row(row.q_len - KEPT + k);
#pragma unroll
                for (int e = 0; e < VEC; e++)
                    state[(i64)k * K::C + e] = last[e];
            }
    }
}
