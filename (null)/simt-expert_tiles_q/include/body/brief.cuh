// brief.cuh - copies keys and values of a row that brings one token from the paged cache to tiles in shared memory
// (body/columns.cuh), position by position. For short rows: attend_brief and attention_block.
//
// BEAMS: a lane of a beam search reads the prompt from lane 0's pages and every later position from the pages of the
// slot that owns it.
#pragma once
#include "device/io.h"
#include "device/warp.cuh"
#include "body/columns.cuh"

struct BriefCache {
    const void *k, *v; // of the layer
    const int *pages;
    const int *owner; // [slots][CONTEXT]
};

struct BriefRow {
    int length, slot;   // positions of the row; its slot
    int shared, prompt; // positions below `shared` are in the pages of slot `prompt`
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

// Position p of the row as the index of a row of E elements in the layer's cache; -1: there is no such position.
template <class K> DEVICE int brief_find(const BriefCache &c, const BriefRow &r, int head, int p)
{
    constexpr int PAGES = ceil_div(K::CONTEXT, K::BLOCK);
    if (p < 0 || p >= r.length)
        return -1;
    int slot = r.slot;
    if (K::BEAMS)
        slot = p < r.shared ? r.prompt : c.owner[(i64)r.slot * K::CONTEXT + p];
    const int page = c.pages[(i64)slot * PAGES + p / K::BLOCK];
    return (page * K::KV_HEADS + head) * K::BLOCK + p % K::BLOCK;
}

// Starts the copies of a tile. Row n of it comes from the cache's row that lane from + n holds in `found`, or is zero
// (-1). Row `left` is left out.
template <class K> DEVICE void brief_copy(const BriefCache &c, int found, int from, int left, u32 to)
{
    using C = Columns<K>;
    using KV = typename K::KV;
#pragma unroll
    for (int i = 0; i < ceil_div(C::TILE * C::VECS, 32); i++) {
        const int piece = i * 32 + lane_id(), n = piece / C::VECS;
        const int row = shuffle(found, from + n % C::TILE);
        if (n >= C::TILE || n == left)
            continue;
        const i64 at = row < 0 ? 0 : (i64)row * K::E + piece % C::VECS * 8;
        const u32 dst = to + C::Rows::piece(n, piece % C::VECS);
        copy16(dst, (const KV *)c.k + at, row < 0 ? 0 : 16);
        copy16(dst + C::TILE * K::PITCH, (const KV *)c.v + at, row < 0 ? 0 : 16);
    }
}

// Starts the copy of row n of a tile alone, from the cache's row `row`.
template <class K> DEVICE void brief_copy_one(const BriefCache &c, int row, int n, u32 to)
{
    using C = Columns<K>;
    using KV = typename K::KV;
    for (int piece = lane_id(); piece < 2 * C::VECS; piece += 32) {
        const bool value = piece >= C::VECS;
        const int offset = piece - value * C::VECS;
        copy16(to + value * C::TILE * K::PITCH + C::Rows::piece(n, offset), (const KV *)(value ? c.v : c.k) + (i64)row * K::E + offset * 8);
    }
}

// Starts the copies of a tile but for the step's own token, the row's last: it may not have been written yet.
template <class K> DEVICE void brief_issue(const BriefCache &c, const BriefRow &r, int head, int tile, u32 to)
{
    constexpr int TILE = Columns<K>::TILE;
    const int p = tile * TILE + lane_id() % TILE;
    const int found = p == r.length - 1 ? -1 : brief_find<K>(c, r, head, p);
    brief_copy<K>(c, found, 0, r.length - 1 - tile * TILE, to);
}
