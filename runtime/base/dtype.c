/* dtype.c - element types: names, sizes, conversions. */
#include "dtype.h"

#include <math.h>
#include <string.h>

static const struct {
    const char *name;
    size_t size;
} types[] = {
    [DT_NONE] = {"none", 0}, [DT_FP32] = {"fp32", 4}, [DT_FP16] = {"fp16", 2}, [DT_BF16] = {"bf16", 2},
    [DT_I32] = {"i32", 4},   [DT_INT8] = {"int8", 1}, [DT_INT4] = {"int4", 1}, [DT_FP8] = {"fp8", 1},
};

size_t dtype_size(DType t)
{
    return types[t].size;
}

const char *dtype_name(DType t)
{
    return types[t].name;
}

DType dtype_parse(const char *name)
{
    for (size_t i = 1; i < sizeof types / sizeof *types; i++)
        if (strcmp(types[i].name, name) == 0)
            return (DType)i;
    return DT_NONE;
}

static uint32_t bits_of(float f)
{
    uint32_t u;
    memcpy(&u, &f, 4);
    return u;
}

static float float_of(uint32_t u)
{
    float f;
    memcpy(&f, &u, 4);
    return f;
}

float bf16_to_float(uint16_t h)
{
    return float_of((uint32_t)h << 16);
}

uint16_t bf16_from_float(float f)
{
    const uint32_t u = bits_of(f);

    if (isnan(f))
        return (uint16_t)((u >> 16) | 0x40);
    return (uint16_t)((u + 0x7fff + ((u >> 16) & 1)) >> 16);
}

float fp16_to_float(uint16_t h)
{
    const uint32_t sign = (uint32_t)(h & 0x8000) << 16, exponent = (h >> 10) & 31, m = h & 0x3ff;

    if (exponent == 31)
        return float_of(sign | 0x7f800000 | m << 13);
    if (exponent == 0) {
        const float f = ldexpf((float)m, -24);

        return sign ? -f : f;
    }
    return float_of(sign | (exponent + 112) << 23 | m << 13);
}

uint16_t fp16_from_float(float f)
{
    const uint16_t sign = (uint16_t)(bits_of(f) >> 16 & 0x8000);
    const float a = fabsf(f);

    if (isnan(f))
        return sign | 0x7e00;
    if (a >= 65520.0f)
        return sign | 0x7c00;
    if (a < 6.103515625e-5f) /* subnormal: units of 2^-24, nearbyint rounds ties to even */
        return (uint16_t)(sign | (uint16_t)nearbyintf(ldexpf(a, 24)));

    const uint32_t u = bits_of(a) - (112u << 23);

    return (uint16_t)(sign | (uint16_t)((u + 0xfff + (u >> 13 & 1)) >> 13));
}

float e4m3_to_float(uint8_t code)
{
    const int exponent = code >> 3 & 15, mantissa = code & 7;
    const float magnitude = exponent == 15 && mantissa == 7 ? NAN
                            : exponent                      ? ldexpf((float)(8 + mantissa), exponent - 10)
                                                            : ldexpf((float)mantissa, -9);

    return code & 128 ? -magnitude : magnitude;
}

uint8_t e4m3_from_float(float f)
{
    const uint8_t sign = (uint8_t)(bits_of(f) >> 24 & 0x80);
    const float a = fabsf(f);

    if (isnan(f))
        return sign | 0x7f;
    if (a >= 448.0f)
        return sign | 0x7e;
    if (a < 0x1p-6f) /* subnormal: the sum with 2^14 leaves units of 2^-9 in the lowest bits, rounded */
        return (uint8_t)(sign | (bits_of(a + 0x1p14f) - 0x46800000));

    const uint32_t u = bits_of(a) - (120u << 23);

    return (uint8_t)(sign | (uint8_t)((u + 0x7ffff + (u >> 20 & 1)) >> 20));
}

float dtype_load(const void *p, size_t i, DType t)
{
    switch (t) {
    case DT_FP32: return ((const float *)p)[i];
    case DT_FP16: return fp16_to_float(((const uint16_t *)p)[i]);
    case DT_BF16: return bf16_to_float(((const uint16_t *)p)[i]);
    case DT_I32: return (float)((const int32_t *)p)[i];
    case DT_NONE:
    case DT_INT8:
    case DT_INT4:
    case DT_FP8: break; /* a code is no number without its scale */
    }
    return 0.0f;
}

void dtype_store(void *p, size_t i, DType t, float v)
{
    switch (t) {
    case DT_FP32: ((float *)p)[i] = v; break;
    case DT_FP16: ((uint16_t *)p)[i] = fp16_from_float(v); break;
    case DT_BF16: ((uint16_t *)p)[i] = bf16_from_float(v); break;
    case DT_I32: ((int32_t *)p)[i] = (int32_t)v; break;
    case DT_NONE:
    case DT_INT8:
    case DT_INT4:
    case DT_FP8: break;
    }
}
