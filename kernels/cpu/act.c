/* act.c - activations, and gates: y = kind(x) and y[m,i] = kind(x[m,2i]) * x[m,2i+1].
 *
 *   act   x, y [M,C] fp32; y may alias x
 *   glu   x [M,2F] with gate and value in neighbouring columns, y [M,F] fp32 */
//@ kernel  act
//@ rank    10
//@ args    x[M,C] -> y
//@ match   y = act(x)
//@ consts  C: C  KIND: act.kind  ROWS_S: rows(x)
//@ moves   8 * T * C

//@ kernel  glu
//@ rank    100
//@ args    x[M,C] -> y[M,F]
//@ match   y = glu(x)
//@ consts  F: F  KIND: glu.kind  ROWS_S: rows(x)
//@ moves   12 * T * F
#ifndef LEVEL
#define BODY "act.c"
#include "each.h"
#else

void AT(act)(const CpuCall *c)
{
    const float *x = c->arg[0];
    float *y = c->arg[1];
    const int64_t C = c->k[ACT_C], kind = c->k[ACT_KIND];
    int64_t first, last;

    cpu_share(c, c->k[ACT_ROWS_S] ? c->S : c->T, &first, &last);
    for (int64_t m = first; m < last; m++)
        for (int64_t i = 0; i < C; i += LANES) {
            const float *from = x + m * C + i;

            if (i + LANES <= C)
                vstore(y + m * C + i, vact(vload(from), kind));
            else
                vstore_n(y + m * C + i, vact(vload_n(from, C - i), kind), C - i);
        }
}

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
