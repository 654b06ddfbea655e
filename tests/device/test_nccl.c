/* test_nccl.c - two GPUs that share a model, in two processes: what is enqueued for an exchange, and what goes wrong between the
 * ranks. Rank 1 is a process of its own; each has a driver and an NCCL that run nothing. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "runtime/device/cuda/nccl_table.h"
#include "runtime/device/group/group.h"
#include "world.h"

enum { EXCHANGE = 8192, SHARE = EXCHANGE / 2, AT_PEERS = 8192, AT_EXCHANGE = 8448 };
enum { STATE_BYTES = AT_EXCHANGE + 256 + 3 * EXCHANGE, C = 4, GATHERED = 2 };
static const FtxHeader no_sections = {.sections_checksum = 77};

typedef struct Pair {
    World *w;
    pid_t rank_1; /* 0: it has been waited for */
    Device *d;
    Session *s;
    FtxError err;
    FtxStatus status; /* of open and session_open */
} Pair;

/* The plan of world.h, in which `embed` is an all_gather of rows and `linear` an all_reduce of tokens. */
static World *world_of_ranks(void)
{
    static const int64_t reduce[] = {DT_FP32, DT_FP32, C, 2, 0}, gather[] = {DT_FP32, GATHERED, 2 * GATHERED, 2, 1};
    World *w = world();

    w->t.facts.ranks = 2;
    w->t.artifact.header = &no_sections;
    w->t.weights[2].kind = FTX_WEIGHT_GAIN;
    w->t.head.exchange = EXCHANGE;
    w->t.head.space_bytes[FTX_SPACE_STATE] = STATE_BYTES;
    w->t.head.named[FTX_NAMED_peers] = AT_PEERS;
    w->t.head.named_bytes[FTX_NAMED_peers] = sizeof(FtxPeers);
    w->t.head.named[FTX_NAMED_exchange] = AT_EXCHANGE;
    w->t.head.named_bytes[FTX_NAMED_exchange] = sizeof(FtxExchange) + 3 * EXCHANGE;
    memcpy(w->t.consts + FTX_MM_CONSTS, reduce, sizeof reduce);
    memcpy(w->t.consts + FTX_MM_CONSTS + 5, gather, sizeof gather);
    w->t.kernels[LINEAR].family = STR_ALL_REDUCE;
    w->t.kernels[LINEAR].first_const = FTX_MM_CONSTS;
    w->t.kernels[EMBED].family = STR_ALL_GATHER;
    w->t.kernels[EMBED].first_const = FTX_MM_CONSTS + 5;
    w->t.kernels[LINEAR].n_consts = w->t.kernels[EMBED].n_consts = 5;
    for (uint32_t i = 0; i < w->t.n_launches; i++) {
        FtxOperand *o = &w->t.operands[w->t.launches[i].first_operand];

        if (w->t.launches[i].kernel != EMBED && w->t.launches[i].kernel != LINEAR)
            continue;
        o[0] = (FtxOperand){.space = FTX_SPACE_WORK, .offset = i * 1024};
        o[1] = (FtxOperand){.space = FTX_SPACE_STATE, .offset = AT_EXCHANGE};
    }
    return w;
}

static void set_master(void)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    socklen_t size = sizeof at;
    char text[64];

    assert_int_equal(bind(fd, (struct sockaddr *)&at, size), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&at, &size), 0);
    close(fd);
    snprintf(text, sizeof text, "127.0.0.1:%d", ntohs(at.sin_port));
    setenv("FTX_MASTER", text, 1);
    setenv("FTX_RANKS", "2", 1);
    setenv("FTX_RANK", "0", 1);
}

static const FtxOptions options = {.size = sizeof(FtxOptions), .threads = 1, .random_weights = 5};

/* Exits with the status of its calls; 50: it has left something open. */
static void be_rank_1(const World *w)
{
    FtxError err = {0};

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    const FtxStatus s = remote_run(&device_cuda, &w->t.artifact, &w->t.plan, &options, 1, 2, &err);
    _exit(fake_open_things() ? 50 : (int)s);
}

static unsigned long fail_later; /* fake_nccl.fail_at of rank 0 alone */

static void begin_with(Pair *p, World *w)
{
    uint32_t pages;

    *p = (Pair){.w = w};
    set_master();
    p->rank_1 = fork();
    assert_true(p->rank_1 >= 0);
    if (p->rank_1 == 0)
        be_rank_1(p->w);
    fake_nccl.fail_at = fail_later;
    p->status = device_group_cuda.open(&p->w->t.artifact, &p->w->t.plan, &options, &p->d, &p->err);
    if (!p->status)
        p->status = device_group_cuda.session_open(p->d, 0, &p->s, &pages, &p->err);
}

static void begin(Pair *p)
{
    begin_with(p, world_of_ranks());
}

static void must_begin(Pair *p)
{
    begin(p);
    must(p->status, &p->err);
    memset(device_group_cuda.io(p->s), 0, 1024);
}

/* The status with which rank 1 has ended. */
static int end(Pair *p)
{
    int status = 0;

    if (p->s)
        device_group_cuda.session_close(p->s);
    if (p->d)
        device_group_cuda.close(p->d);
    if (p->rank_1)
        assert_int_equal(waitpid(p->rank_1, &status, 0), p->rank_1);
    assert_int_equal(fake_open_things(), 0);
    assert_int_equal(fake_nccl.opened, fake_nccl.aborted);
    free(p->w);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 100;
}

static FtxStatus step(const Pair *p, uint32_t program, int T, int S, FtxError *err)
{
    FtxStatus s = device_group_cuda.upload(p->s, 1024, err);

    return s ? s : device_group_cuda.run(p->s, program, T, S, 1, err);
}

static FtxPeers told(const Pair *p)
{
    FtxPeers peers = {0};

    must(device_group_cuda.read(p->s, FTX_NAMED_peers, 0, &peers, sizeof peers, NULL), NULL);
    return peers;
}

/* --- what is enqueued ---------------------------------------------------------------------------------- */

/* A send, a receive, and the kernel, whose first operand is what was sent. */
static void expect_exchange(const Pair *p, const FakeLaunch *l, const char *kernel, size_t bytes, bool in_graph)
{
    assert_string_equal(l[0].kernel, "nccl_send");
    assert_string_equal(l[1].kernel, "nccl_recv");
    assert_string_equal(l[2].kernel, kernel);
    for (int i = 0; i < 3; i++)
        assert_int_equal(l[i].in_graph, in_graph);
    assert_int_equal(l[0].param[0], l[2].param[0]);
    assert_int_equal(l[0].param[1], bytes);
    assert_int_equal(l[1].param[1], bytes);
    assert_int_equal(l[0].param[2], 1);
    assert_int_equal(l[1].param[2], 1);
    assert_int_equal(l[1].param[0], told(p).exchange[0] + sizeof(FtxExchange) + SHARE);
    assert_false(l[2].overlap);
}

static void parts_come_before_their_kernel(void **state)
{
    FtxError err = {0};
    Pair p;

    (void)state;
    must_begin(&p);
    assert_false(fake_nccl.nvls);
    const FtxPeers peers = told(&p);
    assert_int_equal(peers.rank, 0);
    assert_int_equal(peers.ranks, 2);
    assert_int_equal(peers.reserved, 1);
    assert_int_equal(peers.bytes, EXCHANGE);
    assert_int_equal(peers.exchange[0], peers.exchange[1]);
    assert_true(fake_holds(peers.exchange[0], sizeof(FtxExchange) + 3 * EXCHANGE));
    assert_true(fake_holds(peers.report, sizeof(FtxReport)));

    must(step(&p, STEP_16, 2, 1, &err), &err); /* a graph: the most that it may have */
    must(device_group_cuda.wait(p.s, &err), &err);
    expect_exchange(&p, last_runs(7), "embed__x", SEQUENCES * GATHERED * 4, true);
    expect_exchange(&p, last_runs(7) + 3, "linear__x", 16 * C * 4, true);
    assert_true(last_runs(1)->overlap);
    must(step(&p, STEP_ANY, 7, 3, &err), &err);
    must(device_group_cuda.wait(p.s, &err), &err);
    must(device_group_cuda.check(p.s, &err), &err);
    expect_exchange(&p, last_runs(5), "embed__x", 3 * GATHERED * 4, false);
    assert_int_equal(end(&p), 0);
}

/* `linear` makes its part itself, in the rank's own part of $exchange: the kernel, the exchange, the kernel again. */
static void two_launches(void **state)
{
    static const int64_t sum[] = {DT_BF16, DT_BF16, DT_BF16, C, 3, 1, 0, 0};
    World *w = world_of_ranks();
    FtxError err = {0};
    Pair p;

    (void)state;
    memcpy(w->t.consts + FTX_MM_CONSTS + 10, sum, sizeof sum);
    w->t.kernels[LINEAR].family = STR_LINEAR_SUM;
    w->t.kernels[LINEAR].first_const = FTX_MM_CONSTS + 10;
    w->t.kernels[LINEAR].n_consts = 8;
    for (uint32_t i = 0; i < w->t.n_launches; i++)
        if (w->t.launches[i].kernel == LINEAR) /* what it reads is in no space that is sent */
            w->t.operands[w->t.launches[i].first_operand].space = FTX_SPACE_WEIGHTS;
    begin_with(&p, w);
    must(p.status, &p.err);
    memset(device_group_cuda.io(p.s), 0, 1024);
    must(step(&p, STEP_16, 2, 1, &err), &err);
    must(device_group_cuda.wait(p.s, &err), &err);
    const FakeLaunch *l = last_runs(5);
    static const char *const kernels[] = {"linear__x", "nccl_send", "nccl_recv", "linear__x"};
    for (int i = 0; i < 4; i++) {
        assert_string_equal(l[i].kernel, kernels[i]);
        assert_false(l[i].overlap);
    }
    assert_int_equal(l[1].param[0], told(&p).exchange[0] + sizeof(FtxExchange));
    assert_int_equal(l[1].param[1], 16 * C * 2);
    assert_int_equal(l[2].param[0], told(&p).exchange[0] + sizeof(FtxExchange) + SHARE);
    assert_int_equal(l[0].param[0], l[3].param[0]);
    assert_int_equal(end(&p), 0);
}

/* The ranks meet again in each engine. */
static void an_engine_after_another(void **state)
{
    FtxError err = {0};
    uint32_t pages;
    Pair p;

    (void)state;
    must_begin(&p);
    must(step(&p, DECODE_4, 2, 2, &err), &err);
    device_group_cuda.session_close(p.s);
    assert_int_equal(fake_nccl.aborted, 1);
    must(device_group_cuda.session_open(p.d, 0, &p.s, &pages, &err), &err);
    assert_int_equal(fake_nccl.opened, 2);
    memset(device_group_cuda.io(p.s), 0, 1024);
    must(step(&p, DECODE_4, 2, 2, &err), &err);
    must(device_group_cuda.wait(p.s, &err), &err);
    assert_int_equal(end(&p), 0);
}

/* --- what goes wrong ----------------------------------------------------------------------------------- */

static void each_call_of_nccl_may_fail(void **state)
{
    enum { CALLS = 40 };
    int loud = 0;

    (void)state;
    for (unsigned long n = 1; n <= CALLS; n++) {
        FtxError err = {0};
        Pair p;

        fake_reset();
        fail_later = n;
        begin(&p);
        fail_later = 0;
        FtxStatus s = p.status;
        err = p.err;
        if (!s)
            memset(device_group_cuda.io(p.s), 0, 1024);
        if (!s)
            s = step(&p, STEP_ANY, 5, 2, &err);
        if (!s)
            s = device_group_cuda.wait(p.s, &err);
        if (s) {
            loud++;
            assert_true(fake_nccl.calls >= n);
            assert_non_null(strstr(err.text, "NCCL: made to fail"));
        }
        end(&p);
    }
    assert_true(loud > 20);
    fake_reset();
}

static double seconds(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void a_rank_that_nccl_does_not_meet(void **state)
{
    Pair p;

    (void)state;
    setenv("FTX_PEER_TIMEOUT", "1", 1);
    fake_nccl.meets_after = -1;
    const double from = seconds();
    begin(&p);
    unsetenv("FTX_PEER_TIMEOUT");
    assert_int_equal(p.status, FTX_EDEVICE);
    assert_non_null(
        strstr(p.err.text, "the meeting of the ranks: NCCL has not ended it within 6 s: a rank did not come"));
    assert_true(seconds() - from < 12);
    assert_int_not_equal(end(&p), 0);
}

/* Rank 0's GPU waits for ever from now on, but reads while it does. */
static void hang(const Pair *p)
{
    FtxError err = {0};

    must(step(p, DECODE_4, 2, 2, &err), &err);
    fake.only_kernels = true;
    fake.hang_at = fake.calls;
}

static void what_nccl_says_ends_a_wait(void **state)
{
    FtxError err = {0};
    Pair p;

    (void)state;
    must_begin(&p);
    hang(&p);
    fake_nccl.async_error = NCCL_REMOTE_ERROR;
    assert_int_equal(device_group_cuda.wait(p.s, &err), FTX_EDEVICE);
    assert_string_equal(err.text, "rank 0: an exchange of the ranks: NCCL: remote process exited: it was told so");
    assert_int_equal(device_group_cuda.run(p.s, DECODE_4, 2, 2, 1, &err), FTX_EDEVICE);
    assert_int_equal(end(&p), FTX_EDEVICE);
}

static void a_process_that_dies_is_named(void **state)
{
    FtxError err = {0};
    Pair p;

    (void)state;
    must_begin(&p);
    hang(&p);
    const double from = seconds();
    kill(p.rank_1, SIGKILL);
    assert_int_equal(device_group_cuda.wait(p.s, &err), FTX_EDEVICE);
    assert_string_equal(err.text, "rank 0: the connection to rank 1 has ended");
    assert_true(seconds() - from < 5);
    assert_int_equal(end(&p), 100);
}

/* Found, too, where nothing is waited for. */
static void a_process_that_has_died_is_found(void **state)
{
    FtxError err = {0};
    Pair p;
    int tries = 0;

    (void)state;
    must_begin(&p);
    kill(p.rank_1, SIGKILL);
    while (!device_group_cuda.check(p.s, &err) && tries++ < 500)
        nanosleep(&(struct timespec){0, 10 * 1000 * 1000}, NULL);
    assert_string_equal(err.text, "rank 0: the connection to rank 1 has ended");
    end(&p);
}

static unsigned *count;

/* Exchanges go on for 2 s. */
static void *count_on(void *user)
{
    for (int i = 0; i < 20; i++) {
        __atomic_add_fetch(count, 1, __ATOMIC_SEQ_CST);
        nanosleep(&(struct timespec){0, 100 * 1000 * 1000}, NULL);
    }
    return user;
}

static void a_rank_that_is_late_is_named(void **state)
{
    FtxError err = {0};
    pthread_t thread;
    Pair p;

    (void)state;
    setenv("FTX_PEER_TIMEOUT", "1", 1);
    must_begin(&p);
    unsetenv("FTX_PEER_TIMEOUT");
    count = (unsigned *)(uintptr_t)told(&p).exchange[0]; /* NOLINT(performance-no-int-to-ptr) */
    *count = 7;
    hang(&p);
    const double from = seconds();
    assert_int_equal(pthread_create(&thread, NULL, count_on, NULL), 0);
    assert_int_equal(device_group_cuda.wait(p.s, &err), FTX_EDEVICE);
    const double waited = seconds() - from;
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_string_equal(err.text, "rank 0: rank 1 did not come to exchange 27 within 1 s (FTX_PEER_TIMEOUT)");
    assert_true(waited > 2.5 && waited < 8);
    assert_int_equal(end(&p), FTX_EDEVICE);
}

/* --- plans that processes do not run -------------------------------------------------------------------- */

static void expect_refused(World *w, FtxStatus status, const char *text)
{
    FtxError err = {0};
    Device *d;

    set_master();
    assert_int_equal(device_cuda.open(&w->t.artifact, &w->t.plan, &options, &d, &err), status);
    if (!strstr(err.text, text))
        fail_msg("\"%s\" has no \"%s\"", err.text, text);
    free(w);
}

static void plans_that_are_refused(void **state)
{
    World *w = world_of_ranks();

    (void)state;
    w->t.kernels[LINEAR].family = STR_GATHER_LOGITS;
    expect_refused(w, FTX_ENODEVICE, "all_reduce, all_gather and linear_sum alone");
    w = world_of_ranks();
    w->t.kernels[LINEAR].n_consts = 4;
    expect_refused(w, FTX_EFORMAT, "has 4 constants, not 5");
    w = world_of_ranks();
    w->t.consts[FTX_MM_CONSTS] = DT_INT4;
    expect_refused(w, FTX_ENODEVICE, "whole words of 4 bytes");
    w = world_of_ranks();
    w->t.consts[FTX_MM_CONSTS] = DT_BF16;
    w->t.consts[FTX_MM_CONSTS + 2] = 3;
    expect_refused(w, FTX_ENODEVICE, "whole words of 4 bytes");
    w = world_of_ranks();
    w->t.consts[FTX_MM_CONSTS + 2] = SHARE / 16 / 4 + 1;
    expect_refused(w, FTX_EFORMAT, "bytes to an exchange");
    w = world_of_ranks();
    w->t.operands[w->t.launches[1].first_operand].offset = 200000 - 255;
    expect_refused(w, FTX_EFORMAT, "layer 0: up brings 256 bytes to an exchange");
    w = world_of_ranks();
    w->t.operands[w->t.launches[1].first_operand].space = FTX_SPACE_WEIGHTS;
    expect_refused(w, FTX_EFORMAT, "layer 0: up brings 256 bytes to an exchange");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(parts_come_before_their_kernel, reset),
        cmocka_unit_test_setup(two_launches, reset),
        cmocka_unit_test_setup(an_engine_after_another, reset),
        cmocka_unit_test_setup(each_call_of_nccl_may_fail, reset),
        cmocka_unit_test_setup(a_rank_that_nccl_does_not_meet, reset),
        cmocka_unit_test_setup(what_nccl_says_ends_a_wait, reset),
        cmocka_unit_test_setup(a_process_that_dies_is_named, reset),
        cmocka_unit_test_setup(a_process_that_has_died_is_found, reset),
        cmocka_unit_test_setup(a_rank_that_is_late_is_named, reset),
        cmocka_unit_test_setup(plans_that_are_refused, reset),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
