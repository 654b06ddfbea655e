/* test_cpu_sample.c - the decode tail: processors against the reference and against Hugging Face's stored
 * probabilities, draws against their distribution, Philox against its published vectors, and what a
 * row looks like afterwards. */
#include "cpu_test.h"

#include <jansson.h>

enum { CONTEXT = 64, ENDS = 4, BIAS = 4, WORDS = 12, SEQUENCES = 4 };

typedef struct Tail { /* one row's inputs; V is set by the test */
    int V;
    float *logits;
    FtxRow row;
    FtxParams params;
    int32_t history[CONTEXT], ends[ENDS];
    FtxBias bias[BIAS];
    int32_t words[WORDS];
} Tail;

static const FtxParams off = {.temperature = 1.0f, .top_p = 1.0f, .repetition = 1.0f};

typedef struct Result {
    FtxRow row;
    FtxToken token;
    FtxOut out;
    int32_t y;
} Result;

/* Runs `family` on the row in slot 2, as row 1 of two; the other row emits nothing. probs: [V] or NULL. */
static Result run(const char *family, int level, const Tail *t, float *probs)
{
    const int64_t k[] = {[SAMPLE_V] = t->V,    [SAMPLE_CONTEXT] = CONTEXT, [SAMPLE_SEQUENCES] = SEQUENCES,
                         [SAMPLE_ENDS] = ENDS, [SAMPLE_BIAS] = BIAS,       [SAMPLE_WORDS] = WORDS};
    float *x = malloc(sizeof *x * 2 * t->V), *z = malloc(sizeof *z * 2 * t->V);
    float *y = malloc(sizeof *y * 2 * t->V);
    uint32_t *marks = calloc(2 * t->V, sizeof *marks);
    FtxRow rows[2] = {{.emit = 0}, t->row};
    FtxParams params[2] = {off, t->params};
    int32_t ends[2][ENDS] = {{0}}, history[3][CONTEXT] = {{0}}, words[3][WORDS] = {{0}};
    FtxBias bias[2][BIAS] = {{{0, 0}}};
    FtxToken token[2] = {{0}};
    FtxOut out[FTX_OUT_RING][SEQUENCES] = {{{0}}};
    Result r;

    rows[1].slot = 2;
    memcpy(x + t->V, t->logits, sizeof *x * t->V);
    memcpy(ends[1], t->ends, sizeof t->ends);
    memcpy(history[2], t->history, sizeof t->history);
    memcpy(bias[1], t->bias, sizeof t->bias);
    memcpy(words[2], t->words, sizeof t->words);
    if (probs) {
        rows[0] = rows[1];
        params[0] = params[1];
        memcpy(x, t->logits, sizeof *x * t->V);
    }
    call(kernel_at(family, level),
         (void *const[]){x, rows, params, ends, bias, words, token, history, out, y, z, marks}, k, 2, 2, 2);
    for (int i = 0; i < 2 * t->V; i++)
        assert_int_equal(marks[i], 0);
    assert_memory_equal(x + t->V, t->logits, sizeof *x * t->V); /* raw logits stay */
    if (probs)
        memcpy(probs, y + t->V, sizeof *y * t->V);
    r = (Result){rows[1], token[1], out[t->row.kv_len % FTX_OUT_RING][1], ((int32_t *)y)[1]};
    free(x), free(y), free(z), free(marks);
    return r;
}

static RefRow ref_row(const Tail *t)
{
    return (RefRow){&t->row, &t->params, t->history, t->ends, t->bias, t->words};
}

static void check(int level, const Tail *t, const char *what)
{
    double *p = malloc(sizeof *p * t->V), logprob;
    int32_t *order = malloc(sizeof *order * t->V);
    float *probs = malloc(sizeof *probs * t->V);
    const RefRow r = ref_row(t);
    Result got;
    int id;

    run("sample_probs", level, t, probs);
    ref_probabilities(&r, t->logits, t->V, p, order);
    for (int i = 0; i < t->V; i++)
        if (!(fabs(probs[i] - p[i]) <= 2e-6))
            fail_msg("%s %s: probability of %d is %.8g, should be %.8g", levels[level], what, i, probs[i], p[i]);
    id = ref_sample(&r, t->logits, t->V, p, order, &logprob);
    got = run("sample", level, t, NULL);
    if (got.y != id)
        fail_msg("%s %s: token %d, should be %d", levels[level], what, got.y, id);
    assert_int_equal(got.out.token, id);
    assert_int_equal(got.out.length, t->row.kv_len);
    assert_true(fabs(got.out.logprob - logprob) < 1e-5);
    free(p), free(order), free(probs);
}

static Tail new_tail(int V, int coarse)
{
    Tail t = {.V = V,
              .logits = random_tensor((size_t)V, DT_FP32, 6.0f),
              .params = off,
              .row = {.q_len = 1, .kv_len = 40, .emit = 1, .prompt = 20, .limit = CONTEXT}};

    for (int i = 0; coarse && i < V; i++) /* many ties */
        t.logits[i] = roundf(t.logits[i]);
    for (int i = 0; i < CONTEXT; i++)
        t.history[i] = random_below(V < 25 ? V : 25);
    t.params.seed_low = random_bits();
    t.params.seed_high = random_bits();
    t.params.sample = random_below(3);
    return t;
}

/* Words that begin as the text ends, some that do not, some of one id; the ids they end with are known by `set`. */
static void put_words(Tail *t, int set)
{
    const int n = t->row.kv_len, V = t->V;
    const int32_t *h = t->history;
    const int32_t words[WORDS] = {h[n - 1], ~(set % 20), h[n - 3],  h[n - 2],        h[n - 1], ~(set * 7 % V),
                                  h[n - 2], set % 25,    ~h[n - 1], ~(set * 37 % V), h[n - 1], ~h[n - 2]};

    memcpy(t->words, words, sizeof words);
    t->params.n_words = WORDS;
}

/* A bad word that is the whole text and one id more; another that has one id more than that. */
static void words_as_long_as_the_text(void **state)
{
    (void)state;
    for (int level = 0; level < LEVELS; level++) {
        Tail t = new_tail(40, 0);
        float probs[40];

        t.row.kv_len = 2;
        t.row.prompt = 1;
        memcpy(t.words, (int32_t[]){t.history[0], t.history[1], ~30, 7, t.history[0], t.history[1], ~31},
               7 * sizeof *t.words);
        t.params.n_words = 7;
        check(level, &t, "long words");
        run("sample_probs", level, &t, probs);
        assert_true(probs[30] == 0.0f);
        assert_true(probs[31] > 0.0f);
        free(t.logits);
    }
}

/* The shortest text that can repeat an n-gram: "5 9 5", of which the next 9 would repeat "5 9". */
static void short_ngram(void **state)
{
    (void)state;
    for (int level = 0; level < LEVELS; level++) {
        Tail t = new_tail(40, 0);
        float probs[40];

        t.row.kv_len = 3;
        t.row.prompt = 1;
        memcpy(t.history, (int32_t[]){5, 9, 5}, 3 * sizeof *t.history);
        for (t.params.ngram = 2; t.params.ngram <= 5; t.params.ngram++) {
            check(level, &t, "short n-gram");
            run("sample_probs", level, &t, probs);
            assert_int_equal(probs[9] == 0.0f, t.params.ngram == 2);
        }
        free(t.logits);
    }
}

/* Every processor on and off with every other. */
static void combinations(void **state)
{
    static const int vocabularies[] = {1, 5, 300, 4097};

    (void)state;
    for (int level = 0; level < LEVELS; level++)
        for (int set = 0; set < 1 << 11; set++) {
            const int V = vocabularies[set * 7 % 11 % 4];
            Tail t = new_tail(V, set % 3 == 0);
            FtxParams *p = &t.params;
            char what[64];

            if (set & 1) {
                p->n_bias = 3;
                for (int i = 0; i < 3; i++)
                    t.bias[i] = (FtxBias){random_below(V), 3.0f * random_float()};
            }
            if (set & 2)
                p->repetition = 1.3f;
            if (set & 4)
                p->window = 1 + random_below(30);
            if (set & 8)
                p->presence = 0.5f, p->frequency = 0.25f;
            if ((set & 16) && V > 30)
                p->ngram = 1 + random_below(3);
            if ((set & 32) && V > 30) {
                p->min_length = 40 + set % 3;
                p->n_ends = 2;
                t.ends[0] = 0, t.ends[1] = 7;
            }
            p->temperature = set & 64 ? 0.7f : 1.5f;
            if (set & 128)
                p->top_k = 1 + random_below(set % 2 ? 12 : 400);
            if (set & 256)
                p->top_p = 0.5f + 0.49f * fabsf(random_float());
            if (set & 512)
                p->min_p = 0.05f;
            if (set & 1024)
                p->typical_p = 0.2f + 0.7f * fabsf(random_float());
            if (set % 5 == 2 && V > 30)
                put_words(&t, set);
            if (set % 17 == 0)
                p->temperature = 0.0f;
            snprintf(what, sizeof what, "set %#x V=%d", set, V);
            check(level, &t, what);
            free(t.logits);
        }
}

static void vocabularies(void **state)
{
    static const int sizes[] = {300, 4096, 32000, 50257, 128256};

    (void)state;
    for (int level = 0; level < LEVELS; level++)
        for (int i = 0; i < 5; i++)
            for (int top_k = 0; top_k <= 2500; top_k = top_k ? top_k * 50 : 1) {
                Tail t = new_tail(sizes[i], i % 2);
                char what[64];

                t.params.top_k = top_k;
                t.params.top_p = top_k % 2 ? 1.0f : 0.9f;
                t.params.typical_p = i % 2 ? 0.9f : 0.0f;
                snprintf(what, sizeof what, "V=%d top_k=%d", sizes[i], top_k);
                check(level, &t, what);
                free(t.logits);
            }
}

/* All logits equal, zeros of both signs, banned ids only but one, very large values. */
static void corners(void **state)
{
    (void)state;
    for (int level = 0; level < LEVELS; level++)
        for (int kind = 0; kind < 4; kind++)
            for (int top_k = 0; top_k < 4; top_k += 3) {
                Tail t = new_tail(301, 0);

                for (int i = 0; i < t.V; i++)
                    t.logits[i] = kind == 0   ? 1.5f
                                  : kind == 1 ? (i % 2 ? 0.0f : -0.0f)
                                  : kind == 2 ? (i == 77 ? 0.0f : -INFINITY)
                                              : 1e4f * random_float();
                t.params.top_k = top_k;
                t.params.top_p = 0.5f;
                t.params.min_p = 0.5f;
                check(level, &t, "corner");
                t.params.top_p = 1e-9f; /* the best one stays */
                check(level, &t, "corner, tiny top_p");
                t.params.top_p = 0.0f;
                check(level, &t, "corner, no top_p");
                t.params.top_p = 1.0f;
                t.params.min_p = 0.0f;
                t.params.typical_p = 0.5f; /* equal values stay or go together */
                check(level, &t, "corner, typical");
                t.params.typical_p = 1e-9f;
                check(level, &t, "corner, tiny typical");
                free(t.logits);
            }
}

/* Two logits that differ, and whose quotients by the temperature are one float: no tie. */
static void near_ties(void **state)
{
    (void)state;
    for (int level = 0; level < LEVELS; level++)
        for (int kind = 0; kind < 3; kind++) {
            Tail t = new_tail(301, 0);
            float probs[301], low = 10.0f, high = 10.0f;

            t.params.temperature = 3.0f;
            while (low == high || low / t.params.temperature != high / t.params.temperature)
                low = high, high = nextafterf(high, INFINITY);
            for (int i = 0; i < t.V; i++)
                t.logits[i] = i == 7 ? low : i == 90 ? high : -60.0f;
            t.params.top_k = kind != 1; /* one stays, and it is not the first of two alike */
            t.params.top_p = kind == 0 ? 1.0f : 0.4f;
            run("sample_probs", level, &t, probs);
            assert_true(probs[90] == 1.0f && probs[7] == 0.0f);
            check(level, &t, "near tie");
            free(t.logits);
        }
}

/* A temperature so large that every mass is 1: all are exactly as good as min-p asks for. */
static void hottest(void **state)
{
    (void)state;
    for (int level = 0; level < LEVELS; level++) {
        Tail t = new_tail(301, 0);
        float probs[301];

        t.params.temperature = 1e38f;
        t.params.min_p = 1.0f;
        run("sample_probs", level, &t, probs);
        for (int i = 0; i < t.V; i++)
            assert_true(probs[i] == 1.0f / 301);
        check(level, &t, "hottest");
        free(t.logits);
    }
}

/* A temperature so small that no quotient is finite: the largest. */
static void coldest(void **state)
{
    (void)state;
    for (int level = 0; level < LEVELS; level++) {
        Tail t = new_tail(301, 0);
        float probs[301];

        t.params.temperature = 1e-40f;
        t.params.top_p = 0.9f;
        t.logits[5] = 9.0f;
        run("sample_probs", level, &t, probs);
        assert_true(probs[5] == 1.0f);
        assert_int_equal(run("sample", level, &t, NULL).y, 5);
        free(t.logits);
    }
}

/* One logit that is no number leaves no log-probability, wherever it stands, so that the engine can tell. */
static void not_finite(void **state)
{
    const float bad[] = {NAN, INFINITY};

    (void)state;
    for (int level = 0; level < LEVELS; level++)
        for (int i = 0; i < 301; i += 20)
            for (int simple = 0; simple < 4; simple++) {
                Tail t = new_tail(301, 0);

                t.params.simple = simple & 1;
                t.params.temperature = simple == 0 ? 0.8f : 0.0f;
                t.logits[i] = bad[simple / 2];
                assert_true(isnan(run("sample", level, &t, NULL).out.logprob));
                for (int k = 0; k < t.V; k++)
                    t.logits[k] = bad[simple / 2];
                assert_true(isnan(run("sample", level, &t, NULL).out.logprob));
                free(t.logits);
            }
}

/* --- sample_masked: some ids of one row -------------------------------------------------------------------- */

/* Its token under a mask; NULL: all ids. What lies behind the row is larger than all in it. */
static FtxOut run_masked(int level, const Tail *t, const uint32_t *bits)
{
    const int64_t k[] = {[SAMPLE_V] = t->V};
    const size_t room = (size_t)t->V + 32;
    float *x = malloc(room * sizeof *x), *z = calloc(room, sizeof *z), *values = malloc(room * sizeof *values);
    float *best = malloc(room * sizeof *best);
    int32_t *ids = malloc(room * sizeof *ids);
    uint32_t *marks = calloc((size_t)t->V, sizeof *marks);
    FtxRow row = t->row;
    FtxOut out = {.length = 77};

    memcpy(x, t->logits, (size_t)t->V * sizeof *x);
    for (int i = t->V; i < t->V + 32; i++)
        x[i] = 1e9f;
    call(kernel_at("sample_masked", level),
         (void *const[]){x, &row, (void *)&t->params, (void *)t->ends, (void *)t->bias, (void *)t->words,
                         (void *)t->history, (void *)bits, &out, z, values, ids, best, marks},
         k, 1, 1, 1);
    for (int i = 0; i < t->V; i++)
        assert_int_equal(marks[i], 0);
    assert_memory_equal(x, t->logits, (size_t)t->V * sizeof *x);
    free(x), free(z), free(values), free(best), free(ids), free(marks);
    return out;
}

static bool is_set(const uint32_t *bits, int id)
{
    return bits[id / 32] >> (id % 32) & 1;
}

/* Allows each id, every third or so, few, one, none, or whole words; bits behind the vocabulary are set, too. */
static uint32_t *random_mask(int V, int kind)
{
    const int words = (V + 31) / 32, one = random_below(V);
    uint32_t *bits = calloc((size_t)words, sizeof *bits);

    for (int i = 0; i < V; i++)
        if (kind == 0 || (kind == 1 && random_below(3) == 0) || (kind == 2 && random_below(200) == 0) ||
            (kind == 3 && i == one) || (kind == 5 && i / 32 % 3 == 1))
            bits[i / 32] |= 1u << i % 32;
    for (int i = V; i < words * 32; i++)
        bits[i / 32] |= 1u << i % 32;
    return bits;
}

static void random_settings(Tail *t, int i)
{
    FtxParams *p = &t->params;

    p->temperature = i % 5 == 0 ? 0.0f : 0.05f + 0.4f * (float)random_below(5);
    p->simple = i % 10 == 0;
    if (p->simple)
        return;
    p->top_k = random_below(3) ? 0 : 1 + random_below(60);
    p->top_p = random_below(3) ? 1.0f : 0.02f + 0.07f * (float)random_below(14);
    p->min_p = random_below(4) ? 0.0f : i % 2 ? 1e-7f : 0.1f;
    p->typical_p = random_below(6) ? 0.0f : 0.5f;
    p->repetition = random_below(2) ? 1.0f : 1.3f;
    p->presence = random_below(2) ? 0.0f : 0.7f;
    p->ngram = random_below(3) ? 0 : 2;
    p->n_bias = random_below(2) ? 0 : BIAS;
    for (int b = 0; b < BIAS; b++)
        t->bias[b] = (FtxBias){random_below(t->V), (float)random_below(9) - 4.0f};
    if (t->V > 40 && random_below(3) == 0)
        put_words(t, i);
}

/* Where nothing is left, there are no probabilities. */
static bool all_banned(int level, const Tail *t)
{
    float *probs = malloc((size_t)t->V * sizeof *probs);
    bool some = false;

    run("sample_probs", level, t, probs);
    for (int i = 0; i < t->V; i++)
        some = some || probs[i] > 0.0f;
    free(probs);
    return !some;
}

/* The token that `sample` chooses when the logits of all other ids are -inf. */
static void masked_as_sample(void **state)
{
    static const int sizes[] = {1, 5, 31, 32, 33, 64, 301, 5003, 20011};

    (void)state;
    for (int level = 0; level < LEVELS; level++)
        for (size_t n = 0; n < sizeof sizes / sizeof *sizes; n++)
            for (int i = 0; i < (sizes[n] > 1000 ? 60 : 120); i++) {
                Tail t = new_tail(sizes[n], i % 3 == 0), only = t;
                uint32_t *bits = random_mask(t.V, i % 6);
                int allowed = 0, want = -1;
                FtxOut got;

                random_settings(&t, i);
                only = t;
                only.logits = malloc((size_t)t.V * sizeof *only.logits);
                for (int id = 0; id < t.V; id++) {
                    allowed += is_set(bits, id);
                    only.logits[id] = is_set(bits, id) ? t.logits[id] : -INFINITY;
                }
                if (allowed && !all_banned(level, &only))
                    want = run("sample", level, &only, NULL).y;
                got = run_masked(level, &t, allowed == t.V ? NULL : bits);
                if (got.token != want)
                    fail_msg("%s V %d, %d: token %d, should be %d", levels[level], t.V, i, got.token, want);
                free(t.logits), free(only.logits), free(bits);
            }
}

static void masked_ends(void **state)
{
    (void)state;
    for (int level = 0; level < LEVELS; level++) {
        Tail t = new_tail(301, 0);
        uint32_t bits[10] = {0};

        bits[2] = 1u << 6 | 1u << 9; /* 70 and 73 */
        t.params.n_ends = 2;
        t.ends[0] = 70;
        t.ends[1] = 73;
        for (int greedy = 0; greedy < 2; greedy++) {
            t.params.temperature = greedy ? 0.0f : 1.0f;
            t.row.limit = CONTEXT;
            t.params.min_length = t.row.kv_len + 1; /* both are banned */
            assert_int_equal(run_masked(level, &t, bits).token, -1);
            t.params.min_length = 0;
            assert_int_equal(run_masked(level, &t, bits).finish, 1);
            t.params.n_ends = 0;
            assert_int_equal(run_masked(level, &t, bits).finish, 0);
            t.row.limit = t.row.kv_len + 1;
            assert_int_equal(run_masked(level, &t, bits).finish, 2);
            t.params.n_ends = 2;
        }
        free(t.logits);
    }
}

/* Draws from all that is allowed, of which there are many, follow their probabilities. */
static void masked_shares(void **state)
{
    enum { V = 8000, DRAWS = 4000 };

    (void)state;
    for (int level = 0; level < LEVELS; level++) {
        Tail t = new_tail(V, 0);
        uint32_t *bits = random_mask(V, 1);
        double low = 0.0, high = 0.0, found = 0.0;

        for (int i = 0; i < V; i++) {
            t.logits[i] *= 0.2f;
            if (is_set(bits, i))
                *(i < V / 3 ? &low : &high) += exp((double)t.logits[i]);
        }
        for (int i = 0; i < DRAWS; i++) {
            int id;

            t.params.seed_low = (unsigned)i;
            id = run_masked(level, &t, bits).token;
            assert_true(id >= 0 && is_set(bits, id));
            found += id < V / 3;
        }
        /* five standard deviations */
        assert_true(fabs(found / DRAWS - low / (low + high)) < 5.0 * 0.5 / sqrt(DRAWS));
        free(t.logits), free(bits);
    }
}

/* One id stands far above 20,000 others, which together weigh some percent: they are outside of the window, but top-p or a
 * small min-p keeps many of them. */
static void masked_far(void **state)
{
    enum { V = 20011, DRAWS = 60 };

    (void)state;
    for (int level = 0; level < LEVELS; level++) {
        Tail t = new_tail(V, 0);
        uint32_t *bits = random_mask(V, 0);
        int far = 0;

        for (int i = 0; i < V; i++)
            t.logits[i] = i == 777 ? 12.4f : 0.0f;
        bits[3] = 0; /* the host may not take all ids for allowed */
        for (int id = 96; id < 128; id++)
            t.logits[id] = -INFINITY; /* `sample` knows no mask */
        for (int i = 0; i < 2 * DRAWS; i++) {
            int want;

            t.params.seed_low = (unsigned)i;
            t.params.top_p = i < DRAWS ? 0.99f : 1.0f;
            t.params.min_p = i < DRAWS ? 0.0f : 1e-7f;
            want = run("sample", level, &t, NULL).y;
            far |= want != 777 ? 1 << (i < DRAWS) : 0;
            assert_int_equal(run_masked(level, &t, bits).token, want);
        }
        assert_int_equal(far, 3); /* of both kinds */
        free(t.logits), free(bits);
    }
}

/* What transformers' own tests of TypicalLogitsWarper expect. */
static void typical(void **state)
{
    static const struct {
        float p[4], share, want[4];
    } rows[] = {
        {{0.97f, 0.01f, 0.01f, 0.01f}, 0.5f, {1.0f, 0.0f, 0.0f, 0.0f}},
        {{0.4f, 0.2f, 0.2f, 0.2f}, 0.5f, {0.0f, 1.0f / 3, 1.0f / 3, 1.0f / 3}},
    };

    (void)state;
    for (int level = 0; level < LEVELS; level++)
        for (int i = 0; i < 2; i++) {
            Tail t = new_tail(4, 0);
            float probs[4];

            for (int k = 0; k < 4; k++)
                t.logits[k] = logf(rows[i].p[k]);
            t.params.typical_p = rows[i].share;
            run("sample_probs", level, &t, probs);
            for (int k = 0; k < 4; k++)
                assert_true(fabsf(probs[k] - rows[i].want[k]) < 1e-6f);
            free(t.logits);
        }
}

static void simple_rows(void **state)
{
    (void)state;
    for (int level = 0; level < LEVELS; level++) {
        Tail t = new_tail(1000, 0);
        Result r;

        t.params.temperature = 0.0f;
        t.params.simple = 1;
        t.logits[123] = t.logits[640] = 9.0f;
        r = run("sample", level, &t, NULL);
        assert_int_equal(r.y, 123); /* the lower id of equals */

        /* Ready for the next decode step ... */
        assert_int_equal(r.row.done, 0);
        assert_int_equal(r.row.kv_len, 41);
        assert_int_equal(r.token.id, 123);
        assert_int_equal(r.token.pos, 40);
        assert_int_equal(r.token.row, 1);
        assert_int_equal(r.token.slot, 2);
        assert_int_equal(r.out.finish, 0);

        /* ... or at its end: an end id, the limit, both (the end id says why). */
        t.row.limit = 41;
        r = run("sample", level, &t, NULL);
        assert_int_equal(r.out.finish, 2);
        assert_int_equal(r.row.done, 1);
        assert_int_equal(r.row.kv_len, 40);
        t.params.n_ends = 2;
        t.ends[1] = 123;
        r = run("sample", level, &t, NULL);
        assert_int_equal(r.out.finish, 1);

        /* A row that is done, or brings no last token, is left alone. */
        t.row.done = 1;
        r = run("sample", level, &t, NULL);
        assert_int_equal(r.out.length, 0);
        assert_int_equal(r.row.kv_len, 40);
        t.row.done = 0, t.row.emit = 0;
        r = run("sample", level, &t, NULL);
        assert_int_equal(r.out.length, 0);
        assert_int_equal(r.row.kv_len, 40);
        free(t.logits);
    }
}

/* Random123's known answers (kat_vectors, philox4x32 10). */
static void philox(void **state)
{
    static const uint32_t known[][10] = {
        {0, 0, 0, 0, 0, 0, 0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8},
        {0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff, 0x408f276d, 0x41c83b0e, 0xa20bc7c6,
         0x6d5451fd},
        {0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344, 0xa4093822, 0x299f31d0, 0xd16cfe09, 0x94fdcceb, 0x5001e420,
         0x24126ea1},
    };

    (void)state;
    for (int i = 0; i < 3; i++) {
        uint32_t out[4];

        ref_philox(known[i], known[i] + 4, out);
        assert_memory_equal(out, known[i] + 6, sizeof out);
    }
}

/* 100,000 tokens at successive positions of one seed follow the distribution: chi-square. */
static void check_draws(Tail *tail)
{
    enum { V = 300, DRAWS = 100000 };
    const RefRow r = ref_row(tail);
    double p[V], chi = 0.0;
    int32_t order[V];
    int counts[V] = {0}, cells = 0, degrees;

    assert_int_equal(tail->V, V);
    for (int i = 0; i < DRAWS; i++) {
        tail->row.kv_len = i; /* nothing here looks at the history */
        tail->row.limit = DRAWS + 1;
        counts[run("sample", LEVELS - 1, tail, NULL).y]++;
    }
    tail->row.kv_len = tail->row.prompt;
    ref_probabilities(&r, tail->logits, V, p, order);
    for (int i = 0; i < V; i++) {
        if (p[i] == 0.0)
            assert_int_equal(counts[i], 0);
        else
            chi += (counts[i] - DRAWS * p[i]) * (counts[i] - DRAWS * p[i]) / (DRAWS * p[i]), cells++;
    }
    degrees = cells - 1;
    /* Wilson-Hilferty: above this once in a million fair runs. */
    const double z = cbrt(chi / degrees) * sqrt(4.5 * degrees) - (1 - 2.0 / (9 * degrees)) * sqrt(4.5 * degrees);
    assert_true(cells > 5 && z < 4.75);
}

static void distribution(void **state)
{
    Tail t = new_tail(300, 0);
    int same = 0;

    (void)state;
    t.params.temperature = 0.8f;
    t.params.top_k = 40;
    t.params.top_p = 0.95f;
    check_draws(&t);

    /* The sample's index and the seed matter. */
    for (int i = 0; i < 100; i++) {
        t.row.kv_len = i;
        t.params.sample = 0;
        const int a = run("sample", LEVELS - 1, &t, NULL).y;
        t.params.sample = 1;
        same += run("sample", LEVELS - 1, &t, NULL).y == a;
    }
    assert_true(same < 60);
    t.params.temperature = 1.5f;
    t.params.top_k = 0;
    t.params.top_p = 1.0f;
    t.params.typical_p = 0.7f;
    check_draws(&t);
    free(t.logits);
}

/* --- Hugging Face's stored probabilities --------------------------------------------------------- */

typedef struct Golden {
    json_t *json, *header;
    char *data;
} Golden;

static void golden_open(const char *dir, Golden *g)
{
    char path[400];
    uint64_t n;
    FILE *f;

    snprintf(path, sizeof path, "tests/models/%s/processors.json", dir);
    g->json = json_load_file(path, 0, NULL);
    assert_non_null(g->json);
    snprintf(path, sizeof path, "tests/models/%s/processors.safetensors", dir);
    f = fopen(path, "rb");
    assert_non_null(f);
    assert_int_equal(fread(&n, sizeof n, 1, f), 1);
    g->data = malloc(8 << 20);

    const size_t bytes = fread(g->data, 1, 8 << 20, f);

    assert_true(n < bytes && bytes < 8 << 20);
    g->header = json_loadb(g->data, n, 0, NULL);
    assert_non_null(g->header);
    memmove(g->data, g->data + n, bytes - n);
    fclose(f);
}

static const float *golden_tensor(const Golden *g, const char *name)
{
    json_t *at = json_object_get(g->header, name);

    if (!at)
        fail_msg("no tensor %s", name);
    return (const float *)(g->data + json_integer_value(json_array_get(json_object_get(at, "data_offsets"), 0)));
}

static FtxParams params_of(const char *name)
{
    FtxParams p = off;

    sscanf(name, "temperature_%f", &p.temperature);
    sscanf(name, "top_k_%d", &p.top_k);
    sscanf(name, "top_p_%f", &p.top_p);
    sscanf(name, "min_p_%f", &p.min_p);
    sscanf(name, "repetition_%f", &p.repetition);
    sscanf(name, "no_repeat_ngram_%d", &p.ngram);
    sscanf(name, "rep%f_temp%f_topk%d_topp%f", &p.repetition, &p.temperature, &p.top_k, &p.top_p);
    sscanf(name, "temp%f_minp%f", &p.temperature, &p.min_p);
    return p;
}

static void golden(void **state)
{
    static const char *const models[] = {"fable", "gpt2-fable"};

    (void)state;
    for (int m = 0; m < 2; m++) {
        Golden g;
        json_t *cases, *one, *processor;
        size_t c, i;

        golden_open(models[m], &g);
        cases = json_object_get(g.json, "cases");
        assert_true(json_array_size(cases) > 0);
        json_array_foreach(cases, c, one)
        {
            Tail t = {.V = 4096, .row = {.emit = 1, .limit = CONTEXT}};
            char name[200];

            snprintf(name, sizeof name, "%zu.logits", c);
            t.logits = (float *)golden_tensor(&g, name);
            json_array_foreach(json_object_get(one, "ids"), i, processor) t.history[t.row.kv_len++] =
                (int32_t)json_integer_value(processor);
            t.row.prompt = t.row.kv_len;
            json_array_foreach(json_object_get(g.json, "processors"), i, processor)
            {
                const char *which = json_string_value(processor);

                snprintf(name, sizeof name, "%zu.%s", c, which);
                t.params = params_of(which);
                assert_memory_not_equal(&t.params, &off, sizeof off);
                for (int level = 0; level < LEVELS; level++) {
                    const float *want = golden_tensor(&g, name);
                    float probs[4096];
                    int kept = 0;

                    run("sample_probs", level, &t, probs);
                    for (int id = 0; id < t.V; id++) {
                        kept += probs[id] > 0.0f;
                        if (!(fabsf(probs[id] - want[id]) <= 1e-5f))
                            fail_msg("%s %s %s: probability of %d is %.8g, should be %.8g", models[m], name,
                                     levels[level], id, probs[id], want[id]);
                    }
                    if (strncmp(which, "top_", 4) == 0)
                        assert_int_equal(kept,
                                         json_integer_value(json_object_get(json_object_get(one, "kept"), which)));
                }
            }
        }
        json_decref(g.json), json_decref(g.header), free(g.data);
    }
}

/* test_cpu_sample [NAME]: all but this one */
int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(philox),
        cmocka_unit_test(combinations),
        cmocka_unit_test(vocabularies),
        cmocka_unit_test(corners),
        cmocka_unit_test(near_ties),
        cmocka_unit_test(hottest),
        cmocka_unit_test(coldest),
        cmocka_unit_test(typical),
        cmocka_unit_test(simple_rows),
        cmocka_unit_test(distribution),
        cmocka_unit_test(golden),
        cmocka_unit_test(short_ngram),
        cmocka_unit_test(masked_as_sample),
        cmocka_unit_test(masked_ends),
        cmocka_unit_test(masked_shares),
        cmocka_unit_test(masked_far),
        cmocka_unit_test(words_as_long_as_the_text),
        cmocka_unit_test(not_finite), /* the others' numbers are as they were */
    };
    cmocka_set_skip_filter(argc > 1 ? argv[1] : NULL);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
