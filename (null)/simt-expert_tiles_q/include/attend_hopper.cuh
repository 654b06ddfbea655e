// attend_hopper.cuh - attention of every token over all tokens of its own text, on sm_90a (encoders, 16 bits).
//
//   y[t,h] = sum_j softmax_j(SCALE * q[t,h] . k[j]) v[j]     j: the tokens of the row of t
//
//   x [T, (H + 2G) * E]   queries, keys, values of each token, side by side, as a TMA descriptor with boxes of 64 rows
//                         by 64 columns; row r has the tokens [q_start, q_start + q_len)
//   y [T, H*E]
//
// With SPLIT queries [T, H*E], keys and values [T, G*E] are matrices of their own, and what body/scored.cuh lists may
// change the scores.
//
// A block is one warpgroup: 64 tokens of a text, one head. blockIdx.x is the head; blockIdx.y counts such pieces from
// the first row on (the grid is an upper bound; blocks without a piece exit). Thread 0 issues all TMA copies: the
// queries, then keys and values in tiles of 64, STAGES of them in flight, so a text of up to 64 * STAGES tokens is
// requested at once. S = Q K^T has both operands in shared memory; the weights P go from registers into O += P V
// (FlashAttention-2, Dao 2023). The steps of a piece depend on each other, so an SM is kept busy by having several
// blocks, which are small for that reason.
//
// Rows of a tile past the text's end belong to another text or to none: their keys are masked, their values zeroed.
//
// Shared memory: queries | [STAGES][keys | values] | barriers. 64 rows of a head are [columns / 64][64][128 bytes],
// swizzled as wgmma.cuh says. At the end the results take the place of the queries.
#pragma once
#include "device/async.cuh"
#include "device/barrier.cuh"
#include "device/fragment.cuh"
#include "device/io.h"
#include "device/mbarrier.cuh"
#include "device/pdl.cuh"
#include "device/shared.cuh"
#include "device/tensor.cuh"
#include "device/warp.cuh"
#include "device/wgmma.cuh"
#include "body/ring.cuh"
#include "body/scored.cuh"

struct AttendHopperArgs {
    const TensorMap *x;
    const FtxStep *step;
    const FtxRow *rows;
    void *y;

    DEVICE const TensorMap *queries() const { return x; }
    DEVICE const TensorMap *keys() const { return x; }
    DEVICE const TensorMap *values() const { return x; }
};
struct AttendSplitArgs {
    const TensorMap *q, *k, *v;
    const float *table, *bias, *slopes; // body/scored.cuh
    const FtxStep *step;
    const FtxRow *rows;
    void *y;

    DEVICE const TensorMap *queries() const { return q; }
    DEVICE const TensorMap *keys() const { return k; }
    DEVICE const TensorMap *values() const { return v; }
};

template <class K> struct TextShape {
    static constexpr int ACROSS = ceil_div(K::E, 64);  // boxes of 64 columns of a head
    static constexpr int LAST = K::E - (ACROSS - 1) * 64; // columns of the last box
    static_assert(K::E % 16 == 0, "whole steps of 16 k");
};

template <class K> using TextRing = Ring<K::STAGES, 2 * K::TILE_BYTES, 2>; // parts of a slot: keys, values

// The work of a block: tokens [first, first + 64) of a text.
struct TextPiece {
    int start, len, first;  // first packed token and length of the text; len 0: no piece
};

// Each warp finds the block's piece. Rows are loaded before their number has arrived.
template <class K> DEVICE TextPiece find_text(const FtxStep *step, const FtxRow *rows)
{
    int want = blockIdx.y, from = 0, live;
    do {
        const FtxRow *row = rows + least(from + lane_id(), K::SEQUENCES - 1);
        const int start = row->q_start, len = row->q_len;
        live = step->rows;
        const int tiles = from + lane_id() < live ? ceil_div(len, 64) : 0;
        const int upto = warp_prefix_sum(tiles);
        const u32 found = warp_ballot(upto > want);
        if (found) {
            const int lane = __ffs(found) - 1;
            return {shuffle(start, lane), shuffle(len, lane), (want - shuffle(upto - tiles, lane)) * 64};
        }
        want -= shuffle(upto, 31);
        from += 32;
    } while (from < live);
    return {0, 0, 0};
}

// --- TMA copies, issued by thread 0 --------------------------------------------------------------

// 64 rows of a head.
template <class K> DEVICE void copy_rows(const TensorMap *x, u32 to, int row, int column, u32 full)
{
#pragma unroll
    for (int c = 0; c < TextShape<K>::ACROSS; c++)
        tensor_copy(to + c * 64 * 128, x, row, column + c * 64, full);
}

// 64 keys and their values into a slot. `with`: bytes of queries that the keys' barrier waits for, too.
template <class K, class A> DEVICE void copy_keys(const A &a, int row, const TextRing<K> &ring, int slot, u32 with)
{
    constexpr int GROUP = K::HEADS / K::KV_HEADS;
    const int column = ((K::SPLIT ? 0 : K::HEADS) + blockIdx.x / GROUP) * K::E;
    mbarrier_expect(ring.full(slot, 0), K::TILE_BYTES + with);
    copy_rows<K>(a.keys(), ring.data(slot), row, column, ring.full(slot, 0));
    mbarrier_expect(ring.full(slot, 1), K::TILE_BYTES);
    copy_rows<K>(a.values(), ring.data(slot) + K::TILE_BYTES, row, column + (K::SPLIT ? 0 : K::KV_HEADS * K::E), ring.full(slot, 1));
}

// The queries and the first STAGES tiles of what they see.
template <class K, class A>
DEVICE void copy_first(const A &a, const TextPiece &p, const Seen &seen, u32 queries, const TextRing<K> &ring)
{
    copy_rows<K>(a.queries(), queries, p.start + p.first, blockIdx.x * K::E, ring.full(0, 0));
#pragma unroll 1
    for (int i = 0; i < K::STAGES && i * 64 < seen.end - seen.begin; i++)
        copy_keys<K>(a, p.start + seen.begin + i * 64, ring, i, i ? 0 : K::TILE_BYTES);
}

// --- the warpgroup's 64 queries; accumulators lie as wgmma.cuh says ------------------------------

template <class K> struct TextTile {
    float o[TextShape<K>::ACROSS][32], top[2], sum[2];  // top, sum of rows g and g + 8: largest exponent so far, sum of weights

    DEVICE void clear()
    {
#pragma unroll
        for (int c = 0; c < TextShape<K>::ACROSS; c++)
#pragma unroll
            for (int i = 0; i < 32; i++)
                o[c][i] = 0.0f;
        top[0] = top[1] = negative_infinity();
        sum[0] = sum[1] = 0.0f;
    }
    // s = Q K^T for 64 keys.
    static DEVICE void scores(float (&s)[32], u64 q, u64 k)
    {
#pragma unroll
        for (int i = 0; i < K::E / 16; i++) {
            const u64 qi = wgmma_descriptor_at(q, i / 4 * 64, i % 4), ki = wgmma_descriptor_at(k, i / 4 * 64, i % 4);
            if (i == 0)
                Wgmma<64, typename K::T>::set(s, qi, ki);
            else
                Wgmma<64, typename K::T>::add(s, qi, ki);
        }
    }
    // Scores become weights 2^(s * SCALE * log2(e) - top), packed as the A operand of the next product; earlier sums are
    // scaled to the new top. Those that score_tile changed are exponents of 2.
    DEVICE void weigh(u32 (&p)[4][4], float (&s)[32])
    {
        constexpr float BY = Scores<K>::CHANGED ? 1.0f : K::SCALE * 1.4426950408889634f;
        float change = 1.0f, scale[2];
#pragma unroll
        for (int r = 0; r < 2; r++) {
            float a0 = fmaxf(s[2 * r], s[2 * r + 1]), a1 = fmaxf(s[2 * r + 4], s[2 * r + 5]);
#pragma unroll
            for (int n = 2; n < 8; n += 2) {
                a0 = fmaxf(a0, fmaxf(s[4 * n + 2 * r], s[4 * n + 2 * r + 1]));
                a1 = fmaxf(a1, fmaxf(s[4 * n + 2 * r + 4], s[4 * n + 2 * r + 5]));
            }
            a0 = fmaxf(a0, a1);
            a0 = fmaxf(a0, shuffle_xor(a0, 1));
            a0 = fmaxf(a0, shuffle_xor(a0, 2));
            const float most_ = fmaxf(a0 * BY, top[r]);
            scale[r] = exp2_fast(top[r] - most_);
            change = fminf(change, scale[r]);
            top[r] = most_;
        }
#pragma unroll
        for (int r = 0; r < 2; r++) {
            float a0 = 0.0f, a1 = 0.0f;
#pragma unroll
            for (int n = 0; n < 8; n++) {
                const float e0 = exp2_fast(s[4 * n + 2 * r] * BY - top[r]), e1 = exp2_fast(s[4 * n + 2 * r + 1] * BY - top[r]);
                a0 += e0;
                a1 += e1;
                p[n / 2][n % 2 * 2 + r] = pack2<typename K::T>(e0, e1);
            }
            sum[r] = sum[r] * scale[r] + (a0 + a1);
        }
        if (warp_ballot(change < 1.0f))  // rare once the largest scores have passed
#pragma unroll
            for (int c = 0; c < TextShape<K>::ACROSS; c++)
#pragma unroll
                for (int i = 0; i < 32; i++)
                    o[c][i] *= scale[i / 2 % 2];
    }
    // o += P V for 64 keys.
    DEVICE void values(const u32 (&p)[4][4], u64 v)
    {
#pragma unroll
        for (int i = 0; i < 4; i++) {
#pragma unroll
            for (int c = 0; c < TextShape<K>::ACROSS - 1; c++)
                Wgmma<64, typename K::T>::add_n_major(o[c], p[i], wgmma_descriptor_at(v, c * 64 + i * 16, 0));
            constexpr int LAST = TextShape<K>::ACROSS - 1;
            Wgmma<TextShape<K>::LAST, typename K::T>::add_n_major(o[LAST], p[i], wgmma_descriptor_at(v, LAST * 64 + i * 16, 0));
        }
    }
    DEVICE void take()
    {
#pragma unroll
        for (int c = 0; c < TextShape<K>::ACROSS; c++)
            wgmma_complete(o[c]);
    }
    // Writes the results of the warp's 16 rows over its queries in shared memory.
    DEVICE void finish(char *to)
    {
        const int g = lane_id() >> 2, t = lane_id() & 3;
#pragma unroll
        for (int r = 0; r < 2; r++) {
            float all = sum[r];
            all += shuffle_xor(all, 1);
            all += shuffle_xor(all, 2);
            const float by = 1.0f / all;
#pragma unroll
            for (int n = 0; n < K::E / 8; n++)
                *(u32 *)(to + n / 8 * 64 * 128 + (r * 8 + g) * 128 + (n % 8 ^ g) * 16 + t * 4) =
                    pack2<typename K::T>(o[n / 8][n % 8 * 4 + 2 * r] * by, o[n / 8][n % 8 * 4 + 2 * r + 1] * by);
        }
    }
};

// Masks the keys from `valid` on, which are not of this text.
DEVICE void mask_scores(float (&s)[32], int valid)
{
    const int from = valid - 2 * (lane_id() & 3);
#pragma unroll
    for (int n = 0; n < 8; n++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            if (n * 8 + i % 2 >= from)
                s[4 * n + i] = negative_infinity();
}

// Zeroes the values from row `valid` on.
template <class K> DEVICE void clear_text_values(u32 v, int valid)
{
    for (int c = 0; c < TextShape<K>::ACROSS; c++)
        for (int i = valid * 8 + threadIdx.x; i < 64 * 8; i += 128)
            shared_store16(v + c * 64 * 128 + i * 16, uint4_{0, 0, 0, 0});
    block_sync();
    async_proxy_fence();
}

// Writes the first `live` of the warp's 16 rows to y, 16 bytes a lane.
template <class K> DEVICE void write_rows(typename K::T *y, const char *from, int live)
{
    constexpr int UNITS = K::E / 8;
    for (int i = lane_id(); i < 16 * UNITS; i += 32) {
        const int r = i / UNITS, u = i % UNITS;
        if (r < live)
            *(uint4_ *)(y + (i64)r * K::HEADS * K::E + u * 8) =
                *(const uint4_ *)(from + u / 8 * 64 * 128 + r * 128 + (u % 8 ^ (r & 7)) * 16);
    }
}

template <class K, class A> // K: T HEADS KV_HEADS E SCALE STAGES SEQUENCES, and those of body/scored.cuh
__device__ void attend_hopper(const A &a)
{
    launch_dependents();
    char *shared = shared_memory();
    const u32 base = shared_address(shared);
    const TextRing<K> ring = {base + K::RING_AT, base + K::BARRIERS_AT};
    if (threadIdx.x == 0) {
        tensor_map_prefetch(a.queries());
        ring.init(1, 4);
        mbarrier_init_fence();
    }
    const TextPiece p = find_text<K>(a.step, a.rows);  // written between programs only
    if constexpr (K::SPAN > 0)
        spread_bias<K>((float *)(shared + K::BIAS_AT), a.bias);
    wait_for_previous();
    if (p.len == 0)
        return;
    const Seen seen = find_seen<K>(p.first, p.len);
    if (threadIdx.x == 0)
        copy_first<K>(a, p, seen, base, ring);
    block_sync();

    TextTile<K> tile;
    RingSlot<K::STAGES> slot = {0, 0};
    tile.clear();
#pragma unroll 1
    for (int position = seen.begin; position < seen.end; position += 64) {
        const int valid = p.len - position;
        const u32 keys = ring.data(slot.at), values = keys + K::TILE_BYTES;
        float s[32];
        u32 weights[4][4];
        ring.wait_full(slot, 0);
        if constexpr (K::ROT > 0) {
            if (position == seen.begin)
                rotate_rows<K>(shared, a.table, p.first, p.len);
            rotate_rows<K>(shared + (keys - base), a.table, position, p.len);
            block_sync();
            async_proxy_fence();
        }
        wgmma_fence();
        tile.scores(s, wgmma_descriptor(base, 0, 0), wgmma_descriptor(keys, 0, 0));
        wgmma_commit();
        wgmma_wait<0>();
        wgmma_complete(s);
        if constexpr (Scores<K>::CHANGED)
            score_tile<K>(s, (const float *)(shared + K::BIAS_AT), a.slopes, position - p.first);
        if constexpr (Scores<K>::HIDDEN)
            mask_unseen<K>(s, position - p.first);
        if (valid < 64)
            mask_scores(s, valid);
        tile.weigh(weights, s);
        ring.wait_full(slot, 1);
        if (valid < 64)
            clear_text_values<K>(values, valid);
        wgmma_fence();
        tile.values(weights, wgmma_descriptor(values, 0, 0));
        wgmma_commit();
        wgmma_wait<0>();
        tile.take();
        if (seen.end - position > 64 * K::STAGES) {
            if (lane_id() == 0)
                mbarrier_arrive(ring.empty(slot.at));
            if (threadIdx.x == 0) {
                ring.wait_empty(slot);
                copy_keys<K>(a, p.start + position + 64 * K::STAGES, ring, slot.at, 0);
            }
            warp_sync();
        }
        slot.next();
    }
    const int row = warp_id() * 16;
    tile.finish(shared + row * 128);
    warp_sync();
    write_rows<K>((typename K::T *)a.y + ((i64)(p.start + p.first + row) * K::HEADS + blockIdx.x) * K::E, shared + row * 128,
                  p.len - p.first - row);
}
