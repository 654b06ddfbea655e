/* layernorm.c - layer norm of each row:  y[m,:] = g * (x[m,:] - mean) / sqrt(var + eps) + b
 *
 *   x, y [M,C] fp32, y may alias x; g, b [C] fp32
 *
 * Summed in fp32, LANES partial sums and a tree. The variance is summed around the mean in a second pass over the row
 * (which is in L1), so that a large mean loses no precision. Ba et al. 2016. */
//@ kernel  layernorm
//@ rank    110
//@ args    x[M,C] g[C]:fp32 b[C]:fp32 -> y
//@ match   y = layernorm(x, g, b)
//@ consts  C: C  EPS: layernorm.eps  ROWS_S: rows(x)
//@ moves   8 * T * C
#ifndef LEVEL
#define BODY "layernorm.c"
#include "each.h"
#else

static void AT(layernorm_row)(const float *x, const float *g, const float *b, float eps, int64_t C, float *y)
{
    Vf sum = {0}, square = {0};
    int64_t i = 0;

    for (; i + LANES <= C; i += LANES)
        sum += vload(x + i);
    if (i < C)
        sum += vload_n(x + i, C - i);

    const float mean = vsum(sum) / (float)C;

    for (i = 0; i + LANES <= C; i += LANES) {
        const Vf d = vload(x + i) - mean;
        square += d * d;
    }
    float rest = 0.0f;
    for (; i < C; i++)
        rest += (x[i] - mean) * (x[i] - mean);

    const float scale = 1.0f / __builtin_sqrtf((vsum(square) + rest) / (float)C + eps);

    for (i = 0; i + LANES <= C; i += LANES)
        vstore(y + i, (vload(x + i) - mean) * scale * vload(g + i) + vload(b + i));
    if (i < C) {
        const int64_t n = C - i;
        vstore_n(y + i, (vload_n(x + i, n) - mean) * scale * vload_n(g + i, n) + vload_n(b + i, n), n);
    }
}

void AT(layernorm)(const CpuCall *c)
{
    const float *x = c->arg[0], *g = c->arg[1], *b = c->arg[2];
    float *y = c->arg[3];
    const int64_t C = c->k[LAYERNORM_C];
    const float eps = (float)cpu_number(c, LAYERNORM_EPS);
    int64_t first, last;

    cpu_share(c, c->k[LAYERNORM_ROWS_S] ? c->S : c->T, &first, &last);
    for (int64_t m = first; m < last; m++)
        AT(layernorm_row)(x + m * C, g, b, eps, C, y + m * C);
}
#endif
