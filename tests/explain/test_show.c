/* test_show.c - `ftxc show` of a small artifact as text, picture and JSON. */
#include "tests/artifact/small.h"

#include <jansson.h>

#include "compiler/explain/explain.h"

static char *show(ShowOptions o, const char *path)
{
    char *text = NULL;
    size_t n;
    FILE *out = open_memstream(&text, &n);
    FtxError err;

    assert_non_null(out);
    if (explain_show(path, &o, out, &err))
        fail_msg("%s", err.text);
    fclose(out);
    return text;
}

static void has(const char *text, const char *piece)
{
    if (!strstr(text, piece))
        fail_msg("\"%s\" is not in:\n%s", piece, text);
}

static const char *small_file(bool fixed_sums)
{
    const char *path = temp_path("show.ftx");
    Small s;
    Diag d = {0};

    small_begin(&s);
    s.spec.precision.fixed_sums = fixed_sums;
    if (!artifact_write(path, &s.parts, NULL, NULL, &d))
        fail_msg("%s", d.text);
    small_end(&s);
    return path;
}

static void test_text(void **state)
{
    const char *path = small_file(false);
    char *text = show((ShowOptions){.verify = true}, path);
    (void)state;

    has(text, "small: 40 parameters, 1 layers, hidden 16, vocab 16");
    has(text, "2 sequences, context 8, 4 tokens a step; at most 4 KV pages of 4 tokens");
    has(text, "decoding     sampling");
    has(text, "compiled for top_k up to 50, beams up to 1");
    has(text, "build        ftxc test");
    has(text, "kernels of sm_90a");
    has(text, "bf16  16.00  [4,8]            matrix  a");
    has(text, "\n   19.20 bits a weight, scales included, computed tables not\n");
    has(text, "plan for compute_80: weights bf16, compute fp32");
    has(text,
        "  KV cache: 128 B a token, 512 B a page; all 4 pages 2.0 KiB\n  1 cache: 1 heads of 8, fp32, window 6\n");
    has(text, "step, any number of tokens          2 launches, workspace 4.0 KiB");
    has(text, "0  layer 0: up                          linear__small");
    has(text, "decode, up to 1 sequence ");
    has(text, "all checksums are right");
    assert_null(strstr(text, "order of sums"));
    free(text);
    text = show((ShowOptions){.verify = true}, small_file(true));
    has(text, "plan for compute_80: weights bf16, compute fp32, one order of sums in all programs\n");
    free(text);
}

static void test_memory(void **state)
{
    char *text = show((ShowOptions){.memory = true}, small_file(false));
    (void)state;

    has(text, "memory of cpu");
    has(text, "step, any number of tokens: workspace 4.0 KiB, the lower bound 4.0 KiB (bytes live during launch 0)");
    has(text, "           0 B     2.0 KiB  #.  x\n");
    has(text, "       2.0 KiB     2.0 KiB  ##  h\n");
    has(text, "$logits");
    assert_null(strstr(strstr(text, "$logits") + 1, "  logits")); /* a named buffer is printed once */
    assert_null(strstr(text, "$hidden"));                         /* and only if it has bytes */
    has(text, "(--gpu-layers 0)");
    assert_true(strstr(text, "(--gpu-layers 0)") > strstr(text, "memory of sm_90a")); /* of GPUs alone */
    free(text);
}

static void test_kernels(void **state)
{
    char *text = show((ShowOptions){.kernels = true}, small_file(false));
    (void)state;

    has(text, "linear__small  (overlaps)");
    has(text, "1024");
    free(text);
}

static void test_json(void **state)
{
    char *text = show((ShowOptions){.json = true, .verify = true}, small_file(false));
    json_error_t why;
    json_t *j = json_loads(text, 0, &why), *plans = json_object_get(j, "plans");
    (void)state;

    assert_non_null(j);
    assert_true(json_is_true(json_object_get(j, "verified")));
    assert_int_equal(json_integer_value(json_object_get(json_object_get(j, "model"), "vocab")), 16);
    assert_int_equal(json_array_size(json_object_get(j, "weights")), 4);
    assert_int_equal(json_array_size(plans), 3);
    assert_string_equal(json_string_value(json_object_get(json_array_get(plans, 1), "target")), "sm_90a");
    assert_int_equal(json_array_size(json_object_get(json_array_get(plans, 1), "programs")), 2);
    json_decref(j);
    free(text);
}

static size_t count(const char *text, const char *piece)
{
    size_t n = 0;

    for (; (text = strstr(text, piece)); text++)
        n++;
    return n;
}

/* A second layer of other kernels, programs of other launches, a name that is no UTF-8. */
static void test_unlike(void **state)
{
    const char *path = temp_path("unlike.ftx");
    size_t cpu = 0, i;
    char engine[40], *text;
    uint64_t bytes = 0;
    json_t *j, *model, *plan, *section;
    Diag d = {0};
    Small s;
    (void)state;

    small_begin(&s);
    s.spec.name = "a\xff";
    s.plans[0].strings.at[s.plans[0].launches.at[1].label] = "layer 1: down";
    s.plans[0].strings.at[s.plans[0].launches.at[2].label] = "layer 0: second";
    for (int space = FTX_SPACE_STATE; space <= FTX_SPACE_OUT; space++)
        bytes += s.plans[0].head.space_bytes[space];
    if (!artifact_write(path, &s.parts, NULL, NULL, &d))
        fail_msg("%s", d.text);

    text = show((ShowOptions){0}, path);
    has(text, "3 logit biases, 4 end ids and 2 ids of bad words a request");
    has(text, "  bad words    3 4; 15\n");
    has(text, "1  layer 1: down"); /* not "1 more layer like this" */
    snprintf(engine, sizeof engine, "  engine %.1f KiB: ", (double)bytes / 1024);
    has(text, engine);
    free(text);
    text = show((ShowOptions){.kernels = true}, path);
    assert_int_equal(count(text, "  layer 0: second"), 1); /* all programs */
    assert_int_equal(count(text, "  layer 0: up"), 5);
    free(text);

    text = show((ShowOptions){.json = true}, path);
    j = json_loads(text, 0, NULL);
    assert_non_null(j);
    model = json_object_get(j, "model");
    plan = json_array_get(json_object_get(j, "plans"), 0);
    assert_string_equal(json_string_value(json_object_get(model, "name")), "(not UTF-8)");
    assert_int_equal(json_integer_value(json_object_get(model, "bad_words")), 2);
    assert_int_equal(json_array_size(json_object_get(model, "ends")), 1);
    assert_int_equal(json_integer_value(json_object_get(json_object_get(plan, "bytes"), "weights")), s.packing.bytes);
    section = json_array_get(json_object_get(json_array_get(json_object_get(plan, "programs"), 1), "launches"), 0);
    assert_string_equal(json_string_value(json_object_get(section, "label")), "layer 0: second");
    json_array_foreach(json_object_get(j, "sections"), i, section) cpu +=
        strcmp(json_string_value(json_object_get(section, "target")), "cpu") == 0;
    assert_int_equal(cpu, 9); /* without code and source */
    json_decref(j);
    free(text);
    small_end(&s);
}

/* A damaged file is refused where its checksums are looked at, as text too. */
static void test_damaged(void **state)
{
    const char *path = small_file(false);
    const ShowOptions o = {.verify = true};
    FILE *f = fopen(path, "r+b"), *out = tmpfile();
    Artifact a;
    FtxError err;
    long weights;
    (void)state;

    assert_int_equal(artifact_open(path, &a, &err), FTX_OK);
    weights = (long)((const char *)a.weight_data - (const char *)a.map.at);
    artifact_close(&a);

    assert_non_null(f);
    assert_non_null(out);
    assert_int_equal(fseek(f, weights, SEEK_SET), 0);
    assert_int_equal(fputc(99, f), 99);
    assert_int_equal(fclose(f), 0);
    assert_int_not_equal(explain_show(path, &o, out, &err), FTX_OK);
    assert_int_equal(ftell(out), 0);
    fclose(out);
}

static void test_refused(void **state)
{
    const ShowOptions o = {0};
    FtxError err;
    (void)state;

    assert_int_equal(explain_show("tests/CMakeLists.txt", &o, stdout, &err), FTX_EFORMAT);
    has(err.text, "tests/CMakeLists.txt: is not an ftx artifact");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_text),    cmocka_unit_test(test_memory),  cmocka_unit_test(test_kernels),
        cmocka_unit_test(test_json),    cmocka_unit_test(test_refused), cmocka_unit_test(test_unlike),
        cmocka_unit_test(test_damaged),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
