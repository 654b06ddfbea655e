// embed.cuh - the embedding of each token: y[t,:] = BY * w[id,:] + s[type,:] + p[pos + OFFSET,:], as far as they exist.
//
//   w [V, D]     p [positions, D]     s [types, D]     y [T, D]
//   history [slots, CONTEXT]    the token's id is stored at its position; not in encode programs
//
// embed: a block takes one token and THREADS vectors of its row. embed_norm: the same and the layer norm that follows,
// one block a row. Memory bound.
#pragma once
#include "device/block.cuh"
#include "device/io.h"
#include "device/pdl.cuh"
#include "device/vec.cuh"
#include "body/norm.cuh"

struct EmbedArgs {
    const void *w, *p, *s;
    const FtxStep *step;
    const FtxToken *token;
    int *history;
    void *y;
};
struct EmbedGains { const float *g, *c; };  // [D]
struct EmbedNormArgs : EmbedGains, EmbedArgs {};

// Elements [at, at + VEC) of a token's row.
template <class K, int VEC> DEVICE Vec<float, VEC> embed_vector(const EmbedArgs &a, const FtxToken &token, int at)
{
    Vec<float, VEC> f = to_floats(load<VEC>((const typename K::W *)a.w + (i64)token.id * K::D + at));
    if (K::SCALED)
#pragma unroll
        for (int i = 0; i < VEC; i++)
            f[i] *= K::BY;
    if (K::TYPES) { // in encode programs FtxToken.slot is the token type
        const Vec<float, VEC> s = to_floats(load<VEC>((const typename K::S *)a.s + (i64)token.slot * K::D + at));
#pragma unroll
        for (int i = 0; i < VEC; i++)
            f[i] += s[i];
    }
    if (K::POSITIONS) {
        const i64 row = token.pos + K::OFFSET;
        const Vec<float, VEC> p = to_floats(load<VEC>((const typename K::P *)a.p + row * K::D + at));
#pragma unroll
        for (int i = 0; i < VEC; i++)
            f[i] += p[i];
    }
    return f;
}

template <class K> DEVICE void embed(const EmbedArgs &a)
{
    typedef typename K::OUT O;
    constexpr int VEC = vec_width<typename K::W>(K::D);
    if (K::EARLY) // the second kernel starts no later one before the previous step is done
        launch_dependents();
    wait_for_previous();
    if (!K::EARLY)
        launch_dependents(); // not before: later kernels read, before their own wait, what the previous step writes
    const int t = blockIdx.x;
    if (t >= a.step->tokens)
        return;
    const FtxToken token = a.token[t];
    if (!K::ENCODE && blockIdx.y == 0 && threadIdx.x == 0)
        a.history[(i64)token.slot * K::CONTEXT + token.pos] = token.id;
    for (int v = blockIdx.y * K::THREADS + threadIdx.x; v < K::D / VEC; v += gridDim.y * K::THREADS)
        store((O *)a.y + (i64)t * K::D + v * VEC, from_floats<O>(embed_vector<K, VEC>(a, token, v * VEC)));
}

// embed and the layer norm of the row; encoders only. Each thread has at most one vector of the row.
template <class K> DEVICE void embed_norm(const EmbedNormArgs &a)
{
    typedef typename K::OUT O;
    constexpr int VEC = vec_width<typename K::W>(K::D);
    static_assert(K::ENCODE && K::THREADS * VEC >= K::D, "a row a block");
    SHARED(float, room, 72);
    const int t = blockIdx.x, at = threadIdx.x * VEC;
    const bool inside = at < K::D;
    Vec<float, VEC> g = {}, c = {}, f = {};
    if (inside) {
        g = load<VEC>(a.g + at);
        c = load<VEC>(a.c + at);
    }
    wait_for_previous();
    launch_dependents();
    if (t >= a.step->tokens)
        return;
    if (inside)
        f = embed_vector<K, VEC>(a, a.token[t], at);
    const float mean = block_sum<K::THREADS>(add_sum(0.0f, f), room) / K::D;
    const float squares = block_sum<K::THREADS>(inside ? add_squares(0.0f, f, mean) : 0.0f, room + 36);
    const RowStat stat = {mean, rms_scale<K::D>(squares, K::EPS)};
    if (!inside)
        return;
#pragma unroll
    for (int i = 0; i < VEC; i++)
        f[i] = norm_apply(f[i], stat, g[i], c[i]);
    store((O *)a.y + (i64)t * K::D + at, from_floats<O>(f));
}
