/* seccomp.h - what the server's threads may still ask of the kernel when it has started. */
#ifndef FTX_SERVER_SECCOMP_H
#define FTX_SERVER_SECCOMP_H

#include <linux/filter.h>
#include <stdbool.h>
#include <stddef.h>

enum { SECCOMP_LENGTH = 256 }; /* instructions of a filter, at most */

/* The filter's instructions; returns how many. */
size_t seccomp_filter(struct sock_filter f[SECCOMP_LENGTH]);
/* From now on, for all threads. False: the kernel does not do that, and error says why. */
bool seccomp_begin(char *error, size_t bytes);

#endif
