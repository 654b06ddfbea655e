/* test_allocations.c - memory is taken at open and nowhere else; where it is refused, open fails and
 * nothing is left behind. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "fake.h"

#if defined(__SANITIZE_ADDRESS__)
int main(void)
{
    return 0; /* the sanitizer has its own malloc */
}
#else
#include "count_malloc.h"

/* --- an allocator that an embedder brings ------------------------------------------------------------ */

typedef struct Ledger {
    int calls, fail_at, live;
    size_t bytes;
} Ledger;

static void *ledger_alloc(void *user, size_t bytes, size_t align)
{
    Ledger *l = user;
    void *p = NULL;

    if (++l->calls == l->fail_at)
        return NULL;
    assert_int_equal(posix_memalign(&p, align < 16 ? 16 : align, bytes), 0);
    memset(p, 0xcc, bytes); /* not zero: that is the runtime's work */
    l->live++;
    l->bytes += bytes;
    return p;
}

static void ledger_release(void *user, void *p, size_t bytes)
{
    Ledger *l = user;

    l->live--;
    l->bytes -= bytes;
    free(p);
}

/* --- one life ------------------------------------------------------------------------------------------ */

/* Opens, runs requests of all kinds, closes. during: allocations between open and close. */
static FtxStatus live_once(const FtxOptions *o, int *during)
{
    const int32_t prompt[] = {3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9, 3, 2, 3, 8, 4, 6, 2, 6, 4};
    const char *stop[] = {"abba"};
    FakeSizes sizes = fake_sizes();
    FakeArtifact artifact;
    FtxModel *m = NULL;
    FtxEngine *e = NULL;
    FtxEvent ev[8] = {FTX_EVENT_INIT};
    FtxError err = {FTX_OK, ""};
    uint64_t id[6];
    size_t n;
    FtxStatus s;

    fake_artifact(&artifact, &sizes);
    s = fake_model(&artifact, o, &m, &err);
    if (!s)
        s = ftx_engine_open(m, o, &e, &err);

    const int before = atomic_load(&calls);

    for (int i = 0; i < 6 && !s; i++) {
        FtxRequest q = ftx_request_default(m);

        q.ids = prompt;
        q.ids_count = (size_t)(4 * i + 1);
        q.text = i == 3 ? "abc" : NULL;
        q.ids = q.text ? NULL : q.ids;
        q.stop = stop;
        q.stop_count = (size_t)i % 2;
        q.logits = i == 2;
        q.seed = (uint64_t)i;
        s = ftx_engine_submit(e, &q, &id[i], &err);
    }
    for (int i = 0; !s && ftx_engine_busy(e); i++) {
        s = ftx_engine_step(e, ev, 8, &n, &err);
        if (i == 5)
            ftx_engine_cancel(e, id[5], &err);
    }
    fake.made_up = true;
    if (!s)
        s = ftx_engine_bench(e, 2, 1, 10, 20, &(double){0}, &(double){0}, &(double){0}, &err);
    fake.made_up = false;
    *during = atomic_load(&calls) - before;
    ftx_engine_close(e);
    ftx_model_close(m);
    assert_true(s == FTX_OK || *err.text);
    return s;
}

static void test_none_while_running(void **state)
{
    const FtxOptions keep = {.size = sizeof keep, .prefix_cache = 1};
    int during;

    (void)state;
    for (int i = 0; i < 4; i++) {
        fake = (FakeDevice){.asynchronous = i / 2};
        assert_int_equal(live_once(i % 2 ? &keep : NULL, &during), FTX_OK);
        assert_int_equal(during, 0);
        assert_string_equal(fake.wrong, "");
    }
}

static void test_every_malloc_fails(void **state)
{
    FtxStatus s = FTX_ENOMEM;
    int during, failed = 0;

    (void)state;
    fake = (FakeDevice){.asynchronous = false};
    for (int n = 1; s; n++) {
        const int before = atomic_load(&live);

        assert_true(n < 1000);
        atomic_store(&calls, 0);
        atomic_store(&fail_at, n);
        s = live_once(NULL, &during);
        atomic_store(&fail_at, 0);
        assert_true(s == FTX_OK || s == FTX_ENOMEM);
        assert_int_equal(atomic_load(&live), before);
        assert_int_equal(fake.sessions, 0);
        assert_int_equal(fake.opens, fake.closes);
        failed += s != FTX_OK;
    }
    assert_true(failed >= 6); /* model, device, tokenizer, engine, scratch, session */
}

static void test_every_own_allocation_fails(void **state)
{
    FtxStatus s = FTX_ENOMEM;
    int during;

    (void)state;
    fake = (FakeDevice){.asynchronous = false};
    for (int n = 1; s; n++) {
        Ledger l = {.fail_at = n};
        const FtxAllocator a = {ledger_alloc, ledger_release, &l};
        const FtxOptions o = {.size = sizeof(FtxOptions), .allocator = &a};

        s = live_once(&o, &during);
        assert_true(s == FTX_OK || s == FTX_ENOMEM);
        assert_int_equal(l.live, 0);
        assert_int_equal(l.bytes, 0);
        assert_true(s == FTX_OK || l.calls == n);
        assert_true(s != FTX_OK || n > 4);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_none_while_running),
        cmocka_unit_test(test_every_malloc_fails),
        cmocka_unit_test(test_every_own_allocation_fails),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
#endif
