/* golden.h - helpers of the model tests: compile a model with the ftxc that was just built, open
 * it, run a request to its end, read reference files. */
#ifndef FTX_TEST_GOLDEN_H
#define FTX_TEST_GOLDEN_H

#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/ftx.h"

/* Device the models run on: the GPU with FTX_TEST_DEVICE=cuda, otherwise the CPU. */
static inline bool golden_on_cuda(void)
{
    const char *device = getenv("FTX_TEST_DEVICE");

    return device && strcmp(device, "cuda") == 0;
}

/* Path of the artifact that golden_open opens. FTX_TEST_ARTIFACTS: a folder of artifacts that were compiled before,
 * on another machine. */
static inline void golden_path(const char *name, char *path, size_t size)
{
    const char *artifacts = getenv("FTX_TEST_ARTIFACTS"), *build = getenv("FTX_BUILD");

    assert_true(artifacts || build);
    snprintf(path, size, artifacts ? "%s/%s.ftx" : "%s/test-%s.ftx", artifacts ? artifacts : build, name);
}

/* Compiles spec (a file or a checkout) into the build folder and opens it. `extra`: more options
 * of ftxc compile, or "". FTX_TEST_TARGET and FTX_TEST_DEFINE choose the target and -D values.
 * The last target is always the CPU. Its plan needs every weight under its own name, so
 * plain_weights.h finds them all in the artifact. */
static inline FtxModel *golden_open(const char *spec, const char *name, const char *extra)
{
    const char *ftxc = getenv("FTXC"), *target = getenv("FTX_TEST_TARGET"), *define = getenv("FTX_TEST_DEFINE");
    char path[1000], command[4000];
    FtxOptions options = {.size = sizeof(FtxOptions), .device = golden_on_cuda() ? FTX_DEVICE_CUDA : FTX_DEVICE_CPU};
    FtxModel *model;
    FtxError err;

    options.random_weights = strstr(extra, "--no-weights") != NULL;
    golden_path(name, path, sizeof path);
    if (!getenv("FTX_TEST_ARTIFACTS")) {
        assert_non_null(ftxc);
        snprintf(command, sizeof command, "%s compile %s -o %s -q -t %s%scpu %s %s", ftxc, spec, path,
                 target ? target : "", target ? "," : "", extra, define ? define : "");
        assert_int_equal(system(command), 0);
    }
    if (ftx_model_open(path, &options, &model, &err))
        fail_msg("%s: %s", path, err.text);
    return model;
}

static inline FtxEngine *golden_engine(FtxModel *model)
{
    FtxEngine *engine;
    FtxError err;

    if (ftx_engine_open(model, NULL, &engine, &err))
        fail_msg("%s", err.text);
    return engine;
}

static inline json_t *golden_json(const char *path)
{
    json_error_t e;
    json_t *j = json_load_file(path, 0, &e);

    if (!j)
        fail_msg("%s:%d: %s", path, e.line, e.text);
    return j;
}

static inline size_t golden_ids(const json_t *array, int32_t *ids, size_t max)
{
    const size_t n = json_array_size(array);

    assert_true(n <= max);
    for (size_t i = 0; i < n; i++)
        ids[i] = (int32_t)json_integer_value(json_array_get(array, i));
    return n;
}

typedef struct GoldenAnswer {
    int32_t ids[1024];
    float logprobs[1024];
    size_t n;
    char text[16384];
    size_t bytes;
    FtxFinish finish;
} GoldenAnswer;

static inline void golden_take(GoldenAnswer *a, const FtxEvent *e)
{
    if (e->token >= 0) {
        assert_true(a->n < 1024);
        a->logprobs[a->n] = e->logprob;
        a->ids[a->n++] = e->token;
    }
    assert_true(a->bytes + e->text_bytes < sizeof a->text);
    memcpy(a->text + a->bytes, e->text, e->text_bytes);
    a->bytes += e->text_bytes;
    a->finish = e->finish;
}

/* Runs all submitted requests to their ends. FtxRequest.user points to each one's GoldenAnswer. */
static inline void golden_finish(FtxEngine *engine)
{
    FtxEvent events[256] = {FTX_EVENT_INIT};
    FtxError err;

    while (ftx_engine_busy(engine)) {
        size_t n;

        if (ftx_engine_step(engine, events, 256, &n, &err))
            fail_msg("%s", err.text);
        for (size_t i = 0; i < n; i++)
            golden_take(events[i].user, &events[i]);
    }
}

static inline uint64_t golden_submit(FtxEngine *engine, const FtxRequest *request)
{
    FtxError err;
    uint64_t id;

    if (ftx_engine_submit(engine, request, &id, &err))
        fail_msg("%s", err.text);
    return id;
}

#endif
