// columns.cuh - attention of up to 8 * GROUPS queries over tiles of 16 keys, by one warp, on the matrix units (16 bits).
//
//   tile in shared memory   TILE rows of keys, then TILE rows of values; a row has WIDE elements, those from E on are zero
//   S^T = K q^T, O^T = V^T P^T     [16 keys, 8 queries], [E, 8 queries]: query 8n + g is column g of fragment n
//   partial result of a query      [E] weighted values, maximum, sum of weights: PARTIAL floats
//
// With one query 7 of 8 columns are unused: that costs matrix throughput, which is not the bound here, and no memory
// traffic. Online softmax (Milakov & Gimelshein 2018) with exponents of 2. LONG: a warp has many tiles; once the largest
// scores have passed, the sums of most need no new scale.
//
//   K: T, E (a multiple of 8), SCALE, SOFTCAP; PITCH, TILE_BYTES: bytes of a row of a tile, of a tile
#pragma once
#include "device/async.cuh"
#include "device/fragment.cuh"
#include "device/mma.cuh"
#include "device/vec.cuh"
#include "body/paged.cuh"
#include "body/tile.cuh"

template <class K, int GROUPS = 1, bool LONG = false> struct Columns {
    using T = typename K::T;
    static constexpr int TILE = 16, WIDE = round_up(K::E, 16), STEPS = WIDE / 16;
    using Rows = TileRows<K::PITCH>;
    static constexpr int PARTIAL = K::E + 2;             // floats
    static constexpr int VECS = K::E / 8;                // 16-byte pieces of a row without its zeros
    u32 q[GROUPS][STEPS][2];
    float o[GROUPS][STEPS][4]; // O^T: element e = 16*i + g (+8), column 2t (+1)
    float top[GROUPS][2], sum[GROUPS][2];

    // Writes the zeros behind the E elements of a tile's rows; no copy overwrites them.
    static DEVICE void pad(char *tile)
    {
        if (WIDE > K::E && lane_id() < 2 * TILE)
            shared_store16(shared_address(tile) + lane_id() / TILE * TILE * K::PITCH + Rows::piece(lane_id() % TILE, VECS),
                           uint4_{0, 0, 0, 0});
    }
    // Lane 4g + t loads its elements of query g of a group; NULL: there is no such query.
    static DEVICE void load_query(u32 (&q)[STEPS][2], const T *query)
    {
        const int t = lane_id() % 4;
#pragma unroll
        for (int i = 0; i < STEPS; i++)
#pragma unroll
            for (int h = 0; h < 2; h++)
                q[i][h] = query && i * 16 + h * 8 < K::E ? *(const u32 *)(query + i * 16 + h * 8 + 2 * t) : 0;
    }
    DEVICE void fetch(const T *query) { load_query(q[0], query); }
    DEVICE void start()
    {
#pragma unroll
        for (int n = 0; n < GROUPS; n++) {
#pragma unroll
            for (int i = 0; i < STEPS; i++)
                o[n][i][0] = o[n][i][1] = o[n][i][2] = o[n][i][3] = 0.0f;
            top[n][0] = top[n][1] = negative_infinity();
            sum[n][0] = sum[n][1] = 0.0f;
        }
    }

    // Adds keys [first, end) of the tile; the other rows must hold finite numbers.
    DEVICE void tile(u32 at, int first, int end)
    {
        const int lane = lane_id(), g = lane / 4;
        const u32 keys = at + Rows::piece(lane % 16, lane / 16);
        float s[GROUPS][4] = {}, odd[GROUPS][4] = {}; // two independent chains of mma, half as long
#pragma unroll
        for (int i = 0; i < STEPS; i++) {
            u32 k[4];
            ldmatrix4(k, Rows::pair(keys, i));
#pragma unroll
            for (int n = 0; n < GROUPS; n++)
                mma<T>(i % 2 ? odd[n] : s[n], k, q[n][i]);
        }
#pragma unroll
        for (int n = 0; n < GROUPS; n++)
#pragma unroll
            for (int j = 0; j < 4; j++)
                s[n][j] = exponent<K>(s[n][j] + odd[n][j]);
        if (!LONG || first > 0 || end < TILE)
#pragma unroll
            for (int n = 0; n < GROUPS; n++)
#pragma unroll
                for (int j = 0; j < 4; j++)
                    if (g + j / 2 * 8 < first || g + j / 2 * 8 >= end)
                        s[n][j] = negative_infinity();
        u32 p[GROUPS][2];
        float scale[GROUPS][2], change = 1.0f;
#pragma unroll
        for (int n = 0; n < GROUPS; n++) {
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
        if (!LONG || warp_ballot(change < 1.0f))
#pragma unroll
            for (int n = 0; n < GROUPS; n++)
#pragma unroll
                for (int i = 0; i < STEPS; i++) {
                    o[n][i][0] *= scale[n][0];
                    o[n][i][1] *= scale[n][1];
                    o[n][i][2] *= scale[n][0];
                    o[n][i][3] *= scale[n][1];
                }
        const u32 values = at + TILE * K::PITCH + Rows::piece(lane % 8 + lane / 16 * 8, lane / 8 % 2);
#pragma unroll
        for (int i = 0; i < STEPS; i++) {
            u32 v[4];
            ldmatrix4_trans(v, Rows::pair(values, i));
#pragma unroll
            for (int n = 0; n < GROUPS; n++)
                mma<T>(o[n][i], v, p[n]);
        }
    }

    // Writes the results of queries [from, to): values to out[query][pitch], maximum and sum of weights to tops and sums,
    // `step` floats from query to query.
    DEVICE void put(float *out, int pitch, float *tops, float *sums, int step, int from, int to) const
    {
        const int lane = lane_id(), g = lane / 4, t = lane % 4;
#pragma unroll
        for (int n = 0; n < GROUPS; n++)
#pragma unroll
            for (int j = 0; j < 2; j++) {
                float all = sum[n][j];
                all += shuffle_xor(all, 4);
                all += shuffle_xor(all, 8);
                all += shuffle_xor(all, 16);
                const int c = n * 8 + 2 * t + j;
                if (c < from || c >= to)
                    continue;
#pragma unroll
                for (int i = 0; i < STEPS; i++) {
                    out[c * pitch + i * 16 + g] = o[n][i][j];
                    if (i * 16 + 8 < K::E)
                        out[c * pitch + i * 16 + 8 + g] = o[n][i][2 + j];
                }
                if (g == 0) {
                    tops[c * step] = top[n][j];
                    sums[c * step] = all;
                }
            }
    }
    // The same to partial[8][PARTIAL].
    DEVICE void put(float *partial, int from, int to) const
    {
        put(partial, PARTIAL, partial + K::E, partial + K::E + 1, PARTIAL, from, to);
    }
};

// Elements e and e + 1 of a query's result, from the partial results of `warps` warps, `stride` floats apart, in order.
template <class K> DEVICE Vec<float, 2> add_partials(const float *partial, int warps, int stride, int e)
{
    float high = partial[K::E], all = 0.0f;
    Vec<float, 2> y = zeros<float, 2>();
    for (int w = 1; w < warps; w++)
        high = fmaxf(high, partial[w * stride + K::E]);
    for (int w = 0; w < warps; w++) {
        const float by = exp2_fast(partial[w * stride + K::E] - high);
        all += partial[w * stride + K::E + 1] * by;
        y[0] += partial[w * stride + e] * by;
        y[1] += partial[w * stride + e + 1] * by;
    }
    y[0] /= all;
    y[1] /= all;
    return y;
}

// The same for at most MOST warps; all loads are issued before the first sum.
template <class K, int MOST> DEVICE Vec<float, 2> add_few_partials(const float *partial, int warps, int stride, int e)
{
    float top[MOST], sum[MOST];
    Vec<float, 2> v[MOST], y = zeros<float, 2>();
#pragma unroll
    for (int w = 0; w < MOST; w++) {
        top[w] = negative_infinity();
        sum[w] = 0.0f;
        v[w] = zeros<float, 2>();
        if (w < warps) {
            top[w] = partial[w * stride + K::E];
            sum[w] = partial[w * stride + K::E + 1];
            v[w] = load<2>(partial + w * stride + e);
        }
    }
    float high = top[0], all = 0.0f;
#pragma unroll
    for (int w = 1; w < MOST; w++)
        high = fmaxf(high, top[w]);
#pragma unroll
    for (int w = 0; w < MOST; w++) {
        const float by = exp2_fast(top[w] - high);
        all += sum[w] * by;
        y[0] += v[w][0] * by;
        y[1] += v[w][1] * by;
    }
    y[0] /= all;
    y[1] /= all;
    return y;
}
