/* sockets.h - TCP sockets between ranks: they block, each for a limited time. */
#ifndef FTX_GROUP_SOCKETS_H
#define FTX_GROUP_SOCKETS_H

#include <netdb.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

int64_t socket_now(void); /* ms of a clock that only goes forward; each `until` is a time of it */
int socket_connect(const struct addrinfo *a, int64_t until);
void socket_options(int fd, int timeout);
bool socket_send(int fd, const void *p, size_t bytes);
bool socket_receive(int fd, void *p, size_t bytes, int64_t until);
void socket_close(int *fd); /* *fd is -1 then; -1 is passed over */

#endif
