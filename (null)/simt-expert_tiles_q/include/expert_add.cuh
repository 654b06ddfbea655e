// expert_add.cuh - sums of the experts of a row: y[m,n] = p[m,0,n] + ... + p[m,R-1,n] + r[m,n]
//
//   p [M, R, N]  16-bit, the form parts (compiler/ir/forms.def)      r, y [M, N]
//
// Each thread computes VEC neighbouring columns of a row; all its loads are under way at once. Memory bound, and p is
// partly still in L2, where the kernel before this one wrote it.
//
// Order of summation: the experts of a row in the order of its choices, in fp32, then r.
#pragma once
#include "body/rows.cuh"
#include "device/pdl.cuh"
#include "device/vec.cuh"

struct ExpertAddArgs {
    const void *p, *r;
    const FtxStep *step;
    void *y;
};

template <class C> DEVICE void expert_add(const ExpertAddArgs &a)
{
    typedef typename C::T T;
    constexpr int VEC = vec_width<T>(C::N), VECTORS = C::N / VEC; // of a row
    launch_dependents();
    const int i = blockIdx.x * C::THREADS + threadIdx.x, m = i / VECTORS, n = i % VECTORS * VEC;
    const bool live = m < live_rows<C::ROWS_S>(a.step); // no kernel of a program writes a.step
    wait_for_previous();
    if (!live)
        return;
    Vec<T, VEC> part[C::R], r = zeros<T, VEC>();
#pragma unroll
    for (int k = 0; k < C::R; k++)
        part[k] = load<VEC>((const T *)a.p + ((i64)m * C::R + k) * C::N + n);
    if (C::RES)
        r = load<VEC>((const T *)a.r + (i64)m * C::N + n);
    Vec<float, VEC> sum = to_floats(part[0]);
#pragma unroll
    for (int k = 1; k < C::R; k++)
#pragma unroll
        for (int v = 0; v < VEC; v++)
            sum[v] += to_float(part[k][v]);
#pragma unroll
    for (int v = 0; v < VEC && C::RES; v++)
        sum[v] += to_float(r[v]);
    store((T *)a.y + (i64)m * C::N + n, from_floats<T>(sum));
}
