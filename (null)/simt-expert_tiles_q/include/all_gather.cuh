// all_gather.cuh - the columns of all ranks of a tensor-parallel model, side by side.
//
//   y[m, r * C + c] = x[m, c] of rank r      columns from COLUMNS on are padding and dropped
//
//   x [M, C]     y [M, COLUMNS]
//
// Each rank sends its x to all others (body/exchange.cuh). A block takes one vector a thread after another, and sends the
// next before it waits for this one.
#pragma once
#include "device/pdl.cuh"
#include "device/vec.cuh"
#include "body/exchange.cuh"
#include "body/rows.cuh"

struct AllGatherArgs {
    const void *x;
    const FtxPeers *peers;
    FtxExchange *exchange;
    const FtxStep *step;
    void *y;
};

template <class K> struct AllGather {
    typedef typename K::T T;
    static constexpr int VEC = 16 / sizeof(T);
    static constexpr bool WHOLE = K::C % VEC == 0 && K::COLUMNS % VEC == 0; // a vector is in one row, aligned in y, too

    const AllGatherArgs &a;
    Exchange<K::RANKS> e;
    i64 elements;

    DEVICE AllGather(const AllGatherArgs &a) : a(a), e(a.peers, a.exchange) { elements = (i64)live_rows<K::ROWS_S>(a.step) * K::C; }

    DEVICE uint4_ own(i64 v) const
    {
        const i64 left = elements - v * VEC;
        const Vec<T, VEC> x = load_up_to<VEC>((const T *)a.x + v * VEC, left < VEC ? (int)left : VEC);
        return to_wire<T>(*(const uint4_ *)&x);
    }
    // Vector v of rank r, as sent, into y.
    DEVICE void put(i64 v, int r, uint4_ sent) const
    {
        const uint4_ word = from_wire<T>(sent);
        const Vec<T, VEC> x = *(const Vec<T, VEC> *)&word;
        if (WHOLE) {
            const i64 row = v * VEC / K::C;
            const int column = (int)(v * VEC % K::C) + r * K::C;
            if (column < K::COLUMNS)
                store((T *)a.y + row * K::COLUMNS + column, x);
            return;
        }
#pragma unroll
        for (int k = 0; k < VEC; k++) {
            const i64 at = v * VEC + k;
            const int column = (int)(at % K::C) + r * K::C;
            if (at < elements && column < K::COLUMNS)
                ((T *)a.y)[at / K::C * K::COLUMNS + column] = x[k];
        }
    }
};

template <class K> DEVICE void all_gather(const AllGatherArgs &a)
{
    launch_dependents();
    AllGather<K> k(a);
    const i64 vectors = (k.elements + k.VEC - 1) / k.VEC, step = (i64)gridDim.x * K::THREADS;
    wait_for_previous();
    k.e.begin();
    i64 v = (i64)blockIdx.x * K::THREADS + threadIdx.x;
    if (v < vectors)
        k.e.send(v, k.own(v));
    k.e.counted();
    for (; v < vectors; v += step) {
        if (v + step < vectors)
            k.e.send(v + step, k.own(v + step));
        uint4_ all[K::RANKS];
        k.e.template receive<typename K::T>(v, all);
#pragma unroll
        for (int r = 0; r < K::RANKS; r++)
            k.put(v, r, r == k.e.rank ? k.own(v) : all[r]);
    }
}
