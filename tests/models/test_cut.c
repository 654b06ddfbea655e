/* test_cut.c - a prompt with more bytes than the engine has room for is truncated before tokenization, and never
 * inside a UTF-8 character.
 *
 * The texts have hundreds of soft hyphens, which the normaliser drops, so they have many bytes and few tokens. The
 * prompt has room for two tokens. Bytes of a cut character would become one of them, the unknown token. The API does
 * not return the ids of a prompt, so the test compares its logits. */
#include "golden.h"

enum { VOCAB = 320, MOST = 2 };

static FtxStatus logits_of(FtxEngine *engine, FtxRequest *r, float *to)
{
    static GoldenAnswer answer;
    FtxError err;
    uint64_t id;

    answer = (GoldenAnswer){0};
    r->user = &answer;
    r->max_new = 1;
    r->temperature = 0.0f;
    r->logits = true;
    if (ftx_engine_submit(engine, r, &id, &err))
        return err.status;
    golden_finish(engine);
    assert_non_null(ftx_engine_logits(engine, id));
    memcpy(to, ftx_engine_logits(engine, id), VOCAB * sizeof *to);
    return FTX_OK;
}

/* A word, soft hyphens and U+33A1; with from_start in reverse order. U+33A1 has three bytes and becomes the tokens
 * "m" and "2". */
static void make_text(char *text, const char *word, size_t hyphens, bool from_start)
{
    char *p = stpcpy(text, from_start ? "\xe3\x8e\xa1" : word);

    for (size_t i = 0; i < hyphens; i++)
        p = stpcpy(p, "\xc2\xad");
    strcpy(p, from_start ? word : "\xe3\x8e\xa1");
}

/* The logits after the MOST tokens that truncation keeps. */
static void clean_logits(FtxModel *model, FtxEngine *engine, const char *word, bool from_start, float *to)
{
    FtxRequest r = ftx_request_default(model);
    int32_t ids[16];
    char text[100];
    FtxError err;
    size_t n;

    make_text(text, word, 3, from_start);
    assert_int_equal(ftx_tokenize(model, text, strlen(text), false, ids, 16, &n, &err), FTX_OK);
    assert_in_range(n, MOST + 1, 16);
    r.ids = from_start ? ids + n - MOST : ids;
    r.ids_count = MOST;
    assert_int_equal(logits_of(engine, &r, to), FTX_OK);
}

static void cut_between_characters(void **state)
{
    static const char *const words[] = {"a", "ab"}; /* one token, 1 and 2 bytes: the cut meets every byte of a hyphen */
    FtxModel *model = golden_open("tests/models/tiny-llama", "cut",
                                  "-D tokenizer=tests/tokenizer/small/unigram.json -D limits.context=24");
    FtxEngine *engine = golden_engine(model);
    static char text[4096];

    (void)state;
    for (int i = 0; i < 4; i++) {
        static float clean[VOCAB], got[VOCAB];
        const bool from_start = i & 1;
        int whole = 0, refused = 0;

        clean_logits(model, engine, words[i / 2], from_start, clean);
        for (size_t hyphens = 500; hyphens < 760; hyphens++) {
            FtxRequest r = ftx_request_default(model);

            make_text(text, words[i / 2], hyphens, from_start);
            r.text = text;
            r.no_bos = true;
            r.truncate = from_start ? FTX_TRUNCATE_START : FTX_TRUNCATE_END;
            r.max_prompt = MOST;
            if (logits_of(engine, &r, got)) { /* refused: the bytes that remain have too few tokens */
                refused++;
                continue;
            }
            whole++;
            if (memcmp(got, clean, sizeof got) != 0)
                fail_msg("\"%s\" and %zu hyphens, cut at the %s: other logits than of its first or last tokens",
                         words[i / 2], hyphens, from_start ? "start" : "end");
        }
        assert_true(whole > 20 && refused > 20);
    }
    ftx_engine_close(engine);
    ftx_model_close(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(cut_between_characters)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
