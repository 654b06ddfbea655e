/* life.h - opens a model, uses it and closes it. An encoder makes vectors of three texts; others answer three requests,
 * one of them with beam search where it is compiled in. */
#ifndef TESTS_FAULT_LIFE_H
#define TESTS_FAULT_LIFE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "runtime/ftx.h"

enum { LIFE_IDS = 128, LIFE_ROWS = 16 };

/* An embedder's allocator. */
typedef struct Ledger {
    int calls, fail_at, live; /* fail_at: the call that fails; 0: none */
} Ledger;

static inline void *ledger_alloc(void *user, size_t bytes, size_t align)
{
    Ledger *l = user;
    void *p = NULL;

    if (++l->calls == l->fail_at || posix_memalign(&p, align < sizeof p ? sizeof p : align, bytes))
        return NULL;
    l->live++;
    return p;
}

static inline void ledger_release(void *user, void *p, size_t bytes)
{
    Ledger *l = user;

    (void)bytes;
    l->live--;
    free(p);
}

static inline const int32_t *life_ids(void)
{
    static int32_t ids[LIFE_IDS];

    for (int i = 0; i < LIFE_IDS; i++)
        ids[i] = i + 1;
    return ids;
}

static inline FtxStatus life_encode(FtxEngine *e, const FtxModelInfo *info, FtxError *err)
{
    static const int32_t lengths[] = {9, 1, 20};
    float *hidden = calloc(30 * (size_t)info->hidden, sizeof *hidden);
    float *pooled = calloc(3 * (size_t)info->pooled + 1, sizeof *pooled);
    const FtxEncode job = {.size = sizeof(FtxEncode),
                           .count = 3,
                           .ids = life_ids(),
                           .lengths = lengths,
                           .hidden = hidden,
                           .hidden_rows = 30,
                           .pooled = info->pooled ? pooled : NULL};

    assert_true(hidden && pooled);
    const FtxStatus s = ftx_engine_encode(e, &job, err);
    free(hidden);
    free(pooled);
    return s;
}

static inline FtxStatus life_submit(const FtxModel *m, FtxEngine *e, int tokens, int beams, FtxError *err)
{
    FtxRequest q = ftx_request_default(m);

    q.ids = life_ids();
    q.ids_count = (size_t)tokens;
    q.max_new = 9;
    q.ignore_eos = true;
    q.beams = beams;
    q.n_best = beams;
    q.logits = beams == 1 && tokens == 5;
    return ftx_engine_submit(e, &q, NULL, err);
}

static inline FtxStatus life_generate(const FtxModel *m, FtxEngine *e, const FtxModelInfo *info, FtxError *err)
{
    static const int prompts[] = {90, 5, 1};
    const int longest = info->kind == FTX_MODEL_SEQ2SEQ ? info->source_context : info->context - 10;
    FtxEvent ev[LIFE_ROWS] = {FTX_EVENT_INIT};
    size_t n, finished = 0;
    FtxStatus s = FTX_OK;

    for (int i = 0; i < 3 && !s; i++)
        s = life_submit(m, e, prompts[i] < longest ? prompts[i] : longest, i == 0 ? info->max_beams : 1, err);
    while (!s && ftx_engine_busy(e)) {
        s = ftx_engine_step(e, ev, LIFE_ROWS, &n, err);
        for (size_t i = 0; i < n; i++)
            finished += ev[i].finish != FTX_RUNNING;
    }
    if (!s)
        assert_int_equal(finished, 3);
    return s;
}

/* Called before everything is closed; NULL: not called. */
static void (*life_closes)(void);

/* ledger: NULL: malloc. */
static inline FtxStatus life(const char *path, FtxDeviceKind device, int threads, Ledger *ledger, FtxError *err)
{
    const FtxAllocator allocator = {ledger_alloc, ledger_release, ledger};
    const FtxOptions o = {
        .size = sizeof(FtxOptions), .device = device, .threads = threads, .allocator = ledger ? &allocator : NULL};
    FtxModel *m = NULL;
    FtxEngine *e = NULL;
    FtxModelInfo info;
    FtxStatus s;

    *err = (FtxError){FTX_OK, ""};
    s = ftx_model_open(path, &o, &m, err);
    if (!s)
        s = ftx_engine_open(m, NULL, &e, err);
    if (!s) {
        ftx_model_info(m, &info);
        s = info.kind == FTX_MODEL_ENCODER ? life_encode(e, &info, err) : life_generate(m, e, &info, err);
    }
    if (life_closes)
        life_closes();
    ftx_engine_close(e);
    ftx_model_close(m);
    return s;
}

#endif
