// tile.cuh - rows of 16-byte pieces in shared memory without bank conflicts: eight rows of one column lie in different
// banks, and so do eight columns of one row.
//
// BYTES is the distance of two rows. Rows of whole 128 bytes are swizzled: piece c of row r is at c ^ (r % 8),
// within its 128 bytes. Other rows are padded to an odd number of pieces. Tiles start at multiples of 128 bytes.
#pragma once
#include "device/types.cuh"

template <int BYTES> struct TileRows {
    static constexpr int PITCH = BYTES;
    static constexpr bool SWIZZLE = PITCH % 128 == 0;
    static_assert(SWIZZLE || PITCH % 32 == 16, "an odd number of pieces");
    static DEVICE u32 piece(int row, int c) { return row * PITCH + (SWIZZLE ? c ^ (row & 7) : c) * 16; }
    static DEVICE u32 byte(int row, int b) { return piece(row, b / 16) + b % 16; }
    // From the address of piece 0 or 1 of a row to that of the piece 2 * i further on.
    static DEVICE u32 pair(u32 address, int i)
    {
        return SWIZZLE ? (address ^ (2 * i & 7) * 16) + (2 * i & ~7) * 16 : address + i * 32;
    }
};
