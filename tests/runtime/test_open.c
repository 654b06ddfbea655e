/* test_open.c - which device a model gets, what is said of it, and who closes what. The artifact is
 * made here, so that it can be for any target. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "fake.h"

/* --- an artifact whose path says what it is compiled for ------------------------------------------ */

static FakeArtifact cpu, gpu;
static int opened, closed;

FtxStatus artifact_open(const char *path, Artifact *a, FtxError *err)
{
    if (strcmp(path, "none") == 0)
        return ftx_fail(err, FTX_EIO, "none: no such file");
    opened++;
    *a = strcmp(path, "gpu") == 0 ? gpu.artifact : cpu.artifact;
    if (strcmp(path, "both") == 0)
        a->plans[a->n_plans++] = gpu.artifact.plans[0];
    return FTX_OK;
}

void artifact_close(Artifact *a)
{
    closed += a->facts != NULL;
    *a = (Artifact){0};
}

const ArtifactPlan *artifact_plan(const Artifact *a, uint32_t target, const char *device)
{
    assert_string_equal(device, target == FTX_TARGET_CPU ? "" : "NVIDIA Fake");
    for (uint32_t i = 0; i < a->n_plans; i++)
        if (a->plans[i].head->target == target)
            return &a->plans[i];
    return NULL;
}

const void *artifact_weight(const Artifact *a, uint32_t i)
{
    return (const char *)a->weight_data + i;
}

/* --- opening ----------------------------------------------------------------------------------------- */

static char logged[1000];
static int log_level;

static void log_line(void *user, int level, const char *text)
{
    (void)user;
    log_level = level;
    snprintf(logged, sizeof logged, "%s", text);
}

static int setup(void **state)
{
    static const char weights[4096];
    FakeSizes s = fake_sizes();

    (void)state;
    fake_artifact(&gpu, &s);
    s.target = FTX_TARGET_CPU;
    fake_artifact(&cpu, &s);
    cpu.artifact.weight_data = gpu.artifact.weight_data = weights;
    fake = (FakeDevice){0};
    opened = closed = 0;
    logged[0] = '\0';
    log_level = -1;
    return 0;
}

static FtxStatus open_as(const char *path, FtxDeviceKind kind, FtxModel **m, FtxError *err)
{
    const FtxOptions o = {.size = sizeof(FtxOptions), .device = kind, .threads = 1, .log = log_line};

    memset(err, 0, sizeof *err);
    return ftx_model_open(path, &o, m, err);
}

static void assert_device(FtxModel *m, const char *device, const char *reason)
{
    FtxModelInfo info;

    ftx_model_info(m, &info);
    assert_string_equal(info.plan, strncmp(device, "cpu", 3) == 0 ? "cpu" : "sm_90");
    assert_memory_equal(info.device, device, strlen(device));
    assert_true(*reason ? strstr(info.device_reason, reason) != NULL : !*info.device_reason);
    assert_int_equal(info.vocab, 61);
    assert_true(info.has_tokenizer);
    ftx_model_close(m);
    assert_int_equal(opened, closed);
    assert_int_equal(fake.opens, fake.closes);
}

static void test_auto(void **state)
{
    FtxModel *m;
    FtxError err;

    (void)state;
    assert_int_equal(open_as("both", FTX_DEVICE_AUTO, &m, &err), FTX_OK);
    assert_device(m, "fake", "");
    assert_string_equal(logged, "");
    assert_int_equal(open_as("gpu", FTX_DEVICE_AUTO, &m, &err), FTX_OK);
    assert_device(m, "fake", "");

    assert_int_equal(open_as("cpu", FTX_DEVICE_AUTO, &m, &err), FTX_OK); /* no code for the GPU */
    assert_device(m, "cpu (1 thread", "no code for this GPU (sm_90): it was compiled for cpu");
    assert_non_null(strstr(logged, "running on the CPU"));

    fake.probe = FTX_ENODEVICE; /* no GPU */
    assert_int_equal(open_as("both", FTX_DEVICE_AUTO, &m, &err), FTX_OK);
    assert_device(m, "cpu (1 thread", "no fake GPU");
    assert_int_equal(log_level, 0);
    assert_int_equal(open_as("gpu", FTX_DEVICE_AUTO, &m, &err), FTX_ENODEVICE);
    assert_non_null(strstr(err.text, "compiled for sm_90, not for the CPU"));
    assert_non_null(strstr(err.text, "no fake GPU"));

    const FtxOptions quiet = {.size = sizeof(FtxOptions), .threads = 1}; /* nobody to tell */
    logged[0] = '\0';
    assert_int_equal(ftx_model_open("both", &quiet, &m, &err), FTX_OK);
    assert_device(m, "cpu (1 thread", "no fake GPU");
    assert_string_equal(logged, "");

    fake.probe = FTX_OK; /* a GPU that does not work: a warning */
    fake.open = FTX_EDEVICE;
    assert_int_equal(open_as("both", FTX_DEVICE_AUTO, &m, &err), FTX_OK);
    assert_device(m, "cpu (1 thread", "does not open");
    assert_int_equal(log_level, 1);
    assert_int_equal(opened, closed);
}

static void test_asked(void **state)
{
    FtxModel *m;
    FtxError err;

    (void)state;
    assert_int_equal(open_as("both", FTX_DEVICE_CPU, &m, &err), FTX_OK);
    assert_device(m, "cpu (1 thread", "");
    assert_int_equal(open_as("both", FTX_DEVICE_CUDA, &m, &err), FTX_OK);
    assert_device(m, "fake", "");
    assert_int_equal(open_as("gpu", FTX_DEVICE_CPU, &m, &err), FTX_ENODEVICE);
    assert_int_equal(open_as("cpu", FTX_DEVICE_CUDA, &m, &err), FTX_ENODEVICE);
    fake.open = FTX_EDEVICE; /* no falling back from what was asked */
    assert_int_equal(open_as("both", FTX_DEVICE_CUDA, &m, &err), FTX_EDEVICE);
    assert_null(m);
    fake.probe = FTX_ENODEVICE;
    assert_int_equal(open_as("both", FTX_DEVICE_CUDA, &m, &err), FTX_ENODEVICE);
    assert_int_equal(open_as("none", FTX_DEVICE_AUTO, &m, &err), FTX_EIO);
    assert_int_equal(open_as("both", (FtxDeviceKind)9, &m, &err), FTX_EINVAL);
    assert_int_equal(ftx_model_open(NULL, NULL, &m, &err), FTX_EINVAL);
    assert_int_equal(ftx_model_open("both", NULL, NULL, &err), FTX_EINVAL);
    assert_int_equal(opened, closed);
}

/* Weights in host memory: refused where they cannot be, and told where they are. */
static void test_weights_of_the_host(void **state)
{
    const struct {
        int64_t layers;
        uint64_t memory;
        uint32_t ranks;
        FtxDeviceKind device;
        const char *text;
    } bad[] = {
        {FTX_NO_GPU_LAYERS, 1, 1, FTX_DEVICE_AUTO,
         "gpu_memory (--gpu-memory) and gpu_layers (--gpu-layers) are two ways to say one thing"},
        {3, 1, 1, FTX_DEVICE_AUTO, "set one of them"},
        {-2, 0, 1, FTX_DEVICE_AUTO, "gpu_layers is -2: expected a number of layers, or FTX_NO_GPU_LAYERS"},
        {3, 0, 2, FTX_DEVICE_AUTO, "gpu_layers (--gpu-layers): not for an artifact of several ranks"},
        {0, 1, 2, FTX_DEVICE_AUTO, "gpu_memory (--gpu-memory): not for an artifact of several ranks"},
        {3, 0, 1, FTX_DEVICE_CPU, "gpu_layers (--gpu-layers): for a GPU; on the CPU all weights are in host memory"},
        {0, 1, 1, FTX_DEVICE_CPU, "gpu_memory (--gpu-memory): for a GPU"},
    };
    FtxModelInfo info;
    FtxModel *m;
    FtxError err;

    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        const FtxOptions o = {.size = sizeof(FtxOptions),
                              .device = bad[i].device,
                              .gpu_layers = bad[i].layers,
                              .gpu_memory = bad[i].memory,
                              .threads = 1};

        cpu.facts.ranks = bad[i].ranks;
        assert_int_equal(ftx_model_open("both", &o, &m, &err), FTX_EINVAL);
        assert_non_null(strstr(err.text, bad[i].text));
        assert_null(m);
        assert_int_equal(opened, closed);
    }
    cpu.facts.ranks = 1;
    fake.told = (FtxModelInfo){.weight_bytes = 5000000000,
                               .host_weight_bytes = 11000000000,
                               .host_layers = 22,
                               .copy_bytes = 10000000000,
                               .copy_us = 200000};
    assert_int_equal(open_as("both", FTX_DEVICE_CUDA, &m, &err), FTX_OK);
    assert_string_equal(logged,
                        "weights: 5.000 GB on the GPU, 11.000 GB in host memory, of them 22 layers; a step copies "
                        "10.000 GB of these, about 200.0 ms more, by a copy timed at open");
    assert_int_equal(log_level, 0);
    ftx_model_info(m, &info);
    assert_int_equal(info.weight_bytes, 5000000000);
    assert_int_equal(info.host_layers, 22);
    assert_int_equal(info.copy_us, 200000);
    ftx_model_close(m);
    fake.told.copy_us = fake.told.copy_bytes = fake.told.host_layers = 0; /* rows alone */
    assert_int_equal(open_as("both", FTX_DEVICE_CUDA, &m, &err), FTX_OK);
    assert_string_equal(logged, "weights: 5.000 GB on the GPU, 11.000 GB in host memory, of them no layer");
    ftx_model_close(m);
}

/* Who says what a GPU is to hold gets a GPU or an error, not a run on the CPU. */
static void test_no_fall(void **state)
{
    const FtxOptions memory = {.size = sizeof(FtxOptions), .gpu_memory = 1, .threads = 1};
    const FtxOptions layers = {.size = sizeof(FtxOptions), .gpu_layers = FTX_NO_GPU_LAYERS, .threads = 1};
    FtxModel *m;
    FtxError err;

    (void)state;
    assert_int_equal(ftx_model_open("both", &layers, &m, &err), FTX_OK);
    assert_device(m, "fake", "");
    fake.open = FTX_EINVAL; /* what a budget that is too small gives */
    assert_int_equal(ftx_model_open("both", &memory, &m, &err), FTX_EINVAL);
    assert_non_null(strstr(err.text, "does not open"));
    assert_null(m);
    assert_int_equal(ftx_model_open("both", &layers, &m, &err), FTX_EINVAL);
    fake.open = FTX_OK;
    fake.probe = FTX_ENODEVICE;
    assert_int_equal(ftx_model_open("both", &memory, &m, &err), FTX_ENODEVICE);
    assert_string_equal(err.text, "gpu_memory (--gpu-memory): no fake GPU");
    assert_int_equal(ftx_model_open("both", &layers, &m, &err), FTX_ENODEVICE);
    assert_string_equal(err.text, "gpu_layers (--gpu-layers): no fake GPU");
    assert_null(m);
    assert_int_equal(opened, closed);
}

static void test_weights_missing(void **state)
{
    FtxModel *m;
    FtxError err;

    (void)state;
    cpu.artifact.weight_data = NULL;
    assert_int_equal(open_as("cpu", FTX_DEVICE_CPU, &m, &err), FTX_EINVAL);
    assert_non_null(strstr(err.text, "no weights"));
    assert_int_equal(opened, closed);
}

/* What an engine's arrays rely on, whoever wrote the artifact. */
static void test_limits(void **state)
{
    const FtxFacts good = cpu.facts;
    const struct {
        const char *word;
        FtxFacts facts;
        bool no_pages;
    } bad[] = {
        {"context 1", {.context = 1}, false},
        {"kv_pages 0", {.context = 0}, true},
        {"4097 sequences", {.sequences = FTX_MAX_SEQUENCES + 1}, false},
        {"5 end ids, room for 4", {.n_ends = 5}, false},
        {"a step has 20 tokens", {.kind = FTX_MODEL_ENCODER}, true},
        {"a step has 20 tokens", {.kind = FTX_MODEL_SEQ2SEQ, .source_context = 21}, false},
    };
    FtxModel *m;
    FtxError err;

    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        const FtxFacts *b = &bad[i].facts;

        cpu.facts = good;
        cpu.facts.context = b->context ? b->context : good.context;
        cpu.facts.sequences = b->sequences ? b->sequences : good.sequences;
        cpu.facts.n_ends = b->n_ends ? b->n_ends : good.n_ends;
        cpu.facts.kind = b->kind;
        cpu.facts.kv_pages = bad[i].no_pages ? 0 : good.kv_pages;
        cpu.facts.source_context = b->source_context;
        assert_int_equal(open_as("cpu", FTX_DEVICE_CPU, &m, &err), FTX_EFORMAT);
        if (!strstr(err.text, bad[i].word))
            fail_msg("\"%s\", expected \"%s\"", err.text, bad[i].word);
    }
    assert_int_equal(opened, closed);
}

/* A model outlives its opener as long as an engine uses it. */
static void test_order_of_closing(void **state)
{
    FtxEngine *a, *b;
    FtxModel *m;
    FtxError err;

    (void)state;
    assert_int_equal(open_as("gpu", FTX_DEVICE_AUTO, &m, &err), FTX_OK);
    assert_int_equal(ftx_engine_open(m, NULL, &a, &err), FTX_OK);
    assert_int_equal(ftx_engine_open(m, NULL, &b, &err), FTX_OK);
    ftx_model_close(m);
    ftx_engine_close(a);
    assert_int_equal(fake.closes, 0);
    ftx_engine_close(b);
    assert_int_equal(fake.closes, 1);
    assert_int_equal(opened, closed);
    ftx_engine_close(NULL);
    ftx_model_close(NULL);
}

static void test_tokens(void **state)
{
    int32_t ids[8];
    char text[8];
    FtxModel *m;
    FtxError err;
    size_t n;

    (void)state;
    assert_int_equal(open_as("gpu", FTX_DEVICE_AUTO, &m, &err), FTX_OK);
    assert_int_equal(ftx_tokenize(m, "abc", 3, true, ids, 2, &n, &err), FTX_OK);
    assert_int_equal(n, 4); /* more than there was room for */
    assert_int_equal(ftx_tokenize(m, "abc", 3, true, ids, 8, &n, &err), FTX_OK);
    assert_int_equal(ids[3], 4);
    assert_int_equal(ftx_tokenize(m, NULL, 3, true, ids, 8, &n, &err), FTX_EINVAL);
    assert_string_equal(err.text, "text is NULL");
    assert_int_equal(ftx_detokenize(m, ids + 1, 3, true, text, 8, &n, &err), FTX_OK);
    assert_int_equal(n, 3);
    assert_memory_equal(text, "abc", 3);
    ids[1] = 61;
    assert_int_equal(ftx_detokenize(m, ids, 4, true, text, 8, &n, &err), FTX_EINVAL);
    ftx_model_close(m);
}

static void test_labels(void **state)
{
    FtxModel *m;
    FtxError err;
    size_t n;

    (void)state;
    cpu.artifact.strings = "no\nyes\nthis is no label";
    cpu.facts.n_labels = 2;
    assert_int_equal(open_as("cpu", FTX_DEVICE_CPU, &m, &err), FTX_OK);
    assert_memory_equal(ftx_model_label(m, 0, &n), "no", 2);
    assert_int_equal(n, 2);
    assert_memory_equal(ftx_model_label(m, 1, &n), "yes", 3);
    assert_int_equal(n, 3);
    assert_null(ftx_model_label(m, 2, &n));
    assert_int_equal(n, 0);
    assert_null(ftx_model_label(m, -1, &n));
    ftx_model_close(m);
}

/* Every status has a name of its own. */
static void test_status_names(void **state)
{
    (void)state;
    for (int i = FTX_OK; i <= FTX_EFULL; i++) {
        assert_string_not_equal(ftx_status_name((FtxStatus)i), "unknown");
        for (int k = FTX_OK; k < i; k++)
            assert_string_not_equal(ftx_status_name((FtxStatus)i), ftx_status_name((FtxStatus)k));
    }
    assert_string_equal(ftx_status_name((FtxStatus)99), "unknown");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_auto, setup),
        cmocka_unit_test_setup(test_asked, setup),
        cmocka_unit_test_setup(test_weights_of_the_host, setup),
        cmocka_unit_test_setup(test_no_fall, setup),
        cmocka_unit_test_setup(test_weights_missing, setup),
        cmocka_unit_test_setup(test_limits, setup),
        cmocka_unit_test_setup(test_order_of_closing, setup),
        cmocka_unit_test_setup(test_tokens, setup),
        cmocka_unit_test_setup(test_labels, setup),
        cmocka_unit_test(test_status_names),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
