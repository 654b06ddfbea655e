// normed_decode.cuh - the parts of attend_decode for models with normed heads of q and k (Qwen3, Gemma 3): it takes the
// projection [q | k | v] of a step, norms and rotates the heads, and writes the step's own keys and values to the cache.
//
// The heads of a kv head are one set. The block norms them together: LANES neighbouring lanes have a head, as in
// append_norm.cuh, so the bits are those of append_norm and attend_decode. Angles and gains are loaded before the previous
// kernel has ended, and so are all keys and values but the step's own, which the warp with the last tile puts into it.
//
//   shared memory   queries [GROUP][E + 8], then two places, each a key [E] and a value [E]: of this unit and of the next one
//
// The kernel is attend_decode<Normed<Config>> of attend_decode.cuh, which takes these parts for its own.
#pragma once
#include "device/block.cuh"
#include "device/pdl.cuh"
#include "device/vec.cuh"
#include "body/append.cuh"
#include "body/decode_append.cuh"
#include "body/decode_state.cuh"
#include "body/norm.cuh"

template <class K> struct TileLoader; // attend_decode.cuh
template <class C> struct Normed : C {};
template <class C> struct NormedTiles : C {};

// Base: TileLoader. No copy waits for the previous kernel: what the cache holds was there before this program, but for the step's
// own position, which NormedState overwrites in the tile.
template <class K, class Base> struct NormedLoader : Base {
    DEVICE void wait() {}
    DEVICE void issue(const DecodeArgs<K> &a)
    {
        Base::waited = true;
        Base::issue(a);
    }
};

// Base: WarpStateMatrix.
template <class K, class Base> struct NormedState : Base {
    using D = DecodeShape<K>;
    using T = typename K::T;
    static constexpr int VEC = 8, LANES = least(32, pow2_at_least(K::E / VEC)), AT_ONCE = K::WARPS * 32 / LANES;
    static constexpr int HEADS = D::GROUP + 2, TURNS = ceil_div(HEADS, AT_ONCE); // queries, key, value; of them each thread
    static constexpr int PITCH = K::E + VEC;                                     // elements; no bank conflicts
    static_assert(D::SETS == 1 && K::E <= 32 * VEC && K::MATRIX, "one set, a vector of a head in each lane");

    struct Own { // the step's own key and value
        int position, place;
        T *key; // in the cache
    };
    Own own, own_ahead = {0, 1, nullptr};
    i64 to_value; // elements from a key in the cache to its value
    int row = -1, set = 0; // whose queries were fetched last

    static DEVICE T *queries() { return (T *)(shared_memory() + K::NORMED_AT); }
    static DEVICE T *own_place(int place) { return queries() + D::GROUP * PITCH + place * 2 * K::E; }

    // The whole block.
    DEVICE void fetch(const DecodeArgs<K> &a, const Unit &u)
    {
        if (u.row == row && u.set == set)
            return;
        const AppendFrom &from = append_from<K>(a);
        const int first = (int)threadIdx.x / LANES, e = (int)threadIdx.x % LANES * VEC;
        const bool mine = e < K::E;
        const PagedHead<K> head(a.pages, a.k, a.v, u.slot, u.set);
        const int p = u.cut.last - 1;
        own_ahead = {p, own_ahead.place ^ 1, (T *)head.k + head.at(head.page(p), p)};
        to_value = head.v - head.k;
        Vec<float, VEC> cs, gain[TURNS];
#pragma unroll
        for (int i = 0; i < VEC; i += 2) {
            const bool turned = e + i < K::ROT;
            cs[i] = turned ? from.table[(i64)p * K::ROT + e + i] : 1.0f;
            cs[i + 1] = turned ? from.table[(i64)p * K::ROT + e + i + 1] : 0.0f;
        }
#pragma unroll
        for (int t = 0; t < TURNS; t++) {
            const int h = first + t * AT_ONCE;
            gain[t] = mine && h <= D::GROUP ? load<VEC>((h < D::GROUP ? from.qg : from.kg) + e) : zeros<float, VEC>();
        }
        if (row < 0)
            wait_for_previous();
        else
            block_sync(); // all have read the queries before
        row = u.row;
        set = u.set;

        const T *x = (const T *)a.q + (i64)u.row * ((K::HEADS + 2 * K::KV_HEADS) * K::E) + e;
        Vec<T, VEC> held[TURNS];
#pragma unroll
        for (int t = 0; t < TURNS; t++) {
            const int h = first + t * AT_ONCE;
            const int head_at = h < D::GROUP ? u.set * D::GROUP + h : K::HEADS + (h - D::GROUP) * K::KV_HEADS + u.set;
            held[t] = mine && h < HEADS ? load<VEC>(x + head_at * K::E) : zeros<T, VEC>();
        }
#pragma unroll
        for (int t = 0; t < TURNS; t++) {
            const int h = first + t * AT_ONCE;
            const float scale = rms_scale<K::E>(head_sum(add_squares(0.0f, held[t], 0.0f)), K::EPS);
            Vec<float, VEC> f = to_floats(held[t]);
            if (h <= D::GROUP) {
#pragma unroll
                for (int i = 0; i < VEC; i++)
                    f[i] = f[i] * scale * gain[t][i];
                if (K::ROT > 0)
                    append_turn<VEC / 2>(cs, f);
            }
            if (mine && h < HEADS)
                store(h < D::GROUP ? queries() + h * PITCH + e : own_place(own_ahead.place) + (h - D::GROUP) * K::E + e, from_floats<T>(f));
        }
        block_sync();
#pragma unroll
        for (int n = 0; n < Base::GROUPS; n++) {
            const int h = n * 8 + lane_id() / 4;
            Base::load_query(Base::ahead[n], h < D::GROUP ? queries() + h * PITCH : nullptr);
        }
    }
    // Sum over the lanes of a head, in the order of stat_tree (body/norm.cuh).
    static DEVICE float head_sum(float v)
    {
#pragma unroll
        for (int m = least(LANES, 16) / 2; m; m /= 2)
            v += shuffle_xor(v, m);
        return LANES == 32 ? v + shuffle_xor(v, 16) : v;
    }
    DEVICE void start()
    {
        own = own_ahead;
        Base::start();
    }
    DEVICE void tile(u32 at, int position, int first, int end, const float *none)
    {
        const int r = own.position - position;
        if (r >= 0 && r < K::TILE) {
            constexpr int VECS = K::E / VEC;
            for (int i = lane_id(); i < 2 * VECS; i += 32) {
                const int value = i / VECS, v = i % VECS;
                const uint4_ x = ((const uint4_ *)own_place(own.place))[i];
                shared_store16(at + value * K::TILE * K::PITCH + D::Rows::piece(r, v), x);
                ((uint4_ *)(own.key + value * to_value))[v] = x;
            }
            warp_sync();
        }
        Base::tile(at, position, first, end, none);
    }
};

template <class C> struct TileLoader<Normed<C>> : NormedLoader<Normed<C>, TileLoader<NormedTiles<C>>> {};
template <class C> struct WarpStateMatrix<Normed<C>> : NormedState<Normed<C>, WarpStateMatrix<NormedTiles<C>>> {};

// As the contract has them.
struct AttendDecodeNormArgs {
    const void *x;
    const float *table, *qg, *kg;
    const FtxStep *step;
    const FtxRow *rows;
    const int *pages;
    const void *k, *v;
    void *y;
    float *partials;
    u32 *counters;
};

// The arguments of attend_decode.
template <class K> DEVICE WithAppend<DecodeArgs<K>> normed_args(const AttendDecodeNormArgs &a)
{
    return {{a.x, a.step, a.rows, a.pages, a.k, a.v, a.y, a.partials, a.counters}, AppendFrom{a.table, a.qg, a.kg}};
}
