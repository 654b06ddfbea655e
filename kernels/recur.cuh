// recur.cuh - linear recurrences with a decay: the gated delta rule (Yang et al. 2024, arXiv 2412.06464) and the state space
// of Mamba-2 (Dao & Gu 2024, arXiv 2405.21060), where q is C and k is B.
//
//   dt = softplus(a + shift), at least LOW, at most HIGH > 0     decay = exp(-exp(rate) * dt)
//   S = decay * S + k u^T     y = S^T q     u = sigmoid(beta) * (v - decay * S^T k), without BETA dt * v
//
//   q, k [T,G,KEY], v, y [T,H,VALUE], a, beta [T,H]; head h has q and k of head h / (H / G); rate, shift [H] fp32
//   state [slots][H][KEY][VALUE] fp32: S of each sequence and head before its next token; zeros before its first one
//   UNIT > 0: q and k are divided by sqrt(sum of squares + UNIT) first; q is times SCALE
//
// A block takes a sequence (blockIdx.x), a head (y) and 16 columns of S (z), which stay in registers while the sequence's
// tokens of this step follow one another. Eight neighbouring lanes share two columns, each with KEY / 8 rows of them. What a
// token needs of S is summed at once, y = decay * S^T q + (k . q) u, and with it the lengths of q and k, so that a token
// waits for one reduction only; q, k and v of the next token are loaded before it. Lane l of a warp computes the gates of
// each 32nd token, l, l + 32 ... Sums have one order for any number of tokens. Of one token bound by memory, that of S.
#pragma once
#include "device/pdl.cuh"
#include "device/vec.cuh"
#include "device/warp.cuh"
#include "device/io.h"

struct RecurArgs {
    const void *q, *k, *v, *a;
    const float *rate, *shift;
    const void *beta;
    const FtxStep *step;
    const FtxRow *rows;
    float *state;  // of the layer
    void *y;
};

constexpr int RECUR_LANES = 8, RECUR_COLUMNS = 2;  // lanes that share so many columns

struct RecurGate {
    float decay, gain;  // of u: sigmoid(beta), or dt
};

// A lane's part of q and k of one token, and its columns of v.
template <class K> struct RecurToken {
    typedef typename K::T T;
    static constexpr int PART = K::KEY / RECUR_LANES, VEC = vec_width<T>(PART), N = PART / VEC;
    Vec<T, VEC> q[N], k[N];
    Vec<T, RECUR_COLUMNS> v;

    DEVICE void read(const RecurArgs &a, int t, int h, int lane, int column)
    {
        const i64 at = ((i64)t * K::G + h / (K::H / K::G)) * K::KEY + lane * PART;
#pragma unroll
        for (int i = 0; i < N; i++) {
            q[i] = load<VEC>((const T *)a.q + at + i * VEC);
            k[i] = load<VEC>((const T *)a.k + at + i * VEC);
        }
        v = load<RECUR_COLUMNS>((const T *)a.v + ((i64)t * K::H + h) * K::VALUE + column);
    }
    DEVICE float query(int i) const { return to_float(q[i / VEC][i % VEC]); }
    DEVICE float key(int i) const { return to_float(k[i / VEC][i % VEC]); }
};

template <class K> DEVICE RecurGate recur_gate(const RecurArgs &a, int t, int h)
{
    typedef typename K::T T;
    const float x = to_float(((const T *)a.a)[(i64)t * K::H + h]) + a.shift[h];
    float dt = fmaxf(x > 20.0f ? x : log1pf(expf(x)), K::LOW);
    if (K::HIGH > 0.0f)
        dt = fminf(dt, K::HIGH);
    const float decay = expf(-expf(a.rate[h]) * dt);
    return RecurGate{decay,
                     K::BETA ? 1.0f / (1.0f + expf(-to_float(((const T *)a.beta)[(i64)t * K::H + h]))) : dt};
}

// One token: y of the columns, and the change of s, the lane's rows of them.
template <class K>
DEVICE Vec<float, RECUR_COLUMNS> recur_step(const RecurToken<K> &token, const RecurGate &gate,
                                            Vec<float, RECUR_COLUMNS> (&s)[K::KEY / RECUR_LANES])
{
    constexpr int N = K::KEY / RECUR_LANES;
    Vec<float, RECUR_COLUMNS> found = zeros<float, RECUR_COLUMNS>(), read = found, y;  // S^T k, S^T q
    float both = 0.0f, queries = 0.0f, keys = 0.0f;  // k . q, q . q, k . k
#pragma unroll
    for (int i = 0; i < N; i++) {
        const float q = token.query(i), k = token.key(i);
        both = fmaf(q, k, both);
        queries = fmaf(q, q, queries);
        keys = fmaf(k, k, keys);
#pragma unroll
        for (int c = 0; c < RECUR_COLUMNS; c++) {
            found[c] = fmaf(s[i][c], k, found[c]);
            read[c] = fmaf(s[i][c], q, read[c]);
        }
    }
    both = warp_sum<RECUR_LANES>(both);
    const float by_q = K::UNIT > 0.0f ? K::SCALE * rsqrtf(warp_sum<RECUR_LANES>(queries) + K::UNIT) : K::SCALE;
    const float by_k = K::UNIT > 0.0f ? rsqrtf(warp_sum<RECUR_LANES>(keys) + K::UNIT) : 1.0f;
#pragma unroll
    for (int c = 0; c < RECUR_COLUMNS; c++) {
        float u = to_float(token.v[c]);
        if (K::BETA)
            u = fmaf(-gate.decay * by_k, warp_sum<RECUR_LANES>(found[c]), u);
        u *= gate.gain * by_k;
        y[c] = by_q * fmaf(gate.decay, warp_sum<RECUR_LANES>(read[c]), both * u);
#pragma unroll
        for (int i = 0; i < N; i++)
            s[i][c] = fmaf(token.key(i), u, __fmul_rn(gate.decay, s[i][c]));
    }
    return y;
}

template <class K> DEVICE void recur(const RecurArgs &a) // K: T H G KEY VALUE BETA UNIT SCALE LOW HIGH THREADS
{
    typedef typename K::T T;
    constexpr int N = K::KEY / RECUR_LANES;
    launch_dependents();
    wait_for_previous();
    const int lane = threadIdx.x % RECUR_LANES, h = blockIdx.y;
    const int column = (blockIdx.z * K::THREADS + threadIdx.x) / RECUR_LANES * RECUR_COLUMNS;
    if ((int)blockIdx.x >= a.step->rows || column >= K::VALUE)  // of a warp all columns are there or none
        return;
    const FtxRow row = a.rows[blockIdx.x];
    const int end = row.q_start + row.q_len;
    float *state = a.state + (((i64)row.slot * K::H + h) * K::KEY + lane * N) * K::VALUE + column;
    Vec<float, RECUR_COLUMNS> s[N];
#pragma unroll
    for (int i = 0; i < N; i++)
        s[i] = row.kv_len == row.q_len ? zeros<float, RECUR_COLUMNS>()
                                       : load<RECUR_COLUMNS>(state + (i64)i * K::VALUE);
    RecurToken<K> next;
    RecurGate gates;
    next.read(a, row.q_start, h, lane, column);
    for (int t = row.q_start; t < end; t++) {
        const RecurToken<K> token = next;
        const int turn = (t - row.q_start) % 32;
        if (turn == 0)
            gates = recur_gate<K>(a, least(t + lane_id(), end - 1), h);
        if (t + 1 < end)
            next.read(a, t + 1, h, lane, column);
        const RecurGate gate = {shuffle(gates.decay, turn), shuffle(gates.gain, turn)};
        const Vec<float, RECUR_COLUMNS> y = recur_step<K>(token, gate, s);
        if (lane == 0)
            store((T *)a.y + ((i64)t * K::H + h) * K::VALUE + column, from_floats<T>(y));
    }
#pragma unroll
    for (int i = 0; i < N; i++)
        store(state + (i64)i * K::VALUE, s[i]);
}
