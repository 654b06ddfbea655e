/* packed.h - how quantised weights lie in memory: tiles of 16 rows.
 *
 *   w[n,k] = scale[n, k / group] * (code[n,k] - zero[n, k / group])
 *
 *   tile: | codes of 16 rows | scales [K / group][16] | zeros or minima [K / group][16] | 0 up to a multiple of 64 bytes |
 *
 * Codes of int8 and int4 are unsigned, of 8 or 4 bits. Symmetric weights have no zeros in memory: their zero is 128 (int8) or 8
 * (int4). Weights with minima are w = scale * code - minimum.
 * Codes of fp8 are numbers of 8 bits (e4m3: sign, 4 bits of exponent with bias 7, 3 of mantissa, no infinity) with neither zeros nor
 * minima: w = scale * number. The codes 0x7f and 0xff, which are NaN, are refused where weights are packed; to kernels they are
 * 480 and -480.
 * The form of a weight (compiler/ir/forms.def) says in which order the codes of a tile stand. The rows of a last tile
 * that do not exist have scales of 0. */
#ifndef FTX_BASE_PACKED_H
#define FTX_BASE_PACKED_H

#include <stdbool.h>

#include "dtype.h"

enum { PACKED_ROWS = 16, PACKED_ALIGN = 64 };

/* What stands behind the codes of a tile. */
typedef enum PackedScales {
    PACKED_FP16,        /* scales in fp16 */
    PACKED_FP16_ZEROS,  /* scales in fp16, zeros in uint8 */
    PACKED_FP32,        /* scales in fp32 */
    PACKED_FP32_MINIMA, /* scales and minima in fp32 */
    PACKED_SCALES_COUNT
} PackedScales;

static inline bool packed_type(DType t)
{
    return t == DT_INT8 || t == DT_INT4 || t == DT_FP8;
}

static inline uint32_t packed_zero(DType t)
{
    return t == DT_INT8 ? 128 : t == DT_INT4 ? 8 : 0;
}

/* Whether weights of a type can have this behind their codes. */
static inline bool packed_has(DType t, PackedScales s)
{
    return t != DT_FP8 || s == PACKED_FP16 || s == PACKED_FP32;
}

/* Whether rows of K elements can be in groups of so many. */
static inline bool packed_group(uint64_t group, uint64_t K)
{
    return (group == 16 || group == 32 || group == 64 || group == 128) && K && K % group == 0;
}

static inline uint64_t packed_codes(DType t, uint64_t K) /* bytes of the codes of a tile */
{
    return PACKED_ROWS * K / (t == DT_INT4 ? 2 : 1);
}

static inline uint64_t packed_scale(PackedScales s) /* bytes of a scale */
{
    return s >= PACKED_FP32 ? 4 : 2;
}

static inline uint64_t packed_zeros(PackedScales s) /* bytes of a zero or a minimum */
{
    return s == PACKED_FP16_ZEROS ? 1 : s == PACKED_FP32_MINIMA ? 4 : 0;
}

static inline uint64_t packed_tile(DType t, uint64_t K, uint64_t group, PackedScales s) /* bytes of a tile */
{
    const uint64_t bytes = packed_codes(t, K) + PACKED_ROWS * (K / group) * (packed_scale(s) + packed_zeros(s));

    return (bytes + PACKED_ALIGN - 1) / PACKED_ALIGN * PACKED_ALIGN;
}

static inline uint64_t packed_tiles(uint64_t rows)
{
    return (rows + PACKED_ROWS - 1) / PACKED_ROWS;
}

#endif
