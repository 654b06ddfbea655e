/* link.c - what ranks that are processes tell each other: calls, and what their kernels exchange. */
#include "link.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "../../../kernels/cpu/exchange.h"
#include "../../base/env.h"
#include "meeting.h"
#include "sockets.h"

enum { POLL_MS = 100 };

typedef struct Part { /* before what a rank brings to an exchange */
    uint32_t number;
    uint32_t reserved;
    uint64_t bytes;
} Part;

typedef struct Link { /* to another rank */
    Links *of;
    int rank;
    pthread_t receiver;
    bool receives;
    FtxExchange *mirror; /* what that rank would have stored */
} Link;

struct Links {
    ExchangeWire wire; /* first: wire_report is its address */
    Memory memory;
    int rank, ranks, timeout;
    RankSockets at[FTX_MAX_RANKS];
    Link link[FTX_MAX_RANKS];
    pthread_mutex_t lock;
    FtxExchange *own; /* NULL: no session */
    uint64_t bytes;   /* of a buffer */
    int lost;         /* 1 + the rank whose connection has ended */
    char word[FTX_JOIN_WORD];
    int64_t hurry; /* when answers that are waited for are due, in ms of socket_now; 0: no limit */
};

static atomic_flag link_open = ATOMIC_FLAG_INIT; /* the process has connections: the address of rank 0 is taken */

/* --- exchanges ---------------------------------------------------------------------------------------- */

/* The connection to a rank has ended: no kernel waits for it any more. */
static void lose(Links *l, int rank)
{
    pthread_mutex_lock(&l->lock);
    if (!l->lost)
        __atomic_store_n(&l->lost, rank + 1, __ATOMIC_RELEASE);
    if (l->own) {
        l->own->failed = (unsigned)rank + 1;
        __atomic_store_n(&l->own->stop, 1, __ATOMIC_RELEASE);
    }
    pthread_mutex_unlock(&l->lock);
}

/* Where part n of a rank goes; NULL: there is no session, or it does not fit. */
static char *mirror_at(Links *l, const Link *from, const Part *p)
{
    uint64_t share;
    char *at = NULL;

    pthread_mutex_lock(&l->lock);
    share = l->bytes / (uint64_t)l->ranks;
    if (l->own && p->bytes <= share)
        at = (char *)(from->mirror + 1) + p->number % FTX_EXCHANGES * l->bytes + (uint64_t)from->rank * share;
    pthread_mutex_unlock(&l->lock);
    return at;
}

static void *receive_parts(void *user)
{
    Link *from = user;
    const int fd = from->of->at[from->rank].exchange;
    Part p;
    char *to;

    while (socket_receive(fd, &p, sizeof p, 0) && (to = mirror_at(from->of, from, &p)) != NULL &&
           socket_receive(fd, to, p.bytes, 0))
        __atomic_store_n(&from->mirror->count, p.number + 1, __ATOMIC_RELEASE);
    lose(from->of, from->rank);
    return NULL;
}

static void send_part(ExchangeWire *w, unsigned n, const void *part, size_t bytes)
{
    Links *l = (Links *)(void *)w;
    const Part p = {.number = n, .bytes = bytes};

    for (int r = 0; r < l->ranks; r++)
        if (r != l->rank &&
            (!socket_send(l->at[r].exchange, &p, sizeof p) || !socket_send(l->at[r].exchange, part, bytes)))
            lose(l, r);
}

static uint64_t mirror_bytes(const Links *l)
{
    return sizeof(FtxExchange) + FTX_EXCHANGES * l->bytes;
}

FtxStatus wire_open(Links *l, FtxExchange *own, uint64_t bytes, FtxError *err)
{
    l->bytes = bytes;
    for (int r = 0; r < l->ranks; r++) {
        if (r == l->rank)
            continue;
        if (!l->link[r].mirror)
            l->link[r].mirror = memory_alloc(&l->memory, mirror_bytes(l), 64);
        if (!l->link[r].mirror)
            return memory_fail(err, "what other ranks bring", mirror_bytes(l));
        l->link[r].mirror->count = 0;
    }
    pthread_mutex_lock(&l->lock);
    l->own = own;
    if (l->lost)
        own->stop = 1;
    pthread_mutex_unlock(&l->lock);
    return FTX_OK;
}

void wire_close(Links *l)
{
    pthread_mutex_lock(&l->lock);
    l->own = NULL;
    pthread_mutex_unlock(&l->lock);
}

uint64_t wire_address(const Links *l, int rank)
{
    return (uintptr_t)l->link[rank].mirror;
}

uint64_t wire_report(const Links *l)
{
    return (uintptr_t)&l->wire;
}

int wire_lost(const Links *l)
{
    return __atomic_load_n(&l->lost, __ATOMIC_ACQUIRE) - 1;
}

/* --- calls ---------------------------------------------------------------------------------------------- */

FtxStatus link_send(Links *l, int rank, const void *p, size_t bytes, FtxError *err)
{
    if (socket_send(l->at[rank].calls, p, bytes))
        return FTX_OK;
    return ftx_fail(err, FTX_EDEVICE, "the connection to rank %d has ended", rank);
}

FtxStatus link_receive(Links *l, int rank, void *p, size_t bytes, int seconds, FtxError *err)
{
    struct pollfd poll_fd = {.fd = l->at[rank].calls, .events = POLLIN};
    const int limit = seconds ? seconds : l->timeout;

    while (!seconds && poll(&poll_fd, 1, POLL_MS) <= 0) {
        const int64_t due = __atomic_load_n(&l->hurry, __ATOMIC_ACQUIRE);

        if (due && socket_now() >= due)
            return ftx_fail(err, FTX_EDEVICE, "rank %d has not answered within %d s (FTX_PEER_TIMEOUT)", rank,
                            l->timeout);
    }

    const int64_t until = socket_now() + limit * 1000; /* what has begun to come must end, too */

    if (socket_receive(l->at[rank].calls, p, bytes, until))
        return FTX_OK;
    if (socket_now() >= until)
        return ftx_fail(err, FTX_EDEVICE, "rank %d has not answered within %d s%s", rank, limit,
                        limit == l->timeout ? " (FTX_PEER_TIMEOUT)" : "");
    return ftx_fail(err, FTX_EDEVICE, "the connection to rank %d has ended", rank);
}

int links_timeout(const Links *l)
{
    return l->timeout;
}

void links_hurry(Links *l, bool on)
{
    __atomic_store_n(&l->hurry, on ? socket_now() + l->timeout * 1000 : 0, __ATOMIC_RELEASE);
}

void link_stop(Links *l, int rank)
{
    shutdown(l->at[rank].calls, SHUT_RDWR);
}

/* --- open and close --------------------------------------------------------------------------------------- */

static FtxStatus start_receivers(Links *l, FtxError *err)
{
    sigset_t all, before;
    int failed = 0;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    for (int r = 0; !failed && r < l->ranks; r++) {
        if (r == l->rank)
            continue;
        failed = pthread_create(&l->link[r].receiver, NULL, receive_parts, &l->link[r]);
        l->link[r].receives = !failed;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return failed ? ftx_fail(err, FTX_ENOMEM, "cannot start a thread for a rank: %s", strerror(failed)) : FTX_OK;
}

FtxStatus links_open(const FtxOptions *o, int rank, int ranks, uint64_t artifact, Links **out, FtxError *err)
{
    const Memory m = memory_of(o);
    Links *l;
    FtxStatus s;

    *out = NULL;
    if (atomic_flag_test_and_set(&link_open))
        return ftx_fail(err, FTX_EINVAL,
                        "FTX_MASTER is set, so this process takes part in one model at a time, and one is open");
    l = memory_alloc(&m, sizeof *l, 64);
    if (!l) {
        atomic_flag_clear(&link_open);
        return memory_fail(err, "connections of ranks", sizeof *l);
    }
    *l = (Links){.wire = {send_part}, .memory = m, .rank = rank, .ranks = ranks};
    pthread_mutex_init(&l->lock, NULL);
    for (int r = 0; r < FTX_MAX_RANKS; r++) {
        l->at[r] = (RankSockets){-1, -1};
        l->link[r] = (Link){.of = l, .rank = r};
    }
    s = env_int(ENV_FTX_PEER_TIMEOUT, 1, 3600, 10, &l->timeout, err);
    if (!s)
        s = ranks_meet(o, rank, ranks, l->timeout, artifact, l->at, err);
    if (!s)
        s = start_receivers(l, err);
    if (s) {
        links_close(l);
        return s;
    }
    *out = l;
    return FTX_OK;
}

void links_close(Links *l)
{
    if (!l)
        return;

    const Memory m = l->memory;

    for (int r = 0; r < l->ranks; r++)
        if (l->at[r].exchange >= 0)
            shutdown(l->at[r].exchange, SHUT_RDWR);
    for (int r = 0; r < l->ranks; r++) {
        if (l->link[r].receives)
            pthread_join(l->link[r].receiver, NULL);
        socket_close(&l->at[r].exchange);
        socket_close(&l->at[r].calls);
        memory_free(&m, l->link[r].mirror, mirror_bytes(l));
    }
    pthread_mutex_destroy(&l->lock);
    memory_free(&m, l, sizeof *l);
    atomic_flag_clear(&link_open);
}

char *links_word(Links *l)
{
    return l->word;
}

int links_rank(const Links *l)
{
    return l->rank;
}

int links_ranks(const Links *l)
{
    return l->ranks;
}
