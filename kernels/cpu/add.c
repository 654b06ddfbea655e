/* add.c - y = a + b, all [M,C] fp32; y may alias either. */
//@ kernel  add
//@ rank    20
//@ args    a[M,C] b[M,C] -> y
//@ match   y = add(a, b)
//@ consts  C: C  ROWS_S: rows(a)
//@ moves   12 * T * C
#ifndef LEVEL
#define BODY "add.c"
#include "each.h"
#else

void AT(add)(const CpuCall *c)
{
    const float *a = c->arg[0], *b = c->arg[1];
    float *y = c->arg[2];
    int64_t first, last;

    cpu_share(c, (c->k[ADD_ROWS_S] ? c->S : c->T) * c->k[ADD_C], &first, &last);
    for (int64_t i = first; i < last; i++)
        y[i] = a[i] + b[i];
}
#endif
