/* act.c - an activation by itself:  y = kind(x), x and y [M,C] fp32, y may alias x. */
//@ kernel  act
//@ rank    10
//@ args    x[M,C] -> y
//@ match   y = act(x)
//@ consts  C: C  KIND: act.kind  ROWS_S: rows(x)
//@ moves   8 * T * C
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
#endif
