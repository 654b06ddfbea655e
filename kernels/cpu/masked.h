/* masked.h - sample_masked: the next token of one row of which only some ids are allowed. Included by sample.c.
 *
 * For the engine, which chooses tokens on the host (runtime/engine/draw.c); no plan has it. Chooses what `sample` would if
 * all other ids had a logit of -inf, from the same 24 bits. The sums of probabilities are added in another order and in
 * double precision, so another token comes only where a border lies within their rounding, about 1e-15.
 *
 * Words of 32 ids of which none is allowed are not read. Then the candidates are listed, ids ascending: with top-k, values
 * not below a bound of the k-th largest; with top-p and min-p, those near the largest, if they are enough, and the mass of
 * the rest is one fast sum. What `sample` does slowly, value by value, is done with this list. Without such a limit the
 * draw adds the masses of whole words and looks into one.
 *
 *   x [V] fp32, raw logits; up to 31 floats behind them are read and ignored
 *   bits [ceil(V / 32)], or NULL: all are allowed
 *   scratch: z, values, ids [V + 32], best [ceil(V / 32)]; marks [V], zero between calls
 *   out: token -1 if no id is left, and finish; no log-probability */
#ifndef CPU_MASKED_ONCE
#define CPU_MASKED_ONCE
enum {
    MASKED_WORD = 32,
    MASKED_FEW = 2048,  /* allowed ids that are listed in any case */
    MASKED_WINDOW = 12, /* temperatures below the largest value: exp(-12) is 6.1e-6 */
};
static const float masked_least_min_p = 1e-5f; /* of which all ids that pass are inside the window */

typedef struct MaskedRow {
    SampleRow r;
    const uint32_t *bits;
    float *values, *best; /* values of the list; the largest of each word */
    int32_t *ids;         /* of the list */
    int64_t n, words;     /* the list's length; words of 32 ids */
} MaskedRow;

static inline uint32_t masked_word(const MaskedRow *m, int64_t w)
{
    const int64_t left = m->r.V - w * MASKED_WORD;
    const uint32_t bits = m->bits ? m->bits[w] : ~0u;

    return left < MASKED_WORD ? bits & ((1u << left) - 1) : bits;
}

static inline bool masked_few(const MaskedRow *m)
{
    int64_t n = 0;

    for (int64_t w = 0; w < m->words && n <= MASKED_FEW; w++)
        n += __builtin_popcount(masked_word(m, w));
    return n <= MASKED_FEW;
}
#endif

/* Values [at, at + LANES) of a word: -inf where the id is not allowed. */
ALWAYS_INLINE Vf AT(masked_load)(const float *word, uint32_t bits, int at)
{
    Vi lane = {0};

    for (int i = 0; i < LANES; i++)
        lane[i] = 1 << i;
    return vselect((((Vi){0} + (int32_t)(bits >> at)) & lane) == lane, vload(word + at), vset(-__builtin_inff()));
}

/* The largest allowed value of z, and the lowest id that has it; -1: none is above -inf. best: that of each word, or
 * NULL. */
static int32_t AT(masked_max)(const MaskedRow *m, const float *z, float *best, float *max)
{
    Vf all = vset(-__builtin_inff());

    for (int64_t w = 0; w < m->words; w++) {
        const uint32_t bits = masked_word(m, w);
        Vf top = vset(-__builtin_inff());

        for (int at = 0; bits && at < MASKED_WORD; at += LANES)
            top = vmax(AT(masked_load)(z + w * MASKED_WORD, bits, at), top);
        all = vmax(top, all);
        if (best)
            best[w] = bits ? vmax_of(top) : -__builtin_inff();
    }
    *max = vmax_of(all);
    if (!(*max > -__builtin_inff()))
        return -1;
    for (int64_t w = 0; w < m->words; w++) {
        const uint32_t bits = masked_word(m, w);

        for (int at = 0; bits && at < MASKED_WORD; at += LANES)
            if (AT(sample_any)(AT(masked_load)(z + w * MASKED_WORD, bits, at), *max))
                for (int i = at; i < at + LANES; i++)
                    if (bits >> i & 1 && z[w * MASKED_WORD + i] == *max)
                        return (int32_t)(w * MASKED_WORD + i);
    }
    return -1;
}

/* Lists the allowed ids whose value is at least `low` and above -inf. */
static void AT(masked_list)(MaskedRow *m, float low)
{
    const float *z = m->r.z;

    low = low > -__FLT_MAX__ ? low : -__FLT_MAX__;
    m->n = 0;
    for (int64_t w = 0; w < m->words; w++) {
        const uint32_t bits = masked_word(m, w);

        for (int at = 0; bits && at < MASKED_WORD; at += LANES) {
            const Vf v = AT(masked_load)(z + w * MASKED_WORD, bits, at);
            float f[LANES];

            if (!AT(sample_any)(v, low))
                continue;
            vstore(f, v);
            for (int i = 0; i < LANES; i++) {
                m->values[m->n] = f[i];
                m->ids[m->n] = (int32_t)(w * MASKED_WORD + at + i);
                m->n += f[i] >= low;
            }
        }
    }
}

/* The mass of the allowed values of word w that are below `below`. */
ALWAYS_INLINE double AT(masked_mass)(const MaskedRow *m, int64_t w, float below, SampleScale scale)
{
    typedef double Vd __attribute__((vector_size(LANES * 8)));
    const uint32_t bits = masked_word(m, w);
    Vd sum = {0};
    double total = 0.0;

    for (int at = 0; bits && at < MASKED_WORD; at += LANES) {
        const Vf v = AT(masked_load)(m->r.z + w * MASKED_WORD, bits, at);
        const Vf e = vexp((v - scale.max) * scale.inv_temperature);

        sum += __builtin_convertvector(vselect(v < below, e, vset(0.0f)), Vd);
    }
    for (int i = 0; bits && i < LANES; i += 4)
        total += (sum[i] + sum[i + 1]) + (sum[i + 2] + sum[i + 3]);
    return total;
}

static double AT(masked_rest)(const MaskedRow *m, float below, SampleScale scale)
{
    double total = 0.0;

    for (int64_t w = 0; w < m->words; w++)
        total += AT(masked_mass)(m, w, below, scale);
    return total;
}

/* A draw from all that is allowed. */
static int32_t AT(masked_draw_all)(const MaskedRow *m, SampleScale scale)
{
    const float above = __builtin_inff();
    const double want = sample_uniform(&m->r) * AT(masked_rest)(m, above, scale);
    double sum = 0.0;
    int32_t last = -1;

    for (int64_t w = 0; w < m->words; w++) {
        const double mass = AT(masked_mass)(m, w, above, scale);
        const uint32_t bits = masked_word(m, w);

        if (mass > 0.0)
            last = (int32_t)w;
        if (!(sum + mass > want)) {
            sum += mass;
            continue;
        }
        for (int at = 0; at < MASKED_WORD; at += LANES) {
            float e[LANES];

            vstore(e, vexp((AT(masked_load)(m->r.z + w * MASKED_WORD, bits, at) - scale.max) * scale.inv_temperature));
            for (int i = 0; i < LANES; i++)
                if ((sum += (double)e[i]) > want && e[i] > 0.0f)
                    return (int32_t)(w * MASKED_WORD + at + i);
        }
        break; /* rounding: the last of the word */
    }
    for (int i = MASKED_WORD - 1; last >= 0 && i >= 0; i--)
        if (masked_word(m, last) >> i & 1 && m->r.z[last * MASKED_WORD + i] > -__builtin_inff())
            return last * MASKED_WORD + i;
    return -1;
}

/* A lower bound of the k-th largest allowed value, by the largest of each word; -inf: there are fewer words. */
static float AT(masked_bound)(const MaskedRow *m, int64_t k)
{
    int64_t n = 0;
    double above;

    for (int64_t w = 0; w < m->words; w++) {
        m->values[n] = m->best[w];
        n += m->best[w] > -__builtin_inff();
    }
    if (n < k)
        return -__builtin_inff();

    const SampleKept all = {.key = 0, .value = -__builtin_inff(), .ties = n};
    const SampleScale none = {0};

    return sample_value(AT(sample_select)(m->values, n, &all, none, 0, NULL, (double)k, &above));
}

/* The list weighs at least `share` of it and the rest. */
static bool AT(masked_enough)(const MaskedRow *m, SampleScale scale, double share, double rest)
{
    const float *values = m->values;
    double sum = 0.0;

    SAMPLE_EACH(values, m->n, -__builtin_inff(), scale, i, f, mass, sum += mass;)
    return sum >= share * (sum + rest);
}

static int32_t AT(masked_draw)(MaskedRow *m, SampleScale scale)
{
    const FtxParams *p = m->r.p;
    const bool top_k = p->top_k > 0 && p->top_k < m->r.V, window = !top_k && (p->top_p < 1.0f || p->min_p > 0.0f);
    float low = -__builtin_inff();
    double rest = 0.0;
    SampleKept kept;

    if (!top_k && !window && !(p->typical_p > 0.0f) && !masked_few(m))
        return AT(masked_draw_all)(m, scale);
    if (top_k)
        low = AT(masked_bound)(m, p->top_k);
    else if (window && !masked_few(m))
        low = scale.max - MASKED_WINDOW / scale.inv_temperature;
    AT(masked_list)(m, low);
    if (window && low > -__builtin_inff()) {
        if (p->top_p < 1.0f)
            rest = AT(masked_rest)(m, low, scale);
        if (p->top_p < 1.0f ? !AT(masked_enough)(m, scale, (double)p->top_p, rest) : p->min_p < masked_least_min_p) {
            AT(masked_list)(m, -__builtin_inff());
            rest = 0.0;
        }
    }
    kept = AT(sample_keep)(p, m->values, m->n, scale, rest);
    if (p->typical_p > 0.0f)
        kept = AT(sample_typical)(p->typical_p, m->values, m->n, &kept, scale);

    SampleRow list = m->r;

    list.z = m->values;
    list.V = m->n;
    return m->ids[AT(sample_draw)(&list, &kept, scale)];
}

static int32_t AT(masked_choose)(MaskedRow *m)
{
    const FtxParams *p = m->r.p;
    SampleScale scale = {.inv_temperature = 1.0f};
    int32_t first;

    if (p->simple)
        return AT(masked_max)(m, m->r.x, NULL, &scale.max);
    for (int64_t w = 0; w < m->words; w++)
        if (masked_word(m, w))
            memcpy(m->r.z + w * MASKED_WORD, m->r.x + w * MASKED_WORD, MASKED_WORD * sizeof *m->r.z);
    sample_penalties(&m->r); /* also of ids that are not allowed, whose values nobody reads */
    first = AT(masked_max)(m, m->r.z, p->top_k > 0 ? m->best : NULL, &scale.max);
    if (first < 0 || !(p->temperature > 0.0f))
        return first;
    scale.inv_temperature = __builtin_fminf(1.0f / p->temperature, 1e30f);
    return AT(masked_draw)(m, scale);
}

void AT(sample_masked)(const CpuCall *c)
{
    const int64_t V = c->k[SAMPLE_V];
    const FtxRow *row = c->arg[1];
    const FtxParams *p = c->arg[2];
    FtxOut *out = c->arg[8];
    MaskedRow m = {
        .r = {.x = c->arg[0],
              .row = row,
              .p = p,
              .ends = c->arg[3],
              .bias = c->arg[4],
              .bad_words = c->arg[5],
              .history = c->arg[6],
              .z = c->arg[9],
              .marks = c->arg[13],
              .V = V},
        .bits = c->arg[7],
        .values = c->arg[10],
        .ids = c->arg[11],
        .best = c->arg[12],
        .words = (V + MASKED_WORD - 1) / MASKED_WORD,
    };

    out->token = AT(masked_choose)(&m);
    out->finish = row->kv_len + 1 >= row->limit ? 2 : 0;
    for (int i = 0; i < p->n_ends; i++)
        if (m.r.ends[i] == out->token)
            out->finish = 1;
}
