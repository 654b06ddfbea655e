/* test_cache.c - how many KV pages an engine has, and what happens when they are few. */
#include "jobs.h"
#include "runtime/base/dtype.h"
#include "runtime/device/cache.h"

#define MIB(n) ((uint64_t)(n) << 20)

/* --- parts of a page ------------------------------------------------------------------------------ */

/* The parts of all pages cover the pages' memory once, and those of one page a page that stands alone. */
static void test_parts(void **state)
{
    enum { PAGES = 5, BLOCK = 4, KEYS = 2 * 4 * 8 * 4 + 1 * 4 * (6 + 2), VALUES = 2 * 4 * 4 * 4 + 1 * 4 * (10 + 2) };
    static const FtxCache caches[] = {{.kv_heads = 2, .k_dim = 8, .v_dim = 4, .type = DT_FP32},
                                      {.kv_heads = 3, .k_dim = 9, .v_dim = 9, .type = DT_FP32, .source = 7},
                                      {.kv_heads = 1, .k_dim = 6, .v_dim = 10, .type = DT_INT8}};
    const FtxFacts facts = {.kv_block = BLOCK};
    const FtxPlan head = {.space_bytes[FTX_SPACE_PAGES] = KEYS + VALUES, .named = {[FTX_NAMED_v] = KEYS}};
    const ArtifactPlan plan = {.head = &head, .caches = caches, .n_caches = 3};
    const Artifact a = {.facts = &facts};
    uint8_t all[PAGES * (KEYS + VALUES)] = {0};

    (void)state;
    for (uint32_t page = 0; page < PAGES; page++) {
        uint8_t alone[KEYS + VALUES] = {0};
        uint32_t i = 0;
        CachePart p;

        for (; cache_part(&a, &plan, PAGES, page, i, &p); i++)
            for (uint64_t b = 0; b < p.bytes; b++) {
                assert_true(p.at + b < sizeof all && p.alone + b < sizeof alone);
                assert_int_equal(all[p.at + b]++, 0);
                assert_int_equal(alone[p.alone + b]++, 0);
            }
        assert_int_equal(i, 4);
        assert_null(memchr(alone, 0, sizeof alone));
    }
    assert_null(memchr(all, 0, sizeof all));
    /* The third cache's values of page 2: behind the first cache's of all pages and its own of pages 0 and 1. */
    CachePart p;
    assert_true(cache_part(&a, &plan, PAGES, 2, 3, &p));
    assert_int_equal(p.bytes, 4 * 12);
    assert_int_equal(p.at, PAGES * (KEYS + 2 * 4 * 4 * 4) + 2 * p.bytes);
}

/* The states of all slots cover $recurrent once, their copies $snapshots. */
static void test_states(void **state)
{
    enum { SLOTS = 3, SNAPSHOTS = 2, FIRST = 2 * 3 * 5 * 4, SECOND = 16, BYTES = FIRST + 8 + SECOND };
    static const FtxCache caches[] = {{.kv_heads = 2, .k_dim = 3, .v_dim = 5, .type = DT_FP32, .recurrent = 1},
                                      {.kv_heads = 3, .k_dim = 9, .v_dim = 9, .type = DT_FP32},
                                      {.kv_heads = 1, .k_dim = 2, .v_dim = 2, .type = DT_FP32, .recurrent = 1}};
    const FtxFacts facts = {.kv_block = 8, .sequences = SLOTS};
    const FtxPlan head = {.named = {[FTX_NAMED_recurrent] = 64, [FTX_NAMED_snapshots] = 64 + SLOTS * BYTES},
                          .named_bytes = {[FTX_NAMED_snapshots] = SNAPSHOTS * BYTES}};
    const ArtifactPlan plan = {.head = &head, .caches = caches, .n_caches = 3}, none = {.head = &head};
    const Artifact a = {.facts = &facts};
    uint8_t all[64 + (SLOTS + SNAPSHOTS) * BYTES] = {0};
    CacheState c;

    (void)state;
    assert_int_equal(cache_snapshots(&a, &plan), SNAPSHOTS);
    assert_int_equal(cache_snapshots(&a, &none), 0);
    for (uint32_t slot = 0; slot < SLOTS; slot++)
        for (uint32_t i = 0; cache_state(&a, &plan, slot, slot % SNAPSHOTS, i, &c); i++) {
            assert_in_range(i, 0, 1);
            assert_int_equal(c.bytes, i ? SECOND : FIRST + 8); /* at multiples of 16 bytes */
            for (uint64_t b = 0; b < c.bytes; b++) {
                assert_int_equal(all[c.at + b]++, 0);
                if (slot < SNAPSHOTS)
                    assert_int_equal(all[c.copy + b]++, 0);
            }
        }
    assert_null(memchr(all + 64, 0, sizeof all - 64));
}

/* --- how many ------------------------------------------------------------------------------------ */

typedef struct Case {
    uint64_t kv_bytes, all, free;
    uint32_t pages;  /* 0: refused */
    const char *why; /* what the message has */
} Case;

/* A page of 1 MiB; at least 4 of them, at most 100. */
static void test_pages(void **state)
{
    static const Case cases[] = {
        {0, MIB(8192), MIB(8192), 100, NULL},
        {0, MIB(8192), MIB(356), 100, NULL}, /* the reserve is 256 MiB */
        {0, MIB(8192), MIB(355), 99, NULL},
        {0, MIB(8192), MIB(260), 4, NULL},
        {0, MIB(8192), MIB(260) - 1, 0,
         "needs 4.2 MB at least, one page of 16 tokens for each of 4 sequences; free are"},
        {0, MIB(8192), MIB(100), 0, "free are 104.9 MB, of which 268.4 MB are kept in reserve"},
        {0, MIB(8192), 0, 0, "kv_bytes (--kv-memory)"},
        {0, MIB(100000), MIB(2050), 50, NULL}, /* 2 % are more */
        {MIB(7), MIB(8192), MIB(8192), 7, NULL},
        {MIB(8) - 1, MIB(8192), MIB(8192), 7, NULL},
        {MIB(7), MIB(8192), MIB(7), 7, NULL}, /* without a reserve */
        {MIB(7), MIB(8192), MIB(7) - 1, 0, "needs 7.3 MB with kv_bytes (--kv-memory) of 7.3 MB, and 7.3 MB are free"},
        {MIB(8) - 1, MIB(8192), MIB(7), 7, NULL},
        {UINT64_MAX, MIB(8192), MIB(100), 100, NULL}, /* the limits cannot use more */
        {MIB(4), MIB(8192), MIB(8192), 4, NULL},
        {MIB(4) - 1, MIB(8192), MIB(8192), 0, "is 4.2 MB, and the KV cache needs 4.2 MB at least"},
        {1, MIB(8192), MIB(8192), 0, "one page of 16 tokens for each of 4 sequences: raise it"},
    };
    FtxFacts facts = {.sequences = 4, .kv_pages = 100, .kv_block = 16};
    FtxPlan head = {.space_bytes[FTX_SPACE_PAGES] = MIB(1)};
    const ArtifactPlan plan = {.head = &head};
    const Artifact a = {.facts = &facts};
    uint32_t pages;

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const Case *c = &cases[i];
        FtxError err = {FTX_OK, ""};
        const FtxStatus s =
            cache_pages(&a, &plan, c->kv_bytes, (CacheMemory){c->all, c->free, FTX_EDEVICE}, &pages, &err);

        if (c->pages ? s || pages != c->pages : !s || !strstr(err.text, c->why))
            fail_msg("case %zu: status %d, %u pages, \"%s\"", i, (int)s, pages, err.text);
        if (s)
            assert_int_equal(s, c->kv_bytes && c->kv_bytes < MIB(4) ? FTX_EINVAL : FTX_EDEVICE);
    }
    facts.kv_pages = 3; /* the spec's kv.pages is less than a page for each sequence */
    assert_int_equal(cache_pages(&a, &plan, MIB(3), (CacheMemory){MIB(9), MIB(9), FTX_ENOMEM}, &pages, NULL), FTX_OK);
    assert_int_equal(pages, 3);
    facts.kv_pages = 0; /* an encoder */
    assert_int_equal(cache_pages(&a, &plan, 0, (CacheMemory){0, 0, FTX_ENOMEM}, &pages, NULL), FTX_OK);
    assert_int_equal(pages, 0);
}

/* A page of 64 TiB, as large as an artifact may say, and as many as there may be. */
static void test_largest(void **state)
{
    FtxFacts facts = {.sequences = FTX_MAX_SEQUENCES, .kv_pages = 65536, .kv_block = 16};
    FtxPlan head = {.space_bytes[FTX_SPACE_PAGES] = (uint64_t)1 << 46};
    const ArtifactPlan plan = {.head = &head};
    const Artifact a = {.facts = &facts};
    const CacheMemory memory = {UINT64_MAX, UINT64_MAX, FTX_ENOMEM};
    uint32_t pages;
    FtxError err;

    (void)state;
    assert_int_equal(cache_pages(&a, &plan, (uint64_t)1 << 58, memory, &pages, &err), FTX_OK);
    assert_int_equal(pages, 4096);
    assert_int_equal(cache_bytes(&plan, pages), (uint64_t)1 << 58);
    assert_int_equal(cache_pages(&a, &plan, UINT64_MAX, memory, &pages, &err), FTX_OK);
    assert_int_equal(pages, 65536);
    assert_int_equal(cache_bytes(&plan, pages), (uint64_t)1 << 62);
    assert_int_equal(cache_pages(&a, &plan, ((uint64_t)1 << 58) - 1, memory, &pages, &err), FTX_EINVAL);
    assert_non_null(strstr(err.text, "needs 288230376151.7 MB at least"));
}

/* Operands in PAGES scale with the number of pages, others do not. */
static void test_operand(void **state)
{
    const FtxOperand page = {.space = FTX_SPACE_PAGES, .offset = 96}, other = {.space = FTX_SPACE_STATE, .offset = 96};

    (void)state;
    assert_int_equal(cache_operand(&page, 5), 480);
    assert_int_equal(cache_operand(&other, 5), 96);
    assert_int_equal(cache_operand(&page, 1u << 31), (uint64_t)96 << 31);
}

/* The machine that runs this has memory, and not all of it is taken. */
static void test_machine(void **state)
{
    uint64_t all = 0, available = 0;

    (void)state;
    memory_machine(&all, &available);
    assert_true(available > MIB(1) && available < all);
    assert_int_equal(available % 1024, 0);
}

/* --- an engine with few of them ------------------------------------------------------------------ */

enum { KV_PAGE = 64 }; /* bytes of the fake model's page */

static void open_with(Bed *b, uint64_t kv_bytes)
{
    FtxOptions o = FTX_OPTIONS_INIT;
    FtxError err;

    ftx_engine_close(b->engine);
    o.kv_bytes = kv_bytes;
    if (ftx_engine_open(b->model, &o, &b->engine, &err))
        fail_msg("%s", err.text);
}

/* Requests wait for pages, and each gives what it gives alone. Whatever the order, nothing is left. */
static void test_few(void **state)
{
    enum { JOBS = 12 };
    static Job job[JOBS];

    (void)state;
    for (int asynchronous = 0; asynchronous < 2; asynchronous++)
        for (uint32_t pages = 4; pages <= 12; pages += 2) {
            FakeSizes sizes = fake_sizes();
            FtxModelInfo info;
            Bed b;
            uint32_t most = 0;

            reset_fake(asynchronous, 0);
            sizes.n_ends = 0;
            open_bed(&b, &sizes);
            assert_int_equal(b.model->plan->head->space_bytes[FTX_SPACE_PAGES], KV_PAGE);
            ftx_model_info(b.model, &info);
            assert_int_equal(info.kv_tokens, sizes.kv_pages * sizes.kv_block);
            assert_int_equal(info.kv_token_bytes, KV_PAGE / sizes.kv_block);
            open_with(&b, (uint64_t)pages * KV_PAGE + KV_PAGE - 1);
            ftx_model_info(b.model, &info);
            assert_int_equal(info.kv_tokens, pages * sizes.kv_block);
            for (int i = 0; i < JOBS; i++) { /* 13 tokens are 3 pages of 4 and one more, which is never stored */
                make_job(&job[i], 3 + i % 4, (uint64_t)i + 1);
                job[i].request.max_new = 10 - i % 4;
                expect(&b, &job[i]);
                submit(&b, &job[i]);
            }
            while (ftx_engine_busy(b.engine)) {
                step(&b);
                if (b.engine->running.n > most)
                    most = b.engine->running.n;
            }
            assert_int_equal(most, pages / 3 < 4 ? pages / 3 : 4);
            for (int i = 0; i < JOBS; i++)
                compare(&job[i]);
            assert_idle(b.engine);
            close_bed(&b);
        }
}

/* Too little for the engine, and for a request: refused with figures and what to raise. */
static void test_refused(void **state)
{
    FakeSizes sizes = fake_sizes();
    FtxOptions o = FTX_OPTIONS_INIT;
    FtxEngine *none = (FtxEngine *)&sizes;
    uint64_t id;
    FtxError err;
    Job j;
    Bed b;

    (void)state;
    reset_fake(false, 0);
    open_bed(&b, &sizes);
    o.kv_bytes = 4 * KV_PAGE - 1;
    assert_int_equal(ftx_engine_open(b.model, &o, &none, &err), FTX_EINVAL);
    assert_null(none);
    assert_non_null(strstr(err.text, "one page of 4 tokens for each of 4 sequences: raise it"));
    open_with(&b, 5 * KV_PAGE);
    make_job(&j, 15, 1);
    j.request.max_new = 7;
    assert_int_equal(ftx_engine_submit(b.engine, &j.request, &id, &err), FTX_EFULL);
    assert_string_equal(err.text, "a prompt of 15 and 7 new tokens need 6 KV pages of 4 tokens; there are 5: ask for "
                                  "less, or raise kv_bytes (--kv-memory)");
    j.request.max_new = 6; /* the last token needs no place */
    expect(&b, &j);
    submit(&b, &j);
    run(&b);
    compare(&j);
    assert_idle(b.engine);
    close_bed(&b);
}

/* Score needs pages for the whole text, a benchmark for all its sequences. */
static void test_score(void **state)
{
    FakeSizes sizes = fake_sizes();
    int32_t ids[22] = {0};
    float logprobs[22];
    double time;
    FtxError err;
    Bed b;

    (void)state;
    reset_fake(false, 0);
    open_bed(&b, &sizes);
    open_with(&b, 5 * KV_PAGE);
    assert_int_equal(ftx_engine_score(b.engine, ids, 21, logprobs, &err), FTX_EFULL);
    assert_string_equal(err.text, "21 tokens need 6 KV pages of 4 tokens; there are 5: raise kv_bytes (--kv-memory)");
    assert_int_equal(ftx_engine_bench(b.engine, 4, 1, 4, 1, &time, &time, &time, &err), FTX_EFULL);
    assert_string_equal(err.text, "4 sequences of 5 tokens need more than the 5 KV pages of 4 tokens: raise kv_bytes "
                                  "(--kv-memory)");
    close_bed(&b);
}

/* Pages that were given back are taken before new ones, the last one first; so memory is not touched without need. */
static void test_order(void **state)
{
    int32_t free_pages[6], taken[6];
    uint16_t users[6];
    Pages p = {.free = free_pages, .users = users};

    (void)state;
    pages_init(&p, 6);
    assert_true(pages_take(&p, taken, 3));
    for (int i = 0; i < 3; i++)
        assert_int_equal(taken[i], i);
    pages_give(&p, taken, 2); /* 1, then 0 */
    assert_int_equal(p.n, 5);
    assert_true(pages_take(&p, taken, 4));
    assert_int_equal(taken[0], 0);
    assert_int_equal(taken[1], 1);
    assert_int_equal(taken[2], 3);
    assert_int_equal(taken[3], 4);
    assert_false(pages_take(&p, taken, 2));
    assert_int_equal(p.n, 1);
    assert_true(pages_take(&p, taken, 1));
    assert_int_equal(taken[0], 5);
    assert_false(pages_take(&p, taken, 1));
    assert_int_equal(p.fresh, 6);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parts),   cmocka_unit_test(test_states),  cmocka_unit_test(test_pages),
        cmocka_unit_test(test_largest), cmocka_unit_test(test_operand), cmocka_unit_test(test_few),
        cmocka_unit_test(test_refused), cmocka_unit_test(test_score),   cmocka_unit_test(test_order),
        cmocka_unit_test(test_machine),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
