/* attend.c - softmax attention over paged keys and values, two passes over the keys, in double. */
#include "ref.h"

#include <math.h>

/* Key or value `pos` of head g. */
static void cached(const RefCache *c, const void *base, int slot, int g, int pos, double *x)
{
    ref_cached(c, base, c->pages[(int64_t)slot * c->pages_of + pos / c->block], (int64_t)g * c->block + pos % c->block,
               x);
}

static double score(RefTensor q, int64_t at, const RefCache *c, int slot, int g, int pos, double scale, double softcap)
{
    double sum = 0.0, k[256];

    cached(c, c->k, slot, g, pos, k);
    for (int e = 0; e < c->E; e++)
        sum += ref_at(q, at + e) * k[e];
    sum *= scale;
    return softcap > 0.0 ? softcap * tanh(sum / softcap) : sum;
}

void ref_attend(RefTensor q, const FtxRow *rows, int S, int H, double scale, int window, double softcap,
                const RefCache *cache, float *y)
{
    const int E = cache->E;

    for (int s = 0; s < S; s++)
        for (int i = 0; i < rows[s].q_len; i++)
            for (int h = 0; h < H; h++) {
                const int64_t at = ((int64_t)(rows[s].q_start + i) * H + h) * E;
                const int g = h / (H / cache->G), slot = rows[s].slot;
                const int pos = rows[s].kv_len - rows[s].q_len + i;
                const int first = window > 0 && pos - window + 1 > 0 ? pos - window + 1 : 0;
                double max = -INFINITY, total = 0.0, sum[256] = {0};

                for (int j = first; j <= pos; j++)
                    max = fmax(max, score(q, at, cache, slot, g, j, scale, softcap));
                for (int j = first; j <= pos; j++) {
                    const double p = exp(score(q, at, cache, slot, g, j, scale, softcap) - max);
                    double v[256];

                    cached(cache, cache->v, slot, g, j, v);
                    total += p;
                    for (int e = 0; e < E; e++)
                        sum[e] += p * v[e];
                }
                for (int e = 0; e < E; e++)
                    y[at + e] = (float)(sum[e] / total);
            }
}

static double ref_bf16(double x)
{
    return bf16_to_float(bf16_from_float((float)x));
}

void ref_attend_keys(RefTensor q, int64_t at, RefTensor k, RefTensor v, const int64_t *place, int n, int E, int h,
                     const RefScores *s, float *y)
{
    const int V = s->v_dim ? s->v_dim : E;
    double total = 0.0, top = s->sinks.p ? ref_at(s->sinks, h) : -INFINITY;
    double sum[576] = {0};

    for (int pass = 0; pass < 2; pass++) {
        if (pass == 1 && s->sinks.p)
            total = exp(ref_at(s->sinks, h) - top);
        for (int j = 0; j < n; j++) {
            const int half = s->span / 2, away = j - s->i;
            double score = 0.0;

            if (place[j] < 0)
                continue;
            for (int e = 0; e < E; e++)
                score += ref_at(q, at + e) * ref_at(k, place[j] + e);
            score *= s->scale;
            if (s->softcap > 0.0)
                score = s->softcap * tanh(score / s->softcap);
            if (s->bias.p)
                score += ref_at(s->bias, (int64_t)h * s->span + half +
                                             (away < -half  ? -half
                                              : away > half ? half
                                                            : away));
            if (s->by_query.p) {
                const int64_t d = s->reach / 2 + (away < -(s->reach / 2) ? -(s->reach / 2)
                                                  : away > s->reach / 2  ? s->reach / 2
                                                                         : away);

                score += s->scale *
                         (ref_at(s->by_query, at / E * s->reach + d) + ref_at(s->by_key, place[j] / E * s->reach + d));
            }
            if (s->slopes.p && s->rounded)
                score += s->scale * ref_bf16(ref_bf16(ref_at(s->slopes, h)) * ref_bf16(j));
            else if (s->slopes.p)
                score += ref_at(s->slopes, h) * away;
            if (pass == 0)
                top = fmax(top, score);
            if (pass == 0)
                continue;
            total += exp(score - top);
            for (int e = 0; e < V; e++)
                sum[e] += exp(score - top) * ref_at(v, place[j] + e);
        }
    }
    for (int e = 0; e < V; e++)
        y[e] = (float)(sum[e] / total);
}
