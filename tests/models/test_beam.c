/* test_beam.c - beam search against Hugging Face transformers and, at other widths, against the plain
 * search of kernels/ref over the same model's logits: alone, together with other requests, cancelled. In 16 bits
 * some results may differ (search.h); the last test limits their number. */
#include "search.h"

#include "drawn.h"
#include "tests/skip.h"

/* The best hypothesis must equal the reference. In 16 bits it may be another if the plain search over the model's own
 * logits finds the same one, or had a close decision. */
static void check_best(FtxEngine *engine, FtxModel *model, const Task *t, const Setting *s, const Rounding *r,
                       const Found *f, const char *what, const json_t *want, size_t skip, double score)
{
    const size_t n = json_array_size(want) - skip; /* ids after the start token */
    bool equal = f->count[0] == n;
    char why[200];
    RefBeams b;

    for (size_t k = 0; k < n && equal; k++)
        equal = f->ids[0][k] == json_integer_value(json_array_get(want, skip + k));
    count_partings(1, !equal, r->share);
    if (!r->any) {
        if (!equal || fabs(f->score[0] - score) > tolerance())
            fail_msg("%s: %zu ids of score %.6f, expected %zu of %.6f", what, f->count[0], f->score[0], n, score);
        return;
    }
    check_own(engine, model, t, s, r, f);
    if (!equal && !plain_search(engine, model, t, s, r, &b) && !is_found(f, &b, t, s, r, why))
        fail_msg("%s: %s", what, why);
}

/* Makes text number `text` of ROUNDING_MOST ids: the prompt, then pseudo-random ids. */
static void take_text(int32_t *ids, int text, const int32_t *prompt, size_t n, int vocab)
{
    for (int i = 0; i < ROUNDING_MOST; i++)
        ids[text * ROUNDING_MOST + i] = i < (int)n ? prompt[i] : (prompt[i % (int)n] + 7 * i) % vocab;
}

static Rounding rounding_of(const char *artifact, int window, const int32_t *texts, int n)
{
    char path[1000];

    golden_path(artifact, path, sizeof path);
    return rounding_of_decoder(path, 0, window, texts, n);
}

/* --- trained models: all four hypotheses ------------------------------------------------------------- */

static void check_exactly(const json_t *one, const Found *f)
{
    const json_t *beams = json_object_get(one, "beams");

    assert_int_equal(f->events, 1);
    assert_int_equal(f->n, json_array_size(beams));
    assert_string_equal(f->event_text, f->text[0]);
    for (size_t b = 0; b < f->n; b++) {
        const json_t *want = json_array_get(beams, b), *ids = json_object_get(want, "new_ids");

        if (fabs(f->score[b] - json_number_value(json_object_get(want, "score"))) > tolerance())
            fail_msg("hypothesis %zu has score %.6f, expected %.6f", b, f->score[b],
                     json_number_value(json_object_get(want, "score")));
        assert_int_equal(f->count[b], json_array_size(ids));
        for (size_t i = 0; i < f->count[b]; i++)
            assert_int_equal(f->ids[b][i], json_integer_value(json_array_get(ids, i)));
        assert_string_equal(f->text[b], json_string_value(json_object_get(want, "text")));
    }
}

static void check_trained(const char *spec, const char *name, const char *golden)
{
    static Found found[16];
    static int32_t ids[16][MAX_PROMPT];
    FtxModel *model = golden_open(spec, name, "-D decode.width=4 -D limits.sequences=12");
    FtxEngine *engine = golden_engine(model);
    json_t *j = golden_json(golden), *cases = json_object_get(j, "cases");
    const Setting s = {4, 40, 0, 0, 1.0f, 1.0f, FTX_EARLY_TRUE, {1}, 1, 1, 0.0f, {0}, 0, 0};
    const size_t n = json_array_size(cases);
    int32_t texts[2 * ROUNDING_MOST];
    Rounding rounding;

    assert_in_range(n, 2, 16);
    for (int i = 0; i < 2; i++) {
        const json_t *beams = json_object_get(json_array_get(cases, (size_t)i), "beams");
        const size_t count = golden_ids(json_object_get(json_array_get(beams, 0), "new_ids"), ids[i], MAX_PROMPT);

        take_text(texts, i, ids[i], count, MAX_VOCAB / 2);
    }
    rounding = rounding_of(name, 0, texts, 2);
    for (size_t together = 0; together < 2; together++) {
        for (size_t i = 0; i < n; i++) {
            const size_t count = golden_ids(json_object_get(json_array_get(cases, i), "ids"), ids[i], MAX_PROMPT);
            FtxRequest r = beam_request(model, ids[i], count, 4, 40, &found[i]);

            r.early_stopping = FTX_EARLY_TRUE;
            golden_submit(engine, &r);
            if (!together)
                finish(engine);
        }
        finish(engine);
        for (size_t i = 0; i < n; i++) {
            const json_t *one = json_array_get(cases, i), *best = json_array_get(json_object_get(one, "beams"), 0);
            const Task t = {.ids = ids[i], .n = (int)json_array_size(json_object_get(one, "ids"))};

            if (!rounding.any)
                check_exactly(one, &found[i]);
            check_best(engine, model, &t, &s, &rounding, &found[i], name, json_object_get(best, "new_ids"), 0,
                       json_number_value(json_object_get(best, "score")));
        }
    }
    json_decref(j);
    ftx_engine_close(engine);
    ftx_model_close(model);
}

static void fable(void **state)
{
    (void)state;
    check_trained("specs/fable.lua", "beam-fable", "tests/models/fable/beam.json");
}

static void gpt2_fable(void **state)
{
    const char *shared = getenv("FTX_SHARED");
    char spec[1000], golden[1000];
    FILE *f;

    (void)state;
    snprintf(spec, sizeof spec, "%s/models/gpt2-fable", shared ? shared : "");
    snprintf(golden, sizeof golden, "%s/golden/gpt2-fable/beam.json", shared ? shared : "");
    f = fopen(golden, "r");
    if (!f)
        SKIP("%s is not there: gpt2-fable has 12 MB of weights", golden);
    fclose(f);
    check_trained(spec, "beam-gpt2-fable", golden);
}

/* --- tiny models: the best of four, chunks and odd pages -------------------------------------------- */

static void check_tiny(const char *name, const char *variant, const char *defines)
{
    const Setting s = {4, 16, 0, 0, 1.0f, 1.0f, FTX_EARLY_FALSE, {2}, 1, 1, 0.0f, {0}, 0, 0};
    static Found found[8], greedy[8];
    static int32_t ids[8][MAX_PROMPT];
    char path[200], artifact[200];
    int32_t texts[8 * ROUNDING_MOST];
    FtxModel *model;
    FtxEngine *engine;
    json_t *golden, *prompts;
    Rounding rounding;
    double margin_allowed;
    size_t n;

    snprintf(path, sizeof path, "tests/models/%s/golden.json", name);
    golden = golden_json(path);
    prompts = json_object_get(golden, "prompts");
    n = json_array_size(prompts);
    snprintf(path, sizeof path, "tests/models/%s", name);
    snprintf(artifact, sizeof artifact, "beam-%s-%s", name, variant);
    model = golden_open(path, artifact, defines);
    engine = golden_engine(model);
    for (size_t i = 0; i < n; i++) { /* requests with and without beam search in one batch */
        const json_t *one = json_array_get(prompts, i);
        const size_t count = golden_ids(json_object_get(one, "input_ids"), ids[i], MAX_PROMPT);
        FtxRequest r = beam_request(model, ids[i], count, 4, 16, &found[i]);
        FtxRequest g = beam_request(model, ids[i], count, 1, 16, &greedy[i]);

        g.ignore_eos = true;
        golden_submit(engine, &r);
        golden_submit(engine, &g);
        take_text(texts, (int)i, ids[i], count, 320);
    }
    finish(engine);
    rounding = rounding_of(artifact, strcmp(name, "tiny-mistral") == 0 ? 12 : 0, texts, (int)n);
    margin_allowed = rounding.any ? rounding_logit(&rounding) : 10.0 * tolerance();
    for (size_t i = 0; i < n; i++) {
        const json_t *one = json_array_get(prompts, i);
        const json_t *tokens = json_object_get(one, "greedy"), *margin = json_object_get(one, "margin");
        const Task t = {.ids = ids[i], .n = (int)json_array_size(json_object_get(one, "input_ids"))};
        char what[300];

        snprintf(what, sizeof what, "%s %s, prompt %zu", name, variant, i);
        check_best(engine, model, &t, &s, &rounding, &found[i], what, json_object_get(one, "beam4"), 0,
                   json_number_value(json_object_get(one, "beam4_score")));
        assert_int_equal(greedy[i].n_tokens, 16);
        for (size_t k = 0; k < 16; k++) {
            if (json_number_value(json_array_get(margin, k)) < margin_allowed)
                break;
            assert_int_equal(greedy[i].tokens[k], json_integer_value(json_array_get(tokens, k)));
        }
    }
    json_decref(golden);
    ftx_engine_close(engine);
    ftx_model_close(model);
}

static void tiny(void **state)
{
    static const char *const models[] = {"tiny-llama", "tiny-llama-rope3", "tiny-mistral", "tiny-gpt2"};
    static const struct {
        const char *name, *defines;
    } variants[] = {
        {"plain", "-D decode.width=4"},
        {"chunks", "-D decode.width=4 -D limits.tokens=16 -D limits.context=96 -D kv.block_size=8"},
        {"wide",
         "-D decode.width=7 -D limits.tokens=9 -D limits.sequences=9 -D limits.context=104 -D kv.block_size=32"},
        {"few-pages", "-D decode.width=4 -D limits.context=96 -D kv.block_size=8 -D kv.pages=21"},
    };

    (void)state;
    for (size_t m = 0; m < sizeof models / sizeof *models; m++)
        for (size_t v = 0; v < (in_16_bits() ? 1 : sizeof variants / sizeof *variants); v++)
            check_tiny(models[m], variants[v].name, variants[v].defines);
}

/* --- encoder-decoders: `verse` on its held-out sentences -------------------------------------------- */

/* Measured on pseudo-random sources and texts. */
static Rounding source_rounding(const char *artifact, FtxAct act, bool scaled, int first_position)
{
    enum { LONG = 12 };
    int32_t source[2 * LONG], texts[2 * ROUNDING_MOST];
    PlainSource plain;
    char path[1000];
    Rounding r;

    golden_path(artifact, path, sizeof path);
    plain_source_open(&plain, path, act, scaled, first_position);
    for (int i = 0; i < 2 * LONG; i++)
        source[i] = 3 + i * 7919 % ((int)plain.facts->vocab - 4);
    for (int i = 0; i < 2 * ROUNDING_MOST; i++)
        texts[i] = 3 + i * 104729 % ((int)plain.facts->vocab - 4);
    r = rounding_of_source(artifact, &plain, source, LONG, texts, 2);
    plain_source_close(&plain);
    return r;
}

/* Submits n requests, stepping while the engine is full, and runs all to their ends. */
static void run_all(FtxEngine *engine, const FtxRequest *r, size_t n)
{
    FtxError err;

    for (size_t i = 0; i < n; i++) {
        FtxStatus s;

        while ((s = ftx_engine_submit(engine, &r[i], NULL, &err)) == FTX_EFULL)
            step(engine);
        if (s)
            fail_msg("%s", err.text);
    }
    finish(engine);
}

static void check_verse(FtxModel *model, const char *file, int width, float penalty, FtxEarly early,
                        const Rounding *rounding)
{
    enum { CASES = 64, LONG = 256 };
    static int32_t source[CASES][LONG];
    static FtxRequest r[CASES];
    static Found found[CASES];
    const Setting s = {width, LONG - 1, 0, 0, penalty, 1.0f, early, {0}, 1, 1, 0.0f, {~7999}, 1, 0};
    const int32_t start = 7999;
    char path[1000], what[40];
    FtxEngine *engine = golden_engine(model);
    json_t *golden, *cases;

    snprintf(path, sizeof path, "tests/models/verse/%s", file);
    golden = golden_json(path);
    cases = json_object_get(golden, "cases");
    assert_int_equal(json_array_size(cases), CASES);
    for (size_t i = 0; i < CASES; i++) {
        const json_t *ids = json_object_get(json_array_get(cases, i), "source_ids");

        r[i] = ftx_request_default(model);
        r[i].ids_count = golden_ids(ids, source[i], LONG);
        r[i].ids = source[i];
        r[i].beams = width;
        r[i].length_penalty = penalty;
        r[i].early_stopping = early;
        r[i].logprobs = true;
        r[i].user = memset(&found[i], 0, sizeof *found);
    }
    run_all(engine, r, CASES);
    for (size_t i = 0; i < CASES; i++) {
        const json_t *one = json_array_get(cases, i);
        const Task t = {.ids = &start, .n = 1, .source = source[i], .n_source = (int)r[i].ids_count};

        assert_int_equal(found[i].n, 1);
        snprintf(what, sizeof what, "%s, sentence %zu", file, i);
        check_best(engine, model, &t, &s, rounding, &found[i], what, json_object_get(one, "ids"), 1,
                   json_number_value(json_object_get(one, "score")));
    }
    json_decref(golden);
    ftx_engine_close(engine);
}

static void verse(void **state)
{
    FtxModel *model;
    Rounding rounding;

    (void)state;
    model = golden_open("specs/verse.lua", "beam-verse", "-D tokenizer= -D decode.width=5");
    rounding = source_rounding("beam-verse", FTX_ACT_SILU, true, 0);
    check_verse(model, "beam4.json", 4, 1.0f, FTX_EARLY_TRUE, &rounding);
    if (!in_16_bits())
        check_verse(model, "beam5.json", 5, 0.6f, FTX_EARLY_FALSE, &rounding);
    ftx_model_close(model);
}

static void check_tiny_source(const char *name, FtxModel *model, const Rounding *rounding)
{
    static Found found[2][8];
    static int32_t ids[8][MAX_PROMPT];
    FtxEngine *engine = golden_engine(model);
    json_t *golden, *prompts;
    char path[200], what[60];
    size_t n;

    snprintf(path, sizeof path, "tests/models/%s/golden.json", name);
    golden = golden_json(path);
    prompts = json_object_get(golden, "prompts");
    n = json_array_size(prompts);
    for (size_t i = 0; i < n; i++) {
        const size_t count = golden_ids(json_object_get(json_array_get(prompts, i), "input_ids"), ids[i], MAX_PROMPT);

        for (int k = 0; k < 2; k++) {
            FtxRequest r = beam_request(model, ids[i], count, 4 + k, 20, &found[k][i]);

            golden_submit(engine, &r);
        }
    }
    finish(engine);
    for (size_t i = 0; i < n; i++)
        for (int k = 0; k < 2; k++) {
            const json_t *one = json_array_get(prompts, i), *want = json_object_get(one, k ? "beam5" : "beam4");
            const bool bart = strcmp(name, "tiny-bart") == 0;
            const int32_t start = bart ? 2 : 300;
            const Setting s = {4 + k, 20, 0, 0, 1.0f, 1.0f, FTX_EARLY_FALSE, {bart ? 2 : 0}, 1, 1, 0.0f, {0}, 0, 0};
            const Task t = {.ids = &start,
                            .n = 1,
                            .source = ids[i],
                            .n_source = (int)json_array_size(json_object_get(one, "input_ids"))};

            snprintf(what, sizeof what, "%s, source %zu, width %d", name, i, 4 + k);
            check_best(engine, model, &t, &s, rounding, &found[k][i], what, want, 1,
                       json_number_value(json_object_get(one, k ? "beam5_score" : "beam4_score")));
        }
    json_decref(golden);
    ftx_engine_close(engine);
    ftx_model_close(model);
}

static void tiny_source(void **state)
{
    FtxModel *model = golden_open("tests/models/tiny-bart", "beam-tiny-bart", "-D decode.width=5");
    Rounding rounding = source_rounding("beam-tiny-bart", FTX_ACT_GELU_ERF, false, 2);

    (void)state;
    check_tiny_source("tiny-bart", model, &rounding);
    model = drawn_open("beam-tiny-marian", "-D decode.width=5");
    rounding = source_rounding("beam-tiny-marian", FTX_ACT_RELU, true, 0);
    check_tiny_source("tiny-marian", model, &rounding);
}

/* --- other widths and settings against the plain search --------------------------------------------- */

static Rounding tiny_llama_rounding(const char *artifact)
{
    int32_t texts[2 * ROUNDING_MOST];

    for (int i = 0; i < 2 * ROUNDING_MOST; i++)
        texts[i] = 3 + i * 104729 % 317;
    return rounding_of(artifact, 0, texts, 2);
}

static void settings(void **state)
{
    static const Setting all[] = {
        {3, 12, 0, 0, 1.0f, 1.0f, FTX_EARLY_FALSE, {61, 165, 2}, 3, 1, 0.0f, {0}, 0, 0},
        {3, 12, 0, 0, 1.0f, 1.0f, FTX_EARLY_TRUE, {61, 165, 2}, 3, 1, 0.0f, {0}, 0, 0},
        {3, 12, 0, 0, 2.0f, 1.0f, FTX_EARLY_NEVER, {61, 165, 2}, 3, 1, 0.0f, {0}, 0, 0},
        {3, 12, 0, 0, 0.0f, 1.0f, FTX_EARLY_FALSE, {61, 165, 2}, 3, 1, 0.0f, {0}, 0, 0},
        {3, 12, 0, 0, -1.0f, 1.0f, FTX_EARLY_NEVER, {61, 165, 2}, 3, 1, 0.0f, {0}, 0, 0},
        {7, 10, 3, 2, 0.6f, 1.3f, FTX_EARLY_FALSE, {61, 165, 2}, 3, 1, 0.0f, {0}, 0, 0},
        {7, 10, 0, 0, 1.0f, 1.0f, FTX_EARLY_TRUE, {2}, 0, 1, 0.0f, {0}, 0, 0},
        {64, 4, 1, 0, 1.0f, 1.0f, FTX_EARLY_NEVER, {124, 2}, 2, 1, 0.0f, {0}, 0, 0},
        {4, 12, 0, 0, 1.0f, 1.0f, FTX_EARLY_FALSE, {61, 165, 2}, 3, 2, 0.5f, {0}, 0, 0},
        {6, 10, 0, 0, 1.0f, 1.0f, FTX_EARLY_TRUE, {61, 165, 2}, 3, 2, 1.5f, {0}, 0, 0},
        {6, 10, 2, 2, 0.6f, 1.3f, FTX_EARLY_NEVER, {61, 165, 2}, 3, 3, 0.7f, {0}, 0, 0},
        {5, 8, 0, 0, 0.0f, 1.0f, FTX_EARLY_FALSE, {61, 165, 2}, 3, 5, 20.0f, {0}, 0, 0},
        {6, 6, 0, 0, 1.0f, 1.0f, FTX_EARLY_FALSE, {61, 165, 2}, 3, 3, 0.0f, {0}, 0, 0},
        {64, 4, 0, 0, 1.0f, 1.0f, FTX_EARLY_FALSE, {124, 2}, 2, 8, 0.3f, {0}, 0, 0},
        {4, 12, 0, 0, 1.0f, 1.0f, FTX_EARLY_FALSE, {61, 2}, 2, 1, 0.0f, {41, ~165, 124, ~203, ~4}, 5, 0},
        {5, 10, 2, 2, 0.6f, 1.3f, FTX_EARLY_NEVER, {61, 2}, 2, 1, 0.0f, {~124, 148, 89, ~81, 202, ~228}, 6, 0},
        {6, 10, 0, 0, 1.0f, 1.0f, FTX_EARLY_TRUE, {61, 165, 2}, 3, 3, 0.7f, {~124, ~4, 127, 41, ~61}, 5, 0},
    };
    FtxModel *model = golden_open("tests/models/tiny-llama", "beam-widths",
                                  "-D decode.width=64 -D limits.sequences=80 -D limits.context=96 -D kv.block_size=8");
    FtxEngine *engine = golden_engine(model);
    json_t *golden = golden_json("tests/models/tiny-llama/golden.json");
    const Rounding rounding = tiny_llama_rounding("beam-widths");
    int32_t prompt[MAX_PROMPT];

    (void)state;
    for (size_t p = 0; p < 2; p++) {
        const json_t *one = json_array_get(json_object_get(golden, "prompts"), p);
        const size_t n = golden_ids(json_object_get(one, "input_ids"), prompt, MAX_PROMPT);

        for (size_t i = 0; i < sizeof all / sizeof *all; i++)
            count_partings(1, check_setting(engine, model, &(Task){.ids = prompt, .n = (int)n}, &all[i], &rounding),
                           rounding.share);
    }
    json_decref(golden);
    ftx_engine_close(engine);
    ftx_model_close(model);
}

/* --- together with other requests --------------------------------------------------------------------- */

/* The result of a search does not depend on other requests, on cancelled ones, or on its slots. */
static void beside_others(void **state)
{
    static Found alone, found[6];
    FtxModel *model = golden_open("tests/models/tiny-llama", "beam-beside",
                                  "-D decode.width=4 -D limits.sequences=10 -D limits.context=96 -D kv.block_size=8");
    FtxEngine *engine = golden_engine(model);
    const int32_t prompt[] = {46, 84, 307, 232, 174, 127, 41, 9, 10, 11};
    const Rounding rounding = tiny_llama_rounding("beam-beside");
    const Setting setting = {4, 16, 0, 0, 1.0f, 1.0f, FTX_EARLY_FALSE, {2}, 1, 1, 0.0f, {0}, 0, 0};
    const Task task = {.ids = prompt, .n = 7};
    uint64_t id[6];
    FtxError err;
    FtxRequest r = beam_request(model, prompt, 7, 4, 16, &alone);
    RefBeams plain;

    (void)state;
    golden_submit(engine, &r);
    finish(engine);
    assert_int_equal(alone.n, 4);
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < 6; i++) {
            r = beam_request(model, prompt, 7, i % 2 ? 4 : 3 - 2 * (i % 4 == 0), 16, &found[i]);
            if (i % 4 == 0) { /* a request that samples */
                r.temperature = 1.0f;
                r.seed = (uint64_t)round;
                r.n_best = 1;
            }
            id[i] = golden_submit(engine, &r);
        }
        for (int i = 0; i < 3 + 4 * round; i++)
            step(engine);
        if (!found[round].events || found[round].finish == FTX_RUNNING)
            assert_int_equal(ftx_engine_cancel(engine, id[round], &err), FTX_OK);
        finish(engine);
        for (int i = 1; i < 6; i += 2)
            if (i != round) {
                const bool parted = !same(&found[i], &alone, &rounding);

                count_partings(1, parted, rounding.share);
                if (parted)
                    assert_true(rounding.any && plain_search(engine, model, &task, &setting, &rounding, &plain));
            }
    }
    ftx_engine_close(engine);
    ftx_model_close(model);
}

/* Reported log-probabilities are the model's own, before the logits processors that the search applies. */
static void logprobs(void **state)
{
    FtxModel *model = golden_open("tests/models/tiny-llama", "beam-beside",
                                  "-D decode.width=4 -D limits.sequences=10 -D limits.context=96 -D kv.block_size=8");
    FtxEngine *engine = golden_engine(model);
    const int32_t prompt[] = {46, 84, 307, 232, 174, 127, 41, 9, 10, 11}, ends[] = {61, 165};
    const Rounding rounding = tiny_llama_rounding("beam-beside");
    const double allowed = rounding.any ? rounding_logprob(&rounding) : tolerance();
    static Found f;
    FtxError err;

    (void)state;
    for (int way = 0; way < 3; way++) {
        FtxRequest r = beam_request(model, prompt, 10, 4, 12, &f);
        int32_t ids[4][32];
        float got[4][32], want[32];
        size_t n, count[4];
        const FtxHypothesis *h;
        uint64_t id;

        r.logprobs = way != 2;
        r.repetition_penalty = way ? 1.3f : 1.0f;
        r.beam_groups = 1 + way % 2;
        r.diversity_rate = 0.7f;
        r.stop_ids = ends;
        r.stop_ids_count = 2;
        id = golden_submit(engine, &r);
        finish(engine);
        h = ftx_engine_hypotheses(engine, id, &n);
        assert_int_equal(n, 4);
        for (size_t i = 0; i < n; i++) {
            assert_true((h[i].logprobs != NULL) == r.logprobs);
            count[i] = h[i].count;
            memcpy(ids[i], prompt, sizeof prompt);
            memcpy(ids[i] + 10, h[i].ids, count[i] * sizeof *h->ids);
            if (r.logprobs)
                memcpy(got[i], h[i].logprobs, count[i] * sizeof(float));
        }
        for (size_t i = 0; i < n && r.logprobs; i++) {
            if (ftx_engine_score(engine, ids[i], 10 + count[i], want, &err))
                fail_msg("%s", err.text);
            for (size_t k = 0; k < count[i]; k++)
                assert_true(fabs((double)(got[i][k] - want[9 + k])) < allowed);
        }
    }
    ftx_engine_close(engine);
    ftx_model_close(model);
}

static void refusals(void **state)
{
    if (in_16_bits())
        SKIP("a run in 16 bits: refusals are those of fp32");

    static Found f;
    FtxModel *model = golden_open("tests/models/tiny-llama", "beam-refuse",
                                  "-D decode.width=4 -D limits.sequences=4 -D limits.context=96 -D kv.block_size=8 "
                                  "-D kv.pages=24");
    FtxModel *plain = golden_open("tests/models/tiny-llama", "beam-none", "");
    FtxEngine *engine = golden_engine(model), *none = golden_engine(plain);
    static const char *const stops[] = {"x"};
    const int32_t prompt[] = {46, 84, 307};
    FtxRequest r;
    FtxError err;

    (void)state;
    r = beam_request(plain, prompt, 3, 4, 4, &f);
    assert_int_equal(ftx_engine_submit(none, &r, NULL, &err), FTX_EINVAL);
    assert_non_null(strstr(err.text, "compile it again with -D decode.width="));
    r = beam_request(model, prompt, 3, 5, 4, &f);
    assert_int_equal(ftx_engine_submit(engine, &r, NULL, &err), FTX_EINVAL);
    assert_non_null(strstr(err.text, "beams: expected 0 to 4, found 5"));
    r = beam_request(model, prompt, 3, 4, 4, &f);
    r.n_best = 5;
    assert_int_equal(ftx_engine_submit(engine, &r, NULL, &err), FTX_EINVAL);
    assert_non_null(strstr(err.text, "n_best"));
    r = beam_request(model, prompt, 3, 4, 4, &f);
    r.beam_groups = 3;
    assert_int_equal(ftx_engine_submit(engine, &r, NULL, &err), FTX_EINVAL);
    assert_non_null(strstr(err.text, "beam_groups: 4 beams cannot be divided into 3 groups of one size"));
    r = beam_request(model, prompt, 3, 4, 4, &f);
    r.beam_groups = 2;
    r.diversity_rate = -1.0f;
    assert_int_equal(ftx_engine_submit(engine, &r, NULL, &err), FTX_EINVAL);
    assert_non_null(strstr(err.text, "diversity_rate"));
    r = beam_request(model, prompt, 3, 4, 4, &f);
    r.length_penalty = NAN;
    assert_int_equal(ftx_engine_submit(engine, &r, NULL, &err), FTX_EINVAL);
    r = beam_request(model, prompt, 3, 4, 4, &f);
    r.stop = stops;
    r.stop_count = 1;
    assert_int_equal(ftx_engine_submit(engine, &r, NULL, &err), FTX_EINVAL);
    r = beam_request(model, prompt, 3, 4, 90, &f); /* 12 pages for each of 4 beams */
    assert_int_equal(ftx_engine_submit(engine, &r, NULL, &err), FTX_EFULL);
    assert_non_null(strstr(err.text, "48 KV pages"));
    r = beam_request(model, prompt, 3, 4, 4, &f);
    golden_submit(engine, &r);
    finish(engine);
    assert_int_equal(f.n, 4);
    ftx_engine_close(engine);
    ftx_engine_close(none);
    ftx_model_close(model);
    ftx_model_close(plain);
}

/* The hypotheses of 200 sequences of 2048 tokens exceed 1 MB, so they are copied one by one instead of all at once.
 * The results must be those of small limits. */
static void many_long(void **state)
{
    static const char *const defines[] = {"-D limits.sequences=8 -D limits.context=64",
                                          "-D limits.sequences=200 -D limits.context=2048 -D kv.pages=200"};
    static const int32_t prompt[] = {5, 40, 61};
    static Found found[2][2];

    (void)state;
    if (golden_on_cuda()) /* other limits select other kernels, which round differently */
        return;
    for (int which = 0; which < 2; which++) {
        char extra[200], name[40];

        snprintf(extra, sizeof extra, "-D decode.width=4 %s", defines[which]);
        snprintf(name, sizeof name, "beam-long-%d", which);
        FtxModel *model = golden_open("tests/models/tiny-llama", name, extra);
        FtxEngine *engine = golden_engine(model);

        for (int i = 0; i < 2; i++) {
            const FtxRequest r = beam_request(model, prompt, 3 - (size_t)i, 4, 8 + i, &found[which][i]);

            golden_submit(engine, &r);
        }
        finish(engine);
        ftx_engine_close(engine);
        ftx_model_close(model);
    }
    for (int i = 0; i < 2; i++) {
        assert_int_equal(found[0][i].n, 4);
        assert_true(same(&found[0][i], &found[1][i], &(const Rounding){.any = false}));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tiny),          cmocka_unit_test(fable),       cmocka_unit_test(gpt2_fable),
        cmocka_unit_test(verse),         cmocka_unit_test(tiny_source), cmocka_unit_test(settings),
        cmocka_unit_test(beside_others), cmocka_unit_test(logprobs),    cmocka_unit_test(refusals),
        cmocka_unit_test(many_long),     cmocka_unit_test(few_part),
    };

    return cmocka_run_group_tests_name("beam", tests, NULL, NULL);
}
