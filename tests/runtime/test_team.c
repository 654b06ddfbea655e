/* test_team.c - threads that stay: all run, all meet, again and again, awake or asleep. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#include "runtime/team.h"

enum { ROUNDS = 200 };

typedef struct Counts {
    Team *team;
    atomic_int here[ROUNDS];
    atomic_int missed;
} Counts;

/* After a barrier everybody has passed what stands before it. */
static void meet(void *user, int thread, int threads)
{
    Counts *c = user;

    for (int i = 0; i < ROUNDS; i++) {
        if (i % 50 == 10 && thread == threads - 1)
            usleep(300); /* the others fall asleep */
        atomic_fetch_add(&c->here[i], 1);
        team_barrier(c->team);
        if (atomic_load(&c->here[i]) != threads)
            atomic_fetch_add(&c->missed, 1);
    }
}

static void test_meet(void **state)
{
    static const int threads[] = {1, 2, 3, 5};
    const Memory m = memory_of(NULL);

    (void)state;
    for (size_t k = 0; k < sizeof threads / sizeof *threads; k++) {
        FtxError err;
        Team *t;

        assert_int_equal(team_open(&m, threads[k], &t, &err), FTX_OK);
        assert_int_equal(team_threads(t), threads[k]);
        for (int job = 0; job < 5; job++) {
            Counts c = {.team = t};

            team_run(t, meet, &c);
            assert_int_equal(atomic_load(&c.missed), 0);
            for (int i = 0; i < ROUNDS; i++)
                assert_int_equal(atomic_load(&c.here[i]), threads[k]);
            if (job == 2)
                usleep(2000); /* all asleep before the next job */
        }
        team_close(t);
    }
}

static void test_refused(void **state)
{
    const Memory m = memory_of(NULL);
    FtxError err;
    Team *t;

    (void)state;
    assert_int_equal(team_open(&m, -1, &t, &err), FTX_EINVAL);
    assert_int_equal(team_open(&m, 5000, &t, &err), FTX_EINVAL);
    assert_true(team_default_threads() >= 1);
    team_close(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_meet), cmocka_unit_test(test_refused)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
