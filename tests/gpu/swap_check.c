/* swap_check.c - requests that are preempted on a GPU: with fixed sums their tokens and log-probabilities are, bit for bit,
 * those of an engine with room for all, whether their pages are recomputed or copied to pinned host memory and back.
 *
 *     swap_check FILE [cpu]        FILE: a decoder without weights (they are drawn), on a GPU with precision.sums = fixed */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "ftx.h"

enum { REQUESTS = 24, PROMPT = 90, NEW = 160, PAGE = 16, PAGES = 150 /* of some 380 */ };

typedef struct Result {
    int32_t ids[NEW];
    float logprobs[NEW];
    size_t n;
} Result;

typedef struct Way {
    const char *name;
    bool few, swap, prefix;
} Way;

static Result result[2][REQUESTS];

static void must(FtxStatus s, const FtxError *err)
{
    if (s) {
        fprintf(stderr, "swap_check: %s\n", err->text);
        exit(2);
    }
}

static double seconds(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void submit(const FtxModel *model, FtxEngine *engine, int vocab, int i, Result *to)
{
    FtxRequest q = ftx_request_default(model);
    int32_t ids[PROMPT];
    FtxError err;

    for (int k = 0; k < PROMPT; k++)
        ids[k] = (17 * i + 5 * k + 3) % vocab;
    q.ids = ids;
    q.ids_count = PROMPT;
    q.max_new = NEW;
    q.ignore_eos = q.logprobs = true;
    q.temperature = i % 2 ? 0.8f : 0.0f;
    q.repetition_penalty = 1.1f; /* reads the history */
    q.seed = (uint64_t)i;
    q.user = to;
    *to = (Result){0};
    must(ftx_engine_submit(engine, &q, NULL, &err), &err);
}

static FtxStats run_all(FtxModel *model, const FtxOptions *o, Result *to)
{
    static FtxEvent events[4096] = {FTX_EVENT_INIT};
    FtxModelInfo info;
    FtxEngine *engine;
    FtxStats stats;
    FtxError err;
    size_t n;

    ftx_model_info(model, &info);
    must(ftx_engine_open(model, o, &engine, &err), &err);
    for (int i = 0; i < REQUESTS; i++)
        submit(model, engine, info.vocab, i, &to[i]);
    while (ftx_engine_busy(engine)) {
        must(ftx_engine_step(engine, events, 4096, &n, &err), &err);
        for (size_t i = 0; i < n; i++)
            if (events[i].token >= 0) {
                Result *r = events[i].user;

                r->ids[r->n] = events[i].token;
                r->logprobs[r->n++] = events[i].logprob;
            }
    }
    stats = ftx_engine_stats(engine);
    ftx_engine_close(engine);
    return stats;
}

static void print_log(void *user, int level, const char *text)
{
    (void)user, (void)level;
    if (strstr(text, "to copy one"))
        printf("%s\n", text);
}

/* Requests that are not as with room for all. */
static int differences(void)
{
    int n = 0;

    for (int i = 0; i < REQUESTS; i++) {
        const Result *a = &result[0][i], *b = &result[1][i];

        n += a->n != NEW || b->n != NEW || memcmp(a->ids, b->ids, sizeof a->ids) != 0 ||
             memcmp(a->logprobs, b->logprobs, sizeof a->logprobs) != 0;
    }
    return n;
}

int main(int argc, char **argv)
{
    static const Way ways[] = {{"recomputed", true, false, false},
                               {"copied to the host", true, true, false},
                               {"copied, with a prefix cache", true, true, true}};
    FtxOptions o = FTX_OPTIONS_INIT;
    FtxModelInfo info;
    FtxModel *model;
    FtxStats stats;
    FtxError err;
    bool failed = false;

    if (argc < 2) {
        fprintf(stderr, "usage: swap_check FILE [cpu]\n");
        return 2;
    }
    o.device = argc > 2 && strcmp(argv[2], "cpu") == 0 ? FTX_DEVICE_CPU : FTX_DEVICE_CUDA;
    o.random_weights = 1;
    o.log = print_log;
    must(ftx_model_open(argv[1], &o, &model, &err), &err);
    run_all(model, &o, result[0]);
    ftx_model_info(model, &info);
    for (size_t k = 0; k < sizeof ways / sizeof *ways; k++) {
        FtxOptions few = o;
        double from;
        int wrong;

        few.kv_bytes = info.kv_token_bytes * PAGE * PAGES;
        few.overcommit = 1;
        few.prefix_cache = ways[k].prefix;
        few.swap_bytes = ways[k].swap ? info.kv_token_bytes * PAGE * PAGES * 2 : 0;
        from = seconds();
        stats = run_all(model, &few, result[1]);
        wrong = differences();
        printf("%s: %llu preemptions, %llu copied; %llu tokens recomputed; %.2f s; %d of %d requests differ\n",
               ways[k].name, (unsigned long long)stats.preemptions, (unsigned long long)stats.swaps,
               (unsigned long long)stats.recomputed_tokens, seconds() - from, wrong, REQUESTS);
        failed = failed || wrong || !stats.preemptions || stats.free_swap_pages != stats.swap_pages ||
                 (!ways[k].swap && stats.swaps);
    }
    ftx_model_close(model);
    return failed;
}
