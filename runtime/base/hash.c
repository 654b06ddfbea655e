/* hash.c - checksums and content keys: XXH3. */
#include "hash.h"

#include <xxhash.h>

uint64_t hash64(const void *p, size_t bytes)
{
    return XXH3_64bits(p, bytes);
}

/* XXH3_state_t is opaque here: HashStream is it by another name. */
HashStream *hash_stream_new(void)
{
    XXH3_state_t *s = XXH3_createState();

    if (s)
        XXH3_64bits_reset(s);
    return (HashStream *)s;
}

void hash_stream_add(HashStream *h, const void *p, size_t bytes)
{
    XXH3_64bits_update((XXH3_state_t *)h, p, bytes);
}

uint64_t hash_stream_end(HashStream *h)
{
    const uint64_t sum = XXH3_64bits_digest((XXH3_state_t *)h);

    XXH3_freeState((XXH3_state_t *)h);
    return sum;
}

Hash128 hash128(const void *p, size_t bytes)
{
    const XXH128_hash_t h = XXH3_128bits(p, bytes);

    return (Hash128){h.low64, h.high64};
}

Hash128 hash128_seeded(const void *p, size_t bytes, uint64_t seed)
{
    const XXH128_hash_t h = XXH3_128bits_withSeed(p, bytes, seed);

    return (Hash128){h.low64, h.high64};
}
