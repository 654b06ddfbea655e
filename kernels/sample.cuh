// sample.cuh - the next token of every row that asks for one: processors, selection, draw, end.
//
//   logits [S, V] fp32      raw
//   y [S]                   token ids; also $out, and $token and $rows for the next decode step
//
// Blocks share the rows out: gridDim.x blocks a row, each walks ranges of RANGE ids. A tile of TILE
// ids is the work of one warp and leaves five numbers: maximum and sum of exp of the raw logits
// (for the log-probability), maximum, its id, and sum of exp of the processed ones. The last block
// of a row merges its tiles in an order of their own, so the result does not depend on gridDim.x,
// then chooses: the arg max, or a draw (part/draw.cuh) from the processed row in `values`.
//
// PARTS: the kernel of the logits has left parts of them (part/parts.cuh). A row without processors that is greedy, or
// draws from few, needs nothing else: one block merges them. For others it is as if they were not there.
#pragma once
#include "device/atomic.cuh"
#include "device/block.cuh"
#include "device/fragment.cuh"
#include "device/pdl.cuh"
#include "device/philox.cuh"
#include "device/vec.cuh"
#include "part/draw.cuh"
#include "part/parts.cuh"
#include "part/processors.cuh"

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
    const FtxParts *parts;
    int *y;
    SampleTile *tiles; // [S][TILES]
    float *values;     // [S][V]
    u32 *counters;     // [S] blocks done; zero between launches
};

template <class K> struct SampleShape {
    static constexpr int THREADS = 512, WARPS = THREADS / 32, TILE = 512, RANGE = WARPS * TILE;
    static constexpr int V = K::V, TILES = ceil_div(V, TILE), PARTS = K::PARTS;
    static constexpr int FACTS = (RANGE + K::LOGIT_BIAS) * 4; // bytes: a word an id, and biases
    static constexpr int SHARED = most(FACTS, (int)sizeof(DrawRoom<SampleShape>));
};

// One warp, one tile: its numbers, and the processed values where they are drawn from.
template <class K> DEVICE void sample_tile(const SampleArgs &a, int row, int tile, const FtxParams &p, float cool, const u32 *facts, const float *shift)
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
            t.sum = sum_exp(x, t.top, cool);
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

// The block's tiles of a row. Whether it is the last of the row's blocks.
template <class K>
DEVICE bool sample_tiles(const SampleArgs &a, int row, const FtxParams &p, const FtxRow &r, const float *cool, u32 *facts, float *shift, u32 *last)
{
    using D = SampleShape<K>;
    for (int base = blockIdx.x * D::RANGE; base < K::V; base += gridDim.x * D::RANGE) {
        if (!p.simple)
            gather_facts<D::RANGE, D::THREADS>(facts, shift, base, p, r, a.history + (i64)r.slot * K::CONTEXT,
                                               a.ends + row * K::END_IDS, a.bias + row * K::LOGIT_BIAS,
                                               a.bad_words + (i64)r.slot * K::BAD_WORDS);
        const int tile = base / D::TILE + warp_id();
        if (tile < D::TILES)
            sample_tile<K>(a, row, tile, p, *cool, facts, shift);
    }
    block_sync();
    if (threadIdx.x == 0) {
        last[0] = atomic_add_acq_rel(a.counters + row, 1) == gridDim.x - 1;
        if (last[0])
            a.counters[row] = 0;
    }
    block_sync();
    return last[0];
}

template <class K> // K: V CONTEXT SEQUENCES LOGIT_BIAS BAD_WORDS END_IDS PARTS
__device__ void sample(const SampleArgs &a)
{
    using D = SampleShape<K>;
    constexpr int THREADS = D::THREADS;
    const int row = blockIdx.y;
    char *shared = shared_memory();
    SHARED(float, sums, 33);
    SHARED(Best, bests, 32);
    SHARED(u32, last, 1);
    // $step, $rows, $params are written between programs, and by this row's last block. They stand
    // in shared memory: as registers they would be a third of all.
    SHARED(FtxRow, row_, 1);
    SHARED(FtxParams, params_, 1);
    SHARED(float, cool, 1); // 1 / temperature, finite
    const FtxRow &r = row_[0];
    const FtxParams &p = params_[0];
    u32 *facts = (u32 *)shared;
    float *shift = (float *)(facts + D::RANGE);

    launch_dependents();
    const bool live = row < a.step->rows;
    if (threadIdx.x == 0 && !(K::PARTS && blockIdx.x > 0 && parts_suffice(a.params[row]))) // that one may be written by now
        row_[0] = a.rows[row];
    if (threadIdx.x == 32) {
        params_[0] = a.params[row];
        cool[0] = fminf(1.0f / params_[0].temperature, 1e30f);
    }
    wait_for_previous();
    block_sync();
    const bool merged = K::PARTS && parts_suffice(p); // by the kernel in front
    if (!live || (merged && blockIdx.x > 0) || !r.emit || r.done)
        return;
    if (!merged && !sample_tiles<K>(a, row, p, r, cool, facts, shift, last))
        return;

    // The last block of the row: a thread merges tiles (or parts) threadIdx.x, + THREADS, ..., warps their
    // threads, and every warp the warps.
    DrawRoom<D> &room = *(DrawRoom<D> *)shared;
    const SampleTile *tiles = a.tiles + (i64)row * D::TILES;
    const bool draws = p.temperature > 0.0f;
    float raw_top = negative_infinity(), raw_sum = 0.0f;
    Best best = {negative_infinity(), 0x7fffffff};
    const auto add = [&](float top, float sum, Best b) {
        const float high = fmaxf(raw_top, top);
        if (high > negative_infinity())
            raw_sum = raw_sum * expf(raw_top - high) + sum * expf(top - high);
        raw_top = high;
        best = better(best, b);
    };
    if (draws && threadIdx.x == THREADS - 1)
        room.random = philox(uint4_{(u32)r.kv_len, (u32)p.sample, 0, 0}, p.seed_low, p.seed_high).x >> 8;
    if (merged) {
        if (threadIdx.x == 0)
            room.parts = RowParts{parts_of(a.parts, K::V, row), a.logits + (i64)row * K::V, load_l2_scalar(&a.parts->count)};
        read_parts<K::V>(a.parts, row, threadIdx.x, THREADS, room.u.part_top, [&](const FtxPart &part) {
            if (part.width)
                add(part.top, part.sum, Best{part.top, part.at < 0 ? 0x7fffffff : part.first + part.at});
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
    raw_sum = block_sum<THREADS>(mine > negative_infinity() ? raw_sum * expf(mine - raw_top) : 0.0f, sums);
    int token = best.id;
    if (draws && best.value > negative_infinity()) {
        block_sync();
        if (!merged) {
            float sum = 0.0f;
            for (int t = threadIdx.x; t < D::TILES; t += THREADS)
                sum += room.tile_sum[t] * ratio(room.tile_top[t], best.value, cool[0]);
            sum = block_sum<THREADS>(sum, sums);
            if (threadIdx.x == 0)
                room.sum = sum;
            block_sync();
        }
        const Draw<D> draw = {room, a.values + (i64)row * K::V, best.value, cool[0]};
        token = draw.token(p, merged);
    }
    if (warp_id() != 0)
        return;
    float raw = best.value;
    if (!merged && !p.simple)
        raw = load_l2_scalar(a.logits + (i64)row * K::V + token);
    if (merged && draws && raw > negative_infinity())
        raw = room.value;
    bool end = false;
    for (int i = lane_id(); i < p.n_ends; i += 32)
        end = end || a.ends[row * K::END_IDS + i] == token;
    end = warp_ballot(end) != 0;
    if (lane_id() == 0)
        publish<K>(a, row, r, end, token, raw - raw_top - logf(raw_sum));
}
