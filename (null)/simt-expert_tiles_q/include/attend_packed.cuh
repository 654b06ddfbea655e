// attend_packed.cuh - attention of every token over all tokens of its own text (encoders).
//
//   y[t,h] = sum_j softmax_j(SCALE * q[t,h] . k[j]) v[j]      j: the tokens of the row of t
//
//   x [T, (H + 2G) * E]   queries, keys, values of each token, side by side; row r has the tokens
//                         [q_start, q_start + q_len)
//   y [T, H*E]
//
// Texts of any lengths are packed one after another, without padding. Blocks and tiles: body/flash.cuh.
#pragma once
#include "body/flash.cuh"

struct AttendPackedArgs {
    const void *x;
    const FtxStep *step;
    const FtxRow *rows;
    void *y;
};

template <class K> struct TextSource {
    static constexpr int N = (K::HEADS + 2 * K::KV_HEADS) * K::E; // of a token
    const AttendPackedArgs &a;

    DEVICE const typename K::T *query(const Piece &p, int i) const
    {
        constexpr int GROUP = FlashShape<K>::GROUP;
        return (const typename K::T *)a.x + (i64)(p.q_start + i / GROUP) * N + (blockIdx.x * GROUP + i % GROUP) * K::E;
    }
    DEVICE typename K::T *result(const Piece &p, int i) const
    {
        constexpr int GROUP = FlashShape<K>::GROUP;
        return (typename K::T *)a.y + ((i64)(p.q_start + i / GROUP) * K::HEADS + blockIdx.x * GROUP + i % GROUP) * K::E;
    }

    struct Head {
        const typename K::KV *k;

        DEVICE Head(const TextSource &s, const Piece &p)
            : k((const typename K::KV *)s.a.x + (i64)p.q_start * N + (K::HEADS + blockIdx.x) * K::E)
        {
        }
        DEVICE const typename K::KV *keys() const { return k; }
        DEVICE i64 at(int position) const { return (i64)position * N; }
        DEVICE i64 to_values() const { return K::KV_HEADS * K::E * (i64)sizeof(typename K::KV); }
    };
};

template <class K> // K: T KV HEADS KV_HEADS E SCALE CAUSAL WINDOW SOFTCAP ROWS KEYS
__device__ void attend_packed(const AttendPackedArgs &a)
{
    flash<K>(a.step, a.rows, 0, TextSource<K>{a});
}
