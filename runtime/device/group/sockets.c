/* sockets.c - see sockets.h. */
#include "sockets.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { POLL_MS = 100 };

int64_t socket_now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* True: all of it has gone. */
bool socket_send(int fd, const void *p, size_t bytes)
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
bool socket_receive(int fd, void *p, size_t bytes, int64_t until)
{
    while (bytes) {
        struct pollfd poll_fd = {.fd = fd, .events = POLLIN};
        ssize_t n;

        if (until && socket_now() >= until)
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

void socket_close(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

/* Nothing waits to be sent together; a send that a peer does not take ends. So does a quiet connection whose machine is gone
 * without a word: after `timeout` seconds it is asked, four times. */
void socket_options(int fd, int timeout)
{
    const struct timeval seconds = {.tv_sec = timeout};

    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &seconds, sizeof seconds);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &timeout, sizeof timeout);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &(int){(timeout + 3) / 4}, sizeof(int));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &(int){4}, sizeof(int));
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &(int){1}, sizeof(int));
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
int socket_connect(const struct addrinfo *a, int64_t until)
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
            while (poll(&p, 1, POLL_MS) <= 0 && socket_now() < until)
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
