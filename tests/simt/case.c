/* case.c - selects kernels (those that can compute a small graph, or those of a model's plan) and runs them. */
#include "scene.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "compiler/instantiate/instantiate.h"
#include "compiler/passes/lower.h"
#include "compiler/spec/spec.h"
#include "runtime/base/hash.h"

enum { MAX_UNITS = 2048 };

struct Suite {
    Arena *keep, *scratch;
    Catalog catalog;
    Build *build;
    Unit *at;
    size_t n, launches;
    unsigned turns; /* one kernel of `turns` is run (tests/turn.h) */
    size_t left;    /* kernels that this turn leaves out */
    Graph *graphs[MAX_UNITS];
    size_t n_graphs;
};

Suite *suite_open(const char *dir, unsigned turns)
{
    Arena *keep = arena_open();
    Suite *s = arena_alloc(keep, sizeof *s);
    Diag d = {0};

    *s = (Suite){.keep = keep, .scratch = arena_open(), .build = build_open(dir), .turns = turns};
    s->at = calloc(MAX_UNITS, sizeof *s->at);
    if (!catalog_open(keep, &s->catalog, &d))
        fail_msg("%s", d.text);
    return s;
}

void suite_close(Suite *s)
{
    for (size_t i = 0; i < s->n_graphs; i++)
        ir_graph_close(s->graphs[i]);
    build_close(s->build);
    free(s->at);
    arena_close(s->scratch);
    arena_close(s->keep);
}

static int tokens_of(const Case *c)
{
    int T = 0;

    for (int i = 0; i < c->rows; i++)
        T += c->row[i].q_len;
    return T;
}

static ProgramFacts facts_of(const Case *c, const Graph *g, Target t)
{
    const int64_t most = c->bucket ? c->bucket : c->decode ? g->limits.sequences : g->limits.tokens;

    assert_true(tokens_of(c) <= most && c->rows <= g->limits.sequences);
    return (ProgramFacts){.g = g,
                          .decode = c->decode,
                          .encode = c->encode,
                          .fixed = c->fixed,
                          .fp8_rows = c->fp8_rows,
                          .bucket = c->bucket,
                          .t_max = most,
                          .s_max = most < g->limits.sequences ? most : g->limits.sequences,
                          .target = target_facts(t),
                          .kv = c->kv,
                          .cross_kv = c->kv,
                          .compute = c->kv};
}

/* Inputs are there with row statistics too, and logits with segments, if the case says so. */
static int64_t *params_of(const Suite *s, const Case *c, const Graph *g)
{
    int64_t *params = arena_array(s->keep, int64_t, g->values.n * CONTRACT_MAX_FORMS);

    for (Id v = 1; v < g->values.n; v++) {
        int64_t *of = &params[v * CONTRACT_MAX_FORMS];

        of[0] = ir_value(g, v)->op != OP_QUANTISE;
        of[scene_form(&s->catalog, "row_stats")] = v == g->output ? 0 : c->columns;
        of[scene_form(&s->catalog, "e4m3_rows")] = c->fp8_rows && v != g->output;
        of[scene_form(&s->catalog, "digit_rows")] = c->digit_rows && v != g->output;
        of[scene_form(&s->catalog, "segments")] = v == g->logits && c->segments;
        if (ir_value(g, v)->op == OP_EXPERT_SUM)
            of[scene_form(&s->catalog, "parts")] = c->parts;
        if (ir_value(g, v)->op == OP_ROUTE && v != g->output)
            of[scene_form(&s->catalog, "by_expert")] = ir_value(g, ir_value(g, v)->args[0])->shape.dim[1].n;
    }
    return params;
}

static void add(Suite *s, const Unit *u)
{
    const char *entry = u->fit.instance->entry;

    if (!in_turn(hash128(entry, strlen(entry)).low, s->turns)) {
        s->left++;
        return;
    }
    assert_true(s->n < MAX_UNITS);
    s->at[s->n++] = *u;
    build_add(s->build, entry, instantiate_text(u->fit.instance, u->target, s->keep));
}

/* Programs, layers and models share kernels, so a kernel that is in the suite already is not added again. */
static void add_once(Suite *s, const Unit *u)
{
    for (size_t k = 0; k < s->n; k++)
        if (strcmp(s->at[k].fit.instance->entry, u->fit.instance->entry) == 0)
            return;
    add(s, u);
}

static void add_unit(Suite *s, const Unit *u)
{
    const Instance *i = u->fit.instance;

    for (size_t k = 0; k < s->n; k++) /* a pattern may match in two ways (operands swapped); one is enough */
        if (s->at[k].g == u->g && strcmp(s->at[k].fit.instance->entry, i->entry) == 0)
            return;
    add(s, u);
}

size_t suite_add(Suite *s, const Case *c, const char *name)
{
    Unit u = {.c = *c, .name = arena_strdup(s->keep, name)};
    const uint32_t gives = c->stats      ? scene_form(&s->catalog, "row_stats")
                           : c->sorted   ? scene_form(&s->catalog, "by_expert")
                           : c->fp8      ? scene_form(&s->catalog, "e4m3_rows")
                           : c->digits   ? scene_form(&s->catalog, "digit_rows")
                           : c->as_parts ? scene_form(&s->catalog, "parts")
                                         : 0;
    const size_t before = s->n + s->left;
    const char *reason = NULL;
    uint32_t *uses;
    Graph *g;
    Diag d = {0};

    g = ir_parse(name, c->graph, &d);
    if (!g || !ir_verify(g, &d) || !target_parse(c->target, &u.target, &d))
        fail_msg("%s: %s\n%s", name, d.text, c->graph);
    s->graphs[s->n_graphs++] = g;
    u.g = g;
    u.facts = facts_of(c, g, u.target);
    u.facts.params = params_of(s, c, g);
    u.fp8_rows = scene_form(&s->catalog, "e4m3_rows");
    u.digit_rows = scene_form(&s->catalog, "digit_rows");
    u.parts = scene_form(&s->catalog, "parts");
    u.facts.packed = 1u << scene_form(&s->catalog, "m16k16");
    uses = ir_uses(g);
    const Id root = c->unpacked ? ir_value(g, g->output)->args[1] : c->head ? g->logits : g->output;

    for (size_t i = 0; i < s->catalog.n; i++) {
        const Contract *k = s->catalog.at[i];

        if (k->device != KD_CUDA || (c->only && strcmp(c->only, k->family) != 0) ||
            (k->rows == ROWS_DECODE && c->decode_rows == 0) || (k->rows == ROWS_PREFILL && c->decode) ||
            !contract_gives(k, gives))
            continue;
        for (size_t m = 0; m < k->matches.n; m++)
            for (uint32_t way = 0; way < match_ways(&k->matches.at[m]); way++)
                if (match_at(&u.facts, uses, k, &k->matches.at[m], way, root, gives, &u.b, NULL, s->scratch) &&
                    (!c->segments || unit_reads_form(&u, g->logits)) &&
                    contract_fit_with(&u.facts, &u.b, c->use, c->n_use, s->keep, s->scratch, &u.fit, &reason))
                    add_unit(s, &u);
    }
    return s->n + s->left - before;
}

/* --- models --------------------------------------------------------------------------------------- */

static void add_row(Case *c, const Limits *m, int q_len, int kv_len)
{
    const int most = (int)(m->source && m->source < m->context ? m->source : m->context);

    c->row[c->rows].q_len = q_len;
    c->row[c->rows++].kv_len = kv_len < most ? kv_len : most;
}

/* A step that a program can run: few rows, with lengths that are no multiple of a tile. */
static Case step_for(const Program *p)
{
    static const int lengths[] = {7, 290, 1, 16, 33, 8, 40, 65};
    const ProgramFacts *f = &p->facts;
    const Limits *m = &f->g->limits;
    Case c = {.decode = f->decode, .bucket = (int)f->bucket, .kv = f->kv, .sms = f->target->sms};

    if (f->decode) {
        for (int i = 0; i < (int)LEN(lengths) && i < (f->t_max > 2 ? f->t_max - 1 : f->t_max); i++)
            add_row(&c, m, 1, lengths[i]);
        c.decode_rows = c.rows;
    } else if (f->encode) {
        const int n = f->bucket == 16 ? 7 : f->bucket == 64 ? 24 : 50;

        add_row(&c, m, n, n);
        add_row(&c, m, 1, 1);
        add_row(&c, m, n / 2 + 3, n / 2 + 3);
    } else {
        const int n = f->bucket == 16 ? 5 : f->bucket == 64 ? 20 : 50;

        add_row(&c, m, 1, 33);
        add_row(&c, m, 1, 1);
        add_row(&c, m, n, n);
        add_row(&c, m, n / 2, n / 2 + 9);
        c.decode_rows = 2;
    }
    return c;
}

static void sample_settings(Case *c)
{
    for (int r = 0; r < c->rows; r++)
        c->params[r] = (FtxParams){.temperature = r % 3 == 2 ? 0.0f : 0.9f,
                                   .top_p = r % 2 ? 0.9f : 1.0f,
                                   .top_k = r % 4 == 1 ? 20 : 0,
                                   .repetition = r % 4 == 3 ? 1.2f : 1.0f,
                                   .simple = r % 3 == 2 && r % 4 != 3,
                                   .top_needed = r % 3 == 2 && r % 4 != 3,
                                   .seed_low = (unsigned)r * 977u};
}

/* True for a linear layer without scratch or zeroed memory. Its blocks exchange data only within a cluster, so
 * some clusters can be run without the others. */
static bool blocks_apart(const Contract *k)
{
    return strncmp(k->family, "linear", 6) == 0 && k->scratch.n == 0 && k->zeroed.n == 0;
}

size_t suite_add_model(Suite *s, const char *path, const Override *overrides, size_t n, const char *target,
                       const char *name, int blocks)
{
    const size_t before = s->n;
    Packing packing = {0};
    Spec spec = {0};
    Plan plan;
    Lower l;
    Unit u = {.name = arena_strdup(s->keep, name)};
    Diag d = {0};

    if (!target_parse(target, &u.target, &d) || !spec_read(path, overrides, n, s->keep, &spec, &d) ||
        !passes_run_graph(spec.graph, &spec.precision, NULL, &d))
        fail_msg("%s: %s", path, d.text);
    s->graphs[s->n_graphs++] = spec.graph;
    lower_open(&l, spec.graph, &s->catalog, u.target, &spec.precision, &packing, &plan);
    if (!stage_select(&l, &d) || !stage_edges(&l, &d))
        fail_msg("%s: %s", path, d.text);
    for (size_t p = 0; p < l.programs.n; p++)
        for (size_t i = 0; i < l.programs.at[p].groups.n; i++) {
            const Group *g = &l.programs.at[p].groups.at[i];

            u.g = l.g;
            u.c = step_for(&l.programs.at[p]);
            u.fp8_rows = scene_form(&s->catalog, "e4m3_rows");
            u.digit_rows = scene_form(&s->catalog, "digit_rows");
            u.parts = scene_form(&s->catalog, "parts");
            u.c.blocks = blocks_apart(g->b.contract) ? blocks : 0;
            sample_settings(&u.c);
            u.facts = l.programs.at[p].facts;
            u.b = g->b;
            u.fit = g->fit;
            if (g->b.contract->device == KD_CUDA && (!unit_searches(&u) || u.facts.s_max >= FEW_ROWS))
                add_once(s, &u);
        }
    return s->n - before;
}

void suite_build(Suite *s)
{
    if (s->n)
        build_run(s->build);
}

static int64_t run_expr(const Expr *e, const int64_t variables[VAR_COUNT])
{
    int64_t n = 1;
    FtxError err;

    if (e->n && expr_run(e->words, e->n, variables, VAR_COUNT, &n, &err))
        fail_msg("%s", err.text);
    return n;
}

/* False: a check of the harness found an error; its reports have been printed. */
static bool launch(Suite *suite, const Scene *s, SimtSchedule schedule, uint64_t seed)
{
    const Unit *u = s->u;
    const Instance *in = u->fit.instance;
    const int64_t variables[VAR_COUNT] = {[VAR_T] = u->facts.bucket ? u->facts.t_max : s->T,
                                          [VAR_S] = u->facts.bucket ? u->facts.s_max : s->S,
                                          [VAR_SMS] = u->c.sms ? u->c.sms : 3};
    SimtLaunch l = {.kernel = build_kernel(suite->build, in->entry),
                    .args = s->arg,
                    .block = in->block,
                    .smem = in->smem,
                    .overlap = in->overlap,
                    .some = (unsigned)u->c.blocks};

    for (int i = 0; i < 3; i++)
        l.grid[i] = (unsigned)run_expr(&in->grid[i], variables);
    if (l.kernel->args_bytes != s->n_args * sizeof(void *))
        fail_msg("%s takes %u bytes, its contract has %zu pointers", in->entry, l.kernel->args_bytes, s->n_args);
    simt_schedule(schedule, seed);
    simt_in_front();
    scene_written_in_front(s);
    suite->launches++;
    if (simt_launch(&l))
        return true;
    scene_wrong("%s: %zu findings", u->name, simt_reports());
    for (size_t i = 0; i < simt_reports(); i++)
        print_message("  %s\n", simt_report(i)->text);
    simt_clear();
    return false;
}

static void run_unit(Suite *suite, const Unit *u, SimtSchedule schedule, uint64_t seed)
{
    for (int kind = 0; kind < (unit_searches(u) ? SEARCH_KINDS : 1); kind++) {
        Arena *keep = arena_open();
        Scene s;

        scene_make(&s, u, seed + 100 * (uint64_t)kind, keep);
        if (unit_searches(u)) {
            Searches *all = searches_begin(&s, kind);

            while (searches_next(all) && launch(suite, &s, schedule, seed)) {
                searches_check(all);
                scene_check_zeroed(&s);
            }
        } else if (launch(suite, &s, schedule, seed)) {
            scene_check(&s);
        }
        simt_free_all();
        arena_close(keep);
    }
}

void suite_run(Suite *s, int schedules, uint64_t seed)
{
    scene_failures = 0;
    for (size_t i = 0; i < s->n; i++)
        for (int k = 0; k < schedules; k++)
            if (in_turn((uint64_t)k, (uint64_t)schedules))
                run_unit(s, &s->at[i], (SimtSchedule)((i + (size_t)k) % SIMT_SCHEDULES), seed + (uint64_t)k);
    if (scene_failures)
        fail_msg("%zu launches went wrong", scene_failures);
}

void suite_summary(const Suite *s, FILE *out)
{
    for (size_t i = 0; i < s->catalog.n; i++) {
        const char *family = s->catalog.at[i]->family;
        size_t n = 0;

        if (s->catalog.at[i]->device != KD_CUDA)
            continue;
        for (size_t k = 0; k < s->n; k++)
            n += strcmp(s->at[k].fit.instance->family, family) == 0;
        if (n)
            fprintf(out, "%-20s %zu cases\n", family, n);
    }
    fprintf(out, "%zu kernels, %zu launches, %llu threads, %llu accesses checked\n", build_count(s->build), s->launches,
            (unsigned long long)simt_counts.threads, (unsigned long long)simt_counts.accesses);
}
