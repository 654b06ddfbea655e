/* cached.c - rows of the paged cache: numbers, or codes of 8 bits with a scale in fp16 for each row. */
#include "ref.h"

#include <math.h>

static int64_t rows_of(const RefCache *c)
{
    return (int64_t)c->G * c->block;
}

static int64_t code_page(const RefCache *c)
{
    return rows_of(c) * (c->E + 2);
}

/* The code whose number is nearest to x, which is at most 448; of two the even one. */
static int nearest(double x)
{
    const int least =
        x != 0 && ilogb(x) > -6 ? ilogb(x) : -6; /* exponent of x: numbers near it are 2^(least-3) apart */

    return (least + 6) * 8 + (int)rint(fabs(x) / ldexp(1, least - 3)) + (signbit(x) ? 128 : 0);
}

void ref_cached(const RefCache *c, const void *base, int64_t page, int64_t row, double *x)
{
    const uint8_t *at = (const uint8_t *)base + page * code_page(c), *code = at + row * c->E;
    double scale;

    for (int e = 0; e < c->E && !dtype_is_code(c->type); e++)
        x[e] = ref_at((RefTensor){base, c->type}, (page * rows_of(c) + row) * c->E + e);
    if (!dtype_is_code(c->type))
        return;
    scale = fp16_to_float(((const uint16_t *)(at + rows_of(c) * c->E))[row]);
    for (int e = 0; e < c->E; e++)
        x[e] = scale * (c->type == DT_INT8 ? (double)(int8_t)code[e] : ref_e4m3(code[e]));
}

void ref_cache(const RefCache *c, void *base, int64_t page, int64_t row, const float *x)
{
    uint8_t *at = (uint8_t *)base + page * code_page(c);
    const float most = c->type == DT_INT8 ? 127.0f : 448.0f;
    float largest = 0.0f, by;
    uint16_t scale;

    for (int e = 0; e < c->E && !dtype_is_code(c->type); e++)
        dtype_store(base, (size_t)((page * rows_of(c) + row) * c->E + e), c->type, x[e]);
    if (!dtype_is_code(c->type))
        return;
    for (int e = 0; e < c->E; e++)
        largest = fmaxf(largest, fabsf(x[e]));
    scale = fp16_from_float(fminf(largest, 65024.0f) / most);
    by = scale ? 1.0f / fp16_to_float(scale) : 0.0f;
    ((uint16_t *)(at + rows_of(c) * c->E))[row] = scale;
    for (int e = 0; e < c->E; e++) {
        const float y = isnan(x[e]) ? 0.0f : fmaxf(fminf(x[e] * by, most), -most);

        at[row * c->E + e] = (uint8_t)(c->type == DT_INT8 ? (int)rint(y) : nearest(y));
    }
}
