/* test_engine.c - the engine against the fake device: whoever runs together, whatever is chunked,
 * run ahead, cancelled or stopped, a request gets the tokens and the text it would get alone. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "fake.h"

enum { MAX_IDS = 256, MAX_TEXT = 1024 };

/* A request, what came back, and what must come back. */
typedef struct Job {
    FtxRequest request;
    uint64_t id;
    int32_t prompt[MAX_IDS], stop_ids[2];
    const char *stop[2];
    int32_t words[8]; /* what $bad_words must have */
    int n_words;
    int32_t got[MAX_IDS], expected[MAX_IDS];
    int n_got, n_expected;
    char text[MAX_TEXT], expected_text[MAX_TEXT];
    size_t text_bytes, expected_text_bytes;
    FtxFinish finish, expected_finish;
    bool submitted, cancelled, ended;
} Job;

typedef struct Bed { /* what a test runs on */
    FakeSizes sizes;
    FakeArtifact artifact;
    FtxModel *model;
    FtxEngine *engine;
} Bed;

static void open_bed(Bed *b, const FakeSizes *sizes)
{
    FtxError err;

    b->sizes = *sizes;
    fake_artifact(&b->artifact, sizes);
    assert_int_equal(fake_model(&b->artifact, NULL, &b->model, &err), FTX_OK);
    assert_int_equal(ftx_engine_open(b->model, NULL, &b->engine, &err), FTX_OK);
}

static void close_bed(Bed *b)
{
    assert_string_equal(fake.wrong, "");
    ftx_engine_close(b->engine);
    ftx_model_close(b->model);
    assert_int_equal(fake.sessions, 0);
    assert_int_equal(fake.opens, fake.closes);
}

static void reset_fake(bool asynchronous, unsigned delay_us)
{
    fake = (FakeDevice){.asynchronous = asynchronous, .delay_us = delay_us};
}

/* Everything has been given back. */
static void assert_idle(const FtxEngine *e)
{
    assert_false(ftx_engine_busy(e));
    assert_int_equal(e->pages.n, e->pages.all);
    assert_int_equal(e->free_slots, e->slots);
    assert_int_equal(e->unused.n, e->requests);
    for (uint32_t i = 0; i < e->pages.n; i++)
        for (uint32_t k = 0; k < i; k++)
            assert_int_not_equal(e->pages.free[i], e->pages.free[k]);
}

/* So much memory has been touched: a request that comes alone takes the place of the one before it. */
static uint32_t requests_used(const FtxEngine *e)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < e->requests; i++)
        n += e->request[i].id != 0;
    return n;
}

/* --- what must come back ------------------------------------------------------------------------- */

/* Text byte by byte: the first place where a stop string is complete ends it. */
static bool cut_at_stop(const Job *j, char *text, size_t *bytes)
{
    for (size_t end = 1; end <= *bytes; end++) {
        size_t longest = 0;

        for (size_t i = 0; i < j->request.stop_count; i++) {
            const size_t n = strlen(j->stop[i]);

            if (n <= end && memcmp(text + end - n, j->stop[i], n) == 0 && n > longest)
                longest = n;
        }
        if (longest) {
            *bytes = end - longest;
            return true;
        }
    }
    return false;
}

static size_t decode(const int32_t *ids, int n, bool flush, char *text)
{
    TokenizerStream s = {0};
    size_t all = 0, part;

    for (int i = 0; i < n; i++, all += part)
        tokenizer_stream(NULL, &s, ids[i], false, text + all, MAX_TEXT - all, &part, NULL);
    if (flush) {
        tokenizer_stream(NULL, &s, -1, true, text + all, MAX_TEXT - all, &part, NULL);
        all += part;
    }
    return all;
}

static void expect(const Bed *b, Job *j)
{
    const FtxRequest *q = &j->request;
    const FakeSizes *s = &b->sizes;
    int32_t ids[MAX_IDS], ends[FTX_MAX_ENDS + 2];
    int n_ends = 0, n = (int)q->ids_count;
    const int room = (int)s->context - n;
    const int most = q->max_new && q->max_new < room ? q->max_new : room;

    for (uint32_t i = 0; i < s->n_ends && !q->ignore_eos; i++)
        ends[n_ends++] = s->ends[i];
    for (size_t i = 0; i < q->stop_ids_count; i++)
        ends[n_ends++] = q->stop_ids[i];
    memcpy(ids, j->prompt, (size_t)n * sizeof *ids);
    j->n_expected = 0;
    j->expected_finish = FTX_RUNNING;
    while (j->expected_finish == FTX_RUNNING) {
        const int32_t next = fake_next(ids, n, fake_words(q->seed, j->words, j->n_words), s->vocab, ends, n_ends,
                                       (int)q->ids_count + q->min_new);

        ids[n++] = j->expected[j->n_expected++] = next;
        j->expected_finish = j->n_expected == most ? FTX_FINISH_LENGTH : FTX_RUNNING;
        for (int i = 0; i < n_ends; i++)
            if (ends[i] == next)
                j->expected_finish = FTX_FINISH_END;
        if (!s->tokenizer)
            continue;
        j->expected_text_bytes = decode(j->expected, j->n_expected - (j->expected_finish == FTX_FINISH_END),
                                        j->expected_finish != FTX_RUNNING, j->expected_text);
        if (cut_at_stop(j, j->expected_text, &j->expected_text_bytes))
            j->expected_finish = FTX_FINISH_STOP;
    }
}

static void take_event(Job *j, const FtxEvent *e)
{
    assert_false(j->ended);
    assert_ptr_equal(e->user, j);
    if (e->token >= 0)
        j->got[j->n_got++] = e->token;
    memcpy(j->text + j->text_bytes, e->text, e->text_bytes);
    j->text_bytes += e->text_bytes;
    j->finish = e->finish;
    j->ended = e->finish != FTX_RUNNING;
    if (e->token >= 0)
        assert_true(e->logprob == (j->request.logprobs ? -(float)e->token : 0.0f));
}

static void compare(const Job *j)
{
    assert_true(j->ended);
    if (j->cancelled && j->finish == FTX_FINISH_CANCEL) {
        assert_true(j->n_got <= j->n_expected);
    } else {
        assert_int_equal(j->finish, j->expected_finish);
        assert_int_equal(j->n_got, j->n_expected);
        assert_int_equal(j->text_bytes, j->expected_text_bytes);
    }
    assert_memory_equal(j->got, j->expected, (size_t)j->n_got * sizeof *j->got);
    assert_memory_equal(j->text, j->expected_text, j->text_bytes);
}

/* --- running ---------------------------------------------------------------------------------------- */

static void make_job(Job *j, int prompt, uint64_t seed)
{
    memset(j, 0, sizeof *j);
    for (int i = 0; i < prompt; i++)
        j->prompt[i] = (int32_t)((seed * 13 + (uint64_t)i * 7) % 61);
    j->request = (FtxRequest){.ids = j->prompt,
                              .ids_count = (size_t)prompt,
                              .top_p = 1.0f,
                              .repetition_penalty = 1.0f,
                              .seed = seed,
                              .user = j};
}

static void submit(Bed *b, Job *j)
{
    FtxError err;

    assert_int_equal(ftx_engine_submit(b->engine, &j->request, &j->id, &err), FTX_OK);
    j->submitted = true;
}

static size_t step(Bed *b)
{
    FtxEvent ev[64];
    FtxError err = {FTX_OK, ""};
    size_t n;

    assert_string_equal(fake.wrong, "");
    if (ftx_engine_step(b->engine, ev, 64, &n, &err))
        fail_msg("step: %s; %s", err.text, fake.wrong);
    for (size_t i = 0; i < n; i++) {
        for (size_t k = 0; k < i; k++)
            assert_int_not_equal(ev[i].request, ev[k].request);
        take_event(ev[i].user, &ev[i]);
    }
    return n;
}

static void run(Bed *b)
{
    for (int i = 0; ftx_engine_busy(b->engine); i++) {
        assert_true(i < 10000);
        step(b);
    }
}

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
    FtxEvent ev[4];
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

/* --- bad words -------------------------------------------------------------------------------------- */

/* Words of all kinds beside each other, of one id and of several, as ids and as texts; slots are used again. */
static void run_words(bool asynchronous, uint32_t bad_words, const int32_t *of_model, uint32_t n_of_model)
{
    enum { JOBS = 10 };
    static const int32_t ids[] = {3, 4, 5, 7, 7, 7};
    static const size_t lengths[] = {2, 1, 1, 2};
    static const char *const texts[] = {"  ab", "c"};
    static const struct {
        size_t count, texts;
        int32_t words[8];
        int n;
    } cases[] = {
        {0, 0, {0}, 0},
        {4, 0, {3, ~4, ~5, 7, ~7}, 5}, /* an end id alone is not meant */
        {0, 2, {0, ~1, 11, 0, ~1, ~4, 11, ~4}, 8},
        {1, 1, {3, ~4, 0, ~1, 11, 0, ~1}, 7},
    };
    static Job job[JOBS];
    FakeSizes sizes = fake_sizes();
    Bed b;

    reset_fake(asynchronous, asynchronous ? 50 : 0);
    sizes.bad_words = bad_words;
    sizes.words = of_model;
    sizes.n_words = n_of_model;
    open_bed(&b, &sizes);
    for (int i = 0; i < JOBS; i++) {
        const int k = i % 4;
        const int own = n_of_model && cases[k].n + (int)n_of_model <= 8 ? (int)n_of_model : 0;

        make_job(&job[i], 1 + 2 * i, (uint64_t)i);
        if (n_of_model && !own) /* Job.words has no room */
            continue;
        job[i].request.bad_ids = ids;
        job[i].request.bad_lengths = lengths;
        job[i].request.bad_count = cases[k].count;
        job[i].request.bad_words = texts;
        job[i].request.bad_words_count = cases[k].texts;
        memcpy(job[i].words, of_model, (size_t)own * sizeof *of_model);
        memcpy(job[i].words + own, cases[k].words, (size_t)cases[k].n * sizeof *cases[k].words);
        job[i].n_words = own + cases[k].n;
        expect(&b, &job[i]);
        submit(&b, &job[i]);
    }
    run(&b);
    for (int i = 0; i < JOBS; i++)
        if (job[i].submitted)
            compare(&job[i]);
    assert_idle(b.engine);
    close_bed(&b);
}

static void test_bad_words(void **state)
{
    static const int32_t of_model[] = {9, ~9};

    (void)state;
    for (int asynchronous = 0; asynchronous < 2; asynchronous++) {
        run_words(asynchronous, 8, (const int32_t[]){0}, 0);
        run_words(asynchronous, 5000, (const int32_t[]){0}, 0); /* a table too large for a copy on the host */
        run_words(asynchronous, 8, of_model, 2);
    }
}

/* --- what is refused -------------------------------------------------------------------------------- */

static void refused(Bed *b, const FtxRequest *q, FtxStatus status, const char *part)
{
    FtxError err = {FTX_OK, ""};

    assert_int_equal(ftx_engine_submit(b->engine, q, NULL, &err), status);
    if (!strstr(err.text, part))
        fail_msg("expected '%s' in '%s'", part, err.text);
}

static void test_refused(void **state)
{
    const int32_t ids[] = {1, 2, 61}, good[] = {1, 2}, many[] = {1, 2, 3, 4};
    const float values[] = {1.0f, 2.0f, 3.0f}, nan[] = {__builtin_nanf("")};
    const char *empty[] = {"", "x"}, *bad[] = {"\xa9"}, *none[] = {NULL};
    int32_t longest[41] = {0};
    FakeSizes sizes = fake_sizes();
    Bed b;
    FtxRequest q;

    (void)state;
    reset_fake(false, 0);
    open_bed(&b, &sizes);
#define REFUSED(status, part, ...) \
    do { \
        q = ftx_request_default(b.model); \
        q.ids = good; \
        q.ids_count = 2; \
        __VA_ARGS__; \
        refused(&b, &q, status, part); \
    } while (0)
    REFUSED(FTX_EINVAL, "neither text nor ids", q.ids = NULL);
    REFUSED(FTX_EINVAL, "both set", q.text = "a");
    REFUSED(FTX_EINVAL, "empty", q.ids_count = 0);
    REFUSED(FTX_EINVAL, "empty", (q.ids = NULL, q.text = "", q.no_bos = true));
    REFUSED(FTX_EINVAL, "ids[2]: 61 is no token id (0 to 60)", (q.ids = ids, q.ids_count = 3));
    REFUSED(FTX_EFULL, "40 tokens; with one new token that exceeds the context of 40",
            (q.ids = longest, q.ids_count = 40));
    REFUSED(FTX_EFULL, "the prompt has 2 tokens; at most 1 fit", q.max_prompt = 1);
    REFUSED(FTX_EINVAL, "max_prompt: expected 0 to", q.max_prompt = -1);
    REFUSED(FTX_EINVAL, "truncate: a prompt or source loses its start or its end, found 1",
            q.truncate = FTX_TRUNCATE_LONGEST);
    REFUSED(FTX_EINVAL, "temperature", q.temperature = -1.0f);
    REFUSED(FTX_EINVAL, "temperature", q.temperature = nan[0]);
    REFUSED(FTX_EINVAL, "top_p: expected 0 to 1, found 1.5", q.top_p = 1.5f);
    REFUSED(FTX_EINVAL, "min_p", q.min_p = -0.1f);
    REFUSED(FTX_EINVAL, "typical_p", q.typical_p = 1.5f);
    REFUSED(FTX_EINVAL, "repetition_penalty", q.repetition_penalty = 0.0f);
    REFUSED(FTX_EINVAL, "top_k: expected 0 to 10, found 11", q.top_k = 11);
    REFUSED(FTX_EINVAL, "no_repeat_ngram", q.no_repeat_ngram = -1);
    REFUSED(FTX_EINVAL, "max_new", q.max_new = -1);
    REFUSED(FTX_EINVAL, "min_new: expected 0 to 3, found 4", (q.max_new = 3, q.min_new = 4));
    REFUSED(FTX_EINVAL, "bias_count: 3, but the spec's limits.logit_bias is 2",
            (q.bias_ids = many, q.bias_values = values, q.bias_count = 3));
    REFUSED(FTX_EINVAL, "bias_ids[0]", (q.bias_ids = ids + 2, q.bias_values = values, q.bias_count = 1));
    REFUSED(FTX_EINVAL, "bias_values[0]", (q.bias_ids = ids, q.bias_values = nan, q.bias_count = 1));
    REFUSED(FTX_EINVAL, "bad_ids or bad_lengths is NULL", (q.bad_ids = ids, q.bad_count = 1));
    REFUSED(FTX_EINVAL, "bad_ids[2]: 61 is no token id",
            (q.bad_ids = ids, q.bad_lengths = (const size_t[]){1, 2}, q.bad_count = 2));
    REFUSED(FTX_EINVAL, "bad_lengths[1]: expected 1 to 8 ids, the spec's limits.bad_words, found 0",
            (q.bad_ids = ids, q.bad_lengths = (const size_t[]){1, 0}, q.bad_count = 2));
    REFUSED(FTX_EINVAL, "bad_lengths[0]: expected 1 to 8 ids, the spec's limits.bad_words, found 9",
            (q.bad_ids = longest, q.bad_lengths = (const size_t[]){9}, q.bad_count = 1));
    REFUSED(FTX_EINVAL, "bad_lengths[2]: with it there are 9 ids of bad words, but the spec's limits.bad_words is 8",
            (q.bad_ids = longest, q.bad_lengths = (const size_t[]){4, 4, 1}, q.bad_count = 3));
    REFUSED(FTX_EINVAL, "bad_words[1]: expected 1 to 255 bytes of UTF-8",
            (q.bad_words = (const char *const[]){"a", "  "}, q.bad_words_count = 2));
    REFUSED(FTX_EINVAL, "bad_words[0]: expected 1 to 255", (q.bad_words = bad, q.bad_words_count = 1));
    REFUSED(FTX_EINVAL, "bad_words[0]: expected 1 to 255", (q.bad_words = none, q.bad_words_count = 1));
    REFUSED(FTX_EINVAL, "bad_words[0]: expected 1 to 255", q.bad_words_count = 1);
    REFUSED(FTX_EINVAL, "bad_words[0]: with it there are 9 ids of bad words",
            (q.bad_words = (const char *const[]){"abcd"}, q.bad_words_count = 1));
    REFUSED(FTX_EINVAL, "limits.end_ids is 4", (q.stop_ids = many, q.stop_ids_count = 4));
    REFUSED(FTX_EINVAL, "stop_ids[0]", (q.stop_ids = ids + 2, q.stop_ids_count = 1));
    REFUSED(FTX_EINVAL, "stop[0]", (q.stop = empty, q.stop_count = 1));
    REFUSED(FTX_EINVAL, "stop[0]", (q.stop = bad, q.stop_count = 1));
    REFUSED(FTX_EINVAL, "stop[0]", (q.stop = none, q.stop_count = 1));
    REFUSED(FTX_EINVAL, "at most 16", (q.stop = empty, q.stop_count = 17));
    assert_idle(b.engine);
    close_bed(&b);

    sizes.kv_pages = 3; /* 12 tokens */
    sizes.tokenizer = false;
    open_bed(&b, &sizes);
    REFUSED(FTX_EFULL, "need 4 pages of the cache; there are 3", q.max_new = 12);
    REFUSED(FTX_EINVAL, "no tokenizer", (q.ids = NULL, q.text = "a"));
    REFUSED(FTX_EINVAL, "no tokenizer", (q.stop = empty + 1, q.stop_count = 1));
    REFUSED(FTX_EINVAL, "no tokenizer", (q.bad_words = empty + 1, q.bad_words_count = 1));
    close_bed(&b);
#undef REFUSED
}

static void test_text_prompt(void **state)
{
    const int32_t bos[] = {1, 0, 1, 4}, plain[] = {0, 1, 4};
    FakeSizes sizes = fake_sizes();
    Bed b;
    Job j;

    (void)state;
    reset_fake(false, 0);
    open_bed(&b, &sizes);
    for (int no_bos = 0; no_bos < 2; no_bos++) {
        make_job(&j, 0, 5);
        j.request.ids_count = no_bos ? 3 : 4;
        memcpy(j.prompt, no_bos ? plain : bos, j.request.ids_count * sizeof *plain);
        expect(&b, &j);
        j.request.ids = NULL;
        j.request.text = "abc and more";
        j.request.text_bytes = 3;
        j.request.no_bos = no_bos;
        submit(&b, &j);
        run(&b);
        compare(&j);
    }
    close_bed(&b);
}

/* A prompt that is too long, as ids and as text: what is left of it gives the tokens it would give alone. */
static void test_truncated(void **state)
{
    enum { LONG = 3000 };
    static int32_t ids[LONG];
    static char text[LONG + 1];
    static const struct {
        FtxTruncate way;
        int max_prompt, max_new, left; /* tokens of the prompt */
    } cases[] = {{FTX_TRUNCATE_START, 0, 0, 39}, {FTX_TRUNCATE_END, 0, 0, 39}, {FTX_TRUNCATE_START, 0, 7, 33},
                 {FTX_TRUNCATE_END, 0, 40, 1},   {FTX_TRUNCATE_END, 5, 7, 5},  {FTX_TRUNCATE_START, 9, 0, 9},
                 {FTX_TRUNCATE_START, 99, 3, 39}};
    enum { WITH_BOS, PLAIN, LARGE, AS_IDS, FORMS }; /* LARGE: than the tokenizer's memory */
    FakeSizes sizes = fake_sizes();
    Bed b;
    Job j;

    (void)state;
    reset_fake(false, 0);
    open_bed(&b, &sizes);
    for (int i = 0; i < LONG; i++) { /* fake_tokenizer: 0 and 1 */
        text[i] = i % 7 == 3 || i % 31 == 4 ? 'b' : 'a';
        ids[i] = text[i] == 'b';
    }
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int form = cases[i].left > 1 ? WITH_BOS : PLAIN; form < FORMS; form++) {
            const int n = form == LARGE ? LONG : 200, bos = form == WITH_BOS, left = cases[i].left - bos;
            const int from = cases[i].way == FTX_TRUNCATE_START ? n - left : 0;

            make_job(&j, 0, i + 1);
            j.request.truncate = cases[i].way;
            j.request.max_prompt = cases[i].max_prompt;
            j.request.max_new = cases[i].max_new;
            j.prompt[0] = 1; /* BOS */
            memcpy(j.prompt + bos, ids + from, (size_t)left * sizeof *ids);
            j.request.ids_count = (size_t)cases[i].left;
            expect(&b, &j);
            j.request.ids = form == AS_IDS ? ids : NULL;
            j.request.text = form == AS_IDS ? NULL : text;
            *(form == AS_IDS ? &j.request.ids_count : &j.request.text_bytes) = (size_t)n;
            j.request.no_bos = form != WITH_BOS;
            submit(&b, &j);
            run(&b);
            compare(&j);
        }
    assert_idle(b.engine);
    close_bed(&b);
}

/* --- a device that fails -------------------------------------------------------------------------------- */

static void test_device_fails(void **state)
{
    FakeSizes sizes = fake_sizes();

    (void)state;
    sizes.n_ends = 0;
    for (int kind = 0; kind < 4; kind++) {
        Job job[6];
        FtxEvent ev[16];
        FtxError err = {FTX_OK, ""};
        FtxStatus s = FTX_OK;
        size_t n = 0;
        Bed b;

        reset_fake(kind >= 2, 0);
        fake.fail_at = kind == 1 ? 0 : 7;
        fake.lose_results = kind == 1;
        fake.fail_late = kind == 3;
        open_bed(&b, &sizes);
        for (int i = 0; i < 6; i++) {
            make_job(&job[i], 3, (uint64_t)i);
            submit(&b, &job[i]);
        }
        while (!s && ftx_engine_busy(b.engine))
            s = ftx_engine_step(b.engine, ev, 16, &n, &err);
        assert_int_equal(s, FTX_EDEVICE);
        assert_non_null(strstr(err.text, kind == 1 ? "no result" : "has failed"));
        assert_int_equal(n, 6);
        for (int i = 0; i < 6; i++)
            assert_int_equal(ev[i].finish, FTX_FINISH_ERROR);
        assert_false(ftx_engine_busy(b.engine));
        assert_int_equal(ftx_engine_step(b.engine, ev, 16, &n, &err), FTX_EDEVICE);
        assert_int_equal(ftx_engine_submit(b.engine, &job[0].request, NULL, &err), FTX_EDEVICE);
        close_bed(&b);
    }
}

/* --- bench ------------------------------------------------------------------------------------------------ */

static void test_bench(void **state)
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
        assert_int_equal(ftx_engine_bench(b.engine, 3, 1, 30, 25, &median, &least, &most, &err), FTX_OK);
        assert_true(least <= median && median <= most && least >= 100.0);
        assert_int_equal(fake.decode_runs, 26);
        assert_int_equal(ftx_engine_bench(b.engine, 1, 39, 0, 5, &median, &least, &most, &err), FTX_OK);
        assert_true(least >= 200.0); /* two chunks */
        assert_int_equal(ftx_engine_bench(b.engine, 4, 1, 39, 5, &median, &least, &most, &err), FTX_OK);
        assert_int_equal(ftx_engine_bench(b.engine, 4, 1, 40, 5, &median, &least, &most, &err), FTX_EINVAL);
        assert_int_equal(ftx_engine_bench(b.engine, 5, 1, 4, 5, &median, &least, &most, &err), FTX_EINVAL);
        assert_idle(b.engine);
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

    const FakeSizes sizes = random_sizes();

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
            FtxEvent ev[64];
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_alone),
        cmocka_unit_test(test_alone_asynchronous),
        cmocka_unit_test(test_run_ahead),
        cmocka_unit_test(test_chunks_beside_decode),
        cmocka_unit_test(test_finishes),
        cmocka_unit_test(test_stop_strings),
        cmocka_unit_test(test_cancel),
        cmocka_unit_test(test_many_cancelled),
        cmocka_unit_test(test_logits),
        cmocka_unit_test(test_bad_words),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_text_prompt),
        cmocka_unit_test(test_truncated),
        cmocka_unit_test(test_device_fails),
        cmocka_unit_test(test_samples),
        cmocka_unit_test(test_bench),
        cmocka_unit_test_teardown(test_random, name_seed),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
