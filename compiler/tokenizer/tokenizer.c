/* tokenizer.c - a tokenizer's file to the tables that runtime/tokenizer/format.h describes. Start here.
 *
 *   tokenizer.json ──┐                      texts, pieces,          tables, tried by
 *   tokenizer.model ─┼─▶ model.c, spm.c ... ─▶ steps (Build) ─▶ the runtime's own reader
 *   x.tiktoken ──────┤
 *   model.gguf ──────┘ */
#include <stdlib.h>
#include <string.h>

#include "parts.h"
#include "../gguf/gguf.h"
#include "../../runtime/base/file.h"
#include "../../runtime/tokenizer/tokenizer.h"

/* --- added tokens ------------------------------------------------------------------------------- */

static bool read_added(Build *b, const json_t *list)
{
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *o = json_array_get(list, i), *id = json_object_get(o, "id");
        const char *content = build_text(o, "content");
        const json_t *known = content ? json_object_get(b->vocab, content) : NULL;

        if (!content || !json_is_integer(id))
            return diag_error(b->d, b->loc, "added token %zu has no \"content\" or no \"id\"", i);
        if (known && json_integer_value(known) != json_integer_value(id))
            return diag_error(b->d, b->loc,
                              "added token \"%.80s\" has the id %" JSON_INTEGER_FORMAT
                              ", in the vocabulary %" JSON_INTEGER_FORMAT,
                              content, json_integer_value(id), json_integer_value(known));
        if (!build_token(b, content, json_integer_value(id), build_flag(o, "special", false) ? TOK_SPECIAL : 0))
            return false;
        build_added(b, content, (int32_t)json_integer_value(id),
                    (build_flag(o, "normalized", false) ? TOK_ADDED_LATE : 0u) |
                        (build_flag(o, "lstrip", false) ? TOK_ADDED_LSTRIP : 0u) |
                        (build_flag(o, "rstrip", false) ? TOK_ADDED_RSTRIP : 0u) |
                        (build_flag(o, "single_word", false) ? TOK_ADDED_WORD : 0u));
    }
    return true;
}

static int by_content(const AddedText *x, const AddedText *y)
{
    const bool late_x = x->flags & TOK_ADDED_LATE, late_y = y->flags & TOK_ADDED_LATE;

    return late_x != late_y ? late_x - late_y : strcmp(x->text, y->text);
}

static int by_content_and_order(const void *a, const void *b)
{
    const AddedText *x = a, *y = b;
    const int order = by_content(x, y);

    return order ? order : x->order < y->order ? -1 : x->order > y->order;
}

/* Writes the added tokens in the order of their texts. early_only: without those that are looked for in normalised
 * text. */
static void sort_added(Build *b, bool early_only)
{
    const AddedText *before = NULL;

    if (b->added_texts.n)
        qsort(b->added_texts.at, b->added_texts.n, sizeof *b->added_texts.at, by_content_and_order);
    b->added.n = 0;
    for (size_t i = 0; i < b->added_texts.n; i++) {
        const AddedText *a = &b->added_texts.at[i];

        if (!*a->text || (before && by_content(before, a) == 0) || (early_only && (a->flags & TOK_ADDED_LATE)))
            continue;
        *arena_push(b->keep, b->added) = (TokAdded){(uint32_t)b->bytes.n, (uint32_t)strlen(a->text), a->id, a->flags};
        build_append(b, a->text, strlen(a->text));
        before = a;
    }
}

/* --- writing ------------------------------------------------------------------------------------ */

static void *write_tables(Build *b, size_t *bytes)
{
    const struct {
        TokPartKind kind;
        const void *at;
        size_t bytes;
    } parts[] = {
        {TOK_PART_FACTS, &b->facts, sizeof b->facts},
        {TOK_PART_BYTES, b->bytes.at, b->bytes.n},
        {TOK_PART_TOKENS, b->tokens.at, b->tokens.n * sizeof *b->tokens.at},
        {TOK_PART_ADDED, b->added.at, b->added.n * sizeof *b->added.at},
        {TOK_PART_NORMS, b->norms.at, b->norms.n * sizeof *b->norms.at},
        {TOK_PART_STEPS, b->steps.at, b->steps.n * sizeof *b->steps.at},
        {TOK_PART_MERGES, b->merges.at, b->merges.n * sizeof *b->merges.at},
        {TOK_PART_PAIRS, b->pairs, b->n_pairs * sizeof *b->pairs},
        {TOK_PART_WORDS, b->words, b->n_words * sizeof *b->words},
        {TOK_PART_FRAME, b->frame.at, b->frame.n * sizeof *b->frame.at},
        {TOK_PART_PIECES, b->pieces.at, b->pieces.n * sizeof *b->pieces.at},
        {TOK_PART_TRIE, b->trie.at, b->trie.n * sizeof *b->trie.at},
        {TOK_PART_CHARSMAP, b->charsmap, b->n_charsmap},
    };
    size_t at = sizeof(TokHeader) + LEN(parts) * sizeof(TokPart);
    TokHeader head = {.format = TOK_FORMAT, .parts = LEN(parts)};
    TokPart *list;
    char *out;

    *bytes = at;
    for (size_t i = 0; i < LEN(parts); i++)
        *bytes += (parts[i].bytes + 7) / 8 * 8;
    out = arena_alloc(b->keep, *bytes);
    memcpy(head.magic, TOK_MAGIC, sizeof head.magic);
    memcpy(out, &head, sizeof head);
    list = (TokPart *)(out + sizeof head);
    for (size_t i = 0; i < LEN(parts); i++) {
        list[i] = (TokPart){parts[i].kind, 0, at, parts[i].bytes};
        if (parts[i].bytes)
            memcpy(out + at, parts[i].at, parts[i].bytes);
        at += (parts[i].bytes + 7) / 8 * 8;
    }
    return out;
}

/* Opens the tables with the runtime's reader, which also finds out whether the patterns compile. */
static bool try_tables(Build *b, const void *tables, size_t bytes, Tokenizer **t)
{
    FtxError err;

    if (tokenizer_open(tables, bytes, t, &err))
        return diag_error(b->d, b->loc, "%s", err.text);
    return true;
}

static bool normalize_one(Build *b, const Tokenizer *t, AddedText *a)
{
    TokenizerScratch *s;
    const char *out;
    FtxError err;
    size_t n;
    bool ok;

    if (tokenizer_scratch_open(t, strlen(a->text), &s, &err))
        return diag_error(b->d, b->loc, "%s", err.text);
    ok = !tokenizer_normalize(t, s, a->text, strlen(a->text), &out, &n, &err) ||
         diag_error(b->d, b->loc, "%s", err.text);
    if (ok)
        a->text = arena_strndup(b->keep, out, n);
    tokenizer_scratch_close(s);
    return ok;
}

/* Added tokens that are looked for in normalised text are normalised, too: by the runtime, with tables that lack
 * them. */
static bool normalize_added(Build *b)
{
    const Blob bytes = b->bytes;
    Tokenizer *t;
    void *tables;
    size_t n;
    bool ok = true;

    if (!b->norms.n)
        return true;
    sort_added(b, true);
    tables = write_tables(b, &n);
    if (!try_tables(b, tables, n, &t))
        return false;
    for (size_t i = 0; i < b->added_texts.n && ok; i++)
        if (b->added_texts.at[i].flags & TOK_ADDED_LATE)
            ok = normalize_one(b, t, &b->added_texts.at[i]);
    tokenizer_close(t);
    b->bytes.n = bytes.n;
    return ok;
}

static bool finish(Build *b, void **tables, size_t *bytes)
{
    Tokenizer *t;

    if (b->facts.model != TOK_MODEL_BPE_BYTES && !b->trie.n)
        build_trie(b);
    if (!decode_tokens(b) || !normalize_added(b))
        return false;
    sort_added(b, false);
    *tables = write_tables(b, bytes);
    if (!try_tables(b, *tables, *bytes, &t))
        return false;
    tokenizer_close(t);
    return true;
}

/* --- tokenizer.h ---------------------------------------------------------------------------------- */

static bool read_json(Build *b, const json_t *root)
{
    if (!json_is_object(root))
        return diag_error(b->d, b->loc, "is no JSON object");
    return read_normalizer(b, json_object_get(root, "normalizer")) &&
           read_pre_tokenizer(b, json_object_get(root, "pre_tokenizer")) &&
           read_decoder(b, json_object_get(root, "decoder")) && read_model(b, json_object_get(root, "model")) &&
           read_added(b, json_object_get(root, "added_tokens")) &&
           read_post_processor(b, json_object_get(root, "post_processor"));
}

static bool ends_in(const char *path, const char *suffix)
{
    const size_t n = strlen(path), m = strlen(suffix);

    return n >= m && strcmp(path + n - m, suffix) == 0;
}

static bool read_bytes(Build *b, const void *p, size_t n)
{
    json_error_t why;
    json_t *root;
    const char *text;
    bool ok;

    if (gguf_begins(p, n))
        return read_gguf(b, p, n);
    if (ends_in(b->loc.file, ".tiktoken") || (ends_in(b->loc.file, ".model") && is_tiktoken(p, n)))
        return read_tiktoken(b, p, n);
    if (ends_in(b->loc.file, ".spm") || ends_in(b->loc.file, ".model"))
        return read_sentencepiece(b, p, n);
    text = file_text(&(FileMap){p, n}, &n);
    root = json_loadb(text, n, JSON_REJECT_DUPLICATES, &why);
    if (!root)
        return diag_error(b->d, b->loc, "is not JSON");
    ok = is_tekken(root) ? read_tekken(b, root) : read_json(b, root);
    json_decref(root);
    return ok;
}

bool tokenizer_compile_bytes(const char *path, const void *p, size_t n, Arena *keep, void **tables, size_t *bytes,
                             Diag *d)
{
    Build b = {.loc = {path, 0}, .keep = keep, .d = d};
    bool ok;

    build_open(&b);
    ok = read_bytes(&b, p, n);
    json_decref(b.vocab);
    return ok && finish(&b, tables, bytes);
}

bool tokenizer_compile(const char *path, Arena *keep, void **tables, size_t *bytes, Diag *d)
{
    FileMap map;
    FtxError err;
    bool ok;

    if (file_map(path, &map, &err))
        return diag_error(d, (Loc){0}, "%s", err.text);
    ok = tokenizer_compile_bytes(path, map.at, map.bytes, keep, tables, bytes, d);
    file_unmap(&map);
    return ok;
}
