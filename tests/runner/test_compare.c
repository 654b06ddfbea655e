/* test_compare.c - ftxc bench --compare: order of turns, differences and intervals, with made-up times. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "compiler/commands/compare.h"

/* Engines are made-up addresses; time goes on by `drift` with each call. */
static struct {
    char order[5000];
    size_t calls;
    int fail_at;                  /* call; 0: none */
    double drift, us[2], step[2]; /* step: added with each call of an engine */
    bool mixed;
} bed;

static char engines[2];
static FtxEngine *const both[2] = {(FtxEngine *)&engines[0], (FtxEngine *)&engines[1]};

static FtxStatus made_up(FtxEngine *e, double *median_us, double *least_us, double *most_us)
{
    const int which = e == both[1];

    bed.order[bed.calls++] = which ? 'B' : 'A';
    if ((size_t)bed.fail_at == bed.calls)
        return FTX_EDEVICE;
    *median_us = bed.us[which] + bed.drift * (double)bed.calls;
    *least_us = *most_us = *median_us;
    bed.us[which] += bed.step[which];
    return FTX_OK;
}

FtxStatus ftx_engine_bench(FtxEngine *e, int sequences, int tokens, int context, int repeat, double *median_us,
                           double *least_us, double *most_us, FtxError *err)
{
    (void)err;
    bed.mixed = false;
    assert_true(sequences == 3 && tokens == 1 && context == 64 && repeat > 1);
    return made_up(e, median_us, least_us, most_us);
}

FtxStatus ftx_engine_bench_mixed(FtxEngine *e, int sequences, int context, int prompt, int repeat, double *median_us,
                                 double *least_us, double *most_us, FtxError *err)
{
    (void)err;
    bed.mixed = true;
    assert_true(sequences == 3 && prompt == 9 && context == 64 && repeat > 1);
    return made_up(e, median_us, least_us, most_us);
}

static const Step decode = {"decode", 3, 1, 64};

static void near(double got, double want)
{
    if (!(got - want < 1e-9 && want - got < 1e-9))
        fail_msg("%.12g, expected %.12g", got, want);
}

/* Even drift cancels out within a round. */
static void test_drift(void **state)
{
    Comparison c;
    (void)state;

    memset(&bed, 0, sizeof bed);
    bed.us[0] = 100;
    bed.us[1] = 103;
    bed.drift = 7;
    assert_int_equal(compare_time(both, &decode, 6, &c, NULL), FTX_OK);
    assert_string_equal(bed.order, "ABBAABBAABBAABBAABBAABBA");
    near(c.difference_us, 3);
    near(c.low_us, 3);
    near(c.high_us, 3);
    near(c.a_us, 100 + 7 * 12.5);
    near(c.b_us, 103 + 7 * 12.5);
}

/* B is slower by 1 with each call, so the differences are 2 i + 0.5: their ranks are known. */
static void test_interval(void **state)
{
    static const struct {
        int rounds, outside; /* Conover 1999, table A3: values of which at most 2.5 % lie outside at one end */
    } sizes[] = {{6, 1}, {8, 1}, {9, 2}, {12, 3}, {15, 4}, {17, 5}, {20, 6}, {25, 8}, {30, 10}, {100, 40}, {1000, 469}};
    (void)state;

    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        const int n = sizes[i].rounds;
        Comparison c;

        memset(&bed, 0, sizeof bed);
        bed.step[1] = 1;
        assert_int_equal(compare_time(both, &decode, n, &c, NULL), FTX_OK);
        near(c.low_us, 2 * (sizes[i].outside - 1) + 0.5);
        near(c.high_us, 2 * (n - sizes[i].outside) + 0.5);
        near(c.difference_us, n - 1 + 0.5);
        near(c.a_us, 0);
    }
}

static void test_steps(void **state)
{
    const Step mixed = {"mixed", 3, 9, 64}, texts = {"encode", 4, 100, 70}, all = {"encode", 4, 100, 0};
    double t;
    Comparison c;
    (void)state;

    memset(&bed, 0, sizeof bed);
    assert_int_equal(step_time(both[0], &mixed, 5, &t, &t, &t, NULL), FTX_OK);
    assert_true(bed.mixed);
    assert_int_equal(step_time(both[0], &decode, 5, &t, &t, &t, NULL), FTX_OK);
    assert_false(bed.mixed);
    near(step_tokens(&decode), 3);
    near(step_tokens(&mixed), 12);
    near(step_tokens(&texts), 280);
    near(step_tokens(&all), 400);
    bed.fail_at = (int)bed.calls + 7;
    assert_int_equal(compare_time(both, &decode, 6, &c, NULL), FTX_EDEVICE);
    assert_int_equal(bed.calls, bed.fail_at);
}

static void test_shapes(void **state)
{
    const FtxModelInfo a = {.name = "a", .layers = 2, .hidden = 8, .vocab = 16, .context = 5};
    FtxModelInfo b = a;
    char error[300];
    (void)state;

    b.name = "b";
    b.context = 9; /* limits may differ */
    assert_true(compare_shapes(&a, &b, error, sizeof error));
    b.vocab = 17;
    assert_false(compare_shapes(&a, &b, error, sizeof error));
    assert_string_equal(error, "--compare: the two are not of one model: a has vocabulary 16, b has 17");
    b = a;
    b.layers = 3;
    assert_false(compare_shapes(&a, &b, error, sizeof error));
    b = a;
    b.hidden = 9;
    assert_false(compare_shapes(&a, &b, error, sizeof error));
    b = a;
    b.kind = FTX_MODEL_ENCODER;
    assert_false(compare_shapes(&a, &b, error, sizeof error));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_drift), cmocka_unit_test(test_interval),
                                       cmocka_unit_test(test_steps), cmocka_unit_test(test_shapes)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
