// tile.cuh - rows of 16-byte pieces in shared memory without bank conflicts: eight rows of one column lie in different
// banks, and so do eight columns of one row.
//
// Rows of whole 128 bytes are swizzled: piece c of row r is at c ^ (r % 8), within its 128 bytes. Other rows are padded
// to an odd number of pieces. Tiles start at multiples of 128 bytes.
#pragma once
#include "device/types.cuh"

template <int BYTES> struct TileRows { // BYTES of a row, a multiple of 16
    static constexpr bool SWIZZLE = BYTES % 128 == 0;
    static constexpr int PITCH = SWIZZLE ? BYTES : round_up(BYTES, 32) + 16;
    static DEVICE u32 piece(int row, int c) { return row * PITCH + (SWIZZLE ? c ^ (row & 7) : c) * 16; }
    static DEVICE u32 byte(int row, int b) { return piece(row, b / 16) + b % 16; }
    // From the address of piece 0 or 1 of a row to that of the piece 2 * i further on.
    static DEVICE u32 pair(u32 address, int i)
    {
        return SWIZZLE ? (address ^ (2 * i & 7) * 16) + (2 * i & ~7) * 16 : address + i * 32;
    }
};
