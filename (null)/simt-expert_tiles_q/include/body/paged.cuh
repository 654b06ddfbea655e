// paged.cuh - keys and values of one (sequence, kv head) in the paged cache; the exponent of a score.
//
//   cache of a layer   k and v, each [pages][kv_heads][BLOCK][E]
//   table of a slot    [ceil(CONTEXT / BLOCK)] page numbers
//
// Position p of the sequence is row p % BLOCK of page table[p / BLOCK]. BLOCK is a multiple of 8, so the eight rows
// from a multiple of 8 on are contiguous.
#pragma once
#include "device/types.cuh"

template <class K> struct PagedHead {
    const int *table;
    const typename K::KV *k, *v; // the head's rows of page 0

    DEVICE PagedHead() {}
    DEVICE PagedHead(const int *pages, const void *keys, const void *values, int slot, int head)
        : table(pages + (i64)slot * ceil_div(K::CONTEXT, K::BLOCK)),
          k((const typename K::KV *)keys + (i64)head * K::BLOCK * K::E),
          v((const typename K::KV *)values + (i64)head * K::BLOCK * K::E)
    {
    }
    DEVICE int page(int position) const { return table[position / K::BLOCK]; }
    // Offset from k (or v) to the row of a position that is in `page`, in elements.
    DEVICE i64 at(int page, int position) const
    {
        return ((i64)page * (K::KV_HEADS * K::BLOCK) + position % K::BLOCK) * K::E;
    }
};

// The exponent x of a key's weight 2^x, from q . k: scaled, soft-capped, times log2(e).
template <class K> DEVICE float exponent(float dot)
{
    constexpr float LOG2E_ = 1.4426950408889634f;
    if (K::SOFTCAP > 0.0f)
        return K::SOFTCAP * LOG2E_ * tanhf(dot * (K::SCALE / (K::SOFTCAP > 0.0f ? K::SOFTCAP : 1.0f)));
    return dot * (K::SCALE * LOG2E_);
}
