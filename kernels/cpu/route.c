/* route.c - the experts of each row and their weights, from a router's logits; and the rows of each expert.
 *
 *   x [M,N] fp32 logits; b [N] added to the scores for the choice only
 *   y [M,2K] i32: K experts, the best first, then the bits of their K weights in fp32
 *   starts [N+1], rows [M*K]: the form by_expert of y, where a later kernel reads it
 *
 * NEAR: with CHOSEN each weight is that of a softmax of its own, over the logits z, without those chosen before, that lie at
 * most NEAR * max(|z|, its own) below its own.
 *
 * Of equal scores the expert with the lower number is chosen, as torch.topk does on a CPU. A row is computed by one
 * thread, in an order that depends on nothing else. The last thread to finish sorts the pairs by expert, by counting. */
//@ kernel  route
//@ rank    300
//@ args    x[M,N] b[N]:fp32 -> y[M,R2] starts:by_expert.starts(y) rows:by_expert.rows(y)
//@ match   y = route(x, b?)
//@ gives   y as by_expert N
//@ consts  N: N  K: route.k  SIGMOID: route.sigmoid  CHOSEN: route.chosen  RENORM: route.renorm
//@ consts  GROUPS: route.groups  KEPT: route.groups_kept  BEST_TWO: route.best_two  SCALE: route.scale  ROWS_S: rows(x)  NEAR: route.near
//@ fits    N <= 1024
//@ zeroed  done 64
//@ moves   4 * M * N
#ifndef LEVEL
#include <math.h>
#define BODY "route.c"
#include "each.h"
#else

#ifndef ROUTE_ONCE
#define ROUTE_ONCE
enum { ROUTE_MAX = 1024 };
#endif

/* p[0..n) becomes its softmax. */
static void AT(route_softmax)(float *p, int64_t n)
{
    float top = p[0], sum = 0.0f;

    for (int64_t i = 1; i < n; i++)
        top = p[i] > top ? p[i] : top;
    for (int64_t i = 0; i < n; i += LANES) {
        const int64_t count = n - i < LANES ? n - i : LANES;

        vstore_n(p + i, vexp(vload_n(p + i, count) - top), count);
    }
    for (int64_t i = 0; i < n; i++)
        sum += p[i];
    for (int64_t i = 0; i < n; i++)
        p[i] /= sum;
}

/* The place of the largest of p[0..n) that is not taken, the first of equal ones; it is taken then. NaN is least. */
static int64_t AT(route_best)(const float *p, int64_t n, bool *taken)
{
    int64_t best = -1;

    for (int64_t i = 0; i < n; i++)
        if (!taken[i] && (best < 0 || p[i] > p[best] || (p[best] != p[best] && p[i] == p[i])))
            best = i;
    taken[best] = true;
    return best;
}

/* Takes away the experts of the groups that do not count. */
static void AT(route_groups)(const float *choice, int64_t N, int64_t groups, int64_t kept, bool best_two, bool *taken)
{
    const int64_t size = N / groups;
    float value[ROUTE_MAX];
    bool keeps[ROUTE_MAX] = {false};

    for (int64_t g = 0; g < groups; g++) {
        const float *of = choice + g * size;
        bool seen[ROUTE_MAX] = {false};

        value[g] = of[AT(route_best)(of, size, seen)];
        if (best_two && size > 1)
            value[g] += of[AT(route_best)(of, size, seen)];
    }
    for (int64_t i = 0; i < kept; i++)
        AT(route_best)(value, groups, keeps);
    for (int64_t i = 0; i < N; i++)
        taken[i] = !keeps[i / size];
}

/* The part of the logit `own` of the softmax over itself and those that are not taken and near it. */
static float AT(route_near)(const float *x, int64_t n, const bool *taken, float own, float near)
{
    float sum = 1.0f;

    for (int64_t i = 0; i < n; i++)
        if (!taken[i] && own - x[i] <= near * fmaxf(fabsf(x[i]), own))
            sum += vexp(vset(x[i] - own))[0];
    return 1.0f / sum;
}

static void AT(route_row)(const CpuCall *c, const float *x, const float *b, int32_t *y)
{
    const int64_t N = c->k[ROUTE_N], K = c->k[ROUTE_K];
    const float scale = (float)cpu_number(c, ROUTE_SCALE), near = (float)cpu_number(c, ROUTE_NEAR);
    float score[ROUTE_MAX], choice[ROUTE_MAX], weight[ROUTE_MAX], sum = 0.0f;
    bool taken[ROUTE_MAX] = {false};

    memcpy(score, x, (size_t)N * sizeof *x);
    if (c->k[ROUTE_SIGMOID])
        for (int64_t i = 0; i < N; i += LANES) {
            const int64_t n = N - i < LANES ? N - i : LANES;

            vstore_n(score + i, 1.0f / (1.0f + vexp(-vload_n(score + i, n))), n);
        }
    else if (!c->k[ROUTE_CHOSEN])
        AT(route_softmax)(score, N);
    for (int64_t i = 0; i < N; i++)
        choice[i] = b ? score[i] + b[i] : score[i];
    if (c->k[ROUTE_KEPT] < c->k[ROUTE_GROUPS])
        AT(route_groups)(choice, N, c->k[ROUTE_GROUPS], c->k[ROUTE_KEPT], c->k[ROUTE_BEST_TWO] != 0, taken);
    for (int64_t i = 0; i < K; i++) {
        y[i] = (int32_t)AT(route_best)(choice, N, taken);
        weight[i] = near > 0.0f ? AT(route_near)(score, N, taken, score[y[i]], near) : score[y[i]];
    }
    if (c->k[ROUTE_CHOSEN] && near <= 0.0f)
        AT(route_softmax)(weight, K);
    for (int64_t i = 0; i < K; i++)
        sum += weight[i];
    for (int64_t i = 0; i < K; i++) {
        weight[i] = (c->k[ROUTE_RENORM] ? weight[i] / (sum + 1e-20f) : weight[i]) * scale;
        memcpy(&y[K + i], &weight[i], sizeof *y);
    }
}

/* Sorts the pairs row * K + i by expert. */
static void AT(route_sort)(const int32_t *y, int64_t M, int64_t N, int64_t K, int32_t *starts, int32_t *rows)
{
    memset(starts, 0, (size_t)(N + 1) * sizeof *starts);
    for (int64_t p = 0; p < M * K; p++)
        starts[y[p / K * 2 * K + p % K] + 1]++;
    for (int64_t e = 0; e < N; e++)
        starts[e + 1] += starts[e];
    for (int64_t p = 0; p < M * K; p++) /* starts[e] runs to the end of e, which is the start of e + 1 */
        rows[starts[y[p / K * 2 * K + p % K]]++] = (int32_t)p;
    memmove(starts + 1, starts, (size_t)N * sizeof *starts);
    starts[0] = 0;
}

void AT(route)(const CpuCall *c)
{
    const float *x = c->arg[0];
    int32_t *y = c->arg[2], *starts = c->arg[3], *rows = c->arg[4];
    int *done = c->arg[5];
    const int64_t M = c->k[ROUTE_ROWS_S] ? c->S : c->T, N = c->k[ROUTE_N], K = c->k[ROUTE_K];
    int64_t first, last;

    cpu_share(c, M, &first, &last);
    for (int64_t m = first; m < last; m++)
        AT(route_row)(c, x + m * N, c->arg[1], y + m * 2 * K);
    if (!starts || __atomic_add_fetch(done, 1, __ATOMIC_ACQ_REL) < c->threads)
        return;
    __atomic_store_n(done, 0, __ATOMIC_RELAXED);
    AT(route_sort)(y, M, N, K, starts, rows);
}
#endif
