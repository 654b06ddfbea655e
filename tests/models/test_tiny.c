/* test_tiny.c - four small models with random weights against Hugging Face transformers: greedy
 * tokens equal and logits within 1e-4 of the largest, for several chunk sizes and batches. */
#include <math.h>

#include "golden.h"

enum { PROMPTS = 4, MAX_PROMPT = 128, VOCAB = 320 };

static const char *const models[] = {"tiny-llama", "tiny-llama-rope3", "tiny-mistral", "tiny-gpt2"};

/* Default limits; prompts in chunks of 16 tokens with small pages; steps of 5 tokens and few sequences; two ranks; four
 * ranks, of which two have the same keys and values (tiny-llama has two heads of them, tiny-mistral one). */
static const struct {
    const char *name, *defines, *of; /* of: the model alone; NULL: all */
} variants[] = {
    {"plain", "", NULL},
    {"chunks", "-D limits.tokens=16 -D limits.context=96 -D kv.block_size=8", NULL},
    {"narrow", "-D limits.tokens=5 -D limits.sequences=3 -D limits.context=104 -D kv.block_size=32", NULL},
    {"two-gpt2", "-D parallel=2", "tiny-gpt2"},
    {"two-llama", "-D parallel=2 -D limits.tokens=16", "tiny-llama"},
    {"two-mistral", "-D parallel=2", "tiny-mistral"},
    {"four-llama", "-D parallel=4", "tiny-llama"},
    {"four-mistral", "-D parallel=4 -D limits.tokens=5 -D limits.sequences=3", "tiny-mistral"},
};

typedef struct Prompt {
    int32_t ids[MAX_PROMPT];
    size_t n;
    const json_t *golden;
    GoldenAnswer answer, alone;
    float logits_alone[VOCAB];
    uint64_t id;
} Prompt;

static double tolerance(void)
{
    const char *t = getenv("FTX_TEST_TOLERANCE");

    return t ? atof(t) : 1e-4;
}

static void submit(FtxEngine *engine, const FtxModel *model, Prompt *p)
{
    FtxRequest r = ftx_request_default(model);

    p->answer = (GoldenAnswer){0};
    r.ids = p->ids;
    r.ids_count = p->n;
    r.temperature = 0.0f;
    r.max_new = (int)json_array_size(json_object_get(p->golden, "greedy"));
    r.ignore_eos = true;
    r.logits = true;
    r.logprobs = true;
    r.user = &p->answer;
    p->id = golden_submit(engine, &r);
}

static void check_logits(FtxEngine *engine, const Prompt *p)
{
    const json_t *want = json_object_get(p->golden, "last_logits");
    const float *got = ftx_engine_logits(engine, p->id);
    double largest = 0.0, worst = 0.0, sum = 0.0;

    assert_non_null(got);
    for (size_t i = 0; i < json_array_size(want); i++) {
        const double w = json_number_value(json_array_get(want, i));

        largest = fmax(largest, fabs(w));
        worst = fmax(worst, fabs(w - (double)got[i]));
    }
    if (!(worst <= tolerance() * largest))
        fail_msg("prompt of %zu: a logit differs by %g, the largest is %g", p->n, worst, largest);
    for (size_t i = 0; i < json_array_size(want); i++)
        sum += exp((double)got[i] - largest);
    assert_true(fabs((double)p->answer.logprobs[0] - ((double)got[p->answer.ids[0]] - largest - log(sum))) < 1e-4);
}

/* Tokens must be equal up to the first one whose logit margin is within the tolerance. */
static void check_tokens(const Prompt *p)
{
    const json_t *want = json_object_get(p->golden, "greedy"), *margin = json_object_get(p->golden, "margin");

    assert_int_equal(p->answer.n, json_array_size(want));
    assert_int_equal(p->answer.finish, FTX_FINISH_LENGTH);
    for (size_t i = 0; i < p->answer.n; i++) {
        if (p->answer.ids[i] == (int32_t)json_integer_value(json_array_get(want, i)))
            continue;
        if (json_number_value(json_array_get(margin, i)) > 10.0 * tolerance())
            fail_msg("prompt of %zu, token %zu: %d, expected %lld (margin %g)", p->n, i, p->answer.ids[i],
                     json_integer_value(json_array_get(want, i)), json_number_value(json_array_get(margin, i)));
        return;
    }
}

/* The result is bit for bit that of the request alone: the order of every sum depends on shapes only. */
static void check_same(FtxEngine *engine, const Prompt *p)
{
    assert_memory_equal(ftx_engine_logits(engine, p->id), p->logits_alone, sizeof p->logits_alone);
    assert_memory_equal(p->answer.ids, p->alone.ids, sizeof p->alone.ids);
    assert_memory_equal(p->answer.logprobs, p->alone.logprobs, sizeof p->alone.logprobs);
}

static void check_model(const char *name, size_t variant)
{
    static Prompt prompt[PROMPTS];
    char path[200], artifact[200];
    FtxModel *model;
    FtxEngine *engine;
    json_t *golden, *prompts;

    snprintf(path, sizeof path, "tests/models/%s/golden.json", name);
    golden = golden_json(path);
    prompts = json_object_get(golden, "prompts");
    assert_int_equal(json_array_size(prompts), PROMPTS);
    snprintf(path, sizeof path, "tests/models/%s", name);
    snprintf(artifact, sizeof artifact, "%s-%s", name, variants[variant].name);
    model = golden_open(path, artifact, variants[variant].defines);
    engine = golden_engine(model);
    for (int i = 0; i < PROMPTS; i++) {
        prompt[i].golden = json_array_get(prompts, (size_t)i);
        prompt[i].n = golden_ids(json_object_get(prompt[i].golden, "input_ids"), prompt[i].ids, MAX_PROMPT);
        submit(engine, model, &prompt[i]); /* alone */
        golden_finish(engine);
        check_logits(engine, &prompt[i]);
        check_tokens(&prompt[i]);
        prompt[i].alone = prompt[i].answer;
        memcpy(prompt[i].logits_alone, ftx_engine_logits(engine, prompt[i].id), sizeof prompt[i].logits_alone);
    }
    for (int i = 0; i < PROMPTS; i++)
        submit(engine, model, &prompt[i]); /* together */
    golden_finish(engine);
    for (int i = 0; i < PROMPTS; i++) {
        check_logits(engine, &prompt[i]);
        check_tokens(&prompt[i]);
        if (!golden_on_cuda())
            check_same(engine, &prompt[i]);
    }
    ftx_engine_close(engine);
    ftx_model_close(model);
    json_decref(golden);
}

static void check_variant(size_t variant)
{
    for (size_t i = 0; i < sizeof models / sizeof *models; i++)
        if (!variants[variant].of || strcmp(variants[variant].of, models[i]) == 0)
            check_model(models[i], variant);
}

static void plain(void **state)
{
    (void)state;
    check_variant(0);
}

static void chunks(void **state)
{
    (void)state;
    check_variant(1);
}

static void narrow(void **state)
{
    (void)state;
    check_variant(2);
}

static void ranks(void **state)
{
    (void)state;
    if (golden_on_cuda())
        skip(); /* each rank needs a GPU of its own: tests/gpu/check.sh BUILD ranks */
    for (size_t i = 3; i < sizeof variants / sizeof *variants; i++)
        check_variant(i);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(plain), cmocka_unit_test(chunks), cmocka_unit_test(narrow),
                                       cmocka_unit_test(ranks)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
