// linear_attend.cuh - q, k, v and attention of an encoder's few tokens in one kernel, on sm_90a.
//
//   q, k, v = x * w^T + b          y[t] = softmax(q[t] k^T / sqrt(E)) v over the tokens of t's own text
//
//   x  [M, D]      M <= 128 tokens, text after text; 16-bit, TMA descriptor. With X_STATS x is normed (linear_tile.cuh)
//   w  [3*H*E, D]  q, k, v projections, heads of E = 64; 16-bit, TMA descriptor      b  [3*H*E] fp32
//   y  [M, H*E]    sums in fp32
//
// With so few tokens neither bytes nor products limit it, but latency: the start of a kernel, the wait for x from L2,
// the wait for other blocks. A cluster of 8 blocks computes one head and shares the work in two ways:
//
//   product     rank bits: half of D | half of the head's columns | half of the tokens. A block multiplies 64 tokens, 96
//               columns (32 each of q, k and v) and half of D, by its first warpgroup; of all ways to cut the work in 8
//               this one reads least. The two blocks of one result swap sums: each finishes 8 of every 16 tokens
//   attention   a block has its 32 finished tokens and the 32 columns of y of its half. It receives the other 32 columns
//               of its queries, all keys, and its columns of all values; keys are sent first. A warp takes 16 queries
//               and 32 keys; at the end the results of 4 warps are combined (flash decoding)
//
// All of w is requested before the previous kernel has ended. Shared memory is used twice (w, then keys, values,
// queries and results; x, then sums), so that a block fits beside one of the previous kernel on an SM.
//
// Order of summation: first half of D + second half; attention in groups of 32 tokens of the step.
#pragma once
#include "device/barrier.cuh"
#include "device/cluster.cuh"
#include "device/fragment.cuh"
#include "device/io.h"
#include "device/mbarrier.cuh"
#include "device/mma.cuh"
#include "device/pdl.cuh"
#include "device/shared.cuh"
#include "device/tensor.cuh"
#include "device/wgmma.cuh"
#include "body/norm.cuh"
#include "body/quad.cuh"
#include "body/tile.cuh"

struct LinearAttendArgs {
    const TensorMap *x, *w; // TMA descriptors, tiles of 64 and 32 rows
    const float *b;         // [3*H*E]
    const float *xs;        // X_STATS: row statistics of x (body/norm.cuh, RowSums)
    const FtxStep *step;
    const FtxRow *rows;
    void *y; // [M, H*E]
};

template <class C> struct LinearAttendShape {
    static constexpr int E = 64, HALF = E / 2, TILE_N = 3 * HALF; // columns: of a head, of q, k or v in a block, of a block
    static constexpr int TOKENS = 128, OWN = TOKENS / 4, KEY_GROUPS = 4;
    static constexpr int STEPS = ceil_div(C::D, 64);       // of 64 k; a block has C::SLOTS of them
    static constexpr int W = TILE_N * 128, X = 64 * 128;                             // bytes of a slot's w and x
    using Rows = TileRows<128>;                                                  // of keys, queries
    using Halves = TileRows<80>;                                                 // of values
    static constexpr int OUT_PITCH = HALF + 4;                                   // floats of a row of a warp's result
    // Bytes received from the other blocks: keys and queries; values; sums.
    static constexpr int KEYS = (7 + 1) * OWN * HALF * 2, VALUES = 3 * OWN * HALF * 2, RECEIVED = 64 * TILE_N * 4 / 2;
    // Steps whose w and x are overwritten: these must have been read.
    static constexpr int STEPS_BEFORE_REUSE = most(ceil_div(C::RESULTS_AT, W), ceil_div(RECEIVED, X));
    static DEVICE constexpr int kind(int i) { return i == 0 ? 1 : i == 1 ? 0 : 2; } // keys, queries, values
};

// This block's work in its cluster.
template <class C> struct LinearAttendWork {
    int rank, head, half, columns, tokens; // which half of D, of the columns, of the tokens
    int s0, steps;
    DEVICE LinearAttendWork()
    {
        constexpr int STEPS = LinearAttendShape<C>::STEPS;
        rank = cluster_rank();
        head = blockIdx.x / 8;
        half = rank & 1;
        columns = rank >> 1 & 1;
        tokens = rank >> 2;
        s0 = half * (STEPS / 2);
        steps = half ? STEPS - STEPS / 2 : STEPS / 2;
    }
    // The row-th token that this block finishes.
    DEVICE int token(int row) const { return tokens * 64 + row / 8 * 16 + half * 8 + row % 8; }
    // First row of w of the block's columns of q, k or v.
    DEVICE int row(int kind) const { return (kind * C::HEADS + head) * 64 + columns * 32; }
};

template <class C>
DEVICE void linear_attend_load_w(const LinearAttendArgs &a, const LinearAttendWork<C> &t, u32 shared, u32 full)
{
    typedef LinearAttendShape<C> P;
#pragma unroll 1
    for (int i = 0; i < t.steps; i++)
#pragma unroll
        for (int kind = 0; kind < 3; kind++)
            tensor_copy(shared + i * P::W + kind * P::HALF * 128, a.w, t.row(kind), (t.s0 + i) * 64, full + 8 * i);
}
template <class C>
DEVICE void linear_attend_load_x(const LinearAttendArgs &a, const LinearAttendWork<C> &t, u32 shared, u32 full)
{
    typedef LinearAttendShape<C> P;
#pragma unroll 1
    for (int i = 0; i < t.steps; i++)
        tensor_copy(shared + C::X_AT + i * P::X, a.x, t.tokens * 64, (t.s0 + i) * 64, full + 8 * i);
}

// Finds the text of each of the block's tokens, by its last two warps.
template <class C>
DEVICE void linear_attend_texts(const LinearAttendArgs &a, const LinearAttendWork<C> &t, char *shared)
{
    typedef LinearAttendShape<C> P;
    const int i = (int)threadIdx.x - 192, row = i % P::OWN, token = t.token(row);
    for (int r = i / P::OWN; r < a.step->rows; r += 2) {
        const int begin = a.rows[r].q_start, end = begin + a.rows[r].q_len;
        if (token >= begin && token < end)
            ((u16 *)(shared + C::TEXTS_AT))[row] = (u16)(begin | end << 8);
    }
}

// Multiplies the block's half of D: 64 tokens by 96 columns; each step is issued as soon as it has landed. Once the
// steps whose memory is reused have been read, it arrives at `free` of the block of the other half, which may then send
// its sums, and at the cluster's barrier, after which keys, queries and values may come.
template <class C>
DEVICE void linear_attend_multiply(float (&d)[LinearAttendShape<C>::TILE_N / 2], const LinearAttendWork<C> &t, u32 shared,
                                   u32 full, u32 free)
{
    typedef LinearAttendShape<C> P;
    const u32 there = cluster_map(free, t.rank ^ 1);
#pragma unroll
    for (int i = 0; i < P::TILE_N / 2; i++)
        d[i] = 0.0f;
#pragma unroll
    for (int s = 0; s < C::SLOTS; s++) {
        if (s < t.steps) {
            const u64 w = wgmma_descriptor(shared + s * P::W, 0, 0), x = wgmma_descriptor(shared + C::X_AT + s * P::X, 0, 0);
            mbarrier_wait(full + 8 * s, 0);
            wgmma_fence();
#pragma unroll
            for (int k = 0; k < 4; k++)
                Wgmma<P::TILE_N, typename C::T>::add(d, wgmma_descriptor_at(x, 0, k), wgmma_descriptor_at(w, 0, k));
            wgmma_commit();
        }
        if (s == least(P::STEPS_BEFORE_REUSE, C::SLOTS - 1)) {
            wgmma_wait<(P::STEPS_BEFORE_REUSE + 1 < C::SLOTS)>();
            if (lane_id() == 0)
                cluster_mbarrier_arrive(there);
            cluster_arrive();
        }
    }
    wgmma_wait<0>();
}

// Of a thread's rows g and g + 8 this block finishes one (row g + 8 * half); the sums of the other go to the block of
// the other half of D. Keys first, then queries, then values.
template <class C>
DEVICE void linear_attend_send_sums(const float (&d)[LinearAttendShape<C>::TILE_N / 2], const LinearAttendWork<C> &t, u32 shared,
                               u32 sums_here)
{
    typedef LinearAttendShape<C> P;
    const u32 there = cluster_map(shared + C::SUMS_AT + threadIdx.x * 16, t.rank ^ 1); // [fours][threads]
    const u32 count = cluster_map(sums_here, t.rank ^ 1);
#pragma unroll
    for (int n = 0; n < P::TILE_N / 16; n++) {
        const int i = P::kind(n / 2) * 2 + n % 2;
        const float *v = d + i * 8;
        cluster_send4(there + i * 2048, t.half ? v[0] : v[2], t.half ? v[1] : v[3], t.half ? v[4] : v[6],
                      t.half ? v[5] : v[7], count + P::kind(n / 2) * 8);
    }
}

// Adds the sums received, and stores q, k and v of this thread's token here and in the blocks that need them; zeros for
// tokens that are not live.
template <class C>
DEVICE void linear_attend_send_qkv(const float (&d)[LinearAttendShape<C>::TILE_N / 2], const LinearAttendWork<C> &t,
                                 float scale, const Vec<float, 2> (&bias)[LinearAttendShape<C>::TILE_N / 8], bool live,
                                 int row, char *shared, u32 sums_here, u32 keys)
{
    typedef LinearAttendShape<C> P;
    const int lane = lane_id() & 3, piece = t.columns * 4 + lane;
    const u32 base = shared_address(shared);
    const Vec<float, 4> *sums = (const Vec<float, 4> *)(shared + C::SUMS_AT) + threadIdx.x;
#pragma unroll
    for (int i = 0; i < 3; i++) {
        const int kind = P::kind(i);
        u32 four[4];
        mbarrier_wait(sums_here + 8 * kind, 0);
#pragma unroll
        for (int n = 0; n < 2; n++) {
            const Vec<float, 4> other = sums[(kind * 2 + n) * 128];
            float v[4];
#pragma unroll
            for (int e = 0; e < 4; e++) { // a sum of two is the same either way round
                const int tile = kind * 4 + n * 2 + e / 2, own = tile * 4 + e % 2;
                v[e] = fmaf((t.half ? d[own + 2] : d[own]) + other[e], scale, bias[tile][e % 2]);
            }
            four[n * 2] = live ? pack2<typename C::T>(v[0], v[1]) : 0;
            four[n * 2 + 1] = live ? pack2<typename C::T>(v[2], v[3]) : 0;
        }
        quad_transpose(four);
        const uint4_ eight = {four[0], four[1], four[2], four[3]};
        const u32 at = base + (kind == 0   ? C::QUERIES_AT + P::Rows::piece(row, piece)
                               : kind == 1 ? C::KEYS_AT + P::Rows::piece(t.token(row), piece)
                                           : C::VALUES_AT + P::Halves::piece(t.token(row), lane));
        shared_store16(at, eight);
#pragma unroll
        for (int other = 1; other < 8; other++) {
            const u32 to = t.rank ^ other;
            if (kind == 1 || (kind == 0 ? other == 2 : (other & 2) == 0))
                cluster_send16(cluster_map(at, to), eight, cluster_map(keys + (kind == 2) * 8, to));
        }
    }
}

// Attention of this warp's 16 queries over its 32 keys. To shared memory: weighted sum of values, maximum, sum of
// weights.
template <class C> DEVICE void linear_attend_scores(char *shared, u32 keys)
{
    typedef LinearAttendShape<C> P;
    using Rows = typename P::Rows;
    using Halves = typename P::Halves;
    using T = typename C::T;
    const int lane = lane_id(), g = lane >> 2, t = lane & 3, query = warp_id() % 2 * 16, key = warp_id() / 2 * 32;
    const u32 q_rows = shared_address(shared) + C::QUERIES_AT + Rows::piece(query + lane % 16, lane / 16);
    const u32 k_rows = shared_address(shared) + C::KEYS_AT + Rows::piece(key + lane % 8 + lane / 16 * 8, lane / 8 % 2);
    const u32 v_rows = shared_address(shared) + C::VALUES_AT + Halves::piece(key + lane % 16, lane / 16);
    const u16 *texts = (const u16 *)(shared + C::TEXTS_AT) + query + g;
    const int text[2] = {texts[0], texts[8]};
    const int row = warp_id() / 2 * P::OWN + query + g;
    float *part = (float *)(shared + C::RESULTS_AT) + row * P::OUT_PITCH + 2 * t;
    float *stat = (float *)(shared + C::SOFTMAX_AT) + row * 2;
    float s[4][4] = {}, o[4][4] = {};
    mbarrier_wait(keys, 0);
#pragma unroll
    for (int i = 0; i < 4; i++) {
        u32 q[4];
        ldmatrix4(q, Rows::pair(q_rows, i));
#pragma unroll
        for (int n = 0; n < 4; n += 2) {
            u32 k[4];
            ldmatrix4(k, Rows::pair(k_rows + n * 8 * Rows::PITCH, i));
            mma<T>(s[n], q[0], q[1], q[2], q[3], k[0], k[1]);
            mma<T>(s[n + 1], q[0], q[1], q[2], q[3], k[2], k[3]);
        }
    }
    constexpr float BY = C::SCALE * 1.4426950408889634f; // for exp2
    float top[2], sum[2];
#pragma unroll
    for (int r = 0; r < 2; r++) {
        const int begin = (text[r] & 255) - key, end = (text[r] >> 8) - key;
        if (warp_ballot(begin > 0 || end < 32))
#pragma unroll
            for (int n = 0; n < 8; n++)
                if (n / 2 * 8 + n % 2 < begin - 2 * t || n / 2 * 8 + n % 2 >= end - 2 * t)
                    s[n / 2][2 * r + n % 2] = negative_infinity();
    }
#pragma unroll
    for (int r = 0; r < 2; r++) {
        top[r] = fmaxf(s[0][2 * r], s[0][2 * r + 1]);
#pragma unroll
        for (int n = 1; n < 4; n++)
            top[r] = fmaxf(top[r], fmaxf(s[n][2 * r], s[n][2 * r + 1]));
    }
#pragma unroll
    for (int r = 0; r < 2; r++)
        top[r] = fmaxf(top[r], shuffle_xor(top[r], 1));
#pragma unroll
    for (int r = 0; r < 2; r++)
        top[r] = BY * fmaxf(top[r], shuffle_xor(top[r], 2));
#pragma unroll
    for (int r = 0; r < 2; r++) {
        const float base = top[r] == negative_infinity() ? 0.0f : top[r];
        sum[r] = 0.0f;
#pragma unroll
        for (int n = 0; n < 8; n++) {
            float &v = s[n / 2][2 * r + n % 2];
            v = exp2_fast(v * BY - base);
            sum[r] += v;
        }
    }
    mbarrier_wait(keys + 8, 0);
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const u32 p[4] = {pack2<T>(s[2 * i][0], s[2 * i][1]), pack2<T>(s[2 * i][2], s[2 * i][3]),
                          pack2<T>(s[2 * i + 1][0], s[2 * i + 1][1]), pack2<T>(s[2 * i + 1][2], s[2 * i + 1][3])};
#pragma unroll
        for (int n = 0; n < 4; n += 2) {
            u32 v[4];
            ldmatrix4_trans(v, Halves::pair(v_rows + i * 16 * Halves::PITCH, n / 2));
            mma<T>(o[n], p[0], p[1], p[2], p[3], v[0], v[1]);
            mma<T>(o[n + 1], p[0], p[1], p[2], p[3], v[2], v[3]);
        }
    }
#pragma unroll
    for (int r = 0; r < 2; r++) {
        sum[r] += shuffle_xor(sum[r], 1);
        sum[r] += shuffle_xor(sum[r], 2);
        if (t == 0) {
            stat[r * 16] = top[r];
            stat[r * 16 + 1] = sum[r];
        }
    }
#pragma unroll
    for (int r = 0; r < 2; r++)
#pragma unroll
        for (int n = 0; n < 4; n++) {
            Vec<float, 2> pair;
            pair[0] = o[n][2 * r];
            pair[1] = o[n][2 * r + 1];
            store(part + r * 8 * P::OUT_PITCH + n * 8, pair);
        }
}

// Combines the results of the 4 warps of a token, with one softmax; 4 elements by each thread.
template <class C>
DEVICE void linear_attend_combine(const LinearAttendArgs &a, const LinearAttendWork<C> &t, int live, const char *shared)
{
    typedef LinearAttendShape<C> P;
    using T = typename C::T;
    const int row = threadIdx.x / 8, at = threadIdx.x % 8 * 4, token = t.token(row);
    const float *part = (const float *)(shared + C::RESULTS_AT) + row * P::OUT_PITCH + at;
    const float *stat = (const float *)(shared + C::SOFTMAX_AT) + row * 2;
    float top = negative_infinity(), all = 0.0f;
    Vec<float, 4> sum = zeros<float, 4>();
#pragma unroll
    for (int w = 0; w < P::KEY_GROUPS; w++)
        top = fmaxf(top, stat[w * P::OWN * 2]);
#pragma unroll
    for (int w = 0; w < P::KEY_GROUPS; w++) {
        const float by = exp2_fast(stat[w * P::OWN * 2] - top);
        const Vec<float, 4> v = load<4>(part + w * P::OWN * P::OUT_PITCH);
        all += stat[w * P::OWN * 2 + 1] * by;
#pragma unroll
        for (int e = 0; e < 4; e++)
            sum[e] += v[e] * by;
    }
    const float by = divide_fast(1.0f, all); // all >= 1: the largest weight is 1
    const u64 four = pack2<T>(sum[0] * by, sum[1] * by) | (u64)pack2<T>(sum[2] * by, sum[3] * by) << 32;
    if (token < live)
        *(u64 *)((T *)a.y + ((i64)token * C::HEADS + t.head) * P::E + t.columns * P::HALF + at) = four;
}

template <class C> // C: T D HEADS BIAS SCALE X_STATS EPS
DEVICE void linear_attend(const LinearAttendArgs &a)
{
    typedef LinearAttendShape<C> P;
    launch_dependents();
    char *shared = shared_memory();
    const LinearAttendWork<C> t;
    const int live = a.step->tokens; // no kernel of a program writes it
    const u32 base = shared_address(shared), full = shared_address(shared + C::BARRIERS_AT);
    const u32 free = full + 8 * C::SLOTS, sums_here = free + 8, keys = sums_here + 24;
    if (threadIdx.x == 128) {
        tensor_map_prefetch(a.w);
        tensor_map_prefetch(a.x);
        for (int i = 0; i < C::SLOTS + 6; i++)
            mbarrier_init(full + 8 * i, i == C::SLOTS ? 4 : 1);
        mbarrier_init_fence();
        for (int i = 0; i < t.steps; i++)
            mbarrier_expect(full + 8 * i, P::W + P::X);
        for (int i = 0; i < 3; i++)
            mbarrier_expect(sums_here + 8 * i, P::RECEIVED / 3);
        mbarrier_expect(keys, P::KEYS);
        mbarrier_expect(keys + 8, P::VALUES);
    }
    block_sync();
    cluster_arrive();
    const int warp = shuffle(warp_id(), 0); // from a shuffle: the compiler knows that all lanes take one branch, so descriptors are in uniform registers
    if (warp < 4) {
        const int row = warp_id() * 8 + (lane_id() >> 2); // token row that this thread finishes
        float d[P::TILE_N / 2];
        Vec<float, 2> bias[P::TILE_N / 8];
        RowSums<C::D, C::X_STATS> sums;
#pragma unroll
        for (int i = 0; i < P::TILE_N / 8; i++)
            bias[i] = C::BIAS ? load<2>(a.b + t.row(i / 4) + i % 4 * 8 + (lane_id() & 3) * 2) : zeros<float, 2>();
        wait_for_previous();
        sums.load(a.xs, t.token(row), t.token(row) < live);
        cluster_wait(); // the other blocks have initialised their mbarriers
        linear_attend_multiply<C>(d, t, base, full, free);
        mbarrier_wait(free, 0);
        warp_sync();
        linear_attend_send_sums<C>(d, t, base, sums_here);
        const float scale = sums.affine(C::EPS).scale;
        cluster_wait();
        linear_attend_send_qkv<C>(d, t, scale, bias, t.token(row) < live, row, shared, sums_here, keys);
    } else {
        // Two threads issue copies, so that x in a block that starts late does not wait for all of w.
        if (threadIdx.x == 128)
            linear_attend_load_w<C>(a, t, base, full);
        if (threadIdx.x >= 192)
            linear_attend_texts<C>(a, t, shared);
        wait_for_previous();
        if (threadIdx.x == 160)
            linear_attend_load_x<C>(a, t, base, full);
        warp_sync();
        cluster_wait();
        cluster_arrive();
        cluster_wait();
    }
    block_sync();
    if (t.token(0) >= live) { // no live token: it may not end before what the others send has arrived
        mbarrier_wait(keys, 0);
        mbarrier_wait(keys + 8, 0);
        return;
    }
    linear_attend_scores<C>(shared, keys);
    block_sync();
    linear_attend_combine<C>(a, t, live, shared);
}
