// selective_scan.cuh - the state space of Mamba (Gu & Dao 2023, arXiv 2312.00752): a recurrence with one value for each head (the
// paper's channel), all of which share a key (B) and a query (C), and in which every key decays at a rate of its own.
//
//   dt = softplus(a + shift), at least LOW, at most HIGH > 0     decay[i] = exp(-exp(rate[i]) * dt)
//   s[i] = decay[i] * s[i] + k[i] * dt * v     y = SCALE * sum of s[i] * q[i]
//
//   q, k [T,KEY], v, y, a [T,H]; rate [H][KEY], shift [H] fp32
//   state [slots][H][KEY] fp32: s of each sequence and head before its next token; zeros before its first one
//
// A block takes a sequence (blockIdx.x) and THREADS / 8 heads (y). Eight neighbouring lanes share a head, each with KEY / 8 of its
// keys in registers, while the sequence's tokens of this step follow one another; q, k and v of the next token are loaded before
// it. Lane l of a head computes dt of each 8th token, l, l + 8 ... Sums have one order for any number of tokens. Of one token
// bound by memory, that of the state.
#pragma once
#include "device/pdl.cuh"
#include "device/vec.cuh"
#include "device/warp.cuh"
#include "device/io.h"

struct SelectiveScanArgs {
    const void *q, *k, *v, *a;
    const float *rate, *shift;
    const FtxStep *step;
    const FtxRow *rows;
    float *state;  // of the layer
    void *y;
};

constexpr int SCAN_LANES = 8;  // lanes that share a head

// A lane's part of q and k of one token, and v of its head.
template <class K> struct ScanToken {
    typedef typename K::T T;
    static constexpr int PART = K::KEY / SCAN_LANES, VEC = vec_width<T>(PART), N = PART / VEC;
    Vec<T, VEC> q[N], k[N];
    float v;

    DEVICE void read(const SelectiveScanArgs &a, int t, int h, int lane)
    {
        const i64 at = (i64)t * K::KEY + lane * PART;
#pragma unroll
        for (int i = 0; i < N; i++) {
            q[i] = load<VEC>((const T *)a.q + at + i * VEC);
            k[i] = load<VEC>((const T *)a.k + at + i * VEC);
        }
        v = to_float(((const T *)a.v)[(i64)t * K::H + h]);
    }
    DEVICE float query(int i) const { return to_float(q[i / VEC][i % VEC]); }
    DEVICE float key(int i) const { return to_float(k[i / VEC][i % VEC]); }
};

template <class K> DEVICE float scan_dt(const SelectiveScanArgs &a, int t, int h)
{
    typedef typename K::T T;
    const float x = to_float(((const T *)a.a)[(i64)t * K::H + h]) + a.shift[h];
    const float dt = fmaxf(x > 20.0f ? x : log1pf(expf(x)), K::LOW);
    return K::HIGH > 0.0f ? fminf(dt, K::HIGH) : dt;
}

template <class K> DEVICE void selective_scan(const SelectiveScanArgs &a) // K: T H KEY SCALE LOW HIGH THREADS
{
    typedef typename K::T T;
    constexpr int N = K::KEY / SCAN_LANES, VEC = vec_width<float>(N);
    launch_dependents();
    wait_for_previous();
    if ((int)blockIdx.x >= a.step->rows)
        return;
    const int lane = threadIdx.x % SCAN_LANES, at = (blockIdx.y * K::THREADS + threadIdx.x) / SCAN_LANES;
    const int h = least(at, K::H - 1);  // lanes behind the last head read its inputs, and write nothing
    const FtxRow row = a.rows[blockIdx.x];
    const int end = row.q_start + row.q_len;
    float *state = a.state + ((i64)row.slot * K::H + h) * K::KEY + lane * N;
    Vec<float, VEC> s[N / VEC], rate[N / VEC];
#pragma unroll
    for (int i = 0; i < N / VEC; i++) {
        s[i] = row.kv_len == row.q_len || at >= K::H ? zeros<float, VEC>() : load<VEC>(state + i * VEC);
        rate[i] = load<VEC>(a.rate + (i64)h * K::KEY + lane * N + i * VEC);
#pragma unroll
        for (int c = 0; c < VEC; c++)
            rate[i][c] = -expf(rate[i][c]);
    }
    ScanToken<K> next;
    float steps;
    next.read(a, row.q_start, h, lane);
    for (int t = row.q_start; t < end; t++) {
        const ScanToken<K> token = next;
        const int turn = (t - row.q_start) % SCAN_LANES;
        if (turn == 0)
            steps = scan_dt<K>(a, least(t + lane, end - 1), h);
        if (t + 1 < end)
            next.read(a, t + 1, h, lane);
        const float dt = shuffle(steps, lane_id() - lane + turn), u = dt * token.v;
        float y = 0.0f;
#pragma unroll
        for (int i = 0; i < N; i++) {
            float &one = s[i / VEC][i % VEC];
            one = fmaf(token.key(i), u, __fmul_rn(expf(rate[i / VEC][i % VEC] * dt), one));
            y = fmaf(one, token.query(i), y);
        }
        y = K::SCALE * warp_sum<SCAN_LANES>(y);
        if (lane == 0 && at < K::H)
            ((T *)a.y)[(i64)t * K::H + h] = from_float<T>(y);
    }
    if (at >= K::H)
        return;
#pragma unroll
    for (int i = 0; i < N / VEC; i++)
        store(state + i * VEC, s[i]);
}
