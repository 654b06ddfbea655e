// coded_prefill.cuh - what attend_prefill needs for a cache of codes of 8 bits (body/coded.cuh): they become numbers of the
// queries' type on their way to shared memory.
#pragma once
#include "body/coded.cuh"
#include "body/flash.cuh"

template <class K> struct PromptSource; // attend_prefill.cuh

template <class K> struct CodedSource : PromptSource<K> {};

// Sixteen codes, times a scale, to shared memory as numbers of T. Piece c of a row has 16 bytes.
template <class K> DEVICE void put_numbers(const uint4_ &codes, float scale, char *tile, int row, int column)
{
    using Rows = typename FlashShape<K>::Rows;
    using T = typename K::T;
    constexpr int PER = 16 / (int)sizeof(T); // elements of a piece
    const u32 words[4] = {codes.x, codes.y, codes.z, codes.w};
    Vec<T, PER> out[16 / PER];
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const u32 a = code_pair<K::FP8, 0, 1>(words[i]), b = code_pair<K::FP8, 2, 3>(words[i]);
        const float x[4] = {low<half>(a), high<half>(a), low<half>(b), high<half>(b)};
#pragma unroll
        for (int j = 0; j < 4; j++)
            out[(i * 4 + j) / PER][(i * 4 + j) % PER] = from_float<T>(x[j] * scale);
    }
#pragma unroll
    for (int i = 0; i < 16 / PER; i++)
        store((T *)(tile + Rows::piece(row, column / PER + i)), out[i]);
}

// As copy_tile of flash.cuh, whose place it takes for this source. The tile is there after the next barrier.
template <class K> DEVICE void copy_tile(const CodedSource<K> &source, u32 to, int position, const Piece &piece)
{
    using D = FlashShape<K>;
    constexpr int GROUPS = K::E / 16; // of a row
    constexpr float UP = K::FP8 ? 256.0f : 1.0f;
    const CodedHead<K> head(source.a.pages, source.a.k, source.a.v, piece.slot, blockIdx.x);
    const int end = piece.end, first = K::WINDOW > 0 ? piece.low - K::WINDOW + 1 : 0;
    char *keys = shared_memory() + (to - shared_address(shared_memory()));
#pragma unroll 4
    for (int i = 0; i < ceil_div(K::KEYS * GROUPS, D::THREADS); i++) {
        const int n = i * D::THREADS + threadIdx.x;
        const int r = n / GROUPS, c = n % GROUPS;
        if (K::KEYS * GROUPS % D::THREADS && r >= K::KEYS)
            break;
        uint4_ k{0, 0, 0, 0}, v{0, 0, 0, 0};
        float by_k = 0.0f, by_v = 0.0f;
        if (position + r < end && (K::WINDOW <= 0 || position + r >= first)) {
            const int page = head.page(position + r);
            const i64 at = head.at(page, position + r) + c * 16, scale = head.scale_at(page, position + r);
            k = *(const uint4_ *)(head.k + at);
            v = *(const uint4_ *)(head.v + at);
            by_k = UP * to_float(*(const half *)(head.k + scale));
            by_v = UP * to_float(*(const half *)(head.v + scale));
        }
        put_numbers<K>(k, by_k, keys, r, c * 16);
        put_numbers<K>(v, by_v, keys + D::TILE, r, c * 16);
    }
}
