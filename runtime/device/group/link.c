/* link.c - connections between the processes of several ranks: TCP. */
#include "link.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "../../../kernels/cpu/exchange.h"
#include "../../base/env.h"

enum {
    HOST = 64,
    POLL_MS = 100,
    NAME_MS = 500,  /* until a name that is not known is asked for again */
    NOTE_MS = 2000, /* who waits for longer than this says so */
    CALLERS = 32,   /* connections that have not said who they are */
};

typedef enum LinkKind { LINK_CALLS, LINK_EXCHANGE } LinkKind;

typedef struct Hello { /* the first words on a connection */
    char magic[8];
    int32_t kind, rank, ranks;
    int32_t port; /* at which the rank listens for ranks above it */
    uint64_t artifact;
} Hello;

typedef struct Caller { /* a connection whose hello has not come yet */
    int fd;             /* -1: none */
    uint32_t got;       /* bytes of the hello */
    int64_t until;      /* it must be whole by then */
    Hello hello;
    char host[HOST];
} Caller;

typedef struct Welcome { /* of rank 0, to a connection for calls; status: why there is no meeting */
    int32_t status;
    char text[300];
    char host[FTX_MAX_RANKS][HOST], port[FTX_MAX_RANKS][8];
} Welcome;

typedef struct Part { /* before what a rank brings to an exchange */
    uint32_t number;
    uint32_t reserved;
    uint64_t bytes;
} Part;

typedef struct Link { /* to another rank */
    Links *of;
    int rank;
    int calls, exchange; /* sockets; -1: none */
    pthread_t receiver;
    bool receives;
    FtxExchange *mirror; /* what that rank would have stored */
} Link;

struct Links {
    ExchangeWire wire; /* first: wire_report is its address */
    Memory memory;
    void (*log)(void *user, int level, const char *text); /* FtxOptions */
    void *log_user;
    int rank, ranks, timeout;
    int listener;
    Caller caller[CALLERS]; /* while the ranks meet */
    Link link[FTX_MAX_RANKS];
    pthread_mutex_t lock;
    FtxExchange *own; /* NULL: no session */
    uint64_t bytes;   /* of a buffer */
    int lost;         /* 1 + the rank whose connection has ended */
    char word[FTX_JOIN_WORD];
    int64_t hurry; /* when answers that are waited for are due, in ms of link_now; 0: no limit */
};

static const char link_magic[8] = "ftxrank";
static atomic_flag link_open = ATOMIC_FLAG_INIT; /* the process has connections: the address of rank 0 is taken */

/* --- which rank ---------------------------------------------------------------------------------- */

/* The first of the variables that is set. *found: there is one. */
static FtxStatus read_first(const char *const *names, int n_names, int *value, bool *found, FtxError *err)
{
    *found = false;
    for (int i = 0; i < n_names; i++) {
        const char *text = getenv(names[i]);
        char *end;
        long n;

        if (!text || !*text)
            continue;
        errno = 0;
        n = strtol(text, &end, 10);
        if (errno || *end || n < 0 || n > FTX_MAX_RANKS)
            return ftx_fail(err, FTX_EINVAL, "%s is \"%s\": expected a number up to %d", names[i], text, FTX_MAX_RANKS);
        *value = (int)n;
        *found = true;
        return FTX_OK;
    }
    return FTX_OK;
}

static FtxStatus read_number(const char *const names[4], int *value, FtxError *err)
{
    bool found;
    const FtxStatus s = read_first(names, 4, value, &found, err);

    if (s || found)
        return s;
    return ftx_fail(err, FTX_EINVAL, "FTX_MASTER is set, but none of %s, %s, %s and %s", names[0], names[1], names[2],
                    names[3]);
}

FtxStatus link_read(int *rank, int *ranks, FtxError *err)
{
    static const char *const rank_names[] = {"FTX_RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK"};
    static const char *const size_names[] = {"FTX_RANKS", "SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE"};
    FtxStatus s;

    *rank = *ranks = 0;
    if (!env_text(ENV_FTX_MASTER))
        return FTX_OK;
    s = read_number(rank_names, rank, err);
    if (!s)
        s = read_number(size_names, ranks, err);
    if (!s && *rank >= *ranks)
        return ftx_fail(err, FTX_EINVAL, "this process is rank %d of %d: ranks count from 0", *rank, *ranks);
    return s;
}

FtxStatus link_local(int *number, FtxError *err)
{
    static const char *const names[] = {"SLURM_LOCALID", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID"};
    bool found;

    *number = 0;
    return read_first(names, 3, number, &found, err);
}

/* --- sockets --------------------------------------------------------------------------------------- */

static int64_t link_now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* Until when a part of the meeting that begins now may take. A rank cannot know how long the others have been there, so no part
 * takes its time from the one before. */
static int64_t meeting_end(const Links *l)
{
    return link_now() + (int64_t)LINKS_MEETING * l->timeout * 1000;
}

/* True: all of it has gone. */
static bool send_all(int fd, const void *p, size_t bytes)
{
    while (bytes) {
        const ssize_t n = send(fd, p, bytes, MSG_NOSIGNAL);

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return false;
        p = (const char *)p + n;
        bytes -= (size_t)n;
    }
    return true;
}

/* True: all of it has come, before `until` (0: no limit). */
static bool receive_all(int fd, void *p, size_t bytes, int64_t until)
{
    while (bytes) {
        struct pollfd poll_fd = {.fd = fd, .events = POLLIN};
        ssize_t n;

        if (until && link_now() >= until)
            return false;
        if (until && poll(&poll_fd, 1, POLL_MS) <= 0)
            continue;
        n = recv(fd, p, bytes, 0);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return false;
        p = (char *)p + n;
        bytes -= (size_t)n;
    }
    return true;
}

static void close_socket(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

/* Nothing waits to be sent together; a send that a peer does not take ends. So does a quiet connection whose machine is gone
 * without a word: after `timeout` seconds it is asked, four times. */
static void set_options(int fd, int timeout)
{
    const struct timeval seconds = {.tv_sec = timeout};

    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &seconds, sizeof seconds);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &timeout, sizeof timeout);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &(int){(timeout + 3) / 4}, sizeof(int));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &(int){4}, sizeof(int));
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &(int){1}, sizeof(int));
}

/* Tells whoever reads the log of the model. */
static void link_note(const Links *l, const char *format, ...)
{
    char text[600];
    va_list ap;

    if (!l->log)
        return;
    va_start(ap, format);
    vsnprintf(text, sizeof text, format, ap);
    va_end(ap);
    l->log(l->log_user, 0, text);
}

/* "host:port" of FTX_MASTER. */
static FtxStatus split_master(char host[256], char port[8], FtxError *err)
{
    const char *text = env_text(ENV_FTX_MASTER), *colon = strrchr(text, ':');

    if (!colon || colon == text || colon - text >= 256 || !colon[1] || strlen(colon + 1) >= 8)
        return ftx_fail(err, FTX_EINVAL, "FTX_MASTER is \"%.300s\": expected host:port, where rank 0 listens", text);
    snprintf(host, 256, "%.*s", (int)(colon - text), text);
    snprintf(port, 8, "%s", colon + 1);
    return FTX_OK;
}

/* Whether the name may be known later: that of a process that has not begun, or whose machine DNS does not know yet. */
static bool known_later(int failed)
{
#ifdef EAI_NODATA /* a name without an address */
    if (failed == EAI_NODATA)
        return true;
#endif
    return failed == EAI_AGAIN || failed == EAI_NONAME;
}

/* The addresses of a host, for freeaddrinfo; host NULL: all addresses of this one. Asks until `until` for a name that is not
 * known. */
static FtxStatus find_host(const Links *l, const char *host, const char *port, int family, int64_t until,
                           struct addrinfo **found, FtxError *err)
{
    const struct addrinfo hints = {.ai_family = family, .ai_socktype = SOCK_STREAM, .ai_flags = host ? 0 : AI_PASSIVE};
    const int64_t began = link_now();
    bool said = false;

    for (;;) {
        const int failed = getaddrinfo(host, port, &hints, found);

        if (!failed)
            return FTX_OK;
        if (!known_later(failed) || link_now() >= until)
            return ftx_fail(err, FTX_EIO, "cannot find %s:%s: %s", host ? host : "", port, gai_strerror(failed));
        if (!said && link_now() - began >= NOTE_MS) {
            link_note(l, "rank %d of %d cannot find %s:%s yet (%s)", l->rank, l->ranks, host ? host : "", port,
                      gai_strerror(failed));
            said = true;
        }
        poll(NULL, 0, NAME_MS);
    }
}

/* Listens at the first of these addresses where that is possible. */
static FtxStatus listen_at(const struct addrinfo *found, int *fd, FtxError *err)
{
    int why = 0;

    *fd = -1;
    for (const struct addrinfo *a = found; a && *fd < 0; a = a->ai_next) {
        *fd = socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, a->ai_protocol);
        if (*fd < 0) {
            why = errno;
            continue;
        }
        setsockopt(*fd, SOL_SOCKET, SO_REUSEADDR, &(int){1}, sizeof(int));
        if (bind(*fd, a->ai_addr, a->ai_addrlen) || listen(*fd, 2 * FTX_MAX_RANKS)) {
            why = errno;
            close_socket(fd);
        }
    }
    return *fd >= 0 ? FTX_OK
                    : ftx_fail(err, FTX_EIO, "cannot listen at %s: %s", env_text(ENV_FTX_MASTER), strerror(why));
}

/* Rank 0 listens at FTX_MASTER; the others at any port, and at addresses of the same family: ranks reach each other as they reach
 * rank 0. */
static FtxStatus listen_for_ranks(Links *l, const char *host, const char *port, FtxError *err)
{
    const int64_t until = meeting_end(l);
    struct addrinfo *found = NULL;
    FtxStatus s = find_host(l, host, port, AF_UNSPEC, until, &found, err);

    if (!s && l->rank) {
        const int family = found->ai_family;

        freeaddrinfo(found);
        s = find_host(l, NULL, "0", family, until, &found, err);
    }
    if (s)
        return s;
    s = listen_at(found, &l->listener, err);
    freeaddrinfo(found);
    return s;
}

/* Whether a socket is connected to itself. A system that tries a port of its own at which nobody listens may choose the same
 * port for this end. */
static bool meets_itself(int fd)
{
    struct sockaddr_storage here, there;
    socklen_t here_bytes = sizeof here, there_bytes = sizeof there;

    memset(&here, 0, sizeof here);
    memset(&there, 0, sizeof there);
    return !getsockname(fd, (struct sockaddr *)&here, &here_bytes) &&
           !getpeername(fd, (struct sockaddr *)&there, &there_bytes) && here_bytes == there_bytes &&
           memcmp(&here, &there, here_bytes) == 0;
}

/* A connection to one address, within `until`; -1: none, and errno. */
static int connect_by(const struct addrinfo *a, int64_t until)
{
    const int fd = socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, a->ai_protocol);
    struct pollfd p = {.fd = fd, .events = POLLOUT};
    int why = 0;

    if (fd < 0)
        return -1;
    if (connect(fd, a->ai_addr, a->ai_addrlen)) {
        socklen_t size = sizeof why;

        why = errno;
        if (why == EINPROGRESS) {
            while (poll(&p, 1, POLL_MS) <= 0 && link_now() < until)
                ;
            why = !p.revents ? ETIMEDOUT : getsockopt(fd, SOL_SOCKET, SO_ERROR, &why, &size) ? errno : why;
        }
    }
    if (!why && meets_itself(fd)) { /* closed at once: rank 0 must be able to listen at this port */
        setsockopt(fd, SOL_SOCKET, SO_LINGER, &(struct linger){.l_onoff = 1}, sizeof(struct linger));
        why = ECONNREFUSED;
    }
    if (!why && fcntl(fd, F_SETFL, 0)) /* it blocks from now on */
        why = errno;
    if (!why)
        return fd;
    close(fd);
    errno = why;
    return -1;
}

/* Connects and says hello; tries for a part of the meeting, since the other process may begin later. An address that does not
 * answer takes FTX_PEER_TIMEOUT at most. */
static FtxStatus connect_to(const Links *l, const char *host, const char *port, const Hello *hello, int *fd,
                            FtxError *err)
{
    const int64_t began = link_now(), until = meeting_end(l);
    bool said = false;
    int why = 0;

    *fd = -1;
    do {
        struct addrinfo *found = NULL;
        const FtxStatus s = find_host(l, host, port, AF_UNSPEC, until, &found, err);

        if (s)
            return s;
        for (const struct addrinfo *a = found; a && *fd < 0; a = a->ai_next) {
            const int64_t this = link_now() + l->timeout * 1000;

            *fd = connect_by(a, this < until ? this : until);
            why = *fd < 0 ? errno : 0;
        }
        freeaddrinfo(found);
        if (*fd < 0 && !said && link_now() - began >= NOTE_MS) {
            link_note(l, "rank %d of %d: nobody answers at %s:%s yet (%s)", l->rank, l->ranks, host, port,
                      strerror(why));
            said = true;
        }
        if (*fd < 0)
            poll(NULL, 0, POLL_MS);
    } while (*fd < 0 && link_now() < until);
    if (*fd < 0)
        return ftx_fail(err, FTX_EIO, "cannot connect to %s:%s: %s", host, port, strerror(why));
    set_options(*fd, l->timeout);
    if (!send_all(*fd, hello, sizeof *hello))
        return ftx_fail(err, FTX_EIO, "%s:%s has closed the connection", host, port);
    return FTX_OK;
}

/* --- the meeting ------------------------------------------------------------------------------------ */

/* Takes a connection that waits, in the place of the one that has been silent longest if there is no other. False: the process or
 * the system has no descriptor or memory for it now, and errno. */
static bool take_caller(Links *l)
{
    struct sockaddr_storage from;
    socklen_t size = sizeof from;
    Caller *c = &l->caller[0];
    const int fd = accept4(l->listener, (struct sockaddr *)&from, &size, SOCK_CLOEXEC);

    if (fd < 0)
        return errno != EMFILE && errno != ENFILE && errno != ENOBUFS && errno != ENOMEM;
    for (int i = 1; i < CALLERS && c->fd >= 0; i++)
        if (l->caller[i].fd < 0 || l->caller[i].until < c->until)
            c = &l->caller[i];
    close_socket(&c->fd);
    *c = (Caller){.fd = fd, .until = link_now() + l->timeout * 1000};
    set_options(fd, l->timeout);
    if (getnameinfo((struct sockaddr *)&from, size, c->host, HOST, NULL, 0, NI_NUMERICHOST))
        close_socket(&c->fd);
    return true;
}

/* Reads what has come of a caller's hello. True: it is whole and one of this kind; others are closed. */
static bool hear_caller(const Links *l, Caller *c, LinkKind kind)
{
    const ssize_t n = recv(c->fd, (char *)&c->hello + c->got, sizeof c->hello - c->got, MSG_DONTWAIT);

    c->got += n > 0 ? (uint32_t)n : 0;
    if (c->got == sizeof c->hello && memcmp(c->hello.magic, link_magic, sizeof link_magic) == 0 &&
        c->hello.kind == (int32_t)kind && c->hello.rank > l->rank && c->hello.rank < FTX_MAX_RANKS)
        return true;
    if (c->got == sizeof c->hello || n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR) || link_now() >= c->until)
        close_socket(&c->fd);
    return false;
}

/* The next connection that begins with a hello of this kind. A caller that says nothing holds up nobody. *fd -1: none came in
 * time. missing: for whom this rank waits, for a note. When a connection cannot be taken, the next look at the listener waits
 * POLL_MS, or until a caller speaks: the connection stays in its queue. */
static void accept_hello(Links *l, LinkKind kind, int64_t until, const char *missing, int *fd, Hello *hello,
                         char host[HOST])
{
    const int64_t began = link_now();
    bool said = false, rests = false, rest_said = false;

    *fd = -1;
    while (link_now() < until) {
        struct pollfd p[1 + CALLERS] = {{.fd = rests ? -1 : l->listener, .events = POLLIN}};

        for (int i = 0; i < CALLERS; i++)
            p[1 + i] = (struct pollfd){.fd = l->caller[i].fd, .events = POLLIN}; /* -1 is passed over */
        rests = poll(p, 1 + CALLERS, POLL_MS) > 0 && p[0].revents && !take_caller(l);
        if (rests && !rest_said) {
            link_note(l, "rank %d of %d cannot take a connection yet: %s", l->rank, l->ranks, strerror(errno));
            rest_said = true;
        }
        for (int i = 0; i < CALLERS; i++) {
            Caller *c = &l->caller[i];

            if (c->fd < 0 || !hear_caller(l, c, kind))
                continue;
            *fd = c->fd;
            *hello = c->hello;
            memcpy(host, c->host, HOST);
            c->fd = -1;
            return;
        }
        if (!said && link_now() - began >= NOTE_MS) {
            link_note(l, "rank %d of %d waits for %s", l->rank, l->ranks, missing);
            said = true;
        }
    }
}

/* What rank 0 answers to a rank; FTX_OK: it may take part. */
static FtxStatus judge(const Links *l, const Hello *h, uint64_t artifact, FtxError *err)
{
    if (h->ranks != l->ranks || h->rank >= l->ranks)
        return ftx_fail(err, FTX_EINVAL, "rank %d counts %d ranks, rank 0 has %d", h->rank, h->ranks, l->ranks);
    if (h->artifact != artifact)
        return ftx_fail(err, FTX_EINVAL,
                        "rank %d has another artifact: its checksum is %016llx, that of rank 0 %016llx", h->rank,
                        (unsigned long long)h->artifact, (unsigned long long)artifact);
    if (l->link[h->rank].calls >= 0)
        return ftx_fail(err, FTX_EINVAL, "two processes are rank %d", h->rank);
    return FTX_OK;
}

/* The ranks above this one that have not come: "rank 1, rank 3 at 10.0.0.1:29500". The last part in rank 0 alone. */
static void list_missing(const Links *l, LinkKind kind, char *text, size_t room)
{
    size_t n = 0;

    text[0] = '\0';
    for (int r = l->rank + 1; r < l->ranks && n < room; r++)
        if ((kind == LINK_CALLS ? l->link[r].calls : l->link[r].exchange) < 0)
            n += (size_t)snprintf(text + n, room - n, "%srank %d", n ? ", " : "", r);
    if (n < room && !l->rank)
        snprintf(text + n, room - n, " at %s", env_text(ENV_FTX_MASTER));
}

/* Whether the other end has closed a connection on which nothing has come. */
static bool has_ended(int fd)
{
    char c;
    const ssize_t n = recv(fd, &c, 1, MSG_PEEK | MSG_DONTWAIT);

    return n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR);
}

/* How many ranks have come, with rank 0. One that is gone again may come as a new process. */
static int count_ranks(Links *l)
{
    int n = 1;

    for (int r = 1; r < l->ranks; r++) {
        if (l->link[r].calls >= 0 && has_ended(l->link[r].calls))
            close_socket(&l->link[r].calls);
        n += l->link[r].calls >= 0;
    }
    return n;
}

/* Rank 0: waits for a connection of each rank, and says in w where all are. */
static FtxStatus gather_ranks(Links *l, uint64_t artifact, Welcome *w, FtxError *err)
{
    const int64_t until = meeting_end(l);
    int n;

    while ((n = count_ranks(l)) < l->ranks) {
        char host[HOST], missing[300];
        Hello h;
        int fd;
        FtxStatus s;

        list_missing(l, LINK_CALLS, missing, sizeof missing);
        accept_hello(l, LINK_CALLS, until, missing, &fd, &h, host);
        if (fd < 0)
            return ftx_fail(err, FTX_EDEVICE, "%d of %d ranks have come to %s within %d s; there is no %s", n, l->ranks,
                            env_text(ENV_FTX_MASTER), LINKS_MEETING * l->timeout, missing);
        count_ranks(l); /* its place may have become free */
        s = judge(l, &h, artifact, err);
        if (s) {
            w->status = (int32_t)s;
            snprintf(w->text, sizeof w->text, "%.290s", err->text);
            send_all(fd, w, sizeof *w);
            close_socket(&fd);
            return s;
        }
        l->link[h.rank].calls = fd;
        snprintf(w->host[h.rank], HOST, "%s", host);
        snprintf(w->port[h.rank], sizeof w->port[0], "%d", h.port);
    }
    return FTX_OK;
}

/* Rank 0: all that have come are told where all are, or why there is no meeting. */
static FtxStatus meet_all(Links *l, uint64_t artifact, FtxError *err)
{
    Welcome w = {0};
    FtxError why = {FTX_OK, ""};
    FtxStatus s = gather_ranks(l, artifact, &w, &why);

    w.status = (int32_t)s;
    snprintf(w.text, sizeof w.text, "%.290s", why.text);
    for (int r = 1; r < l->ranks; r++)
        if (l->link[r].calls >= 0 && !send_all(l->link[r].calls, &w, sizeof w) && !s)
            s = ftx_fail(&why, FTX_EDEVICE, "rank %d has closed its connection", r);
    return s ? ftx_fail(err, s, "%s", why.text) : FTX_OK;
}

/* Rank 0 gives up before the ranks that have reached it do: these count from the connection, and FTX_PEER_TIMEOUT more. */
static FtxStatus hear_welcome(const Links *l, Welcome *w, FtxError *err)
{
    struct pollfd p = {.fd = l->link[0].calls, .events = POLLIN};
    const int64_t until = meeting_end(l) + l->timeout * 1000;

    if (poll(&p, 1, NOTE_MS) == 0)
        link_note(l, "rank %d of %d has reached rank 0 at %s, which waits for other ranks", l->rank, l->ranks,
                  env_text(ENV_FTX_MASTER));
    if (!receive_all(l->link[0].calls, w, sizeof *w, until))
        return link_now() >= until
                   ? ftx_fail(err, FTX_EDEVICE, "rank 0 has not answered within %d s", (LINKS_MEETING + 1) * l->timeout)
                   : ftx_fail(err, FTX_EDEVICE, "rank 0 has closed its connection");
    w->text[sizeof w->text - 1] = '\0';
    return w->status ? ftx_fail(err, (FtxStatus)w->status, "%s", w->text) : FTX_OK;
}

/* Another rank: says hello to rank 0, then connects to those between. */
static FtxStatus meet_master(Links *l, const char *host, const char *port, Hello hello, FtxError *err)
{
    Welcome w;
    FtxStatus s = connect_to(l, host, port, &hello, &l->link[0].calls, err);

    if (!s)
        s = hear_welcome(l, &w, err);
    if (s)
        return s;
    hello.kind = LINK_EXCHANGE;
    s = connect_to(l, host, port, &hello, &l->link[0].exchange, err);
    for (int r = 1; !s && r < l->rank; r++) {
        w.host[r][HOST - 1] = w.port[r][sizeof w.port[0] - 1] = '\0';
        s = connect_to(l, w.host[r], w.port[r], &hello, &l->link[r].exchange, err);
    }
    return s;
}

/* Takes the connections of the ranks above for exchanges. */
static FtxStatus accept_exchanges(Links *l, FtxError *err)
{
    const int64_t until = meeting_end(l);

    for (int n = l->rank + 1; n < l->ranks; n++) {
        char host[HOST], missing[300];
        Hello h;
        int fd;

        list_missing(l, LINK_EXCHANGE, missing, sizeof missing);
        accept_hello(l, LINK_EXCHANGE, until, missing, &fd, &h, host);
        if (fd < 0)
            return ftx_fail(err, FTX_EDEVICE, "all ranks have come to rank 0, but not to rank %d within %d s: no %s",
                            l->rank, LINKS_MEETING * l->timeout, missing);
        if (h.rank >= l->ranks || l->link[h.rank].exchange >= 0) {
            close_socket(&fd);
            return ftx_fail(err, FTX_EDEVICE, "two processes are rank %d", h.rank);
        }
        l->link[h.rank].exchange = fd;
    }
    return FTX_OK;
}

static FtxStatus meet(Links *l, uint64_t artifact, FtxError *err)
{
    union {
        struct sockaddr any;
        struct sockaddr_in four;
        struct sockaddr_in6 six;
    } at;
    socklen_t size = sizeof at;
    char host[256] = "", port[8] = "";
    Hello hello = {.rank = l->rank, .ranks = l->ranks, .artifact = artifact};
    FtxStatus s = split_master(host, port, err);

    memset(&at, 0, sizeof at);
    memcpy(hello.magic, link_magic, sizeof link_magic);
    if (!s)
        s = listen_for_ranks(l, host, port, err);
    if (!s && getsockname(l->listener, &at.any, &size))
        s = ftx_fail(err, FTX_EIO, "a socket has no address: %s", strerror(errno));
    hello.port = ntohs(at.any.sa_family == AF_INET6 ? at.six.sin6_port : at.four.sin_port);
    if (!s)
        s = l->rank ? meet_master(l, host, port, hello, err) : meet_all(l, artifact, err);
    return s ? s : accept_exchanges(l, err);
}

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
    Part p;
    char *to;

    while (receive_all(from->exchange, &p, sizeof p, 0) && (to = mirror_at(from->of, from, &p)) != NULL &&
           receive_all(from->exchange, to, p.bytes, 0))
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
            (!send_all(l->link[r].exchange, &p, sizeof p) || !send_all(l->link[r].exchange, part, bytes)))
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
    if (send_all(l->link[rank].calls, p, bytes))
        return FTX_OK;
    return ftx_fail(err, FTX_EDEVICE, "the connection to rank %d has ended", rank);
}

FtxStatus link_receive(Links *l, int rank, void *p, size_t bytes, int seconds, FtxError *err)
{
    struct pollfd poll_fd = {.fd = l->link[rank].calls, .events = POLLIN};
    const int limit = seconds ? seconds : l->timeout;

    while (!seconds && poll(&poll_fd, 1, POLL_MS) <= 0) {
        const int64_t due = __atomic_load_n(&l->hurry, __ATOMIC_ACQUIRE);

        if (due && link_now() >= due)
            return ftx_fail(err, FTX_EDEVICE, "rank %d has not answered within %d s (FTX_PEER_TIMEOUT)", rank,
                            l->timeout);
    }

    const int64_t until = link_now() + limit * 1000; /* what has begun to come must end, too */

    if (receive_all(l->link[rank].calls, p, bytes, until))
        return FTX_OK;
    if (link_now() >= until)
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
    __atomic_store_n(&l->hurry, on ? link_now() + l->timeout * 1000 : 0, __ATOMIC_RELEASE);
}

void link_stop(Links *l, int rank)
{
    shutdown(l->link[rank].calls, SHUT_RDWR);
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
    *l = (Links){.wire = {send_part}, .memory = m, .rank = rank, .ranks = ranks, .listener = -1};
    if (o)
        l->log = o->log, l->log_user = o->log_user;
    pthread_mutex_init(&l->lock, NULL);
    for (int i = 0; i < CALLERS; i++)
        l->caller[i].fd = -1;
    for (int r = 0; r < FTX_MAX_RANKS; r++)
        l->link[r] = (Link){.of = l, .rank = r, .calls = -1, .exchange = -1};
    s = env_int(ENV_FTX_PEER_TIMEOUT, 1, 3600, 10, &l->timeout, err);
    if (!s)
        s = meet(l, artifact, err);
    close_socket(&l->listener);
    for (int i = 0; i < CALLERS; i++)
        close_socket(&l->caller[i].fd);
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
        if (l->link[r].exchange >= 0)
            shutdown(l->link[r].exchange, SHUT_RDWR);
    for (int r = 0; r < l->ranks; r++) {
        if (l->link[r].receives)
            pthread_join(l->link[r].receiver, NULL);
        close_socket(&l->link[r].exchange);
        close_socket(&l->link[r].calls);
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
