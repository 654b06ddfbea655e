// source.cuh - attention of up to 8 tokens to their sources by one head, on the matrix units: WALKERS warps
// share the tiles of 16 keys.
//
//   k, v [sources][KV_HEADS][SOURCE][E]
//
// Tokens of one source, the lanes of a beam, stand side by side and share its tiles; one source is walked
// after another. A warp takes every WALKERS-th tile, so the order of a sum follows from the source's length
// alone. HELD tiles are on their way or at hand; the source stood in memory before this program, so the first
// ones may be asked for before the kernel in front has ended.
//
//   K: T KV HEADS KV_HEADS E SOURCE SCALE SOFTCAP UNIT (tokens) WALKERS HELD
#pragma once
#include "device/warp.cuh"
#include "body/columns.cuh"

struct SourceCache {
    const void *k, *v; // of the layer
    int head;          // of the queries
};

// The tiles of one warp over all sources of the tokens, one after another.
template <class K> struct SourceWalk {
    using C = Columns<K>;
    u32 firsts;       // tokens whose source is not that of the token before
    int live;         // tokens there are
    int slot, length; // of this lane's token
    int token, tile;  // where the walk stands; token == live: at its end

    // The source of the token it stands at: its tokens are [token, next_token()).
    DEVICE int next_token() const { return least(live, __ffs(firsts >> (token + 1) << (token + 1) | 1u << 31) - 1); }
    DEVICE int keys() const { return shuffle(length, token); }
    // From here on to a tile there is.
    DEVICE void settle()
    {
        while (token < live && tile * C::TILE >= keys()) {
            token = next_token();
            tile = warp_id();
        }
    }
    DEVICE void next()
    {
        tile += K::WALKERS;
        settle();
    }
    // Of `tokens` tokens; lane m has the slot and the length of token m's source.
    DEVICE void start(int tokens, int its_slot, int its_length)
    {
        live = tokens;
        slot = its_slot;
        length = its_length;
        const int before = shuffle_up(slot, 1);
        firsts = warp_ballot(lane_id() < live && (lane_id() == 0 || before != slot));
        token = 0;
        tile = warp_id();
        settle();
    }
};

// Starts the copy of the tile at which the walk stands, keys that are not there as zeros.
template <class K> DEVICE void source_issue(const SourceCache &c, const SourceWalk<K> &w, u32 to)
{
    using C = Columns<K>;
    using KV = typename K::KV;
    const int n = w.keys() - w.tile * C::TILE;
    const i64 head = (i64)shuffle(w.slot, w.token) * K::KV_HEADS + c.head / (K::HEADS / K::KV_HEADS);
    const i64 from = (head * K::SOURCE + w.tile * C::TILE) * K::E;
#pragma unroll
    for (int i = 0; i < ceil_div(C::TILE * C::VECS, 32); i++) {
        const int piece = i * 32 + lane_id(), r = piece / C::VECS;
        if (r >= C::TILE)
            break;
        const bool there = r < n;
        const i64 at = from + (there ? piece * 8 : 0);
        const u32 dst = to + C::Rows::piece(r, piece % C::VECS);
        copy16(dst, (const KV *)c.k + at, there ? 16 : 0);
        copy16(dst + C::TILE * C::Rows::PITCH, (const KV *)c.v + at, there ? 16 : 0);
    }
}

// The warp's first tiles, HELD groups of copies into `tiles`. Where the walk has come to is returned.
template <class K> DEVICE SourceWalk<K> source_begin(const SourceCache &c, SourceWalk<K> walk, char *tiles)
{
    using C = Columns<K>;
#pragma unroll 1
    for (int i = 0; i < K::HELD; i++) {
        if (walk.token < walk.live) {
            C::pad(tiles + i * C::BYTES);
            source_issue<K>(c, walk, shared_address(tiles) + i * C::BYTES);
            walk.next();
        }
        copy_commit();
    }
    return walk;
}

// query: of token g, for lane 4g+t; NULL: there is none. The warp's part of token n to part + n * C::PART.
template <class K>
DEVICE void source_attend(const SourceCache &c, SourceWalk<K> walk, SourceWalk<K> ahead, char *tiles, const typename K::T *query, float *part)
{
    using C = Columns<K>;
    C state;
    state.fetch(query);
    for (int held = 0; walk.token < walk.live; held = held + 1 == K::HELD ? 0 : held + 1) {
        const int first = walk.token, end = walk.next_token();
        const u32 at = shared_address(tiles) + held * C::BYTES;
        if (walk.tile == warp_id())
            state.start();
        copy_wait<K::HELD - 1>();
        warp_sync();
        state.tile(at, walk.keys() - walk.tile * C::TILE);
        warp_sync();
        walk.next();
        if (walk.token != first)
            state.put(part, first, end);
        if (ahead.token < ahead.live) {
            source_issue<K>(c, ahead, at);
            ahead.next();
        }
        copy_commit();
    }
    copy_wait<0>();
}
