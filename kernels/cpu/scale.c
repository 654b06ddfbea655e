/* scale.c - y = x * by, x and y [M,C] fp32; y may alias x. */
//@ kernel  scale
//@ rank    180
//@ args    x[M,C] -> y
//@ match   y = scale(x)
//@ consts  C: C  BY: scale.by  ROWS_S: rows(x)
//@ moves   8 * T * C
#ifndef LEVEL
#define BODY "scale.c"
#include "each.h"
#else

void AT(scale)(const CpuCall *c)
{
    const float *x = c->arg[0], by = (float)cpu_number(c, SCALE_BY);
    float *y = c->arg[1];
    int64_t first, last;

    cpu_share(c, (c->k[SCALE_ROWS_S] ? c->S : c->T) * c->k[SCALE_C], &first, &last);
    for (int64_t i = first; i < last; i++)
        y[i] = x[i] * by;
}
#endif
