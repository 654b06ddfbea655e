// append_norm.cuh - append.cuh with a root-mean-square norm of each head of q and k before their rotation (Qwen3, Gemma 3).
//
//   x [T, (H + 2G) * E]  ->  q [T, H * E], and the cache (body/append.cuh)      qg, kg [E]: gains of q and k
//
// LANES neighbouring lanes take a head of a token and keep it in registers; with PER > 1 each of them has the same columns of so
// many heads. Memory bound. us for 2,048 tokens of 40 heads of 128 in bf16 on an H200: a warp for each head 27, 16 lanes for each
// 16, and with PER = 5 36.
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

// Sum over LANES neighbouring lanes, in the order of stat_tree (body/norm.cuh).
template <int LANES> DEVICE float head_tree(float v)
{
#pragma unroll
    for (int m = (LANES < 16 ? LANES : 16) / 2; m; m /= 2)
        v += shuffle_xor(v, m);
    return LANES == 32 ? v + shuffle_xor(v, 16) : v;
}

// {cos, sin} of the pairs of columns e, e + 2, ... of a head; {1, 0} for pairs that are not rotated.
template <class K, int VEC> DEVICE Vec<float, VEC> head_angles(const AppendRow &row, int e)
{
    if constexpr (K::ROT % VEC != 0 || K::ROT % 4 != 0) {
        return append_angles<K, VEC / 2>(row, e);
    } else {
        Vec<float, VEC> cs;
#pragma unroll
        for (int i = 0; i < VEC; i++)
            cs[i] = i % 2 ? 0.0f : 1.0f;
        return K::ROT > 0 && e < K::ROT ? load<VEC>(row.cs + e) : cs;
    }
}

// K: as body/append.cuh, and T, EPS, VEC, LANES, PER, THREADS, ONE_TYPE: q and the cache have one type.
template <class K> DEVICE void append_norm(const AppendNormArgs &a)
{
    typedef typename K::T T;
    constexpr int VEC = K::VEC, HEADS = K::H + 2 * K::G, AT_ONCE = K::THREADS / K::LANES,
                  N = ceil_div(K::E, K::LANES * VEC);
    static_assert(VEC == vec_width<T>(K::E) && VEC % 2 == 0, "head_dim must be even");
    static_assert(K::LANES == 32 || N == 1, "a head's sum is that of stat_tree");
    launch_dependents();
    const int t = blockIdx.x, first = blockIdx.y * (AT_ONCE * K::PER) + threadIdx.x / K::LANES,
              at = threadIdx.x % K::LANES * VEC;
    const bool live = t < a.step->tokens; // no kernel of a program writes a.step
    wait_for_previous();
    if (!live)
        return;
    const T *x = (const T *)a.x + (i64)t * (HEADS * K::E);
    Vec<T, VEC> held[K::PER][N];
#pragma unroll
    for (int p = 0; p < K::PER; p++)
#pragma unroll
        for (int i = 0; i < N; i++) {
            const int head = first + p * AT_ONCE, e = i * K::LANES * VEC + at;
            held[p][i] = head < HEADS && e < K::E ? load<VEC>(x + head * K::E + e) : zeros<T, VEC>();
        }
    const AppendRow row = append_row<K>(a.token[t], a.pages, a.table);
    Vec<float, VEC> cs[N];
#pragma unroll
    for (int i = 0; i < N; i++)
        cs[i] = head_angles<K, VEC>(row, i * K::LANES * VEC + at);
#pragma unroll
    for (int p = 0; p < K::PER; p++) {
        const int head = first + p * AT_ONCE;
        const float *gain = head < K::H ? a.qg : a.kg;
        float s = 0.0f;
#pragma unroll
        for (int i = 0; i < N; i++)
            s = add_squares(s, held[p][i], 0.0f);
        const float scale = rms_scale<K::E>(head_tree<K::LANES>(s), K::EPS);
#pragma unroll
        for (int i = 0; i < N; i++) {
            const int e = i * K::LANES * VEC + at;
            if (head >= HEADS || e >= K::E)
                break;
            Vec<float, VEC> f = to_floats(held[p][i]);
            if (head < K::H + K::G) {
                const Vec<float, VEC> g = load<VEC>(gain + e);
#pragma unroll
                for (int k = 0; k < VEC; k++)
                    f[k] = f[k] * scale * g[k];
                if (K::ROT > 0)
                    append_turn<VEC / 2>(cs[i], f);
            }
            typename K::OUT *q = (typename K::OUT *)a.q + ((i64)t * K::H + head) * K::E + e;
            if constexpr (K::ONE_TYPE) // one store of 16 bytes; one behind each side of a branch would be taken apart
                store(head < K::H ? q : (typename K::OUT *)append_cached<K>(a.k, a.v, row, head * K::E + e), from_floats<typename K::OUT>(f));
            else if (head < K::H)
                store(q, from_floats<typename K::OUT>(f));
            else
                store(append_cached<K>(a.k, a.v, row, head * K::E + e), from_floats<typename K::KV>(f));
        }
    }
}
