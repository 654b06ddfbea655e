// select_last.cuh - the row of each sequence's last token in the step: x [T, C] -> y [S, C].
#pragma once
#include "device/pdl.cuh"
#include "device/vec.cuh"
#include "part/rows.cuh"

struct SelectArgs {
    const void *x;
    const FtxStep *step;
    const FtxRow *rows;
    void *y;
};

template <class K> DEVICE void select_last(const SelectArgs &a)
{
    typedef typename K::T T;
    constexpr int VEC = vec_width<T>(K::C);
    launch_dependents();
    wait_for_previous();
    const int s = blockIdx.x;
    if (s >= a.step->rows)
        return;
    const T *x = (const T *)a.x + (i64)source_row<1>(a.rows, s) * K::C;
    for (int v = threadIdx.x; v < K::C / VEC; v += K::THREADS)
        store((T *)a.y + (i64)s * K::C + v * VEC, load<VEC>(x + v * VEC));
}
