/* hash.h - checksums and content keys: XXH3. */
#ifndef FTX_BASE_HASH_H
#define FTX_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

typedef struct Hash128 {
    uint64_t low, high;
} Hash128;

uint64_t hash64(const void *p, size_t bytes);
Hash128 hash128(const void *p, size_t bytes);

#endif
