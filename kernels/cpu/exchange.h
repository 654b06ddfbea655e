/* exchange.h - how a kernel brings its part of an exchange between ranks, and waits for those of the others (exchange.c,
 * gather.c). */
#ifndef FTX_CPU_EXCHANGE_H
#define FTX_CPU_EXCHANGE_H
#include <sched.h>
#include <time.h>

#include "cpu.h"

enum { EXCHANGE_SPINS = 2000 };

/* Ranks in several processes: FtxPeers.report is the address of one, whose function hands this rank's part of exchange n to
 * the others. 0: the ranks share memory. */
typedef struct ExchangeWire ExchangeWire;
struct ExchangeWire {
    void (*send)(ExchangeWire *w, unsigned n, const void *part, size_t bytes);
};

static inline FtxExchange *exchange_of(const FtxPeers *p, int rank)
{
    return (FtxExchange *)(uintptr_t)p->exchange[rank]; /* NOLINT(performance-no-int-to-ptr): addresses are 64 bits */
}

/* Where a rank has its part of exchange n, as this rank reaches it. */
static inline float *exchange_part(const FtxPeers *p, FtxExchange *own, unsigned n, int rank)
{
    char *buffers = (char *)(rank == p->rank ? own : exchange_of(p, rank));

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

/* The number of the next exchange; false: there are no more. */
static inline bool exchange_begin(const FtxExchange *own, unsigned *n)
{
    *n = __atomic_load_n(&own->count, __ATOMIC_RELAXED);
    return !__atomic_load_n(&own->stop, __ATOMIC_RELAXED);
}

/* This share has brought its part of exchange n, which has so many bytes in all. True: it is the last one, and the parts of all ranks are there. */
static inline bool exchange_end(const CpuCall *c, const FtxPeers *p, FtxExchange *own, unsigned n, size_t bytes)
{
    ExchangeWire *wire = (ExchangeWire *)(uintptr_t)p->report; /* NOLINT(performance-no-int-to-ptr): as above */

    if (__atomic_add_fetch(&own->arrived, 1, __ATOMIC_ACQ_REL) < (unsigned)c->threads)
        return false;
    __atomic_store_n(&own->arrived, 0, __ATOMIC_RELAXED);
    __atomic_store_n(&own->count, n + 1, __ATOMIC_RELEASE);
    if (wire)
        wire->send(wire, n, exchange_part(p, own, n, p->rank), bytes);
    for (int r = 0; r < p->ranks; r++)
        if (r != p->rank && !exchange_wait(p, own, n, r))
            return false;
    return true;
}

#endif
