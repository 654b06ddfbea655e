// embed_part.cuh - the embedding of a tensor-parallel model: each rank has the table's rows of P ids, and zeros for other ids.
//
//   y[t,:] = w[id - rank * P,:], or zeros      w [P, D]     y [T, D]
//   history [slots, CONTEXT]    the token's id is stored at its position; not in encode programs
//
// A block takes one token and THREADS vectors of its row. The all_reduce that follows adds zeros to the one rank's row, so
// its bits stay. Memory bound.
#pragma once
#include "device/io.h"
#include "device/pdl.cuh"
#include "device/vec.cuh"

struct EmbedPartArgs {
    const void *w;
    const FtxStep *step;
    const FtxToken *token;
    int *history;
    const FtxPeers *peers;
    void *y;
};

template <class K> DEVICE void embed_part(const EmbedPartArgs &a)
{
    typedef typename K::OUT O;
    constexpr int VEC = vec_width<typename K::W>(K::D);
    wait_for_previous();
    launch_dependents(); // not before: later kernels read, before their own wait, what the previous step writes
    const int t = blockIdx.x;
    if (t >= a.step->tokens)
        return;
    const FtxToken token = a.token[t];
    const i64 row = (i64)token.id - (i64)a.peers->rank * K::P;
    const bool mine = row >= 0 && row < K::P;
    if (!K::ENCODE && blockIdx.y == 0 && threadIdx.x == 0)
        a.history[(i64)token.slot * K::CONTEXT + token.pos] = token.id;
    for (int v = blockIdx.y * K::THREADS + threadIdx.x; v < K::D / VEC; v += gridDim.y * K::THREADS)
        store((O *)a.y + (i64)t * K::D + v * VEC,
              mine ? from_floats<O>(to_floats(load<VEC>((const typename K::W *)a.w + row * K::D + v * VEC))) : zeros<O, VEC>());
}
