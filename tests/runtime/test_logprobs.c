/* test_logprobs.c - log-probabilities and masks of requests on the fake device: likeliest tokens, those of a prompt, tokens
 * that the host chooses, more biases than were compiled. */
#include "jobs.h"

#include <math.h>

#include "runtime/engine/logprobs.h"

typedef struct Told { /* what the events of a request have told */
    FtxTop top[MAX_IDS][20];
    float logprob[MAX_IDS];
    int32_t token[MAX_IDS];
    size_t tokens, top_count;
    FtxTop prompt_top[MAX_IDS][20];
    float prompt[MAX_IDS];
    size_t prompt_tokens; /* that were told, from the second on */
    FtxFinish finish;
} Told;

static void take_told(Told *t, const FtxEvent *e)
{
    assert_int_equal(t->finish, FTX_RUNNING);
    if (e->prompt_count) {
        assert_int_equal(e->token, -1);
        assert_int_equal(e->prompt_first, t->prompt_tokens + 1);
        assert_int_equal(t->tokens, 0);
        for (size_t i = 0; i < e->prompt_count; i++) {
            memcpy(t->prompt_top[t->prompt_tokens], e->prompt_top + i * 20, e->top_count * sizeof *e->top);
            t->prompt[t->prompt_tokens++] = e->prompt_logprobs[i];
        }
    } else if (e->token >= 0) {
        if (e->top_count)
            memcpy(t->top[t->tokens], e->top, e->top_count * sizeof *e->top);
        t->logprob[t->tokens] = e->logprob;
        t->top_count = e->top_count;
        t->token[t->tokens++] = e->token;
    }
    t->finish = e->finish;
}

/* Runs all requests, whose `user` is a Told. */
static void run_told(Bed *b)
{
    while (ftx_engine_busy(b->engine)) {
        FtxEvent ev[64] = {FTX_EVENT_INIT};
        FtxError err = {FTX_OK, ""};
        size_t n;

        if (ftx_engine_step(b->engine, ev, 64, &n, &err))
            fail_msg("step: %s; %s", err.text, fake.wrong);
        assert_string_equal(fake.wrong, "");
        for (size_t i = 0; i < n; i++) {
            for (size_t k = 0; k < i; k++)
                assert_true(ev[i].user != ev[k].user); /* one event of each */
            take_told(ev[i].user, &ev[i]);
        }
    }
    assert_int_equal(b->engine->pages.n, b->engine->pages.all);
    assert_int_equal(b->engine->free_slots, b->engine->slots);
    assert_int_equal(b->engine->unused.n, b->engine->requests);
}

static double logprob_of(const int32_t *ids, int n, uint32_t vocab, int32_t next)
{
    double sum = 0, at = 0;

    for (uint32_t v = 0; v < vocab; v++) {
        const double logit = (double)fake_logit(ids, n, v);

        sum += exp(logit);
        at = (int32_t)v == next ? logit : at;
    }
    return at - log(sum);
}

/* The id below `vocab` with the greatest logit of those in bits[]. */
static int32_t best_of(const int32_t *ids, int n, const bool *bits, int32_t vocab)
{
    int32_t best = -1;

    for (int32_t v = 0; v < vocab; v++)
        if (bits[v] && (best < 0 || fake_logit(ids, n, (uint32_t)v) > fake_logit(ids, n, (uint32_t)best)))
            best = v;
    return best;
}

static void check_top(const FtxTop *top, int n, const int32_t *ids, int length)
{
    bool left[61];

    memset(left, 1, sizeof left);
    for (int i = 0; i < n; i++) {
        const int32_t best = best_of(ids, length, left, 61);

        left[best] = false;
        assert_int_equal(top[i].id, best);
        assert_true(fabs((double)top[i].logprob - logprob_of(ids, length, 61, best)) < 1e-4);
    }
}

static void test_largest(void **state)
{
    static const float logits[9] = {1, 5, 5, -INFINITY, 7, 2, 7, 3, 0};
    static const int32_t want[9] = {4, 6, 1, 2, 7, 5, 0, 8, 3};
    double sum = 0;
    FtxTop top[9];

    (void)state;
    for (int i = 0; i < 9; i++)
        sum += exp((double)logits[i] - 7.0);
    for (int n = 0; n <= 9; n++) {
        assert_true(fabs((double)logprobs_at(logits, 9, 7.0 + log(sum), 7, top, n) - (3.0 - 7.0 - log(sum))) < 1e-6);
        for (int i = 0; i < n; i++) {
            assert_int_equal(top[i].id, want[i]);
            if (i < 8)
                assert_true(fabs((double)top[i].logprob - ((double)logits[want[i]] - 7.0 - log(sum))) < 1e-6);
        }
    }
    assert_true(isinf(top[8].logprob));
}

/* Likeliest tokens and those of prompts, beside requests that ask for neither; tokens are those of the request alone. */
static void told(bool asynchronous, bool prefix)
{
    enum { JOBS = 9 };
    static Told told_of[JOBS];
    FtxOptions options = FTX_OPTIONS_INIT;
    const FakeSizes sizes = fake_sizes();
    FtxError err;
    Job job[JOBS];
    Bed b;

    reset_fake(asynchronous, asynchronous ? 20 : 0);
    memset(told_of, 0, sizeof told_of);
    b.sizes = sizes;
    fake_artifact(&b.artifact, &sizes);
    assert_int_equal(fake_model(&b.artifact, NULL, &b.model, &err), FTX_OK);
    options.prefix_cache = prefix;
    options.overcommit = prefix;
    assert_int_equal(ftx_engine_open(b.model, &options, &b.engine, &err), FTX_OK);
    for (int i = 0; i < JOBS; i++) {
        make_job(&job[i], i == 8 ? 1 : 4 + 3 * i, 5 + (uint64_t)(i % 2)); /* some begin alike */
        job[i].request.max_new = 7;
        expect(&b, &job[i]);
        job[i].request.user = &told_of[i];
        job[i].request.logprobs = i != 5;
        job[i].request.top_logprobs = i % 3 == 0 ? 0 : i == 1 ? 20 : i;
        job[i].request.prompt_logprobs = i % 2 == 0;
        submit(&b, &job[i]);
    }
    run_told(&b);
    for (int i = 0; i < JOBS; i++) {
        const Job *j = &job[i];
        const Told *t = &told_of[i];
        const int n = (int)j->request.ids_count, top = j->request.top_logprobs;
        int32_t ids[MAX_IDS];

        memcpy(ids, j->prompt, (size_t)n * sizeof *ids);
        memcpy(ids + n, j->expected, (size_t)j->n_expected * sizeof *ids);
        assert_int_equal(t->finish, j->expected_finish);
        assert_int_equal(t->tokens, j->n_expected);
        assert_memory_equal(t->token, j->expected, t->tokens * sizeof *t->token);
        assert_int_equal(t->top_count, top);
        for (int k = 0; k < (int)t->tokens; k++) {
            check_top(t->top[k], top, ids, n + k);
            if (i == 5)
                assert_true(t->logprob[k] == 0.0f);
            else if (top)
                assert_true(fabs((double)t->logprob[k] - logprob_of(ids, n + k, 61, ids[n + k])) < 1e-4);
        }
        assert_int_equal(t->prompt_tokens, j->request.prompt_logprobs ? n - 1 : 0);
        for (int k = 0; k < (int)t->prompt_tokens; k++) {
            check_top(t->prompt_top[k], top, ids, k + 1);
            assert_true(fabs((double)t->prompt[k] - logprob_of(ids, k + 1, 61, ids[k + 1])) < 1e-4);
        }
    }
    close_bed(&b);
}

static void test_told(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++)
        told(i & 1, i & 2);
}

/* Samples of one prompt: its log-probabilities are told once. */
static void test_samples(void **state)
{
    static Told t;
    const FakeSizes sizes = fake_sizes();
    size_t prompt = 0, ends = 0;
    Job j;
    Bed b;

    (void)state;
    reset_fake(true, 20);
    memset(&t, 0, sizeof t);
    open_bed(&b, &sizes);
    make_job(&j, 19, 4);
    j.request.max_new = 5;
    j.request.samples = 3;
    j.request.temperature = 1.0f;
    j.request.prompt_logprobs = 1;
    submit(&b, &j);
    while (ftx_engine_busy(b.engine)) {
        FtxEvent ev[64] = {FTX_EVENT_INIT};
        FtxError err;
        size_t n;

        assert_int_equal(ftx_engine_step(b.engine, ev, 64, &n, &err), FTX_OK);
        assert_string_equal(fake.wrong, "");
        for (size_t i = 0; i < n; i++) {
            prompt += ev[i].prompt_count;
            assert_true(!ev[i].prompt_count || ev[i].sample == 0);
            assert_true(ev[i].prompt_count || prompt == 18); /* new tokens come after it, those of all samples */
            ends += ev[i].finish != FTX_RUNNING;
        }
    }
    assert_int_equal(prompt, 18);
    assert_int_equal(ends, 3);
    close_bed(&b);
}

/* Another that decodes does not keep a prompt from its turn: a part of it has each step. late: it comes when others are
 * enqueued already. */
static void turns(bool late)
{
    static Told t[2];
    FakeSizes sizes = fake_sizes();
    Job job[2];
    Bed b;

    sizes.n_ends = 0;
    memset(t, 0, sizeof t);
    reset_fake(true, 20);
    open_bed(&b, &sizes);
    for (int i = 0; i < 2; i++) {
        make_job(&job[i], i ? 19 : 2, 4);
        job[i].request.max_new = i ? 1 : 35;
        job[i].request.prompt_logprobs = i;
        job[i].request.user = &t[i];
    }
    submit(&b, &job[0]);
    for (int submitted = 1; !t[1].finish;) {
        FtxEvent ev[64] = {FTX_EVENT_INIT};
        FtxError err;
        size_t n;

        if (submitted == 1 && (!late || t[0].tokens)) {
            submit(&b, &job[1]);
            submitted = 2;
        }
        assert_int_equal(ftx_engine_step(b.engine, ev, 64, &n, &err), FTX_OK);
        for (size_t i = 0; i < n; i++)
            take_told(ev[i].user, &ev[i]);
    }
    assert_int_equal(t[1].prompt_tokens, 18);
    /* 18 tokens, four at a time, and one step for the new one; behind the first and the six that are enqueued */
    assert_in_range(t[0].tokens, 5, late ? 15 : 8);
    run_told(&b);
    close_bed(&b);
}

static void test_turns(void **state)
{
    (void)state;
    turns(false);
    turns(true);
}

/* --- masks ------------------------------------------------------------------------------------------------- */

typedef struct Rule { /* a grammar: new token k must be one of 3k, 3k + 1 and 3k + 2 */
    size_t calls, stop_at, none_at;
    int32_t ids[MAX_IDS];
} Rule;

static bool allow(void *user, int sample, const int32_t *ids, size_t count, uint32_t *bits)
{
    Rule *r = user;

    assert_int_equal(sample, 0);
    assert_int_equal(count, r->calls++); /* once for each token */
    if (count)
        r->ids[count - 1] = ids[count - 1];
    assert_memory_equal(ids, r->ids, count * sizeof *ids);
    for (size_t i = 0; i < 2; i++)
        assert_int_equal(bits[i], 0);
    for (size_t id = 3 * count; id < 3 * count + 3 && count != r->none_at; id++)
        bits[id / 32] |= 1u << id % 32;
    return count != r->stop_at;
}

/* The largest allowed logit wins; the text ends where the rule says so; what runs beside does not notice. */
static void test_mask(void **state)
{
    FakeSizes sizes = fake_sizes();

    (void)state;
    sizes.n_ends = 0;
    for (int i = 0; i < 8; i++) {
        Rule rule = {.stop_at = i & 2 ? 5 : 100, .none_at = i & 4 ? 5 : 100};
        static Told t, beside;
        const size_t want = i & 6 ? 5 : 9;
        Job job[2];
        Bed b;

        memset(&t, 0, sizeof t);
        memset(&beside, 0, sizeof beside);
        reset_fake(i & 1, i & 1 ? 20 : 0);
        open_bed(&b, &sizes);
        for (int k = 0; k < 2; k++) {
            make_job(&job[k], 4 + k, (uint64_t)k);
            job[k].request.max_new = 9 + 10 * k;
            expect(&b, &job[k]);
            job[k].request.user = k ? &beside : &t;
        }
        job[0].request.mask = allow;
        job[0].request.mask_user = &rule;
        job[0].request.logprobs = true;
        for (int k = 0; k < 2; k++)
            submit(&b, &job[k]);
        run_told(&b);
        assert_int_equal(t.tokens, want);
        assert_int_equal(t.finish, i & 6 ? FTX_FINISH_STOP : FTX_FINISH_LENGTH);
        for (size_t k = 0; k < t.tokens; k++) {
            int32_t ids[MAX_IDS];
            bool allowed[61];

            memcpy(ids, job[0].prompt, 4 * sizeof *ids);
            memcpy(ids + 4, t.token, k * sizeof *ids);
            for (size_t v = 0; v < 61; v++)
                allowed[v] = v / 3 == k;
            assert_int_equal(t.token[k], best_of(ids, 4 + (int)k, allowed, 61));
            assert_true(fabs((double)t.logprob[k] - logprob_of(ids, 4 + (int)k, 61, t.token[k])) < 1e-4);
        }
        assert_int_equal(beside.tokens, job[1].n_expected);
        assert_memory_equal(beside.token, job[1].expected, beside.tokens * sizeof *beside.token);
        close_bed(&b);
    }
}

/* Rows whose tokens the host chooses, with one between them whose the device chooses: each has its own mask. */
static bool allow_own(void *user, int sample, const int32_t *ids, size_t count, uint32_t *bits)
{
    const size_t from = *(size_t *)user + 3 * count, many = *(size_t *)user == 5 ? 1 : 3;

    (void)sample, (void)ids;
    for (size_t id = from; id < from + many; id++)
        bits[id / 32] |= 1u << id % 32;
    return true;
}

static void test_together(void **state)
{
    enum { N = 3, NEW = 8 };
    FakeSizes sizes = fake_sizes();

    (void)state;
    sizes.n_ends = 0;
    for (int i = 0; i < 4; i++) {
        static Told told[N];
        size_t first[N] = {0, 30, i & 2 ? 5 : 20}; /* 5: one id alone */
        Job job[N];
        Bed b;

        memset(told, 0, sizeof told);
        reset_fake(i & 1, i & 1 ? 20 : 0);
        open_bed(&b, &sizes);
        for (int k = 0; k < N; k++) {
            make_job(&job[k], 4 + k, (uint64_t)k);
            job[k].request.max_new = NEW;
            expect(&b, &job[k]);
            job[k].request.user = &told[k];
            job[k].request.logprobs = true;
            job[k].request.mask = k == 1 ? NULL : allow_own;
            job[k].request.mask_user = &first[k];
            submit(&b, &job[k]);
        }
        run_told(&b);
        assert_int_equal(told[1].tokens, job[1].n_expected);
        assert_memory_equal(told[1].token, job[1].expected, told[1].tokens * sizeof *told[1].token);
        for (int k = 0; k < N; k += 2)
            for (size_t at = 0; at < NEW; at++) {
                int32_t ids[MAX_IDS];
                bool allowed[61];

                assert_int_equal(told[k].tokens, NEW);
                memcpy(ids, job[k].prompt, (size_t)(4 + k) * sizeof *ids);
                memcpy(ids + 4 + k, told[k].token, at * sizeof *ids);
                for (size_t v = 0; v < 61; v++)
                    allowed[v] = v >= first[k] + 3 * at && v < first[k] + 3 * at + (first[k] == 5 ? 1 : 3);
                assert_int_equal(told[k].token[at], best_of(ids, 4 + k + (int)at, allowed, 61));
                assert_true(
                    fabs((double)told[k].logprob[at] - logprob_of(ids, 4 + k + (int)at, 61, told[k].token[at])) < 1e-4);
            }
        close_bed(&b);
    }
}

/* Where a mask leaves one id and nobody asks for its log-probability, no logits are read. */
static void test_unread(void **state)
{
    FakeSizes sizes = fake_sizes();

    (void)state;
    sizes.n_ends = 0;
    for (int logprobs = 0; logprobs < 2; logprobs++) {
        static Told t;
        size_t first = 5;
        Job j;
        Bed b;

        memset(&t, 0, sizeof t);
        reset_fake(false, 0);
        open_bed(&b, &sizes);
        make_job(&j, 4, 1);
        j.request.max_new = 4;
        j.request.logprobs = logprobs;
        j.request.mask = allow_own;
        j.request.mask_user = &first;
        j.request.user = &t;
        submit(&b, &j);
        run_told(&b);
        assert_int_equal(t.tokens, 4);
        for (int32_t k = 0; k < 4; k++)
            assert_int_equal(t.token[k], 5 + 3 * k);
        assert_int_equal(fake.reads, logprobs ? 4 : 0);
        close_bed(&b);
    }
}

/* All that is allowed is an end, which may not come yet. */
static bool allow_end(void *user, int sample, const int32_t *ids, size_t count, uint32_t *bits)
{
    (void)user, (void)sample, (void)ids;
    bits[0] = count < 3 ? 1u << 9 : 1u << 7;
    return true;
}

static void test_banned(void **state)
{
    const FakeSizes sizes = fake_sizes(); /* 7 is the end */

    (void)state;
    for (int early = 0; early < 2; early++) {
        static Told t;
        Job j;
        Bed b;

        memset(&t, 0, sizeof t);
        reset_fake(false, 0);
        open_bed(&b, &sizes);
        make_job(&j, 4, 1);
        j.request.max_new = 20;
        j.request.min_new = early ? 10 : 3;
        j.request.mask = allow_end;
        j.request.user = &t;
        submit(&b, &j);
        run_told(&b);
        assert_int_equal(t.finish, early ? FTX_FINISH_STOP : FTX_FINISH_END);
        assert_int_equal(t.tokens, early ? 3 : 4);
        close_bed(&b);
    }
}

/* Of 20, which stands in the prompt, and 10: only new tokens are penalised. */
static bool allow_two(void *user, int sample, const int32_t *ids, size_t count, uint32_t *bits)
{
    (void)user, (void)sample, (void)ids, (void)count;
    bits[0] = 1u << 10 | 1u << 20;
    return true;
}

static void test_penalty(void **state)
{
    FakeSizes sizes = fake_sizes();
    static Told t;
    Job j;
    Bed b;

    (void)state;
    sizes.n_ends = 0;
    for (int first = 0; first < 2; first++) {
        const int32_t penalised = first ? 10 : 20;
        const bool both[61] = {[10] = true, [20] = true};

        memset(&t, 0, sizeof t);
        reset_fake(false, 0);
        open_bed(&b, &sizes);
        make_job(&j, 4, 1);
        j.prompt[2] = penalised;
        j.request.max_new = 2;
        j.request.presence_penalty = 100.0f;
        j.request.mask = allow_two;
        j.request.user = &t;
        submit(&b, &j);
        run_told(&b);
        assert_int_equal(t.token[0], best_of(j.prompt, 4, both, 61));
        assert_int_equal(t.token[1], 30 - t.token[0]);
        close_bed(&b);
    }
}

/* 300 biases where two are compiled: the host applies them. */
static void test_biases(void **state)
{
    FakeSizes sizes = fake_sizes();
    int32_t ids[301];
    float values[301];
    static Told t;
    FtxError err;
    Job j;
    Bed b;

    (void)state;
    sizes.n_ends = 0;
    memset(&t, 0, sizeof t);
    reset_fake(true, 20);
    open_bed(&b, &sizes);
    for (int i = 0; i < 301; i++) {
        ids[i] = i % 61;
        values[i] = i == 17 ? 100.0f : -1.0f;
    }
    make_job(&j, 4, 1);
    j.request.max_new = 6;
    j.request.bias_ids = ids;
    j.request.bias_values = values;
    j.request.bias_count = 300;
    j.request.user = &t;
    submit(&b, &j);
    run_told(&b);
    assert_int_equal(t.tokens, 6);
    for (int i = 0; i < 6; i++)
        assert_int_equal(t.token[i], 17);
    j.request.bias_count = 301;
    assert_int_equal(ftx_engine_submit(b.engine, &j.request, NULL, &err), FTX_EINVAL);
    assert_string_equal(err.text, "bias_count: expected at most 300, found 301");
    close_bed(&b);
}

static void test_refused(void **state)
{
    const FakeSizes sizes = fake_sizes();
    FtxError err;
    Job j;
    Bed b;

    (void)state;
    reset_fake(false, 0);
    open_bed(&b, &sizes);
    make_job(&j, 4, 1);
    j.request.top_logprobs = 21;
    assert_int_equal(ftx_engine_submit(b.engine, &j.request, NULL, &err), FTX_EINVAL);
    assert_string_equal(err.text, "top_logprobs: expected 0 to 20, found 21");
    j.request.top_logprobs = 0;
    j.request.prompt_logprobs = 2;
    assert_int_equal(ftx_engine_submit(b.engine, &j.request, NULL, &err), FTX_EINVAL);
    assert_string_equal(err.text, "prompt_logprobs: expected 0 to 1, found 2");
    close_bed(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_largest),  cmocka_unit_test(test_told),    cmocka_unit_test(test_samples),
        cmocka_unit_test(test_turns),    cmocka_unit_test(test_mask),    cmocka_unit_test(test_banned),
        cmocka_unit_test(test_together), cmocka_unit_test(test_unread),  cmocka_unit_test(test_penalty),
        cmocka_unit_test(test_biases),   cmocka_unit_test(test_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
