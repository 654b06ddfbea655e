// beam.cuh - one step of beam search: of all continuations of a search's lanes the best, as in Hugging Face's generate
// (kernels/ref/beam.c has it in plain loops; buffers: device/io.h).
//
//   logits [S, V] fp32   raw; one row for each lane, the lanes of a search in neighbouring rows
//   sampled [S]          what `sample` chose for rows that are no search; they pass to y
//   y [S]                the lanes' next ids; also $token, $rows, $lanes, $owner, $hyps, $logps and, for the host, $out
//
// Grid: gridDim.x blocks share a row, blockIdx.y gives the row.
//
//   row     | range of RANGE ids | range | ...          block b: ranges b, b + blocks, ...
//   range   | tile | tile | ...  TILE ids, one warp     -> maximum, sum of exp; the block's `take` best ids (body/tops.cuh)
//   last block of a row      merges the blocks: log-sum-exp, the row's `take` best. A row with processors is searched
//                            only here: they work on log-probabilities, so this block reads the row a second time
//   last block of a search   merges the rows: new hypotheses, the lanes of the next step (body/lanes.cuh)
//
// take = width + number of end ids. That is enough: among the best `width` continuations of a search none is deeper in
// its row, nor among the best `width` that do not end; and earlier diverse groups push at most as many ids of a row
// back as they have lanes.
//
// SEGMENTS: the LM head's kernel has written segments of the logits (body/segments.cuh), and one block does a row. Of a
// row without processors it reads the segments and the logits of the `take` best ones; no other holds one of the best.
// Narrow: top_needed is at most MAX_TOP_NEEDED, so only candidates are written. One block then does all rows of the
// search; several warps share a row (body/beam_narrow.cuh).
//
// What the search stores between steps is read before wait_for_previous(): the previous step has written it, and
// `embed` starts no kernel of this step before that one has ended.
//
// Nothing is sorted and nothing is written over the whole vocabulary.
#pragma once
#include "device/atomic.cuh"
#include "device/block.cuh"
#include "device/fragment.cuh"
#include "device/l2.cuh"
#include "device/order.cuh"
#include "device/pdl.cuh"
#include "device/vec.cuh"
#include "body/beam_narrow.cuh"
#include "body/beam_shape.cuh"
#include "body/lanes.cuh"
#include "body/segments.cuh"
#include "body/processors.cuh"
#include "body/tops.cuh"

// One warp's tile, -inf beyond the row.
template <class K> struct BeamValues {
    using D = BeamShape<K>;
    static constexpr int N = D::TILE / 32;
    static constexpr bool FOURS = K::V % 4 == 0; // rows are aligned: a lane has groups of four neighbours
    float x[N];
    int tile;

    static DEVICE int in_tile(int i) { return FOURS ? i / 4 * 128 + lane_id() * 4 + i % 4 : i * 32 + lane_id(); }
    DEVICE int id_of(int i) const { return tile * D::TILE + in_tile(i); }
    DEVICE void load(const float *logits, int tile_)
    {
        tile = tile_;
        if constexpr (FOURS) {
            uint4_ v[N / 4];
#pragma unroll
            for (int i = 0; i < N; i += 4)
                v[i / 4] = id_of(i) < K::V ? load_l2(logits + id_of(i)) : uint4_{0xff800000u, 0xff800000u, 0xff800000u, 0xff800000u};
#pragma unroll
            for (int i = 0; i < N; i += 4) {
                x[i] = __uint_as_float(v[i / 4].x) + 0.0f; // -0 is 0
                x[i + 1] = __uint_as_float(v[i / 4].y) + 0.0f;
                x[i + 2] = __uint_as_float(v[i / 4].z) + 0.0f;
                x[i + 3] = __uint_as_float(v[i / 4].w) + 0.0f;
            }
        } else {
#pragma unroll
            for (int i = 0; i < N; i++)
                x[i] = id_of(i) < K::V ? load_l2_scalar(logits + id_of(i)) + 0.0f : negative_infinity();
        }
    }
    DEVICE BeamTile numbers() const
    {
        float top = x[0], sum[4] = {};
#pragma unroll
        for (int i = 1; i < N; i++)
            top = fmaxf(top, x[i]);
        top = order_value(warp_most(order_key(top)));
        const float base = top == negative_infinity() ? 0.0f : top;
#pragma unroll
        for (int i = 0; i < N; i++)
            sum[i % 4] += exp2_fast((x[i] - base) * 1.4426950408889634f);
        return BeamTile{top, warp_sum((sum[0] + sum[1]) + (sum[2] + sum[3]))};
    }
    // Values become log-probabilities (x + shift) after processors.
    DEVICE void change(float shift, const u32 *facts, const float *biases, const FtxParams &p)
    {
#pragma unroll
        for (int i = 0; i < N; i++)
            if (id_of(i) < K::V)
                x[i] = process(x[i] + shift, facts[id_of(i) % D::RANGE], biases, p) + 0.0f;
    }
    // All warps of the block: appends what may be among the row's best. A barrier inside.
    DEVICE void push(TopsRoom<D> &room, int take) const
    {
        tops_bound(room, x, take);
        block_sync();
        const int first = tile * D::TILE;
        tops_push(room, x, take, [=](int i) { return first + in_tile(i); });
    }
};

// The slot whose pages and history hold position p of the lane in `slot`.
template <class K> DEVICE int holder(const BeamArgs &a, const BeamGroup<K> &g, int slot, int p)
{
    return p < g.prompt ? g.slots[0] : a.owner[(i64)slot * K::CONTEXT + p];
}

// The block: the best of all rows of the search, with their log-probabilities. The caller adds a barrier.
template <class K> DEVICE void gather_entries(const BeamArgs &a, const BeamGroup<K> &g, BeamEntry *entry)
{
    using D = BeamShape<K>;
#pragma unroll 1
    for (int i = threadIdx.x; i < g.live * g.take; i += D::THREADS) {
        const int row = g.row + i / g.take;
        const BeamBest *best = a.best + (i64)row * (D::MOST + 1);
        const u64 e = load_l2_scalar((const u64 *)(best + i % g.take));
        const int id = (int)(e >> 32);
        const float logit = id < 0 ? 0.0f : load_l2_scalar(a.logits + (i64)row * K::V + id);
        entry[i] = BeamEntry{{__uint_as_float((u32)e), id}, logit + load_l2_scalar(&best[D::MOST].total)};
    }
}

// The block: owners of the positions [p, p + n) of all lanes, as [width][n].
template <class K> DEVICE void load_owners(const BeamArgs &a, const BeamGroup<K> &g, int *to, int p, int n)
{
#pragma unroll 1
    for (int i = threadIdx.x; i < n * g.beam.width; i += BeamShape<K>::THREADS)
        to[i] = a.owner[(i64)g.slots[i / n] * K::CONTEXT + p + i % n];
}

// The block: writes the ids and log-probabilities of new hypotheses. Ends with a barrier.
template <class K> DEVICE void keep_ids(const BeamArgs &a, const BeamGroup<K> &g)
{
#pragma unroll 1
    for (int i = 0; i < g.beam.width; i++) {
        if (g.hyp_from[i] < 0)
            continue;
        const int slot = g.slots[g.hyp_from[i]], n = g.length - g.prompt;
        int *ids = a.hyps + (i64)g.slots[i] * K::CONTEXT;
        float *logps = a.logps + (i64)(K::SEQUENCES + g.slots[i]) * K::CONTEXT;
#pragma unroll 1
        for (int p = threadIdx.x; p < n; p += BeamShape<K>::THREADS) {
            const i64 at = (i64)holder<K>(a, g, slot, g.prompt + p) * K::CONTEXT + g.prompt + p;
            ids[p] = a.history[at];
            logps[p] = a.logps[at];
        }
        if (threadIdx.x == 0) {
            ids[n] = g.hyp_last[i];
            logps[n] = g.hyp_logp[i];
        }
    }
    block_sync();
}

// All warps but warp 0: lane i goes on from lane parent[i] and takes its owners of the positions [p, p + n).
template <class K> DEVICE void move_owners(const BeamArgs &a, const BeamGroup<K> &g, const int *from, int p, int n)
{
#pragma unroll 1
    for (int i = 0; i < g.beam.width && warp_id() > 0; i++) {
        int *to = a.owner + (i64)g.slots[i] * K::CONTEXT + p;
#pragma unroll 1
        for (int k = threadIdx.x - 32; k < n; k += BeamShape<K>::THREADS - 32)
            to[k] = from[g.parent[i] * n + k];
    }
}

// The block: the entries [live][take] of all rows, at the start of shared memory, become the next step.
template <class K> DEVICE void merge_group(const BeamArgs &a, BeamGroup<K> &g, char *shared)
{
    using D = BeamShape<K>;
    const BeamEntry *entry = (const BeamEntry *)shared;
    if (warp_id() == 0)
        choose_all<K>(g, entry);
    block_sync();

    if (any_kept<K>(g))
        keep_ids<K>(a, g); // reads owners, so before these move
    if (g.moved && !g.ahead) {
        const int step = D::MOVED / g.beam.width;
#pragma unroll 1
        for (int p = g.prompt; p < g.length; p += step) {
            const int n = least(step, g.length - p);
            load_owners<K>(a, g, (int *)shared, p, n);
            block_sync();
            move_owners<K>(a, g, (int *)shared, p, n);
            block_sync();
        }
    }
    if (warp_id() == 0)
        judge<K>(g);
    else if (g.moved && g.ahead)
        move_owners<K>(a, g, (int *)(shared + D::OWNERS_AT), g.prompt, g.length - g.prompt);
    block_sync();

    if (threadIdx.x == D::THREADS - 1) {
        FtxOut *out = a.out + (i64)(g.length % FTX_OUT_RING) * K::SEQUENCES + g.row;
        store_relaxed16_system(out, uint4_{(u32)(g.broken ? -1 : g.next[0]), __float_as_uint(g.total[0]),
                                       (u32)(g.done ? g.finish : 0), (u32)g.length});
    }
    const int i = threadIdx.x;
    if (i < g.beam.width) {
        const int slot = g.slots[i], row = g.row + i;
        FtxLane &l = a.lanes[slot];
        l.score = g.total[i];
        l.token = g.next[i];
        l.hyp_score = g.hyp_score[i];
        l.hyp_sum = g.hyp_sum[i];
        l.hyp_length = g.hyp_length[i];
        l.hyp_end = g.hyp_end[i];
        const i64 at = (i64)slot * K::CONTEXT + least(g.length, K::CONTEXT - 1);
        a.owner[at] = slot; // the lane owns its new position
        a.logps[at] = g.logp[i];
        if (i < g.live) { // lanes without a row yet: row + i is another sequence's
            a.y[row] = g.next[i];
            if (g.done) {
                a.rows[row].done = 1;
            } else {
                a.token[row] = FtxToken{g.next[i], g.length, row, slot};
                a.rows[row].kv_len = g.length + 1;
            }
        }
    }
}

// Whether this block is the last of `all` to get here.
DEVICE bool comes_last(u32 *counter, u32 all, u32 *room)
{
    block_sync();
    if (threadIdx.x == 0) {
        *room = atomic_add_acq_rel(counter, 1) == all - 1;
        if (*room)
            *counter = 0;
    }
    block_sync();
    return *room;
}

// This block's tiles of a row: their numbers and, in a row without processors, their best. Whether it is the row's last block.
template <class K>
DEVICE bool beam_tiles(const BeamArgs &a, const BeamGroup<K> &g, TopsRoom<BeamShape<K>> &tops, int row, u32 *last)
{
    using D = BeamShape<K>;
    const float *logits = a.logits + (i64)row * K::V;
    u64 *lists = a.lists + ((i64)row * D::RANGES + blockIdx.x) * D::MOST;
    const bool simple = g.params.simple;
    BeamValues<K> values;
    for (int base = blockIdx.x * D::RANGE; base < K::V; base += gridDim.x * D::RANGE) {
        values.load(logits, base / D::TILE + warp_id());
        const BeamTile numbers = values.numbers();
        if (lane_id() == 0 && values.tile < D::TILES)
            a.tiles[(i64)row * D::TILES + values.tile] = numbers;
        if (simple)
            values.push(tops, g.take);
        if (simple && base + gridDim.x * D::RANGE < K::V)
            tops_next(tops, g.take);
    }
    if (simple)
        tops_sort(tops, g.take);
    if (gridDim.x > 1 && simple)
        for (int i = threadIdx.x; i < g.take; i += D::THREADS)
            lists[i] = i < (int)tops.n ? tops.list[i] : 0;
    if (gridDim.x > 1)
        return comes_last(a.counters + row, gridDim.x, last);
    block_sync();
    return true;
}

// Merges the best of a row's blocks into `tops`.
template <class K> DEVICE void beam_merge(const BeamArgs &a, const BeamGroup<K> &g, TopsRoom<BeamShape<K>> &tops, int row)
{
    using D = BeamShape<K>;
    const u64 *lists = a.lists + (i64)row * D::RANGES * D::MOST;
    tops_start(tops);
    for (int from = 0; from < (int)gridDim.x; from += D::WARPS) {
        const int n = least(D::WARPS, (int)gridDim.x - from) * g.take;
        tops_next(tops, g.take);
#pragma unroll 1
        for (int i = threadIdx.x; i < n; i += D::THREADS) {
            const u64 place = load_l2_scalar(lists + (from + i / g.take) * D::MOST + i % g.take);
            if (place)
                tops.list[shared_atomic_add(&tops.n, 1u)] = place;
        }
    }
    tops_sort(tops, g.take);
}

// Maximum and sum of all segments of a row, or of all its tiles, in registers of the block; -inf and 0 where there is none.
template <class K> struct BeamSegments {
    using D = BeamShape<K>;
    static constexpr int N = ceil_div(K::SEGMENTS ? FTX_SEGMENTS(K::V) : D::TILES, D::THREADS);
    float top[N], sum[N];

    static DEVICE int index(int i) { return warp_id() * N * 32 + i * 32 + lane_id(); }
    DEVICE void load(const FtxSegments *segments, int row)
    {
        const FtxSegment *from = segments_of(segments, K::V, row);
        const int count = load_l2_scalar(&segments->count);
#pragma unroll
        for (int i = 0; i < N; i++) {
            const FtxSegment segment = index(i) < FTX_SEGMENTS(K::V) ? segment_load(from + index(i)) : FtxSegment{};
            top[i] = index(i) < count ? segment.top : negative_infinity();
            sum[i] = index(i) < count ? segment.sum : 0.0f;
        }
    }
    DEVICE void load_tiles(const BeamTile *tiles)
    {
#pragma unroll
        for (int i = 0; i < N; i++) {
            top[i] = index(i) < D::TILES ? load_l2_scalar(&tiles[index(i)].top) : negative_infinity();
            sum[i] = index(i) < D::TILES ? load_l2_scalar(&tiles[index(i)].sum) : 0.0f;
        }
    }
    // The row's best, from the logits of its best segments.
    DEVICE void search(TopsRoom<D> &tops, const float *logits, const FtxSegment *segments, int take) const
    {
        constexpr int EACH = SEGMENT_COLUMNS / 32; // values of a lane
        SHARED(int, which, D::MOST);
        tops_bound(tops, top, take);
        block_sync();
        tops_push(tops, top, take, [](int i) { return index(i); });
        tops_sort(tops, take);
        const int n = tops.n;
        const u32 bound = n == take ? (u32)(tops.list[n - 1] >> 32) : 0; // of the row's take-th value
        for (int i = threadIdx.x; i < n; i += D::THREADS)
            which[i] = place_id(tops.list[i]);
        block_sync();
        if (threadIdx.x == 0)
            tops.n = 0;
        if (threadIdx.x < D::WARPS)
            tops.bound[threadIdx.x] = bound;
        block_sync();
#pragma unroll 1
        for (int from = 0; from < n; from += D::WARPS) {
            const FtxSegment segment = from + warp_id() < n ? segment_load(segments + which[from + warp_id()]) : FtxSegment{};
            const int first = segment.first + lane_id();
            float x[EACH];
#pragma unroll
            for (int i = 0; i < EACH; i++)
                x[i] = i * 32 + lane_id() < segment.width ? load_l2_scalar(logits + first + i * 32) + 0.0f : negative_infinity();
            tops_push(tops, x, take, [=](int i) { return first + i * 32; });
            tops_next(tops, take);
        }
        tops_sort(tops, take);
    }
};

// log-sum-exp of a row from N maxima and sums of each thread. `room`: as for block_sum.
template <int THREADS, int N> DEVICE float row_sum(const float (&top)[N], const float (&sum)[N], float *room)
{
    float high = top[0], all = 0.0f;
#pragma unroll
    for (int i = 1; i < N; i++)
        high = fmaxf(high, top[i]);
    high = block_max<THREADS>(high, room);
    block_sync();
#pragma unroll
    for (int i = 0; i < N; i++)
        all += top[i] > negative_infinity() ? sum[i] * expf(top[i] - high) : 0.0f;
    return high + logf(block_sum<THREADS>(all, room));
}

// The best of one row, by its block or blocks. Whether this is the last block of the search; it then has all rows' entries.
template <class K>
DEVICE bool beam_row(const BeamArgs &a, BeamGroup<K> &g, TopsRoom<BeamShape<K>> &tops, int row, float *sums, u32 *last, char *shared)
{
    using D = BeamShape<K>;
    // The row's last block: log-sum-exp over segments or tiles, in an order that does not depend on gridDim.x.
    const bool simple = g.params.simple;
    BeamSegments<K> segments;
    if constexpr (K::SEGMENTS) {
        segments.load(a.segments, row);
    } else {
        if (!beam_tiles<K>(a, g, tops, row, last))
            return false;
        segments.load_tiles(a.tiles + (i64)row * D::TILES);
    }
    const float shift = -row_sum<D::THREADS>(segments.top, segments.sum, sums);
    if (threadIdx.x == 0)
        a.best[(i64)row * (D::MOST + 1) + D::MOST].total = shift;
    const int forced = forced_id<K>(g);
    const bool runs = shift - shift == 0.0f && g.score > negative_infinity(); // shift is finite, and the lane is running
    if (runs && forced < 0) {
        if (!simple) {
            BeamValues<K> values;
            int *past = a.past + (i64)row * K::CONTEXT;
            u32 *facts = (u32 *)shared;
            float *biases = (float *)(facts + D::RANGE);
            for (int p = threadIdx.x; p < g.length; p += D::THREADS)
                past[p] = a.history[(i64)holder<K>(a, g, g.slot, p) * K::CONTEXT + p];
            tops_start(tops);
            block_sync();
            const FtxRow r = a.rows[row];
            for (int base = 0; base < K::V; base += D::RANGE) {
                values.load(a.logits + (i64)row * K::V, base / D::TILE + warp_id());
                gather_facts<D::RANGE, D::THREADS>(facts, biases, g.params, r, past, a.ends + g.row * K::END_IDS,
                                                   a.bias + g.row * K::LOGIT_BIAS,
                                                   a.bad_words + (i64)g.slots[0] * K::BAD_WORDS,
                                                   [=](int id) { return (u32)(id - base); });
                values.change(shift, facts, biases, g.params);
                values.push(tops, g.take);
                tops_next(tops, g.take);
            }
            tops_sort(tops, g.take);
        } else if constexpr (K::SEGMENTS) {
            segments.search(tops, a.logits + (i64)row * K::V, segments_of(a.segments, K::V, row), g.take);
        } else if (gridDim.x > 1) {
            beam_merge<K>(a, g, tops, row);
        }
    }
    BeamBest *best = a.best + (i64)row * (D::MOST + 1);
    for (int i = threadIdx.x; i < g.take; i += D::THREADS)
        best[i] = !runs || i >= (forced < 0 ? (int)tops.n : 1) ? BeamBest{0.0f, -1}
                  : forced < 0 ? BeamBest{g.score + (place_value(tops.list[i]) + (simple ? shift : 0.0f)), place_id(tops.list[i])}
                               : BeamBest{g.score, forced};
    if (!comes_last(a.groups + g.row, g.live, last))
        return false;
    gather_entries<K>(a, g, (BeamEntry *)shared);
    block_sync();
    return true;
}

// The block: fills `g` with the state of row r's search that can be read before the wait. A barrier inside; g.score is set after it.
template <class K>
DEVICE void begin_group(const BeamArgs &a, BeamGroup<K> &g, int row, const FtxRow &r, const FtxBeam &beam, bool narrow)
{
    const int i = threadIdx.x, n = r.kv_len - r.prompt;
    if (i < beam.width) {
        const int slot = a.group[(i64)(narrow ? r.slot : a.rows[r.group].slot) * K::WIDTH + i];
        const FtxLane l = a.lanes[slot];
        g.slots[i] = slot;
        g.scores[i] = l.score;
        g.hyp_score[i] = l.hyp_score;
        g.hyp_sum[i] = l.hyp_sum;
        g.hyp_length[i] = n ? l.hyp_length : 0;
        g.hyp_end[i] = l.hyp_end;
        g.hyp_from[i] = -1;
    }
    if (i == K::WIDTH) {
        g.norm = powf((float)(n + 1), beam.length_penalty);
        g.far = beam.early == 2 && beam.length_penalty > 0.0f ? powf((float)(r.limit - r.prompt), beam.length_penalty) : g.norm;
    }
    if (i == 128) {
        g.row = r.group;
        g.lane = row - r.group;
        g.slot = r.slot;
        g.length = r.kv_len;
        g.prompt = r.prompt;
        g.limit = r.limit;
        g.beam = beam;
        g.params = a.params[r.group];
        g.live = n ? beam.width : 1;
        g.take = beam.width + g.params.n_ends;
        g.inverse = 65535 / g.take + 1;
        g.size = beam.groups > 1 ? beam.width / beam.groups : beam.width;
        g.rate = forced_id<K>(g) >= 0 ? 0.0f : beam.diversity;
        g.ahead = narrow && n * beam.width <= BeamShape<K>::MOVED;
    }
    if (i < a.params[r.group].n_ends)
        g.ends[i] = a.ends[r.group * K::END_IDS + i];
    block_sync();
    if (i == 0)
        g.score = n ? g.scores[g.lane] : 0.0f;
}

template <class K> // K: V CONTEXT SEQUENCES LOGIT_BIAS BAD_WORDS END_IDS WIDTH SEGMENTS BLOCKS
__device__ void beam(const BeamArgs &a)
{
    using D = BeamShape<K>;
    // Rows of lane 0 first: in a narrow search only their blocks have work.
    const int S = gridDim.y, y = blockIdx.y;
    const int row = S % K::WIDTH == 0 ? y % (S / K::WIDTH) * K::WIDTH + y / (S / K::WIDTH) : y;
    char *shared = shared_memory();
    SHARED(BeamGroup<K>, group_, 1);
    SHARED(float, sums, 33);
    SHARED(u32, last, 1);
    SHARED(TopsRoom<D>, tops_, 1);
    TopsRoom<D> &tops = tops_[0];
    BeamGroup<K> &g = group_[0];

    launch_dependents();
    // Read before the wait: these are written between programs, and `sample`, the previous kernel, writes no row of a search.
    const int rows = a.step->rows, need = a.params[row].top_needed, group = a.rows[row].group;
    const FtxBeam beam = a.beams[row];
    const bool search = row < rows && beam.width;
    const bool narrow = K::SEGMENTS && search && need > 1 && need <= MAX_TOP_NEEDED;
    const bool other = narrow && group != row; // the block of lane 0's row does the whole search
    if (!search || !beam.emit || other || a.rows[row].done) {
        if (!search || y == 0)
            wait_for_previous(); // if no block waited, later kernels would start early
        if (!search && row < rows && blockIdx.x == 0 && threadIdx.x == 0)
            a.y[row] = a.sampled[row];
        return;
    }
    begin_group<K>(a, g, row, a.rows[row], beam, narrow);
    if (g.ahead)
        load_owners<K>(a, g, (int *)(shared + D::OWNERS_AT), g.prompt, g.length - g.prompt);

    tops_start(tops);
    block_sync();
    const RowWarps warps = row_warps(g);
    wait_for_previous();
    if (narrow)
        beam_narrow<K>(a, g, warps, shared);
    else if (!beam_row<K>(a, g, tops, row, sums, last, shared))
        return;
    merge_group<K>(a, g, shared);
}
