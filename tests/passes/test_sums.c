/* test_sums.c - precision.sums = "fixed": for every spec of the tree all programs of a GPU add each value in one order, with
 * the same values in a launch, and no kernel without a stated order adds a linear layer or a norm. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "compiler/passes/lower.h"
#include "compiler/spec/spec.h"
#include "runtime/base/file.h"
#include "tests/turn.h"

typedef struct Model {
    Arena *keep;
    Catalog catalog;
    Spec spec;
    Packing packing;
    Plan plan;
    Lower l;
} Model;

/* False: the model is refused, d has the reason. */
static bool model_open(Model *m, const char *path, const char *type, const char *target, const char *more, Diag *d)
{
    Override overrides[] = {{"precision.sums=fixed"}, {NULL}, {more}};
    Target t = {0};

    *m = (Model){.keep = arena_open()};
    overrides[1].text = arena_printf(m->keep, "precision.weights=%s", type);
    if (!catalog_open(m->keep, &m->catalog, d) || !target_parse(target, &t, d) ||
        !spec_read(path, overrides, more ? 3 : 2, m->keep, &m->spec, d) ||
        !passes_run_graph(m->spec.graph, &m->spec.precision, &(Dump){0}, d))
        fail_msg("%s: %s", path, d->text);
    lower_open(&m->l, m->spec.graph, &m->catalog, t, &m->spec.precision, &m->packing, &m->plan);
    return stage_select(&m->l, d);
}

static void model_close(Model *m)
{
    ir_graph_close(m->spec.graph);
    arena_close(m->keep);
}

/* The order that a launch's contract states for an op; NULL: none. */
static const char *stated(const Group *g, Op op)
{
    for (size_t i = 0; i < g->b.contract->sums.n; i++)
        if (g->b.contract->sums.at[i].op == op)
            return g->fit.sums[i];
    return NULL;
}

/* The values that a launch computes together: "%5 %6 ". */
static const char *together(const Model *m, const Group *g)
{
    const char *list = "";

    for (uint32_t i = 0; i < g->b.n_covered; i++) {
        const Op op = ir_value(m->l.g, g->b.covered[i])->op;

        if (op != OP_SELECT_LAST && op != OP_SELECT_FIRST && op != OP_IDS)
            list = arena_printf(m->keep, "%s%%%u ", list, g->b.covered[i]);
    }
    return list;
}

/* The sum of a segment has an order of its own in each kernel, so with fixed sums nobody reads segments: a kernel that leaves
 * out logits which segments stand for would leave what an earlier step wrote. */
static void check_logits(const Model *m, const char *name, const Program *p, const Group *g)
{
    const Instance *in = g->fit.instance;

    for (size_t i = 0; i < in->n_consts; i++)
        if (strcmp(in->consts[i].name, "SEGMENTS") == 0 && in->consts[i].i != 0)
            fail_msg("%s: %s writes or reads segments of %%%u in %s", name, in->family, m->l.g->logits, p->facts.name);
}

typedef struct Seen {
    const char *order, *together;
} Seen;

/* Compares a launch with those of the programs before, value by value and role by role. */
static size_t check_group(const Model *m, const char *name, const Program *p, const Group *g, Seen *seen)
{
    size_t n = 0;

    for (uint32_t i = 0; i < g->b.n_covered; i++) {
        const Id v = g->b.covered[i];
        const Op op = ir_value(m->l.g, v)->op;
        Seen *s = &seen[v * 3 + g->b.contract->rows];
        const Seen now = {stated(g, op), together(m, g)};

        if (!m->l.is_sum[op])
            continue;
        if (!now.order)
            fail_msg("%s: %s computes %%%u in %s and states no order", name, g->b.contract->family, v, p->facts.name);
        if (s->order && (strcmp(s->order, now.order) != 0 || strcmp(s->together, now.together) != 0))
            fail_msg("%s: %%%u is added as %s with %s, in %s as %s with %s", name, v, s->order, s->together,
                     p->facts.name, now.order, now.together);
        *s = now;
        n++;
    }
    return n;
}

static void check_model(const char *path, const char *type, const char *target, const char *more)
{
    const char *name;
    Model m;
    Diag d = {0};
    size_t n = 0;
    Seen *seen;

    if (!model_open(&m, path, type, target, more, &d))
        fail_msg("%s %s on %s: %s", path, type, target, d.text);
    name = arena_printf(m.keep, "%s %s on %s", path, type, target);
    seen = arena_array(m.keep, Seen, m.l.g->values.n * 3);
    for (size_t p = 0; p < m.l.programs.n; p++)
        for (size_t i = 0; i < m.l.programs.at[p].groups.n; i++) {
            check_logits(&m, name, &m.l.programs.at[p], &m.l.programs.at[p].groups.at[i]);
            n += check_group(&m, name, &m.l.programs.at[p], &m.l.programs.at[p].groups.at[i], seen);
        }
    assert_true(n > m.l.programs.n);
    model_close(&m);
}

/* Whether a file of specs/ returns a model; a family returns a function. */
static bool is_model(const char *path)
{
    FileMap m;
    bool model;

    assert_int_equal(file_map(path, &m, NULL), FTX_OK);
    model = memmem(m.at, m.bytes, "ftx.model", 9) != NULL;
    file_unmap(&m);
    return model;
}

static bool is_refused(const char *path)
{
    return strstr(path, "qwen3-30b") != NULL; /* experts */
}

static void check_targets(const char *path, unsigned *models)
{
    static const char *const targets[] = {"sm_90a", "sm_80", "compute_90", "sm_120a"};
    static const char *const types[] = {"bf16", "fp32"};
    const bool all = strstr(path, "fable") || strstr(path, "bert-base");

    for (size_t k = 0; k < (all ? LEN(targets) : 2); k++)
        for (size_t t = 0; t < (all ? LEN(types) : 1); t++)
            if (in_turn_sanitized((*models)++, 8))
                check_model(path, types[t], targets[k], t ? NULL : "limits.tokens=600");
}

static void one_order(void **state)
{
    static const char *const folders[] = {"specs", "tests/models"};
    unsigned models = 0;
    char path[600];

    (void)state;
    for (size_t i = 0; i < LEN(folders); i++) {
        struct dirent **list;
        const int n = scandir(folders[i], &list, NULL, alphasort);

        assert_true(n > 0);
        for (int k = 0; k < n; k++) {
            const char *name = list[k]->d_name;
            char config[700];

            snprintf(path, sizeof path, "%s/%s", folders[i], name);
            snprintf(config, sizeof config, "%s/config.json", path);
            if ((i == 0 && strlen(name) > 4 && strcmp(name + strlen(name) - 4, ".lua") == 0 && is_model(path) &&
                 !is_refused(path)) ||
                (i == 1 && file_exists(config)))
                check_targets(path, &models);
            free(list[k]);
        }
        free(list);
    }
    assert_true(models >= 30);
}

/* What has no kernel with a stated order is refused, with a message that says so. */
static void refused(void **state)
{
    static const struct {
        const char *path, *type, *says;
    } models[] = {
        {"specs/qwen3-30b-a3b.lua", "bf16",
         "precision.sums is fixed, but no kernel for sm_90a states in which order it adds expert_linear"},
        {"specs/fable.lua", "int4", "precision.sums is fixed, and no sums line states how it adds linear"},
    };

    (void)state;
    for (size_t i = 0; i < LEN(models); i++) {
        Model m;
        Diag d = {0};

        assert_false(model_open(&m, models[i].path, models[i].type, "sm_90a", NULL, &d));
        if (!strstr(d.text, models[i].says))
            fail_msg("%s: %s", models[i].path, d.text);
        model_close(&m);
    }
}

/* The CPU has one order for any number of rows: the field changes nothing there. */
static void cpu(void **state)
{
    Model m;
    Diag d = {0};

    (void)state;
    assert_true(model_open(&m, "specs/fable.lua", "fp32", "cpu", NULL, &d));
    assert_false(m.l.fixed);
    assert_false(m.l.programs.at[0].facts.fixed);
    model_close(&m);
}

/* Labels of launches, which `ftxc show` prints, name the order. */
static void labels(void **state)
{
    Model m;
    Diag d = {0};
    size_t n = 0;

    (void)state;
    assert_true(model_open(&m, "specs/fable.lua", "bf16", "sm_90a", NULL, &d));
    assert_true(stage_edges(&m.l, &d) && stage_layout(&m.l, &d) && stage_schedule(&m.l, &d));
    for (size_t i = 0; i < m.l.programs.at[0].launches.n; i++)
        n += strstr(m.l.programs.at[0].launches.at[i].label, "), slices ") != NULL;
    assert_true(n >= 4);
    model_close(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(one_order), cmocka_unit_test(refused), cmocka_unit_test(cpu),
                                       cmocka_unit_test(labels)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
