/* recur.c - linear recurrences with a decay: the gated delta rule (Yang et al. 2024, arXiv 2412.06464) and the
 * state spaces of Mamba (Gu & Dao 2023, arXiv 2312.00752) and Mamba-2 (Dao & Gu 2024, arXiv 2405.21060). In double. */
#include "ref.h"

#include <math.h>

/* 1 / the length of x[at .. at + n), or 1. */
static double by_length(RefTensor x, int64_t at, int n, double eps)
{
    double sum = eps;

    for (int i = 0; i < n && eps > 0; i++)
        sum += ref_at(x, at + i) * ref_at(x, at + i);
    return eps > 0 ? 1 / sqrt(sum) : 1.0;
}

static double step_of(const RefRecur *r, double x)
{
    double dt = x > 20 ? x : log1p(exp(x));

    dt = fmax(dt, r->low);
    return r->high > 0 ? fmin(dt, r->high) : dt;
}

/* One token of head h and column c: s [K] before and after; returns y. */
static double step(const RefRecur *r, int64_t t, int h, int c, double *s)
{
    const int64_t key = (t * r->G + h / (r->H / r->G)) * r->K, value = (t * r->H + h) * r->V + c;
    const double by_k = by_length(r->k, key, r->K, r->unit), by_q = by_length(r->q, key, r->K, r->unit) * r->scale;
    const double dt = step_of(r, ref_at(r->a, t * r->H + h) + ref_at(r->shift, h));
    double found = 0.0, u, y = 0.0;

    for (int i = 0; i < r->K; i++) {
        s[i] *= exp(-exp(ref_at(r->rate, r->rates ? (int64_t)h * r->K + i : h)) * dt);
        found += s[i] * by_k * ref_at(r->k, key + i);
    }
    if (r->beta.p)
        u = (ref_at(r->v, value) - found) / (1 + exp(-ref_at(r->beta, t * r->H + h)));
    else
        u = dt * ref_at(r->v, value);
    for (int i = 0; i < r->K; i++) {
        s[i] += by_k * ref_at(r->k, key + i) * u;
        y += s[i] * by_q * ref_at(r->q, key + i);
    }
    return y;
}

void ref_recur(const RefRecur *r, const FtxRow *rows, int S, float *state, float *y)
{
    for (int64_t i = 0; i < (int64_t)S * r->H * r->V; i++) {
        const FtxRow *row = &rows[i / r->V / r->H];
        const int h = (int)(i / r->V % r->H), c = (int)(i % r->V);
        float *kept = state + ((int64_t)row->slot * r->H + h) * r->K * r->V + c;
        double s[256] = {0};

        for (int k = 0; k < r->K && row->kv_len > row->q_len; k++)
            s[k] = kept[(int64_t)k * r->V];
        for (int64_t t = row->q_start; t < row->q_start + row->q_len; t++)
            y[(t * r->H + h) * r->V + c] = (float)step(r, t, h, c, s);
        for (int k = 0; k < r->K; k++)
            kept[(int64_t)k * r->V] = (float)s[k];
    }
}
