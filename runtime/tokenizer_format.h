/* tokenizer_format.h - the tables of a tokenizer: what FTX_SEC_TOKENIZER holds. Little-endian.
 *
 *   TokHeader | TokPart[n] | parts, each at a multiple of 8
 *
 * A part is an array of one of the structs below, or bytes; offsets count from the header. Other
 * models (WordPiece, Unigram) and normalisers will be other parts and steps: an old runtime
 * refuses a part, a model or a step that it does not know. */
#ifndef FTX_TOKENIZER_FORMAT_H
#define FTX_TOKENIZER_FORMAT_H

#include <stdint.h>

#define TOK_MAGIC "FTXT"
enum { TOK_FORMAT = 1 };

typedef enum TokPartKind {
    TOK_PART_FACTS = 1, /* TokFacts, one */
    TOK_PART_BYTES,     /* what tokens and patterns are made of */
    TOK_PART_TOKENS,    /* TokToken[vocab], by id */
    TOK_PART_ADDED,     /* TokAdded[], sorted by content, first those with TOK_ADDED_LATE unset */
    TOK_PART_STEPS,     /* TokStep[]: the pre-tokenizer */
    TOK_PART_MERGES,    /* TokMerge[], by rank */
    TOK_PART_PAIRS,     /* u32[power of two]: hash of (left, right) to rank + 1; 0: free */
    TOK_PART_WORDS,     /* u32[power of two]: hash of bytes to id + 1, with TOK_WHOLE_WORDS */
    TOK_PART_FRAME,     /* i32[n_before + n_after]: ids around a text */
    TOK_PART_COUNT,
} TokPartKind;

typedef struct TokHeader { /* 16 bytes */
    char magic[4];
    uint32_t format;
    uint32_t parts;
    uint32_t reserved;
} TokHeader;

typedef struct TokPart { /* 24 bytes */
    uint32_t kind;
    uint32_t reserved;
    uint64_t offset, bytes;
} TokPart;

typedef enum TokModel { TOK_MODEL_BPE_BYTES = 1 /* byte-level BPE */ } TokModel;

enum { TOK_WHOLE_WORDS = 1 /* a piece that is a token is not merged (ignore_merges) */ };

typedef struct TokFacts { /* 1056 bytes */
    uint32_t model;
    uint32_t flags;
    uint32_t n_before, n_after; /* of TOK_PART_FRAME */
    uint32_t reserved[4];
    int32_t byte_id[256]; /* the token of one byte; -1: none, the byte gives no token */
} TokFacts;

enum { TOK_SPECIAL = 1, TOK_PRESENT = 2 /* there is a token of this id */ };

typedef struct TokToken { /* 12 bytes */
    uint32_t offset, bytes; /* in TOK_PART_BYTES: what decoding gives */
    uint32_t flags;
} TokToken;

enum {
    TOK_ADDED_LATE = 1, /* found after normalising, in what the others leave */
    TOK_ADDED_LSTRIP = 2,
    TOK_ADDED_RSTRIP = 4,
    TOK_ADDED_WORD = 8, /* only where no word character touches it */
};

typedef struct TokAdded { /* 16 bytes: a text that is one token wherever it stands */
    uint32_t offset, bytes;
    int32_t id;
    uint32_t flags;
} TokAdded;

typedef enum TokStepKind {
    TOK_STEP_SPLIT = 1, /* matches of a pattern, and what is between them, are pieces */
    TOK_STEP_SPACE,     /* a piece that does not begin with a space gets one */
} TokStepKind;

enum { TOK_MAX_STEPS = 8 };

typedef struct TokStep { /* 16 bytes */
    uint32_t kind;
    uint32_t offset, bytes; /* SPLIT: a PCRE2 pattern, UTF and multi-line, in TOK_PART_BYTES */
    uint32_t reserved;
} TokStep;

typedef struct TokMerge { /* 12 bytes */
    int32_t left, right, result;
} TokMerge;

static inline uint64_t tok_pair_hash(int32_t left, int32_t right)
{
    uint64_t h = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;

    h *= 0x9e3779b97f4a7c15u;
    h ^= h >> 32;
    return h * 0xd6e8feb86659fd93u >> 20;
}

#endif
