// attend_decode.cuh - attention of rows that bring one token each, over the paged cache.
//
//   y[t,h] = sum_j softmax_j(cap(SCALE * q[t,h] . k[j])) v[j]     j: the row's last WINDOW positions (0: all)
//
//   q [T, H, E]     queries, rotated; token t of a decode row is row t
//   k, v            the layer's pages (body/paged.cuh); they hold this step's token already
//   y [T, H*E]
//
// Split-KV. A row's positions are cut into chunks whose length follows from the row's own length alone, so its result
// has the same bits whatever else is in the step. A unit of work is (row, head set, chunk); blocks take equal,
// contiguous ranges of all units of the step:
//
//   rows      |----- row 0 -----|-- row 1 --|------- row 2 -------|
//   units     h0c0 h0c1 h1c0 h1c1 ...                                   block b of B: [n*b/B, n*(b+1)/B)
//
// SPREAD 1, for many rows: a block takes the first JOIN chunks of one (row, head set). It needs no other row's length to begin,
// and the GPU gives the next block to the SM that is first done. Blocks behind those of all rows take the later chunks in turn.
//
// SPREAD 2: blocks have equal numbers of units, as many blocks as are needed if none has more than it must. Each warp finds its
// block's first unit by itself. At the next (row, head set) a block begins queries and copies anew, so that registers hold those of
// one alone. What a block has of a (row, head set) from its first chunk on comes to one partial result, its later groups to one each.
//
// The query heads of a kv head (in sets of at most SET) are computed together, so keys and values are read once.
// Within a unit warp w takes the tiles w, w + WARPS, ... Each warp has its own ring of tiles in flight, which runs on
// into the next unit, and its own softmax state; at the end of a unit the block adds the warps' states in order. The
// last block to finish a chunk of a (row, head set) adds the chunks, in order (Flash-Decoding, Dao et al. 2023; online
// softmax, Milakov & Gimelshein 2018).
//
// Chunks are added in groups of JOIN, then the groups. With much work a block takes whole groups and writes one partial
// result for each: on an H200 a written byte costs several times a read one.
//
// BEAMS: a lane of a beam search reads the prompt from lane 0's pages and every later position from the pages of the
// slot that owns it. In tiles that reach past the prompt each position is looked up.
//
// 16-bit caches go through the matrix units as S^T = K q^T, O^T = V^T P^T: 16 positions by 8 heads: even one
// head alone keeps all 16 rows of the fragment busy. Other types are computed by FMA.
#pragma once
#include "device/atomic.cuh"
#include "device/async.cuh"
#include "device/block.cuh"
#include "device/fragment.cuh"
#include "device/io.h"
#include "device/pdl.cuh"
#include "device/vec.cuh"
#include "body/decode_state.cuh"
#include "body/decode_units.cuh"
#include "body/paged.cuh"

// Copies the tiles of one warp to shared memory, over all units of the block, ahead of the computation.
//
// What the cache held before this program may be read before wait_for_previous(): only the step's own token, a row's
// last position, is written by the previous kernel.
template <class K> struct TileLoader {
    using D = DecodeShape<K>;
    using KV = typename K::KV;
    static constexpr int VECS = K::E * (int)sizeof(KV) / 16; // of a row
    static constexpr int STEP = K::TILE * K::WARPS;

    Unit unit;
    int left; // units from `unit` to the block's last
    int position;
    int page0, page1; // of the tile's first and second eight positions
    PagedHead<K> head;
    u32 ring;
    int stage;
    bool waited;

    DEVICE void find_pages()
    {
        page0 = head.page(position);
        page1 = K::TILE > 8 && position + 8 < unit.end ? head.page(position + 8) : page0;
    }
    DEVICE void advance_unit(const DecodeArgs<K> &a)
    {
        if constexpr (OneSet<K>::YES)
            next_chunk<K>(unit);
        else
            advance<K>(a, unit);
    }
    // Goes to the first unit, this one or a later one, that has a tile for this warp.
    DEVICE void enter(const DecodeArgs<K> &a)
    {
        while (left) {
            position = unit.begin + warp_id() * K::TILE;
            if (position < unit.end) {
                head = PagedHead<K>(a.pages, a.k, a.v, K::BEAMS ? a.rows[a.rows[unit.row].group].slot : unit.slot, unit.set / D::SETS);
                find_pages();
                return;
            }
            if (--left)
                advance_unit(a);
        }
    }
    DEVICE void begin(const DecodeArgs<K> &a, const Unit &u, int units)
    {
        unit = u;
        left = units;
        enter(a);
    }
    DEVICE void wait()
    {
        if (!waited)
            wait_for_previous();
        waited = true;
    }
    // BEAMS: a tile whose positions may be in pages of different slots.
    DEVICE void issue_owned(const DecodeArgs<K> &a, u32 to, i64 to_v)
    {
        constexpr int N = K::TILE * VECS, PAGES = ceil_div(K::CONTEXT, K::BLOCK);
        const int *mine = a.owner + (i64)unit.slot * K::CONTEXT;
#pragma unroll 1
        for (int i = 0; i < ceil_div(N, 32); i++) {
            const int n = i * 32 + lane_id(), r = n / VECS, p = position + r;
            if (n < N) {
                const u32 dst = to + D::Rows::piece(r, n % VECS);
                const bool live = p >= unit.cut.first && p < unit.end;
                const char *from = (const char *)head.k;
                if (live) {
                    const int page = p < unit.shared ? head.page(p) : a.pages[(i64)mine[p] * PAGES + p / K::BLOCK];
                    from = (const char *)(head.k + head.at(page, p)) + n % VECS * 16;
                }
                copy16(dst, from, live ? 16 : 0);
                copy16(dst + K::TILE * K::PITCH, from + to_v, live ? 16 : 0);
            }
        }
    }
    // Starts the copy of the next tile and commits a group, an empty one after the last tile.
    DEVICE void issue(const DecodeArgs<K> &a)
    {
        if (left) {
            if (position + K::TILE >= unit.cut.last)
                wait();
            const u32 to = ring + stage * K::SLOT_BYTES;
            // Eight positions from a multiple of 8 on are contiguous in their page.
            constexpr int N = K::TILE * VECS, HALF = 8 * VECS;
            const char *k0 = (const char *)(head.k + head.at(page0, position)) + lane_id() * 16;
            const char *k1 = (const char *)(head.k + head.at(page1, position + 8)) + lane_id() * 16 - HALF * 16;
            const i64 to_v = (const char *)head.v - (const char *)head.k;
            const bool whole = position >= unit.cut.first && position + K::TILE <= unit.end;
            bool owned = false;
            if constexpr (K::BEAMS) {
                owned = least(position + K::TILE, unit.end) > unit.shared;
                if (owned)
                    issue_owned(a, to, to_v);
            }
            if (owned) {
            } else if (whole && N % 32 == 0 && HALF % 32 == 0) {
#pragma unroll
                for (int i = 0; i < N / 32; i++) {
                    const u32 dst = to + D::Rows::piece((i * 32 + lane_id()) / VECS, (i * 32 + lane_id()) % VECS);
                    const char *from = (i * 32 < HALF ? k0 : k1) + i * 512;
                    copy16_evict_first(dst, from);
                    copy16_evict_first(dst + K::TILE * K::PITCH, from + to_v);
                }
            } else { // positions outside of [first, end) are not read but filled with zeros
#pragma unroll 1
                for (int i = 0; i < ceil_div(N, 32); i++) {
                    const int n = i * 32 + lane_id(), r = n / VECS;
                    if (n < N) {
                        const u32 dst = to + D::Rows::piece(r, n % VECS);
                        const bool live = position + r >= unit.cut.first && position + r < unit.end;
                        const char *from = live ? (n < HALF ? k0 : k1) + i * 512 : (const char *)head.k;
                        copy16(dst, from, live ? 16 : 0);
                        copy16(dst + K::TILE * K::PITCH, from + to_v, live ? 16 : 0);
                    }
                }
            }
            stage = stage + 1 == K::STAGES ? 0 : stage + 1;
            position += STEP;
            if (position < unit.end) {
                find_pages();
            } else {
                if (--left)
                    advance_unit(a);
                enter(a);
            }
        }
        copy_commit();
    }
};

template <bool FAST> DEVICE float power2(float x) { return FAST ? exp2_fast(x) : exp2f(x); }

// Writes four neighbouring elements of y, from element i = head * E + column of a head set.
template <class K> DEVICE void put_result(const DecodeArgs<K> &a, int row, int set, int i, const Vec<float, 4> &o, float sum)
{
    using D = DecodeShape<K>;
    using T = typename K::T;
    Vec<float, 4> y;
#pragma unroll
    for (int j = 0; j < 4; j++)
        y[j] = o[j] / sum;
    const int head = set / D::SETS * D::GROUP + set % D::SETS * K::SET;
    store((T *)a.y + ((i64)row * K::HEADS + head) * K::E + i, from_floats<T>(y));
}

// Four columns of a partial softmax: the largest exponent (of 2), the sum of weights, the weighted values.
struct Joined {
    float top = negative_infinity(), sum = 0.0f;
    Vec<float, 4> o = zeros<float, 4>();
};
// fmaf and __fmul_rn leave the compiler no choice of contraction: every place that joins gives the same bits.
template <bool FAST> DEVICE void join(Joined &a, const Joined &b)
{
    const float high = fmaxf(a.top, b.top);
    const float s0 = power2<FAST>(a.top - high), s1 = power2<FAST>(b.top - high);
    a.sum = fmaf(a.sum, s0, __fmul_rn(b.sum, s1));
#pragma unroll
    for (int j = 0; j < 4; j++)
        a.o[j] = fmaf(a.o[j], s0, __fmul_rn(b.o[j], s1));
    a.top = high;
}

// Four columns of a partial result, from element i = head * E + column on.
template <class K> DEVICE Joined load_partial(const float *partial, int i)
{
    const uint4_ x = load_l2(partial + i);
    Joined j;
    j.top = load_l2_scalar(partial + K::SET * K::E + i / K::E);
    j.sum = load_l2_scalar(partial + K::SET * K::E + K::SET + i / K::E);
    j.o[0] = __uint_as_float(x.x);
    j.o[1] = __uint_as_float(x.y);
    j.o[2] = __uint_as_float(x.z);
    j.o[3] = __uint_as_float(x.w);
    return j;
}

// y of one head set from the partial results of its chunks, or (groups) of groups of JOIN chunks. The whole block.
template <class K> DEVICE void add_partials(const DecodeArgs<K> &a, int row, int set, int chunks, bool groups)
{
    using D = DecodeShape<K>;
    const float *partial = a.partials + ((i64)row * K::HEAD_SETS + set) * K::MAX_CHUNKS * K::PARTIAL;
    const int heads = least(K::SET, D::GROUP - set % D::SETS * K::SET);
    const int count = groups ? ceil_div(chunks, D::JOIN) : chunks;
    for (int i = threadIdx.x * 4; i < heads * K::E; i += K::WARPS * 128) {
        const int h = i / K::E;
        Joined all;
        for (int c = 0; c < count; c += 4) { // four loads in flight
            Joined one[4], group;
#pragma unroll
            for (int j = 0; j < 4; j++)
                one[j] = load_partial<K>(partial + (i64)least(c + j, count - 1) * K::PARTIAL, i);
#pragma unroll
            for (int j = 0; j < 4; j++) {
                if (c + j < count)
                    join<K::MATRIX>(group, one[j]);
                if (groups || j == 3) {
                    join<K::MATRIX>(all, group);
                    group = Joined();
                }
            }
        }
        put_result<K>(a, row, set, i, all.o, all.sum);
    }
}

// The same where blocks took ranges of units of which unit `first` is the row's chunk 0 (Deal).
template <class K> DEVICE void add_pieces(const DecodeArgs<K> &a, int row, int set, int chunks, int first, int share)
{
    using D = DecodeShape<K>;
    const float *partial = a.partials + ((i64)row * K::HEAD_SETS + set) * K::MAX_CHUNKS * K::PARTIAL;
    const int heads = least(K::SET, D::GROUP - set % D::SETS * K::SET);
    const int joined = (share - first % share) / D::JOIN; // groups that the first block has added up
    for (int i = threadIdx.x * 4; i < heads * K::E; i += K::WARPS * 128) {
        const int h = i / K::E;
        Joined all;
        for (int c = most(joined - 1, 0) * D::JOIN; c < chunks; c += D::JOIN) {
            const int end = least(c + D::JOIN, chunks);
            const bool whole = (first + c) / share == (first + end - 1) / share;
            Joined one[D::JOIN], group;
#pragma unroll
            for (int j = 0; j < D::JOIN; j++)
                one[j] = load_partial<K>(partial + (i64)(whole ? c : least(c + j, end - 1)) * K::PARTIAL, i);
#pragma unroll
            for (int j = 0; j < D::JOIN; j++)
                if (j == 0 || (!whole && c + j < end))
                    join<K::MATRIX>(group, one[j]);
            join<K::MATRIX>(all, group);
        }
        put_result<K>(a, row, set, i, all.o, all.sum);
    }
}

// One warp: which units this block takes, [unit[0], unit[1]); unit[2]: whether these are whole groups. Fills
// before[0..rows]: chunks of all earlier rows.
template <class K> DEVICE void share_out(const DecodeArgs<K> &a, int rows, int *before, int *unit)
{
    using D = DecodeShape<K>;
    const int lane = lane_id();
    int chunks = 0, groups = 0;
    for (int base = 0; base < K::MAX_ROWS; base += 32) {
        const int kv_len = base + lane < K::MAX_ROWS ? a.rows[base + lane].kv_len : 0; // loaded before `rows` has arrived
        if (base >= rows)
            break;
        const int n = base + lane < rows ? cut_row<K>(kv_len).chunks : 0, upto = warp_prefix_sum(n);
        if (base + lane < rows)
            before[base + lane] = chunks + upto - n;
        chunks += shuffle(upto, 31);
        groups += ceil_div(n, D::JOIN);
    }
    const i64 units = (i64)chunks * K::HEAD_SETS;
    const bool whole = D::JOIN > 1 && units >= 2 * D::JOIN * (i64)gridDim.x;
    if (lane < 2)
        unit[lane] = (int)(units * (blockIdx.x + lane) / gridDim.x);
    if (lane == 0) {
        before[rows] = chunks;
        unit[2] = whole;
    }
    if (!whole)
        return;
    warp_sync();
    const i64 sets = (i64)warp_sum(groups) * K::HEAD_SETS;
    groups = 0;
    for (int base = 0; base < rows; base += 32) { // each border lies in the row of one lane
        const int row = base + lane, n = row < rows ? cut_row<K>(a.rows[row].kv_len).chunks : 0;
        const int m = ceil_div(n, D::JOIN), upto = warp_prefix_sum(m);
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const i64 border = sets * (blockIdx.x + i) / gridDim.x - (i64)(groups + upto - m) * K::HEAD_SETS;
            if (border >= 0 && border < (i64)m * K::HEAD_SETS)
                unit[i] = before[row] * K::HEAD_SETS + (int)border / m * n + (int)border % m * D::JOIN;
        }
        groups += shuffle(upto, 31);
    }
}

// Units [first, last), of which `next` is the first. whole: they are whole groups of JOIN chunks. share: see Deal.
template <class K> DEVICE void attend_units(const DecodeArgs<K> &a, Unit next, int first, int last_unit, bool whole, int share = 0)
{
    constexpr bool DEALT = K::SPREAD == 2;
    using D = DecodeShape<K>;
    using T = typename K::T;
    using State = typename Pick<K::MATRIX, WarpStateMatrix<K>, WarpStateFma<K>>::Type;
    constexpr int THREADS = K::WARPS * 32;

    char *shared = shared_memory(), *mine = shared + K::RING_AT + warp_id() * K::STAGES * K::SLOT_BYTES;
    float *merge = (float *)(shared + K::MERGE_AT);              // [WARPS][SET][MERGE_PITCH]
    float *stats = (float *)(shared + K::STATS_AT);              // [WARPS][2][SET]
    float *query = (float *)(shared + K::QUERY_AT);              // [SET][E], FMA form
    u32 *arrived = (u32 *)(shared + K::ARRIVED_AT);              // {whether this block was the last, row, set, chunks, unit of chunk 0}
    const int warp = warp_id();
    const bool joined = D::JOIN == 1 || whole; // partial results are of groups

    TileLoader<K> loader;
    int from_chunk = next.chunk; // DEALT: the block's first of the current (row, set)
    loader.ring = shared_address(mine);
    loader.stage = 0;
    loader.waited = false;
    loader.begin(a, next, DEALT ? least(next.cut.chunks - next.chunk, last_unit - first) : last_unit - first);
#pragma unroll 1
    for (int i = 0; i < K::STAGES; i++)
        loader.issue(a);
    loader.wait();

    int stage = 0, done = 0; // done: chunks of the current (row, set) that this block has finished
    bool counted = false; // thread 0 is adding to a counter; `arrived` says which (registers are scarce)
    Joined group; // this thread's columns of the current group of chunks
    State state;
    state.fetch(a, next);
    for (int n = first; n < last_unit; n++) {
        const Unit u = next;
        const int from = u.set % D::SETS * K::SET, heads = least(K::SET, D::GROUP - from);
        if (!K::MATRIX) {
            const int head = u.set / D::SETS * D::GROUP + from;
            for (int i = threadIdx.x; i < K::SET * K::E; i += THREADS)
                query[i] = i < heads * K::E ? to_float(((const T *)a.q)[((i64)u.row * K::HEADS + head) * K::E + i]) : 0.0f;
            block_sync();
        }
        state.start();
        if constexpr (!DEALT)
            if (n + 1 < last_unit) {
                if constexpr (OneSet<K>::YES) {
                    next_chunk<K>(next);
                } else {
                    advance<K>(a, next);
                    state.fetch(a, next);
                }
            }
#pragma unroll 1
        for (int p = u.begin + warp * K::TILE; p < u.end; p += K::TILE * K::WARPS) {
            copy_wait<K::STAGES - 1>();
            warp_sync();
            if constexpr (K::MATRIX)
                state.tile(shared_address(mine) + stage * K::SLOT_BYTES, p, u.cut.first, u.end, query);
            else
                state.tile(mine + stage * K::SLOT_BYTES, p, u.cut.first, u.end, query);
            warp_sync();
            loader.issue(a);
            stage = stage + 1 == K::STAGES ? 0 : stage + 1;
        }
        state.put(merge + warp * K::SET * K::MERGE_PITCH, stats + warp * 2 * K::SET);
        const int from_now = from_chunk; // of u
        if constexpr (DEALT)
            if (n + 1 < last_unit) {
                advance<K>(a, next);
                if (next.chunk == 0) {
                    from_chunk = 0;
                    loader.begin(a, next, least(next.cut.chunks, last_unit - n - 1));
#pragma unroll 1
                    for (int i = 0; i < K::STAGES; i++)
                        loader.issue(a);
                    state.fetch(a, next);
                }
            }
        block_sync();

        // The warps' states, added in order; a warp without a tile has maximum -inf.
        bool last = counted && arrived[0];
        int last_row = arrived[1], last_set = arrived[2], last_chunks = arrived[3], last_first = DEALT ? arrived[4] : 0;
        bool ends = !whole || u.chunk % D::JOIN == D::JOIN - 1 || u.chunk == u.cut.chunks - 1;
        bool alone = u.cut.chunks <= (whole ? D::JOIN : 1); // there is only this partial result
        bool grouped = whole, fold = false, more = false;
        int slot = whole ? u.chunk / D::JOIN : u.chunk;
        if constexpr (DEALT) {
            const int end = least(u.cut.chunks, u.chunk + last_unit - n), g0 = u.chunk - u.chunk % D::JOIN, g1 = least(g0 + D::JOIN, u.cut.chunks);
            grouped = g0 >= from_now && g1 <= end;
            fold = grouped && from_now == 0;
            more = fold && g1 < u.cut.chunks && least(g1 + D::JOIN, u.cut.chunks) <= end;
            ends = !grouped || u.chunk == g1 - 1;
            alone = from_now == 0 && end == u.cut.chunks;
            slot = grouped ? g0 : u.chunk;
        }
        float *partial = a.partials + (((i64)u.row * K::HEAD_SETS + u.set) * K::MAX_CHUNKS + slot) * K::PARTIAL;
        for (int i = threadIdx.x * 4; i < heads * K::E; i += THREADS * 4) {
            const int h = i / K::E, e = i % K::E;
            Joined all;
#pragma unroll
            for (int w = 0; w < K::WARPS; w++)
                all.top = fmaxf(all.top, stats[w * 2 * K::SET + h]);
#pragma unroll
            for (int w = 0; w < K::WARPS; w++) {
                const float s = power2<K::MATRIX>(stats[w * 2 * K::SET + h] - all.top);
                const Vec<float, 4> x = load<4>(merge + (w * K::SET + h) * K::MERGE_PITCH + e);
                all.sum += stats[w * 2 * K::SET + K::SET + h] * s;
#pragma unroll
                for (int j = 0; j < 4; j++)
                    all.o[j] += x[j] * s;
            }
            if (grouped) {
                if (u.chunk % D::JOIN == 0)
                    group = Joined();
                join<K::MATRIX>(group, all);
                all = group;
            }
            if (!ends)
                continue;
            if constexpr (DEALT) {
                if (fold && u.chunk >= D::JOIN) {
                    Joined earlier = load_partial<K>(partial - D::JOIN * K::PARTIAL, i);
                    join<K::MATRIX>(earlier, all);
                    all = earlier;
                }
            }
            if (alone && !more) {
                put_result<K>(a, u.row, u.set, i, all.o, all.sum);
            } else {
                store(partial + i, all.o);
                if (e == 0) {
                    partial[K::SET * K::E + h] = all.top;
                    partial[K::SET * K::E + K::SET + h] = all.sum;
                }
            }
        }
        block_sync();

        // A fence takes microseconds while copies are in flight. So a block adds its chunks of a (row, set) to the
        // counter once, when it goes on to the next (row, set), and not at all if it has done all of them. Thread 0
        // does it while the others go on; its answer is read one unit later.
        counted = false;
        if (!alone) {
            done++;
            if (u.chunk == u.cut.chunks - 1 || n + 1 == last_unit) {
                if (threadIdx.x == 0) {
                    u32 *counter = a.counters + u.row * K::HEAD_SETS + u.set;
                    arrived[0] = done == u.cut.chunks || atomic_add_acq_rel(counter, done) + done == (u32)u.cut.chunks;
                    arrived[1] = u.row;
                    arrived[2] = u.set;
                    arrived[3] = u.cut.chunks;
                    if (DEALT)
                        arrived[4] = n - u.chunk;
                    if (arrived[0] && done < u.cut.chunks)
                        *counter = 0;
                }
                counted = true;
                done = 0;
            }
        }
#pragma unroll 1
        for (;;) { // a second time after the last unit, for its own count
            if (last) {
                if constexpr (DEALT)
                    add_pieces<K>(a, last_row, last_set, last_chunks, last_first, share);
                else
                    add_partials<K>(a, last_row, last_set, last_chunks, joined);
            }
            if (!counted || n + 1 < last_unit)
                break;
            counted = false;
            block_sync();
            last = arrived[0];
            last_row = arrived[1], last_set = arrived[2], last_chunks = arrived[3];
            if (DEALT)
                last_first = arrived[4];
        }
    }
    copy_wait<0>();
}

template <class K> // K: T KV HEADS KV_HEADS E BLOCK CONTEXT SCALE WINDOW SOFTCAP CHUNK MAX_CHUNKS REST MAX_ROWS WARPS STAGES SPREAD
__device__ void attend_decode(const DecodeArgs<K> &a)
{
    using D = DecodeShape<K>;
    static_assert(K::HEADS % K::KV_HEADS == 0, "kv heads must divide the heads");
    static_assert(K::SPREAD < 2 || D::JOIN > 1, "a thread has the sums of one vector");
    static_assert(K::E % 8 == 0 && K::BLOCK % 8 == 0 && K::CHUNK % 16 == 0, "multiples of 8, 8, 16");

    char *shared = shared_memory(), *ring = shared + K::RING_AT; // [WARPS][STAGES] slots
    u32 *arrived = (u32 *)(shared + K::ARRIVED_AT);
    const int warp = warp_id(), lane = lane_id();

    launch_dependents();
    if constexpr (D::COLUMNS > K::E) { // columns of the tiles that no copy writes
        char *mine = ring + warp * K::STAGES * K::SLOT_BYTES;
        constexpr int PAD = D::COLUMNS - K::E;
        for (int i = lane; i < K::STAGES * 2 * K::TILE * PAD; i += 32)
            *(typename K::KV *)(mine + D::Rows::byte(i / PAD % K::TILE, (K::E + i % PAD) * (int)sizeof(typename K::KV)) + i / PAD / K::TILE * K::TILE * K::PITCH) = from_float<typename K::KV>(0.0f);
    }

    // $step, $rows and $pages are written between programs only.
    if constexpr (K::SPREAD == 2) {
        Deal d;
        const Unit u = deal_out<K>(a, d);
        if (threadIdx.x == 0)
            arrived[1] = arrived[2] = arrived[3] = arrived[4] = 0;
        if (d.first < d.last)
            attend_units<K>(a, u, d.first, d.last, false, d.share);
        else if (blockIdx.x == 0)
            wait_for_previous();
    } else if constexpr (K::SPREAD) {
        Unit u = first_piece<K>(a); // read before the number of rows has arrived
        const int rows = least(a.step->decode_rows, K::MAX_ROWS), blocks = (int)gridDim.x - rows * K::HEAD_SETS;
        int turn = (int)blockIdx.x - rows * K::HEAD_SETS; // below 0: u begins the block's piece, its only one
        int all = turn < 0 && u.cut.chunks > D::JOIN ? all_positions<K>(a, rows) : 0;
        if (threadIdx.x == 0)
            arrived[1] = arrived[2] = arrived[3] = 0;
        bool some = turn < 0 || later_piece<K>(a, u, turn, rows, all, blocks);
        if (!some && blockIdx.x == 0)
            wait_for_previous();
        while (some) {
            const int chunks = piece_chunks<K>(u.cut, rows, all);
            attend_units<K>(a, u, 0, least(chunks, u.cut.chunks - u.chunk), D::JOIN > 1 && chunks > 1);
            turn += turn < 0 ? 0 : blocks;
            some = turn >= 0 && later_piece<K>(a, u, turn, rows, all, blocks);
        }
    } else {
        int *before = (int *)(shared + K::BEFORE_AT); // [rows + 1] chunks of earlier rows
        int *unit = (int *)(shared + K::UNIT_AT);     // {first unit, last + 1, whether whole groups}
        const int rows = least(a.step->decode_rows, K::MAX_ROWS);
        if (warp == 0) {
            share_out<K>(a, rows, before, unit);
            if (lane == 0)
                arrived[1] = arrived[2] = arrived[3] = 0;
        }
        block_sync();
        const int first = unit[0], last = unit[1];
        if (first == last) {
            if (blockIdx.x == 0)
                wait_for_previous(); // one block that waits is enough: the next kernel waits for all blocks of this one
            return;                  // the others leave their places to the next kernel's blocks
        }
        attend_units<K>(a, find_unit<K>(a, before, rows, first), first, last, D::JOIN > 1 && unit[2]);
    }
}
