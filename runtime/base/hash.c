/* hash.c - checksums and content keys: XXH3. */
#include "hash.h"

#include <xxhash.h>

uint64_t hash64(const void *p, size_t bytes)
{
    return XXH3_64bits(p, bytes);
}

Hash128 hash128(const void *p, size_t bytes)
{
    const XXH128_hash_t h = XXH3_128bits(p, bytes);

    return (Hash128){h.low64, h.high64};
}
