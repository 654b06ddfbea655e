/* test_team.c - threads that stay: every share once, pieces in order, awake or asleep. */
#include <setjmp.h>
#include <stdarg.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#include "runtime/base/team.h"

enum { ROUNDS = 200 };

typedef struct Counts {
    atomic_int shares[ROUNDS], missed;
} Counts;

/* A piece begins when the one before is done, and every share of it comes once. */
static void count(void *user, int piece, int share, int shares)
{
    Counts *c = user;

    if (piece && atomic_load(&c->shares[piece - 1]) != (1 << shares) - 1)
        atomic_fetch_add(&c->missed, 1);
    if (piece % 50 == 10 && share == shares - 1)
        usleep(300); /* the others wait long */
    if (atomic_fetch_or(&c->shares[piece], 1 << share) & 1 << share)
        atomic_fetch_add(&c->missed, 1);
}

static void test_pieces(void **state)
{
    static const int threads[] = {1, 2, 3, 5};
    const Memory m = memory_of(NULL);

    (void)state;
    for (size_t k = 0; k < sizeof threads / sizeof *threads; k++) {
        FtxError err;
        Team *t;

        assert_int_equal(team_open(&m, threads[k], &t, &err), FTX_OK);
        assert_int_equal(team_threads(t), threads[k]);
        for (int job = 0; job < 200; job++) {
            Counts c = {.missed = 0};
            const int pieces = job % 40 ? job % 7 : ROUNDS;

            team_run(t, count, &c, pieces);
            assert_int_equal(atomic_load(&c.missed), 0);
            for (int i = 0; i < ROUNDS; i++)
                assert_int_equal(atomic_load(&c.shares[i]), i < pieces ? (1 << threads[k]) - 1 : 0);
            if (job % 50 == 2)
                usleep(2000); /* all asleep before the next job */
        }
        team_close(t);
    }
}

typedef struct Meeting {
    pthread_t host;
    atomic_int there, open; /* threads that have come; those that take signals */
} Meeting;

/* Waits for all others: a share that another thread would have to do as well never comes. */
static void meet(void *user, int piece, int share, int shares)
{
    Meeting *m = user;
    sigset_t blocked;

    (void)piece;
    (void)share;
    pthread_sigmask(SIG_SETMASK, NULL, &blocked);
    if (!pthread_equal(pthread_self(), m->host) && !sigismember(&blocked, SIGTERM))
        atomic_fetch_add(&m->open, 1);
    atomic_fetch_add(&m->there, 1);
    for (int i = 0; i < 20000 && atomic_load(&m->there) < shares; i++)
        usleep(1000);
}

/* There are as many threads as asked for; signals are left to those of the program. */
static void test_threads(void **state)
{
    const Memory memory = memory_of(NULL);
    Meeting m = {.host = pthread_self()};
    sigset_t one, after;
    FtxError err;
    Team *t;

    (void)state;
    sigemptyset(&one);
    sigaddset(&one, SIGTERM);
    pthread_sigmask(SIG_UNBLOCK, &one, NULL);
    assert_int_equal(team_open(&memory, 3, &t, &err), FTX_OK);
    pthread_sigmask(SIG_SETMASK, NULL, &after);
    assert_int_equal(sigismember(&after, SIGTERM), 0);
    team_run(t, meet, &m, 1);
    team_close(t);
    assert_int_equal(atomic_load(&m.there), 3);
    assert_int_equal(atomic_load(&m.open), 0);
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
    assert_int_equal(team_open(&m, 0, &t, &err), FTX_OK); /* as many as there are processors */
    team_close(t);
    team_close(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_pieces), cmocka_unit_test(test_threads),
                                       cmocka_unit_test(test_refused)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
