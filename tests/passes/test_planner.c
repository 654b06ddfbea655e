/* test_planner.c - the memory planner over random lifetime intervals, against a checker that paints bytes. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "compiler/passes/planner.h"

static uint64_t next(uint64_t *seed)
{
    *seed = *seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return *seed >> 33;
}

/* At each time every live buffer marks its bytes, none twice. Returns the lower bound: the largest sum of live bytes,
 * found in another way than the planner does. */
static uint64_t paint(const Interval *intervals, size_t n, uint64_t peak, uint32_t end)
{
    unsigned char *bytes = malloc(peak + 1);
    uint64_t bound = 0;

    for (uint32_t t = 0; t <= end; t++) {
        uint64_t sum = 0;

        memset(bytes, 0, peak);
        for (size_t i = 0; i < n; i++) {
            if (intervals[i].first > t || intervals[i].last < t)
                continue;
            assert_true(intervals[i].offset + intervals[i].bytes <= peak);
            for (uint64_t k = 0; k < intervals[i].bytes; k++)
                assert_int_equal(bytes[intervals[i].offset + k]++, 0);
            sum += intervals[i].bytes;
        }
        bound = sum > bound ? sum : bound;
    }
    free(bytes);
    return bound;
}

static void random_intervals(void **state)
{
    uint64_t seed = 11, over = 0, all = 0;

    (void)state;
    for (int round = 0; round < 400; round++) {
        Arena *a = arena_open();
        Interval intervals[40], again[40];
        const size_t n = next(&seed) % 40;
        uint64_t peak, bound;

        for (size_t i = 0; i < n; i++) {
            const uint32_t first = (uint32_t)(next(&seed) % 30);

            intervals[i] =
                (Interval){first, first + (uint32_t)(next(&seed) % (round % 3 ? 4 : 25)), next(&seed) % 50, 0};
        }
        memcpy(again, intervals, sizeof intervals);
        peak = planner_run(intervals, n, a);
        bound = paint(intervals, n, peak, 60);
        assert_int_equal(bound, planner_lower_bound(intervals, n));
        assert_true(peak >= bound);
        assert_int_equal(planner_run(again, n, a), peak); /* same intervals, same offsets */
        for (size_t i = 0; i < n; i++)
            assert_int_equal(again[i].offset, intervals[i].offset);
        over += peak - bound;
        all += bound;
        arena_close(a);
    }
    assert_true(over * 100 < all); /* on average within 1 % of the lower bound */
}

/* The intervals of a transformer: a residual that lives long, and wide values that live briefly. */
static void layers(void **state)
{
    Arena *a = arena_open();
    Interval intervals[200];
    size_t n = 0;

    (void)state;
    for (uint32_t layer = 0; layer < 30; layer++) {
        const uint32_t t = layer * 5;

        intervals[n++] = (Interval){t, t + 5, 256 * 4, 0};     /* residual */
        intervals[n++] = (Interval){t + 1, t + 2, 256 * 6, 0}; /* q */
        intervals[n++] = (Interval){t + 2, t + 3, 256 * 4, 0}; /* attention */
        intervals[n++] = (Interval){t + 3, t + 5, 256 * 4, 0};
        intervals[n++] = (Interval){t + 4, t + 5, 256 * 11, 0};
    }
    assert_int_equal(planner_run(intervals, n, a), planner_lower_bound(intervals, n));
    arena_close(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(random_intervals), cmocka_unit_test(layers)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
