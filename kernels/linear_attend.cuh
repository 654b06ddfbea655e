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
//   attention   a block has 16 tokens and all keys. Queries go to the block that has the token, keys and values to
//               all 8; a warp takes 16 keys, the warps' parts are put together.
//
// All of w is on its way before the kernel in front has ended. Shared memory is used again and again (w, then keys,
// values, queries and parts; x, then sums), so that there is room beside the blocks of that kernel.
// Order of sums: first half of D + second half; a text's attention in parts of 16 tokens of the step.
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
#include "device/wgmma_tile.cuh"
#include "part/norm.cuh"
#include "part/quad.cuh"
#include "part/tile.cuh"

struct LinearAttendArgs {
    const TensorMap *x, *w; // in tiles of 64 and 32 rows
    const float *b;         // [3*H*E]
    const float *xs;        // XSTAT: what was left of the rows of x
    const FtxStep *step;
    const FtxRow *rows;
    void *y; // [M, H*E]
};

template <class C> struct LinearAttendShape {
    static constexpr int E = 64, HALF = E / 2, NT = 3 * HALF; // columns of a head, of a block's q, k or v, of a block
    static constexpr int TOKENS = 128, OWN = TOKENS / 8, WARPS = 8;
    static constexpr int STEPS = ceil_div(C::D, 64), SLOTS = ceil_div(STEPS, 2); // of 64 k: all, of a block
    static constexpr int W = NT * 128, X = 64 * 128;                             // bytes of a slot's w and x
    using Rows = TileRows<E * 2>;                                                // of keys, values, queries
    // In the place of w, once all blocks have read theirs.
    static constexpr int K_AT = 0, V_AT = K_AT + TOKENS * E * 2, Q_AT = V_AT + TOKENS * E * 2;
    static constexpr int ARRIVING = Q_AT + OWN * E * 2;     // bytes of keys, values and queries
    static constexpr int PART = E + 4, PARTS_AT = ARRIVING; // floats of a row of a warp's part
    static constexpr int STATS_AT = PARTS_AT + WARPS * OWN * PART * 4, ATTEND = STATS_AT + WARPS * OWN * 8;
    static constexpr int X_AT = most(SLOTS * W, round_up(ATTEND, 1024));
    // In the place of the first of x, once this block has read them.
    static constexpr int SUMS_AT = X_AT, SENT = 64 * NT * 4 / 2, OVER = ceil_div(SENT, X);
    static constexpr int BIAS_AT = X_AT + most(SLOTS, OVER) * X;
    static constexpr int TEXT_AT = BIAS_AT + NT * 4;     // begin and end of the texts of the block's own tokens
    static constexpr int BARRIER_AT = TEXT_AT + OWN * 8; // full of each slot; free; swapped; arrived
    static constexpr int BYTES = BARRIER_AT + (SLOTS + 3) * 8;
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
    // Of the two that a thread of the first warpgroup has, the one that is finished here.
    DEVICE int token() const { return tokens * 64 + warp_id() * 16 + half * 8 + (lane_id() >> 2); }
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

// The biases of the block's columns, and the texts of its own tokens: by the second warpgroup, which has no other work.
template <class C>
DEVICE void linear_attend_prepare(const LinearAttendArgs &a, const LinearAttendWork<C> &t, char *shared)
{
    typedef LinearAttendShape<C> P;
    const int first = t.rank * P::OWN, i = (int)threadIdx.x - 128;
    if (i < P::NT)
        ((float *)(shared + P::BIAS_AT))[i] = C::BIAS ? a.b[t.row(i / P::HALF) + i % P::HALF] : 0.0f;
    for (int r = i; r < a.step->rows; r += 128) {
        const int begin = a.rows[r].q_start, end = begin + a.rows[r].q_len;
        for (int token = most(begin, first); token < least(end, first + P::OWN); token++) {
            int *text = (int *)(shared + P::TEXT_AT) + (token - first) * 2;
            text[0] = begin;
            text[1] = end;
        }
    }
}

// Sums of the block's half of D: 64 tokens by 96 columns. `free` of the other half's block is told when its sums may
// come here.
template <class C>
DEVICE void linear_attend_products(float (&d)[LinearAttendShape<C>::NT / 2], const LinearAttendWork<C> &t, u32 shared,
                                   u32 full, u32 free)
{
    typedef LinearAttendShape<C> P;
    const u32 there = cluster_map(free, t.rank ^ 1);
#pragma unroll
    for (int i = 0; i < P::NT / 2; i++)
        d[i] = 0.0f;
#pragma unroll 1
    for (int s = 0; s < t.steps; s++) {
        const u64 w = wgmma_operand(shared + s * P::W, 0, 0), x = wgmma_operand(shared + P::X_AT + s * P::X, 0, 0);
        mbarrier_wait(full + 8 * s, 0);
        wgmma_fence();
#pragma unroll
        for (int k = 0; k < 4; k++)
            WgmmaTile<P::NT, typename C::T>::add(d, wgmma_further(x, 0, k), wgmma_further(w, 0, k));
        wgmma_commit();
        wgmma_wait<1>();
        if (s == P::OVER && lane_id() == 0)
            cluster_count(there);
    }
    wgmma_wait<0>();
    if (t.steps <= P::OVER && lane_id() == 0)
        cluster_count(there);
}

// Of a thread's rows g and g + 8 the half-th is finished here: v, two columns of every 8; the other goes to the block
// of the other half.
template <class C>
DEVICE void linear_attend_swap(float (&v)[LinearAttendShape<C>::NT / 4], const float (&d)[LinearAttendShape<C>::NT / 2],
                               const LinearAttendWork<C> &t, const QuadSums<C::D, C::XSTAT> &sums, char *shared,
                               u32 free, u32 arrived)
{
    typedef LinearAttendShape<C> P;
    const Vec<float, 2> *mine = (const Vec<float, 2> *)(shared + P::SUMS_AT) + threadIdx.x; // [pairs][threads]
    const float *bias = (const float *)(shared + P::BIAS_AT) + (lane_id() & 3) * 2;
    const u32 there = cluster_map(shared_address(mine), t.rank ^ 1), count = cluster_map(arrived, t.rank ^ 1);
    mbarrier_wait(free, 0);
    warp_sync();
#pragma unroll
    for (int i = 0; i < P::NT / 8; i++)
        cluster_send2(there + i * 1024, t.half ? d[i * 4] : d[i * 4 + 2], t.half ? d[i * 4 + 1] : d[i * 4 + 3], count);
    const float scale = sums.line(C::EPS).scale;
    mbarrier_wait(arrived, 0);
#pragma unroll
    for (int i = 0; i < P::NT / 8; i++)
#pragma unroll
        for (int e = 0; e < 2; e++) // a sum of two is the same either way round
            v[i * 2 + e] = fmaf((t.half ? d[i * 4 + 2 + e] : d[i * 4 + e]) + mine[i * 128][e], scale, bias[i * 8 + e]);
}

// q, k and v of this thread's token to the blocks that need them; zeros for what is no token.
template <class C>
DEVICE void linear_attend_spread(const float (&v)[LinearAttendShape<C>::NT / 4], const LinearAttendWork<C> &t, int live,
                                 u32 shared, u32 arrived)
{
    typedef LinearAttendShape<C> P;
    const int token = t.token(), piece = t.columns * 4 + (lane_id() & 3);
#pragma unroll
    for (int kind = 0; kind < 3; kind++) {
        u32 four[4];
#pragma unroll
        for (int i = 0; i < 4; i++)
            four[i] = token < live ? pack2<typename C::T>(v[(kind * 4 + i) * 2], v[(kind * 4 + i) * 2 + 1]) : 0;
        quad_transpose(four);
        const uint4_ eight = {four[0], four[1], four[2], four[3]};
        if (kind == 0) {
            const u32 to = token / P::OWN;
            cluster_send16(cluster_map(shared + P::Q_AT + P::Rows::piece(token % P::OWN, piece), to), eight,
                           cluster_map(arrived, to));
        } else {
#pragma unroll
            for (int i = 0; i < 8; i++) { // not all to the same block first
                const u32 to = t.rank + i & 7;
                cluster_send16(cluster_map(shared + (kind == 1 ? P::K_AT : P::V_AT) + P::Rows::piece(token, piece), to),
                               eight, cluster_map(arrived, to));
            }
        }
    }
}

// The block's 16 queries over this warp's 16 keys: sums of values, largest score and sum of weights to shared memory.
template <class C> DEVICE void linear_attend_scores(char *shared)
{
    typedef LinearAttendShape<C> P;
    using Rows = typename P::Rows;
    using T = typename C::T;
    const int lane = lane_id(), g = lane >> 2, t = lane & 3, first = warp_id() * 16;
    const u32 q_rows = shared_address(shared) + P::Q_AT + Rows::piece(lane % 16, lane / 16);
    const u32 k_rows = shared_address(shared) + P::K_AT + Rows::piece(first + lane % 8 + lane / 16 * 8, lane / 8 % 2);
    const u32 v_rows = shared_address(shared) + P::V_AT + Rows::piece(first + lane % 16, lane / 16);
    const int *text = (const int *)(shared + P::TEXT_AT) + g * 2;
    float *part = (float *)(shared + P::PARTS_AT) + (warp_id() * P::OWN + g) * P::PART + 2 * t;
    float *stat = (float *)(shared + P::STATS_AT) + (warp_id() * P::OWN + g) * 2;
    float s[2][4] = {}, o[8][4] = {};
#pragma unroll
    for (int i = 0; i < 4; i++) {
        u32 q[4], k[4];
        ldmatrix4(q, Rows::pair(q_rows, i));
        ldmatrix4(k, Rows::pair(k_rows, i));
        mma<T>(s[0], q[0], q[1], q[2], q[3], k[0], k[1]);
        mma<T>(s[1], q[0], q[1], q[2], q[3], k[2], k[3]);
    }
    constexpr float BY = C::SCALE * 1.4426950408889634f; // powers of two
#pragma unroll
    for (int r = 0; r < 2; r++) {
        const int begin = text[r * 16] - first - 2 * t, end = text[r * 16 + 1] - first - 2 * t;
        float top = negative_infinity(), sum = 0.0f;
#pragma unroll
        for (int n = 0; n < 2; n++)
#pragma unroll
            for (int j = 0; j < 2; j++) {
                s[n][2 * r + j] = n * 8 + j >= begin && n * 8 + j < end ? s[n][2 * r + j] * BY : negative_infinity();
                top = fmaxf(top, s[n][2 * r + j]);
            }
        top = fmaxf(top, shuffle_xor(top, 1));
        top = fmaxf(top, shuffle_xor(top, 2));
        const float base = top == negative_infinity() ? 0.0f : top;
#pragma unroll
        for (int n = 0; n < 2; n++)
#pragma unroll
            for (int j = 0; j < 2; j++) {
                s[n][2 * r + j] = exp2_fast(s[n][2 * r + j] - base);
                sum += s[n][2 * r + j];
            }
        sum += shuffle_xor(sum, 1);
        sum += shuffle_xor(sum, 2);
        if (t == 0) {
            stat[r * 16] = top;
            stat[r * 16 + 1] = sum;
        }
    }
    const u32 p[4] = {pack2<T>(s[0][0], s[0][1]), pack2<T>(s[0][2], s[0][3]), pack2<T>(s[1][0], s[1][1]),
                      pack2<T>(s[1][2], s[1][3])};
#pragma unroll
    for (int i = 0; i < 4; i++) {
        u32 v[4];
        ldmatrix4_trans(v, Rows::pair(v_rows, i));
        mma<T>(o[2 * i], p[0], p[1], p[2], p[3], v[0], v[1]);
        mma<T>(o[2 * i + 1], p[0], p[1], p[2], p[3], v[2], v[3]);
    }
#pragma unroll
    for (int r = 0; r < 2; r++)
#pragma unroll
        for (int n = 0; n < 8; n++) {
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
    const int row = threadIdx.x / 16, at = threadIdx.x % 16 * 4, token = t.rank * P::OWN + row;
    const float *part = (const float *)(shared + P::PARTS_AT) + row * P::PART + at;
    const float *stat = (const float *)(shared + P::STATS_AT) + row * 2;
    float top = negative_infinity(), all = 0.0f;
    Vec<float, 4> sum = zeros<float, 4>();
#pragma unroll
    for (int w = 0; w < P::WARPS; w++)
        top = fmaxf(top, stat[w * P::OWN * 2]);
#pragma unroll
    for (int w = 0; w < P::WARPS; w++) {
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
        *(u64 *)((T *)a.y + ((i64)token * C::HEADS + t.head) * P::E + at) = four;
}

template <class C> // C: T D HEADS BIAS SCALE XSTAT EPS
DEVICE void linear_attend(const LinearAttendArgs &a)
{
    typedef LinearAttendShape<C> P;
    launch_dependents();
    char *shared = shared_memory();
    const LinearAttendWork<C> t;
    const int live = a.step->tokens; // written between programs only
    const u32 base = shared_address(shared), full = shared_address(shared + P::BARRIER_AT);
    const u32 free = full + 8 * P::SLOTS, swapped = free + 8, arrived = swapped + 8;
    if (threadIdx.x == 0) {
        tensor_expect(a.x); // looked up while the kernel in front still runs
        for (int i = 0; i < P::SLOTS + 3; i++)
            mbarrier_init(full + 8 * i, i == P::SLOTS ? 4 : 1);
        mbarrier_init_fence();
        for (int i = 0; i < t.steps; i++)
            mbarrier_expect(full + 8 * i, P::W + P::X);
        linear_attend_ask_w<C>(a, t, base, full);
        mbarrier_expect(swapped, P::SENT);
        mbarrier_expect(arrived, P::ARRIVING);
    }
    warp_sync();
    cluster_arrive();
    if (warp_id() >= 4)
        linear_attend_prepare<C>(a, t, shared);
    wait_for_previous();
    if (threadIdx.x == 0)
        linear_attend_ask_x<C>(a, t, base, full);
    warp_sync();
    QuadSums<C::D, C::XSTAT> sums;
    sums.ask(a.xs, t.token(), warp_id() < 4 && t.token() < live);
    cluster_wait(); // the others' barriers are there
    block_sync();

    if (warp_id() < 4) {
        float d[P::NT / 2], v[P::NT / 4];
        linear_attend_products<C>(d, t, base, full, free);
        cluster_arrive(); // this block's w has been read
        linear_attend_swap<C>(v, d, t, sums, shared, free, swapped);
        cluster_wait();
        linear_attend_spread<C>(v, t, live, base, arrived);
    } else {
        cluster_arrive();
        cluster_wait();
    }
    mbarrier_wait(arrived, 0);
    if (t.rank * P::OWN >= live)
        return;
    linear_attend_scores<C>(shared);
    block_sync();
    linear_attend_finish<C>(a, t, live, shared);
}
