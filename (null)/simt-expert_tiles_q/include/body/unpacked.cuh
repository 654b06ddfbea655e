// unpacked.cuh - quantised weights as rows of numbers: what unpack.cuh and unpack_fp8.cuh share.
//
// A warp takes the codes of 16 rows and SPAN k of a tile in the form m16k16 (compiler/ir/forms.def), 16 bytes a lane. The four
// lanes of a row exchange words until each has pieces of 8 neighbouring k of rows g and g + 8, so that two lanes write 32
// bytes side by side.
//
//   C: OUT, N, K, BITS, GROUP, SCALES (a PackedScales), THREADS
#pragma once
#include "device/pdl.cuh"
#include "device/vec.cuh"
#include "device/warp.cuh"

// Lane t of four gets word t of each of them, in their order.
DEVICE void four_lanes_transpose(u32 (&w)[4])
{
    const bool odd = lane_id() & 1, high = lane_id() & 2;
#pragma unroll
    for (int i = 0; i < 4; i += 2) {
        const u32 got = shuffle_xor(odd ? w[i] : w[i + 1], 1);
        (odd ? w[i] : w[i + 1]) = got;
    }
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const u32 got = shuffle_xor(high ? w[i] : w[i + 2], 2);
        (high ? w[i] : w[i + 2]) = got;
    }
}

template <class C> struct Unpacked {
    static constexpr bool FOUR = C::BITS == 4;
    static constexpr int SPAN = FOUR ? 64 : 32, PIECES = FOUR ? 2 : 1; // k of 512 bytes of codes; pieces of a lane
    static constexpr int SCALE = C::SCALES >= 2 ? 4 : 2, ZERO = C::SCALES == 1 ? 1 : C::SCALES == 3 ? 4 : 0, GROUPS = C::K / C::GROUP;
    static constexpr int SCALES_AT = C::K * 2 * C::BITS, ZEROS_AT = SCALES_AT + GROUPS * 16 * SCALE;
    static constexpr i64 TILE = round_up(ZEROS_AT + GROUPS * 16 * ZERO, 64);

    // This lane's words of a block; those beyond K are 0.
    static DEVICE void load(u32 (&w)[4], const unsigned char *tile, int block)
    {
        constexpr int EACH = FOUR ? 1 : 2; // words of 16 k
        const int words = least(SPAN, C::K - block) / 16 * EACH;
        const u32 *from = (const u32 *)(tile + block * 2 * C::BITS) + lane_id() * words;
        if (C::K % SPAN == 0 || words == 4) {
            const uint4_ v = *(const uint4_ *)from;
            w[0] = v.x, w[1] = v.y, w[2] = v.z, w[3] = v.w;
            return;
        }
#pragma unroll
        for (int i = 0; i < 4; i++)
            w[i] = i < words ? from[i] : 0;
    }
    // Pieces of 8 k: codes of k 2j, 2j + 1 in word j, those of row g lower. Returns the first k of the first one, from the
    // block's first on; that of the second one is 16 k further on.
    static DEVICE int exchange(u32 (&piece)[PIECES][4], u32 (&w)[4])
    {
        const int t = lane_id() & 3;
        four_lanes_transpose(w);
        if constexpr (!FOUR) {
#pragma unroll
            for (int j = 0; j < 4; j++)
                piece[0][j] = w[j];
            return 8 * t;
        } else { // a lane has 16 k; even lanes get the first 8 of their neighbour, odd ones the last
            const bool odd = t & 1;
            u32 mine[4], sent[2];
#pragma unroll
            for (int j = 0; j < 4; j++)
                mine[j] = (odd ? w[j] >> 8 : w[j]) & 0x00ff00ff;
#pragma unroll
            for (int j = 0; j < 2; j++) {
                const u32 first = odd ? w[2 * j] : w[2 * j] >> 8, second = odd ? w[2 * j + 1] : w[2 * j + 1] >> 8;
                sent[j] = shuffle_xor((first & 0x00ff00ff) | (second & 0x00ff00ff) << 8, 1);
            }
#pragma unroll
            for (int j = 0; j < 4; j++) {
                const u32 got = (j % 2 ? sent[j / 2] >> 8 : sent[j / 2]) & 0x00ff00ff;
                piece[0][j] = odd ? got : mine[j];
                piece[1][j] = odd ? mine[j] : got;
            }
            return 16 * (t & 2) + 8 * odd;
        }
    }
};

// value(code, scale, offset): the number. Block (tile, j) has k 1024 j and the 1023 behind.
template <class C, class F> DEVICE void unpack_tile(const unsigned char *w, void *y, F value)
{
    typedef typename C::OUT O;
    typedef Unpacked<C> U;
    constexpr int WARPS = C::THREADS / 32, EACH = ceil_div(1024 / U::SPAN, WARPS);
    const int g = lane_id() >> 2, k0 = blockIdx.y * 1024;
    const unsigned char *tile = w + (i64)blockIdx.x * U::TILE;
    u32 words[EACH][4];
    wait_for_previous();
#pragma unroll
    for (int i = 0; i < EACH; i++)
        if (k0 + (warp_id() + i * WARPS) * U::SPAN < C::K)
            U::load(words[i], tile, k0 + (warp_id() + i * WARPS) * U::SPAN);
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        const int block = k0 + (warp_id() + i * WARPS) * U::SPAN;
        u32 piece[U::PIECES][4];
        if (block >= C::K)
            break;
        const int first = block + U::exchange(piece, words[i]);
#pragma unroll
        for (int p = 0; p < U::PIECES; p++)
#pragma unroll
            for (int lower = 0; lower < 2; lower++) {
                const int k = first + 16 * p, row = g + 8 * lower, n = blockIdx.x * 16 + row, at = k / C::GROUP * 16 + row;
                Vec<float, 8> v;
                if (k >= C::K || n >= C::N)
                    continue;
                const unsigned char *scales = tile + U::SCALES_AT + at * U::SCALE, *zeros = tile + U::ZEROS_AT + at * U::ZERO;
                const float scale = U::SCALE == 4 ? *(const float *)scales : to_float(*(const half *)scales);
                const float offset = U::ZERO == 4 ? *(const float *)zeros : U::ZERO ? (float)*zeros : U::FOUR ? 8.0f : 128.0f;
#pragma unroll
                for (int j = 0; j < 4; j++) {
                    const u32 pair = U::FOUR ? piece[p][j] >> 4 * lower & 0x000f000f : piece[p][j] >> 8 * lower & 0x00ff00ff;
                    v[2 * j] = value(pair & 0xffff, scale, offset);
                    v[2 * j + 1] = value(pair >> 16, scale, offset);
                }
                store((O *)y + (i64)n * C::K + k, from_floats<O>(v));
            }
    }
}
