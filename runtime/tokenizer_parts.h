/* tokenizer_parts.h - what tokenizer.c, split.c and bpe.c share.
 *
 *   text --split--> texts between added tokens --steps--> pieces --bpe--> ids */
#ifndef FTX_TOKENIZER_PARTS_H
#define FTX_TOKENIZER_PARTS_H

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "tokenizer.h"
#include "tokenizer_format.h"

struct Tokenizer { /* borrowed from the tables, checked by tokenizer_open */
    const TokFacts *facts;
    const char *bytes;
    const TokToken *tokens;
    const TokAdded *added;
    const TokStep *steps;
    const TokMerge *merges;
    const uint32_t *pairs, *words;
    const int32_t *frame;
    size_t n_bytes, n_tokens, n_added, n_steps, n_merges, n_pairs, n_words, n_frame;
    size_t n_early; /* of added: found before normalising */
    size_t longest; /* token, in bytes */
    bool starts[2][256]; /* first bytes of early and of late added tokens */
    pcre2_code *patterns[TOK_MAX_STEPS];
};

typedef struct BpeSymbol { /* a run of bytes that is one token, in a list */
    int32_t id; /* -1: it became part of its left neighbour */
    int32_t prev, next;
} BpeSymbol;

struct TokenizerScratch {
    size_t max_text;
    char *clean;  /* [3 * max_text]: a text that had invalid bytes */
    char *spaced; /* [3 * max_text + 1]: a piece that got a space */
    BpeSymbol *symbols; /* [3 * max_text + 1] */
    uint64_t *heap;     /* twice as many */
    pcre2_match_data *match;
    pcre2_match_context *match_context;
    pcre2_jit_stack *stack;
};

/* Where ids go: written while there is room, always counted. */
typedef struct TokSink {
    int32_t *ids;
    size_t max, n;
} TokSink;

static inline void tok_emit(TokSink *s, int32_t id)
{
    if (s->n < s->max)
        s->ids[s->n] = id;
    s->n++;
}

/* split.c: added tokens and the pre-tokenizer; pieces go to bpe_piece. Valid UTF-8. */
FtxStatus split_text(const Tokenizer *t, TokenizerScratch *s, const char *text, size_t n, TokSink *sink, FtxError *err);

/* bpe.c: one piece, as bytes. */
void bpe_piece(const Tokenizer *t, TokenizerScratch *s, const char *piece, size_t n, TokSink *sink);

#endif
