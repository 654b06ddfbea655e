// decode_units.cuh - how attend_decode cuts a step into units of work: (row, head set, chunk of positions).
#pragma once
#include "device/io.h"
#include "device/warp.cuh"
#include "body/paged.cuh"
#include "body/tile.cuh"

struct AttendDecodeArgs {
    const void *q;
    const FtxStep *step;
    const FtxRow *rows;
    const int *pages;
    const void *k, *v;
    void *y;
    float *partials; // [rows][HEAD_SETS][MAX_CHUNKS][PARTIAL]: results of chunks, or of groups of them
    u32 *counters;   // [rows][HEAD_SETS] chunks done; zero between launches
};

// The same with the owner of each position.
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

// Pick<true, A, B>::Type is A, Pick<false, A, B>::Type is B.
template <bool, class A, class B> struct Pick { using Type = A; };
template <class A, class B> struct Pick<false, A, B> { using Type = B; };
template <class K> using DecodeArgs = typename Pick<K::BEAMS, AttendDecodeBeamsArgs, AttendDecodeArgs>::Type;

// What follows from the constants of an instance.
template <class K> struct DecodeShape {
    static constexpr int GROUP = K::HEADS / K::KV_HEADS;
    static constexpr int SETS = ceil_div(GROUP, K::SET); // of one kv head
    static constexpr int COLUMNS = round_up(K::E, 16);
    using Rows = TileRows<K::PITCH>;
    static constexpr int JOIN = K::SET * K::E <= K::WARPS * 128 ? 4 : 1; // 4 where a thread holds one vector of a group
};

// How the positions of a row are cut.
struct Cut {
    int first, last; // positions that count: [first, last)
    int origin;      // where chunk 0 starts, a multiple of 16
    int length, chunks; // a rest of up to REST positions belongs to the chunk before
};

template <class K> DEVICE Cut cut_row(int kv_len)
{
    Cut c;
    c.last = kv_len;
    c.first = K::WINDOW > 0 && kv_len > K::WINDOW ? kv_len - K::WINDOW : 0;
    c.origin = c.first & ~15;
    const int span = c.last - c.origin;
    c.length = K::MAX_CHUNKS * K::CHUNK >= K::CONTEXT + 16 ? K::CHUNK : most(K::CHUNK, round_up(ceil_div(span, K::MAX_CHUNKS), K::CHUNK));
    c.chunks = most(least(span, 1), ceil_div(span - K::REST, c.length));
    return c;
}

// A unit of work.
struct Unit {
    int row, slot, set;
    int shared; // BEAMS: positions below it are in lane 0's pages
    Cut cut;
    int chunk, begin, end; // positions [begin, end); begin a multiple of 16
};

template <class K> DEVICE void enter_row(const DecodeArgs<K> &a, Unit &u)
{
    const FtxRow &r = a.rows[u.row];
    u.slot = r.slot;
    if constexpr (K::BEAMS)
        u.shared = r.lane < 0 ? 0x7fffffff : r.prompt;
    u.cut = cut_row<K>(r.kv_len);
}
template <class K> DEVICE void enter_chunk(Unit &u)
{
    u.begin = u.cut.origin + u.chunk * u.cut.length;
    u.end = u.chunk + 1 >= u.cut.chunks ? u.cut.last : u.begin + u.cut.length;
}
// Unit n of the step. before[row]: chunks of all earlier rows.
template <class K> DEVICE Unit find_unit(const DecodeArgs<K> &a, const int *before, int rows, int n)
{
    using D = DecodeShape<K>;
    int lo = 0, hi = rows; // before[lo] * HEAD_SETS <= n < before[hi] * HEAD_SETS
    while (hi - lo > 1) {
        const int mid = (lo + hi) / 2;
        if (before[mid] * K::HEAD_SETS <= n)
            lo = mid;
        else
            hi = mid;
    }
    Unit u;
    u.row = lo;
    enter_row<K>(a, u);
    const int rest = n - before[lo] * K::HEAD_SETS;
    u.set = rest / u.cut.chunks;
    u.chunk = rest % u.cut.chunks;
    enter_chunk<K>(u);
    return u;
}
// Whether copies and queries are of one (row, head set) until they are begun anew.
template <class K> struct OneSet { static constexpr bool YES = K::SPREAD == 2; };
// The unit after u; there is one.
template <class K> DEVICE void advance(const DecodeArgs<K> &a, Unit &u)
{
    if (++u.chunk == u.cut.chunks) {
        u.chunk = 0;
        if (++u.set == K::HEAD_SETS) {
            u.set = 0;
            u.row++;
            enter_row<K>(a, u);
        }
    }
    enter_chunk<K>(u);
}
// The next chunk of the same row, or none.
template <class K> DEVICE void next_chunk(Unit &u)
{
    u.chunk++;
    enter_chunk<K>(u);
}

// SPREAD 2. As many blocks take units as are needed if none takes more than it has to: block w of them takes the units
// [w * share, (w + 1) * share). They are spread evenly over the grid, and so over the SMs.
struct Deal {
    int first, last; // the block's units; last <= first: it has none
    int share;
};
template <class K> DEVICE int row_chunks(const DecodeArgs<K> &a, int row) { return cut_row<K>(a.rows[least(row, K::MAX_ROWS - 1)].kv_len).chunks; }
// The block's first unit, if it has one. Each warp finds it.
template <class K> DEVICE Unit deal_out(const DecodeArgs<K> &a, Deal &d)
{
    const int lane = lane_id(), blocks = (int)gridDim.x, block = (int)blockIdx.x;
    int n[2] = {row_chunks<K>(a, lane), row_chunks<K>(a, 32 + lane)}; // loaded before `rows` has arrived
    const int rows = least(a.step->decode_rows, K::MAX_ROWS);
    n[0] = lane < rows ? n[0] : 0;
    n[1] = 32 + lane < rows ? n[1] : 0;
    int chunks = n[0] + n[1];
    for (int row = 64 + lane; row < rows; row += 32)
        chunks += row_chunks<K>(a, row);
    const int units = warp_sum(chunks) * K::HEAD_SETS;
    d.share = most(1, ceil_div(units, blocks));
    const int used = ceil_div(units, d.share), w = block * used / blocks;
    d.first = w * d.share;
    d.last = (block + 1) * used / blocks > w ? least(d.first + d.share, units) : 0;
    Unit u;
    u.row = 0;
    int before = 0, rest = 0;
    for (int base = 0; base < rows; base += 32) {
        const int row = base + lane, m = base == 0 ? n[0] : base == 32 ? n[1] : row < rows ? row_chunks<K>(a, row) : 0;
        const int upto = before + warp_prefix_sum(m * K::HEAD_SETS), begin = upto - m * K::HEAD_SETS;
        const u32 mine = warp_ballot(d.first >= begin && d.first < upto);
        if (mine) {
            const int from = __ffs(mine) - 1;
            u.row = base + from;
            rest = d.first - shuffle(begin, from);
            break;
        }
        before = shuffle(upto, 31);
    }
    enter_row<K>(a, u);
    u.set = rest / most(u.cut.chunks, 1);
    u.chunk = rest - u.set * u.cut.chunks;
    enter_chunk<K>(u);
    return u;
}

// SPREAD 1. A piece is JOIN chunks of a (row, head set). In a row of more chunks that is over twice as long as the mean it is one
// chunk, so that no block is at work long after the others. Block b takes the first piece of (row, head set) b.
//
// The first unit of that piece, of the last row where there are not so many.
template <class K> DEVICE Unit first_piece(const DecodeArgs<K> &a)
{
    Unit u;
    u.row = least((int)blockIdx.x / K::HEAD_SETS, K::MAX_ROWS - 1);
    u.set = (int)blockIdx.x % K::HEAD_SETS;
    u.chunk = 0;
    enter_row<K>(a, u);
    enter_chunk<K>(u);
    return u;
}
// Positions of all rows.
template <class K> DEVICE int all_positions(const DecodeArgs<K> &a, int rows)
{
    if (DecodeShape<K>::JOIN == 1)
        return 0; // pieces are single chunks
    int sum = 0;
#pragma unroll 4
    for (int row = lane_id(); row < rows; row += 32) {
        const Cut c = cut_row<K>(a.rows[row].kv_len);
        sum += c.last - c.origin;
    }
    return warp_sum(sum);
}
// Chunks of a piece of the row. all: positions of all rows, read for rows of more than JOIN chunks.
template <class K> DEVICE int piece_chunks(const Cut &c, int rows, int all)
{
    constexpr int JOIN = DecodeShape<K>::JOIN;
    return c.chunks <= JOIN || (c.last - c.origin) * rows <= 2 * all ? JOIN : 1;
}
// The later pieces of all rows, in turn: piece 1 + n / firsts of (row, head set) n % firsts. Of the numbers turn, turn + blocks,
// ... finds the first whose row has such a piece: its first unit, and its number in `turn`; false: none has. `all` is 0 or known.
template <class K> DEVICE bool later_piece(const DecodeArgs<K> &a, Unit &u, int &turn, int rows, int &all, int blocks)
{
    const int firsts = rows * K::HEAD_SETS, end = firsts * (K::MAX_CHUNKS - 1);
    for (; turn < end; turn += 32 * blocks) { // a lane looks at one
        const int n = turn + lane_id() * blocks, piece = 1 + n / firsts;
        const Cut c = cut_row<K>(a.rows[n % firsts / K::HEAD_SETS].kv_len);
        const bool longer = n < end && c.chunks > DecodeShape<K>::JOIN;
        if (!warp_ballot(longer))
            continue;
        all = all ? all : all_positions<K>(a, rows);
        const u32 have = warp_ballot(longer && piece * piece_chunks<K>(c, rows, all) < c.chunks);
        if (!have)
            continue;
        turn += (__ffs(have) - 1) * blocks;
        u.row = turn % firsts / K::HEAD_SETS;
        u.set = turn % K::HEAD_SETS;
        enter_row<K>(a, u);
        u.chunk = (1 + turn / firsts) * piece_chunks<K>(u.cut, rows, all);
        enter_chunk<K>(u);
        return true;
    }
    return false;
}
