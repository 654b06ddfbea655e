/* test_states.c - FtxRequest.states on the fake device: each state comes once and is that of its token, whatever runs beside
 * the request, however its prompt is cut, over hits of the prefix cache and preemptions. */
#include "jobs.h"

enum { WIDTH = 3 };

typedef struct Want { /* a request and the states that have come */
    Job job;
    float got[MAX_IDS][WIDTH];
    size_t rows;
    uint64_t cached;
} Want;

static void open_states(Bed *b, uint32_t pages, bool asynchronous, bool prefix, bool overcommit)
{
    FtxOptions options = FTX_OPTIONS_INIT;
    FtxError err = {FTX_OK, ""};

    reset_fake(asynchronous, asynchronous ? 20 : 0);
    b->sizes = fake_sizes();
    b->sizes.context = 200;
    b->sizes.kv_pages = pages;
    b->sizes.n_ends = 0;
    b->sizes.states = WIDTH;
    fake_artifact(&b->artifact, &b->sizes);
    assert_int_equal(fake_model(&b->artifact, NULL, &b->model, &err), FTX_OK);
    options.prefix_cache = prefix;
    options.overcommit = overcommit;
    assert_int_equal(ftx_engine_open(b->model, &options, &b->engine, &err), FTX_OK);
}

static void make_want(const Bed *b, Want *w, int prompt, int most, uint64_t seed, FtxStates states)
{
    memset(w, 0, sizeof *w);
    make_job(&w->job, prompt, seed);
    w->job.request.max_new = most;
    w->job.request.states = states;
    w->job.request.user = w;
    expect(b, &w->job);
}

static void take_want(const FtxEvent *e)
{
    Want *w = e->user;
    Job *j = &w->job;

    assert_false(j->ended);
    if (e->states_count) {
        assert_non_null(e->states);
        if (j->request.states == FTX_STATES_TOKENS)
            assert_int_equal(e->states_first, w->rows);
        if (j->request.states == FTX_STATES_LAST)
            assert_int_equal(e->states_first, j->request.ids_count - 1);
        if (j->request.states != FTX_STATES_TOKENS)
            assert_true(e->token >= 0 && j->n_got == 0 && e->states_count == 1);
        memcpy(w->got[w->rows], e->states, e->states_count * sizeof *w->got);
        w->rows += e->states_count;
    }
    if (e->token >= 0)
        j->got[j->n_got++] = e->token;
    if (e->token >= 0 && j->request.states == FTX_STATES_TOKENS) /* that of the token before */
        assert_int_equal(w->rows, j->request.ids_count + (size_t)j->n_got - 1);
    memcpy(j->text + j->text_bytes, e->text, e->text_bytes);
    j->text_bytes += e->text_bytes;
    j->finish = e->finish;
    j->ended = e->finish != FTX_RUNNING;
    w->cached = e->cached_tokens;
}

static void run_wants(Bed *b)
{
    FtxEvent ev[64] = {FTX_EVENT_INIT};
    FtxError err = {FTX_OK, ""};
    size_t n;

    while (ftx_engine_busy(b->engine)) {
        if (ftx_engine_step(b->engine, ev, 64, &n, &err))
            fail_msg("step: %s; %s", err.text, fake.wrong);
        for (size_t i = 0; i < n; i++)
            take_want(&ev[i]);
        assert_string_equal(fake.wrong, "");
    }
}

static void compare_want(const Want *w)
{
    const FtxStates states = (FtxStates)w->job.request.states;
    const size_t prompt = w->job.request.ids_count, fed = prompt + (size_t)w->job.n_got - 1;
    const size_t rows = states == FTX_STATES_NONE ? 0 : states == FTX_STATES_TOKENS ? fed : 1;
    int32_t ids[MAX_IDS];

    compare(&w->job);
    memcpy(ids, w->job.prompt, prompt * sizeof *ids);
    memcpy(ids + prompt, w->job.got, (size_t)w->job.n_got * sizeof *ids);
    assert_int_equal(w->rows, rows);
    for (uint32_t c = 0; c < WIDTH; c++) {
        float sum = 0.0f;

        for (size_t i = 0; i < prompt; i++)
            sum += fake_state(ids, (int)i + 1, c);
        for (size_t i = 0; i < fed && states == FTX_STATES_TOKENS; i++)
            assert_true(w->got[i][c] == fake_state(ids, (int)i + 1, c));
        if (states == FTX_STATES_LAST)
            assert_true(w->got[0][c] == fake_state(ids, (int)prompt, c));
        if (states == FTX_STATES_MEAN)
            assert_true(w->got[0][c] == sum / (float)prompt);
    }
}

/* Prompts of one token, of one step and of several; requests of each kind side by side. */
static void test_kinds(void **state)
{
    static const int prompts[] = {1, 7, 45, 20, 33, 2, 90, 4};
    static Want want[16];

    (void)state;
    for (int turn = 0; turn < 4; turn++) {
        Bed b;

        open_states(&b, 200, turn & 1, turn & 2, false);
        assert_int_equal(b.model->artifact.facts->states, WIDTH);
        for (int i = 0; i < 16; i++) {
            make_want(&b, &want[i], prompts[i % 8], 1 + i * 5 % 14, (uint64_t)i, (FtxStates)((i + i / 4) % 4));
            submit(&b, &want[i].job);
        }
        run_wants(&b);
        for (int i = 0; i < 16; i++)
            compare_want(&want[i]);
        if (!b.engine->pages.prefix)
            assert_idle(b.engine);
        close_bed(&b);
    }
}

/* Who asks for the prompt's last token or for nothing takes pages of others over, who asks for all tokens computes them. */
static void test_prefix(void **state)
{
    static Want want[8];

    (void)state;
    for (int asynchronous = 0; asynchronous < 2; asynchronous++) {
        Bed b;

        open_states(&b, 200, asynchronous, true, false);
        for (int i = 0; i < 8; i++) {
            make_want(&b, &want[i], 40, 6, 5, (FtxStates)(i % 4));
            submit(&b, &want[i].job);
            run_wants(&b);
            compare_want(&want[i]);
            assert_int_equal(want[i].cached, i == 0 || i % 4 >= FTX_STATES_MEAN ? 0 : 36);
        }
        close_bed(&b);
    }
}

/* Preempted requests read their tokens again; no state comes twice, none is lost. */
static void test_preempted(void **state)
{
    static Want want[6];

    (void)state;
    for (int turn = 0; turn < 16; turn++) {
        uint64_t preempted;
        Bed b;

        open_states(&b, 60, turn & 1, turn & 2, true);
        b.engine->share = b.engine->used = 0.0f;
        for (int i = 0; i < 6; i++) {
            make_want(&b, &want[i], 7 + 8 * i, 110, (uint64_t)i,
                      turn & 4 ? (FtxStates)(1 + (i + turn / 8) % 3) : FTX_STATES_TOKENS);
            submit(&b, &want[i].job);
        }
        run_wants(&b);
        preempted = ftx_engine_stats(b.engine).preemptions;
        for (int i = 0; i < 6; i++)
            compare_want(&want[i]);
        assert_true(preempted > 0);
        close_bed(&b);
    }
}

/* Without states in the artifact, or asked for by a request that cannot have them. */
static void test_refusals(void **state)
{
    const struct {
        FtxStates states;
        int samples;
        bool compiled, prompt;
        const char *why;
    } rows[] = {
        {FTX_STATES_LAST, 1, false, false,
         "states: this artifact was compiled without them; compile it again with -D states=true"},
        {(FtxStates)4, 1, true, false, "states: expected none, last, mean or tokens (FtxStates), found 4"},
        {FTX_STATES_MEAN, 2, true, false, "states: not with beams, several samples or prompt_logprobs"},
        {FTX_STATES_TOKENS, 1, true, true, "states: not with beams, several samples or prompt_logprobs"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        FtxError err = {FTX_OK, ""};
        Job j;
        Bed b;

        open_states(&b, 60, false, false, false);
        b.artifact.facts.states = rows[i].compiled ? WIDTH : 0;
        make_job(&j, 5, 1);
        j.request.states = rows[i].states;
        j.request.samples = rows[i].samples;
        j.request.temperature = rows[i].samples > 1 ? 1.0f : 0.0f;
        j.request.prompt_logprobs = rows[i].prompt;
        assert_int_equal(ftx_engine_submit(b.engine, &j.request, NULL, &err), FTX_EINVAL);
        assert_string_equal(err.text, rows[i].why);
        assert_idle(b.engine);
        close_bed(&b);
    }
}

/* A request without states costs no copy, and steps run ahead of the host as ever. */
static void test_costs_nothing(void **state)
{
    Want want;
    Bed b;

    (void)state;
    for (int states = 0; states < 4; states++) {
        open_states(&b, 200, true, false, false);
        make_want(&b, &want, 5, 60, 3, (FtxStates)states);
        submit(&b, &want.job);
        run_wants(&b);
        compare_want(&want);
        assert_int_equal(fake.most_ahead > 1, states != FTX_STATES_TOKENS);
        close_bed(&b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_kinds),    cmocka_unit_test(test_prefix),        cmocka_unit_test(test_preempted),
        cmocka_unit_test(test_refusals), cmocka_unit_test(test_costs_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
