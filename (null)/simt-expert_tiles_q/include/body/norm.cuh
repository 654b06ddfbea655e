// norm.cuh - statistics of a row for RMS norm and layer norm, in the one order of summation that all kernels use, so
// that a row gets the same bits from each of them: lane l of a warp adds vectors l, l + 32, ... of VEC elements one
// after another; then the lanes are added as a tree over 16, last the two halves. At the end: layer norm from row
// statistics that another kernel wrote.
#pragma once
#include "device/l2.cuh"
#include "device/vec.cuh"
#include "device/warp.cuh"

// Sum over the lanes of a warp.
DEVICE float stat_tree(float v)
{
#pragma unroll
    for (int m = 8; m; m /= 2)
        v += shuffle_xor(v, m);
    return v + shuffle_xor(v, 16);
}

template <int VEC, class T> DEVICE float add_sum(float s, const Vec<T, VEC> &v)
{
#pragma unroll
    for (int i = 0; i < VEC; i++)
        s += to_float(v[i]);
    return s;
}
// Adds (x - mean)^2.
template <int VEC, class T> DEVICE float add_squares(float s, const Vec<T, VEC> &v, float mean)
{
#pragma unroll
    for (int i = 0; i < VEC; i++) {
        const float d = to_float(v[i]) - mean;
        s = fmaf(d, d, s);
    }
    return s;
}

struct RowStat {
    float mean, scale;
}; // y = (x - mean) * scale * g + c

template <int C> DEVICE float rms_scale(float sum, float eps)
{
    return rsqrtf(sum / C + eps);
}

// Statistics of a row of C elements in memory, by one warp. NORM 1: root mean square (mean 0); 2: mean and variance.
template <int NORM, int C, class T> DEVICE RowStat row_stat(const T *x, float eps)
{
    constexpr int VEC = vec_width<T>(C), N = C / VEC;
    float mean = 0.0f, s = 0.0f;
    if (NORM == 2) {
#pragma unroll 8
        for (int v = lane_id(); v < N; v += 32)
            s = add_sum(s, load<VEC>(x + v * VEC));
        mean = stat_tree(s) / C;
        s = 0.0f;
    }
#pragma unroll 8
    for (int v = lane_id(); v < N; v += 32)
        s = add_squares(s, load<VEC>(x + v * VEC), mean);
    return RowStat{mean, rms_scale<C>(stat_tree(s), eps)};
}

// The same for a row that the warp holds in registers: lane l has vectors l, l + 32, ... of 8 elements.
template <int NORM, int C, class T> DEVICE RowStat held_stat(const Vec<T, 8> (&x)[ceil_div(C, 256)], float eps)
{
    float mean = 0.0f, s = 0.0f;
    if (NORM == 2) {
#pragma unroll
        for (int i = 0; i < ceil_div(C, 256); i++)
            if (i * 32 + lane_id() < C / 8)
                s = add_sum(s, x[i]);
        mean = stat_tree(s) / C;
        s = 0.0f;
    }
#pragma unroll
    for (int i = 0; i < ceil_div(C, 256); i++)
        if (i * 32 + lane_id() < C / 8)
            s = add_squares(s, x[i], mean);
    return RowStat{mean, rms_scale<C>(stat_tree(s), eps)};
}
// Loads a row of C elements from L2 into the warp's registers, for held_stat.
template <int C, class T> DEVICE void hold_row(Vec<T, 8> (&x)[ceil_div(C, 256)], const T *row)
{
#pragma unroll
    for (int i = 0; i < ceil_div(C, 256); i++)
        if (i * 32 + lane_id() < C / 8)
            *(uint4_ *)&x[i] = load_l2(row + (i * 32 + lane_id()) * 8);
}

// One element of a normed row. The intrinsics fix each rounding, so that all kernels compute the same bits.
DEVICE float norm_apply(float x, RowStat r, float g, float c)
{
    return __fmaf_rn(__fmul_rn(__fsub_rn(x, r.mean), r.scale), g, c);
}

// Layer norm from row statistics: for every EACH columns of a row of C elements, the kernel that wrote the row also
// wrote their sum and the sum of their squares, [rows][GROUPS][2]. Var = E[x^2] - E[x]^2 cancels, but while the mean is
// below 2^11 standard deviations the error is below the row's own rounding to 16 bits. Four neighbouring lanes work on
// a row: lane t loads vectors t, t + 4, ...; all get the result. EACH = 0: the row is not normed.
struct RowAffine {
    float scale, shift;
}; // y = (x * scale + shift) * g + c
template <int C, int EACH> struct RowSums {
    static constexpr int GROUPS = ceil_div(C, EACH), VEC = GROUPS % 2 ? 2 : 4, VECTORS = GROUPS * 2 / VEC,
                         FLOATS = ceil_div(VECTORS, 4) * VEC;
    Vec<float, VEC> v[ceil_div(VECTORS, 4)];
    DEVICE void load(const float *sums, int row, bool live)
    {
        const float *from = sums + ((i64)row * GROUPS * 2 + (lane_id() & 3) * VEC);
#pragma unroll
        for (int i = 0; i < ceil_div(VECTORS, 4); i++) {
            v[i] = zeros<float, VEC>();
            if (!live || i * 4 + (lane_id() & 3) >= VECTORS)
                continue;
            if constexpr (VEC == 4)
                *(uint4_ *)&v[i] = load_l2(from + i * 16);
            else
                *(u64 *)&v[i] = load_l2_scalar((const u64 *)(from + i * 8));
        }
    }
    DEVICE RowAffine affine(float eps) const
    {
        float sum = 0.0f, squares = 0.0f;
#pragma unroll
        for (int i = 0; i < ceil_div(VECTORS, 4); i++)
#pragma unroll
            for (int k = 0; k < VEC; k += 2) {
                sum += v[i][k];
                squares += v[i][k + 1];
            }
        constexpr float BY = 1.0f / C;
        const float mean = warp_sum<4>(sum) * BY,
                    scale = rsqrtf(fmaxf(warp_sum<4>(squares) * BY - mean * mean, 0.0f) + eps);
        return RowAffine{scale, -mean * scale};
    }
};
template <int C> struct RowSums<C, 0> {
    static constexpr int FLOATS = 0;
    DEVICE void load(const float *, int, bool) {}
    DEVICE RowAffine affine(float) const { return RowAffine{1.0f, 0.0f}; }
};
