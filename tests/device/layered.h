/* layered.h - a plan by hand of a model with layers, three programs over the same weights: an embedding, LAYERS layers, a head.
 *
 *   rows     weight 0, which the embedding alone reads; `tied`: the head reads it, too
 *   layer l  qkv (a TMA descriptor), down; in STEP_ANY down lies in another form, and the library multiplies in odd layers
 *   shared   a table that all layers read
 *   head     and a weight of another plan, which nothing here reads */
#ifndef FTX_TEST_LAYERED_H
#define FTX_TEST_LAYERED_H

#include "tables.h"

enum { LAYERS = 6, OF_LAYER = 3, SHARED = 1 + OF_LAYER * LAYERS, HEAD, UNREAD_WEIGHT, WEIGHTS };
enum { L_EMBED, L_QKV, L_DOWN, L_PRODUCT, L_HEAD, L_RANDOM, L_KERNELS };
enum { L_STEP_16, L_STEP_ANY, L_DECODE_4, L_PROGRAMS };
enum { L_TOKENS = 64, L_SEQUENCES = 4, ODD = 2 /* a layer twice as large */, L_BYTES = 1 << 17 };

typedef struct Layered {
    Tables t;
    FtxWeight weights[WEIGHTS];
    char code[5][64];
    char strings[2048];
    size_t n_strings;
    unsigned char data[L_BYTES];
} Layered;

static inline uint32_t string(Layered *l, const char *text)
{
    const size_t at = l->n_strings, n = strlen(text) + 1;

    assert_true(at + n <= sizeof l->strings);
    memcpy(l->strings + at, text, n);
    l->n_strings += n;
    return (uint32_t)at;
}

static inline void weight(Layered *l, uint32_t i, uint32_t rows, uint64_t *at)
{
    l->weights[i] = (FtxWeight){.type = DT_BF16,
                                .rank = 2,
                                .dim = {rows, 64},
                                .kind = FTX_WEIGHT_MATRIX,
                                .offset = *at,
                                .bytes = (uint64_t)rows * 128};
    *at = (*at + l->weights[i].bytes + 255) / 256 * 256;
}

/* The weights of layer n: qkv, down, down in its other form. */
static inline uint32_t of_layer(int n)
{
    return 1 + OF_LAYER * (uint32_t)n;
}

static inline void layered_weights(Layered *l)
{
    uint64_t at = 0;

    weight(l, 0, 100, &at);
    for (int n = 0; n < LAYERS; n++)
        for (uint32_t k = 0; k < OF_LAYER; k++)
            weight(l, of_layer(n) + k, (k ? 33 : 48) * (n == ODD ? 2 : 1), &at);
    for (uint32_t i = SHARED; i < WEIGHTS; i++)
        weight(l, i, 10 + i, &at);
    l->weights[SHARED].kind = FTX_WEIGHT_TABLE;
    assert_true(at <= L_BYTES);
    l->t.facts.weight_bytes = at;
    for (size_t i = 0; i < L_BYTES; i++)
        l->data[i] = (unsigned char)(i * 7 + i / 256 + i / 65536 * 3);
}

static inline void layered_kernels(Layered *l)
{
    static const struct {
        const char *family, *entry;
        uint32_t kind, operands;
    } rows[L_KERNELS] = {
        {"embed", "embed__x", FTX_KERNEL_CUDA, 3},      {"linear", "qkv__x", FTX_KERNEL_CUDA, 4},
        {"linear", "down__x", FTX_KERNEL_CUDA, 3},      {"matmul", "matmul", FTX_KERNEL_MATMUL, 5},
        {"linear_head", "head__x", FTX_KERNEL_CUDA, 3}, {"random", "random", FTX_KERNEL_CUDA, 2},
    };
    static const int64_t consts[FTX_MM_CONSTS] = {0, 33, 64, DT_BF16, DT_BF16, DT_BF16, 0};

    for (int i = 0, image = 0; i < L_KERNELS; i++) {
        l->t.kernels[i] = (FtxKernel){.kind = rows[i].kind,
                                      .family = string(l, rows[i].family),
                                      .entry = string(l, rows[i].entry),
                                      .flags = i == L_RANDOM ? 0 : FTX_KERNEL_OVERLAP,
                                      .n_operands = rows[i].operands,
                                      .block = 64,
                                      .code_bytes = 32};
        if (rows[i].kind == FTX_KERNEL_CUDA) {
            snprintf(l->code[image], sizeof l->code[image], "%s %u", rows[i].entry, rows[i].operands);
            l->t.kernels[i].code_at = (uint32_t)image++ * 64;
        }
    }
    l->t.kernels[L_PRODUCT].n_consts = FTX_MM_CONSTS;
    memcpy(l->t.consts, consts, sizeof consts);
    grid(&l->t, L_EMBED, 0, "T");
    grid(&l->t, L_QKV, 0, "T - 1"); /* of one token: nothing to do */
    grid(&l->t, L_DOWN, 0, "T");
    grid(&l->t, L_HEAD, 0, "S");
    grid(&l->t, L_RANDOM, 0, "SMS");
}

static inline void reads(Layered *l, uint32_t i)
{
    operand(&l->t, FTX_SPACE_WEIGHTS, l->weights[i].offset);
}

static inline void layered_layer(Layered *l, int n, bool other)
{
    const bool by_library = other && n % 2;
    char label[40];

    snprintf(label, sizeof label, "layer %d: qkv", n);
    launch(&l->t, L_QKV, string(l, label));
    operand(&l->t, FTX_SPACE_WORK, 0);
    reads(l, of_layer(n));
    l->t.operands[l->t.n_operands - 1].tile_rows = 16;
    l->t.operands[l->t.n_operands - 1].rows = (uint32_t)l->weights[of_layer(n)].dim[0];
    l->t.operands[l->t.n_operands - 1].columns = 64;
    l->t.operands[l->t.n_operands - 1].type = DT_BF16;
    reads(l, SHARED);
    operand(&l->t, FTX_SPACE_WORK, 4096);
    snprintf(label, sizeof label, "layer %d: down", n);
    launch(&l->t, by_library ? L_PRODUCT : L_DOWN, string(l, label));
    operand(&l->t, FTX_SPACE_WORK, 4096);
    reads(l, of_layer(n) + (other ? 2 : 1));
    if (by_library)
        for (int i = 0; i < 2; i++)
            operand(&l->t, FTX_SPACE_NULL, 0);
    operand(&l->t, FTX_SPACE_WORK, 0);
}

static inline void layered_program(Layered *l, int program, bool tied)
{
    FtxProgram *p = &l->t.programs[program];

    *p = (FtxProgram){.kind = program == L_DECODE_4 ? FTX_PROG_DECODE : FTX_PROG_STEP,
                      .bucket = program == L_STEP_16    ? 16
                                : program == L_DECODE_4 ? 4
                                                        : 0,
                      .first_launch = l->t.n_launches};
    launch(&l->t, L_EMBED, string(l, "embed"));
    operand(&l->t, FTX_SPACE_IO, 0);
    reads(l, 0);
    operand(&l->t, FTX_SPACE_WORK, 0);
    for (int n = 0; n < LAYERS; n++)
        layered_layer(l, n, program == L_STEP_ANY);
    launch(&l->t, L_HEAD, string(l, "lm head"));
    operand(&l->t, FTX_SPACE_WORK, 0);
    reads(l, tied ? 0 : HEAD);
    operand(&l->t, FTX_SPACE_OUT, 0);
    p->n_launches = l->t.n_launches - p->first_launch;
}

static inline Layered *layered(bool tied)
{
    Layered *l = calloc(1, sizeof *l);

    l->n_strings = 1;
    layered_weights(l);
    l->t.facts.sequences = L_SEQUENCES;
    l->t.facts.tokens = L_TOKENS;
    l->t.facts.kv_block = 16;
    l->t.facts.kv_pages = 8;
    l->t.facts.ranks = 1;
    l->t.head.target = 901;
    l->t.head.space_bytes[FTX_SPACE_STATE] = l->t.head.space_bytes[FTX_SPACE_IO] = 4096;
    l->t.head.space_bytes[FTX_SPACE_WORK] = 65536;
    l->t.head.space_bytes[FTX_SPACE_OUT] = 512;
    l->t.head.space_bytes[FTX_SPACE_PAGES] = 256;
    l->t.head.named_bytes[FTX_NAMED_out] = 512;
    l->t.head.named_bytes[FTX_NAMED_pages] = 2048;
    layered_kernels(l);
    for (int p = 0; p < L_PROGRAMS; p++)
        layered_program(l, p, tied);
    join_tables(&l->t, L_KERNELS, L_PROGRAMS, l->code, sizeof l->code, l->strings, sizeof l->strings);
    l->t.artifact.weights = l->weights;
    l->t.artifact.n_weights = WEIGHTS;
    l->t.artifact.weight_data = l->data;
    return l;
}

/* The bytes of a weight in its place, rounded up as places are. */
static inline uint64_t room_of(const Layered *l, uint32_t i)
{
    return (l->weights[i].bytes + 255) / 256 * 256;
}

static inline uint64_t room_of_layer(const Layered *l, int n)
{
    return room_of(l, of_layer(n)) + room_of(l, of_layer(n) + 1) + room_of(l, of_layer(n) + 2);
}

#endif
