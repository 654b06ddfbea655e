/* bench_masks.c - what a mask (a grammar) costs: time of a step with rows that have one, less that without; on the CPU
 * processor time of the host, on a GPU by the clock. No test, but on a GPU it says how many tokens a mask does not allow, and
 * how many differ from those that the host draws (it does where log-probabilities are asked for; a draw may differ where a
 * border lies within the rounding of a sum).
 *
 *     ftxc compile tests/bench/masks.lua --no-weights -o masks.ftx
 *     bench_masks masks.ftx [rows] [threads] [cpu | cuda]         default: 64 rows, all threads, cpu; for figures: 1 thread
 *     ftxc compile specs/llama-3.1-8b.lua -t h200 --no-weights -D limits.masks=true -o 8b.ftx
 *     bench_masks 8b.ftx 64 16 cuda [us]
 *
 * Masks are prepared, so the library that makes them (llguidance: some 50 us each) takes no part; with `us` each takes so
 * many microseconds of the engine's thread. Weights are random: probabilities are nearly the same for all ids, which is
 * the worst case for top-p. Neighbouring rows and tokens have other masks, so that the mask of another row or token is seen. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "runtime/ftx.h"

enum { MOST_ROWS = 64, MOST_EVENTS = 4096, STEPS = 20, WARM = 5, CLOCKED = 80, NEW = 100, CASES = 4 };
enum { MASKS = 7 }; /* of a case: texts and tokens take them in turn */

typedef struct Text {
    int32_t id[NEW];
    size_t n;
} Text;

static Text texts[MOST_ROWS];

static uint32_t *bits_from; /* [MASKS][words] */
static size_t words;
static double mask_us;

/* The mask of new token `count` of a text. */
static const uint32_t *mask_of(const Text *t, size_t count)
{
    return bits_from + ((size_t)(t - texts) + count) % MASKS * words;
}

/* Processor time, of all threads: other programs change it little. With several threads it counts those that spin, too. */
static double now_us(void)
{
    struct timespec t;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

static double clock_us(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

static void must(FtxStatus s, const FtxError *err)
{
    if (s) {
        fprintf(stderr, "bench_masks: %s\n", err->text);
        exit(1);
    }
}

static bool allow(void *user, int sample, const int32_t *ids, size_t count, uint32_t *bits)
{
    const double from = mask_us > 0.0 ? clock_us() : 0.0;

    (void)sample, (void)ids;
    memcpy(bits, mask_of(user, count), words * sizeof *bits);
    while (mask_us > 0.0 && clock_us() - from < mask_us)
        ;
    return true;
}

static int by_size(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static FtxEvent events[MOST_EVENTS] = {FTX_EVENT_INIT};

static void submit_all(FtxEngine *e, int rows, const FtxRequest *like)
{
    FtxError err;

    memset(texts, 0, sizeof texts);
    for (int i = 0; i < rows; i++) {
        const int32_t prompt[4] = {1, 2, 3, 4 + i};
        FtxRequest q = *like;

        q.user = q.mask_user = &texts[i];
        q.ids = prompt;
        q.ids_count = 4;
        q.max_new = NEW;
        q.seed = (uint64_t)i;
        q.ignore_eos = true;
        must(ftx_engine_submit(e, &q, NULL, &err), &err);
    }
}

static void keep(size_t n)
{
    for (size_t i = 0; i < n; i++) {
        Text *t = events[i].user;

        t->id[t->n++] = events[i].token;
    }
}

/* The mean time of CLOCKED steps in which every row gets a token, by the clock. */
static double clocked_us(FtxEngine *e, int rows, const FtxRequest *like)
{
    double from = 0.0, us = 0.0;
    size_t n;
    FtxError err;

    submit_all(e, rows, like);
    for (int i = -WARM; ftx_engine_busy(e);) {
        must(ftx_engine_step(e, events, MOST_EVENTS, &n, &err), &err);
        keep(n);
        i += (int)n == rows;
        from = i == 0 && from == 0.0 ? clock_us() : from;
        us = i == CLOCKED && us == 0.0 ? clock_us() - from : us;
    }
    return us / CLOCKED;
}

/* The least processor time of a step in which every row gets a token. */
static double step_us(FtxEngine *e, int rows, const FtxRequest *like)
{
    double times[STEPS] = {0};
    size_t n;
    FtxError err;

    submit_all(e, rows, like);
    for (int i = -WARM; i < STEPS && ftx_engine_busy(e);) {
        const double at = now_us();

        must(ftx_engine_step(e, events, MOST_EVENTS, &n, &err), &err);
        if (i >= 0)
            times[i] = now_us() - at;
        i += (int)n == rows;
    }
    while (ftx_engine_busy(e))
        must(ftx_engine_step(e, events, MOST_EVENTS, &n, &err), &err);
    qsort(times, STEPS, sizeof *times, by_size);
    return times[0];
}

typedef struct Tally {
    size_t banned, tokens, differ, texts;
} Tally;

/* Of the texts that were timed last: ids that the mask does not allow, and those from which the host's differ. */
static void check_texts(FtxEngine *e, int rows, const FtxRequest *like, Tally *t)
{
    static Text device[MOST_ROWS];
    FtxRequest q = *like;

    memcpy(device, texts, sizeof device);
    q.logprobs = true;
    clocked_us(e, rows, &q);
    for (int i = 0; i < rows; i++) {
        bool same = device[i].n == texts[i].n;

        for (size_t k = 0; k < device[i].n; k++) {
            const int32_t id = device[i].id[k];

            t->banned += id < 0 || !(mask_of(&texts[i], k)[id / 32] >> id % 32 & 1);
            same = same && id == texts[i].id[k];
        }
        t->tokens += device[i].n;
        t->differ += !same;
    }
    t->texts += (size_t)rows;
}

/* Masks of case i: one id in 1, in 100, in 10,000 is allowed. */
static void allow_every(int i, int vocab)
{
    const int every = i < 2 ? 1 : i == 2 ? 100 : 10000;

    memset(bits_from, 0, MASKS * words * sizeof *bits_from);
    for (int m = 0; m < MASKS; m++)
        for (int id = m % every; id < vocab; id += every)
            bits_from[(size_t)m * words + (size_t)id / 32] |= 1u << id % 32;
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        float temperature, top_p;
        int top_k;
    } how[] = {{"greedy", 0.0f, 1.0f, 0},
               {"temperature", 1.0f, 1.0f, 0},
               {"top-p 0.9", 1.0f, 0.9f, 0},
               {"top-k 50, top-p 0.9", 1.0f, 0.9f, 50}};
    const int rows = argc > 2 && atoi(argv[2]) > 0 && atoi(argv[2]) < MOST_ROWS ? atoi(argv[2]) : MOST_ROWS;
    FtxOptions o = FTX_OPTIONS_INIT;
    FtxModel *m;
    FtxEngine *e;
    FtxModelInfo info = {0};
    int rounds = 1; /* of which the least time counts */
    double (*measure)(FtxEngine *, int, const FtxRequest *) = step_us;
    FtxError err;

    if (argc < 2) {
        fprintf(stderr, "usage: bench_masks FILE.ftx [rows] [threads] [cpu | cuda] [us]\n");
        return 2;
    }
    o.random_weights = 1;
    o.threads = argc > 3 ? atoi(argv[3]) : 0;
    o.device = argc > 4 && strcmp(argv[4], "cuda") == 0 ? FTX_DEVICE_CUDA : FTX_DEVICE_CPU;
    mask_us = argc > 5 ? atof(argv[5]) : 0.0;
    if (o.device == FTX_DEVICE_CUDA) {
        measure = clocked_us;
        rounds = 3;
    }
    must(ftx_model_open(argv[1], &o, &m, &err), &err);
    must(ftx_engine_open(m, &o, &e, &err), &err);
    ftx_model_info(m, &info);
    words = ((size_t)info.vocab + 31) / 32;
    bits_from = calloc(MASKS * words, sizeof *bits_from);
    printf("%s, %d rows, %d logits each\n", info.device, rows, info.vocab);
    for (size_t k = 0; k < sizeof how / sizeof *how; k++) {
        FtxRequest q = ftx_request_default(m);
        double least[CASES];
        Tally t = {0};

        q.temperature = how[k].temperature;
        q.top_p = how[k].top_p;
        q.top_k = how[k].top_k;
        for (int round = 0; round < rounds; round++)
            for (int i = 0; i < CASES; i++) {
                double us;

                q.mask = i ? allow : NULL;
                allow_every(i, info.vocab);
                us = measure(e, rows, &q);
                least[i] = round && least[i] < us ? least[i] : us;
                if (i && !round && o.device == FTX_DEVICE_CUDA)
                    check_texts(e, rows, &q, &t);
            }
        printf("%-20s a step without masks %8.0f us; one id in 1: %+8.0f us one id in 100: %+8.0f us one id in 10000: "
               "%+8.0f us\n",
               how[k].name, least[0], least[1] - least[0], least[2] - least[0], least[3] - least[0]);
        if (t.tokens)
            printf("%-20s %zu of %zu tokens are not allowed, %zu of %zu texts not the host's\n", "", t.banned, t.tokens,
                   t.differ, t.texts);
        fflush(stdout);
    }
    free(bits_from);
    ftx_engine_close(e);
    ftx_model_close(m);
    return 0;
}
