// append_norm.cuh - append.cuh with a root-mean-square norm of each head of q and k before their rotation (Qwen3, Gemma 3).
//
//   x [T, (H + 2G) * E]  ->  q [T, H * E], and the cache (body/append.cuh)      qg, kg [E]: gains of q and k
//
// A warp takes one head of one token and keeps it in registers. Memory bound.
#pragma once
#include "device/pdl.cuh"
#include "body/append.cuh"
#include "body/norm.cuh"

struct AppendNormArgs {
    const void *x;
    const float *table; // body/append.cuh; NULL with ROT = 0
    const float *qg, *kg;
    const FtxStep *step;
    const FtxToken *token;
    const int *pages;
    void *k, *v;
    void *q;
};

template <class K> DEVICE void append_norm(const AppendNormArgs &a)
{
    typedef typename K::T T;
    constexpr int VEC = vec_width<T>(K::E), C = (K::H + 2 * K::G) * K::E, N = ceil_div(K::E, 32 * VEC);
    static_assert(VEC % 2 == 0, "head_dim must be even");
    launch_dependents();
    const int t = blockIdx.x, head = blockIdx.y * (K::THREADS / 32) + warp_id();
    const bool live = t < a.step->tokens && head < K::H + 2 * K::G; // no kernel of a program writes a.step
    wait_for_previous();
    if (!live)
        return;
    const AppendRow row = append_row<K>(a.token[t], a.pages, a.table);
    const T *x = (const T *)a.x + (i64)t * C + head * K::E;
    const float *gain = head < K::H ? a.qg : a.kg;
    Vec<T, VEC> held[N];
    float s = 0.0f;
#pragma unroll
    for (int i = 0; i < N; i++) {
        const int e = (i * 32 + lane_id()) * VEC;
        held[i] = e < K::E ? load<VEC>(x + e) : zeros<T, VEC>();
        s = add_squares(s, held[i], 0.0f);
    }
    const float scale = rms_scale<K::E>(stat_tree(s), K::EPS);
#pragma unroll
    for (int i = 0; i < N; i++) {
        const int e = (i * 32 + lane_id()) * VEC, n = head * K::E + e;
        if (e >= K::E)
            break;
        Vec<float, VEC> f = to_floats(held[i]);
        if (head < K::H + K::G) {
            const Vec<float, VEC> g = load<VEC>(gain + e);
#pragma unroll
            for (int k = 0; k < VEC; k++)
                f[k] = f[k] * scale * g[k];
        }
        append_pairs<K, VEC / 2>(AppendTo{a.k, a.v, a.q}, row, append_angles<K, VEC / 2>(row, n), t, n, f);
    }
}
