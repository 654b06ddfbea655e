/* test_prefix.c - the prefix cache: a table of known pages against a plain list, and the engine on the fake device,
 * which knows what stands in each page: tokens are those of a request alone, whoever computed its prompt's pages. */
#include "jobs.h"

enum { BLOCK = 4, PAGES = 12, STEPS = 4000 };

/* --- the table of pages ------------------------------------------------------------------------------- */

typedef struct Plain { /* one page, as a list would have it */
    int32_t text[4 * BLOCK];
    uint32_t blocks; /* tokens of the text from its beginning to this page's end, in pages; 0: not known */
    int users;
    uint64_t idle_since;
} Plain;

typedef struct World {
    PrefixPage page[PAGES];
    int32_t ids[PAGES * BLOCK], free[PAGES];
    uint32_t bucket[64];
    uint16_t users[PAGES];
    Prefix prefix;
    Pages pages;
    Plain plain[PAGES];
    uint64_t dice, now;
} World;

static uint32_t dice(World *w, uint32_t sides)
{
    w->dice = w->dice * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(w->dice >> 33) % sides;
}

static void open_world(World *w, uint32_t buckets)
{
    *w = (World){.dice = buckets};
    w->prefix =
        (Prefix){.page = w->page, .ids = w->ids, .bucket = w->bucket, .buckets = buckets, .block = BLOCK, .seed = 5};
    w->pages = (Pages){.free = w->free, .users = w->users, .prefix = &w->prefix};
    pages_init(&w->pages, PAGES);
}

/* Texts of four pages: of each page there are two kinds, so there are 2 + 4 + 8 + 16 different beginnings. */
static void make_text(World *w, int32_t *text)
{
    for (int i = 0; i < 4; i++) {
        const int32_t kind = (int32_t)dice(w, 2);

        for (int k = 0; k < BLOCK; k++)
            text[i * BLOCK + k] = kind * 100 + k;
    }
}

static bool begins(const Plain *p, const int32_t *text, uint32_t blocks)
{
    return p->blocks == blocks && memcmp(p->text, text, blocks * BLOCK * sizeof *text) == 0;
}

static int plain_find(const World *w, const int32_t *text, uint32_t blocks)
{
    for (int i = 0; i < PAGES; i++)
        if (begins(&w->plain[i], text, blocks))
            return i;
    return -1;
}

/* The page that must be taken next when none is free and unknown. */
static int plain_oldest(const World *w)
{
    int oldest = -1;

    for (int i = 0; i < PAGES; i++)
        if (w->plain[i].blocks && !w->plain[i].users &&
            (oldest < 0 || w->plain[i].idle_since < w->plain[oldest].idle_since))
            oldest = i;
    return oldest;
}

static void check_world(const World *w)
{
    uint32_t held = 0, idle = 0;

    for (int i = 0; i < PAGES; i++) {
        assert_int_equal(w->users[i], w->plain[i].users);
        assert_int_equal(w->page[i].known, w->plain[i].blocks > 0);
        held += w->plain[i].users > 0;
        idle += w->plain[i].blocks && !w->plain[i].users;
    }
    assert_int_equal(w->pages.n + held, PAGES);
    assert_int_equal(w->prefix.idle, idle);
}

/* A sequence takes over the pages of its text that are known, takes the others and makes them known. */
static uint32_t begin_sequence(World *w, int32_t *page)
{
    int32_t text[4 * BLOCK];
    Hash128 key[5] = {{0, 0}};
    uint32_t found = 0, idle = 0;

    make_text(w, text);
    for (int i = 0; i < 4; i++)
        key[i + 1] = prefix_key(&w->prefix, &key[i], text + i * BLOCK);
    for (; found < 4; found++) {
        page[found] = prefix_find(&w->prefix, &key[found + 1], text + found * BLOCK);
        assert_int_equal(page[found], plain_find(w, text, found + 1));
        if (page[found] < 0)
            break;
        idle += w->users[page[found]] == 0;
    }
    if (4 - found > w->pages.n - idle) {
        assert_false(pages_take(&w->pages, page + found, w->pages.n + 1));
        return 0;
    }
    pages_share(&w->pages, page, found);
    for (uint32_t i = 0; i < found; i++)
        w->plain[page[i]].users++;
    for (uint32_t i = found; i < 4; i++) {
        uint32_t unknown = 0;
        const int oldest = plain_oldest(w);

        for (int k = 0; k < PAGES; k++)
            unknown += !w->plain[k].blocks && !w->plain[k].users;
        assert_true(pages_take(&w->pages, page + i, 1));
        if (unknown)
            assert_int_equal(w->plain[page[i]].blocks, 0);
        else
            assert_int_equal(page[i], oldest);
        w->plain[page[i]] = (Plain){.users = 1};
    }
    for (uint32_t i = found; i < 4; i++) {
        prefix_keep(&w->prefix, page[i], &key[i + 1], text + i * BLOCK);
        if (plain_find(w, text, i + 1) < 0) {
            w->plain[page[i]].blocks = i + 1;
            memcpy(w->plain[page[i]].text, text, sizeof text);
        }
    }
    return 4;
}

static void end_sequence(World *w, const int32_t *page)
{
    pages_give(&w->pages, page, 4);
    for (int i = 4; i-- > 0;) /* the last page first */
        if (--w->plain[page[i]].users == 0)
            w->plain[page[i]].idle_since = ++w->now;
}

static void test_table(void **state)
{
    World *w = malloc(sizeof *w);

    (void)state;
    assert_non_null(w);
    assert_int_equal(prefix_buckets(1), 1);
    assert_int_equal(prefix_buckets(12), 16);
    assert_int_equal(prefix_buckets(16), 16);
    for (uint32_t buckets = 1; buckets <= 64; buckets *= 8) { /* one bucket: all keys in one chain */
        int32_t page[3][4];
        bool open[3] = {false, false, false};

        open_world(w, buckets);
        for (int i = 0; i < STEPS; i++) {
            const uint32_t one = dice(w, 3);

            if (open[one])
                end_sequence(w, page[one]);
            open[one] = !open[one] && begin_sequence(w, page[one]) == 4;
            check_world(w);
        }
        assert_true(w->now > 1000);
    }
    free(w);
}

/* A page with the same key and other tokens (a collision of the hash) is no hit. */
static void test_collision(void **state)
{
    const int32_t a[BLOCK] = {1, 2, 3, 4}, b[BLOCK] = {1, 2, 3, 5};
    const Hash128 root = {0, 0}, salted = {1, 0};
    static World w;

    (void)state;
    open_world(&w, 16);

    const Hash128 key = prefix_key(&w.prefix, &root, a), other = prefix_key(&w.prefix, &salted, a);
    const Hash128 next = prefix_key(&w.prefix, &key, a);

    prefix_keep(&w.prefix, 3, &key, a);
    assert_int_equal(prefix_find(&w.prefix, &key, a), 3);
    assert_int_equal(prefix_find(&w.prefix, &key, b), -1);
    assert_int_equal(prefix_find(&w.prefix, &other, a), -1);
    assert_int_equal(prefix_find(&w.prefix, &next, a), -1);
    prefix_keep(&w.prefix, 4, &key, a); /* the first stays */
    assert_int_equal(prefix_find(&w.prefix, &key, a), 3);
    assert_false(w.page[4].known);
    w.prefix.seed = 6; /* another engine */

    const Hash128 elsewhere = prefix_key(&w.prefix, &root, a);

    assert_true(elsewhere.low != key.low && elsewhere.high != key.high);
}

/* --- the engine ----------------------------------------------------------------------------------------- */

static void open_cached(Bed *b, bool asynchronous, uint32_t pages, bool fixed)
{
    FtxOptions options = FTX_OPTIONS_INIT;
    FakeSizes sizes = fake_sizes();
    FtxError err = {FTX_OK, ""};

    reset_fake(asynchronous, asynchronous ? 20 : 0);
    sizes.n_ends = 0;
    sizes.kv_pages = pages;
    sizes.fixed_sums = fixed;
    b->sizes = sizes;
    fake_artifact(&b->artifact, &sizes);
    assert_int_equal(fake_model(&b->artifact, NULL, &b->model, &err), FTX_OK);
    options.prefix_cache = 1;
    assert_int_equal(ftx_engine_open(b->model, &options, &b->engine, &err), FTX_OK);
}

/* No slot and no page is in use. */
static void assert_at_rest(const FtxEngine *e)
{
    assert_false(ftx_engine_busy(e));
    assert_int_equal(e->pages.n, e->pages.all);
    assert_int_equal(e->free_slots, e->slots);
    assert_int_equal(e->unused.n, e->requests);
    for (uint32_t i = 0; i < e->pages.all; i++)
        assert_int_equal(e->pages.users[i], 0);
}

static size_t saved(const Bed *b)
{
    return ftx_engine_stats(b->engine).cached_tokens;
}

/* Runs one request alone; returns how many tokens of its prompt were in the cache. */
static size_t run_one(Bed *b, Job *j)
{
    const size_t before = saved(b);

    expect(b, j);
    submit(b, j);
    run(b);
    compare(j);
    return saved(b) - before;
}

/* A conversation: each turn begins with all of the turns before it. With fixed sums only prompts are found. */
static void conversation(bool asynchronous, bool fixed)
{
    Bed b;
    Job j, next;
    int turns = 0;

    open_cached(&b, asynchronous, 40, fixed);
    make_job(&j, 6, 3);
    j.request.max_new = 5;
    assert_int_equal(run_one(&b, &j), 0);
    for (int n = 6; n + 5 + 3 + 5 < (int)b.sizes.context; turns++) {
        make_job(&next, 0, 3 + (uint64_t)turns);
        memcpy(next.prompt, j.prompt, (size_t)n * sizeof *j.prompt);
        memcpy(next.prompt + n, j.got, 5 * sizeof *j.got);
        for (int i = 0; i < 3; i++)
            next.prompt[n + 5 + i] = 20 + i + turns;
        next.request.ids_count = (size_t)n + 8;
        next.request.max_new = 5;
        /* all full pages of the turn before, whose last token was returned and never fed */
        assert_int_equal(run_one(&b, &next), (size_t)(b.engine->by_role ? n : n + 5 - 1) / 4 * 4);
        n += 8;
        j = next;
        j.request.ids = j.prompt;
    }
    assert_true(turns >= 3);
    assert_at_rest(b.engine);
    close_bed(&b);
}

static void test_conversation(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++)
        conversation(i & 1, i & 2);
}

/* The last token of a prompt is always computed; a salt keeps texts apart; so does one other token. */
static void test_parts(void **state)
{
    Bed b;
    Job j;

    (void)state;
    open_cached(&b, false, 40, false);
    make_job(&j, 16, 9);
    j.request.max_new = 1;
    assert_int_equal(run_one(&b, &j), 0);
    for (int n = 1; n <= 16; n++) {
        make_job(&j, n, 9);
        j.request.max_new = 1;
        assert_int_equal(run_one(&b, &j), (size_t)(n - 1) / 4 * 4);
    }
    make_job(&j, 16, 9);
    j.request.max_new = 1;
    j.request.cache_salt = 1;
    assert_int_equal(run_one(&b, &j), 0);
    make_job(&j, 16, 9);
    j.request.max_new = 1;
    j.prompt[5] = (j.prompt[5] + 1) % 61;
    assert_int_equal(run_one(&b, &j), 4);
    make_job(&j, 16, 9);
    j.request.max_new = 1;
    j.prompt[0] = (j.prompt[0] + 1) % 61;
    assert_int_equal(run_one(&b, &j), 0);

    const FtxStats stats = ftx_engine_stats(b.engine);

    assert_int_equal(stats.requests, 20);
    assert_int_equal(stats.new_tokens, 20);
    assert_int_equal(stats.prompt_tokens, 16 + 136 + 48);
    assert_int_equal(stats.pages, 40);
    assert_int_equal(stats.free_pages, 40);
    assert_true(stats.idle_pages > 0 && stats.idle_pages < 40);
    assert_int_equal(stats.waiting + stats.running, 0);
    close_bed(&b);
}

/* Without the option nothing is kept. */
static void test_off(void **state)
{
    const FakeSizes sizes = fake_sizes();
    Bed b;
    Job j;

    (void)state;
    reset_fake(false, 0);
    open_bed(&b, &sizes);
    for (int i = 0; i < 2; i++) {
        make_job(&j, 16, 9);
        assert_int_equal(run_one(&b, &j), 0);
    }
    assert_int_equal(ftx_engine_stats(b.engine).idle_pages, 0);
    assert_idle(b.engine);
    close_bed(&b);
}

/* A prompt that begins like one that is being read waits for its pages; one behind it that begins differently does
 * not wait. */
static void test_awaits(void **state)
{
    Bed b;
    Job first, same, other;

    (void)state;
    open_cached(&b, false, 40, false);
    make_job(&first, 30, 1); /* two steps of 20 tokens */
    make_job(&same, 30, 1);
    make_job(&other, 3, 2);
    same.request.seed = 77;
    first.request.max_new = same.request.max_new = other.request.max_new = 6;
    expect(&b, &first);
    expect(&b, &same);
    expect(&b, &other);
    submit(&b, &first);
    submit(&b, &same);
    submit(&b, &other);
    step(&b);
    assert_int_equal(ftx_engine_stats(b.engine).running, 2);
    assert_int_equal(ftx_engine_stats(b.engine).waiting, 1);
    step(&b);
    step(&b); /* the first prompt has been read: the second is admitted, and its last two tokens give one more */
    assert_int_equal(ftx_engine_stats(b.engine).running, 3);
    run(&b);
    compare(&first);
    compare(&same);
    compare(&other);
    assert_int_equal(saved(&b), 28);
    assert_at_rest(b.engine);
    close_bed(&b);
}

/* A request is composed before its last token is read: its page has no key until then, whoever asks for it. */
static void test_unread(void **state)
{
    Job a, like, beside, later;
    Bed b;

    (void)state;
    open_cached(&b, true, 40, false);
    make_job(&a, 6, 1);
    a.request.max_new = 9;
    expect(&b, &a);
    make_job(&beside, 38, 2); /* in chunks, so every step is a flight of its own */
    expect(&b, &beside);
    make_job(&like, 11, 1); /* page 0 is a's, page 1 is not */
    for (int i = 6; i < 11; i++)
        like.prompt[i] = (a.expected[i - 6] + 1) % 61;
    expect(&b, &like);
    submit(&b, &a);
    submit(&b, &beside);
    submit(&b, &like);
    run(&b);
    compare(&a);
    compare(&beside);
    compare(&like);
    make_job(&later, 6, 1);
    memcpy(later.prompt + 6, a.expected, 8 * sizeof *a.expected);
    later.request.ids_count = 14;
    assert_int_equal(run_one(&b, &later), 12);
    assert_at_rest(b.engine);
    close_bed(&b);
}

/* Idle pages are memory for new requests: they never make one wait, and what is left of a text still counts. */
static void test_memory(void **state)
{
    Bed b;
    Job j, large;

    (void)state;
    open_cached(&b, false, 10, false); /* 40 tokens */
    make_job(&j, 16, 1);
    j.request.max_new = 5;
    assert_int_equal(run_one(&b, &j), 0);
    assert_int_equal(ftx_engine_stats(b.engine).idle_pages, 5);
    make_job(&large, 20, 2);
    large.request.max_new = 9; /* 7 pages: the five that are not known, and the end of the first text */
    assert_int_equal(run_one(&b, &large), 0);
    make_job(&j, 16, 1);
    j.request.max_new = 5;
    assert_int_equal(run_one(&b, &j), 12);
    make_job(&large, 30, 3);
    large.request.max_new = 10; /* all ten */
    assert_int_equal(run_one(&b, &large), 0);
    make_job(&j, 16, 1);
    assert_int_equal(run_one(&b, &j), 0);
    assert_at_rest(b.engine);
    close_bed(&b);
}

/* Random requests over a few beginnings, some of them cancelled: whatever is shared, tokens are those of the request
 * alone. */
static void random_requests(bool asynchronous, bool fixed, uint32_t pages, uint64_t seed)
{
    enum { JOBS = 48 };
    static Job job[JOBS];
    World w = {.dice = seed};
    Bed b;
    int next = 0;

    open_cached(&b, asynchronous, pages, fixed);
    for (int i = 0; i < JOBS; i++) {
        Job *j = &job[i];
        const int shared = (int)dice(&w, 26), own = 1 + (int)dice(&w, 6);

        make_job(j, shared, dice(&w, 3));
        for (int k = 0; k < own; k++)
            j->prompt[shared + k] = (int32_t)dice(&w, 61);
        j->request.ids_count = (size_t)(shared + own);
        j->request.seed = dice(&w, 1000);
        j->request.max_new = 1 + (int)dice(&w, 8);
        j->request.cache_salt = dice(&w, 8) == 0;
        expect(&b, j);
    }
    while (next < JOBS || ftx_engine_busy(b.engine)) {
        const FtxStats stats = ftx_engine_stats(b.engine);

        if (next < JOBS && stats.waiting < 8 && dice(&w, 2))
            submit(&b, &job[next++]);
        else if (next && dice(&w, 12) == 0 && ftx_engine_cancel(b.engine, job[dice(&w, (uint32_t)next)].id, NULL) == 0)
            continue;
        else
            step(&b);
    }
    for (int i = 0; i < JOBS; i++) {
        job[i].cancelled = job[i].finish == FTX_FINISH_CANCEL;
        compare(&job[i]);
    }
    assert_true(saved(&b) > 0);
    assert_at_rest(b.engine);
    close_bed(&b);
}

static void test_random(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 40; seed++)
        random_requests(seed % 3 == 0, seed % 4 == 0, seed % 2 ? 12 : 34, seed);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_table),  cmocka_unit_test(test_collision), cmocka_unit_test(test_conversation),
        cmocka_unit_test(test_parts),  cmocka_unit_test(test_off),       cmocka_unit_test(test_awaits),
        cmocka_unit_test(test_memory), cmocka_unit_test(test_unread),    cmocka_unit_test(test_random),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
