// xielu.cuh - the activation of Apertus, element by element (Huang & Schlag 2025, arXiv 2411.13010):
//
//   y = beta * x + softplus(w[0]) * x^2                                   x > 0
//       beta * x + (beta + softplus(w[1])) * (e^min(x, -1e-6) - 1 - x)    else;  beta = w[2]
//
//   x, y [M, C]     w [3] fp32     blockIdx.x is the row; blocks along y share its columns. Memory bound.
#pragma once
#include "body/rows.cuh"
#include "device/pdl.cuh"
#include "device/vec.cuh"

struct XieluArgs { const void *x; const float *w; const FtxStep *step; void *y; };

DEVICE float softplus(float x) { return x > 20.0f ? x : logf(1.0f + expf(x)); }

template <class K> DEVICE void xielu(const XieluArgs &a) // K: T C ROWS_S THREADS
{
    typedef typename K::T T;
    constexpr int VEC = vec_width<T>(K::C);
    launch_dependents();
    const float beta = a.w[2], up = softplus(a.w[0]), down = beta + softplus(a.w[1]);
    wait_for_previous();
    const i64 row = blockIdx.x;
    if ((int)row >= live_rows<K::ROWS_S>(a.step))
        return;
    for (int v = blockIdx.y * K::THREADS + threadIdx.x; v < K::C / VEC; v += gridDim.y * K::THREADS) {
        Vec<float, VEC> f = to_floats(load<VEC>((const T *)a.x + row * K::C + v * VEC));
#pragma unroll
        for (int i = 0; i < VEC; i++)
            f[i] = fmaf(beta, f[i], f[i] > 0.0f ? up * f[i] * f[i] : down * (expf(fminf(f[i], -1e-6f)) - 1.0f - f[i]));
        store((T *)a.y + row * K::C + v * VEC, from_floats<T>(f));
    }
}
