/* generation.c - times whole generations: submits all requests, then steps until the last one has ended.
 *
 * The time is the host's and covers everything a user waits for: admission, the encoder, every step, fetching the
 * results. End ids are ignored, so that every generation has the length asked for. Sources are made up; each request
 * has its own. */
#include "generation.h"

#include <stdlib.h>

#include "../../runner/command.h"
#include "../../runtime/base/arena.h"
#include "../../runtime/base/error.h"

static FtxStatus submit(FtxEngine *e, const FtxModelInfo *info, const Generation *g, int32_t *ids, int i, FtxError *err)
{
    for (int k = 0; k < g->source; k++)
        ids[k] = (int32_t)(((uint32_t)k * 7919u + (uint32_t)i * 104729u + 2) % (uint32_t)info->vocab);

    return ftx_engine_submit(e,
                             &(FtxRequest){.size = sizeof(FtxRequest),
                                           .ids = ids,
                                           .ids_count = (size_t)g->source,
                                           .max_new = g->new,
                                           .temperature = (float)g->temperature,
                                           .top_k = g->top_k,
                                           .top_p = (float)g->top_p,
                                           .repetition_penalty = 1.0f,
                                           .seed = (uint64_t)i + 1,
                                           .ignore_eos = true,
                                           .forced_bos = -1,
                                           .forced_eos = -1,
                                           .beams = g->beams,
                                           .length_penalty = 1.0f},
                             NULL, err);
}

static FtxStatus run_once(FtxEngine *e, const FtxModelInfo *info, const Generation *g, int32_t *ids, FtxEvent *events,
                          double *ms, FtxError *err)
{
    const double from = command_seconds();
    size_t n;
    FtxStatus s = FTX_OK;

    for (int i = 0; i < g->requests && !s; i++)
        s = submit(e, info, g, ids, i, err);
    while (!s && ftx_engine_busy(e))
        s = ftx_engine_step(e, events, (size_t)info->sequences, &n, err);
    *ms = (command_seconds() - from) * 1e3;
    return s;
}

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

FtxStatus generation_time(FtxEngine *engine, const FtxModelInfo *info, const Generation *g, GenerationTimes *times,
                          FtxError *err)
{
    Arena *a = arena_open();
    double *ms = arena_array(a, double, (size_t)g->repeat + 1);
    int32_t *ids = arena_array(a, int32_t, (size_t)g->source);
    FtxEvent *events = arena_array(a, FtxEvent, (size_t)info->sequences);
    FtxStatus s = FTX_OK;

    events->size = sizeof *events;
    if (info->kind == FTX_MODEL_DECODER && g->source + g->new > info->context) /* the engine would stop earlier */
        s = ftx_fail(err, FTX_EINVAL, "%d new tokens exceed the context of %d", g->new, info->context);
    for (int i = 0; i <= g->repeat && !s; i++) /* the first run warms up; the second overwrites its time */
        s = run_once(engine, info, g, ids, events, &ms[i ? i - 1 : 0], err);
    if (!s) {
        qsort(ms, (size_t)g->repeat, sizeof *ms, compare);
        *times = (GenerationTimes){ms[g->repeat / 2], ms[0], ms[g->repeat - 1]};
    }
    arena_close(a);
    return s;
}
