/* plain_source.h - reference forward pass of a post-norm encoder-decoder, by kernels/ref from the packed weights of
 * an artifact: the next-token logits for a given source and given decoder ids.
 *
 * With `round` the result of every op is rounded to that type, as in plain_text.h. The distance of these logits from
 * the exact ones gives the tolerance for a device that computes in that type. */
#ifndef FTX_TEST_PLAIN_SOURCE_H
#define FTX_TEST_PLAIN_SOURCE_H

#include <math.h>

#include "plain_weights.h"

enum { PLAIN_MOST = 256 }; /* most tokens of the encoder, and of the decoder */

typedef struct PlainSource {
    PlainWeights weights;
    const FtxFacts *facts;
    FtxAct act;
    bool scaled; /* embeddings are multiplied by sqrt(D) */
    int ffn, first_position, encoder_layers;
    DType round;             /* DT_FP32: no rounding */
    float *source, *hidden;  /* [n, D]: hidden states of the encoder, of the decoder */
    float *x, *y, *kv, *sum; /* [n, widest] */
    float *logits, *more;    /* [V]; [V], for a second set of logits */
} PlainSource;

static inline void plain_source_open(PlainSource *m, const char *path, FtxAct act, bool scaled, int first_position)
{
    *m = (PlainSource){.act = act, .scaled = scaled, .first_position = first_position, .round = DT_FP32};
    plain_weights_open(&m->weights, path);
    m->facts = m->weights.artifact.facts;
    for (uint32_t i = 0; i < m->weights.artifact.n_weights; i++) {
        const char *name = artifact_string(&m->weights.artifact, m->weights.artifact.weights[i].name);
        const char *fc1 = strstr(name, ".fc1.weight");

        if (!fc1 || strcmp(fc1, ".fc1.weight") != 0) /* skip ".fc1.weight" + suffix: a copy with a norm folded in */
            continue;
        m->ffn = (int)m->weights.artifact.weights[i].dim[0];
        m->encoder_layers += strncmp(name, "encoder.", 8) == 0;
    }

    const size_t D = m->facts->hidden, widest = 3 * D > (size_t)m->ffn ? 3 * D : (size_t)m->ffn;
    float **const rows[] = {&m->source, &m->hidden, &m->x, &m->y, &m->kv, &m->sum};
    float **const columns[] = {&m->logits, &m->more};

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        *rows[i] = calloc(PLAIN_MOST * widest, sizeof(float));
    for (size_t i = 0; i < sizeof columns / sizeof *columns; i++)
        *columns[i] = calloc(m->facts->vocab, sizeof(float));
}

static inline void plain_source_close(PlainSource *m)
{
    float *const own[] = {m->source, m->hidden, m->x, m->y, m->kv, m->sum, m->logits, m->more};

    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        free(own[i]);
    plain_weights_close(&m->weights);
}

static inline void plain_source_keep(const PlainSource *m, float *x, int n)
{
    plain_round(m->round, x, n);
}

/* name: such as "encoder.layers.%d.fc1"; part: "weight" or "bias". */
static inline RefTensor plain_source_part(PlainSource *m, const char *name, const char *part, int layer)
{
    char format[120];

    snprintf(format, sizeof format, "%s.%s", name, part);
    return plain_weight(&m->weights, true, format, layer);
}

static inline void plain_source_project(PlainSource *m, const char *name, int layer, const float *x, int M, int N,
                                        int K, float *y)
{
    ref_linear(plain_of(x), plain_source_part(m, name, "weight", layer), plain_source_part(m, name, "bias", layer), M,
               N, K, y);
    plain_source_keep(m, y, M * N);
}

static inline void plain_source_norm(PlainSource *m, const char *name, int layer, int n, float *h)
{
    const int D = (int)m->facts->hidden;

    ref_layernorm(plain_of(h), plain_source_part(m, name, "weight", layer), plain_source_part(m, name, "bias", layer),
                  1e-5, n, D, h);
    plain_source_keep(m, h, n * D);
}

/* h = norm(h + y) */
static inline void plain_source_add(PlainSource *m, const char *norm, int layer, int n, const float *y, float *h)
{
    const int D = (int)m->facts->hidden;

    ref_add(plain_of(h), plain_of(y), (int64_t)n * D, h);
    plain_source_keep(m, h, n * D);
    plain_source_norm(m, norm, layer, n, h);
}

static inline void plain_source_embed(PlainSource *m, bool encoder, const int32_t *ids, int n, float *h)
{
    const int D = (int)m->facts->hidden;
    const char *side = encoder ? "encoder.embed_positions.weight" : "decoder.embed_positions.weight";
    const char *norm = encoder ? "encoder.layernorm_embedding" : "decoder.layernorm_embedding";
    const RefTensor w = plain_weight(&m->weights, true, "shared.weight", 0);
    const RefTensor learned = plain_weight(&m->weights, false, side, 0);
    const RefTensor p = learned.p ? learned : plain_weight(&m->weights, true, "sinusoid", 0);

    for (int t = 0; t < n; t++)
        for (int i = 0; i < D; i++)
            h[t * D + i] = (float)(ref_at(w, (int64_t)ids[t] * D + i) * (m->scaled ? sqrt(D) : 1.0));
    plain_source_keep(m, h, n * D);
    for (int i = 0; i < n * D; i++)
        h[i] = (float)((double)h[i] + ref_at(p, (int64_t)m->first_position * D + i));
    plain_source_keep(m, h, n * D);
    if (m->first_position) /* BART */
        plain_source_norm(m, norm, 0, n, h);
}

/* Attention of n queries [n, D] over keys and values [of, D]; the strides are those of rows. causal: a query sees
 * keys up to its own position. */
static inline void plain_source_attend(PlainSource *m, const float *q, int q_stride, int n, const float *k,
                                       const float *v, int stride, int of, bool causal, float *y)
{
    const int D = (int)m->facts->hidden, E = D / (int)m->facts->heads;

    for (int t = 0; t < n; t++)
        for (int i = 0; i < D; i += E)
            ref_attend_rows(plain_of(q), (int64_t)t * q_stride + i, plain_of(k), plain_of(v), i, stride,
                            causal ? t + 1 : of, E, 1.0 / sqrt(E), y + t * D + i);
    plain_source_keep(m, y, n * D);
}

static inline void plain_source_self(PlainSource *m, bool encoder, int layer, int n, float *h)
{
    const int D = (int)m->facts->hidden;

    plain_source_project(
        m, encoder ? "encoder.layers.%d.self_attn.{q,k,v}_proj" : "decoder.layers.%d.self_attn.{q,k,v}_proj", layer, h,
        n, 3 * D, D, m->x);
    plain_source_attend(m, m->x, 3 * D, n, m->x + D, m->x + 2 * D, 3 * D, n, !encoder, m->y);
    plain_source_project(m, encoder ? "encoder.layers.%d.self_attn.out_proj" : "decoder.layers.%d.self_attn.out_proj",
                         layer, m->y, n, D, D, m->x);
    plain_source_add(m, encoder ? "encoder.layers.%d.self_attn_layer_norm" : "decoder.layers.%d.self_attn_layer_norm",
                     layer, n, m->x, h);
}

static inline void plain_source_cross(PlainSource *m, int layer, int n_source, int n, float *h)
{
    const int D = (int)m->facts->hidden;

    plain_source_project(m, "decoder.layers.%d.encoder_attn.{k,v}_proj", layer, m->source, n_source, 2 * D, D, m->kv);
    plain_source_project(m, "decoder.layers.%d.encoder_attn.q_proj", layer, h, n, D, D, m->x);
    plain_source_attend(m, m->x, D, n, m->kv, m->kv + D, 2 * D, n_source, false, m->y);
    plain_source_project(m, "decoder.layers.%d.encoder_attn.out_proj", layer, m->y, n, D, D, m->x);
    plain_source_add(m, "decoder.layers.%d.encoder_attn_layer_norm", layer, n, m->x, h);
}

static inline void plain_source_feed(PlainSource *m, bool encoder, int layer, int n, float *h)
{
    const int D = (int)m->facts->hidden;

    plain_source_project(m, encoder ? "encoder.layers.%d.fc1" : "decoder.layers.%d.fc1", layer, h, n, m->ffn, D, m->x);
    ref_act(plain_of(m->x), m->act, (int64_t)n * m->ffn, m->x);
    plain_source_keep(m, m->x, n * m->ffn);
    plain_source_project(m, encoder ? "encoder.layers.%d.fc2" : "decoder.layers.%d.fc2", layer, m->x, n, D, m->ffn,
                         m->y);
    plain_source_add(m, encoder ? "encoder.layers.%d.final_layer_norm" : "decoder.layers.%d.final_layer_norm", layer, n,
                     m->y, h);
}

/* Runs the encoder on the source, then the decoder on the start token and n ids. */
static inline void plain_source_run(PlainSource *m, const int32_t *source, int n_source, const int32_t *ids, int n)
{
    const FtxFacts *f = m->facts;
    int32_t given[PLAIN_MOST];

    assert_true(n + 1 <= PLAIN_MOST && n_source <= PLAIN_MOST);
    given[0] = f->start;
    for (int i = 0; i < n; i++)
        given[1 + i] = ids[i];
    plain_source_embed(m, true, source, n_source, m->source);
    for (int i = 0; i < m->encoder_layers; i++) {
        plain_source_self(m, true, i, n_source, m->source);
        plain_source_feed(m, true, i, n_source, m->source);
    }
    plain_source_embed(m, false, given, n + 1, m->hidden);
    for (int i = 0; i < (int)f->layers; i++) {
        plain_source_self(m, false, i, n + 1, m->hidden);
        plain_source_cross(m, i, n_source, n + 1, m->hidden);
        plain_source_feed(m, false, i, n + 1, m->hidden);
    }
}

/* Writes the logits [V] of the decoder's row n to `to`. */
static inline void plain_source_logits(PlainSource *m, int n, float *to)
{
    const int D = (int)m->facts->hidden;
    const RefTensor own = plain_weight(&m->weights, false, "lm_head.weight", 0);

    ref_linear(plain_of(m->hidden + n * D), own.p ? own : plain_weight(&m->weights, true, "shared.weight", 0),
               plain_weight(&m->weights, false, "final_logits_bias", 0), 1, (int)m->facts->vocab, D, to);
}

/* Writes the logits [V] after the start token and n ids to `to`. */
static inline void plain_source(PlainSource *m, const int32_t *source, int n_source, const int32_t *ids, int n,
                                float *to)
{
    plain_source_run(m, source, n_source, ids, n);
    plain_source_logits(m, n, to);
}

static inline DType plain_source_type(const PlainSource *m)
{
    return plain_type(&m->weights);
}

/* Writes the exact logits to m->logits. Returns the largest difference of a logit when values are kept in `type`. */
static inline double plain_source_rounding(PlainSource *m, DType type, const int32_t *source, int n_source,
                                           const int32_t *ids, int n)
{
    double far = 0.0;

    m->round = type;
    plain_source(m, source, n_source, ids, n, m->more);
    m->round = DT_FP32;
    plain_source(m, source, n_source, ids, n, m->logits);
    for (uint32_t i = 0; i < m->facts->vocab; i++)
        far = fmax(far, fabs((double)(m->more[i] - m->logits[i])));
    return far;
}

/* Writes the exact logits to m->logits. Returns the tolerance for a device: 1e-3, and in 16 bits also twice the
 * effect of rounding on this pass. Twice, since the device's own rounding errors are as large but different ones. */
static inline double plain_source_allowed(PlainSource *m, const int32_t *source, int n_source, const int32_t *ids,
                                          int n)
{
    return 1e-3 + 2.0 * plain_source_rounding(m, plain_source_type(m), source, n_source, ids, n);
}

#endif
