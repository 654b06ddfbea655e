/* test_steps.c - whole decoder models on the host: the compiler compiles them, the C runtime runs them over
 * driver.c, whose launches run in the harness. The tokens must be those of Hugging Face transformers. */
#include "driver.h"

#include <math.h>

#ifdef FTX_HAVE_CUDA
#include "runtime/device/cuda/device_cuda.h"
#include "runtime/device/random.h"
#include "steps.h"

static bool thorough;

static void check_answer(const json_t *golden, const GoldenAnswer *a, size_t most, double tolerance)
{
    const json_t *want = json_object_get(golden, "greedy"), *margin = json_object_get(golden, "margin");

    assert_int_equal(a->n, most);
    for (size_t i = 0; i < most; i++) {
        if (a->ids[i] == (int32_t)json_integer_value(json_array_get(want, i)))
            continue;
        if (json_number_value(json_array_get(margin, i)) > tolerance)
            fail_msg("token %zu is %d, should be %lld", i, a->ids[i], json_integer_value(json_array_get(want, i)));
        return; /* the two largest logits are too close: from here on the texts may differ */
    }
}

/* Runs the prompts `first` to `last` of the golden file in one batch, `most` tokens each. */
static void generate(FtxModel *model, const json_t *prompts, size_t first, size_t last, size_t most, double tolerance)
{
    static GoldenAnswer answers[8];
    static int32_t ids[8][128];
    FtxEngine *engine = golden_engine(model);

    for (size_t i = first; i <= last; i++) {
        const json_t *p = json_array_get(prompts, i);
        FtxRequest r = ftx_request_default(model);

        answers[i] = (GoldenAnswer){0};
        r.ids = ids[i];
        r.ids_count = golden_ids(json_object_get(p, "input_ids"), ids[i], 128);
        r.temperature = 0.0f;
        r.max_new = (int)most;
        r.ignore_eos = true;
        r.user = &answers[i];
        golden_submit(engine, &r);
    }
    golden_finish(engine);
    for (size_t i = first; i <= last; i++)
        check_answer(json_array_get(prompts, i), &answers[i], most, tolerance);
    ftx_engine_close(engine);
}

/* A request with `logits` set gets the logits; the largest is that of its first token. */
static void look_at_logits(FtxModel *model, const json_t *prompts)
{
    static GoldenAnswer answer;
    int32_t ids[128];
    FtxEngine *engine = golden_engine(model);
    FtxRequest r = ftx_request_default(model);
    FtxModelInfo info;
    int best = 0;

    answer = (GoldenAnswer){0};
    r.ids = ids;
    r.ids_count = golden_ids(json_object_get(json_array_get(prompts, 2), "input_ids"), ids, 128);
    r.temperature = 0.0f;
    r.max_new = 2;
    r.ignore_eos = r.logits = true;
    r.user = &answer;
    const uint64_t id = golden_submit(engine, &r);
    golden_finish(engine);
    ftx_model_info(model, &info);
    const float *logits = ftx_engine_logits(engine, id);
    assert_non_null(logits);
    for (int i = 1; i < (int)info.vocab; i++)
        best = logits[i] > logits[best] ? i : best;
    assert_int_equal(best, answer.ids[0]);
    ftx_engine_close(engine);
}

/* Beam searches of four lanes, several at once, and a greedy request beside them. The best hypothesis must be
 * that of transformers (`beam4` in the golden file). */
static void search(FtxModel *model, const json_t *prompts, size_t first, size_t last)
{
    static GoldenAnswer answers[8], beside;
    static int32_t ids[8][128];
    uint64_t id[8];
    size_t left = last - first + 1;
    FtxEngine *engine = golden_engine(model);
    FtxRequest r = ftx_request_default(model);
    FtxEvent events[16] = {FTX_EVENT_INIT};
    FtxError err;

    r.ids_count = golden_ids(json_object_get(json_array_get(prompts, first), "input_ids"), ids[first], 128);
    r.ids = ids[first];
    r.max_new = 6;
    r.ignore_eos = true;
    r.user = &beside;
    beside = (GoldenAnswer){0};
    golden_submit(engine, &r);
    for (size_t i = first; i <= last; i++) {
        r = ftx_request_default(model);
        r.ids = ids[i];
        r.ids_count = golden_ids(json_object_get(json_array_get(prompts, i), "input_ids"), ids[i], 128);
        r.max_new = 16;
        r.beams = 4;
        r.n_best = 4;
        r.user = &answers[i];
        id[i] = golden_submit(engine, &r);
    }
    while (ftx_engine_busy(engine)) {
        size_t n, found;

        if (ftx_engine_step(engine, events, 16, &n, &err))
            fail_msg("%s", err.text);
        for (size_t k = 0; k < n; k++) {
            if (events[k].user == &beside) {
                golden_take(&beside, &events[k]);
                continue;
            }
            for (size_t i = first; i <= last; i++) {
                const json_t *golden = json_array_get(prompts, i), *want = json_object_get(golden, "beam4");
                const FtxHypothesis *h = ftx_engine_hypotheses(engine, id[i], &found);

                if (id[i] != events[k].request)
                    continue;
                left--;
                assert_int_equal(found, 4);
                assert_int_equal(h[0].count, json_array_size(want));
                for (size_t t = 0; t < h[0].count; t++)
                    assert_int_equal(h[0].ids[t], json_integer_value(json_array_get(want, t)));
                assert_true(fabs((double)h[0].score - json_number_value(json_object_get(golden, "beam4_score"))) <
                            1e-4);
            }
        }
    }
    assert_int_equal(left, 0);
    check_answer(json_array_get(prompts, first), &beside, 6, 1e-3);
    ftx_engine_close(engine);
}

/* Rows with logits processors take another path through the kernel. Expected: the result of the CPU kernels. */
static void search_processed(FtxModel *model, const json_t *prompts)
{
    static const int32_t want[] = {196, 148, 89};
    static const double scores[] = {-6.540184, -7.023456, -7.250251, -17.600880};
    const int32_t ends[] = {89, 203};
    int32_t ids[128];
    FtxEngine *engine = golden_engine(model);
    FtxRequest r = ftx_request_default(model);
    FtxEvent events[16] = {FTX_EVENT_INIT};
    FtxError err;
    size_t n, found = 0;
    uint64_t id;

    r.ids = ids;
    r.ids_count = golden_ids(json_object_get(json_array_get(prompts, 1), "input_ids"), ids, 128);
    r.max_new = 8;
    r.min_new = 2;
    r.beams = r.n_best = 4;
    r.length_penalty = 0.0f;
    r.early_stopping = FTX_EARLY_NEVER;
    r.no_repeat_ngram = 2;
    r.repetition_penalty = 1.3f;
    r.bias_ids = (const int32_t[]){165};
    r.bias_values = (const float[]){-0.5f};
    r.bias_count = 1;
    r.stop_ids = ends;
    r.stop_ids_count = 2;
    id = golden_submit(engine, &r);
    while (ftx_engine_busy(engine))
        if (ftx_engine_step(engine, events, 16, &n, &err))
            fail_msg("%s", err.text);

    const FtxHypothesis *h = ftx_engine_hypotheses(engine, id, &found);

    assert_int_equal(found, 4);
    assert_int_equal(h[0].count, sizeof want / sizeof *want);
    assert_memory_equal(h[0].ids, want, sizeof want);
    for (size_t i = 0; i < 4; i++)
        assert_true(fabs((double)h[i].score - scores[i]) < 1e-4);
    ftx_engine_close(engine);
}

/* Bad words that begin in the prompt or after it, for a beam search and a greedy request at once. Expected: the
 * output of transformers. */
static void search_words(FtxModel *model)
{
    static const int32_t ids[] = {46, 84, 307, 232, 174, 127, 41};
    static const int32_t bad[] = {41, 165, 196, 148, 137, 5, 46, 84, 148, 89, 72, 184, 221};
    static const size_t lengths[] = {2, 2, 1, 3, 3, 2};
    static const int32_t beams[] = {184, 83, 208, 134, 282}, greedy[] = {196, 298, 307, 65, 65};
    static GoldenAnswer found, beside;
    FtxEngine *engine = golden_engine(model);
    FtxRequest r = ftx_request_default(model);
    FtxEvent events[16] = {FTX_EVENT_INIT};
    FtxError err;
    size_t n;
    uint64_t id;

    found = beside = (GoldenAnswer){0};
    r.ids = ids;
    r.ids_count = sizeof ids / sizeof *ids;
    r.max_new = 5;
    r.ignore_eos = true;
    r.bad_ids = bad;
    r.bad_lengths = lengths;
    r.bad_count = 6;
    r.user = &beside;
    golden_submit(engine, &r);
    r.beams = 4;
    r.user = &found;
    id = golden_submit(engine, &r);
    while (ftx_engine_busy(engine)) {
        if (ftx_engine_step(engine, events, 16, &n, &err))
            fail_msg("%s", err.text);
        for (size_t i = 0; i < n; i++)
            if (events[i].user == &beside)
                golden_take(&beside, &events[i]);
    }

    const FtxHypothesis *h = ftx_engine_hypotheses(engine, id, &n);

    assert_int_equal(n, 1);
    assert_int_equal(h->count, 5);
    assert_memory_equal(h->ids, beams, sizeof beams);
    assert_true(fabs((double)h->score - -2.488550901412964) < 1e-4);
    assert_memory_equal(beside.ids, greedy, sizeof greedy);
    ftx_engine_close(engine);
}

/* Random weights from the kernels `random` and `random_codes` are bitwise equal to those of the CPU. */
static void check_random(const char *path, const FtxOptions *options)
{
    FtxOptions o = *options;
    Artifact a;
    Device *d;
    FtxError err;

    o.random_weights = 77;
    if (artifact_open(path, &a, &err) || device_cuda.open(&a, artifact_plan(&a, 901, ""), &o, &d, &err))
        fail_msg("%s", err.text);
    for (uint32_t i = 0; i < a.n_weights; i++) {
        const FtxWeight *w = &a.weights[i];
        void *expected = malloc(w->bytes);

        random_fill(&a, i, 77, 0, w->bytes / random_unit(w), expected);
        assert_memory_equal((const char *)(uintptr_t)d->weights + w->offset, expected, w->bytes);
        free(expected);
    }
    device_cuda.close(d);
    artifact_close(&a);
}

/* A request for several samples gives the tokens of as many requests with one sample each on the CPU kernels. */
static void draw_samples(FtxModel *host)
{
    static const struct {
        int length, samples, ngram;
    } prompts[] = {{9, 3, 2}, {17, 2, 0}, {20, 3, 0}};
    FtxModel *cpu = golden_open("tests/models/tiny-llama", "simt-samples", "-D precision.weights=fp32");
    FtxEngine *engine = golden_engine(host), *alone = golden_engine(cpu);
    FtxEvent events[16] = {FTX_EVENT_INIT};
    FtxError err;

    for (size_t i = 0; i < sizeof prompts / sizeof *prompts; i++) {
        static GoldenAnswer got[4], want[4];
        FtxRequest r = ftx_request_default(host);
        int32_t ids[32];

        for (int k = 0; k < prompts[i].length; k++)
            ids[k] = 4 + k * 37 % 290;
        r.ids = ids;
        r.ids_count = (size_t)prompts[i].length;
        r.temperature = 1.2f;
        r.typical_p = 0.9f;
        r.repetition_penalty = 1.3f;
        r.no_repeat_ngram = prompts[i].ngram;
        r.seed = i + 3;
        r.max_new = 5;
        r.ignore_eos = true;
        r.samples = prompts[i].samples;
        r.bad_ids = (const int32_t[]){ids[prompts[i].length - 1], 61, 61, 228}; /* two bad words of two ids */
        r.bad_lengths = (const size_t[]){2, 2};
        r.bad_count = 2;
        golden_submit(engine, &r);
        memset(got, 0, sizeof got);
        while (ftx_engine_busy(engine)) {
            size_t n;

            if (ftx_engine_step(engine, events, 16, &n, &err))
                fail_msg("%s", err.text);
            for (size_t k = 0; k < n; k++)
                golden_take(&got[events[k].sample], &events[k]);
        }
        r.samples = 1;
        for (r.sample = 0; r.sample < prompts[i].samples; r.sample++) {
            want[r.sample] = (GoldenAnswer){0};
            r.user = &want[r.sample];
            golden_submit(alone, &r);
            golden_finish(alone);
            assert_int_equal(got[r.sample].n, 5);
            assert_memory_equal(got[r.sample].ids, want[r.sample].ids, 5 * sizeof(int32_t));
        }
    }
    ftx_engine_close(engine);
    ftx_engine_close(alone);
    ftx_model_close(cpu);
}

/* Every third id; after three tokens only `end`. */
static bool allow(void *user, int sample, const int32_t *ids, size_t count, uint32_t *bits)
{
    const int32_t *end = user;

    (void)sample, (void)ids;
    for (int32_t id = (int32_t)count % 3; id < 307; id += 3)
        bits[id / 32] |= 1u << id % 32;
    for (int w = 0; w < 10 && count == 3; w++)
        bits[w] = *end / 32 == w ? 1u << *end % 32 : 0;
    return true;
}

/* Tokens that the device draws under a mask are those that the host draws, which it does where log-probabilities are
 * asked for. The third request has no mask. */
static void draw_masked(FtxModel *model)
{
    static const struct {
        float temperature, top_p, repetition;
        int top_k;
    } how[] = {{0.0f, 1.0f, 1.0f, 0},
               {0.0f, 1.0f, 1.4f, 0},
               {1.0f, 1.0f, 1.0f, 0},
               {1.1f, 0.8f, 1.0f, 0},
               {1.0f, 0.9f, 1.2f, 20}};
    enum { REQUESTS = 3, NEW = 5 };
    static int32_t ids[REQUESTS][32], end = 89;

    for (size_t i = 0; i < sizeof how / sizeof *how; i++) {
        static GoldenAnswer answers[2][REQUESTS]; /* the device's, the host's */

        memset(answers, 0, sizeof answers);
        for (int host = 0; host < 2; host++) {
            FtxEngine *engine = golden_engine(model);

            for (int k = 0; k < REQUESTS; k++) {
                FtxRequest r = ftx_request_default(model);

                r.ids_count = (size_t)(5 + 7 * k);
                for (size_t at = 0; at < r.ids_count; at++)
                    ids[k][at] = 4 + (int32_t)(at * 37 + (size_t)k * 11) % 290;
                r.ids = ids[k];
                r.temperature = how[i].temperature;
                r.top_p = how[i].top_p;
                r.top_k = how[i].top_k;
                r.repetition_penalty = how[i].repetition;
                r.seed = i;
                r.max_new = NEW;
                r.stop_ids = &end;
                r.stop_ids_count = 1;
                r.logprobs = host;
                r.mask = k < 2 ? allow : NULL;
                r.mask_user = &end;
                r.user = &answers[host][k];
                golden_submit(engine, &r);
            }
            golden_finish(engine);
            ftx_engine_close(engine);
        }
        for (int k = 0; k < REQUESTS; k++) {
            const GoldenAnswer *a = &answers[0][k];

            assert_int_equal(a->n, answers[1][k].n);
            assert_memory_equal(a->ids, answers[1][k].ids, a->n * sizeof *a->ids);
            for (size_t at = 0; at < a->n && k < 2; at++)
                assert_true(at == 3 ? a->ids[at] == end : a->ids[at] % 3 == (int32_t)at % 3);
            assert_true(k == 2 || a->n <= 4);
        }
    }
}

/* Diverse beam search. Expected: the result of the CPU kernels, which have their own test against kernels/ref. */
static void search_groups(FtxModel *host)
{
    static const struct {
        int width, groups, max_new, ngram;
        float rate, penalty;
        FtxEarly early;
    } settings[] = {{4, 2, 6, 0, 0.5f, 1.0f, FTX_EARLY_FALSE}, {3, 3, 5, 2, 1.5f, 0.0f, FTX_EARLY_TRUE}};
    static const int32_t ids[] = {46, 84, 307, 232, 174, 127, 41, 9, 10}, ends[] = {89, 203, 61};
    FtxModel *cpu = golden_open("tests/models/tiny-llama", "simt-groups",
                                "-D decode.width=4 -D limits.sequences=9 -D limits.context=104 -D kv.block_size=8");
    FtxEngine *engine[] = {golden_engine(host), golden_engine(cpu)};
    FtxEvent events[16] = {FTX_EVENT_INIT};
    FtxError err;

    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
        const FtxHypothesis *h[2];
        size_t n, found[2];

        for (int k = 0; k < 2; k++) {
            FtxRequest r = ftx_request_default(host);
            uint64_t id;

            r.ids = ids;
            r.ids_count = sizeof ids / sizeof *ids;
            r.max_new = settings[i].max_new;
            r.beams = r.n_best = settings[i].width;
            r.beam_groups = settings[i].groups;
            r.diversity_rate = settings[i].rate;
            r.logprobs = true;
            r.length_penalty = settings[i].penalty;
            r.early_stopping = settings[i].early;
            r.no_repeat_ngram = settings[i].ngram;
            r.stop_ids = ends;
            r.stop_ids_count = 3;
            id = golden_submit(engine[k], &r);
            while (ftx_engine_busy(engine[k]))
                if (ftx_engine_step(engine[k], events, 16, &n, &err))
                    fail_msg("%s", err.text);
            h[k] = ftx_engine_hypotheses(engine[k], id, &found[k]);
        }
        assert_int_equal(found[0], found[1]);
        for (size_t b = 0; b < found[0]; b++) {
            assert_true(fabs((double)(h[0][b].score - h[1][b].score)) < 1e-4);
            assert_int_equal(h[0][b].count, h[1][b].count);
            assert_memory_equal(h[0][b].ids, h[1][b].ids, h[0][b].count * sizeof *h[0][b].ids);
            for (size_t t = 0; t < h[0][b].count; t++)
                assert_true(fabs((double)(h[0][b].logprobs[t] - h[1][b].logprobs[t])) < 1e-4);
        }
    }
    for (int k = 0; k < 2; k++)
        ftx_engine_close(engine[k]);
    ftx_model_close(cpu);
}

/* With fixed sums requests that are read and written together give, bit for bit, what each gives by itself. */
static void answer_alone(FtxModel *model)
{
    static const struct {
        int length;
        float temperature;
        bool logprobs;
    } asked[] = {{5, 0.0f, true}, {21, 0.0f, false}, {9, 0.9f, true}, {3, 0.0f, true}};
    enum { REQUESTS = sizeof asked / sizeof *asked };
    static GoldenAnswer answers[2][REQUESTS]; /* alone, together */
    static int32_t ids[REQUESTS][32];
    FtxEngine *engine = golden_engine(model);

    memset(answers, 0, sizeof answers);
    for (int together = 0; together < 2; together++)
        for (int i = 0; i < REQUESTS; i++) {
            FtxRequest r = ftx_request_default(model);

            for (int k = 0; k < asked[i].length; k++)
                ids[i][k] = 4 + (k * 37 + i * 11) % 290;
            r.ids = ids[i];
            r.ids_count = (size_t)asked[i].length;
            r.temperature = asked[i].temperature;
            r.logprobs = asked[i].logprobs;
            r.seed = (uint64_t)i;
            r.max_new = 3;
            r.ignore_eos = true;
            r.user = &answers[together][i];
            golden_submit(engine, &r);
            if (!together || i == REQUESTS - 1)
                golden_finish(engine);
        }
    for (int i = 0; i < REQUESTS; i++) {
        assert_int_equal(answers[0][i].n, 3);
        assert_memory_equal(answers[0][i].ids, answers[1][i].ids, 3 * sizeof(int32_t));
        assert_memory_equal(answers[0][i].logprobs, answers[1][i].logprobs, 3 * sizeof(float));
    }
    ftx_engine_close(engine);
}

/* fixed: precision.sums. */
static void check_model(const char *name, const char *type, const char *tokens, int width, double tolerance, bool fixed)
{
    const char *build_dir = getenv("FTX_BUILD");
    char checkout[100], golden[140], dir[600], path[700];
    char weights[60], most[60], lanes[60], sequences[60], sums[60], masks[60];
    Override overrides[] = {{weights},           {most},  {sequences}, {"limits.context=104"},
                            {"kv.block_size=8"}, {lanes}, {sums},      {masks}};
    const bool masked = !fixed && width == 1;
    FtxOptions options = {.size = sizeof(FtxOptions), .device = FTX_DEVICE_CUDA};
    FtxModel *model;
    FtxError err;

    snprintf(weights, sizeof weights, "precision.weights=%s", type);
    snprintf(most, sizeof most, "limits.tokens=%s", tokens);
    snprintf(lanes, sizeof lanes, "decode.width=%d", width);
    snprintf(sequences, sizeof sequences, "limits.sequences=%d", width > 1 ? 9 : 4);
    snprintf(checkout, sizeof checkout, "tests/models/%s", name);
    snprintf(golden, sizeof golden, "%s/golden.json", checkout);
    snprintf(sums, sizeof sums, "precision.sums=%s", fixed ? "fixed" : "free");
    snprintf(masks, sizeof masks, "limits.masks=%s", masked ? "true" : "false");
    snprintf(dir, sizeof dir, "%s/simt-%s-%s-%d%s", build_dir, name, type, width, fixed ? "-fixed" : "");
    snprintf(path, sizeof path, "%s.ftx", dir);
    Build *build = build_open(dir);
    compile_for_host(&(Model){checkout, overrides, sizeof overrides / sizeof *overrides}, path, build);
    build_run(build);
    driver_install(build, 4);
    if (ftx_model_open(path, &options, &model, &err))
        fail_msg("%s: %s", path, err.text);
    json_t *j = golden_json(golden);
    const json_t *prompts = json_object_get(j, "prompts");
    if (width > 1) {
        search(model, prompts, 0, thorough ? 3 : 1);
        if (strcmp(name, "tiny-llama") == 0) {
            search_processed(model, prompts);
            search_words(model);
            search_groups(model);
        }
    } else {
        generate(model, prompts, 1, 1, thorough ? 24 : 6, tolerance); /* one row */
        generate(model, prompts, 0, 3, thorough ? 24 : 4, tolerance); /* four, prompts in chunks beside single tokens */
        if (masked)
            draw_masked(model);
        if (fixed)
            answer_alone(model);
        else if (strcmp(name, "tiny-llama") == 0 && strcmp(type, "fp32") == 0)
            draw_samples(model);
        else
            look_at_logits(model, prompts);
    }
    ftx_model_close(model);
    json_decref(j);
    check_random(path, &options);
    print_message("%s %s: %zu kernels, %zu launches (%zu overlapping) in %zu graphs\n", name, type, build_count(build),
                  driver_counts.launches, driver_counts.overlapping, driver_counts.graphs);
    assert_int_equal(driver_counts.failed, 0);
    assert_int_equal(driver_counts.open, 0);
    assert_true(driver_counts.graphs > 0 && driver_counts.overlapping > 0);
    driver_remove();
    build_close(build);
}

static void llama(void **state)
{
    (void)state;
    if (in_turn_sanitized(0, 3))
        check_model("tiny-llama", "fp32", "16", 1, 1e-3, false);
}

static void gpt2(void **state)
{
    (void)state;
    if (SIMT_SANITIZED)
        return;
    check_model("tiny-gpt2", "fp32", "16", 1, 1e-3, false);
}

/* 16-bit weights and activations use tensor-core kernels. Texts may differ where the two largest logits are close. */
static void llama_bf16(void **state)
{
    (void)state;
    if (SIMT_SANITIZED) /* too slow there; gpt2_fp16 covers the tensor-core kernels */
        return;
    check_model("tiny-llama", "bf16", "16", 1, 0.3, false);
}

static void llama_fixed(void **state)
{
    (void)state;
    if (SIMT_SANITIZED) /* as llama_bf16 */
        return;
    check_model("tiny-llama", "bf16", "16", 1, 0.3, true);
}

static void mistral_codes(void **state)
{
    (void)state;
    if (SIMT_SANITIZED) /* as llama_bf16 */
        return;
    check_model("tiny-mistral", "int8", "16", 1, 0.4, false);
}

static void gpt2_fp16(void **state)
{
    (void)state;
    if (in_turn_sanitized(1, 3))
        check_model("tiny-gpt2", "fp16", "16", 1, 0.1, false);
}

static void mistral(void **state)
{
    (void)state;
    if (thorough)
        check_model("tiny-mistral", "fp32", "64", 1, 1e-3, false);
}

/* Beam search: lanes share the prompt's KV cache, and positions change owners. */
static void llama_beams(void **state)
{
    (void)state;
    if (in_turn_sanitized(2, 3))
        check_model("tiny-llama", "fp32", "16", 4, 1e-3, false);
}

static void gpt2_beams(void **state)
{
    (void)state;
    if (thorough)
        check_model("tiny-gpt2", "fp32", "16", 4, 1e-3, false);
}

static void mistral_beams(void **state)
{
    (void)state;
    if (thorough)
        check_model("tiny-mistral", "fp32", "64", 4, 1e-3, false);
}

int main(int n, char **words)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(llama),         cmocka_unit_test(gpt2),
                                       cmocka_unit_test(llama_bf16),    cmocka_unit_test(gpt2_fp16),
                                       cmocka_unit_test(mistral),       cmocka_unit_test(llama_beams),
                                       cmocka_unit_test(gpt2_beams),    cmocka_unit_test(mistral_beams),
                                       cmocka_unit_test(mistral_codes), cmocka_unit_test(llama_fixed)};

    thorough = n > 1 && strcmp(words[1], "long") == 0;
    if (n > 2)
        cmocka_set_test_filter(words[2]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
#endif
