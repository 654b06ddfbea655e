/* experts.c - the choice of experts for each row, and linear layers of experts. */
#include "ref.h"

#include <assert.h>
#include <math.h>
#include <string.h>

enum { REF_EXPERTS = 1024 };

/* The place of the largest of p[0..n) that is not taken, the first of equal ones; it is taken then. */
static int ref_best(const double *p, int n, bool *taken)
{
    int best = -1;

    for (int i = 0; i < n; i++)
        if (!taken[i] && (best < 0 || p[i] > p[best]))
            best = i;
    assert(best >= 0);
    taken[best] = true;
    return best;
}

static void ref_softmax_of(double *p, int n)
{
    double top = p[0], sum = 0.0;

    for (int i = 1; i < n; i++)
        top = fmax(top, p[i]);
    for (int i = 0; i < n; i++)
        sum += p[i] = exp(p[i] - top);
    for (int i = 0; i < n; i++)
        p[i] /= sum;
}

static void ref_route_row(RefTensor logits, int64_t at, RefTensor bias, const RefRoute *r, int32_t *y)
{
    const int n = r->experts, size = n / r->groups;
    double score[REF_EXPERTS] = {0}, choice[REF_EXPERTS] = {0}, group[REF_EXPERTS] = {0}, weight[REF_EXPERTS] = {0};
    double sum = 0.0;
    bool taken[REF_EXPERTS] = {false}, kept[REF_EXPERTS] = {false};

    assert(size > 0 && n <= REF_EXPERTS);
    for (int i = 0; i < n; i++)
        score[i] = ref_at(logits, at + i);
    for (int i = 0; i < n && r->sigmoid; i++)
        score[i] = 1.0 / (1.0 + exp(-score[i]));
    if (!r->sigmoid && !r->chosen)
        ref_softmax_of(score, n);
    for (int i = 0; i < n; i++)
        choice[i] = score[i] + (bias.p ? ref_at(bias, i) : 0.0);
    for (int g = 0; g < r->groups; g++) {
        bool seen[REF_EXPERTS] = {false};

        group[g] = choice[g * size + ref_best(choice + g * size, size, seen)];
        if (r->best_two && size > 1)
            group[g] += choice[g * size + ref_best(choice + g * size, size, seen)];
    }
    for (int i = 0; i < r->groups_kept; i++)
        ref_best(group, r->groups, kept);
    for (int i = 0; i < n; i++)
        taken[i] = !kept[i / size];
    for (int i = 0; i < r->k; i++) {
        double all = 0.0;
        bool before[REF_EXPERTS];

        memcpy(before, taken, sizeof before);
        y[i] = ref_best(choice, n, taken);
        weight[i] = score[y[i]];
        for (int e = 0; r->near > 0.0 && e < n; e++)
            if (!before[e] && score[y[i]] - score[e] <= r->near * fmax(fabs(score[e]), score[y[i]]))
                all += exp(score[e] - score[y[i]]);
        if (r->near > 0.0)
            weight[i] = 1.0 / all;
    }
    if (r->chosen && r->near <= 0.0)
        ref_softmax_of(weight, r->k);
    for (int i = 0; i < r->k; i++)
        sum += weight[i];
    for (int i = 0; i < r->k; i++) {
        const float w = (float)(weight[i] / (r->renorm ? sum : 1.0) * r->scale);

        memcpy(&y[r->k + i], &w, sizeof w);
    }
}

void ref_route(RefTensor logits, RefTensor bias, const RefRoute *r, int M, int32_t *y)
{
    for (int64_t m = 0; m < M; m++)
        ref_route_row(logits, m * r->experts, bias, r, y + m * 2 * r->k);
}

static double ref_expert(RefTensor x, int64_t at, RefTensor w, RefTensor b, int64_t row, int K)
{
    double sum = b.p ? ref_at(b, row) : 0.0;

    for (int64_t k = 0; k < K; k++)
        sum += ref_at(x, at + k) * ref_at(w, row * K + k);
    return sum;
}

void ref_expert_linear(RefTensor x, const int32_t *routes, RefTensor w, RefTensor b, int M, int R, int N, int K,
                       float *y)
{
    for (int64_t m = 0; m < M; m++)
        for (int64_t i = 0; i < R; i++)
            for (int64_t n = 0; n < N; n++)
                y[(m * R + i) * N + n] = (float)ref_expert(x, m * K, w, b, routes[m * 2 * R + i] * (int64_t)N + n, K);
}

void ref_expert_sum(RefTensor x, const int32_t *routes, RefTensor w, RefTensor b, int M, int R, int N, int K, float *y)
{
    for (int64_t m = 0; m < M; m++)
        for (int64_t n = 0; n < N; n++) {
            double sum = 0.0;

            for (int64_t i = 0; i < R; i++) {
                float weight;

                memcpy(&weight, &routes[m * 2 * R + R + i], sizeof weight);
                sum += (double)weight * ref_expert(x, (m * R + i) * K, w, b, routes[m * 2 * R + i] * (int64_t)N + n, K);
            }
            y[m * N + n] = (float)sum;
        }
}
