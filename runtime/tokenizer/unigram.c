/* unigram.c - the most probable way to cut a text into pieces. Kudo 2018; Viterbi from left to right.
 *
 *   position   0   ▁ 3  h 4  e 5  l 6       best[position]: the last piece of the best path to it
 *
 * The score of a path is the sum of its pieces' scores; of equal ones the first found stays, as in the Hugging Face
 * library. A character without a piece of its own can be unknown. Only the scores of the last `ring` positions are
 * kept. Time: the length of the text times the longest walk in the trie. */
#include <string.h>

#include "parts.h"
#include "../base/utf8.h"

enum { UNREACHED = INT32_MIN }; /* in best; other negative numbers: an unknown character's bytes */

/* Whether this is the best path to `end` so far. */
static bool offer(const Tokenizer *t, TokenizerScratch *s, size_t end, double score, int32_t piece)
{
    double *held = &s->scores[end & (s->ring - 1)];

    if (t->facts->flags & TOK_SINGLE)
        score = (float)score;
    if (s->best[end] == UNREACHED || score > *held) {
        s->best[end] = piece;
        *held = score;
        return true;
    }
    return false;
}

/* Every position between two characters is reached: by a piece of one character or by an unknown one. Returns where
 * a vocabulary without an unknown token lacks a character, or n. */
static size_t find_best(const Tokenizer *t, TokenizerScratch *s, const char *text, size_t n)
{
    size_t length;

    for (size_t i = 0; i <= n; i++)
        s->best[i] = UNREACHED;
    s->scores[0] = 0;
    for (size_t at = 0; at < n; at += length) {
        const double here = s->scores[at & (s->ring - 1)];
        bool single = false;
        uint32_t node = 0, code;

        utf8_next((const unsigned char *)text + at, n - at, &length, &code);
        for (size_t k = 1; at + k <= n && (node = tok_child(t, node, (unsigned char)text[at + k - 1])); k++) {
            const uint32_t piece = t->trie[node].piece;

            if (!piece || t->pieces[piece - 1].bytes != k)
                continue;
            offer(t, s, at + k, here + t->pieces[piece - 1].score, (int32_t)piece - 1);
            single |= k == length;
        }
        if (!single && offer(t, s, at + length, here + t->facts->unknown_score, -(int32_t)length) &&
            t->facts->unknown < 0)
            return at;
    }
    return n;
}

static size_t step_bytes(const Tokenizer *t, int32_t piece)
{
    return piece < 0 ? (size_t)-piece : t->pieces[piece].bytes;
}

/* Turns the path around: best[position] becomes the piece that begins there. */
static void turn_around(const Tokenizer *t, TokenizerScratch *s, size_t n)
{
    int32_t piece = s->best[n];

    for (size_t at = n; at;) {
        at -= step_bytes(t, piece);
        const int32_t before = s->best[at];

        s->best[at] = piece;
        piece = before;
    }
}

static FtxStatus emit_unknown_run(const Tokenizer *t, const char *text, size_t n, TokSink *sink, FtxError *err)
{
    const TokPiece *whole = t->facts->unknown_piece >= 0 ? tok_whole(t, 0, text, n) : NULL;
    bool bytes = t->facts->flags & TOK_BYTE_FALLBACK;

    if (whole) { /* the text of the unknown token itself */
        tok_emit(sink, whole->id);
        return FTX_OK;
    }
    for (size_t i = 0; i < n && bytes; i++)
        bytes = t->facts->byte_id[(unsigned char)text[i]] >= 0;
    if (!bytes)
        return tok_emit_unknown(t, text, n, sink, err);
    for (size_t i = 0; i < n; i++)
        tok_emit(sink, t->facts->byte_id[(unsigned char)text[i]]);
    return FTX_OK;
}

FtxStatus unigram_piece(const Tokenizer *t, TokenizerScratch *s, const char *text, size_t n, TokSink *sink,
                        FtxError *err)
{
    FtxStatus status = FTX_OK;
    const size_t lacks = find_best(t, s, text, n);

    if (lacks < n)
        return tok_emit_unknown(t, text + lacks, n - lacks, sink, err);
    turn_around(t, s, n);
    for (size_t at = 0, end; !status && at < n; at = end) {
        int32_t piece = s->best[at];

        end = at + step_bytes(t, piece);
        if (piece >= 0 && piece != t->facts->unknown_piece) {
            tok_emit(sink, t->pieces[piece].id);
            continue;
        }
        while ((t->facts->flags & TOK_FUSE_UNKNOWN) && end < n) {
            piece = s->best[end];
            if (piece >= 0 && piece != t->facts->unknown_piece)
                break;
            end += step_bytes(t, piece);
        }
        status = emit_unknown_run(t, text + at, end - at, sink, err);
    }
    return status;
}
