// attend_brief.cuh - attention of rows that bring one token each, over a paged cache of at most 256 positions.
//
//   y[t,h] = sum_j softmax_j(cap(SCALE * q[t,h] . k[j])) v[j]     j: all positions of the row
//
//   q [T, H, E]     queries, rotated; token t of a decode row is row t
//   k, v            the layer's pages [pages][G][BLOCK][E]; they hold this step's token already
//   y [T, H*E]
//
// A unit of work is (row, kv head); WARPS warps do one, a block of 4 warps does 4 / WARPS. The query heads of the kv
// head are the columns of body/columns.cuh. Warp w of a unit takes the tiles of 16 positions w, w + WARPS, ... and has
// a ring of STAGES tiles in shared memory: all its tiles where rows are few and latency counts, fewer where more
// blocks should fit on an SM. The first tiles are copied before wait_for_previous(), all but the step's own token (the
// row's last position), which the previous kernel writes. At the end a unit's warps are added in order.
#pragma once
#include "device/block.cuh"
#include "device/io.h"
#include "device/pdl.cuh"
#include "body/brief.cuh"

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

// A warp's tiles, one a turn: turn i is tile first + i * WARPS, in slot i % STAGES of the ring.
template <class K> struct BriefTurns {
    using C = Columns<K>;
    BriefCache cache;
    BriefRow row;
    int head, first;
    u32 ring;
    int found; // rows of the cache for two turns, 16 lanes each: a look-up is two dependent loads

    DEVICE int base(int turn) const { return (first + turn * K::WARPS) * C::TILE; }
    DEVICE u32 slot(int turn) const { return ring + turn % K::STAGES * K::TILE_BYTES; }
    // Starts the copies of a turn. Turns come in order.
    DEVICE void issue(int turn, bool without_own)
    {
        if (turn % 2 == 0)
            found = brief_find<K>(cache, row, head, base(turn + lane_id() / C::TILE) + lane_id() % C::TILE);
        brief_copy<K>(cache, found, turn % 2 * C::TILE, without_own ? row.length - 1 - base(turn) : -1, slot(turn));
    }
};

template <class K> // K: T KV HEADS KV_HEADS E BLOCK CONTEXT SCALE SOFTCAP BEAMS WARPS STAGES
DEVICE void attend_brief(const AttendBriefArgs &a)
{
    using C = Columns<K>;
    using D = BriefShape<K>;
    using T = typename K::T;
    SHARED(float, partials, K::PARTIALS);
    char *tiles = shared_memory() + warp_id() * K::STAGES * K::TILE_BYTES;
    const int unit = blockIdx.x * D::UNITS + warp_id() / K::WARPS, first = warp_id() % K::WARPS;
    const int row = unit / K::KV_HEADS, head = unit % K::KV_HEADS;
    launch_dependents();

    // $step, $rows, $pages and $owner are written between programs only.
    const bool live = row < a.step->decode_rows;
    BriefRow r = {};
    if (live)
        r = brief_row<K>(a.rows, row);
    BriefTurns<K> t = {{a.k, a.v, a.pages, a.owner}, r, head, first, shared_address(tiles), -1};
    const int last = r.length - 1, all = ceil_div(r.length, C::TILE);
    const int turns = all > first ? ceil_div(all - first, K::WARPS) : 0;
#pragma unroll 1
    for (int i = 0; i < K::STAGES; i++) {
        C::pad(tiles + i * K::TILE_BYTES);
        if (i < turns)
            t.issue(i, true);
        copy_commit();
    }
    const bool has_own = turns && t.base(turns - 1) + C::TILE > last;
    const int own = has_own && turns <= K::STAGES ? brief_find<K>(t.cache, r, head, last) : -1;
    wait_for_previous();
    if (own >= 0)
        brief_copy_one<K>(t.cache, own, last % C::TILE, t.slot(turns - 1));
    copy_commit();
    const int g = lane_id() / 4;
    C state;
    state.fetch(live && g < D::GROUP ? (const T *)a.q + ((i64)row * K::HEADS + head * D::GROUP + g) * K::E : nullptr);
    state.start();
#pragma unroll 1
    for (int turn = 0; turn < turns; turn++) {
        if (turn == turns - 1)
            copy_wait<0>();
        else if (turn < K::STAGES)
            copy_wait<K::STAGES>(); // later: the tiles behind it, and the group of the step's own token
        else
            copy_wait<K::STAGES - 1>();
        warp_sync();
        state.tile(t.slot(turn), 0, r.length - t.base(turn));
        warp_sync();
        if (turn + K::STAGES < turns)
            t.issue(turn + K::STAGES, false);
        copy_commit();
    }
    state.put(partials + warp_id() * D::GROUP * C::PARTIAL, 0, D::GROUP);
    if (K::WARPS > 1)
        block_sync();
    else
        warp_sync();
    if (!live)
        return;
    const int used = least(K::WARPS, all); // warps that had a position
    const float *partial = partials + warp_id() / K::WARPS * K::WARPS * D::GROUP * C::PARTIAL;
    for (int i = (first * 32 + lane_id()) * 2; i < D::GROUP * K::E; i += K::WARPS * 64) {
        const Vec<float, 2> y = add_partials<K>(partial + i / K::E * C::PARTIAL, used, D::GROUP * C::PARTIAL, i % K::E);
        store((T *)a.y + ((i64)row * K::HEADS + head * D::GROUP) * K::E + i, from_floats<T>(y));
    }
}
