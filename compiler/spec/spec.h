/* spec.h - a spec (model.lua) or a Hugging Face checkout to a graph. The only room that sees Lua. */
#ifndef FTXC_SPEC_H
#define FTXC_SPEC_H

#include "../catalog/tuning.h"
#include "../ir/ir.h"
#include "../passes/pass.h"

typedef struct NameList {
    const char **at;
    size_t n, cap;
} NameList;

typedef struct Spec {
    const char *name;
    const char *path; /* the spec file or the checkout's folder, as given */
    bool checkout;    /* it is a folder */
    bool gguf;        /* it is a GGUF file, which holds keys, weights and tokenizer */
    const char *text; /* for the artifact: the text of the spec, of the checkout's config, or of the GGUF file's keys */
    Graph *graph;
    Precision precision;
    const char *weights;   /* path of the checkpoint, resolved; NULL: none (random weights) */
    const char *tokenizer; /* path of the tokenizer's file, resolved; NULL: none */
    FtxDecode decode;
    const char *note; /* a line for the user about what was read; NULL: none */
    /* How the names of a checkpoint's tensors may differ from those of the weights. */
    NameList prefixes; /* "transformer.": may be missing, or there where the weight has none */
    NameList renamed;  /* "LayerNorm.weight", "LayerNorm.gamma": the end of a name, and an older one, in turn */
    NameList ignored;  /* tensors that may stay unused; * stands for digits */
    NameList copies;   /* "lm_head.weight", "wte.weight": an unused tensor and the weight that it must equal, in turn */
    NameList stored;  /* "blk.*.attn_q", "model.layers.*.self_attn.q_proj": a tensor's name in the file and the weight's
                            name, in turn, without ".weight" and ".bias"; * stands for digits */
    NameList paired;  /* of these file names: the rows of a head lie as neighbouring pairs (RoPE), not as halves */
    NameList folders; /* "2_Dense": beside the weights' file; its tensors are called "2_Dense.NAME" */
    NameList head_names; /* "cls.": how the tensors of heads begin, which may stay unused and are counted */
    int32_t ends[FTX_MAX_ENDS];
    uint32_t n_ends;
    int32_t bos; /* -1: none */
    uint32_t positions;
    /* encoders, and decoders that read a source: see graph->kind */
    int32_t start, pad; /* -1: none */
    uint32_t pooled, states, types, source_vocab, input;
    const char *labels; /* names of a classifier's classes, a line each; NULL: none */
    uint32_t n_labels, scoring;
    const int32_t *bad_words; /* the ids of all words; the last id of each word is stored as ~id */
    uint32_t n_bad_words;
    /* of the decoder, or of the encoder if there is no decoder */
    uint32_t vocab, hidden, layers, heads; /* heads: the most of a layer; 0: none attends */
    uint32_t kv_heads, head_dim;           /* 0: layers differ in them */
} Spec;

typedef struct Override { /* -D limits.context=256 */
    const char *text;
} Override;

/* Reads a spec file or, for a folder with config.json, a checkout. False: d has file, line or
 * field, what was expected and what was found. Everything lives in `keep`. */
bool spec_read(const char *path, const Override *overrides, size_t n, Arena *keep, Spec *spec, Diag *d);

/* Reads the text of a tuning file, called `name` in messages, and adds the file and its entries. */
bool spec_read_tuning(const char *name, const char *text, Arena *keep, Tuning *into, Diag *d);

#endif
