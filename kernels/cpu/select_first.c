/* select_first.c - the first token of each row:  y[s,:] = x[rows[s].q_start, :] */
//@ kernel  select_first
//@ rank    190
//@ args    x[T,C] $rows -> y[S,C]
//@ match   y = select_first(x)
//@ consts  C: C
//@ moves   8 * S * C
#ifndef LEVEL
#define BODY "select_first.c"
#include "each.h"
#else

void AT(select_first)(const CpuCall *c)
{
    const float *x = c->arg[0];
    const FtxRow *rows = c->arg[1];
    float *y = c->arg[2];
    const int64_t C = c->k[SELECT_FIRST_C];
    int64_t first, last;

    cpu_share(c, c->S, &first, &last);
    for (int64_t s = first; s < last; s++)
        memcpy(y + s * C, x + rows[s].q_start * C, (size_t)C * sizeof *y);
}
#endif
