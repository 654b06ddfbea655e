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
