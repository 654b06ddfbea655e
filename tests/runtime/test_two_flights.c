/* test_two_flights.c - the next flight is composed while the last run of the one before goes on, on the fake device:
 * the order of what the engine does, ghosts of texts that end, and what is not composed ahead. */
#include "jobs.h"

/* What the engine has done since it was asked last. */
static const char *order(void)
{
    static char got[sizeof fake.order];

    memcpy(got, fake.order, sizeof got);
    memset(fake.order, 0, sizeof fake.order);
    return got;
}

static void begin(Bed *b, Job *j, int prompt, int fresh, uint64_t seed)
{
    make_job(j, prompt, seed);
    j->request.max_new = fresh;
    expect(b, j);
    submit(b, j);
}

static FakeSizes sizes_without_ends(void)
{
    FakeSizes s = fake_sizes();

    s.n_ends = 0;
    s.kv_pages = 60;
    return s;
}

/* Steps are counted by kind with their rows and tokens: a's prompt of 3, c's of 5 beside one row, 20 tokens of both. */
static void assert_steps(const Bed *b)
{
    const FtxStats s = ftx_engine_stats(b->engine);
    uint64_t rows = 0;

    for (int i = 0; i < fake.runs; i++)
        rows += (uint64_t)fake.rows[i];
    assert_int_equal(s.prompt.steps, 1);
    assert_int_equal(s.prompt.rows, 0);
    assert_int_equal(s.prompt.tokens, 3);
    assert_int_equal(s.mixed.steps, 1);
    assert_int_equal(s.mixed.rows, 1);
    assert_int_equal(s.mixed.tokens, 5);
    assert_int_equal(s.prompt.steps + s.mixed.steps + s.decode.steps, fake.runs);
    assert_int_equal(s.decode.rows + s.mixed.rows, rows - 2);
    assert_true(s.decode.rows >= 18 + 19); /* more: a's row in runs that were enqueued before its end was known */
    assert_int_equal(s.decode.tokens, 0);
    assert_true(s.decode.seconds > 0.0 && s.mixed.seconds > 0.0 && s.prompt.seconds > 0.0);
    assert_true(s.compose_seconds > 0.0 && s.gap_seconds > 0.0);
}

/* Page tables and IO are written before the engine waits for the run, the next is enqueued before a text is made. */
static void test_order(void **state)
{
    const FakeSizes sizes = sizes_without_ends();
    Job a, c;
    Bed b;

    (void)state;
    reset_fake(true, 100);
    open_bed(&b, &sizes);
    order();
    begin(&b, &a, 3, 20, 1);
    step(&b);
    assert_string_equal(order(), "pur" /* the prompt */ "swurrrrrr" /* decode steps, six ahead */ "t");
    begin(&b, &c, 5, 20, 2);
    for (int i = 0; i < 5; i++) { /* what is enqueued comes in */
        step(&b);
        assert_string_equal(order(), "t");
    }
    step(&b);
    assert_string_equal(order(), "pswurt"); /* the last of these, and c's prompt beside a */
    assert_int_equal(fake.rows[fake.runs - 1], 2);
    step(&b);
    assert_string_equal(order(), "swurrrrrrtt");
    run(&b);
    compare(&a);
    compare(&c);
    assert_steps(&b);
    assert_idle(b.engine);
    close_bed(&b);
}

/* The rows of the run after the one in which job[0] ends, and of the next one. A long prompt in chunks makes every step
 * a flight of its own. A waiting request gets the slot that is free then. */
static void end_beside(Job *job, int *rows_after, int *rows_then)
{
    FakeSizes sizes = sizes_without_ends();
    Bed b;

    sizes.sequences = 3;
    sizes.tokens = 4;
    reset_fake(true, 100);
    open_bed(&b, &sizes);
    make_job(&job[1], 2, 12);
    make_job(&job[2], 38, 13);
    make_job(&job[3], 2, 14);
    for (int i = 0; i < 4; i++) {
        expect(&b, &job[i]);
        submit(&b, &job[i]);
    }
    while (!job[0].ended)
        step(&b);
    *rows_after = fake.rows[fake.runs - 1];
    step(&b);
    *rows_then = fake.rows[fake.runs - 1];
    run(&b);
    for (int i = 0; i < 4; i++)
        compare(&job[i]);
    assert_idle(b.engine);
    close_bed(&b);
}

/* Nobody knows beforehand that an end id or a stop string comes; that max_new is reached, everybody does. */
static void test_ghosts(void **state)
{
    enum { NEW = 4 };
    Job job[4];
    int after, then;

    (void)state;
    make_job(&job[0], 2, 19);
    job[0].request.max_new = NEW;
    end_beside(job, &after, &then);
    assert_int_equal(job[0].finish, FTX_FINISH_LENGTH);
    assert_int_equal(after, 2);
    assert_int_equal(then, 3); /* job[3] */

    const int32_t last = job[0].got[NEW - 1];

    make_job(&job[0], 2, 19);
    job[0].stop_ids[0] = last;
    job[0].request.stop_ids = job[0].stop_ids;
    job[0].request.stop_ids_count = 1;
    end_beside(job, &after, &then);
    assert_int_equal(job[0].finish, FTX_FINISH_END);
    assert_int_equal(job[0].n_got, NEW);
    assert_int_equal(after, 3); /* a ghost */
    assert_int_equal(then, 3);

    make_job(&job[0], 2, 19);
    job[0].stop[0] = fake_piece(last);
    job[0].request.stop = job[0].stop;
    job[0].request.stop_count = 1;
    end_beside(job, &after, &then);
    assert_int_equal(job[0].finish, FTX_FINISH_STOP);
    assert_int_equal(after, 3);
    assert_int_equal(then, 3);
}

/* A flight with a ghost runs once, also where its program could run again; so does one in whose first run a request
 * ends by its length: somebody may wait for its slot. */
static void test_ghost_runs_once(void **state)
{
    FakeSizes sizes = sizes_without_ends();
    Job job[3];
    Bed b;

    (void)state;
    for (int by_id = 0; by_id < 2; by_id++) {
        reset_fake(true, 0);
        open_bed(&b, &sizes);
        make_job(&job[0], 2, 21);
        job[0].request.max_new = 1;
        expect(&b, &job[0]);
        if (by_id) {
            job[0].stop_ids[0] = job[0].expected[0];
            job[0].request.max_new = 0;
            job[0].request.stop_ids = job[0].stop_ids;
            job[0].request.stop_ids_count = 1;
            expect(&b, &job[0]);
        }
        submit(&b, &job[0]);
        begin(&b, &job[1], 2, 9, 22);
        order();
        step(&b); /* both prompts; then the decode step, which knows of no end */
        assert_true(job[0].ended);
        assert_string_equal(order(), by_id ? "purswurt" : "purswurtt"); /* an end id is not text */
        assert_int_equal(fake.rows[1], by_id ? 2 : 1);
        step(&b);
        assert_string_equal(order(), "swurrrrrrt");
        assert_int_equal(fake.rows[2], 1);
        run(&b);
        for (int i = 0; i < 2; i++)
            compare(&job[i]);
        assert_idle(b.engine);
        close_bed(&b);
    }
}

/* The next run cannot be enqueued: who has ended in the one before is told so. */
static void test_next_fails(void **state)
{
    const FakeSizes sizes = sizes_without_ends();
    FtxEvent ev[16] = {FTX_EVENT_INIT};
    FtxError err;
    Job job[2];
    size_t n;
    Bed b;

    (void)state;
    reset_fake(true, 0);
    fake.fail_at = 2;
    open_bed(&b, &sizes);
    for (int i = 0; i < 2; i++)
        begin(&b, &job[i], 3, i ? 9 : 1, (uint64_t)i);
    assert_int_equal(ftx_engine_step(b.engine, ev, 16, &n, &err), FTX_EDEVICE);
    assert_string_equal(err.text, "the fake device has failed");
    assert_int_equal(n, 2);
    assert_int_equal(ev[0].finish, FTX_FINISH_LENGTH);
    assert_int_equal(ev[0].token, job[0].expected[0]);
    assert_int_equal(ev[1].finish, FTX_FINISH_ERROR);
    close_bed(&b);
}

/* The fake device has a program for 16 tokens: of a prompt of 17 beside a row that decodes 15 come first. On a device that
 * does not run ahead, a processor, all come at once. */
static void test_full_steps(void **state)
{
    (void)state;
    for (int asynchronous = 0; asynchronous < 2; asynchronous++) {
        const FakeSizes sizes = sizes_without_ends();
        FtxStats s;
        Job a, c;
        Bed b;

        reset_fake(asynchronous, 100);
        open_bed(&b, &sizes);
        begin(&b, &a, 3, 30, 1);
        step(&b);
        begin(&b, &c, 17, 20, 2);
        run(&b);
        compare(&a);
        compare(&c);
        s = ftx_engine_stats(b.engine);
        assert_int_equal(s.mixed.steps, asynchronous ? 2 : 1);
        assert_int_equal(s.mixed.tokens, 17);
        assert_idle(b.engine);
        close_bed(&b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_order), cmocka_unit_test(test_ghosts),
                                       cmocka_unit_test(test_ghost_runs_once), cmocka_unit_test(test_next_fails),
                                       cmocka_unit_test(test_full_steps)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
