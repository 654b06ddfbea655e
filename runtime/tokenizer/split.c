/* split.c - added tokens: texts that are one token wherever they stand.
 *
 *   "Hi<|end|> All"   early added tokens   "Hi" | <|end|> | " All"
 *                     the normaliser       each text between them: " all"
 *                     late added tokens    in the normalised text
 *                     pretokenize.c        the texts between those
 *
 * Added tokens are found leftmost, the longest first. Their texts are sorted: those that begin like the input form a
 * range, which each further byte narrows. */
#include <string.h>

#include "parts.h"
#include "../base/utf8.h"

/* --- added tokens ------------------------------------------------------------------------------- */

/* The first of added[lo, hi), which agree in `depth` bytes, whose next byte is not below c. */
static size_t narrow(const Tokenizer *t, size_t lo, size_t hi, size_t depth, unsigned c)
{
    while (lo < hi) {
        const size_t mid = lo + (hi - lo) / 2;
        const TokAdded *a = &t->added[mid];

        if (depth < a->bytes && (unsigned char)t->bytes[a->offset + depth] >= c)
            hi = mid;
        else
            lo = mid + 1; /* shorter ones come first */
    }
    return lo;
}

/* The longest of added[lo, hi) at the start of p[0..n); NULL: none. */
static const TokAdded *longest_added(const Tokenizer *t, size_t lo, size_t hi, const char *p, size_t n)
{
    const TokAdded *best = NULL;

    for (size_t depth = 0; depth < n && lo < hi; depth++) {
        const unsigned c = (unsigned char)p[depth];

        lo = narrow(t, lo, hi, depth, c);
        hi = narrow(t, lo, hi, depth, c + 1);
        if (lo < hi && t->added[lo].bytes == depth + 1)
            best = &t->added[lo];
    }
    return best;
}

static bool word_before(const char *p, size_t at)
{
    size_t start = at, length;
    uint32_t code;

    if (!at)
        return false;
    do
        start--;
    while (start && ((unsigned char)p[start] & 0xc0) == 0x80);
    utf8_next((const unsigned char *)p + start, at - start, &length, &code);
    return utf8_is_word(code);
}

static bool word_after(const char *p, size_t n)
{
    size_t length;
    uint32_t code;

    if (!n)
        return false;
    utf8_next((const unsigned char *)p, n, &length, &code);
    return utf8_is_word(code);
}

/* The start of the white space that ends at `at`; not before `least`. */
static size_t spaces_before(const char *p, size_t at, size_t least)
{
    while (at > least) {
        size_t start = at - 1, length;
        uint32_t code;

        while (start > least && ((unsigned char)p[start] & 0xc0) == 0x80)
            start--;
        utf8_next((const unsigned char *)p + start, at - start, &length, &code);
        if (!utf8_is_space(code))
            break;
        at = start;
    }
    return at;
}

static size_t spaces_after(const char *p, size_t at, size_t n)
{
    while (at < n) {
        size_t length;
        uint32_t code;

        utf8_next((const unsigned char *)p + at, n - at, &length, &code);
        if (!utf8_is_space(code))
            break;
        at += length;
    }
    return at;
}

static FtxStatus split_added(const Tokenizer *t, TokenizerScratch *s, bool late, const char *text, size_t n,
                             TokSink *sink, FtxError *err);

/* Passes on the text between two added tokens: text[at..end). */
static FtxStatus pass_on(const Tokenizer *t, TokenizerScratch *s, bool late, const char *text, size_t at, size_t end,
                         TokSink *sink, FtxError *err)
{
    size_t n = end - at;
    FtxStatus status;

    if (n == 0)
        return FTX_OK;
    s->moved = (late && s->moved) || at > 0;
    text += at;
    if (late)
        return steps_text(t, s, text, n, sink, err);
    s->literal_part = s->user && memchr(s->user + at, 1, n);
    status = norm_text(t, s, &text, &n, err);
    return status || !n ? status : split_added(t, s, true, text, n, sink, err);
}

/* Of the n bytes at `at`, those before the first that is the users'. */
static size_t not_users(const TokenizerScratch *s, size_t at, size_t n)
{
    const unsigned char *found = memchr(s->user + at, 1, n);

    return found ? (size_t)(found - (s->user + at)) : n;
}

static FtxStatus split_added(const Tokenizer *t, TokenizerScratch *s, bool late, const char *text, size_t n,
                             TokSink *sink, FtxError *err)
{
    const size_t lo = late ? t->n_early : 0, hi = late ? t->n_added : t->n_early;
    size_t done = 0, at = 0;
    FtxStatus status = FTX_OK;

    while (!status && lo < hi && at < n) {
        const TokAdded *a;
        size_t start = at, end;

        if (!t->starts[late][(unsigned char)text[at]] || !(a = longest_added(t, lo, hi, text + at, n - at))) {
            at++;
            continue;
        }
        if (!late && s->user && (t->tokens[a->id].flags & TOK_SPECIAL) &&
            !(a = longest_added(t, lo, hi, text + at, not_users(s, at, a->bytes)))) {
            at++;
            continue;
        }
        at = end = start + a->bytes;
        if ((s->literal || (late && s->literal_part)) && (t->tokens[a->id].flags & TOK_SPECIAL))
            continue;
        if ((a->flags & TOK_ADDED_WORD) && (word_before(text, start) || word_after(text + end, n - end)))
            continue;
        if ((a->flags & TOK_ADDED_LSTRIP) && start > done)
            start = spaces_before(text, start, done);
        if (a->flags & TOK_ADDED_RSTRIP)
            end = spaces_after(text, end, n);
        if (start > done) /* else it begins in the spaces that the token before has taken: both are tokens */
            status = pass_on(t, s, late, text, done, start, sink, err);
        tok_emit(sink, a->id);
        done = end;
    }
    if (!status)
        status = pass_on(t, s, late, text, done, n, sink, err);
    return status;
}

FtxStatus split_text(const Tokenizer *t, TokenizerScratch *s, const char *text, size_t n, TokSink *sink, FtxError *err)
{
    return split_added(t, s, false, text, n, sink, err);
}
