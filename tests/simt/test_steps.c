/* test_steps.c - whole models on the host: compiled by the compiler, driven by the C runtime through
 * a driver whose launches run here, tokens as those that transformers gave. */
#include "driver.h"

#ifdef FTX_HAVE_CUDA
#include "compiler/artifact/artifact.h"
#include "tests/models/golden.h"

typedef struct Model {
    const char *checkout;
    Override *overrides;
    size_t n_overrides;
} Model;

static bool thorough;

/* What compile.c does, but the code of a kernel is its name, and its text goes to the host. */
static void compile_for_host(const Model *m, const char *path, Build *build)
{
    Arena *keep = arena_open();
    Spec spec = {0};
    Catalog catalog;
    Packing packing = {0};
    Plan plan = {0};
    Code code = {0};
    Checkpoint *checkpoint = NULL;
    const Dump none = {0};
    Target target;
    Diag d = {0};
    char *names = NULL;
    size_t bytes = 0;

    if (!target_parse("sm_90a", &target, &d) ||
        !spec_read(m->checkout, m->overrides, m->n_overrides, keep, &spec, &d) ||
        !passes_run_graph(spec.graph, &spec.precision, &none, &d) || !catalog_open(keep, &catalog, &d) ||
        !passes_run_target(spec.graph, &catalog, target, &spec.precision, &packing, &plan, &none, &d))
        fail_msg("%s: %s", m->checkout, d.text);
    plan.head.space_bytes[FTX_SPACE_WEIGHTS] = packing.bytes;

    CodeImage *images = arena_array(keep, CodeImage, plan.instances.n + 1);
    FILE *all = open_memstream(&names, &bytes);
    for (size_t i = 0; i < plan.instances.n; i++) {
        const Instance *in = plan.instances.at[i];

        if (in->device != KD_CUDA)
            fail_msg("%s: %s is no kernel that runs here", m->checkout, in->family);
        while (ftell(all) % 64)
            fputc(0, all);
        images[i] = (CodeImage){(uint32_t)ftell(all), (uint32_t)strlen(in->entry) + 1};
        fwrite(in->entry, 1, strlen(in->entry) + 1, all);
        build_add(build, in->entry, instantiate_text(in, target, keep));
    }
    fclose(all);
    code = (Code){.cubin = names, .cubin_bytes = bytes, .images = images, .source = ""};

    const ArtifactParts parts = {.spec = &spec,
                                 .packing = &packing,
                                 .plans = &plan,
                                 .codes = &code,
                                 .n_plans = 1,
                                 .checkpoint = NULL,
                                 .build = "host\n"};
    ArtifactParts with = parts;
    if (!checkpoint_open(spec.weights, keep, &checkpoint, &d))
        fail_msg("%s", d.text);
    with.checkpoint = checkpoint;
    if (!artifact_write(path, &with, NULL, NULL, &d))
        fail_msg("%s", d.text);
    checkpoint_close(checkpoint);
    ir_graph_close(spec.graph);
    free(names);
    arena_close(keep);
}

static void check_answer(const json_t *golden, const GoldenAnswer *a, size_t most, double tolerance)
{
    const json_t *want = json_object_get(golden, "greedy"), *margin = json_object_get(golden, "margin");

    assert_int_equal(a->n, most);
    for (size_t i = 0; i < most; i++) {
        if (a->ids[i] == (int32_t)json_integer_value(json_array_get(want, i)))
            continue;
        if (json_number_value(json_array_get(margin, i)) > tolerance)
            fail_msg("token %zu is %d, should be %lld", i, a->ids[i], json_integer_value(json_array_get(want, i)));
        return; /* the two best were too close: texts part here */
    }
}

/* The prompts `first` to `last` of the golden file together, `most` tokens each. */
static void generate(FtxModel *model, const json_t *prompts, size_t first, size_t last, size_t most, double tolerance)
{
    static GoldenAnswer answers[8];
    static int32_t ids[8][128];
    FtxEngine *engine = golden_engine(model);

    for (size_t i = first; i <= last; i++) {
        const json_t *p = json_array_get(prompts, i);
        FtxRequest r = ftx_request_default(model);

        answers[i] = (GoldenAnswer){0};
        r.ids = ids[i];
        r.ids_count = golden_ids(json_object_get(p, "input_ids"), ids[i], 128);
        r.temperature = 0.0f;
        r.max_new = (int)most;
        r.ignore_eos = true;
        r.user = &answers[i];
        golden_submit(engine, &r);
    }
    golden_finish(engine);
    for (size_t i = first; i <= last; i++)
        check_answer(json_array_get(prompts, i), &answers[i], most, tolerance);
    ftx_engine_close(engine);
}

static void check_model(const char *name, const char *type, const char *tokens, double tolerance)
{
    const char *build_dir = getenv("FTX_BUILD");
    char checkout[100], golden[140], dir[600], path[700];
    char weights[60], most[60];
    Override overrides[] = {{weights}, {most}, {"limits.sequences=4"}, {"limits.context=104"}, {"kv.block_size=8"}};
    FtxOptions options = {.device = FTX_DEVICE_CUDA};
    FtxModel *model;
    FtxError err;

    snprintf(weights, sizeof weights, "precision.weights=%s", type);
    snprintf(most, sizeof most, "limits.tokens=%s", tokens);
    snprintf(checkout, sizeof checkout, "tests/models/%s", name);
    snprintf(golden, sizeof golden, "%s/golden.json", checkout);
    snprintf(dir, sizeof dir, "%s/simt-%s-%s", build_dir, name, type);
    snprintf(path, sizeof path, "%s/simt-%s-%s.ftx", build_dir, name, type);
    Build *build = build_open(dir);
    compile_for_host(&(Model){checkout, overrides, sizeof overrides / sizeof *overrides}, path, build);
    build_run(build);
    driver_install(build, 4);
    if (ftx_model_open(path, &options, &model, &err))
        fail_msg("%s: %s", path, err.text);
    json_t *j = golden_json(golden);
    const json_t *prompts = json_object_get(j, "prompts");
    generate(model, prompts, 1, 1, thorough ? 24 : 6, tolerance); /* one row */
    generate(model, prompts, 0, 3, thorough ? 24 : 4, tolerance); /* four, prompts in chunks beside single tokens */
    ftx_model_close(model);
    json_decref(j);
    print_message("%s %s: %zu kernels, %zu launches (%zu overlapping) in %zu graphs\n", name, type, build_count(build),
                  driver_counts.launches, driver_counts.overlapping, driver_counts.graphs);
    assert_int_equal(driver_counts.failed, 0);
    assert_int_equal(driver_counts.open, 0);
    assert_true(driver_counts.graphs > 0 && driver_counts.overlapping > 0);
    driver_remove();
    build_close(build);
}

static void llama(void **state)
{
    (void)state;
    check_model("tiny-llama", "fp32", "16", 1e-3);
}

static void gpt2(void **state)
{
    (void)state;
    if (SIMT_SANITIZED)
        return;
    check_model("tiny-gpt2", "fp32", "16", 1e-3);
}

/* 16-bit weights and activations: the tensor-core kernels. Texts part where the two best tokens were close. */
static void llama_bf16(void **state)
{
    (void)state;
    if (SIMT_SANITIZED) /* slow there, and gpt2_fp16 goes the same ways */
        return;
    check_model("tiny-llama", "bf16", "16", 0.3);
}

static void gpt2_fp16(void **state)
{
    (void)state;
    check_model("tiny-gpt2", "fp16", "16", 0.1);
}

static void mistral(void **state)
{
    (void)state;
    if (thorough)
        check_model("tiny-mistral", "fp32", "64", 1e-3);
}

int main(int n, char **words)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(llama), cmocka_unit_test(gpt2), cmocka_unit_test(llama_bf16),
                                       cmocka_unit_test(gpt2_fp16), cmocka_unit_test(mistral)};

    thorough = n > 1 && strcmp(words[1], "long") == 0;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
#endif
