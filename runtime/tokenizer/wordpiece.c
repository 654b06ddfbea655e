/* wordpiece.c - a word as the longest pieces of a vocabulary, from left to right (Schuster and Nakajima 2012, Devlin
 * et al. 2018), or as one token (WordLevel).
 *
 *   "unaffable"   un | ##aff | ##able      if none fits at some position, the whole word is unknown
 *
 * Pieces inside a word are in the trie below the node of their prefix. */
#include "parts.h"

/* The longest piece below `node` at the start of the text; *bytes: its length. NULL: none. */
static const TokPiece *longest_piece(const Tokenizer *t, uint32_t node, const char *text, size_t n, size_t *bytes)
{
    const TokPiece *best = NULL;

    for (size_t i = 0; i < n && (node = tok_child(t, node, (unsigned char)text[i])); i++)
        if (t->trie[node].piece) {
            best = &t->pieces[t->trie[node].piece - 1];
            *bytes = i + 1;
        }
    return best;
}

static size_t count_characters(const char *text, size_t n)
{
    size_t count = 0;

    for (size_t i = 0; i < n; i++)
        count += ((unsigned char)text[i] & 0xc0) != 0x80;
    return count;
}

FtxStatus wordpiece_piece(const Tokenizer *t, const char *word, size_t n, TokSink *sink, FtxError *err)
{
    const size_t start = sink->n;
    size_t bytes = 0;

    if (count_characters(word, n) > t->facts->max_characters)
        return tok_emit_unknown(t, word, n, sink, err);
    for (size_t at = 0; at < n; at += bytes) {
        const TokPiece *p = longest_piece(t, at ? t->facts->tail : 0, word + at, n - at, &bytes);

        if (!p) {
            sink->n = start;
            return tok_emit_unknown(t, word, n, sink, err);
        }
        tok_emit(sink, p->id);
    }
    return FTX_OK;
}

FtxStatus wordlevel_piece(const Tokenizer *t, const char *word, size_t n, TokSink *sink, FtxError *err)
{
    const TokPiece *p = tok_whole(t, 0, word, n);

    if (!p)
        return tok_emit_unknown(t, word, n, sink, err);
    tok_emit(sink, p->id);
    return FTX_OK;
}
