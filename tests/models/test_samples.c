/* test_samples.c - several sequences from one prompt: the tokens of as many requests, whoever ends
 * first and whatever runs beside them; what they share is computed once and given back once. */
#include <math.h>

#include "golden.h"

enum { MOST = 6, NEW = 24, LONGEST = 64 };

typedef struct Answers { /* of a request, by sample */
    int32_t ids[MOST][NEW];
    float logprob[MOST][NEW];
    size_t n[MOST];
    FtxFinish finish[MOST];
    int ended;
} Answers;

static void step(FtxEngine *engine)
{
    FtxEvent events[32];
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
    r.repetition_penalty = 1.3f; /* looks at the shared prompt, too */
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

/* On the CPU to the bit; on a GPU prompts in other chunks may sum in another order. */
static void compare(const Answers *together, const Answers *apart, int samples, const char *what)
{
    assert_int_equal(together->ended, samples);
    for (int k = 0; k < samples; k++) {
        double off = 0.0;

        for (size_t i = 0; i < together->n[k] && i < apart->n[k]; i++) {
            if (together->ids[k][i] != apart->ids[k][i])
                fail_msg("%s, sample %d, token %zu: %d (%.6f), apart %d (%.6f); before at most %.2g away", what, k, i,
                         together->ids[k][i], (double)together->logprob[k][i], apart->ids[k][i],
                         (double)apart->logprob[k][i], off);
            off = fmax(off, fabs((double)(together->logprob[k][i] - apart->logprob[k][i])));
        }
        assert_int_equal(together->n[k], apart->n[k]);
        assert_int_equal(together->finish[k], apart->finish[k]);
        assert_memory_equal(together->ids[k], apart->ids[k], apart->n[k] * sizeof(int32_t));
        if (!golden_on_cuda())
            assert_memory_equal(together->logprob[k], apart->logprob[k], apart->n[k] * sizeof(float));
    }
}

static void check(FtxModel *model, const int *lengths, int n, int samples)
{
    static Answers together[8], apart[8], beside;
    FtxEngine *engine = golden_engine(model);
    FtxRequest r;
    FtxStatus s;
    FtxError err;
    int ends[2] = {0};

    for (int i = 0; i < n; i++) { /* each sample as a request of its own */
        r = request_of(model, lengths[i], &apart[i]);
        for (r.sample = 0; r.sample < samples; r.sample++) {
            golden_submit(engine, &r);
            finish(engine);
        }
        for (int k = 0; k < samples; k++)
            ends[apart[i].finish[k] == FTX_FINISH_LENGTH]++;
    }
    assert_true(ends[0] && ends[1]);          /* some end early, some at the limit */
    for (int round = 0; round < 2; round++) { /* one after another, and all at once beside another request */
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
            compare(&together[i], &apart[i], samples, what);
        }
    }
    ftx_engine_close(engine);
}

/* Prompts around the edges of pages (8) and of steps (16). kv.pages: without sharing the longest would
 * not fit. */
static void decoders(void **state)
{
    static const int lengths[] = {1, 7, 8, 9, 16, 17, 40};
    FtxModel *model = golden_open("tests/models/tiny-llama", "samples",
                                  "-D limits.sequences=7 -D limits.tokens=16 -D limits.context=64 "
                                  "-D kv.block_size=8 -D kv.pages=24");

    (void)state;
    check(model, lengths, 7, 5);
    ftx_model_close(model);
    model = golden_open("tests/models/tiny-gpt2", "samples-gpt2",
                        "-D limits.sequences=4 -D limits.tokens=5 -D limits.context=64 -D kv.block_size=16");
    check(model, lengths, 7, 4);
    ftx_model_close(model);
}

/* Beside lanes of a search, in an artifact compiled for it. */
static void beside_beams(void **state)
{
    static const int lengths[] = {9, 24};
    FtxModel *model = golden_open("tests/models/tiny-llama", "samples-beams",
                                  "-D decode.width=4 -D limits.sequences=8 -D limits.context=64 -D kv.block_size=8");

    (void)state;
    check(model, lengths, 2, 4);
    ftx_model_close(model);
}

/* The source is read once, and its slot stays until the last sample has ended. */
static void sources(void **state)
{
    static const int lengths[] = {3, 20, 33};
    FtxModel *model = golden_open("tests/models/tiny-bart", "samples-bart",
                                  "-D limits.sequences=5 -D limits.source=40 -D limits.tokens=40 "
                                  "-D limits.context=40 -D kv.block_size=8");

    (void)state;
    check(model, lengths, 3, 4);
    ftx_model_close(model);
}

/* Cut short while they wait and while they run; nothing stays behind. */
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
    r.max_new = 59; /* 8 pages each, none of them shared */
    assert_int_equal(ftx_engine_submit(engine, &r, NULL, &err), FTX_EFULL);
    assert_non_null(strstr(err.text, "need 32 pages of the cache; there are 16"));
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
        cmocka_unit_test(cancelled), cmocka_unit_test(refusals),
    };

    return cmocka_run_group_tests_name("samples", tests, NULL, NULL);
}
