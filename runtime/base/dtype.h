/* dtype.h - element types: names, sizes, conversions. */
#ifndef FTX_BASE_DTYPE_H
#define FTX_BASE_DTYPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* INT8, INT4 and FP8 (e4m3) are the codes of quantised weights (packed.h), INT8 and FP8 those of caches
 * (kernels/cpu/cached.h). */
typedef enum DType {
    DT_NONE = 0,
    DT_FP32 = 1,
    DT_FP16 = 2,
    DT_BF16 = 3,
    DT_I32 = 4,
    DT_INT8 = 5,
    DT_INT4 = 6,
    DT_FP8 = 7,
} DType;

size_t dtype_size(DType t);          /* of INT4, two of which share a byte, 1 */
const char *dtype_name(DType t);     /* "bf16" */
DType dtype_parse(const char *name); /* DT_NONE: no such type */

static inline bool dtype_is_code(DType t) /* of a cache: each row has a scale in fp16 */
{
    return t == DT_INT8 || t == DT_FP8;
}

float bf16_to_float(uint16_t h);
uint16_t bf16_from_float(float f); /* nearest, ties to even; NaN stays NaN */
float fp16_to_float(uint16_t h);
uint16_t fp16_from_float(float f);
float e4m3_to_float(uint8_t code);
uint8_t e4m3_from_float(float f); /* nearest, ties to even, magnitudes above 448 as 448; NaN stays NaN */

float dtype_load(const void *p, size_t i, DType t); /* element i as float */
void dtype_store(void *p, size_t i, DType t, float v);

#endif
