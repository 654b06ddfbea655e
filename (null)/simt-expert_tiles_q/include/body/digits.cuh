// digits.cuh - products of quantised weights by integer matrix instructions, with rows of x as three digits of 8 bits.
//
//   x[k] = unit * (65536 * digit0[k] + 256 * digit1[k] + digit2[k])        -128 <= digit <= 127
//
// A group of a row has its own unit, a power of two: 2^-21 of the group's largest power of two. So an element is exact unless
// it is below 2^-14 (half: 2^-11) of the group's largest, and then within half a unit. Codes are 4 or 8 bits without
// sign; the sums of a group are integers, exact. They are multiplied by scale and unit in fp32.
//
// What limits it: a weight of 4 bits costs a quarter of a logic instruction, where a number of 16 bits costs one. Of a word of
// eight codes the low nibbles are four k of an upper row, the high nibbles the same k of a lower row, 16 times as large: two
// registers of the first operand by two instructions. Digits are columns of the second operand: column 4 m + i is digit i of
// row m, i < 3, so products with one row cost no more than with two.
//
//   codes   of a brick in the form m16k16 (compiler/ir/forms.def); scales, zeros (or minima) of its groups, [GROUPS][16]
//   x       [M][3] rows of PITCH bytes in shared memory; of every 64 k of a row lane 4 g + t reads the 16 bytes at 16 t: of the
//           first 16 k the digits of k 2t, 2t + 8, 2t + 1, 2t + 9, then those of the next 16 k ...
//   units   [groups][M]
//
//   C: T, M, K, BITS, GROUP, SCALES (a PackedScales), BRICK_K
#pragma once
#include "device/bytes.cuh"
#include "device/mma.cuh"
#include "device/pairs.cuh"
#include "device/shared.cuh"
#include "device/warp.cuh"
#include "body/codes.cuh"
#include "body/quad.cuh"

template <class C> struct Digits : Codes<C> {
    typedef typename C::T T;
    typedef Codes<C> B;
    using B::BLOCK_K;
    static constexpr int GROUPS = C::BRICK_K / C::GROUP, BRICK = C::BRICK_K * 2 * C::BITS; // of a brick; bytes of its codes
    static constexpr int PITCH = round_up(C::K, 128) + 64;                                 // no bank conflicts
    static constexpr int COLUMN_TILES = ceil_div(C::M, 2), STEP = least(C::GROUP, 32);     // STEP: k of a product
    static constexpr int HIGH = C::BITS == 4 ? 16 : 1;                                     // the codes of lower rows are so many times as large

    // Lane i of four has elements 8 i .. 8 i + 7 of 32 of a row of x: makes their digits, the words of the lane that reads them,
    // and returns the group's unit. NaN and infinities make the unit NaN.
    static DEVICE float split(uint2_ (&digits)[3], const uint4_ &x)
    {
        u32 v[4] = {x.x, x.y, x.z, x.w}, top = 0;
#pragma unroll
        for (int i = 0; i < 4; i++)
            top = max2(top, v[i] & 0x7fff7fffu);
#pragma unroll
        for (int i = 1; i < C::GROUP / 8; i *= 2)
            top = max2(top, shuffle_xor(top, i));
        const u32 most_bits = (top >> 16) > (top & 0xffffu) ? top >> 16 : top & 0xffffu;
        const u32 exponent = __float_as_uint(to_float(T{(u16)most_bits})) >> 23, e = exponent < 30 ? 30 : exponent;
        const float factor = __uint_as_float((275 - e) << 23);
        quad_transpose(v);
        u32 words[3][2];
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const float own = C::GROUP == 16 ? shuffle(factor, (lane_id() & ~3) + 2 * i) : factor; // of these 16 k
            u32 u[4];
#pragma unroll
            for (int j = 0; j < 4; j++) // the bits of 1.5 * 2^23 + i end with 0x400000 + i; here with 0x808080 + i, so bytes with 128 + digit
                u[j] = __float_as_uint(fmaf(j < 2 ? low<T>(v[2 * i + j]) : high<T>(v[2 * i + j - 2]), own, 12582912.0f)) + 0x00408080u;
            const u32 a = permute(u[0], u[1], 0x5140), b = permute(u[2], u[3], 0x5140);
            words[2][i] = permute(a, b, 0x5410) ^ 0x80808080u;
            words[1][i] = permute(a, b, 0x7632) ^ 0x80808080u;
            words[0][i] = permute(permute(u[0], u[1], 0x0062), permute(u[2], u[3], 0x0062), 0x5410) ^ 0x80808080u;
        }
#pragma unroll
        for (int i = 0; i < 3; i++)
            digits[i] = uint2_{words[i][0], words[i][1]};
        return exponent == 255 ? __uint_as_float(0x7fc00000u) : __uint_as_float((e - 21) << 23);
    }
    // Where lane `lane` writes them: k is its first element.
    static DEVICE u32 place(u32 x, int m, int digit, int k) { return x + (m * 3 + digit) * PITCH + k / 64 * 64 + k / 8 % 4 * 16 + k / 32 % 2 * 8; }

    static DEVICE int zero(const char *zeros, int group, int row)
    {
        return C::SCALES == 1 ? (int)*(const u8 *)(zeros + group * 16 + row) : C::SCALES == 3 ? 0 : C::BITS == 4 ? 8 : 128;
    }
    static DEVICE float minimum(const char *zeros, int group, int row) { return *(const float *)(zeros + (group * 16 + row) * B::ZERO); }

    // The first operand for 32 k (or 16) from k on, of the 128 k in w.
    static DEVICE void codes_of(u32 (&a)[4], const uint4_ (&w)[128 / BLOCK_K], int k)
    {
        const uint4_ four = w[k / BLOCK_K];
        const u32 words[4] = {four.x, four.y, four.z, four.w};
#pragma unroll
        for (int i = 0; i < STEP / 16; i++)
            if (C::BITS == 4) {
                a[2 * i] = words[k % 64 / 16 + i] & 0x0f0f0f0fu;
                a[2 * i + 1] = words[k % 64 / 16 + i] & 0xf0f0f0f0u;
            } else { // a word has two k of an upper row and of a lower one, alternating
                a[2 * i] = permute(words[k % 32 / 8 + 2 * i], words[k % 32 / 8 + 2 * i + 1], 0x6240);
                a[2 * i + 1] = permute(words[k % 32 / 8 + 2 * i], words[k % 32 / 8 + 2 * i + 1], 0x7351);
            }
    }

    // total += brick * digits of x. x, units: from the brick's first k on; left: k of the rows from there on.
    static DEVICE void multiply(float (&total)[COLUMN_TILES][4], u32 codes, const char *scales, const char *zeros, u32 x, const float *units, int left)
    {
        const int lane = lane_id(), g = lane >> 2, t = lane & 3;
        const u32 own = codes + lane * 16, ones[4] = {0x01010101u, 0x01010101u, 0x01010101u, 0x01010101u};
        uint4_ w[128 / BLOCK_K], b[2][COLUMN_TILES];
        int d[COLUMN_TILES][4], s[COLUMN_TILES][4]; // sums of code * digit, of digits
#pragma unroll
        for (int i = 0; i < 128 / BLOCK_K; i++)
            if (C::K % 128 == 0 || i * BLOCK_K < left)
                w[i] = shared_load16(own + i * 512);
#pragma unroll
        for (int i = 0; i < 2; i++)
#pragma unroll
            for (int j = 0; j < COLUMN_TILES; j++)
                if (C::K % 128 == 0 || i * 64 < left)
                    b[i][j] = shared_load16(x + (((2 * j + (g >> 2)) & (C::M - 1)) * 3 + least(g & 3, 2)) * PITCH + i * 64 + t * 16);
#pragma unroll
        for (int k = 0; k < C::BRICK_K; k += STEP) {
            const int group = k / C::GROUP;
            if (C::K % C::BRICK_K && k >= left)
                break;
            u32 a[4];
            codes_of(a, w, k);
#pragma unroll
            for (int j = 0; j < COLUMN_TILES; j++) {
                const uint4_ four = b[k / 64][j];
                const u32 words[4] = {four.x, four.y, four.z, four.w};
                const bool first = k % C::GROUP == 0;
                if (first)
#pragma unroll
                    for (int e = 0; e < 4; e++)
                        d[j][e] = s[j][e] = 0;
                if constexpr (STEP == 32) {
                    mma_codes(d[j], a, words[k % 64 / 16], words[k % 64 / 16 + 1]);
                    mma_codes(s[j], ones, words[k % 64 / 16], words[k % 64 / 16 + 1]);
                } else {
                    mma_codes(d[j], a[0], a[1], words[k % 64 / 16]);
                    mma_codes(s[j], ones[0], ones[1], words[k % 64 / 16]);
                }
            }
            if ((k + STEP) % C::GROUP)
                continue;
            const float scale[2] = {B::scale(scales, group, g), B::scale(scales, group, g + 8) / HIGH};
            const int offset[2] = {zero(zeros, group, g), zero(zeros, group, g + 8) * HIGH};
#pragma unroll
            for (int j = 0; j < COLUMN_TILES; j++) {
                const float unit = units[group * C::M + ((2 * j + (t >> 1)) & (C::M - 1))];
#pragma unroll
                for (int e = 0; e < 4; e++) {
                    total[j][e] = fmaf(scale[e / 2], unit * (float)(d[j][e] - offset[e / 2] * s[j][e]), total[j][e]);
                    if (C::SCALES == 3)
                        total[j][e] = fmaf(-minimum(zeros, group, g + e / 2 * 8), unit * (float)s[j][e], total[j][e]);
                }
            }
        }
    }

    // Writes the sums of a tile to [M][pitch], 16 of each row of x. An even lane has the sums of digits 0 and 1, the next one
    // those of digit 2.
    static DEVICE void put(const float (&total)[COLUMN_TILES][4], float *to, int pitch)
    {
        const int g = lane_id() >> 2, odd = lane_id() & 1;
#pragma unroll
        for (int j = 0; j < COLUMN_TILES; j++) {
            const int m = 2 * j + (lane_id() >> 1 & 1);
            float sum[2];
#pragma unroll
            for (int h = 0; h < 2; h++) {
                const float own = odd ? total[j][2 * h] : fmaf(65536.0f, total[j][2 * h], 256.0f * total[j][2 * h + 1]);
                sum[h] = own + shuffle_xor(own, 1);
            }
            if (m < C::M)
                to[m * pitch + g + odd * 8] = odd ? sum[1] : sum[0];
        }
    }
};
