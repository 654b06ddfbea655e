// unpack.cuh - quantised weights as numbers, row after row, for a product with many rows:
//
//   y[n,k] = scale[n, k / GROUP] * (code[n,k] - zero[n, k / GROUP])         or scale * code - minimum
//
//   w  tiles of 16 rows (runtime/base/packed.h) in the form m16k16 (compiler/ir/forms.def)
//   y  [N, K]  each number rounded once to OUT
//
// Memory bound (body/unpacked.cuh).
#pragma once
#include "body/unpacked.cuh"

struct UnpackArgs {
    const unsigned char *w;
    void *y;
};

template <class C> DEVICE void unpack(const UnpackArgs &a)
{
    unpack_tile<C>(a.w, a.y, [](u32 code, float scale, float offset) {
        return C::SCALES == 3 ? fmaf(scale, (float)code, -offset) : scale * ((float)code - offset);
    });
}
