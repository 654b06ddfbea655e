/* sample.c - from raw logits to the next token of each row: processors, top-k/top-p/min-p/typical, draw, end check.
 *
 * In the order of Hugging Face's generate: logit bias, repetition penalty, presence and frequency penalty,
 * no_repeat_ngram, bad words, min_length. Greedy takes the largest here. Then top-k (all ties of the k-th stay), top-p
 * (an id stays while the mass before it, larger values and lower ids first, is less than p), min-p, typical (the ids
 * whose surprise is nearest to the entropy; ties of the last stay). The draw takes the first id whose cumulative mass,
 * ids ascending, passes u, which is 24 bits of Philox4x32-10; its key is the request's seed, its counter (position of
 * the new token, index of the sample).
 *
 * The temperature is part of the masses exp((z - max) / temperature). z itself is never divided: that changes no order
 * but could make close values equal.
 *
 * What stays is not a list but all logits above a threshold and the first `ties` of those equal to it. Thresholds are
 * found by radix selection over the ordered bits of the floats; nothing is sorted. Vectors below the threshold are
 * skipped, so after top-k every later step is one fast pass.
 *
 *   x [S,V] fp32, read only. z [S,V] fp32: processed logits. marks [S,V]: counts of ids, zero between calls.
 *   Rows with emit 0, or done, are skipped. */
//@ kernel  sample
//@ rank    170
//@ args    x[S,V] $rows $params $ends $bias $bad_words $token $history $out -> y
//@ match   y = sample(x)
//@ match   y = sample(x, mask(x))     // the host has chosen the tokens of rows with a mask
//@ consts  V: V  CONTEXT: CONTEXT  SEQUENCES: SEQUENCES  ENDS: END_IDS  BIAS: LOGIT_BIAS  WORDS: BAD_WORDS
//@ scratch z 4 * S_MAX * V
//@ zeroed  marks 4 * S_MAX * V
//@ moves   12 * S * V
#ifndef LEVEL
#define BODY "sample.c"
#include "each.h"
#else

#include "tail.h"

#ifndef SAMPLE_ONCE
#define SAMPLE_ONCE
enum { SAMPLE_LEVELS = 3, SAMPLE_BUCKETS = 2048, SAMPLE_GROUPS = 2048 };

/* What of z stays: values above `key`, and the first `ties` ids of those equal to it. */
typedef struct SampleKept {
    uint32_t key; /* ordered bits: sample_key */
    float value;  /* the float of `key` */
    int64_t ties;
} SampleKept;

/* The mass of a value z: exp((z - max) * inv_temperature); that of the largest is 1. */
typedef struct SampleScale {
    float max, inv_temperature; /* finite; 1 where nothing is drawn */
} SampleScale;

/* Bits of a float as an unsigned integer of the same order. */
static inline uint32_t sample_key(float f)
{
    uint32_t u;

    f += 0.0f; /* -0 is 0 */
    memcpy(&u, &f, sizeof u);
    return u & 0x80000000 ? ~u : u | 0x80000000;
}

static inline float sample_value(uint32_t key)
{
    const uint32_t u = key & 0x80000000 ? key & 0x7fffffff : ~key;
    float f;

    memcpy(&f, &u, sizeof f);
    return f;
}

/* Philox4x32-10: Salmon et al. 2011. The first of the four words. */
static uint32_t sample_philox(const uint32_t counter[4], uint32_t key0, uint32_t key1)
{
    uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3];

    for (int i = 0; i < 10; i++) {
        const uint64_t a = (uint64_t)0xD2511F53 * c0, b = (uint64_t)0xCD9E8D57 * c2;

        c0 = (uint32_t)(b >> 32) ^ c1 ^ key0;
        c1 = (uint32_t)b;
        c2 = (uint32_t)(a >> 32) ^ c3 ^ key1;
        c3 = (uint32_t)a;
        key0 += 0x9E3779B9;
        key1 += 0xBB67AE85;
    }
    return c0;
}

/* What the draw of a row's next token takes: 24 bits, below 1. */
static inline double sample_uniform(const SampleRow *r)
{
    const uint32_t counter[4] = {(uint32_t)r->row->kv_len, (uint32_t)r->p->sample, 0, 0};

    return (double)(sample_philox(counter, r->p->seed_low, r->p->seed_high) >> 8) * 0x1p-24;
}

#endif

/* Runs the statements at the end for every z[i] = f >= low, i ascending, with the mass of f. */
#define SAMPLE_EACH(z, V, low, scale, i, f, mass, ...) \
    for (int64_t base_ = 0; base_ < (V); base_ += LANES) { \
        const int64_t n_ = (V)-base_ < LANES ? (V)-base_ : LANES; \
        const Vf v_ = n_ < LANES ? vload_n((z) + base_, n_) : vload((z) + base_); \
        float e_[LANES]; \
        if (n_ == LANES && !AT(sample_any)(v_, (low))) \
            continue; \
        vstore(e_, vexp((v_ - (scale).max) * (scale).inv_temperature)); \
        for (int64_t i = base_; i < base_ + n_; i++) { \
            const float f = (z)[i]; \
            const double mass = (double)e_[i - base_]; \
            if (f >= (low)) { \
                (void)mass; \
                __VA_ARGS__ \
            } \
        } \
    }

/* The largest key such that the values with this key or a larger one, among those in `kept`, weigh at least `want`. A
 * value weighs 1 (top-k), or its mass (top-p). *above: the weight strictly above the key. If all weigh less, the least
 * key. mean: ranks by -|z - mean| in place of z; NULL: by z. */
static uint32_t AT(sample_select)(const float *z, int64_t V, const SampleKept *kept, SampleScale scale, int mass,
                                  const float *mean, double want, double *above)
{
    static const int shift[SAMPLE_LEVELS] = {21, 10, 0}, bits[SAMPLE_LEVELS] = {11, 11, 10};
    uint32_t prefix = 0;

    *above = 0.0;
    for (int level = 0; level < SAMPLE_LEVELS; level++) {
        double weight[SAMPLE_BUCKETS];
        const uint32_t mask = (1u << bits[level]) - 1;
        int bucket = (int)mask, least = (int)mask;
        int64_t ties = 0;

        memset(weight, 0, sizeof weight);
        SAMPLE_EACH(z, V, kept->value, scale, i, f, m, {
            const uint32_t key = sample_key(mean ? -__builtin_fabsf(f - *mean) : f);

            if (key == kept->key && ties++ >= kept->ties)
                continue;
            if (level > 0 && key >> shift[level - 1] != prefix)
                continue;
            const int at = (int)(key >> shift[level] & mask);
            weight[at] += mass ? m : 1.0;
            least = at < least ? at : least;
        })
        for (; bucket > least && *above + weight[bucket] < want; bucket--)
            *above += weight[bucket];
        prefix = prefix << bits[level] | (uint32_t)bucket;
    }
    return prefix;
}

/* A lower bound of the k-th largest value: the k-th largest of the maxima of groups, -inf where there are too few groups.
 * With it the exact selection skips nearly all vectors. */
static float AT(sample_bound)(const float *z, int64_t V, int64_t k)
{
    float best[SAMPLE_GROUPS];
    const int64_t size = ((V + SAMPLE_GROUPS - 1) / SAMPLE_GROUPS + LANES - 1) / LANES * LANES;
    const int64_t groups = V / size; /* whole ones */

    if (groups < k || groups < 2)
        return -__builtin_inff();
    for (int64_t g = 0; g < groups; g++) {
        Vf top = vload(z + g * size);

        for (int64_t i = LANES; i < size; i += LANES)
            top = vmax(vload(z + g * size + i), top);
        best[g] = vmax_of(top);
    }

    const SampleKept all = {.key = 0, .value = -__builtin_inff(), .ties = groups};
    const SampleScale none = {0};
    double above;

    return sample_value(AT(sample_select)(best, groups, &all, none, 0, NULL, (double)k, &above));
}

/* top-k, top-p and min-p over z. rest: the mass of values that are not in z, smaller than all in it; 0 with top-k. */
static SampleKept AT(sample_keep)(const FtxParams *p, const float *z, int64_t V, SampleScale scale, double rest)
{
    SampleKept kept = {.key = sample_key(-__builtin_inff()), .value = -__builtin_inff(), .ties = V};
    double above;

    if (p->top_k > 0 && p->top_k < V) {
        SampleKept bound = kept;

        bound.value = AT(sample_bound)(z, V, p->top_k);
        bound.key = sample_key(bound.value);
        kept.key = AT(sample_select)(z, V, &bound, scale, 0, NULL, p->top_k, &above);
        kept.value = sample_value(kept.key);
    }
    if (p->top_p < 1.0f) {
        double total = rest;

        SAMPLE_EACH(z, V, kept.value, scale, i, f, mass, total += mass;)

        /* The likeliest id has mass 1 and stays even with top_p 0. */
        const double want = (double)p->top_p * total > 0.5 ? (double)p->top_p * total : 0.5;
        const uint32_t key = AT(sample_select)(z, V, &kept, scale, 1, NULL, want, &above);
        const float value = sample_value(key);
        const double each = (double)vexp(vset((value - scale.max) * scale.inv_temperature))[0];

        /* Of the values equal to the key the n-th stays while above + (n - 1) * each < want. */
        kept = (SampleKept){.key = key, .value = value, .ties = 1};
        while (kept.ties < V && each > 0.0 && above + (double)kept.ties * each < want)
            kept.ties++;
    }
    if (p->min_p > 0.0f) {
        float least = scale.max;

        /* min-p keeps all ties, so the smallest value that passes is the new threshold. */
        SAMPLE_EACH(z, V, kept.value, scale, i, f, mass, {
            if (f < least && mass >= (double)p->min_p)
                least = f;
        })
        if (least > kept.value)
            kept = (SampleKept){.key = sample_key(least), .value = least, .ties = V};
    }
    return kept;
}

/* Locally typical sampling (Meister et al. 2022): of the kept ids those whose surprise -log p is nearest to the entropy H,
 * until they weigh `share` of all. -log p - H = (mean - z) / temperature, mean by mass, so nearness is |z - mean|. The
 * others become -inf, since what stays is no longer all above a threshold. */
static SampleKept AT(sample_typical)(float share, float *z, int64_t V, const SampleKept *kept, SampleScale scale)
{
    const SampleKept all = {.key = sample_key(-__builtin_inff()), .value = -__builtin_inff(), .ties = V};
    double total = 0.0, sum = 0.0, above;
    int64_t ties = 0;

    for (int64_t i = 0; i < V; i++)
        if (z[i] < kept->value || (z[i] == kept->value && ties++ >= kept->ties))
            z[i] = -__builtin_inff();
    SAMPLE_EACH(z, V, kept->value, scale, i, f, mass, {
        total += mass;
        sum += mass > 0.0 ? mass * ((double)f - (double)scale.max) : 0.0;
    })

    const float mean = (float)((double)scale.max + sum / total);
    const float far = -sample_value(AT(sample_select)(z, V, &all, scale, 1, &mean, (double)share * total, &above));

    for (int64_t i = 0; i < V; i++)
        if (__builtin_fabsf(z[i] - mean) > far)
            z[i] = -__builtin_inff();
    return all;
}

/* Writes the processed logits of a row to z; *kept: which of them stay. Returns their scale. */
static SampleScale AT(sample_process)(const SampleRow *r, SampleKept *kept)
{
    const FtxParams *p = r->p;
    SampleScale scale = {.inv_temperature = 1.0f};
    int64_t where;

    memcpy(r->z, r->x, (size_t)r->V * sizeof *r->z);
    sample_penalties(r);
    scale.max = AT(sample_max)(r->z, r->V, &where);
    if (p->temperature > 0.0f) {
        scale.inv_temperature = __builtin_fminf(1.0f / p->temperature, 1e30f);
        *kept = AT(sample_keep)(p, r->z, r->V, scale, 0.0);
        if (p->typical_p > 0.0f)
            *kept = AT(sample_typical)(p->typical_p, r->z, r->V, kept, scale);
    } else {
        *kept = (SampleKept){.key = sample_key(scale.max), .value = scale.max, .ties = 1};
    }
    return scale;
}

static int32_t AT(sample_draw)(const SampleRow *r, const SampleKept *kept, SampleScale scale)
{
    const double u = sample_uniform(r);
    double total = 0.0, sum = 0.0;
    int64_t ties = 0, last = 0;

    SAMPLE_EACH(r->z, r->V, kept->value, scale, i, f, mass, {
        if (f == kept->value && ties++ >= kept->ties)
            continue;
        total += mass;
    })
    ties = 0;
    SAMPLE_EACH(r->z, r->V, kept->value, scale, i, f, mass, {
        if (f == kept->value && ties++ >= kept->ties)
            continue;
        if (mass == 0.0)
            continue;
        sum += mass;
        last = i;
        if (sum > u * total)
            return (int32_t)i;
    })
    return (int32_t)last;
}

static SampleRow AT(sample_row)(const CpuCall *c, int64_t s)
{
    const int64_t V = c->k[SAMPLE_V];
    const FtxRow *rows = c->arg[1];

    return (SampleRow){
        .x = (const float *)c->arg[0] + s * V,
        .row = rows + s,
        .p = (const FtxParams *)c->arg[2] + s,
        .ends = (const int32_t *)c->arg[3] + s * c->k[SAMPLE_ENDS],
        .bias = (const FtxBias *)c->arg[4] + s * c->k[SAMPLE_BIAS],
        .bad_words = (const int32_t *)c->arg[5] + rows[s].slot * c->k[SAMPLE_WORDS],
        .history = (const int32_t *)c->arg[7] + rows[s].slot * c->k[SAMPLE_CONTEXT],
        .z = (float *)c->arg[10] + s * V,
        .marks = (uint32_t *)c->arg[11] + s * V,
        .V = V,
    };
}

void AT(sample)(const CpuCall *c)
{
    FtxRow *rows = c->arg[1];
    FtxToken *token = c->arg[6];
    FtxOut *out = c->arg[8];
    int32_t *y = c->arg[9];
    int64_t first, last;

    cpu_share(c, c->S, &first, &last);
    for (int64_t s = first; s < last; s++) {
        FtxRow *row = rows + s;
        const SampleRow r = AT(sample_row)(c, s);
        const int n = row->kv_len;
        int64_t best;
        int32_t id;
        int finish = 0;

        if (!row->emit || row->done)
            continue;

        const float max = AT(sample_max)(r.x, r.V, &best);
        const double logsumexp = AT(sample_logsumexp)(r.x, r.V, max);

        if (r.p->simple) {
            id = (int32_t)best;
        } else {
            SampleKept kept;
            const SampleScale scale = AT(sample_process)(&r, &kept);

            if (r.p->temperature > 0.0f) {
                id = AT(sample_draw)(&r, &kept, scale);
            } else {
                AT(sample_max)(r.z, r.V, &best);
                id = (int32_t)best;
            }
        }
        for (int i = 0; i < r.p->n_ends; i++)
            if (r.ends[i] == id)
                finish = 1;
        if (!finish && n + 1 >= row->limit)
            finish = 2;

        FtxOut *o = &out[(n % FTX_OUT_RING) * c->k[SAMPLE_SEQUENCES] + s];

        y[s] = id;
        o->token = id;
        o->logprob = (float)(r.x[id] - logsumexp);
        o->finish = finish;
        __atomic_store_n(&o->length, n, __ATOMIC_RELEASE);
        if (finish) {
            row->done = 1;
        } else {
            token[s] = (FtxToken){.id = id, .pos = n, .row = (int)s, .slot = row->slot};
            row->kv_len = n + 1;
        }
    }
}

/* For tests: instead of drawing, the probabilities from which a draw would be made; zeros if no id is left. Operands as
 * those of sample, but y is [S,V] fp32. */
void AT(sample_probs)(const CpuCall *c)
{
    int64_t first, last;

    cpu_share(c, c->S, &first, &last);
    for (int64_t s = first; s < last; s++) {
        const SampleRow r = AT(sample_row)(c, s);
        float *y = (float *)c->arg[9] + s * r.V;
        SampleKept kept;
        const SampleScale scale = AT(sample_process)(&r, &kept);
        double total = 0.0;
        int64_t ties = 0;

        memset(y, 0, (size_t)r.V * sizeof *y);
        if (!(scale.max > -__builtin_inff()))
            continue;
        SAMPLE_EACH(r.z, r.V, kept.value, scale, i, f, mass, {
            if (f == kept.value && ties++ >= kept.ties)
                continue;
            y[i] = (float)mass;
            total += mass;
        })
        for (int64_t i = 0; i < r.V; i++)
            y[i] = (float)(y[i] / total);
    }
}

#include "masked.h"
#undef SAMPLE_EACH
#endif
