/* plain.h - reference forward pass of a decoder, one sequence at a time, by kernels/ref from the packed weights of
 * an artifact. The logits of every device are compared with it.
 *
 * Weights have the artifact's storage type and are widened to fp32. Keys and values are kept in
 * fp32, in one page as long as the context. With `round` the result of every op is rounded to that
 * type, as in plain_text.h. */
#ifndef FTX_TEST_PLAIN_H
#define FTX_TEST_PLAIN_H

#include <math.h>

#include "odd.h"
#include "plain_weights.h"

typedef struct Plain {
    PlainWeights weights;
    const OddShape *shape;
    FtxAct act;
    DType round;  /* DT_FP32: no rounding */
    float *k, *v; /* [layers][kv_heads][context][head_dim] */
    int32_t *history;
    float *h, *n, *x, *q, *a; /* [context, widest] */
    float *logits;            /* [vocab] */
} Plain;

static inline void plain_open(Plain *m, const char *path, const OddShape *s)
{
    static const char *const names[] = {[FTX_ACT_RELU] = "relu",
                                        [FTX_ACT_GELU_ERF] = "gelu_erf",
                                        [FTX_ACT_GELU_TANH] = "gelu_tanh",
                                        [FTX_ACT_QUICK_GELU] = "quick_gelu",
                                        [FTX_ACT_SILU] = "silu"};
    const int qkv = (s->heads + 2 * s->kv_heads) * s->head_dim, most = 2 * s->ffn > s->hidden ? 2 * s->ffn : s->hidden;
    const size_t widest = (size_t)(qkv > most ? qkv : most) * (size_t)s->context;
    const size_t cache = (size_t)(s->layers * s->kv_heads * s->context * s->head_dim);

    *m = (Plain){.shape = s, .round = DT_FP32};
    plain_weights_open(&m->weights, path);
    for (int i = FTX_ACT_RELU; i <= FTX_ACT_SILU; i++)
        if (strcmp(names[i], s->activation) == 0)
            m->act = (FtxAct)i;
    m->k = calloc(cache, sizeof(float));
    m->v = calloc(cache, sizeof(float));
    m->history = calloc((size_t)s->context, sizeof(int32_t));
    float **const rows[] = {&m->h, &m->n, &m->x, &m->q, &m->a};
    for (size_t i = 0; i < 5; i++)
        *rows[i] = calloc(widest, sizeof(float));
    m->logits = calloc((size_t)s->vocab, sizeof(float));
}

static inline void plain_close(Plain *m)
{
    float *const own[] = {m->k, m->v, m->h, m->n, m->x, m->q, m->a, m->logits};

    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        free(own[i]);
    free(m->history);
    plain_weights_close(&m->weights);
}

static inline void plain_norm(Plain *m, const float *x, const char *gain, const char *bias, int layer, int T, float *y)
{
    const RefTensor g = plain_weight(&m->weights, true, gain, layer);

    if (bias)
        ref_layernorm(plain_of(x), g, plain_weight(&m->weights, true, bias, layer), 1e-5, T, m->shape->hidden, y);
    else
        ref_rmsnorm(plain_of(x), g, 1e-5, T, m->shape->hidden, y);
    plain_round(m->round, y, T * m->shape->hidden);
}

static inline void plain_attention(Plain *m, int layer, const FtxToken *token, int T, int from)
{
    const OddShape *s = m->shape;
    const int H = s->heads, G = s->kv_heads, E = s->head_dim;
    const bool gpt2 = s->gpt2;
    const size_t each = (size_t)(G * s->context * E);
    const int32_t page = 0;
    const RefCache cache = {
        m->k + each * (size_t)layer, m->v + each * (size_t)layer, DT_FP32, &page, 1, s->context, G, E};
    const FtxRow row = {.q_len = T, .kv_len = from + T};
    const double scale = 1.0 / sqrt(E) / (s->by_layer ? layer + 1 : 1);
    const float *table = NULL;
    int rot = 0;

    if (!gpt2) {
        table = plain_weight(&m->weights, true, "rope_table", 0).p;
        rot = strcmp(s->rope, "dim = 8") == 0 ? 8 : E;
    }
    ref_linear(
        plain_of(m->n),
        plain_weight(&m->weights, true,
                     gpt2 ? "transformer.h.%d.attn.c_attn.weight" : "model.layers.%d.self_attn.{q,k,v}_proj.weight",
                     layer),
        plain_weight(&m->weights, gpt2 || s->attention_bias,
                     gpt2 ? "transformer.h.%d.attn.c_attn.bias" : "model.layers.%d.self_attn.{q,k,v}_proj.bias", layer),
        T, (H + 2 * G) * E, s->hidden, m->x);
    plain_round(m->round, m->x, T * (H + 2 * G) * E);
    ref_append(plain_of(m->x), table, token, T, H, rot, &cache, m->q);
    plain_round(m->round, m->q, T * H * E);
    plain_round(m->round, cache.k, (int)each);
    ref_attend(plain_of(m->q), &row, 1, H, scale, s->window, 0.0, &cache, m->a);
    plain_round(m->round, m->a, T * H * E);
    ref_linear(
        plain_of(m->a),
        plain_weight(&m->weights, true,
                     gpt2 ? "transformer.h.%d.attn.c_proj.weight" : "model.layers.%d.self_attn.o_proj.weight", layer),
        plain_weight(&m->weights, gpt2 || s->attention_bias,
                     gpt2 ? "transformer.h.%d.attn.c_proj.bias" : "model.layers.%d.self_attn.o_proj.bias", layer),
        T, s->hidden, H * E, m->x);
    plain_round(m->round, m->x, T * s->hidden);
}

static inline void plain_mlp(Plain *m, int layer, int T)
{
    const OddShape *s = m->shape;
    const bool gpt2 = s->gpt2, bias = gpt2 || s->mlp_bias;

    ref_linear(plain_of(m->n),
               plain_weight(&m->weights, true,
                            gpt2 ? "transformer.h.%d.mlp.c_fc.weight" : "model.layers.%d.mlp.{gate,up}_proj.weight",
                            layer),
               plain_weight(&m->weights, bias,
                            gpt2 ? "transformer.h.%d.mlp.c_fc.bias" : "model.layers.%d.mlp.{gate,up}_proj.bias", layer),
               T, gpt2 ? s->ffn : 2 * s->ffn, s->hidden, m->x);
    plain_round(m->round, m->x, T * (gpt2 ? s->ffn : 2 * s->ffn));
    if (gpt2)
        ref_act(plain_of(m->x), m->act, (int64_t)T * s->ffn, m->a);
    else
        ref_glu(plain_of(m->x), m->act, T, s->ffn, m->a);
    plain_round(m->round, m->a, T * s->ffn);
    ref_linear(plain_of(m->a),
               plain_weight(&m->weights, true,
                            gpt2 ? "transformer.h.%d.mlp.c_proj.weight" : "model.layers.%d.mlp.down_proj.weight",
                            layer),
               plain_weight(&m->weights, bias,
                            gpt2 ? "transformer.h.%d.mlp.c_proj.bias" : "model.layers.%d.mlp.down_proj.bias", layer),
               T, s->hidden, s->ffn, m->x);
    plain_round(m->round, m->x, T * s->hidden);
}

/* h + x */
static inline void plain_add(Plain *m, int T)
{
    const int n = T * m->shape->hidden;

    ref_add(plain_of(m->h), plain_of(m->x), n, m->h);
    plain_round(m->round, m->h, n);
}

/* Logits of row t of the last plain_run. */
static inline void plain_logits(Plain *m, int t)
{
    const OddShape *s = m->shape;
    const bool gpt2 = s->gpt2;
    const int D = s->hidden;

    plain_norm(m, m->h + (size_t)t * (size_t)D, gpt2 ? "transformer.ln_f.weight" : "model.norm.weight",
               gpt2 ? "transformer.ln_f.bias" : NULL, 0, 1, m->n);
    ref_linear(plain_of(m->n),
               plain_weight(&m->weights, true,
                            s->tie ? (gpt2 ? "transformer.wte.weight" : "model.embed_tokens.weight") : "lm_head.weight",
                            0),
               (RefTensor){NULL, DT_FP32}, 1, s->vocab, D, m->logits);
}

/* Runs tokens ids[from, from + T) of one sequence and computes the logits of the last one. The tokens before `from`
 * are in the cache. */
static inline void plain_run(Plain *m, const int32_t *ids, int T, int from)
{
    const OddShape *s = m->shape;
    const bool gpt2 = s->gpt2;
    const int D = s->hidden;
    FtxToken token[256];

    assert_true(T <= 256);
    for (int t = 0; t < T; t++)
        token[t] = (FtxToken){.id = ids[from + t], .pos = from + t};
    ref_embed(token, T,
              plain_weight(&m->weights, true, gpt2 ? "transformer.wte.weight" : "model.embed_tokens.weight", 0),
              plain_weight(&m->weights, gpt2, "transformer.wpe.weight", 0), 0, D, m->history, s->context, m->h);
    plain_round(m->round, m->h, T * D);
    for (int i = 0; i < s->layers; i++) {
        plain_norm(m, m->h, gpt2 ? "transformer.h.%d.ln_1.weight" : "model.layers.%d.input_layernorm.weight",
                   gpt2 ? "transformer.h.%d.ln_1.bias" : NULL, i, T, m->n);
        plain_attention(m, i, token, T, from);
        plain_add(m, T);
        plain_norm(m, m->h, gpt2 ? "transformer.h.%d.ln_2.weight" : "model.layers.%d.post_attention_layernorm.weight",
                   gpt2 ? "transformer.h.%d.ln_2.bias" : NULL, i, T, m->n);
        plain_mlp(m, i, T);
        plain_add(m, T);
    }
    plain_logits(m, T - 1);
}

#endif
