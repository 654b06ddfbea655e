// convolve.cuh - of each column a sum over a token and those before it in its sequence, and an activation of it
//
//   x, y [T, C]     w [C, TAPS], b [C] or absent     y[t, c] = act(b[c] + sum of w[c, TAPS-1-j] * x[t-j, c])
//   x lies in rows of PITCH elements, from element FROM on
//   recurrent [slots][TAPS-1][C]: the last rows of x of each sequence before the step, then with it
//
// A thread computes VEC columns of a run of tokens; blocks along y share the columns. Each token of a decode row is a run of its
// own, of the other tokens RUN neighbours are one. A run may have tokens of several sequences:
//
//   tokens      a a a a a a b b b b b b c c      b needs its state for its first TAPS - 1 tokens
//   runs of 4   |-----| |-------| |---| |-|      so these are computed by the run that its first token is in
//
// That run alone reads and then writes the state of the sequence; the others read the TAPS - 1 rows before their first token
// from x. Sums go from the oldest row to the newest in fp32, so a prompt in chunks has the bits of the whole. Memory bound.
#pragma once
#include "body/act.cuh"
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

// The weights of a thread's columns. w[k]: of the row TAPS-1-k before.
template <class K> struct ConvolveWeights {
    Vec<float, K::VEC> w[K::TAPS], b;
};

template <class K> DEVICE void convolve_weights(const ConvolveArgs &a, int c, ConvolveWeights<K> &to)
{
    constexpr int ALL = K::VEC * K::TAPS, N = vec_width<typename K::W>(ALL); // they lie one after another; N in one access
#pragma unroll
    for (int v = 0; v < ALL; v += N) {
        const Vec<typename K::W, N> w = load<N>((const typename K::W *)a.w + c * K::TAPS + v);
#pragma unroll
        for (int i = 0; i < N; i++)
            to.w[(v + i) % K::TAPS][(v + i) / K::TAPS] = to_float(w[i]);
    }
    if constexpr (K::BIAS)
        to.b = to_floats(load<K::VEC>((const typename K::B *)a.b + c));
}

// N tokens from t on, columns from c on. before: the rows before the first, then those before the token that follows.
template <class K, int N>
DEVICE void convolve_tokens(const ConvolveArgs &a, i64 t, int c, const ConvolveWeights<K> &by, Vec<float, K::VEC> (&before)[K::TAPS - 1])
{
    typedef typename K::T T;
    constexpr int VEC = K::VEC, KEPT = K::TAPS - 1;
    Vec<T, VEC> row[N];
#pragma unroll
    for (int n = 0; n < N; n++)
        row[n] = load<VEC>((const T *)a.x + (t + n) * K::PITCH + K::FROM + c);
#pragma unroll
    for (int n = 0; n < N; n++) {
        const Vec<float, VEC> now = to_floats(row[n]);
        Vec<float, VEC> sum = zeros<float, VEC>();
#pragma unroll
        for (int k = 0; k < K::TAPS; k++)
#pragma unroll
            for (int e = 0; e < VEC; e++)
                sum[e] = fmaf(by.w[k][e], k < KEPT ? before[k < KEPT ? k : 0][e] : now[e], sum[e]);
#pragma unroll
        for (int e = 0; e < VEC; e++)
            sum[e] = activate<K::ACT>(K::BIAS ? sum[e] + by.b[e] : sum[e]);
        store((T *)a.y + (t + n) * K::C + c, from_floats<T>(sum));
#pragma unroll
        for (int k = 0; k < KEPT; k++)
            before[k] = k + 1 < KEPT ? before[k + 1 < KEPT ? k + 1 : k] : now;
    }
}

template <class K> DEVICE void convolve(const ConvolveArgs &a) // K: T W B C PITCH FROM TAPS BIAS ACT VEC RUN THREADS
{
    typedef typename K::T T;
    constexpr int VEC = K::VEC, KEPT = K::TAPS - 1, N = K::RUN < 4 ? K::RUN : 4;
    const int c = (blockIdx.y * K::THREADS + threadIdx.x) * VEC;
    launch_dependents();
    if (c >= K::C)
        return;
    ConvolveWeights<K> by;
    convolve_weights(a, c, by);
    wait_for_previous();
    const int live = live_rows<0>(a.step), alone = a.step->decode_rows, block = blockIdx.x;
    const int first = block < alone ? block : alone + (block - alone) * K::RUN;
    const int past = first + (block < alone ? 1 : K::RUN), last = past < live ? past : live;
    for (int t = first; t < last;) {
        const FtxRow row = a.rows[a.token[t].row];
        const int i = t - row.q_start, from_state = row.q_len < KEPT ? row.q_len : KEPT;
        if (i > 0 && i < from_state) { // its sequence began in the run before
            t = row.q_start + from_state;
            continue;
        }
        int stop = last - row.q_start < row.q_len ? last - row.q_start : row.q_len; // of the sequence's tokens: i to stop
        if (i == 0 && stop < from_state)
            stop = from_state;
        const T *x = (const T *)a.x + (i64)row.q_start * K::PITCH + K::FROM + c;
        float *state = a.recurrent + (i64)row.slot * KEPT * K::C + c;
        Vec<float, VEC> before[KEPT];
#pragma unroll
        for (int k = 0; k < KEPT; k++)
            if (i)
                before[k] = to_floats(load<VEC>(x + (i64)(i - KEPT + k) * K::PITCH));
            else // a new sequence finds what another left
                before[k] = row.kv_len == row.q_len ? zeros<float, VEC>() : load<VEC>(state + (i64)k * K::C);
        int n = i;
        for (; n + N <= stop; n += N)
            convolve_tokens<K, N>(a, row.q_start + n, c, by, before);
        if constexpr (N > 1)
            for (; n < stop; n++)
                convolve_tokens<K, 1>(a, row.q_start + n, c, by, before);
        if (i == 0)
#pragma unroll
            for (int k = 0; k < KEPT; k++)
                store(state + (i64)k * K::C,
                      row.q_len <= KEPT ? before[k] : to_floats(load<VEC>(x + (i64)(row.q_len - KEPT + k) * K::PITCH)));
        t = row.q_start + stop;
    }
}
