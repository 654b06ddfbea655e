// router.cuh - a router in one launch: the norm of a row, the logits of all experts, the choice, and the rows of each expert.
//
//   logits[m,n] = norm(x)[m,:] . w[n,:] + lb[n]       m of up to 8 rows, n of N experts; then as route.cuh
//
//   x [M, D], w [N, D]  16-bit, row-major, D % 8 == 0      g [D] fp32 gain of the norm, lb [N] fp32
//   b, y, starts, rows: as in route.cuh
//
// What limits it: the way from x to the choice, since an SM reads only what the one before wrote. A cluster computes a row. Its
// warps have PER experts each, whose weights are in registers before the previous kernel has ended: lane l has vectors l, l + 32, ...
// of 8 elements. Each warp sums the row's squares for itself. The logits go to the first block of the cluster, one of whose warps
// chooses. The one of the last row sorts the pairs by expert.
//
// Order of summation: the lanes' vectors, then the lanes as a tree.
#pragma once
#include "device/atomic.cuh"
#include "device/cluster.cuh"
#include "device/mbarrier.cuh"
#include "device/pdl.cuh"
#include "device/shared.cuh"
#include "body/norm.cuh"
#include "body/route.cuh"
#include "body/rows.cuh"

struct RouterArgs {
    const void *x, *w;
    const float *g, *lb, *b;
    const FtxStep *step;
    int *y, *starts, *rows;
    u32 *done;
};

template <class C> struct RouterShape {
    static constexpr int WARPS = C::THREADS / 32;
    static constexpr int PER = ceil_div(C::N, C::BLOCKS * WARPS); // experts of a warp
    static constexpr int VECTORS = ceil_div(C::D, 256);           // of 8 elements, of a lane
};

// The logits of this warp's experts for row x, from their weights in registers; gains [D]: in shared memory.
template <class C>
DEVICE void router_logits(const typename C::T *x, const Vec<typename C::T, 8> (&w)[RouterShape<C>::PER][RouterShape<C>::VECTORS],
                          const float *gains, float (&logit)[RouterShape<C>::PER])
{
    typedef RouterShape<C> P;
    typedef typename C::T T;
    constexpr int AT_ONCE = least(P::VECTORS, 8); // loads under way
    float s = 0.0f;
#pragma unroll
    for (int e = 0; e < P::PER; e++)
        logit[e] = 0.0f;
#pragma unroll
    for (int first = 0; first < P::VECTORS; first += AT_ONCE) {
        Vec<T, 8> part[AT_ONCE];
#pragma unroll
        for (int j = 0; j < AT_ONCE; j++) {
            const int v = (first + j) * 32 + lane_id();
            part[j] = zeros<T, 8>();
            if (v * 8 < C::D)
                *(uint4_ *)&part[j] = load_l2(x + v * 8);
        }
#pragma unroll
        for (int j = 0; j < AT_ONCE; j++) {
            const int v = (first + j) * 32 + lane_id();
            if (first + j >= P::VECTORS || v * 8 >= C::D)
                continue;
            if (C::NORM)
                s = add_squares(s, part[j], 0.0f);
            Vec<float, 8> f = to_floats(part[j]);
#pragma unroll
            for (int h = 0; h < 8 && C::NORM; h += 4) {
                const Vec<float, 4> gain = load<4>(gains + v * 8 + h);
#pragma unroll
                for (int k = 0; k < 4; k++)
                    f[h + k] *= gain[k];
            }
#pragma unroll
            for (int e = 0; e < P::PER; e++)
#pragma unroll
                for (int k = 0; k < 8; k++)
                    logit[e] = fmaf(f[k], to_float(w[e][first + j][k]), logit[e]);
        }
    }
    const float scale = C::NORM ? rms_scale<C::D>(stat_tree(s), C::EPS) : 1.0f;
#pragma unroll
    for (int e = 0; e < P::PER; e++)
        logit[e] = warp_sum(logit[e]) * scale;
}

template <class C> DEVICE void router(const RouterArgs &a)
{
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
    typedef RouterShape<C> P;
    typedef typename C::T T;
    char *shared = shared_memory();
    float *gains = (float *)(shared + C::GAINS_AT), *logits = (float *)(shared + C::LOGITS_AT), *room = (float *)(shared + C::ROOM_AT);
    u32 *count = (u32 *)(shared + C::COUNT_AT);
    int *chosen = (int *)(shared + C::CHOSEN_AT);
    const u32 arrived = shared_address(shared + C::BARRIER_AT);
    const int rank = C::BLOCKS > 1 ? cluster_rank() : 0, m = blockIdx.x / C::BLOCKS, e0 = (rank * P::WARPS + warp_id()) * P::PER;
    launch_dependents();
    const int rows = live_rows<C::ROWS_S>(a.step); // no kernel of a program writes a.step
    if (m >= rows)                                 // the same in all blocks of the cluster
        return;
    if (threadIdx.x == 0 && rank == 0) {
        mbarrier_init(arrived, 1);
        mbarrier_init_fence();
        mbarrier_expect(arrived, C::N * 4);
    }
    warp_sync();
    cluster_arrive();
    Vec<T, 8> w[P::PER][P::VECTORS];
    float bias[P::PER], logit[P::PER];
#pragma unroll
    for (int e = 0; e < P::PER; e++) {
        const int n = least(e0 + e, C::N - 1);
        bias[e] = C::LINEAR_BIAS ? a.lb[n] : 0.0f;
#pragma unroll
        for (int i = 0; i < P::VECTORS; i++)
            w[e][i] = load<8>((const T *)a.w + (i64)n * C::D + least(i * 32 + lane_id(), C::D / 8 - 1) * 8);
    }
    for (int i = threadIdx.x; i < C::D / 4 && C::NORM; i += C::THREADS)
        store(gains + i * 4, load<4>(a.g + i * 4));
    block_sync();
    cluster_wait(); // the first block's mbarrier is there
    wait_for_previous();
    router_logits<C>((const T *)a.x + (i64)m * C::D, w, gains, logit);
    const u32 to = cluster_map(shared_address(logits), 0), counter = cluster_map(arrived, 0);
#pragma unroll
    for (int e = 0; e < P::PER; e++)
        if (lane_id() == 0 && e0 + e < C::N)
            cluster_send(to + (e0 + e) * 4, logit[e] + bias[e], counter);
    if (rank > 0 || warp_id() > 0)
        return;
    mbarrier_wait(arrived, 0);
    const Routes routes = {a.y, a.starts, a.rows};
    route_row<C>(logits, a.b, routes, m, room, room + C::N, chosen);
    if constexpr (C::SORTED) {
        bool last = true;
        if (rows > 1) {
            warp_sync();
            if (lane_id() == 0)
                last = atomic_add_acq_rel(a.done, 1) + 1 == (u32)rows;
            last = shuffle((int)last, 0);
            warp_sync();
            if (!last)
                return;
            if (lane_id() == 0)
                *a.done = 0;
        }
        const int *experts = rows > 1 ? (const int *)0 : chosen;
        for (int e = lane_id(); e < C::N; e += 32)
            count[e] = 0;
        warp_sync();
        for (int p = lane_id(); p < rows * C::K; p += 32)
            shared_atomic_add(&count[route_expert<C>(routes, experts, p)], 1);
        warp_sync();
        route_sort<C, 32>(routes, rows, count, experts);
    }
#endif
}
