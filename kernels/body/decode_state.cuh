// decode_state.cuh - the online softmax of one warp of attend_decode: on the matrix units, or by FMA.
//
//   fetch   loads the queries of the next unit         tile   adds a tile of keys and values to the state
//   start   begins a unit with them                    put    writes the state for the block to add up
#pragma once
#include "device/fragment.cuh"
#include "device/vec.cuh"
#include "body/columns.cuh"
#include "body/decode_units.cuh"

// On the matrix units.
template <class K> struct WarpStateMatrix : Columns<K, ceil_div(K::SET, 8), true> {
    using D = DecodeShape<K>;
    using T = typename K::T;
    static constexpr int GROUPS = ceil_div(K::SET, 8);
    using C = Columns<K, GROUPS, true>;
    u32 ahead[GROUPS][C::STEPS][2]; // queries of the next unit

    DEVICE void fetch(const DecodeArgs<K> &a, const Unit &u)
    {
        const int kv_head = u.set / D::SETS, from = u.set % D::SETS * K::SET;
#pragma unroll
        for (int n = 0; n < GROUPS; n++) {
            const int head = n * 8 + lane_id() / 4, in_group = from + head;
            const bool live = head < K::SET && in_group < D::GROUP;
            C::load_query((OneSet<K>::YES ? C::q : ahead)[n], live ? (const T *)a.q + ((i64)u.row * K::HEADS + kv_head * D::GROUP + in_group) * K::E : nullptr);
        }
    }
    DEVICE void start()
    {
#pragma unroll
        for (int n = 0; n < GROUPS && !OneSet<K>::YES; n++)
#pragma unroll
            for (int i = 0; i < C::STEPS; i++) {
                C::q[n][i][0] = ahead[n][i][0];
                C::q[n][i][1] = ahead[n][i][1];
            }
        C::start();
    }
    DEVICE void tile(u32 slot, int position, int first, int end, const float *) { C::tile(slot, first - position, end - position); }
    // out [SET][MERGE_PITCH] values; stats [SET] maxima, then [SET] sums of weights
    DEVICE void put(float *out, float *stats) { C::put(out, K::MERGE_PITCH, stats, stats + K::SET, 1, 0, K::SET); }
};

// By FMA, for any types. For the scores LANES lanes share a position, each with every LANES-th group of four columns;
// for the sum of values a lane has columns.
template <class K> struct WarpStateFma {
    using D = DecodeShape<K>;
    using KV = typename K::KV;
    static constexpr int LANES = 32 / K::TILE;          // of one position
    static constexpr int QUADS = K::E / 4;              // groups of four columns
    static constexpr int N = ceil_div(QUADS, 32);
    float o[K::SET][N][4];
    float top[K::SET], sum[K::SET]; // sum: this lane's positions only

    static DEVICE Vec<float, 4> quad(const char *tile, int row, int c)
    {
        return to_floats(load<4>((const KV *)(tile + D::Rows::byte(row, c * 4 * (int)sizeof(KV)))));
    }

    DEVICE void fetch(const DecodeArgs<K> &, const Unit &) {}
    // The block has written the unit's queries to shared memory, `query` of tile().
    DEVICE void start()
    {
#pragma unroll
        for (int h = 0; h < K::SET; h++) {
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
        float s[K::SET];
#pragma unroll
        for (int h = 0; h < K::SET; h++)
            s[h] = 0.0f;
#pragma unroll 2
        for (int c = share; c < QUADS; c += LANES) {
            const Vec<float, 4> k = quad(slot, r, c);
#pragma unroll
            for (int h = 0; h < K::SET; h++) {
                const Vec<float, 4> q = load<4>(query + h * K::E + c * 4);
#pragma unroll
                for (int j = 0; j < 4; j++)
                    s[h] += q[j] * k[j];
            }
        }
        const bool live = position + r >= first && position + r < end;
#pragma unroll
        for (int h = 0; h < K::SET; h++) {
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
        const char *value = slot + K::TILE * K::PITCH;
        for (int i = 0; i < K::TILE; i++) {
            Vec<float, 4> v[N];
#pragma unroll
            for (int n = 0; n < N; n++)
                v[n] = n * 32 + lane_id() < QUADS ? quad(value, i, n * 32 + lane_id()) : zeros<float, 4>();
#pragma unroll
            for (int h = 0; h < K::SET; h++) {
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
        for (int h = 0; h < K::SET; h++) {
#pragma unroll
            for (int x = 16; x >= LANES; x /= 2)
                sum[h] += shuffle_xor(sum[h], x);
#pragma unroll
            for (int n = 0; n < N; n++)
                if (n * 32 + lane_id() < QUADS)
#pragma unroll
                    for (int j = 0; j < 4; j++)
                        out[h * K::MERGE_PITCH + (n * 32 + lane_id()) * 4 + j] = o[h][n][j];
            if (lane_id() == 0) {
                stats[h] = top[h];
                stats[K::SET + h] = sum[h];
            }
        }
    }
};
