// previous.cuh - the row of the token before, w for the first token of a text:  y[t,:] = x[t - 1,:]
//
//   x, y [T, C]     w [1, C]     blockIdx.x is the row; blocks along y share its columns. Memory bound.
#pragma once
#include "body/rows.cuh"
#include "device/pdl.cuh"
#include "device/vec.cuh"

struct PreviousArgs {
    const void *x, *w;
    const FtxStep *step;
    const FtxRow *rows;
    const FtxToken *token;
    void *y;
};

template <class K> DEVICE void previous(const PreviousArgs &a) // K: T W C THREADS
{
    typedef typename K::T T;
    launch_dependents();
    wait_for_previous();
    const int t = blockIdx.x;
    if (t >= live_rows<0>(a.step))
        return;
    const bool first = t == a.rows[a.token[t].row].q_start;
    const T *x = (const T *)a.x + (i64)(first ? t : t - 1) * K::C;
    for (int i = blockIdx.y * K::THREADS + threadIdx.x; i < K::C; i += gridDim.y * K::THREADS)
        ((T *)a.y)[(i64)t * K::C + i] = first ? from_float<T>(to_float(((const typename K::W *)a.w)[i])) : x[i];
}
