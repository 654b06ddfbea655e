/* rope.c - cosines and sines of rotary positions.
 *
 * Rounded where Hugging Face's modeling_rope_utils rounds: frequencies, wavelengths and angles are fp32, rounded
 * after each operation, and the cosine is that of the fp32 angle.
 *
 *   frequency[i] = 1 / theta^(2i / rot)          Su et al. 2021
 *   linear:  frequency / factor                  position interpolation, Chen et al. 2023
 *   llama3:  wavelength = 2 pi / frequency;  longer than original / low: frequency / factor;
 *            shorter than original / high: as it is; between them a blend of the two
 *   freqs:   the frequencies themselves */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tensors.h"

#if defined(__FP_FAST_FMAF) && defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("fp-contract=off") /* a fused a*b + c would round once where Hugging Face rounds twice */
#endif

static float llama3(const Value *v, float frequency)
{
    const double original = (double)ir_int(v, "original");
    const double low = ir_float(v, "low"), high = ir_float(v, "high");
    const float factor = (float)ir_float(v, "factor");
    const float wavelength = 1.0f / frequency * (float)(2 * 3.14159265358979323846);
    const float longest = (float)(original / low), shortest = (float)(original / high);
    const float scaled = frequency / factor;
    float blend, kept, rest;

    if (wavelength > longest)
        return scaled;
    if (wavelength < shortest)
        return frequency;
    blend = 1.0f / wavelength * (float)original;
    blend = (blend - (float)low) / (float)(high - low);
    rest = (1.0f - blend) * frequency / factor;
    kept = blend * frequency;
    return rest + kept;
}

/* Frequency i. *listed: the rest of the list freqs, which is empty if there is none. */
static float frequency(const Value *v, int64_t i, const char **listed)
{
    if (**listed) {
        char *end;
        const double given = strtod(*listed, &end);

        *listed = end;
        return (float)given;
    }
    const float rot = (float)ir_int(v, "rot");
    const float f = 1.0f / powf((float)ir_float(v, "theta"), (float)(2 * i) / rot);
    const char *scaling = ir_word(v, "scaling");

    if (strcmp(scaling, "linear") == 0)
        return f / (float)ir_float(v, "factor");
    if (strcmp(scaling, "llama3") == 0)
        return llama3(v, f);
    return f;
}

void rope_rows(const Value *v, int64_t from, int64_t count, float *out)
{
    const int64_t half = ir_int(v, "rot") / 2;
    const float amplitude = (float)ir_float(v, "amplitude");
    const char *listed = ir_word(v, "freqs");

    for (int64_t i = 0; i < half; i++) {
        const float f = frequency(v, i, &listed);

        for (int64_t k = 0; k < count; k++) {
            const float angle = (float)(from + k) * f;

            out[(k * half + i) * 2] = amplitude * (float)cos((double)angle);
            out[(k * half + i) * 2 + 1] = amplitude * (float)sin((double)angle);
        }
    }
}
