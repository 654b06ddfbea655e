/* test_models.c - every spec of the tree and every checkout of tests/models goes through all passes
 * for the CPU and for GPUs: every op finds kernels, weights and buffers their places, and the work
 * space is as small as it can be. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "compiler/spec/spec.h"
#include "runtime/base/file.h"

typedef struct Model {
    const char *path;
    const char *const *overrides;
} Model;

typedef struct Run {
    Arena *keep;
    Catalog catalog;
    int models;
} Run;

/* No two WORK buffers of a program that live together overlap; all lie inside. Independent of
 * planner.c: bytes are painted, not compared. */
static void check_work(const Plan *plan)
{
    for (size_t i = 0; i < plan->buffers.n; i++) {
        const FtxBuffer *a = &plan->buffers.at[i];

        assert_true(a->offset + a->bytes <= plan->head.space_bytes[a->space]);
        assert_int_equal(a->offset % 256, 0);
        for (size_t k = 0; k < i; k++) {
            const FtxBuffer *b = &plan->buffers.at[k];

            if (a->space != b->space || (a->space == FTX_SPACE_WORK && a->program != b->program))
                continue;
            if (a->space == FTX_SPACE_WORK && (a->last < b->first || b->last < a->first))
                continue;
            if (a->offset < b->offset + b->bytes && b->offset < a->offset + a->bytes)
                fail_msg("%s and %s overlap", plan->strings.at[a->name], plan->strings.at[b->name]);
        }
    }
}

/* What the reader of artifacts will check, and what the CPU and CUDA devices rely on. */
static void check_plan(const char *path, const Plan *plan, const Packing *packing)
{
    size_t operands = 0;

    for (size_t i = 0; i < plan->programs.n; i++) {
        const FtxProgram *p = &plan->programs.at[i];

        assert_true(p->n_launches > 0);
        assert_true(p->first_launch + p->n_launches <= plan->launches.n);
        assert_true(p->work_bytes <= plan->head.space_bytes[FTX_SPACE_WORK]);
    }
    for (size_t i = 0; i < plan->launches.n; i++) {
        const FtxLaunch *l = &plan->launches.at[i];

        assert_true(l->kernel < plan->instances.n);
        assert_int_equal(l->first_operand, operands);
        operands = i + 1 < plan->launches.n ? plan->launches.at[i + 1].first_operand : plan->operands.n;
        assert_true(plan->strings.at[l->label][0]);
    }
    for (size_t i = 0; i < plan->operands.n; i++) {
        const FtxOperand *o = &plan->operands.at[i];
        const uint64_t bytes = o->space == FTX_SPACE_WEIGHTS ? packing->bytes : plan->head.space_bytes[o->space];

        assert_true(o->space == FTX_SPACE_NULL || o->offset < bytes || bytes == 0);
    }
    for (size_t i = 0; i < plan->instances.n; i++)
        for (size_t k = 0; k < i; k++)
            assert_string_not_equal(plan->instances.at[i]->entry, plan->instances.at[k]->entry);
    check_work(plan);
    if (plan->head.space_bytes[FTX_SPACE_WORK] != plan->head.lower_bound)
        fail_msg("%s on %s: work space %llu, lower bound %llu", path, plan->target.name,
                 (unsigned long long)plan->head.space_bytes[FTX_SPACE_WORK],
                 (unsigned long long)plan->head.lower_bound);
}

static void run_model(Run *r, const char *path, const char *override)
{
    static const char *const targets[] = {"cpu", "sm_80", "sm_86", "sm_90a", "sm_120a"};
    const Override overrides[] = {{override}};
    Packing packing = {0};
    Diag d = {0};
    Spec spec = {0};
    const Dump dump = {getenv("FTX_DUMP"), "/tmp/ftx-dump"};

    if (!spec_read(path, overrides, override != NULL, r->keep, &spec, &d) ||
        !passes_run_graph(spec.graph, &spec.precision, &dump, &d))
        fail_msg("%s: %s", path, d.text);
    for (size_t i = 0; i < LEN(targets); i++) {
        Target t;
        Plan plan;

        assert_true(target_parse(targets[i], &t, &d));
        if (!passes_run_target(spec.graph, &r->catalog, t, &spec.precision, &packing, &plan, &dump, &d))
            fail_msg("%s %s on %s: %s", path, override ? override : "", targets[i], d.text);
        check_plan(path, &plan, &packing);
    }
    r->models++;
    ir_graph_close(spec.graph);
}

static void every_model(void **state)
{
    static const char *const folders[] = {"specs", "tests/models"};
    Run r = {.keep = arena_open()};
    Diag d = {0};

    (void)state;
    if (!catalog_open(r.keep, &r.catalog, &d))
        fail_msg("%s", d.text);
    for (size_t i = 0; i < LEN(folders); i++) {
        struct dirent **list;
        const int n = scandir(folders[i], &list, NULL, alphasort);

        assert_true(n > 0);
        for (int k = 0; k < n; k++) {
            const char *name = list[k]->d_name, *path = arena_printf(r.keep, "%s/%s", folders[i], name);
            const bool family = strcmp(name, "llama.lua") == 0 || strcmp(name, "gpt2.lua") == 0;
            const bool spec = i == 0 && strlen(name) > 4 && strcmp(name + strlen(name) - 4, ".lua") == 0 && !family;
            const bool checkout = file_exists(arena_printf(r.keep, "%s/config.json", path));

            if (spec || checkout) {
                print_message("%s\n", path);
                run_model(&r, path, NULL);
                run_model(&r, path, "precision.weights=fp32");
            }
            free(list[k]);
        }
        free(list);
    }
    assert_true(r.models >= 2 * 8);
    arena_close(r.keep);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_model)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
