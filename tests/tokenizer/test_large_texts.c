/* test_large_texts.c - texts of 10 MB, and texts that normalising makes too long. */
#include "tools.h"

#include <malloc.h>

static void fill(char *text, size_t n, const char *with)
{
    const size_t m = strlen(with);

    for (size_t i = 0; i < n; i++)
        text[i] = with[i % m];
    for (size_t i = n - n % m; i < n; i++)
        text[i] = 'x'; /* no cut character */
}

/* Megabytes of one character: no quadratic time, no allocation. */
static void test_large_texts(void **state)
{
    static const char *const with[] = {
        "a", " ", "a ", ".", "\xcc\x81\xcc\xa3", "\xed\x95\x9c", "\xef\xbf\xbd", "\xe4\xb8\xad"};
    static const char *const models[] = {"tests/tokenizer/emb/tokenizer.json", SMALL "unigram.json",
                                         SMALL "characters.json", "specs/verse/tokenizer.json",
                                         "specs/verse/source.spm"};
    const size_t bytes = 10u << 20;
    char *text = malloc(bytes);
    (void)state;

    assert_non_null(text);
    for (size_t m = 0; m < LEN(models); m++) {
        Fixture f;
        struct mallinfo2 before;

        if (access(models[m], R_OK))
            continue;
        f = begin(models[m], bytes);
        encode(&f, "warm", 4, false);
        before = mallinfo2();
        for (size_t i = 0; i < LEN(with); i++) {
            const size_t n = i < 2 ? bytes : bytes / 10;

            fill(text, n, with[i]);
            encode(&f, text, n, true);
            assert_true(mallinfo2().uordblks == before.uordblks && mallinfo2().hblkhd == before.hblkhd);
        }
        end(&f);
    }
    free(text);
}

/* The same for the kinds of tokenizers that the families of models have: those of switches.json. */
static void test_large_kinds(void **state)
{
    static const char *const names[] = {"family gemma",
                                        "family falcon False",
                                        "family deepseek2",
                                        "family deepseek3",
                                        "family gpt-oss",
                                        "family clip unk=True",
                                        "family bloom",
                                        "wordlevel bytes",
                                        "word ends '##' '</w>'",
                                        "split MergedWithNext invert=False",
                                        "split Contiguous invert=True",
                                        "lengths 3",
                                        "scripts"};
    static const char *const with[] = {"a", " ", "1", "!", "\xc3\xa9"};
    json_t *root = json_load_file("tests/tokenizer/switches.json", JSON_ALLOW_NUL, NULL), *one;
    const size_t bytes = 10u << 20;
    char *text = malloc(bytes);
    size_t k, seen = 0;
    (void)state;

    assert_non_null(text);
    json_array_foreach(json_object_get(root, "tokenizers"), k, one)
    {
        for (size_t m = 0; m < LEN(names); m++) {
            char *file;
            Fixture f;

            if (strcmp(names[m], json_string_value(json_object_get(one, "name"))) != 0)
                continue;
            seen++;
            file = json_dumps(json_object_get(one, "tokenizer"), JSON_COMPACT);
            f = begin_json(file, bytes);
            for (size_t i = 0; i < LEN(with); i++) {
                fill(text, bytes, with[i]);
                encode(&f, text, i ? bytes / 50 : bytes, true);
            }
            free(file);
            end(&f);
        }
    }
    assert_int_equal(seen, LEN(names));
    json_decref(root);
    free(text);
}

/* A text that grows beyond the buffer is refused, and the next one is not affected. */
static void test_growth(void **state)
{
    Fixture f = begin(SMALL "unicode.json", 300000);
    char *text = malloc(300000);
    FtxError err;
    size_t n;
    (void)state;

    assert_non_null(text);
    fill(text, 300000, "\xef\xb7\xba");
    assert_int_equal(tokenizer_encode(f.t, f.s, text, 300000, true, f.ids, f.max, &n, &err), FTX_EFULL);
    assert_non_null(strstr(err.text, "is normalised to over"));
    IDS(&f, "fi", 8);
    free(text);
    end(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_large_texts), cmocka_unit_test(test_large_kinds),
                                       cmocka_unit_test(test_growth)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
