// all_reduce.cuh - the sum of x over the ranks of a tensor-parallel model, with residual and norm.
//
//   y = sum over ranks of x (+ r)      or the rms norm or layer norm of it (norm.cuh)
//
//   x, r, y [M, C]      g, c [C] fp32
//
// One-shot: each rank sends its whole x to all others and adds up what arrives, in fp32 and in the order of the ranks, so all
// ranks get the same bits (body/exchange.cuh). A block takes a piece of the elements after another, with a norm a row,
// and sends the next piece before it waits for this one. It never waits for a piece that its own rank has not sent, and all
// blocks of a launch are resident, so ranks cannot wait for each other in a circle.
#pragma once
#include "device/block.cuh"
#include "device/pdl.cuh"
#include "device/vec.cuh"
#include "body/exchange.cuh"
#include "body/norm.cuh"
#include "body/rows.cuh"

struct AllReduceArgs {
    const void *x, *r;
    const float *g, *c;
    const FtxPeers *peers;
    FtxExchange *exchange;
    const FtxStep *step;
    void *y;
};

template <class K> struct AllReduce {
    typedef typename K::T T;
    typedef typename K::OUT O;
    static constexpr int VEC = 16 / sizeof(T);
    static constexpr int N = K::NORM ? ceil_div(K::C, VEC * K::THREADS) : 1; // vectors of a thread in a piece
    static constexpr int PIECE = K::NORM ? K::C : VEC * K::THREADS;          // elements
    static_assert(!K::NORM || K::C % VEC == 0, "rows of whole vectors");

    const AllReduceArgs &a;
    Exchange<K::RANKS> e;
    i64 elements;

    DEVICE AllReduce(const AllReduceArgs &a) : a(a), e(a.peers, a.exchange) { elements = (i64)live_rows<K::ROWS_S>(a.step) * K::C; }

    // The first element of vector i of this thread in a piece; its number of elements, 0 beyond the end.
    DEVICE i64 first(i64 piece, int i) const { return piece * PIECE + (i * K::THREADS + (int)threadIdx.x) * VEC; }
    DEVICE int length(i64 piece, int i) const
    {
        const i64 end = K::NORM ? (piece + 1) * PIECE : elements, left = end - first(piece, i);
        return left >= VEC ? VEC : left > 0 ? (int)left : 0;
    }
    DEVICE uint4_ own(i64 piece, int i) const
    {
        const Vec<T, VEC> v = load_up_to<VEC>((const T *)a.x + first(piece, i), length(piece, i));
        return to_wire<T>(*(const uint4_ *)&v);
    }
    DEVICE void send(i64 piece) const
    {
#pragma unroll
        for (int i = 0; i < N; i++)
            if (length(piece, i))
                e.send(first(piece, i) / VEC, own(piece, i));
    }
    // Sum, residual and rounding of vector i; without a norm it is stored.
    DEVICE Vec<O, VEC> sum(i64 piece, int i)
    {
        const i64 at = first(piece, i);
        const int n = length(piece, i);
        const Vec<O, VEC> r = K::RES ? load_up_to<VEC>((const O *)a.r + at, n) : zeros<O, VEC>();
        const uint4_ mine = own(piece, i);
        uint4_ all[K::RANKS];
        e.template receive<T>(at / VEC, all);
        Vec<float, VEC> s;
#pragma unroll
        for (int rank = 0; rank < K::RANKS; rank++) {
            const uint4_ word = from_wire<T>(rank == e.rank ? mine : all[rank]);
            const Vec<float, VEC> f = to_floats(*(const Vec<T, VEC> *)&word);
#pragma unroll
            for (int k = 0; k < VEC; k++)
                s[k] = rank == 0 ? f[k] : s[k] + f[k];
        }
#pragma unroll
        for (int k = 0; k < VEC && K::RES; k++)
            s[k] += to_float(r[k]);
        const Vec<O, VEC> y = from_floats<O>(s);
        if (!K::NORM)
            store_up_to((O *)a.y + at, y, n);
        return y;
    }
    // The norm of a row of which this thread has v: as norm.cuh computes it.
    DEVICE void norm(i64 row, const Vec<O, VEC> (&v)[N], float *room) const
    {
        RowStat stat = {0.0f, 1.0f};
        float s = 0.0f;
        if (K::NORM == 2) {
#pragma unroll
            for (int i = 0; i < N; i++)
                s = add_sum(s, v[i]);
            stat.mean = block_sum<K::THREADS>(s, room) / K::C;
            s = 0.0f;
        }
#pragma unroll
        for (int i = 0; i < N; i++)
            if (length(row, i))
                s = add_squares(s, v[i], stat.mean);
        stat.scale = rms_scale<K::C>(block_sum<K::THREADS>(s, room + 36), K::EPS);
#pragma unroll
        for (int i = 0; i < N; i++) {
            const int at = (i * K::THREADS + (int)threadIdx.x) * VEC;
            if (at >= K::C)
                break;
            const Vec<float, VEC> g = load<VEC>(a.g + at), c = K::NORM == 2 ? load<VEC>(a.c + at) : zeros<float, VEC>();
            Vec<float, VEC> f;
#pragma unroll
            for (int k = 0; k < VEC; k++)
                f[k] = K::NORM == 2 ? norm_apply(to_float(v[i][k]), stat, g[k], c[k]) : to_float(v[i][k]) * stat.scale * g[k];
            store((O *)a.y + row * K::C + at, from_floats<O>(f));
        }
        block_sync(); // before the next row uses the room again
    }
};

template <class K> DEVICE void all_reduce(const AllReduceArgs &a)
{
    SHARED(float, room, 72);
    launch_dependents();
    AllReduce<K> k(a);
    const i64 pieces = (k.elements + k.PIECE - 1) / k.PIECE;
    wait_for_previous();
    k.e.begin();
    i64 piece = blockIdx.x;
    if (piece < pieces)
        k.send(piece);
    k.e.counted();
    for (; piece < pieces; piece += gridDim.x) {
        if (piece + gridDim.x < pieces)
            k.send(piece + gridDim.x);
        Vec<typename K::OUT, k.VEC> y[k.N];
#pragma unroll
        for (int i = 0; i < k.N; i++)
            y[i] = k.length(piece, i) ? k.sum(piece, i) : zeros<typename K::OUT, k.VEC>();
        if (K::NORM)
            k.norm(piece, y, room);
    }
}
