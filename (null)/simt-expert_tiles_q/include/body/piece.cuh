// piece.cuh - how attention of many queries is cut into pieces of equal size, the work of one block at a time.
//
// The query heads of a kv head and the row's tokens are the rows of one matrix, so a short row fills a piece and keys
// are read once:
//
//   matrix row i of a (sequence, kv head)  =  token i / GROUP, head i % GROUP of the group
//
// Pieces are counted from the last row's last one, which sees most keys, so that long work starts first.
//
// Tiles of keys lie behind the piece's first position. ALIGN: a multiple of 8 of which this one is a multiple. With the number
// of a tile's keys, tiles lie where they lie for any other piece, so that a row's sums do not depend on the chunk it came in.
#pragma once
#include "device/io.h"
#include "device/warp.cuh"

// ROWS matrix rows of one (row of the step, kv head).
struct Piece {
    int row;        // -1: none
    int i0;         // first matrix row
    int q_start, q_len, offset; // offset: position of the chunk's first token
    int kv_len, slot;
    int begin, end; // positions that some row of the piece sees; begin is rounded down to a multiple of ALIGN
    int low, high;  // positions of its first and last token
};

// Piece number `want` of the rows [from, rows), counted from the last. One warp.
template <class K> DEVICE Piece find_piece(const FtxStep *step, const FtxRow *rows, int from, int want)
{
    constexpr int GROUP = K::HEADS / K::KV_HEADS;
    Piece p;
    p.row = -1;
    for (int last = step->rows - 1; last >= from; last -= 32) {
        const int r = last - lane_id();
        const int tiles = r >= from ? ceil_div(rows[r].q_len * GROUP, K::ROWS) : 0;
        const int upto = warp_prefix_sum(tiles);
        const u32 found = warp_ballot(upto > want);
        if (found) {
            const int lane = __ffs(found) - 1;
            p.row = last - lane;
            const int back = want - (shuffle(upto, lane) - shuffle(tiles, lane)); // tiles from the row's last
            const FtxRow row = rows[p.row];
            p.i0 = (shuffle(tiles, lane) - 1 - back) * K::ROWS;
            p.q_start = row.q_start;
            p.q_len = row.q_len;
            p.kv_len = row.kv_len;
            p.slot = row.slot;
            p.offset = row.kv_len - row.q_len;
            p.low = K::CAUSAL ? p.offset + p.i0 / GROUP : p.kv_len - 1;
            p.high = K::CAUSAL ? p.offset + least(p.q_len - 1, (p.i0 + K::ROWS - 1) / GROUP) : p.kv_len - 1;
            p.end = p.high + 1;
            p.begin = K::WINDOW > 0 ? most(0, p.low - K::WINDOW + 1) & ~(K::ALIGN - 1) : 0;
            return p;
        }
        want -= shuffle(upto, 31);
    }
    return p;
}
