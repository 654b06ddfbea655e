/* mul.c - y = a * b, all [M,C] fp32; y may alias either. */
//@ kernel  mul
//@ rank    130
//@ args    a[M,C] b[M,C] -> y
//@ match   y = mul(a, b)
//@ consts  C: C  ROWS_S: rows(a)
//@ moves   12 * T * C
#ifndef LEVEL
#define BODY "mul.c"
#include "each.h"
#else

void AT(mul)(const CpuCall *c)
{
    const float *a = c->arg[0], *b = c->arg[1];
    float *y = c->arg[2];
    int64_t first, last;

    cpu_share(c, (c->k[MUL_ROWS_S] ? c->S : c->T) * c->k[MUL_C], &first, &last);
    for (int64_t i = first; i < last; i++)
        y[i] = a[i] * b[i];
}
#endif
