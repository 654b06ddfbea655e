/* memory.c - host memory of the runtime: through FtxOptions.allocator, always zeroed. */
#include "memory.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* Blocks of this size and more are mapped separately: fresh pages are zero, and untouched ones take no memory. */
static const size_t mapped_bytes = 1 << 20;
/* Blocks of this size and more ask for huge pages. */
static const size_t huge_bytes = 8 << 20;

FtxStatus memory_check(const FtxOptions *options, FtxError *err)
{
    const FtxAllocator *a = options ? options->allocator : NULL;

    if (a && (!a->alloc || !a->release))
        return ftx_fail(err, FTX_EINVAL, "options.allocator: alloc and release must both be set");
    return FTX_OK;
}

Memory memory_of(const FtxOptions *options)
{
    Memory m = {{NULL, NULL, NULL}};

    if (options && options->allocator)
        m.table = *options->allocator;
    return m;
}

static void *map(size_t bytes)
{
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    if (p == MAP_FAILED)
        return NULL;
    if (bytes >= huge_bytes)
        madvise(p, bytes, MADV_HUGEPAGE);
    return p;
}

void *memory_alloc(const Memory *m, size_t bytes, size_t align)
{
    void *p = NULL;

    if (bytes == 0)
        bytes = 1;
    if (!m->table.alloc && bytes >= mapped_bytes && align <= 4096)
        return map(bytes);
    if (m->table.alloc)
        p = m->table.alloc(m->table.user, bytes, align);
    else if (posix_memalign(&p, align < sizeof(void *) ? sizeof(void *) : align, bytes))
        return NULL;
    return p ? memset(p, 0, bytes) : NULL;
}

void memory_free(const Memory *m, void *p, size_t bytes)
{
    if (!p)
        return;
    if (m->table.alloc)
        m->table.release(m->table.user, p, bytes ? bytes : 1);
    else if (bytes >= mapped_bytes)
        munmap(p, bytes);
    else
        free(p);
}

void memory_machine(uint64_t *all, uint64_t *available)
{
    static const char key[] = "MemAvailable:"; /* the page cache is free, too; _SC_AVPHYS_PAGES leaves it out */
    const uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    const int f = open("/proc/meminfo", O_RDONLY | O_CLOEXEC);
    char text[4096] = "";
    const ssize_t n = f >= 0 ? read(f, text, sizeof text - 1) : 0;
    const char *at;

    text[n > 0 ? n : 0] = '\0';
    if (f >= 0)
        close(f);
    at = strstr(text, key);
    *all = (uint64_t)sysconf(_SC_PHYS_PAGES) * page;
    *available = at ? strtoull(at + sizeof key - 1, NULL, 10) * 1024 : (uint64_t)sysconf(_SC_AVPHYS_PAGES) * page;
}

FtxStatus memory_fail(FtxError *err, const char *what, uint64_t bytes)
{
    return ftx_fail(err, FTX_ENOMEM, "no memory for %s: %.1f MB", what, (double)bytes * 1e-6);
}

void *carve(Carve *c, size_t count, size_t size)
{
    const size_t at = (c->at + 63) / 64 * 64;

    c->at = at + count * size;
    return c->base ? c->base + at : NULL;
}
