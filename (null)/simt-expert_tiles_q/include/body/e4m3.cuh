// e4m3.cuh - quantised weights of fp8: their codes as numbers of 16 bits, and the products of linear_q.cuh, linear_q_bulk.cuh and
// linear_q_hopper.cuh with them.
//
//   w[n,k] = scale[n, k / GROUP] * number of code[n,k]        e4m3: sign, 4 bits of exponent (bias 7), 3 of mantissa
//
// A code is 16 bits of T by logic instructions: exponent and mantissa move to their places in T. What comes out is the number
// times 2^-8 in half, where scales make up for it, and times 2^-120 in bf16, where a product with 2^120 does, since sums of such
// numbers would leave the range of fp32. Numbers below the least exponent come out right, too. So w is never rounded. NaN (0x7f)
// comes out as 480: no file has it (runtime/base/packed.h).
//
// Codes lie in the tiles as those of int8 (compiler/ir/forms.def), and there are no zeros. A template says which kernels have
// them:   template <> struct Brick<Config> : E4m3Brick<Config> {};
#pragma once
#include "device/pairs.cuh"
#include "body/brick.cuh"
#include "body/codes.cuh"

// Bytes 0 and 2 (ODD: 1 and 3) of a word as a pair of T, which times UP is the numbers.
template <class T> struct E4m3;
template <> struct E4m3<half> {
    static constexpr float UP = 256.0f;
    template <bool ODD> static DEVICE u32 pair(u32 word)
    {
        const u32 high = ODD ? word : word << 8;
        return and_or(high, 0x80008000u, high >> 1 & 0x3f803f80u);
    }
};
template <> struct E4m3<bf16> {
    static constexpr float UP = 1.0f;
    template <bool ODD> static DEVICE u32 pair(u32 word)
    {
        const u32 high = ODD ? word : word << 8;
        return fma2<bf16>(and_or(high, 0x80008000u, high >> 4 & 0x07f007f0u), 0x7b807b80u, 0x80008000u); // x 2^120 - 0
    }
};
// Four registers of a fragment: rows g and g + 8, then the same rows 8 k further on.
template <class T> DEVICE void e4m3_fragment(u32 (&a)[4], u32 first, u32 second)
{
    a[0] = E4m3<T>::template pair<false>(first);
    a[1] = E4m3<T>::template pair<true>(first);
    a[2] = E4m3<T>::template pair<false>(second);
    a[3] = E4m3<T>::template pair<true>(second);
}

template <class C> struct E4m3Codes : C {}; // another name: what codes of 8 bits have in common is that of int8

// A Brick whose codes are numbers. The sums of a group start at 0; even and odd 16 k have sums of their own for up to 8 columns.
template <class C> struct E4m3Brick : Brick<E4m3Codes<C>> {
    typedef Brick<E4m3Codes<C>> Q;
    typedef typename C::T T;
    static constexpr int TILES = Q::COLUMN_TILES, SUMS = C::M <= 8 ? 2 : 1;

    static DEVICE void multiply(float (&total)[TILES][4], const char *slot, u32 x, const float *, int left)
    {
        multiply(total, shared_address(slot), slot + Q::BRICK, x, left);
    }
    static DEVICE void multiply(float (&total)[TILES][4], u32 brick, const char *scales, u32 x, int left)
    {
        constexpr int ONCE = TILES <= 2 ? 128 : 32; // k of x that are loaded at once
        const int lane = lane_id();
        const u32 codes = brick + lane * 16, rows = x + (lane & 7 & (C::BLOCK_M - 1)) * C::X_ROW_BYTES + (lane >> 3) * 16;
        float d[SUMS][TILES][4];
        uint4_ w[4];
        u32 b[ONCE / 32][TILES][4];
#pragma unroll
        for (int k = 0; k < C::BRICK_K; k += 16) {
            if (C::K % C::BRICK_K && k >= left)
                break;
            if (k % 128 == 0)
#pragma unroll
                for (int i = 0; i < 4; i++)
                    if (C::K % 128 == 0 || k + i * 32 < left)
                        w[i] = shared_load16(codes + (k / 32 + i) * 512);
            if (k % C::GROUP == 0)
#pragma unroll
                for (int s = 0; s < SUMS; s++)
#pragma unroll
                    for (int j = 0; j < TILES; j++)
#pragma unroll
                        for (int e = 0; e < 4; e++)
                            d[s][j][e] = 0.0f;
            if (k % ONCE == 0)
#pragma unroll
                for (int i = 0; i < ONCE / 32; i++)
#pragma unroll
                    for (int j = 0; j < TILES; j++)
                        if (C::K % 128 == 0 || ONCE == 32 || k + i * 32 < left)
                            ldmatrix4(b[i][j], rows + j * 8 * C::X_ROW_BYTES + (k + i * 32) * 2);
            const uint4_ four = w[k % 128 / 32];
            const u32 words[4] = {four.x, four.y, four.z, four.w};
            const int i = k % ONCE / 32, at = k % 32 / 8;
            u32 f[4];
            e4m3_fragment<T>(f, words[at], words[at + 1]);
#pragma unroll
            for (int j = 0; j < TILES; j++)
                mma<T>(d[k / 16 % SUMS][j], f[0], f[1], f[2], f[3], b[i][j][at], b[i][j][at + 1]);
            if ((k + 16) % C::GROUP)
                continue;
#pragma unroll
            for (int e = 0; e < 4; e++) {
                const float scale = Codes<E4m3Codes<C>>::scale(scales, k / C::GROUP, (lane >> 2) + e / 2 * 8) * E4m3<T>::UP;
#pragma unroll
                for (int j = 0; j < TILES; j++)
                    total[j][e] = fmaf(scale, SUMS == 2 ? d[0][j][e] + d[SUMS - 1][j][e] : d[0][j][e], total[j][e]);
            }
        }
    }
};

// Codes that are numbers.
template <class C> struct E4m3Fragments : Codes<E4m3Codes<C>> {
    typedef typename C::T T;
    struct Offset { // none
        DEVICE Offset() {}
        DEVICE Offset(const char *, int, int) {}
    };
    static DEVICE float scale(const char *scales, int group, int row)
    {
        return Codes<E4m3Codes<C>>::scale(scales, group, row) * E4m3<T>::UP;
    }
    static DEVICE void fragment(u32 (&a)[4], const uint4_ &block, int i, const Offset &, const Offset &)
    {
        const u32 words[4] = {block.x, block.y, block.z, block.w};
        e4m3_fragment<T>(a, words[2 * i], words[2 * i + 1]);
    }
};

// The same for linear_q_bulk.cuh: rows of x as they are. C: also X_AT, where they lie in shared memory.
template <class C> struct E4m3Bulk : E4m3Brick<C> {
    typedef E4m3Brick<C> B;
    static constexpr int X_STEP = 2;

    static DEVICE void keep(char *shared, int m, int v, const uint4_ &x, bool here)
    {
        if (here)
            shared_store16(shared_address(shared + C::X_AT) + m * C::X_ROW_BYTES + v * 16, x);
    }
    static DEVICE void multiply(float (&total)[B::TILES][4], u32 codes, const char *scales, const char *, u32 x, const float *, int left)
    {
        B::multiply(total, codes, scales, x, left);
    }
};
