/* test_ranks.c - tiktoken's files and tekken.json that are refused, each with its reason; the patterns of Rust. */
#include "tools.h"

#include <sys/stat.h>

#include "compiler/tokenizer/parts.h"

static char folder[] = "/tmp/ftx-ranks-XXXXXX";

static const char *in_folder(const char *name)
{
    static char path[100];

    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static void write_file(const char *name, const char *text)
{
    FILE *f = fopen(in_folder(name), "w");

    assert_non_null(f);
    fputs(text, f);
    assert_int_equal(fclose(f), 0);
}

static void refused(const char *path, const char *text, const char *reason)
{
    Arena *keep = arena_open();
    Diag d = {0};
    void *tables;
    size_t bytes;

    assert_false(tokenizer_compile_bytes(path, text, strlen(text), keep, &tables, &bytes, &d));
    if (!strstr(d.text, reason))
        fail_msg("expected \"%s\" in: %s", reason, d.text);
    arena_close(keep);
}

static void test_tiktoken(void **state)
{
    static const char *const arguments[][2] = {
        {"[]", "has no \"pat_str\" or no \"special_tokens\""},
        {"{\"pat_str\": \".\"}", "x.tiktoken.json: has no \"pat_str\" or no \"special_tokens\""},
        {"{\"special_tokens\": {}}", "has no \"pat_str\""},
        {"{\"pat_str\": \".\", \"special_tokens\": {\"a\": \"b\"}}", "\"special_tokens\": \"a\" has no id"},
        {"{\"pat_str\": \".\", \"special_tokens\": {\"a\": -1}}", "has the id -1"},
        {"{\"pat_str\": \".\", \"special_tokens\": {\"a\": 1}}", "has the id 1 of another token"},
        {"{\"pat_str\": \"\\\\b\", \"special_tokens\": {}}", "at character 1, \"\\b\", which is not supported"},
        {"{\"pat_str\": \".\", \"special_tokens\": {}}", "no token is the byte 0x00 alone"},
        {"{", "x.tiktoken.json: is not JSON"},
    };
    static const char *const lines[][2] = {
        {"YQ== 0\nYg==\n", "x.tiktoken:2: is no token in base64 and its rank"},
        {"YQ== 0\n\nYg== \n", "x.tiktoken:3: is no token"},
        {" 1\n", "x.tiktoken:1: is no token"},
        {"YQ== 1x\n", "x.tiktoken:1: is no token"},
        {"YQ== -1\n", "x.tiktoken:1: is no token"},
        {"YQ== 99999999999999999999\n", "x.tiktoken:1: is no token"},
        {"YQ== 16777216\n", "has the id 16777216"},
        {"YQ= 1\n", "x.tiktoken:1: the token \"YQ=\" is not base64 of 1 to 512 bytes"},
        {"= 1\n", "is not base64"},
        {"YQ== 1\r\nYQ== 2\r\n", "x.tiktoken:2: the token \"YQ==\" is there twice"},
        {"YQ== 1\nYg== 1\n", "has the id 1 of another token"},
    };
    char *large;
    (void)state;

    refused(in_folder("y.tiktoken"), "YQ== 0\n", "y.tiktoken.json with {\"pat_str\": PATTERN, \"special_tokens\"");
    refused(in_folder("y.model"), "YQ== 0\n", "is tiktoken's; its pattern is not in it");
    refused(in_folder("y.model"), "YQ==0\n", "is no SentencePiece model");
    for (size_t i = 0; i < LEN(arguments); i++) {
        write_file("x.tiktoken.json", arguments[i][0]);
        refused(in_folder("x.tiktoken"), "YQ== 1\n", arguments[i][1]);
    }
    unlink(in_folder("x.tiktoken.json"));
    assert_int_equal(mkdir(in_folder("x.tiktoken.json"), 0700), 0);
    refused(in_folder("x.tiktoken"), "YQ== 1\n", "x.tiktoken.json: not a regular file");
    assert_int_equal(rmdir(in_folder("x.tiktoken.json")), 0);
    write_file("x.tiktoken.json", "{\"pat_str\": \".\", \"special_tokens\": {}}");
    for (size_t i = 0; i < LEN(lines); i++)
        refused(in_folder("x.tiktoken"), lines[i][0], lines[i][1]);
    large = malloc(688 + 4);
    assert_non_null(large);
    memset(large, 'A', 684); /* 513 bytes, and 512 */
    strcpy(large + 684, " 1\n");
    refused(in_folder("x.tiktoken"), large, "is not base64 of 1 to 512 bytes");
    strcpy(large + 683, "= 1\n");
    refused(in_folder("x.tiktoken"), large, "no token is the byte 0x00 alone");
    free(large);
    unlink(in_folder("x.tiktoken.json"));
}

#define TEKKEN(config, vocab, more) "{\"config\": {" config "}, \"vocab\": [" vocab "]" more "}"
#define NUMBERS(size, specials) \
    "\"pattern\": \".\", \"default_vocab_size\": " #size ", \"default_num_special_tokens\": " #specials
#define ROW(rank, base64) "{\"rank\": " #rank ", \"token_bytes\": \"" base64 "\"}"

static void test_tekken(void **state)
{
    static const char *const cases[][2] = {
        {TEKKEN("", "", ""), "\"config\" has no \"pattern\""},
        {TEKKEN("\"pattern\": \".\"", "", ""), "\"default_vocab_size\" is not a number of 1 to 16777215"},
        {TEKKEN(NUMBERS(5, 0), "", ""), "\"default_num_special_tokens\" is not a number of 1"},
        {TEKKEN(NUMBERS(16777216, 1), "", ""), "\"default_vocab_size\" is not a number"},
        {TEKKEN(NUMBERS(2, 2), ROW(0, "YQ=="), ""), "\"vocab\" has 1 tokens, \"config\" asks for 0"},
        {TEKKEN(NUMBERS(4, 2), ROW(0, "YQ=="), ""), "\"vocab\" has 1 tokens, \"config\" asks for 2"},
        {TEKKEN(NUMBERS(3, 2), ROW(1, "YQ=="), ""), "\"vocab\": entry 0 has no \"token_bytes\" or another \"rank\""},
        {TEKKEN(NUMBERS(3, 2), "{\"rank\": 0}", ""), "\"vocab\": entry 0 has no \"token_bytes\""},
        {TEKKEN(NUMBERS(3, 2), ROW(0, "Y"), ""), "the token \"Y\" is not base64"},
        {TEKKEN(NUMBERS(3, 2), ROW(0, "YQ=="), ", \"special_tokens\": [{\"rank\": 2, \"token_str\": \"a\"}]"),
         "entry 0 has no \"token_str\" or no \"rank\" below 2"},
        {TEKKEN(NUMBERS(3, 2), ROW(0, "YQ=="), ", \"special_tokens\": [{\"rank\": 0, \"token_str\": \"\"}]"),
         "entry 0 has no \"token_str\""},
        {TEKKEN(NUMBERS(3, 2), ROW(0, "YQ=="),
                ", \"special_tokens\": [{\"rank\": 0, \"token_str\": \"a\"}, {\"rank\": 0, \"token_str\": \"b\"}]"),
         "has the id 0 of another token"},
        {TEKKEN(NUMBERS(3, 2), ROW(0, "YQ=="), ""), "no token is the byte 0x00 alone"},
    };
    (void)state;

    for (size_t i = 0; i < LEN(cases); i++)
        refused("tekken.json", cases[i][0], cases[i][1]);
}

static void test_rust_patterns(void **state)
{
    static const struct {
        const char *from, *to;
    } cases[] = {
        {"^a$|[$^]", "\\Aa\\z|[$^]"},
        {"\\p{N}{1,3}+|a++|b?+", "\\p{N}{1,3}+|a++|b?+"},
        {"(?is-x:.)(?!a)(?i)", "(?is-x:.)(?!a)(?i)"},
        {"(?m:a)", NULL},
        {"[a--b]", NULL},
        {"[a~~b]", NULL},
        {"[a&&b]", NULL},
        {"[a-b-c~d&]", "[a-b-c~d&]"},
        {"(?P<n>a)", NULL},
    };
    Arena *keep = arena_open();
    (void)state;

    for (size_t i = 0; i < LEN(cases); i++) {
        const char *out;
        Diag d = {0};
        const bool ok = pattern_translate(cases[i].from, PATTERN_RUST, (Loc){0}, keep, &out, &d);

        if (ok != (cases[i].to != NULL))
            fail_msg("%s: %s", cases[i].from, ok ? out : d.text);
        if (ok)
            assert_string_equal(out, cases[i].to);
    }
    arena_close(keep);
}

static int open_folder(void **state)
{
    (void)state;
    return mkdtemp(folder) ? 0 : -1;
}

static int close_folder(void **state)
{
    (void)state;
    return rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_tiktoken), cmocka_unit_test(test_tekken),
                                       cmocka_unit_test(test_rust_patterns)};

    return cmocka_run_group_tests(tests, open_folder, close_folder);
}
