/* format.h - the tables of a tokenizer: the contents of FTX_SEC_TOKENIZER. Little-endian.
 *
 *   TokHeader | TokPart[n] | parts, each at a multiple of 8
 *
 * A part is an array of one of the structs below, or bytes; offsets count from the header. The runtime refuses a
 * part, a model, a normaliser or a step that it does not know. */
#ifndef FTX_TOKENIZER_FORMAT_H
#define FTX_TOKENIZER_FORMAT_H

#include <stdint.h>

#define TOK_MAGIC "FTXT"
enum {
    TOK_FORMAT = 3,
    TOK_FORMAT_OLDEST = 2, /* has no TOK_JOIN_*, TOK_STEP_BYTES, TOK_MODEL_WORDLEVEL, suffix, TOK_GAP, TOK_USER */
};

typedef enum TokPartKind {
    TOK_PART_FACTS = 1, /* TokFacts, one */
    TOK_PART_BYTES,     /* texts of tokens and patterns */
    TOK_PART_TOKENS,    /* TokToken[vocab], by id */
    TOK_PART_ADDED,     /* TokAdded[], sorted by content, first those with TOK_ADDED_LATE unset */
    TOK_PART_NORMS,     /* TokNorm[]: the normaliser */
    TOK_PART_STEPS,     /* TokStep[]: the pre-tokenizer */
    TOK_PART_MERGES,    /* TokMerge[], by rank */
    TOK_PART_PAIRS,     /* u32[power of two]: hash of (left, right) to rank + 1; 0: free */
    TOK_PART_WORDS,     /* u32[power of two]: hash of bytes to id + 1, with TOK_WHOLE_WORDS */
    TOK_PART_FRAME,     /* TokFrame[n_single + n_pair]: the tokens around a text, and around a pair */
    TOK_PART_PIECES,    /* TokPiece[], in any order */
    TOK_PART_TRIE,      /* TokNode[]: bytes to pieces */
    TOK_PART_CHARSMAP,  /* SentencePiece's precompiled map of characters, as its file has it */
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

typedef enum TokModel {
    TOK_MODEL_BPE_BYTES = 1,  /* byte-level BPE: a piece begins as its bytes */
    TOK_MODEL_BPE_CHARACTERS, /* ... as its characters, which are in the trie */
    TOK_MODEL_WORDPIECE,
    TOK_MODEL_UNIGRAM,
    TOK_MODEL_WORDLEVEL, /* a piece is a token or unknown */
} TokModel;

enum {
    TOK_WHOLE_WORDS = 1,   /* BPE: a piece that is a token is not merged (ignore_merges) */
    TOK_BYTE_FALLBACK = 2, /* an unknown character gives the tokens of its bytes, if all are there */
    TOK_FUSE_UNKNOWN = 4,  /* neighbouring unknown characters give one token */
    TOK_SINGLE = 8,        /* Unigram: sums in single precision, as SentencePiece */
    TOK_FIRST_LASTS = 16,  /* decoding: a token is the first until one has given text */
    TOK_GROUPS = 32,       /* decoding: after a special token come a space and a new first token */
    TOK_TRIM = 64,         /* decoding: no spaces at the ends */
    TOK_USERS = 128,       /* there are tokens with TOK_USER */
};

typedef struct TokFacts { /* 1072 bytes */
    uint32_t model;
    uint32_t flags;
    uint32_t n_single, n_pair; /* of TOK_PART_FRAME */
    int32_t unknown;           /* the token for text that no piece covers; -1: such text is an error */
    int32_t unknown_piece;     /* Unigram: the piece that is as good as unknown; -1: none */
    uint32_t max_characters;   /* WordPiece: a longer word is unknown */
    uint32_t tail;             /* WordPiece, BPE of characters: the node that the prefix of later pieces of a word leads
                                * to; 0: no prefix */
    double unknown_score;      /* Unigram */
    uint32_t suffix_offset, suffix_bytes; /* BPE of characters: a word's last one ends with this; in TOK_PART_BYTES */
    int32_t byte_id[256];                 /* the token of one byte; -1: none, the byte gives no token */
} TokFacts;

enum {
    TOK_SPECIAL = 1,
    TOK_PRESENT = 2, /* there is a token of this id */
    TOK_GAP = 4,     /* decoding: a space follows, if another token does */
    TOK_USER = 8,    /* SentencePiece: a piece of the user, found before all others */
};

typedef struct TokToken { /* 20 bytes: the text of a token, in TOK_PART_BYTES */
    uint32_t offset, bytes;
    uint32_t first_offset, first_bytes; /* as the first token of a text */
    uint32_t flags;
} TokToken;

enum { TOK_TEXT = -1, TOK_OTHER_TEXT = -2 };

typedef struct TokFrame { /* 8 bytes */
    int32_t id;           /* or TOK_TEXT, TOK_OTHER_TEXT */
    uint32_t type;        /* the model's token type */
} TokFrame;

typedef struct TokPiece { /* 16 bytes: a piece of text with a token */
    double score;         /* Unigram: log probability */
    int32_t id;
    uint32_t bytes;
} TokPiece;

/* A double array (Aoe 1989): the child of `node` by a byte is node.base + byte, if the parent of that one is `node`.
 * The root is 0. */
typedef struct TokNode { /* 12 bytes */
    uint32_t base, parent;
    uint32_t piece; /* piece + 1; 0: none ends here */
} TokNode;

enum {
    TOK_ADDED_LATE = 1, /* searched after normalising, in the text between the early ones */
    TOK_ADDED_LSTRIP = 2,
    TOK_ADDED_RSTRIP = 4,
    TOK_ADDED_WORD = 8, /* only where no word character touches it */
};

typedef struct TokAdded { /* 16 bytes: a text that is one token wherever it stands */
    uint32_t offset, bytes;
    int32_t id;
    uint32_t flags;
} TokAdded;

typedef enum TokNormKind {
    TOK_NORM_NFC = 1,
    TOK_NORM_NFD,
    TOK_NORM_NFKC,
    TOK_NORM_NFKD,
    TOK_NORM_CLEAN,     /* controls vanish, each white space becomes a space */
    TOK_NORM_IDEOGRAPH, /* spaces around CJK ideographs */
    TOK_NORM_LOWER,
    TOK_NORM_MARKS,      /* marks vanish */
    TOK_NORM_NONSPACING, /* nonspacing marks vanish */
    TOK_NORM_NMT,        /* SentencePiece's list of controls and spaces */
    TOK_NORM_STRIP,      /* white space at the ends vanishes */
    TOK_NORM_PREPEND,    /* `with` before a text that is not empty */
    TOK_NORM_REPLACE,    /* each `text` by `with` */
    TOK_NORM_PATTERN,    /* each match of the PCRE2 pattern `text` by `with` */
    TOK_NORM_CHARSMAP,   /* TOK_PART_CHARSMAP, grapheme by grapheme, as Hugging Face reads it */
    TOK_NORM_PIECES,     /* SentencePiece's whole normaliser, TOK_PART_CHARSMAP inside */
    TOK_NORM_COUNT,
} TokNormKind;

enum {
    TOK_LEFT = 1,  /* STRIP */
    TOK_RIGHT = 2, /* STRIP */
    TOK_DUMMY = 4, /* PIECES: a space before the text */
    TOK_DUMMY_AFTER = 8,
    TOK_SQUEEZE = 16, /* no spaces at the ends, one between words */
    TOK_ESCAPE = 32,  /* a space becomes U+2581 */
    TOK_START = 64,   /* a text behind an added token does not begin: no space before it, its own first one stays */
};

enum { TOK_MAX_NORMS = 96 };

typedef struct TokNorm { /* 24 bytes; texts in TOK_PART_BYTES */
    uint32_t kind;
    uint32_t flags;
    uint32_t offset, bytes;
    uint32_t with_offset, with_bytes;
} TokNorm;

typedef enum TokStepKind {
    TOK_STEP_SPLIT = 1, /* matches of a pattern, and what is between them, are pieces */
    TOK_STEP_SPACE,     /* a piece that does not begin with a space gets one */
    TOK_STEP_BLANKS,    /* white space ends pieces and vanishes */
    TOK_STEP_MARKS,     /* each punctuation mark is a piece */
    TOK_STEP_METASPACE, /* spaces become a visible character, which begins pieces */
    TOK_STEP_BYTES,     /* each byte becomes the character that stands for it in byte-level vocabularies */
} TokStepKind;

enum {
    TOK_DROP_MATCHES = 1,  /* SPLIT, MARKS */
    TOK_DROP_BETWEEN = 2,  /* SPLIT */
    TOK_PREPEND = 4,       /* METASPACE: the character before a text that does not begin with it */
    TOK_PREPEND_FIRST = 8, /* ... only at the start of the whole text */
    TOK_SPLIT = 16,        /* METASPACE: pieces end before the character; else one piece */
    /* SPLIT, MARKS: */
    TOK_JOIN_PREVIOUS = 32, /* a match is part of the piece before it */
    TOK_JOIN_NEXT = 64,     /* ... of the piece after it */
    TOK_JOIN_ALIKE = 128,   /* neighbouring matches are one piece */
};

enum { TOK_MAX_STEPS = 16 };

typedef struct TokStep { /* 16 bytes; offset, bytes: in TOK_PART_BYTES */
    uint32_t kind;
    uint32_t offset, bytes; /* SPLIT: a PCRE2 pattern, UTF and multi-line; METASPACE: the character */
    uint32_t flags;
} TokStep;

typedef struct TokMerge { /* 16 bytes */
    int32_t left, right, result;
    uint32_t rank; /* the first rank of merges that rank equally: of these the leftmost comes first */
} TokMerge;

static inline uint64_t tok_pair_hash(int32_t left, int32_t right)
{
    uint64_t h = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;

    h *= 0x9e3779b97f4a7c15u;
    h ^= h >> 32;
    return h * 0xd6e8feb86659fd93u >> 20;
}

#endif
