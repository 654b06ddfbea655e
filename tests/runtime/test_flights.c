/* test_flights.c - steps of the engine on the fake device: which program they run, pages of the cache, runs ahead of
 * the results when a request ends, and devices that fail. */
#include "jobs.h"

/* The smallest program that takes so many tokens, in whatever order the plan has them. */
static void test_programs(void **state)
{
    FakeSizes sizes = fake_sizes();

    (void)state;
    sizes.sequences = 7; /* programs for 1, 2, 4 and 8 */
    for (int turned = 0; turned < 2; turned++) {
        Bed b = {.sizes = sizes};
        uint32_t program = 0, n;

        reset_fake(false, 0);
        fake_artifact(&b.artifact, &sizes);
        n = b.artifact.artifact.plans[0].n_programs;
        assert_int_equal(n, 6);
        for (uint32_t i = 0; turned && i < n / 2; i++) {
            const FtxProgram other = b.artifact.program[i];

            b.artifact.program[i] = b.artifact.program[n - 1 - i];
            b.artifact.program[n - 1 - i] = other;
        }
        assert_int_equal(fake_model(&b.artifact, NULL, &b.model, NULL), FTX_OK);
        assert_int_equal(ftx_engine_open(b.model, NULL, &b.engine, NULL), FTX_OK);
        for (int tokens = 1; tokens <= 8; tokens++) {
            assert_true(schedule_program(&b.engine->decode, tokens, &program));
            assert_int_equal(b.artifact.program[program].kind, FTX_PROG_DECODE);
            assert_int_equal(b.artifact.program[program].bucket, tokens < 3 ? tokens : tokens < 5 ? 4 : 8);
        }
        assert_false(schedule_program(&b.engine->decode, 9, &program));
        for (int tokens = 15; tokens <= 17; tokens++) {
            assert_true(schedule_program(&b.engine->step, tokens, &program));
            assert_int_equal(b.artifact.program[program].bucket, tokens < 17 ? 16 : 0);
        }
        close_bed(&b);
    }
}

/* A program that takes fewer tokens than its bucket: the next one has the others; 0: as many as the bucket. */
static void test_borders(void **state)
{
    static const uint32_t bucket[] = {1, 2, 4, 8, 8, 8, 8, 8};
    FakeSizes sizes = fake_sizes();
    Bed b = {.sizes = sizes};
    uint32_t program = 0;

    (void)state;
    b.sizes.sequences = 7;
    reset_fake(false, 0);
    fake_artifact(&b.artifact, &b.sizes);
    for (uint32_t i = 0; i < b.artifact.artifact.plans[0].n_programs; i++) {
        FtxProgram *p = &b.artifact.program[i];

        p->most = p->kind == FTX_PROG_DECODE && p->bucket == 4 ? 3 : p->bucket == 16 ? 15 : p->bucket == 8 ? 8 : 0;
    }
    assert_int_equal(fake_model(&b.artifact, NULL, &b.model, NULL), FTX_OK);
    assert_int_equal(ftx_engine_open(b.model, NULL, &b.engine, NULL), FTX_OK);
    for (int tokens = 1; tokens <= 8; tokens++) {
        assert_true(schedule_program(&b.engine->decode, tokens, &program));
        assert_int_equal(b.artifact.program[program].bucket, bucket[tokens - 1]);
    }
    for (int tokens = 15; tokens <= 17; tokens++) {
        assert_true(schedule_program(&b.engine->step, tokens, &program));
        assert_int_equal(b.artifact.program[program].bucket, tokens < 16 ? 16 : 0);
    }
    close_bed(&b);
}

/* Runs under way bring the row of a request that has ended; no further run is begun with it. */
static void test_ended_row(void **state)
{
    FakeSizes sizes = fake_sizes();
    Job job[2];
    Bed b;

    (void)state;
    reset_fake(true, 0);
    sizes.n_ends = 0;
    open_bed(&b, &sizes);
    for (int i = 0; i < 2; i++) {
        make_job(&job[i], 1, (uint64_t)i);
        job[i].request.max_new = 20;
        expect(&b, &job[i]);
        submit(&b, &job[i]);
    }
    step(&b);
    assert_int_equal(ftx_engine_cancel(b.engine, job[0].id, NULL), FTX_OK);
    job[0].cancelled = true;
    assert_int_equal(b.engine->api->wait(b.engine->session, NULL), FTX_OK);
    assert_int_equal(fake.most_rows, 2);
    fake.most_rows = 0;
    run(&b);
    assert_int_equal(fake.most_rows, 1);
    for (int i = 0; i < 2; i++)
        compare(&job[i]);
    close_bed(&b);
}

/* --- a device that fails -------------------------------------------------------------------------------- */

static void test_device_fails(void **state)
{
    static const char *const words[] = {"has failed", "no result", "has failed", "has failed",
                                        "request 1: the device chose token 61 at position 3, of 61 tokens"};
    FakeSizes sizes = fake_sizes();

    (void)state;
    sizes.n_ends = 0;
    for (int kind = 0; kind < 5; kind++) {
        Job job[6];
        FtxEvent ev[16] = {FTX_EVENT_INIT};
        FtxError err = {FTX_OK, ""};
        FtxStatus s = FTX_OK;
        size_t n = 0;
        Bed b;

        reset_fake(kind >= 2, 0);
        fake.fail_at = kind == 1 || kind == 4 ? 0 : 7;
        fake.lose_results = kind == 1;
        fake.fail_late = kind == 3;
        fake.token = kind == 4 ? (int32_t)sizes.vocab : 0;
        open_bed(&b, &sizes);
        for (int i = 0; i < 6; i++) {
            make_job(&job[i], 3, (uint64_t)i);
            submit(&b, &job[i]);
        }
        while (!s && ftx_engine_busy(b.engine))
            s = ftx_engine_step(b.engine, ev, 16, &n, &err);
        assert_int_equal(s, FTX_EDEVICE);
        assert_non_null(strstr(err.text, words[kind]));
        assert_int_equal(n, 6);
        for (int i = 0; i < 6; i++)
            assert_int_equal(ev[i].finish, FTX_FINISH_ERROR);
        assert_false(ftx_engine_busy(b.engine));
        assert_int_equal(ftx_engine_step(b.engine, ev, 16, &n, &err), FTX_EDEVICE);
        assert_int_equal(ftx_engine_submit(b.engine, &job[0].request, NULL, &err), FTX_EDEVICE);
        close_bed(&b);
    }
}

/* --- pages ----------------------------------------------------------------------------------------------- */

static void test_pages(void **state)
{
    int32_t free[4], taken[4] = {-1, -1, -1, -1};
    uint16_t users[4] = {0};
    Pages p = {.free = free, .users = users};

    (void)state;
    pages_init(&p, 3);
    assert_false(pages_take(&p, taken, 4));
    assert_int_equal(p.n, 3);
    assert_true(pages_take(&p, taken, 3));
    assert_int_equal(p.n, 0);
    assert_false(pages_take(&p, taken, 1));
    pages_share(&p, taken, 1);
    pages_give(&p, taken, 3);
    assert_int_equal(p.n, 2); /* one has another user */
    pages_give(&p, taken, 1);
    assert_int_equal(p.n, 3);
}

/* One request ends in the very step in which the device fails: its event is not lost. */
static void test_ended_before_failure(void **state)
{
    FakeSizes sizes = fake_sizes();
    FtxEvent ev[16] = {FTX_EVENT_INIT};
    FtxError err;
    Job job[6];
    size_t n;
    Bed b;

    (void)state;
    sizes.n_ends = 0;
    reset_fake(false, 0);
    fake.fail_at = 3;
    open_bed(&b, &sizes);
    for (int i = 0; i < 6; i++) {
        make_job(&job[i], 3, (uint64_t)i);
        submit(&b, &job[i]);
    }
    for (int i = 0; i < 2; i++)
        assert_int_equal(ftx_engine_step(b.engine, ev, 16, &n, &err), FTX_OK);
    assert_int_equal(ftx_engine_cancel(b.engine, job[1].id, &err), FTX_OK);
    assert_int_equal(ftx_engine_step(b.engine, ev, 16, &n, &err), FTX_EDEVICE);
    assert_int_equal(n, 6);
    for (int i = 0; i < 6; i++) {
        assert_int_equal(ev[i].finish, ev[i].request == job[1].id ? FTX_FINISH_CANCEL : FTX_FINISH_ERROR);
        for (int k = 0; k < i; k++)
            assert_int_not_equal(ev[i].request, ev[k].request);
    }
    close_bed(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_programs),     cmocka_unit_test(test_borders),
        cmocka_unit_test(test_pages),        cmocka_unit_test(test_ended_row),
        cmocka_unit_test(test_device_fails), cmocka_unit_test(test_ended_before_failure)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
