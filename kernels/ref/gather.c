/* gather.c - which logits of a rank can decide a row's token, by the rule of kernels/device/gather.h. */
#include "ref.h"

#include <math.h>

#include "../device/gather.h"

static bool may_change(const RefRow *r, int id)
{
    const FtxParams *p = r->params;
    bool changes = false;

    for (int i = 0; i < p->n_bias; i++)
        changes |= r->bias[i].id == id;
    for (int i = 0; i < p->n_words; i++)
        changes |= r->words[i] == ~id;
    for (int i = 0; i < p->n_ends && r->row->kv_len < p->min_length; i++)
        changes |= r->ends[i] == id;
    if (p->repetition != 1.0f || p->presence != 0.0f || p->frequency != 0.0f || p->ngram > 0)
        for (int i = 0; i < r->row->kv_len; i++)
            changes |= r->history[i] == id;
    return changes;
}

int ref_gather(const RefRow *r, const float *x, int first, int C, bool *sent, double *rest)
{
    const FtxParams *p = r->params;
    const bool by_min_p = p->min_p > 0.0f && p->top_p >= 1.0f;
    const int best = p->temperature == 0.0f || by_min_p ? 1 : p->top_k <= FTX_GATHER_MOST ? p->top_k : 0;
    double bound = -INFINITY, sum = 0.0;
    int n = 0;

    if (p->logits || best == 0)
        return -1;
    for (int i = 0; i < C; i++)
        sent[i] = may_change(r, first + i);
    for (int i = 0; i < C; i++) { /* the bound is a value with fewer than `best` above it, and as many with its ties */
        int above = 0, same = 0;

        for (int k = 0; k < C && !sent[i]; k++) {
            above += !sent[k] && x[k] > x[i];
            same += !sent[k] && x[k] == x[i];
        }
        if (!sent[i] && above < best && above + same >= best)
            bound = x[i];
    }
    if (by_min_p && p->temperature > 0.0f)
        bound += log((double)(0.999f * p->min_p)) * (double)p->temperature;
    for (int i = 0; i < C; i++) {
        sent[i] = sent[i] || x[i] >= bound;
        n += sent[i];
        sum += sent[i] ? 0.0 : exp((double)x[i]);
    }
    *rest = log(sum / (C - n));
    return n;
}
