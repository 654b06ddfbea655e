/* test_accept.c - connections that cannot be accepted, and a refusal after a stream's first comment. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <arpa/inet.h>
#include <cmocka.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include "server/server.h"

static int fail_with;             /* errno of the next accept4; 0: none */
static const char *refused_after; /* what a handler writes before it refuses */

int __real_accept4(int fd, struct sockaddr *address, socklen_t *bytes, int flags);
int __wrap_accept4(int fd, struct sockaddr *address, socklen_t *bytes, int flags);
int __wrap_accept4(int fd, struct sockaddr *address, socklen_t *bytes, int flags)
{
    if (!fail_with)
        return __real_accept4(fd, address, bytes, flags);
    errno = fail_with;
    fail_with = 0;
    return -1;
}

static bool admit(void *user, Exchange *x, const Head *head)
{
    (void)user, (void)x, (void)head;
    return true;
}

static void handle(void *user, Exchange *x)
{
    const Text ping = {": ping\n\n", 8, 0};
    Fault f = {0};

    (void)user;
    if (refused_after) {
        exchange_stream(x);
        exchange_write(x, &ping);
        exchange_flush(x);
    }
    fault(&f, "n", "no");
    answer_fault(x, &f);
}

static void ended(void *user, const Exchange *x, int status, const char *note)
{
    (void)user, (void)x, (void)status, (void)note;
}

static void refuse(void *user, Exchange *x, int status, const char *why)
{
    (void)user, (void)x, (void)status, (void)why;
}

static void stop(void *user)
{
    http_finish(*(Http **)user, 1.0);
}

static void *run_http(void *http)
{
    http_run(http);
    return NULL;
}

/* Sends a request to a server whose first accept fails; what comes back. */
static void ask(char *answer, size_t room)
{
    static const char request[] = "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
    Http *h = NULL;
    const HttpOptions o = {.host = "127.0.0.1",
                           .listen = -1,
                           .max_body = 100,
                           .connections = 4,
                           .per_address = 4,
                           .head_seconds = 10,
                           .body_seconds = 10,
                           .idle_seconds = 10,
                           .write_seconds = 10,
                           .ping_seconds = 10,
                           .slow_bytes = 10000,
                           .admit = admit,
                           .handle = handle,
                           .ended = ended,
                           .refuse = refuse,
                           .stop = stop,
                           .user = &h};
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    char error[300] = "";
    pthread_t thread;
    size_t n = 0;
    ssize_t got = 1;
    int fd;

    h = http_open(&o, error, sizeof error);
    assert_non_null(h);
    to.sin_port = htons((uint16_t)http_port(h));
    assert_true(http_listen(h, error, sizeof error));
    fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(connect(fd, (const struct sockaddr *)&to, sizeof to), 0); /* before anybody accepts */
    assert_int_equal(pthread_create(&thread, NULL, run_http, h), 0);
    assert_int_equal(send(fd, request, sizeof request - 1, 0), (ssize_t)sizeof request - 1);
    for (struct pollfd p = {.fd = fd, .events = POLLIN}; got > 0 && n<room - 1; n += got> 0 ? (size_t)got : 0) {
        assert_int_equal(poll(&p, 1, 20000), 1);
        got = recv(fd, answer + n, room - 1 - n, 0);
    }
    answer[n] = '\0';
    close(fd);
    assert_int_equal(kill(getpid(), SIGTERM), 0);
    pthread_join(thread, NULL);
    http_close(h);
}

static void test_passing_errors(void **state)
{
    static const int errors[] = {ECONNABORTED, EINTR, EMFILE, EPROTO};
    char answer[2000];

    (void)state;
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++) {
        fail_with = errors[i];
        ask(answer, sizeof answer);
        assert_int_equal(fail_with, 0);
        assert_memory_equal(answer, "HTTP/1.1 400 ", 13);
        assert_non_null(strstr(answer, "\r\n\r\n{\"error\":{\"message\":\"no\""));
    }
}

static void test_refused_stream(void **state)
{
    char answer[2000];
    const char *body;

    (void)state;
    refused_after = "a comment";
    ask(answer, sizeof answer);
    refused_after = NULL;
    assert_memory_equal(answer, "HTTP/1.1 200 ", 13);
    assert_non_null(strstr(answer, "Content-Type: text/event-stream"));
    assert_non_null(strstr(answer, "Transfer-Encoding: chunked\r\n"));
    body = strstr(answer, ": ping\n\n");
    assert_non_null(body);
    assert_non_null(
        strstr(body, "data: {\"error\":{\"message\":\"no\",\"type\":\"invalid_request_error\",\"param\":\"n\""));
    assert_non_null(strstr(body, "}}\n\ndata: [DONE]\n\n"));
    assert_string_equal(answer + strlen(answer) - 5, "0\r\n\r\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_passing_errors), cmocka_unit_test(test_refused_stream)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
