/* http.c - HTTP/1.1 for one thread: connections by epoll, limits and timeouts; other threads write the answers.
 *
 *     bytes in ─head.c─▶ Exchange ─handle─▶ any thread: exchange_write ─mail, eventfd─▶ pump: frames ─▶ bytes out
 *
 * A connection has at most one exchange. While it is unanswered no more is read, so that a client cannot fill memory by
 * pipelining; EPOLLRDHUP alone is watched then. Nor is more read while many bytes of earlier answers wait. */
#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "parts.h"
#include "../runner/command.h"
#include "../runtime/base/arena.h"

enum { READ_BYTES = 64 << 10, MOST_UNREAD = 64 << 10, LINGER_SECONDS = 2 };

/* What epoll says of a file that is no connection. */
enum { LISTENER = 1u << 30, MAIL, SIGNALS };

typedef struct Conn {
    int fd; /* -1: free */
    unsigned char address[16];
    Text in, out;
    Head head;
    bool in_body, closing, half, shut;
    Chunks chunks;
    Answer *reading, *x; /* whose body is read; who is not answered yet */
    double since;        /* begin of idling, of a head, of a body, of a stalled write, of closing */
    uint32_t events;
} Conn;

struct Http {
    HttpOptions o;
    int epoll, listener, signal_fd;
    Conn *conns; /* [o.connections] */
    atomic_int open;
    bool accepting, finishing;
    double deadline;
    Mail mail;
    uint64_t made; /* exchanges, for ids */
    uint64_t seed;
};

/* --- connections ------------------------------------------------------------------------------------------ */

/* The client does not read its answers: its next requests wait. */
static bool is_full(const Conn *c)
{
    return !c->x && c->out.n > MOST_UNREAD;
}

static void watch(Http *h, Conn *c)
{
    const uint32_t want = (c->x || c->half || is_full(c) ? 0u : EPOLLIN) | (c->half || is_full(c) ? 0u : EPOLLRDHUP) |
                          (c->out.n ? EPOLLOUT : 0u);
    struct epoll_event e = {.events = want, .data.u32 = (uint32_t)(c - h->conns)};

    if (want != c->events && epoll_ctl(h->epoll, EPOLL_CTL_MOD, c->fd, &e) == 0)
        c->events = want;
}

/* The exchange is over: the log line. */
static void tell_end(Http *h, Answer *a, int status)
{
    char note[sizeof a->note];

    pthread_mutex_lock(&a->lock);
    memcpy(note, a->note, sizeof note);
    pthread_mutex_unlock(&a->lock);
    h->o.ended(h->o.user, &a->x, status, note);
}

static void close_conn(Http *h, Conn *c)
{
    Answer *const all[] = {c->reading, c->x};

    for (size_t i = 0; i < LEN(all); i++)
        if (all[i]) {
            exchange_lose(all[i]);
            tell_end(h, all[i], 499);
            exchange_release(&all[i]->x);
        }
    close(c->fd);
    text_free(&c->in);
    text_free(&c->out);
    *c = (Conn){.fd = -1};
    atomic_fetch_sub(&h->open, 1);
    h->accepting = true; /* a file descriptor is free again */
}

static const char *reason(int status)
{
    static const struct {
        int status;
        const char *text;
    } reasons[] = {
#define STATUS(code, text) {code, text},
#include "status.def"
#undef STATUS
    };

    for (size_t i = 0; i < LEN(reasons); i++)
        if (reasons[i].status == status)
            return reasons[i].text;
    return "Status";
}

static void print_head(Http *h, Conn *c, Answer *a)
{
    text_printf(&c->out, "HTTP/1.1 %d %s\r\nContent-Type: %s\r\nX-Request-Id: %s\r\n", a->status, reason(a->status),
                a->type, a->x.id);
    if (a->header.n)
        text_add(&c->out, a->header.at, a->header.n);
    if (h->o.header)
        text_put(&c->out, h->o.header);
    a->chunked = a->chunked && a->stream && !a->head_only;
    if (a->chunked)
        text_put(&c->out, "Transfer-Encoding: chunked\r\n");
    else if (!a->stream)
        text_printf(&c->out, "Content-Length: %zu\r\n", a->out.n);
    else
        a->keep_alive = false; /* the end of the connection is that of the answer */
    text_printf(&c->out, "Connection: %s\r\n\r\n", a->keep_alive ? "keep-alive" : "close");
    a->head_sent = true;
}

/* Sends what waits. False: the connection is closed. */
static bool send_out(Http *h, Conn *c, double now)
{
    while (c->out.n) {
        const ssize_t n = send(c->fd, c->out.at, c->out.n, MSG_NOSIGNAL);

        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            break;
        if (n <= 0) {
            close_conn(h, c);
            return false;
        }
        text_drop(&c->out, (size_t)n);
        c->since = now;
    }
    if (c->x && c->x->stream && c->out.n > h->o.slow_bytes) {
        exchange_note(&c->x->x, "slow reader");
        close_conn(h, c);
        return false;
    }
    if (!c->out.n && !c->x && c->half) {
        close_conn(h, c);
        return false;
    }
    if (!c->out.n && c->closing && !c->shut) { /* closing at once could reset what was not read yet */
        shutdown(c->fd, SHUT_WR);
        c->shut = true;
        c->since = now;
    }
    watch(h, c);
    return true;
}

/* Moves what was written of the answer to the connection. False: the connection is closed. */
static bool pump(Http *h, Conn *c, double now)
{
    Answer *a = c->x;
    bool ended;

    if (!c->out.n)
        c->since = now; /* a stall is counted from here */
    pthread_mutex_lock(&a->lock);
    if (a->status && !a->head_sent)
        print_head(h, c, a);
    if (a->out.n) {
        if (a->chunked && a->head_sent)
            text_printf(&c->out, "%zx\r\n", a->out.n);
        if (!a->head_only)
            text_add(&c->out, a->out.at, a->out.n);
        if (a->chunked && a->head_sent)
            text_put(&c->out, "\r\n");
        a->out.n = 0;
        a->written = now;
    }
    ended = a->ended;
    pthread_mutex_unlock(&a->lock);
    if (ended) {
        if (a->chunked)
            text_put(&c->out, "0\r\n\r\n");
        c->closing = c->closing || !a->keep_alive;
        tell_end(h, a, a->status);
        c->x = NULL;
        c->since = now;
        exchange_release(&a->x);
    }
    return send_out(h, c, now);
}

static Answer *make_exchange(Http *h, Conn *c, const Head *head, double now)
{
    Answer *a = command_must(calloc(1, sizeof *a));
    bool plain = head->request_id.n > 0 && head->request_id.n < sizeof a->x.id;

    a->mail = &h->mail;
    a->conn = (int)(c - h->conns);
    atomic_store(&a->users, 1);
    pthread_mutex_init(&a->lock, NULL);
    a->x.start = a->written = now;
    a->keep_alive = head->keep_alive && !h->finishing;
    a->chunked = head->minor == 1;
    a->head_only = slice_is(head->method, "HEAD");
    snprintf(a->x.method, sizeof a->x.method, "%.*s", (int)head->method.n, head->method.at);
    snprintf(a->x.path, sizeof a->x.path, "%.*s", (int)head->path.n, head->path.at);
    for (size_t i = 0; i < head->request_id.n && plain; i++)
        plain = head->request_id.at[i] > ' ' && head->request_id.at[i] <= '~';
    if (plain)
        snprintf(a->x.id, sizeof a->x.id, "%.*s", (int)head->request_id.n, head->request_id.at);
    else
        snprintf(a->x.id, sizeof a->x.id, "%08llx%08llx", (unsigned long long)(h->seed & 0xffffffff),
                 (unsigned long long)h->made);
    h->made++;
    return a;
}

/* Answers before the body was read. If there is one, the connection closes. False: it is closed. */
static bool answer_early(Http *h, Conn *c, Answer *a, double now)
{
    const bool body = c->head.length > 0 || c->head.chunked;

    a->keep_alive = a->keep_alive && !body && c->head.bytes;
    c->reading = NULL;
    c->x = a;
    if (a->keep_alive)
        text_drop(&c->in, c->head.bytes);
    else
        c->in.n = 0;
    return pump(h, c, now);
}

static bool refuse(Http *h, Conn *c, int status, const char *why, double now)
{
    Answer *a = c->reading ? c->reading : make_exchange(h, c, &c->head, now);

    c->head.bytes = 0; /* what follows cannot be told from a request */
    h->o.refuse(h->o.user, &a->x, status, why);
    return answer_early(h, c, a, now);
}

/* Takes a head. 1: more bytes are needed; 0: go on; -1: the connection is closed. */
static int take_head(Http *h, Conn *c, double now)
{
    const char *why = "";
    const int status = head_parse(c->in.at, c->in.n, &c->head, &why);

    if (status == 1)
        return 1;
    if (status)
        return refuse(h, c, status, why, now) ? 0 : -1;
    c->reading = make_exchange(h, c, &c->head, now);
    if (!h->o.admit(h->o.user, &c->reading->x, &c->head))
        return answer_early(h, c, c->reading, now) ? 0 : -1;
    if (c->head.length > h->o.max_body)
        return refuse(h, c, 413, "the body is too large", now) ? 0 : -1;
    if (c->head.expects && c->in.n == c->head.bytes && (c->head.length || c->head.chunked))
        text_put(&c->out, "HTTP/1.1 100 Continue\r\n\r\n");
    text_drop(&c->in, c->head.bytes);
    c->in_body = true;
    c->chunks = (Chunks){0};
    c->since = now;
    return 0;
}

/* As take_head, for the body. */
static int take_body(Http *h, Conn *c, double now)
{
    Answer *a = c->reading;
    const size_t room = h->o.max_body - a->x.body.n;
    size_t data = c->in.n, used;
    bool done;

    if (c->head.chunked) {
        if (!chunks_read(&c->chunks, c->in.at, c->in.n, room, &data, &used)) {
            c->in_body = false;
            return refuse(h, c, data > room || c->chunks.left > room ? 413 : 400, "the body is too large, or no chunks",
                          now)
                       ? 0
                       : -1;
        }
        done = c->chunks.state == CHUNK_DONE;
    } else {
        const size_t left = c->head.length - a->x.body.n;

        data = used = data < left ? data : left;
        done = data == left;
    }
    text_add(&a->x.body, c->in.at, data);
    text_drop(&c->in, used);
    if (!done)
        return 1;
    c->in_body = false;
    c->reading = NULL;
    c->x = a;
    h->o.handle(h->o.user, &a->x);
    return pump(h, c, now) ? 0 : -1;
}

static bool may_advance(const Conn *c)
{
    return !c->x && !c->closing && !is_full(c) && (c->in.n || c->in_body);
}

/* Goes on with what was read. */
static void advance(Http *h, Conn *c, double now)
{
    int more = 0;

    do {
        while (!more && may_advance(c))
            more = c->in_body ? take_body(h, c, now) : take_head(h, c, now);
    } while (c->fd >= 0 && send_out(h, c, now) && !more && may_advance(c)); /* there may be room now */
}

static void receive(Http *h, Conn *c, double now)
{
    static char buffer[READ_BYTES]; /* one thread reads */
    const ssize_t n = recv(c->fd, buffer, sizeof buffer, 0);

    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n == 0 && c->out.n && !c->shut) {
        c->half = true; /* it may still read what waits */
        watch(h, c);
        return;
    }
    if (n <= 0) {
        close_conn(h, c);
        return;
    }
    if (c->closing)
        return;
    if (!c->in.n && !c->in_body)
        c->since = now;
    text_add(&c->in, buffer, (size_t)n);
    advance(h, c, now);
}

static void serve_conn(Http *h, Conn *c, uint32_t events, double now)
{
    if (events & (EPOLLERR | EPOLLHUP) || (events & EPOLLRDHUP && (c->x || c->shut))) {
        close_conn(h, c);
        return;
    }
    if (events & EPOLLIN) {
        receive(h, c, now);
        return; /* what else happened is told again */
    }
    if (events & EPOLLRDHUP)
        c->half = true;
    if (send_out(h, c, now) && c->in.n)
        advance(h, c, now); /* requests that waited for room */
}

/* --- the loop --------------------------------------------------------------------------------------------- */

static void read_address(const struct sockaddr_storage *from, unsigned char *address)
{
    memset(address, 0, 16);
    if (from->ss_family == AF_INET)
        memcpy(address, &((const struct sockaddr_in *)(const void *)from)->sin_addr, 4);
    else if (from->ss_family == AF_INET6)
        memcpy(address, &((const struct sockaddr_in6 *)(const void *)from)->sin6_addr, 16);
}

/* A free place, if the client's address has not too many. */
static Conn *find_place(Http *h, const unsigned char *address)
{
    Conn *place = NULL;
    int same = 0;

    for (int i = 0; i < h->o.connections; i++) {
        if (h->conns[i].fd < 0)
            place = place ? place : &h->conns[i];
        else
            same += memcmp(h->conns[i].address, address, 16) == 0;
    }
    return same < h->o.per_address ? place : NULL;
}

static void accept_all(Http *h, double now)
{
    static const char full[] = "HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nContent-Length: 0\r\n"
                               "Connection: close\r\n\r\n";
    struct sockaddr_storage from = {0};
    unsigned char address[16];

    for (;;) {
        socklen_t bytes = sizeof from;
        const int fd = accept4(h->listener, (struct sockaddr *)&from, &bytes, SOCK_NONBLOCK | SOCK_CLOEXEC);
        const int on = 1;
        struct epoll_event e = {.events = EPOLLIN | EPOLLRDHUP};
        Conn *c;

        if (fd < 0 && (errno == ECONNABORTED || errno == EINTR))
            continue; /* others may wait behind it */
        if (fd < 0) {
            h->accepting = errno != EAGAIN; /* after an error: again when one is closed, or in a second */
            return;
        }
        read_address(&from, address);
        c = find_place(h, address);
        e.data.u32 = (uint32_t)(c ? c - h->conns : 0);
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        if (!c || epoll_ctl(h->epoll, EPOLL_CTL_ADD, fd, &e)) {
            send(fd, full, sizeof full - 1, MSG_NOSIGNAL);
            close(fd);
            continue;
        }
        *c = (Conn){.fd = fd, .since = now, .events = e.events};
        memcpy(c->address, address, sizeof address);
        atomic_fetch_add(&h->open, 1);
    }
}

static Answer *next_mail(Http *h)
{
    Answer *a;

    pthread_mutex_lock(&h->mail.lock);
    a = h->mail.first;
    if (a) {
        h->mail.first = a->next;
        a->mailed = false;
    }
    pthread_mutex_unlock(&h->mail.lock);
    return a;
}

static void take_mail(Http *h, double now)
{
    for (Answer *a; (a = next_mail(h)); exchange_release(&a->x)) {
        Conn *c = &h->conns[a->conn];

        if (c->fd >= 0 && c->x == a && pump(h, c, now) && !c->x)
            advance(h, c, now); /* a request may have been read behind this one */
    }
}

/* Once a second: comments in quiet streams, and who is too late. */
static void check_times(Http *h, double now)
{
    for (int i = 0; i < h->o.connections; i++) {
        Conn *c = &h->conns[i];
        const double age = now - c->since;

        if (c->fd < 0)
            continue;
        if (c->shut ? age > LINGER_SECONDS : c->out.n && age > h->o.write_seconds) {
            close_conn(h, c);
        } else if (c->x) {
            const Text ping = {": ping\n\n", 8, 0};

            if (c->x->stream && now - c->x->written > h->o.ping_seconds) {
                exchange_write(&c->x->x, &ping);
                if (pump(h, c, now) && !c->x) /* as in take_mail */
                    advance(h, c, now);
            }
        } else if (c->in_body && age > h->o.body_seconds) {
            c->in_body = false;
            refuse(h, c, 408, "the body did not arrive in time", now);
        } else if (!c->in_body && c->in.n && !is_full(c) && age > h->o.head_seconds) {
            refuse(h, c, 408, "the head did not arrive in time", now);
        } else if (!c->in_body && !c->in.n && (h->finishing || age > h->o.idle_seconds)) {
            close_conn(h, c);
        }
    }
}

static bool unanswered(const Http *h)
{
    for (int i = 0; i < h->o.connections; i++)
        if (h->conns[i].fd >= 0 && (h->conns[i].x || h->conns[i].out.n || h->conns[i].in_body))
            return true;
    return false;
}

static void take_signal(Http *h)
{
    struct signalfd_siginfo info;

    if (read(h->signal_fd, &info, sizeof info) == (ssize_t)sizeof info)
        h->o.stop(h->o.user);
}

bool http_listen(Http *h, char *error, size_t error_bytes)
{
    if (!listen(h->listener, 1024))
        return true;
    snprintf(error, error_bytes, "listen: %s", strerror(errno));
    return false;
}

void http_run(Http *h)
{
    struct epoll_event events[256];
    double checked = 0.0;

    while (!h->finishing || (unanswered(h) && command_seconds() < h->deadline)) {
        const int n = epoll_wait(h->epoll, events, LEN(events), h->finishing ? 100 : 1000);
        const double now = command_seconds();

        for (int i = 0; i < n; i++) {
            const uint32_t what = events[i].data.u32;

            if (what == LISTENER)
                h->accepting = true;
            else if (what == MAIL)
                take_mail(h, now);
            else if (what == SIGNALS)
                take_signal(h);
            else if (h->conns[what].fd >= 0)
                serve_conn(h, &h->conns[what], events[i].events, now);
        }
        if (h->accepting) /* after all events: they name places that may be given away here */
            accept_all(h, now);
        if (now - checked > 1.0) {
            take_mail(h, now);
            check_times(h, now);
            checked = now;
        }
    }
}

void http_finish(Http *h, double seconds)
{
    h->deadline = h->finishing ? 0.0 : command_seconds() + seconds;
    h->finishing = true;
}

/* --- open and close ---------------------------------------------------------------------------------------- */

/* Each write to the mail's descriptor is told once, so nobody reads it. */
static bool add(Http *h, int fd, uint32_t what)
{
    struct epoll_event e = {.events = what == SIGNALS ? EPOLLIN : EPOLLIN | EPOLLET, .data.u32 = what};

    return fd >= 0 && epoll_ctl(h->epoll, EPOLL_CTL_ADD, fd, &e) == 0;
}

static int bind_to(const char *host, int port, char *error, size_t error_bytes)
{
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE | AI_NUMERICSERV};
    struct addrinfo *list = NULL;
    char number[8];
    int fd = -1, s, on = 1;

    snprintf(number, sizeof number, "%d", port);
    s = getaddrinfo(host, number, &hints, &list);
    if (s) {
        snprintf(error, error_bytes, "--host: %.100s: %s", host, gai_strerror(s));
        return -1;
    }
    for (struct addrinfo *a = list; a && fd < 0; a = a->ai_next) {
        fd = socket(a->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        if (fd >= 0 &&
            (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) || bind(fd, a->ai_addr, a->ai_addrlen))) {
            snprintf(error, error_bytes, "%.100s port %d: %s", host, port, strerror(errno));
            close(fd);
            fd = -1;
        }
    }
    freeaddrinfo(list);
    return fd;
}

Http *http_open(const HttpOptions *o, char *error, size_t error_bytes)
{
    Http *h = command_must(calloc(1, sizeof *h));
    sigset_t set;

    h->o = *o;
    pthread_mutex_init(&h->mail.lock, NULL);
    h->conns = command_must(calloc((size_t)o->connections, sizeof *h->conns));
    for (int i = 0; i < o->connections; i++)
        h->conns[i].fd = -1;
    h->seed = (uint64_t)(command_seconds() * 1e9) * 0x9e3779b97f4a7c15ull ^ (uint64_t)getpid() << 20;
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    h->epoll = epoll_create1(EPOLL_CLOEXEC);
    h->mail.wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    h->signal_fd = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
    h->listener = o->listen >= 0 ? o->listen : bind_to(o->host, o->port, error, error_bytes);
    if (h->listener < 0 || !add(h, h->listener, LISTENER) || !add(h, h->mail.wake_fd, MAIL) ||
        !add(h, h->signal_fd, SIGNALS)) {
        if (h->listener >= 0)
            snprintf(error, error_bytes, "epoll: %s", strerror(errno));
        http_close(h);
        return NULL;
    }
    return h;
}

int http_port(const Http *h)
{
    struct sockaddr_storage a = {0};
    socklen_t bytes = sizeof a;
    uint16_t port = 0;

    if (getsockname(h->listener, (struct sockaddr *)&a, &bytes))
        return 0;
    memcpy(&port, (const char *)&a + offsetof(struct sockaddr_in, sin_port),
           sizeof port); /* of IPv6 it stands there, too */
    return ntohs(port);
}

size_t http_connections(const Http *h)
{
    return (size_t)atomic_load(&h->open);
}

void http_close(Http *h)
{
    const int files[] = {h->listener, h->mail.wake_fd, h->signal_fd, h->epoll};

    for (int i = 0; i < h->o.connections; i++)
        if (h->conns[i].fd >= 0)
            close_conn(h, &h->conns[i]);
    take_mail(h, 0.0);
    for (size_t i = 0; i < LEN(files); i++)
        if (files[i] >= 0)
            close(files[i]);
    free(h->conns);
    pthread_mutex_destroy(&h->mail.lock);
    free(h);
}
