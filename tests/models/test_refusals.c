/* test_refusals.c - invalid requests to decoders and encoder-decoders: submit refuses them with a clear message, and
 * requests that wait or run meanwhile give the same tokens as alone. */
#include "search.h"

enum { BESIDE = 3, LONG = 300 };

typedef struct Bed {
    FtxModel *model;
    FtxEngine *engine;
    bool source;
    int32_t ids[BESIDE][8];
    Found alone[BESIDE], beside[BESIDE];
} Bed;

static FtxRequest neighbour(Bed *b, int i, Found *f)
{
    FtxRequest r = beam_request(b->model, b->ids[i], 5 + (size_t)i, i == 2 ? 3 : 1, 10, f);

    r.temperature = i == 1 ? 1.1f : 0.0f;
    r.seed = 7;
    return r;
}

static void open_bed(Bed *b, const char *checkout, const char *name)
{
    char artifact[100];

    snprintf(artifact, sizeof artifact, "refusals-%s", name);
    b->source = strcmp(name, "source") == 0;
    b->model = golden_open(checkout, artifact,
                           b->source ? "-D tokenizer=tests/tokenizer/small/unicode.json -D decode.width=4 "
                                       "-D limits.sequences=8 -D limits.context=48 -D limits.source=40 "
                                       "-D limits.tokens=64 -D kv.block_size=8"
                                     : "-D tokenizer=tests/tokenizer/small/unicode.json -D decode.width=4 "
                                       "-D limits.sequences=8 -D limits.context=48 -D limits.tokens=64 "
                                       "-D kv.block_size=8");
    b->engine = golden_engine(b->model);
    for (int i = 0; i < BESIDE; i++) {
        for (int k = 0; k < 8; k++)
            b->ids[i][k] = 5 + (k * 31 + i * 77) % 290;

        const FtxRequest r = neighbour(b, i, &b->alone[i]);

        golden_submit(b->engine, &r);
        finish(b->engine);
    }
}

/* Submits a bad request while others wait and run: it is refused with a message that contains `words`, and the
 * results of the others do not change. */
static void refuse(Bed *b, const FtxRequest *bad, FtxStatus status, const char *words)
{
    FtxError err = {FTX_OK, ""};

    for (int i = 0; i < BESIDE; i++) {
        const FtxRequest r = neighbour(b, i, &b->beside[i]);

        golden_submit(b->engine, &r);
        assert_int_equal(ftx_engine_submit(b->engine, bad, NULL, &err), status);
        assert_int_equal(err.status, status);
        if (!strstr(err.text, words))
            fail_msg("\"%s\", expected \"%s\"", err.text, words);
        step(b->engine);
        assert_int_equal(ftx_engine_submit(b->engine, bad, NULL, &err), status);
    }
    finish(b->engine);
    for (int i = 0; i < BESIDE; i++)
        assert_true(same(&b->alone[i], &b->beside[i], &(const Rounding){.any = false}));
}

static void check(Bed *b)
{
    static Found f;
    static int32_t many[LONG];
    static char text[LONG + 1];
    const FtxRequest good = beam_request(b->model, b->ids[0], 5, 1, 4, &f);
    FtxRequest r = good;

    for (int i = 0; i < LONG; i++)
        many[i] = 5;
    memset(text, 'a', LONG);
    r.ids = many; /* too long, first as ids, then as text */
    r.ids_count = b->source ? 41 : 48;
    refuse(b, &r, FTX_EFULL,
           b->source ? "the source has 41 tokens; at most 40 fit"
                     : "the prompt has 48 tokens; with one new token that exceeds the context of 48");
    r = good;
    r.ids = NULL;
    r.text = text;
    refuse(b, &r, FTX_EFULL, b->source ? "the source has 303 tokens; at most 40 fit" : "the prompt has 303 tokens");
    r.text = ""; /* empty; this tokenizer would add a special token */
    r.no_bos = !b->source;
    refuse(b, &r, FTX_EINVAL, b->source ? "text: it is empty" : "the prompt is empty");
    r = good;
    r.ids_count = 0;
    refuse(b, &r, FTX_EINVAL, b->source ? "the source is empty" : "the prompt is empty");
    r = good;
    r.ids = NULL;
    refuse(b, &r, FTX_EINVAL, "neither text nor ids is set");
    r.text = "z"; /* not in the vocabulary, which has no unknown token */
    refuse(b, &r, FTX_EINVAL, "\"z\" is not in its vocabulary, which has no unknown token");
    r = good; /* bad words that cannot be tokenized */
    r.bad_words = (const char *const[]){"z"};
    r.bad_words_count = 1;
    refuse(b, &r, FTX_EINVAL, "bad_words[0]: tokenizer: \"z\" is not in its vocabulary");
    r.bad_words = (const char *const[]){"\x01"}; /* the normaliser removes it */
    refuse(b, &r, FTX_EINVAL, "is 0 tokens, expected 1 to 512");
    r = good; /* unknown ids in each field that takes ids */
    many[2] = 320;
    r.ids = many;
    refuse(b, &r, FTX_EINVAL, "ids[2]: 320 is no token id");
    many[2] = -1;
    refuse(b, &r, FTX_EINVAL, "ids[2]: -1 is no token id");
    r = good;
    r.stop_ids = (const int32_t[]){2, 999};
    r.stop_ids_count = 2;
    refuse(b, &r, FTX_EINVAL, "stop_ids[1]: 999 is no token id");
    r = good;
    r.bias_ids = (const int32_t[]){400};
    r.bias_values = (const float[]){1.0f};
    r.bias_count = 1;
    refuse(b, &r, FTX_EINVAL, "bias_ids[0]: 400 is no token id");
    r = good;
    r.prefix = (const int32_t[]){3, 777};
    r.prefix_count = 2;
    refuse(b, &r, FTX_EINVAL, b->source ? "prefix[1]: 777 is no token id" : "the model reads no source");
    r = good; /* more beams than the artifact was compiled for, and than any may have */
    r.beams = 5;
    refuse(b, &r, FTX_EINVAL, "beams: expected 0 to 4, found 5");
    r.beams = 1000;
    refuse(b, &r, FTX_EINVAL, "beams: expected 0 to 64, found 1000");
    ftx_engine_close(b->engine);
    ftx_model_close(b->model);
}

static void decoder(void **state)
{
    static Bed b;

    (void)state;
    open_bed(&b, "tests/models/tiny-llama", "decoder");
    check(&b);
}

static void source(void **state)
{
    static Bed b;

    (void)state;
    open_bed(&b, "tests/models/tiny-bart", "source");
    check(&b);
}

/* The start token and the forced first token fill the whole context. */
static void full(void **state)
{
    FtxModel *model = golden_open("tests/models/tiny-bart", "refusals-full",
                                  "-D limits.context=2 -D limits.source=8 -D decode.forced_bos=5");
    FtxEngine *engine = golden_engine(model);
    FtxRequest r = ftx_request_default(model);
    FtxError err = {FTX_OK, ""};

    (void)state;
    r.ids = (const int32_t[]){5, 6, 7};
    r.ids_count = 3;
    assert_int_equal(ftx_engine_submit(engine, &r, NULL, &err), FTX_EFULL);
    assert_non_null(strstr(err.text, "the context of 2 has no room for another"));
    ftx_engine_close(engine);
    ftx_model_close(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(decoder), cmocka_unit_test(source), cmocka_unit_test(full)};

    return cmocka_run_group_tests_name("refusals", tests, NULL, NULL);
}
