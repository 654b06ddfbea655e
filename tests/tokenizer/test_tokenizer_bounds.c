/* test_tokenizer_bounds.c - texts that grow over their room, patterns that would match for hours, tables without a part,
 * and SentencePiece's files with odd settings or beside a vocab.json: each message, and what ids and texts become. */
#include "tools.h"

#include <sys/stat.h>

#include "runtime/base/file.h"
#include "runtime/tokenizer/format.h"
#include "tests/temp.h"

#define BPE_OF_A "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[]}" /* more, and a } */

/* Texts that grow over their room: by a normaliser, by marks for spaces, by an added token that is normalised. */
static void test_growth(void **state)
{
    static const struct {
        const char *before, *after; /* the long text */
        char letter;
        size_t bytes;
        const char *text, *message;
    } cases[] = {
        {BPE_OF_A ",\"normalizer\":{\"type\":\"Replace\",\"pattern\":{\"String\":\"a\"},\"content\":\"", "\"}}", 'y',
         20000, "aaaa", "a text of 4 bytes is normalised to over 65936"},
        {BPE_OF_A ",\"pre_tokenizer\":{\"type\":\"Metaspace\"},\"normalizer\":{\"type\":\"Replace\",\"pattern\":{"
                  "\"String\":\"a\"},\"content\":\"",
         "\"}}", ' ', 30000, "a", "a text grows over 65936 bytes with its spaces made visible"},
        {BPE_OF_A ",\"added_tokens\":[{\"id\":1,\"content\":\"xx\",\"normalized\":true}],"
                  "\"normalizer\":{\"type\":\"Replace\",\"pattern\":{\"String\":\"x\"},\"content\":\"",
         "\"}}", 'y', 40000, NULL, "small.json: tokenizer: a text of 2 bytes is normalised to over 65544"},
    };
    static char file[80000];
    (void)state;

    for (size_t i = 0; i < LEN(cases); i++) {
        const size_t before = strlen(cases[i].before);
        Arena *keep = arena_open();
        FtxError err = {0};
        Diag d = {0};
        void *tables;
        size_t bytes;

        strcpy(file, cases[i].before);
        memset(file + before, cases[i].letter, cases[i].bytes);
        strcpy(file + before + cases[i].bytes, cases[i].after);
        if (cases[i].text) {
            Fixture f = begin_json(file, 100);

            assert_int_equal(
                tokenizer_encode(f.t, f.s, cases[i].text, strlen(cases[i].text), false, f.ids, f.max, &f.n, &err),
                FTX_EFULL);
            end(&f);
        } else {
            assert_false(tokenizer_compile_bytes("small.json", file, strlen(file), keep, &tables, &bytes, &d));
        }
        if (!strstr(cases[i].text ? err.text : d.text, cases[i].message))
            fail_msg("expected \"%s\" in: %s", cases[i].message, cases[i].text ? err.text : d.text);
        arena_close(keep);
    }
}

/* Patterns that would match for hours are stopped: of a pre-tokenizer, of a normaliser. */
static void test_match_limit(void **state)
{
#define SLOW "{\"Regex\":\"(a|a|a|a)*[bc]\"}"
    static const struct {
        const char *file, *message;
    } cases[] = {
        {BPE_OF_A ",\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":" SLOW ",\"behavior\":\"Isolated\"}}",
         "its pattern fails at byte 0 of a text of 60: match limit exceeded"},
        {BPE_OF_A ",\"normalizer\":{\"type\":\"Replace\",\"pattern\":" SLOW ",\"content\":\"c\"}}",
         "its normaliser's pattern reaches the match limit at byte 0 of a text of 60"},
    };
    char text[60];
    (void)state;

    memset(text, 'a', sizeof text);
    for (size_t i = 0; i < LEN(cases); i++) {
        Fixture f = begin_json(cases[i].file, 100);
        FtxError err = {0};

        assert_int_equal(tokenizer_encode(f.t, f.s, text, sizeof text, false, f.ids, f.max, &f.n, &err), FTX_EINVAL);
        if (!strstr(err.text, cases[i].message))
            fail_msg("expected \"%s\" in: %s", cases[i].message, err.text);
        end(&f);
    }
}

/* A byte may become two where bytes are written as characters. */
static void limit_with_shown_bytes(void)
{
    Fixture f = begin_json(BPE_OF_A ",\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":"
                                    "\"ByteLevel\"},{\"type\":\"Digits\"}]}}",
                           100);
    TokenizerScratch *s;
    FtxError err = {0};

    assert_int_equal(tokenizer_scratch_open(f.t, ((size_t)128 << 20) + 1, &s, &err), FTX_EINVAL);
    assert_string_equal(err.text, "tokenizer: a text of 134217729 bytes is over the limit of 134217728");
    end(&f);
}

/* Tables without a part, with a part that is too long, and a text that is too long for any. */
static void test_parts(void **state)
{
    static const struct {
        TokPartKind kind;
        uint64_t bytes;
        const char *message;
    } cases[] = {
        {TOK_PART_FACTS, 0, "tokenizer: it has no facts"},
        {TOK_PART_TRIE, 0, "tokenizer: its trie has no root"},
        {TOK_PART_NORMS, (TOK_MAX_NORMS + 1) * sizeof(TokNorm), "its normaliser has 97 steps, at most 96"},
        {TOK_PART_STEPS, (TOK_MAX_STEPS + 1) * sizeof(TokStep), "tokenizer: it has 17 steps, at most 16"},
    };
    Fixture f = begin(SMALL "unigram.json", 100);
    TokPart *part = (TokPart *)((char *)f.tables + sizeof(TokHeader));
    TokenizerScratch *s;
    FtxError err = {0};
    Tokenizer *t;
    (void)state;

    assert_int_equal(tokenizer_scratch_open(f.t, ((size_t)512 << 20) + 1, &s, &err), FTX_EINVAL);
    assert_null(s);
    assert_string_equal(err.text, "tokenizer: a text of 536870913 bytes is over the limit of 536870912");
    limit_with_shown_bytes();
    for (size_t i = 0; i < LEN(cases); i++) {
        TokPart was;
        uint32_t k = 0;

        while (part[k].kind != cases[i].kind)
            k++;
        was = part[k];
        part[k].bytes = cases[i].bytes;
        if (cases[i].bytes)
            part[k].offset = 0;
        assert_int_equal(tokenizer_open(f.tables, f.bytes, &t, &err), FTX_EFORMAT);
        if (!strstr(err.text, cases[i].message))
            fail_msg("expected \"%s\" in: %s", cases[i].message, err.text);
        part[k] = was;
    }
    end(&f);
}

/* --- SentencePiece -------------------------------------------------------------------------------- */

#define LOWER "\xe2\x96\x81" /* the visible space */

static void test_spm_settings(void **state)
{
    static const unsigned char suffix[] = {3 << 3, 1, 0xc0, 1, 1}, kept[] = {5 << 3, 0};
    static const unsigned char no_text[] = {0xe2, 2, 1, 0xff};
    static SpmFile after, plain, equal, odd, unused;
    Arena *keep = arena_open();
    Fixture f;
    void *tables;
    size_t bytes;
    Diag d = {0};
    (void)state;

    spm_piece(&after, "<unk>", 0, 2); /* the space stands behind each word */
    spm_piece(&after, "a" LOWER, -1, 1);
    spm_piece(&after, "b" LOWER, -1, 1);
    spm_field(&after, 2, suffix, sizeof suffix);
    f = begin_spm(&after, 100);
    IDS(&f, "a b", 1, 2);
    end(&f);

    spm_piece(&plain, "<unk>", 0, 2); /* spaces are no marks */
    spm_piece(&plain, " a", -1, 1);
    spm_piece(&plain, LOWER "a", -1, 1);
    spm_field(&plain, 3, kept, sizeof kept);
    f = begin_spm(&plain, 100);
    IDS(&f, "a", 1);
    end(&f);

    spm_piece(&equal, "<unk>", 0, 2); /* of pieces of one score the leftmost is merged first */
    for (const char *const *p = (const char *const[]){"a", "b", "c", "bc", "ab", "abc", NULL}; *p; p++)
        spm_piece(&equal, *p, -1, 1);
    spm_trainer(&equal, 2, false);
    spm_normaliser(&equal, false, false);
    f = begin_spm(&equal, 100);
    IDS(&f, "abb", 5, 2);
    IDS(&f, "abc", 6); /* ab with c */
    end(&f);

    spm_piece(&odd, "<unk>", 0, 2);
    spm_field(&odd, 2, no_text, sizeof no_text);
    assert_false(tokenizer_compile_bytes("small.model", odd.at, odd.n, keep, &tables, &bytes, &d));
    assert_string_equal(d.text, "small.model: its trainer's settings are damaged");

    d = (Diag){0};
    spm_piece(&unused, "<unk>", 0, 2);
    spm_piece(&unused, "ab", 0, 5);
    spm_piece(&unused, "a", 0, 1);
    spm_piece(&unused, "b", 0, 1);
    spm_trainer(&unused, 2, false);
    assert_false(tokenizer_compile_bytes("small.model", unused.at, unused.n, keep, &tables, &bytes, &d));
    assert_string_equal(d.text, "small.model: its BPE has the unused piece \"ab\", which is not supported");
    d = (Diag){0};
    spm_piece(&after, "ac", 0, 1);
    spm_trainer(&after, 2, false);
    assert_false(tokenizer_compile_bytes("small.model", after.at, after.n, keep, &tables, &bytes, &d));
    assert_non_null(strstr(d.text, "its BPE has the piece \"a" LOWER "\", but none for the character \"a\""));
    arena_close(keep);
}

/* Pieces of source.spm have the ids of vocab.json; what is not in it is unknown. */
static void test_marian(void **state)
{
    static const struct {
        const char *vocab, *message; /* NULL: accepted; no vocab: it is a folder */
    } cases[] = {
        {NULL, "vocab.json: not a regular file"},
        {"[]", "vocab.json beside it is not a JSON object"},
        {"{\"a\": \"b\"}", "vocab.json beside it: token \"a\" has no id"},
        {"{\"a\": 1, \"<unk>\": 0}", "vocab.json beside it has no \"<unk>\" or no \"</s>\""},
        {"{\"</s>\": 0, \"<unk>\": 1, \"" LOWER "\": 2, \"a\": 3}", NULL},
    };
    const char *vocab = temp_path("vocab.json"), *model = temp_path("source.spm");
    SpmFile file = {.n = 0};
    FtxError err = {0};
    Fixture f;
    (void)state;

    spm_piece(&file, "<unk>", 0, 2);
    spm_piece(&file, LOWER, -1, 1);
    spm_piece(&file, "a", -1, 1);
    spm_piece(&file, "b", -1, 1);
    spm_normaliser(&file, false, false);
    assert_int_equal(file_write_whole(model, file.at, file.n, NULL), FTX_OK);
    for (size_t i = 0; cases[i].message; i++) {
        Arena *keep = arena_open();
        void *tables;
        size_t bytes;
        Diag d = {0};

        if (cases[i].vocab)
            assert_int_equal(file_write_whole(vocab, cases[i].vocab, strlen(cases[i].vocab), NULL), FTX_OK);
        else
            assert_int_equal(mkdir(vocab, 0700), 0);
        assert_false(tokenizer_compile(model, keep, &tables, &bytes, &d));
        if (!strstr(d.text, cases[i].message))
            fail_msg("expected \"%s\" in: %s", cases[i].message, d.text);
        arena_close(keep);
        if (!cases[i].vocab)
            assert_int_equal(rmdir(vocab), 0);
    }
    assert_int_equal(file_write_whole(vocab, cases[4].vocab, strlen(cases[4].vocab), NULL), FTX_OK);
    f = begin(model, 100);
    IDS(&f, "a b", 3, 2, 1);

    /* a stream holds back at most eight spaces, which may be the last */
    TokenizerStream stream = {.n_held = 0};
    char all[64] = "", text[64];
    size_t n;

    for (int i = 0; i < 12; i++) {
        assert_int_equal(tokenizer_stream(f.t, &stream, i == 0 || i == 11 ? 3 : 2, false, text, sizeof text, &n, &err),
                         FTX_OK);
        strncat(all, text, n);
        assert_int_equal(strlen(all), i < 9 ? 1 : i < 11 ? i - 7 : 12);
    }
    assert_string_equal(all, "a          a");
    memset(&stream, 0xff, sizeof stream.held + sizeof stream.n_held);
    assert_int_equal(tokenizer_stream(f.t, &stream, 3, false, text, sizeof text, &n, &err), FTX_EINVAL);
    assert_string_equal(err.text, "tokenizer: a TokenizerStream that was not zeroed before its first use");
    end(&f);

    assert_int_equal(file_write_whole(temp_path("target_vocab.json"), "{}", 2, NULL), FTX_OK);
    Arena *keep = arena_open();
    void *tables;
    size_t bytes;
    Diag d = {0};

    assert_false(tokenizer_compile(model, keep, &tables, &bytes, &d));
    assert_non_null(strstr(d.text, "there is a target_vocab.json beside it: one vocabulary for both"));
    d = (Diag){0};
    assert_false(tokenizer_compile(temp_path("none.spm"), keep, &tables, &bytes, &d));
    assert_non_null(strstr(d.text, "none.spm: No such file or directory"));
    arena_close(keep);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_growth),       cmocka_unit_test(test_match_limit), cmocka_unit_test(test_parts),
        cmocka_unit_test(test_spm_settings), cmocka_unit_test(test_marian),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
