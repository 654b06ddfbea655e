/* test_masks.c - masks that the device applies, on the fake device: the tokens are those of masks that the host applies, a run
 * is enqueued in two parts, and each mask is asked once, when the tokens before are known. */
#include "jobs.h"

/* A grammar: of new token k, those ids that are `first` + k modulo 3; none, or no more text, at none_at and stop_at. */
typedef struct Rule {
    const Job *job;
    size_t first, calls, stop_at, none_at;
} Rule;

static bool allow(void *user, int sample, const int32_t *ids, size_t count, uint32_t *bits)
{
    Rule *r = user;

    (void)sample;
    assert_int_equal(count, r->calls++);
    assert_int_equal(count, r->job->n_got); /* their events have come */
    assert_memory_equal(ids, r->job->got, count * sizeof *ids);
    assert_true(bits[0] == 0 && bits[1] == 0);
    for (size_t id = (r->first + count) % 3; id < 61 && count != r->none_at; id += 3)
        bits[id / 32] |= 1u << id % 32;
    return count != r->stop_at;
}

static FakeSizes sizes_of(bool masks)
{
    FakeSizes s = fake_sizes();

    s.masks = masks;
    s.n_ends = 0;
    s.kv_pages = 60;
    return s;
}

static void ask(Bed *b, Job *j, Rule *r, int prompt, int fresh, size_t first)
{
    make_job(j, prompt, first);
    j->request.max_new = fresh;
    if (first == 3) { /* no grammar */
        expect(b, j);
    } else {
        *r = (Rule){.job = j, .first = first, .stop_at = 100, .none_at = 100};
        j->request.mask = allow;
        j->request.mask_user = r;
    }
    submit(b, j);
}

static const char *order(void)
{
    static char got[sizeof fake.order];

    memcpy(got, fake.order, sizeof got);
    memset(fake.order, 0, sizeof fake.order);
    return got;
}

/* Four requests, one of them without a grammar; others arrive while they run. The host's masks and the device's give the same
 * texts. */
static void generate(bool masks, unsigned delay, Job *job, bool ends)
{
    enum { N = 6 };
    FakeSizes sizes = sizes_of(masks);
    Rule rule[N];
    Bed b;

    sizes.n_ends = ends;
    reset_fake(true, delay);
    open_bed(&b, &sizes);
    for (int i = 0; i < N; i++) {
        ask(&b, &job[i], &rule[i], 3 + 5 * i, 10 + i, (size_t)i % 4);
        for (int k = 0; i >= 3 && k < 3; k++)
            step(&b);
        if (i == 1)
            rule[i].stop_at = 6;
        if (i == 2)
            rule[i].none_at = 8;
    }
    run(&b);
    assert_idle(b.engine);
    assert_int_equal(fake.reads > 0, !masks);
    close_bed(&b);
}

static void test_texts(void **state)
{
    static Job host[6], device[6];

    (void)state;
    for (int i = 0; i < 12; i++) {
        generate(false, 0, host, i % 2);
        generate(true, i / 2 * 20u, device, i % 2);
        for (int k = 0; k < 6; k++) {
            assert_int_equal(host[k].n_got, device[k].n_got);
            assert_memory_equal(host[k].got, device[k].got, (size_t)host[k].n_got * sizeof *host[k].got);
            assert_int_equal(host[k].finish, device[k].finish);
            if (k == 3)
                compare(&device[k]);
        }
        assert_true(i % 2 || (device[1].n_got == 6 && device[1].finish == FTX_FINISH_STOP));
        assert_true(i % 2 || (device[2].n_got == 8 && device[2].finish == FTX_FINISH_STOP));
    }
}

/* The layers of the next run are enqueued before the result of this one is waited for. */
static void test_order(void **state)
{
    const FakeSizes sizes = sizes_of(true);
    Rule rule[2];
    Job a, c;
    Bed b;

    (void)state;
    reset_fake(true, 100);
    open_bed(&b, &sizes);
    order();
    ask(&b, &a, &rule[0], 3, 20, 0);
    step(&b);
    assert_string_equal(order(), "pubf" /* the prompt */ "swub" /* the layers of a decode step */ "t");
    for (int i = 0; i < 5; i++) {
        step(&b);
        assert_string_equal(order(), "fbt");
    }
    ask(&b, &c, &rule[1], 5, 20, 1);
    step(&b); /* what is enqueued comes in; c's prompt beside a */
    assert_string_equal(order(), "fpswubt");
    assert_int_equal(fake.rows[fake.runs - 1], 1);
    step(&b);
    assert_string_equal(order(), "fswubtt");
    assert_int_equal(fake.rows[fake.runs - 1], 2);
    step(&b);
    assert_string_equal(order(), "fbtt");
    assert_true(fake.most_ahead <= 2);
    run(&b);
    assert_int_equal(a.n_got, 20);
    assert_int_equal(c.n_got, 20);
    assert_idle(b.engine);
    close_bed(&b);
}

/* The host applies the masks of requests that want raw logits, or more biases than were compiled; with FTX_NAN, which looks
 * for numbers that are not finite, all masks. */
static void test_on_host(void **state)
{
    const FakeSizes sizes = sizes_of(true);
    static const int32_t ids[] = {1, 2, 3};
    static const float values[] = {1.0f, 2.0f, 3.0f};

    (void)state;
    for (int i = 0; i < 7; i++) {
        FtxEvent ev[64] = {FTX_EVENT_INIT};
        Rule rule;
        FtxError err;
        size_t n;
        Job j;
        Bed b;

        reset_fake(true, 0);
        if (i == 6)
            setenv("FTX_NAN", "1", 1);
        open_bed(&b, &sizes);
        unsetenv("FTX_NAN");
        make_job(&j, 4, 1);
        rule = (Rule){.job = &j, .stop_at = 100, .none_at = 100};
        j.request.max_new = 5;
        j.request.mask = allow;
        j.request.mask_user = &rule;
        j.request.logprobs = i == 1;
        j.request.top_logprobs = i == 2 ? 3 : 0;
        j.request.logits = i == 3;
        j.request.prompt_logprobs = i == 4;
        j.request.bias_ids = ids;
        j.request.bias_values = values;
        j.request.bias_count = i == 5 ? 3 : 0;
        submit(&b, &j);
        while (ftx_engine_busy(b.engine)) {
            assert_int_equal(ftx_engine_step(b.engine, ev, 64, &n, &err), FTX_OK);
            for (size_t k = 0; k < n; k++)
                if (ev[k].token >= 0)
                    j.got[j.n_got++] = ev[k].token;
        }
        assert_int_equal(j.n_got, 5);
        for (int k = 0; k < 5; k++)
            assert_int_equal(j.got[k] % 3, k % 3);
        assert_int_equal(fake.reads > 0, i > 0);
        close_bed(&b);
    }
}

/* All that is allowed is an end, which may not come yet: the text ends. Also where that end is the id that a device takes then. */
static bool allow_end(void *user, int sample, const int32_t *ids, size_t count, uint32_t *bits)
{
    (void)sample, (void)ids;
    bits[0] = count < 3 ? 1u << 9 : 1u << *(int *)user;
    return true;
}

static void test_banned(void **state)
{
    FakeSizes sizes = sizes_of(true);

    (void)state;
    sizes.n_ends = 1;
    for (int i = 0; i < 6; i++) {
        const int min_new = (int[]){3, 4, 10}[i % 3], early = min_new > 3;
        int end = i < 3 ? 7 : 0;
        Job j;
        Bed b;

        sizes.ends[0] = end;
        reset_fake(true, 0);
        open_bed(&b, &sizes);
        make_job(&j, 4, 1);
        j.request.max_new = min_new == 4 ? 4 : 20; /* 4: the banned token is the last of its flight */
        j.request.min_new = min_new;
        j.request.mask = allow_end;
        j.request.mask_user = &end;
        submit(&b, &j);
        run(&b);
        assert_int_equal(j.finish, early ? FTX_FINISH_STOP : FTX_FINISH_END);
        assert_int_equal(j.n_got, early ? 3 : 4);
        close_bed(&b);
    }
}

/* Cancelled between the two parts of a run; the last request of an engine; and the engine is closed between them. */
static void test_cancelled(void **state)
{
    const FakeSizes sizes = sizes_of(true);

    (void)state;
    for (int alone = 0; alone < 2; alone++) {
        Rule rule[3];
        Job j[3];
        Bed b;

        reset_fake(true, 50);
        open_bed(&b, &sizes);
        ask(&b, &j[0], &rule[0], 4, 30, 0);
        if (!alone)
            ask(&b, &j[1], &rule[1], 5, 12, 1);
        for (int i = 0; i < 4; i++)
            step(&b);
        assert_int_equal(ftx_engine_cancel(b.engine, j[0].id, NULL), FTX_OK);
        run(&b);
        assert_int_equal(j[0].finish, FTX_FINISH_CANCEL);
        assert_true(alone || j[1].n_got == 12);
        assert_idle(b.engine);
        ask(&b, &j[2], &rule[2], 6, 9, 2);
        for (int i = 0; i < 3; i++)
            step(&b);
        if (!alone) {
            run(&b);
            assert_int_equal(j[2].n_got, 9);
        }
        close_bed(&b);
    }
}

/* While a run is waited for (step_ms), a request that could be admitted is cancelled, so the flight goes on after all: the next
 * run's layers are enqueued, but its masks are asked when this one's tokens are there. */
static void test_goes_on(void **state)
{
    const FakeSizes sizes = sizes_of(true);
    FtxOptions o = FTX_OPTIONS_INIT;
    FtxError err;
    Rule rule[2];
    Job a, c;
    Bed b;

    (void)state;
    reset_fake(true, 0);
    fake.made_up = true;
    fake.time_us = 30000.0;
    o.step_ms = 25;
    b.sizes = sizes;
    fake_artifact(&b.artifact, &sizes);
    assert_int_equal(fake_model(&b.artifact, NULL, &b.model, &err), FTX_OK);
    assert_int_equal(ftx_engine_open(b.model, &o, &b.engine, &err), FTX_OK);
    fake.made_up = false;
    ask(&b, &a, &rule[0], 3, 20, 0);
    for (int i = 0; i < 4; i++)
        step(&b);
    ask(&b, &c, &rule[1], 5, 20, 1);
    order();
    __atomic_store_n(&fake.hold, true, __ATOMIC_RELAXED);
    step(&b);
    assert_string_equal(order(), "f"); /* too early to compose the next flight */
    assert_int_equal(ftx_engine_cancel(b.engine, c.id, NULL), FTX_OK);
    __atomic_store_n(&fake.hold, false, __ATOMIC_RELAXED);
    step(&b);
    assert_string_equal(order(), "bt");
    run(&b);
    assert_int_equal(a.n_got, 20);
    for (int k = 0; k < 20; k++)
        assert_int_equal(a.got[k] % 3, k % 3);
    assert_int_equal(c.finish, FTX_FINISH_CANCEL);
    assert_idle(b.engine);
    close_bed(&b);
}

/* Requests that are preempted and come back, by recomputing or with pages on the host: each mask is asked once all the same. */
static void test_preempted(void **state)
{
    enum { N = 6, FRESH = 150 };

    (void)state;
    for (int swap = 0; swap < 2; swap++) {
        const FtxOptions o = {
            .size = sizeof o, .overcommit = true, .prefix_cache = true, .swap_bytes = swap ? 1 << 20 : 0};
        FakeSizes sizes = sizes_of(true);
        static Job job[N];
        Rule rule[N];
        FtxError err;
        Bed b;

        reset_fake(true, 20);
        sizes.context = 200;
        sizes.kv_pages = 100;
        b.sizes = sizes;
        fake_artifact(&b.artifact, &sizes);
        assert_int_equal(fake_model(&b.artifact, NULL, &b.model, &err), FTX_OK);
        assert_int_equal(ftx_engine_open(b.model, &o, &b.engine, &err), FTX_OK);
        for (int i = 0; i < N; i++) {
            ask(&b, &job[i], &rule[i], 3 + i, FRESH, (size_t)i % 3);
            rule[i].stop_at = rule[i].none_at = FRESH;
        }
        run(&b);
        for (int i = 0; i < N; i++) {
            assert_int_equal(job[i].n_got, FRESH);
            for (int k = 0; k < FRESH; k++)
                assert_int_equal(job[i].got[k] % 3, (i + k) % 3);
        }
        assert_true(b.engine->stats.preemptions > 0);
        close_bed(&b);
    }
}

/* A device that fails in the second part ends all requests. */
static void test_failure(void **state)
{
    const FakeSizes sizes = sizes_of(true);

    (void)state;
    for (int late = 0; late < 2; late++) {
        FtxEvent ev[64] = {FTX_EVENT_INIT};
        FtxError err = {0};
        FtxStatus s = FTX_OK;
        Rule rule;
        size_t n = 0;
        Job j;
        Bed b;

        reset_fake(true, 0);
        fake.fail_at = 5;
        fake.fail_late = late;
        open_bed(&b, &sizes);
        ask(&b, &j, &rule, 4, 30, 0);
        for (int i = 0; i < 20 && !s; i++) {
            s = ftx_engine_step(b.engine, ev, 64, &n, &err);
            for (size_t k = 0; k < n; k++)
                if (ev[k].token >= 0)
                    j.got[j.n_got++] = ev[k].token;
        }
        assert_int_equal(s, FTX_EDEVICE);
        assert_int_equal(n, 1);
        assert_int_equal(ev[0].finish, FTX_FINISH_ERROR);
        assert_string_equal(fake.wrong, "");
        ftx_engine_close(b.engine);
        ftx_model_close(b.model);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_texts),   cmocka_unit_test(test_order),     cmocka_unit_test(test_on_host),
        cmocka_unit_test(test_banned),  cmocka_unit_test(test_cancelled), cmocka_unit_test(test_failure),
        cmocka_unit_test(test_goes_on), cmocka_unit_test(test_preempted),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
