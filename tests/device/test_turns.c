/* test_turns.c - models of several GPUs that share some of them: what one has enqueued is done on all of its GPUs before another
 * one's work is enqueued on any. The GPUs here only note their calls. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/device/io.h"
#include "runtime/device/group/group.h"

enum { RANKS = 2, MOST = 200, STORM = 2000 };

struct Device {
    int gpu;
};
struct Session {
    int gpu, number;
    char io[64];
    int enqueued; /* runs that are not waited for */
};

static struct {
    pthread_mutex_t lock;
    int sessions;
    char calls[MOST][16]; /* "run 3" of session 3 ... */
    int n;
    Session *busy[8]; /* of each GPU: whose work it has */
    int mixed;        /* runs on a GPU that had another model's work */
} noted = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void note(const char *what, const Session *s)
{
    if (noted.n < MOST)
        snprintf(noted.calls[noted.n++], sizeof *noted.calls, "%s %d", what, s->number);
}

static FtxStatus open_gpu(const Artifact *a, const ArtifactPlan *plan, const FtxOptions *o, Device **out, FtxError *err)
{
    (void)a;
    (void)plan;
    (void)err;
    *out = calloc(1, sizeof **out);
    assert_non_null(*out);
    (*out)->gpu = o->ordinal;
    return FTX_OK;
}

static void close_gpu(Device *d)
{
    free(d);
}

static const char *describe(const Device *d)
{
    (void)d;
    return "a GPU";
}

static FtxStatus session_open(Device *d, uint64_t kv_bytes, Session **out, uint32_t *pages, FtxError *err)
{
    (void)kv_bytes;
    (void)err;
    *out = calloc(1, sizeof **out);
    assert_non_null(*out);
    (*out)->gpu = d->gpu;
    (*out)->number = noted.sessions++;
    *pages = 10;
    return FTX_OK;
}

static void session_close(Session *s)
{
    free(s);
}

static FtxStatus join(Session *s, int rank, int ranks, Session *const *all, FtxError *err)
{
    (void)err;
    assert_ptr_equal(all[rank], s);
    assert_int_equal(ranks, RANKS);
    return FTX_OK;
}

static void stop(Session *s)
{
    (void)s;
}

static void *io(Session *s)
{
    return s->io;
}

static FtxStatus run(Session *s, uint32_t program, int T, int S, int times, FtxError *err)
{
    (void)program;
    (void)T;
    (void)S;
    (void)times;
    (void)err;
    pthread_mutex_lock(&noted.lock);
    note("run", s);
    noted.mixed += noted.busy[s->gpu] && noted.busy[s->gpu] != s;
    noted.busy[s->gpu] = s;
    pthread_mutex_unlock(&noted.lock);
    return FTX_OK;
}

static FtxStatus gpu_wait(Session *s, FtxError *err)
{
    (void)err;
    pthread_mutex_lock(&noted.lock);
    note("wait", s);
    if (noted.busy[s->gpu] == s)
        noted.busy[s->gpu] = NULL;
    pthread_mutex_unlock(&noted.lock);
    return FTX_OK;
}

static FtxStatus gpu_time(Session *s, uint32_t program, int T, int S, int repeat, double *times, FtxError *err)
{
    memset(times, 0, (size_t)repeat * sizeof *times);
    return run(s, program, T, S, 1, err);
}

static DeviceApi inner = {
    .name = "noted",
    .open = open_gpu,
    .close = close_gpu,
    .describe = describe,
    .session_open = session_open,
    .session_close = session_close,
    .join = join,
    .stop = stop,
    .io = io,
    .run = run,
    .wait = gpu_wait,
    .time = gpu_time,
    .asynchronous = true,
};

typedef struct Model {
    Device *device;
    Session *session;
} Model;

static Model open_model(int first, int second)
{
    static const FtxHeader header = {0};
    static const FtxFacts facts = {.ranks = RANKS};
    static const FtxPlan head = {0};
    static const ArtifactPlan plan = {.head = &head};
    static const Artifact artifact = {.header = &header, .facts = &facts};
    FtxOptions o = FTX_OPTIONS_INIT;
    FtxError err = {0};
    uint32_t pages;
    Model m;

    o.devices[0] = first;
    o.devices[1] = second;
    o.device_count = RANKS;
    if (group_open(&inner, &artifact, &plan, &o, &m.device, &err) ||
        device_group_cuda.session_open(m.device, 0, &m.session, &pages, &err))
        fail_msg("%s", err.text);
    return m;
}

static void close_model(Model m)
{
    device_group_cuda.session_close(m.session);
    device_group_cuda.close(m.device);
}

static void step(Model m)
{
    FtxError err = {0};

    if (device_group_cuda.run(m.session, 0, 1, 1, 1, &err))
        fail_msg("%s", err.text);
}

/* The calls since the last time, each rank's beside the other's in the order of their numbers. */
static void expect(const char *const *calls, int n)
{
    if (noted.n != n)
        fail_msg("%d calls, not %d", noted.n, n);
    for (int i = 0; i < n; i += 2) {
        const int first = strcmp(noted.calls[i], calls[i]) == 0 ? 0 : 1;

        assert_string_equal(noted.calls[i + first], calls[i]);
        assert_string_equal(noted.calls[i + 1 - first], calls[i + 1]);
    }
    noted.n = 0;
}
#define EXPECT(...) \
    expect((const char *const[]){__VA_ARGS__}, (int)(sizeof((const char *const[]){__VA_ARGS__}) / sizeof(char *)))

static void those_that_share_a_gpu_take_turns(void **state)
{
    double us[3];
    FtxError err;

    (void)state;
    noted.sessions = 0;
    const Model a = open_model(0, 1), b = open_model(1, 2), c = open_model(2, 3), d = open_model(0, 1);
    noted.n = 0;
    step(a);
    EXPECT("run 0", "run 1");
    step(a); /* its own work is in nobody's way */
    EXPECT("run 0", "run 1");
    step(c); /* no GPU in common */
    EXPECT("run 4", "run 5");
    step(b); /* one with each; the last that was opened comes first */
    EXPECT("wait 4", "wait 5", "wait 0", "wait 1", "run 2", "run 3");
    step(c);
    EXPECT("wait 2", "wait 3", "run 4", "run 5");
    assert_int_equal(device_group_cuda.time(a.session, 0, 1, 1, 1, us, &err), FTX_OK);
    EXPECT("run 0", "run 1"); /* what b had enqueued is done */
    assert_int_equal(device_group_cuda.time(d.session, 0, 1, 1, 1, us, &err), FTX_OK);
    EXPECT("wait 0", "wait 1", "run 6", "run 7");
    close_model(d);
    close_model(c);
    noted.n = 0;
    step(b); /* those that are closed are nobody's business */
    EXPECT("run 2", "run 3");
    close_model(a);
    close_model(b);
}

/* Where run returns with its results, as on the CPU, nobody waits. */
static void ranks_of_the_cpu_do_not(void **state)
{
    (void)state;
    inner.asynchronous = false;
    noted.sessions = 0;
    const Model a = open_model(0, 1), b = open_model(0, 1);
    noted.n = 0;
    step(a);
    step(b);
    EXPECT("run 0", "run 1", "run 2", "run 3");
    close_model(a);
    close_model(b);
    inner.asynchronous = true;
}

static void *many_steps(void *user)
{
    for (int i = 0; i < STORM; i++) {
        step(*(const Model *)user);
        if (i % 5 == 0)
            device_group_cuda.wait(((const Model *)user)->session, NULL);
    }
    return NULL;
}

/* Engines in threads of their own: no GPU ever has work of two. */
static void no_gpu_has_work_of_two(void **state)
{
    enum { MODELS = 3 };
    pthread_t thread[MODELS];
    Model m[MODELS];

    (void)state;
    noted.mixed = 0;
    memset(noted.busy, 0, sizeof noted.busy);
    for (int i = 0; i < MODELS; i++)
        m[i] = open_model(0, i < 2 ? 1 : 2);
    for (int i = 0; i < MODELS; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, many_steps, &m[i]), 0);
    for (int i = 0; i < MODELS; i++)
        pthread_join(thread[i], NULL);
    assert_int_equal(noted.mixed, 0);
    for (int i = 0; i < MODELS; i++)
        close_model(m[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(those_that_share_a_gpu_take_turns),
        cmocka_unit_test(ranks_of_the_cpu_do_not),
        cmocka_unit_test(no_gpu_has_work_of_two),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
