/* parts.h - what the files of this room share: the tables of a tokenizer while they are filled. */
#ifndef FTXC_TOKENIZER_PARTS_H
#define FTXC_TOKENIZER_PARTS_H

#include <jansson.h>

#include "../../runtime/tokenizer/format.h"
#include "tokenizer.h"

enum { MAX_ID = 1 << 24, BYTE_CHARACTERS = 324 };

#define VISIBLE_SPACE "\xe2\x96\x81" /* U+2581, SentencePiece's space */

typedef struct Blob {
    char *at;
    size_t n, cap;
} Blob;

typedef struct TokenText { /* a token as its file writes it; text NULL: no token has this id */
    const char *text;
    uint32_t flags; /* TOK_SPECIAL */
} TokenText;

typedef struct AddedText {
    const char *text;
    int32_t id;
    uint32_t flags; /* TOK_ADDED_* */
    uint32_t order; /* of two with the same content the first one counts */
} AddedText;

typedef struct PieceText { /* what the trie finds */
    const char *text;
    uint32_t bytes, piece;
} PieceText;

typedef enum DecodeKind {
    DECODE_BYTE_LEVEL,
    DECODE_METASPACE,     /* what: the character; flag: the first token loses it */
    DECODE_WORDPIECE,     /* what: the prefix; flag: clean up */
    DECODE_REPLACE,       /* what, with */
    DECODE_BYTES,         /* "<0x41>" is a byte */
    DECODE_STRIP,         /* what: a character; left, right: how many of a token */
    DECODE_STRIP_WHOLE,   /* the same at the left end of the whole text */
    DECODE_SENTENCEPIECE, /* U+2581 is a space; flag: the first token loses one */
    DECODE_SUFFIX,        /* what: the end of a word's last token, a space if another token follows */
    DECODE_JOIN           /* no decoder: the tokens' own texts with spaces between */
} DecodeKind;

typedef struct DecodeStep {
    DecodeKind kind;
    const char *what, *with;
    size_t left, right;
    bool flag;
} DecodeStep;

typedef struct Build {
    Loc loc;
    Arena *keep;
    Diag *d;
    json_t *vocab; /* text to id */
    TokFacts facts;
    Blob bytes;
    int16_t byte_of[BYTE_CHARACTERS]; /* of a character that stands for one; -1: none */
    struct {
        TokenText *at;
        size_t n, cap;
    } texts; /* by id */
    struct {
        AddedText *at;
        size_t n, cap;
    } added_texts;
    struct {
        PieceText *at;
        size_t n, cap;
    } piece_texts;
    struct {
        DecodeStep *at;
        size_t n, cap;
    } decode;
    struct {
        TokToken *at;
        size_t n, cap;
    } tokens;
    struct {
        TokAdded *at;
        size_t n, cap;
    } added;
    struct {
        TokNorm *at;
        size_t n, cap;
    } norms;
    struct {
        TokStep *at;
        size_t n, cap;
    } steps;
    struct {
        TokMerge *at;
        size_t n, cap;
    } merges;
    struct {
        TokFrame *at;
        size_t n, cap;
    } frame;
    struct {
        TokPiece *at;
        size_t n, cap;
    } pieces;
    struct {
        TokNode *at;
        size_t n, cap;
    } trie;
    uint32_t *pairs, *words;
    size_t n_pairs, n_words;
    const void *charsmap;
    size_t n_charsmap;
    bool byte_level;   /* the pre-tokenizer has a ByteLevel step */
    bool bytes_decode; /* the decoder is ByteLevel alone: the text of a token is its bytes */
    bool framed;       /* a post-processor has set `frame` */
} Build;

/* --- build.c: fields of JSON, and what all readers add to the tables ------------------------------ */

void build_open(Build *b);               /* an empty tokenizer; loc, keep and d are set */
const char *build_type(const json_t *o); /* "type", or words that say it is missing */
bool build_flag(const json_t *o, const char *name, bool otherwise);
const char *build_text(const json_t *o, const char *name); /* NULL: no text */
void build_append(Build *b, const void *p, size_t bytes);  /* to the table of bytes */
bool build_token(Build *b, const char *text, json_int_t id, uint32_t flags);
void build_added(Build *b, const char *text, int32_t id, uint32_t flags);
int32_t build_id(const Build *b, const char *text);                     /* -1: not in the vocabulary */
void build_piece(Build *b, const char *text, int32_t id, double score); /* ignores an empty text */
void build_frame(Build *b, int32_t id, uint32_t type, bool pair); /* those of a single text before those of a pair */
void build_norm(Build *b, TokNormKind kind, uint32_t flags, const char *text, const char *with);
bool build_byte_ids(Build *b); /* from "<0x00>" ...; false: none is there */
size_t build_slots(size_t n);  /* of a hash table of n entries: a power of two */
void build_pairs(Build *b);    /* the hash table of pairs, from merges */
/* The bytes that a byte-level token stands for, at most strlen(text). False: one of its characters stands for no byte,
 * and the text is copied as it is. */
bool build_token_bytes(const Build *b, const char *text, char *out, size_t *n);
/* The text that stands for bytes in a byte-level vocabulary. */
const char *build_byte_text(const Build *b, const void *bytes, size_t n);
unsigned char *build_base64(Arena *keep, const char *text, size_t *bytes); /* NULL: not base64 */

/* --- the parts of tokenizer.json, each in its file ---------------------------------------------- */

bool read_model(Build *b, const json_t *model); /* model.c */
void build_bytes_model(Build *b); /* model.c: BPE over bytes, from vocab, whose texts consist of byte characters */
bool read_normalizer(Build *b, const json_t *o);            /* normalizer.c */
bool read_pre_tokenizer(Build *b, const json_t *o);         /* pretokenizer.c */
bool read_post_processor(Build *b, const json_t *o);        /* post.c */
bool read_decoder(Build *b, const json_t *o);               /* decoder.c */
bool decode_tokens(Build *b);                               /* decoder.c: texts to tokens */
bool read_sentencepiece(Build *b, const void *p, size_t n); /* spm.c */
bool read_gguf(Build *b, const void *p, size_t n);          /* gguf.c */

enum { SPM_NORMAL = 1, SPM_UNKNOWN, SPM_CONTROL, SPM_USER_DEFINED, SPM_UNUSED, SPM_BYTE };

typedef struct SpmPiece {
    const char *text;
    float score;
    uint32_t type; /* SPM_NORMAL ... */
    int32_t id;
} SpmPiece;

/* spm.c: the model of SentencePiece's BPE from pieces whose ids are their places. dummy: a space before a text; squeeze:
 * runs of spaces are one. */
bool build_sentencepiece(Build *b, const SpmPiece *pieces, size_t n, bool dummy, bool squeeze);

/* beside.c: tokens that tokenizer_config.json adds to so many pieces. *apart: the texts between them are separate ones
 * for SentencePiece. */
bool read_tokenizer_config(Build *b, const char *path, int32_t pieces, bool *apart);

/* --- tiktoken.c: vocabularies of bytes with their ranks -------------------------------------------- */

bool is_tiktoken(const void *p, size_t n); /* whether a file begins as tiktoken's do */
bool read_tiktoken(Build *b, const void *p, size_t n);
bool is_tekken(const json_t *root);
bool read_tekken(Build *b, const json_t *root); /* Mistral's tekken.json */

/* trie.c: piece_texts to trie. */
void build_trie(Build *b);
uint32_t trie_find(const Build *b,
                   const char *text); /* the node behind a prefix; 0: there is none, or the prefix is "" */

typedef enum PatternSyntax {
    PATTERN_ONIGURUMA, /* Hugging Face's tokenizers: Ruby's syntax */
    PATTERN_RUST,      /* tiktoken: the crates regex and fancy_regex */
} PatternSyntax;

/* Translates a pattern to one for PCRE2 with the same meaning. False: d names the part that has no counterpart. */
bool pattern_translate(const char *pattern, PatternSyntax syntax, Loc loc, Arena *keep, const char **out, Diag *d);

const char *scripts_pattern(Build *b); /* scripts.c: for PCRE2, of UnicodeScripts */

/* pretokenizer.c: a step that splits by a pattern. */
bool build_split(Build *b, const char *pattern, PatternSyntax syntax, uint32_t flags);

/* A pattern that matches exactly this text. */
const char *pattern_quote(const char *text, Arena *keep);

#endif
