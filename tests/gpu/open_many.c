/* open_many.c - memory of many models at once: opens FILE so many times on the GPU with random weights,
 * runs one full batch of beam searches in each, says what it holds, and stays open until its input ends.
 *
 *     open_many FILE COUNT BATCH NEW        COUNT models, BATCH sources of 32 ids each, NEW tokens
 */
#include <stdio.h>
#include <stdlib.h>

#include "ftx.h"

enum { MAX_MODELS = 64, SOURCE = 32 };

typedef struct Opened {
    FtxModel *model;
    FtxEngine *engine;
    FtxModelInfo info;
} Opened;

static void must(FtxStatus s, const FtxError *err)
{
    if (s) {
        fprintf(stderr, "open_many: %s\n", err->text);
        exit(1);
    }
}

static void open_one(const char *path, uint64_t seed, Opened *o)
{
    const FtxOptions options = {.size = sizeof(FtxOptions), .device = FTX_DEVICE_CUDA, .random_weights = seed};
    FtxError err;

    must(ftx_model_open(path, &options, &o->model, &err), &err);
    must(ftx_engine_open(o->model, NULL, &o->engine, &err), &err);
    ftx_model_info(o->model, &o->info);
}

/* New tokens of the best hypotheses. */
static size_t run_one(const Opened *o, int batch, int most)
{
    int32_t ids[SOURCE];
    uint64_t id[256];
    size_t tokens = 0;
    FtxError err;

    for (int b = 0; b < batch; b++) {
        FtxRequest r = ftx_request_default(o->model);

        for (int i = 0; i < SOURCE; i++)
            ids[i] = 2 + (b * 977 + i * 131) % (o->info.vocab - 2);
        r.ids = ids;
        r.ids_count = SOURCE;
        r.max_new = most;
        r.ignore_eos = true;
        must(ftx_engine_submit(o->engine, &r, &id[b], &err), &err);
    }
    while (ftx_engine_busy(o->engine)) {
        FtxEvent events[256] = {FTX_EVENT_INIT};
        size_t n;

        must(ftx_engine_step(o->engine, events, 256, &n, &err), &err);
        for (size_t i = 0; i < n; i++) {
            size_t found;
            const FtxHypothesis *h = ftx_engine_hypotheses(o->engine, events[i].request, &found);

            tokens += found ? h[0].count : 0;
        }
    }
    return tokens;
}

int main(int n, char **words)
{
    static Opened opened[MAX_MODELS];
    const int count = n > 2 ? atoi(words[2]) : 0, batch = n > 3 ? atoi(words[3]) : 0, most = n > 4 ? atoi(words[4]) : 0;
    size_t tokens = 0;

    if (count < 1 || count > MAX_MODELS || batch < 1 || batch > 256 || most < 1) {
        fprintf(stderr, "usage: open_many FILE COUNT BATCH NEW\n");
        return 2;
    }
    for (int i = 0; i < count; i++)
        open_one(words[1], (uint64_t)i + 1, &opened[i]);
    for (int i = 0; i < count; i++)
        tokens += run_one(&opened[i], batch, most);
    printf("%d models, %zu tokens, each %.1f MiB of weights and %.1f MiB an engine\n", count, tokens,
           (double)opened[0].info.weight_bytes / (1 << 20), (double)opened[0].info.engine_bytes / (1 << 20));
    fflush(stdout);
    while (getchar() != EOF)
        ;
    for (int i = 0; i < count; i++) {
        ftx_engine_close(opened[i].engine);
        ftx_model_close(opened[i].model);
    }
    return 0;
}
