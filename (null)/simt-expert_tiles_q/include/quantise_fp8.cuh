// quantise_fp8.cuh - rows of activations as codes of fp8 (e4m3), for products with weights of fp8; an RMS norm before.
//
//   scale = largest magnitude of the row / 448        code[k] = x[k] * (448 / largest magnitude), nearest, ties to even
//
//   x  [M, C]  row-major, C % 128 == 0      g [C] fp32: gain of the norm
//   y  codes in the form e4m3_rows (compiler/ir/forms.def), whose panels have ROWS rows; scales [M]
//
// A row whose magnitudes are all below 2^-100 becomes 0. One with NaN or infinity has a scale that is not finite, so every product
// of it is NaN. A block has a row and keeps it in registers; a thread has 16 neighbouring k at a time. Memory bound.
#pragma once
#include "device/block.cuh"
#include "device/bytes.cuh"
#include "device/fp8.cuh"
#include "device/pdl.cuh"
#include "device/vec.cuh"
#include "body/norm.cuh"
#include "body/rows.cuh"

struct QuantiseArgs {
    const void *x;
    const float *g;
    const FtxStep *step;
    void *y;
    float *scales;
};

template <class K> DEVICE void quantise_fp8(const QuantiseArgs &a)
{
    typedef typename K::T T;
    constexpr int UNITS = K::C / 16, N = ceil_div(UNITS, K::THREADS);
    SHARED(float, room, 72);
    launch_dependents();
    const int row = blockIdx.x;
    const bool live = row < live_rows<K::ROWS_S>(a.step); // no kernel of a program writes a.step
    wait_for_previous();
    if (!live)
        return;
    const T *x = (const T *)a.x + (i64)row * K::C;
    Vec<T, 16> own[N];
    Vec<float, 16> normed[K::NORM ? N : 1];
    u32 most_bits = 0; // magnitudes are ordered as their bits; NaN is above infinity
#pragma unroll
    for (int i = 0; i < N; i++) {
        const int unit = i * K::THREADS + threadIdx.x;
        own[i] = unit < UNITS ? load<16>(x + unit * 16) : zeros<T, 16>();
    }
    if constexpr (K::NORM) {
        float squares = 0.0f;
#pragma unroll
        for (int i = 0; i < N; i++)
            squares = add_squares(squares, own[i], 0.0f);
        const float scale = rms_scale<K::C>(block_sum<K::THREADS>(squares, room), K::EPS);
#pragma unroll
        for (int i = 0; i < N; i++) {
            const int unit = i * K::THREADS + threadIdx.x;
            normed[i] = unit < UNITS ? load<16>(a.g + unit * 16) : zeros<float, 16>();
#pragma unroll
            for (int k = 0; k < 16; k++)
                normed[i][k] = to_float(own[i][k]) * scale * normed[i][k];
        }
    }
    const auto value = [&](int i, int k) {
        if constexpr (K::NORM)
            return normed[i][k];
        else
            return to_float(own[i][k]);
    };
#pragma unroll
    for (int i = 0; i < N; i++)
#pragma unroll
        for (int k = 0; k < 16; k++) {
            const u32 bits = __float_as_uint(value(i, k)) & 0x7fffffff;
            most_bits = bits > most_bits ? bits : most_bits;
        }
    const float largest = block_max<K::THREADS>(__uint_as_float(most_bits > 0x7f800000u ? 0x7f800000u : most_bits), room + 36);
    const bool zero = largest < 0x1p-100f || largest >= __uint_as_float(0x7f800000u);
    const float by = zero ? 0.0f : 448.0f / largest;
    if (threadIdx.x == 0)
        a.scales[row] = largest < 0x1p-100f ? 0.0f : largest / 448.0f;
#pragma unroll
    for (int i = 0; i < N; i++) {
        const int unit = i * K::THREADS + threadIdx.x;
        if (unit >= UNITS)
            break;
        u32 to[4];
#pragma unroll
        for (int t = 0; t < 4; t++)
            to[t] = zero ? 0 : pack_e4m3(value(i, 2 * t) * by, value(i, 2 * t + 1) * by, value(i, 2 * t + 8) * by, value(i, 2 * t + 9) * by);
        *(uint4_ *)((char *)a.y + ((i64)(unit / 8) * K::ROWS + row) * 128 + (unit % 8 ^ row & 7) * 16) = uint4_{to[0], to[1], to[2], to[3]};
    }
}
