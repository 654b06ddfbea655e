/* test_planner.c - the memory planner over random lifetimes, against a checker that paints bytes. */
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

/* Runs through time; at each moment every live piece paints its bytes, none twice. The largest sum
 * of bytes at a moment is the bound, found another way than the planner does. */
static uint64_t paint(const Life *lives, size_t n, uint64_t peak, uint32_t end)
{
    unsigned char *bytes = malloc(peak + 1);
    uint64_t bound = 0;

    for (uint32_t t = 0; t <= end; t++) {
        uint64_t sum = 0;

        memset(bytes, 0, peak);
        for (size_t i = 0; i < n; i++) {
            if (lives[i].first > t || lives[i].last < t)
                continue;
            assert_true(lives[i].offset + lives[i].bytes <= peak);
            for (uint64_t k = 0; k < lives[i].bytes; k++)
                assert_int_equal(bytes[lives[i].offset + k]++, 0);
            sum += lives[i].bytes;
        }
        bound = sum > bound ? sum : bound;
    }
    free(bytes);
    return bound;
}

static void random_lives(void **state)
{
    uint64_t seed = 11, over = 0, all = 0;

    (void)state;
    for (int round = 0; round < 400; round++) {
        Arena *a = arena_open();
        Life lives[40], again[40];
        const size_t n = next(&seed) % 40;
        uint64_t peak, bound;

        for (size_t i = 0; i < n; i++) {
            const uint32_t first = (uint32_t)(next(&seed) % 30);

            lives[i] = (Life){first, first + (uint32_t)(next(&seed) % (round % 3 ? 4 : 25)), next(&seed) % 50, 0};
        }
        memcpy(again, lives, sizeof lives);
        peak = planner_run(lives, n, a);
        bound = paint(lives, n, peak, 60);
        assert_int_equal(bound, planner_lower_bound(lives, n));
        assert_true(peak >= bound);
        assert_int_equal(planner_run(again, n, a), peak); /* same lives, same offsets */
        for (size_t i = 0; i < n; i++)
            assert_int_equal(again[i].offset, lives[i].offset);
        over += peak - bound;
        all += bound;
        arena_close(a);
    }
    assert_true(over * 100 < all); /* on average within 1 % of what no plan can beat */
}

/* The shape of a transformer: a residual that stays, and wide values that come and go. */
static void layers(void **state)
{
    Arena *a = arena_open();
    Life lives[200];
    size_t n = 0;

    (void)state;
    for (uint32_t layer = 0; layer < 30; layer++) {
        const uint32_t t = layer * 5;

        lives[n++] = (Life){t, t + 5, 256 * 4, 0};     /* residual */
        lives[n++] = (Life){t + 1, t + 2, 256 * 6, 0}; /* q */
        lives[n++] = (Life){t + 2, t + 3, 256 * 4, 0}; /* attention */
        lives[n++] = (Life){t + 3, t + 5, 256 * 4, 0};
        lives[n++] = (Life){t + 4, t + 5, 256 * 11, 0};
    }
    assert_int_equal(planner_run(lives, n, a), planner_lower_bound(lives, n));
    arena_close(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(random_lives), cmocka_unit_test(layers)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
