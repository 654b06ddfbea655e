/* alone.c - one request at a time to an engine without a server: what `ftxc load --spread 0` of as many tokens takes less is
 * the server's part.
 *
 *     alone FILE REQUESTS PROMPT NEW PAUSE_MS [cpu]        FILE: a decoder without weights (they are drawn) */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "ftx.h"

enum { MOST_REQUESTS = 1000, MOST_PROMPT = 4096 };

static void must(FtxStatus s, const FtxError *err)
{
    if (s) {
        fprintf(stderr, "alone: %s\n", err->text);
        exit(2);
    }
}

static double seconds(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static int by_size(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;

    return x < y ? -1 : x > y;
}

static void print_row(const char *name, double *x, int n)
{
    qsort(x, (size_t)n, sizeof *x, by_size);
    printf("%-6s p50 %.4f  least %.4f  most %.4f ms\n", name, x[n / 2] * 1e3, x[0] * 1e3, x[n - 1] * 1e3);
}

/* *first: seconds to the first token; *each: from one token to the next, on average. */
static void run_one(const FtxModel *model, FtxEngine *engine, int vocab, int seed, const int *sizes, double *first,
                    double *each)
{
    static FtxEvent events[4096] = {FTX_EVENT_INIT};
    FtxRequest q = ftx_request_default(model);
    int32_t ids[MOST_PROMPT];
    double from, last = 0.0;
    int tokens = 0;
    FtxError err;
    size_t n;

    for (int k = 0; k < sizes[0]; k++)
        ids[k] = (int32_t)((7919u * (unsigned)seed + 131u * (unsigned)k) % (unsigned)vocab);
    q.ids = ids;
    q.ids_count = (size_t)sizes[0];
    q.max_new = sizes[1];
    q.temperature = 0.0f;
    q.ignore_eos = true;
    from = seconds();
    must(ftx_engine_submit(engine, &q, NULL, &err), &err);
    while (ftx_engine_busy(engine)) {
        must(ftx_engine_step(engine, events, 4096, &n, &err), &err);
        for (size_t i = 0; i < n; i++)
            if (events[i].token >= 0) {
                last = seconds();
                *first = tokens++ ? *first : last - from;
            }
    }
    *each = (last - from - *first) / (tokens > 1 ? tokens - 1 : 1);
}

int main(int argc, char **argv)
{
    static double first[MOST_REQUESTS], each[MOST_REQUESTS];
    const int n = argc > 5 ? atoi(argv[2]) : 0, sizes[] = {argc > 5 ? atoi(argv[3]) : 0, argc > 5 ? atoi(argv[4]) : 0};
    FtxOptions o = FTX_OPTIONS_INIT;
    FtxEngine *engine;
    FtxModelInfo info;
    FtxModel *model;
    FtxError err;

    if (n < 1 || n > MOST_REQUESTS || sizes[0] < 1 || sizes[0] > MOST_PROMPT || sizes[1] < 1) {
        fprintf(stderr, "usage: alone FILE REQUESTS PROMPT NEW PAUSE_MS [cpu]\n");
        return 2;
    }
    o.device = argc > 6 && strcmp(argv[6], "cpu") == 0 ? FTX_DEVICE_CPU : FTX_DEVICE_CUDA;
    o.random_weights = 1;
    o.step_ms = 25; /* as `ftxc serve` */
    must(ftx_model_open(argv[1], &o, &model, &err), &err);
    must(ftx_engine_open(model, &o, &engine, &err), &err);
    ftx_model_info(model, &info);
    for (int i = 0; i < n; i++) {
        const long pause = atol(argv[5]) * 1000000L;

        nanosleep(&(struct timespec){.tv_sec = pause / 1000000000L, .tv_nsec = pause % 1000000000L}, NULL);
        run_one(model, engine, info.vocab, i, sizes, &first[i], &each[i]);
    }
    print_row("TTFT", first, n);
    print_row("TPOT", each, n);
    ftx_engine_close(engine);
    ftx_model_close(model);
    return 0;
}
