// flash.cuh - FlashAttention-2 (Dao 2023) of many queries of a row: one form for the matrix units, one by FMA. Shared
// by attend_prefill (a chunk of a prompt over the paged cache) and attend_packed (a text over itself).
//
//   y[i] = sum_j softmax_j(cap(SCALE * q[i] . k[j])) v[j]      CAUSAL: j up to the position of query i, and of these
//                                                              the last WINDOW (0: all); otherwise all of the row
//
// A block computes a piece of ROWS matrix rows (body/piece.cuh). It goes through the keys that they see in tiles of
// KEYS; two tiles are in shared memory, the next one in flight while this one is computed. blockIdx.x is the kv head,
// blockIdx.y the piece. The grid is an upper bound; blocks without a piece exit.
//
// A source S says where data are: query(piece, i) and result(piece, i) point to matrix row i; S::Head is the block's kv
// head: keys(), at(position) in elements from there, to_values() in bytes from a key to its value.
//
// 16-bit keys of the queries' type go through the matrix units; all other types are computed by FMA.
#pragma once
#include "device/async.cuh"
#include "device/block.cuh"
#include "device/fragment.cuh"
#include "device/io.h"
#include "device/mma.cuh"
#include "device/pdl.cuh"
#include "device/vec.cuh"
#include "body/paged.cuh"
#include "body/piece.cuh"
#include "body/tile.cuh"

// What follows from the constants of an instance.
template <class K> struct FlashShape {
    static constexpr int GROUP = K::HEADS / K::KV_HEADS;
    static constexpr int WARPS = 4, THREADS = 128;
    static constexpr int WARP_ROWS = K::ROWS / WARPS;
    static constexpr int KV_BYTES = (int)sizeof(typename K::KV);
    using Rows = TileRows<K::PITCH>; // of queries on the matrix units, keys, values
    static constexpr int TILE = K::KEYS * K::PITCH; // bytes
};

// Starts the copy of KEYS rows of keys and values; zeros for positions that no row sees.
template <class K, class S> DEVICE void copy_tile(const S &source, u32 to, int position, const Piece &piece)
{
    using D = FlashShape<K>;
    constexpr int VECS = K::E * D::KV_BYTES / 16;
    const typename S::Head head(source, piece);
    const int end = piece.end, first = K::WINDOW > 0 ? piece.low - K::WINDOW + 1 : 0;
    const i64 to_v = head.to_values();
#pragma unroll 4 // unrolled whole, it would need registers that the sums have
    for (int i = 0; i < ceil_div(K::KEYS * VECS, D::THREADS); i++) {
        const int n = i * D::THREADS + threadIdx.x;
        const int r = n / VECS, c = n % VECS;
        if (K::KEYS * VECS % D::THREADS && r >= K::KEYS)
            break;
        const bool live = position + r < end && (K::WINDOW <= 0 || position + r >= first);
        const i64 at = live ? head.at(position + r) : 0;
        const char *from = (const char *)(head.keys() + at) + c * 16;
        const u32 dst = to + D::Rows::piece(r, c);
        copy16(dst, from, live ? 16 : 0);
        copy16(dst + D::TILE, from + to_v, live ? 16 : 0);
    }
}

// --- 16 bits, on the matrix units -------------------------------------------------------------
// Warp w has matrix rows [w * WARP_ROWS, (w + 1) * WARP_ROWS) as MT tiles of 16; lane 4g + t has rows g and g + 8 of each.
template <class K, class S> DEVICE void attend_matrix(const S &source, const Piece &piece)
{
    using D = FlashShape<K>;
    using T = typename K::T;
    using Rows = typename D::Rows;
    constexpr int MT = D::WARP_ROWS / 16, STEPS = K::COLUMNS / 16, NT = K::KEYS / 8;
    constexpr int VECS = K::E / 8, PAD = K::COLUMNS - K::E;
    const int lane = lane_id(), g = lane / 4, t = lane % 4;
    char *shared = shared_memory();
    const u32 query = shared_address(shared);
    const u32 tiles = query + K::TILES_AT;
    const int total = piece.q_len * D::GROUP; // matrix rows of the sequence

    if constexpr (PAD > 0)
        for (int i = threadIdx.x; i < (K::ROWS + 4 * K::KEYS) * PAD; i += D::THREADS)
            *(T *)(shared + Rows::byte(i / PAD, (K::E + i % PAD) * 2)) = from_float<T>(0.0f);
    for (int n = threadIdx.x; n < K::ROWS * VECS; n += D::THREADS) {
        const int r = n / VECS, c = n % VECS;
        const bool live = piece.i0 + r < total;
        const T *from = source.query(piece, live ? piece.i0 + r : 0);
        copy16(query + Rows::piece(r, c), from + c * 8, live ? 16 : 0);
    }
    copy_tile<K>(source, tiles, piece.begin, piece);
    copy_commit();

    float o[MT][STEPS * 2][4], top[MT][2], sum[MT][2];
#pragma unroll
    for (int m = 0; m < MT; m++) {
#pragma unroll
        for (int n = 0; n < STEPS * 2; n++)
            o[m][n][0] = o[m][n][1] = o[m][n][2] = o[m][n][3] = 0.0f;
#pragma unroll
        for (int r = 0; r < 2; r++) {
            top[m][r] = negative_infinity();
            sum[m][r] = 0.0f;
        }
    }
    const u32 q_rows = query + Rows::piece(warp_id() * D::WARP_ROWS + lane % 16, lane / 16);
    const u32 k_rows = Rows::piece(lane % 8 + lane / 16 * 8, lane / 8 % 2);
    const u32 v_rows = D::TILE + Rows::piece(lane % 16, lane / 16);
    const int end = piece.end, low = piece.low, high = piece.high;
    const int row0 = piece.offset * D::GROUP + piece.i0 + warp_id() * D::WARP_ROWS + g; // this lane's first, from position 0

    int stage = 0;
    for (int position = piece.begin; position < end; position += K::KEYS, stage ^= 1) {
        copy_wait<0>();
        block_sync(); // this tile has arrived; all warps are done with the other one
        if (position + K::KEYS < end)
            copy_tile<K>(source, tiles + (stage ^ 1) * 2 * D::TILE, position + K::KEYS, piece);
        copy_commit();
        const u32 tile = tiles + stage * 2 * D::TILE;

        float s[MT][NT][4];
#pragma unroll
        for (int m = 0; m < MT; m++)
#pragma unroll
            for (int n = 0; n < NT; n++)
                s[m][n][0] = s[m][n][1] = s[m][n][2] = s[m][n][3] = 0.0f;
#pragma unroll
        for (int i = 0; i < STEPS; i++) {
            u32 q[MT][4];
#pragma unroll
            for (int m = 0; m < MT; m++)
                ldmatrix4(q[m], Rows::pair(q_rows, i) + m * 16 * K::PITCH);
#pragma unroll
            for (int n = 0; n < NT / 2; n++) {
                u32 k[4];
                ldmatrix4(k, Rows::pair(tile + k_rows, i) + n * 16 * K::PITCH);
#pragma unroll
                for (int m = 0; m < MT; m++) {
                    mma<T>(s[m][2 * n], q[m][0], q[m][1], q[m][2], q[m][3], k[0], k[1]);
                    mma<T>(s[m][2 * n + 1], q[m][0], q[m][1], q[m][2], q[m][3], k[2], k[3]);
                }
            }
        }

        if (K::SOFTCAP > 0.0f)
#pragma unroll
            for (int m = 0; m < MT; m++)
#pragma unroll
                for (int n = 0; n < NT; n++)
#pragma unroll
                    for (int j = 0; j < 4; j++)
                        s[m][n][j] = exponent<K>(s[m][n][j]);
        // Only tiles at an end of what some row sees need the mask.
        if (position + K::KEYS - 1 > low || (K::WINDOW > 0 && position < high - K::WINDOW + 1))
#pragma unroll
            for (int m = 0; m < MT; m++)
#pragma unroll
                for (int r = 0; r < 2; r++) { // seen: last position that the row sees, relative to this lane's first column
                    const int seen = (K::CAUSAL ? (row0 + m * 16 + r * 8) / D::GROUP : end - 1) - position - 2 * t;
#pragma unroll
                    for (int n = 0; n < NT; n++)
#pragma unroll
                        for (int j = 0; j < 2; j++)
                            if (n * 8 + j > seen || (K::WINDOW > 0 && n * 8 + j <= seen - K::WINDOW))
                                s[m][n][2 * r + j] = negative_infinity();
                }
        // Without a soft cap the scale is folded into exp2; SCALE > 0. Each step is done for all rows before the
        // next, so that their dependent chains overlap.
        constexpr float BY = K::SOFTCAP > 0.0f ? 1.0f : K::SCALE * 1.4426950408889634f;
        float scale[MT][2], base[MT][2], change = 1.0f;
#pragma unroll
        for (int m = 0; m < MT; m++)
#pragma unroll
            for (int r = 0; r < 2; r++) {
                float a0 = fmaxf(s[m][0][2 * r], s[m][0][2 * r + 1]), a1 = fmaxf(s[m][1][2 * r], s[m][1][2 * r + 1]);
#pragma unroll
                for (int n = 2; n < NT; n += 2) {
                    a0 = fmaxf(a0, fmaxf(s[m][n][2 * r], s[m][n][2 * r + 1]));
                    a1 = fmaxf(a1, fmaxf(s[m][n + 1][2 * r], s[m][n + 1][2 * r + 1]));
                }
                base[m][r] = fmaxf(a0, a1);
            }
#pragma unroll
        for (int x = 1; x < 4; x *= 2)
#pragma unroll
            for (int m = 0; m < MT; m++)
#pragma unroll
                for (int r = 0; r < 2; r++)
                    base[m][r] = fmaxf(base[m][r], shuffle_xor(base[m][r], x));
#pragma unroll
        for (int m = 0; m < MT; m++)
#pragma unroll
            for (int r = 0; r < 2; r++) {
                const float most_ = fmaxf(base[m][r] * BY, top[m][r]);
                base[m][r] = most_ == negative_infinity() ? 0.0f : most_;
                scale[m][r] = exp2_fast(top[m][r] - base[m][r]);
                change = fminf(change, scale[m][r]);
                top[m][r] = most_;
            }
#pragma unroll
        for (int m = 0; m < MT; m++)
#pragma unroll
            for (int r = 0; r < 2; r++) {
                float a0 = 0.0f, a1 = 0.0f;
#pragma unroll
                for (int n = 0; n < NT; n++) {
                    s[m][n][2 * r] = exp2_fast(s[m][n][2 * r] * BY - base[m][r]);
                    s[m][n][2 * r + 1] = exp2_fast(s[m][n][2 * r + 1] * BY - base[m][r]);
                    a0 += s[m][n][2 * r];
                    a1 += s[m][n][2 * r + 1];
                }
                sum[m][r] = sum[m][r] * scale[m][r] + (a0 + a1);
            }
        if (warp_ballot(change < 1.0f)) // rare once the largest scores have passed
#pragma unroll
            for (int m = 0; m < MT; m++)
#pragma unroll
                for (int n = 0; n < STEPS * 2; n++)
#pragma unroll
                    for (int j = 0; j < 4; j++)
                        o[m][n][j] *= scale[m][j / 2];
#pragma unroll
        for (int n = 0; n < NT / 2; n++) {
            u32 p[MT][4];
#pragma unroll
            for (int m = 0; m < MT; m++) {
                p[m][0] = pack2<T>(s[m][2 * n][0], s[m][2 * n][1]);
                p[m][1] = pack2<T>(s[m][2 * n][2], s[m][2 * n][3]);
                p[m][2] = pack2<T>(s[m][2 * n + 1][0], s[m][2 * n + 1][1]);
                p[m][3] = pack2<T>(s[m][2 * n + 1][2], s[m][2 * n + 1][3]);
            }
#pragma unroll
            for (int i = 0; i < STEPS; i++) {
                u32 v[4];
                ldmatrix4_trans(v, Rows::pair(tile + v_rows, i) + n * 16 * K::PITCH);
#pragma unroll
                for (int m = 0; m < MT; m++) {
                    mma<T>(o[m][2 * i], p[m][0], p[m][1], p[m][2], p[m][3], v[0], v[1]);
                    mma<T>(o[m][2 * i + 1], p[m][0], p[m][1], p[m][2], p[m][3], v[2], v[3]);
                }
            }
        }
    }
    copy_wait<0>();

    // Each warp writes its results over its queries in shared memory, then to y with 16 bytes a lane.
    char *mine = shared + warp_id() * D::WARP_ROWS * K::Q_PITCH;
    warp_sync(); // all lanes have read the queries
#pragma unroll
    for (int m = 0; m < MT; m++)
#pragma unroll
        for (int r = 0; r < 2; r++) {
            float all = sum[m][r];
            all += shuffle_xor(all, 1);
            all += shuffle_xor(all, 2);
            const float by = 1.0f / all;
#pragma unroll
            for (int n = 0; n < STEPS * 2; n++)
                *(u32 *)(mine + Rows::piece(m * 16 + r * 8 + g, n) + t * 4) = pack2<T>(o[m][n][2 * r] * by, o[m][n][2 * r + 1] * by);
        }
    warp_sync();
    const int i0 = piece.i0 + warp_id() * D::WARP_ROWS;
    for (int n = lane; n < D::WARP_ROWS * VECS; n += 32) {
        const int r = n / VECS, c = n % VECS;
        if (i0 + r < total)
            *(uint4_ *)(source.result(piece, i0 + r) + c * 8) = *(const uint4_ *)(mine + Rows::piece(r, c));
    }
}

// --- any type, by FMA -------------------------------------------------------------------------
// A warp has WARP_ROWS rows. For the scores a lane has one key and all rows; for the sum of values it has columns
// lane, lane + 32, ... and all rows. The weights go from one to the other through shared memory.
template <class K, class S> DEVICE void attend_fma(const S &source, const Piece &shared_piece)
{
    const Piece piece = shared_piece; // in registers: this form has some to spare
    using D = FlashShape<K>;
    using T = typename K::T;
    using KV = typename K::KV;
    static_assert(K::MATRIX || K::KEYS == 32, "one key a lane");
    constexpr int R = D::WARP_ROWS, C = K::COLUMNS / 32;
    const int lane = lane_id();
    char *shared = shared_memory();
    float *query = (float *)shared + warp_id() * R * (K::Q_PITCH / 4);
    const char *keys = shared + K::TILES_AT, *values = keys + D::TILE;
    float *prob = (float *)(shared + K::WEIGHTS_AT) + warp_id() * K::KEYS * K::P_PITCH; // [KEYS][R]
    const int total = piece.q_len * D::GROUP, i0 = piece.i0 + warp_id() * R;

    for (int n = lane; n < R * K::E; n += 32) {
        const int r = n / K::E, c = n % K::E;
        query[r * (K::Q_PITCH / 4) + c] =
            i0 + r < total ? to_float(source.query(piece, i0 + r)[c]) : 0.0f;
    }
    float o[R][C], top[R], sum[R];
#pragma unroll
    for (int r = 0; r < R; r++) {
        top[r] = negative_infinity();
        sum[r] = 0.0f;
#pragma unroll
        for (int c = 0; c < C; c++)
            o[r][c] = 0.0f;
    }
    for (int position = piece.begin; position < piece.end; position += K::KEYS) {
        block_sync(); // all warps are done with the previous tile
        copy_tile<K>(source, shared_address(keys), position, piece);
        copy_commit();
        copy_wait<0>();
        block_sync();

        float s[R];
#pragma unroll
        for (int r = 0; r < R; r++)
            s[r] = 0.0f;
        for (int c = 0; c < K::E; c += 4) {
            const Vec<float, 4> k = to_floats(load<4>((const KV *)(keys + D::Rows::byte(lane, c * D::KV_BYTES))));
#pragma unroll
            for (int r = 0; r < R; r++) {
                const Vec<float, 4> q = load<4>(query + r * (K::Q_PITCH / 4) + c);
#pragma unroll
                for (int j = 0; j < 4; j++)
                    s[r] += q[j] * k[j];
            }
        }
        const int p = position + lane;
#pragma unroll
        for (int r = 0; r < R; r++) {
            const int seen = K::CAUSAL ? piece.offset + (i0 + r) / D::GROUP : piece.end - 1;
            const bool live = p <= seen && (K::WINDOW <= 0 || p > seen - K::WINDOW);
            const float x = live ? exponent<K>(s[r]) : negative_infinity();
            const float high = fmaxf(top[r], warp_max(x));
            const float base = high == negative_infinity() ? 0.0f : high;
            const float scale = exp2f(top[r] - base);
            const float e = exp2f(x - base);
            top[r] = high;
            sum[r] = sum[r] * scale + warp_sum(e);
            prob[lane * K::P_PITCH + r] = e;
#pragma unroll
            for (int c = 0; c < C; c++)
                o[r][c] *= scale;
        }
        warp_sync();
#pragma unroll 2
        for (int key = 0; key < K::KEYS; key++) {
            float v[C];
#pragma unroll
            for (int c = 0; c < C; c++)
                v[c] = to_float(*(const KV *)(values + D::Rows::byte(key, (c * 32 + lane) * D::KV_BYTES)));
#pragma unroll
            for (int r = 0; r < R; r += 4) {
                const Vec<float, 4> e = load<4>(prob + key * K::P_PITCH + r);
#pragma unroll
                for (int j = 0; j < 4; j++)
#pragma unroll
                    for (int c = 0; c < C; c++)
                        o[r + j][c] += e[j] * v[c];
            }
        }
    }
#pragma unroll
    for (int r = 0; r < R; r++)
        if (i0 + r < total)
#pragma unroll
            for (int c = 0; c < C; c++)
                if (c * 32 + lane < K::E)
                    source.result(piece, i0 + r)[c * 32 + lane] = from_float<T>(o[r][c] / sum[r]);
}

// Finds the block's piece of the rows [from, rows) and computes it.
template <class K, class S> // K: T KV MATRIX HEADS KV_HEADS E SCALE CAUSAL WINDOW SOFTCAP ROWS KEYS ... as the templates
DEVICE void flash(const FtxStep *step, const FtxRow *rows, int from, const S &source)
{
    static_assert(K::HEADS % K::KV_HEADS == 0, "kv heads must divide the heads");
    static_assert(K::E % 8 == 0, "multiples of 8");
    launch_dependents();
    // The piece is in shared memory: the sums need the registers. $step and $rows are written between programs only,
    // so they may be read before the wait.
    using D = FlashShape<K>;
    static_assert(sizeof(Piece) <= K::SHARED - K::PIECE_AT, "room for a piece");
    Piece &piece = *(Piece *)(shared_memory() + K::PIECE_AT);
    if (warp_id() == 0) {
        const Piece p = find_piece<K>(step, rows, from, blockIdx.y);
        if (lane_id() == 0)
            piece = p;
    }
    wait_for_previous();
    block_sync();
    if (piece.row < 0)
        return;
    if constexpr (K::MATRIX)
        attend_matrix<K>(source, piece);
    else
        attend_fma<K>(source, piece);
}
