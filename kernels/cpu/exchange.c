/* exchange.c - what ranks exchange: sums over all ranks, columns of all ranks, a rank's own piece of columns.
 *
 *   all_reduce   y[m,i] = x0[m,i] + x1[m,i] + ..., in the order of the ranks
 *   all_gather   y [M,COLUMNS]: row m has row m of x0 [M,C], then that of x1, ...
 *   rank_slice   y [M,WIDTH/OF]: piece rank * OF / ranks of the columns of x [M,WIDTH], which all ranks have
 *
 * Every share copies its part of x to where the other ranks read it ($exchange: kernels/device/io.h). The share that
 * finishes last says so to the other ranks, waits until they have done the same, and computes y. A rank that does not come
 * in time is noted; y is not written then. */
//@ kernel  all_reduce
//@ rank    1070
//@ args    x[M,C] $peers $exchange -> y
//@ match   y = all_reduce(x)
//@ consts  C: C  ROWS_S: rows(x)
//@ moves   12 * T * C

//@ kernel  all_gather
//@ rank    1080
//@ args    x[M,C] $peers $exchange -> y[M,N]
//@ match   y = all_gather(x)
//@ consts  C: C  COLUMNS: N  ROWS_S: rows(x)
//@ moves   8 * T * N

//@ kernel  rank_slice
//@ rank    1090
//@ args    x[M,N] h[T,H,E] $peers -> y
//@ match   y = rank_slice(x)   | WIDTH=N
//@ match   y = rank_slice(h)   | WIDTH=H*E
//@ consts  WIDTH: WIDTH  OF: rank_slice.of  ROWS_S: rows(y)
//@ moves   8 * T * WIDTH
#ifndef LEVEL
#define BODY "exchange.c"
#include "each.h"
#else

#include "exchange.h"

/* Brings this share's part of x, `all` elements, as exchange_end says. */
ALWAYS_INLINE bool AT(exchange_bring)(const CpuCall *c, const float *x, int64_t all, unsigned *n)
{
    const FtxPeers *p = c->arg[1];
    FtxExchange *own = c->arg[2];
    int64_t first, last;

    if (!exchange_begin(own, n))
        return false;
    cpu_share(c, all, &first, &last);
    memcpy(exchange_part(p, own, *n, p->rank) + first, x + first, (size_t)(last - first) * sizeof *x);
    return exchange_end(c, p, own, *n, (size_t)all * sizeof *x);
}

void AT(all_reduce)(const CpuCall *c)
{
    const FtxPeers *p = c->arg[1];
    const int64_t all = (c->k[ALL_REDUCE_ROWS_S] ? c->S : c->T) * c->k[ALL_REDUCE_C];
    float *y = c->arg[3];
    unsigned n;

    if (!AT(exchange_bring)(c, c->arg[0], all, &n))
        return;
    memcpy(y, exchange_part(p, c->arg[2], n, 0), (size_t)all * sizeof *y);
    for (int r = 1; r < p->ranks; r++) {
        const float *x = exchange_part(p, c->arg[2], n, r);

        for (int64_t i = 0; i < all; i++)
            y[i] += x[i];
    }
}

void AT(all_gather)(const CpuCall *c)
{
    const FtxPeers *p = c->arg[1];
    const int64_t rows = c->k[ALL_GATHER_ROWS_S] ? c->S : c->T, C = c->k[ALL_GATHER_C];
    const int64_t columns = c->k[ALL_GATHER_COLUMNS];
    float *y = c->arg[3];
    unsigned n;

    if (!AT(exchange_bring)(c, c->arg[0], rows * C, &n))
        return;
    for (int r = 0; r < p->ranks && r * C < columns; r++)
        for (int64_t m = 0; m < rows; m++)
            memcpy(y + m * columns + r * C, exchange_part(p, c->arg[2], n, r) + m * C,
                   (size_t)(columns - r * C < C ? columns - r * C : C) * sizeof *y);
}

void AT(rank_slice)(const CpuCall *c)
{
    const float *x = c->arg[0] ? c->arg[0] : c->arg[1];
    const FtxPeers *p = c->arg[2];
    const int64_t width = c->k[RANK_SLICE_WIDTH], of = c->k[RANK_SLICE_OF], n = width / of;
    float *y = c->arg[3];
    int64_t first, last;

    cpu_share(c, c->k[RANK_SLICE_ROWS_S] ? c->S : c->T, &first, &last);
    for (int64_t m = first; m < last; m++)
        memcpy(y + m * n, x + m * width + p->rank * of / p->ranks * n, (size_t)n * sizeof *y);
}
#endif
