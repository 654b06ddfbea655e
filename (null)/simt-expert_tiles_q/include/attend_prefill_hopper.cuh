// attend_prefill_hopper.cuh - attention of rows that bring a chunk of a prompt, over the paged cache, on sm_90a (16 bits).
//
//   y[i,h] = sum_j softmax_j(cap(SCALE * q[i,h] . k[j])) v[j]    token i of a row sees positions j up to
//                                                                kv_len - q_len + i, and of these the last WINDOW (0: all)
//
//   q [T, H, E]     queries, rotated; row r has the tokens [q_start, q_start + q_len)
//   k, v            the layer's pages (body/paged.cuh) as TMA descriptors with boxes of BOX rows by 64 columns, where
//                   BOX divides BLOCK; they hold the chunk's keys and values already
//   y [T, H*E]
//
// Rows [decode_rows, rows) of the step. FlashAttention-3 (Shah et al. 2024): warps of a block have different roles. The
// first warpgroup copies: keys and values by TMA, which its first warp issues. Each of the other WARPGROUPS multiplies 64
// matrix rows of a piece (body/piece.cuh) by wgmma.
//
//   slots [SLOTS]   tiles of KEYS keys or of their values, in the order in which they are read: k0 k1 v0 k2 v1 ...
//   full, empty     mbarriers of a slot: it has landed; it has been read by all warpgroups
//
// A warpgroup begins S = Q K^T of the next tile and O += P V of this one, and weighs the next scores while P V is still
// multiplied. Two named barriers let warpgroups begin their products in turn, so that one's powers of two are computed
// beside the products of the others.
//
// A block takes one piece after another: the first by its number, the others from a counter that all blocks share, so
// long pieces begin first and nobody waits for a slower block. Copies of the next piece begin during this one.
//
// Positions behind the row's last one may hold anything: their scores are masked, their values zeroed.
//
// Shared memory: queries | slots | barriers | the piece. A tile of queries, keys or values is [columns / 64][rows][128
// bytes], swizzled as device/wgmma.cuh says.
#pragma once
#include "device/async.cuh"
#include "device/atomic.cuh"
#include "device/barrier.cuh"
#include "device/fragment.cuh"
#include "device/io.h"
#include "device/mbarrier.cuh"
#include "device/pdl.cuh"
#include "device/registers.cuh"
#include "device/shared.cuh"
#include "device/tensor.cuh"
#include "device/warp.cuh"
#include "device/wgmma.cuh"
#include "body/paged.cuh"
#include "body/piece.cuh"
#include "body/ring.cuh"

struct AttendPrefillHopperArgs {
    const void *q;
    const FtxStep *step;
    const FtxRow *rows;
    const int *pages;
    const TensorMap *k, *v;
    void *y;
    u32 *counters; // [2] pieces taken beyond the first of each block, blocks that are done; 0 between launches
};

template <class K> struct PromptShape {
    static constexpr int GROUP = K::HEADS / K::KV_HEADS;
    static constexpr int ACROSS = ceil_div(K::E, 64); // groups of 64 columns of a head
    static constexpr int UNITS = K::E / 8;            // 16 bytes each
    static constexpr int TILES = K::KEYS / 8;         // of 8 columns of the scores
    // Registers of a thread, which starts with 65536 / (128 * (WARPGROUPS + 1)).
    static constexpr int COPIER = K::WARPGROUPS == 2 ? 40 : 32, MULTIPLIER = K::WARPGROUPS == 2 ? 232 : 160;
    static_assert(K::WARPGROUPS == 2 || K::WARPGROUPS == 3, "registers are shared out for these");
    static_assert(K::ROWS == 64 * K::WARPGROUPS, "64 rows of a piece each");
};
template <class K> using PromptRing = Ring<K::SLOTS, K::TILE_BYTES>;

// What the block computes next.
struct PromptWork {
    Piece piece; // of row -1: nothing is left
    int head;    // kv head
    int next;    // number of the piece after this one
};

// Byte of unit u (16 bytes) of row r in a tile of ROWS rows.
template <int ROWS> DEVICE u32 prompt_unit(int r, int u) { return u / 8 * (ROWS * 128) + r * 128 + ((u & 7) ^ (r & 7)) * 16; }

// Offset of matrix row i of a piece in q and y, in elements.
template <class K> DEVICE i64 prompt_row(int q_start, int head, int i)
{
    constexpr int GROUP = PromptShape<K>::GROUP;
    return ((i64)(q_start + i / GROUP) * K::HEADS + head * GROUP + i % GROUP) * K::E;
}

// --- the first warpgroup copies ------------------------------------------------------------------

template <class K> DEVICE void copy_queries(const typename K::T *q, u32 to, const PromptWork &work)
{
    using D = PromptShape<K>;
    const int left = work.piece.q_len * D::GROUP - work.piece.i0;
#pragma unroll 2
    for (int n = threadIdx.x; n < K::ROWS * D::UNITS; n += 128) {
        const int r = n / D::UNITS, u = n % D::UNITS;
        const bool live = r < left;
        const i64 at = prompt_row<K>(work.piece.q_start, work.head, work.piece.i0 + (live ? r : 0));
        copy16(to + prompt_unit<K::ROWS>(r, u), q + at + u * 8, live ? 16 : 0);
    }
}

// A tile of keys or values from `position` on, a multiple of BOX. Boxes behind the row's last position repeat its last
// page. The first warp.
template <class K> DEVICE void copy_positions(const TensorMap *from, const int *table, const PromptWork &work, u32 to, int position, u32 full)
{
    using D = PromptShape<K>;
    constexpr int BOXES = K::KEYS / K::BOX;
    const int p = least(position + least(lane_id(), BOXES - 1) * K::BOX, (work.piece.kv_len - 1) / K::BOX * K::BOX);
    const int row = (table[p / K::BLOCK] * K::KV_HEADS + work.head) * K::BLOCK + p % K::BLOCK;
    warp_mbarrier_expect(full, K::TILE_BYTES);
#pragma unroll
    for (int i = 0; i < BOXES; i++)
#pragma unroll
        for (int c = 0; c < D::ACROSS; c++)
            warp_tensor_copy(to + (c * K::KEYS + i * K::BOX) * 128, from, shuffle(row, i), c * 64, full);
}

template <class K>
DEVICE void prompt_copy(const AttendPrefillHopperArgs &a, PromptWork &shared, u32 queries, const PromptRing<K> &ring, u32 full, u32 empty)
{
    using T = typename K::T;
    RingSlot<K::SLOTS> slot = {0, 1};
    PromptWork work;
    int number = blockIdx.x;
    for (u32 turn = 0;; turn ^= 1) {
        work.piece = find_piece<K>(a.step, a.rows, a.step->decode_rows, number / K::KV_HEADS);
        work.piece.begin &= ~(K::BOX - 1);
        work.head = number % K::KV_HEADS;
        if (number == blockIdx.x)
            wait_for_previous(); // $step and $rows are written between programs only
        mbarrier_wait(empty, turn ^ 1);
        if (threadIdx.x == 0) {
            shared.piece = work.piece;
            shared.head = work.head;
            mbarrier_arrive(full);
        }
        if (work.piece.row >= 0)
            copy_queries<K>((const T *)a.q, queries, work);
        copy_arrive(full);
        if (work.piece.row < 0)
            return;
        u32 taken;
        if (threadIdx.x == 0)
            taken = atomic_add_relaxed(a.counters, 1); // its result is needed only at the end
        if (warp_id() == 0) {
            const int *table = a.pages + (i64)work.piece.slot * ceil_div(K::CONTEXT, K::BLOCK);
            const auto copy = [&](const TensorMap *from, int position) {
                ring.wait_empty(slot);
                copy_positions<K>(from, table, work, ring.data(slot.at), position, ring.full(slot.at));
                slot.next();
            };
            int position = work.piece.begin;
            copy(a.k, position);
#pragma unroll 1
            for (; position + K::KEYS < work.piece.end; position += K::KEYS) {
                copy(a.k, position + K::KEYS);
                copy(a.v, position);
            }
            copy(a.v, position);
        }
        if (threadIdx.x == 0)
            shared.next = gridDim.x + taken;
        named_barrier_sync(6, 128);
        number = shared.next;
        named_barrier_sync(6, 128); // all have read it
    }
}

// --- the others multiply: 64 rows each, accumulators as device/wgmma.cuh says ---------------------------

template <class K> struct PromptTile {
    using T = typename K::T;
    using D = PromptShape<K>;
    float o[K::E / 2], s[K::KEYS / 2];
    float top[2], sum[2], scale[2]; // of rows g and g + 8: largest exponent so far, sum of weights, what the last tile scales o by
    u32 p[K::KEYS / 16][4];         // weights of a tile, the A operand of P V

    // s = Q K^T of a tile.
    DEVICE void scores(u64 q, u64 k)
    {
#pragma unroll
        for (int i = 0; i < K::E / 16; i++) {
            const u64 qi = wgmma_descriptor_at(q, i / 4 * K::ROWS, i % 4), ki = wgmma_descriptor_at(k, i / 4 * K::KEYS, i % 4);
            if (i == 0)
                Wgmma<K::KEYS, T>::set(s, qi, ki);
            else
                Wgmma<K::KEYS, T>::add(s, qi, ki);
        }
        wgmma_commit();
    }
    // o += P V of a tile.
    DEVICE void values(u64 v)
    {
#pragma unroll
        for (int i = 0; i < K::KEYS / 16; i++)
            Wgmma<K::E, T>::add_n_major(o, p[i], wgmma_descriptor_at(v, i * 16, 0));
        wgmma_commit();
    }
    // `seen`: last position that row g + 8r sees, relative to this lane's first column.
    DEVICE void mask(int r, int seen)
    {
#pragma unroll
        for (int n = 0; n < D::TILES; n++)
#pragma unroll
            for (int j = 0; j < 2; j++)
                if (n * 8 + j > seen || (K::WINDOW > 0 && n * 8 + j <= seen - K::WINDOW))
                    s[4 * n + 2 * r + j] = negative_infinity();
    }
    // Scores become weights 2^(s - top). Without a soft cap the scale is folded into the exponent; SCALE > 0.
    template <bool FIRST> DEVICE void weigh()
    {
        constexpr float BY = K::SOFTCAP > 0.0f ? 1.0f : K::SCALE * 1.4426950408889634f;
        float base[2];
#pragma unroll
        for (int r = 0; r < 2; r++) {
            float a0 = fmaxf(s[2 * r], s[2 * r + 1]), a1 = fmaxf(s[2 * r + 4], s[2 * r + 5]);
#pragma unroll
            for (int n = 2; n < D::TILES; n += 2) {
                a0 = fmaxf(a0, fmaxf(s[4 * n + 2 * r], s[4 * n + 2 * r + 1]));
                a1 = fmaxf(a1, fmaxf(s[4 * n + 2 * r + 4], s[4 * n + 2 * r + 5]));
            }
            base[r] = fmaxf(a0, a1);
        }
#pragma unroll
        for (int x = 1; x < 4; x *= 2)
#pragma unroll
            for (int r = 0; r < 2; r++)
                base[r] = fmaxf(base[r], shuffle_xor(base[r], x));
#pragma unroll
        for (int r = 0; r < 2; r++) {
            const float most_ = FIRST ? base[r] * BY : fmaxf(base[r] * BY, top[r]);
            base[r] = K::WINDOW > 0 && most_ == negative_infinity() ? 0.0f : most_;
            scale[r] = FIRST ? 1.0f : exp2_fast(top[r] - base[r]);
            top[r] = most_;
        }
#pragma unroll
        for (int r = 0; r < 2; r++) {
            float a0 = 0.0f, a1 = 0.0f;
#pragma unroll
            for (int n = 0; n < D::TILES; n++) {
                s[4 * n + 2 * r] = exp2_fast(s[4 * n + 2 * r] * BY - base[r]);
                s[4 * n + 2 * r + 1] = exp2_fast(s[4 * n + 2 * r + 1] * BY - base[r]);
                a0 += s[4 * n + 2 * r];
                a1 += s[4 * n + 2 * r + 1];
            }
            sum[r] = FIRST ? a0 + a1 : sum[r] * scale[r] + (a0 + a1);
        }
    }
    DEVICE void pack()
    {
#pragma unroll
        for (int i = 0; i < K::KEYS / 16; i++)
#pragma unroll
            for (int j = 0; j < 4; j++)
                p[i][j] = pack2<T>(s[8 * i + 2 * j], s[8 * i + 2 * j + 1]);
    }
    DEVICE void rescale()
    {
        if (warp_ballot(fminf(scale[0], scale[1]) < 1.0f)) // rare once the largest scores have passed
#pragma unroll
            for (int i = 0; i < K::E / 2; i++)
                o[i] *= scale[i / 2 % 2];
    }
};

// Lane t of four has words w[0..3]; it gets the words number t of all four, in the order of the lanes.
DEVICE void transpose_quad(u32 (&w)[4])
{
#pragma unroll
    for (int x = 1; x < 4; x *= 2) {
        const bool upper = lane_id() & x;
#pragma unroll
        for (int i = 0; i < 4; i++)
            if (!(i & x)) {
                const u32 got = shuffle_xor(upper ? w[i] : w[i + x], x);
                (upper ? w[i] : w[i + x]) = got;
            }
    }
}

// Writes the rows below `total` of rows g and g + 8 from matrix row i0 on, 16 bytes a lane.
template <class K> DEVICE void write_prompt(typename K::T *y, PromptTile<K> &tile, int q_start, int head, int i0, int total)
{
    const int lane = lane_id();
#pragma unroll
    for (int r = 0; r < 2; r++) {
        float all = tile.sum[r];
        all += shuffle_xor(all, 1);
        all += shuffle_xor(all, 2);
        const float by = 1.0f / all;
        const int i = i0 + lane / 4 + 8 * r;
        typename K::T *to = y + prompt_row<K>(q_start, head, i) + lane % 4 * 8;
#pragma unroll
        for (int n = 0; n < K::E / 8; n += 4) {
            u32 w[4] = {};
#pragma unroll
            for (int j = 0; j < 4 && n + j < K::E / 8; j++)
                w[j] = pack2<typename K::T>(tile.o[(n + j) * 4 + 2 * r] * by, tile.o[(n + j) * 4 + 2 * r + 1] * by);
            transpose_quad(w);
            if (i < total && n + lane % 4 < K::E / 8)
                *(uint4_ *)(to + n * 8) = {w[0], w[1], w[2], w[3]};
        }
    }
}

// Warpgroups begin their products in turn; barrier 2 + g is the turn of warpgroup g.
template <class K> DEVICE void wait_turn(int group) { named_barrier_sync(2 + group, 256); }
template <class K> DEVICE void pass_turn(int group) { named_barrier_arrive(2 + (group + 1) % K::WARPGROUPS, 256); }

// Zeroes the values of a tile from row `valid` on. All warpgroups that multiply; async_proxy_fence() follows.
template <class K> DEVICE void clear_values(u32 values, int valid)
{
    for (int c = 0; c < PromptShape<K>::ACROSS; c++)
        for (int i = valid * 8 + threadIdx.x - 128; i < K::KEYS * 8; i += 128 * K::WARPGROUPS)
            shared_store16(values + c * K::KEYS * 128 + i * 16, uint4_{0, 0, 0, 0});
    named_barrier_sync(1, 128 * K::WARPGROUPS);
}

DEVICE void warp_arrive(u32 mbarrier)
{
    warp_sync();
    if (lane_id() == 0)
        mbarrier_arrive(mbarrier);
}

template <class K>
DEVICE void prompt_multiply(const AttendPrefillHopperArgs &a, const PromptWork &shared, u32 queries, const PromptRing<K> &ring, u32 full, u32 empty)
{
    using D = PromptShape<K>;
    const int warp = shuffle(warp_id(), 0) - 4, group = warp / 4, lane = lane_id();
    const u64 q = wgmma_descriptor(queries, group * 64, 0);
    RingSlot<K::SLOTS> slot = {0, 0};
    PromptTile<K> tile;
    if (group == K::WARPGROUPS - 1)
        pass_turn<K>(group);
    for (u32 turn = 0;; turn ^= 1) {
        mbarrier_wait(full, turn);
        if (shared.piece.row < 0)
            break;
        const int begin = shared.piece.begin, end = shared.piece.end, low = shared.piece.low, high = shared.piece.high;
        const int i0 = shared.piece.i0 + warp * 16, total = shared.piece.q_len * D::GROUP;
        const int q_start = shared.piece.q_start, kv_len = shared.piece.kv_len, head = shared.head;
        const int row = shared.piece.offset * D::GROUP + i0 + lane / 4; // row g, counted from position 0
        // Only tiles at an end of what some row sees need the mask.
        const auto finish_scores = [&](int position) {
            if (K::SOFTCAP > 0.0f)
#pragma unroll
                for (int i = 0; i < K::KEYS / 2; i++)
                    tile.s[i] = exponent<K>(tile.s[i]);
            if (position + K::KEYS - 1 > low || (K::WINDOW > 0 && position < high - K::WINDOW + 1))
#pragma unroll
                for (int r = 0; r < 2; r++)
                    tile.mask(r, (row + 8 * r) / D::GROUP - position - lane % 4 * 2);
        };
        ring.wait_full(slot);
        wait_turn<K>(group);
        async_proxy_fence(); // the queries came by cp.async
        wgmma_fence();
        tile.scores(q, wgmma_descriptor(ring.data(slot.at), 0, 0));
        pass_turn<K>(group);
#pragma unroll
        for (int i = 0; i < K::E / 2; i++)
            tile.o[i] = 0.0f;
        wgmma_wait<0>();
        wgmma_complete(tile.s);
        warp_arrive(ring.empty(slot.at));
        slot.next();
        finish_scores(begin);
        tile.template weigh<true>();
        tile.pack();
        int position = begin + K::KEYS; // of the next tile
#pragma unroll 1
        for (; position < end; position += K::KEYS) {
            const RingSlot<K::SLOTS> keys = slot;
            slot.next();
            ring.wait_full(keys);
            wait_turn<K>(group);
            async_proxy_fence();
            wgmma_fence();
            tile.scores(q, wgmma_descriptor(ring.data(keys.at), 0, 0));
            ring.wait_full(slot);
            wgmma_fence();
            tile.values(wgmma_descriptor_n_major(ring.data(slot.at), K::KEYS));
            pass_turn<K>(group);
            wgmma_wait<1>();
            wgmma_complete(tile.s);
            warp_arrive(ring.empty(keys.at));
            finish_scores(position);
            tile.template weigh<false>();
            wgmma_wait<0>();
            wgmma_complete(tile.o);
            warp_arrive(ring.empty(slot.at));
            slot.next();
            tile.pack();
            tile.rescale();
        }
        warp_arrive(empty); // the queries and the piece have been read
        ring.wait_full(slot);
        if (position > kv_len)
            clear_values<K>(ring.data(slot.at), kv_len - position + K::KEYS);
        wait_turn<K>(group);
        async_proxy_fence(); // zeros
        wgmma_fence();
        tile.values(wgmma_descriptor_n_major(ring.data(slot.at), K::KEYS));
        pass_turn<K>(group);
        wgmma_wait<0>();
        wgmma_complete(tile.o);
        warp_arrive(ring.empty(slot.at));
        slot.next();
        write_prompt<K>((typename K::T *)a.y, tile, q_start, head, i0, total);
    }
    if (group == 0)
        wait_turn<K>(group); // the last turn that was passed
}

template <class K> // K: T HEADS KV_HEADS E BLOCK CONTEXT BOX SCALE CAUSAL WINDOW SOFTCAP WARPGROUPS ROWS KEYS SLOTS TILE_BYTES ..._AT
__device__ void attend_prefill_hopper(const AttendPrefillHopperArgs &a)
{
    launch_dependents();
    char *shared = shared_memory();
    const u32 base = shared_address(shared);
    const PromptRing<K> ring = {base + K::RING_AT, base + K::BARRIERS_AT};
    const u32 full = ring.end(), empty = full + 8; // of the queries and the piece
    PromptWork &work = *(PromptWork *)(shared + K::WORK_AT);
    static_assert(sizeof(PromptWork) <= K::SHARED - K::WORK_AT, "room for it");
    if (threadIdx.x == 0) {
        tensor_map_prefetch(a.k);
        tensor_map_prefetch(a.v);
        ring.init(1, 4 * K::WARPGROUPS);
        mbarrier_init(full, 129);
        mbarrier_init(empty, 4 * K::WARPGROUPS);
        mbarrier_init_fence();
    }
    block_sync();
    if (warp_id() < 4) {
        registers_give<PromptShape<K>::COPIER>();
        prompt_copy<K>(a, work, base, ring, full, empty);
        if (threadIdx.x == 0 && atomic_add_acq_rel(a.counters + 1, 1) == gridDim.x - 1) { // the last block
            a.counters[0] = 0;
            a.counters[1] = 0;
        }
    } else {
        registers_take<PromptShape<K>::MULTIPLIER>();
        prompt_multiply<K>(a, work, base, ring, full, empty);
    }
}
