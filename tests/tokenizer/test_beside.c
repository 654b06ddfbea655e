/* test_beside.c - tokenizer_config.json beside a tokenizer.model: its tokens, ChatGLM's, and what is refused. */
#include "tools.h"

#include <sys/stat.h>

#include "runtime/base/file.h"

static char folder[] = "/tmp/ftx-beside-XXXXXX";

static const char *in_folder(const char *name)
{
    static char paths[2][100];
    static int turn;
    char *path = paths[turn ^= 1];

    snprintf(path, sizeof paths[0], "%s/%s", folder, name);
    return path;
}

static void write_model(const char *name, bool squeeze)
{
    SpmFile f = {.n = 0};

    spm_piece(&f, "<unk>", 0, 2);
    spm_piece(&f, "<s>", 0, 3);
    spm_piece(&f, "</s>", 0, 3);
    spm_piece(&f, "\xe2\x96\x81", -1, 1);
    spm_piece(&f, "a", -2, 1);
    spm_piece(&f, "b", -3, 1);
    spm_piece(&f,
              "\xe2\x96\x81"
              "a",
              -1, 1);
    spm_trainer(&f, 2, false);
    spm_normaliser(&f, true, squeeze);
    assert_int_equal(file_write_whole(in_folder(name), f.at, f.n, NULL), FTX_OK);
}

static void write_config(const char *text)
{
    assert_int_equal(file_write_whole(in_folder("tokenizer_config.json"), text, strlen(text), NULL), FTX_OK);
}

#define ADDED \
    "\"added_tokens_decoder\": {\"1\": {\"content\": \"<s>\", \"special\": true}, " \
    "\"0\": {\"content\": \"<unk>\", \"special\": true}, \"5\": {\"content\": \"b\"}, " \
    "\"9\": {\"content\": \"<im>\", \"special\": true, \"rstrip\": true}, " \
    "\"8\": {\"content\": \"<l>\", \"lstrip\": true}, \"7\": {\"content\": \"ab\", \"single_word\": true}}"

static void test_added(void **state)
{
    Fixture f;
    char *text;
    (void)state;

    write_config("{" ADDED ", \"legacy\": false}");
    f = begin(in_folder("tokenizer.model"), 100);
    IDS(&f, "a<s>a", 6, 1, 4); /* one space, before the whole text */
    IDS(&f, "<s>a", 1, 4);
    IDS(&f, "<im>  a <l> a</s>", 9, 4, 8, 6, 0);
    IDS(&f, "<unk>b", 0, 5);
    IDS(&f, "ab aba", 7, 6, 5, 4); /* a word alone */
    text = decode(&f, (int32_t[]){1, 6, 9, 8}, 4, true);
    assert_string_equal(text, "a<l>");
    free(text);
    text = decode(&f, (int32_t[]){1, 4, 9}, 3, false);
    assert_string_equal(text, "<s>a<im>");
    free(text);
    end(&f);

    write_config("{" ADDED "}"); /* each text has its own space */
    f = begin(in_folder("tokenizer.model"), 100);
    IDS(&f, "a<s>a", 6, 1, 6);
    end(&f);

    write_config("{\"added_tokens_decoder\": {\"4\": {\"content\": \"a\", \"special\": true}}}");
    f = begin(in_folder("tokenizer.model"), 100); /* a piece becomes a special token */
    text = decode(&f, (int32_t[]){5, 4, 5}, 3, true);
    assert_string_equal(text, "bb");
    free(text);
    end(&f);

    f = begin(in_folder("other.model"), 100); /* the file is that of tokenizer.model alone */
    IDS(&f, "a<s>a", 6, 0, 4);
    end(&f);

    /* where spaces are squeezed, those before an added token go; behind one that does not begin a text, one stays */
    write_model("tokenizer.model", true);
    write_config("{" ADDED ", \"legacy\": false}");
    f = begin(in_folder("tokenizer.model"), 100);
    IDS(&f, "  a  <s>  a <s> ", 6, 1, 6, 1);
    IDS(&f, "a <s>a", 6, 1, 4);
    end(&f);
    write_config("{" ADDED "}");
    f = begin(in_folder("tokenizer.model"), 100);
    IDS(&f, "  a  <s>a <s> ", 6, 1, 6, 1);
    end(&f);
    write_model("tokenizer.model", false);
}

static void test_chatglm(void **state)
{
    Fixture f;
    (void)state;

    write_config(
        "{\"tokenizer_class\": \"ChatGLMTokenizer\", \"added_tokens_decoder\": {\"8\": {\"content\": \"[gMASK]\"}}}");
    f = begin(in_folder("tokenizer.model"), 100);
    encode(&f, "a", 1, true);
    assert_int_equal(f.n, 3);
    assert_memory_equal(f.ids, ((int32_t[]){8, 10, 6}), 12);
    IDS(&f, "<|user|>b", 13, 3, 5);
    {
        const TokenizerPair pair = {.text = "a", .bytes = 1, .other = "b", .other_bytes = 1, .special = true};
        FtxError err;

        assert_int_equal(tokenizer_encode_pair(f.t, f.s, &pair, f.ids, NULL, f.max, &f.n, &err), FTX_OK);
        assert_int_equal(f.n, 6);
        assert_memory_equal(f.ids, ((int32_t[]){8, 10, 6, 3, 5, 2}), 24);
    }
    end(&f);
}

/* ChatGLM-6B: line ends, tabs and runs of spaces are pieces of the user, [gMASK] and <sop> come behind a text. */
static void test_chatglm_6b(void **state)
{
    static const struct {
        const char *text;
        int type;
    } pieces[] = {{"<unk>", 2},
                  {"\xe2\x96\x81", 1},
                  {"a", 1},
                  {"<n>", 4},
                  {"<|tab|>", 4},
                  {"<|blank_2|>", 4},
                  {"<|blank_3|>", 4},
                  {"<|blank_80|>", 4},
                  {"[gMASK]", 4},
                  {"<sop>", 4},
                  {"<eop>", 4},
                  {"\xe2\x96\x81"
                   "a",
                   1}};
    static const int32_t framed[] = {11, 3, 2, 8, 9};
    char *text;
    char spaces[170];
    SpmFile m = {.n = 0};
    Fixture f;

    (void)state;
    for (size_t i = 0; i < LEN(pieces); i++)
        spm_piece(&m, pieces[i].text, pieces[i].type == 1 ? -1 - (float)i / 8 : 0, pieces[i].type);
    spm_trainer(&m, 1, false);
    spm_normaliser(&m, true, false);
    assert_int_equal(file_write_whole(in_folder("ice_text.model"), m.at, m.n, NULL), FTX_OK);
    write_config("{\"tokenizer_class\": \"ChatGLMTokenizer\", \"num_image_tokens\": 0}");
    f = begin(in_folder("ice_text.model"), 200);
    encode(&f, "a\na", 3, true);
    assert_int_equal(f.n, LEN(framed));
    assert_memory_equal(f.ids, framed, sizeof framed);
    IDS(&f, "a\t  a   a", 11, 4, 5, 2, 6, 2);
    IDS(&f, "a a", 11, 11);
    IDS(&f, "a<sop>", 11, 9);
    memset(spaces, ' ', sizeof spaces);
    spaces[0] = 'a';
    memcpy(spaces + 163, "a", 2);
    IDS(&f, spaces, 11, 7, 7, 5, 2);
    text = decode(&f, (int32_t[]){11, 3, 4, 2, 6, 2, 8, 9, 11, 5, 10}, 11, true);
    assert_string_equal(text, "a\n\ta   a a  ");
    free(text);
    {
        const TokenizerPair pair = {.text = "a", .bytes = 1, .other = "a", .other_bytes = 1, .special = true};
        FtxError err;

        assert_int_equal(tokenizer_encode_pair(f.t, f.s, &pair, f.ids, NULL, f.max, &f.n, &err), FTX_OK);
        assert_int_equal(f.n, 5);
        assert_memory_equal(f.ids, ((int32_t[]){11, 8, 9, 11, 10}), 20);
    }
    end(&f);
    for (int i = 0; i < 2; i++) {
        Arena *keep = arena_open();
        Diag d = {0};
        void *tables;
        size_t bytes;

        write_config(i ? "{\"tokenizer_class\": \"ChatGLMTokenizer\"}"
                       : "{\"tokenizer_class\": \"ChatGLMTokenizer\", \"num_image_tokens\": 20000}");
        assert_false(tokenizer_compile(in_folder("ice_text.model"), keep, &tables, &bytes, &d));
        assert_non_null(strstr(d.text, "tokenizer_config.json: num_image_tokens must be 0"));
        arena_close(keep);
    }
    assert_int_equal(unlink(in_folder("ice_text.model")), 0);
}

static void test_refused(void **state)
{
    static const char *const cases[][2] = {
        {"", "tokenizer_config.json: not a regular file"}, /* a folder */
        {"[]", "tokenizer_config.json: is no JSON object"},
        {"{", "tokenizer_config.json: is no JSON object"},
        {"{\"added_tokens_decoder\": {\"x\": {\"content\": \"<x>\"}}}", "\"x\" is no id of a token with \"content\""},
        {"{\"added_tokens_decoder\": {\"\": {\"content\": \"<x>\"}}}", "\"\" is no id"},
        {"{\"added_tokens_decoder\": {\"-1\": {\"content\": \"<x>\"}}}", "\"-1\" is no id"},
        {"{\"added_tokens_decoder\": {\"16777216\": {\"content\": \"<x>\"}}}", "\"16777216\" is no id"},
        {"{\"added_tokens_decoder\": {\"9\": {\"content\": \"\"}}}", "\"9\" is no id of a token with \"content\""},
        {"{\"added_tokens_decoder\": {\"9\": {}}}", "\"9\" is no id of a token with \"content\""},
        {"{\"added_tokens_decoder\": {\"4\": {\"content\": \"<x>\"}}}", "has the id 4 of another token"},
        {"{\"tokenizer_class\": \"ChatGLMTokenizer\", \"added_tokens_decoder\": {\"8\": {\"content\": \"<x>\"}}}",
         "has the id 8 of another token"},
    };
    (void)state;

    unlink(in_folder("tokenizer_config.json"));
    for (size_t i = 0; i < LEN(cases); i++) {
        Arena *keep = arena_open();
        Diag d = {0};
        void *tables;
        size_t bytes;

        if (*cases[i][0])
            write_config(cases[i][0]);
        else
            assert_int_equal(mkdir(in_folder("tokenizer_config.json"), 0700), 0);
        assert_false(tokenizer_compile(in_folder("tokenizer.model"), keep, &tables, &bytes, &d));
        if (!strstr(d.text, cases[i][1]))
            fail_msg("expected \"%s\" in: %s", cases[i][1], d.text);
        if (!*cases[i][0])
            assert_int_equal(rmdir(in_folder("tokenizer_config.json")), 0);
        arena_close(keep);
    }
}

static int open_folder(void **state)
{
    (void)state;
    if (!mkdtemp(folder))
        return -1;
    write_model("tokenizer.model", false);
    write_model("other.model", false);
    return 0;
}

static int close_folder(void **state)
{
    (void)state;
    unlink(in_folder("tokenizer.model"));
    unlink(in_folder("other.model"));
    unlink(in_folder("tokenizer_config.json"));
    return rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_added), cmocka_unit_test(test_chatglm),
                                       cmocka_unit_test(test_chatglm_6b), cmocka_unit_test(test_refused)};

    return cmocka_run_group_tests(tests, open_folder, close_folder);
}
