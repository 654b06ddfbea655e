/* test_device_masks.c - a run in two parts on the fake driver: which launches are in which, and that masks are copied before
 * the kernel that reads them and after the host has written them. */
#include "world.h"

#include "runtime/device/cuda/device_cuda.h"

enum { VOCAB = 70, MASK_WORDS = 3, MASKS_AT = 6400 };

/* The last kernel of each program is `mask`. */
static World *masked_world(void)
{
    World *w = world();

    w->t.kernels[SAMPLE].family = STR_MASK;
    w->t.facts.vocab = VOCAB;
    w->t.head.named[FTX_NAMED_mask] = MASKS_AT;
    w->t.head.named_bytes[FTX_NAMED_mask] = SEQUENCES * MASK_WORDS * 4;
    return w;
}

static uint32_t seen[SEQUENCES][MASK_WORDS]; /* by the last launch of `mask` */

static void look(const FakeLaunch *l)
{
    if (strcmp(l->kernel, "sample__x") == 0) /* its first operand is at 1024 of STATE */
        memcpy(seen, (const char *)(uintptr_t)l->param[0] - 1024 + MASKS_AT, sizeof seen);
}

/* Masks that the host writes after the first part is enqueued are those that the second part reads; rows that are not named
 * keep theirs. All work is done as late as it may be. */
static void masks_come_between(void **state)
{
    static const uint32_t programs[] = {STEP_16, DECODE_4, STEP_ANY};

    (void)state;
    for (size_t i = 0; i < sizeof programs / sizeof *programs; i++) {
        const uint32_t program = programs[i];
        World *w = masked_world();
        uint32_t *masks;
        Device *d;
        Session *s;

        open_both(w, &one_thread, &d, &s);
        masks = device_cuda.masks(s);
        assert_non_null(masks);
        fake.late = true;
        fake.execute = look;
        for (uint32_t run = 1; run < 4; run++) {
            memset(seen, 0xff, sizeof seen);
            fake.n_run = 0;
            must(device_cuda.begin(s, program, 4, 4, NULL), NULL);
            assert_int_equal(fake.n_run, 2);
            assert_int_equal(fake.run[0].in_graph, program != STEP_ANY);
            assert_int_equal(fake.run[0].grid[0], program == STEP_16 ? 16 : 4);
            for (uint32_t k = 0; k < SEQUENCES * MASK_WORDS; k++)
                masks[k] = 100 * run + k;
            must(device_cuda.finish(s, program, 4, 4, 1, 2, NULL), NULL);
            assert_int_equal(fake.n_run, 3);
            assert_string_equal(fake.run[2].kernel, "sample__x");
            assert_false(fake.run[2].overlap); /* it waits for the copy */
            must(device_cuda.wait(s, NULL), NULL);
            for (uint32_t row = 0; row < SEQUENCES; row++)
                for (uint32_t k = 0; k < MASK_WORDS; k++)
                    assert_int_equal(seen[row][k], row == 1 || row == 2 ? 100 * run + row * MASK_WORDS + k : 0);
        }
        must(device_cuda.run(s, program, 4, 4, 1, NULL), NULL); /* no row has a mask: as a whole */
        assert_int_equal(fake.n_run, 6);
        fake.late = false;
        close_both(w, d, s);
    }
}

/* No row has one: nothing is copied. Rows that are not there are refused. */
static void no_more_than_there_are(void **state)
{
    World *w = masked_world();
    FtxError err = {0};
    Device *d;
    Session *s;
    int copies;

    (void)state;
    open_both(w, &one_thread, &d, &s);
    copies = fake.from_host;
    must(device_cuda.begin(s, DECODE_4, 4, 4, NULL), NULL);
    must(device_cuda.finish(s, DECODE_4, 4, 4, 0, 0, NULL), NULL);
    assert_int_equal(fake.from_host, copies);
    must(device_cuda.begin(s, DECODE_4, 4, 4, NULL), NULL);
    assert_int_equal(device_cuda.finish(s, DECODE_4, 4, 4, 3, 2, &err), FTX_EINVAL);
    assert_string_equal(err.text, "bytes 36 to 60 of $mask are outside of it");
    assert_int_equal(device_cuda.begin(s, DECODE_4, 5, 5, &err), FTX_EINVAL);
    assert_int_equal(device_cuda.finish(s, PROGRAMS, 4, 4, 0, 1, &err), FTX_EINVAL);
    close_both(w, d, s);
}

/* While kernels are profiled, all launches come with the second part; also if that was not so when the first was asked for. */
static void watched_programs_run_whole(void **state)
{
    World *w = masked_world();
    const FtxProfile *rows;
    Device *d;
    Session *s;
    size_t n;

    (void)state;
    open_both(w, &one_thread, &d, &s);
    must(device_cuda.profile(s, true, &rows, &n, NULL), NULL);
    fake.n_run = 0;
    must(device_cuda.begin(s, DECODE_4, 4, 4, NULL), NULL);
    assert_int_equal(fake.n_run, 0);
    must(device_cuda.profile(s, false, &rows, &n, NULL), NULL);
    must(device_cuda.finish(s, DECODE_4, 4, 4, 0, 4, NULL), NULL);
    assert_int_equal(fake.n_run, 3);
    must(device_cuda.begin(s, DECODE_4, 4, 4, NULL), NULL);
    must(device_cuda.profile(s, true, &rows, &n, NULL), NULL);
    must(device_cuda.finish(s, DECODE_4, 4, 4, 0, 4, NULL), NULL);
    assert_int_equal(fake.n_run, 6);
    close_both(w, d, s);
}

/* A plan without masks has no memory, graphs or streams for them. */
static void other_plans_have_none(void **state)
{
    int execs[2], streams[2], events[2];
    size_t pinned[2];

    (void)state;
    for (int masks = 0; masks < 2; masks++) {
        World *w = masks ? masked_world() : world();
        Device *d;
        Session *s;

        open_both(w, &one_thread, &d, &s);
        assert_int_equal(device_cuda.masks(s) != NULL, masks);
        execs[masks] = fake.execs;
        streams[masks] = fake.streams;
        events[masks] = fake.events;
        pinned[masks] = s->pinned_bytes;
        close_both(w, d, s);
    }
    assert_int_equal(execs[1], execs[0] + 4);
    assert_int_equal(streams[1], streams[0] + 1);
    assert_int_equal(events[1], events[0] + 1);
    assert_int_equal(pinned[1], pinned[0] + 4096);
}

static unsigned long closing; /* the first call of the driver by which the scenario closes */

static FtxStatus scenario(World *w, FtxError *err)
{
    Device *d = NULL;
    Session *s = NULL;
    uint32_t pages;
    FtxStatus status = device_cuda.open(&w->t.artifact, &w->t.plan, &one_thread, &d, err);

    if (!status)
        status = device_cuda.session_open(d, 0, &s, &pages, err);
    if (!status)
        status = device_cuda.begin(s, DECODE_4, 4, 4, err);
    if (!status)
        status = device_cuda.finish(s, DECODE_4, 4, 4, 0, 4, err);
    if (!status)
        status = device_cuda.wait(s, err);
    closing = fake.calls + 1;
    device_cuda.session_close(s);
    device_cuda.close(d);
    return status;
}

/* Each call of the driver fails once; one that gives something back may fail in silence. */
static void every_call_may_fail(void **state)
{
    unsigned long n, loud = 0;

    (void)state;
    for (n = 1;; n++) {
        World *w = masked_world();
        FtxError err = {0};
        FtxStatus status;

        fake_reset();
        fake.contexts = 1; /* the program's own: nothing goes with the device's */
        fake.fail_at = n;
        status = scenario(w, &err);
        free(w);
        if (!fake.failed)
            break;
        loud += status != FTX_OK;
        if (!status && n < closing && !strstr(fake.failed, "Pop") && !strstr(fake.failed, "Destroy") &&
            !strstr(fake.failed, "Free"))
            fail_msg("%s failed, and nobody heard of it", fake.failed);
        if (strcmp(fake.failed, "fake_CtxPushCurrent") != 0)
            assert_int_equal(fake_open_things(), 1);
    }
    assert_true(loud > 60);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(masks_come_between, reset),
        cmocka_unit_test_setup(no_more_than_there_are, reset),
        cmocka_unit_test_setup(watched_programs_run_whole, reset),
        cmocka_unit_test_setup(other_plans_have_none, reset),
        cmocka_unit_test_setup(every_call_may_fail, reset),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
