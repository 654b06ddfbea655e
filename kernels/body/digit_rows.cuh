// digit_rows.cuh - rows of activations as two digits of 8 bits (form digit_rows of compiler/ir/forms.def).
//
//   x[m,k] = unit[m, k / 128] * (256 * high[m,k] + low[m,k])        -128 <= digit <= 127
//
// A unit is a power of two: 2^-14 of the largest power of two in the row's 128 k, of the next one where the largest magnitude is near
// to that. So an element's error is at most 2^-15 of the largest one. NaN and infinities make the unit NaN, so every product of it is NaN.
#pragma once
#include "device/bytes.cuh"
#include "device/types.cuh"

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

// The digits of k 2t, 2t + 8, 2t + 1, 2t + 9 of 16 as words.
struct DigitWords {
    u32 high, low;
    DEVICE DigitWords(float x0, float x1, float x2, float x3, const DigitUnit &unit)
    {
        const float x[4] = {x0, x1, x2, x3};
        u32 u[4];
#pragma unroll
        for (int j = 0; j < 4; j++) // the bits of 1.5 * 2^23 + i end with 0x400000 + i; here with 0x408080 + i, so bytes with 128 + digit
            u[j] = __float_as_uint(fmaf(x[j], unit.by, 12582912.0f)) + 0x8080u;
        const u32 a = permute(u[0], u[1], 0x5140), b = permute(u[2], u[3], 0x5140); // low, low, high, high
        low = permute(a, b, 0x5410) ^ 0x80808080u;
        high = permute(a, b, 0x7632) ^ 0x80808080u;
    }
};

// Where unit u (16 k) of row `row` of a panel has its high digits; the low ones stand LOW bytes further on.
template <int ROWS> struct DigitPanel {
    static constexpr int LOW = ROWS * 128, BYTES = ROWS * 256;
    static DEVICE int at(int row, int u) { return row * 128 + (u ^ (row & 7)) * 16; }
};
