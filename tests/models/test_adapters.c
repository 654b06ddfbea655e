/* test_adapters.c - `ftxc compile --lora` against PEFT's merged models: greedy tokens and vectors in fp32, and what
 * `ftxc show` says of the adapters. */
#include <dirent.h>
#include <math.h>
#include <unistd.h>

#include "golden.h"
#include "lora/adapters.h"
#include "tests/temp.h"

enum { MAX_TOKENS = 64, MAX_D = 256 };

static json_t *cases;

/* The adapters of a case as folders `name-0`, `name-1` of the build folder, and the options that merge them. */
static void write_adapters(const char *name, const json_t *test, char *options, size_t bytes)
{
    json_t *adapter;
    size_t i;

    snprintf(options, bytes, "-D precision.weights=fp32 -D precision.compute=fp32");
    json_array_foreach(json_object_get(test, "adapters"), i, adapter)
    {
        const size_t n = strlen(options);
        char folder[600];

        snprintf(folder, sizeof folder, "%s/adapter-%s-%zu", getenv("FTX_BUILD"), name, i);
        mkdir(folder, 0777);
        adapter_write(adapter, folder);
        snprintf(options + n, bytes - n, " --lora %s", folder);
    }
}

static void check_vectors(const char *name, FtxEngine *engine, const json_t *results)
{
    json_t *prompt;
    size_t i;

    json_array_foreach(json_object_get(results, "prompts"), i, prompt)
    {
        const json_t *want = json_array_get(json_object_get(results, "pooler"), i);
        int32_t ids[MAX_TOKENS], length = (int32_t)golden_ids(prompt, ids, MAX_TOKENS);
        FtxEncode job = FTX_ENCODE_INIT;
        float got[MAX_D] = {0};
        FtxError err;

        job.count = 1;
        job.ids = ids;
        job.lengths = &length;
        job.pooled = got;
        if (ftx_engine_encode(engine, &job, &err))
            fail_msg("%s", err.text);
        for (size_t k = 0; k < json_array_size(want); k++)
            if (!(fabs(json_number_value(json_array_get(want, k)) - (double)got[k]) <= 1e-4))
                fail_msg("%s: number %zu is %g", name, k, (double)got[k]);
    }
}

/* Equal up to the first token whose margin is within the tolerance of logits. */
static void check_tokens(const char *name, FtxEngine *engine, const FtxModel *model, const json_t *results)
{
    static GoldenAnswer answer;
    json_t *row;
    size_t i, compared = 0;

    json_array_foreach(json_object_get(results, "rows"), i, row)
    {
        const json_t *want = json_object_get(row, "greedy"), *margin = json_object_get(row, "margin");
        FtxRequest r = ftx_request_default(model);
        int32_t ids[MAX_TOKENS];

        answer = (GoldenAnswer){0};
        r.ids = ids;
        r.ids_count = golden_ids(json_object_get(row, "prompt"), ids, MAX_TOKENS);
        r.temperature = 0.0f;
        r.beams = 1;
        r.repetition_penalty = 1.0f;
        r.max_new = (int)json_array_size(want) + 1; /* Marian's last token must be the end */
        r.ignore_eos = true;
        r.user = &answer;
        golden_submit(engine, &r);
        golden_finish(engine);
        for (size_t k = 0; k < json_array_size(want); k++) {
            if (json_number_value(json_array_get(margin, k)) < 1e-4)
                break;
            if (k >= answer.n || answer.ids[k] != json_integer_value(json_array_get(want, k)))
                fail_msg("%s, prompt %zu: token %zu is %d", name, i, k, k < answer.n ? answer.ids[k] : -1);
            compared++;
        }
    }
    assert_true(compared >= 8);
}

static void check_shown(const char *name, const json_t *test)
{
    char path[1000], command[2500], text[4096], want[200];
    size_t n;
    FILE *f;

    golden_path(name, path, sizeof path);
    snprintf(command, sizeof command, "%s show %s", getenv("FTXC"), path);
    f = popen(command, "r");
    assert_non_null(f);
    n = fread(text, 1, sizeof text - 1, f);
    text[n] = '\0';
    while (fread(command, 1, sizeof command, f))
        ;
    assert_int_equal(pclose(f), 0);
    for (size_t i = 0; i < json_array_size(json_object_get(test, "adapters")); i++) {
        snprintf(want, sizeof want, "\n               lora adapter-%s-%zu: ", name, i);
        assert_non_null(strstr(text, want));
        snprintf(want, sizeof want, " --lora adapter-%s-%zu", name, i);
        assert_non_null(strstr(text, want));
    }
}

static void test_models(void **state)
{
    const char *name;
    json_t *test;
    (void)state;

    json_object_foreach(cases, name, test)
    {
        const json_t *results = json_object_get(test, "results");
        char options[2000];
        FtxModel *model;
        FtxEngine *engine;

        write_adapters(name, test, options, sizeof options);
        model = golden_open(json_string_value(json_object_get(test, "model")), name, options);
        engine = golden_engine(model);
        if (json_object_get(results, "rows"))
            check_tokens(name, engine, model, results);
        else
            check_vectors(name, engine, results);
        check_shown(name, test);
        ftx_engine_close(engine);
        ftx_model_close(model);
    }
}

/* Exit code 2 and a sentence that holds `message`. */
static void refused(const char *arguments, const char *message)
{
    char command[2000], text[1000] = "";
    FILE *f;

    snprintf(command, sizeof command, "%s compile %s -t cpu -o %s 2>&1", getenv("FTXC"), arguments,
             temp_path("no.ftx"));
    f = popen(command, "r");
    assert_non_null(f);
    assert_non_null(fgets(text, sizeof text, f));
    assert_int_equal(WEXITSTATUS(pclose(f)), 2);
    if (!strstr(text, message))
        fail_msg("expected \"%s\" in: %s", message, text);
}

static void test_options(void **state)
{
    (void)state;
    refused("tests/models/tiny-llama --lora nowhere", "nowhere: no folder there; --lora takes an adapter's folder");
    refused("tests/models/tiny-llama --no-weights --lora nowhere",
            "--lora: an adapter changes weights, and --no-weights");
    refused("specs/gpt2-124m.lua --lora nowhere", "has no weights that --lora could change");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_models), cmocka_unit_test(test_options)};
    json_t *golden = golden_json("tests/models/lora/golden.json");
    int failed;

    cases = json_object_get(golden, "cases");
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    json_decref(golden);
    return failed;
}
