/* fuzz.c - what fuzzers share: a file in memory, and how a mistake of ours is reported. */
#include "fuzz.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

void fuzz_bug(const char *format, ...)
{
    va_list ap;

    va_start(ap, format);
    vfprintf(stderr, format, ap);
    va_end(ap);
    fputc('\n', stderr);
    abort();
}

const char *fuzz_file(const void *p, size_t bytes)
{
    static char path[40];
    static int fd = -1;

    if (fd < 0) {
        fd = memfd_create("fuzz", MFD_CLOEXEC);
        if (fd < 0)
            fuzz_bug("no file in memory");
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    }
    if (ftruncate(fd, 0) || (bytes && pwrite(fd, p, bytes, 0) != (ssize_t)bytes))
        fuzz_bug("no room for a file of %zu bytes", bytes);
    return path;
}
