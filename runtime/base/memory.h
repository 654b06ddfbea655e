/* memory.h - host memory of the runtime: through FtxOptions.allocator, always zeroed.
 *
 * Without an allocator, large blocks are mapped and take memory page by page as they are touched. So room for the
 * worst case (waiting prompts, kept logits) is free until it is used. */
#ifndef FTX_MEMORY_H
#define FTX_MEMORY_H

#include "error.h"

typedef struct Memory {
    FtxAllocator table; /* .alloc NULL: the default */
} Memory;

FtxStatus memory_check(const FtxOptions *options,
                       FtxError *err);       /* an allocator must have both functions; options may be NULL */
Memory memory_of(const FtxOptions *options); /* options may be NULL */

/* NULL: no memory. bytes may be 0; align is a power of two. */
void *memory_alloc(const Memory *m, size_t bytes, size_t align);
void memory_free(const Memory *m, void *p, size_t bytes); /* bytes: as asked for; p may be NULL */

/* Bytes of the machine's memory: all of it, and what programs can have without swapping. */
void memory_machine(uint64_t *all, uint64_t *available);

FtxStatus memory_fail(FtxError *err, const char *what, uint64_t bytes); /* FTX_ENOMEM */

/* Places arrays in one block: run the layout once with .base NULL to learn the size, then with the block. */
typedef struct Carve {
    char *base;
    size_t at;
} Carve;

void *carve(Carve *c, size_t count, size_t size); /* 64-byte aligned; NULL in the first run */

#endif
