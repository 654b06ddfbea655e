/* bpe.c - byte pair encoding: merges the pair of lowest rank, leftmost first, until none is left. Sennrich et al.
 * 2016.
 *
 * Tokens are a doubly linked list, candidates a heap of (rank, position): O(n log n), also for a piece of 10 MB.
 *
 *   symbols   h e l l o        heap  (rank of "he", 0) (rank of "ll", 2) ...
 *   merge     he . l l o       . is dead; the pairs of "he" with its neighbours go into the heap
 *
 * A candidate is stale if its position has changed since. As in the Hugging Face library, whose results this must
 * equal, a stale candidate still counts if the pair now at its position merges to the same token. In SentencePiece
 * merges to pieces of one score rank equally.
 *
 * The first symbols are bytes, each of which is a token, or characters, some of which may be unknown. */
#include <string.h>

#include "../base/hash.h"
#include "parts.h"
#include "../base/utf8.h"

enum { HEAP_WAYS = 4 }; /* children of a node: 32 bytes of keys, half a cache line */

/* --- a heap of 64-bit keys, smallest first ------------------------------------------------------ */

static void bpe_push(uint64_t *heap, size_t *n, uint64_t key)
{
    size_t i = (*n)++;

    for (size_t up; i && key < heap[up = (i - 1) / HEAP_WAYS]; i = up)
        heap[i] = heap[up];
    heap[i] = key;
}

static uint64_t bpe_pop(uint64_t *heap, size_t *n)
{
    const uint64_t top = heap[0], key = heap[--*n];
    size_t i = 0;

    for (;;) {
        const size_t first = i * HEAP_WAYS + 1, end = first + HEAP_WAYS < *n ? first + HEAP_WAYS : *n;
        size_t least = first;

        if (first >= *n)
            break;
        for (size_t k = first + 1; k < end; k++)
            if (heap[k] < heap[least])
                least = k;
        if (heap[least] >= key)
            break;
        heap[i] = heap[least];
        i = least;
    }
    heap[i] = key;
    return top;
}

/* --- tables ------------------------------------------------------------------------------------- */

/* The rank of a pair; -1: it does not merge. The search ends at a free slot; tokenizer_open has checked that there
 * is one. */
static int64_t bpe_rank(const Tokenizer *t, int32_t left, int32_t right)
{
    const size_t mask = t->n_pairs - 1;

    for (size_t i = tok_pair_hash(left, right) & mask;; i = (i + 1) & mask) {
        const uint32_t slot = t->pairs[i];

        if (!slot)
            return -1;
        if (t->merges[slot - 1].left == left && t->merges[slot - 1].right == right)
            return slot - 1;
    }
}

/* The token that is a whole piece; -1: none. */
static int32_t bpe_word(const Tokenizer *t, const char *piece, size_t n)
{
    const size_t mask = t->n_words - 1;

    for (size_t i = hash64(piece, n) & mask;; i = (i + 1) & mask) {
        const uint32_t slot = t->words[i];
        const TokToken *token = slot ? &t->tokens[slot - 1] : NULL;

        if (!slot)
            return -1;
        if (token->bytes == n && memcmp(t->bytes + token->offset, piece, n) == 0)
            return (int32_t)slot - 1;
    }
}

/* --- one piece ---------------------------------------------------------------------------------- */

static void bpe_offer(const Tokenizer *t, TokenizerScratch *s, size_t *n_heap, int32_t left, int32_t right)
{
    int64_t rank;

    if (left < 0 || right < 0)
        return;
    rank = bpe_rank(t, s->symbols[left].id, s->symbols[right].id);
    if (rank >= 0)
        bpe_push(s->heap, n_heap, (uint64_t)t->merges[rank].rank << 32 | (uint32_t)left);
}

static void bpe_merge(const Tokenizer *t, TokenizerScratch *s, size_t *n_heap, uint64_t key)
{
    BpeSymbol *left = &s->symbols[(uint32_t)key], *right;
    const int32_t at = (int32_t)(uint32_t)key;
    const uint32_t wanted = (uint32_t)(key >> 32);
    int64_t rank;

    if (left->id < 0 || left->next < 0)
        return;
    right = &s->symbols[left->next];
    rank = bpe_rank(t, left->id, right->id);
    if (rank < 0 || (t->merges[rank].rank != wanted && t->merges[rank].result != t->merges[wanted].result))
        return;
    left->id = t->merges[rank].result;
    left->next = right->next;
    right->id = -1;
    if (left->next >= 0)
        s->symbols[left->next].prev = at;
    bpe_offer(t, s, n_heap, left->prev, at);
    bpe_offer(t, s, n_heap, at, left->next);
}

/* The piece of one character of a word: after a prefix if it is not the first, before the suffix if it is the last. */
static const TokPiece *bpe_symbol(const Tokenizer *t, const char *text, size_t n, bool first, bool last)
{
    uint32_t node = first ? 0 : t->facts->tail;

    if (!last || !t->facts->suffix_bytes)
        return tok_whole(t, node, text, n);
    for (size_t i = 0; i < n; i++)
        if (!(node = tok_child(t, node, (unsigned char)text[i])))
            return NULL;
    return tok_whole(t, node, t->bytes + t->facts->suffix_offset, t->facts->suffix_bytes);
}

static void bpe_add(TokenizerScratch *s, int32_t *count, int32_t id)
{
    s->symbols[*count] = (BpeSymbol){id, *count - 1, *count + 1};
    ++*count;
}

static int32_t bpe_bytes(const Tokenizer *t, TokenizerScratch *s, const char *piece, size_t n)
{
    int32_t count = 0;

    for (size_t i = 0; i < n; i++)
        if (t->facts->byte_id[(unsigned char)piece[i]] >= 0)
            bpe_add(s, &count, t->facts->byte_id[(unsigned char)piece[i]]);
    return count;
}

static bool bpe_falls_back(const Tokenizer *t, const char *p, size_t n)
{
    bool all = t->facts->flags & TOK_BYTE_FALLBACK;

    for (size_t i = 0; i < n && all; i++)
        all = t->facts->byte_id[(unsigned char)p[i]] >= 0;
    return all;
}

/* An unknown character is held until the next one, because neighbouring unknown characters may become one token.
 * Without an unknown token it gives nothing. As in the Hugging Face library, byte tokens in between do not end this. */
static int32_t bpe_characters(const Tokenizer *t, TokenizerScratch *s, const char *piece, size_t n)
{
    const int32_t unknown = t->facts->unknown;
    bool waits = false;
    int32_t count = 0;
    size_t length;

    for (size_t at = 0; at < n; at += length) {
        const TokPiece *p;
        uint32_t code;

        utf8_next((const unsigned char *)piece + at, n - at, &length, &code);
        if ((p = tok_user_piece(t, piece + at, n - at, &length)) ||
            (p = bpe_symbol(t, piece + at, length, at == 0, at + length == n))) {
            if (waits)
                bpe_add(s, &count, unknown);
            waits = false;
            bpe_add(s, &count, p->id);
        } else if (bpe_falls_back(t, piece + at, length)) {
            for (size_t i = 0; i < length; i++)
                bpe_add(s, &count, t->facts->byte_id[(unsigned char)piece[at + i]]);
        } else if (unknown >= 0) {
            if (waits && !(t->facts->flags & TOK_FUSE_UNKNOWN))
                bpe_add(s, &count, unknown);
            waits = true;
        }
    }
    if (waits)
        bpe_add(s, &count, unknown);
    return count;
}

static bool bpe_take_whole(const Tokenizer *t, const char *piece, size_t n, TokSink *sink)
{
    const TokPiece *p;
    int32_t id;

    if (t->facts->model == TOK_MODEL_BPE_BYTES)
        id = bpe_word(t, piece, n);
    else
        id = (p = tok_whole(t, 0, piece, n)) ? p->id : -1;
    if (id >= 0)
        tok_emit(sink, id);
    return id >= 0;
}

/* There are at most n symbols and fewer than n merges. Each merge takes one candidate and adds two, so there are
 * never 2 n candidates. */
FtxStatus bpe_piece(const Tokenizer *t, TokenizerScratch *s, const char *piece, size_t n, TokSink *sink, FtxError *err)
{
    size_t n_heap = 0;
    int32_t count;

    (void)err;
    if ((t->facts->flags & TOK_WHOLE_WORDS) && bpe_take_whole(t, piece, n, sink))
        return FTX_OK;
    count = t->facts->model == TOK_MODEL_BPE_BYTES ? bpe_bytes(t, s, piece, n) : bpe_characters(t, s, piece, n);
    if (count == 0)
        return FTX_OK;
    s->symbols[count - 1].next = -1;
    for (int32_t i = 0; i + 1 < count; i++)
        bpe_offer(t, s, &n_heap, i, i + 1);
    while (n_heap)
        bpe_merge(t, s, &n_heap, bpe_pop(s->heap, &n_heap));
    for (int32_t i = 0; i >= 0; i = s->symbols[i].next)
        tok_emit(sink, s->symbols[i].id);
    return FTX_OK;
}
