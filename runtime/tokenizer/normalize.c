/* normalize.c - the normaliser: each step reads a text from one buffer and writes it to the other.
 *
 *   "  Ｃafé "   STRIP "Ｃafé"   NFKC "Café"   LOWER "café"   ...
 *
 * Every step takes linear time. A text that would not fit its buffer is refused. */
#include <string.h>
#include <utf8proc.h>

#include "parts.h"
#include "../base/utf8.h"

enum { SHORT_RUN = 24, CLASSES = 256, MOST_CODES = 32 /* of one character, decomposed */ };

#define VISIBLE_SPACE "\xe2\x96\x81" /* U+2581 */

typedef struct NormOut {
    char *text;
    size_t n, room;
    bool full;
} NormOut;

static void norm_put(NormOut *o, const char *p, size_t n)
{
    if (n > o->room - o->n) {
        o->full = true;
        return;
    }
    memcpy(o->text + o->n, p, n);
    o->n += n;
}

static void norm_put_code(NormOut *o, uint32_t code)
{
    char bytes[4];

    norm_put(o, bytes, utf8_put(code, bytes));
}

/* --- character by character --------------------------------------------------------------------- */

static bool norm_is_control(uint32_t c)
{
    const utf8proc_category_t category = utf8proc_category((utf8proc_int32_t)c);

    if (c == '\t' || c == '\n' || c == '\r')
        return false;
    return category == UTF8PROC_CATEGORY_CC || category == UTF8PROC_CATEGORY_CF || category == UTF8PROC_CATEGORY_CO;
}

/* CJK blocks that BERT puts spaces around. The Hugging Face library begins one of them at 2B920, Unicode at 2B820. */
static bool norm_is_ideograph(uint32_t c)
{
    return (c >= 0x4e00 && c <= 0x9fff) || (c >= 0x3400 && c <= 0x4dbf) || (c >= 0x20000 && c <= 0x2a6df) ||
           (c >= 0x2a700 && c <= 0x2b81f) || (c >= 0x2b920 && c <= 0x2ceaf) || (c >= 0xf900 && c <= 0xfaff) ||
           (c >= 0x2f800 && c <= 0x2fa1f);
}

static bool norm_is_accent(uint32_t c, bool nonspacing)
{
    const utf8proc_category_t category = utf8proc_category((utf8proc_int32_t)c);

    return category == UTF8PROC_CATEGORY_MN ||
           (!nonspacing && (category == UTF8PROC_CATEGORY_MC || category == UTF8PROC_CATEGORY_ME));
}

static bool norm_nmt_drops(uint32_t c)
{
    return (c >= 1 && c <= 8) || c == 0xb || (c >= 0xe && c <= 0x1f) || c == 0x7f || c == 0x8f || c == 0x9f;
}

static bool norm_nmt_spaces(uint32_t c)
{
    return c == 9 || c == 0xa || c == 0xc || c == 0xd || c == 0x1680 || (c >= 0x200b && c <= 0x200f) || c == 0x2028 ||
           c == 0x2029 || c == 0x2581 || c == 0xfeff || c == 0xfffd;
}

static void norm_character(TokNormKind kind, uint32_t c, NormOut *o)
{
    switch (kind) {
    case TOK_NORM_CLEAN:
        if (c && c != 0xfffd && !norm_is_control(c))
            norm_put_code(o, utf8_is_space(c) ? ' ' : c);
        return;
    case TOK_NORM_IDEOGRAPH:
        if (norm_is_ideograph(c))
            norm_put(o, " ", 1);
        norm_put_code(o, c);
        if (norm_is_ideograph(c))
            norm_put(o, " ", 1);
        return;
    case TOK_NORM_LOWER:
        if (c == 0x130) /* the one capital whose small letter is two characters */
            norm_put(o, "i\xcc\x87", 3);
        else
            norm_put_code(o, (uint32_t)utf8proc_tolower((utf8proc_int32_t)c));
        return;
    case TOK_NORM_MARKS:
    case TOK_NORM_NONSPACING:
        if (!norm_is_accent(c, kind == TOK_NORM_NONSPACING))
            norm_put_code(o, c);
        return;
    case TOK_NORM_NMT:
        if (!norm_nmt_drops(c))
            norm_put_code(o, norm_nmt_spaces(c) ? ' ' : c);
        return;
    default: return;
    }
}

static void norm_characters(TokNormKind kind, const char *text, size_t n, NormOut *o)
{
    size_t length;

    for (size_t at = 0; at < n; at += length) {
        uint32_t code;

        utf8_next((const unsigned char *)text + at, n - at, &length, &code);
        norm_character(kind, code, o);
    }
}

/* --- NFC, NFD, NFKC, NFKD ----------------------------------------------------------------------- */

static unsigned norm_class(int32_t code)
{
    return utf8proc_get_property(code)->combining_class & (CLASSES - 1);
}

/* Sorts marks by combining class; equal ones keep their order. spare: [n] */
static void norm_order(int32_t *codes, size_t n, int32_t *spare)
{
    size_t starts[CLASSES + 1] = {0};

    if (n <= SHORT_RUN) {
        for (size_t i = 1; i < n; i++)
            for (size_t k = i; k && norm_class(codes[k - 1]) > norm_class(codes[k]); k--) {
                const int32_t c = codes[k];

                codes[k] = codes[k - 1];
                codes[k - 1] = c;
            }
        return;
    }
    for (size_t i = 0; i < n; i++)
        starts[norm_class(codes[i]) + 1]++;
    for (size_t i = 0; i < CLASSES; i++)
        starts[i + 1] += starts[i];
    for (size_t i = 0; i < n; i++)
        spare[starts[norm_class(codes[i])]++] = codes[i];
    memcpy(codes, spare, n * sizeof *codes);
}

static void norm_order_runs(int32_t *codes, size_t n, int32_t *spare)
{
    for (size_t i = 0, end; i < n; i = end + 1) {
        for (end = i; end < n && norm_class(codes[end]); end++)
            ;
        if (end - i > 1)
            norm_order(codes + i, end - i, spare);
    }
}

static void norm_unicode(TokenizerScratch *s, TokNormKind kind, const char *text, size_t n, NormOut *o)
{
    const bool composed = kind == TOK_NORM_NFC || kind == TOK_NORM_NFKC;
    const bool alike = kind == TOK_NORM_NFKC || kind == TOK_NORM_NFKD;
    const utf8proc_option_t how = UTF8PROC_STABLE | (alike ? UTF8PROC_COMPAT : 0);
    size_t count = 0, length;

    for (size_t at = 0; at < n; at += length) {
        utf8proc_ssize_t got;
        uint32_t code;
        int bounds = 0;

        utf8_next((const unsigned char *)text + at, n - at, &length, &code);
        if (s->room - count < MOST_CODES) {
            o->full = true;
            return;
        }
        got = utf8proc_decompose_char((utf8proc_int32_t)code, s->codes + count, MOST_CODES, how | UTF8PROC_DECOMPOSE,
                                      &bounds);
        if (got < 1 || got > MOST_CODES) { /* no character does this: the longest has 18 */
            s->codes[count] = (int32_t)code;
            got = 1;
        }
        count += (size_t)got;
    }
    norm_order_runs(s->codes, count, s->codes + s->room);
    if (composed && count) {
        const utf8proc_ssize_t got =
            utf8proc_normalize_utf32(s->codes, (utf8proc_ssize_t)count, how | UTF8PROC_COMPOSE);

        count = got > 0 ? (size_t)got : 0;
    }
    for (size_t i = 0; i < count; i++)
        norm_put_code(o, (uint32_t)s->codes[i]);
}

/* --- replacing, stripping ----------------------------------------------------------------------- */

static void norm_replace(const Tokenizer *t, const TokNorm *p, const char *text, size_t n, NormOut *o)
{
    const char *what = t->bytes + p->offset;

    for (size_t at = 0; at < n;) {
        const char *hit = memmem(text + at, n - at, what, p->bytes);
        const size_t end = hit ? (size_t)(hit - text) : n;

        norm_put(o, text + at, end - at);
        if (hit)
            norm_put(o, t->bytes + p->with_offset, p->with_bytes);
        at = hit ? end + p->bytes : n;
    }
}

static FtxStatus norm_replace_pattern(const Tokenizer *t, TokenizerScratch *s, size_t step, const char *text, size_t n,
                                      NormOut *o, FtxError *err)
{
    const TokNorm *p = &t->norms[step];
    size_t done = 0, from = 0;

    while (from <= n) {
        const int found = pcre2_match(t->norm_patterns[step], (PCRE2_SPTR)text, n, from, PCRE2_NO_UTF_CHECK, s->match,
                                      s->match_context);
        const PCRE2_SIZE *at = pcre2_get_ovector_pointer(s->match);

        if (found == PCRE2_ERROR_NOMATCH)
            break;
        if (found < 0 || at[1] < at[0] || at[0] < done)
            return ftx_fail(err, FTX_EINVAL,
                            "tokenizer: its normaliser's pattern reaches the match limit at byte %zu of a text of %zu",
                            from, n);
        norm_put(o, text + done, at[0] - done);
        norm_put(o, t->bytes + p->with_offset, p->with_bytes);
        done = from = at[1];
        if (at[1] == at[0]) { /* an empty match: continue after the next character */
            size_t length = 1;
            uint32_t code;

            if (from < n)
                utf8_next((const unsigned char *)text + from, n - from, &length, &code);
            from += length;
        }
    }
    norm_put(o, text + done, n - done);
    return FTX_OK;
}

static size_t norm_blank_start(const char *p, size_t n)
{
    size_t at = 0, length;

    for (uint32_t code; at < n; at += length) {
        utf8_next((const unsigned char *)p + at, n - at, &length, &code);
        if (!utf8_is_space(code))
            break;
    }
    return at;
}

static size_t norm_blank_end(const char *p, size_t n)
{
    while (n) {
        size_t start = n - 1, length;
        uint32_t code;

        while (start && ((unsigned char)p[start] & 0xc0) == 0x80)
            start--;
        utf8_next((const unsigned char *)p + start, n - start, &length, &code);
        if (!utf8_is_space(code))
            break;
        n = start;
    }
    return n;
}

static void norm_strip(TokenizerScratch *s, const TokNorm *p, const char *text, size_t n, NormOut *o)
{
    const size_t start = p->flags & TOK_LEFT ? norm_blank_start(text, n) : 0;
    const size_t end = p->flags & TOK_RIGHT ? start + norm_blank_end(text + start, n - start) : n;

    s->moved |= start > 0;
    norm_put(o, text + start, end - start);
}

/* --- SentencePiece's map of characters ---------------------------------------------------------- */

/* A unit of its double array (Darts-clone): a label, whether a value follows, and the offset of the children. */
static uint32_t map_unit(const Tokenizer *t, size_t at)
{
    uint32_t unit;

    memcpy(&unit, t->map_units + at * 4, 4);
    return unit;
}

static size_t map_offset(uint32_t unit)
{
    return (size_t)(unit >> 10) << ((unit & (1u << 9)) >> 6);
}

static bool whole_at(const char *p) /* not inside a character */
{
    return ((unsigned char)*p & 0xc0) != 0x80;
}

/* The text that replaces the start of p, ended by a zero; *bytes: how many bytes of p it replaces. longest: takes
 * the longest matching entry, else the shortest. NULL: no entry matches. */
static const char *map_find(const Tokenizer *t, const char *p, size_t n, bool longest, size_t *bytes)
{
    const char *found = NULL;
    size_t at;

    if (!t->n_map_units)
        return NULL;
    at = map_offset(map_unit(t, 0));
    for (size_t i = 0; i < n && p[i]; i++) {
        uint32_t unit;

        at ^= (unsigned char)p[i];
        if (at >= t->n_map_units)
            break;
        unit = map_unit(t, at);
        if ((unit & 0x800000ff) != (unsigned char)p[i])
            break;
        at ^= map_offset(unit);
        if (at >= t->n_map_units)
            break;
        if (unit >> 8 & 1) {
            const uint32_t value = map_unit(t, at) & 0x7fffffff;

            if (value < t->n_map_texts && whole_at((const char *)t->map_texts + value) &&
                (i + 1 == n || whole_at(p + i + 1))) {
                found = (const char *)t->map_texts + value;
                *bytes = i + 1;
                if (!longest)
                    break;
            }
        }
    }
    return found;
}

static size_t norm_grapheme(const char *p, size_t n)
{
    utf8proc_int32_t state = 0;
    size_t at, length;
    uint32_t before, code;

    utf8_next((const unsigned char *)p, n, &at, &before);
    for (; at < n; at += length) {
        utf8_next((const unsigned char *)p + at, n - at, &length, &code);
        if (before - 0x20 < 0x5f && code - 0x20 < 0x5f)
            break; /* no grapheme reaches over two printable ASCII characters */
        if (utf8proc_grapheme_break_stateful((utf8proc_int32_t)before, (utf8proc_int32_t)code, &state))
            break;
        before = code;
    }
    return at;
}

/* If a short grapheme begins with an entry, the whole grapheme becomes that entry's text; otherwise each character
 * is looked up. This drops marks that SentencePiece keeps; models were made with either. */
static void norm_charsmap(const Tokenizer *t, const char *text, size_t n, NormOut *o)
{
    for (size_t at = 0, end; at < n; at = end) {
        const char *to;
        size_t length;

        end = at + norm_grapheme(text + at, n - at);
        if (end - at < 6 && (to = map_find(t, text + at, end - at, false, &length))) {
            norm_put(o, to, strlen(to));
            continue;
        }
        for (uint32_t code; at < end; at += length) {
            size_t some;

            utf8_next((const unsigned char *)text + at, end - at, &length, &code);
            if ((to = map_find(t, text + at, length, false, &some)))
                norm_put(o, to, strlen(to));
            else
                norm_put(o, text + at, length);
        }
    }
}

/* --- SentencePiece's normaliser ----------------------------------------------------------------- */

typedef struct NormPieces {
    NormOut *o;
    bool squeeze, escape, after_space;
} NormPieces;

static void pieces_put(NormPieces *p, const char *text, size_t n)
{
    while (p->after_space && n && *text == ' ') {
        text++;
        n--;
    }
    for (size_t i = 0; i < n; i++)
        norm_put(p->o, p->escape && text[i] == ' ' ? VISIBLE_SPACE : text + i, p->escape && text[i] == ' ' ? 3 : 1);
    if (n)
        p->after_space = p->squeeze && text[n - 1] == ' ';
}

static bool ends_with(const NormOut *o, const char *space, size_t n)
{
    return o->n >= n && memcmp(o->text + o->n - n, space, n) == 0;
}

static void norm_pieces(const Tokenizer *t, const TokenizerScratch *s, const TokNorm *p, const char *text, size_t n,
                        NormOut *o)
{
    const bool start = !(p->flags & TOK_START) || !s->moved;
    NormPieces out = {.o = o, .squeeze = p->flags & TOK_SQUEEZE, .escape = p->flags & TOK_ESCAPE};
    const char *space = out.escape ? VISIBLE_SPACE : " ";
    const size_t space_bytes = strlen(space);
    bool begun = !out.squeeze || !start;
    size_t length;

    out.after_space = out.squeeze && start;
    for (size_t at = 0; at < n; at += length) {
        const bool user = tok_user_piece(t, text + at, n - at, &length) != NULL;
        const char *to = user ? text + at : map_find(t, text + at, n - at, true, &length);
        size_t bytes;

        if (to) {
            bytes = user ? length : strlen(to);
        } else {
            uint32_t code;

            utf8_next((const unsigned char *)text + at, n - at, &length, &code);
            to = text + at;
            bytes = length;
        }
        if (!begun && bytes == 1 && *to == ' ')
            continue;
        if ((!begun || at == 0) && start && (p->flags & TOK_DUMMY))
            norm_put(o, space, space_bytes);
        begun = true;
        pieces_put(&out, to, bytes);
    }
    while (out.squeeze && begun && ends_with(o, space, space_bytes))
        o->n -= space_bytes;
    if (begun && (p->flags & TOK_DUMMY_AFTER))
        norm_put(o, space, space_bytes);
}

/* --- all of it ---------------------------------------------------------------------------------- */

static FtxStatus norm_step(const Tokenizer *t, TokenizerScratch *s, size_t step, const char *text, size_t n, NormOut *o,
                           FtxError *err)
{
    const TokNorm *p = &t->norms[step];
    const TokNormKind kind = p->kind;

    switch (kind) {
    case TOK_NORM_NFC:
    case TOK_NORM_NFD:
    case TOK_NORM_NFKC:
    case TOK_NORM_NFKD: norm_unicode(s, kind, text, n, o); break;
    case TOK_NORM_CLEAN:
    case TOK_NORM_IDEOGRAPH:
    case TOK_NORM_LOWER:
    case TOK_NORM_MARKS:
    case TOK_NORM_NONSPACING:
    case TOK_NORM_NMT: norm_characters(kind, text, n, o); break;
    case TOK_NORM_STRIP: norm_strip(s, p, text, n, o); break;
    case TOK_NORM_PREPEND:
        norm_put(o, t->bytes + p->with_offset, p->with_bytes);
        norm_put(o, text, n);
        break;
    case TOK_NORM_REPLACE: norm_replace(t, p, text, n, o); break;
    case TOK_NORM_PATTERN: return norm_replace_pattern(t, s, step, text, n, o, err);
    case TOK_NORM_CHARSMAP: norm_charsmap(t, text, n, o); break;
    case TOK_NORM_PIECES: norm_pieces(t, s, p, text, n, o); break;
    case TOK_NORM_COUNT: break;
    }
    return FTX_OK;
}

FtxStatus norm_text(const Tokenizer *t, TokenizerScratch *s, const char **text, size_t *n, FtxError *err)
{
    for (size_t i = 0; i < t->n_norms && *n; i++) {
        NormOut o = {.text = s->norm[i % 2], .room = s->room};
        const FtxStatus status = norm_step(t, s, i, *text, *n, &o, err);

        if (status)
            return status;
        if (o.full)
            return ftx_fail(err, FTX_EFULL, "tokenizer: a text of %zu bytes is normalised to over %zu", *n, s->room);
        *text = o.text;
        *n = o.n;
    }
    return FTX_OK;
}

/* --- the tables --------------------------------------------------------------------------------- */

/* Checks that the texts end with a zero, so that each of them has an end. */
static FtxStatus check_charsmap(Tokenizer *t, FtxError *err)
{
    uint32_t bytes;

    if (t->n_charsmap < 4)
        return ftx_fail(err, FTX_EFORMAT, "tokenizer: its map of characters is cut");
    memcpy(&bytes, t->charsmap, 4);
    if (bytes % 4 || bytes > t->n_charsmap - 4 || bytes == 0 || bytes + 4 == t->n_charsmap ||
        t->charsmap[t->n_charsmap - 1] != 0)
        return ftx_fail(err, FTX_EFORMAT, "tokenizer: its map of characters has %u bytes of units, of %zu", bytes,
                        t->n_charsmap);
    t->map_units = t->charsmap + 4;
    t->n_map_units = bytes / 4;
    t->map_texts = t->charsmap + 4 + bytes;
    t->n_map_texts = t->n_charsmap - 4 - bytes;
    if (!utf8_valid((const char *)t->map_texts, t->n_map_texts))
        return ftx_fail(err, FTX_EFORMAT, "tokenizer: its map of characters has texts that are not UTF-8");
    return FTX_OK;
}

static bool is_text_of(const Tokenizer *t, uint32_t offset, uint32_t bytes)
{
    return offset <= t->n_bytes && bytes <= t->n_bytes - offset && utf8_valid(t->bytes + offset, bytes);
}

FtxStatus norm_check(Tokenizer *t, FtxError *err)
{
    FtxStatus s;

    if (t->n_norms > TOK_MAX_NORMS)
        return ftx_fail(err, FTX_EFORMAT, "tokenizer: its normaliser has %zu steps, at most %d", t->n_norms,
                        TOK_MAX_NORMS);
    if (t->n_charsmap && (s = check_charsmap(t, err)))
        return s;
    for (size_t i = 0; i < t->n_norms; i++) {
        const TokNorm *p = &t->norms[i];

        if (p->kind == 0 || p->kind >= TOK_NORM_COUNT || !is_text_of(t, p->offset, p->bytes) ||
            !is_text_of(t, p->with_offset, p->with_bytes) || (p->kind == TOK_NORM_REPLACE && !p->bytes) ||
            (p->kind == TOK_NORM_CHARSMAP && !t->n_charsmap))
            return ftx_fail(err, FTX_EFORMAT,
                            "tokenizer: step %zu of its normaliser is unknown or not inside the tables", i);
    }
    return FTX_OK;
}
