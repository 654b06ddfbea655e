/* test_samples.c - several samples of one prompt: each has the tokens of a separate request, in any order of ending
 * and beside any other requests. Shared KV pages are computed once and released once.
 *
 * In 16 bits a sample may differ from the separate request only if the random number is so near to the border of the
 * token's interval in [0, 1) that rounding (rounding.h) may have moved the border across it. */
#include <math.h>

#include "rounding.h"
#include "tests/skip.h"

enum { MOST = 6, NEW = 24, LONGEST = 64 };

typedef struct Answers { /* results of a request, by sample */
    int32_t ids[MOST][NEW];
    float logprob[MOST][NEW];
    size_t n[MOST];
    FtxFinish finish[MOST];
    int ended;
} Answers;

static void step(FtxEngine *engine)
{
    FtxEvent events[32] = {FTX_EVENT_INIT};
    FtxError err;
    size_t n;

    if (ftx_engine_step(engine, events, 32, &n, &err))
        fail_msg("%s", err.text);
    for (size_t i = 0; i < n; i++) {
        Answers *a = events[i].user;
        const int k = events[i].sample;

        assert_in_range(k, 0, MOST - 1);
        assert_int_equal(a->finish[k], FTX_RUNNING);
        if (events[i].token >= 0) {
            a->logprob[k][a->n[k]] = events[i].logprob;
            a->ids[k][a->n[k]++] = events[i].token;
        }
        a->finish[k] = events[i].finish;
        a->ended += events[i].finish != FTX_RUNNING;
    }
}

static void finish(FtxEngine *engine)
{
    while (ftx_engine_busy(engine))
        step(engine);
}

static int32_t prompt[LONGEST];

static FtxRequest request_of(const FtxModel *model, int length, Answers *a)
{
    static const int32_t ends[] = {3, 50, 60, 117, 201, 230, 250};
    FtxRequest r = ftx_request_default(model);

    *a = (Answers){.ended = 0};
    for (int i = 0; i < LONGEST; i++)
        prompt[i] = 4 + (i * 37 + length * 11) % 290;
    r.ids = prompt;
    r.ids_count = (size_t)length;
    r.temperature = 1.2f;
    r.top_k = length % 3 ? 50 : 0;
    r.repetition_penalty = 1.3f; /* reads the history, which includes the shared prompt */
    r.no_repeat_ngram = length % 2 ? 2 : 0;
    r.seed = (uint64_t)length;
    r.beams = 1;
    r.ignore_eos = true;
    r.stop_ids = ends;
    r.stop_ids_count = sizeof ends / sizeof *ends;
    r.max_new = NEW;
    r.logprobs = true;
    r.user = a;
    return r;
}

/* Share of drawn tokens that may differ from separate requests. Measured on an H200: 3 of 2,526 in fp16, 23 of 2,245 in bf16,
 * which rounds eight times as coarsely. */
static double most_tokens(const Rounding *r)
{
    return r->share / 16.0;
}

/* Whether the random number after `ids` may choose `id` if each logit may be wrong by `off`. Let d be that error after
 * penalty and temperature: it changes a cumulative probability F by at most F (1 - F) (e^2d - 1). With top_k, tokens
 * whose logits are near the k-th one may also enter or leave the kept set: their probability is added. */
static bool may_choose(const FtxRequest *q, const float *logits, int V, const int32_t *ids, int n, int sample, int id,
                       double off)
{
    static double p[320], z[320];
    static int32_t order[320];
    const FtxRow row = {.kv_len = n, .prompt = (int)q->ids_count};
    const FtxParams params = {.temperature = q->temperature,
                              .top_p = 1.0f,
                              .repetition = q->repetition_penalty,
                              .top_k = q->top_k,
                              .ngram = q->no_repeat_ngram,
                              .seed_low = (unsigned)q->seed,
                              .sample = sample};
    const RefRow r = {.row = &row, .params = &params, .history = ids};
    const double d = off * fmax(1.0, (double)q->repetition_penalty) / (double)q->temperature;
    double below = 0.0, least = INFINITY, near = 0.0, kept = 0.0, u, moved;

    assert_true(V <= 320);
    ref_penalties(&r, logits, V, z);
    ref_probabilities(&r, logits, V, p, order);
    u = ref_uniform(&r);
    for (int i = 0; i < V; i++) {
        below += i < id ? p[i] : 0.0;
        least = p[i] > 0.0 ? fmin(least, z[i] / (double)q->temperature) : least; /* the smallest that top_k keeps */
    }
    for (int i = 0; i < V; i++) {
        const double x = z[i] / (double)q->temperature, weight = exp(x - least);

        near += fabs(x - least) <= 2.0 * d && q->top_k ? weight : 0.0;
        kept += x >= least ? weight : 0.0;
    }
    moved = (exp(2.0 * d) - 1.0) / 4.0 + near / kept;
    return u >= below - moved && u <= below + p[id] + moved;
}

/* Token i of sample k differs from the separate request: checks that the random number was close to a border. */
static void check_parting(FtxEngine *engine, const FtxModel *model, const Rounding *r, int length, int k, size_t i,
                          const Answers *together, const Answers *apart, const char *what)
{
    static Answers ignored, unused;
    static int32_t ids[LONGEST + NEW];
    FtxRequest again = request_of(model, length, &unused), q = again;
    const float *logits;
    FtxModelInfo info;
    int n = length;
    uint64_t id;

    ftx_model_info(model, &info);
    if (!r->any)
        fail_msg("%s, sample %d, token %zu: %d (%.6f), apart %d (%.6f)", what, k, i, together->ids[k][i],
                 (double)together->logprob[k][i], apart->ids[k][i], (double)apart->logprob[k][i]);
    if (info.kind == FTX_MODEL_SEQ2SEQ) { /* ids of the decoder: the start token, then the first i tokens */
        again.prefix = apart->ids[k];
        again.prefix_count = i;
        ids[0] = 2;
        n = 1;
        q.ids_count = 1;
    } else {
        memcpy(ids, prompt, (size_t)length * sizeof *ids);
        again.ids = ids;
        again.ids_count = (size_t)length + i;
    }
    memcpy(ids + n, apart->ids[k], i * sizeof *ids);
    ignored = (Answers){.ended = 0};
    again.user = &ignored;
    again.temperature = 0.0f;
    again.logits = true;
    again.max_new = 1;
    id = golden_submit(engine, &again);
    finish(engine);
    logits = ftx_engine_logits(engine, id);
    assert_non_null(logits);
    if (!may_choose(&q, logits, info.vocab, ids, n + (int)i, k, together->ids[k][i], rounding_logit(r)) ||
        !may_choose(&q, logits, info.vocab, ids, n + (int)i, k, apart->ids[k][i], rounding_logit(r)))
        fail_msg("%s, sample %d, token %zu: %d, apart %d, and no border is near", what, k, i, together->ids[k][i],
                 apart->ids[k][i]);
}

/* Bit for bit on the CPU. On a GPU the order of a sum depends on how the prompt is split into chunks. */
static void compare(FtxEngine *engine, const FtxModel *model, const Rounding *r, int length, const Answers *together,
                    const Answers *apart, int samples, const char *what)
{
    const double off = r->any ? rounding_logprob(r) : 1e-3;

    assert_int_equal(together->ended, samples);
    for (int k = 0; k < samples; k++) {
        size_t i = 0;

        for (; i < together->n[k] && i < apart->n[k] && together->ids[k][i] == apart->ids[k][i]; i++)
            if (!(fabs((double)(together->logprob[k][i] - apart->logprob[k][i])) <= off))
                fail_msg("%s, sample %d, token %zu: log-probability %.6f, apart %.6f", what, k, i,
                         (double)together->logprob[k][i], (double)apart->logprob[k][i]);
        count_partings((int)i, 0, most_tokens(r));
        if (i < together->n[k] && i < apart->n[k]) {
            check_parting(engine, model, r, length, k, i, together, apart, what);
            count_partings(1, 1, most_tokens(r));
            continue;
        }
        assert_int_equal(together->n[k], apart->n[k]);
        assert_int_equal(together->finish[k], apart->finish[k]);
        if (!golden_on_cuda())
            assert_memory_equal(together->logprob[k], apart->logprob[k], apart->n[k] * sizeof(float));
    }
}

static Rounding rounding_of(const char *artifact)
{
    enum { LONG = 12 };
    int32_t texts[2 * ROUNDING_MOST], source[2 * LONG];
    PlainSource plain;
    char path[1000];
    Rounding r;

    golden_path(artifact, path, sizeof path);
    for (int i = 0; i < 2 * ROUNDING_MOST; i++)
        texts[i] = 4 + i * 104729 % 290;
    for (int i = 0; i < 2 * LONG; i++)
        source[i] = 4 + i * 7919 % 290;
    if (!strstr(artifact, "bart"))
        return rounding_of_decoder(path, 0, 0, texts, 2);
    plain_source_open(&plain, path, FTX_ACT_GELU_ERF, false, 2);
    r = rounding_of_source(artifact, &plain, source, LONG, texts, 2);
    plain_source_close(&plain);
    return r;
}

static void check(FtxModel *model, const char *artifact, const int *lengths, int n, int samples)
{
    static Answers together[8], apart[8], beside;
    FtxEngine *engine = golden_engine(model);
    const Rounding rounding = rounding_of(artifact);
    FtxRequest r;
    FtxStatus s;
    FtxError err;
    int ends[2] = {0};

    for (int i = 0; i < n; i++) { /* each sample as a separate request */
        r = request_of(model, lengths[i], &apart[i]);
        for (r.sample = 0; r.sample < samples; r.sample++) {
            golden_submit(engine, &r);
            finish(engine);
        }
        for (int k = 0; k < samples; k++)
            ends[apart[i].finish[k] == FTX_FINISH_LENGTH]++;
    }
    assert_true(ends[0] && ends[1]);          /* some end early, some at the limit */
    for (int round = 0; round < 2; round++) { /* alone, then all at once with another request */
        for (int i = 0; i < n; i++) {
            r = request_of(model, lengths[i], &together[i]);
            r.samples = samples;
            while ((s = ftx_engine_submit(engine, &r, NULL, &err)) == FTX_EFULL)
                step(engine);
            assert_int_equal(s, FTX_OK);
            if (round == 0)
                finish(engine);
            else if (i == 1) {
                r = request_of(model, 5, &beside);
                while (ftx_engine_submit(engine, &r, NULL, &err) == FTX_EFULL)
                    step(engine);
            }
        }
        finish(engine);
        for (int i = 0; i < n; i++) {
            char what[60];

            snprintf(what, sizeof what, "a prompt of %d, %s", lengths[i], round ? "all at once" : "alone");
            compare(engine, model, &rounding, lengths[i], &together[i], &apart[i], samples, what);
        }
    }
    ftx_engine_close(engine);
}

/* Prompt lengths around multiples of the page (8) and of the step (16). kv.pages: the samples of the longest prompt
 * fit only if they share pages. */
static void decoders(void **state)
{
    static const int lengths[] = {1, 7, 8, 9, 16, 17, 40};
    FtxModel *model = golden_open("tests/models/tiny-llama", "samples",
                                  "-D limits.sequences=7 -D limits.tokens=16 -D limits.context=64 "
                                  "-D kv.block_size=8 -D kv.pages=24");

    (void)state;
    check(model, "samples", lengths, 7, 5);
    ftx_model_close(model);
    model = golden_open("tests/models/tiny-gpt2", "samples-gpt2",
                        "-D limits.sequences=4 -D limits.tokens=5 -D limits.context=64 -D kv.block_size=16");
    check(model, "samples-gpt2", lengths, 7, 4);
    ftx_model_close(model);
}

/* In an artifact compiled for beam search. */
static void beside_beams(void **state)
{
    static const int lengths[] = {9, 24};
    FtxModel *model = golden_open("tests/models/tiny-llama", "samples-beams",
                                  "-D decode.width=4 -D limits.sequences=8 -D limits.context=64 -D kv.block_size=8");

    (void)state;
    check(model, "samples-beams", lengths, 2, 4);
    ftx_model_close(model);
}

/* The encoder runs once for all samples, and its slot stays in use until the last sample has ended. */
static void sources(void **state)
{
    static const int lengths[] = {3, 20, 33};
    FtxModel *model = golden_open("tests/models/tiny-bart", "samples-bart",
                                  "-D limits.sequences=5 -D limits.source=40 -D limits.tokens=40 "
                                  "-D limits.context=40 -D kv.block_size=8");

    (void)state;
    check(model, "samples-bart", lengths, 3, 4);
    ftx_model_close(model);
}

/* Samples cancelled while they wait and while they run: every page and slot is free afterwards. */
static void cancelled(void **state)
{
    static Answers a[6];
    FtxModel *model = golden_open("tests/models/tiny-llama", "samples-cancel",
                                  "-D limits.sequences=5 -D limits.tokens=8 -D limits.context=64 "
                                  "-D kv.block_size=8 -D kv.pages=16");
    FtxEngine *engine = golden_engine(model);
    FtxError err;

    (void)state;
    for (int after = 0; after < 12; after++) {
        uint64_t id[2];

        for (int i = 0; i < 2; i++) {
            FtxRequest r = request_of(model, 30, &a[i]);

            r.samples = 3;
            r.stop_ids_count = 0;
            id[i] = golden_submit(engine, &r);
        }
        for (int i = 0; i < after; i++)
            step(engine);
        assert_int_equal(ftx_engine_cancel(engine, id[after % 2], &err), FTX_OK);
        assert_int_equal(ftx_engine_cancel(engine, id[after % 2], &err), FTX_EINVAL);
        finish(engine);
        for (int i = 0; i < 2; i++)
            for (int k = 0; k < 3; k++)
                assert_int_equal(a[i].finish[k], i == after % 2 ? FTX_FINISH_CANCEL : FTX_FINISH_LENGTH);
    }
    ftx_engine_close(engine);
    ftx_model_close(model);
}

static void refusals(void **state)
{
    if (in_16_bits())
        SKIP("a run in 16 bits: refusals are those of fp32");

    static Answers a;
    FtxModel *model = golden_open("tests/models/tiny-llama", "samples-refuse",
                                  "-D decode.width=2 -D limits.sequences=4 -D limits.context=64 -D kv.block_size=8 "
                                  "-D kv.pages=16");
    FtxEngine *engine = golden_engine(model);
    FtxRequest r = request_of(model, 5, &a);
    FtxError err;

    (void)state;
    r.samples = 5;
    assert_int_equal(ftx_engine_submit(engine, &r, NULL, &err), FTX_EINVAL);
    assert_non_null(strstr(err.text, "samples: expected 0 to 4, found 5"));
    r.samples = 2;
    r.beams = 2;
    assert_int_equal(ftx_engine_submit(engine, &r, NULL, &err), FTX_EINVAL);
    assert_non_null(strstr(err.text, "samples: 2 of a beam search"));
    r.beams = 1;
    r.temperature = 0.0f;
    assert_int_equal(ftx_engine_submit(engine, &r, NULL, &err), FTX_EINVAL);
    assert_non_null(strstr(err.text, "samples: 2 at temperature 0"));
    r = request_of(model, 5, &a);
    r.samples = 4;
    r.max_new = 59; /* 8 pages for each sample, none shared */
    assert_int_equal(ftx_engine_submit(engine, &r, NULL, &err), FTX_EFULL);
    assert_non_null(strstr(err.text, "need 32 KV pages of 8 tokens; there are 16"));
    r.max_new = NEW;
    for (int i = 0; i < 4; i++)
        golden_submit(engine, &r);
    assert_int_equal(ftx_engine_submit(engine, &r, NULL, &err), FTX_EFULL);
    assert_non_null(strstr(err.text, "16 requests wait already"));
    ftx_engine_close(engine);
    ftx_model_close(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(decoders),  cmocka_unit_test(beside_beams), cmocka_unit_test(sources),
        cmocka_unit_test(cancelled), cmocka_unit_test(refusals),     cmocka_unit_test(few_part),
    };

    return cmocka_run_group_tests_name("samples", tests, NULL, NULL);
}
