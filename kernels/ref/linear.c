/* linear.c - the product of activations with a weight, summed in double or in a stated order; and elementwise sums. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

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

void ref_head_linear(RefTensor x, RefTensor w, int T, int H, int N, int K, float *y)
{
    for (int64_t at = 0; at < (int64_t)T * H; at++)
        for (int64_t n = 0; n < N; n++) {
            double sum = 0.0;

            for (int64_t k = 0; k < K; k++)
                sum += ref_at(x, at * K + k) * ref_at(w, (at % H * N + n) * K + k);
            y[at * N + n] = (float)sum;
        }
}

/* A row of x and one of w. */
typedef struct Rows {
    RefTensor x, w;
    int64_t x_at, w_at;
    int K;
} Rows;

/* One matrix instruction: the products of 16 k, each from k_of(k0, i) for i = 0..15; 0 beyond K. */
static float product16(const Rows *r, int k0, int (*k_of)(int k0, int i))
{
    float sum = 0;

    for (int i = 0; i < 16; i++) {
        const int k = k_of(k0, i);

        if (k < r->K)
            sum += (float)ref_at(r->x, r->x_at + k) * (float)ref_at(r->w, r->w_at + k);
    }
    return sum;
}

static int one_after_another(int k0, int i)
{
    return k0 + i;
}

/* linear.cuh: a lane reads 8 neighbouring k, of which the first four make one instruction and the last four the other. */
static int fours(int k0, int i)
{
    return k0 + i % 8 / 2 * 8 + i / 8 * 2 + i % 2;
}

/* K in slices at multiples of 64: each is added from 0 in steps of 16 k, then the slices in their order. */
static float sum_slices(const Rows *r, int slices)
{
    const int steps = (r->K + 63) / 64;
    float all = 0;

    for (int s = 0; s < slices; s++) {
        float one = 0;

        for (int k = s * steps / slices * 64; k < (s + 1) * steps / slices * 64; k += 16)
            one += product16(r, k, one_after_another);
        all = s ? all + one : one;
    }
    return all;
}

/* Block i of 32 k belongs to chain i mod n; half of the chains are added in their order, the others too, last the halves. */
static float sum_chains(const Rows *r, int n)
{
    float half[2] = {0, 0};

    for (int c = 0; c < n; c++) {
        float one = 0;

        for (int k = c * 32; k < r->K; k += n * 32)
            for (int h = 0; h < 2; h++)
                one += product16(r, k + 4 * h, fours);
        half[c / (n / 2)] = c % (n / 2) ? half[c / (n / 2)] + one : one;
    }
    return half[0] + half[1];
}

/* Lane i adds vectors i, i + n, ... of K by multiply-adds; then lanes 1 apart are added last, those n / 2 apart first. */
static float sum_lanes(const Rows *r, int n)
{
    const int vec = r->K % 4 == 0 ? 4 : r->K % 2 == 0 ? 2 : 1;
    float lane[64] = {0};

    for (int k = 0; k < r->K; k++)
        lane[k / vec % n] = fmaf((float)ref_at(r->w, r->w_at + k), (float)ref_at(r->x, r->x_at + k), lane[k / vec % n]);
    for (int apart = n / 2; apart; apart /= 2)
        for (int i = 0; i < apart; i++)
            lane[i] += lane[i + apart];
    return lane[0];
}

bool ref_linear_in_order(const char *order, RefTensor x, RefTensor w, RefTensor b, int M, int N, int K, float *y)
{
    static const struct {
        const char *word;
        int most;
        float (*sum)(const Rows *r, int n);
    } orders[] = {{"slices ", 64, sum_slices}, {"chains ", 64, sum_chains}, {"lanes ", 64, sum_lanes}};
    size_t o = 0;

    while (o < sizeof orders / sizeof *orders && strncmp(order, orders[o].word, strlen(orders[o].word)) != 0)
        o++;
    if (o == sizeof orders / sizeof *orders)
        return false;

    const int n = atoi(order + strlen(orders[o].word));

    for (int64_t m = 0; m < M && n > 0 && n <= orders[o].most; m++)
        for (int64_t i = 0; i < N; i++) {
            const Rows r = {x, w, m * K, i * K, K};

            y[m * N + i] = orders[o].sum(&r, n);
            if (b.p)
                y[m * N + i] += (float)ref_at(b, i);
        }
    return n > 0 && n <= orders[o].most;
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
