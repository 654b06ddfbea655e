/* decoder.c - "decoder" of tokenizer.json, applied here: the text of each token, as the first token of a text and
 * after others, so that the runtime only copies.
 *
 *   "▁the"   Metaspace    " the", as the first "the"
 *   "##ing"  WordPiece    "ing",  as the first "##ing"
 *   "the"    null         " the", as the first "the" */
#include <stdlib.h>
#include <string.h>

#include "parts.h"

enum { MOST_TEXT = 64 /* bytes of the text that Replace puts in */ };

/* --- reading ------------------------------------------------------------------------------------ */

static DecodeStep *add(Build *b, DecodeKind kind)
{
    DecodeStep *s = arena_push(b->keep, b->decode);

    *s = (DecodeStep){.kind = kind, .what = "", .with = ""};
    return s;
}

/* A copy that stays when the JSON is released. */
static const char *keep_text(Build *b, const json_t *o, const char *name, const char *otherwise)
{
    const char *text = build_text(o, name);

    return text ? arena_strdup(b->keep, text) : otherwise;
}

static bool read_metaspace(Build *b, const json_t *o)
{
    const char *scheme = build_text(o, "prepend_scheme");
    DecodeStep *s = add(b, DECODE_METASPACE);

    s->what = keep_text(b, o, "replacement", VISIBLE_SPACE);
    s->flag = scheme ? strcmp(scheme, "never") != 0 : build_flag(o, "add_prefix_space", true);
    return true;
}

static bool read_wordpiece(Build *b, const json_t *o)
{
    DecodeStep *s = add(b, DECODE_WORDPIECE);

    s->what = keep_text(b, o, "prefix", "##");
    s->flag = build_flag(o, "cleanup", true);
    return true;
}

static bool read_replace(Build *b, const json_t *o)
{
    const char *what = build_text(json_object_get(o, "pattern"), "String");
    DecodeStep *s;

    if (!what || !*what || !build_text(o, "content") || strlen(build_text(o, "content")) > MOST_TEXT)
        return diag_error(b->d, b->loc, "its decoder's Replace has a pattern that is not supported");
    s = add(b, DECODE_REPLACE);
    s->what = arena_strdup(b->keep, what);
    s->with = keep_text(b, o, "content", "");
    return true;
}

static bool read_strip(Build *b, const json_t *o, bool fused)
{
    const json_int_t left = json_integer_value(json_object_get(o, "start"));
    const json_int_t right = json_integer_value(json_object_get(o, "stop"));
    DecodeStep *s;

    if (left < 0 || right < 0 || (fused && right) || left > 1000 || right > 1000)
        return diag_error(b->d, b->loc, "its decoder strips the end of the whole text, which is not supported");
    s = add(b, fused ? DECODE_STRIP_WHOLE : DECODE_STRIP);
    s->what = keep_text(b, o, "content", " ");
    s->left = (size_t)left;
    s->right = (size_t)right;
    return true;
}

static bool read_step(Build *b, const json_t *o, bool *fused)
{
    const json_t *list = json_object_get(o, "decoders");
    const char *type = build_type(o);

    if (strcmp(type, "Sequence") == 0) {
        for (size_t i = 0; i < json_array_size(list); i++)
            if (!read_step(b, json_array_get(list, i), fused))
                return false;
        return true;
    }
    if (strcmp(type, "Strip") == 0)
        return read_strip(b, o, *fused);
    if (*fused)
        return diag_error(b->d, b->loc, "its decoder has %s after Fuse or ByteLevel, which is not supported", type);
    if (strcmp(type, "Fuse") == 0)
        *fused = true;
    else if (strcmp(type, "BPEDecoder") == 0)
        add(b, DECODE_SUFFIX)->what = keep_text(b, o, "suffix", "</w>");
    else if (strcmp(type, "ByteFallback") == 0)
        add(b, DECODE_BYTES);
    else if (strcmp(type, "ByteLevel") == 0)
        *fused = add(b, DECODE_BYTE_LEVEL) != NULL; /* gives one text */
    else if (strcmp(type, "Metaspace") == 0)
        return read_metaspace(b, o);
    else if (strcmp(type, "WordPiece") == 0)
        return read_wordpiece(b, o);
    else if (strcmp(type, "Replace") == 0)
        return read_replace(b, o);
    else
        return diag_error(b->d, b->loc, "its decoder is %s, which is not supported", type);
    return true;
}

bool read_decoder(Build *b, const json_t *o)
{
    bool fused = false;

    if (!o || json_is_null(o)) {
        add(b, DECODE_JOIN);
        return true;
    }
    if (!read_step(b, o, &fused))
        return false;
    b->bytes_decode = b->decode.n == 1 && b->decode.at[0].kind == DECODE_BYTE_LEVEL;
    for (size_t i = 0; i < b->decode.n && b->decode.n > 1; i++)
        if (b->decode.at[i].kind == DECODE_SUFFIX)
            return diag_error(b->d, b->loc, "its decoder has BPEDecoder beside others, which is not supported");
    return true;
}

/* --- applying ----------------------------------------------------------------------------- */

typedef struct Piece {
    const char *at;
    size_t n;
} Piece;

static bool starts(Piece p, const char *with)
{
    return p.n >= strlen(with) && memcmp(p.at, with, strlen(with)) == 0;
}

static Piece without(Piece p, size_t n)
{
    return (Piece){p.at + n, p.n - n};
}

static Piece replace(Build *b, Piece p, const char *what, const char *with)
{
    const size_t step = strlen(what), gives = strlen(with);
    char *out = arena_alloc(b->keep, p.n * (gives + 1) + 1);
    size_t n = 0;

    if (!step)
        return p;
    while (p.n) {
        const bool hit = starts(p, what);

        memcpy(out + n, hit ? with : p.at, hit ? gives : 1);
        n += hit ? gives : 1;
        p = without(p, hit ? step : 1);
    }
    return (Piece){out, n};
}

static Piece clean_up(Build *b, Piece p)
{
    static const char *const pairs[][2] = {
        {" .", "."},   {" ?", "?"},           {" !", "!"},   {" ,", ","},     {" ' ", "'"},    {" n't", "n't"},
        {" 'm", "'m"}, {" do not", " don't"}, {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"},
    };

    for (size_t i = 0; i < LEN(pairs); i++)
        p = replace(b, p, pairs[i][0], pairs[i][1]);
    return p;
}

static Piece decode_wordpiece(Build *b, const DecodeStep *s, Piece p, bool first)
{
    if (!first && starts(p, s->what)) {
        p = without(p, strlen(s->what));
    } else if (!first) {
        const char *text = arena_printf(b->keep, " %.*s", (int)p.n, p.at);

        p = (Piece){text, p.n + 1};
    }
    return s->flag ? clean_up(b, p) : p;
}

static Piece decode_byte(Build *b, Piece p)
{
    char digits[3] = {0}, *end, *out;
    unsigned long byte;

    if (p.n != 6 || !starts(p, "<0x") || p.at[5] != '>')
        return p;
    memcpy(digits, p.at + 3, 2);
    byte = strtoul(digits, &end, 16);
    if (end != digits + 2 || strspn(digits, "0123456789abcdefABCDEF") != 2)
        return p;
    out = arena_alloc(b->keep, 1);
    *out = (char)byte;
    return (Piece){out, 1};
}

static bool has_suffix(const DecodeStep *s, Piece p)
{
    const size_t n = strlen(s->what);

    return n && p.n >= n && memcmp(p.at + p.n - n, s->what, n) == 0;
}

static Piece strip(const DecodeStep *s, Piece p, size_t left, size_t right)
{
    const size_t n = strlen(s->what);

    for (; n && left && starts(p, s->what); left--)
        p = without(p, n);
    for (; right && has_suffix(s, p); right--)
        p.n -= n;
    return p;
}

static Piece decode_one(Build *b, const DecodeStep *s, Piece p, bool first)
{
    switch (s->kind) {
    case DECODE_BYTE_LEVEL: {
        char *out = arena_alloc(b->keep, p.n + 1);

        build_token_bytes(b, arena_strndup(b->keep, p.at, p.n), out, &p.n);
        return (Piece){out, p.n};
    }
    case DECODE_METASPACE: return replace(b, p, s->what, first && s->flag ? "" : " ");
    case DECODE_WORDPIECE: return decode_wordpiece(b, s, p, first);
    case DECODE_REPLACE: return replace(b, p, s->what, s->with);
    case DECODE_BYTES: return decode_byte(b, p);
    case DECODE_STRIP: return strip(s, p, s->left, s->right);
    case DECODE_STRIP_WHOLE: return first ? strip(s, p, s->left, 0) : p;
    case DECODE_SENTENCEPIECE:
        if (first && s->flag && starts(p, VISIBLE_SPACE))
            p = without(p, strlen(VISIBLE_SPACE));
        return replace(b, p, VISIBLE_SPACE, " ");
    case DECODE_SUFFIX: return has_suffix(s, p) ? (Piece){p.at, p.n - strlen(s->what)} : p;
    case DECODE_JOIN: return first ? p : (Piece){arena_printf(b->keep, " %.*s", (int)p.n, p.at), p.n + 1};
    }
    return p;
}

static Piece decode(Build *b, const char *text, bool first)
{
    Piece p = {text, strlen(text)};

    for (size_t i = 0; i < b->decode.n; i++)
        p = decode_one(b, &b->decode.at[i], p, first);
    return p;
}

bool decode_tokens(Build *b)
{
    const DecodeStep *suffix = b->decode.n && b->decode.at[0].kind == DECODE_SUFFIX ? b->decode.at : NULL;

    for (size_t i = 0; i < b->texts.n; i++) {
        TokToken *t = arena_push(b->keep, b->tokens);
        Piece p, first;

        if (!b->texts.at[i].text)
            continue;
        p = decode(b, b->texts.at[i].text, false);
        first = decode(b, b->texts.at[i].text, true);
        *t = (TokToken){(uint32_t)b->bytes.n, (uint32_t)p.n, (uint32_t)b->bytes.n, (uint32_t)first.n,
                        b->texts.at[i].flags | TOK_PRESENT};
        if (suffix && p.n < strlen(b->texts.at[i].text))
            t->flags |= TOK_GAP;
        if (suffix && *suffix->what && memmem(p.at, p.n, suffix->what, strlen(suffix->what)))
            return diag_error(b->d, b->loc,
                              "token \"%.80s\" has the \"suffix\" of the decoder, \"%.40s\", before its end, which is "
                              "not supported",
                              b->texts.at[i].text, suffix->what);
        build_append(b, p.at, p.n);
        if (first.n == p.n && memcmp(first.at, p.at, p.n) == 0)
            continue;
        t->first_offset = (uint32_t)b->bytes.n;
        build_append(b, first.at, first.n);
    }
    return true;
}
