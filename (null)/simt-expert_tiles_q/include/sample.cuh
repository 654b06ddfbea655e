// sample.cuh - the next token of each row with `emit`: logits processors, top-k/top-p/min-p/typical, draw, end check.
//
//   logits [S, V] fp32      raw; with SEGMENTS only as much is written as body/segments.cuh says
//   y [S]                   token ids; results for the host go to $out, the next decode step's input to $token and $rows
//
// Grid: gridDim.x blocks share a row, blockIdx.y is the row.
//
//   row        |---------- RANGE ids ----------|---------- RANGE ids ----------| ...     block b: ranges b, b + blocks, ...
//   range      | tile | tile | ...  TILE ids each, one warp each                         -> tiles[row][tile], values[row][id]
//   last block of the row: merges the tiles -> log-sum-exp, arg max -> token, or a draw from `values` (body/draw.cuh)
//
// A tile yields maximum and sum of exp of the raw logits (for the log-probability), and maximum, its id and sum of exp
// of the processed ones. Tiles are merged in an order that does not depend on gridDim.x, so neither does the result.
//
// SEGMENTS: the LM head's kernel has written segments of the logits (body/segments.cuh). Where the row's top_needed is
// not 0, one block reads only these, and the candidates or the few logits they point to. The processors of such a row
// only lower values, so it is enough to apply them to these. If that does not decide the token (thousands of equal
// values, hundreds of the best banned), the same block reads the logits; if the segments' sums show that top-p alone
// keeps many tokens, all blocks of the row do. Rows with top_needed 0 ignore the segments.
#pragma once
#include "device/atomic.cuh"
#include "device/block.cuh"
#include "device/fragment.cuh"
#include "device/pdl.cuh"
#include "device/philox.cuh"
#include "device/vec.cuh"
#include "body/draw.cuh"
#include "body/segments.cuh"
#include "body/processors.cuh"

struct alignas(16) SampleTile {
    float raw_top, raw_sum; // sum of exp(x - top)
    float top, sum;         // the same after processors
    int id;                 // of top; the lowest of equal ones
    int unused[3];
};

struct SampleArgs {
    const float *logits;
    const FtxStep *step;
    FtxRow *rows;
    const FtxParams *params;
    const int *ends;
    const FtxBias *bias;
    const int *bad_words;
    FtxToken *token;
    const int *history;
    FtxOut *out;
    const FtxSegments *segments;
    int *y;
    SampleTile *tiles; // [S][TILES]
    float *values;     // [S][V]
    u32 *counters;     // [S] blocks of the row that are done; zero between launches
};

template <class K> struct SampleShape {
    static constexpr int THREADS = 512, WARPS = THREADS / 32, TILE = 512, RANGE = WARPS * TILE;
    static constexpr int V = K::V, TILES = K::TILES, SEGMENTS = K::SEGMENTS;
};

// One warp, one tile: writes its SampleTile and, where a token is drawn, the processed values.
template <class K> DEVICE void sample_tile(const SampleArgs &a, int row, int tile, const FtxParams &p, float inv_temperature, const u32 *facts, const float *shift)
{
    using D = SampleShape<K>;
    constexpr int N = D::TILE / 32;        // values of a lane: groups of four neighbours where rows are aligned
    constexpr bool FOURS = K::V % 4 == 0;
    const float *logits = a.logits + (i64)row * K::V;
    const int base = tile * D::TILE;
    const auto id_of = [&](int i) { return base + (FOURS ? i / 4 * 128 + lane_id() * 4 + i % 4 : i * 32 + lane_id()); };
    float x[N];
    if (FOURS) {
#pragma unroll
        for (int i = 0; i < N; i += 4) {
            const uint4_ v = id_of(i) < K::V ? load_l2(logits + id_of(i)) : uint4_{0xff800000u, 0xff800000u, 0xff800000u, 0xff800000u};
            x[i] = __uint_as_float(v.x);
            x[i + 1] = __uint_as_float(v.y);
            x[i + 2] = __uint_as_float(v.z);
            x[i + 3] = __uint_as_float(v.w);
        }
    } else {
#pragma unroll
        for (int i = 0; i < N; i++)
            x[i] = id_of(i) < K::V ? load_l2_scalar(logits + id_of(i)) : negative_infinity();
    }
    SampleTile t;
    t.top = t.raw_top = warp_top(x);
    t.raw_sum = sum_exp(x, t.raw_top);
    t.sum = 0.0f;
    if (!p.simple) {
#pragma unroll
        for (int i = 0; i < N; i++) {
            x[i] = id_of(i) < K::V ? process(x[i], facts[id_of(i) % D::RANGE], shift, p) : negative_infinity();
            x[i] = x[i] == x[i] ? x[i] + 0.0f : negative_infinity(); // no NaN and no -0, so equal values have equal bits
        }
        t.top = warp_top(x);
        if (p.temperature > 0.0f) {
            float *values = a.values + (i64)row * K::V;
#pragma unroll
            for (int i = 0; i < N; i++)
                if (id_of(i) < K::V)
                    values[id_of(i)] = x[i];
            t.sum = sum_exp(x, t.top, inv_temperature);
        }
    }
    u32 id = 0x7fffffff;
#pragma unroll
    for (int i = N - 1; i >= 0; i--) // a lane's ids ascend
        id = x[i] == t.top && id_of(i) < K::V ? id_of(i) : id;
    t.id = (int)warp_min(id);
    if (lane_id() == 0)
        a.tiles[(i64)row * D::TILES + tile] = t;
}

// One thread: writes the result for the host and the row's input of the next decode step.
template <class K> DEVICE void publish(const SampleArgs &a, int row, const FtxRow &r, bool end, int token, float logprob)
{
    const int n = r.kv_len; // position of the token
    const int finish = end ? 1 : n + 1 >= r.limit ? 2 : 0;
    FtxOut *out = a.out + (i64)(n % FTX_OUT_RING) * K::SEQUENCES + row;
    out->token = token;
    out->logprob = logprob;
    out->finish = finish;
    store_release_system((u32 *)&out->length, (u32)n);
    a.y[row] = token;
    if (finish) {
        a.rows[row].done = 1;
    } else {
        a.rows[row].kv_len = n + 1;
        a.token[row] = FtxToken{token, n, row, r.slot};
    }
}

// Words of `share`: how many blocks share the row; whether this one is the last to finish; whether it reads only segments.
enum { BLOCKS_OF_ROW, IS_LAST, BY_SEGMENTS };

// This block's tiles of a row. Returns whether it is the last of the row's blocks to finish.
template <class K>
DEVICE bool sample_tiles(const SampleArgs &a, int row, const FtxParams &p, const FtxRow &r, const float *inv_temperature, u32 *facts, float *shift, u32 *share)
{
    using D = SampleShape<K>;
    for (int base = blockIdx.x * D::RANGE; base < K::V; base += share[BLOCKS_OF_ROW] * D::RANGE) {
        if (!p.simple)
            gather_facts<D::RANGE, D::THREADS>(facts, shift, p, r, a.history + (i64)r.slot * K::CONTEXT, a.ends + row * K::END_IDS,
                                               a.bias + row * K::LOGIT_BIAS, a.bad_words + (i64)r.slot * K::BAD_WORDS,
                                               [=](int id) { return (u32)(id - base); });
        const int tile = base / D::TILE + warp_id();
        if (tile < D::TILES)
            sample_tile<K>(a, row, tile, p, *inv_temperature, facts, shift);
    }
    block_sync();
    if (threadIdx.x == 0) {
        share[IS_LAST] = share[BLOCKS_OF_ROW] == 1 || atomic_add_acq_rel(a.counters + row, 1) == share[BLOCKS_OF_ROW] - 1;
        if (share[IS_LAST] && share[BLOCKS_OF_ROW] > 1)
            a.counters[row] = 0;
    }
    block_sync();
    return share[IS_LAST];
}

// Applies the processors to the values in the draw's list; false: it is too long. The whole block.
template <class K> DEVICE bool lower_list(const SampleArgs &a, int row, DrawRoom<SampleShape<K>> &room, const FtxParams &p, const FtxRow &r)
{
    using D = SampleShape<K>;
    constexpr int MOST = DrawRoom<D>::FACTS;
    const int n = room.n;
    if (n > MOST)
        return false;
    for (int i = threadIdx.x; i < n; i += D::THREADS) // sorted by id, for the binary search
        room.list[i] = room.list[i] << 32 | room.list[i] >> 32;
    sort_descending(room, n);
    const auto id_of = [&](int i) { return (int)~(u32)(room.list[i] >> 32); };
    gather_facts<MOST, D::THREADS>(room.u.few.fact, nullptr, p, r, a.history + (i64)r.slot * K::CONTEXT, a.ends + row * K::END_IDS, nullptr,
                                   a.bad_words + (i64)r.slot * K::BAD_WORDS, [&](int id) {
                                       int from = 0;
#pragma unroll 1
                                       for (int to = n; from < to;) {
                                           const int middle = (from + to) / 2;
                                           const bool above = id_of(middle) < id;
                                           from = above ? middle + 1 : from;
                                           to = above ? to : middle;
                                       }
                                       return from < n && id_of(from) == id ? (u32)from : (u32)MOST;
                                   });
    for (int i = threadIdx.x; i < n; i += D::THREADS)
        room.list[i] = place_of(process(order_value((u32)room.list[i]), room.u.few.fact[i], nullptr, p) + 0.0f, id_of(i));
    block_sync();
    return true;
}

template <class K> // K: V CONTEXT SEQUENCES LOGIT_BIAS BAD_WORDS END_IDS SEGMENTS
__device__ void sample(const SampleArgs &a)
{
    using D = SampleShape<K>;
    constexpr int THREADS = D::THREADS;
    const int row = blockIdx.y;
    char *shared = shared_memory();
    SHARED(float, sums, 33);
    SHARED(Best, bests, 32);
    SHARED(u32, share, 3);
    // $step, $rows and $params are written between programs, and by this row's last block. In shared memory: as
    // registers they would be a third of all.
    SHARED(FtxRow, row_, 1);
    SHARED(FtxParams, params_, 1);
    SHARED(float, inv_temperature, 1); // 1 / temperature, finite
    const FtxRow &r = row_[0];
    const FtxParams &p = params_[0];
    u32 *facts = (u32 *)(shared + K::FACTS_AT);
    float *shift = (float *)(facts + D::RANGE);

    launch_dependents();
    const bool live = row < a.step->rows;
    if (threadIdx.x == 0 && !(K::SEGMENTS && blockIdx.x > 0 && segments_suffice(a.params[row]))) // block 0 may have written it already
        row_[0] = a.rows[row];
    if (threadIdx.x == 32) {
        params_[0] = a.params[row];
        inv_temperature[0] = inv_temperature_of(params_[0]);
        share[BY_SEGMENTS] = K::SEGMENTS && segments_suffice(params_[0]);
        share[BLOCKS_OF_ROW] = share[BY_SEGMENTS] ? 1 : gridDim.x;
    }
    wait_for_previous();
    block_sync();
    const auto by_segments = [&] { return K::SEGMENTS && share[BY_SEGMENTS]; };
    if (!live || (by_segments() && blockIdx.x > 0 ? !draws_by_mass(p) || p.top_p >= 1.0f : !r.emit || r.done)) // extra blocks stay only if a top-p row may fall back to all logits
        return;
    int token;
    static_assert(sizeof(DrawRoom<D>) <= K::SHARED - K::ROOM_AT, "room for a draw");
    DrawRoom<D> &room = *(DrawRoom<D> *)(shared + K::ROOM_AT);
#pragma unroll 1
    for (;;) { // with segments first; again with all logits where they do not decide the token
        if (!by_segments() && !sample_tiles<K>(a, row, p, r, inv_temperature, facts, shift, share))
            return;

        // The last block of the row: thread t merges the tiles (or segments) t, t + THREADS, ..., then each warp its
        // threads, then each warp all warps.
        const SampleTile *tiles = a.tiles + (i64)row * D::TILES;
        Best best = {negative_infinity(), 0x7fffffff};
        const float sum_scale = by_segments() && draws_by_mass(p) ? inv_temperature[0] : 1.0f; // the sums are of exp(x * sum_scale)
        float raw_top = negative_infinity(), raw_sum = 0.0f;
        const auto add = [&](float top, float sum, Best b) {
            const float high = fmaxf(raw_top, top);
            if (high > negative_infinity())
                raw_sum = raw_sum * expf((raw_top - high) * sum_scale) + sum * expf((top - high) * sum_scale);
            raw_top = high;
            best = better(best, b);
        };
        const bool draws = p.temperature > 0.0f;
        if (draws && threadIdx.x == THREADS - 1)
            room.random = philox(uint4_{(u32)r.kv_len, (u32)p.sample, 0, 0}, p.seed_low, p.seed_high).x >> 8;
        if (by_segments()) {
            if (threadIdx.x == 0)
                room.segments = RowSegments{segments_of(a.segments, K::V, row), a.logits + (i64)row * K::V, load_l2_scalar(&a.segments->count)};
            read_segments<K::V>(a.segments, row, threadIdx.x, THREADS, room.u.few.segment_top, [&](const FtxSegment &segment) {
                if (segment.width)
                    add(segment.top, segment.sum, Best{segment.top, segment.at < 0 ? 0x7fffffff : segment.first + segment.at});
            });
        } else {
#pragma unroll 1
            for (int t = threadIdx.x; t < D::TILES; t += THREADS) {
                const uint4_ v = load_l2(&tiles[t]);
                const Best b = {__uint_as_float(v.z), load_l2_scalar(&tiles[t].id)};
                add(__uint_as_float(v.x), __uint_as_float(v.y), b);
                room.tile_top[t] = b.value;
                room.tile_sum[t] = __uint_as_float(v.w);
            }
        }
        const float mine = raw_top;
        raw_top = warp_max(raw_top);
        best = warp_best(best);
        if (lane_id() == 0) {
            sums[warp_id()] = raw_top;
            bests[warp_id()] = best;
        }
        block_sync();
        raw_top = warp_max(sums[lane_id() % D::WARPS]);
        best = warp_best(bests[lane_id() % D::WARPS]);
        block_sync();
        raw_sum = block_sum<THREADS>(mine > negative_infinity() ? raw_sum * expf((mine - raw_top) * sum_scale) : 0.0f, sums);
        if (by_segments() && draws_by_mass(p)) {
            if (Draw<D>::leaves_many(p, raw_sum)) {
                block_sync();
                if (blockIdx.x > 0 && threadIdx.x == 0) // still as it was: only the row's last block writes it, and this one counts
                    row_[0] = a.rows[row];
                if (threadIdx.x == 0) {
                    share[BLOCKS_OF_ROW] = gridDim.x;
                    share[BY_SEGMENTS] = 0;
                }
                block_sync();
                if (!r.emit || r.done)
                    return;
                continue;
            }
            if (blockIdx.x > 0)
                return;
        }
        token = best.id;
        if (threadIdx.x == 0) {
            room.raw_top = raw_top;
            room.raw_sum = room.sum = raw_sum;
            room.value = best.value;
            room.values = a.values + (i64)row * K::V;
        }
        if (draws && best.value > negative_infinity()) {
            block_sync();
            if (!by_segments()) {
                float sum = 0.0f;
                for (int t = threadIdx.x; t < D::TILES; t += THREADS)
                    sum += room.tile_sum[t] * ratio(room.tile_top[t], best.value, inv_temperature[0]);
                sum = block_sum<THREADS>(sum, sums);
                if (threadIdx.x == 0)
                    room.sum = sum;
                block_sync();
            }
            Draw<D> draw = {room, best.value, inv_temperature[0]};
            token = draw.token(p, share[BY_SEGMENTS], [&] { return by_segments() && changes(p, r); }, [&] { return lower_list<K>(a, row, room, p, r); });
        }
        if (token >= 0)
            break;
        block_sync();
        if (threadIdx.x == 0)
            share[BY_SEGMENTS] = 0;
        block_sync();
    }
    if (warp_id() != 0)
        return;
    const bool known = p.simple || (K::SEGMENTS && p.top_needed > 0 && p.top_needed <= MAX_TOP_NEEDED); // the logits may not be written
    const float raw = known ? 0.0f : load_l2_scalar(a.logits + (i64)row * K::V + token);
    bool end = false;
    for (int i = lane_id(); i < p.n_ends; i += 32)
        end = end || a.ends[row * K::END_IDS + i] == token;
    end = warp_ballot(end) != 0;
    if (lane_id() != 0)
        return;
    publish<K>(a, row, r, end, token, (known ? room.value : raw) - room.raw_top - logf(room.raw_sum));
}
