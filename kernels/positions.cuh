// positions.cuh - the embedding of each token's position alone: y[t,:] = p[pos + OFFSET,:], or of its type: y[t,:] = p[type,:].
//
//   p [positions or types, D]     y [T, D]
//
// blockIdx.x is the row; blocks along y share its columns. Memory bound. Where it is added to an embedding, embed.cuh does both.
#pragma once
#include "body/rows.cuh"
#include "device/pdl.cuh"
#include "device/vec.cuh"

struct PositionsArgs { const void *p; const FtxToken *token; const FtxStep *step; void *y; };

template <class K> DEVICE void positions(const PositionsArgs &a)
{
    launch_dependents();
    wait_for_previous();
    const int t = blockIdx.x;
    if (t >= live_rows<0>(a.step))
        return;
    const int row = K::TYPES ? a.token[t].slot : a.token[t].pos + K::OFFSET; // slot: the type, in encode programs
    const typename K::P *p = (const typename K::P *)a.p + (i64)row * K::D;
    for (int i = blockIdx.y * K::THREADS + threadIdx.x; i < K::D; i += gridDim.y * K::THREADS)
        ((typename K::T *)a.y)[(i64)t * K::D + i] = from_float<typename K::T>(to_float(p[i]));
}
