/* quantised.c - rows as codes and back. A product with quantised operands is that of the values which the codes stand for. */
#include "ref.h"

#include <math.h>
#include <stdbool.h>

double ref_e4m3(int code)
{
    const int exponent = code >> 3 & 15, mantissa = code & 7;
    const double magnitude = exponent ? (8 + mantissa) * (double)(1 << exponent) / 1024 : mantissa / 512.0;

    return code & 128 ? -magnitude : magnitude;
}

/* The nearest number of e4m3, of two the one whose code is even; 448 for what is larger. */
static uint8_t to_e4m3(float x)
{
    int best = 0;

    for (int code = 1; code < 127; code++) {
        const double more = fabs(ref_e4m3(code) - fabs((double)x)), least = fabs(ref_e4m3(best) - fabs((double)x));

        if (more < least || (more == least && code % 2 == 0))
            best = code;
    }
    return (uint8_t)(isnan(x) ? 127 : signbit(x) ? best | 128 : best);
}

void ref_quantise_e4m3(const float *x, int64_t rows, int64_t columns, uint8_t *codes, float *scales)
{
    for (int64_t m = 0; m < rows; m++) {
        const float *row = x + m * columns;
        float largest = 0.0f;

        for (int64_t k = 0; k < columns; k++)
            largest = !isfinite(row[k]) ? INFINITY : fmaxf(largest, fabsf(row[k]));
        scales[m] = largest < 0x1p-100f ? 0.0f : largest / 448.0f;
        for (int64_t k = 0; k < columns; k++)
            codes[m * columns + k] = scales[m] == 0.0f || isinf(largest) ? 0 : to_e4m3(row[k] * (448.0f / largest));
    }
}

/* A unit is 2^-14 of the largest power of two in the 128 columns, of the next one where the largest magnitude is near to that. */
void ref_digits(const float *x, int64_t rows, int64_t columns, int8_t *high, int8_t *low, float *units)
{
    for (int64_t p = 0; p < rows * columns / 128; p++) {
        float largest = 0.0f;
        int power = -111;

        for (int64_t i = p * 128; i < (p + 1) * 128; i++)
            largest = !isfinite(x[i]) ? INFINITY : fmaxf(largest, fabsf(x[i]));
        if (isfinite(largest) && largest >= 0x1p-111f)
            power = frexpf(largest, &power) >= 0.9921875f ? power : power - 1;
        units[p] = isinf(largest) ? NAN : ldexpf(1.0f, power - 14);
        for (int64_t i = p * 128; i < (p + 1) * 128; i++) {
            const int number = isinf(largest) ? 0 : (int)nearbyintf(ldexpf(x[i], 14 - power));

            low[i] = (int8_t)(((number + 128) & 255) - 128);
            high[i] = (int8_t)((number - low[i]) / 256);
        }
    }
}

void ref_dequantise(const RefCodes *w, int64_t rows, int64_t columns, float *x)
{
    for (int64_t i = 0; i < rows * columns; i++) {
        const float scale = w->scales[i / w->group], offset = w->e4m3 ? 0.0f : w->offsets[i / w->group];
        const float code = w->e4m3 ? (float)ref_e4m3(w->codes[i]) : (float)w->codes[i];

        x[i] = w->minima ? scale * code - offset : scale * (code - offset);
    }
}

/* In fp32, as kernels compute it, so that codes can be compared bit by bit. */
void ref_quantise(const float *x, int64_t rows, int64_t columns, int64_t group, int8_t *codes, float *scales,
                  int32_t *sums)
{
    for (int64_t g = 0; g < rows * columns / group; g++) {
        float largest = 0.0f;

        for (int64_t i = g * group; i < (g + 1) * group; i++)
            largest = fabsf(x[i]) > largest || isnan(x[i]) ? fabsf(x[i]) : largest;
        scales[g] = !isfinite(largest) ? largest : largest < 0x1p-100f ? 0.0f : largest / 127.0f;
        for (int64_t i = g * group; i < (g + 1) * group; i++) {
            const bool zero = scales[g] == 0.0f || !isfinite(largest);

            codes[i] = zero ? 0 : (int8_t)nearbyintf(x[i] * (127.0f / largest));
            sums[i / 32] = (i % 32 ? sums[i / 32] : 0) + codes[i];
        }
    }
}
