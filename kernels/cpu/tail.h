/* tail.h - for the kernels after the LM head (sample.c, beam.c): logits processors, the largest logit, log-sum-exp.
 *
 * Included by them inside each.h. Functions that depend on the level are compiled once for each level, others once. */
#ifndef CPU_TAIL_ONCE
#define CPU_TAIL_ONCE
enum { SAMPLE_SEEN = 0x40000000 };

typedef struct SampleRow {
    const float *x;
    float *z;
    uint32_t *marks;
    const FtxRow *row;
    const FtxParams *p;
    const int32_t *ends, *history, *bad_words;
    const FtxBias *bias;
    int64_t V;
} SampleRow;

/* Bans the last id of each bad word whose other ids are the last tokens. */
static inline void sample_ban_words(const SampleRow *r)
{
    const int64_t length = r->row->kv_len;
    const int32_t *word = r->bad_words;

    for (const int32_t *at = word; at < r->bad_words + r->p->n_words; at++) {
        const int64_t n = at - word; /* ids before the last */

        if (*at >= 0)
            continue;
        if (n <= length && ~*at < r->V && memcmp(r->history + length - n, word, (size_t)n * sizeof *word) == 0)
            r->z[~*at] = -__builtin_inff();
        word = at + 1;
    }
}

/* All processors but the temperature; z holds the raw logits. */
static inline void sample_penalties(const SampleRow *r)
{
    const FtxParams *p = r->p;
    const int64_t length = r->row->kv_len;
    const int32_t *past = r->history;
    float *z = r->z;

    for (int64_t i = 0; i < p->n_bias; i++)
        if (r->bias[i].id >= 0 && r->bias[i].id < r->V)
            z[r->bias[i].id] += r->bias[i].value;

    if (p->repetition != 1.0f) {
        const int64_t from = p->window > 0 && p->window < length ? length - p->window : 0;

        for (int64_t i = from; i < length; i++) {
            float *s = &z[past[i]];

            if (r->marks[past[i]])
                continue;
            r->marks[past[i]] = SAMPLE_SEEN;
            *s = *s < 0.0f ? *s * p->repetition : *s / p->repetition;
        }
        for (int64_t i = from; i < length; i++)
            r->marks[past[i]] = 0;
    }
    if (p->presence != 0.0f || p->frequency != 0.0f) {
        for (int64_t i = r->row->prompt; i < length; i++)
            r->marks[past[i]]++;
        for (int64_t i = r->row->prompt; i < length; i++) {
            const uint32_t count = r->marks[past[i]];

            if (count)
                z[past[i]] -= p->presence + p->frequency * (float)count;
            r->marks[past[i]] = 0;
        }
    }
    if (p->ngram > 0 && length + 1 >= p->ngram) {
        const int64_t n = p->ngram - 1;
        const int32_t *tail = past + length - n; /* the last n tokens */

        for (int64_t i = 0; i + n < length; i++)
            if (memcmp(past + i, tail, (size_t)n * sizeof *past) == 0)
                z[past[i + n]] = -__builtin_inff();
    }
    sample_ban_words(r);
    if (length < p->min_length)
        for (int64_t i = 0; i < p->n_ends; i++)
            if (r->ends[i] >= 0 && r->ends[i] < r->V)
                z[r->ends[i]] = -__builtin_inff();
}
#endif

#if (LANES == 4 && !defined CPU_TAIL_4) || (LANES == 8 && !defined CPU_TAIL_8) || (LANES == 16 && !defined CPU_TAIL_16)
#if LANES == 4
#define CPU_TAIL_4
#elif LANES == 8
#define CPU_TAIL_8
#else
#define CPU_TAIL_16
#endif

ALWAYS_INLINE int AT(sample_any)(Vf v, float low)
{
#if LANES == 16
    return _mm512_cmp_ps_mask((__m512)v, _mm512_set1_ps(low), _CMP_GE_OQ) != 0;
#elif LANES == 8
    return _mm256_movemask_ps(_mm256_cmp_ps((__m256)v, _mm256_set1_ps(low), _CMP_GE_OQ)) != 0;
#else
    const Vi m = v >= low;

    return (m[0] | m[1] | m[2] | m[3]) != 0;
#endif
}

/* The largest value, and the lowest id that has it. */
ALWAYS_INLINE float AT(sample_max)(const float *z, int64_t V, int64_t *where)
{
    Vf top = vset(-__builtin_inff());
    int64_t i = 0;
    float max;

    for (; i + LANES <= V; i += LANES)
        top = vmax(vload(z + i), top);
    for (max = vmax_of(top); i < V; i++)
        max = z[i] > max ? z[i] : max;
    *where = 0;
    for (i = 0; i + LANES <= V && !AT(sample_any)(vload(z + i), max); i += LANES)
        continue;
    for (; i < V; i++)
        if (z[i] == max) {
            *where = i;
            break;
        }
    return max;
}

/* log(sum(exp(x))), max given: fp32 sums of 1024 elements each, added in double. */
ALWAYS_INLINE double AT(sample_logsumexp)(const float *x, int64_t V, float max)
{
    double total = 0.0;

    for (int64_t from = 0; from < V; from += 1024) {
        const int64_t to = from + 1024 < V ? from + 1024 : V;
        Vf sum = {0};
        int64_t i = from;

        for (; i + LANES <= to; i += LANES)
            sum += vexp(vload(x + i) - max);
        total += vsum(sum);
        for (; i < to; i++)
            total += vexp(vset(x[i] - max))[0];
    }
    return max + __builtin_log(total);
}
#endif
