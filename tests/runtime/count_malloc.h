/* count_malloc.h - every malloc and mmap of the process, counted; the n-th can be made to fail. What
 * is defined here takes the place of libc's for all libraries, libc itself too. Include it in one
 * file of a program. Not with sanitizers: they have a malloc of their own. */
#ifndef TESTS_RUNTIME_COUNT_MALLOC_H
#define TESTS_RUNTIME_COUNT_MALLOC_H

#include <errno.h>
#include <malloc.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

extern void *__libc_malloc(size_t bytes);
extern void *__libc_calloc(size_t n, size_t size);
extern void *__libc_realloc(void *p, size_t bytes);
extern void *__libc_memalign(size_t align, size_t bytes);
extern void __libc_free(void *p);

static atomic_int calls, live, fail_at; /* fail_at: the call that fails; 0: none */

static bool refuse(void)
{
    const bool no = atomic_fetch_add(&calls, 1) + 1 == atomic_load(&fail_at);

    if (no)
        errno = ENOMEM;
    return no;
}

static void *count(void *p)
{
    atomic_fetch_add(&live, p != NULL);
    return p;
}

void *malloc(size_t bytes)
{
    return refuse() ? NULL : count(__libc_malloc(bytes));
}

void *calloc(size_t n, size_t size)
{
    return refuse() ? NULL : count(__libc_calloc(n, size));
}

void *realloc(void *p, size_t bytes)
{
    void *q = refuse() ? NULL : __libc_realloc(p, bytes);

    return p ? q : count(q);
}

void *memalign(size_t align, size_t bytes)
{
    return refuse() ? NULL : count(__libc_memalign(align, bytes));
}

void *aligned_alloc(size_t align, size_t bytes)
{
    return memalign(align, bytes);
}

int posix_memalign(void **p, size_t align, size_t bytes)
{
    *p = memalign(align, bytes);
    return *p ? 0 : ENOMEM;
}

void free(void *p)
{
    atomic_fetch_sub(&live, p != NULL);
    __libc_free(p);
}

void *mmap(void *at, size_t bytes, int protection, int flags, int fd, off_t offset)
{
    if (refuse())
        return MAP_FAILED;
    atomic_fetch_add(&live, 1);
    return (void *)syscall(SYS_mmap, at, bytes, protection, flags, fd, offset); /* NOLINT */
}

int munmap(void *p, size_t bytes)
{
    atomic_fetch_sub(&live, 1);
    return (int)syscall(SYS_munmap, p, bytes);
}

#endif
