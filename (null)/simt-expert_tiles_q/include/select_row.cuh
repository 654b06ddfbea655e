// select_row.cuh - the row of each sequence's last token, or with FIRST of its first:  y[s,:] = x[t,:]
//
//   x [T, C]     y [S, C]     one block a sequence
#pragma once
#include "device/pdl.cuh"
#include "device/vec.cuh"
#include "body/rows.cuh"

struct SelectArgs {
    const void *x;
    const FtxStep *step;
    const FtxRow *rows;
    void *y;
};

template <class K> DEVICE void select_row(const SelectArgs &a)
{
    typedef typename K::T T;
    typedef typename K::OUT O;
    constexpr int VEC = vec_width<T>(K::C);
    launch_dependents();
    const int s = blockIdx.x;
    const bool live = s < a.step->rows; // $step and $rows are written between programs only
    const int row = !live ? 0 : K::FIRST ? a.rows[s].q_start : source_row<1>(a.rows, s);
    wait_for_previous();
    if (!live)
        return;
    const T *x = (const T *)a.x + (i64)row * K::C;
    for (int v = threadIdx.x; v < K::C / VEC; v += K::THREADS)
        store((O *)a.y + (i64)s * K::C + v * VEC, from_floats<O>(to_floats(load<VEC>(x + v * VEC))));
}
