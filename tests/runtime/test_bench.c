/* test_bench.c - ftx_engine_bench on the fake device: what it times and refuses, and that nothing of it stays. */
#include "jobs.h"

static void test_bench(void **state)
{
    FakeSizes sizes = fake_sizes();
    double median, least, most;
    FtxEvent ev[4] = {FTX_EVENT_INIT};
    FtxError err;
    size_t n;
    Bed b;
    Job j;

    (void)state;
    sizes.kv_pages = 40;
    for (int i = 0; i < 3; i++) {
        reset_fake(i > 0, 0);
        sizes.fixed_sums = i == 2; /* a row of one token decodes there, too */
        fake.made_up = true;
        open_bed(&b, &sizes);
        assert_int_equal(ftx_engine_bench(b.engine, 3, 1, 30, 25, &median, &least, &most, &err), FTX_OK);
        assert_true(least <= median && median <= most && least >= 100.0);
        assert_int_equal(fake.decode_runs, 26);
        assert_int_equal(ftx_engine_bench(b.engine, 1, 39, 0, 5, &median, &least, &most, &err), FTX_OK);
        assert_true(least >= 200.0); /* two chunks */
        assert_int_equal(ftx_engine_bench(b.engine, 4, 1, 39, 5, &median, &least, &most, &err), FTX_OK);
        assert_int_equal(ftx_engine_bench(b.engine, 4, 1, 40, 5, &median, &least, &most, &err), FTX_EINVAL);
        assert_int_equal(ftx_engine_bench(b.engine, 5, 1, 4, 5, &median, &least, &most, &err), FTX_EINVAL);
        assert_int_equal(ftx_engine_bench(b.engine, 1, 1, 4, 2, &median, &least, &most, &err), FTX_OK);
        assert_true(least == 100.0 && median == 100.5 && most == 101.0);
        assert_int_equal(ftx_engine_bench(b.engine, 1, 1, 4, 1000, &median, &least, &most, &err), FTX_OK);
        assert_int_equal(ftx_engine_bench(b.engine, 1, 1, 4, 1001, &median, &least, &most, &err), FTX_EINVAL);
        assert_idle(b.engine);
        assert_int_equal(ftx_engine_step(b.engine, ev, 4, &n, &err), FTX_OK); /* nothing of it goes on */
        assert_int_equal(n, 0);
        fake.made_up = false;
        make_job(&j, 8, 4); /* and it works as before */
        expect(&b, &j);
        submit(&b, &j);
        assert_int_equal(ftx_engine_bench(b.engine, 1, 1, 4, 5, &median, &least, &most, &err), FTX_EINVAL);
        run(&b);
        compare(&j);
        close_bed(&b);
    }
}

/* A mixed step: rows of one token, then the prompt, from the same state each time. */
static void test_mixed(void **state)
{
    FakeSizes sizes = fake_sizes();
    double median, least, most;
    FtxError err;
    Bed b;
    Job j;

    (void)state;
    sizes.kv_pages = 40;
    for (int asynchronous = 0; asynchronous < 2; asynchronous++) {
        reset_fake(asynchronous, 0);
        fake.made_up = true;
        open_bed(&b, &sizes);
        assert_int_equal(ftx_engine_bench_mixed(b.engine, 3, 30, 17, 5, &median, &least, &most, &err), FTX_OK);
        assert_true(least <= median && median <= most && least >= 100.0);
        assert_int_equal(fake.runs, 6);
        assert_int_equal(fake.uploads, 6);
        assert_int_equal(fake.decode_runs, 0);
        assert_int_equal(fake.most_rows, 4);
        assert_int_equal(fake.most_tokens, 20);
        assert_int_equal(ftx_engine_bench_mixed(b.engine, 1, 39, 19, 1, &median, &least, &most, &err), FTX_OK);
        assert_int_equal(ftx_engine_bench_mixed(b.engine, 1, 0, 1, 1, &median, &least, &most, &err), FTX_OK);
        assert_int_equal(ftx_engine_bench_mixed(b.engine, 4, 30, 4, 5, &median, &least, &most, &err), FTX_EINVAL);
        assert_int_equal(ftx_engine_bench_mixed(b.engine, 0, 30, 4, 5, &median, &least, &most, &err), FTX_EINVAL);
        assert_int_equal(ftx_engine_bench_mixed(b.engine, 3, 30, 18, 5, &median, &least, &most, &err), FTX_EINVAL);
        assert_int_equal(ftx_engine_bench_mixed(b.engine, 3, 30, 0, 5, &median, &least, &most, &err), FTX_EINVAL);
        assert_int_equal(ftx_engine_bench_mixed(b.engine, 3, -1, 4, 5, &median, &least, &most, &err), FTX_EINVAL);
        assert_int_equal(ftx_engine_bench_mixed(b.engine, 3, 40, 4, 5, &median, &least, &most, &err), FTX_EINVAL);
        assert_int_equal(ftx_engine_bench_mixed(b.engine, 3, 30, 4, 0, &median, &least, &most, &err), FTX_EINVAL);
        assert_idle(b.engine);
        fake.made_up = false;
        make_job(&j, 8, 4); /* and it works as before */
        expect(&b, &j);
        submit(&b, &j);
        assert_int_equal(ftx_engine_bench_mixed(b.engine, 1, 4, 4, 5, &median, &least, &most, &err), FTX_EINVAL);
        run(&b);
        compare(&j);
        close_bed(&b);
    }
    sizes.kv_pages = 14; /* one short */
    reset_fake(false, 0);
    open_bed(&b, &sizes);
    assert_int_equal(ftx_engine_bench_mixed(b.engine, 1, 39, 17, 5, &median, &least, &most, &err), FTX_EFULL);
    assert_non_null(strstr(err.text, "1 sequences of 40 tokens and a prompt need more than the 14 KV pages"));
    close_bed(&b);
}

/* A request that never was has no logits, also where a bench has taken the place of one that had some. */
static void test_logits_of_none(void **state)
{
    FakeSizes sizes = fake_sizes();
    double time;
    Bed b;
    Job j;

    (void)state;
    reset_fake(false, 0);
    open_bed(&b, &sizes);
    make_job(&j, 5, 1);
    j.request.logits = 1;
    expect(&b, &j);
    submit(&b, &j);
    run(&b);
    assert_non_null(ftx_engine_logits(b.engine, j.id));
    fake.made_up = true;
    assert_int_equal(ftx_engine_bench(b.engine, 1, 1, 4, 1, &time, &time, &time, NULL), FTX_OK);
    assert_null(ftx_engine_logits(b.engine, j.id));
    assert_null(ftx_engine_logits(b.engine, 0));
    close_bed(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_bench), cmocka_unit_test(test_mixed),
                                       cmocka_unit_test(test_logits_of_none)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
