/* tokenizer.c - the tables, checked; text to ids through split.c and bpe.c; ids to text. */
#include "tokenizer.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tokenizer_parts.h"
#include "utf8.h"

enum { JIT_STACK_BYTES = 1 << 20, GROWTH = 3 /* an invalid byte becomes the three of U+FFFD */ };

static const size_t TEXT_MAX_BYTES = (size_t)512 << 20; /* places in a text are 32-bit numbers */

/* --- the tables --------------------------------------------------------------------------------- */

static const size_t part_sizes[TOK_PART_COUNT] = {
    [TOK_PART_FACTS] = sizeof(TokFacts), [TOK_PART_BYTES] = 1,
    [TOK_PART_TOKENS] = sizeof(TokToken), [TOK_PART_ADDED] = sizeof(TokAdded),
    [TOK_PART_STEPS] = sizeof(TokStep),  [TOK_PART_MERGES] = sizeof(TokMerge),
    [TOK_PART_PAIRS] = sizeof(uint32_t), [TOK_PART_WORDS] = sizeof(uint32_t),
    [TOK_PART_FRAME] = sizeof(int32_t),
};

static FtxStatus find_parts(const void *tables, size_t bytes, const void *parts[TOK_PART_COUNT],
                            size_t counts[TOK_PART_COUNT], FtxError *err)
{
    const TokHeader *h = tables;
    const TokPart *p = (const TokPart *)(h + 1);

    if (bytes < sizeof *h || (uintptr_t)tables % 8 || memcmp(h->magic, TOK_MAGIC, sizeof h->magic) != 0)
        return ftx_fail(err, FTX_EFORMAT, "tokenizer: these are no tables");
    if (h->format != TOK_FORMAT)
        return ftx_fail(err, FTX_EVERSION, "tokenizer: its tables have format %u, this libftx reads %d", h->format,
                        TOK_FORMAT);
    if (h->parts > TOK_PART_COUNT || bytes - sizeof *h < h->parts * sizeof *p)
        return ftx_fail(err, FTX_EFORMAT, "tokenizer: its list of %u parts is not inside the tables", h->parts);
    for (uint32_t i = 0; i < h->parts; i++) {
        const uint32_t kind = p[i].kind;

        if (kind == 0 || kind >= TOK_PART_COUNT || parts[kind])
            return ftx_fail(err, FTX_EFORMAT, "tokenizer: part %u is unknown, or there twice (kind %u)", i, kind);
        if (p[i].offset % 8 || p[i].offset > bytes || p[i].bytes > bytes - p[i].offset ||
            p[i].bytes % part_sizes[kind] || p[i].bytes > INT32_MAX)
            return ftx_fail(err, FTX_EFORMAT, "tokenizer: part %u is not inside the tables", i);
        parts[kind] = (const char *)tables + p[i].offset;
        counts[kind] = (size_t)p[i].bytes / part_sizes[kind];
    }
    return FTX_OK;
}

static bool is_text(const Tokenizer *t, uint32_t offset, uint32_t bytes)
{
    return offset <= t->n_bytes && bytes <= t->n_bytes - offset;
}

static bool is_token(const Tokenizer *t, int64_t id)
{
    return id >= 0 && (uint64_t)id < t->n_tokens && (t->tokens[id].flags & TOK_PRESENT);
}

static FtxStatus check_tokens(Tokenizer *t, FtxError *err)
{
    if (t->facts->model != TOK_MODEL_BPE_BYTES)
        return ftx_fail(err, FTX_EFORMAT, "tokenizer: model %u is unknown to this libftx", t->facts->model);
    for (size_t i = 0; i < t->n_tokens; i++) {
        if (!is_text(t, t->tokens[i].offset, t->tokens[i].bytes))
            return ftx_fail(err, FTX_EFORMAT, "tokenizer: token %zu is not inside the tables", i);
        if (t->tokens[i].bytes > t->longest)
            t->longest = t->tokens[i].bytes;
    }
    for (int i = 0; i < 256; i++)
        if (t->facts->byte_id[i] != -1 && !is_token(t, t->facts->byte_id[i]))
            return ftx_fail(err, FTX_EFORMAT, "tokenizer: byte %d has no token", i);
    if (t->facts->n_before > t->n_frame || t->facts->n_after != t->n_frame - t->facts->n_before)
        return ftx_fail(err, FTX_EFORMAT, "tokenizer: %zu ids are around a text, not %u and %u", t->n_frame,
                        t->facts->n_before, t->facts->n_after);
    for (size_t i = 0; i < t->n_frame; i++)
        if (!is_token(t, t->frame[i]))
            return ftx_fail(err, FTX_EFORMAT, "tokenizer: id %d around a text is no token", t->frame[i]);
    return FTX_OK;
}

static int compare_added(const Tokenizer *t, const TokAdded *a, const TokAdded *b)
{
    const int order = memcmp(t->bytes + a->offset, t->bytes + b->offset, a->bytes < b->bytes ? a->bytes : b->bytes);

    return order ? order : a->bytes < b->bytes ? -1 : a->bytes > b->bytes;
}

static FtxStatus check_added(Tokenizer *t, FtxError *err)
{
    for (size_t i = 0; i < t->n_added; i++) {
        const TokAdded *a = &t->added[i];
        const bool late = a->flags & TOK_ADDED_LATE;

        if (!is_text(t, a->offset, a->bytes) || a->bytes == 0 || !is_token(t, a->id) ||
            !utf8_valid(t->bytes + a->offset, a->bytes))
            return ftx_fail(err, FTX_EFORMAT, "tokenizer: added token %zu is not inside the tables", i);
        if (i > 0 && ((t->added[i - 1].flags & TOK_ADDED_LATE) > (late ? TOK_ADDED_LATE : 0u) ||
                      ((t->added[i - 1].flags & TOK_ADDED_LATE) == (a->flags & TOK_ADDED_LATE) &&
                       compare_added(t, &t->added[i - 1], a) >= 0)))
            return ftx_fail(err, FTX_EFORMAT, "tokenizer: added token %zu is not in order", i);
        t->n_early += !late;
        t->starts[late][(unsigned char)t->bytes[a->offset]] = true;
    }
    return FTX_OK;
}

/* A table of slots up to `most`, with a free one at which a search ends. */
static FtxStatus check_slots(const uint32_t *slots, size_t n, size_t most, const char *what, FtxError *err)
{
    bool free_slot = false;

    if (n == 0 || (n & (n - 1)))
        return ftx_fail(err, FTX_EFORMAT, "tokenizer: its table of %s has %zu slots", what, n);
    for (size_t i = 0; i < n; i++) {
        if (slots[i] > most)
            return ftx_fail(err, FTX_EFORMAT, "tokenizer: slot %zu of its %s is out of range", i, what);
        free_slot |= slots[i] == 0;
    }
    return free_slot ? FTX_OK : ftx_fail(err, FTX_EFORMAT, "tokenizer: its table of %s is full", what);
}

static FtxStatus check_merges(const Tokenizer *t, FtxError *err)
{
    FtxStatus s;

    for (size_t i = 0; i < t->n_merges; i++)
        if (!is_token(t, t->merges[i].left) || !is_token(t, t->merges[i].right) || !is_token(t, t->merges[i].result))
            return ftx_fail(err, FTX_EFORMAT, "tokenizer: merge %zu is of no tokens", i);
    s = check_slots(t->pairs, t->n_pairs, t->n_merges, "pairs", err);
    if (!s && (t->facts->flags & TOK_WHOLE_WORDS))
        s = check_slots(t->words, t->n_words, t->n_tokens, "words", err);
    return s;
}

static FtxStatus compile_pattern(Tokenizer *t, size_t step, FtxError *err)
{
    const TokStep *p = &t->steps[step];
    pcre2_compile_context *context = pcre2_compile_context_create(NULL);
    PCRE2_SIZE at = 0;
    int code = 0;

    if (!context)
        return ftx_fail(err, FTX_ENOMEM, "out of memory");
    pcre2_set_newline(context, PCRE2_NEWLINE_LF);
    t->patterns[step] = pcre2_compile((PCRE2_SPTR)t->bytes + p->offset, p->bytes,
                                      PCRE2_UTF | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C, &code, &at, context);
    pcre2_compile_context_free(context);
    if (!t->patterns[step]) {
        PCRE2_UCHAR why[160];

        pcre2_get_error_message(code, why, sizeof why);
        return ftx_fail(err, FTX_EFORMAT, "tokenizer: its pattern fails at character %zu: %s", (size_t)at,
                        (const char *)why);
    }
    pcre2_jit_compile(t->patterns[step], PCRE2_JIT_COMPLETE); /* without it: slower, the same */
    return FTX_OK;
}

static FtxStatus check_steps(Tokenizer *t, FtxError *err)
{
    size_t spaces = 0;

    if (t->n_steps > TOK_MAX_STEPS)
        return ftx_fail(err, FTX_EFORMAT, "tokenizer: it has %zu steps, at most %d", t->n_steps, TOK_MAX_STEPS);
    for (size_t i = 0; i < t->n_steps; i++) {
        const TokStep *p = &t->steps[i];
        FtxStatus s;

        if (p->kind == TOK_STEP_SPACE && spaces++ == 0)
            continue;
        if (p->kind != TOK_STEP_SPLIT || !is_text(t, p->offset, p->bytes) ||
            !utf8_valid(t->bytes + p->offset, p->bytes))
            return ftx_fail(err, FTX_EFORMAT, "tokenizer: step %zu is unknown or not inside the tables", i);
        if ((s = compile_pattern(t, i, err)))
            return s;
    }
    return FTX_OK;
}

static FtxStatus open_tables(Tokenizer *t, const void *tables, size_t bytes, FtxError *err)
{
    const void *parts[TOK_PART_COUNT] = {0};
    size_t counts[TOK_PART_COUNT] = {0};
    FtxStatus s = find_parts(tables, bytes, parts, counts, err);

    if (s)
        return s;
    if (counts[TOK_PART_FACTS] != 1)
        return ftx_fail(err, FTX_EFORMAT, "tokenizer: it has no facts");
    t->facts = parts[TOK_PART_FACTS];
    t->bytes = parts[TOK_PART_BYTES];
    t->tokens = parts[TOK_PART_TOKENS];
    t->added = parts[TOK_PART_ADDED];
    t->steps = parts[TOK_PART_STEPS];
    t->merges = parts[TOK_PART_MERGES];
    t->pairs = parts[TOK_PART_PAIRS];
    t->words = parts[TOK_PART_WORDS];
    t->frame = parts[TOK_PART_FRAME];
    t->n_bytes = counts[TOK_PART_BYTES];
    t->n_tokens = counts[TOK_PART_TOKENS];
    t->n_added = counts[TOK_PART_ADDED];
    t->n_steps = counts[TOK_PART_STEPS];
    t->n_merges = counts[TOK_PART_MERGES];
    t->n_pairs = counts[TOK_PART_PAIRS];
    t->n_words = counts[TOK_PART_WORDS];
    t->n_frame = counts[TOK_PART_FRAME];
    if (!(s = check_tokens(t, err)) && !(s = check_added(t, err)) && !(s = check_merges(t, err)))
        s = check_steps(t, err);
    return s;
}

FtxStatus tokenizer_open(const void *tables, size_t bytes, Tokenizer **out, FtxError *err)
{
    Tokenizer *t = calloc(1, sizeof *t);
    FtxStatus s;

    *out = NULL;
    if (!t)
        return ftx_fail(err, FTX_ENOMEM, "out of memory");
    s = open_tables(t, tables, bytes, err);
    if (s) {
        tokenizer_close(t);
        return s;
    }
    *out = t;
    return FTX_OK;
}

void tokenizer_close(Tokenizer *t)
{
    if (!t)
        return;
    for (size_t i = 0; i < TOK_MAX_STEPS; i++)
        pcre2_code_free(t->patterns[i]);
    free(t);
}

size_t tokenizer_vocab(const Tokenizer *t)
{
    return t->n_tokens;
}

size_t tokenizer_token_bytes(const Tokenizer *t)
{
    return t->longest * GROWTH;
}

/* --- text to ids -------------------------------------------------------------------------------- */

/* A first match, so that what PCRE2 allocates when it first needs it is there. */
static void warm_patterns(const Tokenizer *t, TokenizerScratch *s)
{
    for (size_t i = 0; i < t->n_steps; i++)
        if (t->patterns[i])
            pcre2_match(t->patterns[i], (PCRE2_SPTR) "a 1\n", 4, 0, PCRE2_NO_UTF_CHECK, s->match, s->match_context);
}

FtxStatus tokenizer_scratch_open(const Tokenizer *t, size_t max_text, TokenizerScratch **out, FtxError *err)
{
    TokenizerScratch *s = calloc(1, sizeof *s);
    const size_t most = max_text * GROWTH + 1;

    *out = NULL;
    if (!s)
        return ftx_fail(err, FTX_ENOMEM, "out of memory");
    if (max_text > TEXT_MAX_BYTES) {
        free(s);
        return ftx_fail(err, FTX_EINVAL, "tokenizer: a text of %zu bytes is over the limit of %zu", max_text,
                        TEXT_MAX_BYTES);
    }
    /* Sized for the worst text, one without a valid byte. Pages that no text needs are never
     * touched: malloc maps blocks of this size, and the system gives their pages on first use. */
    s->max_text = max_text;
    s->clean = malloc(most);
    s->spaced = malloc(most + 1);
    s->symbols = malloc((most + 1) * sizeof *s->symbols);
    s->heap = malloc((most + 1) * 2 * sizeof *s->heap);
    s->match = pcre2_match_data_create(1, NULL);
    s->match_context = pcre2_match_context_create(NULL);
    if (!s->clean || !s->spaced || !s->symbols || !s->heap || !s->match || !s->match_context) {
        tokenizer_scratch_close(s);
        return ftx_fail(err, FTX_ENOMEM, "out of memory: a text of %zu bytes", max_text);
    }
    s->stack = pcre2_jit_stack_create(32 * 1024, JIT_STACK_BYTES, NULL);
    if (s->stack)
        pcre2_jit_stack_assign(s->match_context, NULL, s->stack);
    /* Steps of one search: some for each byte, so that a long run of spaces passes and a pattern
     * that backtracks without end does not. */
    pcre2_set_match_limit(s->match_context, most < (UINT32_MAX - 10000000) / 16 ? (uint32_t)most * 16 + 10000000 : UINT32_MAX);
    warm_patterns(t, s);
    *out = s;
    return FTX_OK;
}

void tokenizer_scratch_close(TokenizerScratch *s)
{
    if (!s)
        return;
    free(s->clean);
    free(s->spaced);
    free(s->symbols);
    free(s->heap);
    pcre2_match_data_free(s->match);
    pcre2_match_context_free(s->match_context);
    pcre2_jit_stack_free(s->stack);
    free(s);
}

FtxStatus tokenizer_encode(const Tokenizer *t, TokenizerScratch *s, const char *text, size_t bytes, bool special,
                           int32_t *ids, size_t max, size_t *n, FtxError *err)
{
    TokSink sink = {ids, max, 0};
    FtxStatus status;

    *n = 0;
    if (bytes > s->max_text)
        return ftx_fail(err, FTX_EFULL, "a text of %zu bytes is over the limit of %zu", bytes, s->max_text);
    if (!utf8_valid(text, bytes)) {
        bytes = utf8_clean(text, bytes, s->clean);
        text = s->clean;
    }
    for (uint32_t i = 0; special && i < t->facts->n_before; i++)
        tok_emit(&sink, t->frame[i]);
    status = split_text(t, s, text, bytes, &sink, err);
    for (uint32_t i = 0; special && i < t->facts->n_after; i++)
        tok_emit(&sink, t->frame[t->facts->n_before + i]);
    *n = sink.n;
    return status;
}

/* --- ids to text -------------------------------------------------------------------------------- */

typedef struct TextSink {
    char *text;
    size_t max, n;
} TextSink;

static void put_text(TextSink *s, const void *p, size_t bytes)
{
    if (s->n <= s->max && bytes <= s->max - s->n)
        memcpy(s->text + s->n, p, bytes);
    else if (s->n < s->max)
        memcpy(s->text + s->n, p, s->max - s->n);
    s->n += bytes;
}

/* One byte of a token: gives out a character when it is whole. A byte that cannot go on what is
 * held makes U+FFFD of that, and is looked at again by itself. */
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
            put_text(out, d->held, length);
        else
            put_text(out, UTF8_REPLACEMENT, 3);
        d->n_held -= (uint32_t)length;
        memmove(d->held, d->held + length, d->n_held);
    }
}

static void put_token(const Tokenizer *t, TokenizerStream *d, int32_t id, bool skip_special, TextSink *out)
{
    const TokToken *token;

    if (!is_token(t, id))
        return; /* a model may have more rows than there are tokens */
    token = &t->tokens[id];
    if (skip_special && (token->flags & TOK_SPECIAL))
        return;
    for (uint32_t i = 0; i < token->bytes; i++)
        put_byte(d, (unsigned char)t->bytes[token->offset + i], out);
}

static void put_rest(TokenizerStream *d, TextSink *out)
{
    if (d->n_held)
        put_text(out, UTF8_REPLACEMENT, 3);
    d->n_held = 0;
}

FtxStatus tokenizer_decode(const Tokenizer *t, const int32_t *ids, size_t count, bool skip_special, char *text,
                           size_t max, size_t *n, FtxError *err)
{
    TokenizerStream d = {0};
    TextSink out = {text, max, 0};

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
    TextSink out = {text, max, 0};

    *n = 0;
    if (d->n_held >= sizeof d->held)
        return ftx_fail(err, FTX_EINVAL, "tokenizer: a stream that was not zero at its start");
    put_token(t, d, id, !d->keep_special, &out);
    if (flush)
        put_rest(d, &out);
    if (out.n > max)
        return ftx_fail(err, FTX_EINVAL, "tokenizer: %zu bytes of text have room for %zu", out.n, max);
    *n = out.n;
    return FTX_OK;
}
