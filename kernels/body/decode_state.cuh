// decode_state.cuh - the online softmax of one warp of attend_decode: on the matrix units, or by FMA.
//
//   fetch   loads the queries of the next unit         tile   adds a tile of keys and values to the state
//   start   begins a unit with them                    put    writes the state for the block to add up
#pragma once
#include "device/fragment.cuh"
#include "device/mma.cuh"
#include "device/vec.cuh"
#include "body/decode_units.cuh"

// On the matrix units.
template <class K> struct WarpStateMatrix {
    using D = DecodeShape<K>;
    using T = typename K::T;
    static constexpr int NT = ceil_div(D::SET, 8);   // columns of 8 heads
    static constexpr int STEPS = D::COLUMNS / 16;
    u32 q[NT][STEPS][2], ahead[NT][STEPS][2]; // queries of this unit and of the next
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
        float s[NT][4], odd[NT][4]; // two independent chains of mma, half as long
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

    // out [SET][MERGE_PITCH] values; stats [SET] maxima, then [SET] sums of weights
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

// By FMA, for any types. For the scores LANES lanes share a position, each with every LANES-th group of four columns;
// for the sum of values a lane has columns.
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
    // The block has written the unit's queries to shared memory, `query` of tile().
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
        const int r = lane_id() / LANES, share = lane_id() % LANES;
        float s[D::SET];
#pragma unroll
        for (int h = 0; h < D::SET; h++)
            s[h] = 0.0f;
#pragma unroll 2
        for (int c = share; c < QUADS; c += LANES) {
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
