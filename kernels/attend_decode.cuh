// attend_decode.cuh - attention of rows that bring one token each, over the paged cache.
//
//   q [T, H, E]     queries, rotated; token t of a decode row is row t
//   y [T, H*E]      softmax(scale * q k^T) v over the row's last WINDOW positions (0: all)
//
// Split-KV. A row's positions are cut into chunks whose length follows from the row's own length
// alone, so that its result has the same bits whatever else is in the step. A unit of work is
// (row, kv head, chunk); blocks take equal, contiguous shares of all units of the step:
//
//   rows      |----- row 0 -----|-- row 1 --|------- row 2 -------|
//   units     h0c0 h0c1 h1c0 h1c1 ...                                   block b: [n*b/B, n*(b+1)/B)
//
// The query heads of a kv head are computed together, so that keys and values are read once.
// Within a unit the tiles go round the warps; each warp has its own ring of tiles in flight, which
// runs on into the next unit, its own softmax state, and the block adds the warps up. The last
// block to finish a chunk of a (row, head) adds the chunks up, in order (Flash-Decoding, Dao et
// al. 2023; online softmax, Milakov & Gimelshein 2018).
//
// Chunks are added up in groups of JOIN, then the groups. With much work a block takes whole groups
// and writes one partial sum for each: what is written costs an H200 several times what is read.
//
// A lane of a beam search (BEAMS instances) reads the prompt from lane 0's pages and every later position
// from those of the slot that owns it; tiles that reach past the prompt look up each position.
//
// 16-bit caches go through the matrix units as S^T = K q^T, O^T = V^T P^T: 16 positions by 8 heads,
// so a group of up to 8 heads wastes nothing on the side of the keys. fp32 has a form by FMA.
#pragma once
#include "device/atomic.cuh"
#include "device/async.cuh"
#include "device/block.cuh"
#include "device/fragment.cuh"
#include "device/io.h"
#include "device/mma.cuh"
#include "device/pdl.cuh"
#include "device/vec.cuh"
#include "body/paged.cuh"
#include "body/tile.cuh"

struct AttendDecodeArgs {
    const void *q;
    const FtxStep *step;
    const FtxRow *rows;
    const int *pages;
    const void *k, *v;
    void *y;
    float *partials; // [rows][HEAD_SETS][MAX_CHUNKS] of PART floats
    u32 *counters;   // [rows][HEAD_SETS]: chunks done; zero between launches
};

// Operands of instances with BEAMS.
struct AttendDecodeBeamsArgs {
    const void *q;
    const FtxStep *step;
    const FtxRow *rows;
    const int *pages;
    const void *k, *v;
    const int *owner; // [slots][CONTEXT]
    void *y;
    float *partials;
    u32 *counters;
};

// Whether an instance has a constant BEAMS.
template <class K, class = int> struct HasBeams { static constexpr bool ON = false; };
template <class K> struct HasBeams<K, decltype((void)K::BEAMS, 0)> { static constexpr bool ON = true; };
template <bool BEAMS> struct PickArgs { using Args = AttendDecodeArgs; };
template <> struct PickArgs<true> { using Args = AttendDecodeBeamsArgs; };
template <class K> using DecodeArgs = typename PickArgs<HasBeams<K>::ON>::Args;

// What follows from the constants of an instance.
template <class K> struct DecodeShape {
    static constexpr bool MATRIX = sizeof(typename K::T) == 2 && Same<typename K::T, typename K::KV>::value;
    static constexpr int GROUP = K::HEADS / K::KV_HEADS;
    // heads of a group that are computed together; more than that read the keys again
    static constexpr int SET = least(GROUP, MATRIX && K::E <= 128 ? 16 : 8);
    static constexpr int SETS = ceil_div(GROUP, SET); // of one kv head
    static constexpr int HEAD_SETS = K::KV_HEADS * SETS;
    static constexpr int TILE = MATRIX || K::E <= 64 ? 16 : K::E <= 128 ? 8 : 4; // positions of a warp's tile
    static constexpr int COLUMNS = round_up(K::E, 16);
    using Rows = TileRows<COLUMNS * (int)sizeof(typename K::KV)>;
    static constexpr int PITCH = Rows::PITCH; // bytes
    static constexpr int SLOT = 2 * TILE * PITCH; // bytes of a ring slot: keys, values
    static constexpr int RING = K::WARPS * K::STAGES * SLOT;
    static constexpr int MERGE_PITCH = COLUMNS + 4;
    static constexpr int MERGE = K::WARPS * SET * (MERGE_PITCH + 2) * 4;
    static constexpr int QUERY = MATRIX ? 0 : SET * K::E * 4;
    static constexpr int PART = round_up(SET * (K::E + 2), 4); // floats
    static constexpr int JOIN = SET * K::E <= K::WARPS * 128 ? 4 : 1; // 4 where a thread holds one vector of a group
    static constexpr int SHARED = RING + MERGE + QUERY + (K::MAX_ROWS + 8) * 4;
};

// How the positions of a row are cut.
struct Cut {
    int first, last; // positions that count: [first, last)
    int origin;      // where chunk 0 starts, a multiple of 16
    int length, chunks;
};

template <class K> DEVICE Cut cut_row(int kv_len)
{
    Cut c;
    c.last = kv_len;
    c.first = K::WINDOW > 0 && kv_len > K::WINDOW ? kv_len - K::WINDOW : 0;
    c.origin = c.first & ~15;
    const int span = c.last - c.origin;
    c.length = most(K::CHUNK, round_up(ceil_div(span, K::MAX_CHUNKS), K::CHUNK));
    c.chunks = ceil_div(span, c.length);
    return c;
}

// A unit of work.
struct Unit {
    int row, slot, set;
    int shared; // BEAMS: positions below it stand in lane 0's pages
    Cut cut;
    int chunk, begin, end; // positions [begin, end); begin a multiple of 16
};

template <class K> DEVICE void enter_row(const DecodeArgs<K> &a, Unit &u)
{
    const FtxRow &r = a.rows[u.row];
    u.slot = r.slot;
    if constexpr (HasBeams<K>::ON)
        u.shared = r.lane < 0 ? 0x7fffffff : r.prompt;
    u.cut = cut_row<K>(r.kv_len);
}
template <class K> DEVICE void enter_chunk(Unit &u)
{
    u.begin = u.cut.origin + u.chunk * u.cut.length;
    u.end = least(u.begin + u.cut.length, u.cut.last);
}
// Unit number n of all.
template <class K> DEVICE Unit find_unit(const DecodeArgs<K> &a, const int *before, int rows, int n)
{
    using D = DecodeShape<K>;
    int lo = 0, hi = rows; // before[lo] * HEAD_SETS <= n < before[hi] * HEAD_SETS
    while (hi - lo > 1) {
        const int mid = (lo + hi) / 2;
        if (before[mid] * D::HEAD_SETS <= n)
            lo = mid;
        else
            hi = mid;
    }
    Unit u;
    u.row = lo;
    enter_row<K>(a, u);
    const int rest = n - before[lo] * D::HEAD_SETS;
    u.set = rest / u.cut.chunks;
    u.chunk = rest % u.cut.chunks;
    enter_chunk<K>(u);
    return u;
}
// The unit after u; there is one.
template <class K> DEVICE void advance(const DecodeArgs<K> &a, Unit &u)
{
    if (++u.chunk == u.cut.chunks) {
        u.chunk = 0;
        if (++u.set == DecodeShape<K>::HEAD_SETS) {
            u.set = 0;
            u.row++;
            enter_row<K>(a, u);
        }
    }
    enter_chunk<K>(u);
}

// Walks the tiles of one warp over all units of the block, ahead of the computation.
//
// What stood in the cache before this program may be read before wait_for_previous(): only the
// step's own token, a row's last position, is written by the kernel before this one.
template <class K> struct TileLoader {
    using D = DecodeShape<K>;
    using KV = typename K::KV;
    static constexpr int VECS = K::E * (int)sizeof(KV) / 16; // of a row
    static constexpr int STEP = D::TILE * K::WARPS;

    Unit unit;
    int left; // units from `unit` on
    int position;
    int page0, page1; // of the tile's first and second eight positions
    PagedHead<K> head;
    u32 ring;
    int stage;
    bool waited;

    DEVICE void find_pages()
    {
        page0 = head.page(position);
        page1 = D::TILE > 8 && position + 8 < unit.end ? head.page(position + 8) : page0;
    }
    // To the first unit from this one on that has a tile for this warp.
    DEVICE void enter(const DecodeArgs<K> &a)
    {
        while (left) {
            position = unit.begin + warp_id() * D::TILE;
            if (position < unit.end) {
                head = PagedHead<K>(a.pages, a.k, a.v, HasBeams<K>::ON ? a.rows[a.rows[unit.row].group].slot : unit.slot, unit.set / D::SETS);
                find_pages();
                return;
            }
            if (--left)
                advance<K>(a, unit);
        }
    }
    DEVICE void wait()
    {
        if (!waited)
            wait_for_previous();
        waited = true;
    }
    // A tile whose positions may stand in different slots.
    DEVICE void issue_owned(const DecodeArgs<K> &a, u32 to, i64 to_v)
    {
        constexpr int N = D::TILE * VECS, PAGES = ceil_div(K::CONTEXT, K::BLOCK);
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
                copy16(dst + D::TILE * D::PITCH, from + to_v, live ? 16 : 0);
            }
        }
    }
    // Starts the copy of the next tile, or of nothing at the end; a group either way.
    DEVICE void issue(const DecodeArgs<K> &a)
    {
        if (left) {
            if (position + D::TILE >= unit.cut.last)
                wait();
            const u32 to = ring + stage * D::SLOT;
            // Eight positions of a page stand one after another.
            constexpr int N = D::TILE * VECS, HALF = 8 * VECS;
            const char *k0 = (const char *)(head.k + head.at(page0, position)) + lane_id() * 16;
            const char *k1 = (const char *)(head.k + head.at(page1, position + 8)) + lane_id() * 16 - HALF * 16;
            const i64 to_v = (const char *)head.v - (const char *)head.k;
            const bool whole = position >= unit.cut.first && position + D::TILE <= unit.end;
            bool owned = false;
            if constexpr (HasBeams<K>::ON) {
                owned = least(position + D::TILE, unit.end) > unit.shared;
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
                    copy16_evict_first(dst + D::TILE * D::PITCH, from + to_v);
                }
            } else { // what does not count is not read; zeros take its place
#pragma unroll 1
                for (int i = 0; i < ceil_div(N, 32); i++) {
                    const int n = i * 32 + lane_id(), r = n / VECS;
                    if (n < N) {
                        const u32 dst = to + D::Rows::piece(r, n % VECS);
                        const bool live = position + r >= unit.cut.first && position + r < unit.end;
                        const char *from = live ? (n < HALF ? k0 : k1) + i * 512 : (const char *)head.k;
                        copy16(dst, from, live ? 16 : 0);
                        copy16(dst + D::TILE * D::PITCH, from + to_v, live ? 16 : 0);
                    }
                }
            }
            stage = stage + 1 == K::STAGES ? 0 : stage + 1;
            position += STEP;
            if (position < unit.end) {
                find_pages();
            } else {
                if (--left)
                    advance<K>(a, unit);
                enter(a);
            }
        }
        copy_commit();
    }
};

// The softmax state of one warp for the heads of a unit, on the matrix units.
template <class K> struct WarpStateMatrix {
    using D = DecodeShape<K>;
    using T = typename K::T;
    static constexpr int NT = ceil_div(D::SET, 8);   // columns of 8 heads
    static constexpr int STEPS = D::COLUMNS / 16;
    u32 q[NT][STEPS][2], ahead[NT][STEPS][2]; // this unit's queries, the next one's
    float o[NT][STEPS][4]; // O^T: element e = 16*i + g (+8), head 2t (+1)
    float top[NT][2], sum[NT][2];

    DEVICE void fetch(const DecodeArgs<K> &a, const Unit &u)
    {
        const int g = lane_id() / 4, t = lane_id() % 4;
        const int kv_head = u.set / D::SETS, from = u.set % D::SETS * D::SET;
#pragma unroll
        for (int n = 0; n < NT; n++) {
            const int in_group = from + n * 8 + g;
            const bool live = n * 8 + g < D::SET && in_group < D::GROUP;
            const T *p = (const T *)a.q + ((i64)u.row * K::HEADS + kv_head * D::GROUP + (live ? in_group : 0)) * K::E + 2 * t;
#pragma unroll
            for (int i = 0; i < STEPS; i++)
#pragma unroll
                for (int h = 0; h < 2; h++)
                    ahead[n][i][h] = live && i * 16 + h * 8 < K::E ? *(const u32 *)(p + i * 16 + h * 8) : 0;
        }
    }
    // The queries that were fetched become the ones in use.
    DEVICE void start()
    {
#pragma unroll
        for (int n = 0; n < NT; n++) {
#pragma unroll
            for (int i = 0; i < STEPS; i++) {
                q[n][i][0] = ahead[n][i][0];
                q[n][i][1] = ahead[n][i][1];
                o[n][i][0] = o[n][i][1] = o[n][i][2] = o[n][i][3] = 0.0f;
            }
            top[n][0] = top[n][1] = negative_infinity();
            sum[n][0] = sum[n][1] = 0.0f;
        }
    }

    DEVICE void tile(u32 slot, int position, int first, int end, const float *)
    {
        using Rows = typename D::Rows;
        const int lane = lane_id(), g = lane / 4;
        const u32 keys = slot + Rows::piece(lane % 16, lane / 16);
        float s[NT][4], odd[NT][4]; // two chains of sums, half as long
#pragma unroll
        for (int n = 0; n < NT; n++)
#pragma unroll
            for (int j = 0; j < 4; j++)
                s[n][j] = odd[n][j] = 0.0f;
#pragma unroll
        for (int i = 0; i < STEPS; i++) {
            u32 k[4];
            ldmatrix4(k, Rows::pair(keys, i));
#pragma unroll
            for (int n = 0; n < NT; n++)
                mma<T>(i % 2 ? odd[n] : s[n], k, q[n][i]);
        }
#pragma unroll
        for (int n = 0; n < NT; n++)
#pragma unroll
            for (int j = 0; j < 4; j++)
                s[n][j] = exponent<K>(s[n][j] + odd[n][j]);
        if (position < first || position + D::TILE > end) {
            const bool dead0 = position + g < first || position + g >= end;
            const bool dead1 = position + g + 8 < first || position + g + 8 >= end;
#pragma unroll
            for (int n = 0; n < NT; n++)
#pragma unroll
                for (int j = 0; j < 4; j++)
                    if (j < 2 ? dead0 : dead1)
                        s[n][j] = negative_infinity();
        }
        u32 p[NT][2];
        float scale[NT][2], change = 1.0f;
#pragma unroll
        for (int n = 0; n < NT; n++) {
#pragma unroll
            for (int j = 0; j < 2; j++) {
                float m = fmaxf(s[n][j], s[n][2 + j]);
                m = fmaxf(m, shuffle_xor(m, 4));
                m = fmaxf(m, shuffle_xor(m, 8));
                m = fmaxf(m, shuffle_xor(m, 16));
                m = fmaxf(m, top[n][j]);
                const float base = m == negative_infinity() ? 0.0f : m;
                scale[n][j] = exp2_fast(top[n][j] - base);
                change = fminf(change, scale[n][j]);
                top[n][j] = m;
                s[n][j] = exp2_fast(s[n][j] - base);
                s[n][2 + j] = exp2_fast(s[n][2 + j] - base);
                sum[n][j] = sum[n][j] * scale[n][j] + (s[n][j] + s[n][2 + j]);
            }
            p[n][0] = transpose8x8(pack2<T>(s[n][0], s[n][1]));
            p[n][1] = transpose8x8(pack2<T>(s[n][2], s[n][3]));
        }
        if (warp_ballot(change < 1.0f)) { // rare once the largest scores have passed
#pragma unroll
            for (int n = 0; n < NT; n++)
#pragma unroll
                for (int i = 0; i < STEPS; i++) {
                    o[n][i][0] *= scale[n][0];
                    o[n][i][1] *= scale[n][1];
                    o[n][i][2] *= scale[n][0];
                    o[n][i][3] *= scale[n][1];
                }
        }
        const u32 values = slot + D::TILE * D::PITCH + Rows::piece(lane % 8 + lane / 16 * 8, lane / 8 % 2);
#pragma unroll
        for (int i = 0; i < STEPS; i++) {
            u32 v[4];
            ldmatrix4_trans(v, Rows::pair(values, i));
#pragma unroll
            for (int n = 0; n < NT; n++)
                mma<T>(o[n][i], v, p[n]);
        }
    }

    // out [SET][MERGE_PITCH], stats [SET] tops, then [SET] sums
    DEVICE void put(float *out, float *stats)
    {
        const int g = lane_id() / 4, t = lane_id() % 4;
#pragma unroll
        for (int n = 0; n < NT; n++)
#pragma unroll
            for (int j = 0; j < 2; j++) {
                sum[n][j] += shuffle_xor(sum[n][j], 4);
                sum[n][j] += shuffle_xor(sum[n][j], 8);
                sum[n][j] += shuffle_xor(sum[n][j], 16);
                const int head = n * 8 + 2 * t + j;
                if (head < D::SET) {
#pragma unroll
                    for (int i = 0; i < STEPS; i++) {
                        out[head * D::MERGE_PITCH + i * 16 + g] = o[n][i][j];
                        out[head * D::MERGE_PITCH + i * 16 + g + 8] = o[n][i][2 + j];
                    }
                    if (g == 0) {
                        stats[head] = top[n][j];
                        stats[D::SET + head] = sum[n][j];
                    }
                }
            }
    }
};

// The same by FMA, for any types: lanes share out (position, part of E) for the scores and
// columns for the sum.
template <class K> struct WarpStateFma {
    using D = DecodeShape<K>;
    using KV = typename K::KV;
    static constexpr int LANES = 32 / D::TILE;          // of one position
    static constexpr int QUADS = K::E / 4;              // groups of four columns
    static constexpr int N = ceil_div(QUADS, 32);
    float o[D::SET][N][4];
    float top[D::SET], sum[D::SET]; // sum: this lane's positions only

    static DEVICE Vec<float, 4> quad(const char *tile, int row, int c)
    {
        return to_floats(load<4>((const KV *)(tile + D::Rows::byte(row, c * 4 * (int)sizeof(KV)))));
    }

    DEVICE void fetch(const DecodeArgs<K> &, const Unit &) {}
    // The block has put the unit's queries into `query`.
    DEVICE void start()
    {
#pragma unroll
        for (int h = 0; h < D::SET; h++) {
            top[h] = negative_infinity();
            sum[h] = 0.0f;
#pragma unroll
            for (int n = 0; n < N; n++)
                o[h][n][0] = o[h][n][1] = o[h][n][2] = o[h][n][3] = 0.0f;
        }
    }
    DEVICE void tile(const char *slot, int position, int first, int end, const float *query)
    {
        const int r = lane_id() / LANES, part = lane_id() % LANES;
        float s[D::SET];
#pragma unroll
        for (int h = 0; h < D::SET; h++)
            s[h] = 0.0f;
#pragma unroll 2
        for (int c = part; c < QUADS; c += LANES) {
            const Vec<float, 4> k = quad(slot, r, c);
#pragma unroll
            for (int h = 0; h < D::SET; h++) {
                const Vec<float, 4> q = load<4>(query + h * K::E + c * 4);
#pragma unroll
                for (int j = 0; j < 4; j++)
                    s[h] += q[j] * k[j];
            }
        }
        const bool live = position + r >= first && position + r < end;
#pragma unroll
        for (int h = 0; h < D::SET; h++) {
#pragma unroll
            for (int m = LANES / 2; m; m /= 2)
                s[h] += shuffle_xor(s[h], m);
            s[h] = live ? exponent<K>(s[h]) : negative_infinity();
            float m = s[h];
#pragma unroll
            for (int x = 16; x >= LANES; x /= 2)
                m = fmaxf(m, shuffle_xor(m, x));
            m = fmaxf(m, top[h]);
            const float base = m == negative_infinity() ? 0.0f : m;
            const float scale = exp2f(top[h] - base);
            top[h] = m;
            s[h] = exp2f(s[h] - base);
            sum[h] = sum[h] * scale + s[h];
#pragma unroll
            for (int n = 0; n < N; n++)
#pragma unroll
                for (int j = 0; j < 4; j++)
                    o[h][n][j] *= scale;
        }
        const char *value = slot + D::TILE * D::PITCH;
        for (int i = 0; i < D::TILE; i++) {
            Vec<float, 4> v[N];
#pragma unroll
            for (int n = 0; n < N; n++)
                v[n] = n * 32 + lane_id() < QUADS ? quad(value, i, n * 32 + lane_id()) : zeros<float, 4>();
#pragma unroll
            for (int h = 0; h < D::SET; h++) {
                const float p = shuffle(s[h], i * LANES);
#pragma unroll
                for (int n = 0; n < N; n++)
#pragma unroll
                    for (int j = 0; j < 4; j++)
                        o[h][n][j] += p * v[n][j];
            }
        }
    }
    DEVICE void put(float *out, float *stats)
    {
#pragma unroll
        for (int h = 0; h < D::SET; h++) {
#pragma unroll
            for (int x = 16; x >= LANES; x /= 2)
                sum[h] += shuffle_xor(sum[h], x);
#pragma unroll
            for (int n = 0; n < N; n++)
                if (n * 32 + lane_id() < QUADS)
#pragma unroll
                    for (int j = 0; j < 4; j++)
                        out[h * D::MERGE_PITCH + (n * 32 + lane_id()) * 4 + j] = o[h][n][j];
            if (lane_id() == 0) {
                stats[h] = top[h];
                stats[D::SET + h] = sum[h];
            }
        }
    }
};

template <bool MATRIX, class K> struct PickState { using State = WarpStateMatrix<K>; };
template <class K> struct PickState<false, K> { using State = WarpStateFma<K>; };

template <bool FAST> DEVICE float power2(float x) { return FAST ? exp2_fast(x) : exp2f(x); }

// Four neighbours of y: heads of a set, i = head * E + column.
template <class K> DEVICE void put_result(const DecodeArgs<K> &a, int row, int set, int i, const Vec<float, 4> &o, float sum)
{
    using D = DecodeShape<K>;
    using T = typename K::T;
    Vec<float, 4> y;
#pragma unroll
    for (int j = 0; j < 4; j++)
        y[j] = o[j] / sum;
    const int head = set / D::SETS * D::GROUP + set % D::SETS * D::SET;
    store((T *)a.y + ((i64)row * K::HEADS + head) * K::E + i, from_floats<T>(y));
}

// Four columns of a softmax sum: its largest exponent, the sum of powers, the weighted values.
struct Joined {
    float top = negative_infinity(), sum = 0.0f;
    Vec<float, 4> o = zeros<float, 4>();
};
// As written, so that all places that join give the same bits.
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

// y of one head set, from partial sums of its chunks, or of its groups. The whole block.
template <class K> DEVICE void add_parts(const DecodeArgs<K> &a, int row, int set, int chunks, bool groups)
{
    using D = DecodeShape<K>;
    const float *part = a.partials + ((i64)row * D::HEAD_SETS + set) * K::MAX_CHUNKS * D::PART;
    const int heads = least(D::SET, D::GROUP - set % D::SETS * D::SET);
    const int parts = groups ? ceil_div(chunks, D::JOIN) : chunks;
    for (int i = threadIdx.x * 4; i < heads * K::E; i += K::WARPS * 128) {
        const int h = i / K::E;
        Joined all;
        for (int c = 0; c < parts; c += 4) { // four under way at a time
            Joined one[4], group;
#pragma unroll
            for (int j = 0; j < 4; j++) {
                const float *p = part + (i64)least(c + j, parts - 1) * D::PART;
                const uint4_ x = load_l2(p + i);
                one[j].top = load_l2_scalar(p + D::SET * K::E + h);
                one[j].sum = load_l2_scalar(p + D::SET * K::E + D::SET + h);
                one[j].o[0] = __uint_as_float(x.x);
                one[j].o[1] = __uint_as_float(x.y);
                one[j].o[2] = __uint_as_float(x.z);
                one[j].o[3] = __uint_as_float(x.w);
            }
#pragma unroll
            for (int j = 0; j < 4; j++) {
                if (c + j < parts)
                    join<D::MATRIX>(group, one[j]);
                if (groups || j == 3) {
                    join<D::MATRIX>(all, group);
                    group = Joined();
                }
            }
        }
        put_result<K>(a, row, set, i, all.o, all.sum);
    }
}

// Which units a block takes: [unit[0], unit[1]); unit[2]: whole groups. One warp; before: [rows].
template <class K> DEVICE void share_out(const DecodeArgs<K> &a, int rows, int *before, int *unit)
{
    using D = DecodeShape<K>;
    const int lane = lane_id();
    int chunks = 0, groups = 0;
    for (int base = 0; base < K::MAX_ROWS; base += 32) {
        const int kv_len = base + lane < K::MAX_ROWS ? a.rows[base + lane].kv_len : 0; // before `rows` is known
        if (base >= rows)
            break;
        const int n = base + lane < rows ? cut_row<K>(kv_len).chunks : 0, upto = warp_prefix_sum(n);
        if (base + lane < rows)
            before[base + lane] = chunks + upto - n;
        chunks += shuffle(upto, 31);
        groups += ceil_div(n, D::JOIN);
    }
    const i64 units = (i64)chunks * D::HEAD_SETS;
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
    const i64 sets = (i64)warp_sum(groups) * D::HEAD_SETS;
    groups = 0;
    for (int base = 0; base < rows; base += 32) { // a border stands in one lane's row
        const int row = base + lane, n = row < rows ? cut_row<K>(a.rows[row].kv_len).chunks : 0;
        const int m = ceil_div(n, D::JOIN), upto = warp_prefix_sum(m);
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const i64 border = sets * (blockIdx.x + i) / gridDim.x - (i64)(groups + upto - m) * D::HEAD_SETS;
            if (border >= 0 && border < (i64)m * D::HEAD_SETS)
                unit[i] = before[row] * D::HEAD_SETS + (int)border / m * n + (int)border % m * D::JOIN;
        }
        groups += shuffle(upto, 31);
    }
}

template <class K> // K: T KV HEADS KV_HEADS E BLOCK CONTEXT SCALE WINDOW SOFTCAP CHUNK MAX_CHUNKS MAX_ROWS WARPS STAGES
__device__ void attend_decode(const DecodeArgs<K> &a)
{
    using D = DecodeShape<K>;
    using T = typename K::T;
    using State = typename PickState<D::MATRIX, K>::State;
    static_assert(K::HEADS % K::KV_HEADS == 0, "kv heads must divide the heads");
    static_assert(K::E % 8 == 0 && K::BLOCK % 8 == 0 && K::CHUNK % 16 == 0, "multiples of 8, 8, 16");
    constexpr int THREADS = K::WARPS * 32;

    char *ring = shared_memory();                               // [WARPS][STAGES] of SLOT bytes
    float *merge = (float *)(ring + D::RING);                   // [WARPS][SET][MERGE_PITCH]
    float *stats = merge + K::WARPS * D::SET * D::MERGE_PITCH;  // [WARPS][2][SET]
    float *query = stats + K::WARPS * 2 * D::SET;               // [SET][E], FMA form
    int *before = (int *)(query + D::QUERY / 4);                // [rows + 1] chunks of earlier rows
    u32 *arrived = (u32 *)(before + K::MAX_ROWS + 1);           // {this block was the last, row, set, chunks}
    int *unit = (int *)(arrived + 4);                           // {first, last + 1, whole groups}
    const int warp = warp_id(), lane = lane_id();

    launch_dependents();
    char *mine = ring + warp * K::STAGES * D::SLOT;
    if constexpr (D::COLUMNS > K::E) { // columns of the tiles that no copy writes
        constexpr int PAD = D::COLUMNS - K::E;
        for (int i = lane; i < K::STAGES * 2 * D::TILE * PAD; i += 32)
            *(typename K::KV *)(mine + D::Rows::byte(i / PAD % D::TILE, (K::E + i % PAD) * (int)sizeof(typename K::KV)) + i / PAD / D::TILE * D::TILE * D::PITCH) = from_float<typename K::KV>(0.0f);
    }

    // $step, $rows and $pages are written between programs only.
    const int rows = least(a.step->decode_rows, K::MAX_ROWS);
    if (warp == 0) {
        share_out<K>(a, rows, before, unit);
        if (lane == 0)
            arrived[1] = arrived[2] = arrived[3] = 0;
    }
    block_sync();
    const int first_unit = unit[0], last_unit = unit[1];
    const bool whole = D::JOIN > 1 && unit[2], joined = D::JOIN == 1 || whole; // what partial sums are of: groups
    if (first_unit == last_unit) {
        wait_for_previous(); // a block that leaves early would let later kernels run early
        return;
    }

    TileLoader<K> loader;
    Unit next = find_unit<K>(a, before, rows, first_unit);
    loader.unit = next;
    loader.left = last_unit - first_unit;
    loader.ring = shared_address(mine);
    loader.stage = 0;
    loader.waited = false;
    loader.enter(a);
#pragma unroll 1
    for (int i = 0; i < K::STAGES; i++)
        loader.issue(a);
    loader.wait();

    int stage = 0, done = 0; // done: chunks of the open (row, set) by this block
    bool counted = false; // an arrival is on its way; whose is kept in `arrived`, registers are scarce
    Joined group; // of the open group's chunks, this thread's columns
    State state;
    state.fetch(a, next);
    for (int n = first_unit; n < last_unit; n++) {
        const Unit u = next;
        const int from = u.set % D::SETS * D::SET, heads = least(D::SET, D::GROUP - from);
        if (!D::MATRIX) {
            const int head = u.set / D::SETS * D::GROUP + from;
            for (int i = threadIdx.x; i < D::SET * K::E; i += THREADS)
                query[i] = i < heads * K::E ? to_float(((const T *)a.q)[((i64)u.row * K::HEADS + head) * K::E + i]) : 0.0f;
            block_sync();
        }
        state.start();
        if (n + 1 < last_unit) {
            advance<K>(a, next);
            state.fetch(a, next);
        }
#pragma unroll 1
        for (int p = u.begin + warp * D::TILE; p < u.end; p += D::TILE * K::WARPS) {
            copy_wait<K::STAGES - 1>();
            warp_sync();
            if constexpr (D::MATRIX)
                state.tile(shared_address(mine) + stage * D::SLOT, p, u.cut.first, u.end, query);
            else
                state.tile(mine + stage * D::SLOT, p, u.cut.first, u.end, query);
            warp_sync();
            loader.issue(a);
            stage = stage + 1 == K::STAGES ? 0 : stage + 1;
        }
        state.put(merge + warp * D::SET * D::MERGE_PITCH, stats + warp * 2 * D::SET);
        block_sync();

        // The warps' sums, in the order of the warps; warps without a tile have top = -inf.
        bool last = counted && arrived[0];
        int last_row = arrived[1], last_set = arrived[2], last_chunks = arrived[3];
        const bool ends = !whole || u.chunk % D::JOIN == D::JOIN - 1 || u.chunk == u.cut.chunks - 1;
        const bool alone = u.cut.chunks <= (whole ? D::JOIN : 1); // nothing is added to it
        float *part = a.partials + (((i64)u.row * D::HEAD_SETS + u.set) * K::MAX_CHUNKS + (whole ? u.chunk / D::JOIN : u.chunk)) * D::PART;
        for (int i = threadIdx.x * 4; i < heads * K::E; i += THREADS * 4) {
            const int h = i / K::E, e = i % K::E;
            Joined all;
#pragma unroll
            for (int w = 0; w < K::WARPS; w++)
                all.top = fmaxf(all.top, stats[w * 2 * D::SET + h]);
#pragma unroll
            for (int w = 0; w < K::WARPS; w++) {
                const float s = power2<D::MATRIX>(stats[w * 2 * D::SET + h] - all.top);
                const Vec<float, 4> x = load<4>(merge + (w * D::SET + h) * D::MERGE_PITCH + e);
                all.sum += stats[w * 2 * D::SET + D::SET + h] * s;
#pragma unroll
                for (int j = 0; j < 4; j++)
                    all.o[j] += x[j] * s;
            }
            if (whole) {
                if (u.chunk % D::JOIN == 0)
                    group = Joined();
                join<D::MATRIX>(group, all);
                all = group;
            }
            if (!ends)
                continue;
            if (alone) {
                put_result<K>(a, u.row, u.set, i, all.o, all.sum);
            } else {
                store(part + i, all.o);
                if (e == 0) {
                    part[D::SET * K::E + h] = all.top;
                    part[D::SET * K::E + D::SET + h] = all.sum;
                }
            }
        }
        block_sync();

        // A fence costs microseconds while copies are under way, so a block counts its chunks of a
        // (row, set) at once, when it leaves them, and not at all if no other block has some. One
        // thread counts while the others go on; the answer is read a unit later.
        counted = false;
        if (!alone) {
            done++;
            if (u.chunk == u.cut.chunks - 1 || n + 1 == last_unit) {
                if (threadIdx.x == 0) {
                    u32 *counter = a.counters + u.row * D::HEAD_SETS + u.set;
                    arrived[0] = done == u.cut.chunks || atomic_add_acq_rel(counter, done) + done == (u32)u.cut.chunks;
                    arrived[1] = u.row;
                    arrived[2] = u.set;
                    arrived[3] = u.cut.chunks;
                    if (arrived[0] && done < u.cut.chunks)
                        *counter = 0;
                }
                counted = true;
                done = 0;
            }
        }
#pragma unroll 1
        for (;;) { // once, and after the last unit again
            if (last)
                add_parts<K>(a, last_row, last_set, last_chunks, joined);
            if (!counted || n + 1 < last_unit)
                break;
            counted = false;
            block_sync();
            last = arrived[0];
            last_row = arrived[1], last_set = arrived[2], last_chunks = arrived[3];
        }
    }
    copy_wait<0>();
}
