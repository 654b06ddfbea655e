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
#include <sched.h>
#include <time.h>
#define BODY "exchange.c"
#include "each.h"
#else

#ifndef EXCHANGE_ONCE
#define EXCHANGE_ONCE
enum { EXCHANGE_SPINS = 2000 };

static inline FtxExchange *exchange_of(const FtxPeers *p, int rank)
{
    return (FtxExchange *)(uintptr_t)p->exchange[rank]; /* NOLINT(performance-no-int-to-ptr): addresses are 64 bits */
}

/* Where a rank has its part of exchange n, as this rank reaches it. */
static inline float *exchange_part(const CpuCall *c, unsigned n, int rank)
{
    const FtxPeers *p = c->arg[1];
    char *buffers = rank == p->rank ? c->arg[2] : exchange_of(p, rank);

    buffers += sizeof(FtxExchange) + n % FTX_EXCHANGES * p->bytes;
    return (float *)(void *)(buffers + (uint64_t)rank * (p->bytes / (uint64_t)p->ranks));
}

static inline int64_t exchange_now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* Waits until a rank has brought its part of exchange n. */
static inline bool exchange_wait(const FtxPeers *p, FtxExchange *own, unsigned n, int rank)
{
    const unsigned *count = &exchange_of(p, rank)->count;
    int64_t until = 0;

    for (int spins = 0; (int)(__atomic_load_n(count, __ATOMIC_ACQUIRE) - n) <= 0; spins++) {
        if (__atomic_load_n(&own->stop, __ATOMIC_RELAXED))
            return false;
        if (spins < EXCHANGE_SPINS)
            continue;
        sched_yield();
        if (!until)
            until = exchange_now() + p->timeout_ms;
        if (exchange_now() > until) {
            own->failed = (unsigned)rank + 1;
            __atomic_store_n(&own->stop, 1, __ATOMIC_RELAXED);
            return false;
        }
    }
    return true;
}

/* Brings this share's part of x, `all` elements. True: the caller has the last share, and the parts of all ranks are there;
 * *n: the number of the exchange. */
static inline bool exchange_bring(const CpuCall *c, const float *x, int64_t all, unsigned *n)
{
    const FtxPeers *p = c->arg[1];
    FtxExchange *own = c->arg[2];
    int64_t first, last;

    *n = __atomic_load_n(&own->count, __ATOMIC_RELAXED);
    if (__atomic_load_n(&own->stop, __ATOMIC_RELAXED))
        return false;
    cpu_share(c, all, &first, &last);
    memcpy(exchange_part(c, *n, p->rank) + first, x + first, (size_t)(last - first) * sizeof *x);
    if (__atomic_add_fetch(&own->arrived, 1, __ATOMIC_ACQ_REL) < (unsigned)c->threads)
        return false;
    __atomic_store_n(&own->arrived, 0, __ATOMIC_RELAXED);
    __atomic_store_n(&own->count, *n + 1, __ATOMIC_RELEASE);
    for (int r = 0; r < p->ranks; r++)
        if (r != p->rank && !exchange_wait(p, own, *n, r))
            return false;
    return true;
}
#endif

void AT(all_reduce)(const CpuCall *c)
{
    const FtxPeers *p = c->arg[1];
    const int64_t all = (c->k[ALL_REDUCE_ROWS_S] ? c->S : c->T) * c->k[ALL_REDUCE_C];
    float *y = c->arg[3];
    unsigned n;

    if (!exchange_bring(c, c->arg[0], all, &n))
        return;
    memcpy(y, exchange_part(c, n, 0), (size_t)all * sizeof *y);
    for (int r = 1; r < p->ranks; r++) {
        const float *x = exchange_part(c, n, r);

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

    if (!exchange_bring(c, c->arg[0], rows * C, &n))
        return;
    for (int r = 0; r < p->ranks && r * C < columns; r++)
        for (int64_t m = 0; m < rows; m++)
            memcpy(y + m * columns + r * C, exchange_part(c, n, r) + m * C,
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
