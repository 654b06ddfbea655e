/* random.h - weights drawn from a seed, for benchmarks and tests: the same on every device.
 *
 * A weight is a function of (seed, its index in the artifact, the element's index), so any thread
 * may draw any part. The index is that of the first packing of a weight that is packed twice. With all arithmetic in 32 bits,
 * modulo 2^32:
 *
 *     mix(x):  x ^= x >> 16;  x *= 0x7feb352d;  x ^= x >> 15;  x *= 0x846ca68b;  x ^= x >> 16
 *     key    = mix(mix(mix(seed_low + 0x9e3779b9) ^ seed_high) + index)
 *     bits   = mix(mix(element_low ^ key) + element_high + key)
 *     value  = ((bits >> 8) * 2^-23 - 1) * scale,    scale = sqrt(3 / last dim) as fp32
 *
 * uniform in [-scale, scale): variance 1 / last dim, so activations keep their size. Stored by
 * rounding to the weight's type. Matrices are drawn so; gains are 1, biases 0, tables copied. Of a centred matrix (ftx_format.h)
 * an element with an odd index is the one before it with the other sign.
 *
 * Quantised weights have random codes: word i of tile t is `bits` of element t * words + i. All groups have the scale that
 * gives the same variance, and the zero of symmetric weights. Among the codes of fp8 are those of NaN, which kernels read as 480
 * (packed.h). */
#ifndef FTX_RANDOM_H
#define FTX_RANDOM_H

#include "../artifact/artifact.h"
#include "../base/dtype.h"

static inline uint32_t random_mix(uint32_t x)
{
    x = (x ^ x >> 16) * 0x7feb352du;
    x = (x ^ x >> 15) * 0x846ca68bu;
    return x ^ x >> 16;
}

static inline uint32_t random_key(uint64_t seed, uint32_t index)
{
    return random_mix(random_mix(random_mix((uint32_t)seed + 0x9e3779b9u) ^ (uint32_t)(seed >> 32)) + index);
}

static inline uint32_t random_word(uint32_t key, uint64_t element)
{
    return random_mix(random_mix((uint32_t)element ^ key) + (uint32_t)(element >> 32) + key);
}

static inline float random_value(uint32_t key, uint64_t element, float scale)
{
    return ((float)(random_word(key, element) >> 8) * 0x1p-23f - 1.0f) * scale;
}

/* The number of weight i of an artifact, for random_key. */
static inline uint32_t random_index(const Artifact *a, uint32_t i)
{
    return a->weights[i].like ? a->weights[i].like - 1 : i;
}

float random_scale(const FtxWeight *w);
float random_code_scale(const FtxWeight *w); /* of the groups of a quantised weight */

/* Bytes of the smallest piece that can be drawn: an element, of a quantised weight a tile. */
size_t random_unit(const FtxWeight *w);

/* Pieces [first, last) of weight `index` of the artifact into p, where piece `first` begins. */
void random_fill(const Artifact *a, uint32_t index, uint64_t seed, uint64_t first, uint64_t last, void *p);

#endif
