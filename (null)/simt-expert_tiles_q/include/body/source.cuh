// source.cuh - attention of up to 8 tokens to their sources, one head, on the matrix units (body/columns.cuh).
//
//   k, v [sources][KV_HEADS][SOURCE][E]
//
// Neighbouring tokens with the same source (the lanes of a beam search) share its tiles; the block goes through one
// source after another. Of the tiles of 16 keys warp w takes w, w + KEY_WARPS, ..., so the order of a sum follows from
// the source's length alone. A warp has STAGES tiles in shared memory or in flight. Sources were written before this
// program, so the first tiles may be copied before wait_for_previous().
//
//   K: T KV HEADS KV_HEADS E SOURCE SCALE SOFTCAP UNIT (tokens of the block) KEY_WARPS STAGES
#pragma once
#include "device/warp.cuh"
#include "body/columns.cuh"

struct SourceCache {
    const void *k, *v; // of the layer
    int head;          // of the queries
};

// A warp's position in its tiles of all sources.
template <class K> struct SourceWalk {
    using C = Columns<K>;
    u32 firsts;       // bit m: token m has another source than token m - 1
    int live;         // number of tokens
    int slot, length; // source of this lane's token, and its number of keys
    int token, tile;  // the position; token == live: the end

    // Tokens [token, next_token()) share the source at the position.
    DEVICE int next_token() const { return least(live, __ffs(firsts >> (token + 1) << (token + 1) | 1u << 31) - 1); }
    DEVICE int keys() const { return shuffle(length, token); }
    // Goes to the next tile that exists, this one or a later one.
    DEVICE void settle()
    {
        while (token < live && tile * C::TILE >= keys()) {
            token = next_token();
            tile = warp_id();
        }
    }
    DEVICE void next()
    {
        tile += K::KEY_WARPS;
        settle();
    }
    // Lane m < tokens gives slot and length of token m's source.
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

// Starts the copy of the tile at the position of `w`; keys past the source's end become zeros.
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
        copy16(dst + C::TILE * K::PITCH, (const KV *)c.v + at, there ? 16 : 0);
    }
}

// Starts the copies of the warp's first STAGES tiles, a group each. Returns the position after them.
template <class K> DEVICE SourceWalk<K> source_begin(const SourceCache &c, SourceWalk<K> walk, char *tiles)
{
    using C = Columns<K>;
#pragma unroll 1
    for (int i = 0; i < K::STAGES; i++) {
        if (walk.token < walk.live) {
            C::pad(tiles + i * K::TILE_BYTES);
            source_issue<K>(c, walk, shared_address(tiles) + i * K::TILE_BYTES);
            walk.next();
        }
        copy_commit();
    }
    return walk;
}

// Attention over the warp's tiles. query: lane 4g + t gives token g's; NULL: there is none. Token n's partial result goes
// to partial + n * C::PARTIAL.
template <class K>
DEVICE void source_attend(const SourceCache &c, SourceWalk<K> walk, SourceWalk<K> ahead, char *tiles, const typename K::T *query, float *partial)
{
    using C = Columns<K>;
    C state;
    state.fetch(query);
    for (int held = 0; walk.token < walk.live; held = held + 1 == K::STAGES ? 0 : held + 1) {
        const int first = walk.token, end = walk.next_token();
        const u32 at = shared_address(tiles) + held * K::TILE_BYTES;
        if (walk.tile == warp_id())
            state.start();
        copy_wait<K::STAGES - 1>();
        warp_sync();
        state.tile(at, 0, walk.keys() - walk.tile * C::TILE);
        warp_sync();
        walk.next();
        if (walk.token != first)
            state.put(partial, first, end);
        if (ahead.token < ahead.live) {
            source_issue<K>(c, ahead, at);
            ahead.next();
        }
        copy_commit();
    }
    copy_wait<0>();
}
