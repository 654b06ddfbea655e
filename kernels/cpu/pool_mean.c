/* pool_mean.c - the mean of each row's tokens:  y[s,:] = sum of x[q_start ..+ q_len, :] / q_len */
//@ kernel  pool_mean
//@ rank    150
//@ args    x[T,C] $rows -> y[S,C]
//@ match   y = pool_mean(x)
//@ consts  C: C
//@ moves   4 * T * C + 4 * S * C
#ifndef LEVEL
#define BODY "pool_mean.c"
#include "each.h"
#else

void AT(pool_mean)(const CpuCall *c)
{
    const float *x = c->arg[0];
    const FtxRow *rows = c->arg[1];
    float *y = c->arg[2];
    const int64_t C = c->k[POOL_MEAN_C];
    int64_t first, last;

    cpu_share(c, c->S, &first, &last);
    for (int64_t s = first; s < last; s++)
        for (int64_t i = 0; i < C; i += LANES) {
            const float *from = x + rows[s].q_start * C + i;
            Vf sum = {0};

            for (int t = 0; t < rows[s].q_len; t++)
                sum += i + LANES <= C ? vload(from + t * C) : vload_n(from + t * C, C - i);
            sum = sum / (float)rows[s].q_len;
            if (i + LANES <= C)
                vstore(y + s * C + i, sum);
            else
                vstore_n(y + s * C + i, sum, C - i);
        }
}
#endif
