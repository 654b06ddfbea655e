// coded.cuh - rows of keys and values as codes of 8 bits with a scale each, and where they lie in the paged cache.
//
//   page of a layer's keys, or of its values   [KV_HEADS][BLOCK][E] codes, then [KV_HEADS][BLOCK] scales in fp16
//
//   scale = M / most, M the row's largest magnitude, at most 65,024; most: 127 of int8, 448 of fp8 (e4m3)
//   code  = x * (1 / scale), to nearest, ties to even, at most `most`; NaN becomes 0
//
// The same in C: kernels/cpu/cached.h.
#pragma once
#include "device/bytes.cuh"
#include "device/io.h"
#include "device/vec.cuh"
#include "device/warp.cuh"
#include "body/norm.cuh"
#include "body/paged.cuh"

struct Code { // an element of the cache
    u8 bits;
};

// Bytes I and J of a word of codes as a pair of fp16, the first in the low half: exactly, those of e4m3 times 2^-8.
template <bool FP8, int I, int J> DEVICE u32 code_pair(u32 word)
{
    if (FP8) { // to the upper bytes; exponent and mantissa then one bit down
        const u32 high = permute(word, 0, 0x0404 | I << 4 | J << 12);
        return (high & 0x80008000u) | (high >> 1 & 0x3f803f80u);
    }
    // 0x6400 + u is the fp16 number 1024 + u; u: code + 128
    return subtract2(permute(word ^ 0x80808080u, 0x64646464u, 0x4040 | I | J << 8), 0x64806480u);
}

// x, at most 127 in magnitude, to the nearest integer, ties to even.
DEVICE u32 code_int8(float x) { return __float2int_rn(x) & 0xff; }
// x, at most 448 in magnitude, to the nearest number of e4m3, ties to even.
DEVICE u32 code_e4m3(float x)
{
    const u32 u = __float_as_uint(x) & 0x7fffffff, sign = __float_as_uint(x) >> 24 & 0x80;
    if (u < 0x3c800000) // below 2^-6: the sum with 2^14 leaves units of 2^-9 in the low bits
        return sign | (__float_as_uint(__fadd_rn(__uint_as_float(u), 16384.0f)) - 0x46800000);
    return sign | (((u + 0x7ffff + (u >> 20 & 1)) >> 20) - 960);
}

// Keys and values of one (sequence, kv head), as PagedHead.
template <class K> struct CodedHead {
    static constexpr int ROWS = K::KV_HEADS * K::BLOCK, PAGE = ROWS * (K::E + 2); // of a page; its bytes
    const int *table;
    const Code *k, *v; // the head's rows of page 0
    int head;

    DEVICE CodedHead() {}
    DEVICE CodedHead(const int *pages, const void *keys, const void *values, int slot, int h)
        : table(pages + (i64)slot * ceil_div(K::CONTEXT, K::BLOCK)), k((const Code *)keys + (i64)h * K::BLOCK * K::E),
          v((const Code *)values + (i64)h * K::BLOCK * K::E), head(h)
    {
    }
    DEVICE int page(int position) const { return table[position / K::BLOCK]; }
    // From k (or v) to the row of a position, and to its scale; in bytes.
    DEVICE i64 at(int page, int position) const { return (i64)page * PAGE + position % K::BLOCK * K::E; }
    DEVICE i64 scale_at(int page, int position) const
    {
        return (i64)page * PAGE + (ROWS - head * K::BLOCK) * K::E + (head * K::BLOCK + position % K::BLOCK) * 2;
    }
};

// A row that the warp holds, VEC elements of each lane at a time: lane l has [(32 i + l) * VEC, ...).
template <int E> struct CodedRow {
    static constexpr int VEC = 4, N = ceil_div(E, 32 * VEC);
    Vec<float, VEC> x[N];

    static DEVICE int column(int i) { return (i * 32 + lane_id()) * VEC; }

    template <class T> DEVICE void read(const T *from)
    {
#pragma unroll
        for (int i = 0; i < N; i++)
            x[i] = column(i) < E ? to_floats(load<VEC>(from + column(i))) : zeros<float, VEC>();
    }
    DEVICE void norm(const float *gain, float eps)
    {
        float s = 0.0f;
#pragma unroll
        for (int i = 0; i < N; i++)
            s = add_squares(s, x[i], 0.0f);
        const float scale = rms_scale<E>(stat_tree(s), eps);
#pragma unroll
        for (int i = 0; i < N; i++)
#pragma unroll
            for (int j = 0; j < VEC; j++)
                x[i][j] = column(i) < E ? x[i][j] * scale * gain[column(i) + j] : 0.0f;
    }
    // {cos, sin} of the row's pairs of neighbouring columns; cs: those of ROT/2 pairs.
    template <int ROT> static DEVICE void read_turn(const float *cs, Vec<float, VEC> (&turn)[N])
    {
#pragma unroll
        for (int i = 0; i < N; i++)
#pragma unroll
            for (int j = 0; j < VEC; j += 2) {
                const bool turned = column(i) + j < ROT;
                turn[i][j] = turned ? cs[column(i) + j] : 1.0f;
                turn[i][j + 1] = turned ? cs[column(i) + j + 1] : 0.0f;
            }
    }
    DEVICE void rotate(const Vec<float, VEC> (&turn)[N])
    {
#pragma unroll
        for (int i = 0; i < N; i++)
#pragma unroll
            for (int j = 0; j < VEC; j += 2) {
                const float c = turn[i][j], s = turn[i][j + 1], a = x[i][j], b = x[i][j + 1];
                x[i][j] = fmaf(a, c, -__fmul_rn(b, s));
                x[i][j + 1] = fmaf(a, s, __fmul_rn(b, c));
            }
    }
    template <class T> DEVICE void write(T *to) const
    {
#pragma unroll
        for (int i = 0; i < N; i++)
            if (column(i) < E)
                store(to + column(i), from_floats<T>(x[i]));
    }
    // The codes, VEC of them in a word, and the scale.
    template <bool FP8> DEVICE half encode(u32 (&words)[N]) const
    {
        constexpr float MOST = FP8 ? 448.0f : 127.0f;
        float largest = 0.0f;
#pragma unroll
        for (int i = 0; i < N; i++)
#pragma unroll
            for (int j = 0; j < VEC; j++)
                largest = fmaxf(largest, fabsf(x[i][j]));
        const half scale = from_float<half>(__fdiv_rn(fminf(warp_max(largest), 65024.0f), MOST));
        const float s = to_float(scale), by = s > 0.0f ? __fdiv_rn(1.0f, s) : 0.0f;
#pragma unroll
        for (int i = 0; i < N; i++) {
            words[i] = 0;
#pragma unroll
            for (int j = 0; j < VEC; j++) {
                const float a = x[i][j] == x[i][j] ? fmaxf(fminf(x[i][j] * by, MOST), -MOST) : 0.0f;
                words[i] |= (FP8 ? code_e4m3(a) : code_int8(a)) << 8 * j;
            }
        }
        return scale;
    }
};

// Writes a row to the cache.
template <bool FP8, int E> DEVICE void put_coded(const CodedRow<E> &row, Code *to, half *scale)
{
    u32 words[CodedRow<E>::N];
    const half s = row.template encode<FP8>(words);
#pragma unroll
    for (int i = 0; i < CodedRow<E>::N; i++)
        if (row.column(i) < E)
            *(u32 *)(to + row.column(i)) = words[i];
    if (lane_id() == 0)
        *scale = s;
}
