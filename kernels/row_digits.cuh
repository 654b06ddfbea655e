// row_digits.cuh - rows of activations as digits of 8 bits, for linear_q_digits; an RMS norm before.
//
//   x  [M, C]  row-major, C % 128 == 0      g [C] fp32: gain of the norm
//   y  digits in the form digit_rows (compiler/ir/forms.def), whose panels have ROWS rows; units [C / 128][ROWS]
//
// What digits are: body/digit_rows.cuh. A block has a row and keeps it in registers; a thread has 16 neighbouring k at a time. Memory
// bound.
#pragma once
#include "device/block.cuh"
#include "device/pdl.cuh"
#include "device/vec.cuh"
#include "body/digit_rows.cuh"
#include "body/norm.cuh"
#include "body/rows.cuh"

struct RowDigitArgs {
    const void *x;
    const float *g;
    const FtxStep *step;
    void *y;
    float *units;
};

template <class K> DEVICE void row_digits(const RowDigitArgs &a)
{
    typedef typename K::T T;
    constexpr int UNITS = K::C / 16, N = ceil_div(UNITS, K::THREADS);
    constexpr bool AHEAD = N <= 2; // gains fit registers: they are loaded while the previous kernel runs
    SHARED(float, room, 36);
    launch_dependents();
    const int row = blockIdx.x;
    Vec<float, 16> gains[K::NORM && AHEAD ? N : 1];
    if constexpr (K::NORM && AHEAD) {
#pragma unroll
        for (int i = 0; i < N; i++)
            gains[i] = i * K::THREADS + threadIdx.x < UNITS ? load<16>(a.g + (i * K::THREADS + threadIdx.x) * 16) : zeros<float, 16>();
    }
    const bool live = row < live_rows<K::ROWS_S>(a.step); // no kernel of a program writes a.step
    wait_for_previous();
    if (!live)
        return;
    const T *x = (const T *)a.x + (i64)row * K::C;
    Vec<T, 16> own[N];
    float scale = 1.0f;
#pragma unroll
    for (int i = 0; i < N; i++) {
        const int at = i * K::THREADS + threadIdx.x;
        own[i] = at < UNITS ? load<16>(x + at * 16) : zeros<T, 16>();
    }
    if constexpr (K::NORM) {
        float squares = 0.0f;
#pragma unroll
        for (int i = 0; i < N; i++)
            squares = add_squares(squares, own[i], 0.0f);
        scale = rms_scale<K::C>(block_sum<K::THREADS>(squares, room), K::EPS);
    }
    typedef DigitPanel<K::ROWS> P;
#pragma unroll
    for (int i = 0; i < N; i++) {
        const int at = i * K::THREADS + threadIdx.x;
        Vec<float, 16> v;
        if constexpr (K::NORM)
            v = AHEAD ? gains[AHEAD ? i : 0] : at < UNITS ? load<16>(a.g + at * 16) : zeros<float, 16>();
        u32 top = 0; // magnitudes are ordered as their bits
#pragma unroll
        for (int k = 0; k < 16; k++) {
            v[k] = K::NORM ? to_float(own[i][k]) * scale * v[k] : to_float(own[i][k]);
            const u32 bits = __float_as_uint(v[k]) & 0x7fffffffu;
            top = bits > top ? bits : top;
        }
#pragma unroll
        for (int d = 1; d < 8; d *= 2) {
            const u32 other = __float_as_uint(shuffle_xor(__uint_as_float(top), d));
            top = other > top ? other : top;
        }
        const DigitUnit unit(top);
        if (at >= UNITS)
            continue;
        u32 high[4], low[4];
#pragma unroll
        for (int t = 0; t < 4; t++) {
            const DigitWords words(v[2 * t], v[2 * t + 8], v[2 * t + 1], v[2 * t + 9], unit);
            high[t] = words.high;
            low[t] = words.low;
        }
        char *to = (char *)a.y + (i64)(at / 8) * P::BYTES + P::at(row, at % 8);
        *(uint4_ *)to = uint4_{high[0], high[1], high[2], high[3]};
        *(uint4_ *)(to + P::LOW) = uint4_{low[0], low[1], low[2], low[3]};
        if (at % 8 == 0)
            a.units[at / 8 * K::ROWS + row] = unit.unit;
    }
}
