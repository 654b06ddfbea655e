// select_id.cuh - the row of each sequence's first token with a given id, or with its largest id:  y[s,:] = x[t,:]
//
//   x [T, C]     y [S, C]     one block a sequence
//   ID          -1: the largest id; a sequence without the id gives its first row
//
// Every thread looks at all tokens of the sequence, at one address at a time; the texts of such encoders are short.
#pragma once
#include "device/pdl.cuh"
#include "device/vec.cuh"
#include "device/io.h"

struct SelectIdArgs {
    const void *x;
    const FtxStep *step;
    const FtxRow *rows;
    const FtxToken *token;
    void *y;
};

template <class K> DEVICE void select_id(const SelectIdArgs &a) // K: T OUT C ID THREADS
{
    typedef typename K::T T;
    typedef typename K::OUT O;
    constexpr int VEC = vec_width<T>(K::C);
    launch_dependents();
    const int s = blockIdx.x;
    int best = 0;
    if (s < a.step->rows) { // $step, $rows and $token are written between programs only
        const int first = a.rows[s].q_start;
        best = first;
        for (int t = first + 1; t < first + a.rows[s].q_len; t++) {
            const int id = a.token[t].id, kept = a.token[best].id;
            if (K::ID < 0 ? id > kept : id == K::ID && kept != K::ID)
                best = t;
        }
    }
    wait_for_previous();
    if (s >= a.step->rows)
        return;
    const T *x = (const T *)a.x + (i64)best * K::C;
    for (int v = threadIdx.x; v < K::C / VEC; v += K::THREADS)
        store((O *)a.y + (i64)s * K::C + v * VEC, from_floats<O>(to_floats(load<VEC>(x + v * VEC))));
}
