/* odd.h - small decoders of unusual shapes: the list of shapes, their specs and checkpoints of random weights.
 *
 * Shape i of a family is the same on every machine. The sizes below cycle with i at different
 * periods: the first few dozen shapes cover most pairs, and the first ODD_LLAMA (ODD_GPT2) shapes
 * every combination. Most other fields are pseudo-random numbers of i.
 *
 *   llama:  head_dim 8 x heads a kv head 4 x block 5 x hidden 7     gpt2:  head_dim 8 x block 5 x heads 3 */
#ifndef FTX_TEST_ODD_H
#define FTX_TEST_ODD_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/turn.h"

enum { ODD_TURNS = 4 }; /* with sanitizers each run takes one shape out of ODD_TURNS */
enum { ODD_LLAMA = 8 * 4 * 5 * 7, ODD_GPT2 = 8 * 5 * 3, ODD_NEW = 5, ODD_MAX_PROMPTS = 8 };

typedef struct OddShape {
    bool gpt2;
    int head_dim, heads, kv_heads, hidden, ffn, vocab, layers;
    int block, tokens, sequences, context;
    int window; /* 0: none */
    bool tie, attention_bias, mlp_bias, by_layer;
    const char *rope; /* fields of nn.rope after theta */
    const char *activation, *weights;
    int prompt[ODD_MAX_PROMPTS], prompts; /* lengths: just below, at and above multiples of page and chunk */
} OddShape;

/* A pseudo-random number below n, fixed for shape i and property `question`. */
static inline int odd_draw(int i, int question, int n)
{
    uint32_t x = (uint32_t)i * 2654435761u + (uint32_t)question * 40503u + 12345u;

    x ^= x >> 16;
    x *= 0x7feb352du;
    x ^= x >> 15;
    x *= 0x846ca68bu;
    x ^= x >> 16;
    return (int)(x % (uint32_t)n);
}

static inline void odd_prompt(OddShape *s, int length)
{
    if (length < 1 || length > 140 || s->prompts == ODD_MAX_PROMPTS)
        return;
    for (int i = 0; i < s->prompts; i++)
        if (s->prompt[i] == length)
            return;
    s->prompt[s->prompts++] = length;
    if (length + ODD_NEW > s->context) /* the longest prompt and its new tokens fill the context */
        s->context = length + ODD_NEW;
}

static inline OddShape odd_shape(bool gpt2, int i)
{
    static const int head_dim[] = {16, 24, 40, 64, 80, 96, 128, 256}, group[] = {1, 3, 7, 8};
    static const int block[] = {8, 16, 32, 64, 128}, hidden[] = {112, 120, 300, 33, 100, 64, 97};
    static const int ffn[] = {37, 200, 91, 256, 1}, tokens[] = {16, 17, 64, 65, 100, 128, 5, 63};
    static const int vocab[] = {300, 301, 4099, 320, 1000, 50257, 511, 333}, sequences[] = {1, 2, 3, 5, 16};
    static const char *const rope[] = {"",
                                       "",
                                       "scaling = { kind = 'llama3', factor = 8, low = 1, high = 4, original = 32 }",
                                       "scaling = { kind = 'linear', factor = 2.5 }",
                                       "dim = 8",
                                       "style = 'neighbour'"};
    static const char *const activation[] = {"silu", "gelu_tanh", "gelu_erf", "relu", "quick_gelu"};
    static const char *const weights[] = {"fp32", "bf16", "fp16"};
    const int wide = head_dim[i % 8];
    OddShape s = {.gpt2 = gpt2, .head_dim = wide, .layers = 2};

    if (gpt2) {
        s.heads = s.kv_heads = (const int[]){1, 3, 7}[i % 3];
        s.hidden = s.heads * wide;
        s.by_layer = odd_draw(i, 1, 3) == 0;
    } else {
        const int g = group[i / 8 % 4], most = wide * g > 512 ? 1 : wide * g > 200 ? 2 : 3;

        s.kv_heads = 1 + odd_draw(i, 2, most);
        s.heads = g * s.kv_heads;
        s.hidden = hidden[i % 7];
        s.window = odd_draw(i, 3, 4) ? 0 : 1 + odd_draw(i, 4, 40);
        s.attention_bias = odd_draw(i, 5, 2);
        s.mlp_bias = odd_draw(i, 6, 2);
        s.rope = rope[odd_draw(i, 7, 6)];
    }
    s.ffn = ffn[odd_draw(i, 8, 5)];
    s.vocab = vocab[odd_draw(i, 9, 8)];
    s.block = block[i % 5];
    s.tokens = tokens[odd_draw(i, 10, 8)];
    s.sequences = sequences[odd_draw(i, 11, 5)];
    if (s.sequences > s.tokens)
        s.sequences = s.tokens;
    s.tie = odd_draw(i, 12, 2);
    s.activation = activation[odd_draw(i, 13, 5)];
    s.weights = weights[odd_draw(i, 14, 3)];
    for (int k = -1; k <= 1; k++) {
        odd_prompt(&s, s.block + k);
        odd_prompt(&s, s.tokens + k);
    }
    odd_prompt(&s, 1);
    odd_prompt(&s, 2 * s.block + 1 < 100 ? 2 * s.block + 1 : 3);
    return s;
}

static inline const char *odd_bool(bool b)
{
    return b ? "true" : "false";
}

/* Text of the spec. weights: checkpoint file in the spec's folder, or NULL. */
static inline void odd_spec(const OddShape *s, const char *weights, char *out, size_t size)
{
    char graph[700], file[300] = "";

    if (weights)
        snprintf(file, sizeof file, "weights = '%s', ", weights);
    if (s->gpt2)
        snprintf(
            graph, sizeof graph,
            "gpt2 { layers = %d, hidden = %d, heads = %d, ffn = %d, vocab = %d, positions = %d, activation = '%s', "
            "tie_embeddings = %s, scale_by_layer = %s }",
            s->layers, s->hidden, s->heads, s->ffn, s->vocab, s->context, s->activation, odd_bool(s->tie),
            odd_bool(s->by_layer));
    else
        snprintf(graph, sizeof graph,
                 "llama { layers = %d, hidden = %d, heads = %d, kv_heads = %d, head_dim = %d, ffn = %d, vocab = %d,\n"
                 "rope = { theta = 10000, %s }, window = %d, attention_bias = %s, mlp_bias = %s, activation = '%s', "
                 "tie_embeddings = %s }",
                 s->layers, s->hidden, s->heads, s->kv_heads, s->head_dim, s->ffn, s->vocab, s->rope, s->window,
                 odd_bool(s->attention_bias), odd_bool(s->mlp_bias), s->activation, odd_bool(s->tie));
    snprintf(out, size,
             "local ftx, llama, gpt2 = require 'ftx', require 'llama', require 'gpt2'\n"
             "return ftx.model { name = 'odd', %skv = { block_size = %d }, precision = { weights = '%s' },\n"
             "limits = { sequences = %d, context = %d, tokens = %d }, decode = ftx.greedy {},\ngraph = %s }\n",
             file, s->block, s->weights, s->sequences, s->context, s->tokens, graph);
}

/* --- a checkpoint ----------------------------------------------------------------------------- */

typedef struct OddTensor {
    char name[160];
    int rows, columns; /* rows 0: a vector */
    float middle, spread;
} OddTensor;

typedef struct OddTensors {
    OddTensor at[64];
    int n;
} OddTensors;

static inline void odd_tensor(OddTensors *t, const char *layer, const char *name, int rows, int columns, float middle,
                              float spread)
{
    OddTensor *x = &t->at[t->n++];

    snprintf(x->name, sizeof x->name, "%s%s", layer, name);
    x->rows = rows;
    x->columns = columns;
    x->middle = middle;
    x->spread = spread;
}

/* Uniform with variance 1 / inputs, so that the product has about the variance of its input. */
static inline void odd_matrix(OddTensors *t, const char *layer, const char *name, int rows, int columns, int inputs)
{
    float spread = 1.0f;

    while (spread * spread * (float)inputs > 3.0f)
        spread *= 0.97f;
    odd_tensor(t, layer, name, rows, columns, 0.0f, spread);
}

static inline void odd_llama(const OddShape *s, OddTensors *t)
{
    const int q = s->heads * s->head_dim, kv = s->kv_heads * s->head_dim;
    char layer[40];

    odd_tensor(t, "", "model.embed_tokens.weight", s->vocab, s->hidden, 0.0f, 0.3f);
    odd_tensor(t, "", "model.norm.weight", 0, s->hidden, 1.0f, 0.3f);
    if (!s->tie)
        odd_matrix(t, "", "lm_head.weight", s->vocab, s->hidden, s->hidden);
    for (int i = 0; i < s->layers; i++) {
        snprintf(layer, sizeof layer, "model.layers.%d.", i);
        odd_tensor(t, layer, "input_layernorm.weight", 0, s->hidden, 1.0f, 0.3f);
        odd_tensor(t, layer, "post_attention_layernorm.weight", 0, s->hidden, 1.0f, 0.3f);
        odd_matrix(t, layer, "self_attn.q_proj.weight", q, s->hidden, s->hidden);
        odd_matrix(t, layer, "self_attn.k_proj.weight", kv, s->hidden, s->hidden);
        odd_matrix(t, layer, "self_attn.v_proj.weight", kv, s->hidden, s->hidden);
        odd_matrix(t, layer, "self_attn.o_proj.weight", s->hidden, q, q);
        odd_matrix(t, layer, "mlp.gate_proj.weight", s->ffn, s->hidden, s->hidden);
        odd_matrix(t, layer, "mlp.up_proj.weight", s->ffn, s->hidden, s->hidden);
        odd_matrix(t, layer, "mlp.down_proj.weight", s->hidden, s->ffn, s->ffn);
        if (s->attention_bias) {
            odd_tensor(t, layer, "self_attn.q_proj.bias", 0, q, 0.0f, 0.5f);
            odd_tensor(t, layer, "self_attn.k_proj.bias", 0, kv, 0.0f, 0.5f);
            odd_tensor(t, layer, "self_attn.v_proj.bias", 0, kv, 0.0f, 0.5f);
            odd_tensor(t, layer, "self_attn.o_proj.bias", 0, s->hidden, 0.0f, 0.5f);
        }
        if (s->mlp_bias) {
            odd_tensor(t, layer, "mlp.gate_proj.bias", 0, s->ffn, 0.0f, 0.5f);
            odd_tensor(t, layer, "mlp.up_proj.bias", 0, s->ffn, 0.0f, 0.5f);
            odd_tensor(t, layer, "mlp.down_proj.bias", 0, s->hidden, 0.0f, 0.5f);
        }
    }
}

/* GPT-2 checkpoints store matrices as [inputs, outputs]. */
static inline void odd_gpt2(const OddShape *s, OddTensors *t)
{
    static const char *const norms[] = {"ln_1", "ln_2"};
    const struct {
        const char *name;
        int inputs, outputs;
    } part[] = {{"attn.c_attn", s->hidden, 3 * s->hidden},
                {"attn.c_proj", s->hidden, s->hidden},
                {"mlp.c_fc", s->hidden, s->ffn},
                {"mlp.c_proj", s->ffn, s->hidden}};
    char layer[60];

    odd_tensor(t, "", "transformer.wte.weight", s->vocab, s->hidden, 0.0f, 0.3f);
    odd_tensor(t, "", "transformer.wpe.weight", s->context, s->hidden, 0.0f, 0.3f);
    odd_tensor(t, "", "transformer.ln_f.weight", 0, s->hidden, 1.0f, 0.3f);
    odd_tensor(t, "", "transformer.ln_f.bias", 0, s->hidden, 0.0f, 0.3f);
    if (!s->tie)
        odd_matrix(t, "", "lm_head.weight", s->vocab, s->hidden, s->hidden);
    for (int i = 0; i < s->layers; i++) {
        for (int k = 0; k < 2; k++) {
            snprintf(layer, sizeof layer, "transformer.h.%d.%s", i, norms[k]);
            odd_tensor(t, layer, ".weight", 0, s->hidden, 1.0f, 0.3f);
            odd_tensor(t, layer, ".bias", 0, s->hidden, 0.0f, 0.3f);
        }
        for (int k = 0; k < 4; k++) {
            snprintf(layer, sizeof layer, "transformer.h.%d.%s", i, part[k].name);
            odd_matrix(t, layer, ".weight", part[k].inputs, part[k].outputs, part[k].inputs);
            odd_tensor(t, layer, ".bias", 0, part[k].outputs, 0.0f, 0.5f);
        }
    }
}

/* Writes the tensors as a safetensors file in fp32. */
static inline bool odd_write(const OddTensors *t, uint64_t seed, const char *path)
{
    char header[16384] = "{";
    size_t at = 0, n = 1;
    FILE *f = fopen(path, "wb");

    if (!f)
        return false;
    for (int i = 0; i < t->n; i++) {
        const OddTensor *x = &t->at[i];
        const size_t bytes = 4 * (size_t)(x->rows ? x->rows : 1) * (size_t)x->columns;
        char shape[40];

        if (x->rows)
            snprintf(shape, sizeof shape, "%d,%d", x->rows, x->columns);
        else
            snprintf(shape, sizeof shape, "%d", x->columns);
        n += (size_t)snprintf(header + n, sizeof header - n,
                              "%s\"%s\":{\"dtype\":\"F32\",\"shape\":[%s],\"data_offsets\":[%zu,%zu]}", i ? "," : "",
                              x->name, shape, at, at + bytes);
        at += bytes;
    }
    n += (size_t)snprintf(header + n, sizeof header - n, "}");
    while (n % 8)
        header[n++] = ' ';
    const uint64_t length = n;
    bool ok = fwrite(&length, 8, 1, f) == 1 && fwrite(header, 1, n, f) == n;
    for (int i = 0; i < t->n && ok; i++) {
        const OddTensor *x = &t->at[i];
        const size_t count = (size_t)(x->rows ? x->rows : 1) * (size_t)x->columns;
        float *v = malloc(count * sizeof *v);

        for (size_t k = 0; v && k < count; k++) {
            seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
            v[k] = x->middle + x->spread * ((float)(seed >> 40) * 0x1p-23f - 1.0f);
        }
        ok = v && fwrite(v, sizeof *v, count, f) == count;
        free(v);
    }
    return fclose(f) == 0 && ok;
}

static inline bool odd_weights(const OddShape *s, uint64_t seed, const char *path)
{
    OddTensors t = {.n = 0};

    if (s->gpt2)
        odd_gpt2(s, &t);
    else
        odd_llama(s, &t);
    return odd_write(&t, seed, path);
}

#endif
