/* test_soak.c - ten thousand requests of random kinds on the fake device (FTX_TEST_REQUESTS: so many): after each step every
 * page, slot and request is in one place, nothing is allocated, each text ends exactly once, and it is what the request
 * alone has. So are those of a model with recurrent states, with few snapshots. */
#include "jobs.h"

enum { SLOTS = 24, SAMPLES = 3, WAVE = 40, STATES = 2, SWAP_PAGES = 30, PAGE_BYTES = 64, SNAPSHOTS = 6 };

typedef struct Slot { /* a request that is under way, and the texts of its samples */
    Job job[SAMPLES];
    uint64_t id;
    int samples, ended; /* samples 0: the slot is free */
    size_t states;      /* rows that have come */
    bool masked, timed, cancelled;
} Slot;

static uint64_t dice_state;
static Slot slot[SLOTS];
static uint64_t finishes[FTX_FINISH_NAN + 1];

static unsigned dice(unsigned sides)
{
    dice_state = dice_state * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)(dice_state >> 33) % sides;
}

/* --- memory: allocations are counted ------------------------------------------------------------------------ */

static int allocations;

static void *take(void *user, size_t bytes, size_t align)
{
    (void)user;
    allocations++;
    return aligned_alloc(align, (bytes + align - 1) / align * align);
}

static void give(void *user, void *p, size_t bytes)
{
    (void)user, (void)bytes;
    free(p);
}

static void open_soak(Bed *b, bool asynchronous, bool recurrent)
{
    static const FtxAllocator counting = {.alloc = take, .release = give};
    FtxOptions options = FTX_OPTIONS_INIT;
    FtxError err = {FTX_OK, ""};

    reset_fake(asynchronous, 0);
    b->sizes = fake_sizes();
    b->sizes.context = 160;
    b->sizes.sequences = 6;
    b->sizes.kv_pages = 40;
    b->sizes.n_ends = 3;
    b->sizes.masks = asynchronous;
    b->sizes.states = STATES;
    b->sizes.ends[1] = 23;
    b->sizes.ends[2] = 42;
    options.allocator = &counting;
    options.prefix_cache = options.overcommit = 1;
    options.queue_requests = 12;
    options.swap_bytes = recurrent ? 0 : SWAP_PAGES * PAGE_BYTES;
    b->sizes.snapshots = recurrent ? SNAPSHOTS : 0;
    fake_artifact(&b->artifact, &b->sizes);
    assert_int_equal(fake_model(&b->artifact, NULL, &b->model, &err), FTX_OK);
    assert_int_equal(ftx_engine_open(b->model, &options, &b->engine, &err), FTX_OK);
}

/* --- requests ------------------------------------------------------------------------------------------------- */

static bool allow(void *user, int sample, const int32_t *ids, size_t count, uint32_t *bits)
{
    (void)user, (void)ids;
    for (size_t id = (count + (size_t)sample) % 3; id < 61; id += 3)
        bits[id / 32] |= 1u << id % 32;
    return count < 9;
}

/* Waves of requests that may become long and mostly end early, then of others that go on to their end: what the engine has
 * learned of the first kind is wrong for the second, so some of these are preempted. */
static void make_long(FtxRequest *q, bool to_the_end)
{
    q->max_new = 90 + (int)dice(30);
    q->min_new = 0;
    q->ignore_eos = to_the_end;
    if (to_the_end)
        q->stop_count = q->stop_ids_count = 0;
}

static void make_any(const Bed *b, Slot *s, int wave)
{
    static const char *const stops[] = {"ab", "ca", "aa", "abb", "\xc3\xa9", "bab"};
    const int shared = (int)dice(b->sizes.snapshots ? 80 : 22), own = 1 + (int)dice(6);
    Job *j = &s->job[0];
    FtxRequest *q = &j->request;

    *s = (Slot){.samples = dice(5) ? 1 : 1 + (int)dice(SAMPLES)};
    make_job(j, shared, dice(3));
    for (int i = 0; i < own; i++)
        j->prompt[shared + i] = (int32_t)dice(61);
    q->ids_count = (size_t)(shared + own);
    q->seed = dice(1000);
    q->max_new = 1 + (int)(dice(3) ? dice(12) : dice(120));
    q->min_new = dice(4) ? 0 : (int)dice((unsigned)q->max_new);
    q->ignore_eos = dice(3) == 0;
    q->stop_ids = j->stop_ids;
    j->stop_ids[0] = (int32_t)dice(61);
    q->stop_ids_count = dice(2);
    j->stop[0] = stops[dice(6)];
    j->stop[1] = stops[dice(6)];
    q->stop = j->stop;
    q->stop_count = dice(4) ? 0 : dice(3);
    q->priority = (int)dice(3);
    q->fair_key = dice(4);
    q->cache_salt = dice(6) == 0;
    q->logits = dice(8) == 0;
    q->top_logprobs = dice(8) ? 0 : 3;
    q->prompt_logprobs = dice(10) == 0;
    q->states = s->samples > 1 || q->prompt_logprobs || dice(3) ? FTX_STATES_NONE : dice(4);
    if (dice(2))
        make_long(q, wave % 2);
    s->timed = dice(12) == 0;
    q->deadline_ms = s->timed ? 1 : 0;
    s->masked = dice(10) == 0;
    q->mask = s->masked ? allow : NULL;
    q->samples = s->samples;
    q->temperature = s->samples > 1 ? 1.0f : 0.0f;
    q->user = s;
    for (int k = 1; k < s->samples; k++) {
        s->job[k] = *j;
        s->job[k].request.seed = fake_seed(q->seed, k);
        s->job[k].request.stop = s->job[k].stop;
        s->job[k].request.stop_ids = s->job[k].stop_ids;
    }
    for (int k = 0; k < s->samples && !s->masked; k++)
        expect(b, &s->job[k]);
}

static void compare_any(const Slot *s)
{
    for (int k = 0; k < s->samples; k++) {
        Job *j = (Job *)&s->job[k];

        finishes[j->finish]++;
        j->cancelled = s->cancelled;
        if (j->finish == FTX_FINISH_DEADLINE)
            assert_true(s->timed && j->n_got == 0);
        else if (!s->masked)
            compare(j);
        for (int i = 0; i < j->n_got && s->masked; i++)
            assert_int_equal(j->got[i] % 3, (i + k) % 3);
    }
}

static void check_state(const Job *j, size_t at, const float *row)
{
    const size_t prompt = j->request.ids_count;
    int32_t ids[2 * MAX_IDS];

    memcpy(ids, j->prompt, prompt * sizeof *ids);
    memcpy(ids + prompt, j->got, (size_t)j->n_got * sizeof *ids);
    assert_true(at < prompt + (size_t)j->n_got);
    for (uint32_t c = 0; c < STATES; c++)
        assert_true(row[c] == fake_state(ids, (int)at + 1, c));
}

static void take_any(const FtxEvent *e)
{
    Slot *s = e->user;
    Job *j = &s->job[e->sample];

    assert_in_range(e->sample, 0, s->samples - 1);
    assert_int_equal(e->request, s->id);
    assert_false(j->ended);
    if (j->request.states == FTX_STATES_TOKENS && e->states_count)
        assert_int_equal(e->states_first, s->states);
    for (size_t i = 0; i < e->states_count && j->request.states != FTX_STATES_MEAN; i++)
        check_state(j, e->states_first + i, e->states + i * STATES);
    s->states += e->states_count;
    if (e->token >= 0)
        j->got[j->n_got++] = e->token;
    if (e->token >= 0 && j->request.states)
        assert_int_equal(s->states,
                         j->request.states == FTX_STATES_TOKENS ? j->request.ids_count + (size_t)j->n_got - 1 : 1);
    memcpy(j->text + j->text_bytes, e->text, e->text_bytes);
    j->text_bytes += e->text_bytes;
    j->finish = e->finish;
    j->ended = e->finish != FTX_RUNNING;
    s->ended += j->ended;
    if (s->ended == s->samples) {
        compare_any(s);
        s->samples = 0;
    }
}

/* --- the soak -------------------------------------------------------------------------------------------------- */

/* A snapshot has at most one page, and a page has the snapshot that it names. */
static void check_snapshots(const FtxEngine *e)
{
    uint32_t named = 0, own = 0, pending = 0;

    for (uint32_t i = 0; i < e->pages.all; i++) {
        named += e->pages.prefix->page[i].snapshot > 0;
        assert_true(e->pages.prefix->page[i].known || !e->pages.prefix->page[i].snapshot);
    }
    for (uint32_t i = 0; i < e->snapshots.all; i++) {
        const Snapshot *s = &e->snapshots.at[i];

        own += e->pages.prefix->page[s->page].snapshot == i + 1;
        assert_true(!s->of || s->of->state == REQUEST_RUNNING);
        pending += s->of != NULL;
    }
    assert_int_equal(pending, e->snapshots.n);
    assert_int_equal(named, own);
}

static void check_engine(const FtxEngine *e)
{
    uint32_t held = 0, kept = 0, swapped = 0;
    uint64_t tokens = 0;

    for (uint32_t i = 0; i < e->waiting.n; i++) {
        tokens += e->waiting.at[i]->together ? (uint64_t)e->waiting.at[i]->prompt : 0;
        swapped += e->waiting.at[i]->kept_pages > 0;
    }
    assert_int_equal(e->waiting_tokens, tokens);
    assert_int_equal(e->waiting_swapped, swapped);
    for (uint32_t i = 0; i < e->requests; i++)
        kept += e->request[i].kept_pages;
    assert_int_equal(e->swap.n + kept, e->swap.all);
    for (uint32_t i = 0; i < e->pages.all; i++)
        held += e->pages.users[i] > 0;
    assert_int_equal(e->pages.n + held, e->pages.all);
    assert_true(e->pages.prefix->idle <= e->pages.n);
    assert_int_equal(e->free_slots + e->running.n, e->slots);
    assert_int_equal(e->waiting.n + e->running.n + e->ending.n + e->unused.n, e->requests);
    check_rows(e);
    check_snapshots(e);
}

static void step_any(const Bed *b)
{
    FtxEvent ev[32] = {FTX_EVENT_INIT};
    FtxError err = {FTX_OK, ""};
    size_t n;

    if (ftx_engine_step(b->engine, ev, 32, &n, &err))
        fail_msg("step: %s; %s", err.text, fake.wrong);
    assert_string_equal(fake.wrong, "");
    for (size_t i = 0; i < n; i++)
        take_any(&ev[i]);
    check_engine(b->engine);
}

static bool submit_any(const Bed *b, int i, int wave)
{
    FtxError err = {FTX_OK, ""};
    FtxStatus s;

    make_any(b, &slot[i], wave);
    s = ftx_engine_submit(b->engine, &slot[i].job[0].request, &slot[i].id, &err);
    if (s != FTX_OK && s != FTX_EFULL)
        fail_msg("submit: %s", err.text);
    slot[i].samples = s ? 0 : slot[i].samples;
    return !s;
}

static void soak(bool asynchronous, bool recurrent, int requests)
{
    int submitted = 0, before;
    FtxStats stats;
    Bed b;

    dice_state = asynchronous;
    memset(finishes, 0, sizeof finishes);
    open_soak(&b, asynchronous, recurrent);
    if (asynchronous) /* some flights are composed late */
        b.engine->pace =
            (Pace){.target_us = 2000.0, .token_us = 40.0, .rows = {1, 6}, .decode_us = {700.0, 900.0}, .n = 2};
    b.engine->swap.page_us = 1.0; /* a long text is copied, a short one is not */
    b.engine->swap.token_us = 0.6;
    before = allocations;
    while (submitted < requests || ftx_engine_busy(b.engine)) {
        const int i = (int)dice(SLOTS);

        if (submitted < requests && !slot[i].samples && dice(2))
            submitted += submit_any(&b, i, submitted / WAVE);
        else if (slot[i].samples && dice(60) == 0)
            slot[i].cancelled = ftx_engine_cancel(b.engine, slot[i].id, NULL) == FTX_OK || slot[i].cancelled;
        else
            step_any(&b);
    }
    assert_int_equal(allocations, before);
    for (int i = 0; i < SLOTS; i++)
        assert_int_equal(slot[i].samples, 0);
    stats = ftx_engine_stats(b.engine);
    print_message("%d requests: %llu ended by an id, %llu by length, %llu by a string, %llu cancelled, %llu too late; "
                  "%llu preempted, %llu of them to the host, %llu tokens from the cache\n",
                  submitted, (unsigned long long)finishes[FTX_FINISH_END],
                  (unsigned long long)finishes[FTX_FINISH_LENGTH], (unsigned long long)finishes[FTX_FINISH_STOP],
                  (unsigned long long)finishes[FTX_FINISH_CANCEL], (unsigned long long)finishes[FTX_FINISH_DEADLINE],
                  (unsigned long long)stats.preemptions, (unsigned long long)stats.swaps,
                  (unsigned long long)stats.cached_tokens);
    for (int i = FTX_FINISH_END; i <= FTX_FINISH_CANCEL; i++)
        assert_true(finishes[i] > 0);
    assert_true(recurrent || stats.preemptions > 0);
    assert_true(stats.cached_tokens > 0);
    assert_true(recurrent || (stats.swaps > 0 && stats.swaps < stats.preemptions));
    assert_int_equal(b.engine->swap.n, recurrent ? 0 : SWAP_PAGES);
    assert_true(!recurrent || (fake.snapshots[0] > 100 && fake.snapshots[1] > 10));
    assert_int_equal(b.engine->pages.n, b.engine->pages.all);
    close_bed(&b);
}

static void test_soak(void **state)
{
    const char *n = getenv("FTX_TEST_REQUESTS");
    const int requests = n ? atoi(n) : 10000;

    (void)state;
    for (int i = 0; i < 4; i++)
        soak(i % 2, i / 2, requests / (i / 2 ? 4 : 2));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_soak)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
