// paged.cuh - keys and values of one (sequence, kv head) in the paged cache.
//
//   cache of a layer   [pages][kv_heads][BLOCK][E], keys and values apart
//   table of a slot    [ceil(CONTEXT / BLOCK)] page numbers
//
// Position p of the sequence is row p % BLOCK of page table[p / BLOCK]. BLOCK is a multiple of 8,
// so eight rows that start at a multiple of 8 lie in one page, one after another.
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
    // Elements from k (or v) to the row of a position that stands in `page`.
    DEVICE i64 at(int page, int position) const
    {
        return ((i64)page * (K::KV_HEADS * K::BLOCK) + position % K::BLOCK) * K::E;
    }
};

// The raw score of a key becomes an exponent of 2: scaled, capped, in units of log 2.
template <class K> DEVICE float exponent(float dot)
{
    constexpr float LOG2E_ = 1.4426950408889634f;
    if (K::SOFTCAP > 0.0f)
        return K::SOFTCAP * LOG2E_ * tanhf(dot * (K::SCALE / (K::SOFTCAP > 0.0f ? K::SOFTCAP : 1.0f)));
    return dot * (K::SCALE * LOG2E_);
}
