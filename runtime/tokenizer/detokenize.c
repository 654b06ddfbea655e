/* detokenize.c - ids to text, one token after another, in whole characters.
 *
 * The tables hold the text of each token, as the first of a text and after other tokens. This file does what
 * depends on the text written so far. */
#include <string.h>

#include "parts.h"
#include "../base/utf8.h"

enum { MOST_SPACES = 8 /* held back in a stream; a ninth space writes one */ };

typedef struct TextSink {
    char *text;
    size_t max, n;
    bool trim, stream;
    size_t spaces; /* held back while a whole text is written */
} TextSink;

static void put_text(TextSink *s, const void *p, size_t bytes)
{
    if (s->n <= s->max && bytes <= s->max - s->n)
        memcpy(s->text + s->n, p, bytes);
    else if (s->n < s->max)
        memcpy(s->text + s->n, p, s->max - s->n);
    s->n += bytes;
}

/* Writes a whole character. With trim, spaces are held back until another character follows; those at the start are
 * dropped. */
static void put_character(TokenizerStream *d, const void *p, size_t bytes, TextSink *out)
{
    if (out->trim && bytes == 1 && *(const char *)p == ' ') {
        if (!d->gave)
            return;
        if (!out->stream)
            out->spaces++;
        else if (d->spaces < MOST_SPACES)
            d->spaces++;
        else
            put_text(out, " ", 1);
        return;
    }
    for (; d->spaces; d->spaces--)
        put_text(out, " ", 1);
    for (; out->spaces; out->spaces--)
        put_text(out, " ", 1);
    d->gave = true;
    put_text(out, p, bytes);
}

/* Takes one byte of a token and writes a character once it is whole. If the byte cannot continue the held bytes,
 * these become U+FFFD and the byte starts a new character. */
static void put_byte(TokenizerStream *d, unsigned char byte, TextSink *out)
{
    d->held[d->n_held++] = byte;
    while (d->n_held) {
        uint32_t code;
        size_t length;
        const Utf8Kind kind = utf8_next(d->held, d->n_held, &length, &code);

        if (kind == UTF8_CUT)
            return;
        if (kind == UTF8_CHARACTER)
            put_character(d, d->held, length, out);
        else
            put_character(d, UTF8_REPLACEMENT, 3, out);
        d->n_held -= (uint32_t)length;
        memmove(d->held, d->held + length, d->n_held);
    }
}

const char *tokenizer_bytes(const Tokenizer *t, int32_t id, size_t *n, bool *special)
{
    const bool there = id >= 0 && (size_t)id < t->n_tokens && (t->tokens[id].flags & TOK_PRESENT);

    *n = there ? t->tokens[id].bytes : 0;
    *special = there && (t->tokens[id].flags & TOK_SPECIAL);
    return there ? (const char *)t->bytes + t->tokens[id].offset : "";
}

static void put_token(const Tokenizer *t, TokenizerStream *d, int32_t id, bool skip_special, TextSink *out)
{
    const uint32_t flags = t->facts->flags;
    const TokToken *token;
    bool special;
    uint32_t offset, bytes;

    if (id < 0 || (size_t)id >= t->n_tokens || !(t->tokens[id].flags & TOK_PRESENT))
        return; /* a model may have more rows than there are tokens */
    token = &t->tokens[id];
    special = token->flags & TOK_SPECIAL;
    if (skip_special && special)
        return;
    if (d->gap)
        put_byte(d, ' ', out);
    d->gap = token->flags & TOK_GAP;
    offset = d->started ? token->offset : token->first_offset;
    bytes = d->started ? token->bytes : token->first_bytes;
    for (uint32_t i = 0; i < bytes; i++)
        put_byte(d, (unsigned char)t->bytes[offset + i], out);
    d->started |= bytes > 0 || !(flags & TOK_FIRST_LASTS);
    if (special && (flags & TOK_GROUPS)) {
        put_byte(d, ' ', out);
        d->started = 0;
    }
}

static void put_rest(TokenizerStream *d, TextSink *out)
{
    if (d->n_held)
        put_character(d, UTF8_REPLACEMENT, 3, out);
    d->n_held = 0;
}

FtxStatus tokenizer_decode(const Tokenizer *t, const int32_t *ids, size_t count, bool skip_special, char *text,
                           size_t max, size_t *n, FtxError *err)
{
    TokenizerStream d = {0};
    TextSink out = {.text = text, .max = max, .trim = t->facts->flags & TOK_TRIM};

    (void)err;
    for (size_t i = 0; i < count; i++)
        put_token(t, &d, ids[i], skip_special, &out);
    put_rest(&d, &out);
    *n = out.n;
    return FTX_OK;
}

FtxStatus tokenizer_stream(const Tokenizer *t, TokenizerStream *d, int32_t id, bool flush, char *text, size_t max,
                           size_t *n, FtxError *err)
{
    TextSink out = {.text = text, .max = max, .trim = t->facts->flags & TOK_TRIM, .stream = true};

    *n = 0;
    if (d->n_held >= sizeof d->held || d->spaces > MOST_SPACES)
        return ftx_fail(err, FTX_EINVAL, "tokenizer: a TokenizerStream that was not zeroed before its first use");
    put_token(t, d, id, !d->keep_special, &out);
    if (flush)
        put_rest(d, &out);
    if (out.n > max)
        return ftx_fail(err, FTX_EINVAL, "tokenizer: %zu bytes of text have room for %zu", out.n, max);
    *n = out.n;
    return FTX_OK;
}
