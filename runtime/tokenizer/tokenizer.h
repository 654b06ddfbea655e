/* tokenizer.h - text to ids and back, by tables that the compiler made. */
#ifndef FTX_TOKENIZER_H
#define FTX_TOKENIZER_H

#include "../base/error.h"

typedef struct Tokenizer Tokenizer;

/* tables: borrowed, must outlive the tokenizer; untrusted, checked here. Opening allocates. Encoding and decoding
 * texts of up to `max_text` bytes allocates nothing; longer ones are refused with FTX_EFULL. */
FtxStatus tokenizer_open(const void *tables, size_t bytes, Tokenizer **out, FtxError *err);
void tokenizer_close(Tokenizer *t);

/* See ftx_tokenize. Safe for several threads at once: scratch comes from the caller. */
typedef struct TokenizerScratch TokenizerScratch;
FtxStatus tokenizer_scratch_open(const Tokenizer *t, size_t max_text, TokenizerScratch **out, FtxError *err);
void tokenizer_scratch_close(TokenizerScratch *s);

/* Invalid UTF-8 is read as U+FFFD. A text that normalising makes longer than 4 * max_text + 64 KiB
 * is refused with FTX_EFULL; one that needs the unknown token of a vocabulary without one, with
 * FTX_EINVAL. Ids are written while there is room; *n counts all. */
FtxStatus tokenizer_encode(const Tokenizer *t, TokenizerScratch *s, const char *text, size_t bytes, bool special,
                           int32_t *ids, size_t max, size_t *n, FtxError *err);

/* What truncation cuts: the end of the longer text, of the first or of the second; or the start of a single text. */
typedef enum TokenizerCut {
    TOKENIZER_CUT_LONGEST,
    TOKENIZER_CUT_FIRST,
    TOKENIZER_CUT_SECOND,
    TOKENIZER_CUT_START
} TokenizerCut;

typedef struct TokenizerPair {
    const char *text;
    size_t bytes;
    const char *other; /* NULL: a single text */
    size_t other_bytes;
    bool special; /* add the tokens around texts */
    bool literal; /* do not recognise special tokens in the text */
    /* [bytes] of a single text in valid UTF-8: not 0: recognise no special token in which this byte is. A special token
     * that is looked for in normalised text is not recognised in a part that has such a byte. NULL: none */
    const unsigned char *user;
    size_t most; /* most tokens in all; more are cut as `cut` says; 0: no limit */
    TokenizerCut cut;
} TokenizerPair;

/* types: [max], the token type of each id; NULL: not wanted. FTX_EINVAL: the cut would leave nothing of a text. */
FtxStatus tokenizer_encode_pair(const Tokenizer *t, TokenizerScratch *s, const TokenizerPair *pair, int32_t *ids,
                                int32_t *types, size_t max, size_t *n, FtxError *err);

/* Normalises valid UTF-8. *out is in s until its next use, or is text itself. */
FtxStatus tokenizer_normalize(const Tokenizer *t, TokenizerScratch *s, const char *text, size_t bytes, const char **out,
                              size_t *n, FtxError *err);

FtxStatus tokenizer_decode(const Tokenizer *t, const int32_t *ids, size_t count, bool skip_special, char *text,
                           size_t max, size_t *n, FtxError *err);

/* Streaming decode: tokens go in one after another, whole UTF-8 characters come out (an invalid byte becomes
 * U+FFFD). Zero-initialise. */
typedef struct TokenizerStream {
    unsigned char held[4]; /* the start of a character that is not complete */
    uint32_t n_held;
    uint32_t started;  /* a decoder may treat the first token differently */
    bool keep_special; /* special tokens give their text; else nothing */
    bool gave;         /* some text has come out */
    bool gap;          /* a space stands before the next token */
    uint8_t spaces;    /* held back: spaces that may be the last */
} TokenizerStream;

/* Writes the text that is complete now, at most tokenizer_token_bytes + 16 bytes. flush: the last call. id -1: no
 * token, only the held text (with flush). */
FtxStatus tokenizer_stream(const Tokenizer *t, TokenizerStream *s, int32_t id, bool flush, char *text, size_t max,
                           size_t *n, FtxError *err);

size_t tokenizer_token_bytes(const Tokenizer *t); /* the longest text of a token */
/* The bytes of a token behind others, which may be a part of a character; "": it has none. */
const char *tokenizer_bytes(const Tokenizer *t, int32_t id, size_t *n, bool *special);

#endif
