/* test_caches.c - a decoder whose layers have unlike heads and share a cache, on the host: tokens and logits of CUDA kernels
 * are those of the CPU's kernels, with a cache of numbers and one of codes. Prompts come in chunks, beside single tokens.
 * `test_caches long` runs the twin of Gemma 4, too, and takes the tokens of Hugging Face. */
#include "driver.h"

#include <math.h>

#ifdef FTX_HAVE_CUDA
#include "runtime/device/cuda/device_cuda.h"
#include "steps.h"
#include "tests/models/families/twin.h"

enum { PROMPTS = 3, MOST = 8, VOCAB = 101 };

static bool thorough;

typedef struct Result {
    GoldenAnswer answer;
    int32_t ids[32];
    float logits[VOCAB];
} Result;

/* All prompts in one batch: they are longer than a step's 8 tokens, so later chunks stand beside tokens of the others. */
static void run_all(FtxModel *model, Result r[PROMPTS], size_t most)
{
    FtxEngine *engine = golden_engine(model);
    uint64_t id[PROMPTS];
    FtxModelInfo info;

    ftx_model_info(model, &info);
    for (int i = 0; i < PROMPTS; i++) {
        FtxRequest q = ftx_request_default(model);

        q.ids = r[i].ids;
        q.ids_count = (size_t)r[i].answer.n;
        r[i].answer = (GoldenAnswer){0};
        q.temperature = 0.0f;
        q.max_new = (int)most;
        q.ignore_eos = q.logits = true;
        q.user = &r[i].answer;
        id[i] = golden_submit(engine, &q);
    }
    golden_finish(engine);
    for (int i = 0; i < PROMPTS; i++)
        memcpy(r[i].logits, ftx_engine_logits(engine, id[i]), sizeof(float) * (size_t)info.vocab);
    ftx_engine_close(engine);
}

static FtxModel *open_host(const char *spec, Override *overrides, size_t n, const char *name, Build **build)
{
    const FtxOptions options = {.size = sizeof(FtxOptions), .device = FTX_DEVICE_CUDA};
    char dir[600], path[700];
    FtxModel *model;
    FtxError err;

    snprintf(dir, sizeof dir, "%.500s/simt-%s", getenv("FTX_BUILD"), name);
    snprintf(path, sizeof path, "%s.ftx", dir);
    *build = build_open(dir);
    compile_for_host(&(Model){spec, overrides, n}, path, *build);
    build_run(*build);
    driver_install(*build, 4);
    if (ftx_model_open(path, &options, &model, &err))
        fail_msg("%s: %s", path, err.text);
    return model;
}

static void close_host(FtxModel *model, Build *build)
{
    ftx_model_close(model);
    assert_int_equal(driver_counts.failed, 0);
    assert_int_equal(driver_counts.open, 0);
    driver_remove();
    build_close(build);
}

/* A checkpoint for shared.lua. */
static void write_weights(const char *folder)
{
    static const int heads[] = {4, 2, 8}, kv[] = {2, 1, 0}, dim[] = {16, 32, 16};
    json_t *tensors = json_object(), *twin = json_pack("{s{}so}", "config", "tensors", tensors);

    json_object_set_new(tensors, "embedding.weight", json_pack("[ii]", 61, 48));
    json_object_set_new(tensors, "head.weight", json_pack("[ii]", 61, 48));
    json_object_set_new(tensors, "norm.weight", json_pack("[i]", 48));
    for (int i = 0; i < 3; i++) {
        const struct {
            const char *name;
            int rows, columns;
        } part[] = {{"q", heads[i] * dim[i], 48}, {"k", kv[i] * dim[i], 48}, {"v", kv[i] * dim[i], 48},
                    {"o", 48, heads[i] * dim[i]}, {"norm", 48, 0},           {"qn", dim[i], 0},
                    {"kn", kv[i] ? dim[i] : 0, 0}};

        for (size_t k = 0; k < sizeof part / sizeof *part; k++) {
            char name[32];

            snprintf(name, sizeof name, "%d.%s.weight", i + 1, part[k].name);
            if (part[k].rows)
                json_object_set_new(tensors, name,
                                    part[k].columns ? json_pack("[ii]", part[k].rows, part[k].columns)
                                                    : json_pack("[i]", part[k].rows));
        }
    }
    twin_write(twin, folder);
    json_decref(twin);
}

static void check_shared(const char *kv, double tolerance)
{
    static const int lengths[PROMPTS] = {3, 21, 13};
    static Result host[PROMPTS], cpu[PROMPTS];
    char folder[600], weights[700], type[60], name[60], options[900];
    Override overrides[] = {
        {weights},          {type}, {"precision.weights=fp32"}, {"limits.tokens=8"}, {"limits.sequences=4"},
        {"kv.block_size=8"}};
    FtxModel *model;
    Build *build;

    snprintf(folder, sizeof folder, "%.500s/simt-shared-weights", getenv("FTX_BUILD"));
    snprintf(weights, sizeof weights, "weights=%s", folder);
    snprintf(type, sizeof type, "precision.kv=%s", kv);
    snprintf(name, sizeof name, "shared-%s", kv);
    snprintf(options, sizeof options, "-D %s -D %s -D precision.weights=fp32 -D limits.sequences=4", weights, type);
    write_weights(folder);
    for (int i = 0; i < PROMPTS; i++)
        for (int k = 0; k < lengths[i]; k++)
            host[i].ids[k] = cpu[i].ids[k] = (7 * k * k + 11 * k + 5 * i) % 61;
    for (int i = 0; i < PROMPTS; i++)
        host[i].answer.n = cpu[i].answer.n = (size_t)lengths[i];
    model = golden_open("tests/simt/shared.lua", name, options);
    run_all(model, cpu, MOST);
    ftx_model_close(model);
    model = open_host("tests/simt/shared.lua", overrides, sizeof overrides / sizeof *overrides, name, &build);
    run_all(model, host, MOST);
    close_host(model, build);
    for (int i = 0; i < PROMPTS; i++) {
        float largest = 0, worst = 0;

        for (int v = 0; v < 61; v++) {
            largest = fmaxf(largest, fabsf(cpu[i].logits[v]));
            worst = fmaxf(worst, fabsf(cpu[i].logits[v] - host[i].logits[v]));
        }
        print_message("%s: prompt %d: a logit differs by %.1e of %.1e\n", kv, i, (double)worst, (double)largest);
        assert_true((double)worst <= tolerance * (double)largest);
        assert_int_equal(host[i].answer.n, MOST);
        assert_memory_equal(host[i].answer.ids, cpu[i].answer.ids, MOST * sizeof(int32_t));
    }
}

static void shared_numbers(void **state)
{
    (void)state;
    check_shared("fp32", 1e-5);
}

/* A code differs by one where rounding makes a key or value differ. */
static void shared_codes(void **state)
{
    (void)state;
    if (!SIMT_SANITIZED)
        check_shared("int8", 1e-3);
}

static void gemma4(void **state)
{
    char folder[600], path[700];
    Override overrides[] = {{"limits.tokens=8"}, {"limits.sequences=4"}, {"kv.block_size=8"}};
    static Result host[PROMPTS];
    json_t *golden, *prompt;
    FtxModel *model;
    Build *build;

    (void)state;
    if (!thorough)
        return;
    snprintf(folder, sizeof folder, "%.500s/simt-gemma4-twin", getenv("FTX_BUILD"));
    snprintf(path, sizeof path, "tests/models/families/gemma4.json");
    golden = twin_read(path);
    assert_non_null(golden);
    twin_write(golden, folder);
    model = open_host(folder, overrides, sizeof overrides / sizeof *overrides, "gemma4", &build);
    for (size_t i = 0; i < PROMPTS; i++) {
        prompt = json_array_get(json_object_get(golden, "prompts"), i % 2);
        host[i].answer.n = golden_ids(json_object_get(prompt, "ids"), host[i].ids, 32);
    }
    run_all(model, host, MOST);
    close_host(model, build);
    for (size_t i = 0; i < PROMPTS; i++) {
        const json_t *want;

        prompt = json_array_get(json_object_get(golden, "prompts"), i % 2);
        want = json_object_get(prompt, "greedy");
        for (size_t k = 0; k < MOST; k++)
            assert_int_equal(host[i].answer.ids[k], json_integer_value(json_array_get(want, k)));
        want = json_object_get(prompt, "logits");
        for (size_t k = 0; k < VOCAB; k++)
            assert_true(fabs((double)host[i].logits[k] - json_number_value(json_array_get(want, k))) <= 2e-4);
    }
    json_decref(golden);
}

int main(int n, char **words)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(shared_numbers), cmocka_unit_test(shared_codes),
                                       cmocka_unit_test(gemma4)};

    thorough = n > 1 && strcmp(words[1], "long") == 0;
    if (n > 2)
        cmocka_set_test_filter(words[2]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
#endif
