/* test_schedule.c - in which order requests of the engine begin: priorities, keys, sizes, deadlines, and how many may
 * wait. */
#include "jobs.h"

#include <unistd.h>

static void open_queue(Bed *b, const FakeSizes *sizes, size_t requests, size_t tokens)
{
    FtxOptions options = FTX_OPTIONS_INIT;
    FtxError err = {FTX_OK, ""};

    reset_fake(false, 0);
    b->sizes = *sizes;
    fake_artifact(&b->artifact, sizes);
    assert_int_equal(fake_model(&b->artifact, NULL, &b->model, &err), FTX_OK);
    options.queue_requests = requests;
    options.queue_tokens = tokens;
    assert_int_equal(ftx_engine_open(b->model, &options, &b->engine, &err), FTX_OK);
}

/* One request at a time. */
static FakeSizes narrow_sizes(void)
{
    FakeSizes s = fake_sizes();

    s.sequences = 1;
    s.n_ends = 0;
    return s;
}

static void make(Job *j, const Bed *b, int prompt, int fresh, uint64_t seed)
{
    make_job(j, prompt, seed);
    j->request.max_new = fresh;
    expect(b, j);
}

/* Runs all; order[i]: which job ended as the i-th. */
static void run_order(Bed *b, Job *job, int n, int *order)
{
    int ended = 0;

    while (ftx_engine_busy(b->engine)) {
        FtxEvent ev[64] = {FTX_EVENT_INIT};
        FtxError err;
        size_t events;

        assert_int_equal(ftx_engine_step(b->engine, ev, 64, &events, &err), FTX_OK);
        for (size_t i = 0; i < events; i++) {
            take_event(ev[i].user, &ev[i]);
            if (ev[i].finish != FTX_RUNNING)
                order[ended++] = (int)((const Job *)ev[i].user - job);
        }
    }
    assert_int_equal(ended, n);
    for (int i = 0; i < n; i++)
        compare(&job[i]);
    assert_idle(b->engine);
}

static void test_priorities(void **state)
{
    static const int priority[6] = {0, 5, -3, 0, 5, -3}, want[6] = {2, 5, 0, 3, 1, 4};
    const FakeSizes sizes = narrow_sizes();
    int order[6];
    Job job[6];
    Bed b;

    (void)state;
    open_queue(&b, &sizes, 6, 0);
    for (int i = 0; i < 6; i++) {
        make(&job[i], &b, 3, 4, (uint64_t)i);
        job[i].request.priority = priority[i];
        submit(&b, &job[i]);
    }
    run_order(&b, job, 6, order);
    assert_memory_equal(order, want, sizeof want);
    close_bed(&b);
}

/* Key 1 has sent five requests before key 2 sends two: they take turns, and the one of many tokens waits longer. */
static void test_keys(void **state)
{
    static const int want[7] = {0, 5, 1, 6, 2, 3, 4};
    const FakeSizes sizes = narrow_sizes();
    int order[7];
    Job job[7];
    Bed b;

    (void)state;
    open_queue(&b, &sizes, 7, 0);
    for (int i = 0; i < 7; i++) {
        make(&job[i], &b, 3, 4, (uint64_t)i);
        job[i].request.fair_key = i < 5 ? 1 : 2;
        submit(&b, &job[i]);
    }
    run_order(&b, job, 7, order);
    assert_memory_equal(order, want, sizeof want);
    for (uint32_t i = 0; i < b.engine->fair.n; i++)
        assert_int_equal(b.engine->fair.at[i].users, 0);
    close_bed(&b);
}

/* A long prompt counts, too: key 2 has its three short ones before key 1 has its second. */
static void test_prompts_count(void **state)
{
    static const int want[5] = {0, 2, 3, 4, 1};
    const FakeSizes sizes = narrow_sizes();
    int order[5];
    Job job[5];
    Bed b;

    (void)state;
    open_queue(&b, &sizes, 5, 0);
    for (int i = 0; i < 5; i++) {
        make(&job[i], &b, i < 2 ? 30 : 3, 1, (uint64_t)i);
        job[i].request.fair_key = i < 2 ? 1 : 2;
        submit(&b, &job[i]);
    }
    run_order(&b, job, 5, order);
    assert_memory_equal(order, want, sizeof want);
    close_bed(&b);
}

/* The second request does not fit beside the first. Small ones pass it, but not for ever. */
static void test_large(void **state)
{
    enum { SMALL = 60 };
    static Job job[SMALL + 2];
    FakeSizes sizes = fake_sizes();
    int passed = 0;
    Bed b;

    (void)state;
    sizes.n_ends = 0;
    sizes.kv_pages = 12;
    open_queue(&b, &sizes, SMALL + 2, 0);
    make(&job[0], &b, 4, 36, 0); /* 10 of 12 pages */
    make(&job[1], &b, 30, 10, 1);
    for (int i = 2; i < SMALL + 2; i++)
        make(&job[i], &b, 2, 2, (uint64_t)i);
    for (int i = 0; i < SMALL + 2; i++)
        submit(&b, &job[i]);
    while (ftx_engine_busy(b.engine)) {
        step(&b);
        for (int i = 2, n = 0; i < SMALL + 2 && b.engine->request[1].state == REQUEST_WAITING; i++) {
            n += job[i].n_got > 0;
            passed = n > passed ? n : passed;
        }
    }
    assert_int_equal(passed, QUEUE_MOST_TIMES);
    for (int i = 0; i < SMALL + 2; i++)
        compare(&job[i]);
    assert_idle(b.engine);
    close_bed(&b);
}

static void test_deadlines(void **state)
{
    const FakeSizes sizes = narrow_sizes();
    const int deadline[] = {20, 0, 20, 1000000, 60};
    Job job[5];
    Bed b;

    (void)state;
    open_queue(&b, &sizes, 4, 0);
    for (int i = 0; i < 5; i++) {
        make(&job[i], &b, 3, 10, (uint64_t)i);
        job[i].request.deadline_ms = deadline[i];
        submit(&b, &job[i]);
        if (i == 0)
            step(&b); /* the first has begun: its deadline is kept */
    }
    usleep(30000);
    step(&b);
    assert_true(job[2].ended && job[2].finish == FTX_FINISH_DEADLINE && job[2].n_got == 0);
    assert_false(job[1].ended || job[3].ended);
    usleep(60000);
    step(&b);
    assert_true(job[4].ended && job[4].finish == FTX_FINISH_DEADLINE);
    assert_false(job[1].ended || job[3].ended);
    run(&b);
    compare(&job[0]);
    compare(&job[1]);
    compare(&job[3]);
    assert_idle(b.engine);
    close_bed(&b);
}

/* Samples of a request are too late together; each has its event. */
static void test_late_samples(void **state)
{
    FakeSizes sizes = fake_sizes();
    FtxEvent ev[64] = {FTX_EVENT_INIT};
    FtxError err;
    size_t n, late = 0;
    Job first, j;
    Bed b;

    (void)state;
    sizes.sequences = 2;
    sizes.n_ends = 0;
    open_queue(&b, &sizes, 4, 0);
    make(&first, &b, 3, 10, 1);
    submit(&b, &first);
    make(&j, &b, 3, 10, 2);
    j.request.samples = 2;
    j.request.temperature = 1.0f;
    j.request.deadline_ms = 1;
    submit(&b, &j);
    step(&b);
    usleep(3000);
    while (ftx_engine_busy(b.engine)) {
        assert_int_equal(ftx_engine_step(b.engine, ev, 64, &n, &err), FTX_OK);
        for (size_t i = 0; i < n; i++)
            late += ev[i].finish == FTX_FINISH_DEADLINE && ev[i].request == j.id;
    }
    assert_int_equal(late, 2);
    assert_idle(b.engine);
    close_bed(&b);
}

/* More samples than may ever wait: no step makes room for them. */
static void test_too_many_samples(void **state)
{
    FakeSizes sizes = fake_sizes();
    FtxError err;
    Job j;
    Bed b;

    (void)state;
    sizes.sequences = 3;
    open_queue(&b, &sizes, 2, 0);
    make(&j, &b, 3, 4, 1);
    j.request.samples = 3;
    j.request.temperature = 1.0f;
    assert_int_equal(ftx_engine_submit(b.engine, &j.request, NULL, &err), FTX_EINVAL);
    assert_string_equal(err.text, "samples: 3, but only 2 requests may wait (FtxOptions.queue_requests)");
    j.request.samples = 2;
    submit(&b, &j);
    close_bed(&b);
}

static void test_bounds(void **state)
{
    const FakeSizes sizes = narrow_sizes();
    FtxOptions options = FTX_OPTIONS_INIT;
    FtxEngine *none;
    FtxError err;
    Job job[4];
    Bed b;

    (void)state;
    open_queue(&b, &sizes, 3, 20);
    for (int i = 0; i < 4; i++)
        make(&job[i], &b, i == 0 ? 30 : 9, 2, (uint64_t)i);
    submit(&b, &job[0]); /* one alone may have more than 20 tokens */
    assert_int_equal(ftx_engine_stats(b.engine).waiting_tokens, 30);
    assert_int_equal(ftx_engine_submit(b.engine, &job[1].request, NULL, &err), FTX_EFULL);
    assert_string_equal(err.text, "30 tokens of prompts wait already: step the engine, then submit again");
    step(&b);
    assert_int_equal(ftx_engine_stats(b.engine).waiting_tokens, 0);
    submit(&b, &job[1]);
    submit(&b, &job[2]);
    assert_int_equal(ftx_engine_submit(b.engine, &job[3].request, NULL, &err), FTX_EFULL);
    run(&b);
    submit(&b, &job[3]);
    run(&b);
    for (int i = 0; i < 4; i++)
        compare(&job[i]);

    for (int i = 0; i < 4; i++) {
        make(&job[i], &b, 1, 2, (uint64_t)i);
        if (i < 3)
            submit(&b, &job[i]);
    }
    assert_int_equal(ftx_engine_submit(b.engine, &job[3].request, NULL, &err), FTX_EFULL);
    assert_string_equal(err.text, "3 requests wait already: step the engine, then submit again");
    run(&b);
    assert_idle(b.engine);
    options.queue_requests = 65537;
    assert_int_equal(ftx_engine_open(b.model, &options, &none, &err), FTX_EINVAL);
    assert_string_equal(err.text, "queue_requests: expected 0 to 65536, found 65537");
    close_bed(&b);
}

/* Requests that have ended while they waited take their places until their events are told: no more are promised than
 * there is memory for. */
static void test_ended_places(void **state)
{
    enum { QUEUE = 6 };
    const FakeSizes sizes = narrow_sizes();
    FtxEvent ev[1] = {FTX_EVENT_INIT};
    FtxError err;
    Job job[2 * QUEUE + 1];
    size_t n, room;
    int next = QUEUE + 1;
    Bed b;

    (void)state;
    open_queue(&b, &sizes, QUEUE, 0);
    for (int i = 0; i < 2 * QUEUE + 1; i++)
        make(&job[i], &b, 3, i ? 2 : 30, (uint64_t)i);
    submit(&b, &job[0]);
    step(&b);
    for (int i = 1; i <= QUEUE; i++) {
        submit(&b, &job[i]);
        assert_int_equal(ftx_engine_cancel(b.engine, job[i].id, &err), FTX_OK);
    }
    assert_int_equal(ftx_engine_submit(b.engine, &job[next].request, NULL, &err), FTX_EFULL);
    assert_string_equal(err.text, "6 requests wait already: step the engine, then submit again");
    for (int left = QUEUE; left; left--) { /* a step has room for one event */
        assert_int_equal(ftx_engine_stats(b.engine).waiting, QUEUE);
        assert_int_equal(ftx_engine_step(b.engine, ev, 1, &n, &err), FTX_OK);
        assert_true(n == 1 && ev[0].finish == FTX_FINISH_CANCEL);
        for (room = QUEUE - ftx_engine_stats(b.engine).waiting; room; room--)
            submit(&b, &job[next++]);
    }
    assert_int_equal(next, 2 * QUEUE + 1);
    run(&b);
    compare(&job[0]);
    for (int i = QUEUE + 1; i < next; i++)
        compare(&job[i]);
    assert_idle(b.engine);
    close_bed(&b);
}

/* Each event says when its request began and had its first token; nothing of it changes later. */
static void test_times(void **state)
{
    const FakeSizes sizes = narrow_sizes();
    double queued[2] = {0}, first[2] = {0}, last[2] = {0};
    Job job[2];
    Bed b;

    (void)state;
    open_queue(&b, &sizes, 2, 0);
    for (int i = 0; i < 2; i++) {
        make(&job[i], &b, 3, 5, (uint64_t)i);
        submit(&b, &job[i]);
    }
    while (ftx_engine_busy(b.engine)) {
        FtxEvent ev[64] = {FTX_EVENT_INIT};
        FtxError err;
        size_t n;

        usleep(2000);
        assert_int_equal(ftx_engine_step(b.engine, ev, 64, &n, &err), FTX_OK);
        for (size_t k = 0; k < n; k++) {
            const int i = (int)((const Job *)ev[k].user - job);

            assert_true(ev[k].queued_seconds >= 0.0 && ev[k].first_seconds >= ev[k].queued_seconds);
            assert_true(ev[k].seconds >= ev[k].first_seconds && ev[k].seconds > last[i]);
            assert_true(last[i] == 0.0 || (ev[k].queued_seconds == queued[i] && ev[k].first_seconds == first[i]));
            queued[i] = ev[k].queued_seconds;
            first[i] = ev[k].first_seconds;
            last[i] = ev[k].seconds;
        }
    }
    assert_true(first[0] >= 0.002 && last[0] >= first[0] + 0.008);
    assert_true(queued[1] >= queued[0] + 0.008); /* the second has waited for the first */
    close_bed(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_priorities),    cmocka_unit_test(test_keys),
        cmocka_unit_test(test_prompts_count), cmocka_unit_test(test_large),
        cmocka_unit_test(test_deadlines),     cmocka_unit_test(test_late_samples),
        cmocka_unit_test(test_ended_places),  cmocka_unit_test(test_too_many_samples),
        cmocka_unit_test(test_bounds),        cmocka_unit_test(test_times),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
