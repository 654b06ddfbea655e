/* quantised.c - rows as codes and back. A product with quantised operands is that of the values which the codes stand for. */
#include "ref.h"

#include <math.h>
#include <stdbool.h>

void ref_dequantise(const RefCodes *w, int64_t rows, int64_t columns, float *x)
{
    for (int64_t i = 0; i < rows * columns; i++) {
        const float scale = w->scales[i / w->group], offset = w->offsets[i / w->group];

        x[i] = w->minima ? scale * (float)w->codes[i] - offset : scale * ((float)w->codes[i] - offset);
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
