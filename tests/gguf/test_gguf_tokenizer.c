/* test_gguf_tokenizer.c - tokenizers in the keys of a GGUF file give the ids and texts of the tokenizer.json, or of the
 * SentencePiece file, that they were made from. */
#include "bytes.h"
#include "tests/tokenizer/tools.h"

#define SPLIT(pattern) \
    "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\",\"pattern\":{\"Regex\":\"" pattern \
    "\"},\"behavior\":" \
    "\"Isolated\",\"invert\":false},{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"use_regex\":false}]}"
#define GPT2 "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"use_regex\":true}"
#define DIGITS "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Digits\",\"individual_digits\":true}," GPT2 "]}"
#define LLAMA3 \
    SPLIT("(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?\\\\p{L}+|\\\\p{N}{1,3}| " \
          "?[^\\\\s\\\\p{L}\\\\p{N}]+" \
          "[\\\\r\\\\n]*|\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|\\\\s+")
#define QWEN2 \
    SPLIT("(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?\\\\p{L}+|\\\\p{N}| ?[^\\\\s\\\\p{L}\\\\p{N}]+" \
          "[\\\\r\\\\n]*|\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|\\\\s+")
#define TEKKEN \
    SPLIT( \
        "[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?[\\\\p{Lu}\\\\p{Lt}\\\\p{Lm}\\\\p{Lo}\\\\p{M}]*[\\\\p{Ll}\\\\p{Lm}\\\\p{Lo}" \
        "\\\\p{M}]" \
        "+|[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?[\\\\p{Lu}\\\\p{Lt}\\\\p{Lm}\\\\p{Lo}\\\\p{M}]+[\\\\p{Ll}\\\\p{Lm}\\\\p{Lo}" \
        "\\\\p{M}]*|\\\\p{N}| ?[^\\\\s\\\\p{L}\\\\p{N}]+[\\\\r\\\\n/]*|\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|\\\\s+")
#define GPT4O \
    SPLIT( \
        "[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?[\\\\p{Lu}\\\\p{Lt}\\\\p{Lm}\\\\p{Lo}\\\\p{M}]*[\\\\p{Ll}\\\\p{Lm}\\\\p{Lo}" \
        "\\\\p{M}]" \
        "+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?[\\\\p{Lu}\\\\p{Lt}\\\\p{Lm}\\\\p{Lo}\\\\p{M}]+" \
        "[\\\\p{Ll}\\\\p{Lm}\\\\p{Lo}\\\\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\\\\p{N}{1,3}| " \
        "?[^\\\\s\\\\p{L}\\\\p{N}]+" \
        "[\\\\r\\\\n/]*|\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|\\\\s+")

static const char *const texts[] = {
    "Once upon a time",
    "",
    " ",
    "The king's 12345 men'LL say: \"I'd go/\r\n\n there!\"   \n  now  ",
    "\t\tint main(void) { return 0x7fff; } /* \xe2\x86\x92 */\n\n\n",
    "\xc3\xbc"
    "ber e\xcc\x81t\xc3\xa9 \xe4\xb8\xad\xe6\x96\x87 \xd8\xb3\xd9\x84\xd8\xa7\xd9\x85 \xc2\xb2\xc2\xbd \xe2\x85\xa7 "
    "\xf0\x9f\x98\x80\xf0\x9f\x8f\xbd",
    "a<|end_of_text|>b <|begin_of_text|><|end_of_text|>\xff\xc3",
    "HTTPServer iPhone McDonald O'Neill 3rd 1,000.50",
    "k\xc5\x8d\xcc\x81 \xef\xac\x81 \xe1\xba\x9b\xcc\xa3 Caf\x65\xcc\x81",
};

static void same_ids(Fixture *a, Fixture *b, const char *name)
{
    for (size_t i = 0; i < LEN(texts); i++)
        for (int special = 0; special < 2; special++) {
            char out[2][2000];
            size_t n[2], bytes[2];
            FtxError err;

            assert_int_equal(
                tokenizer_encode(a->t, a->s, texts[i], strlen(texts[i]), special, a->ids, a->max, &n[0], &err), 0);
            assert_int_equal(
                tokenizer_encode(b->t, b->s, texts[i], strlen(texts[i]), special, b->ids, b->max, &n[1], &err), 0);
            if (n[0] != n[1] || memcmp(a->ids, b->ids, n[0] * sizeof *a->ids) != 0)
                fail_msg("%s: other ids of \"%s\"", name, texts[i]);
            for (int keep = 0; keep < 2; keep++) {
                assert_int_equal(tokenizer_decode(a->t, a->ids, n[0], keep, out[0], sizeof out[0], &bytes[0], &err), 0);
                assert_int_equal(tokenizer_decode(b->t, b->ids, n[1], keep, out[1], sizeof out[1], &bytes[1], &err), 0);
                assert_int_equal(bytes[0], bytes[1]);
                assert_memory_equal(out[0], out[1], bytes[0]);
            }
        }
}

static Fixture begin_gguf(const GgufBytes *b)
{
    Fixture f = {.keep = arena_open()};
    Diag d = {0};

    if (!tokenizer_compile_bytes("x.gguf", b->at, b->n, f.keep, &f.tables, &f.bytes, &d))
        fail_msg("%s", d.text);
    return begin_tables(f, 1000);
}

/* --- gpt2 ------------------------------------------------------------------------------------------ */

/* The keys of a tokenizer.json of BPE over bytes. */
static void put_bpe(GgufBytes *b, const json_t *root, const char *pre)
{
    const json_t *model = json_object_get(root, "model"), *list = json_object_get(model, "merges");
    json_t *vocab = json_object_get(model, "vocab"), *v;
    const size_t n = json_object_size(vocab);
    const char **at = calloc(n, sizeof *at), *text;
    int32_t *types = calloc(n, sizeof *types);
    size_t i;

    assert_true(at && types);
    json_object_foreach(vocab, text, v) at[json_integer_value(v)] = text;
    for (i = 0; i < n; i++)
        types[i] = 1;
    json_array_foreach(json_object_get(root, "added_tokens"), i, v)
        types[json_integer_value(json_object_get(v, "id"))] = json_is_true(json_object_get(v, "special")) ? 3 : 4;
    gguf_begin(b);
    gguf_key_text(b, "tokenizer.ggml.model", "gpt2");
    gguf_key_text(b, "tokenizer.ggml.pre", pre);
    gguf_key_array(b, "tokenizer.ggml.tokens", 8, n);
    for (i = 0; i < n; i++)
        gguf_put_text(b, at[i]);
    gguf_key_array(b, "tokenizer.ggml.token_type", 5, n);
    gguf_put(b, types, n * sizeof *types);
    gguf_key_array(b, "tokenizer.ggml.merges", 8, json_array_size(list));
    json_array_foreach(list, i, v)
    {
        char pair[200];

        snprintf(pair, sizeof pair, "%s %s", json_string_value(json_array_get(v, 0)),
                 json_string_value(json_array_get(v, 1)));
        gguf_put_text(b, json_is_string(v) ? json_string_value(v) : pair);
    }
    free(at);
    free(types);
}

static void test_kinds(void **state)
{
    static const struct {
        const char *pre, *pre_tokenizer;
        bool nfc, whole, bos;
    } cases[] = {
        {"gpt-2", GPT2, false, false, false},      {"gpt2", GPT2, false, false, false},
        {"phi-2", GPT2, false, false, false},      {"starcoder", DIGITS, false, false, false},
        {"refact", DIGITS, false, false, false},   {"smollm", DIGITS, false, false, false},
        {"command-r", DIGITS, true, false, false}, {"llama3", LLAMA3, false, true, true},
        {"llama-v3", LLAMA3, false, true, true},   {"llama-bpe", LLAMA3, false, true, true},
        {"dbrx", LLAMA3, false, false, false},     {"smaug-bpe", LLAMA3, false, false, false},
        {"qwen2", QWEN2, true, false, false},      {"deepseek-r1-qwen", QWEN2, true, false, false},
        {"tekken", TEKKEN, false, true, true},     {"gpt-4o", GPT4O, false, false, false},
    };
    (void)state;

    for (size_t i = 0; i < LEN(cases); i++) {
        json_t *root = json_load_file("specs/fable/tokenizer.json", 0, NULL);
        json_t *model = json_object_get(root, "model"),
               *first = json_array_get(json_object_get(root, "added_tokens"), 1);
        GgufBytes b = {0};
        Fixture want, found;
        char *text;

        assert_non_null(root);
        json_object_set_new(json_object_get(model, "vocab"), "12",
                            json_integer(4096)); /* no token of fable has two digits */
        json_array_append_new(json_object_get(model, "merges"), json_pack("[ss]", "1", "2"));
        json_object_set_new(root, "pre_tokenizer", json_loads(cases[i].pre_tokenizer, 0, NULL));
        assert_non_null(json_object_get(root, "pre_tokenizer"));
        json_object_set_new(root, "normalizer", cases[i].nfc ? json_pack("{ss}", "type", "NFC") : json_null());
        json_object_set_new(model, "ignore_merges", json_boolean(cases[i].whole));
        json_object_set_new(first, "special", json_boolean(i % 2)); /* by turns a control token and one of the user */
        if (!cases[i].bos)
            json_object_set_new(root, "post_processor", json_null());
        put_bpe(&b, root, cases[i].pre);
        gguf_key_u32(&b, "tokenizer.ggml.bos_token_id", 0);
        text = json_dumps(root, 0);
        want = begin_json(text, 1000);
        found = begin_gguf(&b);
        same_ids(&want, &found, cases[i].pre);
        end(&want);
        end(&found);
        free(text);
        free(b.at);
        json_decref(root);
    }
}

/* --- llama ----------------------------------------------------------------------------------------- */

typedef struct Piece {
    const char *text;
    float score;
    int type;
} Piece;

static const Piece pieces[] = {
    {"<unk>", 0, 2},
    {"<s>", 0, 3},
    {"</s>", 0, 3},
    {"<0x0A>", 0, 6},
    {"<0xC3>", 0, 6},
    {"<0xBC>", 0, 6},
    {"\xe2\x96\x81", -1, 1},
    {"n", -2, 1},
    {"e", -3, 1},
    {"c", -4, 1},
    {"O", -5, 1},
    {"t", -6, 1},
    {"ce", -7, 1},
    {"On", -8, 1},
    {"nce", -8.5f, 1},
    {"Once", -9, 1},
    {"\xe2\x96\x81"
     "t",
     -9.5f, 1},
    {"m", -9.75f, 1},
    {"mn", -10, 4},
    {"<pad>", 0, 5},
    {"<|m|>", -11, 4},
};

static void put_pieces(GgufBytes *b)
{
    gguf_begin(b);
    gguf_key_text(b, "tokenizer.ggml.model", "llama");
    gguf_key_array(b, "tokenizer.ggml.tokens", 8, LEN(pieces));
    for (size_t i = 0; i < LEN(pieces); i++)
        gguf_put_text(b, pieces[i].text);
    gguf_key_array(b, "tokenizer.ggml.scores", 6, LEN(pieces));
    for (size_t i = 0; i < LEN(pieces); i++)
        gguf_put(b, &pieces[i].score, 4);
    gguf_key_array(b, "tokenizer.ggml.token_type", 5, LEN(pieces));
    for (size_t i = 0; i < LEN(pieces); i++)
        gguf_put_u32(b, (uint32_t)pieces[i].type);
    gguf_key_u32(b, "tokenizer.ggml.bos_token_id", 1);
    gguf_key_u32(b, "tokenizer.ggml.eos_token_id", 2);
}

static void framed_ids(const Fixture *f, const char *text, const int32_t *want, size_t n_want)
{
    size_t n;
    FtxError err;

    assert_int_equal(tokenizer_encode(f->t, f->s, text, strlen(text), true, f->ids, f->max, &n, &err), 0);
    assert_int_equal(n, n_want);
    assert_memory_equal(f->ids, want, n * sizeof *want);
}

static void test_pieces(void **state)
{
    (void)state;
    for (int dummy = 0; dummy < 2; dummy++)
        for (int squeeze = 0; squeeze < 2; squeeze++) {
            SpmFile file = {.n = 0};
            GgufBytes b = {0};
            Fixture want, found;

            for (size_t i = 0; i < LEN(pieces); i++)
                spm_piece(&file, pieces[i].text, pieces[i].score, pieces[i].type);
            spm_trainer(&file, 2, true);
            spm_normaliser(&file, dummy, squeeze);
            put_pieces(&b);
            gguf_key_flag(&b, "tokenizer.ggml.add_bos_token", 0);
            gguf_key_flag(&b, "tokenizer.ggml.add_space_prefix", (unsigned char)dummy);
            gguf_key_flag(&b, "tokenizer.ggml.remove_extra_whitespaces", (unsigned char)squeeze);
            want = begin_spm(&file, 1000);
            found = begin_gguf(&b);
            same_ids(&want, &found, "llama");
            end(&want);
            end(&found);
            free(b.at);
        }
}

/* Without flags: a space before the text, <s> before it, </s> not; control tokens are found, with a space behind. In the
 * output control tokens are left out, a token of the user is not. */
static void test_frame(void **state)
{
    static const int32_t users[] = {2, 17, 20, 2};
    static const int32_t plain[] = {1, 6, 15}, both[] = {1, 6, 15, 2}, marked[] = {1, 6, 15, 2, 16, 18};
    GgufBytes b = {0};
    Fixture f;
    (void)state;

    put_pieces(&b);
    f = begin_gguf(&b);
    framed_ids(&f, "Once", plain, LEN(plain));
    framed_ids(&f, "Once</s>tmn", marked, LEN(marked));

    char *text = decode(&f, users, LEN(users), true);

    assert_string_equal(text, "m<|m|>");
    free(text);
    end(&f);
    gguf_key_flag(&b, "tokenizer.ggml.add_eos_token", 1);
    f = begin_gguf(&b);
    framed_ids(&f, "Once", both, LEN(both));
    end(&f);
    free(b.at);
}

/* --- what is refused --------------------------------------------------------------------------------- */

static void expect_refused(GgufBytes *b, const char *words)
{
    Arena *keep = arena_open();
    Diag d = {0};
    void *tables;
    size_t bytes;

    assert_false(tokenizer_compile_bytes("x.gguf", b->at, b->n, keep, &tables, &bytes, &d));
    if (!strstr(d.text, words) || !strstr(d.text, "x.gguf"))
        fail_msg("\"%s\" lacks \"%s\"", d.text, words);
    arena_close(keep);
    gguf_begin(b);
}

static void put_model(GgufBytes *b, const char *model, uint64_t tokens)
{
    gguf_begin(b);
    gguf_key_text(b, "tokenizer.ggml.model", model);
    gguf_key_array(b, "tokenizer.ggml.tokens", 8, tokens);
    for (uint64_t i = 0; i < tokens; i++)
        gguf_put_text(b, i ? "b" : "a");
}

static void test_refused(void **state)
{
    GgufBytes b = {0};
    (void)state;

    gguf_begin(&b);
    expect_refused(&b, "\"tokenizer.ggml.model\" is missing; llama and gpt2 are read");
    gguf_key_text(&b, "tokenizer.ggml.model", "bert");
    expect_refused(&b, "\"tokenizer.ggml.model\" is bert; llama and gpt2 are read");
    gguf_key_u32(&b, "tokenizer.ggml.model", 1);
    expect_refused(&b, "key \"tokenizer.ggml.model\" must be a text");
    put_model(&b, "llama", 0);
    expect_refused(&b, "\"tokenizer.ggml.tokens\" is missing, or has no tokens");
    put_model(&b, "llama", 2);
    expect_refused(&b, "\"tokenizer.ggml.scores\" is missing");
    put_model(&b, "llama", 2);
    gguf_key_array(&b, "tokenizer.ggml.scores", 6, 1);
    gguf_put_u32(&b, 0);
    expect_refused(&b, "\"tokenizer.ggml.scores\" has not one number for each token");
    put_model(&b, "llama", 2);
    gguf_key_array(&b, "tokenizer.ggml.token_type", 5, 1);
    gguf_put_u32(&b, 1);
    expect_refused(&b, "\"tokenizer.ggml.token_type\" has not one whole number");
    put_model(&b, "llama", 1);
    gguf_key_array(&b, "tokenizer.ggml.token_type", 6, 1);
    gguf_put_u32(&b, 1);
    expect_refused(&b, "\"tokenizer.ggml.token_type\" has not one whole number");
    put_model(&b, "llama", 1);
    gguf_key_array(&b, "tokenizer.ggml.scores", 6, 1);
    gguf_put_u32(&b, 0x7fc00000); /* NaN */
    expect_refused(&b, "token 0 has no text, no score or a type that is not 1 to 6");
    put_model(&b, "llama", 1);
    gguf_key_array(&b, "tokenizer.ggml.scores", 6, 1);
    gguf_put_u32(&b, 0);
    gguf_key_array(&b, "tokenizer.ggml.token_type", 5, 1);
    gguf_put_u32(&b, 7);
    expect_refused(&b, "token 0 has no text, no score or a type that is not 1 to 6");
    gguf_key_text(&b, "tokenizer.ggml.model", "llama");
    gguf_key_u32(&b, "tokenizer.ggml.tokens", 2);
    expect_refused(&b, "key \"tokenizer.ggml.tokens\" must be an array of texts");
    put_pieces(&b);
    gguf_key_text(&b, "tokenizer.ggml.add_eos_token", "true");
    expect_refused(&b, "key \"tokenizer.ggml.add_eos_token\" must be true or false");
    put_pieces(&b);
    gguf_key_text(&b, "tokenizer.ggml.add_space_prefix", "true");
    expect_refused(&b, "key \"tokenizer.ggml.add_space_prefix\" must be true or false");
    put_model(&b, "llama", 1);
    gguf_key_array(&b, "tokenizer.ggml.scores", 6, 1);
    gguf_put_u32(&b, 0);
    gguf_key_u32(&b, "tokenizer.ggml.bos_token_id", 1);
    expect_refused(&b, "\"tokenizer.ggml.bos_token_id\" is no token, but one is put at each text");
    put_model(&b, "gpt2", 2);
    expect_refused(&b,
                   "\"tokenizer.ggml.pre\" is missing, it must name the pattern that splits texts: gpt-2, gpt2, phi-2");
    put_model(&b, "gpt2", 2);
    gguf_key_text(&b, "tokenizer.ggml.pre", "default");
    expect_refused(&b, "\"tokenizer.ggml.pre\" is \"default\", it must name the pattern");
    put_model(&b, "gpt2", 2);
    gguf_key_text(&b, "tokenizer.ggml.pre", "gpt-2");
    expect_refused(&b, "\"tokenizer.ggml.merges\" is missing");
    put_model(&b, "gpt2", 2);
    gguf_key_text(&b, "tokenizer.ggml.pre", "gpt-2");
    gguf_key_array(&b, "tokenizer.ggml.merges", 8, 1);
    gguf_put_text(&b, "a b");
    expect_refused(&b, "merge 0: \"ab\" is not in the vocabulary");
    free(b.at);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_kinds), cmocka_unit_test(test_pieces),
                                       cmocka_unit_test(test_frame), cmocka_unit_test(test_refused)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
