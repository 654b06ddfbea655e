// embed.cuh - rows of the embedding for a step's tokens, scaled, with those of their positions and
// types; and each token's id written down in its sequence's history, but for texts that an encoder
// reads. Memory bound.
//
//   w [V, D]      p [P, D], s [types, D] or NULL      y [T, D]      history [slots, CONTEXT]
#pragma once
#include "device/io.h"
#include "device/pdl.cuh"
#include "device/vec.cuh"

struct EmbedArgs {
    const void *w, *p, *s;
    const FtxStep *step;
    const FtxToken *token;
    int *history;
    void *y;
};

template <class K> DEVICE void embed(const EmbedArgs &a)
{
    typedef typename K::W W;
    typedef typename K::P P;
    typedef typename K::S S;
    typedef typename K::OUT O;
    constexpr int VEC = vec_width<W>(K::D);
    if (K::EARLY)
        launch_dependents();
    wait_for_previous();
    if (!K::EARLY)
        launch_dependents(); // not before: of what a run in front of this one leaves, others read ahead of their wait
    const int t = blockIdx.x;
    if (t >= a.step->tokens)
        return;
    const FtxToken token = a.token[t];
    if (!K::ENCODE && blockIdx.y == 0 && threadIdx.x == 0)
        a.history[(i64)token.slot * K::CONTEXT + token.pos] = token.id;
    for (int v = blockIdx.y * K::THREADS + threadIdx.x; v < K::D / VEC; v += gridDim.y * K::THREADS) {
        const int at = v * VEC;
        Vec<float, VEC> f = to_floats(load<VEC>((const W *)a.w + (i64)token.id * K::D + at));
        if (K::SCALED)
#pragma unroll
            for (int i = 0; i < VEC; i++)
                f[i] *= K::BY;
        if (K::TYPES) { // in encode programs the slot is the type
            const Vec<float, VEC> s = to_floats(load<VEC>((const S *)a.s + (i64)token.slot * K::D + at));
#pragma unroll
            for (int i = 0; i < VEC; i++)
                f[i] += s[i];
        }
        if (K::POSITIONS) {
            const Vec<float, VEC> p = to_floats(load<VEC>((const P *)a.p + (i64)(token.pos + K::OFFSET) * K::D + at));
#pragma unroll
            for (int i = 0; i < VEC; i++)
                f[i] += p[i];
        }
        store((O *)a.y + (i64)t * K::D + at, from_floats<O>(f));
    }
}
