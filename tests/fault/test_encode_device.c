/* test_encode_device.c - an encoder on the fake driver, with hidden states and vectors in memory of the GPU: the same
 * bits as by way of the host, no copy from or to the host but that of the step's tokens, in the order of the caller's
 * stream; wrong pointers and failing calls are refused.
 *
 * The fake driver runs no kernel. In its place this file writes hidden states that depend on the tokens, or on the
 * hidden states given. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/ftx.h"

#ifdef FTX_HAVE_CUDA
#include "kernels/device/io.h"
#include "runtime/artifact/artifact.h"
#include "runtime/base/dtype.h"
#include "tests/device/fake_driver.h"
#include "tests/skip.h"

enum { TEXTS = 7, STRIDE = 30, MOST = TEXTS * STRIDE };
static const int32_t lengths[TEXTS] = {30, 1,  30, 0,
                                       30, 30, 17}; /* the empty one is refused; more than a step of 128 */

static char path[1000];
static Artifact artifact;
static const ArtifactPlan *plan;

/* --- the encoder ------------------------------------------------------------------------------------- */

/* Where the spaces lie; NULL: no launch so far has an operand there. */
static char *space[FTX_SPACE_COUNT];
static bool from_input;

static void find_spaces(const FakeLaunch *l)
{
    for (uint32_t i = 0; i < plan->n_launches; i++) {
        const FtxKernel *k = &plan->kernels[plan->launches[i].kernel];
        const FtxOperand *op = &plan->operands[plan->launches[i].first_operand];

        if (strcmp(artifact_string(&artifact, k->entry), l->kernel) != 0)
            continue;
        for (uint32_t o = 0; o < k->n_operands; o++)
            if (op[o].space != FTX_SPACE_NULL && !op[o].tile_rows)
                space[op[o].space] = (char *)(uintptr_t)(l->param[o] - op[o].offset);
        return;
    }
}

/* hidden[t][c] = token or input[t][c] / 2, + c; pooled[s] = the first hidden state of the text. Each launch writes it
 * again: the last of a program knows the spaces. */
static void encode(const FakeLaunch *l)
{
    const uint64_t *named = plan->head->named;
    const size_t D = artifact.facts->hidden, P = artifact.facts->pooled;

    find_spaces(l);

    const char *io = space[FTX_SPACE_IO];
    char *state = space[FTX_SPACE_STATE];

    if (!io || !state)
        return;
    const FtxStep *step = (const FtxStep *)(const void *)(io + named[FTX_NAMED_step]);
    const FtxRow *row = (const FtxRow *)(const void *)(io + named[FTX_NAMED_rows]);
    const FtxToken *token = (const FtxToken *)(const void *)(io + named[FTX_NAMED_token]);
    const char *input = state + named[FTX_NAMED_input];
    float *hidden = (float *)(void *)(state + named[FTX_NAMED_hidden]);
    float *pooled = (float *)(void *)(state + named[FTX_NAMED_pooled]);

    for (int t = 0; t < step->tokens; t++)
        for (size_t c = 0; c < D; c++)
            hidden[(size_t)t * D + c] =
                (from_input ? dtype_load(input, (size_t)t * D + c, (DType)plan->head->compute_type) * 0.5f
                            : (float)token[t].id) +
                (float)c;
    for (int s = 0; s < step->rows; s++)
        memcpy(pooled + (size_t)s * P, hidden + (size_t)row[s].q_start * D, P * sizeof *pooled);
}

/* --- memory of the caller ---------------------------------------------------------------------------- */

static const CudaDriver *cu;
static CUcontext context;

static CUdeviceptr device_array(size_t bytes)
{
    CUdeviceptr p;

    cu->cuCtxPushCurrent(context);
    assert_int_equal(cu->cuMemAlloc(&p, bytes), CUDA_SUCCESS);
    cu->cuCtxPopCurrent(&context);
    return p;
}

static void drop(CUdeviceptr p)
{
    cu->cuCtxPushCurrent(context);
    cu->cuMemFree(p);
    cu->cuCtxPopCurrent(&context);
}

static void *host(CUdeviceptr p)
{
    return (void *)(uintptr_t)p;
}

/* --- one artifact ------------------------------------------------------------------------------------- */

typedef struct Bed {
    FtxModel *model;
    FtxEngine *engine;
    FtxModelInfo info;
    size_t hidden_bytes, pooled_bytes, input_bytes; /* input: of float */
    int32_t ids[MOST];
    float *input, *hidden, *pooled; /* of the host */
    CUdeviceptr d_input, d_hidden, d_pooled;
    FtxError errors[TEXTS];
} Bed;

static void open_bed(Bed *b, const char *type)
{
    const FtxOptions o = {.size = sizeof o, .device = FTX_DEVICE_CUDA};
    FtxError err = {0};

    snprintf(path, sizeof path, "%s/test-encode-device-%s.ftx", getenv("FTX_BUILD"), type);
    if (artifact_open(path, &artifact, &err))
        SKIP("%s", err.text);
    plan = artifact_plan(&artifact, 901, "");
    fake_reset();
    fake.execute = encode;
    memset(space, 0, sizeof space);
    assert_int_equal(cuda_driver(&cu, &err), FTX_OK);
    if (ftx_model_open(path, &o, &b->model, &err) || ftx_engine_open(b->model, NULL, &b->engine, &err))
        fail_msg("%s", err.text);
    ftx_model_info(b->model, &b->info);
    b->hidden_bytes = MOST * (size_t)b->info.hidden * sizeof(float);
    b->pooled_bytes = TEXTS * (size_t)b->info.pooled * sizeof(float);
    b->input_bytes = MOST * (size_t)b->info.input * sizeof(float);
    b->input = malloc(b->input_bytes);
    b->hidden = malloc(b->hidden_bytes);
    b->pooled = calloc(1, b->pooled_bytes);
    b->d_input = device_array(b->input_bytes);
    b->d_hidden = device_array(b->hidden_bytes);
    b->d_pooled = device_array(b->pooled_bytes);
    memset(host(b->d_pooled), 0, b->pooled_bytes);
    for (size_t i = 0; i < MOST; i++)
        b->ids[i] = (int32_t)i % b->info.vocab;
    for (size_t i = 0; i < b->input_bytes / sizeof(float); i++)
        b->input[i] = (float)((i * 37) % 101) / 7.0f;
    fake.late = true;
}

static void close_bed(Bed *b)
{
    cu->cuCtxPushCurrent(context);
    cu->cuCtxSynchronize(); /* work that a failed call has left */
    cu->cuCtxPopCurrent(&context);
    drop(b->d_input);
    drop(b->d_hidden);
    drop(b->d_pooled);
    ftx_engine_close(b->engine);
    ftx_model_close(b->model);
    artifact_close(&artifact);
    assert_int_equal(fake_open_things(), 0);
    free(b->input);
    free(b->hidden);
    free(b->pooled);
}

static FtxEncode padded(Bed *b)
{
    return (FtxEncode){
        .size = sizeof(FtxEncode), .count = TEXTS, .lengths = lengths, .stride = STRIDE, .errors = b->errors};
}

static void must(FtxStatus s, const FtxError *err)
{
    if (s)
        fail_msg("%s", err->text);
}

/* The caller's input as it stands on the GPU. */
static void put_input(const Bed *b)
{
    const DType type = (DType)plan->head->compute_type;

    for (size_t i = 0; i < b->input_bytes / sizeof(float); i++)
        dtype_store(host(b->d_input), i, type, b->input[i]);
}

static void compare(Bed *b)
{
    assert_memory_equal(b->hidden, host(b->d_hidden), b->hidden_bytes);
    assert_memory_equal(b->pooled, host(b->d_pooled), b->pooled_bytes);
}

/* --- tests ---------------------------------------------------------------------------------------- */

static const char *const types[] = {"fp32", "bf16"};

/* By the host and on the GPU: the same bits; ids and hidden states; padding is zero; a refused text, too. */
static void the_same_without_the_host(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        Bed b;
        FtxError err = {0};

        open_bed(&b, types[i]);
        assert_int_equal(b.info.input_type, i ? FTX_BF16 : FTX_FP32);
        assert_int_equal(b.info.ordinal, 0);
        for (int by_input = 0; by_input < 2; by_input++) {
            FtxEncode job = padded(&b);

            from_input = by_input;
            job.ids = by_input ? NULL : b.ids;
            job.input = by_input ? b.input : NULL;
            job.hidden = b.hidden;
            job.pooled = b.pooled;
            must(ftx_engine_encode(b.engine, &job, &err), &err);
            assert_int_equal(b.errors[3].status, FTX_EINVAL);
            assert_true(b.hidden[b.info.hidden + 1] > 1.0f);
            put_input(&b);
            memset(host(b.d_hidden), 0x55, b.hidden_bytes);
            job.input = by_input ? host(b.d_input) : NULL;
            job.hidden = host(b.d_hidden);
            job.pooled = host(b.d_pooled);
            job.on_device = true;
            fake.from_host = fake.to_host = fake.on_device = fake.driver_calls_that_allocate = 0;
            must(ftx_engine_encode(b.engine, &job, &err), &err);
            compare(&b);
            assert_int_equal(fake.to_host, 0);
            assert_int_equal(fake.from_host, 2);                          /* the tokens of two steps */
            assert_int_equal(fake.on_device, (by_input ? 6 : 0) + 6 + 3); /* pooled: three runs of neighbours */
            assert_int_equal(fake.driver_calls_that_allocate, 0);
            assert_int_equal(fake.pushed, 0);
        }
        close_bed(&b);
    }
}

static void packed_texts_stay_packed(void **state)
{
    static const int32_t some[] = {9, 20, 1};
    Bed b;
    FtxError err = {0};

    (void)state;
    open_bed(&b, "bf16");
    from_input = true;
    put_input(&b);
    memset(b.hidden, 0, b.hidden_bytes);
    memset(host(b.d_hidden), 0, b.hidden_bytes);

    FtxEncode job = {.size = sizeof job, .count = 3, .lengths = some, .hidden_rows = 30};

    job.input = b.input;
    job.hidden = b.hidden;
    must(ftx_engine_encode(b.engine, &job, &err), &err);
    job.input = host(b.d_input);
    job.hidden = host(b.d_hidden);
    job.on_device = true;
    must(ftx_engine_encode(b.engine, &job, &err), &err);
    compare(&b);
    close_bed(&b);
}

/* What the caller's stream still has to do comes before, by the stream or, without one, by waiting for all. */
static void the_callers_work_comes_first(void **state)
{
    (void)state;
    for (int by_stream = 0; by_stream < 2; by_stream++) {
        Bed b;
        FtxError err = {0};
        CUstream stream;
        CUdeviceptr ready;

        open_bed(&b, "bf16");
        from_input = true;
        put_input(&b);
        ready = device_array(b.input_bytes);
        memcpy(host(ready), host(b.d_input), b.input_bytes);
        memset(host(b.d_input), 0, b.input_bytes);
        cu->cuCtxPushCurrent(context);
        assert_int_equal(cu->cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
        assert_int_equal(cu->cuMemcpyDtoDAsync(b.d_input, ready, b.input_bytes, stream), CUDA_SUCCESS);
        assert_int_equal(cu->cuMemsetD8Async(b.d_hidden, 0x77, b.hidden_bytes, stream), CUDA_SUCCESS);
        cu->cuCtxPopCurrent(&context);

        FtxEncode job = padded(&b);

        job.input = host(b.d_input);
        job.hidden = host(b.d_hidden);
        job.on_device = true;
        job.stream = by_stream ? stream : NULL;
        must(ftx_engine_encode(b.engine, &job, &err), &err);
        job.input = b.input;
        job.hidden = b.hidden;
        job.on_device = false;
        job.stream = NULL;
        must(ftx_engine_encode(b.engine, &job, &err), &err);
        compare(&b);
        cu->cuCtxPushCurrent(context);
        cu->cuStreamDestroy(stream);
        cu->cuCtxPopCurrent(&context);
        drop(ready);
        close_bed(&b);
    }
}

static void refused(Bed *b, const FtxEncode *job, const char *words)
{
    FtxError err = {0};

    assert_int_equal(ftx_engine_encode(b->engine, job, &err), FTX_EINVAL);
    if (!strstr(err.text, words))
        fail_msg("'%s' is not in '%s'", words, err.text);
}

static void wrong_pointers_are_refused(void **state)
{
    Bed b;
    FtxEncode job;

    (void)state;
    open_bed(&b, "fp32");
    job = padded(&b);
    job.ids = b.ids;
    job.stream = (void *)1;
    refused(&b, &job, "stream: only with on_device");
    job.stream = NULL;
    job.on_device = true;
    job.hidden = b.hidden;
    refused(&b, &job, "hidden: it is memory of the host, and on_device says that it is the GPU's");
    job.hidden = host(b.d_hidden);
    fake.memory_of = 3;
    refused(&b, &job, "hidden: it is memory of GPU 3, and the model is on GPU 0");
    fake.memory_of = 0;
    job.pooled = b.pooled;
    refused(&b, &job, "pooled: it is memory of the host");
    job.pooled = NULL;
    job.ids = NULL;
    job.input = b.input;
    refused(&b, &job, "input: it is memory of the host");
    close_bed(&b);
}

/* On the CPU the arrays are the host's. */
static void the_cpu_has_no_device_memory(void **state)
{
    const FtxOptions o = {.size = sizeof o, .device = FTX_DEVICE_CPU};
    static const int32_t one = 1;
    const FtxEncode job = {.size = sizeof job, .count = 1, .ids = &one, .lengths = &one, .on_device = true};
    FtxError err = {0};
    Bed b;

    (void)state;
    snprintf(path, sizeof path, "%s/test-encode-device-cpu.ftx", getenv("FTX_BUILD"));
    must(ftx_model_open(path, &o, &b.model, &err), &err);
    must(ftx_engine_open(b.model, NULL, &b.engine, &err), &err);
    refused(&b, &job, "on_device: the model runs on the CPU");
    ftx_model_info(b.model, &b.info);
    assert_int_equal(b.info.ordinal, -1);
    ftx_engine_close(b.engine);
    ftx_model_close(b.model);
}

static unsigned long fail_each(bool by_stream)
{
    unsigned long told = 0;

    for (unsigned long n = 1;; n++) {
        Bed b;
        FtxError err = {0};
        CUstream stream = NULL;

        open_bed(&b, "bf16");
        from_input = true;
        cu->cuCtxPushCurrent(context);
        if (by_stream)
            assert_int_equal(cu->cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
        cu->cuCtxPopCurrent(&context);

        FtxEncode job = padded(&b);

        job.input = host(b.d_input);
        job.hidden = host(b.d_hidden);
        job.pooled = host(b.d_pooled);
        job.on_device = true;
        job.stream = stream;
        fake.calls = 0;
        fake.fail_at = n;
        const FtxStatus s = ftx_engine_encode(b.engine, &job, &err);
        const bool done = fake.calls < n;

        fake.fail_at = 0;
        if (!done && !s && !strstr(fake.failed, "Pop"))
            fail_msg("call %lu (%s) failed and nobody said so", n, fake.failed);
        if (s && !strstr(err.text, "CUDA_ERROR_UNKNOWN"))
            fail_msg("%s", err.text);
        told += s != FTX_OK;
        cu->cuCtxPushCurrent(context);
        if (stream)
            cu->cuStreamDestroy(stream);
        cu->cuCtxPopCurrent(&context);
        close_bed(&b);
        if (done)
            return told;
    }
}

static void every_call_may_fail(void **state)
{
    (void)state;
    assert_true(fail_each(false) > 20);
    assert_true(fail_each(true) > 20);
}

static int compile(void **state)
{
    char command[3000];

    (void)state;
    for (int i = 0; i < 3; i++) {
        snprintf(command, sizeof command,
                 "%s compile tests/models/tiny-bert -o %s/test-encode-device-%s.ftx -q -t %s -D precision.weights=%s "
                 "-D limits.tokens=128",
                 getenv("FTXC"), getenv("FTX_BUILD"), i < 2 ? types[i] : "cpu", i < 2 ? "sm_90a" : "cpu",
                 i < 2 ? types[i] : "fp32");
        if (system(command) != 0 && (FTX_REQUIRE_NVRTC || i == 2)) /* else there is no NVRTC: tests are skipped */
            return -1;
    }
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_same_without_the_host),    cmocka_unit_test(packed_texts_stay_packed),
        cmocka_unit_test(the_callers_work_comes_first), cmocka_unit_test(wrong_pointers_are_refused),
        cmocka_unit_test(the_cpu_has_no_device_memory), cmocka_unit_test(every_call_may_fail),
    };

    return cmocka_run_group_tests(tests, compile, NULL);
}

#else
int main(void)
{
    return 0; /* built without the CUDA parts: tests/device says so */
}
#endif
