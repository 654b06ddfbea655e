// unpack.cuh - quantised weights as numbers, row after row, for a product with many rows:
//
//   y[n,k] = scale[n, k / GROUP] * (code[n,k] - zero[n, k / GROUP])         or scale * code - minimum
//
//   w  tiles of 16 rows (runtime/base/packed.h) in the form m16k16 (compiler/ir/forms.def)
//   y  [N, K]  each number rounded once to OUT
//
// Memory bound. A thread has a row and 16 k of it, which two rows of lanes of a block hold: it reads 8 words or 16 bytes.
#pragma once
#include "device/pdl.cuh"
#include "device/vec.cuh"

struct UnpackArgs {
    const unsigned char *w;
    void *y;
};

template <class C> DEVICE void unpack(const UnpackArgs &a)
{
    typedef typename C::OUT O;
    constexpr bool FOUR = C::BITS == 4;
    constexpr int SPAN = FOUR ? 64 : 32, WORD = FOUR ? 4 : 8, SCALE = C::SCALES >= 2 ? 4 : 2;
    constexpr int ZERO = C::SCALES == 1 ? 1 : C::SCALES == 3 ? 4 : 0, GROUPS = C::K / C::GROUP;
    constexpr int SCALES_AT = C::K * 2 * C::BITS, ZEROS_AT = SCALES_AT + GROUPS * 16 * SCALE;
    constexpr i64 TILE = round_up(ZEROS_AT + GROUPS * 16 * ZERO, 64);
    const int piece = blockIdx.x * C::THREADS + threadIdx.x, r = threadIdx.x & 15, k0 = piece / 16 * 16, n = blockIdx.y * 16 + r;
    wait_for_previous();
    if (k0 >= C::K || n >= C::N)
        return;
    const unsigned char *tile = a.w + blockIdx.y * TILE;
    const int block = k0 / SPAN * SPAN, words = least(SPAN, C::K - block) / 16, group = k0 / C::GROUP * 16 + r;
    const unsigned char *codes = tile + block * 2 * C::BITS + (r % 8 * 4 * words + (k0 - block) / 16) * WORD;
    const float scale = SCALE == 4 ? *(const float *)(tile + SCALES_AT + group * 4) : to_float(*(const half *)(tile + SCALES_AT + group * 2));
    const float offset = ZERO == 4 ? *(const float *)(tile + ZEROS_AT + group * 4) : ZERO ? (float)tile[ZEROS_AT + group] : FOUR ? 8.0f : 128.0f;
    Vec<float, 16> v;
#pragma unroll
    for (int t = 0; t < 4; t++)
#pragma unroll
        for (int h = 0; h < 2; h++) { // k 2t, 2t + 1 of the first and of the second 8
            const u32 word = *(const u32 *)(codes + t * words * WORD + (FOUR ? 0 : h * 4));
            const u32 pair = FOUR ? word >> (h * 8 + r / 8 * 4) & 0x000f000fu : word >> r / 8 * 8 & 0x00ff00ffu;
#pragma unroll
            for (int e = 0; e < 2; e++) {
                const float code = (float)(pair >> 16 * e & 0xffff);
                v[h * 8 + 2 * t + e] = ZERO == 4 ? fmaf(scale, code, -offset) : scale * (code - offset);
            }
        }
    Vec<O, 16> out = from_floats<O>(v);
    store((O *)a.y + (i64)n * C::K + k0, out);
}
