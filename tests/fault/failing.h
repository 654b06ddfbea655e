/* failing.h - makes the n-th system call of the process fail. The functions here replace those of libc for everything
 * that is linked; calls inside libc (stdio) are not counted. Include it in one file of a program. */
#ifndef TESTS_FAULT_FAILING_H
#define TESTS_FAULT_FAILING_H

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

typedef struct Failing {
    atomic_int calls, fail_at; /* fail_at: the call that fails; 0: none */
    int error;                 /* its errno; 0: a write writes half, all other calls succeed */
    const char *failed;        /* its name */
    atomic_int maps;           /* mapped and not yet unmapped */
} Failing;

static Failing failing;

static bool fails(const char *name)
{
    if (atomic_fetch_add(&failing.calls, 1) + 1 != atomic_load(&failing.fail_at))
        return false;
    failing.failed = name;
    errno = failing.error;
    return failing.error != 0;
}

static bool short_write(void)
{
    return atomic_load(&failing.calls) == atomic_load(&failing.fail_at) && failing.error == 0;
}

int open(const char *path, int flags, ...)
{
    mode_t mode = 0;

    if (flags & O_CREAT) {
        va_list ap;

        va_start(ap, flags);
        mode = va_arg(ap, mode_t);
        va_end(ap);
    }
    return fails("open") ? -1 : (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}

int fstat(int fd, struct stat *st)
{
    return fails("fstat") ? -1 : fstatat(fd, "", st, AT_EMPTY_PATH);
}

ssize_t write(int fd, const void *p, size_t bytes)
{
    if (fd <= 2) /* output of the test */
        return syscall(SYS_write, fd, p, bytes);
    if (fails("write"))
        return -1;
    return syscall(SYS_write, fd, p, short_write() ? (bytes + 1) / 2 : bytes);
}

ssize_t pwrite(int fd, const void *p, size_t bytes, off_t at)
{
    if (fails("pwrite"))
        return -1;
    return syscall(SYS_pwrite64, fd, p, short_write() ? (bytes + 1) / 2 : bytes, at);
}

int fsync(int fd)
{
    return fails("fsync") ? -1 : (int)syscall(SYS_fsync, fd);
}

/* Closes the file even when it reports an error, as on Linux. */
int close(int fd)
{
    const int r = (int)syscall(SYS_close, fd);

    return fails("close") ? -1 : r;
}

int rename(const char *from, const char *to)
{
    return fails("rename") ? -1 : (int)syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0);
}

int mkdir(const char *path, mode_t mode)
{
    return fails("mkdir") ? -1 : (int)syscall(SYS_mkdirat, AT_FDCWD, path, mode);
}

void *mmap(void *at, size_t bytes, int protection, int flags, int fd, off_t offset)
{
    void *p;

    if (fd >= 0 && fails("mmap"))
        return MAP_FAILED;
    p = (void *)syscall(SYS_mmap, at, bytes, protection, flags, fd, offset); /* NOLINT */
    atomic_fetch_add(&failing.maps, fd >= 0 && p != MAP_FAILED);
    return p;
}

int pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*run)(void *), void *user)
{
    typedef int Create(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
    static Create *real;

    if (!real)
        *(void **)&real = dlsym(RTLD_NEXT, "pthread_create");
    return fails("pthread_create") ? failing.error : real(thread, attr, run, user);
}

#endif
