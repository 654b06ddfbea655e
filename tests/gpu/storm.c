/* storm.c - storms (tests/models/storm.h) over one artifact on any device: counts what differs from the same request
 * alone, and shrinks the first storm in which something does.
 *
 *     storm FILE.ftx [--device cpu|cuda] [--seconds N | --storms N] [--seed N] [--threads N] [--prefix] [--alone FILE]
 *           [--random-weights N]
 *
 * Each thread has engines of its own. --prefix: the storms' engines have a prefix cache and requests take pages as they
 * grow; the engine of the requests alone has neither. --alone: requests alone run on another artifact of the model, with
 * smaller limits or none that differ. Status 0: nothing differs; 1: something does; 2: it could not run. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tests/models/storm.h"

enum { MOST_THREADS = 64 };

typedef struct Options {
    const char *file, *alone;
    FtxOptions open;
    double seconds;
    uint64_t storms, seed;
    int threads;
    bool prefix;
} Options;

typedef struct Worker {
    const Options *o;
    Storm storm;
    uint64_t first, step; /* its seeds: first, first + step, ... */
    double until;
    uint64_t seed; /* the first storm that differs; 0: none */
} Worker;

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void __attribute__((noreturn)) stop(const char *what, const char *why)
{
    fprintf(stderr, "storm: %s%s%s\n", what, why[0] ? ": " : "", why);
    exit(2);
}

static uint64_t number(const char *word, const char *option)
{
    char *end;
    const unsigned long long n = strtoull(word, &end, 10);

    if (!*word || *end)
        stop(option, "expected a number");
    return n;
}

static Options parse(int argc, char **argv)
{
    Options o = {.open = FTX_OPTIONS_INIT, .storms = UINT64_MAX, .seconds = 1e9, .seed = 1, .threads = 2};

    o.open.threads = 1;
    for (int i = 1; i < argc; i++) {
        const char *const a = argv[i];

        if (strcmp(a, "--prefix") == 0)
            o.prefix = true;
        else if (a[0] != '-')
            o.file = a;
        else if (i + 1 == argc)
            stop(a, "expected a value");
        else if (strcmp(a, "--device") == 0)
            o.open.device = strcmp(argv[++i], "cuda") == 0 ? FTX_DEVICE_CUDA : FTX_DEVICE_CPU;
        else if (strcmp(a, "--seconds") == 0)
            o.seconds = (double)number(argv[++i], a);
        else if (strcmp(a, "--storms") == 0)
            o.storms = number(argv[++i], a);
        else if (strcmp(a, "--seed") == 0)
            o.seed = number(argv[++i], a);
        else if (strcmp(a, "--threads") == 0)
            o.threads = (int)number(argv[++i], a);
        else if (strcmp(a, "--alone") == 0)
            o.alone = argv[++i];
        else if (strcmp(a, "--random-weights") == 0)
            o.open.random_weights = number(argv[++i], a);
        else
            stop(a, "no such option");
    }
    if (!o.file || o.threads < 1 || o.threads > MOST_THREADS || !o.seed)
        stop("usage: storm FILE.ftx [--device cpu|cuda] [--seconds N | --storms N] [--seed N] [--threads 1..64] "
             "[--prefix] [--alone FILE] [--random-weights N]",
             "");
    return o;
}

static void *work(void *user)
{
    Worker *w = user;

    for (uint64_t seed = w->first; seed - w->o->seed < w->o->storms && (seed == w->first || now() < w->until);
         seed += w->step)
        if (!storm_run(&w->storm, seed) && !w->seed)
            w->seed = seed;
    return NULL;
}

static bool still_differs(void *user, const bool *left_out)
{
    Worker *w = user;

    w->storm.left_out = left_out;
    return !storm_run(&w->storm, w->seed);
}

/* Prints the actions without which the storm does not differ, and what then does. */
static void shrink(Worker *w)
{
    bool left_out[STORM_ACTIONS];
    const int left = storm_shrink(still_differs, w, left_out);

    still_differs(w, left_out);
    printf("storm %llu of 1 thread differs with %d actions of %d:\n", (unsigned long long)w->seed, left, STORM_ACTIONS);
    for (int i = 0; i < STORM_ACTIONS; i++)
        if (!left_out[i])
            storm_print_action(&w->storm.action[i]);
    if (w->storm.text[0])
        printf("%s\n", w->storm.text);
    else
        printf("(not each time: another run of the same actions differs in nothing)\n");
}

static StormCounts sum_up(const Worker *w, int n)
{
    StormCounts all = {0};

    for (int i = 0; i < n; i++) {
        const StormCounts *c = &w[i].storm.counts;

        all.storms += c->storms;
        all.samples += c->samples;
        all.tokens += c->tokens;
        all.numbers += c->numbers;
        all.scores += c->scores;
        all.other_scores += c->other_scores;
        all.vectors += c->vectors;
        all.other_vectors += c->other_vectors;
    }
    return all;
}

int main(int argc, char **argv)
{
    const Options o = parse(argc, argv);
    pthread_t thread[MOST_THREADS];
    static Worker worker[MOST_THREADS];
    FtxModel *model, *alone = NULL;
    FtxError err;
    StormCounts c;

    if (ftx_model_open(o.file, &o.open, &model, &err))
        stop(o.file, err.text);
    if (o.alone && ftx_model_open(o.alone, &o.open, &alone, &err))
        stop(o.alone, err.text);
    for (int i = 0; i < o.threads; i++) {
        worker[i] =
            (Worker){.o = &o, .first = o.seed + (uint64_t)i, .step = (uint64_t)o.threads, .until = now() + o.seconds};
        storm_open(&worker[i].storm, o.file, model, alone, 0, o.prefix);
    }

    const double from = now();

    for (int i = 0; i < o.threads; i++)
        if (pthread_create(&thread[i], NULL, work, &worker[i]))
            stop("no thread", "");
    for (int i = 0; i < o.threads; i++)
        pthread_join(thread[i], NULL);
    c = sum_up(worker, o.threads);
    printf("%s: seed %llu, %d threads, %llu storms in %.1f s\n", o.file, (unsigned long long)o.seed, o.threads,
           (unsigned long long)c.storms, now() - from);
    printf("  %llu samples: %llu differ in tokens or text, %llu in log-probabilities, scores or logits alone\n",
           (unsigned long long)c.samples, (unsigned long long)c.tokens, (unsigned long long)c.numbers);
    printf("  %llu scored texts: %llu differ; %llu vectors: %llu differ\n", (unsigned long long)c.scores,
           (unsigned long long)c.other_scores, (unsigned long long)c.vectors, (unsigned long long)c.other_vectors);
    fflush(stdout);
    for (int i = 0; i < o.threads; i++)
        if (worker[i].seed) {
            shrink(&worker[i]);
            break;
        }
    for (int i = 0; i < o.threads; i++)
        storm_close(&worker[i].storm);
    ftx_model_close(model);
    if (alone)
        ftx_model_close(alone);
    return c.tokens || c.numbers || c.other_scores || c.other_vectors;
}
