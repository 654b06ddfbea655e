// attend_prefill.cuh - attention of rows that bring a chunk of a prompt, over the paged cache.
//
//   y[i,h] = sum_j softmax_j(cap(SCALE * q[i,h] . k[j])) v[j]    token i of a row sees positions j up to
//                                                                kv_len - q_len + i, and of these the last WINDOW (0: all)
//
//   q [T, H, E]     queries, rotated; row r has the tokens [q_start, q_start + q_len)
//   k, v            the layer's pages (body/paged.cuh); they hold the chunk's keys and values already
//   y [T, H*E]
//
// Rows [decode_rows, rows) of the step. Blocks and tiles: body/flash.cuh.
#pragma once
#include "body/flash.cuh"

struct AttendPrefillArgs {
    const void *q;
    const FtxStep *step;
    const FtxRow *rows;
    const int *pages;
    const void *k, *v;
    void *y;
};

template <class K> struct PromptSource {
    const AttendPrefillArgs &a;

    // Offset of matrix row i of the piece in q and y, in elements.
    DEVICE i64 row_at(const Piece &p, int i) const
    {
        constexpr int GROUP = FlashShape<K>::GROUP;
        return ((i64)(p.q_start + i / GROUP) * K::HEADS + blockIdx.x * GROUP + i % GROUP) * K::E;
    }
    DEVICE const typename K::T *query(const Piece &p, int i) const { return (const typename K::T *)a.q + row_at(p, i); }
    DEVICE typename K::T *result(const Piece &p, int i) const { return (typename K::T *)a.y + row_at(p, i); }

    struct Head {
        const PagedHead<K> head;

        DEVICE Head(const PromptSource &s, const Piece &p) : head(s.a.pages, s.a.k, s.a.v, p.slot, blockIdx.x) {}
        DEVICE const typename K::KV *keys() const { return head.k; }
        DEVICE i64 at(int position) const { return head.at(head.page(position), position); }
        DEVICE i64 to_values() const { return (const char *)head.v - (const char *)head.k; }
    };
};

template <class K> // K: T KV HEADS KV_HEADS E BLOCK CONTEXT SCALE CAUSAL WINDOW SOFTCAP ROWS KEYS
__device__ void attend_prefill(const AttendPrefillArgs &a)
{
    static_assert(K::BLOCK % 8 == 0, "multiples of 8");
    flash<K>(a.step, a.rows, a.step->decode_rows, PromptSource<K>{a});
}
