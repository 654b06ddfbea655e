/* test_nan.c - logits that are not finite numbers: their request ends, the others do not notice, and what it has left in the KV
 * cache harms nobody. Engine on the fake device, whose kernels look behind a sequence's last position as those of GPUs do. */
#include <math.h>

#include "jobs.h"

enum { JOBS = 6 };

/* Tokens of a request whose keys are NaN from position `at` on: the token there is read by the step after it came. */
static int tokens_before(const Job *j, int at)
{
    const int n = at - (int)j->request.ids_count;

    return n < 0 ? 0 : n + 1;
}

static void make_jobs(const Bed *b, Job *job, int prompt)
{
    for (int i = 0; i < JOBS; i++) {
        make_job(&job[i], prompt + i, (uint64_t)i + 1);
        job[i].request.max_new = 24;
        expect(b, &job[i]);
    }
}

static void submit_all(Bed *b, Job *job)
{
    for (int i = 0; i < JOBS; i++)
        submit(b, &job[i]);
}

/* One of six requests, in its prompt, at its end and later; then the same six again, without a fault. */
static void test_one_of_six(void **state)
{
    (void)state;
    for (int turn = 0; turn < 2 * 2 * 3; turn++) {
        const bool asynchronous = turn % 2, prefix = turn / 2 % 2;
        const int prompt = 7, at = (int[]){2, 7 + 2, 7 + 2 + 9}[turn / 4];
        const FtxOptions o = {.size = sizeof o, .prefix_cache = prefix};
        FakeSizes sizes = fake_sizes();
        Job job[JOBS];
        FtxError err;
        Bed b;

        reset_fake(asynchronous, asynchronous ? 50 : 0);
        sizes.n_ends = 0;
        b.sizes = sizes;
        fake_artifact(&b.artifact, &sizes);
        assert_int_equal(fake_model(&b.artifact, NULL, &b.model, &err), FTX_OK);
        assert_int_equal(ftx_engine_open(b.model, &o, &b.engine, &err), FTX_OK);
        fake.nan_seed = 3;
        fake.nan_at = at;
        make_jobs(&b, job, prompt);
        submit_all(&b, job);
        run(&b);
        for (int i = 0; i < JOBS; i++) {
            if (job[i].request.seed != 3) {
                compare(&job[i]);
                continue;
            }
            assert_true(job[i].ended);
            assert_int_equal(job[i].finish, FTX_FINISH_NAN);
            assert_int_equal(job[i].n_got, tokens_before(&job[i], at));
            assert_memory_equal(job[i].got, job[i].expected, (size_t)job[i].n_got * sizeof *job[i].got);
        }
        assert_true(fake.wipes > 0);
        assert_false(ftx_engine_busy(b.engine));
        assert_int_equal(b.engine->pages.n, b.engine->pages.all);

        fake.nan_seed = 0;
        fake.wipes = 0;
        for (int again = 0; again < 3; again++) { /* pages in another order, too */
            make_jobs(&b, job, prompt);
            submit_all(&b, job);
            run(&b);
            for (int i = 0; i < JOBS; i++)
                compare(&job[i]);
        }
        assert_int_equal(fake.wipes, 0);
        close_bed(&b);
    }
}

/* Samples share the pages of their prompt: all of them end, and the last one wipes these. */
static void test_samples(void **state)
{
    FakeSizes sizes = fake_sizes();
    FtxEvent ev[64] = {FTX_EVENT_INIT};
    int ended = 0;
    FtxError err;
    Job j, after;
    size_t n;
    Bed b;

    (void)state;
    reset_fake(true, 0);
    sizes.n_ends = 0;
    open_bed(&b, &sizes);
    fake.nan_seed = 3;
    fake.nan_at = 1;
    make_job(&j, 9, 3);
    j.request.samples = 3;
    j.request.temperature = 1.0f;
    submit(&b, &j);
    while (ftx_engine_busy(b.engine)) {
        assert_int_equal(ftx_engine_step(b.engine, ev, 64, &n, &err), FTX_OK);
        for (size_t i = 0; i < n; i++) {
            assert_int_equal(ev[i].finish, FTX_FINISH_NAN);
            assert_int_equal(ev[i].token, -1);
            ended++;
        }
    }
    assert_int_equal(ended, 3);
    fake.nan_seed = 0;
    make_job(&after, 9, 4);
    after.request.max_new = 20;
    expect(&b, &after);
    submit(&b, &after);
    run(&b);
    compare(&after);
    assert_idle(b.engine);
    close_bed(&b);
}

/* Tokens that the host chooses: of such logits it chooses none. */
static bool allow_all(void *user, int sample, const int32_t *ids, size_t n, uint32_t *bits)
{
    (void)user, (void)sample, (void)ids, (void)n;
    memset(bits, 0xff, 8);
    return true;
}

static void test_masked(void **state)
{
    FakeSizes sizes = fake_sizes();
    Job job[2];
    Bed b;

    (void)state;
    reset_fake(false, 0);
    sizes.n_ends = 0;
    open_bed(&b, &sizes);
    fake.nan_seed = 3;
    fake.nan_at = 6;
    for (int i = 0; i < 2; i++) {
        make_job(&job[i], 5, i ? 3 : 1);
        job[i].request.max_new = 8;
        job[i].request.mask = i ? allow_all : NULL;
        expect(&b, &job[i]);
        submit(&b, &job[i]);
    }
    run(&b);
    compare(&job[0]);
    assert_int_equal(job[1].finish, FTX_FINISH_NAN);
    assert_int_equal(job[1].n_got, tokens_before(&job[1], 6));
    assert_idle(b.engine);
    close_bed(&b);
}

/* Masks that the device applies: pages are wiped between the two parts of the next run. */
static void test_masked_on_device(void **state)
{
    (void)state;
    for (int turn = 0; turn < 6; turn++) {
        FakeSizes sizes = fake_sizes();
        Job job[JOBS];
        Bed b;

        reset_fake(true, turn % 2 ? 50 : 0);
        sizes.n_ends = 0;
        sizes.masks = true;
        open_bed(&b, &sizes);
        for (int again = 0; again < 2; again++) {
            fake.nan_seed = again ? 0 : 3;
            fake.nan_at = (int[]){2, 9, 18}[turn / 2];
            for (int i = 0; i < JOBS; i++) {
                make_job(&job[i], 7 + i, (uint64_t)i + 1);
                job[i].request.max_new = 20;
                job[i].request.mask = i % 2 ? NULL : allow_all;
                expect(&b, &job[i]);
                submit(&b, &job[i]);
            }
            run(&b);
            for (int i = 0; i < JOBS; i++)
                if (job[i].request.seed != fake.nan_seed)
                    assert_int_equal(job[i].n_got, 20);
                else
                    assert_int_equal(job[i].finish, FTX_FINISH_NAN);
            assert_idle(b.engine);
        }
        close_bed(&b);
    }
}

/* Requests get the tokens that are theirs, whatever stood in their pages. */
static void all_are_right(Bed *b)
{
    Job job[JOBS];

    for (int again = 0; again < 3; again++) {
        make_jobs(b, job, 7);
        submit_all(b, job);
        run(b);
        for (int i = 0; i < JOBS; i++)
            compare(&job[i]);
    }
}

/* A prompt that is cancelled before its end, so that nobody has seen its logits, and a text that is scored: their pages harm
 * nobody. */
static void test_left(void **state)
{
    (void)state;
    for (int turn = 0; turn < 8; turn++) {
        const bool scored = turn / 4;
        const FtxOptions o = {.size = sizeof o, .prefix_cache = turn / 2 % 2};
        FakeSizes sizes = fake_sizes();
        Job job[JOBS];
        FtxError err;
        Job j;
        Bed b;

        reset_fake(turn % 2, 0);
        sizes.n_ends = 0;
        sizes.tokens = 8;
        b.sizes = sizes;
        fake_artifact(&b.artifact, &sizes);
        assert_int_equal(fake_model(&b.artifact, NULL, &b.model, &err), FTX_OK);
        assert_int_equal(ftx_engine_open(b.model, &o, &b.engine, &err), FTX_OK);
        make_jobs(&b, job, 7);
        submit_all(&b, job);
        run(&b);
        fake.nan_any = true;
        fake.nan_at = 1;
        make_job(&j, 30, 100);
        if (scored) {
            float logprobs[30];

            assert_int_equal(ftx_engine_score(b.engine, j.prompt, 30, logprobs, &err), FTX_OK);
            assert_true(isnan(logprobs[28]));
        } else {
            submit(&b, &j);
            step(&b);
            step(&b);
            assert_int_equal(ftx_engine_cancel(b.engine, j.id, NULL), FTX_OK);
            run(&b);
            assert_int_equal(j.finish, FTX_FINISH_CANCEL);
        }
        fake.nan_any = false;
        all_are_right(&b);
        close_bed(&b);
    }
}

/* The same pages, some of which a request takes as it grows. */
static void test_left_and_grown(void **state)
{
    const FtxOptions o = {.size = sizeof o, .overcommit = true};
    FakeSizes sizes = fake_sizes();
    Job left, grown;
    FtxError err;
    Bed b;

    (void)state;
    reset_fake(true, 0);
    sizes.n_ends = 0;
    sizes.context = 160;
    sizes.kv_pages = 200;
    b.sizes = sizes;
    fake_artifact(&b.artifact, &sizes);
    assert_int_equal(fake_model(&b.artifact, NULL, &b.model, &err), FTX_OK);
    assert_int_equal(ftx_engine_open(b.model, &o, &b.engine, &err), FTX_OK);
    fake.nan_any = true;
    make_job(&left, 150, 100);
    submit(&b, &left);
    for (int i = 0; i < 6; i++)
        step(&b);
    assert_int_equal(ftx_engine_cancel(b.engine, left.id, NULL), FTX_OK);
    run(&b);
    fake.nan_any = false;
    make_job(&grown, 5, 1);
    grown.request.max_new = 120;
    expect(&b, &grown);
    submit(&b, &grown);
    step(&b);
    assert_in_range(fake.wipes, 1, 20); /* not yet all */
    run(&b);
    compare(&grown);
    assert_in_range(fake.wipes, 25, 38);
    assert_idle(b.engine);
    close_bed(&b);
}

static void open_with_prefixes(Bed *b)
{
    const FtxOptions o = {.size = sizeof o, .prefix_cache = true};
    FakeSizes sizes = fake_sizes();
    FtxError err;

    reset_fake(true, 0);
    sizes.n_ends = 0;
    sizes.tokens = 8;
    b->sizes = sizes;
    fake_artifact(&b->artifact, &sizes);
    assert_int_equal(fake_model(&b->artifact, NULL, &b->model, &err), FTX_OK);
    assert_int_equal(ftx_engine_open(b->model, &o, &b->engine, &err), FTX_OK);
}

/* A prompt that is cancelled before its end wrote none of the pages that it found. */
static void test_found(void **state)
{
    Job first, left;
    Bed b;

    (void)state;
    open_with_prefixes(&b);
    make_job(&first, 17, 1);
    first.request.max_new = 1;
    submit(&b, &first);
    run(&b);
    make_job(&left, 38, 1);
    submit(&b, &left);
    step(&b);
    step(&b);
    assert_int_equal(ftx_engine_cancel(b.engine, left.id, NULL), FTX_OK);
    run(&b);
    assert_int_equal(left.finish, FTX_FINISH_CANCEL);
    assert_int_equal(left.n_got, 0);
    all_are_right(&b);
    assert_in_range(fake.wipes, 1, 6); /* of 10 pages 4 were found */
    close_bed(&b);
}

/* Pages of a beginning whose writer ends with NaN while another prompt has them, which is cancelled before its end. */
static void test_shared_and_left(void **state)
{
    Job writer, other;
    Bed b;

    (void)state;
    open_with_prefixes(&b);
    fake.nan_seed = 100;
    fake.nan_at = 1;
    make_job(&writer, 26, 100);
    make_job(&other, 36, 100);
    other.request.seed = 7; /* its own keys are finite */
    for (int i = 12; i < 36; i++)
        other.prompt[i] = i;
    submit(&b, &writer);
    submit(&b, &other);
    for (int i = 0; i < 20 && !writer.finish; i++)
        step(&b);
    assert_int_equal(writer.finish, FTX_FINISH_NAN);
    assert_int_equal(other.finish, 0);
    assert_int_equal(ftx_engine_cancel(b.engine, other.id, NULL), FTX_OK);
    run(&b);
    assert_int_equal(other.finish, FTX_FINISH_CANCEL);
    all_are_right(&b);
    close_bed(&b);
}

/* Where the page cannot be wiped, or a source's keys would stay, the engine ends. */
static void test_cannot(void **state)
{
    static const char *const words[] = {"the fake wipe has failed",
                                        "request 1: logits at position 10 that are not finite numbers (FTX_NAN=1 finds "
                                        "where)"};

    (void)state;
    for (int kind = 0; kind < 2; kind++) {
        FakeSizes sizes = fake_sizes();
        FtxEvent ev[64] = {FTX_EVENT_INIT};
        FtxError err = {FTX_OK, ""};
        FtxStatus s = FTX_OK;
        Job j;
        size_t n;
        Bed b;

        reset_fake(false, 0);
        open_bed(&b, &sizes);
        fake.nan_seed = 3;
        fake.nan_at = 9;
        fake.wipes_until_failure = kind == 0;
        make_job(&j, 5, 3);
        submit(&b, &j);
        for (int i = 0; !s && i < 20; i++) {
            b.artifact.facts.sources = (uint32_t)kind * (i > 2); /* when its decode steps go on */
            s = ftx_engine_step(b.engine, ev, 64, &n, &err);
        }
        b.artifact.facts.sources = 0;
        assert_int_equal(s, FTX_EDEVICE);
        assert_string_equal(err.text, words[kind]);
        assert_int_equal(n, 1);
        assert_int_equal(ftx_engine_step(b.engine, ev, 64, &n, &err), FTX_EDEVICE);
        close_bed(&b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_one_of_six), cmocka_unit_test(test_samples),
                                       cmocka_unit_test(test_masked),     cmocka_unit_test(test_masked_on_device),
                                       cmocka_unit_test(test_left),       cmocka_unit_test(test_left_and_grown),
                                       cmocka_unit_test(test_found),      cmocka_unit_test(test_shared_and_left),
                                       cmocka_unit_test(test_cannot)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
