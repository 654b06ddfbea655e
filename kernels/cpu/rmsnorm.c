/* rmsnorm.c - root-mean-square norm of each row:  y[m,:] = g * x[m,:] / sqrt(mean(x^2) + eps)
 *
 *   x, y [M,C] fp32, y may alias x; g [C] fp32
 *
 * Summed in fp32, LANES partial sums and a tree. Zhang & Sennrich 2019, eq. 4. */
//@ kernel  rmsnorm
//@ rank    160
//@ args    x[M,C] g[C]:fp32 -> y
//@ match   y = rmsnorm(x, g)
//@ consts  C: C  EPS: rmsnorm.eps  ROWS_S: rows(x)
//@ moves   8 * T * C
#ifndef LEVEL
#define BODY "rmsnorm.c"
#include "each.h"
#else

static void AT(rmsnorm_row)(const float *x, const float *g, float eps, int64_t C, float *y)
{
    Vf sum = {0};
    int64_t i = 0;

    for (; i + LANES <= C; i += LANES)
        sum += vload(x + i) * vload(x + i);
    if (i < C)
        sum += vload_n(x + i, C - i) * vload_n(x + i, C - i);

    const float scale = 1.0f / __builtin_sqrtf(vsum(sum) / (float)C + eps);

    for (i = 0; i + LANES <= C; i += LANES)
        vstore(y + i, vload(g + i) * (vload(x + i) * scale));
    if (i < C)
        vstore_n(y + i, vload_n(g + i, C - i) * (vload_n(x + i, C - i) * scale), C - i);
}

void AT(rmsnorm)(const CpuCall *c)
{
    const float *x = c->arg[0], *g = c->arg[1];
    float *y = c->arg[2];
    const int64_t C = c->k[RMSNORM_C];
    const float eps = (float)cpu_number(c, RMSNORM_EPS);
    int64_t first, last;

    cpu_share(c, c->k[RMSNORM_ROWS_S] ? c->S : c->T, &first, &last);
    for (int64_t m = first; m < last; m++)
        AT(rmsnorm_row)(x + m * C, g, eps, C, y + m * C);
}
#endif
