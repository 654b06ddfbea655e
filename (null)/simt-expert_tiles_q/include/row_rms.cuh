// row_rms.cuh - a number for each row:  y[m] = sqrt(max(mean(x[m,:]^2), FLOOR)), with CENTRED of x less its mean; with INVERSE
// 1 / that.
//
//   x [rows, C]  ->  y [rows]     a warp takes a row (body/norm.cuh); sums in fp32
#pragma once
#include "device/pdl.cuh"
#include "body/norm.cuh"
#include "body/rows.cuh"

struct RowRmsArgs {
    const void *x;
    const FtxStep *step;
    void *y;
};

template <class K> DEVICE void row_rms(const RowRmsArgs &a)
{
    typedef typename K::OUT O;
    launch_dependents();
    wait_for_previous();
    const int m = blockIdx.x * (K::THREADS / 32) + warp_id();
    if (m >= live_rows<K::ROWS_S>(a.step))
        return;
    float y = row_stat<K::CENTRED ? 2 : 1, K::C>((const typename K::T *)a.x + (i64)m * K::C, 0.0f).scale;
    if (K::FLOOR > 0.0f)
        y = fminf(y, rsqrtf(K::FLOOR));
    if (lane_id() == 0)
        ((O *)a.y)[m] = from_float<O>(K::INVERSE ? y : 1.0f / y);
}
