/* test_shared.c - shared lines: where the regions of shared memory begin, and what a launch gets. */
#include <stdio.h>

#include "bench.h"

static void mistakes(void **state)
{
    (void)state;
    assert_string_equal(message(NORM LAUNCH "//@ shared A 8 * C\n//@ shared B 4 over A\n//@ shared D 4 align 16\n"),
                        "");
    assert_string_equal(message(NORM LAUNCH "//@ consts over_all: 8\n//@ shared A 4 + over_all\n"), "");
    assert_string_equal(message(NORM LAUNCH "//@ shared A 8\n//@ shared A 4\n"),
                        "templates/t.cu:8: contract: region A is given twice");
    assert_string_equal(message(NORM LAUNCH "//@ shared A 8 * Z\n"),
                        "templates/t.cu:7: contract: expression \"8 * Z\": unknown name \"Z\" at \"end\"");
    assert_non_null(strstr(message(NORM LAUNCH "//@ shared A 8\n//@ shared B A_AT\n"), "unknown name \"A_AT\""));
    assert_non_null(strstr(message(NORM LAUNCH "//@ shared A 8\n//@ fits B_AT < 8\n"), "unknown name \"B_AT\""));
    assert_non_null(strstr(message(NORM LAUNCH "//@ fits SHARED < 8\n"), "unknown name \"SHARED\""));
    assert_non_null(strstr(message(NORM LAUNCH "//@ shared 8\n"), "expected name of the region, found \"8\""));
    assert_non_null(strstr(message(NORM LAUNCH "//@ shared A\n"), "expected bytes, found \"\""));
    assert_non_null(
        strstr(message(NORM LAUNCH "//@ shared A 8 over B\n"), "expected region of a shared line above, found \"\""));
    assert_non_null(strstr(message(NORM LAUNCH "//@ shared A 8\n//@ shared B 8 after A C\n"),
                           "expected region of a shared line above"));
    for (size_t i = 0; i < 4; i++) {
        static const char *const wrong[] = {"24", "0", "2048", "16 B"};
        char text[256];

        snprintf(text, sizeof text, "%s%s//@ shared A 8 align %s\n", NORM, LAUNCH, wrong[i]);
        assert_non_null(strstr(message(text), "expected power of two up to 1024"));
    }
    /* the size of RING depends on STAGES, which depends on all but RING */
    assert_string_equal(message(NORM LAUNCH "//@ consts STAGES: (SMEM - BESIDE_RING) / 64\n"
                                            "//@ shared RING STAGES * 64\n//@ shared SUMS STAGES over RING\n"),
                        "");
    /* an offset depends on the regions above it */
    assert_string_equal(message(NORM LAUNCH "//@ shared X 64\n//@ consts STAGES: (SMEM - RING_AT) / 64\n"
                                            "//@ shared RING STAGES * 64\n"),
                        "");
    assert_non_null(strstr(message(NORM LAUNCH "//@ consts STAGES: LAST_AT\n//@ shared RING STAGES * 64\n"
                                               "//@ shared LAST 8\n"),
                           "unknown name \"LAST_AT\""));
    assert_non_null(strstr(message(NORM LAUNCH "//@ consts STAGES: SHARED\n//@ shared RING STAGES * 64\n"),
                           "unknown name \"SHARED\""));
}

static void too_many(void **state)
{
    char text[2048];
    int n = snprintf(text, sizeof text, "%s%s", NORM, LAUNCH);

    (void)state;
    for (int i = 0; i < 16; i++)
        n += snprintf(text + n, sizeof text - (size_t)n, "//@ shared A%d 8\n", i);
    assert_string_equal(message(text), "");
    snprintf(text + n, sizeof text - (size_t)n, "//@ shared B 8\n");
    assert_non_null(strstr(message(text), "expected at most sixteen shared lines"));
}

static int64_t region(const Instance *in, const char *name)
{
    for (size_t i = 0; i < in->n_regions; i++)
        if (strcmp(in->regions[i].name, name) == 0)
            return in->regions[i].i;
    fail_msg("there is no %s", name);
    return -1;
}

/* Fits the contract with these lines; what is checked of the instance. */
static Bench open_fitted(const char *lines, bool fits, Fitted *out, const char **reason)
{
    char text[1024];
    Bench t;
    Binding b;

    snprintf(text, sizeof text, "%s%s", NORM, lines);
    t = bench_open(text);
    *reason = "";
    assert_true(matches(&t, 0, 0, 5, &b, reason));
    assert_int_equal(contract_fit(&t.f, &b, t.keep, t.keep, out, reason), fits);
    return t;
}

static void places(void **state)
{
    const char *reason;
    Fitted f;
    Bench t;

    (void)state;
    /* in the memory of W lies K, behind it V, which ends behind W */
    t = open_fitted("//@ shared W 100\n//@ shared K 60 over W\n//@ shared V 50 after K // comment\n"
                    "//@ shared X 8 align 16\n//@ shared B 3\n//@ launch grid 1 block 32\n",
                    true, &f, &reason);
    assert_int_equal(f.instance->n_regions, 6);
    assert_int_equal(region(f.instance, "W_AT"), 0);
    assert_int_equal(region(f.instance, "K_AT"), 0);
    assert_int_equal(region(f.instance, "V_AT"), 60);
    assert_int_equal(region(f.instance, "X_AT"), 112);
    assert_int_equal(region(f.instance, "B_AT"), 120);
    assert_int_equal(region(f.instance, "SHARED"), 123);
    assert_int_equal(f.instance->smem, 123);
    bench_close(&t);

    /* beside W are X and B: the regions in its memory do not count */
    t = open_fitted("//@ consts N: (1000 - BESIDE_W) / 10\n//@ shared W 10 * N\n//@ shared K 60 over W\n"
                    "//@ shared V 50 after K\n//@ shared X 8\n//@ shared B 3\n//@ consts PLACE: X_AT\n"
                    "//@ fits SHARED <= 1000\n//@ launch grid 1 block 32 smem 2 * SHARED\n",
                    true, &f, &reason);
    assert_int_equal(constant(f.instance, "N")->i, 98);
    assert_int_equal(constant(f.instance, "PLACE")->i, 980);
    assert_int_equal(f.instance->smem, 1982);
    bench_close(&t);
}

/* Instances that differ in an offset alone have different names. */
static void named(void **state)
{
    const char *reason;
    Fitted one, other;
    Bench t, u;

    (void)state;
    t = open_fitted("//@ shared A 8\n//@ shared B 8\n//@ launch grid 1 block 32 smem 64\n", true, &one, &reason);
    u = open_fitted("//@ shared A 16\n//@ shared B 0\n//@ launch grid 1 block 32 smem 64\n", true, &other, &reason);
    assert_string_not_equal(one.instance->entry, other.instance->entry);
    bench_close(&t);
    bench_close(&u);
}

static void refused(void **state)
{
    const char *reason;
    Fitted f;
    Bench t;

    (void)state;
    t = open_fitted("//@ shared W 1000000\n//@ launch grid 1 block 32\n", false, &f, &reason);
    assert_string_equal(reason,
                        "templates/t.cu:6: the regions of shared memory take 1000000 bytes, a block may have 232448");
    bench_close(&t);
    t = open_fitted("//@ shared W 0 - C\n//@ launch grid 1 block 32\n", false, &f, &reason);
    assert_string_equal(reason, "templates/t.cu:6: region W has -12 bytes");
    bench_close(&t);
    t = open_fitted("//@ shared W 8\n//@ launch grid 1 block 32 smem 4\n", false, &f, &reason);
    assert_string_equal(reason, "templates/t.cu:7: smem is 4, it must be 8 to 232448");
    bench_close(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(mistakes), cmocka_unit_test(too_many), cmocka_unit_test(places),
                                       cmocka_unit_test(named), cmocka_unit_test(refused)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
