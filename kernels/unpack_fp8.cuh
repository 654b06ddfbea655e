// unpack_fp8.cuh - quantised weights of fp8 as numbers, row after row, for a product with many rows:
//
//   y[n,k] = scale[n, k / GROUP] * number of code[n,k]
//
//   w  tiles of 16 rows (runtime/base/packed.h) in the form m16k16 (compiler/ir/forms.def)
//   y  [N, K]  each number rounded once to OUT
//
// Memory bound. A thread has a row and 16 k of it, which two rows of lanes of a block hold: it reads 8 words.
#pragma once
#include "device/pdl.cuh"
#include "device/vec.cuh"

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
    typedef typename C::OUT O;
    constexpr int SCALE = C::SCALES == 2 ? 4 : 2, GROUPS = C::K / C::GROUP, SCALES_AT = C::K * 16;
    constexpr i64 TILE = round_up(SCALES_AT + GROUPS * 16 * SCALE, 64);
    const int piece = blockIdx.x * C::THREADS + threadIdx.x, r = threadIdx.x & 15, k0 = piece / 16 * 16, n = blockIdx.y * 16 + r;
    wait_for_previous();
    if (k0 >= C::K || n >= C::N)
        return;
    const unsigned char *tile = a.w + blockIdx.y * TILE;
    const int block = k0 / 32 * 32, words = least(32, C::K - block) / 16, group = k0 / C::GROUP * 16 + r;
    const unsigned char *codes = tile + block * 16 + (r % 8 * 4 * words + (k0 - block) / 16) * 8;
    const float scale = SCALE == 4 ? *(const float *)(tile + SCALES_AT + group * 4) : to_float(*(const half *)(tile + SCALES_AT + group * 2));
    Vec<float, 16> v;
#pragma unroll
    for (int t = 0; t < 4; t++)
#pragma unroll
        for (int h = 0; h < 2; h++) { // k 2t, 2t + 1 of the first and of the second 8
            const u32 word = *(const u32 *)(codes + t * words * 8 + h * 4) >> r / 8 * 8;
#pragma unroll
            for (int e = 0; e < 2; e++)
                v[h * 8 + 2 * t + e] = scale * unpack_e4m3(word >> 16 * e & 0xff);
        }
    Vec<O, 16> out = from_floats<O>(v);
    store((O *)a.y + (i64)n * C::K + k0, out);
}
