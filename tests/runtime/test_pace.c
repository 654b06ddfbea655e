/* test_pace.c - steps that take about FtxOptions.step_ms: the table of times, the tokens of a step, runs that are enqueued,
 * and flights that are composed late. */
#include "jobs.h"

static void test_table(void **state)
{
    const Pace none = {0}, fast = {.target_us = 25000.0, .rows = {1, 8}, .decode_us = {1000.0, 1250.0}, .n = 2};
    const Pace p = {.target_us = 25000.0,
                    .token_us = 20.0,
                    .prompt_us = 1000.0,
                    .rows = {1, 2, 4, 8},
                    .decode_us = {4000.0, 4100.0, 4300.0, 5000.0},
                    .n = 4};

    (void)state;
    assert_true(pace_step_us(&p, 0, 100) == 7000.0);
    assert_true(pace_step_us(&p, 1, 0) == 4000.0);
    assert_true(pace_step_us(&p, 2, 100) == 7100.0);
    assert_true(pace_step_us(&p, 3, 0) == 4200.0);
    assert_true(pace_step_us(&p, 16, 0) == 10000.0); /* beyond the table */
    assert_true(pace_step_us(&none, 5, 5) == 0.0);
    assert_int_equal(pace_tokens(&p, 0, 2048), 1000);
    assert_int_equal(pace_tokens(&p, 8, 2048), 8 + 950);
    assert_int_equal(pace_tokens(&p, 8, 500), 500);
    assert_int_equal(pace_tokens(&p, 64, 2048), 64 + 256); /* decoding alone takes longer */
    assert_int_equal(pace_tokens(&p, 64, 72), 72);
    assert_int_equal(pace_tokens(&p, 64, 80), 74);
    assert_int_equal(pace_tokens(&p, 0, 4), 4);
    assert_int_equal(pace_tokens(&p, 64, 4), 4);
    assert_int_equal(pace_tokens(&none, 8, 500), 500);
    assert_int_equal(pace_runs(&fast, 1, 7), 6);
    assert_int_equal(pace_runs(&fast, 1, 3), 3);
    assert_int_equal(pace_runs(&fast, 8, 6), 5);
    assert_int_equal(pace_runs(&p, 1, 6), 2);
    assert_int_equal(pace_runs(&p, 64, 6), 2);
    assert_int_equal(pace_runs(&p, 64, 1), 1);
    assert_int_equal(pace_runs(&none, 1, 6), 6);
}

static FtxStatus open_paced(Bed *b, const FakeSizes *sizes, size_t step_ms, FtxError *err)
{
    FtxOptions options = FTX_OPTIONS_INIT;

    b->sizes = *sizes;
    fake_artifact(&b->artifact, sizes);
    assert_int_equal(fake_model(&b->artifact, NULL, &b->model, err), FTX_OK);
    options.step_ms = step_ms;
    return ftx_engine_open(b->model, &options, &b->engine, err);
}

static void test_measured(void **state)
{
    FakeSizes sizes = fake_sizes();
    FtxError err = {FTX_OK, ""};
    Bed b;

    (void)state;
    reset_fake(true, 0);
    fake.made_up = true;
    assert_int_equal(open_paced(&b, &sizes, 1, &err), FTX_OK);
    assert_int_equal(b.engine->pace.n, 3);
    assert_int_equal(b.engine->pace.rows[2], 4);
    assert_true(b.engine->pace.decode_us[2] == 100.0);
    assert_true(b.engine->pace.token_us == 5.0); /* as if all were alike: 20 tokens take no longer than 16 */
    assert_true(b.engine->pace.prompt_us == 0.0);
    assert_int_equal(b.engine->pages.n, b.engine->pages.all);
    close_bed(&b);

    reset_fake(true, 0);
    fake.made_up = true;
    fake.time_us = 1600.0; /* beyond the target: no larger decode step is timed */
    fake.token_us = 50.0;
    fake.prompt_us = 300.0;
    assert_int_equal(open_paced(&b, &sizes, 1, &err), FTX_OK);
    assert_int_equal(b.engine->pace.n, 1);
    assert_true(b.engine->pace.token_us == 50.0);
    assert_true(b.engine->pace.prompt_us == 300.0);
    close_bed(&b);

    reset_fake(true, 0);
    fake.made_up = true;
    sizes.kv_pages = 20; /* four sequences of 21 tokens need 24 */
    assert_int_equal(open_paced(&b, &sizes, 1, &err), FTX_OK);
    assert_int_equal(b.engine->pace.n, 2);
    close_bed(&b);

    reset_fake(true, 0);
    fake.made_up = true;
    fake.token_us = 50.0;
    sizes.kv_pages = 4; /* 16 tokens, fewer than half of the context */
    assert_int_equal(open_paced(&b, &sizes, 1, &err), FTX_OK);
    assert_int_equal(b.engine->pace.n, 1);
    assert_true(b.engine->pace.token_us == 900.0 / 16.0);
    close_bed(&b);

    reset_fake(true, 0);
    assert_int_equal(open_paced(&b, &sizes, 0, &err), FTX_OK);
    assert_int_equal(b.engine->pace.n, 0);
    assert_int_equal(fake.runs, 0);
    close_bed(&b);

    for (int n = 1;; n++) { /* each run in turn fails, of a decode step or of a prompt */
        reset_fake(true, 0);
        fake.made_up = true;
        fake.fail_at = n;
        if (open_paced(&b, &sizes, 1, &err) == FTX_OK) {
            assert_int_equal(n, fake.runs + 1);
            close_bed(&b);
            break;
        }
        assert_int_equal(err.status, FTX_EDEVICE);
        assert_string_equal(err.text, "the fake device has failed");
        ftx_model_close(b.model);
    }
    reset_fake(true, 0);
    assert_int_equal(open_paced(&b, &sizes, 60001, &err), FTX_EINVAL);
    assert_string_equal(err.text, "step_ms: expected 0 to 60000, found 60001");
    ftx_model_close(b.model);
}

static void test_budget(void **state)
{
    FakeSizes sizes = fake_sizes();
    Job job[3];
    Bed b;

    (void)state;
    sizes.context = 60;
    sizes.tokens = 100;
    sizes.kv_pages = 60;
    for (int asynchronous = 0; asynchronous < 2; asynchronous++) {
        reset_fake(asynchronous, 0);
        open_bed(&b, &sizes);
        b.engine->pace =
            (Pace){.target_us = 4000.0, .token_us = 100.0, .rows = {1}, .decode_us = {10.0}, .n = 1}; /* 40 tokens */
        for (int i = 0; i < 3; i++) {
            make_job(&job[i], 50, (uint64_t)i);
            expect(&b, &job[i]);
            submit(&b, &job[i]);
        }
        run(&b);
        assert_int_equal(fake.most_tokens, 40);
        for (int i = 0; i < 3; i++)
            compare(&job[i]);
        close_bed(&b);
    }
}

/* Where a step is long, fewer are enqueued ahead. */
static void test_ahead(void **state)
{
    FakeSizes sizes = fake_sizes();
    Bed b;
    Job j;

    (void)state;
    sizes.n_ends = 0;
    reset_fake(true, 0);
    open_bed(&b, &sizes);
    b.engine->pace = (Pace){.target_us = 120.0, .token_us = 1.0, .rows = {1}, .decode_us = {10.0}, .n = 1};
    make_job(&j, 1, 1);
    j.request.max_new = 9;
    expect(&b, &j);
    submit(&b, &j);
    step(&b);
    assert_int_equal(fake.runs, 3);
    run(&b);
    compare(&j);
    close_bed(&b);
}

/* What comes while a run goes on has a place in the next flight, though the engine was asked for a step before. Steps
 * that give no token are not waited for. */
static void test_late(void **state)
{
    FakeSizes sizes = fake_sizes();
    Job job[3];
    Bed b;

    (void)state;
    sizes.n_ends = 0;
    reset_fake(true, 0);
    open_bed(&b, &sizes);
    b.engine->pace = (Pace){.target_us = 1e9, .token_us = 1e9, .rows = {1}, .decode_us = {1e9}, .n = 1};
    for (int i = 0; i < 3; i++) {
        make_job(&job[i], i < 2 ? 2 : 12, (uint64_t)i);
        job[i].request.max_new = 4;
        expect(&b, &job[i]);
    }
    __atomic_store_n(&fake.hold, true, __ATOMIC_RELAXED);
    submit(&b, &job[0]);
    for (int i = 0; i < 3; i++)
        assert_int_equal(step(&b), 0);
    submit(&b, &job[1]);
    assert_int_equal(step(&b), 0);
    assert_int_equal(fake.runs, 1);
    __atomic_store_n(&fake.hold, false, __ATOMIC_RELAXED);
    while (step(&b) == 0)
        ;
    assert_int_equal(job[0].n_got, 1);
    assert_int_equal(fake.rows[1], 2);
    run(&b);
    submit(&b, &job[2]); /* two tokens a step */
    run(&b);
    for (int i = 0; i < 3; i++)
        compare(&job[i]);
    close_bed(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_table), cmocka_unit_test(test_measured),
                                       cmocka_unit_test(test_budget), cmocka_unit_test(test_ahead),
                                       cmocka_unit_test(test_late)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
