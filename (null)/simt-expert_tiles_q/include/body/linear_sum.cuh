// linear_sum.cuh - a linear layer of 1 to 8 rows and the sum of its results over the ranks of a tensor-parallel model.
//
//   y[m,n] = sum over ranks of (sum_k x[m,k] * w[n,k] + b[n]) (+ r[m,n])
//
//   x [M, K], w [N, K], r, y [M, N]  16-bit      b [N] fp32, N even
//
// linear.cuh with another end: the thread that has finished two columns of a row stores them, rounded as y is, into the
// memory of every rank, its own included (body/exchange.cuh), and goes on with its next tile. When all columns of the
// block are on their way, each thread waits for its own ones of all ranks and adds them in the order of the ranks. So
// the bits are those of `linear` and `all_reduce`, one after the other, without the launch and the way through memory
// between them: of the 2.5 us from one product's end to the next one's start the flight is left.
//
// Block i of each rank has the same columns, all blocks of a launch are resident, and none waits before it has sent all
// it has, so ranks cannot wait for each other in a circle.
//
// GPUs of several processes: two launches, and NCCL between them. The first stores the columns of this rank into its own
// part of $exchange, as they are; the second finds there what all have brought (FtxExchange.reserved[0] says which it is).
//
// It is the end of a family, not a family: templates/linear.cu includes it behind linear.cuh.
#pragma once
#include "body/exchange.cuh"
#include "body/linear.cuh"

struct LinearSumArgs {
    const void *x, *w;
    const float *b;
    const void *r;
    const FtxPeers *peers;
    FtxExchange *exchange;
    const FtxStep *step;
    void *y;
};

// What linear() reads, and the exchange that its end is part of.
template <class C> struct LinearSum : LinearArgs {
    mutable Exchange<C::RANKS> e;
    mutable bool begun = false;
    mutable i64 kept_at = -1; // the last word that this thread has sent, which need not go through memory
    mutable u32 kept = 0;

    DEVICE LinearSum(const LinearSumArgs &a) : LinearArgs{}, e(a.peers, a.exchange)
    {
        x = a.x;
        w = a.w;
        b = a.b;
        r = a.r;
        step = a.step;
        y = a.y;
    }
};

// linear() asks for the residual as soon as the previous kernel has ended. It is added to the sum of all ranks instead.
template <class C> DEVICE LinearResidual linear_residual(const LinearSum<C> &a, int, int)
{
    if (!a.begun)
        a.e.begin();
    a.begun = true;
    return LinearResidual{};
}

// The epilogue of linear().
template <class C>
DEVICE void linear_out(const LinearSum<C> &a, const LinearBias &b, const LinearResidual &, const LinearPlace &, int m, int n, float v0,
                       float v1)
{
    if (C::BIAS) {
        v0 += b.b[0];
        v1 += b.b[1];
    }
    a.kept_at = ((i64)m * C::N + n) / 2;
    a.kept = pack2<typename C::OUT>(v0, v1);
    a.e.template send_word<typename C::OUT>(a.kept_at, a.kept);
}

// Waits for columns n, n + 1 of row m of all ranks; their sum.
template <class C> DEVICE void linear_sum_item(const LinearSum<C> &a, int m, int n)
{
    typedef typename C::OUT O;
    const LinearResidual r = linear_residual<C>((const LinearArgs &)a, m, n);
    u32 all[C::RANKS];
    float s[2];
    const i64 at = ((i64)m * C::N + n) / 2;
    a.e.template receive_word<O>(at, all, at == a.kept_at, a.kept);
#pragma unroll
    for (int rank = 0; rank < C::RANKS; rank++) {
        s[0] = rank == 0 ? low<O>(all[0]) : s[0] + low<O>(all[rank]);
        s[1] = rank == 0 ? high<O>(all[0]) : s[1] + high<O>(all[rank]);
    }
    linear_store<C>(a, m, n, s[0] + (C::RES ? r.r[0] : 0.0f), s[1] + (C::RES ? r.r[1] : 0.0f));
}

template <class C> DEVICE void linear_sum(const LinearSumArgs &args)
{
    const LinearSum<C> a(args);
    bool brought = false; // all parts are there
    if (a.e.gathered) {
        wait_for_previous();
        brought = load_system(&args.exchange->reserved[0]) != 0;
    }
    if (!brought)
        linear<C>(a);
    if (brought || threadIdx.x >= 288)
        a.e.begin();
    if (a.e.gathered)
        a.e.turn(brought);
    else
        a.e.counted(288); // of the warp for statistics, which has waited for the previous kernel and has no columns
    if (threadIdx.x >= 256 || (a.e.gathered && !brought))
        return;
    const int tiles = ceil_div(C::N, 8), live = least(live_rows<C::ROWS_S>(a.step), C::M);
    const int first = (int)((i64)blockIdx.x * tiles / gridDim.x);
    const int count = (int)((i64)(blockIdx.x + 1) * tiles / gridDim.x) - first;
    for (int t0 = 0; t0 < count; t0 += LinearShape<C>::ROUND_TILES) {
        int m, n;
        if (linear_item<C>(first + t0, count - t0, m, n) && m < live)
            linear_sum_item<C>(a, m, n);
    }
}
