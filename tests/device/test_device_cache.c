/* test_device_cache.c - the KV cache of the CUDA device on the fake driver: how many pages, where operands lie. */
#include "world.h"

#include "runtime/device/cache.h"

enum { PAGE = 4096, LIMIT = 1000, OFFSET = 256, RESERVE_PART = 50 };

/* The first operand of every `sample` is byte OFFSET of a page. */
static World *world_with_pages(void)
{
    World *w = world();

    w->t.facts.kv_pages = LIMIT;
    w->t.head.space_bytes[FTX_SPACE_PAGES] = PAGE;
    for (uint32_t i = 0; i < w->t.n_launches; i++)
        if (w->t.launches[i].kernel == SAMPLE)
            w->t.operands[w->t.launches[i].first_operand] = (FtxOperand){.space = FTX_SPACE_PAGES, .offset = OFFSET};
    return w;
}

static Device *open_device(World *w)
{
    Device *d;
    FtxError err;

    must(device_cuda.open(&w->t.artifact, &w->t.plan, &one_thread, &d, &err), &err);
    return d;
}

static Session *open_session(Device *d, uint64_t kv_bytes, uint32_t pages)
{
    Session *s;
    uint32_t got = 0;
    FtxError err;

    must(device_cuda.session_open(d, kv_bytes, &s, &got, &err), &err);
    assert_int_equal(got, pages);
    return s;
}

static void refuse_session(Device *d, uint64_t kv_bytes, FtxStatus status, const char *why)
{
    const int open = fake_open_things();
    const size_t left = fake.free_bytes;
    Session *s;
    uint32_t pages = 0;
    FtxError err = {FTX_OK, ""};

    assert_int_equal(device_cuda.session_open(d, kv_bytes, &s, &pages, &err), status);
    assert_null(s);
    if (!strstr(err.text, why))
        fail_msg("'%s' is not in '%s'", why, err.text);
    assert_int_equal(fake_open_things(), open);
    assert_int_equal(fake.free_bytes, left);
}

/* Device memory that an engine takes beside its pages. */
static size_t other_bytes(Device *d)
{
    const size_t before = fake.free_bytes;
    Session *s = open_session(d, (uint64_t)LIMIT * PAGE, LIMIT);
    const size_t taken = before - fake.free_bytes;

    device_cuda.session_close(s);
    assert_int_equal(fake.free_bytes, before);
    return taken - (size_t)LIMIT * PAGE;
}

static char *page_memory;

static void leave_traces(const FakeLaunch *l)
{
    if (strcmp(l->kernel, "sample__x") != 0)
        return;
    page_memory = (char *)(uintptr_t)l->param[0];
    memset(page_memory, 0x5a, 64);
}

/* An operand begins behind its offset in all pages; all pages are zero, whatever the memory held and warm-ups left. */
static void operands_scale(void **state)
{
    static const uint32_t counts[] = {SEQUENCES, 7, LIMIT};

    (void)state;
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        World *w = world_with_pages();
        Device *d = open_device(w);
        Session *s;
        const char *from;

        fake.execute = leave_traces;
        page_memory = NULL;
        s = open_session(d, (uint64_t)counts[i] * PAGE, counts[i]);
        fake.execute = NULL;
        must(device_cuda.run(s, STEP_16, 3, 2, 1, NULL), NULL);
        from = (char *)(uintptr_t)last_runs(3)[2].param[0] - (size_t)OFFSET * counts[i];
        assert_true(fake_holds((CUdeviceptr)(uintptr_t)from, (size_t)counts[i] * PAGE));
        assert_false(fake_holds((CUdeviceptr)(uintptr_t)from, (size_t)counts[i] * PAGE + 1));
        for (size_t b = 0; b < (size_t)counts[i] * PAGE; b++)
            assert_int_equal(from[b], 0);
        close_both(w, d, s);
    }
}

/* The TMA descriptor of a part of the pages has the rows of all pages. */
static void tiles_scale(void **state)
{
    enum { ROWS = 24, COLUMNS = 64, BOX = 8, PAGES = 7 };
    World *w = world_with_pages();
    FakeDescriptor got;
    Device *d;
    Session *s;

    (void)state;
    for (uint32_t i = 0; i < w->t.n_launches; i++)
        if (w->t.launches[i].kernel == SAMPLE)
            w->t.operands[w->t.launches[i].first_operand] = (FtxOperand){.space = FTX_SPACE_PAGES,
                                                                         .offset = OFFSET,
                                                                         .tile_rows = BOX,
                                                                         .rows = ROWS,
                                                                         .columns = COLUMNS,
                                                                         .type = DT_BF16};
    d = open_device(w);
    s = open_session(d, (uint64_t)PAGES * PAGE, PAGES);
    must(device_cuda.run(s, STEP_16, 3, 2, 1, NULL), NULL);
    memcpy(&got, (const void *)(uintptr_t)last_runs(3)[2].param[0], sizeof got);
    assert_int_equal(got.rows, ROWS * PAGES);
    assert_int_equal(got.columns, COLUMNS);
    assert_int_equal(got.tile_rows, BOX);
    assert_true(fake_holds(got.matrix - (CUdeviceptr)OFFSET * PAGES, (size_t)PAGES * PAGE));
    assert_false(fake_holds(got.matrix - (CUdeviceptr)OFFSET * PAGES, (size_t)PAGES * PAGE + 1));
    close_both(w, d, s);
}

/* Without kv_bytes: what is free less 1 / 50 of all memory, up to the limits. */
static void takes_what_is_free(void **state)
{
    static const size_t reserve = ((size_t)1 << 37) / RESERVE_PART;
    World *w = world_with_pages();
    Device *d = open_device(w);
    const size_t others = other_bytes(d);

    (void)state;
    for (uint32_t pages = SEQUENCES - 1; pages < LIMIT + 2; pages += pages < SEQUENCES ? 1 : 497) {
        const size_t all = fake.free_bytes;

        fake.free_bytes = reserve + others + (size_t)pages * PAGE + PAGE - 1;
        if (pages < SEQUENCES)
            refuse_session(d, 0, FTX_EDEVICE, "one page of 16 tokens for each of 4 sequences; free are 2748.8 MB, ");
        else
            device_cuda.session_close(open_session(d, 0, pages < LIMIT ? pages : LIMIT));
        fake.free_bytes = all;
    }
    close_both(w, d, NULL);
}

/* The first of two engines takes all, unless each is given its part. */
static void two_side_by_side(void **state)
{
    static const size_t reserve = ((size_t)1 << 37) / RESERVE_PART;
    World *w = world_with_pages();
    Device *d = open_device(w);
    const size_t others = other_bytes(d);
    Session *s, *t;

    (void)state;
    fake.free_bytes = reserve + 2 * others + 100 * PAGE;
    s = open_session(d, 0, (uint32_t)(100 + others / PAGE));
    refuse_session(d, 0, FTX_EDEVICE, "free memory, give other engines less with kv_bytes (--kv-memory)");
    t = open_session(d, 9 * PAGE, 9); /* in the reserve */
    device_cuda.session_close(s);
    s = open_session(d, 60 * PAGE + 1, 60);
    refuse_session(d, (SEQUENCES - 1) * PAGE, FTX_EINVAL, "raise it");
    device_cuda.session_close(t);
    close_both(w, d, s);
}

/* kv_bytes beyond what is free, and memory that another program takes in between. */
static void more_than_there_is(void **state)
{
    World *w = world_with_pages();
    Device *d = open_device(w);
    const size_t others = other_bytes(d), all = fake.free_bytes;

    (void)state;
    fake.free_bytes = others + 50 * PAGE;
    refuse_session(d, 51 * PAGE, FTX_EDEVICE,
                   "needs 0.2 MB with kv_bytes (--kv-memory) of 0.2 MB, and 0.2 MB are free");
    device_cuda.session_close(open_session(d, 50 * PAGE, 50));
    fake.free_bytes = all;
    close_both(w, d, NULL);
}

/* A page goes to pinned memory and comes back to another place, in the order of the calls; no other byte changes. */
static void pages_are_kept(void **state)
{
    enum { PAGES = 8, KEPT = 3, FROM = 3, TO = 5 };
    static const FtxCache caches[] = {{.kv_heads = 1, .k_dim = 16, .v_dim = 8, .type = DT_FP32},
                                      {.kv_heads = 2, .k_dim = 4, .v_dim = 12, .type = DT_FP32}};
    World *w = world_with_pages();
    const uint64_t block = w->t.facts.kv_block, keys = block * 4 * (16 + 8), values = block * 4 * (8 + 24);
    static char before[PAGES * PAGE];
    CachePart p, q;
    Device *d;
    int pinned;
    Session *s;
    FtxError err;
    char *kv;

    (void)state;
    assert_true(keys + values <= PAGE);
    w->t.plan.caches = caches;
    w->t.plan.n_caches = 2;
    w->t.head.space_bytes[FTX_SPACE_PAGES] = keys + values;
    w->t.head.named[FTX_NAMED_k] = 0;
    w->t.head.named[FTX_NAMED_v] = keys;
    d = open_device(w);
    pinned = fake.pinned;
    s = open_session(d, PAGES * (keys + values), PAGES);
    must(device_cuda.keep_open(s, KEPT, &err), &err);
    must(device_cuda.run(s, STEP_16, 3, 2, 1, NULL), NULL);
    must(device_cuda.wait(s, &err), &err);
    fake.late = true;
    kv = (char *)(uintptr_t)last_runs(3)[2].param[0] - (size_t)OFFSET * PAGES;
    for (size_t i = 0; i < PAGES * (keys + values); i++)
        kv[i] = before[i] = (char)(i * 7 + i / 251);
    must(device_cuda.keep(s, 2, FROM, false, &err), &err);
    must(device_cuda.keep(s, 2, TO, true, &err), &err);
    assert_memory_equal(kv, before, PAGES * (keys + values)); /* nothing has waited for a copy */
    must(device_cuda.wait(s, &err), &err);
    for (uint32_t i = 0; cache_part(&w->t.artifact, &w->t.plan, PAGES, FROM, i, &p); i++) {
        assert_true(cache_part(&w->t.artifact, &w->t.plan, PAGES, TO, i, &q));
        memcpy(before + q.at, before + p.at, p.bytes);
    }
    assert_memory_equal(kv, before, PAGES * (keys + values));
    assert_int_equal(device_cuda.keep(s, KEPT, 0, false, &err), FTX_EINVAL);
    assert_int_equal(device_cuda.keep(s, 0, PAGES, true, &err), FTX_EINVAL);
    assert_string_equal(err.text, "page 8 of 8, page 0 of 3 outside of the cache");
    device_cuda.session_close(s);
    assert_int_equal(fake.pinned, pinned);
    close_both(w, d, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(operands_scale, reset),     cmocka_unit_test_setup(tiles_scale, reset),
        cmocka_unit_test_setup(takes_what_is_free, reset), cmocka_unit_test_setup(two_side_by_side, reset),
        cmocka_unit_test_setup(more_than_there_is, reset), cmocka_unit_test_setup(pages_are_kept, reset),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
