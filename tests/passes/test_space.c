/* test_space.c - every combination of tuned constants that fits is one that the kernel can be compiled for.
 *
 * For each kernel that could compute a value of a few models, also those that `select` does not take, each combination is
 * fitted: what fits has a launch within the target's limits, and the untuned choice is among them. Of each contract and
 * target one combination is compiled, so that static asserts of the kernel see values which no prefer line names: another
 * one in each turn, which tries a third of the kernels (tests/turn.h). FTX_SPACE=n compiles n of each. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "compiler/instantiate/instantiate.h"
#include "compiler/passes/lower.h"
#include "compiler/spec/spec.h"
#include "runtime/base/hash.h"
#include "tests/skip.h"
#include "tests/turn.h"

typedef struct Drawn { /* a combination to compile: of its contract one with a small hash */
    const Contract *contract;
    Instance *instance;
    uint64_t entry, hash; /* of the instance's name; of this and the turn */
} Drawn;

typedef struct Space {
    Arena *keep, *scratch; /* scratch: emptied after each combination */
    Catalog catalog;
    Target target;
    struct {
        const char **at;
        size_t n, cap;
    } seen; /* names of untuned instances */
    struct {
        Drawn *at;
        size_t n, cap;
    } drawn;
    size_t each, kernels, tried, fitted;
} Space;

static bool is_tuned(const Contract *c)
{
    bool tuned = false;

    for (size_t i = 0; i < c->consts.n; i++)
        tuned |= c->consts.at[i].n_values > 0;
    return tuned;
}

static bool seen_before(Space *s, const char *name)
{
    for (size_t i = 0; i < s->seen.n; i++)
        if (strcmp(s->seen.at[i], name) == 0)
            return true;
    *(const char **)arena_push(s->keep, s->seen) = arena_strdup(s->keep, name);
    return false;
}

/* Keeps, of each contract, the `each` instances of the smallest hashes. NULL: this one is not among them; else the place
 * for it, whose instance is still to be set. */
static Drawn *draw(Space *s, const Contract *c, const char *entry)
{
    const char *turn = getenv("FTX_TURN");
    const uint64_t words[] = {hash64(entry, strlen(entry)), turn ? strtoull(turn, NULL, 10) : 0};
    const Drawn x = {c, NULL, words[0], hash64(words, sizeof words)};
    Drawn *worst = NULL;
    size_t n = 0;

    for (size_t i = 0; i < s->drawn.n; i++)
        if (s->drawn.at[i].contract == c) {
            if (s->drawn.at[i].entry == x.entry)
                return NULL;
            n++;
            worst = !worst || s->drawn.at[i].hash > worst->hash ? &s->drawn.at[i] : worst;
        }
    if (n < s->each)
        worst = arena_push(s->keep, s->drawn);
    else if (!worst || x.hash >= worst->hash)
        return NULL;
    *worst = x;
    return worst;
}

static void check_launch(const Space *s, const Program *p, const Instance *in)
{
    const int64_t variables[VAR_COUNT] = {
        [VAR_T] = p->facts.t_max, [VAR_S] = p->facts.s_max, [VAR_SMS] = target_facts(s->target)->sms};
    FtxError err;

    assert_in_range(in->block, 32, 1024);
    assert_true(in->smem <= target_facts(s->target)->smem);
    for (int i = 0; i < 3; i++) {
        int64_t n = 0;

        assert_int_equal(expr_run(in->grid[i].words, in->grid[i].n, variables, VAR_COUNT, &n, &err), FTX_OK);
        assert_in_range(n, 1, i ? 65535 : INT32_MAX);
    }
}

/* The next combination; false: there is none. */
static bool advance(const Contract *c, size_t *places)
{
    for (size_t i = 0; i < c->consts.n; i++) {
        if (!c->consts.at[i].n_values)
            continue;
        if (++places[i] < c->consts.at[i].n_values)
            return true;
        places[i] = 0;
    }
    return false;
}

static void try_all(Space *s, const Program *p, const Candidate *x)
{
    const Contract *c = x->b.contract;
    size_t places[CONTRACT_MAX_CONSTS] = {0};
    bool untuned = false;

    do {
        const char *reason = "";
        Drawn *drawn;
        Fitted fit;

        s->tried++;
        if (contract_fit_at(&p->facts, &x->b, places, s->scratch, s->scratch, &fit, &reason)) {
            s->fitted++;
            untuned |= strcmp(fit.instance->entry, x->fit.instance->entry) == 0;
            check_launch(s, p, fit.instance);
            drawn = draw(s, c, fit.instance->entry);
            if (drawn) {
                assert_true(contract_fit_at(&p->facts, &x->b, places, s->keep, s->scratch, &fit, &reason));
                drawn->instance = fit.instance;
            }
        }
        arena_reset(s->scratch);
    } while (advance(c, places));
    if (!untuned)
        fail_msg("%s: the untuned constants are not among those that fit", x->fit.instance->entry);
}

static void try_model(Space *s, const char *path, const char *override)
{
    const Override overrides[] = {{override}};
    Packing packing = {0};
    Plan plan = {0};
    Spec spec = {0};
    Diag d = {0};
    Lower l;

    if (!spec_read(path, overrides, override != NULL, s->keep, &spec, &d) ||
        !passes_run_graph(spec.graph, &spec.precision, &(Dump){0}, &d))
        fail_msg("%s: %s", path, d.text);
    lower_open(&l, spec.graph, &s->catalog, s->target, &spec.precision, &packing, &plan);
    if (!stage_select(&l, &d))
        fail_msg("%s: %s", path, d.text);
    for (size_t i = 0; i < l.programs.n; i++) {
        Program *p = &l.programs.at[i];

        if (!select_program(&l, p, &d)) /* for p->uses, which lasts until the next program */
            fail_msg("%s: %s", path, d.text);
        for (Id v = 1; v < l.g->values.n; v++) {
            Candidates all = {0};

            select_candidates(&l, p, p->uses, v, COMPUTE, false, &all);
            for (size_t k = 0; k < all.n; k++)
                if (is_tuned(all.at[k].b.contract) && !seen_before(s, all.at[k].fit.instance->entry) &&
                    in_turn(s->seen.n, 3)) {
                    s->kernels++;
                    try_all(s, p, &all.at[k]);
                }
        }
    }
    ir_graph_close(spec.graph);
}

static void compile_drawn(Space *s)
{
    Plan plan = {.target = s->target};
    Code code;
    Diag d = {0};

    for (size_t i = 0; i < s->drawn.n; i++)
        *(Instance **)arena_push(s->keep, plan.instances) = s->drawn.at[i].instance;
    if (!instantiate_compile(&plan, s->keep, &code, NULL, NULL, &d))
        fail_msg("%s", d.text);
    for (size_t i = 0; i < s->drawn.n; i++)
        print_message("  %s: %u registers, %u bytes spilled\n", s->drawn.at[i].instance->entry,
                      s->drawn.at[i].instance->registers, s->drawn.at[i].instance->spill_bytes);
}

static void try_target(const char *name)
{
    Space s = {.keep = arena_open(),
               .scratch = arena_open(),
               .each = getenv("FTX_SPACE") ? strtoul(getenv("FTX_SPACE"), NULL, 10) : 1};
    Diag d = {0};

    if (!catalog_open(s.keep, &s.catalog, &d) || !target_parse(name, &s.target, &d))
        fail_msg("%s", d.text);
    try_model(&s, "specs/fable.lua", "decode.width=4");
    try_model(&s, "specs/fable.lua", "precision.weights=fp32");
    try_model(&s, "specs/verse.lua", "decode.width=4");
    try_model(&s, "specs/llama-3.2-1b.lua", "limits.sequences=256");
    try_model(&s, "specs/bert-base.lua", NULL);
    print_message("%s: %zu kernels, %zu of %zu combinations fit\n", name, s.kernels, s.fitted, s.tried);
    assert_true(s.kernels > 0 && s.fitted > s.kernels);
    if (nvrtc_version())
        compile_drawn(&s);
    arena_close(s.scratch);
    arena_close(s.keep);
}

static void every_combination(void **state)
{
    static const char *const targets[] = {"sm_90a", "sm_80", "sm_120a"};

    (void)state;
    for (size_t i = 0; i < LEN(targets); i++)
        try_target(targets[i]);
    if (!nvrtc_version()) {
#if FTX_REQUIRE_NVRTC
        fail_msg("%s", nvrtc_missing());
#else
        SKIP("no combination was compiled: %s", nvrtc_missing());
#endif
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_combination)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
