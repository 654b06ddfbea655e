/* test_engine.c - the engine against the fake device: whoever runs together, whatever is chunked,
 * run ahead, cancelled or stopped, a request gets the tokens and the text it would get alone. */
#include "jobs.h"

static void run_alone(bool asynchronous)
{
    FakeSizes sizes = fake_sizes();
    Bed b;
    Job j;

    reset_fake(asynchronous, asynchronous ? 50 : 0);
    open_bed(&b, &sizes);
    for (int prompt = 1; prompt < (int)sizes.context; prompt++) { /* longer than a step's 20, too */
        make_job(&j, prompt, (uint64_t)prompt);
        expect(&b, &j);
        submit(&b, &j);
        run(&b);
        compare(&j);
    }
    assert_idle(b.engine);
    assert_int_equal(requests_used(b.engine), 1);
    close_bed(&b);
}

static void test_alone(void **state)
{
    (void)state;
    run_alone(false);
}

static void test_alone_asynchronous(void **state)
{
    (void)state;
    run_alone(true);
    assert_true(fake.most_ahead <= FTX_OUT_RING - 2);
    assert_true(fake.uploads < fake.runs / 2); /* a decode step needs no upload of its own */
}

/* Six runs before the first result is read, then five, or all that are left, whenever there is room; none beyond a request's limit. */
static void test_run_ahead(void **state)
{
    FakeSizes sizes = fake_sizes();
    Bed b;
    Job j;

    (void)state;
    reset_fake(true, 0);
    sizes.n_ends = 0;
    open_bed(&b, &sizes);
    make_job(&j, 1, 1);
    j.request.max_new = 9;
    expect(&b, &j);
    submit(&b, &j);
    for (int taken = 1; taken <= 9; taken++) {
        step(&b);
        assert_int_equal(j.n_got, taken);
        assert_int_equal(fake.runs, taken < 4 ? 6 : 9);
    }
    compare(&j);
    assert_int_equal(fake.uploads, 1);
    close_bed(&b);
}

/* Decode rows first, then chunks: a long prompt does not stop those who run. */
static void test_chunks_beside_decode(void **state)
{
    FakeSizes sizes = fake_sizes();
    Bed b;
    Job a, c;

    (void)state;
    reset_fake(false, 0);
    sizes.tokens = 6;
    sizes.n_ends = 0;
    sizes.kv_pages = 40;
    open_bed(&b, &sizes);
    make_job(&a, 3, 1);
    make_job(&c, 20, 2);
    expect(&b, &a);
    expect(&b, &c);
    submit(&b, &a);
    step(&b);
    assert_int_equal(a.n_got, 1);
    submit(&b, &c);
    for (int i = 1; i <= 4; i++) { /* 5 + 5 + 5 + 5 prompt tokens beside a's one */
        assert_int_equal(c.n_got, 0);
        step(&b);
        assert_int_equal(a.n_got, 1 + i);
    }
    assert_int_equal(c.n_got, 1);
    assert_int_equal(fake.most_tokens, 6);
    run(&b);
    compare(&a);
    compare(&c);
    close_bed(&b);
}

static void test_finishes(void **state)
{
    FakeSizes sizes = fake_sizes();
    Bed b;
    Job j;

    (void)state;
    reset_fake(true, 0);
    sizes.n_ends = 0;
    open_bed(&b, &sizes);

    make_job(&j, 5, 3); /* max_new */
    j.request.max_new = 4;
    expect(&b, &j);
    submit(&b, &j);
    run(&b);
    compare(&j);
    assert_int_equal(j.finish, FTX_FINISH_LENGTH);
    assert_int_equal(j.n_got, 4);

    const int32_t third = j.got[2];

    make_job(&j, 5, 3); /* an end id of the request; without text of its own */
    j.stop_ids[0] = third;
    j.request.stop_ids = j.stop_ids;
    j.request.stop_ids_count = 1;
    expect(&b, &j);
    submit(&b, &j);
    run(&b);
    compare(&j);
    assert_int_equal(j.finish, FTX_FINISH_END);
    assert_int_equal(j.got[j.n_got - 1], third);

    make_job(&j, 5, 3); /* banned at first */
    j.stop_ids[0] = third;
    j.request.stop_ids = j.stop_ids;
    j.request.stop_ids_count = 1;
    j.request.min_new = 6;
    expect(&b, &j);
    submit(&b, &j);
    run(&b);
    compare(&j);
    assert_true(j.n_got >= 6);

    make_job(&j, 39, 3); /* the context has room for one */
    expect(&b, &j);
    submit(&b, &j);
    run(&b);
    compare(&j);
    assert_int_equal(j.n_got, 1);
    close_bed(&b);
}

static void test_stop_strings(void **state)
{
    static const char *const stops[] = {"ab", "bc", "aa", "abab", "c\xc3\xa9", "\xc3\xa9", "bba", "\xef\xbf\xbd"};
    FakeSizes sizes = fake_sizes();
    int stopped = 0;
    Bed b;

    (void)state;
    sizes.n_ends = 0;
    for (int asynchronous = 0; asynchronous < 2; asynchronous++) {
        reset_fake(asynchronous, 0);
        open_bed(&b, &sizes);
        for (uint64_t seed = 0; seed < 60; seed++) {
            Job j;

            make_job(&j, 4, seed);
            j.stop[0] = stops[seed % 8];
            j.stop[1] = stops[seed / 8];
            j.request.stop = j.stop;
            j.request.stop_count = seed % 3 ? 2 : 1;
            expect(&b, &j);
            submit(&b, &j);
            run(&b);
            compare(&j);
            stopped += j.finish == FTX_FINISH_STOP;
        }
        assert_idle(b.engine);
        close_bed(&b);
    }
    assert_true(stopped > 40);
}

static void test_cancel(void **state)
{
    FakeSizes sizes = fake_sizes();
    Job job[8];
    Bed b;
    FtxError err;

    (void)state;
    sizes.sequences = 2;
    sizes.n_ends = 0;
    for (int asynchronous = 0; asynchronous < 2; asynchronous++) {
        reset_fake(asynchronous, 0);
        open_bed(&b, &sizes);
        for (int i = 0; i < 4; i++) {
            make_job(&job[i], 3 + i, (uint64_t)i);
            expect(&b, &job[i]);
            submit(&b, &job[i]);
        }
        for (int i = 0; i < 5; i++)
            step(&b);
        assert_int_equal(ftx_engine_cancel(b.engine, job[0].id, &err), FTX_OK); /* runs */
        assert_int_equal(ftx_engine_cancel(b.engine, job[0].id, &err), FTX_EINVAL);
        assert_int_equal(ftx_engine_cancel(b.engine, job[2].id, &err), FTX_OK); /* waits */
        assert_int_equal(ftx_engine_cancel(b.engine, job[2].id, &err), FTX_EINVAL);
        assert_int_equal(ftx_engine_cancel(b.engine, 999, &err), FTX_EINVAL);
        job[0].cancelled = job[2].cancelled = true;
        step(&b);
        run(&b);
        for (int i = 0; i < 4; i++)
            compare(&job[i]);
        assert_int_equal(job[0].finish, FTX_FINISH_CANCEL);
        assert_int_equal(job[0].n_got, 5);
        assert_int_equal(job[2].finish, FTX_FINISH_CANCEL);
        assert_int_equal(job[2].n_got, 0);
        assert_int_equal(ftx_engine_cancel(b.engine, job[1].id, &err), FTX_EINVAL);
        assert_idle(b.engine);
        close_bed(&b);
    }
}

/* As many cancelled at once as there is room for events: the rest come with the next step. */
static void test_many_cancelled(void **state)
{
    FakeSizes sizes = fake_sizes();
    Job job[20];
    FtxEvent ev[4] = {FTX_EVENT_INIT};
    FtxError err;
    size_t n;
    int cancelled = 0;
    Bed b;

    (void)state;
    reset_fake(true, 0);
    open_bed(&b, &sizes);
    for (int i = 0; i < 16; i++) {
        make_job(&job[i], 3, (uint64_t)i);
        submit(&b, &job[i]);
    }
    make_job(&job[16], 3, 16);
    assert_int_equal(ftx_engine_submit(b.engine, &job[16].request, NULL, &err), FTX_EFULL);
    assert_int_equal(ftx_engine_step(b.engine, ev, 3, &n, &err), FTX_EINVAL); /* four may come */
    for (int i = 0; i < 16; i++)
        assert_int_equal(ftx_engine_cancel(b.engine, job[i].id, &err), FTX_OK);
    while (ftx_engine_busy(b.engine)) {
        assert_int_equal(ftx_engine_step(b.engine, ev, 4, &n, &err), FTX_OK);
        for (size_t i = 0; i < n; i++)
            cancelled += ev[i].finish == FTX_FINISH_CANCEL && ev[i].token == -1;
    }
    assert_int_equal(cancelled, 16);
    assert_int_equal(fake.runs, 0);
    assert_idle(b.engine);
    close_bed(&b);
}

/* Waiting requests that are cancelled take room for events; what is left is too little for a step of all who run. */
static void test_events_fit(void **state)
{
    enum { SLOTS = 4, GUARD = 4 };
    FakeSizes sizes = fake_sizes();
    Job job[8];
    FtxEvent ev[SLOTS + GUARD], untouched;
    FtxError err;
    size_t n;
    Bed b;

    (void)state;
    sizes.n_ends = 0;
    for (int asynchronous = 0; asynchronous < 2; asynchronous++) {
        reset_fake(asynchronous, 0);
        open_bed(&b, &sizes);
        for (int i = 0; i < 8; i++) {
            make_job(&job[i], 3, (uint64_t)i);
            job[i].request.max_new = 8;
            expect(&b, &job[i]);
            submit(&b, &job[i]);
        }
        step(&b); /* all slots run */
        for (int i = 4; i < 7; i++) {
            assert_int_equal(ftx_engine_cancel(b.engine, job[i].id, &err), FTX_OK);
            job[i].cancelled = true;
        }
        memset(&untouched, 0xa5, sizeof untouched);
        memset(ev, 0xa5, sizeof ev);
        ev[0].size = sizeof ev[0];
        assert_int_equal(ftx_engine_step(b.engine, ev, SLOTS, &n, &err), FTX_OK);
        assert_int_equal(n, 3);
        for (size_t i = 0; i < n; i++)
            take_event(ev[i].user, &ev[i]);
        for (int i = 0; i < GUARD; i++)
            assert_memory_equal(&ev[SLOTS + i], &untouched, sizeof untouched);
        run(&b);
        for (int i = 0; i < 8; i++)
            compare(&job[i]);
        assert_idle(b.engine);
        close_bed(&b);
    }
}

static void test_logits(void **state)
{
    FakeSizes sizes = fake_sizes();
    Job job[10];
    Bed b;

    (void)state;
    for (int asynchronous = 0; asynchronous < 2; asynchronous++) {
        reset_fake(asynchronous, 0);
        open_bed(&b, &sizes);
        for (int i = 0; i < 10; i++) {
            make_job(&job[i], 1 + 3 * i, (uint64_t)i);
            job[i].request.logits = i != 4;
            job[i].request.logprobs = i % 2;
            expect(&b, &job[i]);
            submit(&b, &job[i]);
            assert_null(ftx_engine_logits(b.engine, job[i].id));
        }
        run(&b);
        for (int i = 0; i < 10; i++) { /* those of requests long ended, too */
            const float *l = ftx_engine_logits(b.engine, job[i].id);

            compare(&job[i]);
            assert_int_equal(l != NULL, i != 4);
            for (uint32_t v = 0; l && v < sizes.vocab; v++)
                assert_true(l[v] == fake_logit(job[i].prompt, 1 + 3 * i, v));
        }
        close_bed(&b);
    }
}

/* --- anything at any time ------------------------------------------------------------------------------- */

static unsigned dice_state, random_seed;

static unsigned dice(unsigned sides)
{
    dice_state = dice_state * 1664525u + 1013904223u;
    return (dice_state >> 8) % sides;
}

static FakeSizes random_sizes(void)
{
    FakeSizes s = fake_sizes();

    s.sequences = 1 + dice(7);
    s.tokens = 16 + dice(30);
    s.tokens = dice(4) ? s.tokens : 1 + dice(5);
    s.context = 4 + dice(60);
    s.kv_block = 1 + dice(9);
    s.kv_pages = (s.context + s.kv_block - 1) / s.kv_block + dice(30);
    s.n_ends = dice(3);
    s.ends[1] = 9;
    s.decode_programs = dice(3) != 0;
    s.tokenizer = dice(4) != 0;
    return s;
}

static void random_job(const Bed *b, Job *j)
{
    static const char *const stops[] = {"ab", "ca", "aa", "abb", "\xc3\xa9", "bab"};

    make_job(j, 1 + (int)dice(b->sizes.context - 1), dice(1000));
    j->request.max_new = dice(2) ? 1 + (int)dice(20) : 0;
    j->request.max_new = j->request.max_new > (int)b->sizes.context ? (int)b->sizes.context : j->request.max_new;
    j->request.min_new = j->request.max_new ? (int)dice((unsigned)j->request.max_new + 1) : 0;
    j->request.ignore_eos = dice(3) == 0;
    j->request.logprobs = dice(2);
    j->request.logits = dice(3) == 0;
    j->stop_ids[0] = (int32_t)dice(61);
    j->request.stop_ids = j->stop_ids;
    j->request.stop_ids_count = dice(2);
    j->stop[0] = stops[dice(6)];
    j->stop[1] = stops[dice(6)];
    j->request.stop = j->stop;
    j->request.stop_count = b->sizes.tokenizer ? dice(3) : 0;
    expect(b, j);
}

static void run_random(unsigned seed)
{
    enum { JOBS = 30 };
    static Job job[JOBS];
    int next = 0;
    Bed b;

    dice_state = seed;
    reset_fake(dice(2), dice(2) ? 30 : 0);

    FakeSizes sizes = random_sizes();

    sizes.fixed_sums = seed % 2;
    open_bed(&b, &sizes);
    while (next < JOBS || ftx_engine_busy(b.engine)) {
        if (next < JOBS && dice(3) == 0) {
            FtxError err;

            random_job(&b, &job[next]);

            const FtxStatus s = ftx_engine_submit(b.engine, &job[next].request, &job[next].id, &err);

            assert_true(s == FTX_OK || s == FTX_EFULL);
            next += s == FTX_OK;
        }
        if (next && dice(20) == 0) {
            Job *j = &job[dice((unsigned)next)];

            j->cancelled = ftx_engine_cancel(b.engine, j->id, NULL) == FTX_OK || j->cancelled;
        }
        step(&b);
    }
    for (int i = 0; i < JOBS; i++)
        compare(&job[i]);
    assert_idle(b.engine);
    close_bed(&b);
}

/* Samples of a prompt: each has the tokens of its number, whoever ends first and however the prompt
 * comes in chunks. */
static void test_samples(void **state)
{
    enum { SAMPLES = 3, NEW = 9 };
    FakeSizes sizes = fake_sizes();
    Bed b;

    (void)state;
    sizes.tokens = 6;
    for (int asynchronous = 0; asynchronous < 2; asynchronous++) {
        reset_fake(asynchronous, 20);
        sizes.target = asynchronous ? 900 : FTX_TARGET_CPU;
        open_bed(&b, &sizes);
        for (int prompt = 1; prompt <= 20; prompt++) {
            static Job job, beside;
            int32_t got[SAMPLES][NEW];
            int n_got[SAMPLES] = {0}, ended = 0;
            FtxEvent ev[64] = {FTX_EVENT_INIT};
            FtxError err;
            size_t n;

            make_job(&beside, 3, 5);
            beside.request.max_new = 30;
            submit(&b, &beside);
            make_job(&job, prompt, (uint64_t)prompt);
            job.request.samples = SAMPLES;
            job.request.temperature = 1.0f;
            job.request.max_new = NEW;
            submit(&b, &job);
            while (ftx_engine_busy(b.engine)) {
                if (ftx_engine_step(b.engine, ev, 64, &n, &err))
                    fail_msg("step: %s; %s", err.text, fake.wrong);
                assert_string_equal(fake.wrong, "");
                for (size_t i = 0; i < n; i++) {
                    if (ev[i].user != &job)
                        continue;
                    assert_in_range(ev[i].sample, 0, SAMPLES - 1);
                    got[ev[i].sample][n_got[ev[i].sample]++] = ev[i].token;
                    ended += ev[i].finish != FTX_RUNNING;
                }
            }
            assert_int_equal(ended, SAMPLES);
            for (int k = 0; k < SAMPLES; k++) {
                job.request.seed = fake_seed((uint64_t)prompt, k);
                expect(&b, &job);
                assert_int_equal(n_got[k], job.n_expected);
                assert_memory_equal(got[k], job.expected, (size_t)n_got[k] * sizeof *got[k]);
            }
            assert_idle(b.engine);
        }
        close_bed(&b);
    }
}

/* The first sample ends with its prompt's step, and its place goes to a request that must wait for the pages of the
 * others: they do not wait for that. */
static void test_leader_ends(void **state)
{
    FakeSizes sizes = fake_sizes();
    Bed b;

    (void)state;
    sizes.n_ends = 0;
    sizes.kv_pages = 10;
    for (int asynchronous = 0; asynchronous < 2; asynchronous++)
        for (int prompt = 5; prompt <= 12; prompt++) {
            Job samples, next;
            FtxEvent ev[64] = {FTX_EVENT_INIT};
            FtxError err;
            size_t n;
            int ended = 0;

            reset_fake(asynchronous, 0);
            open_bed(&b, &sizes);
            make_job(&samples, prompt, 3);
            samples.request.samples = 3;
            samples.request.temperature = 1.0f;
            samples.request.max_new = 1;
            submit(&b, &samples);
            make_job(&next, 38, 4); /* needs every page */
            expect(&b, &next);
            for (int steps = 0; ftx_engine_busy(b.engine); steps++) {
                assert_true(steps < 100);
                assert_int_equal(ftx_engine_step(b.engine, ev, 64, &n, &err), FTX_OK);
                for (size_t i = 0; i < n; i++)
                    if (ev[i].user == &next)
                        take_event(&next, &ev[i]);
                    else
                        ended += ev[i].finish == FTX_FINISH_LENGTH;
                if (steps == 0)
                    submit(&b, &next);
            }
            assert_int_equal(ended, 3);
            compare(&next);
            assert_idle(b.engine);
            close_bed(&b);
        }
}

/* Rows of a table that is sent in several writes of 64 KiB: the pages of a long sequence, and the prompt that the
 * other samples have from the first. */
static void test_long_rows(void **state)
{
    enum { PROMPT = 17000, NEW = 3 };
    FakeSizes sizes = fake_sizes();
    static int32_t ids[PROMPT + NEW];
    FtxEvent ev[8] = {FTX_EVENT_INIT};
    FtxError err;
    Bed b;
    size_t n;

    (void)state;
    sizes.context = PROMPT + 8;
    sizes.tokens = PROMPT + 8;
    sizes.sequences = 2;
    sizes.kv_block = 1;
    sizes.kv_pages = 2 * (PROMPT + 8);
    sizes.n_ends = 0;
    sizes.tokenizer = false;
    for (int samples = 1; samples <= 2; samples++) {
        Job j;
        int count[2] = {0};

        reset_fake(false, 0);
        open_bed(&b, &sizes);
        make_job(&j, 1, 3);
        for (int i = 0; i < PROMPT; i++)
            ids[i] = (int32_t)((unsigned)i * 2654435761u >> 7) % 61;
        j.request.ids = ids;
        j.request.ids_count = PROMPT;
        j.request.max_new = NEW;
        j.request.samples = samples;
        j.request.temperature = 1.0f;
        submit(&b, &j);
        while (ftx_engine_busy(b.engine)) {
            assert_int_equal(ftx_engine_step(b.engine, ev, 8, &n, &err), FTX_OK);
            assert_string_equal(fake.wrong, "");
            for (size_t i = 0; i < n;
                 i++) { /* a sample's tokens follow from those before, which are the same for each */
                int32_t seen[NEW];
                const int k = ev[i].sample;

                for (int t = 0; t <= count[k]; t++) {
                    seen[t] = fake_next(ids, PROMPT + t, fake_seed(3, k), sizes.vocab, NULL, 0, 0);
                    ids[PROMPT + t] = seen[t];
                }
                assert_int_equal(ev[i].token, seen[count[k]]);
                count[k]++;
            }
        }
        for (int k = 0; k < samples; k++)
            assert_int_equal(count[k], NEW);
        assert_int_equal(b.engine->pages.n, b.engine->pages.all);
        close_bed(&b);
    }
}

static void test_random(void **state)
{
    const char *first = getenv("FTX_TEST_SEED");
    const unsigned from = first ? (unsigned)atoi(first) : 1, count = first ? 1 : 150;

    (void)state;
    for (unsigned seed = from; seed < from + count; seed++) {
        random_seed = seed;
        run_random(seed);
    }
    random_seed = 0;
}

static int name_seed(void **state)
{
    (void)state;
    if (random_seed)
        print_message("FTX_TEST_SEED=%u repeats it\n", random_seed);
    return 0;
}

/* Bytes of tokens, which may be half a character; none outside of the vocabulary. */
static void test_token_bytes(void **state)
{
    FakeSizes sizes = fake_sizes();
    bool special = true;
    size_t n;
    Bed b;

    (void)state;
    reset_fake(false, 0);
    open_bed(&b, &sizes);
    for (int32_t id = 0; id < 61; id++) {
        assert_string_equal(ftx_token_bytes(b.model, id, &n, &special), fake_piece(id));
        assert_true(n == strlen(fake_piece(id)) && !special);
    }
    n = 5;
    assert_null(ftx_token_bytes(b.model, 61, &n, &special));
    assert_int_equal(n, 0);
    assert_null(ftx_token_bytes(b.model, -1, &n, &special));
    close_bed(&b);
    sizes.tokenizer = false;
    open_bed(&b, &sizes);
    assert_null(ftx_token_bytes(b.model, 5, &n, &special));
    close_bed(&b);
}

/* Tokens of a prompt see later ones: it is read in one step, for which those that decode wait, and no other prompt has its
 * pages. */
static void run_whole(bool asynchronous, bool overcommit, int64_t seed)
{
    enum { JOBS = 24 };
    static Job job[JOBS];
    FtxOptions options = FTX_OPTIONS_INIT;
    FakeSizes sizes = fake_sizes();
    FtxError err;
    Bed b;

    reset_fake(asynchronous, asynchronous ? 20 : 0);
    dice_state = (uint64_t)seed;
    sizes.whole_prompts = true;
    sizes.n_ends = 0;
    sizes.tokens = 12;
    sizes.kv_pages = overcommit ? 24 : 60;
    options.prefix_cache = true;
    options.overcommit = overcommit;
    b.sizes = sizes;
    fake_artifact(&b.artifact, &sizes);
    assert_int_equal(fake_model(&b.artifact, NULL, &b.model, &err), FTX_OK);
    assert_int_equal(ftx_engine_open(b.model, &options, &b.engine, &err), FTX_OK);
    for (int next = 0; next < JOBS || ftx_engine_busy(b.engine);) {
        if (next < JOBS && dice(3) == 0) {
            make_job(&job[next], next == 7 ? 12 : 1 + (int)dice(12), (uint64_t)(next % 5));
            job[next].request.max_new = 1 + (int)dice(20);
            expect(&b, &job[next]);
            submit(&b, &job[next++]);
        }
        step(&b);
    }
    for (int i = 0; i < JOBS; i++)
        compare(&job[i]);
    assert_true(fake.most_tokens == 12);
    assert_int_equal(ftx_engine_stats(b.engine).cached_tokens, 0);
    make_job(&job[0], 13, 1);
    assert_int_equal(ftx_engine_submit(b.engine, &job[0].request, &job[0].id, &err), FTX_EFULL);
    assert_non_null(strstr(err.text, "the prompt has 13 tokens; at most 12 fit"));
    job[0].request.truncate = FTX_TRUNCATE_START;
    assert_int_equal(ftx_engine_submit(b.engine, &job[0].request, &job[0].id, &err), FTX_OK);
    run(&b);
    make_job(&job[0], 3, 1);
    job[0].request.prompt_logprobs = 1;
    assert_int_equal(ftx_engine_submit(b.engine, &job[0].request, &job[0].id, &err), FTX_EINVAL);
    assert_string_equal(err.text, "prompt_logprobs: the model sees a prompt whole, so its tokens have none");
    assert_int_equal(ftx_engine_score(b.engine, (const int32_t[]){1, 2, 3}, 3, (float[3]){0}, &err), FTX_EINVAL);
    assert_non_null(strstr(err.text, "the model sees a prompt whole"));
    assert_idle(b.engine);
    close_bed(&b);
}

/* A prompt as long as a step, beside one that decodes: its first token comes with the next step. */
static void test_whole_beside_decode(void **state)
{
    FakeSizes sizes = fake_sizes();
    Job a, c;
    Bed b;

    (void)state;
    reset_fake(false, 0);
    sizes.whole_prompts = true;
    sizes.n_ends = 0;
    sizes.tokens = 12;
    open_bed(&b, &sizes);
    make_job(&a, 3, 1);
    make_job(&c, 12, 2);
    a.request.max_new = c.request.max_new = 20;
    expect(&b, &a);
    expect(&b, &c);
    submit(&b, &a);
    step(&b);
    submit(&b, &c);
    step(&b);
    assert_int_equal(a.n_got, 1); /* it waits */
    assert_int_equal(c.n_got, 1);
    run(&b);
    compare(&a);
    compare(&c);
    close_bed(&b);
}

static void test_whole_prompts(void **state)
{
    (void)state;
    for (int i = 0; i < 40; i++)
        run_whole(i % 2, i / 2 % 2, i + 1);
}

/* As many sequences run at once as a step has tokens. */
static void test_small_steps(void **state)
{
    FakeSizes sizes = fake_sizes();
    FtxModelInfo info;
    Job job[3];
    Bed b;

    (void)state;
    sizes.tokens = 2;
    reset_fake(false, 0);
    open_bed(&b, &sizes);
    ftx_model_info(b.model, &info);
    assert_int_equal(info.sequences, 2);
    for (int i = 0; i < 3; i++) {
        make_job(&job[i], 3, (uint64_t)i);
        expect(&b, &job[i]);
        submit(&b, &job[i]);
    }
    step(&b);
    assert_int_equal(ftx_engine_stats(b.engine).running, 2);
    run(&b);
    for (int i = 0; i < 3; i++)
        compare(&job[i]);
    close_bed(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_alone),         cmocka_unit_test(test_alone_asynchronous),
        cmocka_unit_test(test_run_ahead),     cmocka_unit_test(test_chunks_beside_decode),
        cmocka_unit_test(test_finishes),      cmocka_unit_test(test_stop_strings),
        cmocka_unit_test(test_cancel),        cmocka_unit_test(test_many_cancelled),
        cmocka_unit_test(test_events_fit),    cmocka_unit_test(test_logits),
        cmocka_unit_test(test_samples),       cmocka_unit_test(test_leader_ends),
        cmocka_unit_test(test_long_rows),     cmocka_unit_test(test_small_steps),
        cmocka_unit_test(test_whole_prompts), cmocka_unit_test(test_whole_beside_decode),
        cmocka_unit_test(test_token_bytes),   cmocka_unit_test_teardown(test_random, name_seed),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
