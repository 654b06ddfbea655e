/* test_algorithms.c - records of cuBLASLt's algorithms: the fastest alone, if it is by enough, and neighbours joined. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

#include "compiler/tune/tune.h"

static DeviceAlgorithm algorithm(int64_t id, double us)
{
    return (DeviceAlgorithm){{id, 2, 3, 4, 5, 6, 7, 8, 9}, us};
}

static void check(const TuneWords *w, size_t record, int64_t from, int64_t to, int64_t id)
{
    const int64_t *at = w->at + record * FTX_MM_RECORD;

    assert_int_equal(at[FTX_MM_FROM], from);
    assert_int_equal(at[FTX_MM_TO], to);
    assert_int_equal(at[FTX_MM_ALGO], id);
    for (int i = 1; i < FTX_MM_ATTRIBUTES; i++)
        assert_int_equal(at[FTX_MM_ALGO + i], i + 1);
}

static void fastest(void **state)
{
    const DeviceAlgorithm near[] = {algorithm(1, 100), algorithm(2, 98.5)};
    const DeviceAlgorithm far[] = {algorithm(1, 100), algorithm(2, 97), algorithm(3, 95), algorithm(4, 96)};
    const DeviceAlgorithm first_fails[] = {algorithm(1, 0), algorithm(2, 0), algorithm(3, 95), algorithm(4, 90)};
    const DeviceAlgorithm others_fail[] = {algorithm(1, 100), algorithm(2, 0)};
    Arena *keep = arena_open();
    TuneWords w = {0};

    (void)state;
    tune_algorithm(near, 2, 64, 64, 64, keep, &w);
    tune_algorithm(near, 1, 64, 64, 64, keep, &w);
    tune_algorithm(near, 0, 64, 64, 64, keep, &w);
    tune_algorithm(others_fail, 2, 64, 64, 64, keep, &w);
    assert_int_equal(w.n, 0);
    tune_algorithm(far, 4, 128, 192, 64, keep, &w);
    assert_int_equal(w.n, FTX_MM_RECORD);
    check(&w, 0, 128, 192, 3);
    tune_algorithm(first_fails, 4, 256, 256, 64, keep, &w);
    assert_int_equal(w.n, 2 * FTX_MM_RECORD);
    check(&w, 1, 256, 256, 4);
    arena_close(keep);
}

/* Rows that follow one another and have one algorithm are one record; a version may stand before all. */
static void joined(void **state)
{
    const DeviceAlgorithm a[] = {algorithm(1, 100), algorithm(2, 90)}, b[] = {algorithm(1, 100), algorithm(3, 90)};
    Arena *keep = arena_open();
    TuneWords w = {0};

    (void)state;
    tune_algorithm(a, 2, 64, 64, 64, keep, &w);
    tune_algorithm(a, 2, 128, 128, 64, keep, &w);
    tune_algorithm(a, 2, 192, 512, 64, keep, &w);
    assert_int_equal(w.n, FTX_MM_RECORD);
    check(&w, 0, 64, 512, 2);
    tune_algorithm(b, 2, 576, 576, 64, keep, &w); /* another */
    tune_algorithm(b, 2, 704, 704, 64, keep, &w); /* not the next rows */
    assert_int_equal(w.n, 3 * FTX_MM_RECORD);
    check(&w, 1, 576, 576, 3);
    check(&w, 2, 704, 704, 3);
    arena_close(keep);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(fastest), cmocka_unit_test(joined)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
