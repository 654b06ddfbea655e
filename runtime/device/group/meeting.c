/* meeting.c - see meeting.h. */
#include "meeting.h"

#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "../../../kernels/device/io.h"
#include "../../base/env.h"
#include "sockets.h"

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

typedef struct Meeting {
    void (*log)(void *user, int level, const char *text); /* FtxOptions */
    void *log_user;
    int rank, ranks, timeout;
    int listener;
    Caller caller[CALLERS];
    RankSockets *link; /* [ranks] */
} Meeting;

static const char magic[8] = "ftxrank";

/* Until when a part of the meeting that begins now may take. A rank cannot know how long the others have been there, so no part
 * takes its time from the one before. */
static int64_t meeting_end(const Meeting *m)
{
    return socket_now() + (int64_t)MEETING_TIMES * m->timeout * 1000;
}

/* Tells whoever reads the log of the model. */
static void meeting_note(const Meeting *m, const char *format, ...)
{
    char text[600];
    va_list ap;

    if (!m->log)
        return;
    va_start(ap, format);
    vsnprintf(text, sizeof text, format, ap);
    va_end(ap);
    m->log(m->log_user, 0, text);
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
static FtxStatus find_host(const Meeting *m, const char *host, const char *port, int family, int64_t until,
                           struct addrinfo **found, FtxError *err)
{
    const struct addrinfo hints = {.ai_family = family, .ai_socktype = SOCK_STREAM, .ai_flags = host ? 0 : AI_PASSIVE};
    const int64_t began = socket_now();
    bool said = false;

    for (;;) {
        const int failed = getaddrinfo(host, port, &hints, found);

        if (!failed)
            return FTX_OK;
        if (!known_later(failed) || socket_now() >= until)
            return ftx_fail(err, FTX_EIO, "cannot find %s:%s: %s", host ? host : "", port, gai_strerror(failed));
        if (!said && socket_now() - began >= NOTE_MS) {
            meeting_note(m, "rank %d of %d cannot find %s:%s yet (%s)", m->rank, m->ranks, host ? host : "", port,
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
            socket_close(fd);
        }
    }
    return *fd >= 0 ? FTX_OK
                    : ftx_fail(err, FTX_EIO, "cannot listen at %s: %s", env_text(ENV_FTX_MASTER), strerror(why));
}

/* Rank 0 listens at FTX_MASTER; the others at any port, and at addresses of the same family: ranks reach each other as they reach
 * rank 0. */
static FtxStatus listen_for_ranks(Meeting *m, const char *host, const char *port, FtxError *err)
{
    const int64_t until = meeting_end(m);
    struct addrinfo *found = NULL;
    FtxStatus s = find_host(m, host, port, AF_UNSPEC, until, &found, err);

    if (!s && m->rank) {
        const int family = found->ai_family;

        freeaddrinfo(found);
        s = find_host(m, NULL, "0", family, until, &found, err);
    }
    if (s)
        return s;
    s = listen_at(found, &m->listener, err);
    freeaddrinfo(found);
    return s;
}

/* Connects and says hello; tries for a part of the meeting, since the other process may begin later. An address that does not
 * answer takes FTX_PEER_TIMEOUT at most. */
static FtxStatus connect_to(const Meeting *m, const char *host, const char *port, const Hello *hello, int *fd,
                            FtxError *err)
{
    const int64_t began = socket_now(), until = meeting_end(m);
    bool said = false;
    int why = 0;

    *fd = -1;
    do {
        struct addrinfo *found = NULL;
        const FtxStatus s = find_host(m, host, port, AF_UNSPEC, until, &found, err);

        if (s)
            return s;
        for (const struct addrinfo *a = found; a && *fd < 0; a = a->ai_next) {
            const int64_t this = socket_now() + m->timeout * 1000;

            *fd = socket_connect(a, this < until ? this : until);
            why = *fd < 0 ? errno : 0;
        }
        freeaddrinfo(found);
        if (*fd < 0 && !said && socket_now() - began >= NOTE_MS) {
            meeting_note(m, "rank %d of %d: nobody answers at %s:%s yet (%s)", m->rank, m->ranks, host, port,
                         strerror(why));
            said = true;
        }
        if (*fd < 0)
            poll(NULL, 0, POLL_MS);
    } while (*fd < 0 && socket_now() < until);
    if (*fd < 0)
        return ftx_fail(err, FTX_EIO, "cannot connect to %s:%s: %s", host, port, strerror(why));
    socket_options(*fd, m->timeout);
    if (!socket_send(*fd, hello, sizeof *hello))
        return ftx_fail(err, FTX_EIO, "%s:%s has closed the connection", host, port);
    return FTX_OK;
}

/* Takes a connection that waits, in the place of the one that has been silent longest if there is no other. False: the process or
 * the system has no descriptor or memory for it now, and errno. */
static bool take_caller(Meeting *m)
{
    struct sockaddr_storage from;
    socklen_t size = sizeof from;
    Caller *c = &m->caller[0];
    const int fd = accept4(m->listener, (struct sockaddr *)&from, &size, SOCK_CLOEXEC);

    if (fd < 0)
        return errno != EMFILE && errno != ENFILE && errno != ENOBUFS && errno != ENOMEM;
    for (int i = 1; i < CALLERS && c->fd >= 0; i++)
        if (m->caller[i].fd < 0 || m->caller[i].until < c->until)
            c = &m->caller[i];
    socket_close(&c->fd);
    *c = (Caller){.fd = fd, .until = socket_now() + m->timeout * 1000};
    socket_options(fd, m->timeout);
    if (getnameinfo((struct sockaddr *)&from, size, c->host, HOST, NULL, 0, NI_NUMERICHOST))
        socket_close(&c->fd);
    return true;
}

/* Reads what has come of a caller's hello. True: it is whole and one of this kind; others are closed. */
static bool hear_caller(const Meeting *m, Caller *c, LinkKind kind)
{
    const ssize_t n = recv(c->fd, (char *)&c->hello + c->got, sizeof c->hello - c->got, MSG_DONTWAIT);

    c->got += n > 0 ? (uint32_t)n : 0;
    if (c->got == sizeof c->hello && memcmp(c->hello.magic, magic, sizeof magic) == 0 &&
        c->hello.kind == (int32_t)kind && c->hello.rank > m->rank && c->hello.rank < FTX_MAX_RANKS)
        return true;
    if (c->got == sizeof c->hello || n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR) || socket_now() >= c->until)
        socket_close(&c->fd);
    return false;
}

/* The next connection that begins with a hello of this kind. A caller that says nothing holds up nobody. *fd -1: none came in
 * time. missing: for whom this rank waits, for a note. When a connection cannot be taken, the next look at the listener waits
 * POLL_MS, or until a caller speaks: the connection stays in its queue. */
static void accept_hello(Meeting *m, LinkKind kind, int64_t until, const char *missing, int *fd, Hello *hello,
                         char host[HOST])
{
    const int64_t began = socket_now();
    bool said = false, rests = false, rest_said = false;

    *fd = -1;
    while (socket_now() < until) {
        struct pollfd p[1 + CALLERS] = {{.fd = rests ? -1 : m->listener, .events = POLLIN}};

        for (int i = 0; i < CALLERS; i++)
            p[1 + i] = (struct pollfd){.fd = m->caller[i].fd, .events = POLLIN}; /* -1 is passed over */
        rests = poll(p, 1 + CALLERS, POLL_MS) > 0 && p[0].revents && !take_caller(m);
        if (rests && !rest_said) {
            meeting_note(m, "rank %d of %d cannot take a connection yet: %s", m->rank, m->ranks, strerror(errno));
            rest_said = true;
        }
        for (int i = 0; i < CALLERS; i++) {
            Caller *c = &m->caller[i];

            if (c->fd < 0 || !hear_caller(m, c, kind))
                continue;
            *fd = c->fd;
            *hello = c->hello;
            memcpy(host, c->host, HOST);
            c->fd = -1;
            return;
        }
        if (!said && socket_now() - began >= NOTE_MS) {
            meeting_note(m, "rank %d of %d waits for %s", m->rank, m->ranks, missing);
            said = true;
        }
    }
}

/* What rank 0 answers to a rank; FTX_OK: it may take part. */
static FtxStatus judge(const Meeting *m, const Hello *h, uint64_t artifact, FtxError *err)
{
    if (h->ranks != m->ranks || h->rank >= m->ranks)
        return ftx_fail(err, FTX_EINVAL, "rank %d counts %d ranks, rank 0 has %d", h->rank, h->ranks, m->ranks);
    if (h->artifact != artifact)
        return ftx_fail(err, FTX_EINVAL,
                        "rank %d has another artifact: its checksum is %016llx, that of rank 0 %016llx", h->rank,
                        (unsigned long long)h->artifact, (unsigned long long)artifact);
    if (m->link[h->rank].calls >= 0)
        return ftx_fail(err, FTX_EINVAL, "two processes are rank %d", h->rank);
    return FTX_OK;
}

/* The ranks above this one that have not come: "rank 1, rank 3 at 10.0.0.1:29500". The last part in rank 0 alone. */
static void list_missing(const Meeting *m, LinkKind kind, char *text, size_t room)
{
    size_t n = 0;

    text[0] = '\0';
    for (int r = m->rank + 1; r < m->ranks && n < room; r++)
        if ((kind == LINK_CALLS ? m->link[r].calls : m->link[r].exchange) < 0)
            n += (size_t)snprintf(text + n, room - n, "%srank %d", n ? ", " : "", r);
    if (n < room && !m->rank)
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
static int count_ranks(Meeting *m)
{
    int n = 1;

    for (int r = 1; r < m->ranks; r++) {
        if (m->link[r].calls >= 0 && has_ended(m->link[r].calls))
            socket_close(&m->link[r].calls);
        n += m->link[r].calls >= 0;
    }
    return n;
}

/* Rank 0: waits for a connection of each rank, and says in w where all are. */
static FtxStatus gather_ranks(Meeting *m, uint64_t artifact, Welcome *w, FtxError *err)
{
    const int64_t until = meeting_end(m);
    int n;

    while ((n = count_ranks(m)) < m->ranks) {
        char host[HOST], missing[300];
        Hello h;
        int fd;
        FtxStatus s;

        list_missing(m, LINK_CALLS, missing, sizeof missing);
        accept_hello(m, LINK_CALLS, until, missing, &fd, &h, host);
        if (fd < 0)
            return ftx_fail(err, FTX_EDEVICE, "%d of %d ranks have come to %s within %d s; there is no %s", n, m->ranks,
                            env_text(ENV_FTX_MASTER), MEETING_TIMES * m->timeout, missing);
        count_ranks(m); /* its place may have become free */
        s = judge(m, &h, artifact, err);
        if (s) {
            w->status = (int32_t)s;
            snprintf(w->text, sizeof w->text, "%.290s", err->text);
            socket_send(fd, w, sizeof *w);
            socket_close(&fd);
            return s;
        }
        m->link[h.rank].calls = fd;
        snprintf(w->host[h.rank], HOST, "%s", host);
        snprintf(w->port[h.rank], sizeof w->port[0], "%d", h.port);
    }
    return FTX_OK;
}

/* Rank 0: all that have come are told where all are, or why there is no meeting. */
static FtxStatus meet_all(Meeting *m, uint64_t artifact, FtxError *err)
{
    Welcome w = {0};
    FtxError why = {FTX_OK, ""};
    FtxStatus s = gather_ranks(m, artifact, &w, &why);

    w.status = (int32_t)s;
    snprintf(w.text, sizeof w.text, "%.290s", why.text);
    for (int r = 1; r < m->ranks; r++)
        if (m->link[r].calls >= 0 && !socket_send(m->link[r].calls, &w, sizeof w) && !s)
            s = ftx_fail(&why, FTX_EDEVICE, "rank %d has closed its connection", r);
    return s ? ftx_fail(err, s, "%s", why.text) : FTX_OK;
}

/* Rank 0 gives up before the ranks that have reached it do: these count from the connection, and FTX_PEER_TIMEOUT more. */
static FtxStatus hear_welcome(const Meeting *m, Welcome *w, FtxError *err)
{
    struct pollfd p = {.fd = m->link[0].calls, .events = POLLIN};
    const int64_t until = meeting_end(m) + m->timeout * 1000;

    if (poll(&p, 1, NOTE_MS) == 0)
        meeting_note(m, "rank %d of %d has reached rank 0 at %s, which waits for other ranks", m->rank, m->ranks,
                     env_text(ENV_FTX_MASTER));
    if (!socket_receive(m->link[0].calls, w, sizeof *w, until))
        return socket_now() >= until
                   ? ftx_fail(err, FTX_EDEVICE, "rank 0 has not answered within %d s", (MEETING_TIMES + 1) * m->timeout)
                   : ftx_fail(err, FTX_EDEVICE, "rank 0 has closed its connection");
    w->text[sizeof w->text - 1] = '\0';
    return w->status ? ftx_fail(err, (FtxStatus)w->status, "%s", w->text) : FTX_OK;
}

/* Another rank: says hello to rank 0, then connects to those between. */
static FtxStatus meet_master(Meeting *m, const char *host, const char *port, Hello hello, FtxError *err)
{
    Welcome w;
    FtxStatus s = connect_to(m, host, port, &hello, &m->link[0].calls, err);

    if (!s)
        s = hear_welcome(m, &w, err);
    if (s)
        return s;
    hello.kind = LINK_EXCHANGE;
    s = connect_to(m, host, port, &hello, &m->link[0].exchange, err);
    for (int r = 1; !s && r < m->rank; r++) {
        w.host[r][HOST - 1] = w.port[r][sizeof w.port[0] - 1] = '\0';
        s = connect_to(m, w.host[r], w.port[r], &hello, &m->link[r].exchange, err);
    }
    return s;
}

/* Takes the connections of the ranks above for exchanges. */
static FtxStatus accept_exchanges(Meeting *m, FtxError *err)
{
    const int64_t until = meeting_end(m);

    for (int n = m->rank + 1; n < m->ranks; n++) {
        char host[HOST], missing[300];
        Hello h;
        int fd;

        list_missing(m, LINK_EXCHANGE, missing, sizeof missing);
        accept_hello(m, LINK_EXCHANGE, until, missing, &fd, &h, host);
        if (fd < 0)
            return ftx_fail(err, FTX_EDEVICE, "all ranks have come to rank 0, but not to rank %d within %d s: no %s",
                            m->rank, MEETING_TIMES * m->timeout, missing);
        if (h.rank >= m->ranks || m->link[h.rank].exchange >= 0) {
            socket_close(&fd);
            return ftx_fail(err, FTX_EDEVICE, "two processes are rank %d", h.rank);
        }
        m->link[h.rank].exchange = fd;
    }
    return FTX_OK;
}

static FtxStatus meet(Meeting *m, uint64_t artifact, FtxError *err)
{
    union {
        struct sockaddr any;
        struct sockaddr_in four;
        struct sockaddr_in6 six;
    } at;
    socklen_t size = sizeof at;
    char host[256] = "", port[8] = "";
    Hello hello = {.rank = m->rank, .ranks = m->ranks, .artifact = artifact};
    FtxStatus s = split_master(host, port, err);

    memset(&at, 0, sizeof at);
    memcpy(hello.magic, magic, sizeof magic);
    if (!s)
        s = listen_for_ranks(m, host, port, err);
    if (!s && getsockname(m->listener, &at.any, &size))
        s = ftx_fail(err, FTX_EIO, "a socket has no address: %s", strerror(errno));
    hello.port = ntohs(at.any.sa_family == AF_INET6 ? at.six.sin6_port : at.four.sin_port);
    if (!s)
        s = m->rank ? meet_master(m, host, port, hello, err) : meet_all(m, artifact, err);
    return s ? s : accept_exchanges(m, err);
}

FtxStatus ranks_meet(const FtxOptions *o, int rank, int ranks, int timeout, uint64_t artifact, RankSockets *link,
                     FtxError *err)
{
    Meeting m = {.rank = rank, .ranks = ranks, .timeout = timeout, .listener = -1, .link = link};
    FtxStatus s;

    if (o)
        m.log = o->log, m.log_user = o->log_user;
    for (int i = 0; i < CALLERS; i++)
        m.caller[i].fd = -1;
    s = meet(&m, artifact, err);
    socket_close(&m.listener);
    for (int i = 0; i < CALLERS; i++)
        socket_close(&m.caller[i].fd);
    return s;
}
