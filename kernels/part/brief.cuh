// brief.cuh - the few keys and values of a row that brings one token, on their way from the paged cache to
// tiles in shared memory (part/columns.cuh).
//
// A lane of a beam search (BEAMS) reads the prompt from lane 0's pages and every later position from those of
// the slot that owns it.
#pragma once
#include "device/io.h"
#include "device/warp.cuh"
#include "part/columns.cuh"

struct BriefCache {
    const void *k, *v; // of the layer
    const int *pages;
    const int *owner; // [slots][CONTEXT]
};

// What a warp knows of its row.
struct BriefRow {
    int length, slot;   // positions, and whose they are
    int shared, prompt; // positions below `shared` stand in the pages of slot `prompt`
};

template <class K> DEVICE BriefRow brief_row(const FtxRow *rows, int row)
{
    const FtxRow &at = rows[row];
    BriefRow r;
    r.length = at.kv_len;
    r.slot = at.slot;
    r.shared = at.lane < 0 ? r.length : at.prompt;
    r.prompt = K::BEAMS ? rows[at.group].slot : at.slot;
    return r;
}

// Starts the copies of a tile's positions: of the row's last one (own) or of all others, zeros where there
// are none.
template <class K> DEVICE void brief_issue(const BriefCache &c, const BriefRow &r, int head, int tile, bool own, u32 to)
{
    using C = Columns<K>;
    using KV = typename K::KV;
    constexpr int PAGES = ceil_div(K::CONTEXT, K::BLOCK);
    const int base = tile * C::TILE, mine = base + lane_id() % C::TILE; // a lane looks one position up
    int page = 0;
    if (mine < r.length && (mine == r.length - 1) == own) {
        int slot = r.slot;
        if (K::BEAMS)
            slot = mine < r.shared ? r.prompt : c.owner[(i64)r.slot * K::CONTEXT + mine];
        page = c.pages[(i64)slot * PAGES + mine / K::BLOCK];
    }
#pragma unroll
    for (int i = 0; i < ceil_div(C::TILE * C::VECS, 32); i++) {
        const int piece = i * 32 + lane_id(), n = piece / C::VECS, p = base + n;
        const int at_page = shuffle(page, n % C::TILE);
        if (n >= C::TILE || (p == r.length - 1) != own)
            continue;
        const bool there = p < r.length;
        const i64 at = there ? (((i64)at_page * K::KV_HEADS + head) * K::BLOCK + p % K::BLOCK) * K::E + piece % C::VECS * 8 : 0;
        const u32 dst = to + C::Rows::piece(n, piece % C::VECS);
        copy16(dst, (const KV *)c.k + at, there ? 16 : 0);
        copy16(dst + C::TILE * C::Rows::PITCH, (const KV *)c.v + at, there ? 16 : 0);
    }
}
