// append_codes.cuh - append.cuh and append_norm.cuh for a cache of codes: q rotated to q, k and v to the layer's pages.
//
//   x [T, (H + 2G) * E]  ->  q [T, H * E], and the cache (body/coded.cuh)
//   table [positions][ROT/2] {cos, sin}; qg, kg [E]: gains of a root-mean-square norm of each head before (NORM)
//
// A warp takes one head of one token. Memory bound.
#pragma once
#include "device/pdl.cuh"
#include "body/coded.cuh"

struct AppendCodesArgs {
    const void *x;
    const float *table, *qg, *kg;
    const FtxStep *step;
    const FtxToken *token;
    const int *pages;
    void *k, *v;
    void *q;
};

template <class K> // K: T OUT HEADS KV_HEADS E ROT BLOCK CONTEXT FP8 NORM EPS THREADS
DEVICE void append_codes(const AppendCodesArgs &a)
{
    typedef typename K::T T;
    launch_dependents();
    const int t = blockIdx.x, head = blockIdx.y * (K::THREADS / 32) + warp_id();
    const bool live = t < a.step->tokens && head < K::HEADS + 2 * K::KV_HEADS;
    wait_for_previous();
    if (!live)
        return;
    const FtxToken token = a.token[t];
    CodedRow<K::E> row;
    row.read((const T *)a.x + ((i64)t * (K::HEADS + 2 * K::KV_HEADS) + head) * K::E);
    if (K::NORM && head < K::HEADS + K::KV_HEADS)
        row.norm(head < K::HEADS ? a.qg : a.kg, K::EPS);
    if (K::ROT > 0 && head < K::HEADS + K::KV_HEADS) {
        Vec<float, row.VEC> turn[row.N];
        row.template read_turn<K::ROT>(a.table + (i64)token.pos * K::ROT, turn);
        row.rotate(turn);
    }
    if (head < K::HEADS) {
        row.write((typename K::OUT *)a.q + ((i64)t * K::HEADS + head) * K::E);
        return;
    }
    const CodedHead<K> to(a.pages, a.k, a.v, token.slot, (head - K::HEADS) % K::KV_HEADS);
    Code *base = (Code *)(head < K::HEADS + K::KV_HEADS ? to.k : to.v);
    const int page = to.page(token.pos);
    put_coded<K::FP8>(row, base + to.at(page, token.pos), (half *)(base + to.scale_at(page, token.pos)));
}
