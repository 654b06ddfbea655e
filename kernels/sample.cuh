// sample.cuh - the next token of every row that asks for one: processors, selection, draw, end.
//
//   logits [S, V] fp32      raw
//   y [S]                   token ids; also $out, and $token and $rows for the next decode step
//
// Blocks share the rows out: gridDim.x blocks a row, each walks ranges of RANGE ids. A tile of TILE
// ids is the work of one warp and leaves five numbers: maximum and sum of exp of the raw logits
// (for the log-probability), maximum, its id, and sum of exp of the processed ones. The last block
// of a row merges its tiles in an order of their own, so the result does not depend on gridDim.x,
// then chooses: the arg max, or a draw (body/draw.cuh) from the processed row in `values`.
//
// SEGMENTS: the kernel of the logits has left segments of them (body/segments.cuh). A row that is greedy, or draws from the best,
// as its `top_needed` says, looks at them alone, by one block: at candidates, or at the logits of the few segments that may hold
// one of the best. Processors of such a row only lower values, so they work on those. Where that does not say all (thousands
// alike, hundreds of the best banned) the same block goes over the logits; where top-p alone leaves many, as the segments' sums
// tell, all of the row's blocks do. For other rows it is as if segments were not there.
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
    int id;                 // of top, the lowest
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
    u32 *counters;     // [S] blocks done; zero between launches
};

template <class K> struct SampleShape {
    static constexpr int THREADS = 512, WARPS = THREADS / 32, TILE = 512, RANGE = WARPS * TILE;
    static constexpr int V = K::V, TILES = ceil_div(V, TILE), SEGMENTS = K::SEGMENTS;
    static constexpr int FACTS = (RANGE + K::LOGIT_BIAS) * 4; // bytes: a word an id, and biases
    static constexpr int SHARED = most(FACTS, (int)sizeof(DrawRoom<SampleShape>));
};

// One warp, one tile: its numbers, and the processed values where they are drawn from.
template <class K> DEVICE void sample_tile(const SampleArgs &a, int row, int tile, const FtxParams &p, float inv_temperature, const u32 *facts, const float *shift)
{
    using D = SampleShape<K>;
    constexpr int N = D::TILE / 32;        // values of a lane: fours of neighbours where rows are aligned
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
            x[i] = x[i] == x[i] ? x[i] + 0.0f : negative_infinity(); // no NaN, no -0: ties are ties
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

// One thread: the result for the host, and the row's next step.
template <class K> DEVICE void publish(const SampleArgs &a, int row, const FtxRow &r, bool end, int token, float logprob)
{
    const int n = r.kv_len; // its position
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

// One block's tiles of a row, which share[0] have between them. Whether it is the last of them.
template <class K>
DEVICE bool sample_tiles(const SampleArgs &a, int row, const FtxParams &p, const FtxRow &r, const float *inv_temperature, u32 *facts, float *shift, u32 *share)
{
    using D = SampleShape<K>;
    for (int base = blockIdx.x * D::RANGE; base < K::V; base += share[0] * D::RANGE) {
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
        share[1] = share[0] == 1 || atomic_add_acq_rel(a.counters + row, 1) == share[0] - 1;
        if (share[1] && share[0] > 1)
            a.counters[row] = 0;
    }
    block_sync();
    return share[1];
}

// The list of candidates with its values after processors; false: it is too long. The whole block.
template <class K> DEVICE bool lower_list(const SampleArgs &a, int row, DrawRoom<SampleShape<K>> &room, const FtxParams &p, const FtxRow &r)
{
    using D = SampleShape<K>;
    constexpr int MOST = DrawRoom<D>::FACTS;
    const int n = room.n;
    if (n > MOST)
        return false;
    for (int i = threadIdx.x; i < n; i += D::THREADS) // by id, to be found
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
    SHARED(u32, share, 3); // how many blocks share the row; whether this is the last of them; whether segments are enough
    // $step, $rows, $params are written between programs, and by this row's last block. They stand
    // in shared memory: as registers they would be a third of all.
    SHARED(FtxRow, row_, 1);
    SHARED(FtxParams, params_, 1);
    SHARED(float, inv_temperature, 1); // 1 / temperature, finite
    const FtxRow &r = row_[0];
    const FtxParams &p = params_[0];
    u32 *facts = (u32 *)shared;
    float *shift = (float *)(facts + D::RANGE);

    launch_dependents();
    const bool live = row < a.step->rows;
    if (threadIdx.x == 0 && !(K::SEGMENTS && blockIdx.x > 0 && segments_suffice(a.params[row]))) // that one may be written by now
        row_[0] = a.rows[row];
    if (threadIdx.x == 32) {
        params_[0] = a.params[row];
        inv_temperature[0] = inv_temperature_of(params_[0]);
        share[2] = K::SEGMENTS && segments_suffice(params_[0]);
        share[0] = share[2] ? 1 : gridDim.x;
    }
    wait_for_previous();
    block_sync();
    const auto merged = [&] { return K::SEGMENTS && share[2]; };
    if (!live || (merged() && blockIdx.x > 0 ? !draws_by_mass(p) || p.top_p >= 1.0f : !r.emit || r.done)) // who may see that top-p leaves many
        return;
    int token;
    DrawRoom<D> &room = *(DrawRoom<D> *)shared;
#pragma unroll 1
    for (;;) { // by the kernel in front; again by this one where that is not enough
        if (!merged() && !sample_tiles<K>(a, row, p, r, inv_temperature, facts, shift, share))
            return;

        // The last block of the row: a thread merges tiles (or segments) threadIdx.x, + THREADS, ..., warps their
        // threads, and every warp the warps.
        const SampleTile *tiles = a.tiles + (i64)row * D::TILES;
        Best best = {negative_infinity(), 0x7fffffff};
        const float sum_scale = merged() && draws_by_mass(p) ? inv_temperature[0] : 1.0f; // of what is summed up
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
        if (merged()) {
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
        if (merged() && draws_by_mass(p)) {
            if (Draw<D>::leaves_many(p, raw_sum)) {
                block_sync();
                if (blockIdx.x > 0 && threadIdx.x == 0) // nobody has written it: this block counts
                    row_[0] = a.rows[row];
                if (threadIdx.x == 0) {
                    share[0] = gridDim.x;
                    share[2] = 0;
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
            if (!merged()) {
                float sum = 0.0f;
                for (int t = threadIdx.x; t < D::TILES; t += THREADS)
                    sum += room.tile_sum[t] * ratio(room.tile_top[t], best.value, inv_temperature[0]);
                sum = block_sum<THREADS>(sum, sums);
                if (threadIdx.x == 0)
                    room.sum = sum;
                block_sync();
            }
            Draw<D> draw = {room, best.value, inv_temperature[0]};
            token = draw.token(p, share[2], [&] { return merged() && changes(p, r); }, [&] { return lower_list<K>(a, row, room, p, r); });
        }
        if (token >= 0)
            break;
        block_sync();
        if (threadIdx.x == 0)
            share[2] = 0;
        block_sync();
    }
    if (warp_id() != 0)
        return;
    const bool known = p.simple || (K::SEGMENTS && p.top_needed > 0 && p.top_needed <= MAX_TOP_NEEDED); // where the logits are not written
    const float raw = known ? 0.0f : load_l2_scalar(a.logits + (i64)row * K::V + token);
    bool end = false;
    for (int i = lane_id(); i < p.n_ends; i += 32)
        end = end || a.ends[row * K::END_IDS + i] == token;
    end = warp_ballot(end) != 0;
    if (lane_id() != 0)
        return;
    publish<K>(a, row, r, end, token, (known ? room.value : raw) - room.raw_top - logf(room.raw_sum));
}
