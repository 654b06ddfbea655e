/* parts.h - declarations that the files of the tokenizer share.
 *
 *   text --split.c--> texts between added tokens --normalize.c--> --pretokenize.c--> pieces
 *        --bpe.c, wordpiece.c, unigram.c--> ids                   ids --detokenize.c--> text */
#ifndef FTX_TOKENIZER_PARTS_H
#define FTX_TOKENIZER_PARTS_H

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "tokenizer.h"
#include "format.h"

struct Tokenizer { /* borrowed from the tables, checked by tokenizer_open */
    const TokFacts *facts;
    const char *bytes;
    const TokToken *tokens;
    const TokAdded *added;
    const TokStep *steps;
    const TokMerge *merges;
    const uint32_t *pairs, *words;
    const TokFrame *frame;
    const TokNorm *norms;
    const TokPiece *pieces;
    const TokNode *trie;
    const unsigned char *charsmap; /* u32 bytes of units | units | texts, each ended by a zero */
    size_t n_bytes, n_tokens, n_added, n_steps, n_merges, n_pairs, n_words, n_frame, n_norms, n_pieces, n_trie,
        n_charsmap;
    const unsigned char *map_units, *map_texts; /* in charsmap */
    size_t n_map_units, n_map_texts;
    size_t n_early;       /* the first n_early of `added` are searched before normalising */
    size_t longest;       /* text of a token, in bytes */
    size_t longest_piece; /* in bytes */
    bool starts[2][256];  /* first bytes of early and of late added tokens */
    pcre2_code *patterns[TOK_MAX_STEPS];
    pcre2_code *norm_patterns[TOK_MAX_NORMS];
};

typedef struct BpeSymbol { /* a run of bytes that is one token, in a list */
    int32_t id;            /* -1: merged into its left neighbour */
    int32_t prev, next;
} BpeSymbol;

struct TokenizerScratch {
    size_t max_text;
    size_t room;        /* bytes that a text may have once it is normalised; of a piece (`piece` below) there may be
                         * twice as many with TOK_STEP_BYTES */
    char *clean;        /* [3 * max_text]: a text that had invalid bytes */
    char *norm[2];      /* [room]: input and output of a normaliser step */
    char *spaced;       /* [piece + 1]: a piece with a space added, or with visible spaces */
    char *shown;        /* [piece]: a piece with a character for each byte */
    int32_t *codes;     /* [2 * room]: with NFC, NFD, NFKC, NFKD */
    BpeSymbol *symbols; /* [piece + 1], BPE */
    uint64_t *heap;     /* twice as many, BPE */
    int32_t *best;      /* [piece + 2], Unigram: the last piece of the best path to each position */
    double *scores;     /* [ring], Unigram: scores of the best paths to the last positions */
    size_t ring;        /* power of two, over longest_piece */
    bool moved;         /* the text being normalised does not begin where the whole text does */
    bool literal;       /* the text of a special token is text */
    bool literal_part;  /* ... in the part that is normalised: it has bytes of `user` */
    const unsigned char *user; /* TokenizerPair.user */
    pcre2_match_data *match;
    pcre2_match_context *match_context;
    pcre2_jit_stack *stack;
};

/* Output ids. The first `drop` are skipped; the others are written while there is room. n counts all. */
typedef struct TokSink {
    int32_t *ids;
    size_t max, n, drop;
} TokSink;

static inline void tok_emit(TokSink *s, int32_t id)
{
    if (s->n >= s->drop && s->n - s->drop < s->max)
        s->ids[s->n - s->drop] = id;
    s->n++;
}

/* The unknown token, for text that no piece covers. */
static inline FtxStatus tok_emit_unknown(const Tokenizer *t, const char *text, size_t n, TokSink *s, FtxError *err)
{
    if (t->facts->unknown < 0)
        return ftx_fail(err, FTX_EINVAL, "tokenizer: \"%.*s\" is not in its vocabulary, which has no unknown token",
                        n < 40 ? (int)n : 40, text);
    tok_emit(s, t->facts->unknown);
    return FTX_OK;
}

/* The child of a node; 0: none (no child is the root). */
static inline uint32_t tok_child(const Tokenizer *t, uint32_t node, unsigned char byte)
{
    const uint64_t at = (uint64_t)t->trie[node].base + byte;

    return at < t->n_trie && at && t->trie[at].parent == node ? (uint32_t)at : 0;
}

/* The piece of the trie that continues from `node` by the whole text; NULL: none. */
static inline const TokPiece *tok_whole(const Tokenizer *t, uint32_t node, const char *text, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!(node = tok_child(t, node, (unsigned char)text[i])))
            return NULL;
    return t->trie[node].piece ? &t->pieces[t->trie[node].piece - 1] : NULL;
}

/* The longest piece of the user at the start of the text; *bytes: its length. NULL: none. */
static inline const TokPiece *tok_user_piece(const Tokenizer *t, const char *text, size_t n, size_t *bytes)
{
    const TokPiece *best = NULL;
    uint32_t node = 0;

    if (!(t->facts->flags & TOK_USERS))
        return NULL;
    for (size_t i = 0; i < n && (node = tok_child(t, node, (unsigned char)text[i])); i++) {
        const TokPiece *p = t->trie[node].piece ? &t->pieces[t->trie[node].piece - 1] : NULL;

        if (p && (t->tokens[p->id].flags & TOK_USER)) {
            best = p;
            *bytes = i + 1;
        }
    }
    return best;
}

/* split.c: finds added tokens and passes the texts between them on. Valid UTF-8. */
FtxStatus split_text(const Tokenizer *t, TokenizerScratch *s, const char *text, size_t n, TokSink *sink, FtxError *err);

/* normalize.c: *text and *n become the normalised text, which is in s->norm. */
FtxStatus norm_text(const Tokenizer *t, TokenizerScratch *s, const char **text, size_t *n, FtxError *err);
FtxStatus norm_check(Tokenizer *t, FtxError *err);

/* pretokenize.c: the pre-tokenizer; n > 0. */
FtxStatus steps_text(const Tokenizer *t, TokenizerScratch *s, const char *text, size_t n, TokSink *sink, FtxError *err);

/* The ids of one piece, n > 0. */
FtxStatus bpe_piece(const Tokenizer *t, TokenizerScratch *s, const char *piece, size_t n, TokSink *sink, FtxError *err);
FtxStatus wordlevel_piece(const Tokenizer *t, const char *piece, size_t n, TokSink *sink, FtxError *err);
FtxStatus wordpiece_piece(const Tokenizer *t, const char *piece, size_t n, TokSink *sink, FtxError *err);
FtxStatus unigram_piece(const Tokenizer *t, TokenizerScratch *s, const char *piece, size_t n, TokSink *sink,
                        FtxError *err);

#endif
