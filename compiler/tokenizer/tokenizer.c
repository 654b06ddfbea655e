/* tokenizer.c - tokenizer.json to tables: vocabulary, merges, added tokens, pre-tokenizer and
 * post-processor of a byte-level BPE, in the form that runtime/tokenizer_format.h describes.
 *
 * Byte-level means that the texts of the JSON file write each byte as one printable character:
 * "Ġt" is a space and a t. Here they become bytes again. */
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "parts.h"
#include "../../runtime/base/file.h"
#include "../../runtime/base/hash.h"
#include "../../runtime/tokenizer.h"
#include "../../runtime/tokenizer_format.h"
#include "../../runtime/utf8.h"

enum { MAX_ID = 1 << 24, BYTE_CHARACTERS = 324 };

/* GPT-2's own pattern, which a ByteLevel pre-tokenizer has inside. Radford et al. 2019. */
static const char *const GPT2_PATTERN =
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

typedef struct Blob {
    char *at;
    size_t n, cap;
} Blob;

typedef struct Build {
    Loc loc;
    Arena *keep;
    Diag *d;
    json_t *vocab;
    TokFacts facts;
    Blob bytes;
    int16_t byte_of[BYTE_CHARACTERS]; /* of a character that stands for one; -1: none */
    struct { TokToken *at; size_t n, cap; } tokens;
    struct { TokAdded *at; size_t n, cap; } added;
    struct { TokStep *at; size_t n, cap; } steps;
    struct { TokMerge *at; size_t n, cap; } merges;
    struct { int32_t *at; size_t n, cap; } frame;
    uint32_t *pairs, *words;
    size_t n_pairs, n_words;
    bool byte_level; /* the pre-tokenizer has been through its ByteLevel */
} Build;

static void append(Build *b, Blob *blob, const void *p, size_t bytes)
{
    if (blob->n + bytes > blob->cap) {
        const size_t cap = (blob->n + bytes) * 2 + 1024;

        blob->at = arena_grow(b->keep, blob->at, blob->n, cap);
        blob->cap = cap;
    }
    if (bytes)
        memcpy(blob->at + blob->n, p, bytes);
    blob->n += bytes;
}

static const char *type_of(const json_t *o)
{
    const char *type = json_string_value(json_object_get(o, "type"));

    return type ? type : "without a type";
}

static bool flag(const json_t *o, const char *name, bool otherwise)
{
    const json_t *v = json_object_get(o, name);

    return json_is_boolean(v) ? json_is_true(v) : otherwise;
}

/* --- bytes as characters ------------------------------------------------------------------------ */

/* Printable bytes stand for themselves; the others, in order, for U+0100 and on. */
static void make_byte_characters(Build *b)
{
    int next = 256;

    for (int i = 0; i < BYTE_CHARACTERS; i++)
        b->byte_of[i] = -1;
    for (int byte = 0; byte < 256; byte++) {
        const bool printable = (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;

        b->byte_of[printable ? byte : next++] = (int16_t)byte;
    }
}

/* The bytes that a token's text stands for, at most strlen(text). False: some character stands for
 * none, and the text is taken as it is. */
static bool token_bytes(const Build *b, const char *text, char *out, size_t *n)
{
    const size_t all = strlen(text);

    *n = 0;
    for (size_t at = 0, length; at < all; at += length) {
        uint32_t code;

        if (utf8_next((const unsigned char *)text + at, all - at, &length, &code) != UTF8_CHARACTER ||
            code >= BYTE_CHARACTERS || b->byte_of[code] < 0) {
            memcpy(out, text, all);
            *n = all;
            return false;
        }
        out[(*n)++] = (char)b->byte_of[code];
    }
    return true;
}

/* --- vocabulary --------------------------------------------------------------------------------- */

static bool add_token(Build *b, const char *text, json_int_t id, uint32_t flags)
{
    char *bytes = arena_alloc(b->keep, strlen(text) + 1);
    TokToken *t;
    size_t n;

    if (id < 0 || id >= MAX_ID)
        return diag_error(b->d, b->loc, "token \"%.80s\" has the id %" JSON_INTEGER_FORMAT, text, id);
    while (b->tokens.n <= (size_t)id)
        arena_push(b->keep, b->tokens);
    t = &b->tokens.at[id];
    token_bytes(b, text, bytes, &n);
    if (t->flags & TOK_PRESENT) {
        if (t->bytes == n && memcmp(b->bytes.at + t->offset, bytes, n) == 0) {
            t->flags |= flags;
            return true;
        }
        return diag_error(b->d, b->loc, "token \"%.80s\" has the id %" JSON_INTEGER_FORMAT " of another token", text,
                          id);
    }
    *t = (TokToken){(uint32_t)b->bytes.n, (uint32_t)n, flags | TOK_PRESENT};
    append(b, &b->bytes, bytes, n);
    return true;
}

static bool read_vocab(Build *b)
{
    const char *text;
    json_t *id;

    if (!json_is_object(b->vocab) || !json_object_size(b->vocab))
        return diag_error(b->d, b->loc, "\"model\" has no \"vocab\"");
    json_object_foreach(b->vocab, text, id) {
        if (!json_is_integer(id))
            return diag_error(b->d, b->loc, "token \"%.80s\" has no id", text);
        if (!add_token(b, text, json_integer_value(id), 0))
            return false;
    }
    for (int i = 0; i < 256; i++)
        b->facts.byte_id[i] = -1;
    for (int c = 0; c < BYTE_CHARACTERS; c++)
        if (b->byte_of[c] >= 0) {
            const char one[] = {(char)c, 0}, two[] = {(char)(0xc0 | c >> 6), (char)(0x80 | (c & 0x3f)), 0};
            const json_t *v = json_object_get(b->vocab, c < 0x80 ? one : two);

            if (v)
                b->facts.byte_id[b->byte_of[c]] = (int32_t)json_integer_value(v);
        }
    return true;
}

static size_t slots_for(size_t n)
{
    size_t slots = 8;

    while (slots < n * 2)
        slots *= 2;
    return slots;
}

/* Pieces that are tokens as a whole: only texts made of byte characters can be pieces. */
static void hash_words(Build *b)
{
    const char *text;
    json_t *id;

    b->n_words = slots_for(json_object_size(b->vocab));
    b->words = arena_array(b->keep, uint32_t, b->n_words);
    json_object_foreach(b->vocab, text, id) {
        char *bytes = arena_alloc(b->keep, strlen(text) + 1);
        size_t n, i;

        if (!token_bytes(b, text, bytes, &n) || !n)
            continue;
        for (i = hash64(bytes, n) & (b->n_words - 1); b->words[i];)
            i = (i + 1) & (b->n_words - 1);
        b->words[i] = (uint32_t)json_integer_value(id) + 1;
    }
}

/* --- merges ------------------------------------------------------------------------------------- */

/* "a b" or ["a", "b"] */
static bool split_merge(const json_t *v, Arena *keep, const char **left, const char **right)
{
    if (json_is_string(v)) {
        const char *text = json_string_value(v), *space = strchr(text, ' ');

        if (!space || strchr(space + 1, ' '))
            return false;
        *left = arena_strndup(keep, text, (size_t)(space - text));
        *right = arena_strdup(keep, space + 1);
        return true;
    }
    *left = json_string_value(json_array_get(v, 0));
    *right = json_string_value(json_array_get(v, 1));
    return json_array_size(v) == 2 && *left && *right;
}

static bool read_merges(Build *b, const json_t *merges)
{
    for (size_t rank = 0; rank < json_array_size(merges); rank++) {
        const char *text[3];
        int32_t id[3];

        if (!split_merge(json_array_get(merges, rank), b->keep, &text[0], &text[1]))
            return diag_error(b->d, b->loc, "merge %zu is not a pair of tokens", rank);
        text[2] = arena_printf(b->keep, "%s%s", text[0], text[1]);
        for (int i = 0; i < 3; i++) {
            const json_t *v = json_object_get(b->vocab, text[i]);

            if (!v)
                return diag_error(b->d, b->loc, "merge %zu: \"%.80s\" is not in the vocabulary", rank, text[i]);
            id[i] = (int32_t)json_integer_value(v);
        }
        *arena_push(b->keep, b->merges) = (TokMerge){id[0], id[1], id[2]};
    }
    b->n_pairs = slots_for(b->merges.n);
    b->pairs = arena_array(b->keep, uint32_t, b->n_pairs);
    for (size_t rank = 0; rank < b->merges.n; rank++) {
        const TokMerge *m = &b->merges.at[rank];
        size_t i = tok_pair_hash(m->left, m->right) & (b->n_pairs - 1);

        for (const TokMerge *o; b->pairs[i]; i = (i + 1) & (b->n_pairs - 1)) {
            o = &b->merges.at[b->pairs[i] - 1];
            if (o->left == m->left && o->right == m->right)
                break; /* of two equal pairs the later rank counts, as in the library */
        }
        b->pairs[i] = (uint32_t)rank + 1;
    }
    return true;
}

static bool is_set(const json_t *v)
{
    return v && !json_is_null(v) && !json_is_false(v) && (!json_is_string(v) || *json_string_value(v)) &&
           (!json_is_number(v) || json_number_value(v) != 0);
}

static bool read_model(Build *b, const json_t *model)
{
    static const char *const refused[] = {"dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix",
                                          "byte_fallback"};
    const json_t *type = json_object_get(model, "type");

    if (!json_is_object(model))
        return diag_error(b->d, b->loc, "has no \"model\"");
    if (type && strcmp(type_of(model), "BPE") != 0)
        return diag_error(b->d, b->loc, "its model is %s; byte-level BPE is supported", type_of(model));
    b->vocab = json_object_get(model, "vocab");
    if (!read_vocab(b))
        return false;
    for (size_t i = 0; i < LEN(refused); i++)
        if (is_set(json_object_get(model, refused[i]))) {
            bool all = strcmp(refused[i], "unk_token") == 0; /* never needed where every byte is a token */

            for (int k = 0; k < 256 && all; k++)
                all = b->facts.byte_id[k] >= 0;
            if (!all)
                return diag_error(b->d, b->loc, "its BPE model has \"%s\", which is not supported", refused[i]);
        }
    if (flag(model, "ignore_merges", false)) {
        b->facts.flags |= TOK_WHOLE_WORDS;
        hash_words(b);
    }
    return read_merges(b, json_object_get(model, "merges"));
}

/* --- added tokens ------------------------------------------------------------------------------- */

static const char *sort_bytes; /* qsort has no argument for it */

static int by_content(const void *a, const void *b)
{
    const TokAdded *x = a, *y = b;
    const bool late_x = x->flags & TOK_ADDED_LATE, late_y = y->flags & TOK_ADDED_LATE;
    int order;

    if (late_x != late_y)
        return late_x - late_y;
    order = memcmp(sort_bytes + x->offset, sort_bytes + y->offset, x->bytes < y->bytes ? x->bytes : y->bytes);
    return order ? order : x->bytes < y->bytes ? -1 : x->bytes > y->bytes;
}

static bool read_added(Build *b, const json_t *list)
{
    size_t n = 0;

    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *o = json_array_get(list, i), *id = json_object_get(o, "id");
        const char *content = json_string_value(json_object_get(o, "content"));
        const json_t *known = content ? json_object_get(b->vocab, content) : NULL;
        TokAdded *a;

        if (!content || !json_is_integer(id))
            return diag_error(b->d, b->loc, "added token %zu has no \"content\" or no \"id\"", i);
        if (known && json_integer_value(known) != json_integer_value(id))
            return diag_error(b->d, b->loc, "added token \"%.80s\" has the id %" JSON_INTEGER_FORMAT
                              ", in the vocabulary %" JSON_INTEGER_FORMAT, content, json_integer_value(id),
                              json_integer_value(known));
        if (!add_token(b, content, json_integer_value(id), flag(o, "special", false) ? TOK_SPECIAL : 0))
            return false;
        if (!*content)
            continue;
        a = arena_push(b->keep, b->added);
        *a = (TokAdded){(uint32_t)b->bytes.n, (uint32_t)strlen(content), (int32_t)json_integer_value(id), 0};
        append(b, &b->bytes, content, a->bytes);
        a->flags = (flag(o, "normalized", false) ? TOK_ADDED_LATE : 0u) |
                   (flag(o, "lstrip", false) ? TOK_ADDED_LSTRIP : 0u) |
                   (flag(o, "rstrip", false) ? TOK_ADDED_RSTRIP : 0u) |
                   (flag(o, "single_word", false) ? TOK_ADDED_WORD : 0u);
    }
    sort_bytes = b->bytes.at;
    if (b->added.n)
        qsort(b->added.at, b->added.n, sizeof *b->added.at, by_content);
    for (size_t i = 0; i < b->added.n; i++)
        if (n == 0 || by_content(&b->added.at[n - 1], &b->added.at[i]) != 0)
            b->added.at[n++] = b->added.at[i];
    b->added.n = n;
    return true;
}

/* --- pre-tokenizer ------------------------------------------------------------------------------ */

static void add_step(Build *b, TokStepKind kind, const char *pattern)
{
    *arena_push(b->keep, b->steps) = (TokStep){kind, (uint32_t)b->bytes.n, (uint32_t)strlen(pattern), 0};
    append(b, &b->bytes, pattern, strlen(pattern));
}

static bool add_pattern(Build *b, const char *pattern)
{
    const char *translated;

    if (!pattern_translate(pattern, b->loc, b->keep, &translated, b->d))
        return false;
    add_step(b, TOK_STEP_SPLIT, translated);
    return true;
}

static bool read_split(Build *b, const json_t *o)
{
    const json_t *pattern = json_object_get(o, "pattern");
    const char *regex = json_string_value(json_object_get(pattern, "Regex"));
    const char *text = json_string_value(json_object_get(pattern, "String"));
    const char *behavior = json_string_value(json_object_get(o, "behavior"));

    if (!behavior || strcmp(behavior, "Isolated") != 0)
        return diag_error(b->d, b->loc, "its pre-tokenizer splits with the behavior %s; Isolated is supported",
                          behavior ? behavior : "(none)");
    if (regex)
        return add_pattern(b, regex);
    if (!text || !*text)
        return diag_error(b->d, b->loc, "its pre-tokenizer splits by no pattern");
    add_step(b, TOK_STEP_SPLIT, pattern_quote(text, b->keep));
    return true;
}

static bool read_step(Build *b, const json_t *o)
{
    const json_t *list = json_object_get(o, "pretokenizers");
    const char *type = type_of(o);

    if (strcmp(type, "Sequence") == 0) {
        for (size_t i = 0; i < json_array_size(list); i++)
            if (!read_step(b, json_array_get(list, i)))
                return false;
        return true;
    }
    if (b->byte_level)
        return diag_error(b->d, b->loc, "its pre-tokenizer has %s after ByteLevel, which is not supported", type);
    if (strcmp(type, "Split") == 0)
        return read_split(b, o);
    if (strcmp(type, "Digits") == 0)
        return add_pattern(b, flag(o, "individual_digits", false) ? "\\p{N}" : "\\p{N}+");
    if (strcmp(type, "ByteLevel") != 0)
        return diag_error(b->d, b->loc, "its pre-tokenizer has %s; Split, Digits and ByteLevel are supported", type);
    b->byte_level = true;
    if (flag(o, "add_prefix_space", true))
        add_step(b, TOK_STEP_SPACE, "");
    return !flag(o, "use_regex", true) || add_pattern(b, GPT2_PATTERN);
}

/* --- post-processor ----------------------------------------------------------------------------- */

static bool add_frame(Build *b, const json_t *template, const char *name, bool after)
{
    const json_t *ids = json_object_get(json_object_get(json_object_get(template, "special_tokens"), name), "ids");

    if (!json_array_size(ids))
        return diag_error(b->d, b->loc, "its post-processor adds \"%.80s\", which has no ids", name);
    for (size_t i = 0; i < json_array_size(ids); i++) {
        const json_int_t id = json_integer_value(json_array_get(ids, i));

        if (id < 0 || (size_t)id >= b->tokens.n)
            return diag_error(b->d, b->loc, "its post-processor adds the id %" JSON_INTEGER_FORMAT, id);
        *arena_push(b->keep, b->frame) = (int32_t)id;
        if (after)
            b->facts.n_after++;
        else
            b->facts.n_before++;
    }
    return true;
}

static bool read_template(Build *b, const json_t *o)
{
    const json_t *single = json_object_get(o, "single");
    bool seen = false;

    for (size_t i = 0; i < json_array_size(single); i++) {
        const json_t *piece = json_array_get(single, i);
        const char *special =
            json_string_value(json_object_get(json_object_get(piece, "SpecialToken"), "id"));

        if (special) {
            if (!add_frame(b, o, special, seen))
                return false;
        } else if (json_object_get(piece, "Sequence") && !seen) {
            seen = true;
        } else {
            return diag_error(b->d, b->loc, "its post-processor's template has a piece that is not supported");
        }
    }
    return seen || diag_error(b->d, b->loc, "its post-processor's template has no place for the text");
}

static bool read_post(Build *b, const json_t *o)
{
    const json_t *list = json_object_get(o, "processors");
    const char *type = type_of(o);

    if (!o || json_is_null(o) || strcmp(type, "ByteLevel") == 0) /* ByteLevel moves offsets alone */
        return true;
    if (strcmp(type, "Sequence") == 0) {
        for (size_t i = 0; i < json_array_size(list); i++)
            if (!read_post(b, json_array_get(list, i)))
                return false;
        return true;
    }
    if (strcmp(type, "TemplateProcessing") != 0)
        return diag_error(b->d, b->loc, "its post-processor is %s; TemplateProcessing and ByteLevel are supported",
                          type);
    if (b->frame.n)
        return diag_error(b->d, b->loc, "it has two post-processors that add tokens");
    return read_template(b, o);
}

/* --- all of it ---------------------------------------------------------------------------------- */

static bool read_all(Build *b, const json_t *root)
{
    const json_t *normalizer = json_object_get(root, "normalizer"), *decoder = json_object_get(root, "decoder");
    const json_t *pre = json_object_get(root, "pre_tokenizer");

    if (!json_is_object(root))
        return diag_error(b->d, b->loc, "is no JSON object");
    if (json_is_object(normalizer) && (strcmp(type_of(normalizer), "Sequence") != 0 ||
                                       json_array_size(json_object_get(normalizer, "normalizers"))))
        return diag_error(b->d, b->loc, "its normalizer is %s; none is supported", type_of(normalizer));
    if (!read_model(b, json_object_get(root, "model")) || !read_added(b, json_object_get(root, "added_tokens")))
        return false;
    if (json_is_object(pre) && !read_step(b, pre))
        return false;
    if (!b->byte_level)
        return diag_error(b->d, b->loc, "its BPE has no ByteLevel pre-tokenizer; byte-level BPE is supported");
    if (b->steps.n > TOK_MAX_STEPS)
        return diag_error(b->d, b->loc, "its pre-tokenizer has %zu steps, at most %d are supported", b->steps.n,
                          TOK_MAX_STEPS);
    if (strcmp(type_of(decoder), "ByteLevel") != 0)
        return diag_error(b->d, b->loc, "its decoder is %s; ByteLevel is supported", type_of(decoder));
    b->facts.model = TOK_MODEL_BPE_BYTES;
    return read_post(b, json_object_get(root, "post_processor"));
}

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
        {TOK_PART_STEPS, b->steps.at, b->steps.n * sizeof *b->steps.at},
        {TOK_PART_MERGES, b->merges.at, b->merges.n * sizeof *b->merges.at},
        {TOK_PART_PAIRS, b->pairs, b->n_pairs * sizeof *b->pairs},
        {TOK_PART_WORDS, b->words, b->n_words * sizeof *b->words},
        {TOK_PART_FRAME, b->frame.at, b->frame.n * sizeof *b->frame.at},
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

/* The runtime's own reader has the last word: it knows whether the pattern compiles. */
static bool try_tables(Build *b, const void *tables, size_t bytes)
{
    Tokenizer *t;
    FtxError err;

    if (tokenizer_open(tables, bytes, &t, &err))
        return diag_error(b->d, b->loc, "%s", err.text);
    tokenizer_close(t);
    return true;
}

bool tokenizer_compile(const char *path, Arena *keep, void **tables, size_t *bytes, Diag *d)
{
    Build b = {.loc = {path, 0}, .keep = keep, .d = d};
    json_error_t why;
    json_t *root;
    FileMap map;
    FtxError err;
    bool ok;

    if (file_map(path, &map, &err))
        return diag_error(d, (Loc){0}, "%s", err.text);
    root = map.bytes ? json_loadb(map.at, map.bytes, JSON_REJECT_DUPLICATES, &why) : NULL;
    file_unmap(&map);
    if (!root)
        return diag_error(d, (Loc){path, 0}, "is not JSON");
    make_byte_characters(&b);
    ok = read_all(&b, root);
    json_decref(root);
    if (!ok)
        return false;
    *tables = write_tables(&b, bytes);
    return try_tables(&b, *tables, *bytes);
}
