/* test_programs.c - which sizes of steps have programs of their own. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>
#include <string.h>

#include "compiler/spec/spec.h"

/* The sizes of the programs of one kind, as text. */
static const char *sizes(const Plan *plan, FtxProgramKind kind, Arena *keep)
{
    const char *text = "";

    for (size_t i = 0; i < plan->programs.n; i++)
        if (plan->programs.at[i].kind == kind)
            text = arena_printf(keep, "%s%s%u", text, *text ? " " : "", plan->programs.at[i].bucket);
    return text;
}

/* Steps of 65 to 512 tokens have programs of their own where linear_batch computes all layers, and 192 and 384 rows where these
 * are large; up to 256 where experts have codes. */
static void many_rows(void **state)
{
    static const struct {
        const char *spec, *target, *override, *steps, *decode;
    } rows[] = {
        {"llama-3.2-1b", "sm_90a", "limits.sequences=200", "16 64 128 256 384 512 0", "1 2 4 8 16 32 64 128 256"},
        {"llama-3.2-1b", "sm_90a", "limits.tokens=255", "16 64 128 0", "1 2 4 8 16 32 64"},
        {"llama-3.2-1b", "sm_90a", "limits.tokens=383", "16 64 128 256 0", "1 2 4 8 16 32 64"},
        {"llama-3.2-1b", "sm_90a", "precision.weights=int4", "16 64 0", "1 2 4 8 16 32 64"},
        {"llama-3.2-1b", "sm_90a", "precision.weights=fp32", "16 64 0", "1 2 4 8 16 32 64"},
        {"llama-3.2-1b", "sm_80", "limits.sequences=200", "16 64 0", "1 2 4 8 16 32 64 128 256"},
        {"llama-3.1-8b", "h200", "limits.sequences=512", "16 64 128 192 256 384 512 0",
         "1 2 4 8 16 32 64 128 192 256 384 512"},
        {"llama-3.1-8b", "h200", "limits.tokens=191", "16 64 128 0", "1 2 4 8 16 32 64"},
        {"llama-3.1-8b", "h200", "limits.sequences=128", "16 64 128 192 256 384 512 0", "1 2 4 8 16 32 64 128"},
        {"llama-3.1-8b", "h200", "precision.sums=fixed", "16 64 128 256 512 0", "1 2 4 8 16 32 64"},
        {"llama-3.1-8b", "h200", "precision.weights=int4", "16 64 0", "1 2 4 8 16 32 64"},
        {"qwen3-30b-a3b", "sm_90a", "limits.sequences=64", "16 64 0", "1 2 4 8 16 32 64"},
        {"qwen3-30b-a3b", "sm_90a", "precision.weights=int4", "16 64 128 256 0", "1 2 4 8 16 32 64"},
        {"gpt2-124m", "sm_90a", "limits.sequences=64", "16 64 0", "1 2 4 8 16 32 64"},
    };
    Arena *keep = arena_open();
    Catalog catalog;
    Diag d = {0};

    (void)state;
    if (!catalog_open(keep, &catalog, &d))
        fail_msg("%s", d.text);
    for (size_t i = 0; i < LEN(rows); i++) {
        const Override override = {rows[i].override};
        Packing packing = {0};
        Spec spec = {0};
        Target t;
        Plan plan;

        print_message("%s %s %s\n", rows[i].spec, rows[i].target, rows[i].override);
        assert_true(target_parse(rows[i].target, &t, &d));
        if (!spec_read(arena_printf(keep, "specs/%s.lua", rows[i].spec), &override, 1, keep, &spec, &d) ||
            !passes_run_graph(spec.graph, &spec.precision, &(Dump){0}, &d) ||
            !passes_run_target(spec.graph, &catalog, t, &spec.precision, &packing, &plan, NULL, &d))
            fail_msg("%s", d.text);
        assert_string_equal(sizes(&plan, FTX_PROG_STEP, keep), rows[i].steps);
        assert_string_equal(sizes(&plan, FTX_PROG_DECODE, keep), rows[i].decode);
        ir_graph_close(spec.graph);
    }
    arena_close(keep);
}

static size_t instances(const Plan *plan, const char *family)
{
    size_t n = 0;

    for (size_t i = 0; i < plan->instances.n; i++)
        n += strcmp(plan->instances.at[i]->contract->family, family) == 0;
    return n;
}

/* precision.activations = "fp8": linears of many rows read rows of fp8, on the targets that can; elsewhere it is refused. */
static void fp8_rows(void **state)
{
    static const struct {
        const char *spec, *target, *weights, *group;
        size_t by_fp8, appended, unpacked; /* instances of linear_fp8, linear_fp8_append, unpack_fp8 */
        const char *message;               /* NULL: it compiles */
    } rows[] = {
        {"llama-3.1-8b", "sm_90a", "fp8", "group=128", 3, 1, 0, NULL},
        {"llama-3.2-1b", "h200", "fp8", "group=128", 3, 1, 0, NULL},
        {"gpt2-124m", "sm_90a", "fp8", "group=128", 3, 1, 0, NULL},
        {"llama-3.1-8b", "sm_90a", "fp8", "group=64", 0, 0, 4, NULL}, /* scales of fewer k than are summed at once */
        {"llama-3.1-8b", "sm_90a", "int8", "group=128", 0, 0, 0, "no linear layer has weights of fp8"},
        {"llama-3.1-8b", "sm_80", "fp8", "group=128", 0, 0, 0, "not for sm_80 with bf16: leave it at auto"},
        {"llama-3.1-8b", "sm_100a", "fp8", "group=128", 0, 0, 0, "not for sm_100a with bf16"},
        {"llama-3.1-8b", "compute_90", "fp8", "group=128", 0, 0, 0, "not for compute_90 with bf16"},
        {"llama-3.1-8b", "cpu", "fp8", "group=128", 0, 0, 0, "not for cpu with fp32"},
    };
    Arena *keep = arena_open();
    Catalog catalog;
    Diag d = {0};

    (void)state;
    if (!catalog_open(keep, &catalog, &d))
        fail_msg("%s", d.text);
    for (size_t i = 0; i < LEN(rows); i++) {
        const Override override[] = {{arena_printf(keep, "precision.weights=%s", rows[i].weights)},
                                     {arena_printf(keep, "precision.%s", rows[i].group)},
                                     {"precision.activations=fp8"}};
        Packing packing = {0};
        Spec spec = {0};
        Target t;
        Plan plan;
        bool done;

        print_message("%s %s %s %s\n", rows[i].spec, rows[i].target, rows[i].weights, rows[i].group);
        d = (Diag){0};
        assert_true(target_parse(rows[i].target, &t, &d));
        if (!spec_read(arena_printf(keep, "specs/%s.lua", rows[i].spec), override, LEN(override), keep, &spec, &d) ||
            !passes_run_graph(spec.graph, &spec.precision, &(Dump){0}, &d))
            fail_msg("%s", d.text);
        done = passes_run_target(spec.graph, &catalog, t, &spec.precision, &packing, &plan, NULL, &d);
        if (rows[i].message) {
            assert_false(done);
            assert_non_null(strstr(d.text, "precision.activations is fp8"));
            assert_non_null(strstr(d.text, rows[i].message));
        } else {
            assert_true(done);
            assert_int_equal(instances(&plan, "linear_fp8"), rows[i].by_fp8);
            assert_int_equal(instances(&plan, "linear_fp8_append"), rows[i].appended);
            assert_int_equal(instances(&plan, "unpack_fp8"), rows[i].unpacked);
        }
        ir_graph_close(spec.graph);
    }
    arena_close(keep);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(many_rows), cmocka_unit_test(fp8_rows)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
