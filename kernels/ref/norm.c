/* norm.c - RMSNorm (Zhang & Sennrich 2019) and LayerNorm (Ba et al. 2016) of each row, in double. */
#include "ref.h"

#include <math.h>

void ref_rmsnorm(RefTensor x, RefTensor g, double eps, int M, int C, float *y)
{
    for (int64_t m = 0; m < M; m++) {
        double sum = 0.0;

        for (int64_t i = 0; i < C; i++)
            sum += ref_at(x, m * C + i) * ref_at(x, m * C + i);
        for (int64_t i = 0; i < C; i++)
            y[m * C + i] = (float)(ref_at(g, i) * ref_at(x, m * C + i) / sqrt(sum / C + eps));
    }
}

void ref_layernorm(RefTensor x, RefTensor g, RefTensor b, double eps, int M, int C, float *y)
{
    for (int64_t m = 0; m < M; m++) {
        double sum = 0.0, square = 0.0;

        for (int64_t i = 0; i < C; i++)
            sum += ref_at(x, m * C + i);

        const double mean = sum / C;

        for (int64_t i = 0; i < C; i++)
            square += (ref_at(x, m * C + i) - mean) * (ref_at(x, m * C + i) - mean);
        for (int64_t i = 0; i < C; i++)
            y[m * C + i] =
                (float)(ref_at(g, i) * (ref_at(x, m * C + i) - mean) / sqrt(square / C + eps) + ref_at(b, i));
    }
}
