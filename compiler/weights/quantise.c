/* quantise.c - rows of weights to codes, scales and zeros, and those to tiles (runtime/base/packed.h).
 *
 *   int8         scale = largest magnitude / 127, code = 128 + the nearest integer to w / scale
 *   int4         codes 8 - 8 .. 8 + 7; of 40 scales, from 0.6 to 1.05 times the largest magnitude / 7 and of both signs, the
 *                one whose squared error is least
 *   int4, zeros  scale = (largest - smallest) / 15, zero = the nearest integer to -smallest / scale
 *   fp8          scale = largest magnitude / 448, code = the number of e4m3 nearest to w / scale
 *
 * Scales are rounded to fp16 first, codes are chosen for the rounded scale. What a group leaves is a function of its
 * elements alone.
 *
 * With Moments H = sum of x x^T of the inputs x (calibration) it is not e = w - w' of int4 that is to be small, but its product
 * with inputs: the sum of (e . x)^2 is e^T H e. An element's squared error counts H[k,k] times in the search of scales. Then
 * codes are changed one at a time while that lowers e^T H e over the block of columns: with the others fixed, the best error of
 * element k is e[k] - (H e)[k] / H[k,k] (coordinate descent, as in Nair and Suggala 2024; GPTQ fixes codes in turn). */
#include <math.h>
#include <string.h>

#include "tensors.h"

enum { STEPS = 20, LANES = 4, SWEEPS = 8 };
typedef float Vec __attribute__((vector_size(LANES * sizeof(float))));
typedef int32_t Mask __attribute__((vector_size(LANES * sizeof(float))));

static Vec select_lanes(Mask m, Vec yes, Vec no)
{
    return (Vec)(((Mask)yes & m) | ((Mask)no & ~m));
}

static Vec load(const float *p)
{
    Vec v;

    memcpy(&v, p, sizeof v);
    return v;
}

/* The nearest integers of x / scale, between low and high. */
static Vec nearest(Vec x, float inverse, float low, float high)
{
    const Vec magic = (Vec){0} + 0x1.8p23f; /* adding it rounds to an integer, ties to even */
    Vec q = x * inverse;

    q = select_lanes(q < low, (Vec){0} + low, select_lanes(q > high, (Vec){0} + high, q));
    return (q + magic) - magic;
}

/* The scale as it will be stored: infinite if it is too large for fp16. The inverse of 0 is taken as 0. */
static float round_scale(float scale, float *inverse)
{
    const float rounded = fp16_to_float(fp16_from_float(scale));

    *inverse = rounded != 0 ? 1.0f / rounded : 0.0f;
    return rounded;
}

/* counts: how often each element's counts; NULL: once. */
static float squared_error(const float *x, const float *counts, int64_t n, float scale, float inverse)
{
    Vec sum = {0};
    float all = 0;

    for (int64_t i = 0; i < n; i += LANES) {
        const Vec v = load(x + i), e = v - nearest(v, inverse, -8.0f, 7.0f) * scale;

        sum += counts ? e * e * load(counts + i) : e * e;
    }
    for (int l = 0; l < LANES; l++)
        all += sum[l];
    return all;
}

static float search_scale(const float *x, const float *counts, int64_t n, float largest)
{
    float least = INFINITY, inverse, best = round_scale(largest / 7.0f, &inverse);

    for (int i = 0; i < 2 * STEPS; i++) {
        const float part = 0.6f + 0.45f * (float)(i / 2) / (STEPS - 1);
        const float scale = round_scale((i % 2 ? -1.0f : 1.0f) * part * largest / 7.0f, &inverse);
        const float error = squared_error(x, counts, n, scale, inverse);

        if (error < least) {
            least = error;
            best = scale;
        }
    }
    return best;
}

/* One group: its codes, and the scale (rounded to fp16); returns the zero. counts: as in squared_error. */
static float quantise_group(const float *x, const float *counts, int64_t n, DType type, bool zeros, uint8_t *codes,
                            float *scale)
{
    const float low = type == DT_INT8 ? -127.0f : -8.0f, high = type == DT_INT8 ? 127.0f : 7.0f;
    float most = 0, least = 0, inverse;
    float zero = (float)packed_zero(type);

    for (int64_t i = 0; i < n; i++) {
        most = x[i] > most ? x[i] : most;
        least = x[i] < least ? x[i] : least;
    }
    if (zeros) {
        *scale = round_scale((most - least) / 15.0f, &inverse);
        zero = nearest((Vec){-least}, inverse, 0.0f, 15.0f)[0];
    } else if (type != DT_INT4) {
        *scale = (most > -least ? most : -least) / (type == DT_INT8 ? 127.0f : 448.0f);
    } else {
        *scale = search_scale(x, counts, n, most > -least ? most : -least);
    }
    *scale = round_scale(*scale, &inverse);
    for (int64_t i = 0; type == DT_FP8 && i < n; i++)
        codes[i] = e4m3_from_float(x[i] * inverse);
    for (int64_t i = 0; type != DT_FP8 && i < n; i += LANES) {
        const Vec q = nearest(load(x + i), inverse, zeros ? -zero : low, zeros ? 15.0f - zero : high) + zero;

        for (int l = 0; l < LANES; l++)
            codes[i + l] = (uint8_t)q[l];
    }
    return zero;
}

/* Changes codes of a block of n columns, whose first group is that of scales[0], until e^T H e is as small as it gets by
 * changing one of them, or SWEEPS times over. */
static void descend(const float *x, const float *h, int64_t n, int64_t group, const CodedRow *to)
{
    float e[MOMENTS_BLOCK], gradient[MOMENTS_BLOCK] = {0}; /* H e */
    bool changed = true;

    for (int64_t k = 0; k < n; k++) {
        e[k] = x[k] - to->scales[k / group] * ((float)to->codes[k] - to->offsets[k / group]);
        for (int64_t j = 0; j < n; j++)
            gradient[j] += h[k * n + j] * e[k];
    }
    for (int sweep = 0; sweep < SWEEPS && changed; sweep++) {
        changed = false;
        for (int64_t k = 0; k < n; k++) {
            const float scale = to->scales[k / group], zero = to->offsets[k / group];
            const float wanted = x[k] - (e[k] - gradient[k] / h[k * n + k]);
            const float code = nearest((Vec){wanted}, scale != 0 ? 1.0f / scale : 0.0f, -zero, 15.0f - zero)[0] + zero;
            const float more = x[k] - scale * (code - zero) - e[k];

            if ((uint8_t)code == to->codes[k])
                continue;
            to->codes[k] = (uint8_t)code;
            e[k] += more;
            for (int64_t j = 0; j < n; j++)
                gradient[j] += h[k * n + j] * more;
            changed = true;
        }
    }
}

/* A block of columns, for inputs of these moments [n][n]. */
static void quantise_block(const float *x, const float *h, int64_t n, const CodedForm *f, const CodedRow *to)
{
    float counts[MOMENTS_BLOCK];
    bool finite = true;

    for (int64_t k = 0; k < n; k++)
        counts[k] = h[k * n + k];
    for (int64_t g = 0; g < n / f->group; g++) {
        to->offsets[g] = quantise_group(x + g * f->group, counts + g * f->group, f->group, f->type,
                                        f->scales == PACKED_FP16_ZEROS, to->codes + g * f->group, &to->scales[g]);
        finite = finite && isfinite(to->scales[g]); /* a scale that fp16 cannot hold is refused later */
    }
    if (finite)
        descend(x, h, n, f->group, to);
}

void quantise_row(const float *x, int64_t columns, const CodedForm *f, const Moments *inputs, const CodedRow *to)
{
    const int64_t block = inputs && f->type == DT_INT4 ? inputs->block : 0;

    for (int64_t k = 0; block && k < columns; k += block)
        quantise_block(x + k, inputs->at + k * block, block, f,
                       &(CodedRow){to->scales + k / f->group, to->offsets + k / f->group, to->codes + k});
    for (int64_t g = 0; !block && g < columns / f->group; g++)
        to->offsets[g] = quantise_group(x + g * f->group, NULL, f->group, f->type, f->scales == PACKED_FP16_ZEROS,
                                        to->codes + g * f->group, &to->scales[g]);
}

/* --- tiles ------------------------------------------------------------------------------------------- */

/* The form r16x4 of forms.def: vectors of 4 (int4: 2 x 4) codes of each row; of fp8 halves of 2. */
static void order_r16x4(DType type, const CodedRow *rows, int64_t n, int64_t columns, uint8_t *tile)
{
    const bool half = type == DT_INT4;
    const int64_t step = half ? 8 : 4, together = type == DT_FP8 ? 2 : 4;

    for (int64_t r = 0; r < n; r++)
        for (int64_t k = 0; k < columns; k++) {
            const uint8_t code = rows[r].codes[k];
            uint8_t *at = tile + k / step * (4 * PACKED_ROWS) + k % 4 / together * (2 * PACKED_ROWS) + together * r +
                          k % together;

            *at = half && k % 8 >= 4 ? (uint8_t)(*at | code << 4) : code;
        }
}

/* The form m16k16: lane 4 r + t of a block of 512 bytes has 16 bytes, of each 16 k rows r and r + 8. */
static void order_m16k16(DType type, const CodedRow *rows, int64_t n, int64_t columns, uint8_t *tile)
{
    const bool half = type == DT_INT4;
    const int64_t span = half ? 64 : 32, word = half ? 4 : 8; /* k of a block; bytes of a lane for 16 k */

    for (int64_t r = 0; r < n; r++)
        for (int64_t k = 0; k < columns; k++) {
            const int64_t block = k / span * span, left = columns - block < span ? columns - block : span;
            const int64_t lane = r % 8 * 4 + k % 8 / 2, j = k % 16 / 8 * 2 + r / 8, odd = k % 2;
            uint8_t *at = tile + (half ? block * 8 : block * 16) + (lane * (left / 16) + (k - block) / 16) * word;

            if (half) /* nibble j of the even element, nibble j + 4 of the odd one */
                at[j / 2 + 2 * odd] |= (uint8_t)(rows[r].codes[k] << (j % 2 * 4));
            else
                at[j / 2 * 4 + j % 2 + 2 * odd] = rows[r].codes[k];
        }
}

static const struct {
    const char *form;
    void (*order)(DType type, const CodedRow *rows, int64_t n, int64_t columns, uint8_t *tile);
} orders[] = {{"r16x4", order_r16x4}, {"m16k16", order_m16k16}};

/* A scale and a zero or minimum, as they stand in a tile. */
static void put_scale(PackedScales s, float scale, float offset, uint8_t *scales, uint8_t *zeros)
{
    const uint16_t half = fp16_from_float(scale);

    if (s >= PACKED_FP32)
        memcpy(scales, &scale, sizeof scale);
    else
        memcpy(scales, &half, sizeof half);
    if (s == PACKED_FP16_ZEROS)
        *zeros = (uint8_t)offset;
    else if (s == PACKED_FP32_MINIMA)
        memcpy(zeros, &offset, sizeof offset);
}

void pack_tiles(const CodedForm *f, const char *form, int64_t rows, int64_t columns, void *codes, uint8_t *out)
{
    const uint64_t bytes = packed_tile(f->type, (uint64_t)columns, (uint64_t)f->group, f->scales);
    const uint64_t scale = packed_scale(f->scales), zero = packed_zeros(f->scales);
    const int64_t groups = columns / f->group;
    size_t o = 0;

    while (o < LEN(orders) && strcmp(orders[o].form, form) != 0)
        o++;
    if (o == LEN(orders))
        die("the form %s has no order of codes", form);
    memset(out, 0, bytes * packed_tiles((uint64_t)rows));
    for (int64_t row = 0; row < rows; row += PACKED_ROWS, out += bytes) {
        const int64_t n = rows - row < PACKED_ROWS ? rows - row : PACKED_ROWS;
        uint8_t *scales = out + packed_codes(f->type, (uint64_t)columns);
        uint8_t *zeros = scales + scale * PACKED_ROWS * (uint64_t)groups;
        CodedRow of[PACKED_ROWS];

        for (int64_t r = 0; r < n; r++)
            of[r] = coded_row(f, columns, codes, row + r);
        orders[o].order(f->type, of, n, columns, out);
        for (int64_t g = 0; g < groups; g++)
            for (int64_t r = 0; r < n; r++) {
                const uint64_t at = (uint64_t)(g * PACKED_ROWS + r);

                put_scale(f->scales, of[r].scales[g], of[r].offsets[g], scales + scale * at, zeros + zero * at);
            }
    }
}
