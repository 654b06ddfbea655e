/* test_seq2seq.c - encoder-decoders against Hugging Face transformers, greedy: the tokens are equal
 * for each source alone and for all together, in any batch of the encoder; `verse` on its held-out
 * sentences. Logits are compared with a plain pass. Beam search has its own tests.
 *
 * On a device that computes in 16 bits a text may differ from the reference where the logits of two ids are within
 * the tolerance, which is measured with the plain pass. */
#include "drawn.h"
#include "plain_source.h"

enum { MAX_SOURCE = 256, MAX_CASES = 64 };

typedef struct Case {
    int32_t ids[MAX_SOURCE], want[MAX_SOURCE];
    size_t n, n_want;
    GoldenAnswer answer;
    uint64_t id;
} Case;

static void submit(FtxEngine *engine, const FtxModel *model, Case *c, int max_new)
{
    FtxRequest r = ftx_request_default(model);

    c->answer = (GoldenAnswer){0};
    r.ids = c->ids;
    r.ids_count = c->n;
    r.temperature = 0.0f;
    r.beams = 1;
    if (max_new)
        r.max_new = max_new;
    r.user = &c->answer;
    c->id = golden_submit(engine, &r);
}

/* Whether the i-th token may differ: its logit and the expected one's are within the tolerance. */
static bool may_part(PlainSource *plain, const Case *c, size_t i)
{
    const int32_t got = c->answer.ids[i], want = c->want[i];

    if (plain_source_type(plain) == DT_FP32 || got < 0 || (uint32_t)got >= plain->facts->vocab)
        return false;

    const double allowed = plain_source_allowed(plain, c->ids, (int)c->n, c->want, (int)i);

    return (double)(plain->logits[want] - plain->logits[got]) <= 2.0 * allowed;
}

static void check(const char *name, const Case *c, PlainSource *plain)
{
    for (size_t i = 0; i < c->n_want && i < c->answer.n; i++)
        if (c->answer.ids[i] != c->want[i]) {
            if (may_part(plain, c, i))
                return;
            fail_msg("%s, a source of %zu, token %zu: %d, expected %d", name, c->n, i, c->answer.ids[i], c->want[i]);
        }
    if (c->answer.n != c->n_want)
        fail_msg("%s, a source of %zu: %zu tokens, expected %zu", name, c->n, c->answer.n, c->n_want);
}

/* Compares the raw logits after the first n expected tokens. */
static void check_logits(FtxEngine *engine, const FtxModel *model, PlainSource *plain, const Case *c, size_t n)
{
    static GoldenAnswer ignored;
    const double allowed = plain_source_allowed(plain, c->ids, (int)c->n, c->want, (int)n);
    FtxRequest r = ftx_request_default(model);
    const float *logits;
    uint64_t id;

    ignored = (GoldenAnswer){0};
    r.ids = c->ids;
    r.ids_count = c->n;
    r.prefix = n ? c->want : NULL;
    r.prefix_count = n;
    r.beams = 1;
    r.temperature = 0.0f;
    r.logits = true;
    r.max_new = 1;
    r.user = &ignored;
    id = golden_submit(engine, &r);
    golden_finish(engine);
    logits = ftx_engine_logits(engine, id);
    assert_non_null(logits);
    for (uint32_t i = 0; i < plain->facts->vocab; i++)
        if (!(fabs((double)(logits[i] - plain->logits[i])) <= allowed))
            fail_msg("a source of %zu and %zu tokens: logit %u is %g, the plain pass has %g (%g away)", c->n, n, i,
                     (double)logits[i], (double)plain->logits[i], allowed);
}

static void open_plain(PlainSource *m, const char *artifact, FtxAct act, bool scaled, int first_position)
{
    char path[1000];

    golden_path(artifact, path, sizeof path);
    plain_source_open(m, path, act, scaled, first_position);
}

/* Measures the effect of rounding to 16 bits on a model: the tolerance of devices. docs/testing.md has these
 * figures. */
static void check_roundings(const char *name, PlainSource *plain, const Case *c, size_t n)
{
    double fp16 = 0.0, bf16 = 0.0;

    for (size_t i = 0; i < n; i++) {
        fp16 = fmax(fp16, plain_source_rounding(plain, DT_FP16, c[i].ids, (int)c[i].n, c[i].want, 5));
        bf16 = fmax(bf16, plain_source_rounding(plain, DT_BF16, c[i].ids, (int)c[i].n, c[i].want, 5));
    }
    print_message("%s: values kept in fp16 move a logit by %.1e, in bf16 by %.1e\n", name, fp16, bf16);
    assert_true(fp16 > 1e-4 && bf16 > 4.0 * fp16 && bf16 < 16.0 * fp16); /* bf16 has three mantissa bits less */
}

/* --- random weights ----------------------------------------------------------------------------------- */

static const struct {
    const char *name, *defines;
} variants[] = {
    {"wide", ""},
    {"narrow", "-D limits.sequences=2 -D limits.source=40 -D limits.tokens=40 -D limits.context=40"},
};

/* The expected ids begin with the start token, which is skipped: the model does not generate it. */
static size_t read_cases(const json_t *golden, Case *c)
{
    const json_t *prompts = json_object_get(golden, "prompts");

    for (size_t i = 0; i < json_array_size(prompts); i++) {
        const json_t *p = json_array_get(prompts, i);
        int32_t ids[MAX_SOURCE];

        c[i].n = golden_ids(json_object_get(p, "input_ids"), c[i].ids, MAX_SOURCE);
        c[i].n_want = golden_ids(json_object_get(p, "beam1"), ids, MAX_SOURCE) - 1;
        memcpy(c[i].want, ids + 1, c[i].n_want * sizeof *ids);
    }
    return json_array_size(prompts);
}

/* Runs the three sources one after another, then together. */
static void check_tiny(const char *name, FtxModel *model, PlainSource *plain)
{
    enum { CASES = 3 };
    static Case c[MAX_CASES];
    FtxEngine *engine = golden_engine(model);
    char path[200];
    FtxModelInfo info;
    json_t *golden;

    snprintf(path, sizeof path, "tests/models/%s/golden.json", name);
    golden = golden_json(path);
    assert_int_equal(read_cases(golden, c), CASES);
    ftx_model_info(model, &info);
    assert_int_equal(info.kind, FTX_MODEL_SEQ2SEQ);
    for (size_t i = 0; i < CASES; i++) {
        submit(engine, model, &c[i], 20);
        golden_finish(engine);
        check(name, &c[i], plain);
    }
    for (size_t i = 0; i < CASES; i++)
        submit(engine, model, &c[i], 20);
    golden_finish(engine);
    for (size_t i = 0; i < CASES; i++) {
        check(name, &c[i], plain);
        for (size_t n = 0; n < c[i].n_want; n += 1 + n)
            check_logits(engine, model, plain, &c[i], n);
    }
    ftx_engine_close(engine);
    ftx_model_close(model);
    plain_source_close(plain);
    json_decref(golden);
}

static void bart(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        static const char *const names[] = {"tiny-bart-wide", "tiny-bart-narrow"};
        FtxModel *model = golden_open("tests/models/tiny-bart", names[i], variants[i].defines);
        PlainSource plain;

        open_plain(&plain, names[i], FTX_ACT_GELU_ERF, false, 2);
        check_tiny("tiny-bart", model, &plain);
    }
}

/* The reference of tiny-marian was computed with random position tables: see drawn.h. */
static void marian_drawn(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        static const char *const names[] = {"marian-drawn-wide", "marian-drawn-narrow"};
        FtxModel *model = drawn_open(names[i], variants[i].defines);
        PlainSource plain;

        open_plain(&plain, names[i], FTX_ACT_RELU, true, 0);
        check_tiny("tiny-marian", model, &plain);
    }
}

/* The checkpoint itself, with sinusoidal positions, against an independent forward pass in double precision. */
static void marian(void **state)
{
    static const int ids[] = {110, 27, 238, 258};
    static const double want[] = {7.7417054533635365, 6.606647022569788, 6.172337248532306, 6.154052939863146};
    static Case c[3];
    FtxModel *model;
    FtxEngine *engine;
    PlainSource plain;
    double allowed;
    FtxRequest r;
    const float *logits;
    uint64_t id;
    json_t *golden;

    (void)state;
    golden = golden_json("tests/models/tiny-marian/golden.json");
    read_cases(golden, c);
    model = golden_open("tests/models/tiny-marian", "tiny-marian-wide", "");
    engine = golden_engine(model);
    r = ftx_request_default(model);
    r.ids = c[2].ids;
    r.ids_count = c[2].n;
    r.beams = 1;
    r.logits = true;
    r.max_new = 2;
    r.user = &c[2].answer;
    id = golden_submit(engine, &r);
    golden_finish(engine);
    logits = ftx_engine_logits(engine, id);
    assert_non_null(logits);
    open_plain(&plain, "tiny-marian-wide", FTX_ACT_RELU, true, 0);
    allowed = plain_source_allowed(&plain, c[2].ids, (int)c[2].n, NULL, 0);
    for (size_t i = 0; i < 4; i++) {
        if (!(fabs((double)logits[ids[i]] - want[i]) < allowed))
            fail_msg("logit %d is %g, expected %g", ids[i], (double)logits[ids[i]], want[i]);
        if (!(fabs((double)plain.logits[ids[i]] - want[i]) < 1e-3))
            fail_msg("the plain logit %d is %g, expected %g", ids[i], (double)plain.logits[ids[i]], want[i]);
    }
    plain_source_close(&plain);
    ftx_engine_close(engine);
    ftx_model_close(model);
    json_decref(golden);
}

/* --- refused requests, and prefixes of the decoder -------------------------------------------------------- */

static void requests(void **state)
{
    static Case c[MAX_CASES];
    static GoldenAnswer answer;
    FtxModel *model = golden_open("tests/models/tiny-bart", "tiny-bart-narrow", variants[1].defines);
    FtxEngine *engine = golden_engine(model);
    json_t *golden = golden_json("tests/models/tiny-bart/golden.json");
    PlainSource plain;
    FtxRequest r = ftx_request_default(model);
    int32_t ids[41] = {12, 301};
    FtxError err;

    (void)state;
    read_cases(golden, c);
    r.ids = ids;
    r.ids_count = 2;
    assert_int_equal(ftx_engine_submit(engine, &r, NULL, &err), FTX_EINVAL);
    assert_non_null(strstr(err.text, "ids[1]: 301 is no token id (0 to 300)"));
    ids[1] = 0;
    r.ids_count = 41;
    assert_int_equal(ftx_engine_submit(engine, &r, NULL, &err), FTX_EFULL);
    assert_non_null(strstr(err.text, "the source has 41 tokens; at most 40 fit"));
    r.ids_count = 0;
    assert_int_equal(ftx_engine_submit(engine, &r, NULL, &err), FTX_EINVAL);
    assert_non_null(strstr(err.text, "the source is empty"));
    r.ids_count = 2;
    r.prompt_logprobs = 1;
    assert_int_equal(ftx_engine_submit(engine, &r, NULL, &err), FTX_EINVAL);
    assert_string_equal(err.text, "prompt_logprobs: the model reads a source, which has none");
    r.prompt_logprobs = 0;
    r.beams = 2;
    r.top_logprobs = 1;
    assert_int_equal(ftx_engine_submit(engine, &r, NULL, &err), FTX_EINVAL);
    assert_string_equal(err.text, "top_logprobs, prompt_logprobs, mask: not with a beam search");
    submit(engine, model, &c[1], 20);

    r = ftx_request_default(model); /* a prefix of the expected tokens does not change the text */
    r.ids = c[1].ids;
    r.ids_count = c[1].n;
    r.beams = 1;
    r.prefix = c[1].want;
    r.prefix_count = 5;
    r.max_new = 15;
    r.user = &answer;
    answer = (GoldenAnswer){0};
    golden_submit(engine, &r);
    golden_finish(engine);
    open_plain(&plain, "tiny-bart-narrow", FTX_ACT_GELU_ERF, false, 2);
    check("beside refused ones", &c[1], &plain);
    c[1].answer.n = c[1].n_want; /* the prefix and the new tokens */
    memcpy(c[1].answer.ids, c[1].want, 5 * sizeof *answer.ids);
    memcpy(c[1].answer.ids + 5, answer.ids, 15 * sizeof *answer.ids);
    assert_int_equal(answer.n, 15);
    check("behind a prefix", &c[1], &plain);
    plain_source_close(&plain);
    ftx_engine_close(engine);
    ftx_model_close(model);
    json_decref(golden);
}

/* --- a trained model ------------------------------------------------------------------------------------------ */

static void verse(void **state)
{
    static Case c[MAX_CASES];
    PlainSource plain;
    FtxModel *model;
    FtxEngine *engine;
    json_t *golden = golden_json("tests/models/verse/greedy.json"), *cases;

    (void)state;
    cases = json_object_get(golden, "cases");
    assert_int_equal(json_array_size(cases), MAX_CASES);
    model = golden_open("specs/verse.lua", "verse-ids", "-D tokenizer= -D decode.width=1");
    engine = golden_engine(model);
    for (size_t i = 0; i < MAX_CASES; i++) {
        const json_t *p = json_array_get(cases, i);
        int32_t ids[MAX_SOURCE];

        c[i].n = golden_ids(json_object_get(p, "source_ids"), c[i].ids, MAX_SOURCE);
        c[i].n_want = golden_ids(json_object_get(p, "ids"), ids, MAX_SOURCE) - 1;
        memcpy(c[i].want, ids + 1, c[i].n_want * sizeof *ids);
        submit(engine, model, &c[i], 0);
    }
    golden_finish(engine);
    open_plain(&plain, "verse-ids", FTX_ACT_SILU, true, 0);
    for (size_t i = 0; i < MAX_CASES; i++) {
        check("verse", &c[i], &plain);
        assert_int_equal(c[i].answer.finish, FTX_FINISH_END);
    }
    for (size_t i = 0; i < MAX_CASES; i += 16)
        check_logits(engine, model, &plain, &c[i], c[i].n_want / 2);
    check_roundings("verse", &plain, c, MAX_CASES / 8);
    plain_source_close(&plain);
    ftx_engine_close(engine);
    ftx_model_close(model);
    json_decref(golden);
}

/* If generation_config says so, the last token at the length limit is the end id. */
static void forced_end(void **state)
{
    static Case c;
    FtxModel *model = golden_open("specs/verse.lua", "verse-ids", "-D tokenizer= -D decode.width=1");
    FtxEngine *engine = golden_engine(model);

    (void)state;
    memcpy(c.ids, (int32_t[]){60, 301, 139, 396, 611, 2, 0}, 7 * sizeof *c.ids);
    c.n = 7;
    submit(engine, model, &c, 3);
    golden_finish(engine);
    assert_int_equal(c.answer.n, 3);
    assert_int_equal(c.answer.ids[0], 173);
    assert_int_equal(c.answer.ids[1], 318);
    assert_int_equal(c.answer.ids[2], 0);
    assert_int_equal(c.answer.finish, FTX_FINISH_END);
    ftx_engine_close(engine);
    ftx_model_close(model);
}

static void roundings(void **state)
{
    static const struct {
        const char *name, *spec, *golden;
        FtxAct act;
        bool scaled;
        int first_position;
    } models[] = {
        {"tiny-bart", "tests/models/tiny-bart", "tests/models/tiny-bart/golden.json", FTX_ACT_GELU_ERF, false, 2},
        {"tiny-marian", "tests/models/tiny-marian", "tests/models/tiny-marian/golden.json", FTX_ACT_RELU, true, 0}};
    static Case c[MAX_CASES];

    (void)state;
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        json_t *golden = golden_json(models[i].golden);
        const size_t cases = read_cases(golden, c);
        PlainSource plain;

        ftx_model_close(golden_open(models[i].spec, models[i].name, ""));
        open_plain(&plain, models[i].name, models[i].act, models[i].scaled, models[i].first_position);
        check_roundings(models[i].name, &plain, c, cases);
        plain_source_close(&plain);
        json_decref(golden);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bart),      cmocka_unit_test(marian_drawn), cmocka_unit_test(marian),
        cmocka_unit_test(requests),  cmocka_unit_test(verse),        cmocka_unit_test(forced_end),
        cmocka_unit_test(roundings),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
