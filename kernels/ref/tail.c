/* tail.c - from logits to a token: processors in the order of Hugging Face's generate, the kept set by a full sort, the
 * draw by Philox. The definition of the `sample` kernels of all devices. */
#include "ref.h"

#include <math.h>
#include <stdlib.h>

void ref_mask(const uint32_t *bits, int V, float *logits)
{
    for (int id = 0; id < V; id++)
        if (!(bits[id / 32] >> id % 32 & 1))
            logits[id] = -INFINITY;
}

void ref_philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4])
{
    uint32_t c[4] = {counter[0], counter[1], counter[2], counter[3]}, k[2] = {key[0], key[1]};

    for (int round = 0; round < 10; round++) {
        const uint64_t a = (uint64_t)0xD2511F53u * c[0], b = (uint64_t)0xCD9E8D57u * c[2];
        const uint32_t next[4] = {(uint32_t)(b >> 32) ^ c[1] ^ k[0], (uint32_t)b, (uint32_t)(a >> 32) ^ c[3] ^ k[1],
                                  (uint32_t)a};

        for (int i = 0; i < 4; i++)
            c[i] = next[i];
        k[0] += 0x9E3779B9u;
        k[1] += 0xBB67AE85u;
    }
    for (int i = 0; i < 4; i++)
        out[i] = c[i];
}

double ref_uniform(const RefRow *r)
{
    const uint32_t counter[4] = {(uint32_t)r->row->kv_len, (uint32_t)r->params->sample, 0, 0};
    const uint32_t key[2] = {r->params->seed_low, r->params->seed_high};
    uint32_t out[4];

    ref_philox(counter, key, out);
    return (out[0] >> 8) * 0x1p-24;
}

static int count(const int32_t *ids, int from, int to, int id)
{
    int n = 0;

    for (int i = from; i < to; i++)
        n += ids[i] == id;
    return n;
}

/* Whether `id` after the history would repeat one of its n-grams. */
static int repeats(const RefRow *r, int id)
{
    const int n = r->params->ngram, length = r->row->kv_len;

    for (int i = 0; i + n <= length; i++) {
        int same = r->history[i + n - 1] == id;

        for (int j = 0; same && j < n - 1; j++)
            same = r->history[i + j] == r->history[length - n + 1 + j];
        if (same)
            return 1;
    }
    return 0;
}

/* Whether `id` after the history would complete a bad word, as in transformers' NoBadWordsLogitsProcessor. */
static int completes(const RefRow *r, int id)
{
    const int length = r->row->kv_len;

    for (int first = 0, n; first < r->params->n_words; first += n) {
        const int32_t *word = r->words + first;
        int same;

        for (n = 1; word[n - 1] >= 0;)
            n++;
        same = n - 1 <= length && ~word[n - 1] == id;
        for (int i = 0; same && i < n - 1; i++)
            same = r->history[length - (n - 1) + i] == word[i];
        if (same)
            return 1;
    }
    return 0;
}

void ref_penalties(const RefRow *r, const float *logits, int V, double *z)
{
    const FtxParams *p = r->params;
    const int length = r->row->kv_len;
    const int from = p->window > 0 && p->window < length ? length - p->window : 0;

    for (int id = 0; id < V; id++) {
        z[id] = logits[id];
        for (int i = 0; i < p->n_bias; i++)
            if (r->bias[i].id == id)
                z[id] += r->bias[i].value;
        if (p->repetition != 1.0f && count(r->history, from, length, id))
            z[id] = z[id] < 0.0 ? z[id] * p->repetition : z[id] / p->repetition;

        const int seen = count(r->history, r->row->prompt, length, id);

        if (seen)
            z[id] -= p->presence + (double)p->frequency * seen;
        if ((p->ngram > 0 && repeats(r, id)) || completes(r, id))
            z[id] = -INFINITY;
        for (int i = 0; length < p->min_length && i < p->n_ends; i++)
            if (r->ends[i] == id)
                z[id] = -INFINITY;
    }
}

/* Ids by value, larger first, then by id. */
static const double *sort_values;

static int before(const void *a, const void *b)
{
    const int32_t i = *(const int32_t *)a, j = *(const int32_t *)b;

    if (sort_values[i] != sort_values[j])
        return sort_values[i] > sort_values[j] ? -1 : 1;
    return i < j ? -1 : 1;
}

static void scale(double *p, int V)
{
    double total = 0.0;

    for (int i = 0; i < V; i++)
        total += p[i];
    for (int i = 0; i < V; i++)
        p[i] /= total;
}

/* Distance of the surprise -log p of an id from the entropy. */
static double sort_entropy;

static double off(double p)
{
    return p > 0.0 ? fabs(-log(p) - sort_entropy) : INFINITY;
}

/* Ids by that distance, smaller first, then by id. */
static int nearer(const void *a, const void *b)
{
    const int32_t i = *(const int32_t *)a, j = *(const int32_t *)b;
    const double x = off(sort_values[i]), y = off(sort_values[j]);

    if (x != y)
        return x < y ? -1 : 1;
    return i < j ? -1 : 1;
}

/* Locally typical sampling (Meister et al. 2022), as transformers' TypicalLogitsWarper: ids in the order of |-log p - H|
 * stay until their probabilities sum to `mass`, and ties of the last stay, too. The sum of p is 1. */
static void keep_typical(double *p, int V, double mass, int32_t *order)
{
    double sum = 0.0, limit = 0.0;

    sort_entropy = 0.0;
    for (int i = 0; i < V; i++) {
        sort_entropy -= p[i] > 0.0 ? p[i] * log(p[i]) : 0.0;
        order[i] = i;
    }
    sort_values = p;
    qsort(order, (size_t)V, sizeof *order, nearer);
    for (int i = 0; i < V && (i == 0 || sum < mass); i++) {
        sum += p[order[i]];
        limit = off(p[order[i]]);
    }
    for (int i = 0; i < V; i++)
        if (off(p[i]) > limit)
            p[i] = 0.0;
}

void ref_probabilities(const RefRow *r, const float *logits, int V, double *p, int32_t *order)
{
    const FtxParams *set = r->params;
    const double temperature = (double)set->temperature;
    int kept = V;
    double total = 0.0;

    ref_penalties(r, logits, V, p);
    for (int i = 0; i < V; i++)
        order[i] = i;
    sort_values = p;
    qsort(order, (size_t)V, sizeof *order, before);
    if (temperature == 0.0) {
        for (int i = 0; i < V; i++)
            p[i] = i == order[0];
        return;
    }
    if (set->top_k > 0 && set->top_k < V)
        for (kept = set->top_k; kept < V && p[order[kept]] == p[order[set->top_k - 1]];)
            kept++;

    const double max = p[order[0]];

    for (int i = 0; i < V; i++)
        p[order[i]] = i < kept ? exp((p[order[i]] - max) / temperature) : 0.0;
    for (int i = 0; i < kept; i++)
        total += p[order[i]];
    if (set->top_p < 1.0f) {
        double mass = 0.0;
        int n = 0;

        for (; n < kept && (n == 0 || mass < (double)set->top_p * total); n++)
            mass += p[order[n]];
        for (int i = n; i < kept; i++)
            p[order[i]] = 0.0;
        kept = n;
    }
    if (set->min_p > 0.0f)
        for (int i = 0; i < kept; i++)
            if (p[order[i]] < (double)set->min_p)
                p[order[i]] = 0.0;
    scale(p, V);
    if (set->typical_p > 0.0f && set->typical_p < 1.0f) {
        keep_typical(p, V, (double)set->typical_p, order);
        scale(p, V);
    }
}

int ref_draw(const double *p, int V, double u)
{
    double sum = 0.0;
    int last = 0;

    for (int i = 0; i < V; i++) {
        sum += p[i];
        if (p[i] > 0.0)
            last = i;
        if (sum > u)
            return i;
    }
    return last;
}

double ref_logsumexp(const float *logits, int V)
{
    double max = -INFINITY, sum = 0.0;

    for (int i = 0; i < V; i++)
        max = fmax(max, logits[i]);
    for (int i = 0; i < V; i++)
        sum += exp(logits[i] - max);
    return max + log(sum);
}

int ref_sample(const RefRow *r, const float *logits, int V, double *p, int32_t *order, double *logprob)
{
    int id;

    ref_probabilities(r, logits, V, p, order);
    id = ref_draw(p, V, r->params->temperature > 0.0f ? ref_uniform(r) : 0.0);
    *logprob = logits[id] - ref_logsumexp(logits, V);
    return id;
}
