/* test_storm.c - storms (storm.h) over every kind of model on the CPU: each request gives, bit for bit, what it gives
 * alone.
 *
 * Only the CPU guarantees equal bits for any artifact. On a GPU (FTX_TEST_DEVICE=cuda) the kernels for few and for many
 * rows sum in different orders, so the last bits may differ; tests/gpu/storm.c counts there.
 *
 * A storm that fails is repeated with fewer and fewer actions until none can be left out, and the remaining actions are
 * printed. Storms run in child processes.
 *
 *   FTX_STORM_SECONDS=20   time for all models together     FTX_STORM_SEED=17   only this storm, of every model
 *   FTX_STORM_THREADS=1    2: two engines of one model run storms in two threads (for ThreadSanitizer) */
#include <pthread.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "golden.h"
#include "storm.h"

static const struct {
    const char *spec, *name, *defines;
    unsigned pages; /* KV pages, set by FtxOptions.kv_bytes; 0: the default */
    bool prefix;    /* with FtxOptions.prefix_cache and overcommit; each request alone runs without them */
} models[] = {
    {"tests/models/tiny-llama", "storm-llama",
     "-D limits.sequences=4 -D limits.context=48 -D limits.tokens=12 -D kv.block_size=8 "
     "-D decode.width=3",
     16, false},
    {"tests/models/tiny-llama", "storm-llama-prefix",
     "-D limits.sequences=4 -D limits.context=48 -D limits.tokens=12 -D kv.block_size=8 "
     "-D decode.width=3",
     16, true},
    {"tests/models/tiny-llama", "storm-llama-int8",
     "-D limits.sequences=4 -D limits.context=48 -D limits.tokens=12 -D kv.block_size=8 "
     "-D decode.width=3 -D precision.kv=int8",
     16, true},
    {"tests/models/tiny-mistral", "storm-mistral",
     "-D limits.sequences=3 -D limits.context=40 -D limits.tokens=40 -D kv.block_size=8 -D kv.pages=12", 0, false},
    {"tests/models/tiny-gpt2", "storm-gpt2",
     "-D limits.sequences=5 -D limits.context=48 -D limits.tokens=9 -D kv.block_size=16 "
     "-D decode.width=2",
     9, false},
    {"tests/models/tiny-gpt2", "storm-gpt2-prefix",
     "-D limits.sequences=5 -D limits.context=48 -D limits.tokens=9 -D kv.block_size=8", 16, true},
    {"tests/models/tiny-bart", "storm-bart",
     "-D limits.sequences=6 -D limits.context=32 -D limits.source=24 -D limits.tokens=26 -D limits.sources=3 "
     "-D kv.block_size=8 -D decode.width=3",
     0, false},
    {"tests/models/tiny-marian", "storm-marian",
     "-D limits.sequences=4 -D limits.context=24 -D limits.source=16 -D limits.tokens=40 -D kv.block_size=8 "
     "-D decode.width=2",
     10, false},
    {"tests/models/recurrent.lua", "storm-recurrent", /* a request that is preempted is computed from its beginning */
     "--no-weights -D limits.context=48 -D limits.tokens=12", 12, true},
    {"tests/models/recurrent/states.lua", "storm-states", "--no-weights", 0, true}, /* pages of no bytes */
    {"tests/models/tiny-bert", "storm-bert", "-D limits.sequences=4 -D limits.context=32 -D limits.tokens=40", 0,
     false},
};

/* --- processes -------------------------------------------------------------------------------------------- */

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

typedef struct Shared { /* memory shared with the child process */
    uint64_t seed, storms;
    bool left_out[STORM_ACTIONS];
} Shared;

static int threads_wanted(void)
{
    const char *n = getenv("FTX_STORM_THREADS");

    return n ? atoi(n) : 1;
}

static size_t model_at(const char *name)
{
    size_t i = 0;

    while (strcmp(models[i].name, name) != 0)
        i++;
    return i;
}

static void open_storm(Storm *s, const char *name, FtxModel *model)
{
    const size_t i = model_at(name);

    storm_open(s, name, model, NULL, models[i].pages, models[i].prefix);
}

/* A storm that must not differ. */
static void run_storm(Storm *s, uint64_t seed)
{
    if (storm_run(s, seed))
        return;
    fprintf(stderr, "%s: %s\n", s->name, s->text);
    _exit(1);
}

typedef struct Beside {
    const char *name;
    FtxModel *model;
    uint64_t seed;
} Beside;

static void *storm_beside(void *user)
{
    const Beside *b = user;
    Storm s;

    open_storm(&s, b->name, b->model);
    run_storm(&s, b->seed);
    storm_close(&s);
    return NULL;
}

static FtxModel *open_model(const char *name)
{
    const FtxOptions options = {.size = sizeof(FtxOptions),
                                .device = golden_on_cuda() ? FTX_DEVICE_CUDA : FTX_DEVICE_CPU,
                                .threads = 1,
                                .random_weights = strstr(models[model_at(name)].defines, "--no-weights") != NULL};
    char path[1000];
    FtxModel *model;
    FtxError err;

    golden_path(name, path, sizeof path);
    if (ftx_model_open(path, &options, &model, &err)) {
        fprintf(stderr, "%s: %s\n", path, err.text);
        _exit(1);
    }
    return model;
}

/* Runs storms with seeds shared->seed, + 1, ...: at most `count`, at least one, none begun after time `until`. Runs in
 * a child process. */
static void storms(const char *name, Shared *shared, uint64_t count, double until, const bool *left_out)
{
    FtxModel *model = open_model(name);
    Storm s;

    open_storm(&s, name, model);
    s.left_out = left_out;
    for (uint64_t i = 0; i < count && (i == 0 || now() < until); i++, shared->seed++) {
        Beside beside = {name, model, shared->seed + 1000003u};
        pthread_t thread;
        const bool two = threads_wanted() > 1;

        if (two && pthread_create(&thread, NULL, storm_beside, &beside))
            _exit(1);
        run_storm(&s, shared->seed);
        if (two)
            pthread_join(thread, NULL);
        shared->storms++;
    }
    storm_close(&s);
    ftx_model_close(model);
}

/* Whether these storms fail in a child process. quiet: hides the child's messages. */
static bool fails(const char *name, Shared *shared, uint64_t count, double until, const bool *left_out, bool quiet)
{
    int status = 0;
    const pid_t child = fork();

    if (child == 0) {
        if (quiet && !freopen("/dev/null", "w", stderr))
            _exit(1);
        storms(name, shared, count, until, left_out);
        exit(0); /* not _exit(): the leak checker runs at exit */
    }
    assert_true(child > 0 && waitpid(child, &status, 0) == child);
    return status != 0;
}

/* Runs `work` in a child process. The parent never opens a model, since the CUDA driver, once initialised, cannot be
 * used after fork(). */
static void in_child(void (*work)(const void *user), const void *user)
{
    int status = 0;
    const pid_t child = fork();

    if (child == 0) {
        work(user);
        exit(0);
    }
    assert_true(child > 0 && waitpid(child, &status, 0) == child);
    assert_int_equal(status, 0);
}

static void compile_model(const void *user)
{
    const size_t i = *(const size_t *)user;

    ftx_model_close(golden_open(models[i].spec, models[i].name, models[i].defines));
}

typedef struct Left {
    const char *name;
    uint64_t seed;
    const bool *left_out;
} Left;

static void print_left(const void *user)
{
    const Left *l = user;
    FtxModel *model = open_model(l->name);
    Storm s;

    open_storm(&s, l->name, model);
    storm_make(&s, l->seed);
    for (int i = 0; i < STORM_ACTIONS; i++)
        if (!l->left_out[i])
            storm_print_action(&s.action[i]);
    storm_close(&s);
    ftx_model_close(model);
}

typedef struct Failing {
    const char *name;
    Shared *shared;
    uint64_t seed;
} Failing;

static bool still_fails(void *user, const bool *left_out)
{
    const Failing *f = user;

    f->shared->seed = f->seed;
    return fails(f->name, f->shared, 1, 0.0, left_out, true);
}

static void shrink(const char *name, Shared *shared, uint64_t seed)
{
    const Left left = {name, seed, shared->left_out};
    Failing failing = {name, shared, seed};
    const int n = storm_shrink(still_fails, &failing, shared->left_out);

    print_message("%s: storm %llu fails with these actions alone:\n", name, (unsigned long long)seed);
    in_child(print_left, &left);
    shared->seed = seed;
    fails(name, shared, 1, 0.0, shared->left_out, false);
    fail_msg("%s: FTX_STORM_SEED=%llu repeats it; %d actions of %d are needed", name, (unsigned long long)seed, n,
             STORM_ACTIONS);
}

static void storm_all(void **state)
{
    const char *seconds = getenv("FTX_STORM_SECONDS"), *only = getenv("FTX_STORM_SEED");
    const double each = (seconds ? atof(seconds) : 12.0) / (sizeof models / sizeof *models);
    Shared *shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    (void)state;
    assert_true(shared != MAP_FAILED);
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        in_child(compile_model, &i);
        *shared = (Shared){.seed = only ? strtoull(only, NULL, 10) : 1};
        if (fails(models[i].name, shared, only ? 1 : UINT64_MAX, now() + each, NULL, false))
            shrink(models[i].name, shared, shared->seed);
        assert_true(shared->storms > 0);
        print_message("%s: %llu storms, from seed %s\n", models[i].name, (unsigned long long)shared->storms,
                      only ? only : "1");
    }
    munmap(shared, sizeof *shared);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(storm_all)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
