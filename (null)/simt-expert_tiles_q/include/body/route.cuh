// route.cuh - the experts of a row and their weights, from a router's logits; and the rows of each expert.
//
// By a warp: lane l holds experts l, l + 32, ... of the row, and K times the best that is left is taken, of equal ones the
// lower number. Scores are summed in an order that depends on N alone. Of a config C the constants of templates/route.cu.
#pragma once
#include "device/atomic.cuh"
#include "device/barrier.cuh"
#include "device/fragment.cuh"
#include "device/order.cuh"
#include "device/types.cuh"
#include "device/warp.cuh"

// What a router leaves: y [M, 2K], starts [N + 1] and rows [M * K].
struct Routes {
    int *y, *starts, *rows;
};

// Scores of the experts that this lane holds, from the logits of its row. Beyond N they are 0.
template <class C, int PER> DEVICE void route_scores(float (&v)[PER])
{
    if (C::SIGMOID) {
#pragma unroll
        for (int j = 0; j < PER; j++)
            v[j] = 1.0f / (1.0f + expf(-v[j]));
    } else if (!C::CHOSEN) {
        float top = v[0], sum = 0.0f;
#pragma unroll
        for (int j = 1; j < PER; j++)
            top = fmaxf(top, v[j]);
        top = warp_max(top);
#pragma unroll
        for (int j = 0; j < PER; j++) {
            v[j] = expf(v[j] - top);
            sum += v[j];
        }
        sum = warp_sum(sum);
#pragma unroll
        for (int j = 0; j < PER; j++)
            v[j] /= sum;
    }
}

// The groups of experts that count, as bits. choice: of all experts of the row.
template <class C> DEVICE u32 route_groups(const float *choice)
{
    constexpr int SIZE = C::N / C::GROUPS;
    float first = negative_infinity(), second = first;
    for (int i = 0; i < SIZE && lane_id() < C::GROUPS; i++) {
        const float v = choice[lane_id() * SIZE + i];
        second = fmaxf(second, fminf(first, v));
        first = fmaxf(first, v);
    }
    const float value = C::BEST_TWO && SIZE > 1 ? first + second : first;
    int before = 0;
    for (int g = 0; g < C::GROUPS; g++) {
        const float other = shuffle(value, g);
        before += other > value || (other == value && g < lane_id());
    }
    return warp_ballot(before < C::KEPT);
}

// Row m with these logits; b [N] is added to its scores for the choice. score, choice: [N] in shared memory, of this warp;
// chosen [K]: where the experts are left there.
template <class C>
DEVICE void route_row(const float *logits, const float *b, const Routes &to, int m, float *score, float *choice, int *chosen)
{
    constexpr int PER = ceil_div(C::N, 32);
    const float least_of_all = negative_infinity();
    float v[PER];
    u32 taken = 0;
#pragma unroll
    for (int j = 0; j < PER; j++) {
        const int i = j * 32 + lane_id();
        v[j] = i < C::N ? logits[i] : least_of_all;
    }
    route_scores<C>(v);
#pragma unroll
    for (int j = 0; j < PER; j++) {
        const int i = j * 32 + lane_id();
        if (i < C::N)
            score[i] = v[j];
        else
            taken |= 1u << j;
        v[j] = i < C::N && C::BIAS ? v[j] + b[i] : v[j];
        v[j] = v[j] == v[j] ? v[j] : least_of_all; // of NaN, too, some expert is chosen
        if (C::KEPT < C::GROUPS && i < C::N)
            choice[i] = v[j];
    }
    warp_sync();
    if constexpr (C::KEPT < C::GROUPS) {
        const u32 kept = route_groups<C>(choice);
#pragma unroll
        for (int j = 0; j < PER; j++)
            if (!(kept >> least((j * 32 + lane_id()) / (C::N / C::GROUPS), 31) & 1))
                taken |= 1u << j;
    }
    u32 key[PER]; // 0: taken
#pragma unroll
    for (int j = 0; j < PER; j++)
        key[j] = taken >> j & 1 ? 0 : order_key(v[j] + 0.0f); // + 0: -0 becomes 0
    int id = 0;
    float weight = least_of_all; // of the id that this lane keeps
    for (int k = 0; k < C::K; k++) {
        u32 most = 0;
        int mine = 0;
#pragma unroll
        for (int j = 0; j < PER; j++)
            if (key[j] > most) {
                most = key[j];
                mine = j * 32 + lane_id();
            }
        const u32 top = warp_most(most);
        const int best = (int)warp_min(most == top ? (u32)mine : ~0u);
#pragma unroll
        for (int j = 0; j < PER; j++)
            if (best == j * 32 + lane_id())
                key[j] = 0;
        if (k == lane_id()) {
            id = best;
            weight = score[best];
        }
    }
    if (C::CHOSEN)
        weight = expf(weight - warp_max(weight));
    const float sum = warp_sum(lane_id() < C::K ? weight : 0.0f);
    if (C::CHOSEN)
        weight /= sum;
    else if (C::RENORM)
        weight /= sum + 1e-20f;
    if (lane_id() < C::K) {
        chosen[lane_id()] = id;
        to.y[(i64)m * 2 * C::K + lane_id()] = id;
        to.y[(i64)m * 2 * C::K + C::K + lane_id()] = (int)__float_as_uint(weight * C::SCALE);
    }
    warp_sync();
}

// The barrier of THREADS threads, a warp or the block.
template <int THREADS> DEVICE void route_sync()
{
    if (THREADS == 32)
        warp_sync();
    else
        block_sync();
}

// The expert of pair p; chosen: the experts of all pairs, NULL: they are in y.
template <class C> DEVICE int route_expert(const Routes &to, const int *chosen, int p)
{
    return chosen ? chosen[p] : to.y[(i64)(p / C::K) * 2 * C::K + p % C::K];
}

// Sorts the pairs of all rows by expert, by THREADS threads, a warp or the block. count [N]: the pairs of each expert, in shared
// memory. sorted [rows * K]: room in shared memory, since a store of a warp to 32 places far apart takes 32 turns; NULL: there is
// none.
template <class C, int THREADS> DEVICE void route_sort(const Routes &to, int rows, u32 *count, const int *chosen, int *sorted = 0)
{
    constexpr int EACH = ceil_div(C::N, 32);
    if (warp_id() == 0) { // the number of pairs becomes the first place of each expert
        u32 sum = 0;
        for (int i = 0; i < EACH; i++)
            sum += lane_id() * EACH + i < C::N ? count[lane_id() * EACH + i] : 0;
        u32 at = warp_prefix_sum(sum) - sum;
        for (int i = 0; i < EACH; i++) {
            const int e = lane_id() * EACH + i;
            if (e < C::N) {
                const u32 n = count[e];
                count[e] = at;
                to.starts[e] = (int)at;
                at += n;
            }
        }
        if (lane_id() == 0)
            to.starts[C::N] = rows * C::K;
    }
    route_sync<THREADS>();
    int *rows_to = sorted ? sorted : to.rows;
    for (int p = threadIdx.x; p < rows * C::K; p += THREADS)
        rows_to[shared_atomic_add(&count[route_expert<C>(to, chosen, p)], 1)] = p;
    if (!sorted)
        return;
    route_sync<THREADS>();
    for (int p = threadIdx.x; p < rows * C::K; p += THREADS)
        to.rows[p] = sorted[p];
}
