// coded_decode.cuh - the parts of attend_decode for a cache of codes of 8 bits (body/coded.cuh): copies, softmax state.
//
// A tile has the codes of 16 keys and 16 values, and behind them their scales. Codes become fp16 on their way to the
// matrix units, exactly; a key's scale multiplies its score, a value's scale its weight:
//
//   S^T = diag(k scales) (codes of K) q^T        O^T = (codes of V)^T diag(v scales) P^T
//
// Codes of int8 become 2^-24 (code + 128), which is the code's byte, its highest bit turned, as a subnormal of fp16. What is too
// much by that, 128 times the sum of a query or of weights, the matrix units add up with the factor -128.
//
// Weights are multiplied by LIFT, so that with small scales, too, they are no subnormals of fp16; so are their sums.
//
// APPEND: the kernel takes x, the projection [q | k | v], in place of q. Queries are rotated as they are loaded. With the
// tile that has a row's last position come that key and value as they lie in x; the warp rotates them, puts their codes
// into the tile, and writes them to the cache. A group of heads is one set then, so that one block alone does it.
//
// The kernel is attend_decode<Coded<Config>> of attend_decode.cuh, which takes these parts for its own.
#pragma once
#include "device/async.cuh"
#include "device/fragment.cuh"
#include "device/mma.cuh"
#include "body/coded.cuh"
#include "body/columns.cuh"
#include "body/decode_append.cuh"
#include "body/decode_state.cuh"

template <class K> struct TileLoader; // attend_decode.cuh
template <class C> struct Coded : C {};
template <class C> struct CodedTiles : C {};
template <class C> struct OneSet<Coded<C>> { static constexpr bool YES = C::SPREAD != 0; };
template <class C> struct OneSet<CodedTiles<C>> : OneSet<Coded<C>> {};

template <class K> DEVICE const typename K::T *row_of(const DecodeArgs<K> &a, int row)
{
    return (const typename K::T *)a.q + (i64)row * (K::HEADS + (K::APPEND ? 2 * K::KV_HEADS : 0)) * K::E;
}

// Base: TileLoader, which copies the codes.
template <class K, class Base> struct CodedLoader : Base {
    // Scales of positions n .. n + 7: keys to `to`, values 32 bytes on. Lanes 0 and 1.
    DEVICE void copy_scales(int page, int n, u32 to)
    {
        const char *from = (const char *)(lane_id() ? Base::head.v : Base::head.k) + Base::head.scale_at(page, n);
        if (lane_id() < 2)
            copy16(to + lane_id() * 32, from, n < Base::unit.end ? 16 : 0);
    }
    // BEAMS: each scale from the page of its owner. Lanes 0..15.
    DEVICE void load_owned_scales(const DecodeArgs<K> &a, u32 to)
    {
        const int p = Base::position + lane_id();
        half k = from_float<half>(0.0f), v = k;
        if (lane_id() < 16 && p >= Base::unit.cut.first && p < Base::unit.end) {
            const int page = p < Base::unit.shared ? Base::head.page(p) : a.pages[(i64)a.owner[(i64)Base::unit.slot * K::CONTEXT + p] * ceil_div(K::CONTEXT, K::BLOCK) + p / K::BLOCK];
            k = *(const half *)(Base::head.k + Base::head.scale_at(page, p));
            v = *(const half *)(Base::head.v + Base::head.scale_at(page, p));
        }
        if (lane_id() < 16) {
            shared_store2(to + lane_id() * 2, k.bits);
            shared_store2(to + 32 + lane_id() * 2, v.bits);
        }
    }
    // APPEND: the step's own key and value, which the cache does not have yet, behind the scales.
    DEVICE void copy_own(const DecodeArgs<K> &a, u32 to)
    {
        constexpr int VECS = K::E * (int)sizeof(typename K::T) / 16;
        const typename K::T *x = row_of<K>(a, Base::unit.row) + (i64)(K::HEADS + Base::unit.set) * K::E;
        for (int i = lane_id(); i < 2 * VECS; i += 32)
            copy16(to + i * 16, (const char *)(x + (i < VECS ? 0 : K::KV_HEADS * K::E)) + i % VECS * 16);
        Base::unit.end--; // it is the last tile of the unit: the next one has an end of its own
    }
    DEVICE void issue(const DecodeArgs<K> &a)
    {
        if (Base::left) {
            const u32 to = Base::ring + Base::stage * K::SLOT_BYTES + 2 * K::TILE * K::PITCH;
            if (Base::position + K::TILE >= Base::unit.cut.last) {
                Base::wait();
                if constexpr (K::APPEND)
                    copy_own(a, to + 64);
            }
            bool owned = false;
            if constexpr (K::BEAMS) {
                owned = least(Base::position + K::TILE, Base::unit.end) > Base::unit.shared;
                if (owned)
                    load_owned_scales(a, to);
            }
            if (!owned) {
                copy_scales(Base::page0, Base::position, to);
                copy_scales(Base::page1, Base::position + 8, to + 16);
            }
        }
        Base::issue(a);
    }
};

// Columns with queries and weights in fp16.
template <class Config> struct InHalf : Config {
    using T = half;
};

template <class K> struct CodedState : Columns<InHalf<K>, ceil_div(K::SET, 8), true> {
    using D = DecodeShape<K>;
    using T = typename K::T;
    static constexpr int GROUPS = ceil_div(K::SET, 8);
    using C = Columns<InHalf<K>, GROUPS, true>;
    static constexpr int PAIRS = C::STEPS / 2; // of 16 columns
    static constexpr bool INT8 = !K::FP8;
    static constexpr float UP = K::FP8 ? 256.0f : 0x1p24f; // codes in fp16 are so much smaller than their numbers
    static constexpr float LIFT = K::FP8 ? 0.0f : 6.0f;  // as a power of 2
    u32 ahead[GROUPS][C::STEPS][2]; // queries of the next unit; unused where all units have the same
    float less_k[GROUPS][4], less_v[GROUPS][4]; // int8: -128 * 2^-24 times the sums of queries, of weights

    // APPEND: the step's own key, and its angles.
    struct Own {
        int position, to_scale; // to_scale, to_value: bytes from the key in the cache
        Code *key;
        Vec<float, 4> turn[CodedRow<K::E>::N];
    };
    Own own, own_ahead;
    i64 to_value;
    const float *gain;

    // Lane 4g + t has columns 16 i + 4 t .. + 3 of query g.
    DEVICE void fetch(const DecodeArgs<K> &a, const Unit &u)
    {
        const int kv_head = u.set / D::SETS, from = u.set % D::SETS * K::SET;
        if constexpr (K::APPEND)
            fetch_own(a, u);
#pragma unroll
        for (int n = 0; n < GROUPS; n++) {
            const int head = n * 8 + lane_id() / 4, in_group = from + head;
            const bool live = head < K::SET && in_group < D::GROUP;
            const T *query = row_of<K>(a, u.row) + (live ? kv_head * D::GROUP + in_group : 0) * K::E;
            Vec<float, 4> q[C::STEPS];
#pragma unroll
            for (int i = 0; i < C::STEPS; i++)
                q[i] = to_floats(load<4>(query + i * 16 + lane_id() % 4 * 4));
            if constexpr (K::APPEND)
                prepare(append_from<K>(a), u.cut.last - 1, q);
#pragma unroll
            for (int i = 0; i < C::STEPS; i++)
#pragma unroll
                for (int h = 0; h < 2; h++)
                    (OneSet<K>::YES ? C::q : ahead)[n][i][h] = live ? pack2<half>(q[i][2 * h], q[i][2 * h + 1]) : 0;
        }
    }
    DEVICE void fetch_own(const DecodeArgs<K> &a, const Unit &u)
    {
        const AppendFrom &from = append_from<K>(a);
        const CodedHead<K> head(a.pages, a.k, a.v, u.slot, u.set);
        const int p = u.cut.last - 1, page = head.page(p);
        const i64 at = head.at(page, p);
        own_ahead.position = p;
        own_ahead.key = (Code *)head.k + at;
        own_ahead.to_scale = (int)(head.scale_at(page, p) - at);
        to_value = (const char *)head.v - (const char *)head.k;
        gain = from.kg;
        if (K::ROT > 0)
            CodedRow<K::E>::template read_turn<K::ROT>(from.table + (i64)p * K::ROT, own_ahead.turn);
    }
    // Norm and rotation of a query at a position; four lanes have it.
    static DEVICE void prepare(const AppendFrom &from, int position, Vec<float, 4> (&q)[C::STEPS])
    {
        if (K::NORM) {
            float s = 0.0f;
#pragma unroll
            for (int i = 0; i < C::STEPS; i++)
                s = add_squares(s, q[i], 0.0f);
            const float scale = rms_scale<K::E>(warp_sum<4>(s), K::EPS);
#pragma unroll
            for (int i = 0; i < C::STEPS; i++) {
                const Vec<float, 4> gain = load<4>(from.qg + i * 16 + lane_id() % 4 * 4);
#pragma unroll
                for (int j = 0; j < 4; j++)
                    q[i][j] *= scale * gain[j];
            }
        }
#pragma unroll
        for (int i = 0; i < C::STEPS; i++)
#pragma unroll
            for (int j = 0; j < 4; j += 2) {
                const int e = i * 16 + lane_id() % 4 * 4 + j;
                if (e < K::ROT) {
                    const float *cs = from.table + (i64)position * K::ROT + e, x = q[i][j], y = q[i][j + 1];
                    q[i][j] = fmaf(x, cs[0], -__fmul_rn(y, cs[1]));
                    q[i][j + 1] = fmaf(x, cs[1], __fmul_rn(y, cs[0]));
                }
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
        if constexpr (K::APPEND)
            own = own_ahead;
        C::start();
        if constexpr (INT8)
#pragma unroll
            for (int n = 0; n < GROUPS; n++) {
#pragma unroll
                for (int j = 0; j < 4; j++)
                    less_k[n][j] = less_v[n][j] = 0.0f;
#pragma unroll
                for (int i = 0; i < C::STEPS; i++)
                    subtract_sums(less_k[n], C::q[n][i]);
            }
    }
    // Adds -128 * 2^-24 times the sums of b's columns to all rows of d.
    static DEVICE void subtract_sums(float (&d)[4], const u32 (&b)[2])
    {
        constexpr u32 MINUS = 0x80808080u; // a pair of fp16
        const u32 a[4] = {MINUS, MINUS, MINUS, MINUS};
        mma<half>(d, a, b);
    }
    // Puts the step's own key and value, row r, into the tile and into the cache.
    DEVICE void append(u32 at, int r)
    {
        char *tile = shared_memory() + (at - shared_address(shared_memory())), *scales = tile + 2 * K::TILE * K::PITCH;
        CodedRow<K::E> key, value;
        key.read((const T *)(scales + 64));
        value.read((const T *)(scales + 64) + K::E);
        if (K::NORM)
            key.norm(gain, K::EPS);
        if (K::ROT > 0)
            key.rotate(own.turn);
        append_row(key, own.key, tile, scales, r);
        append_row(value, own.key + to_value, tile + K::TILE * K::PITCH, scales + 32, r);
        warp_sync();
    }
    DEVICE void append_row(const CodedRow<K::E> &row, Code *to, char *tile, char *scales, int r)
    {
        u32 words[CodedRow<K::E>::N];
        const half scale = row.template encode<K::FP8>(words);
#pragma unroll
        for (int i = 0; i < CodedRow<K::E>::N; i++)
            if (row.column(i) < K::E) {
                *(u32 *)(to + row.column(i)) = words[i];
                *(u32 *)(tile + C::Rows::byte(r, row.column(i))) = words[i];
            }
        if (lane_id() == 0) {
            *(half *)(to + own.to_scale) = scale;
            *(half *)(scales + r * 2) = scale;
        }
    }

    // Bytes I and J of a word of codes as a pair of fp16, which times UP (int8: less 128) is their numbers.
    template <int I, int J> static DEVICE u32 pair(u32 word)
    {
        if constexpr (INT8)
            return permute(word ^ 0x80808080u, 0, 0x4040 | I | J << 8);
        else
            return code_pair<true, I, J>(word);
    }
    // Columns 16 i .. of K: rows g and g + 8 in r[0] and r[1].
    DEVICE void add_keys(u32 low, u32 high, int i, float (&s)[GROUPS][4])
    {
        const u32 a[4] = {pair<0, 1>(low), pair<0, 1>(high), pair<2, 3>(low), pair<2, 3>(high)};
#pragma unroll
        for (int n = 0; n < GROUPS; n++)
            mma<half>(s[n], a, C::q[n][i]);
    }
    // Columns 16 i .. of V: of positions 2t, 2t + 1 columns 2g, 2g + 1 in `low`, those of positions 8 further in `high`.
    DEVICE void add_values(u32 low, u32 high, int i, const u32 (&p)[GROUPS][2])
    {
        const u32 a[4] = {pair<0, 2>(low), pair<1, 3>(low), pair<0, 2>(high), pair<1, 3>(high)};
#pragma unroll
        for (int n = 0; n < GROUPS; n++)
            mma<half>(C::o[n][i], a, p[n]);
    }

    DEVICE void tile(u32 at, int position, int first, int end, const float *)
    {
        if constexpr (K::APPEND)
            if (own.position >= position && own.position < position + K::TILE)
                append(at, own.position - position);
        const int g = lane_id() / 4;
        const u32 row = C::Rows::piece(lane_id() % 16, lane_id() / 16), scales = at + 2 * K::TILE * K::PITCH + g * 2;
        const u32 values = at + K::TILE * K::PITCH;
        float s[GROUPS][4] = {}, odd[GROUPS][4] = {};
        float by_k[2], by_v[2]; // int8: UP of values is in put(), as their weights are fp16
        if constexpr (INT8)
#pragma unroll
            for (int n = 0; n < GROUPS; n++)
#pragma unroll
                for (int j = 0; j < 4; j++)
                    s[n][j] = less_k[n][j % 2];
#pragma unroll
        for (int r = 0; r < 2; r++) {
            by_k[r] = UP * to_float(half{shared_load2(scales + r * 16)});
            by_v[r] = (INT8 ? 1.0f : UP) * to_float(half{shared_load2(scales + 32 + r * 16)});
        }
#pragma unroll
        for (int i = 0; i < PAIRS; i++) {
            u32 k[4];
            ldmatrix4(k, C::Rows::pair(at + row, i));
            add_keys(k[0], k[1], 2 * i, s);
            add_keys(k[2], k[3], 2 * i + 1, odd);
        }
        if constexpr (C::STEPS % 2) {
            u32 k[2];
            ldmatrix2(k, C::Rows::pair(at + C::Rows::piece(lane_id() % 16, 0), PAIRS));
            add_keys(k[0], k[1], 2 * PAIRS, s);
        }
#pragma unroll
        for (int n = 0; n < GROUPS; n++)
#pragma unroll
            for (int j = 0; j < 4; j++)
                s[n][j] = exponent<K>((s[n][j] + odd[n][j]) * by_k[j / 2]);
        if (first > position || end < position + K::TILE)
#pragma unroll
            for (int r = 0; r < 2; r++)
                if (position + g + r * 8 < first || position + g + r * 8 >= end) {
                    by_v[r] = 0.0f; // what lies behind the last position may be no number
#pragma unroll
                    for (int n = 0; n < GROUPS; n++)
                        s[n][2 * r] = s[n][2 * r + 1] = negative_infinity();
                }
        u32 p[GROUPS][2];
        float scale[GROUPS][2];
        bool higher = false; // than the largest scores so far: after the first tiles seldom
#pragma unroll
        for (int n = 0; n < GROUPS; n++)
#pragma unroll
            for (int j = 0; j < 2; j++) {
                scale[n][j] = 1.0f;
                higher |= fmaxf(s[n][j], s[n][2 + j]) > C::top[n][j];
            }
        if (warp_ballot(higher)) {
#pragma unroll
            for (int n = 0; n < GROUPS; n++)
#pragma unroll
                for (int j = 0; j < 2; j++) {
                    float m = fmaxf(s[n][j], s[n][2 + j]);
                    m = fmaxf(m, shuffle_xor(m, 4));
                    m = fmaxf(m, shuffle_xor(m, 8));
                    m = fmaxf(m, shuffle_xor(m, 16));
                    m = fmaxf(m, C::top[n][j]);
                    scale[n][j] = exp2_fast(C::top[n][j] - (m == negative_infinity() ? 0.0f : m));
                    C::top[n][j] = m;
                }
#pragma unroll
            for (int n = 0; n < GROUPS; n++) {
                if constexpr (INT8)
#pragma unroll
                    for (int j = 0; j < 4; j++)
                        less_v[n][j] *= scale[n][j % 2];
#pragma unroll
                for (int i = 0; i < C::STEPS; i++) {
                    C::o[n][i][0] *= scale[n][0];
                    C::o[n][i][1] *= scale[n][1];
                    C::o[n][i][2] *= scale[n][0];
                    C::o[n][i][3] *= scale[n][1];
                }
            }
        }
#pragma unroll
        for (int n = 0; n < GROUPS; n++) {
#pragma unroll
            for (int j = 0; j < 2; j++) {
                const float base = C::top[n][j] == negative_infinity() ? 0.0f : C::top[n][j];
                s[n][j] = exp2_fast(s[n][j] - base + LIFT);
                s[n][2 + j] = exp2_fast(s[n][2 + j] - base + LIFT);
                C::sum[n][j] = C::sum[n][j] * scale[n][j] + (s[n][j] + s[n][2 + j]);
            }
            p[n][0] = transpose8x8(pack2<half>(s[n][0] * by_v[0], s[n][1] * by_v[0]));
            p[n][1] = transpose8x8(pack2<half>(s[n][2] * by_v[1], s[n][3] * by_v[1]));
            if constexpr (INT8)
                subtract_sums(less_v[n], p[n]);
        }
#pragma unroll
        for (int i = 0; i < PAIRS; i++) {
            u32 v[4];
            ldmatrix4_trans(v, C::Rows::pair(values + row, i));
            add_values(v[0], v[1], 2 * i, p);
            add_values(v[2], v[3], 2 * i + 1, p);
        }
        if constexpr (C::STEPS % 2) {
            u32 v[2];
            ldmatrix2_trans(v, C::Rows::pair(values + C::Rows::piece(lane_id() % 16, 0), PAIRS));
            add_values(v[0], v[1], 2 * PAIRS, p);
        }
    }
    DEVICE float value(int n, int i, int j) const { return INT8 ? (C::o[n][i][j] + less_v[n][j]) * UP : C::o[n][i][j]; }
    // out [SET][MERGE_PITCH] values; stats [SET] maxima, then [SET] sums of weights
    DEVICE void put(float *out, float *stats) const
    {
        const int g = lane_id() / 4, t = lane_id() % 4;
#pragma unroll
        for (int n = 0; n < GROUPS; n++)
#pragma unroll
            for (int j = 0; j < 2; j++) {
                float all = C::sum[n][j];
                all += shuffle_xor(all, 4);
                all += shuffle_xor(all, 8);
                all += shuffle_xor(all, 16);
                const int head = n * 8 + 2 * t + j;
                if (head >= K::SET)
                    continue;
#pragma unroll
                for (int i = 0; i < C::STEPS; i++)
                    store(out + head * K::MERGE_PITCH + i * 16 + 2 * g, Vec<float, 2>{{value(n, i, j), value(n, i, 2 + j)}});
                if (g == 0) {
                    stats[head] = C::top[n][j];
                    stats[K::SET + head] = all;
                }
            }
    }
};

template <class C> struct PagedHead<CodedTiles<C>> : CodedHead<C> {
    using CodedHead<C>::CodedHead;
};
template <class C> struct TileLoader<Coded<C>> : CodedLoader<Coded<C>, TileLoader<CodedTiles<C>>> {};
template <class C> struct WarpStateMatrix<Coded<C>> : CodedState<Coded<C>> {};

// As the contract has them.
struct AttendDecodeCodesArgs {
    const void *q; // APPEND: x
    const float *table, *qg, *kg;
    const FtxStep *step;
    const FtxRow *rows;
    const int *pages;
    const void *k, *v;
    const int *owner;
    void *y;
    float *partials;
    u32 *counters;
};

// The arguments of attend_decode.
template <class K> DEVICE WithAppend<DecodeArgs<K>> coded_args(const AttendDecodeCodesArgs &a)
{
    const AppendFrom append{a.table, a.qg, a.kg};
    if constexpr (K::BEAMS)
        return {{a.q, a.step, a.rows, a.pages, a.k, a.v, a.owner, a.y, a.partials, a.counters}, append};
    else
        return {{a.q, a.step, a.rows, a.pages, a.k, a.v, a.y, a.partials, a.counters}, append};
}
