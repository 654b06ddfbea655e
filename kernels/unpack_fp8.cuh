// unpack_fp8.cuh - quantised weights of fp8 as numbers, row after row, for a product with many rows:
//
//   y[n,k] = scale[n, k / GROUP] * number of code[n,k]
//
//   w  tiles of 16 rows (runtime/base/packed.h) in the form m16k16 (compiler/ir/forms.def)
//   y  [N, K]  each number rounded once to OUT
//
// Memory bound (body/unpacked.cuh).
#pragma once
#include "body/unpacked.cuh"

struct UnpackFp8Args {
    const unsigned char *w;
    void *y;
};

// A code as fp32: exponent and mantissa in their places, and the exponent's bias corrected by a product. Numbers below the least
// exponent are a count of 2^-9.
DEVICE float unpack_e4m3(u32 code)
{
    const u32 rest = code & 0x7f;
    const float magnitude = rest < 8 ? (float)rest * 0x1p-9f : __uint_as_float((rest << 20) + (120u << 23));
    return code & 0x80 ? -magnitude : magnitude;
}

template <class C> DEVICE void unpack_fp8(const UnpackFp8Args &a)
{
    unpack_tile<C>(a.w, a.y, [](u32 code, float scale, float) { return scale * unpack_e4m3(code); });
}
