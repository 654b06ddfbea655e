/* test_specs.c - every kernel of every spec of the tree, with the constants that the compiler gives it, on
 * the host against kernels/ref.
 *
 * Each turn (tests/turn.h) runs a quarter of the kernels for sm_90a and sm_80. Steps are shorter than a spec's
 * limits allow. The grid is as large as on a GPU, but of a linear layer's blocks only the first, the last and one
 * between run. `test_specs long`: every target, sm_90a and sm_80 under two schedules; `test_specs NAME`: one spec. */
#include "case.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

enum { TURNS = 4 };
static bool wide;
static const char *only = "";

typedef struct Model {
    const char *name;
    const char *more[3]; /* overrides */
} Model;

static const Model models[] = {
    {"fable", {NULL}},
    {"fable", {"precision.weights=fp16"}},
    {"fable", {"precision.weights=fp32"}},
    {"gpt2-124m", {NULL}},
    {"llama-3.2-1b", {NULL}},
    {"llama-3.1-8b", {NULL}},
    {"bert-base", {NULL}},
    {"bert-large", {NULL}},
    {"verse", {NULL}},
    {"transformer-base", {NULL}},
    {"transformer-big", {NULL}},
};

static void add_model(Suite *s, const Model *m, const char *target)
{
    Override overrides[5] = {{"limits.tokens=512"}, {"limits.sequences=66"}};
    char path[100], name[200];
    size_t n = 2;

    snprintf(path, sizeof path, "specs/%s.lua", m->name);
    snprintf(name, sizeof name, "%s %s", m->name, target);
    for (size_t i = 0; i < 3 && m->more[i]; i++)
        overrides[n++] = (Override){m->more[i]};
    const size_t new = suite_add_model(s, path, overrides, n, target, name, 1);
    print_message("%-30s %-8s %zu kernels\n", m->name, target, new);
    fflush(stdout);
}

/* Under the sanitizers, which take several times as long, only the first model runs, unless a spec is named. */
static bool runs(const Model *m)
{
    return *only ? strcmp(m->name, only) == 0 : !SIMT_SANITIZED || m == models;
}

/* Runs all models for these targets. A kernel that several of them use runs once. */
static void run_targets(const char *const *targets, size_t n, int schedules, const char *name)
{
    char dir[600];

    snprintf(dir, sizeof dir, "%s/simt-specs%s%s", getenv("FTX_BUILD"), name, only);
    Suite *s = suite_open(dir, wide ? 1 : TURNS);
    for (size_t t = 0; t < n; t++)
        for (size_t i = 0; i < sizeof models / sizeof *models; i++)
            if (runs(&models[i]))
                add_model(s, &models[i], targets[t]);
    suite_build(s);
    suite_run(s, schedules, wide ? 47 : 41);
    suite_summary(s, stdout);
    suite_close(s);
}

static void specs(void **state)
{
    static const char *const targets[] = {"sm_90a", "sm_80", "sm_86", "sm_100a", "sm_120a"};

    (void)state;
    if (!wide)
        run_targets(targets, 2, 1, "");
    for (size_t t = 0; wide && t < sizeof targets / sizeof *targets; t++) /* all at once are too many for a build */
        run_targets(&targets[t], 1, t < 2 ? 2 : 1, targets[t]);
}

int main(int n, char **words)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(specs)};

    for (int i = 1; i < n; i++)
        if (strcmp(words[i], "long") == 0)
            wide = true;
        else
            only = words[i];
    return cmocka_run_group_tests(tests, NULL, NULL);
}
