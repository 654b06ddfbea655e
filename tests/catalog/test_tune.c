/* test_tune.c - constants with several values: prefer lines decide, or the first that fits; a tuner may take any that fits. */
#include "bench.h"

#define TILES \
    "//@ kernel k\n//@ rank 1\n//@ args x[M,C] -> y[M,C]\n//@ match y = rmsnorm(x, x)\n//@ consts C: C\n" \
    "//@ tune WIDTH: 8 C 2*C  PARTS: 4 2 1\n"

static void mistakes(void **state)
{
    (void)state;
    assert_string_equal(message(TILES LAUNCH "//@ order PARTS WIDTH\n//@ prefer PARTS=2 WIDTH=2*C if C > 4\n"), "");
    assert_string_equal(message(TILES LAUNCH "//@ prefer PARTS=2\n"), "");
    assert_string_equal(message(TILES LAUNCH "//@ prefer PARTS=3 if C > 4\n"),
                        "templates/t.cu:8: contract: prefer: 3 is not one of the values of PARTS: 4 2 1");
    assert_string_equal(message(TILES LAUNCH "//@ prefer C=3\n"),
                        "templates/t.cu:8: contract: prefer: no tune line above has C");
    assert_string_equal(message("//@ kernel k\n//@ prefer PARTS=2\n//@ tune PARTS: 2\n"),
                        "templates/t.cu:2: contract: prefer: no tune line above has PARTS");
    assert_non_null(strstr(message(TILES LAUNCH "//@ prefer if C > 4\n"), "expected NAME=value, found \"C > 4\""));
    assert_non_null(
        strstr(message(TILES LAUNCH "//@ prefer PARTS=2 if\n"), "expected NAME=value or if expression, found \"\""));
    assert_non_null(strstr(message(TILES LAUNCH "//@ prefer PARTS=2 C > 4\n"),
                           "expected NAME=value or if expression, found \"> 4\""));
    assert_non_null(strstr(message(TILES LAUNCH "//@ order C\n"), "expected constant of a tune line above"));
    assert_non_null(strstr(message(TILES LAUNCH "//@ order\n"), "expected constant of a tune line above"));
    assert_non_null(strstr(message(TILES LAUNCH "//@ tune C: 1 2\n"), "constant C is given twice"));
    assert_non_null(strstr(message(TILES LAUNCH "//@ tune B: 1 2 B: 3\n"), "constant B is given twice"));
    assert_non_null(strstr(message(TILES LAUNCH "//@ tune B:\n"), "expected value"));
    assert_non_null(strstr(message(TILES LAUNCH "//@ consts B: 1 2\n"), "contract: expression \"1 2\""));
    assert_string_equal(message(TILES LAUNCH "//@ tune B: 1 Z\n"),
                        "templates/t.cu:8: contract: expression \"Z\": unknown name \"Z\" at \"end\"");
    /* WIDTH is chosen before PARTS, so its line cannot ask for PARTS */
    assert_string_equal(message(TILES LAUNCH "//@ prefer PARTS=2 if WIDTH > 8\n"), "");
    assert_string_equal(message(TILES LAUNCH "//@ prefer WIDTH=8 if PARTS > 1\n"),
                        "templates/t.cu:8: contract: expression \"PARTS > 1\": unknown name \"PARTS\" at \"> 1\"");
    assert_string_equal(message(TILES LAUNCH "//@ prefer PARTS=2 WIDTH=8 if WIDTH > 8\n"),
                        "templates/t.cu:8: contract: expression \"WIDTH > 8\": unknown name \"WIDTH\" at \"> 8\"");
    assert_string_equal(message(TILES LAUNCH "//@ tune A: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\n"), "");
    assert_string_equal(message(TILES LAUNCH "//@ tune A: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17\n"),
                        "templates/t.cu:8: contract: constant A has more than 16 values");
}

/* Lines that state in which order a kernel adds. */
static void sums(void **state)
{
    Bench t = bench_open(TILES LAUNCH "//@ sums rmsnorm = slices 2 * PARTS\n//@ sums linear = once 1\n");
    const char *reason;
    Fitted fit;
    Binding b;

    (void)state;
    ir_value(t.g, 5)->args[1] = 3;
    assert_true(matches(&t, 0, 0, 5, &b, &reason));
    assert_true(contract_fit(&t.f, &b, t.keep, t.keep, &fit, &reason));
    assert_string_equal(fit.sums[0], "slices 8");
    assert_string_equal(fit.sums[1], "once 1");
    b.use[b.n_use++] = (TunedConst){"PARTS", 2};
    assert_true(contract_fit(&t.f, &b, t.keep, t.keep, &fit, &reason));
    assert_string_equal(fit.sums[0], "slices 4");
    bench_close(&t);

    assert_non_null(strstr(message(TILES LAUNCH "//@ sums norm = slices 2\n"), "expected op, found"));
    assert_non_null(strstr(message(TILES LAUNCH "//@ sums rmsnorm slices 2\n"), "expected = WORD number"));
    assert_non_null(strstr(message(TILES LAUNCH "//@ sums rmsnorm =\n"), "expected = WORD number"));
    assert_non_null(strstr(message(TILES LAUNCH "//@ sums rmsnorm = slices\n"), "expected number of the order"));
    assert_non_null(strstr(message(TILES LAUNCH "//@ sums rmsnorm = slices Z\n"), "unknown name \"Z\""));
    assert_non_null(strstr(message(TILES LAUNCH "//@ sums rmsnorm = a 1\n//@ sums rmsnorm = b 1\n"),
                           "the order of rmsnorm is given twice"));
    assert_non_null(strstr(message(TILES LAUNCH "//@ sums act = a 1\n//@ sums add = a 1\n//@ sums mul = a 1\n"
                                                "//@ sums glu = a 1\n//@ sums beam = a 1\n//@ sums rope = a 1\n"
                                                "//@ sums join = a 1\n//@ sums slice = a 1\n//@ sums scale = a 1\n"),
                           "there are more than 8 sums lines"));
    assert_non_null(strstr(message(TILES LAUNCH "//@ tune A: 1 B: 1 D: 1 E: 1 F: 1\n//@ order A B D E F\n"),
                           "at most 4 constants in all order lines"));
}

static Fitted fit_of(Bench *t, const size_t *places, bool fits, const char *why)
{
    const char *reason = "";
    Fitted fit;
    Binding b;

    ir_value(t->g, 5)->args[1] = 3;
    assert_true(matches(t, 0, 0, 5, &b, &reason));
    assert_int_equal(contract_fit_at(&t->f, &b, places, t->keep, t->keep, &fit, &reason), fits);
    if (!fits)
        assert_string_equal(reason, why);
    return fit;
}

static void check(const Fitted *fit, int64_t width, int width_line, int64_t parts, int parts_line)
{
    assert_int_equal(constant(fit->instance, "WIDTH")->i, width);
    assert_int_equal(constant(fit->instance, "PARTS")->i, parts);
    assert_int_equal(fit->decided[1] ? fit->decided[1]->loc.line : 0, width_line);
    assert_int_equal(fit->decided[2] ? fit->decided[2]->loc.line : 0, parts_line);
    assert_null(fit->decided[0]);
}

/* C is 12. */
static void decided(void **state)
{
    Bench t = bench_open(TILES LAUNCH "//@ prefer WIDTH=8 if C > 12\n//@ prefer WIDTH=2*C PARTS=1 if C == 12\n"
                                      "//@ prefer WIDTH=8\n");
    Fitted fit = fit_of(&t, NULL, true, NULL);

    (void)state;
    check(&fit, 24, 9, 1, 9);
    bench_close(&t);

    t = bench_open(TILES LAUNCH "//@ order PARTS\n//@ prefer WIDTH=C\n//@ fits PARTS * WIDTH < 30\n");
    fit = fit_of(&t, NULL, true, NULL);
    check(&fit, 12, 9, 2, 0); /* no line decides on PARTS: 4 does not fit */
    assert_true(t.c.at[0]->consts.at[2].reorders && !t.c.at[0]->consts.at[1].reorders);
    bench_close(&t);

    /* what a line decides is not changed, though other values would fit */
    t = bench_open(TILES LAUNCH "//@ prefer PARTS=4 if WIDTH == 8\n//@ fits PARTS * WIDTH < 30\n");
    fit = fit_of(&t, NULL, true, NULL);
    check(&fit, 12, 0, 2, 0);
    bench_close(&t);
    t = bench_open(TILES LAUNCH "//@ prefer PARTS=4\n//@ prefer WIDTH=8\n//@ fits PARTS * WIDTH < 30\n");
    fit_of(&t, NULL, false, "templates/t.cu:10: fits PARTS * WIDTH < 30 (PARTS = 4, WIDTH = 8)");
    bench_close(&t);
}

/* A `prefer other` line asks for other values before it asks for another kernel. */
static void avoided(void **state)
{
    static const size_t first[] = {99, 0, 0};
    Bench t =
        bench_open(TILES LAUNCH "//@ prefer other if PARTS * WIDTH == 32\n//@ prefer other if PARTS * WIDTH < 16\n");
    Fitted fit = fit_of(&t, NULL, true, NULL);

    (void)state;
    check(&fit, 8, 0, 2, 0); /* 8 * 4 is 32 */
    assert_null(fit.avoided);
    fit = fit_of(&t, first, true, NULL); /* a tuner may take what is avoided */
    check(&fit, 8, 0, 4, 0);
    assert_int_equal(fit.avoided->loc.line, 8);
    bench_close(&t);

    t = bench_open(TILES LAUNCH
                   "//@ prefer other if C == 12\n//@ fits WIDTH > 8\n"); /* with all values: the first that fits */
    fit = fit_of(&t, NULL, true, NULL);
    check(&fit, 12, 0, 4, 0);
    assert_int_equal(fit.avoided->loc.line, 8);
    bench_close(&t);

    t = bench_open(TILES LAUNCH "//@ prefer WIDTH=8\n//@ prefer other if WIDTH == 8\n"); /* a line has decided */
    fit = fit_of(&t, NULL, true, NULL);
    check(&fit, 8, 8, 4, 0);
    assert_int_equal(fit.avoided->loc.line, 9);
    bench_close(&t);

    t = bench_open(TILES LAUNCH "//@ prefer other if WIDTH == 8\n//@ fits PARTS > 4\n");
    fit_of(&t, NULL, false, "templates/t.cu:9: fits PARTS > 4 (PARTS = 1)");
    bench_close(&t);
}

/* A tuner's values take the place of those that prefer lines name, if they fit. */
static void given(void **state)
{
    static const size_t places[] = {99, 1, 2}, too_large[] = {99, 2, 0};
    Bench t = bench_open(TILES LAUNCH "//@ prefer WIDTH=8 PARTS=4\n//@ fits PARTS * WIDTH < 50\n");
    Fitted fit = fit_of(&t, places, true, NULL);

    (void)state;
    check(&fit, 12, 0, 1, 0);
    fit_of(&t, too_large, false, "templates/t.cu:9: fits PARTS * WIDTH < 50 (PARTS = 4, WIDTH = 24)");
    fit = fit_of(&t, NULL, true, NULL);
    check(&fit, 8, 8, 4, 8);
    bench_close(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(mistakes), cmocka_unit_test(sums), cmocka_unit_test(decided),
                                       cmocka_unit_test(avoided), cmocka_unit_test(given)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
