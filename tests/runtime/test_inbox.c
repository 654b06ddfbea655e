/* test_inbox.c - requests and cancels from other threads (FtxOptions.inbox), on the fake device. */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

#include "jobs.h"

enum { THREADS = 4, EACH = 150, ALL = THREADS * EACH };

static void open_inbox(Bed *b, const FakeSizes *sizes, size_t inbox, size_t queue)
{
    FtxOptions o = FTX_OPTIONS_INIT;
    FtxError err;

    b->sizes = *sizes;
    fake_artifact(&b->artifact, sizes);
    o.inbox = inbox;
    o.queue_requests = queue;
    assert_int_equal(fake_model(&b->artifact, NULL, &b->model, &err), FTX_OK);
    assert_int_equal(ftx_engine_open(b->model, &o, &b->engine, &err), FTX_OK);
}

static void close_inbox(Bed *b)
{
    const FtxEngine *e = b->engine;

    assert_false(ftx_engine_busy(e));
    assert_int_equal(e->pages.n, e->pages.all);
    assert_int_equal(e->free_slots, e->slots);
    assert_int_equal(e->inbox.free.n, e->inbox.most);
    assert_int_equal(e->unused.n + e->inbox.free.n, e->requests);
    close_bed(b);
}

static FtxStatus post(Bed *b, Job *j, FtxError *err)
{
    const FtxStatus s = ftx_engine_post(b->engine, &j->request, &j->id, err);

    j->submitted = !s;
    return s;
}

static void must_post(Bed *b, Job *j, int prompt, int fresh, uint64_t seed)
{
    FtxError err;

    make_job(j, prompt, seed);
    j->request.max_new = fresh;
    expect(b, j);
    if (post(b, j, &err))
        fail_msg("%s", err.text);
}

static void refused(Bed *b, Job *j, FtxStatus want, const char *words)
{
    FtxError err;

    assert_int_equal(post(b, j, &err), want);
    if (!strstr(err.text, words))
        fail_msg("no '%s' in '%s'", words, err.text);
}

/* Posted and submitted ones are the same requests, begun in their order, with numbers of their own. */
static void test_posted(void **state)
{
    const FakeSizes sizes = fake_sizes();
    Job job[6];
    Bed b;

    (void)state;
    reset_fake(true, 50);
    open_inbox(&b, &sizes, 4, 0);
    for (int i = 0; i < 6; i++)
        if (i % 2) {
            make_job(&job[i], 3 + i, (uint64_t)i);
            expect(&b, &job[i]);
            submit(&b, &job[i]);
        } else {
            must_post(&b, &job[i], 3 + i, 12, (uint64_t)i);
        }
    assert_true(ftx_engine_busy(b.engine));
    run(&b);
    for (int i = 0; i < 6; i++) {
        compare(&job[i]);
        for (int k = 0; k < i; k++)
            assert_int_not_equal(job[i].id, job[k].id);
    }
    close_inbox(&b);
}

/* Runs all; of the samples of j only the ends are counted. */
static void finish_samples(Bed *b, const Job *j)
{
    FtxEvent ev[64] = {FTX_EVENT_INIT};
    int ends = 0;
    FtxError err;
    size_t n;

    while (ftx_engine_busy(b->engine)) {
        assert_int_equal(ftx_engine_step(b->engine, ev, 64, &n, &err), FTX_OK);
        for (size_t i = 0; i < n; i++)
            if (ev[i].user == j)
                ends += ev[i].finish != FTX_RUNNING;
            else
                take_event(ev[i].user, &ev[i]);
    }
    assert_int_equal(ends, 2);
}

/* Several samples enter together; the queue has room for four, so the inbox keeps the others. */
static void test_queue_is_full(void **state)
{
    FakeSizes sizes = fake_sizes();
    Events none = {0};
    Job job[5];
    Bed b;

    (void)state;
    sizes.sequences = 2;
    reset_fake(false, 0);
    open_inbox(&b, &sizes, 5, 4);
    for (int i = 0; i < 5; i++)
        must_post(&b, &job[i], 4, 9, (uint64_t)i + 3);
    step(&b);
    assert_int_equal(b.engine->inbox.full.n, 1); /* four waited, of which two run */
    assert_int_equal(b.engine->inbox.full.at[0]->posted, job[4].id);
    run(&b);
    for (int i = 0; i < 5; i++)
        compare(&job[i]);
    must_post(&b, &job[0], 4, 9, 1);
    must_post(&b, &job[1], 4, 9, 2);
    must_post(&b, &job[2], 4, 9, 3);
    make_job(&job[3], 4, 4);
    job[3].request.samples = 2;
    job[3].request.temperature = 1.0f;
    job[3].request.max_new = 3;
    assert_int_equal(ftx_engine_post(b.engine, &job[3].request, NULL, NULL), FTX_OK);
    inbox_take(b.engine, &none);
    assert_int_equal(submit_waiting(b.engine), 3); /* and one place is free, for one of two samples */
    assert_int_equal(b.engine->inbox.full.n, 1);
    finish_samples(&b, &job[3]);
    for (int i = 0; i < 3; i++)
        compare(&job[i]);
    close_inbox(&b);
}

static void test_refusals(void **state)
{
    const FakeSizes sizes = fake_sizes();
    FtxOptions o = FTX_OPTIONS_INIT;
    FtxError err;
    Job job[4];
    Bed b;

    (void)state;
    reset_fake(false, 0);
    open_inbox(&b, &sizes, 2, 3);
    make_job(&job[0], 4, 1);
    job[0].request.temperature = -1.0f;
    refused(&b, &job[0], FTX_EINVAL, "temperature");
    job[0].request.temperature = 1.0f;
    job[0].request.samples = 4;
    refused(&b, &job[0], FTX_EINVAL, "only 3 requests may wait");
    assert_int_equal(ftx_engine_post(b.engine, NULL, NULL, &err), FTX_EINVAL);
    assert_int_equal(b.engine->inbox.free.n, 2); /* a refused request keeps no place */
    must_post(&b, &job[0], 4, 3, 1);
    must_post(&b, &job[1], 4, 3, 2);
    make_job(&job[2], 4, 3);
    refused(&b, &job[2], FTX_EFULL, "the inbox has 2 requests already");
    assert_int_equal(ftx_engine_post_cancel(b.engine, 0, &err), FTX_EINVAL);
    for (uint64_t id = 1000; id < 1000 + b.engine->requests; id++)
        assert_int_equal(ftx_engine_post_cancel(b.engine, id, &err), FTX_OK);
    assert_int_equal(ftx_engine_post_cancel(b.engine, 1000, &err), FTX_OK); /* known */
    assert_int_equal(ftx_engine_post_cancel(b.engine, 999, &err), FTX_EFULL);
    step(&b);
    assert_int_equal(ftx_engine_post_cancel(b.engine, 999, &err), FTX_OK);
    run(&b);
    compare(&job[0]);
    compare(&job[1]);
    o.inbox = 65537;
    FtxEngine *other;
    assert_int_equal(ftx_engine_open(b.model, &o, &other, &err), FTX_EINVAL);
    assert_non_null(strstr(err.text, "inbox: expected 0 to 65536"));
    close_inbox(&b);

    reset_fake(false, 0);
    open_bed(&b, &sizes);
    make_job(&job[0], 4, 1);
    refused(&b, &job[0], FTX_EINVAL, "without an inbox");
    assert_int_equal(ftx_engine_post_cancel(b.engine, 1, &err), FTX_EINVAL);
    assert_false(ftx_engine_wait(b.engine, -1));
    ftx_engine_wake(b.engine);
    close_bed(&b);
}

/* In the inbox, in the queue, running, ended: one event with an end each, and no other request ends. */
static void test_cancels(void **state)
{
    FakeSizes sizes = fake_sizes();
    Job job[4];
    Bed b;

    (void)state;
    sizes.sequences = 1;
    sizes.n_ends = 0;
    reset_fake(false, 0);
    open_inbox(&b, &sizes, 4, 1);
    for (int i = 0; i < 4; i++)
        must_post(&b, &job[i], 4, 30, (uint64_t)i + 1);
    step(&b); /* job 0 has left the inbox for the queue and runs */
    step(&b); /* job 1 waits, the others are in the inbox */
    assert_int_equal(b.engine->inbox.full.n, 2);
    for (int i = 0; i < 3; i++) {
        job[i].cancelled = true;
        assert_int_equal(ftx_engine_post_cancel(b.engine, job[i].id, NULL), FTX_OK);
    }
    run(&b);
    for (int i = 0; i < 4; i++) {
        compare(&job[i]);
        assert_int_equal(job[i].finish, i < 3 ? FTX_FINISH_CANCEL : FTX_FINISH_LENGTH);
    }
    assert_int_equal(job[1].n_got + job[2].n_got, 0);
    assert_int_equal(ftx_engine_post_cancel(b.engine, job[3].id, NULL), FTX_OK);
    run(&b);
    close_inbox(&b);
}

/* What is cancelled or too late ends at once, also where no queue has room for it: each sample has its event. */
static void test_ends_in_the_inbox(void **state)
{
    FakeSizes sizes = fake_sizes();
    FtxEvent ev[64] = {FTX_EVENT_INIT};
    int late = 0, samples = 0;
    FtxError err;
    Job job[7];
    Bed b;
    size_t n;

    (void)state;
    sizes.sequences = 2;
    sizes.n_ends = 0;
    reset_fake(false, 0);
    open_inbox(&b, &sizes, 5, 2);
    for (int i = 0; i < 2; i++)
        must_post(&b, &job[i], 4, 20, (uint64_t)i + 1);
    step(&b);
    for (int i = 2; i < 7; i++) {
        make_job(&job[i], 4, (uint64_t)i + 1);
        job[i].request.max_new = 20;
        job[i].request.deadline_ms = i == 5 ? 1 : i == 6 ? 1000000 : 0;
        job[i].request.samples = i == 4 ? 2 : 1;
        job[i].request.temperature = i == 4 ? 1.0f : 0.0f;
        expect(&b, &job[i]);
        assert_int_equal(post(&b, &job[i], &err), FTX_OK);
    }
    step(&b);
    assert_int_equal(b.engine->inbox.full.n, 3); /* two run, two wait */
    assert_int_equal(ftx_engine_post_cancel(b.engine, job[4].id, NULL), FTX_OK);
    nanosleep(&(struct timespec){.tv_nsec = 3000000}, NULL);
    assert_int_equal(ftx_engine_step(b.engine, ev, 2, &n, &err), FTX_OK);
    assert_int_equal(n, 2); /* two samples; there is room for no other event */
    for (size_t i = 0; i < n; i++) {
        assert_true(ev[i].request == job[4].id && ev[i].user == &job[4] && ev[i].finish == FTX_FINISH_CANCEL);
        samples |= 1 << ev[i].sample;
    }
    assert_int_equal(samples, 3);
    assert_int_equal(ftx_engine_step(b.engine, ev, 64, &n, &err), FTX_OK);
    for (size_t i = 0; i < n; i++)
        if (ev[i].user == &job[5])
            late += ev[i].finish == FTX_FINISH_DEADLINE;
        else
            take_event(ev[i].user, &ev[i]);
    assert_int_equal(late, 1);
    assert_int_equal(b.engine->inbox.full.n, 1); /* who has time still waits there */
    assert_int_equal(b.engine->inbox.full.at[0]->posted, job[6].id);
    assert_int_equal(ftx_engine_post(b.engine, &job[5].request, &job[5].id, &err), FTX_OK); /* its place is free */
    job[5].cancelled = true;
    assert_int_equal(ftx_engine_post_cancel(b.engine, job[5].id, NULL), FTX_OK);
    run(&b);
    for (int i = 0; i < 7; i++)
        if (i != 4)
            compare(&job[i]);
    close_inbox(&b);
}

/* The device fails: what is in the inbox has its event, each sample one, and nothing is posted any more. */
static void test_failure(void **state)
{
    const FakeSizes sizes = fake_sizes();
    FtxEvent ev[64] = {FTX_EVENT_INIT};
    FtxError err;
    Job job[3];
    Bed b;
    size_t n;

    (void)state;
    reset_fake(false, 0);
    fake.fail_at = 1;
    open_inbox(&b, &sizes, 3, 2);
    for (int i = 0; i < 3; i++) {
        make_job(&job[i], 4, (uint64_t)i + 1);
        job[i].request.samples = i == 2 ? 2 : 1;
        job[i].request.temperature = 1.0f;
        assert_int_equal(post(&b, &job[i], &err), FTX_OK);
    }
    assert_int_equal(ftx_engine_step(b.engine, ev, 64, &n, &err), FTX_EDEVICE);
    assert_int_equal(n, 4);
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(ev[i].finish, FTX_FINISH_ERROR);
        assert_int_equal(ev[i].request, ((Job *)ev[i].user)->id);
        ((Job *)ev[i].user)->n_got += 1 + ev[i].sample;
    }
    assert_true(job[0].n_got == 1 && job[1].n_got == 1 && job[2].n_got == 3);
    assert_int_equal(post(&b, &job[0], &err), FTX_EDEVICE);
    assert_int_equal(ftx_engine_post_cancel(b.engine, 1, &err), FTX_EDEVICE);
    assert_false(ftx_engine_wait(b.engine, -1));
    ftx_engine_close(b.engine);
    ftx_model_close(b.model);
}

/* --- threads ------------------------------------------------------------------------------------------------ */

typedef struct Sender {
    Bed *b;
    Job *job; /* [n] */
    int n;
    uint64_t dice;
    atomic_int *left; /* senders that are not done */
} Sender;

static void *send_late(void *user)
{
    Sender *s = user;
    const struct timespec some = {.tv_nsec = 30000000};
    FtxError err;

    nanosleep(&some, NULL);
    if (s->n)
        post(s->b, s->job, &err);
    else
        ftx_engine_wake(s->b->engine);
    return NULL;
}

static void test_wait(void **state)
{
    const FakeSizes sizes = fake_sizes();
    pthread_t thread;
    Sender sender;
    Job job;
    Bed b;

    (void)state;
    reset_fake(false, 0);
    open_inbox(&b, &sizes, 2, 0);
    assert_false(ftx_engine_wait(b.engine, 0));
    assert_false(ftx_engine_wait(b.engine, 20));
    ftx_engine_wake(b.engine);
    assert_false(ftx_engine_wait(b.engine, -1)); /* it was woken before */
    make_job(&job, 4, 1);
    expect(&b, &job);
    sender = (Sender){.b = &b, .job = &job, .n = 1};
    assert_int_equal(pthread_create(&thread, NULL, send_late, &sender), 0);
    assert_true(ftx_engine_wait(b.engine, -1));
    assert_true(ftx_engine_wait(b.engine, -1)); /* a request waits: at once */
    pthread_join(thread, NULL);
    run(&b);
    compare(&job);
    sender.n = 0;
    assert_int_equal(pthread_create(&thread, NULL, send_late, &sender), 0);
    assert_false(ftx_engine_wait(b.engine, -1));
    pthread_join(thread, NULL);
    close_inbox(&b);
}

static unsigned roll(Sender *s, unsigned n)
{
    s->dice = s->dice * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)(s->dice >> 33) % n;
}

/* Posts its requests, again where the inbox is full, and cancels some of them and some that nobody has posted. */
static void *send_all(void *user)
{
    Sender *s = user;
    FtxError err;

    for (int i = 0; i < s->n; i++) {
        Job *j = &s->job[i];
        FtxStatus status;

        while ((status = ftx_engine_post(s->b->engine, &j->request, &j->id, &err)) == FTX_EFULL)
            sched_yield();
        if (status)
            return NULL; /* its requests do not end, which the other thread sees */
        if (j->cancelled && roll(s, 2))
            sched_yield();
        if (j->cancelled)
            ftx_engine_post_cancel(s->b->engine, j->id, NULL);
        if (roll(s, 20) == 0)
            ftx_engine_post_cancel(s->b->engine, UINT64_MAX - roll(s, 9), NULL);
    }
    atomic_fetch_sub(s->left, 1);
    ftx_engine_wake(s->b->engine);
    return NULL;
}

/* Four threads post and cancel while a fifth steps and submits: every request ends exactly once, with its own tokens, or is
 * too late. */
static void storm(bool asynchronous, size_t inbox, size_t queue)
{
    static Job job[ALL], own[20];
    FakeSizes sizes = fake_sizes();
    pthread_t thread[THREADS];
    Sender sender[THREADS];
    atomic_int left = THREADS;
    int mine = 0;
    Bed b;

    sizes.kv_pages = 200;
    reset_fake(asynchronous, 0);
    open_inbox(&b, &sizes, inbox, queue);
    for (int i = 0; i < ALL; i++) {
        make_job(&job[i], 1 + i % 9, (uint64_t)i + 1);
        job[i].request.max_new = 1 + i % 7;
        job[i].cancelled = i % 5 == 0;
        job[i].request.deadline_ms = i % 7 == 3;
        expect(&b, &job[i]);
    }
    for (int i = 0; i < THREADS; i++) {
        sender[i] = (Sender){&b, &job[i * EACH], EACH, (uint64_t)i + 1, &left};
        assert_int_equal(pthread_create(&thread[i], NULL, send_all, &sender[i]), 0);
    }
    while (atomic_load(&left) || ftx_engine_busy(b.engine) || ftx_engine_wait(b.engine, 0)) {
        if (ftx_engine_busy(b.engine))
            step(&b);
        else
            ftx_engine_wait(b.engine, 100);
        if (mine < 20 && submit_waiting(b.engine) < b.engine->most_waiting) {
            make_job(&own[mine], 3, (uint64_t)mine + 5000);
            own[mine].request.max_new = 4;
            expect(&b, &own[mine]);
            submit(&b, &own[mine++]);
        }
    }
    for (int i = 0; i < THREADS; i++)
        pthread_join(thread[i], NULL);
    run(&b);
    for (int i = 0; i < ALL; i++)
        if (job[i].ended && job[i].finish == FTX_FINISH_DEADLINE)
            assert_true(job[i].request.deadline_ms && !job[i].n_got);
        else
            compare(&job[i]);
    for (int i = 0; i < mine; i++)
        compare(&own[i]);
    close_inbox(&b);
}

static void test_storm(void **state)
{
    (void)state;
    storm(true, 3, 0);
    storm(false, 3, 2);
    storm(true, 64, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_posted),
        cmocka_unit_test(test_queue_is_full),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_cancels),
        cmocka_unit_test(test_ends_in_the_inbox),
        cmocka_unit_test(test_failure),
        cmocka_unit_test(test_wait),
        cmocka_unit_test(test_storm),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
