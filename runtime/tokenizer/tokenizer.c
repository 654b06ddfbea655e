/* tokenizer.c - opens and checks the tables; memory for calls; encodes texts and pairs, with the tokens around them,
 * truncated if asked. */
#include "tokenizer.h"

#include <stdlib.h>
#include <string.h>

#include "parts.h"
#include "../base/utf8.h"

enum {
    JIT_STACK_BYTES = 1 << 20,
    GROWTH = 3,            /* an invalid byte becomes the three of U+FFFD */
    ROOM_GROWTH = 4,       /* how much normalising may lengthen a long text ... */
    ROOM_BYTES = 64 << 10, /* ... and of a short one: one character becomes up to 33 bytes */
};

static const size_t TEXT_MAX_BYTES = (size_t)512 << 20; /* places in a text are 32-bit numbers */

/* --- the tables --------------------------------------------------------------------------------- */

static const size_t part_sizes[TOK_PART_COUNT] = {
    [TOK_PART_FACTS] = sizeof(TokFacts),
    [TOK_PART_BYTES] = 1,
    [TOK_PART_TOKENS] = sizeof(TokToken),
    [TOK_PART_ADDED] = sizeof(TokAdded),
    [TOK_PART_NORMS] = sizeof(TokNorm),
    [TOK_PART_STEPS] = sizeof(TokStep),
    [TOK_PART_MERGES] = sizeof(TokMerge),
    [TOK_PART_PAIRS] = sizeof(uint32_t),
    [TOK_PART_WORDS] = sizeof(uint32_t),
    [TOK_PART_FRAME] = sizeof(TokFrame),
    [TOK_PART_PIECES] = sizeof(TokPiece),
    [TOK_PART_TRIE] = sizeof(TokNode),
    [TOK_PART_CHARSMAP] = 1,
};

static FtxStatus find_parts(const void *tables, size_t bytes, const void *parts[TOK_PART_COUNT],
                            size_t counts[TOK_PART_COUNT], FtxError *err)
{
    const TokHeader *h = tables;
    const TokPart *p = (const TokPart *)(h + 1);

    if (bytes < sizeof *h || (uintptr_t)tables % 8 || memcmp(h->magic, TOK_MAGIC, sizeof h->magic) != 0)
        return ftx_fail(err, FTX_EFORMAT, "tokenizer: these are not its tables");
    if (h->format < TOK_FORMAT_OLDEST || h->format > TOK_FORMAT)
        return ftx_fail(err, FTX_EVERSION, "tokenizer: its tables have format %u, this libftx reads %d to %d",
                        h->format, TOK_FORMAT_OLDEST, TOK_FORMAT);
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
    const uint32_t model = t->facts->model;

    if (model < TOK_MODEL_BPE_BYTES || model > TOK_MODEL_WORDLEVEL)
        return ftx_fail(err, FTX_EFORMAT, "tokenizer: model %u is unknown to this libftx", model);
    for (size_t i = 0; i < t->n_tokens; i++) {
        const TokToken *token = &t->tokens[i];

        if (!is_text(t, token->offset, token->bytes) || !is_text(t, token->first_offset, token->first_bytes))
            return ftx_fail(err, FTX_EFORMAT, "tokenizer: token %zu is not inside the tables", i);
        if (token->bytes > t->longest)
            t->longest = token->bytes;
        if (token->first_bytes > t->longest)
            t->longest = token->first_bytes;
    }
    for (int i = 0; i < 256; i++)
        if (t->facts->byte_id[i] != -1 && !is_token(t, t->facts->byte_id[i]))
            return ftx_fail(err, FTX_EFORMAT, "tokenizer: byte %d has no token", i);
    if (t->facts->unknown != -1 && !is_token(t, t->facts->unknown))
        return ftx_fail(err, FTX_EFORMAT, "tokenizer: its unknown token %d is none", t->facts->unknown);
    return FTX_OK;
}

/* The frame of a text holds it once; that of a pair holds each text once. */
static FtxStatus check_frame(const Tokenizer *t, FtxError *err)
{
    const uint32_t single = t->facts->n_single;
    size_t texts[2] = {0}, others[2] = {0};

    if (single > t->n_frame || t->facts->n_pair != t->n_frame - single)
        return ftx_fail(err, FTX_EFORMAT, "tokenizer: its frame has %zu places, not %u and %u", t->n_frame, single,
                        t->facts->n_pair);
    for (size_t i = 0; i < t->n_frame; i++) {
        texts[i >= single] += t->frame[i].id == TOK_TEXT;
        others[i >= single] += t->frame[i].id == TOK_OTHER_TEXT;
        if (t->frame[i].id >= 0 ? !is_token(t, t->frame[i].id) : t->frame[i].id < TOK_OTHER_TEXT)
            return ftx_fail(err, FTX_EFORMAT, "tokenizer: id %d around a text is no token", t->frame[i].id);
    }
    if (texts[0] != 1 || others[0] != 0 || texts[1] != 1 || others[1] != 1)
        return ftx_fail(err, FTX_EFORMAT, "tokenizer: its frame has no place for a text, or several");
    return FTX_OK;
}

static FtxStatus check_pieces(Tokenizer *t, FtxError *err)
{
    if (!t->n_trie || t->n_trie > UINT32_MAX)
        return ftx_fail(err, FTX_EFORMAT, "tokenizer: its trie has no root");
    for (size_t i = 0; i < t->n_pieces; i++) {
        if (!is_token(t, t->pieces[i].id) || t->pieces[i].bytes == 0 || t->pieces[i].bytes > INT32_MAX)
            return ftx_fail(err, FTX_EFORMAT, "tokenizer: piece %zu is of no token", i);
        if (t->pieces[i].bytes > t->longest_piece)
            t->longest_piece = t->pieces[i].bytes;
    }
    for (size_t i = 0; i < t->n_trie; i++)
        if (t->trie[i].piece > t->n_pieces)
            return ftx_fail(err, FTX_EFORMAT, "tokenizer: node %zu of its trie is of no piece", i);
    if (t->facts->tail >= t->n_trie)
        return ftx_fail(err, FTX_EFORMAT, "tokenizer: its trie has no node %u", t->facts->tail);
    if (!is_text(t, t->facts->suffix_offset, t->facts->suffix_bytes))
        return ftx_fail(err, FTX_EFORMAT, "tokenizer: the suffix of its words is not inside the tables");
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

/* Slots hold numbers up to `most`; at least one is free, where a search ends. */
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
        if (!is_token(t, t->merges[i].left) || !is_token(t, t->merges[i].right) || !is_token(t, t->merges[i].result) ||
            t->merges[i].rank > i)
            return ftx_fail(err, FTX_EFORMAT, "tokenizer: merge %zu is of no tokens", i);
    s = check_slots(t->pairs, t->n_pairs, t->n_merges, "pairs", err);
    if (!s && (t->facts->flags & TOK_WHOLE_WORDS) && t->facts->model == TOK_MODEL_BPE_BYTES)
        s = check_slots(t->words, t->n_words, t->n_tokens, "words", err);
    return s;
}

static FtxStatus check_model(Tokenizer *t, FtxError *err)
{
    const bool bpe = t->facts->model == TOK_MODEL_BPE_BYTES || t->facts->model == TOK_MODEL_BPE_CHARACTERS;
    FtxStatus s = FTX_OK;

    if (bpe)
        s = check_merges(t, err);
    if (!s && t->facts->model != TOK_MODEL_BPE_BYTES)
        s = check_pieces(t, err);
    return s;
}

static FtxStatus compile_pattern(const Tokenizer *t, uint32_t offset, uint32_t bytes, pcre2_code **out, FtxError *err)
{
    pcre2_compile_context *context = pcre2_compile_context_create(NULL);
    PCRE2_SIZE at = 0;
    int code = 0;

    if (!context)
        return ftx_fail(err, FTX_ENOMEM, "out of memory");
    pcre2_set_newline(context, PCRE2_NEWLINE_LF);
    *out = pcre2_compile((PCRE2_SPTR)t->bytes + offset, bytes, PCRE2_UTF | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C,
                         &code, &at, context);
    pcre2_compile_context_free(context);
    if (!*out) {
        PCRE2_UCHAR why[160];

        if (code == PCRE2_ERROR_HEAP_FAILED)
            return ftx_fail(err, FTX_ENOMEM, "out of memory");
        pcre2_get_error_message(code, why, sizeof why);
        return ftx_fail(err, FTX_EFORMAT, "tokenizer: its pattern fails at character %zu: %s", (size_t)at,
                        (const char *)why);
    }
    pcre2_jit_compile(*out, PCRE2_JIT_COMPLETE); /* if it fails, matching is slower, with the same results */
    return FTX_OK;
}

static bool is_character(const char *p, size_t n)
{
    size_t length;
    uint32_t code;

    return n && utf8_next((const unsigned char *)p, n, &length, &code) == UTF8_CHARACTER && length == n;
}

static bool is_step(const Tokenizer *t, const TokStep *p)
{
    switch ((TokStepKind)p->kind) {
    case TOK_STEP_SPLIT: return is_text(t, p->offset, p->bytes) && utf8_valid(t->bytes + p->offset, p->bytes);
    case TOK_STEP_METASPACE: return is_text(t, p->offset, p->bytes) && is_character(t->bytes + p->offset, p->bytes);
    case TOK_STEP_SPACE:
    case TOK_STEP_BLANKS:
    case TOK_STEP_MARKS:
    case TOK_STEP_BYTES: return true;
    }
    return false;
}

static FtxStatus check_steps(Tokenizer *t, FtxError *err)
{
    size_t spaces = 0, bytes = 0;

    if (t->n_steps > TOK_MAX_STEPS)
        return ftx_fail(err, FTX_EFORMAT, "tokenizer: it has %zu steps, at most %d", t->n_steps, TOK_MAX_STEPS);
    for (size_t i = 0; i < t->n_steps; i++) {
        const TokStep *p = &t->steps[i];
        FtxStatus s;

        spaces += p->kind == TOK_STEP_SPACE || p->kind == TOK_STEP_METASPACE;
        bytes += p->kind == TOK_STEP_BYTES;
        if (!is_step(t, p) || spaces > 1 || bytes > 1)
            return ftx_fail(err, FTX_EFORMAT, "tokenizer: step %zu is unknown or not inside the tables", i);
        if (p->kind == TOK_STEP_SPLIT && (s = compile_pattern(t, p->offset, p->bytes, &t->patterns[i], err)))
            return s;
    }
    return FTX_OK;
}

static FtxStatus check_norms(Tokenizer *t, FtxError *err)
{
    FtxStatus s = norm_check(t, err);

    for (size_t i = 0; !s && i < t->n_norms; i++)
        if (t->norms[i].kind == TOK_NORM_PATTERN)
            s = compile_pattern(t, t->norms[i].offset, t->norms[i].bytes, &t->norm_patterns[i], err);
    return s;
}

static FtxStatus open_tables(Tokenizer *t, const void *tables, size_t bytes, FtxError *err)
{
    const void *parts[TOK_PART_COUNT] = {0};
    size_t counts[TOK_PART_COUNT] = {0};
    static const uint64_t none; /* the address of empty parts: texts of no bytes may refer to them */
    FtxStatus s = find_parts(tables, bytes, parts, counts, err);

    if (s)
        return s;
    for (int i = 0; i < TOK_PART_COUNT; i++)
        if (!parts[i])
            parts[i] = &none;
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
    t->norms = parts[TOK_PART_NORMS];
    t->pieces = parts[TOK_PART_PIECES];
    t->trie = parts[TOK_PART_TRIE];
    t->charsmap = parts[TOK_PART_CHARSMAP];
    t->n_bytes = counts[TOK_PART_BYTES];
    t->n_tokens = counts[TOK_PART_TOKENS];
    t->n_added = counts[TOK_PART_ADDED];
    t->n_steps = counts[TOK_PART_STEPS];
    t->n_merges = counts[TOK_PART_MERGES];
    t->n_pairs = counts[TOK_PART_PAIRS];
    t->n_words = counts[TOK_PART_WORDS];
    t->n_frame = counts[TOK_PART_FRAME];
    t->n_norms = counts[TOK_PART_NORMS];
    t->n_pieces = counts[TOK_PART_PIECES];
    t->n_trie = counts[TOK_PART_TRIE];
    t->n_charsmap = counts[TOK_PART_CHARSMAP];
    if (!(s = check_tokens(t, err)) && !(s = check_frame(t, err)) && !(s = check_added(t, err)) &&
        !(s = check_model(t, err)) && !(s = check_norms(t, err)))
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
    for (size_t i = 0; i < TOK_MAX_NORMS; i++)
        pcre2_code_free(t->norm_patterns[i]);
    free(t);
}

size_t tokenizer_token_bytes(const Tokenizer *t)
{
    return t->longest * GROWTH;
}

/* --- the memory of a call ----------------------------------------------------------------------- */

static void warm(const pcre2_code *pattern, TokenizerScratch *s)
{
    if (pattern)
        pcre2_match(pattern, (PCRE2_SPTR) "a 1\n", 4, 0, PCRE2_NO_UTF_CHECK, s->match, s->match_context);
}

/* Runs a pattern once, so that PCRE2 makes its lazy allocations now. */
static void warm_patterns(const Tokenizer *t, TokenizerScratch *s)
{
    for (size_t i = 0; i < t->n_steps; i++)
        warm(t->patterns[i], s);
    for (size_t i = 0; i < t->n_norms; i++)
        warm(t->norm_patterns[i], s);
}

/* The match limit grows with the text: a long run of spaces passes, a pattern that backtracks without end does not. */
static FtxStatus open_match(const Tokenizer *t, TokenizerScratch *s)
{
    const size_t room = s->room;

    s->match = pcre2_match_data_create(1, NULL);
    s->match_context = pcre2_match_context_create(NULL);
    if (!s->match || !s->match_context)
        return FTX_ENOMEM;
    s->stack = pcre2_jit_stack_create(32 * 1024, JIT_STACK_BYTES, NULL);
    if (s->stack)
        pcre2_jit_stack_assign(s->match_context, NULL, s->stack);
    pcre2_set_match_limit(s->match_context,
                          room < (UINT32_MAX - 10000000) / 16 ? (uint32_t)room * 16 + 10000000 : UINT32_MAX);
    warm_patterns(t, s);
    return FTX_OK;
}

static void *scratch_array(size_t n, size_t bytes, bool *ok)
{
    void *p = malloc(n * bytes);

    *ok &= p != NULL;
    return p;
}

static bool has_norms(const Tokenizer *t, TokNormKind first, TokNormKind last)
{
    for (size_t i = 0; i < t->n_norms; i++)
        if (t->norms[i].kind >= (uint32_t)first && t->norms[i].kind <= (uint32_t)last)
            return true;
    return false;
}

static bool has_step(const Tokenizer *t, TokStepKind kind)
{
    for (size_t i = 0; i < t->n_steps; i++)
        if (t->steps[i].kind == (uint32_t)kind)
            return true;
    return false;
}

/* Buffers have the size of the worst case, a text without a valid byte. malloc maps blocks of this size, so pages
 * that are never touched take no memory. */
static bool open_buffers(const Tokenizer *t, TokenizerScratch *s)
{
    const uint32_t model = t->facts->model;
    const size_t room = s->room, piece = has_step(t, TOK_STEP_BYTES) ? room * 2 + 2 : room; /* bytes of a piece */
    bool ok = true;

    s->clean = scratch_array(s->max_text * GROWTH + 1, 1, &ok);
    s->spaced = scratch_array(piece + 1, 1, &ok);
    if (has_step(t, TOK_STEP_BYTES))
        s->shown = scratch_array(piece, 1, &ok);
    if (t->n_norms) {
        s->norm[0] = scratch_array(room + 1, 1, &ok);
        s->norm[1] = scratch_array(room + 1, 1, &ok);
    }
    if (has_norms(t, TOK_NORM_NFC, TOK_NORM_NFKD))
        s->codes = scratch_array(room * 2, sizeof *s->codes, &ok);
    if (model == TOK_MODEL_BPE_BYTES || model == TOK_MODEL_BPE_CHARACTERS) {
        s->symbols = scratch_array(piece + 1, sizeof *s->symbols, &ok);
        s->heap = scratch_array((piece + 1) * 2, sizeof *s->heap, &ok);
    }
    if (model == TOK_MODEL_UNIGRAM) {
        for (s->ring = 8; s->ring <= t->longest_piece; s->ring *= 2)
            ;
        s->best = scratch_array(piece + 2, sizeof *s->best, &ok);
        s->scores = scratch_array(s->ring, sizeof *s->scores, &ok);
    }
    return ok;
}

FtxStatus tokenizer_scratch_open(const Tokenizer *t, size_t max_text, TokenizerScratch **out, FtxError *err)
{
    const size_t most = has_step(t, TOK_STEP_BYTES) ? TEXT_MAX_BYTES / 4 : TEXT_MAX_BYTES;
    TokenizerScratch *s = calloc(1, sizeof *s);

    *out = NULL;
    if (!s)
        return ftx_fail(err, FTX_ENOMEM, "out of memory");
    if (max_text > most) {
        free(s);
        return ftx_fail(err, FTX_EINVAL, "tokenizer: a text of %zu bytes is over the limit of %zu", max_text, most);
    }
    s->max_text = max_text;
    s->room =
        t->n_norms || has_step(t, TOK_STEP_METASPACE) ? max_text * ROOM_GROWTH + ROOM_BYTES : max_text * GROWTH + 1;
    if (!open_buffers(t, s) || open_match(t, s)) {
        tokenizer_scratch_close(s);
        return ftx_fail(err, FTX_ENOMEM, "out of memory: a text of %zu bytes", max_text);
    }
    *out = s;
    return FTX_OK;
}

void tokenizer_scratch_close(TokenizerScratch *s)
{
    if (!s)
        return;
    free(s->clean);
    free(s->spaced);
    free(s->shown);
    free(s->norm[0]);
    free(s->norm[1]);
    free(s->codes);
    free(s->symbols);
    free(s->heap);
    free(s->best);
    free(s->scores);
    pcre2_match_data_free(s->match);
    pcre2_match_context_free(s->match_context);
    pcre2_jit_stack_free(s->stack);
    free(s);
}

/* --- text to ids -------------------------------------------------------------------------------- */

static FtxStatus check_text(const TokenizerScratch *s, size_t bytes, FtxError *err)
{
    if (bytes > s->max_text)
        return ftx_fail(err, FTX_EFULL, "a text of %zu bytes is over the limit of %zu", bytes, s->max_text);
    return FTX_OK;
}

/* Encodes one text and emits at most `keep` of its tokens, after the first `drop`. */
static FtxStatus put_tokens(const Tokenizer *t, TokenizerScratch *s, const char *text, size_t bytes, size_t drop,
                            size_t keep, TokSink *sink, FtxError *err)
{
    const size_t start = sink->n < sink->max ? sink->n : sink->max, room = sink->max - start;
    TokSink part = {.ids = sink->ids ? sink->ids + start : NULL, .max = room < keep ? room : keep, .drop = drop};
    FtxStatus status;

    if (!utf8_valid(text, bytes)) {
        bytes = utf8_clean(text, bytes, s->clean);
        text = s->clean;
    }
    status = split_text(t, s, text, bytes, &part, err);
    if (!status)
        sink->n += part.n - drop < keep ? part.n - drop : keep;
    return status;
}

/* Divides n tokens between two texts: the longer one loses tokens at its end until both are as long, then each in
 * turn (Hugging Face's longest_first). */
static void share(size_t n, size_t keep[2])
{
    const bool swapped = keep[0] > keep[1];
    size_t less = keep[swapped], more = keep[!swapped];

    if (less + more <= n)
        return;
    more = less > n || n - less < less ? less : n - less;
    if (less + more > n) {
        less = n / 2;
        more = less + n % 2;
    }
    keep[swapped] = less;
    keep[!swapped] = more;
}

/* Hugging Face's only_first and only_second: one text loses all that is too much, and must keep at least one token. */
static FtxStatus cut_one(size_t n, size_t which, size_t keep[2], FtxError *err)
{
    const size_t other = keep[1 - which];

    if (keep[0] + keep[1] <= n)
        return FTX_OK;
    if (other >= n)
        return ftx_fail(err, FTX_EINVAL,
                        "tokenizer: the %s text has %zu tokens of the %zu allowed: nothing of the %s would be left",
                        which ? "first" : "second", other, n, which ? "second" : "first");
    keep[which] = n - other;
    return FTX_OK;
}

/* Counts tokens if something may have to be cut. *drop: tokens to skip at the start of the text; keep: tokens to
 * keep of each text. */
static FtxStatus count_tokens(const Tokenizer *t, TokenizerScratch *s, const TokenizerPair *p, const TokFrame *frame,
                              size_t n_frame, size_t *drop, size_t keep[2], FtxError *err)
{
    TokSink count = {0};
    FtxStatus status;
    size_t around = 0;

    *drop = 0;
    keep[0] = keep[1] = SIZE_MAX;
    if (!p->most)
        return FTX_OK;
    for (size_t i = 0; i < n_frame && p->special; i++)
        around += frame[i].id >= 0;
    if (around > p->most)
        return ftx_fail(err, FTX_EINVAL, "tokenizer: %zu tokens around a text are more than the %zu allowed", around,
                        p->most);
    keep[0] = p->most - around;
    if (!p->other && p->cut == TOKENIZER_CUT_START) {
        status = put_tokens(t, s, p->text, p->bytes, 0, SIZE_MAX, &count, err);
        *drop = count.n > keep[0] ? count.n - keep[0] : 0;
        return status;
    }
    if (!p->other)
        return p->cut != TOKENIZER_CUT_SECOND
                   ? FTX_OK
                   : ftx_fail(err, FTX_EINVAL, "tokenizer: the second text is to be cut, and there is none");
    if ((status = put_tokens(t, s, p->text, p->bytes, 0, SIZE_MAX, &count, err)))
        return status;
    keep[0] = count.n;
    count.n = 0;
    if ((status = put_tokens(t, s, p->other, p->other_bytes, 0, SIZE_MAX, &count, err)))
        return status;
    keep[1] = count.n;
    if (p->cut != TOKENIZER_CUT_LONGEST)
        return cut_one(p->most - around, p->cut == TOKENIZER_CUT_SECOND, keep, err);
    share(p->most - around, keep);
    return FTX_OK;
}

FtxStatus tokenizer_encode_pair(const Tokenizer *t, TokenizerScratch *s, const TokenizerPair *p, int32_t *ids,
                                int32_t *types, size_t max, size_t *n, FtxError *err)
{
    const TokFrame *frame = t->frame + (p->other ? t->facts->n_single : 0);
    const size_t n_frame = p->other ? t->facts->n_pair : t->facts->n_single;
    TokSink sink = {.ids = ids, .max = max};
    size_t drop, keep[2];
    FtxStatus status;

    *n = 0;
    s->literal = p->literal;
    s->user = p->user;
    if ((status = check_text(s, p->bytes, err)) || (p->other && (status = check_text(s, p->other_bytes, err))) ||
        (status = count_tokens(t, s, p, frame, n_frame, &drop, keep, err)))
        return status;
    for (size_t i = 0; !status && i < n_frame; i++) {
        const size_t start = sink.n;

        if (frame[i].id == TOK_TEXT)
            status = put_tokens(t, s, p->text, p->bytes, drop, keep[0], &sink, err);
        else if (frame[i].id == TOK_OTHER_TEXT)
            status = put_tokens(t, s, p->other, p->other_bytes, 0, keep[1], &sink, err);
        else if (p->special)
            tok_emit(&sink, frame[i].id);
        for (size_t k = start; types && k < sink.n && k < max; k++)
            types[k] = (int32_t)frame[i].type;
    }
    *n = status ? 0 : sink.n;
    return status;
}

FtxStatus tokenizer_encode(const Tokenizer *t, TokenizerScratch *s, const char *text, size_t bytes, bool special,
                           int32_t *ids, size_t max, size_t *n, FtxError *err)
{
    const TokenizerPair single = {.text = text, .bytes = bytes, .special = special};

    return tokenizer_encode_pair(t, s, &single, ids, NULL, max, n, err);
}

FtxStatus tokenizer_normalize(const Tokenizer *t, TokenizerScratch *s, const char *text, size_t bytes, const char **out,
                              size_t *n, FtxError *err)
{
    *out = text;
    *n = bytes;
    return bytes > s->max_text ? check_text(s, bytes, err) : norm_text(t, s, out, n, err);
}
