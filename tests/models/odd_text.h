/* odd_text.h - small encoders of unusual shapes: the list of shapes, their specs and checkpoints of random weights.
 *
 * The first 40 shapes have every head size with every number of heads. Most other fields are pseudo-random numbers
 * of the shape's index. */
#ifndef FTX_TEST_ODD_TEXT_H
#define FTX_TEST_ODD_TEXT_H

#include "odd.h"

enum { ODD_TEXTS = 8 * 5 * 7 };

typedef struct OddText {
    bool distil;
    int head_dim, heads, hidden, ffn, vocab, layers, positions, first_position, types, labels;
    int context, tokens, sequences;
    bool normalize;
    const char *pooling, *activation, *weights;
} OddText;

static inline OddText odd_text(int i)
{
    static const int head_dim[] = {16, 32, 40, 80, 24, 64, 96, 128}, heads[] = {3, 1, 2, 5, 4};
    static const int ffn[] = {37, 200, 91, 256, 1, 64, 333}, tokens[] = {0, 1, 16, 64, 128, 5};
    static const int sequences[] = {1, 2, 3, 16, 64};
    static const char *const pooling[] = {"pooler", "first", "mean", "none"};
    static const char *const activation[] = {"gelu_erf", "gelu_tanh", "relu", "silu"};
    static const char *const weights[] = {"fp32", "bf16", "fp16"};
    OddText s = {
        .distil = odd_draw(i, 21, 3) == 0, .head_dim = head_dim[i % 8], .heads = heads[i / 8 % 5], .layers = 2};

    s.hidden = s.head_dim * s.heads;
    s.ffn = ffn[i % 7];
    s.vocab = 50 + odd_draw(i, 22, 300);
    s.context = 20 + odd_draw(i, 23, 60);
    s.first_position = s.distil ? 0 : odd_draw(i, 24, 3);
    s.positions = s.context + s.first_position + odd_draw(i, 25, 3);
    s.types = s.distil ? 0 : 1 + odd_draw(i, 26, 3);
    s.pooling = pooling[1 + odd_draw(i, 27, 3)];
    if (!s.distil && odd_draw(i, 28, 2))
        s.pooling = pooling[0];
    s.labels = strcmp(s.pooling, "pooler") == 0 || strcmp(s.pooling, "first") == 0 ? odd_draw(i, 29, 6) : 0;
    s.normalize = !s.labels && strcmp(s.pooling, "none") != 0 && odd_draw(i, 30, 2);
    s.activation = activation[odd_draw(i, 31, 4)];
    s.weights = weights[odd_draw(i, 32, 3)];
    s.sequences = sequences[odd_draw(i, 33, 5)];
    s.tokens = s.context + tokens[odd_draw(i, 34, 6)];
    if (s.sequences > s.tokens)
        s.sequences = s.tokens;
    return s;
}

/* Text of the spec. weights: checkpoint file in the spec's folder. */
static inline void odd_text_spec(const OddText *s, const char *weights, char *out, size_t size)
{
    char more[100] = "";

    if (!s->distil)
        snprintf(more, sizeof more, "first_position = %d, types = %d, ", s->first_position, s->types);
    snprintf(out, size,
             "local ftx, family = require 'ftx', require '%s'\n"
             "return ftx.model { name = 'odd', weights = '%s', precision = { weights = '%s' }, normalize = %s,\n"
             "limits = { sequences = %d, context = %d, tokens = %d },\n"
             "graph = family { layers = %d, hidden = %d, heads = %d, ffn = %d, vocab = %d, positions = %d, %s"
             "labels = %d,\n  pooling = '%s', activation = '%s' } }\n",
             s->distil ? "distilbert" : "bert", weights, s->weights, odd_bool(s->normalize), s->sequences, s->context,
             s->tokens, s->layers, s->hidden, s->heads, s->ffn, s->vocab, s->positions, more, s->labels, s->pooling,
             s->activation);
}

static inline void odd_text_norm(OddTensors *t, const char *layer, const char *name, int n)
{
    char whole[80];

    snprintf(whole, sizeof whole, "%s.weight", name);
    odd_tensor(t, layer, whole, 0, n, 1.0f, 0.3f);
    snprintf(whole, sizeof whole, "%s.bias", name);
    odd_tensor(t, layer, whole, 0, n, 0.0f, 0.3f);
}

static inline void odd_text_product(OddTensors *t, const char *layer, const char *name, int rows, int columns)
{
    char whole[80];

    snprintf(whole, sizeof whole, "%s.weight", name);
    odd_matrix(t, layer, whole, rows, columns, columns);
    snprintf(whole, sizeof whole, "%s.bias", name);
    odd_tensor(t, layer, whole, 0, rows, 0.0f, 0.5f);
}

static inline void odd_text_tensors(const OddText *s, OddTensors *t)
{
    static const char *const bert[] = {
        "attention.self.query",       "attention.self.key", "attention.self.value", "attention.output.dense",
        "attention.output.LayerNorm", "intermediate.dense", "output.dense",         "output.LayerNorm"};
    static const char *const distil[] = {"attention.q_lin", "attention.k_lin", "attention.v_lin", "attention.out_lin",
                                         "sa_layer_norm",   "ffn.lin1",        "ffn.lin2",        "output_layer_norm"};
    const char *const *name = s->distil ? distil : bert;
    const int D = s->hidden;

    odd_tensor(t, "", "embeddings.word_embeddings.weight", s->vocab, D, 0.0f, 1.0f);
    odd_tensor(t, "", "embeddings.position_embeddings.weight", s->positions, D, 0.0f, 0.5f);
    if (!s->distil)
        odd_tensor(t, "", "embeddings.token_type_embeddings.weight", s->types, D, 0.0f, 0.5f);
    odd_text_norm(t, "", "embeddings.LayerNorm", D);
    for (int i = 0; i < s->layers; i++) {
        char layer[40];

        snprintf(layer, sizeof layer, s->distil ? "transformer.layer.%d." : "encoder.layer.%d.", i);
        for (int k = 0; k < 4; k++)
            odd_text_product(t, layer, name[k], D, D);
        odd_text_norm(t, layer, name[4], D);
        odd_text_product(t, layer, name[5], s->ffn, D);
        odd_text_product(t, layer, name[6], D, s->ffn);
        odd_text_norm(t, layer, name[7], D);
    }
    if (strcmp(s->pooling, "pooler") == 0)
        odd_text_product(t, "", "pooler.dense", D, D);
    if (s->labels)
        odd_text_product(t, "", "classifier", s->labels, D);
}

#endif
