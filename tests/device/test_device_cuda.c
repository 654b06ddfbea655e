/* test_device_cuda.c - the CUDA device over a driver that writes everything down: what is loaded and
 * launched, in which order and with which edges. */
#ifdef FTX_HAVE_CUDA
#include <math.h>

#include "world.h"

static void probe_names_the_target(void **state)
{
    uint32_t target;
    char name[100];
    FtxError err;

    (void)state;
    assert_int_equal(device_cuda_probe(0, &target, &err), FTX_OK);
    assert_int_equal(target, 901);
    fake.cc = 86;
    assert_int_equal(device_cuda_probe(0, &target, &err), FTX_OK);
    assert_int_equal(target, 860);
    assert_int_equal(device_cuda_name(0, name, sizeof name, &err), FTX_OK);
    assert_string_equal(name, "Fake GPU 0");
    assert_int_equal(device_cuda_name(3, name, sizeof name, &err), FTX_ENODEVICE);
    assert_int_equal(device_cuda_probe(3, &target, &err), FTX_ENODEVICE);
    assert_string_equal(err.text, "no GPU 3: there is 1, counted from 0");
    assert_int_equal(device_cuda_probe(1, &target, &err), FTX_ENODEVICE);
    assert_int_equal(device_cuda_probe(-1, &target, &err), FTX_ENODEVICE);
    fake.gpus = 0;
    assert_int_equal(device_cuda_probe(0, &target, &err), FTX_ENODEVICE);
    assert_string_equal(err.text, "the CUDA driver sees no GPU");
}

static void code_must_be_for_the_gpu(void **state)
{
    static const struct {
        uint32_t target;
        int cc;
        bool fits;
    } rows[] = {{901, 90, true},  {901, 100, false}, {901, 80, false}, {800, 86, true},  {800, 80, true},
                {860, 80, false}, {890, 90, false},  {802, 120, true}, {902, 89, false}, {902, 90, true}};
    World *w = world();

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        Device *d;
        FtxError err = {0};

        w->t.head.target = rows[i].target;
        fake.cc = rows[i].cc;
        const FtxStatus s = device_cuda.open(&w->t.artifact, &w->t.plan, &one_thread, &d, &err);
        assert_int_equal(s, rows[i].fits ? FTX_OK : FTX_ENODEVICE);
        if (s)
            assert_non_null(strstr(err.text, "compute capability"));
        device_cuda.close(d);
        assert_int_equal(fake_open_things(), 0);
    }
    free(w);
}

/* A bucket's program is one graph, its grids those of the bucket; kernels that may overlap have a
 * programmatic edge, but for a program's first. */
static void buckets_run_as_graphs(void **state)
{
    World *w = world();
    Device *d;
    Session *s;

    (void)state;
    open_both(w, &one_thread, &d, &s);
    assert_int_equal(fake.execs, 3); /* the decode program's chain is the third */
    assert_int_equal(fake.graphs, 0);
    fake.n_run = 0;
    must(device_cuda.run(s, STEP_16, 3, 2, 1, NULL), NULL);
    assert_int_equal(fake.n_run, 3);
    const FakeLaunch *l = last_runs(3);
    assert_string_equal(l[0].kernel, "embed__x");
    assert_string_equal(l[1].kernel, "linear__x");
    assert_string_equal(l[2].kernel, "sample__x");
    assert_true(l[0].in_graph && l[1].in_graph && l[2].in_graph);
    assert_false(l[0].overlap);
    assert_true(l[1].overlap && l[2].overlap);
    assert_int_equal(l[0].grid[0], 16);
    assert_int_equal(l[1].grid[0], 16);
    assert_int_equal(l[1].grid[1], 2);
    assert_int_equal(l[1].grid[2], 1);
    assert_int_equal(l[1].block, 256);
    assert_int_equal(l[1].smem, 100000);
    assert_int_equal(l[2].grid[0], SEQUENCES);
    /* the operands: spaces and offsets, a NULL for what is absent */
    assert_int_equal(l[1].n_params, 4);
    assert_int_equal(l[1].param[0], l[0].param[2]);
    assert_int_equal(l[1].param[1], l[0].param[1] + 256);
    assert_int_equal(l[1].param[2], 0);
    assert_int_equal(l[1].param[3], l[0].param[2] + 131072);
    assert_true(fake_holds(l[1].param[3], 200000 - 131072));
    assert_ptr_equal((void *)(uintptr_t)l[2].param[1], device_cuda.out(s));
    must(device_cuda.run(s, DECODE_4, 4, 4, 1, NULL), NULL);
    assert_int_equal(last_runs(3)[0].grid[0], 4);
    close_both(w, d, s);
}

/* Several runs of a decode program: FTX_CHAIN in one graph, only the first of which waits for all that came before. */
static void decode_programs_run_as_chains(void **state)
{
    World *w = world();
    Device *d;
    Session *s;

    (void)state;
    open_both(w, &one_thread, &d, &s);
    fake.n_run = 0;
    must(device_cuda.run(s, DECODE_4, 4, 4, 2 * FTX_CHAIN + 1, NULL), NULL);
    assert_int_equal(fake.n_run, 3 * (2 * FTX_CHAIN + 1));
    for (int run = 0; run < 2 * FTX_CHAIN + 1; run++) {
        const FakeLaunch *l = &fake.run[3 * run];

        assert_string_equal(l[0].kernel, "embed__x");
        assert_true(l[0].in_graph && l[0].overlap == (run % FTX_CHAIN != 0));
        assert_true(l[1].overlap && l[2].overlap);
    }
    fake.n_run = 0;
    must(device_cuda.run(s, DECODE_4, 4, 4, FTX_CHAIN - 1, NULL), NULL);
    assert_int_equal(fake.n_run, 3 * (FTX_CHAIN - 1));
    fake.n_run = 0;
    must(device_cuda.run(s, STEP_16, 3, 2, FTX_CHAIN, NULL), NULL); /* no decode program */
    assert_int_equal(fake.n_run, 3 * FTX_CHAIN);
    for (int run = 0; run < FTX_CHAIN; run++)
        assert_false(fake.run[3 * run].overlap);
    must(device_cuda.run(s, STEP_ANY, 100, 3, 2, NULL), NULL);
    assert_int_equal(fake.n_run, 3 * FTX_CHAIN + 6);
    close_both(w, d, s);
}

/* Without a bucket the grids follow T and S; the matrix product takes exactly T rows. */
static void exact_programs_follow_T(void **state)
{
    World *w = world();
    Device *d;
    Session *s;
    const FakeLaunch *l;

    (void)state;
    open_both(w, &one_thread, &d, &s);
    must(device_cuda.run(s, STEP_ANY, 100, 3, 1, NULL), NULL);
    l = last_runs(3);
    assert_false(l[0].in_graph || l[0].overlap);
    assert_int_equal(l[0].grid[0], 100);
    assert_string_equal(l[1].kernel, "lt");
    assert_int_equal(l[1].m, 100);
    assert_int_equal(l[1].n, N);
    assert_int_equal(l[1].k, K);
    assert_true(l[1].beta == 1.0f);
    assert_int_equal(l[1].param[0], l[0].param[2]);
    assert_int_equal(l[1].param[1], l[0].param[1] + 256);
    assert_int_equal(l[1].param[2], l[0].param[1] + 16384);
    assert_int_equal(l[1].param[3], l[0].param[2] + 65536);
    assert_int_equal(l[1].param[4], l[0].param[2] + 131072);
    assert_int_equal(l[2].grid[0], 3);
    assert_true(l[2].overlap);
    must(device_cuda.run(s, STEP_ANY, 17, 1, 1, NULL), NULL);
    assert_int_equal(last_runs(3)[0].grid[0], 17);
    assert_int_equal(last_runs(2)[0].m, 17);
    must(device_cuda.run(s, STEP_ANY, 17, 2, 1, NULL), NULL);
    assert_int_equal(last_runs(1)[0].grid[0], 2);
    close_both(w, d, s);
}

/* A product whose rows are sequences, not tokens: of the LM head. */
static void products_of_rows_follow_S(void **state)
{
    World *w = world();
    Device *d;
    Session *s;

    (void)state;
    w->t.consts[FTX_MM_ROWS_S] = 1;
    open_both(w, &one_thread, &d, &s);
    must(device_cuda.run(s, STEP_ANY, 100, 3, 1, NULL), NULL);
    assert_int_equal(last_runs(2)[0].m, 3);
    close_both(w, d, s);
}

/* Two launches of equal products share one plan, which is closed once. */
static void equal_products_share_a_plan(void **state)
{
    enum { LONGER = PROGRAMS };
    World *w = world();
    Device *d;
    Session *s;

    (void)state;
    w->t.programs[LONGER] = (FtxProgram){.kind = FTX_PROG_STEP, .first_launch = w->t.n_launches, .n_launches = 2};
    linear(&w->t, true);
    linear(&w->t, true);
    w->t.plan.n_programs++;
    w->t.plan.n_launches = w->t.n_launches;
    w->t.plan.n_operands = w->t.n_operands;
    open_both(w, &one_thread, &d, &s);
    fake.n_run = 0;
    must(device_cuda.run(s, LONGER, 70, 1, 1, NULL), NULL);
    assert_int_equal(fake.n_run, 2);
    assert_int_equal(last_runs(2)[0].algo, last_runs(2)[1].algo);
    close_both(w, d, s);
}

/* Kernels of one image share its module, which is unloaded once. */
static void kernels_share_a_module(void **state)
{
    World *w = world();
    Device *d;
    Session *s;

    (void)state;
    open_both(w, &one_thread, &d, &s);
    assert_int_equal(fake.modules, 4);
    close_both(w, d, s);
    w = world();
    w->t.kernels[RANDOM] = w->t.kernels[EMBED];
    open_both(w, &one_thread, &d, &s);
    assert_int_equal(fake.modules, 3);
    close_both(w, d, s);
    assert_int_equal(fake.modules, 0);
}

/* Grids that are too large are refused, also when the same step is tried again. */
static void large_grids_are_refused(void **state)
{
    World *w = world();
    Device *d;
    Session *s;
    FtxError err;

    (void)state;
    w->t.launches[w->t.programs[STEP_ANY].first_launch].kernel = RANDOM; /* of two operands: the ids and a weight */
    w->t.kernels[RANDOM].grid[0][1] = 0;
    grid(&w->t, RANDOM, 1, "T * 1000");
    w->t.plan.n_exprs = w->t.n_exprs;
    open_both(w, &one_thread, &d, &s);
    must(device_cuda.run(s, STEP_ANY, 65, 1, 1, NULL), NULL);
    for (int i = 0; i < 2; i++) {
        fake.n_run = 0;
        assert_int_equal(device_cuda.run(s, STEP_ANY, 66, 1, 1, &err), FTX_EFORMAT);
        assert_string_equal(err.text, "random: a grid of 66000 blocks in direction 1");
        assert_int_equal(fake.n_run, 0);
    }
    must(device_cuda.run(s, STEP_ANY, 65, 1, 1, NULL), NULL);
    assert_int_equal(last_runs(3)[0].grid[1], 65000);
    close_both(w, d, s);
}

static void older_gpus_do_not_overlap(void **state)
{
    World *w = world();
    Device *d;
    Session *s;

    (void)state;
    fake.cc = 80;
    w->t.head.target = 800;
    open_both(w, &one_thread, &d, &s);
    must(device_cuda.run(s, STEP_16, 1, 1, 1, NULL), NULL);
    for (int i = 0; i < 3; i++)
        assert_false(last_runs(3)[i].overlap);
    close_both(w, d, s);
}

/* From open to close nothing is allocated on the device, pinned or not. */
static void steps_allocate_nothing(void **state)
{
    World *w = world();
    Device *d;
    Session *s;
    char row[128] = "";

    (void)state;
    open_both(w, &one_thread, &d, &s);
    const int before = fake.driver_calls_that_allocate, events = fake.events, execs = fake.execs;
    for (int i = 0; i < 100; i++) {
        must(device_cuda.write(s, FTX_NAMED_pages, 0, row, sizeof row, NULL), NULL);
        must(device_cuda.upload(s, 1000, NULL), NULL);
        must(device_cuda.run(s, (uint32_t)i % PROGRAMS, 1 + i % 4, 1, 1, NULL), NULL);
        must(device_cuda.wait(s, NULL), NULL);
    }
    assert_int_equal(fake.driver_calls_that_allocate, before);
    assert_int_equal(fake.events, events);
    assert_int_equal(fake.execs, execs);
    close_both(w, d, s);
}

static void wrong_runs_are_refused(void **state)
{
    World *w = world();
    Device *d;
    Session *s;
    FtxError err;

    (void)state;
    open_both(w, &one_thread, &d, &s);
    fake.n_run = 0;
    assert_int_equal(device_cuda.run(s, STEP_16, 17, 1, 1, &err), FTX_EINVAL);
    assert_string_equal(err.text, "17 tokens in 1 rows do not fit a program for 16 and 4");
    assert_int_equal(device_cuda.run(s, STEP_ANY, TOKENS + 1, 1, 1, &err), FTX_EINVAL);
    assert_int_equal(device_cuda.run(s, STEP_ANY, 0, 1, 1, &err), FTX_EINVAL);
    assert_int_equal(device_cuda.run(s, STEP_ANY, 9, SEQUENCES + 1, 1, &err), FTX_EINVAL);
    assert_int_equal(device_cuda.run(s, PROGRAMS, 1, 1, 1, &err), FTX_EINVAL);
    assert_int_equal(fake.n_run, 0);
    close_both(w, d, s);
}

static void profile_and_time(void **state)
{
    World *w = world();
    Device *d;
    Session *s;
    const FtxProfile *rows;
    size_t n;
    double times[150];

    (void)state;
    open_both(w, &one_thread, &d, &s);
    must(device_cuda.profile(s, true, &rows, &n, NULL), NULL);
    must(device_cuda.run(s, STEP_16, 1, 1, 1, NULL), NULL);
    must(device_cuda.run(s, STEP_ANY, 50, 1, 1, NULL), NULL);
    assert_false(last_runs(1)->in_graph);
    assert_int_equal(n, KERNELS);
    assert_string_equal(rows[EMBED].kernel, "embed__x");
    assert_int_equal(rows[EMBED].launches, 2);
    assert_true(rows[EMBED].time_us == 500.0);
    assert_int_equal(rows[LINEAR].launches, 1);
    assert_int_equal(rows[MATMUL].launches, 1);
    assert_true(rows[MATMUL].matmul && !rows[LINEAR].matmul);
    fake.n_run = 0;
    must(device_cuda.time(s, DECODE_4, 4, 4, 5, times, NULL), NULL);
    assert_int_equal(fake.n_run, 5 * 3);
    assert_false(last_runs(1)->in_graph); /* ftxc tune takes the times of kernels from it */
    for (int i = 0; i < 5; i++)
        assert_true(times[i] == 3 * 250.0);
    assert_int_equal(rows[EMBED].launches, 7);
    must(device_cuda.run(s, STEP_16, 1, 1, 1, NULL), NULL);
    assert_int_equal(rows[EMBED].launches, 8);
    must(device_cuda.profile(s, false, &rows, &n, NULL), NULL);
    fake.n_run = 0;
    must(device_cuda.time(s, DECODE_4, 4, 4, 150, times, NULL), NULL);
    assert_int_equal(fake.n_run, 150 * 3);
    assert_true(last_runs(1)->in_graph);
    for (int i = 0; i < 150; i++)
        assert_true(times[i] == 250.0);
    assert_int_equal(rows[EMBED].launches, 8);
    must(device_cuda.run(s, STEP_16, 1, 1, 1, NULL), NULL);
    assert_true(last_runs(1)->in_graph);
    close_both(w, d, s);
}

static void sync_names_launches(void **state)
{
    World *w = world();
    Device *d;
    Session *s;
    FtxError err;

    (void)state;
    setenv("FTX_SYNC", "1", 1);
    open_both(w, &one_thread, &d, &s);
    unsetenv("FTX_SYNC");
    must(device_cuda.run(s, STEP_16, 1, 1, 1, NULL), NULL);
    assert_false(last_runs(1)->in_graph);
    for (unsigned long n = 1; n < 20; n++) { /* until it is the wait that fails */
        fake.fail_at = fake.calls + n;
        if (device_cuda.run(s, STEP_16, 1, 1, 1, &err) && !strcmp(fake.failed, "fake_StreamQuery"))
            break;
    }
    assert_string_equal(err.text, "in embedding (embed__x): CUDA_ERROR_UNKNOWN (made to fail)");
    close_both(w, d, s);
}

/* Values and logits are looked at after each launch; scratch and leftovers are not. */
static void nan_is_found(void **state)
{
    static const FtxBuffer buffers[] = {
        {.name = STR_VALUE,
         .space = FTX_SPACE_WORK,
         .program = STEP_16,
         .first = 1,
         .offset = 131072,
         .bytes = 16 * 256},
        {.name = STR_LABEL1, .space = FTX_SPACE_WORK, .program = STEP_16, .first = 1, .offset = 4096, .bytes = 4096},
    };
    World *w = world();
    Device *d;
    Session *s;
    FtxError err = {0};

    (void)state;
    w->t.plan.buffers = buffers;
    w->t.plan.n_buffers = 2;
    w->t.head.compute_type = DT_BF16;
    w->t.head.named[FTX_NAMED_logits] = 1024;
    w->t.facts.vocab = 100;
    setenv("FTX_NAN", "1", 1);
    open_both(w, &one_thread, &d, &s);
    unsetenv("FTX_NAN");
    must(device_cuda.run(s, STEP_16, 8, 4, 1, &err), &err);
    uint16_t *value = (uint16_t *)(uintptr_t)last_runs(2)[0].param[3];
    float *logits = (float *)(uintptr_t)last_runs(1)[0].param[0];
    value[8 * 128] = 0x7fc0; /* not live */
    value[-63488] = 0x7fc0;  /* scratch */
    logits[400] = NAN;       /* the fifth row's */
    must(device_cuda.run(s, STEP_16, 8, 4, 1, &err), &err);
    logits[399] = INFINITY;
    assert_int_equal(device_cuda.run(s, STEP_16, 8, 4, 1, &err), FTX_EDEVICE);
    assert_string_equal(err.text, "head (sample__x): element 399 is not a finite number");
    value[700] = 0x7f80;
    assert_int_equal(device_cuda.run(s, STEP_16, 8, 4, 1, &err), FTX_EDEVICE);
    assert_string_equal(err.text, "layer 0: up (linear__x): element 700 is not a finite number");
    close_both(w, d, s);
}

/* `ftxc tune` gets the library's algorithms with the time of a launch each; one that fails has none. */
static void algorithms_are_timed(void **state)
{
    World *w = world();
    DeviceAlgorithm a[8];
    Device *d;
    Session *s;
    FtxError err;
    size_t n;

    (void)state;
    open_both(w, &one_thread, &d, &s);
    must(device_cuda_algorithms(s, STEP_ANY, MATMUL, 128, a, 8, &n, &err), &err);
    assert_int_equal(n, 3);
    assert_true(fabs(a[0].us - 250) < 0.01 && fabs(a[1].us - 249) < 0.01 && fabs(a[2].us - 252) < 0.01);
    assert_int_equal(a[1].attribute[1], 2);
    assert_int_equal(last_runs(1)->m, 128);
    assert_int_equal(last_runs(1)->n, N);
    must(device_cuda_algorithms(s, STEP_ANY, MATMUL, 128, a, 1, &n, &err), &err);
    assert_int_equal(n, 1);
    for (unsigned long at = 1; at < 60; at++) { /* whichever call fails */
        FtxStatus status;

        fake.calls = 0;
        fake.fail_at = at;
        status = device_cuda_algorithms(s, STEP_ANY, MATMUL, 128, a, 8, &n, &err);
        if (fake.calls < at)
            break;
        assert_true(status == FTX_EDEVICE || (n == 3 && (!a[0].us || !a[1].us || !a[2].us)));
    }
    fake.fail_at = 0;
    assert_int_equal(device_cuda_algorithms(s, STEP_ANY, EMBED, 128, a, 8, &n, &err), FTX_EINVAL);
    assert_string_equal(err.text, "the program has no matrix product of kernel 0");
    assert_int_equal(device_cuda_algorithms(s, STEP_16, MATMUL, 16, a, 8, &n, &err), FTX_EINVAL);
    assert_int_equal(device_cuda_algorithms(s, PROGRAMS, MATMUL, 16, a, 8, &n, &err), FTX_EINVAL);
    close_both(w, d, s);
}

static char told[300];

static void tell(void *user, int level, const char *text)
{
    (void)user;
    assert_int_equal(level, 0);
    snprintf(told, sizeof told, "%s", text);
}

/* A kernel's constants may hold algorithms that were measured. */
static void measured_algorithms_come_with_the_kernel(void **state)
{
    static const int64_t measured[] = {130000, 64,  128, 20, 2, 1, 0, 4, 5, 6, 7, 8,
                                       192,    192, 13,  2,  1, 0, 4, 5, 6, 7, 8};
    FtxOptions o = one_thread;

    (void)state;
    o.log = tell;
    for (int version = 130000; version <= 130001; version++) {
        World *w = world();
        Device *d;
        Session *s;

        memcpy(w->t.consts + FTX_MM_CONSTS, measured, sizeof measured);
        w->t.consts[FTX_MM_CONSTS] = version;
        w->t.kernels[MATMUL].n_consts = FTX_MM_CONSTS + sizeof measured / sizeof *measured;
        open_both(w, &o, &d, &s);
        must(device_cuda.run(s, STEP_ANY, 65, 1, 1, NULL), NULL);
        assert_int_equal(last_runs(2)->algo, version == 130000 ? 1020 : 128);
        assert_string_equal(told, version == 130000
                                      ? "1 of 2 measured cuBLASLt algorithms are not for this version of the library: "
                                        "it chooses itself"
                                      : "2 of 2 measured cuBLASLt algorithms are not for this version of the library: "
                                        "it chooses itself");
        close_both(w, d, s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(algorithms_are_timed, reset),
        cmocka_unit_test_setup(measured_algorithms_come_with_the_kernel, reset),
        cmocka_unit_test_setup(probe_names_the_target, reset),
        cmocka_unit_test_setup(code_must_be_for_the_gpu, reset),
        cmocka_unit_test_setup(buckets_run_as_graphs, reset),
        cmocka_unit_test_setup(decode_programs_run_as_chains, reset),
        cmocka_unit_test_setup(exact_programs_follow_T, reset),
        cmocka_unit_test_setup(products_of_rows_follow_S, reset),
        cmocka_unit_test_setup(equal_products_share_a_plan, reset),
        cmocka_unit_test_setup(kernels_share_a_module, reset),
        cmocka_unit_test_setup(large_grids_are_refused, reset),
        cmocka_unit_test_setup(older_gpus_do_not_overlap, reset),
        cmocka_unit_test_setup(steps_allocate_nothing, reset),
        cmocka_unit_test_setup(wrong_runs_are_refused, reset),
        cmocka_unit_test_setup(profile_and_time, reset),
        cmocka_unit_test_setup(sync_names_launches, reset),
        cmocka_unit_test_setup(nan_is_found, reset),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

#else /* built without CUDA: the device is there and says so */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "runtime/device/device.h"

static void says_that_it_is_not_there(void **state)
{
    Artifact a = {0};
    ArtifactPlan p = {0};
    Device *d;
    uint32_t target;
    FtxError err;

    (void)state;
    assert_int_equal(device_cuda.open(&a, &p, NULL, &d, &err), FTX_ENODEVICE);
    assert_string_equal(err.text, "this runtime was built without the CUDA parts");
    assert_int_equal(device_cuda_probe(0, &target, &err), FTX_ENODEVICE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(says_that_it_is_not_there)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
#endif
