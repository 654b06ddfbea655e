/* http.h - HTTP/1.1 for one thread: connections by epoll, limits and timeouts; other threads write the answers.
 *
 * An exchange is a request and its answer. `handle` gets it when its body is complete and may answer at once, or hold it
 * (exchange_hold) and answer later from any thread. A client that closes or resets its connection, half-closes it before
 * the answer is complete, or reads a stream too slowly has gone: exchange_gone then says so, and what is written is
 * dropped. */
#ifndef FTX_SERVER_HTTP_H
#define FTX_SERVER_HTTP_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "head.h"
#include "text.h"

typedef struct Http Http;

/* What a handler may read, and in the I/O thread write. */
typedef struct Exchange {
    char method[16], path[256], id[80]; /* id: the client's X-Request-Id, or one made here */
    Text body;
    const void *route; /* set by `admit` */
    uint64_t client;   /* likewise: which API key; 0: none */
    double start;      /* of a monotonic clock, in seconds */
} Exchange;

typedef struct HttpOptions {
    const char *host;
    int port;   /* 0: any that is free, see http_port */
    int listen; /* a socket that listens already; -1: none */
    size_t max_body;
    int connections, per_address;
    int head_seconds, body_seconds, idle_seconds, write_seconds;
    int ping_seconds;   /* a comment in a stream in which nothing was written for so long */
    size_t slow_bytes;  /* a stream's client is too slow if more than this waits for it */
    const char *header; /* lines of every answer, each with CR LF; NULL: none */

    /* Called by the thread of http_run. admit: the head was read; false: it has been answered and the body is not read.
     * ended: the answer is complete, or the client has gone (status 499); note: what exchange_note said last. stop:
     * SIGINT or SIGTERM arrived. */
    bool (*admit)(void *user, Exchange *x, const Head *head);
    void (*handle)(void *user, Exchange *x);
    void (*ended)(void *user, const Exchange *x, int status, const char *note);
    void (*stop)(void *user);
    /* Answers a request that is no HTTP, too large or too late. */
    void (*refuse)(void *user, Exchange *x, int status, const char *why);
    void *user;
} HttpOptions;

/* Takes the address; clients can connect from http_listen on. SIGINT and SIGTERM are blocked in the calling thread, and so in
 * those that it starts later; http_run reads them. NULL: the reason is in `error`. */
Http *http_open(const HttpOptions *o, char *error, size_t error_bytes);
bool http_listen(Http *h, char *error,
                 size_t error_bytes); /* before who waits for the server is told that it is ready */
int http_port(const Http *h);
size_t http_connections(const Http *h);
/* Serves until http_finish was called and every answer is complete, or its deadline has passed. */
void http_run(Http *h);
void http_finish(Http *h, double seconds); /* a second call: at once */
void http_close(Http *h);

/* --- answers: any thread ------------------------------------------------------------------------------- */

void exchange_hold(Exchange *x);
void exchange_release(Exchange *x);
bool exchange_gone(const Exchange *x);
unsigned exchanges_gone(void); /* how many have so far: the same number as before, and none has */
/* A line of the answer's head, without CR LF; before the answer. */
void exchange_header(Exchange *x, const char *format, ...) __attribute__((format(printf, 2, 3)));
void exchange_note(Exchange *x, const char *format, ...) __attribute__((format(printf, 2, 3))); /* for `ended` */
/* A whole answer. `type`: of its content. False: a stream has begun, be it with a comment, and nothing was written: an
 * error must be an event then. */
bool exchange_answer(Exchange *x, int status, const char *type, const Text *body);
/* A stream of server-sent events: exchange_stream, exchange_write, exchange_end. Comments are sent from
 * exchange_stream on. What was written is sent after exchange_flush, which exchange_end and exchange_answer call. */
void exchange_stream(Exchange *x);
void exchange_write(Exchange *x, const Text *events);
void exchange_end(Exchange *x);
void exchange_flush(Exchange *x);

#endif
