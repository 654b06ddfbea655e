// norm.cuh - statistics of a row in the one order that every kernel uses, so that a row gets the
// same bits whoever reads it: lane l of a warp takes the vectors l, l+32, ... of VEC elements one
// after another; then the lanes are added as a tree over 16, last the two halves. At the end: those
// of a row whose writer has left sums.
#pragma once
#include "device/l2.cuh"
#include "device/vec.cuh"
#include "device/warp.cuh"

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
// The sum of (x - mean)^2.
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

// By one warp. NORM 1: root mean square (mean 0), 2: mean and variance. C elements.
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

// The same of a row of C elements that a warp holds: lane l the vectors l, l + 32, ... of 8.
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
// Row of C elements into a warp's registers, from L2.
template <int C, class T> DEVICE void hold_row(Vec<T, 8> (&x)[ceil_div(C, 256)], const T *row)
{
#pragma unroll
    for (int i = 0; i < ceil_div(C, 256); i++)
        if (i * 32 + lane_id() < C / 8)
            *(uint4_ *)&x[i] = load_l2(row + (i * 32 + lane_id()) * 8);
}

// Rounded as written: no compiler may contract it differently in two places.
DEVICE float norm_apply(float x, RowStat r, float g, float c)
{
    return __fmaf_rn(__fmul_rn(__fsub_rn(x, r.mean), r.scale), g, c);
}

// Layer norm of a row of C elements of which its writer has left, for every EACH columns, their sum and the sum of
// their squares: [rows][SEGMENTS][2]. That cancels, but while the mean is below 2^11 deviations it costs less than the
// row's own rounding to 16 bits. By the quad that has the row: lane t asks for vectors t, t + 4, ...; all get the same.
// EACH = 0: the row is not normed.
struct RowLine {
    float scale, shift;
}; // y = (x * scale + shift) * g + c
template <int C, int EACH> struct QuadSums {
    static constexpr int SEGMENTS = ceil_div(C, EACH), VEC = SEGMENTS % 2 ? 2 : 4, VECTORS = SEGMENTS * 2 / VEC,
                         FLOATS = ceil_div(VECTORS, 4) * VEC;
    Vec<float, VEC> v[ceil_div(VECTORS, 4)];
    DEVICE void ask(const float *sums, int row, bool live)
    {
        const float *from = sums + ((i64)row * SEGMENTS * 2 + (lane_id() & 3) * VEC);
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
    DEVICE RowLine line(float eps) const
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
        return RowLine{scale, -mean * scale};
    }
};
template <int C> struct QuadSums<C, 0> {
    static constexpr int FLOATS = 0;
    DEVICE void ask(const float *, int, bool) {}
    DEVICE RowLine line(float) const { return RowLine{1.0f, 0.0f}; }
};
