/* test_grow.c - FtxOptions.overcommit on the fake device: requests take pages as they grow and are preempted when there
 * are none; tokens, texts and the number of events are those of the request alone. */
#include "jobs.h"

static void open_growing(Bed *b, const FakeSizes *sizes, bool asynchronous, bool prefix)
{
    FtxOptions options = FTX_OPTIONS_INIT;
    FtxError err = {FTX_OK, ""};

    reset_fake(asynchronous, asynchronous ? 20 : 0);
    b->sizes = *sizes;
    fake_artifact(&b->artifact, sizes);
    assert_int_equal(fake_model(&b->artifact, NULL, &b->model, &err), FTX_OK);
    options.overcommit = 1;
    options.prefix_cache = prefix;
    assert_int_equal(ftx_engine_open(b->model, &options, &b->engine, &err), FTX_OK);
}

static FakeSizes large_sizes(uint32_t pages)
{
    FakeSizes s = fake_sizes();

    s.context = 200;
    s.kv_pages = pages;
    s.n_ends = 0;
    return s;
}

static void assert_at_rest(const FtxEngine *e)
{
    assert_false(ftx_engine_busy(e));
    assert_int_equal(e->pages.n, e->pages.all);
    assert_int_equal(e->free_slots, e->slots);
    assert_int_equal(e->unused.n, e->requests);
}

/* Four requests that could each need 26 of 100 pages run at once. */
static void test_together(void **state)
{
    (void)state;
    for (int asynchronous = 0; asynchronous < 2; asynchronous++) {
        const FakeSizes sizes = large_sizes(100);
        Job job[4];
        Bed b;

        open_growing(&b, &sizes, asynchronous, false);
        for (int i = 0; i < 4; i++) {
            make_job(&job[i], 5, (uint64_t)i);
            job[i].request.max_new = 100;
            job[i].request.stop_ids = job[i].stop_ids; /* they end early */
            job[i].request.stop_ids_count = 2;
            job[i].stop_ids[0] = 3;
            job[i].stop_ids[1] = 9;
            expect(&b, &job[i]);
            submit(&b, &job[i]);
        }
        step(&b);
        assert_int_equal(ftx_engine_stats(b.engine).running, 4);
        /* Room for five known tokens and 64 new ones: 18 pages of 4 tokens each. */
        assert_int_equal(ftx_engine_stats(b.engine).free_pages, 100 - 4 * 18);
        run(&b);
        for (int i = 0; i < 4; i++)
            compare(&job[i]);
        assert_int_equal(ftx_engine_stats(b.engine).preemptions, 0);
        assert_at_rest(b.engine);
        close_bed(&b);
    }
}

/* Pages run out: some requests are preempted, run again, and their events do not show it. */
static void preemptions(bool asynchronous, bool prefix, bool fixed)
{
    FakeSizes sizes = large_sizes(60);
    Job job[6];
    FtxStats stats;
    Bed b;
    int most = 0;

    sizes.fixed_sums = fixed;
    open_growing(&b, &sizes, asynchronous, prefix);
    assert_int_equal(b.engine->by_role, fixed && asynchronous);
    b.engine->share = b.engine->used = 0.0f; /* nobody is expected to write much */
    for (int i = 0; i < 6; i++) {
        make_job(&job[i], 7 + i, (uint64_t)i);
        job[i].request.max_new = 120;
        expect(&b, &job[i]);
        submit(&b, &job[i]);
    }
    while (ftx_engine_busy(b.engine)) {
        step(&b);
        for (uint32_t i = 0; i < b.engine->requests; i++)
            most = b.engine->request[i].preemptions > most ? b.engine->request[i].preemptions : most;
    }
    for (int i = 0; i < 6; i++)
        compare(&job[i]);
    stats = ftx_engine_stats(b.engine);
    assert_true(stats.preemptions > 0 && most <= 2);
    assert_true(stats.recomputed_tokens > 0);
    assert_int_equal(stats.requests, 6);
    assert_int_equal(stats.new_tokens, 6 * 120);
    assert_int_equal(stats.prompt_tokens, 6 * 7 + 15);
    assert_at_rest(b.engine);
    close_bed(&b);
}

static void test_preemptions(void **state)
{
    (void)state;
    for (int i = 0; i < 8; i++)
        preemptions(i & 1, i & 2, i & 4);
}

/* What a preempted request has to recompute: with a prefix cache, only what others have taken of its pages. */
static void test_reads_again(void **state)
{
    const FakeSizes sizes = large_sizes(60);
    uint64_t tokens[2];

    (void)state;
    for (int prefix = 0; prefix < 2; prefix++) {
        Job job[2];
        Bed b;

        open_growing(&b, &sizes, false, prefix);
        b.engine->share = b.engine->used = 0.0f;
        for (int i = 0; i < 2; i++) {
            make_job(&job[i], 40 - 10 * i, (uint64_t)i);
            job[i].request.max_new = 100;
            expect(&b, &job[i]);
            submit(&b, &job[i]);
        }
        tokens[prefix] = 0;
        while (ftx_engine_busy(b.engine)) {
            step(&b);
            if (b.engine->waiting.n) /* the shorter one is preempted */
                assert_ptr_equal(b.engine->waiting.at[0]->user, &job[1]);
            for (int i = 0; i < b.engine->flight.rows; i++)
                tokens[prefix] += (uint64_t)b.engine->flight.row[i].count;
        }
        compare(&job[0]);
        compare(&job[1]);
        assert_true(ftx_engine_stats(b.engine).preemptions > 0);
        close_bed(&b);
    }
    assert_true(tokens[1] < tokens[0]);
}

/* Four requests, which run to their ends; returns how often one was preempted so far. */
static uint64_t run_four(Bed *b, const int32_t *stop_ids, size_t count)
{
    Job job[4];

    for (int i = 0; i < 4; i++) {
        make_job(&job[i], 8, (uint64_t)i);
        job[i].request.max_new = 100;
        job[i].request.stop_ids = stop_ids;
        job[i].request.stop_ids_count = count;
        submit(b, &job[i]);
    }
    while (ftx_engine_busy(b->engine))
        step(b);
    return ftx_engine_stats(b->engine).preemptions;
}

/* Where requests use all of their max_new, later ones begin only when there is memory for all of it, so that nobody is
 * preempted any more. Those that end early make them begin sooner again; those that are cancelled say nothing. */
static void test_learns(void **state)
{
    const FakeSizes sizes = large_sizes(60);
    const int32_t ends[] = {3, 9};

    (void)state;
    for (int asynchronous = 0; asynchronous < 2; asynchronous++) {
        uint64_t preempted = 0;
        float used;
        Job job;
        Bed b;

        open_growing(&b, &sizes, asynchronous, false);
        b.engine->share = b.engine->used = 0.0f;
        for (int wave = 0; wave < 24; wave++)
            preempted = run_four(&b, NULL, 0);
        assert_true(preempted > 0);
        for (int wave = 0; wave < 12; wave++)
            assert_int_equal(run_four(&b, NULL, 0), preempted);
        used = b.engine->used;
        assert_true(used > 0.99f && used < 1.001f && b.engine->share > 0.99f);

        make_job(&job, 8, 1);
        job.request.max_new = 100;
        submit(&b, &job);
        step(&b);
        assert_int_equal(ftx_engine_cancel(b.engine, job.id, NULL), FTX_OK);
        while (ftx_engine_busy(b.engine))
            step(&b);
        assert_true(b.engine->used >= used && b.engine->used <= used);

        for (int wave = 0; wave < 4; wave++)
            run_four(&b, ends, 2);
        assert_true(b.engine->used < 0.95f);
        close_bed(&b);
    }
}

/* A request alone takes all the pages there are; one that was preempted twice takes all of its pages at once. */
static void test_limits(void **state)
{
    const FakeSizes sizes = large_sizes(50);
    Job j;
    Bed b;

    (void)state;
    open_growing(&b, &sizes, true, false);
    make_job(&j, 3, 1); /* to the end of the context: 50 pages */
    expect(&b, &j);
    submit(&b, &j);
    run(&b);
    compare(&j);
    assert_int_equal(j.n_got, 197);
    assert_int_equal(ftx_engine_stats(b.engine).preemptions, 0);

    make_job(&j, 3, 1);
    expect(&b, &j);
    submit(&b, &j);
    b.engine->waiting.at[0]->preemptions = 2;
    step(&b);
    assert_int_equal(ftx_engine_stats(b.engine).free_pages, 0);
    run(&b);
    compare(&j);
    assert_at_rest(b.engine);
    close_bed(&b);
}

/* Random requests, cancels and samples in few pages. */
static void random_requests(bool asynchronous, uint64_t seed)
{
    enum { JOBS = 40 };
    static Job job[JOBS];
    const FakeSizes sizes = large_sizes(40 + (uint32_t)seed % 3 * 12);
    uint64_t dice = seed;
    Bed b;
    int next = 0;

    open_growing(&b, &sizes, asynchronous, seed & 1);
    for (int i = 0; i < JOBS; i++) {
        Job *j = &job[i];

        dice = dice * 6364136223846793005u + 1442695040888963407u;
        make_job(j, 1 + (int)(dice >> 40) % 60, dice >> 60);
        j->request.max_new = 1 + (int)(dice >> 34) % 90;
        j->request.no_repeat_ngram = 0;
        expect(&b, j);
    }
    while (next < JOBS || ftx_engine_busy(b.engine)) {
        dice = dice * 6364136223846793005u + 1442695040888963407u;
        if (next < JOBS && ftx_engine_stats(b.engine).waiting < 9 && dice >> 63)
            submit(&b, &job[next++]);
        else if (next && (dice >> 50) % 25 == 0)
            ftx_engine_cancel(b.engine, job[(dice >> 40) % (uint64_t)next].id, NULL);
        else
            step(&b);
    }
    for (int i = 0; i < JOBS; i++) {
        job[i].cancelled = job[i].finish == FTX_FINISH_CANCEL;
        compare(&job[i]);
    }
    assert_at_rest(b.engine);
    close_bed(&b);
}

static void test_random(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 24; seed++)
        random_requests(seed % 4 == 0, seed);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_together), cmocka_unit_test(test_preemptions), cmocka_unit_test(test_reads_again),
        cmocka_unit_test(test_learns),   cmocka_unit_test(test_limits),      cmocka_unit_test(test_random),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
