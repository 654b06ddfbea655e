/* normalize.c - each row at length 1:  y[m,:] = x[m,:] / max(|x[m,:]|, eps), x and y [M,C] fp32. */
//@ kernel  normalize
//@ rank    140
//@ args    x[M,C] -> y
//@ match   y = normalize(x)
//@ consts  C: C  EPS: normalize.eps  ROWS_S: rows(x)
//@ moves   8 * M_MAX * C
#ifndef LEVEL
#define BODY "normalize.c"
#include "each.h"
#else

void AT(normalize)(const CpuCall *c)
{
    const float *x = c->arg[0];
    float *y = c->arg[1];
    const int64_t C = c->k[NORMALIZE_C];
    const float eps = (float)cpu_number(c, NORMALIZE_EPS);
    int64_t first, last;

    cpu_share(c, c->k[NORMALIZE_ROWS_S] ? c->S : c->T, &first, &last);
    for (int64_t m = first; m < last; m++) {
        Vf sum = {0};
        float length;

        for (int64_t i = 0; i < C; i += LANES) {
            const Vf v = i + LANES <= C ? vload(x + m * C + i) : vload_n(x + m * C + i, C - i);

            sum += v * v;
        }
        length = __builtin_sqrtf(vsum(sum));
        length = length > eps ? length : eps;
        for (int64_t i = 0; i < C; i++)
            y[m * C + i] = x[m * C + i] / length;
    }
}
#endif
