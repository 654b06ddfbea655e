/* hash.h - checksums and content keys: XXH3. */
#ifndef FTX_BASE_HASH_H
#define FTX_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

typedef struct Hash128 {
    uint64_t low, high;
} Hash128;

uint64_t hash64(const void *p, size_t bytes);
/* hash64 of bytes that come piece by piece: new, add..., end (which frees). NULL: no memory. */
typedef struct HashStream HashStream;
HashStream *hash_stream_new(void);
void hash_stream_add(HashStream *h, const void *p, size_t bytes);
uint64_t hash_stream_end(HashStream *h);

Hash128 hash128(const void *p, size_t bytes);
Hash128 hash128_seeded(const void *p, size_t bytes, uint64_t seed); /* who does not know the seed cannot foresee it */

#endif
