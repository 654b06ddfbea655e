/* random.c - weights drawn from a seed: random.h says how. */
#include "random.h"
#include "../base/packed.h"

#include <math.h>
#include <string.h>

float random_scale(const FtxWeight *w)
{
    const uint64_t last = w->rank ? w->dim[w->rank - 1] : 1;

    return (float)sqrt(3.0 / (double)(last ? last : 1));
}

float random_code_scale(const FtxWeight *w)
{
    return random_scale(w) /
           (w->type == DT_FP8 ? 187.6f : (float)packed_zero(w->type)); /* 3^0.5 times their root mean square */
}

static void fill_constant(const FtxWeight *w, float value, uint64_t n, void *p)
{
    for (uint64_t i = 0; i < n; i++)
        dtype_store(p, i, w->type, value);
}

static void fill_fp32(uint32_t key, float scale, uint64_t first, uint64_t n, float *p)
{
    for (uint64_t i = 0; i < n; i++)
        p[i] = random_value(key, first + i, scale);
}

/* Nearest even; the values are finite. */
static void fill_bf16(uint32_t key, float scale, uint64_t first, uint64_t n, uint16_t *p)
{
    for (uint64_t i = 0; i < n; i++) {
        const float f = random_value(key, first + i, scale);
        uint32_t u;

        memcpy(&u, &f, sizeof u);
        p[i] = (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
    }
}

/* As the others; of each pair of elements the second is the first with the other sign. */
static void fill_centred(uint32_t key, float scale, uint64_t first, uint64_t n, DType type, void *p)
{
    for (uint64_t i = 0; i < n; i++) {
        const uint64_t at = first + i;
        const float f = random_value(key, at & ~(uint64_t)1, scale);

        dtype_store(p, i, type, at % 2 ? -f : f);
    }
}

static void fill_other(uint32_t key, float scale, uint64_t first, uint64_t n, DType type, void *p)
{
    for (uint64_t i = 0; i < n; i++)
        dtype_store(p, i, type, random_value(key, first + i, scale));
}

/* Tiles [first, last) of a quantised weight. */
static void fill_tiles(const FtxWeight *w, uint32_t key, uint64_t first, uint64_t last, unsigned char *p)
{
    const uint64_t K = w->dim[1], codes = packed_codes(w->type, K), tile = random_unit(w);
    const uint64_t groups = K / w->group * PACKED_ROWS, bytes = packed_scale((PackedScales)w->scales);
    const float scale = random_code_scale(w), minimum = scale * (float)packed_zero(w->type);
    const uint16_t half = fp16_from_float(scale);

    for (uint64_t t = first; t < last; t++, p += tile) {
        memset(p + codes, 0, tile - codes);
        for (uint64_t i = 0; i < codes / 4; i++) {
            const uint32_t bits = random_word(key, t * (codes / 4) + i);

            memcpy(p + 4 * i, &bits, 4);
        }
        for (uint64_t i = 0; i < groups; i++)
            memcpy(p + codes + bytes * i, bytes == 2 ? (const void *)&half : &scale, bytes);
        if (w->scales == PACKED_FP16_ZEROS)
            memset(p + codes + bytes * groups, (int)packed_zero(w->type), groups);
        for (uint64_t i = 0; w->scales == PACKED_FP32_MINIMA && i < groups; i++)
            memcpy(p + codes + bytes * groups + 4 * i, &minimum, 4);
    }
}

size_t random_unit(const FtxWeight *w)
{
    return packed_type(w->type) ? packed_tile(w->type, w->dim[1], w->group, (PackedScales)w->scales)
                                : dtype_size(w->type);
}

void random_fill(const Artifact *a, uint32_t index, uint64_t seed, uint64_t first, uint64_t last, void *p)
{
    const FtxWeight *w = &a->weights[index];
    const uint32_t key = random_key(seed, random_index(a, index));
    const float scale = random_scale(w);
    const uint64_t n = last - first;
    const size_t size = dtype_size(w->type);

    switch ((FtxWeightKind)w->kind) {
    case FTX_WEIGHT_TABLE: memcpy(p, (const char *)artifact_weight(a, index) + first * size, n * size); return;
    case FTX_WEIGHT_GAIN: fill_constant(w, 1.0f, n, p); return;
    case FTX_WEIGHT_BIAS: fill_constant(w, 0.0f, n, p); return;
    case FTX_WEIGHT_CENTRED: fill_centred(key, scale, first, n, w->type, p); return;
    case FTX_WEIGHT_MATRIX:
        if (packed_type(w->type))
            fill_tiles(w, key, first, last, p);
        else if (w->type == DT_FP32)
            fill_fp32(key, scale, first, n, p);
        else if (w->type == DT_BF16)
            fill_bf16(key, scale, first, n, p);
        else
            fill_other(key, scale, first, n, w->type, p);
        return;
    }
}
