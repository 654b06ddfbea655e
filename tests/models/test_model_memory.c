/* test_model_memory.c - a real model on the CPU: memory is allocated at open and nowhere else. If an allocation
 * fails, open fails with a message and frees everything. */
#include "golden.h"

#if defined(__SANITIZE_ADDRESS__)
int main(void)
{
    return 0; /* the sanitizer has its own malloc */
}
#else
#include "tests/runtime/count_malloc.h"

static char artifact[1000];

static int compile(void **state)
{
    (void)state;
    ftx_model_close(golden_open("specs/fable.lua", "fable-memory", ""));
    snprintf(artifact, sizeof artifact, "%s/test-fable-memory.ftx", getenv("FTX_BUILD"));
    return 0;
}

static FtxStatus submit_all(FtxEngine *e, const FtxModel *m, FtxError *err)
{
    static const char *const texts[] = {"Once upon a time", "The wolf said: ", "\xff\xfe, 1234567 \xe2\x82\xac",
                                        "In the forest   there\n\n lived"};
    static const char *const stop[] = {"the", ".\n"};
    FtxStatus s = FTX_OK;

    for (int i = 0; i < 12 && !s; i++) {
        FtxRequest q = ftx_request_default(m);

        q.text = texts[i % 4];
        q.seed = (uint64_t)i;
        q.max_new = 24;
        q.temperature = i % 3 ? 0.9f : 0.0f;
        q.no_repeat_ngram = i % 5 ? 0 : 3;
        q.stop = stop;
        q.stop_count = (size_t)i % 3;
        q.logits = i == 7;
        s = ftx_engine_submit(e, &q, NULL, err);
    }
    return s;
}

/* Opens, generates twelve texts, closes. during: number of allocations between open and close. */
static FtxStatus live_once(int *during, FtxError *err)
{
    const FtxOptions o = {.size = sizeof(FtxOptions), .device = FTX_DEVICE_CPU, .threads = 2};
    FtxModel *m = NULL;
    FtxEngine *e = NULL;
    FtxEvent ev[64] = {FTX_EVENT_INIT};
    size_t n;
    FtxStatus s = ftx_model_open(artifact, &o, &m, err);

    if (!s)
        s = ftx_engine_open(m, NULL, &e, err);

    const int before = atomic_load(&calls);

    if (!s)
        s = submit_all(e, m, err);
    while (!s && ftx_engine_busy(e))
        s = ftx_engine_step(e, ev, 64, &n, err);
    *during = atomic_load(&calls) - before;
    ftx_engine_close(e);
    ftx_model_close(m);
    return s;
}

static void test_none_while_running(void **state)
{
    FtxError err;
    int during;

    (void)state;
    for (int i = 0; i < 3; i++) {
        if (live_once(&during, &err))
            fail_msg("%s", err.text);
        assert_int_equal(during, 0);
    }
}

/* An encoder: texts, pairs, ids and hidden states, packed and padded, including inputs that are refused. */
static void test_none_while_encoding(void **state)
{
    enum { D = 96, ROWS = 64 };
    static const char *const text[] = {"a ab", "b", "", "x a b . ab"}, *const pair[] = {NULL, "ab a", "x", NULL};
    static const int32_t ids[] = {2, 4, 5, 3, 2, 9999, 3}, lengths[] = {4, 3};
    static float hidden[ROWS * D], input[ROWS * D], pooled[4 * D];
    FtxModel *m =
        golden_open("tests/models/tiny-bert", "bert-memory", "-D tokenizer=tests/tokenizer/small/wordpiece.json");
    FtxEngine *e = golden_engine(m);
    FtxError errors[4], err;

    (void)state;
    for (int turn = 0; turn < 8; turn++) {
        const int before = atomic_load(&calls), what = turn % 4;
        const FtxEncode job = {.size = sizeof(FtxEncode),
                               .count = what < 2 ? 4 : 2,
                               .text = what < 2 ? text : NULL,
                               .pair = what == 1 ? pair : NULL,
                               .truncate = what == 1 ? FTX_TRUNCATE_LONGEST : FTX_TRUNCATE_NONE,
                               .max_tokens = what == 1 ? 6 : 0,
                               .ids = what == 2 ? ids : NULL,
                               .input = what == 3 ? input : NULL,
                               .lengths = lengths,
                               .stride = turn < 4 || what == 2 ? 0 : 8,
                               .hidden = hidden,
                               .hidden_rows = ROWS,
                               .pooled = pooled,
                               .errors = errors};

        if (ftx_engine_encode(e, &job, &err))
            fail_msg("%s", err.text);
        assert_int_equal(atomic_load(&calls), before);
    }
    ftx_engine_close(e);
    ftx_model_close(m);
}

/* Open may succeed although an allocation failed, if a library can do without it (PCRE2 without its JIT). */
static void test_every_malloc_fails(void **state)
{
    int during, failed = 0;

    (void)state;
    for (int n = 1;; n++) {
        const int before = atomic_load(&live);
        FtxError err = {FTX_OK, ""};
        FtxStatus s;

        assert_true(n < 2000);
        atomic_store(&calls, 0);
        atomic_store(&fail_at, n);
        s = live_once(&during, &err);
        atomic_store(&fail_at, 0);
        if (atomic_load(&live) != before)
            fail_msg("allocation %d fails: %d are left behind (%s)", n, atomic_load(&live) - before, err.text);
        assert_true(s == FTX_OK || *err.text);
        failed += s != FTX_OK;
        if (s == FTX_OK && atomic_load(&calls) < n)
            break;
    }
    assert_true(failed >= 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_none_while_running),
        cmocka_unit_test(test_none_while_encoding),
        cmocka_unit_test(test_every_malloc_fails),
    };

    return cmocka_run_group_tests(tests, compile, NULL);
}
#endif
