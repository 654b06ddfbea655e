/* linear.c - the product of activations with a weight, summed in double; and elementwise sums. */
#include "ref.h"

void ref_linear(RefTensor x, RefTensor w, RefTensor b, int M, int N, int K, float *y)
{
    for (int64_t m = 0; m < M; m++)
        for (int64_t n = 0; n < N; n++) {
            double sum = 0.0;

            for (int64_t k = 0; k < K; k++)
                sum += ref_at(x, m * K + k) * ref_at(w, n * K + k);
            if (b.p)
                sum += ref_at(b, n);
            y[m * N + n] = (float)sum;
        }
}

void ref_add(RefTensor a, RefTensor b, int64_t n, float *y)
{
    for (int64_t i = 0; i < n; i++)
        y[i] = (float)(ref_at(a, i) + ref_at(b, i));
}

void ref_mul(RefTensor a, RefTensor b, int64_t n, float *y)
{
    for (int64_t i = 0; i < n; i++)
        y[i] = (float)(ref_at(a, i) * ref_at(b, i));
}

void ref_mul_by(RefTensor a, RefTensor b, bool of_row, int M, int C, float *y)
{
    for (int64_t i = 0; i < (int64_t)M * C; i++)
        y[i] = (float)(ref_at(a, i) * ref_at(b, of_row ? i / C : i % C));
}

void ref_columns(RefTensor a, int A, int from, RefTensor b, int M, int C, float *y)
{
    for (int64_t m = 0; m < M; m++)
        for (int64_t i = 0; i < C; i++)
            y[m * C + i] = (float)(from + i < A ? ref_at(a, m * A + from + i) : ref_at(b, m * (C - A) + i - A));
}

void ref_scale(RefTensor x, double by, int64_t n, float *y)
{
    for (int64_t i = 0; i < n; i++)
        y[i] = (float)(ref_at(x, i) * by);
}
