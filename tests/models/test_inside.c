/* test_inside.c - values inside keys: a model whose cache holds keys alone gives the tokens, beams and logits of the same
 * model with values of their own, in a smaller cache; latent attention gives the same in the absorbed form, in the plain form
 * and on two ranks. Weights are drawn by their names. */
#include <math.h>

#include "golden.h"
#include "families/twin.h"
#include "runtime/artifact/artifact.h"

enum { VOCAB = 67, NEW = 24, PROMPTS = 3, MOST = 60 };

typedef struct Result {
    GoldenAnswer answer[PROMPTS];
    float logits[PROMPTS][VOCAB];
    int32_t beam[3 * 96];
    size_t beam_ids;
    uint64_t page_bytes;
} Result;

static void shape(json_t *tensors, const char *layer, const char *name, int rows, int columns)
{
    char full[80];

    snprintf(full, sizeof full, "%s%s", layer, name);
    json_object_set_new(tensors, full, columns ? json_pack("[i,i]", rows, columns) : json_pack("[i]", rows));
}

/* The tensors of inside/latent.lua: names and shapes. */
static json_t *tensors_of_latent(void)
{
    static const struct {
        const char *name;
        int rows, columns;
    } parts[] = {{"norm1.weight", 48, 0}, {"norm2.weight", 48, 0}, {"q_a.weight", 20, 48},    {"q_norm.weight", 20, 0},
                 {"q_b.weight", 96, 20},  {"kv_a.weight", 48, 48}, {"kv_norm.weight", 40, 0}, {"kv_b.weight", 128, 40},
                 {"out.weight", 48, 64},  {"gate.weight", 64, 48}, {"up.weight", 64, 48},     {"down.weight", 48, 64}};
    json_t *tensors = json_object();

    shape(tensors, "", "embed.weight", VOCAB, 48);
    shape(tensors, "", "norm.weight", 48, 0);
    shape(tensors, "", "head.weight", VOCAB, 48);
    for (int i = 0; i < 2; i++) {
        char layer[20];

        snprintf(layer, sizeof layer, "layers.%d.", i);
        for (size_t k = 0; k < sizeof parts / sizeof *parts; k++)
            shape(tensors, layer, parts[k].name, parts[k].rows, parts[k].columns);
    }
    return tensors;
}

/* weights: a file of them, or NULL: random ones. */
static FtxModel *open_model(const char *spec, const char *name, const char *options, const char *weights, Result *r)
{
    FtxOptions o = {.size = sizeof(FtxOptions),
                    .device = golden_on_cuda() ? FTX_DEVICE_CUDA : FTX_DEVICE_CPU,
                    .random_weights = !weights};
    const char *target = getenv("FTX_TEST_TARGET");
    char path[1000], command[4000], given[1100] = "";
    FtxModel *model;
    FtxError err;
    Artifact a;

    golden_path(name, path, sizeof path);
    if (weights)
        snprintf(given, sizeof given, "-D weights=%s%s", *weights == '/' ? "" : "$PWD/", weights);
    if (!getenv("FTX_TEST_ARTIFACTS")) {
        snprintf(command, sizeof command, "%s compile tests/models/inside/%s.lua -o %s -q -t %s%scpu %s %s",
                 getenv("FTXC"), spec, path, target ? target : "", target ? "," : "", given, options);
        assert_int_equal(system(command), 0);
    }
    if (artifact_open(path, &a, &err))
        fail_msg("%s", err.text);
    r->page_bytes = artifact_plan(&a, FTX_TARGET_CPU, "")->head->space_bytes[FTX_SPACE_PAGES];
    artifact_close(&a);
    if (ftx_model_open(path, &o, &model, &err))
        fail_msg("%s: %s", path, err.text);
    return model;
}

/* Three prompts at once, one longer than a step; then, of keys.lua, a beam search. */
static void run(const char *spec, const char *name, const char *options, const char *weights, Result *r)
{
    static const size_t length[PROMPTS] = {MOST, 1, 17};
    int32_t ids[MOST];
    uint64_t id[PROMPTS];
    FtxModel *model;
    FtxEngine *engine;

    memset(r, 0, sizeof *r);
    model = open_model(spec, name, options, weights, r);
    engine = golden_engine(model);
    for (int i = 0; i < MOST; i++)
        ids[i] = (i * i + 3 * i + 5) % VOCAB;
    for (int i = 0; i < PROMPTS; i++) {
        FtxRequest q = ftx_request_default(model);

        q.ids = ids + i;
        q.ids_count = length[i] - (i == 0 ? 1 : 0);
        q.temperature = 0.0f;
        q.beams = 1;
        q.max_new = NEW;
        q.ignore_eos = true;
        q.logits = true;
        q.user = &r->answer[i];
        id[i] = golden_submit(engine, &q);
    }
    golden_finish(engine);
    for (int i = 0; i < PROMPTS; i++) {
        assert_int_equal(r->answer[i].n, NEW);
        memcpy(r->logits[i], ftx_engine_logits(engine, id[i]), sizeof r->logits[i]);
    }
    if (strcmp(spec, "keys") == 0) {
        static GoldenAnswer ignored;
        FtxRequest q = ftx_request_default(model);
        const FtxHypothesis *h;
        size_t n;

        ignored = (GoldenAnswer){0};
        q.ids = ids;
        q.ids_count = 11;
        q.max_new = NEW;
        q.user = &ignored;
        id[0] = golden_submit(engine, &q);
        golden_finish(engine);
        h = ftx_engine_hypotheses(engine, id[0], &n);
        assert_true(n > 0);
        for (size_t i = 0; i < n; i++)
            for (size_t k = 0; k < h[i].count; k++)
                r->beam[r->beam_ids++] = h[i].ids[k];
    }
    ftx_engine_close(engine);
    ftx_model_close(model);
}

/* near: accepted difference of logits, relative to the largest. */
static void assert_same(const char *name, const Result *a, const Result *b, double near)
{
    for (int i = 0; i < PROMPTS; i++) {
        double largest = 0.0, worst = 0.0;

        if (memcmp(a->answer[i].ids, b->answer[i].ids, NEW * sizeof *a->answer[i].ids) != 0)
            fail_msg("%s: the tokens of prompt %d differ", name, i);
        for (int v = 0; v < VOCAB; v++) {
            largest = fmax(largest, fabs((double)a->logits[i][v]));
            worst = fmax(worst, fabs((double)a->logits[i][v] - (double)b->logits[i][v]));
        }
        if (!(worst <= near * largest))
            fail_msg("%s: prompt %d: a logit differs by %g, the largest is %g", name, i, worst, largest);
    }
    assert_int_equal(a->beam_ids, b->beam_ids);
    assert_memory_equal(a->beam, b->beam, a->beam_ids * sizeof *a->beam);
}

static void keys(void **state)
{
    static const struct {
        const char *name, *options;
        double near;
        uint64_t row; /* bytes of a key */
        bool cpu;     /* a cache of codes, which no CUDA kernel for values inside keys reads */
    } some[] = {
        {"all", "", 1e-5, 40 * 4, false},
        {"some", "-D graph.elements=24", 1e-5, 40 * 4, false},
        {"few", "-D graph.elements=3", 1e-5, 40 * 4, false},
        {"bf16", "-D graph.elements=32 -D precision.kv=bf16", 1e-5, 40 * 2, false},
        {"int8", "-D graph.elements=32 -D precision.kv=int8", 1e-5, 40 + 2, true},
    };
    static Result inside, beside;

    (void)state;
    for (size_t i = 0; i < sizeof some / sizeof *some; i++) {
        char options[200], name[40];

        if (some[i].cpu && getenv("FTX_TEST_TARGET"))
            continue;
        snprintf(name, sizeof name, "inside-%s", some[i].name);
        run("keys", name, some[i].options, NULL, &inside);
        snprintf(name, sizeof name, "beside-%s", some[i].name);
        snprintf(options, sizeof options, "%s -D graph.form=beside", some[i].options);
        run("keys", name, options, NULL, &beside);
        assert_same(some[i].name, &inside, &beside, golden_on_cuda() ? 1e-4 : some[i].near);
        assert_int_equal(inside.page_bytes, (3 * 2 * 8 * some[i].row + 255) / 256 * 256);
        assert_int_equal(beside.page_bytes, 2 * inside.page_bytes);
    }
}

static void latent(void **state)
{
    static Result absorbed, plain, ranks;
    json_t *tensors = tensors_of_latent();
    char file[1100];

    (void)state;
    golden_path("latent-weights", file, 1000);
    strcat(file, ".safetensors");
    adapter_write_tensors(tensors, "F32", twin_element, file);
    json_decref(tensors);
    run("latent", "latent-absorbed", "", file, &absorbed);
    run("latent", "latent-plain", "-D graph.absorbed=false", file, &plain);
    assert_same("plain", &absorbed, &plain, 1e-4);
    assert_int_equal(absorbed.page_bytes, 2 * 8 * (40 + 8) * 4);
    assert_int_equal(plain.page_bytes, 2 * 8 * 4 * 2 * 24 * 4);
    if (golden_on_cuda())
        return; /* ranks need as many GPUs */
    run("latent", "latent-ranks", "-D parallel=2", file, &ranks);
    assert_same("two ranks", &absorbed, &ranks, 1e-4);
    assert_int_equal(ranks.page_bytes, absorbed.page_bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(keys), cmocka_unit_test(latent)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
