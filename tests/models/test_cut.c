/* test_cut.c - prompts of more bytes than an engine has room for are cut before they are tokenized: never inside a
 * character, wherever the cut falls.
 *
 * The vocabulary has no token for half a character, so one would be the unknown token. The prompt's ids cannot be seen
 * from outside; its logits can, and are those of one of the prompts that a clean cut may leave. */
#include "golden.h"

enum { VOCAB = 320, CONTEXT = 24, WORD = 2, M = 11, TWO = 12, A = 9 }; /* of unigram.json: U+33A1 is " m2" */

static void logits_of(FtxEngine *engine, FtxRequest *r, float *to)
{
    static GoldenAnswer answer;
    uint64_t id;

    answer = (GoldenAnswer){0};
    r->user = &answer;
    r->max_new = 1;
    r->temperature = 0.0f;
    r->logits = true;
    id = golden_submit(engine, r);
    golden_finish(engine);
    assert_non_null(ftx_engine_logits(engine, id));
    memcpy(to, ftx_engine_logits(engine, id), VOCAB * sizeof *to);
}

static bool is_one_of(const float *logits, float (*clean)[VOCAB], int n)
{
    for (int i = 0; i < n; i++)
        if (memcmp(logits, clean[i], VOCAB * sizeof *logits) == 0)
            return true;
    return false;
}

/* "a", spaces, characters of three bytes; or the other way round. Spaces are squeezed. */
static void make_text(char *text, size_t spaces, bool from_start)
{
    static const char three[] = "\xe3\x8e\xa1\xe3\x8e\xa1";
    char *p = text;

    if (from_start)
        p = stpcpy(p, three);
    else
        *p++ = 'a';
    memset(p, ' ', spaces);
    p += spaces;
    strcpy(p, from_start ? "a" : three);
}

static void cut_between_characters(void **state)
{
    FtxModel *model = golden_open("tests/models/tiny-llama", "cut",
                                  "-D tokenizer=tests/tokenizer/small/unigram.json -D limits.context=24");
    FtxEngine *engine = golden_engine(model);
    static char text[4096];

    (void)state;
    for (int from_start = 0; from_start < 2; from_start++) {
        static const int32_t end[][8] = {{A}, {A, WORD, M, TWO}, {A, WORD, M, TWO, M, TWO}};
        static const int32_t start[][8] = {{A}, {WORD, M, TWO, A}, {WORD, M, TWO, M, TWO, A}};
        static const size_t n[][3] = {{1, 4, 6}, {1, 4, 6}};
        static float clean[3][VOCAB], got[VOCAB];
        int shortest = 0;

        for (int i = 0; i < 3; i++) {
            FtxRequest r = ftx_request_default(model);

            r.ids = from_start ? start[i] : end[i];
            r.ids_count = n[from_start][i];
            logits_of(engine, &r, clean[i]);
        }
        for (size_t spaces = 1000; spaces < 1024 + CONTEXT * 16 + 8; spaces++) {
            FtxRequest r = ftx_request_default(model);

            make_text(text, spaces, from_start);
            r.text = text;
            r.no_bos = true;
            r.truncate = from_start ? FTX_TRUNCATE_START : FTX_TRUNCATE_END;
            logits_of(engine, &r, got);
            if (!is_one_of(got, clean, 3))
                fail_msg("%zu spaces, cut at the %s: other logits than any clean cut gives", spaces,
                         from_start ? "start" : "end");
            shortest += memcmp(got, clean[0], sizeof got) == 0;
        }
        assert_true(shortest > 0); /* some were cut */
    }
    ftx_engine_close(engine);
    ftx_model_close(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(cut_between_characters)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
