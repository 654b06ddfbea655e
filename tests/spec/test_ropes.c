/* test_ropes.c - frequencies of rotary positions by rope_parameters, against what transformers computes (ropes.py). */
#include "folder.h"

#include <jansson.h>
#include <math.h>

/* Each frequency within the rounding of transformers, which computes in fp32. */
static void check_freqs(size_t i, const Value *table, const json_t *want)
{
    const char *at = ir_word(table, "freqs");
    const json_t *freqs = json_object_get(want, "freqs"), *f;
    size_t k;

    assert_int_equal(ir_int(table, "rot"), 2 * json_array_size(freqs));
    json_array_foreach(freqs, k, f)
    {
        char *end;
        const double have = strtod(at, &end), exact = json_number_value(f);

        if (end == at || fabs(have - exact) > 2e-6 * exact)
            fail_msg("case %zu: frequency %zu is %g, transformers has %g", i, k, have, exact);
        at = end;
    }
    assert_true(fabs(ir_float(table, "amplitude") - json_number_value(json_object_get(want, "amplitude"))) < 1e-9);
}

static void test_frequencies(void **state)
{
    json_t *cases = json_load_file("tests/spec/ropes.json", 0, NULL), *c;
    size_t i;
    (void)state;

    json_array_foreach(cases, i, c)
    {
        char *config = json_dumps(json_object_get(c, "config"), 0), define[60];
        Folder f = make_folder(config, NULL);
        Reading r;

        snprintf(define, sizeof define, "limits.context=%d", (int)json_integer_value(json_object_get(c, "context")));
        r = read_good(f.path, define);
        check_freqs(i, first_op(r.spec.graph, OP_ROPE_TABLE), c);
        drop(&r);
        remove_folder(&f);
        free(config);
    }
    assert_true(i > 20);
    json_decref(cases);
}

/* Without -D the context is max_position_embeddings, up to 4096. */
static void test_context(void **state)
{
    static const struct {
        const char *positions;
        const char *define;
        double first, second; /* the divisor of the second pair: 3 where the context is longer than 2048 */
    } cases[] = {{"2048", NULL, 1, 2}, {"8192", NULL, 1, 3}, {"8192", "limits.context=2048", 1, 2}};
    (void)state;

    for (size_t i = 0; i < LEN(cases); i++) {
        char config[600], *end;
        Folder f;
        Reading r;
        double first;

        snprintf(config, sizeof config,
                 "{\"architectures\": [\"LlamaForCausalLM\"], \"vocab_size\": 64, \"hidden_size\": 32, "
                 "\"num_hidden_layers\": 1, \"intermediate_size\": 48, \"head_dim\": 16" HEADS
                 ", \"max_position_embeddings\": %s, \"rope_scaling\": {"
                 "\"type\": \"longrope\", \"partial_rotary_factor\": 0.25, \"short_factor\": [1, 2], "
                 "\"long_factor\": [1, 3], \"original_max_position_embeddings\": 2048}}",
                 cases[i].positions);
        f = make_folder(config, NULL);
        r = read_good(f.path, cases[i].define);
        first = strtod(ir_word(first_op(r.spec.graph, OP_ROPE_TABLE), "freqs"), &end);
        assert_true(first == cases[i].first);
        assert_true(fabs(0.01 / strtod(end, NULL) - cases[i].second) < 1e-9);
        drop(&r);
        remove_folder(&f);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_frequencies), cmocka_unit_test(test_context)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
