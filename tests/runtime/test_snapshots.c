/* test_snapshots.c - snapshots of recurrent states, on the fake device, which knows what each state has seen. */
#include "jobs.h"

enum { SNAPSHOTS = 2 };

static void open_states(Bed *b, bool asynchronous)
{
    FtxOptions options = FTX_OPTIONS_INIT;
    FtxError err;

    reset_fake(asynchronous, asynchronous ? 50 : 0);
    b->sizes = fake_sizes();
    b->sizes.context = 160;
    b->sizes.kv_pages = 120;
    b->sizes.snapshots = SNAPSHOTS;
    b->sizes.tokens = 128;
    b->sizes.masks = asynchronous;
    options.prefix_cache = 1;
    fake_artifact(&b->artifact, &b->sizes);
    assert_int_equal(fake_model(&b->artifact, NULL, &b->model, &err), FTX_OK);
    assert_int_equal(ftx_engine_open(b->model, &options, &b->engine, &err), FTX_OK);
}

static void make(const Bed *b, Job *j, int prompt, unsigned text)
{
    make_job(j, prompt, text);
    j->request.max_new = 6;
    expect(b, j);
}

/* Tokens of its prompt that it takes over. */
static uint64_t run_job(Bed *b, Job *j)
{
    const uint64_t before = ftx_engine_stats(b->engine).cached_tokens;

    submit(b, j);
    run(b);
    compare(j);
    return ftx_engine_stats(b->engine).cached_tokens - before;
}

/* One that begins like another that is about to leave a snapshot waits for it, another text does not. */
static void test_awaits(void **state)
{
    (void)state;
    for (int asynchronous = 0; asynchronous < 2; asynchronous++) {
        Job first, same, longer, other;
        Bed b;

        open_states(&b, asynchronous);
        make(&b, &first, 50, 1);
        make(&b, &same, 50, 1);
        make(&b, &longer, 90, 1);
        make(&b, &other, 50, 2);
        submit(&b, &first);
        submit(&b, &same);
        submit(&b, &longer);
        submit(&b, &other);
        step(&b);
        assert_int_equal(ftx_engine_stats(b.engine).running, 2);
        run(&b);
        compare(&first);
        compare(&same);
        compare(&longer);
        compare(&other);
        assert_int_equal(ftx_engine_stats(b.engine).cached_tokens, 96);
        assert_int_equal(fake.snapshots[0], 3); /* behind 48 tokens of both texts, and behind 88 of one */
        assert_int_equal(fake.snapshots[1], 2);
        close_bed(&b);
    }
}

/* Of two snapshots the one that was used longest ago goes; a page that is forgotten takes its own with it. */
static void test_forgotten(void **state)
{
    Job j, large[4];
    Bed b;

    (void)state;
    open_states(&b, false);
    for (unsigned text = 1; text < 3; text++) {
        make(&b, &j, 50, text);
        assert_int_equal(run_job(&b, &j), 0);
    }
    make(&b, &j, 50, 1);
    assert_int_equal(run_job(&b, &j), 48);
    make(&b, &j, 50, 3);
    assert_int_equal(run_job(&b, &j), 0);
    make(&b, &j, 50, 1);
    assert_int_equal(run_job(&b, &j), 48);
    make(&b, &j, 50, 2);
    assert_int_equal(run_job(&b, &j),
                     0); /* its pages are known still; in place of that of text 3 it leaves one again */
    make(&b, &j, 50, 2);
    assert_int_equal(run_job(&b, &j), 48);

    for (unsigned i = 0; i < 4; i++) { /* these take all pages, and the prompts are too short for snapshots */
        make_job(&large[i], 30, 10 + i);
        large[i].request.max_new = 90;
        large[i].request.ignore_eos = true;
        expect(&b, &large[i]);
        submit(&b, &large[i]);
    }
    run(&b);
    assert_int_equal(fake.snapshots[0], 4);
    make(&b, &j, 50, 1);
    assert_int_equal(run_job(&b, &j), 0);
    close_bed(&b);
}

/* Several samples leave one together. */
static void test_samples(void **state)
{
    FtxEvent ev[64] = {FTX_EVENT_INIT};
    FtxError err = {FTX_OK, ""};
    Job j, several;
    size_t n;
    Bed b;

    (void)state;
    open_states(&b, false);
    make(&b, &j, 50, 1);
    run_job(&b, &j);
    make_job(&several, 50, 2);
    several.request.max_new = 6;
    several.request.samples = 3;
    several.request.temperature = 1.0f;
    submit(&b, &several);
    while (ftx_engine_busy(b.engine))
        assert_int_equal(ftx_engine_step(b.engine, ev, 64, &n, &err), FTX_OK);
    make(&b, &j, 50, 1);
    assert_int_equal(run_job(&b, &j), 48);
    make(&b, &j, 50, 2);
    assert_int_equal(run_job(&b, &j), 48);

    submit(&b, &several); /* the first sample begins behind it, the others compute the prompt */
    while (ftx_engine_busy(b.engine)) {
        assert_int_equal(ftx_engine_step(b.engine, ev, 64, &n, &err), FTX_OK);
        for (size_t i = 0; i < n; i++)
            assert_int_equal(ev[i].cached_tokens, ev[i].sample ? 0 : 48);
    }
    close_bed(&b);
}

static bool allow_all(void *user, int sample, const int32_t *ids, size_t count, uint32_t *bits)
{
    (void)user, (void)sample, (void)ids, (void)count;
    memset(bits, 0xff, 2 * sizeof *bits);
    return true;
}

/* Two of one step leave one each, also where the step has a row with a mask. */
static void test_beside(void **state)
{
    (void)state;
    for (int asynchronous = 0; asynchronous < 2; asynchronous++) {
        Job masked, j[2];
        Bed b;

        open_states(&b, asynchronous);
        make_job(&masked, 3, 9);
        masked.request.mask = allow_all;
        masked.request.max_new = 100;
        masked.request.ignore_eos = true;
        submit(&b, &masked);
        for (int i = 0; i < 5; i++)
            step(&b);
        for (unsigned i = 0; i < 2; i++) {
            make(&b, &j[i], 50, 1 + i);
            submit(&b, &j[i]);
        }
        run(&b);
        for (unsigned i = 0; i < 2; i++) {
            make(&b, &j[i], 50, 1 + i);
            assert_int_equal(run_job(&b, &j[i]), 48);
        }
        close_bed(&b);
    }
}

/* A request that ends before its pages are known leaves nothing. */
static void test_cancelled(void **state)
{
    Job first, same;
    Bed b;

    (void)state;
    open_states(&b, true);
    make(&b, &first, 50, 1);
    submit(&b, &first);
    while (!fake.snapshots[0])
        step(&b);
    fake.hold = true;
    ftx_engine_cancel(b.engine, first.id, NULL);
    first.cancelled = true;
    fake.hold = false;
    run(&b);
    make(&b, &same, 50, 1);
    run_job(&b, &same);
    for (uint32_t i = 0; i < SNAPSHOTS; i++)
        assert_null(b.engine->snapshots.at[i].of);
    close_bed(&b);
}

/* The engine ends with a copy that fails, in either direction. */
static void test_fails(void **state)
{
    (void)state;
    for (int at = 1; at < 3; at++) {
        FtxEvent ev[64] = {FTX_EVENT_INIT};
        FtxError err = {FTX_OK, ""};
        FtxStatus s = FTX_OK;
        size_t n;
        Job j;
        Bed b;

        open_states(&b, false);
        make(&b, &j, 50, 1);
        if (at == 2)
            run_job(&b, &j);
        fake.snapshots_until_failure = 1;
        make(&b, &j, 50, 1);
        submit(&b, &j);
        while (!s)
            s = ftx_engine_step(b.engine, ev, 64, &n, &err);
        assert_int_equal(s, FTX_EDEVICE);
        assert_string_equal(err.text, "the fake snapshot has failed");
        close_bed(&b);
    }
}

/* Without the option, and without room for snapshots, each request computes all of its tokens. */
static void test_off(void **state)
{
    (void)state;
    for (int none = 0; none < 2; none++) {
        FtxOptions options = FTX_OPTIONS_INIT;
        FtxError err;
        Job j;
        Bed b;

        open_states(&b, false);
        ftx_engine_close(b.engine);
        options.prefix_cache = (size_t)none;
        if (none)
            b.artifact.plan.named_bytes[FTX_NAMED_snapshots] = 0;
        assert_int_equal(ftx_engine_open(b.model, &options, &b.engine, &err), FTX_OK);
        for (int i = 0; i < 2; i++) {
            make(&b, &j, 50, 1);
            assert_int_equal(run_job(&b, &j), 0);
        }
        assert_int_equal(fake.snapshots[0], 0);
        close_bed(&b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_awaits),    cmocka_unit_test(test_forgotten),
                                       cmocka_unit_test(test_samples),   cmocka_unit_test(test_beside),
                                       cmocka_unit_test(test_cancelled), cmocka_unit_test(test_fails),
                                       cmocka_unit_test(test_off)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
