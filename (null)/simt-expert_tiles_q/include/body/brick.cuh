// brick.cuh - products of a brick of quantised weights: 16 rows and BRICK_K k of codes as the first operand of mma.m16n8k16, 8
// to 64 rows of x as the second. linear_q.cuh explains how codes become numbers.
//
//   slot   a brick in shared memory: codes in the form m16k16 (compiler/ir/forms.def), then of its groups the scales,
//          [GROUPS][16], and the zeros or minima (runtime/base/packed.h)
//   x      [BLOCK_M] rows of X_ROW_BYTES in shared memory; x_sums: of each group, [groups][BLOCK_M]
//
//   C: T, M, K, BITS, GROUP, SCALES (a PackedScales), BRICK_K, BLOCK_M (rows of x), X_ROW_BYTES
#pragma once
#include "device/async.cuh"
#include "device/mma.cuh"
#include "device/pairs.cuh"
#include "device/shared.cuh"
#include "device/warp.cuh"

template <class T> struct Magic; // the bits of BASE twice: BASE + n has n in its lowest bits
template <> struct Magic<bf16> { static constexpr u32 BITS = 0x43004300u; static constexpr float BASE = 128.0f; };
template <> struct Magic<half> { static constexpr u32 BITS = 0x64006400u; static constexpr float BASE = 1024.0f; };

template <class C> struct Brick {
    typedef typename C::T T;
    static constexpr int BLOCK_K = C::BITS == 4 ? 64 : 32;                       // k of 512 bytes of codes
    static constexpr int GROUPS = C::BRICK_K / C::GROUP;
    static constexpr int SCALE = C::SCALES >= 2 ? 4 : 2, ZERO = C::SCALES == 1 ? 1 : C::SCALES == 3 ? 4 : 0; // bytes
    static constexpr int BRICK = C::BRICK_K * 2 * C::BITS, SLOT = BRICK + GROUPS * 16 * (SCALE + ZERO); // bytes of codes, of all
    static constexpr int SCALES_AT = C::K * 2 * C::BITS, ZEROS_AT = SCALES_AT + C::K / C::GROUP * 16 * SCALE;
    static constexpr int TILE = round_up(ZEROS_AT + C::K / C::GROUP * 16 * ZERO, 64); // bytes of a tile
    static constexpr int COLUMN_TILES = ceil_div(C::BLOCK_M, 8);
    // Sums of a tile: of even and odd 16 k where few columns make few independent sums; of high and low nibbles.
    static constexpr int PARTS = C::BITS == 8 || C::M <= 8 ? 2 : 1;

    // Requests a brick of the tile at `tile`, by one warp.
    static DEVICE void copy(const char *tile, int brick, u32 slot)
    {
        const int lane = lane_id() * 16, k = C::K % C::BRICK_K ? least(C::BRICK_K, C::K - brick * C::BRICK_K) : C::BRICK_K;
        const char *codes = tile + brick * BRICK + lane, *scales = tile + SCALES_AT + brick * (GROUPS * 16 * SCALE) + lane;
#pragma unroll
        for (int i = 0; i < C::BRICK_K / BLOCK_K; i++)
            if (C::K % C::BRICK_K == 0 || i * BLOCK_K < k)
                copy16(slot + i * 512 + lane, codes + i * 512);
#pragma unroll
        for (int i = 0; i < GROUPS * 16 * SCALE; i += 512)
            if (i + lane < k / C::GROUP * 16 * SCALE)
                copy16(slot + BRICK + i + lane, scales + i);
#pragma unroll
        for (int i = 0; i < GROUPS * 16 * ZERO; i += 512)
            if (i + lane < k / C::GROUP * 16 * ZERO)
                copy16(slot + BRICK + GROUPS * 16 * SCALE + i + lane, tile + ZEROS_AT + brick * (GROUPS * 16 * ZERO) + i + lane);
    }

    // The scale of a row's group, and what the code 0 stands for: its zero or, negative, its minimum.
    static DEVICE float scale(const char *slot, int group, int row)
    {
        const char *at = slot + BRICK + (group * 16 + row) * SCALE;
        return SCALE == 4 ? *(const float *)at : to_float(*(const half *)at);
    }
    static DEVICE float zero(const char *slot, int group, int row)
    {
        const char *at = slot + BRICK + GROUPS * 16 * SCALE + (group * 16 + row) * ZERO;
        return C::SCALES == 1 ? (float)*(const u8 *)at : C::SCALES == 3 ? 0.0f : C::BITS == 4 ? 8.0f : 128.0f;
    }
    static DEVICE float minimum(const char *slot, int group, int row)
    {
        return *(const float *)(slot + BRICK + GROUPS * 16 * SCALE + (group * 16 + row) * ZERO);
    }

    // Four registers of a fragment from the nibbles of a word: register i has bits 4 i and 4 i + 16 on.
    static DEVICE void expand(u32 (&a)[4], u32 w)
    {
#pragma unroll
        for (int i = 0; i < 4; i++)
            a[i] = and_or(w >> 4 * i, 0x000f000fu, Magic<T>::BITS);
    }

    // Starts the sums of a group.
    static DEVICE void begin(float (&d)[PARTS][COLUMN_TILES][4], float (&scales)[2], const char *slot, const float *x_sums, int group)
    {
        const int g = lane_id() >> 2, t = lane_id() & 3;
        const float low = zero(slot, group, g), high = zero(slot, group, g + 8);
        scales[0] = scale(slot, group, g);
        scales[1] = scale(slot, group, g + 8);
#pragma unroll
        for (int j = 0; j < COLUMN_TILES; j++)
#pragma unroll
            for (int e = 0; e < 2; e++) {
                const float x = -x_sums[group * C::BLOCK_M + ((j * 8 + 2 * t + e) & (C::BLOCK_M - 1))];
                d[0][j][e] = x * (Magic<T>::BASE + (C::BITS == 4 ? low : low / 16.0f));
                d[0][j][2 + e] = x * (Magic<T>::BASE + (C::BITS == 4 ? high : high / 16.0f));
                if (PARTS == 2)
                    d[PARTS - 1][j][e] = d[PARTS - 1][j][2 + e] = C::BITS == 4 ? 0.0f : x * Magic<T>::BASE;
            }
    }
    // Adds the finished sums of a group to total.
    static DEVICE void end(float (&total)[COLUMN_TILES][4], const float (&d)[PARTS][COLUMN_TILES][4], const float (&scales)[2],
                           const char *slot, const float *x_sums, int group)
    {
        const int g = lane_id() >> 2, t = lane_id() & 3;
#pragma unroll
        for (int j = 0; j < COLUMN_TILES; j++)
#pragma unroll
            for (int e = 0; e < 4; e++) {
                const float last = d[PARTS - 1][j][e];
                const float sum = C::BITS == 8 ? fmaf(16.0f, d[0][j][e], last) : PARTS == 2 ? d[0][j][e] + last : last;
                total[j][e] = fmaf(scales[e / 2], sum, total[j][e]);
                if (C::SCALES == 3)
                    total[j][e] = fmaf(-minimum(slot, group, g + e / 2 * 8), x_sums[group * C::BLOCK_M + ((j * 8 + 2 * t + e % 2) & (C::BLOCK_M - 1))], total[j][e]);
            }
    }

    // total += brick * x. x, x_sums: from the brick's first k on; left: k of the rows from there on.
    static DEVICE void multiply(float (&total)[COLUMN_TILES][4], const char *slot, u32 x, const float *x_sums, int left)
    {
        constexpr int ONCE = COLUMN_TILES <= 2 ? 128 : 32; // k of x that are loaded at once
        const int lane = lane_id();
        const u32 codes = shared_address(slot) + lane * 16, rows = x + (lane & 7 & (C::BLOCK_M - 1)) * C::X_ROW_BYTES + (lane >> 3) * 16;
        float d[PARTS][COLUMN_TILES][4], scales[2];
        uint4_ w[128 / BLOCK_K];
        u32 b[ONCE / 32][COLUMN_TILES][4];
#pragma unroll
        for (int k = 0; k < C::BRICK_K; k += 16) {
            if (C::K % C::BRICK_K && k >= left)
                break;
            if (k % 128 == 0)
#pragma unroll
                for (int i = 0; i < 128 / BLOCK_K; i++)
                    if (C::K % 128 == 0 || k + i * BLOCK_K < left)
                        w[i] = shared_load16(codes + (k / BLOCK_K + i) * 512);
            if (k % C::GROUP == 0)
                begin(d, scales, slot, x_sums, k / C::GROUP);
            if (k % ONCE == 0)
#pragma unroll
                for (int i = 0; i < ONCE / 32; i++)
#pragma unroll
                    for (int j = 0; j < COLUMN_TILES; j++)
                        if (C::K % 128 == 0 || ONCE == 32 || k + i * 32 < left)
                            ldmatrix4(b[i][j], rows + j * 8 * C::X_ROW_BYTES + (k + i * 32) * 2);
            const uint4_ four = w[k % 128 / BLOCK_K];
            const u32 words[4] = {four.x, four.y, four.z, four.w};
            const int i = k % ONCE / 32, at = k % 32 / 8;
            if constexpr (C::BITS == 4) {
                u32 f[4];
                expand(f, words[k % 64 / 16]);
#pragma unroll
                for (int j = 0; j < COLUMN_TILES; j++)
                    mma<T>(d[k / 16 % PARTS][j], f[0], f[1], f[2], f[3], b[i][j][at], b[i][j][at + 1]);
            } else { // low and high nibbles of rows g and g + 8; then those 8 k further on
                u32 f[4], h[4];
                expand(f, words[at]);
                expand(h, words[at + 1]);
#pragma unroll
                for (int j = 0; j < COLUMN_TILES; j++)
                    mma<T>(d[0][j], f[1], f[3], h[1], h[3], b[i][j][at], b[i][j][at + 1]);
#pragma unroll
                for (int j = 0; j < COLUMN_TILES; j++)
                    mma<T>(d[1][j], f[0], f[2], h[0], h[2], b[i][j][at], b[i][j][at + 1]);
            }
            if ((k + 16) % C::GROUP == 0)
                end(total, d, scales, slot, x_sums, k / C::GROUP);
        }
    }

    // Writes the sums of a tile to [BLOCK_M][pitch], 16 of each row of x.
    static DEVICE void put(const float (&total)[COLUMN_TILES][4], float *to, int pitch)
    {
        const int g = lane_id() >> 2, t = lane_id() & 3;
#pragma unroll
        for (int j = 0; j < COLUMN_TILES; j++)
#pragma unroll
            for (int e = 0; e < 2; e++) {
                const int m = j * 8 + 2 * t + e;
                if (C::BLOCK_M >= 8 || m < C::BLOCK_M) {
                    to[m * pitch + g] = total[j][e];
                    to[m * pitch + g + 8] = total[j][2 + e];
                }
            }
    }
};

// Two neighbouring sums of 8 (or 16) warps, STRIDE floats apart: the first four in order, the others, then the two halves; of
// 16 both eights.
template <int STRIDE, int WARPS = 8> DEVICE Vec<float, 2> brick_add_warps(const float *from)
{
    constexpr int PARTS = WARPS / 4;
    Vec<float, 2> part[PARTS];
#pragma unroll
    for (int h = 0; h < PARTS; h++) {
        part[h] = load<2>(from + h * 4 * STRIDE);
#pragma unroll
        for (int w = 1; w < 4; w++) {
            const Vec<float, 2> v = load<2>(from + (h * 4 + w) * STRIDE);
            part[h][0] += v[0];
            part[h][1] += v[1];
        }
    }
#pragma unroll
    for (int h = 0; h < PARTS; h += 2) {
        part[h][0] += part[h + 1][0];
        part[h][1] += part[h + 1][1];
    }
    if (PARTS == 4) {
        part[0][0] += part[PARTS - 2][0];
        part[0][1] += part[PARTS - 2][1];
    }
    return part[0];
}
