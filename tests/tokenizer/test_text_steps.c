/* test_text_steps.c - single steps of the normaliser and the pre-tokenizer: what each makes of a text, up to the byte that its
 * buffer has no room for. */
#include "tools.h"

#define GRAVE "\xcc\x80" /* U+0300, class 230 */
#define ACUTE "\xcc\x81" /* U+0301, class 230 */
#define BELOW "\xcc\xa3" /* U+0323, class 220 */
#define FIVE(x) x x x x x

static void test_normalisers(void **state)
{
    static const struct {
        const char *file, *text, *want;
    } cases[] = {
        /* marks are sorted by class; those of one class keep their order, also in runs of more than 24 */
        {NORMALIZER("{\"type\":\"NFD\"}"), "a" ACUTE GRAVE BELOW, "a" BELOW ACUTE GRAVE},
        {NORMALIZER("{\"type\":\"NFD\"}"), "a" FIVE(FIVE(ACUTE BELOW)), "a" FIVE(FIVE(BELOW)) FIVE(FIVE(ACUTE))},
        {NORMALIZER("{\"type\":\"NFD\"}"), "a" FIVE(FIVE(ACUTE GRAVE)), "a" FIVE(FIVE(ACUTE GRAVE))},
        /* a match of no bytes replaces nothing, between characters only */
        {NORMALIZER("{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"x*\"},\"content\":\"-\"}"), "a\xc3\xa9",
         "-a-\xc3\xa9-"},
        {NORMALIZER("{\"type\":\"Strip\"}"), "\xe3\x80\x80 a \xe3\x80\x80", "a"},
        {NORMALIZER("{\"type\":\"Lowercase\"}"), "\xc4\xb0\xc4\xb1I", "i\xcc\x87\xc4\xb1i"},
        {NORMALIZER("{\"type\":\"BertNormalizer\",\"clean_text\":false,\"strip_accents\":false,\"lowercase\":false}"),
         "\xe3\x90\x80\xe4\xb6\xbf\xe4\xb7\x80\xe4\xb8\x80", /* U+3400, U+4DBF, U+4DC0 (no ideograph), U+4E00 */
         " \xe3\x90\x80  \xe4\xb6\xbf \xe4\xb7\x80 \xe4\xb8\x80 "},
    };
    (void)state;

    for (size_t i = 0; i < LEN(cases); i++) {
        Fixture f = begin_json(cases[i].file, 200);

        normalises(&f, cases[i].text, cases[i].want);
        end(&f);
    }
}

/* For texts of 100 bytes there are buffers of 4 * 100 + 65536: a normalised text of so many bytes passes, and of one more
 * it does not. */
static void test_room(void **state)
{
    char file[2000], with[900] = "", text[101];
    const char *out;
    FtxError err;
    Fixture f;
    size_t n;
    (void)state;

    memset(with, 'b', 824);
    snprintf(file, sizeof file, NORMALIZER("{\"type\":\"Replace\",\"pattern\":{\"String\":\"a\"},\"content\":\"%s\"}"),
             with);
    f = begin_json(file, 100);
    memset(text, 'a', 80);
    memset(text + 80, 'c', 17);
    assert_int_equal(tokenizer_normalize(f.t, f.s, text, 96, &out, &n, &err), FTX_OK);
    assert_int_equal(n, 4 * 100 + 65536);
    assert_int_equal(tokenizer_normalize(f.t, f.s, text, 97, &out, &n, &err), FTX_EFULL);
    end(&f);

    memset(with, ' ', 824); /* visible spaces have three bytes each: 21978 of them fit */
    with[814] = 0;
    snprintf(file, sizeof file,
             BPE("\"\xe2\x96\x81\":0", "",
                 "\"normalizer\":{\"type\":\"Replace\",\"pattern\":{\"String\":\"a\"},\"content\":\"%s\"},"
                 "\"pre_tokenizer\":{\"type\":\"Metaspace\"}"),
             with);
    f = begin_json(file, 100);
    text[27] = ' ';
    assert_int_equal(tokenizer_encode(f.t, f.s, text, 27, false, f.ids, f.max, &n, &err), FTX_OK);
    assert_int_equal(n, 21978);
    assert_int_equal(tokenizer_encode(f.t, f.s, text, 28, false, f.ids, f.max, &n, &err), FTX_EFULL);
    assert_non_null(strstr(err.text, "with its spaces made visible"));
    end(&f);
}

/* Pieces end before an empty match, never inside a character, and before a visible space at the very end. */
static void test_pieces(void **state)
{
    Fixture f =
        begin_recipe(&(Recipe){.merges = {"\xc3\x83 \xc2\xa9"}, /* the two bytes of U+00E9 */
                               .pre = "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\",\"pattern\":"
                                      "{\"Regex\":\"x*\"},\"behavior\":\"Isolated\"},{\"type\":\"ByteLevel\","
                                      "\"add_prefix_space\":false,\"use_regex\":false}]}"},
                     100);
    (void)state;

    IDS(&f, "a\xc3\xa9", 'a', 256);
    IDS(&f, "\xc3\xa9xx\xc3\xa9", 256, 'x', 'x', 256);
    end(&f);

    f = begin_json(BPE("\"_\":0,\"a\":1,\"_a\":2,\"_a_\":3", "\"_ a\",\"_a _\"",
                       "\"pre_tokenizer\":{\"type\":\"Metaspace\",\"replacement\":\"_\"}"),
                   100);
    IDS(&f, "a ", 2, 0);
    IDS(&f, "a a", 2, 2);
    IDS(&f, "_a", 2); /* it begins with the mark and gets no other */
    end(&f);
}

/* A SentencePiece model: spaces beside a piece of the user stay, and a text of spaces is empty. */
static void test_ends(void **state)
{
    static const unsigned char suffix[] = {0xc0, 1, 1}; /* treat_whitespace_as_suffix */
    SpmFile file = {.n = 0};
    Fixture f;
    (void)state;

    spm_piece(&file, "<unk>", 0, 2);
    spm_piece(&file, "<u>", 0, 4);
    spm_piece(&file, "\xe2\x96\x81", -3, 1);
    spm_piece(&file, "a", -4, 1);
    spm_trainer(&file, 1, false);
    f = begin_spm(&file, 100);
    IDS(&f, "a  <u> a ", 2, 3, 2, 1, 2, 3);
    IDS(&f, "  ", );
    end(&f);
    spm_field(&file, 2, suffix, sizeof suffix);
    f = begin_spm(&file, 100);
    IDS(&f, " a", 3, 2);
    IDS(&f, "  ", );
    end(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_normalisers),
        cmocka_unit_test(test_room),
        cmocka_unit_test(test_pieces),
        cmocka_unit_test(test_ends),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
