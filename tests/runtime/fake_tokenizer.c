/* fake_tokenizer.c - a tokenizer for tests: few texts, so that stop strings are met often. */
#include <stdlib.h>
#include <string.h>

#include "fake.h"

static const char *const pieces[] = {"a", "b", "ab", "ba", "c", "\xc3", "\xa9", "aab", "b\xc3", "cab", "\xc3\xa9", ""};

enum { PIECES = sizeof pieces / sizeof *pieces, FAKE_BOS = 1 };

bool fake_tokenizer_fails;

struct Tokenizer {
    int unused;
};
struct TokenizerScratch {
    size_t max_text;
};

const char *fake_piece(int32_t id)
{
    return pieces[id % PIECES];
}

FtxStatus tokenizer_open(const void *tables, size_t bytes, Tokenizer **out, FtxError *err)
{
    (void)tables, (void)bytes;
    *out = fake_tokenizer_fails ? NULL : malloc(sizeof **out);
    return *out ? FTX_OK : ftx_fail(err, FTX_ENOMEM, "no memory for the tokenizer");
}

void tokenizer_close(Tokenizer *t)
{
    free(t);
}

FtxStatus tokenizer_scratch_open(const Tokenizer *t, size_t max_text, TokenizerScratch **out, FtxError *err)
{
    (void)t;
    *out = malloc(sizeof **out);
    if (!*out)
        return ftx_fail(err, FTX_ENOMEM, "no memory for tokenizer scratch");
    (*out)->max_text = max_text;
    return FTX_OK;
}

void tokenizer_scratch_close(TokenizerScratch *s)
{
    free(s);
}

/* A byte is a token: 'a' is 0, 'b' 1, 'c' 4, the special token '#' 9 unless the text is literal, all else 11. */
static int32_t id_of(char c, bool literal)
{
    return c == 'a' ? 0 : c == 'b' ? 1 : c == 'c' ? 4 : c == '#' && !literal ? 9 : 11;
}

FtxStatus tokenizer_encode_pair(const Tokenizer *t, TokenizerScratch *s, const TokenizerPair *p, int32_t *ids,
                                int32_t *types, size_t max, size_t *n, FtxError *err)
{
    const size_t around = p->special, keep = p->most ? p->most - around : p->bytes;
    const size_t drop = p->bytes > keep ? p->bytes - keep : 0, bytes = p->bytes - drop;
    const char *text = p->text + (p->cut == TOKENIZER_CUT_START ? drop : 0);

    (void)t, (void)types;
    if (bytes > s->max_text)
        return ftx_fail(err, FTX_EFULL, "text of %zu bytes", bytes);
    *n = 0;
    if (p->special && (*n)++ < max)
        ids[0] = FAKE_BOS;
    for (size_t i = 0; i < bytes; i++, (*n)++)
        if (*n < max)
            ids[*n] = id_of(text[i], p->literal);
    return FTX_OK;
}

FtxStatus tokenizer_encode(const Tokenizer *t, TokenizerScratch *s, const char *text, size_t bytes, bool special,
                           int32_t *ids, size_t max, size_t *n, FtxError *err)
{
    const TokenizerPair one = {.text = text, .bytes = bytes, .special = special};

    return tokenizer_encode_pair(t, s, &one, ids, NULL, max, n, err);
}

FtxStatus tokenizer_decode(const Tokenizer *t, const int32_t *ids, size_t count, bool skip_special, char *text,
                           size_t max, size_t *n, FtxError *err)
{
    (void)t, (void)skip_special, (void)err;
    *n = 0;
    for (size_t i = 0; i < count; i++)
        for (const char *p = fake_piece(ids[i]); *p; p++, (*n)++)
            if (*n < max)
                text[*n] = *p;
    return FTX_OK;
}

static size_t replace(char *to)
{
    memcpy(to, "\xef\xbf\xbd", 3);
    return 3;
}

FtxStatus tokenizer_stream(const Tokenizer *t, TokenizerStream *s, int32_t id, bool flush, char *text, size_t max,
                           size_t *n, FtxError *err)
{
    (void)max, (void)err;
    if (t && id >= 0)
        fake_called('t');
    *n = 0;
    for (const char *p = id < 0 ? "" : fake_piece(id); *p; p++) {
        const unsigned char c = (unsigned char)*p;

        if (c == 0xa9 && s->n_held) {
            text[(*n)++] = (char)0xc3;
            text[(*n)++] = (char)0xa9;
            s->n_held = 0;
            continue;
        }
        if (s->n_held)
            *n += replace(text + *n);
        s->n_held = 0;
        if (c == 0xc3)
            s->n_held = 1;
        else if (c == 0xa9)
            *n += replace(text + *n);
        else
            text[(*n)++] = (char)c;
    }
    if (flush && s->n_held)
        *n += replace(text + *n);
    return FTX_OK;
}

const char *tokenizer_bytes(const Tokenizer *t, int32_t id, size_t *n, bool *special)
{
    (void)t;
    *n = strlen(fake_piece(id));
    *special = false;
    return fake_piece(id);
}

size_t tokenizer_token_bytes(const Tokenizer *t)
{
    (void)t;
    return 3;
}
