// linear_attend.cuh - attention of few tokens over their own texts, with the product in front, in one kernel on sm_90a:
//
//   y = attend(x * w^T + b)     x [M, D], M <= 128 tokens, texts one after another     y [M, H*E]
//                               or rows of x normed, as in linear_tile
//   w [3*H*E, D]                queries, keys, values; heads of E = 64     16-bit, sums in fp32
//
// With so few tokens nothing is bound by bytes or products: a kernel costs its edge, the wait for x from L2, the wait
// for its neighbours. So a cluster of 8 blocks takes a head, in two ways that share the work:
//
//   product     by the first warpgroup: a block has 64 tokens, 96 columns (32 each of q, k and v) and half of D; of
//               all ways to cut the work in 8 the one where a block reads least. The two blocks of one result swap
//               sums: each finishes 8 of every 16 tokens.
//   attention   a block has the 32 tokens it finished and its 32 columns of the results, so that it needs the queries'
//               other columns, all keys, and of the values its columns. Keys travel first. A warp takes 16 tokens and
//               32 keys, the warps' parts are put together.
//
// All of w is on its way before the kernel in front has ended. Shared memory is used again and again (w, then keys,
// values, queries and parts; x, then sums), so that there is room beside the blocks of that kernel.
// Order of sums: first half of D + second half; a text's attention in parts of 32 tokens of the step.
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
    const TensorMap *x, *w; // in tiles of 64 and 32 rows
    const float *b;         // [3*H*E]
    const float *xs;        // X_STATS: what was left of the rows of x
    const FtxStep *step;
    const FtxRow *rows;
    void *y; // [M, H*E]
};

template <class C> struct LinearAttendShape {
    static constexpr int E = 64, HALF = E / 2, NT = 3 * HALF; // columns of a head, of a block's q, k or v, of a block
    static constexpr int TOKENS = 128, OWN = TOKENS / 4, PARTS = 4;
    static constexpr int STEPS = ceil_div(C::D, 64), SLOTS = ceil_div(STEPS, 2); // of 64 k: all, of a block
    static constexpr int W = NT * 128, X = 64 * 128;                             // bytes of a slot's w and x
    using Rows = TileRows<E * 2>;                                                // of keys, queries
    using Halves = TileRows<HALF * 2>;                                           // of values
    // In the place of w: from the other blocks, once all have read the first slots; parts.
    static constexpr int K_AT = 0, Q_AT = K_AT + TOKENS * Rows::PITCH, V_AT = Q_AT + OWN * Rows::PITCH;
    static constexpr int PARTS_AT = V_AT + TOKENS * Halves::PITCH, PART = HALF + 4; // floats of a row of a warp's part
    static constexpr int STATS_AT = PARTS_AT + PARTS * OWN * PART * 4, ATTEND = STATS_AT + PARTS * OWN * 8;
    // Bytes that come from the other blocks: of keys and queries, of values.
    static constexpr int KEYS = (7 + 1) * OWN * HALF * 2, VALUES = 3 * OWN * HALF * 2;
    static constexpr int X_AT = most(SLOTS * W, round_up(ATTEND, 1024));
    // In the place of the first of x, once this block has read them.
    static constexpr int SUMS_AT = X_AT, SENT = 64 * NT * 4 / 2;
    // Steps whose w and x those replace.
    static constexpr int OVER = most(ceil_div(PARTS_AT, W), ceil_div(SENT, X));
    static constexpr int TEXT_AT = X_AT + most(SLOTS * X, SENT); // begin and end of the texts of the block's tokens
    static constexpr int BARRIER_AT =
        TEXT_AT + OWN * 2; // full of each slot; free; swapped: q, k, v; keys, values are there
    static constexpr int BYTES = BARRIER_AT + (SLOTS + 6) * 8;
    static DEVICE constexpr int kind(int i) { return i == 0 ? 1 : i == 1 ? 0 : 2; } // keys, queries, values
};

// What this block does.
template <class C> struct LinearAttendWork {
    int rank, head, half, columns, tokens; // half of D, of the columns, of the tokens
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
    // The block's row-th.
    DEVICE int token(int row) const { return tokens * 64 + row / 8 * 16 + half * 8 + row % 8; }
    // First row of w of the block's columns of q, k or v.
    DEVICE int row(int kind) const { return (kind * C::HEADS + head) * 64 + columns * 32; }
};

template <class C>
DEVICE void linear_attend_ask_w(const LinearAttendArgs &a, const LinearAttendWork<C> &t, u32 shared, u32 full)
{
    typedef LinearAttendShape<C> P;
#pragma unroll 1
    for (int i = 0; i < t.steps; i++)
#pragma unroll
        for (int kind = 0; kind < 3; kind++)
            tensor_copy(shared + i * P::W + kind * P::HALF * 128, a.w, t.row(kind), (t.s0 + i) * 64, full + 8 * i);
}
template <class C>
DEVICE void linear_attend_ask_x(const LinearAttendArgs &a, const LinearAttendWork<C> &t, u32 shared, u32 full)
{
    typedef LinearAttendShape<C> P;
#pragma unroll 1
    for (int i = 0; i < t.steps; i++)
        tensor_copy(shared + P::X_AT + i * P::X, a.x, t.tokens * 64, (t.s0 + i) * 64, full + 8 * i);
}

// The texts of the block's tokens, by its last two warps.
template <class C>
DEVICE void linear_attend_texts(const LinearAttendArgs &a, const LinearAttendWork<C> &t, char *shared)
{
    typedef LinearAttendShape<C> P;
    const int i = (int)threadIdx.x - 192, row = i % P::OWN, token = t.token(row);
    for (int r = i / P::OWN; r < a.step->rows; r += 2) {
        const int begin = a.rows[r].q_start, end = begin + a.rows[r].q_len;
        if (token >= begin && token < end)
            ((u16 *)(shared + P::TEXT_AT))[row] = (u16)(begin | end << 8);
    }
}

// Sums of the block's half of D: 64 tokens by 96 columns, all steps under way as soon as they are there. `free` of the
// other half's block is told when its sums may come here, the cluster's barrier when keys, queries and values may: the
// first steps have been read.
template <class C>
DEVICE void linear_attend_products(float (&d)[LinearAttendShape<C>::NT / 2], const LinearAttendWork<C> &t, u32 shared,
                                   u32 full, u32 free)
{
    typedef LinearAttendShape<C> P;
    const u32 there = cluster_map(free, t.rank ^ 1);
#pragma unroll
    for (int i = 0; i < P::NT / 2; i++)
        d[i] = 0.0f;
#pragma unroll
    for (int s = 0; s < P::SLOTS; s++) {
        if (s < t.steps) {
            const u64 w = wgmma_descriptor(shared + s * P::W, 0, 0), x = wgmma_descriptor(shared + P::X_AT + s * P::X, 0, 0);
            mbarrier_wait(full + 8 * s, 0);
            wgmma_fence();
#pragma unroll
            for (int k = 0; k < 4; k++)
                Wgmma<P::NT, typename C::T>::add(d, wgmma_descriptor_at(x, 0, k), wgmma_descriptor_at(w, 0, k));
            wgmma_commit();
        }
        if (s == least(P::OVER, P::SLOTS - 1)) {
            wgmma_wait<(P::OVER + 1 < P::SLOTS)>();
            if (lane_id() == 0)
                cluster_mbarrier_arrive(there);
            cluster_arrive();
        }
    }
    wgmma_wait<0>();
}

// Of a thread's rows g and g + 8 the half-th is finished here, the other in the block of the other half, which is sent
// its sums: keys, queries, values.
template <class C>
DEVICE void linear_attend_swap(const float (&d)[LinearAttendShape<C>::NT / 2], const LinearAttendWork<C> &t, u32 shared,
                               u32 swapped)
{
    typedef LinearAttendShape<C> P;
    const u32 there = cluster_map(shared + P::SUMS_AT + threadIdx.x * 16, t.rank ^ 1); // [fours][threads]
    const u32 count = cluster_map(swapped, t.rank ^ 1);
#pragma unroll
    for (int n = 0; n < P::NT / 16; n++) {
        const int i = P::kind(n / 2) * 2 + n % 2;
        const float *v = d + i * 8;
        cluster_send4(there + i * 2048, t.half ? v[0] : v[2], t.half ? v[1] : v[3], t.half ? v[4] : v[6],
                      t.half ? v[5] : v[7], count + P::kind(n / 2) * 8);
    }
}

// q, k and v of this thread's token, as their sums have come, to their places, here and in the blocks that need them;
// zeros for what is no token.
template <class C>
DEVICE void linear_attend_spread(const float (&d)[LinearAttendShape<C>::NT / 2], const LinearAttendWork<C> &t,
                                 float scale, const Vec<float, 2> (&bias)[LinearAttendShape<C>::NT / 8], bool live,
                                 int row, char *shared, u32 swapped, u32 keys)
{
    typedef LinearAttendShape<C> P;
    const int lane = lane_id() & 3, piece = t.columns * 4 + lane;
    const u32 base = shared_address(shared);
    const Vec<float, 4> *sums = (const Vec<float, 4> *)(shared + P::SUMS_AT) + threadIdx.x;
#pragma unroll
    for (int i = 0; i < 3; i++) {
        const int kind = P::kind(i);
        u32 four[4];
        mbarrier_wait(swapped + 8 * kind, 0);
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
        const u32 at = base + (kind == 0   ? P::Q_AT + P::Rows::piece(row, piece)
                               : kind == 1 ? P::K_AT + P::Rows::piece(t.token(row), piece)
                                           : P::V_AT + P::Halves::piece(t.token(row), lane));
        shared_store16(at, eight);
#pragma unroll
        for (int other = 1; other < 8; other++) {
            const u32 to = t.rank ^ other;
            if (kind == 1 || (kind == 0 ? other == 2 : (other & 2) == 0))
                cluster_send16(cluster_map(at, to), eight, cluster_map(keys + (kind == 2) * 8, to));
        }
    }
}

// This warp's 16 queries over its 32 keys: sums of values, largest score and sum of weights to shared memory.
template <class C> DEVICE void linear_attend_scores(char *shared, u32 keys)
{
    typedef LinearAttendShape<C> P;
    using Rows = typename P::Rows;
    using Halves = typename P::Halves;
    using T = typename C::T;
    const int lane = lane_id(), g = lane >> 2, t = lane & 3, query = warp_id() % 2 * 16, key = warp_id() / 2 * 32;
    const u32 q_rows = shared_address(shared) + P::Q_AT + Rows::piece(query + lane % 16, lane / 16);
    const u32 k_rows = shared_address(shared) + P::K_AT + Rows::piece(key + lane % 8 + lane / 16 * 8, lane / 8 % 2);
    const u32 v_rows = shared_address(shared) + P::V_AT + Halves::piece(key + lane % 16, lane / 16);
    const u16 *texts = (const u16 *)(shared + P::TEXT_AT) + query + g;
    const int text[2] = {texts[0], texts[8]};
    const int row = warp_id() / 2 * P::OWN + query + g;
    float *part = (float *)(shared + P::PARTS_AT) + row * P::PART + 2 * t;
    float *stat = (float *)(shared + P::STATS_AT) + row * 2;
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
    constexpr float BY = C::SCALE * 1.4426950408889634f; // powers of two
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
            store(part + r * 8 * P::PART + n * 8, pair);
        }
}

// The warps' parts put together: 4 elements of a token by each thread.
template <class C>
DEVICE void linear_attend_finish(const LinearAttendArgs &a, const LinearAttendWork<C> &t, int live, const char *shared)
{
    typedef LinearAttendShape<C> P;
    using T = typename C::T;
    const int row = threadIdx.x / 8, at = threadIdx.x % 8 * 4, token = t.token(row);
    const float *part = (const float *)(shared + P::PARTS_AT) + row * P::PART + at;
    const float *stat = (const float *)(shared + P::STATS_AT) + row * 2;
    float top = negative_infinity(), all = 0.0f;
    Vec<float, 4> sum = zeros<float, 4>();
#pragma unroll
    for (int w = 0; w < P::PARTS; w++)
        top = fmaxf(top, stat[w * P::OWN * 2]);
#pragma unroll
    for (int w = 0; w < P::PARTS; w++) {
        const float by = exp2_fast(stat[w * P::OWN * 2] - top);
        const Vec<float, 4> v = load<4>(part + w * P::OWN * P::PART);
        all += stat[w * P::OWN * 2 + 1] * by;
#pragma unroll
        for (int e = 0; e < 4; e++)
            sum[e] += v[e] * by;
    }
    const float by = divide_fast(1.0f, all); // at least the largest weight of one part, which is 1
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
    const int live = a.step->tokens; // written between programs only
    const u32 base = shared_address(shared), full = shared_address(shared + P::BARRIER_AT);
    const u32 free = full + 8 * P::SLOTS, swapped = free + 8, keys = swapped + 24;
    if (threadIdx.x == 128) {
        tensor_map_prefetch(a.w);
        tensor_map_prefetch(a.x);
        for (int i = 0; i < P::SLOTS + 6; i++)
            mbarrier_init(full + 8 * i, i == P::SLOTS ? 4 : 1);
        mbarrier_init_fence();
        for (int i = 0; i < t.steps; i++)
            mbarrier_expect(full + 8 * i, P::W + P::X);
        for (int i = 0; i < 3; i++)
            mbarrier_expect(swapped + 8 * i, P::SENT / 3);
        mbarrier_expect(keys, P::KEYS);
        mbarrier_expect(keys + 8, P::VALUES);
    }
    block_sync();
    cluster_arrive();
    const int warp = shuffle(warp_id(), 0); // in a branch that all lanes take, what wgmma reads has uniform registers
    if (warp < 4) {
        const int row = warp_id() * 8 + (lane_id() >> 2); // that this thread finishes
        float d[P::NT / 2];
        Vec<float, 2> bias[P::NT / 8];
        QuadSums<C::D, C::X_STATS> sums;
#pragma unroll
        for (int i = 0; i < P::NT / 8; i++)
            bias[i] = C::BIAS ? load<2>(a.b + t.row(i / 4) + i % 4 * 8 + (lane_id() & 3) * 2) : zeros<float, 2>();
        wait_for_previous();
        sums.ask(a.xs, t.token(row), t.token(row) < live);
        cluster_wait(); // the others' barriers are there
        linear_attend_products<C>(d, t, base, full, free);
        mbarrier_wait(free, 0);
        warp_sync();
        linear_attend_swap<C>(d, t, base, swapped);
        const float scale = sums.line(C::EPS).scale;
        cluster_wait();
        linear_attend_spread<C>(d, t, scale, bias, t.token(row) < live, row, shared, swapped, keys);
    } else {
        // Two threads ask: x of a block that begins late is not to wait for all of w.
        if (threadIdx.x == 128)
            linear_attend_ask_w<C>(a, t, base, full);
        if (threadIdx.x >= 192)
            linear_attend_texts<C>(a, t, shared);
        wait_for_previous();
        if (threadIdx.x == 160)
            linear_attend_ask_x<C>(a, t, base, full);
        warp_sync();
        cluster_wait();
        cluster_arrive();
        cluster_wait();
    }
    block_sync();
    if (t.token(0) >= live) { // what comes has to come before it ends
        mbarrier_wait(keys, 0);
        mbarrier_wait(keys + 8, 0);
        return;
    }
    linear_attend_scores<C>(shared, keys);
    block_sync();
    linear_attend_finish<C>(a, t, live, shared);
}
