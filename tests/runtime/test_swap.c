/* test_swap.c - FtxOptions.swap_bytes on the fake device: pages of preempted requests are copied to the host and back. Tokens
 * and texts are those of the request alone; pages on the host are given back whatever ends the request. */
#include "jobs.h"

enum { PAGE_BYTES = 64, JOBS = 6 }; /* a page of the fake plan */

typedef struct Setting {
    bool asynchronous, prefix, fixed;
    uint32_t pages; /* on the host */
    double page_us; /* to copy one; a token takes 1 us to recompute */
} Setting;

static void open_swapping(Bed *b, const Setting *t)
{
    FtxOptions options = FTX_OPTIONS_INIT;
    FtxError err = {FTX_OK, ""};

    reset_fake(t->asynchronous, t->asynchronous ? 20 : 0);
    b->sizes = fake_sizes();
    b->sizes.context = 200;
    b->sizes.kv_pages = 60;
    b->sizes.n_ends = 0;
    b->sizes.fixed_sums = t->fixed;
    fake_artifact(&b->artifact, &b->sizes);
    assert_int_equal(fake_model(&b->artifact, NULL, &b->model, &err), FTX_OK);
    options.overcommit = 1;
    options.prefix_cache = t->prefix;
    options.swap_bytes = (uint64_t)t->pages * PAGE_BYTES;
    assert_int_equal(ftx_engine_open(b->model, &options, &b->engine, &err), FTX_OK);
    b->engine->share = b->engine->used = 0.0f; /* nobody is expected to write much */
    if (t->pages)
        assert_true(b->engine->swap.page_us > 0.0 && b->engine->swap.token_us > 0.0);
    b->engine->swap.page_us = t->page_us;
    b->engine->swap.token_us = 1.0;
}

static void make_all(Bed *b, Job *job)
{
    for (int i = 0; i < JOBS; i++) {
        make_job(&job[i], 7 + i, (uint64_t)i);
        job[i].request.max_new = 120;
        expect(b, &job[i]);
        submit(b, &job[i]);
    }
}

/* Free pages on the host and those of waiting requests are all of them, each in one place. */
static void check_kept(const FtxEngine *e)
{
    uint8_t seen[1000] = {0};
    uint32_t held = 0;

    for (uint32_t i = 0; i < e->requests; i++) {
        const Request *r = &e->request[i];

        assert_true(!r->kept_pages || r->state == REQUEST_WAITING || r->state == REQUEST_ENDING);
        for (uint32_t k = 0; k < r->kept_pages; k++)
            assert_int_equal(seen[r->kept[k]]++, 0);
        held += r->kept_pages;
    }
    for (uint32_t i = 0; i < e->swap.n; i++)
        assert_int_equal(seen[e->swap.free[i]]++, 0);
    assert_int_equal(held + e->swap.n, e->swap.all);
}

static void assert_at_rest(const FtxEngine *e)
{
    assert_false(ftx_engine_busy(e));
    assert_int_equal(e->pages.n, e->pages.all);
    assert_int_equal(e->free_slots, e->slots);
    assert_int_equal(e->unused.n, e->requests);
    assert_int_equal(e->swap.n, e->swap.all);
}

static void run_checked(Bed *b, Job *job)
{
    while (ftx_engine_busy(b->engine)) {
        step(b);
        check_kept(b->engine);
    }
    for (int i = 0; i < JOBS; i++)
        compare(&job[i]);
    assert_at_rest(b->engine);
}

/* Each combination of a device, a prefix cache and fixed sums: all is copied, nothing is recomputed without the cache. */
static void test_swaps(void **state)
{
    (void)state;
    for (int turn = 0; turn < 8; turn++) {
        Job job[JOBS];
        FtxStats stats;
        Bed b;

        open_swapping(&b, &(Setting){turn & 1, turn & 2, turn & 4, 200, 0.01});
        fake.keeps[0] = fake.keeps[1] = 0;
        make_all(&b, job);
        run_checked(&b, job);
        stats = ftx_engine_stats(b.engine);
        assert_true(stats.preemptions > 0 && stats.swaps == stats.preemptions);
        assert_int_equal(stats.recomputed_tokens, 0);
        assert_int_equal(stats.swap_pages, 200);
        assert_int_equal(stats.free_swap_pages, 200);
        assert_int_equal(stats.swapped, 0);
        assert_true(fake.keeps[0] > 0);
        if (turn & 2)
            assert_true(fake.keeps[1] <= fake.keeps[0]); /* some are still in the cache */
        else
            assert_int_equal(fake.keeps[1], fake.keeps[0]);
        close_bed(&b);
    }
}

/* Where a copy takes longer, or there is no room on the host, tokens are recomputed; the border is where both take as long. */
static void test_chooses(void **state)
{
    static const struct {
        uint32_t pages;
        double page_us;
        bool swaps;
    } rows[] = {{200, 1.0, true},  {200, 1.99, true}, {200, 2.5, false},
                {200, 1e9, false}, {3, 0.01, false},  {0, 0.01, false}};

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        Job job[JOBS];
        FtxStats stats;
        Bed b;

        open_swapping(&b, &(Setting){i & 1, false, false, rows[i].pages, rows[i].page_us});
        make_all(&b, job);
        run_checked(&b, job);
        stats = ftx_engine_stats(b.engine);
        assert_true(stats.preemptions > 0);
        assert_int_equal(stats.swaps > 0, rows[i].swaps);
        assert_int_equal(stats.recomputed_tokens > 0, stats.swaps < stats.preemptions);
        close_bed(&b);
    }
}

/* Tokens that the steps read: without the copies, each preempted request reads its own again. */
static void test_saves_work(void **state)
{
    int tokens[2];

    (void)state;
    for (int swap = 0; swap < 2; swap++) {
        Job job[JOBS];
        Bed b;

        open_swapping(&b, &(Setting){false, false, false, swap ? 200 : 0, 0.01});
        make_all(&b, job);
        tokens[swap] = 0;
        while (ftx_engine_busy(b.engine)) {
            step(&b);
            for (int i = 0; i < b.engine->flight.rows; i++)
                tokens[swap] += b.engine->flight.row[i].count;
        }
        close_bed(&b);
    }
    assert_int_equal(tokens[1], 7 + 8 + 9 + 10 + 11 + 12 + JOBS * 119);
    assert_true(tokens[0] > tokens[1]);
}

/* The n-th copy fails, for each n: its request is recomputed, and nothing is lost. */
static void test_copies_fail(void **state)
{
    (void)state;
    for (int turn = 0; turn < 4; turn++)
        for (int n = 1; n < 400; n++) {
            Job job[JOBS];
            Bed b;

            open_swapping(&b, &(Setting){turn & 1, turn & 2, false, 200, 0.01});
            fake.delay_us = 0;
            fake.keeps_until_failure = n;
            make_all(&b, job);
            run_checked(&b, job);
            if (fake.keeps_until_failure) { /* there were fewer copies */
                assert_true(n > 20);
                n = 400;
            } else {
                assert_true(ftx_engine_stats(b.engine).recomputed_tokens > 0);
            }
            close_bed(&b);
            n += n > 8 ? 6 : 0;
        }
}

/* Requests that are cancelled while their pages are on the host give these back. */
static void test_cancelled(void **state)
{
    (void)state;
    for (int asynchronous = 0; asynchronous < 2; asynchronous++) {
        Job job[JOBS];
        int cancelled = 0;
        Bed b;

        open_swapping(&b, &(Setting){asynchronous, false, false, 200, 0.01});
        make_all(&b, job);
        while (ftx_engine_busy(b.engine)) {
            const FtxStats stats = ftx_engine_stats(b.engine);

            step(&b);
            check_kept(b.engine);
            for (uint32_t i = 0; i < b.engine->waiting.n; i++) {
                Job *j = b.engine->waiting.at[i]->user;

                if (!b.engine->waiting.at[i]->kept_pages)
                    continue;
                assert_true(ftx_engine_stats(b.engine).swapped > 0 || stats.swapped == 0);
                assert_true(ftx_engine_stats(b.engine).free_swap_pages < 200);
                assert_int_equal(ftx_engine_cancel(b.engine, j->id, NULL), FTX_OK);
                j->cancelled = true;
                cancelled++;
                break;
            }
        }
        assert_true(cancelled > 0);
        for (int i = 0; i < JOBS; i++)
            compare(&job[i]);
        assert_at_rest(b.engine);
        close_bed(&b);
    }
}

static void refuse(Bed *b, const FtxOptions *o, const char *why)
{
    FtxError err = {FTX_OK, ""};
    FtxEngine *e;

    assert_int_equal(ftx_engine_open(b->model, o, &e, &err), FTX_EINVAL);
    assert_string_equal(err.text, why);
    assert_null(e);
}

static void test_refusals(void **state)
{
    FtxOptions o = FTX_OPTIONS_INIT;
    Bed b;

    (void)state;
    open_swapping(&b, &(Setting){false, false, false, 10, 1.0});
    o.swap_bytes = PAGE_BYTES;
    refuse(&b, &o, "swap_bytes (--swap-memory): only a decoder with overcommit preempts requests");
    o.overcommit = 1;
    o.swap_bytes = PAGE_BYTES - 1;
    refuse(&b, &o, "swap_bytes (--swap-memory): it is less than a KV page");
    close_bed(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_swaps),       cmocka_unit_test(test_chooses),   cmocka_unit_test(test_saves_work),
        cmocka_unit_test(test_copies_fail), cmocka_unit_test(test_cancelled), cmocka_unit_test(test_refusals),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
