/* test_peers.c - two GPUs that share a model: each is told where the others' memory is, and what goes wrong between them
 * becomes an error that names the rank. */
#include <pthread.h>
#include <time.h>

#include "runtime/device/trace.h"
#include "world.h"

enum { EXCHANGE = 1024, AT_PEERS = 8192, AT_EXCHANGE = 8448, STATE_BYTES = 8448 + 256 + 3 * EXCHANGE };

typedef struct Pair {
    World *w[2];
    Device *d[2];
    Session *s[2];
} Pair;

static void open_pair(Pair *p)
{
    fake.gpus = 2;
    for (int i = 0; i < 2; i++) {
        const FtxOptions o = {.size = sizeof(FtxOptions), .threads = 1, .ordinal = i};

        p->w[i] = world();
        p->w[i]->t.facts.ranks = 2;
        p->w[i]->t.head.exchange = EXCHANGE;
        p->w[i]->t.head.space_bytes[FTX_SPACE_STATE] = STATE_BYTES;
        p->w[i]->t.head.named[FTX_NAMED_peers] = AT_PEERS;
        p->w[i]->t.head.named_bytes[FTX_NAMED_peers] = sizeof(FtxPeers);
        p->w[i]->t.head.named[FTX_NAMED_exchange] = AT_EXCHANGE;
        p->w[i]->t.head.named_bytes[FTX_NAMED_exchange] = sizeof(FtxExchange) + 3 * EXCHANGE;
        open_both(p->w[i], &o, &p->d[i], &p->s[i]);
    }
}

static FtxStatus join(const Pair *p, FtxError *err)
{
    FtxStatus status = FTX_OK;

    for (int i = 0; i < 2 && !status; i++)
        status = device_cuda.join(p->s[i], i, 2, p->s, err);
    assert_int_equal(fake.pushed, 0);
    return status;
}

static void close_pair(const Pair *p)
{
    for (int i = 0; i < 2; i++)
        device_cuda.session_close(p->s[i]);
    for (int i = 0; i < 2; i++) {
        device_cuda.close(p->d[i]);
        free(p->w[i]);
    }
    assert_int_equal(fake_open_things(), 0);
}

static FtxPeers told(const Pair *p, int rank)
{
    FtxPeers peers = {0};

    must(device_cuda.read(p->s[rank], FTX_NAMED_peers, 0, &peers, sizeof peers, NULL), NULL);
    return peers;
}

static void each_knows_of_all(void **state)
{
    FtxPeers peers[2];
    FtxExchange zero;
    FtxError err = {0};
    Pair p;

    (void)state;
    open_pair(&p);
    must(join(&p, &err), &err);
    assert_int_equal(fake.peers, 2);
    for (int i = 0; i < 2; i++) {
        peers[i] = told(&p, i);
        assert_int_equal(peers[i].rank, i);
        assert_int_equal(peers[i].ranks, 2);
        assert_int_equal(peers[i].timeout_ms, 10000);
        assert_int_equal(peers[i].bytes, EXCHANGE);
        assert_true(fake_holds(peers[i].exchange[i], sizeof(FtxExchange) + 3 * EXCHANGE));
        assert_true(fake_holds(peers[i].report, sizeof(FtxReport)));
        must(device_cuda.read(p.s[i], FTX_NAMED_exchange, 0, &zero, sizeof zero, &err), &err);
        assert_memory_equal(&zero, &(FtxExchange){0}, sizeof zero);
    }
    assert_int_equal(peers[0].exchange[0], peers[1].exchange[0]);
    assert_int_equal(peers[0].exchange[1], peers[1].exchange[1]);
    assert_int_not_equal(peers[0].exchange[0], peers[0].exchange[1]);
    assert_int_not_equal(peers[0].report, peers[1].report);
    must(device_cuda.run(p.s[0], STEP_16, 2, 1, 1, &err), &err);
    must(device_cuda.wait(p.s[0], &err), &err);
    close_pair(&p);
}

static void the_deadline_is_asked_for(void **state)
{
    FtxError err = {0};
    Pair p;

    (void)state;
    open_pair(&p);
    setenv("FTX_PEER_TIMEOUT", "3", 1);
    must(join(&p, &err), &err);
    assert_int_equal(told(&p, 1).timeout_ms, 3000);
    setenv("FTX_PEER_TIMEOUT", "0", 1);
    assert_int_equal(join(&p, &err), FTX_EINVAL);
    assert_non_null(strstr(err.text, "FTX_PEER_TIMEOUT"));
    unsetenv("FTX_PEER_TIMEOUT");
    close_pair(&p);
}

static void gpus_apart_are_refused(void **state)
{
    FtxError err = {0};
    Pair p;

    (void)state;
    open_pair(&p);
    fake.apart = true;
    assert_int_equal(join(&p, &err), FTX_ENODEVICE);
    assert_non_null(strstr(err.text, "does not reach the memory of GPU 1"));
    assert_int_equal(device_cuda.run(p.s[0], STEP_16, 2, 1, 1, &err), FTX_EINVAL);
    assert_non_null(strstr(err.text, "has not joined the others"));
    close_pair(&p);
}

/* The kernels of rank 0 have waited in vain for rank 1. */
static void a_rank_that_does_not_come_is_named(void **state)
{
    FtxError err = {0};
    double us[2];
    Pair p;

    (void)state;
    open_pair(&p);
    must(join(&p, &err), &err);
    FtxReport *report = (FtxReport *)(uintptr_t)told(&p, 0).report; /* NOLINT(performance-no-int-to-ptr) */
    report->failed = 2;
    report->step = 7;
    must(device_cuda.wait(p.s[0], &err), &err);
    must(device_cuda.check(p.s[0], &err), &err);
    report->written = 1;
    assert_int_equal(device_cuda.check(p.s[0], &err), FTX_EDEVICE);
    assert_int_equal(device_cuda.wait(p.s[0], &err), FTX_EDEVICE);
    assert_string_equal(err.text, "rank 1 did not come to exchange 7 within 10 s (FTX_PEER_TIMEOUT)");
    assert_int_equal(device_cuda.run(p.s[0], STEP_16, 2, 1, 1, &err), FTX_EDEVICE);
    assert_int_equal(device_cuda.time(p.s[0], STEP_16, 2, 1, 2, us, &err), FTX_EDEVICE);
    must(device_cuda.wait(p.s[1], &err), &err);
    device_cuda.stop(p.s[1]);
    assert_int_equal(device_cuda.wait(p.s[1], &err), FTX_EDEVICE);
    assert_string_equal(err.text, "another rank has failed");
    assert_int_equal(report->stop, 0);
    close_pair(&p);
}

static void *stop_soon(void *session)
{
    nanosleep(&(struct timespec){0, 100000000}, NULL);
    device_cuda.stop(session);
    return NULL;
}

/* Opens a pair in which rank 1's GPU is held up; the wait for it ends when the others have given it up. */
static void wait_until_stopped(Pair *p, const char *patience)
{
    FtxError err = {0};
    struct timespec from, to;
    pthread_t thread;

    setenv("FTX_PATIENCE", patience, 1);
    open_pair(p);
    unsetenv("FTX_PATIENCE");
    must(join(p, &err), &err);
    must(device_cuda.run(p->s[1], STEP_16, 2, 1, 1, &err), &err);
    fake.hang_at = fake.calls;
    clock_gettime(CLOCK_MONOTONIC, &from);
    assert_int_equal(pthread_create(&thread, NULL, stop_soon, p->s[1]), 0);
    assert_int_equal(device_cuda.wait(p->s[1], &err), FTX_EDEVICE);
    clock_gettime(CLOCK_MONOTONIC, &to);
    assert_string_equal(err.text, "another rank has failed");
    assert_true(to.tv_sec - from.tv_sec < 20);
    assert_int_equal(pthread_join(thread, NULL), 0);
}

/* The GPU is not lost: later it is closed like any other. */
static void a_wait_ends_with_the_others(void **state)
{
    FtxError err = {0};
    Pair p;

    (void)state;
    wait_until_stopped(&p, "40");
    fake.hang_at = 0;
    assert_int_equal(device_cuda.wait(p.s[1], &err), FTX_EDEVICE);
    close_pair(&p);
}

/* A wait that begins after the stop, as closing does, waits for the work. */
static void the_last_wait_is_whole(void **state)
{
    FtxError err = {0};
    Pair p;

    (void)state;
    wait_until_stopped(&p, "2");
    assert_int_equal(device_cuda.wait(p.s[1], &err), FTX_EDEVICE);
    assert_non_null(strstr(err.text, "the GPU has not answered for 2 s"));
    for (int i = 0; i < 2; i++) {
        device_cuda.session_close(p.s[i]);
        device_cuda.close(p.d[i]);
        free(p.w[i]);
    }
    fake_reset();
}

static void each_call_may_fail(void **state)
{
    int loud = 0;

    (void)state;
    for (unsigned long n = 1; n < 60; n++) {
        FtxError err = {0};
        Pair p;

        fake_reset();
        open_pair(&p);
        fake.calls = 0;
        fake.fail_at = n;
        const FtxStatus status = join(&p, &err);
        const bool met = fake.calls >= n;
        fake.fail_at = 0;
        if (status) {
            loud++;
            assert_true(met);
            assert_non_null(strstr(err.text, ": CU"));
            assert_int_not_equal(device_cuda.run(p.s[1], STEP_16, 2, 1, 1, &err), FTX_OK);
        }
        close_pair(&p);
    }
    assert_true(loud >= 8);
    fake_reset();
}

/* Both GPUs run each step; times, the profile and the trace are those of rank 0. */
static void rank_0_stands_for_both(void **state)
{
    const FtxOptions o = {.size = sizeof(FtxOptions), .threads = 2, .random_weights = 5};
    const FtxHeader no_sections = {0};
    const Memory from_malloc = {0};
    World *w = world();
    const FtxProfile *rows;
    double us[3] = {-1.0, -1.0, -1.0};
    uint32_t pages;
    Device *d;
    Session *s;
    Trace *t;
    size_t n;

    (void)state;
    fake.gpus = 2;
    w->t.facts.ranks = 2;
    w->t.artifact.header = &no_sections;
    w->t.weights[2].kind = FTX_WEIGHT_GAIN;
    w->t.head.exchange = EXCHANGE;
    w->t.head.space_bytes[FTX_SPACE_STATE] = STATE_BYTES;
    w->t.head.named[FTX_NAMED_peers] = AT_PEERS;
    w->t.head.named_bytes[FTX_NAMED_peers] = sizeof(FtxPeers);
    w->t.head.named[FTX_NAMED_exchange] = AT_EXCHANGE;
    w->t.head.named_bytes[FTX_NAMED_exchange] = sizeof(FtxExchange) + 3 * EXCHANGE;
    must(device_group_cuda.open(&w->t.artifact, &w->t.plan, &o, &d, NULL), NULL);
    must(device_group_cuda.session_open(d, 0, &s, &pages, NULL), NULL);
    memset(device_group_cuda.io(s), 0, 1024);

    must(device_group_cuda.profile(s, true, &rows, &n, NULL), NULL);
    must(device_group_cuda.upload(s, 1024, NULL), NULL);
    must(device_group_cuda.run(s, STEP_16, 2, 1, 1, NULL), NULL);
    must(device_group_cuda.wait(s, NULL), NULL);
    must(device_group_cuda.profile(s, false, &rows, &n, NULL), NULL);
    assert_int_equal(n, KERNELS);
    assert_int_equal(rows[EMBED].launches, 1);

    must(device_group_cuda.upload(s, 1024, NULL), NULL);
    fake.n_run = 0;
    must(device_group_cuda.time(s, STEP_16, 2, 1, 3, us, NULL), NULL);
    assert_int_equal(fake.n_run, 2 * 3 * 3);
    for (int i = 0; i < 3; i++)
        assert_true(us[i] >= 0.0);
    must(device_group_cuda.upload(s, 1024, NULL), NULL); /* the numbers of steps go on */
    must(device_group_cuda.run(s, STEP_16, 2, 1, 1, NULL), NULL);
    must(device_group_cuda.wait(s, NULL), NULL);

    assert_int_equal(trace_open(&from_malloc, 1000, NULL, NULL, &t, NULL), FTX_OK);
    must(device_group_cuda.trace(s, t, NULL), NULL);
    must(device_group_cuda.upload(s, 1024, NULL), NULL);
    must(device_group_cuda.run(s, STEP_16, 2, 1, 1, NULL), NULL);
    must(device_group_cuda.wait(s, NULL), NULL);
    must(device_group_cuda.trace(s, NULL, NULL), NULL);
    assert_true(t->n > 0);
    trace_close(t);
    device_group_cuda.session_close(s);
    device_group_cuda.close(d);
    assert_int_equal(fake_open_things(), 0);
    free(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(each_knows_of_all, reset),
        cmocka_unit_test_setup(the_deadline_is_asked_for, reset),
        cmocka_unit_test_setup(gpus_apart_are_refused, reset),
        cmocka_unit_test_setup(a_rank_that_does_not_come_is_named, reset),
        cmocka_unit_test_setup(a_wait_ends_with_the_others, reset),
        cmocka_unit_test_setup(the_last_wait_is_whole, reset),
        cmocka_unit_test_setup(each_call_may_fail, reset),
        cmocka_unit_test_setup(rank_0_stands_for_both, reset),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
