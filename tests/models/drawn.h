/* drawn.h - tiny-marian with the position tables that its reference was computed with.
 *
 * Marian uses sinusoidal positions, which checkpoints do not store. In the model that wrote the reference every
 * parameter was drawn at random, in the order of the module's parameters, and the two position tables with them. So
 * the reference was computed with random positions instead of sinusoids. This file draws the same numbers from the
 * same seed. The shared embedding is drawn first and is stored: the draw is checked against it.
 *
 * Generator: Mersenne Twister (Matsumoto & Nishimura 1998). Its lower 24 bits are a uniform number. Sixteen uniform
 * numbers give sixteen normal ones (Box & Muller 1958): number i is paired with number i + 8. */
#ifndef FTX_TEST_DRAWN_H
#define FTX_TEST_DRAWN_H

#include <math.h>
#include <unistd.h>

#include "golden.h"
#include "runtime/base/dtype.h"

enum {
    DRAWN_SEED = 62,
    DRAWN_VOCAB = 301,
    DRAWN_D = 96,
    DRAWN_POSITIONS = 128,
    DRAWN_TABLE = DRAWN_POSITIONS * DRAWN_D,
    DRAWN_DECODER = 178400, /* numbers drawn before the decoder's table; the encoder's follows the embedding */
};

typedef struct Drawn {
    uint32_t state[624];
    int at;
} Drawn;

static inline void drawn_begin(Drawn *g, uint32_t seed)
{
    g->state[0] = seed;
    for (uint32_t i = 1; i < 624; i++)
        g->state[i] = 1812433253u * (g->state[i - 1] ^ (g->state[i - 1] >> 30)) + i;
    g->at = 624;
}

static inline uint32_t drawn_word(Drawn *g)
{
    uint32_t y;

    for (int i = 0; g->at == 624 && i < 624; i++) {
        y = (g->state[i] & 0x80000000u) | (g->state[(i + 1) % 624] & 0x7fffffffu);
        g->state[i] = g->state[(i + 397) % 624] ^ (y >> 1) ^ (y & 1 ? 0x9908b0dfu : 0);
    }
    g->at %= 624;
    y = g->state[g->at++];
    y ^= y >> 11;
    y ^= (y << 7) & 0x9d2c5680u;
    y ^= (y << 15) & 0xefc60000u;
    return y ^ (y >> 18);
}

/* Draws n normal numbers as bf16, with the standard deviation of the embeddings. n is a multiple of 16. */
static inline void drawn_normals(Drawn *g, int n, uint16_t *bf16)
{
    for (int at = 0; at < n; at += 16) {
        double u[16];

        for (int i = 0; i < 16; i++)
            u[i] = (drawn_word(g) & 0xffffff) * 0x1p-24;
        for (int i = 0; i < 8; i++) {
            const double radius = 0.25 * sqrt(-2.0 * log(1.0 - u[i])), angle = 2.0 * 3.14159265358979323846 * u[i + 8];

            dtype_store(bf16, (size_t)(at + i), DT_BF16, (float)(radius * cos(angle)));
            dtype_store(bf16, (size_t)(at + i + 8), DT_BF16, (float)(radius * sin(angle)));
        }
    }
}

/* Writes a copy of the checkpoint with both position tables appended. */
static inline void drawn_write(const char *path, const uint16_t *encoder, const uint16_t *decoder)
{
    static char bytes[1 << 20] __attribute__((aligned(16)));
    static uint16_t embedding[DRAWN_VOCAB * DRAWN_D];
    const char *const names[] = {"model.encoder.embed_positions.weight", "model.decoder.embed_positions.weight"};
    FILE *f = fopen("tests/models/tiny-marian/model.safetensors", "rb");
    uint64_t head_bytes;
    const uint16_t *stored;
    size_t n, data, wrong = 0;
    json_t *head;
    char *text;
    Drawn g;

    assert_non_null(f);
    n = fread(bytes, 1, sizeof bytes, f);
    fclose(f);
    assert_true(n > 8 && n < sizeof bytes);
    memcpy(&head_bytes, bytes, 8);
    data = n - 8 - head_bytes;
    head = json_loadb(bytes + 8, head_bytes, 0, NULL);
    assert_non_null(head);

    const json_t *at = json_object_get(json_object_get(head, "model.shared.weight"), "data_offsets");

    drawn_begin(&g, DRAWN_SEED);
    drawn_normals(&g, DRAWN_VOCAB * DRAWN_D, embedding);
    stored = (const uint16_t *)(const void *)(bytes + 8 + head_bytes + json_integer_value(json_array_get(at, 0)));
    for (int i = 0; i < DRAWN_VOCAB * DRAWN_D; i++)
        wrong += stored[i] != embedding[i];
    assert_in_range(wrong, 0, 10); /* log() and cos() may differ in the last bit, so a few bf16 values do */
    for (int i = 0; i < 2; i++)
        json_object_set_new(head, names[i],
                            json_pack("{ss,s[ii],s[ii]}", "dtype", "BF16", "shape", DRAWN_POSITIONS, DRAWN_D,
                                      "data_offsets", (int)data + i * 2 * DRAWN_TABLE,
                                      (int)data + (i + 1) * 2 * DRAWN_TABLE));
    text = json_dumps(head, JSON_COMPACT);
    f = fopen(path, "wb");
    assert_non_null(f);

    const uint64_t length = strlen(text);

    assert_true(fwrite(&length, 8, 1, f) == 1 && fwrite(text, 1, length, f) == length);
    assert_true(fwrite(bytes + 8 + head_bytes, 1, data, f) == data);
    assert_true(fwrite(encoder, 2, DRAWN_TABLE, f) == DRAWN_TABLE && fwrite(decoder, 2, DRAWN_TABLE, f) == DRAWN_TABLE);
    assert_int_equal(fclose(f), 0);
    free(text);
    json_decref(head);
}

/* Compiles that checkpoint as a Marian with learned positions, and opens it. */
static inline FtxModel *drawn_open(const char *name, const char *defines)
{
    static uint16_t encoder[DRAWN_TABLE], decoder[DRAWN_TABLE];
    const char *build = getenv("FTX_BUILD");
    char weights[1000], spec[1000];
    FtxModel *model;
    Drawn g;
    FILE *f;

    if (getenv("FTX_TEST_ARTIFACTS"))
        return golden_open("", name, defines);
    assert_non_null(build);
    drawn_begin(&g, DRAWN_SEED);
    for (int i = 0; i < DRAWN_VOCAB * DRAWN_D; i++)
        drawn_word(&g);
    drawn_normals(&g, DRAWN_TABLE, encoder);
    for (int i = DRAWN_VOCAB * DRAWN_D + DRAWN_TABLE; i < DRAWN_DECODER; i++)
        drawn_word(&g);
    drawn_normals(&g, DRAWN_TABLE, decoder);
    snprintf(weights, sizeof weights, "%s/test-%s.safetensors", build, name);
    snprintf(spec, sizeof spec, "%s/test-%s.lua", build, name);
    drawn_write(weights, encoder, decoder);
    f = fopen(spec, "w");
    assert_non_null(f);
    fprintf(f,
            "local ftx, seq2seq = require 'ftx', require 'seq2seq'\n"
            "return ftx.model { name = 'drawn', weights = 'test-%s.safetensors', start = 300, pad = 300, eos = 0,\n"
            "limits = { context = %d }, graph = seq2seq { vocab = %d, hidden = %d, encoder_layers = 2,\n"
            "decoder_layers = 2, heads = 4, ffn = 160, positions = %d,\n"
            "logits_bias = 'final_logits_bias' } }\n",
            name, DRAWN_POSITIONS, DRAWN_VOCAB, DRAWN_D, DRAWN_POSITIONS);
    assert_int_equal(fclose(f), 0);
    model = golden_open(spec, name, defines);
    unlink(spec);
    unlink(weights);
    return model;
}

#endif
