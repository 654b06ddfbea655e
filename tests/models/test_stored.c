/* test_stored.c - whole models from quantised checkpoints (stored/, made by tests/weights/stored/make.py): logits and greedy
 * tokens are those of transformers with the matrices multiplied out to fp32. */
#include <dirent.h>
#include <math.h>

#include "golden.h"

enum { MOST = 128 };

static void check_logits(const char *what, const float *got, const json_t *want, double part)
{
    double largest = 0.0, worst = 0.0;

    assert_non_null(got);
    for (size_t i = 0; i < json_array_size(want); i++) {
        const double w = json_number_value(json_array_get(want, i));

        largest = fmax(largest, fabs(w));
        worst = fmax(worst, fabs(w - (double)got[i]));
    }
    if (!(worst <= part * largest))
        fail_msg("%s: a logit differs by %g, the largest is %g", what, worst, largest);
}

/* Bytes of the model's weights. */
static uint64_t check(const char *name, const char *overrides, double part, bool tokens)
{
    static GoldenAnswer answer;
    FtxModelInfo info;
    char path[300], what[400];
    FtxModel *m;
    FtxEngine *e;
    json_t *golden, *prompt;
    size_t i;

    snprintf(what, sizeof what, "%s %s", name, overrides);
    snprintf(path, sizeof path, "tests/models/stored/%s/golden.json", name);
    golden = golden_json(path);
    snprintf(path, sizeof path, "tests/models/stored/%s", name);
    m = golden_open(path, "stored", overrides);
    e = golden_engine(m);
    json_array_foreach(json_object_get(golden, "cases"), i, prompt)
    {
        FtxRequest r = ftx_request_default(m);
        int32_t ids[MOST], want[MOST];
        uint64_t id;

        answer = (GoldenAnswer){0};
        r.ids = ids;
        r.ids_count = golden_ids(json_object_get(prompt, "prompt"), ids, MOST);
        r.temperature = 0.0f;
        r.max_new = (int)golden_ids(json_object_get(prompt, "tokens"), want, MOST);
        r.ignore_eos = true;
        r.logits = true;
        r.user = &answer;
        id = golden_submit(e, &r);
        golden_finish(e);
        check_logits(what, ftx_engine_logits(e, id), json_object_get(prompt, "logits"), part);
        for (int k = 0; tokens && k < r.max_new; k++)
            if (answer.ids[k] != want[k])
                fail_msg("%s: token %d is %d, expected %d", what, k, answer.ids[k], want[k]);
    }
    assert_true(i == 2);
    ftx_model_info(m, &info);
    json_decref(golden);
    ftx_engine_close(e);
    ftx_model_close(m);
    return info.weight_bytes;
}

static void models(void **state)
{
    const char *only = getenv("FTX_TEST_STORED"); /* the name of one of them, since compiling for a GPU takes a while */
    DIR *d = opendir("tests/models/stored");
    struct dirent *entry;
    size_t n = 0, coded = 0;

    (void)state;
    assert_non_null(d);
    while ((entry = readdir(d))) {
        if (*entry->d_name == '.' || (only && strcmp(only, entry->d_name) != 0))
            continue;
        n++;
        coded += check(entry->d_name, "-D precision.compute=fp32", 1e-5, true) <
                 check(entry->d_name, "-D precision.dequantise=true", 1e-5, true);
        check(entry->d_name, "", 3e-2, false);                          /* rows of activations are codes of 8 bits */
        check(entry->d_name, "-D precision.weights=bf16", 4e-2, false); /* on a GPU activations, too */
    }
    closedir(d);
    assert_true(n >= (only ? 1 : 20));
    if (only)
        return;
    assert_true(coded >= 20);                                 /* all keep their codes */
    check("mxfp4", "-D precision.weights=int8", 5e-2, false); /* a linear layer behind the heads of attention */
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(models)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
