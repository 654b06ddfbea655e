// sample.cuh - the next token of every row that asks for one: processors, selection, draw, end.
//
//   logits [S, V] fp32      raw
//   y [S]                   token ids; also $out, and $token and $rows for the next decode step
//
// Blocks share the rows out: gridDim.x blocks a row, each walks ranges of RANGE ids. A tile of TILE
// ids is the work of one warp and leaves five numbers: maximum and sum of exp of the raw logits
// (for the log-probability), maximum, its id, and sum of exp of the processed ones. The last block
// of a row merges its tiles in their order, so the result does not depend on gridDim.x, then
// chooses: the arg max, or a draw (part/draw.cuh) from the processed row in `values`.
#pragma once
#include "device/atomic.cuh"
#include "device/block.cuh"
#include "device/fragment.cuh"
#include "device/pdl.cuh"
#include "device/philox.cuh"
#include "device/vec.cuh"
#include "part/draw.cuh"
#include "part/processors.cuh"

struct SampleArgs {
    const float *logits;
    const FtxStep *step;
    FtxRow *rows;
    const FtxParams *params;
    const int *ends;
    const FtxBias *bias;
    FtxToken *token;
    const int *history;
    FtxOut *out;
    int *y;
    struct SampleTile *tiles; // [S][TILES]
    float *values;            // [S][V]
    u32 *counters;            // [S] blocks done; zero between launches
};

struct alignas(16) SampleTile {
    float raw_top, raw_sum; // sum of exp(x - top)
    float top, sum;         // the same after processors
    int id;                 // of top, the lowest
    int unused[3];
};

template <class K> struct SampleShape {
    static constexpr int THREADS = 512, WARPS = THREADS / 32, TILE = 256, RANGE = WARPS * TILE;
    static constexpr int V = K::V, TILES = ceil_div(V, TILE);
    static constexpr int FACTS = RANGE * 8; // bytes: a word and a bias an id
    static constexpr int SHARED = most(FACTS, (int)sizeof(DrawRoom<SampleShape>));
};

// One warp, one tile: its numbers, and the processed values where they are drawn from.
template <class K> DEVICE void sample_tile(const SampleArgs &a, int row, int tile, const FtxParams &p, const u32 *facts, const float *shift)
{
    using D = SampleShape<K>;
    constexpr int N = D::TILE / 32; // values of a lane: fours of neighbours where rows are aligned
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
            x[i] = id_of(i) < K::V ? __ldcg(logits + id_of(i)) : negative_infinity();
    }
    SampleTile t;
    t.raw_top = x[0];
#pragma unroll
    for (int i = 1; i < N; i++)
        t.raw_top = fmaxf(t.raw_top, x[i]);
    t.raw_top = warp_max(t.raw_top);
    const float raw_base = t.raw_top == negative_infinity() ? 0.0f : t.raw_top;
    t.raw_sum = 0.0f;
#pragma unroll
    for (int i = 0; i < N; i++)
        t.raw_sum += expf(x[i] - raw_base);
    t.raw_sum = warp_sum(t.raw_sum);

    Best best = {negative_infinity(), 0x7fffffff};
#pragma unroll
    for (int i = 0; i < N; i++) {
        const int id = id_of(i);
        if (!p.simple && id < K::V) {
            const int at = id % D::RANGE;
            x[i] = process(x[i], facts[at], shift[at], p);
        }
        x[i] = x[i] == x[i] ? x[i] + 0.0f : negative_infinity(); // no NaN, no -0: ties are ties
        if (id < K::V)
            best = better(best, Best{x[i], id});
    }
    best = warp_best(best);
    t.top = best.value;
    t.id = best.id;
    t.sum = 0.0f;
    if (p.temperature > 0.0f) {
        float *values = a.values + (i64)row * K::V;
#pragma unroll
        for (int i = 0; i < N; i++) {
            t.sum += t.top == negative_infinity() ? 0.0f : expf(x[i] - t.top);
            if (id_of(i) < K::V)
                values[id_of(i)] = x[i];
        }
        t.sum = warp_sum(t.sum);
    }
    if (lane_id() == 0)
        a.tiles[(i64)row * D::TILES + tile] = t;
}

// Thread 0: the result for the host, and the row's next step.
template <class K> DEVICE void publish(const SampleArgs &a, int row, const FtxRow &r, const FtxParams &p, int token, float logprob)
{
    const int n = r.kv_len; // its position
    int finish = n + 1 >= r.limit ? 2 : 0;
    for (int i = 0; i < p.n_ends; i++)
        if (a.ends[row * K::END_IDS + i] == token)
            finish = 1;
    a.y[row] = token;
    FtxOut *out = a.out + (i64)(n % FTX_OUT_RING) * K::SEQUENCES + row;
    out->token = token;
    out->logprob = logprob;
    out->finish = finish;
    if (finish) {
        a.rows[row].done = 1;
    } else {
        a.rows[row].kv_len = n + 1;
        a.token[row] = FtxToken{token, n, row, r.slot};
    }
    store_release_system((u32 *)&out->length, (u32)n);
}

template <class K> // K: V CONTEXT SEQUENCES LOGIT_BIAS END_IDS
__device__ void sample(const SampleArgs &a)
{
    using D = SampleShape<K>;
    const int row = blockIdx.y;
    char *shared = shared_memory();
    SHARED(float, sums, 33);
    SHARED(Best, bests, 32);
    SHARED(u32, last, 1);
    u32 *facts = (u32 *)shared;
    float *shift = (float *)(facts + D::RANGE);

    launch_dependents();
    wait_for_previous();
    if (row >= a.step->rows)
        return;
    const FtxRow r = a.rows[row];
    if (!r.emit || r.done)
        return;
    const FtxParams p = a.params[row];
    for (int base = blockIdx.x * D::RANGE; base < K::V; base += gridDim.x * D::RANGE) {
        if (!p.simple)
            gather_facts<D::RANGE, D::THREADS>(facts, shift, base, p, r, a.history + (i64)r.slot * K::CONTEXT,
                                               a.ends + row * K::END_IDS, a.bias + row * K::LOGIT_BIAS);
        const int tile = base / D::TILE + warp_id();
        if (tile < D::TILES)
            sample_tile<K>(a, row, tile, p, facts, shift);
    }
    block_sync();
    if (threadIdx.x == 0) {
        last[0] = atomic_add_acq_rel(a.counters + row, 1) == gridDim.x - 1;
        if (last[0])
            a.counters[row] = 0;
    }
    block_sync();
    if (!last[0])
        return;

    // The last block of the row.
    DrawRoom<D> &room = *(DrawRoom<D> *)shared;
    const SampleTile *tiles = a.tiles + (i64)row * D::TILES;
    float raw_top = negative_infinity();
    Best best = {negative_infinity(), 0x7fffffff};
    for (int t = threadIdx.x; t < D::TILES; t += D::THREADS) {
        raw_top = fmaxf(raw_top, __ldcg(&tiles[t].raw_top));
        const Best b = {__ldcg(&tiles[t].top), __ldcg(&tiles[t].id)};
        room.tile_top[t] = b.value;
        best = better(best, b);
    }
    raw_top = block_max<D::THREADS>(raw_top, sums);
    best = block_best<D::THREADS>(best, bests);
    block_sync();
    float raw_sum = 0.0f, sum = 0.0f;
    for (int t = threadIdx.x; t < D::TILES; t += D::THREADS) {
        raw_sum += __ldcg(&tiles[t].raw_sum) * expf(__ldcg(&tiles[t].raw_top) - raw_top);
        if (p.temperature > 0.0f)
            sum += __ldcg(&tiles[t].sum) * ratio(__ldcg(&tiles[t].top), best.value);
    }
    raw_sum = block_sum<D::THREADS>(raw_sum, sums);
    block_sync();
    int token = best.id;
    if (p.temperature > 0.0f && best.value > negative_infinity()) {
        sum = block_sum<D::THREADS>(sum, sums);
        const uint4_ random = philox(uint4_{(u32)r.kv_len, (u32)p.sample, 0, 0}, p.seed_low, p.seed_high);
        const Draw<D> draw = {room, a.values + (i64)row * K::V, best.value, p.min_p};
        token = draw.token(p, random.x >> 8, sum);
    }
    if (threadIdx.x == 0)
        publish<K>(a, row, r, p, token, __ldcg(a.logits + (i64)row * K::V + token) - raw_top - logf(raw_sum));
}
