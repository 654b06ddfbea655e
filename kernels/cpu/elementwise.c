/* elementwise.c - y = a + b, y = a * b, y = x * BY; all [M,C] fp32, y may alias an operand. mul_by: b [M], w [C].
 * slice: columns FROM .. FROM + C - 1 of x [M,N]; join: y [M,A+B] has the columns of a, then those of b. */
//@ kernel  add
//@ rank    20
//@ args    a[M,C] b[M,C] -> y
//@ match   y = add(a, b)
//@ consts  C: C  ROWS_S: rows(a)
//@ moves   12 * T * C

//@ kernel  mul
//@ rank    130
//@ args    a[M,C] b[M,C] -> y
//@ match   y = mul(a, b)
//@ consts  C: C  ROWS_S: rows(a)
//@ moves   12 * T * C

//@ kernel  mul_by
//@ rank    330
//@ args    a[M,C] b[M,1] w[C]:fp32 -> y[M,C]
//@ match   y = mul(a, b) | OF_ROW=1
//@ match   y = mul(a, w) | OF_ROW=0
//@ consts  C: C  ROWS_S: rows(a)  OF_ROW: OF_ROW
//@ moves   8 * T * C

//@ kernel  slice
//@ rank    340
//@ args    x[M,N] -> y[M,C]
//@ match   y = slice(x)
//@ consts  C: C  N: N  FROM: slice.from  ROWS_S: rows(x)
//@ moves   8 * T * C

//@ kernel  join
//@ rank    350
//@ args    a[M,A] b[M,B] -> y[M,C]
//@ match   y = join(a, b)
//@ consts  A: A  B: B  ROWS_S: rows(a)
//@ moves   8 * T * (A + B)

//@ kernel  scale
//@ rank    180
//@ args    x[M,C] -> y
//@ match   y = scale(x)
//@ consts  C: C  BY: scale.by  ROWS_S: rows(x)
//@ moves   8 * T * C
#ifndef LEVEL
#define BODY "elementwise.c"
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

void AT(mul)(const CpuCall *c)
{
    const float *a = c->arg[0], *b = c->arg[1];
    float *y = c->arg[2];
    int64_t first, last;

    cpu_share(c, (c->k[MUL_ROWS_S] ? c->S : c->T) * c->k[MUL_C], &first, &last);
    for (int64_t i = first; i < last; i++)
        y[i] = a[i] * b[i];
}

void AT(mul_by)(const CpuCall *c)
{
    const float *a = c->arg[0], *b = c->arg[1], *w = c->arg[2];
    const int64_t C = c->k[MUL_BY_C];
    float *y = c->arg[3];
    int64_t first, last;

    cpu_share(c, c->k[MUL_BY_ROWS_S] ? c->S : c->T, &first, &last);
    for (int64_t m = first; m < last; m++)
        for (int64_t i = 0; i < C; i++)
            y[m * C + i] = a[m * C + i] * (c->k[MUL_BY_OF_ROW] ? b[m] : w[i]);
}

void AT(slice)(const CpuCall *c)
{
    const float *x = c->arg[0];
    const int64_t C = c->k[SLICE_C];
    float *y = c->arg[1];
    int64_t first, last;

    cpu_share(c, c->k[SLICE_ROWS_S] ? c->S : c->T, &first, &last);
    for (int64_t m = first; m < last; m++)
        memcpy(y + m * C, x + m * c->k[SLICE_N] + c->k[SLICE_FROM], (size_t)C * sizeof *y);
}

void AT(join)(const CpuCall *c)
{
    const float *a = c->arg[0], *b = c->arg[1];
    const int64_t A = c->k[JOIN_A], B = c->k[JOIN_B];
    float *y = c->arg[2];
    int64_t first, last;

    cpu_share(c, c->k[JOIN_ROWS_S] ? c->S : c->T, &first, &last);
    for (int64_t m = first; m < last; m++) {
        memcpy(y + m * (A + B), a + m * A, (size_t)A * sizeof *y);
        memcpy(y + m * (A + B) + A, b + m * B, (size_t)B * sizeof *y);
    }
}

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
