/* normalize.c - each row at length 1, and the size of each row, in fp32.
 *
 *   normalize  y[m,:] = x[m,:] / max(|x[m,:]|, eps), x and y [M,C]
 *   row_rms    y[m] = sqrt(max(mean(x[m,:]^2), FLOOR)), with CENTRED of x less its mean; with INVERSE 1 / that */
//@ kernel  normalize
//@ rank    140
//@ args    x[M,C] -> y
//@ match   y = normalize(x)
//@ consts  C: C  EPS: normalize.eps  ROWS_S: rows(x)
//@ moves   8 * M_MAX * C

//@ kernel  row_rms
//@ rank    145
//@ args    x[M,C] -> y[M,1]
//@ match   y = row_rms(x)
//@ consts  C: C  CENTRED: row_rms.centred  INVERSE: row_rms.inverse  FLOOR: row_rms.floor  ROWS_S: rows(x)
//@ moves   4 * M_MAX * C
#ifndef LEVEL
#define BODY "normalize.c"
#include "each.h"
#else

void AT(normalize)(const CpuCall *c)
{
    const float *x = c->arg[0];
    float *y = c->arg[1];
    const int64_t C = c->k[NORMALIZE_C];
    const float eps = (float)cpu_number(c, NORMALIZE_EPS);
    int64_t first, last;

    cpu_share(c, c->k[NORMALIZE_ROWS_S] ? c->S : c->T, &first, &last);
    for (int64_t m = first; m < last; m++) {
        Vf sum = {0};
        float length;

        for (int64_t i = 0; i < C; i += LANES) {
            const Vf v = i + LANES <= C ? vload(x + m * C + i) : vload_n(x + m * C + i, C - i);

            sum += v * v;
        }
        length = __builtin_sqrtf(vsum(sum));
        length = length > eps ? length : eps;
        for (int64_t i = 0; i < C; i++)
            y[m * C + i] = x[m * C + i] / length;
    }
}

void AT(row_rms)(const CpuCall *c)
{
    const float *x = c->arg[0];
    float *y = c->arg[1];
    const int64_t C = c->k[ROW_RMS_C];
    const float floor = (float)cpu_number(c, ROW_RMS_FLOOR);
    int64_t first, last;

    cpu_share(c, c->k[ROW_RMS_ROWS_S] ? c->S : c->T, &first, &last);
    for (int64_t m = first; m < last; m++) {
        const float *row = x + m * C;
        float mean = 0.0f, square;
        Vf sum = {0};

        for (int64_t i = 0; c->k[ROW_RMS_CENTRED] && i < C; i += LANES)
            sum += i + LANES <= C ? vload(row + i) : vload_n(row + i, C - i);
        mean = vsum(sum) / (float)C;
        sum = (Vf){0};
        for (int64_t i = 0; i + LANES <= C; i += LANES) {
            const Vf v = vload(row + i) - mean;

            sum += v * v;
        }
        square = vsum(sum);
        for (int64_t i = C / LANES * LANES; i < C; i++)
            square += (row[i] - mean) * (row[i] - mean);
        square /= (float)C;
        square = __builtin_sqrtf(square > floor ? square : floor);
        y[m] = c->k[ROW_RMS_INVERSE] ? 1.0f / square : square;
    }
}
#endif
