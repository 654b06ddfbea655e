// linear_q_bulk.cuh - linear layers of 1 to 8 rows with quantised weights on sm_90: bulk copies by a warp of their own.
//
// What it computes and its arguments: linear_q.cuh. The products are those of integers (body/digits.cuh), of fp8 those of 16-bit
// numbers (body/e4m3.cuh).
//
// What limits it: reading w once. A tile is 16 rows of w; block i computes a run of neighbouring tiles. Its warps:
//
//   the first WARPS   make x's digits in shared memory, with the gains of the norm, and multiply: warp j has bricks j, j + WARPS, ...
//   the last one      streams w through a ring in shared memory by bulk copies; it starts before the previous kernel has ended
//
//   tile  | codes: chunk, chunk, ... | scales | zeros |
//   slot  | codes of a chunk, up to CHUNK bricks | their scales | their zeros |
//
// At most IN_FLIGHT bytes are requested and have not arrived (linear.cuh says why).
//
// Order of summation: exact within a group (fp8: even and odd 16 k apart); groups and bricks of a warp in order, a sum for each digit; then the digits; then
// the warps (body/brick.cuh). A norm's sum of squares: 32 vectors of 8 elements, then these sums. It depends on K and WARPS
// alone, not on the number of rows.
#pragma once
#include "device/async.cuh"
#include "device/barrier.cuh"
#include "device/mbarrier.cuh"
#include "device/pdl.cuh"
#include "body/digits.cuh"
#include "body/linear.cuh"
#include "body/ring.cuh"

// What x is in shared memory, and the products with it: digits; a template may say otherwise (E4m3Bulk of body/e4m3.cuh).
template <class C> struct BulkCodes : Digits<C> {
    static constexpr int X_STEP = 1; // bytes of x from one k to the next

    // Keeps elements 8 v .. 8 v + 7 of row m, with the gains of the norm; all lanes call it, for 32 neighbouring v.
    static DEVICE void keep(char *shared, int m, int v, const uint4_ &x, bool here)
    {
        uint2_ digits[3];
        const float unit = Digits<C>::split(digits, x);
        if (!here)
            return;
#pragma unroll
        for (int d = 0; d < 3; d++)
            shared_store8(Digits<C>::place(shared_address(shared + C::X_AT), m, d, v * 8), digits[d]);
        if (v % (C::GROUP / 8) == 0)
            ((float *)(shared + C::UNITS_AT))[v / (C::GROUP / 8) * C::M + m] = unit;
    }
};

template <class C> struct BulkShape {
    typedef BulkCodes<C> Q;
    static constexpr int WARPS = C::WARPS, WORKERS = WARPS * 32;            // that multiply
    static constexpr int BRICKS = ceil_div(C::K, C::BRICK_K);
    static constexpr int CHUNKS = ceil_div(BRICKS, C::CHUNK);               // of a tile
    static constexpr int ROW = Q::GROUPS * 16;                              // scales of a brick
    static constexpr int SCALES = C::CHUNK * Q::BRICK, ZEROS = SCALES + C::CHUNK * ROW * Q::SCALE; // where they begin in a slot
    static constexpr int AHEAD = most(1, least(C::IN_FLIGHT / C::SLOT_BYTES, C::STAGES));          // chunks in flight
    static constexpr int PIECES = ceil_div(C::K / 8, 32);                   // of a row of x: 32 vectors of 8 elements
    static constexpr int SUM_PITCH = 20;                                    // floats of a tile's 16 sums; no bank conflicts
    static constexpr int TILE_SUMS = WARPS * C::M * SUM_PITCH;              // floats of the sums of all warps, of a tile
    static constexpr int PAIRS = C::ROUND_TILES * 8 * C::M, ITEMS = ceil_div(PAIRS, WORKERS); // outputs of a round, of a thread
    static_assert(C::K % 64 == 0, "rows of whole blocks of codes");
};

template <class C> using BulkRing = Ring<C::STAGES, C::SLOT_BYTES>;

// A chunk: bricks [begin, end) of a tile.
template <class C> struct BulkChunk {
    int begin, end;
    DEVICE BulkChunk(int chunk)
    {
        begin = chunk * C::CHUNK;
        end = least(begin + C::CHUNK, BulkShape<C>::BRICKS);
    }
};

// The producer: requests a chunk of the tile at `tile`, by one warp.
template <class C> DEVICE void bulk_request(const char *tile, int chunk, u32 slot, u32 full)
{
    typedef BulkShape<C> P;
    typedef BulkCodes<C> Q;
    const BulkChunk<C> c(chunk);
    const int k = most(0, least(c.end * C::BRICK_K, C::K) - c.begin * C::BRICK_K), rows = k / C::GROUP * 16;
    const int lane = lane_id(), codes = k * 2 * C::BITS, scales = rows * Q::SCALE, zeros = rows * Q::ZERO;
    if (lane == 0)
        mbarrier_expect(full, codes + scales + zeros);
    warp_sync();
    if (k == 0)
        return;
    if (lane == 0)
        bulk_copy(slot, tile + c.begin * Q::BRICK, codes, full);
    if (lane == 1)
        bulk_copy(slot + P::SCALES, tile + Q::SCALES_AT + c.begin * (P::ROW * Q::SCALE), scales, full);
    if (Q::ZERO && lane == 2)
        bulk_copy(slot + P::ZEROS, tile + Q::ZEROS_AT + c.begin * (P::ROW * Q::ZERO), zeros, full);
}

// The producer keeps the ring full: `count` tiles from `tile` on, whose first chunks are requested already.
template <class C> DEVICE void bulk_produce(const char *tile, int count, const BulkRing<C> &ring)
{
    typedef BulkShape<C> P;
    RingSlot<C::STAGES> slot = {0, 1}, oldest = {0, 0};
#pragma unroll 1
    for (int i = 0, chunk = 0; i < count * P::CHUNKS; i++) {
        if (i >= P::AHEAD) {
            ring.wait_empty(slot);
            ring.wait_full(oldest);
            oldest.next();
            bulk_request<C>(tile, chunk, ring.data(slot.at), ring.full(slot.at));
        }
        slot.next();
        if (++chunk == P::CHUNKS) {
            chunk = 0;
            tile += BulkCodes<C>::TILE;
        }
    }
}

// Loads x into shared memory, times the gains, as BulkCodes keeps it and, for the norm, the sums of squares of
// each piece [M][PIECES]. Rows that are not live become 0.
template <class C> DEVICE void bulk_load_x(const LinearArgs &a, int live, char *shared)
{
    typedef BulkShape<C> P;
    typedef BulkCodes<C> Q;
    typedef typename C::T T;
    constexpr int ALL = P::PIECES * C::M, OWN = ceil_div(ALL, P::WARPS), ONCE = least(OWN, 8), VECTORS = C::K / 8;
    float *squares = (float *)(shared + C::SQUARES_AT);
#pragma unroll 1
    for (int first = 0; first < OWN; first += ONCE) {
        uint4_ x[ONCE];
#pragma unroll
        for (int j = 0; j < ONCE; j++) {
            const int piece = warp_id() + P::WARPS * (first + j), m = piece / P::PIECES, v = piece % P::PIECES * 32 + lane_id();
            x[j] = uint4_{0, 0, 0, 0};
            if (piece < ALL && v < VECTORS && m < live)
                x[j] = load_l2((const T *)a.x + (i64)source_row<C::LAST>(a.rows, m) * C::K + v * 8);
        }
#pragma unroll
        for (int j = 0; j < ONCE; j++) {
            const int piece = warp_id() + P::WARPS * (first + j), m = piece / P::PIECES, v = piece % P::PIECES * 32 + lane_id();
            const bool here = piece < ALL && v < VECTORS;
            if (C::NORM) {
                const float square = warp_sum(add_squares(0.0f, *(Vec<T, 8> *)&x[j], 0.0f));
                if (piece < ALL && lane_id() == 0)
                    squares[piece] = square;
                if (here)
                    x[j] = rms_vector<C>(x[j], shared_load16(shared_address(shared + C::GAINS_AT) + v * 16));
            }
            Q::keep(shared, m, v, x[j], here);
        }
    }
}

// Writes 1 / rms of row m by warp m.
template <class C> DEVICE void bulk_stat(char *shared)
{
    typedef BulkShape<C> P;
    if (warp_id() >= C::M)
        return;
    const float *squares = (const float *)(shared + C::SQUARES_AT) + warp_id() * P::PIECES;
    float sum = 0.0f;
    for (int i = lane_id(); i < P::PIECES; i += 32)
        sum += squares[i];
    sum = warp_sum(sum);
    if (lane_id() == 0)
        ((float *)(shared + C::STATS_AT))[warp_id()] = rms_scale<C::K>(sum, C::EPS);
}

// SEGMENTS: writes the columns kept since the last segment as a new one, row m by warp m; behind the block's last tile also
// empty segments for those that it does not need, and the number of segments of a row. tile: the next tile of the block.
template <class C> DEVICE void bulk_segment(const LinearHeadArgs &a, const float *kept, int first, int count, int tile, int live, int keep)
{
    constexpr int TILES = SEGMENT_COLUMNS / 16;
    const int each = ceil_div(ceil_div(ceil_div(C::N, 16), (int)gridDim.x), TILES), m = warp_id(), lane = lane_id();
    const int index = (tile - 1) / TILES, column = (first + index * TILES) * 16;
    named_barrier_sync(1, BulkShape<C>::WORKERS);
    if (m < live) {
        FtxSegment *to = segments_of(a.segments, C::N, m) + blockIdx.x * each;
        warp_write_segment<SEGMENT_COLUMNS>(to + index, (float *)a.y + (i64)m * C::N, kept + m * SEGMENT_COLUMNS, column,
                                            least((first + tile) * 16, C::N) - column, keep, inv_temperature_of(a, m, keep));
        if (tile == count && index + 1 + lane < each)
            segment_store_empty(to + index + 1 + lane, C::N);
    }
    if (blockIdx.x == 0 && threadIdx.x == 0)
        a.segments->count = gridDim.x * each;
}

template <class C, class A> DEVICE void linear_q_bulk(const A &a)
{
    typedef BulkShape<C> P;
    typedef BulkCodes<C> Q;
    launch_dependents();
    char *shared = shared_memory();
    const BulkRing<C> ring = {shared_address(shared + C::RING_AT), shared_address(shared)};
    const int tiles = ceil_div(C::N, 16), first = (int)((i64)blockIdx.x * tiles / gridDim.x);
    const int count = (int)((i64)(blockIdx.x + 1) * tiles / gridDim.x) - first;
    const char *tile = (const char *)a.w + (i64)first * Q::TILE;
    if (warp_id() == P::WARPS) {
        if (lane_id() == 0) {
            ring.init(1, P::WARPS);
            mbarrier_init_fence();
        }
        warp_sync();
#pragma unroll 1
        for (int i = 0; i < least(P::AHEAD, count * P::CHUNKS); i++)
            bulk_request<C>(tile + (i64)(i / P::CHUNKS) * Q::TILE, i % P::CHUNKS, ring.data(i), ring.full(i));
    } else if (C::NORM) {
        for (int v = threadIdx.x; v < C::K / 8; v += P::WORKERS)
            shared_store16(shared_address(shared + C::GAINS_AT) + v * 16, pack_gains<typename C::T>(load<4>(a.g + v * 8), load<4>(a.g + v * 8 + 4)));
    }
    block_sync();
    if (warp_id() == P::WARPS) {
        bulk_produce<C>(tile, count, ring);
        return;
    }
    wait_for_previous();
    const int live = least(live_rows<C::ROWS_S>(a.step), C::M);
    int *places = (int *)(shared + C::PLACES_AT), keep = 0;
    if constexpr (C::SEGMENTS)
        keep = warp_id() < live ? keep_of(a, warp_id()) : 0;
    bulk_load_x<C>(a, live, shared);
    if constexpr (C::APPEND)
        if (threadIdx.x < live)
            linear_find_place<C>(a, threadIdx.x, places);
    named_barrier_sync(1, P::WORKERS);
    if (C::NORM)
        bulk_stat<C>(shared);

    const u32 x = shared_address(shared + C::X_AT);
    const float *units = (const float *)(shared + C::UNITS_AT), *stat = (const float *)(shared + C::STATS_AT);
    RingSlot<C::STAGES> slot = {0, 0};
    for (int t0 = 0, round = 0; t0 < count; t0 += C::ROUND_TILES, round++) {
        const int here = least(C::ROUND_TILES, count - t0);
        float *sums = (float *)(shared + C::SUMS_AT) + round % 2 * (C::ROUND_TILES * P::TILE_SUMS);
#pragma unroll 1
        for (int i = 0; i < here; i++) {
            float total[P::Q::COLUMN_TILES][4] = {};
#pragma unroll 1
            for (int c = 0; c < P::CHUNKS; c++) {
                const BulkChunk<C> chunk(c);
                const char *data = shared + C::RING_AT + slot.at * C::SLOT_BYTES;
                ring.wait_full(slot);
#pragma unroll
                for (int j = 0; j < C::CHUNK; j += P::WARPS) {
                    const int b = warp_id() + j, at = chunk.begin + b;
                    if (P::BRICKS % C::CHUNK == 0 || at < chunk.end)
                        Q::multiply(total, ring.data(slot.at) + b * Q::BRICK, data + P::SCALES + b * (P::ROW * Q::SCALE), data + P::ZEROS + b * (P::ROW * Q::ZERO),
                                    x + at * (C::BRICK_K * Q::X_STEP), units + at * (Q::GROUPS * C::M), C::K - at * C::BRICK_K);
                }
                warp_sync();
                if (lane_id() == 0)
                    mbarrier_arrive(ring.empty(slot.at));
                slot.next();
            }
            Q::put(total, sums + i * P::TILE_SUMS + warp_id() * C::M * P::SUM_PITCH, P::SUM_PITCH);
        }
        const auto item = [&](int i, int &m, int &n) {
            const int p = threadIdx.x + i * P::WORKERS;
            m = p / 8 % C::M;
            n = (first + t0 + p / (8 * C::M)) * 16 + p % 8 * 2;
            return p < P::PAIRS && p / (8 * C::M) < here && m < live && n < C::N;
        };
        const auto wait = [&] { named_barrier_sync(1, P::WORKERS); };
        const auto sum = [&](int m, int n) {
            const int pair = n / 2 - (first + t0) * 8;
            Vec<float, 2> all = brick_add_warps<C::M * P::SUM_PITCH, P::WARPS>(sums + pair / 8 * P::TILE_SUMS + m * P::SUM_PITCH + pair % 8 * 2);
            if (C::NORM) {
                all[0] = __fmul_rn(all[0], stat[m]);
                all[1] = __fmul_rn(all[1], stat[m]);
            }
            return all;
        };
        if constexpr (C::SEGMENTS) {
            float *kept = (float *)(shared + C::KEPT_AT);
            const int next = t0 + here;
            int m, n;
            wait();
            for (int i = 0; i < P::ITEMS; i++)
                if (item(i, m, n)) {
                    const LinearBias bias = linear_bias<C>(a, n);
                    const Vec<float, 2> v = sum(m, n);
                    float *to = kept + m * SEGMENT_COLUMNS + (n - first * 16) % SEGMENT_COLUMNS;
                    to[0] = v[0] + bias.b[0];
                    to[1] = v[1] + bias.b[1];
                }
            if (next * 16 % SEGMENT_COLUMNS == 0 || next == count)
                bulk_segment<C>(a, kept, first, count, next, live, keep);
        } else {
            linear_finish<C, P::ITEMS, least(P::ITEMS, 2)>(a, places, item, wait, sum);
        }
    }
}
