/* rounding.h - tolerances for decoders in 16 bits, measured with the plain passes (plain.h, plain_source.h): each
 * text is run once exactly and once with the result of every op rounded to that type.
 *
 * Call the measured difference d. A device rounds at other places, by as much: its results may be 2 d from the exact
 * ones. Two passes of a device over one text (other step sizes, or a prompt against token by token) may then differ
 * by 4 d, and the gap between two sums of log-probabilities by 8 d. */
#ifndef FTX_TEST_ROUNDING_H
#define FTX_TEST_ROUNDING_H

#include <math.h>

#include "golden.h"
#include "plain.h"
#include "plain_source.h"

/* FTX_TEST_TOLERANCE=0 marks a run in 16 bits. Checks that do not depend on the type are skipped then. */
static inline bool in_16_bits(void)
{
    const char *t = getenv("FTX_TEST_TOLERANCE");

    return t && atof(t) == 0.0;
}

enum { ROUNDING_MOST = 24 }; /* tokens of a text */

typedef struct Rounding {
    bool any;                        /* 0: fp32, the other fields are not used */
    double share;                    /* share of searches or drawn tokens that may differ from the reference */
    double logit, logprob;           /* of any id; of ids likely enough to be chosen */
    double total[ROUNDING_MOST + 1]; /* [n]: of the sum of n log-probabilities */
} Rounding;

/* Measured on an H200: in fp16 6 of 100 searches differ from the plain one. bf16 rounds eight times as coarsely, and
 * more differ. The limits keep most results compared. */
static inline void rounding_type(Rounding *r, DType type)
{
    r->any = type != DT_FP32;
    r->share = type == DT_FP32 ? 0.0 : type == DT_FP16 ? 1.0 / 6.0 : 0.5;
}

/* Counts over all tests of a file: searches or tokens, and how many of them differ ("part") from their reference. */
typedef struct Partings {
    int all, parted;
    double share; /* limit of parted / all */
} Partings;

static Partings partings;

static inline void count_partings(int all, int parted, double share)
{
    partings.all += all;
    partings.parted += parted;
    partings.share = fmax(partings.share, share);
}

/* The last test of a file: in fp32 no result differs; in 16 bits no more than the share that may. */
static inline void few_part(void **state)
{
    (void)state;
    print_message("%d of %d part from their reference\n", partings.parted, partings.all);
    assert_true(partings.parted <= partings.share * partings.all);
}

/* Largest allowed differences between two passes of a device. */
static inline double rounding_logit(const Rounding *r)
{
    return 4.0 * r->logit;
}
static inline double rounding_logprob(const Rounding *r)
{
    return 4.0 * r->logprob;
}
static inline double rounding_total(const Rounding *r, int n)
{
    return 4.0 * (n <= ROUNDING_MOST ? r->total[n] : r->total[ROUNDING_MOST] * n / ROUNDING_MOST);
}

/* Adds the logits [V] after the i-th token of a text, exact and rounded. */
static inline void rounding_add(Rounding *r, int V, const float *exact, const float *rounded, int i, double *sum)
{
    const double likely = 8.0; /* nats below the best */
    const double shift = ref_logsumexp(rounded, V) - ref_logsumexp(exact, V);
    double next = 0.0;
    int best = 0;

    for (int id = 1; id < V; id++)
        best = exact[id] > exact[best] ? id : best;
    for (int id = 0; id < V; id++) {
        const double d = (double)rounded[id] - (double)exact[id];

        r->logit = fmax(r->logit, fabs(d));
        if ((double)exact[best] - (double)exact[id] < likely)
            next = fmax(next, fabs(d - shift));
    }
    r->logprob = fmax(r->logprob, next);
    r->total[i + 1] = fmax(r->total[i + 1], fabs(*sum) + next);
    *sum += (double)rounded[best] - (double)exact[best] - shift;
}

/* Makes total[] non-decreasing: a longer text never has a smaller tolerance. */
static inline void rounding_end(const char *name, Rounding *r, int n)
{
    for (int i = 1; i <= ROUNDING_MOST; i++)
        r->total[i] = fmax(r->total[i], r->total[i - 1]);
    print_message("%s: rounding moves a logit by %.1e, a log-probability by %.1e, the sum of %d by %.1e\n", name,
                  r->logit, r->logprob, n, r->total[n]);
}

/* --- decoders ---------------------------------------------------------------------------------------- */

/* The shape of an artifact of specs/llama.lua or gpt2.lua. */
static inline OddShape rounding_shape(PlainWeights *w, const char *activation, int window)
{
    const FtxFacts *f = w->artifact.facts;
    const FtxCache *cache = w->artifact.plans[0].caches;
    OddShape s = {.layers = (int)f->layers,
                  .hidden = (int)f->hidden,
                  .heads = (int)f->heads,
                  .kv_heads = (int)cache->kv_heads,
                  .head_dim = (int)cache->k_dim,
                  .vocab = (int)f->vocab,
                  .context = 2 * ROUNDING_MOST,
                  .window = window,
                  .rope = "",
                  .tie = true};

    for (uint32_t i = 0; i < w->artifact.n_weights; i++) {
        const FtxWeight *one = &w->artifact.weights[i];
        const char *name = artifact_string(&w->artifact, one->name);

        if (strstr(name, "mlp.down_proj.weight"))
            s.ffn = (int)one->dim[1];
        if (strstr(name, "mlp.c_fc.weight"))
            s.ffn = (int)one->dim[0];
        s.gpt2 = s.gpt2 || strcmp(name, "transformer.wte.weight") == 0;
        s.tie = s.tie && strcmp(name, "lm_head.weight") != 0;
    }
    s.activation = activation ? activation : s.gpt2 ? "gelu_tanh" : "silu";
    return s;
}

/* Measures an artifact with some texts, ids [texts][ROUNDING_MOST]. seed: that of its random weights; 0: the artifact
 * has weights. */
static inline Rounding rounding_of_decoder(const char *path, uint64_t seed, int window, const int32_t *ids, int texts)
{
    PlainWeights weights;
    Rounding r = {.any = false};

    plain_weights_open(&weights, path);
    const OddShape s = rounding_shape(&weights, NULL, window);
    const DType type = plain_type(&weights);

    plain_weights_close(&weights);
    for (int t = 0; t < texts && type != DT_FP32; t++) {
        float *rounded = malloc(sizeof *rounded * (size_t)(ROUNDING_MOST * s.vocab));
        double sum = 0.0;

        for (int pass = 0; pass < 2; pass++) {
            Plain m;

            plain_open(&m, path, &s);
            m.weights.seed = seed;
            m.round = pass ? DT_FP32 : type;
            plain_run(&m, ids + t * ROUNDING_MOST, ROUNDING_MOST, 0);
            for (int i = 0; i < ROUNDING_MOST; i++) {
                plain_logits(&m, i);
                if (pass)
                    rounding_add(&r, s.vocab, m.logits, rounded + (size_t)(i * s.vocab), i, &sum);
                else
                    memcpy(rounded + (size_t)(i * s.vocab), m.logits, sizeof *rounded * (size_t)s.vocab);
            }
            plain_close(&m);
        }
        free(rounded);
    }
    rounding_type(&r, type);
    if (r.any)
        rounding_end(strrchr(path, '/') + 1, &r, ROUNDING_MOST);
    return r;
}

/* --- encoder-decoders ---------------------------------------------------------------------------------- */

/* Measures an encoder-decoder that the caller has opened. ids [texts][ROUNDING_MOST] follow the start token;
 * source: [texts][n_source]. */
static inline Rounding rounding_of_source(const char *name, PlainSource *m, const int32_t *source, int n_source,
                                          const int32_t *ids, int texts)
{
    const DType type = plain_source_type(m);
    const int V = (int)m->facts->vocab;
    const int n = (int)m->facts->context < ROUNDING_MOST ? (int)m->facts->context : ROUNDING_MOST;
    float *rounded = malloc(sizeof *rounded * (size_t)(ROUNDING_MOST * V));
    Rounding r = {.any = false};

    rounding_type(&r, type);
    for (int t = 0; t < texts && r.any; t++) {
        double sum = 0.0;

        m->round = type;
        plain_source_run(m, source + t * n_source, n_source, ids + t * ROUNDING_MOST, n - 1);
        for (int i = 0; i < n; i++)
            plain_source_logits(m, i, rounded + (size_t)(i * V));
        m->round = DT_FP32;
        plain_source_run(m, source + t * n_source, n_source, ids + t * ROUNDING_MOST, n - 1);
        for (int i = 0; i < n; i++) {
            plain_source_logits(m, i, m->logits);
            rounding_add(&r, V, m->logits, rounded + (size_t)(i * V), i, &sum);
        }
    }
    free(rounded);
    if (r.any)
        rounding_end(name, &r, n);
    return r;
}

#endif
