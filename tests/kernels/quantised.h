/* quantised.h - what the tests of kernels with quantised weights share: random matrices as codes in tiles, and rows of x. */
#ifndef QUANTISED_H
#define QUANTISED_H

#include "cpu_test.h"
#include "runtime/base/packed.h"

typedef struct Case {
    int M, N, K, group;
    DType type;
    PackedScales scales;
    bool exact;
    int bias, residual, kind, glu;
} Case;

/* A matrix of random codes and the tiles that forms.def describes. */
typedef struct Matrix {
    uint8_t *codes, *tiles;
    float *scales, *offsets, *values; /* offsets: zeros or minima; values: what the codes stand for */
} Matrix;

/* Where code k of row n stands in the tiles of the form r16x4, by the words of forms.def. */
static inline uint8_t *code_at(const Case *c, uint8_t *tiles, uint64_t tile, int n, int k, int *shift)
{
    const int per = c->type == DT_INT4 ? 8 : 4;

    if (c->type == DT_FP8) {
        *shift = 0;
        return tiles + (uint64_t)(n / 16) * tile + (uint64_t)(k / 4) * 64 +
               (uint64_t)(32 * (k % 4 / 2) + 2 * (n % 16) + k % 2);
    }
    *shift = c->type == DT_INT4 && k % 8 >= 4 ? 4 : 0;
    return tiles + (uint64_t)(n / 16) * tile + (uint64_t)(k / per) * 64 + (uint64_t)(4 * (n % 16) + k % 4);
}

static inline Matrix matrix_new(const Case *c)
{
    const size_t codes = (size_t)c->N * c->K, groups = codes / c->group, per_row = (size_t)c->K / c->group;
    const uint64_t tile = packed_tile(c->type, c->K, c->group, c->scales), code_bytes = packed_codes(c->type, c->K);
    const uint64_t scale_bytes = packed_scale(c->scales), zero_bytes = packed_zeros(c->scales);
    Matrix m = {
        .codes = malloc(codes), .scales = malloc(groups * sizeof(float)), .offsets = malloc(groups * sizeof(float))};

    m.values = malloc(codes * sizeof(float));
    m.tiles = aligned_alloc(64, packed_tiles(c->N) * tile);
    memset(m.tiles, 0, packed_tiles(c->N) * tile);
    for (size_t g = 0; g < groups; g++) {
        uint8_t *scales = m.tiles + g / per_row / 16 * tile + code_bytes;
        uint8_t *zeros = scales + 16 * scale_bytes * per_row;
        const size_t at = g % per_row * 16 + g / per_row % 16;
        const float any = random_float() * 0.01f;
        const uint16_t half = fp16_from_float(any);
        const uint8_t zero = (uint8_t)random_below(16);

        m.scales[g] = scale_bytes == 2 ? fp16_to_float(half) : any;
        m.offsets[g] = c->scales == PACKED_FP32_MINIMA  ? random_float() * 0.1f
                       : c->scales == PACKED_FP16_ZEROS ? (float)zero
                                                        : (float)packed_zero(c->type);
        memcpy(scales + scale_bytes * at, scale_bytes == 2 ? (const void *)&half : &any, scale_bytes);
        memcpy(zeros + zero_bytes * at, zero_bytes == 1 ? (const void *)&zero : &m.offsets[g], zero_bytes);
    }
    for (size_t i = 0; i < codes; i++) {
        int shift;
        uint8_t *at = code_at(c, m.tiles, tile, (int)(i / c->K), (int)(i % c->K), &shift);

        m.codes[i] = (uint8_t)random_below(c->type == DT_INT4 ? 16 : 256);
        *at = (uint8_t)(*at | m.codes[i] << shift);
    }
    ref_dequantise(&(RefCodes){.codes = m.codes,
                               .scales = m.scales,
                               .offsets = m.offsets,
                               .group = c->group,
                               .minima = c->scales == PACKED_FP32_MINIMA,
                               .e4m3 = c->type == DT_FP8},
                   c->N, c->K, m.values);
    return m;
}

static inline void matrix_free(Matrix *m)
{
    free(m->codes), free(m->offsets), free(m->tiles), free(m->scales), free(m->values);
}

typedef struct Rows { /* of x, as a kernel reads them */
    float *x, *scales;
    int8_t *codes;
    int32_t *sums;
    int group;
} Rows;

static inline Rows rows_new(int M, int K)
{
    const size_t n = (size_t)M * K;
    Rows r = {.x = malloc(n * sizeof(float)), .codes = malloc(n), .group = K % 128 == 0 ? 128 : K % 64 == 0 ? 64 : 32};

    r.scales = malloc(n / r.group * sizeof(float));
    r.sums = malloc(n / 32 * sizeof(int32_t));
    for (size_t i = 0; i < n; i++)
        r.x[i] = random_float() * (float)(1 << i / 32 % 5);
    return r;
}

static inline void rows_free(Rows *r)
{
    free(r->x), free(r->scales), free(r->codes), free(r->sums);
}

static inline void quantise(int level, Rows *r, int M, int K, int threads)
{
    const int64_t k[] = {[QUANTISE_K] = K, [QUANTISE_GROUP] = r->group, [QUANTISE_ROWS_S] = 0};

    call(kernel_at("quantise", level), (void *const[]){r->x, r->codes, r->scales, r->sums}, k, M, 0, threads);
}

#endif
