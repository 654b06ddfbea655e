// attend_brief.cuh - attention of rows that bring one token each, over a cache of few positions.
//
//   q [T, H, E]     queries, rotated; token t of a decode row is row t
//   y [T, H*E]      softmax(scale * q k^T) v over the row's positions
//
// WARPS warps take one kv head of a row, 4 / WARPS of these a block; the heads that share it are the columns
// of a product. Of its tiles of 16 positions, every WARPS-th one, a warp holds HELD in shared memory at
// once: all, where rows are few and latency counts; less where more warps should fit. The first are on
// their way before the kernel in front has ended, but for the step's own token, a row's last position.
#pragma once
#include "device/block.cuh"
#include "device/io.h"
#include "device/pdl.cuh"
#include "part/brief.cuh"

struct AttendBriefArgs {
    const void *q;
    const FtxStep *step;
    const FtxRow *rows;
    const int *pages;
    const void *k, *v;
    const int *owner; // [slots][CONTEXT]
    void *y;
};

template <class K> struct BriefShape {
    static constexpr int GROUP = K::HEADS / K::KV_HEADS, UNITS = 4 / K::WARPS;
    static_assert(GROUP <= 8, "a warp has eight columns");
};

template <class K> // K: T KV HEADS KV_HEADS E BLOCK CONTEXT SCALE SOFTCAP BEAMS WARPS HELD
DEVICE void attend_brief(const AttendBriefArgs &a)
{
    using C = Columns<K>;
    using D = BriefShape<K>;
    using T = typename K::T;
    SHARED(float, parts, 4 * D::GROUP * C::PART);
    char *tiles = shared_memory() + warp_id() * K::HELD * C::BYTES;
    const u32 ring = shared_address(tiles);
    const int unit = blockIdx.x * D::UNITS + warp_id() / K::WARPS, first = warp_id() % K::WARPS;
    const int row = unit / K::KV_HEADS, head = unit % K::KV_HEADS;
    launch_dependents();

    // $step, $rows, $pages and $owner are written between programs only.
    const bool live = row < a.step->decode_rows;
    const BriefCache cache = {a.k, a.v, a.pages, a.owner};
    BriefRow r = {};
    if (live)
        r = brief_row<K>(a.rows, row);
    const int last = (r.length - 1) / C::TILE; // the tile of the step's own token
#pragma unroll 1
    for (int i = 0; i < K::HELD; i++) {
        const int tile = first + i * K::WARPS;
        C::pad(tiles + i * C::BYTES);
        if (tile * C::TILE < r.length)
            brief_issue<K>(cache, r, head, tile, false, ring + i * C::BYTES);
    }
    wait_for_previous();
    const int g = lane_id() / 4;
    C state;
    state.fetch(live && g < D::GROUP ? (const T *)a.q + ((i64)row * K::HEADS + head * D::GROUP + g) * K::E : nullptr);
    state.start();
#pragma unroll 1
    for (int from = first; from * C::TILE < r.length; from += K::HELD * K::WARPS) {
#pragma unroll 1
        for (int i = 0; i < K::HELD; i++) {
            const int tile = from + i * K::WARPS;
            if (tile > last)
                break;
            if (from > first)
                brief_issue<K>(cache, r, head, tile, false, ring + i * C::BYTES);
            if (tile == last)
                brief_issue<K>(cache, r, head, tile, true, ring + i * C::BYTES);
        }
        copy_commit();
        copy_wait<0>();
        warp_sync();
#pragma unroll 1
        for (int i = 0; i < K::HELD; i++) {
            const int tile = from + i * K::WARPS;
            if (tile > last)
                break;
            state.tile(ring + i * C::BYTES, r.length - tile * C::TILE);
        }
        warp_sync();
    }
    state.put(parts + warp_id() * D::GROUP * C::PART, 0, D::GROUP);
    if (K::WARPS > 1)
        block_sync();
    else
        warp_sync();
    if (!live)
        return;
    const int used = least(K::WARPS, last + 1); // warps that had a position
    const float *part = parts + warp_id() / K::WARPS * K::WARPS * D::GROUP * C::PART;
    for (int i = (first * 32 + lane_id()) * 2; i < D::GROUP * K::E; i += K::WARPS * 64) {
        const Vec<float, 2> y = add_parts<K>(part + i / K::E * C::PART, used, D::GROUP * C::PART, i % K::E);
        store((T *)a.y + ((i64)row * K::HEADS + head * D::GROUP) * K::E + i, from_floats<T>(y));
    }
}
