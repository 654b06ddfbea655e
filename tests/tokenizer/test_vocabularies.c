/* test_vocabularies.c - WordPiece, Unigram and SentencePiece files: ids and texts equal to those of the
 * stored pairs, and each rule on vocabularies of a few pieces. */
#include "stored.h"

/* --- stored pairs ------------------------------------------------------------------------------- */

static void test_emb(void **state)
{
    (void)state;
    each_stored("tests/tokenizer/emb/tokenizer.json", "tests/tokenizer/emb.json", check_both);
}

/* tokenizer.json's decoder keeps spaces at the ends; the file was made by Marian's own tokenizer. */
static void check_verse(Fixture *f, const json_t *c)
{
    encode_case(f, c, true);
    same_ids(f, json_object_get(c, "ids"), json_string_value(json_object_get(c, "text")));
    same_text(f, true, json_object_get(c, "decoded"), true);
}

static void check_marian(Fixture *f, const json_t *c)
{
    encode_case(f, c, true);
    same_ids(f, json_object_get(c, "ids"), json_string_value(json_object_get(c, "text")));
    same_text(f, true, json_object_get(c, "decoded"), false);
    same_text(f, false, json_object_get(c, "decoded_with_special"), false);
}

static void test_verse(void **state)
{
    (void)state;
    each_stored("specs/verse/tokenizer.json", "tests/tokenizer/verse.json", check_verse);
    each_stored("specs/verse/source.spm", "tests/tokenizer/verse.json", check_marian);
}

/* --- features, by hand -------------------------------------------------------------------------- */

static void gives(Fixture *f, const int32_t *ids, size_t n, bool skip, const char *want)
{
    char *text = decode(f, ids, n, skip);

    assert_string_equal(text, want);
    free(text);
}

#define GIVES(f, skip, want, ...) \
    gives(f, (int32_t[]){__VA_ARGS__}, sizeof((int32_t[]){__VA_ARGS__}) / sizeof(int32_t), skip, want)

static void test_wordpiece(void **state)
{
    Fixture f = begin(SMALL "wordpiece.json", 100);
    (void)state;

    IDS(&f, "ab", 9);
    IDS(&f, "aab", 4, 6, 7);
    IDS(&f, "abbc", 9, 8);
    IDS(&f, "abx", 1); /* no place for x inside a word: all of it is unknown */
    IDS(&f, "a x", 4, 19);
    IDS(&f, "\xc3\x81\x42", 9);             /* accents and capitals go */
    IDS(&f, "\xc4\xb0", 13);                /* U+0130: I and a dot above */
    IDS(&f, "a\xe4\xb8\xad\x62", 4, 12, 5); /* an ideograph stands alone */
    IDS(&f, "a.b", 4, 10, 5);
    IDS(&f, "don't", 15, 16, 17);
    IDS(&f, "aaaaaaaa", 4, 6, 6, 6, 6, 6, 6, 6);
    IDS(&f, "aaaaaaaaa", 1);             /* nine characters, one too many */
    IDS(&f, "a\x07\xe2\x80\x8b\x62", 9); /* controls and formats vanish */
    IDS(&f,
        "\xef\xbf\xbd"
        "a\xff",
        4); /* U+FFFD too */
    IDS(&f,
        "a\xc2\xa0"
        "a\xe3\x80\x80"
        "a",
        4, 4, 4);
    IDS(&f, "[CLS]a", 2, 4);
    IDS(&f, "CAFE x caf\xc3\xa9", 20, 19, 20); /* a late token, itself normalised */
    GIVES(&f, true, "abb. a", 2, 9, 7, 10, 4);
    GIVES(&f, false, "[CLS] ab", 2, 9);
    GIVES(&f, true, "##b ab", 7, 9);
    GIVES(&f, true, "don ' t, a", 15, 16, 17, 11, 4);
    end(&f);
}

/* Without a decoder the texts of the tokens are joined with spaces, as in tokenizers. */
/* The spaces that "cleanup" of a WordPiece decoder takes away, token by token; what tokenizers 0.22.1 gives. */
static void test_clean_up(void **state)
{
    static const char file[] =
        "{\"model\":{\"type\":\"WordPiece\",\"unk_token\":\"u\",\"continuing_subword_prefix\":\"##\",\"vocab\":{\"u\":"
        "0,"
        "\"do\":1,\"n't\":2,\".\":3,\"##s\":4,\"?\":5,\"!\":6,\",\":7,\"'\":8,\"'m\":9,\"do not\":10,\"'s\":11,"
        "\"'ve\":12,\"'re\":13}},\"decoder\":{\"type\":\"WordPiece\",\"prefix\":\"##\",\"cleanup\":true}}";
    Fixture f = begin_json(file, 100);
    (void)state;

    GIVES(&f, false, "don't.s?!, ''m don't's've're", 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13);
    GIVES(&f, false, "don't do.", 1, 2, 1, 3);
    end(&f);
}

static void test_no_decoder(void **state)
{
    Fixture f =
        begin_recipe(&(Recipe){.decoder = "null", .added = "{\"id\":256,\"content\":\"<x>\",\"special\":true}"}, 100);
    (void)state;

    IDS(&f, "a b", 'a', ' ', 'b');
    GIVES(&f, true, "a \xc4\xa0 b", 'a', ' ', 'b');
    GIVES(&f, true, "a b", 256, 'a', 256, 'b');
    GIVES(&f, false, "<x> a <x> b", 256, 'a', 256, 'b');
    end(&f);
}

static void check_pair(Fixture *f, const TokenizerPair *p, const int32_t *ids, const int32_t *types, size_t n)
{
    int32_t got[64], kinds[64];
    size_t count;
    FtxError err;

    if (tokenizer_encode_pair(f->t, f->s, p, got, kinds, 64, &count, &err))
        fail_msg("%s", err.text);
    assert_int_equal(count, n);
    assert_memory_equal(got, ids, n * sizeof *ids);
    assert_memory_equal(kinds, types, n * sizeof *types);
}

#define I(...) \
    (int32_t[]) \
    { \
        __VA_ARGS__ \
    }

static void test_pairs(void **state)
{
    TokenizerPair p = {.text = "a a a a a", .bytes = 9, .other = "b b b", .other_bytes = 5, .special = true};
    Fixture f = begin(SMALL "wordpiece.json", 100);
    int32_t two[2] = {-1, -1}, types[3] = {-1, -1, -1};
    FtxError err;
    size_t n;
    (void)state;

    check_pair(&f, &p, I(2, 4, 4, 4, 4, 4, 3, 5, 5, 5, 3), I(0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1), 11);
    p.most = 9; /* the longer one first */
    check_pair(&f, &p, I(2, 4, 4, 4, 3, 5, 5, 5, 3), I(0, 0, 0, 0, 0, 1, 1, 1, 1), 9);
    p.most = 8; /* then both; the longer one keeps the odd token */
    check_pair(&f, &p, I(2, 4, 4, 4, 3, 5, 5, 3), I(0, 0, 0, 0, 0, 1, 1, 1), 8);
    p.most = 3;
    check_pair(&f, &p, I(2, 3, 3), I(0, 0, 1), 3);
    p.most = 8; /* only_first, only_second */
    p.cut = TOKENIZER_CUT_FIRST;
    check_pair(&f, &p, I(2, 4, 4, 3, 5, 5, 5, 3), I(0, 0, 0, 0, 1, 1, 1, 1), 8);
    p.cut = TOKENIZER_CUT_SECOND; /* nothing of it would be left */
    assert_int_equal(tokenizer_encode_pair(f.t, f.s, &p, two, NULL, 2, &n, &err), FTX_EINVAL);
    assert_non_null(strstr(err.text, "the first text has 5 tokens of the 5 allowed: nothing of the second"));
    p.most = 9;
    check_pair(&f, &p, I(2, 4, 4, 4, 4, 4, 3, 5, 3), I(0, 0, 0, 0, 0, 0, 0, 1, 1), 9);
    p.most = 11;
    check_pair(&f, &p, I(2, 4, 4, 4, 4, 4, 3, 5, 5, 5, 3), I(0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1), 11);
    p.cut = TOKENIZER_CUT_LONGEST;
    p.most = 2;
    assert_int_equal(tokenizer_encode_pair(f.t, f.s, &p, two, NULL, 2, &n, &err), FTX_EINVAL);
    assert_non_null(strstr(err.text, "3 tokens around a text are more than the 2 allowed"));
    p.most = 7;
    p.special = false;
    check_pair(&f, &p, I(4, 4, 4, 4, 5, 5, 5), I(0, 0, 0, 0, 1, 1, 1), 7);
    p.other = NULL;
    p.most = 2;
    check_pair(&f, &p, I(4, 4), I(0, 0), 2);
    p.special = true;
    p.most = 4;
    check_pair(&f, &p, I(2, 4, 4, 3), I(0, 0, 0, 0), 4);
    p.text = "a b b a a";
    p.cut = TOKENIZER_CUT_START;
    check_pair(&f, &p, I(2, 4, 4, 3), I(0, 0, 0, 0), 4);
    p.most = 6;
    check_pair(&f, &p, I(2, 5, 5, 4, 4, 3), I(0, 0, 0, 0, 0, 0), 6);
    p.most = 7;
    check_pair(&f, &p, I(2, 4, 5, 5, 4, 4, 3), I(0, 0, 0, 0, 0, 0, 0), 7);
    p.text = "b ax a"; /* the pieces of a word that becomes unknown are dropped */
    p.bytes = 6;
    p.most = 4;
    check_pair(&f, &p, I(2, 1, 4, 3), I(0, 0, 0, 0), 4);
    p.most = 3;
    check_pair(&f, &p, I(2, 4, 3), I(0, 0, 0), 3);
    p.text = "a b b a a";
    p.bytes = 9;
    p.most = 0; /* the array is too small: all are counted */
    assert_int_equal(tokenizer_encode_pair(f.t, f.s, &p, two, NULL, 2, &n, &err), FTX_OK);
    assert_int_equal(n, 7);
    assert_memory_equal(two, I(2, 4), 8);
    assert_int_equal(tokenizer_encode_pair(f.t, f.s, &p, two, types, 2, &n, &err), FTX_OK);
    assert_memory_equal(types, I(0, 0, -1), sizeof types);
    end(&f);

    f = begin(SMALL "unigram.json", 100);
    p = (TokenizerPair){.text = "a", .bytes = 1, .other = "b", .other_bytes = 1, .special = true};
    check_pair(&f, &p, I(9, 1, 2, 4, 1), I(0, 0, 1, 1, 1), 5);
    end(&f);
    f = begin(SMALL "unicode.json", 100); /* RoBERTa's frame: two marks, one type */
    check_pair(&f, &p, I(3, 5, 3, 4, 4, 5, 4, 4), I(0, 0, 0, 0, 0, 0, 0, 0), 8);
    end(&f);
}

static void test_unigram(void **state)
{
    Fixture f = begin(SMALL "unigram.json", 100);
    (void)state;

    IDS(&f, "ab", 14);
    IDS(&f, "abc", 9, 7); /* as good as the other way: the first found stays */
    IDS(&f, "x", 2, 0);
    IDS(&f, "xyz a", 2, 0, 9); /* unknown neighbours are one token */
    IDS(&f, "axb", 9, 0, 4);
    IDS(&f, "\ta  b ", 9, 2, 4);
    IDS(&f, "</s>a<unk>", 1, 9, 0);
    IDS(&f, " ", );
    IDS(&f, "\xe3\x8e\xa1", 2, 11, 12); /* U+33A1: m2 */
    IDS(&f, "\xef\xbc\xa1", 2, 10);
    IDS(&f, "A\xcc\x81", 2, 13);            /* an entry of two characters */
    IDS(&f, "\xef\xbc\xa1\xcc\x81", 2, 10); /* a grapheme that begins with an entry is replaced whole */
    IDS(&f,
        "a\xc2\xad"
        "b",
        14); /* an entry without text */
    GIVES(&f, true, "abc a", 9, 7, 2, 3, 1);
    GIVES(&f, false, "abc</s> a", 9, 7, 1, 9);
    end(&f);
}

static void test_characters(void **state)
{
    Fixture f = begin(SMALL "characters.json", 100);
    (void)state;

    IDS(&f, "ab", 7);
    IDS(&f, "aab", 6, 5);
    IDS(&f, "\xc3\xa9", 2, 9 + 0xc3, 9 + 0xa9);
    IDS(&f, "<s>", 1);
    encode(&f, "c", 1, true);
    assert_memory_equal(f.ids, I(1, 2, 8), 12);
    GIVES(&f, true, "aab\xc3\xa9", 1, 6, 5, 9 + 0xc3, 9 + 0xa9);
    GIVES(&f, false, "<s> aab", 1, 6, 5);
    GIVES(&f, true, "a\xef\xbf\xbd a", 6, 9 + 0xc3, 6);
    end(&f);
}

/* Bytes that are no UTF-8: one U+FFFD for each longest start of a character (Unicode 15, section 3.9, table 3-8). */
static void test_maximal_subparts(void **state)
{
#define R "\xef\xbf\xbd"
#define B(byte) (9 + (byte))
    Fixture f = begin(SMALL "characters.json", 100);
    (void)state;

    GIVES(&f, true, R, B(0xe2), B(0x82));                                       /* the start of U+20AC */
    GIVES(&f, true, R "a", B(0xe2), B(0x82), B('a'));                           /* and not of what follows */
    GIVES(&f, true, R R R, B(0xe0), B(0x80), B(0x80));                          /* overlong: no byte goes on */
    GIVES(&f, true, R R R, B(0xed), B(0xa0), B(0x80));                          /* a surrogate */
    GIVES(&f, true, R "\xc3\xa9", B(0xf0), B(0x9f), B(0x98), B(0xc3), B(0xa9)); /* three of four bytes */
    GIVES(&f, true, R R R R, B(0xf4), B(0x90), B(0x80), B(0x80));               /* above U+10FFFF */
    GIVES(&f, true, R R, B(0xff), B(0xbf));
    GIVES(&f, true, "\xf4\x8f\xbf\xbf", B(0xf4), B(0x8f), B(0xbf), B(0xbf)); /* U+10FFFF itself */
    end(&f);
#undef B
#undef R
}

/* In a stream a half character waits for its end; an end of the text, which is no token, gives it out as U+FFFD. */
static void test_half_character_at_the_end(void **state)
{
    Fixture f = begin(SMALL "characters.json", 100);
    TokenizerStream d = {0};
    char text[64];
    size_t n;
    (void)state;

    assert_int_equal(tokenizer_stream(f.t, &d, 9 + 0xc3, false, text, sizeof text, &n, NULL), FTX_OK);
    assert_int_equal(n, 0);
    assert_int_equal(tokenizer_stream(f.t, &d, -1, true, text, sizeof text, &n, NULL), FTX_OK);
    assert_int_equal(n, 3);
    assert_memory_equal(text, "\xef\xbf\xbd", 3);
    assert_int_equal(tokenizer_stream(f.t, &d, -1, true, text, sizeof text, &n, NULL), FTX_OK);
    assert_int_equal(n, 0); /* once */
    end(&f);
}

static void test_unicode(void **state)
{
    Fixture f = begin(SMALL "unicode.json", 200);
    const char *out;
    int32_t ids[8];
    FtxError err;
    size_t n;
    (void)state;

    IDS(&f, "\xef\xbc\xa6i", 8); /* a wide F */
    IDS(&f, "\xef\xac\x81", 8);  /* a ligature */
    IDS(&f, "\xc3\xa1 B\xcc\xa3\xcc\x81", 5, 3, 5, 4);
    IDS(&f, "\xc3\x89n", 30);
    assert_int_equal(tokenizer_encode(f.t, f.s, "a!", 2, true, ids, 8, &n, &err), FTX_EINVAL);
    assert_non_null(strstr(err.text, "\"!\" is not in its vocabulary, which has no unknown token"));
    assert_int_equal(n, 0);
    assert_int_equal(tokenizer_normalize(f.t, f.s, "\x01\xef\xb7\xba", 4, &out, &n, &err), FTX_OK);
    assert_int_equal(n, 33); /* U+FDFA: the character that grows most */
    end(&f);
}

/* --- SentencePiece's files ---------------------------------------------------------------------- */

static SpmFile small_spm(int model, bool bytes)
{
    SpmFile f = {.n = 0};

    spm_piece(&f, "<unk>", 0, 2);
    spm_piece(&f, "<s>", 0, 3);
    spm_piece(&f, "<u>", 0, 4);
    spm_piece(&f, "\xe2\x96\x81", -3, 1);
    spm_piece(&f, "a", -4, 1);
    spm_piece(&f, "b", -5, 1);
    spm_piece(&f, "ab", -1, 1);
    spm_piece(&f,
              "\xe2\x96\x81"
              "a",
              -2, 1);
    spm_piece(&f, "<0xC3>", 0, 6);
    spm_piece(&f, "<0xA9>", 0, 6);
    spm_trainer(&f, model, bytes);
    return f;
}

static void test_spm_unigram(void **state)
{
    SpmFile file = small_spm(1, false);
    Fixture f = begin_spm(&file, 100);
    (void)state;

    IDS(&f, "  a  b ", 7, 3, 5);
    IDS(&f, "ab", 3, 6); /* -4, the other way -7 */
    IDS(&f, "a<u> b", 7, 2, 3, 5);
    IDS(&f, "a<u>b<u>", 7, 2, 5, 2); /* no space before what follows a piece of the user */
    IDS(&f, "<s>", 3, 0);            /* control pieces are no text */
    IDS(&f, "\xc3\xa9xa", 3, 0, 4);
    GIVES(&f, true, "ab a", 1, 3, 6, 7);
    GIVES(&f, true, "a \xe2\x81\x87 ", 7, 0);
    GIVES(&f, false, "<s> a", 1, 7);
    end(&f);
    file = small_spm(1, true);
    f = begin_spm(&file, 100);
    IDS(&f, "\xc3\xa9xa", 3, 0, 4); /* one byte has no piece: as a whole unknown */
    IDS(&f,
        "\xc3\xa9"
        "a",
        3, 8, 9, 4);
    GIVES(&f, true,
          "\xc3\xa9"
          "a",
          3, 8, 9, 4);
    end(&f);
    spm_normaliser(&file, false, false);
    f = begin_spm(&file, 100);
    IDS(&f, " a", 7);
    IDS(&f, "a  ", 4, 3, 3);
    GIVES(&f, true, " a ", 7, 3);
    end(&f);
}

static void test_spm_bpe(void **state)
{
    SpmFile file = small_spm(2, true);
    Fixture f = begin_spm(&file, 100);
    (void)state;

    IDS(&f, "ab", 3, 6); /* "ab" has the better score */
    IDS(&f, "aab", 7, 6);
    IDS(&f, "\xc3\xa9zz", 3, 8, 9, 0);
    GIVES(&f, true, "a ab", 7, 3, 6);
    end(&f);
}

static void test_spm_damaged(void **state)
{
    SpmFile file = small_spm(2, true);
    static const struct {
        const char *bytes, *reason;
        size_t n;
    } cases[] = {
        {"", "is no SentencePiece model", 0},
        {"\x0a\x03\x0a\x02"
         "a",
         "has no text", 5},
        {"\x0a\x80", "is no SentencePiece model", 2},
        {"\x0a\x04\x0a\x02\xff\xff", "no UTF-8", 6},
        {"\x0a\x03\x0a\x01"
         "a\x12\x02\x18\x04",
         "of the type 4", 9},
        {"\x0a\x03\x0a\x01"
         "a\x2a\x03\x12\x01x",
         "denormaliser", 10},
        {"\x0a\x03\x0a\x01"
         "a\x1a\x03\x12\x01x",
         "map of characters is cut", 10},
    };
    Arena *keep = arena_open();
    void *tables;
    size_t bytes;
    Diag d = {0};
    (void)state;

    for (size_t i = 0; i < LEN(cases); i++) {
        d = (Diag){0};
        assert_false(tokenizer_compile_bytes("x.spm", cases[i].bytes, cases[i].n, keep, &tables, &bytes, &d));
        if (!strstr(d.text, cases[i].reason))
            fail_msg("expected \"%s\" in: %s", cases[i].reason, d.text);
    }
    for (size_t i = 0; i < file.n; i++) { /* cut anywhere, or with any byte turned: refused or read */
        const unsigned char was = file.at[i];
        unsigned char *cut = malloc(i ? i : 1);

        assert_non_null(cut);
        memcpy(cut, file.at, i);
        tokenizer_compile_bytes("x.spm", cut, i, keep, &tables, &bytes, &d);
        free(cut);
        file.at[i] ^= 0xff;
        tokenizer_compile_bytes("x.spm", file.at, file.n, keep, &tables, &bytes, &d);
        file.at[i] = was;
    }
    arena_close(keep);
}

/* --- texts of users ------------------------------------------------------------------------------ */

/* The text of a special token as text: what transformers gives with split_special_tokens. */
static void test_literal(void **state)
{
    json_t *root = json_load_file("tests/tokenizer/literal.json", JSON_ALLOW_NUL, NULL), *c;
    const char *open = "";
    Fixture f = {0};
    size_t i, unlike = 0;
    FtxError err;

    (void)state;
    assert_non_null(root);
    json_array_foreach(json_object_get(root, "cases"), i, c)
    {
        const char *model = json_string_value(json_object_get(c, "tokenizer"));
        const char *text = json_string_value(json_object_get(c, "text"));
        const TokenizerPair pair = {.text = text, .bytes = strlen(text), .special = true, .literal = true};

        if (strcmp(open, model) != 0) {
            if (*open)
                end(&f);
            f = begin(model, 1000);
            open = model;
        }
        assert_int_equal(tokenizer_encode_pair(f.t, f.s, &pair, f.ids, NULL, f.max, &f.n, &err), FTX_OK);
        same_ids(&f, json_object_get(c, "literal"), text);
        encode_case(&f, c, true); /* the next call is not literal */
        same_ids(&f, json_object_get(c, "ids"), text);
        unlike += !json_equal(json_object_get(c, "ids"), json_object_get(c, "literal"));
    }
    assert_true(i >= 80 && unlike >= 60);
    json_decref(root);
    end(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_literal),
        cmocka_unit_test(test_emb),
        cmocka_unit_test(test_verse),
        cmocka_unit_test(test_wordpiece),
        cmocka_unit_test(test_clean_up),
        cmocka_unit_test(test_no_decoder),
        cmocka_unit_test(test_pairs),
        cmocka_unit_test(test_unigram),
        cmocka_unit_test(test_characters),
        cmocka_unit_test(test_unicode),
        cmocka_unit_test(test_maximal_subparts),
        cmocka_unit_test(test_half_character_at_the_end),
        cmocka_unit_test(test_spm_unigram),
        cmocka_unit_test(test_spm_bpe),
        cmocka_unit_test(test_spm_damaged),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
