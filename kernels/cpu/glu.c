/* glu.c - a gate by itself:  y[m,i] = kind(x[m,2i]) * x[m,2i+1], x [M,2F], y [M,F] fp32. */
//@ kernel  glu
//@ rank    100
//@ args    x[M,C] -> y[M,F]
//@ match   y = glu(x)
//@ consts  F: F  KIND: glu.kind  ROWS_S: rows(x)
//@ moves   12 * T * F
#ifndef LEVEL
#define BODY "glu.c"
#include "each.h"
#else

void AT(glu)(const CpuCall *c)
{
    const float *x = c->arg[0];
    float *y = c->arg[1];
    const int64_t F = c->k[GLU_F], kind = c->k[GLU_KIND];
    int64_t first, last;

    cpu_share(c, c->k[GLU_ROWS_S] ? c->S : c->T, &first, &last);
    for (int64_t m = first; m < last; m++)
        for (int64_t i = 0; i < F; i += LANES) {
            const int64_t n = F - i < LANES ? F - i : LANES;
            const float *pair = x + (m * F + i) * 2;
            Vf gate = {0}, value = {0};

            for (int64_t j = 0; j < n; j++) {
                gate[j] = pair[2 * j];
                value[j] = pair[2 * j + 1];
            }
            value *= vact(gate, kind);
            if (n == LANES)
                vstore(y + m * F + i, value);
            else
                vstore_n(y + m * F + i, value, n);
        }
}
#endif
