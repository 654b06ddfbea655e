/* test_tables.c - what the compiler refuses, patterns translated to PCRE2, and damaged tables. */
#include "tools.h"

#include "compiler/tokenizer/parts.h"
#include "runtime/base/file.h"
#include "runtime/tokenizer/format.h"

static void refused(const Recipe *r, const char *reason)
{
    const char *path = recipe_file(r);
    Arena *keep = arena_open();
    Diag d = {0};
    void *tables;
    size_t bytes;

    assert_false(tokenizer_compile(path, keep, &tables, &bytes, &d));
    if (!strstr(d.text, reason) || !strstr(d.text, path))
        fail_msg("expected \"%s\" in: %s", reason, d.text);
    arena_close(keep);
    unlink(path);
}

static void test_refused(void **state)
{
    (void)state;
    refused(&(Recipe){.normalizer = "{\"type\":\"ByteLevel\"}"}, "its normalizer is ByteLevel, which is not");
    refused(&(Recipe){.pre = "{\"type\":\"Other\"}"}, "its pre-tokenizer has Other, which is not supported");
    refused(&(Recipe){.pre = "{\"type\":\"Split\",\"pattern\":{\"Regex\":\"a\"},\"behavior\":\"Merged\"}"},
            "its pre-tokenizer's Split has the \"behavior\" \"Merged\", which is not supported");
    refused(&(Recipe){.pre = "{\"type\":\"Split\",\"pattern\":{\"Regex\":\"a\"}}"}, "has the \"behavior\" \"\"");
    refused(&(Recipe){.pre = "{\"type\":\"Punctuation\",\"behavior\":\"removed\"}"},
            "its pre-tokenizer's Punctuation has the \"behavior\" \"removed\"");
    refused(&(Recipe){.pre = "{\"type\":\"FixedLength\",\"length\":0}"}, "FixedLength has no \"length\" of 1 to 65535");
    refused(&(Recipe){.pre = "{\"type\":\"FixedLength\",\"length\":65536}"}, "FixedLength has no \"length\"");
    refused(&(Recipe){.pre = "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\",\"pattern\":{\"Regex\":"
                             "\"(a\"},\"behavior\":\"Isolated\"},{\"type\":\"ByteLevel\",\"use_regex\":false}]}"},
            "its pattern fails at character 2");
    refused(&(Recipe){.pre = "{\"type\":\"Split\",\"pattern\":{\"Regex\":\"\\\\bx\"},\"behavior\":\"Isolated\"}"},
            "at character 1, \"\\bx\", which is not supported");
    refused(&(Recipe){.pre = "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"ByteLevel\"},{\"type\":"
                             "\"ByteLevel\"}]}"},
            "its pre-tokenizer has ByteLevel twice");
    refused(&(Recipe){.pre = "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"ByteLevel\"},{\"type\":"
                             "\"Metaspace\"}]}"},
            "its pre-tokenizer has Metaspace after ByteLevel with \"add_prefix_space\"");
    refused(&(Recipe){.pre = "{\"type\":\"Metaspace\",\"replacement\":\"ab\"}"}, "is no single character: \"ab\"");
    refused(&(Recipe){.post = "{\"type\":\"BertProcessing\"}"}, "its post-processor's \"cls\" is no token");
    refused(&(Recipe){.post = "{\"type\":\"Other\"}"}, "its post-processor is Other");
    refused(&(Recipe){.decoder = "{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"ByteLevel\"},{\"type\":"
                                 "\"WordPiece\"}]}"},
            "its decoder has WordPiece after Fuse or ByteLevel");
    refused(&(Recipe){.decoder = "{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"BPEDecoder\"},{\"type\":\"Fuse\"},"
                                 "{\"type\":\"Strip\",\"start\":1}]}"},
            "its decoder has BPEDecoder beside others");
    refused(&(Recipe){.model = "\"byte_fallback\":true,\"continuing_subword_prefix\":\"#\","},
            "\"byte_fallback\" beside \"continuing_subword_prefix\"");
    refused(&(Recipe){.model = "\"byte_fallback\":true,\"end_of_word_suffix\":\"</w>\","},
            "\"byte_fallback\" beside \"end_of_word_suffix\"");
    refused(&(Recipe){.model = "\"dropout\":0.5,"}, "\"dropout\"");
    refused(&(Recipe){.added = "{\"id\":5,\"content\":\"<x>\"}"}, "the id 5 of another token");
    refused(&(Recipe){.added = "{\"id\":-5,\"content\":\"<x>\"}"}, "has the id -5");
    refused(&(Recipe){.added = "{\"id\":300,\"content\":\"a\"}"}, "has the id 300, in the vocabulary 97");
    refused(&(Recipe){.merges = {"a b"}, .model = "\"type\":\"Unigram\","}, "not JSON");
}

#define NINE(x) x "," x "," x "," x "," x "," x "," x "," x "," x

static void test_refused_models(void **state)
{
    static const struct {
        const char *text, *reason;
    } cases[] = {
        {"[]", "no JSON object"},
        {"{}", "has no \"model\""},
        {"{\"model\":{\"type\":\"Other\",\"vocab\":{\"a\":0}}}",
         "its model is Other; BPE, WordPiece, Unigram and WordLevel are supported"},
        {"{\"model\":{\"type\":\"BPE\"}}", "has no \"vocab\""},
        {"{\"model\":{\"type\":\"Unigram\",\"vocab\":[]}}", "has no \"vocab\""},
        {"{\"model\":{\"type\":\"Unigram\",\"vocab\":[[\"a\"]]}}", "token 0 is not a text and its score"},
        {"{\"model\":{\"type\":\"Unigram\",\"unk_id\":1,\"vocab\":[[\"a\",0]]}}", "\"unk_id\" is no token"},
        {"{\"model\":{\"type\":\"WordPiece\",\"unk_token\":\"u\",\"vocab\":{\"a\":0}}}",
         "\"u\" is not in the vocabulary"},
        {"{\"model\":{\"type\":\"WordPiece\",\"vocab\":{\"a\":0}},\"decoder\":{}}", "its decoder is without a type"},
        {"{\"model\":{\"type\":\"WordPiece\",\"vocab\":{\"a\":0}},\"decoder\":{\"type\":\"CTC\"}}",
         "its decoder is CTC"},
        {"{\"model\":{\"type\":\"WordPiece\",\"max_input_chars_per_word\":-1,\"vocab\":{\"a\":0}}}",
         "no number of characters"},
        {"{\"normalizer\":{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"AA*A\"}}", "is not base64"},
        {"{\"normalizer\":{\"type\":\"Replace\",\"pattern\":{\"String\":\"\"},\"content\":\"\"}}",
         "Replace has no \"pattern\""},
        {"{\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"NFC\"},{\"type\":\"Odd\"}]}}",
         "its normalizer is Odd"},
        {"{\"pre_tokenizer\":{\"type\":\"Metaspace\",\"prepend_scheme\":\"last\"}}", "\"prepend_scheme\" is last"},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":\"b\"}}}", "has no id"},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":99999999}}}", "has the id 99999999"},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":1,\"b\":1}}}", "the id 1 of another token"},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":1},\"merges\":[\"a b\"]}}", "\"b\" is not in the vocabulary"},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":1},\"merges\":[\"ab\"]}}", "merge 0 is not a pair"},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":1},\"merges\":[[\"a\"]]}}", "merge 0 is not a pair"},
        {"{\"model\":{\"type\":\"WordPiece\",\"vocab\":{\"a\":16777216}}}", "has the id 16777216"},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":1},\"merges\":[\"a a a\"]}}", "merge 0 is not a pair"},
        {"{\"normalizer\":{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"AAAAA\"}}", "is not base64"},
        {"{\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"Precompiled\","
         "\"precompiled_charsmap\":\"AAAA\"},{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"AAAA\"}]}}",
         "two maps of characters"},
        {"{\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[" NINE("{\"type\":\"BertPreTokenizer\"}") "]}}",
         "its pre-tokenizer has 18 steps, at most 16 are supported"},
        {"{\"model\":{\"type\":\"WordPiece\",\"vocab\":{\"a\":0}},\"decoder\":{\"type\":\"Replace\",\"pattern\":{"
         "\"Regex\":\"a\"},\"content\":\"\"}}",
         "its decoder's Replace has a pattern that is not supported"},
        {"{\"model\":{\"type\":\"WordPiece\",\"vocab\":{\"a\":0}},\"decoder\":{\"type\":\"Sequence\",\"decoders\":[{"
         "\"type\":\"Fuse\"},{\"type\":\"ByteFallback\"}]}}",
         "its decoder has ByteFallback after Fuse or ByteLevel"},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a/b\":0}},\"decoder\":{\"type\":\"BPEDecoder\",\"suffix\":\"/\"}}",
         "token \"a/b\" has the \"suffix\" of the decoder, \"/\", before its end"},
        {"{\"normalizer\":{\"type\":\"Prepend\"}}", "its normalizer's Prepend has no \"prepend\""},
        {"{\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"String\":\"\"},\"behavior\":\"Isolated\"}}",
         "its pre-tokenizer splits by no pattern"},
        {"{\"pre_tokenizer\":{\"type\":\"CharDelimiterSplit\"}}", "its pre-tokenizer splits by no character"},
        {"{\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Metaspace\"},{\"type\":"
         "\"Metaspace\"}]}}",
         "its pre-tokenizer has Metaspace after Metaspace"},
        {"{\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Metaspace\"},{\"type\":"
         "\"ByteLevel\"}]}}",
         "its pre-tokenizer has ByteLevel after Metaspace"},
        {"{\"model\":{\"type\":\"WordPiece\",\"vocab\":{\"a\":0}},\"added_tokens\":[{\"id\":1}]}",
         "added token 0 has no \"content\" or no \"id\""},
        {"{\"model\":{\"type\":\"WordPiece\",\"vocab\":{\"a\":0}},\"post_processor\":{\"type\":\"TemplateProcessing\","
         "\"single\":[{\"SpecialToken\":{\"id\":\"[X]\"}}]}}",
         "its post-processor adds \"[X]\", which has no ids"},
        {"{\"model\":{\"type\":\"WordPiece\",\"vocab\":{\"a\":0}},\"post_processor\":{\"type\":\"TemplateProcessing\","
         "\"single\":[{\"SpecialToken\":{\"id\":\"[X]\"}}],\"special_tokens\":{\"[X]\":{\"ids\":[7]}}}}",
         "its post-processor adds the id 7"},
        {"{\"model\":{\"type\":\"WordPiece\",\"vocab\":{\"a\":0}},\"post_processor\":{\"type\":\"TemplateProcessing\","
         "\"single\":[{\"Sequence\":{\"id\":\"C\"}}]}}",
         "template has a piece that is not supported"},
        {"{\"model\":{\"type\":\"WordPiece\",\"vocab\":{\"a\":0}},\"post_processor\":{\"type\":\"TemplateProcessing\","
         "\"single\":[]}}",
         "template has no place for the text"},
        {"{\"model\":{\"type\":\"WordPiece\",\"vocab\":{\"a\":0}},\"post_processor\":{\"type\":\"Sequence\","
         "\"processors\":[{\"type\":\"TemplateProcessing\",\"single\":[{\"Sequence\":{\"id\":\"A\"}}]},{\"type\":"
         "\"BertProcessing\"}]}}",
         "it has two post-processors that add tokens"},
    };
    (void)state;

    for (size_t i = 0; i < LEN(cases); i++) {
        char path[] = "/tmp/ftx-tokenizer-XXXXXX";
        const int fd = mkstemp(path);
        Arena *keep = arena_open();
        Diag d = {0};
        void *tables;
        size_t bytes;

        assert_true(fd >= 0);
        assert_int_equal(write(fd, cases[i].text, strlen(cases[i].text)), strlen(cases[i].text));
        close(fd);
        assert_false(tokenizer_compile(path, keep, &tables, &bytes, &d));
        if (!strstr(d.text, cases[i].reason))
            fail_msg("expected \"%s\" in: %s", cases[i].reason, d.text);
        arena_close(keep);
        unlink(path);
    }
}

#define SPACES \
    "\\x{9}-\\x{d}\\x{20}\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{3000}"

static void test_patterns(void **state)
{
    static const struct {
        const char *from, *to;
    } cases[] = {
        {"\\p{L}+|\\P{^N}", "\\p{L}+|\\p{N}"},
        {"\\p{Han}[\\p{Lu}x]", "\\p{sc:Han}[\\p{Lu}x]"},
        {"[^\\r\\n\\d]", "[^\\r\\n\\p{Nd}]"},
        {"\\h\\v", "[0-9A-Fa-f]\\x{b}"},
        {"\\D[\\b]", "\\P{Nd}[\\x{8}]"},
        {"\\u00e9", "\\x{00e9}"},
        {"(?mi:.)(?=a)(?:b)(?<!c)", "(?si:.)(?=a)(?:b)(?<!c)"},
        {"a++b\\.", "a++b\\."},
        {"[[:alpha:]]", NULL},
        {"[a&&b]", NULL},
        {"[\\Sx]", "[\\P{White_Space}x]"},
        {"[\\W]", NULL},
        {"[^a[b[c\\s]]d]", "[^abc" SPACES "d]"},
        {"[a[^b]]", NULL},
        {"[[]a]", NULL},
        {"[a[b]", NULL},
        {"[a-[z]]", NULL},
        {"[[a]-z]", NULL},
        {"[a[-z]]", NULL},
        {"[[a-]z]", NULL},
        {"[a", NULL},
        {"a\\", NULL},
        {"\\q", NULL},
        {"\\p{L", NULL},
        {"a{1,2}+", NULL},
        {"(a{100}){100}", "(a{100}){100}"}, /* as often as is allowed */
        {"(a{100}){1,101}", NULL},
        {"((a{100}b|c){100}?d){2}", NULL},
        {"a{101}{100}", NULL},
        {"\\u00ex", NULL},
        {"a{10001}", NULL},
        {"a{1000}b{1000}(c{1000}|d{1000})", "a{1000}b{1000}(c{1000}|d{1000})"},
        {"([{]a{1000}\\(){10}{", "([{]a{1000}\\(){10}{"},
    };
    Arena *keep = arena_open();
    (void)state;

    for (size_t i = 0; i < LEN(cases); i++) {
        const char *out;
        Diag d = {0};
        const bool ok = pattern_translate(cases[i].from, PATTERN_ONIGURUMA, (Loc){0}, keep, &out, &d);

        assert_int_equal(ok, cases[i].to != NULL);
        if (ok)
            assert_string_equal(out, cases[i].to);
    }
    for (int open = 250; open <= 251; open++) { /* 250 groups may be open */
        char text[600] = "";
        const char *out;
        Diag d = {0};

        memset(text, '(', (size_t)open);
        memset(text + open, ')', (size_t)open);
        assert_int_equal(pattern_translate(text, PATTERN_ONIGURUMA, (Loc){0}, keep, &out, &d), open == 250);
    }
    assert_string_equal(pattern_quote("{a|b~}", keep), "\\{a\\|b\\~\\}");
    assert_string_equal(pattern_quote("a.b\xc3\xa9 ", keep), "a\\.b\xc3\xa9\\ ");
    arena_close(keep);
}

static Fixture begin_text(const char *text)
{
    return begin_json(text, 100);
}

#define MODEL(model, more) "{\"model\":{" model "}" more "}"

/* What switches.json does not have: each rule on a vocabulary of a few tokens. */
static void test_rules(void **state)
{
    static const int32_t bytes[] = {0, 1, 2}, spaces[] = {0, 0};
    Fixture f;
    char *text;
    (void)state;

    /* of two equal merges the later one counts */
    f = begin_text(MODEL("\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\"c\":2,\"ab\":3,\"bc\":4},"
                         "\"merges\":[\"a b\",\"b c\",\"a b\"]",
                         ""));
    IDS(&f, "abc", 0, 4);
    end(&f);

    /* eight merges, and pairs that are none of them */
    f = begin_text(MODEL("\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\"aa\":2,\"ab\":3,\"ba\":4,\"bb\":5,\"aab\":6,"
                         "\"bba\":7,\"aba\":8,\"bab\":9,\"c\":10},\"merges\":[\"a a\",\"a b\",\"b a\",\"b b\",\"aa b\","
                         "\"bb a\",\"ab a\",\"ba b\"]",
                         ""));
    IDS(&f, "cacbc", 10, 0, 10, 1, 10);
    end(&f);

    /* unknown characters do not fuse where nothing is said */
    f = begin_text(MODEL("\"type\":\"BPE\",\"unk_token\":\"u\",\"vocab\":{\"a\":0,\"u\":1},\"merges\":[]", ""));
    IDS(&f, "xya", 1, 1, 0);
    end(&f);

    /* an unknown character costs 10 more than the worst piece, of which all are good: three are better than "abc";
     * an unknown text that is a token all the same becomes that token */
    f = begin_text(MODEL("\"type\":\"Unigram\",\"unk_id\":0,\"vocab\":[[\"u\",20],[\"abc\",20]]", ""));
    IDS(&f, "abcx", 0);
    IDS(&f, "abc", 1);
    end(&f);

    /* only <0x41> with two digits and its bracket is a byte */
    f = begin_text(
        MODEL("\"type\":\"BPE\",\"vocab\":{\"<0x41x\":0,\"<0x+1>\":1,\"<0x41>\":2},\"merges\":[]",
              ",\"decoder\":{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"ByteFallback\"},{\"type\":\"Fuse\"}]}"));
    text = decode(&f, bytes, 3, false);
    assert_string_equal(text, "<0x41x<0x+1>A");
    free(text);
    end(&f);

    /* as many characters are stripped from each token as it says */
    f = begin_text(MODEL("\"type\":\"BPE\",\"vocab\":{\"   a\":0},\"merges\":[]",
                         ",\"decoder\":{\"type\":\"Strip\",\"content\":\" \",\"start\":2,\"stop\":0}"));
    text = decode(&f, spaces, 2, false);
    assert_string_equal(text, " a a");
    free(text);
    end(&f);

    f = begin_text(MODEL("\"type\":\"BPE\",\"vocab\":{\"a   \":0},\"merges\":[]",
                         ",\"decoder\":{\"type\":\"Strip\",\"content\":\" \",\"start\":0,\"stop\":2}"));
    text = decode(&f, spaces, 2, false);
    assert_string_equal(text, "a a ");
    free(text);
    end(&f);

    /* the first token has a form of the same length, but another one */
    f = begin_text(
        MODEL("\"type\":\"BPE\",\"vocab\":{\"\xe2\x96\x81"
              "a\":0},\"merges\":[]",
              ",\"decoder\":{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Metaspace\"},{\"type\":\"Replace\","
              "\"pattern\":{\"String\":\" a\"},\"content\":\"b\"}]}"));
    text = decode(&f, spaces, 2, false);
    assert_string_equal(text, "ab");
    free(text);
    end(&f);

    /* what a pre-tokenizer does where nothing is said: U+2581 as the mark, digits together, a space before the text */
    f = begin_text(MODEL("\"type\":\"BPE\",\"vocab\":{\"\xe2\x96\x81\":0,\"a\":1,\"\xe2\x96\x81"
                         "a\":2},"
                         "\"merges\":[\"\xe2\x96\x81 a\"]",
                         ",\"pre_tokenizer\":{\"type\":\"Metaspace\"}"));
    IDS(&f, "a", 2);
    end(&f);
    f = begin_text(MODEL("\"type\":\"BPE\",\"vocab\":{\"1\":0,\"2\":1,\"12\":2},\"merges\":[\"1 2\"]",
                         ",\"pre_tokenizer\":{\"type\":\"Digits\"}"));
    IDS(&f, "12", 2);
    end(&f);
    f = begin_recipe(&(Recipe){.pre = "{\"type\":\"ByteLevel\"}"}, 100);
    IDS(&f, "a", 32, 97);
    end(&f);

    /* of two equal pieces the last one counts */
    f = begin_text(MODEL("\"type\":\"Unigram\",\"unk_id\":0,\"vocab\":[[\"u\",0],[\"a\",-1],[\"a\",-2]]", ""));
    IDS(&f, "a", 2);
    end(&f);

    /* a decoder that replaces nothing */
    f = begin_text(MODEL("\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[]",
                         ",\"decoder\":{\"type\":\"Metaspace\",\"replacement\":\"\"}"));
    text = decode(&f, spaces, 2, false);
    assert_string_equal(text, "aa");
    free(text);
    end(&f);

    /* a whole word with characters that are no bytes is a token no text has */
    f = begin_text(MODEL("\"type\":\"BPE\",\"ignore_merges\":true,\"vocab\":{\"a\":0,\"b\":1,\"\xe6\x97\xa5\":2,"
                         "\"ab\":3},\"merges\":[]",
                         ",\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false},"
                         "\"decoder\":{\"type\":\"ByteLevel\"}"));
    IDS(&f, "ab", 3);
    IDS(&f, "ba", 1, 0);
    end(&f);

    /* the capital whose small letter is two characters; marks in the order of their classes */
    f = begin_text(MODEL("\"type\":\"BPE\",\"vocab\":{\"i\":0,\"\xcc\x87\":1},\"merges\":[]",
                         ",\"normalizer\":{\"type\":\"Lowercase\"}"));
    IDS(&f, "\xc4\xb0", 0, 1);
    end(&f);
    f = begin_text(MODEL("\"type\":\"BPE\",\"vocab\":{\"a\":0,\"\xcc\x81\":1,\"\xcc\xa3\":2},\"merges\":[]",
                         ",\"normalizer\":{\"type\":\"NFD\"}"));
    IDS(&f, "a\xcc\x81\xcc\xa3", 0, 2, 1);
    end(&f);

    /* both ends are stripped where nothing is said; ids may be above 65535 */
    f = begin_text(MODEL("\"type\":\"BPE\",\"vocab\":{\"a\":70000,\" \":1},\"merges\":[]",
                         ",\"normalizer\":{\"type\":\"Strip\"}"));
    IDS(&f, " a ", 70000);
    end(&f);
}

/* SentencePiece's file: a type that there is not, unknown characters beside good pieces, the space of the first token. */
static void test_sentencepiece(void **state)
{
    static SpmFile odd, good, squeezed;
    Arena *keep = arena_open();
    Diag d = {0};
    Fixture f;
    void *tables;
    size_t bytes;
    char *text;
    (void)state;

    spm_piece(&odd, "<unk>", 0, 2);
    spm_piece(&odd, "a", 0, 7);
    assert_false(tokenizer_compile_bytes("small.model", odd.at, odd.n, keep, &tables, &bytes, &d));
    assert_non_null(strstr(d.text, "piece 1 has no text or an unknown type"));
    arena_close(keep);

    spm_piece(&good, "<unk>", 0, 2);
    spm_piece(&good, "abc", 20, 1);
    spm_trainer(&good, 1, false);
    spm_normaliser(&good, false, false);
    f = begin_spm(&good, 100);
    IDS(&f, "abc", 0); /* three unknown characters are 30, the piece is 20 */
    end(&f);

    spm_piece(&squeezed, "<unk>", 0, 2);
    spm_piece(&squeezed,
              "\xe2\x96\x81"
              "a",
              0, 1);
    spm_trainer(&squeezed, 1, false);
    spm_normaliser(&squeezed, false, true);
    f = begin_spm(&squeezed, 100);
    text = decode(&f, (int32_t[]){1, 1}, 2, false);
    assert_string_equal(text, "a a");
    free(text);
    end(&f);
}

/* As many steps of the normaliser as there is room for, and 300 added tokens, of which two have one content. */
static void test_many(void **state)
{
    for (size_t n = TOK_MAX_NORMS; n <= TOK_MAX_NORMS + 1; n++) {
        char text[4000] = "{\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[";
        Arena *keep = arena_open();
        Diag d = {0};
        void *tables;
        size_t bytes;

        for (size_t i = 0; i < n; i++)
            strcat(text, i ? ",{\"type\":\"NFC\"}" : "{\"type\":\"NFC\"}");
        strcat(text, "]},\"model\":{\"type\":\"WordPiece\",\"vocab\":{\"a\":0}}}");
        assert_int_equal(tokenizer_compile_bytes("many.json", text, strlen(text), keep, &tables, &bytes, &d),
                         n == TOK_MAX_NORMS);
        arena_close(keep);
    }
    {
        char *text = malloc(40000);
        Fixture f;

        assert_non_null(text);
        strcpy(text, "{\"model\":{\"type\":\"WordPiece\",\"vocab\":{\"a\":0}},\"added_tokens\":[");
        for (int i = 0; i < 300; i++) /* the second and the 257th are <q> */
            sprintf(text + strlen(text), "%s{\"id\":%d,\"content\":\"<%s%d>\"}", i ? "," : "", 1000 + i,
                    i == 1 || i == 256 ? "q" : "t", i == 1 || i == 256 ? 0 : i);
        strcat(text, "]}");
        f = begin_text(text);
        IDS(&f, "<q0>", 1001);
        IDS(&f, "<t299>", 1299);
        end(&f);
        free(text);
    }
    (void)state;
}

/* Bytes are merged if every byte has a token, byte 255 too, or no unknown token is named; else the characters that
 * stand for them are. */
static uint32_t model_of(const void *tables)
{
    const TokPart *p = (const TokPart *)((const TokHeader *)tables + 1);

    while (p->kind != TOK_PART_FACTS)
        p++;
    return ((const TokFacts *)((const char *)tables + p->offset))->model;
}

static void test_all_bytes(void **state)
{
    static const char last[] = ",\"\xc3\xbf\":255";
    const Recipe r = {.model = "\"unk_token\":\"a\","};
    const char *path = recipe_file(&r);
    Arena *keep = arena_open();
    Diag d = {0};
    FileMap map;
    char *text, *at;
    void *tables;
    size_t bytes;
    (void)state;

    assert_true(tokenizer_compile(path, keep, &tables, &bytes, &d));
    assert_int_equal(file_map(path, &map, NULL), FTX_OK);
    text = arena_strndup(keep, map.at, map.bytes);
    file_unmap(&map);
    unlink(path);
    at = strstr(text, last);
    assert_non_null(at);
    assert_int_equal(model_of(tables), TOK_MODEL_BPE_BYTES);
    memmove(at, at + strlen(last), strlen(at + strlen(last)) + 1);
    assert_true(tokenizer_compile_bytes("bytes.json", text, strlen(text), keep, &tables, &bytes, &d));
    assert_int_equal(model_of(tables), TOK_MODEL_BPE_CHARACTERS);
    arena_close(keep);
}

/* Each byte of small tables is flipped: the tables are refused, or using them does no harm. */
static void damage(const char *path)
{
    const bool made = strncmp(path, "/tmp/", 5) == 0;
    static const unsigned char flips[] = {1, 0x80, 0xff};
    static const char text[] = "abc <x>\xff<xy> abc \xc3\xa9\xe3\x8e\xa1 A\xcc\x81";
    Arena *keep = arena_open();
    unsigned char *tables, *copy;
    size_t bytes, accepted = 0, refusals = 0;
    Diag d = {0};

    if (!tokenizer_compile(path, keep, (void **)&tables, &bytes, &d))
        fail_msg("%s", d.text);
    if (made)
        unlink(path);
    copy = malloc(bytes);
    assert_non_null(copy);
    for (size_t i = 0; i < bytes + bytes / 7; i++)
        for (size_t k = 0; k < LEN(flips); k++) {
            const size_t n = i < bytes ? bytes : (i - bytes) * 7; /* then cut at every seventh length */
            const TokenizerPair pair = {.text = text,
                                        .bytes = sizeof text - 1,
                                        .other = "a b",
                                        .other_bytes = 3,
                                        .special = true,
                                        .most = 9,
                                        .cut = TOKENIZER_CUT_SECOND};
            TokenizerScratch *s;
            Tokenizer *t;
            int32_t ids[64];
            char back[400];
            size_t count;

            memcpy(copy, tables, bytes);
            if (i < bytes)
                copy[i] ^= flips[k];
            if (tokenizer_open(copy, n, &t, NULL)) {
                refusals++;
                continue;
            }
            accepted++;
            assert_int_equal(tokenizer_scratch_open(t, 64, &s, NULL), FTX_OK);
            if (!tokenizer_encode(t, s, text, sizeof text - 1, true, ids, 64, &count, NULL))
                tokenizer_decode(t, ids, count < 64 ? count : 64, true, back, sizeof back, &count, NULL);
            tokenizer_encode_pair(t, s, &pair, ids, NULL, 64, &count, NULL);
            tokenizer_scratch_close(s);
            tokenizer_close(t);
        }
    assert_true(accepted > 500 && refusals > 500);
    free(copy);
    arena_close(keep);
}

static void test_damaged(void **state)
{
    const Recipe r = {.merges = {"a b", "ab c"},
                      .model = "\"ignore_merges\":true,",
                      .added = "{\"id\":300,\"content\":\"<x>\",\"lstrip\":true},{\"id\":301,\"content\":\"<xy>\"}"};
    (void)state;

    damage(recipe_file(&r));
    damage(SMALL "wordpiece.json");
    damage(SMALL "unigram.json");
    damage(SMALL "characters.json");
    damage(SMALL "unicode.json");
}

static void test_same_tables(void **state)
{
    Arena *keep = arena_open();
    void *a, *b;
    size_t m, n;
    Diag d = {0};
    (void)state;

    assert_true(tokenizer_compile("specs/fable/tokenizer.json", keep, &a, &m, &d));
    assert_true(tokenizer_compile("specs/fable/tokenizer.json", keep, &b, &n, &d));
    assert_int_equal(m, n);
    assert_memory_equal(a, b, n);
    arena_close(keep);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_refused),       cmocka_unit_test(test_refused_models), cmocka_unit_test(test_patterns),
        cmocka_unit_test(test_damaged),       cmocka_unit_test(test_same_tables),    cmocka_unit_test(test_rules),
        cmocka_unit_test(test_sentencepiece), cmocka_unit_test(test_many),           cmocka_unit_test(test_all_bytes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
