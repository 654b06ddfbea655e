/* pretokenize.c - the pre-tokenizer: the steps split a normalised text; the texts after the last step are the
 * pieces for the model.
 *
 *   "Hi all"   SPLIT, by GPT-2's pattern    "Hi" | " all"
 *   "a, b"     BLANKS, MARKS                "a" | "," | "b"
 *   "a b c"    SPLIT " ", JOIN_PREVIOUS     "a " | "b " | "c"
 *   "a b"      METASPACE                    "▁a" | "▁b" */
#include <string.h>

#include "parts.h"
#include "../base/utf8.h"

static FtxStatus run_steps(const Tokenizer *t, TokenizerScratch *s, size_t step, const char *text, size_t n,
                           TokSink *sink, FtxError *err);

static FtxStatus emit_piece(const Tokenizer *t, TokenizerScratch *s, const char *text, size_t n, TokSink *sink,
                            FtxError *err)
{
    switch ((TokModel)t->facts->model) {
    case TOK_MODEL_BPE_BYTES:
    case TOK_MODEL_BPE_CHARACTERS: return bpe_piece(t, s, text, n, sink, err);
    case TOK_MODEL_WORDPIECE: return wordpiece_piece(t, text, n, sink, err);
    case TOK_MODEL_UNIGRAM: return unigram_piece(t, s, text, n, sink, err);
    case TOK_MODEL_WORDLEVEL: return wordlevel_piece(t, text, n, sink, err);
    }
    return FTX_OK;
}

static size_t character_bytes(const char *p, size_t n)
{
    uint32_t code;
    size_t length;

    utf8_next((const unsigned char *)p, n, &length, &code);
    return length;
}

/* --- splitting ---------------------------------------------------------------------------------- */

/* A text is cut into segments: matches, and what is between them. Flags of the step say which segments are joined to
 * one piece, and which are dropped. */
typedef struct Cutting {
    const Tokenizer *t;
    TokenizerScratch *s;
    size_t step;
    const char *text;
    TokSink *sink;
    FtxError *err;
    uint32_t flags;
    size_t start, end; /* the piece that the next segment may join */
    bool any;          /* there is one */
    bool match;        /* its last segment is a match */
} Cutting;

static FtxStatus flush_piece(Cutting *c)
{
    if (c->start == c->end || (c->flags & (c->match ? TOK_DROP_MATCHES : TOK_DROP_BETWEEN)))
        return FTX_OK;
    c->s->moved |= c->start > 0;
    return run_steps(c->t, c->s, c->step + 1, c->text + c->start, c->end - c->start, c->sink, c->err);
}

static FtxStatus put_segment(Cutting *c, size_t start, size_t end, bool match)
{
    const bool joins = c->any && (c->flags & TOK_JOIN_ALIKE      ? match == c->match
                                  : c->flags & TOK_JOIN_PREVIOUS ? match && !c->match
                                  : c->flags & TOK_JOIN_NEXT     ? !match && c->match
                                                                 : false);
    FtxStatus status = FTX_OK;

    if (!joins) {
        status = c->any ? flush_piece(c) : FTX_OK;
        c->start = start;
    }
    c->any = true;
    c->end = end;
    c->match = match;
    return status;
}

/* The match [start, end), and the text before it that begins at `done`. */
static FtxStatus put_match(Cutting *c, size_t done, size_t start, size_t end)
{
    const FtxStatus status = start > done ? put_segment(c, done, start, false) : FTX_OK;

    return status ? status : put_segment(c, start, end, true);
}

static FtxStatus end_cutting(Cutting *c, size_t done, size_t n)
{
    const FtxStatus status = done < n ? put_segment(c, done, n, false) : FTX_OK;

    return status ? status : flush_piece(c);
}

/* An empty match ends a piece but is none; where the last match ends there is none. */
static FtxStatus split_by_pattern(Cutting *c, size_t n)
{
    TokenizerScratch *s = c->s;
    size_t done = 0, from = 0;
    FtxStatus status = FTX_OK;

    while (!status && from < n) {
        const int found = pcre2_match(c->t->patterns[c->step], (PCRE2_SPTR)c->text, n, from, PCRE2_NO_UTF_CHECK,
                                      s->match, s->match_context);
        const PCRE2_SIZE *at = pcre2_get_ovector_pointer(s->match);

        if (found == PCRE2_ERROR_NOMATCH)
            break;
        if (found < 0 || at[1] < at[0] || at[0] < done) {
            PCRE2_UCHAR why[120];

            pcre2_get_error_message(found, why, sizeof why);
            return ftx_fail(c->err, FTX_EINVAL, "tokenizer: its pattern fails at byte %zu of a text of %zu: %s", from,
                            n, found < 0 ? (const char *)why : "a match outside the text");
        }
        const size_t start = at[0], end = at[1];
        if (end > start || start > done || !done) {
            status = put_match(c, done, start, end);
            done = end;
        }
        from = end > start ? end : end < n ? end + character_bytes(c->text + end, n - end) : n;
    }
    return status ? status : end_cutting(c, done, n);
}

static bool ends_piece(TokStepKind kind, uint32_t code)
{
    return kind == TOK_STEP_BLANKS ? utf8_is_space(code) : utf8_is_mark(code);
}

/* Splits at white space or at punctuation marks. */
static FtxStatus split_at_characters(Cutting *c, size_t n)
{
    const TokStepKind kind = c->t->steps[c->step].kind;
    size_t done = 0, length;
    FtxStatus status = FTX_OK;

    for (size_t at = 0; !status && at < n; at += length) {
        uint32_t code;

        utf8_next((const unsigned char *)c->text + at, n - at, &length, &code);
        if (!ends_piece(kind, code))
            continue;
        status = put_match(c, done, at, at + length);
        done = at + length;
    }
    return status ? status : end_cutting(c, done, n);
}

static FtxStatus split_at(const Tokenizer *t, TokenizerScratch *s, size_t step, const char *text, size_t n,
                          TokSink *sink, FtxError *err)
{
    const TokStep *p = &t->steps[step];
    Cutting c = {.t = t, .s = s, .step = step, .text = text, .sink = sink, .err = err, .flags = p->flags};

    if (p->kind == TOK_STEP_SPLIT)
        return split_by_pattern(&c, n);
    if (p->kind == TOK_STEP_BLANKS)
        c.flags |= TOK_DROP_MATCHES;
    return split_at_characters(&c, n);
}

/* --- visible spaces and bytes ------------------------------------------------------------------- */

/* Writes the text to s->spaced with visible spaces; *out: its bytes. */
static FtxStatus show_spaces(const Tokenizer *t, TokenizerScratch *s, const TokStep *p, const char *text, size_t n,
                             size_t *out, FtxError *err)
{
    const char *mark = t->bytes + p->offset;
    const bool marked = *text == ' ' || (n >= p->bytes && memcmp(text, mark, p->bytes) == 0);
    size_t to = 0;

    if (!marked && ((p->flags & TOK_PREPEND) || ((p->flags & TOK_PREPEND_FIRST) && !s->moved))) {
        memcpy(s->spaced, mark, p->bytes);
        to = p->bytes;
    }
    for (size_t i = 0; i < n; i++) {
        if (to + p->bytes > s->room)
            return ftx_fail(err, FTX_EFULL, "tokenizer: a text grows over %zu bytes with its spaces made visible",
                            s->room);
        if (text[i] != ' ') {
            s->spaced[to++] = text[i];
        } else {
            memcpy(s->spaced + to, mark, p->bytes);
            to += p->bytes;
        }
    }
    *out = to;
    return FTX_OK;
}

static FtxStatus split_metaspace(const Tokenizer *t, TokenizerScratch *s, size_t step, const char *text, size_t n,
                                 TokSink *sink, FtxError *err)
{
    const TokStep *p = &t->steps[step];
    const char *mark = t->bytes + p->offset;
    size_t done = 0;
    FtxStatus status = show_spaces(t, s, p, text, n, &n, err);

    for (size_t at = 1; !status && (p->flags & TOK_SPLIT) && at + p->bytes <= n; at++) {
        if (s->spaced[at] != *mark || memcmp(s->spaced + at, mark, p->bytes) != 0)
            continue;
        status = run_steps(t, s, step + 1, s->spaced + done, at - done, sink, err);
        s->moved = true;
        done = at;
    }
    if (!status)
        status = run_steps(t, s, step + 1, s->spaced + done, n - done, sink, err);
    return status;
}

/* Printable bytes stand for themselves, the others are U+0100, U+0101 ... in their order. */
static uint32_t byte_character(unsigned char byte)
{
    if (byte <= 32)
        return 256u + byte;
    if (byte >= 127 && byte <= 160)
        return 256u + 33 + byte - 127;
    return byte == 173 ? 256u + 33 + 34 : byte;
}

/* Writes the text to s->shown, one character for each byte. Returns the bytes written: at most 2 * n. */
static size_t show_bytes(TokenizerScratch *s, const char *text, size_t n)
{
    size_t to = 0;

    for (size_t i = 0; i < n; i++)
        to += utf8_put(byte_character((unsigned char)text[i]), s->shown + to);
    return to;
}

static FtxStatus run_steps(const Tokenizer *t, TokenizerScratch *s, size_t step, const char *text, size_t n,
                           TokSink *sink, FtxError *err)
{
    if (step == t->n_steps)
        return emit_piece(t, s, text, n, sink, err);
    switch ((TokStepKind)t->steps[step].kind) {
    case TOK_STEP_SPLIT:
    case TOK_STEP_BLANKS:
    case TOK_STEP_MARKS: return split_at(t, s, step, text, n, sink, err);
    case TOK_STEP_METASPACE: return split_metaspace(t, s, step, text, n, sink, err);
    case TOK_STEP_BYTES: return run_steps(t, s, step + 1, s->shown, show_bytes(s, text, n), sink, err);
    case TOK_STEP_SPACE: break;
    }
    if (*text == ' ')
        return run_steps(t, s, step + 1, text, n, sink, err);
    s->spaced[0] = ' '; /* only one step writes to `spaced`; tokenizer_open has checked that */
    memcpy(s->spaced + 1, text, n);
    return run_steps(t, s, step + 1, s->spaced, n + 1, sink, err);
}

FtxStatus steps_text(const Tokenizer *t, TokenizerScratch *s, const char *text, size_t n, TokSink *sink, FtxError *err)
{
    return run_steps(t, s, 0, text, n, sink, err);
}
