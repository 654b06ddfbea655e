// row_digits.cuh - rows of activations as digits of 8 bits, for linear_q_digits; an RMS norm before.
//
//   x[m,k] = unit[m, k / 128] * (256 * high[m,k] + low[m,k])        -128 <= digit <= 127
//
//   x  [M, C]  row-major, C % 128 == 0      g [C] fp32: gain of the norm
//   y  digits in the form digit_rows (compiler/ir/forms.def), whose panels have ROWS rows; units [C / 128][ROWS]
//
// A unit is a power of two: 2^-14 of the largest power of two in the row's 128 k. So an element's error is at most 2^-15 of that. NaN
// and infinities make the unit NaN, so every product of it is NaN. A block has a row and keeps it in registers; a thread has 16
// neighbouring k at a time. Memory bound.
#pragma once
#include "device/block.cuh"
#include "device/bytes.cuh"
#include "device/pdl.cuh"
#include "device/vec.cuh"
#include "body/norm.cuh"
#include "body/rows.cuh"

struct RowDigitArgs {
    const void *x;
    const float *g;
    const FtxStep *step;
    void *y;
    float *units;
};

// The unit of 128 numbers whose largest magnitude has these bits, and what a number is multiplied by.
struct DigitUnit {
    float unit, by;
    DEVICE DigitUnit(u32 bits)
    {
        const u32 e = (bits + 0x20000u) >> 23, exponent = e < 16 ? 16 : e; // above 1.98 times a power of two the next one
        unit = bits >= 0x7f800000u ? __uint_as_float(0x7fc00000u) : __uint_as_float((exponent - 14) << 23);
        by = __uint_as_float((268 - exponent) << 23);
    }
};

template <class K> DEVICE void row_digits(const RowDigitArgs &a)
{
    typedef typename K::T T;
    constexpr int UNITS = K::C / 16, N = ceil_div(UNITS, K::THREADS);
    SHARED(float, room, 36);
    launch_dependents();
    const int row = blockIdx.x;
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
    constexpr int ONCE = least(K::ROWS, 32);
    const int line = row / ONCE * (2 * ONCE) + row % ONCE; // of a panel; the low digits stand ONCE lines further on
#pragma unroll
    for (int i = 0; i < N; i++) {
        const int at = i * K::THREADS + threadIdx.x;
        Vec<float, 16> v;
        if (K::NORM)
            v = at < UNITS ? load<16>(a.g + at * 16) : zeros<float, 16>();
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
            u32 u[4];
#pragma unroll
            for (int j = 0; j < 4; j++) // the bits of 1.5 * 2^23 + i end with 0x400000 + i; here with 0x408080 + i, so bytes with 128 + digit
                u[j] = __float_as_uint(fmaf(v[2 * t + j % 2 * 8 + j / 2], unit.by, 12582912.0f)) + 0x8080u;
            const u32 a01 = permute(u[0], u[1], 0x5140), a23 = permute(u[2], u[3], 0x5140); // low, low, high, high
            low[t] = permute(a01, a23, 0x5410) ^ 0x80808080u;
            high[t] = permute(a01, a23, 0x7632) ^ 0x80808080u;
        }
        char *to = (char *)a.y + ((i64)(at / 8) * (2 * K::ROWS) + line) * 128 + (at % 8 ^ row & 7) * 16;
        *(uint4_ *)to = uint4_{high[0], high[1], high[2], high[3]};
        *(uint4_ *)(to + ONCE * 128) = uint4_{low[0], low[1], low[2], low[3]};
        if (at % 8 == 0)
            a.units[at / 8 * K::ROWS + row] = unit.unit;
    }
}
