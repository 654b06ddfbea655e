// linear.cuh - linear layers of 1 to 8 rows on sm_90: the hot loop of decoding.
//
//   y[m,n] = epilogue(sum_k norm(x)[m,k] * w[n,k] + b[n])         epilogue: activation, GLU, residual, RoPE + cache, or
//                                                                 segments of logits (body/linear.cuh)
//   x  [M, K]  16-bit, row-major, K % 8 == 0      g, c [K] fp32   gain and bias of the norm
//   w  [N, K]  16-bit, row-major                  b [N] fp32, r [M, N]
//   y  [M, N]  16-bit or fp32                     sums in fp32
//
// What limits it: reading w once. A tile is 8 rows of w; block i computes a run of neighbouring tiles. Its warps:
//
//   warps 0..7  load x into shared memory (normalised), then multiply: w is the B operand of mma.m16n8k16, x the A
//               operand. Warp j takes the blocks of 32 k with number j mod 8; the 8 partial sums are added at the end
//   warp 8      streams w through a ring in shared memory by bulk copies; it starts before the previous kernel has ended
//   warps 9..   statistics of an RMS norm, or of the residual's layer norm; needed only at the end
//
//   w, 8 rows:  | chunk 0 (up to CHUNK_MAX k) | chunk 1 | ...       a slot of the ring holds a chunk of a tile;
//                 turn 0: rows 0..3, turn 1: rows 4..7              each turn has an mbarrier of its own
//
// A lane reads 8 consecutive k of its row with one 16-byte access, from w and x alike: the first four elements of each
// lane make one instruction of 16 k, the last four the other. (ldmatrix needs a row pitch without bank conflicts that
// bulk copies handle 3 % slower on an H200.)
//
// At most IN_FLIGHT bytes are requested and have not arrived: 48 to 64 KB reach the full bandwidth of an H200's SM,
// more only lengthens the queue of other requests. A kernel with a small matrix takes half an SM, so that the next
// kernel can start on the other half.
//
// Order of summation: body/linear.cuh; linear_wide.cuh gives the same bits.
#pragma once
#include "device/async.cuh"
#include "device/block.cuh"
#include "device/mbarrier.cuh"
#include "device/mma.cuh"
#include "device/pdl.cuh"
#include "body/linear.cuh"
#include "body/ring.cuh"

template <class C> struct LinearShape {
    static constexpr int M = pow2_at_least(C::M);                               // rows of x in shared memory
    static constexpr int CHUNKS = ceil_div(C::K, C::CHUNK);                     // chunks of K of a tile
    static constexpr int ROW = C::SLOT_BYTES / 8;                               // bytes of a row in the ring
    static constexpr int ROUND_TILES = M >= 16 ? 1 : 16 / M;                    // tiles between two reductions
    static constexpr int SUMS = ROUND_TILES * 8 * 8 * M;                        // floats of their sums
    static constexpr int X_VECTORS = ceil_div(C::K / 8, 256); // vectors of 8 elements of a row of x for each of 256 threads
    static constexpr int STAT_WARPS = C::RES == 2 ? C::M : 1;                   // warps that compute statistics
    static constexpr bool ROW_WARPS = C::NORM == 1 && M == 8 && C::K <= 4096;   // a warp holds a row of x for its RMS norm
    static constexpr int GAINS = ROW_WARPS ? least(8, ceil_div(C::K, 256)) : X_VECTORS; // vectors of gains that a thread loads early
    static constexpr int KEPT = C::SEGMENTS ? SEGMENT_COLUMNS : 0; // columns of a segment, kept until it is whole
    static constexpr int TURN_ROWS = 8 / C::TURNS;                              // rows in one turn of the producer
    static constexpr int TURNS_AHEAD = most(1, least(C::IN_FLIGHT / (TURN_ROWS * C::CHUNK * 2), C::SLOTS * C::TURNS)); // turns in flight
    static_assert(C::K % 8 == 0, "rows of w must be 16-byte aligned");
};

// The order in which the producer copies: turn after turn of a chunk, chunk after chunk of a tile of 8 rows of w.
template <class C> struct LinearWalk {
    int row, chunk, turn;
    DEVICE void next()
    {
        if (++turn < C::TURNS)
            return;
        turn = 0;
        if (++chunk == LinearShape<C>::CHUNKS) {
            chunk = 0;
            row += 8;
        }
    }
};

// Copies one turn into its slot, by one warp: one bulk copy for each row.
template <class C> DEVICE void linear_copy(const LinearArgs &a, const LinearWalk<C> &at, u32 slot, u32 full)
{
    typedef LinearShape<C> P;
    const int k = at.chunk * C::CHUNK, r = at.turn * P::TURN_ROWS, rows = most(0, least(P::TURN_ROWS, C::N - at.row - r));
    const int bytes = least(C::CHUNK, C::K - k) * 2;
    if (lane_id() == 0)
        mbarrier_expect(full, bytes * rows);
    warp_sync();
    if (lane_id() < rows)
        bulk_copy(slot + (r + lane_id()) * P::ROW,
                  (const typename C::T *)a.w + (i64)(at.row + r + lane_id()) * C::K + k, bytes, full);
}

// Gains and biases of a layer norm for the vectors of x that a lane normalises. Up to K = 512 they fit registers and
// are loaded before the previous kernel has ended.
template <class C> struct LinearNormVectors {
    static constexpr bool AHEAD = C::NORM == 2 && C::K <= 512;
    static constexpr int X_VECTORS = AHEAD ? ceil_div(C::K, 256) : 1;
    Vec<float, 4> g[X_VECTORS][2], c[X_VECTORS][2];

    DEVICE void load_at(const LinearArgs &a, int i, int v)
    {
#pragma unroll
        for (int h = 0; h < 2; h++) {
            g[i][h] = load<4>(a.g + v * 8 + h * 4);
            c[i][h] = load<4>(a.c + v * 8 + h * 4);
        }
    }
    DEVICE void fetch(const LinearArgs &a)
    {
        if (AHEAD)
#pragma unroll
            for (int i = 0; i < X_VECTORS; i++)
                load_at(a, i, least(i * 32 + lane_id(), C::K / 8 - 1));
    }
    DEVICE uint4_ apply(const LinearArgs &a, uint4_ x, const RowStat &s, int i, int v)
    {
        if (!AHEAD)
            load_at(a, 0, v);
        const int at = AHEAD ? i : 0;
        return layer_vector<C>(x, s, g[at][0], g[at][1], c[at][0], c[at][1]);
    }
};

// The vector of a row of x that a thread's i-th vector of gains belongs to.
template <class C> DEVICE int linear_gain_at(int i)
{
    return LinearShape<C>::ROW_WARPS ? i * 32 + lane_id() : threadIdx.x + 256 * i;
}

template <class C> DEVICE uint4_ linear_gain(const LinearArgs &a, int i)
{
    const int v = least(linear_gain_at<C>(i), C::K / 8 - 1);
    return pack_gains<typename C::T>(load<4>(a.g + v * 8), load<4>(a.g + v * 8 + 4));
}

// Loads x into shared memory, with the layer norm or the gains of the RMS norm applied. Tokens beyond the live ones are
// loaded too: M rows may always be read, and a row of y depends on its own row of x only. Of sequences (ROWS_S) only
// live ones are.
template <class C>
DEVICE void linear_load_x(const LinearArgs &a, const uint4_ (&gain)[LinearShape<C>::GAINS], LinearNormVectors<C> &vectors, char *shared)
{
    typedef LinearShape<C> P;
    typedef typename C::T T;
    constexpr int VECS = C::K / 8;
    RowStat *stat = (RowStat *)(shared + C::STATS_AT);
    const int rows = C::ROWS_S ? least(live_rows<C::ROWS_S>(a.step), C::M) : C::M;
    if constexpr (P::ROW_WARPS) { // all of x is under way at once, and read once for products and statistics
        const int m = warp_id();
        if (m >= rows)
            return;
        Vec<T, 8> row[ceil_div(C::K, 256)];
        hold_row<C::K>(row, (const T *)a.x + (i64)source_row<C::LAST>(a.rows, m) * C::K);
        const u32 to = shared_address(shared + C::X_AT + m * C::X_ROW_BYTES);
#pragma unroll
        for (int i = 0; i < ceil_div(C::K, 256); i++)
            if (VECS % 32 == 0 || i * 32 + lane_id() < VECS)
                shared_store16(to + (i * 32 + lane_id()) * 16, rms_vector<C>(*(uint4_ *)&row[i], i < P::GAINS ? gain[i % P::GAINS] : linear_gain<C>(a, i)));
        const RowStat s = held_stat<1, C::K>(row, C::EPS);
        if (lane_id() == 0)
            stat[m] = s;
        return;
    }
    if constexpr (C::NORM == 2 && C::K <= 2048) { // a warp holds a row for its statistic, and norms it then
        for (int m = warp_id(); m < rows; m += 8) {
            Vec<T, 8> row[ceil_div(C::K, 256)];
            hold_row<C::K>(row, (const T *)a.x + (i64)source_row<C::LAST>(a.rows, m) * C::K);
            const RowStat s = held_stat<2, C::K>(row, C::EPS);
            const u32 to = shared_address(shared + C::X_AT + m * C::X_ROW_BYTES);
#pragma unroll
            for (int i = 0; i < ceil_div(C::K, 256); i++) {
                const int v = i * 32 + lane_id();
                if (v < VECS)
                    shared_store16(to + v * 16, vectors.apply(a, *(uint4_ *)&row[i], s, i, v));
            }
        }
        return;
    }
    if (C::NORM == 2) {
        for (int m = warp_id(); m < rows; m += 8) {
            const RowStat s = row_stat<2, C::K>((const T *)a.x + (i64)source_row<C::LAST>(a.rows, m) * C::K, C::EPS);
            if (lane_id() == 0)
                stat[m] = s;
        }
        named_barrier_sync(1, 256);
    }
    constexpr int ALL = C::M * P::X_VECTORS, AT_ONCE = ALL > 8 ? 16 : 8; // loads under way at a time
#pragma unroll
    for (int first = 0; first < ALL; first += AT_ONCE) {
        uint4_ x[AT_ONCE];
#pragma unroll
        for (int j = 0; j < AT_ONCE; j++) {
            const int m = (first + j) / P::X_VECTORS, v = threadIdx.x + 256 * ((first + j) % P::X_VECTORS);
            if (first + j < ALL && m < rows && (VECS % 256 == 0 || v < VECS))
                x[j] = load_l2((const T *)a.x + (i64)source_row<C::LAST>(a.rows, m) * C::K + v * 8);
        }
#pragma unroll
        for (int j = 0; j < AT_ONCE; j++) {
            const int m = (first + j) / P::X_VECTORS, i = (first + j) % P::X_VECTORS, v = threadIdx.x + 256 * i;
            if (first + j >= ALL || m >= rows || (VECS % 256 && v >= VECS))
                continue;
            if (C::NORM == 1)
                x[j] = rms_vector<C>(x[j], gain[i]);
            if (C::NORM == 2)
                x[j] = layer_vector<C>(x[j], stat[m], load<4>(a.g + v * 8), load<4>(a.g + v * 8 + 4), load<4>(a.c + v * 8), load<4>(a.c + v * 8 + 4));
            shared_store16(shared_address(shared + C::X_AT + m * C::X_ROW_BYTES) + v * 16, x[j]);
        }
    }
}

// The products of one chunk that fall to this warp.
template <class C> DEVICE void linear_chunk(float (&d)[4], u32 slot, u32 x, int chunk)
{
    typedef LinearShape<C> P;
    typedef typename C::T T;
    const int g = lane_id() >> 2, t = lane_id() & 3;
    const int k0 = chunk * C::CHUNK + warp_id() * 32 + t * 8;  // of this lane
    const u32 wa = slot + g * P::ROW + warp_id() * 64 + t * 16;
    const u32 xa = x + (g & (P::M - 1)) * C::X_ROW_BYTES + k0 * 2;
#pragma unroll
    for (int j = 0; j < C::CHUNK / 256; j++) {
        if (P::CHUNKS * C::CHUNK > C::K && chunk * C::CHUNK + (warp_id() + 8 * j) * 32 >= C::K)
            break;
        uint4_ w = shared_load16(wa + j * 512), lo = shared_load16(xa + j * 512), hi = lo;
        if (P::M > 8)
            hi = shared_load16(xa + 8 * C::X_ROW_BYTES + j * 512);
        if (C::K % 32 && k0 + j * 256 >= C::K)
            w = lo = hi = uint4_{0, 0, 0, 0};
        mma<T>(d, lo.x, hi.x, lo.y, hi.y, w.x, w.y);
        mma<T>(d, lo.z, hi.z, lo.w, hi.w, w.z, w.w);
    }
}

// RES == 2: the residual is layernorm(r), r [M, N], with gain g and bias c [N]. One warp computes the statistics of
// each row.
template <class C, bool ON = C::RES == 2> struct LinearResidualNorm {
    DEVICE void columns(const LinearArgs &, int) {}
    static DEVICE void stat(const LinearArgs &, int, RowStat *) {}
    DEVICE LinearResidual apply(const LinearResidual &r, const RowStat *, int) const { return r; }
};
template <class C> struct LinearResidualNorm<C, true> {
    typedef typename C::T T;
    Vec<float, 2> gain, bias; // of columns n, n+1

    DEVICE void columns(const LinearArgs &a, int n)
    {
        gain = load<2>(a.g + n);
        bias = load<2>(a.c + n);
    }
    static DEVICE void stat(const LinearArgs &a, int m, RowStat *to)
    {
        if (C::ROWS_S && m >= live_rows<C::ROWS_S>(a.step))
            return;
        Vec<T, 8> row[ceil_div(C::N, 256)];
        hold_row<C::N>(row, (const T *)a.r + (i64)m * C::N);
        const RowStat s = held_stat<2, C::N>(row, C::EPS);
        if (lane_id() == 0)
            to[m] = s;
    }
    // Rounded to 16 bits, as norm.cuh rounds.
    DEVICE LinearResidual apply(LinearResidual r, const RowStat *stat, int m) const
    {
#pragma unroll
        for (int e = 0; e < 2; e++)
            r.r[e] = to_float(from_float<T>(norm_apply(r.r[e], stat[m], gain[e], bias[e])));
        return r;
    }
};

// RMS statistics of rows m, m + step, ... by one warp.
template <class C> DEVICE void linear_stats(const LinearArgs &a, int m, int step, RowStat *stat)
{
    const int rows = C::ROWS_S ? least(live_rows<C::ROWS_S>(a.step), C::M) : C::M;
    for (; m < rows; m += step) {
        const RowStat s = row_stat<1, C::K>((const typename C::T *)a.x + (i64)source_row<C::LAST>(a.rows, m) * C::K, C::EPS);
        if (lane_id() == 0)
            stat[m] = s;
    }
}

// The output (row m, columns n and n + 1) that this thread finishes in a round of `here` tiles; false: none.
template <class C> DEVICE bool linear_item(int tile, int here, int &m, int &n)
{
    here = least(here, LinearShape<C>::ROUND_TILES);
    m = (int)threadIdx.x / (LinearShape<C>::ROUND_TILES * 4);
    const int pair = (int)threadIdx.x - m * (LinearShape<C>::ROUND_TILES * 4);
    n = tile * 8 + pair * 2;
    return m < C::M && pair < here * 4 && n < C::N;
}

// SEGMENTS: writes the columns kept since the last segment as a new one, row m by warp m. `tile`: the next tile.
template <class C> DEVICE void linear_segment(const LinearHeadArgs &a, const float *kept, int first, int tile, int live, int keep)
{
    typedef LinearShape<C> P;
    constexpr int TILES = P::KEPT / 8;
    const int tiles = ceil_div(C::N, 8), each = ceil_div(ceil_div(tiles, (int)gridDim.x), TILES), m = warp_id();
    const int index = (tile - first - 1) / TILES, column = (first + index * TILES) * 8; // of this block's segments
    named_barrier_sync(1, 256);
    if (m < live)
        warp_write_segment<P::KEPT>(segments_of(a.segments, C::N, m) + blockIdx.x * each + index,
                              (float *)a.y + (i64)m * C::N, kept + m * P::KEPT, column, least(tile * 8, C::N) - column, keep,
                              inv_temperature_of(a, m, keep));
}

// SEGMENTS: fills the block's unused segments with empty ones, and writes the number of segments of a row.
template <class C> DEVICE void linear_segments_end(const LinearHeadArgs &a, int count, int live)
{
    constexpr int TILES = LinearShape<C>::KEPT / 8;
    const int each = ceil_div(ceil_div(ceil_div(C::N, 8), (int)gridDim.x), TILES), m = warp_id();
    const int index = ceil_div(count, TILES) + lane_id();
    if (m < live && index < each)
        segment_store_empty(segments_of(a.segments, C::N, m) + blockIdx.x * each + index, C::N);
    if (blockIdx.x == 0 && threadIdx.x == 0)
        a.segments->count = gridDim.x * each;
}

template <class C, class A> DEVICE void linear(const A &a)
{
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
    typedef LinearShape<C> P;
    launch_dependents();
    char *shared = shared_memory();
    const Ring<C::SLOTS, C::SLOT_BYTES, C::TURNS> ring = {shared_address(shared + C::RING_AT), shared_address(shared)};
    const int tiles = ceil_div(C::N, 8);
    const int first = (int)((i64)blockIdx.x * tiles / gridDim.x);
    const int count = (int)((i64)(blockIdx.x + 1) * tiles / gridDim.x) - first;
    const int total = count * P::CHUNKS * C::TURNS;
    LinearWalk<C> walk = {first * 8, 0, 0};

    if (warp_id() == 8) {
        if (lane_id() == 0) {
            ring.init(1, 8);
            mbarrier_init_fence();
        }
        warp_sync();
        for (int i = 0; i < P::TURNS_AHEAD && i < total; i++, walk.next())
            linear_copy<C>(a, walk, ring.data(i / C::TURNS), ring.full(0, i));
    }
    block_sync();
    if (warp_id() == 8) {
        RingSlot<C::SLOTS * C::TURNS> turn = {0, 1}, oldest = {0, 0};
        turn.skip(P::TURNS_AHEAD);
        for (int i = P::TURNS_AHEAD; i < total; i++, walk.next()) {
            mbarrier_wait(ring.empty(turn.at / C::TURNS), turn.parity);
            mbarrier_wait(ring.full(0, oldest.at), oldest.parity);
            linear_copy<C>(a, walk, ring.data(turn.at / C::TURNS), ring.full(0, turn.at));
            oldest.next();
            turn.next();
        }
        return;
    }

    RowStat *stat = (RowStat *)(shared + C::STATS_AT);
    if (warp_id() >= 9) { // statistics
        wait_for_previous();
        if (C::NORM == 1 && P::M <= 4)
            linear_stats<C>(a, 0, 1, stat);
        LinearResidualNorm<C>::stat(a, warp_id() - 9, stat);
        named_barrier_arrive(2, 256 + P::STAT_WARPS * 32);
        return;
    }
    uint4_ gain[P::GAINS];
    if (C::NORM == 1)
#pragma unroll
        for (int i = 0; i < P::GAINS; i++)
            gain[i] = linear_gain<C>(a, i);
    int m = 0, n = 0; // this thread's output of a round
    bool mine = linear_item<C>(first, count, m, n);
    LinearBias bias = linear_bias<C>(a, mine ? n : C::N);
    LinearResidualNorm<C> rest;
    rest.columns(a, mine ? n : 0);
    LinearNormVectors<C> vectors;
    vectors.fetch(a);
    wait_for_previous();
    const int live = least(live_rows<C::ROWS_S>(a.step), C::M);
    const FtxToken token = linear_token<C>(a, mine ? m : 0);
    int keep = 0;
    if constexpr (C::SEGMENTS)
        keep = warp_id() < live ? keep_of(a, warp_id()) : 0;
    LinearResidual residual = linear_residual<C>(a, m, mine ? n : C::N);
    linear_load_x<C>(a, gain, vectors, shared);
    named_barrier_sync(1, 256);
    LinearPlace place = {};
    if (mine && m < live)
        place = linear_place<C>(a, token, n);
    if (C::NORM == 1 && P::M > 4 && !P::ROW_WARPS) // needed only at the end
        linear_stats<C>(a, 7 - warp_id(), 8, stat);

    const u32 x = shared_address(shared + C::X_AT);
    float *sums = (float *)(shared + C::SUMS_AT);  // [2][ROUND_TILES][chain 8][M][8]
    RingSlot<C::SLOTS> slot = {0, 0};
    for (int t0 = 0; t0 < count; t0 += P::ROUND_TILES) {
        const int here = least(P::ROUND_TILES, count - t0);
        mine = linear_item<C>(first + t0, here, m, n);
        if (t0 && mine && m < live) {
            bias = linear_bias<C>(a, n);
            rest.columns(a, n);
            place = linear_place<C>(a, linear_token<C>(a, m), n);
        }
        if (t0)
            residual = linear_residual<C>(a, m, mine ? n : C::N);
        for (int t = 0; t < here; t++) {
            float d[4] = {};
            for (int c = 0; c < P::CHUNKS; c++) {
#pragma unroll
                for (int i = 0; i < C::TURNS; i++)
                    ring.wait_full(slot, i);
                linear_chunk<C>(d, ring.data(slot.at), x, c);
                warp_sync();
                if (lane_id() == 0)
                    mbarrier_arrive(ring.empty(slot.at));
                slot.next();
            }
            const int g = lane_id() >> 2, n = (lane_id() & 3) * 2;
            float *to = sums + ((t * 8 + warp_id()) * P::M + g) * 8 + n;
            if (g < P::M) {
                to[0] = d[0];
                to[1] = d[1];
            }
            if (P::M > 8) {
                to[64] = d[2];
                to[65] = d[3];
            }
        }
        if (t0 == 0)
            named_barrier_sync(2, 256 + P::STAT_WARPS * 32); // with the warps that compute statistics
        else
            named_barrier_sync(1, 256);
        if (mine && m < live) {
            const int pair = n / 2 - (first + t0) * 4;
            const float *from = sums + ((pair >> 2) * 8 * P::M + m) * 8 + (pair & 3) * 2;
            float v[2][2];
#pragma unroll
            for (int h = 0; h < 2; h++)
#pragma unroll
                for (int e = 0; e < 2; e++) {
                    const float *f = from + h * 4 * P::M * 8 + e;
                    v[h][e] = f[0] + f[P::M * 8] + f[2 * P::M * 8] + f[3 * P::M * 8];
                }
            float v0 = v[0][0] + v[1][0], v1 = v[0][1] + v[1][1];
            if (C::NORM == 1) {
                v0 = __fmul_rn(v0, stat[m].scale);
                v1 = __fmul_rn(v1, stat[m].scale);
            }
            if constexpr (C::SEGMENTS) {
                float *to = (float *)(shared + C::KEPT_AT) + m * P::KEPT + (n - first * 8) % P::KEPT;
                to[0] = v0 + bias.b[0];
                to[1] = v1 + bias.b[1];
            } else {
                linear_out<C>(a, bias, rest.apply(residual, stat, m), place, m, n, v0, v1);
            }
        }
        if constexpr (C::SEGMENTS)
            if ((t0 + here) * 8 % P::KEPT == 0 || t0 + here == count)
                linear_segment<C>(a, (const float *)(shared + C::KEPT_AT), first, first + t0 + here, live, keep);
        sums = (float *)(shared + C::SUMS_AT) + (sums == (float *)(shared + C::SUMS_AT) ? P::SUMS : 0);
    }
    if constexpr (C::SEGMENTS)
        linear_segments_end<C>(a, count, live);
#endif
}
