// codes.cuh - how quantised weights lie in memory, and how their codes become numbers of 16 bits.
//
//   tile   16 rows of w in the form m16k16 (compiler/ir/forms.def), then their scales [K / GROUP][16] and zeros or minima
//          (runtime/base/packed.h)
//
// The bits of BASE (bf16: 128, half: 1024) with a nibble in the lowest bits are BASE + nibble, so logic instructions alone
// make numbers of codes. Subtracting BASE + zero gives code - zero, exactly; a code of 8 bits is 16 * high + low nibble.
//
//   C: T, K, BITS, GROUP, SCALES (a PackedScales)
#pragma once
#include "device/pairs.cuh"
#include "body/brick.cuh"

template <class C> struct Codes {
    typedef Magic<typename C::T> B;
    static constexpr u32 ONE = B::BASE == 128.0f ? 0x3f803f80u : 0x3c003c00u, SIXTEEN = B::BASE == 128.0f ? 0x41804180u : 0x4c004c00u; // pairs
    static constexpr int BLOCK_K = C::BITS == 4 ? 64 : 32;                       // k of 512 bytes of codes
    static constexpr int SCALE = C::SCALES >= 2 ? 4 : 2, ZERO = C::SCALES == 1 ? 1 : C::SCALES == 3 ? 4 : 0; // bytes
    static constexpr int SCALES_AT = C::K * 2 * C::BITS, ZEROS_AT = SCALES_AT + C::K / C::GROUP * 16 * SCALE;
    static constexpr int TILE = round_up(ZEROS_AT + C::K / C::GROUP * 16 * ZERO, 64); // bytes of a tile

    // The scale of a row's group.
    static DEVICE float scale(const char *scales, int group, int row)
    {
        const char *at = scales + (group * 16 + row) * SCALE;
        return SCALE == 4 ? *(const float *)at : to_float(*(const half *)at);
    }
    // What is subtracted from the nibbles of a row's group, as pairs: BASE + zero.
    struct Offset {
        u32 high, low; // int4: low alone; int8: of the high and of the low nibbles
        DEVICE Offset() {}
        DEVICE Offset(const char *zeros, int group, int row)
        {
            const u32 zero = ZERO == 1 ? *(const u8 *)(zeros + group * 16 + row) : C::BITS == 4 ? 8 : 128;
            const u32 both = 0x10001, minus = B::BITS ^ 0x80008000u;
            high = minus | (zero >> 4) * both;
            low = minus | (C::BITS == 4 ? zero : zero & 15) * both;
        }
    };
    // The four registers of the first operand of a product of 16 k, for the i-th 16 k of a block: code - zero. upper, lower:
    // of the upper and the lower 8 rows.
    static DEVICE void fragment(u32 (&a)[4], const uint4_ &block, int i, const Offset &upper, const Offset &lower)
    {
        typedef typename C::T T;
        const u32 words[4] = {block.x, block.y, block.z, block.w};
        const auto nibbles = [](u32 w, int j) { return and_or(w >> 4 * j, 0x000f000fu, B::BITS); };
        if constexpr (C::BITS == 4) {
#pragma unroll
            for (int j = 0; j < 4; j++)
                a[j] = fma2<T>(nibbles(words[i], j), ONE, j % 2 ? lower.low : upper.low);
        } else {
#pragma unroll
            for (int j = 0; j < 4; j++) { // a word has low and high nibbles of an upper row, then of a lower one
                const u32 w = words[2 * i + j / 2];
                const Offset &o = j % 2 ? lower : upper;
                const u32 low = fma2<T>(nibbles(w, j % 2 * 2), ONE, o.low), high = fma2<T>(nibbles(w, j % 2 * 2 + 1), ONE, o.high);
                a[j] = fma2<T>(high, SIXTEEN, low);
            }
        }
    }
};
