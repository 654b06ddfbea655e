/* logprobs.c - log-softmax of a row of logits, and its largest values. */
#include "logprobs.h"

/* Keeps the n largest values, best first. `count` are there. */
static int keep_top(FtxTop *top, int count, int n, int32_t id, float value)
{
    int at = count < n ? count : n - 1;

    if (count == n && !(value > top[at].logprob))
        return count;
    for (; at && value > top[at - 1].logprob; at--)
        top[at] = top[at - 1];
    top[at] = (FtxTop){id, value};
    return count < n ? count + 1 : n;
}

float logprobs_at(const float *logits, uint32_t vocab, double log_sum, int32_t id, FtxTop *top, int n)
{
    int count = 0;

    for (uint32_t v = 0; v < vocab && n; v++)
        count = keep_top(top, count, n, (int32_t)v, logits[v]);
    for (int i = 0; i < count; i++)
        top[i].logprob = (float)((double)top[i].logprob - log_sum);
    return (float)((double)logits[id] - log_sum);
}
