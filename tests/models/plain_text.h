/* plain_text.h - reference forward pass of an encoder, one text at a time, by kernels/ref from the packed weights of
 * an artifact. The vectors of every device are compared with it.
 *
 * With `round` the result of every op is rounded to that type, as a device stores it between kernels. The distance of
 * this pass from the exact one gives the tolerance for a device that computes in that type. */
#ifndef FTX_TEST_PLAIN_TEXT_H
#define FTX_TEST_PLAIN_TEXT_H

#include <math.h>

#include "plain_weights.h"

typedef struct PlainNames { /* names of tensors in the checkpoint; %d: the layer */
    const char *norm, *qkv, *out, *attention_norm, *up, *down, *last_norm;
    const char *head, *classifier; /* classification head on the first token; head NULL: none */
} PlainNames;

static const PlainNames plain_bert = {"embeddings.LayerNorm",
                                      "encoder.layer.%d.attention.self.{query,key,value}",
                                      "encoder.layer.%d.attention.output.dense",
                                      "encoder.layer.%d.attention.output.LayerNorm",
                                      "encoder.layer.%d.intermediate.dense",
                                      "encoder.layer.%d.output.dense",
                                      "encoder.layer.%d.output.LayerNorm",
                                      "pooler.dense",
                                      "classifier"};
static const PlainNames plain_distilbert = {"embeddings.LayerNorm",
                                            "transformer.layer.%d.attention.{q,k,v}_lin",
                                            "transformer.layer.%d.attention.out_lin",
                                            "transformer.layer.%d.sa_layer_norm",
                                            "transformer.layer.%d.ffn.lin1",
                                            "transformer.layer.%d.ffn.lin2",
                                            "transformer.layer.%d.output_layer_norm",
                                            NULL,
                                            "classifier"};

typedef enum PlainPool { PLAIN_NONE, PLAIN_POOLER, PLAIN_FIRST, PLAIN_MEAN } PlainPool;

typedef struct PlainText {
    PlainWeights weights;
    const FtxFacts *facts;
    PlainNames names;
    int first_position, ffn;
    FtxAct act;
    PlainPool pool;
    bool normalize;
    DType round; /* DT_FP32: no rounding */
    /* buffers, [context, widest]; plain_text fills them */
    float *x, *y;
    float *entry, *hidden; /* [n, D]: before the first layer, after the last */
    float *pooled;         /* [P] */
} PlainText;

static inline RefTensor plain_part(PlainText *m, const char *name, const char *part, int layer)
{
    char format[120];

    snprintf(format, sizeof format, "%s.%s", name, part);
    return plain_weight(&m->weights, true, format, layer);
}

static inline void plain_text_open(PlainText *m, const char *path, PlainNames names)
{
    *m = (PlainText){.names = names, .act = FTX_ACT_GELU_ERF, .round = DT_FP32};
    plain_weights_open(&m->weights, path);
    m->facts = m->weights.artifact.facts;
    for (uint32_t i = 0; i < m->weights.artifact.n_weights; i++)
        if (strstr(artifact_string(&m->weights.artifact, m->weights.artifact.weights[i].name),
                   strchr(names.up, '%') + 3)) /* ".intermediate.dense.weight", or its bias */
            m->ffn = (int)m->weights.artifact.weights[i].dim[0];

    const size_t D = m->facts->hidden, widest = 3 * D > (size_t)m->ffn ? 3 * D : (size_t)m->ffn;
    float **const rows[] = {&m->x, &m->y, &m->entry, &m->hidden, &m->pooled};

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        *rows[i] = calloc(m->facts->context * widest + m->facts->pooled, sizeof(float));
}

static inline void plain_text_close(PlainText *m)
{
    float *const own[] = {m->x, m->y, m->entry, m->hidden, m->pooled};

    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        free(own[i]);
    plain_weights_close(&m->weights);
}

/* Rounds n values to m->round, as a device stores them. */
static inline void plain_keep(const PlainText *m, float *x, int n)
{
    plain_round(m->round, x, n);
}

static inline void plain_project(PlainText *m, const float *x, const char *name, int layer, int M, int N, int K,
                                 float *y)
{
    ref_linear(plain_of(x), plain_part(m, name, "weight", layer), plain_part(m, name, "bias", layer), M, N, K, y);
}

static inline void plain_layernorm(PlainText *m, const char *name, int layer, double eps, int n, float *x)
{
    ref_layernorm(plain_of(x), plain_part(m, name, "weight", layer), plain_part(m, name, "bias", layer), eps, n,
                  (int)m->facts->hidden, x);
}

static inline void plain_embed(PlainText *m, const int32_t *ids, const int32_t *types, int n, double eps)
{
    const int D = (int)m->facts->hidden;
    const RefTensor w = plain_weight(&m->weights, true, "embeddings.word_embeddings.weight", 0);
    const RefTensor p = plain_weight(&m->weights, true, "embeddings.position_embeddings.weight", 0);
    const RefTensor s = plain_weight(&m->weights, m->facts->types, "embeddings.token_type_embeddings.weight", 0);

    for (int t = 0; t < n; t++)
        for (int i = 0; i < D; i++)
            m->entry[t * D + i] =
                (float)(ref_at(w, (int64_t)ids[t] * D + i) + ref_at(p, (int64_t)(t + m->first_position) * D + i) +
                        (s.p ? ref_at(s, (int64_t)(types ? types[t] : 0) * D + i) : 0.0));
    plain_keep(m, m->entry, n * D);
    plain_layernorm(m, m->names.norm, 0, eps, n, m->entry);
    plain_keep(m, m->entry, n * D);
}

static inline void plain_layer(PlainText *m, int layer, int n, double eps)
{
    const FtxFacts *f = m->facts;
    const int D = (int)f->hidden, E = D / (int)f->heads;
    const FtxRow row = {.q_len = n, .kv_len = n};
    const bool last = layer + 1 == (int)f->layers;

    plain_project(m, m->hidden, m->names.qkv, layer, n, 3 * D, D, m->x);
    plain_keep(m, m->x, n * 3 * D);
    ref_attend_packed(m->x, &row, 1, (int)f->heads, (int)f->heads, E, 1.0 / sqrt(E), m->y);
    plain_keep(m, m->y, n * D);
    plain_project(m, m->y, m->names.out, layer, n, D, D, m->x);
    ref_add(plain_of(m->hidden), plain_of(m->x), (int64_t)n * D, m->hidden);
    plain_keep(m, m->hidden, n * D);
    plain_layernorm(m, m->names.attention_norm, layer, eps, n, m->hidden);
    plain_keep(m, m->hidden, n * D);
    plain_project(m, m->hidden, m->names.up, layer, n, m->ffn, D, m->x);
    ref_act(plain_of(m->x), m->act, (int64_t)n * m->ffn, m->x);
    plain_keep(m, m->x, n * m->ffn);
    plain_project(m, m->x, m->names.down, layer, n, D, m->ffn, m->y);
    ref_add(plain_of(m->hidden), plain_of(m->y), (int64_t)n * D, m->hidden);
    plain_keep(m, m->hidden, n * D);
    plain_layernorm(m, m->names.last_norm, layer, eps, n, m->hidden);
    if (!last) /* the output is fp32 */
        plain_keep(m, m->hidden, n * D);
}

static inline void plain_pool(PlainText *m, int n)
{
    const int D = (int)m->facts->hidden, P = (int)m->facts->pooled;
    const FtxRow row = {.q_len = n};
    const bool classifier = plain_weight(&m->weights, false, "classifier.weight", 0).p;

    memcpy(m->x, m->hidden, (size_t)D * sizeof *m->x);
    if (m->pool == PLAIN_MEAN)
        ref_pool_mean(plain_of(m->hidden), &row, 1, D, m->x);
    if (m->pool == PLAIN_POOLER) {
        plain_keep(m, m->x, D);
        plain_project(m, m->x, m->names.head, 0, 1, D, D, m->y);
        ref_act(plain_of(m->y), FTX_ACT_TANH, D, m->x);
    }
    memcpy(m->pooled, m->x, (size_t)D * sizeof *m->x);
    if (classifier) {
        plain_keep(m, m->x, D);
        plain_project(m, m->x, m->names.classifier, 0, 1, P, D, m->pooled);
    }
    if (m->normalize)
        ref_normalize(plain_of(m->pooled), 1e-12, 1, P, m->pooled);
}

/* Runs a text of n ids (types NULL: all 0). Results: m->entry, m->hidden and m->pooled. */
static inline void plain_text(PlainText *m, const int32_t *ids, const int32_t *types, int n)
{
    const double eps = 1e-12; /* the same for all models of these tests */

    plain_embed(m, ids, types, n, eps);
    memcpy(m->hidden, m->entry, (size_t)n * m->facts->hidden * sizeof *m->hidden);
    for (int i = 0; i < (int)m->facts->layers; i++)
        plain_layer(m, i, n, eps);
    if (m->pool)
        plain_pool(m, n);
}

/* --- the effect of rounding --------------------------------------------------------------------------- */

static inline DType plain_text_type(const PlainText *m) /* compute type of the artifact's first plan */
{
    return (DType)m->weights.artifact.plans[0].head->compute_type;
}

/* Largest difference between the exact pass over n ids and the one that keeps its values in `type`. */
static inline double plain_text_rounding(PlainText *m, DType type, const int32_t *ids, int n)
{
    const size_t rows = (size_t)n * m->facts->hidden, P = m->facts->pooled;
    float *hidden = malloc((rows + P) * sizeof *hidden), *pooled = hidden + rows;
    double far = 0.0;

    m->round = DT_FP32;
    plain_text(m, ids, NULL, n);
    memcpy(hidden, m->hidden, rows * sizeof *hidden);
    memcpy(pooled, m->pooled, P * sizeof *pooled);
    m->round = type;
    plain_text(m, ids, NULL, n);
    for (size_t i = 0; i < rows; i++)
        far = fmax(far, fabs((double)(m->hidden[i] - hidden[i])));
    for (size_t i = 0; i < P; i++)
        far = fmax(far, fabs((double)(m->pooled[i] - pooled[i])));
    m->round = DT_FP32;
    free(hidden);
    return far;
}

/* Tolerance for a device: 1e-4, and in 16 bits also twice the effect of rounding on the plain pass (`far`). Twice,
 * since the device's own rounding errors are as large but different ones. */
static inline double plain_text_allowed(const PlainText *m, double far)
{
    return plain_text_type(m) == DT_FP32 ? 1e-4 : 1e-4 + 2.0 * far;
}

/* Opens the artifact of a checkout of tests/models; `name` tells the architecture. */
static inline void plain_text_named(PlainText *m, const char *path, const char *name)
{
    plain_text_open(m, path, strstr(name, "distil") ? plain_distilbert : plain_bert);
    m->first_position = strstr(name, "roberta") ? 1 + (int)m->facts->pad : 0;
    m->pool = !m->facts->pooled                                              ? PLAIN_NONE
              : plain_weight(&m->weights, false, "pooler.dense.weight", 0).p ? PLAIN_POOLER
                                                                             : PLAIN_MEAN;
}

#endif
