/* memory.h - host memory of the runtime: through FtxOptions.allocator, always zeroed.
 *
 * Without an allocator big blocks come from the kernel page by page as they are touched, so that
 * room planned for the worst case (prompts that wait, logits that nobody asks for) costs nothing. */
#ifndef FTX_MEMORY_H
#define FTX_MEMORY_H

#include "error.h"

typedef struct Memory {
    FtxAllocator table; /* .alloc NULL: the default */
} Memory;

FtxStatus memory_check(const FtxOptions *options, FtxError *err); /* that an allocator is whole; NULL is fine */
Memory memory_of(const FtxOptions *options);                      /* options may be NULL */

/* NULL: no memory. bytes may be 0; align is a power of two. */
void *memory_alloc(const Memory *m, size_t bytes, size_t align);
void memory_free(const Memory *m, void *p, size_t bytes); /* with the bytes asked for; NULL is fine */

FtxStatus memory_fail(FtxError *err, const char *what, uint64_t bytes); /* FTX_ENOMEM */

/* Carves arrays out of one block: walk it once with .base NULL for the size, once with the block. */
typedef struct Carve {
    char *base;
    size_t at;
} Carve;

void *carve(Carve *c, size_t count, size_t size); /* 64-byte aligned; NULL in the first walk */

#endif
