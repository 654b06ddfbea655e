/* fuzz_tokenizer_json.c - any bytes as a tokenizer.json; or choices: the parts of one, and a text for it. What the
 * compiler takes the runtime opens, and it encodes and decodes.
 *
 * Parts come from the tokenizers of tests/tokenizer/switches.json, one for each switch of each part. A text goes to ids
 * and back:
 *   - ids are below the size of the vocabulary, and as many as were counted;
 *   - the stream gives the same text as one call;
 *   - a tokenizer that has a token for each byte, and changes nothing else, gives the text itself;
 *   - nothing of this allocates. */
#include "tables.h"

#include <malloc.h>

#include "choices.h"
#include "runtime/base/file.h"
#include "runtime/base/utf8.h"

enum { MAX_TEXT = 400, MAX_IDS = 3 * MAX_TEXT + 8, MAX_OUT = 1 << 18 };

/* --- a text to ids and back ----------------------------------------------------------------------- */

size_t __sanitizer_get_current_allocated_bytes(void) __attribute__((weak));

static size_t heap_bytes(void)
{
    if (__sanitizer_get_current_allocated_bytes)
        return __sanitizer_get_current_allocated_bytes();
    return mallinfo2().uordblks + mallinfo2().hblkhd;
}

static void must_stream(const Tokenizer *t, const int32_t *ids, size_t n, bool skip)
{
    static char whole[MAX_OUT], text[MAX_OUT];
    TokenizerStream s = {.keep_special = !skip};
    size_t bytes, at = 0, got;
    FtxError err;

    if (tokenizer_decode(t, ids, n, skip, whole, sizeof whole, &bytes, &err))
        fuzz_bug("what was encoded is not decoded: %s", err.text);
    if (bytes > sizeof whole || (tokenizer_token_bytes(t) + 16) * n > sizeof text)
        return;
    for (size_t i = 0; i < n; i++) {
        if (tokenizer_stream(t, &s, ids[i], i + 1 == n, text + at, tokenizer_token_bytes(t) + 16, &got, &err))
            fuzz_bug("stream: %s", err.text);
        if (!utf8_valid(text + at, got))
            fuzz_bug("half a character came out");
        at += got;
    }
    if (at != bytes || memcmp(text, whole, bytes) != 0)
        fuzz_bug("the stream gave \"%.*s\", all at once it is \"%.*s\"", (int)at, text, (int)bytes, whole);
}

static void must_be(const Tokenizer *t, const int32_t *ids, size_t n, const char *text, size_t size)
{
    static char back[MAX_OUT];
    size_t bytes;
    FtxError err;

    if (tokenizer_decode(t, ids, n, false, back, sizeof back, &bytes, &err) || bytes != size ||
        memcmp(back, text, size) != 0)
        fuzz_bug("\"%.*s\" came back as \"%.*s\"", (int)size, text, (int)bytes, back);
}

static void go_round(const Tokenizer *t, TokenizerScratch *s, const char *text, size_t size, size_t vocab,
                     bool lossless)
{
    static int32_t ids[MAX_IDS];
    size_t counted, n;
    FtxError err;

    for (int special = 0; special < 2; special++) {
        if (tokenizer_encode(t, s, text, size, special, ids, 0, &counted, &err)) {
            if (!*err.text || lossless)
                fuzz_bug("refused: %s", err.text);
            return;
        }
        if (tokenizer_encode(t, s, text, size, special, ids, MAX_IDS, &n, &err) || n != counted)
            fuzz_bug("%zu ids were counted, %zu came", counted, n);
        if (n > MAX_IDS)
            return;
        for (size_t i = 0; i < n; i++)
            if (ids[i] < 0 || (size_t)ids[i] >= vocab)
                fuzz_bug("id %d of a vocabulary of %zu", ids[i], vocab);
        must_stream(t, ids, n, false);
        must_stream(t, ids, n, true);
        if (lossless && !special && utf8_valid(text, size))
            must_be(t, ids, n, text, size);
    }
}

/* --- a tokenizer.json from choices ---------------------------------------------------------------- */

static json_t *entries; /* of switches.json, for the whole run */

static json_t *entry(uint32_t i)
{
    return json_object_get(json_array_get(entries, i), "tokenizer");
}

static json_t *chosen_part(Choices *c, const char *key)
{
    return json_deep_copy(json_object_get(entry(choose(c, (uint32_t)json_array_size(entries))), key));
}

static bool starts(const char *name, const char *with)
{
    return strncmp(name, with, strlen(with)) == 0;
}

/* Every text comes back: a token for each byte, nothing else that changes a text. */
static bool is_lossless(uint32_t i)
{
    const char *name = json_string_value(json_object_get(json_array_get(entries, i), "name"));

    return starts(name, "bpe bytes=True") || starts(name, "bytelevel prefix=False") ||
           starts(name, "bpe ignore_merges") || starts(name, "pre sequence") || starts(name, "family llama3") ||
           starts(name, "family deepseek") || starts(name, "family falcon") || starts(name, "family gpt-oss");
}

/* Keeps the part, takes that of another tokenizer, none, or a sequence of two. False: it is kept. */
static bool choose_part(json_t *o, Choices *c, const char *key, const char *list)
{
    json_t *part, *other;

    switch (choose(c, 4)) {
    case 0: return false;
    case 1: json_object_set_new(o, key, chosen_part(c, key)); return true;
    case 2: json_object_set_new(o, key, json_null()); return true;
    default:
        part = chosen_part(c, key);
        other = chosen_part(c, key);
        json_object_set_new(o, key, json_pack("{s:s, s:[o, o]}", "type", "Sequence", list, part, other));
        return true;
    }
}

static json_t *other_value(Choices *c, const json_t *was)
{
    static const char *const words[] = {"",
                                        " ",
                                        "a",
                                        "\xe2\x96\x81",
                                        "##",
                                        "<unk>",
                                        "Isolated",
                                        "Removed",
                                        "always",
                                        "first",
                                        "never",
                                        "\\s+",
                                        "(a|b)*ab",
                                        "\\p{L}+",
                                        "[^a]",
                                        "(?!b)c",
                                        "[a[b ]]",
                                        "</w>",
                                        "b",
                                        "MergedWithPrevious",
                                        "MergedWithNext",
                                        "Contiguous"};

    switch (json_typeof(was)) {
    case JSON_TRUE:
    case JSON_FALSE: return json_boolean(json_is_false(was));
    case JSON_INTEGER: return json_integer((json_int_t)choose_value(c, (uint64_t)json_integer_value(was)));
    default: return choose(c, 8) == 7 ? json_null() : json_string(words[choose(c, LEN(words))]);
    }
}

/* Another value for leaf *k of the objects and lists below; not of the vocabulary and the merges. */
static void edit_leaf(json_t *o, Choices *c, uint32_t *k)
{
    void *next;
    const char *name;
    json_t *v;
    size_t i;

    json_object_foreach_safe(o, next, name, v)
    {
        if (strcmp(name, "vocab") == 0 || strcmp(name, "merges") == 0)
            continue;
        if (json_is_object(v) || json_is_array(v))
            edit_leaf(v, c, k);
        else if ((*k)-- == 0)
            json_object_set_new(o, name, other_value(c, v));
    }
    json_array_foreach(o, i, v) edit_leaf(v, c, k);
}

/* Added tokens get the ids behind the vocabulary, and the post-processor these. Returns the size of the vocabulary. */
static size_t give_ids(json_t *o)
{
    json_t *added = json_object_get(o, "added_tokens"), *post = json_object_get(o, "post_processor"), *token, *id;
    const json_t *vocab = json_object_get(json_object_get(o, "model"), "vocab");
    const size_t first = json_is_object(vocab) ? json_object_size(vocab) : json_array_size(vocab);
    size_t i;

    json_array_foreach(added, i, token)
    {
        const char *content = json_string_value(json_object_get(token, "content"));

        id = json_integer((json_int_t)(first + i));
        json_object_set(token, "id", id);
        for (int k = 0; k < 2; k++) {
            json_t *named = json_object_get(post, k ? "sep" : "cls");

            if (content && json_string_value(json_array_get(named, 0)) &&
                strcmp(json_string_value(json_array_get(named, 0)), content) == 0)
                json_array_set(named, 1, id);
        }
        token = json_object_get(json_object_get(post, "special_tokens"), content ? content : "");
        if (token)
            json_object_set_new(token, "ids", json_pack("[O]", id));
        json_decref(id);
    }
    return first + json_array_size(added);
}

static size_t choose_text(Choices *c, uint32_t base, char *text)
{
    size_t n = 0;

    for (int pieces = 0; c->left && pieces < 12; pieces++) {
        const json_t *cases = json_object_get(json_array_get(entries, base), "cases");
        const json_t *one = json_object_get(json_array_get(cases, choose(c, (uint32_t)json_array_size(cases))), "text");
        const size_t bytes = json_string_length(one);

        if (n + bytes + 1 > MAX_TEXT)
            break;
        memcpy(text + n, json_string_value(one), bytes);
        n += bytes;
        if (choose(c, 3) == 2)
            text[n++] = (char)choose_bytes(c, 1);
    }
    return n;
}

static void use(const char *file, const char *text, size_t size, size_t vocab, bool lossless)
{
    Arena *keep = arena_open();
    TokenizerScratch *scratch;
    Diag d = {0};
    void *tables;
    size_t bytes;
    Tokenizer *t;
    FtxError err;

    if (tokenizer_compile_bytes("x.json", file, strlen(file), keep, &tables, &bytes, &d)) {
        if (tokenizer_open(tables, bytes, &t, &err) || tokenizer_scratch_open(t, MAX_TEXT, &scratch, &err))
            fuzz_bug("tables that the compiler made are refused: %s", err.text);
        const size_t before = heap_bytes();

        go_round(t, scratch, text, size, vocab, lossless);
        if (heap_bytes() != before)
            fuzz_bug("encoding or decoding allocated");
        tokenizer_scratch_close(scratch);
        tokenizer_close(t);
    } else if (!*d.text || lossless) {
        fuzz_bug("refused: %s", d.text);
    }
    arena_close(keep);
}

static void from_choices(Choices *c)
{
    if (!entries) {
        json_t *root = json_load_file("tests/tokenizer/switches.json", JSON_ALLOW_NUL, NULL);

        entries = json_incref(json_object_get(root, "tokenizers"));
        json_decref(root);
    }
    if (!entries)
        fuzz_bug("switches.json cannot be read");

    const uint32_t base = choose(c, (uint32_t)json_array_size(entries));
    json_t *o = json_deep_copy(entry(base));
    char text[MAX_TEXT];
    bool changed = false;

    if (choose(c, 2)) {
        changed |= choose_part(o, c, "normalizer", "normalizers");
        changed |= choose_part(o, c, "pre_tokenizer", "pretokenizers");
        changed |= choose_part(o, c, "decoder", "decoders");
        changed |= choose_part(o, c, "post_processor", "processors");
        if (choose(c, 3) == 1) {
            json_object_set_new(o, "added_tokens", chosen_part(c, "added_tokens"));
            changed = true;
        }
        for (uint32_t edits = choose(c, 4); edits > 0; edits--) {
            uint32_t leaf = choose(c, 64);

            edit_leaf(o, c, &leaf);
            changed = true;
        }
    }
    const size_t vocab = give_ids(o), size = choose_text(c, base, text);
    char *file = json_dumps(o, JSON_COMPACT);

    if (!file)
        fuzz_bug("no JSON");
    use(file, text, size, vocab, !changed && is_lossless(base));
    free(file);
    json_decref(o);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    Choices c;

    if (choices_begin(&c, data, size))
        from_choices(&c);
    else
        tables_attempt("x.json", data, size);
    return 0;
}

/* --- seeds ---------------------------------------------------------------------------------------- */

static size_t put_text(char *to, const char *s)
{
    memcpy(to, s, strlen(s));
    return strlen(s);
}

/* Those that the tests of this room read. */
static void small_seeds(void)
{
    static const char *const names[] = {"wordpiece", "unigram", "characters", "unicode"};

    for (size_t i = 0; i < LEN(names); i++) {
        char path[100];
        FileMap map;

        snprintf(path, sizeof path, SMALL "%s.json", names[i]);
        if (file_map(path, &map, NULL))
            fuzz_bug("%s cannot be read", path);
        fuzz_seed(names[i], map.at, map.bytes);
        file_unmap(&map);
    }
}

/* Every tokenizer with all texts of its cases; and with parts of others. */
static void choices_seeds(void)
{
    for (uint8_t base = 0; base < 176; base++) {
        const uint8_t mixed[] = {CHOICES, base, 1, base % 4, 61, 3, base, 90, 0, 0, 1, 120, 0, 5, 0, 7, 2, 'b', 38};
        char name[40];

        for (uint8_t from = 0; from < 60; from += 12) {
            uint8_t seed[3 + 2 * 12] = {CHOICES, base};

            for (uint8_t i = 0; i < 12; i++)
                seed[3 + 2 * i] = from + i;
            snprintf(name, sizeof name, "choices-%u-%u", base, from);
            fuzz_seed(name, seed, sizeof seed);
        }
        snprintf(name, sizeof name, "choices-mixed-%u", base);
        fuzz_seed(name, mixed, sizeof mixed);
    }
}

void fuzz_seeds(void)
{
    static char deep[60000];
    size_t n = 0;

    memset(deep, '[', sizeof deep);
    fuzz_seed("deep-lists", deep, sizeof deep);
    while (n < 40000)
        n += put_text(deep + n, "{\"type\":\"Sequence\",\"pretokenizers\":[");
    fuzz_seed("deep-sequence", deep, n);
    n = put_text(deep, "{\"pre_tokenizer\":{\"type\":\"Split\",\"behavior\":\"Isolated\",\"pattern\":{\"Regex\":\"");
    memset(deep + n, '(', 20000);
    n += 20000;
    n += put_text(deep + n, "\"}}}");
    fuzz_seed("deep-pattern", deep, n);
    fuzz_seed("empty", "", 0);
    n = 0;
    while (n < 40000)
        n += put_text(deep + n, "{\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[");
    fuzz_seed("deep-normalizer", deep, n);
    small_seeds();
    choices_seeds();
}
