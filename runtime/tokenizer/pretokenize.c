/* pretokenize.c - the pre-tokenizer: the steps split a normalised text; the texts after the last step are the
 * pieces for the model.
 *
 *   "Hi all"   SPLIT, by GPT-2's pattern    "Hi" | " all"
 *   "a, b"     BLANKS, MARKS                "a" | "," | "b"
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

/* Splits into matches and the texts between them. An empty match ends a piece but is none. */
static FtxStatus split_by_pattern(const Tokenizer *t, TokenizerScratch *s, size_t step, const char *text, size_t n,
                                  TokSink *sink, FtxError *err)
{
    const bool matches = !(t->steps[step].flags & TOK_DROP_MATCHES);
    const bool between = !(t->steps[step].flags & TOK_DROP_BETWEEN);
    size_t done = 0, from = 0;
    FtxStatus status = FTX_OK;

    while (!status && from < n) {
        const int found =
            pcre2_match(t->patterns[step], (PCRE2_SPTR)text, n, from, PCRE2_NO_UTF_CHECK, s->match, s->match_context);
        const PCRE2_SIZE *at = pcre2_get_ovector_pointer(s->match);

        if (found == PCRE2_ERROR_NOMATCH)
            break;
        if (found < 0 || at[1] < at[0] || at[0] < done) {
            PCRE2_UCHAR why[120];

            pcre2_get_error_message(found, why, sizeof why);
            return ftx_fail(err, FTX_EINVAL, "tokenizer: its pattern fails at byte %zu of a text of %zu: %s", from, n,
                            found < 0 ? (const char *)why : "a match outside the text");
        }
        const size_t start = at[0], end = at[1];
        if (between && start > done)
            status = run_steps(t, s, step + 1, text + done, start - done, sink, err);
        s->moved = true;
        if (!status && matches && end > start)
            status = run_steps(t, s, step + 1, text + start, end - start, sink, err);
        done = end;
        from = end > start ? end : end < n ? end + character_bytes(text + end, n - end) : n;
    }
    if (!status && between && done < n)
        status = run_steps(t, s, step + 1, text + done, n - done, sink, err);
    return status;
}

static bool ends_piece(TokStepKind kind, uint32_t code)
{
    return kind == TOK_STEP_BLANKS ? utf8_is_space(code) : utf8_is_mark(code);
}

/* Splits at white space, which is dropped, or at punctuation marks, each of which is a piece. */
static FtxStatus split_at_characters(const Tokenizer *t, TokenizerScratch *s, size_t step, const char *text, size_t n,
                                     TokSink *sink, FtxError *err)
{
    const TokStepKind kind = t->steps[step].kind;
    size_t done = 0, length;
    FtxStatus status = FTX_OK;

    for (size_t at = 0; !status && at < n; at += length) {
        uint32_t code;

        utf8_next((const unsigned char *)text + at, n - at, &length, &code);
        if (!ends_piece(kind, code))
            continue;
        if (at > done)
            status = run_steps(t, s, step + 1, text + done, at - done, sink, err);
        s->moved |= kind == TOK_STEP_BLANKS || at > 0;
        if (!status && kind == TOK_STEP_MARKS)
            status = run_steps(t, s, step + 1, text + at, length, sink, err);
        s->moved = true;
        done = at + length;
    }
    if (!status && done < n)
        status = run_steps(t, s, step + 1, text + done, n - done, sink, err);
    return status;
}

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

static FtxStatus run_steps(const Tokenizer *t, TokenizerScratch *s, size_t step, const char *text, size_t n,
                           TokSink *sink, FtxError *err)
{
    if (step == t->n_steps)
        return emit_piece(t, s, text, n, sink, err);
    switch ((TokStepKind)t->steps[step].kind) {
    case TOK_STEP_SPLIT: return split_by_pattern(t, s, step, text, n, sink, err);
    case TOK_STEP_BLANKS:
    case TOK_STEP_MARKS: return split_at_characters(t, s, step, text, n, sink, err);
    case TOK_STEP_METASPACE: return split_metaspace(t, s, step, text, n, sink, err);
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
