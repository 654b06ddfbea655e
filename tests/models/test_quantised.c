/* test_quantised.c - what quantised weights and caches cost in accuracy: fable and verse against themselves in fp32, by perplexity of a
 * held-out text and by the Kullback-Leibler divergence of next tokens. */
#include <math.h>

#include "golden.h"
#include "tests/skip.h"

enum { TEXT = 1024, EVERY = 13, MOST = 520, SOURCES = 24 };

typedef struct Kind {
    const char *name, *overrides;
    double divergence, perplexity; /* bounds: of the mean divergence; of perplexity, in percent of that in fp32 */
    bool gpu;                      /* for one of sm_90a only */
} Kind;

/* FTX_TEST_KIND: only kinds that have it in their name. */
static bool runs(const Kind *k)
{
    const char *only = getenv("FTX_TEST_KIND"), *target = getenv("FTX_TEST_TARGET");

    return (!only || strstr(k->name, only)) &&
           (!k->gpu || (golden_on_cuda() && target && strcmp(target, "sm_90a") == 0));
}

/* Sum of p log(p / q) over the vocabulary, p and q by their logits. */
static double divergence(const float *p, const float *q, int n)
{
    double all_p = 0, all_q = 0, sum = 0;

    for (int i = 0; i < n; i++) {
        all_p += exp((double)p[i]);
        all_q += exp((double)q[i]);
    }
    for (int i = 0; i < n; i++)
        sum += exp((double)p[i]) / all_p * ((double)p[i] - log(all_p) - (double)q[i] + log(all_q));
    return sum;
}

static FtxRequest next_token(FtxModel *m, GoldenAnswer *a)
{
    FtxRequest r = ftx_request_default(m);

    *a = (GoldenAnswer){0};
    r.temperature = 0.0f;
    r.beams = 1;
    r.ignore_eos = true;
    r.max_new = 1;
    r.logits = true;
    r.user = a;
    return r;
}

static void keep_logits(FtxEngine *e, FtxRequest *r, int vocab, float *to)
{
    const uint64_t id = golden_submit(e, r);

    golden_finish(e);
    memcpy(to, ftx_engine_logits(e, id), sizeof *to * (size_t)vocab);
}

/* Prefixes of a text whose next tokens are compared. */
static int prefixes(int length)
{
    return (length < MOST ? length : MOST) / EVERY;
}

/* Logits behind every EVERY-th token of the text, and its perplexity. */
static float *text_logits(FtxModel *m, const int32_t *ids, int length, int vocab, double *perplexity)
{
    float *logits = malloc(sizeof *logits * (size_t)(vocab * prefixes(length)));
    static float logprobs[TEXT];
    static GoldenAnswer a;
    FtxEngine *e = golden_engine(m);
    FtxError err;
    double sum = 0;

    for (int i = 0; i < prefixes(length); i++) {
        FtxRequest r = next_token(m, &a);

        r.ids = ids;
        r.ids_count = (size_t)(i + 1) * EVERY;
        keep_logits(e, &r, vocab, logits + (size_t)(i * vocab));
    }
    if (ftx_engine_score(e, ids, (size_t)length, logprobs, &err))
        fail_msg("%s", err.text);
    for (int i = 0; i < length - 1; i++)
        sum -= (double)logprobs[i];
    *perplexity = exp(sum / (length - 1));
    ftx_engine_close(e);
    return logits;
}

/* Logits of the first token of translations. */
static float *source_logits(FtxModel *m, const json_t *cases, int vocab)
{
    float *logits = malloc(sizeof *logits * (size_t)(vocab * SOURCES));
    static GoldenAnswer a;
    FtxEngine *e = golden_engine(m);

    for (int i = 0; i < SOURCES; i++) {
        int32_t source[512];
        FtxRequest r = next_token(m, &a);

        r.ids_count = golden_ids(json_object_get(json_array_get(cases, (size_t)i), "source_ids"), source, 512);
        r.ids = source;
        keep_logits(e, &r, vocab, logits + (size_t)(i * vocab));
    }
    ftx_engine_close(e);
    return logits;
}

/* Writes the other sources as lines for --calibrate. */
static void write_sources(FtxModel *m, const json_t *cases)
{
    char path[1000], text[4096];
    FILE *f;
    FtxError err;
    size_t n;

    if (getenv("FTX_TEST_ARTIFACTS"))
        return;
    snprintf(path, sizeof path, "%s/test-quantised.txt", getenv("FTX_BUILD"));
    f = fopen(path, "w");
    assert_non_null(f);
    for (size_t i = SOURCES; i < json_array_size(cases); i++) {
        int32_t ids[512];
        const int count = golden_ids(json_object_get(json_array_get(cases, i), "source_ids"), ids, 512);

        assert_int_equal(ftx_detokenize(m, ids, (size_t)count, true, text, sizeof text, &n, &err), FTX_OK);
        assert_true(n <= sizeof text);
        fprintf(f, "%.*s\n", (int)n, text);
    }
    assert_int_equal(fclose(f), 0);
}

static double mean_divergence(const float *p, const float *q, int n, int vocab)
{
    double sum = 0;

    for (int i = 0; i < n; i++)
        sum += divergence(p + (size_t)(i * vocab), q + (size_t)(i * vocab), vocab);
    return sum / n;
}

static void check(const char *model, const Kind *k, double got, double perplexity, double exact)
{
    const double more = exact > 0 ? 100 * (perplexity / exact - 1) : 0;

    print_message("%s, %s: divergence %.5f, perplexity %+.2f %%\n", model, k->name, got, more);
    assert_true(got > 0 && got < k->divergence);
    assert_true(more < k->perplexity);
}

/* What the fp32 model that golden_open has just compiled writes by itself is the text of --calibrate. */
#define CALIBRATED " --calibrate $FTX_BUILD/test-quantised.txt"

static void write_text(const char *ftxc)
{
    char command[1000];

    if (getenv("FTX_TEST_ARTIFACTS"))
        return;
    snprintf(command, sizeof command,
             "%s run $FTX_BUILD/test-quantised.ftx '' -q -d cpu --samples 16 -n 512 --seed 1 --temperature 1 --top-k 0 "
             "--top-p 1 "
             "--repetition-penalty 1 >$FTX_BUILD/test-quantised.txt",
             ftxc);
    assert_int_equal(system(command), 0);
}

/* A decoder in fp32, then as each kind; text: a file with ids of a held-out text. */
static void decoder(const char *name, const char *spec, const char *text, const Kind *kinds, size_t n)
{
    FtxModel *m = golden_open(spec, "quantised", "-D precision.weights=fp32 -D precision.kv=fp32");
    json_t *j = golden_json(text);
    static int32_t ids[TEXT];
    FtxModelInfo info;
    double exact, perplexity;
    float *want, *got;
    int length;

    ftx_model_info(m, &info);
    length = (int)golden_ids(json_object_get(j, "ids"), ids, TEXT);
    assert_true(length >= TEXT / 2);
    want = text_logits(m, ids, length, info.vocab, &exact);
    ftx_model_close(m);
    write_text(getenv("FTXC"));
    for (size_t i = 0; i < n; i++) {
        if (!runs(&kinds[i]))
            continue;
        m = golden_open(spec, "quantised", kinds[i].overrides);
        got = text_logits(m, ids, length, info.vocab, &perplexity);
        check(name, &kinds[i], mean_divergence(want, got, prefixes(length), info.vocab), perplexity, exact);
        free(got);
        ftx_model_close(m);
    }
    free(want);
    json_decref(j);
}

static void fable(void **state)
{
    static const Kind kinds[] = {
        {"int8", "-D precision.weights=int8", 0.002, 0.5, false},
        {"int8, fp32 activations", "-D precision.weights=int8 -D precision.compute=fp32", 0.002, 0.5, false},
        {"fp8", "-D precision.weights=fp8", 0.01, 2, false},
        {"fp8, head fp8", "-D precision.weights=fp8 -D precision.head=fp8", 0.015, 2, false},
        {"fp8, rows fp8", "-D precision.weights=fp8 -D precision.activations=fp8 -t sm_90a", 0.02, 2, true},
        {"int4, groups of 128", "-D precision.weights=int4", 0.09, 9, false},
        {"int4, groups of 32", "-D precision.weights=int4 -D precision.group=32", 0.085, 6, false},
        {"int4, groups of 32 with zeros", "-D precision.weights=int4 -D precision.group=32 -D precision.zeros=true",
         0.09, 9, false},
        {"int4, groups of 128, calibrated", "-D precision.weights=int4" CALIBRATED, 0.05, 5, false},
        {"int4, groups of 32, calibrated", "-D precision.weights=int4 -D precision.group=32" CALIBRATED, 0.04, 4,
         false},
        {"int4, groups of 32 with zeros, calibrated",
         "-D precision.weights=int4 -D precision.group=32 -D precision.zeros=true" CALIBRATED, 0.04, 4, false},
        {"int4 but for down_proj", "-D precision.weights=int4 -D precision.except=layers.*.down_proj", 0.08, 7, false},
        {"cache int8", "-D precision.weights=fp32 -D precision.kv=int8", 0.0005, 0.2, false},
        {"cache fp8", "-D precision.weights=fp32 -D precision.kv=fp8", 0.004, 0.5, false},
    };
    (void)state;

    decoder("fable", "specs/fable.lua", "tests/models/fable/long.json", kinds, sizeof kinds / sizeof *kinds);
}

static void gpt2_fable(void **state)
{
    static const Kind kinds[] = {
        {"int8", "-D precision.weights=int8", 0.002, 0.5, false},
        {"int8, fp32 activations", "-D precision.weights=int8 -D precision.compute=fp32", 0.002, 0.5, false},
        {"fp8", "-D precision.weights=fp8", 0.01, 2, false},
        {"int4, groups of 128", "-D precision.weights=int4", 0.15, 11, false},
        {"int4, groups of 32", "-D precision.weights=int4 -D precision.group=32", 0.11, 9, false},
        {"int4, groups of 32 with zeros", "-D precision.weights=int4 -D precision.group=32 -D precision.zeros=true",
         0.11, 9, false},
        {"int4, groups of 128, calibrated", "-D precision.weights=int4" CALIBRATED, 0.06, 5, false},
        {"int4, groups of 32, calibrated", "-D precision.weights=int4 -D precision.group=32" CALIBRATED, 0.06, 5,
         false},
        {"int4, groups of 32 with zeros, calibrated",
         "-D precision.weights=int4 -D precision.group=32 -D precision.zeros=true" CALIBRATED, 0.06, 5, false},
        {"cache int8", "-D precision.weights=fp32 -D precision.kv=int8", 0.0005, 0.2, false},
        {"cache fp8", "-D precision.weights=fp32 -D precision.kv=fp8", 0.004, 1.5, false},
    };
    const char *shared = getenv("FTX_SHARED");
    char spec[1000], text[1000];
    FILE *f;
    (void)state;

    snprintf(spec, sizeof spec, "%s/models/gpt2-fable", shared ? shared : "");
    snprintf(text, sizeof text, "%s/golden/gpt2-fable/long.json", shared ? shared : "");
    f = fopen(text, "r");
    if (!f)
        SKIP("%s is not there: gpt2-fable has 12 MB of weights", text);
    fclose(f);
    decoder("gpt2-fable", spec, text, kinds, sizeof kinds / sizeof *kinds);
}

static void verse(void **state)
{
    static const Kind kinds[] = {
        {"int8", "-D precision.weights=int8", 0.002, 1, false},
        {"fp8", "-D precision.weights=fp8", 0.002, 1, false},
        {"int4, groups of 32", "-D precision.weights=int4 -D precision.group=32", 0.006, 1, false},
        {"int4, groups of 32, calibrated", "-D precision.weights=int4 -D precision.group=32" CALIBRATED, 0.0033, 1,
         false},
        {"cache int8", "-D precision.weights=fp32 -D precision.kv=int8", 0.0001, 1, false},
    };
    FtxModel *m = golden_open("specs/verse.lua", "quantised", "-D precision.weights=fp32 -D precision.kv=fp32");
    json_t *j = golden_json("tests/models/verse/greedy.json"), *cases = json_object_get(j, "cases");
    FtxModelInfo info;
    float *want, *got;
    (void)state;

    ftx_model_info(m, &info);
    assert_true(json_array_size(cases) >= SOURCES);
    want = source_logits(m, cases, info.vocab);
    write_sources(m, cases);
    ftx_model_close(m);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        if (!runs(&kinds[i]))
            continue;
        m = golden_open("specs/verse.lua", "quantised", kinds[i].overrides);
        got = source_logits(m, cases, info.vocab);
        check("verse", &kinds[i], mean_divergence(want, got, SOURCES, info.vocab), 1, 1);
        free(got);
        ftx_model_close(m);
    }
    free(want);
    json_decref(j);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(fable), cmocka_unit_test(gpt2_fable), cmocka_unit_test(verse)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
