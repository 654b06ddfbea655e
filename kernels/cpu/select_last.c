/* select_last.c - the last token of each row:  y[s,:] = x[rows[s].q_start + rows[s].q_len - 1, :] */
//@ kernel  select_last
//@ rank    200
//@ args    x[T,C] $rows -> y[S,C]
//@ match   y = select_last(x)
//@ consts  C: C
//@ moves   8 * S * C
#ifndef LEVEL
#define BODY "select_last.c"
#include "each.h"
#else

void AT(select_last)(const CpuCall *c)
{
    const float *x = c->arg[0];
    const FtxRow *rows = c->arg[1];
    float *y = c->arg[2];
    const int64_t C = c->k[SELECT_LAST_C];
    int64_t first, last;

    cpu_share(c, c->S, &first, &last);
    for (int64_t s = first; s < last; s++)
        memcpy(y + s * C, x + (int64_t)(rows[s].q_start + rows[s].q_len - 1) * C, (size_t)C * sizeof *y);
}
#endif
