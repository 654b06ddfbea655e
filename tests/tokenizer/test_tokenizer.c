/* test_tokenizer.c - ids and texts equal to Hugging Face's on stored pairs, every feature of byte-level tokenizers on
 * small ones, invalid UTF-8, and very long texts. */
#include "stored.h"

#include <malloc.h>

/* --- stored pairs ------------------------------------------------------------------------------- */

static void test_fable(void **state)
{
    (void)state;
    each_stored("specs/fable/tokenizer.json", "tests/tokenizer/fable.json", check_both);
}

/* --- features, by hand -------------------------------------------------------------------------- */

static void test_merge_order(void **state)
{
    /* 256 ab, 257 bc, 258 abc, 259 aa, 260 aaaa */
    Fixture f = begin_recipe(&(Recipe){.merges = {"a b", "b c", "ab c", "a a", "aa aa"}}, 100);
    (void)state;

    IDS(&f, "ab", 256);
    IDS(&f, "abc", 258);
    IDS(&f, "bc", 257);
    IDS(&f, "aab", 97, 256); /* a b ranks before a a */
    IDS(&f, "aaa", 259, 97); /* leftmost first */
    IDS(&f, "aaaaaa", 260, 259);
    IDS(&f, "abcab", 258, 256);
    end(&f);
}

/* GPT-2's pattern: words take the space before them, runs of spaces leave one for the next word. */
static void test_gpt2_pattern(void **state)
{
    Fixture f = begin_recipe(&(Recipe){.merges = {"Ġ Ġ", "' s", "a '", "Ġ a", "1 a"}}, 100);
    (void)state;

    IDS(&f, "a's", 97, 257);   /* "a" | "'s" */
    IDS(&f, "  a", 32, 259);   /* " " | " a" */
    IDS(&f, "   a", 256, 259); /* "  " | " a" */
    IDS(&f, "a  ", 97, 256);
    IDS(&f, "1a", 49, 97);                       /* digits and letters are apart */
    IDS(&f, "a\xc2\xa0 a", 97, 0xc2, 0xa0, 259); /* U+00A0 is a space */
    IDS(&f,
        "\xe1\xa0\x8e"
        "1",
        0xe1, 0xa0, 0x8e, 49); /* U+180E is none */
    end(&f);
}

static void test_prefix_space(void **state)
{
    Fixture f = begin_recipe(&(Recipe){.merges = {"Ġ a"},
                                       .added = "{\"id\":300,\"content\":\"<x>\",\"special\":true}",
                                       .pre = "{\"type\":\"ByteLevel\",\"add_prefix_space\":true}"},
                             100);
    (void)state;

    IDS(&f, "a", 256);
    IDS(&f, " a", 256);
    IDS(&f, "a<x>a", 256, 300, 256);
    IDS(&f, "<x>", 300);
    end(&f);
}

/* Split + ByteLevel without its own pattern, ignore_merges: a piece that is a token is not merged. */
static void test_llama3_style(void **state)
{
    static const char split[] = "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\",\"pattern\":{\"Regex\":"
                                "\"\\\\p{N}{1,3}|\\\\s+(?!\\\\S)|[^\\\\s\\\\p{N}]+|\\\\s+\"},\"behavior\":\"Isolated\","
                                "\"invert\":false},{\"type\":\"ByteLevel\",\"add_prefix_space\":false,"
                                "\"use_regex\":false}]}";
    static const char frame[] = "{\"type\":\"Sequence\",\"processors\":[{\"type\":\"ByteLevel\"},{\"type\":"
                                "\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":\"<s>\",\"type_id\":0}},"
                                "{\"Sequence\":{\"id\":\"A\",\"type_id\":0}},{\"SpecialToken\":{\"id\":\"</s>\","
                                "\"type_id\":0}}],\"special_tokens\":{\"<s>\":{\"id\":\"<s>\",\"ids\":[300],"
                                "\"tokens\":[\"<s>\"]},\"</s>\":{\"id\":\"</s>\",\"ids\":[301,302],\"tokens\":[]}}}]}";
    static const char added[] = "{\"id\":300,\"content\":\"<s>\",\"special\":true},"
                                "{\"id\":301,\"content\":\"</s>\",\"special\":true},"
                                "{\"id\":302,\"content\":\"<pad>\",\"special\":true}";
    const Recipe merged = {.merges = {"b c", "a b", "ab c"}, .pre = split, .post = frame, .added = added};
    Recipe whole = merged;
    Fixture f = begin_recipe(&merged, 100);
    (void)state;

    IDS(&f, "abc", 97, 256);
    IDS(&f, "1234", 49, 50, 51, 52);
    encode(&f, "b", 1, true);
    assert_int_equal(f.n, 4);
    assert_memory_equal(f.ids, ((int32_t[]){300, 98, 301, 302}), 16);
    end(&f);
    whole.model = "\"ignore_merges\":true,";
    f = begin_recipe(&whole, 100);
    IDS(&f, "abc", 258);
    IDS(&f, "abcb", 97, 256, 98);
    end(&f);
}

static void test_digits_and_strings(void **state)
{
    static const char pre[] =
        "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Digits\",\"individual_digits\":true},"
        "{\"type\":\"Split\",\"pattern\":{\"String\":\"a.\"},\"behavior\":\"Isolated\"},"
        "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"use_regex\":false}]}";
    Fixture f = begin_recipe(&(Recipe){.merges = {"1 1", "a b", ". a", "a ."}, .pre = pre}, 100);
    (void)state;

    IDS(&f, "11", 49, 49);
    IDS(&f, "ab", 257);
    IDS(&f, "a.a.", 259, 259);
    IDS(&f, ".ab", 46, 257);
    end(&f);
}

static void test_added_tokens(void **state)
{
    static const char added[] =
        "{\"id\":300,\"content\":\"<a>\"},{\"id\":301,\"content\":\"<a><b>\"},{\"id\":302,\"content\":\"<l>\","
        "\"lstrip\":true},"
        "{\"id\":303,\"content\":\"<r>\",\"rstrip\":true},{\"id\":304,\"content\":\"word\",\"single_word\":true},"
        "{\"id\":305,\"content\":\"late\",\"normalized\":true},{\"id\":306,\"content\":\"<b>late\"},"
        "{\"id\":307,\"content\":\"two words\",\"special\":true}";
    Fixture f = begin_recipe(&(Recipe){.added = added}, 200);
    char *text;
    (void)state;

    IDS(&f, "x<a>y", 'x', 300, 'y');
    IDS(&f, "<a><b>", 301); /* the longest */
    IDS(&f, "<a><a><b>", 300, 301);
    IDS(&f, "x \t<l> y", 'x', 302, ' ', 'y'); /* takes the spaces before it */
    IDS(&f, "x <r>\n\xe3\x80\x80y", 'x', ' ', 303, 'y');
    IDS(&f, "<r> <l>", 303, 302);
    IDS(&f, "a word.", 'a', ' ', 304, '.');
    IDS(&f, "words word", 'w', 'o', 'r', 'd', 's', ' ', 304);
    IDS(&f, "_word", '_', 'w', 'o', 'r', 'd');
    IDS(&f, "\xc3\xa9word", 0xc3, 0xa9, 'w', 'o', 'r', 'd'); /* a letter before it */
    IDS(&f, "\xe2\x80\x9cword\xe2\x80\x9d", 0xe2, 0x80, 0x9c, 304, 0xe2, 0x80, 0x9d);
    IDS(&f, "latelate", 305, 305);
    IDS(&f, "x<b>late", 'x', 306); /* tokens of raw text first, wherever they are */
    IDS(&f, "<b", '<', 'b');
    text = decode(&f, (int32_t[]){300, 307, 'x'}, 3, false);
    assert_string_equal(text, "<a>two wordsx");
    free(text);
    text = decode(&f, (int32_t[]){300, 307, 'x', -1, 999999, 299}, 6, true);
    assert_string_equal(text, "<a>x");
    free(text);
    end(&f);
}

/* --- bytes that are no text --------------------------------------------------------------------- */

static void test_invalid_utf8(void **state)
{
    /* U+FFFD is ef bf bd; a maximal start of a character becomes one of them */
    static const struct {
        const char *text;
        int marks;
    } cases[] = {
        {"\xff", 1},
        {"\x80", 1},
        {"\xc3", 1},
        {"\xc0\x80", 2},
        {"\xed\xa0\x80", 3},
        {"\xe2\x82", 1},
        {"\xf0\x9f\x98", 1},
        {"\xf4\x90\x80\x80", 4},
        {"\xf0\x80\x80\x80", 4},
        {"\xe2\x28\xa1", 2},
    };
    Fixture f = begin_recipe(&(Recipe){.merges = {NULL}}, 64);
    (void)state;

    for (size_t i = 0; i < LEN(cases); i++) {
        int marks = 0;

        encode(&f, cases[i].text, strlen(cases[i].text), false);
        for (size_t k = 0; k + 2 < f.n; k++)
            marks += f.ids[k] == 0xef && f.ids[k + 1] == 0xbf && f.ids[k + 2] == 0xbd;
        assert_int_equal(marks, cases[i].marks);
    }
    for (unsigned seed = 1; seed < 3000; seed++) { /* the ids decode to the text with U+FFFD for invalid bytes */
        char text[16], *back, *again;

        for (size_t k = 0; k < sizeof text; k++)
            text[k] = (char)((seed * 2654435761u >> (k % 4 * 8)) ^ k * 37);
        encode(&f, text, sizeof text, false);
        back = decode(&f, f.ids, f.n, false);
        encode(&f, back, strlen(back), false);
        again = decode(&f, f.ids, f.n, false);
        assert_string_equal(back, again);
        free(back);
        free(again);
    }
    encode(&f, "\0a\0", 3, false);
    assert_int_equal(f.n, 3);
    end(&f);
}

/* Tokens that end inside a character give nothing until it is complete. */
static void test_stream(void **state)
{
    Fixture f = begin_recipe(&(Recipe){.merges = {NULL}}, 16);
    const unsigned char text[] = "a\xf0\x9f\x98\x80\xe2\x82x\xf0\x9f\x98";
    const char *const want[] = {"a", "", "", "", "\xf0\x9f\x98\x80", "", "", "\xef\xbf\xbdx", "", "", "\xef\xbf\xbd"};
    TokenizerStream d = {0};
    char out[32];
    size_t n;
    (void)state;

    for (size_t i = 0; i < LEN(want); i++) {
        assert_int_equal(tokenizer_stream(f.t, &d, text[i], i + 1 == LEN(want), out, sizeof out, &n, NULL), FTX_OK);
        assert_int_equal(n, strlen(want[i]));
        assert_memory_equal(out, want[i], n);
    }
    assert_int_equal(tokenizer_stream(f.t, &d, 'x', true, out, 0, &n, NULL), FTX_EINVAL);
    end(&f);
}

/* --- sizes -------------------------------------------------------------------------------------- */

static void test_room(void **state)
{
    Fixture f = begin("specs/fable/tokenizer.json", 20);
    int32_t two[2] = {-1, -1};
    char text[4];
    size_t n;
    FtxError err;
    (void)state;

    assert_int_equal(tokenizer_encode(f.t, f.s, "I I I", 5, true, two, 2, &n, &err), FTX_OK);
    assert_int_equal(n, 4);
    assert_int_equal(two[0], 0);
    assert_int_equal(two[1], 42);
    assert_int_equal(tokenizer_encode(f.t, f.s, "123456789012345678901", 21, true, two, 2, &n, &err), FTX_EFULL);
    assert_non_null(strstr(err.text, "21 bytes is over the limit of 20"));
    assert_int_equal(tokenizer_decode(f.t, (int32_t[]){42, 301, 301}, 3, true, text, 4, &n, &err), FTX_OK);
    assert_int_equal(n, 5);
    assert_memory_equal(text, "I I ", 4);
    end(&f);
}

/* 10 MB of one letter and of spaces before a letter, 2 MB of line ends, digits, dots, beginnings of
 * added tokens. With a step quadratic in a run these would take days. Nothing is allocated. */
static void test_large_texts(void **state)
{
    const size_t bytes = 10u << 20;
    char *text = malloc(bytes + 1), *back;
    Fixture f = begin("specs/fable/tokenizer.json", bytes);
    static const char fill[] = {'a', ' ', '\n', '7', '.', '<'};
    struct mallinfo2 before;
    (void)state;

    assert_non_null(text);
    text[bytes] = '\0';
    encode(&f, "warm", 4, false);
    before = mallinfo2();
    for (size_t i = 0; i < LEN(fill); i++) {
        const size_t n = i < 2 ? bytes : bytes / 5;

        memset(text, fill[i], n);
        text[n] = '\0';
        if (i % 2)
            text[n - 1] = 'x';
        encode(&f, text, n, true);
        assert_true(f.n > 100000);
        assert_true(mallinfo2().uordblks == before.uordblks && mallinfo2().hblkhd == before.hblkhd);
        back = decode(&f, f.ids, f.n, true);
        assert_string_equal(back, text);
        free(back);
    }
    end(&f);

    f = begin_recipe(&(Recipe){.merges = {"a a", "aa aa", "aaaa aaaa", "Ġ Ġ", "ĠĠ ĠĠ", "ĠĠĠĠ ĠĠĠĠ"}}, bytes);
    for (size_t i = 0; i < 2; i++) {
        memset(text, fill[i], bytes);
        encode(&f, text, bytes, false);
        assert_int_equal(f.n, bytes / 8);
        assert_int_equal(f.ids[7], i ? 261 : 258);
    }
    end(&f);
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fable),        cmocka_unit_test(test_merge_order),
        cmocka_unit_test(test_gpt2_pattern), cmocka_unit_test(test_prefix_space),
        cmocka_unit_test(test_llama3_style), cmocka_unit_test(test_digits_and_strings),
        cmocka_unit_test(test_added_tokens), cmocka_unit_test(test_invalid_utf8),
        cmocka_unit_test(test_stream),       cmocka_unit_test(test_room),
        cmocka_unit_test(test_large_texts),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
