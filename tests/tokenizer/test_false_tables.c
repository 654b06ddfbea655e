/* test_false_tables.c - tables with one false number each: the runtime refuses them and says what is wrong. */
#include "tools.h"

#include "runtime/tokenizer/format.h"

static const char SMALL_BPE[] = "{\"model\":{\"type\":\"BPE\",\"unk_token\":\"u\",\"vocab\":"
                                "{\"a\":0,\"b\":1,\"ab\":2,\"u\":3},\"merges\":[\"a b\"]}}";

static TokPart *part_of(Fixture *f, uint32_t kind)
{
    TokPart *p = (TokPart *)((TokHeader *)f->tables + 1);

    while (p->kind != kind)
        p++;
    return p;
}

static void *at_part(Fixture *f, uint32_t kind)
{
    return (char *)f->tables + part_of(f, kind)->offset;
}

static void opens(const Fixture *f, bool well, const char *reason)
{
    FtxError err;
    Tokenizer *t;

    assert_int_equal(tokenizer_open(f->tables, f->bytes, &t, &err), well ? FTX_OK : FTX_EFORMAT);
    if (!well && !strstr(err.text, reason))
        fail_msg("expected \"%s\" in: %s", reason, err.text);
    tokenizer_close(t);
}

/* The visible space of Metaspace is one character: a longer one could have no room. */
static void test_mark(void **state)
{
    Fixture f = begin_json(BPE("\"a\":0", "", "\"pre_tokenizer\":{\"type\":\"Metaspace\",\"replacement\":\"_\"}"), 100);
    TokStep *step = at_part(&f, TOK_PART_STEPS);
    (void)state;

    assert_memory_equal((char *)at_part(&f, TOK_PART_BYTES) + step->offset, "_ ", 2);
    for (step->bytes = 0; step->bytes <= 2; step->bytes++)
        opens(&f, step->bytes == 1, "step 0 is unknown");
    end(&f);
}

static void test_unknown_norm(void **state)
{
    Fixture f = begin_json(NORMALIZER("{\"type\":\"NFC\"}"), 100);
    TokNorm *norm = at_part(&f, TOK_PART_NORMS);
    (void)state;

    for (norm->kind = TOK_NORM_COUNT + 1; norm->kind >= TOK_NORM_COUNT; norm->kind--)
        opens(&f, false, "step 0 of its normaliser is unknown");
    norm->kind = 0;
    opens(&f, false, "step 0 of its normaliser is unknown");
    end(&f);
}

/* Tables of the oldest format are read, those of others are not. */
static void test_format(void **state)
{
    Fixture f = begin_json(SMALL_BPE, 100);
    TokHeader *head = f.tables;
    FtxError err;
    Tokenizer *t;
    (void)state;

    assert_int_equal(head->format, TOK_FORMAT);
    for (head->format = TOK_FORMAT_OLDEST - 1; head->format <= TOK_FORMAT + 1; head->format++) {
        const bool known = head->format >= TOK_FORMAT_OLDEST && head->format <= TOK_FORMAT;

        assert_int_equal(tokenizer_open(f.tables, f.bytes, &t, &err), known ? FTX_OK : FTX_EVERSION);
        if (!known)
            assert_non_null(strstr(err.text, "this libftx reads 2 to 3"));
        tokenizer_close(t);
    }
    end(&f);
}

/* The end of words has a place in the tables; bytes become characters once. */
static void test_new_steps(void **state)
{
    Fixture f = begin_json(SMALL_BPE, 100);
    TokFacts *facts = at_part(&f, TOK_PART_FACTS);
    TokStep *steps;
    (void)state;

    ((TokMerge *)at_part(&f, TOK_PART_MERGES))->rank = 1;
    opens(&f, false, "merge 0 is of no tokens");
    ((TokMerge *)at_part(&f, TOK_PART_MERGES))->rank = 0;
    facts->suffix_offset = 1;
    facts->suffix_bytes = UINT32_MAX;
    opens(&f, false, "the suffix of its words is not inside the tables");
    end(&f);
    f = begin_json(BPE("\"a\":0", "",
                       "\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"ByteLevel\","
                       "\"add_prefix_space\":false},{\"type\":\"WhitespaceSplit\"}]}"),
                   100);
    steps = at_part(&f, TOK_PART_STEPS);
    assert_int_equal(steps[1].kind, TOK_STEP_BYTES);
    assert_int_equal(steps[2].kind, TOK_STEP_BLANKS);
    steps[2].kind = TOK_STEP_BYTES;
    opens(&f, false, "step 2 is unknown");
    steps[2].kind = TOK_STEP_BYTES + 1;
    opens(&f, false, "step 2 is unknown");
    steps[2].kind = TOK_STEP_BLANKS;
    opens(&f, true, "");
    end(&f);
}

/* The map of characters: the last text has an end, and an entry whose text would lie behind the last is none. */
static void test_map(void **state)
{
    Fixture f = begin(SMALL "unigram.json", 100);
    unsigned char *map = at_part(&f, TOK_PART_CHARSMAP);
    const size_t bytes = (size_t)part_of(&f, TOK_PART_CHARSMAP)->bytes;
    uint32_t units, unit;
    (void)state;

    normalises(&f, "\xe3\x8e\xa1", "m2"); /* U+33A1 */
    memcpy(&units, map, 4);
    assert_int_equal(map[bytes - 1], 0);
    map[bytes - 1] = 'x';
    opens(&f, false, "its map of characters has");
    map[bytes - 1] = 0;
    opens(&f, true, NULL);
    for (uint32_t at = 4; at < 4 + units; at += 4) { /* the values, which have the highest bit */
        memcpy(&unit, map + at, 4);
        if (unit >> 31) {
            unit = 1u << 31 | (uint32_t)(bytes - 4 - units);
            memcpy(map + at, &unit, 4);
        }
    }
    normalises(&f, "\xe3\x8e\xa1", "\xe3\x8e\xa1");
    end(&f);
}

static void test_parts(void **state)
{
    Fixture f = begin_json(SMALL_BPE, 100);
    TokPart *bytes = part_of(&f, TOK_PART_BYTES);
    (void)state;

    bytes->bytes = f.bytes - bytes->offset;
    opens(&f, true, NULL);
    bytes->bytes++;
    opens(&f, false, "is not inside the tables");
    *bytes = (TokPart){.kind = TOK_PART_TOKENS, .offset = bytes->offset};
    opens(&f, false, "there twice");
    end(&f);
}

/* Without the last token, which is the unknown one, there is none of its id: what stands behind the array is no token. */
static void test_last_token(void **state)
{
    Fixture f = begin_json(SMALL_BPE, 100);
    const TokFacts *facts = at_part(&f, TOK_PART_FACTS);
    (void)state;

    assert_int_equal(facts->unknown, 3);
    part_of(&f, TOK_PART_TOKENS)->bytes -= sizeof(TokToken);
    opens(&f, false, "its unknown token 3 is none");
    end(&f);
}

/* A search for a pair ends at a free slot. */
static void test_full_table(void **state)
{
    Fixture f = begin_json(SMALL_BPE, 100);
    uint32_t *slot = at_part(&f, TOK_PART_PAIRS);
    const size_t n = (size_t)part_of(&f, TOK_PART_PAIRS)->bytes / sizeof *slot;
    (void)state;

    assert_true(n > 1);
    for (size_t i = 0; i < n; i++) {
        opens(&f, true, NULL);
        slot[i] = 1;
    }
    opens(&f, false, "its table of pairs is full");
    slot[0] = 2;
    opens(&f, false, "slot 0 of its pairs is out of range");
    end(&f);
}

static void test_trie(void **state)
{
    Fixture f = begin_json(SMALL_BPE, 100);
    TokNode *root = at_part(&f, TOK_PART_TRIE);
    const uint32_t n = (uint32_t)(part_of(&f, TOK_PART_PIECES)->bytes / sizeof(TokPiece));
    (void)state;

    root->piece = n;
    opens(&f, true, NULL);
    root->piece = n + 1;
    opens(&f, false, "node 0 of its trie is of no piece");
    end(&f);
}

/* Around a text stands [CLS]; with the text in its place there would be two. */
static void test_frame(void **state)
{
    Fixture f = begin(SMALL "wordpiece.json", 100);
    TokFrame *frame = at_part(&f, TOK_PART_FRAME);
    (void)state;

    assert_int_equal(frame[1].id, TOK_TEXT);
    frame[0].id = TOK_TEXT;
    opens(&f, false, "no place for a text, or several");
    end(&f);
}

static void test_added(void **state)
{
    Fixture f =
        begin_recipe(&(Recipe){.added = "{\"id\":300,\"content\":\"<x>\"},{\"id\":301,\"content\":\"<y>\"}"}, 100);
    TokAdded *added = at_part(&f, TOK_PART_ADDED);
    (void)state;

    added[1].offset = added[0].offset; /* two of one text */
    opens(&f, false, "added token 1 is not in order");
    end(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_format),       cmocka_unit_test(test_new_steps),  cmocka_unit_test(test_mark),
        cmocka_unit_test(test_unknown_norm), cmocka_unit_test(test_map),        cmocka_unit_test(test_parts),
        cmocka_unit_test(test_last_token),   cmocka_unit_test(test_full_table), cmocka_unit_test(test_trie),
        cmocka_unit_test(test_frame),        cmocka_unit_test(test_added),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
